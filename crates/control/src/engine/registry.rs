//! Pools that the daemon holds: looking them up, taking them in, letting them go, remembering them.

use crate::api::Outcome;
use crate::cachefile::{CachedPool, Listed};
use crate::caller::Caller;
use crate::engine::devices;
use crate::engine::front::FormerMount;
use crate::engine::recoveries::Recoveries;
use crate::engine::reports::labels;
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::sweeps;
use crate::refusal::{Code, Refusal};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use steadfast_pool::Pool;

impl Engine {
    /// The pool of this name, or of the file system of this name.
    pub(super) fn held(&self, name: &str) -> Result<Arc<ImportedPool>, Refusal> {
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
            (Code::FsAbsent, format!("there is no file system '{name}': no pool '{pool}' is imported"))
        };
        Err(Refusal::new(code, what).with("pool", pool).with("fs", name))
    }

    /// The pools of these names, or all, sorted.
    pub(super) fn select(&self, names: &[String]) -> Result<Vec<(String, Arc<ImportedPool>)>, Refusal> {
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

    /// Writes down which pools to import at the next start, and the lists for `zpool import -c`.
    pub(super) fn remember(&self) -> Result<(), Refusal> {
        let own = self.cachefile.store(|| self.to_remember());
        let others = self.other_lists.store(|| self.listed_pools(|listed| listed.file().map(Path::to_owned)));
        own.and(others)
    }

    pub(super) fn to_remember(&self) -> Vec<CachedPool> {
        let remembered = self.listed_pools(|listed| listed.is_remembered().then_some(()));
        let mut pools: Vec<CachedPool> = remembered.into_iter().map(|((), pool)| pool).collect();
        pools.extend(self.lost.lock().values().map(|lost| lost.pool.clone()));
        pools
    }

    /// The imported pools for which `place` tells something, as a list has them.
    fn listed_pools<T>(&self, place: impl Fn(&Listed) -> Option<T>) -> Vec<(T, CachedPool)> {
        // Copied, so that the list of pools is not locked while each is asked for its devices.
        let held: Vec<(String, Arc<ImportedPool>)> =
            self.pools.read().iter().map(|(name, held)| (name.clone(), Arc::clone(held))).collect();
        let listed = held.into_iter().filter_map(|(name, held)| {
            let place = place(&held.listed.read())?;
            let pool = CachedPool {
                name,
                guid: held.pool.guid().0,
                devices: held.devices.read().clone(),
                readonly: held.pool.is_read_only(),
                altroot: held.altroot.clone(),
                vdevs: labels::layout(&held.pool.state()),
            };
            Some((place, pool))
        });
        listed.collect()
    }

    /// Folder of pools without a mountpoint.
    pub(super) fn mount_base(&self) -> String {
        self.runtime.mount_base().display().to_string()
    }

    /// Records a command that succeeded.
    pub(super) fn log(&self, held: &ImportedPool, caller: &Caller) {
        held.pool.log(caller.uid, false, &caller.command);
        let fields = [("command", caller.command.clone()), ("uid", caller.uid.to_string())];
        self.post("history_event", &held.pool, &held.pool.name(), &fields);
    }

    /// The pool of this name; names of file systems are none.
    pub(super) fn held_pool(&self, name: &str) -> Result<Arc<ImportedPool>, Refusal> {
        let mut found = self.select(&[name.to_owned()])?;
        Ok(found.remove(0).1)
    }

    pub(super) fn check_free_name(&self, name: &str) -> Result<(), Refusal> {
        let taken = if self.pools.read().contains_key(name) {
            "a pool of this name is imported"
        } else if self.lost.lock().contains_key(name) {
            "the daemon remembers a pool of this name, whose devices are missing"
        } else {
            return Ok(());
        };
        Err(Refusal::new(Code::PoolExists, taken).with("pool", name))
    }

    pub(super) fn hold(
        &self,
        pool: Pool,
        devices: Vec<PathBuf>,
        altroot: Option<PathBuf>,
        listed: Listed,
    ) -> ImportedPool {
        pool.wait_for_devices();
        sweeps::resume(&pool);
        let since_ns = self.env.clock.monotonic_ns();
        let (devices, mounts, streams) = (RwLock::new(devices), Mutex::default(), AtomicUsize::default());
        let (budgets, listed) = (Mutex::default(), RwLock::new(listed));
        let (recoveries, folders) = (Recoveries::default(), Mutex::default());
        ImportedPool {
            pool,
            devices,
            since_ns,
            altroot,
            listed,
            mounts,
            folders,
            budgets,
            streams,
            recoveries,
        }
    }

    /// Takes in a new pool: records the command, mounts, remembers. The pool exists already, so
    /// failures here are warnings.
    pub(super) fn take(
        &self,
        caller: &Caller,
        name: &str,
        held: ImportedPool,
        mount: bool,
    ) -> Result<Outcome, Refusal> {
        let held = Arc::new(held);
        self.log(&held, caller);
        self.lost.lock().remove(name);
        self.pools.write().insert(name.to_owned(), Arc::clone(&held));
        self.share_memory();
        let mut warnings = if mount { self.mount_below(&held, name) } else { Vec::new() };
        if let Err(refusal) = self.remember() {
            warnings.push(refusal);
        }
        Ok(Outcome { touched: vec![name.to_owned()], warnings })
    }

    /// Unmounts everything of a pool that is to be exported or destroyed, and gives the former
    /// mounts. Writers that wait for a suspended pool fail now: otherwise nothing could be
    /// unmounted.
    pub(super) fn unmount_all(
        &self,
        held: &Arc<ImportedPool>,
        name: &str,
        force: bool,
    ) -> Result<Vec<FormerMount>, Refusal> {
        if held.streams.load(Ordering::Acquire) > 0 {
            let what = "the pool is sending or receiving a stream";
            return Err(Refusal::new(Code::StreamBusy, what).with("pool", name));
        }
        held.pool.release_writers();
        let parted = self.part_clients(held, name, force);
        parted.and_then(|()| self.leave(held, &[name.to_owned()], force)).map_err(|refusal| {
            held.pool.hold_writers();
            busy(name, refusal)
        })
    }

    pub(super) fn let_go(&self, name: &str, held: Arc<ImportedPool>) -> Result<Outcome, Refusal> {
        self.pools.write().remove(name);
        // Its caches go with it, and what they held must not outlive the keys.
        drop(held);
        steadfast_pool::wipe_free_memory();
        self.share_memory();
        self.keep_counters();
        let warnings = self.remember().err().into_iter().collect();
        Ok(Outcome { touched: vec![name.to_owned()], warnings })
    }

    pub(super) fn search_places(&self, search: &[PathBuf]) -> Vec<PathBuf> {
        if !search.is_empty() {
            return search.to_vec();
        }
        let lost = self.lost.lock();
        let known: Vec<PathBuf> = lost.values().flat_map(|lost| lost.pool.devices.clone()).collect();
        devices::usual_places(&known)
    }

    /// Remembered pools that are not imported, and why. Their devices are looked at when nothing is
    /// locked.
    pub(super) fn missing_pools(&self, names: &[String]) -> Vec<(CachedPool, Refusal)> {
        let lost = self.lost.lock();
        let wanted = lost.iter().filter(|(name, _)| names.is_empty() || names.contains(name));
        wanted.map(|(_, lost)| (lost.pool.clone(), lost.why.clone())).collect()
    }
}

/// The refusal for a remembered pool that could not be imported.
pub(super) fn missing(pool: &CachedPool, why: &Refusal) -> Refusal {
    let code = match why.code {
        Code::KeyWrong => Code::PoolSealed,
        Code::PoolSealed | Code::LogMissing | Code::LogDamaged => why.code,
        _ => Code::PoolMissing,
    };
    let what =
        format!("the daemon remembers the pool '{}', but could not import it: {}", pool.name, why.what);
    let mut missing = Refusal::new(code, what).with("pool", &pool.name);
    if let Some(device) = why.fields.get("device") {
        missing = missing.with("device", device);
    }
    missing
}

/// A pool is busy where one of its file systems is.
fn busy(pool: &str, refusal: Refusal) -> Refusal {
    if refusal.code != Code::FsBusy {
        return refusal;
    }
    let mountpoint = refusal.fields.get("mountpoint").cloned();
    let busy = Refusal::new(Code::PoolBusy, refusal.what).with("pool", pool);
    match mountpoint {
        Some(mountpoint) => busy.with("mountpoint", mountpoint),
        None => busy,
    }
}
