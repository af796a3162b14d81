//! # Pool
//!
//! Finds devices, chooses the root, wires the rooms together, commits, reports health.
//!
//! Reading order: `import/create.rs` (the parts of a pool), `commit/` (how a txg becomes durable),
//! `import/load.rs` (how the last txg is found again), `datasets/` (the dataset table, keys).
//!
//! Order of locks: `core/ranked.rs`.
#![forbid(unsafe_code)]

mod checkpoint;
mod commit;
mod core;
mod datasets;
mod devices;
mod features;
#[cfg(debug_assertions)]
pub mod forge;
mod import;
mod log;
mod streams;

mod device_verbs;
pub mod inject;
mod memory;
#[cfg(test)]
mod test_pool;

use crate::commit::sync::Next;
use crate::commit::sync::Syncer;
use crate::core::ranked::{RankedMutex, rank};
use crate::core::state::Core;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use steadfast_env::TaskHandle;
use steadfast_format::{
    AuxClass, DatasetId, DeviceId, Feature, GroupConfig, HistoryEntry, LeafConfig, MetaKey, PoolGuid,
    PoolState, Txg, meta_keys,
};
use steadfast_property::Local;
pub use steadfast_segment::Redundancy;
use steadfast_segment::{Accounting, DeviceCounts};

pub use crate::checkpoint::CheckpointStatus;
pub use crate::core::error::{Error, Result, lost_metadata};
pub use crate::core::events::{Event, EventKind};
pub use crate::core::overtaker::Overtaker;
pub use crate::core::state::{Short, WentBack};
pub use crate::core::sweep::Sweep;
pub use crate::datasets::bookmarks::BookmarkInfo;
pub use crate::datasets::counts;
pub use crate::datasets::dataset::{DatasetHandle, DatasetInfo, NewKey};
pub use crate::datasets::diff::{ChangeKind, FileChange};
pub use crate::datasets::holds::Hold;
pub use crate::datasets::keys::new_user_key;
pub use crate::datasets::owners::OwnerUse;
pub use crate::datasets::partial::Partial;
pub use crate::datasets::snapshots::{SnapshotHandle, SnapshotInfo, SnapshotsOf};
pub use crate::datasets::state::Datasets;
pub use crate::datasets::volumes::{VolumeInfo, VolumeSpec};
pub use crate::devices::audit_report::{Asked, AuditReport, Coverage, Samples, StratumReport};
pub use crate::devices::device_audit::DEVICE_SAMPLES_MAX;
pub use crate::devices::diagnosis::{Cause, ERRORS_MAX, WINDOW};
pub use crate::devices::errlog::DamagedFile;
pub use crate::devices::groups;
pub use crate::devices::groups::{DeviceHandle, GroupHandles};
pub use crate::devices::groups::{
    is_enough, needed_among, number_of, redundancy_of, special_among, word as group_word,
};
pub use crate::devices::grow::Growth;
pub use crate::devices::l2arc::CacheDeviceStatus;
pub use crate::devices::lost_content::{LostContent, LostNode};
pub use crate::devices::offline::Offline;
pub use crate::devices::parity::{
    Agent, AskAgent, LOSS_PPM, LOSSES_PPM, NoSum, ParityStatus, ParityWish, Recovered, Rekeyed, TilesLeft,
};
pub use crate::devices::probe::{
    FoundDevice, FoundPool, RootAge, check_copies, check_unoccupied, erase, label_of, mark_destroyed,
    older_roots, root_txgs, scan, scan_beside, scan_telling,
};
pub use crate::devices::proven::ProvenContent;
pub use crate::devices::removal::move_word;
pub use crate::devices::scan::ScanPass;
pub use crate::devices::scrub::ScrubCommand;
pub use crate::devices::spares::SpareStatus;
pub use crate::devices::state::Devices;
pub use crate::devices::sweep::TrimState;
pub use crate::devices::trim::TrimCommand;
pub use crate::devices::trim::TrimStatus;
pub use crate::import::anchor;
pub use crate::import::anchor::{AnchorWish, GoBack, Registers};
pub use crate::import::create::{
    AuxHandles, CreateSpec, blank_parity, check_new_parity, rehearse_new_parity,
};
pub use crate::import::load::{ImportSpec, NewName};
pub use crate::log::log_device::LogDeviceStatus;
pub use crate::log::state::Zil;
pub use crate::log::zil::LogStatus;
pub use crate::memory::{CacheUse, Memory, MemoryUse, keep_spare_memory, wipe_free_memory};
pub use crate::streams::receive::{Naming, ReceiveSpec, ReceiveWatch, Received};
pub use crate::streams::send::{SendSpec, Written};
pub use crate::streams::state::Streams;
pub use steadfast_dataset::InodesInMemory;
pub use steadfast_device::metered::{Count, Sample};
pub use steadfast_device::{Obstacle, Outage, Presence};
pub use steadfast_format::{LogOut, ParityStanding, SharingClass};
pub use steadfast_format::{ScanKind, ScanRow, ScanState};
pub use steadfast_por::agent;
pub use steadfast_por::parity::{Figures, Medium as ParityMedium, NextFigures};
pub use steadfast_por::{OpenStore, TilesStatus};
/// Most bytes of the address of the store of a parity's tiles.
pub const TILES_ADDRESS_MAX: usize = steadfast_format::parity::ParityTileStore::ADDRESS_MAX;
pub use steadfast_refs::ddt::SharingInfo;

use crate::datasets::table::ROOT;

/// How long [`Pool::resume`] waits for a write.
const RESUME_PATIENCE: Duration = Duration::from_secs(10);

/// An imported pool. Dropping it without [`Pool::export`] or [`Pool::close`] commits nothing more,
/// as a crash would.
pub struct Pool {
    core: Arc<Core>,
    devices: Arc<Devices>,
    zil: Arc<Zil>,
    datasets: Arc<Datasets>,
    streams: Streams,
    syncer: Arc<Syncer>,
    /// The import is done. A failed one leaves the devices to its caller.
    is_live: bool,
    tasks: RankedMutex<Vec<Box<dyn TaskHandle>>, rank::Tasks>,
}

/// One leaf device as status shows it.
#[derive(Clone, Debug)]
pub struct LeafStatus {
    /// Identity and path.
    pub config: LeafConfig,
    /// Nothing is read from it or written to it. One that leaves may be out of use, and its state
    /// is the same.
    pub is_out: bool,
    /// Bytes that segments can fill.
    pub size_bytes: u64,
    /// Bytes that live.
    pub allocated_bytes: u64,
    /// Operations and errors of the device.
    pub counts: DeviceCounts,
    /// The same as the device saw it, with times.
    pub sample: Sample,
    /// Calls that were slow.
    pub slow: u64,
    /// Why it is marked as degraded, if it is.
    pub degraded: Option<Cause>,
    /// Is what was opened still there?
    pub presence: Presence,
    /// Its store is away, and a commit waits for it.
    pub away: Option<Outage>,
    /// Could it be expanded?
    pub growth: Growth,
    /// How far its trim is.
    pub trim: TrimStatus,
    /// How far its initialization is.
    pub initialize: TrimStatus,
}

/// Status that `zpool list` and `zpool status` show.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// The number with which the pool was made, which it keeps.
    pub made_as: PoolGuid,
    /// Groups of leaves.
    pub groups: Vec<GroupConfig>,
    /// The last scrub or resilver.
    pub scan: Option<ScanRow>,
    /// Its pass.
    pub scan_pass: ScanPass,
    /// Bytes a second that a scrub reads at most beside other load; `None`: as much as half of the
    /// time gives.
    pub scrub_limit: Option<u64>,
    /// Datasets that the last scrub left out, because their keys were not loaded.
    pub scrub_left_out: Vec<String>,
    /// The running or the last move of data between devices.
    pub moving: Option<ScanRow>,
    /// Why the pool is suspended, if it is. One that waits for a store is not.
    pub suspended: Option<String>,
    /// Last committed txg.
    pub txg: Txg,
    /// Devices.
    pub leaves: Vec<LeafStatus>,
    /// Anchor, if the pool has one.
    pub anchor: Option<steadfast_anchor::Status>,
    /// Space.
    pub accounting: Accounting,
    /// The checkpoint.
    pub checkpoint: Option<CheckpointStatus>,
    /// Files with blocks that could not be read.
    pub damaged: Vec<DamagedFile>,
    /// The intent log.
    pub log: LogStatus,
    /// Devices of its own.
    pub log_devices: Vec<LogDeviceStatus>,
    /// Spares.
    pub spares: Vec<SpareStatus>,
    /// Cache devices.
    pub caches: Vec<CacheDeviceStatus>,
    /// The parity device.
    pub parity: Option<ParityStatus>,
    /// The last audit of stores by the parity device, or of files and disks.
    pub audited: Option<ParityStanding>,
}

impl Pool {
    /// Starts the tasks of a complete pool: sync and the log's interval. In a world without tasks
    /// the callers that wait for a commit make the steps, and so do [`Pool::step`] and
    /// [`Zil::log_interval`].
    pub(crate) fn start(mut self) -> Pool {
        self.core.apply_failmode();
        self.is_live = true;
        if self.core.health.read_only {
            return self;
        }
        let env = self.core.env.clone();
        if env.tasks.is_concurrent() {
            let (name, mut tasks) = (self.core.name(), self.tasks.lock());
            let (syncer, zil) = (Arc::clone(&self.syncer), Arc::clone(&self.zil));
            tasks.push(env.tasks.spawn(&format!("sync {name}"), Box::new(move || syncer.sync_loop())));
            tasks.push(env.tasks.spawn(&format!("log {name}"), Box::new(move || zil.interval_loop())));
            if self.core.space.has_objects() {
                let syncer = Arc::clone(&self.syncer);
                let work = Box::new(move || syncer.stores_loop());
                tasks.push(env.tasks.spawn(&format!("stores {name}"), work));
                let syncer = Arc::clone(&self.syncer);
                let work = Box::new(move || syncer.tiles_loop());
                tasks.push(env.tasks.spawn(&format!("tiles {name}"), work));
            }
        } else {
            let weak = Arc::downgrade(&self.syncer);
            let turn = RankedMutex::<_, rank::StepTurn>::new(self.syncer.first_turn());
            self.core.txgs.commits.set_step(Box::new(move || {
                if let Some(syncer) = weak.upgrade()
                    && let Next::Park(_, patience) = syncer.turn(&mut turn.lock())
                {
                    env.clock.sleep(patience);
                }
            }));
        }
        self
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> String {
        self.core.name()
    }

    /// Number that identifies the pool.
    #[must_use]
    pub fn guid(&self) -> PoolGuid {
        self.core.known_as()
    }

    /// Requests of its clients since the import, as far as the fronts count them.
    #[must_use]
    pub fn requests(&self) -> Vec<steadfast_env::requests::Sample> {
        self.core.requests.samples()
    }

    /// True if nothing may be changed.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.core.health.read_only
    }

    /// True if the pool's own metadata is sealed.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.core.sealing.is_some()
    }

    /// Log2 of the allocation unit.
    #[must_use]
    pub fn ashift(&self) -> u8 {
        self.core.identity.ashift
    }

    /// When the pool was made, seconds since 1970.
    #[must_use]
    pub fn created_seconds(&self) -> u64 {
        self.core.identity.created_ns / 1_000_000_000
    }

    /// Its devices, without those of the log.
    #[must_use]
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Its intent log.
    #[must_use]
    pub fn zil(&self) -> &Zil {
        &self.zil
    }

    /// Its datasets.
    #[must_use]
    pub fn datasets(&self) -> &Arc<Datasets> {
        &self.datasets
    }

    /// Streams out of it and into it.
    #[must_use]
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Commits everything done so far; durable when it returns.
    pub fn sync(&self) -> Result<()> {
        self.core.wait_durable()
    }

    /// In a world without tasks: one look of the sync loop, which commits if it is time to, and
    /// else lets that time pass. Elsewhere nothing.
    pub fn step(&self) {
        self.core.txgs.commits.make_step();
    }

    /// Bytes left to scan, for scrub and resilver. Never 0 while one is running. The resilver's are
    /// not 0 either while one is about to start: because a device came back, or because a spare
    /// steps in for a failed one or steps out again.
    #[must_use]
    pub fn scan_remaining(&self) -> [u64; 2] {
        if self.core.health.read_only {
            // A job resumes with an import that may write.
            return [0; 2];
        }
        // Looked at before the scan, as it is over when the scan has begun.
        let due = self.devices.is_resilver_due();
        let scan = self.devices.scan_status().filter(|scan| scan.state == ScanState::Active);
        let left = |kind| scan.filter(|scan| scan.kind == kind);
        // A part for which there is no room yet is not waited for.
        let stuck = self.devices.scan_status().is_some_and(|scan| scan.missing > 0);
        let is_moving = |id: &DeviceId| !self.core.space.is_group_leaving(*id);
        // One that has left is free for others when its labels are erased, and not before.
        let leaving = || self.devices.topology.replacing.lock().iter().any(is_moving) || self.has_departing();
        let replacing = !stuck && leaving();
        let bytes = |scan: ScanRow| scan.total.saturating_sub(scan.read).max(1);
        let resilver = left(ScanKind::Resilver).map(bytes);
        // A scrub that lost something is over when the files are known.
        let naming =
            self.devices.scan_status().is_some_and(|scan| scan.kind == ScanKind::Scrub && scan.lost > 0)
                && self.devices.errors.searching.load(Ordering::Acquire);
        let scrub = left(ScanKind::Scrub).map_or(u64::from(naming), bytes);
        // A resilver that has ended may leave a spare something to be done.
        let resilver = resilver.unwrap_or_else(|| u64::from(due || replacing || self.devices.is_spare_due()));
        [scrub, resilver]
    }

    /// Bytes that a job that moves has yet to look at, and which; `None` if none is active. A group
    /// that becomes wider is to be evened out from the moment on from which its new device is to be
    /// seen.
    #[must_use]
    pub fn move_remaining(&self) -> Option<(ScanKind, u64)> {
        if self.core.health.read_only {
            return None;
        }
        let leaving = || {
            let leaves = self.devices.leaves();
            let any = leaves.iter().any(|leaf| self.devices.is_being_removed(leaf)) || self.has_departing();
            any.then_some((ScanKind::Remove, 1))
        };
        // Looked at before the job, as it is over when the job has begun.
        let due = self.devices.moves.expansions_due.load(Ordering::Acquire) > 0;
        let row = self.devices.move_status().filter(|row| row.state == ScanState::Active);
        let left = row.map(|row| (row.kind, row.total.saturating_sub(row.read).max(1)));
        // A removal is over when its devices have left.
        left.or_else(|| due.then_some((ScanKind::Expand, 1))).or_else(leaving)
    }

    /// Whether a device has left that is not free yet. Order of looks: a device is among those that
    /// leave until it is among these.
    pub(crate) fn has_departing(&self) -> bool {
        !self.devices.topology.departed.lock().is_empty()
    }

    /// The older root that the import went back to (`zpool import -F`).
    #[must_use]
    pub fn went_back(&self) -> Option<WentBack> {
        self.core.health.went_back.get().copied()
    }

    /// Measured state.
    #[must_use]
    pub fn state(&self) -> PoolStatus {
        let accounting = self.core.space.accounting();
        // Before the devices: a spare that waits again is none of those, and one in use is.
        let spares = self.devices.spares_status();
        let (leaves, groups) = self.leaves_and_groups(&accounting);
        // Not in the expression below, which would hold the lock to its end, while names of damaged
        // files are read.
        let is_away = self.core.store_away().is_some();
        let suspended = if is_away { None } else { self.core.suspension() };
        PoolStatus {
            made_as: self.core.identity.guid,
            suspended,
            txg: self.core.txgs.commits.committed(),
            leaves,
            anchor: self.core.anchor().map(|anchor| anchor.status()),
            checkpoint: self.checkpoint_status(),
            accounting,
            damaged: self.devices.damaged_files(),
            log: self.zil.log_status(),
            log_devices: self.zil.log_devices_status(),
            spares,
            caches: self.devices.caches_status(),
            audited: self.devices.audited(),
            parity: self.devices.parity_status(),
            groups,
            scan: self.devices.scan_status(),
            scan_pass: self.devices.scan_pass(),
            scrub_limit: self.devices.scrub_limit(),
            scrub_left_out: self.devices.scrub_left_out(),
            moving: self.devices.move_status(),
        }
    }

    /// State of each device. Unlike [`Pool::state`] it reads nothing from them.
    #[must_use]
    pub fn leaves(&self) -> Vec<LeafStatus> {
        self.leaves_and_groups(&self.core.space.accounting()).0
    }

    fn leaves_and_groups(&self, accounting: &Accounting) -> (Vec<LeafStatus>, Vec<GroupConfig>) {
        let counts = self.core.space.device_counts();
        let (leaves, groups) = self.devices.leaves_and_groups();
        let away = self.core.store_away();
        let leaves = leaves.into_iter().map(|(leaf, config)| {
            let usage = accounting.devices.iter().find(|usage| usage.device == config.id);
            LeafStatus {
                is_out: self.core.space.is_out_of_use(config.id),
                size_bytes: u64::from(config.slots) * u64::from(self.devices.column_of(&config)),
                allocated_bytes: usage.map_or(0, |usage| usage.live_bytes),
                counts: counts.get(&config.id).copied().unwrap_or_default(),
                sample: leaf.meter.sample(),
                slow: leaf.meter.slow(),
                degraded: self.devices.diagnosis.mark(config.id),
                presence: leaf.device.presence(),
                away: away.clone().filter(|outage| outage.id == config.id),
                growth: self.devices.growth(&leaf),
                trim: self.devices.trim_status(Sweep::Trim, &leaf),
                initialize: self.devices.trim_status(Sweep::Initialize, &leaf),
                config,
            }
        });
        (leaves.collect(), groups)
    }

    /// Bytes that segments hold on each device, living and dead ones.
    #[must_use]
    pub fn stored_by_device(&self) -> BTreeMap<DeviceId, u64> {
        self.core.space.stored_by_device()
    }

    /// Says up to which part of what lives, in thousandths, garbage is left on a store, by its
    /// prices. `None` if they are not known.
    pub fn set_garbage_share(&self, device: DeviceId, thousandths: Option<u32>) {
        self.core.space.set_garbage_share(device, thousandths);
    }

    /// Up to which part of what lives, in thousandths, garbage is left on a store.
    #[must_use]
    pub fn garbage_share(&self, device: DeviceId) -> u32 {
        self.core.space.garbage_share(device)
    }

    /// Takes the events since the last call, oldest first. At most some hundreds are kept.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        // Looking at what is damaged is what turns it into events.
        self.devices.damaged_files();
        self.core.events.take()
    }

    /// Full name of a dataset by its number, as events give it.
    #[must_use]
    pub fn dataset_by_id(&self, id: DatasetId) -> String {
        if id.0 == 0 { self.name() } else { self.core.dataset_name(id) }
    }

    /// Asks for a commit and does not wait. A caller that waits for space from the next commits
    /// would otherwise wait for each of them as long as changes may stay uncommitted.
    pub fn hurry(&self) {
        self.core.txgs.commits.request_sync(self.core.txgs.gate.open_txg());
    }

    /// Lets work in the background wait that only costs: scrub, rebalance, trim, cleaning beyond
    /// need, the search for damaged files, blocks that are read ahead. Commits, resilver and
    /// removal go on. Where bytes are short, stores are asked only for what a reader waits for.
    /// Where requests are, its neighbours come with it as ever: that takes fewer of them.
    pub fn hold_background(&self, short: Short) {
        self.core.space.hold_read_ahead(short.egress);
        let is_held = short.requests || short.egress;
        if self.core.throttle.is_sparing.swap(is_held, Ordering::AcqRel) == is_held {
            return;
        }
        self.core.blockio.hold_read_ahead(is_held);
        if !is_held {
            self.core.txgs.commits.nudge();
        }
    }

    /// Turns that background work and commits have taken since the import.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.core.txgs.commits.turns()
    }

    /// Waits until there were more turns than `seen`, at most for `patience`. Background work ends
    /// within a turn. So a caller that first reads `turns`, then looks, then waits for the next
    /// turn, misses no end.
    pub fn wait_turn(&self, seen: u64, patience: Duration) {
        self.core.txgs.commits.wait_turn(seen, patience);
    }

    /// Reads what is known by content into memory, as far as there is room. Waits for it.
    pub fn fill_index(&self) -> Result<()> {
        loop {
            let _turn = self.core.sync_turn.lock();
            if !self.core.references.fill_step()? {
                return Ok(());
            }
        }
    }

    /// Forgets the content of blocks that only one pointer leads to: those written `days` ago or
    /// more, or the oldest `percent` of a hundred. How many. Durable when it returns.
    pub fn prune_known(&self, days: Option<u32>, percent: Option<u8>) -> Result<u64> {
        self.core.prune_known(days, percent)
    }

    /// Sizes of blocks that more than one pointer leads to, and of blocks in the dedup table.
    #[must_use]
    pub fn sharing(&self) -> SharingInfo {
        self.core.references.info()
    }

    /// Features that the pool may use.
    #[must_use]
    pub fn features(&self) -> Vec<Feature> {
        self.core.features.read().clone()
    }

    /// Forgets counted errors and damaged files; with paths, only what was counted of these
    /// devices.
    pub fn clear_errors(&self, paths: &[String]) {
        self.devices.clear_errors(paths);
        self.zil.clear_log_errors(paths);
    }

    /// Ends the pool's use here: everything is committed and the devices are free for anyone.
    pub fn export(&self) -> Result<()> {
        self.finish(Some(PoolState::Exported))
    }

    /// Like export, but the labels go on saying that the pool is in use: a daemon that stops and
    /// starts again.
    pub fn close(&self) -> Result<()> {
        self.finish(None)
    }

    /// Forgets the pool: its labels say that it was destroyed.
    pub fn destroy(&self) -> Result<()> {
        self.finish(Some(PoolState::Destroyed))
    }

    fn finish(&self, state: Option<PoolState>) -> Result<()> {
        self.settle(state)?;
        self.core.blockio.stop_read_ahead();
        self.release_devices();
        Ok(())
    }

    /// A thread that still answers a request may hold the devices for a moment; it is no reason to
    /// keep others away.
    fn release_devices(&self) {
        for leaf in self.devices.leaves() {
            leaf.device.release();
        }
        self.zil.log_devices.read().iter().for_each(|log| log.release());
        self.devices.aux.spares.read().iter().for_each(|spare| spare.release());
        self.devices.aux.caches.read().iter().for_each(|cache| cache.release());
        self.devices.release_parity();
    }

    fn settle(&self, state: Option<PoolState>) -> Result<()> {
        if self.core.health.read_only {
            return Ok(());
        }
        if self.core.store_away().is_some() {
            // The pool stays, and goes on when the store is back.
            return self.core.check_writable();
        }
        if !self.core.is_suspended() {
            self.core.health.changed.note();
            if state != Some(PoolState::Destroyed) {
                self.syncer.stores.pack();
            }
            // A store that is away is found out here, while the pool still waits for it.
            self.core.wait_durable()?;
        }
        self.core.events.wait.give_up();
        // A commit that waited for room fails now, and suspends the pool for good.
        drop(self.core.sync_turn.lock());
        let suspended = self.core.is_suspended();
        self.core.health.stopping.store(true, Ordering::Release);
        self.core.txgs.commits.nudge();
        self.zil.interval.wake();
        self.syncer.stores.wake();
        for task in self.tasks.lock().drain(..) {
            task.join();
        }
        if suspended {
            // It is not known how much of the last writes is on the devices, so the labels stay as
            // they are.
            return Ok(());
        }
        // Nobody commits any more. A later wait for a commit gets this error: it would have no end.
        match self.settle_alone(state) {
            Ok(()) => {
                // Release the callers that `failmode=wait` would hold: no commit would ever release
                // them.
                self.core.txgs.commits.set_holding(false);
                self.core.txgs.commits.suspend("it is not in use here any more");
            }
            Err(error) => {
                self.core.suspend(&error);
                return Err(error);
            }
        }
        if let Some(anchor) = self.core.anchor() {
            anchor.settle();
        }
        Ok(())
    }

    /// Last work of a close, when the tasks have ended.
    fn settle_alone(&self, state: Option<PoolState>) -> Result<()> {
        if self.core.has_changes() {
            self.syncer.commit()?;
        }
        if self.syncer.left_too_many() {
            self.core.health.changed.note();
            if state != Some(PoolState::Destroyed) {
                self.syncer.stores.pack();
            }
            self.syncer.commit()?;
        }
        self.core.space.discard_all();
        self.syncer.leave_stores();
        match state {
            Some(state) => self.devices.write_labels(state, self.core.txgs.commits.committed()),
            None => Ok(()),
        }
    }

    /// Adds a line to the history; stored with the next commit.
    pub fn log(&self, uid: u32, internal: bool, text: &str) {
        if !self.core.health.read_only {
            let txg = self.core.txgs.gate.open_txg();
            self.core.history.lock().add(
                self.core.now_ns(),
                txg,
                uid,
                internal,
                &self.core.identity.host,
                text,
            );
            self.core.health.changed.note();
        }
    }

    /// The history, oldest first.
    pub fn history(&self) -> Result<Vec<HistoryEntry>> {
        // Before what is stored is read: a commit meanwhile moves lines from here to there.
        let recent = self.core.history.lock().recent();
        let mut entries = Vec::new();
        for item in self.core.items_of(meta_keys::HISTORY) {
            let (MetaKey::History(_), value) = item? else { continue };
            if let Ok(entry) = HistoryEntry::decode(&value) {
                entries.push(entry);
            }
        }
        let tail = entries.len().saturating_sub(2 * recent.len());
        // A commit writes its own txg into them.
        let is_stored = |entry: &HistoryEntry| {
            entries[tail..].iter().any(|known| known.time_ns == entry.time_ns && known.text == entry.text)
        };
        let missing: Vec<HistoryEntry> = recent.into_iter().filter(|entry| !is_stored(entry)).collect();
        entries.extend(missing);
        Ok(entries)
    }

    /// Properties set on the pool.
    #[must_use]
    pub fn pool_props(&self) -> Local {
        self.core.props.read().values.clone()
    }

    /// Sets (or with `None` removes) a property of the pool. Durable when it returns.
    pub fn set_pool_prop(&self, name: &str, value: Option<&str>) -> Result<()> {
        self.core.check_writable()?;
        {
            let mut props = self.core.props.write();
            match value {
                Some(value) => _ = props.values.insert(name.to_owned(), value.to_owned()),
                None => _ = props.values.remove(name),
            }
            props.dirty.insert(name.to_owned());
        }
        self.core.apply_failmode();
        self.core.commit_changes()
    }

    /// Lets operations fail that wait because the pool is suspended (`failmode=wait`), and those
    /// that come: before file systems are unmounted. [`Pool::hold_writers`] takes it back.
    pub fn release_writers(&self) {
        self.core.txgs.commits.set_holding(false);
    }

    /// Operations wait or fail on a suspended pool as the property `failmode` says.
    pub fn hold_writers(&self) {
        self.core.apply_failmode();
    }

    /// Paths of all its devices: those that hold segments, of the log, and spares that wait.
    #[must_use]
    pub fn device_paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.devices.leaves().iter().map(|leaf| leaf.path()).collect();
        let others = self.devices.aux.listed.read();
        let others = others
            .iter()
            .filter(|aux| !matches!(aux.class, AuxClass::Anchor | AuxClass::Parity) && !aux.given_up);
        for aux in others {
            if !paths.contains(&aux.path) {
                paths.push(aux.path.clone());
            }
        }
        paths
    }

    /// Why the pool writes nothing, if so: it is suspended, or waits for a store.
    #[must_use]
    pub fn suspended(&self) -> Option<String> {
        self.core.suspension()
    }

    /// The last commit: its txg, and when it was made, in nanoseconds since 1970.
    #[must_use]
    pub fn last_commit(&self) -> (Txg, u64) {
        (self.core.txgs.commits.committed(), self.core.health.committed_ns.load(Ordering::Acquire))
    }

    /// True if another host has imported the pool from its store, and this one writes no more.
    #[must_use]
    pub fn is_overtaken(&self) -> bool {
        self.core.health.is_overtaken.load(Ordering::Acquire)
    }

    /// The host that did so, once it was found on the store.
    #[must_use]
    pub fn overtaker(&self) -> Option<Overtaker> {
        self.core.health.overtaker.get().cloned()
    }

    /// From now on a commit waits for a host without room, which suspends the pool meanwhile, and
    /// for a store that is away. [`Pool::resume`] or a retry each second ends that.
    pub fn wait_for_devices(&self) {
        self.core.wait_for_devices();
    }

    /// The obstacle for which a commit waits, if it waits.
    #[must_use]
    pub fn waits_for(&self) -> Option<Obstacle> {
        self.core.events.wait.waits_for()
    }

    /// The store for which a commit waits.
    #[must_use]
    pub fn store_away(&self) -> Option<Outage> {
        self.core.store_away()
    }

    /// Commits fail from now on instead of waiting for a device; one that waits fails now, and the
    /// pool is suspended for good. Closing the pool then loses changes since the last commit.
    pub fn give_up_waiting(&self) {
        self.core.events.wait.give_up();
    }

    /// Repeats the transfers that wait for a device. False if the pool writes nothing still.
    #[must_use]
    pub fn resume(&self) -> bool {
        self.core.events.wait.retry(RESUME_PATIENCE) && !self.core.is_suspended()
    }

    /// Full name of the root dataset: that of the pool.
    #[must_use]
    pub fn root_dataset(&self) -> String {
        self.core.dataset_name(ROOT)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.is_live {
            return;
        }
        self.core.events.wait.give_up();
        self.core.blockio.stop_read_ahead();
        self.core.health.stopping.store(true, Ordering::Release);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        if !tasks.is_empty() {
            // A pool that is dropped without a close must look like after a crash: no further
            // commit.
            self.core.suspend(&Error::Suspended { pool: self.name(), reason: "it was dropped".into() });
            self.core.txgs.commits.nudge();
            self.zil.interval.wake();
            self.syncer.stores.wake();
            tasks.into_iter().for_each(|task| _ = task.join());
        }
        self.release_devices();
    }
}
