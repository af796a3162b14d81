//! How fast are tags, encoding, audits and recovery, on one core?
//!
//! `cargo bench -p steadfast-por --bench rates [-- --rounds N] [--store] [--no-line]`
//!
//! `--store` measures nothing but whole recoveries: of a store in memory, behind a line of some
//! rate; with `--no-line` without one.
//!
//! Processor time, median of the rounds. Cells lie in 128 MiB, more than any cache holds. *Encode*
//! goes from a cell in memory to the rows of its tile: place, copy into the batch, sums.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use steadfast_crypto::Key;
use steadfast_env::Env;
use steadfast_format::parity::ParitySegment;
use steadfast_format::{PoolGuid, SegmentId};
use steadfast_por::audit::{Challenge, SegmentCells, Stratum, answer, verify};
use steadfast_por::bound::{LOST_MAX, LOST_MEAN, samples};
use steadfast_por::code::Rows;
use steadfast_por::parity::{Creation, ParityDevice, Search};
use steadfast_por::{Batch, CellId, Kernel, Map, PAYLOAD, Payload, TagKeys, Tile};

/// Cells in memory: 128 MiB.
const CELLS: usize = 32 << 10;
/// Cells of a segment of 8 MiB.
const SEGMENT: usize = 2048;

struct Bench {
    rounds: usize,
    memory: Vec<u8>,
    keys: TagKeys,
    map: Map,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rounds = words.iter().position(|word| word == "--rounds").and_then(|at| words.get(at + 1));
    let rounds = rounds.map_or(7, |word| word.parse().expect("--rounds takes a number"));
    if words.iter().any(|word| word == "--store") {
        let is_bare = words.iter().any(|word| word == "--no-line");
        return Store::filled().recoveries(rounds, if is_bare { &LINES[2..] } else { &LINES });
    }
    let mut memory = vec![0; CELLS * PAYLOAD];
    Env::seeded(1).random.fill(&mut memory);
    let root = Key::from_bytes([1; 32]);
    // One tile: each batch is one that a pass has gathered for its tile.
    let bench = Bench { rounds, memory, keys: TagKeys::new(&root), map: Map::new(&root, 1, 1) };
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
        bench.rates(kernel);
    }
    bench.recovery();
    bench.audit();
}

impl Bench {
    fn cell(&self, number: usize) -> (CellId, &Payload) {
        let segment = SegmentId((number / SEGMENT) as u64);
        let index = u16::try_from(number % SEGMENT).expect("below the cells of a segment");
        let payload = self.memory[number * PAYLOAD..][..PAYLOAD].try_into().expect("bytes of a cell");
        (CellId { segment, opening: 1, store: 1, index }, payload)
    }

    fn print(&self, name: &str, kernel: Kernel, cells: usize, mut work: impl FnMut()) {
        let mut rates: Vec<f64> = (0..self.rounds)
            .map(|_| {
                let begin = processor_seconds();
                work();
                (cells * PAYLOAD) as f64 / 1e6 / (processor_seconds() - begin)
            })
            .collect();
        rates.sort_by(f64::total_cmp);
        println!("{name:32} {:8} {:8.0} MB/s", kernel.name(), rates[rates.len() / 2]);
    }

    fn rates(&self, kernel: Kernel) {
        // The twin that every processor has is slow.
        let cells = if kernel == Kernel::Scalar { CELLS / 8 } else { CELLS };
        let tag_all = || {
            for number in 0..cells {
                let (id, payload) = self.cell(number);
                black_box(self.keys.tag_by(kernel, id, payload));
            }
        };
        self.print("tag", kernel, cells, tag_all);
        // Tags that were made before, as for cells that come back from a store.
        let proven: Vec<_> = (0..cells)
            .map(|number| self.cell(number))
            .map(|(id, payload)| self.keys.tag(id, payload))
            .collect();
        if kernel == Kernel::best() {
            self.print("place", kernel, cells, || {
                proven.iter().for_each(|cell| _ = black_box(self.map.place(cell.id())));
            });
            let mut batch = Batch::new(2048);
            self.print("copy into a batch of 2048", kernel, cells, || {
                for chunk in proven.chunks(2048) {
                    batch.clear();
                    chunk.iter().for_each(|cell| batch.add(*cell, [0; 9]));
                }
            });
        }
        for size in [512, 1024, 2048, 4096] {
            let (mut batch, mut tile) = (Batch::new(size), Tile::empty());
            self.print(&format!("encode, {size} cells a batch"), kernel, cells, || {
                for chunk in proven.chunks(size) {
                    batch.clear();
                    chunk.iter().for_each(|cell| batch.add(*cell, self.map.place(cell.id()).rows));
                    tile.apply_by(kernel, &batch);
                }
            });
            black_box(&tile);
        }
        let (mut batch, mut tile) = (Batch::new(4096), Tile::empty());
        self.print("tag and encode, 4096 a batch", kernel, cells, || {
            for first in (0..cells).step_by(4096) {
                batch.clear();
                for number in first..first + 4096 {
                    let (id, payload) = self.cell(number);
                    batch.add(self.keys.tag_by(kernel, id, payload), self.map.place(id).rows);
                }
                tile.apply_by(kernel, &batch);
            }
        });
        black_box(&tile);
    }

    /// One tile with so many lost cells; the rate is that of lost bytes.
    fn recovery(&self) {
        let lost_max = usize::try_from(LOST_MAX).expect("small");
        for lost in [600, LOST_MEAN as usize, lost_max] {
            let (mut batch, mut missing) = (Batch::new(lost), Vec::<(CellId, Rows)>::new());
            for number in 0..lost {
                let (id, payload) = self.cell(number);
                let rows = self.map.place(id).rows;
                batch.add(self.keys.tag(id, payload), rows);
                missing.push((id, rows));
            }
            let mut tile = Tile::empty();
            tile.apply(&batch);
            let name = format!("recover {lost} cells of a tile");
            let mut seconds = 0.0;
            self.print(&name, Kernel::best(), lost, || {
                let begin = processor_seconds();
                let recovery = tile.clone().recover(&missing, &self.keys);
                seconds = processor_seconds() - begin;
                assert!(recovery.is_complete() && recovery.recovered.len() == lost);
            });
            println!("{:32} {:8} {:8.3} s", "", "", seconds);
        }
    }

    fn audit(&self) {
        let cells = u16::try_from(SEGMENT).expect("small");
        let segment = |at| SegmentCells { segment: SegmentId(at), opening: 1, store: 1, cells };
        let stratum = Stratum::new(1, (0..(CELLS / SEGMENT) as u64).map(segment).collect());
        let challenge = Challenge { seed: [7; 32], generation: 1, samples: samples(0.01, 40.0) };
        let number = |id: CellId| id.segment.0 as usize * SEGMENT + usize::from(id.index);
        let tags: Vec<_> =
            (0..CELLS).map(|at| self.cell(at)).map(|(id, p)| self.keys.tag(id, p).tag()).collect();
        let asked = challenge.samples as usize;
        let mut reply = None;
        self.print(&format!("agent's reply, {asked} samples"), Kernel::best(), asked, || {
            let read = |id, out: &mut Payload| -> Result<_, ()> {
                *out = *self.cell(number(id)).1;
                Ok(tags[number(id)])
            };
            reply = Some(answer(&challenge, &stratum, read).expect("all cells are there"));
        });
        let reply = reply.expect("there was a round");
        let mut times: Vec<f64> = (0..self.rounds)
            .map(|_| {
                let begin = processor_seconds();
                assert!(verify(&self.keys, &challenge, &stratum, &reply));
                (processor_seconds() - begin) * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{:32} {:8} {:8.3} ms", "verify that reply", Kernel::best().name(), times[times.len() / 2]);
    }
}

/// Segments of a store in memory, of 8 MiB each: 1 GiB.
const SEGMENTS: u64 = 128;
/// Segments that it loses: what the code is made for is 2 % of all.
const LOST: [u64; 2] = [17, 90];
/// Rates of lines to it, MB/s: 2 Gb/s, 10 Gb/s, and none that bounds.
const LINES: [f64; 3] = [250.0, 1_250.0, f64::INFINITY];

/// A store in memory that a code covers, as full as the code is made for.
struct Store {
    parity: ParityDevice,
    contents: Vec<Vec<u8>>,
}

impl Store {
    fn filled() -> Store {
        let random = Env::seeded(1).random;
        let cells = SEGMENTS * SEGMENT as u64;
        let creation = Creation {
            pool: PoolGuid(5),
            cells,
            loss_ppm: 20_000,
            journal_bytes: 64 << 20,
            key: None,
            is_away: false,
        };
        let file = tempfile::tempfile().expect("a file");
        file.set_len(creation.bytes()).expect("room for the code");
        let parity = ParityDevice::create(Box::new(file), &creation, &*random);
        let mut parity = parity.expect("a parity device");
        let mut contents = Vec::new();
        for number in 0..SEGMENTS {
            let mut content = vec![0; SEGMENT * PAYLOAD];
            random.fill(&mut content);
            parity.add(SegmentId(number + 1), 1, &content).expect("room in the journal");
            contents.push(content);
            if number % 7 == 6 {
                parity.pass().expect("a pass");
            }
        }
        parity.pass().expect("a pass");
        Store { parity, contents }
    }

    /// Recovers two segments, behind each line. Reading takes as long as the line has for all that
    /// is there.
    fn recoveries(&self, rounds: usize, lines: &[f64]) {
        let (env, done) = (Env::real(), BTreeSet::new());
        for &line in lines {
            let (mut walls, mut processors, mut solving) = (Vec::new(), Vec::new(), Vec::new());
            let there = SEGMENTS - LOST.len() as u64;
            let megabytes = (there * (SEGMENT * PAYLOAD) as u64) as f64 / 1e6;
            for _ in 0..rounds {
                let free = Mutex::new(Instant::now());
                let read = |segment: ParitySegment, out: &mut Vec<u8>| {
                    let number = segment.segment.0 - 1;
                    out.clear();
                    if LOST.contains(&number) {
                        return Ok(());
                    }
                    let content = &self.contents[usize::try_from(number).expect("small")];
                    out.extend_from_slice(content);
                    let until = {
                        let mut free = free.lock().expect("nobody panics");
                        let takes = Duration::from_secs_f64(content.len() as f64 / 1e6 / line);
                        *free = (*free).max(Instant::now()) + takes;
                        *free
                    };
                    std::thread::sleep(until.saturating_duration_since(Instant::now()));
                    Ok(())
                };
                let (began, used) = (Instant::now(), process_seconds());
                let outcome = self.parity.snapshot().recover(&mut Search {
                    env: &env,
                    memory: 1 << 30,
                    done: &done,
                    read: &read,
                    mirrored: &|_| (),
                    stop: &AtomicBool::new(false),
                    watch: &mut |_, _| (),
                });
                walls.push(began.elapsed().as_secs_f64());
                processors.push(process_seconds() - used);
                let outcome = outcome.expect("the parity is sound");
                assert!(outcome.from_code.is_complete() && outcome.back.len() == LOST.len());
                solving.push(outcome.solving.as_secs_f64());
            }
            for values in [&mut walls, &mut processors, &mut solving] {
                values.sort_by(f64::total_cmp);
            }
            let (wall, used) = (walls[walls.len() / 2], processors[processors.len() / 2]);
            println!(
                "recover a store behind {line:5.0} MB/s: {:5.0} MB/s, {:4.2} of the line; {:5.3} s of processors a GB; \
                 solving {:4.1} %",
                megabytes / wall,
                megabytes / wall / line,
                used * 1e3 / megabytes,
                100.0 * solving[solving.len() / 2] / wall
            );
        }
    }
}

/// Processor time of this thread.
fn processor_seconds() -> f64 {
    seconds_of(ClockId::ThreadCPUTime)
}

/// Processor time of all threads.
fn process_seconds() -> f64 {
    seconds_of(ClockId::ProcessCPUTime)
}

fn seconds_of(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
