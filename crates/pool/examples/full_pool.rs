//! Steady random overwriting on a pool that is nearly full, through the engine and without a mount:
//! how long each write waits, and what the device gets per byte accepted.
//!
//! ```text
//! cargo run --release -p steadfast-pool --example full_pool -- \
//!     IMAGE [--mib N] [--percent N] [--seconds N] [--write-kib N]
//! ```
//!
//! The image is created, and stays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast_device::{Device, FileDevice, OpenOptions};
use steadfast_env::Env;
use steadfast_pool::{CreateSpec, DeviceHandle, Memory, Pool};
use steadfast_posix::{Atime, Caller, FileSystem, Options, Usage};

const ME: Caller = Caller { uid: 0, gid: 0, umask: 0 };

fn main() {
    let mut words = std::env::args().skip(1);
    let Some(image) = words.next() else {
        eprintln!("the first word is the image to make");
        std::process::exit(2);
    };
    let (mut mib, mut percent, mut seconds, mut write_kib) = (2048, 85, 30, 128);
    while let (Some(word), Some(value)) = (words.next(), words.next()) {
        let value: u64 = value.parse().expect("a number");
        match word.as_str() {
            "--mib" => mib = value,
            "--percent" => percent = value,
            "--seconds" => seconds = value,
            "--write-kib" => write_kib = value,
            _ => panic!("{word} is no option"),
        }
    }
    let file = std::fs::File::create(&image).expect("the image can be made");
    file.set_len(mib << 20).expect("it can be that long");
    let device = FileDevice::open(image.as_ref(), &OpenOptions::WRITE).expect("it opens");
    let spec = CreateSpec {
        name: "full".into(),
        groups: steadfast_pool::GroupHandles::alone(vec![DeviceHandle {
            path: image,
            device: Arc::new(device) as Arc<dyn Device>,
        }]),
        ashift: 12,
        force: true,
        pool_props: Default::default(),
        root_props: Default::default(),
        key: None,
        aux: Default::default(),
        anchor: Default::default(),
        host: "host".into(),
        memory: Memory::default(),
    };
    let pool = Pool::create(&Env::real(), spec).expect("a pool");
    // Incompressible content, so that a byte accepted is a byte to place.
    let mut random = 7_u64;
    let mut draw = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut noise: Vec<u8> = (0..1 << 17).flat_map(|_| draw().to_le_bytes()).collect();
    let handle = pool.datasets().open_dataset("full").expect("it opens");
    let usage = Arc::new(|| Usage { used_bytes: 0, available_bytes: 1 << 30 });
    let options = Options { atime: Atime::Relative, usage, block_bytes: 4096 };
    let fs = FileSystem::new(Arc::clone(handle.dataset()), options).expect("a file system");
    let file = fs.mknod(ME, 1, b"file", 0o100_600, 0).expect("made").ino;
    let mut end = 0_u64;
    loop {
        let accounting = pool.state().accounting;
        let left = (accounting.capacity_bytes * percent / 100).saturating_sub(accounting.live_bytes) >> 20;
        if left == 0 {
            break;
        }
        for _ in 0..left.min(64) {
            noise[..8].copy_from_slice(&draw().to_le_bytes());
            fs.write(file, end, &noise, false).expect("there is room");
            end += noise.len() as u64;
        }
        pool.sync().expect("committed");
    }
    let bytes = write_kib << 10;
    let written = |pool: &Pool| pool.state().leaves.iter().map(|leaf| leaf.counts.written_bytes).sum::<u64>();
    let (before, txg, start) = (written(&pool), pool.state().txg, Instant::now());
    let mut waits = Vec::new();
    while start.elapsed() < Duration::from_secs(seconds) {
        let at = draw() % (end / bytes) * bytes;
        let from = (draw() % (noise.len() as u64 - bytes + 1)) as usize;
        let asked = Instant::now();
        fs.write(file, at, &noise[from..from + bytes as usize], false).expect("an overwrite is admitted");
        waits.push(asked.elapsed());
    }
    let elapsed = start.elapsed();
    pool.sync().expect("committed");
    let accepted = waits.len() as u64 * bytes;
    waits.sort_unstable();
    let at = |thousandths: usize| {
        waits[(waits.len() * thousandths / 1000).min(waits.len() - 1)].as_secs_f64() * 1e3
    };
    let state = pool.state();
    println!(
        "{percent} % of {mib} MiB, {write_kib} KiB writes: {:.1} MB/s, {:.2} bytes written per byte accepted, {} commits; wait ms \
         p50 {:.2} p99 {:.1} p99.9 {:.1} max {:.1}; {} relocations, {} % fragmented",
        accepted as f64 / 1e6 / elapsed.as_secs_f64(),
        (written(&pool) - before) as f64 / accepted as f64,
        state.txg.0 - txg.0,
        at(500),
        at(990),
        at(999),
        at(1000),
        state.accounting.relocations,
        state.accounting.fragmentation_percent(),
    );
}
