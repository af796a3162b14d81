//! `zpool ddtprune`.

use crate::api::{PoolDdtPrune, Pruned};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};

impl Verb for PoolDdtPrune {
    fn run(self, engine: &Engine, caller: &Caller) -> Result<Pruned, Refusal> {
        let PoolDdtPrune { name, days, percent } = &self;
        if days.is_some() == percent.is_some() || percent.is_some_and(|percent| percent > 100) {
            let what = "give either a number of days, or 1 to 100 percent";
            return Err(Refusal::new(Code::PropValue, what).with("pool", name));
        }
        let held = engine.held_pool(name)?;
        let blocks = held.pool.prune_known(*days, *percent);
        let blocks = blocks.map_err(|error| refuse::of_pool(error, name))?;
        engine.log(&held, caller);
        Ok(Pruned { blocks })
    }
}
