//! `steadfast audit`: stores are asked for what they should hold, and what they lost is put back.

use crate::api::{AuditOutcome, AuditRecords, PoolAudit, PoolAuditRecords, PoolRecover, RecoverOutcome};
use crate::audit_record::hex;
use crate::caller::Caller;
use crate::engine::audits::AgentAt;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::memory::machine_bytes;
use crate::refusal::Refusal;

impl Verb for PoolAudit {
    /// It reads for a while, and changes nothing.
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<AuditOutcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        let agent = self.agent.as_deref().map(|address| AgentAt { address, may_be_silent: false });
        engine.audit(&held, self.samples, agent)
    }
}

impl Verb for PoolAuditRecords {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<AuditRecords, Refusal> {
        let held = engine.held_pool(&self.name)?;
        let signer = held.pool.devices().audit_signer().map_err(refuse::pool)?;
        let log = engine.audit_log(&held, &signer);
        Ok(AuditRecords { key: hex(&signer.public()), lines: log.lines() })
    }
}

impl Verb for PoolRecover {
    fn run(self, engine: &Engine, caller: &Caller) -> Result<RecoverOutcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        let begun = engine.now_ns();
        let memory = self.memory.unwrap_or_else(|| machine_bytes() / 4);
        let mut watch = |done: u64, of: u64| {
            let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
            engine.step("cells", count(done), count(of));
        };
        let recovered = held.pool.devices().recover(memory, &mut watch).map_err(refuse::pool)?;
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
            rounds: recovered.rounds,
            nanos,
            solving_nanos: u64::try_from(recovered.solving.as_nanos()).unwrap_or(u64::MAX),
        })
    }
}
