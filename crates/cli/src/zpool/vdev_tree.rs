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
pub(super) const LINKS: Flag = flag('L', "follow links: show the devices that they lead to");
/// `-P`.
pub(super) const FULL_PATHS: Flag = flag('P', "show full paths of disks, not only their last part");

/// A group or device, and the name of its parent.
pub(super) type Vdev = (VdevReport, String);

/// The name of a vdev in a list.
pub(super) fn label(vdev: &VdevReport, parsed: &Parsed) -> String {
    label_of(&vdev.name, vdev.guid, parsed)
}

/// The name of a vdev in a list: its GUID with `-g`; else as in ZFS of a disk the last part of its
/// path, of an image file the path.
pub(super) fn label_of(name: &str, guid: u64, parsed: &Parsed) -> String {
    if parsed.has('g') && guid != 0 {
        return guid.to_string();
    }
    let real = match parsed.has('L') && name.starts_with('/') {
        true => std::fs::canonicalize(name).ok().and_then(|path| path.to_str().map(str::to_owned)),
        false => None,
    };
    let name = real.unwrap_or_else(|| name.to_owned());
    if parsed.has('P') { name } else { short(&name).to_owned() }
}

/// The name of a disk without its folder; else the name.
pub(super) fn short(name: &str) -> &str {
    let is_disk = name.starts_with("/dev/") && !name.starts_with("/dev/shm/");
    if is_disk { name.rsplit('/').next().unwrap_or(name) } else { name }
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
    is_number
        || vdev.name == word
        || short(&vdev.name) == word
        || Path::new(&vdev.name) == device_path(session, word)
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
