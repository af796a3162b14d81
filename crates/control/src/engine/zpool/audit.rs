//! `steadfast audit`: stores are asked for what they should hold, and what they lost is put back.

use crate::api::{AuditOutcome, AuditStratum, PoolAudit, PoolRecover, RecoverOutcome};
use crate::caller::Caller;
use crate::engine::audits::BITS;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::Refusal;
use std::collections::BTreeMap;
use steadfast_bucket::Counts;

impl Verb for PoolAudit {
    /// It reads for a while, and changes nothing.
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<AuditOutcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        let devices = held.pool.devices();
        let samples = match self.samples {
            Some(samples) => samples,
            None => devices.audit_samples(BITS).map_err(refuse::pool)?,
        };
        let (begun, before) = (engine.now_ns(), engine.traffic(&held));
        let report = devices.audit(samples).map_err(refuse::pool)?;
        let nanos = engine.now_ns().saturating_sub(begun);
        let none = Counts::default();
        let mut all = Counts::default();
        let mut price = Some((0_u64, String::new()));
        let spent: BTreeMap<_, _> = engine.traffic(&held);
        for (address, counts) in spent {
            let counts = counts.since(before.get(&address).unwrap_or(&none));
            all = all.plus(&counts);
            let of_store = engine.price_of_traffic(&address, &counts);
            price =
                price.zip(of_store).map(|((sum, _), (more, currency))| (sum.saturating_add(more), currency));
        }
        let strata = report.strata.into_iter().map(|stratum| AuditStratum {
            device: stratum.device,
            part: stratum.part.to_owned(),
            cells: stratum.cells,
            samples: stratum.samples,
            held: stratum.held,
            failed: stratum.failed,
        });
        Ok(AuditOutcome {
            loss_ppm: report.loss_ppm,
            strata: strata.collect(),
            nanos,
            requests: all.total(),
            bytes_in: all.bytes_in,
            price: price.filter(|(_, currency)| !currency.is_empty()),
        })
    }
}

impl Verb for PoolRecover {
    fn run(self, engine: &Engine, caller: &Caller) -> Result<RecoverOutcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        let begun = engine.now_ns();
        let mut watch = |done: u64, of: u64| {
            let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
            engine.step("cells", count(done), count(of));
        };
        let recovered = held.pool.devices().recover(&mut watch).map_err(refuse::pool)?;
        let nanos = engine.now_ns().saturating_sub(begun);
        engine.log(&held, caller);
        let lost = recovered.lost.into_iter().map(|(store, segment, cell)| (store, segment.0, cell));
        Ok(RecoverOutcome {
            cells: recovered.cells,
            held: recovered.held,
            from_journal: recovered.from_journal,
            from_code: recovered.from_code,
            restored: recovered.restored.iter().map(|segment| segment.0).collect(),
            lost: lost.collect(),
            unsound: recovered.unsound,
            nanos,
            solving_nanos: u64::try_from(recovered.solving.as_nanos()).unwrap_or(u64::MAX),
        })
    }
}
