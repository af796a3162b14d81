//! A pool's life on all kinds of devices: made, written, committed, closed, found again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::common::{
    ME, MIB, ROOT, handle, handles, import, import_spec, key, mount, noise, read_file, spec, write_file,
};
use steadfast_device::memory::{Effect, Fault};
use steadfast_device::objects::MemoryStore;
use steadfast_device::{FileDevice, MemoryDevice, ObjectDevice, OpenOptions, Operation};
use steadfast_env::Env;
use steadfast_pool::{CreateSpec, DeviceHandle, Error, ImportSpec, Memory, Pool, scan};
use steadfast_posix::Errno;

/// A life that every kind of device has to carry; `open` gives the devices as a new process would
/// open them.
fn life(open: impl Fn() -> Vec<DeviceHandle>) {
    let env = Env::real();
    let pool = Pool::create(&env, spec(open(), None)).expect("a pool");
    let child = pool.datasets().create_dataset("tank/home", Default::default(), None).expect("a dataset");
    assert!(child.0 > 1);
    let large = noise(1, 5_000_000);
    {
        let (fs, _handle) = mount(&pool, "tank");
        let dir = fs.mkdir(ME, ROOT, b"dir", 0o755).expect("a directory");
        write_file(&fs, dir.ino, b"large", &large);
        write_file(&fs, ROOT, b"small", b"inline");
        fs.forget(dir.ino, 1);
        let (home, _handle) = mount(&pool, "tank/home");
        write_file(&home, ROOT, b"text", &b"words ".repeat(100_000));
    }
    pool.export().expect("exported");
    drop(pool);
    for round in 0..3u64 {
        let pool = import(&env, open(), None).expect("imported");
        assert_eq!(pool.datasets().names(), ["tank", "tank/home"]);
        let (fs, handle) = mount(&pool, "tank");
        let dir = fs.lookup(ROOT, b"dir").expect("found");
        assert!(read_file(&fs, dir.ino, b"large") == large, "round {round}");
        fs.forget(dir.ino, 1);
        assert_eq!(read_file(&fs, ROOT, b"small"), b"inline");
        let (home, home_handle) = mount(&pool, "tank/home");
        assert_eq!(read_file(&home, ROOT, b"text"), b"words ".repeat(100_000));
        drop((fs, handle, home, home_handle));
        {
            let (fs, _handle) = mount(&pool, "tank");
            let name = format!("round {round}");
            write_file(&fs, ROOT, name.as_bytes(), &noise(round, 400_000));
            if let Some(before) = round.checked_sub(1) {
                let old = format!("round {before}");
                assert!(read_file(&fs, ROOT, old.as_bytes()) == noise(before, 400_000));
                fs.unlink(ROOT, old.as_bytes()).expect("removed");
            }
        }
        pool.close().expect("closed");
    }
}

#[test]
fn a_pool_on_memory_devices_lives() {
    let devices = [MemoryDevice::new("a", 256 * MIB), MemoryDevice::new("b", 256 * MIB)].map(Arc::new);
    life(|| handles(&devices));
}

#[test]
fn a_pool_on_devices_of_whole_segments_lives() {
    let device = |name| MemoryDevice::whole_segments(name, 256 * MIB);
    let devices = [device("a"), device("b")].map(Arc::new);
    life(|| handles(&devices));
}

#[test]
fn a_pool_on_a_store_of_objects_lives() {
    let store = MemoryStore::new("objects");
    let writer = AtomicU8::new(0);
    life(|| {
        let own = [writer.fetch_add(1, Ordering::Relaxed); 16];
        let device = ObjectDevice::open(Arc::new(store.handle(|_| None)), Some(256 * MIB), own);
        vec![handle(&Arc::new(device.expect("a store")))]
    });
}

#[test]
fn a_pool_on_files_lives() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = ["a.img", "b.img"].map(|name| dir.path().join(name));
    for path in &paths {
        std::fs::File::create(path).and_then(|file| file.set_len(128 * MIB)).expect("an image");
    }
    let device = |path| Arc::new(FileDevice::open(path, &OpenOptions::WRITE).expect("a device"));
    life(|| paths.iter().map(|path| handle(&device(path))).collect());
}

#[test]
fn a_crash_leaves_the_last_commit() {
    // A clock of its own, by which no txg closes for its age.
    let env = Env { clock: Env::seeded(1).clock, ..Env::real() };
    let devices = [Arc::new(MemoryDevice::new("a", 256 * MIB))];
    let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
    let (fs, handle) = mount(&pool, "tank");
    write_file(&fs, ROOT, b"before", &noise(2, 300_000));
    pool.sync().expect("committed");
    write_file(&fs, ROOT, b"after", &noise(3, 300_000));
    drop((fs, handle));
    drop(pool); // no export: nothing more is committed
    let pool = import(&env, handles(&devices), None).expect("imported");
    let (fs, _handle) = mount(&pool, "tank");
    assert!(read_file(&fs, ROOT, b"before") == noise(2, 300_000));
    assert!(fs.lookup(ROOT, b"after").is_err());
}

#[test]
fn a_sealed_pool_needs_its_key_and_shows_nothing() {
    let env = Env::real();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.img");
    std::fs::File::create(&path).and_then(|file| file.set_len(128 * MIB)).expect("an image");
    let open = || {
        let device = FileDevice::open(&path, &OpenOptions::WRITE).expect("a device");
        DeviceHandle { path: path.display().to_string(), device: Arc::new(device) }
    };
    let secret = [7; 32];
    let spec = CreateSpec {
        groups: steadfast_pool::GroupHandles::alone(vec![open()]),
        ..spec(Vec::new(), Some(key(&env, &secret)))
    };
    let pool = Pool::create(&env, spec).expect("a pool");
    pool.datasets().create_dataset("tank/hidden-name", Default::default(), None).expect("a dataset");
    {
        let (fs, _handle) = mount(&pool, "tank/hidden-name");
        write_file(&fs, ROOT, b"file-name-nobody-sees", b"words nobody reads");
    }
    pool.export().expect("exported");
    drop(pool);
    let image = std::fs::read(&path).expect("the image");
    for words in ["hidden-name", "file-name-nobody-sees", "words nobody reads"] {
        assert!(!image.windows(words.len()).any(|w| w == words.as_bytes()), "{words} is readable");
    }
    let import = |secret: Option<&[u8]>| {
        let (mut pools, _) = scan(vec![open()]);
        Pool::import(&env, pools.remove(0), &import_spec(secret))
    };
    assert!(matches!(import(None), Err(Error::PoolKeyNeeded { .. })));
    assert!(matches!(import(Some(&[8; 32])), Err(Error::WrongKey { .. })));
    let pool = import(Some(&secret)).expect("imported");
    let (fs, _handle) = mount(&pool, "tank/hidden-name");
    assert_eq!(read_file(&fs, ROOT, b"file-name-nobody-sees"), b"words nobody reads");
}

#[test]
fn space_of_a_locked_dataset_comes_back_without_its_key() {
    let env = Env::real();
    let devices = [Arc::new(MemoryDevice::new("a", 256 * MIB))];
    let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
    pool.datasets()
        .create_dataset("tank/locked", Default::default(), Some(key(&env, &[9; 32])))
        .expect("a dataset");
    {
        let (fs, _handle) = mount(&pool, "tank/locked");
        write_file(&fs, ROOT, b"data", &noise(4, 20_000_000));
    }
    pool.sync().expect("committed");
    assert!(pool.state().accounting.live_bytes > 20_000_000);
    pool.datasets().unload_key("tank/locked").expect("unloaded");
    assert!(matches!(pool.datasets().open_dataset("tank/locked"), Err(Error::KeyNotLoaded { .. })));
    pool.datasets().destroy_dataset("tank/locked").expect("destroyed");
    pool.sync().expect("committed");
    assert!(pool.state().accounting.live_bytes < 2_000_000);
    assert_eq!(pool.datasets().names(), ["tank"]);
}

#[test]
fn destroying_a_dataset_gives_its_space_back() {
    let env = Env::real();
    let devices = [Arc::new(MemoryDevice::new("a", 256 * MIB))];
    let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
    let before = pool.state().accounting.live_bytes;
    pool.datasets().create_dataset("tank/big", Default::default(), None).expect("a dataset");
    {
        let (fs, _handle) = mount(&pool, "tank/big");
        for index in 0..200u64 {
            write_file(&fs, ROOT, format!("file {index}").as_bytes(), &noise(index, 100_000));
        }
        assert!(matches!(pool.datasets().destroy_dataset("tank/big"), Err(Error::Busy { .. })));
    }
    pool.datasets().destroy_dataset("tank/big").expect("destroyed");
    for _ in 0..3 {
        pool.sync().expect("committed");
    }
    let after = pool.state().accounting.live_bytes;
    assert!(after < before + 1_000_000, "{before} before, {after} after");
}

/// `zfs rollback -r` destroys what is younger, and not if it cannot do what that is for.
#[test]
fn what_cannot_be_gone_back_to_is_known_before_anything_younger_goes() {
    let (env, device) = (Env::real(), Arc::new(MemoryDevice::new("a", 64 * MIB)));
    let pool = Pool::create(&env, spec(vec![handle(&device)], None)).expect("a pool");
    let take =
        |pool: &Pool, name: &str| pool.datasets().take_snapshots(&[name.to_owned()], &Default::default());
    take(&pool, "tank@one").expect("taken");
    {
        // Leaves of which an import reads some.
        let (fs, _handle) = mount(&pool, "tank");
        let many = fs.mkdir(ME, ROOT, b"many", 0o755).expect("made").ino;
        for number in 0..2_000 {
            let name = format!("a name of some length, number {number}");
            fs.mknod(ME, many, name.as_bytes(), 0o100_644, 0).expect("made");
        }
    }
    take(&pool, "tank@two").expect("taken");
    pool.export().expect("exported");
    drop(pool);
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    {
        let (_fs, _handle) = mount(&pool, "tank");
        assert!(matches!(pool.datasets().try_rollback("tank@one", false), Err(Error::Busy { .. })));
    }
    device.arm(Fault { operation: Operation::Read, skip: 0, effect: Effect::FailAlways });
    pool.datasets().try_rollback("tank@one", false).expect_err("what came since is found by reading");
    device.disarm();
    pool.datasets().try_rollback("tank@one", false).expect("nothing stands in the way");
    assert_eq!(pool.datasets().snapshot_names("tank").expect("listed"), ["one", "two"], "it only looks");
    pool.datasets().destroy_snapshots(&["tank@two".to_owned()], false).expect("destroyed");
    pool.datasets().rollback("tank@one").expect("gone back");
    let (fs, handle) = mount(&pool, "tank");
    assert_eq!(fs.lookup(ROOT, b"many").expect_err("it came later"), Errno::ENOENT);
    drop((fs, handle));
    pool.export().expect("exported");
}

#[test]
fn snapshots_of_several_file_systems_go_together_or_not_at_all() {
    let (env, device) = (Env::real(), Arc::new(MemoryDevice::new("a", 64 * MIB)));
    let pool = Pool::create(&env, spec(vec![handle(&device)], None)).expect("a pool");
    let names = ["tank/a", "tank/b"];
    let snapshots = names.map(|name| format!("{name}@one"));
    for name in names {
        pool.datasets().create_dataset(name, Default::default(), None).expect("a dataset");
        let (fs, _handle) = mount(&pool, name);
        write_file(&fs, ROOT, b"file", &noise(1, 300_000));
    }
    pool.datasets().take_snapshots(&snapshots, &Default::default()).expect("taken");
    for name in names {
        // From now on only the snapshot holds the content.
        let (fs, _handle) = mount(&pool, name);
        fs.unlink(ROOT, b"file").expect("removed");
    }
    pool.export().expect("exported");
    drop(pool);
    // The n-th read fails, and all after it; nothing is cached.
    let memory = Memory { node_cache_bytes: 4096, block_cache_bytes: 4096, dirty_bytes_max: 64 << 10 };
    for skip in 0.. {
        let (mut pools, _) = scan(vec![handle(&device)]);
        let spec = ImportSpec { memory, ..import_spec(None) };
        let pool = Pool::import(&env, pools.remove(0), &spec).expect("imported");
        device.arm(Fault { operation: Operation::Read, skip, effect: Effect::FailAlways });
        let destroyed = pool.datasets().destroy_snapshots(&snapshots, false);
        device.disarm();
        let left = names.map(|name| pool.datasets().snapshot_names(name).expect("listed").len());
        match destroyed {
            Ok(()) => {
                assert_eq!(left, [0, 0]);
                pool.export().expect("exported");
                break;
            }
            // A commit that fails ends the use of the pool; the next import finds what was so
            // before.
            Err(_) if pool.suspended().is_some() => {}
            Err(error) => assert_eq!(left, [1, 1], "after {skip} reads: {error}"),
        }
    }
}
