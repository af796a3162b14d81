//! Blocks in memory: for tests of this room and those above it, and for simulations.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use steadfast_blockio::{BlockBytes, BlockWrite, Blocks, Error as BlockError};
use steadfast_format::{Address, BlockKind, BlockPointer, Compression, SegmentId, Stamp, Txg};

/// Blocks kept in memory, each in a segment of its own. Notices blocks that are freed twice or read
/// after they were dropped. Freed blocks stay readable until [`MemoryBlocks::drop_freed`], as on
/// devices until the commit.
#[derive(Default)]
pub struct MemoryBlocks {
    state: Mutex<State>,
    watcher: Mutex<Option<Watcher>>,
    read_watcher: Mutex<Option<ReadWatcher>>,
}

/// Called with the kind of blocks that are about to be written.
type Watcher = Box<dyn Fn(BlockKind) + Send + Sync>;

/// Called with what was read.
type ReadWatcher = Arc<dyn Fn(&BlockPointer) + Send + Sync>;

#[derive(Default)]
struct State {
    next: u64,
    blocks: BTreeMap<u64, Arc<[u8]>>,
    freed: BTreeSet<u64>,
    /// References beyond the first.
    more: BTreeMap<u64, u64>,
    bad: BTreeSet<u64>,
    reads: u64,
    /// Blocks written with a compressed form, and that form.
    packed: Vec<(Vec<u8>, Vec<u8>)>,
    reads_left: Option<u64>,
    writes_left: Option<u64>,
}

/// Allocation unit.
const UNIT: u32 = 4096;

/// Counts a call down; true if it fails.
fn fails(left: &mut Option<u64>) -> bool {
    match left {
        Some(0) => true,
        Some(calls) => {
            *calls -= 1;
            false
        }
        None => false,
    }
}

/// Error of a block in memory that was told to fail.
#[derive(Debug, thiserror::Error)]
#[error("made to fail")]
struct Injected;

/// Error of a block that is not in memory.
#[derive(Debug, thiserror::Error)]
#[error("block {0} is not there")]
struct Absent(u64);

impl MemoryBlocks {
    /// No blocks.
    #[must_use]
    pub fn new() -> Arc<MemoryBlocks> {
        Arc::default()
    }

    /// Forgets what was freed: a commit came by.
    pub fn drop_freed(&self) {
        let mut state = self.state.lock();
        for block in std::mem::take(&mut state.freed) {
            state.blocks.remove(&block);
        }
    }

    /// Goes back to the blocks of `image` (a crash: what was written since never happened).
    pub fn restore(&self, image: &MemoryImage) {
        let mut state = self.state.lock();
        state.blocks.clone_from(&image.blocks);
        state.more.clone_from(&image.more);
        state.freed.clear();
    }

    /// All blocks that are not freed.
    #[must_use]
    pub fn image(&self) -> MemoryImage {
        let state = self.state.lock();
        let live = state.blocks.iter().filter(|(block, _)| !state.freed.contains(block));
        let blocks = live.map(|(&block, bytes)| (block, Arc::clone(bytes))).collect();
        MemoryImage { blocks, more: state.more.clone() }
    }

    /// Number of blocks that are not freed.
    #[must_use]
    pub fn live(&self) -> usize {
        let state = self.state.lock();
        state.blocks.len() - state.freed.len()
    }

    /// Bytes that blocks occupy that are not freed, each rounded up to the unit, and counted for
    /// each reference.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let state = self.state.lock();
        let live = state.blocks.iter().filter(|(block, _)| !state.freed.contains(block));
        let references = |block: &u64| 1 + state.more.get(block).copied().unwrap_or(0);
        let bytes = |bytes: &[u8]| (bytes.len() as u64).next_multiple_of(UNIT.into());
        live.map(|(block, content)| references(block) * bytes(content)).sum()
    }

    /// Blocks read so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.state.lock().reads
    }

    /// From now on, after so many reads more, every read fails; `None`: none does.
    pub fn fail_reads_after(&self, reads: Option<u64>) {
        self.state.lock().reads_left = reads;
    }

    /// From now on, after so many calls more, every write fails; `None`: none does.
    pub fn fail_writes_after(&self, writes: Option<u64>) {
        self.state.lock().writes_left = writes;
    }

    /// From now on `watcher` is called before blocks are written, with their kind, on the thread
    /// that writes: what it reads then is what others may read in the middle of a sync.
    pub fn watch_writes(&self, watcher: impl Fn(BlockKind) + Send + Sync + 'static) {
        *self.watcher.lock() = Some(Box::new(watcher));
    }

    /// From now on `watcher` is called with each block that was read, on the thread that reads,
    /// before that gets it: what is done meanwhile comes between the block and its reader.
    pub fn watch_reads(&self, watcher: impl Fn(&BlockPointer) + Send + Sync + 'static) {
        *self.read_watcher.lock() = Some(Arc::new(watcher));
    }

    /// Blocks written with a compressed form, and that form, since the last call.
    pub fn take_packed(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        std::mem::take(&mut self.state.lock().packed)
    }

    /// Makes a block unreadable.
    pub fn spoil(&self, pointer: &BlockPointer) {
        self.state.lock().bad.insert(pointer.copies[0].segment.0);
    }
}

/// The blocks of a [`MemoryBlocks`] at one moment.
pub struct MemoryImage {
    blocks: BTreeMap<u64, Arc<[u8]>>,
    more: BTreeMap<u64, u64>,
}

impl Blocks for MemoryBlocks {
    fn write_many(&self, txg: Txg, blocks: Vec<BlockWrite<'_>>) -> Result<Vec<BlockPointer>, BlockError> {
        if let (Some(watcher), Some(first)) = (&*self.watcher.lock(), blocks.first()) {
            watcher(first.kind);
        }
        let mut state = self.state.lock();
        if !blocks.is_empty() && fails(&mut state.writes_left) {
            return Err(BlockError::layer(Injected));
        }
        let place = |write: BlockWrite<'_>| {
            state.next += 1;
            let segment = state.next;
            let size = u32::try_from(write.data.len()).expect("blocks are small");
            state.packed.extend(write.packed.map(|(_, packed)| (write.data.to_vec(), packed.to_vec())));
            state.blocks.insert(segment, Arc::from(&*write.data));
            BlockPointer {
                hash: [0; 32],
                copies: [Address { segment: SegmentId(segment), offset: 0 }, Address::NONE, Address::NONE],
                psize: size,
                lsize: size,
                birth: txg,
                written: Txg(0),
                stamp: Stamp::default(),
                compression: Compression::Off,
                kind: write.kind,
                level: write.level,
            }
        };
        Ok(blocks.into_iter().map(place).collect())
    }

    fn read(&self, pointer: &BlockPointer) -> Result<BlockBytes, BlockError> {
        let mut state = self.state.lock();
        state.reads += 1;
        if fails(&mut state.reads_left) {
            return Err(BlockError::layer(Injected));
        }
        let segment = pointer.copies[0].segment.0;
        let bytes = match state.blocks.get(&segment) {
            Some(bytes) if !state.bad.contains(&segment) => Arc::clone(bytes),
            _ => return Err(BlockError::layer(Absent(segment))),
        };
        drop(state);
        let watcher = self.read_watcher.lock().clone();
        watcher.iter().for_each(|watcher| watcher(pointer));
        Ok(BlockBytes::new(bytes))
    }

    fn free(&self, pointer: &BlockPointer) {
        let mut state = self.state.lock();
        let segment = pointer.copies[0].segment.0;
        assert!(state.blocks.contains_key(&segment), "block {segment} is freed and was not there");
        if let Some(more) = state.more.get_mut(&segment).filter(|more| **more > 0) {
            *more -= 1;
            return;
        }
        assert!(state.freed.insert(segment), "block {segment} is freed twice");
    }

    fn shares(&self) -> bool {
        true
    }

    fn share(&self, pointer: &BlockPointer) {
        let mut state = self.state.lock();
        let segment = pointer.copies[0].segment.0;
        assert!(state.blocks.contains_key(&segment), "block {segment} is shared and was not there");
        assert!(!state.freed.contains(&segment), "block {segment} is shared and was freed");
        *state.more.entry(segment).or_default() += 1;
    }

    fn unit(&self) -> u32 {
        UNIT
    }

    fn compresses(&self) -> bool {
        false
    }

    fn seals(&self) -> bool {
        false
    }
}
