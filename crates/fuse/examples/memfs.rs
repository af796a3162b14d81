//! Mounts a file system in memory at a directory and serves until it is unmounted, for trying things by hand:
//! `cargo run -p steadfast-fuse --example memfs -- DIRECTORY`.

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/common/memfs.rs"]
mod memfs;

use std::path::Path;
use std::sync::Arc;
use steadfast_fuse::{MountOptions, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(directory) = std::env::args().nth(1) else { return Err("which directory?".into()) };
    let mut options = MountOptions::new("memory");
    options.subtype = Some("memfs".into());
    options.allow_other = std::env::var_os("ALLOW_OTHER").is_some();
    options.posix_acl = std::env::var_os("POSIX_ACL").is_some();
    options.writeback_cache = std::env::var_os("WRITEBACK").is_some();
    options.log = Some(Arc::new(|event| eprintln!("memfs: {event}")));
    let session = Session::mount(Path::new(&directory), &options, Arc::new(memfs::MemFs::default()))?;
    eprintln!("memfs: {} at {}; {:?}", options.fs_name, session.mountpoint().display(), session.negotiated());
    eprintln!("memfs: ended: {:?}", session.wait());
    Ok(())
}
