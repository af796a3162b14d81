//! Small overwrites at random in a large file, through the engine and without a mount: bytes that
//! reach the device per byte accepted, round by round; then what reading the file costs beside a
//! fresh one.
//!
//! ```text
//! cargo run --release -p steadfast-pool --example overwrite -- \
//!     IMAGE [--mib N] [--file-mib N] [--rounds N] [--compression C] [--encrypted] \
//!     [--without-overlays] [--txg-pages N]
//! ```
//!
//! The image is created, and stays. Reads go past the kernel's cache.

#[path = "../tests/common/counting.rs"]
mod counting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use counting::{CountingDevice, Counts};
use steadfast_device::{Device, FileDevice, OpenOptions};
use steadfast_env::Env;
use steadfast_format::KeyFormat;
use steadfast_pool::{
    CreateSpec, DatasetHandle, DeviceHandle, ImportSpec, Memory, NewKey, Pool, new_user_key, scan,
};
use steadfast_posix::{Atime, Caller, FileSystem, Options, Usage};

const PAGE: u64 = 4096;
const SECRET: [u8; 32] = [7; 32];

struct Wish {
    image: String,
    mib: u64,
    file_mib: u64,
    rounds: u64,
    compression: String,
    encrypted: bool,
    overlays: bool,
    /// Pages to a txg; 0: as they come.
    txg_pages: u64,
}

fn wish() -> Option<Wish> {
    let mut words = std::env::args().skip(1);
    let mut wish = Wish {
        image: words.next()?,
        mib: 8192,
        file_mib: 1024,
        rounds: 4,
        compression: "off".into(),
        encrypted: false,
        overlays: true,
        txg_pages: 0,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--mib" => wish.mib = words.next()?.parse().ok()?,
            "--file-mib" => wish.file_mib = words.next()?.parse().ok()?,
            "--txg-pages" => wish.txg_pages = words.next()?.parse().ok()?,
            "--rounds" => wish.rounds = words.next()?.parse().ok()?,
            "--compression" => wish.compression = words.next()?,
            "--encrypted" => wish.encrypted = true,
            "--without-overlays" => wish.overlays = false,
            _ => return None,
        }
    }
    Some(wish)
}

/// xorshift64: numbers, and bytes of which a part compresses if wanted.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Fills a buffer; if it shall compress, three bytes of five are zeros: LZ4 makes it some 2.5
    /// times smaller.
    fn fill(&mut self, out: &mut [u8], compressible: bool) {
        for piece in out.chunks_mut(512) {
            let random = if compressible { piece.len() * 2 / 5 } else { piece.len() };
            for word in piece[..random].chunks_mut(8) {
                let bytes = self.next().to_le_bytes();
                word.copy_from_slice(&bytes[..word.len()]);
            }
            piece[random..].fill(0);
        }
    }
}

fn mount(pool: &Pool) -> (FileSystem, DatasetHandle) {
    let handle = pool.datasets().open_dataset("tank").expect("the dataset opens");
    let usage = Arc::new(|| Usage { used_bytes: 0, available_bytes: 1 << 40 });
    let options = Options { atime: Atime::Off, usage, block_bytes: 4096 };
    (FileSystem::new(Arc::clone(handle.dataset()), options).expect("a file system"), handle)
}

fn handle(device: &Arc<CountingDevice>) -> Vec<DeviceHandle> {
    vec![DeviceHandle { path: device.character().identity, device: Arc::clone(device) as _ }]
}

#[allow(clippy::cast_precision_loss, reason = "a ratio")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

fn open(image: &str, direct: bool) -> Arc<CountingDevice> {
    let options = OpenOptions { direct, ..OpenOptions::WRITE };
    CountingDevice::new(Arc::new(FileDevice::open(image.as_ref(), &options).expect("a device")))
}

/// Imports an exported pool, so that no cache of ours knows anything.
fn import(env: &Env, device: &Arc<CountingDevice>, encrypted: bool) -> Pool {
    let (mut pools, _) = scan(handle(device));
    let spec = ImportSpec {
        new_name: None,
        force: false,
        destroyed: false,
        read_only: false,
        accept_lost_log: false,
        to_checkpoint: false,
        secret: encrypted.then(|| SECRET.to_vec().into()),
        anchor: Default::default(),
        host: "host".into(),
        memory: Memory::default(),
    };
    Pool::import(env, pools.remove(0), &spec).expect("imported")
}

/// Reads a whole file, a mebibyte at a time.
fn read(fs: &FileSystem, device: &CountingDevice, name: &str, bytes: u64) {
    let entry = fs.lookup(1, name.as_bytes()).expect("there");
    let (before, start) = (device.counts(), Instant::now());
    let mut out = vec![0; 1 << 20];
    for at in (0..bytes).step_by(out.len()) {
        fs.read(entry.ino, at, &mut out).expect("read");
    }
    report(name, "sequential", bytes, start.elapsed(), device.counts().since(before));
}

/// Reads 20,000 pages of it at random.
fn read_random(fs: &FileSystem, device: &CountingDevice, name: &str, bytes: u64) {
    let entry = fs.lookup(1, name.as_bytes()).expect("there");
    let (before, start) = (device.counts(), Instant::now());
    let mut draw = Draw(77);
    let mut out = vec![0; 4096];
    let reads = 20_000;
    for _ in 0..reads {
        fs.read(entry.ino, draw.next() % (bytes / PAGE) * PAGE, &mut out).expect("read");
    }
    report(name, "random 4 KiB", reads * PAGE, start.elapsed(), device.counts().since(before));
}

fn report(name: &str, what: &str, bytes: u64, time: Duration, counts: Counts) {
    println!(
        "{name:>11} {what:>12}: {:>8.3} s, {:>7} reads, {:.2} bytes read for one",
        time.as_secs_f64(),
        counts.reads,
        ratio(counts.read_bytes, bytes),
    );
}

fn main() {
    let Some(wish) = wish() else {
        eprintln!("usage: at the head of this file");
        std::process::exit(2);
    };
    let env = Env::real();
    std::fs::File::create(&wish.image).and_then(|file| file.set_len(wish.mib << 20)).expect("an image");
    let device = open(&wish.image, false);
    let random = |out: &mut [u8]| env.random.fill(out);
    let user = wish.encrypted.then(|| new_user_key(KeyFormat::Raw, &SECRET, &random, None).expect("a key"));
    let spec = CreateSpec {
        name: "tank".into(),
        groups: steadfast_pool::GroupHandles::alone(handle(&device)),
        ashift: 12,
        force: false,
        pool_props: Default::default(),
        root_props: Default::default(),
        key: user.map(|user| NewKey { user: Arc::new(user) }),
        aux: Default::default(),
        anchor: Default::default(),
        host: "host".into(),
        memory: Memory::default(),
    };
    let pool = Pool::create(&env, spec).expect("a pool");
    pool.datasets().set_property("tank", "compression", Some(&wish.compression)).expect("set");
    let compressible = wish.compression != "off";
    let (fs, head) = mount(&pool);
    head.dataset().allow_overlays(wish.overlays);
    let bytes = wish.file_mib << 20;
    let mut draw = Draw(0x5eed);
    for name in [b"fresh".as_slice(), b"overwritten"] {
        let file = fs.mknod(Caller { uid: 0, gid: 0, umask: 0 }, 1, name, 0o100_600, 0).expect("made").ino;
        let mut piece = vec![0; 1 << 20];
        for at in (0..bytes).step_by(piece.len()) {
            draw.fill(&mut piece, compressible);
            fs.write(file, at, &piece, false).expect("written");
        }
    }
    pool.sync().expect("committed");
    println!("# compression {}, encrypted {}, overlays {}", wish.compression, wish.encrypted, wish.overlays);
    println!(
        "# rounds, each as many bytes as the file has: written for one accepted; txgs; overlays; folds; s"
    );
    let file = fs.lookup(1, b"overwritten").expect("there").ino;
    let mut page = vec![0; 4096];
    for round in 1..=wish.rounds {
        let (before, txg, counts) = (device.counts(), pool.state().txg.0, head.dataset().overlay_counts());
        let start = Instant::now();
        for number in 1..=bytes / PAGE {
            draw.fill(&mut page, compressible);
            let at = draw.next() % (bytes / PAGE) * PAGE;
            fs.write(file, at, &page, false).expect("written");
            if wish.txg_pages > 0 && number % wish.txg_pages == 0 {
                pool.sync().expect("committed");
            }
        }
        if round == wish.rounds {
            pool.sync().expect("committed");
        }
        let (after, now) = (device.counts().since(before), head.dataset().overlay_counts());
        println!(
            "{round:>3}: {:>6.2} {:>5} {:>8} {:>7} {:>7.1}",
            ratio(after.written_bytes, bytes),
            pool.state().txg.0 - txg,
            now.written - counts.written,
            now.folded - counts.folded,
            start.elapsed().as_secs_f64()
        );
    }
    drop((fs, head));
    pool.export().expect("exported");
    drop((pool, device));
    for how in [read, read_random] {
        for name in ["fresh", "overwritten", "fresh", "overwritten"] {
            let device = open(&wish.image, true);
            let pool = import(&env, &device, wish.encrypted);
            let (fs, head) = mount(&pool);
            how(&fs, &device, name, bytes);
            drop((fs, head));
            pool.export().expect("exported");
        }
    }
}
