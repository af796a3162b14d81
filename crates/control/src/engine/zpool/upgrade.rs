//! `zpool upgrade`: enables features.

use crate::api::{Outcome, PoolUpgrade};
use crate::caller::Caller;
use crate::engine::pool_properties::missing_features;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::Refusal;

impl Verb for PoolUpgrade {
    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        for (name, held) in engine.select(&self.names)? {
            let missing = missing_features(&held);
            for feature in &missing {
                held.pool.enable_feature(feature).map_err(refuse::pool)?;
                engine.post("feature_enable", &held.pool, &name, &[("feature", (*feature).to_owned())]);
                outcome.touched.push(format!("{name} {feature}"));
            }
            if !missing.is_empty() {
                engine.log(&held, caller);
            }
        }
        Ok(outcome)
    }
}
