//! `zfs bookmark`, and `zfs destroy` of a bookmark.

use crate::api::{FsBookmark, FsBookmarkDestroy, Outcome};
use crate::caller::Caller;
use crate::check::{check_snapshot_or_bookmark, name_refusal};
use crate::engine::refuse;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::refusal::Refusal;
use steadfast_property::check_snapshot_name;

impl Verb for FsBookmark {
    fn check(&mut self) -> Result<(), Refusal> {
        check_snapshot_or_bookmark(&self.of)?;
        check_snapshot_name(&format!("p@{}", self.name)).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let fs = self.of.split(['@', '#']).next().unwrap_or_default();
        let held = engine.held(fs)?;
        engine.check_writable(&held)?;
        held.pool.datasets().add_bookmark(&self.of, &self.name).map_err(refuse::pool)?;
        engine.log(&held, caller);
        Ok(touched(&format!("{fs}#{}", self.name)))
    }
}

impl Verb for FsBookmarkDestroy {
    fn check(&mut self) -> Result<(), Refusal> {
        check_snapshot_or_bookmark(&self.name)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held(self.name.split('#').next().unwrap_or_default())?;
        engine.check_writable(&held)?;
        held.pool.datasets().remove_bookmark(&self.name).map_err(refuse::pool)?;
        engine.log(&held, caller);
        Ok(touched(&self.name))
    }
}
