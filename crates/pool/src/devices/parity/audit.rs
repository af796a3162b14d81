//! Audits: each store is asked for cells, and so is that of the tiles.

use super::{LOSS_PPM, reading, store_number};
use crate::core::error::{Error, Result};
use crate::core::events::EventKind;
use crate::devices::audit_report::{Asked, AuditReport, Coverage, Samples, StratumReport};
use crate::devices::state::Devices;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use steadfast_crypto::Signer;
use steadfast_por::agent::Question;
use steadfast_por::audit::Fault;
use steadfast_por::{Audit, Part, Payload, TileStore, bound, tile_store};

/// Failed cells that a report names.
const NAMED_MAX: usize = 64;

/// Why an agent gave no sum.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NoSum {
    /// It cannot be reached, or says nothing of use: this tells nothing of the store.
    Silent(String),
    /// It says why it has none.
    Refused(String),
}

/// Carries a question to the agent beside a store, which is named.
pub type AskAgent<'a> = &'a mut dyn FnMut(&str, &Question) -> std::result::Result<Box<Payload>, NoSum>;

/// An agent beside the stores.
pub struct Agent<'a> {
    /// Way to it.
    pub ask: AskAgent<'a>,
    /// True if the stores are asked where it gives no answer, and an event tells of it; else no
    /// audit is made then ([`Error::AgentSilent`]).
    pub may_be_silent: bool,
}

impl Devices {
    /// When the last audit ended, in nanoseconds since 1970 (0: there was none), and how long ago;
    /// `None` if none can be made now.
    #[must_use]
    pub fn last_audit(&self) -> Option<(u64, Duration)> {
        if self.is_audited_by_device() {
            let last = self.scans.audited.lock().last.map_or(0, |last| last.audited_ns);
            let age = Duration::from_nanos(self.core.now_ns().saturating_sub(last));
            return (!self.core.is_sparing()).then_some((last, age));
        }
        let parity = self.parity().filter(|parity| parity.code.is_ok() && !self.core.is_sparing())?;
        let last = parity.standing.lock().audited_ns;
        Some((last, Duration::from_nanos(self.core.now_ns().saturating_sub(last))))
    }

    /// Samples after which a store that lacks half of what the code gives back is found out but for
    /// one case in 2^`bits`, or a file or disk of which 1 % of the bytes are bad.
    pub fn audit_samples(&self, bits: f64) -> Result<u32> {
        if self.is_audited_by_device() {
            return Ok(bound::samples(f64::from(LOSS_PPM) / 2e6, bits));
        }
        let (_, code) = self.code()?;
        let loss = f64::from(reading(&code).figures().loss_ppm) / 1e6;
        Ok(bound::samples(loss / 2.0, bits))
    }

    /// Signs records of audits; `None` if the pool has no secret to sign with.
    pub fn audit_signer(&self) -> Result<Option<Arc<Signer>>> {
        if self.is_audited_by_device() {
            return Ok(self.device_audit_signer());
        }
        let (_, code) = self.code()?;
        let signer = Arc::clone(reading(&code).signer());
        Ok(Some(signer))
    }

    /// Refuses if there is no code that could give something back.
    pub fn check_code(&self) -> Result<()> {
        self.code().map(|_| ())
    }

    /// Asks each store for so many cells, drawn at random, for some of the newest, and the parity
    /// for some of its tiles. The next root tells of the outcome.
    pub fn audit(&self, samples: u32) -> Result<AuditReport> {
        self.audit_by(samples, None)
    }

    /// Like [`Devices::audit`]. An agent beside the stores, if there is one, is asked first; a
    /// store of which it gives no proof is asked by ranged reads, which name the cells.
    pub fn audit_by(&self, samples: u32, agent: Option<Agent<'_>>) -> Result<AuditReport> {
        let report = self.ask(samples.into(), agent)?;
        self.note_audit(&report)?;
        Ok(report)
    }

    /// Asks for a batch of an audit. Nothing tells of its outcome before [`Devices::note_audit`].
    pub fn ask(&self, samples: Samples, agent: Option<Agent<'_>>) -> Result<AuditReport> {
        // An agent stands beside a store.
        if self.is_audited_by_device() && agent.as_ref().is_none_or(|agent| agent.may_be_silent) {
            return self.ask_devices(samples);
        }
        let (parity, code) = self.code()?;
        let failed = self.parity_error(&parity);
        let random = &*self.core.env.random;
        let mut strata = Vec::new();
        // Before cells are drawn: what comes in meanwhile may be asked for, and is not promised.
        let coverage = self.coverage();
        let (mut agent, mut is_silent) = (agent, false);
        for leaf in self.leaves() {
            let Some(store) = &leaf.covered else { continue };
            // One that was silent once is not waited for again.
            if let Some(Agent { ask, may_be_silent }) = agent.as_mut().filter(|_| !is_silent) {
                let mut silence = None;
                let audit = store.audit_by_agent(samples.all, random, &mut |question| {
                    let answer = ask(&leaf.path(), question);
                    silence = match &answer {
                        Err(NoSum::Silent(reason)) => Some(reason.clone()),
                        Err(NoSum::Refused(_)) | Ok(_) => None,
                    };
                    answer.map_err(|no| match no {
                        NoSum::Refused(reason) | NoSum::Silent(reason) => reason,
                    })
                });
                let Some(audit) = audit.map_err(&failed)? else { continue };
                let is_proof = audit.problem.is_none();
                is_silent = silence.is_some();
                match silence {
                    Some(reason) if !*may_be_silent => {
                        return Err(Error::AgentSilent { pool: self.core.name(), reason });
                    }
                    Some(reason) => {
                        self.core.events.note(EventKind::AgentSilent { device: leaf.path(), reason });
                    }
                    None => {}
                }
                let told = (!is_silent).then(|| StratumReport {
                    device: leaf.path(),
                    part: "agent",
                    store: None,
                    cells: audit.cells,
                    samples: samples.all,
                    held: if is_proof { samples.all } else { 0 },
                    failed: audit.problem.into_iter().map(|reason| (0, 0, reason)).collect(),
                    failed_bytes: Vec::new(),
                    asked: Some(Asked {
                        seed: audit.challenge.seed,
                        generation: audit.challenge.generation,
                        list: audit.list,
                        answers: audit.answers,
                    }),
                });
                strata.extend(told);
                if is_proof {
                    continue;
                }
            }
            let parts = [(Part::All, "all", samples.all), (Part::Newest, "newest", samples.newest)];
            for (part, name, samples) in parts.into_iter().filter(|(.., samples)| *samples > 0) {
                let Some(audit) = store.audit(part, samples, random).map_err(&failed)? else { continue };
                if audit.cells == 0 {
                    continue;
                }
                let store = Some(store_number(leaf.id()));
                strata.push(StratumReport { store, ..told(leaf.path(), name, &audit) });
            }
        }
        let (bodies, figures) = {
            let code = reading(&code);
            (tile_store(&code), code.figures())
        };
        // Tiles at a store are asked for as cells of their objects.
        if let Some(bodies) = bodies {
            strata.extend(self.ask_tiles(&bodies, figures.loss_ppm, samples).map_err(&failed)?);
            return Ok(AuditReport {
                loss_ppm: figures.loss_ppm,
                coverage,
                strata,
                ..AuditReport::default()
            });
        }
        let damaged = reading(&code).audit_tiles(samples.tiles, random).map_err(&failed)?;
        let lost = u32::try_from(damaged.len()).expect("as many as samples");
        let tiles = StratumReport {
            device: parity.path.clone(),
            part: "tiles",
            store: None,
            cells: u64::from(figures.tiles),
            samples: samples.tiles,
            held: samples.tiles - lost,
            failed: damaged.into_iter().map(|tile| (u64::from(tile), 0, "damaged".to_owned())).collect(),
            failed_bytes: Vec::new(),
            asked: None,
        };
        strata.extend(Some(tiles).filter(|tiles| tiles.samples > 0));
        Ok(AuditReport { loss_ppm: figures.loss_ppm, coverage, strata, ..AuditReport::default() })
    }

    /// Asks the store of the tiles for cells of them. If less of them may be lost than of the
    /// content, as many more.
    fn ask_tiles(
        &self,
        bodies: &TileStore,
        loss_ppm: u32,
        samples: Samples,
    ) -> std::result::Result<Option<StratumReport>, steadfast_por::parity::Error> {
        let more = u64::from(loss_ppm).max(u64::from(bodies.loss_ppm()));
        let samples = u64::from(samples.all) * more / u64::from(bodies.loss_ppm());
        let samples = u32::try_from(samples).unwrap_or(u32::MAX);
        let audit = bodies.store().audit(Part::All, samples, &*self.core.env.random)?;
        let audit = audit.filter(|audit| audit.cells > 0 && samples > 0);
        Ok(audit.map(|audit| told(bodies.address().to_owned(), "parity", &audit)))
    }

    /// The part of all that is stored that the code covers.
    fn coverage(&self) -> Coverage {
        let mut coverage = Coverage::default();
        for leaf in self.leaves() {
            for (segment, bytes) in self.core.space.objects_on(leaf.id()) {
                coverage.stored += bytes;
                match &leaf.covered {
                    // [parity_device.4]
                    Some(store) if store.is_settled(segment) => coverage.covered += bytes,
                    _ => coverage.uncovered += 1,
                }
            }
        }
        coverage
    }

    /// Tells of an audit: in an event, in status, and in the next root.
    pub fn note_audit(&self, report: &AuditReport) -> Result<()> {
        if report.by_device {
            self.note_device_audit(report);
            return Ok(());
        }
        let (parity, _) = self.code()?;
        let sum = |count: fn(&StratumReport) -> u32| {
            report.strata.iter().map(count).fold(0_u32, u32::saturating_add)
        };
        let (samples, held) = (sum(|stratum| stratum.samples), sum(|stratum| stratum.held));
        {
            let mut standing = parity.standing.lock();
            standing.audited_ns = self.core.now_ns();
            (standing.samples, standing.failed) = (samples, samples - held);
            let of_stores = report.strata.iter().filter(|s| matches!(s.part, "all" | "agent"));
            let cells: BTreeMap<&str, u64> = of_stores.map(|s| (&*s.device, s.cells)).collect();
            standing.cells = cells.values().sum();
        }
        let Coverage { stored, covered, .. } = report.coverage;
        self.core.events.note(EventKind::Audited { samples, failed: samples - held, stored, covered });
        self.core.health.changed.note();
        Ok(())
    }
}

/// Outcome of an audit of a store, as a report tells it.
fn told(device: String, part: &'static str, audit: &Audit) -> StratumReport {
    let faults = audit.judgement.failed.iter().take(NAMED_MAX);
    let failed = faults.map(|(id, fault)| {
        let reason = match fault {
            Fault::Wrong => "other bytes than were written".to_owned(),
            Fault::Unreadable(error) => error.to_string(),
        };
        (id.segment.0, u32::from(id.index), reason)
    });
    let missing = u32::try_from(audit.judgement.failed.len()).expect("as many as samples");
    StratumReport {
        device,
        part,
        store: None,
        cells: audit.cells,
        samples: audit.judgement.held + missing,
        held: audit.judgement.held,
        failed: failed.collect(),
        failed_bytes: Vec::new(),
        asked: Some(Asked {
            seed: audit.challenge.seed,
            generation: audit.challenge.generation,
            list: audit.list,
            answers: audit.answers,
        }),
    }
}
