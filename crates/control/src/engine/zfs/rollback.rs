//! `zfs rollback`.

use crate::api::{FsRollback, Outcome};
use crate::caller::Caller;
use crate::check::name_refusal;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::engine::zfs::destroy::check_cloneless;
use crate::engine::zfs::names::halves;
use crate::refusal::{Code, Refusal};
use steadfast_property::check_snapshot_name;

impl Verb for FsRollback {
    fn check(&mut self) -> Result<(), Refusal> {
        check_snapshot_name(&self.name).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let (fs, snapshot) = halves(&self.name)?;
        let held = engine.held(fs)?;
        engine.check_writable(&held)?;
        let info = held.pool.datasets().dataset_info(fs).map_err(refuse::pool)?;
        if let Some(root) = info.encryption_root.filter(|_| !info.key_loaded) {
            // Before anything younger is destroyed.
            let what = format!("the key of '{root}' is not loaded; a rollback must read the file system");
            return Err(Refusal::new(Code::KeyNeeded, what).with("fs", root));
        }
        let all = held.pool.datasets().snapshot_names(fs).map_err(refuse::pool)?;
        let Some(at) = all.iter().position(|name| name == snapshot) else {
            let what = format!("there is no snapshot '{}'", self.name);
            return Err(Refusal::new(Code::SnapshotAbsent, what).with("snapshot", &self.name));
        };
        let younger: Vec<String> = all[at + 1..].iter().map(|name| format!("{fs}@{name}")).collect();
        if !younger.is_empty() && !self.destroy_younger {
            let list = younger.join(", ");
            let what = format!("there are snapshots younger than '{}': {list}", self.name);
            return Err(Refusal::new(Code::SnapshotYounger, what).with("snapshot", &self.name));
        }
        let clones = match self.clones {
            true => engine.clones_of(&held, &younger)?,
            false => {
                check_cloneless(&held, &younger)?;
                Vec::new()
            }
        };
        if let Some(clone) = clones.iter().find(|clone| fs == *clone || fs.starts_with(&format!("{clone}/")))
        {
            let what = format!("'{fs}' is in '{clone}', a clone of a younger snapshot of '{fs}'");
            return Err(Refusal::new(Code::SnapshotClones, what)
                .with("snapshot", &self.name)
                .with("clone", clone));
        }
        held.pool.datasets().check_destroy_all(&clones).map_err(refuse::pool)?;
        held.pool.datasets().check_destroy_snapshots(&younger, false).map_err(refuse::pool)?;
        // Everything mounted is unmounted and mounted again, so no mount has to be told.
        let places = held.places_of(&clones);
        let mut leaving = clones.clone();
        leaving.push(fs.to_owned());
        for name in &leaving {
            engine.part_clients(&held, name, self.force)?;
        }
        let mut placed = engine.leave(&held, &leaving, self.force)?;
        let possible = held.pool.datasets().try_rollback(&self.name).map_err(refuse::pool);
        let rolled = possible.and_then(|()| engine.destroy_left(&held, &clones, &places)).and_then(|()| {
            // Deferred snapshots may have gone with their last clones.
            let younger = held.those_there(&younger);
            if !younger.is_empty() {
                held.pool.datasets().destroy_snapshots(&younger, false).map_err(refuse::pool)?;
            }
            held.pool.datasets().rollback(&self.name).map_err(refuse::pool)
        });
        let there = held.pool.datasets().names();
        placed.retain(|placed| there.contains(&placed.name));
        let warnings = engine.mount_placed(&held, placed);
        rolled?;
        engine.log(&held, caller);
        Ok(Outcome { touched: vec![fs.to_owned()], warnings })
    }
}
