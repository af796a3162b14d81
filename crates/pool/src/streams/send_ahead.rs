//! Content of a send that is read ahead, whatever files it is of (`send.rs`).
//!
//! A record that goes as its file has it waits in a queue while its blocks are read in the
//! background. Content that changed lies scattered: a reader of one record after the other waits
//! for a transfer each time, and the read-ahead of files, which goes by offsets, guesses wrong
//! there. Blocks are asked for in parts of the window, as many at once come in longer transfers.
//! The first parts are smaller, so that the device has work while trees are compared, and records
//! that have come by then go out meanwhile.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use steadfast_dataset::{Blocks, Inode, blocks_of};
use steadfast_format::BlockPointer;
use steadfast_format::extent::Extent;
use steadfast_refs::blocks::DatasetBlocks;

/// Records in the queue, at most. In bytes it is what the cache has room for.
const RECORDS_MAX: usize = 4096;
/// Of the window, the part that is asked for at once, and sent before more is asked for.
const PARTS: usize = 8;
/// The first part that is asked for. Each one after it is twice as large, up to a whole part.
const FIRST_PART_BYTES: u64 = 256 << 10;
/// The reader of what is read ahead: no file has this number.
const STREAM: u64 = u64::MAX;

/// A part of a file: the file, the range, and the extent that has it, with the place where that
/// begins.
pub(crate) type Part = (Arc<Inode>, Range<u64>, (u64, Extent));

/// Parts of files in the order in which they go.
pub(crate) struct SendAhead<'s> {
    blocks: &'s DatasetBlocks,
    /// Each with the last of its blocks, if it has any.
    queue: VecDeque<(Part, Option<BlockPointer>)>,
    bytes: u64,
    /// 0: nothing is read ahead.
    bytes_max: u64,
    /// Blocks that were not asked for yet, and their bytes.
    missing: Vec<BlockPointer>,
    missing_bytes: u64,
    /// So many are asked for at once.
    part_bytes: u64,
}

impl<'s> SendAhead<'s> {
    /// An empty queue; one that reads nothing ahead if nothing `is_read`.
    pub fn new(blocks: &'s DatasetBlocks, is_read: bool) -> SendAhead<'s> {
        let bytes_max = if is_read { blocks.read_ahead_bytes_max() } else { 0 };
        let (queue, missing) = (VecDeque::new(), Vec::new());
        let part_bytes = FIRST_PART_BYTES.min(bytes_max / PARTS as u64);
        SendAhead { blocks, queue, bytes: 0, bytes_max, missing, missing_bytes: 0, part_bytes }
    }

    /// True if nothing is read ahead: a part goes at once.
    pub fn is_off(&self) -> bool {
        self.bytes_max == 0
    }

    /// Takes a part. True if the first ones are to go before the next one comes.
    pub fn push(&mut self, part: Part) -> bool {
        let mut last = None;
        for (pointer, _) in blocks_of(&part.2.1) {
            self.missing_bytes += u64::from(pointer.psize);
            self.missing.push(pointer);
            last = Some(pointer);
        }
        self.bytes += part.1.end - part.1.start;
        self.queue.push_back((part, last));
        if self.missing_bytes >= self.part_bytes {
            self.ask();
            self.part_bytes = (2 * self.part_bytes).min(self.bytes_max / PARTS as u64);
        }
        self.bytes > self.bytes_max || self.queue.len() > RECORDS_MAX || self.has_come()
    }

    /// The first part is in memory: it waits for no device.
    fn has_come(&self) -> bool {
        let first = self.queue.front();
        first.is_some_and(|(_, last)| last.as_ref().is_none_or(|last| self.blocks.is_cached(last)))
    }

    /// The next part that is to go: of all, or of those that make way for more.
    pub fn next(&mut self, all: bool) -> Option<Part> {
        let left = self.bytes_max - self.bytes_max / PARTS as u64;
        let is_due = self.bytes > left || self.queue.len() > RECORDS_MAX - RECORDS_MAX / PARTS;
        if !all && !is_due && !self.has_come() {
            return None;
        }
        if !self.missing.is_empty() && (all || is_due) {
            self.ask();
        }
        let (part, _) = self.queue.pop_front()?;
        self.bytes -= part.1.end - part.1.start;
        Some(part)
    }

    fn ask(&mut self) {
        self.blocks.read_ahead(STREAM, &self.missing, false);
        self.missing.clear();
        self.missing_bytes = 0;
    }
}

impl Drop for SendAhead<'_> {
    fn drop(&mut self) {
        // The send may have broken off.
        if !self.queue.is_empty() {
            self.blocks.cancel_read_ahead(STREAM);
        }
    }
}
