//! A covered store: pools see segments as before, and an adversary gains nothing.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use steadfast_device::objects::{MemoryStore, Store, StoreFault};
use steadfast_device::{Device, Error, ObjectDevice, Operation, SegmentPlace};
use steadfast_env::{Env, Random};
use steadfast_format::object_names::{self, parse_segment};
use steadfast_format::{PoolGuid, SegmentId};
use steadfast_por::agent::{Question, encode_answer, read_answer};
use steadfast_por::audit::Fault;
use steadfast_por::parity::{Creation, Medium, ParityDevice, Pass};
use steadfast_por::{Audit, Covered, PAYLOAD, Part, Payload, Repair, SharedParity, repair};

use crate::store::is_long;

pub(crate) const POOL: PoolGuid = PoolGuid(5);

pub(crate) struct World {
    /// The adversary's hand on the store.
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) covered: Arc<Covered>,
    pub(crate) parity: SharedParity,
    pub(crate) random: Arc<dyn Random>,
    /// The parity device's own bytes.
    pub(crate) file: File,
}

impl World {
    /// Opens the parity device again, as another daemon would.
    pub(crate) fn reopen(&mut self) {
        self.covered.uncover();
        let file = self.file.try_clone().unwrap();
        let parity = ParityDevice::open(Box::new(file), POOL, None, &*self.random).unwrap();
        self.parity = Arc::new(RwLock::new(parity));
        self.covered.cover(3, Arc::clone(&self.parity));
    }

    pub(crate) fn new(seed: u64) -> World {
        World::on(seed, Arc::new(MemoryStore::new("bucket")), None)
    }

    pub(crate) fn on(seed: u64, store: Arc<MemoryStore>, handle: Option<MemoryStore>) -> World {
        World::of((2500, 100_000), seed, store, handle)
    }

    /// A code for so many cells and so many of a million that may be lost.
    pub(crate) fn of(
        (cells, loss_ppm): (u64, u32),
        seed: u64,
        store: Arc<MemoryStore>,
        handle: Option<MemoryStore>,
    ) -> World {
        let creation =
            Creation { pool: POOL, cells, loss_ppm, journal_bytes: 2 << 20, key: None, is_away: false };
        World::made(creation, seed, store, handle)
    }

    fn made(creation: Creation, seed: u64, store: Arc<MemoryStore>, handle: Option<MemoryStore>) -> World {
        let random = Env::seeded(seed).random;
        let served: Arc<dyn Store> = match handle {
            Some(handle) => Arc::new(handle),
            None => Arc::clone(&store) as _,
        };
        let device = ObjectDevice::open(served, Some(64 << 20), [1; 16]).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(creation.bytes()).unwrap();
        let own = file.try_clone().unwrap();
        let parity = ParityDevice::create(Box::new(own), &creation, &*random).unwrap();
        let (covered, parity) = (Arc::new(Covered::new(Arc::new(device))), Arc::new(RwLock::new(parity)));
        covered.cover(3, Arc::clone(&parity));
        World { store, covered, parity, random, file }
    }

    pub(crate) fn pass(&self) -> Pass {
        self.parity.write().unwrap().pass().unwrap()
    }

    pub(crate) fn audit(&self, samples: u32) -> Audit {
        self.covered.audit(Part::All, samples, &*self.random).unwrap().expect("a code")
    }

    pub(crate) fn is_held(&self, samples: u32) -> bool {
        self.audit(samples).judgement.is_held()
    }

    pub(crate) fn repair(&self) -> Repair {
        self.repair_within(1 << 30).unwrap()
    }

    pub(crate) fn repair_within(&self, memory: u64) -> Result<Repair, steadfast_por::parity::Error> {
        repair(&[Arc::clone(&self.covered)], &Env::seeded(1), memory, &AtomicBool::new(false), &mut |_, _| ())
    }

    pub(crate) fn put(&self, id: u64, bytes: usize) -> Vec<u8> {
        let content = content(id, bytes);
        self.covered.put_segment(place(id), &content).unwrap();
        content
    }

    pub(crate) fn read(&self, id: u64, offset: usize, bytes: usize) -> Result<Vec<u8>, Error> {
        let mut out = vec![0xee; bytes];
        self.covered.read_segment(place(id), u32::try_from(offset).unwrap(), &mut out).map(|()| out)
    }

    pub(crate) fn object(&self, id: u64) -> Vec<u8> {
        self.store.read(&object_names::segment(SegmentId(id)), None).unwrap()
    }

    /// Changes an object, as only its store can.
    pub(crate) fn tamper(&self, id: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.object(id);
        change(&mut bytes);
        self.drop_object(id);
        assert!(self.store.create(&object_names::segment(SegmentId(id)), &bytes).unwrap());
    }

    pub(crate) fn drop_object(&self, id: u64) {
        assert!(self.store.remove(&object_names::segment(SegmentId(id))));
    }
}

pub(crate) fn place(id: u64) -> SegmentPlace {
    SegmentPlace { segment: SegmentId(id), slot: 9, slot_size: 1 << 20 }
}

pub(crate) fn content(id: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Env::seeded(id).random.fill(&mut content);
    content
}

#[test]
fn any_range_of_a_segment_reads_as_it_was_written() {
    let world = World::new(1);
    let content = world.put(1, 10 * PAYLOAD + 77);
    assert_eq!(world.object(1), content, "the store sees what it saw before");
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
    world.tamper(2, |bytes| bytes[2 * PAYLOAD + 5] ^= 1);
    world.tamper(3, |bytes| bytes[3 * PAYLOAD - 1] ^= 1);
    world.tamper(4, |bytes| bytes.truncate(4 * PAYLOAD + 9));
    for (id, content) in (1..).zip(&contents) {
        assert_eq!(world.read(id, 0, content.len()).unwrap(), *content, "segment {id}");
    }
    let judgement = world.audit(2000).judgement;
    assert_eq!(world.covered.audit(Part::Newest, 9, &*world.random).unwrap().unwrap().cells, 24);
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

/// Attacks 4 and 6: an object of before, or of another segment, under this one's name.
#[test]
fn an_object_under_another_name_is_found_and_put_back() {
    let world = World::new(61);
    let contents: Vec<Vec<u8>> = (1..=8).map(|id| world.put(id, 20 * PAYLOAD + 9)).collect();
    world.pass();
    let (first, second) = (world.object(1), world.object(2));
    world.tamper(1, |bytes| bytes.clone_from(&second));
    world.tamper(2, |bytes| bytes.clone_from(&first));
    let judgement = world.audit(2000).judgement;
    let is_wrong = |(cell, fault): &(_, Fault<_>)| {
        let cell: &steadfast_por::CellId = cell;
        cell.segment.0 <= 2 && matches!(fault, Fault::Wrong)
    };
    assert!(judgement.failed.len() > 300 && judgement.failed.iter().all(is_wrong));
    let repair = world.repair();
    assert!(repair.restored == [1, 2].map(SegmentId) && repair.from_code.is_complete());
    assert!((1..).zip(&contents).all(|(id, content)| world.object(id) == *content));
}

/// A store that takes its time for each answer, another one each, is asked and read as any other.
#[test]
fn a_store_that_answers_slowly_gives_the_same() {
    let store = Arc::new(MemoryStore::new("bucket"));
    let asked = AtomicU32::new(0);
    let handle = store.handle(move |request| {
        let turn = u64::from(asked.fetch_add(1, Ordering::Relaxed));
        if request.operation == Operation::Read {
            std::thread::sleep(std::time::Duration::from_millis(turn * 7 % 5));
        }
        None
    });
    let world = World::on(62, store, Some(handle));
    let contents: Vec<Vec<u8>> = (1..=8).map(|id| world.put(id, 20 * PAYLOAD)).collect();
    world.pass();
    assert!(world.is_held(200));
    world.drop_object(3);
    world.tamper(6, |bytes| bytes.truncate(100));
    assert!(!world.is_held(200));
    let repair = world.repair();
    assert!(repair.restored == [3, 6].map(SegmentId) && repair.held == 120, "{}", repair.held);
    assert!((1..).zip(&contents).all(|(id, content)| world.object(id) == *content));
}

/// After a pass the journal is empty: reads fail, the audit says so, and a repair puts the same
/// objects back.
#[test]
fn a_repair_puts_identical_objects_back() {
    let world = World::new(3);
    let contents: Vec<Vec<u8>> = (1..=12).map(|id| world.put(id, 50 * PAYLOAD + 9)).collect();
    world.covered.flush().unwrap();
    world.pass();
    assert!(world.is_held(300));
    let before: Vec<Vec<u8>> = (1..=12).map(|id| world.object(id)).collect();
    // A fourth of all.
    world.drop_object(2);
    world.drop_object(7);
    world.tamper(9, |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 0x40));
    assert!(matches!(world.read(2, 0, 10), Err(Error::Missing { .. })));
    assert!(world.read(9, 0, 10).unwrap() != contents[8][..10], "the reader judges");
    assert!(!world.is_held(300));
    let repair = world.repair();
    assert_eq!(repair.restored, [2, 7, 9].map(SegmentId));
    assert!(repair.from_code.is_complete() && repair.unsound.is_empty() && repair.from_journal == 0);
    let after: Vec<Vec<u8>> = (1..=12).map(|id| world.object(id)).collect();
    assert!(before == after);
    assert!(world.is_held(300));
    assert_eq!(world.read(7, 0, contents[6].len()).unwrap(), contents[6]);
}

/// A store that gives no answer has lost nothing by that, whenever it falls silent.
#[test]
fn a_repair_names_nothing_lost_where_a_store_gives_no_answer() {
    for answers in [0, 1, 7] {
        let store = Arc::new(MemoryStore::new("bucket"));
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let of_hook = Arc::clone(&left);
        let handle = store.handle(move |request| {
            if request.operation != Operation::Read {
                return None;
            }
            let one = usize::from(parse_segment(&request.name).is_some());
            let answers = |left: usize| if left == 0 { None } else { Some(left - one) };
            let answers = of_hook.fetch_update(Ordering::Relaxed, Ordering::Relaxed, answers);
            answers.is_err().then_some(StoreFault::Silent)
        });
        let world = World::on(6, store, Some(handle));
        world.covered.write_label(0, b"of the pool").unwrap();
        (1..=12).for_each(|id| _ = world.put(id, 50 * PAYLOAD));
        world.pass();
        world.drop_object(2);
        let before = world.store.names();
        left.store(answers, Ordering::Relaxed);
        let ended = world.repair_within(1 << 30);
        assert!(matches!(ended, Err(steadfast_por::parity::Error::StoreAway { .. })), "{answers}: {ended:?}");
        assert!(world.store.names() == before && !world.parity.read().unwrap().owes_rekey(), "{answers}");
        left.store(usize::MAX, Ordering::Relaxed);
        let repair = world.repair();
        assert!(repair.restored == [SegmentId(2)] && repair.from_code.is_complete(), "{repair:?}");
    }
}

/// A store that is silent about one object and answers other questions keeps no other from being
/// recovered.
#[test]
fn a_repair_recovers_what_a_store_is_silent_about() {
    let store = Arc::new(MemoryStore::new("bucket"));
    let silent = Arc::new(AtomicBool::new(false));
    let of_hook = Arc::clone(&silent);
    let handle = store.handle(move |request| {
        let is_it = parse_segment(&request.name) == Some(SegmentId(5));
        (is_it && request.operation == Operation::Read && of_hook.load(Ordering::Relaxed))
            .then_some(StoreFault::Silent)
    });
    let world = World::on(6, store, Some(handle));
    world.covered.write_label(0, b"of the pool").unwrap();
    let contents: Vec<Vec<u8>> = (1..=12).map(|id| world.put(id, 50 * PAYLOAD)).collect();
    world.pass();
    world.drop_object(2);
    silent.store(true, Ordering::Relaxed);
    let repair = world.repair();
    assert!(repair.from_code.is_complete(), "{repair:?}");
    assert!(repair.restored.contains(&SegmentId(2)), "{repair:?}");
    assert_eq!(world.read(2, 0, contents[1].len()).unwrap(), contents[1]);
}

/// More is gone than the code covers: each cell is named, and nothing is put back.
#[test]
fn a_repair_beyond_the_bound_changes_nothing() {
    let world = World::new(4);
    (1..=10).for_each(|id| _ = world.put(id, 240 * PAYLOAD));
    world.pass();
    // A store that answers with constants for everything.
    (1..=10).for_each(|id| world.tamper(id, |bytes| bytes.fill(7)));
    let repair = world.repair();
    // A cell that is alone in a row comes back; its segment does not.
    let (back, undetermined) = (repair.from_code.recovered, repair.from_code.undetermined.len() as u64);
    assert!(back + undetermined == 2400 && undetermined > 2300, "{back}, {undetermined}");
    assert!(repair.restored.is_empty() && repair.from_code.refused.is_empty());
    assert!(world.object(1).iter().all(|byte| *byte == 7), "as it was");
    let judgement = world.audit(50).judgement;
    assert_eq!((judgement.held, judgement.failed.len()), (0, 50));
}

/// [por.13]
#[test]
fn an_object_is_deleted_when_its_pass_is_anchored() {
    let world = World::new(5);
    (1..=4).for_each(|id| _ = world.put(id, 5 * PAYLOAD));
    world.pass();
    let has = |id| world.store.names().contains(&object_names::segment(SegmentId(id)));
    world.tamper(3, |bytes| bytes[0] ^= 1);
    let objects = world.covered.objects().unwrap();
    objects.delete_segments(&[1, 2, 3].map(SegmentId)).unwrap();
    // Asked again, as after a lost answer.
    objects.delete_segments(&[SegmentId(1)]).unwrap();
    assert!(has(1) && has(2) && has(3));
    let pass = world.pass();
    assert_eq!(pass.released.len(), 2);
    world.covered.anchored(pass.generation - 1).unwrap();
    assert!(has(1) && has(2), "not before the anchor");
    world.covered.anchored(pass.generation).unwrap();
    assert!(!has(1) && !has(2));
    // One with a wrong cell stays in the code, and can go after a repair.
    assert!(has(3));
    assert_eq!(world.covered.held_back().iter().map(|held| held.segment).collect::<Vec<_>>(), [SegmentId(3)]);
    assert_eq!(world.repair().restored, [SegmentId(3)]);
    world.covered.discard_segment(place(3)).unwrap();
    let pass = world.pass();
    world.covered.anchored(pass.generation).unwrap();
    assert!(!has(3) && has(4));
    // An object that the code does not know goes at once.
    assert!(world.store.create(&object_names::segment(SegmentId(9)), b"garbage").unwrap());
    world.covered.discard_segment(place(9)).unwrap();
    assert!(!has(9));
    assert!(world.repair().unsound.is_empty());
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
    let repair = world.repair();
    assert_eq!((repair.from_journal, repair.from_code.recovered), (0, 200));
    assert_eq!(world.read(1, 0, contents[0].len()).unwrap(), contents[0]);
}

/// A medium that counts its flushes: a step of a pass makes some.
struct Counted(File, Arc<AtomicU32>);

impl Medium for Counted {
    fn size(&self) -> io::Result<u64> {
        Medium::size(&self.0)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        Medium::read(&self.0, at, out)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        Medium::write(&self.0, at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        Medium::grow(&self.0, bytes)
    }
}

/// Writers that outrun a pass wait for a step of it now and then, and none for the rest of it.
#[test]
fn a_put_waits_for_a_step_and_not_for_the_rest_of_a_pass() {
    let random = Env::seeded(10).random;
    let creation = Creation {
        pool: POOL,
        cells: 24 * 1583 * 10,
        loss_ppm: 100_000,
        journal_bytes: 8 << 20,
        key: None,
        is_away: false,
    };
    let (file, flushes) = (tempfile::tempfile().unwrap(), Arc::new(AtomicU32::new(0)));
    file.set_len(creation.bytes()).unwrap();
    let medium = Box::new(Counted(file, Arc::clone(&flushes)));
    let parity = ParityDevice::create(medium, &creation, &*random).unwrap();
    assert!((17..=24).contains(&parity.figures().tiles), "three steps and the end: {:?}", parity.figures());
    let (store, parity) = (Arc::new(MemoryStore::new("bucket")), Arc::new(RwLock::new(parity)));
    let device = ObjectDevice::open(store, Some(64 << 20), [1; 16]).unwrap();
    let covered = Covered::new(Arc::new(device));
    covered.cover(3, Arc::clone(&parity));
    let flushed = |work: &dyn Fn()| {
        let before = flushes.load(Ordering::Relaxed);
        work();
        flushes.load(Ordering::Relaxed) - before
    };
    let used = || parity.read().unwrap().figures().journal_used;
    let mut ids = 1..;
    let put = |id| covered.put_segment(place(id), &content(id, 30 * PAYLOAD)).unwrap();
    while used() < 4 << 20 {
        put(ids.next().unwrap());
    }
    let step = flushed(&|| _ = parity.write().unwrap().pass_step().unwrap());
    // Nobody else goes on with it.
    let mut waits = Vec::new();
    while parity.read().unwrap().is_passing() {
        let id = ids.next().unwrap();
        waits.push(flushed(&|| put(id)));
    }
    assert_eq!(waits.iter().filter(|wait| **wait > 0).count(), 3, "two steps and the end: {waits:?}");
    assert!(waits.iter().all(|wait| *wait <= step), "one at a time, of {step}: {waits:?}");
    let first = waits.iter().position(|wait| *wait > 0).unwrap();
    assert!(first > waits.len() / 2, "a burst that fits waits for nothing: {waits:?}");
    let unsound =
        repair(&[Arc::new(covered)], &Env::seeded(1), 1 << 30, &AtomicBool::new(false), &mut |_, _| ());
    assert!(unsound.unwrap().unsound.is_empty());
}

/// Objects that were there before the code, and objects that it has no room for, are stored and
/// read; they come in later, unless they are deleted meanwhile.
#[test]
fn what_is_uncovered_comes_in_later() {
    let world = World::new(8);
    world.covered.uncover();
    let before = world.put(1, 20 * PAYLOAD + 5);
    world.put(2, PAYLOAD);
    world.covered.cover(3, Arc::clone(&world.parity));
    assert!(!world.covered.is_covered(SegmentId(1)));
    world.covered.adopt(SegmentId(1), before.len()).unwrap();
    world.covered.adopt(SegmentId(1), before.len()).unwrap();
    assert!(world.covered.is_covered(SegmentId(1)) && world.audit(50).cells == 21);
    world.covered.discard_segment(place(2)).unwrap();
    assert!(world.covered.adopt(SegmentId(2), PAYLOAD).is_err());
    // More than the code is made for: stored, uncovered, and the reason is told.
    (3..=14).for_each(|id| _ = world.put(id, 200 * PAYLOAD));
    world.put(20, 200 * PAYLOAD);
    assert!(!world.covered.is_covered(SegmentId(20)));
    assert!(world.covered.left_out().unwrap().starts_with("the code is made for 2500 cells"));
    assert_eq!(world.read(20, 5, 100).unwrap(), content(20, 200 * PAYLOAD)[5..105]);
    world.covered.discard_segment(place(3)).unwrap();
    world.pass();
    world.covered.adopt(SegmentId(20), 200 * PAYLOAD).unwrap();
    world.pass();
    world.drop_object(1);
    world.drop_object(20);
    assert_eq!(world.repair().restored, [1, 20].map(SegmentId));
    assert!(world.object(1) == before && world.object(20) == content(20, 200 * PAYLOAD));
}

/// A segment that came in later is told as covered once its record is durable; one that is put is
/// durable before its root is.
#[test]
fn what_came_in_later_is_settled_by_a_flush() {
    let mut world = World::new(18);
    world.covered.uncover();
    (1..=3).for_each(|id| _ = world.put(id, 2 * PAYLOAD));
    world.covered.cover(3, Arc::clone(&world.parity));
    let is_settled = |world: &World, id| world.covered.is_settled(SegmentId(id));
    for id in [1, 2] {
        assert!(!is_settled(&world, id));
        world.covered.adopt(SegmentId(id), 2 * PAYLOAD).unwrap();
        assert!(world.covered.is_covered(SegmentId(id)) && !is_settled(&world, id), "segment {id}");
        match id {
            1 => world.covered.settle().unwrap(),
            _ => world.covered.flush().unwrap(),
        }
        assert!(is_settled(&world, id), "segment {id}");
    }
    world.put(4, PAYLOAD);
    assert!(is_settled(&world, 4));
    // The next opening makes durable the records that a killed daemon left.
    world.covered.adopt(SegmentId(3), 2 * PAYLOAD).unwrap();
    assert!(!is_settled(&world, 3));
    world.reopen();
    assert!((1..=4).all(|id| is_settled(&world, id)));
}

/// A commit finds few bytes that wait for its flush, however many came in before it.
#[test]
fn puts_flush_what_many_of_them_left() {
    const WAITING: u64 = 16 << 20;
    let creation = Creation {
        pool: POOL,
        cells: 20_000,
        loss_ppm: 100_000,
        journal_bytes: 64 << 20,
        key: None,
        is_away: false,
    };
    let world = World::made(creation, 20, Arc::new(MemoryStore::new("bucket")), None);
    let mut last = 0;
    for id in 1..=40 {
        world.put(id, 250 * PAYLOAD);
        let parity = world.parity.read().unwrap();
        let position = parity.standing().position;
        assert!(position > last && parity.is_durable_to(position - WAITING.min(position)), "put {id}");
        last = position;
    }
    assert!(last > 2 * WAITING, "{last} bytes");
    assert!(!world.parity.read().unwrap().is_durable_to(last), "the last of them wait for a commit");
}

/// A pass that goes on beside puts and deletes: they belong to the next one.
#[test]
fn a_pass_by_steps_lets_others_between() {
    let world = World::new(9);
    let put = |id: u64| world.put(id, 30 * PAYLOAD + 7);
    (1..=4).for_each(|id| _ = put(id));
    assert!(world.parity.write().unwrap().pass_step().unwrap().is_none());
    put(5);
    world.covered.discard_segment(place(1)).unwrap();
    world.covered.discard_segment(place(5)).unwrap();
    put(6);
    let pass = world.pass();
    assert!(pass.released.is_empty() && world.parity.read().unwrap().owed_bytes() > 0);
    assert_eq!(world.covered.anchored(pass.generation).unwrap(), 0);
    world.drop_object(3);
    world.drop_object(6);
    assert_eq!(world.repair().restored, [3, 6].map(SegmentId));
    let pass = world.pass();
    assert_eq!(pass.released.len(), 2);
    assert_eq!(world.covered.anchored(pass.generation).unwrap(), 2);
    world.drop_object(6);
    let repair = world.repair();
    assert!(repair.restored == [SegmentId(6)] && repair.unsound.is_empty());
}

/// A recovery that is cut off by its store, twice, loses nothing: the code has what is missing
/// meanwhile.
#[test]
fn a_repair_that_is_interrupted_twice_is_begun_again() {
    let store = Arc::new(MemoryStore::new("bucket"));
    let left = Arc::new(AtomicU32::new(u32::MAX));
    let counted = Arc::clone(&left);
    let handle = store.handle(move |request| {
        let is_put = request.operation == Operation::Write && request.name.starts_with("seg/");
        let fails = is_put
            && counted
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_err();
        fails.then_some(StoreFault::Fails)
    });
    let world = World::on(10, store, Some(handle));
    (1..=12).for_each(|id| _ = world.put(id, 50 * PAYLOAD + 9));
    world.pass();
    let before: Vec<Vec<u8>> = (1..=12).map(|id| world.object(id)).collect();
    world.drop_object(2);
    world.drop_object(5);
    world.tamper(9, |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 0x40));
    for puts in [0, 1] {
        left.store(puts, Ordering::Relaxed);
        let stopped = world.repair_within(1 << 30);
        assert!(matches!(stopped, Err(steadfast_por::parity::Error::Store { .. })));
    }
    left.store(u32::MAX, Ordering::Relaxed);
    assert_eq!(world.repair().restored, [5, 9].map(SegmentId), "the second attempt put one back");
    assert!(before == (1..=12).map(|id| world.object(id)).collect::<Vec<_>>());
}

/// A repair that its store cuts off at any request, beside which the daemon dies: the parity is
/// opened again, and the next repair makes everything whole.
#[test]
fn a_repair_that_dies_at_any_request_is_begun_again() {
    let mut requests = 0_u32;
    loop {
        let store = Arc::new(MemoryStore::new("bucket"));
        let left = Arc::new(AtomicU32::new(u32::MAX));
        let counted = Arc::clone(&left);
        let handle = store.handle(move |_| {
            let gone = counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            gone.is_err().then_some(StoreFault::Fails)
        });
        let mut world = World::on(16, store, Some(handle));
        (1..=5).for_each(|id| _ = world.put(id, 20 * PAYLOAD + 9));
        world.pass();
        world.put(6, 20 * PAYLOAD);
        world.covered.flush().unwrap();
        let before: Vec<Vec<u8>> = (1..=6).map(|id| world.object(id)).collect();
        world.drop_object(2);
        world.drop_object(6);
        world.tamper(4, |bytes| bytes[PAYLOAD] ^= 1);
        left.store(requests, Ordering::Relaxed);
        let first = world.repair_within(1);
        left.store(u32::MAX, Ordering::Relaxed);
        world.reopen();
        let second = world.repair();
        assert!(second.from_code.is_complete() && second.unsound.is_empty(), "cut at {requests}");
        assert!(before == (1..=6).map(|id| world.object(id)).collect::<Vec<_>>(), "cut at {requests}");
        let is_whole = first.is_ok_and(|first| first.restored.len() == 3);
        if is_whole {
            assert!(second.restored.is_empty());
            break;
        }
        requests += 1;
    }
    assert!(requests > 10, "{requests}");
}

/// Memory for one tile and for one segment: tiles are summed in rounds, and segments come back one
/// after the other. The outcome is the same.
#[test]
fn a_repair_within_little_memory_gives_back_the_same() {
    for memory in [1, 48 << 20, 1 << 30] {
        let world = World::of((8000, 500_000), 11, Arc::new(MemoryStore::new("bucket")), None);
        assert_eq!(world.parity.read().unwrap().figures().tiles, 3);
        (1..=12).for_each(|id| _ = world.put(id, 90 * PAYLOAD + 9));
        world.pass();
        (13..=15).for_each(|id| _ = world.put(id, 90 * PAYLOAD));
        let before: Vec<Vec<u8>> = (1..=15).map(|id| world.object(id)).collect();
        let gone = [2, 3, 6, 7, 14];
        gone.iter().for_each(|&id| world.drop_object(id));
        world.tamper(9, |bytes| bytes[5 * PAYLOAD..40 * PAYLOAD].fill(1));
        let mut heard = Vec::new();
        let repair = {
            let mut watch = |done, of| heard.push((done, of));
            repair(
                &[Arc::clone(&world.covered)],
                &Env::seeded(1),
                memory,
                &AtomicBool::new(false),
                &mut watch,
            )
            .unwrap()
        };
        assert_eq!(repair.restored, [2, 3, 6, 7, 9, 14].map(SegmentId), "{memory}");
        assert_eq!((repair.from_journal, repair.from_code.recovered), (90, 4 * 91 + 35), "{memory}");
        assert_eq!(
            (repair.cells, repair.held),
            (12 * 91 + 270, 12 * 91 + 270 - 90 - 4 * 91 - 35),
            "{memory}"
        );
        assert!(repair.from_code.is_complete() && repair.unsound.is_empty());
        assert_eq!(repair.rounds > 1, memory < 1 << 30, "{memory}: {}", repair.rounds);
        assert!(heard.iter().all(|(done, of)| done <= of) && heard.iter().any(|(done, of)| done == of));
        assert!(before == (1..=15).map(|id| world.object(id)).collect::<Vec<_>>());
        assert!(world.repair().restored.is_empty());
    }
}

/// Beyond the bound and with little memory: each cell is named once, and what can come back does.
#[test]
fn a_repair_beyond_the_bound_within_little_memory_names_the_same_cells() {
    let outcomes = [1, 1 << 30].map(|memory| {
        let world = World::of((8000, 500_000), 12, Arc::new(MemoryStore::new("bucket")), None);
        (1..=80).for_each(|id| _ = world.put(id, 100 * PAYLOAD));
        world.pass();
        (1..=78).for_each(|id| world.drop_object(id));
        let repair = world.repair_within(memory).unwrap();
        assert!(!repair.from_code.is_complete() && repair.from_code.refused.is_empty());
        let named = repair.from_code.undetermined.len() as u64;
        assert_eq!(repair.from_code.recovered + named, 7800);
        (repair.from_code.undetermined, repair.restored)
    });
    assert!(outcomes[0] == outcomes[1]);
}

pub(crate) type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A store at whose first read of a segment something else happens, once that is set.
pub(crate) fn interrupted(seed: u64) -> (World, Hook) {
    let (store, hook) = (Arc::new(MemoryStore::new("bucket")), Hook::default());
    let hooked = Arc::clone(&hook);
    let handle = store.handle(move |request| {
        if request.operation == Operation::Read && request.name.starts_with("seg/") {
            let happens = hooked.lock().unwrap().take();
            happens.into_iter().for_each(|happens| happens());
        }
        None
    });
    (World::on(seed, store, Some(handle)), hook)
}

/// [por.16]: puts, deletes and reads go on while a repair reads; passes wait for its end.
#[test]
fn a_recovery_reads_beside_writers() {
    let (world, hook) = interrupted(13);
    (1..=6).for_each(|id| _ = world.put(id, 50 * PAYLOAD));
    world.pass();
    (7..=8).for_each(|id| _ = world.put(id, 50 * PAYLOAD));
    world.drop_object(3);
    world.drop_object(8);
    let (covered, parity) = (Arc::clone(&world.covered), Arc::clone(&world.parity));
    *hook.lock().unwrap() = Some(Box::new(move || {
        covered.put_segment(place(20), &content(20, 60 * PAYLOAD)).unwrap();
        covered.discard_segment(place(2)).unwrap();
        covered.discard_segment(place(7)).unwrap();
        covered.flush().unwrap();
        let mut out = vec![0; 10];
        covered.read_segment(place(8), 0, &mut out).unwrap();
        assert_eq!(out, content(8, 50 * PAYLOAD)[..10], "the journal serves it");
        let pass = parity.write().unwrap().pass();
        assert!(matches!(pass, Err(steadfast_por::parity::Error::Recovering)));
        assert!(parity.read().unwrap().is_pinned());
    }));
    let repair = world.repair();
    assert!(hook.lock().unwrap().is_none(), "it happened");
    assert_eq!(repair.restored, [3, 8].map(SegmentId));
    assert!(repair.from_code.is_complete() && repair.unsound.is_empty());
    assert!(!world.parity.read().unwrap().is_pinned());
    let pass = world.pass();
    assert_eq!(pass.released.iter().map(|known| known.segment.0).collect::<Vec<_>>(), [2, 7]);
    assert_eq!(world.covered.anchored(pass.generation).unwrap(), 2);
    world.drop_object(20);
    let repair = world.repair();
    assert!(repair.restored == [SegmentId(20)] && repair.unsound.is_empty());
}

/// A journal that becomes full while a repair reads: a put stays uncovered, and a delete waits.
#[test]
fn a_journal_that_is_full_waits_for_the_end_of_a_repair() {
    let (world, hook) = interrupted(14);
    (1..=6).for_each(|id| _ = world.put(id, 50 * PAYLOAD));
    world.pass();
    world.drop_object(3);
    let covered = Arc::clone(&world.covered);
    *hook.lock().unwrap() = Some(Box::new(move || {
        (20..=30).for_each(|id| covered.put_segment(place(id), &content(id, 60 * PAYLOAD)).unwrap());
        assert!(covered.is_covered(SegmentId(20)) && !covered.is_covered(SegmentId(30)));
        assert!(covered.left_out().unwrap().contains("a recovery reads the parity"));
        covered.discard_segment(place(2)).unwrap();
        assert!(covered.is_covered(SegmentId(2)), "it waits");
    }));
    assert_eq!(world.repair().restored, [SegmentId(3)]);
    assert!(hook.lock().unwrap().is_none() && !world.covered.is_covered(SegmentId(2)));
    let has = |id| world.store.names().contains(&object_names::segment(SegmentId(id)));
    assert!(has(2));
    let pass = world.pass();
    world.covered.anchored(pass.generation).unwrap();
    assert!(!has(2));
    assert_eq!(world.read(30, 0, 9).unwrap(), content(30, 60 * PAYLOAD)[..9]);
    assert!(world.repair().unsound.is_empty());
}

/// A store that gives other bytes for the rest of a segment when that is put together: nothing is
/// put back.
#[test]
fn a_store_that_changes_its_answers_gets_nothing_wrong_back() {
    let store = Arc::new(MemoryStore::new("bucket"));
    let reads = Arc::new(AtomicU32::new(0));
    let (counted, inner) = (Arc::clone(&reads), Arc::clone(&store));
    let handle = store.handle(move |request| {
        let is_it =
            request.operation == Operation::Read && request.name == object_names::segment(SegmentId(2));
        if is_it && counted.fetch_add(1, Ordering::Relaxed) == 1 {
            let mut bytes = inner.read(&request.name, None).unwrap();
            bytes[9 * PAYLOAD] ^= 1;
            assert!(inner.remove(&request.name) && inner.create(&request.name, &bytes).unwrap());
        }
        None
    });
    let world = World::on(15, store, Some(handle));
    (1..=4).for_each(|id| _ = world.put(id, 50 * PAYLOAD));
    world.pass();
    world.tamper(2, |bytes| bytes[0] ^= 1);
    reads.store(0, Ordering::Relaxed);
    assert!(world.repair().restored.is_empty());
    assert_eq!(world.repair().restored, [SegmentId(2)]);
    assert_eq!(world.object(2), content(2, 50 * PAYLOAD));
}

type Answer = Result<Box<Payload>, String>;

impl World {
    /// An agent that reads this store, as it is now.
    fn agent(&self) -> impl FnMut(&Question) -> Answer + use<> {
        let device = ObjectDevice::open(Arc::clone(&self.store) as _, Some(64 << 20), [2; 16]).unwrap();
        move |question| {
            // The question and the answer go through their bytes, as on the way.
            let bytes = question.encode();
            let question = Question::read(&mut &*bytes).unwrap();
            let answer = question.sum(&device).map_err(|(cell, error)| format!("{cell:?}: {error}"));
            read_answer(&mut &*encode_answer(&answer)).unwrap()
        }
    }

    /// Why an agent's answer is no proof, if it is none.
    fn asked(&self, samples: u32, mut ask: impl FnMut(&Question) -> Answer) -> Option<String> {
        let audit = self.covered.audit_by_agent(samples, &*self.random, &mut ask).unwrap();
        audit.expect("something is stored").problem
    }
}

/// [por.15]: attacks 3, 6, 11 to 13, and 17 to 19, on an agent that nobody trusts.
#[test]
fn agents_that_lie_are_found_out() {
    let world = World::new(31);
    assert!(world.covered.audit_by_agent(5, &*world.random, &mut |_| unreachable!()).unwrap().is_none());
    for id in 1..=20 {
        world.put(id, if id == 20 { 3 * PAYLOAD + 5 } else { 30 * PAYLOAD });
    }
    assert_eq!(world.asked(300, world.agent()), None, "an honest one");
    world.pass();
    assert_eq!(world.asked(300, world.agent()), None, "whether the journal has them or not");

    // 17: a constant, a reply of before, one for another seed.
    assert!(world.asked(300, |_| Ok(Box::new([0; PAYLOAD]))).is_some());
    let mut first = None;
    let mut honest = world.agent();
    assert!(
        world
            .asked(300, |question| {
                first = Some(honest(question)?);
                Ok(first.clone().unwrap())
            })
            .is_none()
    );
    assert!(world.asked(300, |_| Ok(first.clone().unwrap())).is_some(), "a reply of before");
    let mut honest = world.agent();
    assert!(world.asked(300, |question| honest(&Question { seed: [0; 32], ..question.clone() })).is_some());
    // Fewer cells than were asked for, and one in another's place.
    let mut honest = world.agent();
    assert!(
        world
            .asked(300, |question| {
                let mut fewer = question.clone();
                fewer.cells.pop();
                honest(&fewer)
            })
            .is_some()
    );
    let mut honest = world.agent();
    assert!(
        world
            .asked(300, |question| {
                let mut exchanged = question.clone();
                let last = exchanged.cells.iter().rposition(|cell| *cell != question.cells[0]).unwrap();
                exchanged.cells.swap(0, last);
                honest(&exchanged)
            })
            .is_some()
    );
    // 21: it does not answer.
    assert_eq!(world.asked(300, |_| Err("late".to_owned())), Some("late".to_owned()));

    // 19, 3: tags are not at the store, so it can lose none. 6, 18: another content.
    let before = world.object(4);
    world.tamper(4, |bytes| bytes[..PAYLOAD].fill(7));
    assert!(world.asked(3_000, world.agent()).is_some(), "another content");
    world.tamper(4, |bytes| *bytes = before.clone());
    assert_eq!(world.asked(3_000, world.agent()), None);
    // 12: a short object. 11, 13: one that is gone.
    world.tamper(5, |bytes| bytes.truncate(1000));
    assert!(world.asked(3_000, world.agent()).is_some());
    world.drop_object(6);
    assert!(world.asked(3_000, world.agent()).is_some());
    // It fills in what it lost with zeros.
    let mut honest = world.agent();
    assert!(
        world
            .asked(3_000, |question| {
                let mut filled = question.clone();
                filled.cells.retain(|cell| ![5, 6].contains(&cell.segment.0));
                honest(&filled)
            })
            .is_some()
    );
    world.repair();
    assert_eq!(world.asked(3_000, world.agent()), None, "whole again");
}

/// An agent that lost a fraction of the cells passes as often as samples miss them [por.6].
#[test]
fn agents_are_found_out_as_often_as_the_formula_says() {
    let world = World::new(32);
    for id in 1..=20 {
        world.put(id, 30 * PAYLOAD);
    }
    let mut honest = world.agent();
    // One of 20 objects is gone.
    let mut lying = |question: &Question| match question.cells.iter().any(|cell| cell.segment.0 == 9) {
        true => Ok(Box::new([1; PAYLOAD])),
        false => honest(question),
    };
    let (audits, samples) = (if is_long() { 10_000 } else { 300 }, 13);
    let found = (0..audits).filter(|_| world.asked(samples, &mut lying).is_some()).count();
    let (n, p) = (f64::from(audits), steadfast_por::bound::detection(0.05, samples));
    let deviations = (found as f64 - n * p) / (n * p * (1.0 - p)).sqrt();
    assert!(deviations.abs() < 3.0, "{found} of {n} at {p}: {deviations} deviations");
}

/// A segment that is deleted while the agent answers is no lie: it is asked again.
#[test]
fn a_store_that_changes_meanwhile_is_asked_again() {
    let world = World::new(33);
    for id in 1..=4 {
        world.put(id, 30 * PAYLOAD);
    }
    let mut honest = world.agent();
    let mut questions = 0;
    let problem = world.asked(200, |question| {
        questions += 1;
        if questions == 1 {
            world.covered.discard_segment(place(2)).unwrap();
            world.covered.anchored(world.pass().generation).unwrap();
        }
        honest(question)
    });
    assert_eq!((problem, questions), (None, 2));
}
