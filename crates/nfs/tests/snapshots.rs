//! `.zfs` for clients: the folders, and snapshots behind them.

use crate::names::list;
use crate::support::{Calls, PATH, Portal, mode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use steadfast_dataset::Settings;
use steadfast_env::Env;
use steadfast_nfs::client::Client;

const OPTIONS: &str = "async,insecure,no_root_squash";
const PERM: u32 = 1;
const NOENT: u32 = 2;
const ACCES: u32 = 13;
const EXIST: u32 = 17;
const ROFS: u32 = 30;
const STALE: u32 = 70;
const MONDAY: u64 = 40;

/// A file system with a file `note` and a snapshot `monday`, in which it says something else. Both
/// have the same number of inode.
fn portal() -> Portal {
    let portal = Portal::new(OPTIONS);
    let then = crate::support::World::new(Env::real(), Settings::default());
    for (fs, content) in [(&portal.world.fs, &b"now"[..]), (&then.fs, b"then")] {
        let file = fs.mknod(steadfast_posix::Caller::ROOT, 1, b"note", 0o100_640, 0).expect("new");
        fs.write(file.ino, 0, content, steadfast_posix::SetIds::Stay).expect("room");
        fs.forget(file.ino, 1);
    }
    add(&portal, MONDAY, "monday", &then.fs);
    portal
}

fn add(portal: &Portal, number: u64, name: &str, fs: &Arc<steadfast_posix::FileSystem>) {
    portal.mounted.snapshots.lock().insert(number, (name.to_owned(), Arc::clone(fs)));
}

fn walk(client: &mut Client, from: &[u8], names: &[&str]) -> Vec<u8> {
    let mut at = from.to_vec();
    for name in names {
        at = client.find(&at, name).expect(name).handle;
    }
    at
}

#[test]
fn a_snapshot_is_a_file_system_of_its_own_below_the_folder() {
    let portal = portal();
    let (mut client, top) = portal.root();
    let live = client.find(&top, "note").expect("there");
    let monday = walk(&mut client, &top, &[".zfs", "snapshot", "monday"]);
    let old = client.find(&monday, "note").expect("there");
    assert_eq!(client.read(&live.handle, 0, 100), Ok((b"now".to_vec(), true)));
    assert_eq!(client.read(&old.handle, 0, 100), Ok((b"then".to_vec(), true)));
    assert_eq!(old.attributes.ino, live.attributes.ino);
    let fsid = |client: &mut Client, handle: &[u8]| client.getattr(handle).expect("there").fsid;
    let (now, then) = (fsid(&mut client, &top), fsid(&mut client, &monday));
    assert_ne!(now, then, "or a client takes one for the other");
    assert_eq!((live.attributes.fsid, old.attributes.fsid), (now, then));
    // Up again, through folders of the live file system.
    let folder = walk(&mut client, &monday, &[".."]);
    assert_eq!(folder, walk(&mut client, &top, &[".zfs", "snapshot"]));
    assert_eq!(fsid(&mut client, &folder), now);
    assert_eq!(walk(&mut client, &folder, &["..", ".."]), top);
    assert_eq!(client.find(&folder, "tuesday"), Err(NOENT));
    let zfs = walk(&mut client, &top, &[".zfs"]);
    assert_eq!(client.find(&zfs, "shares"), Err(NOENT));
    // A handle means the snapshot, not its name.
    let (_, fs) = portal.mounted.snapshots.lock().remove(&MONDAY).expect("there");
    add(&portal, MONDAY, "renamed", &fs);
    assert_eq!(client.read(&old.handle, 0, 100), Ok((b"then".to_vec(), true)));
    portal.mounted.snapshots.lock().clear();
    assert_eq!(client.read(&old.handle, 0, 100), Err(STALE));
    assert_eq!(client.find(&monday, "note"), Err(STALE));
    assert!(fs.dataset().all_lookups().is_empty(), "no reference is left");
}

#[test]
fn nothing_is_changed_in_a_snapshot_and_no_name_hides_the_folder() {
    let portal = portal();
    let (mut client, top) = portal.root();
    let folder = walk(&mut client, &top, &[".zfs", "snapshot"]);
    let monday = walk(&mut client, &folder, &["monday"]);
    let old = walk(&mut client, &monday, &["note"]);
    for dir in [&monday, &folder] {
        assert_eq!(client.create(dir, "new", 0o600), Err(ROFS));
        assert_eq!(client.remove(dir, "note"), ROFS);
    }
    assert_eq!(client.mkdir(&monday, "new", 0o700), Err(ROFS));
    assert_eq!(client.write(&old, 0, 2, b"x").status, ROFS);
    let link = |client: &mut Client, file: &[u8], dir: &[u8], name: &str| {
        let answer = client.nfs(15, |out| _ = out.opaque(file).opaque(dir).opaque(name.as_bytes()));
        answer.expect("answered").status
    };
    let rename = |client: &mut Client, from: (&[u8], &str), to: (&[u8], &str)| {
        let ends = [from, to];
        let answer = client.nfs(14, |out| {
            for (dir, name) in ends {
                out.opaque(dir).opaque(name.as_bytes());
            }
        });
        answer.expect("answered").status
    };
    let live = walk(&mut client, &top, &["note"]);
    assert_eq!(link(&mut client, &old, &top, "two"), ROFS);
    assert_eq!(link(&mut client, &live, &monday, "two"), ROFS);
    assert_eq!(rename(&mut client, (&top, "note"), (&monday, "two")), ROFS);
    assert_eq!(rename(&mut client, (&monday, "note"), (&top, "two")), ROFS);
    // The name of the folder.
    assert_eq!(client.create(&top, ".zfs", 0o600), Err(EXIST));
    assert_eq!(client.mkdir(&top, ".zfs", 0o700), Err(EXIST));
    assert_eq!(link(&mut client, &live, &top, ".zfs"), EXIST);
    assert_eq!(rename(&mut client, (&top, "note"), (&top, ".zfs")), EXIST);
    assert_eq!(rename(&mut client, (&top, ".zfs"), (&top, "two")), PERM);
    assert_eq!(client.remove(&top, ".zfs"), PERM);
    let made = client.nfs(10, |out| {
        out.opaque(&top).opaque(b".zfs");
        mode(out, 0o777);
        out.opaque(b"target");
    });
    assert_eq!(made.expect("answered").status, EXIST);
    // Elsewhere the name is free.
    let sub = client.mkdir(&top, "sub", 0o700).expect("new").handle;
    client.mkdir(&sub, ".zfs", 0o700).expect("new");
    assert_eq!(portal.world.content(client.getattr(&live).expect("there").ino), b"now");
}

#[test]
fn listings_name_the_folder_where_it_is_to_be_seen_and_snapshots_always() {
    let portal = portal();
    let (mut client, top) = portal.root();
    let then = Arc::clone(&portal.mounted.snapshots.lock()[&MONDAY].1);
    for number in 0..300 {
        add(&portal, 1_000 - number, &format!("daily-{number}"), &then);
    }
    let mut expected = vec![".", "..", "monday"].into_iter().map(str::to_owned).collect::<Vec<_>>();
    expected.extend((0..300).rev().map(|number| format!("daily-{number}")));
    let folder = walk(&mut client, &top, &[".zfs", "snapshot"]);
    let monday = walk(&mut client, &folder, &["monday"]);
    for (bytes, plus) in [(600, false), (1 << 20, false), (1_000, true), (64 << 10, true)] {
        assert_eq!(list(&mut client, &folder, bytes, plus), Ok(expected.clone()), "{bytes} bytes");
        let zfs = walk(&mut client, &top, &[".zfs"]);
        let three = [".", "..", "snapshot"].map(str::to_owned).to_vec();
        assert_eq!(list(&mut client, &zfs, bytes, plus), Ok(three));
    }
    for number in 0..50 {
        client.create(&top, &format!("file-{number}"), 0o600).expect("new");
    }
    let empty = client.mkdir(&top, "empty", 0o700).expect("new").handle;
    for visible in [false, true] {
        portal.mounted.shows_folder.store(visible, Ordering::Relaxed);
        for (bytes, plus) in [(600, false), (1 << 20, false), (1_000, true), (64 << 10, true)] {
            let names = list(&mut client, &top, bytes, plus).expect("listed");
            assert_eq!(names.len(), 54 + usize::from(visible), "{bytes} bytes");
            assert_eq!(names.iter().filter(|name| *name == ".zfs").count(), usize::from(visible));
            assert_eq!(list(&mut client, &empty, bytes, plus).expect("listed").len(), 2);
            assert_eq!(list(&mut client, &monday, bytes, plus).expect("listed").len(), 3);
        }
    }
    assert!(portal.world.fs.dataset().all_lookups().is_empty(), "no reference is left");
}

#[test]
fn rights_are_those_of_the_snapshot_and_a_path_into_it_can_be_mounted() {
    let portal = portal();
    let (mut root, top) = portal.root();
    let mount = |client: &mut Client, path: &str| client.mount(&format!("{PATH}/{path}")).expect("answered");
    let monday = walk(&mut root, &top, &[".zfs", "snapshot", "monday"]);
    assert_eq!(mount(&mut root, ".zfs/snapshot/monday"), Ok(monday.clone()));
    assert_eq!(mount(&mut root, ".zfs"), Ok(walk(&mut root, &top, &[".zfs"])));
    assert_eq!(mount(&mut root, ".zfs/snapshot/tuesday"), Err(NOENT));
    assert_eq!(mount(&mut root, ".zfs/.."), Err(NOENT));
    assert_eq!(mount(&mut root, ".zfs/snapshot/monday/note"), Err(20), "a file");
    // The file is its owner's and his group's.
    let mut other = portal.client(1_000, 1_000, &[]);
    let old = walk(&mut root, &monday, &["note"]);
    assert_eq!(other.read(&old, 0, 100), Err(ACCES));
    portal
        .world
        .fs
        .setattr(1, &steadfast_posix::SetAttr { mode: Some(0o700), ..Default::default() })
        .expect("set");
    assert_eq!(other.find(&top, ".zfs"), Err(ACCES), "who may not enter the top");
    assert_eq!(mount(&mut other, ".zfs/snapshot/monday"), Err(ACCES));
    let access = |client: &mut Client, file: &[u8]| {
        let answer = client.nfs(4, |out| _ = out.opaque(file).u32(0x3f)).expect("answered");
        (answer.status, answer.results[answer.results.len() - 4..].to_vec())
    };
    assert_eq!(access(&mut root, &monday), (0, vec![0, 0, 0, 0x3]), "READ and LOOKUP, no change");
}

#[test]
fn a_folder_of_snapshots_takes_renames_and_destroys_them_for_users_who_may() {
    let portal = portal();
    let (mut client, top) = portal.root();
    let folder = walk(&mut client, &top, &[".zfs", "snapshot"]);
    let zfs = walk(&mut client, &top, &[".zfs"]);
    let access = |client: &mut Client, dir: &[u8]| {
        let answer = client.nfs(4, |out| _ = out.opaque(dir).u32(0x3f)).expect("answered");
        answer.results[answer.results.len() - 4..].to_vec()
    };
    let rmdir = |client: &mut Client, dir: &[u8], name: &str| {
        client.nfs(13, |out| _ = out.opaque(dir).opaque(name.as_bytes())).expect("answered").status
    };
    let rename = |client: &mut Client, from: (&[u8], &str), to: (&[u8], &str)| {
        let ends = [from, to];
        let answer = client.nfs(14, |out| {
            for (dir, name) in ends {
                out.opaque(dir).opaque(name.as_bytes());
            }
        });
        answer.expect("answered").status
    };
    assert_eq!(access(&mut client, &folder), [0, 0, 0, 0x1f], "all but to run it");
    assert_eq!(access(&mut client, &zfs), [0, 0, 0, 0x3]);
    let before = client.getattr(&folder).expect("there").mtime;
    let made = client.mkdir(&folder, "new", 0o700).expect("taken");
    assert_eq!(made.handle, walk(&mut client, &folder, &["new"]), "the top of the snapshot");
    assert_ne!(made.attributes.fsid, client.getattr(&folder).expect("there").fsid);
    assert_ne!(client.getattr(&folder).expect("there").mtime, before, "or a client keeps its listing");
    let note = walk(&mut client, &made.handle, &["note"]);
    assert_eq!(client.read(&note, 0, 9), Ok((b"now".to_vec(), true)));
    assert_eq!(rename(&mut client, (&folder, "new"), (&folder, "old")), 0);
    assert_eq!(client.find(&folder, "new"), Err(NOENT));
    assert_eq!(client.getattr(&made.handle).expect("the same").ino, 1);
    // Not out of the folder, and not into it.
    assert_eq!(rename(&mut client, (&folder, "old"), (&top, "old")), ROFS);
    assert_eq!(rename(&mut client, (&folder, "old"), (&zfs, "old")), ROFS);
    assert_eq!(rename(&mut client, (&top, "note"), (&folder, "note")), ROFS);
    assert_eq!(client.mkdir(&zfs, "new", 0o700), Err(ROFS));
    // A name of a snapshot is text.
    let odd = client.nfs(13, |out| _ = out.opaque(&folder).opaque(&[0xff, 0xfe])).expect("answered");
    assert_eq!(odd.status, 22);
    assert_eq!(rmdir(&mut client, &folder, "held"), ACCES);
    assert_eq!(rmdir(&mut client, &folder, "new"), NOENT);
    let mut other = portal.client(1_000, 1_000, &[]);
    assert_eq!(other.mkdir(&folder, "theirs", 0o700), Err(PERM));
    assert_eq!(rmdir(&mut other, &folder, "old"), PERM);
    assert_eq!(rmdir(&mut client, &folder, "old"), 0);
    assert_eq!(client.getattr(&made.handle), Err(STALE));
    // Nobody changes them through a share that is for reading.
    portal.share("insecure,no_root_squash,ro");
    assert_eq!(client.mkdir(&folder, "new", 0o700), Err(ROFS));
    assert_eq!(rmdir(&mut client, &folder, "monday"), ROFS);
    assert_eq!(access(&mut client, &folder), [0, 0, 0, 0x3]);
    assert!(portal.world.fs.dataset().all_lookups().is_empty(), "no reference is left");
}
