//! Verbs of clones, and what goes with what when something is destroyed.

use super::{Engine, Held, filesystems, refuse, touched};
use crate::api::{Caller, CloneHost, FsClone, FsPromote, Outcome};
use crate::refusal::{Code, Refusal};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Properties that a clone has from its origin.
const OF_ORIGIN: [&str; 3] = ["encryption", "keyformat", "keylocation"];

impl CloneHost for Engine {
    fn fs_clone(&self, caller: &Caller, request: FsClone) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.clone_fs(caller, request)
    }

    fn fs_promote(&self, caller: &Caller, request: FsPromote) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        let held = self.held(&request.name)?;
        self.check_writable(&held)?;
        let info = held.pool.dataset_info(&request.name).map_err(refuse::pool)?;
        held.pool.promote(&request.name).map_err(refuse::pool)?;
        // Snapshots changed hands.
        held.note_snapshots([&*request.name]);
        if let Some((fs, _)) = info.origin.as_deref().and_then(|origin| origin.split_once('@')) {
            held.note_snapshots([fs]);
        }
        self.log(&held, caller);
        Ok(touched(&request.name))
    }
}

impl Engine {
    fn clone_fs(&self, caller: &Caller, request: FsClone) -> Result<Outcome, Refusal> {
        let (fs, snapshot) = super::snapshots::halves(&request.snapshot)?;
        let name = request.name.as_str();
        let held = self.held(fs)?;
        let pool = fs.split('/').next().unwrap_or(fs);
        if name.split('/').next() != Some(pool) {
            let what = format!("'{name}' lies in another pool than '{}'", request.snapshot);
            return Err(Refusal::new(Code::FsPlace, what).with("fs", name));
        }
        if !held.pool.snapshot_names(fs).map_err(refuse::pool)?.iter().any(|there| there == snapshot) {
            let what = format!("there is no snapshot '{}'", request.snapshot);
            return Err(Refusal::new(Code::SnapshotAbsent, what).with("snapshot", &request.snapshot));
        }
        let all = held.pool.datasets();
        if all.iter().any(|there| there == name) {
            if request.parents {
                return Ok(Outcome::default());
            }
            return Err(Refusal::new(Code::FsExists, format!("'{name}' exists")).with("fs", name));
        }
        if let Some(property) = OF_ORIGIN.iter().find(|property| request.properties.contains_key(**property))
        {
            let what =
                format!("a clone is encrypted as its origin is, with its key: {property} cannot be given");
            return Err(Refusal::new(Code::KeyRules, what).with("fs", name));
        }
        let ends = name.match_indices('/').map(|(at, _)| at);
        let missing: Vec<String> =
            ends.map(|end| name[..end].to_owned()).filter(|parent| !all.contains(parent)).collect();
        if let Some(parent) = missing.first().filter(|_| !request.parents) {
            let what = format!("the parent '{parent}' does not exist");
            return Err(Refusal::new(Code::FsParent, what).with("parent", parent));
        }
        self.check_writable(&held)?;
        let made = filesystems::with_parents(&held, &missing, || {
            held.pool.clone_snapshot(&request.snapshot, name, request.properties).map(drop)
        });
        made.map_err(refuse::pool)?;
        self.log(&held, caller);
        // What it holds belongs to whom it did; only parents are new.
        let mut warnings: Vec<Refusal> =
            missing.iter().filter_map(|parent| filesystems::give(&held, parent, caller).err()).collect();
        let mut created = missing;
        created.push(request.name);
        if !request.no_mount {
            for name in &created {
                warnings.extend(self.mount_below(&held, name));
            }
        }
        Ok(Outcome { touched: created, warnings })
    }

    /// What goes when these file systems go, in an order in which they can: children before parents, clones before their origins.
    /// Clones elsewhere are refused unless `clones`.
    pub(super) fn with_dependents(
        &self,
        held: &Held,
        names: Vec<String>,
        clones: bool,
    ) -> Result<Vec<String>, Refusal> {
        let all = held.pool.datasets();
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
            let snapshots = held.pool.snapshot_names(&name).map_err(refuse::pool)?;
            let full: Vec<String> = snapshots.iter().map(|snapshot| format!("{name}@{snapshot}")).collect();
            let found = held.pool.clones(&full).map_err(refuse::pool)?;
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
                // Somebody waits for what does not go: it is a clone, and children do not wait for their parents.
                let elsewhere = |(of, other): &&(String, String)| {
                    doomed.contains(of) && !doomed.contains(other) && !ordered.contains(other)
                };
                let (of, clone) = needs.iter().find(elsewhere).cloned().unwrap_or_default();
                let what = format!("'{of}' has a snapshot that '{clone}' is a clone of");
                return Err(Refusal::new(Code::SnapshotClones, what).with("fs", of).with("clone", clone));
            };
            doomed.remove(&next);
            ordered.push(next);
        }
        check_keys(held, &ordered)?;
        Ok(ordered)
    }

    /// Clones of snapshots, with all that depends on them, in an order in which they can go.
    pub(super) fn clones_of(&self, held: &Held, snapshots: &[String]) -> Result<Vec<String>, Refusal> {
        let found = held.pool.clones(snapshots).map_err(refuse::pool)?;
        self.with_dependents(held, found.into_iter().flat_map(|(_, clones)| clones).collect(), true)
    }

    /// Unmounts and destroys file systems, all or none, their snapshots with them. Their mountpoints go too, unless somebody keeps
    /// something there.
    pub(super) fn destroy_in_order(
        &self,
        held: &Arc<Held>,
        names: &[String],
        force: bool,
    ) -> Result<(), Refusal> {
        // All or none: what would be refused when others are gone already is refused before.
        held.pool.check_destroy_all(names).map_err(refuse::pool)?;
        let places = held.places_of(names);
        for name in names {
            self.part_clients(held, name, force)?;
        }
        let left = self.leave(held, names, force)?;
        let destroyed = self.destroy_left(held, names, &places);
        if destroyed.is_err() {
            // As far as they are still there.
            let _ = self.mount_placed(held, left);
        }
        destroyed
    }

    /// Destroys file systems that were left, all or none, and removes the places where they were mounted.
    pub(super) fn destroy_left(
        &self,
        held: &Held,
        names: &[String],
        places: &[PathBuf],
    ) -> Result<(), Refusal> {
        let origin = |name: &String| held.pool.dataset_info(name).ok()?.origin;
        let origins: Vec<String> = names.iter().filter_map(origin).collect();
        let destroyed = held.pool.destroy_all(names);
        // One that was to go when nothing keeps it goes with its last clone.
        held.note_gone(&origins);
        destroyed.map_err(refuse::pool)?;
        for at in places.iter().filter(|at| held.is_inside_ours(at)) {
            super::mounts::unmake(std::slice::from_ref(at));
        }
        Ok(())
    }
}

/// Refuses to destroy what others take their keys from, before anything is destroyed: clones may lie anywhere.
fn check_keys(held: &Held, doomed: &[String]) -> Result<(), Refusal> {
    for name in held.pool.datasets().iter().filter(|name| !doomed.contains(name)) {
        let info = held.pool.dataset_info(name).map_err(refuse::pool)?;
        if let Some(root) = info.encryption_root.filter(|root| doomed.contains(root)) {
            let what = format!("'{root}' holds the key of '{name}'");
            return Err(Refusal::new(Code::KeyShared, what).with("fs", root).with("others", name));
        }
    }
    Ok(())
}

/// Refuses snapshots that have clones.
pub(super) fn check_cloneless(held: &Held, snapshots: &[String]) -> Result<(), Refusal> {
    if let Some((snapshot, clones)) = held.pool.clones(snapshots).map_err(refuse::pool)?.first() {
        let (clone, what) = (clones[0].clone(), format!("'{snapshot}' has clones: {}", clones.join(", ")));
        let refusal = Refusal::new(Code::SnapshotClones, what).with("snapshot", snapshot);
        return Err(refusal.with("clone", clone));
    }
    Ok(())
}
