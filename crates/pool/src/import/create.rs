//! Making a pool: labels, root dataset, first commit.

use crate::commit::sync::Syncer;
use crate::core::ranked::{RankedMutex, RankedRwLock};
use crate::core::state::Caches;
use crate::core::state::Core;
use crate::core::state::Health;
use crate::core::state::Identity;
use crate::core::state::Throttle;
use crate::core::state::block_bytes_max;
use crate::core::state::sealing_of;
use crate::core::view::DatasetView;
use crate::datasets::state::Datasets;
use crate::devices::groups::DeviceHandle;
use crate::devices::groups::GroupHandles;
use crate::devices::groups::group_specs;
use crate::devices::probe::{check_takes_slots, check_unoccupied, erase};
use crate::devices::state::Devices;
use crate::devices::state::LogLabels;
use crate::log::log_devices::check_log_group;
use crate::log::state::Zil;
use crate::streams::state::Streams;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64};

use steadfast_anchor::Anchor;
use steadfast_blockio::BlockIo;
use steadfast_crypto::Key;
use steadfast_dataset::InodeRoom;
use steadfast_env::Env;
use steadfast_format::{
    AuxConfig, DatasetId, DeviceId, Feature, GroupClass, GroupConfig, LabelConfig, PoolGuid, PoolState, Txg,
    medium,
};
use steadfast_intent_log::Log;
use steadfast_por::parity::{Medium, ParityDevice};
use steadfast_property::{Local, OwnerProperty};
use steadfast_segment::{Geometry, Space};
use steadfast_tree::{NodeCache, Options, Tree};
use steadfast_txg::{Changed, Limits, Txgs};

use crate::Pool;
use crate::core::admission::Admission;
use crate::core::error::{Error, Result};
use crate::core::events::Events;
use crate::core::history::History;
use crate::core::state::{CommitState, PoolProps, Sealing};
use crate::datasets::dataset::{CONTENT_COPIES, COPIES, COPIES_FEATURE, NewKey, ZSTD, needs_zstd};
use crate::datasets::owners;
use crate::datasets::table::Table;
use crate::devices::leaf::Leaf;
use crate::devices::parity::{self, ParityWish};
use crate::import::anchor::AnchorWish;
use crate::memory::Memory;
use steadfast_refs::blocks::{Dedup, MetaStore};
use steadfast_refs::ddt::{self, References};
use steadfast_refs::manifest::Manifests;

/// Specification of a new pool.
pub struct CreateSpec {
    /// Checked by the room `property`.
    pub name: String,
    /// One or more groups of devices, or devices that stand alone; a pool is as large as all of
    /// them together.
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
    /// Devices beside the groups.
    pub aux: AuxHandles,
    /// Gives the pool an anchor, if a path is named.
    pub anchor: AnchorWish,
    /// Name of this host.
    pub host: String,
    /// Memory to use.
    pub memory: Memory,
}

/// Devices of a new pool that hold no segments.
#[derive(Clone, Default)]
pub struct AuxHandles {
    /// Log devices: mirrors, or single ones.
    pub logs: Vec<GroupHandles>,
    /// Spares.
    pub spares: Vec<DeviceHandle>,
    /// Cache devices.
    pub caches: Vec<DeviceHandle>,
}

impl AuxHandles {
    fn all(&self) -> impl Iterator<Item = &DeviceHandle> {
        let logs = self.logs.iter().flat_map(|group| &group.devices);
        logs.chain(&self.spares).chain(&self.caches)
    }
}

/// A special device counts as so many times as large where slots are sized.
const SPECIAL_SHARE: u64 = 4;

/// Parts that create and import know before the pool stands.
pub(crate) struct Plan {
    pub env: Env,
    pub guid: PoolGuid,
    pub name: String,
    /// The name on the devices, if the pool has another one until its export.
    pub label_name: Option<String>,
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
        space.set_upload_bytes(memory.upload_bytes());
        space.set_uneven(uneven);
        let content = memory.content(space.has_objects());
        space.set_chunk_bytes(content.chunk_bytes);
        let blockio = Arc::new(BlockIo::new(Arc::clone(&space), env.clone(), guid, content.block_bytes));
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
    ) -> Pool {
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
        let changed = Changed::new(Arc::clone(&self.env.clock));
        let core = Arc::new(Core {
            env: self.env,
            identity: Identity {
                guid: self.guid,
                known_as: RankedRwLock::default(),
                becoming: RankedRwLock::default(),
                created_ns: self.created_ns,
                name: RankedRwLock::new(self.name),
                label_name: self.label_name,
                host: self.host,
                ashift: self.ashift,
                slot_size: self.slot_size,
            },
            features: RankedRwLock::new(self.features),
            events: self.events,
            space: self.space,
            blockio: self.blockio,
            caches: Caches { nodes: cache, inodes: InodeRoom::new(self.memory.inode_bytes()) },
            meta,
            references,
            manifests,
            sealing: self.sealing,
            txgs,
            admission,
            throttle: Throttle {
                block_bytes_max: block_bytes_max(self.slot_size),
                dirty_bytes_max: AtomicU64::new(self.memory.dirty_bytes_max),
                pace: steadfast_segment::Pace::default(),
                is_sparing: AtomicBool::new(false),
                need_thousandths: AtomicU64::new(1000),
            },
            props: RankedRwLock::new(PoolProps { values: props, dirty: BTreeSet::new() }),
            history: RankedMutex::new(History {
                next: history_next,
                pending: Vec::new(),
                storing: Vec::new(),
            }),
            commit_state: RankedMutex::new(state),
            checkpoint: RankedMutex::default(),
            sync_turn: RankedMutex::new(()),
            syncing,
            anchor: RankedRwLock::new(anchor),
            health: Health {
                read_only: self.read_only,
                stopping: AtomicBool::new(false),
                suspended: RankedMutex::new(None),
                is_overtaken: AtomicBool::new(false),
                overtaker: OnceLock::new(),
                went_back: OnceLock::new(),
                changed,
                committed_ns: AtomicU64::new(0),
            },
            requests: Arc::default(),
            view: OnceLock::new(),
        });
        let devices = Arc::new(Devices::new(Arc::clone(&core), self.groups, self.leaves, self.aux));
        let zil = Arc::new(Zil::new(Arc::clone(&core), Arc::clone(&devices), log));
        let labels: Arc<dyn LogLabels> = Arc::clone(&zil) as _;
        let _ = devices.log_labels.set(Arc::downgrade(&labels));
        let datasets = Datasets::new(Arc::clone(&core), Arc::clone(&devices), Arc::clone(&zil), table);
        let datasets = Arc::new(datasets);
        let view: Arc<dyn DatasetView> = Arc::clone(&datasets) as _;
        let _ = core.view.set(Arc::downgrade(&view));
        let syncer = Syncer {
            core: Arc::clone(&core),
            devices: Arc::clone(&devices),
            zil: Arc::clone(&zil),
            datasets: Arc::clone(&datasets),
            stores: crate::commit::stores::StoreDuties::default(),
        };
        Pool {
            streams: Streams {
                core: Arc::clone(&core),
                datasets: Arc::clone(&datasets),
                swept: Default::default(),
            },
            core,
            devices,
            zil,
            datasets,
            syncer: Arc::new(syncer),
            is_live: false,
            tasks: RankedMutex::default(),
        }
    }
}

impl Pool {
    /// Makes a pool on devices and imports it. Devices that carry an active or exported pool are
    /// refused unless `force`; what was on them is lost from the moment this writes its first
    /// label.
    pub fn create(env: &Env, spec: CreateSpec) -> Result<Pool> {
        Pool::create_without(env, spec, &[])
    }

    /// The same without these features. Refused if its root dataset needs one of them.
    pub fn create_without(env: &Env, spec: CreateSpec, left_out: &[&'static str]) -> Result<Pool> {
        check_left_out(&spec, left_out)?;
        let all = || spec.groups.iter().flat_map(|group| &group.devices).chain(spec.aux.all());
        let mut seen = BTreeSet::new();
        for handle in all() {
            if !seen.insert(handle.path.as_str()) {
                return Err(Error::Twice { path: handle.path.clone() });
            }
            check_unoccupied(handle, spec.force)?;
        }
        spec.groups.iter().try_for_each(crate::devices::groups::check)?;
        spec.aux.logs.iter().try_for_each(check_log_group)?;
        let slot_size = slot_size_of(&spec.groups);
        spec.aux.all().try_for_each(|handle| check_takes_slots(handle, slot_size))?;
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

        let is_one_store = spec.groups.len() == 1
            && spec.groups.iter().all(|group| group.devices.len() == 1 && group.devices.iter().all(is_store));
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
        let wanted = |name: &&str| match *name {
            "sealed_metadata" => sealing.is_some(),
            crate::commit::anchor::FEATURE => spec.anchor.is_wanted(),
            crate::devices::groups::FEATURE => !groups.is_empty(),
            crate::devices::groups::SPECIAL => groups.iter().any(|group| group.class == GroupClass::Special),
            name => !Feature::STRUCTURAL.contains(&name) && !left_out.contains(&name),
        };
        let features = features.filter(wanted);
        let features: Vec<Feature> = features.filter_map(Feature::known).collect();
        let uneven = features.iter().any(|feature| feature.name == crate::devices::groups::UNEVEN);
        let (space, blockio) = Plan::space_for(env, guid, geometry, uneven, &groups, &leaves, spec.memory);
        let epoch = space.claim_epoch_anew(&[])?.unwrap_or(1);
        if !spec.anchor.is_wanted() && !space.creates_once()? {
            return Err(Error::Unfenced { pool: spec.name });
        }
        let anchor = crate::import::anchor::begin(env, guid, &spec.anchor, mac_key, (spec.force, epoch))?;
        let (anchor, aux) = anchor.unzip();
        let created_ns = u64::try_from(env.clock.wall_ns()).unwrap_or(0);
        let table = Table::new(&spec.name, DatasetId(1));
        let plan = Plan {
            env: env.clone(),
            guid,
            label_name: None,
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
            state: PoolState::Active,
            copied: None,
        };
        let pool = plan.build(None, Txg(0), state, table, Local::new(), 0);
        pool.core.update_limits();
        {
            let mut props = pool.core.props.write();
            props.dirty = spec.pool_props.keys().cloned().collect();
            props.values = spec.pool_props;
        }
        let mut root_props = spec.root_props;
        if is_one_store {
            // A second copy on the same store protects from a lost object alone, and is two of the
            // four requests of each commit (decision 0157).
            root_props.entry(COPIES.to_owned()).or_insert_with(|| "none".to_owned());
        }
        if let Err(error) = pool.make(spec.aux, root_props, spec.key) {
            // The tasks of cache devices end with the attempt.
            pool.devices.aux.caches.read().iter().for_each(|cache| cache.release());
            return Err(error);
        }
        pool.devices.use_caches();
        Ok(pool.start())
    }

    /// Writes a new pool with all its devices: one commit, then the labels. The label of a leaf is
    /// what makes it a pool, and comes last: a crash before leaves nothing to import, a crash after
    /// it leaves all that was asked for.
    fn make(&self, aux: AuxHandles, root_props: Local, key: Option<NewKey>) -> Result<()> {
        let (spares, caches) = (aux.spares.clone(), aux.caches.clone());
        let logs = self.zil.open_logs(aux.logs);
        self.zil.list_logs(&logs)?;
        self.devices.list_spares(aux.spares);
        self.devices.list_caches(aux.caches);
        let leaves = self.devices.leaves();
        let label = self.devices.label_of(&leaves[0], PoolState::Active, Txg(1));
        if label.encode(steadfast_crypto::hash).is_none() {
            return Err(Error::LabelTooLong { pool: self.name() });
        }
        // From here on devices lose what they held. Old rings go first: an uberblock of a former
        // pool must not outlive the new labels.
        leaves.iter().try_for_each(|leaf| leaf.erase_rings())?;
        self.core.space.flush_devices()?;
        spares.iter().chain(&caches).try_for_each(|handle| erase(&*handle.device))?;
        logs.iter().flat_map(|(_, sides)| sides).try_for_each(|log| log.wipe())?;
        self.datasets.add_dataset(DatasetId(0), "", root_props, key, None)?;
        self.syncer.commit()?;
        self.devices.write_labels(PoolState::Active, Txg(1))
    }
}

impl Pool {
    /// Takes a pool back that was made just now, and that nobody has used: its labels say that it
    /// was destroyed. After a commit that failed too, where a pool that was used keeps its labels,
    /// as then it is not known how much of the last writes is on the devices.
    ///
    /// # Errors
    /// Labels may stay that say that the pool is there.
    pub fn take_back(&self) -> Result<()> {
        self.settle(Some(PoolState::Destroyed))?;
        if self.core.is_suspended() {
            self.core.check_ours()?;
            self.devices.write_labels(PoolState::Destroyed, self.core.txgs.commits.committed())?;
        }
        self.core.blockio.stop_read_ahead();
        self.release_devices();
        Ok(())
    }
}

fn is_store(handle: &DeviceHandle) -> bool {
    !handle.device.character().appendable
}

/// Bytes of the slots of a pool of these groups.
fn slot_size_of(groups: &[GroupHandles]) -> u32 {
    let size = |handle: &DeviceHandle| handle.device.character().size_bytes;
    // A column of a group may be smaller than a segment: a group of k data columns counts as if it
    // were k times as large.
    let smallest = groups.iter().map(|group| {
        let least = group.devices.iter().map(size).min().unwrap_or(0);
        // Special devices are small beside the others, and do with fewer slots.
        let share = if group.class == GroupClass::Special { SPECIAL_SHARE } else { 1 };
        least.saturating_mul(u64::from(crate::devices::groups::data_columns(group)) * share)
    });
    medium::slot_size_for(smallest.min().expect("a pool has a device"))
}

/// Refuses a parity device that a new pool of these groups cannot have.
pub fn check_new_parity(
    name: &str,
    groups: &[GroupHandles],
    wish: ParityWish<'_>,
    (path, medium): (&str, &dyn Medium),
    force: bool,
) -> Result<()> {
    if !groups.iter().flat_map(|group| &group.devices).all(is_store) {
        return Err(Error::ParityNoStores { pool: name.to_owned() });
    }
    parity::plan((name, PoolGuid(1)), slot_size_of(groups), 0, wish, path, medium)?;
    parity::check_parity(path, medium, force)
}

/// Writes a parity device over with itself that a new pool of these groups is to have, at each of
/// its places: it fails before the pool's first change, which `force` may pay for with an older
/// pool.
pub fn rehearse_new_parity(
    name: &str,
    groups: &[GroupHandles],
    wish: ParityWish<'_>,
    (path, medium): (&str, &dyn Medium),
) -> Result<()> {
    let creation = parity::plan((name, PoolGuid(1)), slot_size_of(groups), 0, wish, path, medium)?;
    parity::rehearse(medium, &creation).map_err(|source| {
        let (pool, path) = (name.to_owned(), path.to_owned());
        Error::Parity { pool, path, source: Box::new(source) }
    })
}

/// Makes none of the parity device of a pool that is none any more. Nothing happens to another
/// pool's.
///
/// # Errors
/// The medium fails.
pub fn blank_parity(medium: &dyn Medium, pool: PoolGuid) -> io::Result<()> {
    ParityDevice::blank(medium, pool).map(drop).map_err(io::Error::other)
}

/// Refuses a root dataset, or a log device, that needs a feature which is left out.
fn check_left_out(spec: &CreateSpec, left_out: &[&'static str]) -> Result<()> {
    let needed = |name: &str, value: &str| match name {
        "dedup" if Dedup::of(value) != Dedup::Off => Some(ddt::FEATURE),
        "compression" if needs_zstd(value) => Some(ZSTD),
        CONTENT_COPIES if value != "1" => Some(COPIES_FEATURE),
        name if OwnerProperty::parse(name).is_some() => Some(owners::FEATURE),
        _ => None,
    };
    let of_props = spec.root_props.iter().filter_map(|(name, value)| needed(name, value));
    let of_logs = (!spec.aux.logs.is_empty()).then_some("intent_log");
    let mut needed = of_props.chain(spec.key.as_ref().map(|_| "encryption")).chain(of_logs);
    match needed.find(|name| left_out.contains(name)) {
        Some(feature) => Err(Error::FeatureOff { pool: spec.name.clone(), feature }),
        None => Ok(()),
    }
}
