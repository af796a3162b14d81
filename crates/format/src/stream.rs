//! The encoding of streams: `zfs send` writes them and `zfs receive` reads them. FORMAT.md, part
//! "Streams".
//!
//! Like ZFS's `dmu_replay_record`s: a header, then frames (ZFS: records), each chained to the one
//! before it by a hash. This module lays the bytes out; the pool's `send` and `receive` compute the
//! hashes.

mod assignments;
mod content;
mod frame;
mod header;
mod member;
mod notes;
mod snapshot;
mod span;

pub use content::{PackedRecord, Repeat};
pub use frame::{FrameHeader, FrameKind};
pub use header::StreamHeader;
pub use member::StreamMember;
pub use notes::StreamNotes;
pub use snapshot::{StreamBegin, StreamEnd};
pub use span::StreamSpan;
