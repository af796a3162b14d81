//! Verbs that change what a pool is made of, with the power gone at any write of them.
//!
//! Nothing of what the pool's files hold changes meanwhile, so what is asked of a state is simple: the pool opens without help, its files
//! are what they were, the offline check finds nothing that a crash may not leave, and what was begun comes to its end or was never
//! begun: then the check finds nothing at all, and files are still what they were.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use steadfast_device::{Device, Operation};
use steadfast_env::Env;
use steadfast_format::{GroupClass, LeafState, medium};
use steadfast_inspect::{Finding, Leaf, Request, Severity, check};
use steadfast_model::Model;
use steadfast_pool::{DeviceHandle, GroupHandles, Pool, Redundancy, ScanRow, ScanState, ScrubCommand};
use steadfast_posix::{Caller, FileSystem};

use crate::cut::{Cutter, Depth, print};
use crate::disk::{Effect, Fault};
use crate::draw::Draw;
use crate::pages::{Image, PAGE};
use crate::tree::Tree;
use crate::workload::Failure;
use crate::world::{self, Disks, SETTINGS, SHORT_SLOTS, Setting};

/// Opens file systems that verbs seal.
pub(crate) const KEY: [u8; 32] = [7; 32];

/// A pool, what is done to it, and what it must survive.
pub struct Verb {
    /// Its name.
    pub name: &'static str,
    /// The groups it begins with, by redundancy and number of devices. A device more or less is what verbs are about: some are left
    /// over.
    pub groups: &'static [(Redundancy, usize)],
    /// Devices that do not belong to it in the beginning.
    pub spare: usize,
    /// One of its devices that has so many slots only, however many fit.
    pub short: Option<(usize, u32)>,
    /// Those of its devices that are spoilt before it is done: a bit of each page of their segments is wrong.
    pub spoilt: &'static [usize],
    /// Done before: what it does is not cut.
    pub before: fn(&Machine, &Pool) -> Result<(), Failure>,
    /// Done, and cut at any write.
    pub act: fn(&Machine, &Pool) -> Result<(), Failure>,
}

/// Devices of a run.
pub struct Machine {
    pub(crate) env: Env,
    pub(crate) disks: Disks,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// States that the verb may leave.
    pub states: u64,
    /// Of these, states of which no equal one was seen before, and that were opened.
    pub opened: u64,
    /// Of those, states in which a scrub or a resilver was under way, and went on.
    pub resumed: u64,
}

pub(crate) fn said(error: steadfast_pool::Error) -> Failure {
    error.to_string()
}

pub(crate) fn nothing(_: &Machine, _: &Pool) -> Result<(), Failure> {
    Ok(())
}

/// Verbs that are cut.
pub const VERBS: &[Verb] = &[
    Verb {
        name: "attach to a single device",
        groups: &[(Redundancy::None, 1)],
        spare: 1,
        short: None,
        spoilt: &[],
        before: nothing,
        act: |machine, pool| machine.attach(pool, 0, 1),
    },
    Verb {
        name: "attach to a mirror",
        groups: &[(Redundancy::Mirror, 2)],
        spare: 1,
        short: None,
        spoilt: &[],
        before: nothing,
        act: |machine, pool| machine.attach(pool, 0, 2),
    },
    Verb {
        name: "widen raidz1",
        groups: &[(Redundancy::Raidz(1), 3)],
        spare: 1,
        short: None,
        spoilt: &[],
        before: nothing,
        act: |machine, pool| machine.attach(pool, 0, 3),
    },
    Verb {
        name: "detach from a mirror",
        groups: &[(Redundancy::Mirror, 2)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: nothing,
        act: |machine, pool| pool.detach(&machine.path(1)).map_err(said),
    },
    Verb {
        name: "replace in raidz1",
        groups: &[(Redundancy::Raidz(1), 3)],
        spare: 1,
        short: None,
        spoilt: &[],
        before: nothing,
        act: |machine, pool| machine.replace(pool, 1, 3),
    },
    Verb {
        name: "replace a single device",
        groups: &[(Redundancy::None, 1)],
        spare: 1,
        short: None,
        spoilt: &[],
        before: nothing,
        act: |machine, pool| machine.replace(pool, 0, 1),
    },
    Verb {
        name: "detach the new half of a replacement",
        groups: &[(Redundancy::Mirror, 2)],
        spare: 1,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            let new = machine.handle(2);
            pool.replace(&machine.path(1), new, false).map_err(said)
        },
        act: |machine, pool| {
            // It may have ended by now; then there is nothing to take back.
            match pool.detach(&machine.path(2)) {
                Ok(()) | Err(steadfast_pool::Error::ScanActive { .. }) => machine.finish(pool),
                Err(error) => Err(error.to_string()),
            }
        },
    },
    Verb {
        name: "remove a mirror",
        groups: &[(Redundancy::Mirror, 2), (Redundancy::Mirror, 2)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: nothing,
        act: |machine, pool| machine.remove(pool, 0),
    },
    Verb {
        name: "remove a single device",
        groups: &[(Redundancy::None, 2)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: nothing,
        act: |machine, pool| machine.remove(pool, 0),
    },
    Verb {
        name: "add a mirror and rebalance",
        groups: &[(Redundancy::Mirror, 2)],
        spare: 2,
        short: None,
        spoilt: &[],
        before: nothing,
        act: |machine, pool| {
            machine.add_mirror(pool, GroupClass::Normal)?;
            pool.rebalance(ScrubCommand::Start).map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "add a special mirror, and fill it",
        groups: &[(Redundancy::Raidz(1), 3)],
        spare: 2,
        short: None,
        spoilt: &[],
        before: nothing,
        act: |machine, pool| {
            machine.add_mirror(pool, GroupClass::Special)?;
            pool.rebalance(ScrubCommand::Start).map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "remove a special mirror",
        groups: &[(Redundancy::Raidz(1), 3)],
        spare: 2,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            machine.add_mirror(pool, GroupClass::Special)?;
            pool.set_property("tank", "special_small_blocks", Some("16384")).map_err(said)?;
            machine.change(pool)
        },
        act: |machine, pool| machine.remove(pool, 3),
    },
    Verb {
        name: "replace a special device",
        groups: &[(Redundancy::Raidz(1), 3)],
        spare: 3,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            machine.add_mirror(pool, GroupClass::Special)?;
            machine.change(pool)
        },
        act: |machine, pool| machine.replace(pool, 4, 5),
    },
    Verb {
        name: "a spare steps in",
        groups: &[(Redundancy::Raidz(1), 3)],
        spare: 1,
        short: None,
        spoilt: &[],
        before: |machine, pool| pool.add_spares(vec![machine.handle(3)], false, false).map_err(said),
        act: |machine, pool| {
            machine.fail(1);
            machine.change(pool)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "a spare is sent back",
        groups: &[(Redundancy::Mirror, 2)],
        spare: 1,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            pool.add_spares(vec![machine.handle(2)], false, false).map_err(said)?;
            machine.fail(1);
            machine.change(pool)?;
            machine.finish(pool)
        },
        act: |machine, pool| pool.detach(&machine.path(2)).map_err(said),
    },
    Verb {
        name: "a spare is kept for good",
        groups: &[(Redundancy::Mirror, 2)],
        spare: 1,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            pool.add_spares(vec![machine.handle(2)], false, false).map_err(said)?;
            machine.fail(1);
            machine.change(pool)?;
            machine.finish(pool)
        },
        act: |machine, pool| pool.detach(&machine.path(1)).map_err(said),
    },
    Verb {
        name: "split",
        groups: &[(Redundancy::Mirror, 2), (Redundancy::Mirror, 3)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: nothing,
        act: |_, pool| pool.split(world::OTHER, &[], false).map(drop).map_err(said),
    },
    // Labels of log devices are never older than those of leaves (D3).
    Verb {
        name: "attach beside a log device",
        groups: &[(Redundancy::None, 1)],
        spare: 2,
        short: None,
        spoilt: &[],
        before: |machine, pool| machine.add_logs(pool, &[2]),
        act: |machine, pool| machine.attach(pool, 0, 1),
    },
    Verb {
        name: "a spare steps in beside a log mirror",
        groups: &[(Redundancy::Raidz(1), 3)],
        spare: 3,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            machine.add_logs(pool, &[4, 5])?;
            pool.add_spares(vec![machine.handle(3)], false, false).map_err(said)
        },
        act: |machine, pool| {
            machine.fail(1);
            machine.change(pool)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "split beside a log device",
        groups: &[(Redundancy::Mirror, 2)],
        spare: 1,
        short: None,
        spoilt: &[],
        before: |machine, pool| machine.add_logs(pool, &[2]),
        act: |_, pool| pool.split(world::OTHER, &[], false).map(drop).map_err(said),
    },
    Verb {
        name: "reguid",
        groups: &[(Redundancy::Mirror, 2), (Redundancy::Mirror, 2)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: nothing,
        act: |_, pool| {
            pool.reguid().map_err(said)?;
            pool.reguid().map_err(said)
        },
    },
    Verb {
        name: "resilver what was missed",
        groups: &[(Redundancy::Raidz(2), 4)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            pool.offline(&machine.path(0)).map_err(said)?;
            pool.offline(&machine.path(3)).map_err(said)?;
            machine.change(pool)
        },
        act: |machine, pool| {
            let open = || -> steadfast_pool::Result<Arc<dyn Device>> { unreachable!("it is open") };
            pool.online(&machine.path(0), &open).map_err(said)?;
            pool.online(&machine.path(3), &open).map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "write to uneven raidz1",
        groups: &[(Redundancy::Raidz(1), 3)],
        spare: 0,
        short: Some((0, SHORT_SLOTS)),
        spoilt: &[],
        before: nothing,
        act: |machine, pool| {
            machine.change(pool)?;
            let moved = pool.rebalance(ScrubCommand::Start).map_err(said);
            moved.and_then(|()| machine.finish(pool))
        },
    },
    Verb {
        name: "replace the small device of uneven raidz1",
        groups: &[(Redundancy::Raidz(1), 3)],
        spare: 1,
        short: Some((0, SHORT_SLOTS)),
        spoilt: &[],
        before: |machine, pool| machine.change(pool),
        act: |machine, pool| machine.replace(pool, 0, 3),
    },
    Verb {
        name: "replace a large device of uneven raidz1",
        groups: &[(Redundancy::Raidz(1), 3)],
        spare: 1,
        short: Some((0, SHORT_SLOTS)),
        spoilt: &[],
        before: |machine, pool| machine.change(pool),
        act: |machine, pool| machine.replace(pool, 1, 3),
    },
    Verb {
        name: "widen uneven raidz1",
        groups: &[(Redundancy::Raidz(1), 3)],
        spare: 1,
        short: Some((0, SHORT_SLOTS)),
        spoilt: &[],
        before: |machine, pool| machine.change(pool),
        act: |machine, pool| machine.attach(pool, 0, 3),
    },
    Verb {
        name: "remove an uneven group",
        groups: &[(Redundancy::Raidz(1), 3), (Redundancy::Mirror, 2)],
        spare: 0,
        short: Some((0, SHORT_SLOTS)),
        spoilt: &[],
        before: |machine, pool| machine.change(pool),
        act: |machine, pool| machine.remove(pool, 0),
    },
    Verb {
        name: "remove a mirror beside an uneven group",
        groups: &[(Redundancy::Mirror, 2), (Redundancy::Raidz(1), 3)],
        spare: 0,
        short: Some((2, SHORT_SLOTS)),
        spoilt: &[],
        // More than half a segment, which fits into no narrow one: the cleaner has to take it apart.
        before: |machine, pool| (0..3).try_for_each(|_| machine.change(pool)),
        act: |machine, pool| machine.remove(pool, 0),
    },
    Verb {
        name: "resilver what was missed of uneven raidz2",
        groups: &[(Redundancy::Raidz(2), 4)],
        spare: 0,
        short: Some((1, SHORT_SLOTS)),
        spoilt: &[],
        before: |machine, pool| {
            pool.offline(&machine.path(0)).map_err(said)?;
            pool.offline(&machine.path(1)).map_err(said)?;
            machine.change(pool)
        },
        act: |machine, pool| {
            let open = || -> steadfast_pool::Result<Arc<dyn Device>> { unreachable!("it is open") };
            pool.online(&machine.path(0), &open).map_err(said)?;
            pool.online(&machine.path(1), &open).map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "scrub a mirror of which one side is spoilt",
        groups: &[(Redundancy::Mirror, 2)],
        spare: 0,
        short: None,
        spoilt: &[1],
        before: |machine, pool| machine.fill_for_scrub(pool),
        act: |machine, pool| machine.scrub(pool),
    },
    Verb {
        name: "scrub raidz2 of which two devices are spoilt",
        groups: &[(Redundancy::Raidz(2), 4)],
        spare: 0,
        short: None,
        spoilt: &[0, 2],
        before: |machine, pool| machine.fill_for_scrub(pool),
        act: |machine, pool| machine.scrub(pool),
    },
];

/// Verbs of snapshots, which are cut too: a commit or a few, so there are few states.
pub const SNAPSHOT_VERBS: &[Verb] = &[
    Verb {
        name: "take a snapshot",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: nothing,
        act: |_, pool| take(pool, "a"),
    },
    Verb {
        name: "take a snapshot of what changes",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            take(pool, "a")?;
            machine.change(pool)
        },
        act: |_, pool| take(pool, "b"),
    },
    Verb {
        name: "destroy a snapshot between others",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            for name in ["a", "b", "c"] {
                take(pool, name)?;
                machine.change(pool)?;
            }
            Ok(())
        },
        act: |machine, pool| {
            pool.destroy_snapshots(&["tank@b".into()], false).map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "destroy all snapshots",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            for name in ["a", "b"] {
                take(pool, name)?;
                machine.change(pool)?;
            }
            Ok(())
        },
        act: |machine, pool| {
            pool.destroy_snapshots(&["tank@a".into(), "tank@b".into()], false).map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "roll back",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            take(pool, "a")?;
            machine.change(pool)?;
            take(pool, "b")?;
            machine.change(pool)?;
            machine.change(pool)
        },
        act: |machine, pool| {
            pool.rollback("tank@b").map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "clone a snapshot",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            take(pool, "a")?;
            machine.change(pool)
        },
        act: |_, pool| clone_of(pool, "tank@a"),
    },
    Verb {
        name: "promote a clone",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: with_clone,
        act: |machine, pool| {
            pool.promote("tank/c").map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "promote a clone back",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            with_clone(machine, pool)?;
            pool.promote("tank/c").map_err(said)?;
            machine.change(pool)
        },
        act: |machine, pool| {
            pool.promote("tank").map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "destroy a clone",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: with_clone,
        act: |machine, pool| {
            pool.destroy_with_snapshots("tank/c").map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "destroy the last clone of a snapshot that waits for it",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            with_clone(machine, pool)?;
            pool.destroy_snapshots(&["tank@b".into()], true).map_err(said)
        },
        act: |machine, pool| {
            pool.destroy_with_snapshots("tank/c").map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "destroy a tree with a clone in it",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            pool.create_dataset("tank/p", Default::default(), None).map_err(said)?;
            pool.create_dataset("tank/p/q", Default::default(), None).map_err(said)?;
            machine.change_of(pool, "tank/p/q", 0x7)?;
            pool.take_snapshots(&["tank/p/q@a".into()], &Default::default()).map_err(said)?;
            pool.clone_snapshot("tank/p/q@a", "tank/p/r", Default::default()).map_err(said)?;
            machine.change_of(pool, "tank/p/r", 0x8)?;
            machine.change_of(pool, "tank/p", 0x9)
        },
        act: |machine, pool| {
            let tree = ["tank/p/r", "tank/p/q", "tank/p"].map(str::to_owned);
            pool.destroy_all(&tree).map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "destroy a tree whose key is lost",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: crate::verbs_streams::with_lost_tree,
        act: |machine, pool| {
            let tree = ["tank/t", "tank/s/in", "tank/s"].map(str::to_owned);
            pool.destroy_all(&tree).map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "roll back a clone",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            with_clone(machine, pool)?;
            machine.change_of(pool, "tank/c", 0x4)
        },
        act: |machine, pool| {
            pool.rollback("tank/c@x").map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "take snapshots of two file systems at once",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            with_two(machine, pool)?;
            take_both(pool, "a")?;
            change_both(machine, pool)
        },
        act: |_, pool| take_both(pool, "b"),
    },
    Verb {
        name: "destroy snapshots of two file systems at once",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            with_two(machine, pool)?;
            for name in ["a", "b"] {
                take_both(pool, name)?;
                change_both(machine, pool)?;
            }
            Ok(())
        },
        act: |machine, pool| {
            pool.destroy_snapshots(&both("a"), false).map_err(said)?;
            machine.finish(pool)
        },
    },
    // The first ones of blocks that more than one pointer leads to, in snapshots or in files.
    Verb {
        name: "take a snapshot of what is shared",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: with_shared,
        act: |_, pool| take(pool, "c"),
    },
    Verb {
        name: "destroy a snapshot of what is shared",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: with_shared,
        act: |machine, pool| {
            pool.destroy_snapshots(&["tank@a".into()], false).map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "roll back over what is shared",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: with_shared,
        act: |machine, pool| {
            pool.rollback("tank@b").map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "promote a clone of what is shared",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: |machine, pool| {
            with_shared(machine, pool)?;
            clone_of(pool, "tank@b")?;
            share(pool, "tank/c", 2, 1)
        },
        act: |machine, pool| {
            pool.promote("tank/c").map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "destroy a file system that shares with another",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: with_shared,
        act: |machine, pool| {
            pool.destroy_with_snapshots("tank/d").map_err(said)?;
            machine.finish(pool)
        },
    },
    Verb {
        name: "forget half of what is known by content",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: with_shared,
        act: |_, pool| prune(pool, 50),
    },
    Verb {
        name: "forget all that is known by content",
        groups: &[(Redundancy::None, 1)],
        spare: 0,
        short: None,
        spoilt: &[],
        before: with_shared,
        act: |machine, pool| {
            prune(pool, 100)?;
            machine.finish(pool)
        },
    },
];

/// A second file system beside the first, with files of its own.
fn with_two(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    pool.create_dataset("tank/d", Default::default(), None).map_err(said)?;
    machine.change_of(pool, "tank/d", 0x17)
}

/// A snapshot of each of both file systems.
fn both(name: &str) -> [String; 2] {
    [format!("tank@{name}"), format!("tank/d@{name}")]
}

fn take_both(pool: &Pool, name: &str) -> Result<(), Failure> {
    pool.take_snapshots(&both(name), &Default::default()).map_err(said)
}

fn change_both(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    machine.change(pool)?;
    machine.change_of(pool, "tank/d", 0x18)
}

/// Equal content is stored once: two file systems hold the same, files share records with others, snapshots `a` and `b` hold what was so
/// before and after.
fn with_shared(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    pool.set_property("tank", "dedup", Some("on")).map_err(said)?;
    machine.change(pool)?;
    pool.create_dataset("tank/d", Default::default(), None).map_err(said)?;
    machine.change_of(pool, "tank/d", 0x2)?;
    take_both(pool, "a")?;
    share(pool, "tank", 3, 2)?;
    machine.change_of(pool, "tank/d", 0x19)?;
    take(pool, "b")?;
    share(pool, "tank", 3, 4)?;
    match pool.sharing().hits {
        0 => Err("nothing is shared".into()),
        _ => Ok(()),
    }
}

/// Of a file system's files one gets the content of another, by `copy_file_range`; committed.
fn share(pool: &Pool, name: &str, from: usize, to: usize) -> Result<(), Failure> {
    let (fs, handle) = world::files(pool, name).map_err(said)?;
    let find = |number: usize| {
        let found = fs.lookup(Model::ROOT, format!("f{number}").as_bytes());
        found.map_err(|errno| format!("lookup gives {errno:?}"))
    };
    let (from, to) = (find(from)?, find(to)?);
    let copied = fs.copy_file_range(from.ino, 0, to.ino, 0, from.attr.size);
    copied.map_err(|errno| format!("copy_file_range gives {errno:?}"))?;
    fs.forget_all();
    drop((fs, handle));
    pool.sync().map_err(said)
}

fn prune(pool: &Pool, percent: u8) -> Result<(), Failure> {
    match pool.prune_known(None, Some(percent)).map_err(said)? {
        0 => Err("nothing is forgotten".into()),
        _ => Ok(()),
    }
}

fn clone_of(pool: &Pool, snapshot: &str) -> Result<(), Failure> {
    pool.clone_snapshot(snapshot, "tank/c", Default::default()).map(drop).map_err(said)
}

/// Snapshots `a`, `b` and `c`, a clone of `b` that was changed before and after a snapshot of its own, and its origin changed too.
pub(crate) fn with_clone(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    for name in ["a", "b"] {
        take(pool, name)?;
        machine.change(pool)?;
    }
    clone_of(pool, "tank@b")?;
    machine.change_of(pool, "tank/c", 0x3)?;
    pool.take_snapshots(&["tank/c@x".into()], &Default::default()).map_err(said)?;
    machine.change_of(pool, "tank/c", 0x5)?;
    take(pool, "c")?;
    machine.change(pool)
}

/// State of a pool: its file systems with their origins, and each as it was at each snapshot.
#[derive(Debug, PartialEq)]
pub(crate) struct State {
    /// Names and origins.
    pub datasets: Vec<(String, Option<String>)>,
    /// By full name, snapshots among them, oldest first behind their file systems.
    pub trees: Vec<(String, Tree)>,
}

impl State {
    pub fn difference(&self, other: &State) -> String {
        if self.datasets != other.datasets {
            return format!("file systems {:?} and {:?}", self.datasets, other.datasets);
        }
        let names =
            |state: &State| -> Vec<String> { state.trees.iter().map(|(name, _)| name.clone()).collect() };
        if names(self) != names(other) {
            return format!("{:?} and {:?}", names(self), names(other));
        }
        let changed = self.trees.iter().zip(&other.trees).find(|(ours, theirs)| ours != theirs);
        changed.map_or(String::new(), |((name, ours), (_, theirs))| {
            format!("{name}: {}", ours.difference(theirs))
        })
    }
}

pub(crate) fn take(pool: &Pool, name: &str) -> Result<(), Failure> {
    pool.take_snapshots(&[format!("tank@{name}")], &Default::default()).map_err(said)
}

impl Verb {
    pub(crate) fn setting(&self) -> Setting {
        let disks = self.groups.iter().map(|(_, count)| count).sum::<usize>() + self.spare;
        Setting { disks, redundancy: self.groups[0].0, short: self.short, ..SETTINGS[0] }
    }

    /// The pool with files in it, and what it holds after `before`.
    pub(crate) fn begin(&self, seed: u64) -> Result<(Machine, Pool), Failure> {
        let env = world::env(0x5eed ^ seed, None);
        let machine = Machine { env, disks: Disks::blank(&self.setting()) };
        let mut handles = machine.disks.handles().into_iter();
        let group = |(redundancy, count): &(Redundancy, usize)| GroupHandles {
            redundancy: *redundancy,
            class: GroupClass::Normal,
            devices: handles.by_ref().take(*count).collect(),
        };
        let groups = self.groups.iter().map(group).collect();
        let pool = world::create_of(&machine.env, &machine.disks, groups).map_err(said)?;
        let (fs, handle) = world::files(&pool, "tank").map_err(said)?;
        write_files(&fs, 0x1)?;
        drop((fs, handle));
        pool.sync().map_err(said)?;
        (self.before)(&machine, &pool)?;
        Ok((machine, pool))
    }

    /// Runs it, and judges one in `every` of the states that it may leave.
    ///
    /// # Errors
    /// The first that is not as it must be.
    pub fn explore(&self, every: u64) -> Result<Counts, Failure> {
        self.explore_drawn(every, 0)
    }

    /// The same under another draw: other salts and numbers in the pool, and other fates of writes that were not flushed.
    ///
    /// # Errors
    /// The first that is not as it must be.
    pub fn explore_drawn(&self, every: u64, seed: u64) -> Result<Counts, Failure> {
        let (machine, pool) = self.begin(seed)?;
        pool.sync().map_err(said)?;
        self.spoilt.iter().for_each(|disk| machine.spoil(*disk));
        let images = machine.disks.images();
        let _ = machine.disks.log.take();
        (self.act)(&machine, &pool)?;
        let events = machine.disks.log.take();
        let expected = state_of(&pool)?;
        // Changes written by `act` itself are in the state before, or are not.
        let before = self.tree_of(&images)?;
        drop(pool);
        let (mut counts, mut seen) = (Counts::default(), HashSet::new());
        let depth = Depth { all_below: 3, drawn: 6, ..Depth::SECOND };
        let cutter = Cutter::new(images, depth, 0x7e4b ^ seed);
        cutter.walk(&events, |moment, fates, images| {
            counts.states += 1;
            if !seen.insert(print(&images)) || !(seen.len() as u64).is_multiple_of(every) {
                return Ok(());
            }
            counts.opened += 1;
            let resumed = self.judge(&images, &[&before, &expected]).map_err(|what| {
                format!(
                    "{}: power lost after event {}, unflushed writes {fates:?}: {what}",
                    self.name, moment.event
                )
            })?;
            counts.resumed += u64::from(resumed);
            Ok::<_, Failure>(())
        })?;
        Ok(counts)
    }

    fn tree_of(&self, images: &[Image]) -> Result<State, Failure> {
        let disks = Disks::new(&self.setting(), images);
        let pool = world::import(&world::env(0xc0f, None), &disks).map_err(said)?;
        state_of(&pool)
    }

    /// True if a scrub or a resilver was under way.
    fn judge(&self, images: &[Image], allowed: &[&State]) -> Result<bool, Failure> {
        let attempt = || {
            let machine =
                Machine { env: world::env(0xc0f, None), disks: Disks::new(&self.setting(), images) };
            let pool =
                world::import(&machine.env, &machine.disks).map_err(|error| format!("import: {error}"))?;
            let scan = pool.state().scan;
            let found = state_of(&pool)?;
            if !allowed.contains(&&found) {
                return Err(format!("files: {}", allowed[0].difference(&found)));
            }
            machine.finish(&pool).map_err(|what| format!("what was begun does not end: {what}"))?;
            if !self.spoilt.is_empty() {
                scrubbed(&pool, scan)?;
            }
            let after = state_of(&pool)?;
            if after != found {
                return Err(format!("files after it: {}", found.difference(&after)));
            }
            whole(&pool)?;
            pool.export().map_err(|error| format!("export: {error}"))?;
            drop(pool);
            machine.inspect()?;
            let pool =
                world::import(&machine.env, &machine.disks).map_err(|error| format!("again: {error}"))?;
            let again = state_of(&pool)?;
            if again != found {
                return Err(format!("opened again: {}", found.difference(&again)));
            }
            drop(pool);
            machine.judge_other(allowed)?;
            Ok(scan.is_some_and(|scan| scan.state == ScanState::Active))
        };
        catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|_| Err("it panics".to_owned()))
    }
}

/// A pool that was spoilt was scrubbed: by the scrub that was under way when it was imported, and went on; or before; or now, if none was begun.
fn scrubbed(pool: &Pool, then: Option<ScanRow>) -> Result<(), Failure> {
    match then.map(|scan| scan.state) {
        Some(ScanState::Finished) => Ok(()),
        Some(ScanState::Active) => match pool.state().scan {
            Some(scan) if (scan.state, scan.lost) == (ScanState::Finished, 0) => Ok(()),
            scan => Err(format!("a scrub was under way, {then:?}, and became {scan:?}")),
        },
        _ => {
            pool.scrub(ScrubCommand::Start).map_err(said)?;
            finish(pool)
        }
    }
}

impl Machine {
    pub(crate) fn path(&self, disk: usize) -> String {
        self.disks.all[disk].character().identity
    }

    pub(crate) fn handle(&self, disk: usize) -> DeviceHandle {
        DeviceHandle { path: self.path(disk), device: Arc::clone(&self.disks.all[disk]) as Arc<dyn Device> }
    }

    /// A bit is wrong in each page that was written between the labels of a disk.
    fn spoil(&self, disk: usize) {
        let disk = &self.disks.all[disk];
        let image = disk.image();
        for at in (medium::SLOTS_OFFSET..medium::label_offset(2, image.size_bytes())).step_by(PAGE) {
            let mut page = [0; PAGE];
            image.read(at, &mut page);
            if page.iter().any(|byte| *byte != 0) {
                disk.rot(at + 200, 3);
            }
        }
    }

    /// Some file systems more, so that there are some segments; and a scrub takes one of them at a time beside other load.
    fn fill_for_scrub(&self, pool: &Pool) -> Result<(), Failure> {
        for name in ["tank/d", "tank/e", "tank/f"] {
            pool.create_dataset(name, Default::default(), None).map_err(said)?;
            self.change_of(pool, name, 0x16)?;
        }
        pool.set_pool_prop("scrublimit", Some("1000000000000000")).map_err(said)
    }

    /// Scrubs beside other load, with a commit behind each part. It finds something.
    fn scrub(&self, pool: &Pool) -> Result<(), Failure> {
        pool.scrub(ScrubCommand::Start).map_err(said)?;
        for _ in 0..200 {
            pool.sync().map_err(said)?;
            match pool.state().scan {
                Some(scan) if scan.state == ScanState::Active => {}
                Some(scan) if scan.repaired > 0 && scan.lost == 0 => return Ok(()),
                scan => return Err(format!("a scrub of what is spoilt came to {scan:?}")),
            }
            let (fs, handle) = world::files(pool, "tank").map_err(said)?;
            Tree::of(&fs).map_err(|error| error.to_string())?;
            fs.forget_all();
            drop((fs, handle));
        }
        Err("a scrub does not end".into())
    }

    pub(crate) fn fail(&self, disk: usize) {
        for operation in [Operation::Write, Operation::Read, Operation::Flush] {
            let fault = Fault { operation, skip: 0, times: 1 << 40, effect: Effect::Gone };
            self.disks.all[disk].arm(fault);
        }
    }

    fn attach(&self, pool: &Pool, beside: usize, new: usize) -> Result<(), Failure> {
        pool.attach(&self.path(beside), self.handle(new), false).map_err(said)?;
        self.finish(pool)
    }

    fn replace(&self, pool: &Pool, old: usize, new: usize) -> Result<(), Failure> {
        pool.replace(&self.path(old), self.handle(new), false).map_err(said)?;
        self.finish(pool)
    }

    /// Adds the next two devices as a mirror.
    fn add_mirror(&self, pool: &Pool, class: GroupClass) -> Result<(), Failure> {
        let taken = pool.state().leaves.len();
        let devices = vec![self.handle(taken), self.handle(taken + 1)];
        let group = GroupHandles { redundancy: Redundancy::Mirror, class, devices };
        pool.add_groups(vec![group], false, false).map_err(said)
    }

    /// Gives the log a device of its own, or a mirror of some.
    fn add_logs(&self, pool: &Pool, disks: &[usize]) -> Result<(), Failure> {
        let redundancy = if disks.len() > 1 { Redundancy::Mirror } else { Redundancy::None };
        let devices = disks.iter().map(|disk| self.handle(*disk)).collect();
        let group = GroupHandles { redundancy, class: GroupClass::Normal, devices };
        pool.add_log_groups(vec![group], false, false).map_err(said)
    }

    fn remove(&self, pool: &Pool, disk: usize) -> Result<(), Failure> {
        pool.remove(&[self.path(disk)], false).map_err(said)?;
        self.finish(pool)
    }

    /// Other content, committed.
    pub(crate) fn change(&self, pool: &Pool) -> Result<(), Failure> {
        self.change_of(pool, "tank", 0x2)
    }

    pub(crate) fn change_of(&self, pool: &Pool, name: &str, seed: u64) -> Result<(), Failure> {
        let (fs, handle) = world::files(pool, name).map_err(said)?;
        write_files(&fs, seed)?;
        drop((fs, handle));
        pool.sync().map_err(said)
    }

    /// Lets everything come to its end that goes on in the background.
    pub(crate) fn finish(&self, pool: &Pool) -> Result<(), Failure> {
        finish(pool)
    }

    /// A pool that was split off, if there is one, opens, holds what it may, comes to rest and opens again.
    fn judge_other(&self, allowed: &[&State]) -> Result<(), Failure> {
        for time in ["first", "again"] {
            let other = world::import_other(&self.env, &self.disks);
            let other = other.map_err(|error| format!("what was split off, {time}: {error}"))?;
            let Some(pool) = other else { return Ok(()) };
            let found = state_of(&pool)?;
            if !allowed.contains(&&found) {
                return Err(format!("what was split off, {time}: {}", allowed[0].difference(&found)));
            }
            self.finish(&pool)?;
            whole(&pool)?;
            pool.export().map_err(|error| format!("export of what was split off: {error}"))?;
        }
        Ok(())
    }

    /// The offline check of the pool's devices finds nothing but what a device that is out of use leaves.
    pub(crate) fn inspect(&self) -> Result<(), Failure> {
        // One that has left may have a label still, if the power went while it was erased.
        let (pools, _) = steadfast_pool::scan(self.disks.handles());
        let tank = pools.into_iter().find(|found| found.config.name == "tank");
        let found = tank.ok_or("there is no pool")?;
        let listed = |guid| {
            let config = &found.config;
            config.leaves.iter().any(|leaf| leaf.guid == guid)
                || config.aux.iter().any(|aux| aux.guid == guid)
        };
        let members = found.devices.iter().filter(|device| listed(device.label.device_guid));
        let leaves: Vec<Leaf> = members
            .map(|found| Leaf { path: found.handle.path.clone(), device: Arc::clone(&found.handle.device) })
            .collect();
        const ALLOWED: &[&str] = &["uberblock-torn", "uberblock-few", "column-missing", "device-out"];
        let mut worst: Option<String> = None;
        let mut found = |finding: Finding| {
            let (code, severity) = finding.class();
            if severity > Severity::Note && !ALLOWED.contains(&code) && worst.is_none() {
                worst = Some(finding.to_string());
            }
        };
        let secret = Some(self.disks.secret().unwrap_or(&KEY).to_vec());
        let request = Request { leaves: &leaves, secret, anchor: None, env: &self.env };
        check(&request, &mut found);
        worst.map_or(Ok(()), |what| Err(format!("inspected: {what}")))
    }
}

/// Lets everything come to its end that goes on in the background of a pool.
pub(crate) fn finish(pool: &Pool) -> Result<(), Failure> {
    let mut quiet = 0;
    for _ in 0..20_000 {
        let busy = pool.scan_remaining() != [0, 0] || pool.move_remaining().is_some();
        quiet = if busy { 0 } else { quiet + 1 };
        if let Some(reason) = pool.suspended() {
            return Err(format!("suspended: {reason}"));
        }
        // Spares look at what is out of use, and what left is forgotten some commits later.
        if quiet > 40 {
            return pool.sync().map_err(said);
        }
        pool.step();
        if quiet % 10 == 5 {
            pool.sync().map_err(said)?;
        }
    }
    let state = pool.state();
    Err(format!("{:?}, {:?}", state.scan, state.moving))
}

/// Nothing is half done: no device is about to leave, and a scrub finds nothing.
pub(crate) fn whole(pool: &Pool) -> Result<(), Failure> {
    let state = pool.state();
    if let Some(leaf) = state.leaves.iter().find(|leaf| leaf.config.state == LeafState::Leaving) {
        return Err(format!("{} is leaving still", leaf.config.path));
    }
    pool.scrub(ScrubCommand::Start).map_err(|error| format!("scrub: {error}"))?;
    finish(pool)?;
    let scan = pool.state().scan.ok_or("no scrub")?;
    if (scan.repaired, scan.lost) != (0, 0) || !pool.state().damaged.is_empty() {
        return Err(format!("a scrub finds {scan:?} {:?}", pool.state().damaged));
    }
    Ok(())
}

/// State of a pool now, by names as if it were called `tank`: file systems that were split off are
/// left out.
pub(crate) fn state_of(pool: &Pool) -> Result<State, Failure> {
    let mut state = State { datasets: Vec::new(), trees: Vec::new() };
    let mut names = pool.datasets();
    names.sort();
    let own = pool.name();
    let shown = |name: &str| name.replacen(&own, "tank", 1);
    for name in names {
        let info = pool.dataset_info(&name).map_err(said)?;
        if info.encryption_root.as_deref() == Some(&name) && !info.key_loaded {
            pool.load_key(&name, &KEY, false).map_err(said)?;
        }
        let (fs, handle) = world::files(pool, &name).map_err(said)?;
        let files = Tree::of(&fs).map_err(|error| error.to_string());
        fs.forget_all();
        state.datasets.push((shown(&name), info.origin.map(|origin| shown(&origin))));
        state.trees.push((shown(&name), files?));
        for (snapshot, _) in handle.snapshots().list() {
            let opened =
                handle.snapshots().open(&snapshot).ok_or_else(|| format!("{snapshot} does not open"))?;
            let tree = opened.with(|dataset| Tree::of(&world::snapshot(dataset)).map_err(|e| e.to_string()));
            state.trees.push((shown(&format!("{name}@{snapshot}")), tree.ok_or("it is gone")??));
        }
    }
    Ok(state)
}

/// Some files of some sizes.
fn write_files(fs: &FileSystem, seed: u64) -> Result<(), Failure> {
    let mut draw = Draw(seed);
    for (number, bytes) in [100, 5000, 70_000, 300_000, 16_384].into_iter().enumerate() {
        let name = format!("f{number}").into_bytes();
        let _ = fs.unlink(Model::ROOT, &name);
        let made = fs.mknod(Caller::ROOT, Model::ROOT, &name, 0o100_644, 0);
        let made = made.map_err(|errno| format!("mknod gives {errno:?}"))?;
        let written = fs.write(made.ino, 0, &draw.bytes(bytes), false);
        written.map_err(|errno| format!("write gives {errno:?}"))?;
        fs.forget(made.ino, 1);
    }
    fs.forget_all();
    Ok(())
}
