//! Misses of policies of replacement for loads like those of a tree: `cargo run -p steadfast-cache
//! --example compare`.
//!
//! A load is a row of operations upon leaves; each reads the path from the root to its leaf.
//! *Zipf*: an operation looks one to three names of a leaf up, some leaves far oftener than others.
//! *Scan*: `tar` passes each leaf once and looks forty of its names up.
use std::collections::{HashMap, VecDeque};

use steadfast_cache::Shard;
use steadfast_format::{Address, SegmentId};

/// Nodes below one node.
const FANOUT: u64 = 60;
/// Leaves of the file system that the hot operations use.
const LEAVES: u64 = 6_000;
/// Names of a leaf that a scan looks up.
const NAMES: u64 = 40;
const NODE_BYTES: usize = 4096;

/// Makes an empty cache with room for so many nodes.
type Make = fn(usize) -> Box<dyn Policy>;

fn main() {
    let policies: [(&str, Make); 5] = [
        ("clock", |room| Box::new(Clock { room, used: HashMap::new(), circle: VecDeque::new() })),
        ("LRU", |room| Box::new(Lru { room, turn: 0, turns: HashMap::new(), order: VecDeque::new() })),
        ("SIEVE", |room| Box::new(Sieve { room, used: HashMap::new(), queue: Vec::new(), hand: 0 })),
        ("S3-FIFO", |room| Box::new(Plain::new(room))),
        ("ours", |room| Box::new(Ours(Shard::new(room * (NODE_BYTES + Shard::<()>::ENTRY_BYTES))))),
    ];
    print!("{:<34}{:>7}{:>10}", "load", "nodes", "reads");
    policies.iter().for_each(|(name, _)| print!("{name:>10}"));
    println!();
    for (name, load) in loads() {
        for room in [24, 200, 1_000] {
            print!("{name:<34}{room:>7}{:>10}", load.len());
            for (_, make) in &policies {
                let mut policy = make(room);
                let misses = load.iter().filter(|node| !policy.read(**node)).count();
                print!("{misses:>10}");
            }
            println!();
        }
    }
}

fn loads() -> Vec<(&'static str, Vec<u64>)> {
    let hot = |seed, operations| hot(seed, operations, 1.0);
    let scan = |leaves: std::ops::Range<u64>, names| {
        let mut load = Vec::new();
        leaves.for_each(|leaf| (0..names).for_each(|_| path(leaf, &mut load)));
        load
    };
    let mut beside = Vec::new();
    for (part, leaf) in hot(3, 40_000).chunks(24).zip(LEAVES..) {
        beside.extend_from_slice(part);
        (0..NAMES).for_each(|_| path(leaf, &mut beside));
    }
    let mut around = hot(4, 15_000);
    around.extend(scan(LEAVES..2 * LEAVES, NAMES));
    around.extend(self::hot(4, 15_000, 1.0));
    let phases = (0..6).flat_map(|phase| self::hot(100 + phase, 6_000, 1.1)).collect();
    let mut twice = scan(0..2_000, NAMES);
    twice.extend(twice.clone());
    let mut file = scan(0..300, 30).repeat(4);
    let mut random = Random(9);
    (0..6_000).for_each(|_| path(random.next() % 300, &mut file));
    vec![
        ("Zipf", hot(1, 40_000)),
        ("Zipf beside a scan", beside),
        ("Zipf, a scan, Zipf", around),
        ("Zipf, six other sets in turn", phases),
        ("two scans", twice),
        ("four passes of a file, random", file),
    ]
}

/// Nodes from the root to a leaf; a node's number tells its level.
fn path(leaf: u64, load: &mut Vec<u64>) {
    for level in (0..3).rev() {
        load.push((level << 40) | (leaf / FANOUT.pow(level as u32)));
    }
}

fn hot(seed: u64, operations: usize, exponent: f64) -> Vec<u64> {
    let mut random = Random(seed);
    let mut total = 0.0;
    let weights = (1..=LEAVES).map(|rank| {
        total += (rank as f64).powf(-exponent);
        total
    });
    let weights: Vec<f64> = weights.collect();
    let mut leaves: Vec<u64> = (0..LEAVES).collect();
    (1..leaves.len()).rev().for_each(|at| leaves.swap(at, random.next() as usize % (at + 1)));
    let mut load = Vec::new();
    for _ in 0..operations {
        let drawn = random.next() as f64 / u64::MAX as f64 * total;
        let leaf = leaves[weights.partition_point(|weight| *weight < drawn).min(leaves.len() - 1)];
        (0..=random.next() % 3).for_each(|_| path(leaf, &mut load));
    }
    load
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

trait Policy {
    /// True if the node is here; it is afterwards.
    fn read(&mut self, node: u64) -> bool;
}

struct Ours(Shard<()>);

impl Policy for Ours {
    fn read(&mut self, node: u64) -> bool {
        let address = Address { segment: SegmentId(1 + (node >> 20)), offset: node as u32 & 0xf_ffff };
        let is_hit = self.0.find(address, |()| true).is_some();
        if !is_hit {
            self.0.insert(address, (), NODE_BYTES);
        }
        is_hit
    }
}

struct Clock {
    room: usize,
    used: HashMap<u64, bool>,
    circle: VecDeque<u64>,
}

impl Policy for Clock {
    fn read(&mut self, node: u64) -> bool {
        if let Some(used) = self.used.get_mut(&node) {
            *used = true;
            return true;
        }
        while self.used.len() >= self.room {
            let other = self.circle.pop_front().expect("it is full");
            if std::mem::take(self.used.get_mut(&other).expect("in the circle")) {
                self.circle.push_back(other);
            } else {
                self.used.remove(&other);
            }
        }
        self.used.insert(node, false);
        self.circle.push_back(node);
        false
    }
}

struct Lru {
    room: usize,
    turn: u64,
    turns: HashMap<u64, u64>,
    /// May name earlier turns of a node.
    order: VecDeque<(u64, u64)>,
}

impl Policy for Lru {
    fn read(&mut self, node: u64) -> bool {
        self.turn += 1;
        self.order.push_back((node, self.turn));
        let is_hit = self.turns.insert(node, self.turn).is_some();
        while self.turns.len() > self.room {
            let (other, turn) = self.order.pop_front().expect("it is full");
            if self.turns.get(&other) == Some(&turn) {
                self.turns.remove(&other);
            }
        }
        is_hit
    }
}

struct Sieve {
    room: usize,
    used: HashMap<u64, bool>,
    /// The oldest first.
    queue: Vec<u64>,
    hand: usize,
}

impl Policy for Sieve {
    fn read(&mut self, node: u64) -> bool {
        if let Some(used) = self.used.get_mut(&node) {
            *used = true;
            return true;
        }
        while self.used.len() >= self.room {
            self.hand %= self.queue.len();
            let other = self.queue[self.hand];
            if std::mem::take(self.used.get_mut(&other).expect("in the queue")) {
                self.hand += 1;
            } else {
                self.used.remove(&other);
                self.queue.remove(self.hand);
            }
        }
        self.used.insert(node, false);
        self.queue.push(node);
        false
    }
}

/// As in the paper: each use counts, two carry a node into the main queue.
struct Plain {
    room: usize,
    uses: HashMap<u64, u8>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghosts: VecDeque<u64>,
}

impl Plain {
    fn new(room: usize) -> Plain {
        let (small, main, ghosts) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Plain { room, uses: HashMap::new(), small, main, ghosts }
    }

    fn evict(&mut self) {
        if self.small.len() >= (self.room / 10).max(1) || self.main.is_empty() {
            while let Some(node) = self.small.pop_front() {
                if self.uses[&node] >= 2 {
                    self.uses.insert(node, 0);
                    self.main.push_back(node);
                    continue;
                }
                self.uses.remove(&node);
                self.ghosts.push_back(node);
                if self.ghosts.len() > self.room {
                    self.ghosts.pop_front();
                }
                return;
            }
        }
        while let Some(node) = self.main.pop_front() {
            match self.uses[&node] {
                0 => {
                    self.uses.remove(&node);
                    return;
                }
                uses => {
                    self.uses.insert(node, uses - 1);
                    self.main.push_back(node);
                }
            }
        }
    }
}

impl Policy for Plain {
    fn read(&mut self, node: u64) -> bool {
        if let Some(uses) = self.uses.get_mut(&node) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        while self.uses.len() >= self.room {
            self.evict();
        }
        self.uses.insert(node, 0);
        if let Some(ghost) = self.ghosts.iter().position(|ghost| *ghost == node) {
            self.ghosts.remove(ghost);
            self.main.push_back(node);
        } else {
            self.small.push_back(node);
        }
        false
    }
}
