//! Rates and statistics of the code and of audits, for `steadfast lab run iris-encode`,
//! `iris-audit` and `iris-recover`: the lab starts this program and draws what it prints.
//!
//! ```text
//! cargo run --release -p steadfast-por --example retrievability -- MODE [OPTIONS]
//!   MODE             encode, audit, recover, ingest or memory
//!   --rounds 5       rounds of each rate
//!   --cells 32768    cells in memory
//!   --audits 10000   audits of each damaged store
//!   --tiles 4        tiles of the code whose losses come back
//!   --trials 40      recoveries at each loss
//!   --mebibytes 256  content that is put beside a parity device
//!   --device 256     MiB of that
//!   --directory .    where its file is
//!   --rate 1000000   MB/s of the way to the store, which is memory
//!   --journal-part 3 the journal's part of the device
//!   --gibibytes 1024 a simulated pool
//!   --memory 1024    MiB that a recovery and a re-key of it may take
//! ```
//!
//! It prints one JSON document. Times are processor time of one thread, so that other work of the
//! machine disturbs them little; seeds are fixed, so counts repeat.

mod audit;
mod encode;
mod ingest;
mod memory;
mod recover;

use rustix::time::{ClockId, clock_gettime};
use steadfast_crypto::Key;
use steadfast_env::Env;
use steadfast_format::SegmentId;
use steadfast_por::{CellId, PAYLOAD, Payload, TagKeys};

/// Cells of a segment of 8 MiB.
const SEGMENT: usize = 2048;

/// How much is done.
struct Options {
    rounds: usize,
    cells: usize,
    audits: u32,
    tiles: u32,
    trials: u32,
    mebibytes: usize,
    device: usize,
    directory: String,
    rate: u32,
    journal_part: u32,
    gibibytes: usize,
    memory: usize,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            rounds: 5,
            cells: 32 << 10,
            audits: 10_000,
            tiles: 4,
            trials: 40,
            mebibytes: 256,
            device: 256,
            directory: ".".to_owned(),
            rate: 1_000_000,
            journal_part: 3,
            gibibytes: 1024,
            memory: 1024,
        };
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            if name == "--directory" {
                options.directory = value;
                continue;
            }
            let number: u32 = value.parse().map_err(|error| format!("{name} {value}: {error}"))?;
            let places = usize::try_from(number).expect("32 bits");
            match name.as_str() {
                _ if number == 0 => return Err(format!("{name} takes a number above 0")),
                "--rounds" => options.rounds = places,
                "--cells" => options.cells = places.next_multiple_of(SEGMENT),
                "--audits" => options.audits = number,
                "--tiles" => options.tiles = number,
                "--trials" => options.trials = number,
                "--mebibytes" => options.mebibytes = places,
                "--device" => options.device = places,
                "--rate" => options.rate = number,
                "--journal-part" => options.journal_part = number,
                "--gibibytes" => options.gibibytes = places,
                "--memory" => options.memory = places,
                _ => return Err(format!("{name} is no option")),
            }
        }
        Ok(options)
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let mode = words.next().unwrap_or_default();
    let done = Options::parse(words).and_then(|options| match mode.as_str() {
        "encode" => Ok(encode::run(&options)),
        "audit" => Ok(audit::run(&options)),
        "recover" => Ok(recover::run(&options)),
        "ingest" => ingest::run(&options),
        "memory" => memory::run(&options),
        _ => Err("give encode, audit, recover, ingest or memory".to_owned()),
    });
    match done {
        Ok(fields) => println!("{{\"format\":\"steadfast-retrievability\",\"version\":1,{fields}}}"),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    }
}

/// Cells of random bytes in memory.
struct Cells {
    memory: Vec<u8>,
    keys: TagKeys,
    root: Key,
}

impl Cells {
    fn new(count: usize) -> Cells {
        let mut memory = vec![0; count * PAYLOAD];
        Env::seeded(1).random.fill(&mut memory);
        let root = Key::from_bytes([1; 32]);
        Cells { memory, keys: TagKeys::new(&root), root }
    }

    fn count(&self) -> usize {
        self.memory.len() / PAYLOAD
    }

    fn payload(&self, number: usize) -> &Payload {
        self.memory[number * PAYLOAD..][..PAYLOAD].try_into().expect("bytes of a cell")
    }
}

/// Identity of the cell with this number.
fn id(number: usize) -> CellId {
    let segment = SegmentId((number / SEGMENT) as u64);
    let index = u16::try_from(number % SEGMENT).expect("below the cells of a segment");
    CellId { segment, opening: 1, store: 1, index }
}

/// Numbers that repeat.
struct Dice(Env);

impl Dice {
    fn below(&self, end: usize) -> usize {
        let number = (u128::from(self.0.random.nonzero_u64()) * end as u128) >> 64;
        usize::try_from(number).expect("below a number that fits")
    }

    fn seed(&self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.random.fill(&mut seed);
        seed
    }

    /// So many different numbers below `end`.
    fn choose(&self, count: usize, end: usize) -> std::collections::BTreeSet<usize> {
        let mut chosen = std::collections::BTreeSet::new();
        while chosen.len() < count.min(end) {
            chosen.insert(self.below(end));
        }
        chosen
    }
}

/// Processor time of this thread.
fn processor_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Processor time of some work.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let began = processor_seconds();
    let done = work();
    (processor_seconds() - began, done)
}

/// A list of numbers.
fn list(values: &[f64]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("{value:.6}")).collect();
    format!("[{}]", values.join(","))
}

/// A list of objects.
fn objects(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().map(|fields| format!("{{{fields}}}")).collect();
    format!("[{}]", items.join(","))
}
