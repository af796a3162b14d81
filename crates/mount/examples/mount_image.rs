//! A pool on one image, mounted without a daemon until standard input ends: for trying the engine
//! alone.
//!
//! `cargo run -p steadfast-mount --example mount_image -- IMAGE MOUNTPOINT [PROPERTY=VALUE...]`

use std::path::Path;
use std::sync::Arc;

use steadfast_device::{FileDevice, OpenOptions};
use steadfast_env::Env;
use steadfast_mount::{MountSpec, MountedFs};
use steadfast_pool::{CreateSpec, DeviceHandle, ImportSpec, Memory, Pool, scan};
use steadfast_posix::{Atime, Usage};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, image, mountpoint, rest @ ..] = args.as_slice() else { return Err("IMAGE MOUNTPOINT".into()) };
    let device = Arc::new(FileDevice::open(Path::new(image), &OpenOptions::WRITE)?);
    let handle = DeviceHandle { path: image.clone(), device };
    let env = Env::real();
    let (mut found, _) = scan(vec![handle.clone()]);
    let pool = if let Some(found) = found.pop() {
        let spec = ImportSpec {
            new_name: None,
            force: true,
            destroyed: false,
            read_only: false,
            accept_lost_log: false,
            to_checkpoint: false,
            secret: None,
            anchor: Default::default(),
            host: "example".into(),
            memory: Memory::default(),
        };
        Pool::import(&env, found, &spec)?
    } else {
        let props = rest.iter().filter_map(|arg| arg.split_once('='));
        let spec = CreateSpec {
            name: "example".into(),
            groups: steadfast_pool::GroupHandles::alone(vec![handle]),
            ashift: 12,
            force: false,
            pool_props: Default::default(),
            root_props: props.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            key: None,
            aux: Default::default(),
            anchor: Default::default(),
            host: "example".into(),
            memory: Memory::default(),
        };
        Pool::create(&env, spec)?
    };
    let pool = Arc::new(pool);
    let dataset = pool.datasets().open_dataset("example")?;
    let for_usage = Arc::clone(&pool);
    let usage = move || {
        let info = for_usage.datasets().dataset_info("example");
        info.map_or(Usage::default(), |info| Usage {
            used_bytes: info.referenced,
            available_bytes: info.available,
        })
    };
    let spec = MountSpec {
        mountpoint: mountpoint.into(),
        fs_name: "example".into(),
        read_only: false,
        atime: Atime::Relative,
        dir_atime: true,
        nosuid: false,
        nodev: false,
        noexec: false,
        acl: true,
        xattr: true,
        utf8_only: false,
        sync_always: false,
        allow_other: true,
        usage: Arc::new(usage),
        switches: String::new(),
        log: Some(Arc::new(|event: &steadfast_fuse::LogEvent| eprintln!("{event}"))),
    };
    let mounted = MountedFs::mount(dataset, &spec)?;
    println!("mounted");
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    mounted.unmount(true)?;
    drop(mounted);
    pool.export()?;
    println!("exported");
    Ok(())
}
