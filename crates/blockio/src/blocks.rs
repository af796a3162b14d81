//! The seam between a dataset and its blocks: content goes in, pointers come out.
//!
//! Data flows one way. The sync of a dataset hands [`BlockWrite`]s down through [`Blocks`]. Layers
//! that know more than a dataset implement it, each above the next: the pool's references (ZFS: DDT
//! and BRT) answer with a block that is there already or pass it on; frees go through the deadlist
//! of the newest snapshot. [`BlockIo`](crate::BlockIo) is below all of them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use steadfast_crypto::BlockKeys;
use steadfast_device::Buffer;
use steadfast_format::{BlockKind, BlockPointer, Compression, DatasetId, Txg};

use crate::compress::CompressionSetting;
use crate::error::Error;

/// A block to be written: the same on its whole way down.
#[derive(Clone, Debug)]
pub struct BlockWrite<'a> {
    /// Its kind; metadata is stored twice.
    pub kind: BlockKind,
    /// Height above the leaves of its tree; 0 for content.
    pub level: u8,
    /// It is a whole record of a file: another block may hold the same, and it has as many copies
    /// as the property `copies` says. Other content is stored once.
    pub record: bool,
    /// Content before compression and sealing, 1 byte to 16 MiB.
    pub data: Cow<'a, [u8]>,
    /// The same content, compressed before. Stored so if that saves a unit.
    pub packed: Option<(Compression, &'a [u8])>,
}

impl<'a> BlockWrite<'a> {
    /// A block that is no record and was not compressed before.
    pub fn new(kind: BlockKind, level: u8, data: impl Into<Cow<'a, [u8]>>) -> BlockWrite<'a> {
        BlockWrite { kind, level, record: false, data: data.into(), packed: None }
    }
}

/// Owner, key and settings under which blocks are written.
#[derive(Clone, Copy, Debug)]
pub struct WriteContext<'a> {
    /// Number under which they are sealed: a dataset's family, 0 for the pool's own metadata.
    pub family: DatasetId,
    /// Encryption root in whose segments they go, 0 for the shared ones.
    pub owner: DatasetId,
    /// Txg being synced.
    pub txg: Txg,
    /// Compression of file content. Metadata is always compressed with LZ4.
    pub compression: CompressionSetting,
    /// Seals them; `None` stores them open.
    pub keys: Option<&'a BlockKeys>,
    /// Content of at most so many stored bytes goes to special groups, as metadata does.
    pub small_bytes_max: u32,
    /// Metadata has a second copy on stores of objects too, as it has everywhere else.
    pub copies_on_stores: bool,
    /// How often records are stored, 1 to 3; what is sealed at most twice.
    pub copies: usize,
}

impl<'a> WriteContext<'a> {
    /// The pool's own metadata, of which the space knows how many copies there are.
    #[must_use]
    pub fn of_pool(txg: Txg, keys: Option<&'a BlockKeys>) -> WriteContext<'a> {
        let (family, owner) = (DatasetId(0), DatasetId(0));
        let compression = CompressionSetting::Lz4;
        let (small_bytes_max, copies_on_stores, copies) = (0, true, 1);
        WriteContext { family, owner, txg, compression, keys, small_bytes_max, copies_on_stores, copies }
    }

    /// Compression of a block.
    pub(crate) fn compression_of(&self, kind: BlockKind) -> CompressionSetting {
        if kind == BlockKind::Data { self.compression } else { CompressionSetting::Lz4 }
    }
}

/// Bytes of a block, shared with other holders (a cache below): a reader copies what it wants and
/// nothing else.
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

/// A part of a block's bytes, which are kept as long as this lives.
#[derive(Clone)]
pub struct BlockPart {
    bytes: BlockBytes,
    range: Range<usize>,
}

impl BlockPart {
    /// The bytes of `range`.
    ///
    /// # Panics
    /// If the block is shorter.
    #[must_use]
    pub fn new(bytes: BlockBytes, range: Range<usize>) -> BlockPart {
        assert!(range.start <= range.end && range.end <= bytes.len(), "{range:?} of {} bytes", bytes.len());
        BlockPart { bytes, range }
    }
}

impl std::ops::Deref for BlockPart {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

/// Where a dataset's blocks go. An implementation belongs to one dataset: it knows its owner, keys
/// and compression.
pub trait Blocks: Send + Sync {
    /// Writes blocks as part of `txg`, in parallel as it likes; pointers in the same order. Called
    /// by sync only. On an error nothing of the call is referenced. Where a record is what a block
    /// already holds, the pointer may be another reference to that one; each pointer that is given
    /// is freed by itself.
    fn write_many(&self, txg: Txg, blocks: Vec<BlockWrite<'_>>) -> Result<Vec<BlockPointer>, Error>;

    /// A block's verified and opened bytes, all `lsize` of them. Many callers at once.
    fn read(&self, pointer: &BlockPointer) -> Result<BlockBytes, Error>;

    /// The same of several blocks, side by side where anything is gained; answers in the same
    /// order.
    fn read_many(&self, pointers: &[BlockPointer]) -> Vec<Result<BlockBytes, Error>> {
        pointers.iter().map(|pointer| self.read(pointer)).collect()
    }

    /// Blocks' verified and opened bytes as they were compressed; `None` for what cannot be read
    /// so, of which [`Blocks::read`] says more.
    fn read_packed(&self, pointers: &[BlockPointer]) -> Vec<Option<BlockBytes>> {
        pointers.iter().map(|_| None).collect()
    }

    /// A block of file content was written at `pointer`, and its reader will find it in no cache
    /// above this one. A hint: an implementation may keep the content for that reader.
    fn keep(&self, pointer: &BlockPointer, content: &Arc<Buffer>) {
        let _ = (pointer, content);
    }

    /// Blocks of file content that will be wanted soon, in this order, by whom `stream` names; if
    /// `urgent`, somebody waits for them already. A hint: an implementation may read them in the
    /// background, or do nothing.
    fn read_ahead(&self, stream: u64, pointers: &[BlockPointer], urgent: bool) {
        let _ = (stream, pointers, urgent);
    }

    /// Blocks that will be wanted soon, file content or nodes, in an order that is not known. A
    /// hint for places where each request is dear: many come together, in the background. False
    /// where no block is brought.
    fn bring(&self, pointers: &[BlockPointer]) -> bool {
        let _ = pointers;
        false
    }

    /// How many bytes of content it is of use to bring at once; 0 if each read is cheap.
    fn bring_bytes_max(&self) -> u64 {
        0
    }

    /// Bytes that should be read ahead of one stream at most; 0 if that is of no use.
    fn read_ahead_bytes_max(&self) -> u64 {
        0
    }

    /// Drops the waiting read-ahead of `stream`.
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

    /// One more pointer leads to a block that was there before the txg being synced: it is to be
    /// freed once more. Sync context, before anything of that txg is freed.
    fn share(&self, pointer: &BlockPointer) {
        unreachable!("{pointer:?} is shared where nothing is");
    }

    /// Content of one domain may be shared between datasets: 0 is what is not sealed, else under
    /// whose number it is.
    fn domain(&self) -> DatasetId {
        DatasetId(0)
    }

    /// Allocation unit of the pool, in bytes.
    fn unit(&self) -> u32;

    /// Zeros in file content take no space.
    fn compresses(&self) -> bool;

    /// How often a sync stores records of content (the property `copies`): at most, of what an
    /// operation brings that begins while this txg is open, and in the sync of this txg.
    fn copies(&self, txg: Txg) -> (usize, usize) {
        let _ = txg;
        (1, 1)
    }

    /// True if what is stored may be longer than what was given, by a seal: less than a unit.
    fn seals(&self) -> bool {
        true
    }
}
