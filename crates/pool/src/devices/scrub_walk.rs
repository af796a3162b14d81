//! Scrub of blocks on single devices. No checksums of their segments are stored: only the pointer
//! to a block has its hash. So a scrub walks from the roots of all datasets as of one commit to
//! every block, compares each copy that lies on a single device with the hash in its pointer,
//! repairs a copy from a good one, and names the file and range of lost data. Copies of content
//! that a group could not repair are looked at in the same way.
//!
//! ## Invariants
//! [scrub_walk.1] A block that was replaced or freed since the walk read the pointer to it is no
//!      error: its segment is gone, or its bytes are still the old ones, for no segment's id is
//!      used twice.
//!      `look_at`
//! [scrub_walk.2] The walk opens nothing of a dataset whose key is not loaded. These datasets are
//!      reported.
//! [scrub_walk.3] The stack holds the unvisited siblings along one path from a root, and the blocks
//!      of [`LEAVES`] leaves at most. Stores of objects have a way of their own (`scrub_flow.rs`).
//!
//! ## What a crash does
//! The walk begins again from the roots: its position is not stored.

use crate::core::view::Reader;
use crate::core::view::Roots;
use crate::devices::scan::Content;
use crate::devices::scan::Tally;
use crate::devices::scan::Tree;
use crate::devices::scan::Visit;
use crate::devices::scan::Waiting;
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
use steadfast_segment::{READ_GAP_MAX, ReadError};

/// Bytes of content looked at together: as many as keep all processors busy, or few if the
/// bandwidth is bounded.
const TOGETHER_BYTES: u64 = 16 << 20;
const FEW_BYTES: u64 = 1 << 20;
/// One transfer of a disk.
const RUN: Reach = Reach { bytes: 1 << 20, gap: READ_GAP_MAX };
/// Leaves looked at together.
const LEAVES: usize = 8;
/// How far from the end of a list nodes are looked for that one transfer brings together.
const LOOK_BACK: usize = 256;

/// How far one transfer goes: bytes of it, and bytes between two blocks in it.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    pub bytes: u64,
    pub gap: u32,
}

/// The outcome of a look at a block: bytes of a copy that is right, too.
pub(crate) type Looked = (Tally, Option<Buffer>);

/// A node as it was found.
#[derive(Default)]
pub(crate) struct Seen {
    pub tally: Tally,
    /// Its dataset's key is not loaded.
    pub is_locked: bool,
    /// In the order of their keys.
    pub below: Vec<Visit>,
}

impl Devices {
    /// A walk from the roots of the last commit; empty if no device stands alone, and groups could
    /// repair all copies of content.
    pub(crate) fn begin_walk(&self) -> Walk {
        let mut walk = Walk { todo: Vec::new(), content: Waiting::default(), locked: BTreeSet::new() };
        let stands_alone = self.leaves().iter().any(|leaf| leaf.config().group == 0);
        if stands_alone || self.core.space.has_suspect_copies() {
            for Roots { dataset, after, is_head, roots, .. } in self.core.dataset_roots() {
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
        // A flow was interrupted by a limit of the bandwidth.
        if walk.content.len() > 0 {
            return Some(self.visit_run(&self.next_run(&mut walk.content, RUN), RUN));
        }
        let (most, leaves_max) = if small { (FEW_BYTES, 1) } else { (TOGETHER_BYTES, LEAVES) };
        match walk.todo.pop()? {
            Visit::Node(tree, pointer) => {
                let mut nodes = vec![(tree, pointer)];
                while pointer.level == 0
                    && nodes.len() < leaves_max
                    && let Some(Visit::Node(tree, pointer)) = walk.todo.last()
                    && pointer.level == 0
                {
                    nodes.push((*tree, *pointer));
                    walk.todo.pop();
                }
                Some(self.visit_nodes(walk, &nodes))
            }
            content => {
                let (mut some, mut bytes) = (vec![content], 0);
                while bytes < most
                    && let Some(Visit::Content(Content { pointer, .. })) = walk.todo.last()
                {
                    bytes += u64::from(pointer.psize);
                    some.extend(walk.todo.pop());
                }
                Some(self.visit_content(some))
            }
        }
    }

    /// Nodes side by side; what is below them is to be visited in their order.
    fn visit_nodes(&self, walk: &mut Walk, nodes: &[(Tree, BlockPointer)]) -> Tally {
        let mut found: Vec<Seen> = Vec::new();
        found.resize_with(nodes.len(), Seen::default);
        let jobs = nodes.iter().zip(&mut found).map(|((tree, pointer), seen)| -> Job<'_> {
            Box::new(move || *seen = self.visit_node(*tree, pointer, None))
        });
        self.core.env.tasks.run_all(jobs.collect());
        let mut whole = Tally::default();
        for ((tree, _), Seen { tally, is_locked, below }) in nodes.iter().zip(found).rev() {
            whole.add(tally);
            if is_locked {
                walk.locked.insert(tree.dataset);
            }
            walk.todo.extend(below.into_iter().rev());
        }
        whole
    }

    /// One node, at which it was `looked` perhaps.
    pub(crate) fn visit_node(&self, tree: Tree, pointer: &BlockPointer, looked: Option<Looked>) -> Seen {
        let dataset = tree.dataset;
        let reader = self.core.reader_of(dataset);
        let is_locked = |reader: &Reader| reader.is_encrypted && reader.keys.is_none();
        let look = || if self.is_single(pointer) { self.look_at(pointer) } else { Looked::default() };
        let (tally, right) = looked.unwrap_or_else(look);
        let open = || {
            let Reader { keys, family, .. } = reader.as_ref().filter(|reader| !is_locked(reader))?;
            let context = ReadContext { dataset, family: *family, keys: keys.as_deref(), cache: false };
            let opened = right.and_then(|bytes| self.core.blockio.open_read(bytes, pointer, &context));
            // If no copy is good, this notes damage of the dataset's metadata [scrub_walk.1].
            let read = || self.core.blockio.read_from_devices(pointer, &context);
            opened.or_else(|| self.ask_for_scan(read))
        };
        let bytes = open();
        let mut seen = Seen { tally, ..Seen::default() };
        seen.is_locked = reader.as_ref().is_some_and(is_locked);
        let Some(bytes) = bytes else { return seen };
        let Ok(node) = Node::decode(&bytes) else { return seen };
        if node.level() > 0 {
            let children = node.entries().filter_map(|entry| BlockPointer::decode(entry.value).ok());
            let newer = children.filter(|child| child.birth > tree.after);
            seen.below.extend(newer.map(|child| Visit::Node(tree, child)));
        } else if pointer.kind == BlockKind::Extents {
            for entry in node.entries() {
                let Ok(ExtentsKey::Extent { inode, offset }) = ExtentsKey::decode(entry.key) else {
                    continue;
                };
                let Ok(extent) = Extent::decode(entry.value) else { continue };
                for (pointer, shown) in steadfast_dataset::blocks_of(&extent) {
                    let range = offset + shown.start..offset + shown.end;
                    if pointer.birth > tree.after {
                        seen.below.push(Visit::Content(Content { tree, inode, range, pointer }));
                    }
                }
            }
        }
        seen
    }

    /// Content in the order of its places: blocks side by side come in one transfer.
    fn visit_content(&self, visits: Vec<Visit>) -> Tally {
        let mut waiting = Waiting::default();
        self.wait_for(visits, &mut waiting);
        let whole = Mutex::new(Tally::default());
        let mut jobs: Vec<Job<'_>> = Vec::new();
        while waiting.len() > 0 {
            let (run, whole) = (self.next_run(&mut waiting, RUN), &whole);
            jobs.push(Box::new(move || {
                let tally = self.visit_run(&run, RUN);
                whole.lock().add(tally);
            }));
        }
        self.core.env.tasks.run_all(jobs);
        whole.into_inner()
    }

    /// Adds content on single devices to what waits, and content with copies of which a group could
    /// not repair one.
    pub(crate) fn wait_for(&self, visits: Vec<Visit>, waiting: &mut Waiting) {
        for visit in visits {
            if let Visit::Content(content) = visit
                && (self.is_single(&content.pointer) || self.is_suspect_copy(&content.pointer))
            {
                waiting.add(content);
            }
        }
    }

    /// The first blocks that have one copy and lie side by side, as far as one transfer goes.
    pub(crate) fn next_run(&self, waiting: &mut Waiting, reach: Reach) -> Vec<Content> {
        waiting.take_run(|run, next| {
            let (first, last) = (&run[0].pointer, &run[run.len() - 1].pointer);
            last.copy_count() == 1 && next.copy_count() == 1 && self.follows((first, last), next, 0, reach)
        })
    }

    /// True if one transfer of some copy that brings the first block and the last one can bring the
    /// next one too.
    pub(crate) fn follows(
        &self,
        (first, last): (&BlockPointer, &BlockPointer),
        next: &BlockPointer,
        copy: usize,
        reach: Reach,
    ) -> bool {
        let unit = self.core.space.geometry().unit;
        let (begin, before, at) = (first.copies[copy], last.copies[copy], next.copies[copy]);
        let gap = at.offset.checked_sub(before.offset + last.asize(unit));
        let end = u64::from(at.offset) + u64::from(next.psize);
        at.segment == before.segment
            && gap.is_some_and(|gap| gap <= reach.gap)
            && end - u64::from(begin.offset) <= reach.bytes
    }

    /// Of a list to be drawn from its end, the last one and those near the end that one transfer
    /// brings with it, `most` of them at the most.
    pub(crate) fn take_beside<T>(
        &self,
        list: &mut Vec<T>,
        pointer_of: impl Fn(&T) -> Option<BlockPointer>,
        most: usize,
        reach: Reach,
    ) -> Vec<T> {
        let Some(last) = list.pop() else { return Vec::new() };
        let Some(pointer) = pointer_of(&last) else { return vec![last] };
        let begin = list.len().saturating_sub(LOOK_BACK);
        let near = list[begin..].iter().enumerate();
        let near = near.filter_map(|(at, other)| Some((Some(begin + at), pointer_of(other)?)));
        let mut near: Vec<_> = near
            .filter(|(_, other)| other.copies[0].segment == pointer.copies[0].segment)
            .chain([(None, pointer)])
            .collect();
        near.sort_by_key(|(_, other)| other.copies[0]);
        let own = near.iter().position(|(at, _)| at.is_none()).expect("it is one of them");
        let (mut first, mut behind) = (own, own + 1);
        let is_run = |first: usize, behind: usize| {
            let follows = |at: usize| {
                let before = (&near[first].1, &near[at - 1].1);
                self.follows(before, &near[at].1, 0, reach)
            };
            (first + 1..behind).all(follows)
        };
        while behind < near.len() && behind - first < most && is_run(first, behind + 1) {
            behind += 1;
        }
        while first > 0 && behind - first < most && is_run(first - 1, behind) {
            first -= 1;
        }
        let mut places: Vec<usize> = near[first..behind].iter().filter_map(|(at, _)| *at).collect();
        places.sort_unstable();
        let mut taken: Vec<T> = places.into_iter().rev().map(|at| list.remove(at)).collect();
        taken.push(last);
        taken
    }

    /// Looks at blocks side by side: those of which all copies stand alone and are right. `None`
    /// for the others, at which their visitor looks.
    pub(crate) fn look_at_all(&self, pointers: &[BlockPointer], reach: Reach) -> Vec<Option<Looked>> {
        let stands_alone = |pointer: &BlockPointer| {
            let mut copies = pointer.copies[..pointer.copy_count()].iter();
            copies.all(|copy| self.core.space.is_on_single_device(*copy, pointer.psize as usize))
        };
        let alone: Vec<usize> = (0..pointers.len()).filter(|at| stands_alone(&pointers[*at])).collect();
        // Each run is of one copy of blocks.
        let mut runs: Vec<(usize, Vec<usize>)> = Vec::new();
        for copy in 0..alone.iter().map(|at| pointers[*at].copy_count()).max().unwrap_or(0) {
            let mut with: Vec<usize> = alone.clone();
            with.retain(|at| pointers[*at].copy_count() > copy);
            with.sort_by_key(|at| pointers[*at].copies[copy]);
            for at in with {
                let next = &pointers[at];
                match runs.last_mut() {
                    Some((of, run))
                        if *of == copy
                            && let (Some(first), Some(last)) = (run.first(), run.last())
                            && self.follows((&pointers[*first], &pointers[*last]), next, copy, reach) =>
                    {
                        run.push(at);
                    }
                    _ => runs.push((copy, vec![at])),
                }
            }
        }
        let right: Mutex<Vec<(usize, Option<Buffer>)>> = Mutex::new(vec![(0, None); pointers.len()]);
        let read = |(copy, run): (usize, Vec<usize>)| {
            let place = |at: &usize| (pointers[*at].copies[copy], pointers[*at].psize as usize);
            let places: Vec<_> = run.iter().map(place).collect();
            let Some(buffers) = self.core.space.read_run_doubting(&places, reach.gap) else { return };
            let good = run.into_iter().zip(buffers);
            let good = good.filter(|(at, bytes)| hash(bytes) == pointers[*at].hash);
            for (at, bytes) in good.collect::<Vec<_>>() {
                let (count, kept) = &mut right.lock()[at];
                (*count, *kept) = (*count + 1, Some(bytes));
            }
        };
        let jobs = runs.into_iter().map(|run| -> Job<'_> { Box::new(|| read(run)) });
        self.core.env.tasks.run_waiting(jobs.collect());
        let looked = right.into_inner().into_iter().zip(pointers).map(|((count, bytes), pointer)| {
            let read = pointer.copy_count() as u64 * u64::from(pointer.psize);
            (count == pointer.copy_count() && bytes.is_some())
                .then_some((Tally { read, ..Tally::default() }, bytes))
        });
        looked.collect()
    }

    pub(crate) fn visit_run(&self, run: &[Content], reach: Reach) -> Tally {
        let mut whole = Tally::default();
        let place = |content: &Content| (content.pointer.copies[0], content.pointer.psize as usize);
        let places: Vec<_> = run.iter().map(place).collect();
        let read = if run.len() > 1 { self.core.space.read_run_doubting(&places, reach.gap) } else { None };
        let mut read = read.into_iter().flatten();
        for Content { tree, inode, range, pointer } in run {
            if read.next().is_some_and(|bytes| hash(&bytes) == pointer.hash) {
                whole.read += u64::from(pointer.psize);
                continue;
            }
            let (tally, _) = self.look_at(pointer);
            whole.add(tally);
            if tally.lost > 0
                && tree.is_head
                && let Some(head) = self.core.head_of(tree.dataset)
            {
                head.note_damage(*inode, range.clone());
            }
        }
        whole
    }

    fn is_suspect_copy(&self, pointer: &BlockPointer) -> bool {
        let length = pointer.psize as usize;
        let copies = &pointer.copies[..pointer.copy_count()];
        copies.len() > 1 && copies.iter().any(|copy| self.core.space.is_suspect(*copy, length))
    }

    fn is_single(&self, pointer: &BlockPointer) -> bool {
        let length = pointer.psize as usize;
        pointer.copies[..pointer.copy_count()]
            .iter()
            .any(|copy| self.core.space.is_on_single_device(*copy, length))
    }

    /// Reads all copies of a block and compares them with its hash; on redundant groups that heals
    /// them, and a wrong one that is left is written anew from a right one. Gives the bytes of a
    /// right one too. Sync context only.
    pub(crate) fn look_at(&self, pointer: &BlockPointer) -> Looked {
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
                Err(ReadError::Unallocated { .. }) => return (tally, None),
                Err(_) => wrong.push(*copy),
            }
            tally.read += u64::from(pointer.psize);
        }
        match &right {
            None if !wrong.is_empty() => tally.lost += u64::from(pointer.psize),
            None => {}
            Some(bytes) => {
                for copy in wrong {
                    if self.core.space.rewrite(copy, bytes) {
                        tally.repaired += u64::from(pointer.psize);
                    }
                }
            }
        }
        (tally, right)
    }
}
