//! What trees and datasets see of the room `blockio`: blocks of one owner, with its keys and settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::RwLock;
use steadfast_blockio::{BlockIo, CompressionSetting, ReadAhead, ReadContext, WriteRequest};
use steadfast_crypto::BlockKeys;
use steadfast_dataset::{BlockBytes, BlockWrite, Blocks};
use steadfast_format::{BlockKind, BlockPointer, DatasetId, Txg};
use steadfast_tree::{NodeStore, StoreError};

use crate::deaths::Deaths;

/// Nodes of the meta tree.
pub(crate) struct MetaStore {
    pub blockio: Arc<BlockIo>,
    pub keys: Option<Arc<BlockKeys>>,
    /// Txg being synced: what new nodes are born in.
    pub syncing: Arc<AtomicU64>,
}

impl NodeStore for MetaStore {
    fn read(&self, pointer: &BlockPointer) -> Result<Vec<u8>, StoreError> {
        let context = ReadContext {
            dataset: DatasetId(0),
            family: DatasetId(0),
            keys: self.keys.as_deref(),
            cache: false,
        };
        let block = self.blockio.read(pointer, &context).map_err(StoreError::new)?;
        Ok(block.to_vec())
    }

    fn write(&self, nodes: Vec<(u8, Vec<u8>)>) -> Result<Vec<BlockPointer>, StoreError> {
        let txg = Txg(self.syncing.load(Ordering::Acquire));
        let requests = nodes.into_iter().map(|(level, data)| WriteRequest {
            kind: BlockKind::Meta,
            level,
            family: DatasetId(0),
            owner: DatasetId(0),
            txg,
            compression: CompressionSetting::Lz4,
            keys: self.keys.as_deref(),
            small_bytes_max: 0,
            data: data.into(),
        });
        self.blockio.write_many(requests.collect()).map_err(StoreError::new)
    }

    fn free(&self, pointer: &BlockPointer) {
        self.blockio.free(pointer);
    }
}

/// Blocks of one dataset.
pub(crate) struct DatasetBlocks {
    pub blockio: Arc<BlockIo>,
    pub dataset: DatasetId,
    /// Under whose number they are sealed: its own, or that of what it was cloned from.
    pub family: DatasetId,
    pub owner: DatasetId,
    pub keys: Option<Arc<BlockKeys>>,
    /// For file content; metadata is always compressed with LZ4.
    pub compression: RwLock<CompressionSetting>,
    /// Content of so many stored bytes at most goes to special groups.
    pub small_bytes_max: AtomicU32,
    pub unit: u32,
    /// Content is kept in the block cache.
    pub cached: AtomicBool,
    /// Content is read ahead.
    pub ahead: AtomicBool,
    /// Who knows what its snapshots hold.
    pub deaths: Arc<Deaths>,
}

impl Blocks for DatasetBlocks {
    fn write_many(&self, txg: Txg, blocks: Vec<BlockWrite<'_>>) -> Result<Vec<BlockPointer>, StoreError> {
        let content = *self.compression.read();
        let small_bytes_max = self.small_bytes_max.load(Ordering::Relaxed);
        let requests = blocks.into_iter().map(|block| WriteRequest {
            kind: block.kind,
            level: block.level,
            family: self.family,
            owner: self.owner,
            txg,
            compression: if block.kind == BlockKind::Data { content } else { CompressionSetting::Lz4 },
            keys: self.keys.as_deref(),
            small_bytes_max,
            data: block.data,
        });
        self.blockio.write_many(requests.collect()).map_err(StoreError::new)
    }

    fn read(&self, pointer: &BlockPointer) -> Result<BlockBytes, StoreError> {
        // Nodes are cached by the tree room; caching their blocks too would hold everything twice.
        let cache = pointer.kind == BlockKind::Data && self.cached.load(Ordering::Relaxed);
        let (dataset, family) = (self.dataset, self.family);
        let context = ReadContext { dataset, family, keys: self.keys.as_deref(), cache };
        let block = self.blockio.read(pointer, &context).map_err(StoreError::new)?;
        Ok(BlockBytes::new(block))
    }

    fn read_ahead(&self, stream: u64, pointers: &[BlockPointer], urgent: bool) {
        // What is fetched beside is handed over in the cache.
        if !self.cached.load(Ordering::Relaxed) {
            return;
        }
        let (dataset, family, keys) = (self.dataset, self.family, self.keys.clone());
        self.blockio.read_ahead(ReadAhead { dataset, family, keys, stream, pointers, urgent });
    }

    fn read_ahead_bytes_max(&self) -> u64 {
        let wanted = self.cached.load(Ordering::Relaxed) && self.ahead.load(Ordering::Relaxed);
        if wanted { self.blockio.read_ahead_bytes_max() } else { 0 }
    }

    fn cancel_read_ahead(&self, stream: u64) {
        self.blockio.cancel_read_ahead(self.dataset, stream);
    }

    fn free(&self, pointer: &BlockPointer) {
        if !self.deaths.let_go(pointer) {
            self.blockio.free(pointer);
        }
    }

    fn unit(&self) -> u32 {
        self.unit
    }

    fn seals(&self) -> bool {
        self.keys.is_some()
    }
}
