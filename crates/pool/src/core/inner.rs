//! The parts of an imported pool, shared by its operations and its sync task.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use steadfast_anchor::Anchor;
use steadfast_blockio::BlockIo;
use steadfast_crypto::{BlockKeys, Key};
use steadfast_dataset::{Dataset, InodeRoom};
use steadfast_device::inject::{Injected, Injector};
use steadfast_device::{Device, Kind, Meter, Metered};
use steadfast_env::Env;
use steadfast_format::{
    AuxConfig, BlockPointer, DatasetId, DeviceId, Feature, GroupConfig, LabelConfig, LeafConfig, LeafState,
    PoolGuid, PoolState, ScanRow, Txg, Uberblock, WrappedKey,
};
use steadfast_intent_log::Log;
use steadfast_property::Local;
use steadfast_segment::{CommitRoom, Space};
use steadfast_tree::{NodeCache, Tree};
use steadfast_txg::{Limits, Txgs};

use crate::core::admission::Admission;
use crate::core::error::{Error, Result};
use crate::core::events::{EventKind, Events};
use crate::core::history::History;
use crate::datasets::ddt::References;
use crate::datasets::freeing::Freeing;
use crate::datasets::manifest::Manifests;
use crate::datasets::quotas::Quotas;
use crate::datasets::snapshots::Request;
use crate::datasets::table::Table;
use crate::devices::diagnosis::Diagnosis;
use crate::devices::errlog::Search;
use crate::devices::l2arc::CacheDevice;
use crate::devices::scrub::{Scan, Told};
use crate::devices::spares::Spare;
use crate::devices::trim::Trims;
use crate::log::held::Held;
use crate::log::interval::Interval;
use crate::log::log_device::{LogDevice, LogMend};
use crate::log::log_mirror::LogChange;

/// One leaf device of an imported pool.
pub(crate) struct Leaf {
    /// As labels list it.
    pub config: RwLock<LeafConfig>,
    /// Behind its meter.
    pub device: Arc<dyn Device>,
    pub meter: Arc<Meter>,
    /// Faults on purpose.
    pub injector: Arc<Injector>,
}

impl Leaf {
    pub fn new(config: LeafConfig, device: Arc<dyn Device>, env: &Env, events: &Arc<Events>) -> Leaf {
        Leaf::with_injector(config, device, env, events, Injector::new(Arc::clone(&env.clock)))
    }

    /// The same for a device that is opened anew: what was injected stays in force.
    pub fn with_injector(
        config: LeafConfig,
        device: Arc<dyn Device>,
        env: &Env,
        events: &Arc<Events>,
        injector: Arc<Injector>,
    ) -> Leaf {
        let device = Arc::new(Injected::new(device, Arc::clone(&injector)));
        let ear = Arc::clone(events);
        let on_error = Box::new(move |error: &steadfast_device::Error| ear.device_failed(error));
        let (metered, meter) = Metered::new(device, Arc::clone(&env.clock), on_error);
        Leaf { config: RwLock::new(config), device: Arc::new(metered), meter, injector }
    }

    pub fn config(&self) -> LeafConfig {
        self.config.read().clone()
    }

    pub fn id(&self) -> DeviceId {
        self.config.read().id
    }

    pub fn path(&self) -> String {
        self.config.read().path.clone()
    }

    /// The device, if it is written and read.
    pub fn in_use(&self) -> Option<Arc<dyn Device>> {
        let state = self.config.read().state;
        let is_there = self.device.character().kind != Kind::Missing;
        (is_there && matches!(state, LeafState::Online | LeafState::Leaving))
            .then(|| Arc::clone(&self.device))
    }

    /// Zeros all uberblock slots and labels.
    pub fn erase_rings(&self) -> Result<()> {
        crate::import::scan::erase(&*self.device)?;
        Ok(())
    }
}

/// What seals the pool's own metadata.
pub(crate) struct Sealing {
    pub keys: Arc<BlockKeys>,
    /// Keys the tags of uberblocks.
    pub tag_key: Key,
    /// For the labels: the wrapped master key, and where its user key is to be found.
    pub wrapped: RwLock<(WrappedKey, String)>,
}

/// Properties of the pool itself.
#[derive(Default)]
pub(crate) struct PoolProps {
    pub values: Local,
    pub dirty: BTreeSet<String>,
}

/// What the next commit needs to know of the last one.
pub(crate) struct CommitState {
    pub tag: [u8; 32],
    /// The uberblock that the tag is of; `None` before the first.
    pub last: Option<Uberblock>,
    /// The next commit is the last that moves the anchor.
    pub retiring: bool,
    pub tail: Option<BlockPointer>,
    /// Labels are to be written again with the next commit.
    pub labels_dirty: bool,
    pub state: PoolState,
}

pub(crate) struct Inner {
    pub env: Env,
    pub guid: PoolGuid,
    /// By which people know it, if not by that; and by which they are about to.
    pub known_as: RwLock<Option<PoolGuid>>,
    pub becoming: RwLock<Option<PoolGuid>>,
    pub created_ns: u64,
    pub name: RwLock<String>,
    pub host: String,
    pub ashift: u8,
    pub slot_size: u32,
    pub features: RwLock<Vec<Feature>>,
    /// Auxiliary devices, as labels list them.
    pub aux: RwLock<Vec<AuxConfig>>,
    /// The scrub or resilver under way, or the last.
    pub scan: Mutex<Option<Scan>>,
    /// What is known of it while it is at work; taken after it, and held for no longer than a copy takes.
    pub scan_told: Mutex<Option<Told>>,
    /// The next commit gives the log other segments.
    pub move_log: AtomicBool,
    /// Devices that leave once nothing names them.
    pub replacing: Mutex<Vec<DeviceId>>,
    /// Spares that wait.
    pub spares: RwLock<Vec<Arc<Spare>>>,
    /// Devices that keep what was read.
    pub caches: RwLock<Vec<Arc<CacheDevice>>>,
    /// Devices that the next import takes into use again: labels call them gone.
    pub until_import: Mutex<BTreeSet<DeviceId>>,
    /// Devices whose spares the operator took away: no other steps in for them.
    pub unhelped: Mutex<BTreeSet<DeviceId>>,
    /// The next commit is followed by a resilver.
    pub resilver_wanted: AtomicBool,
    /// Verbs under way that a resilver may follow ([`Inner::resilver_due`]), and the evening out of a group.
    pub resilvers_due: AtomicUsize,
    pub expansions_due: AtomicUsize,
    /// What moves things from devices to others, or did last.
    pub moving: Mutex<Option<Scan>>,
    /// What is known of that while a part of it is under way; taken after it, and held for no longer than a copy takes.
    pub move_told: Mutex<Option<ScanRow>>,
    /// Devices that left, whose labels are still there.
    pub departed: Mutex<Vec<Arc<Leaf>>>,
    /// Groups of leaves, as labels list them.
    pub groups: RwLock<Vec<GroupConfig>>,
    pub leaves: RwLock<Vec<Arc<Leaf>>>,
    pub events: Arc<Events>,
    pub space: Arc<Space>,
    pub blockio: Arc<BlockIo>,
    pub cache: Arc<NodeCache>,
    /// Room for inodes in memory of all its datasets.
    pub inodes: Arc<InodeRoom>,
    pub meta: Arc<Tree>,
    /// Which blocks more than one pointer leads to.
    pub references: Arc<References>,
    /// Lists of the sealed blocks of datasets.
    pub manifests: Arc<Manifests>,
    pub sealing: Option<Sealing>,
    pub txgs: Arc<Txgs>,
    pub admission: Arc<Admission>,
    /// What the commit under way found to be freed.
    pub freeing: Freeing,
    /// Limits of datasets.
    pub quotas: Arc<Quotas>,
    pub table: RwLock<Table>,
    pub props: RwLock<PoolProps>,
    pub history: Mutex<History>,
    pub commit_state: Mutex<CommitState>,
    /// Held for a whole commit.
    pub sync_turn: Mutex<()>,
    /// Txg being synced; the stores of all trees look here.
    pub syncing: Arc<AtomicU64>,
    /// The register that holds the only acceptable root, if the pool has one.
    pub anchor: RwLock<Option<Arc<Anchor>>>,
    pub log: Arc<Log>,
    /// Devices of the log's own that are here.
    pub log_devices: RwLock<Vec<Arc<LogDevice>>>,
    /// What becomes of them with the next commit.
    pub log_changes: Mutex<Vec<LogChange>>,
    /// As labels list them until the root of the commit under way is durable, if that changes them.
    pub logs_before: Mutex<Option<Vec<AuxConfig>>>,
    /// What the replay found to be lacking on them.
    pub log_mends: Mutex<Vec<LogMend>>,
    /// Logs of datasets whose keys were not there at import.
    pub held: Mutex<Held>,
    /// The log's segments were reserved and never written.
    pub log_fresh: AtomicBool,
    /// No group of the log is written: [`crate::log::log_device::LogRest`].
    pub log_rests: AtomicBool,
    /// Groups that import replayed.
    pub log_replayed: AtomicU64,
    /// Datasets whose changes are logged about once a second.
    pub interval: Interval,
    pub read_only: bool,
    pub stopping: AtomicBool,
    pub suspended: Mutex<Option<String>>,
    /// Changes that no dataset knows of (properties, history, a destroyed dataset).
    pub changed: AtomicBool,
    /// Bytes of the longest block.
    pub block_bytes_max: u32,
    pub dirty_bytes_max: AtomicU64,
    /// How much the cleaner copies in one commit.
    pub pace: steadfast_segment::Pace,
    /// What the last txg needed with metadata beyond its slots, in thousandths of its content.
    pub need_thousandths: AtomicU64,
    /// The last commit destroyed a part of a dataset and not all of it.
    pub destroying: AtomicBool,
    /// Devices that were or are being trimmed.
    pub trims: Mutex<Trims>,
    /// Devices that were or are being initialized.
    pub initials: Mutex<Trims>,
    /// The search for files in segments that the cleaner could not read, while there is one.
    pub search: Mutex<Option<Search>>,
    /// There is one, or a step of it is under way.
    pub searching: AtomicBool,
    /// What devices did of late.
    pub diagnosis: Diagnosis,
    /// Snapshots that the next commits take.
    pub asked: Mutex<Vec<Request>>,
    /// Txg of the last commit that took the snapshots asked for.
    pub snapped: AtomicU64,
    /// Held for writing while rows, snapshots and cells go from what the last commit stored to what the next one will: what is
    /// summed up of them under it is of one commit.
    pub figures: RwLock<()>,
}

impl Inner {
    pub fn name(&self) -> String {
        self.name.read().clone()
    }

    /// Nanoseconds since 1970, as structures store them.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.env.clock.wall_ns()).unwrap_or(0)
    }

    /// Open heads, parents before children.
    pub fn heads(&self) -> Vec<Arc<Dataset>> {
        self.table.read().open_heads()
    }

    pub fn has_changes(&self) -> bool {
        self.changed.load(Ordering::Acquire) || self.heads().iter().any(|head| head.has_changes())
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub fn is_suspended(&self) -> bool {
        self.suspended.lock().is_some()
    }

    /// Stops all writing until the pool is opened again.
    pub fn suspend(&self, error: &Error) {
        self.suspend_because(&error.to_string());
    }

    /// The same, for what is no error of a call.
    pub fn suspend_because(&self, reason: &str) {
        let mut suspended = self.suspended.lock();
        if suspended.is_none() {
            self.events.note(EventKind::Suspended { reason: reason.to_owned() });
            *suspended = Some(reason.to_owned());
        }
        drop(suspended);
        // What a suspended pool does not know it may not write anew: another daemon may have its devices.
        self.space.set_healing(false);
        self.txgs.commits.suspend(reason);
    }

    /// Refuses what cannot be done on this pool now.
    pub fn check_writable(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::ReadOnly { pool: self.name() });
        }
        match &*self.suspended.lock() {
            Some(reason) => Err(Error::Suspended { pool: self.name(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Notes a change that no dataset knows of, and waits until everything done so far is durable.
    pub fn commit_changes(&self) -> Result<()> {
        self.changed.store(true, Ordering::Release);
        self.wait_durable()
    }

    /// Waits until everything done so far is durable.
    pub fn wait_durable(&self) -> Result<()> {
        // Nothing to commit, and nobody who would: a wait would have no end.
        if self.read_only {
            return Ok(());
        }
        let open = self.txgs.gate.open_txg();
        self.txgs.commits.request_sync(open);
        self.txgs
            .commits
            .wait_committed(open)
            .map_err(|suspended| Error::Suspended { pool: self.name(), reason: suspended.reason.to_string() })
    }

    /// What can be admitted now, between two commits.
    pub fn commit_room(&self) -> CommitRoom {
        // Each block that is written may have an item of its own, and each that is freed may take one along.
        let has_items = self.references.may_have_rows() || self.manifests.any();
        self.space.commit_room(self.block_bytes_max).with_references(has_items)
    }

    /// Takes the figures of the last commit over into admission and throttle.
    pub fn update_limits(&self) {
        let accounting = self.space.accounting();
        self.admission.live.store(accounting.live_bytes, Ordering::Relaxed);
        self.admission.note_capacity(accounting.capacity_bytes, self.space.may_widen());
        let autotrim = self.props.read().values.get("autotrim").is_none_or(|value| value != "off");
        self.space.set_discarding(autotrim);
        *self.admission.room.write() = self.commit_room();
        let need = self.need_thousandths.load(Ordering::Relaxed);
        let space = self.space.txg_bytes_max(self.block_bytes_max, self.pace.bytes(), need);
        let memory = self.dirty_bytes_max.load(Ordering::Relaxed);
        self.txgs.budget.set_limits(Limits { memory, space });
    }

    /// What becomes of operations that a suspended pool cannot take, as the property `failmode` says.
    pub fn apply_failmode(&self) {
        let waits = self.props.read().values.get("failmode").is_some_and(|value| value == "wait");
        self.txgs.commits.set_holding(waits);
    }

    /// True if the pool's labels list a feature.
    pub fn has_feature(&self, name: &str) -> bool {
        self.features.read().iter().any(|feature| feature.name == name)
    }

    /// Bytes of a slot on a leaf.
    pub fn column_of(&self, leaf: &LeafConfig) -> u32 {
        let groups = self.groups.read();
        groups.iter().find(|group| group.id == leaf.group).map_or(self.slot_size, |group| group.column)
    }

    /// Devices as they are now, and the groups that they are of: each that a device names is among them.
    pub fn leaves_and_groups(&self) -> (Vec<(Arc<Leaf>, LeafConfig)>, Vec<GroupConfig>) {
        loop {
            // The last device of a group goes before it, the first one comes about when it does.
            let groups = self.groups.read().clone();
            let leaves = self.leaves().into_iter().map(|leaf| {
                let config = leaf.config();
                (leaf, config)
            });
            let leaves: Vec<_> = leaves.collect();
            let is_listed = |(_, config): &(_, LeafConfig)| {
                config.group == 0 || groups.iter().any(|group| group.id == config.group)
            };
            if leaves.iter().all(is_listed) {
                return (leaves, groups);
            }
        }
    }

    /// The label of one device as of now.
    pub fn label_of(&self, leaf: &Leaf, state: PoolState, txg: Txg) -> LabelConfig {
        let own = leaf.config();
        LabelConfig {
            pool: self.guid,
            known_as: *self.known_as.read(),
            becoming: *self.becoming.read(),
            name: self.name(),
            device: own.id,
            device_guid: own.guid,
            txg,
            created_ns: self.created_ns,
            state,
            host: self.host.clone(),
            ashift: self.ashift,
            slot_size: self.slot_size,
            leaves: self.leaves.read().iter().map(|leaf| self.listed(leaf)).collect(),
            features: self.features.read().clone(),
            aux: self.labelled_aux(),
            groups: self.groups.read().clone(),
            key: self.sealing.as_ref().map(|sealing| sealing.wrapped.read().clone()),
        }
    }

    /// What labels say of a leaf.
    fn listed(&self, leaf: &Leaf) -> LeafConfig {
        let config = leaf.config();
        let is_out = matches!(config.state, LeafState::Offline | LeafState::Faulted);
        match is_out && self.until_import.lock().contains(&config.id) {
            true => LeafConfig { state: LeafState::Gone, ..config },
            false => config,
        }
    }

    /// Full name of a dataset, or its number if it is gone.
    pub fn dataset_name(&self, id: DatasetId) -> String {
        let table = self.table.read();
        table.full_name(id)
    }
}
