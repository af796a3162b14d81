//! Access lists by the program beside NFS 3.

use crate::support::{Calls, Portal};
use steadfast_nfs::acl3::{PROGRAM, wanted};
use steadfast_nfs::client::{Client, attributes};
use steadfast_nfs::xdr::{Reader, Writer};
use steadfast_posix::AclKind;

const PERM: u32 = 1;
const INVAL: u32 = 22;
const ROFS: u32 = 30;
const NOTSUPP: u32 = 10_004;
const BOTH: u32 = wanted::ACCESS | wanted::DEFAULT;

/// Tag, id, permissions.
type Entry = (u32, u32, u32);

/// Asks for both lists.
fn get(client: &mut Client, file: &[u8]) -> Result<[Vec<Entry>; 2], u32> {
    let mut arguments = Writer::default();
    arguments.opaque(file).u32(BOTH);
    let results = client.call(PROGRAM, 1, &arguments.out).expect("answered");
    let mut reader = Reader::new(&results);
    let status = reader.u32().expect("a status");
    let there = attributes(&mut reader);
    if status != 0 {
        assert_eq!((there, reader.rest()), (None, &b""[..]));
        return Err(status);
    }
    assert!(there.is_some());
    assert_eq!(reader.u32(), Ok(BOTH));
    let mut list = || {
        let (told, count) = (reader.u32().expect("a number"), reader.u32().expect("a count"));
        assert_eq!(told, count);
        let mut number = || reader.u32().expect("a part of an entry");
        (0..count).map(|_| (number(), number(), number())).collect()
    };
    Ok([list(), list()])
}

/// Sets lists, and returns the status.
fn set(client: &mut Client, file: &[u8], access: Option<&[Entry]>, default: Option<&[Entry]>) -> u32 {
    let mut out = Writer::default();
    let bit = |list: Option<&[Entry]>, bit: u32| if list.is_some() { bit } else { 0 };
    out.opaque(file).u32(bit(access, wanted::ACCESS) | bit(default, wanted::DEFAULT));
    for (list, bit) in [(access, 0), (default, 0x1000)] {
        let list = list.unwrap_or_default();
        out.u32(list.len() as u32).u32(list.len() as u32);
        for (tag, id, bits) in list {
            out.u32(tag | bit).u32(*id).u32(*bits);
        }
    }
    let results = client.call(PROGRAM, 2, &out.out).expect("answered");
    let mut reader = Reader::new(&results);
    let status = reader.u32().expect("a status");
    assert_eq!(attributes(&mut reader).is_some(), status == 0);
    assert_eq!(reader.rest(), b"");
    status
}

/// The owner, user 1002, the group, the mask, others.
const NAMED: [Entry; 5] = [(1, 0, 6), (2, 1002, 6), (4, 0, 0), (16, 0, 6), (32, 0, 0)];

#[test]
fn a_list_gives_rights_to_a_named_user_and_is_its_owners_to_change() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut root, top) = portal.root();
    assert_eq!(set(&mut root, &top, Some(&[(1, 0, 7), (4, 0, 7), (32, 0, 7)]), None), 0);
    let (mut owner, mut other) = (portal.client(1000, 100, &[]), portal.client(1002, 2, &[]));
    let file = owner.create(&top, "file", 0o600).expect("new").handle;
    let of_mode = vec![(1, 1000, 6), (4, 100, 0), (16, 0, 0), (32, 0, 0)];
    assert_eq!(get(&mut other, &file), Ok([of_mode.clone(), vec![]]), "of the mode, with a mask");
    assert!(other.read(&file, 0, 1).is_err());
    assert_eq!(set(&mut other, &file, Some(&NAMED), None), PERM);
    assert_eq!(set(&mut owner, &file, Some(&NAMED), None), 0);
    assert!(other.read(&file, 0, 1).is_ok());
    let shown = vec![(1, 1000, 6), (2, 1002, 6), (4, 100, 0), (16, 0, 6), (32, 0, 0)];
    assert_eq!(get(&mut other, &file), Ok([shown, vec![]]));
    assert_eq!(owner.getattr(&file).expect("attributes").mode & 0o7777, 0o660, "the mask");
    // The mode alone again, as `setfacl -b` sends it.
    assert_eq!(set(&mut owner, &file, Some(&of_mode), None), 0);
    assert!(other.read(&file, 0, 1).is_err());
    assert_eq!(set(&mut owner, &file, Some(&NAMED[..4]), None), INVAL, "nothing for others");
    portal.share("async,insecure,ro");
    assert_eq!(set(&mut owner, &file, Some(&NAMED), None), ROFS);
}

#[test]
fn a_new_file_has_the_default_list_of_its_directory_until_that_is_taken_away() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut root, top) = portal.root();
    let folder = root.mkdir(&top, "folder", 0o755).expect("new").handle;
    assert_eq!(set(&mut root, &folder, None, Some(&NAMED)), 0);
    let [access, default] = get(&mut root, &folder).expect("lists");
    assert_eq!((access.len(), default.len()), (4, 5));
    assert!(default.iter().all(|(tag, ..)| tag & 0x1000 != 0));
    let inside = root.create(&folder, "inside", 0o666).expect("new").handle;
    assert_eq!(get(&mut root, &inside).expect("lists")[0].len(), 5);
    let file = root.create(&top, "file", 0o644).expect("new").handle;
    assert_ne!(set(&mut root, &file, None, Some(&NAMED)), 0, "a file has no default list");
    assert_eq!(set(&mut root, &folder, None, Some(&[])), 0);
    let outside = root.create(&folder, "outside", 0o644).expect("new").handle;
    assert_eq!(get(&mut root, &outside).expect("lists")[0].len(), 4);
}

#[test]
fn where_there_are_no_lists_a_client_hears_so() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut root, top) = portal.root();
    portal.world.fs.set_acls(false);
    assert_eq!(get(&mut root, &top), Err(NOTSUPP));
    assert_eq!(set(&mut root, &top, Some(&NAMED), None), NOTSUPP);
    assert!(portal.world.fs.getxattr(1, AclKind::Access.name()).is_err());
}
