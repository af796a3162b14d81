//! Scrub and resilver: every redundant segment is repaired, batch after batch, between commits.
//!
//! ## Order
//! First the pool's own metadata is read node by node, from the root on, which heals it; on a
//! mirror every copy is read. Then come segments in the order of their ids: the order in which they
//! were written, and on a pool that fills up the order of their slots. A scrub takes all segments.
//! A resilver takes those that miss a column or have one on a leaving device. At last a scrub walks
//! to the blocks on single devices: no checksums of their segments are stored (`scrub_walk.rs`).
//!
//! ## Invariants
//! [scrub.1] A look of a scan is bounded by [`STEP_NS`] and the batch begun by then, on stores of
//!      objects by what `scrub_flow.rs` says. A batch is
//!      sized to take about as long ([`ALONE_NS`] while there is no other load). While
//!      there is other load the scan rests as long as it worked, so commits go on beside it. Load
//!      is writes, and for a scrub also reads, from devices or from memory. A resilver does not
//!      wait for readers, because redundancy is missing without it.
//!      `scan_step`
//! [scrub.2] The position of a scan is part of every commit: after a crash it repeats one commit's
//!      work at most.
//! [scrub.3] A scan needs no key of any dataset: checksums are of the stored bytes.
//!      `steadfast_segment::Mended`
//! [scrub.5] Where `scrublimit` is set, a scrub reads no more beside other load than that many
//!      bytes a second, counted over a batch and the rest after it.
//!      `scan_limit`
//! [scrub.6] A look at the progress waits for no batch: while one runs, the progress is that of its
//!      beginning.
//!      `ask_scan`
//! [scrub.4] A device that leaves is forgotten only when no row of a committed root names it.
//!      `finish_leaving`

use crate::devices::leaf::Leaf;
use crate::devices::probe::lost_labels;
use crate::devices::scan::LOAD_LASTS_NS;
use crate::devices::scan::MetaNode;
use crate::devices::scan::STEP_NS;
use crate::devices::scan::Scan;
use crate::devices::scan::ScanPass;
use crate::devices::scan::ScanProgress;
use crate::devices::state::Devices;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use steadfast_blockio::ReadContext;
use steadfast_env::Job;
use steadfast_format::node::Node;
use steadfast_format::{
    BlockPointer, Checksums, DatasetId, LeafState, MetaKey, ParityStanding, ScanKind, ScanRow, ScanState,
    SegmentId,
};
use steadfast_segment::Depth;

use crate::core::error::{Error, Result};
use crate::core::events::EventKind;
use crate::devices::scan::Tally;
use crate::devices::scrub_flow::FlowEnd;
use crate::devices::scrub_walk::Looked;

/// Leaves of the meta tree that are put in order together, and tasks that read them at once.
const STEP_NODES: usize = 256;
const READERS: usize = 16;
/// Pause between looks beside other load.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// A longer holder of the scan has reported its progress by now.
pub(crate) const TOLD_SOON: Duration = Duration::from_millis(1);
/// Limit that keeps a scrub within its bandwidth.
#[derive(Clone, Copy)]
struct Limit {
    /// Bytes a second.
    rate: u64,
    /// How long it has to wait yet.
    rest: Option<Duration>,
}

/// Commands of a scrub.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ScrubCommand {
    /// Begin, or go on if it is paused.
    Start,
    /// Stop, so that it may go on later.
    Pause,
    /// End.
    Stop,
}

/// A verb under way that something is to follow: see [`resilver_due`] and [`expansion_due`].
pub(crate) struct Due<'a>(&'a AtomicUsize);

impl<'a> Due<'a> {
    fn counted_by(count: &'a AtomicUsize) -> Due<'a> {
        count.fetch_add(1, Ordering::AcqRel);
        Due(count)
    }
}

impl Drop for Due<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Devices {
    /// Begins, pauses or ends a scrub.
    pub fn scrub(&self, command: ScrubCommand) -> Result<()> {
        self.core.check_writable()?;
        let pool = || self.core.name();
        if command == ScrubCommand::Start && !self.is_all_stored() {
            // Open segments are in memory. Once closed, their part on the devices is scanned like
            // the rest.
            let turn = self.core.sync_turn.lock();
            self.core.space.close_open()?;
            drop(turn);
            self.core.commit_changes()?;
        }
        let _command = Due::counted_by(&self.scans.commands);
        let under_way = |scan: &Scan| matches!(scan.row.state, ScanState::Active | ScanState::Paused);
        if command == ScrubCommand::Start && !self.scans.scan.lock().as_ref().is_some_and(under_way) {
            self.note_lost_labels();
        }
        let mut scan = self.scans.scan.lock();
        let state = scan.as_ref().map(|scan| (scan.row.kind, scan.row.state));
        let word = match (command, state) {
            (_, Some((ScanKind::Resilver, ScanState::Active))) => {
                return Err(Error::ScanActive { pool: pool(), what: "resilver" });
            }
            (ScrubCommand::Start, Some((ScanKind::Scrub, ScanState::Active))) => {
                return Err(Error::ScanActive { pool: pool(), what: "scrub" });
            }
            (ScrubCommand::Start, Some((ScanKind::Scrub, ScanState::Paused))) => {
                let scan = scan.as_mut().expect("it is paused");
                (scan.row.state, scan.queue, scan.dirty) = (ScanState::Active, None, true);
                scan.row.ended_ns = 0;
                scan.goes_on(self.core.now_ns());
                "resume"
            }
            (ScrubCommand::Start, _) => {
                *scan = Some(self.begin_scan(ScanKind::Scrub));
                // Labels are read at an import only, so what spoilt them shows when it is too late.
                // On stores alone they are objects, which nobody writes over.
                if !self.core.space.is_all_objects() {
                    self.labels_due.mark();
                }
                "start"
            }
            (ScrubCommand::Pause, Some((ScanKind::Scrub, ScanState::Active))) => {
                let scan = scan.as_mut().expect("it is active");
                (scan.row.state, scan.dirty) = (ScanState::Paused, true);
                scan.row.ended_ns = self.core.now_ns();
                "pause"
            }
            (ScrubCommand::Stop, Some((ScanKind::Scrub, ScanState::Active | ScanState::Paused))) => {
                let now = self.core.now_ns();
                let scan = scan.as_mut().expect("it is under way");
                (scan.row.state, scan.row.ended_ns, scan.dirty) = (ScanState::Canceled, now, true);
                "cancel"
            }
            (ScrubCommand::Pause | ScrubCommand::Stop, _) => return Err(Error::ScanNone { pool: pool() }),
        };
        drop(scan);
        self.note_scan("scrub", word);
        Ok(())
    }

    /// Tells which devices lost their labels. On stores they are objects, and reading one is a
    /// request.
    fn note_lost_labels(&self) {
        // No device comes or goes, and no label is written, meanwhile.
        let _turn = self.core.sync_turn.lock();
        let has_lost = |leaf: &Arc<Leaf>| {
            let is_file = leaf.device.objects().is_none() && self.core.space.is_in_use(leaf.id());
            is_file && lost_labels(&*leaf.device, (self.core.identity.guid, leaf.config().guid))
        };
        let logs = self.log_labels.get().and_then(|logs| logs.upgrade());
        let mut lost = logs.map(|logs| logs.count_lost_labels()).unwrap_or_default();
        lost.extend(self.leaves().iter().filter(|leaf| has_lost(leaf)).map(|leaf| leaf.path()));
        lost.into_iter().for_each(|path| self.core.events.note(EventKind::LabelsLost { path }));
    }

    /// True if a scrub finds all there is below the root of the last commit, or of the one under
    /// way: on stores alone no segment stays open behind a commit. There a commit without a change
    /// is three round trips.
    fn is_all_stored(&self) -> bool {
        self.core.space.is_all_objects() && !self.core.heads().iter().any(|head| head.is_changed())
    }

    pub(crate) fn note_scan(&self, what: &'static str, word: &'static str) {
        self.core.events.note(EventKind::Scan { what, word });
        let txg = self.core.txgs.gate.open_txg();
        self.core.history.lock().add(
            self.core.now_ns(),
            txg,
            0,
            true,
            &self.core.identity.host,
            &format!("{what} {word}"),
        );
        self.core.health.changed.note();
        self.core.txgs.commits.nudge();
    }

    pub(crate) fn begin_scan(&self, kind: ScanKind) -> Scan {
        let ids = self.core.space.mendable(kind == ScanKind::Resilver);
        let stored: u64 = ids.iter().map(|id| self.core.space.stored_bytes(*id)).sum();
        let total = stored + if kind == ScanKind::Scrub { self.single_bytes() } else { 0 };
        let until = SegmentId(ids.last().map_or(0, |id| id.0) + 1);
        let mut scan = Scan::new(ScanRow {
            kind,
            state: ScanState::Active,
            device: 0,
            next: SegmentId(0),
            until,
            begun_ns: self.core.now_ns(),
            ended_ns: 0,
            total,
            read: 0,
            repaired: 0,
            rebuilt: 0,
            lost: 0,
            missing: 0,
        });
        scan.dirty = true;
        scan
    }

    /// Ends what is open and incomplete, and lets the next commit give the log other segments: so
    /// that a resilver finds all there is. Under `sync_turn`, and followed by a commit.
    pub(crate) fn prepare_resilver(&self) -> Result<()> {
        self.core.space.close_incomplete()?;
        self.move_log.store(true, Ordering::Release);
        Ok(())
    }

    /// Announces a resilver until the result is dropped. A change of the devices is seen before
    /// labels and commits for it are done. A caller that sees the change and waits for the resilver
    /// must wait for its end, and must not find none.
    pub(crate) fn resilver_due(&self) -> Due<'_> {
        Due::counted_by(&self.scans.resilvers_due)
    }

    /// The same for a raidz group that becomes wider, and is to be evened out.
    pub(crate) fn expansion_due(&self) -> Due<'_> {
        Due::counted_by(&self.moves.expansions_due)
    }

    /// Whether a resilver is about to begin. Looks in the order in which the stages follow: a spare
    /// that is due, the sync task that lets it step in or go, the commit that was asked for, the
    /// commit itself.
    pub(crate) fn is_resilver_due(&self) -> bool {
        let due = || self.scans.resilvers_due.load(Ordering::Acquire) > 0;
        self.is_spare_due() || due() || self.scans.resilver_wanted.load(Ordering::Acquire) || due()
    }

    /// Begins a resilver if a segment misses a column that a device could take, in place of a
    /// scrub.
    pub(crate) fn resilver_if_needed(&self) {
        if self.core.health.read_only || self.core.space.mendable(true).is_empty() {
            return;
        }
        *self.scans.scan.lock() = Some(self.begin_scan(ScanKind::Resilver));
        self.note_scan("resilver", "start");
    }

    /// Item of the meta tree for the scan, if it changed.
    pub(crate) fn scan_item(&self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mut scan = self.scans.scan.lock();
        let scan = scan.as_mut()?;
        let dirty = std::mem::take(&mut scan.dirty);
        dirty.then(|| (MetaKey::Scan.encode(), Some(scan.row.encode())))
    }

    /// A part of the scan under way. Sync context only, between commits. Gives when to look again,
    /// `None` if nothing is under way.
    pub(crate) fn scan_step(&self) -> Result<Option<Duration>> {
        if !self.scans.scan.lock().as_ref().is_some_and(Scan::is_active) {
            return Ok(None);
        }
        if self.core.is_sparing() && !self.is_resilvering() {
            return Ok(None);
        }
        let looked_ns = self.core.env.clock.monotonic_ns();
        self.look_for_others(looked_ns);
        let limit = self.scan_limit(looked_ns);
        if let Some(rest) = limit.and_then(|limit| limit.rest) {
            return Ok(Some(rest));
        }
        let _turn = self.core.sync_turn.lock();
        // Nothing is mended in place on stores of objects, and this would be a round trip for each
        // look: the next commit sees whether the pool is ours.
        if !self.core.space.is_all_objects() {
            self.core.check_ours()?;
        }
        // The look may have asked a store far away, for longer than a step lasts.
        let began_ns = self.core.env.clock.monotonic_ns();
        let root = self.meta_root();
        // A command that stops the scan waits for one look.
        let mut under_way = self.scans.scan.lock();
        let Some(scan) = under_way.as_mut().filter(|scan| scan.is_active()) else { return Ok(None) };
        let read_before = scan.row.read;
        self.tell_scan(scan);
        let result = self.scan_some(scan, root, began_ns, limit.is_some());
        let beside_readers = scan.row.kind == ScanKind::Scrub && scan.sees_others(looked_ns);
        if let Some(Limit { rate, .. }) = limit {
            // [scrub.5]
            let nanos = u128::from(scan.row.read - read_before) * 1_000_000_000 / u128::from(rate);
            scan.rest_until_ns = began_ns.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX));
        }
        // Diagnosis first: a scan that is seen to have ended has its verdict on the devices.
        self.diagnose();
        let ended = scan.row.state == ScanState::Finished;
        let what = if scan.row.kind == ScanKind::Scrub { "scrub" } else { "resilver" };
        // In this order: a look that finds no progress here waits for no more than the next line.
        *self.scans.progress.lock() = None;
        drop(under_way);
        result?;
        if ended {
            self.note_scan(what, "finish");
            // The end of a removal is a commit that names the device no more: ask for it.
            self.core.txgs.commits.request_sync(self.core.txgs.gate.open_txg());
        }
        self.core.health.changed.note();
        let busy = beside_readers || self.core.txgs.budget.fullness() > 0;
        Ok(Some(if busy { PAUSE } else { Duration::ZERO }))
    }

    fn is_resilvering(&self) -> bool {
        self.scans.scan.lock().as_ref().is_some_and(|scan| scan.row.kind == ScanKind::Resilver)
    }

    /// Bytes a second that a scrub reads at most beside other load, if the operator set that.
    pub(crate) fn scrub_limit(&self) -> Option<u64> {
        let props = self.core.props.read();
        let set = props.values.get("scrublimit").and_then(|value| value.parse().ok());
        set.filter(|rate| *rate > 0)
    }

    /// Blocks that others than scans have asked for. While a scan is at work it may be too few for
    /// a moment, and not too many.
    pub(crate) fn others_asked(&self) -> u64 {
        let asked = self.core.blockio.statistics().blocks_asked();
        asked.wrapping_sub(self.scans.asked.load(Ordering::Acquire))
    }

    /// A read of one block by a scan, which is no load beside it.
    pub(crate) fn ask_for_scan<T, E>(&self, read: impl FnOnce() -> std::result::Result<T, E>) -> Option<T> {
        self.scans.asked.fetch_add(1, Ordering::AcqRel);
        let read = read().ok();
        if read.is_none() {
            self.scans.asked.fetch_sub(1, Ordering::AcqRel);
        }
        read
    }

    /// The same of whatever blocks that takes, one caller at a time. Others that ask meanwhile are
    /// not seen, so it is to be short.
    fn ask_alone<T>(&self, read: impl FnOnce() -> T) -> T {
        let before = self.core.blockio.statistics().blocks_asked();
        let read = read();
        let asked = self.core.blockio.statistics().blocks_asked().wrapping_sub(before);
        self.scans.asked.fetch_add(asked, Ordering::AcqRel);
        read
    }

    /// Notes whether anybody read or wrote since the last look.
    fn look_for_others(&self, now_ns: u64) {
        let asked = self.others_asked();
        let writes = self.core.txgs.budget.fullness() > 0;
        if let Some(scan) = self.scans.scan.lock().as_mut() {
            scan.look_for_others(now_ns, asked, writes);
        }
    }

    /// Limit of the running scrub, if there is other load.
    fn scan_limit(&self, now_ns: u64) -> Option<Limit> {
        let rate = self.scrub_limit()?;
        let scan = self.scans.scan.lock();
        let scan =
            scan.as_ref().filter(|scan| scan.row.kind == ScanKind::Scrub && scan.sees_others(now_ns))?;
        let rest = scan.rest_until_ns.checked_sub(now_ns).filter(|rest| *rest > 0);
        Some(Limit { rate, rest: rest.map(|rest| Duration::from_nanos(rest.min(LOAD_LASTS_NS))) })
    }

    /// Reads for one step, metadata from `root` first; with `once` no more than one batch.
    fn scan_some(&self, scan: &mut Scan, root: Option<MetaNode>, began_ns: u64, once: bool) -> Result<()> {
        if scan.queue.is_none() {
            scan.walk = None;
            let all = self.core.space.mendable(scan.row.kind == ScanKind::Resilver);
            let left = all.into_iter().filter(|id| *id >= scan.row.next && *id < scan.row.until);
            scan.queue = Some(left.collect());
            scan.nodes = root.into_iter().collect();
        }
        scan.dirty = true;
        let depth = if scan.row.kind == ScanKind::Scrub { Depth::All } else { Depth::Needed };
        let flows = depth == Depth::All && !once && self.core.space.has_objects();
        while self.core.env.clock.monotonic_ns().saturating_sub(began_ns) < STEP_NS {
            if flows && scan.queue.as_ref().is_none_or(VecDeque::is_empty) {
                let walk = scan.walk.get_or_insert_with(|| self.begin_walk());
                // [scrub.5]
                let alone = self.scrub_limit().and(scan.reads_seen);
                if let Some(tally) = self.flow(&mut scan.nodes, walk, FlowEnd { began_ns, alone }) {
                    scan.row.read += tally.read;
                    scan.row.repaired += tally.repaired;
                    scan.row.lost += tally.lost;
                    self.tell_scan(scan);
                    continue;
                }
            }
            if !scan.nodes.is_empty() {
                let tally = self.read_nodes(&mut scan.nodes);
                scan.row.repaired += tally.repaired;
                scan.row.lost += tally.lost;
                continue;
            }
            let batch = self.next_batch(scan, once)?;
            let Some(((first, _), (last, _))) = batch.first().zip(batch.last()) else {
                if scan.row.kind == ScanKind::Scrub {
                    let walk = scan.walk.get_or_insert_with(|| self.begin_walk());
                    if let Some(tally) = self.walk_step(walk, once) {
                        scan.row.read += tally.read;
                        scan.row.repaired += tally.repaired;
                        scan.row.lost += tally.lost;
                        self.tell_scan(scan);
                        if once && tally.read > 0 {
                            return Ok(());
                        }
                        continue;
                    }
                }
                (scan.row.state, scan.row.ended_ns) = (ScanState::Finished, self.core.now_ns());
                // Of datasets without their keys it is not known which have another copy.
                if scan.walk.as_ref().is_some_and(|walk| !walk.locked.is_empty()) {
                    scan.row.lost += scan.lost_copies;
                }
                if scan.lost_copies > 0 && scan.row.lost == 0 {
                    self.core.space.retry_unreadable();
                }
                if scan.row.lost > 0 {
                    self.begin_search();
                }
                return Ok(());
            };
            let batch_ns = self.core.env.clock.monotonic_ns();
            let others = || {
                // A segment whose checksums cannot be had is mended itself, and says so.
                let beside = self.core.space.beside(*first, *last).into_iter();
                self.ask_alone(|| beside.map(|id| self.checksums_of(id).unwrap_or_default()).collect())
            };
            let mended = self.core.space.mend_all(&batch, depth, &others)?;
            scan.row.next = SegmentId(last.0 + 1);
            let now_ns = self.core.env.clock.monotonic_ns();
            let rests = scan.row.kind == ScanKind::Scrub && scan.sees_others(now_ns);
            let is_alone = self.core.txgs.budget.fullness() == 0 && !rests;
            scan.pace(now_ns.saturating_sub(batch_ns), is_alone);
            scan.row.read += mended.read_bytes;
            scan.row.repaired += mended.repaired_bytes;
            scan.row.rebuilt += mended.rebuilt_bytes;
            scan.row.lost += mended.lost_bytes;
            // The walk of a scrub tells which of them have no other copy.
            match scan.row.kind {
                ScanKind::Scrub => scan.lost_copies += mended.lost_copies,
                _ => scan.row.lost += mended.lost_copies,
            }
            scan.row.missing += u64::from(mended.missing);
            self.tell_scan(scan);
            if once {
                break;
            }
        }
        Ok(())
    }

    /// Where the reading of the meta tree as of the last commit begins.
    pub(crate) fn meta_root(&self) -> Option<MetaNode> {
        self.core.commit_state.lock().last.as_ref().map(|root| MetaNode::root(root.meta))
    }

    /// Reads some nodes of the meta tree from the devices, all copies: what is wrong in one is
    /// healed by reading it. Leaves, which are nearly all of them, in the order of their places and
    /// many at a time: on disks each costs a turn for each column of each copy, and where one is
    /// wrong those for the other columns and for writing it anew, and no two disks wait for each
    /// other. As many as fit into a look [scrub.1], and one by each reader at least.
    pub(crate) fn read_nodes(&self, nodes: &mut Vec<MetaNode>) -> Tally {
        let began_ns = self.core.env.clock.monotonic_ns();
        let over = || self.core.env.clock.monotonic_ns().saturating_sub(began_ns) >= STEP_NS;
        let mut leaves = Vec::new();
        while leaves.len() < STEP_NODES
            && let Some(leaf) = nodes.pop_if(|node| node.is_leaf)
        {
            leaves.push(leaf);
        }
        if leaves.is_empty() {
            let Some(node) = nodes.pop() else { return Tally::default() };
            let (tally, below) = self.read_meta(&node, None);
            nodes.extend(below);
            return tally;
        }
        leaves.sort_by_key(|leaf| leaf.pointer.copies[0]);
        let (whole, left) = (Mutex::new(Tally::default()), Mutex::new(Vec::new()));
        let share = leaves.len().div_ceil(READERS);
        let jobs = leaves.chunks(share).map(|some| -> Job<'_> {
            let (whole, left, over) = (&whole, &left, &over);
            Box::new(move || {
                for (at, leaf) in some.iter().enumerate() {
                    if at > 0 && over() {
                        left.lock().extend_from_slice(&some[at..]);
                        break;
                    }
                    let (tally, _) = self.read_meta(leaf, None);
                    whole.lock().add(tally);
                }
            })
        });
        self.core.env.tasks.run_waiting(jobs.collect());
        nodes.extend(left.into_inner());
        whole.into_inner()
    }

    /// Reads all copies of a node of the meta tree. Gives its children too, which are to be read
    /// then. It was `looked` at it perhaps.
    pub(crate) fn read_meta(&self, node: &MetaNode, looked: Option<Looked>) -> (Tally, Vec<MetaNode>) {
        let pointer = &node.pointer;
        let (tally, right) = looked.unwrap_or_else(|| self.look_at(pointer));
        if node.is_leaf && tally.lost == 0 {
            return (tally, Vec::new());
        }
        let keys = self.core.sealing.as_ref().map(|sealing| Arc::clone(&sealing.keys));
        let context =
            ReadContext { dataset: DatasetId(0), family: DatasetId(0), keys: keys.as_deref(), cache: false };
        let opened = right.and_then(|bytes| self.core.blockio.open_read(bytes, pointer, &context));
        // Notes damage. A node that was replaced meanwhile is found nowhere; the new one was
        // written since.
        let opened = opened.or_else(|| self.ask_for_scan(|| self.core.blockio.read(pointer, &context)));
        let Some(Ok(node)) = opened.as_ref().map(|bytes| Node::decode(bytes)) else {
            return (tally, Vec::new());
        };
        if node.level() == 0 {
            return (tally, Vec::new());
        }
        let is_leaf = node.level() == 1;
        let children = node.entries().filter_map(|entry| BlockPointer::decode(entry.value).ok());
        (tally, children.map(|pointer| MetaNode { pointer, is_leaf }).collect())
    }

    /// Datasets that the last scrub left out, because their keys were not loaded.
    pub(crate) fn scrub_left_out(&self) -> Vec<String> {
        let left_out = |scan: &Scan| scan.walk.as_ref().map(|walk| self.left_out(walk)).unwrap_or_default();
        self.ask_scan(|scan| scan.as_ref().map(left_out).unwrap_or_default(), |told| told.left_out.clone())
    }

    /// Asks the scan; or its last progress, while a batch is under way [scrub.6].
    fn ask_scan<R>(
        &self,
        of_scan: impl FnOnce(&Option<Scan>) -> R,
        of_told: impl FnOnce(&ScanProgress) -> R,
    ) -> R {
        loop {
            if let Some(told) = self.scans.progress.lock().as_ref() {
                return of_told(told);
            }
            // A longer holder of the lock reports progress first.
            if let Some(scan) = self.scans.scan.try_lock_for(TOLD_SOON) {
                return of_scan(&scan);
            }
        }
    }

    /// Publishes the progress of the scan, to be read while a batch runs.
    fn tell_scan(&self, scan: &Scan) {
        let left_out = scan.walk.as_ref().map(|walk| self.left_out(walk)).unwrap_or_default();
        *self.scans.progress.lock() = Some(ScanProgress { row: scan.row, pass: scan.pass, left_out });
    }

    /// The next segments to be mended together, with their checksums.
    fn next_batch(
        &self,
        scan: &mut Scan,
        small: bool,
    ) -> Result<Vec<(SegmentId, Vec<[u8; Checksums::SIZE]>)>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let most = if small { 1 } else { scan.batch_bytes };
        while bytes < most {
            let Some(id) = scan.queue.as_mut().and_then(VecDeque::pop_front) else { break };
            let fitted = self.core.space.fit(id)?;
            if fitted.complete && scan.row.kind == ScanKind::Resilver {
                continue;
            }
            bytes += self.core.space.stored_bytes(id);
            let sums = match fitted.sums {
                Some(sums) => sums,
                None => self.ask_alone(|| self.checksums_of(id))?,
            };
            batch.push((id, sums));
        }
        Ok(batch)
    }

    /// The scan as it is.
    pub(crate) fn scan_status(&self) -> Option<ScanRow> {
        self.ask_scan(|scan| scan.as_ref().map(|scan| scan.row), |told| Some(told.row))
    }

    /// The pass of the scan.
    pub(crate) fn scan_pass(&self) -> ScanPass {
        self.ask_scan(|scan| scan.as_ref().map(|scan| scan.pass).unwrap_or_default(), |told| told.pass)
    }

    /// The last scan, the last move, and devices that leave, as the root has them.
    pub(crate) fn load_scans(&self, pool: &str) -> Result<()> {
        let read = |key: MetaKey, what| -> Result<Option<Scan>> {
            let Some(value) = self.core.meta.get(&key.encode())? else { return Ok(None) };
            let row = ScanRow::decode(&value).map_err(|source| self.core.corrupt(pool, what, source))?;
            let mut scan = Scan::new(row);
            scan.goes_on(self.core.now_ns());
            Ok(Some(scan))
        };
        *self.scans.scan.lock() = read(MetaKey::Scan, "the last scan")?;
        *self.moves.job.lock() = read(MetaKey::Move, "the last move")?;
        if let Some(value) = self.core.meta.get(&MetaKey::Parity.encode())? {
            let standing = ParityStanding::decode(&value);
            let standing = standing.map_err(|source| self.core.corrupt(pool, "parity standing", source))?;
            // Of a parity device it tells of that.
            self.scans.audited.lock().last = Some(standing).filter(|standing| standing.device == 0);
        }
        for leaf in self.leaves().iter().filter(|leaf| leaf.config().state == LeafState::Leaving) {
            self.core.space.set_leaving(leaf.id(), true);
            self.topology.replacing.lock().push(leaf.id());
        }
        Ok(())
    }
}
