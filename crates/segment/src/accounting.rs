//! Questions about space, for admission, for `df` and for statistics.

use std::collections::BTreeSet;
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
    /// All slots.
    pub slots: u64,
    /// Slots that can be taken now.
    pub free_slots: u64,
    /// Slots that the commit under way or the next one gives back.
    pub emptied_slots: u64,
    /// Open segments.
    pub open_slots: u64,
    /// Bytes that may live at most: all slots less the reserve.
    pub capacity_bytes: u64,
    /// Bytes kept for the cleaner, for commits and for deleting on a full pool.
    pub reserve_bytes: u64,
    /// Bytes of living blocks, padding and second copies included.
    pub live_bytes: u64,
    /// Bytes of closed segments that hold nothing that lives: free, but only cleaning makes whole slots of them.
    pub dead_bytes: u64,
    /// Bytes of open segments not filled yet.
    pub open_room_bytes: u64,
    /// Runs that the cleaner moved and that still live.
    pub relocations: u64,
    /// By device.
    pub devices: Vec<DeviceUsage>,
}

impl Accounting {
    /// Share of the free space that new segments cannot use before the cleaner has worked, in percent: what is dead within
    /// segments that live, of that and of the free slots. 0 of a pool without free space.
    #[must_use]
    pub fn fragmentation_percent(&self) -> u32 {
        let whole = (self.free_slots + self.emptied_slots) * u64::from(self.slot_size);
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

/// What was asked of one device since the pool was imported.
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
    /// Blocks that gave bytes nobody accepted, each counted once however often it is read.
    pub checksum_errors: u64,
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
    checksum_errors: AtomicU64,
    repaired_bytes: AtomicU64,
    /// Blocks counted in `checksum_errors`. An address is never used again, so it tells blocks apart for ever.
    rejected: Mutex<BTreeSet<Address>>,
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

    pub fn rejected(&self, address: Address) {
        let mut known = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REJECTED_KEPT || known.insert(address) {
            self.checksum_errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn repaired(&self, bytes: usize) {
        self.repaired_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn clear_errors(&self) {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for counter in [&self.read_errors, &self.write_errors, &self.checksum_errors] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub fn snapshot(&self) -> DeviceCounts {
        DeviceCounts {
            reads: self.reads.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            read_errors: self.read_errors.load(Ordering::Relaxed),
            write_errors: self.write_errors.load(Ordering::Relaxed),
            checksum_errors: self.checksum_errors.load(Ordering::Relaxed),
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
            counters.rejected(block(offset));
        }
        assert_eq!(counters.snapshot().checksum_errors, 2);
        counters.clear_errors();
        counters.rejected(block(0));
        assert_eq!(counters.snapshot().checksum_errors, 1);
    }
}
