//! Stores of a dataset's trees: nodes become blocks.

use parking_lot::Mutex;
use std::sync::Arc;
use steadfast_blockio::{BlockWrite, Blocks};
use steadfast_format::{BlockKind, BlockPointer, Txg};
use steadfast_tree::{NodeStore, StoreError};

/// The store of one tree of a dataset.
pub(crate) struct TreeStore {
    blocks: Arc<dyn Blocks>,
    kind: BlockKind,
    state: Mutex<TreeState>,
}

#[derive(Clone, Copy)]
struct TreeState {
    txg: Txg,
    /// Bytes the tree's nodes occupy: change since it was last asked.
    grown: i64,
}

/// Bytes a block occupies on devices, all copies together.
pub(crate) fn occupied(blocks: &dyn Blocks, pointer: &BlockPointer) -> u64 {
    u64::from(pointer.asize(blocks.unit())) * pointer.copy_count() as u64
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).expect("block sizes are small")
}

impl TreeStore {
    pub(crate) fn new(blocks: Arc<dyn Blocks>, kind: BlockKind) -> Arc<TreeStore> {
        Arc::new(TreeStore { blocks, kind, state: Mutex::new(TreeState { txg: Txg(0), grown: 0 }) })
    }

    /// Later nodes are written as part of `txg`.
    pub(crate) fn begin(&self, txg: Txg) {
        self.state.lock().txg = txg;
    }

    /// Change of the bytes that nodes occupy, since the last call.
    pub(crate) fn take_growth(&self) -> i64 {
        std::mem::take(&mut self.state.lock().grown)
    }
}

impl NodeStore for TreeStore {
    fn read(&self, pointer: &BlockPointer) -> Result<Vec<u8>, StoreError> {
        self.blocks.read(pointer).map(|bytes| bytes.to_vec()).map_err(StoreError::new)
    }

    fn read_many(&self, pointers: &[BlockPointer]) -> Vec<Result<Vec<u8>, StoreError>> {
        let read = self.blocks.read_many(pointers).into_iter();
        read.map(|bytes| bytes.map(|bytes| bytes.to_vec()).map_err(StoreError::new)).collect()
    }

    fn bring(&self, pointers: &[BlockPointer]) -> bool {
        self.blocks.bring(pointers)
    }

    fn write(&self, nodes: Vec<(u8, Vec<u8>)>) -> Result<Vec<BlockPointer>, StoreError> {
        let txg = self.state.lock().txg;
        let block = |(level, data)| BlockWrite::new(self.kind, level, data);
        let blocks = nodes.into_iter().map(block).collect();
        let pointers = self.blocks.write_many(txg, blocks).map_err(StoreError::new)?;
        let bytes: u64 = pointers.iter().map(|pointer| occupied(&*self.blocks, pointer)).sum();
        self.state.lock().grown += signed(bytes);
        Ok(pointers)
    }

    fn free(&self, pointer: &BlockPointer) {
        self.state.lock().grown -= signed(occupied(&*self.blocks, pointer));
        self.blocks.free(pointer);
    }

    fn keeps(&self) -> bool {
        self.blocks.keeps_nodes()
    }

    fn domain(&self) -> u64 {
        self.blocks.domain().0
    }
}
