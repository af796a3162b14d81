//! `zpool trim`.

use crate::api::{Outcome, PoolTrim, TrimCommand};
use crate::caller::Caller;
use crate::check::check_paths;
use crate::engine::members::members;
use crate::engine::refuse;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};
use steadfast_pool::Sweep;

impl Verb for PoolTrim {
    fn check(&mut self) -> Result<(), Refusal> {
        check_paths(&self.devices)?;
        if self.rate == Some(0) {
            return Err(Refusal::new(Code::ApiRequest, "the rate of a trim must be at least 1"));
        }
        Ok(())
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        let members = members(&held, &self.name, &self.devices)?;
        let command = command(self.command, self.rate);
        held.pool
            .devices()
            .sweep(Sweep::Trim, &members, command)
            .map_err(|error| refuse::of_pool(error, &self.name))?;
        engine.log(&held, caller);
        Ok(touched(&self.name))
    }
}

/// The pool's command to a trim or an initialization.
pub(in crate::engine) fn command(command: TrimCommand, rate: Option<u64>) -> steadfast_pool::TrimCommand {
    match command {
        TrimCommand::Start => steadfast_pool::TrimCommand::Start { rate },
        TrimCommand::Suspend => steadfast_pool::TrimCommand::Suspend,
        TrimCommand::Cancel => steadfast_pool::TrimCommand::Cancel,
        TrimCommand::Forget => steadfast_pool::TrimCommand::Forget,
    }
}
