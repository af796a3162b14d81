//! Rights by mode, groups and access lists are the kernel's: the same files on a file system of
//! this machine, and `test -r`, `-w`, `-x` of each identity.

use crate::support::World;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use steadfast_dataset::Settings;
use steadfast_env::Env;
use steadfast_posix::{AclKind, Caller, Identity, SetAttr};

const OWNER: u32 = 1000;
const GROUP: u32 = 100;

/// Each with its first group and the others.
const PEOPLE: [(u32, u32, &[u32]); 7] = [
    (0, 0, &[]),
    (OWNER, GROUP, &[]),
    (OWNER, 1, &[]),
    (1001, GROUP, &[]),
    (1001, 1, &[5, GROUP]),
    (1002, 2, &[]),
    (1003, 3, &[50]),
];

/// An access list as the kernel keeps it: tag, permissions, id.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&bits.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// Lists that name users and groups in all the ways that make a difference.
fn lists() -> Vec<Vec<u8>> {
    let none = u32::MAX;
    let mut lists = Vec::new();
    for (named, group, mask) in [(7, 0, 7), (7, 5, 4), (0, 7, 7), (6, 3, 0), (4, 2, 6), (0, 0, 5)] {
        for others in [0, 7] {
            lists.push(list(&[
                (1, 4, none),
                (2, named, 1002),
                (4, group, none),
                (16, mask, none),
                (32, others, none),
            ]));
            let groups = [(8, named, GROUP), (8, 1, 50)];
            lists.push(list(
                &[&[(1, 6, none), (4, group, none)], &groups[..], &[(16, mask, none), (32, others, none)]]
                    .concat(),
            ));
            lists.push(list(&[
                (1, 0, none),
                (2, named, 1001),
                (4, group, none),
                (8, 2, 5),
                (16, mask, none),
                (32, others, none),
            ]));
        }
    }
    lists
}

/// The answers of the kernel to one of them: three bits for each file, in the order of numbers.
fn kernel(folder: &Path, count: usize, (uid, gid, groups): (u32, u32, &[u32])) -> Vec<u32> {
    let script = "i=0; while [ $i -lt $1 ]; do r=0; [ -r $i ] && r=4; [ -w $i ] && r=$((r+2)); \
                  [ -x $i ] && r=$((r+1)); echo $r; i=$((i+1)); done";
    let mut command = Command::new("setpriv");
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}"));
    match groups.is_empty() {
        true => command.arg("--clear-groups"),
        false => command.arg(format!("--groups={}", groups.join(","))),
    };
    command.args(["sh", "-c", script, "sh", &count.to_string()]).current_dir(folder).stdin(Stdio::null());
    let ran = command.output().expect("setpriv runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout)
        .expect("digits")
        .lines()
        .map(|line| line.parse().expect("a digit"))
        .collect()
}

#[test]
fn rights_are_the_kernels() {
    if !rustix::process::getuid().is_root() {
        return eprintln!("SKIPPED rights of the kernel: only root can be somebody else");
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("set");
    let world = World::new(Env::real(), Settings::default());
    world.fs.set_acls(true);
    let mut files: Vec<u64> = Vec::new();
    let mut make = |is_folder: bool, mode: u32, acl: Option<&[u8]>| {
        let (name, caller) = (files.len().to_string(), Caller { uid: OWNER, gid: GROUP, umask: 0 });
        let path = folder.path().join(&name);
        let made = if is_folder {
            std::fs::create_dir(&path).expect("made");
            world.fs.mkdir(caller, 1, name.as_bytes(), mode)
        } else {
            std::fs::write(&path, "").expect("made");
            world.fs.mknod(caller, 1, name.as_bytes(), 0o100_000 | mode, 0)
        };
        let ino = made.expect("made").ino;
        chown(&path, Some(OWNER), Some(GROUP)).expect("owned");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
        world.fs.setattr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() }).expect("set");
        if let Some(acl) = acl {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, "system.posix_acl_access", acl, flags)?;
            world.fs.set_acl(ino, AclKind::Access, acl, false).expect("set");
        }
        files.push(ino);
        Ok::<(), rustix::io::Errno>(())
    };
    for mode in 0..0o1000 {
        make(false, mode, None).expect("without a list");
    }
    for mode in (0..0o1000).step_by(13) {
        make(true, mode, None).expect("without a list");
    }
    for (acl, is_folder) in lists().iter().flat_map(|acl| [(acl, false), (acl, true)]) {
        if let Err(error) = make(is_folder, 0o600, Some(acl)) {
            assert_eq!(error, rustix::io::Errno::OPNOTSUPP, "{acl:?}");
            eprintln!("SKIPPED access lists: {} has none", folder.path().display());
            break;
        }
    }
    for (uid, gid, groups) in PEOPLE {
        let expected = kernel(folder.path(), files.len(), (uid, gid, groups));
        assert_eq!(expected.len(), files.len());
        let who = Identity { uid, gid, groups };
        for (number, (ino, expected)) in files.iter().zip(expected).enumerate() {
            let may = |wanted| world.fs.may(&who, *ino, wanted).expect("readable");
            let ours = [4, 2, 1].into_iter().filter(|wanted| may(*wanted)).sum::<u32>();
            let mode = world.fs.getattr(*ino).expect("there").mode;
            assert_eq!(ours, expected, "file {number} of mode {mode:o}, {who:?}");
        }
    }
}
