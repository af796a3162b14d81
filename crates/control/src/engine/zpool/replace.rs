//! `zpool replace`.

use crate::api::{Outcome, PoolReplace, VdevClass, VdevKind, VdevSpec};
use crate::caller::Caller;
use crate::check::check_paths;
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};
use std::path::{Path, PathBuf};

impl Verb for PoolReplace {
    fn check(&mut self) -> Result<(), Refusal> {
        check_paths(std::slice::from_ref(&self.old))?;
        check_paths(self.new.as_slice())
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        held.refuse_recovering()?;
        let old = Engine::member_or_log(&held, &self.name, &self.old)?;
        let new = self.new.clone().unwrap_or_else(|| PathBuf::from(&old));
        check_no_spare(&held, &self.name, &old, &new)?;
        if let Some(spare) = waiting_spare(&held, &old, &new) {
            held.pool
                .devices()
                .stand_in_by_hand(&old, &spare)
                .map_err(|error| refuse::of_pool(error, &self.name))?;
            engine.log(&held, caller);
            return Ok(Outcome { touched: vec![self.name.clone()], warnings: Vec::new() });
        }
        if new == Path::new(&old) {
            // The device at that path is another one only if the old one is out of use.
            held.pool.let_go(&old, self.force).map_err(|error| refuse::of_pool(error, &self.name))?;
        }
        let vdev = VdevSpec { class: VdevClass::Main, kind: VdevKind::Plain, devices: vec![new.clone()] };
        let (paths, mut handles) = engine.open_new(&[vdev], self.force)?;
        let handle = handles.pop().expect("one was opened");
        held.pool.replace(&old, handle, self.force).map_err(|error| refuse::of_pool(error, &self.name))?;
        let fields = [("vdev_path", new.display().to_string()), ("old_path", old)];
        engine.post("vdev_attach", &held.pool, &self.name, &fields);
        held.note_devices(paths);
        // A replaced log device has left the pool already.
        held.follow_devices();
        engine.log(&held, caller);
        let warnings = engine.remember().err().into_iter().collect();
        Ok(Outcome { touched: vec![self.name.clone()], warnings })
    }
}

/// The pool's path of a spare that waits, if it is to replace a device.
fn waiting_spare(held: &ImportedPool, old: &str, new: &Path) -> Option<String> {
    let state = held.pool.state();
    let is_leaf = state.leaves.iter().any(|leaf| leaf.config.path == old);
    let waiting = state.spares.iter().filter(|spare| spare.standing.is_none());
    let found = Engine::among(waiting.map(|spare| spare.path.as_str()), "", new);
    found.ok().filter(|_| is_leaf)
}

/// Spares replace only devices with data, as in ZFS.
fn check_no_spare(held: &ImportedPool, pool: &str, old: &str, new: &Path) -> Result<(), Refusal> {
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
