//! An empty file system in memory, served until standard input ends: what the transport and the
//! kernel cost by themselves, with handlers that do next to nothing. Measurements compare a file
//! system with it; it also serves for trying things by hand.
//!
//! `cargo run --release -p steadfast-fuse --example memfs -- DIRECTORY [SWITCH=VALUE...]`
//!
//! Says `mounted` when the directory can be used. Switches are those of the transport
//! (`steadfast_fuse::SWITCHES`), and `allow_other=on`, `posix_acl=on`.

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/common/memfs.rs"]
mod memfs;

use std::path::Path;
use std::sync::Arc;
use steadfast_fuse::{MountOptions, Session, UnmountMode};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let Some(directory) = words.next() else { return Err("which directory?".into()) };
    let mut options = MountOptions::new("memory");
    options.subtype = Some("memfs".into());
    for word in words {
        match word.as_str() {
            "allow_other=on" => options.allow_other = true,
            "posix_acl=on" => options.posix_acl = true,
            switch => options.set_switch(switch)?,
        }
    }
    options.log = Some(Arc::new(|event| eprintln!("memfs: {event}")));
    let session = Session::mount(Path::new(&directory), &options, Arc::new(memfs::MemFs::default()))?;
    eprintln!("memfs: {:?}", session.negotiated());
    println!("mounted");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    session.unmount(UnmountMode::Clean)?;
    Ok(())
}
