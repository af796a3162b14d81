//! Requests over the kernel's io_uring queues, where root has allowed them
//! (`echo Y > /sys/module/fuse/parameters/enable_uring`); elsewhere the tests say so and pass.

use crate::common::memfs::MemFs;
use crate::common::*;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use steadfast_fuse::wire::init::flag::OVER_IO_URING;
use steadfast_fuse::wire::request::Operation;
use steadfast_fuse::*;

/// Mounts `handler` over queues and runs `body`.
fn over_queues(name: &'static str, handler: Arc<dyn Handler>, body: impl FnOnce(&Bench) + Send + 'static) {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED {name}: {why}");
    }
    let mut wish = options();
    wish.io_uring = true;
    let (bench, dir) = start(name, wish, Arc::default(), handler);
    limited(name, &dir, move || {
        if bench.session.negotiated().flags & OVER_IO_URING != 0 {
            body(&bench);
        } else {
            let said = bench.log.lock().unwrap().join("; ");
            assert!(said.contains("come over /dev/fuse"), "an operator who asked for queues is told: {said}");
            eprintln!("SKIPPED {name}: {said}");
        }
        unmount(&bench.session).expect("nothing is in use after a test");
    });
    fs::remove_dir(&dir).unwrap();
}

/// Lookups of names that begin with `wait` block until the gate opens; `nested` looks at its own
/// mount; `busy-N` is refused as long as it may not wait.
#[derive(Default)]
struct Blocking {
    inner: MemFs,
    open: Mutex<bool>,
    opened: Condvar,
    inside: AtomicUsize,
    dir: Mutex<PathBuf>,
    refused: AtomicUsize,
}

impl Blocking {
    fn set_open(&self, open: bool) {
        *self.open.lock().unwrap() = open;
        self.opened.notify_all();
    }
}

impl Handler for Blocking {
    fn is_quick(&self, operation: &Operation<'_>) -> bool {
        match operation {
            Operation::Lookup { name } => name.starts_with(b"busy"),
            Operation::Read { .. } | Operation::Write { .. } => false,
            _ => true,
        }
    }

    fn lookup(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<Entry> {
        if name.starts_with(b"wait") {
            assert!(req.may_wait, "not on a thread that others wait for");
            self.inside.fetch_add(1, Ordering::SeqCst);
            let mut open = self.open.lock().unwrap();
            while !*open {
                open = self.opened.wait(open).unwrap();
            }
            self.inside.fetch_sub(1, Ordering::SeqCst);
            return Err(Errno::ENOENT);
        }
        if name == b"nested" {
            let own = fs::metadata(self.dir.lock().unwrap().join("real")).unwrap();
            assert_eq!(own.size(), 3);
            return Err(Errno::EBUSY);
        }
        if name.starts_with(b"busy") {
            if !req.may_wait {
                self.refused.fetch_add(1, Ordering::SeqCst);
                return Err(Errno::EAGAIN);
            }
            assert_eq!(name, b"busy-name", "the request came to the second attempt as it was");
            return Err(Errno::EXDEV);
        }
        self.inner.lookup(req, parent, name)
    }
    fn forget(&self, forgets: &[Forget]) {
        self.inner.forget(forgets);
    }
    fn getattr(&self, req: &Request, ino: u64, fh: Option<u64>) -> Reply<AttrReply> {
        self.inner.getattr(req, ino, fh)
    }
    fn setattr(&self, req: &Request, ino: u64, set: &SetAttr) -> Reply<AttrReply> {
        self.inner.setattr(req, ino, set)
    }
    fn create(
        &self,
        req: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        args: &OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        self.inner.create(req, parent, name, mode, args)
    }
    fn open(&self, req: &Request, ino: u64, args: &OpenArgs) -> Reply<Opened> {
        self.inner.open(req, ino, args)
    }
    fn release(&self, req: &Request, args: &ReleaseArgs) -> Reply<()> {
        self.inner.release(req, args)
    }
    fn read(&self, req: &Request, args: &ReadArgs, out: &mut [u8]) -> Reply<usize> {
        self.inner.read(req, args, out)
    }
    fn write(&self, req: &Request, args: &WriteArgs, data: &[u8]) -> Reply<usize> {
        self.inner.write(req, args, data)
    }
}

/// [uring.3] More handlers block than a queue begins with entries, on every queue; meanwhile others
///      are served, and handlers that use their own mount [uring.1].
#[test]
fn blocked_handlers_do_not_use_up_a_queue() {
    const BLOCKED: usize = 24;
    let handler = Arc::new(Blocking::default());
    let trouble = handler.clone();
    over_queues("blocked", handler, move |b| {
        *trouble.dir.lock().unwrap() = b.dir.clone();
        fs::write(b.dir.join("real"), b"abc").unwrap();
        std::thread::scope(|scope| {
            for i in 0..BLOCKED {
                let path = b.dir.join(format!("wait-{i}"));
                scope.spawn(move || assert_eq!(errno(fs::metadata(path)), libc::ENOENT));
            }
            eventually(|| trouble.inside.load(Ordering::SeqCst) == BLOCKED);
            // From several threads, that is: from every processor, sooner or later.
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        assert_eq!(errno(fs::metadata(b.dir.join("nested"))), libc::EBUSY);
                        assert_eq!(fs::read(b.dir.join("real")).unwrap(), b"abc");
                    }
                });
            }
            assert_eq!(errno(fs::metadata(b.dir.join("nested"))), libc::EBUSY);
            // All entries that the queues have now are taken and given back a few times over.
            for round in 0..3 {
                trouble.set_open(true);
                eventually(|| trouble.inside.load(Ordering::SeqCst) == 0);
                trouble.set_open(false);
                for i in 0..BLOCKED {
                    let path = b.dir.join(format!("wait-{round}-{i}"));
                    scope.spawn(move || assert_eq!(errno(fs::metadata(path)), libc::ENOENT));
                }
                eventually(|| trouble.inside.load(Ordering::SeqCst) == BLOCKED);
                assert_eq!(fs::read(b.dir.join("real")).unwrap(), b"abc");
            }
            trouble.set_open(true);
        });
    });
}

#[test]
fn what_would_have_to_wait_is_served_where_it_may() {
    let handler = Arc::new(Blocking::default());
    let trouble = handler.clone();
    over_queues("would-wait", handler, move |b| {
        for _ in 0..100 {
            assert_eq!(errno(fs::metadata(b.dir.join("busy-name"))), libc::EXDEV);
        }
        assert_eq!(trouble.refused.load(Ordering::SeqCst), 100);
    });
}

/// Payloads of all sizes go both ways, served by queues' threads and by workers.
#[test]
fn bytes_are_the_same_over_queues() {
    over_queues("bytes", Arc::new(Blocking::default()), round_trips);
    over_queues("bytes-quick", Arc::new(MemFs::default()), round_trips);
}

fn round_trips(b: &Bench) {
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                let path = b.dir.join(format!("file-{thread}"));
                for size in [1, 4095, 4096, 4097, 70_000, (1 << 20) - 1, (1 << 20) + 1, 3_000_000] {
                    let bytes: Vec<u8> = (0..size as u32)
                        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 ^ thread)
                        .collect();
                    fs::write(&path, []).unwrap();
                    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&bytes, 0).unwrap();
                    assert!(fs::read(&path).unwrap() == bytes, "{size} bytes");
                    let mut tail = [0; 1];
                    File::open(&path).unwrap().read_exact_at(&mut tail, size as u64 - 1).unwrap();
                    assert_eq!(tail[0], bytes[size - 1]);
                }
            });
        }
    });
}

/// The connection may end while handlers are at work: they finish, and the session ends once.
#[test]
fn an_abort_in_the_middle_of_requests_ends_the_session() {
    let handler = Arc::new(Blocking::default());
    let trouble = handler.clone();
    over_queues("abort", handler, move |b| {
        std::thread::scope(|scope| {
            for i in 0..6 {
                let path = b.dir.join(format!("wait-{i}"));
                scope.spawn(move || errno(fs::metadata(path)));
            }
            eventually(|| trouble.inside.load(Ordering::SeqCst) == 6);
            cut_connection(&b.dir);
        });
        assert!(!b.session.has_ended(), "handlers are at work");
        trouble.set_open(true);
        b.session.wait();
        assert_eq!(trouble.inside.load(Ordering::SeqCst), 0);
    });
}

/// Cuts the connection under a mount, as `umount -f` does.
fn cut_connection(dir: &std::path::Path) {
    rustix::mount::unmount(dir, rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH)
        .unwrap();
}
