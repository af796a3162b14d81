//! Faults in groups that can spare more than one device: others fail while one is replaced, the
//! power goes meanwhile, and devices return with their content of long ago.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use steadfast_device::Operation;
use steadfast_pool::{Pool, Redundancy, ScrubCommand};

use crate::base::Failure;
use crate::cut::{Cutter, Depth, print};
use crate::disk::{Effect, Fault};
use crate::pages::Image;
use crate::verbs::{Machine, State, Verb, finish, nothing, said, state_of, whole};
use crate::world::{self, Disks, SHORT_SLOTS, Setting};

/// A group of which the first device is replaced because it failed, and which fail meanwhile: with
/// it as many as it can spare.
pub struct SecondFault {
    /// How it keeps segments, and its devices.
    pub groups: &'static [(Redundancy, usize)],
    /// Those that fail.
    pub failing: &'static [usize],
}

/// All of them.
pub const SECOND_FAULTS: &[SecondFault] = &[
    SecondFault { groups: &[(Redundancy::Raidz(2), 4)], failing: &[2] },
    SecondFault { groups: &[(Redundancy::Raidz(3), 5)], failing: &[2, 3] },
    SecondFault { groups: &[(Redundancy::Mirror, 3)], failing: &[2] },
];

/// How many operations later each of those fails that follow the first.
const LATER: usize = 5;

/// Counters.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Replacements during which others failed.
    pub struck: u64,
    /// States of a cut beside that, each opened twice: without the devices that failed, and with
    /// them.
    pub cut: u64,
}

impl SecondFault {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        let (redundancy, count) = self.groups[0];
        format!("{redundancy:?} of {count}: {:?} fail while 0 is replaced", self.failing)
    }

    /// The others fail at every `every`-th operation of this kind while the first is replaced:
    /// nothing is lost, and the replacement comes to its end. So it does after a cut, of which
    /// about `cuts` are tried beside each.
    ///
    /// # Errors
    /// The first claim that does not hold.
    pub fn explore(&self, operation: Operation, every: usize, cuts: usize) -> Result<Counts, Failure> {
        let verb = self.verb();
        let mut counts = Counts::default();
        for skip in (0..).step_by(every) {
            let told = |what: String| format!("{}, at {operation:?} {skip}: {what}", self.name());
            let (machine, pool) = verb.begin(0)?;
            let expected = state_of(&pool)?;
            machine.fail(0);
            let images = machine.disks.images();
            let _ = machine.disks.log.take();
            for (skip, disk) in (skip..).step_by(LATER).zip(self.failing) {
                let fault = Fault { operation, skip, times: 1 << 40, effect: Effect::Gone };
                machine.disks.all[*disk].arm(fault);
            }
            self.replace(&machine, &pool, &expected).map_err(told)?;
            let has_struck = machine.disks.all[self.failing[0]].is_struck();
            drop(pool);
            if has_struck {
                counts.struck += 1;
                counts.cut += self.cut(&machine, images, &expected, (skip, cuts)).map_err(told)?;
            } else {
                return Ok(counts);
            }
        }
        unreachable!("faults come to an end")
    }

    fn verb(&self) -> Verb {
        Verb {
            name: "a second fault during a resilver",
            groups: self.groups,
            spare: 1,
            short: None,
            spoilt: &[],
            before: nothing,
            act: nothing,
        }
    }

    fn replace(&self, machine: &Machine, pool: &Pool, expected: &State) -> Result<(), Failure> {
        let spare = self.groups[0].1;
        pool.replace(&machine.path(0), machine.handle(spare), false).map_err(said)?;
        finish(pool)?;
        hold(pool, expected)?;
        if let Some(reason) = pool.suspended() {
            return Err(format!("suspended: {reason}"));
        }
        if pool.state().leaves.iter().any(|leaf| leaf.config.path == machine.path(0)) {
            return Err("the old device is still there".into());
        }
        Ok(())
    }

    fn cut(
        &self,
        machine: &Machine,
        images: Vec<Image>,
        expected: &State,
        (skip, cuts): (u64, usize),
    ) -> Result<u64, Failure> {
        let (setting, mut count) = (self.verb().setting(), 0);
        let depth = Depth { states_max: Some(cuts), ..Depth::SECOND };
        let mut seen = HashSet::new();
        Cutter::new(images, depth, 0xd0b1e ^ skip).walk(
            &machine.disks.log.take(),
            |moment, fates, images| {
                if count >= cuts || !seen.insert(print(&images)) {
                    return Ok(());
                }
                count += 1;
                judge(&setting, &images, expected, self.failing).map_err(|what| {
                    format!("power lost after event {}, unflushed writes {fates:?}: {what}", moment.event)
                })
            },
        )?;
        Ok(count as u64)
    }
}

/// The pool holds what it should.
fn hold(pool: &Pool, expected: &State) -> Result<(), Failure> {
    let found = state_of(pool)?;
    if found == *expected { Ok(()) } else { Err(expected.difference(&found)) }
}

/// A state of a cut opens, holds everything and comes to its end: without the devices that failed,
/// and with them as they were left.
fn judge(setting: &Setting, images: &[Image], expected: &State, failing: &[usize]) -> Result<(), Failure> {
    let gone: Vec<usize> = [0].iter().chain(failing).copied().collect();
    for away in [&gone[..], &[]] {
        let attempt = || {
            let (machine, pool) = import(setting, images, away)?;
            hold(&pool, expected)?;
            finish(&pool)?;
            hold(&pool, expected).map_err(|what| format!("when it has come to its end: {what}"))?;
            if away.is_empty() {
                pool.devices().scrub(ScrubCommand::Start).map_err(said)?;
                finish(&pool)?;
            }
            whole(&pool)?;
            pool.export().map_err(said)?;
            drop(pool);
            machine.inspect()
        };
        let judged = catch_unwind(AssertUnwindSafe(attempt));
        let judged = judged.unwrap_or_else(|_| Err("it panics".to_owned()));
        judged.map_err(|what| format!("without {away:?}: {what}"))?;
    }
    Ok(())
}

fn import(setting: &Setting, images: &[Image], away: &[usize]) -> Result<(Machine, Pool), Failure> {
    let machine = Machine { env: world::env(0xc0f, None), disks: Disks::unheard(setting, images) };
    let handles = machine.disks.handles().into_iter().enumerate();
    let here = handles.filter(|(disk, _)| !away.contains(disk)).map(|(_, handle)| handle).collect();
    let pool = world::import_of(&machine.env, &machine.disks, here);
    let pool = pool.map_err(|error| format!("import: {error}"))?;
    Ok((machine, pool))
}

/// A group of which devices return with old content: how many devices it has, and one that has so
/// many slots only.
pub struct StaleGroup {
    /// How it keeps segments, and its devices.
    pub groups: &'static [(Redundancy, usize)],
    /// A device that is full soon, so that segments get narrower.
    pub short: Option<(usize, u32)>,
}

/// All of them.
pub const STALE_GROUPS: &[StaleGroup] = &[
    StaleGroup { groups: &[(Redundancy::Mirror, 3)], short: None },
    StaleGroup { groups: &[(Redundancy::Raidz(1), 4)], short: None },
    StaleGroup { groups: &[(Redundancy::Raidz(2), 5)], short: None },
    StaleGroup { groups: &[(Redundancy::Raidz(3), 6)], short: None },
    StaleGroup { groups: &[(Redundancy::Raidz(1), 4)], short: Some((0, SHORT_SLOTS)) },
    StaleGroup { groups: &[(Redundancy::Raidz(2), 5)], short: Some((1, SHORT_SLOTS)) },
];

impl StaleGroup {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        let (redundancy, count) = self.groups[0];
        let uneven = if self.short.is_some() { "uneven " } else { "" };
        format!("{uneven}{redundancy:?} of {count}: devices return with old content")
    }

    /// As many devices as the group can spare return with what they held some commits ago, labels
    /// and all, as after the restoration of an image: nothing of it is believed, and two scrubs
    /// later the group is whole. How many sets of devices that were.
    ///
    /// # Errors
    /// The first claim that does not hold.
    pub fn explore(&self) -> Result<u64, Failure> {
        let (redundancy, count) = self.groups[0];
        let verb = Verb {
            name: "a device returns with old content",
            groups: self.groups,
            spare: 0,
            short: self.short,
            spoilt: &[],
            before: nothing,
            act: nothing,
        };
        let (machine, pool) = verb.begin(0)?;
        let old = machine.disks.images();
        for _ in 0..4 {
            machine.change(&pool)?;
        }
        let expected = state_of(&pool)?;
        drop(pool);
        let new = machine.disks.images();
        let spared = redundancy.spared(u32::try_from(count).map_err(|error| error.to_string())?) as usize;
        for first in 0..count {
            let is_old = |at: usize| (0..spared).any(|step| (first + step) % count == at);
            let images: Vec<Image> =
                (0..count).map(|at| if is_old(at) { &old[at] } else { &new[at] }).cloned().collect();
            let told = |what: String| format!("{}, from {first} on: {what}", self.name());
            let (machine, pool) = import(&verb.setting(), &images, &[]).map_err(told)?;
            hold(&pool, &expected).map_err(told)?;
            finish(&pool).map_err(told)?;
            pool.devices().scrub(ScrubCommand::Start).map_err(said).map_err(told)?;
            finish(&pool).map_err(told)?;
            whole(&pool).map_err(told)?;
            pool.export().map_err(said).map_err(told)?;
            drop(pool);
            // It is needed now, and right.
            let others: Vec<usize> = (0..count).filter(|at| !is_old(*at)).take(spared).collect();
            let told = |what: String| format!("{}, from {first} on, without {others:?}: {what}", self.name());
            let (_, pool) = import(&verb.setting(), &machine.disks.images(), &others).map_err(told)?;
            hold(&pool, &expected).map_err(told)?;
        }
        Ok(count as u64)
    }
}
