//! Cost of small overwrites of large records, counted at the device.

use std::sync::Arc;

use crate::common::{Dice, ME, MIB, ROOT, handle, import, key, mount, noise, spec};
use crate::counting::CountingDevice;
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_pool::Pool;

const PAGE: u64 = 4096;
const FILE_BYTES: u64 = 32 * MIB;
/// Pages that a txg brings to a record on average: what the default settings give a 1 GiB file at
/// full speed.
const PAGES_PER_RECORD: u64 = 4;
const SECRET: [u8; 32] = [7; 32];

/// Overwrites pages of a file at random, txg by txg; gives bytes that reached the device per byte
/// accepted, from the time on when folding has begun.
fn amplification(sealed: bool) -> f64 {
    let env = Env::seeded(11);
    let device = CountingDevice::new(Arc::new(MemoryDevice::new("d0", 512 * MIB)));
    let pool_key = sealed.then(|| key(&env, &SECRET));
    let pool = Pool::create(&env, spec(vec![handle(&device)], pool_key)).expect("a pool");
    pool.datasets().set_property("tank", "compression", Some("off")).expect("set");
    let (fs, open) = mount(&pool, "tank");
    let file = fs.mknod(ME, ROOT, b"file", 0o100_600, 0).expect("made").ino;
    let mut expected = noise(1, usize::try_from(FILE_BYTES).expect("small"));
    for (number, piece) in (0..).zip(expected.chunks(1 << 20)) {
        fs.write(file, number * MIB, piece, false).expect("written");
    }
    pool.sync().expect("committed");

    let mut dice = Dice(5);
    let mut before = device.counts();
    let (warm_up, rounds) = (10, 24);
    let mut accepted = 0;
    for round in 0..warm_up + rounds {
        if round == warm_up {
            (before, accepted) = (device.counts(), 0);
        }
        for number in 0..FILE_BYTES / (128 << 10) * PAGES_PER_RECORD {
            let page = noise(round << 32 | number, usize::try_from(PAGE).expect("small"));
            let at = dice.below(FILE_BYTES / PAGE) * PAGE;
            fs.write(file, at, &page, false).expect("written");
            let place = usize::try_from(at).expect("small");
            expected[place..place + page.len()].copy_from_slice(&page);
            accepted += PAGE;
        }
        pool.sync().expect("committed");
    }
    let written = device.counts().since(before).written_bytes;
    let counts = open.dataset().overlay_counts();
    assert!(counts.written > 3_000 && counts.folded > 300, "{counts:?}");
    assert_eq!(open.dataset().check().expect("readable"), []);
    drop((fs, open));
    pool.export().expect("exported");
    drop(pool);

    let secret = sealed.then_some(SECRET);
    let pool = import(&env, vec![handle(&device)], secret.as_ref().map(|key| &key[..])).expect("imported");
    let (fs, _open) = mount(&pool, "tank");
    let mut found = vec![0; expected.len()];
    fs.read(file, 0, &mut found).expect("read");
    assert!(found == expected, "what was written is what is read");
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    let ratio = written as f64 / accepted as f64;
    println!("sealed {sealed}: {ratio:.2}, {counts:?}");
    ratio
}

#[test]
fn a_small_overwrite_costs_at_most_two_and_a_half_times_its_bytes() {
    for sealed in [false, true] {
        let ratio = amplification(sealed);
        assert!(ratio <= 2.5, "{ratio:.2}, sealed: {sealed}");
        assert!(ratio > 1.0, "nothing is lost on the way");
    }
}

/// Where little lives the cleaner keeps so much room that txgs stay large: small ones write a leaf
/// for each page.
#[test]
fn a_roomy_pool_costs_no_more_once_it_is_cleaned() {
    let env = Env::seeded(13);
    let device = CountingDevice::new(Arc::new(MemoryDevice::new("d0", 512 * MIB)));
    let pool = Pool::create(&env, spec(vec![handle(&device)], None)).expect("a pool");
    pool.datasets().set_property("tank", "compression", Some("off")).expect("set");
    let (fs, open) = mount(&pool, "tank");
    let file = fs.mknod(ME, ROOT, b"file", 0o100_600, 0).expect("made").ino;
    let bytes = 96 * MIB;
    for at in (0..bytes).step_by(1 << 20) {
        fs.write(file, at, &noise(at, 1 << 20), false).expect("written");
    }
    pool.sync().expect("committed");
    let mut dice = Dice(7);
    let mut overwrite = |pages: u64| {
        for number in 0..pages {
            let at = dice.below(bytes / PAGE) * PAGE;
            fs.write(file, at, &noise(number, usize::try_from(PAGE).expect("small")), false)
                .expect("written");
        }
    };
    // Until every slot was used, and what is written is what the cleaner gives back.
    while device.counts().written_bytes < 640 * MIB {
        overwrite(1_000);
    }
    let (before, txg) = (device.counts(), pool.state().txg);
    let pages = 30_000;
    overwrite(pages);
    pool.sync().expect("committed");
    let written = device.counts().since(before).written_bytes;
    let txgs = pool.state().txg.0 - txg.0;
    let accounting = pool.state().accounting;
    assert!(accounting.free_slots * 3 < accounting.slots * 2, "the cleaner had to work: {accounting:?}");
    // 1.9 to 2.5 in 7 to 12 txgs, by how large these come out beside whatever else runs: the sync
    // task is a thread.
    assert!(written <= pages * PAGE * 3, "{} MiB in {txgs} txgs", written >> 20);
    assert!(txgs <= pages / 1_000, "{txgs} txgs");
    assert_eq!(open.dataset().check().expect("readable"), []);
}

/// Overlays keep their bases alive: a pool that gets full must not be fuller for it than its files
/// are.
#[test]
fn a_pool_that_is_nearly_full_takes_overwrites_for_ever() {
    let env = Env::seeded(12);
    let device = CountingDevice::new(Arc::new(MemoryDevice::new("d0", 160 * MIB)));
    let pool = Pool::create(&env, spec(vec![handle(&device)], None)).expect("a pool");
    pool.datasets().set_property("tank", "compression", Some("off")).expect("set");
    let (fs, open) = mount(&pool, "tank");
    let write = |name: &[u8], bytes: u64| {
        let file = fs.mknod(ME, ROOT, name, 0o100_600, 0).expect("made").ino;
        for at in (0..bytes).step_by(1 << 20) {
            fs.write(file, at, &noise(at, 1 << 20), false).expect("written");
        }
        file
    };
    let capacity = pool.state().accounting.capacity_bytes;
    // A file that gets as many overlays as it may have while there is room; then others fill the
    // pool.
    let file = write(b"file", capacity / 4 / MIB * MIB);
    let pages = capacity / 4 / MIB * MIB / PAGE;
    let mut dice = Dice(6);
    let mut overwrite = |number: u64| {
        let at = dice.below(pages) * PAGE;
        fs.write(file, at, &noise(number, usize::try_from(PAGE).expect("small")), false)
            .unwrap_or_else(|errno| panic!("page {number}: {errno:?}, {:?}", pool.state().accounting));
    };
    for number in 0..pages {
        overwrite(number);
        if number % (pages / 8) == 0 {
            pool.sync().expect("committed");
        }
    }
    assert!(open.dataset().overlay_counts().written > pages / 8);
    let wasted = open.dataset().counters().data;
    assert!(wasted > capacity / 4 * 5 / 4, "the file has overlays: {wasted}");
    let mut filled = 0;
    while pool.state().accounting.live_bytes < capacity * 9 / 10 {
        write(format!("filler {filled}").as_bytes(), MIB);
        filled += 1;
        if filled % 4 == 0 {
            pool.sync().expect("committed");
        }
    }
    for number in 0..pages {
        overwrite(number);
        if number % (pages / 4) == 0 {
            pool.sync().expect("committed");
        }
    }
    pool.sync().expect("committed");
    assert_eq!(open.dataset().check().expect("readable"), []);
    drop(open);
}
