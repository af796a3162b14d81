//! Compressed streams (`send -c`) of clones, of volumes and of trees of both, whole and cut
//! anywhere: what arrives is equal, and is stored in as many bytes.

use std::collections::BTreeMap;

use crate::common::{Dice, ROOT, mount, noise, write_file};
use crate::hosts::{Host, VOLUME, content, furnish, same, soft};
use steadfast_pool::{Error, ReceiveSpec, SendSpec, VolumeSpec};

/// A volume's block.
const BLOCK: u64 = 16 << 10;

fn props(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn into(target: &str) -> ReceiveSpec {
    ReceiveSpec { target: target.into(), ..ReceiveSpec::default() }
}

fn packed(snapshot: &str, base: Option<&str>) -> SendSpec {
    let base = base.map(str::to_owned);
    SendSpec { snapshot: snapshot.into(), base, packed: true, ..SendSpec::default() }
}

/// A pool that compresses nothing by itself: what is compressed there came so.
fn second() -> Host {
    let two = Host::new("second", 256);
    two.pool.datasets().set_property("second", "compression", Some("off")).expect("set");
    two
}

/// Some files anew, that compress and that do not. Nothing of a record is written that is not all
/// of it, so that all of them are blocks.
fn rewrite(host: &Host, name: &str, dice: &mut Dice) {
    let (fs, _handle) = mount(&host.pool, name);
    for _ in 0..6 {
        let (file, seed) = (format!("soft {}", dice.below(12)), dice.below(1 << 20));
        let bytes = usize::try_from(1 + dice.below(500_000)).expect("small");
        let _ = fs.unlink(ROOT, file.as_bytes());
        let data = if dice.below(5) == 0 { noise(seed, bytes) } else { soft(seed, bytes) };
        write_file(&fs, ROOT, file.as_bytes(), &data);
    }
}

/// Some blocks of a volume anew.
fn write_blocks(host: &Host, name: &str, dice: &mut Dice) {
    let (fs, _handle) = mount(&host.pool, name);
    let blocks = fs.getattr(VOLUME).expect("the file").size / BLOCK;
    for _ in 0..12 {
        let (at, seed) = (dice.below(blocks), dice.below(1 << 20));
        let bytes = usize::try_from((1 + dice.below(9)).min(blocks - at) * BLOCK).expect("small");
        let data = if dice.below(5) == 0 { noise(seed, bytes) } else { soft(seed, bytes) };
        fs.write(VOLUME, at * BLOCK, &data, false).expect("written");
    }
}

/// Bytes that a dataset's content is, and what it is stored in.
fn sizes(host: &Host, name: &str) -> (u64, u64) {
    host.pool.sync().expect("committed");
    let info = host.pool.datasets().dataset_info(name).expect("there");
    (info.logical, info.data)
}

fn origin(host: &Host, name: &str) -> Option<String> {
    host.pool.datasets().dataset_info(name).expect("there").origin
}

/// A file system `one/fs` with a clone of its first snapshot and a clone of that one's, each
/// changed since: what there is to be sent, by target, snapshot and base, in an order in which it
/// can be received.
fn with_clones(one: &Host, compression: &str) -> Vec<(&'static str, String, Option<String>)> {
    let mut dice = Dice(compression.len() as u64 + 100);
    one.pool.datasets().create_dataset("one/fs", props(&[("compression", compression)]), None).expect("made");
    furnish(&one.pool, "one/fs");
    rewrite(one, "one/fs", &mut dice);
    one.snapshot("one/fs@a");
    one.pool.datasets().clone_snapshot("one/fs@a", "one/clone", BTreeMap::new()).expect("cloned");
    rewrite(one, "one/clone", &mut dice);
    one.snapshot("one/clone@x");
    one.pool.datasets().clone_snapshot("one/clone@x", "one/second", BTreeMap::new()).expect("cloned");
    for (name, snapshot) in
        [("one/clone", "one/clone@y"), ("one/second", "one/second@z"), ("one/fs", "one/fs@b")]
    {
        rewrite(one, name, &mut dice);
        one.snapshot(snapshot);
    }
    let step = |target, snapshot: &str, base: &str| {
        let base = (!base.is_empty()).then(|| base.to_owned());
        (target, snapshot.to_owned(), base)
    };
    vec![
        step("second/fs", "one/fs@a", ""),
        step("second/clone", "one/clone@x", "one/fs@a"),
        step("second/second", "one/second@z", "one/clone@x"),
        step("second/clone", "one/clone@y", "one/clone@x"),
        step("second/fs", "one/fs@b", "one/fs@a"),
        step("second/sudden", "one/second@z", "one/fs@a"),
    ]
}

/// A volume that became longer, with a clone: the same.
fn with_volumes(one: &Host, compression: &str) -> Vec<(&'static str, String, Option<String>)> {
    let mut dice = Dice(compression.len() as u64 + 200);
    let spec = VolumeSpec { bytes: 100 * BLOCK, block_bytes: BLOCK as u32 };
    one.pool
        .datasets()
        .create_volume("one/vol", props(&[("compression", compression)]), None, spec)
        .expect("made");
    write_blocks(one, "one/vol", &mut dice);
    one.snapshot("one/vol@a");
    one.pool.datasets().clone_snapshot("one/vol@a", "one/image", BTreeMap::new()).expect("cloned");
    one.pool.datasets().grow_volume("one/vol", 150 * BLOCK).expect("longer");
    for (name, snapshot) in
        [("one/vol", "one/vol@b"), ("one/image", "one/image@x"), ("one/image", "one/image@y")]
    {
        write_blocks(one, name, &mut dice);
        one.snapshot(snapshot);
    }
    let step = |target, snapshot: &str, base: &str| {
        let base = (!base.is_empty()).then(|| base.to_owned());
        (target, snapshot.to_owned(), base)
    };
    vec![
        step("second/vol", "one/vol@a", ""),
        step("second/vol", "one/vol@b", "one/vol@a"),
        step("second/image", "one/image@x", "one/vol@a"),
        step("second/image", "one/image@y", "one/image@x"),
    ]
}

/// The last received snapshot of a dataset is as on the sender, in as many bytes.
fn equal(one: &Host, two: &Host, target: &str, snapshot: &str, when: &str) {
    let name = snapshot.split('@').next().expect("a name");
    // The dataset is compared only with its youngest snapshot; the others when that has arrived.
    let youngest = one.pool.datasets().snapshot_names(name).expect("listed").pop();
    if youngest.as_deref() != snapshot.split('@').nth(1) {
        return;
    }
    match one.pool.datasets().dataset_info(name).expect("there").volume.is_some() {
        true => assert!(content(one, name) == content(two, target), "{when}: {target}"),
        false => same((&one.pool, name), (&two.pool, target), format!("{when}: {target}")),
    }
    assert_eq!(sizes(one, name), sizes(two, target), "{when}: {target}");
}

#[test]
fn clones_and_volumes_arrive_in_as_many_bytes() {
    for compression in ["lz4", "zstd-3"] {
        for make in [with_clones, with_volumes] {
            let (one, two) = (Host::new("one", 256), second());
            let steps = make(&one, compression);
            for (target, snapshot, base) in &steps {
                let plain = one.send(snapshot, base.as_deref()).len();
                let stream = one.send_packed(snapshot, base.as_deref());
                assert!(stream.len() < plain * 9 / 10, "{snapshot}: {} of {plain}", stream.len());
                two.receive(target, &stream).expect("received");
                equal(&one, &two, target, snapshot, compression);
            }
            two.check();
            // Clones are clones of what they were, there too.
            for (target, snapshot, _) in &steps {
                let name = snapshot.split('@').next().expect("a name");
                let wanted = match *target {
                    "second/sudden" => Some("second/fs@a".to_owned()),
                    _ => origin(&one, name).map(|origin| origin.replacen("one/", "second/", 1)),
                };
                assert_eq!(origin(&two, target), wanted, "{target}");
            }
            // A clone costs what it has of its own, on both sides.
            let own = |host: &Host, name: &str| {
                host.pool.datasets().dataset_info(name).expect("there").used_by_dataset
            };
            let (here, there) = match steps[0].0 {
                "second/vol" => ("one/image", "second/image"),
                _ => ("one/clone", "second/clone"),
            };
            let (here, there) = (own(&one, here), own(&two, there));
            assert!(there < here * 5 / 4 + (256 << 10), "{here} and {there}");
            let two = two.crash();
            for (target, snapshot, _) in &steps {
                equal(&one, &two, target, snapshot, "after a crash");
            }
        }
    }
}

#[test]
fn what_is_cut_anywhere_goes_on_compressed_and_ends_equal() {
    for (round, make) in [with_clones, with_volumes, with_clones, with_volumes].into_iter().enumerate() {
        let (one, mut two) = (Host::new("one", 256), second());
        let mut dice = Dice(round as u64 + 31);
        let mut cuts = 0;
        for (target, snapshot, base) in make(&one, if round < 2 { "lz4" } else { "zstd-3" }) {
            let keep = ReceiveSpec { keep: true, ..into(target) };
            let mut stream = one.send_packed(&snapshot, base.as_deref());
            // Anywhere: at the first bytes, within a frame, before the last one.
            for _ in 0..4 {
                let at = dice.below(stream.len() as u64) as usize;
                let error = two.receive_as(&keep, &stream[..at]).expect_err("cut");
                assert!(matches!(error, Error::StreamEnds { .. } | Error::NoStream { .. }), "{at}: {error}");
                cuts += 1;
                if dice.below(3) == 0 {
                    two = two.crash();
                }
                // Where it had not begun, it begins once more.
                let Some(partial) = two.pool.datasets().partial(target) else { continue };
                assert!(partial.packed, "{snapshot} after {at}");
                let resume = Some(partial.position);
                stream = one.send_as(SendSpec { resume, ..packed(&snapshot, base.as_deref()) });
            }
            two.receive_as(&keep, &stream).expect("the rest of it");
            equal(&one, &two, target, &snapshot, "of parts");
        }
        assert!(cuts > 8, "{cuts}");
        two.check();
    }
}

#[test]
fn a_tree_with_a_clone_and_a_volume_goes_compressed_in_one_stream() {
    let (one, two) = (Host::new("one", 256), second());
    let mut dice = Dice(7);
    one.pool.datasets().create_dataset("one/top", props(&[("compression", "zstd")]), None).expect("made");
    one.pool.datasets().create_dataset("one/top/fs", BTreeMap::new(), None).expect("made");
    let spec = VolumeSpec { bytes: 60 * BLOCK, block_bytes: BLOCK as u32 };
    one.pool.datasets().create_volume("one/top/vol", BTreeMap::new(), None, spec).expect("made");
    rewrite(&one, "one/top/fs", &mut dice);
    write_blocks(&one, "one/top/vol", &mut dice);
    let all = |name: &str| ["one/top", "one/top/fs", "one/top/vol"].map(|fs| format!("{fs}@{name}"));
    one.pool.datasets().take_snapshots(&all("1"), &BTreeMap::new()).expect("taken");
    one.pool.datasets().clone_snapshot("one/top/fs@1", "one/top/clone", BTreeMap::new()).expect("cloned");
    one.pool.datasets().clone_snapshot("one/top/vol@1", "one/top/image", BTreeMap::new()).expect("cloned");
    let every = ["one/top", "one/top/fs", "one/top/vol", "one/top/clone", "one/top/image"];
    for step in ["2", "3"] {
        for name in &every[1..] {
            match name.ends_with('l') || name.ends_with("image") {
                true => write_blocks(&one, name, &mut dice),
                false => rewrite(&one, name, &mut dice),
            }
        }
        one.pool
            .datasets()
            .take_snapshots(&every.map(|fs| format!("{fs}@{step}")), &BTreeMap::new())
            .expect("taken");
    }
    // As `zfs send -R -c` orders them: parents and origins first, and a clone upon what it is one
    // of.
    let whole = |name: &str, first: Option<&str>| {
        let own = one.pool.datasets().snapshot_names(name).expect("listed");
        let own: Vec<String> = own.into_iter().filter(|own| own != "3").collect();
        (0..own.len())
            .map(|at| {
                let base =
                    if at == 0 { first.map(str::to_owned) } else { Some(format!("{name}@{}", own[at - 1])) };
                SendSpec { base, ..packed(&format!("{name}@{}", own[at]), None) }
            })
            .collect::<Vec<SendSpec>>()
    };
    let mut specs = Vec::new();
    for name in every {
        let first = origin(&one, name);
        specs.extend(whole(name, first.as_deref()));
    }
    let increments: Vec<SendSpec> =
        every.iter().map(|name| packed(&format!("{name}@3"), Some(&format!("{name}@2")))).collect();
    for specs in [&specs, &increments] {
        let mut stream = Vec::new();
        one.pool.streams().send(specs, &mut stream, &mut |_, _| ()).expect("sent");
        let received = two.receive("second/copy", &stream).expect("received");
        assert_eq!(received.len(), specs.len());
    }
    for name in every {
        let target = name.replacen("one/top", "second/copy", 1);
        equal(&one, &two, &target, &format!("{name}@3"), "of a tree");
        let wanted = origin(&one, name).map(|origin| origin.replacen("one/top", "second/copy", 1));
        assert_eq!(origin(&two, &target), wanted);
    }
    two.check();
}
