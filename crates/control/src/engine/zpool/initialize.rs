//! `zpool initialize`.

use crate::api::{Outcome, PoolInitialize};
use crate::caller::Caller;
use crate::check::check_paths;
use crate::engine::members::members;
use crate::engine::refuse;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::engine::zpool::trim;
use crate::refusal::Refusal;
use steadfast_pool::Sweep;

impl Verb for PoolInitialize {
    fn check(&mut self) -> Result<(), Refusal> {
        check_paths(&self.devices)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        let members = members(&held, &self.name, &self.devices)?;
        let done = held.pool.devices().sweep(Sweep::Initialize, &members, trim::command(self.command, None));
        done.map_err(|error| refuse::of_pool(error, &self.name))?;
        engine.log(&held, caller);
        Ok(touched(&self.name))
    }
}
