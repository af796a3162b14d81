//! What does one request cost? A mount whose handler does nothing, so that only kernel and
//! transport are left.
//!
//! `cargo bench -p steadfast-fuse` prints thousands of calls a second (and GB/s for 1 MiB calls) by
//! number of client threads and of server threads. Needs root. One second per cell; on a busy
//! machine take the best of several.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use steadfast_fuse::*;

/// A root directory and one file of 1 GiB that holds whatever the reply's memory holds.
struct Null;

const FILE: u64 = 2;

fn attr(ino: u64) -> Attr {
    let mode = if ino == FILE { libc::S_IFREG | 0o644 } else { libc::S_IFDIR | 0o755 };
    Attr { ino, mode, nlink: 1, size: if ino == FILE { 1 << 30 } else { 0 }, ..Attr::default() }
}

impl Handler for Null {
    fn lookup(&self, _: &Request, _: u64, name: &[u8]) -> Reply<Entry> {
        if name != b"file" {
            return Err(Errno::ENOENT);
        }
        let (attr, ttl) = (attr(FILE), TTL_LONG);
        Ok(Entry { ino: FILE, generation: 0, attr, entry_ttl: ttl, attr_ttl: Duration::ZERO })
    }
    fn getattr(&self, _: &Request, ino: u64, _: Option<u64>) -> Reply<AttrReply> {
        Ok(AttrReply { attr: attr(ino), ttl: Duration::ZERO })
    }
    fn open(&self, _: &Request, _: u64, _: &OpenArgs) -> Reply<Opened> {
        Ok(Opened { direct_io: true, parallel_direct_writes: true, ..Opened::default() })
    }
    fn read(&self, _: &Request, _: &ReadArgs, out: &mut [u8]) -> Reply<usize> {
        Ok(out.len())
    }
    fn write(&self, _: &Request, _: &WriteArgs, data: &[u8]) -> Reply<usize> {
        Ok(data.len())
    }
}

#[derive(Clone, Copy)]
enum Call {
    Getattr,
    Missing,
    Read(usize),
    Write(usize),
}

/// Calls per second.
fn measure(dir: &Path, call: Call, clients: usize) -> f64 {
    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (stop, calls) = (&stop, &calls);
            scope.spawn(move || {
                let path = dir.join("file");
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .custom_flags(libc::O_DIRECT)
                    .open(path)
                    .unwrap();
                let missing = dir.join("missing");
                let mut buffer = vec![0u8; (1 << 20) + 4096];
                let skip = buffer.as_ptr().align_offset(4096);
                let mut at = client as u64;
                let mut done = 0;
                while !stop.load(Relaxed) {
                    at = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
                    let offset = at >> 40 << 12 & ((1 << 29) - 1);
                    match call {
                        Call::Getattr => drop(file.metadata().unwrap()),
                        Call::Missing => drop(fs::symlink_metadata(&missing).unwrap_err()),
                        Call::Read(size) => {
                            file.read_exact_at(&mut buffer[skip..skip + size], offset).unwrap()
                        }
                        Call::Write(size) => file.write_all_at(&buffer[skip..skip + size], offset).unwrap(),
                    }
                    done += 1;
                }
                calls.fetch_add(done, Relaxed);
            });
        }
        std::thread::sleep(Duration::from_secs(1));
        stop.store(true, Relaxed);
    });
    calls.load(Relaxed) as f64 / begin.elapsed().as_secs_f64()
}

fn main() {
    let dir = std::env::temp_dir().join(format!("steadfast-fuse-bench-{}", std::process::id()));
    fs::create_dir(&dir).unwrap();
    let servers: Vec<usize> = match std::env::var("SERVERS") {
        Ok(list) => list.split(',').map(|n| n.parse().expect("SERVERS=2,4")).collect(),
        Err(_) => vec![2, 4],
    };
    for threads in servers {
        let mut options = MountOptions::new("null");
        options.threads = Some(threads);
        options.set_switches(&std::env::var("SWITCHES").unwrap_or_default()).unwrap();
        let session = match Session::mount(&dir, &options, Arc::new(Null)) {
            Ok(session) => session,
            Err(error) => {
                println!("SKIPPED: {error}");
                break;
            }
        };
        for (name, call, unit) in [
            ("getattr", Call::Getattr, 0),
            ("missing name", Call::Missing, 0),
            ("read 4 KiB", Call::Read(4096), 0),
            ("write 4 KiB", Call::Write(4096), 0),
            ("read 1 MiB", Call::Read(1 << 20), 1 << 20),
            ("write 1 MiB", Call::Write(1 << 20), 1 << 20),
        ] {
            print!("{threads} server threads, {name:12}");
            for clients in [1, 4, 16] {
                let rate = measure(&dir, call, clients);
                match unit {
                    0 => print!("  {clients:2} clients {:6.0} k/s", rate / 1e3),
                    _ => print!("  {clients:2} clients {:6.1} GB/s", rate * f64::from(unit) / 1e9),
                }
            }
            println!("   ({} threads at the end)", session.threads());
        }
        session.unmount(UnmountMode::Clean).unwrap();
    }
    fs::remove_dir(&dir).unwrap();
}
