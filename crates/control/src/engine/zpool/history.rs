//! `zpool history`.

use crate::api::{HistoryRecord, PoolHistory, PoolPast};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::Refusal;

impl Verb for PoolHistory {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<Vec<PoolPast>, Refusal> {
        let mut pasts = Vec::new();
        for (name, held) in engine.select(&self.names)? {
            let entries = held.pool.history().map_err(refuse::pool)?;
            let record = |entry: steadfast_format::HistoryEntry| HistoryRecord {
                time: entry.time_ns / 1_000_000_000,
                txg: Some(entry.txg.0),
                internal: entry.internal,
                text: entry.text,
                uid: entry.uid,
                host: entry.host,
            };
            pasts.push(PoolPast { name, records: entries.into_iter().map(record).collect() });
        }
        Ok(pasts)
    }
}
