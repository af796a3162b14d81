//! Rates of tags and of the code, by each kernel, beside a copy and a hash of the same bytes.

use std::hint::black_box;

use steadfast_crypto::hash::hash;
use steadfast_por::{Batch, Kernel, Map, PAYLOAD, Payload, Tile};

use crate::{Cells, Options, id, list, objects, timed};

/// Cells of a batch.
const BATCH: usize = 4096;
/// Bytes of blocks that are coded each by itself.
const BLOCKS: [usize; 7] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Work {
    Tag,
    /// From a cell whose tag is known to the rows of its tile.
    Encode,
    Both,
}

impl Work {
    const ALL: [Work; 3] = [Work::Tag, Work::Encode, Work::Both];

    fn key(self) -> &'static str {
        match self {
            Work::Tag => "tag",
            Work::Encode => "encode",
            Work::Both => "tag_encode",
        }
    }
}

struct Stage {
    cells: Cells,
    map: Map,
    batch: Batch,
    tile: Tile,
    target: Vec<u8>,
}

pub fn run(options: &Options) -> String {
    let cells = Cells::new(options.cells.max(BATCH));
    let map = Map::new(&cells.root, 1, 1);
    let target = vec![0; cells.memory.len()];
    let mut stage = Stage { cells, map, batch: Batch::new(BATCH), tile: Tile::empty(), target };
    let kernels: Vec<Kernel> = Kernel::ALL.into_iter().rev().filter(|kernel| kernel.is_supported()).collect();
    let mut rates: Vec<(&str, &str, Vec<f64>)> = Vec::new();
    let mut blocks: Vec<(usize, &str, Vec<f64>)> = Vec::new();
    for round in 0..=options.rounds {
        // The first round warms up, and does not count.
        let mut note = |work, arm, rate| match rates.iter_mut().find(|one| (one.0, one.1) == (work, arm)) {
            _ if round == 0 => {}
            Some((.., values)) => values.push(rate),
            None => rates.push((work, arm, vec![rate])),
        };
        note("bound", "copy", stage.copy());
        note("bound", "hash", stage.hash());
        for work in Work::ALL {
            for &kernel in &kernels {
                note(work.key(), kernel.name(), stage.rate(work, kernel));
            }
        }
        for bytes in BLOCKS {
            for &kernel in &kernels {
                let rate = stage.blocks(bytes, kernel);
                match blocks.iter_mut().find(|one| (one.0, one.1) == (bytes, kernel.name())) {
                    _ if round == 0 => {}
                    Some((.., values)) => values.push(rate),
                    None => blocks.push((bytes, kernel.name(), vec![rate])),
                }
            }
        }
    }
    let rates = rates.iter().map(|(work, arm, values)| {
        format!("\"work\":\"{work}\",\"arm\":\"{arm}\",\"mb_s\":{}", list(values))
    });
    let blocks = blocks
        .iter()
        .map(|(bytes, arm, values)| format!("\"bytes\":{bytes},\"arm\":\"{arm}\",\"mb_s\":{}", list(values)));
    format!("\"cells\":{},\"rates\":{},\"blocks\":{}", stage.cells.count(), objects(rates), objects(blocks))
}

impl Stage {
    /// Cells that a kernel works on: the twin of all processors is slow.
    fn count(&self, kernel: Kernel) -> usize {
        let all = self.cells.count();
        if kernel == Kernel::Scalar { (all / 8).max(BATCH) } else { all / BATCH * BATCH }
    }

    fn copy(&mut self) -> f64 {
        let (seconds, ()) = timed(|| {
            let pieces = self.target.chunks_exact_mut(PAYLOAD).zip(self.cells.memory.chunks_exact(PAYLOAD));
            pieces.for_each(|(to, from)| to.copy_from_slice(from));
        });
        black_box(&self.target);
        self.cells.memory.len() as f64 / 1e6 / seconds
    }

    fn hash(&self) -> f64 {
        let some = &self.cells.memory[..self.cells.memory.len() / 4];
        let (seconds, ()) = timed(|| some.chunks_exact(PAYLOAD).for_each(|cell| _ = black_box(hash(cell))));
        some.len() as f64 / 1e6 / seconds
    }

    fn rate(&mut self, work: Work, kernel: Kernel) -> f64 {
        let count = self.count(kernel);
        let Stage { cells, map, batch, tile, .. } = self;
        let proven: Vec<_> = match work {
            Work::Encode => (0..count).map(|at| cells.keys.tag(id(at), cells.payload(at))).collect(),
            _ => Vec::new(),
        };
        let (seconds, ()) = timed(|| {
            for first in (0..count).step_by(BATCH) {
                if work == Work::Tag {
                    let tag = |at| cells.keys.tag_by(kernel, id(at), cells.payload(at));
                    (first..first + BATCH).for_each(|at| _ = black_box(tag(at)));
                    continue;
                }
                batch.clear();
                let known = proven.get(first..first + BATCH).unwrap_or_default();
                for cell in known {
                    batch.add(*cell, map.place(cell.id()).rows);
                }
                for at in if known.is_empty() { first..first + BATCH } else { 0..0 } {
                    let cell = cells.keys.tag_by(kernel, id(at), cells.payload(at));
                    batch.add(cell, map.place(id(at)).rows);
                }
                tile.apply_by(kernel, batch);
            }
        });
        black_box(&tile);
        (count * PAYLOAD) as f64 / 1e6 / seconds
    }

    /// Tag and encode of blocks of so many bytes, each cut into cells of its own: the last one is
    /// filled up with zeros, as that of a segment is.
    fn blocks(&mut self, bytes: usize, kernel: Kernel) -> f64 {
        let each = bytes.div_ceil(PAYLOAD);
        let count = self.count(kernel).min(4 * BATCH) / BATCH * BATCH;
        let Stage { cells, map, batch, tile, .. } = self;
        let mut short: Box<Payload> = Box::new([0; PAYLOAD]);
        let mut content = 0;
        let (seconds, ()) = timed(|| {
            for first in (0..count).step_by(BATCH) {
                batch.clear();
                for block in (first..first + BATCH).step_by(each) {
                    let here = bytes.min(each * PAYLOAD);
                    content += here;
                    for at in block..block + each {
                        let payload = if here < PAYLOAD {
                            short[..here].copy_from_slice(&cells.payload(at)[..here]);
                            &short
                        } else {
                            cells.payload(at)
                        };
                        batch.add(cells.keys.tag_by(kernel, id(at), payload), map.place(id(at)).rows);
                    }
                }
                tile.apply_by(kernel, batch);
            }
        });
        black_box(&tile);
        content as f64 / 1e6 / seconds
    }
}
