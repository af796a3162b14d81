//! `zpool destroy`.

use crate::api::{Outcome, PoolDestroy, PoolExport};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::engine::zpool::export::refuse_away;
use crate::engine::zpool::remove::tiles_left;
use crate::refusal::Refusal;

impl Verb for PoolDestroy {
    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let name = self.name.as_str();
        let held = engine.held_pool(name)?;
        if held.pool.is_read_only() {
            // As in ZFS. Nothing is written to its devices, so nothing is destroyed.
            let outcome = PoolExport { name: self.name, force: self.force }.run(engine, caller)?;
            return Ok(Outcome { touched: Vec::new(), ..outcome });
        }
        refuse_away(name, &held)?;
        let placed = engine.unmount_all(&held, name, self.force)?;
        held.recoveries.end();
        // An import of the destroyed pool shows it.
        engine.log(&held, caller);
        engine.harvest(name, &held.pool);
        let tiles = held.pool.devices().tiles_place();
        if let Err(error) = held.pool.destroy() {
            if held.pool.store_away().is_some() {
                held.pool.hold_writers();
                engine.mount_placed(&held, placed);
            }
            return Err(refuse::pool(error));
        }
        engine.post("pool_destroy", &held.pool, name, &[]);
        let mut outcome = engine.let_go(name, held)?;
        let why = "`zpool import -D` brings the pool back, and its parity device needs them";
        outcome.warnings.extend(tiles.map(|place| tiles_left(Some(&place), why)));
        Ok(outcome)
    }
}
