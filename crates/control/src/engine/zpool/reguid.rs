//! `zpool reguid`.

use crate::api::{Outcome, PoolReguid};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::Refusal;

impl Verb for PoolReguid {
    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        held.pool.reguid().map_err(|error| refuse::of_pool(error, &self.name))?;
        engine.post("pool_reguid", &held.pool, &self.name, &[]);
        engine.log(&held, caller);
        let warnings = engine.remember().err().into_iter().collect();
        Ok(Outcome { touched: vec![self.name.clone()], warnings })
    }
}
