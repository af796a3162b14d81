//! # Commit
//!
//! The counterpart of ZFS's `spa_sync`.
//!
//! One thread per pool closes transaction groups and makes each durable in one step.
//!
//! ## Order
//! As in docs/DESIGN.md, chapter 7.
//!
//! ```text
//!  - early        while there is nothing to commit: complete records compressed, sealed, hashed,
//!                 appended (`dataset::early`)
//!  0 flush ahead  dirty inodes into names trees, beside operations, so that little is left for 1
//!  1 freeze       exclusive moment: dirty inodes into names trees, dirty maps swapped, names trees
//!                 snapshotted
//!  2 datasets     records compressed, sealed, hashed, appended; extents trees; names trees
//!                                                                                    → new roots
//!  3 cleaner      frees about as much as 2 appended, more if slots are short, less if many are
//!                 free; its changes of the segment table go into the meta tree at once, so that
//!                 the nodes are counted
//!  4 meta tree    dataset rows, properties, history, segment and relocation rows     → meta root
//!  5 tail         rows of Pool segments and other changes of 4; next ids
//!  6 segments     pending bytes of open segments to the devices, then flush           [commit.3]
//!  - early        beside 6 to 8, on stores of whole objects: complete records of the open txg
//!                 (`Syncer::beside_early`)                                           [commit.9]
//!  7 uberblock    label copies 0 and 2, flush, copies 1 and 3, flush
//!  8 anchor       the register moves on, if the pool has one              [anchor.1], [anchor.3]
//!  9 release      slots emptied in this txg may live again; waiters wake
//! ```
//!
//! ## Invariants
//! [commit.2] No block reachable from the last committed txg is overwritten: slots emptied in T are
//!      handed out only after `Space::committed`, step 9.
//! [commit.3] The uberblock of T is written after every block born in T is durable: step 6 flushes
//!      before step 7 begins.
//! [commit.8] A device that fails in 6 lacks content that rows in the tail say it holds, and no
//!      checksum tells. So labels say that it is out of use before a root names them. They carry
//!      the number of this txg, so that its own older label counts for nothing.
//!      `write_txg`
//! [commit.9] What is stored early beside the commit of T is of T + 1, and goes into segments that
//!      no row of T names: it begins when the segments of T were handed over whole, and has ended
//!      before step 9.
//!      test: `content_is_stored_while_the_commit_before_waits_for_its_store`
//! [commit.7] Uberblocks form a chain: each carries the tag of the one it replaces.
//!      `write_uberblocks`
//!
//! ## What a crash does
//! A store of whole objects gets no uberblock in 7 if the pool has an anchor (`stores.rs`).
//!
//! Before 7: the last uberblock still names txg T-1; the writes of T are in slots that no row of
//! T-1 names, or behind the fill marks of T-1. During 7: a slot of the ring is torn, fails its tag,
//! and import takes another copy, or T-1. After the first flush of 7: T. With an anchor: T once the
//! register has moved, T-1 until then (`anchor.rs`).
//!
//! ## What a fault does
//! After an error in 2 to 8 it is not known which writes reached the devices. The pool is
//! suspended: nothing more is written, waiters get the error, reads go on. The way out is export
//! and import. A panic of the sync task does the same. A write that finds the host's file system
//! full is repeated until there is room ([`steadfast_device::DeviceWait`]): the commit waits in it,
//! and the pool is suspended meanwhile. A transfer that finds a store of objects away is repeated
//! until the store answers; clients go on meanwhile, as far as memory has room.

use crate::commit::jobs::{self, DISCARDS_PER_COMMIT};
use crate::commit::stores::StoreDuties;
use crate::core::state::Core;
use crate::core::state::Watch;
use crate::datasets::state::Datasets;
use crate::devices::state::Devices;
use crate::log::state::Zil;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use steadfast_anchor::Root;
use steadfast_blockio::{BlockWrite, WriteContext};
use steadfast_dataset::{Attempts, Dataset, EARLY_STEP_BYTES};
use steadfast_env::insist::insisting;
use steadfast_env::{Bug, Job};
use steadfast_format::{
    BlockKind, BlockPointer, DeadRange, LogStart, ManifestWriter, MetaKey, PoolState, Txg, Uberblock,
    meta_keys,
};
use steadfast_segment::{CommitRoom, Handed};
use steadfast_txg::{CloseRule, Commits, Moment, Space as _};

use crate::core::error::{Error, Result};
use crate::core::events::{self, EventKind};
use crate::core::history;
use crate::core::rows;
use crate::core::state::CommitState;

/// Slots that a pool at work leaves as they are: it is about to use them again.
const DISCARDS_KEPT: usize = 16;
/// How often memory that nobody wants is given back, a part each time.
const TRIM_NS: u64 = 20_000_000_000;
/// Cleaning commits in a row that gain no slot before the cleaner is taken to have nothing left to
/// give.
const FUTILE_COMMITS_MAX: u32 = 50;

/// Content is stored early beside a commit that waits for a store while less is on its way than
/// the devices take in a quarter of a second: so many times [`Pace::bytes`], within bounds.
///
/// [`Pace::bytes`]: steadfast_segment::Pace::bytes
const AHEAD_PACES: u64 = 12;
const AHEAD_BYTES: RangeInclusive<u64> = 12 << 20..=64 << 20;
/// Pause between two looks for such content: puts that end are not told of.
const AHEAD_PAUSE: Duration = Duration::from_millis(5);

/// Tells, however it ends, that a commit waits no more.
struct Ended<'a>(&'a AtomicBool, &'a Commits);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.nudge();
    }
}

/// State of the sync loop between turns.
pub(crate) struct Turn {
    /// When the last commit ended.
    committed_ns: u64,
    /// When memory that was kept for buffers was last given back.
    trimmed_ns: u64,
    /// Cleaning commits that follow each other without a slot gained. Near 100 % full one may gain
    /// a part of a slot.
    futile_commits: u32,
}

impl Turn {
    /// Notes whether a commit gained slots. Where there is nothing to clean no later commit gains
    /// anything either, and a caller that waits for one waits in vain.
    fn note_gain(&mut self, gained: bool, cleaning: bool, is_barren: bool) {
        let barren = !gained && !cleaning && is_barren;
        self.futile_commits = match self.futile_commits {
            count if barren => (count + 1).min(FUTILE_COMMITS_MAX),
            count if cleaning && !gained => count + 1,
            _ => 0,
        };
    }
}

/// Next step of the sync loop.
pub(crate) enum Next {
    /// Looks again.
    Again,
    /// Sleeps, at most so long, and not once this txg is requested. `None`: nothing is committed.
    Park(Option<Txg>, Duration),
    /// Ends.
    Stop,
}

/// The sync task: it closes txgs and makes them durable (ZFS: `txg_sync_thread` and `spa_sync`).
pub(crate) struct Syncer {
    pub core: Arc<Core>,
    pub devices: Arc<Devices>,
    pub zil: Arc<Zil>,
    pub datasets: Arc<Datasets>,
    pub stores: StoreDuties,
}

/// A txg that was closed.
struct Closed {
    txg: Txg,
    /// Operations that deleted, up to its end.
    removes: u64,
    /// Where the log goes on behind it.
    log: LogStart,
    /// Open datasets that the close froze.
    heads: Vec<Arc<Dataset>>,
}

impl Syncer {
    /// Body of the sync task: decides, commits, until told to stop.
    pub(crate) fn sync_loop(&self) {
        let _watch = Watch(&self.core, "sync");
        let mut turn = self.first_turn();
        loop {
            let next = self.turn(&mut turn);
            self.core.txgs.commits.tell();
            match next {
                Next::Again => {}
                Next::Park(open, patience) => self.core.txgs.commits.park(open, patience),
                Next::Stop => return,
            }
        }
    }

    /// A sync loop that begins.
    pub(crate) fn first_turn(&self) -> Turn {
        let now = self.core.env.clock.monotonic_ns();
        Turn { committed_ns: now, trimmed_ns: now, futile_commits: 0 }
    }

    /// One look of the sync loop: commits if it is time to, and takes a step of the jobs that are
    /// due.
    pub(crate) fn turn(&self, turn: &mut Turn) -> Next {
        // A commit cannot be taken back, so all that it reads and writes waits for a store.
        insisting(|| self.look(turn))
    }

    fn look(&self, turn: &mut Turn) -> Next {
        let rule = CloseRule::default();
        let open = self.core.txgs.gate.open_txg();
        // A commit that may not clean gains nothing, and costs what the budget is to keep.
        let cleaning =
            turn.futile_commits < FUTILE_COMMITS_MAX && self.may_clean() && self.core.space.needs_cleaning();
        let now_ns = self.core.env.clock.monotonic_ns();
        let first = self.stores.first_in(now_ns);
        let is_first_due = first.is_some_and(|pause| pause.is_zero());
        let moment = Moment {
            now_ns,
            changed_ns: self.core.changed_since_ns(turn.committed_ns),
            fullness: self.core.txgs.budget.fullness(),
            requested: self.core.txgs.commits.is_requested(open) || cleaning || is_first_due,
        };
        let is_suspended = self.run(jobs::BEFORE_COMMIT).is_suspended;
        if !is_suspended && rule.decide(&moment).is_some() {
            let before = self.core.space.gains();
            self.commit_or_suspend();
            let after = self.core.space.gains();
            self.run(jobs::AFTER_COMMIT);
            turn.note_gain(after.0 > before.0 || after.1 > before.1, cleaning, self.core.space.is_barren());
            let is_stalled = turn.futile_commits >= FUTILE_COMMITS_MAX;
            self.core.admission.stalled.store(is_stalled, Ordering::Relaxed);
            turn.committed_ns = self.core.env.clock.monotonic_ns();
            return Next::Again;
        }
        if self.core.is_stopping() {
            return Next::Stop;
        }
        let pause = self.run(jobs::IDLE).pause;
        if pause == Some(jobs::NOW) {
            return Next::Again;
        }
        if moment.now_ns.saturating_sub(turn.trimmed_ns) >= TRIM_NS {
            turn.trimmed_ns = moment.now_ns;
            steadfast_device::pages::trim();
        }
        let first = first.filter(|_| !is_suspended);
        let patience = first.into_iter().fold(rule.patience(&moment), Duration::min);
        let awaited = (!is_suspended).then_some(open);
        Next::Park(awaited, pause.map_or(patience, |pause| patience.min(pause)))
    }

    /// Commits; if that fails, suspends the pool. One that takes long is noted.
    fn commit_or_suspend(&self) {
        let began_ns = self.core.env.clock.monotonic_ns();
        if let Err(error) = self.commit() {
            self.core.note_overtaken(&error);
            self.core.suspend_because(&self.stores.reason(&error));
            // It looks for the host that took over.
            self.stores.wake();
        }
        let nanos = self.core.env.clock.monotonic_ns().saturating_sub(began_ns);
        if u128::from(nanos) >= events::STALL.as_nanos() {
            self.core.events.note(EventKind::Stall { txg: self.core.txgs.commits.committed(), nanos });
        }
    }

    /// Makes everything done so far durable. For the sync task, and for create and export when it
    /// does not run.
    pub(crate) fn commit(&self) -> Result<()> {
        let _turn = self.core.sync_turn.lock();
        // Before anything is taken that it counts.
        let owes = self.datasets.is_owing();
        let _freeing = self.datasets.freeing.begin(owes);
        self.core.health.changed.clear();
        self.zil.settle_logs();
        self.devices.note_given_up();
        self.devices.finish_leaving();
        self.zil.move_log_away();
        // 1
        let Closed { txg, removes, log, heads } = self.close_txg()?;
        let (begun_ns, before) = (self.core.env.clock.monotonic_ns(), self.device_bytes());
        self.write_txg(txg, log, &heads)?;
        self.core
            .throttle
            .pace
            .observe(self.device_bytes() - before, self.core.env.clock.monotonic_ns() - begun_ns);
        self.core.admission.removes_committed.store(removes, Ordering::Relaxed);
        let owing = heads.iter().any(|head| head.owes_frees());
        self.core
            .admission
            .freeing
            .store(owing || self.datasets.destroying.load(Ordering::Relaxed), Ordering::Relaxed);
        let cost = self.core.txgs.budget.reserved_in(txg);
        if cost.space > 0 {
            let need = cost.space.saturating_add(self.core.admission.overhead(cost.blocks));
            let thousandths = u128::from(need) * 1000 / u128::from(cost.space);
            self.core
                .throttle
                .need_thousandths
                .store(u64::try_from(thousandths).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        // Before the waiting tasks wake.
        self.datasets.update_quotas(Some(txg));
        self.core.txgs.budget.release(txg);
        self.core.update_limits();
        // First, so that a task that waited for this commit finds the log.
        self.zil.begin_log(txg);
        self.stores.committed();
        self.devices.parity_committed(cost.space > 0 || owes);
        self.core.txgs.commits.note_committed(txg);
        Ok(())
    }

    /// Closes the open txg: the exclusive holder of the gate sees whole operations only. The list
    /// of open datasets is taken in that moment, too: one that was opened during the early flush
    /// has operations of the txg that closes, and a task that waits for this txg waits for these.
    fn close_txg(&self) -> Result<Closed> {
        let mut attempts = Attempts::new();
        loop {
            for head in self.core.heads() {
                head.flush_ahead()?;
            }
            // Nothing is read in the moment at which nobody is let in: what is missing is read
            // outside, and the moment sought again.
            let closed = attempts.attempt(|| {
                let mut failed = Ok(());
                let closed = self.core.txgs.gate.try_advance(|txg| {
                    // The gate must not wait for the table: a task that holds the table may wait
                    // for the gate.
                    let heads = self.datasets.table.try_read()?.open_heads();
                    failed = heads.iter().try_for_each(|head| head.flush_rest());
                    failed.as_ref().ok()?;
                    heads.iter().for_each(|head| head.freeze_flushed(txg));
                    let removes = self.core.admission.removes.load(Ordering::Relaxed);
                    Some(Closed { txg, removes, log: self.zil.log.head(), heads })
                });
                failed.map(|()| closed)
            });
            match closed {
                Some(Ok(Some(closed))) => return Ok(closed),
                Some(Ok(None)) => drop(self.datasets.table.read()),
                Some(Err(error)) => return Err(error.into()),
                None => attempts.read(),
            }
        }
    }

    /// Stores some content of the open txg that is not going to change, as far as one can tell, so
    /// that its commit has less to do. True if there was some. Not in a world of one processor,
    /// whose order is to be repeatable beside a task.
    pub(crate) fn write_early(&self) -> bool {
        if !self.stores_early() {
            return false;
        }
        let _turn = self.core.sync_turn.lock();
        // The txg cannot close meanwhile: only the holder of the turn closes it.
        let open = self.core.txgs.gate.open_txg();
        let mut stored = false;
        for head in self.core.heads() {
            // Errors are ignored here: the commit meets the same fault and reports it.
            stored |= head.write_early(open).unwrap_or(false);
        }
        stored
    }

    fn stores_early(&self) -> bool {
        !self.core.env.tasks.is_concurrent() || self.core.env.tasks.parallelism() > 1
    }

    /// Makes all devices' writes durable.
    fn flush_devices(&self) -> Result<()> {
        match self.core.space.flush_devices() {
            Err(_) if self.core.env.has_bug(Bug::FlushErrorSwallowed) => Ok(()),
            result => Ok(result?),
        }
    }

    /// Bytes read and written since import.
    fn device_bytes(&self) -> u64 {
        self.core.space.device_counts().values().map(|counts| counts.read_bytes + counts.written_bytes).sum()
    }

    /// Bytes, with metadata beyond its slots, that operations of later txgs than `txg` have
    /// reserved or may still reserve before it is committed. Metadata that `txg` needs is not
    /// subtracted: two txgs together need less overhead than each alone.
    fn promised_beside(&self, txg: Txg) -> u64 {
        let budget = &self.core.txgs.budget;
        let reserved = budget.reserved();
        let need = reserved.space.saturating_add(self.core.admission.overhead(reserved.blocks));
        budget.limits().space.max(need).saturating_sub(budget.reserved_in(txg).space)
    }

    /// Divides among the datasets what this commit may free of what was cut or destroyed.
    /// [commit_room.2]
    fn share_frees(&self, heads: &[Arc<Dataset>]) {
        let share = self.core.frees_max().div_ceil(heads.len().max(1));
        heads.iter().for_each(|head| head.set_frees_room(share));
    }

    /// Puts what changed of the segment table into the meta tree.
    fn note_table(&self, changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<()> {
        let forgets = self.core.env.has_bug(Bug::RelocationLost);
        let mut shrunk = BTreeSet::new();
        for (key, value) in changes {
            if value.is_none()
                && let Some(MetaKey::Segment(id) | MetaKey::Relocation(id, _)) = MetaKey::decode(&key)
            {
                shrunk.insert(id);
            }
            if forgets && key[0] == meta_keys::RELOCATION {
                continue;
            }
            match value {
                Some(value) => self.core.meta.insert(&key, &value)?,
                None => self.core.meta.remove(&key)?,
            };
        }
        if self.core.manifests.any() {
            self.core.manifests.prune(&shrunk, &self.core.space)?;
        }
        Ok(())
    }

    /// False if cleaning can wait, and has to as it costs.
    fn may_clean(&self) -> bool {
        !self.core.is_sparing() || self.core.space.must_clean()
    }

    /// The cleaner's part of a commit. Changes of the segment table go into the meta tree at once,
    /// so that the nodes to be written are counted while the cleaner works.
    fn clean(&self, txg: Txg, elapsed_ns: u64) -> Result<()> {
        // Segments that become garbage meanwhile are remembered, and cleaned later.
        if !self.may_clean() {
            return Ok(());
        }
        let geometry = self.core.space.geometry();
        let mut noted = Ok(());
        let mut count = || {
            noted = self.note_table(rows::items(&self.core.space.table_changes()).collect());
            let stored = |bytes| CommitRoom::stored_node(bytes, geometry);
            noted.is_ok().then(|| self.core.meta.unwritten_bytes(stored))
        };
        let budget = self.core.throttle.pace.budget(elapsed_ns);
        let report = self.core.space.clean(budget, self.promised_beside(txg), &mut count)?;
        if report.segments_unreadable > 0 {
            self.devices.begin_search();
        }
        noted
    }

    fn write_txg(&self, txg: Txg, log: LogStart, heads: &[Arc<Dataset>]) -> Result<()> {
        // Nothing is written for a pool that another daemon has taken over, not even where it seems
        // free. On stores of objects alone no place seems free: what a writer puts that has lost
        // the pool is garbage under its own epoch, and the look behind the root decides [stores.3].
        if self.core.anchor().is_some() || !self.core.space.is_all_objects() {
            self.core.check_ours()?;
        }
        let begun_ns = self.core.env.clock.monotonic_ns();
        self.core.syncing.store(txg.0, Ordering::Release);
        let mut state = self.core.commit_state.lock();
        let mut labels = self.devices.labels_due.look();

        // 2
        self.datasets.set_pool_copies();
        self.share_frees(heads);
        self.core.count_shares(heads);
        let mut results = Vec::new();
        for head in heads {
            results.push((head.id(), head.sync(txg)?));
        }
        self.datasets.destroy_step(txg)?;
        {
            let _figures = self.datasets.figures.write();
            results.iter().for_each(|(id, result)| self.datasets.take_result(*id, result));
            self.datasets.note_cells()?;
            self.datasets.take_asked(txg);
        }
        // A snapshot may be destroyed at any moment of this: what was let go while it was there is
        // in its cells before they are freed.
        if self.datasets.free_dead()? {
            self.datasets.destroying.store(true, Ordering::Relaxed);
        }
        if let Some(old) = state.tail.take()
            && !self.core.env.has_bug(Bug::TailLeaked)
        {
            self.core.blockio.free(&old);
        }
        self.core.references.write()?;
        self.core.manifests.write(&self.core.space, self.core.env.has_bug(Bug::BlockUnlisted))?;
        // 3
        let mut items = self.table_items(txg);
        items.extend(self.core.checkpoint_item());
        self.note_table(items)?;
        self.pack_tables();
        self.clean(txg, self.core.env.clock.monotonic_ns() - begun_ns)?;
        self.zil.reserve_log();
        let log = self.zil.log_head(log);
        // 4
        self.core.space.seal_rows()?;
        self.note_table(rows::items(&self.core.space.table_changes()).collect())?;
        let snapshot = self.core.meta.snapshot();
        let meta = self.core.meta.sync(&snapshot)?.expect("the meta tree holds the root dataset");
        // 5
        let tail = self.write_tail(txg)?;
        // 6, before any uberblock names what was written [commit.3]
        let early = self.core.env.has_bug(Bug::RootBeforeData);
        let handed = if early { None } else { Some(self.core.space.hand_over()?) };
        let root = &mut *state;
        self.beside_early(|| self.write_root(root, txg, &mut labels, handed, (meta, tail, log)))?;
        self.zil.logs_settled();
        if early {
            self.core.space.flush_open()?;
        }
        state.tail = Some(tail);
        if let Some(marks) = labels {
            match self.devices.write_labels(state.state, txg) {
                // The next commit gives the device up and writes them [log_device.3].
                Err(Error::LogUnfit { .. }) => {}
                written => {
                    written?;
                    self.devices.labels_due.written(marks);
                    self.devices.erase_departed();
                }
            }
        }
        // 9
        self.core.space.discard(DISCARDS_PER_COMMIT, DISCARDS_KEPT);
        self.core.space.committed();
        self.core.keep_wished(state.last.as_ref())?;
        if self.devices.may_finish_leaving() {
            // The labels say so with the next commit, for which this is reason enough.
            self.core.health.changed.note();
            self.core.txgs.commits.request_sync(self.core.txgs.gate.open_txg());
        }
        Ok(())
    }

    /// Steps 6 to 8, once the segments of this txg are on their way.
    fn write_root(
        &self,
        state: &mut CommitState,
        txg: Txg,
        labels: &mut Option<u64>,
        handed: Option<Handed>,
        (meta, tail, log): (BlockPointer, BlockPointer, Option<LogStart>),
    ) -> Result<()> {
        if let Some(handed) = handed {
            self.core.space.finish_uploads(handed)?;
        }
        let hasty = self.core.env.has_bug(Bug::NoFlushBeforeRoot) || self.core.env.has_bug(Bug::AnchorEarly);
        if handed.is_some() && !hasty {
            self.flush_devices()?;
        }
        // [commit.8] Labels that list fewer devices than the root before counts would make that
        //      root unreadable, so they wait for this one.
        let is_counted =
            state.last.as_ref().is_some_and(|last| last.devices as usize == self.devices.leaves().len());
        let given_up = self.devices.fault_given_up();
        if given_up {
            *labels = Some(self.devices.labels_due.mark());
        }
        if given_up && is_counted {
            match self.devices.write_labels(PoolState::Active, txg) {
                Err(Error::LogUnfit { .. }) => {}
                written => written?,
            }
        }
        if self.core.env.has_bug(Bug::SlotReusedEarly) {
            self.core.space.committed();
            self.core.space.discard_all();
        }
        // 7, 8
        self.write_uberblocks(state, txg, meta, tail, log)
    }

    /// Waits for devices with `commit`, and meanwhile stores content of the open txg early, so that
    /// the way to a store does not lie idle until the next commit has something for it
    /// [commit.9]. It stores ahead what keeps that way busy and no more: what is on its way
    /// before the root delays it. Devices that are appended to are waited for only shortly.
    fn beside_early(&self, commit: impl FnOnce() -> Result<()> + Send) -> Result<()> {
        let tasks = &self.core.env.tasks;
        if !self.core.space.is_all_objects() || !self.stores_early() || self.core.is_stopping() {
            return commit();
        }
        let open = self.core.txgs.gate.open_txg();
        let ahead =
            (AHEAD_PACES * self.core.throttle.pace.bytes()).clamp(*AHEAD_BYTES.start(), *AHEAD_BYTES.end());
        let has_ended = AtomicBool::new(false);
        // The commit must not wait for it: it asks before each step of a dataset, and begins none
        // for which an append could wait for a put.
        let may_store = || {
            let space = &self.core.space;
            let step = 2 * EARLY_STEP_BYTES + u64::from(space.geometry().slot_size);
            !has_ended.load(Ordering::Acquire) && space.upload_bytes() < ahead && space.has_upload_room(step)
        };
        let store = || {
            let mut stored = false;
            for head in self.core.heads() {
                stored |= may_store() && head.write_early(open).unwrap_or(false);
            }
            stored
        };
        if !tasks.waits_beside() {
            // A world that repeats: in every order that could be, early content comes first.
            store();
            return commit();
        }
        let outcome = Mutex::new(None);
        let jobs: Vec<Job<'_>> = vec![
            Box::new(|| {
                let _ended = Ended(&has_ended, &self.core.txgs.commits);
                let committed = commit();
                *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(committed);
            }),
            Box::new(|| {
                while !has_ended.load(Ordering::Acquire) {
                    if !store() {
                        self.core.txgs.commits.park(None, AHEAD_PAUSE);
                    }
                }
            }),
        ];
        tasks.run_waiting(jobs);
        outcome.into_inner().unwrap_or_else(PoisonError::into_inner).expect("a panic is passed on")
    }

    /// Rows, properties and history that changed, as items of the meta tree.
    fn table_items(&self, txg: Txg) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let mut items = BTreeMap::new();
        let mut table = self.datasets.table.write();
        // [table.6] What came when heads were frozen already is stored by the next commit.
        for (id, entry) in table.iter_mut().filter(|(_, entry)| !entry.unborn) {
            if std::mem::take(&mut entry.row_dirty) {
                items.insert(MetaKey::Dataset(id).encode(), Some(entry.row.encode()));
            }
            for name in std::mem::take(&mut entry.props_dirty) {
                let set = entry.props.get(&name).filter(|_| !entry.received.counts(&name));
                let value = set.map(|value| value.clone().into_bytes());
                items.insert(MetaKey::DatasetProperty(id, name).encode(), value);
            }
            items.extend(entry.received.take_items(id));
            for txg in std::mem::take(&mut entry.snapshots_dirty) {
                let Some(snapshot) = entry.snapshots.get_mut(&txg) else {
                    items.insert(MetaKey::Snapshot(id, txg).encode(), None);
                    continue;
                };
                items.insert(MetaKey::Snapshot(id, txg).encode(), Some(snapshot.row.encode()));
                for name in std::mem::take(&mut snapshot.props_dirty) {
                    let set = snapshot.props.get(&name).filter(|_| !snapshot.received.counts(&name));
                    let value = set.map(|value| value.clone().into_bytes());
                    items.insert(MetaKey::DatasetProperty(snapshot.row.number, name).encode(), value);
                }
                items.extend(snapshot.received.take_items(snapshot.row.number));
                for tag in std::mem::take(&mut snapshot.holds_dirty) {
                    let time = snapshot.holds.get(&tag).map(|time| time.to_le_bytes().to_vec());
                    items.insert(MetaKey::Hold(snapshot.row.number, tag).encode(), time);
                }
            }
            for name in std::mem::take(&mut entry.bookmarks_dirty) {
                let mark = entry.bookmarks.get(&name).map(steadfast_format::Bookmark::encode);
                items.insert(MetaKey::Bookmark(id, name).encode(), mark);
            }
            if std::mem::take(&mut entry.writers_dirty) {
                let writers = ManifestWriter::encode_all(&entry.writers);
                items.insert(MetaKey::ManifestWriters(id).encode(), Some(writers));
            }
            if let Some(item) = entry.receive_item(txg) {
                items.insert(MetaKey::Receive(id).encode(), item);
            }
            for after in std::mem::take(&mut entry.dead_dirty) {
                let range = entry.dead.get(&after).map(|before| DeadRange { before: *before }.encode());
                items.insert(MetaKey::DeadRange(id, after).encode(), range);
            }
        }
        for (dataset, mark) in table.take_unmarked() {
            items.insert(MetaKey::Bookmark(dataset, mark).encode(), None);
        }
        for (snapshot, tag) in table.take_released() {
            items.insert(MetaKey::Hold(snapshot, tag).encode(), None);
        }
        for (id, names) in table.take_removed() {
            items.insert(MetaKey::Dataset(id).encode(), None);
            items.insert(MetaKey::Receive(id).encode(), None);
            items.insert(MetaKey::ManifestWriters(id).encode(), None);
            for name in names {
                items.insert(MetaKey::ReceivedProperty(id, name.clone()).encode(), None);
                items.insert(MetaKey::DatasetProperty(id, name).encode(), None);
            }
        }
        drop(table);
        items.extend(self.zil.held.lock().take_items());
        items.extend(self.devices.scan_item());
        items.extend(self.devices.move_item());
        items.extend(self.devices.parity_item());
        let mut props = self.core.props.write();
        for name in std::mem::take(&mut props.dirty) {
            let value = props.values.get(&name).map(|value| value.clone().into_bytes());
            items.insert(MetaKey::PoolProperty(name).encode(), value);
        }
        drop(props);
        let mut history = self.core.history.lock();
        history.storing = std::mem::take(&mut history.pending);
        for mut entry in history.storing.clone() {
            entry.txg = txg;
            items.insert(MetaKey::History(history.next).encode(), Some(entry.encode()));
            if history.next >= history::KEPT {
                items.insert(MetaKey::History(history.next - history::KEPT).encode(), None);
            }
            history.next += 1;
        }
        items
    }

    fn write_tail(&self, txg: Txg) -> Result<BlockPointer> {
        let next = rows::NextIds {
            dataset: self.datasets.table.read().next_id(),
            history: self.core.history.lock().next,
        };
        let data = rows::tail_of(self.core.space.tail()?, txg, next).encode();
        let context = WriteContext::of_pool(txg, self.core.sealing.as_ref().map(|sealing| &*sealing.keys));
        Ok(self.core.blockio.write(&context, BlockWrite::new(BlockKind::Tail, 0, data))?)
    }

    fn write_uberblocks(
        &self,
        state: &mut CommitState,
        txg: Txg,
        meta: BlockPointer,
        tail: BlockPointer,
        log: Option<LogStart>,
    ) -> Result<()> {
        let place = |copy: usize| {
            let address = tail.copies[copy];
            let place = || self.core.space.place_of(address.segment).expect("the tail's segment has a row");
            address.is_some().then(place)
        };
        let leaves = self.devices.leaves();
        let uberblock = Uberblock {
            keyed: self.core.sealing.is_some(),
            pool: self.core.identity.guid,
            txg,
            time_ns: self.core.now_ns(),
            devices: u32::try_from(leaves.len()).expect("at most 255"),
            meta,
            tail,
            tail_places: [place(0), place(1)],
            parent: state.tag,
            anchor: if state.retiring { 0 } else { self.core.anchor().map_or(0, |anchor| anchor.next_seq()) },
            log,
        };
        let bytes = uberblock.encode(|bound| self.tag(bound));
        let (_, tag) = Uberblock::bound_and_tag(&bytes).expect("just encoded");
        // [stores.1] The root of an anchored pool is in the anchor; stores get a copy afterwards.
        let is_anchored = self.core.anchor().is_some() && !state.retiring;
        for copies in [[0, 2], [1, 3]] {
            self.devices.on_leaves(|leaf| {
                if is_anchored && leaf.device.objects().is_some() {
                    return Ok(());
                }
                copies.iter().try_for_each(|&copy| leaf.device.write_uberblock(copy, txg, &bytes))
            })?;
            if !self.core.env.has_bug(Bug::NoFlushAfterRoot) && !self.core.env.has_bug(Bug::AnchorEarly) {
                self.flush_devices()?;
            }
        }
        if !is_anchored {
            // [stores.3] Before anybody hears that the commit is durable.
            self.core.check_ours()?;
        }
        let retiring = std::mem::take(&mut state.retiring);
        if let Some(anchor) = self.core.anchor() {
            anchor.note_parity(self.devices.parity_pass());
        }
        self.move_anchor(Root { uberblock: uberblock.clone(), tag }, retiring)?;
        if self.core.env.has_bug(Bug::AnchorEarly) {
            self.flush_devices()?;
        }
        self.core.health.committed_ns.store(uberblock.time_ns, Ordering::Release);
        (state.tag, state.last) = (tag, Some(uberblock));
        Ok(())
    }

    /// Tag of an uberblock: keyed if the pool is sealed.
    pub(crate) fn tag(&self, bound: &[u8]) -> [u8; 32] {
        match &self.core.sealing {
            Some(sealing) => steadfast_crypto::keyed_hash(&sealing.tag_key, bound),
            None => steadfast_crypto::hash(bound),
        }
    }
}
