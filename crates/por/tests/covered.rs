//! A covered store: pools see segments as before, and an adversary gains nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use steadfast_device::objects::{MemoryStore, Store, StoreFault};
use steadfast_device::{Device, Error, ObjectDevice, Operation, SegmentPlace};
use steadfast_env::{Env, Random};
use steadfast_format::object_names;
use steadfast_format::{PoolGuid, SegmentId};
use steadfast_por::audit::Fault;
use steadfast_por::parity::{Creation, ParityDevice};
use steadfast_por::{Covered, PAYLOAD};

const POOL: PoolGuid = PoolGuid(5);
const CELL: usize = PAYLOAD + 16;

struct World {
    /// The adversary's hand on the store.
    store: Arc<MemoryStore>,
    covered: Covered,
    random: Arc<dyn Random>,
}

impl World {
    fn new(seed: u64) -> World {
        World::on(seed, Arc::new(MemoryStore::new("bucket")), None)
    }

    fn on(seed: u64, store: Arc<MemoryStore>, handle: Option<MemoryStore>) -> World {
        let random = Env::seeded(seed).random;
        let served: Arc<dyn Store> = match handle {
            Some(handle) => Arc::new(handle),
            None => Arc::clone(&store) as _,
        };
        let device = ObjectDevice::open(served, Some(64 << 20), [1; 16]).unwrap();
        let creation =
            Creation { pool: POOL, cells: 2500, loss_ppm: 100_000, journal_bytes: 2 << 20, key: None };
        let file = tempfile::tempfile().unwrap();
        file.set_len(creation.bytes()).unwrap();
        let parity = ParityDevice::create(Box::new(file), &creation, &*random).unwrap();
        let covered = Covered::new(Arc::new(device), 3, Arc::new(Mutex::new(parity)));
        World { store, covered, random }
    }

    fn put(&self, id: u64, bytes: usize) -> Vec<u8> {
        let content = content(id, bytes);
        self.covered.put_segment(place(id), &content).unwrap();
        content
    }

    fn read(&self, id: u64, offset: usize, bytes: usize) -> Result<Vec<u8>, Error> {
        let mut out = vec![0xee; bytes];
        self.covered.read_segment(place(id), u32::try_from(offset).unwrap(), &mut out).map(|()| out)
    }

    fn object(&self, id: u64) -> Vec<u8> {
        self.store.read(&object_names::segment(SegmentId(id)), None).unwrap()
    }

    /// Changes an object, as only its store can.
    fn tamper(&self, id: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.object(id);
        change(&mut bytes);
        self.drop_object(id);
        assert!(self.store.create(&object_names::segment(SegmentId(id)), &bytes).unwrap());
    }

    fn drop_object(&self, id: u64) {
        assert!(self.store.remove(&object_names::segment(SegmentId(id))));
    }
}

fn place(id: u64) -> SegmentPlace {
    SegmentPlace { segment: SegmentId(id), slot: 9, slot_size: 1 << 20 }
}

fn content(id: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Env::seeded(id).random.fill(&mut content);
    content
}

#[test]
fn any_range_of_a_segment_reads_as_it_was_written() {
    let world = World::new(1);
    let content = world.put(1, 10 * PAYLOAD + 77);
    assert_eq!(world.object(1).len(), 11 * CELL);
    for (offset, bytes) in [(0, 1), (0, content.len()), (4095, 2), (4096, 4096), (5000, 20_000), (40_960, 77)]
    {
        assert_eq!(
            world.read(1, offset, bytes).unwrap(),
            content[offset..offset + bytes],
            "{offset}, {bytes}"
        );
    }
    let (mut one, mut two) = (vec![0; 3000], vec![0; 5000]);
    world.covered.read_segment_parts(place(1), 2000, &mut [&mut one, &mut two]).unwrap();
    assert_eq!([one, two].concat(), content[2000..10_000]);
    assert!(world.read(2, 0, 1).is_err());
    assert!(matches!(world.covered.append_segment(place(1), 0, &[1]), Err(Error::NotAppendable { .. })));
}

/// Attacks 1, 3, 11 and 12 while the journal has the segment: nobody notices but an audit.
#[test]
fn dropped_changed_and_torn_objects_are_served_from_the_journal() {
    let world = World::new(2);
    let contents: Vec<Vec<u8>> = (1..=4).map(|id| world.put(id, 6 * PAYLOAD)).collect();
    world.drop_object(1);
    world.tamper(2, |bytes| bytes[2 * CELL + 5] ^= 1);
    world.tamper(3, |bytes| bytes[3 * CELL - 1] ^= 1);
    world.tamper(4, |bytes| bytes.truncate(4 * CELL + 9));
    for (id, content) in (1..).zip(&contents) {
        assert_eq!(world.read(id, 0, content.len()).unwrap(), *content, "segment {id}");
    }
    let judgement = world.covered.audit(2000, &*world.random);
    let is_found = |id, wrong| {
        judgement
            .failed
            .iter()
            .any(|(cell, fault)| cell.segment == SegmentId(id) && matches!(fault, Fault::Wrong) == wrong)
    };
    assert!(is_found(1, false) && is_found(2, true) && is_found(3, true) && is_found(4, false));
    // Of segments 2 and 3 one cell each, of segment 4 two of six.
    let share = judgement.failed.len() as f64 / 2000.0;
    assert!((share - (6.0 + 1.0 + 1.0 + 2.0) / 24.0).abs() < 0.05, "{share}");
}

/// After a pass the journal is empty: reads fail, the audit says so, and a repair puts the same
/// objects back.
#[test]
fn a_repair_puts_identical_objects_back() {
    let world = World::new(3);
    let contents: Vec<Vec<u8>> = (1..=12).map(|id| world.put(id, 50 * PAYLOAD + 9)).collect();
    world.covered.flush().unwrap();
    world.covered.pass().unwrap();
    assert!(world.covered.audit(300, &*world.random).is_held());
    let before: Vec<Vec<u8>> = (1..=12).map(|id| world.object(id)).collect();
    // A fourth of all.
    world.drop_object(2);
    world.drop_object(7);
    world.tamper(9, |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 0x40));
    assert!(matches!(world.read(2, 0, 10), Err(Error::Missing { .. })));
    assert!(world.read(9, 0, 10).unwrap() != contents[8][..10], "the reader judges");
    assert!(!world.covered.audit(300, &*world.random).is_held());
    let repair = world.covered.repair().unwrap();
    assert_eq!(repair.restored, [2, 7, 9].map(SegmentId));
    assert!(repair.from_code.is_complete() && repair.unsound.is_empty() && repair.from_journal == 0);
    let after: Vec<Vec<u8>> = (1..=12).map(|id| world.object(id)).collect();
    assert!(before == after);
    assert!(world.covered.audit(300, &*world.random).is_held());
    assert_eq!(world.read(7, 0, contents[6].len()).unwrap(), contents[6]);
}

/// More is gone than the code covers: each cell is named, and nothing is put back.
#[test]
fn a_repair_beyond_the_bound_changes_nothing() {
    let world = World::new(4);
    (1..=10).for_each(|id| _ = world.put(id, 240 * PAYLOAD));
    world.covered.pass().unwrap();
    // A store that answers with constants for everything.
    (1..=10).for_each(|id| world.tamper(id, |bytes| bytes.fill(7)));
    let repair = world.covered.repair().unwrap();
    // A cell that is alone in a row comes back; its segment does not.
    let (back, undetermined) = (repair.from_code.recovered.len(), repair.from_code.undetermined.len());
    assert!(back + undetermined == 2400 && undetermined > 2300, "{back}, {undetermined}");
    assert!(repair.restored.is_empty() && repair.from_code.refused.is_empty());
    assert!(world.object(1).iter().all(|byte| *byte == 7), "as it was");
    let judgement = world.covered.audit(50, &*world.random);
    assert_eq!((judgement.held, judgement.failed.len()), (0, 50));
}

/// [por.13]
#[test]
fn an_object_is_deleted_when_its_pass_is_anchored() {
    let world = World::new(5);
    (1..=4).for_each(|id| _ = world.put(id, 5 * PAYLOAD));
    world.covered.pass().unwrap();
    let has = |id| world.store.names().contains(&object_names::segment(SegmentId(id)));
    world.tamper(3, |bytes| bytes[0] ^= 1);
    let objects = world.covered.objects().unwrap();
    objects.delete_segments(&[1, 2, 3].map(SegmentId)).unwrap();
    // Asked again, as after a lost answer.
    objects.delete_segments(&[SegmentId(1)]).unwrap();
    assert!(has(1) && has(2) && has(3));
    let pass = world.covered.pass().unwrap();
    assert_eq!(pass.released.len(), 2);
    world.covered.anchored(pass.generation - 1).unwrap();
    assert!(has(1) && has(2), "not before the anchor");
    world.covered.anchored(pass.generation).unwrap();
    assert!(!has(1) && !has(2));
    // One with a wrong cell stays in the code, and can go after a repair.
    assert!(has(3));
    assert_eq!(world.covered.held_back().iter().map(|held| held.segment).collect::<Vec<_>>(), [SegmentId(3)]);
    assert_eq!(world.covered.repair().unwrap().restored, [SegmentId(3)]);
    world.covered.discard_segment(place(3)).unwrap();
    let pass = world.covered.pass().unwrap();
    world.covered.anchored(pass.generation).unwrap();
    assert!(!has(3) && has(4));
    // An object that the code does not know goes at once.
    assert!(world.store.create(&object_names::segment(SegmentId(9)), b"garbage").unwrap());
    world.covered.discard_segment(place(9)).unwrap();
    assert!(!has(9));
    assert!(world.covered.repair().unwrap().unsound.is_empty());
}

#[test]
fn a_put_whose_answer_was_lost_comes_again_with_the_same_bytes_only() {
    let store = Arc::new(MemoryStore::new("bucket"));
    let puts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&puts);
    let handle = store.handle(move |request| {
        let is_put = request.operation == Operation::Write && request.name.starts_with("seg/");
        (is_put && counted.fetch_add(1, Ordering::Relaxed) == 0).then_some(StoreFault::AnswerLost)
    });
    let world = World::on(6, store, Some(handle));
    let content = content(1, 3 * PAYLOAD);
    world.covered.put_segment(place(1), &content).unwrap_err();
    let mut other = content.clone();
    other[0] ^= 1;
    world.covered.put_segment(place(1), &other).unwrap_err();
    world.covered.put_segment(place(1), &content).unwrap();
    world.covered.put_segment(place(1), &content).unwrap_err();
    assert_eq!(world.read(1, 0, content.len()).unwrap(), content);
}

/// The journal is smaller than all that is written: puts make passes by themselves.
#[test]
fn a_full_journal_makes_a_pass() {
    let world = World::new(7);
    let contents: Vec<Vec<u8>> = (1..=6).map(|id| world.put(id, 200 * PAYLOAD)).collect();
    world.drop_object(1);
    let repair = world.covered.repair().unwrap();
    assert_eq!((repair.from_journal, repair.from_code.recovered.len()), (0, 200));
    assert_eq!(world.read(1, 0, contents[0].len()).unwrap(), contents[0]);
}
