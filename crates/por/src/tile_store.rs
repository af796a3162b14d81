//! Tiles of a parity device at a store. Decision 0263.
//!
//! A body is sealed, and its object has the name that follows from its hash, which is in the head:
//! so each write makes another object, and none is ever replaced. An *inner* parity device, in a
//! part of the trusted medium, covers the objects as [`Covered`] covers those of a pool. Those that
//! the store lost come back from there, and audits sample their cells.
//!
//! ```text
//! stale ─[header durable: leaves the inner code]→ left ─[inner pass, header committed]→ deleted
//! ```
//! An object that no head names is *stale*. By [por.22] it leaves the inner code, and by [por.23]
//! it is deleted. An object that a list shows and no head names may be a newer one than this device
//! knows of, if the device was put back: it is stale from the next pass on.
//! tests: `a_crash_at_any_write_leaves_a_whole_code_at_a_store`,
//! `a_device_put_back_within_a_pass_finds_its_tiles`

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use steadfast_crypto::{BlockKeys, Key, hash};
use steadfast_device::objects::{Below, Store};
use steadfast_device::{Device, Error as DeviceError, ObjectDevice, Result as DeviceResult, SegmentPlace};
use steadfast_env::{Env, Job, Tasks};
use steadfast_format::parity::{ParitySegment, ParityTileStore};
use steadfast_format::{PoolGuid, SegmentId, Stamp};

use crate::covered::{Covered, Repair, SharedParity, pass_step, repair};
use crate::parity::{
    Bodies, CELLS, Creation, Error, Heads, MORE, Medium, ParityDevice, Result, SEALED, STAMP, name_of,
};
use crate::tile::Tile;

/// Folder of the objects of all parity devices.
const FOLDER: &str = "parity";
/// Number of the store of tiles in the inner code.
const STORE: u16 = 1;
/// Objects of a step that are read, or put, side by side at most: those of a step's spare slots.
const AT_ONCE: usize = 8;
/// Stale objects that are read between two looks at other work.
const LEAVE_AT_ONCE: usize = 16;
/// Objects that are deleted between two looks at other work: a request of most stores.
const DELETE_AT_ONCE: usize = 1_000;
/// Objects of a list that become stale in a pass. A store that lists what is not there costs no
/// more than a few requests each time.
const SWEPT_MAX: usize = 4 * DELETE_AT_ONCE;

/// Way to open the store at an address.
pub type OpenStore<'o> = &'o dyn Fn(&str) -> io::Result<Arc<dyn Store>>;

/// Makes a parity device whose tiles lie at a store, which has this address. Former bytes of the
/// medium are lost; nothing is asked of the store.
///
/// # Errors
/// The medium is too small, or fails.
///
/// # Panics
/// If the address is empty, or has more than 2,048 bytes.
pub fn create_at_store(
    medium: Box<dyn Medium>,
    creation: &Creation<'_>,
    address: &str,
    store: Arc<dyn Store>,
    env: &Env,
) -> Result<ParityDevice> {
    let attach = |place: &ParityTileStore, inner, key| attached(place, Arc::clone(&store), inner, key, env);
    ParityDevice::create_away(medium, creation, address, &attach, &*env.random)
}

/// Opens the parity device of a pool, and the store of its tiles if they lie at one. Nothing is
/// asked of that.
///
/// # Errors
/// It is none, another pool's, damaged, or its key is missing; the store cannot be opened.
pub fn open_parity(
    medium: Box<dyn Medium>,
    pool: PoolGuid,
    key: Option<&Key>,
    stores: OpenStore<'_>,
    env: &Env,
) -> Result<ParityDevice> {
    let attach = |place: &ParityTileStore, inner, key| {
        attached(place, open_store(&place.address, stores)?, inner, key, env)
    };
    ParityDevice::open_away(medium, pool, key, &attach, &*env.random)
}

fn attached(
    place: &ParityTileStore,
    store: Arc<dyn Store>,
    inner: ParityDevice,
    key: Key,
    env: &Env,
) -> Result<Arc<dyn Bodies>> {
    Ok(Arc::new(TileStore::new(place, store, inner, key, env)?))
}

/// Opens the store at an address.
///
/// # Errors
/// It cannot be opened.
pub fn open_store(address: &str, stores: OpenStore<'_>) -> Result<Arc<dyn Store>> {
    stores(address)
        .map_err(|error| Error::NoTileStore { address: address.to_owned(), reason: error.to_string() })
}

/// Place of the tiles of a parity device at a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TilesPlace {
    /// Address of the store.
    pub address: String,
    /// Folder below it that has nothing else.
    pub folder: String,
}

impl TilesPlace {
    fn of(place: &ParityTileStore) -> TilesPlace {
        TilesPlace { address: place.address.clone(), folder: format!("{FOLDER}/{:016x}", place.folder) }
    }

    /// The place of the tiles of a pool's parity device, if they lie at a store. Needs no key.
    ///
    /// # Errors
    /// It is none, another pool's, or damaged.
    pub fn on(medium: &dyn Medium, pool: PoolGuid) -> Result<Option<TilesPlace>> {
        Ok(ParityDevice::place_of_tiles(medium, pool)?.as_ref().map(TilesPlace::of))
    }

    /// Deletes all objects of a parity device that is not used any more, and cannot be opened.
    ///
    /// # Errors
    /// The store cannot be opened, or does not take it.
    pub fn delete_all(&self, stores: OpenStore<'_>) -> Result<()> {
        let store = Below::new(open_store(&self.address, stores)?, self.folder.clone());
        let device = ObjectDevice::open_listed(Arc::new(store), &[], Some(u64::MAX >> 1), [0; 16]);
        let delete = |device: ObjectDevice| {
            let objects = device.objects().expect("a device of whole objects");
            objects.delete_segments(&objects.stored_segments()?)
        };
        device.and_then(delete).map_err(|source| Error::TileStore { source })
    }
}

impl fmt::Display for TilesPlace {
    /// The address of the folder, as commands take it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, options) = match self.address.split_once('?') {
            Some((path, options)) => (path, Some(options)),
            None => (&*self.address, None),
        };
        write!(f, "{}/{}", path.trim_end_matches('/'), self.folder)?;
        options.map_or(Ok(()), |options| write!(f, "?{options}"))
    }
}

/// Tiles at a store, as status tells of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TilesStatus {
    /// Address of the store.
    pub address: String,
    /// Why the store did not do what it was asked last. Passes wait for it.
    pub trouble: Option<String>,
    /// A tile that the store does not have, or has with other bytes. Passes wait for it.
    pub lost: Option<u32>,
    /// Objects that wait to be deleted.
    pub stale: u64,
    /// Those of them that the store lost: they hold room of the inner code until a repair.
    pub held: u64,
    /// Those of them that could not leave the inner code at the last try, and why the last one
    /// could not.
    pub staying: Option<(u64, String)>,
    /// A recovery of them was cut off: the inner journal keeps what was not put back.
    pub owes_repair: bool,
}

impl TilesStatus {
    /// True if passes wait.
    #[must_use]
    pub fn holds_up(&self) -> bool {
        self.trouble.is_some() || self.lost.is_some() || self.owes_repair
    }
}

/// The store of a parity device's tiles, if they lie at one.
#[must_use]
pub fn tile_store(parity: &ParityDevice) -> Option<Arc<TileStore>> {
    let bodies: Arc<dyn Any + Send + Sync> = Arc::clone(parity.bodies()?) as _;
    bodies.downcast().ok()
}

/// Tiles at a store.
pub struct TileStore {
    store: Arc<Covered>,
    inner: SharedParity,
    keys: BlockKeys,
    pool: PoolGuid,
    place: TilesPlace,
    tasks: Arc<dyn Tasks>,
    at_once: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Objects of a step: no head names them yet.
    under_way: BTreeSet<SegmentId>,
    /// Objects that no head names any more, each with the pass of the header that lets it leave.
    stale: BTreeMap<SegmentId, u64>,
    /// Objects that left the inner code, each with the pass that lets it be deleted.
    left: BTreeMap<SegmentId, u64>,
    /// Objects that cannot leave it before a repair, as the store lost them.
    held: BTreeMap<SegmentId, u64>,
    /// Objects that could not leave it at the last try: the others have their turn first.
    failed: VecDeque<(SegmentId, u64)>,
    /// Why the last one of them could not.
    failed_why: Option<String>,
    /// The pass from which on to look for objects that former openings left over; none if all
    /// are known.
    sweep_at: Option<u64>,
    /// Why the store did not do what it was asked last.
    trouble: Option<String>,
    /// A tile that the store does not have, or has with other bytes.
    lost: Option<u32>,
}

fn with_room_for_the_tag(bytes: &[u8]) -> Vec<u8> {
    let mut room = Vec::with_capacity(SEALED);
    room.extend_from_slice(bytes);
    room
}

impl TileStore {
    /// Tiles at a store, of which the inner device is open.
    fn new(
        place: &ParityTileStore,
        store: Arc<dyn Store>,
        inner: ParityDevice,
        key: Key,
        env: &Env,
    ) -> Result<TileStore> {
        let random = &env.random;
        let (pool, place) = (place.pool, TilesPlace::of(place));
        let folder: Arc<dyn Store> = Arc::new(Below::new(store, place.folder.clone()));
        let mut writer = [0; 16];
        random.fill(&mut writer);
        // Only its segments are used: nothing is claimed, and its capacity is told to nobody.
        let device = ObjectDevice::open_listed(folder, &[], Some(u64::MAX >> 1), writer);
        let device = device.map_err(|source| Error::TileStore { source })?;
        let (store, inner) = (Arc::new(Covered::new(Arc::new(device))), Arc::new(RwLock::new(inner)));
        store.cover(STORE, Arc::clone(&inner));
        let keys = BlockKeys::new(key, &|out: &mut [u8]| random.fill(out));
        let state = Mutex::new(State { sweep_at: Some(0), ..State::default() });
        let (tasks, at_once) = (Arc::clone(&env.tasks), AtomicUsize::new(AT_ONCE));
        Ok(TileStore { store, inner, keys, pool, place, tasks, at_once, state })
    }

    /// A step of a pass may keep so many bytes of bodies in memory: of each tile the former body
    /// and the new one.
    pub fn set_memory(&self, bytes: u64) {
        let at_once = usize::try_from(bytes).unwrap_or(usize::MAX) / (2 * SEALED);
        self.at_once.store(at_once.clamp(1, AT_ONCE), Ordering::Relaxed);
    }

    /// Does some work for each number below `count`, side by side. The answers in their order.
    fn each<T: Send>(&self, count: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Vec<Result<T>> {
        let answers: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::default()).collect();
        let jobs = answers.iter().enumerate().map(|(at, answer)| -> Job<'_> {
            let work = &work;
            Box::new(move || *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(work(at)))
        });
        self.tasks.run_waiting(jobs.collect());
        let answers =
            answers.into_iter().map(|answer| answer.into_inner().unwrap_or_else(PoisonError::into_inner));
        answers.map(|answer| answer.expect("each job has ended")).collect()
    }

    /// Notes how requests that ran side by side did: the first that failed tells.
    fn noted_all<T>(&self, answers: &[Result<T>]) {
        let failed = answers.iter().find_map(|answer| answer.as_ref().err());
        let trouble = failed.map(|error| match error {
            Error::TileStore { source } => source.to_string(),
            Error::Inner { reason } => reason.clone(),
            error => error.to_string(),
        });
        self.state().trouble = trouble;
    }

    fn put(&self, sealed: &[u8]) -> Result<[u8; 32]> {
        let hash = hash(sealed);
        let name = name_of(&hash);
        self.state().under_way.insert(name);
        let put = self.store.put_covered(Self::place(name), sealed);
        match &put {
            Ok(()) => {}
            // Nothing was asked of the store.
            Err(Error::Inner { .. }) => _ = self.state().under_way.remove(&name),
            // It may be there all the same. Cells leave the inner code while their bytes are at
            // hand.
            Err(_) => self.give_up(name, sealed, 0),
        }
        put.map(|()| hash)
    }

    fn read(&self, hash: &[u8; 32]) -> Result<Vec<u8>> {
        let mut bytes = vec![0; SEALED];
        match self.store.read_segment(Self::place(name_of(hash)), 0, &mut bytes) {
            Err(DeviceError::Missing { .. } | DeviceError::CutShort { .. }) => Ok(Vec::new()),
            Err(source) => Err(Error::TileStore { source }),
            Ok(()) => Ok(bytes),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Address of the store.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.place.address
    }

    /// Its place there.
    #[must_use]
    pub fn place_there(&self) -> &TilesPlace {
        &self.place
    }

    /// The objects, covered by the inner code.
    #[must_use]
    pub fn store(&self) -> &Arc<Covered> {
        &self.store
    }

    /// The inner code.
    #[must_use]
    pub fn inner(&self) -> &SharedParity {
        &self.inner
    }

    /// Cells in a million of the tiles that may be lost and still come back.
    #[must_use]
    pub fn loss_ppm(&self) -> u32 {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).figures().loss_ppm
    }

    /// How it stands with the tiles there.
    #[must_use]
    pub fn status(&self) -> TilesStatus {
        let owes_repair = self.inner.read().unwrap_or_else(PoisonError::into_inner).owes_repair();
        let state = self.state();
        let (failed, held) = (state.failed.len() as u64, state.held.len() as u64);
        let staying = state.failed_why.clone().filter(|_| failed > 0).map(|why| (failed, why));
        let stale = (state.stale.len() + state.left.len()) as u64 + failed + held;
        let (trouble, lost) = (state.trouble.clone(), state.lost);
        let address = self.place.address.clone();
        TilesStatus { address, trouble, lost, stale, held, staying, owes_repair }
    }

    /// Notes how the store did.
    fn noted<T>(&self, outcome: DeviceResult<T>) -> Result<T> {
        let trouble = outcome.as_ref().err().map(ToString::to_string);
        self.state().trouble = trouble;
        outcome.map_err(|source| Error::TileStore { source })
    }

    fn place(segment: SegmentId) -> SegmentPlace {
        SegmentPlace { segment, slot: 0, slot_size: ParitySegment::LENGTH_MAX }
    }

    fn bound(&self, map: u64, tile: u32) -> [u8; 20] {
        let mut aad = [0; 20];
        aad[..8].copy_from_slice(&self.pool.0.to_le_bytes());
        aad[8..16].copy_from_slice(&map.to_le_bytes());
        aad[16..].copy_from_slice(&tile.to_le_bytes());
        aad
    }

    /// Work at the store between two looks at other work: what former openings left over, and what
    /// no head names any more since the header of `pass`, leaves the inner code, and is deleted if
    /// a root of the pass that it waits for is `committed`. `is_ours` is asked before that. True if
    /// there is more.
    ///
    /// # Errors
    /// The store does not answer, or the medium fails: it goes on later, with other objects first.
    pub fn tend(
        &self,
        pass: u64,
        committed: u64,
        heads: &dyn Fn() -> Heads,
        is_ours: &mut dyn FnMut() -> bool,
    ) -> Result<bool> {
        let is_due = self.state().sweep_at.is_some_and(|at| at <= pass);
        let swept = if is_due { self.sweep(heads) } else { Ok(()) };
        let left = self.leave(pass);
        // A delete takes a pass of the inner code: one for all that leave now.
        if matches!(left, Ok(true)) {
            return swept.map(|()| true);
        }
        let deleted = self.delete_left(committed, is_ours);
        swept.and(left).and(deleted)
    }

    /// Looks for objects that former openings left over.
    fn sweep(&self, heads: &dyn Fn() -> Heads) -> Result<()> {
        let objects = self.store.objects().expect("a device of whole objects");
        let listed = self.noted(objects.stored_segments())?;
        // Each name of the list was under way until now, or a head names it by now.
        let under_way = self.state().under_way.clone();
        // Behind the list: what came meanwhile is named now.
        let Heads { names, pass, opened_at } = heads();
        let state = &mut *self.state();
        let is_known = |state: &State, name: &SegmentId| {
            let has_failed = state.failed.iter().any(|(failed, _)| failed == name);
            let is_going = [&state.stale, &state.left, &state.held].iter().any(|all| all.contains_key(name));
            let is_going = is_going || has_failed;
            let is_coming = under_way.contains(name) || state.under_way.contains(name);
            names.contains(name) || is_coming || is_going
        };
        let found: BTreeSet<SegmentId> = listed.into_iter().filter(|name| !is_known(state, name)).collect();
        state.sweep_at = (found.len() > SWEPT_MAX).then_some(pass + 1);
        // [por.23]
        state.stale.extend(found.into_iter().take(SWEPT_MAX).map(|name| (name, opened_at + 1)));
        Ok(())
    }

    /// Lets stale objects leave the inner code that wait for this pass. True if there are more.
    fn leave(&self, pass: u64) -> Result<bool> {
        let due: Vec<(SegmentId, u64)> = {
            let state = self.state();
            let due = state.stale.iter().filter(|(_, after)| **after <= pass);
            due.map(|(name, after)| (*name, *after)).chain(state.failed.iter().copied()).collect()
        };
        let mut read = 0;
        for (name, after) in due {
            let is_in = {
                let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
                let is_in = inner.named(name, STORE).next().is_some();
                // It waits for the repair that reads, or is owed.
                if is_in && (inner.is_pinned() || inner.owes_repair()) {
                    continue;
                }
                is_in
            };
            if is_in && read == LEAVE_AT_ONCE {
                return Ok(true);
            }
            read += usize::from(is_in);
            let left = if is_in { self.store.take_out(name, None) } else { Ok(()) };
            {
                let state = &mut *self.state();
                state.stale.remove(&name);
                state.failed.retain(|(failed, _)| *failed != name);
                if let Err(error) = &left {
                    state.failed.push_back((name, after));
                    state.failed_why = Some(error.to_string());
                }
            }
            left.map_err(|source| Error::TileStore { source })?;
            self.note_left(name, after);
        }
        Ok(false)
    }

    /// Notes an object that was to leave the inner code.
    fn note_left(&self, name: SegmentId, after: u64) {
        let is_in = self.store.is_covered(name);
        let is_lost = is_in && self.store.held_back().iter().any(|held| held.segment == name);
        let state = &mut *self.state();
        match (is_in, is_lost) {
            (false, _) => state.left.insert(name, after),
            (true, true) => state.held.insert(name, after),
            // A repair reads: it leaves behind that.
            (true, false) => state.stale.insert(name, after),
        };
    }

    /// Deletes objects that left the inner code and wait for this pass. True if there are more.
    fn delete_left(&self, committed: u64, is_ours: &mut dyn FnMut() -> bool) -> Result<bool> {
        let mut due: Vec<SegmentId> = {
            let state = self.state();
            let due = state.left.iter().filter(|(_, after)| **after <= committed);
            due.map(|(name, _)| *name).collect()
        };
        // Those that wait for no pass come first: one that fails holds none of them up.
        let owed = self.store.owed(&due);
        due.sort_by_key(|name| owed.contains(name));
        due.truncate(DELETE_AT_ONCE);
        if due.is_empty() || !is_ours() {
            return Ok(false);
        }
        // [por.13] of the inner code. The first pass that ends may have begun before they left.
        let (mut passed, mut waits) = (Ok(()), false);
        while passed.is_ok() && !self.store.owed(&due).is_empty() {
            waits = true;
            passed = pass_step(&self.inner).map(drop);
        }
        // A pass takes its time.
        if waits && !is_ours() {
            return passed.map(|()| false);
        }
        let deleted = self.noted(self.store.delete_left(&due))?;
        let is_more = !deleted.is_empty() && due.len() == DELETE_AT_ONCE;
        {
            let state = &mut *self.state();
            deleted.iter().for_each(|name| _ = state.left.remove(name));
            if let Some(error) = passed.as_ref().err().filter(|error| !is_awaited(error)) {
                state.trouble = Some(error.to_string());
            }
        }
        passed.map(|()| is_more)
    }

    /// Deletes all objects of this parity device, which is not used any more.
    ///
    /// # Errors
    /// The store does not take it.
    pub fn delete_all(&self) -> Result<()> {
        self.store.uncover();
        let objects = self.store.objects().expect("a device of whole objects");
        let mut names: BTreeSet<SegmentId> = self.noted(objects.stored_segments())?.into_iter().collect();
        // A list may lack what was created of late.
        names.extend(self.inner.read().unwrap_or_else(PoisonError::into_inner).segments().map(|s| s.segment));
        self.noted(objects.delete_segments(&names.into_iter().collect::<Vec<_>>()))
    }
}

impl Bodies for TileStore {
    fn at_once(&self) -> usize {
        self.at_once.load(Ordering::Relaxed)
    }

    fn check_inner(&self, count: usize) -> Result<()> {
        let checked = self.store.check_room(SEALED, count);
        let checked = checked.map_err(|error| Error::Inner { reason: error.to_string() });
        if checked.is_err() {
            self.noted_all(std::slice::from_ref(&checked));
        }
        checked
    }

    fn sealed(&self, map: u64, tile: u32, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = with_room_for_the_tag(bytes);
        let Stamp { salt, counter } = self.keys.seal(&self.bound(map, tile), &mut bytes);
        let mut sealed = Vec::with_capacity(SEALED);
        sealed.extend_from_slice(&salt);
        sealed.extend_from_slice(&counter.to_le_bytes());
        sealed.append(&mut bytes);
        sealed
    }

    fn put_each(&self, sealed: &[Vec<u8>]) -> (Vec<Option<[u8; 32]>>, Result<()>) {
        let put = self.each(sealed.len(), |at| self.put(&sealed[at]));
        self.noted_all(&put);
        let (mut hashes, mut outcome) = (Vec::with_capacity(put.len()), Ok(()));
        for put in put {
            hashes.push(put.as_ref().ok().copied());
            outcome = outcome.and(put.map(drop));
        }
        (hashes, outcome)
    }

    fn read_each(&self, hashes: &[[u8; 32]]) -> Result<Vec<Vec<u8>>> {
        let read = self.each(hashes.len(), |at| self.read(&hashes[at]));
        self.noted_all(&read);
        read.into_iter().collect()
    }

    fn opened(&self, map: u64, tile: u32, sealed: &[u8]) -> Option<Vec<u8>> {
        let (stamp, sealed) = sealed.split_at_checked(STAMP)?;
        let stamp = Stamp {
            salt: stamp[..16].try_into().expect("16 bytes"),
            counter: u64::from_le_bytes(stamp[16..].try_into().expect("8 bytes")),
        };
        let mut bytes = sealed.to_vec();
        self.keys.open(&stamp, &self.bound(map, tile), &mut bytes).ok()?;
        (bytes.len() == Tile::SIZE).then_some(bytes)
    }

    fn give_up(&self, name: SegmentId, sealed: &[u8], pass: u64) {
        let left = self.store.take_out(name, Some(sealed));
        self.state().under_way.remove(&name);
        match left {
            Ok(()) => self.note_left(name, pass),
            Err(_) => _ = self.state().stale.insert(name, pass),
        }
    }

    fn named(&self, name: SegmentId) {
        self.state().under_way.remove(&name);
    }

    fn retire(&self, names: &mut dyn Iterator<Item = SegmentId>, pass: u64) {
        let state = &mut *self.state();
        for name in names {
            state.under_way.remove(&name);
            state.stale.insert(name, pass);
        }
    }

    fn note_lost(&self, tile: Option<u32>) {
        self.state().lost = tile;
    }

    fn check_room(&self, tiles: u64) -> Result<()> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner).figures();
        let planned = (inner.planned / CELLS).saturating_sub(MORE);
        if tiles > planned { Err(Error::InnerSmall { tiles, planned }) } else { Ok(()) }
    }
}

/// True if the pass waits for a recovery.
fn is_awaited(error: &Error) -> bool {
    matches!(error, Error::Recovering | Error::RecoveryOwed)
}

/// Work for the tiles at a store, if they lie at one, as of [`TileStore::tend`]. `committed` is the
/// pass of the last committed root.
///
/// # Errors
/// As of [`TileStore::tend`].
pub fn tend(parity: &SharedParity, committed: u64, is_ours: &mut dyn FnMut() -> bool) -> Result<bool> {
    let reading = || parity.read().unwrap_or_else(PoisonError::into_inner);
    let (bodies, pass) = {
        let parity = reading();
        (tile_store(&parity), parity.standing().generation)
    };
    bodies.map_or(Ok(false), |bodies| bodies.tend(pass, committed, &|| reading().heads(), is_ours))
}

/// Brings back what the store of the tiles lost of them, if tiles lie at one: all are read once,
/// and whole objects are put back. Passes wait meanwhile [por.16].
///
/// # Errors
/// The inner code is damaged, the store does not take what came back, or it was stopped.
pub fn mend(
    parity: &SharedParity,
    env: &Env,
    memory: u64,
    stop: &AtomicBool,
    watch: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Option<Repair>> {
    let (bodies, _pin) = loop {
        let device = parity.read().unwrap_or_else(PoisonError::into_inner);
        let Some(bodies) = tile_store(&device) else { return Ok(None) };
        if !device.is_step_running() {
            break (bodies, device.pin());
        }
        let running = Arc::clone(device.running());
        drop(device);
        running.wait();
    };
    let outcome = repair(&[Arc::clone(&bodies.store)], env, memory, stop, watch);
    let trouble = match &outcome {
        Ok(_) | Err(Error::Stopped) => None,
        Err(Error::Store { source }) => Some(source.to_string()),
        Err(error) => Some(error.to_string()),
    };
    let state = &mut *bodies.state();
    state.trouble = trouble;
    state.lost = state.lost.filter(|_| outcome.is_err());
    let held = std::mem::take(&mut state.held);
    state.stale.extend(held);
    outcome.map(Some)
}
