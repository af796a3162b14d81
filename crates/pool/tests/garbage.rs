//! A store of objects is cleaned by its garbage, and small objects are merged.

use std::sync::{Arc, Mutex, PoisonError};

use crate::common::{ME, MIB, ROOT, anchored_in, handle, mount, noise, read_file, spec, write_file};
use steadfast_anchor::MemoryRegister;
use steadfast_device::Operation;
use steadfast_device::objects::{MemoryStore, ObjectDevice};
use steadfast_env::Env;
use steadfast_pool::{Pool, Short};
use steadfast_posix::FileSystem;

struct Bucket {
    store: MemoryStore,
    /// Puts and gets of segments.
    requests: Arc<Mutex<[u64; 2]>>,
    pool: Pool,
}

impl Bucket {
    fn new(capacity: u64) -> Bucket {
        let (store, requests) = (MemoryStore::new("bucket"), Arc::new(Mutex::new([0; 2])));
        let counts = Arc::clone(&requests);
        let counted = store.handle(move |request| {
            let kind = match request.operation {
                Operation::Write => 0,
                Operation::Read => 1,
                _ => return None,
            };
            let of_segment = u64::from(request.name.starts_with("seg/"));
            counts.lock().unwrap_or_else(PoisonError::into_inner)[kind] += of_segment;
            None
        });
        let device = ObjectDevice::open(Arc::new(counted), Some(capacity), [1; 16]).expect("a store");
        let mut spec = spec(vec![handle(&Arc::new(device))], None);
        spec.anchor = anchored_in(&Arc::new(MemoryRegister::new("anchor")));
        let pool = Pool::create(&Env::simulated(1), spec).expect("a pool");
        Bucket { store, requests, pool }
    }

    fn objects(&self) -> usize {
        self.store.names().iter().filter(|name| name.starts_with("seg/")).count()
    }

    /// Bytes of all objects of segments.
    fn bytes(&self) -> u64 {
        let names = self.store.names();
        let segments = names.iter().filter(|name| name.starts_with("seg/"));
        let length = |name: &String| {
            steadfast_device::objects::Store::read(&self.store, name, None).expect("listed").len() as u64
        };
        segments.map(length).sum()
    }

    fn commit(&self) {
        self.pool.sync().expect("committed");
        (0..4).for_each(|_| self.pool.step());
    }

    fn take(&self) -> [u64; 2] {
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// 10,000 commits of one small change each leave a bounded number of objects, and cost a bounded
/// number of requests.
#[test]
fn small_commits_leave_few_objects() {
    const COMMITS: u64 = 10_000;
    let bucket = Bucket::new(1 << 50);
    let (fs, _handle) = mount(&bucket.pool, "tank");
    bucket.take();
    let mut most = 0;
    for number in 0..COMMITS {
        let name = format!("folder {number}").into_bytes();
        fs.mkdir(ME, ROOT, &name, 0o755).expect("made");
        bucket.commit();
        most = most.max(bucket.objects());
    }
    let [puts, gets] = bucket.take();
    println!("{COMMITS} commits: at most {most} objects, {puts} puts, {gets} gets, {} bytes", bucket.bytes());
    assert!(most <= 200, "{most} objects");
    assert!(puts <= COMMITS * 22 / 10, "{puts} puts: two a commit, and what the cleaner adds");
    assert!(gets <= COMMITS * 2, "{gets} gets");
    (0..COMMITS).step_by(997).for_each(|number| {
        fs.lookup(ROOT, format!("folder {number}").as_bytes()).expect("there");
    });
}

/// Deleted bytes are paid for as long as a part of their object lives. The cleaner sees to it that
/// three quarters of all bytes stored live, however large the bucket, and then stops.
#[test]
fn a_large_bucket_is_cleaned_by_its_garbage() {
    let bucket = Bucket::new(1 << 50);
    let (fs, _handle) = mount(&bucket.pool, "tank");
    // Small files, of which every object has some.
    for number in 0..6000_u64 {
        write_file(&fs, ROOT, format!("{number}").as_bytes(), &noise(number + 1, 64 << 10));
        if number % 1000 == 999 {
            bucket.commit();
        }
    }
    let full = bucket.bytes();
    assert!(full >= 350 * MIB);
    for number in (0..6000_u64).filter(|number| number % 4 != 0) {
        fs.unlink(ROOT, format!("{number}").as_bytes()).expect("removed");
    }
    for _ in 0..200 {
        bucket.commit();
    }
    let cleaned = bucket.bytes();
    let accounting = bucket.pool.state().accounting;
    println!("{full} bytes, then {cleaned}; {} live", accounting.live_bytes);
    // Living bytes, a third of them, and 64 objects that count an eighth of a slot each.
    let most = accounting.live_bytes * 4 / 3 + 64 * u64::from(accounting.slot_size) / 8 + 16 * MIB;
    assert!(cleaned <= most, "{cleaned} bytes are stored for {} that live", accounting.live_bytes);
    // It does not go on for ever.
    bucket.take();
    for number in 0..20_u64 {
        fs.mkdir(ME, ROOT, format!("folder {number}").as_bytes(), 0o755).expect("made");
        bucket.commit();
    }
    let [puts, gets] = bucket.take();
    assert!(puts <= 50 && gets <= 60, "{puts} puts and {gets} gets of 20 small commits");
    for number in (0..6000_u64).step_by(4) {
        assert!(read_file(&fs, ROOT, format!("{number}").as_bytes()) == noise(number + 1, 64 << 10));
    }
}

/// A small object takes what it holds of the capacity, and not a slot.
#[test]
fn space_is_counted_in_bytes() {
    let bucket = Bucket::new(256 * MIB);
    let (fs, _handle) = mount(&bucket.pool, "tank");
    let before = bucket.pool.state().accounting;
    for number in 0..100_u64 {
        write_file(&fs, ROOT, format!("{number}").as_bytes(), &noise(number + 1, 8 << 10));
        bucket.pool.sync().expect("committed");
    }
    let after = bucket.pool.state().accounting;
    let taken = before.free_bytes - after.free_bytes;
    println!("{} objects take {taken} bytes", bucket.objects());
    assert!(taken <= 16 * MIB, "{taken} bytes are taken by 800 KiB of content");
    assert_eq!((before.size_bytes, before.capacity_bytes), (after.size_bytes, after.capacity_bytes));
}

/// Commits until what was cleaned away is deleted, and tells bytes of objects and those that live.
fn settle(bucket: &Bucket, fs: &FileSystem, turn: u32) -> (u64, u64) {
    for number in 0..10 {
        fs.mkdir(ME, ROOT, format!("folder {turn} {number}").as_bytes(), 0o755).expect("made");
        bucket.commit();
    }
    (bucket.bytes(), bucket.pool.state().accounting.live_bytes)
}

/// A budget that is nearly used up holds the cleaner: no commit is made for it either, and no
/// writer is held up by what is not cleaned. It goes on when there is room in the budget again.
#[test]
fn a_budget_holds_the_cleaner_until_there_is_room_in_it() {
    let bucket = Bucket::new(1 << 50);
    let (fs, _handle) = mount(&bucket.pool, "tank");
    for number in 0..1600_u64 {
        write_file(&fs, ROOT, format!("{number}").as_bytes(), &noise(number + 1, 64 << 10));
    }
    bucket.commit();
    bucket.pool.hold_background(Short { requests: true, egress: false });
    for number in (0..1600_u64).filter(|number| number % 8 != 0) {
        fs.unlink(ROOT, format!("{number}").as_bytes()).expect("removed");
    }
    (0..4).for_each(|_| bucket.commit());
    let dirty = bucket.bytes();
    assert!(dirty >= 100 * MIB, "{dirty} bytes");
    bucket.take();
    (0..100).for_each(|_| bucket.pool.step());
    assert_eq!(bucket.take(), [0, 0], "puts and gets while nothing is written");
    fs.mkdir(ME, ROOT, b"folder", 0o755).expect("made");
    bucket.commit();
    let [puts, gets] = bucket.take();
    assert!(puts <= 4 && gets <= 4, "{puts} puts and {gets} gets of one small commit");

    bucket.pool.hold_background(Short::default());
    (0..100).for_each(|_| bucket.pool.step());
    settle(&bucket, &fs, 2);
    let cleaned = bucket.bytes();
    println!("{dirty} bytes while it was held, {cleaned} then");
    let live = bucket.pool.state().accounting.live_bytes;
    assert!(cleaned <= live * 4 / 3 + 80 * MIB && cleaned < dirty - 20 * MIB, "{cleaned} bytes, {live} live");
    for number in (0..1600_u64).step_by(8) {
        assert!(read_file(&fs, ROOT, format!("{number}").as_bytes()) == noise(number + 1, 64 << 10));
    }
}

/// Prices say how much garbage is left: none of it is touched where a copy is dear, and more of it
/// goes where copies cost nothing.
#[test]
fn prices_say_how_much_garbage_is_left() {
    let bucket = Bucket::new(1 << 50);
    let (fs, _handle) = mount(&bucket.pool, "tank");
    let store = bucket.pool.state().leaves[0].config.id;
    assert_eq!(bucket.pool.garbage_share(store), 333);
    for number in 0..2400_u64 {
        write_file(&fs, ROOT, format!("{number}").as_bytes(), &noise(number + 1, 64 << 10));
    }
    bucket.commit();
    // 84 MiB of 150 are garbage: with what objects themselves count, more than a third of what
    // lives and 64 objects, and less than all of it.
    bucket.pool.set_garbage_share(store, Some(1_000));
    for number in (0..2400_u64).filter(|number| number % 25 < 14) {
        fs.unlink(ROOT, format!("{number}").as_bytes()).expect("removed");
    }
    let (kept, live) = settle(&bucket, &fs, 1);
    assert!(kept - live > 75 * MIB, "{kept} bytes are stored, {live} live");
    bucket.pool.set_garbage_share(store, None);
    let (third, live) = settle(&bucket, &fs, 2);
    println!("{kept} bytes are stored, then {third}, {live} live");
    assert!(third < kept - 20 * MIB, "{third} bytes are stored, {live} live");
}
