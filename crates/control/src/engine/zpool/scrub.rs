//! `zpool scrub`.

use crate::api::{Outcome, PoolScrub, ScrubCommand};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::refusal::Refusal;

impl Verb for PoolScrub {
    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        held.pool.devices().scrub(command(self.command)).map_err(refuse::pool)?;
        engine.log(&held, caller);
        Ok(touched(&self.name))
    }
}

/// The pool's command to a scrub or a rebalance.
pub(in crate::engine) fn command(command: ScrubCommand) -> steadfast_pool::ScrubCommand {
    match command {
        ScrubCommand::Start => steadfast_pool::ScrubCommand::Start,
        ScrubCommand::Pause => steadfast_pool::ScrubCommand::Pause,
        ScrubCommand::Stop => steadfast_pool::ScrubCommand::Stop,
    }
}
