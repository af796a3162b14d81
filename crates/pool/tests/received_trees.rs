//! Increments of a tree are followed where they arrive: names, and with `force` what is no more.

use crate::common;
use std::collections::{BTreeMap, BTreeSet};

use crate::common::Dice;
use crate::hosts::{Host, disturb, frames, furnish, joined_behind, same, snapshot_tree};
use steadfast_format::stream::{FrameKind, StreamHeader, StreamMember};
use steadfast_pool::{Error, ReceiveSpec, ReceiveWatch, SendSpec};

/// Notes what was not followed.
#[derive(Default)]
struct Told {
    not_followed: Vec<String>,
    busy: BTreeSet<String>,
}

impl ReceiveWatch for Told {
    fn before(&mut self, dataset: &str) -> Result<(), Error> {
        match self.busy.contains(dataset) {
            true => Err(Error::Busy { name: dataset.to_owned() }),
            false => Ok(()),
        }
    }
    fn after(&mut self, _: &str) {}
    fn progress(&mut self, _: &str, _: u64) {}
    fn not_followed(&mut self, error: Error) {
        self.not_followed.push(error.to_string());
    }
}

fn create(host: &Host, names: &[&str]) {
    for name in names {
        host.pool.datasets().create_dataset(name, BTreeMap::new(), None).expect("made");
    }
}

fn names_of(host: &Host, top: &str) -> Vec<String> {
    let below = format!("{top}/");
    host.pool.datasets().names().into_iter().filter(|name| name == top || name.starts_with(&below)).collect()
}

/// A snapshot of all at and below a file system.
fn snapshot_all(host: &Host, top: &str, snapshot: &str) {
    let names: Vec<String> = names_of(host, top).iter().map(|name| format!("{name}@{snapshot}")).collect();
    host.pool.datasets().take_snapshots(&names, &BTreeMap::new()).expect("taken");
}

/// Stream of `send -R`: upon a base, or all.
fn replica(host: &Host, top: &str, (base, last): (Option<&str>, &str), left_out: &[&str]) -> Vec<u8> {
    let mut specs = Vec::new();
    for name in names_of(host, top) {
        let is_out = |above: &&str| name == **above || name.starts_with(&format!("{above}/"));
        let there = host.pool.datasets().snapshot_names(&name).expect("listed");
        if left_out.iter().any(is_out) || !there.iter().any(|known| known == last) {
            continue;
        }
        let base = base.filter(|base| there.iter().any(|known| known == base));
        let base = base.map(|base| format!("{name}@{base}"));
        specs.push(SendSpec { snapshot: format!("{name}@{last}"), base, ..SendSpec::default() });
    }
    let mut out = Vec::new();
    let left_out: Vec<String> = left_out.iter().map(|name| (*name).to_owned()).collect();
    match base {
        None => host.pool.streams().send(&specs, &mut out, &mut |_, _| ()),
        Some(_) => host.pool.streams().send_tree((top, &left_out), &specs, &mut out, &mut |_, _| ()),
    }
    .expect("sent");
    out
}

fn spec(target: &str, force: bool) -> ReceiveSpec {
    ReceiveSpec { target: target.into(), force, ..ReceiveSpec::default() }
}

fn receive(host: &Host, spec: &ReceiveSpec, mut stream: &[u8]) -> (Result<(), Error>, Told) {
    let mut told = Told::default();
    let received = host.pool.streams().receive(spec, &mut stream, &mut told).map(drop);
    (received, told)
}

/// Received without anything that was not followed.
fn received(host: &Host, spec: &ReceiveSpec, stream: &[u8]) {
    let (done, told) = receive(host, spec, stream);
    done.expect("received");
    assert_eq!(told.not_followed, Vec::<String>::new());
}

/// Names and snapshots of both trees are the same, and what is in them.
fn all_same(one: &Host, two: &Host) {
    let shape = |host: &Host, top: &str| -> BTreeMap<String, Vec<String>> {
        let names = names_of(host, top).into_iter();
        names
            .map(|name| (name[top.len()..].to_owned(), host.pool.datasets().snapshot_names(&name).unwrap()))
            .collect()
    };
    assert_eq!(shape(one, "one/top"), shape(two, "second/copy"));
    for (tail, snapshots) in shape(one, "one/top") {
        same((&one.pool, &format!("one/top{tail}")), (&two.pool, &format!("second/copy{tail}")), &tail);
        for snapshot in snapshots {
            let (from, to) = (format!("one/top{tail}@{snapshot}"), format!("second/copy{tail}@{snapshot}"));
            assert!(snapshot_tree(&one.pool, &from) == snapshot_tree(&two.pool, &to), "{from}");
        }
    }
}

/// A tree and its replica, as of a first snapshot.
fn hosts() -> (Host, Host) {
    let (one, two) = (Host::new("one", 256), Host::new("second", 256));
    create(&one, &["one/top", "one/top/a", "one/top/a/in", "one/top/b", "one/top/c"]);
    for (seed, name) in (1..).zip(["one/top", "one/top/a", "one/top/a/in", "one/top/b", "one/top/c"]) {
        furnish(&one.pool, name);
        disturb(&one.pool, name, &mut Dice(seed));
    }
    snapshot_all(&one, "one/top", "1");
    received(&two, &spec("second/copy", false), &replica(&one, "one/top", (None, "1"), &[]));
    all_same(&one, &two);
    (one, two)
}

fn change_all(host: &Host, top: &str, seed: u64) {
    for (seed, name) in (seed..).zip(names_of(host, top)) {
        let (fs, _open) = common::mount(&host.pool, &name);
        let data = common::noise(seed, 30_000);
        let _ = fs.unlink(common::ROOT, b"new");
        common::write_file(&fs, common::ROOT, b"new", &data);
    }
}

#[test]
fn names_are_followed_and_with_force_what_is_no_more() {
    for force in [false, true] {
        let (one, two) = hosts();
        // Datasets beside the target, of which the sender knows nothing.
        received(&two, &spec("second/other", false), &replica(&one, "one/top", (None, "1"), &[]));
        let beside = names_of(&two, "second/other");
        if force {
            create(&two, &["second/copy/mine", "second/copy/mine/too"]);
            two.snapshot("second/copy/mine/too@s");
            two.snapshot("second/copy/b@local");
        }
        for (from, to) in [("a", "x"), ("b", "a"), ("x/in", "in")] {
            one.pool
                .datasets()
                .rename_dataset(&format!("one/top/{from}"), &format!("one/top/{to}"))
                .expect("renamed");
        }
        one.pool.datasets().destroy_with_snapshots("one/top/c").expect("destroyed");
        // One that is new has the name of one that is no more, and another lies below what is new.
        create(&one, &["one/top/c", "one/top/deep"]);
        furnish(&one.pool, "one/top/c");
        one.pool.datasets().rename_dataset("one/top/in", "one/top/deep/in").expect("renamed");
        if !force {
            one.pool.datasets().rename_dataset("one/top/c", "one/top/d").expect("renamed");
        }
        let there = names_of(&one, "one/top").into_iter();
        let first: Vec<String> = there
            .filter(|name| one.pool.datasets().snapshot_names(name).unwrap() == ["1"])
            .map(|name| format!("{name}@1"))
            .collect();
        assert_eq!(first.len(), 4);
        one.pool.datasets().rename_snapshots(&first, "first").expect("renamed");
        change_all(&one, "one/top", 20);
        snapshot_all(&one, "one/top", "2");
        change_all(&one, "one/top", 40);
        snapshot_all(&one, "one/top", "3");
        received(&two, &spec("second/copy", force), &replica(&one, "one/top", (Some("first"), "2"), &[]));
        received(&two, &spec("second/copy", force), &replica(&one, "one/top", (Some("2"), "3"), &[]));
        if !force {
            // It is no more there, and stays.
            assert_eq!(two.pool.datasets().snapshot_names("second/copy/c").expect("there"), ["1"]);
            two.pool.datasets().destroy_with_snapshots("second/copy/c").expect("destroyed");
        }
        all_same(&one, &two);
        assert_eq!(names_of(&two, "second/other"), beside);
        one.check();
        two.check();
        let two = two.crash();
        all_same(&one, &two);
    }
}

#[test]
fn those_that_change_names_with_each_other_do_so_here() {
    let (one, two) = hosts();
    for (from, to) in [("a", "x"), ("b", "a"), ("c", "b"), ("x", "c")] {
        one.pool
            .datasets()
            .rename_dataset(&format!("one/top/{from}"), &format!("one/top/{to}"))
            .expect("renamed");
    }
    snapshot_all(&one, "one/top", "2");
    received(&two, &spec("second/copy", false), &replica(&one, "one/top", (Some("1"), "2"), &[]));
    all_same(&one, &two);
    // Names of snapshots too: each of three has the name of the next one, and the last one is new.
    for name in names_of(&one, "one/top") {
        let rename =
            |from: &str, to: &str| one.pool.datasets().rename_snapshots(&[format!("{name}@{from}")], to);
        rename("2", "3").and_then(|()| rename("1", "2")).expect("renamed");
    }
    snapshot_all(&one, "one/top", "4");
    received(&two, &spec("second/copy", false), &replica(&one, "one/top", (Some("3"), "4"), &[]));
    all_same(&one, &two);
    two.check();
}

#[test]
fn what_is_left_out_or_was_never_sent_stays() {
    let (one, two) = hosts();
    two.pool.datasets().create_dataset("second/copy/c/mine", BTreeMap::new(), None).expect("made");
    two.snapshot("second/copy/c@mine");
    create(&one, &["one/top/late"]);
    create(&two, &["second/copy/late"]);
    let names: Vec<String> =
        ["", "/a", "/a/in", "/b", "/c"].iter().map(|tail| format!("one/top{tail}@2")).collect();
    one.pool.datasets().take_snapshots(&names, &BTreeMap::new()).expect("taken");
    // A dataset without a snapshot there cannot have come with one; the sender leaves it out.
    let stream = replica(&one, "one/top", (Some("1"), "2"), &["one/top/c", "one/top/late"]);
    received(&two, &spec("second/copy", true), &stream);
    let there = names_of(&two, "second/copy");
    let tails: Vec<&str> = there.iter().map(|name| &name["second/copy".len()..]).collect();
    assert_eq!(tails, ["", "/a", "/a/in", "/b", "/c", "/c/mine", "/late"]);
    assert_eq!(two.pool.datasets().snapshot_names("second/copy/c").unwrap(), ["1", "mine"]);
}

#[test]
fn what_something_keeps_stays_and_is_told() {
    let (one, two) = hosts();
    one.pool.datasets().destroy_with_snapshots("one/top/c").expect("destroyed");
    for name in ["second/copy/b@held", "second/copy/b@free", "second/copy/a@cloned"] {
        two.snapshot(name);
    }
    // They are older than what comes upon them: the base is the youngest there.
    snapshot_all(&one, "one/top", "2");
    let stream = replica(&one, "one/top", (Some("1"), "2"), &[]);
    let (done, told) = receive(&two, &spec("second/copy", false), &stream);
    assert!(matches!(done, Err(Error::BaseNotYoungest { .. })), "{done:?}");
    assert_eq!(told.not_followed, Vec::<String>::new());
    for name in ["second/copy/b@held", "second/copy/b@free", "second/copy/a@cloned"] {
        two.pool.datasets().destroy_snapshots(&[name.to_owned()], false).expect("destroyed");
    }
    let kept = ["second/copy/c@1".to_owned()];
    two.pool.datasets().hold(&kept, "mine").expect("held");
    two.pool.datasets().clone_snapshot("second/copy/a@1", "second/twin", BTreeMap::new()).expect("cloned");
    one.pool
        .datasets()
        .destroy_snapshots(&["one/top/b@1".into(), "one/top/a@1".into()], false)
        .expect("destroyed");
    snapshot_all(&one, "one/top", "3");
    // The sender has no base of these any more, and sends them whole; here they are what they were.
    let names: Vec<SendSpec> = ["one/top@3", "one/top/a/in@3"]
        .iter()
        .map(|name| {
            let base = Some(name.replace("@3", "@1"));
            SendSpec { snapshot: (*name).to_owned(), base, ..SendSpec::default() }
        })
        .collect();
    let mut stream = Vec::new();
    let left_out = Vec::new();
    one.pool.streams().send_tree(("one/top", &left_out), &names, &mut stream, &mut |_, _| ()).expect("sent");
    let (done, told) = receive(&two, &spec("second/copy", true), &stream);
    done.expect("received");
    assert!(told.not_followed.len() >= 2, "{:?}", told.not_followed);
    assert!(told.not_followed.iter().any(|what| what.contains("second/copy/c")), "{:?}", told.not_followed);
    assert_eq!(two.pool.datasets().snapshot_names("second/copy/c").unwrap(), ["1"]);
    two.pool.datasets().release(&kept, "mine").expect("released");
    two.check();
}

#[test]
fn nothing_is_destroyed_before_all_of_the_stream_was_received() {
    let (one, two) = hosts();
    one.pool.datasets().destroy_with_snapshots("one/top/c").expect("destroyed");
    one.pool.datasets().rename_dataset("one/top/b", "one/top/z").expect("renamed");
    change_all(&one, "one/top", 3);
    snapshot_all(&one, "one/top", "2");
    let stream = replica(&one, "one/top", (Some("1"), "2"), &[]);
    for cut in [stream.len() - 1, stream.len() - 39, stream.len() / 2, stream.len() / 4] {
        let (done, _) = receive(&two, &spec("second/copy", true), &stream[..cut]);
        done.expect_err("cut");
        assert_eq!(two.pool.datasets().snapshot_names("second/copy/c").expect("it stays"), ["1"]);
        // Received snapshots stay, and are passed over.
    }
    let (done, told) = receive(&two, &spec("second/copy", true), &stream);
    done.or_else(|error| match error {
        // All of the first one's came.
        Error::SnapshotExists { .. } => Ok(()),
        other => Err(other),
    })
    .expect("received");
    assert_eq!(told.not_followed, Vec::<String>::new());
    two.check();
}

#[test]
fn what_is_in_use_keeps_its_name_and_the_stream_is_refused() {
    let (one, two) = hosts();
    one.pool.datasets().rename_dataset("one/top/b", "one/top/z").expect("renamed");
    snapshot_all(&one, "one/top", "2");
    let stream = replica(&one, "one/top", (Some("1"), "2"), &[]);
    let mut told = Told { busy: BTreeSet::from(["second/copy/b".to_owned()]), ..Told::default() };
    let error =
        two.pool.streams().receive(&spec("second/copy", false), &mut &stream[..], &mut told).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    assert!(names_of(&two, "second/copy").contains(&"second/copy/b".to_owned()));
    received(&two, &spec("second/copy", false), &stream);
    all_same(&one, &two);
}

#[test]
fn a_tree_that_no_sender_writes_is_refused_and_changes_nothing() {
    let (one, two) = hosts();
    one.pool.datasets().rename_dataset("one/top/b", "one/top/z").expect("renamed");
    snapshot_all(&one, "one/top", "2");
    let good = frames(&replica(&one, "one/top", (Some("1"), "2"), &[]));
    let header = StreamHeader { members: true, ..StreamHeader::default() };
    assert_eq!(good[0].0, FrameKind::Member);
    let member =
        |name: &str| StreamMember { left_out: false, name: name.into(), snapshots: vec![(7, "s".into())] };
    let with = |at: usize, frame: (FrameKind, Vec<u8>)| {
        let mut frames = good.clone();
        frames.insert(at, frame);
        frames
    };
    let foreign = |name: &str| (FrameKind::Member, member(name).encode());
    let before = names_of(&two, "second");
    let mut cases = vec![
        ("one beside the top", header, with(1, foreign("one/other"))),
        ("one above the top", header, with(1, foreign("one"))),
        ("the top twice", header, with(1, foreign("one/top"))),
        ("a name that is none", header, with(1, foreign("one/top//x"))),
        ("another top", header, with(0, foreign("one/tip"))),
        ("a header that says nothing of it", StreamHeader::default(), good.clone()),
    ];
    let begin = good.iter().position(|(kind, _)| *kind == FrameKind::End).expect("a snapshot") + 1;
    cases.push(("one behind a snapshot", header, with(begin, foreign("one/top/q"))));
    for (what, header, frames) in cases {
        let (done, _) = receive(&two, &spec("second/copy", true), &joined_behind(header, &frames));
        let error = done.expect_err(what);
        assert!(matches!(error, Error::StreamDamaged { .. } | Error::NoStream { .. }), "{what}: {error}");
        if what != "one behind a snapshot" {
            assert_eq!(names_of(&two, "second"), before, "{what}");
        }
    }
}
