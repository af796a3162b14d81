//! Reed-Solomon as an oracle: a code of other people, over another field, by other arithmetic, is
//! given the same cells and the same losses. Where both can recover, both give the same bytes.

use std::collections::{BTreeMap, BTreeSet};

use reed_solomon_simd::{Error, ReedSolomonDecoder, ReedSolomonEncoder};
use steadfast_por::bound::{LOST_MAX, LOST_MEAN};
use steadfast_por::code::ROWS;
use steadfast_por::{CellId, PAYLOAD};

use crate::store::{Dice, SEGMENT, Store, id, is_long};

/// Shards of parity of the oracle: as many as a tile has rows.
const PARITY: usize = ROWS;

/// The oracle's parity over the cells of a store, in their order.
fn encode(store: &Store, cells: usize) -> Vec<Vec<u8>> {
    let mut encoder = ReedSolomonEncoder::new(cells, PARITY, PAYLOAD).expect("a code");
    for number in 0..cells {
        encoder.add_original_shard(&store.written[&id(number)].0[..]).expect("a shard");
    }
    encoder.encode().expect("encoded").recovery_iter().map(<[u8]>::to_vec).collect()
}

/// Cells that the oracle gives back, of those that the store has left.
fn decode(store: &Store, cells: usize, parity: &[Vec<u8>]) -> Result<BTreeMap<CellId, Vec<u8>>, Error> {
    let mut decoder = ReedSolomonDecoder::new(cells, PARITY, PAYLOAD)?;
    for number in 0..cells {
        if let Some((payload, _)) = store.cells.get(&id(number)) {
            decoder.add_original_shard(number, &payload[..])?;
        }
    }
    for (number, shard) in parity.iter().enumerate() {
        decoder.add_recovery_shard(number, shard)?;
    }
    let decoded = decoder.decode()?;
    Ok(decoded.restored_original_iter().map(|(number, shard)| (id(number), shard.to_vec())).collect())
}

#[test]
fn reed_solomon_gives_the_same_cells() {
    let cells = 48 * usize::from(SEGMENT);
    let mut store = Store::new(71, cells, 1);
    let parity = encode(&store, cells);
    let dice = Dice::new(72);
    let (mean, most) = (LOST_MEAN as usize, LOST_MAX as usize);
    let mut patterns: Vec<(&str, Vec<usize>)> = vec![
        ("one", vec![dice.below(cells)]),
        ("peeled alone", dice.choose(900, cells)),
        ("as many as planned", dice.choose(mean, cells)),
        ("oldest", (0..mean).collect()),
        ("every third one", (0..cells).step_by(3).take(most).collect()),
        ("the most that the bound vouches for", dice.choose(most, cells)),
    ];
    let more = if is_long() { 200 } else { 2 };
    patterns.extend((0..more).map(|_| ("by chance", dice.choose(1 + dice.below(most), cells))));
    for (name, lost) in patterns {
        let lost: BTreeSet<CellId> = lost.into_iter().map(id).collect();
        lost.iter().for_each(|id| _ = store.cells.remove(id));
        let theirs = decode(&store, cells, &parity).expect("fewer than the oracle's parity");
        let ours = store.recover();
        assert!(ours.is_complete(), "{name}");
        assert_eq!(theirs.keys().copied().collect::<BTreeSet<_>>(), lost, "{name}");
        assert_eq!(ours.recovered.len(), lost.len(), "{name}");
        for cell in &ours.recovered {
            assert!(theirs[&cell.id()] == cell.payload()[..], "{name}: {:?}", cell.id());
        }
        store.restore();
    }
}

/// More unknowns than rows: the oracle gives back nothing, and of ours only cells that the rows
/// determine, each with the bytes that it had.
#[test]
fn beyond_the_rows_reed_solomon_and_the_tile_give_up() {
    let cells = 48 * usize::from(SEGMENT);
    let mut store = Store::new(73, cells, 1);
    let parity = encode(&store, cells);
    for number in Dice::new(74).choose(ROWS + 1, cells) {
        store.cells.remove(&id(number));
    }
    let refused = decode(&store, cells, &parity).expect_err("one more than its parity");
    assert!(matches!(refused, Error::NotEnoughShards { .. }), "{refused:?}");
    let ours = store.recover();
    assert!(!ours.undetermined.is_empty() && ours.refused.is_empty());
    assert!(ours.recovered.iter().all(|cell| *store.written[&cell.id()].0 == *cell.payload()));
}
