//! A walk over pointers to all blocks of a pool, as of the last commit. It reads nodes, and no
//! content.
//!
//! ## Invariants
//! [pointer_walk.1] The stack holds the siblings along [`NODES`] paths from a root at most.
//!     `Devices::walk_tree_of`
//! [pointer_walk.2] A block that snapshots share is met once: by the oldest of them that has it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_blockio::{Block, Error as BlockError, ReadContext};
use steadfast_env::Job;
use steadfast_format::extent::Extent;
use steadfast_format::file_keys::ExtentsKey;
use steadfast_format::node::Node;
use steadfast_format::{BlockKind, BlockPointer, DatasetId, InodeId, Txg};

use crate::devices::scrub_walk::Reach;
use crate::devices::state::Devices;

/// Nodes that a walk takes at once, transfers of them side by side, and how far one transfer goes:
/// a commit writes nodes one after the other, and bytes of dead ones cost less than a read.
const NODES: usize = 256;
const READERS: usize = 16;
const NODE_RUN: Reach = Reach { bytes: 1 << 20, gap: 64 << 10 };

/// Content of a file, of a dataset as it is now.
pub(crate) type FileRange = (DatasetId, InodeId, Range<u64>);
/// Hears of each block, and of the file that it is content of.
pub(crate) type Offer<'o> = &'o mut dyn FnMut(&BlockPointer, Option<FileRange>);

/// Reads of a walk, and bytes.
#[derive(Default)]
pub(crate) struct Reads {
    pub count: AtomicU64,
    pub bytes: AtomicU64,
}

/// Parts of a pool that a walk could not see.
#[derive(Default)]
pub(crate) struct Seen {
    /// Datasets whose keys are not loaded.
    pub locked: BTreeSet<DatasetId>,
    /// Nodes of which no copy can be read: what is below them is not known.
    pub unread: Vec<BlockPointer>,
}

impl Reads {
    pub fn add(&self, bytes: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn is_told(stop: Option<&AtomicBool>) -> bool {
    stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
}

impl Devices {
    /// Walks the pool's own tree, of which leaves are met and not read, and with `whole` all
    /// datasets, until it is told to stop.
    pub(crate) fn walk_pointers(
        &self,
        whole: bool,
        reads: &Reads,
        stop: Option<&AtomicBool>,
        offer: Offer<'_>,
    ) -> Seen {
        let mut seen = Seen::default();
        let last = self.core.commit_state.lock().last.as_ref().map(|last| (last.meta, last.tail));
        if let Some((meta, tail)) = last {
            offer(&tail, None);
            self.walk_tree_of(&mut seen, DatasetId(0), (Txg(0), false), vec![meta], (reads, stop), offer);
        }
        for roots in if whole { self.core.dataset_roots() } else { Vec::new() } {
            let newer = roots.roots.into_iter().filter(|root| root.birth > roots.after).collect();
            let how = (roots.after, roots.is_head);
            self.walk_tree_of(&mut seen, roots.dataset, how, newer, (reads, stop), offer);
        }
        seen
    }

    /// Nodes of a tree that are younger than a txg, and the content below them.
    fn walk_tree_of(
        &self,
        seen: &mut Seen,
        dataset: DatasetId,
        (after, is_head): (Txg, bool),
        mut nodes: Vec<BlockPointer>,
        (reads, stop): (&Reads, Option<&AtomicBool>),
        offer: Offer<'_>,
    ) {
        let reader = (dataset.0 != 0).then(|| self.core.reader_of(dataset)).flatten();
        let (keys, family) = match reader {
            Some(reader) if reader.is_encrypted && reader.keys.is_none() => {
                seen.locked.insert(dataset);
                return;
            }
            Some(reader) => (reader.keys, reader.family),
            None => (self.core.sealing.as_ref().map(|sealing| Arc::clone(&sealing.keys)), DatasetId(0)),
        };
        let context = ReadContext { dataset, family, keys: keys.as_deref(), cache: false };
        while !nodes.is_empty() && !is_told(stop) {
            let mut some = nodes.split_off(nodes.len().saturating_sub(NODES));
            some.reverse();
            some.iter().for_each(|pointer| offer(pointer, None));
            // A leaf of another tree leads nowhere.
            some.retain(|pointer| pointer.level > 0 || pointer.kind == BlockKind::Extents);
            let blocks = self.read_runs(&some, &context, reads);
            let mut below = Vec::new();
            for (pointer, block) in some.iter().zip(blocks) {
                let block = match block {
                    Ok(block) => block,
                    Err(BlockError::KeyNotLoaded { .. }) => {
                        seen.locked.insert(dataset);
                        continue;
                    }
                    Err(_) => {
                        // One that a commit replaced meanwhile is no loss.
                        let copies = &pointer.copies[..pointer.copy_count()];
                        if copies.iter().any(|copy| self.core.space.is_live(*copy)) {
                            seen.unread.push(*pointer);
                        }
                        continue;
                    }
                };
                let Ok(node) = Node::decode(&block) else { continue };
                if node.level() > 0 {
                    let children = node.entries().filter_map(|entry| BlockPointer::decode(entry.value).ok());
                    below.extend(children.filter(|child| child.birth > after));
                } else if pointer.kind == BlockKind::Extents {
                    offer_content(&node, (dataset, after, is_head), offer);
                }
            }
            below.reverse();
            nodes.extend(below);
        }
    }

    /// Nodes in the order of their places: those side by side come in one transfer.
    fn read_runs(
        &self,
        nodes: &[BlockPointer],
        context: &ReadContext<'_>,
        reads: &Reads,
    ) -> Vec<std::result::Result<Block, BlockError>> {
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|at| nodes[*at].copies[0]);
        let mut runs: Vec<Vec<usize>> = Vec::new();
        for at in order {
            let ends = |run: &Vec<usize>| run.first().copied().zip(run.last().copied());
            match runs.last_mut() {
                Some(run)
                    if ends(run).is_some_and(|(first, last)| {
                        self.follows((&nodes[first], &nodes[last]), &nodes[at], 0, NODE_RUN)
                    }) =>
                {
                    run.push(at);
                }
                _ => runs.push(vec![at]),
            }
        }
        let blocks: Vec<_> = nodes.iter().map(|_| Mutex::new(None)).collect();
        let read = |run: &[usize]| {
            let place = |at: &usize| (nodes[*at].copies[0], nodes[*at].psize as usize);
            let places: Vec<_> = run.iter().map(place).collect();
            reads.add(places.iter().map(|(_, bytes)| *bytes as u64).sum());
            let brought = match run.len() {
                0 | 1 => None,
                _ => self.core.space.read_run_doubting(&places, NODE_RUN.gap),
            };
            let mut brought = brought.into_iter().flatten();
            for at in run {
                let pointer = &nodes[*at];
                let opened =
                    brought.next().and_then(|bytes| self.core.blockio.open_read(bytes, pointer, context));
                let block = opened.map_or_else(|| self.core.blockio.read(pointer, context), Ok);
                *blocks[*at].lock() = Some(block);
            }
        };
        let share = runs.len().div_ceil(READERS).max(1);
        let jobs = runs.chunks(share).map(|some| -> Job<'_> {
            let read = &read;
            Box::new(move || some.iter().for_each(|run| read(run)))
        });
        self.core.env.tasks.run_waiting(jobs.collect());
        blocks.into_iter().map(|block| block.into_inner().expect("its job ran")).collect()
    }
}

fn offer_content(node: &Node<'_>, (dataset, after, is_head): (DatasetId, Txg, bool), offer: Offer<'_>) {
    for entry in node.entries() {
        let Ok(ExtentsKey::Extent { inode, offset }) = ExtentsKey::decode(entry.key) else { continue };
        let Ok(extent) = Extent::decode(entry.value) else { continue };
        for (pointer, shown) in steadfast_dataset::blocks_of(&extent) {
            if pointer.birth > after {
                let range = offset + shown.start..offset + shown.end;
                offer(&pointer, is_head.then_some((dataset, inode, range)));
            }
        }
    }
}
