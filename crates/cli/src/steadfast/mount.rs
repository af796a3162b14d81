//! `mount.steadfast`, which mount(8) calls.

use crate::command::Command;
use crate::options::{Parsed, Syntax, flag, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::path::Path;
use steadfast_control::api::{FsList, FsMount, PoolStatus, VdevReport};
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
    let name = pool_of_device(session, &parsed.operands[0])?;
    let at = session.world.absolute(&parsed.operands[1]);
    if let Some((fs, snapshot)) = name.split_once('@') {
        return mount_snapshot(session, (fs, snapshot), &at, parsed.has('f'));
    }
    let all: Vec<&str> = parsed.values('o').flat_map(|list| list.split(',')).collect();
    let options: Vec<String> = all
        .iter()
        .copied()
        .filter(|option| !concerns_others(option))
        .filter(|option| MOUNT_OPTIONS.contains(option) || !parsed.has('s'))
        .map(str::to_owned)
        .collect();
    if session.typed.starts_with("mount.zfs ") && !at.is_dir() {
        let what = format!("{} is no folder", at.display());
        let refusal = Refusal::new(Code::FsMountpoint, what).with("mountpoint", at.display());
        return Err(refusal).doing(|| format!("cannot mount '{}'", tame(&name)));
    }
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

/// The pool that a device belongs to: mount(8) may name a pool by one of them, as for ZFS. Anything
/// else is a name already.
fn pool_of_device(session: &mut Session<'_, '_>, operand: &str) -> Result<String, Failure> {
    if !operand.starts_with('/') {
        return Ok(operand.to_owned());
    }
    let real = |path: &str| Path::new(path).canonicalize().ok();
    let device = real(operand);
    let holds = |vdevs: &[VdevReport]| {
        let mut waiting: Vec<&VdevReport> = vdevs.iter().collect();
        while let Some(vdev) = waiting.pop() {
            if vdev.name == operand || device.is_some() && real(&vdev.name) == device {
                return true;
            }
            waiting.extend(&vdev.children);
        }
        false
    };
    let pools = session.ask(PoolStatus::default()).doing(|| format!("cannot mount '{}'", tame(operand)))?;
    let found = pools.into_iter().find(|pool| holds(&pool.vdevs));
    Ok(found.map_or_else(|| operand.to_owned(), |pool| pool.name))
}

/// Shows a snapshot at a folder: the kernel binds its place below `.zfs` there, without writes.
/// Ends with `umount`.
fn mount_snapshot(
    session: &mut Session<'_, '_>,
    (fs, snapshot): (&str, &str),
    at: &Path,
    checks_only: bool,
) -> Result<(), Failure> {
    let doing = || format!("cannot mount '{}@{}'", tame(fs), tame(snapshot));
    let found = session.ask(FsList { names: vec![fs.to_owned()], depth: Some(0) }).doing(doing)?;
    let Some(root) = found.into_iter().find_map(|fs| fs.mounted_at) else {
        let what = format!("filesystem '{0}' is not mounted", tame(fs));
        let refusal = Refusal::new(Code::FsMountpoint, what).with("mountpoint", at.display());
        let instead = format!("Run `zfs mount {0}` first: its snapshots are shown inside of it.", tame(fs));
        return Err(refusal.advising(&instead)).doing(doing);
    };
    let place = root.join(".zfs/snapshot").join(snapshot);
    if !place.is_dir() {
        let what = format!("there is no snapshot '{fs}@{snapshot}'");
        let refusal = Refusal::new(Code::SnapshotAbsent, what).with("snapshot", format!("{fs}@{snapshot}"));
        return Err(refusal).doing(doing);
    }
    if checks_only {
        return Ok(());
    }
    let bound = std::process::Command::new("mount").args(["-o", "bind,ro", "--"]).arg(place).arg(at).status();
    match bound {
        Ok(status) if status.success() => Ok(()),
        // mount(8) has said why.
        _ => {
            let what = format!("the kernel does not bind it to {}", at.display());
            Err(Refusal::new(Code::FsMountpoint, what).with("mountpoint", at.display())).doing(doing)
        }
    }
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
