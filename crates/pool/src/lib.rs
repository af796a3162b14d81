//! # Pool
//!
//! Finds devices, chooses the root, wires the rooms together, commits, reports health.
//!
//! Reading order: `import/create.rs` (the parts of a pool), `commit/` (how a txg becomes durable),
//! `import/load.rs` (how the last txg is found again), `datasets/` (the dataset table, keys).
//!
//! ## Lock order
//! `sync_turn` < gate < `commit_state` < `table` < `props` < `history` < everything below this room.
#![forbid(unsafe_code)]

mod commit;
mod core;
mod datasets;
mod devices;
mod features;
mod import;
mod log;
mod refs;
mod streams;

#[cfg(test)]
mod test_pool;
mod verbs;

use crate::commit::sync::Next;
use crate::commit::sync::Syncer;
use crate::core::state::Core;
use crate::datasets::state::Datasets;
use crate::devices::state::Devices;
use crate::log::state::Zil;
use crate::streams::state::Streams;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use steadfast_dataset::Dataset;
use steadfast_device::Device;
use steadfast_env::TaskHandle;
use steadfast_format::{
    AuxClass, DatasetId, DeviceId, Feature, GroupConfig, HistoryEntry, KeyFormat, LeafConfig, MetaKey, Owner,
    PoolGuid, PoolState, Txg, meta_keys,
};
use steadfast_property::{Local, Resolved};
pub use steadfast_segment::Redundancy;
use steadfast_segment::{Accounting, DeviceCounts};

pub use crate::core::error::{Error, Result, lost_metadata};
pub use crate::core::events::{Event, EventKind};
pub use crate::core::memory::{CacheUse, Memory, MemoryUse, keep_spare_memory};
pub use crate::core::sweep::Sweep;
pub use crate::datasets::bookmarks::BookmarkInfo;
pub use crate::datasets::counts;
pub use crate::datasets::dataset::{DatasetInfo, NewKey};
pub use crate::datasets::diff::{ChangeKind, FileChange};
pub use crate::datasets::holds::Hold;
pub use crate::datasets::keys::new_user_key;
pub use crate::datasets::owners::OwnerUse;
pub use crate::datasets::partial::Partial;
pub use crate::datasets::snapshots::{SnapshotHandle, SnapshotInfo, SnapshotsOf};
pub use crate::datasets::volumes::{VolumeInfo, VolumeSpec};
pub use crate::devices::diagnosis::{Cause, ERRORS_MAX, WINDOW};
pub use crate::devices::errlog::DamagedFile;
pub use crate::devices::groups::{DeviceHandle, GroupHandles};
pub use crate::devices::groups::{
    is_enough, needed_among, number_of, redundancy_of, special_among, word as group_word,
};
pub use crate::devices::grow::Growth;
pub use crate::devices::l2arc::CacheDeviceStatus;
pub use crate::devices::offline::Offline;
pub use crate::devices::probe::{FoundDevice, FoundPool, check_unoccupied, erase, label_of, scan};
pub use crate::devices::removal::move_word;
pub use crate::devices::scrub::ScrubCommand;
pub use crate::devices::spares::SpareStatus;
pub use crate::devices::sweep::TrimState;
pub use crate::devices::trim::TrimCommand;
pub use crate::devices::trim::TrimStatus;
pub use crate::devices::{groups, inject};
pub use crate::import::anchor;
pub use crate::import::anchor::{AnchorWish, Registers};
pub use crate::import::create::{AuxHandles, CreateSpec};
pub use crate::import::load::ImportSpec;
pub use crate::log::log_device::LogDeviceStatus;
pub use crate::log::zil::LogStatus;
pub use crate::refs::ddt::SharingInfo;
pub use crate::streams::receive::{Naming, ReceiveSpec, ReceiveWatch, Received};
pub use crate::streams::send::SendSpec;
pub use steadfast_dataset::InodesInMemory;
pub use steadfast_device::Presence;
pub use steadfast_device::metered::{Count, Sample};
pub use steadfast_format::{LogOut, SharingClass};
pub use steadfast_format::{ScanKind, ScanRow, ScanState};

use crate::datasets::table::ROOT;

/// An imported pool. Dropping it without [`Pool::export`] or [`Pool::close`] commits nothing more, as a crash would.
pub struct Pool {
    core: Arc<Core>,
    devices: Arc<Devices>,
    zil: Arc<Zil>,
    datasets: Arc<Datasets>,
    streams: Streams,
    syncer: Arc<Syncer>,
    /// The import is done. One that fails leaves the devices to whoever called it.
    is_live: bool,
    tasks: Mutex<Vec<Box<dyn TaskHandle>>>,
}

/// A dataset in use.
pub struct DatasetHandle {
    dataset: Arc<Dataset>,
    snapshots: SnapshotsOf,
    uses: Arc<AtomicUsize>,
}

impl DatasetHandle {
    /// The dataset.
    #[must_use]
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Its snapshots.
    #[must_use]
    pub fn snapshots(&self) -> SnapshotsOf {
        self.snapshots.clone()
    }
}

impl Drop for DatasetHandle {
    fn drop(&mut self) {
        self.uses.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One leaf device as status shows it.
#[derive(Clone, Debug)]
pub struct LeafStatus {
    /// Identity and path.
    pub config: LeafConfig,
    /// Nothing is read from it or written to it. One that leaves may be out of use, and its state is the same.
    pub is_out: bool,
    /// Bytes that segments can fill.
    pub size_bytes: u64,
    /// Bytes that live.
    pub allocated_bytes: u64,
    /// What was asked of it, and how often it failed.
    pub counts: DeviceCounts,
    /// The same as the device saw it, with times.
    pub sample: Sample,
    /// Calls that were slow.
    pub slow: u64,
    /// Why it is marked as degraded, if it is.
    pub degraded: Option<Cause>,
    /// Is what was opened still there?
    pub presence: Presence,
    /// Could it be expanded?
    pub growth: Growth,
    /// How far its trim is.
    pub trim: TrimStatus,
    /// How far its initialization is.
    pub initialize: TrimStatus,
}

/// What `zpool list` and `zpool status` measure.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// The number with which the pool was made, which it keeps.
    pub made_as: PoolGuid,
    /// Groups of leaves.
    pub groups: Vec<GroupConfig>,
    /// The last scrub or resilver.
    pub scan: Option<ScanRow>,
    /// Bytes a second that a scrub reads at most beside other load; `None`: as much as half of the time gives.
    pub scrub_limit: Option<u64>,
    /// Datasets that the last scrub left out, because their keys were not loaded.
    pub scrub_left_out: Vec<String>,
    /// What moves things from devices to others, or did last.
    pub moving: Option<ScanRow>,
    /// Why the pool is suspended, if it is.
    pub suspended: Option<String>,
    /// Last committed txg.
    pub txg: Txg,
    /// Devices.
    pub leaves: Vec<LeafStatus>,
    /// Anchor, if the pool has one.
    pub anchor: Option<steadfast_anchor::Status>,
    /// Space.
    pub accounting: Accounting,
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
}

impl Pool {
    /// Starts the tasks of a pool that stands: sync and the log's interval. In a world without tasks their steps are made by
    /// those who wait for a commit, and by [`Pool::step`] and [`Pool::log_interval`].
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
        } else {
            let (weak, turn) = (Arc::downgrade(&self.syncer), Mutex::new(self.syncer.first_turn()));
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

    /// Commits everything done so far; durable when it returns.
    pub fn sync(&self) -> Result<()> {
        self.core.wait_durable()
    }

    /// In a world without tasks: one look of the sync loop, which commits if it is time to, and else lets that time pass.
    /// Elsewhere nothing.
    pub fn step(&self) {
        self.core.txgs.commits.make_step();
    }

    /// What a task does about once a second, and nobody else in a world without tasks: logs what is pending of datasets with
    /// `journal=data`. `None` if there are none; true if all that was done in them before is durable, false if it will be by a
    /// commit that was asked for.
    #[must_use]
    pub fn log_interval(&self) -> Option<bool> {
        self.zil.log_interval()
    }

    /// Bytes that the scrub and the resilver under way have to look at yet, at least 1 while one is, and from the moment on from
    /// which a device is to be seen whose coming begins a resilver, or whose failure does where a spare waits, until the spare is in its
    /// place or waits again.
    #[must_use]
    pub fn scan_remaining(&self) -> [u64; 2] {
        if self.core.health.read_only {
            // What was under way goes on with an import that may write.
            return [0; 2];
        }
        // Looked at before the scan, as it is over when the scan has begun.
        let due = self.devices.is_resilver_due();
        let scan = self.devices.scan_status().filter(|scan| scan.state == ScanState::Active);
        let left = |kind| scan.filter(|scan| scan.kind == kind);
        // What has no room yet is nothing to wait for.
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

    /// Whether a device has left that is not free yet. Order of looks: a device is among those that leave until it is among these.
    pub(crate) fn has_departing(&self) -> bool {
        !self.devices.topology.departed.lock().is_empty()
    }

    /// Begins, pauses or ends a scrub.
    pub fn scrub(&self, command: ScrubCommand) -> Result<()> {
        self.devices.scrub(command)
    }

    /// Takes a device of a group out of use. Refused if the group cannot do without it.
    pub fn offline(&self, path: &str) -> Result<()> {
        self.offline_as(path, Offline::default())
    }

    /// The same in another way.
    pub fn offline_as(&self, path: &str, how: Offline) -> Result<()> {
        if let Some(log) = self.zil.log_named(path) {
            self.core.check_writable()?;
            return self.zil.offline_log(&log, how);
        }
        self.devices.offline(path, how)
    }

    /// Takes a device into use again; `open` opens it if that is needed. True if it was out of use.
    pub fn online(&self, path: &str, open: &dyn Fn() -> Result<Arc<dyn Device>>) -> Result<bool> {
        if let Some(log) = self.zil.log_named(path) {
            self.core.check_writable()?;
            return self.zil.online_log(&log, open);
        }
        self.devices.online(path, open)
    }

    /// Puts a device into the place of another of a group. Begun when it returns; the resilver ends it.
    pub fn replace(&self, old: &str, new: DeviceHandle, force: bool) -> Result<()> {
        if let Some(log) = self.zil.log_named(old) {
            self.core.check_writable()?;
            return self.zil.replace_log(&log, new, force);
        }
        self.devices.replace(old, new, force)
    }

    /// Gives up the hold on a device that is out of use, so that what lies under its path now can be opened. Refused for one in use.
    pub fn let_go(&self, path: &str) -> Result<()> {
        if let Some(log) = self.zil.log_named(path) {
            return self.zil.let_go_of_log(&log);
        }
        self.devices.let_go(path)
    }

    /// Measured state.
    #[must_use]
    pub fn state(&self) -> PoolStatus {
        let accounting = self.core.space.accounting();
        let counts = self.core.space.device_counts();
        // Before the devices: a spare that waits again is none of those, and one in use is.
        let spares = self.devices.spares_status();
        let (leaves, groups) = self.devices.leaves_and_groups();
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
                growth: self.devices.growth(&leaf),
                trim: self.devices.trim_status(Sweep::Trim, &leaf),
                initialize: self.devices.trim_status(Sweep::Initialize, &leaf),
                config,
            }
        });
        // Not in the expression below, which would hold the lock to its end, while names of damaged files are read.
        let suspended = self.core.health.suspended.lock().clone();
        PoolStatus {
            made_as: self.core.identity.guid,
            suspended,
            txg: self.core.txgs.commits.committed(),
            leaves: leaves.collect(),
            anchor: self.core.anchor().map(|anchor| anchor.status()),
            accounting,
            damaged: self.devices.damaged_files(),
            log: self.zil.log_status(),
            log_devices: self.zil.log_devices_status(),
            spares,
            caches: self.devices.caches_status(),
            groups,
            scan: self.devices.scan_status(),
            scrub_limit: self.devices.scrub_limit(),
            scrub_left_out: self.devices.scrub_left_out(),
            moving: self.devices.move_status(),
        }
    }

    /// What happened since this was last called, oldest first. At most some hundreds are kept.
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

    /// Makes the pool larger by devices, which lose what they held. With `dry_run` only says whether it would. Durable
    /// when it returns. Devices that carry an active or exported pool are refused unless `force`.
    pub fn add_groups(&self, groups: Vec<GroupHandles>, force: bool, dry_run: bool) -> Result<()> {
        self.devices.add_groups(groups, force, dry_run)
    }

    /// Gives the intent log devices of its own. With `dry_run` only says whether it would. Devices that carry a pool are
    /// refused unless `force`. Durable when it returns.
    pub fn add_logs(&self, devices: Vec<DeviceHandle>, force: bool, dry_run: bool) -> Result<()> {
        self.zil.add_logs(GroupHandles::alone(devices), force, dry_run)
    }

    /// The same of single devices and of mirrors.
    pub fn add_log_groups(&self, groups: Vec<GroupHandles>, force: bool, dry_run: bool) -> Result<()> {
        self.zil.add_logs(groups, force, dry_run)
    }

    /// Takes a device away from the intent log, by its path, with all of its mirror; groups go elsewhere from now on. Durable when it
    /// returns.
    pub fn remove_log(&self, path: &str) -> Result<()> {
        self.zil.remove_log(path)
    }

    /// Adds devices that wait to step in for others. With `dry_run` only says whether it would. Devices that carry a pool are
    /// refused unless `force`. Durable when it returns.
    pub fn add_spares(&self, devices: Vec<DeviceHandle>, force: bool, dry_run: bool) -> Result<()> {
        self.devices.add_spares(devices, force, dry_run)
    }

    /// Takes a spare away that is not in use, by its path. Durable when it returns.
    pub fn remove_spare(&self, path: &str) -> Result<()> {
        self.devices.remove_spare(path)
    }

    /// Adds devices that keep what was read from others. With `dry_run` only says whether it would. Devices that carry a pool are refused
    /// unless `force`. Durable when it returns.
    pub fn add_caches(&self, devices: Vec<DeviceHandle>, force: bool, dry_run: bool) -> Result<()> {
        self.devices.add_caches(devices, force, dry_run)
    }

    /// Takes a cache device away, by its path. Durable when it returns.
    pub fn remove_cache(&self, path: &str) -> Result<()> {
        self.devices.remove_cache(path)
    }

    /// Uses all of a device that has grown. Gives the bytes gained.
    pub fn expand(&self, path: &str) -> Result<u64> {
        self.devices.expand(path)
    }

    /// Begins, suspends or cancels the trim of devices, all of them if none is named; it goes on in the background.
    pub fn trim(&self, paths: &[String], command: TrimCommand) -> Result<()> {
        self.devices.sweep(Sweep::Trim, paths, command)
    }

    /// Begins, suspends or cancels the initialization of devices, all of them if none is named: free slots are filled with a pattern, in
    /// the background.
    pub fn initialize(&self, paths: &[String], command: TrimCommand) -> Result<()> {
        self.devices.sweep(Sweep::Initialize, paths, command)
    }

    /// Bytes that initializations under way have yet to go through; 0 if none is under way.
    #[must_use]
    pub fn initialize_remaining(&self) -> u64 {
        self.devices.trim_remaining(Sweep::Initialize)
    }

    /// Bytes that trims under way have yet to go through; 0 if none is under way.
    #[must_use]
    pub fn trim_remaining(&self) -> u64 {
        self.devices.trim_remaining(Sweep::Trim)
    }

    /// Bytes of what was deleted that the next commits give back, at least 1 if there are any.
    #[must_use]
    pub fn freeing(&self) -> u64 {
        self.datasets.freeing()
    }

    /// Asks for a commit and waits for nothing: who waits for what the next ones give back would else wait for the longest time
    /// that changes may stay uncommitted, with each of them.
    pub fn hurry(&self) {
        self.core.txgs.commits.request_sync(self.core.txgs.gate.open_txg());
    }

    /// Turns that background work and commits have taken since the import.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.core.txgs.commits.turns()
    }

    /// Waits until there were more turns than `seen`; so long at most. Whatever goes on in the background ends within a turn, so
    /// who asks for `turns` before he looks, and waits for the next one, misses no end.
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

    /// Forgets the content of blocks that only one pointer leads to: those written `days` ago or more, or the oldest `percent` of
    /// a hundred. How many. Durable when it returns.
    pub fn prune_known(&self, days: Option<u32>, percent: Option<u8>) -> Result<u64> {
        self.core.prune_known(days, percent)
    }

    /// What blocks that more than one pointer leads to come to, and blocks that are known by content.
    #[must_use]
    pub fn sharing(&self) -> SharingInfo {
        self.core.references.info()
    }

    /// Features that the pool may use.
    #[must_use]
    pub fn features(&self) -> Vec<Feature> {
        self.core.features.read().clone()
    }

    /// Forgets counted errors and damaged files; with paths, only what was counted of these devices.
    pub fn clear_errors(&self, paths: &[String]) {
        self.devices.clear_errors(paths);
        self.zil.clear_log_errors(paths);
    }

    /// Ends the pool's use here: everything is committed and the devices are free for anyone.
    pub fn export(&self) -> Result<()> {
        self.finish(Some(PoolState::Exported))
    }

    /// Like export, but the labels go on saying that the pool is in use: a daemon that stops and starts again.
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

    /// A thread that still answers a request may hold the devices for a moment; it is no reason to keep others away.
    fn release_devices(&self) {
        for leaf in self.devices.leaves() {
            leaf.device.release();
        }
        self.zil.log_devices.read().iter().for_each(|log| log.release());
        self.devices.aux.spares.read().iter().for_each(|spare| spare.release());
        self.devices.aux.caches.read().iter().for_each(|cache| cache.release());
    }

    fn settle(&self, state: Option<PoolState>) -> Result<()> {
        if self.core.health.read_only {
            return Ok(());
        }
        let suspended = self.core.is_suspended();
        if !suspended {
            self.core.health.changed.store(true, Ordering::Release);
            self.core.wait_durable()?;
        }
        self.core.health.stopping.store(true, Ordering::Release);
        self.core.txgs.commits.nudge();
        self.zil.interval.wake();
        for task in self.tasks.lock().drain(..) {
            task.join();
        }
        if suspended {
            // What is on the devices is of unknown extent; the labels stay as they are.
            return Ok(());
        }
        // Nobody commits any more, and who waits for a commit from here on is told so: it would have no end.
        match self.settle_alone(state) {
            Ok(()) => {
                // Nor does anybody let those go that `failmode=wait` would hold.
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

    /// What is left to be done when the tasks have ended.
    fn settle_alone(&self, state: Option<PoolState>) -> Result<()> {
        if self.core.has_changes() {
            self.syncer.commit()?;
        }
        self.core.space.discard_all();
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
            self.core.health.changed.store(true, Ordering::Release);
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

    /// Lets operations fail that wait because the pool is suspended (`failmode=wait`), and those that come: before file systems are
    /// unmounted. [`Pool::hold_writers`] takes it back.
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
        let others = others.iter().filter(|aux| aux.class != AuxClass::Anchor && !aux.given_up);
        for aux in others {
            if !paths.contains(&aux.path) {
                paths.push(aux.path.clone());
            }
        }
        paths
    }

    /// Why the pool is suspended, if it is.
    #[must_use]
    pub fn suspended(&self) -> Option<String> {
        self.core.health.suspended.lock().clone()
    }

    /// Full names of all datasets, parents before children, in the order of their names.
    #[must_use]
    pub fn datasets(&self) -> Vec<String> {
        let table = self.datasets.table.read();
        let mut names: Vec<String> = table.iter().map(|(id, _)| table.full_name(id)).collect();
        names.sort_by(|a, b| a.split('/').cmp(b.split('/')));
        names
    }

    /// Measured values of a dataset.
    pub fn dataset_info(&self, name: &str) -> Result<DatasetInfo> {
        let id = self.datasets.table.read().find(name)?;
        let missing = || Error::NoSuchDataset { name: name.to_owned() };
        let mut info = self.datasets.info(id).ok_or_else(missing)?;
        if let Some(volume) = &mut info.volume {
            *volume = self.datasets.volume_info(id);
        }
        Ok(info)
    }

    /// The value of a property that counts for a dataset and where it comes from; `None` as in
    /// [`steadfast_property::resolve`].
    pub fn resolve(&self, name: &str, property: &str, mount_base: &str) -> Result<Option<Resolved>> {
        let table = self.datasets.table.read();
        let id = table.find(name)?;
        Ok(table.resolve(id, property, mount_base))
    }

    /// Properties that count on a dataset by itself, set or received.
    pub fn local_props(&self, name: &str) -> Result<Local> {
        let table = self.datasets.table.read();
        let id = table.find(name)?;
        Ok(table.get(id).map(|entry| entry.props.clone()).unwrap_or_default())
    }

    /// Values that a dataset received with streams, whether they count or not.
    pub fn received_props(&self, name: &str) -> Result<Local> {
        self.datasets.received_props(name)
    }

    /// A property goes back to what was received, or to what the parent has. Durable when it returns.
    pub fn revert_property(&self, name: &str, property: &str) -> Result<()> {
        self.datasets.revert_property(name, property)
    }

    /// Makes a dataset. With `key` it becomes an encryption root; below an encrypted dataset it is encrypted in any
    /// case. Durable when it returns.
    pub fn create_dataset(&self, name: &str, props: Local, key: Option<NewKey>) -> Result<DatasetId> {
        self.datasets.create_dataset(name, props, key)
    }

    /// Destroys a dataset without children and snapshots that nobody uses; its space comes back in the background.
    pub fn destroy_dataset(&self, name: &str) -> Result<()> {
        self.datasets.destroy_dataset(name, false)
    }

    /// Moves a dataset, with all below it, to another name of the same pool. Durable when it returns.
    pub fn rename_dataset(&self, name: &str, to: &str) -> Result<()> {
        self.datasets.rename_dataset(name, to)
    }

    /// Gives a dataset another user key (`Some`), or the one of the encryption root above it (`None`). Its key must be
    /// loaded. Datasets below that take their key from the same place follow. Durable when it returns.
    pub fn change_key(&self, name: &str, key: Option<NewKey>, location: Option<&str>) -> Result<()> {
        self.datasets.change_key(name, key, location)
    }

    /// Sets (or with `None` removes) a property of a dataset. Durable when it returns.
    pub fn set_property(&self, name: &str, property: &str, value: Option<&str>) -> Result<()> {
        self.datasets.set_properties(name, &[(property, value)])
    }

    /// Sets (or with `None` removes) properties of a dataset, all in one commit or none. Durable when it returns.
    pub fn set_properties(&self, name: &str, edits: &[(&str, Option<&str>)]) -> Result<()> {
        self.datasets.set_properties(name, edits)
    }

    /// What users and groups take up of a dataset, and may.
    pub fn owner_uses(&self, name: &str) -> Result<BTreeMap<Owner, OwnerUse>> {
        self.datasets.owner_uses(name)
    }

    /// Format of the key that [`Pool::load_key`] wants.
    pub fn key_format(&self, name: &str) -> Result<KeyFormat> {
        self.datasets.key_format(name)
    }

    /// Loads the key of an encryption root; with `dry_run` only says whether it is the right one.
    pub fn load_key(&self, name: &str, secret: &[u8], dry_run: bool) -> Result<()> {
        self.datasets.load_key(name, secret, dry_run)
    }

    /// Forgets the key of an encryption root. None of its datasets may be in use.
    pub fn unload_key(&self, name: &str) -> Result<()> {
        self.datasets.unload_key(name)
    }

    /// A dataset for mounting. It is in use as long as the handle lives: it is not destroyed, and its key not unloaded.
    pub fn open_dataset(&self, name: &str) -> Result<DatasetHandle> {
        let id = self.datasets.table.read().find(name)?;
        self.datasets.use_dataset(id)
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
        self.core.blockio.stop_read_ahead();
        self.core.health.stopping.store(true, Ordering::Release);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        if !tasks.is_empty() {
            // Whoever drops a pool without closing it wants what a crash would leave: no further commit.
            self.core.suspend(&Error::Suspended { pool: self.name(), reason: "it was dropped".into() });
            self.core.txgs.commits.nudge();
            self.zil.interval.wake();
            tasks.into_iter().for_each(|task| _ = task.join());
        }
        self.release_devices();
    }
}
