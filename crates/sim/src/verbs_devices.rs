//! Verbs of devices: attach, detach, replace, remove, scrub, split, spares and logs.

use std::sync::Arc;
use steadfast_device::Device;

use steadfast_format::GroupClass;

use steadfast_pool::{Redundancy, ScrubCommand};

use crate::verbs::{Verb, nothing, said};
use crate::world::{self, SHORT_SLOTS};

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
            pool.devices().rebalance(ScrubCommand::Start).map_err(said)?;
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
            pool.devices().rebalance(ScrubCommand::Start).map_err(said)?;
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
            pool.datasets().set_property("tank", "special_small_blocks", Some("16384")).map_err(said)?;
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
        before: |machine, pool| {
            pool.devices().add_spares(vec![machine.handle(3)], false, false).map_err(said)
        },
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
            pool.devices().add_spares(vec![machine.handle(2)], false, false).map_err(said)?;
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
            pool.devices().add_spares(vec![machine.handle(2)], false, false).map_err(said)?;
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
    // Labels of log devices are never older than those of leaves [log_device.3].
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
            pool.devices().add_spares(vec![machine.handle(3)], false, false).map_err(said)
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
            pool.reguid(None).map_err(said)?;
            pool.reguid(None).map_err(said)
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
            let moved = pool.devices().rebalance(ScrubCommand::Start).map_err(said);
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
        // More than half a segment, which fits into no narrow one: the cleaner has to take it
        // apart.
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
