//! Losses below and above the bound: how often all comes back, and how long it takes.
//!
//! The rows of a tile without the cells that are there are the sums of the missing ones. So the
//! store is simulated by its losses alone: they are added to empty tiles and solved for.

use std::collections::BTreeSet;

use steadfast_crypto::Key;
use steadfast_env::Env;
use steadfast_por::bound::{LOST_MAX, LOST_MEAN, Plan};
use steadfast_por::code::Rows;
use steadfast_por::{Batch, CellId, Map, Recovery, Tile};

use crate::{Cells, Dice, Options, SEGMENT, id, list, objects, timed};

/// Loss that the code is made for.
const LOSS: f64 = 0.02;
/// Losses, as parts of that.
const PARTS: [f64; 14] = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.15, 1.2, 1.23, 1.26, 1.28, 1.29, 1.3];
/// Cells of a batch.
const BATCH: usize = 2048;

/// Kinds of losses.
const PATTERNS: [&str; 2] = ["by chance", "one after the other"];

struct Code {
    cells: Cells,
    plan: Plan,
    dice: Dice,
    /// Key of the next map.
    key: u64,
}

pub fn run(options: &Options) -> String {
    // Contents repeat; identities do not.
    let cells = Cells::new(SEGMENT);
    let count = (f64::from(options.tiles) * LOST_MEAN / LOSS) as u64;
    let mut code = Code { cells, plan: Plan::new(count, LOSS), dice: Dice(Env::seeded(4)), key: 0 };
    let edge: Vec<String> = PATTERNS
        .iter()
        .flat_map(|pattern| PARTS.map(|part| (*pattern, part)))
        .map(|(pattern, part)| code.losses(pattern, part, options.trials))
        .collect();
    let solving: Vec<String> =
        [600, LOST_MEAN as usize, LOST_MAX as usize].map(|lost| code.solving(lost, options.rounds)).to_vec();
    format!(
        "\"cells\":{},\"tiles\":{},\"trials\":{},\"edge\":{},\"solving\":{}",
        code.plan.cells,
        code.plan.tiles,
        options.trials,
        objects(edge),
        objects(solving)
    )
}

impl Code {
    fn next_map(&mut self) -> Map {
        self.key += 1;
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.key.to_le_bytes());
        Map::new(&Key::from_bytes(key), 1, self.plan.tiles)
    }

    /// Loses these cells and recovers. Gives what came back, and the seconds of solving.
    fn recover(&self, map: &Map, lost: &BTreeSet<usize>) -> (Recovery, f64) {
        let tiles = map.tiles() as usize;
        let mut missing: Vec<Vec<(CellId, Rows, usize)>> = vec![Vec::new(); tiles];
        for &number in lost {
            let place = map.place(id(number));
            missing[place.tile as usize].push((id(number), place.rows, number % SEGMENT));
        }
        let (mut recovery, mut seconds) = (Recovery::default(), 0.0);
        let mut batch = Batch::new(BATCH);
        for missing in missing {
            let mut tile = Tile::empty();
            for cells in missing.chunks(BATCH) {
                batch.clear();
                for (id, rows, content) in cells {
                    batch.add(self.cells.keys.tag(*id, self.cells.payload(*content)), *rows);
                }
                tile.apply(&batch);
            }
            let unknown: Vec<(CellId, Rows)> = missing.iter().map(|(id, rows, _)| (*id, *rows)).collect();
            let (took, found) = timed(|| tile.recover(&unknown, &self.cells.keys));
            seconds += took;
            for cell in &found.recovered {
                let content = usize::from(cell.id().index);
                assert!(cell.payload() == self.cells.payload(content), "{:?} is another cell", cell.id());
            }
            assert!(found.refused.is_empty(), "the tiles are sound");
            recovery.extend(found);
        }
        (recovery, seconds)
    }

    /// Loses this part of the planned loss over and over, each time with another map.
    fn losses(&mut self, pattern: &str, part: f64, trials: u32) -> String {
        let count = usize::try_from(self.plan.cells).expect("a small pool");
        let lost = (part * LOSS * count as f64) as usize;
        let (mut whole, mut back, mut seconds) = (0_u32, 0_u64, 0.0);
        for _ in 0..trials {
            let map = self.next_map();
            let gone = if pattern == PATTERNS[0] {
                self.dice.choose(lost, count)
            } else {
                let first = self.dice.below(count - lost);
                (first..first + lost).collect()
            };
            let (recovery, took) = self.recover(&map, &gone);
            whole += u32::from(recovery.is_complete());
            back += recovery.recovered.len() as u64;
            seconds += took;
        }
        let failure = self.plan.failure_log2(lost as u64).exp2().min(1.0);
        format!(
            "\"pattern\":\"{pattern}\",\"part\":{part},\"lost\":{lost},\"whole\":{:.6},\"back\":{:.6},\
             \"bound\":{:.9},\"seconds_a_tile\":{:.6}",
            f64::from(whole) / f64::from(trials),
            back as f64 / (lost as f64 * f64::from(trials)),
            1.0 - failure,
            seconds / f64::from(trials) / f64::from(self.plan.tiles)
        )
    }

    /// Time of one tile with so many lost cells.
    fn solving(&mut self, lost: usize, rounds: usize) -> String {
        let mut times = Vec::new();
        for _ in 0..rounds {
            self.key += 1;
            let map = Map::new(&Key::from_bytes([u8::try_from(self.key % 251).expect("small"); 32]), 2, 1);
            let (recovery, seconds) = self.recover(&map, &(0..lost).collect());
            assert!(recovery.is_complete(), "{lost} cells of a tile come back");
            times.push(seconds);
        }
        format!("\"lost\":{lost},\"seconds\":{}", list(&times))
    }
}
