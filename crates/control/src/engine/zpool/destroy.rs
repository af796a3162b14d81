//! `zpool destroy`.

use crate::api::{Outcome, PoolDestroy};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::engine::zpool::export::refuse_away;
use crate::refusal::{Code, Refusal};

impl Verb for PoolDestroy {
    fn run(self, engine: &Engine, _: &Caller) -> Result<Outcome, Refusal> {
        let name = self.name.as_str();
        let held = engine.held_pool(name)?;
        if held.pool.is_read_only() {
            let what = "the pool is imported read-only, so its devices cannot be marked as destroyed";
            return Err(Refusal::new(Code::PoolReadonly, what).with("pool", name));
        }
        refuse_away(name, &held)?;
        let placed = engine.unmount_all(&held, name, self.force)?;
        engine.harvest(name, &held.pool);
        if let Err(error) = held.pool.destroy() {
            if held.pool.store_away().is_some() {
                held.pool.hold_writers();
                engine.mount_placed(&held, placed);
            }
            return Err(refuse::pool(error));
        }
        engine.post("pool_destroy", &held.pool, name, &[]);
        engine.let_go(name, held)
    }
}
