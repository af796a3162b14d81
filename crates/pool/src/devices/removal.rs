//! Moves data from devices to others: a group is removed, a widened group is evened out, a pool is
//! rebalanced after an `add`.
//!
//! A job goes through segments between commits, as a scan does, and moves them whole or by a column
//! ([`steadfast_segment::Moved`]). One goes on at a time.
//!
//! | job       | moves                                                    | begun by |
//! |-----------|----------------------------------------------------------|---|
//! | remove    | segments of groups that leave to others                  | `remove` |
//! | expand    | columns to devices of their group that hold fewer        | `attach` to a raidz group; there, a |
//! |           |                                                          | device that grew or is a larger one |
//! | rebalance | segments to groups that are emptier, and columns as above | `rebalance` |
//!
//! ## Invariants
//! [removal.1] A group leaves if all its devices are listed as leaving: labels say so before the
//!      first segment is moved, so a removal goes on after a crash, whether or not the job itself
//!      was stored.
//!      [`resume_moves`]
//! [removal.2] A device is forgotten only when no row of a committed root names it [scrub.4], and
//!      its labels are erased only when those of the others list it no more.
//!      [`erase_departed`]
//! [removal.3] At most [`UNSETTLED_MAX`] columns wait between two commits: their slots come back
//!      with the next, and the changed rows are few enough for one.
//! [removal.4] If a removal meets a segment that cannot be read whole, it ends, and its devices
//!      stay: nothing is given up.
//! [removal.5] Admission does not count the room of leaving groups, from the beginning of the
//!      removal.
//! [removal.6] A look at the progress of a job waits for no part of it [scrub.6]: while a part
//!      runs, the progress is that of its beginning. [`move_status`]

use crate::devices::state::Devices;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use steadfast_format::{
    Checksums, DeviceId, GroupClass, GroupKind, LeafState, MetaKey, ScanKind, ScanRow, ScanState, SegmentId,
};
use steadfast_segment::Moved;

use crate::core::error::{Error, Result};
use crate::core::events::EventKind;
use crate::devices::leaf::Leaf;
use crate::devices::scan::MetaNode;
use crate::devices::scan::STEP_NS;
use crate::devices::scan::Scan;
use crate::devices::scrub::PAUSE;
use crate::devices::scrub::ScrubCommand;
use crate::devices::scrub::TOLD_SOON;

/// [removal.3]
const UNSETTLED_MAX: usize = 512;

/// Name of the job.
#[must_use]
pub fn move_word(kind: ScanKind) -> &'static str {
    match kind {
        ScanKind::Scrub => "scrub",
        ScanKind::Resilver => "resilver",
        ScanKind::Remove => "remove",
        ScanKind::Expand => "expand",
        ScanKind::Rebalance => "rebalance",
    }
}

impl Devices {
    /// Devices of the same group, or the device alone.
    pub(crate) fn group_of(&self, leaf: &Leaf) -> Vec<Arc<Leaf>> {
        let own = leaf.config();
        let same = |other: &Arc<Leaf>| {
            let other = other.config();
            other.id == own.id || own.group != 0 && other.group == own.group
        };
        self.leaves().into_iter().filter(same).collect()
    }

    /// Whether a device belongs to a group that leaves.
    pub(crate) fn is_being_removed(&self, leaf: &Leaf) -> bool {
        self.group_of(leaf).iter().all(|leaf| leaf.config().state == LeafState::Leaving)
    }

    /// Refuses while a job is under way that is none of these.
    pub(crate) fn check_no_move(&self, but: &[ScanKind]) -> Result<()> {
        let job = self.moves.job.lock().as_ref().map(|scan| scan.row);
        let active = job.filter(|row| !but.contains(&row.kind));
        match active.filter(|row| matches!(row.state, ScanState::Active | ScanState::Paused)) {
            Some(row) => Err(Error::MoveActive { pool: self.core.name(), what: move_word(row.kind) }),
            None => Ok(()),
        }
    }

    /// The last job as it is; while a part of it runs, as it was before that part. So a look waits
    /// for no device [removal.6].
    pub(crate) fn move_status(&self) -> Option<ScanRow> {
        loop {
            let told = *self.moves.progress.lock();
            if told.is_some() {
                return told;
            }
            // A longer holder of the lock reports progress first.
            if let Some(moving) = self.moves.job.try_lock_for(TOLD_SOON) {
                return moving.as_ref().map(|scan| scan.row);
            }
        }
    }

    /// Begins to move away all that lies on the groups of these devices, which then leave the pool.
    /// With `dry_run` only says whether that could be.
    pub fn remove_groups(&self, paths: &[String], dry_run: bool) -> Result<()> {
        self.core.check_writable()?;
        self.core.check_no_checkpoint()?;
        self.check_no_move(&[])?;
        // No spare steps in for one of them meanwhile.
        let turn = self.core.sync_turn.lock();
        let mut leaving: Vec<Arc<Leaf>> = Vec::new();
        for path in paths {
            let named = self.leaf_named(path)?;
            self.check_no_spare(&named)?;
            for leaf in self.group_of(&named) {
                if leaf.config().state == LeafState::Leaving {
                    return Err(Error::ScanActive { pool: self.core.name(), what: "resilver" });
                }
                if !leaving.iter().any(|other| other.id() == leaf.id()) {
                    leaving.push(leaf);
                }
            }
        }
        let Some(first) = leaving.first() else { return Ok(()) };
        // Content does not go to special groups.
        let special: Vec<u8> = {
            let groups = self.topology.groups.read();
            groups.iter().filter(|group| group.class == GroupClass::Special).map(|group| group.id).collect()
        };
        let stays = |leaf: &Arc<Leaf>| !leaving.iter().any(|other| other.id() == leaf.id());
        if !self.leaves().iter().any(|leaf| stays(leaf) && !special.contains(&leaf.config().group)) {
            return Err(Error::LastGroup { pool: self.core.name(), path: first.path() });
        }
        let ids: Vec<DeviceId> = leaving.iter().map(|leaf| leaf.id()).collect();
        let (live, room) = self.core.space.room_without(&ids);
        let needed = live.saturating_add(self.core.txgs.budget.reserved().space);
        if needed > room {
            return Err(Error::RemoveRoom { pool: self.core.name(), path: first.path(), needed, room });
        }
        if dry_run {
            return Ok(());
        }
        for leaf in &leaving {
            leaf.config.write().state = LeafState::Leaving;
            self.core.space.set_leaving(leaf.id(), true);
            self.end_sweeps(leaf.id());
        }
        self.topology.replacing.lock().extend(&ids);
        self.labels_due.mark();
        self.core.space.close_leaving()?;
        self.move_log.store(true, Ordering::Release);
        let device = u32::try_from(ids[0].0).unwrap_or(u32::MAX);
        *self.moves.job.lock() = Some(self.begin_move(ScanKind::Remove, device));
        drop(turn);
        // [removal.5]
        self.core.update_limits();
        self.core.commit_changes()?;
        self.note_scan("remove", "start");
        Ok(())
    }

    /// Ends a removal that is under way: its devices stay.
    pub fn cancel_remove(&self) -> Result<()> {
        self.core.check_writable()?;
        {
            let _turn = self.core.sync_turn.lock();
            let mut moving = self.moves.job.lock();
            let scan = moving
                .as_mut()
                .filter(|scan| scan.row.kind == ScanKind::Remove && scan.row.state == ScanState::Active);
            let Some(scan) = scan else {
                return Err(Error::MoveNone { pool: self.core.name(), what: "removal" });
            };
            self.stop_leaving(scan);
        }
        self.core.update_limits();
        self.core.commit_changes()?;
        self.note_scan("remove", "cancel");
        Ok(())
    }

    /// Devices of groups that leave stay.
    fn stop_leaving(&self, scan: &mut Scan) {
        let stays: Vec<Arc<Leaf>> =
            self.leaves().into_iter().filter(|leaf| self.is_being_removed(leaf)).collect();
        for leaf in &stays {
            let is_out = self.core.space.is_out_of_use(leaf.id());
            leaf.config.write().state = if is_out { LeafState::Offline } else { LeafState::Online };
            self.core.space.set_leaving(leaf.id(), false);
        }
        self.topology.replacing.lock().retain(|id| !stays.iter().any(|leaf| leaf.id() == *id));
        self.labels_due.mark();
        (scan.row.state, scan.row.ended_ns, scan.dirty) = (ScanState::Canceled, self.core.now_ns(), true);
    }

    /// Begins a rebalance; pauses it, lets it go on or ends it, or what evens out a widened group.
    pub fn rebalance(&self, command: ScrubCommand) -> Result<()> {
        self.core.check_writable()?;
        let mut moving = self.moves.job.lock();
        let row = moving.as_ref().map(|scan| (scan.row.kind, scan.row.state));
        let word = match (command, row) {
            (_, Some((ScanKind::Remove, ScanState::Active))) => {
                return Err(Error::MoveActive { pool: self.core.name(), what: "remove" });
            }
            (ScrubCommand::Start, Some((kind, ScanState::Active))) => {
                return Err(Error::MoveActive { pool: self.core.name(), what: move_word(kind) });
            }
            (ScrubCommand::Start, Some((_, ScanState::Paused))) => {
                let scan = moving.as_mut().expect("it is paused");
                (scan.row.state, scan.queue, scan.dirty) = (ScanState::Active, None, true);
                "resume"
            }
            (ScrubCommand::Start, _) => {
                *moving = Some(self.begin_move(ScanKind::Rebalance, 0));
                "start"
            }
            (ScrubCommand::Pause, Some((_, ScanState::Active))) => {
                let scan = moving.as_mut().expect("it is active");
                (scan.row.state, scan.dirty) = (ScanState::Paused, true);
                "pause"
            }
            (ScrubCommand::Stop, Some((_, ScanState::Active | ScanState::Paused))) => {
                let scan = moving.as_mut().expect("it is under way");
                (scan.row.state, scan.row.ended_ns, scan.dirty) =
                    (ScanState::Canceled, self.core.now_ns(), true);
                "cancel"
            }
            (ScrubCommand::Pause | ScrubCommand::Stop, _) => {
                return Err(Error::MoveNone { pool: self.core.name(), what: "rebalance" });
            }
        };
        let what = moving.as_ref().map_or("rebalance", |scan| move_word(scan.row.kind));
        drop(moving);
        self.note_scan(what, word);
        Ok(())
    }

    /// Creates a job, from its beginning. Open segments are not moved, so the caller closes them
    /// before.
    pub(crate) fn begin_move(&self, kind: ScanKind, device: u32) -> Scan {
        let ids = self.core.space.movable(kind == ScanKind::Remove);
        let total = ids.iter().map(|id| self.size_of(kind, *id)).sum();
        let until = SegmentId(ids.last().map_or(0, |id| id.0) + 1);
        let mut scan = Scan::new(ScanRow {
            kind,
            state: ScanState::Active,
            device,
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

    /// Bytes of a segment as a job counts them: what is copied of it, or what it takes.
    fn size_of(&self, kind: ScanKind, id: SegmentId) -> u64 {
        if kind == ScanKind::Remove {
            self.core.space.filled_bytes(id)
        } else {
            self.core.space.stored_bytes(id)
        }
    }

    /// A device of a group has more slots than it had, or than the one before it. Where a raidz
    /// group has more devices than columns segments can be placed there only as far as the others
    /// have room, too: columns are evened out as after `attach`, from the beginning if that is
    /// under way. Any other job, and one that was paused, is let go on.
    pub(crate) fn even_out(&self, group: u8) {
        let width = {
            let groups = self.topology.groups.read();
            let Some(listed) = groups.iter().find(|listed| listed.id == group) else { return };
            if !matches!(listed.kind, GroupKind::Raidz(_)) {
                return;
            }
            usize::from(listed.width)
        };
        let stays = |leaf: &&Arc<Leaf>| {
            let config = leaf.config();
            config.group == group && config.state != LeafState::Leaving
        };
        if self.leaves().iter().filter(stays).count() <= width {
            return;
        }
        {
            let mut moving = self.moves.job.lock();
            let goes_on = |row: &ScanRow| match row.state {
                ScanState::Active => row.kind != ScanKind::Expand,
                ScanState::Paused => true,
                ScanState::Finished | ScanState::Canceled => false,
            };
            if moving.as_ref().is_some_and(|scan| goes_on(&scan.row)) {
                return;
            }
            *moving = Some(self.begin_move(ScanKind::Expand, 0));
        }
        self.note_scan("expand", "start");
    }

    /// Empties a group that leaves according to the labels, even if no job was stored [removal.1].
    /// At import.
    pub(crate) fn resume_moves(&self) {
        let leaves = self.leaves();
        let first = leaves.iter().find(|leaf| self.is_being_removed(leaf));
        let under_way = self
            .move_status()
            .is_some_and(|row| row.kind == ScanKind::Remove && row.state == ScanState::Active);
        if let Some(leaf) = first.filter(|_| !under_way) {
            let device = u32::try_from(leaf.id().0).unwrap_or(u32::MAX);
            *self.moves.job.lock() = Some(self.begin_move(ScanKind::Remove, device));
        } else if first.is_none() && under_way {
            // All was moved, and the crash came between the labels and the last commit.
            if let Some(scan) = self.moves.job.lock().as_mut() {
                (scan.row.state, scan.row.ended_ns, scan.dirty) =
                    (ScanState::Finished, self.core.now_ns(), true);
            }
        }
    }

    /// Item of the meta tree for the last job, if it changed.
    pub(crate) fn move_item(&self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mut moving = self.moves.job.lock();
        let scan = moving.as_mut()?;
        std::mem::take(&mut scan.dirty).then(|| (MetaKey::Move.encode(), Some(scan.row.encode())))
    }

    /// A part of the scan and of the job under way. Sync context only, between commits. Gives when
    /// to look again, `None` if nothing is under way.
    pub(crate) fn background_step(&self) -> Result<Option<Duration>> {
        let scan = self.scan_step()?;
        let moved = self.move_step()?;
        Ok(scan.into_iter().chain(moved).min())
    }

    fn move_step(&self) -> Result<Option<Duration>> {
        if !self.moves.job.lock().as_ref().is_some_and(Scan::is_active) {
            return Ok(None);
        }
        let is_rebalance = |scan: &Scan| scan.row.kind == ScanKind::Rebalance;
        if self.core.is_sparing() && self.moves.job.lock().as_ref().is_some_and(is_rebalance) {
            return Ok(None);
        }
        let _turn = self.core.sync_turn.lock();
        self.core.check_ours()?;
        let began_ns = self.core.env.clock.monotonic_ns();
        let root = self.meta_root();
        let mut moving = self.moves.job.lock();
        let Some(scan) = moving.as_mut().filter(|scan| scan.is_active()) else { return Ok(None) };
        *self.moves.progress.lock() = Some(scan.row);
        let result = self.move_some(scan, root, began_ns);
        let row = scan.row;
        // In this order: a look that finds no progress here waits for no more than the next line.
        *self.moves.progress.lock() = None;
        drop(moving);
        let waits = result?;
        self.core.health.changed.note();
        let word = match row.state {
            ScanState::Finished => Some("finish"),
            ScanState::Canceled => Some("cancel"),
            ScanState::Active | ScanState::Paused => None,
        };
        if let Some(word) = word {
            self.note_scan(move_word(row.kind), word);
        }
        if waits || word.is_some() {
            self.core.txgs.commits.request_sync(self.core.txgs.gate.open_txg());
        }
        let busy = waits || self.core.txgs.budget.fullness() > 0;
        Ok(Some(if busy { PAUSE } else { Duration::ZERO }))
    }

    /// Moves for one step, metadata from `root` first. True if only a commit gets it on.
    fn move_some(&self, scan: &mut Scan, root: Option<MetaNode>, began_ns: u64) -> Result<bool> {
        let kind = scan.row.kind;
        if scan.queue.is_none() {
            let all = self.core.space.movable(kind == ScanKind::Remove);
            let left =
                |id: &SegmentId| kind == ScanKind::Remove || *id >= scan.row.next && *id < scan.row.until;
            scan.queue = Some(all.into_iter().filter(left).collect());
            // The pool's own metadata has no checksums: what of it is wrong is put right by reading
            // it.
            scan.nodes = root.into_iter().collect();
        }
        scan.dirty = true;
        while self.core.env.clock.monotonic_ns().saturating_sub(began_ns) < STEP_NS {
            if !scan.nodes.is_empty() {
                let _ = self.read_nodes(&mut scan.nodes);
                continue;
            }
            if self.core.space.unsettled() >= UNSETTLED_MAX {
                return Ok(true);
            }
            let Some(id) = scan.queue.as_mut().and_then(|queue| queue.pop_front()) else {
                return Ok(self.end_of_queue(scan));
            };
            let size = self.size_of(kind, id);
            match self.move_one(kind, id)? {
                Moved::Stays => {}
                Moved::Bytes(bytes) => scan.row.rebuilt += bytes,
                Moved::Unreadable if kind != ScanKind::Remove => {}
                Moved::Unreadable => {
                    scan.row.lost += size;
                    scan.stuck.insert(id);
                }
                Moved::NoRoom if kind == ScanKind::Remove => {
                    scan.queue.as_mut().expect("filled above").push_front(id);
                    return Ok(true);
                }
                Moved::NoRoom => scan.row.missing += 1,
            }
            scan.row.next = SegmentId(id.0 + 1);
            scan.row.read += size;
        }
        Ok(false)
    }

    /// All was looked at. A removal looks again as long as something is left that can be moved.
    /// True if that takes a commit.
    fn end_of_queue(&self, scan: &mut Scan) -> bool {
        if scan.row.kind == ScanKind::Remove {
            let left: BTreeSet<SegmentId> = self.core.space.movable(true).into_iter().collect();
            if !left.is_subset(&scan.stuck) {
                scan.queue = Some(left.difference(&scan.stuck).copied().collect());
                return true;
            }
            if !left.is_empty() {
                // [removal.4]
                self.stop_leaving(scan);
                return true;
            }
        }
        (scan.row.state, scan.row.ended_ns) = (ScanState::Finished, self.core.now_ns());
        true
    }

    fn move_one(&self, kind: ScanKind, id: SegmentId) -> Result<Moved> {
        let sums = self.checksums_of(id)?;
        Ok(match kind {
            ScanKind::Remove => self.core.space.evacuate(id, &sums)?,
            _ => self.core.space.level(id, &sums, kind == ScanKind::Rebalance)?,
        })
    }

    /// Stored checksums of a segment; none if it has none.
    pub(crate) fn checksums_of(&self, id: SegmentId) -> Result<Vec<[u8; Checksums::SIZE]>> {
        let mut sums = Vec::new();
        for part in 0..self.core.space.checksum_parts(id) {
            let Some(value) = self.core.meta.get(&MetaKey::Checksums(id, part).encode())? else { break };
            let part = Checksums::decode(&value);
            sums.extend(
                part.map_err(|source| self.core.corrupt(&self.core.name(), "checksums", source))?.sums,
            );
        }
        Ok(sums)
    }

    /// True if a device that leaves can be forgotten.
    pub(crate) fn may_finish_leaving(&self) -> bool {
        let replacing = self.topology.replacing.lock().clone();
        replacing.into_iter().any(|id| self.may_depart(id))
    }

    /// Nothing names it, and it is not one of a group of which another member still holds
    /// something.
    fn may_depart(&self, id: DeviceId) -> bool {
        self.core.space.columns_on(id) == 0
            && (!self.core.space.is_group_leaving(id)
                || !self.moves.job.lock().as_ref().is_some_and(Scan::is_active))
    }

    /// Forgets devices that are leaving and that nothing names any more [scrub.4], once the labels
    /// say that they are leaving: a root that counts one device less than they list is then no
    /// riddle to an import. At the beginning of a commit.
    pub(crate) fn finish_leaving(&self) {
        if self.labels_due.is_due() {
            return;
        }
        let gone: Vec<DeviceId> = {
            let replacing = self.topology.replacing.lock().clone();
            replacing.into_iter().filter(|id| self.may_depart(*id)).collect()
        };
        for id in gone {
            self.depart(id);
            // Last: so a waiting task always sees it, here or among the departed.
            self.topology.replacing.lock().retain(|other| *other != id);
        }
    }

    fn depart(&self, id: DeviceId) {
        let Some(leaf) = self.leaves().into_iter().find(|leaf| leaf.id() == id) else { return };
        // First, so that a waiting task does not miss it when it is listed no more.
        self.topology.departed.lock().push(Arc::clone(&leaf));
        self.core.space.remove_device(id);
        let group = leaf.config().group;
        self.topology.leaves.write().retain(|other| other.id() != id);
        if group != 0 && !self.leaves().iter().any(|leaf| leaf.config().group == group) {
            self.topology.groups.write().retain(|listed| listed.id != group);
        }
        self.labels_due.mark();
        self.diagnosis.forget(&[id]);
        let stays = self.take_back(&leaf);
        if !stays {
            self.core.events.note(EventKind::DeviceRemoved { path: leaf.path() });
        }
        // One that is newer came in its stead.
        let newer = |other: &Arc<Leaf>| {
            let other = other.config();
            other.group == group && other.id > id && other.slots > leaf.config().slots
        };
        if self.leaves().iter().any(newer) {
            self.even_out(group);
        }
        let is_parted = leaf.config().state == LeafState::Parted;
        if is_parted && !stays {
            // It is another pool's.
            leaf.device.release();
        }
        if stays || is_parted {
            self.topology.departed.lock().retain(|other| other.id() != id);
        }
    }

    /// Erases the labels of devices that left: they are not true any more [removal.2]. Runs after
    /// the labels of the others were written.
    pub(crate) fn erase_departed(&self) {
        let departed = self.topology.departed.lock().clone();
        for leaf in departed {
            // If that cannot be written, import sees that it is not listed.
            let _ = crate::devices::probe::erase(&*leaf.device);
            leaf.device.release();
            self.topology.departed.lock().retain(|other| other.id() != leaf.id());
        }
    }
}
