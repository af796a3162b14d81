//! Making a pool: labels, root dataset, first commit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use parking_lot::{Mutex, RwLock};
use steadfast_anchor::Anchor;
use steadfast_blockio::{BlockIo, CompressionSetting};
use steadfast_crypto::{BlockKeys, Key};
use steadfast_dataset::InodeRoom;
use steadfast_device::Device;
use steadfast_env::Env;
use steadfast_format::{
    AuxConfig, DatasetId, DeviceId, Feature, GroupClass, GroupConfig, LabelConfig, LeafConfig, LeafState,
    PoolGuid, PoolState, Txg, medium,
};
use steadfast_intent_log::Log;
use steadfast_property::{Local, OwnerProperty};
use steadfast_segment::{Geometry, GroupSpec, Redundancy, Space, groups_of};
use steadfast_tree::{NodeCache, Options, Tree};
use steadfast_txg::{Limits, Txgs};

use crate::Pool;
use crate::core::admission::Admission;
use crate::core::error::{Error, Result};
use crate::core::events::Events;
use crate::core::history::History;
use crate::core::inner::{CommitState, Inner, Leaf, PoolProps, Sealing};
use crate::core::memory::Memory;
use crate::datasets::blocks::{Dedup, MetaStore};
use crate::datasets::dataset::{NewKey, ZSTD, compression_of};
use crate::datasets::ddt::{self, References};
use crate::datasets::freeing::Freeing;
use crate::datasets::manifest::Manifests;
use crate::datasets::owners;
use crate::datasets::quotas::Quotas;
use crate::datasets::table::Table;
use crate::devices::diagnosis::Diagnosis;
use crate::import::anchor::AnchorWish;
use crate::log::interval::Interval;

/// A device to make or import a pool with, and the path that labels shall remember.
#[derive(Clone)]
pub struct DeviceHandle {
    /// As the operator named it, absolute.
    pub path: String,
    /// Opened for writing (or for reading, if the pool is imported read-only).
    pub device: Arc<dyn Device>,
}

/// Devices to make a group of.
#[derive(Clone)]
pub struct GroupHandles {
    /// How they keep segments together. [`Redundancy::None`]: each stands alone.
    pub redundancy: Redundancy,
    /// What for.
    pub class: GroupClass,
    /// The devices.
    pub devices: Vec<DeviceHandle>,
}

impl GroupHandles {
    /// Devices of which each stands alone.
    #[must_use]
    pub fn alone(devices: Vec<DeviceHandle>) -> Vec<GroupHandles> {
        vec![GroupHandles { redundancy: Redundancy::None, class: GroupClass::Normal, devices }]
    }
}

/// What a new pool shall be.
pub struct CreateSpec {
    /// Checked by the room `property`.
    pub name: String,
    /// One or more groups of devices, or devices that stand alone; a pool is as large as all of them together.
    pub groups: Vec<GroupHandles>,
    /// Log2 of the allocation unit, 9 to 13.
    pub ashift: u8,
    /// Take devices that carry a pool already.
    pub force: bool,
    /// Properties set on the pool.
    pub pool_props: Local,
    /// Properties set on the root dataset.
    pub root_props: Local,
    /// Makes the root dataset encrypted and seals the pool's own metadata.
    pub key: Option<NewKey>,
    /// Gives the pool an anchor, if a path is named.
    pub anchor: AnchorWish,
    /// Name of this host.
    pub host: String,
    /// Memory to use.
    pub memory: Memory,
}

/// Greatest logical size of a block: a quarter of a slot, so that segments fill well.
pub(crate) fn block_bytes_max(slot_size: u32) -> u32 {
    (slot_size / 4).min(steadfast_format::BlockPointer::LSIZE_MAX)
}

/// A special device counts as so many times as large where slots are sized.
const SPECIAL_SHARE: u64 = 4;

/// What create and import know before an [`Inner`] stands.
pub(crate) struct Plan {
    pub env: Env,
    pub guid: PoolGuid,
    pub name: String,
    pub host: String,
    pub created_ns: u64,
    pub ashift: u8,
    pub slot_size: u32,
    pub features: Vec<Feature>,
    pub aux: Vec<AuxConfig>,
    pub groups: Vec<GroupConfig>,
    pub leaves: Vec<Arc<Leaf>>,
    pub events: Arc<Events>,
    pub sealing: Option<Sealing>,
    pub anchor: Option<Anchor>,
    pub memory: Memory,
    pub read_only: bool,
    pub space: Arc<Space>,
    pub blockio: Arc<BlockIo>,
}

impl Plan {
    pub fn space_of(
        env: &Env,
        config: &LabelConfig,
        leaves: &[Arc<Leaf>],
        memory: Memory,
    ) -> (Arc<Space>, Arc<BlockIo>) {
        let uneven = config.features.iter().any(|feature| feature.name == crate::devices::groups::UNEVEN);
        let geometry = Geometry { slot_size: config.slot_size, unit: 1 << config.ashift };
        Plan::space_for(env, config.pool, geometry, uneven, &config.groups, leaves, memory)
    }

    pub fn space_for(
        env: &Env,
        guid: PoolGuid,
        geometry: Geometry,
        uneven: bool,
        groups: &[GroupConfig],
        leaves: &[Arc<Leaf>],
        memory: Memory,
    ) -> (Arc<Space>, Arc<BlockIo>) {
        let groups = group_specs(geometry.slot_size, groups, leaves);
        let space = Arc::new(Space::with_groups(geometry, groups, env.clone()));
        space.set_uneven(uneven);
        let blockio = Arc::new(BlockIo::new(Arc::clone(&space), env.clone(), guid, memory.block_cache_bytes));
        (space, blockio)
    }

    /// Puts the parts together; `committed` is the last durable txg.
    pub fn build(
        self,
        meta_root: Option<steadfast_format::BlockPointer>,
        committed: Txg,
        state: CommitState,
        table: Table,
        props: Local,
        history_next: u64,
    ) -> Inner {
        let cache = NodeCache::new(self.memory.node_cache_bytes);
        let syncing = Arc::new(AtomicU64::new(committed.0));
        let store = MetaStore {
            blockio: Arc::clone(&self.blockio),
            keys: self.sealing.as_ref().map(|sealing| Arc::clone(&sealing.keys)),
            syncing: Arc::clone(&syncing),
        };
        let meta = Arc::new(Tree::open(Arc::new(store), Arc::clone(&cache), meta_root, Options::META));
        let index_bytes = self.memory.index_bytes();
        let references =
            Arc::new(References::new(self.name.clone(), Arc::clone(&meta), 1 << self.ashift, index_bytes));
        let manifests = Arc::new(Manifests::new(Arc::clone(&meta), Arc::clone(&syncing)));
        references.enable(self.features.iter().any(|feature| feature.name == ddt::FEATURE));
        let admission = Arc::new(Admission::default());
        admission.read_only.store(self.read_only, std::sync::atomic::Ordering::Relaxed);
        let _ = admission.events.set(Arc::clone(&self.events));
        self.blockio.set_error_log(Arc::clone(&self.events) as Arc<dyn steadfast_blockio::ErrorLog>);
        let limits = Limits { memory: self.memory.dirty_bytes_max, space: u64::MAX };
        let for_txgs: Arc<dyn steadfast_txg::Space> = Arc::clone(&admission) as _;
        let txgs = Arc::new(Txgs::new(&self.env, committed, limits, for_txgs));
        let mut epoch = [0; 16];
        self.env.random.fill(&mut epoch);
        let log = Arc::new(Log::new(self.guid, epoch, Arc::clone(&txgs)));
        let anchor = self.anchor.map(Arc::new);
        log.set_vouch(anchor.as_ref().map(crate::import::anchor::voucher));
        Inner {
            env: self.env,
            guid: self.guid,
            known_as: RwLock::default(),
            becoming: RwLock::default(),
            created_ns: self.created_ns,
            name: RwLock::new(self.name),
            host: self.host,
            ashift: self.ashift,
            slot_size: self.slot_size,
            features: RwLock::new(self.features),
            aux: RwLock::new(self.aux),
            scan: Mutex::default(),
            scan_told: Mutex::default(),
            replacing: Mutex::default(),
            spares: RwLock::default(),
            caches: RwLock::default(),
            until_import: Mutex::default(),
            unhelped: Mutex::default(),
            resilver_wanted: AtomicBool::new(false),
            resilvers_due: AtomicUsize::new(0),
            expansions_due: AtomicUsize::new(0),
            moving: Mutex::default(),
            move_told: Mutex::default(),
            departed: Mutex::default(),
            move_log: AtomicBool::new(false),
            groups: RwLock::new(self.groups),
            leaves: RwLock::new(self.leaves),
            events: self.events,
            space: self.space,
            blockio: self.blockio,
            cache,
            inodes: InodeRoom::new(self.memory.inode_bytes()),
            meta,
            references,
            manifests,
            sealing: self.sealing,
            txgs,
            quotas: Arc::new(Quotas::new(Arc::clone(&admission))),
            admission,
            freeing: Freeing::default(),
            table: RwLock::new(table),
            props: RwLock::new(PoolProps { values: props, dirty: BTreeSet::new() }),
            history: Mutex::new(History { next: history_next, pending: Vec::new(), storing: Vec::new() }),
            commit_state: Mutex::new(state),
            sync_turn: Mutex::new(()),
            syncing,
            anchor: RwLock::new(anchor),
            log,
            log_devices: RwLock::default(),
            log_changes: Mutex::default(),
            logs_before: Mutex::default(),
            log_mends: Mutex::default(),
            held: Mutex::default(),
            log_fresh: AtomicBool::new(false),
            log_rests: AtomicBool::new(false),
            log_replayed: AtomicU64::new(0),
            interval: Interval::default(),
            read_only: self.read_only,
            stopping: AtomicBool::new(false),
            suspended: Mutex::new(None),
            changed: AtomicBool::new(false),
            block_bytes_max: block_bytes_max(self.slot_size),
            pace: steadfast_segment::Pace::default(),
            need_thousandths: AtomicU64::new(1000),
            destroying: AtomicBool::new(false),
            trims: Mutex::default(),
            initials: Mutex::default(),
            search: Mutex::new(None),
            searching: AtomicBool::new(false),
            diagnosis: Diagnosis::default(),
            asked: Mutex::default(),
            snapped: AtomicU64::new(0),
            figures: RwLock::default(),
            dirty_bytes_max: AtomicU64::new(self.memory.dirty_bytes_max),
        }
    }
}

impl Pool {
    /// Makes a pool on devices and imports it. Devices that carry an active or exported pool are refused unless
    /// `force`; what was on them is lost from the moment this writes its first label.
    pub fn create(env: &Env, spec: CreateSpec) -> Result<Pool> {
        Pool::create_without(env, spec, &[])
    }

    /// The same without these features. Refused if its root dataset needs one of them.
    pub fn create_without(env: &Env, spec: CreateSpec, left_out: &[&'static str]) -> Result<Pool> {
        check_left_out(&spec, left_out)?;
        let all = || spec.groups.iter().flat_map(|group| &group.devices);
        let mut seen = BTreeSet::new();
        for handle in all() {
            if !seen.insert(handle.path.as_str()) {
                return Err(Error::Twice { path: handle.path.clone() });
            }
            crate::devices::grow::check_unoccupied(handle, spec.force)?;
        }
        spec.groups.iter().try_for_each(crate::devices::groups::check)?;
        let size = |handle: &DeviceHandle| handle.device.character().size_bytes;
        // What a column of a group may be smaller than a segment: a group of k columns of data is as if it had k times the size.
        let smallest = spec.groups.iter().map(|group| {
            let least = group.devices.iter().map(size).min().unwrap_or(0);
            // Special devices are small beside the others, and do with fewer slots.
            let share = if group.class == GroupClass::Special { SPECIAL_SHARE } else { 1 };
            least.saturating_mul(u64::from(crate::devices::groups::data_columns(group)) * share)
        });
        let smallest = smallest.min().expect("a pool has a device");
        let slot_size = medium::slot_size_for(smallest);
        let geometry = Geometry { slot_size, unit: 1 << spec.ashift };
        let events = Arc::new(Events::new(Arc::clone(&env.clock)));
        let (mut leaves, mut groups) = (Vec::new(), Vec::new());
        for group in spec.groups.clone() {
            crate::devices::groups::add(
                env,
                &events,
                geometry,
                group,
                (DeviceId(0), 0),
                &mut groups,
                &mut leaves,
            )?;
        }
        if leaves.len() > LabelConfig::LEAVES_MAX {
            return Err(Error::LabelTooLong { pool: spec.name });
        }

        let guid = PoolGuid(env.random.nonzero_u64());
        let random = |out: &mut [u8]| env.random.fill(out);
        let sealing = spec.key.as_ref().map(|key| {
            let master = Key::random(&random);
            let wrapped = steadfast_crypto::wrap(
                &key.user,
                &master,
                &crate::datasets::keys::pool_wrap_aad(guid),
                &random,
            );
            let location = spec.root_props.get("keylocation").cloned().unwrap_or_else(|| "prompt".into());
            sealing_of(master, wrapped, location, &random)
        });
        let features = Feature::KNOWN.iter().map(|(name, ..)| *name);
        let mac_key = sealing.as_ref().map(|sealing| steadfast_anchor::mac_key(sealing.keys.master()));
        let anchor = crate::import::anchor::begin(env, guid, &spec.anchor, mac_key, spec.force)?;
        let (anchor, aux) = anchor.unzip();
        let wanted = |name: &&str| match *name {
            "sealed_metadata" => sealing.is_some(),
            crate::import::anchor::FEATURE => anchor.is_some(),
            crate::devices::groups::FEATURE => !groups.is_empty(),
            crate::devices::groups::SPECIAL => groups.iter().any(|group| group.class == GroupClass::Special),
            name => !Feature::STRUCTURAL.contains(&name) && !left_out.contains(&name),
        };
        let features = features.filter(wanted);
        let features: Vec<Feature> = features.filter_map(Feature::known).collect();
        let uneven = features.iter().any(|feature| feature.name == crate::devices::groups::UNEVEN);
        let (space, blockio) = Plan::space_for(env, guid, geometry, uneven, &groups, &leaves, spec.memory);
        let created_ns = u64::try_from(env.clock.wall_ns()).unwrap_or(0);
        let table = Table::new(&spec.name, DatasetId(1));
        let plan = Plan {
            env: env.clone(),
            guid,
            name: spec.name.clone(),
            host: spec.host,
            created_ns,
            ashift: spec.ashift,
            slot_size,
            features,
            aux: aux.into_iter().collect(),
            groups,
            leaves,
            events,
            sealing,
            anchor,
            memory: spec.memory,
            read_only: false,
            space,
            blockio,
        };
        let state = CommitState {
            tag: [0; 32],
            last: None,
            retiring: false,
            tail: None,
            labels_dirty: false,
            state: PoolState::Active,
        };
        let inner = plan.build(None, Txg(0), state, table, Local::new(), 0);
        inner.update_limits();
        {
            let mut props = inner.props.write();
            props.dirty = spec.pool_props.keys().cloned().collect();
            props.values = spec.pool_props;
        }
        // Old rings go first: an uberblock of a former pool must not outlive the new labels.
        inner.leaves().iter().try_for_each(|leaf| leaf.erase_rings())?;
        inner.space.flush_devices()?;
        inner.add_dataset(DatasetId(0), "", spec.root_props, spec.key, None)?;
        inner.commit()?;
        inner.write_labels(PoolState::Active, Txg(1))?;
        Ok(Pool::start(inner))
    }
}

/// Refuses a root dataset that needs a feature which is left out.
fn check_left_out(spec: &CreateSpec, left_out: &[&'static str]) -> Result<()> {
    let needed = |name: &str, value: &str| match name {
        "dedup" if Dedup::of(value) != Dedup::Off => Some(ddt::FEATURE),
        "compression" if matches!(compression_of(value), CompressionSetting::Zstd(_)) => Some(ZSTD),
        name if OwnerProperty::parse(name).is_some() => Some(owners::FEATURE),
        _ => None,
    };
    let of_props = spec.root_props.iter().filter_map(|(name, value)| needed(name, value));
    let mut needed = of_props.chain(spec.key.as_ref().map(|_| "encryption"));
    match needed.find(|name| left_out.contains(name)) {
        Some(feature) => Err(Error::FeatureOff { pool: spec.name.clone(), feature }),
        None => Ok(()),
    }
}

/// The groups of a pool for the room `segment`.
pub(crate) fn group_specs(slot_size: u32, groups: &[GroupConfig], leaves: &[Arc<Leaf>]) -> Vec<GroupSpec> {
    let configs = leaves.iter().map(|leaf| leaf.config());
    // One that is spared counts for nothing.
    let configs: Vec<LeafConfig> = configs.filter(|leaf| leaf.state != LeafState::Spared).collect();
    groups_of(slot_size, groups, &configs, |listed| {
        let leaf = leaves.iter().find(|leaf| leaf.id() == listed.id).expect("of these leaves");
        (listed.slots, leaf.in_use())
    })
}

/// What seals a pool, from its master key.
pub(crate) fn sealing_of(
    master: Key,
    wrapped: steadfast_format::WrappedKey,
    location: String,
    random: &dyn Fn(&mut [u8]),
) -> Sealing {
    let tag_key = steadfast_crypto::derive(&master, b"", "steadfast uberblock tag v1");
    Sealing {
        keys: Arc::new(BlockKeys::new(master, &random)),
        tag_key,
        wrapped: RwLock::new((wrapped, location)),
    }
}
