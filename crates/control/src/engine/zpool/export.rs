//! `zpool export`.

use crate::api::{Outcome, PoolExport};
use crate::caller::Caller;
use crate::engine::reports::devices::gone;
use crate::engine::state::{Engine, ImportedPool, touched};
use crate::engine::verb::Verb;
use crate::engine::zpool::status::away;
use crate::engine::{refuse, sweeps};
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
        if self.force {
            held.pool.give_up_waiting();
        } else {
            refuse_away(name, &held)?;
            check_names_last(name, &held)?;
        }
        let placed = engine.unmount_all(&held, name, self.force)?;
        engine.log(&held, caller);
        sweeps::write_down(&held);
        held.recoveries.end();
        let is_suspended = held.pool.suspended().is_some();
        if let Err(error) = held.pool.export() {
            match held.pool.store_away() {
                // The pool goes on when the store is back.
                Some(_) => {
                    held.pool.hold_writers();
                    engine.mount_placed(&held, placed);
                    return Err(refuse::pool(error));
                }
                // Its commit failed, and the pool is given up.
                None if self.force && held.pool.suspended().is_some() => {
                    held.pool.export().map_err(refuse::pool)?;
                }
                None => return Err(refuse::pool(error)),
            }
        }
        if is_suspended {
            engine.given_up.lock().insert(held.pool.guid().0);
        }
        engine.harvest(name, &held.pool);
        engine.post("pool_export", &held.pool, name, &[]);
        engine.let_go(name, held)
    }
}

/// Refuses to close a pool that waits for a store: what it has not committed would be lost.
pub(in crate::engine) fn refuse_away(pool: &str, held: &ImportedPool) -> Result<(), Refusal> {
    held.pool.store_away().map_or(Ok(()), |outage| Err(away(pool, &outage)))
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
