//! `zfs destroy` of file systems, and of snapshots.

use crate::api::{FsDestroy, FsSnapshotDestroy, Outcome, Reclaimed};
use crate::caller::Caller;
use crate::check::name_refusal;
use crate::engine::mountpoints::unmake;
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use steadfast_property::{check_dataset_name, check_snapshot_name};

impl Verb for FsDestroy {
    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let name = self.name.as_str();
        let held = engine.held(name)?;
        held.pool.datasets().dataset_info(name).map_err(refuse::pool)?;
        let is_root = !name.contains('/');
        if is_root && !self.recursive {
            let what = format!("'{name}' is the root file system of the pool");
            return Err(Refusal::new(Code::FsRoot, what).with("pool", name));
        }
        let below = format!("{name}/");
        let children: Vec<String> =
            held.pool.datasets().names().into_iter().filter(|n| n.starts_with(&below)).rev().collect();
        if !children.is_empty() && !self.recursive {
            let children = children.join(", ");
            let what = format!("'{name}' has children: {children}");
            return Err(Refusal::new(Code::FsChildren, what).with("fs", name));
        }
        // The root file system stays, and all below it and its snapshots go, as in ZFS.
        let is_child = |child: &&String| child.matches('/').count() == 1;
        let named = match is_root {
            true => children.iter().filter(is_child).cloned().collect(),
            false => vec![name.to_owned()],
        };
        let doomed = engine.with_dependents(&held, named, self.clones);
        let mut gone: Vec<String> = Vec::new();
        for name in doomed.as_deref().unwrap_or(&[name.to_owned()]) {
            let snapshots = held.pool.datasets().snapshot_names(name).map_err(refuse::pool)?;
            let snapshots: Vec<String> =
                snapshots.iter().map(|snapshot| format!("{name}@{snapshot}")).collect();
            if !snapshots.is_empty() && !self.recursive {
                let list = snapshots.join(", ");
                let what = format!("'{name}' has snapshots: {list}");
                return Err(Refusal::new(Code::FsSnapshots, what).with("fs", name).with("snapshots", list));
            }
            gone.extend(snapshots);
            gone.push(name.clone());
        }
        let doomed = doomed?;
        let own: Vec<String> = match is_root {
            true => held.pool.datasets().snapshot_names(name).map_err(refuse::pool)?,
            false => Vec::new(),
        };
        let own: Vec<String> = own.iter().map(|snapshot| format!("{name}@{snapshot}")).collect();
        gone.extend(own.iter().cloned());
        if self.dry_run {
            return Ok(Outcome { touched: gone, warnings: Vec::new() });
        }
        engine.check_writable(&held)?;
        held.pool.datasets().check_destroy_snapshots(&own, false).map_err(refuse::pool)?;
        engine.destroy_in_order(&held, &doomed, self.force)?;
        held.pool.datasets().destroy_snapshots(&own, false).map_err(refuse::pool)?;
        held.note_snapshots([name]);
        engine.log(&held, caller);
        Ok(Outcome { touched: gone, warnings: Vec::new() })
    }
}

impl Verb for FsSnapshotDestroy {
    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)?;
        // As in ZFS, names of no snapshot are passed over beside others, as those that are absent.
        let mut refusal = None;
        for part in self.snapshots.split(',').filter(|part| !part.is_empty()) {
            let names = part.split('%').filter(|name| !name.is_empty());
            match names.map(|name| check_snapshot_name(&format!("p@{name}"))).find_map(Result::err) {
                None => return Ok(()),
                Some(error) => refusal = refusal.or(Some(name_refusal(error))),
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Reclaimed, Refusal> {
        let name = self.name.as_str();
        let held = engine.held(name)?;
        held.pool.datasets().dataset_info(name).map_err(refuse::pool)?;
        let below = format!("{name}/");
        let all = held.pool.datasets().names();
        let mut doomed = Vec::new();
        for dataset in all.iter().filter(|n| *n == name || self.recursive && n.starts_with(&below)) {
            let there = held.pool.datasets().snapshot_names(dataset).map_err(refuse::pool)?;
            doomed.extend(chosen(&self.snapshots, &there).into_iter().map(|s| format!("{dataset}@{s}")));
        }
        if doomed.is_empty() {
            let what = format!("there is no snapshot '{name}@{}'", self.snapshots);
            return Err(Refusal::new(Code::SnapshotAbsent, what).with("fs", name));
        }
        let clones = match (self.clones, self.defer) {
            (true, _) => engine.clones_of(&held, &doomed)?,
            (false, true) => Vec::new(),
            (false, false) => {
                check_cloneless(&held, &doomed)?;
                Vec::new()
            }
        };
        let mut bytes = held.pool.datasets().reclaimable(&doomed).map_err(refuse::pool)?;
        for clone in &clones {
            let info = held.pool.datasets().dataset_info(clone).map_err(refuse::pool)?;
            bytes += info.used_by_dataset + info.used_by_snapshots;
        }
        if !self.dry_run {
            engine.check_writable(&held)?;
            held.pool.datasets().check_destroy_snapshots(&doomed, self.defer).map_err(refuse::pool)?;
            engine.destroy_in_order(&held, &clones, self.force)?;
            // Some are gone already: with their last clone, or with a destroyed clone that they
            // belonged to.
            let left = held.those_there(&doomed);
            held.pool.datasets().destroy_snapshots(&left, self.defer).map_err(refuse::pool)?;
            held.note_snapshots([name]);
            engine.log(&held, caller);
        }
        Ok(Reclaimed { touched: clones.into_iter().chain(doomed).collect(), bytes })
    }
}

impl Engine {
    /// These file systems with all that depends on them, in an order in which they can be
    /// destroyed: children before parents, clones before their origins. Clones elsewhere are
    /// refused unless `clones`.
    pub(in crate::engine) fn with_dependents(
        &self,
        held: &ImportedPool,
        names: Vec<String>,
        clones: bool,
    ) -> Result<Vec<String>, Refusal> {
        let all = held.pool.datasets().names();
        let mut doomed: BTreeSet<String> = BTreeSet::new();
        let mut needs: Vec<(String, String)> = Vec::new();
        let mut open = names;
        while let Some(name) = open.pop() {
            if !doomed.insert(name.clone()) {
                continue;
            }
            let below = format!("{name}/");
            for child in all.iter().filter(|child| child.starts_with(&below)) {
                needs.push((name.clone(), child.clone()));
                open.push(child.clone());
            }
            let snapshots = held.pool.datasets().snapshot_names(&name).map_err(refuse::pool)?;
            let full: Vec<String> = snapshots.iter().map(|snapshot| format!("{name}@{snapshot}")).collect();
            let found = held.pool.datasets().clones(&full).map_err(refuse::pool)?;
            for clone in found.into_iter().flat_map(|(_, clones)| clones) {
                needs.push((name.clone(), clone.clone()));
                open.extend(Some(clone).filter(|_| clones));
            }
        }
        let mut ordered: Vec<String> = Vec::new();
        while !doomed.is_empty() {
            let waits =
                |name: &String| needs.iter().find(|(of, other)| of == name && !ordered.contains(other));
            let Some(next) = doomed.iter().rev().find(|name| waits(name).is_none()).cloned() else {
                // One depends on a clone that stays.
                let elsewhere = |(of, other): &&(String, String)| {
                    doomed.contains(of) && !doomed.contains(other) && !ordered.contains(other)
                };
                let (of, clone) = needs.iter().find(elsewhere).cloned().unwrap_or_default();
                let what = format!("'{clone}' is a clone of a snapshot of '{of}'");
                return Err(Refusal::new(Code::SnapshotClones, what).with("fs", of).with("clone", clone));
            };
            doomed.remove(&next);
            ordered.push(next);
        }
        check_keys(held, &ordered)?;
        Ok(ordered)
    }

    /// Clones of snapshots, with all that depends on them, in an order in which they can be
    /// destroyed.
    pub(in crate::engine) fn clones_of(
        &self,
        held: &ImportedPool,
        snapshots: &[String],
    ) -> Result<Vec<String>, Refusal> {
        let found = held.pool.datasets().clones(snapshots).map_err(refuse::pool)?;
        self.with_dependents(held, found.into_iter().flat_map(|(_, clones)| clones).collect(), true)
    }

    /// Unmounts and destroys file systems, all or none, their snapshots with them. Their
    /// mountpoints go too, unless somebody keeps something there.
    pub(in crate::engine) fn destroy_in_order(
        &self,
        held: &Arc<ImportedPool>,
        names: &[String],
        force: bool,
    ) -> Result<(), Refusal> {
        // All or none: refusals come before the first one is destroyed.
        held.pool.datasets().check_destroy_all(names).map_err(refuse::pool)?;
        let places = held.places_of(names);
        for name in names {
            self.part_clients(held, name, force)?;
        }
        let left = self.leave(held, names, force)?;
        let destroyed = self.destroy_left(held, names, &places);
        if destroyed.is_err() {
            // Those that still exist.
            let _ = self.mount_placed(held, left);
        }
        destroyed
    }

    /// Destroys unmounted file systems, all or none, and removes their empty mountpoints.
    pub(in crate::engine) fn destroy_left(
        &self,
        held: &ImportedPool,
        names: &[String],
        places: &[PathBuf],
    ) -> Result<(), Refusal> {
        let origin = |name: &String| held.pool.datasets().dataset_info(name).ok()?.origin;
        let origins: Vec<String> = names.iter().filter_map(origin).collect();
        let destroyed = held.pool.datasets().destroy_all(names);
        // A deferred snapshot goes with its last clone.
        held.note_gone(&origins);
        destroyed.map_err(refuse::pool)?;
        held.remove_folders(names);
        for at in places.iter().filter(|at| held.is_inside_ours(at)) {
            unmake(std::slice::from_ref(at));
        }
        Ok(())
    }
}

/// Refuses to destroy encryption roots whose key others inherit. Clones anywhere in the pool may.
fn check_keys(held: &ImportedPool, doomed: &[String]) -> Result<(), Refusal> {
    for name in held.pool.datasets().names().iter().filter(|name| !doomed.contains(name)) {
        let info = held.pool.datasets().dataset_info(name).map_err(refuse::pool)?;
        if let Some(root) = info.encryption_root.filter(|root| doomed.contains(root)) {
            let what = format!("'{name}' inherits its key from '{root}'");
            return Err(Refusal::new(Code::KeyShared, what).with("fs", root).with("others", name));
        }
    }
    Ok(())
}

/// Refuses snapshots that have clones.
pub(in crate::engine) fn check_cloneless(held: &ImportedPool, snapshots: &[String]) -> Result<(), Refusal> {
    if let Some((snapshot, clones)) = held.pool.datasets().clones(snapshots).map_err(refuse::pool)?.first() {
        let (clone, what) = (clones[0].clone(), format!("'{snapshot}' has clones: {}", clones.join(", ")));
        let refusal = Refusal::new(Code::SnapshotClones, what).with("snapshot", snapshot);
        return Err(refusal.with("clone", clone));
    }
    Ok(())
}

/// Snapshots that names and ranges (`a,c%f,%b`) select, oldest first.
fn chosen<'n>(list: &str, there: &'n [String]) -> Vec<&'n str> {
    let mut chosen = vec![false; there.len()];
    let at = |name: &str| there.iter().position(|known| known == name);
    for part in list.split(',') {
        let range = match part.split_once('%') {
            None => at(part).map(|index| (index, index)),
            Some((from, to)) => {
                let from = if from.is_empty() { Some(0) } else { at(from) };
                let to = if to.is_empty() { there.len().checked_sub(1) } else { at(to) };
                from.zip(to)
            }
        };
        if let Some((from, to)) = range.filter(|(from, to)| from <= to) {
            chosen[from..=to].fill(true);
        }
    }
    there.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(name, _)| name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ranges_choose_what_is_there() {
        let there: Vec<String> = ["a", "b", "c", "d"].map(String::from).to_vec();
        let of = |list: &str| chosen(list, &there).join("");
        assert_eq!(of("b"), "b");
        assert_eq!(of("b%c"), "bc");
        assert_eq!(of("%b"), "ab");
        assert_eq!(of("c%"), "cd");
        assert_eq!(of("%"), "abcd");
        assert_eq!(of("d,a"), "ad");
        assert_eq!(of("c%b"), "", "a range goes from older to younger");
        assert_eq!(of("x,a%x"), "");
        assert_eq!(chosen("%", &[]), Vec::<&str>::new());
    }
}
