//! The host that holds real pools.
//!
//! It translates: requests into calls of the room `pool`, what `pool` measures into properties, its errors into
//! refusals. It owns three things of its own: which pools are held (and remembered for the next start), where their file
//! systems are mounted, and the order of verbs.
//!
//! ## Invariants
//! (E1) Verbs that change anything run one at a time (`verbs`); verbs that only look never wait for them.
//! (E2) A file system is unmounted before its pool lets go of it, children before parents.
//! (E3) A pool that cannot be imported at the start stays remembered, with the reason, until it is imported or exported.
//! (E4) What a verb refuses, it has not begun: everything that can be checked is checked before the first change.

mod anchors;
mod auto_snapshot;
mod candidates;
mod clones;
mod devices;
mod events;
mod filesystems;
mod fuse_front;
mod growth;
mod inject;
mod memory;
mod mounts;
mod moving;
mod nbd;
mod owners;
mod pools;
mod received_mounts;
mod refuse;
mod rename;
mod report;
mod sharing;
mod snapshot_keep;
mod snapshots;
mod spares;
mod streams;
mod upkeep;
mod volumes;

use crate::api::{
    Activities, Caller, DaemonMemory, FsChangeKey, FsCreate, FsDestroy, FsInfo, FsInherit, FsList, FsLoadKey,
    FsMount, FsRename, FsSet, FsUnloadKey, FsUnmount, FsUserspace, Host, LabelClear, MemoryReport, Outcome,
    OwnerEntry, PoolActivities, PoolAdd, PoolAttach, PoolCandidate, PoolClear, PoolCreate, PoolDdtPrune,
    PoolDestroy, PoolDetach, PoolEvent, PoolEvents, PoolEventsClear, PoolExport, PoolHistory, PoolImport,
    PoolImportScan, PoolInfo, PoolInitialize, PoolIo, PoolIostat, PoolList, PoolOffline, PoolOnline,
    PoolPast, PoolPrefetch, PoolRebalance, PoolReguid, PoolRemove, PoolReplace, PoolReport, PoolResilver,
    PoolScrub, PoolSet, PoolSplit, PoolStatus, PoolSync, PoolTrim, PoolUpgrade, Pruned,
};
use crate::cachefile::{CachedPool, Cachefile};
use crate::inject::{Injections, PoolInject};
use crate::refusal::{Code, Refusal};
use crate::runtime::Runtime;
pub use fuse_front::FuseFront;
pub use mounts::{Front, MountSettings, Mounted, UsageOf};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use steadfast_env::Env;
use steadfast_pool::{Memory, Pool};

/// The host.
pub struct Engine {
    env: Env,
    runtime: Runtime,
    /// Which pools to import at the next start.
    cachefile: Cachefile,
    /// Name of this machine, as labels and history carry it.
    host: String,
    memory: Memory,
    front: Arc<dyn Front>,
    pools: RwLock<BTreeMap<String, Arc<Held>>>,
    lost: Mutex<BTreeMap<String, Lost>>,
    verbs: Mutex<()>,
    events: Mutex<events::Ring>,
    /// Blank devices that were refused as replacements, by path.
    tried: Mutex<BTreeMap<PathBuf, upkeep::Tried>>,
    /// Snapshots that policies ask for.
    diary: Mutex<auto_snapshot::Diary>,
    /// Clients of NBD.
    clients: nbd::Clients,
}

/// An imported pool.
struct Held {
    pool: Pool,
    devices: RwLock<Vec<PathBuf>>,
    /// When it was imported, on the monotonic clock.
    since_ns: u64,
    /// Prefix of its mountpoints.
    altroot: Option<PathBuf>,
    /// Is it remembered for the next start?
    cached: bool,
    mounts: Mutex<BTreeMap<String, mounts::Mount>>,
    /// Streams that go out or come in.
    streams: AtomicUsize,
}

/// A remembered pool that could not be imported.
struct Lost {
    pool: CachedPool,
    why: Refusal,
}

impl Engine {
    /// Starts, and imports what was imported when the last daemon ended. What cannot be imported is told on stderr and
    /// stays remembered.
    ///
    /// # Errors
    /// If the list of remembered pools cannot be read: going on would forget them.
    pub fn start(
        env: Env,
        runtime: Runtime,
        memory: Memory,
        front: Arc<dyn Front>,
    ) -> Result<Engine, Refusal> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let cachefile = Cachefile::new(runtime.cachefile());
        let remembered = cachefile.load()?;
        let engine = Engine {
            env,
            runtime,
            cachefile,
            host,
            memory,
            front,
            pools: RwLock::default(),
            lost: Mutex::default(),
            verbs: Mutex::default(),
            events: Mutex::default(),
            tried: Mutex::default(),
            diary: Mutex::default(),
            clients: nbd::Clients::default(),
        };
        for pool in remembered {
            match engine.import_remembered(&pool) {
                Ok(warnings) => {
                    eprintln!("steadfast: pool '{}' is imported", pool.name);
                    for warning in warnings {
                        eprintln!("steadfast: pool '{}': {}", pool.name, warning.what);
                    }
                }
                Err(why) => {
                    eprintln!("steadfast: pool '{}' is not imported: {}", pool.name, why.what);
                    engine.lost.lock().insert(pool.name.clone(), Lost { pool, why });
                }
            }
        }
        Ok(engine)
    }

    /// The pool of this name, or of the file system of this name.
    fn held(&self, name: &str) -> Result<Arc<Held>, Refusal> {
        let pool = name.split('/').next().unwrap_or(name);
        if let Some(held) = self.pools.read().get(pool) {
            return Ok(Arc::clone(held));
        }
        if let Some(lost) = self.lost.lock().get(pool) {
            return Err(missing(&lost.pool, &lost.why));
        }
        let (code, what) = if name == pool {
            (Code::PoolAbsent, format!("there is no pool '{name}'"))
        } else {
            (
                Code::FsAbsent,
                format!("there is no file system '{name}', because no pool '{pool}' is imported"),
            )
        };
        Err(Refusal::new(code, what).with("pool", pool).with("fs", name))
    }

    /// The pools of these names, or all, sorted.
    fn select(&self, names: &[String]) -> Result<Vec<(String, Arc<Held>)>, Refusal> {
        if names.is_empty() {
            return Ok(self
                .pools
                .read()
                .iter()
                .map(|(name, held)| (name.clone(), Arc::clone(held)))
                .collect());
        }
        let mut found = BTreeMap::new();
        for name in names {
            if name.contains('/') {
                let what = format!("there is no pool '{name}': a pool's name has no '/'");
                return Err(Refusal::new(Code::PoolAbsent, what).with("pool", name));
            }
            found.insert(name.clone(), self.held(name)?);
        }
        Ok(found.into_iter().collect())
    }

    /// Writes down which pools to import at the next start.
    fn remember(&self) -> Result<(), Refusal> {
        self.cachefile.store(|| self.to_remember())
    }

    fn to_remember(&self) -> Vec<CachedPool> {
        let mut pools: Vec<CachedPool> = Vec::new();
        // A list of its own: others need that of the pools while each is asked for its devices.
        let held: Vec<(String, Arc<Held>)> =
            self.pools.read().iter().map(|(name, held)| (name.clone(), Arc::clone(held))).collect();
        for (name, held) in held.into_iter().filter(|(_, held)| held.cached) {
            pools.push(CachedPool {
                name,
                guid: held.pool.guid().0,
                devices: held.devices.read().clone(),
                readonly: held.pool.is_read_only(),
                altroot: held.altroot.clone(),
                vdevs: candidates::layout(&held.pool.state()),
            });
        }
        pools.extend(self.lost.lock().values().map(|lost| lost.pool.clone()));
        pools
    }

    /// Where pools without a mountpoint appear.
    fn mount_base(&self) -> String {
        self.runtime.mount_base().display().to_string()
    }

    /// Notes a command that succeeded.
    fn log(&self, held: &Held, caller: &Caller) {
        held.pool.log(caller.uid, false, &caller.command);
        let fields = [("command", caller.command.clone()), ("uid", caller.uid.to_string())];
        self.post("history_event", &held.pool, &held.pool.name(), &fields);
    }
}

/// What is said of a remembered pool that could not be imported.
fn missing(pool: &CachedPool, why: &Refusal) -> Refusal {
    let code = match why.code {
        Code::PoolSealed | Code::LogMissing | Code::LogDamaged => why.code,
        _ => Code::PoolMissing,
    };
    let what = format!("the pool '{}' is remembered but not imported: {}", pool.name, why.what);
    let mut missing = Refusal::new(code, what).with("pool", &pool.name);
    if let Some(device) = why.fields.get("device") {
        missing = missing.with("device", device);
    }
    missing
}

impl Host for Engine {
    fn pool_create(&self, caller: &Caller, request: PoolCreate) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.create_pool(caller, request)
    }

    fn pool_destroy(&self, _: &Caller, request: PoolDestroy) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.destroy_pool(&request)
    }

    fn pool_import_scan(&self, _: &Caller, request: PoolImportScan) -> Result<Vec<PoolCandidate>, Refusal> {
        self.candidates(&request.search, request.destroyed)
    }

    fn pool_import(&self, caller: &Caller, request: PoolImport) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.import_pool(caller, request)
    }

    fn pool_export(&self, caller: &Caller, request: PoolExport) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.export_pool(caller, &request)
    }

    fn pool_list(&self, _: &Caller, request: PoolList) -> Result<Vec<PoolInfo>, Refusal> {
        self.list_pools(&request.names)
    }

    fn pool_status(&self, _: &Caller, request: PoolStatus) -> Result<Vec<PoolReport>, Refusal> {
        self.report_pools(&request.names)
    }

    fn pool_set(&self, caller: &Caller, request: PoolSet) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        let held = self.held(&request.name)?;
        for (name, value) in &request.properties {
            pools::set_property(&held.pool, name, value)?;
            let fields = [("property", name.clone()), ("value", value.clone())];
            self.post("property_change", &held.pool, &request.name, &fields);
        }
        self.log(&held, caller);
        Ok(touched(&request.name))
    }

    fn daemon_memory(&self, _: &Caller, _: DaemonMemory) -> Result<MemoryReport, Refusal> {
        Ok(self.memory_report())
    }

    fn pool_history(&self, _: &Caller, request: PoolHistory) -> Result<Vec<PoolPast>, Refusal> {
        self.pasts(&request.names)
    }

    fn pool_sync(&self, _: &Caller, request: PoolSync) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        for (name, held) in self.select(&request.names)? {
            held.pool.sync().map_err(refuse::pool)?;
            outcome.touched.push(name);
        }
        Ok(outcome)
    }

    fn pool_add(&self, caller: &Caller, request: PoolAdd) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.add_devices(caller, &request)
    }

    fn pool_remove(&self, caller: &Caller, request: PoolRemove) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.remove_devices(caller, &request)
    }

    fn pool_online(&self, caller: &Caller, request: PoolOnline) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.online(caller, &request)
    }

    fn pool_offline(&self, caller: &Caller, request: PoolOffline) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.offline(caller, &request)
    }

    fn pool_scrub(&self, caller: &Caller, request: PoolScrub) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.scrub(caller, &request)
    }

    fn pool_replace(&self, caller: &Caller, request: PoolReplace) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.replace(caller, &request)
    }

    fn pool_clear(&self, caller: &Caller, request: PoolClear) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.clear(caller, &request)
    }

    fn pool_trim(&self, caller: &Caller, request: PoolTrim) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.trim(caller, &request)
    }

    fn pool_initialize(&self, caller: &Caller, request: PoolInitialize) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.initialize(caller, &request)
    }

    // Not in turn with the other verbs (E1): a device is filled with zeros for as long as that takes, and what is injected changes
    // nothing of what they decide on.
    fn pool_inject(&self, caller: &Caller, request: PoolInject) -> Result<Injections, Refusal> {
        self.inject(caller, &request)
    }

    fn pool_attach(&self, caller: &Caller, request: PoolAttach) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.attach(caller, &request)
    }

    fn pool_detach(&self, caller: &Caller, request: PoolDetach) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.detach(caller, &request)
    }

    fn pool_rebalance(&self, caller: &Caller, request: PoolRebalance) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.rebalance(caller, &request)
    }

    fn pool_resilver(&self, caller: &Caller, request: PoolResilver) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.resilver(caller, &request)
    }

    fn pool_prefetch(&self, _: &Caller, request: PoolPrefetch) -> Result<Outcome, Refusal> {
        self.prefetch(&request)
    }

    fn pool_ddt_prune(&self, caller: &Caller, request: PoolDdtPrune) -> Result<Pruned, Refusal> {
        let _turn = self.verbs.lock();
        self.prune(caller, &request)
    }

    fn pool_reguid(&self, caller: &Caller, request: PoolReguid) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.reguid(caller, &request)
    }

    fn pool_split(&self, caller: &Caller, request: PoolSplit) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.split(caller, &request)
    }

    fn pool_activities(&self, _: &Caller, request: PoolActivities) -> Result<Activities, Refusal> {
        let held = self.held_pool(&request.name)?;
        upkeep::activities(&held.pool, &request)
    }

    fn label_clear(&self, _: &Caller, request: LabelClear) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.clear_label(&request)
    }

    fn pool_upgrade(&self, caller: &Caller, request: PoolUpgrade) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.upgrade(caller, &request)
    }

    fn pool_iostat(&self, _: &Caller, request: PoolIostat) -> Result<Vec<PoolIo>, Refusal> {
        self.io_counters(&request.names)
    }

    fn pool_events(&self, _: &Caller, request: PoolEvents) -> Result<Vec<PoolEvent>, Refusal> {
        self.events_after(&request)
    }

    fn pool_events_clear(&self, _: &Caller, _: PoolEventsClear) -> Result<Outcome, Refusal> {
        Ok(self.forget_events())
    }

    fn fs_rename(&self, caller: &Caller, request: FsRename) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.rename_fs(caller, &request)
    }

    fn fs_change_key(&self, caller: &Caller, request: FsChangeKey) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.change_key(caller, &request)
    }

    fn fs_create(&self, caller: &Caller, request: FsCreate) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.create_fs(caller, request)
    }

    fn fs_destroy(&self, caller: &Caller, request: FsDestroy) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.destroy_fs(caller, &request)
    }

    fn fs_list(&self, _: &Caller, request: FsList) -> Result<Vec<FsInfo>, Refusal> {
        self.list_fs(&request)
    }

    fn fs_userspace(&self, _: &Caller, request: FsUserspace) -> Result<Vec<OwnerEntry>, Refusal> {
        self.userspace(&request.name)
    }

    fn fs_set(&self, caller: &Caller, request: FsSet) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        let edits = request.properties.into_iter().map(|(name, value)| (name, Some(value))).collect();
        if request.name.contains('@') {
            return self.change_snapshots(caller, &request.name, false, edits);
        }
        self.change_fs(caller, &request.name, edits, request.no_mount)
    }

    fn fs_inherit(&self, caller: &Caller, request: FsInherit) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        if request.name.contains('@') {
            return match request.received {
                true => self.revert_snapshots(caller, &request),
                false => {
                    let edits = vec![(request.property, None)];
                    self.change_snapshots(caller, &request.name, request.recursive, edits)
                }
            };
        }
        self.inherit_fs(caller, &request)
    }

    fn fs_mount(&self, _: &Caller, request: FsMount) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        let held = self.held(&request.name)?;
        self.mount(&held, &request)?;
        Ok(touched(&request.name))
    }

    fn fs_unmount(&self, _: &Caller, request: FsUnmount) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        let held = self.held(&request.name)?;
        self.unmount_fs(&held, &request)
    }

    fn fs_load_key(&self, _: &Caller, request: FsLoadKey) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        let held = self.held(&request.name)?;
        let secret = filesystems::secret(&request.key);
        held.pool.load_key(&request.name, &secret, request.dry_run).map_err(refuse::pool)?;
        Ok(touched(&request.name))
    }

    fn fs_unload_key(&self, _: &Caller, request: FsUnloadKey) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        let held = self.held(&request.name)?;
        held.reap();
        held.pool.unload_key(&request.name).map_err(|error| match error {
            steadfast_pool::Error::Busy { name } => {
                Refusal::new(Code::KeyBusy, format!("'{name}' is mounted and needs the key")).with("fs", name)
            }
            steadfast_pool::Error::KeyNotLoaded { name } => {
                Refusal::new(Code::KeyUnloaded, format!("the key of '{name}' is not loaded")).with("fs", name)
            }
            other => refuse::pool(other),
        })?;
        Ok(touched(&request.name))
    }

    fn shutdown(&self, force: bool) -> Result<(), Refusal> {
        let _turn = self.verbs.lock();
        self.close_all(force)
    }
}

fn touched(name: &str) -> Outcome {
    Outcome { touched: vec![name.to_owned()], warnings: Vec::new() }
}
