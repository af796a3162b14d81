//! Passes over tiles at a store that fails, or loses one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_device::objects::Store;
use steadfast_por::parity::Error;

use crate::away::{THIRTY, World, id_of};

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
