//! Places for segments: one file, disk, piece of memory or store of whole objects, that says
//! honestly what it promised.
//!
//! The room knows segments, labels and uberblocks as bytes with a place, and nothing of their
//! content. A [`Device`] never retries, never caches what it was told to flush, and reports every
//! failure with the device, the operation, the place and the system's own number.
//!
//! ## What a device promises
//! [device.1] Writes before a [`Device::flush`] that succeeded survive a crash; later writes may
//!      survive whole, in part, in any order, or not at all.
//!      `MemoryDevice` plays all of these
//! [device.2] After a flush that failed, nothing more is accepted until the device is opened again:
//!      the kernel may have dropped what it could not write and would call the next flush a
//!      success.
//!      test: `after_a_failed_flush_*`
//! [device.3] A segment is written where nothing that a commit needs lies. On devices of whole
//!      objects this is enforced: a segment id is created once.
//!      test: `an_object_is_created_once`
//! [device.4] Reading gives the bytes of the last write, from memory or from the medium; it does
//!      not check them. The reader verifies.
//! ## Memory
//! Buffers of content come from [`pages`], the one module here that is unsafe.
#![deny(unsafe_code)]

mod buffer;
mod error;
pub mod file;
pub mod inject;
mod medium;
pub mod memory;
pub mod metered;
mod missing;
pub mod objects;
pub mod pages;
mod wait;

use std::sync::Arc;

use steadfast_format::medium::UBERBLOCK_SIZE;
use steadfast_format::{SegmentId, Txg};

pub use buffer::Buffer;
pub use error::{Error, Operation, Result};
pub use file::{Access, ClaimedFile, FileDevice, OpenOptions};
pub use medium::{Medium, is_below_another};
pub use memory::MemoryDevice;
pub use metered::{Meter, Metered};
pub use missing::MissingDevice;
pub use objects::{ObjectDevice, Objects};
pub use wait::{Change, DeviceWait, Obstacle, Outage};

/// Kind of a device.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// Regular file.
    File,
    /// Block device.
    Disk,
    /// Memory, for tests.
    Memory,
    /// Store of whole objects.
    Objects,
    /// Nothing: it was not found.
    Missing,
}

/// Kind and abilities of a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Character {
    /// Kind.
    pub kind: Kind,
    /// Size in bytes when last looked at; for objects, what the pool may use.
    pub size_bytes: u64,
    /// True if an open segment may be written in pieces. If not, a segment is put whole or not at
    /// all.
    pub appendable: bool,
    /// True if it was opened for writing.
    pub writable: bool,
    /// Name in messages: a path or an address.
    pub identity: String,
    /// The file or disk that stores the bytes, if it is one.
    pub medium: Option<Medium>,
}

/// State of an opened device while it is in use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Presence {
    /// It is there as far as can be seen without reading it.
    Whole,
    /// Its last name was removed: its bytes are gone as soon as it is closed.
    Removed,
    /// It is smaller than when it was opened.
    Short {
        /// Its size now.
        size_bytes: u64,
    },
}

/// Where a segment lies. A device of slots uses the slot, a store of objects the id: there the
/// slot may be any number.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SegmentPlace {
    /// Name of the segment.
    pub segment: SegmentId,
    /// Slot on the device.
    pub slot: u32,
    /// Bytes of a slot; the same everywhere in a pool.
    pub slot_size: u32,
}

/// A part of a segment that is to be read.
#[derive(Debug)]
pub struct PartRead<'a> {
    /// Where the segment lies.
    pub place: SegmentPlace,
    /// First byte.
    pub offset: u32,
    /// Buffers that the bytes go into, one after the other.
    pub outs: Vec<&'a mut [u8]>,
    /// Outcome, once it was tried.
    pub outcome: Result<()>,
}

impl<'a> PartRead<'a> {
    /// A part that was not tried yet.
    #[must_use]
    pub fn new(place: SegmentPlace, offset: u32, outs: Vec<&'a mut [u8]>) -> PartRead<'a> {
        PartRead { place, offset, outs, outcome: Ok(()) }
    }

    /// Bytes to be read.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.outs.iter().map(|out| out.len()).sum()
    }
}

/// One leaf of a pool. Every method may be called from many threads at once; writes to one place
/// are the caller's to order.
///
/// [`Metered`] and [`inject::Injected`] pass every method on: one that is added here is added there
/// too.
pub trait Device: Send + Sync {
    /// Its kind and abilities.
    fn character(&self) -> Character;

    /// Writes a segment from its beginning, at most `slot_size` bytes at once. The id is fresh for
    /// ever, the slot is free as of the last commit.
    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()>;

    /// The same of memory that the device may share for as long as it needs it, in place of a copy.
    fn put_shared(&self, place: SegmentPlace, bytes: &Arc<Buffer>) -> Result<()> {
        self.put_segment(place, bytes)
    }

    /// Writes the next piece of an open segment. Only on a device that is `appendable`.
    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()>;

    /// The same, for bytes that are flushed at once and hardly ever read: past the page cache
    /// however few they are, where the device can.
    fn append_segment_directly(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        self.append_segment(place, offset, bytes)
    }

    /// Writes several buffers side by side, the next piece of an open segment together, in one
    /// transfer.
    fn append_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &[&[u8]]) -> Result<()> {
        match parts {
            [bytes] => self.append_segment(place, offset, bytes),
            _ => self.append_segment(place, offset, &Buffer::gather(parts)),
        }
    }

    /// Reads `out.len()` bytes of a segment. Bytes never written read as anything or as an error.
    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()>;

    /// Reads bytes that lie side by side in a segment into several buffers, in one transfer where
    /// the device can.
    fn read_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &mut [&mut [u8]]) -> Result<()> {
        let mut at = offset;
        for part in parts {
            self.read_segment(place, at, part)?;
            at = at.saturating_add(u32::try_from(part.len()).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// Reads parts of segments, side by side where the device can; each has its own outcome.
    fn read_many(&self, reads: &mut [PartRead<'_>]) {
        for read in reads {
            read.outcome = self.read_segment_parts(read.place, read.offset, &mut read.outs);
        }
    }

    /// The place's bytes are needed no more (nor by any root that import may choose): punches a
    /// hole, deletes the object. A device that cannot does nothing.
    fn discard_segment(&self, place: SegmentPlace) -> Result<()>;

    /// Whether discarding gives anything back here, as far as is known: a device may learn that it
    /// does not.
    fn can_discard(&self) -> bool {
        true
    }

    /// Abilities of a device of whole objects, if it is one.
    fn objects(&self) -> Option<&dyn Objects> {
        None
    }

    /// Writes the configuration area of label `copy` (0 to 3), at most 56 KiB. A store of objects
    /// keeps one label: it acts on copy 0 and ignores the others.
    fn write_label(&self, copy: usize, bytes: &[u8]) -> Result<()>;

    /// Reads the configuration area of label `copy`: what was written, perhaps with other bytes
    /// behind it. Empty where there is none.
    fn read_label(&self, copy: usize) -> Result<Vec<u8>>;

    /// Writes the uberblock of `txg` into the ring of label `copy`.
    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> Result<()>;

    /// Reads the ring of label `copy`: up to 48 times 4,096 bytes, in no order, valid or not. A
    /// store of objects has its newest root in ring 0, the one before in ring 1, and so on.
    fn read_uberblocks(&self, copy: usize) -> Result<Vec<Vec<u8>>>;

    /// Makes durable all that was written before the call.
    fn flush(&self) -> Result<()>;

    /// Looks whether what was opened is still there.
    fn presence(&self) -> Presence {
        Presence::Whole
    }

    /// Its size now. Nothing changes place because of this call: [`Device::refresh_size`] does
    /// that.
    fn seen_bytes(&self) -> u64 {
        self.character().size_bytes
    }

    /// Looks at the size again and returns it; from now on the back labels are at the new end.
    fn refresh_size(&self) -> Result<u64> {
        Ok(self.character().size_bytes)
    }

    /// Lets others have the device from now on, whoever still holds this handle: it accepts no more
    /// transfers, and keeps neither the device nor what it lies on in use. Waits for transfers
    /// under way. A device that nobody else can open does nothing.
    fn release(&self) {}
}

/// A device several hands hold.
pub type SharedDevice = Arc<dyn Device>;
