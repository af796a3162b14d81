//! `zpool detach`.

use crate::api::{Outcome, PoolDetach};
use crate::caller::Caller;
use crate::check::check_paths;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::Refusal;
use std::path::Path;

impl Verb for PoolDetach {
    fn check(&mut self) -> Result<(), Refusal> {
        check_paths(std::slice::from_ref(&self.device))
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        held.refuse_recovering()?;
        let path = Engine::member_or_log(&held, &self.name, &self.device)?;
        held.pool.detach(&path).map_err(|error| refuse::of_pool(error, &self.name))?;
        let state = held.pool.state();
        let is_log = state.log_devices.iter().any(|log| log.path == path);
        if !is_log && !state.leaves.iter().any(|leaf| leaf.config.path == path) {
            held.devices.write().retain(|device| device != Path::new(&path));
        }
        engine.log(&held, caller);
        let warnings = engine.remember().err().into_iter().collect();
        Ok(Outcome { touched: vec![self.name.clone()], warnings })
    }
}
