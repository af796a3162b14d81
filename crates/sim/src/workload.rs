//! The workloads that there are; `base` runs one.
//!
//! A number names a workload for ever: its first byte says which set it is of, the second which
//! setting of the pool it runs on, the rest which of that set.

use std::collections::BTreeSet;

use steadfast_device::Operation;
use steadfast_model::Rename;

use crate::disk::{Effect, Fault};
use crate::draw::Draw;
use crate::op::{At, Op, Path, Range};
use crate::world::{SETTINGS, Setting};

/// Changes of which all sequences of one and two are run.
pub const CHANGES: &[Op] = &[
    Op::Create("A/new"),
    Op::Mkdir("A/dir"),
    Op::Symlink("A/sym", 20),
    Op::Symlink("A/sym", 4095),
    Op::Link("A/foo", "A/new"),
    Op::Link("A/foo", "B/new"),
    Op::Unlink("A/foo"),
    Op::Unlink("B/bar"),
    Op::Unlink("A/new"),
    Op::Rmdir("A/C"),
    Op::Rename("A/foo", "A/new", Rename::Replace),
    Op::Rename("A/foo", "B/bar", Rename::Replace),
    Op::Rename("A/foo", "B/bar", Rename::NoReplace),
    Op::Rename("A/foo", "B/bar", Rename::Exchange),
    Op::Rename("A/C", "B/C", Rename::Replace),
    Op::Rename("A/C", "A/dir", Rename::Replace),
    Op::Rename("A/new", "A/foo", Rename::Replace),
    Op::Rename("A", "B/A", Rename::Replace),
    Op::Write("A/new", At::Byte(0), 4096),
    Op::Write("A/new", At::Byte(0), 16_385),
    Op::Write("A/foo", At::End, 3000),
    Op::Write("A/foo", At::Byte(0), 4096),
    Op::Write("A/foo", At::Byte(1000), 500),
    Op::Write("A/foo", At::Byte(20_000), 100),
    Op::Write("A/big", At::Byte(8192), 4096),
    Op::Write("A/big", At::Byte(10_000), 9000),
    Op::Write("A/big", At::End, 20_000),
    Op::Write("B/bar", At::Byte(50), 100),
    Op::Truncate("A/foo", 0),
    Op::Truncate("A/foo", 100),
    Op::Truncate("A/foo", 12_000),
    Op::Truncate("A/big", 20_000),
    Op::Allocate("A/foo", Range::Allocate, 0, 30_000),
    Op::Allocate("A/foo", Range::KeepSize, 0, 30_000),
    Op::Allocate("A/big", Range::Punch, 16_384, 16_384),
    Op::Allocate("A/big", Range::Punch, 1000, 3000),
    Op::Allocate("A/foo", Range::Zero, 3000, 20_000),
    Op::SetXattr("A/foo", 20),
    Op::SetXattr("A/foo", 5000),
    Op::SetXattr("A/C", 100),
    Op::RemoveXattr("A/foo"),
    Op::Chmod("A/foo"),
    Op::TmpfileLink("A/new"),
    Op::WriteUnlinked("A/foo"),
    Op::Write("A/new", At::Byte(0), 300_000),
    Op::Copy("A/foo", "A/big", 5000, 9000),
    Op::SetXattr("A/foo", 60_000),
    Op::Unlink("A/big"),
    Op::Rename("A/C", "B", Rename::Exchange),
    Op::Set("recordsize", "8192"),
    Op::Set("journal", "ordered"),
    Op::Set("journal", "off"),
];

/// A step that may follow a change: none, or one that makes it durable.
const PERSISTS: usize = 5;

/// The file or directory that a change is about, and the directory its name is in.
fn target(op: Op) -> (Path, Path) {
    let path = match op {
        Op::Create(path)
        | Op::Mkdir(path)
        | Op::Symlink(path, _)
        | Op::Link(_, path)
        | Op::Unlink(path)
        | Op::Rmdir(path)
        | Op::Rename(_, path, _)
        | Op::Write(path, ..)
        | Op::Truncate(path, _)
        | Op::Allocate(path, ..)
        | Op::SetXattr(path, _)
        | Op::RemoveXattr(path)
        | Op::Chmod(path)
        | Op::TmpfileLink(path)
        | Op::WriteUnlinked(path)
        | Op::Copy(_, path, ..)
        | Op::Repeat(_, path)
        | Op::Fsync(path)
        | Op::Fdatasync(path) => path,
        // A property changes what `fsync` of any file does.
        Op::Set(..) => "A/foo",
        Op::Sync | Op::Wait | Op::Interval | Op::Room => "",
    };
    (path, path.rsplit_once('/').map_or("", |(parent, _)| parent))
}

fn persist(op: Op, how: usize) -> Option<Op> {
    let (path, parent) = target(op);
    match how {
        0 => None,
        1 => Some(Op::Fsync(path)),
        2 => Some(Op::Fdatasync(path)),
        3 => Some(Op::Fsync(parent)),
        _ => Some(Op::Sync),
    }
}

/// A set of workloads.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Set {
    /// Every change, followed by every way to make it durable.
    One = 1,
    /// Every two of these.
    Two = 2,
    /// Three to six of them, sampled; half of them on the file or directory of the one before.
    Few = 3,
    /// Some dozens of them, sampled.
    Many = 4,
    /// The same on a device with a fault.
    Faulty = 5,
}

impl Set {
    /// How many workloads it has, if that is bounded.
    #[must_use]
    pub fn size(self) -> Option<u64> {
        let one = (CHANGES.len() * PERSISTS) as u64;
        match self {
            Set::One => Some(one),
            Set::Two => Some(one * one),
            Set::Few | Set::Many | Set::Faulty => None,
        }
    }
}

/// A workload by its number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Number(pub u64);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Number {
    const INDEX: u64 = (1 << 48) - 1;

    /// Workload `index` of a set, on a pool of that setting.
    #[must_use]
    pub fn new(set: Set, setting: usize, index: u64) -> Number {
        let index = set.size().map_or(index & Number::INDEX, |size| index % size);
        Number((set as u64) << 56 | (setting as u64 & 0xff) << 48 | index)
    }

    /// Its setting.
    #[must_use]
    pub fn setting(self) -> usize {
        usize::try_from(self.0 >> 48 & 0xff).expect("a byte") % SETTINGS.len()
    }

    /// Its set; an unknown one is taken for one of many operations.
    #[must_use]
    pub fn set(self) -> Set {
        match self.0 >> 56 {
            1 => Set::One,
            2 => Set::Two,
            3 => Set::Few,
            5 => Set::Faulty,
            _ => Set::Many,
        }
    }

    /// Its operations.
    #[must_use]
    pub fn ops(self) -> Vec<Op> {
        let mut ops = Vec::new();
        let mut push = |index: usize| {
            let (change, how) = (CHANGES[index / PERSISTS % CHANGES.len()], index % PERSISTS);
            ops.push(change);
            ops.extend(persist(change, how));
        };
        let index = self.0 & Number::INDEX;
        let one = CHANGES.len() * PERSISTS;
        let small = |index: u64| usize::try_from(index % one as u64).expect("small");
        match self.set() {
            Set::One => push(small(index)),
            Set::Two => {
                push(small(index / one as u64));
                push(small(index));
            }
            set => {
                let mut draw = Draw(self.0);
                let count = if set == Set::Few { 3 + draw.below(4) } else { 20 + draw.below(60) };
                let mut last = 0;
                for _ in 0..count {
                    // Most changes are followed by nothing: commits gather several. Half of them
                    // meet the one before.
                    let how = if draw.percent(60) { 0 } else { draw.below(PERSISTS) };
                    let about = target(CHANGES[last]).0;
                    let near: Vec<usize> =
                        (0..CHANGES.len()).filter(|&at| target(CHANGES[at]).0 == about).collect();
                    last = if draw.percent(50) { *draw.pick(&near) } else { draw.below(CHANGES.len()) };
                    push(last * PERSISTS + how);
                }
            }
        }
        // Where equal content is stored once, some changes make content equal, by sharing whole
        // records or by writing it again.
        if SETTINGS[self.setting()].props.iter().any(|(name, _)| *name == "dedup") {
            for op in &mut ops {
                *op = match *op {
                    Op::Copy(..) => Op::Copy("A/big", "A/foo", 0, 1 << 20),
                    Op::Write("A/new", At::Byte(0), 16_385) => Op::Repeat("A/big", "A/new"),
                    Op::Write("A/foo", At::Byte(20_000), 100) => Op::Copy("A/big", "B/bar", 16_384, 20_000),
                    Op::Write("B/bar", At::Byte(50), 100) => Op::Repeat("A/foo", "B/bar"),
                    op => op,
                };
            }
        }
        // Half of what is made durable by `sync` elsewhere is left to the log here.
        if SETTINGS[self.setting()].props.contains(&("journal", "data")) {
            let mut turn = false;
            for op in ops.iter_mut().filter(|op| **op == Op::Sync) {
                turn = !turn;
                if turn {
                    *op = Op::Interval;
                }
            }
        }
        ops.push(Op::Wait);
        if SETTINGS[self.setting()].brim {
            // Removing works whatever was refused, and then there is room.
            ops.extend([Op::Room, Op::Create("B/room"), Op::Write("B/room", At::Byte(0), 20_000), Op::Sync]);
        }
        ops
    }

    /// Of its world and of what is written. All sequences of one and two have the same, so that
    /// what two of them have in common in front comes to the same states, and is opened once.
    pub(crate) fn seed(self) -> u64 {
        match self.set() {
            Set::One | Set::Two => self.setting() as u64,
            _ => self.0,
        }
    }

    /// The same for workloads that begin with the same change, if they have states in common: those
    /// of one change and two.
    #[must_use]
    pub fn shared(self) -> Option<u64> {
        let one = (CHANGES.len() * PERSISTS) as u64;
        let index = self.0 & Number::INDEX;
        match self.set() {
            Set::One => Some(u64::MAX),
            Set::Two => Some(index / one),
            _ => None,
        }
    }

    /// Its operations as text.
    #[must_use]
    pub fn text(self) -> String {
        let ops = self.ops().iter().map(Op::to_string).collect::<Vec<_>>().join(", ");
        let faults = self.faults();
        let faults = faults.iter().map(|(disk, fault)| format!("{fault:?} on disk {disk}, "));
        faults.collect::<String>() + &ops
    }

    /// The faults that strike while it runs, and which devices: one, where nothing makes up for
    /// that; else up to as many devices of each group as it can spare, some of them in more than
    /// one way.
    #[must_use]
    pub fn faults(self) -> Vec<(usize, Fault)> {
        let Some(first) = self.fault() else { return Vec::new() };
        let setting = &SETTINGS[self.setting()];
        let mut faults = vec![first];
        if setting.spared(first.0) == 0 {
            return faults;
        }
        let mut draw = Draw(self.0 ^ 0x5fa7_ed00);
        let mut victims = BTreeSet::from([first.0]);
        for (devices, spared) in setting.groups() {
            let least = usize::from(devices.contains(&first.0));
            let count = least + draw.below(spared + 1 - least);
            while devices.clone().filter(|disk| victims.contains(disk)).count() < count {
                let victim = devices.start + draw.below(devices.len());
                if victims.insert(victim) {
                    faults.push((victim, draw_fault(&mut draw, setting)));
                }
            }
        }
        for victim in victims {
            if draw.percent(40) {
                let mut fault = draw_fault(&mut draw, setting);
                if draw.percent(30) {
                    fault.times = FOR_EVER;
                }
                faults.push((victim, fault));
            }
        }
        faults
    }

    /// The first of them.
    #[must_use]
    pub fn fault(self) -> Option<(usize, Fault)> {
        if self.set() != Set::Faulty {
            return None;
        }
        let mut draw = Draw(self.0 ^ 0xfa17);
        let setting = &SETTINGS[self.setting()];
        let disk = draw.below(setting.images());
        if disk >= setting.disks + setting.logs {
            // A register that lies is none: what it does to a pool is the adversary's suite, in the
            // room `pool`.
            let operation = *draw.pick(&[Operation::Read, Operation::Write, Operation::Flush]);
            let effect = *draw.pick(&[Effect::Fail, Effect::Gone, Effect::Away(3)]);
            let fault = Fault { operation, skip: draw.below(6) as u64, times: 1, effect };
            return Some((disk, fault));
        }
        Some((disk, draw_fault(&mut draw, setting)))
    }
}

/// Operations that a fault strikes that does not end.
const FOR_EVER: u64 = 1 << 40;

/// A fault of a device that holds segments or the log.
fn draw_fault(draw: &mut Draw, setting: &Setting) -> Fault {
    let (operation, effects): (Operation, &[Effect]) = match draw.below(4) {
        0 => (Operation::Read, &[Effect::Fail, Effect::Rot, Effect::Stale, Effect::Gone, Effect::Away(5)]),
        // Objects are durable when they are put: nobody flushes them.
        1 if !setting.objects => {
            (Operation::Flush, &[Effect::Fail, Effect::Lost, Effect::Gone, Effect::Away(5)])
        }
        _ => (
            Operation::Write,
            &[
                Effect::Fail,
                Effect::Full,
                Effect::Lost,
                Effect::Misdirected(1),
                Effect::Misdirected(8),
                Effect::Misdirected(128),
                Effect::Rot,
                Effect::Gone,
                Effect::Away(5),
            ],
        ),
    };
    let effect = *draw.pick(effects);
    let often = if draw.percent(30) { FOR_EVER } else { 1 };
    let times = if effect.is_loud() { often } else { 1 };
    let skip = draw.below(if operation == Operation::Flush { 12 } else { 40 }) as u64;
    Fault { operation, skip, times, effect }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_one_workload() {
        for set in [Set::One, Set::Two, Set::Few, Set::Many] {
            let number = Number::new(set, 1, 123);
            assert_eq!((number.set(), number.setting()), (set, 1));
            assert_eq!(number.ops(), number.ops());
        }
        let all: Vec<String> =
            (0..Set::One.size().unwrap()).map(|i| Number::new(Set::One, 0, i).text()).collect();
        let mut distinct = all.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), all.len());
    }
}
