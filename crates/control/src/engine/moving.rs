//! Verbs that move devices and what lies on them: attach, detach, remove, rebalance, resilver.

use super::{Engine, Held, devices, pools, refuse, report, touched};
use crate::api::{
    Caller, Outcome, PoolAttach, PoolDetach, PoolRebalance, PoolReguid, PoolRemove, PoolResilver, PoolSplit,
    ScrubCommand, VdevClass, VdevKind, VdevSpec,
};
use crate::refusal::{Code, Refusal};
use std::path::{Path, PathBuf};
use steadfast_pool::{Error, ImportSpec, Pool, PoolStatus};

impl Engine {
    pub(super) fn attach(&self, caller: &Caller, request: &PoolAttach) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        let state = held.pool.state();
        let named = group_named(&state, &request.device).or_else(|| log_named(&state, &request.device));
        let beside = match named {
            Some(path) => path,
            None => Engine::member_or_log(&held, &request.name, &request.device)?,
        };
        if Engine::member_or_log(&held, &request.name, &request.new).is_ok() {
            let what = format!("{} is a device of '{}' already", request.new.display(), request.name);
            return Err(Refusal::new(Code::VdevTwice, what).with("device", request.new.display()));
        }
        let devices = vec![request.new.clone()];
        let vdev = VdevSpec { class: VdevClass::Main, kind: VdevKind::Plain, devices };
        let (paths, mut handles) = self.open_new(&[vdev], request.force)?;
        let handle = handles.pop().expect("one was opened");
        held.pool.attach(&beside, handle, request.force).map_err(|error| with_pool(error, &request.name))?;
        let fields = [("vdev_path", request.new.display().to_string()), ("beside", beside)];
        self.post("vdev_attach", &held.pool, &request.name, &fields);
        held.note_devices(paths);
        self.log(&held, caller);
        let warnings = self.remember().err().into_iter().collect();
        Ok(Outcome { touched: vec![request.name.clone()], warnings })
    }

    pub(super) fn detach(&self, caller: &Caller, request: &PoolDetach) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        let path = Engine::member_or_log(&held, &request.name, &request.device)?;
        held.pool.detach(&path).map_err(|error| with_pool(error, &request.name))?;
        let state = held.pool.state();
        let is_log = state.log_devices.iter().any(|log| log.path == path);
        if !is_log && !state.leaves.iter().any(|leaf| leaf.config.path == path) {
            held.devices.write().retain(|device| device != Path::new(&path));
        }
        self.log(&held, caller);
        let warnings = self.remember().err().into_iter().collect();
        Ok(Outcome { touched: vec![request.name.clone()], warnings })
    }

    /// Groups and single devices among what is to be removed: a device of each. What remains are anchors and logs.
    pub(super) fn groups_to_remove(
        held: &Held,
        request: &PoolRemove,
    ) -> Result<(Vec<String>, Vec<std::path::PathBuf>), Refusal> {
        let state = held.pool.state();
        let (mut groups, mut others) = (Vec::new(), Vec::new());
        for device in &request.devices {
            if let Some(path) = group_named(&state, device) {
                groups.push(path);
                continue;
            }
            let Ok(path) = Engine::member(held, &request.name, device) else {
                others.push(device.clone());
                continue;
            };
            if state.spares.iter().any(|spare| spare.path == path) {
                others.push(device.clone());
                continue;
            }
            let leaf = state.leaves.iter().find(|leaf| leaf.config.path == path);
            let group = leaf.map_or(0, |leaf| leaf.config.group);
            let members = state.leaves.iter().filter(|leaf| leaf.config.group == group).count();
            if group != 0 && members > 1 {
                let what = format!(
                    "{path} is a part of {}, which can only be removed whole",
                    report::group_name(&state, group)
                );
                return Err(Refusal::new(Code::VdevMember, what)
                    .with("device", path)
                    .with("pool", &request.name)
                    .with("group", report::group_name(&state, group)));
            }
            groups.push(path);
        }
        let twice = groups.iter().enumerate().find(|(at, path)| groups[..*at].contains(path));
        if let Some((_, path)) = twice {
            let what = format!("{path}, or its group, is named twice");
            return Err(Refusal::new(Code::VdevTwice, what).with("device", path));
        }
        Ok((groups, others))
    }

    /// Begins to remove groups, or ends that.
    pub(super) fn remove_groups(
        &self,
        caller: &Caller,
        held: &Held,
        request: &PoolRemove,
        groups: &[String],
    ) -> Result<(), Refusal> {
        let done = match request.cancel {
            true => held.pool.cancel_remove(),
            false => held.pool.remove(groups, request.dry_run),
        };
        done.map_err(|error| with_pool(error, &request.name))?;
        if !request.dry_run {
            self.log(held, caller);
        }
        Ok(())
    }

    pub(super) fn split(&self, caller: &Caller, request: &PoolSplit) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        if self.pools.read().contains_key(&request.new_name) {
            let what = format!("a pool named '{}' is imported already", request.new_name);
            return Err(Refusal::new(Code::PoolExists, what).with("pool", &request.new_name));
        }
        let devices = request.devices.iter().map(|device| Engine::member(&held, &request.name, device));
        let devices = devices.collect::<Result<Vec<_>, Refusal>>()?;
        let parted = held.pool.split(&request.new_name, &devices, request.dry_run);
        let parted = parted.map_err(|error| with_pool(error, &request.name))?;
        if request.dry_run {
            return Ok(Outcome { touched: parted, warnings: Vec::new() });
        }
        held.devices.write().retain(|path| !parted.iter().any(|parted| path == Path::new(parted)));
        let fields = [("new_pool", request.new_name.clone()), ("vdev_path", parted.join(","))];
        self.post("pool_split", &held.pool, &request.name, &fields);
        self.log(&held, caller);
        let mut warnings: Vec<Refusal> = self.remember().err().into_iter().collect();
        if !request.properties.is_empty() {
            warnings.extend(self.give_properties(request, &parted).err());
        }
        Ok(Outcome { touched: parted, warnings })
    }

    /// Gives the new pool of a split its properties. It is exported before and after.
    fn give_properties(&self, request: &PoolSplit, parted: &[String]) -> Result<(), Refusal> {
        let paths: Vec<PathBuf> = parted.iter().map(PathBuf::from).collect();
        let mut pools = devices::search(&paths)?.pools.into_iter();
        let found = pools.find(|pool| pool.config.name == request.new_name).ok_or_else(|| {
            Refusal::new(Code::PoolDamaged, "no device says that it is the new pool's")
                .with("device", &parted[0])
        })?;
        let spec = ImportSpec {
            new_name: None,
            force: false,
            destroyed: false,
            read_only: false,
            secret: None,
            anchor: self.anchor_wish(None),
            accept_lost_log: false,
            host: self.host.clone(),
            memory: self.memory,
        };
        let pool = Pool::import(&self.env, devices::reopen(&found, false)?, &spec)
            .map_err(|error| with_pool(error, &request.new_name))?;
        let mut properties = request.properties.iter();
        let set = properties.try_for_each(|(name, value)| pools::set_property(&pool, name, value));
        pool.export().map_err(|error| with_pool(error, &request.new_name))?;
        set
    }

    pub(super) fn rebalance(&self, caller: &Caller, request: &PoolRebalance) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        let command = match request.command {
            ScrubCommand::Start => steadfast_pool::ScrubCommand::Start,
            ScrubCommand::Pause => steadfast_pool::ScrubCommand::Pause,
            ScrubCommand::Stop => steadfast_pool::ScrubCommand::Stop,
        };
        held.pool.rebalance(command).map_err(|error| with_pool(error, &request.name))?;
        self.log(&held, caller);
        Ok(touched(&request.name))
    }

    pub(super) fn reguid(&self, caller: &Caller, request: &PoolReguid) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        held.pool.reguid().map_err(|error| with_pool(error, &request.name))?;
        self.post("pool_reguid", &held.pool, &request.name, &[]);
        self.log(&held, caller);
        let warnings = self.remember().err().into_iter().collect();
        Ok(Outcome { touched: vec![request.name.clone()], warnings })
    }

    pub(super) fn resilver(&self, caller: &Caller, request: &PoolResilver) -> Result<Outcome, Refusal> {
        let held = self.held_pool(&request.name)?;
        held.pool.resilver().map_err(|error| with_pool(error, &request.name))?;
        self.log(&held, caller);
        Ok(touched(&request.name))
    }
}

fn with_pool(error: Error, pool: &str) -> Refusal {
    refuse::pool(error).with("pool", pool)
}

/// A device of the mirror of log devices that has this name in status.
fn log_named(state: &PoolStatus, device: &Path) -> Option<String> {
    let word = device.file_name()?.to_str()?;
    report::log_mirrors(state).get(word).map(|sides| sides[0].path.clone())
}

/// A device of the group that has this name in status.
fn group_named(state: &PoolStatus, device: &Path) -> Option<String> {
    let word = device.file_name()?.to_str()?;
    let grouped = state.leaves.iter().filter(|leaf| leaf.config.group != 0);
    let mut named = grouped.filter(|leaf| report::group_name(state, leaf.config.group) == word);
    named.next().map(|leaf| leaf.config.path.clone())
}
