//! The tree of a pool's groups and devices, as the daemon reports it.

use super::operands::device_path;
use crate::options::{Flag, Parsed, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::path::Path;
use steadfast_control::api::{Health, PoolStatus, VdevReport};

/// `-g`.
pub(super) const BY_GUID: Flag = flag('g', "show the GUIDs of devices instead of their paths");
/// `-L`.
pub(super) const LINKS: Flag = flag('L', "accepted, no effect: links are never followed");
/// `-P`.
pub(super) const FULL_PATHS: Flag = flag('P', "accepted, no effect: paths of devices are always full");

/// A group or device, and the name of its parent.
pub(super) type Vdev = (VdevReport, String);

/// The name of a vdev in a list: its GUID with `-g`, else its path.
pub(super) fn label(vdev: &VdevReport, parsed: &Parsed) -> String {
    if parsed.has('g') && vdev.guid != 0 { vdev.guid.to_string() } else { vdev.name.clone() }
}

/// All groups and devices of a pool, in the order of status.
///
/// # Errors
/// The daemon's refusal.
pub(super) fn vdevs(session: &mut Session<'_, '_>, pool: &str) -> Result<Vec<Vdev>, Failure> {
    fn walk(vdevs: &[VdevReport], parent: &str, all: &mut Vec<Vdev>) {
        for vdev in vdevs {
            all.push((vdev.clone(), parent.to_owned()));
            walk(&vdev.children, &vdev.name, all);
        }
    }
    let reports = session
        .ask(PoolStatus { names: vec![pool.to_owned()] })
        .doing(|| format!("cannot list the devices of '{}'", tame(pool)))?;
    let mut all = Vec::new();
    for report in &reports {
        walk(&report.vdevs, &report.name, &mut all);
    }
    Ok(all)
}

/// True if the word is the name, the GUID or the typed path of the vdev.
pub(super) fn is_called(session: &Session<'_, '_>, vdev: &VdevReport, word: &str) -> bool {
    let is_number = vdev.guid != 0 && vdev.guid.to_string() == word;
    is_number || vdev.name == word || Path::new(&vdev.name) == device_path(session, word)
}

/// A vdev and all below it, each with its depth.
pub(super) fn with_members(vdev: &VdevReport, depth: usize) -> Vec<(usize, &VdevReport)> {
    let members = vdev.children.iter().flat_map(|child| with_members(child, depth + 1));
    std::iter::once((depth, vdev)).chain(members).collect()
}

/// True if the device, or a device of the group, has errors or is not online.
fn is_sick(vdev: &VdevReport) -> bool {
    let erred = [vdev.read_errors, vdev.write_errors, vdev.checksum_errors].iter().any(|count| *count > 0);
    erred || !matches!(vdev.state, Health::Online | Health::Avail) || vdev.children.iter().any(is_sick)
}

/// All devices, or with `-e` those with errors.
pub(super) fn chosen(vdevs: &[VdevReport], parsed: &Parsed) -> Vec<VdevReport> {
    let chosen = vdevs.iter().filter(|vdev| !parsed.has('e') || is_sick(vdev));
    chosen.map(|vdev| VdevReport { children: self::chosen(&vdev.children, parsed), ..vdev.clone() }).collect()
}
