//! Pools that grow, features that are enabled, datasets that move: what a crash leaves, and what
//! forged labels meet.

use std::sync::Arc;

use crate::common::{MIB, ROOT, handle, handles, import, key, mount, noise, read_file, spec, write_file};
use steadfast_device::{Device, FileDevice, MemoryDevice, OpenOptions};
use steadfast_env::Env;
use steadfast_format::LabelConfig;
use steadfast_pool::{DeviceHandle, Error, Pool};

const SIZE: u64 = 64 * MIB;

fn memory(name: &str) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(name, SIZE))
}

/// Puts the labels of one device in place of another's.
fn copy_labels(from: &MemoryDevice, to: &MemoryDevice) {
    for copy in 0..4 {
        to.write_label(copy, &from.read_label(copy).expect("read")).expect("written");
    }
    to.flush().expect("flushed");
}

fn alone(devices: &[Arc<MemoryDevice>]) -> Vec<steadfast_pool::GroupHandles> {
    steadfast_pool::GroupHandles::alone(handles(devices))
}

#[test]
fn a_pool_grows_while_it_is_used_and_all_of_it_is_used() {
    let env = Env::seeded(3);
    let (one, two) = (memory("one"), memory("two"));
    let pool = Pool::create(&env, spec(handles(&[Arc::clone(&one)]), None)).expect("a pool");
    let before = pool.state();
    let (fs, _use) = mount(&pool, "tank");
    let content = vec![7; 100_000];
    write_file(&fs, ROOT, b"old", &content);
    assert!(matches!(
        pool.devices().add_groups(alone(&[Arc::clone(&one)]), false, false),
        Err(Error::Twice { .. })
    ));
    pool.devices().add_groups(alone(&[Arc::clone(&two)]), false, true).expect("it could be added");
    assert_eq!(pool.state().leaves.len(), 1, "a dry run changes nothing");
    pool.devices().add_groups(alone(&[Arc::clone(&two)]), false, false).expect("added");
    let after = pool.state();
    assert_eq!(after.accounting.slots, 2 * before.accounting.slots);
    assert!(after.accounting.capacity_bytes > before.accounting.capacity_bytes);
    // Streams go on where they are until their segment is full; then they come to the new device
    // too.
    for at in 0..40_u8 {
        write_file(&fs, ROOT, format!("n{at}").as_bytes(), &noise(u64::from(at), 1 << 20));
        pool.sync().expect("committed");
    }
    assert!(pool.state().leaves[1].allocated_bytes > 0, "the new device is used");
    drop((fs, _use));
    pool.export().expect("exported");
    let pool = import(&env, handles(&[one, two]), None).expect("imported");
    let (fs, _use) = mount(&pool, "tank");
    assert_eq!(read_file(&fs, ROOT, b"old"), content);
    assert_eq!(pool.state().accounting.slots, after.accounting.slots);
}

#[test]
fn an_add_that_was_cut_off_leaves_a_pool_that_opens_either_way() {
    let env = Env::seeded(4);
    let (one, two) = (memory("one"), memory("two"));
    let pool = Pool::create(&env, spec(handles(&[Arc::clone(&one)]), None)).expect("a pool");
    pool.sync().expect("committed");
    let before = one.image();
    pool.devices().add_groups(alone(&[Arc::clone(&two)]), false, false).expect("added");
    drop(pool);
    // Labels of after, root of before: the crash came between the labels and the commit.
    let cut = Arc::new(MemoryDevice::from_image("one", before.clone()));
    copy_labels(&one, &cut);
    let fresh = memory("two");
    copy_labels(&two, &fresh);
    let pool = import(&env, handles(&[cut, fresh]), None).expect("imported");
    assert_eq!(pool.state().leaves.len(), 2);
    pool.sync().expect("and it commits");
    pool.export().expect("exported");
    // Labels of before: nothing of the new device is known.
    let old = Arc::new(MemoryDevice::from_image("one", before));
    let pool = import(&env, handles(&[old]), None).expect("imported");
    assert_eq!(pool.state().leaves.len(), 1);
}

#[test]
fn labels_older_than_the_root_do_not_hide_a_missing_device() {
    let env = Env::seeded(5);
    let (one, two) = (memory("one"), memory("two"));
    let pool = Pool::create(&env, spec(handles(&[Arc::clone(&one)]), None)).expect("a pool");
    let old = Arc::new(MemoryDevice::from_image("one", one.image()));
    pool.devices().add_groups(alone(&[Arc::clone(&two)]), false, false).expect("added");
    pool.export().expect("exported");
    copy_labels(&old, &one);
    let error = import(&env, handles(&[one]), None).err().expect("a device is missing");
    assert!(error.to_string().contains("written to 2 devices, and the labels list 1"), "{error}");
}

#[test]
fn a_label_that_promises_more_slots_than_there_are_is_refused_before_they_are_counted() {
    let env = Env::seeded(6);
    for device in [memory("file"), Arc::new(MemoryDevice::whole_segments("objects", SIZE))] {
        let pool = Pool::create(&env, spec(vec![handle(&device)], None)).expect("a pool");
        pool.export().expect("exported");
        let hash = |bytes: &[u8]| steadfast_crypto::hash(bytes);
        let mut label = LabelConfig::decode(&device.read_label(0).expect("read"), hash).expect("a label");
        label.leaves[0].slots = u32::MAX;
        for copy in 0..4 {
            device.write_label(copy, &label.encode(hash).expect("it fits")).expect("written");
        }
        let refused = import(&env, vec![handle(&device)], None).err();
        assert!(matches!(refused, Some(Error::Shrunk { slots: u32::MAX, .. })), "{refused:?}");
    }
}

#[test]
fn values_that_need_a_feature_are_refused_where_it_is_off() {
    let env = Env::seeded(9);
    let device = memory("file");
    let pool = Pool::create(&env, spec(vec![handle(&device)], None)).expect("a pool");
    pool.export().expect("exported");
    let hash = |bytes: &[u8]| steadfast_crypto::hash(bytes);
    for copy in 0..4 {
        let mut label = LabelConfig::decode(&device.read_label(copy).expect("read"), hash).expect("a label");
        label.features.retain(|feature| !["zstd", "encryption", "block_sharing"].contains(&&*feature.name));
        device.write_label(copy, &label.encode(hash).expect("it fits")).expect("written");
    }
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    let is = |error: Error, wanted: &str| {
        assert!(matches!(&error, Error::FeatureOff { feature, .. } if *feature == wanted), "{error:?}");
    };
    let props = |name: &str, value: &str| std::collections::BTreeMap::from([(name.into(), value.into())]);
    pool.datasets().create_dataset("tank/fs", props("compression", "lz4"), None).expect("made");
    pool.datasets().take_snapshots(&["tank/fs@1".into()], &Default::default()).expect("taken");
    for (name, value, feature) in [
        ("compression", "zstd", "zstd"),
        ("compression", "zstd-19", "zstd"),
        ("dedup", "on", "block_sharing"),
    ] {
        is(pool.datasets().create_dataset("tank/new", props(name, value), None).unwrap_err(), feature);
        is(pool.datasets().clone_snapshot("tank/fs@1", "tank/new", props(name, value)).unwrap_err(), feature);
        is(pool.datasets().set_property("tank/fs", name, Some(value)).unwrap_err(), feature);
    }
    let sealed = || pool.datasets().create_dataset("tank/new", Default::default(), Some(key(&env, &[7; 32])));
    is(sealed().unwrap_err(), "encryption");
    assert_eq!(pool.datasets().names(), ["tank", "tank/fs"]);
    for feature in ["zstd", "encryption"] {
        pool.enable_feature(feature).expect("enabled");
    }
    pool.datasets().set_property("tank/fs", "compression", Some("zstd")).expect("set");
    sealed().expect("made");
}

/// A copy of the pool of version 1, opened each time it is asked for.
fn golden(folder: &std::path::Path) -> impl Fn() -> Vec<DeviceHandle> + use<> {
    let path = folder.join("pool.img");
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/pool.v1.img.zst");
    let packed = std::fs::read(golden).expect("the golden pool");
    std::fs::write(&path, zstd::bulk::decompress(&packed, 256 << 20).expect("an image")).expect("a copy");
    move || {
        let device = FileDevice::open(&path, &OpenOptions::WRITE).expect("opened");
        vec![DeviceHandle { path: path.display().to_string(), device: Arc::new(device) }]
    }
}

#[test]
fn the_golden_pool_is_upgraded_and_then_lets_datasets_move() {
    let env = Env::real();
    let dir = tempfile::tempdir().expect("a directory");
    let open = golden(dir.path());
    let pool = import(&env, open(), None).expect("imported");
    pool.datasets().create_dataset("tank/old", Default::default(), None).expect("made");
    pool.datasets().create_dataset("tank/young", Default::default(), None).expect("made");
    let refused = pool.datasets().rename_dataset("tank/old", "tank/young/old");
    assert!(matches!(refused, Err(Error::FeatureOff { feature: "moved_datasets", .. })), "{refused:?}");
    pool.datasets().rename_dataset("tank/young", "tank/old/young").expect("an older parent needs no feature");
    pool.datasets().rename_dataset("tank/old/young", "tank/young").expect("and back");
    assert!(matches!(pool.enable_feature("sealed_metadata"), Err(Error::UnknownFeature { .. })));
    pool.enable_feature("moved_datasets").expect("enabled");
    pool.datasets().rename_dataset("tank/old", "tank/young/old").expect("moved");
    pool.export().expect("exported");
    let pool = import(&env, open(), None).expect("imported");
    assert_eq!(pool.datasets().names(), ["tank", "tank/vault", "tank/young", "tank/young/old"]);
    assert!(pool.features().iter().any(|feature| feature.name == "moved_datasets"));
}

/// A dataset that is in use when its pool learns overlays uses them from the next small overwrite
/// on; before, none is stored.
#[test]
fn an_upgrade_reaches_the_datasets_that_are_in_use() {
    let env = Env::real();
    let dir = tempfile::tempdir().expect("a directory");
    let pool = import(&env, golden(dir.path())(), None).expect("imported");
    let (fs, open) = mount(&pool, "tank");
    pool.datasets().set_property("tank", "compression", Some("off")).expect("set");
    let content = noise(3, 1 << 20);
    let file = write_file(&fs, ROOT, b"overwritten", &content);
    pool.sync().expect("committed");
    let overwrite = |page: u64| {
        fs.write(file, page * 4096, &[7; 4096], false).expect("written");
        pool.sync().expect("committed");
        open.dataset().overlay_counts().written
    };
    assert_eq!(overwrite(3), 0, "the pool's version has none");
    pool.enable_feature("overlays").expect("enabled");
    assert_eq!(overwrite(40), 1);
    // One that is opened only now, too.
    pool.datasets().create_dataset("tank/young", Default::default(), None).expect("made");
    let (young, handle) = mount(&pool, "tank/young");
    pool.datasets().set_property("tank/young", "compression", Some("off")).expect("set");
    let other = write_file(&young, ROOT, b"file", &content);
    pool.sync().expect("committed");
    young.write(other, 4096, &[7; 4096], false).expect("written");
    pool.sync().expect("committed");
    assert_eq!(handle.dataset().overlay_counts().written, 1);
    let mut expected = content;
    expected[3 * 4096..4 * 4096].fill(7);
    expected[40 * 4096..41 * 4096].fill(7);
    assert!(read_file(&fs, ROOT, b"overwritten") == expected);
}
