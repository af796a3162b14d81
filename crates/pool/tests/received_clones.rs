//! A clone arrives as a clone: what it has of its origin is not stored again, and increments go on
//! into it.

use std::collections::BTreeMap;

use crate::common::{self, Dice, ROOT, mount, noise, write_file};
use crate::hosts::{Cuts, Host, WRITES_AND_FLUSHES, disturb, furnish, same, snapshot_tree, tree};
use steadfast_pool::{Error, ReceiveSpec, SendSpec, VolumeSpec};

fn into(target: &str) -> ReceiveSpec {
    ReceiveSpec { target: target.into(), ..ReceiveSpec::default() }
}

fn origin(host: &Host, fs: &str) -> Option<String> {
    host.pool.datasets().dataset_info(fs).expect("there").origin
}

/// A file system with a snapshot, a clone of that with one of its own, and both changed since.
fn with_clone(host: &Host) {
    host.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&host.pool, "one/fs");
    host.snapshot("one/fs@a");
    host.pool.datasets().clone_snapshot("one/fs@a", "one/clone", BTreeMap::new()).expect("cloned");
    let mut dice = Dice(11);
    disturb(&host.pool, "one/clone", &mut dice);
    host.snapshot("one/clone@x");
    disturb(&host.pool, "one/fs", &mut dice);
    disturb(&host.pool, "one/clone", &mut dice);
    host.snapshot("one/clone@y");
}

#[test]
fn a_clone_arrives_as_one_and_increments_go_on_into_it() {
    let (one, two) = (Host::new("one", 256), Host::new("second", 256));
    with_clone(&one);
    let whole = one.send("one/clone@x", None);
    let beyond = one.send("one/clone@x", Some("one/fs@a"));
    assert!(beyond.len() * 2 < whole.len(), "{} and {}", beyond.len(), whole.len());
    let error = two.receive("second/clone", &beyond).unwrap_err();
    assert!(matches!(error, Error::NoOrigin { .. }), "{error}");
    two.receive("second/copy", &one.send("one/fs@a", None)).expect("received");
    let live = two.live();
    two.receive("second/clone", &beyond).expect("received");
    assert!(two.live() - live < whole.len() as u64 / 2, "what it shares is stored once");
    assert_eq!(origin(&two, "second/clone").as_deref(), Some("second/copy@a"));
    two.check();
    let mut two = two.crash();
    let mut dice = Dice(12);
    two.receive("second/clone", &one.send("one/clone@y", Some("one/clone@x"))).expect("upon a clone");
    for round in 0..6_u64 {
        disturb(&one.pool, "one/clone", &mut dice);
        let (name, before) =
            (format!("one/clone@{round}"), one.pool.datasets().snapshot_names("one/clone").unwrap());
        let before = format!("one/clone@{}", before.last().unwrap());
        one.snapshot(&name);
        let increment = one.send(&name, Some(&before));
        if round % 2 == 1 {
            // Changes made here are given up first.
            disturb(&two.pool, "second/clone", &mut dice);
            two.snapshot(&format!("second/clone@own{round}"));
            disturb(&two.pool, "second/clone", &mut dice);
        }
        two.receive_as(&ReceiveSpec { force: round % 2 == 1, ..into("second/clone") }, &increment)
            .expect("ok");
        two.check();
        if round == 3 {
            two = two.crash();
        }
        same((&one.pool, "one/clone"), (&two.pool, "second/clone"), format!("round {round}"));
    }
    // Both change places and still fit; what is left at last is nothing.
    two.pool.datasets().promote("second/clone").expect("promoted");
    two.check();
    assert_eq!(origin(&two, "second/copy").as_deref(), Some("second/clone@a"));
    disturb(&one.pool, "one/clone", &mut dice);
    one.snapshot("one/clone@last");
    two.receive("second/clone", &one.send("one/clone@last", Some("one/clone@5"))).expect("received");
    disturb(&one.pool, "one/fs", &mut dice);
    one.snapshot("one/fs@b");
    let error = two.receive("second/copy", &one.send("one/fs@b", Some("one/fs@a"))).unwrap_err();
    assert!(matches!(error, Error::NoBase { .. }), "its snapshot is the clone's now: {error}");
    two.check();
    two.pool.datasets().destroy_with_snapshots("second/copy").expect("destroyed");
    two.pool.datasets().destroy_with_snapshots("second/clone").expect("destroyed");
    two.check();
    let empty = Host::new("second", 256);
    empty.check();
    assert!(two.live() <= empty.live() + (1 << 20), "{} and {}", two.live(), empty.live());
}

/// All that the clone begins with goes, as if it were removed: the origin keeps it, and nothing of
/// it stays in the clone.
#[test]
fn a_full_stream_becomes_a_clone_of_what_is_named() {
    let (one, two) = (Host::new("one", 256), Host::new("second", 256));
    with_clone(&one);
    two.receive("second/copy", &one.send("one/fs@a", None)).expect("received");
    let copy = tree(&two.pool, "second/copy");
    disturb(&one.pool, "one/fs", &mut Dice(21));
    one.snapshot("one/fs@b");
    let upon = |target: &str| ReceiveSpec { origin: Some("second/copy@a".into()), ..into(target) };
    let full = one.send("one/fs@b", None);
    let received = two.receive_as(&upon("second/branch"), &full).expect("received");
    assert_eq!(received[0].origin.as_deref(), Some("second/copy@a"));
    assert!(!received[0].increment);
    same((&one.pool, "one/fs"), (&two.pool, "second/branch"), "as a clone");
    assert_eq!(tree(&two.pool, "second/copy"), copy, "the origin is what it was");
    two.check();
    // A clone of the same file system orders its directories alike.
    two.receive_as(&upon("second/other"), &one.send_packed("one/clone@y", None)).expect("received");
    assert_eq!(tree(&two.pool, "second/other"), snapshot_tree(&one.pool, "one/clone@y"));
    two.check();
    let two = two.crash();
    // Increments go on into it, and it changes places with its origin.
    disturb(&one.pool, "one/fs", &mut Dice(22));
    one.snapshot("one/fs@c");
    two.receive("second/branch", &one.send("one/fs@c", Some("one/fs@b"))).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/branch"), "an increment");
    two.pool.datasets().promote("second/branch").expect("promoted");
    assert_eq!(origin(&two, "second/copy").as_deref(), Some("second/branch@a"));
    assert_eq!(tree(&two.pool, "second/copy"), copy);
    assert_eq!(snapshot_tree(&two.pool, "second/branch@a"), copy);
    two.check();

    let refused = |spec: &ReceiveSpec, stream: &[u8], reason: &str| {
        let error = two.receive_as(spec, stream).unwrap_err();
        assert!(matches!(error, Error::OriginOfWhole { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    };
    let upon = |target: &str| ReceiveSpec { origin: Some("second/branch@b".into()), ..into(target) };
    one.pool.datasets().create_dataset("one/stranger", BTreeMap::new(), None).expect("made");
    one.snapshot("one/stranger@a");
    refused(&upon("second/no"), &one.send("one/stranger@a", None), "from the same file system");
    refused(&ReceiveSpec { keep: true, ..upon("second/no") }, &full, "-s");
    let volume = VolumeSpec { bytes: 1 << 20, block_bytes: 8 << 10 };
    for (name, seed) in [("one/disk", 1), ("one/disk2", 2)] {
        one.pool.datasets().create_volume(name, BTreeMap::new(), None, volume).expect("made");
        let (fs, _handle) = mount(&one.pool, name);
        fs.write(ROOT, 100_000, &noise(seed, 300_000), false).expect("written");
        drop(fs);
        one.snapshot(&format!("{name}@a"));
    }
    refused(&upon("second/no"), &one.send("one/disk@a", None), "a volume");
    for force in [false, true] {
        let error = two.receive_as(&ReceiveSpec { force, ..upon("second/copy") }, &full).unwrap_err();
        assert!(matches!(error, Error::DestinationExists { .. }), "{error}");
    }
    // Volumes have no directories.
    two.receive("second/disk", &one.send("one/disk@a", None)).expect("received");
    let spec = ReceiveSpec { origin: Some("second/disk@a".into()), ..into("second/disk2") };
    two.receive_as(&spec, &one.send("one/disk2@a", None)).expect("received");
    let (fs, handle) = mount(&two.pool, "second/disk2");
    let mut content = vec![0; 1 << 20];
    assert_eq!(fs.read(ROOT, 0, &mut content).expect("read"), content.len());
    assert!(content[100_000..400_000] == noise(2, 300_000) && content[..100_000].iter().all(|b| *b == 0));
    assert!(content[400_000..].iter().all(|byte| *byte == 0));
    drop((fs, handle));
    two.check();
    for name in ["disk2", "disk", "other", "copy", "branch"] {
        two.pool.datasets().destroy_with_snapshots(&format!("second/{name}")).expect("destroyed");
    }
    two.check();
    let empty = Host::new("second", 256);
    empty.check();
    assert!(two.live() <= empty.live() + (1 << 20), "{} and {}", two.live(), empty.live());
}

#[test]
fn any_increment_makes_a_clone_of_what_is_named_and_what_does_not_fit_is_refused() {
    let (one, two) = (Host::new("one", 256), Host::new("second", 256));
    with_clone(&one);
    two.receive("second/copy", &one.send("one/fs@a", None)).expect("received");
    two.snapshot("second/copy@other");
    one.snapshot("one/fs@b");
    let increment = one.send("one/fs@b", Some("one/fs@a"));
    let upon = |origin: &str| ReceiveSpec { origin: Some(origin.into()), ..into("second/branch") };
    let error = two.receive("second/branch", &increment).unwrap_err();
    assert!(matches!(error, Error::NoSuchDataset { .. }), "it is not said to be a clone's: {error}");
    let error = two.receive_as(&upon("second/copy@other"), &increment).unwrap_err();
    assert!(matches!(error, Error::NoOrigin { .. }), "{error}");
    let error = two.receive_as(&upon("second/copy@none"), &increment).unwrap_err();
    assert!(matches!(error, Error::NoSuchSnapshot { .. }), "{error}");
    assert_eq!(two.pool.datasets().names(), ["second", "second/copy"]);
    two.receive_as(&upon("second/copy@a"), &increment).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/branch"), "as a clone");
    assert_eq!(origin(&two, "second/branch").as_deref(), Some("second/copy@a"));
    two.check();

    // An increment is of the same file system, or of what it is a clone of, and not of what that
    // became later.
    let wrong = |snapshot: &str, base: &str| {
        let spec = SendSpec { snapshot: snapshot.into(), base: Some(base.into()), ..SendSpec::default() };
        one.pool.streams().send(&[spec], &mut Vec::new(), &mut |_, _| ()).expect_err("no such increment")
    };
    for (snapshot, base) in
        [("one/clone@x", "one/fs@b"), ("one/fs@b", "one/clone@x"), ("one/clone@x", "one/clone@y")]
    {
        let error = wrong(snapshot, base);
        assert!(matches!(error, Error::NotEarlier { .. }), "{snapshot} {base}: {error}");
    }
    // A bookmark of the origin will do, and a clone of a clone may begin with the first of all.
    one.pool.datasets().add_bookmark("one/fs@a", "mark").expect("marked");
    one.pool.datasets().clone_snapshot("one/clone@x", "one/second", BTreeMap::new()).expect("cloned");
    disturb(&one.pool, "one/second", &mut Dice(13));
    one.snapshot("one/second@z");
    for (target, base) in [("second/m", "one/fs#mark"), ("second/n", "one/fs@a")] {
        two.receive(target, &one.send("one/second@z", Some(base))).expect("received");
        same((&one.pool, "one/second"), (&two.pool, target), base);
        assert_eq!(origin(&two, target).as_deref(), Some("second/copy@a"));
    }
    two.check();
}

#[test]
fn half_a_clone_keeps_its_origin_and_goes_on_or_goes() {
    let (one, two) = (Host::new("one", 256), Host::new("second", 256));
    with_clone(&one);
    two.receive("second/copy", &one.send("one/fs@a", None)).expect("received");
    let stream = one.send("one/clone@x", Some("one/fs@a"));
    let keep = ReceiveSpec { keep: true, ..into("second/clone") };
    two.receive_as(&keep, &stream[..stream.len() / 2]).expect_err("half of it");
    let two = two.crash();
    two.check();
    let partial = two.pool.datasets().partial("second/clone").expect("kept");
    let error = two.pool.datasets().destroy_snapshots(&["second/copy@a".into()], false).unwrap_err();
    assert!(matches!(error, Error::PartialExists { .. }), "{error}");
    assert!(two.pool.datasets().partial("second/copy").is_none(), "it is of another name");
    let error = two.receive("second/clone", &stream).unwrap_err();
    assert!(matches!(error, Error::PartialExists { .. }), "{error}");
    let rest = one.send_from("one/clone@x", Some("one/fs@a"), Some(partial.position));
    two.receive_as(&keep, &rest[..rest.len() / 2]).expect_err("half of the rest");
    two.pool.datasets().abort_receive("second/clone").expect("given up");
    two.check();
    two.pool.datasets().destroy_snapshots(&["second/copy@a".into()], false).expect("nothing needs it");
    assert_eq!(two.pool.datasets().names(), ["second", "second/copy"]);

    let three = Host::new("third", 256);
    three.receive("third/copy", &one.send("one/fs@a", None)).expect("received");
    let keep = ReceiveSpec { keep: true, ..into("third/clone") };
    three.receive_as(&keep, &stream[..stream.len() / 2]).expect_err("half of it");
    let partial = three.pool.datasets().partial("third/clone").expect("kept");
    let rest = one.send_from("one/clone@x", Some("one/fs@a"), Some(partial.position));
    three.receive_as(&keep, &rest).expect("the rest of it");
    three.receive("third/clone", &one.send("one/clone@y", Some("one/clone@x"))).expect("received");
    assert_eq!(origin(&three, "third/clone").as_deref(), Some("third/copy@a"));
    same((&one.pool, "one/clone"), (&three.pool, "third/clone"), "from two halves");
    three.check();
}

#[test]
fn a_clone_of_what_is_encrypted_is_received_under_its_key() {
    let (one, two) = (Host::new("one", 256), Host::new("second", 256));
    with_clone(&one);
    two.pool
        .datasets()
        .create_dataset("second/safe", BTreeMap::new(), Some(common::key(&two.env, &[2; 32])))
        .expect("made");
    two.receive("second/safe/copy", &one.send("one/fs@a", None)).expect("received");
    let stream = one.send("one/clone@x", Some("one/fs@a"));
    two.receive("second/safe/clone", &stream).expect("received");
    let two = two.crash();
    let error = two.receive("second/safe/clone", &one.send("one/clone@y", Some("one/clone@x"))).unwrap_err();
    assert!(matches!(error, Error::KeyNotLoaded { .. }), "{error}");
    two.pool.datasets().load_key("second/safe", &[2; 32], false).expect("loaded");
    two.receive("second/safe/clone", &one.send("one/clone@y", Some("one/clone@x"))).expect("received");
    same((&one.pool, "one/clone"), (&two.pool, "second/safe/clone"), "sealed");
    let error = one.pool.streams().send(
        &[SendSpec {
            snapshot: "one/clone@x".into(),
            base: Some("one/fs@a".into()),
            raw: true,
            ..SendSpec::default()
        }],
        &mut Vec::new(),
        &mut |_, _| (),
    );
    assert!(error.is_ok(), "what is not sealed goes as without -w: {error:?}");
    let sealed = SendSpec {
        snapshot: "second/safe/clone@x".into(),
        base: Some("second/safe/copy@a".into()),
        raw: true,
        ..SendSpec::default()
    };
    // A sealed increment needs a base that came sealed (`raw_clones.rs`).
    let error = two.receive("second/raw", &two.send_as(sealed)).unwrap_err();
    assert!(matches!(error, Error::RawMixed { .. }), "{error}");
}

#[test]
fn a_crash_at_any_write_leaves_all_of_a_clone_or_nothing() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    let write = |fs: &str, range: std::ops::Range<u64>, seed: u64| {
        let (fs, _handle) = mount(&one.pool, fs);
        range.for_each(|at| {
            let name = format!("file {at}");
            let _ = fs.unlink(ROOT, name.as_bytes());
            _ = write_file(&fs, ROOT, name.as_bytes(), &noise(at + seed, at as usize * 4_000));
        });
    };
    write("one/fs", 1..20, 0);
    one.snapshot("one/fs@a");
    one.pool.datasets().clone_snapshot("one/fs@a", "one/clone", BTreeMap::new()).expect("cloned");
    write("one/clone", 5..12, 70);
    one.snapshot("one/clone@x");
    let first = one.send("one/clone@x", Some("one/fs@a"));
    let before = tree(&one.pool, "one/clone");
    write("one/clone", 1..8, 140);
    one.snapshot("one/clone@y");
    let second = one.send("one/clone@y", Some("one/clone@x"));
    let after = tree(&one.pool, "one/clone");
    two.receive("second/copy", &one.send("one/fs@a", None)).expect("received");
    two.check();
    let none = two.devices[0].image();
    two.receive("second/clone", &first).expect("received");
    two.check();
    let based = two.devices[0].image();
    let mut dice = Dice(77);
    for (image, stream, old, new) in
        [(&none, &first, None, &before), (&based, &second, Some(&before), &after)]
    {
        Cuts::new(image, stream, "second/clone", WRITES_AND_FLUSHES).each(&mut dice, |host, when| {
            let there = host.pool.datasets().names().contains(&"second/clone".to_owned());
            let found = there.then(|| tree(&host.pool, "second/clone"));
            let is_new = found.as_ref() == Some(new);
            assert!(is_new || found.as_ref() == old, "{when}: {found:?}");
            if there {
                assert_eq!(origin(host, "second/clone").as_deref(), Some("second/copy@a"));
                let count = host.pool.datasets().snapshot_names("second/clone").unwrap().len();
                assert_eq!(count, usize::from(old.is_some()) + usize::from(is_new));
            }
            is_new
        });
    }
}

#[test]
fn the_origin_is_looked_for_near_where_the_clone_comes() {
    let (one, two) = (Host::new("one", 256), Host::new("second", 256));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    one.snapshot("one/fs@a");
    one.pool.datasets().clone_snapshot("one/fs@a", "one/clone", BTreeMap::new()).expect("cloned");
    one.snapshot("one/clone@x");
    let (whole, clone) = (one.send("one/fs@a", None), one.send("one/clone@x", Some("one/fs@a")));
    for backup in ["second/b1", "second/b2", "second/b2/deep", "second/b3"] {
        two.pool.datasets().create_dataset(backup, BTreeMap::new(), None).expect("made");
    }
    for place in ["second/b1/fs", "second/b2/fs", "second/b3/fs"] {
        two.receive(place, &whole).expect("received");
    }
    for (place, of) in [
        ("second/b3/clone", "second/b3/fs@a"),
        ("second/b2/clone", "second/b2/fs@a"),
        ("second/b2/deep/clone", "second/b2/fs@a"),
        ("second/b1/clone", "second/b1/fs@a"),
        ("second/clone", "second/b1/fs@a"),
    ] {
        two.receive(place, &clone).expect("received");
        assert_eq!(origin(&two, place).as_deref(), Some(of), "{place}");
    }
    two.check();
}
