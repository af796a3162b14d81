//! `zpool export`.

use crate::api::{Outcome, PoolExport};
use crate::caller::Caller;
use crate::engine::reports::devices::gone;
use crate::engine::state::{Engine, ImportedPool, touched};
use crate::engine::verb::Verb;
use crate::engine::zpool::status::{away, suspension};
use crate::engine::{refuse, sweeps};
use crate::refusal::{Code, Refusal};
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
            engine.refuse_suspended(name, &held)?;
        }
        let placed = engine.unmount_all(&held, name, self.force)?;
        engine.log(&held, caller);
        sweeps::write_down(&held);
        held.recoveries.end();
        // A commit that waited fails now, so that later it is suspended for good.
        let was_suspended = held.pool.suspended().is_some();
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
        let mut lost = None;
        if was_suspended || held.pool.suspended().is_some() {
            engine.given_up.lock().insert(held.pool.guid().0);
            lost = Some(engine.tell_lost(name, &held));
        }
        engine.harvest(name, &held.pool);
        engine.post("pool_export", &held.pool, name, &[]);
        let mut outcome = engine.let_go(name, held)?;
        outcome.warnings.splice(0..0, lost);
        Ok(outcome)
    }
}

/// How to close a pool that waits for room.
const GIVE_UP: &str = "Free space there: the pool then resumes within a second, and has lost nothing. `zpool export -f {pool}` gives up what was not committed.";

impl Engine {
    /// Refuses to close a suspended pool unless that is asked for by force: what it has not
    /// committed would be lost.
    pub(in crate::engine) fn refuse_suspended(&self, name: &str, held: &ImportedPool) -> Result<(), Refusal> {
        let Some(mut refusal) = suspension(name, held, &held.pool.state()) else { return Ok(()) };
        refusal.what += &format!("; an export loses {}", self.uncommitted(held));
        let is_full = refusal.code == Code::HostFull;
        Err(if is_full { refusal.advising(GIVE_UP).with("pool", name) } else { refusal })
    }

    /// Tells, by an event and by a warning, that a pool was closed without its last changes.
    pub(in crate::engine) fn tell_lost(&self, name: &str, held: &ImportedPool) -> Refusal {
        let what = format!("'{name}' was suspended, and {} are lost", self.uncommitted(held));
        let (txg, committed_ns) = held.pool.last_commit();
        let notice = ("notice", what.clone());
        let fields = [notice, ("txg", txg.0.to_string()), ("committed_ns", committed_ns.to_string())];
        self.post("changes_lost", &held.pool, name, &fields);
        Refusal::new(Code::ChangesLost, what).with("pool", name)
    }

    fn uncommitted(&self, held: &ImportedPool) -> String {
        let (txg, committed_ns) = held.pool.last_commit();
        let now_ns = u64::try_from(self.env.clock.wall_ns()).unwrap_or(0);
        let seconds = now_ns.saturating_sub(committed_ns) / 1_000_000_000;
        format!(
            "the changes since its last commit (txg {txg}, {seconds} s ago) that fsync did not make durable"
        )
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
