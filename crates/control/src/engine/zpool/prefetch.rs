//! `zpool prefetch`: loads the dedup table (DDT) into memory.

use crate::api::{Outcome, PoolPrefetch};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::Refusal;

impl Verb for PoolPrefetch {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<Outcome, Refusal> {
        let found = engine.select(&self.names)?;
        for (name, held) in &found {
            held.pool.fill_index().map_err(|error| refuse::of_pool(error, name))?;
        }
        let touched = found.into_iter().map(|(name, _)| name).collect();
        Ok(Outcome { touched, warnings: Vec::new() })
    }
}
