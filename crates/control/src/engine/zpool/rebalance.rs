//! `zpool rebalance`: evens out how full devices are.

use crate::api::{Outcome, PoolRebalance};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::engine::zpool::scrub;
use crate::refusal::Refusal;

impl Verb for PoolRebalance {
    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        let command = scrub::command(self.command);
        held.pool.devices().rebalance(command).map_err(|error| refuse::of_pool(error, &self.name))?;
        engine.log(&held, caller);
        Ok(touched(&self.name))
    }
}
