//! Raw streams of clones: they arrive as clones of what arrived raw, and nobody on the way has
//! their key.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::{self, Dice, ROOT, mount, noise, write_file};
use crate::hosts::{
    Cuts, Host, VOLUME, WRITES_AND_FLUSHES, content, disturb, frames, furnish, joined, same, snapshot_tree,
    tree,
};
use steadfast_format::DatasetId;
use steadfast_format::raw::{RawBlock, RawGone, RawRoots};
use steadfast_format::stream::{FrameHeader, FrameKind, StreamBegin, StreamHeader};
use steadfast_pool::{Error, ReceiveSpec, SendSpec, VolumeSpec};

const KEY: [u8; 32] = [1; 32];

fn into(target: &str) -> ReceiveSpec {
    ReceiveSpec { target: target.into(), ..ReceiveSpec::default() }
}

fn upon(target: &str, origin: &str) -> ReceiveSpec {
    ReceiveSpec { origin: Some(origin.into()), ..into(target) }
}

fn sealed(snapshot: &str, base: &str) -> SendSpec {
    SendSpec { snapshot: snapshot.into(), base: Some(base.into()), raw: true, ..SendSpec::default() }
}

fn raw(host: &Host, snapshot: &str, base: &str) -> Vec<u8> {
    host.send_as(sealed(snapshot, base))
}

fn raw_whole(host: &Host, snapshot: &str) -> Vec<u8> {
    host.send_as(SendSpec { base: None, ..sealed(snapshot, "") })
}

fn origin(host: &Host, name: &str) -> Option<String> {
    host.pool.datasets().dataset_info(name).expect("there").origin
}

fn clone_of(host: &Host, snapshot: &str, name: &str) {
    host.pool.datasets().clone_snapshot(snapshot, name, BTreeMap::new()).expect("cloned");
}

fn load(host: &Host, names: &[&str]) {
    names.iter().for_each(|name| host.pool.datasets().load_key(name, &KEY, false).expect("loaded"));
}

/// A pool with an encrypted file system `one/vault`, and nothing in it.
fn empty_laptop(mib: u64) -> Host {
    let one = Host::new("one", mib);
    let key = common::key(&one.env, &KEY);
    one.pool.datasets().create_dataset("one/vault", BTreeMap::new(), Some(key)).expect("made");
    one
}

/// A pool with an encrypted file system, a clone of it with a snapshot of its own, and both changed
/// since.
fn laptop() -> Host {
    let one = empty_laptop(256);
    furnish(&one.pool, "one/vault");
    one.snapshot("one/vault@a");
    clone_of(&one, "one/vault@a", "one/branch");
    let mut dice = Dice(11);
    disturb(&one.pool, "one/branch", &mut dice);
    one.snapshot("one/branch@x");
    disturb(&one.pool, "one/vault", &mut dice);
    disturb(&one.pool, "one/branch", &mut dice);
    one
}

/// The same with less in it: `one/branch@x` of what `one/vault@a` has, and `one/branch@y`.
fn small_laptop() -> Host {
    let one = empty_laptop(64);
    let write = |fs: &str, range: std::ops::Range<u64>, seed: u64| {
        let (fs, _handle) = mount(&one.pool, fs);
        range.for_each(|at| {
            let name = format!("file {at}");
            let _ = fs.unlink(ROOT, name.as_bytes());
            _ = write_file(&fs, ROOT, name.as_bytes(), &noise(at + seed, at as usize * 4_000));
        });
    };
    write("one/vault", 1..20, 0);
    one.snapshot("one/vault@a");
    clone_of(&one, "one/vault@a", "one/branch");
    write("one/branch", 5..12, 70);
    one.snapshot("one/branch@x");
    write("one/branch", 1..8, 140);
    one.snapshot("one/branch@y");
    one
}

/// Blocks of a raw stream: those gone, and those that came.
fn blocks(stream: &[u8]) -> (BTreeSet<Vec<u8>>, BTreeSet<Vec<u8>>) {
    let (mut gone, mut came) = (BTreeSet::new(), BTreeSet::new());
    for (kind, payload) in frames(stream) {
        match kind {
            FrameKind::RawGone => gone.extend(payload.chunks(RawGone::SIZE).map(<[u8]>::to_vec)),
            FrameKind::RawBlocks => {
                let mut rest = &payload[..];
                while !rest.is_empty() {
                    let header = RawBlock::decode(rest).expect("a block");
                    let (whole, tail) = rest.split_at(RawBlock::SIZE + header.psize as usize);
                    came.insert(whole.to_vec());
                    rest = tail;
                }
            }
            _ => {}
        }
    }
    (gone, came)
}

/// Every snapshot of a dataset that was received is what it was where it was made.
fn equal(one: &Host, from: &str, there: &Host, name: &str) {
    let snapshots = there.pool.datasets().snapshot_names(name).expect("listed");
    assert!(!snapshots.is_empty());
    for snapshot in snapshots {
        let was = snapshot_tree(&one.pool, &format!("{from}@{snapshot}"));
        assert!(snapshot_tree(&there.pool, &format!("{name}@{snapshot}")) == was, "{name}@{snapshot}");
    }
}

#[test]
fn a_clone_arrives_as_one_where_nobody_has_its_key() {
    let (one, store) = (laptop(), Host::new("store", 256));
    let whole = raw_whole(&one, "one/branch@x");
    let beyond = raw(&one, "one/branch@x", "one/vault@a");
    assert!(beyond.len() * 2 < whole.len(), "{} and {}", beyond.len(), whole.len());
    let error = store.receive("store/branch", &beyond).unwrap_err();
    assert!(matches!(error, Error::NoOrigin { .. }), "{error}");
    store.receive("store/copy", &raw_whole(&one, "one/vault@a")).expect("received");
    let live = store.live();
    store.receive("store/branch", &beyond).expect("received");
    assert!(store.live() - live < whole.len() as u64 / 2, "what it shares is stored once");
    assert_eq!(origin(&store, "store/branch").as_deref(), Some("store/copy@a"));
    let info = store.pool.datasets().dataset_info("store/branch").expect("there");
    assert!(info.raw && !info.key_loaded);
    assert_eq!(info.encryption_root.as_deref(), Some("store/branch"));
    store.check();

    // Increments go on into both, and what was done here is given up first.
    let mut store = store.crash();
    let mut dice = Dice(12);
    let (mut of_vault, mut of_branch) = ("a".to_owned(), "x".to_owned());
    for round in 0..4_u64 {
        for (name, target, last) in
            [("vault", "store/copy", &mut of_vault), ("branch", "store/branch", &mut of_branch)]
        {
            disturb(&one.pool, &format!("one/{name}"), &mut dice);
            let snapshot = format!("one/{name}@{round}");
            one.snapshot(&snapshot);
            let stream = raw(&one, &snapshot, &format!("one/{name}@{last}"));
            if round == 1 {
                store.snapshot(&format!("{target}@own"));
                let error = store.receive(target, &stream).unwrap_err();
                assert!(matches!(error, Error::BaseNotYoungest { .. }), "{error}");
            }
            store.receive_as(&ReceiveSpec { force: round == 1, ..into(target) }, &stream).expect("received");
            *last = round.to_string();
        }
        store.check();
        if round == 2 {
            store = store.crash();
        }
    }
    // A clone of a clone, upon what it is one of and upon the first of all.
    clone_of(&one, "one/branch@x", "one/second");
    disturb(&one.pool, "one/second", &mut dice);
    one.snapshot("one/second@z");
    for (target, base, of) in
        [("store/second", "one/branch@x", "store/branch@x"), ("store/far", "one/vault@a", "store/copy@a")]
    {
        store.receive(target, &raw(&one, "one/second@z", base)).expect("received");
        assert_eq!(origin(&store, target).as_deref(), Some(of));
    }
    store.check();

    // On without a key: block for block what the laptop would send.
    let third = Host::new("further", 256);
    third.receive("further/copy", &raw_whole(&store, "store/copy@a")).expect("received");
    for (snapshot, base) in [
        ("copy@3", "copy@a"),
        ("branch@x", "copy@a"),
        ("branch@2", "branch@x"),
        ("branch@3", "branch@2"),
        ("second@z", "branch@x"),
    ] {
        let stream = raw(&store, &format!("store/{snapshot}"), &format!("store/{base}"));
        let there = |name: &str| format!("one/{name}").replace("copy", "vault");
        let (first, again) = (blocks(&raw(&one, &there(snapshot), &there(base))), blocks(&stream));
        assert!(first == again, "{snapshot}: {} and {} blocks", first.1.len(), again.1.len());
        let target = snapshot.split('@').next().expect("a name");
        third.receive(&format!("further/{target}"), &stream).expect("received");
    }
    let third = third.crash();
    third.check();
    assert_eq!(origin(&third, "further/second").as_deref(), Some("further/branch@x"));

    // The key comes.
    load(&store, &["store/copy", "store/branch", "store/second", "store/far"]);
    load(&third, &["further/copy", "further/branch", "further/second"]);
    for (host, top) in [(&store, "store"), (&third, "further")] {
        equal(&one, "one/vault", host, &format!("{top}/copy"));
        equal(&one, "one/branch", host, &format!("{top}/branch"));
        equal(&one, "one/second", host, &format!("{top}/second"));
        let there = format!("{top}/branch");
        same((&one.pool, "one/branch"), (&host.pool, &there), top);
    }
    equal(&one, "one/second", &store, "store/far");
    // Opened they are file systems and clones like any other.
    store.receive("store/free", &store.send("store/copy@a", None)).expect("received");
    store.receive("store/freed", &store.send("store/branch@x", Some("store/copy@a"))).expect("received");
    assert_eq!(origin(&store, "store/freed").as_deref(), Some("store/free@a"));
    assert!(!store.pool.datasets().dataset_info("store/freed").expect("there").raw);
    equal(&one, "one/vault", &store, "store/free");
    equal(&one, "one/branch", &store, "store/freed");

    // Both change places and still fit; what is left at last is nothing.
    store.pool.datasets().promote("store/branch").expect("promoted");
    assert_eq!(origin(&store, "store/copy").as_deref(), Some("store/branch@a"));
    store.check();
    for (name, target) in [("vault", "store/copy"), ("branch", "store/branch")] {
        let name = format!("one/{name}");
        disturb(&one.pool, &name, &mut dice);
        one.snapshot(&format!("{name}@last"));
        let stream = raw(&one, &format!("{name}@last"), &format!("{name}@3"));
        store.receive(target, &stream).expect("received");
        same((&one.pool, &name), (&store.pool, target), "after it was promoted");
    }
    assert_eq!(snapshot_tree(&store.pool, "store/branch@a"), snapshot_tree(&one.pool, "one/vault@a"));
    store.check();
    for name in ["far", "second", "freed", "free", "copy", "branch"] {
        store.pool.datasets().destroy_with_snapshots(&format!("store/{name}")).expect("destroyed");
    }
    store.check();
    let empty = Host::new("store", 256);
    empty.check();
    assert!(store.live() <= empty.live() + (1 << 20), "{} and {}", store.live(), empty.live());
}

#[test]
fn what_does_not_fit_is_refused_and_both_forms_lie_side_by_side() {
    let (one, store) = (laptop(), Host::new("store", 256));
    let beyond = raw(&one, "one/branch@x", "one/vault@a");
    let opened = one.send("one/branch@x", Some("one/vault@a"));
    store.receive("store/open", &one.send("one/vault@a", None)).expect("received");
    let error = store.receive("store/branch", &beyond).unwrap_err();
    assert!(matches!(error, Error::RawMixed { .. }), "{error}");
    let error = store.receive_as(&upon("store/branch", "store/open@a"), &beyond).unwrap_err();
    assert!(matches!(error, Error::RawMixed { .. }), "{error}");
    store.pool.datasets().destroy_with_snapshots("store/open").expect("destroyed");
    store.receive("store/copy", &raw_whole(&one, "one/vault@a")).expect("received");
    store.snapshot("store/copy@other");
    let error = store.receive("store/branch", &opened).unwrap_err();
    assert!(matches!(error, Error::RawMixed { .. }), "{error}");
    let error = store.receive_as(&upon("store/branch", "store/copy@other"), &beyond).unwrap_err();
    assert!(matches!(error, Error::NoOrigin { .. }), "{error}");
    assert_eq!(store.pool.datasets().names(), ["store", "store/copy"]);
    // An opened stream has the same guids: each increment finds its base.
    store.receive("store/open", &one.send("one/vault@a", None)).expect("received");
    store.receive("store/branch", &beyond).expect("received");
    store.receive("store/opened", &opened).expect("received");
    assert_eq!(origin(&store, "store/branch").as_deref(), Some("store/copy@a"));
    assert_eq!(origin(&store, "store/opened").as_deref(), Some("store/open@a"));
    store.receive_as(&upon("store/named", "store/copy@a"), &beyond).expect("received");
    store.check();
    // A clone that was made here holds nothing of its own, and is sent so.
    clone_of(&store, "store/branch@x", "store/local");
    store.snapshot("store/local@own");
    let (gone, came) = blocks(&raw(&store, "store/local@own", "store/branch@x"));
    assert_eq!((gone.len(), came.len()), (0, 0));
    // Below what is sealed as well, and below what is encrypted here.
    let key = common::key(&store.env, &[2; 32]);
    store.pool.datasets().create_dataset("store/safe", BTreeMap::new(), Some(key)).expect("made");
    for target in ["store/branch/below", "store/safe/below"] {
        store.receive(target, &beyond).expect("received");
        load(&store, &[target]);
        equal(&one, "one/branch", &store, target);
    }
    let error = store.receive("store/branch/not", &opened).unwrap_err();
    assert!(matches!(error, Error::Raw { .. }), "{error}");
    store.check_with(Some(&[2; 32]));

    // The same snapshot, but another pool sealed it: what is of that does not fit.
    let two = Host::new("second", 256);
    let key = common::key(&two.env, &[3; 32]);
    two.pool.datasets().create_dataset("second/safe", BTreeMap::new(), Some(key)).expect("made");
    two.receive("second/safe/copy", &one.send("one/vault@a", None)).expect("received");
    clone_of(&two, "second/safe/copy@a", "second/safe/branch");
    for name in ["copy", "branch"] {
        disturb(&two.pool, &format!("second/safe/{name}"), &mut Dice(17));
        two.snapshot(&format!("second/safe/{name}@b"));
        let stream = raw(&two, &format!("second/safe/{name}@b"), "second/safe/copy@a");
        let spec = ReceiveSpec { force: true, ..into(if name == "copy" { "store/copy" } else { "store/b" }) };
        let error = store.receive_as(&spec, &stream).unwrap_err();
        assert!(matches!(error, Error::RawOther { .. }), "{error}");
    }
    assert!(!store.pool.datasets().names().contains(&"store/b".to_owned()));
    store.check_with(Some(&[2; 32]));

    // A bookmark of the origin is as good as the origin, and the key is not asked for.
    one.pool.datasets().add_bookmark("one/vault@a", "mark").expect("marked");
    one.pool.datasets().unload_key("one/vault").expect("unloaded");
    store.receive("store/marked", &raw(&one, "one/branch@x", "one/vault#mark")).expect("received");
    load(&store, &["store/marked"]);
    let was = snapshot_tree(&two.pool, "second/safe/copy@a");
    assert!(snapshot_tree(&store.pool, "store/marked@x") != was, "it is the branch");
    one.pool.datasets().load_key("one/vault", &KEY, false).expect("loaded");
    equal(&one, "one/branch", &store, "store/marked");
}

#[test]
fn half_of_one_goes_on_wherever_it_broke_off() {
    let (one, mut store) = (small_laptop(), Host::new("store", 256));
    store.receive("store/copy", &raw_whole(&one, "one/vault@a")).expect("received");
    let stream = raw(&one, "one/branch@x", "one/vault@a");
    // Around each frame, and anywhere.
    let mut cuts = BTreeSet::from([0, 1, StreamHeader::SIZE]);
    let mut at = StreamHeader::SIZE;
    for (_, payload) in frames(&stream) {
        at += FrameHeader::SIZE + payload.len();
        cuts.extend([at - 1, at, at + 1]);
    }
    let mut dice = Dice(5);
    cuts.extend((0..16).map(|_| dice.below(stream.len() as u64) as usize));
    cuts.retain(|at| *at < stream.len());
    let mut gone_on = 0;
    for (round, at) in cuts.iter().enumerate() {
        let target = format!("store/c{round}");
        let keep = ReceiveSpec { keep: true, ..into(&target) };
        store.receive_as(&keep, &stream[..*at]).expect_err("cut");
        if round % 6 == 5 {
            store = store.crash();
            store.check();
        }
        let kept = store.pool.datasets().partial(&target);
        if round % 5 == 3 && kept.is_some() {
            store.pool.datasets().abort_receive(&target).expect("given up");
        } else if let Some(kept) = kept {
            assert!(kept.raw);
            let error = store.pool.datasets().destroy_snapshots(&["store/copy@a".into()], false).unwrap_err();
            assert!(matches!(error, Error::PartialExists { .. }), "{error}");
            // It goes on as it began, or not at all.
            let other = one.send_from("one/branch@x", Some("one/vault@a"), Some(kept.position));
            let error = store.receive_as(&keep, &other).unwrap_err();
            assert!(matches!(error, Error::OtherPartial { .. }), "{error}");
            let spec = SendSpec { resume: Some(kept.position), ..sealed("one/branch@x", "one/vault@a") };
            store.receive_as(&keep, &one.send_as(spec)).expect("the rest of it");
            gone_on += 1;
        }
        if !store.pool.datasets().names().contains(&target) {
            store.receive(&target, &stream).expect("all of it");
        }
    }
    assert!(gone_on > 12, "{gone_on} of {}", cuts.len());
    store.check();
    // An increment into one of them, in steps.
    let keep = ReceiveSpec { keep: true, ..into("store/c0") };
    let mut stream = raw(&one, "one/branch@y", "one/branch@x");
    for _ in 0..4 {
        store.receive_as(&keep, &stream[..stream.len() * 2 / 3]).expect_err("cut");
        store = store.crash();
        let kept = store.pool.datasets().partial("store/c0").expect("kept");
        let spec = SendSpec { resume: Some(kept.position), ..sealed("one/branch@y", "one/branch@x") };
        stream = one.send_as(spec);
    }
    store.receive_as(&keep, &stream).expect("the rest of it");
    store.check();
    for round in 0..cuts.len() {
        let name = format!("store/c{round}");
        assert_eq!(origin(&store, &name).as_deref(), Some("store/copy@a"));
        load(&store, &[&name]);
        equal(&one, "one/branch", &store, &name);
    }
    assert_eq!(store.pool.datasets().snapshot_names("store/c0").expect("listed"), ["x", "y"]);
}

type Frames = Vec<(FrameKind, Vec<u8>)>;

/// The first frame of a kind.
fn of(frames: &Frames, kind: FrameKind) -> usize {
    frames.iter().position(|frame| frame.0 == kind).expect("there")
}

/// Another word of what begins.
fn begins(frames: &mut Frames, change: &dyn Fn(&mut StreamBegin)) {
    let mut begin = StreamBegin::decode(&frames[0].1).expect("a begin");
    change(&mut begin);
    frames[0].1 = begin.encode();
}

/// Other roots.
fn roots(frames: &mut Frames, change: &dyn Fn(&mut RawRoots)) {
    let at = of(frames, FrameKind::RawRoots);
    let mut roots = RawRoots::decode(&frames[at].1).expect("roots");
    change(&mut roots);
    frames[at].1 = roots.encode();
}

#[test]
fn hostile_streams_of_clones_harm_nothing_but_themselves() {
    let (one, store) = (small_laptop(), Host::new("store", 128));
    let full = raw_whole(&one, "one/vault@a");
    store.receive("store/copy", &full).expect("received");
    let stream = raw(&one, "one/branch@x", "one/vault@a");
    store.check();
    let live = store.live();
    let mut dice = Dice(3);
    for round in 0..40 {
        let at = if round < 20 { round * 8 } else { dice.below(stream.len() as u64) as usize };
        let mut bad = stream.clone();
        bad[at] ^= 1 << dice.below(8);
        store.receive("store/branch", &bad).expect_err("damaged");
        store.receive("store/branch", &stream[..at]).expect_err("cut");
    }
    // Whole chains of frames that no sender makes.
    type Edit<'a> = (&'a str, &'a dyn Fn(&mut Frames), &'a dyn Fn(&Error) -> bool);
    let damaged = |error: &Error| matches!(error, Error::StreamDamaged { .. });
    let other = |error: &Error| matches!(error, Error::RawOther { .. });
    let edits: [Edit<'_>; 10] = [
        ("another pool", &|frames| roots(frames, &|roots| roots.pool.0 ^= 1), &other),
        ("another family", &|frames| roots(frames, &|roots| roots.family = DatasetId(77)), &other),
        ("a volume", &|frames| begins(frames, &|begin| begin.volume = true), &damaged),
        ("opened", &|frames| begins(frames, &|begin| begin.raw = false), &|error| {
            matches!(error, Error::RawMixed { .. })
        }),
        ("another origin", &|frames| begins(frames, &|begin| begin.base ^= 1), &|error| {
            matches!(error, Error::NoOrigin { .. })
        }),
        ("an increment of the same", &|frames| begins(frames, &|begin| begin.clone = false), &|error| {
            matches!(error, Error::NoSuchDataset { .. })
        }),
        (
            "gone what was not there",
            &|frames| {
                let at = of(frames, FrameKind::RawGone);
                frames[at].1[0] ^= 1;
            },
            &damaged,
        ),
        (
            "gone when blocks have come",
            &|frames| {
                let (gone, blocks) = (of(frames, FrameKind::RawGone), of(frames, FrameKind::RawBlocks));
                frames.swap(gone, blocks);
            },
            &damaged,
        ),
        (
            "a byte of a block",
            &|frames| {
                let at = of(frames, FrameKind::RawBlocks);
                frames[at].1[100] ^= 1;
            },
            &damaged,
        ),
        (
            "no roots",
            &|frames| {
                let at = of(frames, FrameKind::RawRoots);
                _ = frames.remove(at);
            },
            &damaged,
        ),
    ];
    for (what, edit, is_told) in edits {
        let mut frames = frames(&stream);
        edit(&mut frames);
        let error = store.receive("store/branch", &joined(&frames)).expect_err(what);
        assert!(is_told(&error), "{what}: {error}");
        assert_eq!(store.pool.datasets().names(), ["store", "store/copy"], "{what}");
    }
    store.check();
    assert!(store.live() <= live + (1 << 20), "{} and {live}: all was freed", store.live());

    // Two frauds that a store cannot see: a wrapped key that is none, and a clone that gives up all
    // blocks of its origin.
    let mut forged = frames(&stream);
    roots(&mut forged, &|roots| roots.wrapped.sealed[0] ^= 1);
    store.receive("store/keyless", &joined(&forged)).expect("nobody can tell");
    let error = store.pool.datasets().load_key("store/keyless", &KEY, false).unwrap_err();
    assert!(matches!(error, Error::WrongKey { .. }), "{error}");
    let mut forged = frames(&stream);
    let at = of(&forged, FrameKind::RawGone);
    forged[at].1.clear();
    for block in blocks(&full).1 {
        let header = RawBlock::decode(&block).expect("a block");
        forged[at].1.extend_from_slice(&RawGone(header.stamp).encode());
    }
    store.receive("store/hollow", &joined(&forged)).expect("nobody can tell");
    let shown = store.pool.datasets().load_key("store/hollow", &KEY, false).is_ok()
        && catch_unwind(AssertUnwindSafe(|| tree(&store.pool, "store/hollow"))).is_ok();
    assert!(!shown, "what is not there was shown");
    store.check();
    load(&store, &["store/copy"]);
    equal(&one, "one/vault", &store, "store/copy");
    for name in ["store/keyless", "store/hollow"] {
        store.pool.datasets().destroy_with_snapshots(name).expect("destroyed");
    }
    store.check();
    assert!(store.live() <= live + (1 << 20), "{} and {live}: all was freed", store.live());
    store.receive("store/branch", &stream).expect("received");
    load(&store, &["store/branch"]);
    equal(&one, "one/vault", &store, "store/copy");
    equal(&one, "one/branch", &store, "store/branch");
    store.check();
}

#[test]
fn a_volume_s_clone_is_one_that_the_key_opens() {
    const BLOCK: u64 = 16 << 10;
    let (one, store) = (Host::new("one", 128), Host::new("store", 128));
    let key = common::key(&one.env, &KEY);
    let spec = VolumeSpec { bytes: 90 * BLOCK, block_bytes: BLOCK as u32 };
    one.pool.datasets().create_volume("one/disk", BTreeMap::new(), Some(key), spec).expect("made");
    let mut dice = Dice(4);
    let mut write = |name: &str| {
        let (fs, _handle) = mount(&one.pool, name);
        for _ in 0..8 {
            let at = dice.below(80) * BLOCK + dice.below(BLOCK);
            let bytes = noise(dice.below(1000), 1 + dice.below(60_000) as usize);
            fs.write(VOLUME, at, &bytes, false).expect("written");
        }
    };
    write("one/disk");
    one.snapshot("one/disk@a");
    let was = content(&one, "one/disk");
    clone_of(&one, "one/disk@a", "one/image");
    write("one/image");
    one.snapshot("one/image@x");
    one.pool.datasets().grow_volume("one/image", 100 * BLOCK).expect("longer");
    write("one/image");
    one.snapshot("one/image@y");
    store.receive("store/disk", &raw_whole(&one, "one/disk@a")).expect("received");
    store.receive("store/image", &raw(&one, "one/image@x", "one/disk@a")).expect("received");
    store.receive("store/image", &raw(&one, "one/image@y", "one/image@x")).expect("received");
    let store = store.crash();
    store.check();
    assert_eq!(origin(&store, "store/image").as_deref(), Some("store/disk@a"));
    load(&store, &["store/disk", "store/image"]);
    assert!(content(&store, "store/image") == content(&one, "one/image"));
    assert!(content(&store, "store/disk") == was);
}

#[test]
fn a_crash_at_any_write_leaves_all_of_a_raw_clone_or_nothing() {
    let (one, two) = (small_laptop(), Host::new("second", 64));
    let (before, after) =
        (snapshot_tree(&one.pool, "one/branch@x"), snapshot_tree(&one.pool, "one/branch@y"));
    let first = raw(&one, "one/branch@x", "one/vault@a");
    let second = raw(&one, "one/branch@y", "one/branch@x");
    let of_origin = tree(&one.pool, "one/vault");
    two.receive("second/copy", &raw_whole(&one, "one/vault@a")).expect("received");
    two.check();
    let none = two.devices[0].image();
    two.receive("second/branch", &first).expect("received");
    two.check();
    let based = two.devices[0].image();
    let mut dice = Dice(77);
    for (image, stream, old, new) in
        [(&none, &first, None, &before), (&based, &second, Some(&before), &after)]
    {
        let cuts = Cuts::new(image, stream, "second/branch", WRITES_AND_FLUSHES);
        cuts.each(&mut dice, |host, when| {
            let there = host.pool.datasets().names().contains(&"second/branch".to_owned());
            let found = there.then(|| {
                load(host, &["second/branch"]);
                tree(&host.pool, "second/branch")
            });
            let is_new = found.as_ref() == Some(new);
            assert!(is_new || found.as_ref() == old, "{when}: {found:?}");
            if there {
                assert_eq!(origin(host, "second/branch").as_deref(), Some("second/copy@a"));
                let count = host.pool.datasets().snapshot_names("second/branch").expect("listed").len();
                assert_eq!(count, usize::from(old.is_some()) + usize::from(is_new));
            }
            load(host, &["second/copy"]);
            assert!(tree(&host.pool, "second/copy") == of_origin, "{when}");
            is_new
        });
    }
}

/// Full names of the snapshots of a dataset and of those that it begins with, oldest first.
fn chain(host: &Host, name: &str) -> Vec<String> {
    let of = |name: &str| -> Vec<String> {
        let own = host.pool.datasets().snapshot_names(name).expect("listed");
        own.into_iter().map(|snapshot| format!("{name}@{snapshot}")).collect()
    };
    let (mut chain, mut at) = (of(name), origin(host, name));
    while let Some(upto) = at {
        let above = upto.split('@').next().expect("a name").to_owned();
        let mut older = of(&above);
        older.truncate(older.iter().position(|own| *own == upto).expect("it is there") + 1);
        older.append(&mut chain);
        (chain, at) = (older, origin(host, &above));
    }
    chain
}

/// The snapshot of that name, which only one has.
fn found(host: &Host, snapshot: &str) -> Option<String> {
    let has = |name: &String| {
        host.pool.datasets().snapshot_names(name).expect("listed").iter().any(|own| own == snapshot)
    };
    host.pool.datasets().names().into_iter().find(has).map(|name| format!("{name}@{snapshot}"))
}

/// Each snapshot goes upon the youngest that what it is for has, or as a clone upon one that is
/// there, or whole.
fn replicate(one: &Host, store: &Host, line: &str, targets: &mut BTreeMap<String, String>) {
    let chain = chain(one, line);
    let (last, older) = chain.split_last().expect("taken just now");
    let named = |full: &str| full.split('@').nth(1).expect("a snapshot").to_owned();
    if let Some(target) = targets.get(line)
        && let Some(youngest) = store.pool.datasets().snapshot_names(target).expect("listed").last()
        && let Some(base) = older.iter().find(|full| named(full) == *youngest)
    {
        store.receive(target, &raw(one, last, base)).expect("received");
        return;
    }
    let target = format!("store/of-{}", named(last));
    let base = older.iter().rev().find_map(|full| Some((full, found(store, &named(full))?)));
    match base {
        Some((base, of)) => store.receive_as(&upon(&target, &of), &raw(one, last, base)).expect("received"),
        None => store.receive(&target, &raw_whole(one, last)).expect("received"),
    };
    targets.insert(line.to_owned(), target);
}

#[test]
fn drawn_histories_of_clones_arrive_whatever_is_promoted() {
    for seed in 1..=4 {
        let (one, mut store) = (empty_laptop(128), Host::new("store", 128));
        let mut dice = Dice(seed);
        let (mut lines, mut targets) = (vec!["one/vault".to_owned()], BTreeMap::new());
        let mut promoted = 0;
        for step in 0..50 {
            let line = lines[dice.below(lines.len() as u64) as usize].clone();
            match dice.below(9) {
                0 | 1 if lines.len() < 5 => {
                    let chain = chain(&one, &line);
                    if !chain.is_empty() {
                        lines.push(format!("one/line{step}"));
                        let at = dice.below(chain.len() as u64) as usize;
                        clone_of(&one, &chain[at], &format!("one/line{step}"));
                    }
                }
                2 => match one.pool.datasets().promote(&line) {
                    Ok(()) => promoted += 1,
                    Err(error) => assert!(matches!(error, Error::NotClone { .. }), "{error}"),
                },
                3 => {
                    let there = store.pool.datasets().names();
                    match store.pool.datasets().promote(&there[dice.below(there.len() as u64) as usize]) {
                        Ok(()) => promoted += 1,
                        Err(error) => assert!(matches!(error, Error::NotClone { .. }), "{error}"),
                    }
                }
                4 => store = store.crash(),
                _ => {
                    let (fs, handle) = mount(&one.pool, &line);
                    for _ in 0..4 {
                        let name = format!("file {}", dice.below(12));
                        let _ = fs.unlink(ROOT, name.as_bytes());
                        let bytes = noise(dice.below(1000), 1 + dice.below(40_000) as usize);
                        write_file(&fs, ROOT, name.as_bytes(), &bytes);
                    }
                    drop((fs, handle));
                    one.snapshot(&format!("{line}@{step}"));
                    replicate(&one, &store, &line, &mut targets);
                }
            }
        }
        one.check_with(Some(&KEY));
        store.check();
        let (mut compared, mut clones) = (0, 0);
        for name in store.pool.datasets().names().into_iter().filter(|name| name != "store") {
            load(&store, &[&name]);
            clones += usize::from(origin(&store, &name).is_some());
            for snapshot in store.pool.datasets().snapshot_names(&name).expect("listed") {
                let was = found(&one, &snapshot).expect("it came from there");
                let is = snapshot_tree(&store.pool, &format!("{name}@{snapshot}"));
                assert!(is == snapshot_tree(&one.pool, &was), "seed {seed}: {name}@{snapshot}");
                compared += 1;
            }
        }
        assert!(compared > 10 && clones > 1 && promoted > 1, "{compared} {clones} {promoted}");
    }
}
