//! `zpool add`.

use super::operands::{ASHIFT, FORCE, check_new, layout, vdevs};
use super::vdev_tree::{BY_GUID, FULL_PATHS, LINKS, label, with_members};
use crate::command::Command;
use crate::options::{Flag, MANY, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{PoolAdd, PoolStatus, VdevReport};

pub(super) const COMMAND: Command = Command {
    names: &["add"],
    syntax: Syntax {
        flags: &[
            FORCE,
            flag('n', "check only, and print the layout"),
            ASHIFT,
            BY_GUID,
            LINKS,
            FULL_PATHS,
            allow(ALLOW_IN_USE, "overwrite devices that seem to be in use"),
            allow(
                ALLOW_MISMATCH,
                "groups of other redundancy than the pool has, and of devices of different sizes",
            ),
            allow("allow-ashift-mismatch", "accepted, no effect: all devices of a pool have one ashift"),
        ],
        operands: "pool vdev...",
        least: 2,
        most: MANY,
    },
    doc: "Adds devices to a pool. `zpool remove` undoes it.",
    run: add,
};

const ALLOW_IN_USE: &str = "allow-in-use";
const ALLOW_MISMATCH: &str = "allow-replication-mismatch";

const fn allow(long: &'static str, doc: &'static str) -> Flag {
    Flag { letter: '\0', long, value: "", doc }
}

fn add(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let doing = || format!("cannot add to '{}'", tame(&name));
    check_new(session, parsed, &name, doing)?;
    let vdevs = vdevs(session, &parsed.operands[1..]).doing(doing)?;
    let layout = layout(&vdevs);
    let dry_run = parsed.has('n');
    let before: Vec<VdevReport> = if dry_run {
        let request = PoolStatus { names: vec![name.clone()] };
        session.ask(request).doing(doing)?.into_iter().flat_map(|pool| pool.vdevs).collect()
    } else {
        Vec::new()
    };
    let request = PoolAdd {
        name: name.clone(),
        vdevs,
        force: parsed.has('f') || parsed.has_long(ALLOW_IN_USE),
        allow_mismatch: parsed.has('f') || parsed.has_long(ALLOW_MISMATCH),
        dry_run,
    };
    let outcome = session.ask(request).doing(doing)?;
    if dry_run {
        session.line(format!("would update '{name}' to the following configuration:\n\n\t{name}"));
        let before = before.iter().flat_map(|vdev| with_members(vdev, 1));
        let before = before.map(|(depth, vdev)| (depth, tame(&label(vdev, parsed))));
        for (depth, name) in before.chain(layout) {
            session.line(format!("\t{}{name}", "  ".repeat(depth)));
        }
    }
    session.warn(&format!("devices are added to '{name}', but"), &outcome.warnings);
    Ok(())
}
