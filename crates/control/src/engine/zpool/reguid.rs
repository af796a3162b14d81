//! `zpool reguid`.

use crate::api::{Outcome, PoolReguid};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};
use steadfast_format::PoolGuid;

impl Verb for PoolReguid {
    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        held.refuse_recovering()?;
        if let Some(guid) = self.guid {
            let is_taken = |held: &ImportedPool| held.pool.guid().0 == guid;
            let pools = engine.pools.read();
            if let Some((name, _)) = pools.iter().find(|(_, held)| is_taken(held)) {
                let what = format!("the pool '{name}' has the GUID {guid}");
                return Err(Refusal::new(Code::PoolExists, what).with("pool", name));
            }
        }
        held.pool.reguid(self.guid.map(PoolGuid)).map_err(|error| refuse::of_pool(error, &self.name))?;
        engine.post("pool_reguid", &held.pool, &self.name, &[]);
        engine.log(&held, caller);
        let warnings = engine.remember().err().into_iter().collect();
        Ok(Outcome { touched: vec![self.name.clone()], warnings })
    }
}
