//! Verbs that change what a pool is made of, and what it may use: add, online, offline, clear, labelclear, upgrade.

use super::anchors::Sorted;
use super::{Engine, Held, anchors, devices, refuse, touched};
use crate::api::{
    Caller, LabelClear, Outcome, PoolAdd, PoolClear, PoolInitialize, PoolOffline, PoolOnline, PoolReplace,
    PoolScrub, PoolTrim, PoolUpgrade, ScrubCommand, TrimCommand, VdevClass, VdevKind, VdevSpec,
};
use crate::refusal::{Code, Refusal};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadfast_device::{Device, FileDevice, OpenOptions};
use steadfast_format::{Feature, GroupClass, LeafState, PoolState};
use steadfast_pool::DeviceHandle;

impl Engine {
    /// Opens devices that are to belong to a pool: refused are those listed twice, in use, or holding something else.
    pub(super) fn open_new(
        &self,
        vdevs: &[VdevSpec],
        force: bool,
    ) -> Result<(Vec<PathBuf>, Vec<DeviceHandle>), Refusal> {
        let paths: Vec<PathBuf> = vdevs.iter().flat_map(|vdev| vdev.devices.clone()).collect();
        let mut identities = BTreeSet::new();
        for path in &paths {
            // Before any is opened: the lock of the first would refuse the second as in use by ourselves.
            if let Some(identity) = devices::identity(path)
                && !identities.insert(identity)
            {
                let what = format!("the device {} is listed twice under two paths", path.display());
                return Err(Refusal::new(Code::VdevTwice, what).with("device", path.display()));
            }
        }
        let mut handles = Vec::new();
        for path in &paths {
            handles.push(
                devices::open(path, &OpenOptions::WRITE).map_err(|refusal| self.name_user(path, refusal))?,
            );
            if let Some(contents) = devices::contents(path).filter(|_| !force) {
                let what = format!("the device {} holds {contents}", path.display());
                return Err(Refusal::new(Code::VdevForeign, what).with("device", path.display()));
            }
        }
        Ok((paths, handles))
    }

    pub(super) fn add_devices(&self, caller: &Caller, request: &PoolAdd) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        let vdevs = anchors::slotted(&request.vdevs);
        let (paths, handles) = self.open_new(&vdevs, request.force)?;
        let Sorted { main, logs, spares, caches } = anchors::sorted(&vdevs, handles);
        let (groups, logs) =
            (anchors::groups(&request.vdevs, main), anchors::log_groups(&request.vdevs, logs));
        let [normal, special] =
            [GroupClass::Normal, GroupClass::Special].map(|class| anchors::groups_of(&held, class));
        anchors::check_alike(&request.vdevs, [&normal, &special], request.force)?;
        let anchor = self.anchor_of(&request.vdevs);
        // (E4) All that can be refused is refused before the first change.
        if !logs.is_empty() {
            held.pool.add_log_groups(logs.clone(), request.force, true).map_err(refuse::pool)?;
            held.pool.add_groups(groups.clone(), request.force, true).map_err(refuse::pool)?;
        }
        if !spares.is_empty() {
            held.pool.add_spares(spares.clone(), request.force, true).map_err(refuse::pool)?;
            held.pool.add_groups(groups.clone(), request.force, true).map_err(refuse::pool)?;
        }
        if !caches.is_empty() {
            held.pool.add_caches(caches.clone(), request.force, true).map_err(refuse::pool)?;
            held.pool.add_groups(groups.clone(), request.force, true).map_err(refuse::pool)?;
        }
        if anchor.path.is_some() {
            held.pool.add_anchor(&anchor, request.force, true).map_err(refuse::pool)?;
            held.pool.add_groups(groups.clone(), request.force, true).map_err(refuse::pool)?;
        }
        if !groups.is_empty() {
            held.pool.add_groups(groups, request.force, request.dry_run).map_err(refuse::pool)?;
        }
        if request.dry_run {
            return Ok(touched(&request.name));
        }
        if !logs.is_empty() {
            held.pool.add_log_groups(logs, request.force, false).map_err(refuse::pool)?;
        }
        if !spares.is_empty() {
            held.pool.add_spares(spares, request.force, false).map_err(refuse::pool)?;
        }
        if !caches.is_empty() {
            held.pool.add_caches(caches, request.force, false).map_err(refuse::pool)?;
        }
        if let Some(path) = &anchor.path {
            held.pool.add_anchor(&anchor, request.force, false).map_err(refuse::pool)?;
            self.post("vdev_add", &held.pool, &request.name, &[("vdev_path", path.clone())]);
        }
        for path in &paths {
            self.post("vdev_add", &held.pool, &request.name, &[("vdev_path", path.display().to_string())]);
        }
        held.note_devices(paths);
        self.log(&held, caller);
        let warnings = self.remember().err().into_iter().collect();
        Ok(Outcome { touched: vec![request.name.clone()], warnings })
    }

    /// The path under which a pool knows a device that was named as the pool or the operator knows it.
    pub(super) fn member(held: &Held, pool: &str, device: &Path) -> Result<String, Refusal> {
        let leaves = held.pool.state().leaves;
        Engine::among(leaves.iter().map(|leaf| leaf.config.path.as_str()), pool, device)
    }

    /// The same among those that hold segments, and log devices.
    pub(super) fn member_or_log(held: &Held, pool: &str, device: &Path) -> Result<String, Refusal> {
        let state = held.pool.state();
        let leaves = state.leaves.iter().map(|leaf| leaf.config.path.as_str());
        let logs = state.log_devices.iter().map(|log| log.path.as_str());
        Engine::among(leaves.chain(logs), pool, device)
    }

    /// The path, among these of devices of a pool, of a device that was named as the pool or the operator knows it.
    pub(super) fn among<'a>(
        paths: impl Iterator<Item = &'a str> + Clone,
        pool: &str,
        device: &Path,
    ) -> Result<String, Refusal> {
        let named = |path: &str| Path::new(path) == device;
        let same = |path: &str| {
            devices::identity(Path::new(path)).is_some_and(|id| devices::identity(device) == Some(id))
        };
        let found = paths.clone().find(|path| named(path)).or_else(|| paths.clone().find(|path| same(path)));
        found.map(str::to_owned).ok_or_else(|| Refusal::no_device(pool, device.display()))
    }

    pub(super) fn online(&self, caller: &Caller, request: &PoolOnline) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        let members = members_or_logs(&held, &request.name, &request.devices)?;
        let mut outcome = Outcome::default();
        for path in members {
            if held.pool.online(&path, &opener(&path)).map_err(refuse::pool)? {
                let fields = [("vdev_path", path.clone()), ("vdev_state", "ONLINE".to_owned())];
                self.post("statechange", &held.pool, &request.name, &fields);
                outcome.touched.push(path.clone());
            }
            // A log device is used as far as it counts whenever it is opened.
            let expands = request.expand && Engine::member(&held, &request.name, Path::new(&path)).is_ok();
            let gained = if expands { held.pool.expand(&path).map_err(refuse::pool)? } else { 0 };
            if gained > 0 {
                let fields = [("vdev_path", path.clone()), ("bytes", gained.to_string())];
                self.post("vdev_autoexpand", &held.pool, &request.name, &fields);
                outcome.touched.push(path);
            }
        }
        if !outcome.touched.is_empty() {
            self.log(&held, caller);
        }
        Ok(outcome)
    }

    pub(super) fn trim(&self, caller: &Caller, request: &PoolTrim) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        let members = members(&held, &request.name, &request.devices)?;
        let command = sweep(request.command, request.rate);
        held.pool.trim(&members, command).map_err(|error| refuse::pool(error).with("pool", &request.name))?;
        self.log(&held, caller);
        Ok(touched(&request.name))
    }

    pub(super) fn initialize(&self, caller: &Caller, request: &PoolInitialize) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        let members = members(&held, &request.name, &request.devices)?;
        let done = held.pool.initialize(&members, sweep(request.command, None));
        done.map_err(|error| refuse::pool(error).with("pool", &request.name))?;
        self.log(&held, caller);
        Ok(touched(&request.name))
    }

    /// Takes devices of groups out of use; those that stand alone hold what nobody else has.
    pub(super) fn offline(&self, caller: &Caller, request: &PoolOffline) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        for device in &request.devices {
            let path = Engine::member_or_log(&held, &request.name, device)?;
            let how =
                steadfast_pool::Offline { as_failed: request.as_failed, until_import: request.until_import };
            let done = held.pool.offline_as(&path, how);
            done.map_err(|error| refuse::pool(error).with("pool", &request.name))?;
            let word = if request.as_failed { "FAULTED" } else { "OFFLINE" };
            let fields = [("vdev_path", path), ("vdev_state", word.to_owned())];
            self.post("statechange", &held.pool, &request.name, &fields);
        }
        self.log(&held, caller);
        Ok(touched(&request.name))
    }

    pub(super) fn scrub(&self, caller: &Caller, request: &PoolScrub) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        let command = match request.command {
            ScrubCommand::Start => steadfast_pool::ScrubCommand::Start,
            ScrubCommand::Pause => steadfast_pool::ScrubCommand::Pause,
            ScrubCommand::Stop => steadfast_pool::ScrubCommand::Stop,
        };
        held.pool.scrub(command).map_err(refuse::pool)?;
        self.log(&held, caller);
        Ok(touched(&request.name))
    }

    /// Replaces a device by another, or by what lies under its own path now.
    pub(super) fn replace(&self, caller: &Caller, request: &PoolReplace) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        let old = Engine::member_or_log(&held, &request.name, &request.old)?;
        let new = request.new.clone().unwrap_or_else(|| PathBuf::from(&old));
        check_no_spare(&held, &request.name, &old, &new)?;
        if new == Path::new(&old) {
            // What lies there now is another device only if the old one is out of use.
            held.pool.let_go(&old).map_err(|error| refuse::pool(error).with("pool", &request.name))?;
        }
        let vdev = VdevSpec { class: VdevClass::Main, kind: VdevKind::Plain, devices: vec![new.clone()] };
        let (paths, mut handles) = self.open_new(&[vdev], request.force)?;
        let handle = handles.pop().expect("one was opened");
        held.pool
            .replace(&old, handle, request.force)
            .map_err(|error| refuse::pool(error).with("pool", &request.name))?;
        let fields = [("vdev_path", new.display().to_string()), ("old_path", old)];
        self.post("vdev_attach", &held.pool, &request.name, &fields);
        held.note_devices(paths);
        // A log device has gone by now.
        held.follow_devices();
        self.log(&held, caller);
        let warnings = self.remember().err().into_iter().collect();
        Ok(Outcome { touched: vec![request.name.clone()], warnings })
    }

    pub(super) fn clear(&self, caller: &Caller, request: &PoolClear) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        if let Some(reason) = held.pool.state().suspended {
            let what = format!("the pool is suspended, and only an import brings it back: {reason}");
            return Err(Refusal::new(Code::PoolSuspended, what).with("pool", &request.name));
        }
        let members = members_or_logs(&held, &request.name, &request.devices)?;
        self.harvest(&request.name, &held.pool);
        held.pool.clear_errors(&members);
        self.post("vdev_clear", &held.pool, &request.name, &[]);
        let mut outcome = touched(&request.name);
        let state = held.pool.state();
        let leaves = state.leaves.into_iter().filter(|leaf| leaf.config.state == LeafState::Faulted);
        let leaves = leaves.map(|leaf| (leaf.config.path, true));
        // A log device that was lost is asked for by its name.
        let logs = state.log_devices.into_iter().filter(|log| log.given_up);
        let logs = logs.map(|log| (log.path, log.sample.is_some()));
        for (path, is_here) in leaves.chain(logs) {
            if members.is_empty() && is_here || members.contains(&path) {
                // One that is really broken stays out of use, and is faulted again when it errs again.
                match held.pool.online(&path, &opener(&path)) {
                    Ok(_) => {
                        let fields = [("vdev_path", path.clone()), ("vdev_state", "ONLINE".to_owned())];
                        self.post("statechange", &held.pool, &request.name, &fields);
                    }
                    Err(error) => outcome.warnings.push(refuse::pool(error).with("pool", &request.name)),
                }
            }
        }
        self.log(&held, caller);
        Ok(outcome)
    }

    pub(super) fn clear_label(&self, request: &LabelClear) -> Result<Outcome, Refusal> {
        let path = &request.device;
        let handle = devices::open(path, &OpenOptions::WRITE).map_err(|error| self.name_user(path, error))?;
        let config = steadfast_pool::label_of(&*handle.device).map_err(refuse::pool)?;
        let state = match config.state {
            PoolState::Destroyed => None,
            PoolState::Active => Some("which is in use elsewhere, or was not exported"),
            PoolState::Exported => Some("which was exported"),
        };
        if let Some(state) = state.filter(|_| !request.force) {
            let what = format!("{} belongs to the pool '{}', {state}", path.display(), config.name);
            return Err(Refusal::new(Code::VdevForeign, what).with("device", path.display()));
        }
        steadfast_pool::erase(&*handle.device).map_err(refuse::pool)?;
        Ok(touched(&path.display().to_string()))
    }

    /// Lets pools use all features that this version knows, but those that are decided when a pool is made.
    pub(super) fn upgrade(&self, caller: &Caller, request: &PoolUpgrade) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        for (name, held) in self.select(&request.names)? {
            let missing = missing_features(&held);
            for feature in &missing {
                held.pool.enable_feature(feature).map_err(refuse::pool)?;
                self.post("feature_enable", &held.pool, &name, &[("feature", (*feature).to_owned())]);
                outcome.touched.push(format!("{name} {feature}"));
            }
            if !missing.is_empty() {
                self.log(&held, caller);
            }
        }
        Ok(outcome)
    }
}

/// The paths under which a pool knows devices that were named.
fn members(held: &Held, pool: &str, devices: &[PathBuf]) -> Result<Vec<String>, Refusal> {
    devices.iter().map(|device| Engine::member(held, pool, device)).collect()
}

/// The same of those that hold segments, and of log devices.
fn members_or_logs(held: &Held, pool: &str, devices: &[PathBuf]) -> Result<Vec<String>, Refusal> {
    devices.iter().map(|device| Engine::member_or_log(held, pool, device)).collect()
}

/// Spares wait for devices that hold segments, as in ZFS: a log device is replaced by another.
fn check_no_spare(held: &Held, pool: &str, old: &str, new: &Path) -> Result<(), Refusal> {
    let state = held.pool.state();
    let is_log = state.log_devices.iter().any(|log| log.path == old);
    let spares = state.spares.iter().map(|spare| spare.path.as_str());
    match is_log && Engine::among(spares, pool, new).is_ok() {
        true => {
            let what = "cannot replace a log with a spare";
            Err(Refusal::new(Code::VdevInUse, what).with("device", new.display()).with("pool", pool))
        }
        false => Ok(()),
    }
}

/// A command to a trim or an initialization, in the words of the room `pool`.
fn sweep(command: TrimCommand, rate: Option<u64>) -> steadfast_pool::TrimCommand {
    match command {
        TrimCommand::Start => steadfast_pool::TrimCommand::Start { rate },
        TrimCommand::Suspend => steadfast_pool::TrimCommand::Suspend,
        TrimCommand::Cancel => steadfast_pool::TrimCommand::Cancel,
        TrimCommand::Forget => steadfast_pool::TrimCommand::Forget,
    }
}

/// Opens what lies under a path.
fn opener(path: &str) -> impl Fn() -> steadfast_pool::Result<Arc<dyn Device>> {
    move || Ok(Arc::new(FileDevice::open(Path::new(path), &OpenOptions::WRITE)?) as Arc<dyn Device>)
}

/// Features that an imported pool could be given.
fn missing_features(held: &Arc<Held>) -> Vec<&'static str> {
    let used = held.pool.features();
    let can = |name: &&str| {
        !Feature::STRUCTURAL.contains(name) && !used.iter().any(|feature| feature.name == *name)
    };
    Feature::KNOWN.iter().map(|(name, ..)| *name).filter(can).collect()
}

/// State of each feature that this version or the pool knows, as `zpool get feature@...` prints it.
pub(super) fn feature_states(held: &Held) -> Vec<(String, &'static str)> {
    let used = held.pool.features();
    let state = held.pool.state();
    let encrypted = || {
        let names = held.pool.datasets();
        names.iter().any(|name| held.pool.dataset_info(name).is_ok_and(|info| info.encryption_root.is_some()))
    };
    let mut names: Vec<String> = Feature::KNOWN.iter().map(|(name, ..)| (*name).to_owned()).collect();
    names.extend(used.iter().filter(|feature| !feature.is_known()).map(|feature| feature.name.clone()));
    let state_of = |name: &str| {
        let active = match name {
            "encryption" => encrypted(),
            "relocation" => state.accounting.relocations > 0,
            // Whether a block or row makes use of it is not counted: from the moment it is enabled one may.
            _ => true,
        };
        match (used.iter().any(|feature| feature.name == name), active) {
            (false, _) => "disabled",
            (true, false) => "enabled",
            (true, true) => "active",
        }
    };
    names.into_iter().map(|name| (format!("feature@{name}"), name)).map(|(p, n)| (p, state_of(&n))).collect()
}
