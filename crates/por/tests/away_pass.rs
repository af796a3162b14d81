//! Passes over tiles at a store that fails, loses one, or is opened anew meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};

use steadfast_device::Device;
use steadfast_device::objects::Store;
use steadfast_por::parity::Error;

use crate::away::{IntoId, Shared, THIRTY, World, id_of, opened};
use crate::covered::place;

/// A request that fails costs a pass its step, and not the steps before: with many tiles some
/// request always fails.
#[test]
fn a_pass_goes_on_where_the_store_of_tiles_failed() {
    let mut world = World::new(&THIRTY);
    world.put(1, 20);
    let step = |world: &World| world.parity.write().unwrap().pass_step();
    // Of 30 tiles eight a step, and the end.
    for _ in 0..2 {
        assert!(step(&world).unwrap().is_none());
    }
    world.is_away.store(true, Ordering::Relaxed);
    assert!(matches!(step(&world), Err(Error::TileStore { .. })));
    world.put(2, 20);
    world.is_away.store(false, Ordering::Relaxed);
    let steps = (1..).find(|_| step(&world).unwrap().is_some()).unwrap();
    assert_eq!(steps, 3, "two steps for 14 tiles, and the end");
    // The record that came meanwhile belongs to the next pass.
    world.pass().unwrap();
    world.tend();
    assert_eq!(world.tiles.names().len(), 30, "what failed left nothing");
    let store = Arc::clone(&world.covered);
    world.content.remove(&world.content.names().into_iter().find(|name| name.contains("seg")).unwrap());
    let mended = world.mend(&store);
    assert!(mended.unsound.is_empty() && mended.restored.len() == 1, "{mended:?}");
    world.check();
}

/// While the store lacks a tile, a pass asks for that one alone, and writes no other one again.
#[test]
fn a_pass_that_lacks_a_tile_tries_that_one_alone() {
    let mut world = World::new(&THIRTY);
    world.put(1, 20);
    world.pass().unwrap();
    let before = world.tiles.names();
    world.put(2, 20);
    let step = |world: &World| world.parity.write().unwrap().pass_step();
    assert!(step(&world).unwrap().is_none());
    // One that the pass comes to later.
    let heads = world.parity.read().unwrap().heads().names;
    let is_next = |name: &&String| heads.contains(&id_of(name));
    let lost = before.iter().rfind(is_next).unwrap();
    let bytes = world.object(lost);
    assert!(world.tiles.remove(lost));
    let failed = (0..9).find_map(|_| step(&world).err()).unwrap();
    assert!(matches!(failed, Error::TileDamaged(_)), "{failed}");
    let there = world.tiles.names().len();
    world.asked();
    for id in 3..6 {
        world.put(id, 3);
        assert!(matches!(step(&world), Err(Error::TileDamaged(_))));
        assert_eq!((world.asked(), world.tiles.names().len()), ([1, 0], there));
    }
    assert!(world.bodies().status().lost.is_some());
    assert!(world.tiles.create(lost, &bytes).unwrap());
    assert!(step(&world).unwrap().is_none());
    assert_eq!((world.asked(), world.bodies().status().lost.is_some()), ([1, 1], false));
    world.pass().unwrap();
    // Records that came meanwhile.
    world.pass().unwrap();
    assert_eq!(world.tiles.names().len(), 30);
    let segment = world.content.names().into_iter().find(|name| name.starts_with("seg/")).unwrap();
    world.content.remove(&segment);
    let mended = world.mend(&world.covered);
    assert!(mended.unsound.is_empty() && mended.restored.len() == 1, "{mended:?}");
}

/// A pass goes on behind another opening: what it stored is not stored again, though records came
/// since. While a tile is lost, each import would write all others anew.
#[test]
fn a_pass_goes_on_behind_another_opening() {
    let mut world = World::new(&THIRTY);
    world.put(1, 20);
    world.pass().unwrap();
    let before = world.tiles.names();
    world.put(2, 20);
    let step = |world: &World| world.parity.write().unwrap().pass_step();
    assert!(step(&world).unwrap().is_none());
    let heads = world.parity.read().unwrap().heads().names;
    let lost = before.iter().rfind(|name| heads.contains(&id_of(name))).unwrap().clone();
    let bytes = world.object(&lost);
    assert!(world.tiles.remove(&lost));
    assert!((0..9).any(|_| matches!(step(&world), Err(Error::TileDamaged(_)))));
    // A record that takes one out, and one that comes: both belong to the next pass.
    world.covered.discard_segment(place(1)).unwrap();
    world.put(3, 3);
    let there = world.tiles.names().len();
    assert!(there >= 38, "{there} objects, of 30 tiles and a step at least");
    let generation = |world: &World| world.parity.read().unwrap().standing().generation;
    let former = generation(&world);

    for seed in 5..8 {
        world.covered.uncover();
        let plain = Arc::new(world.tiles.handle(|_| None)) as Shared;
        world.parity = Arc::new(RwLock::new(opened(&world.medium, &plain, seed).unwrap()));
        world.covered.cover(3, Arc::clone(&world.parity));
        assert!((0..9).any(|_| matches!(step(&world), Err(Error::TileDamaged(_)))));
        assert_eq!(world.tiles.names().len(), there, "none is stored again");
        world.put(10 + seed, 3);
    }
    assert!(world.tiles.create(&lost, &bytes).unwrap());
    world.parity.write().unwrap().pass().unwrap();
    assert_eq!((generation(&world), world.tiles.names().len()), (former + 1, 60));
    assert!(!world.covered.is_covered(1.into_id()), "its record is of the next pass");
    let segments = |world: &World| -> BTreeSet<_> { world.parity.read().unwrap().segments().collect() };
    let all = segments(&world);
    // The header names the segments that were there when the pass began.
    world.covered.uncover();
    let plain = Arc::new(world.tiles.handle(|_| None)) as Shared;
    world.parity = Arc::new(RwLock::new(opened(&world.medium, &plain, 9).unwrap()));
    world.covered.cover(3, Arc::clone(&world.parity));
    assert_eq!(segments(&world), all);
    world.pass().unwrap();
    world.written.retain(|(id, _)| *id != 1);
    let segment = world.content.names().into_iter().rfind(|name| name.starts_with("seg/")).unwrap();
    world.content.remove(&segment);
    let mended = world.mend(&world.covered);
    assert!(mended.unsound.is_empty() && mended.restored.len() == 1, "{mended:?}");
    world.check();
}
