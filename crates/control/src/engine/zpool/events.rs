//! `zpool events`.

use crate::api::{Outcome, PoolEvent, PoolEvents, PoolEventsClear};
use crate::caller::Caller;
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};
use std::sync::Arc;

impl Verb for PoolEvents {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<Vec<PoolEvent>, Refusal> {
        let held: Vec<(String, Arc<ImportedPool>)> =
            engine.pools.read().iter().map(|(name, held)| (name.clone(), Arc::clone(held))).collect();
        for (name, held) in &held {
            engine.harvest(name, &held.pool);
        }
        let ring = engine.events.lock();
        if let Some(name) = &self.name {
            let known = held.iter().any(|(held, _)| held == name)
                || ring.all().any(|event| event.pool.as_ref() == Some(name));
            if !known {
                let what = format!("there is no pool '{name}', and no event names it");
                return Err(Refusal::new(Code::PoolAbsent, what).with("pool", name));
            }
        }
        let wanted =
            |event: &&PoolEvent| event.eid > self.after && (self.name.is_none() || event.pool == self.name);
        Ok(ring.all().filter(wanted).cloned().collect())
    }
}

impl Verb for PoolEventsClear {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<Outcome, Refusal> {
        // Hooks and the log have them before they are forgotten.
        engine.relay_events();
        let gone = engine.forget_events()?;
        Ok(Outcome { touched: gone, warnings: Vec::new() })
    }
}
