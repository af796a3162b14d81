//! Raw streams: sealed blocks go from pool to pool, and nobody on the way has their key.

use crate::hosts;
use std::collections::BTreeMap;

use crate::common::{self, Dice, ROOT, mount, noise, write_file};
use crate::hosts::{Cuts, Host, WRITES, disturb, furnish, same, tree};
use steadfast_format::KeyFormat;
use steadfast_format::raw::{RawBlock, RawRoots};
use steadfast_format::stream::FrameKind;
use steadfast_pool::{Error, ReceiveSpec, SendSpec};

const KEY: [u8; 32] = [1; 32];

/// A pool with an encrypted file system `one/vault`.
fn laptop() -> Host {
    let one = Host::new("one", 128);
    let key = common::key(&one.env, &KEY);
    one.pool.datasets().create_dataset("one/vault", BTreeMap::new(), Some(key)).expect("made");
    one
}

fn raw(host: &Host, snapshot: &str, base: Option<&str>) -> Vec<u8> {
    raw_from(host, snapshot, base, None)
}

fn raw_from(host: &Host, snapshot: &str, base: Option<&str>, resume: Option<(u64, u64)>) -> Vec<u8> {
    let spec = SendSpec {
        snapshot: snapshot.into(),
        base: base.map(str::to_owned),
        raw: true,
        resume,
        ..SendSpec::default()
    };
    let mut out = Vec::new();
    host.pool.streams().send(&[spec], &mut out, &mut |_, _| ()).expect("sent");
    out
}

#[test]
fn a_store_that_has_no_key_keeps_what_the_key_opens() {
    let (one, store, third) = (laptop(), Host::new("store", 128), Host::new("third", 128));
    furnish(&one.pool, "one/vault");
    one.snapshot("one/vault@0");
    store.receive("store/copy", &raw(&one, "one/vault@0", None)).expect("received");
    store.inspect();
    let info = store.pool.datasets().dataset_info("store/copy").unwrap();
    assert!(info.raw && !info.key_loaded);
    assert_eq!(info.encryption_root.as_deref(), Some("store/copy"));
    assert!(matches!(store.pool.datasets().open_dataset("store/copy"), Err(Error::KeyNotLoaded { .. })));
    let mut dice = Dice(3);
    for round in 1..6_u64 {
        disturb(&one.pool, "one/vault", &mut dice);
        let (name, base) = (format!("one/vault@{round}"), format!("one/vault@{}", round - 1));
        one.snapshot(&name);
        store.receive("store/copy", &raw(&one, &name, Some(&base))).expect("received");
    }
    let store = store.crash();
    store.inspect();
    // On without a key: all at once, and in steps.
    third.receive("third/all", &raw(&store, "store/copy@5", None)).expect("received");
    third.receive("third/steps", &raw(&store, "store/copy@0", None)).expect("received");
    for round in 1..6_u64 {
        let (name, base) = (format!("store/copy@{round}"), format!("store/copy@{}", round - 1));
        third.receive("third/steps", &raw(&store, &name, Some(&base))).expect("received");
    }
    third.inspect();
    assert_eq!(third.pool.datasets().key_format("third/all").unwrap(), KeyFormat::Raw);
    let wrong = third.pool.datasets().load_key("third/all", &[9; 32], false).unwrap_err();
    assert!(matches!(wrong, Error::WrongKey { .. }), "{wrong}");
    for (host, name) in [(&store, "store/copy"), (&third, "third/all"), (&third, "third/steps")] {
        host.pool.datasets().load_key(name, &KEY, false).expect("loaded");
        same((&one.pool, "one/vault"), (&host.pool, name), name);
    }
    // Opened, it becomes a file system like any other, increments too.
    for (name, base) in [
        ("third/steps@0", None),
        ("third/steps@3", Some("third/steps@0")),
        ("third/steps@5", Some("third/steps@3")),
    ] {
        let stream = third.send(name, base);
        store.receive("store/free", &stream).expect("received");
    }
    same((&one.pool, "one/vault"), (&store.pool, "store/free"), "opened");
    store.pool.datasets().unload_key("store/copy").expect("unloaded");
    assert!(matches!(store.pool.datasets().open_dataset("store/copy"), Err(Error::KeyNotLoaded { .. })));
    for name in ["store/copy", "store/free"] {
        store
            .pool
            .datasets()
            .destroy_with_snapshots(name)
            .expect("destroyed, whether its key is there or not");
    }
    store.check();
}

#[test]
fn what_breaks_off_goes_on_where_it_was() {
    let (one, store) = (laptop(), Host::new("store", 128));
    furnish(&one.pool, "one/vault");
    one.snapshot("one/vault@a");
    disturb(&one.pool, "one/vault", &mut Dice(8));
    one.snapshot("one/vault@b");
    let keep = ReceiveSpec { target: "store/copy".into(), keep: true, ..ReceiveSpec::default() };
    let mut store = store;
    let mut dice = Dice(31);
    for (snapshot, base) in [("one/vault@a", None), ("one/vault@b", Some("one/vault@a"))] {
        let mut stream = raw(&one, snapshot, base);
        let mut lengths = vec![stream.len()];
        for part in 0..5 {
            let at = stream.len() / 3 + dice.below(stream.len() as u64 / 3) as usize;
            store.receive_as(&keep, &stream[..at]).expect_err("cut");
            if part % 2 == 0 {
                store = store.crash();
            }
            store.check();
            let kept = store.pool.datasets().partial("store/copy").expect("kept");
            assert!(kept.raw);
            stream = raw_from(&one, snapshot, base, Some(kept.position));
            lengths.push(stream.len());
        }
        assert!(lengths.last() < lengths.first(), "what is left becomes less: {lengths:?}");
        store.receive_as(&keep, &stream).expect("received");
    }
    store.check();
    store.pool.datasets().load_key("store/copy", &KEY, false).expect("loaded");
    same((&one.pool, "one/vault"), (&store.pool, "store/copy"), "at the end");
}

/// The base of a raw increment must be raw, and of an opened one opened.
#[test]
fn raw_and_opened_are_not_mixed() {
    let (one, store) = (laptop(), Host::new("store", 128));
    furnish(&one.pool, "one/vault");
    one.snapshot("one/vault@a");
    one.pool.datasets().add_bookmark("one/vault@a", "mark").expect("marked");
    disturb(&one.pool, "one/vault", &mut Dice(8));
    one.snapshot("one/vault@b");
    store.receive("store/raw", &raw(&one, "one/vault@a", None)).expect("received");
    store.receive("store/open", &one.send("one/vault@a", None)).expect("received");
    let (sealed, opened) =
        (raw(&one, "one/vault@b", Some("one/vault@a")), one.send("one/vault@b", Some("one/vault@a")));
    for (target, stream) in [("store/raw", &opened), ("store/open", &sealed)] {
        let error = store.receive(target, stream).unwrap_err();
        assert!(matches!(error, Error::RawMixed { .. }), "{error}");
    }
    let spec = SendSpec {
        snapshot: "one/vault@b".into(),
        base: Some("one/vault#mark".into()),
        raw: true,
        ..SendSpec::default()
    };
    let mut since = Vec::new();
    one.pool.streams().send(&[spec], &mut since, &mut |_, _| ()).expect("sent");
    let error = store.receive("store/open", &since).unwrap_err();
    assert!(matches!(error, Error::RawMixed { .. }), "{error}");
    // Below it nothing is made that looks sealed and is not; its key is not changed, and it is not
    // written.
    let error = store.pool.datasets().create_dataset("store/raw/child", BTreeMap::new(), None).unwrap_err();
    assert!(matches!(error, Error::Raw { .. }), "{error}");
    let error = store.receive("store/raw/child", &one.send("one/vault@a", None)).unwrap_err();
    assert!(matches!(error, Error::Raw { .. }), "{error}");
    store.receive("store/raw/child", &raw(&one, "one/vault@b", None)).expect("received");
    store.pool.datasets().load_key("store/raw", &KEY, false).expect("loaded");
    let error = store
        .pool
        .datasets()
        .change_key("store/raw", Some(common::key(&one.env, &[7; 32])), None)
        .unwrap_err();
    assert!(matches!(error, Error::Raw { .. }), "{error}");
    store.check();
    // A dataset that is not encrypted goes as it is.
    store.receive("store/again", &raw(&store, "store/open@a", None)).expect("received");
    assert!(!store.pool.datasets().dataset_info("store/again").unwrap().raw);
}

#[test]
fn hostile_streams_change_nothing_or_give_what_does_not_open() {
    let (one, store) = (laptop(), Host::new("store", 128));
    {
        let (fs, _handle) = mount(&one.pool, "one/vault");
        (1..20).for_each(|at| {
            _ = write_file(&fs, ROOT, format!("file {at}").as_bytes(), &noise(at, at as usize * 9_000));
        });
    }
    one.snapshot("one/vault@a");
    let full = raw(&one, "one/vault@a", None);
    {
        let (fs, _handle) = mount(&one.pool, "one/vault");
        write_file(&fs, ROOT, b"other", &noise(77, 40_000));
        fs.unlink(ROOT, b"file 7").expect("removed");
    }
    one.snapshot("one/vault@b");
    let increment = raw(&one, "one/vault@b", Some("one/vault@a"));
    let mut dice = Dice(3);
    for round in 0..40 {
        let at = if round < 20 { round * 8 } else { dice.below(full.len() as u64) as usize };
        let mut bad = full.clone();
        bad[at] ^= 1 << dice.below(8);
        store.receive("store/copy", &bad).expect_err("damaged");
        store.receive("store/copy", &full[..at]).expect_err("cut");
    }
    // Whole chains of frames that no sender makes.
    type Frames = Vec<(FrameKind, Vec<u8>)>;
    type Edit<'a> = (&'a str, &'a dyn Fn(&mut Frames));
    let of = |frames: &Frames, kind| frames.iter().position(|frame| frame.0 == kind).expect("there");
    let edits: [Edit<'_>; 9] = [
        ("a byte of a block", &|frames| {
            let at = of(frames, FrameKind::RawBlocks);
            frames[at].1[100] ^= 1;
        }),
        ("a block that is cut", &|frames| {
            let at = of(frames, FrameKind::RawBlocks);
            _ = frames[at].1.pop();
        }),
        ("a header that is none", &|frames| {
            let at = of(frames, FrameKind::RawBlocks);
            frames[at].1[60] = 1;
        }),
        ("no block", &|frames| {
            let at = of(frames, FrameKind::RawBlocks);
            frames[at].1.clear();
        }),
        ("blocks twice", &|frames| {
            let at = of(frames, FrameKind::RawBlocks);
            let again = frames[at].1.clone();
            frames[at].1.extend(again);
        }),
        ("roots that are none", &|frames| {
            let at = of(frames, FrameKind::RawRoots);
            frames[at].1[0..8].fill(0);
        }),
        ("names", &|frames| {
            let at = of(frames, FrameKind::RawRoots);
            frames[at].0 = FrameKind::Names;
        }),
        ("blocks before roots", &|frames| {
            let (roots, blocks) = (of(frames, FrameKind::RawRoots), of(frames, FrameKind::RawBlocks));
            frames.swap(roots, blocks);
        }),
        ("what is gone of nothing", &|frames| {
            let at = of(frames, FrameKind::RawBlocks);
            let gone = [frames[at].1[32..56].to_vec()].concat();
            frames[at] = (FrameKind::RawGone, gone);
        }),
    ];
    for (what, edit) in edits {
        let mut frames = hosts::frames(&full);
        edit(&mut frames);
        let error = store.receive("store/copy", &hosts::joined(&frames)).expect_err(what);
        assert!(matches!(error, Error::StreamDamaged { .. }), "{what}: {error}");
        assert_eq!(store.pool.datasets().names(), ["store"], "{what}");
    }
    store.check();

    // Blocks under each other's names: told when the key comes, and nothing is shown.
    let mut frames = hosts::frames(&full);
    let at = of(&frames, FrameKind::RawBlocks);
    frames[at].1[32] ^= 1;
    let first = u32::from_le_bytes(frames[at].1[56..60].try_into().unwrap()) as usize + 64;
    frames[at].1.truncate(first);
    let mut blocks = 0;
    frames.retain(|(kind, _)| {
        blocks += usize::from(*kind == FrameKind::RawBlocks);
        *kind != FrameKind::RawBlocks || blocks == 1
    });
    let (end, count) = (of(&frames, FrameKind::End), frames.len() as u64 - 1);
    frames[end].1[8..16].copy_from_slice(&count.to_le_bytes());
    store.receive("store/forged", &hosts::joined(&frames)).expect("a store cannot know");
    let shown = store.pool.datasets().load_key("store/forged", &KEY, false).is_ok()
        && std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tree(&store.pool, "store/forged")))
            .is_ok();
    assert!(!shown, "what does not open was shown");

    store.receive("store/copy", &full).expect("received");
    let live = store.live();
    for _ in 0..30 {
        let at = dice.below(increment.len() as u64) as usize;
        let mut bad = increment.clone();
        bad[at] ^= 1 << dice.below(8);
        store.receive("store/copy", &bad).expect_err("damaged");
    }
    let mut frames = hosts::frames(&increment);
    let at = of(&frames, FrameKind::RawGone);
    frames[at].1[0] ^= 1;
    let error = store.receive("store/copy", &hosts::joined(&frames)).expect_err("gone what was not there");
    assert!(matches!(error, Error::StreamDamaged { .. }), "{error}");
    store.check();
    assert_eq!(store.pool.datasets().snapshot_names("store/copy").unwrap(), ["a"]);
    assert!(store.live() <= live + (1 << 20), "{} and {live}: all was freed", store.live());
    store.receive("store/copy", &increment).expect("received");
    store.pool.datasets().load_key("store/copy", &KEY, false).expect("loaded");
    same((&one.pool, "one/vault"), (&store.pool, "store/copy"), "at the end");
    store.check();
}

/// Roots are not sealed: whoever writes a stream can name what he likes there, with the hash that
/// it has.
#[test]
fn a_root_that_was_forged_with_a_right_hash_is_counted_where_it_lies() {
    let (one, store) = (laptop(), Host::new("store", 128));
    {
        let (fs, _handle) = mount(&one.pool, "one/vault");
        for at in 0..30_u64 {
            // Names that do not compress, so that the root of their tree is no small block.
            let name: String = noise(at, 100).iter().map(|byte| char::from(b'a' + byte % 26)).collect();
            write_file(&fs, ROOT, name.as_bytes(), &noise(at, 10));
        }
    }
    one.snapshot("one/vault@a");
    let full = raw(&one, "one/vault@a", None);
    let mut frames = hosts::frames(&full);
    let place = |kind| frames.iter().position(|frame| frame.0 == kind).expect("there");
    let (at_roots, at_blocks) = (place(FrameKind::RawRoots), place(FrameKind::RawBlocks));
    let mut roots = RawRoots::decode(&frames[at_roots].1).expect("roots");
    let mut names = roots.names.expect("a tree");
    let (mut at, mut forged) = (0, 0);
    while at < frames[at_blocks].1.len() {
        let bytes = &mut frames[at_blocks].1[at..];
        let header: &[u8; RawBlock::SIZE] = bytes.first_chunk().expect("a header");
        let block = RawBlock::decode(header).expect("a block");
        let end = RawBlock::SIZE + block.psize as usize;
        if block.stamp == names.stamp {
            assert!(block.psize > 2048, "{} bytes would lie in the tree", block.psize);
            bytes[end - 1] ^= 1;
            let hash = steadfast_crypto::hash(&bytes[RawBlock::SIZE..end]);
            bytes[..RawBlock::SIZE].copy_from_slice(&RawBlock { hash, ..block }.encode());
            names.hash = hash;
            forged += 1;
        }
        at += end;
    }
    assert_eq!(forged, 1, "the root of the names is sent");
    roots.names = Some(names);
    frames[at_roots].1 = roots.encode();
    store.receive("store/forged", &hosts::joined(&frames)).expect("a store cannot know");
    let told = store
        .pool
        .datasets()
        .load_key("store/forged", &KEY, false)
        .expect_err("it does not open")
        .to_string();
    assert!(told.contains("authentication"), "{told}");
    let counts = store.pool.state().leaves[0].counts;
    assert_eq!((counts.authentication_errors, counts.checksum_errors), (1, 1), "{counts:?}");
    store.receive("store/copy", &full).expect("received");
    store.pool.datasets().load_key("store/copy", &KEY, false).expect("loaded");
    same((&one.pool, "one/vault"), (&store.pool, "store/copy"), "what was not forged");
    assert_eq!(store.pool.state().leaves[0].counts.checksum_errors, 1);
}

#[test]
fn a_crash_at_any_write_leaves_all_of_a_raw_snapshot_or_nothing() {
    let (one, two) = (laptop(), Host::new("second", 64));
    {
        let (fs, _handle) = mount(&one.pool, "one/vault");
        (1..12).for_each(|at| {
            _ = write_file(&fs, ROOT, format!("file {at}").as_bytes(), &noise(at, at as usize * 4_000));
        });
    }
    one.snapshot("one/vault@a");
    let full = raw(&one, "one/vault@a", None);
    let before = tree(&one.pool, "one/vault");
    {
        let (fs, _handle) = mount(&one.pool, "one/vault");
        (1..5).for_each(|at| fs.unlink(ROOT, format!("file {at}").as_bytes()).expect("removed"));
        write_file(&fs, ROOT, b"new", &noise(50, 60_000));
    }
    one.snapshot("one/vault@b");
    let increment = raw(&one, "one/vault@b", Some("one/vault@a"));
    let after = tree(&one.pool, "one/vault");
    two.pool.sync().expect("committed");
    let empty = two.devices[0].image();
    two.receive("second/copy", &full).expect("received");
    two.check();
    let based = two.devices[0].image();
    let mut dice = Dice(78);
    for (image, stream, old, new) in
        [(&empty, &full, None, &before), (&based, &increment, Some(&before), &after)]
    {
        Cuts::new(image, stream, "second/copy", WRITES).each(&mut dice, |host, when| {
            let there = host.pool.datasets().names().contains(&"second/copy".to_owned());
            let found = there.then(|| {
                host.pool.datasets().load_key("second/copy", &KEY, false).expect("loaded");
                tree(&host.pool, "second/copy")
            });
            let is_new = found.as_ref() == Some(new);
            assert!(is_new || found.as_ref() == old, "{when}: {found:?}");
            is_new
        });
    }
}
