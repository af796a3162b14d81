//! `zfs rollback`.

use crate::api::{FsRollback, Outcome};
use crate::caller::Caller;
use crate::check::name_refusal;
use crate::engine::front::Mounted;
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool, touched};
use crate::engine::verb::Verb;
use crate::engine::zfs::destroy::check_cloneless;
use crate::engine::zfs::names::halves;
use crate::refusal::{Code, Refusal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
        for refusal in engine.mount_as_read_only(&held, fs) {
            eprintln!("steadfast: {}", refusal.what);
        }
        let mount = info.volume.is_none().then(|| held.renewable(fs)).flatten();
        if let Some((served, at)) = mount {
            engine.roll_mounted(&held, &self, (fs, &clones, &younger), (&*served, &at))?;
            engine.log(&held, caller);
            return Ok(touched(fs));
        }
        // It is unmounted and mounted again, so no mount has to be told.
        let places = held.places_of(&clones);
        let mut leaving = clones.clone();
        leaving.push(fs.to_owned());
        for name in &leaving {
            engine.part_clients(&held, name, self.force)?;
        }
        let mut placed = engine.leave(&held, &leaving, self.force)?;
        let possible = held.pool.datasets().try_rollback(&self.name, false).map_err(refuse::pool);
        let rolled = possible
            .and_then(|()| engine.destroy_left(&held, &clones, &places))
            .and_then(|()| held.roll(&self.name, &younger));
        let there = held.pool.datasets().names();
        placed.retain(|placed| there.contains(&placed.name));
        let warnings = engine.mount_placed(&held, placed);
        rolled?;
        engine.log(&held, caller);
        Ok(Outcome { touched: vec![fs.to_owned()], warnings })
    }
}

impl Engine {
    /// Rolls a mounted file system back. Its files stay open, and mounts in its folders stay where
    /// the snapshot has the folder.
    fn roll_mounted(
        &self,
        held: &Arc<ImportedPool>,
        request: &FsRollback,
        (fs, clones, younger): (&str, &[String], &[String]),
        (served, at): (&dyn Mounted, &Path),
    ) -> Result<(), Refusal> {
        held.pool.datasets().try_rollback(&request.name, true).map_err(refuse::pool)?;
        let (_, name) = halves(&request.name)?;
        let snapshot = at.join(".zfs/snapshot").join(name);
        let mut leaving = clones.to_vec();
        let inner = held.inner_mounts(at);
        // The snapshot is looked at through the mount of this daemon.
        leaving.extend(steadfast_fuse::aside(|| {
            let goes = |(name, inside): (String, PathBuf)| {
                let there = inside.strip_prefix(at).is_ok_and(|tail| snapshot.join(tail).is_dir());
                (!there).then_some(name)
            };
            inner.into_iter().filter_map(goes).collect::<Vec<_>>()
        }));
        let places = held.places_of(clones);
        for clone in clones {
            self.part_clients(held, clone, request.force)?;
        }
        let mut placed = self.leave(held, &leaving, request.force)?;
        // Changed pages are of the time before. The kernel would write them after the rollback.
        let rolled = served.settle().map_err(|error| {
            Refusal::new(Code::FsBusy, format!("changed pages of '{fs}' cannot be written: {error}"))
                .with("fs", fs)
        });
        let rolled = rolled.and_then(|()| self.destroy_left(held, clones, &places)).and_then(|()| {
            let (rolled, ended) = held.exchange(fs, served, || held.roll(&request.name, younger))?;
            rolled.and(ended.map_or(Ok(()), Err))
        });
        let there = held.pool.datasets().names();
        placed.retain(|placed| there.contains(&placed.name));
        for refusal in self.mount_placed(held, placed) {
            eprintln!("steadfast: {}", refusal.what);
        }
        held.note_snapshots([fs]);
        rolled
    }
}

impl ImportedPool {
    /// Destroys younger snapshots and goes back to one, of a file system that nobody uses.
    fn roll(&self, name: &str, younger: &[String]) -> Result<(), Refusal> {
        // Deferred snapshots may have gone with their last clones.
        let younger = self.those_there(younger);
        if !younger.is_empty() {
            self.pool.datasets().destroy_snapshots(&younger, false).map_err(refuse::pool)?;
        }
        self.pool.datasets().rollback(name).map_err(refuse::pool)
    }
}
