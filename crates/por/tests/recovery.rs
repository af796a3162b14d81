//! Losses come back, or are named.

use std::collections::BTreeSet;

use steadfast_crypto::Key;
use steadfast_por::bound::LOST_MEAN;
use steadfast_por::code::ROWS;
use steadfast_por::{Batch, CellId, Kernel, Map, Recovery, Tile};

use crate::store::{Dice, SEGMENT, Store, id, is_long};

/// Cells that may be lost from a tile, on average.
const LOST: usize = LOST_MEAN as usize;

/// Loses cells, recovers, and checks that each came back with the bytes it had or was named. Gives
/// the outcome; the store is whole again.
fn recovered(store: &mut Store, lost: &[CellId]) -> Recovery {
    lost.iter().for_each(|id| _ = store.cells.remove(id));
    let recovery = store.recover();
    check(store, lost, &recovery);
    store.restore();
    recovery
}

/// The first cells of a tile.
fn of_tile(store: &Store, tile: u32, count: usize) -> Vec<CellId> {
    let ids = store.all().into_iter().filter(|id| store.map.place(*id).tile == tile);
    ids.take(count).collect()
}

fn check(store: &Store, lost: &[CellId], recovery: &Recovery) {
    let mut seen = BTreeSet::new();
    for cell in &recovery.recovered {
        let (payload, tag) = &store.written[&cell.id()];
        assert!(**payload == *cell.payload() && *tag == cell.tag(), "{:?} is another cell", cell.id());
        assert!(cell.prove(&store.keys).is_some());
        assert!(seen.insert(cell.id()));
    }
    let named = recovery.undetermined.iter().chain(&recovery.refused);
    named.for_each(|id| assert!(seen.insert(*id), "{id:?} is reported twice"));
    assert_eq!(seen, lost.iter().copied().collect(), "each missing cell is reported");
}

#[test]
fn a_tile_is_the_sum_of_its_cells() {
    let store = Store::new(1, 3 * usize::from(SEGMENT), 1);
    let mut cells = store.all();
    cells.reverse();
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
        // The other way round, in batches of other sizes, with a cell that comes and goes.
        let mut tile = Tile::empty();
        let mut add = |ids: &[CellId]| {
            let mut batch = Batch::new(ids.len());
            for id in ids {
                let (payload, tag) = &store.written[id];
                batch.add(store.keys.prove(*id, payload, *tag).unwrap(), store.map.place(*id).rows);
            }
            tile.apply_by(kernel, &batch);
            tile.clone()
        };
        add(&cells[..100]);
        add(&[cells[200]]);
        add(&cells[100..]);
        assert!(add(&[cells[200]]) == store.tiles[0], "{}", kernel.name());
        assert!(add(&cells).is_empty(), "all cells taken out");
    }
}

/// Lost by chance, or by choice without the map: the same to the code [por.4].
#[test]
fn losses_at_the_bound_come_back() {
    let (cells, lost) = (20 * usize::from(SEGMENT), LOST);
    let mut store = Store::new(2, cells, 1);
    let dice = Dice::new(3);
    let rounds = if is_long() { 50 } else { 1 };
    for round in 0..rounds {
        let first = dice.below(cells - lost);
        let segments = dice.choose(cells / usize::from(SEGMENT), cells / usize::from(SEGMENT));
        let of_segments = segments
            .iter()
            .flat_map(|at| (0..usize::from(SEGMENT)).map(move |c| at * usize::from(SEGMENT) + c));
        let patterns: [(&str, Vec<usize>); 5] = [
            ("by chance", dice.choose(lost, cells)),
            ("oldest", (0..lost).collect()),
            ("newest", (cells - lost..cells).collect()),
            ("a window of time", (first..first + lost).collect()),
            ("whole segments", of_segments.take(lost).collect()),
        ];
        for (name, lost) in patterns {
            let lost: Vec<CellId> = lost.into_iter().map(id).collect();
            assert!(recovered(&mut store, &lost).is_complete(), "{name}, round {round}");
        }
    }
}

/// With the map an adversary spends all losses on one tile. The recovery must then fail: this
/// shows that the test above can, and that the map has to be secret.
#[test]
fn losses_chosen_with_the_map_do_not_come_back() {
    let cells = 40 * usize::from(SEGMENT);
    let mut store = Store::new(4, cells, 2);
    let lost = of_tile(&store, 0, ROWS + 52);
    assert!(lost.len() == ROWS + 52 && lost.len() < 2 * LOST, "fewer than may be lost");
    let recovery = recovered(&mut store, &lost);
    assert!(!recovery.undetermined.is_empty() && recovery.refused.is_empty());
    // As many by chance come back.
    let dice = Dice::new(5);
    let by_chance: Vec<CellId> = dice.choose(lost.len(), cells).into_iter().map(id).collect();
    assert!(recovered(&mut store, &by_chance).is_complete());
}

/// [por.5]
#[test]
fn beyond_the_bound_each_cell_comes_back_or_is_named() {
    let cells = 40 * usize::from(SEGMENT);
    let mut store = Store::new(6, cells, 2);
    // One tile beyond its rows, the other one below: that one comes back whole.
    let lost = [of_tile(&store, 0, ROWS + 200), of_tile(&store, 1, 700)].concat();
    let recovery = recovered(&mut store, &lost);
    assert!(recovery.undetermined.iter().all(|id| store.map.place(*id).tile == 0));
    assert!(!recovery.undetermined.is_empty() && recovery.recovered.len() >= 700);
    // Everything is gone.
    let all = store.all();
    let recovery = recovered(&mut store, &all);
    assert!(recovery.recovered.is_empty() && recovery.undetermined.len() == cells);
}

/// Cells that came back changed are missing cells; a tile that is damaged or of another time gives
/// wrong solutions, which their tags refuse.
#[test]
fn wrong_cells_and_wrong_tiles_give_no_wrong_cell() {
    let cells = 8 * usize::from(SEGMENT);
    let mut store = Store::new(7, cells, 1);
    let ids = store.all();
    // A bit of a content, a bit of a tag, two cells exchanged, an older cell in another's place.
    store.cells.get_mut(&ids[1]).unwrap().0[77] ^= 4;
    store.cells.get_mut(&ids[2]).unwrap().1.0[3] ^= 1;
    let (three, four) = (store.cells[&ids[3]].clone(), store.cells[&ids[4]].clone());
    store.cells.insert(ids[3], four);
    store.cells.insert(ids[4], three);
    store.cells.insert(ids[5], store.cells[&ids[6]].clone());
    let recovery = store.recover();
    check(&store, &ids[1..6], &recovery);
    assert!(recovery.is_complete());
    store.restore();

    // A tile of before the last cells were added: their sums do not come out.
    let now = store.tiles.clone();
    store.tiles = store.summed(&now, &ids[cells - 20..]);
    let lost = &ids[..700];
    let recovery = recovered(&mut store, lost);
    assert!(!recovery.refused.is_empty() && recovery.undetermined.is_empty(), "{recovery:?}");
    store.tiles = now;

    // Another map: it leads elsewhere.
    store.map = Map::new(&Key::from_bytes([9; 32]), 1, 1);
    let recovery = recovered(&mut store, &ids[..50]);
    assert!(recovery.recovered.is_empty(), "{recovery:?}");
}
