//! Cost of an anchor: commits a second of a pool in a file, with and without one, in turns.
//!
//!     cargo run --release -p steadfast-pool --example anchor_commits -- FOLDER [SECONDS]

use std::path::Path;
use std::sync::Arc;

use steadfast_anchor::{FileRegister, FileWitness, Register, Witness};
use steadfast_device::{FileDevice, OpenOptions};
use steadfast_env::Env;
use steadfast_format::PoolGuid;
use steadfast_pool::{AnchorWish, CreateSpec, DeviceHandle, Memory, Pool, Registers};

struct Files {
    env: Env,
    witness: std::path::PathBuf,
}

impl Registers for Files {
    fn register(&self, path: &str) -> Arc<dyn Register> {
        Arc::new(FileRegister::new(Path::new(path), self.env.clock.clone()))
    }

    fn witness(&self, _: PoolGuid) -> Option<Arc<dyn Witness>> {
        Some(Arc::new(FileWitness::new(&self.witness)))
    }
}

fn pool(env: &Env, folder: &Path, anchored: bool) -> Result<Pool, Box<dyn std::error::Error>> {
    let at = |name: &str| folder.join(format!("{name}.{anchored}"));
    let image = at("image");
    std::fs::File::create(&image)?.set_len(256 << 20)?;
    let path = image.display().to_string();
    let device = Arc::new(FileDevice::open(&image, &OpenOptions::WRITE)?);
    let registers = Files { env: env.clone(), witness: at("seen") };
    let spec = CreateSpec {
        name: "tank".into(),
        groups: steadfast_pool::GroupHandles::alone(vec![DeviceHandle { path, device }]),
        ashift: 12,
        force: true,
        pool_props: Default::default(),
        root_props: Default::default(),
        key: None,
        aux: Default::default(),
        anchor: AnchorWish {
            registers: Some(Arc::new(registers)),
            path: anchored.then(|| at("anchor").display().to_string()),
            ..AnchorWish::default()
        },
        host: "host".into(),
        memory: Memory::default(),
    };
    Ok(Pool::create(env, spec)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| ".".into());
    let seconds: u64 = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let folder = Path::new(&folder).join("anchor-commits");
    std::fs::create_dir_all(&folder)?;
    let env = Env::real();
    let pools = [pool(&env, &folder, false)?, pool(&env, &folder, true)?];
    let (mut commits, mut nanos) = ([0_u64; 2], [0_u64; 2]);
    let end = env.clock.monotonic_ns() + seconds * 1_000_000_000;
    while env.clock.monotonic_ns() < end {
        for (index, pool) in pools.iter().enumerate() {
            for _ in 0..5 {
                let began = env.clock.monotonic_ns();
                pool.set_pool_prop("comment", Some(&commits[index].to_string()))?;
                nanos[index] += env.clock.monotonic_ns() - began;
                commits[index] += 1;
            }
        }
    }
    for (index, name) in ["without", "with"].into_iter().enumerate() {
        let each = nanos[index] as f64 / commits[index] as f64 / 1e6;
        println!("{name:8} {:6} commits, {each:.3} ms each, {:.1} a second", commits[index], 1e3 / each);
    }
    if let Some(anchor) = pools[1].state().anchor {
        println!("swaps    {} of {} bytes, one sync each", anchor.swaps, 4096);
    }
    for pool in pools {
        pool.export()?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
