//! Attributes before and after a change: a client that sees no gap keeps its cache.

use crate::support::{Calls, Portal, made, mode};
use std::sync::atomic::{AtomicBool, Ordering};
use steadfast_nfs::client::{Attributes, Client, attributes};
use steadfast_nfs::xdr::Reader;
use steadfast_posix::Caller;

/// Size, and times of change of content and of anything.
type Before = (u64, (u32, u32), (u32, u32));

/// Reads `wcc_data`.
fn wcc(reader: &mut Reader<'_>) -> (Option<Before>, Attributes) {
    let time = |reader: &mut Reader<'_>| (reader.u32().expect("s"), reader.u32().expect("ns"));
    let before = reader.bool().expect("there or not");
    let before = before.then(|| (reader.u64().expect("a size"), time(reader), time(reader)));
    (before, attributes(reader).expect("attributes after it"))
}

fn of(attributes: &Attributes) -> Option<Before> {
    Some((attributes.size, attributes.mtime, attributes.ctime))
}

/// `wcc_data` of a CREATE or its like.
fn of_made(client: &mut Client, dir: &[u8], name: &str) -> (Option<Before>, Attributes) {
    let answer = client.nfs(8, |out| {
        out.opaque(dir).opaque(name.as_bytes()).u32(0);
        mode(out, 0o644);
    });
    let answer = answer.expect("answered");
    made(&answer).expect("made");
    let mut reader = Reader::new(&answer.results);
    reader.u32().and_then(|_| reader.opaque(64)).expect("the handle");
    attributes(&mut reader).expect("attributes");
    wcc(&mut reader)
}

#[test]
fn what_was_before_a_change_is_told() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut client, top) = portal.root();
    let sub = client.mkdir(&top, "sub", 0o755).expect("new");
    let mut known = client.getattr(&top).expect("there");
    // Each change of the directory begins where the one before it ended.
    let mut step = |client: &mut Client, answer: (Option<Before>, Attributes)| {
        assert_eq!(answer.0, of(&known));
        known = client.getattr(&top).expect("there");
        assert_eq!(of(&answer.1), of(&known));
    };
    let answer = of_made(&mut client, &top, "a");
    step(&mut client, answer);
    let answer = of_made(&mut client, &top, "a");
    step(&mut client, answer);
    let file = client.find(&top, "a").expect("there").handle;
    let call = |client: &mut Client, procedure: u32, parts: &[&[u8]]| {
        let answer = client.nfs(procedure, |out| parts.iter().for_each(|part| _ = out.opaque(part)));
        let answer = answer.expect("answered");
        assert_eq!(answer.status, 0);
        answer.results
    };
    let results = call(&mut client, 14, &[&top, b"a", &top, b"b"]);
    let mut reader = Reader::new(&results);
    let from = wcc(&mut reader);
    assert_eq!(wcc(&mut reader), from);
    step(&mut client, from);
    let results = call(&mut client, 15, &[&file, &top, b"c"]);
    let mut reader = Reader::new(&results);
    attributes(&mut reader).expect("of the file");
    step(&mut client, wcc(&mut reader));
    let results = call(&mut client, 12, &[&top, b"c"]);
    step(&mut client, wcc(&mut Reader::new(&results)));
    let beside = client.getattr(&sub.handle).expect("there");
    let results = call(&mut client, 14, &[&top, b"b", &sub.handle, b"b"]);
    let mut reader = Reader::new(&results);
    step(&mut client, wcc(&mut reader));
    assert_eq!(wcc(&mut reader).0, of(&beside));
    // Content.
    let mut known = client.getattr(&file).expect("there");
    for (offset, data) in [(0, &b"abc"[..]), (100, b"d"), (7, b"")] {
        let results = client.write(&file, offset, 0, data).results;
        let (before, after) = wcc(&mut Reader::new(&results));
        assert_eq!(before, of(&known));
        known = client.getattr(&file).expect("there");
        assert_eq!(of(&after), of(&known));
    }
    let answer = client.nfs(2, |out| {
        out.opaque(&file).bool(false).bool(false).bool(false).bool(true).u64(5).u32(0).u32(0).bool(false);
    });
    let (before, after) = wcc(&mut Reader::new(&answer.expect("answered").results));
    assert_eq!((before, after.size), (of(&known), 5));
}

/// A local program makes names in the same directory. No reply has its changes between the two
/// sets of attributes: there the client would overlook them.
#[test]
fn a_change_of_somebody_else_is_not_hidden_in_ones_own() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut client, top) = portal.root();
    let fs = std::sync::Arc::clone(&portal.world.fs);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (fs, is_over) = (&fs, &is_over);
        let local = scope.spawn(move || {
            let mut made = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                let name = format!("local {}", made % 5_000);
                match made / 5_000 % 2 {
                    0 => fs.mkdir(Caller::ROOT, 1, name.as_bytes(), 0o755).map(drop).expect("new"),
                    _ => fs.rmdir(1, name.as_bytes()).expect("there"),
                }
                made += 1;
            }
            made
        });
        let mut told = 0;
        for number in 0..300 {
            let (before, after) = of_made(&mut client, &top, &format!("client {number}"));
            if let Some((size, ..)) = before {
                assert_eq!(after.size, size + 1);
                told += 1;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let made = local.join().expect("no panic");
        eprintln!("{told} of 300 told, beside {made} local changes");
    });
}
