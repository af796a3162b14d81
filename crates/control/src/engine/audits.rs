//! Audits of pools, by command and by schedule (the property `audit`), and their records.
//!
//! An audit is due if the last one ended so long ago; the pool's root tells when that was. So a
//! daemon that did not run asks when it starts. The outcome is an event, on which a hook can act,
//! and `zpool status` shows it.
//!
//! [audits.1] An audit that could not be made is tried again an hour later: each try costs
//!     requests.
//! [audits.3] An audit by schedule whose agent gives no answer asks the stores, and says so in an
//!     event: silence of an agent is no loss of a store.
//!     test: `a_schedule_asks_an_agent_and_the_store_if_that_is_silent`
//! [audits.2] Each audit has a record that is durable before its outcome is told. A record that
//!     cannot be kept makes no audit fail.

use crate::agent;
use crate::api::{AuditOutcome, AuditStratum, LostContent};
use crate::audit_record::{AuditLog, AuditRecord, RecordedStratum, hex};
use crate::engine::recoveries::content_told;
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool};
use crate::refusal::Refusal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use steadfast_bucket::Counts;
use steadfast_crypto::Signer;
use steadfast_format::SegmentId;
use steadfast_pool::agent::Question;
use steadfast_pool::{Agent, AuditReport, StratumReport};

/// Bits of the chance that a loss is found.
pub(super) const BITS: f64 = 40.0;
/// Time after which an audit that could not be made is tried again.
const AGAIN_S: u64 = 3600;

/// An agent beside the stores.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgentAt<'a> {
    /// `HOST:PORT`.
    pub address: &'a str,
    /// True if no answer is no failure: the stores are asked.
    pub may_be_silent: bool,
}

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
    /// Audits a pool, with so many samples of each store, by an agent at an address if there is
    /// one, and keeps a record [audits.2]. With `files` it names those in cells that are not held.
    pub(super) fn audit(
        &self,
        held: &ImportedPool,
        samples: Option<u32>,
        agent: Option<AgentAt<'_>>,
        files: bool,
    ) -> Result<AuditOutcome, Refusal> {
        let devices = held.pool.devices();
        let samples = match samples {
            Some(samples) => samples,
            None => devices.audit_samples(BITS).map_err(refuse::pool)?,
        };
        let signer = devices.audit_signer().map_err(refuse::pool)?;
        let (begun, begun_wall, before) = (self.now_ns(), self.env.clock.wall_ns(), self.traffic(held));
        let mut ask = |_: &str, question: &Question| {
            agent::ask(agent.map(|agent| agent.address).unwrap_or_default(), question)
        };
        let agent = agent.map(|AgentAt { may_be_silent, .. }| Agent { ask: &mut ask, may_be_silent });
        let report = devices.audit_by(samples, agent).map_err(refuse::pool)?;
        let nanos = self.now_ns().saturating_sub(begun);
        let none = Counts::default();
        let mut all = Counts::default();
        let mut price = Some((0_u64, String::new()));
        for (address, counts) in self.traffic(held) {
            let counts = counts.since(before.get(&address).unwrap_or(&none));
            all = all.plus(&counts);
            let of_store = self.price_of_traffic(&address, &counts);
            price =
                price.zip(of_store).map(|((sum, _), (more, currency))| (sum.saturating_add(more), currency));
        }
        let record = AuditRecord {
            pool: held.pool.name(),
            guid: held.pool.guid().0,
            begun_ns: u64::try_from(begun_wall).unwrap_or(0),
            ended_ns: u64::try_from(self.env.clock.wall_ns()).unwrap_or(0),
            loss_ppm: report.loss_ppm,
            requests: all.total(),
            bytes_in: all.bytes_in,
            stored_bytes: Some(report.coverage.stored),
            covered_bytes: Some(report.coverage.covered),
            strata: report.strata.iter().map(recorded).collect(),
            ..AuditRecord::default()
        };
        let kept = self.audit_log(held, &signer).append(record, &signer);
        let content = if files && !report.is_held() { content_of(held, &report) } else { None };
        Ok(AuditOutcome {
            loss_ppm: report.loss_ppm,
            stored_bytes: report.coverage.stored,
            covered_bytes: report.coverage.covered,
            uncovered_objects: report.coverage.uncovered,
            strata: strata(report),
            nanos,
            requests: all.total(),
            bytes_in: all.bytes_in,
            price: price.filter(|(_, currency)| !currency.is_empty()),
            record: kept.as_ref().ok().copied(),
            no_record: kept.err().map(|error| error.to_string()),
            content,
        })
    }

    /// The records of a pool that are signed with this key.
    pub(super) fn audit_log(&self, held: &ImportedPool, signer: &Signer) -> AuditLog {
        AuditLog::new(&self.runtime.audits(), held.pool.guid().0, &signer.public())
    }

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
            let properties = held.pool.pool_props();
            let agent = properties.get("auditagent").filter(|agent| agent.as_str() != "none");
            let agent = agent.map(|address| AgentAt { address, may_be_silent: true });
            let audited = self.audit(&held, None, agent, false);
            let mut policies = self.policies.lock();
            match audited {
                Ok(outcome) => {
                    policies.audited.remove(&name);
                    if let Some(reason) = outcome.no_record {
                        policies.say(&name, format!("no record of an audit was kept: {reason}"));
                    }
                }
                Err(error) => {
                    policies.say(&name, error.what);
                    policies.audited.insert(name, now + AGAIN_S);
                }
            }
        }
    }
}

/// Content in the cells that a report names as not held.
fn content_of(held: &ImportedPool, report: &AuditReport) -> Option<LostContent> {
    let of_store = report.strata.iter().filter_map(|stratum| Some((stratum.store?, &stratum.failed)));
    let named = of_store.flat_map(|(store, failed)| {
        failed.iter().filter_map(move |(segment, cell, _)| {
            Some((store, SegmentId(*segment), u16::try_from(*cell).ok()?))
        })
    });
    let cells: Vec<_> = named.collect();
    let content = held.pool.devices().content_in(&cells, &AtomicBool::new(false), &mut |_, _| ());
    content.map(|content| content_told(held, content))
}

fn strata(report: AuditReport) -> Vec<AuditStratum> {
    let strata = report.strata.into_iter().map(|stratum| AuditStratum {
        device: stratum.device,
        part: stratum.part.to_owned(),
        cells: stratum.cells,
        samples: stratum.samples,
        held: stratum.held,
        failed: stratum.failed,
    });
    strata.collect()
}

fn recorded(stratum: &StratumReport) -> RecordedStratum {
    let asked = stratum.asked.as_ref();
    RecordedStratum {
        device: stratum.device.clone(),
        part: stratum.part.to_owned(),
        seed: asked.map(|asked| hex(&asked.seed)),
        generation: asked.map(|asked| asked.generation),
        list: asked.map(|asked| hex(&asked.list)),
        cells: stratum.cells,
        samples: stratum.samples,
        answers: asked.map(|asked| hex(&asked.answers)),
        held: stratum.held,
        failed: stratum.failed.clone(),
    }
}
