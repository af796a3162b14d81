//! Scrub of blocks on single devices. No checksums of their segments are stored: only the pointer
//! to a block has its hash. So a scrub walks from the roots of all datasets as of one commit to
//! every block, compares each copy that lies on a single device with the hash in its pointer,
//! repairs a copy from a good one, and names the file and range of lost data.
//!
//! ## Invariants
//! [scrub_walk.1] A block that was replaced or freed since the walk read the pointer to it is no
//!      error: its segment is gone, or its bytes are still the old ones, for no segment's id is
//!      used twice.
//!      `look_at`
//! [scrub_walk.2] The walk opens nothing of a dataset whose key is not loaded. These datasets are
//!      reported.
//! [scrub_walk.3] The stack holds the unvisited siblings along one path from a root, and the blocks
//!      of one leaf.
//!
//! ## What a crash does
//! The walk begins again from the roots: its position is not stored.

use crate::core::view::Reader;
use crate::core::view::Roots;
use crate::devices::scan::Tally;
use crate::devices::scan::Tree;
use crate::devices::scan::Visit;
use crate::devices::scan::Walk;
use crate::devices::state::Devices;
use std::collections::BTreeSet;

use parking_lot::Mutex;
use steadfast_blockio::ReadContext;
use steadfast_crypto::hash;
use steadfast_device::Buffer;
use steadfast_env::Job;
use steadfast_format::extent::Extent;
use steadfast_format::file_keys::ExtentsKey;
use steadfast_format::node::Node;
use steadfast_format::{BlockKind, BlockPointer};
use steadfast_segment::ReadError;

/// Bytes of content looked at together: as many as keep all processors busy, or few if the
/// bandwidth is bounded.
const TOGETHER_BYTES: u64 = 16 << 20;
const FEW_BYTES: u64 = 1 << 20;

impl Devices {
    /// A walk from the roots of the last commit; empty if no device stands alone.
    pub(crate) fn begin_walk(&self) -> Walk {
        let mut walk = Walk { todo: Vec::new(), locked: BTreeSet::new() };
        if self.leaves().iter().any(|leaf| leaf.config().group == 0) {
            for Roots { dataset, after, is_head, roots } in self.core.dataset_roots() {
                let tree = Tree { dataset, after, is_head };
                let newer = roots.into_iter().filter(|root| root.birth > after);
                walk.todo.extend(newer.map(|root| Visit::Node(tree, root)));
            }
            walk.todo.reverse();
        }
        walk
    }

    /// Bytes that live on single devices: what a walk has to look at, more or less.
    pub(crate) fn single_bytes(&self) -> u64 {
        let alone: Vec<_> = self.leaves().iter().map(|leaf| leaf.config()).collect();
        let alone = |id| alone.iter().any(|leaf| leaf.id == id && leaf.group == 0);
        let usage = self.core.space.accounting().devices;
        usage.iter().filter(|usage| alone(usage.device)).map(|usage| usage.live_bytes).sum()
    }

    /// Names of the datasets that a walk left out.
    pub(crate) fn left_out(&self, walk: &Walk) -> Vec<String> {
        walk.locked.iter().map(|id| self.core.dataset_name(*id)).collect()
    }

    /// A part of the walk, a small one if bandwidth is bounded; `None` at its end. Sync context
    /// only.
    pub(crate) fn walk_step(&self, walk: &mut Walk, small: bool) -> Option<Tally> {
        let most = if small { FEW_BYTES } else { TOGETHER_BYTES };
        match walk.todo.pop()? {
            Visit::Node(tree, pointer) => Some(self.visit_node(walk, tree, &pointer)),
            content => {
                let (mut some, mut bytes) = (vec![content], 0);
                while bytes < most
                    && let Some(Visit::Content { pointer, .. }) = walk.todo.last()
                {
                    bytes += u64::from(pointer.psize);
                    some.extend(walk.todo.pop());
                }
                Some(self.visit_content(&some))
            }
        }
    }

    fn visit_node(&self, walk: &mut Walk, tree: Tree, pointer: &BlockPointer) -> Tally {
        let dataset = tree.dataset;
        let tally = if self.is_single(pointer) { self.look_at(pointer) } else { Tally::default() };
        let Some(Reader { keys, is_encrypted, family }) = self.core.reader_of(dataset) else { return tally };
        if is_encrypted && keys.is_none() {
            walk.locked.insert(dataset);
            return tally;
        }
        let context = ReadContext { dataset, family, keys: keys.as_deref(), cache: false };
        // If no copy is good, this notes damage of the dataset's metadata [scrub_walk.1].
        let Ok(bytes) = self.core.blockio.read(pointer, &context) else { return tally };
        let Ok(node) = Node::decode(&bytes) else { return tally };
        if node.level() > 0 {
            let children = node.entries().filter_map(|entry| BlockPointer::decode(entry.value).ok());
            let newer = children.filter(|child| child.birth > tree.after);
            let children: Vec<Visit> = newer.map(|child| Visit::Node(tree, child)).collect();
            walk.todo.extend(children.into_iter().rev());
        } else if pointer.kind == BlockKind::Extents {
            let mut content = Vec::new();
            for entry in node.entries() {
                let Ok(ExtentsKey::Extent { inode, offset }) = ExtentsKey::decode(entry.key) else {
                    continue;
                };
                let Ok(extent) = Extent::decode(entry.value) else { continue };
                for (pointer, shown) in steadfast_dataset::blocks_of(&extent) {
                    let range = offset + shown.start..offset + shown.end;
                    if pointer.birth > tree.after {
                        content.push(Visit::Content { tree, inode, range, pointer });
                    }
                }
            }
            walk.todo.extend(content.into_iter().rev());
        }
        tally
    }

    fn visit_content(&self, visits: &[Visit]) -> Tally {
        let whole = Mutex::new(Tally::default());
        let share = visits.len().div_ceil(self.core.env.tasks.parallelism());
        let jobs = visits.chunks(share).map(|some| -> Job<'_> {
            let whole = &whole;
            Box::new(move || {
                for visit in some {
                    let Visit::Content { tree, inode, range, pointer } = visit else { continue };
                    if !self.is_single(pointer) {
                        continue;
                    }
                    let tally = self.look_at(pointer);
                    whole.lock().add(tally);
                    if tally.lost > 0
                        && tree.is_head
                        && let Some(head) = self.core.head_of(tree.dataset)
                    {
                        head.note_damage(*inode, range.clone());
                    }
                }
            })
        });
        self.core.env.tasks.run_all(jobs.collect());
        whole.into_inner()
    }

    fn is_single(&self, pointer: &BlockPointer) -> bool {
        let length = pointer.psize as usize;
        pointer.copies[..pointer.copy_count()]
            .iter()
            .any(|copy| self.core.space.is_on_single_device(*copy, length))
    }

    /// Reads all copies of a block and compares them with its hash; on redundant groups that heals
    /// them, on single devices a wrong one is written anew from a right one. Sync context only.
    pub(crate) fn look_at(&self, pointer: &BlockPointer) -> Tally {
        let mut tally = Tally::default();
        let (mut wrong, mut right): (Vec<_>, Option<Buffer>) = (Vec::new(), None);
        for copy in &pointer.copies[..pointer.copy_count()] {
            let judge = |bytes: Buffer| if hash(&bytes) == pointer.hash { Ok(bytes) } else { Err(()) };
            match self.core.space.read_doubting(*copy, pointer.psize as usize, judge) {
                Ok(bytes) => {
                    tally.repaired += self.core.space.make_alike(*copy, &bytes);
                    right = Some(bytes);
                }
                // [scrub_walk.1]
                Err(ReadError::Unallocated { .. }) => return tally,
                Err(_) => wrong.push(*copy),
            }
            tally.read += u64::from(pointer.psize);
        }
        match right {
            None if !wrong.is_empty() => tally.lost += u64::from(pointer.psize),
            None => {}
            Some(bytes) => {
                for copy in wrong {
                    if self.core.space.rewrite(copy, &bytes) {
                        tally.repaired += u64::from(pointer.psize);
                    }
                }
            }
        }
        tally
    }
}
