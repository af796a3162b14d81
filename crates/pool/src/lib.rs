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
mod import;
mod log;
mod streams;

#[cfg(test)]
mod test_pool;
mod verbs;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use steadfast_dataset::Dataset;
use steadfast_device::Device;
use steadfast_env::{Env, TaskHandle};
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
pub use crate::datasets::bookmarks::BookmarkInfo;
pub use crate::datasets::counts;
pub use crate::datasets::dataset::{DatasetInfo, NewKey};
pub use crate::datasets::ddt::SharingInfo;
pub use crate::datasets::diff::{ChangeKind, FileChange};
pub use crate::datasets::holds::Hold;
pub use crate::datasets::keys::new_user_key;
pub use crate::datasets::owners::OwnerUse;
pub use crate::datasets::snapshots::{SnapshotHandle, SnapshotInfo, SnapshotsOf};
pub use crate::datasets::volumes::{VolumeInfo, VolumeSpec};
pub use crate::devices::diagnosis::{Cause, ERRORS_MAX, WINDOW};
pub use crate::devices::errlog::DamagedFile;
pub use crate::devices::groups::{
    is_enough, needed_among, number_of, redundancy_of, special_among, word as group_word,
};
pub use crate::devices::grow::{Growth, check_unoccupied};
pub use crate::devices::l2arc::CacheDeviceStatus;
pub use crate::devices::removal::move_word;
pub use crate::devices::scrub::{Offline, ScrubCommand};
pub use crate::devices::spares::SpareStatus;
pub use crate::devices::trim::{Sweep, TrimCommand, TrimState, TrimStatus};
pub use crate::devices::{groups, inject};
pub use crate::import::anchor;
pub use crate::import::anchor::{AnchorWish, Registers};
pub use crate::import::create::{CreateSpec, DeviceHandle, GroupHandles};
pub use crate::import::load::ImportSpec;
pub use crate::import::scan::{FoundDevice, FoundPool, erase, label_of, scan};
pub use crate::log::log_device::LogDeviceStatus;
pub use crate::log::zil::LogStatus;
pub use crate::streams::receive::{Naming, ReceiveSpec, ReceiveWatch, Received};
pub use crate::streams::receive_hidden::Partial;
pub use crate::streams::send::SendSpec;
pub use steadfast_dataset::InodesInMemory;
pub use steadfast_device::Presence;
pub use steadfast_device::metered::{Count, Sample};
pub use steadfast_format::{LogOut, SharingClass};
pub use steadfast_format::{ScanKind, ScanRow, ScanState};

use crate::core::inner::Inner;
use crate::datasets::table::ROOT;

/// An imported pool. Dropping it without [`Pool::export`] or [`Pool::close`] commits nothing more, as a crash would.
pub struct Pool {
    inner: Arc<Inner>,
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
    pub(crate) fn start(inner: Inner) -> Pool {
        let inner = Arc::new(inner);
        inner.apply_failmode();
        let concurrent = inner.env.tasks.is_concurrent();
        if !inner.read_only && !concurrent {
            let (weak, turn) = (Arc::downgrade(&inner), Mutex::new(inner.first_turn()));
            inner.txgs.commits.set_step(Box::new(move || {
                if let Some(inner) = weak.upgrade()
                    && let crate::commit::sync::Next::Park(_, patience) = inner.turn(&mut turn.lock())
                {
                    inner.env.clock.sleep(patience);
                }
            }));
        }
        let mut tasks = Vec::new();
        if !inner.read_only && concurrent {
            let (env, name): (Env, String) = (inner.env.clone(), inner.name());
            let (sync, log) = (Arc::clone(&inner), Arc::clone(&inner));
            tasks.push(env.tasks.spawn(&format!("sync {name}"), Box::new(move || sync.sync_loop())));
            tasks.push(env.tasks.spawn(&format!("log {name}"), Box::new(move || log.interval_loop())));
        }
        Pool { inner, tasks: Mutex::new(tasks) }
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// Number that identifies the pool.
    #[must_use]
    pub fn guid(&self) -> PoolGuid {
        self.inner.known_as()
    }

    /// Gives the pool another number. Refused unless all its devices are here. Durable when it returns.
    pub fn reguid(&self) -> Result<()> {
        self.inner.reguid()
    }

    /// True if nothing may be changed.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.read_only
    }

    /// True if the pool's own metadata is sealed.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.inner.sealing.is_some()
    }

    /// Log2 of the allocation unit.
    #[must_use]
    pub fn ashift(&self) -> u8 {
        self.inner.ashift
    }

    /// When the pool was made, seconds since 1970.
    #[must_use]
    pub fn created_seconds(&self) -> u64 {
        self.inner.created_ns / 1_000_000_000
    }

    /// Commits everything done so far; durable when it returns.
    pub fn sync(&self) -> Result<()> {
        self.inner.wait_durable()
    }

    /// In a world without tasks: one look of the sync loop, which commits if it is time to, and else lets that time pass.
    /// Elsewhere nothing.
    pub fn step(&self) {
        self.inner.txgs.commits.make_step();
    }

    /// What a task does about once a second, and nobody else in a world without tasks: logs what is pending of datasets with
    /// `journal=data`. `None` if there are none; true if all that was done in them before is durable, false if it will be by a
    /// commit that was asked for.
    #[must_use]
    pub fn log_interval(&self) -> Option<bool> {
        self.inner.log_interval()
    }

    /// Bytes that the scrub and the resilver under way have to look at yet, at least 1 while one is, and from the moment on from
    /// which a device is to be seen whose coming begins a resilver, or whose failure does where a spare waits, until the spare is in its
    /// place or waits again.
    #[must_use]
    pub fn scan_remaining(&self) -> [u64; 2] {
        if self.inner.read_only {
            // What was under way goes on with an import that may write.
            return [0; 2];
        }
        // Looked at before the scan, as it is over when the scan has begun.
        let due = self.inner.is_resilver_due();
        let scan = self.inner.scan_status().filter(|scan| scan.state == ScanState::Active);
        let left = |kind| scan.filter(|scan| scan.kind == kind);
        // What has no room yet is nothing to wait for.
        let stuck = self.inner.scan_status().is_some_and(|scan| scan.missing > 0);
        let is_moving = |id: &DeviceId| !self.inner.space.is_group_leaving(*id);
        // One that has left is free for others when its labels are erased, and not before.
        let leaving = || self.inner.replacing.lock().iter().any(is_moving) || self.has_departing();
        let replacing = !stuck && leaving();
        let bytes = |scan: ScanRow| scan.total.saturating_sub(scan.read).max(1);
        let resilver = left(ScanKind::Resilver).map(bytes);
        // A scrub that lost something is over when the files are known.
        let naming =
            self.inner.scan_status().is_some_and(|scan| scan.kind == ScanKind::Scrub && scan.lost > 0)
                && self.inner.searching.load(Ordering::Acquire);
        let scrub = left(ScanKind::Scrub).map_or(u64::from(naming), bytes);
        // A resilver that has ended may leave a spare something to be done.
        let resilver = resilver.unwrap_or_else(|| u64::from(due || replacing || self.inner.is_spare_due()));
        [scrub, resilver]
    }

    /// Whether a device has left that is not free yet. Order of looks: a device is among those that leave until it is among these.
    pub(crate) fn has_departing(&self) -> bool {
        !self.inner.departed.lock().is_empty()
    }

    /// Begins, pauses or ends a scrub.
    pub fn scrub(&self, command: ScrubCommand) -> Result<()> {
        self.inner.scrub(command)
    }

    /// Takes a device of a group out of use. Refused if the group cannot do without it.
    pub fn offline(&self, path: &str) -> Result<()> {
        self.inner.offline(path, Offline::default())
    }

    /// The same in another way.
    pub fn offline_as(&self, path: &str, how: Offline) -> Result<()> {
        self.inner.offline(path, how)
    }

    /// Takes a device into use again; `open` opens it if that is needed. True if it was out of use.
    pub fn online(&self, path: &str, open: &dyn Fn() -> Result<Arc<dyn Device>>) -> Result<bool> {
        self.inner.online(path, open)
    }

    /// Puts a device into the place of another of a group. Begun when it returns; the resilver ends it.
    pub fn replace(&self, old: &str, new: DeviceHandle, force: bool) -> Result<()> {
        self.inner.replace(old, new, force)
    }

    /// Gives up the hold on a device that is out of use, so that what lies under its path now can be opened. Refused for one in use.
    pub fn let_go(&self, path: &str) -> Result<()> {
        self.inner.let_go(path)
    }

    /// Measured state.
    #[must_use]
    pub fn state(&self) -> PoolStatus {
        let inner = &self.inner;
        let accounting = inner.space.accounting();
        let counts = inner.space.device_counts();
        // Before the devices: a spare that waits again is none of those, and one in use is.
        let spares = inner.spares_status();
        let (leaves, groups) = inner.leaves_and_groups();
        let leaves = leaves.into_iter().map(|(leaf, config)| {
            let usage = accounting.devices.iter().find(|usage| usage.device == config.id);
            LeafStatus {
                is_out: inner.space.is_out_of_use(config.id),
                size_bytes: u64::from(config.slots) * u64::from(inner.column_of(&config)),
                allocated_bytes: usage.map_or(0, |usage| usage.live_bytes),
                counts: counts.get(&config.id).copied().unwrap_or_default(),
                sample: leaf.meter.sample(),
                slow: leaf.meter.slow(),
                degraded: inner.diagnosis.mark(config.id),
                presence: leaf.device.presence(),
                growth: inner.growth(&leaf),
                trim: inner.trim_status(Sweep::Trim, &leaf),
                initialize: inner.trim_status(Sweep::Initialize, &leaf),
                config,
            }
        });
        // Not in the expression below, which would hold the lock to its end, while names of damaged files are read.
        let suspended = inner.suspended.lock().clone();
        PoolStatus {
            made_as: inner.guid,
            suspended,
            txg: inner.txgs.commits.committed(),
            leaves: leaves.collect(),
            anchor: inner.anchor().map(|anchor| anchor.status()),
            accounting,
            damaged: inner.damaged_files(),
            log: inner.log_status(),
            log_devices: inner.log_devices_status(),
            spares,
            caches: inner.caches_status(),
            groups,
            scan: inner.scan_status(),
            scrub_limit: inner.scrub_limit(),
            scrub_left_out: inner.scrub_left_out(),
            moving: inner.move_status(),
        }
    }

    /// What happened since this was last called, oldest first. At most some hundreds are kept.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        // Looking at what is damaged is what turns it into events.
        self.inner.damaged_files();
        self.inner.events.take()
    }

    /// Full name of a dataset by its number, as events give it.
    #[must_use]
    pub fn dataset_by_id(&self, id: DatasetId) -> String {
        if id.0 == 0 { self.name() } else { self.inner.dataset_name(id) }
    }

    /// Makes the pool larger by devices, which lose what they held. With `dry_run` only says whether it would. Durable
    /// when it returns. Devices that carry an active or exported pool are refused unless `force`.
    pub fn add_groups(&self, groups: Vec<GroupHandles>, force: bool, dry_run: bool) -> Result<()> {
        self.inner.add_groups(groups, force, dry_run)
    }

    /// Gives the pool an anchor at the path of `wish`. With `dry_run` only says whether it would. What is at the path is
    /// refused unless `force`. Durable when it returns.
    pub fn add_anchor(&self, wish: &AnchorWish, force: bool, dry_run: bool) -> Result<()> {
        self.inner.add_anchor(wish, force, dry_run)
    }

    /// Lets the pool live without the anchor at this path; the register is marked as retired. From now on nothing notices
    /// if the pool is put back to an earlier copy. Durable when it returns.
    pub fn remove_anchor(&self, path: &str) -> Result<()> {
        let register = self.inner.anchor().map(|anchor| anchor.identity());
        if register.as_deref() != Some(path) {
            return Err(Error::NoSuchAnchor { pool: self.name(), path: path.to_owned() });
        }
        self.inner.remove_anchor()
    }

    /// Gives the intent log devices of its own. With `dry_run` only says whether it would. Devices that carry a pool are
    /// refused unless `force`. Durable when it returns.
    pub fn add_logs(&self, devices: Vec<DeviceHandle>, force: bool, dry_run: bool) -> Result<()> {
        self.inner.add_logs(GroupHandles::alone(devices), force, dry_run)
    }

    /// The same of single devices and of mirrors.
    pub fn add_log_groups(&self, groups: Vec<GroupHandles>, force: bool, dry_run: bool) -> Result<()> {
        self.inner.add_logs(groups, force, dry_run)
    }

    /// Takes a device away from the intent log, by its path, with all of its mirror; groups go elsewhere from now on. Durable when it
    /// returns.
    pub fn remove_log(&self, path: &str) -> Result<()> {
        self.inner.remove_log(path)
    }

    /// Adds devices that wait to step in for others. With `dry_run` only says whether it would. Devices that carry a pool are
    /// refused unless `force`. Durable when it returns.
    pub fn add_spares(&self, devices: Vec<DeviceHandle>, force: bool, dry_run: bool) -> Result<()> {
        self.inner.add_spares(devices, force, dry_run)
    }

    /// Takes a spare away that is not in use, by its path. Durable when it returns.
    pub fn remove_spare(&self, path: &str) -> Result<()> {
        self.inner.remove_spare(path)
    }

    /// Adds devices that keep what was read from others. With `dry_run` only says whether it would. Devices that carry a pool are refused
    /// unless `force`. Durable when it returns.
    pub fn add_caches(&self, devices: Vec<DeviceHandle>, force: bool, dry_run: bool) -> Result<()> {
        self.inner.add_caches(devices, force, dry_run)
    }

    /// Takes a cache device away, by its path. Durable when it returns.
    pub fn remove_cache(&self, path: &str) -> Result<()> {
        self.inner.remove_cache(path)
    }

    /// Uses all of a device that has grown. Gives the bytes gained.
    pub fn expand(&self, path: &str) -> Result<u64> {
        self.inner.expand(path)
    }

    /// Begins, suspends or cancels the trim of devices, all of them if none is named; it goes on in the background.
    pub fn trim(&self, paths: &[String], command: TrimCommand) -> Result<()> {
        self.inner.sweep(Sweep::Trim, paths, command)
    }

    /// Begins, suspends or cancels the initialization of devices, all of them if none is named: free slots are filled with a pattern, in
    /// the background.
    pub fn initialize(&self, paths: &[String], command: TrimCommand) -> Result<()> {
        self.inner.sweep(Sweep::Initialize, paths, command)
    }

    /// Bytes that initializations under way have yet to go through; 0 if none is under way.
    #[must_use]
    pub fn initialize_remaining(&self) -> u64 {
        self.inner.trim_remaining(Sweep::Initialize)
    }

    /// Bytes that trims under way have yet to go through; 0 if none is under way.
    #[must_use]
    pub fn trim_remaining(&self) -> u64 {
        self.inner.trim_remaining(Sweep::Trim)
    }

    /// Bytes of what was deleted that the next commits give back, at least 1 if there are any.
    #[must_use]
    pub fn freeing(&self) -> u64 {
        self.inner.freeing()
    }

    /// Asks for a commit and waits for nothing: who waits for what the next ones give back would else wait for the longest time
    /// that changes may stay uncommitted, with each of them.
    pub fn hurry(&self) {
        self.inner.txgs.commits.request_sync(self.inner.txgs.gate.open_txg());
    }

    /// Turns that background work and commits have taken since the import.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.inner.txgs.commits.turns()
    }

    /// Waits until there were more turns than `seen`; so long at most. Whatever goes on in the background ends within a turn, so
    /// who asks for `turns` before he looks, and waits for the next one, misses no end.
    pub fn wait_turn(&self, seen: u64, patience: Duration) {
        self.inner.txgs.commits.wait_turn(seen, patience);
    }

    /// Reads what is known by content into memory, as far as there is room. Waits for it.
    pub fn fill_index(&self) -> Result<()> {
        loop {
            let _turn = self.inner.sync_turn.lock();
            if !self.inner.references.fill_step()? {
                return Ok(());
            }
        }
    }

    /// Forgets the content of blocks that only one pointer leads to: those written `days` ago or more, or the oldest `percent` of
    /// a hundred. How many. Durable when it returns.
    pub fn prune_known(&self, days: Option<u32>, percent: Option<u8>) -> Result<u64> {
        self.inner.prune_known(days, percent)
    }

    /// What blocks that more than one pointer leads to come to, and blocks that are known by content.
    #[must_use]
    pub fn sharing(&self) -> SharingInfo {
        self.inner.references.info()
    }

    /// Features that the pool may use.
    #[must_use]
    pub fn features(&self) -> Vec<Feature> {
        self.inner.features.read().clone()
    }

    /// Lets the pool use a feature from now on; there is no way back. Durable when it returns.
    pub fn enable_feature(&self, name: &str) -> Result<()> {
        self.inner.enable_feature(name)
    }

    /// Forgets counted errors and damaged files; with paths, only what was counted of these devices.
    pub fn clear_errors(&self, paths: &[String]) {
        self.inner.clear_errors(paths);
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
        self.inner.blockio.stop_read_ahead();
        self.release_devices();
        Ok(())
    }

    /// A thread that still answers a request may hold the devices for a moment; it is no reason to keep others away.
    fn release_devices(&self) {
        for leaf in self.inner.leaves() {
            leaf.device.release();
        }
        self.inner.log_devices.read().iter().for_each(|log| log.release());
        self.inner.spares.read().iter().for_each(|spare| spare.release());
        self.inner.caches.read().iter().for_each(|cache| cache.release());
    }

    fn settle(&self, state: Option<PoolState>) -> Result<()> {
        let inner = &self.inner;
        if inner.read_only {
            return Ok(());
        }
        let suspended = inner.is_suspended();
        if !suspended {
            inner.changed.store(true, Ordering::Release);
            inner.wait_durable()?;
        }
        inner.stopping.store(true, Ordering::Release);
        inner.txgs.commits.nudge();
        inner.interval.wake();
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
                inner.txgs.commits.set_holding(false);
                inner.txgs.commits.suspend("it is not in use here any more");
            }
            Err(error) => {
                inner.suspend(&error);
                return Err(error);
            }
        }
        if let Some(anchor) = inner.anchor() {
            anchor.settle();
        }
        Ok(())
    }

    /// What is left to be done when the tasks have ended.
    fn settle_alone(&self, state: Option<PoolState>) -> Result<()> {
        let inner = &self.inner;
        if inner.has_changes() {
            inner.commit()?;
        }
        inner.space.discard_all();
        match state {
            Some(state) => inner.write_labels(state, inner.txgs.commits.committed()),
            None => Ok(()),
        }
    }

    /// Adds a line to the history; stored with the next commit.
    pub fn log(&self, uid: u32, internal: bool, text: &str) {
        let inner = &self.inner;
        if !inner.read_only {
            let txg = inner.txgs.gate.open_txg();
            inner.history.lock().add(inner.now_ns(), txg, uid, internal, &inner.host, text);
            inner.changed.store(true, Ordering::Release);
        }
    }

    /// The history, oldest first.
    pub fn history(&self) -> Result<Vec<HistoryEntry>> {
        // Before what is stored is read: a commit meanwhile moves lines from here to there.
        let recent = self.inner.history.lock().recent();
        let mut entries = Vec::new();
        for item in self.inner.items_of(meta_keys::HISTORY) {
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
        self.inner.props.read().values.clone()
    }

    /// Sets (or with `None` removes) a property of the pool. Durable when it returns.
    pub fn set_pool_prop(&self, name: &str, value: Option<&str>) -> Result<()> {
        self.inner.check_writable()?;
        {
            let mut props = self.inner.props.write();
            match value {
                Some(value) => _ = props.values.insert(name.to_owned(), value.to_owned()),
                None => _ = props.values.remove(name),
            }
            props.dirty.insert(name.to_owned());
        }
        self.inner.apply_failmode();
        self.inner.commit_changes()
    }

    /// Lets operations fail that wait because the pool is suspended (`failmode=wait`), and those that come: before file systems are
    /// unmounted. [`Pool::hold_writers`] takes it back.
    pub fn release_writers(&self) {
        self.inner.txgs.commits.set_holding(false);
    }

    /// Operations wait or fail on a suspended pool as the property `failmode` says.
    pub fn hold_writers(&self) {
        self.inner.apply_failmode();
    }

    /// Paths of all its devices: those that hold segments, of the log, and spares that wait.
    #[must_use]
    pub fn device_paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.inner.leaves().iter().map(|leaf| leaf.path()).collect();
        let others = self.inner.aux.read();
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
        self.inner.suspended.lock().clone()
    }

    /// Full names of all datasets, parents before children, in the order of their names.
    #[must_use]
    pub fn datasets(&self) -> Vec<String> {
        let table = self.inner.table.read();
        let mut names: Vec<String> = table.iter().map(|(id, _)| table.full_name(id)).collect();
        names.sort_by(|a, b| a.split('/').cmp(b.split('/')));
        names
    }

    /// Measured values of a dataset.
    pub fn dataset_info(&self, name: &str) -> Result<DatasetInfo> {
        let id = self.inner.table.read().find(name)?;
        let missing = || Error::NoSuchDataset { name: name.to_owned() };
        let mut info = self.inner.info(id).ok_or_else(missing)?;
        if let Some(volume) = &mut info.volume {
            *volume = self.inner.volume_info(id);
        }
        Ok(info)
    }

    /// The value of a property that counts for a dataset and where it comes from; `None` as in
    /// [`steadfast_property::resolve`].
    pub fn resolve(&self, name: &str, property: &str, mount_base: &str) -> Result<Option<Resolved>> {
        let table = self.inner.table.read();
        let id = table.find(name)?;
        Ok(table.resolve(id, property, mount_base))
    }

    /// Properties that count on a dataset by itself, set or received.
    pub fn local_props(&self, name: &str) -> Result<Local> {
        let table = self.inner.table.read();
        let id = table.find(name)?;
        Ok(table.get(id).map(|entry| entry.props.clone()).unwrap_or_default())
    }

    /// Values that a dataset received with streams, whether they count or not.
    pub fn received_props(&self, name: &str) -> Result<Local> {
        self.inner.received_props(name)
    }

    /// A property goes back to what was received, or to what the parent has. Durable when it returns.
    pub fn revert_property(&self, name: &str, property: &str) -> Result<()> {
        self.inner.revert_property(name, property)
    }

    /// Makes a dataset. With `key` it becomes an encryption root; below an encrypted dataset it is encrypted in any
    /// case. Durable when it returns.
    pub fn create_dataset(&self, name: &str, props: Local, key: Option<NewKey>) -> Result<DatasetId> {
        self.inner.create_dataset(name, props, key)
    }

    /// Destroys a dataset without children and snapshots that nobody uses; its space comes back in the background.
    pub fn destroy_dataset(&self, name: &str) -> Result<()> {
        self.inner.destroy_dataset(name, false)
    }

    /// Moves a dataset, with all below it, to another name of the same pool. Durable when it returns.
    pub fn rename_dataset(&self, name: &str, to: &str) -> Result<()> {
        self.inner.rename_dataset(name, to)
    }

    /// Gives a dataset another user key (`Some`), or the one of the encryption root above it (`None`). Its key must be
    /// loaded. Datasets below that take their key from the same place follow. Durable when it returns.
    pub fn change_key(&self, name: &str, key: Option<NewKey>, location: Option<&str>) -> Result<()> {
        self.inner.change_key(name, key, location)
    }

    /// Sets (or with `None` removes) a property of a dataset. Durable when it returns.
    pub fn set_property(&self, name: &str, property: &str, value: Option<&str>) -> Result<()> {
        self.inner.set_properties(name, &[(property, value)])
    }

    /// Sets (or with `None` removes) properties of a dataset, all in one commit or none. Durable when it returns.
    pub fn set_properties(&self, name: &str, edits: &[(&str, Option<&str>)]) -> Result<()> {
        self.inner.set_properties(name, edits)
    }

    /// What users and groups take up of a dataset, and may.
    pub fn owner_uses(&self, name: &str) -> Result<BTreeMap<Owner, OwnerUse>> {
        self.inner.owner_uses(name)
    }

    /// Format of the key that [`Pool::load_key`] wants.
    pub fn key_format(&self, name: &str) -> Result<KeyFormat> {
        self.inner.key_format(name)
    }

    /// Loads the key of an encryption root; with `dry_run` only says whether it is the right one.
    pub fn load_key(&self, name: &str, secret: &[u8], dry_run: bool) -> Result<()> {
        self.inner.load_key(name, secret, dry_run)
    }

    /// Forgets the key of an encryption root. None of its datasets may be in use.
    pub fn unload_key(&self, name: &str) -> Result<()> {
        self.inner.unload_key(name)
    }

    /// A dataset for mounting. It is in use as long as the handle lives: it is not destroyed, and its key not unloaded.
    pub fn open_dataset(&self, name: &str) -> Result<DatasetHandle> {
        let id = self.inner.table.read().find(name)?;
        self.inner.use_dataset(id)
    }

    /// Full name of the root dataset: that of the pool.
    #[must_use]
    pub fn root_dataset(&self) -> String {
        self.inner.dataset_name(ROOT)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.inner.blockio.stop_read_ahead();
        self.inner.stopping.store(true, Ordering::Release);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        if !tasks.is_empty() {
            // Whoever drops a pool without closing it wants what a crash would leave: no further commit.
            self.inner.suspend(&Error::Suspended { pool: self.name(), reason: "it was dropped".into() });
            self.inner.txgs.commits.nudge();
            self.inner.interval.wake();
            tasks.into_iter().for_each(|task| _ = task.join());
        }
        self.release_devices();
    }
}
