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
//!      of [`LEAVES`] leaves at most. On a store of objects it is [`LEAVES_OBJECTS`] paths beside
//!      each other.
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
use steadfast_segment::{READ_GAP_MAX, ReadError};

/// Bytes of content looked at together: as many as keep all processors busy, or a store of objects,
/// or few if the bandwidth is bounded.
const TOGETHER_BYTES: u64 = 16 << 20;
const TOGETHER_BYTES_OBJECTS: u64 = 128 << 20;
const FEW_BYTES: u64 = 1 << 20;
/// Bytes of one transfer, and transfers from a store of objects that are under way at once.
const RUN_BYTES: u64 = 1 << 20;
const TRANSFERS: usize = 32;
/// Leaves looked at together: on a store of objects, and else.
const LEAVES_OBJECTS: usize = 64;
const LEAVES: usize = 8;

/// A node as it was found.
#[derive(Default)]
struct Seen {
    tally: Tally,
    /// Its dataset's key is not loaded.
    is_locked: bool,
    /// In the order of their keys.
    below: Vec<Visit>,
}

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
        let (bytes_max, leaves_max) = match self.core.space.has_objects() {
            true => (TOGETHER_BYTES_OBJECTS, LEAVES_OBJECTS),
            false => (TOGETHER_BYTES, LEAVES),
        };
        let (most, leaves_max) = if small { (FEW_BYTES, 1) } else { (bytes_max, leaves_max) };
        match walk.todo.pop()? {
            Visit::Node(tree, pointer) => {
                let mut nodes = vec![(tree, pointer)];
                // Each node of a store costs a round trip, so nodes of any level go together there.
                let any = self.core.space.has_objects() && !small;
                while (any || pointer.level == 0)
                    && nodes.len() < leaves_max
                    && let Some(Visit::Node(tree, pointer)) = walk.todo.last()
                    && (any || pointer.level == 0)
                {
                    nodes.push((*tree, *pointer));
                    walk.todo.pop();
                }
                Some(self.visit_nodes(walk, &nodes))
            }
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

    /// Nodes side by side; what is below them is to be visited in their order.
    fn visit_nodes(&self, walk: &mut Walk, nodes: &[(Tree, BlockPointer)]) -> Tally {
        let mut found: Vec<Seen> = Vec::new();
        found.resize_with(nodes.len(), Seen::default);
        let jobs = nodes.iter().zip(&mut found).map(|((tree, pointer), seen)| -> Job<'_> {
            Box::new(move || *seen = self.visit_node(*tree, pointer))
        });
        self.run_transfers(jobs.collect());
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

    /// Runs jobs that wait for devices: on stores of objects so many at once, and the next one as
    /// soon as any has ended.
    fn run_transfers(&self, jobs: Vec<Job<'_>>) {
        if !self.core.space.has_objects() {
            return self.core.env.tasks.run_all(jobs);
        }
        let workers = jobs.len().min(TRANSFERS);
        let queue = Mutex::new(jobs.into_iter());
        let queue = &queue;
        let work = || -> Job<'_> {
            Box::new(move || {
                // Not in the head of a loop, which would hold the lock over the job.
                let next = || queue.lock().next();
                while let Some(job) = next() {
                    job();
                }
            })
        };
        self.core.env.tasks.run_waiting((0..workers).map(|_| work()).collect());
    }

    fn visit_node(&self, tree: Tree, pointer: &BlockPointer) -> Seen {
        let dataset = tree.dataset;
        let reader = self.core.reader_of(dataset);
        let is_locked = |reader: &Reader| reader.is_encrypted && reader.keys.is_none();
        let look = || if self.is_single(pointer) { self.look_at(pointer) } else { Tally::default() };
        // If no copy is good, this notes damage of the dataset's metadata [scrub_walk.1].
        let open = || {
            let Reader { keys, family, .. } = reader.as_ref().filter(|reader| !is_locked(reader))?;
            let context = ReadContext { dataset, family: *family, keys: keys.as_deref(), cache: false };
            self.core.blockio.read_from_devices(pointer, &context).ok()
        };
        let (tally, bytes) = if self.core.space.has_objects() {
            // A look at a store heals nothing that is read behind it, and each is a round trip.
            let (mut tally, mut bytes) = (Tally::default(), None);
            let looks: Job<'_> = Box::new(|| tally = look());
            let opens: Job<'_> = Box::new(|| bytes = open());
            self.core.env.tasks.run_waiting(vec![looks, opens]);
            (tally, bytes)
        } else {
            let tally = look();
            (tally, open())
        };
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
                        seen.below.push(Visit::Content { tree, inode, range, pointer });
                    }
                }
            }
        }
        seen
    }

    /// Content in the order of its places: blocks side by side come in one transfer.
    fn visit_content(&self, visits: &[Visit]) -> Tally {
        let mut single: Vec<(&Visit, BlockPointer)> = visits
            .iter()
            .filter_map(|visit| match visit {
                Visit::Content { pointer, .. } => Some((visit, *pointer)),
                Visit::Node(..) => None,
            })
            .filter(|(_, pointer)| self.is_single(pointer))
            .collect();
        single.sort_by_key(|(_, pointer)| pointer.copies[0]);
        let whole = Mutex::new(Tally::default());
        let mut jobs: Vec<Job<'_>> = Vec::new();
        let mut rest = &single[..];
        while !rest.is_empty() {
            let (run, behind) = rest.split_at(self.run_length(rest));
            rest = behind;
            let whole = &whole;
            jobs.push(Box::new(move || {
                let tally = self.visit_run(run);
                whole.lock().add(tally);
            }));
        }
        self.run_transfers(jobs);
        whole.into_inner()
    }

    /// How many blocks, from the first one on, have one copy and lie side by side, as far as one
    /// transfer goes.
    fn run_length(&self, blocks: &[(&Visit, BlockPointer)]) -> usize {
        let unit = self.core.space.geometry().unit;
        let mut bytes = 0;
        let follows = |pair: &&[(&Visit, BlockPointer)]| {
            let (last, next) = (&pair[0].1, &pair[1].1);
            bytes += u64::from(last.psize);
            let gap = next.copies[0].offset.checked_sub(last.copies[0].offset + last.asize(unit));
            last.copy_count() == 1
                && next.copy_count() == 1
                && next.copies[0].segment == last.copies[0].segment
                && gap.is_some_and(|gap| gap <= READ_GAP_MAX)
                && bytes + u64::from(next.psize) <= RUN_BYTES
        };
        1 + blocks.windows(2).take_while(follows).count()
    }

    fn visit_run(&self, run: &[(&Visit, BlockPointer)]) -> Tally {
        let mut whole = Tally::default();
        let places: Vec<_> =
            run.iter().map(|(_, pointer)| (pointer.copies[0], pointer.psize as usize)).collect();
        let read = if run.len() > 1 { self.core.space.read_run_doubting(&places) } else { None };
        let mut read = read.into_iter().flatten();
        for (visit, pointer) in run {
            if read.next().is_some_and(|bytes| hash(&bytes) == pointer.hash) {
                whole.read += u64::from(pointer.psize);
                continue;
            }
            let Visit::Content { tree, inode, range, .. } = visit else { continue };
            let tally = self.look_at(pointer);
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
