//! Properties of users and tags of snapshots go along with streams, and arrive with their snapshot
//! or not at all.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{self, ROOT, mount, noise, write_file};
use crate::hosts::{Cuts, Host, WRITES_AND_FLUSHES, frames, joined_behind};
use steadfast_format::stream::{FrameKind, StreamHeader, StreamNotes};
use steadfast_pool::{Error, ReceiveSpec, SendSpec, SnapshotInfo};
use steadfast_property::{Local, USER_VALUE_BYTES_MAX};

const KEY: [u8; 32] = [1; 32];

fn local(pairs: &[(&str, &str)]) -> Local {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn set(host: &Host, snapshot: &str, property: &str, value: Option<&str>) {
    host.pool.datasets().set_snapshot_properties(&[snapshot.to_owned()], &[(property, value)]).expect("set");
}

fn hold(host: &Host, snapshot: &str, tag: &str) {
    host.pool.datasets().hold(&[snapshot.to_owned()], tag).expect("held");
}

fn tags(host: &Host, snapshot: &str) -> Vec<String> {
    host.pool.datasets().holds(snapshot).expect("there").into_iter().map(|(tag, _)| tag).collect()
}

fn info(host: &Host, name: &str) -> SnapshotInfo {
    let (fs, snapshot) = name.split_once('@').expect("a snapshot");
    host.pool.datasets().snapshot_infos(fs, Some(snapshot)).expect("there").remove(0)
}

type Frame = (FrameKind, Vec<u8>);

/// Properties that count on a snapshot by itself, names of those that came with a stream, and all
/// received ones.
type Noted = (Local, Vec<String>, Local);

fn noted(host: &Host, name: &str) -> Noted {
    let SnapshotInfo { props, counting, received, .. } = info(host, name);
    (props, counting.into_iter().collect(), received)
}

/// With properties and tags.
fn whole(snapshot: &str, base: Option<&str>) -> SendSpec {
    let base = base.map(str::to_owned);
    SendSpec { snapshot: snapshot.into(), base, properties: true, holds: true, ..SendSpec::default() }
}

fn into(target: &str) -> ReceiveSpec {
    ReceiveSpec { target: target.into(), ..ReceiveSpec::default() }
}

/// A pool with a file system, and a file in it.
fn one() -> Host {
    let one = Host::new("one", 64);
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    write_file(&mount(&one.pool, "one/fs").0, ROOT, b"file", &noise(1, 300_000));
    one
}

#[test]
fn what_users_noted_comes_as_received_and_stays_beside_what_is_set() {
    let (one, two) = (one(), Host::new("second", 64));
    one.pool.datasets().set_properties("one/fs", &[("org:fs", Some("1"))]).expect("set");
    let taken = local(&[("org:note", "first"), ("org:kept", "a=b")]);
    one.pool.datasets().take_snapshots(&["one/fs@1".into()], &taken).expect("taken");
    set(&one, "one/fs@1", "org:later", Some(""));
    one.snapshot("one/fs@2");
    let stream = one.send_as(whole("one/fs@1", None));
    let received = two.receive("second/copy", &stream).expect("received");
    assert_eq!(received[0].left_out, Vec::<String>::new());
    let all = local(&[("org:kept", "a=b"), ("org:later", ""), ("org:note", "first")]);
    let names = || -> Vec<String> { all.keys().cloned().collect() };
    assert_eq!(noted(&two, "second/copy@1"), (all.clone(), names(), all.clone()));
    let two = two.crash();
    assert_eq!(noted(&two, "second/copy@1"), (all.clone(), names(), all.clone()));
    // A snapshot on which nothing is noted, and one of which nothing is asked.
    let increment = one.send_as(whole("one/fs@2", Some("one/fs@1")));
    two.receive("second/copy", &increment).expect("received");
    assert_eq!(noted(&two, "second/copy@2"), Noted::default());
    two.receive("second/plain", &one.send("one/fs@1", None)).expect("received");
    assert_eq!(noted(&two, "second/plain@1"), Noted::default());

    // Set here, inherited, and back to what came; through an import.
    let changed = |two: &Host| {
        let (props, counting, received) = noted(two, "second/copy@1");
        assert_eq!(received, all, "what came stays");
        (props.get("org:note").cloned(), counting.contains(&"org:note".to_owned()))
    };
    set(&two, "second/copy@1", "org:note", Some("ours"));
    assert_eq!(changed(&two), (Some("ours".into()), false));
    let two = two.crash();
    assert_eq!(changed(&two), (Some("ours".into()), false));
    set(&two, "second/copy@1", "org:note", None);
    assert_eq!(changed(&two), (None, false));
    let two = two.crash();
    assert_eq!(changed(&two), (None, false));
    assert_eq!(
        two.pool.datasets().snapshots_with("second/copy", "org:note").expect("listed"),
        ["second/copy@1"]
    );
    two.pool.datasets().revert_snapshot_property(&["second/copy@1".into()], "org:note").expect("back");
    assert_eq!(changed(&two), (Some("first".into()), true));
    let two = two.crash();
    assert_eq!(changed(&two), (Some("first".into()), true));

    // A backup gives back what it was given; without -b its operator's notes go too.
    set(&two, "second/copy@1", "org:note", Some("ours"));
    set(&two, "second/copy@1", "org:shelf", Some("7"));
    set(&two, "second/copy@2", "org:shelf", Some("8"));
    let three = Host::new("third", 64);
    let back = |snapshot: &str, base| SendSpec { backup: true, ..whole(snapshot, base) };
    three.receive("third/back", &two.send_as(back("second/copy@1", None))).expect("received");
    assert_eq!(noted(&three, "third/back@1"), (all.clone(), names(), all.clone()));
    let increment = two.send_as(back("second/copy@2", Some("second/copy@1")));
    three.receive("third/back", &increment).expect("received");
    assert_eq!(noted(&three, "third/back@2"), Noted::default());
    three.receive("third/all", &two.send_as(whole("second/copy@1", None))).expect("received");
    let (props, ..) = noted(&three, "third/all@1");
    assert_eq!((props["org:note"].as_str(), props["org:shelf"].as_str()), ("ours", "7"));

    // Nothing of it is left where the snapshot was.
    two.pool
        .datasets()
        .destroy_snapshots(&["second/copy@1".into(), "second/copy@2".into()], false)
        .expect("destroyed");
    two.pool.datasets().destroy_dataset("second/copy").expect("destroyed");
    two.check();
}

#[test]
fn what_is_set_or_left_out_for_the_file_system_counts_for_its_snapshots() {
    let (one, two) = (one(), Host::new("second", 64));
    let taken = local(&[("org:a", "1"), ("org:b", "1"), ("org:c", "1")]);
    one.pool.datasets().take_snapshots(&["one/fs@1".into()], &taken).expect("taken");
    let stream = one.send_as(whole("one/fs@1", None));
    let spec = ReceiveSpec {
        props: local(&[("org:a", "2")]),
        exclude: vec!["org:b".into(), "org:d".into()],
        ..into("second/copy")
    };
    two.receive_as(&spec, &stream).expect("received");
    let two = two.crash();
    let (props, counting, received) = noted(&two, "second/copy@1");
    assert_eq!((props, counting, received), (local(&[("org:c", "1")]), vec!["org:c".to_owned()], taken));
    two.pool.datasets().revert_snapshot_property(&["second/copy@1".into()], "org:b").expect("back");
    let (props, ..) = noted(&two, "second/copy@1");
    assert_eq!(props, local(&[("org:b", "1"), ("org:c", "1")]));
    two.check();
}

#[test]
fn tags_hold_what_is_received_until_they_are_released_here() {
    let (one, two) = (one(), Host::new("second", 64));
    for name in ["1", "2", "3"] {
        one.snapshot(&format!("one/fs@{name}"));
    }
    for tag in ["keep", "für immer"] {
        hold(&one, "one/fs@1", tag);
    }
    hold(&one, "one/fs@3", "keep");
    let plan = [("1", None), ("2", Some("one/fs@1")), ("3", Some("one/fs@2"))];
    let plan = plan.map(|(name, base)| whole(&format!("one/fs@{name}"), base));
    let mut stream = Vec::new();
    one.pool.streams().send(&plan, &mut stream, &mut |_, _| ()).expect("sent");
    two.receive("second/copy", &stream).expect("received");
    two.receive_as(&ReceiveSpec { no_holds: true, ..into("second/free") }, &stream).expect("received");
    let two = two.crash();
    assert_eq!(tags(&two, "second/copy@1"), ["für immer", "keep"]);
    assert_eq!((tags(&two, "second/copy@2").len(), tags(&two, "second/copy@3").len()), (0, 1));
    assert_eq!(info(&two, "second/copy@1").holds, 2);
    let error = two.pool.datasets().destroy_snapshots(&["second/copy@1".into()], false).unwrap_err();
    assert!(matches!(error, Error::SnapshotHeld { .. }), "{error}");
    for name in ["1", "2", "3"] {
        assert!(tags(&two, &format!("second/free@{name}")).is_empty());
    }
    two.pool.datasets().destroy_with_snapshots("second/free").expect("destroyed");
    // A younger snapshot with a hold prevents a forced receive.
    one.pool.datasets().release(&["one/fs@3".into()], "keep").expect("released");
    one.pool.datasets().destroy_snapshots(&["one/fs@3".into()], false).expect("destroyed");
    one.snapshot("one/fs@4");
    let increment = one.send_as(whole("one/fs@4", Some("one/fs@2")));
    let force = ReceiveSpec { force: true, ..into("second/copy") };
    let error = two.receive_as(&force, &increment).unwrap_err();
    assert!(matches!(error, Error::SnapshotHeld { .. }), "{error}");
    two.pool.datasets().release(&["second/copy@3".into()], "keep").expect("released");
    two.receive_as(&force, &increment).expect("received");
    // Tags of one side are its own.
    one.pool.datasets().release(&["one/fs@1".into()], "keep").expect("released");
    assert_eq!(tags(&two, "second/copy@1").len(), 2);
    for tag in ["keep", "für immer"] {
        two.pool.datasets().release(&["second/copy@1".into()], tag).expect("released");
    }
    two.pool.datasets().destroy_with_snapshots("second/copy").expect("destroyed");
    two.check();
}

#[test]
fn raw_streams_clones_and_what_broke_off_bring_them_too() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    let key = common::key(&one.env, &KEY);
    one.pool.datasets().create_dataset("one/vault", BTreeMap::new(), Some(key)).expect("made");
    write_file(&mount(&one.pool, "one/vault").0, ROOT, b"file", &noise(1, 3_000_000));
    one.pool.datasets().take_snapshots(&["one/vault@1".into()], &local(&[("org:a", "1")])).expect("taken");
    hold(&one, "one/vault@1", "keep");
    one.pool.datasets().clone_snapshot("one/vault@1", "one/branch", BTreeMap::new()).expect("cloned");
    one.pool.datasets().take_snapshots(&["one/branch@2".into()], &local(&[("org:b", "2")])).expect("taken");
    hold(&one, "one/branch@2", "year");
    for (raw, packed, vault, branch) in [
        (true, false, "second/vault", "second/branch"),
        (false, true, "second/open", "second/open_branch"),
        (false, false, "second/plain", "second/plain_branch"),
    ] {
        let first = SendSpec { raw, packed, ..whole("one/vault@1", None) };
        let stream = one.send_as(first.clone());
        let keep = ReceiveSpec { keep: true, ..into(vault) };
        two.receive_as(&keep, &stream[..stream.len() / 2]).expect_err("cut");
        let kept = two.pool.datasets().partial(vault).expect("kept");
        let rest = one.send_as(SendSpec { resume: Some(kept.position), ..first });
        two.receive_as(&keep, &rest).expect("received");
        let second = SendSpec { raw, packed, ..whole("one/branch@2", Some("one/vault@1")) };
        two.receive(branch, &one.send_as(second)).expect("received");
        for (fs, name, property, tag) in [(vault, "1", "org:a", "keep"), (branch, "2", "org:b", "year")] {
            let snapshot = format!("{fs}@{name}");
            assert_eq!(noted(&two, &snapshot).2, local(&[(property, name)]), "{snapshot}");
            assert_eq!(tags(&two, &snapshot), [tag], "{snapshot}");
        }
    }
    // From the store that has no key they go on.
    let three = Host::new("third", 128);
    let sealed = two.send_as(SendSpec { raw: true, ..whole("second/vault@1", None) });
    three.receive("third/vault", &sealed).expect("received");
    assert_eq!(noted(&three, "third/vault@1").2, local(&[("org:a", "1")]));
    assert_eq!(tags(&three, "third/vault@1"), ["keep"]);
    two.check();
}

#[test]
fn a_stream_that_notes_nothing_is_what_it_was_before_there_were_notes() {
    let one = one();
    one.snapshot("one/fs@1");
    let stream = one.send_as(whole("one/fs@1", None));
    assert_eq!(stream, one.send_as(SendSpec { holds: false, ..whole("one/fs@1", None) }));
    assert_eq!(stream[12], 0, "no flag of its header");
    assert!(frames(&stream).iter().all(|(kind, _)| *kind != FrameKind::Notes));
    hold(&one, "one/fs@1", "keep");
    let stream = one.send_as(whole("one/fs@1", None));
    assert_eq!(stream[12], 2);
    assert_eq!(frames(&stream).iter().filter(|(kind, _)| *kind == FrameKind::Notes).count(), 1);
    // More than a stream carries is refused before its first byte.
    let names: Vec<String> = (0..22).map(|at| format!("org:{at}")).collect();
    let long = "v".repeat(USER_VALUE_BYTES_MAX);
    let edits: Vec<(&str, Option<&str>)> = names.iter().map(|name| (name.as_str(), Some(&*long))).collect();
    one.pool.datasets().set_snapshot_properties(&["one/fs@1".into()], &edits).expect("set");
    let mut out = Vec::new();
    let error = one.pool.streams().send(&[whole("one/fs@1", None)], &mut out, &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, Error::NotesTooLong { .. }) && out.is_empty(), "{error}");
    let without = SendSpec { properties: false, ..whole("one/fs@1", None) };
    one.pool.streams().send(&[without], &mut out, &mut |_, _| ()).expect("sent");
    // As long as a value may be it is stored, and what came of it too.
    let gone: Vec<(&str, Option<&str>)> = edits[..2].iter().map(|(name, _)| (*name, None)).collect();
    one.pool.datasets().set_snapshot_properties(&["one/fs@1".into()], &gone).expect("removed");
    let two = Host::new("second", 64);
    two.receive("second/copy", &one.send_as(whole("one/fs@1", None))).expect("received");
    assert_eq!(noted(&two.crash(), "second/copy@1").2["org:21"], long);
}

#[test]
fn notes_that_no_sender_writes_are_refused_and_leave_nothing() {
    let (one, two) = (one(), Host::new("second", 64));
    one.pool.datasets().take_snapshots(&["one/fs@1".into()], &local(&[("org:a", "1")])).expect("taken");
    hold(&one, "one/fs@1", "keep");
    let good = frames(&one.send_as(whole("one/fs@1", None)));
    assert_eq!((good[0].0, good[1].0), (FrameKind::Begin, FrameKind::Notes));
    let notes = StreamNotes::decode(&good[1].1).expect("notes");
    let header = StreamHeader { notes: true, ..StreamHeader::default() };
    let refused = |header: StreamHeader, frames: &[Frame], what: &str| {
        let error = two.receive("second/copy", &joined_behind(header, frames)).expect_err(what);
        assert!(matches!(error, Error::StreamDamaged { .. }), "{what}: {error}");
        assert_eq!(two.pool.datasets().names(), ["second"], "{what}");
    };
    refused(StreamHeader::default(), &good, "a header that does not say so");
    let changed = |change: &dyn Fn(&mut Vec<Frame>)| {
        let mut frames = good.clone();
        change(&mut frames);
        frames
    };
    refused(header, &changed(&|frames| frames.insert(2, frames[1].clone())), "twice");
    refused(header, &changed(&|frames| frames.swap(1, 2)), "behind names");
    refused(header, &changed(&|frames| frames.swap(0, 1)), "before its begin");
    refused(header, &changed(&|frames| _ = frames[1].1.pop()), "cut");
    for tag in ["a\nb", &"x".repeat(256)] {
        let foreign = StreamNotes { tags: BTreeSet::from([tag.to_owned()]), ..notes.clone() };
        refused(header, &changed(&|frames| frames[1].1 = foreign.encode()), "a tag that is none");
    }
    two.check();
    // A name that is no property of a user here is left out, and reported.
    let names = ["compression", "org:B", "org:ok", "steadfast:x", "used"];
    let foreign = StreamNotes { properties: local(&names.map(|name| (name, "1"))), ..notes };
    let stream = joined_behind(header, &changed(&|frames| frames[1].1 = foreign.encode()));
    let received = two.receive("second/copy", &stream).expect("received");
    assert_eq!(received[0].left_out, ["compression", "org:B", "steadfast:x", "used"]);
    assert_eq!(noted(&two, "second/copy@1").2, local(&[("org:ok", "1")]));
    two.pool.datasets().release(&["second/copy@1".into()], "keep").expect("released");
    two.pool.datasets().destroy_with_snapshots("second/copy").expect("destroyed");
    two.check();
}

#[test]
fn notes_come_with_their_snapshot_wherever_the_power_goes() {
    let (one, two) = (one(), Host::new("second", 64));
    let taken = local(&[("org:a", "1"), ("org:b", "1")]);
    one.pool.datasets().take_snapshots(&["one/fs@1".into()], &taken).expect("taken");
    hold(&one, "one/fs@1", "keep");
    let first = one.send_as(whole("one/fs@1", None));
    write_file(&mount(&one.pool, "one/fs").0, ROOT, b"more", &noise(2, 100_000));
    one.pool.datasets().take_snapshots(&["one/fs@2".into()], &local(&[("org:a", "2")])).expect("taken");
    hold(&one, "one/fs@2", "year");
    let second = one.send_as(whole("one/fs@2", Some("one/fs@1")));
    two.pool.sync().expect("committed");
    let empty = two.devices[0].image();
    two.receive("second/copy", &first).expect("received");
    two.check();
    let based = two.devices[0].image();
    let mut dice = common::Dice(31);
    for (image, stream, count) in [(&empty, &first, 1), (&based, &second, 2)] {
        Cuts::new(image, stream, "second/copy", WRITES_AND_FLUSHES).each(&mut dice, |host, when| {
            let there = host.pool.datasets().names().contains(&"second/copy".to_owned());
            let names =
                if there { host.pool.datasets().snapshot_names("second/copy").unwrap() } else { Vec::new() };
            if let Some(("1", rest)) = names.split_first().map(|(name, rest)| (name.as_str(), rest)) {
                assert!(rest.len() <= 1);
                assert_eq!(noted(host, "second/copy@1").2, taken, "{when}");
                assert_eq!(tags(host, "second/copy@1"), ["keep"], "{when}");
            }
            if names.len() == 2 {
                assert_eq!(noted(host, "second/copy@2").0, local(&[("org:a", "2")]), "{when}");
                assert_eq!(tags(host, "second/copy@2"), ["year"], "{when}");
            }
            assert!(names.len() == count || names.len() + 1 == count, "{when}: {names:?}");
            names.len() == count
        });
    }
}
