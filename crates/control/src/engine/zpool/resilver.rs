//! `zpool resilver`.

use crate::api::{Outcome, PoolResilver};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::refusal::Refusal;

impl Verb for PoolResilver {
    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        held.pool.devices().resilver_anew().map_err(|error| refuse::of_pool(error, &self.name))?;
        engine.log(&held, caller);
        Ok(touched(&self.name))
    }
}
