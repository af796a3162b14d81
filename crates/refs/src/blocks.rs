//! The view that trees and datasets have of `blockio`: blocks of one owner, with its keys and
//! settings.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::RwLock;
use steadfast_blockio::{
    BlockBytes, BlockIo, BlockWrite, Blocks, CompressionSetting, Error as BlockError, ReadAhead, ReadContext,
    WriteContext,
};
use steadfast_crypto::{BlockKeys, Key};
use steadfast_device::Buffer;
use steadfast_env::Clock;
use steadfast_format::{BlockKind, BlockPointer, DatasetId, Txg};
use steadfast_tree::{NodeStore, StoreError};

use crate::Error;
use crate::ddt::{Known, References};
use crate::deadlist::Deadlist;
use crate::manifest::Lister;
use crate::raw_source::RawSource;

/// Nodes of the meta tree.
pub struct MetaStore {
    /// Where they are written and read.
    pub blockio: Arc<BlockIo>,
    /// Keys of the pool's own metadata, if it is sealed.
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

    fn read_many(&self, pointers: &[BlockPointer]) -> Vec<Result<Vec<u8>, StoreError>> {
        let context = ReadContext {
            dataset: DatasetId(0),
            family: DatasetId(0),
            keys: self.keys.as_deref(),
            cache: false,
        };
        let read = self.blockio.read_many(pointers, &context).into_iter();
        read.map(|block| block.map(|block| block.to_vec()).map_err(StoreError::new)).collect()
    }

    fn bring(&self, pointers: &[BlockPointer]) -> bool {
        self.blockio.bring(DatasetId(0), pointers)
    }

    fn write(&self, nodes: Vec<(u8, Vec<u8>)>) -> Result<Vec<BlockPointer>, StoreError> {
        let txg = Txg(self.syncing.load(Ordering::Acquire));
        let context = WriteContext::of_pool(txg, self.keys.as_deref());
        let blocks = nodes.into_iter().map(|(level, data)| BlockWrite::new(BlockKind::Meta, level, data));
        self.blockio.write_many(&context, blocks.collect()).map_err(StoreError::new)
    }

    fn free(&self, pointer: &BlockPointer) {
        self.blockio.free(pointer);
    }

    fn domain(&self) -> u64 {
        // No dataset's, so that of a sealed pool nothing is shown as a dataset either.
        if self.keys.is_some() { u64::MAX } else { 0 }
    }
}

/// Blocks of one dataset.
pub struct DatasetBlocks {
    /// Where they are written and read.
    pub blockio: Arc<BlockIo>,
    /// The dataset.
    pub dataset: DatasetId,
    /// Under whose number they are sealed: its own, or that of what it was cloned from.
    pub family: DatasetId,
    /// The owner of its segments.
    pub owner: DatasetId,
    /// Its keys, if it is encrypted.
    pub keys: Option<Arc<BlockKeys>>,
    /// For file content; metadata is always compressed with LZ4.
    pub compression: RwLock<CompressionSetting>,
    /// Content of so many stored bytes at most goes to special groups.
    pub small_bytes_max: AtomicU32,
    /// Metadata has a second copy on stores of objects.
    pub copies_on_stores: AtomicBool,
    /// How often content is stored.
    pub copies: Copies,
    /// Allocation unit, in bytes.
    pub unit: u32,
    /// Content is kept in the block cache.
    pub cached: AtomicBool,
    /// Nodes of its trees are kept in the cache of nodes.
    pub nodes_cached: AtomicBool,
    /// Content is read ahead.
    pub ahead: AtomicBool,
    /// The deadlist of its snapshots.
    pub deadlist: Arc<Deadlist>,
    /// Of a view of a raw dataset: where its blocks come from.
    pub raw: Option<RawSource>,
    /// Lists what is sealed, if it is.
    pub lister: Option<Lister>,
    /// The reference table (DDT).
    pub references: Arc<References>,
    /// How content is stored that is there already.
    pub dedup: RwLock<Dedup>,
    /// Keys digests of content.
    pub digest_key: Key,
    /// Tells when content was written.
    pub clock: Arc<dyn Clock>,
}

/// How content is stored that is there already: the property `dedup`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Dedup {
    /// It is stored again.
    #[default]
    Off,
    /// It is referred to if the digest is the same.
    On,
    /// It is referred to if the bytes are the same.
    Verify,
}

impl Dedup {
    /// From a value of the property.
    pub fn of(value: &str) -> Dedup {
        match value {
            "on" | "blake3" => Dedup::On,
            "verify" | "blake3,verify" => Dedup::Verify,
            _ => Dedup::Off,
        }
    }
}

/// How often content of a dataset is stored: the property `copies`. A change counts for the txgs
/// behind the open one, whose operations have reserved space for what was set before.
#[derive(Debug, Default)]
pub struct Copies(AtomicU64);

impl Copies {
    /// Bits of each of two numbers; the txg from which on the second one counts stands above both.
    const BITS: u32 = 2;

    fn parts(&self) -> (usize, usize, u64) {
        let all = self.0.load(Ordering::Relaxed);
        let number = |shift: u32| usize::try_from(all >> shift & 3).unwrap_or(0).max(1);
        (number(Self::BITS), number(0), all >> (2 * Self::BITS))
    }

    /// Content is stored so often, 1 to 3 times, in txgs behind the open one; at once where nothing
    /// was set before, as nothing was written.
    pub fn set(&self, copies: usize, open: impl Fn() -> Txg) {
        let now = copies.clamp(1, 3) as u64;
        if self.0.compare_exchange(0, now << Self::BITS | now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
        let mut seen = open();
        let before = self.in_txg(seen) as u64;
        loop {
            let from = (seen.0 + 1) << (2 * Self::BITS);
            self.0.store(from | before << Self::BITS | now, Ordering::Relaxed);
            // Operations of a txg that opened meanwhile may have reserved for the old number.
            match open() {
                same if same == seen => return,
                later => seen = later,
            }
        }
    }

    /// How often the sync of a txg stores content.
    #[must_use]
    pub fn in_txg(&self, txg: Txg) -> usize {
        let (before, now, from) = self.parts();
        if txg.0 < from { before } else { now }
    }

    /// How often content may be stored of an operation that begins while `open` is open: in that
    /// txg or in one behind it.
    #[must_use]
    pub fn for_operation(&self, open: Txg) -> usize {
        let (before, now, from) = self.parts();
        if open.0 < from { before.max(now) } else { now }
    }
}

/// The fate of a block that was given to be written.
enum Fate {
    /// It refers to one that is there.
    There(BlockPointer),
    /// It is written, as this one of those that are.
    Written(usize, Option<Known>),
    /// It refers to that one of those that are written.
    Like(usize),
}

impl DatasetBlocks {
    /// True if a block of file content is in memory: a read of it waits for nothing.
    #[must_use]
    pub fn is_cached(&self, pointer: &BlockPointer) -> bool {
        self.blockio.is_cached(self.family, pointer)
    }

    fn write(&self, txg: Txg, blocks: Vec<BlockWrite<'_>>) -> Result<Vec<BlockPointer>, BlockError> {
        let context = WriteContext {
            family: self.family,
            owner: self.owner,
            txg,
            compression: *self.compression.read(),
            keys: self.keys.as_deref(),
            small_bytes_max: self.small_bytes_max.load(Ordering::Relaxed),
            copies_on_stores: self.copies_on_stores.load(Ordering::Relaxed),
            copies: self.copies.in_txg(txg),
        };
        let pointers = self.blockio.write_many(&context, blocks)?;
        self.lister.iter().for_each(|lister| lister.written(&pointers));
        Ok(pointers)
    }

    /// Digests of the content of records; `None` for a block that is no record.
    fn digest(&self, blocks: &[BlockWrite<'_>]) -> Vec<Option<Known>> {
        let wanted: Vec<&[u8]> = blocks.iter().filter(|b| b.record).map(|b| &*b.data).collect();
        let mut digests = self.blockio.digests(&self.digest_key, &wanted).into_iter();
        let domain = self.domain();
        let known = |block: &BlockWrite<'_>| {
            block.record.then(|| Known {
                digest: digests.next().expect("one for each record"),
                domain,
                owner: self.owner,
                lsize: u32::try_from(block.data.len()).expect("records are small"),
            })
        };
        blocks.iter().map(known).collect()
    }

    /// True if a block holds these bytes.
    fn holds(&self, pointer: &BlockPointer, data: &[u8]) -> bool {
        self.read(pointer).is_ok_and(|bytes| *bytes == *data)
    }

    fn write_once(
        &self,
        txg: Txg,
        blocks: Vec<BlockWrite<'_>>,
        dedup: Dedup,
    ) -> Result<Vec<BlockPointer>, BlockError> {
        let known = self.digest(&blocks);
        let mut fates = Vec::with_capacity(blocks.len());
        let mut first: HashMap<[u8; 32], usize> = HashMap::new();
        let mut written: Vec<BlockWrite<'_>> = Vec::new();
        for (block, known) in blocks.into_iter().zip(known) {
            let Some(known) = known else {
                fates.push(Fate::Written(written.len(), None));
                written.push(block);
                continue;
            };
            let there = self.references.find(&known, txg);
            let there = there.filter(|there| dedup == Dedup::On || self.holds(there, &block.data));
            if let Some(there) = there {
                // At once, so that nothing else of this call can take it for free.
                self.references.share(&there, self.owner);
                self.lister.iter().for_each(|lister| lister.referred(&there, Some(txg)));
                fates.push(Fate::There(there));
                continue;
            }
            match first.get(&known.digest) {
                Some(&at) if dedup == Dedup::On || written[at].data == block.data => {
                    fates.push(Fate::Like(at))
                }
                _ => {
                    first.insert(known.digest, written.len());
                    fates.push(Fate::Written(written.len(), Some(known)));
                    written.push(block);
                }
            }
        }
        let pointers = match self.write(txg, written) {
            Ok(pointers) => pointers,
            Err(error) => {
                for fate in fates {
                    if let Fate::There(pointer) = fate {
                        self.references.release(pointer.copies[0]);
                    }
                }
                return Err(error);
            }
        };
        let minutes = u32::try_from(self.clock.wall_ns() / 60_000_000_000).unwrap_or(0);
        let place = |fate| match fate {
            Fate::There(pointer) => {
                self.references.note_hit();
                pointer
            }
            Fate::Written(at, known) => {
                known.iter().for_each(|known| self.references.enter(&pointers[at], known, minutes));
                pointers[at]
            }
            Fate::Like(at) => {
                self.references.share(&pointers[at], self.owner);
                self.references.note_hit();
                pointers[at]
            }
        };
        Ok(fates.into_iter().map(place).collect())
    }
}

impl Blocks for DatasetBlocks {
    fn write_many(&self, txg: Txg, blocks: Vec<BlockWrite<'_>>) -> Result<Vec<BlockPointer>, BlockError> {
        if self.raw.is_some() {
            // [raw.1]
            return Err(BlockError::layer(Error::Raw { name: format!("<{}>", self.dataset) }));
        }
        let dedup = *self.dedup.read();
        // A row of the reference table stands for one copy.
        let is_once = self.copies.in_txg(txg) == 1;
        let wanted = dedup != Dedup::Off && is_once && self.references.is_enabled();
        if wanted && blocks.iter().any(|block| block.record) {
            self.write_once(txg, blocks, dedup)
        } else {
            self.write(txg, blocks)
        }
    }

    fn read(&self, pointer: &BlockPointer) -> Result<BlockBytes, BlockError> {
        // Nodes are cached by the tree room; caching their blocks too would hold everything twice.
        let cache = pointer.kind == BlockKind::Data && self.cached.load(Ordering::Relaxed);
        let (dataset, family) = (self.dataset, self.family);
        let context = ReadContext { dataset, family, keys: self.keys.as_deref(), cache };
        if let Some(raw) = &self.raw {
            let block = raw.read(&self.blockio, pointer, &context).map_err(BlockError::layer)?;
            return Ok(BlockBytes::new(block));
        }
        Ok(BlockBytes::new(self.blockio.read(pointer, &context)?))
    }

    fn read_many(&self, pointers: &[BlockPointer]) -> Vec<Result<BlockBytes, BlockError>> {
        if self.raw.is_some() {
            return pointers.iter().map(|pointer| self.read(pointer)).collect();
        }
        let (dataset, family) = (self.dataset, self.family);
        let context = ReadContext { dataset, family, keys: self.keys.as_deref(), cache: false };
        let read = self.blockio.read_many(pointers, &context).into_iter();
        read.map(|block| Ok(BlockBytes::new(block?))).collect()
    }

    fn read_packed(&self, pointers: &[BlockPointer]) -> Vec<Option<BlockBytes>> {
        // A block kept of another pool is looked for among files.
        if self.raw.is_some() {
            return pointers.iter().map(|_| None).collect();
        }
        let (dataset, family) = (self.dataset, self.family);
        let context = ReadContext { dataset, family, keys: self.keys.as_deref(), cache: false };
        let blocks = self.blockio.read_packed(pointers, &context).into_iter();
        blocks.map(|block| block.ok().map(BlockBytes::new)).collect()
    }

    fn keep(&self, pointer: &BlockPointer, content: &Arc<Buffer>) {
        if self.cached.load(Ordering::Relaxed) {
            self.blockio.keep(self.family, pointer, content);
        }
    }

    fn read_ahead(&self, stream: u64, pointers: &[BlockPointer], urgent: bool) {
        // A block that is fetched beside is handed over in the cache.
        if !self.cached.load(Ordering::Relaxed) {
            return;
        }
        let (dataset, family, keys) = (self.dataset, self.family, self.keys.clone());
        self.blockio.read_ahead(ReadAhead { dataset, family, keys, stream, pointers, urgent });
    }

    fn bring(&self, pointers: &[BlockPointer]) -> bool {
        self.raw.is_none() && self.blockio.bring(self.family, pointers)
    }

    fn bring_bytes_max(&self) -> u64 {
        if self.ahead.load(Ordering::Relaxed) { self.blockio.bring_bytes_max() } else { 0 }
    }

    fn read_ahead_bytes_max(&self) -> u64 {
        let wanted = self.cached.load(Ordering::Relaxed) && self.ahead.load(Ordering::Relaxed);
        if wanted { self.blockio.read_ahead_bytes_max() } else { 0 }
    }

    fn cancel_read_ahead(&self, stream: u64) {
        self.blockio.cancel_read_ahead(self.dataset, stream);
    }

    fn free(&self, pointer: &BlockPointer) {
        if self.raw.is_some() || self.deadlist.let_go(pointer) {
            return;
        }
        // Nodes are nobody else's.
        if pointer.kind != BlockKind::Data || self.references.release(pointer.copies[0]) {
            self.blockio.free(pointer);
        }
    }

    fn keeps_nodes(&self) -> bool {
        self.nodes_cached.load(Ordering::Relaxed)
    }

    fn shares(&self) -> bool {
        self.raw.is_none() && self.references.is_enabled()
    }

    fn share(&self, pointer: &BlockPointer) {
        self.references.share(pointer, self.owner);
        self.lister.iter().for_each(|lister| lister.referred(pointer, None));
    }

    fn domain(&self) -> DatasetId {
        // Clones have the key and the number of what they are clones of.
        if self.keys.is_some() { self.family } else { DatasetId(0) }
    }

    fn unit(&self) -> u32 {
        self.unit
    }

    fn compresses(&self) -> bool {
        *self.compression.read() != CompressionSetting::Off
    }

    fn copies(&self, txg: Txg) -> (usize, usize) {
        (self.copies.for_operation(txg), self.copies.in_txg(txg))
    }

    fn seals(&self) -> bool {
        self.keys.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_copies_counts_behind_the_open_txg() {
        let copies = Copies::default();
        copies.set(1, || Txg(7));
        copies.set(2, || Txg(7));
        assert_eq!((copies.in_txg(Txg(7)), copies.in_txg(Txg(8))), (1, 2));
        // An operation of txg 7 may wait, and come into txg 8.
        assert_eq!((copies.for_operation(Txg(7)), copies.for_operation(Txg(8))), (2, 2));
        copies.set(1, || Txg(9));
        assert_eq!((copies.in_txg(Txg(9)), copies.in_txg(Txg(10))), (2, 1));
        assert_eq!((copies.for_operation(Txg(9)), copies.for_operation(Txg(10))), (2, 1));
    }

    #[test]
    fn a_txg_that_opens_while_copies_are_set_keeps_the_old_number() {
        let (copies, asked) = (Copies::default(), std::cell::Cell::new(6));
        copies.set(1, || Txg(6));
        copies.set(3, || {
            asked.set((asked.get() + 1).min(8));
            Txg(asked.get())
        });
        assert_eq!((copies.in_txg(Txg(8)), copies.in_txg(Txg(9))), (1, 3));
    }
}
