//! # Commit
//!
//! The counterpart of ZFS's `spa_sync`.
//!
//! One thread per pool closes transaction groups and makes each durable in one step.
//!
//! ## Order                                                                                 (docs/DESIGN.md, chapter 7)
//! ```text
//!  - early         while there is nothing to commit: complete records compressed, sealed, hashed, appended (`dataset::early`)
//!  0 flush ahead   dirty inodes into names trees, beside operations: what is left for 1 is little
//!  1 freeze        exclusive moment: dirty inodes into names trees, dirty maps swapped, names trees snapshotted
//!  2 datasets      records compressed, sealed, hashed, appended; extents trees; names trees        → new roots
//!  3 cleaner       gives back about what 2 appended, more if slots are short, less if many are free; what changes in the
//!                  segment table goes into the meta tree at once, so that its nodes are counted
//!  4 meta tree     dataset rows, properties, history, segment and relocation rows                 → meta root
//!  5 tail          rows of Pool segments and whatever 4 changed; next ids
//!  6 segments      pending bytes of open segments to the devices, then flush                      (T3)
//!  7 uberblock     label copies 0 and 2, flush, copies 1 and 3, flush
//!  8 anchor        the register moves on, if the pool has one                              (I1, I3: `steadfast_anchor`)
//!  9 release       slots emptied in this txg may live again; waiters wake
//! ```
//!
//! ## Invariants
//! (T2) No block reachable from the last committed txg is overwritten: slots emptied in T are handed out only after
//!      `Space::committed`, step 9.
//! (T3) The uberblock of T is written after every block born in T is durable: step 6 flushes before step 7 begins.
//! (T8) A device that fails in 6 lacks what rows in the tail say it holds, and no checksum tells: labels say that it is out of use before
//!      a root names them. It is written the txg's number, so that its own older label counts for nothing.   `write_txg`
//! (T7) Uberblocks form a chain: each carries the tag of the one it replaces.        `write_uberblocks`
//!
//! ## What a crash does
//! Before 7: the last uberblock still names txg T-1; what T wrote is in slots that no row of T-1 names, or behind the
//! fill marks of T-1. During 7: a slot of the ring is torn, fails its tag, and import takes another copy, or T-1.
//! After the first flush of 7: T. With an anchor: T once the register has moved, T-1 until then (`anchor.rs`).
//!
//! ## What a fault does
//! Any error in 2 to 8 leaves the extent of what reached the devices unknown: the pool is suspended, nothing more is
//! written, waiters get the error, reads go on. The way out is export and import. A panic of the sync task does the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use steadfast_anchor::Root;
use steadfast_blockio::{BlockWrite, WriteContext};
use steadfast_dataset::Dataset;
use steadfast_device::Device;
use steadfast_env::Bug;
use steadfast_format::{
    BlockKind, BlockPointer, DeadRange, LogStart, ManifestWriter, MetaKey, PoolState, Txg, Uberblock,
    meta_keys,
};
use steadfast_segment::CommitRoom;
use steadfast_txg::{CloseRule, Moment, Space as _};

use crate::core::error::{Error, Result};
use crate::core::events::{self, EventKind};
use crate::core::history;
use crate::core::inner::{CommitState, Inner, Leaf};
use crate::core::rows;
use crate::devices::grow::give_back;

/// Slots discarded in one commit, and in one look of a sync loop with nothing else to do.
const DISCARDS_PER_COMMIT: usize = 32;
/// Slots that a pool at work leaves as they are: it is about to use them again.
const DISCARDS_KEPT: usize = 16;
/// Pause between looks while there are slots to discard.
const IDLE_PAUSE: Duration = Duration::from_millis(20);
/// How often memory that nobody wants is given back, a part each time.
const TRIM_NS: u64 = 20_000_000_000;
/// Blocks that a commit frees of what was cut or destroyed however little room there is, if cleaning gives back none.
const FREES_LEAST: usize = 16;
/// Cleaning commits in a row that gain no slot before the cleaner is taken to have nothing left to give.
const FUTILE_COMMITS_MAX: u32 = 50;

/// What the sync loop remembers from one look to the next.
pub(crate) struct Turn {
    /// When the open txg was opened.
    opened_ns: u64,
    /// When memory that was kept for buffers was last given back.
    trimmed_ns: u64,
    /// Cleaning commits that follow each other without a slot gained. Near 100 % full one may gain a part of a slot.
    futile_commits: u32,
}

/// What the sync loop does next.
pub(crate) enum Next {
    /// Looks again.
    Again,
    /// Sleeps, at most so long.
    Park(Txg, Duration),
    /// Ends.
    Stop,
}

/// A txg that was closed.
struct Closed {
    txg: Txg,
    /// Operations that deleted, up to its end.
    removes: u64,
    /// Where the log goes on behind it.
    log: LogStart,
    /// What was frozen.
    heads: Vec<Arc<Dataset>>,
}

/// Suspends the pool if a task of it ends by a panic: nobody would ever wake those who wait for a commit, or keep the promise.
pub(crate) struct Watch<'a>(pub &'a Inner);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.suspend_because("a task of it ended by a bug; the log of the daemon tells where");
        }
    }
}

impl Inner {
    /// Body of the sync task: decides, commits, until told to stop.
    pub(crate) fn sync_loop(&self) {
        let _watch = Watch(self);
        let mut turn = self.first_turn();
        loop {
            let next = self.turn(&mut turn);
            self.txgs.commits.tell();
            match next {
                Next::Again => {}
                Next::Park(open, patience) => self.txgs.commits.park(open, patience),
                Next::Stop => return,
            }
        }
    }

    /// A sync loop that begins.
    pub(crate) fn first_turn(&self) -> Turn {
        let now = self.env.clock.monotonic_ns();
        Turn { opened_ns: now, trimmed_ns: now, futile_commits: 0 }
    }

    /// One look of the sync loop: commits if it is time to.
    pub(crate) fn turn(&self, turn: &mut Turn) -> Next {
        let rule = CloseRule::default();
        let open = self.txgs.gate.open_txg();
        let cleaning = turn.futile_commits < FUTILE_COMMITS_MAX && self.space.needs_cleaning();
        let moment = Moment {
            now_ns: self.env.clock.monotonic_ns(),
            opened_ns: turn.opened_ns,
            fullness: self.txgs.budget.fullness(),
            requested: self.txgs.commits.is_requested(open) || cleaning,
            changed: self.has_changes(),
        };
        if !self.is_suspended() {
            self.diagnose();
            if let Err(error) = self.look_after_spares() {
                self.suspend(&error);
            }
        }
        if self.is_suspended() || rule.decide(&moment).is_none() {
            if self.is_stopping() {
                return Next::Stop;
            }
            if !self.is_suspended() && self.write_early() {
                return Next::Again;
            }
            let mut patience = rule.patience(&moment);
            if !self.is_suspended() && moment.fullness == 0 {
                // A slot that is free for us may be another daemon's, if it has taken over.
                if self.space.discard(0, 0) > 0
                    && let Err(error) = self.check_anchor()
                {
                    self.suspend(&error);
                    return Next::Again;
                }
                let before = self.space.discard(0, 0);
                match self.space.discard(DISCARDS_PER_COMMIT, 0) {
                    0 => {}
                    // What the last commit freed is discarded after the next one, for which these are reason enough.
                    left if left == before => self.changed.store(true, Ordering::Release),
                    _ => patience = IDLE_PAUSE,
                }
            }
            if !self.is_suspended() {
                match self.trim_step() {
                    Ok(None) => {}
                    Ok(Some(pause)) => patience = patience.min(pause),
                    Err(error) => {
                        self.suspend(&error);
                        return Next::Again;
                    }
                }
            }
            if !self.is_suspended() {
                match self.background_step() {
                    Ok(None) => {}
                    Ok(Some(pause)) => patience = patience.min(pause),
                    Err(error) => {
                        self.suspend(&error);
                        return Next::Again;
                    }
                }
            }
            if !self.is_suspended() && self.fill_index_step() {
                patience = patience.min(IDLE_PAUSE);
            }
            if self.search_step() {
                patience = patience.min(IDLE_PAUSE);
            }
            if moment.now_ns.saturating_sub(turn.trimmed_ns) >= TRIM_NS {
                turn.trimmed_ns = moment.now_ns;
                steadfast_device::pages::trim();
            }
            return Next::Park(open, patience);
        }
        let before = self.space.gains();
        let began_ns = self.env.clock.monotonic_ns();
        if let Err(error) = self.commit() {
            self.suspend(&error);
        }
        let nanos = self.env.clock.monotonic_ns().saturating_sub(began_ns);
        if u128::from(nanos) >= events::STALL.as_nanos() {
            self.events.note(EventKind::Stall { txg: self.txgs.commits.committed(), nanos });
        }
        if !self.is_suspended() {
            let _due = self.resilver_due();
            if self.resilver_wanted.swap(false, Ordering::AcqRel) {
                self.resilver_if_needed();
            }
        }
        let after = self.space.gains();
        let gained = after.0 > before.0 || after.1 > before.1;
        if !self.is_suspended()
            && let Err(error) = self.background_step()
        {
            self.suspend(&error);
        }
        if !self.is_suspended()
            && let Err(error) = self.trim_step()
        {
            self.suspend(&error);
        }
        // Where there is nothing to clean no later commit gains anything either, and whoever waits for one waits in vain.
        let barren = !gained && !cleaning && self.space.is_barren();
        turn.futile_commits = match turn.futile_commits {
            count if barren => (count + 1).min(FUTILE_COMMITS_MAX),
            count if cleaning && !gained => count + 1,
            _ => 0,
        };
        self.admission.stalled.store(turn.futile_commits >= FUTILE_COMMITS_MAX, Ordering::Relaxed);
        turn.opened_ns = self.env.clock.monotonic_ns();
        Next::Again
    }

    /// Makes everything done so far durable. For the sync task, and for create and export when it does not run.
    pub(crate) fn commit(&self) -> Result<()> {
        let _turn = self.sync_turn.lock();
        // Before anything is taken that it counts.
        let _freeing = self.freeing.begin(self.is_owing());
        self.changed.store(false, Ordering::Release);
        self.settle_logs();
        self.note_given_up();
        self.finish_leaving();
        self.move_log_away();
        // 1
        let Closed { txg, removes, log, heads } = self.close_txg()?;
        let (begun_ns, before) = (self.env.clock.monotonic_ns(), self.device_bytes());
        self.write_txg(txg, log, &heads)?;
        self.pace.observe(self.device_bytes() - before, self.env.clock.monotonic_ns() - begun_ns);
        self.admission.removes_committed.store(removes, Ordering::Relaxed);
        let owing = heads.iter().any(|head| head.owes_frees());
        self.admission.freeing.store(owing || self.destroying.load(Ordering::Relaxed), Ordering::Relaxed);
        let cost = self.txgs.budget.reserved_in(txg);
        if cost.space > 0 {
            let need = cost.space.saturating_add(self.admission.overhead(cost.blocks));
            let thousandths = u128::from(need) * 1000 / u128::from(cost.space);
            self.need_thousandths.store(u64::try_from(thousandths).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        // Before those wake who wait for it.
        self.update_quotas(Some(txg));
        self.txgs.budget.release(txg);
        self.update_limits();
        // First, so that whoever waited for this commit finds the log.
        self.begin_log(txg);
        self.txgs.commits.note_committed(txg);
        Ok(())
    }

    /// Closes the open txg: whoever holds the gate exclusively sees whole operations only. Heads are asked for in that moment, too: one
    /// that was opened while others flushed ahead has operations of the txg that closes, and who waits for it waits for these.
    fn close_txg(&self) -> Result<Closed> {
        loop {
            for head in self.heads() {
                head.flush_ahead()?;
            }
            let closed = self.txgs.gate.try_advance(|txg| -> Option<Result<Closed>> {
                // Who has the table may wait for the gate, so the gate does not wait for the table.
                let heads = self.table.try_read()?.open_heads();
                let frozen = heads.iter().try_for_each(|head| head.freeze(txg));
                let removes = self.admission.removes.load(Ordering::Relaxed);
                let closed = Closed { txg, removes, log: self.log.head(), heads };
                Some(frozen.map(|()| closed).map_err(Error::from))
            });
            match closed {
                Some(closed) => return closed,
                None => drop(self.table.read()),
            }
        }
    }

    /// Stores some content of the open txg that is not going to change, as far as one can tell, so that its commit has less to
    /// do. True if there was some. Not in a world of one processor, whose order is
    /// to be repeatable beside a task.
    fn write_early(&self) -> bool {
        if self.env.tasks.is_concurrent() && self.env.tasks.parallelism() <= 1 {
            return false;
        }
        let _turn = self.sync_turn.lock();
        // Only who has the turn closes it.
        let open = self.txgs.gate.open_txg();
        let mut stored = false;
        for head in self.heads() {
            // What fails here is left to the commit, which meets the same fault and tells it.
            stored |= head.write_early(open).unwrap_or(false);
        }
        stored
    }

    /// Makes all devices' writes durable.
    fn flush_devices(&self) -> Result<()> {
        match self.space.flush_devices() {
            Err(_) if self.env.has_bug(Bug::FlushErrorSwallowed) => Ok(()),
            result => Ok(result?),
        }
    }

    /// Bytes read and written since import.
    fn device_bytes(&self) -> u64 {
        self.space.device_counts().values().map(|counts| counts.read_bytes + counts.written_bytes).sum()
    }

    /// Bytes, with metadata beyond its slots, that operations of later txgs than `txg` have reserved or may still reserve
    /// before it is committed. What `txg` needs of metadata is not taken off: the overhead of two is less than that of each.
    fn promised_beside(&self, txg: Txg) -> u64 {
        let budget = &self.txgs.budget;
        let reserved = budget.reserved();
        let need = reserved.space.saturating_add(self.admission.overhead(reserved.blocks));
        budget.limits().space.max(need).saturating_sub(budget.reserved_in(txg).space)
    }

    /// Divides among the datasets what this commit may free of what was cut or destroyed. [commit_room.2]
    fn share_frees(&self, heads: &[Arc<Dataset>]) {
        let share = self.frees_max().div_ceil(heads.len().max(1));
        heads.iter().for_each(|head| head.set_frees_room(share));
    }

    /// Blocks that this commit may free besides those that operations replace.
    pub(crate) fn frees_max(&self) -> usize {
        let reserved = self.txgs.budget.reserved();
        let room = self.commit_room().frees_max(reserved.space, reserved.blocks);
        // Deleting writes before it gives back, so it waits for the cleaner while that gets on.
        if self.admission.stalled.load(Ordering::Relaxed) { room.max(FREES_LEAST) } else { room }
    }

    /// Puts what changed of the segment table into the meta tree.
    fn note_table(&self, changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<()> {
        let forgets = self.env.has_bug(Bug::RelocationLost);
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
                Some(value) => self.meta.insert(&key, &value)?,
                None => self.meta.remove(&key)?,
            };
        }
        if self.manifests.any() { self.manifests.prune(&shrunk, &self.space) } else { Ok(()) }
    }

    /// The cleaner's part of a commit. What it does to the table goes into the meta tree at once, so that the nodes to be
    /// written are counted while it works.
    fn clean(&self, txg: Txg, elapsed_ns: u64) -> Result<()> {
        let geometry = self.space.geometry();
        let mut noted = Ok(());
        let mut count = || {
            noted = self.note_table(rows::items(&self.space.table_changes()).collect());
            let stored = |bytes| CommitRoom::stored_node(bytes, geometry);
            noted.is_ok().then(|| self.meta.unwritten_bytes(stored))
        };
        let budget = self.pace.budget(elapsed_ns);
        let report = self.space.clean(budget, self.promised_beside(txg), &mut count)?;
        if report.segments_unreadable > 0 {
            self.begin_search();
        }
        noted
    }

    fn write_txg(&self, txg: Txg, log: LogStart, heads: &[Arc<Dataset>]) -> Result<()> {
        // Nothing is written for a pool that another daemon has taken over, not even where it seems free.
        self.check_anchor()?;
        let begun_ns = self.env.clock.monotonic_ns();
        self.syncing.store(txg.0, Ordering::Release);
        let mut state = self.commit_state.lock();

        // 2
        self.share_frees(heads);
        self.count_shares(heads);
        let mut results = Vec::new();
        for head in heads {
            results.push((head.id(), head.sync(txg)?));
        }
        self.destroy_step(txg)?;
        {
            let _figures = self.figures.write();
            results.iter().for_each(|(id, result)| self.take_result(*id, result));
            self.note_cells()?;
            self.take_asked(txg);
        }
        // A snapshot may be destroyed at any moment of this: what was let go while it was there is in its cells before they are freed.
        if self.free_dead()? {
            self.destroying.store(true, Ordering::Relaxed);
        }
        if let Some(old) = state.tail.take()
            && !self.env.has_bug(Bug::TailLeaked)
        {
            self.blockio.free(&old);
        }
        self.references.write()?;
        self.manifests.write(&self.space, self.env.has_bug(Bug::BlockUnlisted))?;
        // 3
        self.note_table(self.table_items(txg))?;
        self.clean(txg, self.env.clock.monotonic_ns() - begun_ns)?;
        self.reserve_log();
        let log = self.log_head(log);
        // 4
        self.space.seal_rows()?;
        self.note_table(rows::items(&self.space.table_changes()).collect())?;
        let snapshot = self.meta.snapshot();
        let meta = self.meta.sync(&snapshot)?.expect("the meta tree holds the root dataset");
        // 5
        let tail = self.write_tail(txg)?;
        // 6, before any uberblock names what was written (T3)
        let early = self.env.has_bug(Bug::RootBeforeData);
        if !early {
            self.space.flush_open()?;
        }
        let hasty = self.env.has_bug(Bug::NoFlushBeforeRoot) || self.env.has_bug(Bug::AnchorEarly);
        if !early && !hasty {
            self.flush_devices()?;
        }
        // (T8) Labels that list fewer devices than the root before counts would make that root unreadable, so they wait for this one.
        let is_counted = state.last.as_ref().is_some_and(|last| last.devices as usize == self.leaves().len());
        let given_up = self.fault_given_up();
        state.labels_dirty |= given_up;
        if given_up && is_counted {
            match self.write_labels(PoolState::Active, txg) {
                Err(Error::LogUnfit { .. }) => {}
                written => written?,
            }
        }
        if self.env.has_bug(Bug::SlotReusedEarly) {
            self.space.committed();
            self.space.discard_all();
        }
        // 7, 8
        self.write_uberblocks(&mut state, txg, meta, tail, log)?;
        self.logs_settled();
        if early {
            self.space.flush_open()?;
        }
        state.tail = Some(tail);
        if state.labels_dirty {
            match self.write_labels(state.state, txg) {
                // The next commit gives the device up and writes them (D3).
                Err(Error::LogUnfit { .. }) => {}
                written => {
                    written?;
                    state.labels_dirty = false;
                    self.erase_departed();
                }
            }
        }
        // 9
        self.space.discard(DISCARDS_PER_COMMIT, DISCARDS_KEPT);
        self.space.committed();
        if self.may_finish_leaving() {
            // The labels say so with the next commit, for which this is reason enough.
            self.changed.store(true, Ordering::Release);
            self.txgs.commits.request_sync(self.txgs.gate.open_txg());
        }
        Ok(())
    }

    /// Rows, properties and history that changed, as items of the meta tree.
    fn table_items(&self, txg: Txg) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let mut items = BTreeMap::new();
        let mut table = self.table.write();
        // (D6) What came when heads were frozen already is stored by the next commit.
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
        items.extend(self.held.lock().take_items());
        items.extend(self.scan_item());
        items.extend(self.move_item());
        let mut props = self.props.write();
        for name in std::mem::take(&mut props.dirty) {
            let value = props.values.get(&name).map(|value| value.clone().into_bytes());
            items.insert(MetaKey::PoolProperty(name).encode(), value);
        }
        drop(props);
        let mut history = self.history.lock();
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
        let next = rows::NextIds { dataset: self.table.read().next_id(), history: self.history.lock().next };
        let data = rows::tail_of(self.space.tail()?, txg, next).encode();
        let context = WriteContext::of_pool(txg, self.sealing.as_ref().map(|sealing| &*sealing.keys));
        Ok(self.blockio.write(&context, BlockWrite::new(BlockKind::Tail, 0, data))?)
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
            let place = || self.space.place_of(address.segment).expect("the tail's segment has a row");
            address.is_some().then(place)
        };
        let leaves = self.leaves();
        let uberblock = Uberblock {
            keyed: self.sealing.is_some(),
            pool: self.guid,
            txg,
            time_ns: self.now_ns(),
            devices: u32::try_from(leaves.len()).expect("at most 255"),
            meta,
            tail,
            tail_places: [place(0), place(1)],
            parent: state.tag,
            anchor: if state.retiring { 0 } else { self.anchor().map_or(0, |anchor| anchor.next_seq()) },
            log,
        };
        let bytes = uberblock.encode(|bound| self.tag(bound));
        let (_, tag) = Uberblock::bound_and_tag(&bytes).expect("just encoded");
        for copies in [[0, 2], [1, 3]] {
            self.on_leaves(|leaf| {
                copies.iter().try_for_each(|&copy| leaf.device.write_uberblock(copy, txg, &bytes))
            })?;
            if !self.env.has_bug(Bug::NoFlushAfterRoot) && !self.env.has_bug(Bug::AnchorEarly) {
                self.flush_devices()?;
            }
        }
        let retiring = std::mem::take(&mut state.retiring);
        self.move_anchor(Root { uberblock: uberblock.clone(), tag }, retiring)?;
        if self.env.has_bug(Bug::AnchorEarly) {
            self.flush_devices()?;
        }
        (state.tag, state.last) = (tag, Some(uberblock));
        Ok(())
    }

    /// Tag of an uberblock: keyed if the pool is sealed.
    pub(crate) fn tag(&self, bound: &[u8]) -> [u8; 32] {
        match &self.sealing {
            Some(sealing) => steadfast_crypto::keyed_hash(&sealing.tag_key, bound),
            None => steadfast_crypto::hash(bound),
        }
    }

    /// Writes all copies of all labels, two at a time with a flush between, so that a crash leaves two good ones.
    ///
    /// Devices that are about to be added get theirs before the others list them: a crash leaves none that is listed and has no
    /// label, which an import would take for missing.
    pub(crate) fn write_labels(&self, state: PoolState, txg: Txg) -> Result<()> {
        self.write_labels_noting(state, txg, &mut false)
    }

    /// Writes labels that say what a verb is about to do, as of the last commit. If that fails, `undo` takes back in memory what they were
    /// to say, and labels of leaves that say so already say again what is so: the next root is none that they could be read with. Devices
    /// that were to come lose theirs after that, for as long as one lists them they are needed. No commit may run meanwhile.
    pub(crate) fn write_labels_or(&self, coming: &[Arc<dyn Device>], undo: impl FnOnce()) -> Result<()> {
        let (txg, mut begun) = (self.txgs.commits.committed(), false);
        let Err(error) = self.write_labels_noting(PoolState::Active, txg, &mut begun) else { return Ok(()) };
        undo();
        // Labels of log devices are not older, and that is all they have to be (D3): one that fails must not be what keeps the others from
        // it.
        let put_back = || -> Result<()> {
            for copies in [[0, 2], [1, 3]] {
                self.write_leaf_labels(copies, PoolState::Active, txg, |_| true)?;
                // One that was about to step in waits again.
                self.write_spare_labels(copies, PoolState::Active, txg);
            }
            Ok(())
        };
        if !begun || put_back().is_ok() {
            coming.iter().for_each(|device| give_back(&**device));
        }
        // What could not be written, and all the others, with the next commit.
        self.commit_state.lock().labels_dirty = true;
        self.changed.store(true, Ordering::Release);
        Err(error)
    }

    /// The same as [`Self::write_labels`]; `begun` says whether some of those of leaves may have been written.
    fn write_labels_noting(&self, state: PoolState, txg: Txg, begun: &mut bool) -> Result<()> {
        let is_new = |leaf: &Arc<Leaf>| {
            let is_known = self.space.is_in_use(leaf.id()) || self.space.is_out_of_use(leaf.id());
            leaf.in_use().is_some() && !is_known
        };
        let new: Vec<Arc<Leaf>> = self.leaves().into_iter().filter(is_new).collect();
        if !new.is_empty() {
            self.label_logs_first(state, txg)?;
        }
        for leaf in &new {
            let label = self.label_of(leaf, state, txg).encode(steadfast_crypto::hash);
            let label = label.ok_or_else(|| Error::LabelTooLong { pool: self.name() })?;
            *begun = true;
            for copies in [[0, 2], [1, 3]] {
                copies.iter().try_for_each(|&copy| leaf.device.write_label(copy, &label))?;
                leaf.device.flush()?;
            }
        }
        for copies in [[0, 2], [1, 3]] {
            self.write_log_labels(copies, state, txg)?;
            self.write_spare_labels(copies, state, txg);
            self.write_cache_labels(copies, state, txg);
            *begun = true;
            // Those that are new have theirs. One of them that fails is no device of a group yet that could do without it.
            self.write_leaf_labels(copies, state, txg, |leaf| {
                !new.iter().any(|other| other.id() == leaf.id())
            })?;
        }
        Ok(())
    }

    /// Two copies of the labels of some leaves, durable when it returns.
    fn write_leaf_labels(
        &self,
        copies: [usize; 2],
        state: PoolState,
        txg: Txg,
        of: impl Fn(&Leaf) -> bool,
    ) -> Result<()> {
        let encode = |leaf: &Leaf| self.label_of(leaf, state, txg).encode(steadfast_crypto::hash);
        if self.leaves().iter().any(|leaf| encode(leaf).is_none()) {
            return Err(Error::LabelTooLong { pool: self.name() });
        }
        self.on_leaves(|leaf| {
            let label = encode(leaf).expect("they fit just now");
            copies.iter().filter(|_| of(leaf)).try_for_each(|&copy| leaf.device.write_label(copy, &label))
        })?;
        Ok(self.space.flush_devices()?)
    }
}
