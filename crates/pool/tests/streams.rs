//! Streams between two pools: what is received is what was sent, whole or in increments; what is
//! damaged changes nothing; what breaks off goes on.

use std::collections::BTreeMap;

use crate::common::{self, Dice, MIB, ROOT, mount, noise, write_file};
use crate::hosts::{Cuts, Host, WRITES, WRITES_AND_FLUSHES, disturb, frames, furnish, joined, same, tree};
use steadfast_format::dirent::Dirent;
use steadfast_format::file_keys::NamesKey;
use steadfast_format::inode::InodeRecord;
use steadfast_format::stream::FrameKind;
use steadfast_format::xattr::XattrStart;
use steadfast_format::{InodeId, KeyFormat, LogRecord};
use steadfast_pool::{Error, Partial, Pool, ReceiveSpec, ReceiveWatch, SendSpec};

/// While something arrives, gives what it is to be below another name, and makes something of the
/// name it is to have.
struct Meddler<'p> {
    pool: &'p Pool,
    done: bool,
}

impl ReceiveWatch for Meddler<'_> {
    fn before(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn after(&mut self, _: &str) {}
    fn progress(&mut self, _: &str, _: u64) {
        if !std::mem::replace(&mut self.done, true) {
            self.pool.datasets().rename_dataset("second/a", "second/b").expect("renamed");
            self.pool.datasets().create_dataset("second/b/copy", BTreeMap::new(), None).expect("made");
        }
    }
}

#[test]
fn a_snapshot_and_its_increments_arrive_as_they_were() {
    let (one, two) = (Host::new("one", 256), Host::new("second", 256));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    one.snapshot("one/fs@0");
    let full = one.send("one/fs@0", None);
    let received = two.receive("second/copy", &full).expect("received");
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].snapshot.as_str(), received[0].increment), ("second/copy@0", false));
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");

    let mut dice = Dice(7);
    for round in 1..12_u64 {
        disturb(&one.pool, "one/fs", &mut dice);
        let (name, before) = (format!("one/fs@{round}"), format!("one/fs@{}", round - 1));
        one.snapshot(&name);
        let increment = one.send(&name, Some(&before));
        two.receive("second/copy", &increment).expect("received");
        same((&one.pool, "one/fs"), (&two.pool, "second/copy"), format!("round {round}"));
        let infos = |host: &Host, fs| host.pool.datasets().snapshot_infos(fs, None).unwrap();
        let (sent, got) = (infos(&one, "one/fs"), infos(&two, "second/copy"));
        for (sent, got) in sent.iter().zip(&got) {
            assert_eq!(
                (sent.guid, sent.created_seconds, sent.files),
                (got.guid, got.created_seconds, got.files)
            );
        }
        two.check();
    }
    // A received snapshot can be sent on, over several rounds at once.
    let three = Host::new("third", 256);
    three.receive("third/copy", &two.send("second/copy@3", None)).expect("received");
    three.receive("third/copy", &two.send("second/copy@11", Some("second/copy@3"))).expect("received");
    same((&one.pool, "one/fs"), (&three.pool, "third/copy"), "at the end");

    // Nothing is left behind when all is gone.
    let two = two.crash();
    two.pool.datasets().destroy_with_snapshots("second/copy").expect("destroyed");
    two.check();
    let empty = Host::new("second", 256);
    empty.check();
    assert!(two.live() <= empty.live() + (1 << 20), "{} and {}", two.live(), empty.live());
}

#[test]
fn an_increment_is_stored_by_two_commits() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    one.snapshot("one/fs@0");
    two.receive("second/copy", &one.send("one/fs@0", None)).expect("received");
    let mut taken = Vec::new();
    for round in 1..6_u64 {
        {
            let (fs, _handle) = mount(&one.pool, "one/fs");
            write_file(&fs, ROOT, format!("{round}").as_bytes(), &noise(round, 300_000));
        }
        let (name, before) = (format!("one/fs@{round}"), format!("one/fs@{}", round - 1));
        one.snapshot(&name);
        two.receive("second/copy", &one.send(&name, Some(&before))).expect("received");
        let infos = two.pool.datasets().snapshot_infos("second/copy", None).expect("told");
        taken.push(infos[infos.len() - 1].txg.0 - infos[infos.len() - 2].txg.0);
    }
    // The content, and the snapshot. A slow machine has commits by the clock between.
    assert!(taken.contains(&2), "commits of each increment: {taken:?}");
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");
    two.crash().check();
}

#[test]
fn a_stream_that_is_damaged_anywhere_changes_nothing_and_says_where() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        write_file(&fs, ROOT, b"first", &noise(1, 30_000));
    }
    one.snapshot("one/fs@a");
    let full = one.send("one/fs@a", None);
    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        write_file(&fs, ROOT, b"second", &noise(2, 20_000));
    }
    one.snapshot("one/fs@b");
    let increment = one.send("one/fs@b", Some("one/fs@a"));
    let mut dice = Dice(3);
    let refused = |stream: &[u8], why: &str| {
        let error = two.receive("second/copy", stream).expect_err(why);
        let told = error.to_string();
        let places = ["byte", "not a stream that can be received"];
        assert!(places.iter().any(|place| told.contains(place)), "{why}: {told}");
    };
    for round in 0..60 {
        let at = if round < 30 { round * 8 } else { dice.below(full.len() as u64) as usize };
        let mut bad = full.clone();
        bad[at] ^= 1 << dice.below(8);
        refused(&bad, &format!("byte {at}"));
        refused(&full[..at], &format!("cut at {at}"));
        assert_eq!(two.pool.datasets().names(), ["second"]);
    }
    two.check();
    two.receive("second/copy", &full).expect("received");
    let before = tree(&two.pool, "second/copy");
    let live = two.live();
    for _ in 0..40 {
        let at = dice.below(increment.len() as u64) as usize;
        let mut bad = increment.clone();
        bad[at] ^= 1 << dice.below(8);
        refused(&bad, &format!("byte {at} of the increment"));
        refused(&increment[..at], &format!("increment cut at {at}"));
    }
    two.check();
    assert_eq!(tree(&two.pool, "second/copy"), before);
    assert_eq!(two.pool.datasets().snapshot_names("second/copy").unwrap(), ["a"]);
    assert!(two.live() <= live + (1 << 20), "{} and {live}: all was freed", two.live());
    two.receive("second/copy", &increment).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");
}

#[test]
fn what_does_not_fit_is_refused_with_the_reason() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 64));
    for name in ["one/fs", "one/other"] {
        one.pool.datasets().create_dataset(name, BTreeMap::new(), None).expect("made");
    }
    furnish(&one.pool, "one/fs");
    for name in ["one/fs@a", "one/fs@b", "one/fs@c", "one/other@a"] {
        one.snapshot(name);
        let (fs, _handle) = mount(&one.pool, "one/fs");
        write_file(&fs, ROOT, format!("after {name}").replace('/', " ").as_bytes(), b"x");
    }
    let (full, ab, bc) = (
        one.send("one/fs@a", None),
        one.send("one/fs@b", Some("one/fs@a")),
        one.send("one/fs@c", Some("one/fs@b")),
    );
    let wrong =
        SendSpec { snapshot: "one/fs@a".into(), base: Some("one/fs@b".into()), ..SendSpec::default() };
    let refused = one.pool.streams().send(&[wrong], &mut Vec::new(), &mut |_, _| ());
    assert!(matches!(refused, Err(Error::NotEarlier { .. })), "{refused:?}");

    let error = two.receive("second/none", &ab).unwrap_err();
    assert!(matches!(error, Error::NoSuchDataset { .. }), "{error}");
    two.receive("second/copy", &full).expect("received");
    let error = two.receive("second/copy", &full).unwrap_err();
    assert!(matches!(error, Error::DestinationExists { .. }), "{error}");
    let error = two.receive("second/copy", &bc).unwrap_err();
    assert!(matches!(error, Error::NoBase { .. }), "{error}");
    let error = two.receive("second/copy/a/b", &full).unwrap_err();
    assert!(matches!(error, Error::NoParent { .. }), "{error}");
    let error = two
        .receive(
            "second/copy",
            b"no stream at all, but long enough to be one, if it were one, which it is not",
        )
        .unwrap_err();
    assert!(matches!(error, Error::NoStream { .. }), "{error}");
    let error = two.receive("second/copy", b"garbage\n").unwrap_err();
    assert!(matches!(error, Error::NoStream { .. }), "it is shorter than what a stream begins with: {error}");
    for at in [0, 3, 8, 20] {
        let error = two.receive("second/none", &full[..at]).unwrap_err();
        assert!(matches!(error, Error::StreamEnds { .. }), "{at}: {error}");
    }
    let long = format!("second/{}", ["x"; 250].concat());
    let error = two.receive(&long, &full).unwrap_err();
    assert!(matches!(error, Error::ReceivedName { .. }), "{error}");

    // Local changes stay, unless they are given up.
    {
        let (fs, _handle) = mount(&two.pool, "second/copy");
        write_file(&fs, ROOT, b"own", b"changed here");
    }
    let error = two.receive("second/copy", &ab).unwrap_err();
    assert!(matches!(error, Error::Modified { .. }), "{error}");
    two.snapshot("second/copy@own");
    let error = two.receive("second/copy", &ab).unwrap_err();
    assert!(matches!(error, Error::BaseNotYoungest { .. }), "{error}");
    let force = ReceiveSpec { target: "second/copy".into(), force: true, ..ReceiveSpec::default() };
    // Nor does what a clone began as go.
    two.pool.datasets().clone_snapshot("second/copy@own", "second/clone", BTreeMap::new()).expect("made");
    let error = two.receive_as(&force, &ab).unwrap_err();
    assert!(matches!(error, Error::HasClones { .. }), "{error}");
    two.check();
    two.pool.datasets().destroy_with_snapshots("second/clone").expect("destroyed");
    two.receive_as(&force, &ab).expect("received");
    two.receive("second/copy", &bc).expect("received");
    assert_eq!(two.pool.datasets().snapshot_names("second/copy").unwrap(), ["a", "b", "c"]);
    two.check();

    // A pool that is full.
    let (fs, handle) = mount(&one.pool, "one/other");
    write_file(&fs, ROOT, b"large", &noise(1, 60 * MIB as usize));
    drop((fs, handle));
    one.snapshot("one/other@large");
    let large = one.send("one/other@large", None);
    let live = two.live();
    let error = two.receive("second/large", &large).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    two.check();
    assert!(two.live() <= live + (1 << 20));
}

#[test]
fn numbers_that_are_none_of_an_inode_are_refused() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    one.snapshot("one/fs@a");
    let stream = one.send("one/fs@a", None);
    let good = frames(&stream);
    assert_eq!(joined(&good), stream);
    let at = good.iter().position(|(kind, _)| *kind == FrameKind::Names).expect("a frame");
    let mut rest = &good[at].1[..];
    let record = loop {
        let (record, taken) = LogRecord::decode(rest).expect("a record");
        if let LogRecord::Inode { record, .. } = record {
            break record;
        }
        rest = &rest[taken..];
    };
    let end = 1 << 48;
    let entry = |cookie| NamesKey::Entry { directory: InodeId(1), cookie }.encode();
    let [zero, dot, reserved, far, last] = [0, 1, 255, 1 << 63, u64::MAX].map(entry);
    let name = |inode, key| {
        let value = Dirent { inode: InodeId(inode), kind: 8, name: b"x".to_vec() }.encode();
        (key, value)
    };
    let names = [zero, dot, reserved, far, last].map(|key| name(2, key));
    let (nowhere, leads) = name(1 << 62, entry(256));
    let no_type = InodeRecord { mode: 0o644, ..record };
    let above = InodeRecord { parent: InodeId(1 << 62), ..record };
    // One of an inode that the stream does not speak of, above the next one.
    let beyond = NamesKey::Xattr { inode: InodeId(1 << 34), name: b"user.a".to_vec(), chunk: 0 }.encode();
    let value = XattrStart { total: 1, bytes: vec![7] }.encode();
    let wrong = [
        LogRecord::Set { key: &beyond, value: &value },
        LogRecord::Set { key: &names[0].0, value: &names[0].1 },
        LogRecord::Set { key: &names[1].0, value: &names[1].1 },
        LogRecord::Set { key: &names[2].0, value: &names[2].1 },
        LogRecord::Set { key: &names[3].0, value: &names[3].1 },
        LogRecord::Set { key: &names[4].0, value: &names[4].1 },
        LogRecord::Set { key: &nowhere, value: &leads },
        LogRecord::Removed { key: &names[0].0 },
        LogRecord::Inode { inode: InodeId(9), record: no_type },
        LogRecord::Inode { inode: InodeId(9), record: above },
        LogRecord::Gone { inode: InodeId(u64::MAX) },
        LogRecord::Inode { inode: InodeId(end), record },
        LogRecord::Inode { inode: InodeId(u64::MAX), record },
        LogRecord::Counters { files: 1, next_inode: end + 1 },
        LogRecord::Counters { files: 1, next_inode: u64::MAX },
    ];
    for wrong in wrong {
        let mut bad = good.clone();
        wrong.encode(&mut bad[at].1);
        let error = two.receive("second/copy", &joined(&bad)).expect_err("refused");
        assert!(matches!(error, Error::StreamDamaged { .. }), "{wrong:?}: {error}");
        assert_eq!(two.pool.datasets().names(), ["second"], "{wrong:?}");
    }
    two.receive("second/copy", &stream).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");
}

#[test]
fn what_broke_off_goes_on_where_it_was() {
    let (one, mut two) = (Host::new("one", 256), Host::new("second", 256));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    one.snapshot("one/fs@a");
    let full = one.send("one/fs@a", None);
    let keep = ReceiveSpec { target: "second/copy".into(), keep: true, ..ReceiveSpec::default() };
    let mut dice = Dice(11);
    let mut stream = full.clone();
    let mut parts = 0;
    // Cut again and again, with crashes between.
    let mut sent = Vec::new();
    while parts < 8 {
        let at = stream.len() / 4 + dice.below(stream.len() as u64 / 4) as usize;
        two.receive_as(&keep, &stream[..at]).expect_err("cut");
        assert_eq!(two.pool.datasets().names(), ["second"]);
        if parts % 2 == 0 {
            two = two.crash();
        }
        two.check();
        let Partial { guid, base, position, .. } = two.pool.datasets().partial("second/copy").expect("kept");
        assert_eq!((guid, base), (one.pool.datasets().snapshot_infos("one/fs", None).unwrap()[0].guid, 0));
        let error = two.receive_as(&keep, &full).expect_err("a part is there");
        assert!(matches!(error, Error::PartialExists { .. }), "{error}");
        stream = one.send_from("one/fs@a", None, Some(position));
        sent.push(stream.len());
        parts += 1;
    }
    assert!(sent.last() < sent.first(), "what is left becomes less: {sent:?}");
    two.receive_as(&keep, &stream).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");
    assert!(two.pool.datasets().partial("second/copy").is_none());

    // The same of an increment; then it is given up.
    disturb(&one.pool, "one/fs", &mut dice);
    one.snapshot("one/fs@b");
    let increment = one.send("one/fs@b", Some("one/fs@a"));
    let before = tree(&two.pool, "second/copy");
    two.receive_as(&keep, &increment[..increment.len() * 3 / 4]).expect_err("cut");
    assert_eq!(tree(&two.pool, "second/copy"), before);
    two.check();
    let mut two = two.crash();
    assert_eq!(tree(&two.pool, "second/copy"), before);
    let error = two.pool.datasets().destroy_snapshots(&["second/copy@a".into()], false).unwrap_err();
    assert!(matches!(error, Error::PartialExists { .. }), "{error}");
    two.pool.datasets().abort_receive("second/copy").expect("given up");
    two.check();
    two.receive_as(&keep, &increment[..increment.len() * 3 / 4]).expect_err("cut");
    two = two.crash();
    let Partial { position, .. } = two.pool.datasets().partial("second/copy").expect("kept");
    let rest = one.send_from("one/fs@b", Some("one/fs@a"), Some(position));
    two.receive_as(&keep, &rest).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");
    two.check();
}

#[test]
fn what_broke_off_below_what_is_replaced_goes_with_that() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        write_file(&fs, ROOT, b"file", &noise(1, 4 << 20));
    }
    one.snapshot("one/fs@a");
    let full = one.send("one/fs@a", None);
    let live = two.live();
    two.pool.datasets().create_dataset("second/copy", BTreeMap::new(), None).expect("made");
    let keep = ReceiveSpec { target: "second/copy/half".into(), keep: true, ..ReceiveSpec::default() };
    two.receive_as(&keep, &full[..full.len() / 2]).expect_err("cut");
    assert!(two.pool.datasets().partial("second/copy/half").is_some());
    let force = ReceiveSpec { target: "second/copy".into(), force: true, ..ReceiveSpec::default() };
    two.receive_as(&force, &full).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "in its place");
    assert!(two.pool.datasets().partial("second/copy/half").is_none());
    two.check();
    let two = two.crash();
    two.pool.datasets().destroy_with_snapshots("second/copy").expect("destroyed");
    two.check();
    assert!(two.live() <= live + (1 << 20), "{} and {live}", two.live());
}

/// A snapshot that is to go later goes with its last tag, or its last clone.
#[test]
fn what_is_received_upon_does_not_go_with_its_last_tag_or_clone() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    one.snapshot("one/fs@a");
    two.receive("second/copy", &one.send("one/fs@a", None)).expect("received");
    disturb(&one.pool, "one/fs", &mut Dice(5));
    one.snapshot("one/fs@b");
    let increment = one.send("one/fs@b", Some("one/fs@a"));

    let base = ["second/copy@a".to_owned()];
    two.pool.datasets().hold(&base, "tag").expect("held");
    two.pool.datasets().clone_snapshot(&base[0], "second/clone", BTreeMap::new()).expect("cloned");
    two.pool.datasets().destroy_snapshots(&base, true).expect("it goes later");
    let keep = ReceiveSpec { target: "second/copy".into(), keep: true, ..ReceiveSpec::default() };
    two.receive_as(&keep, &increment[..increment.len() / 2]).expect_err("cut");
    two.pool.datasets().release(&base, "tag").expect("the clone keeps it");
    let names = ["second/clone".to_owned()];
    let refused = [
        two.pool.datasets().check_destroy_all(&names).unwrap_err(),
        two.pool.datasets().destroy_dataset("second/clone").unwrap_err(),
    ];
    assert!(refused.iter().all(|error| matches!(error, Error::PartialExists { .. })), "{refused:?}");
    two.pool.datasets().hold(&base, "tag").expect("held");
    two.pool.datasets().destroy_dataset("second/clone").expect("the tag keeps it");
    let error = two.pool.datasets().release(&base, "tag").unwrap_err();
    assert!(matches!(error, Error::PartialExists { .. }), "{error}");
    assert_eq!(two.pool.datasets().holds(&base[0]).expect("listed").len(), 1, "it has its tag");

    let two = two.crash();
    two.check();
    assert!(two.pool.datasets().partial("second/copy").is_some());
    two.pool.datasets().abort_receive("second/copy").expect("given up");
    two.pool.datasets().release(&base, "tag").expect("nothing needs it");
    assert!(two.pool.datasets().snapshot_names("second/copy").expect("listed").is_empty());
    two.check();
}

#[test]
fn a_whole_snapshot_replaces_what_is_there_if_that_is_wanted() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    one.snapshot("one/fs@a");
    let full = one.send("one/fs@a", None);
    two.pool.datasets().create_dataset("second/copy", BTreeMap::new(), None).expect("made");
    {
        let (fs, _handle) = mount(&two.pool, "second/copy");
        write_file(&fs, ROOT, b"old", &noise(1, 3_000_000));
    }
    let (live, before) = (two.live(), tree(&two.pool, "second/copy"));
    let force = ReceiveSpec { target: "second/copy".into(), force: true, ..ReceiveSpec::default() };
    let error = two.receive("second/copy", &full).unwrap_err();
    assert!(matches!(error, Error::DestinationExists { .. }), "{error}");
    two.receive_as(&force, &full[..full.len() / 2]).expect_err("cut");
    assert_eq!(tree(&two.pool, "second/copy"), before, "until all has arrived it is what it was");
    {
        let _handle = two.pool.datasets().open_dataset("second/copy").expect("open");
        let error = two.receive_as(&force, &full).unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
    }
    two.check();
    two.snapshot("second/copy@own");
    let error = two.receive_as(&force, &full).unwrap_err();
    assert!(matches!(error, Error::HasSnapshots { .. }), "{error}");
    two.pool.datasets().destroy_snapshots(&["second/copy@own".into()], false).expect("destroyed");
    assert_eq!(tree(&two.pool, "second/copy"), before);
    // At each write: the old one or the new one.
    two.check();
    let image = two.devices[0].image();
    let new = tree(&one.pool, "one/fs");
    let cuts =
        Cuts { image: &image, stream: &full, spec: force.clone(), operations: WRITES, step: 3, secret: None };
    cuts.each(&mut Dice(9), |host, when| {
        let found = tree(&host.pool, "second/copy");
        assert!(found == new || found == before, "{when}");
        found == new
    });
    two.receive_as(&force, &full).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");
    two.check();
    assert!(two.live() < live + (12 << 20), "the old one is freed");
    assert_eq!(two.pool.datasets().names(), ["second", "second/copy"]);
}

#[test]
fn a_bookmark_is_enough_to_go_on_from() {
    let (one, two) = (Host::new("one", 256), Host::new("second", 256));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    {
        // Many names, so that whole leaves go.
        let (fs, _handle) = mount(&one.pool, "one/fs");
        let folder = fs.mkdir(common::ME, ROOT, b"many", 0o755).expect("made").ino;
        (0..3_000).for_each(|at| _ = write_file(&fs, folder, format!("name {at}").as_bytes(), &[7; 3_000]));
    }
    one.snapshot("one/fs@0");
    two.receive("second/copy", &one.send("one/fs@0", None)).expect("received");
    let mut dice = Dice(23);
    for round in 1..8_u64 {
        let (name, mark) = (format!("one/fs@{round}"), format!("one/fs#{}", round - 1));
        one.pool
            .datasets()
            .add_bookmark(&format!("one/fs@{}", round - 1), &(round - 1).to_string())
            .expect("marked");
        one.pool.datasets().destroy_snapshots(&[format!("one/fs@{}", round - 1)], false).expect("destroyed");
        disturb(&one.pool, "one/fs", &mut dice);
        let (fs, handle) = mount(&one.pool, "one/fs");
        let folder = fs.lookup(ROOT, b"many").expect("found").ino;
        for at in dice.below(2_000)..2_500 {
            let _ = fs.unlink(folder, format!("name {at}").as_bytes());
        }
        drop((fs, handle));
        one.snapshot(&name);
        let increment = one.send(&name, Some(&mark));
        two.receive("second/copy", &increment).expect("received");
        same((&one.pool, "one/fs"), (&two.pool, "second/copy"), format!("round {round}"));
        two.check();
    }
    let two = two.crash();
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");
    let one = one.crash();
    assert_eq!(one.pool.datasets().bookmark_infos("one/fs").unwrap().len(), 7);
    one.pool.datasets().remove_bookmark("one/fs#3").expect("removed");
    assert!(matches!(one.pool.datasets().remove_bookmark("one/fs#3"), Err(Error::NoSuchBookmark { .. })));
    one.pool.datasets().destroy_with_snapshots("one/fs").expect("destroyed");
    one.check();
}

#[test]
fn encrypted_datasets_are_sent_open_and_received_under_their_own_keys() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    let key = |host: &Host, byte| common::key(&host.env, &[byte; 32]);
    one.pool.datasets().create_dataset("one/vault", BTreeMap::new(), Some(key(&one, 1))).expect("made");
    two.pool.datasets().create_dataset("second/safe", BTreeMap::new(), Some(key(&two, 2))).expect("made");
    furnish(&one.pool, "one/vault");
    one.snapshot("one/vault@a");
    let full = one.send("one/vault@a", None);
    two.receive("second/safe/copy", &full).expect("received");
    disturb(&one.pool, "one/vault", &mut Dice(5));
    one.snapshot("one/vault@b");
    let increment = one.send("one/vault@b", Some("one/vault@a"));
    two.receive_as(&ReceiveSpec { target: "second/safe/copy".into(), ..ReceiveSpec::default() }, &increment)
        .expect("received");
    same((&one.pool, "one/vault"), (&two.pool, "second/safe/copy"), "at the end");
    one.pool.datasets().unload_key("one/vault").expect("unloaded");
    let spec = SendSpec { snapshot: "one/vault@b".into(), ..SendSpec::default() };
    let error = one.pool.streams().send(&[spec], &mut Vec::new(), &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, Error::KeyNotLoaded { .. }), "{error}");
    // After a crash the hidden dataset's key is loaded with the others.
    let two = two.crash();
    assert_eq!(two.pool.datasets().key_format("second/safe").unwrap(), KeyFormat::Raw);
    two.pool.datasets().load_key("second/safe", &[2; 32], false).expect("loaded");
    one.pool.datasets().load_key("one/vault", &[1; 32], false).expect("loaded");
    same((&one.pool, "one/vault"), (&two.pool, "second/safe/copy"), "at the end");
}

#[test]
fn what_could_not_go_on_without_its_key_goes_on_when_it_is_there() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    one.snapshot("one/fs@a");
    let full = one.send("one/fs@a", None);
    let key = common::key(&two.env, &[2; 32]);
    two.pool.datasets().create_dataset("second/safe", BTreeMap::new(), Some(key)).expect("made");
    let keep = ReceiveSpec { target: "second/safe/copy".into(), keep: true, ..ReceiveSpec::default() };
    two.receive_as(&keep, &full[..full.len() / 2]).expect_err("cut");
    let Partial { position, .. } = two.pool.datasets().partial("second/safe/copy").expect("kept");
    let rest = one.send_from("one/fs@a", None, Some(position));
    two.pool.datasets().unload_key("second/safe").expect("unloaded");
    let error = two.receive_as(&keep, &rest).expect_err("it cannot be opened");
    assert!(matches!(error, Error::KeyNotLoaded { .. }), "{error}");
    two.pool.datasets().load_key("second/safe", &[2; 32], false).expect("loaded");
    two.receive_as(&keep, &rest).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/safe/copy"), "at the end");
}

#[test]
fn what_arrives_below_a_new_name_does_not_get_the_name_of_another() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    one.snapshot("one/fs@a");
    let full = one.send("one/fs@a", None);
    two.pool.datasets().create_dataset("second/a", BTreeMap::new(), None).expect("made");
    let spec = ReceiveSpec { target: "second/a/copy".into(), ..ReceiveSpec::default() };
    let mut meddler = Meddler { pool: &two.pool, done: false };
    let error =
        two.pool.streams().receive(&spec, &mut &full[..], &mut meddler).expect_err("its name is taken");
    assert!(matches!(&error, Error::DestinationExists { name } if name == "second/b/copy"), "{error}");
    assert!(meddler.done);
    assert_eq!(two.pool.datasets().names(), ["second", "second/b", "second/b/copy"]);
    two.check();
}

/// While something arrives, tries to unload the key that it is sealed with.
struct Locker<'p> {
    pool: &'p Pool,
    tried: Option<Result<(), Error>>,
}

impl ReceiveWatch for Locker<'_> {
    fn before(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn after(&mut self, _: &str) {}
    fn progress(&mut self, _: &str, _: u64) {
        if self.tried.is_none() {
            self.tried = Some(self.pool.datasets().unload_key("second/safe"));
        }
    }
}

#[test]
fn a_key_is_not_unloaded_while_something_arrives_that_it_seals() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    one.snapshot("one/fs@a");
    let full = one.send("one/fs@a", None);
    let key = common::key(&two.env, &[2; 32]);
    two.pool.datasets().create_dataset("second/safe", BTreeMap::new(), Some(key)).expect("made");
    let spec = ReceiveSpec { target: "second/safe/copy".into(), ..ReceiveSpec::default() };
    let mut locker = Locker { pool: &two.pool, tried: None };
    two.pool.streams().receive(&spec, &mut &full[..], &mut locker).expect("received");
    let tried = locker.tried.expect("it is long enough");
    assert!(matches!(&tried, Err(Error::Busy { name }) if name == "second/safe"), "{tried:?}");
    same((&one.pool, "one/fs"), (&two.pool, "second/safe/copy"), "at the end");
    two.pool.datasets().unload_key("second/safe").expect("nothing arrives any more");
}

#[test]
fn a_crash_at_any_write_leaves_all_of_a_snapshot_or_nothing() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        (1..30).for_each(|at| {
            _ = write_file(&fs, ROOT, format!("file {at}").as_bytes(), &noise(at, at as usize * 4_000))
        });
    }
    one.snapshot("one/fs@a");
    let full = one.send("one/fs@a", None);
    let before = tree(&one.pool, "one/fs");
    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        (1..10).for_each(|at| fs.unlink(ROOT, format!("file {at}").as_bytes()).expect("removed"));
        (40..50)
            .for_each(|at| _ = write_file(&fs, ROOT, format!("file {at}").as_bytes(), &noise(at, 60_000)));
    }
    one.snapshot("one/fs@b");
    let increment = one.send("one/fs@b", Some("one/fs@a"));
    let after = tree(&one.pool, "one/fs");
    two.pool.sync().expect("committed");
    let empty = two.devices[0].image();
    two.receive("second/copy", &full).expect("received");
    two.check();
    let based = two.devices[0].image();
    let mut dice = Dice(77);
    for (image, stream, old, new) in
        [(&empty, &full, None, &before), (&based, &increment, Some(&before), &after)]
    {
        Cuts::new(image, stream, "second/copy", WRITES_AND_FLUSHES).each(&mut dice, |host, when| {
            let there = host.pool.datasets().names().contains(&"second/copy".to_owned());
            let found = there.then(|| tree(&host.pool, "second/copy"));
            let is_new = found.as_ref() == Some(new);
            assert!(is_new || found.as_ref() == old, "{when}: {found:?}");
            let snapshots =
                if there { host.pool.datasets().snapshot_names("second/copy").unwrap().len() } else { 0 };
            assert_eq!(snapshots, usize::from(old.is_some()) + usize::from(is_new), "{when}");
            is_new
        });
    }
}
