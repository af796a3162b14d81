//! `zpool online`.

use crate::api::{Outcome, PoolOnline};
use crate::caller::Caller;
use crate::check::check_paths;
use crate::engine::members::opener;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::Refusal;
use std::path::Path;

impl Verb for PoolOnline {
    fn check(&mut self) -> Result<(), Refusal> {
        check_paths(&self.devices)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        let member = |device: &std::path::PathBuf| Engine::member_log_or_cache(&held, &self.name, device);
        let members = self.devices.iter().map(member).collect::<Result<Vec<_>, _>>()?;
        let mut outcome = Outcome::default();
        for path in members {
            if held.pool.online(&path, &opener(&path)).map_err(refuse::pool)? {
                let fields = [("vdev_path", path.clone()), ("vdev_state", "ONLINE".to_owned())];
                engine.post("statechange", &held.pool, &self.name, &fields);
                outcome.touched.push(path.clone());
            }
            // A log device uses its present size whenever it is opened.
            let expands = self.expand && Engine::member(&held, &self.name, Path::new(&path)).is_ok();
            let gained = if expands { held.pool.devices().expand(&path).map_err(refuse::pool)? } else { 0 };
            if gained > 0 {
                let fields = [("vdev_path", path.clone()), ("bytes", gained.to_string())];
                engine.post("vdev_autoexpand", &held.pool, &self.name, &fields);
                outcome.touched.push(path);
            }
        }
        if !outcome.touched.is_empty() {
            engine.log(&held, caller);
        }
        Ok(outcome)
    }
}
