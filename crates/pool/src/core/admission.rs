//! Admission: whether an operation that is about to begin finds room.
//!
//! The figures are those of the last commit, which is enough: by [txg.3] later operations are
//! reserved, and a reservation ends only with the commit that makes its real usage part of these
//! figures.

use crate::core::ranked::{RankedRwLock, rank};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use steadfast_segment::CommitRoom;
use steadfast_txg::{AdmitKind, Cost, Room, Space, Verdict};

use crate::core::events::Events;

/// Looks without more capacity after which nobody waits any longer for segments to become wider. A
/// victim that holds more than one commit copies takes a few.
const WIDENING_LOOKS_MAX: u32 = 16;
/// Content that is promised comes in pieces of so many bytes at most: a request of the kernel.
const PIECE_BYTES: u64 = 1 << 20;

/// Figures of the last commit.
#[derive(Default)]
pub(crate) struct Admission {
    pub read_only: AtomicBool,
    /// Bytes that live.
    pub live: AtomicU64,
    /// Bytes that may live at most.
    pub capacity: AtomicU64,
    /// Bytes that datasets may come to, reservations included.
    pub for_datasets: AtomicU64,
    /// Operations that free something, ever admitted.
    pub removes: AtomicU64,
    /// How many of them the last commit holds: what the others free is not in `live` yet.
    pub removes_committed: AtomicU64,
    /// Room in the free slots: beside the needs of the commit and of the cleaner, and with the
    /// overhead of metadata.
    pub room: RankedRwLock<CommitRoom, rank::Room>,
    /// Many commits gave back nothing although slots are short.
    pub stalled: AtomicBool,
    /// There is a checkpoint, so that deleting what it needs gives nothing back.
    pub keeps: AtomicBool,
    /// A deletion goes on from commit to commit, and the last one freed something of it.
    pub freeing: AtomicBool,
    /// Narrow segments become wider from commit to commit, and capacity grows by it.
    pub widening: AtomicBool,
    /// The greatest capacity since they began, and how many looks ago that was.
    widest: AtomicU64,
    looks: AtomicU32,
    /// Receives an event when a write is refused for want of space.
    pub events: OnceLock<Arc<Events>>,
}

impl Admission {
    /// True if a deletion was let in that is not committed.
    pub fn is_deleting(&self) -> bool {
        self.removes.load(Ordering::Relaxed) != self.removes_committed.load(Ordering::Relaxed)
    }

    /// Notes the capacity, and whether segments are becoming wider. While capacity grows, writes
    /// that find no room wait. Otherwise a large copy would fail halfway in a group that has just
    /// got a larger device, though there is room for it.
    pub fn note_capacity(&self, capacity: u64, widens: bool) {
        self.capacity.store(capacity, Ordering::Relaxed);
        let looks = if !widens || capacity > self.widest.load(Ordering::Relaxed) {
            self.widest.store(capacity, Ordering::Relaxed);
            0
        } else {
            self.looks.load(Ordering::Relaxed).saturating_add(1)
        };
        if looks >= WIDENING_LOOKS_MAX {
            // Growth counts from this capacity on. It may be smaller than before, if devices left.
            self.widest.store(capacity, Ordering::Relaxed);
        }
        self.looks.store(looks, Ordering::Relaxed);
        self.widening.store(widens && looks < WIDENING_LOOKS_MAX, Ordering::Relaxed);
    }

    /// Refuses for want of space, which is news.
    fn refuse(&self) -> Verdict {
        if let Some(events) = self.events.get() {
            events.full();
        }
        Verdict::NoSpace
    }
}

impl Space for Admission {
    fn admit(&self, kind: AdmitKind, cost: Cost, reserved: Cost) -> Verdict {
        if self.read_only.load(Ordering::Relaxed) {
            return Verdict::ReadOnly;
        }
        let others = reserved.space.saturating_sub(cost.space);
        let room = *self.room.read();
        let gets_on = !self.stalled.load(Ordering::Relaxed);
        // Content that comes later comes over several commits. Where the cleaner does not get on,
        // they make no room for it.
        let now = match kind {
            AdmitKind::Promise if gets_on => others.saturating_add(cost.space.min(PIECE_BYTES)),
            _ => reserved.space,
        };
        // [commit_room.2] What content and metadata need together.
        let need = now.saturating_add(room.overhead(reserved.blocks));
        // It will fit, but there is no slot for it yet.
        let cleaning = matches!(kind, AdmitKind::Write | AdmitKind::Promise) && need > room.content;
        let full = match kind {
            AdmitKind::Write | AdmitKind::Promise => {
                self.live.load(Ordering::Relaxed).saturating_add(reserved.space)
                    > self.capacity.load(Ordering::Relaxed)
            }
            // Deleting goes into the reserve: what it writes is small and what it frees comes back.
            // But it writes first, so it waits for the commit of what was let in before, and for
            // the cleaner while that gets on; never for more. Where a checkpoint keeps what it
            // would free it comes back with the checkpoint alone.
            //
            // An accepted write takes what its promise counted with and others used up since.
            AdmitKind::Remove | AdmitKind::Accepted => {
                if need > room.removes && (others > 0 || gets_on) {
                    return Verdict::AfterCleaning;
                }
                let gains_nothing = kind == AdmitKind::Accepted || self.keeps.load(Ordering::Relaxed);
                if need > room.removes && gains_nothing {
                    return self.refuse();
                }
                false
            }
        };
        let freeing = self.is_deleting();
        if kind == AdmitKind::Remove && !full {
            self.removes.fetch_add(1, Ordering::Relaxed);
        }
        match (full, others > 0 || freeing) {
            (false, _) if cleaning && gets_on => Verdict::AfterCleaning,
            (false, waits) if cleaning => {
                if waits {
                    Verdict::AfterCommit
                } else {
                    self.refuse()
                }
            }
            (false, _) => Verdict::Admit,
            (true, _) if self.freeing.load(Ordering::Relaxed) || self.widening.load(Ordering::Relaxed) => {
                Verdict::AfterCleaning
            }
            // Reservations of others are a worst case, and deleted space comes back: decide after
            // the commit.
            (true, true) => Verdict::AfterCommit,
            (true, false) => self.refuse(),
        }
    }

    fn room(&self) -> Room {
        let capacity = self.capacity.load(Ordering::Relaxed);
        let free = capacity.saturating_sub(self.live.load(Ordering::Relaxed));
        Room { free, capacity, placeable: free.min(self.room.read().content) }
    }

    fn overhead(&self, blocks: u64) -> u64 {
        self.room.read().overhead(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(bytes: u64) -> Cost {
        Cost { space: bytes, ..Cost::default() }
    }

    fn pool(live: u64, capacity: u64, removes: u64) -> Admission {
        Admission {
            live: AtomicU64::new(live),
            capacity: AtomicU64::new(capacity),
            room: RankedRwLock::new(CommitRoom::flat(capacity, removes)),
            ..Admission::default()
        }
    }

    #[test]
    fn a_full_pool_refuses_writes_and_admits_deletes() {
        let full = pool(100, 100, 20);
        assert_eq!(full.admit(AdmitKind::Write, space(1), space(1)), Verdict::NoSpace);
        assert_eq!(full.admit(AdmitKind::Remove, space(1), space(1)), Verdict::Admit);
        assert_eq!(full.admit(AdmitKind::Accepted, space(1), space(1)), Verdict::Admit);
        assert_eq!(full.admit(AdmitKind::Remove, space(1), space(30)), Verdict::AfterCleaning);
        assert_eq!(full.admit(AdmitKind::Remove, space(30), space(30)), Verdict::AfterCleaning);
        full.stalled.store(true, Ordering::Relaxed);
        assert_eq!(
            full.admit(AdmitKind::Remove, space(30), space(30)),
            Verdict::Admit,
            "alone it always goes"
        );
    }

    #[test]
    fn a_promise_needs_slots_for_its_first_piece_alone_while_the_cleaner_gets_on() {
        const MIB: u64 = 1 << 20;
        let pool = pool(0, 100 * MIB, 20 * MIB);
        *pool.room.write() = CommitRoom::flat(60 * MIB, 20 * MIB);
        let ask = |kind, mib: u64| pool.admit(kind, space(mib * MIB), space(mib * MIB));
        assert_eq!(ask(AdmitKind::Write, 90), Verdict::AfterCleaning);
        assert_eq!(ask(AdmitKind::Promise, 90), Verdict::Admit);
        assert_eq!(ask(AdmitKind::Promise, 101), Verdict::NoSpace);
        let beside_others = pool.admit(AdmitKind::Promise, space(30 * MIB), space(90 * MIB));
        assert_eq!(beside_others, Verdict::AfterCleaning, "others need all of it now");
        pool.stalled.store(true, Ordering::Relaxed);
        assert_eq!(ask(AdmitKind::Promise, 90), Verdict::NoSpace);
        assert_eq!(ask(AdmitKind::Promise, 60), Verdict::Admit);
    }

    #[test]
    fn beside_a_checkpoint_the_last_room_is_not_given_to_deletes() {
        let pool = pool(100, 100, 20);
        pool.stalled.store(true, Ordering::Relaxed);
        assert_eq!(pool.admit(AdmitKind::Remove, space(30), space(30)), Verdict::Admit);
        pool.keeps.store(true, Ordering::Relaxed);
        assert_eq!(pool.admit(AdmitKind::Remove, space(30), space(30)), Verdict::NoSpace);
        assert_eq!(pool.admit(AdmitKind::Remove, space(20), space(20)), Verdict::Admit);
    }

    #[test]
    fn what_was_deleted_is_waited_for_before_space_is_refused() {
        let pool = pool(100, 100, 20);
        assert_eq!(pool.admit(AdmitKind::Write, space(5), space(5)), Verdict::NoSpace);
        assert_eq!(pool.admit(AdmitKind::Remove, space(1), space(1)), Verdict::Admit);
        assert_eq!(pool.admit(AdmitKind::Write, space(5), space(5)), Verdict::AfterCommit);
        pool.removes_committed.store(1, Ordering::Relaxed);
        assert_eq!(pool.admit(AdmitKind::Write, space(5), space(5)), Verdict::NoSpace);
    }

    #[test]
    fn writers_wait_for_the_cleaner_while_it_gets_on_and_deletes_do_not() {
        let pool = pool(50, 100, 20);
        *pool.room.write() = CommitRoom::flat(10, 20);
        assert_eq!(pool.admit(AdmitKind::Write, space(5), space(10)), Verdict::Admit);
        assert_eq!(pool.admit(AdmitKind::Write, space(5), space(11)), Verdict::AfterCleaning);
        assert_eq!(pool.admit(AdmitKind::Remove, space(1), space(15)), Verdict::Admit);
        pool.removes_committed.store(1, Ordering::Relaxed);
        pool.stalled.store(true, Ordering::Relaxed);
        assert_eq!(pool.admit(AdmitKind::Write, space(5), space(11)), Verdict::AfterCommit);
        assert_eq!(pool.admit(AdmitKind::Write, space(11), space(11)), Verdict::NoSpace);
    }

    #[test]
    fn a_deletion_of_many_commits_is_waited_for_to_its_end() {
        let pool = pool(100, 100, 20);
        pool.freeing.store(true, Ordering::Relaxed);
        assert_eq!(pool.admit(AdmitKind::Write, space(5), space(5)), Verdict::AfterCleaning);
        pool.freeing.store(false, Ordering::Relaxed);
        assert_eq!(pool.admit(AdmitKind::Write, space(5), space(5)), Verdict::NoSpace);
    }

    #[test]
    fn wider_segments_are_waited_for_as_long_as_capacity_grows() {
        let pool = pool(100, 100, 20);
        let verdict = || pool.admit(AdmitKind::Write, space(5), space(5));
        pool.note_capacity(100, true);
        for _ in 1..WIDENING_LOOKS_MAX {
            assert_eq!(verdict(), Verdict::AfterCleaning);
            pool.note_capacity(99, true);
        }
        assert_eq!(verdict(), Verdict::AfterCleaning);
        pool.note_capacity(100, true);
        assert_eq!(verdict(), Verdict::NoSpace, "it does not get on");
        pool.note_capacity(100, true);
        assert_eq!(verdict(), Verdict::NoSpace);
        pool.note_capacity(101, true);
        assert_eq!(verdict(), Verdict::AfterCleaning, "it does again");
        pool.note_capacity(105, true);
        assert_eq!(verdict(), Verdict::Admit);
        pool.note_capacity(104, false);
        assert_eq!(verdict(), Verdict::NoSpace);
    }

    #[test]
    fn worst_cases_of_others_are_waited_for_before_space_is_refused() {
        let pool = pool(90, 100, 20);
        assert_eq!(pool.admit(AdmitKind::Write, space(5), space(5)), Verdict::Admit);
        assert_eq!(pool.admit(AdmitKind::Write, space(5), space(15)), Verdict::AfterCommit);
        assert_eq!(pool.admit(AdmitKind::Write, space(15), space(15)), Verdict::NoSpace);
    }
}
