//! `-c` of `zpool status` and `zpool iostat`: programs that are run for each device, and whose
//! output `name=value` becomes columns.
//!
//! As in ZFS the programs lie in `~/.zpool.d` and `/etc/zfs/zpool.d`, or in the folders of
//! `ZPOOL_SCRIPTS_PATH`. `VDEV_PATH` and `VDEV_UPATH` tell them the device. Root runs them only if
//! `ZPOOL_SCRIPTS_AS_ROOT` is set: a user's folder must not become root's program. Nobody runs them
//! if `ZPOOL_SCRIPTS_ENABLED` is 0.

use crate::options::{Flag, Parsed, valued};
use crate::session::{Failure, Session};
use crate::table::tame;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use steadfast_control::api::{PoolReport, VdevReport};

/// `-c`.
pub(super) const SCRIPTS: Flag = valued(
    'c',
    "[script[,script]...]",
    "columns from programs that are run for each device, such as those of ZFS; as the last word: lists them",
);

/// True if `-c` is the last word: prints the programs that there are, with what each says of
/// itself if they may be run.
pub(super) fn listed(session: &mut Session<'_, '_>, parsed: &Parsed, verb: &str) -> bool {
    if parsed.value('c') != Some("") {
        return false;
    }
    session.line(format!("Available 'zpool {verb} -c' commands:"));
    let may_run = may_run(session).is_ok();
    for folder in folders(session) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut programs: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| runs(path)).collect();
        programs.sort();
        for program in programs {
            let name = tame(&program.file_name().unwrap_or_default().to_string_lossy());
            let help = if may_run { told(Command::new(&program).arg("-h")) } else { String::new() };
            let mut lines = help.lines().filter(|line| !line.trim().is_empty()).peekable();
            if lines.peek().is_none() {
                session.line(format!("  {name}"));
            }
            lines.for_each(|line| session.line(format!("  {name:<14}  {}", tame(line))));
        }
    }
    true
}

/// A file that its owner may run.
fn runs(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o100 != 0)
}

/// Nobody but who asks for it runs programs as root.
fn may_run(session: &Session<'_, '_>) -> Result<(), Failure> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| value != "0" && value != "NO");
    if std::env::var("ZPOOL_SCRIPTS_ENABLED").is_ok_and(|value| value == "0") {
        return Err(Failure::Usage("-c is disabled by ZPOOL_SCRIPTS_ENABLED".to_owned()));
    }
    if session.world.uid == 0 && !is_set("ZPOOL_SCRIPTS_AS_ROOT") {
        return Err(Failure::Usage("-c: root runs programs only if ZPOOL_SCRIPTS_AS_ROOT is set".to_owned()));
    }
    Ok(())
}

/// Output of the programs.
#[derive(Debug, Default)]
pub(super) struct Scripts {
    /// Names in the order in which they were first seen.
    names: Vec<String>,
    /// By GUID of the device.
    values: BTreeMap<u64, BTreeMap<String, String>>,
}

impl Scripts {
    /// Names of the columns, and the width of each.
    pub fn columns(&self) -> impl Iterator<Item = (&str, usize)> {
        self.names.iter().map(|name| {
            let cells = self.values.values().filter_map(|values| values.get(name));
            let widest = cells.map(|cell| cell.chars().count()).chain([name.chars().count()]).max();
            (name.as_str(), widest.unwrap_or(0))
        })
    }

    /// The value of a device.
    pub fn value(&self, guid: u64, name: &str) -> Option<&str> {
        self.values.get(&guid)?.get(name).map(String::as_str)
    }

    /// All values of a device.
    pub fn of(&self, guid: u64) -> impl Iterator<Item = (&str, &str)> {
        let values = self.values.get(&guid).into_iter().flatten();
        values.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Takes the output of one program for one device. A line without `=` is the value of a column
    /// with the program's name.
    fn take(&mut self, guid: u64, script: &str, output: &str) {
        for line in output.lines().filter(|line| !line.trim().is_empty()) {
            let (name, value) = line.split_once('=').unwrap_or((script, line));
            let name = name.trim();
            if !self.names.iter().any(|known| known == name) {
                self.names.push(name.to_owned());
            }
            self.values.entry(guid).or_default().insert(name.to_owned(), value.trim().to_owned());
        }
    }
}

/// Runs the programs of `-c` for each device.
///
/// # Errors
/// A program is in none of the folders, or root may not run them.
pub(super) fn run(
    session: &Session<'_, '_>,
    parsed: &Parsed,
    pools: &[PoolReport],
) -> Result<Scripts, Failure> {
    let mut scripts = Scripts::default();
    let Some(list) = parsed.value('c') else { return Ok(scripts) };
    may_run(session)?;
    let folders = folders(session);
    for name in list.split(',') {
        let program = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        let Some(program) = program.filter(|_| !name.contains('/')) else {
            let places: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            return Err(Failure::Usage(format!("-c: there is no program '{name}' in {}", places.join(", "))));
        };
        let vdevs = pools.iter().flat_map(|pool| &pool.vdevs);
        for device in vdevs.flat_map(leaves) {
            scripts.take(device.guid, name, &output(&program, &device.name));
        }
    }
    Ok(scripts)
}

fn leaves(vdev: &VdevReport) -> Vec<&VdevReport> {
    match vdev.children.is_empty() {
        true => vec![vdev],
        false => vdev.children.iter().flat_map(leaves).collect(),
    }
}

fn folders(session: &Session<'_, '_>) -> Vec<PathBuf> {
    match std::env::var_os("ZPOOL_SCRIPTS_PATH") {
        Some(path) => std::env::split_paths(&path).collect(),
        None => {
            let home = session.world.surroundings.home.as_ref().map(|home| home.join(".zpool.d"));
            home.into_iter().chain([PathBuf::from("/etc/zfs/zpool.d")]).collect()
        }
    }
}

/// Output of a program for a device; empty if it cannot be run.
fn output(program: &Path, device: &str) -> String {
    let real = std::fs::canonicalize(device).unwrap_or_else(|_| PathBuf::from(device));
    told(Command::new(program).env("VDEV_PATH", device).env("VDEV_UPATH", real))
}

/// Output of a program; empty if it cannot be run.
fn told(command: &mut Command) -> String {
    let ran = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    ran.map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_becomes_columns() {
        let mut scripts = Scripts::default();
        scripts.take(7, "smart", "temp=31\nhealth = PASSED\n\n");
        scripts.take(8, "smart", "temp=9\n");
        scripts.take(8, "label", "left bay\n");
        let columns: Vec<_> = scripts.columns().collect();
        assert_eq!(columns, [("temp", 4), ("health", 6), ("label", 8)]);
        assert_eq!((scripts.value(8, "label"), scripts.value(7, "label")), (Some("left bay"), None));
        assert_eq!(scripts.of(8).collect::<Vec<_>>(), [("label", "left bay"), ("temp", "9")]);
    }
}
