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
//! [audits.4] An audit by schedule asks in [`BATCHES`] batches, each at a moment of its part of the
//!     period that nobody can tell, with a seed of its own. A batch that is not held ends it. One
//!     whose period is over asks for all that is left at once.
//!     test: `a_schedule_asks_all_over_the_hour`
//! [audits.2] Each audit has a record that is durable before its outcome is told. A record that
//!     cannot be kept makes no audit fail.

use crate::agent;
use crate::api::{AuditOutcome, AuditStratum, LostContent};
use crate::audit_record::{AuditLog, AuditRecord, RecordedStratum, hex};
use crate::engine::audit_spread::{Asked, BATCHES, Spread};
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
use steadfast_pool::{Agent, AuditReport, PoolStatus, Samples, StratumReport};

/// Bytes of a cell.
const CELL: u32 = 4096;
/// Bits of the chance that a loss is found.
pub(super) const BITS: f64 = 40.0;
/// Time after which an audit that could not be made is tried again.
const AGAIN_S: u64 = 3600;

/// An agent beside the stores.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgentAt<'a> {
    /// `HOST:PORT`.
    pub address: &'a str,
    /// True if the stores are asked where it gives no answer; else no audit is made then.
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
        let mut asked = Asked::default();
        self.ask(held, samples.into(), agent, &mut asked)?;
        let outcome = self.told(held, asked)?;
        let Some(report) = outcome.1.filter(|report| files && !report.is_held()) else {
            return Ok(outcome.0);
        };
        Ok(AuditOutcome { content: content_of(held, &report), ..outcome.0 })
    }

    /// Asks for a batch of an audit, and adds it to those before.
    fn ask(
        &self,
        held: &ImportedPool,
        samples: Samples,
        agent: Option<AgentAt<'_>>,
        asked: &mut Asked,
    ) -> Result<(), Refusal> {
        let devices = held.pool.devices();
        let (begun, begun_wall, before) = (self.now_ns(), self.env.clock.wall_ns(), self.traffic(held));
        let mut ask = |_: &str, question: &Question| {
            agent::ask(agent.map(|agent| agent.address).unwrap_or_default(), question)
        };
        let agent = agent.map(|AgentAt { may_be_silent, .. }| Agent { ask: &mut ask, may_be_silent });
        let batch = devices.ask(samples, agent).map_err(refuse::pool)?;
        let none = Counts::default();
        let mut price = Some((0_u64, String::new()));
        for (address, counts) in self.traffic(held) {
            let counts = counts.since(before.get(&address).unwrap_or(&none));
            asked.counts = asked.counts.plus(&counts);
            let of_store = self.price_of_traffic(&address, &counts);
            price =
                price.zip(of_store).map(|((sum, _), (more, currency))| (sum.saturating_add(more), currency));
        }
        asked.nanos += self.now_ns().saturating_sub(begun);
        match &mut asked.report {
            Some(report) => {
                report.add(batch);
                let sum = asked.price.take().zip(price);
                asked.price = sum.map(|((sum, _), (more, currency))| (sum.saturating_add(more), currency));
            }
            None => {
                asked.begun_wall_ns = u64::try_from(begun_wall).unwrap_or(0);
                (asked.report, asked.price) = (Some(batch), price);
            }
        }
        Ok(())
    }

    /// Tells of an audit, and keeps a record of it [audits.2].
    fn told(
        &self,
        held: &ImportedPool,
        asked: Asked,
    ) -> Result<(AuditOutcome, Option<AuditReport>), Refusal> {
        let devices = held.pool.devices();
        let Some(report) = asked.report else { return Ok((AuditOutcome::default(), None)) };
        let signer = devices.audit_signer().map_err(refuse::pool)?;
        let (reads, read_bytes) = match report.by_device {
            true => (report.reads, report.read_bytes),
            false => (asked.counts.total(), asked.counts.bytes_in),
        };
        devices.note_audit(&report).map_err(refuse::pool)?;
        let record = AuditRecord {
            pool: held.pool.name(),
            guid: held.pool.guid().0,
            begun_ns: asked.begun_wall_ns,
            ended_ns: u64::try_from(self.env.clock.wall_ns()).unwrap_or(0),
            loss_ppm: report.loss_ppm,
            by_device: report.by_device,
            requests: reads,
            bytes_in: read_bytes,
            stored_bytes: Some(report.coverage.stored),
            covered_bytes: Some(report.coverage.covered),
            strata: report.strata.iter().map(recorded).collect(),
            ..AuditRecord::default()
        };
        // A pool without a secret has none.
        let kept = signer.map(|signer| self.audit_log(held, &signer).append(record, &signer)).transpose();
        let outcome = AuditOutcome {
            loss_ppm: report.loss_ppm,
            stored_bytes: report.coverage.stored,
            covered_bytes: report.coverage.covered,
            uncovered_objects: report.coverage.uncovered,
            strata: strata(&report),
            nanos: asked.nanos,
            by_device: report.by_device,
            absent: report.absent.clone(),
            locked: report.locked.clone(),
            requests: reads,
            bytes_in: read_bytes,
            price: asked.price.filter(|(_, currency)| !currency.is_empty()),
            record: kept.as_ref().ok().copied().flatten(),
            no_record: kept.err().map(|error| error.to_string()),
            content: None,
        };
        Ok((outcome, Some(report)))
    }

    /// The records of a pool that are signed with this key.
    pub(super) fn audit_log(&self, held: &ImportedPool, signer: &Signer) -> AuditLog {
        AuditLog::new(&self.runtime.audits(), held.pool.guid().0, &signer.public())
    }

    /// Asks the pools whose turn it is: each for the batches that are due [audits.4].
    pub fn audit_by_schedule(&self) {
        let pools: Vec<Arc<ImportedPool>> = self.pools.read().values().map(Arc::clone).collect();
        for held in pools {
            let Some(every) = every(&held) else { continue };
            let (name, now) = (held.pool.name(), self.now_s());
            let Some((behind_ns, age)) = held.pool.devices().last_audit() else { continue };
            let rests_until = self.policies.lock().audited.get(&name).copied().unwrap_or(0);
            if held.pool.suspended().is_some() || now < rests_until {
                continue;
            }
            let mut spread = self.policies.lock().spread.remove(&name).unwrap_or_default();
            if spread.behind_ns != behind_ns {
                // Another audit ended since, or none was ever made: a period begins.
                spread = Spread { behind_ns, next: self.moment_of(0, every), ..Spread::default() };
            }
            let asked = match spread.due(age, every) {
                None => Ok(()),
                Some(to) => self.ask_batches(&held, &mut spread, to, every),
            };
            let is_over = spread.is_over();
            let told = asked.and_then(|()| match is_over {
                true => self.told(&held, std::mem::take(&mut spread.asked)).map(|(outcome, _)| Some(outcome)),
                false => Ok(None),
            });
            let mut policies = self.policies.lock();
            if !is_over {
                policies.spread.insert(name.clone(), spread);
            }
            match told {
                Ok(None) => {}
                Ok(Some(outcome)) => {
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

    /// Asks for the batches of a period that were not asked for yet, up to one of them.
    fn ask_batches(
        &self,
        held: &ImportedPool,
        spread: &mut Spread,
        to: u32,
        every: Duration,
    ) -> Result<(), Refusal> {
        let samples: Samples = held.pool.devices().audit_samples(BITS).map_err(refuse::pool)?.into();
        let properties = held.pool.pool_props();
        let agent = properties.get("auditagent").filter(|agent| agent.as_str() != "none");
        let agent = agent.filter(|_| !spread.is_silent);
        let at = agent.map(|address| AgentAt { address, may_be_silent: true });
        let before = spread.asked.strata();
        self.ask(held, samples.batches(spread.done, to, BATCHES), at, &mut spread.asked)?;
        // One that was silent once is left alone until the next period.
        let report = spread.asked.report.as_ref();
        let batch = report.map_or(&[][..], |report| &report.strata[before..]);
        let is_answer = |stratum: &StratumReport| stratum.part == "agent" && stratum.held == stratum.samples;
        spread.is_silent |= agent.is_some() && !batch.iter().any(is_answer);
        (spread.done, spread.next) = (to, self.moment_of(to, every));
        Ok(())
    }

    /// A moment within a batch's part of a period, which no store can tell.
    fn moment_of(&self, batch: u32, every: Duration) -> Duration {
        let within = f64::from(u32::try_from(self.env.random.nonzero_u64() >> 32).expect("four bytes"))
            / 4_294_967_296.0;
        every.mul_f64((f64::from(batch) + within) / f64::from(BATCHES))
    }
}

/// Mean time between two questions for one byte, if the pool has a schedule.
pub(super) fn mean_interval(held: &ImportedPool, measured: &PoolStatus) -> Option<Duration> {
    let every = every(held)?;
    let samples = held.pool.devices().audit_samples(BITS).ok()?;
    let cells = match &measured.parity {
        Some(parity) => parity.figures.as_ref()?.cells,
        None => measured.audited?.cells,
    };
    let asked = f64::from(samples) * measured.leaves.len().max(1) as f64;
    Some(every.mul_f64(cells as f64 / asked))
}

/// Content in the cells that a report names as not held.
fn content_of(held: &ImportedPool, report: &AuditReport) -> Option<LostContent> {
    let of_store = report.strata.iter().filter_map(|stratum| Some((stratum.store?, stratum)));
    let named = of_store.flat_map(|(store, stratum)| {
        stratum.failed.iter().enumerate().flat_map(move |(at, (segment, place, _))| {
            let cells = match stratum.failed_bytes.get(at) {
                None => *place..*place + 1,
                Some(bytes) => *place / CELL..(*place + bytes).div_ceil(CELL),
            };
            let cells = cells.filter_map(|cell| u16::try_from(cell).ok());
            cells.map(move |cell| (store, SegmentId(*segment), cell))
        })
    });
    let cells: Vec<_> = named.collect();
    let content = held.pool.devices().content_in(&cells, &AtomicBool::new(false), &mut |_, _| ());
    content.map(|content| content_told(held, content))
}

fn strata(report: &AuditReport) -> Vec<AuditStratum> {
    let strata = report.strata.iter().map(|stratum| AuditStratum {
        device: stratum.device.clone(),
        part: stratum.part.to_owned(),
        cells: stratum.cells,
        samples: stratum.samples,
        held: stratum.held,
        failed: stratum.failed.clone(),
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
