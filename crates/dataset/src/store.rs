//! What a dataset asks of the rooms below: blocks in, pointers out.

use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::Arc;
use steadfast_format::{BlockKind, BlockPointer, Compression, DatasetId, Txg};
use steadfast_tree::{NodeStore, StoreError};

/// A block to be written.
#[derive(Debug)]
pub struct BlockWrite<'a> {
    /// What it holds.
    pub kind: BlockKind,
    /// Height above the leaves of its tree; 0 for content.
    pub level: u8,
    /// It is a whole record of a file, which may hold what another one holds.
    pub record: bool,
    /// Content before compression and sealing.
    pub data: Cow<'a, [u8]>,
    /// The same content as it came compressed.
    pub packed: Option<(Compression, &'a [u8])>,
}

/// Bytes of a block, shared with whoever else holds them (a cache below): a reader copies what it wants and nothing else.
#[derive(Clone)]
pub struct BlockBytes(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl BlockBytes {
    /// Takes anything that holds the bytes and keeps it as long as it is looked at.
    pub fn new(holder: impl AsRef<[u8]> + Send + Sync + 'static) -> BlockBytes {
        BlockBytes(Arc::new(holder))
    }
}

impl std::ops::Deref for BlockBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// Where a dataset's blocks go. An implementation belongs to one dataset: it knows its owner, keys and compression.
pub trait Blocks: Send + Sync {
    /// Writes blocks as part of `txg`, in parallel as it likes; pointers in the same order. Called by sync only. On an
    /// error nothing of the call is referenced. Where a record is what a block already holds, the pointer may be another
    /// reference to that one; each pointer that is given is freed by itself.
    fn write_many(&self, txg: Txg, blocks: Vec<BlockWrite<'_>>) -> Result<Vec<BlockPointer>, StoreError>;

    /// A block's verified and opened bytes, all `lsize` of them. Many callers at once.
    fn read(&self, pointer: &BlockPointer) -> Result<BlockBytes, StoreError>;

    /// Blocks' verified and opened bytes as they were compressed; `None` for what cannot be read so, of which [`Blocks::read`] says
    /// more.
    fn read_packed(&self, pointers: &[BlockPointer]) -> Vec<Option<BlockBytes>> {
        pointers.iter().map(|_| None).collect()
    }

    /// Blocks of file content that will be wanted soon, in this order, by whom `stream` names; if `urgent`, somebody waits
    /// for them already. A hint: an implementation may read them in the background, or do nothing.
    fn read_ahead(&self, stream: u64, pointers: &[BlockPointer], urgent: bool) {
        let _ = (stream, pointers, urgent);
    }

    /// Bytes that should be read ahead of one stream at most; 0 if that is of no use.
    fn read_ahead_bytes_max(&self) -> u64 {
        0
    }

    /// What `stream` had wanted to be read ahead is not wanted any more.
    fn cancel_read_ahead(&self, stream: u64) {
        let _ = stream;
    }

    /// The block is not referenced any more as of the txg being synced.
    fn free(&self, pointer: &BlockPointer);

    /// False if nodes of the dataset's trees are not to be kept in memory.
    fn keeps_nodes(&self) -> bool {
        true
    }

    /// True if blocks of content may be referred to more than once.
    fn shares(&self) -> bool {
        false
    }

    /// One more pointer leads to a block that was there before the txg being synced: it is to be freed once more. Sync
    /// context, before anything of that txg is freed.
    fn share(&self, pointer: &BlockPointer) {
        unreachable!("{pointer:?} is shared where nothing is");
    }

    /// Content of one domain may be shared between datasets: 0 is what is not sealed, else under whose number it is.
    fn domain(&self) -> DatasetId {
        DatasetId(0)
    }

    /// Allocation unit of the pool, in bytes.
    fn unit(&self) -> u32;

    /// True if what is stored may be longer than what was given, by a seal: less than a unit.
    fn seals(&self) -> bool {
        true
    }
}

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

    /// What follows is written as part of `txg`.
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
        self.blocks.read(pointer).map(|bytes| bytes.to_vec())
    }

    fn write(&self, nodes: Vec<(u8, Vec<u8>)>) -> Result<Vec<BlockPointer>, StoreError> {
        let txg = self.state.lock().txg;
        let block = |(level, data)| BlockWrite {
            kind: self.kind,
            level,
            record: false,
            data: Cow::Owned(data),
            packed: None,
        };
        let blocks = nodes.into_iter().map(block).collect();
        let pointers = self.blocks.write_many(txg, blocks)?;
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
