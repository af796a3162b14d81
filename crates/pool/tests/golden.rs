//! Yesterday's pools are opened today: the pool image of every format version that we promise to
//! read is imported, compared with what was written into it, changed, and found again. FORMAT.md,
//! "Golden pool".

use std::path::{Path, PathBuf};

use crate::common::{ME, MIB, ROOT, handle, import, import_spec, key, mount, read_file, spec, write_file};
use std::sync::Arc;
use steadfast_device::{FileDevice, OpenOptions};
use steadfast_env::Env;
use steadfast_pool::{DeviceHandle, Pool, scan};
use steadfast_posix::FileSystem;

const IMAGE_BYTES: u64 = 64 * MIB;
const SECRET: [u8; 32] = [0x5e; 32];
/// Names in the directory `many`.
const MANY: u64 = 500;
/// Where the sparse file has its second piece.
const FAR: u64 = 1 << 33;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/pool.v1.img.zst")
}

fn open(path: &Path) -> Vec<DeviceHandle> {
    let device = FileDevice::open(path, &OpenOptions::WRITE).expect("a device");
    vec![handle(&Arc::new(device))]
}

/// The bytes of the stored pool. `common::noise` draws others by now.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let draw = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(draw).collect()
}

/// Writes what every dataset of a golden pool holds.
fn write_content(fs: &FileSystem, seed: u64) {
    write_file(fs, ROOT, b"empty", b"");
    write_file(fs, ROOT, b"small", b"a few words");
    write_file(fs, ROOT, b"noise", &noise(seed, 200_000));
    write_file(fs, ROOT, b"words", &b"words that compress ".repeat(30_000));
    let sparse = fs.mknod(ME, ROOT, b"sparse", 0o100_600, 0).expect("made");
    fs.write(sparse.ino, 0, b"begin", false).expect("written");
    fs.write(sparse.ino, FAR, b"end", false).expect("written");
    fs.setxattr(sparse.ino, b"user.short", b"value", 0).expect("set");
    fs.setxattr(sparse.ino, b"user.long", &noise(seed, 9_000), 0).expect("set");
    fs.forget(sparse.ino, 1);
    let link = fs.symlink(ME, ROOT, b"link", b"many/../small").expect("made");
    fs.forget(link.ino, 1);
    let many = fs.mkdir(ME, ROOT, b"many", 0o750).expect("made");
    for at in 0..MANY {
        write_file(fs, many.ino, format!("name {at}").as_bytes(), &at.to_le_bytes());
    }
    fs.forget(many.ino, 1);
}

fn check_content(fs: &FileSystem, seed: u64) {
    assert_eq!(read_file(fs, ROOT, b"empty"), b"");
    assert_eq!(read_file(fs, ROOT, b"small"), b"a few words");
    assert!(read_file(fs, ROOT, b"noise") == noise(seed, 200_000));
    assert!(read_file(fs, ROOT, b"words") == b"words that compress ".repeat(30_000));
    let sparse = fs.lookup(ROOT, b"sparse").expect("found");
    assert_eq!(sparse.attr.size, FAR + 3);
    let piece = |at| {
        let mut out = [0xcc; 5];
        let count = fs.read(sparse.ino, at, &mut out).expect("read");
        out[..count].to_vec()
    };
    assert_eq!((piece(0), piece(FAR / 2), piece(FAR)), (b"begin".to_vec(), vec![0; 5], b"end".to_vec()));
    assert_eq!(fs.getxattr(sparse.ino, b"user.short").expect("there"), b"value");
    assert!(fs.getxattr(sparse.ino, b"user.long").expect("there") == noise(seed, 9_000));
    fs.forget(sparse.ino, 1);
    let link = fs.lookup(ROOT, b"link").expect("found");
    assert_eq!(fs.readlink(link.ino).expect("read"), b"many/../small");
    fs.forget(link.ino, 1);
    let many = fs.lookup(ROOT, b"many").expect("found");
    for at in 0..MANY {
        assert_eq!(read_file(fs, many.ino, format!("name {at}").as_bytes()), at.to_le_bytes());
    }
    fs.forget(many.ino, 1);
}

/// Makes the image anew: only when a format version is born.
fn write_golden(scratch: &Path) {
    std::fs::File::create(scratch).and_then(|file| file.set_len(IMAGE_BYTES)).expect("an image");
    let env = Env::real();
    let pool = Pool::create(&env, spec(open(scratch), None)).expect("a pool");
    pool.datasets()
        .create_dataset("tank/vault", Default::default(), Some(key(&env, &SECRET)))
        .expect("a dataset");
    pool.log(0, false, "made the golden pool");
    for (name, seed) in [("tank", 1), ("tank/vault", 2)] {
        let (fs, _handle) = mount(&pool, name);
        write_content(&fs, seed);
        pool.sync().expect("committed");
    }
    pool.export().expect("exported");
    drop(pool);
    let image = std::fs::read(scratch).expect("the image");
    let packed = zstd::bulk::compress(&image, 19).expect("compressed");
    assert!(packed.len() < 1 << 20, "{} bytes are too many for the repository", packed.len());
    std::fs::write(golden(), packed).expect("stored");
}

#[test]
fn the_golden_pool_of_version_1_opens_and_takes_changes() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("pool.img");
    if std::env::var("STEADFAST_GOLDEN").is_ok_and(|wish| wish == "write") {
        write_golden(&path);
    }
    let packed = std::fs::read(golden()).unwrap_or_else(|error| {
        panic!(
            "testdata/pool.v1.img.zst: {error}\n\
             Bring it back from the repository; if this version of the format is new, make it:\n\
             STEADFAST_GOLDEN=write cargo test -p steadfast-pool --test main golden"
        )
    });
    let image = zstd::bulk::decompress(&packed, IMAGE_BYTES as usize).expect("an image");
    std::fs::write(&path, image).expect("a copy");

    let env = Env::real();
    for round in 0..2u64 {
        let (mut pools, _) = scan(open(&path));
        let pool = Pool::import(&env, pools.remove(0), &import_spec(None)).expect("imported");
        assert_eq!(pool.datasets().names(), ["tank", "tank/vault"]);
        assert!(pool.history().expect("read").iter().any(|entry| entry.text == "made the golden pool"));
        pool.datasets().load_key("tank/vault", &SECRET, false).expect("the key fits");
        for (name, seed) in [("tank", 1), ("tank/vault", 2)] {
            let (fs, _handle) = mount(&pool, name);
            check_content(&fs, seed);
            if round == 0 {
                write_file(&fs, ROOT, b"new", &noise(seed + 10, 100_000));
            }
            assert!(read_file(&fs, ROOT, b"new") == noise(seed + 10, 100_000));
            pool.sync().expect("committed");
        }
        pool.export().expect("exported");
    }
    let pool = import(&env, open(&path), None).expect("imported");
    assert!(pool.state().damaged.is_empty());
    pool.export().expect("exported");
}
