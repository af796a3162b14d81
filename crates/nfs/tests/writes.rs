//! Content: what was written is read, and what was promised is durable.

use crate::support::{Calls, Portal};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use steadfast_nfs::client::Client;
use steadfast_nfs::xdr::Reader;

const STALE: u32 = 70;

/// Skips `wcc_data` and gives what follows: count, how it is kept, verifier.
fn written(results: &[u8]) -> (u32, u32, [u8; 8]) {
    let tail = &results[results.len() - 16..];
    let mut reader = Reader::new(tail);
    (reader.u32().expect("count"), reader.u32().expect("stable"), reader.fixed().expect("verifier"))
}

#[test]
fn what_was_written_is_read() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut client, top) = portal.root();
    let file = client.create(&top, "file", 0o644).expect("new").handle;
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 + at / 253) as u8).collect();
    for (at, piece) in (0_u64..).zip(data.chunks(1 << 20)) {
        let answer = client.write(&file, at << 20, 0, piece);
        assert_eq!(answer.status, 0);
        assert_eq!(written(&answer.results), (piece.len() as u32, 0, *b"verifier"));
    }
    let mut back = Vec::new();
    loop {
        let (piece, is_end) = client.read(&file, back.len() as u64, 1 << 20).expect("read");
        back.extend_from_slice(&piece);
        if is_end {
            break;
        }
    }
    assert!(back == data);
    assert_eq!(client.getattr(&file).expect("there").size, 3_000_000);
    let odd = client.read(&file, 2_999_990, 3).expect("read");
    assert_eq!(odd, (data[2_999_990..2_999_993].to_vec(), false));
    assert_eq!(client.read(&file, 5_000_000, 10), Ok((Vec::new(), true)), "behind the end");
    assert_eq!(client.read(&top, 0, 10), Err(21), "a directory");
    let all_wait = portal.mounted.all_wait.load(Ordering::Relaxed);
    assert!(!all_wait, "MNT goes without");
    portal.mounted.all_wait.store(true, Ordering::Relaxed);
    client.read(&file, 0, 10).expect("read");
    assert!(portal.mounted.all_wait.load(Ordering::Relaxed), "failmode=wait holds");
}

/// Caches of the server hand content over first, also that of a file which CREATE empties. While
/// they cannot, nothing is read or changed, and the client asks again.
#[test]
fn content_is_handed_over_before_it_is_read_or_changed() {
    const JUKEBOX: u32 = 10_008;
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut client, top) = portal.root();
    let create = |client: &mut Client, how: u32, size: Option<u64>| {
        let answer = client.nfs(8, |out| {
            out.opaque(&top).opaque(b"file").u32(how).bool(false).bool(false).bool(false);
            out.bool(size.is_some());
            size.iter().for_each(|size| _ = out.u64(*size));
            out.u32(0).u32(0);
        });
        answer.expect("answered").status
    };
    assert_eq!(create(&mut client, 0, Some(0)), 0);
    assert!(portal.mounted.handed_over.lock().is_empty(), "it was not there");
    let file = client.find(&top, "file").expect("there");
    let ino = file.attributes.ino;
    let set_size = |client: &mut Client, size: u64| {
        let answer = client.nfs(2, |out| {
            out.opaque(&file.handle).bool(false).bool(false).bool(false).bool(true).u64(size);
            out.u32(0).u32(0).bool(false);
        });
        answer.expect("answered").status
    };
    let all = |client: &mut Client| {
        let statuses = [
            client.write(&file.handle, 0, 0, b"content").status,
            client.read(&file.handle, 0, 7).err().unwrap_or(0),
            client.getattr(&file.handle).err().unwrap_or(0),
            set_size(client, 5),
            create(client, 0, Some(0)),
        ];
        assert_eq!(std::mem::take(&mut *portal.mounted.handed_over.lock()), [ino; 5]);
        statuses
    };
    assert_eq!(all(&mut client), [0; 5]);
    let size = || portal.world.fs.getattr(ino).expect("there").size;
    assert_eq!(size(), 0);
    assert_eq!(create(&mut client, 0, None), 0);
    assert_eq!(create(&mut client, 1, Some(0)), 17, "GUARDED changes no file that is there");
    assert!(portal.mounted.handed_over.lock().is_empty(), "nor do these touch its content");
    assert_eq!(client.write(&file.handle, 0, 0, b"stays").status, 0);
    portal.mounted.handed_over.lock().clear();
    portal.mounted.keeps_content.store(true, Ordering::Relaxed);
    assert_eq!(all(&mut client), [JUKEBOX; 5]);
    assert_eq!(size(), 5);
    portal.mounted.keeps_content.store(false, Ordering::Relaxed);
    assert_eq!(client.read(&file.handle, 0, 9), Ok((b"stays".to_vec(), true)));
}

/// With nobody else to commit, COMMIT is answered by the commit, and a write to memory before it.
#[test]
fn commit_is_answered_when_the_content_is_durable() {
    let mut portal = Portal::new("async,insecure,no_root_squash");
    let (mut client, top) = portal.root();
    let file = client.create(&top, "file", 0o644).expect("new").handle;
    assert_eq!(client.write(&file, 0, 0, b"not yet").status, 0);
    let waiting = std::thread::spawn(move || {
        let answer = client.nfs(21, |out| _ = out.opaque(&file).u64(0).u32(0)).expect("answered");
        (client, file, answer)
    });
    while !waiting.is_finished() {
        // A commit that began before the request came does not count.
        portal.world.commit();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let (mut client, file, answer) = waiting.join().expect("no panic");
    assert_eq!((answer.status, &answer.results[answer.results.len() - 8..]), (0, &b"verifier"[..]));
    // The power goes: what was promised is there, under the handle that the client has.
    assert_eq!(client.write(&file, 0, 0, b"lost").status, 0);
    portal.world.reopen();
    *portal.mounted.fs.lock() = Some(Arc::clone(&portal.world.fs));
    *portal.mounted.verifier.lock() = *b"verifie2";
    assert_eq!(client.read(&file, 0, 100), Ok((b"not yet".to_vec(), true)));
    let answer = client.write(&file, 0, 0, b"again");
    assert_eq!(written(&answer.results), (5, 0, *b"verifie2"), "so the client writes again");
}

#[test]
fn a_handle_names_its_file_and_no_other() {
    let portal = Portal::new("async,insecure,no_root_squash");
    let (mut client, top) = portal.root();
    let file = client.create(&top, "file", 0o644).expect("new");
    assert_eq!(client.remove(&top, "file"), 0);
    assert_eq!(client.getattr(&file.handle), Err(STALE));
    let mut made_up = top.clone();
    made_up[27] ^= 3;
    assert_eq!(client.getattr(&made_up), Err(10_001), "the tag is another one");
    assert_eq!(client.getattr(b"abc"), Err(10_001));
    let mut elsewhere = top.clone();
    elsewhere[19] ^= 1;
    assert_eq!(client.getattr(&elsewhere), Err(STALE), "a dataset that is not shared");
    // While it is being unmounted, clients are to wait.
    let fs = portal.mounted.fs.lock().take();
    assert_eq!(client.getattr(&top), Err(10_008));
    *portal.mounted.fs.lock() = fs;
    portal.exports.unshare(crate::support::ID);
    assert_eq!(client.getattr(&top), Err(STALE));
}

/// A stable write waits for the commit, and other requests pass it.
#[test]
fn a_write_that_waits_holds_nobody_up() {
    let mut portal = Portal::new("async,insecure,no_root_squash");
    let (mut client, top) = portal.root();
    let file = client.create(&top, "file", 0o644).expect("new").handle;
    // Forty of them, more than there are threads; each connection may have sixteen.
    let mut writers: Vec<_> = (0..4).map(|_| portal.client(0, 0, &[])).collect();
    for writer in &mut writers {
        for at in 0..10_u64 {
            let mut arguments = steadfast_nfs::xdr::Writer::default();
            arguments.opaque(&file).u64(at * 4).u32(4).u32(2).opaque(b"data");
            let record = writer.record(100_003, 3, 7, &arguments.out);
            writer.send(&record).expect("sent");
        }
    }
    assert_eq!(client.getattr(&top).expect("answered").kind, 2);
    let waiting = std::thread::spawn(move || {
        for writer in &mut writers {
            for _ in 0..10 {
                let reply = writer.receive().expect("answered");
                let (_, kept, _) = written(&reply);
                assert_eq!(kept, 2, "FILE_SYNC was asked for");
            }
        }
    });
    while !waiting.is_finished() {
        portal.world.commit();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    waiting.join().expect("no panic");
}
