//! Content that network clients wrote stays in the block cache: the next reader waits for no
//! device, and gets what was written last.

use std::sync::Arc;

use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_pool::Pool;
use steadfast_posix::{Fallocate, FileSystem};

use crate::common::{Dice, ME, MIB, ROOT, handle, key, mount, noise, spec};
use crate::counting::CountingDevice;

const RECORD: u64 = 128 << 10;

/// Reads all of a file, and compares.
fn assert_reads(fs: &FileSystem, file: u64, expected: &[u8], when: &str) {
    let mut out = vec![0; expected.len()];
    assert_eq!(fs.read(file, 0, &mut out).expect("readable"), expected.len(), "{when}");
    assert!(out == expected, "{when}");
}

#[test]
fn what_a_network_client_wrote_is_read_back_without_a_device() {
    for by_network in [true, false] {
        let env = Env::seeded(3);
        let device = CountingDevice::new(Arc::new(MemoryDevice::new("d0", 256 * MIB)));
        let pool = Pool::create(&env, spec(vec![handle(&device)], None)).expect("a pool");
        let (fs, _open) = mount(&pool, "tank");
        // Some of its records are stored before the sync, and the last one is short. The end of it
        // is in a segment that is filled, so no device is asked for that.
        let content = noise(1, 16 * MIB as usize + 5_000);
        let file = fs.mknod(ME, ROOT, b"file", 0o100_600, 0).expect("made").ino;
        for (at, piece) in (0..).step_by(MIB as usize).zip(content.chunks(MIB as usize)) {
            let written = match by_network {
                true => fs.write_for_network(file, at, piece, false),
                false => fs.write(file, at, piece, false),
            };
            written.expect("written");
        }
        pool.sync().expect("committed");
        let before = device.counts();
        assert_reads(&fs, file, &content, "after the commit");
        let read = device.counts().since(before).read_bytes;
        let expected = if by_network { 0..MIB } else { 12 * MIB..u64::MAX };
        assert!(expected.contains(&read), "by network: {by_network}, {read} bytes were read");

        // It stays away where the property says so.
        pool.datasets().set_property("tank", "primarycache", Some("metadata")).expect("set");
        fs.write_for_network(file, 0, &content, false).expect("written");
        pool.sync().expect("committed");
        let before = device.counts();
        assert_reads(&fs, file, &content, "without a cache");
        let read = device.counts().since(before).read_bytes;
        assert!(read >= 12 * MIB, "{read} bytes were read");
    }
}

#[test]
fn the_next_reader_gets_what_was_written_last() {
    for (seed, sealed) in [(1, false), (2, true), (3, false), (4, true)] {
        let env = Env::seeded(seed);
        let device = CountingDevice::new(Arc::new(MemoryDevice::new("d0", 256 * MIB)));
        let key = sealed.then(|| key(&env, &[7; 32]));
        let pool = Pool::create(&env, spec(vec![handle(&device)], key)).expect("a pool");
        let (fs, open) = mount(&pool, "tank");
        let file = fs.mknod(ME, ROOT, b"file", 0o100_600, 0).expect("made").ino;
        let mut expected = vec![0; 32 * RECORD as usize];
        fs.write(file, 0, &expected, false).expect("written");
        let mut dice = Dice(seed);
        for step in 0..300 {
            let at = dice.below(32) * RECORD + [0, 0, 4096][dice.below(3) as usize];
            let most = [RECORD, 4 * RECORD, 5_000][dice.below(3) as usize];
            let range = at as usize..(at + most).min(expected.len() as u64) as usize;
            match dice.below(7) {
                0..=3 => {
                    expected[range.clone()].copy_from_slice(&noise(step, range.len()));
                    fs.write_for_network(file, at, &expected[range], false).map(drop).expect("written");
                }
                4 => {
                    expected[range.clone()].copy_from_slice(&noise(step, range.len()));
                    fs.write(file, at, &expected[range], false).map(drop).expect("written");
                }
                5 => {
                    expected[range.clone()].fill(0);
                    let length = range.len() as u64;
                    fs.fallocate(file, Fallocate::PunchHole, at, length, false).map(drop).expect("cut");
                }
                _ => pool.sync().expect("committed"),
            }
            if dice.below(4) == 0 {
                assert_reads(&fs, file, &expected, &format!("seed {seed}, step {step}"));
            }
        }
        pool.sync().expect("committed");
        assert_reads(&fs, file, &expected, &format!("seed {seed}, at the end"));
        assert_eq!(open.dataset().check().expect("readable"), []);
    }
}
