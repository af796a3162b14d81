//! Recoveries that are cut off: the journal keeps what they did not put back.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use steadfast_device::objects::{MemoryStore, Store, StoreFault};
use steadfast_device::{Device, ObjectDevice, Operation};
use steadfast_env::Env;
use steadfast_format::SegmentId;
use steadfast_format::object_names;
use steadfast_por::parity::{Error, ParityDevice};
use steadfast_por::{Covered, PAYLOAD, Repair, SharedParity, repair};

use crate::covered::{World, content, interrupted, place};
use crate::device::{BLOCK, False, SMALL, open};
use crate::rekey::refusing;
use crate::store::Dice;

fn owes(world: &World) -> bool {
    world.parity.read().unwrap().owes_repair()
}

fn passed(world: &World) -> Result<u64, Error> {
    world.parity.write().unwrap().pass().map(|pass| pass.generation)
}

/// [por.25]: what was not put back may be in the journal alone, which a pass empties. So no pass is
/// made, whoever asks for one, in this opening and in others.
#[test]
fn the_journal_keeps_what_a_recovery_did_not_put_back() {
    let (store, handle, refuses) = refusing();
    let mut world = World::on(50, store, Some(handle));
    (1..=4).for_each(|id| _ = world.put(id, 90 * PAYLOAD));
    (1..=3).for_each(|id| world.drop_object(id));
    refuses.store(true, Ordering::Relaxed);
    assert!(matches!(world.repair_within(1 << 30), Err(Error::Store { .. })));
    refuses.store(false, Ordering::Relaxed);
    {
        let parity = world.parity.read().unwrap();
        assert!(parity.figures().recoveries == 1 && !parity.is_pass_due());
    }
    assert!(owes(&world) && matches!(passed(&world), Err(Error::RecoveryOwed)));
    // A put that finds no room is not covered, and a delete waits: neither makes a pass.
    world.put(5, 90 * PAYLOAD);
    world.put(6, 90 * PAYLOAD);
    assert!(world.covered.is_covered(SegmentId(5)) && !world.covered.is_covered(SegmentId(6)));
    let left_out = world.covered.left_out().unwrap();
    assert!(left_out.contains("a recovery was cut off"), "{left_out}");
    world.covered.discard_segment(place(4)).unwrap();
    assert!(!world.covered.resume_delete().unwrap() && world.covered.is_covered(SegmentId(4)));
    // Nor does a daemon that comes later.
    world.reopen();
    assert!(owes(&world) && matches!(passed(&world), Err(Error::RecoveryOwed)));
    let repair = world.repair();
    assert_eq!((repair.from_journal, &repair.restored[..]), (270, &[1, 2, 3].map(SegmentId)[..]));
    assert!(!owes(&world) && passed(&world).is_ok());
    world.reopen();
    assert!(!owes(&world) && world.repair().unsound.is_empty());
}

/// Objects that were to be deleted meanwhile leave behind the recovery.
#[test]
fn deletes_wait_for_a_recovery_that_is_owed() {
    let (store, handle, refuses) = refusing();
    let world = World::on(51, store, Some(handle));
    (1..=2).for_each(|id| _ = world.put(id, 20 * PAYLOAD));
    world.drop_object(1);
    refuses.store(true, Ordering::Relaxed);
    assert!(world.repair_within(1 << 30).is_err());
    refuses.store(false, Ordering::Relaxed);
    let used = |world: &World| world.parity.read().unwrap().journal_bytes();
    let before = used(&world);
    world.covered.discard_segment(place(2)).unwrap();
    assert!(!world.covered.resume_delete().unwrap());
    assert!(used(&world) == before && world.covered.is_covered(SegmentId(2)), "the room is for puts");
    assert_eq!(world.repair().restored, [SegmentId(1)]);
    assert!(!world.covered.is_covered(SegmentId(2)));
    world.covered.anchored(passed(&world).unwrap()).unwrap();
    assert!(!world.store.names().contains(&object_names::segment(SegmentId(2))));
}

/// Told to end while it reads: what it found until then is owed.
#[test]
fn a_recovery_that_is_stopped_while_it_reads_is_owed() {
    for is_lost in [false, true] {
        let world = World::new(52);
        (1..=12).for_each(|id| _ = world.put(id, 20 * PAYLOAD));
        if is_lost {
            (1..=12).for_each(|id| world.drop_object(id));
        }
        let stop = AtomicBool::new(false);
        let watch = &mut |_, _| stop.store(true, Ordering::Relaxed);
        let stopped = repair(&[Arc::clone(&world.covered)], &Env::seeded(1), 1 << 30, &stop, watch);
        assert!(matches!(stopped, Err(Error::Stopped)));
        assert_eq!((owes(&world), passed(&world).is_err()), (is_lost, is_lost));
    }
}

/// Cells that left the journal are in the code: a pass does them no harm.
#[test]
fn what_is_in_the_tiles_holds_up_no_pass() {
    let (store, handle, refuses) = refusing();
    let world = World::on(53, store, Some(handle));
    (1..=2).for_each(|id| _ = world.put(id, 20 * PAYLOAD));
    world.pass();
    world.drop_object(1);
    refuses.store(true, Ordering::Relaxed);
    assert!(matches!(world.repair_within(1 << 30), Err(Error::Store { .. })));
    assert!(!owes(&world) && passed(&world).is_ok());
}

/// An object that is on its way is not lost: it comes again by itself.
#[test]
fn a_put_that_has_not_succeeded_is_no_loss() {
    let (store, handle, refuses) = refusing();
    let world = World::on(54, store, Some(handle));
    world.put(1, 20 * PAYLOAD);
    refuses.store(true, Ordering::Relaxed);
    let late = content(2, 20 * PAYLOAD);
    assert!(world.covered.put_segment(place(2), &late).is_err());
    let stop = AtomicBool::new(false);
    let watch = &mut |done, of| stop.store(done == of, Ordering::Relaxed);
    let stopped = repair(&[Arc::clone(&world.covered)], &Env::seeded(1), 1 << 30, &stop, watch);
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert!(!owes(&world));
    refuses.store(false, Ordering::Relaxed);
    world.covered.put_segment(place(2), &late).unwrap();
}

/// A store that gives other bytes for the rest of an object, once it is put together, keeps nothing
/// from coming back that the journal has.
#[test]
fn what_the_journal_has_comes_back_whole() {
    let (world, hook) = interrupted(55);
    (1..=3).for_each(|id| _ = world.put(id, 50 * PAYLOAD));
    world.tamper(2, |bytes| bytes[0] ^= 1);
    let (store, name) = (Arc::clone(&world.store), object_names::segment(SegmentId(2)));
    let spoil = move || {
        let mut bytes = store.read(&name, None).unwrap();
        bytes[9 * PAYLOAD] ^= 1;
        assert!(store.remove(&name) && store.create(&name, &bytes).unwrap());
    };
    // The hook is for the first read: it sets itself for the one behind all cells.
    let (stop, again) = (AtomicBool::new(false), Arc::clone(&hook));
    let mut spoil: Option<Box<dyn FnOnce() + Send>> = Some(Box::new(spoil));
    let watch = &mut |done, of| {
        if done == of {
            *again.lock().unwrap() = spoil.take();
        }
    };
    let repair = repair(&[Arc::clone(&world.covered)], &Env::seeded(1), 1 << 30, &stop, watch).unwrap();
    assert!(hook.lock().unwrap().is_none(), "it happened");
    assert_eq!(repair.restored, [SegmentId(2)]);
    assert_eq!(world.object(2), content(2, 50 * PAYLOAD));
}

/// A store whose puts fail, on a parity device whose power may go.
struct Frail {
    medium: False,
    store: Arc<MemoryStore>,
    refuses: Arc<AtomicBool>,
}

impl Frail {
    fn covered(&self, device: ParityDevice) -> (Arc<Covered>, SharedParity) {
        let refuses = Arc::clone(&self.refuses);
        let handle = self.store.handle(move |request| {
            let is_put = request.operation == Operation::Write && refuses.load(Ordering::Relaxed);
            is_put.then_some(StoreFault::Fails)
        });
        let device_of = ObjectDevice::open(Arc::new(handle), Some(64 << 20), [1; 16]).unwrap();
        let (covered, parity) = (Arc::new(Covered::new(Arc::new(device_of))), Arc::new(RwLock::new(device)));
        covered.cover(3, Arc::clone(&parity));
        (covered, parity)
    }

    fn repaired(covered: &Arc<Covered>) -> Result<Repair, Error> {
        repair(&[Arc::clone(covered)], &Env::seeded(1), 1 << 30, &AtomicBool::new(false), &mut |_, _| ())
    }
}

/// The mark lies in the block of the older header. A recovery for which that block cannot be read
/// goes on, and its mark is durable.
#[test]
fn a_mark_is_written_over_a_block_that_cannot_be_read() {
    for refuses in [true, false] {
        let medium = False::new(SMALL.bytes());
        let device = ParityDevice::create(Box::new(medium.clone()), &SMALL, &*Env::seeded(1).random).unwrap();
        let store = Arc::new(MemoryStore::new("bucket"));
        let frail = Frail { medium, store, refuses: Arc::default() };
        let (covered, parity) = frail.covered(device);
        (1..=2).for_each(|id| covered.put_segment(place(id), &content(id, 20 * PAYLOAD)).unwrap());
        covered.flush().unwrap();
        assert!(frail.store.remove(&object_names::segment(SegmentId(2))));
        frail.refuses.store(refuses, Ordering::Relaxed);
        frail.medium.0.lock().unwrap().unread = 0..2;
        let first = Frail::repaired(&covered);
        frail.medium.0.lock().unwrap().unread = 0..0;
        assert_eq!(first.is_err(), refuses);
        assert_eq!(parity.read().unwrap().owes_repair(), refuses);
        assert_eq!(parity.write().unwrap().pass().is_err(), refuses);
        assert_eq!(open(&frail.medium, 99).unwrap().owes_repair(), refuses);
    }
}

/// The power of the parity device goes at any write of a recovery, whether or not its store takes
/// objects. If it was cut off behind the mark, the next opening makes no pass; if all was put back,
/// it makes passes.
#[test]
fn a_crash_in_a_recovery_leaves_the_journal_its_records() {
    let (mut owed, mut cut) = (BTreeSet::new(), 0);
    for refuses in [true, false] {
        for left in 0..6 {
            for seed in 0..4 {
                let medium = False::new(SMALL.bytes());
                let device =
                    ParityDevice::create(Box::new(medium.clone()), &SMALL, &*Env::seeded(1).random).unwrap();
                let store = Arc::new(MemoryStore::new("bucket"));
                let frail = Frail { medium, store, refuses: Arc::default() };
                let (covered, parity) = frail.covered(device);
                let name = |id| object_names::segment(SegmentId(id));
                (1..=3).for_each(|id| {
                    covered.put_segment(place(id), &content(id, 30 * PAYLOAD)).unwrap();
                });
                parity.write().unwrap().pass().unwrap();
                (4..=5).for_each(|id| {
                    covered.put_segment(place(id), &content(id, 20 * PAYLOAD)).unwrap();
                });
                covered.flush().unwrap();
                (4..=5).for_each(|id| assert!(frail.store.remove(&name(id))));
                frail.refuses.store(refuses, Ordering::Relaxed);
                frail.medium.0.lock().unwrap().left = Some(left);
                let first = Frail::repaired(&covered);
                assert_eq!(first.is_err(), refuses);
                cut += usize::from(frail.medium.0.lock().unwrap().is_gone);
                frail.refuses.store(false, Ordering::Relaxed);
                covered.uncover();

                let dice = Dice::new(seed);
                let after = frail.medium.crashed(|_| [0, BLOCK, 1 + dice.below(BLOCK - 1)][dice.below(3)]);
                let device = open(&after, 99).unwrap();
                assert_eq!(device.segments().count(), 5);
                // A write and a flush make it durable.
                assert!(!refuses || left < 2 || device.owes_repair(), "cut at {left}");
                owed.insert((refuses, device.owes_repair()));
                let (covered, parity) = Frail { medium: after, ..frail }.covered(device);
                let is_owed = parity.read().unwrap().owes_repair();
                let early = parity.write().unwrap().pass();
                assert_eq!(early.is_err(), is_owed);
                if is_owed || !refuses {
                    Frail::repaired(&covered).unwrap();
                    parity.write().unwrap().pass().unwrap();
                    assert!(!parity.read().unwrap().owes_repair());
                    let mut out = vec![0; 20 * PAYLOAD];
                    covered.read_segment(place(5), 0, &mut out).unwrap();
                    assert_eq!(out, content(5, 20 * PAYLOAD));
                }
            }
        }
    }
    assert!(cut > 20, "{cut}");
    assert_eq!(owed.len(), 4, "each outcome: {owed:?}");
}
