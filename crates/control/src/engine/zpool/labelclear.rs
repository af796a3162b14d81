//! `zpool labelclear`.

use crate::api::{LabelClear, Outcome};
use crate::caller::Caller;
use crate::check::check_paths;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::engine::{devices, refuse};
use crate::refusal::{Code, Refusal};
use steadfast_device::OpenOptions;
use steadfast_format::PoolState;

impl Verb for LabelClear {
    fn check(&mut self) -> Result<(), Refusal> {
        check_paths(std::slice::from_ref(&self.device))
    }

    fn run(self, engine: &Engine, _: &Caller) -> Result<Outcome, Refusal> {
        let path = &self.device;
        let handle =
            devices::open(path, &OpenOptions::WRITE).map_err(|error| engine.name_user(path, error))?;
        let config = steadfast_pool::label_of(&*handle.device).map_err(refuse::pool)?;
        let state = match config.state {
            PoolState::Destroyed => None,
            PoolState::Active => Some("which was not exported"),
            PoolState::Exported => Some("which was exported"),
        };
        if let Some(state) = state.filter(|_| !self.force) {
            let what = format!("{} belongs to the pool '{}', {state}", path.display(), config.name);
            return Err(Refusal::new(Code::VdevForeign, what).with("device", path.display()));
        }
        steadfast_pool::erase(&*handle.device).map_err(refuse::pool)?;
        Ok(touched(&path.display().to_string()))
    }
}
