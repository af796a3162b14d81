//! The parity device: crashes, refusals, the journal as a mirror.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use steadfast_crypto::Key;
use steadfast_env::Env;
use steadfast_format::parity::ParitySegment;
use steadfast_format::{PoolGuid, SegmentId};
use steadfast_por::parity::{Creation, Error, Medium, Outcome, ParityDevice, Search};
use steadfast_por::{CellId, PAYLOAD, Payload};

use crate::store::{Dice, is_long};

pub(crate) const BLOCK: usize = 4096;
pub(crate) const POOL: PoolGuid = PoolGuid(77);
/// Two tiles.
pub(crate) const SMALL: Creation<'static> = Creation {
    pool: POOL,
    cells: 3200,
    loss_ppm: 500_000,
    journal_bytes: 200 * BLOCK as u64,
    key: None,
    is_away: false,
};

pub(crate) type Blocks = BTreeMap<u64, Arc<[u8; BLOCK]>>;

/// A medium whose unflushed blocks a crash may keep, lose or tear, each by itself.
#[derive(Clone, Default)]
pub(crate) struct False(pub(crate) Arc<Mutex<State>>);

#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) now: Blocks,
    durable: Blocks,
    pending: Vec<(u64, Arc<[u8; BLOCK]>)>,
    size: u64,
    /// So far it grows.
    pub(crate) size_max: u64,
    /// Writes and flushes until the power goes.
    pub(crate) left: Option<usize>,
    pub(crate) done: usize,
    /// The power has gone.
    pub(crate) is_gone: bool,
    /// Blocks that cannot be read.
    pub(crate) unread: std::ops::Range<u64>,
}

impl State {
    pub(crate) fn step(&mut self) -> io::Result<()> {
        self.done += 1;
        match &mut self.left {
            Some(0) => {
                self.is_gone = true;
                Err(io::Error::other("the power is gone"))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Medium for False {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().size)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock().unwrap();
        assert!(at + out.len() as u64 <= state.size, "a read beyond the end");
        let (mut at, mut out) = (at, out);
        while !out.is_empty() {
            let within = (at % BLOCK as u64) as usize;
            let (piece, rest) = out.split_at_mut(out.len().min(BLOCK - within));
            if state.unread.contains(&(at / BLOCK as u64)) {
                return Err(io::Error::other("the block cannot be read"));
            }
            match state.now.get(&(at / BLOCK as u64)) {
                Some(block) => piece.copy_from_slice(&block[within..within + piece.len()]),
                None => piece.fill(0),
            }
            (at, out) = (at + piece.len() as u64, rest);
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        assert!(at + bytes.len() as u64 <= state.size, "a write beyond the end");
        assert!(at.is_multiple_of(BLOCK as u64));
        // The write in which the power goes is under way.
        let outcome = state.step();
        for (number, piece) in (at / BLOCK as u64..).zip(bytes.chunks(BLOCK)) {
            let mut block = state.now.get(&number).map_or([0; BLOCK], |block| **block);
            block[..piece.len()].copy_from_slice(piece);
            let block = Arc::new(block);
            state.now.insert(number, Arc::clone(&block));
            state.pending.push((number, block));
        }
        outcome
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.step()?;
        state.durable = state.now.clone();
        state.pending.clear();
        Ok(())
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        if bytes > state.size_max {
            return Err(io::Error::other("no room"));
        }
        state.size = bytes.max(state.size);
        Ok(())
    }
}

impl False {
    pub(crate) fn new(size: u64) -> False {
        let medium = False::default();
        {
            let state = &mut *medium.0.lock().unwrap();
            (state.size, state.size_max) = (size, 2 * size);
        }
        medium
    }

    /// The medium after a crash. `fate` tells of each unflushed block, by its number, how many of
    /// its first bytes are there.
    pub(crate) fn crashed(&self, mut fate: impl FnMut(u64) -> usize) -> False {
        let state = self.0.lock().unwrap();
        let mut after = state.durable.clone();
        for (number, block) in &state.pending {
            let mut torn = after.get(number).map_or([0; BLOCK], |block| **block);
            let kept = fate(*number);
            torn[..kept].copy_from_slice(&block[..kept]);
            after.insert(*number, Arc::new(torn));
        }
        let (size, size_max) = (state.size, state.size_max);
        let after = State { now: after.clone(), durable: after, size, size_max, ..State::default() };
        False(Arc::new(Mutex::new(after)))
    }
}

pub(crate) fn open(medium: &False, seed: u64) -> Result<ParityDevice, Error> {
    ParityDevice::open(Box::new(medium.clone()), POOL, None, &*Env::seeded(seed).random)
}

fn small(seed: u64) -> (False, ParityDevice) {
    let medium = False::new(SMALL.bytes());
    let device = ParityDevice::create(Box::new(medium.clone()), &SMALL, &*Env::seeded(seed).random).unwrap();
    (medium, device)
}

/// Recovers with what `read` gives of segments.
fn recover(
    device: &ParityDevice,
    read: &(dyn Fn(ParitySegment) -> Vec<u8> + Sync),
) -> Result<Outcome, Error> {
    let (env, done) = (Env::seeded(1), BTreeSet::new());
    let read = |segment, bytes: &mut Vec<u8>| {
        *bytes = read(segment);
        Ok(())
    };
    let (memory, stop) = (1 << 30, AtomicBool::new(false));
    let search = &mut Search {
        env: &env,
        memory,
        done: &done,
        read: &read,
        mirrored: &|_| (),
        stop: &stop,
        watch: &mut |_, _| (),
    };
    device.snapshot().recover(search)
}

/// All that a store was ever given.
#[derive(Default)]
pub(crate) struct Given(pub(crate) BTreeMap<ParitySegment, Vec<u8>>);

fn content(id: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Env::seeded(id).random.fill(&mut content);
    content
}

impl Given {
    pub(crate) fn add(
        &mut self,
        device: &mut ParityDevice,
        id: u64,
        bytes: usize,
    ) -> Result<ParitySegment, Error> {
        let content = content(id, bytes);
        let segment = device.add(SegmentId(id), 1, &content)?;
        self.0.insert(segment, content);
        Ok(segment)
    }

    /// Recovers with these cells gone, and checks that each came back as it was.
    pub(crate) fn recovered(&self, device: &ParityDevice, gone: impl Fn(CellId) -> bool + Sync) -> Outcome {
        let by_name: BTreeMap<(u64, u32), _> =
            self.0.iter().map(|(segment, given)| ((segment.segment.0, segment.opening), given)).collect();
        let cell = |id: CellId, out: &mut Payload| {
            let Some(content) = by_name.get(&(id.segment.0, id.opening)) else { return false };
            let rest = &content[usize::from(id.index) * PAYLOAD..];
            let length = rest.len().min(PAYLOAD);
            out.fill(0);
            out[..length].copy_from_slice(&rest[..length]);
            true
        };
        // Cells that are gone come as garbage.
        let read = |named: ParitySegment| {
            let ParitySegment { segment, store, opening, .. } = named;
            let mut bytes = vec![0x5a; usize::from(named.cells()) * PAYLOAD];
            for (index, out) in (0..).zip(bytes.as_chunks_mut().0) {
                let id = CellId { segment, opening, store, index };
                let _ = !gone(id) && cell(id, out);
            }
            bytes
        };
        let outcome = recover(device, &read).unwrap();
        for back in outcome.back.values().flatten() {
            let mut expected = [0; PAYLOAD];
            if cell(back.id(), &mut expected) {
                assert!(*back.payload() == expected, "{:?}", back.id());
            }
        }
        outcome
    }

    /// The code is whole: with a quarter of all cells gone each comes back, and nothing else is in
    /// the tiles.
    pub(crate) fn check(&self, device: &ParityDevice) {
        let outcome = self.recovered(device, |id| (id.segment.0 + u64::from(id.index)) % 4 == 1);
        assert!(outcome.from_code.is_complete(), "{:?}", outcome.from_code.undetermined);
        assert!(outcome.unsound.is_empty(), "tiles {:?}", outcome.unsound);
    }
}

/// One life: segments come and go, with flushes and passes between. Tells the sets of segments
/// after each step, and from which on they were acknowledged. `passed` comes behind each pass.
pub(crate) fn life(
    device: &mut ParityDevice,
    passed: &mut dyn FnMut(&ParityDevice),
    given: &mut Given,
    states: &mut Vec<BTreeSet<ParitySegment>>,
    safe: &mut usize,
) -> Result<(), Error> {
    let mut added = Vec::new();
    for (step, id) in (0..).zip([11_u64, 12, 13, 14, 15, 16]) {
        added.push(given.add(device, id, 40 * PAYLOAD + 100 * id as usize)?);
        states.push(device.segments().collect());
        if step == 1 || step == 4 {
            // One that the journal has, one that only the store has.
            let gone = added[step - 1];
            let content = &given.0[&gone][..];
            device.remove(gone, (step == 4).then_some(content))?;
            states.push(device.segments().collect());
        }
        if step % 2 == 0 {
            device.flush()?;
            *safe = states.len() - 1;
        } else {
            device.pass()?;
            *safe = states.len() - 1;
            passed(device);
        }
    }
    Ok(())
}

/// [por.9]
#[test]
fn a_crash_at_any_write_leaves_a_whole_code() {
    let total = {
        let (medium, mut device) = small(1);
        medium.0.lock().unwrap().done = 0;
        let mut states = vec![BTreeSet::new()];
        life(&mut device, &mut |_| (), &mut Given::default(), &mut states, &mut 0).unwrap();
        let done = medium.0.lock().unwrap().done;
        assert!(done > 40, "{done} writes and flushes");
        done
    };
    let (stride, seeds) = if is_long() { (1, 5) } else { (7, 1) };
    for seed in 0..seeds {
        for cut in (seed % stride..total).step_by(stride) {
            let (medium, mut device) = small(1);
            medium.0.lock().unwrap().left = Some(cut);
            let (mut given, mut states, mut safe) = (Given::default(), vec![BTreeSet::new()], 0);
            let error = life(&mut device, &mut |_| (), &mut given, &mut states, &mut safe).unwrap_err();
            assert!(matches!(error, Error::Io { .. }), "{error}");
            assert!(matches!(device.flush(), Err(Error::Failed)), "nothing more is accepted");

            let dice = Dice::new((seed * total + cut) as u64);
            let after = medium.crashed(|_| [0, BLOCK, BLOCK, 1 + dice.below(BLOCK - 1)][dice.below(4)]);
            let mut device = open(&after, 99).unwrap();
            let live: BTreeSet<ParitySegment> = device.segments().collect();
            // A segment of which nobody was told may be there or not.
            let told = |live: &BTreeSet<ParitySegment>| states[safe..].contains(live);
            let untold = live.iter().find(|segment| !given.0.contains_key(segment));
            let without = untold.map(|untold| live.iter().copied().filter(|s| s != untold).collect());
            let removed_in_flight = states.last().unwrap().difference(&live).count() == 1;
            assert!(
                told(&live) || without.is_some_and(|live| told(&live)) || removed_in_flight,
                "cut {cut}: {live:?} of {states:?}"
            );
            given.check(&device);
            // Life goes on.
            given.add(&mut device, 17, 3 * PAYLOAD).unwrap();
            device.pass().unwrap();
            given.check(&open(&after, 100).unwrap());
        }
    }
}

/// [por.12]: of two records that were not flushed the second one survives. The next life writes
/// another first one, of the same size.
#[test]
fn a_lost_record_does_not_come_back() {
    let (medium, mut device) = small(2);
    let mut given = Given::default();
    given.add(&mut device, 1, PAYLOAD).unwrap();
    let first: BTreeSet<u64> = medium.0.lock().unwrap().pending.iter().map(|(number, _)| *number).collect();
    given.add(&mut device, 2, PAYLOAD).unwrap();
    let after = medium.crashed(|number| if first.contains(&number) { 0 } else { BLOCK });
    let mut device = open(&after, 3).unwrap();
    assert_eq!(device.segments().count(), 0);
    let third = given.add(&mut device, 3, PAYLOAD).unwrap();
    device.flush().unwrap();
    let device = open(&after, 4).unwrap();
    assert_eq!(device.segments().collect::<Vec<_>>(), [third]);
    given.check(&device);
}

/// Dropped writes come back from the journal, and after a pass from the code.
#[test]
fn a_store_that_drops_writes_loses_nothing() {
    let (_, mut device) = small(5);
    let mut given = Given::default();
    for id in 1..=4 {
        given.add(&mut device, id, 40 * PAYLOAD).unwrap();
    }
    let of_two = |id: CellId| id.segment.0 <= 2;
    let outcome = given.recovered(&device, of_two);
    assert_eq!((outcome.held, outcome.from_journal, outcome.from_code.recovered), (80, 80, 0));
    let pass = device.pass().unwrap();
    assert_eq!((pass.generation, pass.released, device.journal_bytes()), (2, Vec::new(), 0));
    let outcome = given.recovered(&device, of_two);
    assert_eq!((outcome.held, outcome.from_journal, outcome.from_code.recovered), (80, 0, 80));
    assert_eq!(device.stratum(1).cells(), 160);
    assert_eq!(device.stratum(2).cells(), 0);
}

/// [por.13]: a removal is released by a pass. The ring goes round many times.
#[test]
fn segments_come_and_go_in_a_small_ring() {
    let (medium, mut device) = small(6);
    let mut given = Given::default();
    let mut roots = BTreeSet::new();
    for round in 1..=6 {
        let segment = given.add(&mut device, round, 61 * PAYLOAD + 5).unwrap();
        let content = given.0[&segment].clone();
        assert!(roots.insert(device.pass().unwrap().root));
        if round > 2 {
            let mut wrong = content.clone();
            wrong[9] ^= 1;
            let error = device.remove(segment, Some(&wrong)).unwrap_err();
            assert!(matches!(error, Error::WrongCells(cells) if cells.len() == 1 && cells[0].index == 0));
            device.remove(segment, Some(&content)).unwrap();
            assert!(matches!(device.remove(segment, None), Err(Error::Unknown(_))));
            assert_eq!(device.pass().unwrap().released, [segment]);
        }
    }
    given.check(&device);
    assert_eq!(open(&medium, 7).unwrap().segments().count(), 2);
}

#[test]
fn what_does_not_fit_is_refused_with_its_size() {
    let random = Env::seeded(8).random;
    let short = False::new(SMALL.bytes() - 1);
    let error = ParityDevice::create(Box::new(short), &SMALL, &*random).err().unwrap();
    assert_eq!(
        error.to_string(),
        format!("the parity device has {} bytes; it needs {}", SMALL.bytes() - 1, SMALL.bytes())
    );
    let empty = False::new(SMALL.bytes());
    assert!(matches!(open(&empty, 1), Err(Error::NotParity(_))));

    let (medium, mut device) = small(9);
    let other = ParityDevice::open(Box::new(medium.clone()), PoolGuid(78), None, &*random);
    assert!(matches!(other, Err(Error::Foreign { found: POOL, wanted: PoolGuid(78) })));
    let mut given = Given::default();
    let segment = given.add(&mut device, 1, 150 * PAYLOAD).unwrap();
    assert!(
        matches!(given.add(&mut device, 1, 150 * PAYLOAD), Err(Error::Exists(known)) if known == segment)
    );
    assert!(matches!(given.add(&mut device, 2, 150 * PAYLOAD), Err(Error::JournalFull { .. })));
    assert!(matches!(given.add(&mut device, 2, 0), Err(Error::Length(0))));
    assert!(matches!(given.add(&mut device, 2, 3051 * PAYLOAD), Err(Error::Outgrown { planned: 3200, .. })));
    device.pass().unwrap();
    given.add(&mut device, 2, 150 * PAYLOAD).unwrap();
    let unknown = ParitySegment { opening: segment.opening ^ 1, ..segment };
    assert!(matches!(device.remove(unknown, None), Err(Error::Unknown(_))));
    assert!(matches!(device.remove(segment, None), Err(Error::WrongCells(cells)) if cells.len() == 150));
}

/// [por.1]: a name that left the code within the window does not come again, of whatever length.
#[test]
fn a_name_that_left_stands_for_what_it_was() {
    let (medium, mut device) = small(13);
    let mut given = Given::default();
    let segment = given.add(&mut device, 1, 10 * PAYLOAD).unwrap();
    given.add(&mut device, 2, 10 * PAYLOAD).unwrap();
    device.remove(segment, None).unwrap();
    for cells in [9, 10, 11] {
        let again = device.add(SegmentId(1), 1, &vec![7; cells * PAYLOAD]);
        assert!(matches!(again, Err(Error::Exists(named)) if named.segment == SegmentId(1)), "{cells} cells");
    }
    // Another opening has names of its own.
    device.flush().unwrap();
    given.add(&mut open(&medium, 14).unwrap(), 1, 11 * PAYLOAD).unwrap();
}

/// A damaged tile is found when it is read, a tile of an older generation when it is solved, and a
/// former parity on the same medium is not taken for the new one.
#[test]
fn damage_of_the_parity_is_named() {
    let (medium, mut device) = small(10);
    let mut given = Given::default();
    given.add(&mut device, 1, 90 * PAYLOAD).unwrap();
    device.pass().unwrap();
    let before = medium.0.lock().unwrap().now.clone();
    // A block of a tile, which is some way behind the journal.
    let number = *before.keys().next_back().unwrap() - 700;
    let mut block = *before[&number];
    block[5] ^= 1;
    medium.0.lock().unwrap().now.insert(number, Arc::new(block));
    assert!(matches!(recover(&device, &|_| Vec::new()), Err(Error::TileDamaged(_))));
    medium.0.lock().unwrap().now = before;

    let again = ParityDevice::create(Box::new(medium.clone()), &SMALL, &*Env::seeded(11).random).unwrap();
    assert_eq!(again.segments().count(), 0);
    assert!(recover(&again, &|_| Vec::new()).unwrap().unsound.is_empty(), "tiles of the former parity");
}

/// With the pool's key the device holds none.
#[test]
fn a_sealed_pools_parity_needs_its_key() {
    let (key, random) = (Key::from_bytes([3; 32]), Env::seeded(12).random);
    let creation = Creation { key: Some(&key), ..SMALL };
    let medium = False::new(creation.bytes());
    let mut device = ParityDevice::create(Box::new(medium.clone()), &creation, &*random).unwrap();
    let mut given = Given::default();
    given.add(&mut device, 1, 10 * PAYLOAD).unwrap();
    device.pass().unwrap();
    assert!(matches!(open(&medium, 13), Err(Error::KeyNeeded)));
    let opened = |key| ParityDevice::open(Box::new(medium.clone()), POOL, Some(key), &*random).unwrap();
    given.check(&opened(&key));
    // Another key opens the device and fits no cell.
    let outcome = given.recovered(&opened(&Key::from_bytes([4; 32])), |_| false);
    assert_eq!((outcome.held, outcome.from_code.recovered), (0, 0));
}

#[test]
fn a_file_is_a_medium() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(SMALL.bytes()).unwrap();
    let random = Env::seeded(14).random;
    let mut device = ParityDevice::create(Box::new(file.try_clone().unwrap()), &SMALL, &*random).unwrap();
    let mut given = Given::default();
    given.add(&mut device, 1, 10 * PAYLOAD).unwrap();
    device.pass().unwrap();
    given.add(&mut device, 2, 10 * PAYLOAD).unwrap();
    device.flush().unwrap();
    given.check(&ParityDevice::open(Box::new(file), POOL, None, &*random).unwrap());
}
