//! `zpool reopen`: brings back devices that were missing or removed.

use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::path::PathBuf;
use steadfast_control::Code;
use steadfast_control::api::{Health, PoolOnline, PoolReport, PoolStatus, VdevClass, VdevReport};

pub(super) const COMMAND: Command = Command {
    names: &["reopen"],
    syntax: Syntax {
        flags: &[flag('n', "accepted, no effect: a scrub that is running goes on in any case")],
        operands: "[pool]...",
        least: 0,
        most: MANY,
    },
    doc: "Opens devices again that were missing at the import or were removed, and uses those that are back.",
    run: reopen,
};

fn reopen(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let request = PoolStatus { names: parsed.operands.clone() };
    for pool in session.ask(request).doing(|| "cannot reopen".to_owned())? {
        for device in lost(&pool) {
            let request =
                PoolOnline { name: pool.name.clone(), devices: vec![PathBuf::from(&device)], expand: false };
            match session.ask(request) {
                Ok(outcome) => {
                    session.warn(&format!("'{}' is reopened, but", tame(&device)), &outcome.warnings);
                }
                // A device that is still away is no failure of the command, as in ZFS.
                Err(refusal) if refusal.code == Code::VdevMissing => {}
                Err(refusal) => session.complain(&format!("cannot reopen '{}'", tame(&device)), &refusal),
            }
        }
    }
    Ok(())
}

/// Devices of a pool that are not there.
fn lost(pool: &PoolReport) -> Vec<String> {
    fn walk(vdev: &VdevReport, found: &mut Vec<String>) {
        let is_lost = matches!(vdev.state, Health::Unavail | Health::Removed);
        if vdev.children.is_empty() && is_lost {
            found.push(vdev.name.clone());
        }
        vdev.children.iter().for_each(|child| walk(child, found));
    }
    let mut found = Vec::new();
    let own = pool
        .vdevs
        .iter()
        .filter(|vdev| !matches!(vdev.class, VdevClass::Anchor | VdevClass::Spare | VdevClass::Cache));
    own.for_each(|vdev| walk(vdev, &mut found));
    found
}
