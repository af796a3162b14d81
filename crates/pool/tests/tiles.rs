//! A pool with a parity device whose tiles lie at a store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{MIB, ROOT, mount, noise, spec, write_file};
use crate::covered::{PATH, TILES, World, check, fill, parity, until};
use steadfast_device::Operation;
use steadfast_device::objects::{MemoryStore, Request, StoreFault};
use steadfast_env::Env;
use steadfast_format::object_names::ROOTS;
use steadfast_format::parity::ParityTile;
use steadfast_pool::{Error, LOSS_PPM, ParityWish, Pool, Registers};
use steadfast_por::Tile;

/// Tiles at a store: audits ask for them, a recovery brings them back, writers do not wait while
/// that store is away, and with the parity device they go.
#[test]
fn tiles_at_a_store_come_back_and_go() {
    let world = World::new(31);
    world.corner.put(PATH, 192 * MIB);
    let (tiles, is_away) = (MemoryStore::new("tiles"), Arc::new(AtomicBool::new(false)));
    let lend = || {
        let is_away = Arc::clone(&is_away);
        let fault = move |_: &Request| is_away.load(Ordering::SeqCst).then_some(StoreFault::Away);
        *world.corner.2.lock().unwrap() = Some(tiles.handle(fault));
    };
    let pool = world.create();
    fill(&pool, 0..8);
    lend();
    let stores = |address: &str| world.corner.tiles(address);
    let wish = ParityWish { tiles: Some((TILES, &stores)), ..ParityWish::of(LOSS_PPM) };
    let medium = || world.corner.parity(PATH).expect("a file");
    let small =
        pool.devices().add_parity_for(wish, PATH, Box::new(tempfile::tempfile().unwrap()), false, false);
    assert!(matches!(small, Err(Error::ParitySmall { .. })), "{small:?}");
    pool.devices().add_parity_for(wish, PATH, medium(), false, false).expect("a parity device");
    assert!(parity(&pool).tiles.is_some_and(|tiles| tiles.address == TILES && !tiles.holds_up()));
    until(&pool, "all is covered", || parity(&pool).uncovered == 0);
    {
        let (fs, _open) = mount(&pool, "tank");
        (0..3).for_each(|number| fs.unlink(ROOT, format!("file {number}").as_bytes()).expect("removed"));
    }
    let before = world.segments().len();
    pool.sync().expect("committed");
    until(&pool, "deleted objects go", || world.segments().len() < before && tiles.names().len() == 1);
    let held = pool.devices().audit(400).expect("an audit");
    assert!(held.is_held(), "{held:?}");
    let of_tiles = held.strata.iter().find(|stratum| stratum.device == TILES).expect("a stratum of tiles");
    assert!(of_tiles.part == "parity" && of_tiles.samples == 400 && of_tiles.asked.is_some());
    pool.export().expect("exported");
    drop(pool);

    // Both stores lose something, and metadata that leads to the content is among it: the import
    // gets the tile back, and with it the metadata.
    let (names, left) = (tiles.names(), world.segments());
    let lose = |count: usize| {
        assert!(tiles.remove(&names[0]));
        let gone = left.iter().step_by(left.len() / 3).take(count);
        gone.for_each(|name| assert!(world.store.remove(name)));
    };
    lose(3);
    lend();
    let pool = world.import(2);
    assert_eq!(parity(&pool).trouble, None);
    assert_eq!(tiles.names(), names);
    assert!(left.iter().all(|name| world.segments().contains(name)));
    assert!(pool.devices().audit(400).expect("an audit").is_held());
    lose(1);
    assert!(!pool.devices().audit(400).expect("an audit").is_held());
    let recovered = pool.devices().recover(1 << 30, &mut |_, _| ()).expect("a recovery");
    assert!(recovered.lost.is_empty() && recovered.unsound.is_empty(), "{recovered:?}");
    assert_eq!((recovered.tiles, recovered.restored.len()), ((1, 0), 1));
    assert_eq!(tiles.names(), names);
    assert!(left.iter().all(|name| world.segments().contains(name)));
    assert!(pool.devices().audit(400).expect("an audit").is_held());

    // Its store is away: more is written than the journal holds, and nobody waits.
    is_away.store(true, Ordering::SeqCst);
    fill(&pool, 8..80);
    until(&pool, "status says so", || parity(&pool).tiles.is_some_and(|tiles| tiles.holds_up()));
    assert!(parity(&pool).left_out.is_some_and(|reason| reason.contains("journal")), "{:?}", parity(&pool));
    is_away.store(false, Ordering::SeqCst);
    until(&pool, "all is covered", || parity(&pool).uncovered == 0);
    assert!(parity(&pool).tiles.is_some_and(|tiles| tiles.address == TILES && !tiles.holds_up()));
    check(&pool, 3..80);
    assert_eq!(pool.devices().remove_parity(PATH).expect("removed"), None);
    assert_eq!(tiles.names(), Vec::<String>::new());
}

/// A pass that failed is tried again half a minute later, however much is committed meanwhile.
#[test]
fn tries_of_a_pass_are_half_a_minute_apart() {
    let world = World::new(38);
    world.corner.put(PATH, 192 * MIB);
    let (tiles, tries): (_, Arc<Mutex<Vec<u64>>>) = (MemoryStore::new("tiles"), Arc::default());
    let (clock, of_hook) = (Arc::clone(&world.env.clock), Arc::clone(&tries));
    *world.corner.2.lock().unwrap() = Some(tiles.handle(move |request| {
        if request.operation == Operation::Write {
            of_hook.lock().unwrap().push(clock.monotonic_ns());
        }
        Some(StoreFault::Away)
    }));
    let pool = world.create();
    let stores = |address: &str| world.corner.tiles(address);
    let wish = ParityWish { tiles: Some((TILES, &stores)), ..ParityWish::of(LOSS_PPM) };
    let medium = world.corner.parity(PATH).expect("a file");
    pool.devices().add_parity_for(wish, PATH, medium, false, false).expect("a parity device");
    let (fs, _open) = mount(&pool, "tank");
    let number = std::cell::Cell::new(0);
    let write = || {
        let now = number.replace(number.get() + 1);
        write_file(&fs, ROOT, format!("file {now}").as_bytes(), &noise(now, 9_000));
    };
    write();
    pool.sync().expect("committed");
    fs.unlink(ROOT, b"file 0").expect("removed");
    until(&pool, "a pass is tried four times", || {
        write();
        tries.lock().unwrap().len() > 3
    });
    let tries = tries.lock().unwrap();
    assert!(tries.is_sorted_by(|one, next| next - one >= 30_000_000_000), "{tries:?}");
}

/// A wrong bit in the inner code, on the trusted device, keeps tiles from being mended, and nothing
/// else: where no tile is missing the content comes back, and the recovery tells why they were not.
#[test]
fn damage_of_the_inner_code_stops_no_recovery_of_content() {
    const BLOCK: u64 = 4096;
    let world = World::new(34);
    world.corner.put(PATH, 192 * MIB);
    let tiles = MemoryStore::new("tiles");
    let lend = || *world.corner.2.lock().unwrap() = Some(tiles.handle(|_| None));
    let pool = world.create();
    fill(&pool, 0..8);
    lend();
    let stores = |address: &str| world.corner.tiles(address);
    let wish = ParityWish { tiles: Some((TILES, &stores)), ..ParityWish::of(LOSS_PPM) };
    let medium = world.corner.parity(PATH).expect("a file");
    pool.devices().add_parity_for(wish, PATH, medium, false, false).expect("a parity device");
    until(&pool, "all is covered", || parity(&pool).uncovered == 0);
    {
        let (fs, _open) = mount(&pool, "tank");
        (0..3).for_each(|number| fs.unlink(ROOT, format!("file {number}").as_bytes()).expect("removed"));
    }
    let before = world.segments().len();
    pool.sync().expect("committed");
    until(&pool, "deleted objects go", || world.segments().len() < before && tiles.names().len() == 1);

    // Bodies of tiles that lie on the trusted device are those of the inner code.
    let bytes = world.corner.bytes(PATH);
    let heads = bytes.chunks_exact(BLOCK as usize).enumerate().filter_map(|(number, block)| {
        let block: &[u8; BLOCK as usize] = block.try_into().expect("a block");
        let head = ParityTile::decode(&block[..], steadfast_crypto::hash).ok()?;
        let from = (number + 1) * BLOCK as usize;
        let body = bytes.get(from..from + Tile::SIZE)?;
        (steadfast_crypto::hash(body) == head.hash).then_some(from as u64)
    });
    let inner: Vec<u64> = heads.collect();
    assert!(!inner.is_empty(), "the inner code has tiles");
    for at in inner {
        let wrong = [bytes[at as usize + 9] ^ 1];
        world.corner.write(PATH, &wrong, at + 9);
    }
    let left = world.segments();
    let lose = || assert!(world.store.remove(&left[0]));
    lose();
    let recovered = pool.devices().recover(1 << 30, &mut |_, _| ()).expect("the content's recovery");
    assert!(recovered.lost.is_empty() && recovered.tiles_trouble.is_some(), "{recovered:?}");
    assert_eq!(world.segments(), left);
    check(&pool, 3..8);
}

/// A store of tiles that hangs holds up no copy of a root, which comes before deletes of the pool's
/// own stores.
#[test]
fn a_store_of_tiles_that_hangs_holds_up_no_other_upkeep() {
    let world = World { env: Env::real(), ..World::new(34) };
    world.corner.put(PATH, 192 * MIB);
    let (tiles, hangs) = (MemoryStore::new("tiles"), Arc::new(AtomicBool::new(true)));
    let asked = Arc::new(AtomicBool::new(false));
    let (is_hanging, was_asked) = (Arc::clone(&hangs), Arc::clone(&asked));
    let handle = tiles.handle(move |_| {
        was_asked.store(true, Ordering::SeqCst);
        while is_hanging.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    });
    *world.corner.2.lock().unwrap() = Some(handle);
    let mut wish = spec(vec![crate::common::handle(&world.device(1))], None);
    wish.anchor.registers = Some(Arc::clone(&world.corner) as Arc<dyn Registers>);
    wish.anchor.path = Some("/safe/anchor".to_owned());
    let pool = Pool::create(&world.env, wish).expect("a pool");
    let stores = |address: &str| world.corner.tiles(address);
    let wish = ParityWish { tiles: Some((TILES, &stores)), ..ParityWish::of(LOSS_PPM) };
    let medium = world.corner.parity(PATH).expect("a file");
    pool.devices().add_parity_for(wish, PATH, medium, false, false).expect("a parity device");
    let within_a_minute = |what: &str, is_so: &dyn Fn() -> bool| {
        for _ in 0..6000 {
            if is_so() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        hangs.store(false, Ordering::SeqCst);
        panic!("never: {what}");
    };
    within_a_minute("the store of the tiles hangs", &|| asked.load(Ordering::SeqCst));
    let roots = || world.store.names().iter().filter(|name| name.starts_with(ROOTS)).count();
    let before = roots();
    fill(&pool, 0..2);
    within_a_minute("a root is copied", &|| roots() > before);
    assert!(hangs.load(Ordering::SeqCst), "meanwhile");
    hangs.store(false, Ordering::SeqCst);
    pool.export().expect("exported");
}

/// Tiles of a parity device that is not in use go with it, or it says where they stay.
#[test]
fn tiles_of_a_device_that_is_not_in_use_go_with_it() {
    for (seed, answers, is_there) in [(35, true, true), (36, false, true), (37, true, false)] {
        let world = World::new(seed);
        world.corner.put(PATH, 192 * MIB);
        let tiles = MemoryStore::new("tiles");
        let lend = || *world.corner.2.lock().unwrap() = Some(tiles.handle(|_| None));
        let pool = world.create();
        lend();
        let stores = |address: &str| world.corner.tiles(address);
        let wish = ParityWish { tiles: Some((TILES, &stores)), ..ParityWish::of(LOSS_PPM) };
        let medium = world.corner.parity(PATH).expect("a file");
        pool.devices().add_parity_for(wish, PATH, medium, false, false).expect("a parity device");
        let old = world.corner.bytes(PATH);
        fill(&pool, 0..4);
        {
            let (fs, _open) = mount(&pool, "tank");
            fs.unlink(ROOT, b"file 0").expect("removed");
        }
        until(&pool, "a pass ends", || tiles.names().len() == 1);
        let place = pool.devices().tiles_place().expect("at a store");
        assert!(tiles.names()[0].starts_with(&place["s3://tiles/".len()..]), "{place}: {:?}", tiles.names());
        pool.export().expect("exported");
        drop(pool);
        world.corner.put_back(PATH, &old);
        if !is_there {
            world.corner.0.lock().unwrap().remove(PATH);
        }
        lend();
        let pool = world.import(2);
        assert!(parity(&pool).trouble.is_some());
        if answers {
            lend();
        } else {
            *world.corner.2.lock().unwrap() = None;
        }
        let medium = Some(world.corner.parity(PATH));
        let left = pool.devices().remove_parity_with(PATH, medium, &stores).expect("removed");
        match (answers, is_there) {
            (true, true) => assert!(left.is_none() && tiles.names().is_empty(), "{left:?}"),
            (false, _) => {
                assert_eq!((left.expect("they stay").place, tiles.names().len()), (Some(place), 1));
            }
            (true, false) => assert_eq!(left.expect("nobody knows").place, None),
        }
    }
}

/// Without the keys of the store of the tiles at an import the journal goes on, and passes wait
/// until the keys are there.
#[test]
fn missing_keys_of_the_tiles_cost_passes_alone() {
    let world = World::new(33);
    world.corner.put(PATH, 192 * MIB);
    let tiles = MemoryStore::new("tiles");
    let lend = || *world.corner.2.lock().unwrap() = Some(tiles.handle(|_| None));
    let pool = world.create();
    lend();
    let stores = |address: &str| world.corner.tiles(address);
    let wish = ParityWish { tiles: Some((TILES, &stores)), ..ParityWish::of(LOSS_PPM) };
    let medium = world.corner.parity(PATH).expect("a file");
    pool.devices().add_parity_for(wish, PATH, medium, false, false).expect("a parity device");
    fill(&pool, 0..3);
    until(&pool, "all is covered", || parity(&pool).uncovered == 0);
    pool.export().expect("exported");
    drop(pool);

    let pool = world.import(2);
    let told = || parity(&pool).tiles.expect("at a store").trouble;
    assert_eq!(parity(&pool).trouble, None);
    until(&pool, "status says why", || told().is_some());
    assert!(told().is_some_and(|why| why.contains(TILES) && why.contains("not found")), "{:?}", told());
    fill(&pool, 3..6);
    assert_eq!(parity(&pool).uncovered, 0);
    for name in world.segments().iter().rev().take(2) {
        assert!(world.store.remove(name));
    }
    check(&pool, 3..6);
    lend();
    fill(&pool, 6..60);
    until(&pool, "passes go on", || told().is_none() && !tiles.names().is_empty());
    until(&pool, "all is covered", || parity(&pool).uncovered == 0);
    check(&pool, 0..60);
}

/// Former objects wait for the commit that tells of their pass, and status tells how many there
/// are. A pool in which nobody writes makes that commit by itself.
#[test]
fn objects_that_wait_to_be_deleted_are_told_and_go() {
    let world = World::new(39);
    world.corner.put(PATH, 192 * MIB);
    let tiles = MemoryStore::new("tiles");
    *world.corner.2.lock().unwrap() = Some(tiles.handle(|_| None));
    let pool = world.create();
    let stores = |address: &str| world.corner.tiles(address);
    let wish = ParityWish { tiles: Some((TILES, &stores)), ..ParityWish::of(LOSS_PPM) };
    let medium = world.corner.parity(PATH).expect("a file");
    pool.devices().add_parity_for(wish, PATH, medium, false, false).expect("a parity device");
    let stale = || parity(&pool).tiles.expect("at a store").stale;
    fill(&pool, 0..4);
    until(&pool, "the first pass ends", || tiles.names().len() == 1 && stale() == 0);
    {
        let (fs, _open) = mount(&pool, "tank");
        fs.unlink(ROOT, b"file 0").expect("removed");
    }
    pool.sync().expect("committed");
    let step_until = |what: &str, is_so: &dyn Fn() -> bool| {
        let came = (0..20_000).any(|_| {
            pool.step();
            is_so()
        });
        assert!(came, "never: {what}");
    };
    step_until("two objects of a tile", &|| tiles.names().len() == 2 && stale() == 1);
    step_until("the former one goes", &|| tiles.names().len() == 1 && stale() == 0);
}
