//! An older root, opened without the right to write, if the newest one was lost.

use crate::common::{ROOT, handles, import_spec, mount, noise, read_file, spec, write_file};
use std::sync::Arc;
use steadfast_device::memory::Image;
use steadfast_device::{Device, MemoryDevice};
use steadfast_env::Env;
use steadfast_format::{Txg, Uberblock};
use steadfast_pool::{AnchorWish, ImportSpec, Pool, root_txgs, scan};

/// A device that forgot what was written after `before`, but not its uberblocks: as one that lies
/// about a flush and loses power.
fn forget(device: &MemoryDevice, before: &Image) {
    let rings: Vec<Vec<Vec<u8>>> = (0..4).map(|copy| device.read_uberblocks(copy).expect("read")).collect();
    device.restore(before);
    for (copy, ring) in rings.iter().enumerate() {
        for bytes in ring {
            let Ok(root) = Uberblock::decode(bytes) else { continue };
            let bytes = bytes.as_slice().try_into().expect("an uberblock");
            device.write_uberblock(copy, root.txg, bytes).expect("written");
        }
    }
}

#[test]
fn an_older_root_is_opened_read_only_if_the_newest_was_lost() {
    let env = Env::seeded(7);
    let device = Arc::new(MemoryDevice::new("d", 128 << 20));
    let pool = Pool::create(&env, spec(handles(&[Arc::clone(&device)]), None)).expect("a pool");
    let (files, handle) = mount(&pool, "tank");
    let write = |name: &[u8]| {
        write_file(&files, ROOT, name, &noise(3, 100_000));
        pool.sync().expect("committed");
    };
    write(b"kept");
    let before = device.image();
    let kept = pool.state().txg;
    write(b"lost");
    drop((files, handle, pool));
    device.release();
    forget(&device, &before);

    let found = || scan(handles(&[Arc::clone(&device)])).0.remove(0);
    let txgs = root_txgs(&found());
    assert!(txgs[0] > kept && txgs.contains(&kept), "{txgs:?}");
    let read_only = |as_of: Option<Txg>| {
        let anchor = AnchorWish { as_of, ..AnchorWish::default() };
        Pool::import(&env, found(), &ImportSpec { read_only: true, anchor, ..import_spec(None) })
    };
    assert!(Pool::import(&env, found(), &import_spec(None)).is_err(), "the newest root is lost");
    assert!(read_only(None).is_err());
    let writes = device.counts().writes;
    let pool = txgs.iter().find_map(|txg| read_only(Some(*txg)).ok()).expect("an older one is whole");
    assert_eq!(pool.state().txg, kept);
    let (files, handle) = mount(&pool, "tank");
    assert!(read_file(&files, ROOT, b"kept") == noise(3, 100_000));
    assert!(files.lookup(ROOT, b"lost").is_err());
    drop((files, handle, pool));
    assert_eq!(device.counts().writes, writes);
}
