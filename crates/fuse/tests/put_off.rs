//! An `fsync` is put off until no other request waits, so that what they ask for shares its flush;
//! never behind one that may take long. Those of the session itself reach no handler.

use crate::common::*;
use std::fs::{self, File};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use steadfast_fuse::wire::request::Operation;
use steadfast_fuse::*;

const FILE: u64 = 2;

/// A root and one file. Lookups of other names wait for their gate; those of `busy` say so if they
/// may not.
#[derive(Default)]
struct Gates {
    open: Mutex<Vec<String>>,
    opened: Condvar,
    syncs: AtomicUsize,
}

impl Gates {
    fn open(&self, name: &str) {
        self.open.lock().unwrap().push(name.to_owned());
        self.opened.notify_all();
    }
}

fn attr(ino: u64) -> Attr {
    let mode = if ino == FILE { libc::S_IFREG | 0o644 } else { libc::S_IFDIR | 0o755 };
    Attr { ino, mode, nlink: 1, ..Attr::default() }
}

impl Handler for Gates {
    fn is_quick(&self, operation: &Operation<'_>) -> bool {
        matches!(operation, Operation::Lookup { name } if *name != b"long")
    }
    fn lookup(&self, req: &Request, _: u64, name: &[u8]) -> Reply<Entry> {
        if name == b"file" {
            let (attr, ttl) = (attr(FILE), TTL_LONG);
            return Ok(Entry { ino: FILE, generation: 0, attr, entry_ttl: ttl, attr_ttl: ttl });
        }
        if !req.may_wait {
            return Err(Errno::EAGAIN);
        }
        let name = std::str::from_utf8(name).unwrap();
        let mut open = self.open.lock().unwrap();
        while !open.iter().any(|gate| gate == name) {
            open = self.opened.wait(open).unwrap();
        }
        Err(Errno::ENOENT)
    }
    fn getattr(&self, _: &Request, ino: u64, _: Option<u64>) -> Reply<AttrReply> {
        Ok(AttrReply { attr: attr(ino), ttl: TTL_LONG })
    }
    fn open(&self, _: &Request, _: u64, _: &OpenArgs) -> Reply<Opened> {
        Ok(Opened { no_flush: true, ..Opened::default() })
    }
    fn fsync(&self, _: &Request, _: u64, _: u64, _: bool) -> Reply<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Waits until the thread that tells its number sleeps: its request is under way. Should it sleep
/// for another reason, the test shows less and fails no more.
fn until_asleep(heard: &mpsc::Receiver<i32>) {
    let path = format!("/proc/self/task/{}/stat", heard.recv().unwrap());
    let is_running = |stat: String| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R'));
    while fs::read_to_string(&path).is_ok_and(is_running) {
        std::thread::yield_now();
    }
}

#[test]
fn an_fsync_does_not_wait_for_what_came_later() {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED an_fsync_does_not_wait_for_what_came_later: {why}");
    }
    for later in ["busy", "long"] {
        let gates = Arc::new(Gates::default());
        let mut one = options();
        // The only thread there is.
        (one.threads, one.threads_max) = (Some(1), 1);
        let (bench, dir) = start("put-off", one, Arc::default(), gates.clone());
        let place = dir.clone();
        limited("put-off", &dir, move || {
            let file = File::open(place.join("file")).unwrap();
            let (tell, heard) = mpsc::channel();
            let tell_number = move || tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            std::thread::scope(|scope| {
                let look = |name: &'static str| {
                    let (path, tell_number) = (place.join(name), tell_number.clone());
                    scope.spawn(move || {
                        tell_number();
                        fs::symlink_metadata(path).unwrap_err()
                    });
                    until_asleep(&heard);
                };
                look("first");
                let (file, told) = (&file, tell_number.clone());
                let sync = scope.spawn(move || {
                    told();
                    file.sync_all().unwrap();
                });
                until_asleep(&heard);
                look(later);
                gates.open("first");
                sync.join().unwrap();
                assert_eq!(gates.syncs.load(Ordering::SeqCst), 1);
                gates.open(later);
            });
            drop(file);
            unmount(&bench.session).expect("nothing is in use after a test");
        });
        fs::remove_dir(&dir).unwrap();
    }
}

#[test]
fn pages_are_written_out_without_asking_for_a_commit() {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED pages_are_written_out_without_asking_for_a_commit: {why}");
    }
    let gates = Arc::new(Gates::default());
    let (bench, dir) = start("own-syncs", options(), Arc::default(), gates.clone());
    let place = dir.clone();
    limited("own-syncs", &dir, move || {
        let file = File::options().write(true).open(place.join("file")).unwrap();
        bench.session.write_out(&[(FILE, 0)]).unwrap();
        assert_eq!(gates.syncs.load(Ordering::SeqCst), 0, "writers of the file would wait for it");
        file.sync_all().unwrap();
        assert_eq!(gates.syncs.load(Ordering::SeqCst), 1, "a program's own");
        drop(file);
        unmount(&bench.session).expect("nothing is in use after a test");
    });
    fs::remove_dir(&dir).unwrap();
}
