//! Deduplication where what is stored has rotted, and while what is known by content is not in
//! memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{MIB, ROOT, handles, import, mount, noise, spec, write_file};
use steadfast_device::{Device, MemoryDevice, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::SegmentId;
use steadfast_pool::{Memory, Pool};

const RECORD: usize = 128 << 10;
const RECORDS: usize = 16;
const UNIT: u32 = 4096;

struct Machine {
    env: Env,
    device: Arc<MemoryDevice>,
}

impl Machine {
    /// A device with a pool, in it a file system with this value of `dedup`. Nothing goes on in the
    /// background.
    fn new(dedup: &str) -> (Machine, Pool) {
        let machine =
            Machine { env: Env::simulated(5), device: Arc::new(MemoryDevice::new("device", 128 * MIB)) };
        let pool = Pool::create(&machine.env, spec(handles(&[Arc::clone(&machine.device)]), None));
        let pool = pool.expect("a pool");
        let props = [("dedup", dedup), ("compression", "off")];
        let props: BTreeMap<String, String> =
            props.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        pool.datasets().create_dataset("tank/fs", props, None).expect("made");
        (machine, pool)
    }

    fn import(&self) -> Pool {
        import(&self.env, handles(&[Arc::clone(&self.device)]), None).expect("imported")
    }

    /// Puts other bytes where these lie.
    fn spoil(&self, wanted: &[u8]) {
        let slots = u32::try_from((128 * MIB - MIB) / u64::from(UNIT)).expect("a small device");
        let mut spoilt = 0;
        for slot in 0..slots {
            let place = SegmentPlace { segment: SegmentId(1), slot, slot_size: UNIT };
            let mut found = vec![0; UNIT as usize];
            self.device.read_segment(place, 0, &mut found).expect("readable");
            if found == wanted {
                self.device.append_segment(place, 0, &noise(99, UNIT as usize)).expect("written");
                spoilt += 1;
            }
        }
        assert_eq!(spoilt, 1, "stored once");
    }
}

/// Writes a file of some records and commits it. Gives how many of them became references, and what
/// the pool grew by.
fn write(pool: &Pool, name: &str, content: &[u8]) -> (u64, u64) {
    let before = (pool.sharing().hits, pool.state().accounting.live_bytes);
    let (fs, handle) = mount(pool, "tank/fs");
    write_file(&fs, ROOT, name.as_bytes(), content);
    drop((fs, handle));
    pool.sync().expect("committed");
    let after = (pool.sharing().hits, pool.state().accounting.live_bytes);
    (after.0 - before.0, after.1.saturating_sub(before.1))
}

/// Which records of a file are what was written; the others cannot be read.
fn right(pool: &Pool, name: &str, content: &[u8]) -> Vec<bool> {
    let (fs, _handle) = mount(pool, "tank/fs");
    let ino = fs.lookup(ROOT, name.as_bytes()).expect("there").ino;
    let records = content.chunks(RECORD).enumerate().map(|(at, wanted)| {
        let mut found = vec![0; wanted.len()];
        let read = fs.read(ino, (at * RECORD) as u64, &mut found);
        assert!(read.is_err() || found == wanted, "record {at}: other bytes than were written");
        read.is_ok()
    });
    let records = records.collect();
    fs.forget(ino, 1);
    records
}

/// With `on` a digest is believed: what was known and has rotted since is lost to whoever writes it
/// again. With `verify` the stored bytes are compared, and what is not what was written is stored
/// anew, and found from then on.
#[test]
fn who_verifies_stores_anew_what_has_rotted() {
    const SPOILT: usize = 5;
    let content = noise(3, RECORDS * RECORD);
    for verify in [false, true] {
        let (machine, pool) = Machine::new(if verify { "verify" } else { "on" });
        assert_eq!(write(&pool, "first", &content).0, 0);
        pool.export().expect("exported");
        machine.spoil(&content[SPOILT * RECORD + 2 * UNIT as usize..][..UNIT as usize]);
        let pool = machine.import();
        let (hits, grown) = write(&pool, "second", &content);
        let others = RECORDS as u64 - 1;
        assert_eq!(hits, others + u64::from(!verify), "verify: {verify}");
        let stored = grown / RECORD as u64;
        assert_eq!(stored, u64::from(verify), "verify: {verify}: {grown} bytes more");
        // Read from the device: an import has nothing in memory.
        pool.export().expect("exported");
        let pool = machine.import();
        let but_one: Vec<bool> = (0..RECORDS).map(|at| at != SPOILT).collect();
        assert_eq!(right(&pool, "first", &content), but_one);
        assert_eq!(right(&pool, "second", &content), if verify { vec![true; RECORDS] } else { but_one });
        let (hits, _) = write(&pool, "third", &content);
        assert_eq!(hits, RECORDS as u64, "verify: {verify}: what was stored last is known");
        let third = right(&pool, "third", &content);
        assert_eq!(third.iter().all(|right| *right), verify);
        pool.export().expect("exported");
    }
}

/// Behind `zpool prefetch -t ddt`.
#[test]
fn what_is_known_is_read_into_memory_when_that_is_asked_for() {
    let content = noise(4, RECORDS * RECORD);
    let (_machine, pool) = Machine::new("on");
    write(&pool, "first", &content);
    let known = pool.sharing();
    assert_eq!((known.entries(), known.indexed, known.index_filled), (RECORDS as u64, RECORDS as u64, true));
    // Memory for fewer than there are: all are forgotten, and read again once there is room.
    pool.set_memory(Memory { node_cache_bytes: 80 * RECORDS / 2, ..Memory::default() });
    pool.set_memory(Memory::default());
    let dropped = pool.sharing();
    assert_eq!((dropped.entries(), dropped.indexed, dropped.index_filled), (RECORDS as u64, 0, false));
    pool.fill_index().expect("read");
    let filled = pool.sharing();
    assert_eq!((filled.indexed, filled.index_filled), (RECORDS as u64, true));
    assert_eq!(write(&pool, "second", &content).0, RECORDS as u64);
    pool.export().expect("exported");
}
