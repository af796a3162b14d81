//! `zpool checkpoint`.

use crate::api::{Outcome, PoolCheckpoint};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::refusal::Refusal;

impl Verb for PoolCheckpoint {
    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        let done = if self.discard { held.pool.discard_checkpoint() } else { held.pool.checkpoint() };
        done.map_err(|error| refuse::of_pool(error, &self.name))?;
        engine.log(&held, caller);
        Ok(touched(&self.name))
    }
}
