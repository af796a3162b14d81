//! # Space
//!
//! Decides where new blocks go and when old space may live again; the only owner of the segment
//! table.
//!
//! ## Definitions
//! *Slot*: a fixed range of a device that holds one segment. *Unit*: the pool's allocation unit;
//! blocks are padded to it. Where devices of a group differ in size, segments may have fewer
//! columns than others and hold less than a slot; what can be placed, comes back or is kept is
//! therefore counted in units (`uneven.rs`, invariants [uneven.1] to [uneven.8]). On a store of
//! objects a segment takes the units it holds, and its slot is a number (`store_room.rs`).
//! *Stream*: who appends: one per (owner, [`Class`]), with at most one open segment. *Victim*: a
//! segment whose living units the cleaner copies away. *Run*: units that were moved together.
//! *Address*: (segment, unit) as it was when the block was appended, for ever; *place*: where the
//! units lie now.
//!
//! ## States of a segment
//!
//! | from    | to      | by |
//! |---------|---------|---|
//! | -       | open    | an append that finds no room in its stream (`Table::allocate`) |
//! | open    | full    | no room left, or a commit, on a device of whole objects (`Table::fill`, `uploads.rs`) |
//! | open    | closed  | full; import; its owner dropped (`Table::close`) |
//! | full    | closed  | its device has it (`Space::take_stored`) |
//! | closed  | emptied | its last living unit dies or is moved (`Table::retire`); the row leaves the table |
//! | closed  | kept    | the same, if the pool's checkpoint needs it (`kept.rs`) |
//! | kept    | emptied | the checkpoint is discarded (`Space::let_go`) |
//! | emptied | gone    | the commit whose tail knew it to be empty (`Space::committed`); the slot is free |
//!
//! ## Invariants
//! `Table::check` verifies them all; tests run it after every step.
//! [segment.1] A slot is taken by exactly one segment, with a row, emptied or kept, or free.
//! [segment.2] A segment id is given out once; a unit of a segment is appended to once.
//!      assert: `allocate`, `extend`
//! [segment.7] A slot is not used again before the commit that knows its segment to be empty.
//!      `release_committed`; test: `t2_*`
//! [segment.3] Living units of a row are its fill mark less its dead bits; devices and pool carry
//!      the sums.
//!      assert: `kill` (a unit dies once)
//! [segment.4] A closed segment lives: one without life has no row.
//! [segment.5] A run leads to existing units of which one at least lives.
//! [segment.6] Runs overlap neither by address nor by place, and what was moved is dead where it
//!      was. So no two living blocks share a unit: a living unit is known by exactly one address.
//!
//! ## What a crash does
//! Nothing in memory survives. The table is what the last durable tail and the meta tree below it
//! say. Slots taken since then are free again, and what was written there is garbage nobody points
//! to. Slots emptied since then hold what they held, because of [segment.7]. Blocks that the
//! cleaner moved since then are still where they were, for the same reason.
//!
//! Import *closes* segments that were open. Appending after the committed fill mark would be sound:
//! the units beyond were never committed, and a key's salt is fresh at every import, so no nonce
//! repeats. But a (segment, unit) would then have named two blocks to an observer of the device,
//! and a device that cannot overwrite would refuse it. Cost: the unfilled rest of at most six
//! segments per owner in use, until the cleaner takes them; such victims are nearly empty, so a
//! loop of crashes costs the cleaner little: three imports fill less than one segment anew. Ids
//! likewise skip what an uncommitted txg can have used: as many as there are slots.
//!
//! ## Why cleaning gets on
//! Every commit's cleaner gives back about as many bytes as file content was appended since the
//! last one (`Pressure`): twice as much if slots are short, nothing if many are free. It begins no
//! further victim once its budget of copied bytes is used up, so no commit takes long because of
//! it; what writers may reserve (`Space::txg_bytes_max`) follows what that budget gives back, so
//! they are slowed instead of stopped.
//!
//! It copies into streams that stay open across commits and splits runs at the end of a segment, so
//! copies are packed without loss: victims with d dead units in all give back d units, wherever
//! they are. Claims on slots:
//!
//! | who                                 | leaves free |
//! |-------------------------------------|---|
//! | admission of file content           | a slot for each metadata stream and each of the cleaner's beyond what it has filled of its present one [commit_room.3], what metadata may come to beyond that [commit_room.2], and 3 whole slots that keep the cleaner going; what its own open segment takes is counted as free, also of those |
//! | admission of deletes                | the same, but for what the cleaner's streams may fill; where the cleaner does not get on, one delete alone leaves nothing |
//! | an append of file content           | nearly a slot for each metadata stream without much room: an alarm, as admission leaves more |
//! | the cleaner                         | what the commit has yet to write, counted; and after the commit, which gives back what was emptied, the same as admission and what was promised |
//! | the cleaner, if nothing was written and slots are short | what the commit has yet to write |
//! | metadata                            | nothing |
//!
//! So what was admitted finds room, a commit always ends, and the cleaner has a slot to copy into.
//! Capacity leaves at least 12 slots' worth of units free or dead (24 on whole objects, where every
//! commit takes new slots for its metadata), so there is always a victim. In groups with narrow
//! segments the victim's slots must be usable as free slots lie now [uneven.5]. Once more than
//! seven eighths of the capacity live, a narrow segment whose slots complete a row of free ones is
//! a victim even if all of it lives.
//!
//! Choice of victims: by benefit over cost, (1 - u) / (1 + u) times the root of the age (Rosenblum
//! and Ousterhout 1991 take the age itself), age counted in segments opened since; the cheapest
//! only, when slots are short. The measuring instrument and the model to hold it against are
//! `examples/cleaner_curve`.
//!
//! ## Lock order
//! `sync` < a stream < `state` < the queue of uploads. Devices are read without a lock. Those that
//! can be appended to are written under the lock of the stream only, others without a lock.
//!
//! ## Not here
//! Contents of blocks, whether their bytes are right (judgement comes in as a function), second
//! copies, keys.
#![forbid(unsafe_code)]

mod accounting;
mod admission;
mod allocation;
mod append;
mod bitmap;
mod changes;
mod chunks;
mod cleaner;
mod columns;
mod commit;
mod commit_room;
mod dead_objects;
mod devices;
mod discard;
mod epochs;
mod error;
mod geometry;
mod group_spec;
mod groups;
mod headroom;
mod kept;
mod lanes;
mod living;
mod load;
mod loading;
mod log;
mod lost;
mod mend;
mod moving;
mod pace;
mod prove;
mod read;
mod redundant;
mod relocation;
mod row;
mod side;
mod sides;
mod single;
mod slots;
mod space;
mod store_room;
mod stream;
mod table;
mod table_check;
mod table_load;
mod uneven;
mod uploads;
mod verify;
mod walks;
mod widths;

pub use accounting::{Accounting, DeviceCounts, DeviceUsage, Wrong};
pub use chunks::ChunkUse;
pub use cleaner::CleanReport;
pub use commit_room::CommitRoom;
pub use devices::GivenUp;
pub use error::{Error, ReadError, TableError};
pub use geometry::Geometry;
pub use group_spec::{GroupSpec, MemberSpec, groups_of};
pub use groups::Redundancy;
pub use lanes::{Depth, Others};
pub use log::LogSegment;
pub use lost::IsLost;
pub use mend::Mended;
pub use moving::{Conversion, Moved};
pub use pace::Pace;
pub use prove::{DrawnChunk, Positions, Proof, Provable};
pub use read::READ_GAP_MAX;
pub use space::Space;
pub use uploads::Handed;
pub use verify::ColumnFault;

use steadfast_format::{Checksums, RelocationRow, SegmentId, SegmentRow};

/// Class of a stream: the kind of its blocks.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Class {
    /// File content.
    Data = 1,
    /// Metadata of datasets, first copy.
    Meta0 = 2,
    /// Metadata of datasets, second copy.
    Meta1 = 3,
    /// File content that the cleaner moved: colder than what is written now.
    Clean = 4,
    /// The pool's own metadata, first copy.
    Pool0 = 5,
    /// The pool's own metadata, second copy.
    Pool1 = 6,
    /// The intent log.
    Log = 7,
    /// File content in small blocks, on special groups.
    Small = 8,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 8] = [
        Class::Data,
        Class::Meta0,
        Class::Meta1,
        Class::Clean,
        Class::Pool0,
        Class::Pool1,
        Class::Log,
        Class::Small,
    ];

    /// From its stored number.
    #[must_use]
    pub fn from_u8(value: u8) -> Option<Class> {
        Class::ALL.into_iter().find(|class| *class as u8 == value)
    }

    /// True for the pool's own metadata, whose rows every tail carries.
    #[must_use]
    pub fn is_pool(self) -> bool {
        matches!(self, Class::Pool0 | Class::Pool1)
    }

    /// Which copy of metadata it holds.
    #[must_use]
    pub fn copy_index(self) -> Option<usize> {
        match self {
            Class::Meta0 | Class::Pool0 => Some(0),
            Class::Meta1 | Class::Pool1 => Some(1),
            Class::Data | Class::Clean | Class::Log | Class::Small => None,
        }
    }

    /// The class of the other copy.
    #[must_use]
    pub fn sibling(self) -> Option<Class> {
        match self {
            Class::Meta0 => Some(Class::Meta1),
            Class::Meta1 => Some(Class::Meta0),
            Class::Pool0 => Some(Class::Pool1),
            Class::Pool1 => Some(Class::Pool0),
            Class::Data | Class::Clean | Class::Log | Class::Small => None,
        }
    }

    /// Where the cleaner puts what lived in a segment of this class. Copies of metadata stay in
    /// streams of their own, or cleaning would bring both into one segment. Small blocks for which
    /// special groups have no room become content like other.
    #[must_use]
    pub fn cleaned_into(self) -> Class {
        match self {
            Class::Data | Class::Clean => Class::Clean,
            other => other,
        }
    }
}

/// Rows and relocations that were set (`Some`) or removed (`None`), for the meta tree. A removal
/// may name what was never stored.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SpaceChanges {
    /// Segment rows, by id.
    pub rows: Vec<(SegmentId, Option<SegmentRow>)>,
    /// Relocations, by the segment and unit they are known by.
    pub runs: Vec<((SegmentId, u32), Option<RelocationRow>)>,
    /// Checksums of redundant segments, by segment and part. Tails do not carry them.
    pub sums: Vec<((SegmentId, u32), Option<Checksums>)>,
}

/// The commit tail's part of the space: the fields of these names in
/// [`steadfast_format::CommitTail`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SpaceTail {
    /// Changes that the meta tree does not hold yet, and all rows and relocations of the pool's
    /// own metadata.
    pub changes: SpaceChanges,
    /// The id that the next segment will have.
    pub next_segment: SegmentId,
}
