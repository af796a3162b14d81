//! Names: made, listed, moved, removed; calls that come twice.

use crate::support::{Calls, Portal, made, mode};
use std::collections::BTreeSet;
use steadfast_nfs::Note;
use steadfast_nfs::client::Client;
use steadfast_nfs::xdr::{Reader, Writer};

const NOENT: u32 = 2;
const EXIST: u32 = 17;
const NOTDIR: u32 = 20;
const NOTEMPTY: u32 = 66;

/// Names of a directory, in answers of so many bytes; with attributes and handles if `plus`.
pub fn list(client: &mut Client, dir: &[u8], bytes: u32, plus: bool) -> Result<Vec<String>, u32> {
    list_beside(client, dir, (bytes, plus), &mut || ())
}

/// The same, with something that is done before each call.
fn list_beside(
    client: &mut Client,
    dir: &[u8],
    (bytes, plus): (u32, bool),
    beside: &mut dyn FnMut(),
) -> Result<Vec<String>, u32> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        beside();
        let answer = match plus {
            true => client.nfs(17, |out| _ = out.opaque(dir).u64(cookie).u64(0).u32(bytes).u32(bytes)),
            false => client.nfs(16, |out| _ = out.opaque(dir).u64(cookie).u64(0).u32(bytes)),
        };
        let answer = answer.expect("answered");
        if answer.status != 0 {
            return Err(answer.status);
        }
        assert!(answer.results.len() <= bytes as usize);
        let mut reader = Reader::new(&answer.results);
        steadfast_nfs::client::attributes(&mut reader).expect("the directory's");
        assert_eq!(reader.u64(), Ok(0), "the verifier");
        while reader.bool().expect("another one or not") {
            let ino = reader.u64().expect("a number");
            let name = reader.opaque(255).expect("a name");
            cookie = reader.u64().expect("a cookie");
            names.push(String::from_utf8(name.to_vec()).expect("ours"));
            if plus && let Some(found) = steadfast_nfs::client::attributes(&mut reader) {
                assert_eq!(found.ino, ino);
            }
            if plus && reader.bool().expect("a handle or not") {
                reader.opaque(64).expect("a handle");
            }
        }
        if reader.bool().expect("the end or not") {
            return Ok(names);
        }
    }
}

#[test]
fn a_directory_is_listed_once_however_small_the_answers() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut client, top) = portal.root();
    let mut expected: BTreeSet<String> = [".".to_owned(), "..".to_owned()].into();
    for at in 0..500 {
        let name = format!("{at}{}", "n".repeat(at % 200));
        client.create(&top, &name, 0o600).expect("new");
        expected.insert(name);
    }
    for (bytes, plus) in [(600, false), (1 << 20, false), (1_000, true), (64 << 10, true)] {
        let names = list(&mut client, &top, bytes, plus).expect("listed");
        assert_eq!(names.len(), expected.len(), "{bytes} bytes");
        assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
    }
    assert_eq!(list(&mut client, &top, 100, false), Err(10_005), "not even one has room");
    // The listing left no references: what is removed is gone.
    let file = client.find(&top, "0").expect("there").handle;
    assert_eq!(client.remove(&top, "0"), 0);
    assert_eq!(client.getattr(&file), Err(70));
    assert!(portal.world.fs.dataset().all_lookups().is_empty());
}

/// `STEADFAST_LONG=1` has a million names.
#[test]
fn a_huge_directory_is_listed_once_while_names_come_and_go() {
    let is_long = std::env::var_os("STEADFAST_LONG").is_some_and(|value| value == "1");
    let count: usize = if is_long { 1_000_000 } else { 4_000 };
    let mut portal = Portal::new("async,insecure,no_root_squash");
    portal.world.inodes.set_bytes_max(256 << 20);
    portal.world.nodes.set_bytes_max(64 << 20);
    let (mut client, top) = portal.root();
    let (mut other, _) = portal.root();
    for at in 0..count {
        // A quarter is to go.
        let name = format!("{}{at}", if at % 4 == 0 { "go" } else { "stay" });
        client.create(&top, &name, 0o600).expect("new");
        if at % 100_000 == 99_999 {
            portal.world.commit();
        }
    }
    portal.world.commit();
    for (bytes, plus) in [(32 << 10, false), (64 << 10, true)] {
        let (mut gone, mut calls) = (0, 0);
        let names = list_beside(&mut client, &top, (bytes, plus), &mut || {
            for _ in 0..20 {
                let name = format!("go{}", gone * 4);
                assert_eq!(other.remove(&top, &name), 0, "{name}");
                other.create(&top, &format!("new{bytes}-{gone}"), 0o600).expect("new");
                gone += 1;
            }
            calls += 1;
        });
        let mut names = names.expect("listed");
        let all = names.len();
        assert!(calls > 3 && gone < count / 4, "{calls} calls");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "none twice");
        assert_eq!(names.iter().filter(|name| name.starts_with("stay")).count(), count - count.div_ceil(4));
        let went: BTreeSet<String> = (0..gone).map(|at| format!("go{}", at * 4)).collect();
        let kept = names.iter().filter(|name| name.starts_with("go") && !went.contains(*name)).count();
        assert_eq!(kept, count.div_ceil(4) - gone, "what did not go is there");
        for name in went {
            other.create(&top, &name, 0o600).expect("new");
        }
    }
}

#[test]
fn names_are_made_moved_linked_and_removed() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut client, top) = portal.root();
    let sub = client.mkdir(&top, "sub", 0o755).expect("new");
    assert_eq!((sub.attributes.kind, sub.attributes.nlink), (2, 2));
    let file = client.create(&sub.handle, "a", 0o640).expect("new");
    assert_eq!((file.attributes.kind, file.attributes.mode), (1, 0o640));
    assert_eq!(client.create(&sub.handle, "a", 0o640), Err(EXIST));
    let link =
        client.nfs(15, |out| _ = out.opaque(&file.handle).opaque(&top).opaque(b"b")).expect("answered");
    assert_eq!((link.status, client.getattr(&file.handle).expect("there").nlink), (0, 2));
    let rename = |client: &mut Client, from: &[u8], name: &[u8], to: &[u8], new: &[u8]| {
        client
            .nfs(14, |out| _ = out.opaque(from).opaque(name).opaque(to).opaque(new))
            .expect("answered")
            .status
    };
    assert_eq!(rename(&mut client, &top, b"b", &sub.handle, b"c"), 0);
    assert_eq!(rename(&mut client, &top, b"b", &sub.handle, b"c"), NOENT);
    assert_eq!(rename(&mut client, &top, b"sub", &sub.handle, b"d"), 22, "into itself");
    assert_eq!(client.find(&sub.handle, "c").expect("there").attributes.ino, file.attributes.ino);
    assert_eq!(client.find(&sub.handle, "..").expect("there").attributes.ino, 1);
    assert_eq!(client.find(&top, "..").expect("there").attributes.ino, 1, "nothing is above the top");
    let rmdir = |client: &mut Client, name: &str| {
        client.nfs(13, |out| _ = out.opaque(&top).opaque(name.as_bytes())).expect("answered").status
    };
    assert_eq!((rmdir(&mut client, "sub"), client.remove(&top, "sub")), (NOTEMPTY, 21));
    assert_eq!((client.remove(&sub.handle, "a"), client.remove(&sub.handle, "c")), (0, 0));
    assert_eq!((rmdir(&mut client, "sub"), client.find(&top, "sub").map(drop)), (0, Err(NOENT)));
    let long = "n".repeat(256);
    assert_eq!(client.create(&top, &long, 0o600), Err(63));

    let symlink = client.nfs(10, |out| {
        out.opaque(&top).opaque(b"link");
        mode(out, 0o777);
        out.opaque(b"../else/where");
    });
    let symlink = made(&symlink.expect("answered")).expect("new");
    let target = client.nfs(5, |out| _ = out.opaque(&symlink.handle)).expect("answered");
    assert!(target.status == 0 && target.results.ends_with(b"\0\0\0\x0d../else/where\0\0\0"));
    for (name, kind, device) in [("char", 4, (1, 3)), ("block", 3, (0x123, 0x45678)), ("pipe", 7, (0, 0))] {
        let node = client.nfs(11, |out| {
            out.opaque(&top).opaque(name.as_bytes()).u32(kind);
            mode(out, 0o600);
            if kind < 5 {
                out.u32(device.0).u32(device.1);
            }
        });
        let node = made(&node.expect("answered")).expect("new").attributes;
        assert_eq!((node.kind, node.device), (kind, device), "{name}");
    }
    assert_eq!(client.find(&file.handle, "x").map(drop), Err(70), "it was removed");
    let pipe = client.find(&top, "pipe").expect("there").handle;
    assert_eq!(client.find(&pipe, "x").map(drop), Err(NOTDIR));
}

#[test]
fn an_exclusive_create_that_comes_again_finds_its_file() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut client, top) = portal.root();
    let create = |client: &mut Client, verifier: &[u8; 8]| {
        let answer = client.nfs(8, |out| _ = out.opaque(&top).opaque(b"x").u32(2).fixed(verifier));
        made(&answer.expect("answered"))
    };
    let first = create(&mut client, b"\xff\xee\0\x01\x02\x03\x04\x05").expect("new");
    let again = create(&mut client, b"\xff\xee\0\x01\x02\x03\x04\x05").expect("the same");
    assert_eq!(first.handle, again.handle);
    assert_eq!(create(&mut client, b"\xff\xee\0\x01\x02\x03\x04\x06"), Err(EXIST));
    // An unchecked one takes the file, and cuts it if it is told to.
    assert_eq!(client.write(&first.handle, 0, 0, b"content").status, 0);
    let unchecked = |client: &mut Client, size: Option<u64>| {
        let answer = client.nfs(8, |out| {
            out.opaque(&top).opaque(b"x").u32(0).bool(false).bool(false).bool(false).bool(size.is_some());
            size.map(|size| out.u64(size));
            out.u32(0).u32(0);
        });
        made(&answer.expect("answered")).expect("there").attributes.size
    };
    assert_eq!((unchecked(&mut client, None), unchecked(&mut client, Some(0))), (7, 0));
}

#[test]
fn a_change_that_comes_twice_is_made_once() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut client, top) = portal.root();
    client.create(&top, "file", 0o644).expect("new");
    let mut arguments = Writer::default();
    arguments.opaque(&top).opaque(b"file");
    let remove = client.record(100_003, 3, 12, &arguments.out);
    client.send(&remove).expect("sent");
    let first = client.receive().expect("answered");
    // The connection broke before the answer came; the client has another one.
    let mut other = portal.client(0, 0, &[]);
    other.send(&remove).expect("sent");
    assert_eq!(other.receive().expect("answered"), first);
    assert_eq!(client.remove(&top, "file"), NOENT, "a call of its own number");
}

/// The local mount's caches hear of everything that a client changes.
#[test]
fn caches_are_told_what_changed() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut client, top) = portal.root();
    let heard = || std::mem::take(&mut *portal.mounted.notes.lock());
    let file = client.create(&top, "a", 0o644).expect("new");
    let ino = file.attributes.ino;
    assert_eq!(heard(), [Note::Name(1, b"a".to_vec()), Note::Attributes(1)]);
    client.write(&file.handle, 5, 0, b"abc");
    assert_eq!(heard(), [Note::Content(ino, 5, 3)]);
    client.find(&top, "a").expect("there");
    client.read(&file.handle, 0, 10).expect("read");
    assert_eq!(heard(), []);
    assert_eq!(client.remove(&top, "a"), 0);
    assert_eq!(heard(), [Note::Name(1, b"a".to_vec()), Note::Attributes(1), Note::Attributes(ino)]);
    assert_eq!(client.remove(&top, "a"), NOENT);
    assert_eq!(heard(), [], "nothing changed");
}
