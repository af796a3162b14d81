//! `zfs inherit`: removes a local value, or reverts to the received one.

use crate::api::{FsInherit, Outcome};
use crate::caller::Caller;
use crate::check::{inheritable, name_refusal, only_user_properties};
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::engine::zfs::names::halves;
use crate::refusal::Refusal;
use steadfast_property::{check_dataset_name, check_snapshot_name, is_user_property};

impl Verb for FsInherit {
    fn check(&mut self) -> Result<(), Refusal> {
        if self.name.contains('@') {
            check_snapshot_name(&self.name).map_err(name_refusal)?;
            return only_user_properties([&self.property]);
        }
        check_dataset_name(&self.name).map_err(name_refusal)?;
        self.property = inheritable(&self.property, self.received)?;
        Ok(())
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        if self.name.contains('@') {
            return match self.received {
                true => revert_snapshots(engine, caller, &self),
                false => {
                    let edits = vec![(self.property, None)];
                    engine.change_snapshots(caller, &self.name, self.recursive, edits)
                }
            };
        }
        inherit(engine, caller, &self)
    }
}

fn inherit(engine: &Engine, caller: &Caller, request: &FsInherit) -> Result<Outcome, Refusal> {
    let held = engine.held(&request.name)?;
    let change = |name: &str| match request.received {
        true => revert(engine, caller, &held, name, &request.property),
        false => engine.change_fs(caller, name, vec![(request.property.clone(), None)], false),
    };
    let mut outcome = change(&request.name)?;
    if !request.recursive {
        return Ok(outcome);
    }
    let below = format!("{}/", request.name);
    let all: Vec<String> =
        held.pool.datasets().names().into_iter().filter(|n| n.starts_with(&below)).collect();
    for name in &all {
        let more = change(name)?;
        outcome.touched.extend(more.touched);
        outcome.warnings.extend(more.warnings);
    }
    // Their snapshots too, which have no other properties that could be set.
    let mut snapshots = Vec::new();
    for name in all.iter().chain([&request.name]).filter(|_| is_user_property(&request.property)) {
        snapshots.extend(held.pool.datasets().snapshots_with(name, &request.property).map_err(refuse::pool)?);
    }
    if !snapshots.is_empty() {
        let edits = [(request.property.as_str(), None)];
        match request.received {
            true => held.pool.datasets().revert_snapshot_property(&snapshots, &request.property),
            false => held.pool.datasets().set_snapshot_properties(&snapshots, &edits),
        }
        .map_err(refuse::pool)?;
        outcome.touched.extend(snapshots);
    }
    Ok(outcome)
}

/// Reverts a property to its received value.
fn revert(
    engine: &Engine,
    caller: &Caller,
    held: &ImportedPool,
    name: &str,
    property: &str,
) -> Result<Outcome, Refusal> {
    let value = held.pool.datasets().received_props(name).map_err(refuse::pool)?.remove(property);
    let edits = vec![(property.to_owned(), value)];
    engine.change_with(caller, name, edits, false, &|_| held.pool.datasets().revert_property(name, property))
}

/// The same for a snapshot, or for all snapshots of its name in a tree.
fn revert_snapshots(engine: &Engine, caller: &Caller, request: &FsInherit) -> Result<Outcome, Refusal> {
    let held = engine.held(halves(&request.name)?.0)?;
    engine.check_writable(&held)?;
    let touched = engine.in_tree(&request.name, request.recursive)?;
    held.pool.datasets().revert_snapshot_property(&touched, &request.property).map_err(refuse::pool)?;
    engine.log(&held, caller);
    let (dataset, property) = (request.name.clone(), request.property.clone());
    let fields = [("dataset", dataset), ("property", property), ("value", "(received)".to_owned())];
    engine.post("property_change", &held.pool, &held.pool.name(), &fields);
    Ok(Outcome { touched, warnings: Vec::new() })
}
