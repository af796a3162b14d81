//! `zfs upgrade`: file systems have one version, which is always the latest.

use super::select::{Kinds, select};
use crate::command::{Command, FAILED};
use crate::options::{MANY, Parsed, Syntax, flag, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;

pub(super) const COMMAND: Command = Command {
    names: &["upgrade"],
    syntax: Syntax {
        flags: &[
            flag('a', "all file systems"),
            flag('r', "also all file systems below"),
            flag('v', "list the versions"),
            valued('V', "version", "must be 5, the version of ZFS that file systems correspond to"),
        ],
        operands: "[filesystem]...",
        least: 0,
        most: MANY,
    },
    doc: "Lists file systems with an old version. There are none: `zpool upgrade` enables features of pools.",
    run: upgrade,
};

/// The version of OpenZFS file systems, and what each brought.
const VERSION: u32 = 5;
const VERSIONS: [&str; VERSION as usize] = [
    "Initial ZFS filesystem version",
    "Enhanced directory entries",
    "Case insensitive and filesystem user identifier (FUID)",
    "userquota, groupquota properties",
    "System attributes",
];

fn upgrade(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let version = parsed.value('V');
    let is_named = parsed.has('a') || !parsed.operands.is_empty();
    if let Some(wrong) = version.filter(|version| {
        !version.parse::<u32>().is_ok_and(|number| (1..=VERSION).contains(&number)) && *version != "current"
    }) {
        return Err(Failure::Usage(format!("invalid version {}", tame(wrong))));
    }
    if parsed.has('a') && !parsed.operands.is_empty() {
        return Err(Failure::Usage("-a cannot be combined with a file system".into()));
    }
    if parsed.has('v') && (parsed.has('r') || version.is_some() || is_named) {
        return Err(Failure::Usage("-v cannot be combined with other options".into()));
    }
    if !is_named && (parsed.has('r') || version.is_some()) {
        return Err(Failure::Usage("-r and -V need a file system, or -a".into()));
    }
    if parsed.has('v') {
        session.line("The following filesystem versions are supported:\n\nVER  DESCRIPTION");
        session.line(format!("---  {}", "-".repeat(56)));
        for (at, text) in VERSIONS.iter().enumerate() {
            session.line(format!(" {}   {text}", at + 1));
        }
        session
            .line("\nFile systems here have version 5 and features of their pool: see `zpool upgrade -v`.");
        return Ok(());
    }
    if !is_named {
        session.line(format!("This system is currently running ZFS filesystem version {VERSION}.\n"));
        session.line("All filesystems are formatted with the current version.");
        return Ok(());
    }
    let kinds = Kinds { filesystems: true, volumes: false, snapshots: false, bookmarks: false };
    let chosen = select(session, parsed, &parsed.operands, kinds, &["type".to_owned()])
        .doing(|| "cannot upgrade".into())?;
    let asked = version.and_then(|version| version.parse().ok()).unwrap_or(VERSION);
    if asked < VERSION {
        for filesystem in &chosen {
            let name = tame(&filesystem.name);
            session.line(format!("{name}: can not be downgraded; it is already at version {VERSION}"));
        }
    }
    session.line("0 filesystems upgraded");
    match (asked < VERSION, chosen.len()) {
        (_, 0) => Ok(()),
        (true, _) => Err(Failure::Status(FAILED)),
        (false, many) => {
            session.line(format!("{many} filesystems already at this version"));
            Ok(())
        }
    }
}
