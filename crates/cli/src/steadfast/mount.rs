//! `mount.steadfast`, which mount(8) calls.

use crate::command::Command;
use crate::options::{Parsed, Syntax, flag, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{FsList, FsMount};
use steadfast_control::{Code, Refusal};

/// Names of the helper. mount(8) calls the first one for a line of /etc/fstab, the second one to
/// change a mount, because the kernel lists the type `fuse.steadfast`, and the third one for a line
/// or a command that was written for ZFS (`mount -t zfs tank/home /home`).
pub(crate) const NAMES: [&str; 3] = ["mount.steadfast", "mount.fuse.steadfast", "mount.zfs"];

pub(crate) const COMMAND: Command = Command {
    names: &["mount"],
    syntax: Syntax {
        flags: &[
            flag('s', "ignore unknown options"),
            flag('f', "check only"),
            flag('n', "accepted, no effect"),
            flag('v', "print the file system and the folder"),
            valued('N', "namespace", "accepted, no effect"),
            valued('t', "type", "accepted, no effect"),
            valued(
                'o',
                "options",
                "ro, noexec, nosuid, nodev, noatime, relatime, nodiratime, allow_other, remount and their opposites",
            ),
        ],
        operands: "filesystem folder",
        least: 2,
        most: 2,
    },
    doc: "Mounts a file system of an imported pool at a folder, or changes its mount options.",
    run: mount,
};

/// Options with which `mount -t zfs` mounts what has a mountpoint of its own.
const FOR_OTHERS: [&str; 2] = ["zfsutil", "remount"];

/// Options with an effect. With `-s` others are ignored.
const MOUNT_OPTIONS: [&str; 22] = [
    "ro",
    "rw",
    "exec",
    "noexec",
    "suid",
    "setuid",
    "nosuid",
    "nosetuid",
    "dev",
    "devices",
    "nodev",
    "nodevices",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "diratime",
    "nodiratime",
    "allow_other",
    "remount",
    "defaults",
];

fn mount(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let at = session.world.absolute(&parsed.operands[1]);
    let all: Vec<&str> = parsed.values('o').flat_map(|list| list.split(',')).collect();
    let options: Vec<String> = all
        .iter()
        .copied()
        .filter(|option| !concerns_others(option))
        .filter(|option| MOUNT_OPTIONS.contains(option) || !parsed.has('s'))
        .map(str::to_owned)
        .collect();
    let fs = FsList { names: vec![name.clone()], depth: Some(0) };
    if parsed.has('f') {
        // The check: the file system exists.
        session.ask(fs).doing(|| format!("cannot mount '{}'", tame(&name)))?;
        return Ok(());
    }
    if session.typed.starts_with("mount.zfs ") && !all.iter().any(|option| FOR_OTHERS.contains(option)) {
        let found = session.ask(fs).doing(|| format!("cannot mount '{}'", tame(&name)))?;
        if found.iter().any(|fs| fs.value("mountpoint") != "legacy") {
            let what = format!("filesystem '{}' cannot be mounted using 'mount'", tame(&name));
            let instead = format!(
                "Run `zfs set mountpoint=legacy {0}`, or mount it with `zfs mount {0}`.",
                tame(&name)
            );
            let refusal = Refusal::new(Code::FsMountpoint, what).with("mountpoint", at.display());
            return Err(refusal.advising(&instead)).doing(|| format!("cannot mount '{}'", tame(&name)));
        }
    }
    if parsed.has('v') {
        session.line(format!("{} is mounted at {}", tame(&name), tame(&at.display().to_string())));
    }
    let request = FsMount { name: name.clone(), at: Some(at), options, overlay: true };
    session.ask(request).doing(|| format!("cannot mount '{}'", tame(&name)))?;
    Ok(())
}

/// True for an option that mount(8) passes on although it is not for the helper: one of mount(8) or
/// /etc/fstab, one that all file systems have, or one that the kernel lists for every FUSE mount.
fn concerns_others(option: &str) -> bool {
    let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    matches!(option, "" | "defaults" | "auto" | "noauto" | "nofail" | "_netdev")
        || matches!(option, "user" | "users" | "nouser" | "group" | "owner" | "async" | "nolazytime")
        || matches!(option, "default_permissions" | "zfsutil")
        || value.is_some()
            && matches!(name, "user_id" | "group_id" | "max_read" | "blksize" | "rootmode" | "fd" | "comment")
        || option.starts_with("x-")
        || option.starts_with("X-")
}
