//! Verbs of pools.

use super::anchors::Sorted;
use super::mounts::Placed;
use super::report::check_names_last;
use super::{Engine, Held, Lost, anchors, devices, filesystems, mounts, refuse, touched};
use crate::api::{
    Caller, Outcome, PoolCreate, PoolDestroy, PoolExport, PoolImport, PoolSelector, Properties,
};
use crate::cachefile::CachedPool;
use crate::check::{ALWAYS_USED, FEATURE};
use crate::refusal::{Code, Refusal};
use crate::secret::{Key, KeyFormat};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use steadfast_device::OpenOptions;
use steadfast_format::{Feature, LeafState, PoolState};
use steadfast_pool::{AnchorWish, CreateSpec, FoundPool, ImportSpec, Pool};

/// Pool properties that say how it is imported, and are not stored in it.
const TEMPORARY: [&str; 4] = ["altroot", "cachefile", "readonly", "ashift"];
/// Log2 of the allocation unit where nobody chose: 4 KiB.
const ASHIFT_DEFAULT: u8 = 12;

impl Engine {
    pub(super) fn create_pool(&self, caller: &Caller, request: PoolCreate) -> Result<Outcome, Refusal> {
        let name = request.name.clone();
        self.check_free_name(&name)?;
        let altroot = altroot(&request.properties);
        let ashift = match request.properties.get("ashift").map(|text| text.parse::<u8>()) {
            None | Some(Ok(0)) => ASHIFT_DEFAULT,
            Some(Ok(ashift @ 9..=13)) => ashift,
            Some(_) => {
                let what = "'ashift' must be 9 to 13, or 0 for the default of 12";
                return Err(Refusal::new(Code::PropValue, what).with("property", "ashift"));
            }
        };
        let mut root_props = request.fs_properties.clone();
        if let Some(mountpoint) = &request.mountpoint {
            root_props.insert("mountpoint".into(), mountpoint.clone());
        }
        filesystems::key_rules(&mut root_props, None, request.key.as_ref())?;
        let mountpoint = match root_props.get("mountpoint").map(String::as_str) {
            Some("none" | "legacy") => None,
            Some(path) => Some(mounts::under(altroot.as_deref(), path)),
            None => Some(mounts::under(
                altroot.as_deref(),
                &format!("{}/{name}", self.mount_base().trim_end_matches('/')),
            )),
        };
        if let Some(mountpoint) = &mountpoint
            && root_props.get("canmount").is_none_or(|value| value == "on")
        {
            mounts::check(mountpoint, false, mounts::Shape::Folder)?;
        }
        anchors::check_alike(&request.vdevs, [&[], &[]], request.force)?;
        let vdevs = anchors::slotted(&request.vdevs);
        let (paths, handles) = self.open_new(&vdevs, request.force)?;
        let Sorted { main, logs, spares, caches } = anchors::sorted(&vdevs, handles);
        for other in logs.iter().chain(&spares).chain(&caches) {
            steadfast_pool::check_unoccupied(other, request.force).map_err(refuse::pool)?;
        }
        if request.dry_run {
            return Ok(touched(&name));
        }
        let key = request.key.as_ref().map(|key| self.new_key(key)).transpose()?;
        let left_out = left_out(request.no_features, &request.properties);
        let stored = |(name, _): &(&String, &String)| {
            !TEMPORARY.contains(&name.as_str()) && !name.starts_with(FEATURE)
        };
        let own = |(name, value): (&String, &String)| (name.clone(), value.clone());
        let spec = CreateSpec {
            name: name.clone(),
            groups: anchors::groups(&request.vdevs, main),
            ashift,
            force: request.force,
            pool_props: request.properties.iter().filter(stored).map(own).collect(),
            root_props,
            key,
            anchor: self.anchor_of(&request.vdevs),
            host: self.host.clone(),
            memory: self.memory,
        };
        let pool = Pool::create_without(&self.env, spec, &left_out).map_err(refuse::pool)?;
        let logs = anchors::log_groups(&request.vdevs, logs);
        let mut added =
            if logs.is_empty() { Ok(()) } else { pool.add_log_groups(logs, request.force, false) };
        if added.is_ok() && !spares.is_empty() {
            added = pool.add_spares(spares, request.force, false);
        }
        if added.is_ok() && !caches.is_empty() {
            added = pool.add_caches(caches, request.force, false);
        }
        if let Err(error) = added {
            // Half of what was asked for is nothing: the devices are free again.
            let _ = pool.destroy();
            return Err(refuse::pool(error));
        }
        let cached = request.properties.get("cachefile").is_none_or(|value| value != "none");
        let held = self.hold(pool, paths, altroot, cached);
        self.post("pool_create", &held.pool, &name, &[]);
        let given = filesystems::give(&held, &name, caller);
        let mut outcome = self.take(caller, &name, held, true)?;
        outcome.warnings.extend(given.err());
        Ok(outcome)
    }

    fn hold(&self, pool: Pool, devices: Vec<PathBuf>, altroot: Option<PathBuf>, cached: bool) -> Held {
        let since_ns = self.env.clock.monotonic_ns();
        let (devices, mounts, streams) = (RwLock::new(devices), Mutex::default(), AtomicUsize::default());
        Held { pool, devices, since_ns, altroot, cached, mounts, streams }
    }

    /// What follows every import: the news, and devices that have grown, if the pool wants that.
    fn imported(&self, held: &Held, name: &str) {
        self.post("pool_import", &held.pool, name, &[]);
        if wants_expanding(held) {
            for (path, refusal) in self.expand_grown(held, name, |_| true) {
                // The pool is imported all the same, with the size it had; status shows what could be gained.
                eprintln!("steadfast: {} is not expanded: {}", path.display(), refusal.what);
            }
        }
    }

    /// Uses all of those devices that have grown and are to be looked at. Gives those that could not be, with the reason.
    pub(super) fn expand_grown(
        &self,
        held: &Held,
        name: &str,
        is_due: impl Fn(&Path) -> bool,
    ) -> Vec<(PathBuf, Refusal)> {
        let mut failed = Vec::new();
        for leaf in held.pool.state().leaves {
            // One that is out of use has its turn when it is back: its labels could not be written.
            let has_grown = leaf.config.state == LeafState::Online && leaf.growth.fits > leaf.growth.slots;
            let path = leaf.config.path;
            if !has_grown || !is_due(Path::new(&path)) {
                continue;
            }
            match held.pool.expand(&path) {
                Ok(0) => {}
                Ok(gained) => {
                    let fields = [("vdev_path", path), ("bytes", gained.to_string())];
                    self.post("vdev_autoexpand", &held.pool, name, &fields);
                }
                Err(error) => failed.push((PathBuf::from(path), refuse::pool(error))),
            }
        }
        failed
    }

    /// Holds a pool from now on: notes the command, mounts, remembers. The pool stands already, so what fails here is
    /// told and no refusal.
    fn take(&self, caller: &Caller, name: &str, held: Held, mount: bool) -> Result<Outcome, Refusal> {
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

    fn check_free_name(&self, name: &str) -> Result<(), Refusal> {
        let taken = if self.pools.read().contains_key(name) {
            "a pool of this name is imported"
        } else if self.lost.lock().contains_key(name) {
            "a pool of this name is remembered, though its devices are missing"
        } else {
            return Ok(());
        };
        Err(Refusal::new(Code::PoolExists, taken).with("pool", name))
    }

    /// Says which of our pools uses a device that could not be opened because it is in use.
    pub(super) fn name_user(&self, path: &Path, refusal: Refusal) -> Refusal {
        let Some(identity) = devices::identity(path).filter(|_| refusal.code == Code::VdevInUse) else {
            return refusal;
        };
        for (name, held) in self.pools.read().iter() {
            if held.devices.read().iter().any(|device| devices::identity(device) == Some(identity)) {
                let what = format!("the device {} is in use by the imported pool '{name}'", path.display());
                return Refusal::new(Code::VdevInUse, what).with("device", path.display()).with("pool", name);
            }
        }
        refusal
    }

    pub(super) fn destroy_pool(&self, request: &PoolDestroy) -> Result<Outcome, Refusal> {
        let name = request.name.as_str();
        let held = self.held_pool(name)?;
        if held.pool.is_read_only() {
            let what = "the pool is imported read-only, so its devices cannot be marked as destroyed";
            return Err(Refusal::new(Code::PoolReadonly, what).with("pool", name));
        }
        self.unmount_all(&held, name, request.force)?;
        self.harvest(name, &held.pool);
        held.pool.destroy().map_err(refuse::pool)?;
        self.post("pool_destroy", &held.pool, name, &[]);
        self.let_go(name)
    }

    pub(super) fn export_pool(&self, caller: &Caller, request: &PoolExport) -> Result<Outcome, Refusal> {
        let name = request.name.as_str();
        if self.lost.lock().remove(name).is_some() {
            self.remember()?;
            return Ok(touched(name));
        }
        let held = self.held_pool(name)?;
        if !request.force {
            check_names_last(name, &held)?;
        }
        self.unmount_all(&held, name, request.force)?;
        self.log(&held, caller);
        held.pool.export().map_err(refuse::pool)?;
        self.harvest(name, &held.pool);
        self.post("pool_export", &held.pool, name, &[]);
        self.let_go(name)
    }

    /// Unmounts all of a pool that is to be let go, and gives what was mounted. Who waits because it is suspended fails now: else nothing
    /// could be unmounted.
    fn unmount_all(&self, held: &Arc<Held>, name: &str, force: bool) -> Result<Vec<Placed>, Refusal> {
        if held.streams.load(Ordering::Acquire) > 0 {
            let what = "snapshots of it are being sent or received";
            return Err(Refusal::new(Code::StreamBusy, what).with("pool", name));
        }
        held.pool.release_writers();
        let parted = self.part_clients(held, name, force);
        parted.and_then(|()| self.leave(held, &[name.to_owned()], force)).map_err(|refusal| {
            held.pool.hold_writers();
            busy(name, refusal)
        })
    }

    /// The pool of this name; names of file systems are none.
    pub(super) fn held_pool(&self, name: &str) -> Result<Arc<Held>, Refusal> {
        let mut found = self.select(&[name.to_owned()])?;
        Ok(found.remove(0).1)
    }

    fn let_go(&self, name: &str) -> Result<Outcome, Refusal> {
        self.pools.write().remove(name);
        self.share_memory();
        let warnings = self.remember().err().into_iter().collect();
        Ok(Outcome { touched: vec![name.to_owned()], warnings })
    }

    pub(super) fn places(&self, search: &[PathBuf]) -> Vec<PathBuf> {
        if !search.is_empty() {
            return search.to_vec();
        }
        let lost = self.lost.lock();
        let known: Vec<PathBuf> = lost.values().flat_map(|lost| lost.pool.devices.clone()).collect();
        devices::usual_places(&known)
    }

    pub(super) fn import_pool(&self, caller: &Caller, request: PoolImport) -> Result<Outcome, Refusal> {
        let wanted = match &request.pool {
            PoolSelector::Name(name) => name.clone(),
            PoolSelector::Guid(guid) => guid.to_string(),
        };
        let is_wanted = |name: &str, guid: u64| match &request.pool {
            PoolSelector::Name(wanted) => name == wanted,
            PoolSelector::Guid(wanted) => guid == *wanted,
        };
        for (name, held) in self.pools.read().iter() {
            if is_wanted(name, held.pool.guid().0) && request.new_name.is_none() {
                let what = format!("the pool '{name}' is imported already");
                return Err(Refusal::new(Code::PoolImported, what).with("pool", name));
            }
        }
        // A remembered pool is looked for where it was, unless the operator knows better.
        let remembered = self
            .lost
            .lock()
            .values()
            .find(|lost| is_wanted(&lost.pool.name, lost.pool.guid))
            .map(|lost| lost.pool.clone());
        let found = match (&remembered, request.search.is_empty()) {
            (Some(pool), true) => {
                devices::open_pool(&pool.devices, pool.guid, read_only(&request.properties))?
            }
            _ => {
                let found = self.find(&request.search, &wanted, request.destroyed, is_wanted)?;
                devices::reopen(&found, read_only(&request.properties))?
            }
        };
        let name = request.new_name.clone().unwrap_or_else(|| found.config.name.clone());
        if remembered.as_ref().is_none_or(|pool| pool.name != name) {
            self.check_free_name(&name)?;
        }
        let altroot =
            altroot(&request.properties).or(remembered.as_ref().and_then(|pool| pool.altroot.clone()));
        let cached = request.properties.get("cachefile").is_none_or(|value| value != "none");
        let devices = found.devices.iter().map(|device| PathBuf::from(&device.handle.path)).collect();
        let was = found.config.state;
        let spec = ImportSpec {
            new_name: request.new_name.clone(),
            force: request.force,
            destroyed: request.destroyed,
            read_only: read_only(&request.properties),
            secret: request.key.as_ref().map(|key| filesystems::secret(key).to_vec()),
            anchor: AnchorWish {
                accept_rollback: request.accept_rollback,
                accept_lost: request.accept_lost_anchor,
                ..self.anchor_wish(request.anchor.as_deref())
            },
            accept_lost_log: request.accept_lost_log,
            host: self.host.clone(),
            memory: self.memory,
        };
        let pool = Pool::import(&self.env, found, &spec).map_err(|error| foreign_log(refuse::pool(error)))?;
        let stored: Properties =
            request.properties.into_iter().filter(|(n, _)| !TEMPORARY.contains(&n.as_str())).collect();
        let set = stored.iter().try_for_each(|(property, value)| set_property(&pool, property, value));
        if let Err(refusal) = set {
            // It is left as it was found, and remembered if it was (E3); what fails at that an import tells.
            let _ = match was {
                PoolState::Active => pool.close(),
                PoolState::Exported => pool.export(),
                PoolState::Destroyed => pool.destroy(),
            };
            return Err(refusal);
        }
        if let Some(old) = remembered {
            self.lost.lock().remove(&old.name);
        }
        let held = self.hold(pool, devices, altroot, cached);
        self.imported(&held, &name);
        self.take(caller, &name, held, !request.no_mount)
    }

    /// The one pool that is meant, among those that can be found.
    fn find(
        &self,
        search: &[PathBuf],
        wanted: &str,
        destroyed: bool,
        is_wanted: impl Fn(&str, u64) -> bool,
    ) -> Result<FoundPool, Refusal> {
        let places = self.places(search);
        let mut search = devices::search(&places)?;
        let mut found: Vec<FoundPool> = Vec::new();
        for pool in search.pools.drain(..) {
            if is_wanted(&pool.config.name, pool.guid.0) {
                found.push(pool);
            }
        }
        // A name is that of a living pool first; a destroyed one is refused with that reason only if it is alone.
        if found.len() > 1 || destroyed {
            found.retain(|pool| (pool.config.state == PoolState::Destroyed) == destroyed);
        }
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => Err(search.refused.into_iter().next().unwrap_or_else(|| {
                let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
                let what = format!("there is no pool '{wanted}' in {}", places.join(", "));
                Refusal::new(Code::PoolNotFound, what).with("pool", wanted)
            })),
            _ => {
                let ids: Vec<String> = found.iter().map(|pool| pool.guid.0.to_string()).collect();
                let what = format!("several pools are called '{wanted}': {}", ids.join(", "));
                Err(Refusal::new(Code::PoolAmbiguous, what).with("pool", wanted).with("ids", ids.join(",")))
            }
        }
    }

    /// Imports a pool as it was before the daemon ended.
    pub(super) fn import_remembered(&self, cached: &CachedPool) -> Result<Vec<Refusal>, Refusal> {
        let found = devices::open_pool(&cached.devices, cached.guid, cached.readonly)?;
        let spec = ImportSpec {
            new_name: (found.config.name != cached.name).then(|| cached.name.clone()),
            force: false,
            destroyed: false,
            read_only: cached.readonly,
            secret: None,
            anchor: self.anchor_wish(None),
            accept_lost_log: false,
            host: self.host.clone(),
            memory: self.memory,
        };
        let pool = Pool::import(&self.env, found, &spec).map_err(refuse::pool)?;
        let held = Arc::new(self.hold(pool, cached.devices.clone(), cached.altroot.clone(), true));
        self.imported(&held, &cached.name);
        self.pools.write().insert(cached.name.clone(), Arc::clone(&held));
        self.share_memory();
        Ok(self.mount_below(&held, &cached.name))
    }

    /// Closes everything because the daemon ends. Pools stay remembered.
    pub(super) fn close_all(&self, force: bool) -> Result<(), Refusal> {
        let pools: BTreeMap<String, Arc<Held>> = self.pools.read().clone();
        if !force {
            pools.iter().try_for_each(|(name, held)| check_names_last(name, held))?;
        }
        let mut left: Vec<(&Arc<Held>, Vec<Placed>)> = Vec::new();
        for (name, held) in &pools {
            match self.unmount_all(held, name, force) {
                Ok(placed) => left.push((held, placed)),
                Err(refusal) if !force => {
                    for (held, placed) in left {
                        held.pool.hold_writers();
                        self.mount_placed(held, placed);
                    }
                    return Err(refusal);
                }
                Err(refusal) => eprintln!("steadfast: pool '{name}': {}", refusal.what),
            }
        }
        let (remembered, mut first) = (self.to_remember(), None);
        for (name, held) in &pools {
            match held.pool.export() {
                Ok(()) => {
                    eprintln!("steadfast: pool '{name}' is exported");
                    self.pools.write().remove(name);
                }
                Err(error) => {
                    let refusal = refuse::pool(error);
                    eprintln!("steadfast: pool '{name}' is not exported in order: {}", refusal.what);
                    first.get_or_insert(refusal);
                }
            }
        }
        let Some(refusal) = first.filter(|_| !force) else {
            // What could be committed is; staying would not change what could not.
            self.pools.write().clear();
            return Ok(());
        };
        // The daemon stays, and what could not be exported with it. What was exported is remembered as it was (E3).
        for pool in remembered.into_iter().filter(|pool| pools.contains_key(&pool.name)) {
            if !self.pools.read().contains_key(&pool.name) {
                let what = "it was exported because the daemon was to stop, which another pool prevented";
                let why = Refusal::new(Code::DaemonStopping, what);
                self.lost.lock().insert(pool.name.clone(), Lost { pool, why });
            }
        }
        Err(refusal)
    }

    pub(super) fn new_key(&self, key: &Key) -> Result<steadfast_pool::NewKey, Refusal> {
        let format = match key.format {
            KeyFormat::Passphrase => steadfast_format::KeyFormat::Passphrase,
            KeyFormat::Raw => steadfast_format::KeyFormat::Raw,
            KeyFormat::Hex => steadfast_format::KeyFormat::Hex,
        };
        let random = |out: &mut [u8]| self.env.random.fill(out);
        let secret = filesystems::secret(key);
        let user = steadfast_pool::new_user_key(format, &secret, &random, None).map_err(refuse::pool)?;
        Ok(steadfast_pool::NewKey { user: Arc::new(user) })
    }
}

/// Says what is found where a missing log device was last.
fn foreign_log(mut refusal: Refusal) -> Refusal {
    if let Some(path) = refusal.fields.get("device").filter(|_| refusal.code == Code::LogMissing)
        && let Ok(handle) = devices::open(Path::new(path), &OpenOptions::PEEK)
    {
        let there = match steadfast_pool::label_of(&*handle.device) {
            Ok(label) => format!("; a device of the pool '{}' is there", label.name),
            Err(_) => "; what is there has no label of Steadfast, or a damaged one".to_owned(),
        };
        refusal.what.push_str(&there);
    }
    refusal
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

/// Sets a property of a pool, or lets it use a feature.
pub(super) fn set_property(pool: &Pool, name: &str, value: &str) -> Result<(), Refusal> {
    match name.strip_prefix(FEATURE) {
        Some(feature) => pool.enable_feature(feature),
        None => pool.set_pool_prop(name, Some(value)),
    }
    .map_err(refuse::pool)
}

/// Features that a new pool is not to use.
fn left_out(no_features: bool, properties: &Properties) -> Vec<&'static str> {
    let names = Feature::KNOWN.iter().map(|(name, ..)| *name);
    let is_left_out = |name: &&str| match properties.get(&format!("{FEATURE}{name}")).map(String::as_str) {
        Some("enabled") => false,
        Some(_) => true,
        None => no_features && !ALWAYS_USED.contains(name),
    };
    names.filter(|name| !Feature::STRUCTURAL.contains(name)).filter(is_left_out).collect()
}

/// Whether devices of a pool that grow are to be used whole by themselves.
pub(super) fn wants_expanding(held: &Held) -> bool {
    let is_on = held.pool.pool_props().get("autoexpand").is_some_and(|value| value == "on");
    is_on && !held.pool.is_read_only() && held.pool.suspended().is_none()
}

fn altroot(properties: &Properties) -> Option<PathBuf> {
    properties.get("altroot").filter(|value| *value != "none").map(PathBuf::from)
}

fn read_only(properties: &Properties) -> bool {
    properties.get("readonly").is_some_and(|value| value == "on")
}
