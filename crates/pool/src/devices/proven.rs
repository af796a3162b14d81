//! Objects that came back, held against the hashes of what lives in them.
//!
//! A recovery proves each cell by its tag: it has the bytes that were in it when the code took it
//! in. Content that a pool had before its parity device is taken in as the store gives it. So a
//! block that was wrong by then comes back wrong, with a right tag, and only its pointer knows.
//!
//! ## Invariants
//! [proven.1] A block is called wrong only if its segment is there still once it was read, as by a
//!     scrub.
//!     `Devices::look_at`

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_format::{BlockPointer, SegmentId};
use steadfast_segment::READ_GAP_MAX;

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
    /// Nodes that could not be read: nothing is known of what is below them.
    pub unread: u64,
}

impl Devices {
    /// Segments that the import put back by itself. It cannot walk yet, so they wait here to be
    /// proven; whoever takes them does that.
    #[must_use]
    pub fn take_unproven(&self) -> Vec<SegmentId> {
        std::mem::take(&mut *self.errors.unproven.lock())
    }

    /// True if some wait to be proven.
    #[must_use]
    pub fn has_unproven(&self) -> bool {
        !self.errors.unproven.lock().is_empty()
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
                self.prove_some(std::mem::take(&mut waiting), &mut proven);
            }
        });
        self.prove_some(waiting, &mut proven);
        proven.locked = seen.locked.iter().map(|id| self.core.dataset_name(*id)).collect();
        proven.unread = seen.unread.len() as u64;
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let ProvenContent { blocks, bytes, wrong, unread, .. } = proven;
        let left_out = proven.locked.clone();
        self.core.events.note(EventKind::Proven { blocks, bytes, wrong, unread, left_out });
        Some(proven)
    }

    fn prove_some(&self, blocks: Vec<(BlockPointer, Option<FileRange>)>, proven: &mut ProvenContent) {
        let pointers: Vec<BlockPointer> = blocks.iter().map(|(pointer, _)| *pointer).collect();
        for ((pointer, file), looked) in blocks.iter().zip(self.look_at_all(&pointers, RUN)) {
            proven.blocks += 1;
            proven.bytes += u64::from(pointer.psize);
            if looked.is_some() {
                continue;
            }
            let _turn = self.core.sync_turn.lock();
            if self.look_at(pointer).0.lost == 0 {
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
}
