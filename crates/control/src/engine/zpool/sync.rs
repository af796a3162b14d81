//! `zpool sync`: commits now.

use crate::api::{Outcome, PoolSync};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::Refusal;

impl Verb for PoolSync {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        for (name, held) in engine.select(&self.names)? {
            held.pool.sync().map_err(refuse::pool)?;
            outcome.touched.push(name);
        }
        Ok(outcome)
    }
}
