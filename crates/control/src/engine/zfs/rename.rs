//! `zfs rename` of file systems, and of snapshots.

use crate::api::{FsRename, FsSnapshotRename, Outcome};
use crate::caller::Caller;
use crate::check::name_refusal;
use crate::engine::mountpoints::unmake;
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool, touched};
use crate::engine::verb::Verb;
use crate::engine::zfs::names::{halves, is_at_or_below};
use crate::engine::zfs::parents::{give, with_parents};
use crate::refusal::{Code, Refusal};
use steadfast_property::{check_dataset_name, check_snapshot_name};

impl Verb for FsRename {
    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)?;
        check_dataset_name(&self.to).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let (name, to) = (self.name.as_str(), self.to.as_str());
        let held = engine.held(name)?;
        held.pool.datasets().dataset_info(name).map_err(refuse::pool)?;
        let place = |what: String| Err(Refusal::new(Code::FsPlace, what).with("fs", name));
        let pool = name.split('/').next().unwrap_or(name);
        if !name.contains('/') || !to.contains('/') {
            return place(format!(
                "the root file system has the name of its pool; to rename the pool, run \
                 `zpool export {pool}` and `zpool import {pool} NEWNAME`"
            ));
        }
        if to.split('/').next() != Some(pool) {
            return place(format!("'{to}' is not in the pool of '{name}'"));
        }
        if held.pool.is_read_only() {
            let what = "the pool is imported read-only";
            return Err(Refusal::new(Code::PoolReadonly, what).with("pool", pool));
        }
        let all = held.pool.datasets().names();
        let missing: Vec<String> = to
            .match_indices('/')
            .map(|(at, _)| to[..at].to_owned())
            .filter(|parent| !all.contains(parent))
            .collect();
        if let Some(parent) = missing.first().filter(|_| !self.parents) {
            let what = format!("the parent '{parent}' does not exist");
            return Err(Refusal::new(Code::FsParent, what).with("parent", parent));
        }
        if missing.iter().any(|parent| *parent == name || parent.starts_with(&format!("{name}/"))) {
            return place(format!("'{to}' is below '{name}' itself"));
        }
        check_lengths(&held, name, to)?;
        let mounted = match self.no_remount {
            true => Vec::new(),
            false => engine.leave(&held, &[name.to_owned()], self.force)?,
        };
        let places = engine.given_places(&held, &mounted)?;
        let moved = with_parents(&held, &missing, || held.pool.datasets().rename_dataset(name, to));
        let renamed = |old: &str| match old.strip_prefix(name) {
            Some(tail) if moved.is_ok() => format!("{to}{tail}"),
            _ => old.to_owned(),
        };
        let mut warnings: Vec<Refusal> =
            missing.iter().filter_map(|parent| give(&held, parent, caller).err()).collect();
        // Only the parents: renamed file systems are mounted below only if they were before.
        let there = held.pool.datasets().names();
        let parents = missing.into_iter().filter(|parent| there.contains(parent));
        warnings.extend(engine.mount_these(&held, parents, Vec::new()));
        if self.no_remount && moved.is_ok() {
            held.rename_mounts(name, to);
        }
        let mut remounted = Vec::new();
        for mut placed in mounted {
            placed.name = renamed(&placed.name);
            let name = placed.name.clone();
            match engine.mount_again(&held, placed) {
                Ok(true) => remounted.push(name),
                Ok(false) => {}
                Err(refusal) => warnings.push(refusal),
            }
        }
        moved.map_err(refuse::pool)?;
        // As in ZFS: empty folders of the old names go.
        places.iter().rev().for_each(|place| unmake(std::slice::from_ref(place)));
        engine.log(&held, caller);
        Ok(Outcome { touched: remounted, warnings })
    }
}

/// Refuses a new name with which one at or below it, or a snapshot of one, would be too long.
fn check_lengths(held: &ImportedPool, name: &str, to: &str) -> Result<(), Refusal> {
    if to.len() <= name.len() {
        return Ok(());
    }
    for old in held.pool.datasets().names().iter().filter(|old| is_at_or_below(old, name)) {
        let new = format!("{to}{}", &old[name.len()..]);
        check_dataset_name(&new).map_err(name_refusal)?;
        for snapshot in held.pool.datasets().snapshot_names(old).map_err(refuse::pool)? {
            check_snapshot_name(&format!("{new}@{snapshot}")).map_err(name_refusal)?;
        }
    }
    Ok(())
}

impl Verb for FsSnapshotRename {
    fn check(&mut self) -> Result<(), Refusal> {
        check_snapshot_name(&self.name).map_err(name_refusal)?;
        let fs = self.name.split('@').next().unwrap_or_default();
        check_snapshot_name(&format!("{fs}@{}", self.to)).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let (fs, _) = halves(&self.name)?;
        let held = engine.held(fs)?;
        engine.check_writable(&held)?;
        let names = engine.in_tree(&self.name, self.recursive)?;
        for old in &names {
            check_snapshot_name(&format!("{}@{}", halves(old)?.0, self.to)).map_err(name_refusal)?;
        }
        held.pool.datasets().rename_snapshots(&names, &self.to).map_err(refuse::pool)?;
        held.note_snapshots([fs]);
        engine.log(&held, caller);
        Ok(touched(&format!("{fs}@{}", self.to)))
    }
}
