//! Losses by pattern: audits find each as often as the formula says, and each comes back.
//!
//! The adversary chooses the pattern and not the cells that are asked for, nor the tiles. So a
//! pattern must make no difference. The bounded part runs everywhere; the long form has the 10,000
//! random and 1,000 structured losses of the acceptance.

use std::collections::BTreeSet;

use steadfast_crypto::Key;
use steadfast_por::audit::judge;
use steadfast_por::bound::{LOST_MEAN, Plan, detection};
use steadfast_por::code::{ROWS, Rows};
use steadfast_por::{
    Batch, CellId, Challenge, Kernel, Map, PAYLOAD, Payload, Recovery, Stratum, Tag, TagKeys, Tile,
};

use crate::store::{Dice, SEGMENT, Store, id, is_long, stratum};

/// Planned loss.
const LOSS: f64 = 0.02;
/// Cells of a block of 128 KiB: a file has a run of them here and one there.
const RUN: usize = 32;

/// Choice of the cells that the store lets go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Pattern {
    Chance,
    /// Cells one after the other.
    Contiguous,
    /// Runs of cells that lie between those of other files.
    OneFile,
    /// The last cells of each segment, where nodes go.
    Metadata,
    Newest,
    Oldest,
    /// Whole segments of a window of time, but for a few cells that were read meanwhile.
    Window,
}

impl Pattern {
    const ALL: [Pattern; 7] = [
        Pattern::Chance,
        Pattern::Contiguous,
        Pattern::OneFile,
        Pattern::Metadata,
        Pattern::Newest,
        Pattern::Oldest,
        Pattern::Window,
    ];

    /// So many cells of a store of `cells`.
    fn choose(self, dice: &Dice, lost: usize, cells: usize) -> BTreeSet<usize> {
        let first = dice.below(cells - lost);
        match self {
            Pattern::Chance => {
                let mut chosen = BTreeSet::new();
                while chosen.len() < lost {
                    chosen.insert(dice.below(cells));
                }
                chosen
            }
            Pattern::Contiguous => (first..first + lost).collect(),
            Pattern::OneFile => {
                let every = (cells / lost).clamp(1, 8);
                let begin = dice.below(cells - (lost + RUN) * every + 1);
                let runs = (begin..).step_by(RUN * every);
                runs.flat_map(|run| run..run + RUN).take(lost).collect()
            }
            Pattern::Metadata => {
                // From the end of each segment backwards, as many of each.
                let segments = cells / usize::from(SEGMENT);
                let back = (0..usize::from(SEGMENT))
                    .flat_map(|back| (0..segments).map(move |at| (at + 1) * usize::from(SEGMENT) - 1 - back));
                back.take(lost).collect()
            }
            Pattern::Newest => (cells - lost..cells).collect(),
            Pattern::Oldest => (0..lost).collect(),
            Pattern::Window => {
                let kept = |at: &usize| at % 97 != 5;
                let begin = dice.below(cells - 2 * lost);
                (begin..).filter(kept).take(lost).collect()
            }
        }
    }
}

/// 10,000 audits of each pattern, each with a fresh seed, each cell judged by its tag [por.6].
#[test]
fn audits_find_every_pattern_as_often_as_the_formula_says() {
    let cells = 20 * usize::from(SEGMENT);
    let (store, stratum, dice) = (Store::new(21, cells, 1), stratum(cells), Dice::new(22));
    let held: Vec<(Payload, Tag)> = store.written.values().map(|(payload, tag)| (**payload, *tag)).collect();
    let numbers = |asked: &Stratum, challenge: &Challenge| -> Vec<(CellId, usize)> {
        let number =
            |id: CellId| (id.segment.0 - 100) as usize * usize::from(SEGMENT) + usize::from(id.index);
        challenge.expand(asked).into_iter().map(|sample| (sample.id, number(sample.id))).collect()
    };
    let zeros = [0; PAYLOAD];
    let audits = 10_000;
    // The formula is near a half for both, where a wrong one shows best.
    let parts: &[(usize, u32)] = if is_long() { &[(50, 40), (20, 12), (100, 80)] } else { &[(50, 40)] };
    for &(part, samples) in parts {
        let lost = cells / part;
        for pattern in Pattern::ALL {
            let (mut gone, mut found) = (BTreeSet::new(), 0_u32);
            for audit in 0..audits {
                if audit % 50 == 0 {
                    gone = pattern.choose(&dice, lost, cells);
                    assert_eq!(gone.len(), lost, "{pattern:?}");
                }
                let challenge = Challenge { seed: dice.seed(), generation: 5, samples };
                let answers = numbers(&stratum, &challenge).into_iter().map(|(id, number)| {
                    let (payload, tag) = &held[number];
                    (id, Ok::<_, ()>((if gone.contains(&number) { &zeros } else { payload }, *tag)))
                });
                found += u32::from(!judge(&store.keys, answers).is_held());
            }
            let (n, p) = (f64::from(audits), detection(lost as f64 / cells as f64, samples));
            let deviations = (f64::from(found) - n * p) / (n * p * (1.0 - p)).sqrt();
            assert!(deviations.abs() < 3.0, "{pattern:?}: {found} of {n} at {p}: {deviations} deviations");
        }
    }
}

/// A code whose store is its losses alone: the rows of a tile without the cells that are there are
/// the sums of the missing ones.
struct Code {
    keys: TagKeys,
    plan: Plan,
    map: Map,
}

impl Code {
    fn new(tiles: u32, key: u64) -> Code {
        let cells = (f64::from(tiles) * LOST_MEAN / LOSS) as u64;
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&key.to_le_bytes());
        let root = Key::from_bytes(bytes);
        let plan = Plan::new(cells, LOSS);
        Code { keys: TagKeys::new(&root), map: Map::new(&root, 1, plan.tiles), plan }
    }

    fn cells(&self) -> usize {
        usize::try_from(self.plan.cells).unwrap() / usize::from(SEGMENT) * usize::from(SEGMENT)
    }

    fn content(number: usize) -> Payload {
        let mut payload = [0; PAYLOAD];
        for (at, word) in payload.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = ((number as u64) << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        }
        payload
    }

    /// Loses these cells and recovers; each that comes back has its bytes.
    fn recover(&self, lost: &BTreeSet<usize>) -> Recovery {
        let mut missing: Vec<Vec<(CellId, Rows)>> = vec![Vec::new(); self.plan.tiles as usize];
        let mut tiles = vec![Tile::empty(); missing.len()];
        let mut batches = vec![Batch::new(1024); missing.len()];
        for &number in lost {
            let (place, content) = (self.map.place(id(number)), Self::content(number));
            let at = place.tile as usize;
            missing[at].push((id(number), place.rows));
            batches[at].add(self.keys.tag(id(number), &content), place.rows);
            if batches[at].is_full() {
                tiles[at].apply(&batches[at]);
                batches[at].clear();
            }
        }
        let mut recovery = Recovery::default();
        for ((mut tile, batch), missing) in tiles.into_iter().zip(&batches).zip(&missing) {
            tile.apply_by(Kernel::best(), batch);
            recovery.extend(tile.recover(missing, &self.keys));
        }
        for cell in &recovery.recovered {
            let number =
                (cell.id().segment.0 - 100) as usize * usize::from(SEGMENT) + usize::from(cell.id().index);
            assert!(*cell.payload() == Self::content(number), "{:?} is another cell", cell.id());
        }
        let named = recovery.undetermined.len() + recovery.refused.len();
        assert_eq!(recovery.recovered.len() + named, lost.len(), "each missing cell is reported");
        recovery
    }
}

/// [por.4]: the planned loss, whatever its pattern, each time under another map. The long form has
/// 10,000 random losses and 1,000 structured ones.
#[test]
fn the_planned_loss_of_every_pattern_comes_back_to_the_last_byte() {
    let dice = Dice::new(23);
    let (random, structured) = if is_long() { (10_000, 1_000_u64.div_ceil(6)) } else { (6, 1) };
    for pattern in Pattern::ALL {
        let rounds = if pattern == Pattern::Chance { random } else { structured };
        for round in 0..rounds {
            let code = Code::new(1, round << 8 | pattern as u64);
            let lost = usize::try_from(code.plan.lost_max()).unwrap();
            let gone = pattern.choose(&dice, lost, code.cells());
            let recovery = code.recover(&gone);
            assert!(recovery.is_complete(), "{pattern:?}, round {round}: {:?}", recovery.undetermined);
        }
    }
}

/// With the map a third of what may be lost destroys a tile, each time; the same number without it
/// comes back, each time. So the test above can fail, and the map has to be secret.
#[test]
fn a_leaked_map_destroys_a_tile_every_time() {
    let dice = Dice::new(24);
    for round in 0..if is_long() { 100 } else { 2 } {
        let code = Code::new(4, 1 << 32 | round);
        let of_tile = (0..code.cells()).filter(|number| code.map.place(id(*number)).tile == 2);
        let chosen: BTreeSet<usize> = of_tile.take(ROWS + 1).collect();
        assert!(3 * chosen.len() < usize::try_from(code.plan.lost_max()).unwrap() + 3, "a third");
        let recovery = code.recover(&chosen);
        assert!(!recovery.undetermined.is_empty() && recovery.refused.is_empty(), "round {round}");
        let by_chance = Pattern::Chance.choose(&dice, chosen.len(), code.cells());
        assert!(code.recover(&by_chance).is_complete(), "round {round}");
    }
}

/// Above the planned loss the share that comes back falls from everything to little within a few
/// percent of the rows: the edge is that of the counting bound, 2,048 cells a tile.
#[test]
fn the_edge_is_sharp() {
    let dice = Dice::new(25);
    let trials = if is_long() { 100 } else { 2 };
    for (part, is_whole) in [(1.2, true), (1.27, true), (1.31, false)] {
        for trial in 0..trials {
            let code = Code::new(1, 2 << 32 | trial);
            let lost = (part * LOST_MEAN) as usize;
            let recovery = code.recover(&Pattern::Chance.choose(&dice, lost, code.cells()));
            assert_eq!(recovery.is_complete(), is_whole, "{part} of the plan, trial {trial}");
        }
    }
}
