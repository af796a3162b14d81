//! Memory of the daemon, which its pools share.

use crate::api::{CacheReport, DaemonMemory, InodeReport, MemoryReport, PoolMemory};
use crate::caller::Caller;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::memory::resident_bytes;
use crate::refusal::{Code, Refusal};
use steadfast_pool::{CacheUse, Memory};

impl Engine {
    /// Gives every pool its share: when one comes, and when one goes.
    pub(super) fn share_memory(&self) {
        let memory = *self.memory.read();
        steadfast_pool::keep_spare_memory(&memory);
        let pools = self.pools.read();
        let share = memory.share(pools.len());
        pools.values().for_each(|held| held.pool.set_memory(share));
    }
}

/// A new limit, if one is asked for.
///
/// # Errors
/// One below the least size that makes sense.
fn limit(name: &str, asked: Option<u64>, least: u64) -> Result<Option<u64>, Refusal> {
    match asked {
        Some(bytes) if bytes < least => {
            let what = format!("{name} cannot be {bytes} bytes: it must be at least {least}");
            Err(Refusal::new(Code::PropValue, what))
        }
        asked => Ok(asked),
    }
}

impl From<CacheUse> for CacheReport {
    fn from(cache: CacheUse) -> CacheReport {
        let CacheUse { bytes, bytes_max, hits, misses, shared, evictions, pinned } = cache;
        CacheReport { bytes, bytes_max, hits, misses, shared, evictions, pinned }
    }
}

impl DaemonMemory {
    fn change(&self, memory: &mut Memory) -> Result<(), Refusal> {
        let whole = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let nodes = limit("node-cache-bytes", self.node_cache_bytes, Memory::NODE_CACHE_BYTES_MIN as u64)?;
        let blocks =
            limit("block-cache-bytes", self.block_cache_bytes, Memory::BLOCK_CACHE_BYTES_MIN as u64)?;
        let dirty = limit("dirty-bytes", self.dirty_bytes, Memory::DIRTY_BYTES_MIN)?;
        *memory = Memory {
            node_cache_bytes: nodes.map_or(memory.node_cache_bytes, whole),
            block_cache_bytes: blocks.map_or(memory.block_cache_bytes, whole),
            dirty_bytes_max: dirty.unwrap_or(memory.dirty_bytes_max),
        };
        Ok(())
    }
}

impl Verb for DaemonMemory {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<MemoryReport, Refusal> {
        if self != DaemonMemory::default() {
            self.change(&mut engine.memory.write())?;
            engine.share_memory();
        }
        let memory = *engine.memory.read();
        let cache = CacheReport::from;
        let pools = engine.pools.read();
        let pools = pools.iter().map(|(name, held)| {
            let used = held.pool.memory();
            PoolMemory {
                name: name.clone(),
                nodes: cache(used.nodes),
                blocks: cache(used.blocks),
                chunks: cache(used.chunks),
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
            node_cache_bytes: memory.node_cache_bytes as u64,
            block_cache_bytes: memory.block_cache_bytes as u64,
            dirty_bytes: memory.dirty_bytes_max,
            pools: pools.collect(),
        })
    }
}
