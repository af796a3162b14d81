//! `zpool set`.

use crate::api::{Outcome, PoolSet};
use crate::caller::Caller;
use crate::check::exact;
use crate::engine::pool_properties::set_property;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::refusal::Refusal;
use steadfast_property::{Change, Scope};

impl Verb for PoolSet {
    fn check(&mut self) -> Result<(), Refusal> {
        self.properties = exact(Scope::Pool, &self.properties, &[Change::Anytime])?;
        Ok(())
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held(&self.name)?;
        for (name, value) in &self.properties {
            set_property(&held.pool, name, value)?;
            let fields = [("property", name.clone()), ("value", value.clone())];
            engine.post("property_change", &held.pool, &self.name, &fields);
        }
        // A budget that was raised lets go at once.
        engine.look_at_costs();
        engine.log(&held, caller);
        Ok(touched(&self.name))
    }
}
