//! Audits of a damaged store in memory: how often they find out, and how long a reply takes.

use std::collections::BTreeSet;
use std::hint::black_box;

use steadfast_env::Env;
use steadfast_por::audit::{Challenge, SegmentCells, Stratum, answer, judge, verify};
use steadfast_por::bound::{detection, samples};
use steadfast_por::{PAYLOAD, Payload, Tag};

use crate::{Cells, Dice, Options, SEGMENT, id, list, objects, timed};

/// Fractions of the cells that are missing.
const MISSING: [f64; 5] = [0.0005, 0.001, 0.005, 0.01, 0.02];
/// Samples after which a curve has a point.
const POINTS: [u32; 8] = [10, 30, 90, 200, 459, 919, 1380, 2759];
/// Part of the cells that is missing where failed samples are counted.
const COUNTED: f64 = 0.01;

/// A store whose missing cells come back as zeros.
struct Store {
    cells: Cells,
    tags: Vec<Tag>,
    stratum: Stratum,
}

pub fn run(options: &Options) -> String {
    let cells = Cells::new(options.cells);
    let tags: Vec<Tag> =
        (0..cells.count()).map(|at| cells.keys.tag(id(at), cells.payload(at)).tag()).collect();
    let segment = |number: usize| SegmentCells {
        segment: id(number * SEGMENT).segment,
        opening: 1,
        store: 1,
        cells: u16::try_from(SEGMENT).expect("small"),
    };
    let stratum = Stratum::new(1, (0..cells.count() / SEGMENT).map(segment).collect());
    let store = Store { cells, tags, stratum };
    format!("{},{}", store.times(options.rounds), store.statistics(options.audits))
}

fn number(id: steadfast_por::CellId) -> usize {
    usize::try_from(id.segment.0).expect("small") * SEGMENT + usize::from(id.index)
}

impl Store {
    /// Times of a whole audit: the agent's reply, its check, and the check of cells that were
    /// fetched.
    fn times(&self, rounds: usize) -> String {
        let asked = samples(COUNTED, 40.0);
        let (mut replies, mut checks, mut judged) = (Vec::new(), Vec::new(), Vec::new());
        let dice = Dice(Env::seeded(2));
        let mut bytes = 0;
        for _ in 0..rounds {
            let challenge = Challenge { seed: dice.seed(), generation: 1, samples: asked };
            let read = |id, out: &mut Payload| -> Result<Tag, ()> {
                *out = *self.cells.payload(number(id));
                Ok(self.tags[number(id)])
            };
            let (seconds, reply) = timed(|| answer(&challenge, &self.stratum, read));
            let reply = reply.expect("all cells are there");
            replies.push(seconds * 1e3);
            bytes = reply.payload.len() + reply.tag.0.len();
            let (seconds, held) = timed(|| verify(&self.cells.keys, &challenge, &self.stratum, &reply));
            assert!(held, "an honest reply");
            checks.push(seconds * 1e3);
            let (seconds, judgement) = timed(|| {
                let cell = |id| Ok::<_, ()>((self.cells.payload(number(id)), self.tags[number(id)]));
                let asked = challenge.expand(&self.stratum);
                judge(&self.cells.keys, asked.iter().map(|sample| (sample.id, cell(sample.id))))
            });
            assert!(judgement.is_held(), "an honest store");
            judged.push(seconds * 1e3);
        }
        format!(
            "\"samples\":{asked},\"reply_bytes\":{bytes},\"reply_ms\":{},\"verify_ms\":{},\"judge_ms\":{}",
            list(&replies),
            list(&checks),
            list(&judged)
        )
    }

    /// Audits of stores that lack cells: after how many samples each is found out, and how many
    /// samples of a whole audit fail.
    fn statistics(&self, audits: u32) -> String {
        let dice = Dice(Env::seeded(3));
        let (count, whole) = (self.cells.count(), samples(COUNTED, 40.0));
        let (mut points, mut histogram) = (Vec::new(), vec![0_u32; 128]);
        for missing in MISSING {
            let lost = ((count as f64 * missing).round() as usize).max(1);
            let missing = lost as f64 / count as f64;
            let counts_failures = (missing - COUNTED).abs() < 0.1 * COUNTED;
            let mut firsts = Vec::new();
            let mut gone = BTreeSet::new();
            for audit in 0..audits {
                // Another loss every hundred audits: another chance to be unlucky.
                if audit % 100 == 0 {
                    gone = dice.choose(lost, count);
                }
                let (first, failed) = self.audit(&dice, &gone, whole);
                firsts.push(first);
                if counts_failures {
                    let last = histogram.len() - 1;
                    histogram[failed.min(last)] += 1;
                }
            }
            for samples in POINTS {
                let found = firsts.iter().filter(|first| first.is_some_and(|at| at < samples)).count();
                let chance = detection(missing, samples);
                let (n, found) = (f64::from(audits), found as f64);
                let deviation = (n * chance * (1.0 - chance)).sqrt();
                points.push(format!(
                    "\"missing\":{missing:.8},\"samples\":{samples},\"found\":{:.6},\"formula\":{chance:.9},\
                     \"deviations\":{:.4}",
                    found / n,
                    // Where one case in thousands is expected to differ, a deviation says nothing.
                    if n * chance * (1.0 - chance) < 1.0 { 0.0 } else { (found - n * chance) / deviation }
                ));
            }
        }
        let lost = (count as f64 * COUNTED).round() / count as f64;
        let last = histogram.iter().rposition(|&audits| audits > 0).unwrap_or(0);
        let expected = binomial(whole, lost);
        let bars =
            histogram[..=last].iter().zip(&expected).enumerate().map(|(failed, (&counted, chance))| {
                format!(
                    "\"failed\":{failed},\"audits\":{counted},\"formula\":{:.4}",
                    chance * f64::from(audits)
                )
            });
        format!(
            "\"cells\":{count},\"audits\":{audits},\"detection\":{},\"histogram\":{}",
            objects(points),
            objects(bars)
        )
    }

    /// An audit by cells that are fetched: the number of its first sample that fails, and how many
    /// do.
    fn audit(&self, dice: &Dice, gone: &BTreeSet<usize>, samples: u32) -> (Option<u32>, usize) {
        let challenge = Challenge { seed: dice.seed(), generation: 1, samples };
        let asked = challenge.expand(&self.stratum);
        let zeros = [0; PAYLOAD];
        let cell = |id| match gone.contains(&number(id)) {
            true => (&zeros, self.tags[number(id)]),
            false => (self.cells.payload(number(id)), self.tags[number(id)]),
        };
        let judgement =
            judge(&self.cells.keys, asked.iter().map(|sample| (sample.id, Ok::<_, ()>(cell(sample.id)))));
        let first = judgement.failed.first().map(|(failed, _)| {
            let at = asked.iter().position(|sample| sample.id == *failed).expect("it was asked for");
            u32::try_from(at).expect("below the number of samples")
        });
        black_box((first, judgement.failed.len()))
    }
}

/// Chance of each number of failures among so many samples.
fn binomial(samples: u32, chance: f64) -> Vec<f64> {
    let n = f64::from(samples);
    let mut term = (n * (-chance).ln_1p()).exp();
    let mut terms = Vec::new();
    for k in 0..128_u32 {
        terms.push(term);
        let k = f64::from(k);
        term *= (n - k) / (k + 1.0) * chance / (1.0 - chance);
    }
    terms
}
