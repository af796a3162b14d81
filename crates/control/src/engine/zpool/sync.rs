//! `zpool sync`: what programs have written is committed now.

use crate::api::{Outcome, PoolSync};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::refusal::Refusal;
use std::sync::{Arc, mpsc};
use std::time::Duration;

impl Verb for PoolSync {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        for (name, held) in engine.select(&self.names)? {
            // Pages that the kernel holds back were written before, too.
            outcome.warnings.extend(held.settle(|_| true));
            held.pool.sync().map_err(refuse::pool)?;
            outcome.touched.push(name);
        }
        Ok(outcome)
    }
}

/// How long `sync(2)` waits for a pool. One that cannot commit, because its devices or its bucket
/// are away, would hold up every `sync(2)` of the host for as long as they are.
const PATIENCE: Duration = Duration::from_secs(60);

impl Engine {
    /// Makes all changes of all pools durable, side by side, and waits for them for a minute.
    pub(in crate::engine) fn sync_all(&self) {
        let pools: Vec<Arc<ImportedPool>> = self.pools.read().values().cloned().collect();
        // Nobody waits for what is known to be away.
        let pools = pools.into_iter().filter(|held| {
            !held.pool.is_read_only() && held.pool.suspended().is_none() && held.pool.store_away().is_none()
        });
        let (done, ended) = mpsc::channel::<()>();
        for held in pools {
            let done = done.clone();
            let job = Box::new(move || {
                // `sync(2)` has no error. Of pages that cannot be written `fsync` tells, and a pool
                // that cannot commit suspends and tells of it.
                let _ = (held.settle(|_| true), held.pool.sync());
                drop(done);
            });
            drop(self.env.tasks.spawn("sync", job));
        }
        drop(done);
        // Nobody sends: it ends with the last of them.
        let _ = ended.recv_timeout(PATIENCE);
    }
}
