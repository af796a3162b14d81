//! Audits by schedule: the property `audit` of a pool.
//!
//! An audit is due if the last one ended so long ago; the pool's root tells when that was. So a
//! daemon that did not run asks when it starts. The outcome is an event, on which a hook can act,
//! and `zpool status` shows it.
//!
//! [audits.1] An audit that could not be made is tried again an hour later: each try costs
//!     requests.

use crate::engine::state::{Engine, ImportedPool};
use std::sync::Arc;
use std::time::Duration;

/// Bits of the chance that a loss is found.
pub(super) const BITS: f64 = 40.0;
/// Time after which an audit that could not be made is tried again.
const AGAIN_S: u64 = 3600;

/// Time between two audits of a pool, if it has a schedule.
fn every(held: &ImportedPool) -> Option<Duration> {
    let hours = match held.pool.pool_props().get("audit")?.as_str() {
        "hourly" => 1,
        "daily" => 24,
        "weekly" => 7 * 24,
        _ => return None,
    };
    Some(Duration::from_secs(hours * 3600))
}

impl Engine {
    /// Audits the pools whose turn it is.
    pub fn audit_by_schedule(&self) {
        let pools: Vec<Arc<ImportedPool>> = self.pools.read().values().map(Arc::clone).collect();
        for held in pools {
            let Some(every) = every(&held) else { continue };
            let (name, now, devices) = (held.pool.name(), self.now_s(), held.pool.devices());
            if held.pool.suspended().is_some() || !devices.is_audit_due(every) {
                continue;
            }
            let rests_until = self.policies.lock().audited.get(&name).copied().unwrap_or(0);
            if now < rests_until {
                continue;
            }
            let audited = devices.audit_samples(BITS).and_then(|samples| devices.audit(samples));
            let mut policies = self.policies.lock();
            match audited {
                Ok(_) => _ = policies.audited.remove(&name),
                Err(error) => {
                    policies.say(&name, error.to_string());
                    policies.audited.insert(name, now + AGAIN_S);
                }
            }
        }
    }
}
