//! `zpool export`.

use crate::api::{Outcome, PoolExport};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::reports::devices::gone;
use crate::engine::state::{Engine, ImportedPool, touched};
use crate::engine::verb::Verb;
use crate::refusal::Refusal;
use steadfast_pool::{LeafStatus, Presence};

impl Verb for PoolExport {
    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let name = self.name.as_str();
        let lost = engine.lost.lock().remove(name);
        if let Some(lost) = lost {
            engine.given_up.lock().insert(lost.pool.guid);
            engine.remember()?;
            return Ok(touched(name));
        }
        let held = engine.held_pool(name)?;
        if !self.force {
            check_names_last(name, &held)?;
        }
        engine.unmount_all(&held, name, self.force)?;
        engine.log(&held, caller);
        let is_suspended = held.pool.suspended().is_some();
        held.pool.export().map_err(refuse::pool)?;
        if is_suspended {
            engine.given_up.lock().insert(held.pool.guid().0);
        }
        engine.harvest(name, &held.pool);
        engine.post("pool_export", &held.pool, name, &[]);
        engine.let_go(name, held)
    }
}

/// Refuses to close a pool with a deleted device file: its data exists only while the file is open.
pub(in crate::engine) fn check_names_last(pool: &str, held: &ImportedPool) -> Result<(), Refusal> {
    let leaves = held.pool.state().leaves;
    let is_lost = |leaf: &&LeafStatus| {
        // A group may have enough redundancy; status reports it.
        leaf.presence == Presence::Removed && leaf.config.group == 0
    };
    match leaves.iter().find(is_lost) {
        Some(leaf) => {
            let mut refusal = gone(pool, leaf);
            refusal.what.push_str("; its data would be lost if the pool closed it");
            Err(refusal)
        }
        None => Ok(()),
    }
}
