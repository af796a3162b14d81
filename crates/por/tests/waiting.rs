//! Objects that are to be deleted, and that their store does not give.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use steadfast_device::objects::{MemoryStore, StoreFault};
use steadfast_device::{Device, Operation};
use steadfast_format::SegmentId;
use steadfast_format::object_names::{self, parse_segment};
use steadfast_por::PAYLOAD;
use steadfast_por::parity::{Error, Stage};

use crate::covered::{World, place};
use crate::rekey::THREE;

/// A covered store that gives all objects but some.
struct Moody {
    world: World,
    /// Objects that it does not give now.
    away: Arc<Mutex<BTreeSet<u64>>>,
    reads: Arc<AtomicUsize>,
}

impl Moody {
    fn of(code: (u64, u32), seed: u64) -> Moody {
        let store = Arc::new(MemoryStore::new("bucket"));
        let (away, reads): (Arc<Mutex<BTreeSet<u64>>>, Arc<AtomicUsize>) = Default::default();
        let (of_hook, counted) = (Arc::clone(&away), Arc::clone(&reads));
        let handle = store.handle(move |request| {
            let segment = parse_segment(&request.name).filter(|_| request.operation == Operation::Read)?;
            counted.fetch_add(1, Ordering::Relaxed);
            of_hook.lock().unwrap().contains(&segment.0).then_some(StoreFault::Away)
        });
        Moody { world: World::of(code, seed, store, Some(handle)), away, reads }
    }

    fn give_all_but(&self, away: impl IntoIterator<Item = u64>) {
        *self.away.lock().unwrap() = away.into_iter().collect();
    }

    /// Tries the next one that waits; with the reads of objects that it took.
    fn resume(&self) -> (Option<bool>, usize) {
        let before = self.reads.load(Ordering::Relaxed);
        let more = self.world.covered.resume_delete().ok();
        (more, self.reads.load(Ordering::Relaxed) - before)
    }

    fn delete(&self, ids: &[u64]) -> usize {
        let before = self.reads.load(Ordering::Relaxed);
        let ids: Vec<SegmentId> = ids.iter().map(|id| SegmentId(*id)).collect();
        self.world.covered.objects().unwrap().delete_segments(&ids).unwrap();
        self.reads.load(Ordering::Relaxed) - before
    }

    fn has(&self, id: u64) -> bool {
        self.world.store.names().contains(&object_names::segment(SegmentId(id)))
    }

    fn unread(&self) -> u64 {
        self.world.covered.unread().map_or(0, |(count, _)| count)
    }

    fn is_covered(&self, id: u64) -> bool {
        self.world.covered.is_covered(SegmentId(id))
    }
}

/// Cells of an object that cannot be read now may all be right: it waits for its store, and is no
/// wrong one. A store that is away is asked for one object a try, and those that it gives have
/// their turn.
#[test]
fn an_object_that_cannot_be_read_leaves_the_code_later() {
    let moody = Moody::of((2500, 100_000), 7);
    (1..=5).for_each(|id| _ = moody.world.put(id, 5 * PAYLOAD));
    moody.world.pass();
    moody.give_all_but(1..=3);
    assert_eq!(moody.delete(&[1, 2, 3]), 1, "the first one tells of the others");
    assert_eq!(moody.delete(&[4]), 0, "it waits for its turn");
    assert!(moody.world.covered.held_back().is_empty() && moody.unread() == 1);
    // A second delete of the same one makes no second entry.
    moody.world.covered.discard_segment(place(1)).unwrap();
    assert_eq!(moody.unread(), 1);
    assert_eq!([(); 2].map(|()| moody.resume()), [(None, 1); 2]);
    assert_eq!(moody.resume(), (Some(true), 1), "this one can be read");
    assert_eq!([(); 4].map(|()| moody.resume()), [(None, 1); 4]);
    let covered = |ids: [u64; 5]| ids.map(|id| moody.is_covered(id));
    assert_eq!((moody.unread(), covered([1, 2, 3, 4, 5])), (3, [true, true, true, false, true]));
    // One of them is given again, and waits for no other.
    moody.give_all_but([1, 3]);
    let tries = (1..).find(|_| moody.resume().0.is_some()).unwrap();
    assert!(tries <= 3, "{tries}");
    assert_eq!((moody.unread(), moody.is_covered(2)), (2, false));
    moody.give_all_but([]);
    while moody.world.covered.resume_delete().unwrap() {}
    assert!(moody.world.covered.unread().is_none() && moody.world.covered.held_back().is_empty());
    let pass = moody.world.pass();
    moody.world.covered.anchored(pass.generation).unwrap();
    assert_eq!([1, 2, 3, 4, 5].map(|id| moody.has(id)), [false, false, false, false, true]);
    assert!(moody.world.repair().unsound.is_empty());
}

/// A repair ends beside a store that does not give all: what was to be deleted waits on.
#[test]
fn a_repair_forgets_none_that_waits() {
    let moody = Moody::of((2500, 100_000), 8);
    (1..=5).for_each(|id| _ = moody.world.put(id, 5 * PAYLOAD));
    moody.world.pass();
    // It was missing when it was to be deleted: the repair puts it back, and it leaves behind that.
    moody.world.drop_object(3);
    moody.delete(&[3]);
    assert_eq!(moody.world.covered.held_back().len(), 1);
    moody.give_all_but([1, 2]);
    moody.delete(&[1, 2]);
    let repair = moody.world.repair();
    assert!(repair.from_code.is_complete(), "{repair:?}");
    assert!(moody.world.covered.held_back().is_empty());
    moody.give_all_but([]);
    while moody.world.covered.resume_delete().unwrap() {}
    let pass = moody.world.pass();
    moody.world.covered.anchored(pass.generation).unwrap();
    assert_eq!([1, 2, 3, 4, 5].map(|id| moody.has(id)), [false, false, false, true, true]);
}

/// [por.13]: an object that waits for its store, and that a re-key leaves out, goes when the pass
/// of the re-key is anchored, and not before.
#[test]
fn one_that_waits_goes_with_what_a_re_key_leaves_out() {
    let moody = Moody::of(THREE, 44);
    (1..=78).for_each(|id| _ = moody.world.put(id, 100 * PAYLOAD));
    moody.world.pass();
    (1..=70).for_each(|id| moody.world.drop_object(id));
    moody.give_all_but([71]);
    assert_eq!((moody.delete(&[71]), moody.unread()), (1, 1));
    let lost = moody.world.repair().from_code.undetermined;
    assert!(lost.iter().any(|id| id.segment == SegmentId(71)));
    let rekeyed = moody.world.rekeyed(&lost).unwrap();
    assert!(rekeyed.left_out.iter().any(|(_, segment)| *segment == SegmentId(71)));
    moody.give_all_but([]);
    assert!(moody.world.covered.unread().is_none());
    assert_eq!(moody.resume(), (Some(false), 0));
    assert!(moody.has(71), "not before the anchor");
    let generation = moody.world.parity.read().unwrap().standing().generation;
    moody.world.covered.anchored(generation - 1).unwrap();
    assert!(moody.has(71));
    moody.world.covered.anchored(generation).unwrap();
    assert!(!moody.has(71));
}

/// [por.13]: so it is where the re-key was told to end before its last pass, and somebody else
/// makes that: for an object that waits, for one that is held back, and for one that is deleted
/// before a root tells of the pass.
#[test]
fn whoever_makes_the_last_pass_of_a_re_key_lets_go_of_what_it_leaves_out() {
    let moody = Moody::of(THREE, 45);
    let Moody { world, .. } = &moody;
    (1..=78).for_each(|id| _ = world.put(id, 100 * PAYLOAD));
    world.pass();
    (1..=69).for_each(|id| world.drop_object(id));
    (70..=72).for_each(|id| world.tamper(id, |bytes| bytes[..50 * PAYLOAD].fill(3)));
    moody.delete(&[70]);
    assert_eq!(world.covered.held_back().len(), 1);
    moody.give_all_but([71]);
    assert_eq!((moody.delete(&[71]), moody.unread()), (1, 1));
    let lost = world.repair().from_code.undetermined;
    let of_lost: BTreeSet<u64> = lost.iter().map(|id| id.segment.0).collect();
    assert!((70..=72).all(|id| of_lost.contains(&id)));
    assert!(matches!(world.rekeyed_but_the_last_pass(&lost), Err(Error::Stopped)));
    assert_eq!(world.parity.read().unwrap().rekey_stage(), Some(Stage::Complete));
    let generation = world.pass().generation;
    assert_eq!(world.parity.read().unwrap().rekey_stage(), None);
    moody.give_all_but([]);
    while world.covered.resume_delete().unwrap() {}
    moody.delete(&[72]);
    assert!(world.parity.read().unwrap().has_released());
    world.covered.anchored(generation - 1).unwrap();
    assert_eq!([70, 71, 72].map(|id| moody.has(id)), [true; 3], "no root tells of the pass");
    world.covered.anchored(generation).unwrap();
    assert_eq!([70, 71, 72].map(|id| moody.has(id)), [false; 3]);
    assert!(world.covered.held_back().is_empty() && moody.unread() == 0);
    assert!(!world.parity.read().unwrap().has_released());
}
