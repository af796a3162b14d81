//! Raw streams of volumes: a store without a key keeps one, and who has the key reads it as one.

use std::collections::BTreeMap;

use crate::common::{self, Dice, mount, noise};
use crate::hosts::{Cuts, Host, VOLUME, WRITES, content, frames, joined_behind, soft};
use steadfast_format::stream::{StreamBegin, StreamHeader};
use steadfast_pool::{Error, ReceiveSpec, SendSpec, VolumeInfo, VolumeSpec};

const KEY: [u8; 32] = [1; 32];
/// A volume's block.
const BLOCK: u64 = 16 << 10;

/// A pool with an encrypted volume `one/disk` of so many blocks.
fn laptop(blocks: u64) -> Host {
    let one = Host::new("one", 128);
    let spec = VolumeSpec { bytes: blocks * BLOCK, block_bytes: BLOCK as u32 };
    let key = common::key(&one.env, &KEY);
    one.pool.datasets().create_volume("one/disk", BTreeMap::new(), Some(key), spec).expect("made");
    one
}

fn raw(host: &Host, snapshot: &str, base: Option<&str>) -> Vec<u8> {
    host.send_as(spec(snapshot, base))
}

fn spec(snapshot: &str, base: Option<&str>) -> SendSpec {
    let base = base.map(str::to_owned);
    SendSpec { snapshot: snapshot.into(), base, raw: true, ..SendSpec::default() }
}

/// Pieces anew, some of whole blocks and some not.
fn write(host: &Host, name: &str, dice: &mut Dice) {
    let (fs, _handle) = mount(&host.pool, name);
    let size = fs.getattr(VOLUME).expect("the file").size;
    for _ in 0..14 {
        let (at, seed) = (dice.below(size), dice.below(1 << 20));
        let bytes = usize::try_from((1 + dice.below(120_000)).min(size - at)).expect("small");
        let data = if dice.below(2) == 0 { noise(seed, bytes) } else { soft(seed, bytes) };
        fs.write(VOLUME, at, &data, false).expect("written");
    }
}

fn volume(host: &Host, name: &str) -> Option<VolumeInfo> {
    host.pool.datasets().dataset_info(name).expect("there").volume
}

#[test]
fn a_store_without_a_key_keeps_a_volume_that_the_key_opens() {
    let (one, store, third) = (laptop(60), Host::new("store", 128), Host::new("third", 128));
    let mut dice = Dice(4);
    let mut was = Vec::new();
    for round in 0..5_u64 {
        if round == 2 {
            one.pool.datasets().grow_volume("one/disk", 90 * BLOCK).expect("longer");
        }
        write(&one, "one/disk", &mut dice);
        one.snapshot(&format!("one/disk@{round}"));
        was.push(content(&one, "one/disk"));
        let base = (round > 0).then(|| format!("one/disk@{}", round.saturating_sub(1)));
        store
            .receive("store/disk", &raw(&one, &format!("one/disk@{round}"), base.as_deref()))
            .expect("received");
    }
    // Nobody can tell how long it is.
    let info = store.pool.datasets().dataset_info("store/disk").expect("there");
    assert!(info.raw && !info.key_loaded);
    assert_eq!(info.volume, Some(VolumeInfo::default()));
    assert_eq!(store.pool.datasets().snapshot_volume("store/disk@1").unwrap(), Some(VolumeInfo::default()));
    assert!(matches!(store.pool.datasets().open_dataset("store/disk"), Err(Error::KeyNotLoaded { .. })));
    let store = store.crash();
    store.check();
    // On without a key, all of it and in steps.
    third.receive("third/all", &raw(&store, "store/disk@4", None)).expect("received");
    third.receive("third/steps", &raw(&store, "store/disk@1", None)).expect("received");
    third.receive("third/steps", &raw(&store, "store/disk@4", Some("store/disk@1"))).expect("received");
    let wrong = third.pool.datasets().load_key("third/all", &[9; 32], false).unwrap_err();
    assert!(matches!(wrong, Error::WrongKey { .. }), "{wrong}");
    for (host, name) in [(&store, "store/disk"), (&third, "third/all"), (&third, "third/steps")] {
        host.pool.datasets().load_key(name, &KEY, false).expect("loaded");
        assert!(content(host, name) == was[4], "{name}");
        let known = VolumeInfo { bytes: Some(90 * BLOCK), block_bytes: Some(BLOCK) };
        assert_eq!(volume(host, name), Some(known), "{name}");
    }
    let first = VolumeInfo { bytes: Some(60 * BLOCK), block_bytes: Some(BLOCK) };
    assert_eq!(store.pool.datasets().snapshot_volume("store/disk@1").unwrap(), Some(first));
    for (round, was) in was.iter().enumerate() {
        let opened = store.pool.datasets().open_dataset("store/disk").expect("opened");
        let opened = opened.snapshots().open(&round.to_string()).expect("there");
        let mut data = vec![0; was.len()];
        opened.with(|dataset| {
            let file = dataset.inode(steadfast_format::InodeId(VOLUME)).expect("the file");
            dataset.read(&file, 0, &mut data).expect("read");
        });
        assert!(data == *was, "{round}");
    }
    // It stays as it was sealed.
    let error = store.pool.datasets().grow_volume("store/disk", 100 * BLOCK).unwrap_err();
    assert!(matches!(error, Error::Raw { .. }), "{error}");
    // Nothing lies below it.
    let error = store.pool.datasets().create_dataset("store/disk/below", BTreeMap::new(), None).unwrap_err();
    assert!(matches!(error, Error::VolumeParent { .. } | Error::Raw { .. }), "{error}");
    // Opened it becomes a volume like any other, increments too.
    store.receive("store/free", &store.send("store/disk@0", None)).expect("received");
    store.receive("store/free", &store.send("store/disk@4", Some("store/disk@0"))).expect("received");
    assert!(content(&store, "store/free") == was[4]);
    store.pool.datasets().grow_volume("store/free", 100 * BLOCK).expect("it is free");
    // A clone, and back to what it was.
    store.pool.datasets().clone_snapshot("store/disk@0", "store/clone", BTreeMap::new()).expect("cloned");
    store.pool.datasets().load_key("store/clone", &KEY, false).expect("loaded");
    assert!(content(&store, "store/clone") == was[0]);
    store.pool.datasets().unload_key("store/disk").expect("unloaded");
    assert_eq!(volume(&store, "store/disk"), Some(VolumeInfo::default()));
    for name in ["store/clone", "store/disk", "store/free"] {
        store
            .pool
            .datasets()
            .destroy_with_snapshots(name)
            .expect("destroyed, whether its key is there or not");
    }
    store.check();
}

#[test]
fn half_a_raw_volume_is_gone_on_with() {
    let (one, mut store) = (laptop(120), Host::new("store", 128));
    let mut dice = Dice(6);
    let keep = ReceiveSpec { target: "store/disk".into(), keep: true, ..ReceiveSpec::default() };
    for (snapshot, base) in [("one/disk@a", None), ("one/disk@b", Some("one/disk@a"))] {
        write(&one, "one/disk", &mut dice);
        one.snapshot(snapshot);
        let mut stream = raw(&one, snapshot, base);
        for part in 0..4 {
            let at = stream.len() / 3 + dice.below(stream.len() as u64 / 3) as usize;
            store.receive_as(&keep, &stream[..at]).expect_err("cut");
            if part % 2 == 0 {
                store = store.crash();
            }
            store.check();
            let kept = store.pool.datasets().partial("store/disk").expect("kept");
            assert!(kept.raw);
            stream = one.send_as(SendSpec { resume: Some(kept.position), ..spec(snapshot, base) });
        }
        store.receive_as(&keep, &stream).expect("the rest of it");
    }
    store.check();
    store.pool.datasets().load_key("store/disk", &KEY, false).expect("loaded");
    assert!(content(&store, "store/disk") == content(&one, "one/disk"));
}

/// The kind of a raw dataset is not sealed in the stream: a volume may claim to be a file system,
/// and the reverse.
#[test]
fn what_is_said_to_be_a_volume_and_is_none_is_told_when_the_key_comes() {
    let (one, store) = (laptop(20), Host::new("store", 128));
    one.pool
        .datasets()
        .create_dataset("one/vault", BTreeMap::new(), Some(common::key(&one.env, &KEY)))
        .expect("made");
    write(&one, "one/disk", &mut Dice(1));
    for (name, target) in [("one/disk", "store/disk"), ("one/vault", "store/vault")] {
        one.snapshot(&format!("{name}@a"));
        one.snapshot(&format!("{name}@b"));
        let lie = |stream: &[u8]| {
            let mut frames = frames(stream);
            let begin = StreamBegin::decode(&frames[0].1).expect("a begin");
            assert_eq!(begin.volume, name == "one/disk");
            frames[0].1 = StreamBegin { volume: !begin.volume, ..begin }.encode();
            joined_behind(StreamHeader::default(), &frames)
        };
        let stream = raw(&one, &format!("{name}@a"), None);
        store.receive(target, &lie(&stream)).expect("nobody can tell");
        let error = store.pool.datasets().load_key(target, &KEY, false).unwrap_err();
        assert!(matches!(error, Error::BadDataset { .. }), "{error}");
        assert!(error.to_string().contains("volume"), "{error}");
        assert!(!store.pool.datasets().dataset_info(target).expect("there").key_loaded);
        store.check();
        store.pool.datasets().destroy_with_snapshots(target).expect("destroyed");
        // An increment that says otherwise than what it is upon.
        store.receive(target, &stream).expect("received");
        let increment = raw(&one, &format!("{name}@b"), Some(&format!("{name}@a")));
        let error = store.receive(target, &lie(&increment)).unwrap_err();
        assert!(matches!(error, Error::StreamDamaged { .. }), "{error}");
        store.receive(target, &increment).expect("received");
        store.pool.datasets().load_key(target, &KEY, false).expect("loaded");
    }
    store.check();
}

#[test]
fn a_crash_at_any_write_leaves_all_of_a_raw_volume_or_nothing() {
    let (one, two) = (laptop(40), Host::new("second", 64));
    let mut dice = Dice(9);
    write(&one, "one/disk", &mut dice);
    one.snapshot("one/disk@a");
    let (first, before) = (raw(&one, "one/disk@a", None), content(&one, "one/disk"));
    one.pool.datasets().grow_volume("one/disk", 50 * BLOCK).expect("longer");
    write(&one, "one/disk", &mut dice);
    one.snapshot("one/disk@b");
    let (second, after) = (raw(&one, "one/disk@b", Some("one/disk@a")), content(&one, "one/disk"));
    two.pool.sync().expect("committed");
    let empty = two.devices[0].image();
    two.receive("second/disk", &first).expect("received");
    two.check();
    let based = two.devices[0].image();
    for (image, stream, old, new) in
        [(&empty, &first, None, &before), (&based, &second, Some(&before), &after)]
    {
        Cuts::new(image, stream, "second/disk", WRITES).each(&mut dice, |host, when| {
            host.check();
            let found = host.pool.datasets().names().contains(&"second/disk".to_owned()).then(|| {
                host.pool.datasets().load_key("second/disk", &KEY, false).expect("loaded");
                content(host, "second/disk")
            });
            let is_new = found.as_ref() == Some(new);
            assert!(is_new || found.as_ref() == old, "{when}");
            is_new
        });
    }
}
