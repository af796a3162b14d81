//! Runs workloads, takes the power away everywhere, and counts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use steadfast_env::Bug;

use crate::base::{Base, Failure, Trace};
use crate::cut::{Cutter, Depth, Fate, Moment, print};
use crate::oracle::judge;
use crate::outcomes::OutcomeCache;
use crate::pages::Image;
use crate::recover::{Checks, FaultsSeen, Recovered, recover, recover_lied_to, recover_without};
use crate::tree::{Shape, Tree};
use crate::workload::Number;
use crate::world::{Journal, SETTINGS, Setting};

/// Counters of the exploration.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Workloads.
    pub workloads: u64,
    /// States judged.
    pub states: u64,
    /// Of these, states of which no equal one was seen before.
    pub distinct: u64,
    /// Of the distinct ones, those that were opened; the others agree with one of these in every
    /// page that was read.
    pub opened: u64,
    /// States of a cut inside recovery, distinct ones.
    pub second: u64,
    /// Of these, states of a cut inside the recovery from a cut recovery.
    pub third: u64,
    /// States that were opened without the devices that were struck, or while they failed, because
    /// their groups can spare them.
    pub without: u64,
    /// States in which what was wrong on such devices was mended, and that were then opened without
    /// as many others.
    pub mended: u64,
    /// Operations that were refused for want of room, and changed nothing.
    pub refused: u64,
    /// States by what the write before the cut went to.
    pub areas: BTreeMap<&'static str, u64>,
    /// Workloads that a fault struck, by the fault and what came of it.
    pub faults: BTreeMap<(&'static str, &'static str), u64>,
}

impl Counts {
    /// Adds others.
    pub fn add(&mut self, other: &Counts) {
        self.workloads += other.workloads;
        self.states += other.states;
        self.distinct += other.distinct;
        self.opened += other.opened;
        self.second += other.second;
        self.third += other.third;
        self.without += other.without;
        self.mended += other.mended;
        self.refused += other.refused;
        for (area, count) in &other.areas {
            *self.areas.entry(area).or_default() += count;
        }
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
    }
}

/// A state that is not as it must be.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The workload.
    pub number: Number,
    /// When the power went.
    pub moment: Option<Moment>,
    /// Fates of unflushed writes.
    pub fates: Vec<Fate>,
    /// The failure.
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

type Outcome = Result<Arc<Tree>, Failure>;

/// States that were seen, and what is known of others by them.
#[derive(Default)]
struct Known {
    seen: HashMap<u128, Outcome>,
    outcomes: OutcomeCache<Outcome>,
    /// All trees in it, each once.
    trees: HashMap<[u8; 32], Arc<Tree>>,
    opened: u64,
    /// The first change of the workloads that share it.
    first: Option<u64>,
}

/// One worker's knowledge of the pools of one setting.
pub struct Explorer {
    setting: Setting,
    base: Base,
    bug: Option<Bug>,
    /// Effects that struck in the workload under way.
    struck: FaultsSeen,
    /// Devices that it struck, if their groups can spare all of them.
    spared: Vec<usize>,
    /// States of such workloads that were opened: more is asked of some of them.
    turn: u64,
    known: Known,
    lied_to: HashSet<u128>,
    /// Trees (which `known` keeps where they are) that the workload may leave behind at these
    /// moments.
    judged: HashSet<(usize, usize, usize)>,
    /// Counters.
    pub counts: Counts,
    /// One state in so many is cut again inside its recovery, while states inside recoveries are no
    /// more than those that were opened; four times as many if it is one in five.
    pub second_every: u64,
    /// How states are enumerated.
    pub depth: Depth,
}

/// States opened whose outcomes are remembered, at most: each is a path of some hundred pages in
/// the memory of them.
const OPENED_MAX: u64 = 20_000;
/// One recovery in so many that were cut is cut once more.
const THIRD_EVERY: u64 = 200;
/// One state in so many is cut again inside its recovery; of a full pool, whose recoveries are
/// dear, one in so many. While a workload has more states inside recoveries than it opened, none
/// is: a recovery that replays a log to three disks has hundreds, and would take the time of other
/// workloads.
const SECOND_EVERY: u64 = 20;
const SECOND_EVERY_FULL: u64 = 200;

impl Explorer {
    /// For pools of a setting, with a planted bug.
    ///
    /// # Errors
    /// The pool cannot even be made.
    pub fn new(setting: usize, bug: Option<Bug>) -> Result<Explorer, Failure> {
        Ok(Explorer {
            setting: SETTINGS[setting],
            base: Base::new(&SETTINGS[setting], bug)?,
            bug,
            struck: FaultsSeen::None,
            spared: Vec::new(),
            turn: 0,
            known: Known::default(),
            lied_to: HashSet::new(),
            judged: HashSet::new(),
            counts: Counts::default(),
            second_every: if SETTINGS[setting].full { SECOND_EVERY_FULL } else { SECOND_EVERY },
            depth: Depth { sector: SETTINGS[setting].sector, ..SETTINGS[setting].depth() },
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
        let ran = ran.map_err(|what| Box::new(Broken { number, moment: None, fates: Vec::new(), what }))?;
        self.counts.workloads += 1;
        self.counts.refused += ran.refused;
        // The content of such a device depends on the workload.
        self.lied_to.clear();
        self.judged.clear();
        // Workloads of one and two changes come to the same states as long as they do the same;
        // others to states of their own.
        let first = number.shared();
        if first.is_none() || first != self.known.first || self.known.opened > OPENED_MAX {
            self.known = Known { first, ..Known::default() };
        }
        self.struck = FaultsSeen::by(&ran.struck, !ran.spared.is_empty());
        self.spared.clone_from(&ran.spared);
        let opens = self.judge_all(&ran)?;
        for effect in &ran.struck {
            let verdict = match (ran.errno, opens) {
                _ if !ran.spared.is_empty() => "spared, all is there",
                (Some(crate::op::EIO), _) => "EIO",
                (Some(crate::op::ENOSPC), _) => "ENOSPC",
                (Some(_), _) => "EROFS",
                (None, Opens::All) => "all is there",
                (None, Opens::Partly) => "some is not read",
                (None, Opens::Refused) => "not opened",
            };
            *self.counts.faults.entry((effect.name(), verdict)).or_default() += 1;
        }
        Ok(())
    }

    fn judge_all(&mut self, trace: &Trace) -> Result<Opens, Box<Broken>> {
        let cutter = Cutter::new(trace.images.clone(), self.depth, trace.number.0);
        let mut opens = Opens::All;
        cutter.walk(&trace.events, |moment, fates, images| {
            *self.counts.areas.entry(trace.events[moment.event].kind.name()).or_default() += 1;
            match self.judge(trace, moment, &images) {
                Ok(one) => opens = opens.max(one),
                Err(what) => {
                    let (number, fates) = (trace.number, fates.to_vec());
                    return Err(Box::new(Broken { number, moment: Some(moment), fates, what }));
                }
            }
            Ok(())
        })?;
        Ok(opens)
    }

    fn judge(&mut self, trace: &Trace, moment: Moment, images: &[Image]) -> Result<Opens, Failure> {
        self.counts.states += 1;
        if trace.spared.is_empty() && trace.struck.iter().any(|effect| !effect.is_loud()) {
            return self.judge_lied_to(trace, moment, images);
        }
        let opened = self.counts.opened;
        let tree = self.outcome(images)?;
        let asked = (Arc::as_ptr(&tree) as usize, moment.begun, moment.returned);
        if !self.judged.contains(&asked) {
            judge(trace, moment, self.setting.journal, &tree)?;
            self.judged.insert(asked);
        }
        if !trace.spared.is_empty() && self.counts.opened > opened && self.turn % 4 > 1 {
            self.judge_without(trace, moment, images)?;
        }
        Ok(Opens::All)
    }

    /// Faults on some devices of a group are made up for by the others, also if the devices are
    /// away, or fail for good while the pool is opened.
    fn judge_without(&mut self, trace: &Trace, moment: Moment, images: &[Image]) -> Result<(), Failure> {
        self.counts.without += 1;
        let after = (self.turn % 4 == 3).then_some(self.turn / 4);
        let told = |what: Failure| match after {
            None => format!("without disks {:?}: {what}", trace.spared),
            Some(turn) => format!("disks {:?} fail while it is opened ({turn}): {what}", trace.spared),
        };
        let tree = recover_without(&self.setting, images, &trace.spared, after, self.bug).map_err(told)?;
        judge(trace, moment, self.setting.journal, &tree).map_err(told)
    }

    /// On a device that lied, much may be lost; nothing may be there that never was.
    fn judge_lied_to(&mut self, trace: &Trace, moment: Moment, images: &[Image]) -> Result<Opens, Failure> {
        let print = print(images);
        if !self.lied_to.insert(print) {
            return Ok(Opens::All);
        }
        self.counts.distinct += 1;
        self.counts.opened += 1;
        let times = &trace.trees[..=moment.begun];
        match recover_lied_to(&self.setting, images, self.bug)? {
            Some(tree) => {
                match self.setting.journal {
                    Journal::Whole => tree.is_part_of(times)?,
                    Journal::Names => is_part_by_bytes(&tree, times)?,
                }
                let whole = self.setting.journal == Journal::Names || times.contains(&tree);
                Ok(if whole { Opens::All } else { Opens::Partly })
            }
            None => Ok(Opens::Refused),
        }
    }

    /// Result of opening a state.
    fn outcome(&mut self, images: &[Image]) -> Outcome {
        let print = print(images);
        if let Some(outcome) = self.known.seen.get(&print) {
            return outcome.clone();
        }
        self.counts.distinct += 1;
        let outcome = match self.known.outcomes.find(images) {
            Some(outcome) => outcome,
            None => self.open(images)?,
        };
        self.known.seen.insert(print, outcome.clone());
        outcome
    }

    fn open(&mut self, images: &[Image]) -> Result<Outcome, Failure> {
        self.counts.opened += 1;
        self.known.opened += 1;
        let mut mends: &[usize] = &[];
        if !self.spared.is_empty() {
            self.turn += 1;
            if self.turn % 4 == 1 {
                self.counts.mended += 1;
                mends = &self.spared;
            }
        }
        let care = Checks::Live { struck: self.struck, mends };
        let recovered = match recover(&self.setting, images, care, self.bug) {
            Ok(recovered) => recovered,
            Err(what) => return Ok(Err(what)),
        };
        let share = SECOND_EVERY.div_ceil(self.second_every);
        let due = self.counts.opened.is_multiple_of(self.second_every);
        if due && self.counts.second <= self.counts.opened * share {
            self.second(images, &recovered, true)?;
        }
        let tree = self.known.trees.entry(recovered.tree.print()).or_insert_with(|| Arc::new(recovered.tree));
        let outcome: Outcome = Ok(Arc::clone(tree));
        // A full pool has so many pages that remembering them costs more than it saves.
        if !self.setting.full {
            self.known.outcomes.insert(images, &recovered.reads, outcome.clone());
        }
        Ok(outcome)
    }

    /// Cuts a recovery, and asks that each state of it recovers to the same.
    fn second(&mut self, images: &[Image], first: &Recovered, deeper: bool) -> Result<(), Failure> {
        let second = if self.setting.sampled { Depth::SAMPLED_SECOND } else { Depth::SECOND };
        let depth = Depth { sector: self.setting.sector, ..second };
        let cutter = Cutter::new(images.to_vec(), depth, self.counts.opened);
        let mut seen = HashSet::new();
        cutter.walk(&first.events, |moment, fates, images| {
            if !seen.insert(print(&images)) {
                return Ok(());
            }
            self.counts.second += 1;
            let told = |what: String| {
                format!("recovery cut again after its event {}, {fates:?}: {what}", moment.event)
            };
            let care = if self.counts.second.is_multiple_of(8) {
                Checks::Live { struck: self.struck, mends: &[] }
            } else {
                Checks::Read
            };
            let again = recover(&self.setting, &images, care, self.bug).map_err(told)?;
            if again.tree != first.tree {
                return Err(told(first.tree.difference(&again.tree)));
            }
            if !deeper {
                self.counts.third += 1;
            } else if self.counts.second.is_multiple_of(THIRD_EVERY) {
                self.second(&images, &again, false).map_err(told)?;
            }
            Ok(())
        })
    }
}

/// Outcomes of the states of a workload on a device that lied, best first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Opens {
    All,
    Partly,
    Refused,
}

/// Each byte that can be read is one that the file had there at some time, or zero.
fn is_part_by_bytes(found: &Tree, times: &[Tree]) -> Result<(), Failure> {
    for (ino, node) in &found.nodes {
        let Shape::File(content) = &node.shape else { continue };
        let then = |tree: &Tree, at: usize| match tree.nodes.get(ino).map(|node| &node.shape) {
            Some(Shape::File(content)) => content.get(at).copied(),
            _ => None,
        };
        let stray = content
            .iter()
            .enumerate()
            .find(|(at, byte)| **byte != 0 && !times.iter().any(|tree| then(tree, *at) == Some(**byte)));
        if let Some((at, byte)) = stray {
            return Err(format!("inode {ino}: byte {at} was never {byte:#x}"));
        }
    }
    Ok(())
}
