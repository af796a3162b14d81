//! A part of a cache that has a lock of its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use steadfast_format::Address;

use crate::AddressMap;

/// Part of the room that new entries have.
const SMALL_DIVISOR: usize = 10;
/// Least bytes for new entries, if that is at most [`SMALL_PART_MAX`] of the room: the nodes from a
/// root to two leaves stand side by side there.
const SMALL_BYTES_MIN: usize = 64 << 10;
const SMALL_PART_MAX: usize = 4;
/// Part of the room that must be filled anew before another use of an entry counts.
const PERIOD_DIVISOR: usize = 20;
/// Rounds that an entry of the main queue can have in store, at most.
const USES_MAX: u8 = 3;
/// Ghosts that there may be beside few entries.
pub(crate) const GHOSTS_MIN: usize = 16;
/// Names that the queues may hold beyond two for each entry.
const NAMES_SPARE: usize = 64;

/// Entries by address, and the order in which they go. See the crate's text.
#[derive(Debug)]
pub struct Shard<V> {
    entries: AddressMap<Entry<V>>,
    small: VecDeque<Name>,
    main: VecDeque<Name>,
    ghosts: Ghosts,
    bytes_max: usize,
    bytes: usize,
    small_bytes: usize,
    /// Bytes that came so far, the clock of the uses.
    filled: u64,
    serial: u64,
    evictions: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: usize,
    serial: u64,
    is_main: bool,
    /// Uses that counted, up to [`USES_MAX`].
    uses: AtomicU8,
    /// [`Shard::filled`] when the last use counted, or when the entry came.
    counted: AtomicU64,
}

/// An entry in a queue; of another serial than the entry's it means one that was removed.
#[derive(Clone, Copy, Debug)]
struct Name {
    address: Address,
    serial: u64,
}

/// Addresses of entries that went without having been used.
#[derive(Debug, Default)]
struct Ghosts {
    known: AddressMap<u64>,
    order: VecDeque<Name>,
}

impl Ghosts {
    fn add(&mut self, name: Name, most: usize) {
        self.known.insert(name.address, name.serial);
        self.order.push_back(name);
        self.shrink(most);
    }

    fn shrink(&mut self, most: usize) {
        while self.order.len() > most {
            let oldest = self.order.pop_front().expect("more than none");
            if self.known.get(&oldest.address) == Some(&oldest.serial) {
                self.known.remove(&oldest.address);
            }
        }
    }
}

impl<V> Shard<V> {
    /// Bytes of an entry besides those of its value: itself, its name, and a ghost.
    pub const ENTRY_BYTES: usize =
        size_of::<Address>() + size_of::<Entry<V>>() + 3 * size_of::<Name>() + 2 * size_of::<u64>();

    /// An empty shard that may take so many bytes. Zero is allowed: it keeps nothing.
    #[must_use]
    pub fn new(bytes_max: usize) -> Shard<V> {
        Shard {
            entries: AddressMap::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: Ghosts::default(),
            bytes_max,
            bytes: 0,
            small_bytes: 0,
            filled: 0,
            serial: 0,
            evictions: 0,
        }
    }

    /// The entry of an address, if the caller accepts it; that is a use.
    pub fn find(&self, address: Address, accepts: impl FnOnce(&V) -> bool) -> Option<&V> {
        let entry = self.entries.get(&address).filter(|entry| accepts(&entry.value))?;
        let since = self.filled.wrapping_sub(entry.counted.load(Ordering::Relaxed));
        // Two readers at once may count one use, or two: either will do.
        if since > (self.bytes_max / PERIOD_DIVISOR) as u64 {
            entry.counted.store(self.filled, Ordering::Relaxed);
            let uses = entry.uses.load(Ordering::Relaxed);
            entry.uses.store(uses.saturating_add(1).min(USES_MAX), Ordering::Relaxed);
        }
        Some(&entry.value)
    }

    /// The entry of an address, if there is one; that is no use.
    #[must_use]
    pub fn peek(&self, address: Address) -> Option<&V> {
        self.entries.get(&address).map(|entry| &entry.value)
    }

    /// All values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|entry| &entry.value)
    }

    /// Keeps a value of so many bytes, in the place of any other of its address. Others go for it.
    /// False if it is larger than the shard: it is not kept then.
    pub fn insert(&mut self, address: Address, value: V, value_bytes: usize) -> bool {
        self.remove(address);
        let bytes = value_bytes.saturating_add(Self::ENTRY_BYTES);
        if bytes > self.bytes_max {
            return false;
        }
        while self.bytes + bytes > self.bytes_max {
            self.evict_one();
        }
        self.serial += 1;
        self.filled += bytes as u64;
        let name = Name { address, serial: self.serial };
        let is_main = self.ghosts.known.remove(&address).is_some();
        let entry = Entry {
            value,
            bytes,
            serial: self.serial,
            is_main,
            uses: AtomicU8::new(0),
            counted: AtomicU64::new(self.filled),
        };
        self.entries.insert(address, entry);
        self.bytes += bytes;
        if is_main {
            self.main.push_back(name);
        } else {
            self.small.push_back(name);
            self.small_bytes += bytes;
        }
        true
    }

    /// Takes the entry of an address out, for a reason of the owner's: it leaves no ghost.
    pub fn remove(&mut self, address: Address) -> Option<V> {
        let value = self.take(address).map(|entry| entry.value);
        if value.is_some() && self.small.len() + self.main.len() > 2 * self.entries.len() + NAMES_SPARE {
            self.sweep();
        }
        value
    }

    /// Keeps only what the caller wants to keep.
    pub fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.entries.retain(|_, entry| keep(&entry.value));
        self.bytes = self.entries.values().map(|entry| entry.bytes).sum();
        let small = self.entries.values().filter(|entry| !entry.is_main);
        self.small_bytes = small.map(|entry| entry.bytes).sum();
        self.sweep();
    }

    /// Changes how many bytes the entries may take; what is too much goes at once.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        while self.bytes > bytes_max {
            self.evict_one();
        }
        self.sweep();
        self.entries.shrink_to_fit();
        self.small.shrink_to_fit();
        self.main.shrink_to_fit();
        let most = self.ghosts_max();
        self.ghosts.shrink(most);
    }

    /// Bytes that the entries may take.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes that the entries take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries that went for others so far.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Lets one entry go. Ends: each step takes a name out of the small queue, or a use from an
    /// entry of the main one.
    fn evict_one(&mut self) {
        assert!(!self.entries.is_empty(), "[cache.1] what takes bytes is an entry");
        let small_max =
            (self.bytes_max / SMALL_DIVISOR).max(SMALL_BYTES_MIN.min(self.bytes_max / SMALL_PART_MAX));
        loop {
            let is_small_full = self.small_bytes > small_max || self.main.is_empty();
            if is_small_full && let Some(name) = self.small.pop_front() {
                let Some(entry) = self.entries.get_mut(&name.address) else { continue };
                if entry.serial != name.serial {
                    continue;
                }
                if entry.uses.swap(0, Ordering::Relaxed) > 0 {
                    entry.is_main = true;
                    self.small_bytes -= entry.bytes;
                    self.main.push_back(name);
                    continue;
                }
                self.take(name.address);
                self.evictions += 1;
                let most = self.ghosts_max();
                self.ghosts.add(name, most);
                return;
            }
            let name = self.main.pop_front().expect("[cache.2] an entry stands in one of the queues");
            let Some(entry) = self.entries.get_mut(&name.address) else { continue };
            if entry.serial != name.serial {
                continue;
            }
            let uses = entry.uses.load(Ordering::Relaxed);
            if uses == 0 {
                self.take(name.address);
                self.evictions += 1;
                return;
            }
            entry.uses.store(uses - 1, Ordering::Relaxed);
            self.main.push_back(name);
        }
    }

    /// As many as entries [cache.3].
    fn ghosts_max(&self) -> usize {
        self.entries.len().max(GHOSTS_MIN)
    }

    fn take(&mut self, address: Address) -> Option<Entry<V>> {
        let entry = self.entries.remove(&address)?;
        self.bytes -= entry.bytes;
        if !entry.is_main {
            self.small_bytes -= entry.bytes;
        }
        Some(entry)
    }

    /// Drops the names of what was removed.
    fn sweep(&mut self) {
        let entries = &self.entries;
        let is_valid =
            |name: &Name| entries.get(&name.address).is_some_and(|entry| entry.serial == name.serial);
        self.small.retain(is_valid);
        self.main.retain(is_valid);
        debug_assert_eq!(self.small.len() + self.main.len(), self.entries.len(), "[cache.2]");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_format::SegmentId;

    fn at(number: u64) -> Address {
        Address { segment: SegmentId(1 + (number >> 20)), offset: number as u32 & 0xf_ffff }
    }

    /// A use; a miss brings the entry.
    fn get(shard: &mut Shard<u64>, number: u64) -> bool {
        let is_hit = shard.find(at(number), |value| *value == number).is_some();
        if !is_hit {
            shard.insert(at(number), number, 4096);
        }
        is_hit
    }

    fn check(shard: &Shard<u64>) {
        assert_eq!(shard.bytes, shard.entries.values().map(|entry| entry.bytes).sum::<usize>());
        assert!(shard.bytes <= shard.bytes_max, "[cache.1]");
        let small = shard.entries.values().filter(|entry| !entry.is_main);
        assert_eq!(shard.small_bytes, small.map(|entry| entry.bytes).sum::<usize>());
        for (queue, is_main) in [(&shard.small, false), (&shard.main, true)] {
            let names = queue.iter().filter(|name| {
                shard.entries.get(&name.address).is_some_and(|entry| entry.serial == name.serial)
            });
            let entries = shard.entries.values().filter(|entry| entry.is_main == is_main);
            assert_eq!(names.count(), entries.count(), "[cache.2]");
        }
        assert!(
            shard.small.len() + shard.main.len() <= 2 * shard.entries.len() + NAMES_SPARE + 1,
            "[cache.2]"
        );
        // Entries that are removed leave their ghosts' room behind until the next eviction.
        assert!(shard.ghosts.known.len() <= shard.ghosts.order.len());
    }

    #[test]
    fn any_order_of_calls_keeps_the_invariants() {
        let mut state = 7u64;
        let mut draw = |end: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % end
        };
        for room in [0, 5_000, 60_000, 2_000_000] {
            let mut shard = Shard::new(room);
            for step in 0..20_000 {
                let number = draw(600);
                match draw(20) {
                    0..=9 => {
                        get(&mut shard, number);
                    }
                    10..=16 => {
                        shard.insert(at(number), number, draw(9_000) as usize);
                    }
                    17 => {
                        shard.remove(at(number));
                    }
                    18 => shard.retain(|value| value % 7 != number % 7),
                    _ => shard.set_bytes_max(room / (1 + draw(3) as usize)),
                }
                if step % 10 == 0 {
                    check(&shard);
                }
            }
            check(&shard);
            shard.retain(|_| false);
            assert_eq!((shard.bytes(), shard.len(), shard.small.len() + shard.main.len()), (0, 0, 0));
        }
    }

    /// Misses of the hot entries while a scan passes that uses each of its entries forty times.
    fn hot_misses(room: usize) -> (u64, u64) {
        let (mut shard, mut hot, mut asked) = (Shard::new(room), 0, 0);
        let hot_count = room as u64 / 2 / 5_000;
        let turn = |shard: &mut Shard<u64>, turn: u64| {
            (0..hot_count).filter(|number| !get(shard, *number)).count() as u64 * u64::from(turn > 4)
        };
        for scanned in 0..4_000u64 {
            if scanned % 20 == 0 {
                asked += hot_count;
                hot += turn(&mut shard, scanned / 20);
            }
            for _ in 0..40 {
                get(&mut shard, 1_000_000 + scanned);
            }
        }
        (hot, asked)
    }

    #[test]
    fn a_scan_that_uses_each_entry_often_leaves_the_hot_ones_alone() {
        for room in [1 << 20, 4 << 20] {
            let (misses, asked) = hot_misses(room);
            assert!(misses * 100 <= asked, "{misses} of {asked} in {room} bytes");
        }
    }

    #[test]
    fn an_entry_that_comes_back_soon_is_kept() {
        let mut shard = Shard::new(50 * 4_500);
        // Fills it with what is used, so that there is a main queue.
        for _ in 0..20 {
            (0..45).for_each(|number| {
                get(&mut shard, number);
            });
            (0..6).for_each(|number| {
                get(&mut shard, 500 + number);
            });
        }
        get(&mut shard, 9_999);
        (1_000..1_020).for_each(|number| {
            get(&mut shard, number);
        });
        assert!(shard.peek(at(9_999)).is_none(), "it went without a use");
        get(&mut shard, 9_999);
        (2_000..2_040).for_each(|number| {
            get(&mut shard, number);
        });
        assert!(shard.peek(at(9_999)).is_some(), "its second coming brought it into the main queue");
        check(&shard);
    }

    #[test]
    fn a_shard_that_was_large_gives_its_memory_back() {
        let mut shard = Shard::new(10_000_000);
        (0..5_000).for_each(|number| {
            get(&mut shard, number);
        });
        let before = shard.len() as u64 + shard.evictions();
        shard.set_bytes_max(20_000);
        assert!(shard.bytes() <= 20_000 && !shard.is_empty());
        assert_eq!(shard.len() as u64 + shard.evictions(), before, "each that went was counted");
        assert_eq!(shard.small.len() + shard.main.len(), shard.len());
        assert!(shard.entries.capacity() < 64 && shard.ghosts.order.len() <= GHOSTS_MIN);
        check(&shard);
    }
}
