//! Identities, squashing, rights.

use crate::support::{Calls, PATH, Portal};
use steadfast_nfs::client::Client;
use steadfast_nfs::xdr::{Reader, Writer};

const PERM: u32 = 1;
const ACCES: u32 = 13;
const ALL: u32 = 0x3f;

fn access(client: &mut Client, file: &[u8]) -> u32 {
    let answer = client.nfs(4, |out| _ = out.opaque(file).u32(ALL)).expect("answered");
    assert_eq!(answer.status, 0);
    let mut reader = Reader::new(&answer.results);
    steadfast_nfs::client::attributes(&mut reader).expect("attributes");
    reader.u32().expect("rights")
}

/// SETATTR with these values; its status.
fn set(client: &mut Client, file: &[u8], values: [Option<u32>; 3], size: Option<u64>) -> u32 {
    let write = |out: &mut Writer| {
        out.opaque(file);
        for value in values {
            out.bool(value.is_some());
            value.map(|value| out.u32(value));
        }
        out.bool(size.is_some());
        size.map(|size| out.u64(size));
        out.u32(0).u32(0).bool(false);
    };
    client.nfs(2, write).expect("answered").status
}

#[test]
fn root_of_a_client_is_nobody_unless_it_is_trusted() {
    let portal = Portal::new("async,insecure");
    portal
        .world
        .fs
        .setattr(1, &steadfast_posix::SetAttr { mode: Some(0o777), ..Default::default() })
        .expect("set");
    let (mut root, top) = portal.root();
    let file = root.create(&top, "of root", 0o600).expect("new");
    assert_eq!((file.attributes.uid, file.attributes.gid), (65_534, 65_534));
    let mut user = portal.client(1000, 50, &[0]);
    let file = user.create(&top, "of a user", 0o600).expect("new");
    assert_eq!((file.attributes.uid, file.attributes.gid), (1000, 50));
    assert_eq!(root.read(&file.handle, 0, 1), Err(ACCES));
    assert_eq!(
        set(&mut user, &file.handle, [None, None, Some(0)], None),
        PERM,
        "the group of root is squashed"
    );
    portal.share("async,insecure,all_squash,anonuid=7,anongid=8");
    let file = user.create(&top, "of all", 0o600).expect("new");
    assert_eq!((file.attributes.uid, file.attributes.gid), (7, 8));
    portal.share("async,insecure,no_root_squash");
    let file = root.create(&top, "of root itself", 0o600).expect("new");
    assert_eq!((file.attributes.uid, file.attributes.gid), (0, 0));
}

#[test]
fn rights_are_those_of_mode_groups_and_owner() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut root, top) = portal.root();
    assert_eq!(set(&mut root, &top, [Some(0o777), None, None], None), 0);
    let mut owner = portal.client(1000, 100, &[]);
    let (mut member, mut other) = (portal.client(1001, 1, &[7, 100]), portal.client(1002, 2, &[]));
    let file = owner.create(&top, "file", 0o640).expect("new").handle;
    let rights = |client: &mut Client| access(client, &file);
    assert_eq!((rights(&mut owner), rights(&mut member), rights(&mut other)), (0x0d, 0x01, 0));
    assert_eq!((member.write(&file, 0, 0, b"x").status, member.read(&file, 0, 1).map(drop)), (ACCES, Ok(())));
    assert_eq!(other.read(&file, 0, 1).map(drop), Err(ACCES));
    // An owner whose file is open goes on, whatever the mode.
    assert_eq!(set(&mut owner, &file, [Some(0), None, None], None), 0);
    assert_eq!((owner.write(&file, 0, 0, b"x").status, rights(&mut owner)), (0, 0));
    assert_eq!(set(&mut owner, &file, [None, None, None], Some(0)), 0);
    // A program may be loaded by those who may only run it.
    assert_eq!(set(&mut owner, &file, [Some(0o711), None, None], None), 0);
    assert_eq!(other.read(&file, 0, 1).map(drop), Ok(()));
    assert_eq!(set(&mut other, &file, [Some(0o777), None, None], None), PERM);
    assert_eq!(set(&mut owner, &file, [None, Some(1002), None], None), PERM);
    assert_eq!(set(&mut owner, &file, [None, None, Some(100)], None), 0);
    assert_eq!(set(&mut owner, &file, [None, None, Some(7)], None), PERM, "not of that group");
    assert_eq!(set(&mut root, &file, [None, Some(1002), Some(7)], None), 0);
    let dir = owner.mkdir(&top, "dir", 0o711).expect("new").handle;
    assert_eq!((access(&mut owner, &dir), access(&mut other, &dir)), (0x1f, 0x02));
    assert_eq!(other.create(&dir, "x", 0o600), Err(ACCES));
    let listed = other.nfs(16, |out| _ = out.opaque(&dir).u64(0).u64(0).u32(4096)).expect("answered").status;
    assert_eq!((listed, other.find(&dir, "x").map(drop)), (ACCES, Err(2)));
}

#[test]
fn only_owners_remove_names_of_a_sticky_directory() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut root, top) = portal.root();
    assert_eq!(set(&mut root, &top, [Some(0o1777), None, None], None), 0);
    let (mut one, mut other) = (portal.client(1000, 100, &[]), portal.client(1001, 100, &[]));
    one.create(&top, "a", 0o666).expect("new");
    other.create(&top, "b", 0o666).expect("new");
    assert_eq!(other.remove(&top, "a"), PERM);
    let rename = |client: &mut Client, name: &[u8], new: &[u8]| {
        client
            .nfs(14, |out| _ = out.opaque(&top).opaque(name).opaque(&top).opaque(new))
            .expect("answered")
            .status
    };
    assert_eq!((rename(&mut other, b"a", b"c"), rename(&mut other, b"b", b"a")), (PERM, PERM));
    assert_eq!((rename(&mut one, b"a", b"c"), one.remove(&top, "c"), root.remove(&top, "b")), (0, 0, 0));
}

/// A write drops the powers of a program.
#[test]
fn set_id_bits_go_with_a_write_of_anybody_but_root() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut root, top) = portal.root();
    assert_eq!(set(&mut root, &top, [Some(0o777), None, None], None), 0);
    let mut user = portal.client(1000, 100, &[]);
    let file = root.create(&top, "program", 0o6777).expect("new").handle;
    root.write(&file, 0, 0, b"x");
    assert_eq!(root.getattr(&file).expect("there").mode, 0o6777);
    user.write(&file, 0, 0, b"x");
    assert_eq!(root.getattr(&file).expect("there").mode, 0o777);
    // A device node is root's to make.
    let node = user.nfs(11, |out| {
        out.opaque(&top).opaque(b"null").u32(4);
        crate::support::mode(out, 0o666);
        out.u32(1).u32(3);
    });
    assert_eq!(node.expect("answered").status, PERM);
    assert_eq!(user.mount(PATH).expect("answered").map(drop), Ok(()));
}
