//! Tiles at a store: crashes, losses that a hostile store chooses, a store that is away.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::Duration;

use steadfast_device::Operation;
use steadfast_device::objects::{MemoryStore, Request, Store, StoreFault};
use steadfast_device::{Device, ObjectDevice};
use steadfast_env::{Env, Random};
use steadfast_format::SegmentId;
use steadfast_format::object_names::{self, parse_segment};
use steadfast_format::parity::{ParitySegment, ParityTile};
use steadfast_por::parity::{Bodies, Creation, Error, Medium, ParityDevice};
use steadfast_por::tile_store::{create_at_store, mend, open_parity, tend};
use steadfast_por::{
    Covered, PAYLOAD, Part, Repair, SharedParity, Tile, TileStore, rekey, repair, tile_store,
};

use crate::covered::{content, place};
use crate::device::{BLOCK, False, Given, POOL, SMALL, life};
use crate::rekey::go_on;
use crate::store::{Dice, is_long};

const ADDRESS: &str = "s3://tiles/tank";
/// Thirty tiles, with room for few cells each.
pub(crate) const THIRTY: Creation<'static> = Creation {
    pool: POOL,
    cells: 470_000,
    loss_ppm: 100_000,
    journal_bytes: 8 << 20,
    key: None,
    is_away: true,
};

pub(crate) type Shared = Arc<dyn Store>;

pub(crate) fn opened(medium: &False, store: &Shared, seed: u64) -> Result<ParityDevice, Error> {
    let stores = |address: &str| {
        assert_eq!(address, ADDRESS);
        Ok(Arc::clone(store))
    };
    open_parity(Box::new(medium.clone()), POOL, None, &stores, &Env::seeded(seed))
}

pub(crate) fn made(creation: &Creation<'_>, store: &Shared) -> (False, ParityDevice) {
    let bytes = Creation { is_away: true, ..*creation }.bytes();
    let medium = False::new(bytes);
    let (boxed, store) = (Box::new(medium.clone()), Arc::clone(store));
    let device = create_at_store(boxed, creation, ADDRESS, store, &Env::seeded(1));
    (medium, device.unwrap())
}

/// A handle of a store whose requests count as the medium's writes do: the power goes for both.
/// The request in which it goes may be done.
fn with_power(store: &MemoryStore, medium: &False, seed: u64) -> Shared {
    let (medium, dice) = (medium.clone(), Dice::new(seed));
    Arc::new(store.handle(move |_| {
        let mut state = medium.0.lock().unwrap();
        let was_gone = state.left == Some(0) && state.is_gone;
        match state.step() {
            Ok(()) => None,
            Err(_) if !was_gone && dice.below(2) == 0 => Some(StoreFault::AnswerLost),
            Err(_) => Some(StoreFault::Fails),
        }
    }))
}

fn bodies(parity: &SharedParity) -> Arc<TileStore> {
    tile_store(&parity.read().unwrap_or_else(PoisonError::into_inner)).expect("tiles at a store")
}

/// Deletes all that may be deleted: the root that tells of the last pass is committed.
fn tend_all(parity: &SharedParity) {
    let committed = parity.read().unwrap().standing().generation;
    while tend(parity, committed, &mut || true).unwrap() {}
}

/// The same, until it fails.
pub(crate) fn tended(device: &ParityDevice) {
    let (bodies, committed) = (tile_store(device).expect("tiles at a store"), device.standing().generation);
    while bodies.tend(committed, committed, &|| device.heads(), &mut || true).unwrap_or(false) {}
}

/// Names of the objects that heads name, at the store.
fn named(device: &ParityDevice, store: &MemoryStore) -> (BTreeSet<u64>, usize) {
    let there = store.names().iter().filter_map(|name| parse_segment(&name[name.find("seg/")?..])).collect();
    let heads = device.heads().names;
    let here: BTreeSet<_> = heads.intersection(&there).map(|name| name.0).collect();
    (here, heads.len())
}

/// All that is not needed is gone, and what is needed is there.
fn is_tidy(device: ParityDevice, store: &MemoryStore, tiles: usize) -> ParityDevice {
    let parity: SharedParity = Arc::new(RwLock::new(device));
    tend_all(&parity);
    assert_eq!(store.names().len(), tiles, "objects at the store");
    Arc::try_unwrap(parity).ok().expect("the only one").into_inner().unwrap()
}

/// [por.9], [por.22]
#[test]
fn a_crash_at_any_write_leaves_a_whole_code_at_a_store() {
    let total = {
        let store = MemoryStore::new("tiles");
        let (medium, device) = made(&SMALL, &(Arc::new(store.handle(|_| None)) as Shared));
        drop(device);
        let mut device = opened(&medium, &with_power(&store, &medium, 1), 1).unwrap();
        medium.0.lock().unwrap().done = 0;
        let mut states = vec![BTreeSet::new()];
        life(&mut device, &mut tended, &mut Given::default(), &mut states, &mut 0).unwrap();
        let done = medium.0.lock().unwrap().done;
        assert!(done > 90, "{done} writes, flushes and requests");
        assert_eq!(store.names().len(), 2);
        done
    };
    let (stride, seeds) = if is_long() { (1, 2) } else { (7, 1) };
    for seed in 0..seeds {
        for cut in (seed % stride..total).step_by(stride) {
            let store = MemoryStore::new("tiles");
            let plain = Arc::new(store.handle(|_| None)) as Shared;
            let (medium, device) = made(&SMALL, &plain);
            drop(device);
            let mut device = opened(&medium, &with_power(&store, &medium, cut as u64), 1).unwrap();
            medium.0.lock().unwrap().left = Some(cut);
            let (mut given, mut states, mut safe) = (Given::default(), vec![BTreeSet::new()], 0);
            let outcome = life(&mut device, &mut tended, &mut given, &mut states, &mut safe);
            // Deletes behind the last header that fail hold up nobody.
            assert!(outcome.is_err() || safe == states.len() - 1, "cut {cut} of {total}");
            drop(device);

            let dice = Dice::new((seed * total + cut) as u64);
            let after = medium.crashed(|_| [0, BLOCK, BLOCK, 1 + dice.below(BLOCK - 1)][dice.below(4)]);
            let mut device = opened(&after, &plain, 99).unwrap();
            let live: BTreeSet<_> = device.segments().collect();
            let told = |live: &BTreeSet<_>| states[safe..].contains(live);
            let untold = live.iter().find(|segment| !given.0.contains_key(segment));
            let without = untold.map(|untold| live.iter().copied().filter(|s| s != untold).collect());
            let is_removed = states.last().unwrap().difference(&live).count() == 1;
            assert!(
                told(&live) || without.is_some_and(|live| told(&live)) || is_removed,
                "cut {cut}: {live:?} of {:?}",
                &states[safe..]
            );
            given.check(&device);
            // Life goes on, and nothing is left over.
            given.add(&mut device, 17, 3 * PAYLOAD).unwrap();
            device.pass().unwrap();
            let device = is_tidy(device, &store, 2);
            given.check(&device);
            drop(device);
            given.check(&is_tidy(opened(&after, &plain, 100).unwrap(), &store, 2));
        }
    }
}

/// [por.17], [por.22], [por.23]: the power goes at any write of a life with a re-key, in a put of a
/// body, of a head or a header, in a list and in the deletes behind it.
#[test]
fn a_crash_at_any_write_of_a_re_key_leaves_a_whole_code_at_a_store() {
    let begin = |store: &MemoryStore, left: Option<usize>, seed: u64| {
        let (medium, device) = made(&SMALL, &(Arc::new(store.handle(|_| None)) as Shared));
        drop(device);
        let device = opened(&medium, &with_power(store, &medium, seed), 1).unwrap();
        {
            let state = &mut *medium.0.lock().unwrap();
            (state.done, state.left) = (0, left);
        }
        (medium, device)
    };
    let total = {
        let store = MemoryStore::new("tiles");
        let (medium, mut device) = begin(&store, None, 1);
        crate::rekey::life(&mut device, &mut Given::default(), None).unwrap();
        tended(&device);
        assert_eq!(store.names().len(), 2);
        medium.0.lock().unwrap().done
    };
    assert!(total > 100, "{total} writes, flushes and requests");
    let stride = if is_long() { 1 } else { 13 };
    let mut begun = 0;
    for cut in (10..total).step_by(stride) {
        let store = MemoryStore::new("tiles");
        let plain = Arc::new(store.handle(|_| None)) as Shared;
        let (medium, mut device) = begin(&store, Some(cut), cut as u64);
        let mut given = Given::default();
        if crate::rekey::life(&mut device, &mut given, None).is_ok() {
            tended(&device);
        }
        drop(device);
        let dice = Dice::new(cut as u64);
        let after = medium.crashed(|_| [0, BLOCK, BLOCK, 1 + dice.below(BLOCK - 1)][dice.below(4)]);
        let mut device = opened(&after, &plain, 99).unwrap();
        let (there, heads) = named(&device, &store);
        assert_eq!(there.len(), heads, "cut {cut} of {total}: objects that heads name");
        given.check(&device);
        begun += u32::from(device.rekey_stage().is_some());
        let lost = *given.0.keys().next().unwrap();
        device.begin_rekey(&BTreeSet::from([lost]), None, &*Env::seeded(cut as u64).random).unwrap();
        go_on(&mut device, &mut given, lost, &mut |_, _| Ok(())).unwrap();
        given.add(&mut device, 17, 3 * PAYLOAD).unwrap();
        device.pass().unwrap();
        let device = is_tidy(device, &store, 2);
        given.check(&device);
        drop(device);
        given.check(&is_tidy(opened(&after, &plain, 100).unwrap(), &store, 2));
    }
    assert!(begun > 1, "{begun}");
}

/// A pool's store and a store of tiles, both in hostile hands.
pub(crate) struct World {
    pub(crate) content: MemoryStore,
    pub(crate) tiles: MemoryStore,
    pub(crate) is_away: Arc<AtomicBool>,
    /// A tile that cannot be read.
    pub(crate) unreadable: Arc<Mutex<Option<String>>>,
    /// Reads and puts of tiles.
    pub(crate) asked: Arc<[AtomicUsize; 2]>,
    /// Reads of content.
    pub(crate) reads: Arc<AtomicUsize>,
    pub(crate) medium: False,
    pub(crate) covered: Arc<Covered>,
    pub(crate) parity: SharedParity,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) written: Vec<(u64, Vec<u8>)>,
}

impl World {
    pub(crate) fn new(creation: &Creation<'_>) -> World {
        let (content, tiles) = (MemoryStore::new("content"), MemoryStore::new("tiles"));
        let is_away = Arc::new(AtomicBool::new(false));
        let away = Arc::clone(&is_away);
        let (unreadable, asked): (Arc<Mutex<_>>, Arc<[AtomicUsize; 2]>) = Default::default();
        let (bad, counts) = (Arc::clone(&unreadable), Arc::clone(&asked));
        let fault = move |request: &Request| {
            match request.operation {
                Operation::Read => _ = counts[0].fetch_add(1, Ordering::Relaxed),
                Operation::Write => _ = counts[1].fetch_add(1, Ordering::Relaxed),
                _ => {}
            }
            let is_bad =
                request.operation == Operation::Read && *bad.lock().unwrap() == Some(request.name.clone());
            (is_bad || away.load(Ordering::Relaxed)).then_some(StoreFault::Away)
        };
        let (medium, parity) = made(creation, &(Arc::new(tiles.handle(fault)) as Shared));
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reads);
        let counting = content.handle(move |request| {
            counted.fetch_add(usize::from(request.operation == Operation::Read), Ordering::Relaxed);
            None
        });
        let device = ObjectDevice::open(Arc::new(counting), Some(64 << 20), [1; 16]).unwrap();
        let (covered, parity) = (Arc::new(Covered::new(Arc::new(device))), Arc::new(RwLock::new(parity)));
        covered.cover(3, Arc::clone(&parity));
        let random = Env::seeded(3).random;
        let written = Vec::new();
        World { content, tiles, is_away, unreadable, asked, reads, medium, covered, parity, random, written }
    }

    pub(crate) fn put(&mut self, id: u64, cells: usize) {
        let bytes = content(id, cells * PAYLOAD + 7);
        self.covered.put_segment(place(id), &bytes).unwrap();
        self.written.push((id, bytes));
    }

    /// A pass, and deletes behind the root that tells of it.
    pub(crate) fn pass(&self) -> Result<(), Error> {
        self.parity.write().unwrap().pass()?;
        self.tend();
        Ok(())
    }

    pub(crate) fn bodies(&self) -> Arc<TileStore> {
        bodies(&self.parity)
    }

    pub(crate) fn tend(&self) {
        tend_all(&self.parity);
    }

    pub(crate) fn mend(&self, store: &Arc<Covered>) -> Repair {
        let stop = AtomicBool::new(false);
        repair(&[Arc::clone(store)], &Env::seeded(1), 1 << 30, &stop, &mut |_, _| ()).unwrap()
    }

    /// Reads and puts of tiles since the last call.
    pub(crate) fn asked(&self) -> [usize; 2] {
        [0, 1].map(|kind: usize| self.asked[kind].swap(0, Ordering::Relaxed))
    }

    /// The cells of tiles that an audit misses, of so many samples.
    fn missed(&self, samples: u32) -> usize {
        let audit = self.bodies().store().audit(Part::All, samples, &*self.random).unwrap();
        audit.expect("a code over the tiles").judgement.failed.len()
    }

    pub(crate) fn check(&self) {
        for (id, bytes) in &self.written {
            let mut out = vec![0; bytes.len()];
            self.covered.read_segment(place(*id), 0, &mut out).unwrap();
            assert!(out == *bytes, "segment {id}");
        }
    }

    pub(crate) fn object(&self, name: &str) -> Vec<u8> {
        self.tiles.read(name, None).unwrap()
    }

    fn replace(&self, name: &str, bytes: &[u8]) {
        self.tiles.remove(name);
        assert!(self.tiles.create(name, bytes).unwrap());
    }
}

/// A store chooses 2 % of its tiles, and the pool's store 2 % of its objects.
#[test]
fn the_planned_loss_of_tiles_and_of_content_comes_back() {
    let mut world = World::new(&THIRTY);
    for id in 1..=60 {
        world.put(id, 20);
        if id % 20 == 0 {
            world.pass().unwrap();
        }
    }
    let names = world.tiles.names();
    assert_eq!((names.len(), world.missed(500)), (30, 0));
    assert!(names.iter().all(|name| name.starts_with("parity/")), "{names:?}");
    let before: Vec<Vec<u8>> = names.iter().map(|name| world.object(name)).collect();
    // A whole object, and a part of another one.
    world.tiles.remove(&names[7]);
    world.replace(&names[8], &before[8][..before[8].len() - 300 * PAYLOAD]);
    let lost: Vec<String> =
        world.content.names().into_iter().filter(|name| name.starts_with("seg/")).collect();
    lost.iter().rev().take(2).for_each(|name| assert!(world.content.remove(name)));
    assert!(world.missed(500) > 0, "an audit names them");

    let bodies = world.bodies();
    let mended = world.mend(bodies.store());
    assert!(mended.from_code.is_complete() && mended.restored.len() == 2, "{mended:?}");
    let after: Vec<Vec<u8>> = names.iter().map(|name| world.object(name)).collect();
    assert!(before == after, "each object has the bytes that it had");
    assert_eq!(world.missed(500), 0);
    let mended = world.mend(&world.covered);
    assert!(mended.from_code.is_complete() && mended.restored.len() == 2, "{mended:?}");
    world.check();
    world.pass().unwrap();
}

/// Changed, older and swapped objects are no tiles, and come back.
#[test]
fn changed_old_and_swapped_tiles_are_named_and_come_back() {
    let mut world = World::new(&THIRTY);
    world.put(1, 40);
    world.pass().unwrap();
    let old = world.tiles.names();
    let old: Vec<Vec<u8>> = old.iter().map(|name| world.object(name)).collect();
    world.put(2, 40);
    world.pass().unwrap();
    let names = world.tiles.names();
    let before: Vec<Vec<u8>> = names.iter().map(|name| world.object(name)).collect();
    assert!(before.iter().all(|bytes| !old.contains(bytes)), "each pass makes all objects anew");
    for harm in 0..3 {
        match harm {
            0 => {
                let mut bytes = before[4].clone();
                bytes[5_000_000] ^= 1;
                world.replace(&names[4], &bytes);
            }
            1 => world.replace(&names[4], &old[4]),
            _ => {
                world.replace(&names[4], &before[5]);
                world.replace(&names[5], &before[4]);
            }
        }
        if harm > 0 {
            assert!(world.missed(1000) > 0, "harm {harm}");
        }
        // A pass takes no such tile in.
        world.put(10 + harm, 3);
        let damaged = world.pass().unwrap_err();
        assert!(matches!(damaged, Error::TileDamaged(_)), "harm {harm}: {damaged}");
        let mended = world.mend(world.bodies().store());
        assert!(mended.from_code.is_complete(), "harm {harm}: {:?}", mended.from_code);
        assert!(names[4..=5].iter().zip(&before[4..]).all(|(name, bytes)| world.object(name) == *bytes));
    }
    world.pass().unwrap();
    let mended = world.mend(&world.covered);
    assert!(mended.unsound.is_empty() && mended.from_code.is_complete());
}

/// No writer waits for the store of the tiles.
#[test]
fn a_store_of_tiles_that_is_away_holds_up_no_writer() {
    let mut world = World::new(&Creation { journal_bytes: 100 * BLOCK as u64, ..THIRTY });
    world.put(1, 20);
    world.pass().unwrap();
    world.is_away.store(true, Ordering::Relaxed);
    for id in 2..=12 {
        world.put(id, 20);
    }
    assert!(matches!(world.pass(), Err(Error::TileStore { .. })));
    assert!(world.bodies().status().trouble.is_some_and(|trouble| trouble.contains("does not answer")));
    let uncovered: Vec<u64> = world
        .written
        .iter()
        .map(|(id, _)| *id)
        .filter(|id| !world.covered.is_covered((*id).into_id()))
        .collect();
    assert!(!uncovered.is_empty() && world.covered.left_out().is_some());
    // One that is deleted waits for room.
    world.covered.discard_segment(place(2)).unwrap();
    world.check();

    world.is_away.store(false, Ordering::Relaxed);
    world.pass().unwrap();
    assert_eq!(world.bodies().status().trouble, None);
    resumed(&world.covered);
    assert!(!world.covered.is_covered(2.into_id()));
    for id in uncovered {
        let length = world.written.iter().find(|(known, _)| *known == id).unwrap().1.len();
        if matches!(world.covered.adopt(id.into_id(), length), Err(Error::JournalFull { .. })) {
            world.pass().unwrap();
            world.covered.adopt(id.into_id(), length).unwrap();
        }
        assert!(world.covered.is_covered(id.into_id()));
    }
    world.pass().unwrap();
    world.tend();
    assert_eq!(world.tiles.names().len(), 30, "what failed left nothing");
}

/// Nothing is read for a delete that has to wait for room in the journal.
#[test]
fn a_delete_that_waits_reads_nothing() {
    let mut world = World::new(&Creation { journal_bytes: 100 * BLOCK as u64, ..THIRTY });
    world.put(1, 20);
    world.put(2, 20);
    world.pass().unwrap();
    world.is_away.store(true, Ordering::Relaxed);
    for id in 3..=12 {
        world.put(id, 20);
    }
    let reads = || world.reads.load(Ordering::Relaxed);
    let before = reads();
    (1..=2).for_each(|id| world.covered.discard_segment(place(id)).unwrap());
    resumed(&world.covered);
    assert!(world.covered.is_covered(1.into_id()) && world.covered.is_covered(2.into_id()));
    assert_eq!(reads(), before, "they wait, and nothing is read for them");
    world.is_away.store(false, Ordering::Relaxed);
    world.pass().unwrap();
    resumed(&world.covered);
    assert!(!world.covered.is_covered(1.into_id()) && !world.covered.is_covered(2.into_id()));
    assert_eq!(reads(), before + 2);
}

/// A stale object that the store lost holds room of the inner code until a repair.
#[test]
fn a_stale_tile_that_was_lost_goes_with_a_repair() {
    let mut world = World::new(&Creation { cells: 20_000, loss_ppm: 200_000, ..THIRTY });
    world.put(1, 100);
    world.pass().unwrap();
    let before = world.tiles.names();
    let (stores, stop) = ([Arc::clone(&world.covered)], AtomicBool::new(false));
    rekey(&stores, Some(&[]), None, &Env::seeded(9), 1 << 30, &stop, &mut |_, _| ()).unwrap();
    // The journal of the inner code has none of them any more.
    world.bodies().inner().write().unwrap().pass().unwrap();
    assert!(world.tiles.remove(&before[1]), "the former code is there still");
    world.tend();
    let covered = |world: &World| world.bodies().inner().read().unwrap().segments().count();
    assert_eq!((world.bodies().status().held, covered(&world), world.tiles.names().len()), (1, 4, 3));
    let mended = mend(&world.parity, &Env::seeded(1), 1 << 30, &stop, &mut |_, _| ()).unwrap().unwrap();
    assert!(mended.from_code.is_complete(), "{mended:?}");
    world.tend();
    assert_eq!((world.bodies().status().held, covered(&world), world.tiles.names().len()), (0, 3, 3));
}

/// Counts the requests of a kind that are under way at once.
#[derive(Default)]
struct Gate {
    /// Under way now, and the most there were.
    counts: Mutex<(usize, usize)>,
    came: Condvar,
}

impl Gate {
    /// A request comes, and goes when so many were under way at once, or in vain after a while.
    fn pass(&self, wanted: usize) {
        let mut counts = self.counts.lock().unwrap();
        counts.0 += 1;
        counts.1 = counts.1.max(counts.0);
        self.came.notify_all();
        let is_missing = |counts: &mut (usize, usize)| counts.1 < wanted;
        counts = self.came.wait_timeout_while(counts, Duration::from_secs(5), is_missing).unwrap().0;
        counts.0 -= 1;
    }

    fn most(&self) -> usize {
        std::mem::take(&mut self.counts.lock().unwrap().1)
    }
}

/// The objects of a step are read side by side, and put side by side, as many as memory holds.
#[test]
fn a_step_pays_a_round_trip_for_all_its_tiles() {
    let tiles = MemoryStore::new("tiles");
    let gates: Arc<[Gate; 2]> = Arc::default();
    let wanted = Arc::new(AtomicUsize::new(8));
    let (of_hook, of_wanted) = (Arc::clone(&gates), Arc::clone(&wanted));
    let handle = tiles.handle(move |request| {
        let wanted = of_wanted.load(Ordering::Relaxed);
        match request.operation {
            Operation::Read => of_hook[0].pass(wanted),
            Operation::Write => of_hook[1].pass(wanted),
            _ => {}
        }
        None
    });
    let (medium, device) = made(&THIRTY, &(Arc::new(tiles.handle(|_| None)) as Shared));
    drop(device);
    let handle = Arc::new(handle) as Shared;
    let stores = |_: &str| Ok(Arc::clone(&handle));
    let mut device = open_parity(Box::new(medium), POOL, None, &stores, &Env::real()).unwrap();
    let mut given = Given::default();
    let mut pass = |device: &mut ParityDevice, id| {
        given.add(device, id, 90 * PAYLOAD).unwrap();
        device.pass().unwrap();
        (gates[0].most(), gates[1].most())
    };
    // Those of the first pass were never stored.
    assert_eq!(pass(&mut device, 1), (0, 8));
    assert_eq!(pass(&mut device, 2), (8, 8));
    tile_store(&device).unwrap().set_memory(60 << 20);
    wanted.store(3, Ordering::Relaxed);
    assert_eq!(pass(&mut device, 3), (3, 3));
    tile_store(&device).unwrap().set_memory(1);
    wanted.store(1, Ordering::Relaxed);
    assert_eq!(pass(&mut device, 4), (1, 1));
    given.check(&is_tidy(device, &tiles, 30));
}

/// Takes out all that waits and can leave.
fn resumed(covered: &Covered) {
    while covered.resume_delete().unwrap() {}
}

pub(crate) fn id_of(name: &str) -> SegmentId {
    parse_segment(&name[name.find("seg/").unwrap()..]).unwrap()
}

pub(crate) trait IntoId {
    fn into_id(self) -> steadfast_format::SegmentId;
}

impl IntoId for u64 {
    fn into_id(self) -> steadfast_format::SegmentId {
        steadfast_format::SegmentId(self)
    }
}

/// A code is made anew under another map, and the former tiles go. A code that the inner one has no
/// room for is refused.
#[test]
fn a_code_at_a_store_is_made_anew() {
    let mut world = World::new(&Creation { cells: 20_000, loss_ppm: 200_000, ..THIRTY });
    world.put(1, 100);
    world.put(2, 50);
    world.pass().unwrap();
    let before = world.tiles.names();
    let made = |loss| {
        let (stores, stop) = ([Arc::clone(&world.covered)], AtomicBool::new(false));
        rekey(&stores, Some(&[]), loss, &Env::seeded(9), 1 << 30, &stop, &mut |_, _| ())
    };
    assert!(matches!(made(Some(500_000)), Err(Error::InnerSmall { tiles: 10, planned: 6 })));
    made(None).unwrap();
    world.tend();
    let after = world.tiles.names();
    assert_eq!((before.len(), after.len()), (3, 3));
    assert!(after.iter().all(|name| !before.contains(name)));
    let segments = world.content.names().into_iter().filter(|name| name.starts_with("seg/"));
    segments.take(1).for_each(|name| assert!(world.content.remove(&name)));
    assert_eq!(world.mend(&world.covered).restored.len(), 1);
    world.check();
    assert_eq!(world.mend(world.bodies().store()).held, 3 * 2057);

    // Opened again it is the same; without its store, or by who knows none, it is refused.
    let (medium, tiles) = (world.medium.clone(), world.tiles.handle(|_| None));
    world.covered.uncover();
    drop(world.parity);
    let device = opened(&medium, &(Arc::new(tiles) as Shared), 5).unwrap();
    assert_eq!(device.segments().count(), 2);
    let refused = |_: &str| Err(io::Error::other("no keys"));
    let found = open_parity(Box::new(medium), POOL, None, &refused, &Env::seeded(5));
    let Err(Error::NoTileStore { address, reason }) = found else { panic!("it is refused") };
    assert_eq!((&*address, &*reason), (ADDRESS, "no keys"));

    tile_store(&device).unwrap().delete_all().unwrap();
    assert_eq!(world.tiles.names().len(), 0);
}

/// Objects that are to go: one that cannot be read holds up no other, one pass of the inner code is
/// made for all, heads are copied for a list alone, and the pool is asked before each delete.
#[test]
fn stale_tiles_go_together() {
    let mut world = World::new(&THIRTY);
    world.put(1, 20);
    world.pass().unwrap();
    let bodies = world.bodies();
    let generation = || bodies.inner().read().unwrap().standing().generation;
    bodies.inner().write().unwrap().pass().unwrap();
    let (before, names) = (generation(), world.tiles.names());
    let (pass, copies) = (world.parity.read().unwrap().standing().generation, AtomicUsize::new(0));
    let heads = || {
        copies.fetch_add(1, Ordering::Relaxed);
        world.parity.read().unwrap().heads()
    };
    let asked = AtomicUsize::new(0);
    let tend = |is_ours| {
        bodies.tend(pass, pass, &heads, &mut || {
            asked.fetch_add(1, Ordering::Relaxed);
            is_ours
        })
    };
    // They stand for those of a code that was made anew.
    *world.unreadable.lock().unwrap() = Some(names[0].clone());
    bodies.retire(&mut names[..20].iter().map(|name| id_of(name)), pass);
    assert!(tend(false).is_err() && bodies.status().staying.is_some() && !bodies.status().holds_up());
    assert!(tend(false).unwrap(), "others leave");
    // The rest of them, and the first one again.
    assert!(tend(false).is_err());
    assert_eq!((world.tiles.names().len(), asked.load(Ordering::Relaxed)), (30, 1), "the pool is not ours");
    assert_eq!(generation(), before, "nothing was deleted");
    {
        // The journal of the inner code has room for a few of these, and no pass makes more.
        let _reads = bodies.inner().read().unwrap().snapshot();
        bodies.retire(&mut names[20..].iter().map(|name| id_of(name)), pass);
        world.asked();
        let tended = tend(false).ok();
        assert_eq!(
            (tended, bodies.status().held, world.asked()),
            (Some(false), 0, [0, 0]),
            "they wait, and are not lost"
        );
    }
    assert!(tend(true).is_err());
    assert_eq!((world.tiles.names().len(), generation()), (1, before + 2), "a full journal takes a pass");
    assert!(bodies.status().staying.is_some_and(|(count, _)| count == 1), "{:?}", bodies.status());
    *world.unreadable.lock().unwrap() = None;
    // The pool is another's when the pass of the inner code has ended.
    let mut answers = [true, false].into_iter();
    assert!(!bodies.tend(pass, pass, &heads, &mut || answers.next().unwrap()).unwrap());
    assert_eq!((world.tiles.names().len(), generation()), (1, before + 3));
    assert!(!tend(true).unwrap());
    assert_eq!((world.tiles.names().len(), generation(), bodies.status().staying), (0, before + 3, None));
    assert_eq!(asked.load(Ordering::Relaxed), 5, "also where an object leaves and is deleted in one look");
    assert_eq!(copies.load(Ordering::Relaxed), 0, "all names are known");
}

/// Where the inner code takes nothing more, a try of a step asks for nothing and puts nothing; and
/// what it never had is deleted all the same.
#[test]
fn an_inner_code_that_takes_nothing_stops_puts_and_no_deletes() {
    let mut world = World::new(&THIRTY);
    let bodies = world.bodies();
    let inner = |work: &mut dyn FnMut(&mut ParityDevice)| work(&mut bodies.inner().write().unwrap());
    world.put(1, 20);
    world.pass().unwrap();
    let old = world.tiles.names();
    // Its tiles have something that its journal has not.
    inner(&mut |inner| _ = inner.pass().unwrap());
    assert!(damage_inner(&world.medium) > 0, "it has tiles");
    world.put(2, 20);
    let step = |world: &World| world.parity.write().unwrap().pass_step();
    let failed = (0..20).find_map(|_| step(&world).err()).expect("its journal fills");
    assert!(matches!(failed, Error::Inner { .. }), "{failed}");
    let there = world.tiles.names().len();
    world.asked();
    for _ in 0..10 {
        assert!(matches!(step(&world), Err(Error::Inner { .. })));
        assert_eq!(world.asked(), [0, 0], "nothing is read either");
        // A root is committed meanwhile: those that left wait for a pass of the inner code.
        assert!(tend(&world.parity, 9, &mut || true).is_err());
        assert_eq!((world.asked(), world.tiles.names().len()), ([0, 0], there));
    }
    assert!(bodies.status().trouble.is_some(), "status tells why");
    // An object that the inner code never had.
    let foreign = object_names::segment(SegmentId(7));
    let folder = world.tiles.names()[0].split("/seg/").next().unwrap().to_owned();
    assert!(world.tiles.create(&format!("{folder}/{foreign}"), b"left over").unwrap());
    bodies.retire(&mut [SegmentId(7)].into_iter(), 0);
    assert!(tend(&world.parity, 9, &mut || true).is_err());
    assert_eq!(world.tiles.names().len(), there, "it went");
    // One that its journal has not, and for whose record there is no room, is not read for that.
    let heads = world.parity.read().unwrap().heads().names;
    let old = old.iter().map(|name| id_of(name)).find(|name| heads.contains(name)).unwrap();
    bodies.retire(&mut [old].into_iter(), 0);
    for _ in 0..3 {
        world.asked();
        assert!(tend(&world.parity, 9, &mut || true).is_err());
        assert_eq!(world.asked(), [0, 0]);
    }
    assert!(bodies.store().is_covered(old) && bodies.status().staying.is_some());
}

/// A pass of the inner code that began before an object left it is not the one that the delete
/// waits for.
#[test]
fn a_delete_waits_for_a_pass_that_began_behind_it() {
    let mut world = World::new(&THIRTY);
    world.put(1, 20);
    world.parity.write().unwrap().pass().unwrap();
    let (bodies, names) = (world.bodies(), world.tiles.names());
    assert!(bodies.inner().write().unwrap().pass_step().unwrap().is_none(), "it goes on");
    bodies.retire(&mut [id_of(&names[3])].into_iter(), 0);
    world.tend();
    assert!(!world.tiles.names().contains(&names[3]));
}

/// Flips a byte of each tile of the inner code. How many there are.
fn damage_inner(medium: &False) -> usize {
    let state = &mut *medium.0.lock().unwrap();
    let heads = state.now.iter().filter_map(|(number, block)| {
        let head = ParityTile::decode(&block[..], steadfast_crypto::hash).ok()?;
        let body: Vec<u8> = (1..=Tile::SIZE.div_ceil(BLOCK) as u64)
            .flat_map(|at| state.now.get(&(number + at)).map_or([0; BLOCK], |block| **block))
            .collect();
        (steadfast_crypto::hash(&body[..Tile::SIZE]) == head.hash).then_some(number + 1)
    });
    let bodies: Vec<u64> = heads.collect();
    for number in &bodies {
        let mut block = state.now.get(number).map_or([0; BLOCK], |block| **block);
        block[9] ^= 1;
        state.now.insert(*number, Arc::new(block));
    }
    bodies.len()
}

/// A store that is away while objects are to be deleted gets the deletes later.
#[test]
fn deletes_that_fail_come_later() {
    let world = {
        let mut world = World::new(&Creation { cells: 9000, loss_ppm: 200_000, ..THIRTY });
        world.put(1, 100);
        world.pass().unwrap();
        world
    };
    let deletes = Arc::new(AtomicBool::new(true));
    let fails = Arc::clone(&deletes);
    let handle = world.tiles.handle(move |request| {
        let is_hit = fails.load(Ordering::Relaxed) && request.operation == Operation::Discard;
        is_hit.then_some(StoreFault::Away)
    });
    world.covered.uncover();
    drop(world.parity);
    let mut given = Given::default();
    let mut device = opened(&world.medium, &(Arc::new(handle) as Shared), 7).unwrap();
    given.add(&mut device, 5, 9 * PAYLOAD).unwrap();
    device.pass().unwrap();
    tended(&device);
    assert_eq!(world.tiles.names().len(), 4, "old and new ones");
    assert!(tile_store(&device).unwrap().status().trouble.is_some());
    deletes.store(false, Ordering::Relaxed);
    given.add(&mut device, 6, 9 * PAYLOAD).unwrap();
    device.pass().unwrap();
    tended(&device);
    assert_eq!(world.tiles.names().len(), 2);
}

/// [por.23]: a copy of the device that the pool takes has all tiles that its heads name, whichever
/// copy was opened in between.
#[test]
fn a_device_put_back_within_a_pass_finds_its_tiles() {
    let mut world = World::new(&THIRTY);
    world.put(1, 40);
    world.pass().unwrap();
    world.tend();
    let committed = world.parity.read().unwrap().standing().generation;
    let copy = |world: &World| world.medium.crashed(|_| BLOCK);
    let step = |world: &World| {
        assert!(world.parity.write().unwrap().pass_step().unwrap().is_none());
        while tend(&world.parity, committed, &mut || true).unwrap() {}
    };
    world.put(2, 40);
    let mut copies = vec![copy(&world)];
    for _ in 0..2 {
        step(&world);
        copies.push(copy(&world));
    }
    world.covered.uncover();
    let World { tiles, parity, .. } = world;
    drop(parity);
    let plain = Arc::new(tiles.handle(|_| None)) as Shared;
    assert_eq!(tiles.names().len(), 30 + 16, "former ones are there still");
    for at in [1, 0, 2] {
        let device = opened(&copies[at], &plain, 5).unwrap();
        assert_eq!((named(&device, &tiles).0.len(), device.standing().generation), (30, committed));
        // A newer copy may know of objects that it does not know of.
        tended(&device);
    }
    // The pass of one of them is committed: the others are refused from then on, and all else goes.
    let mut device = opened(&copies[1], &plain, 6).unwrap();
    device.pass().unwrap();
    assert_eq!(device.standing().generation, committed + 1);
    assert_eq!(device.audit_tiles(1000, &*Env::seeded(1).random).unwrap(), Vec::<u32>::new());
    is_tidy(device, &tiles, 30);
}

/// [por.22]: where a flush beside a step fails behind its heads, they name their objects still.
#[test]
fn objects_of_a_step_beside_which_a_flush_failed_stay() {
    type Happening = Box<dyn FnOnce() + Send>;
    /// Behind the next head of a tile something happens.
    struct Beside(False, Arc<Mutex<Option<Happening>>>);
    impl Medium for Beside {
        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }
        fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
            self.0.read(at, out)
        }
        fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
            self.0.write(at, bytes)?;
            if ParityTile::decode(bytes, steadfast_crypto::hash).is_ok() {
                let happens = self.1.lock().unwrap().take();
                happens.into_iter().for_each(|happens| happens());
            }
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            self.0.flush()
        }
        fn grow(&self, bytes: u64) -> io::Result<()> {
            self.0.grow(bytes)
        }
    }
    let tiles = MemoryStore::new("tiles");
    let plain = Arc::new(tiles.handle(|_| None)) as Shared;
    let (medium, device) = made(&SMALL, &plain);
    drop(device);
    let happening: Arc<Mutex<Option<Happening>>> = Arc::default();
    let beside = Beside(medium.clone(), Arc::clone(&happening));
    let stores = |_: &str| Ok(Arc::clone(&plain));
    let mut device = open_parity(Box::new(beside), POOL, None, &stores, &Env::seeded(7)).unwrap();
    let mut given = Given::default();
    given.add(&mut device, 1, 90 * PAYLOAD).unwrap();
    let step = device.begin_step().unwrap().unwrap();
    given.add(&mut device, 2, PAYLOAD).unwrap();
    let (flusher, state) = (device.flusher(), Arc::clone(&medium.0));
    *happening.lock().unwrap() = Some(Box::new(move || {
        state.lock().unwrap().left = Some(0);
        assert!(matches!(flusher.flush(), Err(Error::Io { .. })));
        state.lock().unwrap().left = None;
    }));
    assert!(matches!(device.end_step(step.run()), Err(Error::Failed)));
    tended(&device);
    let again = opened(&medium.crashed(|_| BLOCK), &plain, 8).unwrap();
    let (heads, bodies) = (again.heads().names, tile_store(&again).unwrap());
    let covered = heads.iter().filter(|name| bodies.store().is_covered(**name)).count();
    assert_eq!((heads.len(), covered, named(&again, &tiles).0.len()), (2, 2, 2));
}

/// [por.22]
#[test]
fn tiles_of_a_code_that_is_given_up_stay_until_a_header_is_without_it() {
    // One of its slots fails.
    struct Failing(False, u64);
    impl Medium for Failing {
        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }
        fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
            self.0.read(at, out)
        }
        fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
            if at == self.1 { Err(io::Error::other("no space")) } else { self.0.write(at, bytes) }
        }
        fn flush(&self) -> io::Result<()> {
            self.0.flush()
        }
        fn grow(&self, bytes: u64) -> io::Result<()> {
            self.0.grow(bytes)
        }
    }
    let tiles = MemoryStore::new("tiles");
    let plain = Arc::new(tiles.handle(|_| None)) as Shared;
    let (medium, device) = made(&SMALL, &plain);
    drop(device);
    let random = Env::seeded(7).random;
    // The slots of the next code begin behind it, and the last one is used first.
    let end = medium.size().unwrap();
    medium.0.lock().unwrap().size_max = 2 * end;
    let stores = |_: &str| Ok(Arc::clone(&plain));
    let failing = Box::new(Failing(medium.clone(), end + 2 * BLOCK as u64));
    let mut device = open_parity(failing, POOL, None, &stores, &Env::seeded(7)).unwrap();
    let mut given = Given::default();
    given.add(&mut device, 1, 90 * PAYLOAD).unwrap();
    device.pass().unwrap();
    tended(&device);
    device.begin_rekey(&BTreeSet::new(), None, &*random).unwrap();
    let lost = ParitySegment { segment: SegmentId(99), store: 1, opening: 1, length: 1 };
    let failed = go_on(&mut device, &mut given, lost, &mut |_, _| Ok(())).unwrap_err();
    assert!(matches!(failed, Error::NoRoom { .. }), "{failed}");
    tended(&device);
    // The header names that code still.
    let again = opened(&medium.crashed(|_| BLOCK), &plain, 8).unwrap();
    let (there, heads) = named(&again, &tiles);
    assert!(again.rekey_stage().is_some() && heads > 2, "{heads} heads");
    assert_eq!(there.len(), heads, "objects of the code that the header names");
    drop(again);
    device.pass().unwrap();
    let device = is_tidy(device, &tiles, 2);
    given.check(&device);
}

/// Figures of decision 0263.
#[test]
fn the_trusted_device_is_as_small_as_the_record_tells() {
    const GIB: u64 = 1 << 30;
    let told = [(1, "0.07", "0.14"), (8, "0.33", "0.30"), (64, "2.13", "0.78"), (1024, "33.05", "9.86")];
    for (content, here, away) in told {
        let (cells, journal_bytes) = (content * GIB / PAYLOAD as u64, 256 << 20);
        let creation =
            Creation { pool: POOL, cells, loss_ppm: 20_000, journal_bytes, key: None, is_away: false };
        let without =
            |creation: Creation<'_>| format!("{:.2}", (creation.bytes() - journal_bytes) as f64 / GIB as f64);
        assert_eq!(without(creation), here, "{content} GiB");
        assert_eq!(without(Creation { is_away: true, ..creation }), away, "{content} GiB");
    }
}
