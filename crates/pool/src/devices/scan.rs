//! A scrub, a resilver or a job that moves segments: where it is, and how it keeps pace.

use std::collections::VecDeque;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use steadfast_format::Address;
use steadfast_format::BlockPointer;
use steadfast_format::DatasetId;
use steadfast_format::InodeId;
use steadfast_format::ScanRow;
use steadfast_format::ScanState;
use steadfast_format::SegmentId;
use steadfast_format::Txg;

/// How long one look may take.
pub(crate) const STEP_NS: u64 = 20_000_000;

/// How long a batch should take while there is no other load. At its end devices wait for the
/// slowest of them and for what is computed and written last.
pub(crate) const ALONE_NS: u64 = 5 * STEP_NS;

/// Bytes of segments that are mended together: at first and on slow devices, and at most.
pub(crate) const BATCH_BYTES_MIN: u64 = 8 << 20;

pub(crate) const BATCH_BYTES_MAX: u64 = 128 << 20;

/// For so long after it was last seen other load counts as going on.
pub(crate) const LOAD_LASTS_NS: u64 = 1_000_000_000;

/// A node of the meta tree that is to be read.
#[derive(Clone, Copy)]
pub(crate) struct MetaNode {
    pub pointer: BlockPointer,
    pub is_leaf: bool,
}

impl MetaNode {
    /// The root, of any level.
    pub fn root(pointer: BlockPointer) -> MetaNode {
        MetaNode { pointer, is_leaf: false }
    }
}

/// The scan under way, or the last one.
pub(crate) struct Scan {
    pub row: ScanRow,
    /// Segments to be looked at; filled when it begins or goes on.
    pub queue: Option<VecDeque<SegmentId>>,
    /// Nodes of the meta tree to be read.
    pub nodes: Vec<MetaNode>,
    /// To be stored with the next commit.
    pub dirty: bool,
    /// Bytes of segments that are mended together.
    pub batch_bytes: u64,
    /// Segments that cannot be read whole.
    pub stuck: BTreeSet<SegmentId>,
    /// The walk to what lies on single devices, once segments were looked at.
    pub walk: Option<Walk>,
    /// Beside other load the next look comes no sooner: what the last one read took its share of
    /// the bandwidth.
    pub rest_until_ns: u64,
    /// Blocks that others had asked for at the last look; none before the first one of a pass.
    pub reads_seen: Option<u64>,
    /// Until then it counts as one beside other load.
    pub others_until_ns: u64,
    pub pass: ScanPass,
    /// Bytes that groups could not repair of segments with copies of content.
    pub lost_copies: u64,
}

/// A stretch of a scan without a pause or an import in between, by which its rate is measured.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ScanPass {
    /// Wall time of its beginning, nanoseconds since 1970.
    pub begun_ns: u64,
    /// Bytes that were read before.
    pub read_before: u64,
}

impl Scan {
    pub fn new(row: ScanRow) -> Scan {
        let (dirty, batch_bytes) = (false, BATCH_BYTES_MIN);
        Scan {
            row,
            queue: None,
            nodes: Vec::new(),
            dirty,
            batch_bytes,
            stuck: BTreeSet::new(),
            walk: None,
            rest_until_ns: 0,
            reads_seen: None,
            others_until_ns: 0,
            pass: ScanPass { begun_ns: row.begun_ns, read_before: 0 },
            lost_copies: 0,
        }
    }

    /// Begins a new pass.
    pub fn goes_on(&mut self, now_ns: u64) {
        self.pass = ScanPass { begun_ns: now_ns, read_before: self.row.read };
        self.reads_seen = None;
    }

    pub fn is_active(&self) -> bool {
        self.row.state == ScanState::Active
    }

    /// Notes how many blocks others have asked for by now, and whether somebody writes. The first
    /// look of a pass cannot tell whether anybody read a moment ago: until the next one it takes it
    /// that somebody did.
    pub fn look_for_others(&mut self, now_ns: u64, asked: u64, writes: bool) {
        let lasts_ns = match self.reads_seen {
            Some(seen) if seen == asked && !writes => 0,
            None if !writes => STEP_NS,
            _ => LOAD_LASTS_NS,
        };
        self.others_until_ns = self.others_until_ns.max(now_ns.saturating_add(lasts_ns));
        self.reads_seen = Some(asked);
    }

    /// Other load was seen, or may go on: a moment between two calls is no end of it.
    pub fn sees_others(&self, now_ns: u64) -> bool {
        now_ns < self.others_until_ns
    }

    /// Takes more or less at once, so that a batch takes about as long as it should [scrub.1].
    pub fn pace(&mut self, batch_ns: u64, is_alone: bool) {
        let wanted_ns = if is_alone { ALONE_NS } else { STEP_NS };
        if batch_ns < wanted_ns {
            self.batch_bytes = (self.batch_bytes * 2).min(BATCH_BYTES_MAX);
        } else if batch_ns > 3 * wanted_ns {
            let fitting = u128::from(self.batch_bytes) * u128::from(2 * wanted_ns) / u128::from(batch_ns);
            self.batch_bytes = u64::try_from(fitting).unwrap_or(BATCH_BYTES_MAX).max(BATCH_BYTES_MIN);
        }
    }
}

/// Progress of a running scan, readable while the scan itself is locked.
pub(crate) struct ScanProgress {
    pub row: ScanRow,
    pub pass: ScanPass,
    pub left_out: Vec<String>,
}

/// Result of checking blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Bytes read.
    pub read: u64,
    /// Bytes of copies that were wrong and are right again.
    pub repaired: u64,
    /// Bytes of blocks of which no copy is right.
    pub lost: u64,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.read += other.read;
        self.repaired += other.repaired;
        self.lost += other.lost;
    }
}

/// A block to be looked at.
pub(crate) enum Visit {
    Node(Tree, BlockPointer),
    Content(Content),
}

/// A block of a file.
pub(crate) struct Content {
    pub tree: Tree,
    pub inode: InodeId,
    pub range: Range<u64>,
    pub pointer: BlockPointer,
}

/// Content that waits, in the order of its places.
#[derive(Default)]
pub(crate) struct Waiting {
    /// By place; blocks that several files share lie at one.
    blocks: BTreeMap<(Address, u64), Content>,
    /// Number of the next block.
    next: u64,
    pub bytes: u64,
}

impl Waiting {
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    pub fn add(&mut self, content: Content) {
        self.bytes += u64::from(content.pointer.psize);
        self.blocks.insert((content.pointer.copies[0], self.next), content);
        self.next += 1;
    }

    /// The first blocks that one transfer brings: each but the first one `follows` those before.
    pub fn take_run(&mut self, follows: impl Fn(&[Content], &BlockPointer) -> bool) -> Vec<Content> {
        let mut run = Vec::new();
        while let Some(first) = self.blocks.first_entry()
            && (run.is_empty() || follows(&run, &first.get().pointer))
        {
            let content = first.remove();
            self.bytes -= u64::from(content.pointer.psize);
            run.push(content);
        }
        run
    }
}

/// Whose a block is, and which of its blocks are looked at.
#[derive(Clone, Copy)]
pub(crate) struct Tree {
    pub dataset: DatasetId,
    /// Older blocks are not looked at: they belong to the snapshot before or to the origin, and are
    /// looked at there.
    pub after: Txg,
    /// It is what the dataset is now, so damage is that of a file.
    pub is_head: bool,
}

/// How far a walk is.
pub(crate) struct Walk {
    /// The next one last. On stores of objects only nodes.
    pub todo: Vec<Visit>,
    /// Content on stores of objects.
    pub content: Waiting,
    /// Datasets whose keys are not loaded [scrub_walk.2].
    pub locked: BTreeSet<DatasetId>,
}
