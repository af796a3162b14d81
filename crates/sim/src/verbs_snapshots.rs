//! Verbs of snapshots, clones and shared blocks.

use steadfast_model::Model;
use steadfast_pool::{Pool, Redundancy};

use crate::base::Failure;
use crate::verbs::{Machine, Verb, nothing, said, take};
use crate::world::{self};

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
            pool.datasets().destroy_snapshots(&["tank@b".into()], false).map_err(said)?;
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
            pool.datasets().destroy_snapshots(&["tank@a".into(), "tank@b".into()], false).map_err(said)?;
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
            pool.datasets().rollback("tank@b").map_err(said)?;
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
            pool.datasets().promote("tank/c").map_err(said)?;
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
            pool.datasets().promote("tank/c").map_err(said)?;
            machine.change(pool)
        },
        act: |machine, pool| {
            pool.datasets().promote("tank").map_err(said)?;
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
            pool.datasets().destroy_with_snapshots("tank/c").map_err(said)?;
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
            pool.datasets().destroy_snapshots(&["tank@b".into()], true).map_err(said)
        },
        act: |machine, pool| {
            pool.datasets().destroy_with_snapshots("tank/c").map_err(said)?;
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
            pool.datasets().create_dataset("tank/p", Default::default(), None).map_err(said)?;
            pool.datasets().create_dataset("tank/p/q", Default::default(), None).map_err(said)?;
            machine.change_of(pool, "tank/p/q", 0x7)?;
            pool.datasets().take_snapshots(&["tank/p/q@a".into()], &Default::default()).map_err(said)?;
            pool.datasets().clone_snapshot("tank/p/q@a", "tank/p/r", Default::default()).map_err(said)?;
            machine.change_of(pool, "tank/p/r", 0x8)?;
            machine.change_of(pool, "tank/p", 0x9)
        },
        act: |machine, pool| {
            let tree = ["tank/p/r", "tank/p/q", "tank/p"].map(str::to_owned);
            pool.datasets().destroy_all(&tree).map_err(said)?;
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
            pool.datasets().destroy_all(&tree).map_err(said)?;
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
            pool.datasets().rollback("tank/c@x").map_err(said)?;
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
            pool.datasets().destroy_snapshots(&both("a"), false).map_err(said)?;
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
            pool.datasets().destroy_snapshots(&["tank@a".into()], false).map_err(said)?;
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
            pool.datasets().rollback("tank@b").map_err(said)?;
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
            pool.datasets().promote("tank/c").map_err(said)?;
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
            pool.datasets().destroy_with_snapshots("tank/d").map_err(said)?;
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
    pool.datasets().create_dataset("tank/d", Default::default(), None).map_err(said)?;
    machine.change_of(pool, "tank/d", 0x17)
}

/// A snapshot of each of both file systems.
fn both(name: &str) -> [String; 2] {
    [format!("tank@{name}"), format!("tank/d@{name}")]
}

fn take_both(pool: &Pool, name: &str) -> Result<(), Failure> {
    pool.datasets().take_snapshots(&both(name), &Default::default()).map_err(said)
}

fn change_both(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    machine.change(pool)?;
    machine.change_of(pool, "tank/d", 0x18)
}

/// Equal content is stored once: two file systems hold the same, files share records with others,
/// snapshots `a` and `b` hold what was so before and after.
fn with_shared(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    pool.datasets().set_property("tank", "dedup", Some("on")).map_err(said)?;
    machine.change(pool)?;
    pool.datasets().create_dataset("tank/d", Default::default(), None).map_err(said)?;
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
    pool.datasets().clone_snapshot(snapshot, "tank/c", Default::default()).map(drop).map_err(said)
}

/// Snapshots `a`, `b` and `c`, a clone of `b` that was changed before and after a snapshot of its
/// own, and its origin changed too.
pub(crate) fn with_clone(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    for name in ["a", "b"] {
        take(pool, name)?;
        machine.change(pool)?;
    }
    clone_of(pool, "tank@b")?;
    machine.change_of(pool, "tank/c", 0x3)?;
    pool.datasets().take_snapshots(&["tank/c@x".into()], &Default::default()).map_err(said)?;
    machine.change_of(pool, "tank/c", 0x5)?;
    take(pool, "c")?;
    machine.change(pool)
}
