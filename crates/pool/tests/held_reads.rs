//! A read that waits for its device holds nobody else up: no lock is held meanwhile. And while
//! labels are written, what is to follow is known.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{ME, MIB, ROOT, handle, import, mount, noise, read_file, spec, write_file};
use steadfast_device::memory::{Effect, Fault};
use steadfast_device::{Character, Device, MemoryDevice, Operation, Result, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::dirent::first_cookie;
use steadfast_format::medium::UBERBLOCK_SIZE;
use steadfast_format::{GroupClass, InodeId, Txg};
use steadfast_pool::{
    CreateSpec, DeviceHandle, GroupHandles, Pool, Redundancy, ScanKind, ScanState, ScrubCommand,
};
use steadfast_posix::Errno;

/// A device that holds back one read, or one writing of a label, until it is told to go on.
struct Holding {
    below: MemoryDevice,
    /// Reads of at least so many bytes are for holding; `usize::MAX`: none.
    from_bytes: AtomicUsize,
    /// Labels are for holding.
    labels: AtomicBool,
    gate: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Holding {
    fn new() -> Arc<Holding> {
        let below = MemoryDevice::new("memory", 64 * MIB);
        let (from_bytes, labels) = (AtomicUsize::new(usize::MAX), AtomicBool::new(false));
        Arc::new(Holding { below, from_bytes, labels, gate: Mutex::new(None) })
    }

    /// Holds the next read of at least `bytes`. Gives what says that it has come, and what lets it
    /// go.
    fn hold(&self, bytes: usize) -> (Receiver<()>, Sender<()>) {
        let ends = self.close();
        self.from_bytes.store(bytes, Ordering::SeqCst);
        ends
    }

    /// Holds the next writing of a label.
    fn hold_label(&self) -> (Receiver<()>, Sender<()>) {
        let ends = self.close();
        self.labels.store(true, Ordering::SeqCst);
        ends
    }

    fn close(&self) -> (Receiver<()>, Sender<()>) {
        let (come, arrived) = channel();
        let (release, go) = channel();
        *self.gate.lock().unwrap() = Some((come, go));
        (arrived, release)
    }

    fn wait(&self) {
        let gate = self.gate.lock().unwrap().take();
        if let Some((come, go)) = gate {
            come.send(()).expect("the test listens");
            go.recv().expect("the test lets go");
        }
    }
}

impl Device for Holding {
    fn character(&self) -> Character {
        self.below.character()
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()> {
        self.below.put_segment(place, bytes)
    }

    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        self.below.append_segment(place, offset, bytes)
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        if out.len() >= self.from_bytes.load(Ordering::SeqCst) {
            self.wait();
        }
        self.below.read_segment(place, offset, out)
    }

    fn discard_segment(&self, place: SegmentPlace) -> Result<()> {
        self.below.discard_segment(place)
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> Result<()> {
        if self.labels.load(Ordering::SeqCst) {
            self.wait();
        }
        self.below.write_label(copy, bytes)
    }

    fn read_label(&self, copy: usize) -> Result<Vec<u8>> {
        self.below.read_label(copy)
    }

    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        self.below.write_uberblock(copy, txg, bytes)
    }

    fn read_uberblocks(&self, copy: usize) -> Result<Vec<Vec<u8>>> {
        self.below.read_uberblocks(copy)
    }

    fn flush(&self) -> Result<()> {
        self.below.flush()
    }
}

/// Does `work` on a thread of its own and fails, instead of hanging, if it never ends.
fn ends(what: &str, work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let (done, finished) = channel();
        scope.spawn(move || {
            work();
            done.send(()).expect("the test listens");
        });
        finished.recv_timeout(Duration::from_secs(300)).unwrap_or_else(|_| {
            eprintln!("{what} waits for a read of somebody else");
            std::process::abort();
        });
    });
}

/// A pool with two files of content and two thousand small ones, as it is found after an import:
/// nothing is cached.
fn imported(env: &Env) -> (Arc<Holding>, Pool) {
    let device = Holding::new();
    let pool = Pool::create(env, spec(vec![handle(&device)], None)).expect("a pool");
    {
        let (fs, _handle) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"held", &noise(1, 1 << 20));
        write_file(&fs, ROOT, b"other", &noise(2, 1 << 20));
        let many = fs.mkdir(ME, ROOT, b"many", 0o755).expect("made").ino;
        for number in 0..2_000 {
            let name = format!("a name of some length, number {number}");
            fs.mknod(ME, many, name.as_bytes(), 0o100_644, 0).expect("made");
        }
    }
    pool.export().expect("exported");
    drop(pool);
    let pool = import(env, vec![handle(&device)], None).expect("imported");
    (device, pool)
}

#[test]
fn a_held_read_of_content_stops_nobody_else() {
    let env = Env::real();
    let (device, pool) = imported(&env);
    let (fs, _handle) = mount(&pool, "tank");
    assert!(read_file(&fs, ROOT, b"other") == noise(2, 1 << 20));
    let held = fs.lookup(ROOT, b"held").expect("found").ino;
    let (arrived, release) = device.hold(64 << 10);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut out = vec![0; 4096];
            fs.read(held, 0, &mut out).expect("read in the end");
            out
        });
        arrived.recv().expect("the read came to the device");
        ends("a cached read", || assert!(read_file(&fs, ROOT, b"other") == noise(2, 1 << 20)));
        ends("a lookup", || {
            fs.lookup(ROOT, b"other").expect("found");
            assert_eq!(fs.lookup(ROOT, b"nothing").unwrap_err(), Errno::ENOENT);
        });
        ends("a read of the same file elsewhere", || {
            let mut out = vec![0; 4096];
            fs.read(held, 512 << 10, &mut out).expect("read");
            assert!(out == noise(1, 1 << 20)[512 << 10..][..4096]);
        });
        ends("a write to the same file", || {
            fs.write(held, 256 << 10, b"new", false).expect("written");
        });
        ends("a create", || _ = write_file(&fs, ROOT, b"new", &noise(3, 300_000)));
        ends("a commit", || pool.sync().expect("durable"));
        ends("a read of what was made", || {
            assert!(read_file(&fs, ROOT, b"new") == noise(3, 300_000));
        });
        release.send(()).expect("the read waits");
        assert!(reader.join().expect("it ends") == noise(1, 1 << 20)[..4096]);
    });
    drop(fs);
}

#[test]
fn a_held_lookup_stops_nobody_else() {
    let env = Env::real();
    let (device, pool) = imported(&env);
    let (fs, _handle) = mount(&pool, "tank");
    let many = fs.lookup(ROOT, b"many").expect("found").ino;
    assert!(read_file(&fs, ROOT, b"other") == noise(2, 1 << 20));
    // In the order in which they lie in the leaves. A look-up that wants the leaf that is held
    // waits with its reader; the names of the second half lie in others.
    let place = |name: &[u8]| first_cookie(fs.dataset().hash_seed(), name);
    let mut names: Vec<String> =
        (0..2_000).map(|number| format!("a name of some length, number {number}")).collect();
    names.sort_by_key(|name| place(name.as_bytes()));
    let middle = place(names[1_000].as_bytes());
    let new = (0..).map(|number| format!("new {number}")).find(|new| place(new.as_bytes()) > middle);
    let new = new.expect("one of two lies there");
    // The way down is read.
    fs.lookup(many, names[1_999].as_bytes()).expect("found");
    let (arrived, release) = device.hold(1);
    std::thread::scope(|scope| {
        // The first leaf has more than names, and is read.
        let reader = scope.spawn(|| fs.lookup(many, names[500].as_bytes()).expect("found"));
        arrived.recv().expect("a node was wanted from the device");
        ends("a cached read", || assert!(read_file(&fs, ROOT, b"other") == noise(2, 1 << 20)));
        ends("lookups in the same folder", || {
            for name in names.iter().rev().take(500) {
                fs.lookup(many, name.as_bytes()).expect("found");
            }
        });
        ends("a listing", || fs.readdir(many, middle, |_| true).expect("listed"));
        ends("a create in the same folder", || _ = write_file(&fs, many, new.as_bytes(), b"some bytes"));
        let old = names[1_990].as_bytes();
        ends("a removal", || fs.unlink(many, old).expect("removed"));
        fs.mknod(ME, many, old, 0o100_644, 0).expect("made");
        ends("a commit", || pool.sync().expect("durable"));
        release.send(()).expect("the lookup waits");
        reader.join().expect("it ends");
    });
    drop(fs);
}

/// Status names damaged files, and reads names for that.
#[test]
fn who_asks_for_the_status_while_names_are_read_stops_nobody_else() {
    let env = Env::real();
    let (device, pool) = imported(&env);
    let (fs, opened) = mount(&pool, "tank");
    let many = fs.lookup(ROOT, b"many").expect("found").ino;
    // Numbers are counted up: files of that folder, in leaves that nobody has read yet.
    (1..=2_000).step_by(100).for_each(|next| opened.dataset().note_damage(InodeId(many + next), 0..10));
    let (arrived, release) = device.hold(1);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| pool.state().damaged);
        arrived.recv().expect("a node was wanted from the device");
        ends("whether the pool is suspended", || assert_eq!(pool.suspended(), None));
        ends("a create", || _ = write_file(&fs, ROOT, b"new", b"some bytes"));
        ends("a commit", || pool.sync().expect("durable"));
        release.send(()).expect("the status waits");
        let damaged = reader.join().expect("it ends");
        assert!(damaged.len() == 20 && damaged.iter().all(|file| file.path.is_some()), "{damaged:?}");
    });
    drop((fs, opened));
}

/// Nobody commits for it any more.
#[test]
fn nobody_waits_for_a_pool_that_was_exported_or_could_not_be() {
    let env = Env::real();
    for skip in 0.. {
        let device = Holding::new();
        let pool = Pool::create(&env, spec(vec![handle(&device)], None)).expect("a pool");
        pool.sync().expect("committed");
        // The n-th write fails, and all after it: of a commit, or of a label.
        device.below.arm(Fault { operation: Operation::Write, skip, effect: Effect::FailAlways });
        let exported = pool.export();
        ends("a commit of a pool that is none any more", || assert!(pool.sync().is_err()));
        if exported.is_ok() {
            assert!(skip >= 8, "a commit writes four roots, and there are four labels");
            break;
        }
        ends("another export", || pool.export().expect("there is nothing more to be written"));
    }
}

fn named((at, device): (usize, &Arc<Holding>)) -> DeviceHandle {
    DeviceHandle { path: format!("memory {at}"), ..handle(device) }
}

/// A pool of one group.
fn group_of(env: &Env, redundancy: Redundancy, devices: &[Arc<Holding>]) -> Pool {
    let devices = devices.iter().enumerate().map(named).collect();
    let group = GroupHandles { redundancy, class: GroupClass::Normal, devices };
    Pool::create(env, CreateSpec { groups: vec![group], ..spec(Vec::new(), None) }).expect("a pool")
}

/// Waits as `zpool wait` does.
fn finish(pool: &Pool) {
    loop {
        // Asked before the look: the turn that ends it is not missed.
        let seen = pool.turns();
        if pool.scan_remaining() == [0, 0] {
            break;
        }
        pool.wait_turn(seen, Duration::from_secs(600));
    }
}

/// The same for what moves things from devices to others.
fn finish_move(pool: &Pool) {
    loop {
        let seen = pool.turns();
        if pool.move_remaining().is_none() {
            break;
        }
        pool.wait_turn(seen, Duration::from_secs(600));
    }
}

#[test]
fn who_asks_how_far_a_scrub_is_waits_for_no_device() {
    let devices = [Holding::new(), Holding::new()];
    let pool = group_of(&Env::real(), Redundancy::Mirror, &devices);
    {
        let (fs, _handle) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"content", &noise(1, 2 << 20));
    }
    let (arrived, release) = devices[0].hold(64 << 10);
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    arrived.recv().expect("the scrub came to the device");
    ends("status of a scrub", || {
        assert_eq!(pool.state().scan.map(|scan| scan.state), Some(ScanState::Active));
        assert!(pool.scan_remaining()[0] > 0, "it goes on");
    });
    release.send(()).expect("the scrub waits");
    ends("the end of a scrub", || finish(&pool));
    let scan = pool.state().scan.expect("a scrub");
    assert_eq!((scan.state, scan.lost), (ScanState::Finished, 0));
}

/// Where a device takes the place of another by itself, the first that anybody sees of it is the
/// device.
#[test]
fn who_sees_a_new_device_and_waits_for_its_resilver_waits_for_its_end() {
    let (env, devices) = (Env::real(), [Holding::new(), Holding::new(), Holding::new()]);
    let pool = group_of(&env, Redundancy::Raidz(1), &devices);
    {
        let (fs, _handle) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"content", &noise(1, 2 << 20));
    }
    pool.export().expect("exported");
    drop(pool);
    let left = devices[1..].iter().enumerate().map(|(at, device)| named((at + 1, device)));
    let pool = import(&env, left.collect(), None).expect("imported without the first");
    // The resilver of that import finds no room for what is missing, which is nothing to wait for.
    ends("what has no room", || finish(&pool));
    let new = Holding::new();
    // Labels of the others are written when it is a part of the pool.
    let (arrived, release) = devices[1].hold_label();
    std::thread::scope(|scope| {
        let verb = scope.spawn(|| pool.replace("memory 0", named((3, &new)), false));
        arrived.recv().expect("a label came to the device");
        let (seen, left) = (pool.device_paths(), pool.scan_remaining());
        release.send(()).expect("the label waits");
        assert!(seen.contains(&"memory 3".to_owned()), "{seen:?}");
        assert_eq!(left, [0, 1], "a resilver is about to begin");
        verb.join().expect("it ends").expect("replaced");
    });
    ends("a resilver", || finish(&pool));
    pool.offline("memory 1").expect("all of it lies on the others");
    let (fs, _handle) = mount(&pool, "tank");
    assert!(read_file(&fs, ROOT, b"content") == noise(1, 2 << 20));
    drop(fs);
}

#[test]
fn who_sees_a_group_that_is_wider_and_waits_for_it_waits_until_it_is_evened_out() {
    let (env, devices) = (Env::real(), [Holding::new(), Holding::new(), Holding::new()]);
    let pool = group_of(&env, Redundancy::Raidz(1), &devices);
    {
        let (fs, _handle) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"content", &noise(1, 2 << 20));
    }
    pool.sync().expect("committed");
    let new = Holding::new();
    let (arrived, release) = devices[1].hold_label();
    std::thread::scope(|scope| {
        let verb = scope.spawn(|| pool.attach("memory 0", named((3, &new)), false));
        arrived.recv().expect("a label came to the device");
        let (seen, left) = (pool.device_paths(), pool.move_remaining());
        release.send(()).expect("the label waits");
        assert!(seen.contains(&"memory 3".to_owned()), "{seen:?}");
        assert_eq!(left, Some((ScanKind::Expand, 1)), "it is about to begin");
        verb.join().expect("it ends").expect("attached");
    });
    ends("the evening out", || finish_move(&pool));
    assert_eq!(pool.state().moving.map(|job| job.state), Some(ScanState::Finished));
}

#[test]
fn who_asks_how_far_a_removal_is_waits_for_no_device() {
    let devices = [Holding::new(), Holding::new()];
    let handles = devices.iter().enumerate().map(named).collect();
    let pool = Pool::create(&Env::real(), spec(handles, None)).expect("a pool");
    {
        let (fs, _handle) = mount(&pool, "tank");
        write_file(&fs, ROOT, b"content", &noise(1, 16 << 20));
    }
    pool.sync().expect("committed");
    let (arrived, release) = devices[0].hold(64 << 10);
    std::thread::scope(|scope| {
        // It waits for a commit, and what it begins may come before that.
        let verb = scope.spawn(|| pool.devices().remove_groups(&["memory 0".to_owned()], false));
        arrived.recv().expect("the removal came to the device");
        ends("status of a removal", || {
            assert_eq!(pool.state().moving.map(|job| job.state), Some(ScanState::Active));
            assert!(matches!(pool.move_remaining(), Some((ScanKind::Remove, 1..))), "it goes on");
        });
        release.send(()).expect("the removal waits");
        verb.join().expect("it ends").expect("begun");
    });
    ends("the end of a removal", || finish_move(&pool));
    assert_eq!(pool.state().moving.map(|job| job.state), Some(ScanState::Finished));
    let (fs, _handle) = mount(&pool, "tank");
    assert!(read_file(&fs, ROOT, b"content") == noise(1, 16 << 20));
    drop(fs);
}
