//! Steps of passes: changes beside one that runs, and what a crash leaves.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use steadfast_device::Device;
use steadfast_device::objects::MemoryStore;
use steadfast_env::{Env, Job, TaskHandle, Tasks};
use steadfast_format::SegmentId;
use steadfast_por::parity::{Creation, Error, Medium, ParityDevice, Pass};
use steadfast_por::{PAYLOAD, SharedParity, pass_step};

use crate::covered::{World, content, place};
use crate::device::{BLOCK, False, Given, SMALL, open};
use crate::store::{Dice, is_long};

type Happening = Box<dyn FnOnce() + Send>;

/// A medium before whose write of some number something else happens, once.
#[derive(Clone)]
struct Visited {
    medium: False,
    /// Writes until then, and what happens.
    visit: Arc<Mutex<Option<(usize, Happening)>>>,
    /// Blocks that were written by themselves: heads among them.
    single: Arc<Mutex<BTreeSet<u64>>>,
}

impl Visited {
    fn new(medium: False) -> Visited {
        Visited { medium, visit: Arc::default(), single: Arc::default() }
    }

    fn at(&self, write: usize, happens: impl FnOnce() + Send + 'static) {
        *self.visit.lock().unwrap() = Some((write, Box::new(happens)));
    }
}

impl Medium for Visited {
    fn size(&self) -> io::Result<u64> {
        self.medium.size()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.medium.read(at, out)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let happens = {
            let visit = &mut *self.visit.lock().unwrap();
            match visit {
                Some((0, _)) => visit.take().map(|(_, happens)| happens),
                Some((left, _)) => {
                    *left -= 1;
                    None
                }
                None => None,
            }
        };
        happens.into_iter().for_each(|happens| happens());
        if bytes.len() == BLOCK {
            self.single.lock().unwrap().insert(at / BLOCK as u64);
        }
        self.medium.write(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.medium.flush()
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        self.medium.grow(bytes)
    }
}

/// A device with a segment in the tiles and two in the journal, of which a pass is to begin.
struct Scene {
    visited: Visited,
    parity: SharedParity,
    given: Arc<Mutex<Given>>,
}

fn pass(parity: &SharedParity) -> Result<Pass, Error> {
    loop {
        if let Some(pass) = pass_step(parity)? {
            return Ok(pass);
        }
    }
}

impl Scene {
    fn new() -> Scene {
        let visited = Visited::new(False::new(SMALL.bytes()));
        let random = Env::seeded(1).random;
        let device = ParityDevice::create(Box::new(visited.clone()), &SMALL, &*random).unwrap();
        let scene = Scene { visited, parity: Arc::new(RwLock::new(device)), given: Arc::default() };
        scene.add(1, 40);
        scene.add(2, 20);
        pass(&scene.parity).unwrap();
        scene.add(3, 30);
        scene.add(4, 10);
        scene
    }

    fn add(&self, id: u64, cells: usize) {
        let device = &mut *self.parity.write().unwrap();
        self.given.lock().unwrap().add(device, id, cells * PAYLOAD - 5).unwrap();
    }

    /// While a step runs segments come, and one goes that the tiles have, one that the pass
    /// under way takes in, and one that came this moment.
    fn meanwhile(&self) -> impl FnOnce() + Send + use<> {
        let (parity, given) = (Arc::clone(&self.parity), Arc::clone(&self.given));
        move || {
            let device = &mut *parity.write().expect("nobody holds the lock while a step runs");
            let given = &mut *given.lock().unwrap();
            assert!(device.is_step_running());
            assert!(matches!(device.pass_step(), Err(Error::StepRunning)), "[por.18]");
            assert!(device.begin_step().unwrap().is_none(), "[por.18]");
            assert!(device.audit_tiles(20, &*Env::seeded(3).random).unwrap().is_empty());
            let came = given.add(device, 20, 3 * PAYLOAD).unwrap();
            let named = |id| move |(known, _): &(_, _)| *known == SegmentId(id);
            let known: Vec<_> = device.segments().map(|known| (known.segment, known)).collect();
            for id in [1, 3] {
                let gone = known.iter().find(|known| named(id)(known)).unwrap().1;
                device.remove(gone, Some(&given.0[&gone])).unwrap();
            }
            device.remove(came, None).unwrap();
            given.add(device, 21, 5 * PAYLOAD).unwrap();
            device.flush().unwrap();
        }
    }
}

/// Four threads for each set of jobs.
#[derive(Default)]
struct Four(AtomicUsize);

impl Tasks for Four {
    fn spawn(&self, _name: &str, _job: Job<'static>) -> Box<dyn TaskHandle> {
        unreachable!("a step has no long-lived tasks")
    }

    fn run_all<'a>(&self, jobs: Vec<Job<'a>>) {
        self.0.fetch_add(jobs.len(), Ordering::Relaxed);
        std::thread::scope(|scope| jobs.into_iter().for_each(|job| _ = scope.spawn(job)));
    }

    fn parallelism(&self) -> usize {
        4
    }
}

/// Decision 0290.
#[test]
fn tiles_that_pass_beside_each_other_are_the_same_code() {
    let creation = Creation { cells: 12_000, journal_bytes: 1_000 * BLOCK as u64, ..SMALL };
    let tasks = Arc::new(Four::default());
    let made = |tasks: Option<Arc<dyn Tasks>>| {
        let medium = False::new(creation.bytes());
        let random = Env::seeded(1).random;
        let mut device = ParityDevice::create(Box::new(medium.clone()), &creation, &*random).unwrap();
        tasks.into_iter().for_each(|tasks| device.work_beside(tasks));
        assert!(device.figures().tiles > 2);
        let (mut given, mut passes) = (Given::default(), Vec::new());
        for round in 0..3 {
            for id in 0..[5, 9, 1][round] {
                let bytes = (40 + id * 7) * PAYLOAD - 5;
                given.add(&mut device, (100 * round + id + 1) as u64, bytes).unwrap();
            }
            passes.push(device.pass().unwrap());
        }
        let mut stored = vec![0; usize::try_from(creation.bytes()).unwrap()];
        medium.read(0, &mut stored).unwrap();
        (passes, stored)
    };
    let (alone, beside) = (made(None), made(Some(Arc::clone(&tasks) as Arc<dyn Tasks>)));
    assert!(tasks.0.load(Ordering::Relaxed) > 8, "parts of a step ran beside each other");
    assert_eq!(alone.0, beside.0);
    assert!(alone.1 == beside.1, "byte for byte");
}

fn ids(device: &ParityDevice) -> Vec<u64> {
    device.segments().map(|known| known.segment.0).collect()
}

/// [por.20]: at any write of a pass others come and go; they belong to the next one.
#[test]
fn what_comes_while_a_step_runs_belongs_to_the_next_pass() {
    for write in 0.. {
        let scene = Scene::new();
        scene.visited.at(write, scene.meanwhile());
        let first = pass(&scene.parity).unwrap();
        if scene.visited.visit.lock().unwrap().is_some() {
            assert!(write >= 8, "{write} writes");
            break;
        }
        assert!(first.released.is_empty(), "{:?}", first.released);
        let device = &mut *scene.parity.write().unwrap();
        let given = scene.given.lock().unwrap();
        assert_eq!(ids(device), [2, 4, 21], "{write}");
        given.check(device);
        // The pass did not free what came meanwhile: another opening reads it.
        let again = open(&scene.visited.medium, 7).unwrap();
        assert_eq!(ids(&again), [2, 4, 21], "{write}");
        given.check(&again);
        let second = device.pass().unwrap();
        let released: Vec<u64> = second.released.iter().map(|known| known.segment.0).collect();
        assert_eq!(released, [1, 3, 20], "{write}");
        assert_eq!(device.journal_bytes(), 0);
        given.check(device);
        given.check(&open(&scene.visited.medium, 8).unwrap());
    }
}

/// [por.9], [por.21]: the power goes at any write or flush behind that, too.
#[test]
fn a_crash_in_a_step_with_others_beside_leaves_a_whole_code() {
    let (stride, seeds) = if is_long() { (1, 4) } else { (3, 1) };
    for seed in 0..seeds {
        for write in 0.. {
            let mut was_over = false;
            for cut in (write % stride..).step_by(stride) {
                let scene = Scene::new();
                let (happens, state) = (scene.meanwhile(), Arc::clone(&scene.visited.medium.0));
                scene.visited.at(write, move || {
                    happens();
                    state.lock().unwrap().left = Some(cut);
                });
                let outcome = pass(&scene.parity);
                was_over = scene.visited.visit.lock().unwrap().is_some();
                if was_over || outcome.is_ok() {
                    break;
                }
                let dice = Dice::new((seed * 1000 + write * 50 + cut) as u64);
                let after =
                    scene.visited.medium.crashed(|_| [0, 4096, 4096, 1 + dice.below(4095)][dice.below(4)]);
                let mut device = open(&after, 9).unwrap();
                assert_eq!(ids(&device), [2, 4, 21], "write {write}, cut {cut}");
                let given = scene.given.lock().unwrap();
                given.check(&device);
                device.pass().unwrap();
                given.check(&open(&after, 10).unwrap());
            }
            if was_over {
                break;
            }
        }
    }
}

/// [por.20]: tiles of later steps take in no record that came since the pass began.
#[test]
fn later_steps_of_a_pass_take_in_no_later_record() {
    // Ten tiles, of which eight are a step.
    let world = World::of((30_000, 500_000), 23, Arc::new(MemoryStore::new("bucket")), None);
    assert_eq!(world.parity.read().unwrap().figures().tiles, 10);
    (1..=3).for_each(|id| _ = world.put(id, 40 * PAYLOAD));
    world.pass();
    (4..=5).for_each(|id| _ = world.put(id, 40 * PAYLOAD));
    assert!(pass_step(&world.parity).unwrap().is_none());
    // In the tiles, in this pass, and in the next one alone.
    world.put(6, 40 * PAYLOAD);
    for id in [1, 4, 6] {
        world.covered.discard_segment(place(id)).unwrap();
    }
    world.put(7, 40 * PAYLOAD);
    assert!(pass(&world.parity).unwrap().released.is_empty());
    let is_whole = |gone: &[u64]| {
        gone.iter().for_each(|&id| world.drop_object(id));
        let repair = world.repair();
        assert!(repair.from_code.is_complete() && repair.unsound.is_empty(), "{:?}", repair.unsound);
        assert_eq!(repair.restored, gone.iter().copied().map(SegmentId).collect::<Vec<_>>());
    };
    is_whole(&[2, 5, 7]);
    let second = pass(&world.parity).unwrap();
    assert_eq!(second.released.iter().map(|known| known.segment.0).collect::<Vec<_>>(), [1, 4, 6]);
    world.covered.anchored(second.generation).unwrap();
    is_whole(&[2, 3, 5, 7]);
}

/// [por.10]: the next step takes slots that the one before left, and heads that are not durable are
/// lost.
#[test]
fn a_slot_is_taken_again_behind_a_durable_head() {
    let creation = Creation { cells: 30_000, ..SMALL };
    let visited = Visited::new(False::new(creation.bytes()));
    let random = Env::seeded(2).random;
    let device = ParityDevice::create(Box::new(visited.clone()), &creation, &*random).unwrap();
    let parity: SharedParity = Arc::new(RwLock::new(device));
    let given = Arc::new(Mutex::new(Given::default()));
    for id in 1..=2 {
        given.lock().unwrap().add(&mut parity.write().unwrap(), id, 30 * PAYLOAD).unwrap();
        pass(&parity).unwrap();
    }
    given.lock().unwrap().add(&mut parity.write().unwrap(), 3, 30 * PAYLOAD).unwrap();
    assert!(pass_step(&parity).unwrap().is_none());
    let (after, medium, single) = (Arc::default(), visited.medium.clone(), Arc::clone(&visited.single));
    let crashed: Arc<Mutex<Option<False>>> = Arc::clone(&after);
    visited.at(1, move || {
        let single = single.lock().unwrap();
        let after = medium.crashed(|number| if single.contains(&number) { 0 } else { BLOCK });
        *crashed.lock().unwrap() = Some(after);
    });
    pass(&parity).unwrap();
    let after = after.lock().unwrap().take().expect("the second step has two tiles");
    given.lock().unwrap().check(&open(&after, 9).unwrap());
}

/// A step that never ends: nobody knows what it stored, so nothing more is stored.
#[test]
fn a_step_that_does_not_end_stops_the_device() {
    let scene = Scene::new();
    let device = &mut *scene.parity.write().unwrap();
    drop(device.begin_step().unwrap().unwrap());
    assert!(!device.is_step_running());
    assert!(matches!(device.begin_step().err(), Some(Error::Failed)));
    assert!(device.has_failed());
    scene.given.lock().unwrap().check(device);
}

/// A flush that fails while a step runs is told to the step, too, whoever asked for it: no head is
/// written behind it.
#[test]
fn a_flush_that_fails_beside_a_step_stops_it() {
    let scene = Scene::new();
    let (parity, state) = (Arc::clone(&scene.parity), Arc::clone(&scene.visited.medium.0));
    let (given, single) = (Arc::clone(&scene.given), Arc::clone(&scene.visited.single));
    // Beside the second tile, before the flush of both.
    scene.visited.at(1, move || {
        let device = &mut *parity.write().unwrap();
        given.lock().unwrap().add(device, 20, PAYLOAD).unwrap();
        state.lock().unwrap().left = Some(0);
        assert!(matches!(device.flush(), Err(Error::Io { .. })));
        // A system tells of it once.
        state.lock().unwrap().left = None;
        single.lock().unwrap().clear();
    });
    assert!(matches!(pass(&scene.parity), Err(Error::Failed)));
    assert!(scene.parity.read().unwrap().has_failed());
    assert!(scene.visited.single.lock().unwrap().is_empty(), "no head is written");
    let after = scene.visited.medium.crashed(|_| 0);
    scene.given.lock().unwrap().check(&open(&after, 9).unwrap());
}

#[test]
#[should_panic(expected = "[por.18]")]
fn no_snapshot_is_taken_in_a_step() {
    let scene = Scene::new();
    let device = &mut *scene.parity.write().unwrap();
    let _step = device.begin_step().unwrap().unwrap();
    let _snapshot = device.snapshot();
}

/// Writers, deleters, a recovery and a task of passes beside one another, on a journal that is full
/// most of the time. All is covered, and the code is whole.
#[test]
fn a_full_journal_holds_up_writers_until_a_pass_ends() {
    let world = World::of((8000, 500_000), 21, Arc::new(MemoryStore::new("bucket")), None);
    let (put, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for writer in 0..4_u64 {
            let (world, put, is_over) = (&world, &put, &is_over);
            scope.spawn(move || {
                for number in 0..12 {
                    let id = 1 + writer * 100 + number;
                    world.put(id, 60 * PAYLOAD - 1);
                    put.fetch_add(1, Ordering::Relaxed);
                    if number % 3 == 1 {
                        world.covered.discard_segment(place(id - 1)).unwrap();
                    }
                    world.covered.flush().unwrap();
                }
                is_over.fetch_add(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            while is_over.load(Ordering::Relaxed) < 4 {
                pass_step(&world.parity).unwrap();
            }
        });
    });
    assert_eq!(put.into_inner(), 48);
    assert_eq!(world.covered.left_out(), None);
    let there: Vec<u64> = ids(&world.parity.read().unwrap());
    assert_eq!(there.len(), 32);
    for &id in &there {
        assert_eq!(world.object(id), content(id, 60 * PAYLOAD - 1));
    }
    there.iter().step_by(3).for_each(|&id| world.drop_object(id));
    let repair = world.repair();
    assert_eq!(repair.restored.len(), there.len().div_ceil(3));
    assert!(repair.from_code.is_complete() && repair.unsound.is_empty());
}

/// A recovery that is asked for while a step runs begins when that has ended.
#[test]
fn a_recovery_waits_for_the_end_of_a_step() {
    let world = World::new(22);
    (1..=6).for_each(|id| _ = world.put(id, 30 * PAYLOAD));
    world.drop_object(2);
    let step = world.parity.write().unwrap().begin_step().unwrap().unwrap();
    std::thread::scope(|scope| {
        let repair = scope.spawn(|| world.repair());
        let result = step.run();
        assert!(world.parity.write().unwrap().end_step(result).unwrap().is_none());
        let repair = repair.join().unwrap();
        assert!(repair.restored == [SegmentId(2)] && repair.unsound.is_empty());
    });
    world.pass();
    assert!(world.repair().unsound.is_empty());
}

/// A step collects 2,048 cells of a tile before it adds them, and 8,192 of all its tiles.
#[test]
fn tiles_take_in_more_cells_than_a_step_holds_at_once() {
    for cells in [7000, 12_000] {
        let creation = Creation { cells: 30_000, loss_ppm: 100_000, journal_bytes: 64 << 20, ..SMALL };
        let medium = tempfile::tempfile().unwrap();
        medium.set_len(creation.bytes()).unwrap();
        let random = Env::seeded(5).random;
        let mut device = ParityDevice::create(Box::new(medium), &creation, &*random).unwrap();
        assert_eq!(device.figures().tiles, 2);
        let mut given = Given::default();
        for round in 0..2 {
            for at in 0..cells / 1000 {
                given.add(&mut device, 1 + at as u64 + 100 * round, 1000 * PAYLOAD - 7).unwrap();
            }
            device.pass().unwrap();
            let outcome = given.recovered(&device, |id| id.index % 16 == 1);
            assert!(outcome.from_code.is_complete() && outcome.unsound.is_empty());
        }
    }
}
