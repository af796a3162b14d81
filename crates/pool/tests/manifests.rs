//! An encrypted dataset is sent raw without its key, by its manifest: the same stream as with the
//! key.

use std::collections::BTreeMap;

use crate::common::{self, Dice, ROOT, mount, noise, write_file};
use crate::hosts::{Host, disturb, frames, furnish, joined_behind, same, snapshot_tree};
use steadfast_format::raw::RawKept;
use steadfast_format::stream::{FrameKind, StreamHeader};
use steadfast_pool::{Error, SendSpec};

const KEY: [u8; 32] = [1; 32];

/// A pool with an encrypted file system `one/vault`.
fn laptop(mib: u64) -> Host {
    let one = Host::new("one", mib);
    let key = common::key(&one.env, &KEY);
    one.pool.datasets().create_dataset("one/vault", BTreeMap::new(), Some(key)).expect("made");
    one
}

fn spec(snapshot: &str, base: Option<&str>) -> SendSpec {
    SendSpec { snapshot: snapshot.into(), base: base.map(str::to_owned), raw: true, ..SendSpec::default() }
}

/// The same stream with the key and without it.
fn both_ways(host: &Host, snapshot: &str, base: Option<&str>) -> Vec<u8> {
    let of = snapshot.split('@').next().expect("a name");
    let root = &host.pool.datasets().dataset_info(of).expect("there").encryption_root.expect("encrypted");
    let with_key = host.send_as(spec(snapshot, base));
    host.pool.datasets().unload_key(root).expect("unloaded");
    let told = host.pool.streams().send_estimate(&spec(snapshot, base)).expect("weighed");
    let without = host.send_as(spec(snapshot, base));
    host.pool.datasets().load_key(root, &KEY, false).expect("loaded");
    assert!(with_key == without, "{snapshot} since {base:?}: {} and {}", with_key.len(), without.len());
    if base.is_some() {
        let (told, sent) = (told as f64, without.len() as f64);
        assert!((told / sent - 1.0).abs() < 0.1, "{snapshot} since {base:?}: told {told}, sent {sent}");
    }
    without
}

#[test]
fn streams_are_the_same_with_the_key_and_without_it() {
    let (one, store) = (laptop(256), Host::new("store", 256));
    furnish(&one.pool, "one/vault");
    one.snapshot("one/vault@0");
    store.receive("store/copy", &both_ways(&one, "one/vault@0", None)).expect("received");
    let mut dice = Dice(5);
    for round in 1..9_u64 {
        disturb(&one.pool, "one/vault", &mut dice);
        if round % 3 == 0 {
            // Blocks of a snapshot between two that are sent are let go.
            one.snapshot("one/vault@between");
            disturb(&one.pool, "one/vault", &mut dice);
        }
        let (name, base) = (format!("one/vault@{round}"), format!("one/vault@{}", round - 1));
        one.snapshot(&name);
        let stream = both_ways(&one, &name, Some(&base));
        store.receive("store/copy", &stream).expect("received");
        both_ways(&one, &name, None);
        both_ways(&one, &name, Some("one/vault@0"));
        if round % 3 == 0 {
            one.pool.datasets().destroy_snapshots(&["one/vault@between".into()], false).expect("destroyed");
            both_ways(&one, &name, Some(&base));
        }
        one.check_with(Some(&KEY));
    }
    // Nothing is lost by going back, and what is written then is told from what was.
    one.pool
        .datasets()
        .destroy_snapshots(&["one/vault@8".into(), "one/vault@7".into()], false)
        .expect("destroyed");
    one.pool.datasets().rollback("one/vault@6").expect("rolled back");
    disturb(&one.pool, "one/vault", &mut dice);
    one.snapshot("one/vault@9");
    let stream = both_ways(&one, "one/vault@9", Some("one/vault@6"));
    store
        .pool
        .datasets()
        .destroy_snapshots(&["store/copy@8".into(), "store/copy@7".into()], false)
        .expect("destroyed");
    store.pool.datasets().rollback("store/copy@6").expect("rolled back");
    store.receive("store/copy", &stream).expect("received");
    // A pool that was exported, or crashed, knows it as well.
    let one = one.crash();
    one.pool.datasets().load_key("one/vault", &KEY, false).expect("loaded");
    both_ways(&one, "one/vault@9", None);
    store.pool.datasets().load_key("store/copy", &KEY, false).expect("loaded");
    same((&one.pool, "one/vault"), (&store.pool, "store/copy"), "at the end");
    one.check_with(Some(&KEY));
    store.check();
}

#[test]
fn clones_are_sent_by_their_line_whatever_is_promoted() {
    let (one, store) = (laptop(256), Host::new("store", 256));
    let mut dice = Dice(11);
    furnish(&one.pool, "one/vault");
    one.snapshot("one/vault@a");
    disturb(&one.pool, "one/vault", &mut dice);
    one.snapshot("one/vault@b");
    one.pool.datasets().clone_snapshot("one/vault@a", "one/branch", BTreeMap::new()).expect("cloned");
    one.pool.datasets().clone_snapshot("one/vault@b", "one/twig", BTreeMap::new()).expect("cloned");
    for fs in ["one/vault", "one/branch", "one/twig"] {
        disturb(&one.pool, fs, &mut dice);
        one.snapshot(&format!("{fs}@x"));
        disturb(&one.pool, fs, &mut dice);
        one.snapshot(&format!("{fs}@y"));
    }
    one.pool.datasets().clone_snapshot("one/twig@x", "one/leaf", BTreeMap::new()).expect("cloned");
    disturb(&one.pool, "one/leaf", &mut dice);
    one.snapshot("one/leaf@z");
    let all = |one: &Host, vault: &str, branch: &str, twig: &str| {
        for (snapshot, base) in [
            ("one/vault@x", Some(format!("{vault}@b"))),
            ("one/vault@y", Some("one/vault@x".into())),
            ("one/branch@x", Some(format!("{branch}@a"))),
            ("one/branch@y", Some("one/branch@x".into())),
            ("one/twig@y", Some(format!("{twig}@b"))),
            ("one/leaf@z", Some("one/twig@x".into())),
            ("one/leaf@z", Some(format!("{twig}@b"))),
            ("one/vault@y", None),
            ("one/branch@y", None),
            ("one/twig@y", None),
            ("one/leaf@z", None),
        ] {
            both_ways(one, snapshot, base.as_deref());
        }
        one.check_with(Some(&KEY));
    };
    all(&one, "one/vault", "one/vault", "one/vault");
    one.pool.datasets().promote("one/branch").expect("promoted");
    all(&one, "one/vault", "one/branch", "one/vault");
    one.pool.datasets().promote("one/twig").expect("promoted");
    let stream = one.send_as(spec("one/leaf@z", None));
    store.receive("store/leaf", &stream).expect("received");
    store.pool.datasets().load_key("store/leaf", &KEY, false).expect("loaded");
    assert!(snapshot_tree(&store.pool, "store/leaf@z") == snapshot_tree(&one.pool, "one/leaf@z"));
    one.check_with(Some(&KEY));
}

/// Of a bookmark nothing is left: the stream says what is kept.
#[test]
fn bookmarks_are_bases_of_raw_increments() {
    let (one, store) = (laptop(256), Host::new("store", 256));
    let third = Host::new("third", 256);
    let mut dice = Dice(21);
    furnish(&one.pool, "one/vault");
    one.snapshot("one/vault@0");
    store.receive("store/copy", &one.send_as(spec("one/vault@0", None))).expect("received");
    third.receive("third/copy", &store.send_as(spec("store/copy@0", None))).expect("received");
    for round in 1..6_u64 {
        let before = format!("one/vault@{}", round - 1);
        let mark = format!("m{}", round - 1);
        one.pool.datasets().add_bookmark(&before, &mark).expect("marked");
        one.pool.datasets().destroy_snapshots(&[before], false).expect("destroyed");
        disturb(&one.pool, "one/vault", &mut dice);
        let name = format!("one/vault@{round}");
        one.snapshot(&name);
        let base = format!("one/vault#{mark}");
        let stream = both_ways(&one, &name, Some(&base));
        let whole = one.send_as(spec(&name, None));
        assert!(stream.len() < whole.len(), "{} of {}", stream.len(), whole.len());
        store.receive("store/copy", &stream).expect("received");
        // And on from there, where there never was a key.
        let before = format!("store/copy@{}", round - 1);
        store.pool.datasets().add_bookmark(&before, &mark).expect("marked");
        store.pool.datasets().destroy_snapshots(&[before], false).expect("destroyed");
        let onward = store.send_as(spec(&format!("store/copy@{round}"), Some(&format!("store/copy#{mark}"))));
        third.receive("third/copy", &onward).expect("received");
        // Nothing is kept that a whole stream would not bring.
        store.receive("store/fresh", &whole).expect("received");
        let held = |host: &Host, name: &str| {
            let stream = host.send_as(spec(&format!("{name}@{round}"), None));
            let blocks = frames(&stream).into_iter().filter(|(kind, _)| *kind == FrameKind::RawBlocks);
            blocks.flat_map(|(_, payload)| payload).collect::<Vec<u8>>()
        };
        let fresh = held(&store, "store/fresh");
        assert!(held(&store, "store/copy") == fresh, "round {round}");
        assert!(held(&third, "third/copy") == fresh, "round {round}");
        store.pool.datasets().destroy_with_snapshots("store/fresh").expect("destroyed");
    }
    one.check_with(Some(&KEY));
    for (host, name) in [(&store, "store/copy"), (&third, "third/copy")] {
        host.inspect();
        host.pool.datasets().load_key(name, &KEY, false).expect("loaded");
        same((&one.pool, "one/vault"), (&host.pool, name), name);
    }
}

/// Streams that say of what is kept what no sender says change nothing.
#[test]
fn hostile_words_of_what_is_kept_are_refused() {
    let (one, store) = (laptop(128), Host::new("store", 128));
    furnish(&one.pool, "one/vault");
    one.snapshot("one/vault@a");
    one.pool.datasets().add_bookmark("one/vault@a", "m").expect("marked");
    disturb(&one.pool, "one/vault", &mut Dice(4));
    one.snapshot("one/vault@b");
    store.receive("store/copy", &one.send_as(spec("one/vault@a", None))).expect("received");
    let stream = one.send_as(spec("one/vault@b", Some("one/vault#m")));
    let good = frames(&stream);
    let header = StreamHeader { kept: true, ..StreamHeader::default() };
    let at = good.iter().position(|frame| frame.0 == FrameKind::RawKept).expect("there");
    let size = RawKept::SIZE;
    type Frames = Vec<(FrameKind, Vec<u8>)>;
    type Edit<'a> = (&'a str, &'a dyn Fn(&mut Frames));
    let edits: [Edit<'_>; 5] = [
        ("cut", &|frames| _ = frames[at].1.pop()),
        ("of no block", &|frames| frames[at].1[16..24].fill(0)),
        ("twice", &|frames| {
            let again = frames[at].1[..size].to_vec();
            frames[at].1.splice(0..0, again);
        }),
        ("behind blocks", &|frames| {
            let kept = frames.remove(at);
            let blocks = frames.iter().position(|frame| frame.0 == FrameKind::RawBlocks).expect("there");
            frames.insert(blocks + 1, kept);
        }),
        ("beyond all counters", &|frames| frames[at].1[24..32].fill(0xff)),
    ];
    for (what, edit) in edits {
        let mut bad = good.clone();
        edit(&mut bad);
        let error = store.receive("store/copy", &joined_behind(header, &bad)).expect_err(what);
        assert!(matches!(error, Error::StreamDamaged { .. }), "{what}: {error}");
        assert_eq!(store.pool.datasets().snapshot_names("store/copy").expect("listed"), ["a"], "{what}");
    }
    let error = store.receive("store/copy", &joined_behind(StreamHeader::default(), &good)).unwrap_err();
    assert!(matches!(error, Error::StreamDamaged { .. }), "a header that does not say so: {error}");
    // Nothing of it kept: it arrives, and what is not there is told with the key.
    let mut bad = good;
    bad[at].1.clear();
    store.receive("store/copy", &joined_behind(header, &bad)).expect("received");
    store.check();
}

/// Content that several records refer to: what is sent without the key is enough, whoever let go
/// what.
#[test]
fn shared_blocks_are_never_missing() {
    let (one, store) = (laptop(256), Host::new("store", 256));
    let mut dice = Dice(31);
    one.pool.datasets().set_property("one/vault", "dedup", Some("on")).expect("set");
    {
        let (fs, _handle) = mount(&one.pool, "one/vault");
        (0..8_u64)
            .for_each(|at| _ = write_file(&fs, ROOT, format!("f{at}").as_bytes(), &noise(at % 3, 300_000)));
    }
    one.snapshot("one/vault@0");
    one.pool.datasets().unload_key("one/vault").expect("unloaded");
    store.receive("store/copy", &one.send_as(spec("one/vault@0", None))).expect("received");
    for round in 1..12_u64 {
        one.pool.datasets().load_key("one/vault", &KEY, false).expect("loaded");
        {
            let (fs, _handle) = mount(&one.pool, "one/vault");
            for _ in 0..4 {
                let name = format!("f{}", dice.below(8));
                let _ = fs.unlink(ROOT, name.as_bytes());
                if dice.below(4) > 0 {
                    // Old content comes back, too.
                    _ = write_file(&fs, ROOT, name.as_bytes(), &noise(dice.below(round + 3), 300_000));
                }
            }
        }
        let (name, base) = (format!("one/vault@{round}"), format!("one/vault@{}", round - 1));
        one.snapshot(&name);
        // With the key, for the sake of what is asserted there.
        one.send_as(spec(&name, Some(&base)));
        one.pool.datasets().unload_key("one/vault").expect("unloaded");
        store.receive("store/copy", &one.send_as(spec(&name, Some(&base)))).expect("received");
        if round > 2 && dice.below(2) == 0 {
            let old = format!("one/vault@{}", round - 2);
            let _ = one.pool.datasets().destroy_snapshots(&[old], false);
        }
    }
    one.pool.datasets().load_key("one/vault", &KEY, false).expect("loaded");
    one.check_with(Some(&KEY));
    store.pool.datasets().load_key("store/copy", &KEY, false).expect("loaded");
    same((&one.pool, "one/vault"), (&store.pool, "store/copy"), "at the end");
    for name in store.pool.datasets().snapshot_names("store/copy").expect("listed") {
        if one.pool.datasets().snapshot_names("one/vault").expect("listed").contains(&name) {
            let (was, is) = (format!("one/vault@{name}"), format!("store/copy@{name}"));
            assert!(snapshot_tree(&one.pool, &was) == snapshot_tree(&store.pool, &is), "{name}");
        }
    }
    store.check();
}
