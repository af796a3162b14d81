//! Deletes in a pool with a parity device: what they wait for, and what they cost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{ROOT, handle, mount, spec};
use crate::covered::{CAPACITY, World, fill, parity, until};
use steadfast_device::Operation;
use steadfast_device::objects::{ObjectDevice, StoreFault};
use steadfast_pool::Pool;

const SECOND: u64 = 1_000_000_000;

/// Lets time pass: where nothing is asked for, a step does.
fn rest(world: &World, pool: &Pool, seconds: u64) {
    let until = world.env.clock.monotonic_ns() + seconds * SECOND;
    while world.env.clock.monotonic_ns() < until {
        pool.step();
    }
}

/// A store that does not give an object that is to be deleted is asked for it each half minute, and
/// status tells of it meanwhile; it goes when the store gives it.
#[test]
fn an_object_that_cannot_be_read_is_asked_for_each_half_minute() {
    let world = World::new(41);
    let (is_away, asked): (_, Arc<Mutex<Vec<u64>>>) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let (away, times, clock) = (Arc::clone(&is_away), Arc::clone(&asked), Arc::clone(&world.env.clock));
    let store = world.store.handle(move |request| {
        let is_read = request.operation == Operation::Read && request.name.starts_with("seg/");
        let fails = is_read && away.load(Ordering::Relaxed);
        fails.then(|| {
            times.lock().unwrap().push(clock.monotonic_ns());
            StoreFault::Away
        })
    });
    let device = Arc::new(ObjectDevice::open(Arc::new(store), Some(CAPACITY), [1; 16]).expect("a store"));
    let pool = Pool::create(&world.env, spec(vec![handle(&device)], None)).expect("a pool");
    world.add(&pool);
    fill(&pool, 0..8);
    let figures = || parity(&pool).figures.expect("a code");
    fill(&pool, 8..24);
    until(&pool, "a pass ends", || figures().journal_used < figures().journal_size / 8);
    {
        let (fs, _open) = mount(&pool, "tank");
        is_away.store(true, Ordering::Relaxed);
        (0..4).for_each(|number| fs.unlink(ROOT, format!("file {number}").as_bytes()).expect("removed"));
    }
    until(&pool, "status tells", || parity(&pool).unread.is_some());
    assert_eq!(parity(&pool).held_back, 0);
    asked.lock().unwrap().clear();
    until(&pool, "it is asked for", || asked.lock().unwrap().len() > 4);
    let times = asked.lock().unwrap().clone();
    assert!(times.is_sorted_by(|one, next| next - one >= 30 * SECOND), "{times:?}");
    let before = world.segments().len();
    is_away.store(false, Ordering::Relaxed);
    until(&pool, "it goes", || parity(&pool).unread.is_none() && world.segments().len() < before);
    assert_eq!(parity(&pool).held_back, 0);
}

/// The commit that tells of a pass frees objects itself. A pool in which nobody writes makes no
/// passes for these for ever; where somebody writes, what was deleted goes.
#[test]
fn a_pool_in_which_nobody_writes_makes_no_passes() {
    let world = World::new(42);
    let pool = world.create();
    world.add(&pool);
    fill(&pool, 0..6);
    let generation = || parity(&pool).figures.expect("a code").generation;
    for number in 0..2 {
        let before = (world.segments().len(), generation());
        {
            let (fs, _open) = mount(&pool, "tank");
            fs.unlink(ROOT, format!("file {number}").as_bytes()).expect("removed");
        }
        rest(&world, &pool, 300);
        let (left, passes) = (world.segments().len(), generation());
        assert!(left < before.0 && passes > before.1, "what was deleted went: {left} of {before:?}");
        rest(&world, &pool, 3600);
        assert_eq!((world.segments().len(), generation()), (left, passes), "nobody writes");
    }
}

/// An import is no reason for a pass: the first one for deletes alone comes as long behind it as
/// behind another pass.
#[test]
fn an_import_makes_no_pass_sooner() {
    let world = World::new(44);
    let pool = world.create();
    world.add(&pool);
    fill(&pool, 0..4);
    rest(&world, &pool, 300);
    pool.export().expect("exported");
    drop(pool);
    let pool = world.import(2);
    let generation = || parity(&pool).figures.expect("a code").generation;
    let before = generation();
    {
        let (fs, _open) = mount(&pool, "tank");
        fs.unlink(ROOT, b"file 0").expect("removed");
    }
    rest(&world, &pool, 20);
    assert_eq!(generation(), before, "not yet");
    rest(&world, &pool, 60);
    assert!(generation() > before, "it goes then");
}

/// One object that is to be deleted, and that its store never gives, makes no passes for ever
/// either: the others leave the code meanwhile.
#[test]
fn an_object_that_is_never_given_makes_no_passes() {
    let world = World::new(43);
    let refused: Arc<Mutex<Option<String>>> = Arc::default();
    let of_hook = Arc::clone(&refused);
    let store = world.store.handle(move |request| {
        let is_it = of_hook.lock().unwrap().as_deref() == Some(&*request.name);
        (request.operation == Operation::Read && is_it).then_some(StoreFault::Fails)
    });
    let device = Arc::new(ObjectDevice::open(Arc::new(store), Some(CAPACITY), [1; 16]).expect("a store"));
    let pool = Pool::create(&world.env, spec(vec![handle(&device)], None)).expect("a pool");
    world.add(&pool);
    fill(&pool, 0..24);
    let figures = || parity(&pool).figures.expect("a code");
    until(&pool, "a pass ends", || figures().journal_used < figures().journal_size / 8);
    // The first object that is read because it is to go is refused from then on.
    let before = world.segments();
    {
        let (fs, _open) = mount(&pool, "tank");
        *refused.lock().unwrap() = before.iter().find(|name| world.store.names().contains(*name)).cloned();
        (0..8).for_each(|number| fs.unlink(ROOT, format!("file {number}").as_bytes()).expect("removed"));
    }
    rest(&world, &pool, 600);
    assert!(parity(&pool).unread.is_some_and(|(count, _)| count == 1), "{:?}", parity(&pool).unread);
    let (left, passes) = (world.segments().len(), figures().generation);
    assert!(left < before.len(), "others went");
    rest(&world, &pool, 3600);
    assert_eq!((world.segments().len(), figures().generation), (left, passes), "nobody writes");
}
