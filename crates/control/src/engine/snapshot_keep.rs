//! Going back to snapshots, holding them, their names and properties.

use std::collections::BTreeSet;

use super::filesystems::Edit;
use super::{Engine, refuse, touched};
use crate::api::{Caller, FsHold, FsHolds, FsInherit, FsRollback, FsSnapshotRename, HeldBy, Outcome};
use crate::refusal::{Code, Refusal};

impl Engine {
    pub(super) fn roll_back(&self, caller: &Caller, request: &FsRollback) -> Result<Outcome, Refusal> {
        let (fs, snapshot) = super::snapshots::halves(&request.name)?;
        let held = self.held(fs)?;
        self.check_writable(&held)?;
        let info = held.pool.dataset_info(fs).map_err(refuse::pool)?;
        if let Some(root) = info.encryption_root.filter(|_| !info.key_loaded) {
            // Before anything younger is destroyed.
            let what = format!(
                "the key of '{root}' is not loaded, and what came since a snapshot is found by reading"
            );
            return Err(Refusal::new(Code::KeyNeeded, what).with("fs", root));
        }
        let all = held.pool.snapshot_names(fs).map_err(refuse::pool)?;
        let Some(at) = all.iter().position(|name| name == snapshot) else {
            let what = format!("there is no snapshot '{}'", request.name);
            return Err(Refusal::new(Code::SnapshotAbsent, what).with("snapshot", &request.name));
        };
        let younger: Vec<String> = all[at + 1..].iter().map(|name| format!("{fs}@{name}")).collect();
        if !younger.is_empty() && !request.destroy_younger {
            let list = younger.join(", ");
            let what = format!("there are snapshots younger than '{}': {list}", request.name);
            return Err(Refusal::new(Code::SnapshotYounger, what).with("snapshot", &request.name));
        }
        let clones = match request.clones {
            true => self.clones_of(&held, &younger)?,
            false => {
                super::clones::check_cloneless(&held, &younger)?;
                Vec::new()
            }
        };
        if let Some(clone) = clones.iter().find(|clone| fs == *clone || fs.starts_with(&format!("{clone}/")))
        {
            let what = format!("'{fs}' lies in '{clone}', which depends on a younger snapshot of it");
            return Err(Refusal::new(Code::SnapshotClones, what)
                .with("snapshot", &request.name)
                .with("clone", clone));
        }
        held.pool.check_destroy_all(&clones).map_err(refuse::pool)?;
        held.pool.check_destroy_snapshots(&younger, false).map_err(refuse::pool)?;
        // What is mounted is mounted again as it was; what is below it, inside it, too. So no mount is left that would have to be told.
        let places = held.places_of(&clones);
        let mut leaving = clones.clone();
        leaving.push(fs.to_owned());
        for name in &leaving {
            self.part_clients(&held, name, request.force)?;
        }
        let mut placed = self.leave(&held, &leaving, request.force)?;
        let possible = held.pool.try_rollback(&request.name).map_err(refuse::pool);
        let rolled = possible.and_then(|()| self.destroy_left(&held, &clones, &places)).and_then(|()| {
            // Some went with their last clones.
            let younger = held.those_there(&younger);
            if !younger.is_empty() {
                held.pool.destroy_snapshots(&younger, false).map_err(refuse::pool)?;
            }
            held.pool.rollback(&request.name).map_err(refuse::pool)
        });
        let there = held.pool.datasets();
        placed.retain(|placed| there.contains(&placed.name));
        let warnings = self.mount_placed(&held, placed);
        rolled?;
        self.log(&held, caller);
        Ok(Outcome { touched: vec![fs.to_owned()], warnings })
    }

    /// Full names of the snapshots of one name in a tree of file systems; of the top alone if that is all that is asked.
    fn in_tree(&self, name: &str, recursive: bool) -> Result<Vec<String>, Refusal> {
        let (fs, snapshot) = super::snapshots::halves(name)?;
        let held = self.held(fs)?;
        held.pool.dataset_info(fs).map_err(refuse::pool)?;
        let below = format!("{fs}/");
        let mut found = Vec::new();
        for dataset in
            held.pool.datasets().into_iter().filter(|n| n == fs || recursive && n.starts_with(&below))
        {
            let names = held.pool.snapshot_names(&dataset).map_err(refuse::pool)?;
            if names.iter().any(|known| known == snapshot) {
                found.push(format!("{dataset}@{snapshot}"));
            }
        }
        if found.is_empty() {
            let what = format!("there is no snapshot '{name}'");
            return Err(Refusal::new(Code::SnapshotAbsent, what).with("snapshot", name));
        }
        Ok(found)
    }

    pub(super) fn hold_snapshots(&self, caller: &Caller, request: &FsHold) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        for name in &request.names {
            let held = self.held(super::snapshots::halves(name)?.0)?;
            self.check_writable(&held)?;
            let names = self.in_tree(name, request.recursive)?;
            match request.release {
                false => held.pool.hold(&names, &request.tag),
                true => held.pool.release(&names, &request.tag),
            }
            .map_err(refuse::pool)?;
            held.note_gone(&names);
            self.log(&held, caller);
            outcome.touched.extend(names);
        }
        Ok(outcome)
    }

    pub(super) fn list_holds(&self, request: &FsHolds) -> Result<Vec<HeldBy>, Refusal> {
        let (mut holds, mut seen) = (Vec::new(), BTreeSet::new());
        for name in &request.names {
            let held = self.held(super::snapshots::halves(name)?.0)?;
            for snapshot in self.in_tree(name, request.recursive)? {
                // One name may lie below another.
                if !seen.insert(snapshot.clone()) {
                    continue;
                }
                for (tag, time) in held.pool.holds(&snapshot).map_err(refuse::pool)? {
                    holds.push(HeldBy { snapshot: snapshot.clone(), tag, time });
                }
            }
        }
        Ok(holds)
    }

    /// Sets and removes properties of users on a snapshot, or on those of one name in a tree of file systems.
    pub(super) fn change_snapshots(
        &self,
        caller: &Caller,
        name: &str,
        recursive: bool,
        edits: Vec<Edit>,
    ) -> Result<Outcome, Refusal> {
        let held = self.held(super::snapshots::halves(name)?.0)?;
        self.check_writable(&held)?;
        let touched = self.in_tree(name, recursive)?;
        let changes: Vec<(&str, Option<&str>)> =
            edits.iter().map(|(property, value)| (property.as_str(), value.as_deref())).collect();
        held.pool.set_snapshot_properties(&touched, &changes).map_err(refuse::pool)?;
        self.log(&held, caller);
        for (property, value) in edits {
            let value = value.unwrap_or_else(|| "(inherited)".into());
            let fields = [("dataset", name.to_owned()), ("property", property), ("value", value)];
            self.post("property_change", &held.pool, &held.pool.name(), &fields);
        }
        Ok(Outcome { touched, warnings: Vec::new() })
    }

    /// A property of a snapshot, or of those of one name in a tree of file systems, goes back to what was received of it.
    pub(super) fn revert_snapshots(&self, caller: &Caller, request: &FsInherit) -> Result<Outcome, Refusal> {
        let held = self.held(super::snapshots::halves(&request.name)?.0)?;
        self.check_writable(&held)?;
        let touched = self.in_tree(&request.name, request.recursive)?;
        held.pool.revert_snapshot_property(&touched, &request.property).map_err(refuse::pool)?;
        self.log(&held, caller);
        let (dataset, property) = (request.name.clone(), request.property.clone());
        let fields = [("dataset", dataset), ("property", property), ("value", "(received)".to_owned())];
        self.post("property_change", &held.pool, &held.pool.name(), &fields);
        Ok(Outcome { touched, warnings: Vec::new() })
    }

    pub(super) fn rename_snapshot(
        &self,
        caller: &Caller,
        request: &FsSnapshotRename,
    ) -> Result<Outcome, Refusal> {
        let (fs, _) = super::snapshots::halves(&request.name)?;
        let held = self.held(fs)?;
        self.check_writable(&held)?;
        let names = self.in_tree(&request.name, request.recursive)?;
        held.pool.rename_snapshots(&names, &request.to).map_err(refuse::pool)?;
        held.note_snapshots([fs]);
        self.log(&held, caller);
        Ok(touched(&format!("{fs}@{}", request.to)))
    }
}
