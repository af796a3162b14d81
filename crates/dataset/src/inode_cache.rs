//! Inodes at rest: a count of the kernel's lookups is kept, and no object.
//!
//! The kernel holds a lookup on each inode in its own memory and says when it lets go. Millions are
//! nothing to it, and an [`Inode`] takes some 400 bytes. So where the objects of a pool take more
//! than they may, those that could be read again are put *to rest*: dropped, but for how often the
//! kernel looked them up. A look-up by number revives one.
//!
//! ## Definitions
//! *Live*: there is an object. *At rest*: there is a count of lookups, and no object. *Pinned*:
//! live, and not to be dropped.
//!
//! ## States
//! ```text
//! unknown ─[`Dataset::inode`, `new_inode`]→ live
//! live    ─[`Dataset::sweep`, no lookups]→ unknown
//! live    ─[`Dataset::forget`, no lookups, too many objects]→ unknown
//! live    ─[`Dataset::sweep`, lookups]→ at rest
//! at rest ─[`Dataset::inode`, `inode_ref`]→ live
//! at rest ─[`Dataset::forget_number`, the last lookup]→ unknown
//! ```
//!
//! ## Invariants
//! [inode_cache.1] A number is live or at rest, never both, and all its lookups are counted where
//!      it is.
//!      assert: `Shard::insert`
//! [inode_cache.2] A dropped object holds nothing that the names tree does not hold: it is clean,
//!      committed, and has no other holder. `fsync` of a revived inode finds no change to wait for,
//!      and there is none.
//!      `is_idle`
//! [inode_cache.3] Nothing without links rests: an orphan stays until the last lookup is given
//!      back, which finds the object and has it reclaimed.
//!      `is_idle`; test: `posix`, `tests/resting.rs`
//! [inode_cache.4] A record read from the tree becomes an object only if no object of its shard
//!      that differed from the tree was dropped since before it was read. Dropping what was only
//!      read disturbs no reader.
//!      `Shard::drop_inode`; test: `posix`, `tests/resting.rs`
//! [inode_cache.5] One hold of a shard's lock looks at no more than [`SWEEP_AT_ONCE`] objects.
//!
//! ## Which rest, and when
//! Each shard lists its objects in a clock. One that comes moves the hand up to [`STEPS`] places
//! while there are too many; one that was used since the hand came by gets another turn. A sync
//! goes round once if there are too many then. So an operation pays for four looks at most, and
//! what exceeds the limit is what was pinned when its shard's hand came by: what two txgs changed,
//! which admission bounds. There are too many if the pool's are above its limit, and the dataset's
//! shard has more than its even share: a busy dataset may take all, and an idle one that did takes
//! it from nobody.
//!
//! ## What rest costs
//! Numbers are counted up, so neighbours rest together: a bit each, 64 in an entry of 17 to 39
//! bytes. That is half a byte an inode where all rest, and an entry each where one in 64 does. A
//! second lookup is counted apart, for as much again. To revive is to read a record from the names
//! tree, and it may fail as that does; the lookups stay then.
//!
//! ## Lock order
//! A shard, then an inode's lock, then `dirty`.

use crate::inode::{Inode, InodeHasher, InodeMap, InodeState};
use parking_lot::MutexGuard;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use steadfast_env::brief::{BriefGuard, BriefMutex};
use steadfast_format::{InodeId, Txg};

pub(crate) const SHARDS: usize = 16;

/// Objects a shard may have whatever the limit: beside many datasets one that is small still has
/// some.
const SHARD_LIVE_MIN: usize = 1;

/// Bytes of an object: it itself, its counts of owners, what the allocator rounds up; its entry in
/// the map, whose slots of 17 bytes are between seven in 16 and seven in eight used; its place in
/// the clock.
const LIVE_BYTES: usize = size_of::<Inode>() + 16 + 8 + 28 + 12;

/// Room for the inodes in memory of datasets that share it.
#[derive(Debug)]
pub struct InodeRoom {
    pub(crate) bytes_max: AtomicUsize,
    pub(crate) datasets: AtomicUsize,
    pub(crate) live: AtomicUsize,
    pub(crate) resting: AtomicUsize,
    pub(crate) resting_bytes: AtomicUsize,
}

/// Memory taken by inodes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct InodesInMemory {
    /// Objects.
    pub live: u64,
    /// Bytes they take, reckoned.
    pub live_bytes: u64,
    /// Bytes they may take, those apart that changed or are in use.
    pub live_bytes_max: u64,
    /// Inodes of which nothing is kept but the kernel's lookups.
    pub resting: u64,
    /// Bytes that takes, reckoned.
    pub resting_bytes: u64,
}

impl InodeRoom {
    /// Room for objects of so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Arc<InodeRoom> {
        let none = AtomicUsize::default;
        Arc::new(InodeRoom {
            bytes_max: AtomicUsize::new(bytes_max),
            datasets: none(),
            live: none(),
            resting: none(),
            resting_bytes: none(),
        })
    }

    /// Changes it. An excess leaves as others come.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Inodes in it, and their bytes.
    #[must_use]
    pub fn used(&self) -> InodesInMemory {
        let get = |counter: &AtomicUsize| counter.load(Ordering::Relaxed) as u64;
        let live = get(&self.live);
        InodesInMemory {
            live,
            live_bytes: live * LIVE_BYTES as u64,
            live_bytes_max: get(&self.bytes_max),
            resting: get(&self.resting),
            resting_bytes: get(&self.resting_bytes),
        }
    }

    /// True if a shard that has `live` objects is to drop some.
    pub(crate) fn is_short(&self, live: usize) -> bool {
        let live_max = self.bytes_max.load(Ordering::Relaxed) / LIVE_BYTES;
        if self.live.load(Ordering::Relaxed) <= live_max {
            return false;
        }
        let shards = self.datasets.load(Ordering::Relaxed).max(1) * SHARDS;
        live > (live_max / shards).max(SHARD_LIVE_MIN)
    }
}

/// The kernel's lookups of inodes at rest in one shard.
#[derive(Default)]
pub(crate) struct Resting {
    /// Which of 64 neighbours in the shard rest.
    pub(crate) blocks: HashMap<u64, u64, BuildHasherDefault<InodeHasher>>,
    /// Lookups beyond the first.
    pub(crate) more: InodeMap<u64>,
    pub(crate) count: usize,
}

/// Entry and bit of a number among those of its shard.
fn place(id: InodeId) -> (u64, u64) {
    let in_shard = id.0 / SHARDS as u64;
    (in_shard / 64, 1 << (in_shard % 64))
}

/// Bytes of a map with room for so many entries of 16 bytes.
fn map_bytes(capacity: usize) -> usize {
    (capacity + capacity / 7) * 17
}

impl Resting {
    pub(crate) fn contains(&self, id: InodeId) -> bool {
        let (block, bit) = place(id);
        self.blocks.get(&block).is_some_and(|bits| bits & bit != 0)
    }

    pub(crate) fn put(&mut self, id: InodeId, lookups: u64) {
        assert!(lookups > 0, "[inode_cache.1] nobody looked it up");
        let (block, bit) = place(id);
        *self.blocks.entry(block).or_default() |= bit;
        if lookups > 1 {
            self.more.insert(id, lookups - 1);
        }
        self.count += 1;
    }

    /// All its lookups, which it has no more; 0 if it does not rest.
    pub(crate) fn take(&mut self, id: InodeId) -> u64 {
        let (block, bit) = place(id);
        let Some(bits) = self.blocks.get_mut(&block).filter(|bits| **bits & bit != 0) else { return 0 };
        *bits &= !bit;
        if *bits == 0 {
            self.blocks.remove(&block);
            if self.blocks.len() < self.blocks.capacity() / 8 {
                self.blocks.shrink_to(2 * self.blocks.len());
            }
        }
        self.count -= 1;
        let more = if self.more.is_empty() { None } else { self.more.remove(&id) };
        if self.more.len() < self.more.capacity() / 8 {
            self.more.shrink_to(2 * self.more.len());
        }
        1 + more.unwrap_or(0)
    }

    pub(crate) fn forget(&mut self, id: InodeId, lookups: u64) {
        let left = self.take(id).saturating_sub(lookups);
        if left > 0 {
            self.put(id, left);
        }
    }

    /// All that rest in the shard of this number, each with its lookups.
    pub(crate) fn iter(&self, shard: u64) -> impl Iterator<Item = (InodeId, u64)> + '_ {
        let of_block = move |(block, bits): (&u64, &u64)| {
            let (block, bits) = (*block, *bits);
            (0..64)
                .filter(move |bit| bits & (1 << bit) != 0)
                .map(move |bit| InodeId((block * 64 + bit) * SHARDS as u64 + shard))
        };
        let ids = self.blocks.iter().flat_map(of_block);
        ids.map(|id| (id, 1 + self.more.get(&id).copied().unwrap_or(0)))
    }

    pub(crate) fn bytes(&self) -> usize {
        map_bytes(self.blocks.capacity()) + map_bytes(self.more.capacity())
    }
}

/// A part of the inodes in memory.
pub(crate) struct Shard {
    pub(crate) live: InodeMap<Arc<Inode>>,
    /// Numbers of the live ones; each object knows its place.
    pub(crate) clock: Vec<InodeId>,
    pub(crate) hand: usize,
    pub(crate) resting: Resting,
    /// Number of objects dropped that differed from the tree: a record read before that may be old.
    /// [inode_cache.4]
    pub(crate) dropped: u64,
    pub(crate) room: Arc<InodeRoom>,
}

impl Shard {
    pub(crate) fn new(room: &Arc<InodeRoom>) -> Shard {
        Shard {
            live: InodeMap::default(),
            clock: Vec::new(),
            hand: 0,
            resting: Resting::default(),
            dropped: 0,
            room: Arc::clone(room),
        }
    }

    /// A live inode.
    pub(crate) fn get(&self, id: InodeId) -> Option<&Arc<Inode>> {
        self.live.get(&id)
    }

    pub(crate) fn is_live(&self, id: InodeId) -> bool {
        self.live.contains_key(&id)
    }

    pub(crate) fn insert(&mut self, inode: &Arc<Inode>) {
        debug_assert!(!self.resting.contains(inode.id), "[inode_cache.1] its lookups are taken before");
        inode.set_place(self.clock.len());
        self.clock.push(inode.id);
        let before = self.live.insert(inode.id, Arc::clone(inode));
        assert!(before.is_none(), "[inode_cache.1] one object a number");
        self.room.live.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops an object from memory.
    pub(crate) fn drop_inode(&mut self, id: InodeId, differed: bool) {
        let Some(inode) = self.live.remove(&id) else { return };
        let at = inode.place();
        self.clock.swap_remove(at);
        if let Some(moved) = self.clock.get(at) {
            self.live[moved].set_place(at);
        }
        self.dropped += u64::from(differed);
        self.room.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// Changes what rests, and the sums over it.
    pub(crate) fn rest<R>(&mut self, change: impl FnOnce(&mut Resting) -> R) -> R {
        let (count, bytes) = (self.resting.count, self.resting.bytes());
        let result = change(&mut self.resting);
        let add = |sum: &AtomicUsize, before: usize, after: usize| {
            // Wraps around to what it takes away.
            _ = sum.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        };
        add(&self.room.resting, count, self.resting.count);
        if bytes != self.resting.bytes() {
            add(&self.room.resting_bytes, bytes, self.resting.bytes());
        }
        result
    }

    /// The lookups of an inode at rest, which becomes live: the caller counts them there.
    pub(crate) fn take_lookups(&mut self, id: InodeId) -> u64 {
        if self.resting.count == 0 { 0 } else { self.rest(|resting| resting.take(id)) }
    }

    /// The kernel gives back lookups of what is not live.
    pub(crate) fn forget(&mut self, id: InodeId, lookups: u64) {
        if self.resting.count > 0 {
            self.rest(|resting| resting.forget(id, lookups));
        }
    }

    /// Forgets all that rests, and drops the objects that `keeps` does not keep.
    pub(crate) fn forget_all(&mut self, mut keeps: impl FnMut(&Arc<Inode>) -> bool) {
        self.rest(|resting| *resting = Resting::default());
        let before = self.live.len();
        self.live.retain(|_, inode| keeps(inode));
        self.dropped += (before - self.live.len()) as u64;
        self.room.live.fetch_sub(before - self.live.len(), Ordering::Relaxed);
        (self.clock, self.hand) = (Vec::with_capacity(self.live.len()), 0);
        for inode in self.live.values() {
            inode.set_place(self.clock.len());
            self.clock.push(inode.id);
        }
        self.live.shrink_to_fit();
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.forget_all(|_| false);
    }
}

/// The inodes in memory of one dataset.
pub(crate) struct Inodes {
    pub(crate) shards: Vec<BriefMutex<Shard>>,
    pub(crate) room: Arc<InodeRoom>,
}

impl Inodes {
    pub(crate) fn new(room: Arc<InodeRoom>) -> Inodes {
        room.datasets.fetch_add(1, Ordering::Relaxed);
        Inodes { shards: (0..SHARDS).map(|_| BriefMutex::new(Shard::new(&room))).collect(), room }
    }

    pub(crate) fn shard(&self, id: InodeId) -> BriefGuard<MutexGuard<'_, Shard>> {
        self.shards[usize::try_from(id.0 % SHARDS as u64).expect("small")].lock()
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = BriefGuard<MutexGuard<'_, Shard>>> {
        self.shards.iter().map(BriefMutex::lock)
    }

    /// Every live inode.
    pub(crate) fn live(&self) -> Vec<Arc<Inode>> {
        self.shards().flat_map(|shard| shard.live.values().cloned().collect::<Vec<_>>()).collect()
    }
}

impl Drop for Inodes {
    fn drop(&mut self) {
        self.room.datasets.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inode {
    /// True if nothing is lost with this object that the trees do not have: [inode_cache.2],
    /// [inode_cache.3].
    ///
    /// Its notes for the log are useless once its last change is committed. The pattern of its
    /// reads is found out again.
    pub(crate) fn is_idle(&self, state: &InodeState, committed: Txg) -> bool {
        let is_stored = !state.dirty && !state.record_dirty && state.changed <= committed;
        let has_content = !state.open.is_empty() || !state.open.stale.is_empty();
        is_stored
            && !has_content
            && !state.folding
            && !state.gone
            && state.record.nlink > 0
            && self.frozen.lock().is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use steadfast_format::inode::{InodeRecord, Time};

    use super::*;

    fn inode(id: u64) -> Arc<Inode> {
        let now = Time { seconds: 0, nanos: 0 };
        let record = InodeRecord {
            generation: 1,
            parent: InodeId(1),
            size: 0,
            allocated: 0,
            mode: 0o100_644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            record_shift: 0,
            flags: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        Inode::new(InodeId(id), record)
    }

    #[test]
    fn neighbours_at_rest_take_half_a_byte_each_and_strangers_an_entry() {
        let mut near = Resting::default();
        (0..200_000).for_each(|n| near.put(InodeId(n * SHARDS as u64), 1));
        assert!(near.bytes() <= 200_000, "{} bytes of 200,000 neighbours", near.bytes());
        let mut far = Resting::default();
        (0..200_000).for_each(|n| far.put(InodeId(n * 64 * SHARDS as u64), 1));
        assert!(far.bytes() <= 39 * 200_000, "{} bytes of 200,000 strangers", far.bytes());
        (0..199_990).for_each(|n| assert_eq!(far.take(InodeId(n * 64 * SHARDS as u64)), 1));
        assert!(far.bytes() < 10_000, "what a map took is given back");
        assert_eq!(far.count, 10);
    }

    #[test]
    fn the_clock_knows_each_object_once() {
        let room = InodeRoom::new(0);
        let mut shard = Shard::new(&room);
        (0..100).for_each(|n| shard.insert(&inode(n)));
        for n in (0..100).step_by(3) {
            shard.drop_inode(InodeId(n), true);
        }
        assert_eq!((shard.clock.len(), room.used().live, shard.dropped), (66, 66, 34));
        for (at, id) in shard.clock.iter().enumerate() {
            assert_eq!(shard.live[id].place(), at);
        }
        shard.forget_all(|inode| inode.id.0 < 50);
        assert_eq!(shard.clock.len(), shard.live.len());
        for (at, id) in shard.clock.iter().enumerate() {
            assert_eq!(shard.live[id].place(), at);
        }
        drop(shard);
        assert_eq!(room.used(), InodesInMemory::default());
    }

    #[test]
    fn a_busy_dataset_may_take_what_others_leave_and_keeps_its_share_beside_them() {
        let room = InodeRoom::new(1600 * LIVE_BYTES);
        let (idle, busy) = (Inodes::new(Arc::clone(&room)), Inodes::new(Arc::clone(&room)));
        let many =
            |inodes: &Inodes, count| (0..count).for_each(|n| inodes.shard(InodeId(n)).insert(&inode(n)));
        many(&idle, 1600);
        assert!(!room.is_short(100), "all of it");
        many(&busy, 160);
        assert!(room.is_short(100) && !room.is_short(50), "half of 1,600 in 16 shards are 50");
        drop(idle);
        assert!(!room.is_short(100));
        drop(busy);
        assert_eq!((room.used().live, room.datasets.load(Ordering::Relaxed)), (0, 0));
    }

    proptest! {
        #[test]
        fn lookups_at_rest_are_counted_as_in_a_plain_map(
            steps in prop::collection::vec((0_u8..3, 0_u64..300, 1_u64..4), 1..400),
        ) {
            let room = InodeRoom::new(0);
            let mut shard = Shard::new(&room);
            let mut plain: BTreeMap<u64, u64> = BTreeMap::new();
            for (what, number, lookups) in steps {
                let id = InodeId(number * SHARDS as u64);
                match what {
                    0 if !plain.contains_key(&number) => {
                        shard.rest(|resting| resting.put(id, lookups));
                        plain.insert(number, lookups);
                    }
                    1 => {
                        shard.forget(id, lookups);
                        if let Some(left) = plain.get_mut(&number) {
                            *left = left.saturating_sub(lookups);
                        }
                        plain.retain(|_, left| *left > 0);
                    }
                    _ => prop_assert_eq!(shard.take_lookups(id), plain.remove(&number).unwrap_or(0)),
                }
                prop_assert_eq!(shard.resting.contains(id), plain.contains_key(&number));
                let (count, bytes) = (plain.len() as u64, shard.resting.bytes() as u64);
                prop_assert_eq!((room.used().resting, room.used().resting_bytes), (count, bytes));
            }
        }
    }
}
