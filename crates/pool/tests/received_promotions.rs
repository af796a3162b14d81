//! Clones promoted in a stream's source are promoted in its target.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{self, Dice, handles, import, noise, write_file};
use crate::hosts::{Cuts, Host, WRITES_AND_FLUSHES, same, snapshot_tree};
use steadfast_env::Env;
use steadfast_pool::{Error, ReceiveSpec, ReceiveWatch, SendSpec};

/// Notes what was not followed.
#[derive(Default)]
struct Told(Vec<String>);

impl ReceiveWatch for Told {
    fn before(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn after(&mut self, _: &str) {}
    fn progress(&mut self, _: &str, _: u64) {}
    fn not_followed(&mut self, error: Error) {
        self.0.push(error.to_string());
    }
}

fn names_of(host: &Host, top: &str) -> Vec<String> {
    let below = format!("{top}/");
    host.pool.datasets().names().into_iter().filter(|name| name == top || name.starts_with(&below)).collect()
}

fn origin(host: &Host, name: &str) -> Option<String> {
    host.pool.datasets().dataset_info(name).expect("there").origin
}

fn has(host: &Host, full: &str) -> bool {
    let (name, snapshot) = full.split_once('@').expect("a snapshot");
    host.pool.datasets().snapshot_names(name).expect("listed").iter().any(|known| known == snapshot)
}

fn snapshot_all(host: &Host, snapshot: &str) {
    let names = names_of(host, "one/top");
    let names: Vec<String> = names.iter().map(|name| format!("{name}@{snapshot}")).collect();
    host.pool.datasets().take_snapshots(&names, &BTreeMap::new()).expect("taken");
}

/// A clone of a snapshot of another one, both below the top.
fn clone(host: &Host, of: &str, name: &str) {
    let (of, name) = (format!("one/top/{of}"), format!("one/top/{name}"));
    host.pool.datasets().clone_snapshot(&of, &name, BTreeMap::new()).expect("cloned");
}

fn promote(host: &Host, name: &str) {
    host.pool.datasets().promote(&format!("one/top/{name}")).expect("promoted");
}

fn rename(host: &Host, from: &str, to: &str) {
    host.pool
        .datasets()
        .rename_dataset(&format!("one/top/{from}"), &format!("one/top/{to}"))
        .expect("renamed");
}

fn write(host: &Host, name: &str, seed: u64) {
    let (fs, _open) = common::mount(&host.pool, name);
    let file = format!("file {seed}");
    let _ = fs.unlink(common::ROOT, file.as_bytes());
    write_file(&fs, common::ROOT, file.as_bytes(), &noise(seed, 20_000));
}

fn write_all(host: &Host, seed: u64) {
    for (seed, name) in (seed..).zip(names_of(host, "one/top")) {
        write(host, &name, seed);
    }
}

/// Stream of `send -R -I` from the top: each dataset behind its origin.
fn replica(host: &Host, base: Option<&str>, last: &str) -> Vec<u8> {
    let mut left = names_of(host, "one/top");
    let mut specs: Vec<SendSpec> = Vec::new();
    while !left.is_empty() {
        let of = |name: &String| Some(origin(host, name)?.split_once('@')?.0.to_owned());
        let waits = |name: &String| of(name).is_some_and(|of| left.contains(&of));
        let at = left.iter().position(|name| !waits(name)).expect("one can go");
        let name = left.remove(at);
        let all = host.pool.datasets().snapshot_names(&name).expect("listed");
        let Some(to) = all.iter().position(|known| known == last) else { continue };
        let from = base.and_then(|base| all.iter().position(|known| known == base));
        let full = |at: usize| format!("{name}@{}", all[at]);
        let spec = |at, base| SendSpec { snapshot: full(at), base, properties: true, ..SendSpec::default() };
        if from.is_none() {
            specs.push(spec(0, origin(host, &name)));
        }
        specs.extend((from.unwrap_or(0) + 1..=to).map(|at| spec(at, Some(full(at - 1)))));
    }
    let mut out = Vec::new();
    match base {
        None => host.pool.streams().send(&specs, &mut out, &mut |_, _| ()),
        Some(_) => host.pool.streams().send_tree(("one/top", &[]), &specs, &mut out, &mut |_, _| ()),
    }
    .expect("sent");
    out
}

fn spec(force: bool) -> ReceiveSpec {
    ReceiveSpec { target: "second/copy".into(), force, ..ReceiveSpec::default() }
}

/// Receives a stream; the steps that could not be followed.
fn receive(host: &Host, force: bool, mut stream: &[u8]) -> Vec<String> {
    let mut told = Told::default();
    host.pool.streams().receive(&spec(force), &mut stream, &mut told).expect("received");
    told.0
}

/// Snapshots and origins of all at and below a top, by what follows its name.
fn shape(host: &Host, top: &str) -> BTreeMap<String, (Vec<String>, Option<String>)> {
    let below = |name: &str| name[top.len()..].to_owned();
    let one = |name: String| {
        let origin = origin(host, &name).map(|origin| below(&origin));
        (below(&name), (host.pool.datasets().snapshot_names(&name).expect("listed"), origin))
    };
    names_of(host, top).into_iter().map(one).collect()
}

fn all_same(one: &Host, two: &Host, when: &str) {
    assert_eq!(shape(one, "one/top"), shape(two, "second/copy"), "{when}");
    for (tail, (snapshots, _)) in shape(one, "one/top") {
        same((&one.pool, &format!("one/top{tail}")), (&two.pool, &format!("second/copy{tail}")), when);
        for snapshot in snapshots {
            let (from, to) = (format!("one/top{tail}@{snapshot}"), format!("second/copy{tail}@{snapshot}"));
            assert!(snapshot_tree(&one.pool, &from) == snapshot_tree(&two.pool, &to), "{when}: {from}");
        }
    }
}

/// A file system with two snapshots, a clone of each, and a clone of one of these; and all of that
/// once more, received.
fn hosts() -> (Host, Host) {
    let (one, two) = (Host::new("one", 256), Host::new("second", 256));
    for name in ["one/top", "one/top/a"] {
        one.pool.datasets().create_dataset(name, BTreeMap::new(), None).expect("made");
    }
    for at in [0, 1] {
        write_all(&one, 10 * at);
        snapshot_all(&one, &at.to_string());
    }
    clone(&one, "a@0", "b");
    clone(&one, "a@1", "c");
    write_all(&one, 20);
    snapshot_all(&one, "2");
    clone(&one, "b@2", "d");
    write_all(&one, 30);
    snapshot_all(&one, "3");
    assert_eq!(receive(&two, false, &replica(&one, None, "3")), Vec::<String>::new());
    all_same(&one, &two, "at first");
    (one, two)
}

#[test]
fn promotions_are_followed_with_names_and_without_force() {
    type Change = fn(&Host);
    let changes: [(&str, Change); 6] = [
        ("the older clone", |one| promote(one, "b")),
        ("the younger clone", |one| promote(one, "c")),
        ("both", |one| ["b", "c"].into_iter().for_each(|name| promote(one, name))),
        ("both, the other way round", |one| ["c", "b"].into_iter().for_each(|name| promote(one, name))),
        ("a clone of a clone, all the way", |one| ["d", "d"].into_iter().for_each(|name| promote(one, name))),
        ("one takes the other's name", |one| {
            promote(one, "c");
            rename(one, "a", "old");
            rename(one, "c", "a");
        }),
    ];
    for (what, change) in changes {
        let (one, two) = hosts();
        change(&one);
        write_all(&one, 40);
        snapshot_all(&one, "4");
        assert_eq!(receive(&two, false, &replica(&one, Some("3"), "4")), Vec::<String>::new(), "{what}");
        all_same(&one, &two, what);
        write_all(&one, 50);
        snapshot_all(&one, "5");
        assert_eq!(receive(&two, false, &replica(&one, Some("4"), "5")), Vec::<String>::new(), "{what}");
        all_same(&one, &two, what);
        one.check();
        two.check();
        let two = two.crash();
        all_same(&one, &two, what);
    }
}

#[test]
fn names_of_snapshots_that_change_hands_are_followed_first() {
    let (one, two) = hosts();
    // Both have a snapshot of that name by now, and there it was not so when the clone was
    // promoted.
    one.pool.datasets().rename_snapshots(&["one/top/a@1".into()], "one").expect("renamed");
    one.pool.datasets().rename_snapshots(&["one/top/c@2".into()], "1").expect("renamed");
    promote(&one, "c");
    one.pool.datasets().rename_snapshots(&["one/top/c@0".into()], "2").expect("renamed");
    snapshot_all(&one, "4");
    assert_eq!(receive(&two, false, &replica(&one, Some("3"), "4")), Vec::<String>::new());
    all_same(&one, &two, "renamed and promoted");
    two.check();
}

#[test]
fn with_force_what_was_promoted_and_left_its_origin_behind_does_so_here() {
    for all_gone in [false, true] {
        let (one, two) = hosts();
        promote(&one, "c");
        promote(&one, "b");
        one.pool.datasets().destroy_with_snapshots("one/top/a").expect("destroyed");
        if all_gone {
            // Nothing is left that tells of it, but that the clones are there.
            one.pool.datasets().destroy_with_snapshots("one/top/d").expect("destroyed");
            one.pool.datasets().destroy_snapshots(&["one/top/c@1".into()], false).expect("destroyed");
            one.pool.datasets().destroy_with_snapshots("one/top/c").expect("destroyed");
            one.pool.datasets().destroy_snapshots(&["one/top/b@0".into()], false).expect("destroyed");
        }
        // Another one has its name.
        one.pool.datasets().create_dataset("one/top/a", BTreeMap::new(), None).expect("made");
        write_all(&one, 40);
        snapshot_all(&one, "4");
        assert_eq!(receive(&two, true, &replica(&one, Some("3"), "4")), Vec::<String>::new());
        all_same(&one, &two, &format!("all gone: {all_gone}"));
        two.check();
    }
}

#[test]
fn what_cannot_be_promoted_stays_a_clone_and_is_told() {
    let (one, two) = hosts();
    promote(&one, "c");
    one.pool.datasets().rename_snapshots(&["one/top/c@1".into()], "local").expect("renamed");
    write_all(&one, 40);
    snapshot_all(&one, "4");
    let stream = replica(&one, Some("3"), "4");
    // Here the clone has one of that name, of which the sender knows nothing.
    let before = shape(&two, "second/copy");
    two.snapshot("second/copy/c@local");
    let mut told = Told::default();
    let done = two.pool.streams().receive(&spec(false), &mut &stream[..], &mut told);
    // It is younger than the base, too.
    assert!(matches!(done, Err(Error::BaseNotYoungest { .. })), "{done:?}");
    assert!(told.0.iter().any(|what| what.contains("second/copy/c@local")), "{:?}", told.0);
    assert_eq!(origin(&two, "second/copy/c").as_deref(), Some("second/copy/a@local"));
    assert_eq!(before.len(), shape(&two, "second/copy").len());
    two.check();
    assert_eq!(receive(&two, true, &stream), Vec::<String>::new());
    all_same(&one, &two, "with force");
    two.check();
}

#[test]
fn what_lies_elsewhere_or_is_left_out_is_not_promoted() {
    let (one, two) = hosts();
    // Not in the tree: who is received into the tree has no say in it.
    two.pool.datasets().rename_dataset("second/copy/a", "second/a").expect("moved");
    promote(&one, "c");
    snapshot_all(&one, "4");
    let send = |base: &str, last: &str| {
        let spec = |name: &&str| SendSpec {
            snapshot: format!("{name}@{last}"),
            base: Some(format!("{name}@{base}")),
            ..SendSpec::default()
        };
        let specs: Vec<SendSpec> =
            ["one/top", "one/top/b", "one/top/c", "one/top/d"].iter().map(spec).collect();
        let (mut out, left_out) = (Vec::new(), ["one/top/a".to_owned()]);
        one.pool.streams().send_tree(("one/top", &left_out), &specs, &mut out, &mut |_, _| ()).expect("sent");
        out
    };
    assert_eq!(receive(&two, true, &send("3", "4")), Vec::<String>::new());
    assert_eq!(origin(&two, "second/copy/c").as_deref(), Some("second/a@1"));
    two.pool.datasets().rename_dataset("second/a", "second/copy/a").expect("moved");
    snapshot_all(&one, "5");
    assert_eq!(receive(&two, true, &send("4", "5")), Vec::<String>::new());
    assert_eq!(origin(&two, "second/copy/c").as_deref(), Some("second/copy/a@1"));
    two.check();
}

#[test]
fn whatever_becomes_of_clones_between_two_replications_arrives() {
    for seed in 0..12 {
        let (one, two) = hosts();
        let mut dice = Dice(seed * 77 + 5);
        for (number, round) in (3_u64..).zip(0..5_u64) {
            for step in 0..4_u64 {
                let names: Vec<String> = names_of(&one, "one/top")
                    .into_iter()
                    .filter_map(|name| Some(name.strip_prefix("one/top/")?.to_owned()))
                    .collect();
                let name = &names[dice.below(names.len() as u64) as usize];
                let new = format!("n{round}{step}");
                let base = format!("{name}@{number}");
                // A step that is impossible is left out.
                match dice.below(5) {
                    0 if names.len() < 7 && has(&one, &format!("one/top/{base}")) => clone(&one, &base, &new),
                    0 | 1 => _ = one.pool.datasets().promote(&format!("one/top/{name}")),
                    2 => rename(&one, name, &new),
                    3 if names.len() > 2 => {
                        _ = one.pool.datasets().destroy_with_snapshots(&format!("one/top/{name}"))
                    }
                    _ => {
                        let full = format!("one/top/{name}");
                        let all = one.pool.datasets().snapshot_names(&full).expect("listed");
                        let older: Vec<&String> =
                            all.iter().filter(|known| **known != number.to_string()).collect();
                        if !older.is_empty() {
                            let which = older[dice.below(older.len() as u64) as usize];
                            let _ =
                                one.pool.datasets().destroy_snapshots(&[format!("{full}@{which}")], false);
                        }
                    }
                }
            }
            write_all(&one, 100 * (round + 1));
            let (base, last) = (number.to_string(), (number + 1).to_string());
            snapshot_all(&one, &last);
            let told = receive(&two, true, &replica(&one, Some(&base), &last));
            assert_eq!(told, Vec::<String>::new(), "seed {seed}, round {round}");
            all_same(&one, &two, &format!("seed {seed}, round {round}"));
        }
        two.check();
    }
}

#[test]
fn a_crash_amid_promotions_leaves_something_that_the_next_increment_goes_on_with() {
    let (one, two) = hosts();
    promote(&one, "c");
    promote(&one, "d");
    rename(&one, "a", "old");
    rename(&one, "c", "a");
    write_all(&one, 40);
    snapshot_all(&one, "4");
    let stream = replica(&one, Some("3"), "4");
    two.pool.sync().expect("committed");
    let image = two.devices[0].image();
    drop(two);
    let cuts =
        Cuts { step: 5, spec: spec(true), ..Cuts::new(&image, &stream, "second/copy", WRITES_AND_FLUSHES) };
    let mut seen = BTreeSet::new();
    cuts.each(&mut Dice(3), |host, when| {
        let found = shape(host, "second/copy");
        let is_all = found == shape(&one, "one/top");
        seen.insert(found.values().map(|(_, origin)| origin.clone()).collect::<Vec<_>>());
        if !is_all {
            // On another copy of it, since what was found is looked at.
            let device = steadfast_device::MemoryDevice::from_image("second", host.devices[0].image());
            let (env, devices) = (Env::seeded(4), vec![std::sync::Arc::new(device)]);
            let pool = import(&env, handles(&devices), None).expect("imported");
            let next = Host { env, devices, pool };
            let mut told = Told::default();
            let done = next.pool.streams().receive(&spec(true), &mut &stream[..], &mut told);
            // All of the first one may have come.
            if matches!(done, Err(Error::SnapshotExists { .. })) {
                return false;
            }
            done.expect("received");
            all_same(&one, &next, when);
        }
        is_all
    });
    assert!(seen.len() > 2, "promotions come one after the other: {seen:?}");
}
