//! Cost of a snapshot beside many others:
//!
//! ```text
//! cargo run --release -p steadfast-pool --example many_snapshots -- FILE [COUNT]
//! ```
//!
//! Makes a pool of 2 GiB in FILE, and takes COUNT snapshots (10,000 if nobody says otherwise), each
//! after a write of 4 KiB into a file of 64 MiB. Prints the time of a snapshot at each power of
//! ten, and that of measuring all of them; then destroys every second one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use steadfast_device::{FileDevice, OpenOptions};
use steadfast_env::Env;
use steadfast_pool::{AnchorWish, CreateSpec, DeviceHandle, GroupHandles, Memory, Pool};
use steadfast_posix::{Atime, Caller, FileSystem, Options, Usage};

fn main() {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(args.next().expect("usage: many_snapshots FILE [COUNT]"));
    let count: u32 = args.next().map_or(10_000, |count| count.parse().expect("a number"));
    std::fs::File::create(&path).and_then(|file| file.set_len(2 << 30)).expect("an image file");
    let device = Arc::new(FileDevice::open(&path, &OpenOptions::WRITE).expect("opens"));
    let env = Env::real();
    let spec = CreateSpec {
        name: "tank".into(),
        groups: GroupHandles::alone(vec![DeviceHandle { path: path.display().to_string(), device }]),
        ashift: 12,
        force: true,
        pool_props: Default::default(),
        root_props: Default::default(),
        key: None,
        aux: Default::default(),
        anchor: AnchorWish::default(),
        host: "host".into(),
        memory: Memory::default(),
    };
    let pool = Pool::create(&env, spec).expect("created");
    let handle = pool.datasets().open_dataset("tank").expect("opens");
    let options = Options {
        atime: Atime::Off,
        usage: Arc::new(|| Usage { used_bytes: 0, available_bytes: 1 << 30 }),
        block_bytes: 4096,
    };
    let fs = FileSystem::new(Arc::clone(handle.dataset()), options).expect("a file system");
    let file = fs.mknod(Caller::ROOT, 1, b"file", 0o100_644, 0).expect("made").ino;
    for piece in 0..64 {
        fs.write(file, piece << 20, &noise(piece, 1 << 20), false).expect("written");
    }
    pool.sync().expect("committed");
    let (mut times, mut shown): (Vec<u128>, u32) = (Vec::new(), 10);
    for number in 1..=count {
        let at = u64::from(number) * 7_919 % 16_384 * 4096;
        fs.write(file, at, &noise(number.into(), 4096), false).expect("written");
        pool.sync().expect("committed");
        let began = Instant::now();
        pool.datasets().take_snapshots(&[format!("tank@s{number}")], &Default::default()).expect("taken");
        times.push(began.elapsed().as_micros());
        if number == shown || number == count {
            let mut last: Vec<u128> = times.iter().rev().take(100).copied().collect();
            last.sort_unstable();
            println!("{number} snapshots: {} us for one (median of the last 100)", last[last.len() / 2]);
            shown *= 10;
        }
    }
    let began = Instant::now();
    let infos = pool.datasets().snapshot_infos("tank", None).expect("measured");
    println!("{} snapshots measured in {} us", infos.len(), began.elapsed().as_micros());
    let info = pool.datasets().dataset_info("tank").expect("measured");
    println!("referenced {}, kept for snapshots {}", info.referenced, info.used_by_snapshots);
    let every_second: Vec<String> = infos.iter().step_by(2).map(|info| info.name.clone()).collect();
    let began = Instant::now();
    pool.datasets().destroy_snapshots(&every_second, false).expect("destroyed");
    println!("{} destroyed in {} us", every_second.len(), began.elapsed().as_micros());
    let began = Instant::now();
    while pool.datasets().freeing() > 0 {
        pool.sync().expect("committed");
    }
    println!("freed in {} us", began.elapsed().as_micros());
    drop((fs, handle));
    pool.export().expect("exported");
}

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
