//! `zpool remove`: groups and single devices, log, spare, cache and parity devices, the anchor.

use crate::api::{Outcome, PoolRemove};
use crate::caller::Caller;
use crate::check::check_paths;
use crate::engine::members::group_named;
use crate::engine::refuse;
use crate::engine::reports::groups::{group_name, log_mirror_of, log_mirrors};
use crate::engine::state::{Engine, ImportedPool, touched};
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};
use std::path::{Path, PathBuf};
use steadfast_device::Medium;

impl Verb for PoolRemove {
    fn check(&mut self) -> Result<(), Refusal> {
        check_paths(&self.devices)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let name = &self.name;
        let held = engine.held_pool(name)?;
        held.refuse_recovering()?;
        let (groups, others) = groups_to_remove(&held, &self)?;
        let named = |device: &PathBuf| removable_named(&held, name, device);
        let targets: Vec<Removable> = others.iter().map(named).collect::<Result<_, Refusal>>()?;
        if let Some((at, twice)) =
            targets.iter().enumerate().find(|(at, target)| targets[..*at].contains(target))
        {
            let what = format!("{} is listed twice", twice.paths().join(", "));
            return Err(Refusal::new(Code::VdevTwice, what).with("device", others[at].display()));
        }
        if self.cancel || !groups.is_empty() {
            remove_groups(engine, caller, &held, &self, &groups)?;
            if targets.is_empty() {
                return Ok(touched(name));
            }
        }
        if self.dry_run {
            return Ok(touched(name));
        }
        let mut left = Vec::new();
        for target in &targets {
            match target {
                Removable::Anchor(path) => held.pool.remove_anchor(path),
                // Any side stands for the whole mirror.
                Removable::Log(paths) => held.pool.zil().remove_log(&paths[0]),
                Removable::Spare(path) => held.pool.devices().remove_spare(path),
                Removable::Cache(path) => held.pool.devices().remove_cache(path),
                Removable::Parity(path) => {
                    let registers = engine.anchor_wish(None).registers.expect("those of this host");
                    // One that is in use holds its file, and is not asked.
                    let is_out = held.pool.state().parity.is_some_and(|parity| parity.trouble.is_some());
                    let medium = is_out.then(|| registers.parity(path));
                    let stores = |address: &str| registers.tiles(address);
                    let removed = held.pool.devices().remove_parity_with(path, medium, &stores);
                    removed.map(|tiles| left.extend(tiles))
                }
            }
            .map_err(refuse::pool)?;
            for gone in target.paths() {
                held.devices.write().retain(|path| path != Path::new(gone));
                engine.post("vdev_remove", &held.pool, name, &[("vdev_path", gone.clone())]);
            }
        }
        engine.log(&held, caller);
        let left = left.into_iter().map(|tiles| tiles_left(tiles.place.as_deref(), &tiles.reason));
        let warnings = engine.remember().err().into_iter().chain(left).collect();
        Ok(Outcome { touched: vec![name.clone()], warnings })
    }
}

/// Tells that tiles of a parity device stay in a folder of their store, or may.
pub(in crate::engine) fn tiles_left(place: Option<&str>, why: &str) -> Refusal {
    match place {
        Some(place) => {
            let what = format!("the tiles of the parity device stay at {place}: {why}");
            Refusal::new(Code::TilesLeft, what).with("store", place)
        }
        None => {
            let what = format!("if tiles of the parity device lie at a store, they stay there: {why}");
            Refusal::new(Code::TilesLeft, what).with("store", "ADDRESS/parity/FOLDER")
        }
    }
}

/// An anchor, log, spare, cache or parity device, by its path in the pool.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Removable {
    Anchor(String),
    /// All of a mirror, or one that stands alone.
    Log(Vec<String>),
    Spare(String),
    Cache(String),
    Parity(String),
}

impl Removable {
    fn paths(&self) -> &[String] {
        match self {
            Removable::Log(paths) => paths,
            Removable::Anchor(path)
            | Removable::Spare(path)
            | Removable::Cache(path)
            | Removable::Parity(path) => std::slice::from_ref(path),
        }
    }
}

/// The anchor, log device, log mirror, spare, cache or parity device of this name.
fn removable_named(held: &ImportedPool, pool: &str, device: &Path) -> Result<Removable, Refusal> {
    let state = held.pool.state();
    let same = |path: &str| {
        Path::new(path) == device
            || Medium::of(Path::new(path)).is_some_and(|medium| Medium::of(device) == Some(medium))
    };
    let word = device.file_name().and_then(|word| word.to_str());
    if let Some(sides) = word.and_then(|word| log_mirrors(&state).remove(word)) {
        return Ok(Removable::Log(sides.iter().map(|log| log.path.clone()).collect()));
    }
    if let Some(log) = state.log_devices.iter().find(|log| same(&log.path)) {
        if let Some(name) = log_mirror_of(log) {
            let what = format!("{} is a member of {name}; only the whole group can be removed", log.path);
            return Err(Refusal::new(Code::VdevMember, what)
                .with("device", &log.path)
                .with("pool", pool)
                .with("group", name));
        }
        return Ok(Removable::Log(vec![log.path.clone()]));
    }
    if let Some(anchor) = state.anchor.filter(|anchor| same(&anchor.register)) {
        return Ok(Removable::Anchor(anchor.register));
    }
    if let Some(spare) = state.spares.into_iter().find(|spare| same(&spare.path)) {
        return Ok(Removable::Spare(spare.path));
    }
    if let Some(cache) = state.caches.into_iter().find(|cache| same(&cache.path)) {
        return Ok(Removable::Cache(cache.path));
    }
    if let Some(parity) = state.parity.filter(|parity| same(&parity.path)) {
        return Ok(Removable::Parity(parity.path));
    }
    Err(Refusal::no_device(pool, device.display()))
}

/// Splits the named devices: a device of each group to remove; and the others, which are anchors,
/// log, spare and cache devices.
pub(in crate::engine) fn groups_to_remove(
    held: &ImportedPool,
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
                "{path} is a member of {}; only the whole group can be removed",
                group_name(&state, group)
            );
            return Err(Refusal::new(Code::VdevMember, what)
                .with("device", path)
                .with("pool", &request.name)
                .with("group", group_name(&state, group)));
        }
        groups.push(path);
    }
    let twice = groups.iter().enumerate().find(|(at, path)| groups[..*at].contains(path));
    if let Some((_, path)) = twice {
        let what = format!("{path}, or its group, is listed twice");
        return Err(Refusal::new(Code::VdevTwice, what).with("device", path));
    }
    Ok((groups, others))
}

/// Starts the removal of groups, or cancels it.
pub(in crate::engine) fn remove_groups(
    engine: &Engine,
    caller: &Caller,
    held: &ImportedPool,
    request: &PoolRemove,
    groups: &[String],
) -> Result<(), Refusal> {
    let done = match request.cancel {
        true => held.pool.devices().cancel_remove(),
        false => held.pool.devices().remove_groups(groups, request.dry_run),
    };
    done.map_err(|error| refuse::of_pool(error, &request.name))?;
    if !request.dry_run {
        engine.log(held, caller);
    }
    Ok(())
}
