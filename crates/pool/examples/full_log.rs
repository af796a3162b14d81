//! How long an import takes behind a log that is full: a pool in a file with a log device of 128
//! MiB, the largest circle there is.
//!
//!     cargo run --release -p steadfast-pool --example full_log -- FOLDER

use std::path::Path;
use std::sync::Arc;

use steadfast_device::{FileDevice, OpenOptions};
use steadfast_env::Env;
use steadfast_pool::{AnchorWish, CreateSpec, DeviceHandle, GroupHandles, ImportSpec, Memory, Pool, scan};
use steadfast_posix::{Atime, Caller, FileSystem, Options, Usage};

type Failure = Box<dyn std::error::Error>;

fn open(path: &Path) -> Result<DeviceHandle, Failure> {
    let device = Arc::new(FileDevice::open(path, &OpenOptions::WRITE)?);
    Ok(DeviceHandle { path: path.display().to_string(), device })
}

fn files(pool: &Pool) -> Result<(FileSystem, steadfast_pool::DatasetHandle), Failure> {
    let handle = pool.datasets().open_dataset("tank")?;
    let usage = Arc::new(|| Usage { used_bytes: 0, available_bytes: 1 << 30 });
    let options = Options { atime: Atime::Off, usage, block_bytes: 4096 };
    let fs = FileSystem::new(Arc::clone(handle.dataset()), options).map_err(|errno| format!("{errno:?}"))?;
    Ok((fs, handle))
}

/// Fills a log by files of so many bytes, each made durable by itself, and imports behind it.
fn run(folder: &Path, bytes: usize) -> Result<(), Failure> {
    let (image, log) = (folder.join("image"), folder.join("log"));
    std::fs::File::create(&image)?.set_len(8 << 30)?;
    std::fs::File::create(&log)?.set_len(256 << 20)?;
    // Nobody commits in such a world but who waits for it.
    let env = Env::simulated(1);
    let spec = CreateSpec {
        name: "tank".into(),
        groups: steadfast_pool::GroupHandles::alone(vec![open(&image)?]),
        ashift: 12,
        force: true,
        pool_props: Default::default(),
        root_props: Default::default(),
        key: None,
        aux: Default::default(),
        anchor: AnchorWish::default(),
        host: "host".into(),
        memory: Memory { dirty_bytes_max: 1 << 30, ..Memory::default() },
    };
    let pool = Pool::create(&env, spec)?;
    pool.zil().add_logs(GroupHandles::alone(vec![open(&log)?]), true, false)?;
    let (fs, handle) = files(&pool)?;
    let failed = |errno| format!("{errno:?}");
    let (txg, size) = (pool.state().txg, pool.state().log.size_bytes);
    let mut content = vec![0; bytes];
    let mut number = 0_u64;
    // At the end of each slot a part stays empty.
    while pool.state().log.counts.bytes + size / 16 < size {
        env.random.fill(&mut content);
        let made =
            fs.mknod(Caller::ROOT, 1, format!("f{number}").as_bytes(), 0o100_644, 0).map_err(failed)?;
        fs.write(made.ino, 0, &content, false).map_err(failed)?;
        fs.fsync(made.ino).map_err(failed)?;
        fs.forget(made.ino, 1);
        number += 1;
    }
    let counts = pool.state().log.counts;
    assert_eq!(pool.state().txg, txg, "nothing was committed");
    drop((fs, handle));
    drop(pool); // as a crash leaves it

    let env = Env::real();
    let began = env.clock.monotonic_ns();
    let (mut pools, _) = scan(vec![open(&image)?, open(&log)?]);
    let spec = ImportSpec {
        new_name: None,
        force: true,
        destroyed: false,
        read_only: false,
        accept_lost_log: false,
        to_checkpoint: false,
        secret: None,
        anchor: AnchorWish::default(),
        host: "host".into(),
        memory: Memory::default(),
    };
    let pool = Pool::import(&env, pools.remove(0), &spec)?;
    let took = (env.clock.monotonic_ns() - began) / 1_000_000;
    let replayed = pool.state().log.replayed;
    println!(
        "files of {bytes:>7} bytes: {replayed:>6} of {} groups, {} MiB of {} MiB: imported in {took} ms",
        counts.groups,
        counts.bytes >> 20,
        size >> 20
    );
    pool.export()?;
    Ok(())
}

fn main() -> Result<(), Failure> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let folder = Path::new(&folder).join("full-log");
    std::fs::create_dir_all(&folder)?;
    for bytes in [1_000_000, 64 << 10, 4096, 100] {
        run(&folder, bytes)?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
