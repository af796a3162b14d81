//! `zfs promote`.

use crate::api::{FsPromote, Outcome};
use crate::caller::Caller;
use crate::check::name_refusal;
use crate::engine::refuse;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::refusal::Refusal;
use steadfast_property::check_dataset_name;

impl Verb for FsPromote {
    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held(&self.name)?;
        engine.check_writable(&held)?;
        let info = held.pool.datasets().dataset_info(&self.name).map_err(refuse::pool)?;
        held.pool.datasets().promote(&self.name).map_err(refuse::pool)?;
        // Snapshots moved to the clone.
        held.note_snapshots([&*self.name]);
        if let Some((fs, _)) = info.origin.as_deref().and_then(|origin| origin.split_once('@')) {
            held.note_snapshots([fs]);
        }
        engine.log(&held, caller);
        Ok(touched(&self.name))
    }
}
