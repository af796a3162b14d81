//! A code that is made anew under another map: crashes, interruptions, and what an adversary who
//! knew the former map has left of it.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use steadfast_crypto::{Key, hash};
use steadfast_device::objects::{MemoryStore, StoreFault};
use steadfast_device::{Device, Operation};
use steadfast_env::Env;
use steadfast_format::SegmentId;
use steadfast_format::object_names;
use steadfast_format::parity::{ParityHeader, ParitySegment};
use steadfast_por::parity::{Creation, Error, Medium, ParityDevice, RECOVERIES_MAX, Search, Stage};
use steadfast_por::{CellId, Map, PAYLOAD, Rekey, rekey};

use crate::covered::{World, interrupted, place};
use crate::device::{BLOCK, False, Given, SMALL, State, open};
use crate::store::{Dice, is_long};

/// Three tiles.
pub(crate) const THREE: (u64, u32) = (8000, 500_000);
const TILE: usize = 2048 * (PAYLOAD + 16);

impl World {
    fn rekey(&self, lost: Option<&[CellId]>) -> Rekey {
        self.rekey_within(1 << 30, lost, &AtomicBool::new(false)).unwrap()
    }

    fn rekey_within(&self, memory: u64, lost: Option<&[CellId]>, stop: &AtomicBool) -> Result<Rekey, Error> {
        let env = Env::seeded(self.header().sequence);
        rekey(&[Arc::clone(&self.covered)], lost, None, &env, memory, stop, &mut |_, _| ())
    }

    /// The code is made anew without these cells.
    pub(crate) fn rekeyed(&self, lost: &[CellId]) -> Result<Rekey, Error> {
        self.rekey_within(1 << 30, Some(lost), &AtomicBool::new(false))
    }

    /// The same, told to end when all tiles are made.
    pub(crate) fn rekeyed_but_the_last_pass(&self, lost: &[CellId]) -> Result<Rekey, Error> {
        let stop = AtomicBool::new(false);
        let watch = &mut |done, of| stop.store(done == of, Ordering::Relaxed);
        let stores = &[Arc::clone(&self.covered)];
        rekey(stores, Some(lost), None, &Env::seeded(8), 1 << 30, &stop, watch)
    }

    /// The header as it lies on the device.
    fn header(&self) -> ParityHeader {
        let copies = [0, BLOCK as u64].map(|at| {
            let mut bytes = [0; ParityHeader::ENCODED_SIZE];
            self.file.read_exact_at(&mut bytes, at).unwrap();
            ParityHeader::decode(&bytes, hash).ok()
        });
        copies.into_iter().flatten().max_by_key(|header| header.sequence).unwrap()
    }

    /// The map, as one knows it who reads the device once.
    fn leaked(&self) -> Map {
        let header = self.header();
        Map::new(&Key::from_bytes(header.root_key.unwrap()), header.map, header.tiles)
    }

    fn cells(&self) -> Vec<CellId> {
        let parity = self.parity.read().unwrap();
        let cells = |known: ParitySegment| {
            (0..known.cells()).map(move |index| CellId {
                segment: known.segment,
                opening: known.opening,
                store: known.store,
                index,
            })
        };
        parity.segments().flat_map(cells).collect()
    }

    fn spoil(&self, cells: &[CellId]) {
        let segments: BTreeSet<u64> = cells.iter().map(|id| id.segment.0).collect();
        for segment in segments {
            self.tamper(segment, |bytes| {
                for id in cells.iter().filter(|id| id.segment.0 == segment) {
                    bytes[usize::from(id.index) * PAYLOAD..][..100].fill(0x11);
                }
            });
        }
    }

    fn stage(&self) -> Option<Stage> {
        self.parity.read().unwrap().rekey_stage()
    }
}

/// A store, a handle of it, and whether puts by that handle fail.
pub(crate) fn refusing() -> (Arc<MemoryStore>, MemoryStore, Arc<AtomicBool>) {
    let (store, refuses) = (Arc::new(MemoryStore::new("bucket")), Arc::new(AtomicBool::new(false)));
    let asked = Arc::clone(&refuses);
    let handle = store.handle(move |request| {
        let is_put = request.operation == Operation::Write && asked.load(Ordering::Relaxed);
        is_put.then_some(StoreFault::Fails)
    });
    (store, handle, refuses)
}

fn three(seed: u64) -> World {
    World::of(THREE, seed, Arc::new(MemoryStore::new("bucket")), None)
}

/// Attacks 15 and 16: whoever knows the map destroys a tile with a fourth of all cells, half of
/// which would come back otherwise. Behind a re-key the same choice does nothing.
#[test]
fn a_leaked_map_is_worth_nothing_behind_a_re_key() {
    for is_rekeyed in [false, true] {
        let mut world = three(41);
        (1..=75).for_each(|id| _ = world.put(id, 100 * PAYLOAD));
        world.pass();
        let map = world.leaked();
        let chosen: Vec<CellId> =
            world.cells().into_iter().filter(|id| map.place(*id).tile == 0).take(2100).collect();
        assert_eq!(chosen.len(), 2100);
        if is_rekeyed {
            let rekey = world.rekey(Some(&[]));
            assert!(rekey.rounds == 1 && rekey.left_out.is_empty());
            world.reopen();
        }
        world.spoil(&chosen);
        let repair = world.repair();
        assert_eq!(
            repair.from_code.is_complete(),
            is_rekeyed,
            "{} cells",
            repair.from_code.undetermined.len()
        );
        assert!(repair.unsound.is_empty() && repair.from_code.refused.is_empty());
        assert_eq!(world.repair().from_code.undetermined.is_empty(), is_rekeyed);
    }
}

/// Each re-key uses the room of the one before, and each map is another one.
#[test]
fn the_third_code_lies_where_the_first_one_did() {
    let mut world = three(42);
    (1..=12).for_each(|id| _ = world.put(id, 90 * PAYLOAD + 9));
    world.pass();
    (13..=15).for_each(|id| _ = world.put(id, 90 * PAYLOAD));
    let size = world.file.metadata().unwrap().len();
    let mut maps = BTreeSet::from([world.header().map]);
    for (turn, memory) in [1_u64, 1 << 30, 1].into_iter().enumerate() {
        let rekey = world.rekey_within(memory, None, &AtomicBool::new(false)).unwrap();
        assert_eq!(rekey.rounds, if memory == 1 { 3 } else { 1 });
        let header = world.header();
        assert!(maps.insert(header.map) && header.next_map.is_none());
        assert_eq!(header.slot_area, u32::from(turn % 2 == 0));
        assert_eq!(world.file.metadata().unwrap().len(), size + 6 * (BLOCK + TILE) as u64);
        world.reopen();
        assert_eq!(world.stage(), None);
        [2, 7, 14].iter().for_each(|&id| world.drop_object(id));
        let repair = world.repair();
        assert_eq!(repair.restored, [2, 7, 14].map(SegmentId));
        assert!(repair.from_code.is_complete() && repair.unsound.is_empty());
        // A put of another opening than the one of before.
        world.put(20 + turn as u64, 90 * PAYLOAD);
        world.pass();
    }
}

/// Attack 16: each recovery that found something tells the store a bit. They are counted across
/// openings, and 1,024 of them use a map up.
#[test]
fn recoveries_are_counted_until_the_code_is_made_anew() {
    let mut world = three(48);
    (1..=6).for_each(|id| _ = world.put(id, 90 * PAYLOAD));
    world.pass();
    let recoveries = |world: &World| world.parity.read().unwrap().figures().recoveries;
    let is_used_up = |world: &World| world.parity.read().unwrap().owes_rekey();
    // Nothing is missing: it tells nothing.
    world.repair();
    assert_eq!(recoveries(&world), 0);
    for turn in 1..=2 {
        world.drop_object(turn);
        assert_eq!(world.repair().restored, [SegmentId(turn)]);
        assert_eq!(u64::from(recoveries(&world)), turn);
        world.pass();
        assert_eq!(u64::from(world.header().recoveries), turn);
        world.reopen();
        assert_eq!(u64::from(recoveries(&world)), turn);
    }
    for _ in 2..RECOVERIES_MAX {
        assert!(!is_used_up(&world));
        world.parity.write().unwrap().note_repair(false);
    }
    assert!(is_used_up(&world));
    world.rekey(None);
    assert!(recoveries(&world) == 0 && world.header().recoveries == 0);
    world.reopen();
    assert!(recoveries(&world) == 0 && !is_used_up(&world));
}

/// A store that lost more than the code covers, and takes not all back, has seen which cells stay
/// away: the failed recovery is no reason to keep the map.
#[test]
fn a_store_that_refuses_a_put_does_not_keep_the_map() {
    let (store, handle, refuses) = refusing();
    let world = World::of(THREE, 49, store, Some(handle));
    (1..=75).for_each(|id| _ = world.put(id, 100 * PAYLOAD));
    world.pass();
    // Too much of one tile, and an object that comes back, of which cells are in the others.
    let map = world.leaked();
    let (first, others): (Vec<CellId>, Vec<CellId>) =
        world.cells().into_iter().partition(|id| map.place(*id).tile == 0);
    let (spoilt, last) = (&first[..2100], others[others.len() - 1]);
    assert!(spoilt.iter().all(|id| id.segment != last.segment));
    world.spoil(spoilt);
    world.spoil(&[last]);
    refuses.store(true, Ordering::Relaxed);
    assert!(matches!(world.repair_within(1 << 30), Err(Error::Store { .. })));
    assert!(world.parity.read().unwrap().owes_rekey());
    refuses.store(false, Ordering::Relaxed);
    let lost = world.repair().from_code.undetermined;
    world.rekey(Some(&lost));
    assert!(!world.parity.read().unwrap().owes_rekey());
}

/// More is lost than the code covers. Behind a re-key the rest is covered, audits are held again,
/// and what was to be deleted and could not leave the code is deleted.
#[test]
fn what_is_lost_is_left_out_and_the_rest_is_covered() {
    let mut world = three(43);
    (1..=78).for_each(|id| _ = world.put(id, 100 * PAYLOAD));
    world.pass();
    (1..=70).for_each(|id| world.drop_object(id));
    // Of one a part is left.
    world.tamper(71, |bytes| bytes[..50 * PAYLOAD].fill(3));
    let has = |world: &World, id| world.store.names().contains(&object_names::segment(SegmentId(id)));
    let objects = world.covered.objects().unwrap();
    objects.delete_segments(&[SegmentId(71)]).unwrap();
    assert_eq!(world.covered.held_back().len(), 1);
    let repair = world.repair();
    let lost = repair.from_code.undetermined;
    assert!(lost.len() > 6000 && !world.is_held(300));
    let of_lost: BTreeSet<u64> = lost.iter().map(|id| id.segment.0).collect();

    let rekey = world.rekey_within(1, Some(&lost), &AtomicBool::new(false)).unwrap();
    assert_eq!(rekey.left_out.iter().map(|(_, segment)| segment.0).collect::<BTreeSet<_>>(), of_lost);
    assert!(world.is_held(300), "the rest is there");
    assert!(of_lost.iter().all(|&id| !world.covered.is_covered(SegmentId(id))));
    assert_eq!(world.parity.read().unwrap().figures().cells, 100 * (78 - of_lost.len() as u64));
    // Deleted once its pass is anchored.
    assert!(world.covered.held_back().is_empty() && has(&world, 71));
    let generation = world.parity.read().unwrap().standing().generation;
    world.covered.anchored(generation - 1).unwrap();
    assert!(has(&world, 71));
    world.covered.anchored(generation).unwrap();
    assert!(!has(&world, 71));

    // The rest is worth as much as before.
    world.reopen();
    world.drop_object(75);
    world.tamper(76, |bytes| bytes.truncate(5));
    let repair = world.repair();
    assert_eq!(repair.restored, [75, 76].map(SegmentId));
    assert!(repair.from_code.is_complete() && repair.unsound.is_empty());
    // One that comes back after all comes in under another name.
    let back = *of_lost.iter().find(|id| **id != 71).unwrap();
    world.covered.uncover();
    world.put(back, 100 * PAYLOAD);
    world.covered.cover(3, Arc::clone(&world.parity));
    world.covered.adopt(SegmentId(back), 100 * PAYLOAD).unwrap();
    world.pass();
    world.drop_object(back);
    assert_eq!(world.repair().restored, [SegmentId(back)]);
}

/// Told to end in each round, by a daemon that dies behind it: the next one makes the rest.
#[test]
fn a_re_key_that_is_interrupted_twice_goes_on_with_what_is_left() {
    let mut world = three(44);
    (1..=30).for_each(|id| _ = world.put(id, 100 * PAYLOAD));
    world.pass();
    let (first, mut maps) = (world.header().map, BTreeSet::new());
    for unmade in [2, 1] {
        let stop = AtomicBool::new(false);
        let mut rounds = 0;
        let watch = &mut |done, of| {
            rounds += u32::from(done == of);
            stop.store(rounds == 1, Ordering::Relaxed);
        };
        let stopped = rekey(&[Arc::clone(&world.covered)], None, None, &Env::seeded(8), 1, &stop, watch);
        assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
        world.reopen();
        assert_eq!(world.stage(), Some(Stage::Making(unmade)));
        let header = world.header();
        assert!(header.map == first && maps.insert(header.next_map.unwrap()) == (unmade == 2));
        // It lives on: puts, deletes, passes, and a recovery by the present code.
        let id = 40 + u64::from(unmade);
        world.put(id, 50 * PAYLOAD);
        world.covered.discard_segment(place(u64::from(unmade))).unwrap();
        let generation = world.pass().generation;
        world.covered.anchored(generation).unwrap();
        world.drop_object(id);
        world.drop_object(9);
        assert_eq!(world.repair().restored, [9, id].map(SegmentId));
    }
    let rekey = world.rekey_within(1, None, &AtomicBool::new(false)).unwrap();
    assert_eq!(rekey.rounds, 1, "two tiles were there");
    assert!(maps.contains(&world.header().map));
    (10..=15).for_each(|id| world.drop_object(id));
    let repair = world.repair();
    assert!(repair.from_code.is_complete() && repair.unsound.is_empty() && repair.restored.len() == 6);
}

/// The store loses more while the code is made anew: that ends, and the present code gives back
/// what it can.
#[test]
fn a_store_that_loses_more_meanwhile_ends_a_re_key() {
    let (world, hook) = interrupted(45);
    (1..=12).for_each(|id| _ = world.put(id, 50 * PAYLOAD));
    world.pass();
    let store = Arc::clone(&world.store);
    *hook.lock().unwrap() =
        Some(Box::new(move || assert!(store.remove(&object_names::segment(SegmentId(12))))));
    let ended = world.rekey_within(1 << 30, None, &AtomicBool::new(false));
    assert!(matches!(ended, Err(Error::Missing(known)) if known.segment == SegmentId(12)), "{ended:?}");
    assert_eq!(world.repair().restored, [SegmentId(12)]);
    let begun = world.header().next_map.unwrap();
    world.rekey(Some(&[]));
    assert_eq!(world.header().map, begun, "the one that was begun");
    // Cells that are lost since are left out of no tile that was made: another code is begun.
    let stop = AtomicBool::new(false);
    let watch = &mut |done, of| stop.store(done == of, Ordering::Relaxed);
    let stopped = rekey(&[Arc::clone(&world.covered)], None, None, &Env::seeded(8), 1, &stop, watch);
    assert!(matches!(stopped, Err(Error::Stopped)));
    let begun = world.header().next_map.unwrap();
    let lost = world.cells()[60];
    let rekey = world.rekey(Some(&[lost]));
    assert!(world.header().map != begun && rekey.left_out == [(3, lost.segment)]);
    world.drop_object(7);
    let repair = world.repair();
    assert!(repair.restored == [SegmentId(7)] && repair.unsound.is_empty());
}

/// Puts, deletes and reads go on while a round reads; the next passes bring them into both codes.
#[test]
fn a_re_key_reads_beside_writers() {
    let (mut world, hook) = interrupted(46);
    (1..=6).for_each(|id| _ = world.put(id, 50 * PAYLOAD));
    world.pass();
    (7..=8).for_each(|id| _ = world.put(id, 50 * PAYLOAD));
    let (covered, parity) = (Arc::clone(&world.covered), Arc::clone(&world.parity));
    *hook.lock().unwrap() = Some(Box::new(move || {
        for id in 20..=23 {
            covered.put_segment(place(id), &vec![id as u8; 60 * PAYLOAD]).unwrap();
        }
        [2, 7, 21].iter().for_each(|&id| covered.discard_segment(place(id)).unwrap());
        let pass = parity.write().unwrap().pass();
        assert!(matches!(pass, Err(Error::Recovering)));
    }));
    world.rekey(None);
    assert!(hook.lock().unwrap().is_none() && world.stage().is_none());
    let pass = world.pass();
    world.covered.anchored(pass.generation).unwrap();
    world.reopen();
    [1, 20, 23].iter().for_each(|&id| world.drop_object(id));
    let repair = world.repair();
    assert_eq!(repair.restored, [1, 20, 23].map(SegmentId));
    assert!(repair.from_code.is_complete() && repair.unsound.is_empty());
    let has = |id| world.store.names().contains(&object_names::segment(SegmentId(id)));
    assert!(!has(2) && !has(7) && !has(21) && has(22));
}

/// A store that fails at any request ends a re-key; the next one makes the code.
#[test]
fn a_re_key_that_dies_at_any_request_is_begun_again() {
    let mut requests = 0_u32;
    loop {
        let store = Arc::new(MemoryStore::new("bucket"));
        let left = Arc::new(AtomicU32::new(u32::MAX));
        let counted = Arc::clone(&left);
        let handle = store.handle(move |request| {
            let gone = counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            (request.operation == Operation::Read && gone.is_err()).then_some(StoreFault::Fails)
        });
        let mut world = World::on(47, store, Some(handle));
        (1..=5).for_each(|id| _ = world.put(id, 20 * PAYLOAD + 9));
        world.pass();
        left.store(requests, Ordering::Relaxed);
        let first = world.rekey_within(1, None, &AtomicBool::new(false));
        left.store(u32::MAX, Ordering::Relaxed);
        world.reopen();
        if first.is_err() {
            world.rekey_within(1, None, &AtomicBool::new(false)).unwrap();
        }
        [2, 4].iter().for_each(|&id| world.drop_object(id));
        let repair = world.repair();
        assert!(repair.restored == [2, 4].map(SegmentId) && repair.unsound.is_empty(), "cut at {requests}");
        if first.is_ok() {
            break;
        }
        requests += 1;
    }
    assert!(requests >= 5, "{requests}");
}

/// One life of a device with a re-key in it, tile by tile, which leaves out a segment that the
/// store lost, perhaps for another loss.
pub(crate) fn life(device: &mut ParityDevice, given: &mut Given, loss: Option<u32>) -> Result<(), Error> {
    let random = Env::seeded(3).random;
    let lost = given.add(device, 11, 40 * PAYLOAD)?;
    let second = given.add(device, 12, 41 * PAYLOAD)?;
    device.pass()?;
    given.add(device, 13, 20 * PAYLOAD + 5)?;
    device.begin_rekey(&BTreeSet::from([lost]), loss, &*random)?;
    go_on(device, given, lost, &mut |device, given| {
        // Between rounds one comes, and one goes that the store has.
        given.add(device, 14, 10 * PAYLOAD)?;
        let content = given.0[&second].clone();
        device.remove(second, Some(&content))
    })?;
    given.add(device, 15, 7 * PAYLOAD)?;
    device.pass()?;
    device.flush()
}

/// Ends a re-key, tile by tile. Something happens behind the first.
pub(crate) fn go_on(
    device: &mut ParityDevice,
    given: &mut Given,
    lost: ParitySegment,
    between: &mut dyn FnMut(&mut ParityDevice, &mut Given) -> Result<(), Error>,
) -> Result<u32, Error> {
    while device.rekey_stage() == Some(Stage::Wished) {
        device.pass_step()?;
    }
    let mut rounds = 0;
    loop {
        let snapshot = device.snapshot();
        let read = |segment: ParitySegment, bytes: &mut Vec<u8>| {
            bytes.clear();
            let content = given.0.get(&segment).filter(|_| segment != lost);
            content.into_iter().for_each(|content| bytes.extend_from_slice(content));
            Ok(())
        };
        let (env, done, stop) = (Env::seeded(1), BTreeSet::new(), AtomicBool::new(false));
        let search = &mut Search {
            env: &env,
            memory: 1,
            done: &done,
            read: &read,
            mirrored: &|_| (),
            stop: &stop,
            watch: &mut |_, _| (),
        };
        let Some(mut made) = snapshot.make_tiles(search)? else { break };
        while let Some(step) = device.begin_made(&mut made) {
            device.end_step(step.run())?;
        }
        drop(snapshot);
        rounds += 1;
        if rounds == 1 {
            between(device, given)?;
            device.pass()?;
        }
    }
    while device.rekey_stage().is_some() {
        device.pass_step()?;
    }
    Ok(rounds)
}

fn small() -> (False, ParityDevice) {
    made(&SMALL)
}

fn made(creation: &Creation<'_>) -> (False, ParityDevice) {
    let medium = False::new(creation.bytes());
    medium.0.lock().unwrap().size_max = 8 * creation.bytes();
    let device = ParityDevice::create(Box::new(medium.clone()), creation, &*Env::seeded(1).random).unwrap();
    (medium, device)
}

/// [por.17]
#[test]
fn a_crash_at_any_write_of_a_re_key_leaves_a_whole_code() {
    crash_at_any_write(&SMALL, None);
}

/// The same where the next code has two tiles and the present one has one.
#[test]
fn a_crash_at_any_write_of_a_change_of_the_loss_leaves_a_whole_code() {
    crash_at_any_write(&Creation { loss_ppm: 100_000, ..SMALL }, Some(500_000));
}

fn crash_at_any_write(creation: &Creation<'_>, loss: Option<u32>) {
    let (total, of_re_key) = {
        let (medium, mut device) = made(creation);
        medium.0.lock().unwrap().done = 0;
        let mut given = Given::default();
        life(&mut device, &mut given, loss).unwrap();
        assert_eq!(device.figures().loss_ppm, 500_000);
        assert!(device.segments().all(|known| known.segment != SegmentId(11)));
        given.check(&device);
        let total = medium.0.lock().unwrap().done;
        (total, (10, total))
    };
    assert!(total > 60, "{total} writes and flushes");
    let (stride, seeds) = if is_long() { (1, 5) } else { (3, 1) };
    let (mut begun, mut rounds_saved) = (0, 0);
    for seed in 0..seeds {
        for cut in (of_re_key.0 + seed % stride..of_re_key.1).step_by(stride) {
            let (medium, mut device) = made(creation);
            medium.0.lock().unwrap().left = Some(cut);
            let mut given = Given::default();
            let error = life(&mut device, &mut given, loss).unwrap_err();
            assert!(matches!(error, Error::Io { .. } | Error::NoRoom { .. }), "cut {cut}: {error}");
            let dice = Dice::new((seed * total + cut) as u64);
            let after = medium.crashed(|_| [0, BLOCK, BLOCK, 1 + dice.below(BLOCK - 1)][dice.below(4)]);
            let mut device = open(&after, 99).unwrap();
            given.check(&device);
            // It goes on, or another one begins.
            let stage = device.rekey_stage();
            begun += u32::from(stage.is_some());
            let wanted = if stage.is_some() { 500_000 } else { device.figures().loss_ppm };
            let lost = *given.0.keys().next().unwrap();
            let random = Env::seeded(cut as u64).random;
            device.begin_rekey(&BTreeSet::from([lost]), None, &*random).unwrap();
            let rounds = go_on(&mut device, &mut given, lost, &mut |_, _| Ok(())).unwrap();
            if let Some(Stage::Making(unmade)) = stage {
                assert_eq!(rounds, unmade, "cut {cut}");
                rounds_saved += 2 - unmade;
            }
            given.check(&device);
            given.add(&mut device, 17, 3 * PAYLOAD).unwrap();
            device.pass().unwrap();
            let device = open(&after, 100).unwrap();
            assert!(device.rekey_stage().is_none() && device.segments().all(|known| known != lost));
            assert_eq!(device.figures().loss_ppm, wanted, "cut {cut}");
            given.check(&device);
        }
    }
    assert!(begun > 3 && rounds_saved > 0, "{begun}, {rounds_saved}");
}

/// A medium that cannot grow, and one whose new room fails: the present code is as it was.
#[test]
fn without_room_the_present_code_stays() {
    let (medium, mut device) = small();
    let mut given = Given::default();
    given.add(&mut device, 1, 90 * PAYLOAD).unwrap();
    medium.0.lock().unwrap().size_max = SMALL.bytes();
    let random = Env::seeded(5).random;
    let refused = device.begin_rekey(&BTreeSet::new(), None, &*random).unwrap_err();
    let Error::NoRoomBeside { have, need, missing } = refused else { panic!("{refused}") };
    assert!(have == SMALL.bytes() && need > have && missing == need - have);
    device.pass().unwrap();
    assert!(device.rekey_stage().is_none());

    // It grows, and what is written there fails.
    struct Failing(False, u64);
    impl Medium for Failing {
        fn size(&self) -> std::io::Result<u64> {
            self.0.size()
        }
        fn read(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
            self.0.read(at, out)
        }
        fn write(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
            if at >= self.1 { Err(std::io::Error::other("no space")) } else { self.0.write(at, bytes) }
        }
        fn flush(&self) -> std::io::Result<()> {
            self.0.flush()
        }
        fn grow(&self, bytes: u64) -> std::io::Result<()> {
            self.0.grow(bytes)
        }
    }
    medium.0.lock().unwrap().size_max = 2 * SMALL.bytes();
    let failing = Box::new(Failing(medium.clone(), SMALL.bytes()));
    let mut device = ParityDevice::open(failing, crate::device::POOL, None, &*random).unwrap();
    device.begin_rekey(&BTreeSet::new(), None, &*random).unwrap();
    let lost = ParitySegment { segment: SegmentId(99), store: 1, opening: 1, length: 1 };
    let failed = go_on(&mut device, &mut given, lost, &mut |_, _| Ok(())).unwrap_err();
    assert!(matches!(failed, Error::NoRoom { .. }), "{failed}");
    assert!(device.rekey_stage().is_none() && !device.has_failed());
    given.add(&mut device, 2, 90 * PAYLOAD).unwrap();
    device.pass().unwrap();
    given.check(&device);
    let mut device = open(&medium, 9).unwrap();
    assert!(device.rekey_stage().is_none(), "a pass forgot it");
    given.check(&device);
    device.begin_rekey(&BTreeSet::new(), None, &*random).unwrap();
    assert_eq!(go_on(&mut device, &mut given, lost, &mut |_, _| Ok(())).unwrap(), 2);
    given.check(&device);
}

/// A made tile that is damaged, or of an older generation, is made again and not taken.
#[test]
fn a_damaged_tile_of_the_next_code_is_made_again() {
    for is_old in [false, true] {
        let (medium, mut device) = small();
        let mut given = Given::default();
        given.add(&mut device, 1, 90 * PAYLOAD).unwrap();
        device.pass().unwrap();
        device.begin_rekey(&BTreeSet::new(), None, &*Env::seeded(6).random).unwrap();
        let lost = ParitySegment { segment: SegmentId(99), store: 1, opening: 1, length: 1 };
        let stopped = go_on(&mut device, &mut given, lost, &mut |_, _| Err(Error::Stopped));
        assert!(matches!(stopped, Err(Error::Stopped)) && device.rekey_stage() == Some(Stage::Making(1)));
        let area: u64 = SMALL.bytes() / BLOCK as u64;
        let room = |state: &State| {
            let blocks = state.now.range(area..).map(|(number, block)| (*number, Arc::clone(block)));
            blocks.collect::<Vec<_>>()
        };
        let before = room(&medium.0.lock().unwrap());
        given.add(&mut device, 2, 20 * PAYLOAD).unwrap();
        device.pass().unwrap();
        {
            let state = &mut *medium.0.lock().unwrap();
            if is_old {
                let now: Vec<u64> = room(state).iter().map(|(number, _)| *number).collect();
                now.iter().for_each(|number| _ = state.now.remove(number));
                state.now.extend(before);
            } else {
                for (number, block) in room(state) {
                    // Heads stay.
                    if block[..7] != *b"SFptile" {
                        let mut block = *block;
                        block[9] ^= 1;
                        state.now.insert(number, Arc::new(block));
                    }
                }
            }
        }
        let mut device = open(&medium, 7).unwrap();
        assert_eq!(device.rekey_stage(), Some(Stage::Making(if is_old { 2 } else { 1 })));
        given.add(&mut device, 3, 20 * PAYLOAD).unwrap();
        device.pass().unwrap();
        assert_eq!(device.rekey_stage(), Some(Stage::Making(2)));
        assert_eq!(go_on(&mut device, &mut given, lost, &mut |_, _| Ok(())).unwrap(), 2);
        given.check(&device);
        given.check(&open(&medium, 8).unwrap());
    }
}

/// A sealed pool's code follows from its key and from the number of the map.
#[test]
fn a_sealed_code_is_made_anew() {
    let (key, random) = (Key::from_bytes([3; 32]), Env::seeded(12).random);
    let creation = Creation { key: Some(&key), ..SMALL };
    let medium = False::new(creation.bytes());
    let mut device = ParityDevice::create(Box::new(medium.clone()), &creation, &*random).unwrap();
    let mut given = Given::default();
    given.add(&mut device, 1, 30 * PAYLOAD).unwrap();
    device.begin_rekey(&BTreeSet::new(), None, &*random).unwrap();
    let lost = ParitySegment { segment: SegmentId(99), store: 1, opening: 1, length: 1 };
    go_on(&mut device, &mut given, lost, &mut |_, _| Ok(())).unwrap();
    assert!(matches!(open(&medium, 13), Err(Error::KeyNeeded)));
    given.check(
        &ParityDevice::open(Box::new(medium.clone()), crate::device::POOL, Some(&key), &*random).unwrap(),
    );
}

/// The loss is raised and lowered while the code works: each time the losses that it is made for
/// come back, those of before would not have, and the room of a code that went is used again.
#[test]
fn a_code_for_another_loss_is_made_while_it_works() {
    let mut world = World::of((8000, 100_000), 61, Arc::new(MemoryStore::new("bucket")), None);
    (1..=75).for_each(|id| _ = world.put(id, 100 * PAYLOAD));
    world.pass();
    let size = |world: &World| world.file.metadata().unwrap().len();
    let first = size(&world);
    let slots = |tiles: u64| 2 * tiles * (BLOCK + TILE) as u64;
    let to = |world: &World, loss: Option<u32>, stop: bool| {
        let env = Env::seeded(world.header().sequence);
        let stop = AtomicBool::new(stop);
        rekey(&[Arc::clone(&world.covered)], None, loss, &env, 1, &stop, &mut |_, _| ())
    };
    // Two thirds of a tile's rows come back, and of more than a tile nothing is promised.
    let lose = |world: &World, segments: std::ops::Range<u64>| {
        segments.for_each(|id| world.drop_object(id));
        world.repair()
    };
    assert!(lose(&world, 1..16).from_code.is_complete());
    // More cells than rows of the code before, each time.
    let losses = [
        (500_000, 3, 1..36, slots(3)),
        (300_000, 2, 1..31, slots(3) + slots(2)),
        (20_000, 1, 1..16, slots(3)),
    ];
    for (turn, (loss, tiles, lost, more)) in losses.into_iter().enumerate() {
        // One that was interrupted goes on for the same loss, though nobody names it.
        if turn == 0 {
            let stopped = to(&world, Some(loss), true);
            assert!(matches!(stopped, Err(Error::Stopped)));
            let env = Env::seeded(5);
            let stop = AtomicBool::new(false);
            let mut seen = 0;
            // Within little memory a round makes one tile; it is stopped in the second one.
            let mut watch = |done: u64, of: u64| {
                seen += u32::from(done == of);
                stop.store(seen >= 1, Ordering::Relaxed);
            };
            let covered = [Arc::clone(&world.covered)];
            let stopped = rekey(&covered, None, Some(loss), &env, 1, &stop, &mut watch);
            assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
            world.reopen();
            let next = world.parity.read().unwrap().figures().next.expect("it is under way");
            assert_eq!((next.loss_ppm, next.tiles), (loss, tiles));
            assert!(next.made > 0, "{next:?}");
            let rekeyed = to(&world, None, false).unwrap();
            assert_eq!(rekeyed.rounds, tiles - next.made);
        } else {
            let other = world.header().next_map;
            assert_eq!(other, None);
            assert_eq!(to(&world, Some(loss), false).unwrap().rounds, tiles);
        }
        world.reopen();
        let figures = world.parity.read().unwrap().figures();
        assert_eq!((figures.loss_ppm, figures.tiles, figures.next), (loss, tiles, None), "turn {turn}");
        assert!(size(&world) <= first + slots(3) + slots(2), "{more}");
        // Software that knows of one size alone refuses the device while the sizes differ.
        assert_eq!(world.header().places.is_some(), tiles != 1, "turn {turn}");
        assert_eq!(world.audit(200).judgement.failed.len(), 0);
        let repair = lose(&world, lost.clone());
        assert!(repair.from_code.is_complete() && repair.unsound.is_empty(), "turn {turn}");
        assert_eq!(repair.restored.len() as u64, lost.end - lost.start);
        world.put(100 + turn as u64, 10 * PAYLOAD);
        world.pass();
    }
    // Of what the code of three tiles gave back, the one of one tile does not.
    assert!(!lose(&world, 1..36).from_code.is_complete());
}

/// One that is being made for a loss does not go on for another one; a device that cannot grow says
/// how large it must be.
#[test]
fn a_change_of_the_loss_is_begun_anew_for_another_one() {
    let (medium, mut device) = made(&Creation { loss_ppm: 100_000, ..SMALL });
    let random = Env::seeded(62).random;
    let mut given = Given::default();
    given.add(&mut device, 1, 90 * PAYLOAD).unwrap();
    device.pass().unwrap();
    let lost = ParitySegment { segment: SegmentId(99), store: 1, opening: 1, length: 1 };
    device.begin_rekey(&BTreeSet::new(), Some(500_000), &*random).unwrap();
    let stopped = go_on(&mut device, &mut given, lost, &mut |_, _| Err(Error::Stopped));
    assert!(matches!(stopped, Err(Error::Stopped)) && device.rekey_stage() == Some(Stage::Making(1)));
    device.begin_rekey(&BTreeSet::new(), Some(500_000), &*random).unwrap();
    assert_eq!(device.rekey_stage(), Some(Stage::Making(1)), "it goes on");
    device.begin_rekey(&BTreeSet::new(), Some(20_000), &*random).unwrap();
    assert_eq!(device.rekey_stage(), Some(Stage::Wished));
    assert_eq!(go_on(&mut device, &mut given, lost, &mut |_, _| Ok(())).unwrap(), 1);
    assert_eq!(device.figures().loss_ppm, 20_000);
    given.check(&device);
    given.check(&open(&medium, 3).unwrap());
    medium.0.lock().unwrap().size_max = 0;
    let refused = device.begin_rekey(&BTreeSet::new(), Some(500_000), &*random).unwrap_err();
    let Error::NoRoomBeside { have, need, .. } = refused else { panic!("{refused}") };
    assert_eq!(need, have + 2 * (BLOCK + TILE) as u64, "two tiles for one");
}
