//! Every stored structure, declared once: encode, decode, version. No I/O, no clock, no keys.
//!
//! The bytes are specified in `docs/FORMAT.md`; a test compares its tables with the constants here.
//! Numbers are little-endian in structures and big-endian in tree keys (so that byte order is key
//! order). Reserved room is a field, written as zero and refused if not zero. Discriminant 0 is
//! never valid, except where 0 means "absent".
#![forbid(unsafe_code)]

pub mod anchor;
pub mod block_pointer;
mod cache_chunk;
mod checkpoint;
mod checksums;
pub mod commit_tail;
pub mod dataset_row;
pub mod deadlist;
pub mod dirent;
pub mod error;
pub mod extent;
pub mod feature;
pub mod file_keys;
pub mod fuzz;
pub mod held_log;
pub mod history_entry;
pub mod ids;
pub mod inode;
pub mod label;
pub mod layout;
pub mod log_group;
mod manifest;
pub mod medium;
pub mod meta_keys;
pub mod node;
pub mod object_names;
pub mod overlay;
mod owner;
pub mod parity;
mod parity_standing;
pub mod raw;
mod receive_row;
mod received_property;
mod reference_row;
pub mod relocation_row;
pub mod scan_row;
mod segment_row;
pub mod snapshot_row;
pub mod stream;
pub mod structures;
pub mod uberblock;
pub mod wrapped_key;
pub mod xattr;

pub use anchor::{AnchorRecord, LogHead};
pub use block_pointer::{Address, BlockKind, BlockPointer, Compression, Stamp};
pub use cache_chunk::{CacheChunk, CacheEntry};
pub use checkpoint::Checkpoint;
pub use checksums::Checksums;
pub use commit_tail::CommitTail;
pub use dataset_row::{DatasetEncryption, DatasetRow, Lineage};
pub use deadlist::{Cell, CellPlace, DeadRange};
pub use error::DecodeError;
pub use feature::{Feature, Need};
pub use held_log::HeldLog;
pub use history_entry::HistoryEntry;
pub use ids::{DatasetId, DeviceId, InodeId, PoolGuid, SegmentId, Txg};
pub use label::{
    AuxClass, AuxConfig, GroupClass, GroupConfig, GroupKind, LabelConfig, LeafConfig, LeafState, LogOut,
    LogPart, PoolState, Standing,
};
pub use layout::is_zero;
pub use log_group::{LogHeader, LogRecord};
pub use manifest::{ManifestEntry, ManifestRun, ManifestWriter};
pub use meta_keys::{CellId, MetaKey};
pub use owner::{Owner, OwnerKind, OwnerRow};
pub use parity_standing::ParityStanding;
pub use receive_row::ReceiveRow;
pub use received_property::ReceivedProperty;
pub use reference_row::{ContentRow, ReferenceRow, SharingClass, SharingRow};
pub use relocation_row::RelocationRow;
pub use scan_row::{ScanKind, ScanRow, ScanState};
pub use segment_row::{Column, Placement, SegmentRow};
pub use snapshot_row::{Bookmark, SnapshotRow};
pub use uberblock::{LogStart, Uberblock};
pub use wrapped_key::{KdfParams, KeyFormat, WrappedKey};
