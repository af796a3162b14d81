//! `zpool attach`.

use crate::api::{Outcome, PoolAttach, VdevClass, VdevKind, VdevSpec};
use crate::caller::Caller;
use crate::check::check_paths;
use crate::engine::members::{group_named, log_named};
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};

impl Verb for PoolAttach {
    fn check(&mut self) -> Result<(), Refusal> {
        check_paths(std::slice::from_ref(&self.device))?;
        check_paths(std::slice::from_ref(&self.new))
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        held.refuse_recovering()?;
        let state = held.pool.state();
        let named = group_named(&state, &self.device).or_else(|| log_named(&state, &self.device));
        let beside = match named {
            Some(path) => path,
            None => Engine::member_or_log(&held, &self.name, &self.device)?,
        };
        if Engine::member_or_log(&held, &self.name, &self.new).is_ok() {
            let what = format!("{} is already a device of '{}'", self.new.display(), self.name);
            return Err(Refusal::new(Code::VdevTwice, what).with("device", self.new.display()));
        }
        let devices = vec![self.new.clone()];
        let vdev = VdevSpec { class: VdevClass::Main, kind: VdevKind::Plain, devices };
        let (paths, mut handles) = engine.open_new(&[vdev], self.force)?;
        let handle = handles.pop().expect("one was opened");
        held.pool.attach(&beside, handle, self.force).map_err(|error| refuse::of_pool(error, &self.name))?;
        let fields = [("vdev_path", self.new.display().to_string()), ("beside", beside)];
        engine.post("vdev_attach", &held.pool, &self.name, &fields);
        held.note_devices(paths);
        engine.log(&held, caller);
        let warnings = engine.remember().err().into_iter().collect();
        Ok(Outcome { touched: vec![self.name.clone()], warnings })
    }
}
