//! Memory of the daemon, which its pools share.

use crate::api::{CacheReport, DaemonMemory, InodeReport, MemoryReport, PoolMemory};
use crate::caller::Caller;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::memory::resident_bytes;
use crate::refusal::Refusal;
use steadfast_pool::CacheUse;

impl Engine {
    /// Gives every pool its share: when one comes, and when one goes.
    pub(super) fn share_memory(&self) {
        steadfast_pool::keep_spare_memory(&self.memory);
        let pools = self.pools.read();
        let share = self.memory.share(pools.len());
        pools.values().for_each(|held| held.pool.set_memory(share));
    }
}

impl Verb for DaemonMemory {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<MemoryReport, Refusal> {
        let cache = |cache: CacheUse| {
            let CacheUse { bytes, bytes_max, hits, misses } = cache;
            CacheReport { bytes, bytes_max, hits, misses }
        };
        let pools = engine.pools.read();
        let pools = pools.iter().map(|(name, held)| {
            let used = held.pool.memory();
            PoolMemory {
                name: name.clone(),
                nodes: cache(used.nodes),
                blocks: cache(used.blocks),
                inodes: InodeReport {
                    live: used.inodes.live,
                    live_bytes: used.inodes.live_bytes,
                    live_bytes_max: used.inodes.live_bytes_max,
                    resting: used.inodes.resting,
                    resting_bytes: used.inodes.resting_bytes,
                },
                blocks_read_ahead: used.blocks_read_ahead,
                dirty: used.dirty_bytes,
                dirty_max: used.dirty_bytes_max,
                buffers: used.buffer_bytes,
            }
        });
        let (resident, resident_max) = resident_bytes();
        Ok(MemoryReport {
            resident,
            resident_max,
            node_cache_bytes: engine.memory.node_cache_bytes as u64,
            block_cache_bytes: engine.memory.block_cache_bytes as u64,
            dirty_bytes: engine.memory.dirty_bytes_max,
            pools: pools.collect(),
        })
    }
}
