//! `steadfast audit`: stores, files and disks are asked for what they should hold, and what stores
//! lost is put back.

use crate::api::{
    AuditOutcome, AuditRecords, PoolAudit, PoolAuditRecords, PoolRecover, PoolRecovery, RecoveryState,
};
use crate::audit_record::hex;
use crate::caller::Caller;
use crate::check::check_loss;
use crate::engine::audits::AgentAt;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::engine::{recoveries, refuse};
use crate::memory::machine_bytes;
use crate::refusal::{Code, Refusal};
use std::time::Duration;

/// Longest wait of one request: `daemon stop` waits for running requests.
const PATIENCE_MAX: Duration = Duration::from_millis(500);

impl Verb for PoolAudit {
    /// It reads for a while, and changes nothing.
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<AuditOutcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        let agent = self.agent.as_deref().map(|address| AgentAt { address, may_be_silent: false });
        engine.audit(&held, self.samples, agent, self.files)
    }
}

impl Verb for PoolAuditRecords {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<AuditRecords, Refusal> {
        let held = engine.held_pool(&self.name)?;
        let Some(signer) = held.pool.devices().audit_signer().map_err(refuse::pool)? else {
            let what = format!("audits of '{}' leave no records", self.name);
            return Err(Refusal::new(Code::AuditUnsigned, what).with("pool", self.name));
        };
        let log = engine.audit_log(&held, &signer);
        Ok(AuditRecords { key: hex(&signer.public()), lines: log.lines() })
    }
}

impl Verb for PoolRecover {
    fn check(&mut self) -> Result<(), Refusal> {
        check_loss(self.loss_ppm)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<RecoveryState, Refusal> {
        let held = engine.held_pool(&self.name)?;
        let memory = self.memory.unwrap_or_else(|| machine_bytes() / 4);
        let begun = recoveries::begin(&held, &engine.env, memory, (self.rekey, self.loss_ppm))?;
        engine.log(&held, caller);
        Ok(begun)
    }
}

impl Verb for PoolRecovery {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<RecoveryState, Refusal> {
        let held = engine.held_pool(&self.name)?;
        if self.stop && !held.recoveries.stop() {
            let what = "no recovery of the pool is under way";
            return Err(Refusal::new(Code::RecoveryNone, what).with("pool", self.name));
        }
        Ok(held.recoveries.look(Duration::from_millis(self.patience_ms).min(PATIENCE_MAX)))
    }
}
