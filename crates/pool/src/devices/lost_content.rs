//! Files in cells that did not come back: a walk over block pointers, which intersects their places
//! with the lost cells. Content is not read, nor is a node of which each copy lies in lost cells.
//!
//! ## Order
//! The pool's own metadata, then snapshots by txg, then datasets. A moment (a snapshot, or a
//! dataset as it is now) is walked as far as it is younger than the moment before it; where that
//! one has lost something, its nodes are visited again, for most of what was lost then is lost now.
//! So each node is read once, and a few more often.
//!
//! ## Invariants
//! [lost_content.1] The stack holds the siblings along [`READERS`] paths from a root at most.
//!     [`RANGES_MAX`] places are named; the others are counted.
//! [lost_content.2] A cell is told as dead only if no block that was found lies in it, and nothing
//!     was left out.
//!     test: `files_in_lost_cells_are_named`

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use steadfast_blockio::{Block, Error as BlockError, ReadContext};
use steadfast_env::Job;
use steadfast_format::extent::Extent;
use steadfast_format::file_keys::ExtentsKey;
use steadfast_format::node::Node;
use steadfast_format::{Address, BlockKind, BlockPointer, DatasetId, DeviceId, InodeId, SegmentId, Txg};
use steadfast_por::PAYLOAD;

use crate::core::view::Roots;
use crate::devices::errlog::{DamagedFile, join};
use crate::devices::state::Devices;

/// Nodes that are read side by side.
const READERS: usize = 16;
/// Places that are named.
const RANGES_MAX: usize = 20_000;
/// Walks of a dataset until none meets a commit that took nodes away.
const TRIES: u32 = 4;

/// Cells that are looked for, in order.
struct Cells {
    cells: Vec<(DeviceId, SegmentId, u32)>,
    /// A block that lives has bytes in the cell.
    live: Vec<bool>,
}

/// Content in lost cells.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LostContent {
    /// Lost cells with bytes of blocks that live, and those in which none was found.
    pub live_cells: u64,
    /// Lost cells in which none was found.
    pub dead_cells: u64,
    /// Files with the lost ranges, by dataset or snapshot, and inode.
    pub files: Vec<DamagedFile>,
    /// Nodes of trees.
    pub metadata: Vec<LostNode>,
    /// Blocks in lost cells that have a copy elsewhere: a scrub writes them anew.
    pub spared: u64,
    /// Places beyond those that are named.
    pub unnamed: u64,
    /// Datasets whose keys are not loaded: they were not looked at.
    pub locked: Vec<String>,
    /// Nodes that could not be read for another reason: what is below them is not known.
    pub unread: u64,
    /// There is a checkpoint: what only that has was not looked at.
    pub has_checkpoint: bool,
}

/// A node of a tree, lost with all of its copies.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct LostNode {
    /// Dataset or snapshot, or the pool.
    pub dataset: String,
    /// Tree: `extents`, `names`, or `pool`.
    pub tree: &'static str,
    /// Its height above the leaves.
    pub level: u8,
    /// First inode of which it holds something, and the last one; not of the pool's tree.
    pub inodes: Option<(u64, u64)>,
}

/// A place in a tree.
type Key = (Tree, Vec<u8>);

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Tree {
    Extents,
    Names,
    Pool,
}

/// A node to be visited, and the keys below it.
struct Step {
    pointer: BlockPointer,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

/// State of all walks together.
struct Walk<'a> {
    cells: Cells,
    lost: LostContent,
    /// Places that were named.
    named: usize,
    stop: &'a AtomicBool,
    watch: &'a mut (dyn FnMut(u64, u64) + Send),
    seen_bytes: u64,
    all_bytes: u64,
}

/// One moment of a dataset, while it is walked.
#[derive(Default)]
struct Moment {
    /// Where something is lost: the next moment looks there, too.
    found: BTreeSet<Key>,
    ranges: BTreeMap<InodeId, BTreeSet<(u64, u64)>>,
    nodes: Vec<LostNode>,
    spared: u64,
    unread: u64,
    unnamed: u64,
    /// A node was gone: a commit replaced it meanwhile.
    is_overtaken: bool,
    is_locked: bool,
}

impl Tree {
    fn of(kind: BlockKind) -> Tree {
        match kind {
            BlockKind::Extents => Tree::Extents,
            BlockKind::Names => Tree::Names,
            _ => Tree::Pool,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Tree::Extents => "extents",
            Tree::Names => "names",
            Tree::Pool => "pool",
        }
    }
}

impl Cells {
    fn new(lost: &[(u16, SegmentId, u16)]) -> Cells {
        let cell = |(store, segment, index): &(u16, SegmentId, u16)| {
            (DeviceId(u64::from(*store)), *segment, u32::from(*index))
        };
        let mut cells: Vec<_> = lost.iter().map(cell).collect();
        cells.sort_unstable();
        cells.dedup();
        Cells { live: vec![false; cells.len()], cells }
    }

    /// True if one of these bytes is in a lost cell. They are of a block that lives.
    fn meet(&mut self, device: DeviceId, segment: SegmentId, bytes: &Range<u32>) -> bool {
        let (first, end) = (bytes.start / PAYLOAD as u32, bytes.end.div_ceil(PAYLOAD as u32));
        let begin = self.cells.partition_point(|cell| *cell < (device, segment, first));
        let met = self.cells[begin..].iter().take_while(|cell| **cell < (device, segment, end)).count();
        self.live[begin..begin + met].fill(true);
        met > 0
    }
}

impl Step {
    fn root(pointer: BlockPointer) -> Step {
        Step { pointer, from: Vec::new(), to: None }
    }

    /// True if one of these places is below it.
    fn holds(&self, places: &BTreeSet<Key>) -> bool {
        let tree = Tree::of(self.pointer.kind);
        let to = match &self.to {
            Some(to) => Bound::Excluded((tree, to.clone())),
            None if tree == Tree::Pool => Bound::Unbounded,
            None => {
                Bound::Excluded((if tree == Tree::Extents { Tree::Names } else { Tree::Pool }, Vec::new()))
            }
        };
        places.range((Bound::Included((tree, self.from.clone())), to)).next().is_some()
    }

    /// Inodes whose keys are below it.
    fn inodes(&self) -> (u64, u64) {
        let inode = |key: &[u8]| key.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let last = match &self.to {
            None => u64::MAX,
            Some(to) => {
                let next = inode(to).unwrap_or(0);
                // A key of eight bytes is the least one of its inode.
                if to.len() > 8 { next } else { next.saturating_sub(1) }
            }
        };
        (inode(&self.from).unwrap_or(0), last)
    }
}

impl LostContent {
    /// True if all of the pool was looked at.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.locked.is_empty() && self.unread == 0 && !self.has_checkpoint
    }
}

impl Devices {
    /// Names the files, and the metadata, in cells that a recovery could not give back: store,
    /// segment, cell. `zpool status -v` lists them from then on, instead of those of the last one.
    /// `watch` hears how many cells of the pool were passed, of how many. `None` if `stop` is true
    /// before the end.
    pub fn name_lost(
        &self,
        lost: &[(u16, SegmentId, u16)],
        stop: &AtomicBool,
        watch: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Option<LostContent> {
        let content = self.content_in(lost, stop, watch)?;
        let moments = content.files.iter().cloned();
        let metadata = content.metadata.iter().map(|node| DamagedFile {
            dataset: node.dataset.clone(),
            path: None,
            inode: 0,
            ranges: Vec::new(),
        });
        *self.errors.lost.lock() = moments.chain(metadata).collect();
        self.core.health.changed.note();
        Some(content)
    }

    /// The same of cells that may come back: only the answer tells of them.
    pub fn content_in(
        &self,
        lost: &[(u16, SegmentId, u16)],
        stop: &AtomicBool,
        watch: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Option<LostContent> {
        let usage = self.core.space.accounting().devices;
        let all_bytes = usage.iter().map(|usage| usage.live_bytes).sum();
        let (cells, has_checkpoint) = (Cells::new(lost), self.core.checkpoint.lock().root.is_some());
        let mut walk = Walk {
            cells,
            lost: LostContent { has_checkpoint, ..LostContent::default() },
            named: 0,
            stop,
            watch,
            seen_bytes: 0,
            all_bytes,
        };
        self.walk_pool(&mut walk);
        let mut moments = self.core.dataset_roots();
        moments.sort_by_key(|roots| (roots.moment.unwrap_or(Txg(u64::MAX)), roots.dataset));
        let mut found: BTreeMap<(DatasetId, Option<Txg>), BTreeSet<Key>> = BTreeMap::new();
        let mut locked = BTreeSet::new();
        for roots in moments {
            let (dataset, at) = (roots.dataset, roots.moment);
            let moment = self.walk_moment(&mut walk, roots, &found);
            if moment.is_locked {
                locked.insert(self.core.dataset_name(dataset));
            }
            let places = self.tell(&mut walk, dataset, at, moment);
            found.insert((dataset, at), places);
        }
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let live = walk.cells.live.iter().filter(|live| **live).count() as u64;
        let mut lost = walk.lost;
        (lost.live_cells, lost.dead_cells) = (live, walk.cells.live.len() as u64 - live);
        lost.locked = locked.into_iter().collect();
        Some(lost)
    }

    /// The pool's own tree, and the tail of the last commit.
    fn walk_pool(&self, walk: &mut Walk<'_>) {
        let none = BTreeSet::new();
        for _ in 0..TRIES {
            let Some((meta, tail)) = self.core.commit_state.lock().last.as_ref().map(|l| (l.meta, l.tail))
            else {
                return;
            };
            let mut moment = Moment::default();
            self.meet(walk, &tail, &mut moment);
            self.walk_tree(walk, DatasetId(0), (Txg(0), &none), vec![Step::root(meta)], &mut moment);
            if !moment.is_overtaken {
                self.tell(walk, DatasetId(0), None, moment);
                return;
            }
        }
        walk.lost.unread += 1;
    }

    /// A snapshot, or a dataset as of the last commit.
    fn walk_moment(
        &self,
        walk: &mut Walk<'_>,
        mut roots: Roots,
        found: &BTreeMap<(DatasetId, Option<Txg>), BTreeSet<Key>>,
    ) -> Moment {
        let none = BTreeSet::new();
        for _ in 0..TRIES {
            let before = roots.before.and_then(|(of, txg)| Some((txg, found.get(&(of, Some(txg)))?)));
            // Where the moment before was not walked, nobody has looked at what is older.
            let beside = before.unwrap_or((Txg(0), &none));
            let mut moment = Moment::default();
            let steps = roots.roots.iter().copied().map(Step::root);
            let steps = steps.filter(|step| step.pointer.birth > beside.0 || step.holds(beside.1)).collect();
            self.walk_tree(walk, roots.dataset, beside, steps, &mut moment);
            if !moment.is_overtaken {
                return moment;
            }
            let is_it = |other: &Roots| (other.dataset, other.moment) == (roots.dataset, roots.moment);
            match self.core.dataset_roots().into_iter().find(is_it) {
                Some(now) => roots = now,
                // It was destroyed.
                None => return Moment::default(),
            }
        }
        Moment { unread: 1, ..Moment::default() }
    }

    /// Walks nodes below some nodes, as far as they are younger than a txg, or hold one of some
    /// places.
    fn walk_tree(
        &self,
        walk: &mut Walk<'_>,
        dataset: DatasetId,
        (after, places): (Txg, &BTreeSet<Key>),
        mut steps: Vec<Step>,
        moment: &mut Moment,
    ) {
        while !steps.is_empty() && !moment.is_overtaken && !walk.stop.load(Ordering::Relaxed) {
            let mut some = steps.split_off(steps.len().saturating_sub(READERS));
            some.reverse();
            some.retain(|step| {
                // Most leaves lead to nothing: their pointer says all.
                let is_end = step.pointer.level == 0 && step.pointer.kind != BlockKind::Extents;
                !self.meet_node(walk, dataset, step, moment) && !is_end
            });
            let opened = self.read_side_by_side(dataset, &some);
            let mut below: Vec<Step> = Vec::new();
            for (step, block) in some.into_iter().zip(opened) {
                let block = match block {
                    Ok(block) => block,
                    Err(BlockError::KeyNotLoaded { .. }) => {
                        moment.is_locked = true;
                        continue;
                    }
                    Err(_) => {
                        let copies = &step.pointer.copies[..step.pointer.copy_count()];
                        let is_there = copies.iter().any(|copy| self.core.space.is_known(copy.segment));
                        moment.is_overtaken |= !is_there;
                        moment.unread += u64::from(is_there);
                        continue;
                    }
                };
                let Ok(node) = Node::decode(&block) else {
                    moment.unread += 1;
                    continue;
                };
                if node.level() == 0 {
                    self.meet_extents(walk, &node, after, moment);
                    continue;
                }
                let entries: Vec<_> = node.entries().collect();
                for (at, entry) in entries.iter().enumerate() {
                    let Ok(pointer) = BlockPointer::decode(entry.value) else { continue };
                    let from = if at == 0 { step.from.clone() } else { entry.key.to_vec() };
                    let to = entries.get(at + 1).map(|next| next.key.to_vec()).or_else(|| step.to.clone());
                    let child = Step { pointer, from, to };
                    if pointer.birth > after || child.holds(places) {
                        below.push(child);
                    }
                }
            }
            below.reverse();
            steps.extend(below);
            (walk.watch)(
                walk.seen_bytes.min(walk.all_bytes) / PAYLOAD as u64,
                walk.all_bytes.div_ceil(PAYLOAD as u64),
            );
        }
    }

    /// Looks where a node lies. True if it is lost.
    fn meet_node(&self, walk: &mut Walk<'_>, dataset: DatasetId, step: &Step, moment: &mut Moment) -> bool {
        let is_lost = self.meet(walk, &step.pointer, moment);
        if is_lost {
            let tree = Tree::of(step.pointer.kind);
            moment.found.insert((tree, step.from.clone()));
            moment.nodes.push(LostNode {
                dataset: String::new(),
                tree: tree.word(),
                level: step.pointer.level,
                inodes: (dataset.0 != 0).then(|| step.inodes()),
            });
        }
        is_lost
    }

    /// Looks where the content of a leaf lies.
    fn meet_extents(&self, walk: &mut Walk<'_>, node: &Node<'_>, after: Txg, moment: &mut Moment) {
        for entry in node.entries() {
            let Ok(ExtentsKey::Extent { inode, offset }) = ExtentsKey::decode(entry.key) else { continue };
            let Ok(extent) = Extent::decode(entry.value) else { continue };
            for (pointer, shown) in steadfast_dataset::blocks_of(&extent) {
                let mut apart = Moment::default();
                if self.meet(walk, &pointer, &mut apart) {
                    moment.found.insert((Tree::Extents, entry.key.to_vec()));
                    let range = (offset + shown.start, offset + shown.end);
                    if walk.named < RANGES_MAX {
                        walk.named += usize::from(moment.ranges.entry(inode).or_default().insert(range));
                    } else {
                        moment.unnamed += 1;
                    }
                }
                // Of an older one the moment before told.
                moment.spared += if pointer.birth > after { apart.spared } else { 0 };
            }
        }
    }

    /// Looks where the copies of a block lie. True if it is lost with all of them.
    fn meet(&self, walk: &mut Walk<'_>, pointer: &BlockPointer, moment: &mut Moment) -> bool {
        walk.seen_bytes += u64::from(pointer.psize) * pointer.copy_count() as u64;
        let copies = &pointer.copies[..pointer.copy_count()];
        let cells = &mut walk.cells;
        let mut is_lost = |copy: &&Address| {
            let mut meet = |device, segment, bytes| cells.meet(device, segment, &bytes);
            self.core.space.is_copy_lost(**copy, pointer.psize as usize, &mut meet)
        };
        let lost = copies.iter().filter(|copy| is_lost(copy)).count();
        moment.spared += u64::from(lost > 0 && lost < copies.len());
        lost > 0 && lost == copies.len()
    }

    fn read_side_by_side(&self, dataset: DatasetId, steps: &[Step]) -> Vec<Result<Block, BlockError>> {
        let reader = (dataset.0 != 0).then(|| self.core.reader_of(dataset)).flatten();
        let (keys, family) = match reader {
            Some(reader) => (reader.keys, reader.family),
            None => (self.core.sealing.as_ref().map(|sealing| Arc::clone(&sealing.keys)), DatasetId(0)),
        };
        let context = ReadContext { dataset, family, keys: keys.as_deref(), cache: false };
        let blocks: Vec<_> = steps.iter().map(|_| Mutex::new(None)).collect();
        let jobs = steps.iter().zip(&blocks).map(|(step, block)| -> Job<'_> {
            let (context, blockio) = (&context, &self.core.blockio);
            Box::new(move || *block.lock() = Some(blockio.read(&step.pointer, context)))
        });
        self.core.env.tasks.run_waiting(jobs.collect());
        blocks.into_iter().map(|block| block.into_inner().expect("its job ran")).collect()
    }

    /// Gives what is lost of a moment its names. Where the next moment has to look, too.
    fn tell(
        &self,
        walk: &mut Walk<'_>,
        dataset: DatasetId,
        at: Option<Txg>,
        moment: Moment,
    ) -> BTreeSet<Key> {
        let Moment { found, ranges, nodes, spared, unread, unnamed, .. } = moment;
        let lost = &mut walk.lost;
        (lost.spared, lost.unread, lost.unnamed) =
            (lost.spared + spared, lost.unread + unread, lost.unnamed + unnamed);
        if ranges.is_empty() && nodes.is_empty() {
            return found;
        }
        let name = if dataset.0 == 0 { self.core.name() } else { self.core.name_of_moment(dataset, at) };
        for node in nodes {
            if walk.named < RANGES_MAX {
                walk.named += 1;
                lost.metadata.push(LostNode { dataset: name.clone(), ..node });
            } else {
                lost.unnamed += 1;
            }
        }
        let inodes: BTreeSet<InodeId> = ranges.keys().copied().collect();
        let mut paths = BTreeMap::new();
        if !inodes.is_empty() {
            self.core.read_moment(dataset, at, &mut |files| paths = files.paths_of(&inodes));
        }
        for (inode, ranges) in ranges {
            let (dataset, path, ranges) = (name.clone(), paths.remove(&inode), join(ranges));
            lost.files.push(DamagedFile { dataset, path, inode: inode.0, ranges });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use steadfast_format::{Compression, Stamp};

    use super::*;

    #[test]
    fn bytes_meet_the_cells_that_they_touch() {
        let lost = [(1, SegmentId(5), 3), (1, SegmentId(5), 2), (2, SegmentId(5), 9), (1, SegmentId(5), 3)];
        let mut cells = Cells::new(&lost);
        let (first, second) = (cells.cells[0].0, cells.cells[2].0);
        assert_eq!(cells.cells.len(), 3);
        assert!(!cells.meet(first, SegmentId(5), &(0..8192)));
        assert!(!cells.meet(first, SegmentId(4), &(0..1 << 20)));
        assert!(!cells.meet(second, SegmentId(5), &(8192..16384)));
        assert_eq!(cells.live, [false, false, false]);
        assert!(cells.meet(first, SegmentId(5), &(8191..8193)));
        assert_eq!(cells.live, [true, false, false]);
        assert!(cells.meet(first, SegmentId(5), &(12288..12289)));
        assert!(cells.meet(second, SegmentId(5), &(0..1 << 20)));
        assert_eq!(cells.live, [true, true, true]);
    }

    #[test]
    fn a_node_holds_keys_from_its_first_one_on() {
        let key = |inode: u64, offset| ExtentsKey::Extent { inode: InodeId(inode), offset }.encode();
        let pointer = BlockPointer {
            hash: [1; 32],
            copies: [Address { segment: SegmentId(1), offset: 0 }, Address::NONE, Address::NONE],
            psize: 4096,
            lsize: 4096,
            birth: Txg(1),
            written: Txg(0),
            stamp: Stamp::default(),
            compression: Compression::Off,
            kind: BlockKind::Extents,
            level: 1,
        };
        let step = Step { pointer, from: key(3, 0), to: Some(key(7, 4096)) };
        let holds = |tree, key| step.holds(&BTreeSet::from([(tree, key)]));
        assert!(holds(Tree::Extents, key(3, 0)) && holds(Tree::Extents, key(7, 0)));
        assert!(!holds(Tree::Extents, key(7, 4096)) && !holds(Tree::Names, key(5, 0)));
        assert_eq!(step.inodes(), (3, 7));
        let all = Step::root(pointer);
        assert!(all.holds(&BTreeSet::from([(Tree::Extents, key(u64::MAX, 0))])));
        assert!(!all.holds(&BTreeSet::from([(Tree::Names, Vec::new())])));
        assert_eq!(all.inodes(), (0, u64::MAX));
    }
}
