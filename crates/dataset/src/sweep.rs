//! The hand of the clock that puts inodes to rest ([`crate::inode_cache`]).

use std::sync::Arc;

use steadfast_format::{InodeId, Txg};

use crate::dataset::Dataset;
use crate::inode_cache::{InodesInMemory, Shard};

/// Places the hand moves for one object that comes: more than one, so that an excess shrinks.
const STEPS: usize = 4;

/// Objects looked at under one hold of a shard's lock: some 20 microseconds.
const SWEEP_AT_ONCE: usize = 64;

impl Dataset {
    /// Moves a shard's hand so many places at most, while its objects are too many.
    fn sweep(&self, shard: &mut Shard, places: usize) {
        let committed = self.txgs.commits.committed();
        for _ in 0..places {
            if !shard.room.is_short(shard.live.len()) {
                return;
            }
            self.sweep_one(shard, committed);
        }
    }

    fn sweep_one(&self, shard: &mut Shard, committed: Txg) {
        if shard.hand >= shard.clock.len() {
            shard.hand = 0;
        }
        let Some(&id) = shard.clock.get(shard.hand) else { return };
        let inode = &shard.live[&id];
        // Another holder of the object may change it, now or later. It can be reached only through
        // this shard.
        let is_ours = Arc::strong_count(inode) == 1;
        if inode.was_used() || !is_ours {
            shard.hand += 1;
            return;
        }
        let mut state = inode.state.lock();
        if !inode.is_idle(&state, committed) {
            drop(state);
            shard.hand += 1;
            return;
        }
        if state.unnoted {
            // Its next reader would have to count its extents, so it is flushed first.
            self.mark_record(inode, &mut state);
            drop(state);
            shard.hand += 1;
            return;
        }
        let (lookups, differed) = (state.refs, state.altered);
        drop(state);
        shard.drop_inode(id, differed);
        if lookups > 0 {
            shard.rest(|resting| resting.put(id, lookups));
        }
    }

    /// An object came into a shard.
    pub(crate) fn make_room(&self, shard: &mut Shard) {
        self.sweep(shard, STEPS);
    }

    /// Goes round once where objects are too many: what was pinned when others came may have been
    /// committed since.
    pub(crate) fn make_room_everywhere(&self) {
        for shard in &self.inodes.shards {
            let mut left = shard.lock().live.len();
            while left > 0 {
                let places = left.min(SWEEP_AT_ONCE);
                let mut shard = shard.lock();
                self.sweep(&mut shard, places);
                left -= places;
                if !shard.room.is_short(shard.live.len()) {
                    break;
                }
            }
        }
    }

    /// How often an inode is held by lookups, live or at rest: for tests.
    #[must_use]
    pub fn lookups(&self, id: InodeId) -> u64 {
        let shard = self.inodes.shard(id);
        let resting = if shard.resting.contains(id) {
            1 + shard.resting.more.get(&id).copied().unwrap_or(0)
        } else {
            0
        };
        shard.live.get(&id).map_or(resting, |inode| inode.state.lock().refs)
    }

    /// Memory taken by its inodes, and by those of all datasets that share its room.
    #[must_use]
    pub fn inodes_in_memory(&self) -> InodesInMemory {
        self.inodes.room.used()
    }
}
