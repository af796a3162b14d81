//! Objects that came back, held against the hashes of what lives in them.
//!
//! A recovery proves each cell by its tag: it has the bytes that were in it when the code took it
//! in. Content that a pool had before its parity device is taken in as the store gives it. So a
//! block that was wrong by then comes back wrong, with a right tag, and only its pointer knows.
//!
//! ## Invariants
//! [proven.1] A block is called wrong only if bytes came of each copy, and its segment is there
//!     still once they were read. One that a store did not give is unread.
//!     `Devices::verdict_of`
//! [proven.2] Reads of a store that does not answer hold up no commit.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_crypto::hash;
use steadfast_device::Buffer;
use steadfast_format::{BlockPointer, SegmentId};
use steadfast_segment::{READ_GAP_MAX, ReadError};

use crate::core::events::EventKind;
use crate::devices::pointer_walk::{FileRange, Reads};
use crate::devices::scrub_walk::Reach;
use crate::devices::state::Devices;

/// Blocks that are read together, and bytes of them.
const TOGETHER: usize = 4096;
const TOGETHER_BYTES: u64 = 64 << 20;
const RUN: Reach = Reach { bytes: 4 << 20, gap: READ_GAP_MAX };
/// Wrong blocks that are named.
const NAMED_MAX: usize = 64;

/// Blocks that live in objects that came back.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProvenContent {
    /// Blocks that live in them, and were read.
    pub blocks: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// How many do not have their hash, in any copy.
    pub wrong: u64,
    /// Some of these: segment, and offset in it.
    pub named: Vec<(SegmentId, u32)>,
    /// Datasets whose keys are not loaded: their blocks were not looked at.
    pub locked: Vec<String>,
    /// Nodes and blocks that could not be read: nothing is known of them, and of what is below.
    pub unread: u64,
}

impl Devices {
    /// Segments that the import put back by itself. It cannot walk yet, so they wait here to be
    /// proven; whoever takes them does that.
    #[must_use]
    pub fn take_unproven(&self) -> Vec<SegmentId> {
        std::mem::take(&mut *self.errors.unproven.lock())
    }

    /// Gives back what was taken, and was not proven to the end.
    pub fn leave_unproven(&self, segments: &[SegmentId]) {
        self.errors.unproven.lock().extend(segments);
    }

    /// True if some wait to be proven, and no budget keeps them waiting.
    #[must_use]
    pub fn is_proof_due(&self) -> bool {
        !self.core.is_sparing() && !self.errors.unproven.lock().is_empty()
    }

    /// Reads each block that lives in some segments, and compares it with the hash in its pointer.
    /// A wrong one is noted as damage of its file. `None` if `stop` is true before the end.
    pub fn prove_content(&self, segments: &[SegmentId], stop: &AtomicBool) -> Option<ProvenContent> {
        let segments: BTreeSet<SegmentId> = segments.iter().copied().collect();
        let (mut proven, mut waiting) = (ProvenContent::default(), Vec::new());
        let mut bytes = 0;
        let seen = self.walk_pointers(true, &Reads::default(), Some(stop), &mut |pointer, file| {
            let lies_in = |at: usize| {
                let places = self.core.space.places_by_pointer(pointer.copies[at], pointer.psize as usize);
                places.iter().any(|(_, segment, ..)| segments.contains(segment))
            };
            if !(0..pointer.copy_count()).any(lies_in) {
                return;
            }
            bytes += u64::from(pointer.psize);
            waiting.push((*pointer, file));
            if waiting.len() >= TOGETHER || bytes >= TOGETHER_BYTES {
                bytes = 0;
                self.prove_some(std::mem::take(&mut waiting), &mut proven, stop);
            }
        });
        self.prove_some(waiting, &mut proven, stop);
        proven.locked = seen.locked.iter().map(|id| self.core.dataset_name(*id)).collect();
        proven.unread += seen.unread.len() as u64;
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let ProvenContent { blocks, bytes, wrong, unread, .. } = proven;
        let left_out = proven.locked.clone();
        self.core.events.note(EventKind::Proven { blocks, bytes, wrong, unread, left_out });
        Some(proven)
    }

    fn prove_some(
        &self,
        blocks: Vec<(BlockPointer, Option<FileRange>)>,
        proven: &mut ProvenContent,
        stop: &AtomicBool,
    ) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let pointers: Vec<BlockPointer> = blocks.iter().map(|(pointer, _)| *pointer).collect();
        for ((pointer, file), looked) in blocks.iter().zip(self.look_at_all(&pointers, RUN)) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let verdict = if looked.is_some() { Verdict::Right } else { self.verdict_of(pointer) };
            if matches!(verdict, Verdict::Unread) {
                proven.unread += 1;
                continue;
            }
            proven.blocks += 1;
            proven.bytes += u64::from(pointer.psize);
            if matches!(verdict, Verdict::Right) {
                continue;
            }
            let _turn = self.core.sync_turn.lock();
            // [proven.1]
            let length = pointer.psize as usize;
            if self.core.space.places_by_pointer(pointer.copies[0], length).is_empty() {
                continue;
            }
            proven.wrong += 1;
            if proven.named.len() < NAMED_MAX {
                proven.named.push((pointer.copies[0].segment, pointer.copies[0].offset));
            }
            if let Some((dataset, inode, range)) = file
                && let Some(head) = self.core.head_of(*dataset)
            {
                head.note_damage(*inode, range.clone());
            }
        }
    }

    /// Reads the copies of a block until one has its hash.
    fn verdict_of(&self, pointer: &BlockPointer) -> Verdict {
        let mut verdict = Verdict::Wrong;
        for copy in &pointer.copies[..pointer.copy_count()] {
            let judge = |bytes: Buffer| if hash(&bytes) == pointer.hash { Ok(()) } else { Err(()) };
            match self.core.space.read_doubting(*copy, pointer.psize as usize, judge) {
                // One that went meanwhile is no concern any more.
                Ok(()) | Err(ReadError::Unallocated { .. }) => return Verdict::Right,
                Err(ReadError::Rejected { .. }) => {}
                Err(_) => verdict = Verdict::Unread,
            }
        }
        verdict
    }
}

enum Verdict {
    Right,
    Wrong,
    /// A store did not give a copy, and no other one is right.
    Unread,
}
