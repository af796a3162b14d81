//! The work of our own code for a small file: a mount's requests without the kernel, `posix` over a
//! pool in memory. Instructions repeat where times do not:
//!
//! ```text
//! cargo build -p steadfast-pool --example small_files
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='small_files::create' \
//!     target/debug/examples/small_files files=5000
//! ```
//!
//! Each step is a function, so that `--toggle-collect` counts one of them: `create` (LOOKUP,
//! GETATTR of the folder, CREATE), `first_write` (GETXATTR and WRITE, of `bytes` bytes), `tar`
//! (SETATTR of times, owner and mode), `unlink` (GETATTR of the folder, UNLINK), `unlinked` (the
//! SETATTR of a kernel that collects writes), `forget`. Prints the processor time of each, in
//! nanoseconds a file.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use common::{ME, ROOT, handle, mount, spec};
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_pool::Pool;
use steadfast_posix::{Errno, FileSystem, Result, SetAttr, SetTime};

struct Files {
    fs: FileSystem,
    folder: u64,
    bytes: Vec<u8>,
}

fn name(file: u64) -> Vec<u8> {
    format!("file-{file:08}").into_bytes()
}

#[inline(never)]
fn create(files: &Files, file: u64) -> Result<u64> {
    let name = name(file);
    assert_eq!(files.fs.lookup(files.folder, &name).map(|found| found.ino), Err(Errno::ENOENT));
    files.fs.getattr(files.folder)?;
    Ok(files.fs.mknod(ME, files.folder, &name, 0o100_644, 0)?.ino)
}

#[inline(never)]
fn first_write(files: &Files, ino: u64) -> Result<()> {
    assert_eq!(files.fs.getxattr(ino, b"security.capability"), Err(Errno::ENODATA));
    files.fs.write_collected(ino, 0, &files.bytes, false, false).map(drop)
}

#[inline(never)]
fn tar(files: &Files, ino: u64) -> Result<()> {
    let now = files.fs.getattr(ino)?.mtime;
    let times = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::To(now)), ..SetAttr::default() };
    let owner = SetAttr { uid: Some(0), gid: Some(0), ..SetAttr::default() };
    let mode = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    [times, owner, mode].iter().try_for_each(|set| files.fs.setattr(ino, set).map(drop))
}

#[inline(never)]
fn unlink(files: &Files, file: u64) -> Result<()> {
    files.fs.getattr(files.folder)?;
    files.fs.unlink(files.folder, &name(file))
}

#[inline(never)]
fn unlinked(files: &Files, ino: u64) -> Result<()> {
    let mtime = files.fs.getattr(ino)?.mtime;
    let told = SetAttr { mtime: Some(SetTime::To(mtime)), ctime: Some(mtime), ..SetAttr::default() };
    files.fs.setattr(ino, &told).map(drop)
}

#[inline(never)]
fn forget(files: &Files, ino: u64) {
    files.fs.forget(ino, 1);
}

/// Processor time of the calling thread so far, in nanoseconds; 0 where the kernel does not tell.
fn cpu_ns() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (mut count, mut bytes) = (5_000_u64, 1_024);
    for word in std::env::args().skip(1) {
        match word.split_once('=').ok_or("NAME=VALUE")? {
            ("files", value) => count = value.parse()?,
            ("bytes", value) => bytes = value.parse()?,
            (name, _) => return Err(format!("'{name}' is not known").into()),
        }
    }
    let mut spec = spec(vec![handle(&Arc::new(MemoryDevice::new("memory", 16 << 30)))], None);
    spec.force = true;
    let pool = Pool::create(&Env::real(), spec)?;
    let (fs, handle) = mount(&pool, "tank");
    let folder = fs.mkdir(ME, ROOT, b"folder", 0o755).expect("made").ino;
    let files = Files { fs, folder, bytes: vec![b'x'; bytes] };
    let mut inodes = Vec::new();
    let timed = |step: &str, act: &mut dyn FnMut(u64)| {
        let began = cpu_ns();
        (0..count).for_each(act);
        println!("{step} {}", (cpu_ns() - began) / count.max(1));
    };
    timed("create", &mut |file| inodes.push(create(&files, file).expect("made")));
    let of = |file: u64| inodes[usize::try_from(file).expect("fits")];
    timed("first_write", &mut |file| first_write(&files, of(file)).expect("written"));
    timed("tar", &mut |file| tar(&files, of(file)).expect("set"));
    pool.sync()?;
    timed("unlink", &mut |file| unlink(&files, file).expect("removed"));
    timed("unlinked", &mut |file| unlinked(&files, of(file)).expect("told"));
    timed("forget", &mut |file| forget(&files, of(file)));
    drop((files, handle));
    pool.close()?;
    Ok(())
}
