//! Files opened for nothing but writing bypass the page cache; nobody may notice.

use crate::common::*;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use steadfast_fuse::*;

/// Notes what is written, and stops in the middle of a write if told to.
#[derive(Default)]
struct Watched {
    inner: memfs::MemFs,
    writes: Mutex<Vec<(u64, usize)>>,
    /// Says that a write is in the handler's hands, and waits until it may go on.
    stop: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Handler for Watched {
    fn init(&self, negotiated: &Negotiated) {
        self.inner.init(negotiated);
    }
    fn lookup(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<Entry> {
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
    fn getxattr(&self, _: &Request, _: u64, _: &[u8], _: &mut ValueSink<'_>) -> Reply<()> {
        Err(Errno::ENODATA)
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
    fn fsync(&self, req: &Request, ino: u64, fh: u64, datasync: bool) -> Reply<()> {
        self.writes.lock().unwrap().push((u64::MAX, 0));
        self.inner.fsync(req, ino, fh, datasync)
    }
    fn read(&self, req: &Request, args: &ReadArgs, out: &mut [u8]) -> Reply<usize> {
        self.inner.read(req, args, out)
    }
    fn write(&self, req: &Request, args: &WriteArgs, data: &[u8]) -> Reply<usize> {
        if let Some((reached, go_on)) = self.stop.lock().unwrap().take() {
            reached.send(()).unwrap();
            go_on.recv().unwrap();
        }
        self.writes.lock().unwrap().push((args.offset, data.len()));
        self.inner.write(req, args, data)
    }
}

/// Mounts and runs `body`, if this kernel has direct writes that readers can live with.
fn watched(name: &'static str, body: impl FnOnce(&Bench, &Watched) + Send + 'static) {
    if let Some(why) = obstacle() {
        eprintln!("SKIPPED {name}: {why}");
        return;
    }
    let handler = Arc::new(Watched::default());
    let (bench, dir) = start(name, options(), Arc::default(), handler.clone());
    limited(name, &dir, move || {
        if bench.session.negotiated().direct_writes {
            body(&bench, &handler);
        } else {
            eprintln!("SKIPPED {name}: this kernel leaves old pages to readers");
        }
        unmount(&bench.session).expect("nothing is in use after a test");
    });
    fs::remove_dir(&dir).unwrap();
}

/// One call is one request, wherever it begins and ends.
#[test]
fn each_write_is_one_request() {
    watched("one-request", |b, handler| {
        let file = File::create(b.dir.join("a")).unwrap();
        let sizes = [7168, 10_240, 4835, 1, 100_000];
        let mut at = 0;
        let mut asked = Vec::new();
        for size in sizes {
            file.write_all_at(&vec![7; size], at).unwrap();
            asked.push((at, size));
            at += size as u64;
        }
        assert_eq!(*handler.writes.lock().unwrap(), asked);
        assert_eq!(fs::metadata(b.dir.join("a")).unwrap().len(), at);
        assert!(fs::read(b.dir.join("a")).unwrap() == vec![7; at as usize]);
    });
}

/// A page that somebody reads while a write is on its way does not stay old.
#[test]
fn a_reader_in_the_middle_of_a_write_sees_it_afterwards() {
    watched("reader", |b, handler| {
        let path = b.dir.join("a");
        fs::write(&path, [1; 5000]).unwrap();
        let reader = File::open(&path).unwrap();
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        let mut byte = [0];
        reader.read_exact_at(&mut byte, 100).unwrap();
        let ((reached, in_write), (go_on, gate)) = (channel(), channel());
        *handler.stop.lock().unwrap() = Some((reached, gate));
        std::thread::scope(|scope| {
            let write = scope.spawn(|| writer.write_all_at(&[2; 6000], 0));
            in_write.recv().unwrap();
            reader.read_exact_at(&mut byte, 100).unwrap();
            assert_eq!(byte, [1], "the write is not done");
            go_on.send(()).unwrap();
            write.join().unwrap().unwrap();
        });
        reader.read_exact_at(&mut byte, 100).unwrap();
        assert_eq!(byte, [2], "a page from before the write");
        reader.read_exact_at(&mut byte, 5999).unwrap();
        assert_eq!(byte, [2], "the new end");
    });
}

/// The kernel asks for an fsync behind cached writes only, so files that want one are opened as
/// before.
#[test]
fn a_synchronous_file_is_still_synced() {
    watched("o-sync", |b, handler| {
        for flag in [libc::O_SYNC, libc::O_DSYNC] {
            let path = b.dir.join("a");
            let options = OpenOptions::new().write(true).create(true).custom_flags(flag).clone();
            options.open(&path).unwrap().write_all_at(&[3; 10], 0).unwrap();
            assert_eq!(std::mem::take(&mut *handler.writes.lock().unwrap()), [(0, 10), (u64::MAX, 0)]);
        }
    });
}
