//! Memory of a pool: what it may use, and what it uses.

use std::sync::atomic::Ordering;

use steadfast_crypto::BlockKeys;
use steadfast_dataset::InodesInMemory;

use crate::Pool;

/// Sizes of memory that a pool may use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Memory {
    /// Cache of tree nodes.
    pub node_cache_bytes: usize,
    /// Cache of opened data blocks. Of a pool on devices of whole objects a quarter of it goes to
    /// chunks of these ([`ContentMemory`]).
    pub block_cache_bytes: usize,
    /// Most bytes of changes that wait for a commit.
    pub dirty_bytes_max: u64,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { node_cache_bytes: 128 << 20, block_cache_bytes: 256 << 20, dirty_bytes_max: 256 << 20 }
    }
}

impl Memory {
    /// Least size of a node cache: the nodes of a few paths stay while they are used.
    pub const NODE_CACHE_BYTES_MIN: usize = 100 << 10;
    /// Least size of a block cache: below, a record does not stay while it is used.
    pub const BLOCK_CACHE_BYTES_MIN: usize = 4 << 20;
    /// Least bytes of changes.
    pub const DIRTY_BYTES_MIN: u64 = 16 << 20;

    /// Sizes for a machine (or a control group) with `total` bytes of memory. A quarter goes to
    /// both caches, half of it to nodes: the kernel keeps content besides, and nobody else keeps
    /// nodes, 230 bytes for each file. Changes get a sixteenth, at most 256 MiB.
    #[must_use]
    pub fn of_machine(total: u64) -> Memory {
        let part =
            |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX).max(Memory::BLOCK_CACHE_BYTES_MIN);
        Memory {
            node_cache_bytes: part(total / 8),
            block_cache_bytes: part(total / 8),
            dirty_bytes_max: (total / 16).clamp(Memory::DIRTY_BYTES_MIN, 256 << 20),
        }
    }

    /// Bytes that the in-memory dedup table (ZFS: DDT) may take, beside the nodes.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.node_cache_bytes as u64 / 2
    }

    /// Bytes that inode objects which can be read again may take, beside the nodes.
    pub(crate) fn inode_bytes(&self) -> usize {
        self.node_cache_bytes / 8
    }

    /// Bytes of full segments that may be on their way to stores of objects, beside the changes
    /// that wait: as many as these.
    pub(crate) fn upload_bytes(&self) -> u64 {
        self.dirty_bytes_max
    }

    /// The share of each of `pools` pools.
    #[must_use]
    pub fn share(&self, pools: usize) -> Memory {
        let pools = pools.max(1);
        Memory {
            node_cache_bytes: (self.node_cache_bytes / pools).max(Memory::NODE_CACHE_BYTES_MIN),
            block_cache_bytes: (self.block_cache_bytes / pools).max(Memory::BLOCK_CACHE_BYTES_MIN),
            dirty_bytes_max: (self.dirty_bytes_max / pools as u64).max(Memory::DIRTY_BYTES_MIN),
        }
    }
}

/// How the memory for content is divided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ContentMemory {
    /// Opened blocks.
    pub block_bytes: usize,
    /// Raw chunks of whole objects, kept and under way.
    pub chunk_bytes: usize,
}

impl Memory {
    /// The division of a pool with devices of whole objects, or without.
    pub(crate) fn content(&self, has_objects: bool) -> ContentMemory {
        let chunk_bytes = if has_objects { self.block_cache_bytes / CHUNKS_DIVISOR } else { 0 };
        ContentMemory { block_bytes: self.block_cache_bytes - chunk_bytes, chunk_bytes }
    }
}

/// Part of the memory for content that chunks of whole objects have: of 256 MiB as many bytes as
/// 32 transfers of a mebibyte under way, and as many again that came.
const CHUNKS_DIVISOR: usize = 4;

/// Divisor of the memory for content: the part of it that stays allocated while it is not used.
const SPARE_DIVISOR: usize = 16;

/// Tells how much memory all pools of this process together may use: what they give back is kept
/// for them up to a share of it.
pub fn keep_spare_memory(total: &Memory) {
    let dirty = usize::try_from(total.dirty_bytes_max).unwrap_or(usize::MAX);
    let content = total.block_cache_bytes.saturating_add(dirty);
    steadfast_device::pages::set_spare_bytes(content / SPARE_DIVISOR);
}

/// Overwrites what the caches of a pool leave in memory that is free now, if this process has or
/// had a key. Without one no encryption is asked for, and the next import finds memory that the
/// kernel need not clear again.
pub fn wipe_free_memory() {
    if BlockKeys::were_ever_here() {
        steadfast_device::pages::wipe();
    }
}

/// Size of a cache, and its hits and misses since import.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CacheUse {
    /// Bytes it may hold.
    pub bytes_max: u64,
    /// Bytes it holds.
    pub bytes: u64,
    /// Requests that were found.
    pub hits: u64,
    /// Requests that were not found.
    pub misses: u64,
    /// Requests that were not found, and got their entry from another one that was reading it.
    pub shared: u64,
    /// Entries that went for others.
    pub evictions: u64,
    /// Entries that an operation uses now.
    pub pinned: u64,
}

/// Memory that a pool uses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MemoryUse {
    /// Tree nodes.
    pub nodes: CacheUse,
    /// Opened data blocks.
    pub blocks: CacheUse,
    /// Raw chunks of devices of whole objects.
    pub chunks: CacheUse,
    /// Inodes: objects, and what the kernel looked up of others.
    pub inodes: InodesInMemory,
    /// Blocks read ahead of their readers since the import.
    pub blocks_read_ahead: u64,
    /// Bytes of changes that wait for a commit: what operations reserved for them.
    pub dirty_bytes: u64,
    /// Most there may be.
    pub dirty_bytes_max: u64,
    /// Buffers of open segments, and of full ones on their way to stores of objects.
    pub buffer_bytes: u64,
}

impl Pool {
    /// Changes what the pool may use. Caches shrink at once, changes that wait with the commits
    /// that follow.
    pub fn set_memory(&self, memory: Memory) {
        self.core.caches.nodes.set_bytes_max(memory.node_cache_bytes);
        self.core.caches.inodes.set_bytes_max(memory.inode_bytes());
        let content = memory.content(self.core.space.has_objects());
        self.core.blockio.set_cache_bytes(content.block_bytes);
        self.core.space.set_chunk_bytes(content.chunk_bytes);
        self.core.references.set_index_bytes(memory.index_bytes());
        self.core.space.set_upload_bytes(memory.upload_bytes());
        self.core.throttle.dirty_bytes_max.store(memory.dirty_bytes_max, Ordering::Relaxed);
        self.core.update_limits();
    }

    /// Memory in use.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        let chunks = self.core.space.chunk_use();
        let (nodes, blocks) = (self.core.caches.nodes.statistics(), self.core.blockio.statistics());
        MemoryUse {
            nodes: CacheUse {
                bytes_max: self.core.caches.nodes.bytes_max() as u64,
                bytes: nodes.bytes as u64,
                hits: nodes.hits,
                misses: nodes.misses,
                shared: nodes.shared,
                evictions: nodes.evictions,
                pinned: nodes.pinned as u64,
            },
            blocks: CacheUse {
                bytes_max: blocks.cache_bytes_max,
                bytes: blocks.cache_bytes,
                hits: blocks.cache_hits,
                misses: blocks.cache_misses,
                shared: blocks.cache_waits,
                evictions: blocks.cache_evictions,
                pinned: 0,
            },
            chunks: CacheUse {
                bytes_max: chunks.bytes_max,
                bytes: chunks.bytes,
                hits: chunks.hits,
                misses: chunks.misses,
                ..CacheUse::default()
            },
            inodes: self.core.caches.inodes.used(),
            blocks_read_ahead: blocks.blocks_read_ahead,
            dirty_bytes: self.core.txgs.budget.reserved().memory,
            dirty_bytes_max: self.core.throttle.dirty_bytes_max.load(Ordering::Relaxed),
            buffer_bytes: self.core.space.buffer_bytes() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_caches_are_a_quarter_of_the_machine() {
        let memory = Memory::of_machine(24 << 30);
        assert_eq!((memory.node_cache_bytes + memory.block_cache_bytes) as u64, 6 << 30);
        assert_eq!(memory.dirty_bytes_max, 256 << 20);
        let small = Memory::of_machine(512 << 20);
        let caches = (small.node_cache_bytes + small.block_cache_bytes) as u64;
        assert!((127 << 20..=128 << 20).contains(&caches));
        assert_eq!(small.dirty_bytes_max, 32 << 20);
        let none = Memory::of_machine(0);
        assert_eq!((none.node_cache_bytes, none.dirty_bytes_max), (4 << 20, 16 << 20));
    }

    #[test]
    fn pools_share() {
        let memory = Memory::default();
        assert_eq!(memory.share(1), memory);
        assert_eq!(memory.share(0), memory);
        assert_eq!(memory.share(4).block_cache_bytes, 64 << 20);
        assert_eq!(memory.share(1000).node_cache_bytes, (128 << 20) / 1000);
        assert_eq!(memory.share(10_000).node_cache_bytes, Memory::NODE_CACHE_BYTES_MIN);
        assert_eq!(memory.share(1000).block_cache_bytes, Memory::BLOCK_CACHE_BYTES_MIN);
    }
}
