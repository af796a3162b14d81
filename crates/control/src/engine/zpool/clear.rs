//! `zpool clear`.

use crate::api::{Outcome, PoolClear};
use crate::caller::Caller;
use crate::engine::members::{members_or_logs, opener};
use crate::engine::refuse;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::engine::zpool::export::refuse_away;
use crate::refusal::{Code, Refusal};
use steadfast_format::LeafState;

impl Verb for PoolClear {
    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        if held.pool.is_read_only() {
            let what = "the pool is imported read-only, so nothing can be cleared";
            return Err(Refusal::new(Code::PoolReadonly, what).with("pool", &self.name));
        }
        let waits_for = held.pool.waits_for();
        if waits_for.is_some() && !held.pool.resume() {
            refuse_away(&self.name, &held)?;
            let reason = held.pool.suspended().unwrap_or_default();
            let what = format!("the pool is suspended until its host has room: {reason}");
            return Err(Refusal::new(Code::HostFull, what).with("pool", &self.name));
        }
        if let Some(reason) = held.pool.suspended() {
            let what = format!("the pool is suspended, and only an export and import resume it: {reason}");
            return Err(Refusal::new(Code::PoolSuspended, what).with("pool", &self.name));
        }
        let members = members_or_logs(&held, &self.name, &self.devices)?;
        engine.harvest(&self.name, &held.pool);
        held.pool.clear_errors(&members);
        engine.post("vdev_clear", &held.pool, &self.name, &[]);
        let mut outcome = touched(&self.name);
        let state = held.pool.state();
        let leaves = state.leaves.into_iter().filter(|leaf| leaf.config.state == LeafState::Faulted);
        let leaves = leaves.map(|leaf| (leaf.config.path, true));
        // A missing log device is brought back only by its name.
        let logs = state.log_devices.into_iter().filter(|log| log.given_up);
        let logs = logs.map(|log| (log.path, log.sample.is_some()));
        for (path, is_here) in leaves.chain(logs) {
            if members.is_empty() && is_here || members.contains(&path) {
                // A broken device is faulted again at its next error.
                match held.pool.online(&path, &opener(&path)) {
                    Ok(_) => {
                        let fields = [("vdev_path", path.clone()), ("vdev_state", "ONLINE".to_owned())];
                        engine.post("statechange", &held.pool, &self.name, &fields);
                    }
                    Err(error) => outcome.warnings.push(refuse::of_pool(error, &self.name)),
                }
            }
        }
        // As in ZFS, whose history of commands posts no events.
        held.pool.log(caller.uid, false, &caller.command);
        Ok(outcome)
    }
}
