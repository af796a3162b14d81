//! Runs workloads, takes the power away everywhere, and counts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use steadfast_env::Bug;

use crate::cut::{Cutter, Depth, Fate, Moment, print};
use crate::memo::Memo;
use crate::oracle::judge;
use crate::pages::Image;
use crate::recover::{Care, Recovered, recover, recover_lied_to};
use crate::tree::Tree;
use crate::workload::{Base, Failure, Number, Trace};
use crate::world::SETTINGS;

/// What was done.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Workloads.
    pub workloads: u64,
    /// States judged.
    pub states: u64,
    /// Of these, states of which no equal one was seen before.
    pub distinct: u64,
    /// Of the distinct ones, those that were opened; the others agree with one of these in every page that was read.
    pub opened: u64,
    /// States of a cut inside recovery, distinct ones.
    pub second: u64,
}

impl Counts {
    /// Adds others.
    pub fn add(&mut self, other: &Counts) {
        self.workloads += other.workloads;
        self.states += other.states;
        self.distinct += other.distinct;
        self.opened += other.opened;
        self.second += other.second;
    }
}

/// A state that is not as it must be.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The workload.
    pub number: Number,
    /// When the power went.
    pub moment: Option<Moment>,
    /// What became of unflushed writes.
    pub fates: Vec<Fate>,
    /// What is wrong.
    pub what: Failure,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "workload {}: {}", self.number, self.number.text())?;
        if let Some(moment) = self.moment {
            write!(f, "; power lost after event {}, {} operations begun, ", moment.event, moment.begun)?;
            write!(f, "{} returned, unflushed writes {:?}", moment.returned, self.fates)?;
        }
        write!(f, "; {}", self.what)
    }
}

type Outcome = Arc<Result<Tree, Failure>>;

/// What one worker knows of the pools of one setting.
pub struct Explorer {
    base: Base,
    bug: Option<Bug>,
    seen: HashMap<u128, Outcome>,
    memo: Memo<Outcome>,
    lied_to: HashSet<u128>,
    /// What was done.
    pub counts: Counts,
    /// One state in so many is cut again inside its recovery.
    pub second_every: u64,
    /// How states are enumerated.
    pub depth: Depth,
}

/// States remembered, at most.
const SEEN_MAX: usize = 2_000_000;

impl Explorer {
    /// For pools of a setting, with a planted bug.
    ///
    /// # Errors
    /// The pool cannot even be made.
    pub fn new(setting: usize, bug: Option<Bug>) -> Result<Explorer, Failure> {
        Ok(Explorer {
            base: Base::new(&SETTINGS[setting], bug)?,
            bug,
            seen: HashMap::new(),
            memo: Memo::default(),
            lied_to: HashSet::new(),
            counts: Counts::default(),
            second_every: 20,
            depth: Depth::FULL,
        })
    }

    /// Runs one workload and judges all its states.
    ///
    /// # Errors
    /// The first state, or the run itself, that is not as it must be.
    pub fn explore(&mut self, number: Number) -> Result<(), Box<Broken>> {
        let bug = self.bug;
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.base.run(number, bug)));
        let ran = ran.unwrap_or_else(|_| Err("the workload panics".to_owned()));
        let trace = ran.map_err(|what| Box::new(Broken { number, moment: None, fates: Vec::new(), what }))?;
        self.counts.workloads += 1;
        // What such a device held depends on the workload.
        self.lied_to.clear();
        let cutter = Cutter::new(trace.images.clone(), self.depth, number.0);
        cutter.walk(&trace.events, |moment, fates, images| {
            self.judge(&trace, moment, &images).map_err(|what| {
                Box::new(Broken { number, moment: Some(moment), fates: fates.to_vec(), what })
            })
        })
    }

    fn judge(&mut self, trace: &Trace, moment: Moment, images: &[Image]) -> Result<(), Failure> {
        self.counts.states += 1;
        if trace.struck.is_some_and(|effect| !effect.is_loud()) {
            return self.judge_lied_to(trace, moment, images);
        }
        let outcome = self.outcome(images)?;
        match &*outcome {
            Ok(tree) => judge(trace, moment, tree),
            Err(what) => Err(what.clone()),
        }
    }

    /// On a device that lied, much may be lost; nothing may be there that never was.
    fn judge_lied_to(&mut self, trace: &Trace, moment: Moment, images: &[Image]) -> Result<(), Failure> {
        let print = print(images);
        if !self.lied_to.insert(print) {
            return Ok(());
        }
        self.counts.distinct += 1;
        self.counts.opened += 1;
        match recover_lied_to(images, self.bug)? {
            Some(tree) => tree.is_part_of(&trace.trees[..=moment.begun]),
            None => Ok(()),
        }
    }

    /// What a state holds.
    fn outcome(&mut self, images: &[Image]) -> Result<Outcome, Failure> {
        let print = print(images);
        if let Some(outcome) = self.seen.get(&print) {
            return Ok(Arc::clone(outcome));
        }
        self.counts.distinct += 1;
        let outcome = match self.memo.find(images) {
            Some(outcome) => outcome,
            None => {
                self.counts.opened += 1;
                let recovered = recover(images, Care::Live, self.bug);
                if let Ok(recovered) = &recovered
                    && self.counts.opened.is_multiple_of(self.second_every)
                {
                    self.second(images, recovered)?;
                }
                let (reads, result) = match recovered {
                    Ok(recovered) => (recovered.reads, Ok(recovered.tree)),
                    Err(what) => (Vec::new(), Err(what)),
                };
                let outcome = Arc::new(result);
                if outcome.is_ok() {
                    self.memo.insert(images, &reads, Arc::clone(&outcome));
                }
                outcome
            }
        };
        if self.seen.len() >= SEEN_MAX {
            self.seen.clear();
            self.memo = Memo::default();
        }
        self.seen.insert(print, Arc::clone(&outcome));
        Ok(outcome)
    }

    /// Cuts a recovery, and asks that each state of it recovers to the same.
    fn second(&mut self, images: &[Image], first: &Recovered) -> Result<(), Failure> {
        let cutter = Cutter::new(images.to_vec(), Depth::SECOND, self.counts.opened);
        let mut seen = HashSet::new();
        cutter.walk(&first.events, |moment, fates, images| {
            if !seen.insert(print(&images)) {
                return Ok(());
            }
            self.counts.second += 1;
            let told = |what: String| {
                format!("recovery cut again after its event {}, {fates:?}: {what}", moment.event)
            };
            let care = if self.counts.second.is_multiple_of(8) { Care::Live } else { Care::Read };
            let again = recover(&images, care, self.bug).map_err(told)?;
            if again.tree != first.tree {
                return Err(told(first.tree.difference(&again.tree)));
            }
            Ok(())
        })
    }
}
