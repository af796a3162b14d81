//! `zpool offline`.

use crate::api::{Outcome, PoolOffline};
use crate::caller::Caller;
use crate::check::check_paths;
use crate::engine::refuse;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::refusal::Refusal;

impl Verb for PoolOffline {
    fn check(&mut self) -> Result<(), Refusal> {
        check_paths(&self.devices)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        for device in &self.devices {
            let path = Engine::member_log_or_cache(&held, &self.name, device)?;
            let how = steadfast_pool::Offline { as_failed: self.as_failed, until_import: self.until_import };
            let done = held.pool.offline_as(&path, how);
            done.map_err(|error| refuse::of_pool(error, &self.name))?;
            let word = if self.as_failed { "FAULTED" } else { "OFFLINE" };
            let fields = [("vdev_path", path), ("vdev_state", word.to_owned())];
            engine.post("statechange", &held.pool, &self.name, &fields);
        }
        engine.log(&held, caller);
        Ok(touched(&self.name))
    }
}
