//! `zpool import POOL`.

use crate::api::{Outcome, PoolImport, PoolSelector, Properties};
use crate::cachefile::{CachedPool, Listed};
use crate::caller::Caller;
use crate::check::{check_features, check_paths, exact, name_refusal};
use crate::engine::pool_properties::{TEMPORARY, altroot, listed, read_only, set_property};
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::engine::zfs::keys::secret;
use crate::engine::zpool::import_scan::missing_log;
use crate::engine::{devices, key_files, refuse};
use crate::refusal::{Code, Refusal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadfast_device::OpenOptions;
use steadfast_format::{AuxClass, LabelConfig, PoolState, Txg};
use steadfast_pool::{AnchorWish, FoundPool, GoBack, ImportSpec, NewName, Pool};
use steadfast_property::{Change, Scope, check_dataset_name, check_pool_name};

impl Verb for PoolImport {
    fn check(&mut self) -> Result<(), Refusal> {
        check_paths(&self.search)?;
        check_paths(self.anchor.as_slice())?;
        if let PoolSelector::Name(name) = &self.pool {
            check_dataset_name(name).map_err(name_refusal)?;
        }
        if let Some(name) = &self.new_name {
            check_pool_name(name).map_err(name_refusal)?;
        }
        self.properties = exact(Scope::Pool, &self.properties, &[Change::AtImport, Change::Anytime])?;
        check_features(&self.properties)?;
        if self.as_of.is_some() && !read_only(&self.properties) {
            let what = "an older root is opened without the right to write only: add `-o readonly=on`";
            return Err(Refusal::new(Code::PoolReadonly, what));
        }
        if let Some(key) = &self.key {
            key.check().map_err(|error| Refusal::new(Code::KeyFormat, error.to_string()))?;
        }
        Ok(())
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let wanted = match &self.pool {
            PoolSelector::Name(name) => name.clone(),
            PoolSelector::Guid(guid) => guid.to_string(),
        };
        let is_wanted = |name: &str, guid: u64| match &self.pool {
            PoolSelector::Name(wanted) => name == wanted,
            PoolSelector::Guid(wanted) => guid == *wanted,
        };
        if self.new_name.is_none() {
            let pools = engine.pools.read();
            if let Some((name, _)) = pools.iter().find(|(name, held)| is_wanted(name, held.pool.guid().0)) {
                return Err(imported_already(name));
            }
        }
        // A remembered pool is searched at its old place, unless the operator names another.
        let remembered = engine
            .lost
            .lock()
            .values()
            .find(|lost| is_wanted(&lost.pool.name, lost.pool.guid))
            .map(|lost| lost.pool.clone());
        let open = || match (&remembered, self.search.is_empty()) {
            (Some(pool), true) => devices::open_pool(&pool.devices, pool.guid, read_only(&self.properties)),
            _ => {
                let found = engine.find_pool(&self.search, &wanted, self.destroyed, is_wanted)?;
                devices::reopen(found, read_only(&self.properties))
            }
        };
        let found = open()?;
        let is_ours = engine.is_ours(&found);
        if found.config.state == PoolState::Active && !is_ours && !self.force {
            return Err(in_use(engine, &found.config));
        }
        check_log_unused(&found)?;
        let name = self.new_name.clone().unwrap_or_else(|| found.config.name.clone());
        if remembered.as_ref().is_none_or(|pool| pool.name != name) {
            engine.check_free_name(&name)?;
        }
        let altroot = altroot(&self.properties).or(remembered.as_ref().and_then(|pool| pool.altroot.clone()));
        let listed = listed(&self.properties, self.temporary)?;
        let devices = found.devices.iter().map(|device| PathBuf::from(&device.handle.path)).collect();
        let was = found.config.state;
        let key = match &self.key {
            Some(key) => Some(secret(key)),
            // A file that gives none is told of by whoever is asked for the key then.
            None if self.key_of_file => key_files::of_pool(&found.config).and_then(Result::ok),
            None => None,
        };
        let mut spec = ImportSpec {
            new_name: self.new_name.clone().map(|name| NewName { name, is_temporary: self.temporary }),
            force: self.force,
            destroyed: self.destroyed,
            read_only: read_only(&self.properties),
            secret: key,
            anchor: AnchorWish {
                accept_rollback: self.accept_rollback,
                accept_lost: self.accept_lost_anchor,
                as_of: self.as_of.map(Txg),
                ..engine.anchor_wish(self.anchor.as_deref())
            },
            accept_lost_log: self.accept_lost_log,
            to_checkpoint: self.to_checkpoint,
            host: engine.host.clone(),
            memory: *engine.memory.read(),
        };
        let is_anchored = found.config.aux.iter().any(|aux| aux.class == AuxClass::Anchor);
        let may_go_back = self.rewind && self.as_of.is_none() && !is_anchored;
        // Only a look, for `-n`, asks what a way back would ask.
        let older = match may_go_back && (self.is_trial || !spec.read_only) {
            true => steadfast_pool::older_roots(&found),
            false => Vec::new(),
        };
        // Roots to try without the right to write, newest first.
        let mut roots = match self.rewind && spec.read_only && older.is_empty() {
            true => steadfast_pool::root_txgs(&found),
            false => Vec::new(),
        };
        roots.retain(|txg| self.as_of.is_none_or(|as_of| txg.0 <= as_of));
        let mut imported = Pool::import(&engine.env, found, &spec);
        for to in older.iter().skip(1) {
            if !matches!(&imported, Err(error) if error.is_of_root()) {
                break;
            }
            spec.anchor.back = Some(GoBack { from: older[0], to: *to });
            imported = Pool::import(&engine.env, open()?, &spec);
        }
        let mut imported = imported.map_err(refuse::pool);
        for txg in roots {
            if !matches!(&imported, Err(refusal) if is_damage(refusal.code)) {
                break;
            }
            spec.anchor.as_of = Some(txg);
            imported = Pool::import(&engine.env, open()?, &spec).map_err(refuse::pool);
        }
        let pool = imported.map_err(foreign_log)?;
        let stored: Properties =
            self.properties.into_iter().filter(|(n, _)| !TEMPORARY.contains(&n.as_str())).collect();
        let set = stored.iter().try_for_each(|(property, value)| set_property(&pool, property, value));
        if let Err(refusal) = set {
            // The pool returns to its former state, and stays remembered ([engine.3]). The next
            // import reports a failure.
            let _ = match was {
                PoolState::Active => pool.close(),
                PoolState::Exported => pool.export(),
                PoolState::Destroyed => pool.destroy(),
            };
            return Err(refusal);
        }
        if let Some(old) = remembered {
            engine.lost.lock().remove(&old.name);
        }
        // A read-only import leaves the labels as they are.
        match pool.is_read_only() && is_ours {
            true => engine.given_up.lock().insert(pool.guid().0),
            false => engine.given_up.lock().remove(&pool.guid().0),
        };
        let held = engine.hold(pool, devices, altroot, listed);
        engine.imported(&held, &name);
        engine.take(caller, &name, held, !self.no_mount)
    }
}

impl Engine {
    /// The wanted pool, found on devices.
    fn find_pool(
        &self,
        search: &[PathBuf],
        wanted: &str,
        destroyed: bool,
        is_wanted: impl Fn(&str, u64) -> bool,
    ) -> Result<FoundPool, Refusal> {
        let places = self.search_places(search);
        let mut search = devices::search_telling(&places, &|done, of| self.step("searching", done, of))?;
        let mut found: Vec<FoundPool> = Vec::new();
        for pool in search.pools.drain(..) {
            if is_wanted(&pool.config.name, pool.guid.0) {
                found.push(pool);
            }
        }
        // An imported pool is not meant, nor a copy of it, if another one has the same name.
        let is_held = |pool: &FoundPool| self.pools.read().values().any(|held| held.pool.guid() == pool.guid);
        if let Some(held) = found.iter().find(|pool| is_held(pool)).map(|pool| pool.config.name.clone()) {
            found.retain(|pool| !is_held(pool));
            if found.is_empty() {
                return Err(imported_already(&held));
            }
        }
        // A name means a living pool first. A destroyed one is named in the refusal only if it is
        // the only one.
        if found.len() > 1 || destroyed {
            found.retain(|pool| (pool.config.state == PoolState::Destroyed) == destroyed);
        }
        match found.len() {
            1 => {
                steadfast_pool::check_copies(&found[0]).map_err(refuse::pool)?;
                Ok(found.remove(0))
            }
            0 => Err(search.refused.into_iter().next().unwrap_or_else(|| {
                let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
                let what = format!("there is no pool '{wanted}' in {}", places.join(", "));
                Refusal::new(Code::PoolNotFound, what).with("pool", wanted)
            })),
            _ => {
                let ids: Vec<String> = found.iter().map(|pool| pool.guid.0.to_string()).collect();
                let what = format!("several pools have the name '{wanted}', with the ids {}", ids.join(", "));
                Err(Refusal::new(Code::PoolAmbiguous, what).with("pool", wanted).with("ids", ids.join(",")))
            }
        }
    }

    /// True if this daemon is the one that used a pool last, as far as it knows: nobody else needs
    /// to be asked.
    pub(super) fn is_ours(&self, found: &FoundPool) -> bool {
        let is_remembered = || self.lost.lock().values().any(|lost| lost.pool.guid == found.guid.0);
        self.given_up.lock().contains(&found.guid.0) || is_remembered()
    }

    /// Imports a pool as it was before the daemon ended.
    pub(in crate::engine) fn import_remembered(&self, cached: &CachedPool) -> Result<Vec<Refusal>, Refusal> {
        let found = devices::open_pool(&cached.devices, cached.guid, cached.readonly)?;
        let key = key_files::of_pool(&found.config).transpose();
        let key = key.map_err(|refusal| Refusal::new(Code::PoolSealed, refusal.what))?;
        let spec = ImportSpec {
            new_name: (found.config.name != cached.name)
                .then(|| NewName { name: cached.name.clone(), is_temporary: false }),
            force: false,
            destroyed: false,
            read_only: cached.readonly,
            secret: key,
            anchor: self.anchor_wish(None),
            accept_lost_log: false,
            to_checkpoint: false,
            host: self.host.clone(),
            memory: *self.memory.read(),
        };
        let pool = Pool::import(&self.env, found, &spec).map_err(refuse::pool)?;
        let held = Arc::new(self.hold(pool, cached.devices.clone(), cached.altroot.clone(), Listed::Own));
        self.imported(&held, &cached.name);
        self.pools.write().insert(cached.name.clone(), Arc::clone(&held));
        self.share_memory();
        let mut warnings = self.load_key_files(&held);
        warnings.extend(self.mount_below(&held, &cached.name));
        Ok(warnings)
    }
}

/// True if a refusal of an import may be due to the root: an older one may be whole.
fn is_damage(code: Code) -> bool {
    matches!(code, Code::PoolDamaged | Code::RootDamaged | Code::BlkAuthAll | Code::VdevIo)
}

fn imported_already(name: &str) -> Refusal {
    Refusal::new(Code::PoolImported, format!("the pool '{name}' is imported already")).with("pool", name)
}

/// The refusal for a pool whose labels say that it is in use, if this daemon does not remember it.
/// Another daemon of this host may use it, or may have been killed, and import it again.
pub(super) fn in_use(engine: &Engine, config: &LabelConfig) -> Refusal {
    let (name, host) = (&config.name, &config.host);
    let user = match *host == engine.host {
        true => "this host, but not by this daemon,".to_owned(),
        false => format!("host '{host}'"),
    };
    let what = format!("pool '{name}' was last used by {user} and was not exported");
    Refusal::new(Code::PoolActive, what).with("pool", name).with("host", host)
}

/// Refuses a pool whose log device was not found because another program has it open. Nothing of it
/// is lost, so nobody is told how to give it up.
fn check_log_unused(found: &FoundPool) -> Result<(), Refusal> {
    let Some(log) = missing_log(found) else { return Ok(()) };
    match devices::open(Path::new(&log.path), &OpenOptions::WRITE) {
        Err(error) if error.code == Code::VdevInUse => {
            let (path, pool) = (&log.path, &found.config.name);
            let what = format!(
                "the log device {path} of '{pool}' is open in another program: the pool is imported there"
            );
            let instead =
                "Export the pool there, then import it here. Its last fsyncs are on the log device.";
            let refusal = Refusal::new(Code::VdevInUse, what).advising(instead);
            Err(refusal.with("device", path).with("pool", pool))
        }
        _ => Ok(()),
    }
}

/// Adds what is found at the path of a missing log device.
fn foreign_log(mut refusal: Refusal) -> Refusal {
    if let Some(path) = refusal.fields.get("device").filter(|_| refusal.code == Code::LogMissing)
        && let Ok(handle) = devices::open(Path::new(path), &OpenOptions::PEEK)
    {
        let there = match steadfast_pool::label_of(&*handle.device) {
            Ok(label) => format!("; the file or disk at this path belongs to the pool '{}'", label.name),
            Err(_) => "; the file or disk at this path has no intact label".to_owned(),
        };
        refusal.what.push_str(&there);
    }
    refusal
}
