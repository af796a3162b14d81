//! Questions about space, for admission, for `df` and for statistics.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use steadfast_format::{Address, DeviceId};

/// How space is used.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Accounting {
    /// Bytes of a slot.
    pub slot_size: u32,
    /// Bytes of an allocation unit.
    pub unit: u32,
    /// All slots, or of devices of different sizes as many as hold what these do.
    pub slots: u64,
    /// Slots that can be taken now, counted in the same way.
    pub free_slots: u64,
    /// Segments whose slots the commit under way or the next one gives back.
    pub emptied_slots: u64,
    /// Bytes that all slots hold together.
    pub size_bytes: u64,
    /// Bytes that new segments can hold now.
    pub free_bytes: u64,
    /// Bytes that segments held which are empty, and whose slots a commit gives back.
    pub emptied_bytes: u64,
    /// Open segments.
    pub open_slots: u64,
    /// Bytes that may live at most: all slots less the reserve; of special groups what lives there.
    /// Where devices of a group differ in size it is what can be reached as segments lie now, and
    /// grows as the cleaner writes them anew.
    pub capacity_bytes: u64,
    /// Bytes kept for the cleaner, for commits and for deleting on a full pool.
    pub reserve_bytes: u64,
    /// Bytes of living blocks, padding and second copies included.
    pub live_bytes: u64,
    /// Bytes of closed segments that hold nothing that lives: free, but only cleaning makes whole
    /// slots of them.
    pub dead_bytes: u64,
    /// Bytes that would be free, once what is dead was cleaned, without the checkpoint.
    pub kept_bytes: u64,
    /// Bytes of open segments not filled yet.
    pub open_room_bytes: u64,
    /// Runs that the cleaner moved and that still live.
    pub relocations: u64,
    /// By device.
    pub devices: Vec<DeviceUsage>,
}

impl Accounting {
    /// Share of the free space that new segments cannot use before the cleaner has worked, in
    /// percent: what is dead within segments that live, of that and of the free slots. 0 of a pool
    /// without free space.
    #[must_use]
    pub fn fragmentation_percent(&self) -> u32 {
        let whole = self.free_bytes + self.emptied_bytes;
        let free = self.dead_bytes + whole;
        u32::try_from((self.dead_bytes * 100).checked_div(free).unwrap_or(0)).expect("a part of a whole")
    }
}

/// How one device is used.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DeviceUsage {
    /// The device.
    pub device: DeviceId,
    /// Its slots.
    pub slots: u64,
    /// Slots that can be taken now.
    pub free_slots: u64,
    /// Bytes of living blocks.
    pub live_bytes: u64,
}

/// Fault of bytes that a device returned, as far as it can be told.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Wrong {
    /// Other bytes than were written there: rot, or somebody's hand.
    Hash,
    /// Zeros where something was written: a write that never came, or a wiped device.
    Stale,
    /// Bytes that belong to another place, of the same segment or of one written at about the same
    /// time: a write or a read that went astray.
    Misplaced,
    /// The bytes that were written there, but the key does not open them as what their pointer
    /// says.
    Authentication,
}

/// Operations of one device since the pool was imported.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeviceCounts {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes, flushes and discards that failed.
    pub write_errors: u64,
    /// Blocks that gave bytes nobody accepted, each counted once however often it is read: the sum
    /// of the next four.
    pub checksum_errors: u64,
    /// Of these [`Wrong::Hash`].
    pub hash_errors: u64,
    /// [`Wrong::Stale`].
    pub stale_errors: u64,
    /// [`Wrong::Misplaced`].
    pub misplaced_errors: u64,
    /// [`Wrong::Authentication`].
    pub authentication_errors: u64,
    /// Bytes of blocks that were found wrong here and written anew.
    pub repaired_bytes: u64,
}

/// Live counters behind [`DeviceCounts`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    /// By [`Wrong`].
    wrong: [AtomicU64; 4],
    repaired_bytes: AtomicU64,
    /// Blocks counted in `wrong`, and as what. An address is never used again, so it tells blocks
    /// apart for ever.
    rejected: Mutex<BTreeMap<Address, Wrong>>,
}

/// Bad blocks told apart; of a device with more, each bad read counts.
const REJECTED_KEPT: usize = 65_536;

impl Counters {
    pub fn read(&self, bytes: usize, good: bool) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if good {
            self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        } else {
            self.read_errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn wrote(&self, bytes: usize, good: bool) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if good {
            self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        } else {
            self.write_errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn write_failed(&self) {
        self.write_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a block that gave wrong bytes. One that is known counts as what was told first, but
    /// for what only its key shows.
    pub fn rejected(&self, address: Address, wrong: Wrong) {
        let mut known = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        let full = known.len() >= REJECTED_KEPT;
        match known.entry(address) {
            Entry::Occupied(mut before) if wrong == Wrong::Authentication && *before.get() != wrong => {
                let before = before.insert(wrong);
                self.wrong[before as usize].fetch_sub(1, Ordering::Relaxed);
            }
            Entry::Occupied(_) if !full => return,
            Entry::Occupied(_) => {}
            Entry::Vacant(_) if full => {}
            Entry::Vacant(place) => _ = place.insert(wrong),
        }
        self.wrong[wrong as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn repaired(&self, bytes: usize) {
        self.repaired_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn clear_errors(&self) {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for counter in [&self.read_errors, &self.write_errors].into_iter().chain(&self.wrong) {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub fn snapshot(&self) -> DeviceCounts {
        let wrong = |kind: Wrong| self.wrong[kind as usize].load(Ordering::Relaxed);
        DeviceCounts {
            reads: self.reads.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            read_errors: self.read_errors.load(Ordering::Relaxed),
            write_errors: self.write_errors.load(Ordering::Relaxed),
            checksum_errors: self.wrong.iter().map(|count| count.load(Ordering::Relaxed)).sum(),
            hash_errors: wrong(Wrong::Hash),
            stale_errors: wrong(Wrong::Stale),
            misplaced_errors: wrong(Wrong::Misplaced),
            authentication_errors: wrong(Wrong::Authentication),
            repaired_bytes: self.repaired_bytes.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use steadfast_format::SegmentId;

    use super::*;

    #[test]
    fn a_bad_block_counts_once_until_errors_are_cleared() {
        let counters = Counters::default();
        let block = |offset| Address { segment: SegmentId(3), offset };
        for offset in [0, 4096, 0, 0, 4096] {
            counters.rejected(block(offset), Wrong::Hash);
        }
        assert_eq!(counters.snapshot().checksum_errors, 2);
        counters.clear_errors();
        counters.rejected(block(0), Wrong::Stale);
        assert_eq!(counters.snapshot().checksum_errors, 1);
    }

    #[test]
    fn what_the_key_shows_takes_the_place_of_what_was_told_before() {
        let counters = Counters::default();
        let block = Address { segment: SegmentId(3), offset: 0 };
        counters.rejected(block, Wrong::Stale);
        counters.rejected(block, Wrong::Hash);
        counters.rejected(block, Wrong::Authentication);
        counters.rejected(block, Wrong::Authentication);
        counters.rejected(block, Wrong::Misplaced);
        let counts = counters.snapshot();
        assert_eq!((counts.checksum_errors, counts.authentication_errors), (1, 1));
        assert_eq!((counts.stale_errors, counts.hash_errors, counts.misplaced_errors), (0, 0, 0));
    }
}
