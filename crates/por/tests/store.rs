//! A store in memory, its code, and an adversary's choices of cells.

use std::collections::BTreeMap;

use steadfast_crypto::Key;
use steadfast_env::Env;
use steadfast_format::SegmentId;
use steadfast_por::{
    Batch, CellId, Map, PAYLOAD, Payload, Recovery, SegmentCells, Stratum, Tag, TagKeys, Tile,
};

/// Cells of a segment here.
pub const SEGMENT: u16 = 128;

/// Numbers that repeat.
pub struct Dice(pub Env);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(Env::seeded(seed))
    }

    pub fn below(&self, end: usize) -> usize {
        let number = (u128::from(self.0.random.nonzero_u64()) * end as u128) >> 64;
        usize::try_from(number).unwrap()
    }

    pub fn seed(&self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.random.fill(&mut seed);
        seed
    }

    /// So many different numbers below `end`.
    pub fn choose(&self, count: usize, end: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..end).collect();
        (0..count).for_each(|at| all.swap(at, at + self.below(end - at)));
        all.truncate(count);
        all
    }
}

pub fn id(number: usize) -> CellId {
    let segment = SegmentId(100 + (number / usize::from(SEGMENT)) as u64);
    let index = u16::try_from(number % usize::from(SEGMENT)).unwrap();
    CellId { segment, opening: 77, store: 1, index }
}

pub fn stratum(cells: usize) -> Stratum {
    assert!(cells.is_multiple_of(usize::from(SEGMENT)));
    let segment = |at: usize| {
        let CellId { segment, opening, store, .. } = id(at * usize::from(SEGMENT));
        SegmentCells { segment, opening, store, cells: SEGMENT }
    };
    Stratum::new(5, (0..cells / usize::from(SEGMENT)).map(segment).collect())
}

/// An untrusted store and the trusted tiles over it.
pub struct Store {
    /// As they were written.
    pub written: BTreeMap<CellId, (Box<Payload>, Tag)>,
    /// As the store has them now.
    pub cells: BTreeMap<CellId, (Box<Payload>, Tag)>,
    pub keys: TagKeys,
    pub map: Map,
    pub tiles: Vec<Tile>,
}

impl Store {
    /// So many cells of random bytes, all in the code.
    pub fn new(seed: u64, cells: usize, tiles: u32) -> Store {
        let env = Env::seeded(seed);
        let root = Key::random(&|out: &mut [u8]| env.random.fill(out));
        let (keys, map) = (TagKeys::new(&root), Map::new(&root, 1, tiles));
        let (written, cells_now) = (BTreeMap::new(), BTreeMap::new());
        let mut store =
            Store { written, cells: cells_now, keys, map, tiles: vec![Tile::empty(); tiles as usize] };
        for number in 0..cells {
            let mut payload: Box<Payload> = vec![0; PAYLOAD].into_boxed_slice().try_into().unwrap();
            env.random.fill(&mut *payload);
            let tag = store.keys.tag(id(number), &payload).tag();
            store.written.insert(id(number), (payload, tag));
        }
        store.restore();
        store.tiles = store.summed(&store.tiles, &store.all());
        store
    }

    /// Every cell that must be there.
    pub fn all(&self) -> Vec<CellId> {
        self.written.keys().copied().collect()
    }

    /// The store is whole again.
    pub fn restore(&mut self) {
        self.cells = self.written.clone();
    }

    /// The tiles with these cells added or taken out, if they are what they should be. Those that
    /// are not are left alone.
    pub fn summed(&self, tiles: &[Tile], ids: &[CellId]) -> Vec<Tile> {
        let mut tiles = tiles.to_vec();
        let mut batches = vec![Batch::new(500); tiles.len()];
        for id in ids {
            let Some((payload, tag)) = self.cells.get(id) else { continue };
            let Some(proven) = self.keys.prove(*id, payload, *tag) else { continue };
            let place = self.map.place(*id);
            let batch = &mut batches[place.tile as usize];
            batch.add(proven, place.rows);
            if batch.is_full() {
                tiles[place.tile as usize].apply(batch);
                batch.clear();
            }
        }
        tiles.iter_mut().zip(&batches).for_each(|(tile, batch)| tile.apply(batch));
        tiles
    }

    /// A full recovery: scan, take out all that is right, solve for the rest.
    pub fn recover(&self) -> Recovery {
        let all = self.all();
        let is_right = |id: &CellId| {
            self.cells.get(id).is_some_and(|(payload, tag)| self.keys.prove(*id, payload, *tag).is_some())
        };
        let mut missing = vec![Vec::new(); self.tiles.len()];
        for id in all.iter().filter(|id| !is_right(id)) {
            let place = self.map.place(*id);
            missing[place.tile as usize].push((*id, place.rows));
        }
        let mut recovery = Recovery::default();
        for (tile, missing) in self.summed(&self.tiles, &all).into_iter().zip(&missing) {
            recovery.extend(tile.recover(missing, &self.keys));
        }
        recovery
    }
}

/// True in the long form of the check.
pub fn is_long() -> bool {
    std::env::var_os("STEADFAST_LONG").is_some()
}
