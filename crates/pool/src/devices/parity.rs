//! The parity device of a pool: it comes and goes, covers stores, is brought up to date, asks
//! stores for what they should hold, and gives back what they lost. DESIGN.md, chapter 24.
//!
//! ## Invariants
//! [parity_device.1] The standing in a root is durable on the parity device before the root is: the
//!     journal is flushed with the stores. A device that stands at less was put back, and is not
//!     used.
//!     `Devices::attach_parity`, test: `a_parity_that_is_old_lost_or_of_another_pool_is_told`
//! [parity_device.2] An object that the code had is deleted when a root is committed (and anchored)
//!     whose standing is at the pass that took it out, or behind it.
//!     `Devices::parity_step`
//! [parity_device.3] A parity device that is missing or fails keeps nobody from reading or writing:
//!     segments written meanwhile are uncovered until they are caught up with. test: the same
//! [parity_device.5] A second code is begun under the feature `parity_rekey`: software that does
//!     not know of it would bring one of the codes up to date. `Devices::rekey`
//! [parity_device.6] `catch_up` is not taken under the lock of the code, but the other way round.
//! [parity_device.4] Status and audits tell an object as covered once a power cut leaves it so.
//!     tests: `all_is_covered_once_it_is_durable`, `an_audit_counts_what_is_durable`

mod audit;
mod deletes;
mod medium;
mod status;
mod tiles;

pub use audit::{Agent, AskAgent, NoSum};
pub(crate) use medium::{check_parity, rehearse};
pub use status::ParityStatus;

use crate::core::error::{Error, Result};
use crate::core::events::EventKind;
use crate::core::ranked::{RankedMutex, rank};
use crate::core::state::Sealing;
use crate::devices::leaf::Leaf;
use crate::devices::state::Devices;
use medium::blank_labels;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use steadfast_crypto::Key;
use steadfast_env::Env;
use steadfast_format::{
    AuxClass, AuxConfig, DeviceId, Feature, LabelConfig, MetaKey, ParityStanding, PoolGuid, SegmentId,
};
use steadfast_por::parity::{Creation, Medium, ParityDevice, Pass, Standing, Step, StepResult};
use steadfast_por::tile_store::{create_at_store, mend, open_parity, open_store};
use steadfast_por::{CellId, Covered, OpenStore, PAYLOAD, SharedParity, TilesPlace, tile_store};

/// Name of the feature.
pub(crate) const FEATURE: &str = "parity";
/// Name of that under which a second code is made.
const REKEY_FEATURE: &str = "parity_rekey";

/// Cells in a million that may be lost and still come back, where nobody says how many.
pub const LOSS_PPM: u32 = 20_000;
/// How many that may be: 0.5 % to 10 %.
pub const LOSSES_PPM: RangeInclusive<u32> = 5_000..=100_000;
/// Part of a parity device that the journal takes, and its bounds.
const JOURNAL_PART: u64 = 3;
const JOURNAL_MAX: u64 = 16 << 30;
/// The same where tiles lie at a store: the larger the journal is, the less traffic they are.
const JOURNAL_PART_AWAY: u64 = 2;
const JOURNAL_MAX_AWAY: u64 = 64 << 30;
/// Largest segments for which the journal has room at least.
const JOURNAL_SEGMENTS: u64 = 3;
/// Time between two looks for uncovered segments.
const LOOK: Duration = Duration::from_secs(600);
/// Objects that are to be deleted wait so long for the pass that takes them out, or longer if the
/// code is large. A try after a failure waits as long.
const PASS: Duration = Duration::from_secs(30);
/// Tiles a second that passes for deletes alone read and write on average.
const PASS_TILES: u64 = 2;
/// Time for which they wait for each tile that lies at a store, whose traffic may cost.
const PASS_AWAY: Duration = Duration::from_secs(30);
/// A step of a pass over tiles at a store has a part of the memory of the caches.
const CACHES_PART: u64 = 4;
/// Pause between two steps of work that is in no hurry.
const PAUSE: Duration = Duration::from_millis(20);
/// Time between two looks at a journal that grows.
const GROWING: Duration = Duration::from_millis(50);
/// Time between two looks whether a recovery is over.
const PINNED: Duration = Duration::from_secs(1);

/// The parity device.
pub(crate) struct Parity {
    pub guid: u64,
    pub path: String,
    /// The code, or why the pool does without it.
    pub code: FoundParity,
    /// The standing that the next root tells.
    standing: RankedMutex<ParityStanding, rank::ParityStanding>,
    /// Pass of the root that is being committed, and of the last committed one.
    storing: AtomicU64,
    committed: AtomicU64,
    /// When the last pass ended; at first, when the pool began to use the device.
    passed_ns: AtomicU64,
    /// Passes that ended since the last commit in which somebody wrote.
    idle_passes: AtomicU32,
    /// End of the journal when it was last looked at.
    looked_at: AtomicU64,
    /// No step of a pass before: the last one failed.
    pass_after_ns: AtomicU64,
    /// When to look again after what waits to be deleted at the store of the tiles.
    tend_ns: AtomicU64,
    /// That store failed, and nothing of it succeeded since.
    tiles_away: AtomicBool,
    catch_up: RankedMutex<CatchUp, rank::CatchUp>,
}

/// Uncovered segments that are to come in.
#[derive(Default)]
struct CatchUp {
    queue: VecDeque<(DeviceId, SegmentId, u64)>,
    /// When to look for more.
    look_ns: u64,
    /// When to ask a store again for an object that is to leave the code, and that it did not give.
    resume_ns: BTreeMap<DeviceId, u64>,
    /// A step of a pass between two calls, where nothing runs beside it.
    step: Option<StepState>,
}

/// A step of a pass that has not ended.
enum StepState {
    Begun(Step),
    Ran(StepResult),
}

type PassStep = std::result::Result<Option<Pass>, steadfast_por::parity::Error>;

/// Tiles that stay at their store, though their parity device left.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TilesLeft {
    /// Address of the folder that has them; none if the device did not tell, which may have had
    /// none.
    pub place: Option<String>,
    /// Why they stay.
    pub reason: String,
}

/// Wishes about a new parity device.
#[derive(Clone, Copy)]
pub struct ParityWish<'w> {
    /// Cells in a million that may be lost: one of [`LOSSES_PPM`].
    pub loss_ppm: u32,
    /// Address of a store for its tiles, and how to open it.
    pub tiles: Option<(&'w str, OpenStore<'w>)>,
}

impl ParityWish<'_> {
    /// Tiles on the device, for so many cells in a million that may be lost.
    #[must_use]
    pub fn of(loss_ppm: u32) -> Self {
        ParityWish { loss_ppm, tiles: None }
    }
}

/// Outcome of a recovery.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Cells that were looked at, and those that the stores had.
    pub cells: u64,
    /// Cells that the stores had.
    pub held: u64,
    /// Cells that came back from the journal.
    pub from_journal: u64,
    /// Cells that came back from the code.
    pub from_code: u64,
    /// Objects that were put back whole.
    pub restored: Vec<SegmentId>,
    /// Cells that did not come back: store, segment, cell.
    pub lost: Vec<(u16, SegmentId, u16)>,
    /// Tiles that are not the sum of their cells.
    pub unsound: Vec<u32>,
    /// Times that all stores were read: more than one where memory was short.
    pub rounds: u32,
    /// Time from the last cell that was read until all were solved.
    pub solving: Duration,
    /// Tiles at a store that were put back, and cells of tiles that did not come back.
    pub tiles: (u64, u64),
    /// Why tiles at a store were not looked after.
    pub tiles_trouble: Option<String>,
    /// Identities of the lost cells.
    lost_cells: Vec<CellId>,
}

/// Outcome of a re-key.
#[derive(Clone, Debug, Default)]
pub struct Rekeyed {
    /// Objects that the code leaves out, because cells of them did not come back: store, segment.
    pub left_out: Vec<(u16, SegmentId)>,
    /// Times that all stores were read.
    pub rounds: u32,
}

/// A parity device for many, whose steps use all processors.
fn shared(mut code: ParityDevice, env: &Env) -> SharedParity {
    code.work_beside(Arc::clone(&env.tasks));
    Arc::new(RwLock::new(code))
}

fn reading(code: &SharedParity) -> RwLockReadGuard<'_, ParityDevice> {
    code.read().unwrap_or_else(PoisonError::into_inner)
}

fn writing(code: &SharedParity) -> RwLockWriteGuard<'_, ParityDevice> {
    code.write().unwrap_or_else(PoisonError::into_inner)
}

/// The device while no step of a pass runs.
fn idle(code: &SharedParity) -> RwLockReadGuard<'_, ParityDevice> {
    loop {
        let parity = reading(code);
        if !parity.is_step_running() {
            return parity;
        }
        let running = Arc::clone(parity.running());
        drop(parity);
        running.wait();
    }
}

impl Parity {
    fn new(aux: &AuxConfig, code: FoundParity, standing: Option<ParityStanding>, now_ns: u64) -> Parity {
        let standing = standing.unwrap_or(ParityStanding { device: aux.guid, ..ParityStanding::default() });
        Parity {
            guid: aux.guid,
            path: aux.path.clone(),
            code,
            storing: AtomicU64::new(standing.generation),
            committed: AtomicU64::new(standing.generation),
            standing: RankedMutex::new(standing),
            passed_ns: AtomicU64::new(now_ns),
            idle_passes: AtomicU32::new(0),
            looked_at: AtomicU64::new(0),
            pass_after_ns: AtomicU64::new(0),
            tend_ns: AtomicU64::new(0),
            tiles_away: AtomicBool::new(false),
            catch_up: RankedMutex::default(),
        }
    }

    /// The code now, for the root that is being made.
    fn standing_now(&self) -> Option<Standing> {
        self.code.as_ref().ok().map(|code| reading(code).standing())
    }
}

/// Refuses a device that stands at less than the pool knows of [parity_device.1].
fn check_standing(now: Standing, recorded: ParityStanding, anchored: u64) -> std::result::Result<(), String> {
    let least = recorded.generation.max(anchored);
    if now.generation < least || now.position < recorded.position {
        return Err(format!(
            "it was put back to an older state: it stands at pass {} and position {}, and the pool knows of pass \
             {least} and position {}",
            now.generation, now.position, recorded.position
        ));
    }
    if now.generation == recorded.generation && now.root != recorded.root {
        return Err(format!("its pass {} is not the one that the pool knows of", now.generation));
    }
    Ok(())
}

/// The code of the parity device that labels list, or why it cannot be used.
pub(crate) type FoundParity = std::result::Result<SharedParity, String>;

/// Opens the parity device at a path.
pub(crate) type OpenParity<'o> = &'o dyn Fn(&str) -> io::Result<Box<dyn Medium>>;

/// Opens the parity device that labels list, so that already the import reads what the journal
/// has.
pub(crate) fn find(
    env: &Env,
    config: &LabelConfig,
    key: Option<&Key>,
    (open, stores): (OpenParity<'_>, OpenStore<'_>),
) -> Option<FoundParity> {
    let aux = config.aux.iter().find(|aux| aux.class == AuxClass::Parity)?;
    let opened = open(&aux.path).map_err(|error| error.to_string()).and_then(|medium| {
        let code = open_parity(medium, config.pool, key, stores, env);
        code.map(|code| shared(code, env)).map_err(|error| error.to_string())
    });
    Some(opened)
}

/// Lets go of a code that is not used any more, and of its device.
pub(crate) fn close(code: &SharedParity) {
    writing(code).close();
}

/// Lets a code cover stores.
pub(crate) fn cover(leaves: &[Arc<Leaf>], code: &SharedParity) {
    for leaf in leaves {
        if let Some(store) = &leaf.covered {
            store.cover(store_number(leaf.id()), Arc::clone(code));
        }
    }
}

/// Number of a store in the code.
fn store_number(id: DeviceId) -> u16 {
    u16::try_from(id.0).expect("devices of labels have two bytes")
}

/// Key of the code of a pool that is sealed.
pub(crate) fn key_of(pool: PoolGuid, sealing: &Sealing) -> Key {
    steadfast_crypto::derive(sealing.keys.master(), &pool.0.to_le_bytes(), "steadfast parity device v1")
}

impl Devices {
    pub(crate) fn parity(&self) -> Option<Arc<Parity>> {
        self.aux.parity.read().clone()
    }

    /// Lets go of the parity device: nobody works on it any more. A thread that still answers a
    /// request may hold it for a moment; it is no reason to keep others away.
    pub(crate) fn release_parity(&self) {
        let parity = self.parity();
        let code = parity.as_ref().and_then(|parity| parity.code.as_ref().ok());
        code.into_iter().for_each(close);
    }

    fn listed_parity(&self) -> Option<AuxConfig> {
        self.aux.listed.read().iter().find(|aux| aux.class == AuxClass::Parity).cloned()
    }

    /// The stores that a code may cover, each with its number.
    fn stores(&self) -> Vec<(DeviceId, Arc<Covered>)> {
        let covered = |leaf: &Arc<Leaf>| Some((leaf.id(), leaf.covered.clone()?));
        self.leaves().iter().filter_map(covered).collect()
    }

    /// Goes on with the parity device that the import found, unless it is older than the pool. One
    /// that cannot be used keeps no pool from being imported [parity_device.3]. Before the first
    /// write.
    pub(crate) fn attach_parity(&self, found: Option<FoundParity>) -> Result<()> {
        let (Some(aux), Some(code)) = (self.listed_parity(), found) else { return Ok(()) };
        let pool = self.core.name();
        let recorded = match self.core.meta.get(&MetaKey::Parity.encode())? {
            None => None,
            Some(value) => {
                let standing = ParityStanding::decode(&value);
                let standing =
                    standing.map_err(|source| self.core.corrupt(&pool, "parity standing", source))?;
                Some(standing).filter(|standing| standing.device == aux.guid)
            }
        };
        let anchored = self.core.anchor().map_or(0, |anchor| anchor.parity_generation());
        let code = code.and_then(|code| {
            let standing = reading(&code).standing();
            let checked = check_standing(standing, recorded.unwrap_or_default(), anchored);
            checked.inspect_err(|_| close(&code)).map(|()| code)
        });
        if let Err(reason) = &code {
            self.stores().iter().for_each(|(_, store)| store.uncover());
            self.core.events.note(EventKind::ParityOut { path: aux.path.clone(), reason: reason.clone() });
        }
        let now = self.core.env.clock.monotonic_ns();
        *self.aux.parity.write() = Some(Arc::new(Parity::new(&aux, code, recorded, now)));
        self.cover_stores();
        Ok(())
    }

    /// Lets the code cover all stores, those that came since too.
    fn cover_stores(&self) {
        let Some(parity) = self.parity() else { return };
        let Ok(code) = &parity.code else { return };
        for (id, store) in self.stores().into_iter().filter(|(_, store)| !store.is_covering()) {
            store.cover(store_number(id), Arc::clone(code));
            parity.catch_up.lock().look_ns = 0;
        }
    }

    /// Bytes of the code's content that the pool has now.
    fn stored_cells(&self) -> u64 {
        let stored: u64 = self.core.space.stored_by_device().values().sum();
        stored.div_ceil(PAYLOAD as u64)
    }

    /// Makes a medium the parity device of the pool. Content that is stored already comes into the
    /// code by and by. With `dry_run` only says whether it would. A file that is a parity device
    /// already is refused unless `force`. Durable when it returns.
    pub fn add_parity(&self, path: &str, medium: Box<dyn Medium>, force: bool, dry_run: bool) -> Result<()> {
        self.add_parity_for(ParityWish::of(LOSS_PPM), path, medium, force, dry_run)
    }

    /// Like [`Devices::add_parity`], by wishes.
    pub fn add_parity_for(
        &self,
        wish: ParityWish<'_>,
        path: &str,
        medium: Box<dyn Medium>,
        force: bool,
        dry_run: bool,
    ) -> Result<()> {
        self.core.check_writable()?;
        let pool = self.core.name();
        if let Some(parity) = self.listed_parity() {
            return Err(Error::ParityThere { pool, path: parity.path });
        }
        if !self.core.space.is_all_objects() {
            return Err(Error::ParityNoStores { pool });
        }
        let creation = self.parity_plan(wish, path, &*medium)?;
        check_parity(path, &*medium, force)?;
        if dry_run {
            return Ok(());
        }
        // The removal of a former device may have been cut off behind the labels. Its pass would be
        // asked of this one by an import.
        if self.core.anchor().is_some_and(|anchor| anchor.parity_generation() > 0) {
            self.core.commit_changes()?;
        }
        let unusable = |error: io::Error| Error::ParityUnusable {
            pool: pool.clone(),
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let failed =
            |source| Error::Parity { pool: pool.clone(), path: path.to_owned(), source: Box::new(source) };
        // All that may fail comes before the first byte that is lost.
        let tiles =
            wish.tiles.map(|(address, stores)| open_store(address, stores).map(|store| (address, store)));
        let tiles = tiles.transpose().map_err(failed)?;
        rehearse(&*medium, &creation).map_err(failed)?;
        if force {
            blank_labels(&*medium).map_err(unusable)?;
        }
        let guid = self.core.identity.guid;
        let key = self.core.sealing.as_ref().map(|sealing| key_of(guid, sealing));
        let creation = Creation { key: key.as_ref(), ..creation };
        let random = &*self.core.env.random;
        let code = match tiles {
            None => ParityDevice::create(medium, &creation, random),
            Some((address, store)) => create_at_store(medium, &creation, address, store, &self.core.env),
        };
        let code = code.map_err(failed)?;
        let aux = AuxConfig::new(AuxClass::Parity, random.nonzero_u64(), path.to_owned());
        {
            let _turn = self.core.sync_turn.lock();
            let before = (self.aux.listed.read().clone(), self.core.features.read().clone());
            self.aux.listed.write().push(aux.clone());
            self.core.features.write().extend(Feature::known(FEATURE));
            self.write_labels_or(&[], || {
                (*self.aux.listed.write(), *self.core.features.write()) = before;
            })?;
            let (code, now) = (shared(code, &self.core.env), self.core.env.clock.monotonic_ns());
            *self.aux.parity.write() = Some(Arc::new(Parity::new(&aux, Ok(code), None, now)));
            self.cover_stores();
        }
        self.core.commit_changes()
    }

    /// The largest code for which a medium has room, if that is large enough for the pool.
    fn parity_plan(
        &self,
        wish: ParityWish<'_>,
        path: &str,
        medium: &dyn Medium,
    ) -> Result<Creation<'static>> {
        let (pool, slot_size) = (self.core.identity.guid, self.core.space.geometry().slot_size);
        plan((&self.core.name(), pool), slot_size, self.stored_cells(), wish, path, medium)
    }

    /// Lets the pool live without its parity device. Content that it covered stays; tiles at a
    /// store are deleted there, or it says why they stay. Durable when it returns.
    pub fn remove_parity(&self, path: &str) -> Result<Option<TilesLeft>> {
        self.remove_parity_with(path, None, &|_| Err(io::ErrorKind::Unsupported.into()))
    }

    /// Like [`Devices::remove_parity`]. If the device is not in use, its `medium` tells where its
    /// tiles are, which are deleted if `stores` opens that store.
    pub fn remove_parity_with(
        &self,
        path: &str,
        medium: Option<io::Result<Box<dyn Medium>>>,
        stores: OpenStore<'_>,
    ) -> Result<Option<TilesLeft>> {
        self.core.check_writable()?;
        let listed = self.listed_parity().filter(|aux| aux.path == path);
        let Some(aux) = listed else { return Err(Error::NoParity { pool: self.core.name() }) };
        let removed;
        {
            let _turn = self.core.sync_turn.lock();
            let before = (self.aux.listed.read().clone(), self.core.features.read().clone());
            self.aux.listed.write().retain(|other| other.guid != aux.guid);
            self.core.features.write().retain(|feature| ![FEATURE, REKEY_FEATURE].contains(&&*feature.name));
            self.write_labels_or(&[], || {
                (*self.aux.listed.write(), *self.core.features.write()) = before;
            })?;
            removed = self.aux.parity.write().take();
            self.aux.parity_left.store(true, Ordering::Release);
            self.stores().iter().for_each(|(_, store)| store.uncover());
        }
        self.core.commit_changes()?;
        let left = |place: &TilesPlace, reason: &dyn fmt::Display| TilesLeft {
            place: Some(place.to_string()),
            reason: reason.to_string(),
        };
        let Some(code) = removed.and_then(|parity| parity.code.as_ref().ok().map(Arc::clone)) else {
            let Some(medium) = medium else { return Ok(None) };
            let place = medium.map_err(|error| error.to_string()).and_then(|medium| {
                let place = TilesPlace::on(&*medium, self.core.identity.guid);
                place.map_err(|error| error.to_string())
            });
            return Ok(match place {
                Ok(None) => None,
                Ok(Some(place)) => {
                    let deleted = place.delete_all(stores);
                    deleted.err().map(|error| left(&place, &error))
                }
                Err(reason) => Some(TilesLeft { place: None, reason }),
            });
        };
        close(&code);
        let bodies = tile_store(&idle(&code));
        Ok(bodies.and_then(|bodies| {
            let reason = bodies.delete_all().err()?;
            Some(left(bodies.place_there(), &reason))
        }))
    }

    /// The address of the folder that has the tiles of the parity device in use, if they lie at a
    /// store.
    #[must_use]
    pub fn tiles_place(&self) -> Option<String> {
        let code = self.code().ok()?.1;
        let bodies = tile_store(&reading(&code))?;
        Some(bodies.place_there().to_string())
    }

    /// The standing of the code as an item of the meta tree, for the root that is being made.
    pub(crate) fn parity_item(&self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let key = MetaKey::Parity.encode();
        let Some(parity) = self.parity() else {
            let left = self.aux.parity_left.swap(false, Ordering::AcqRel);
            let audited = self.device_audit_item();
            return (left || audited.is_some()).then_some((key, audited));
        };
        let now = parity.standing_now()?;
        let mut standing = parity.standing.lock();
        let Standing { generation, root, position } = now;
        *standing = ParityStanding { generation, root, position, ..*standing };
        parity.storing.store(generation, Ordering::Release);
        Some((key, Some(standing.encode().to_vec())))
    }

    /// Number and root of the pass that the root under way tells, for the anchor.
    pub(crate) fn parity_pass(&self) -> Option<(u64, [u8; 32])> {
        let parity = self.parity()?;
        let standing = *parity.standing.lock();
        (standing.generation != 0).then_some((standing.generation, standing.root))
    }

    /// A root is committed, which has something that somebody wrote or is freed by and by, or not.
    pub(crate) fn parity_committed(&self, is_changed: bool) {
        if let Some(parity) = self.parity() {
            if is_changed {
                parity.idle_passes.store(0, Ordering::Relaxed);
            }
            parity.committed.store(parity.storing.load(Ordering::Acquire), Ordering::Release);
        }
    }

    /// A step of the work on the parity: deletes behind a pass, an uncovered segment, a part of a
    /// pass. Gives when to look again.
    pub(crate) fn parity_step(&self) -> Result<Option<Duration>> {
        let Some(parity) = self.parity() else { return Ok(None) };
        let Ok(code) = &parity.code else { return Ok(None) };
        self.cover_stores();
        let (has_failed, has_released, generation) = {
            let code = reading(code);
            (code.has_failed(), code.has_released(), code.standing().generation)
        };
        if has_failed {
            return Ok(None);
        }
        let committed = parity.committed.load(Ordering::Acquire);
        if has_released {
            if generation > committed {
                self.core.health.changed.note();
            }
            // [parity_device.2]
            self.core.check_ours()?;
            for (_, store) in self.stores() {
                // A delete that a store refuses now is tried again behind the next commit.
                let _ = store.anchored(committed);
            }
        }
        let resumed = self.resume_deletes(&parity);
        if !self.core.is_sparing() && self.catch_up_step(&parity) {
            return Ok(Some(PAUSE));
        }
        if self.core.env.tasks.is_concurrent() && reading(code).bodies().is_some() {
            return Ok(resumed);
        }
        let next = self.tend_and_pass(&parity, code)?;
        Ok(next.into_iter().chain(resumed).min())
    }

    /// Brings one uncovered segment into the code. False if there is none.
    fn catch_up_step(&self, parity: &Parity) -> bool {
        let now = self.core.env.clock.monotonic_ns();
        let stores = self.stores();
        let next = {
            let mut catch_up = parity.catch_up.lock();
            if catch_up.queue.is_empty() && catch_up.look_ns <= now {
                catch_up.look_ns = now.saturating_add(u64::try_from(LOOK.as_nanos()).expect("short"));
                for (id, store) in &stores {
                    let uncovered = self.core.space.objects_on(*id).into_iter();
                    let uncovered = uncovered.filter(|(segment, _)| !store.is_covered(*segment));
                    catch_up.queue.extend(uncovered.map(|(segment, bytes)| (*id, segment, bytes)));
                }
            }
            catch_up.queue.pop_front()
        };
        let Some((device, segment, bytes)) = next else { return false };
        let store = stores.iter().find(|(id, _)| *id == device);
        let Some((_, store)) = store.filter(|_| self.core.space.is_known(segment)) else { return true };
        let length = usize::try_from(bytes).expect("bytes of a segment");
        if length > 0
            && let Err(error) = store.adopt(segment, length)
            && !matches!(error, steadfast_por::parity::Error::Store { .. })
        {
            // It is full, or failed: so it is for the others.
            parity.catch_up.lock().queue.clear();
        }
        // A pool that is idle commits nothing: the records of those that came in wait for no flush.
        if parity.catch_up.lock().queue.is_empty() {
            // A device that fails takes no more, and status tells of it.
            stores.iter().for_each(|(_, store)| _ = store.settle());
        }
        true
    }

    /// A part of a pass, if one is due.
    fn pass_step(&self, parity: &Parity, code: &SharedParity) -> Result<Option<Duration>> {
        let now = self.core.env.clock.monotonic_ns();
        let since = Duration::from_nanos(now.saturating_sub(parity.passed_ns.load(Ordering::Relaxed)));
        let is_pressing;
        // A put that found no room does a step.
        let is_running = reading(code).is_step_running();
        if is_running && parity.catch_up.lock().step.is_none() {
            return Ok(Some(PAUSE));
        }
        if let wait @ 1.. = parity.pass_after_ns.load(Ordering::Relaxed).saturating_sub(now) {
            return Ok(Some(Duration::from_nanos(wait)));
        }
        {
            let code = reading(code);
            // [por.16], [por.25]
            if code.is_pinned() || code.owes_repair() {
                return Ok(Some(PINNED));
            }
            let figures = code.figures();
            is_pressing = figures.journal_used > figures.journal_size / 2;
            let is_due = code.is_pass_due();
            if !is_due && !parity.is_pass_worth(&code) {
                // Somebody writes: the journal is looked at before the next commit is over.
                let position = code.standing().position;
                let has_grown = parity.looked_at.swap(position, Ordering::Relaxed) != position;
                return Ok(has_grown.then_some(GROWING));
            }
            let least = match code.bodies() {
                None => Duration::from_secs(u64::from(figures.tiles) / PASS_TILES),
                Some(_) => PASS_AWAY.saturating_mul(figures.tiles),
            };
            let least = least.max(PASS);
            if !is_due && since < least {
                return Ok(Some(least - since));
            }
        }
        if let Some(bodies) = tile_store(&reading(code)) {
            let nodes = self.core.caches.nodes.bytes_max() as u64;
            let content = self.core.blockio.statistics().cache_bytes_max;
            let caches = nodes + content + self.core.space.chunk_use().bytes_max;
            bodies.set_memory(caches / CACHES_PART);
        }
        let stepped = self.step_of_pass(parity, code, is_pressing);
        match stepped {
            Ok(None) => Ok(Some(if is_pressing { Duration::ZERO } else { PAUSE })),
            Ok(Some(_)) => {
                parity.passed_ns.store(self.core.env.clock.monotonic_ns(), Ordering::Relaxed);
                parity.idle_passes.fetch_add(1, Ordering::Relaxed);
                // The next root tells of it.
                self.core.health.changed.note();
                let bodies = tile_store(&reading(code)); // [parity_device.6]
                if let Some(bodies) = bodies {
                    self.note_tiles(parity, &bodies);
                    // Segments that found no room in the journal come in.
                    parity.catch_up.lock().look_ns = 0;
                }
                Ok(None)
            }
            Err(
                steadfast_por::parity::Error::TileStore { .. }
                | steadfast_por::parity::Error::Inner { .. }
                | steadfast_por::parity::Error::TileDamaged(_),
            ) if reading(code).bodies().is_some() => {
                let bodies = tile_store(&reading(code));
                bodies.iter().for_each(|bodies| self.note_tiles(parity, bodies));
                parity.pass_after_ns.store(self.after_a_failure(), Ordering::Relaxed);
                Ok(Some(PASS))
            }
            // It began a moment ago.
            Err(steadfast_por::parity::Error::Recovering | steadfast_por::parity::Error::RecoveryOwed) => {
                Ok(Some(PINNED))
            }
            // It was removed while the step ran.
            Err(_) if self.parity().is_none_or(|now| !std::ptr::eq(&*now, parity)) => Ok(None),
            Err(error) => {
                let (path, reason) = (parity.path.clone(), error.to_string());
                self.core.events.note(EventKind::ParityOut { path, reason });
                parity.pass_after_ns.store(self.after_a_failure(), Ordering::Relaxed);
                Ok(Some(PASS))
            }
        }
    }

    /// When to try again what failed now.
    fn after_a_failure(&self) -> u64 {
        self.core.env.clock.monotonic_ns() + u64::try_from(PASS.as_nanos()).expect("short")
    }

    /// A step of a pass. Where nothing runs beside it, it begins, runs and ends in three calls:
    /// commits come between. Not while a put may find no room, and wait for its end.
    fn step_of_pass(&self, parity: &Parity, code: &SharedParity, is_pressing: bool) -> PassStep {
        let state = parity.catch_up.lock().step.take();
        let next = match state {
            None if is_pressing || self.core.env.tasks.is_concurrent() => {
                return steadfast_por::pass_step(code);
            }
            None => writing(code).begin_step()?.map(StepState::Begun),
            Some(StepState::Begun(step)) => Some(StepState::Ran(step.run())),
            Some(StepState::Ran(result)) => return writing(code).end_step(result),
        };
        parity.catch_up.lock().step = next;
        Ok(None)
    }

    /// Ends a step of a pass that has begun in an earlier call: a recovery would wait for it.
    fn end_begun_step(&self, parity: &Parity, code: &SharedParity) {
        while parity.catch_up.lock().step.is_some() {
            // If it fails, whoever reads the code hears of it.
            let _ = self.step_of_pass(parity, code, true);
        }
    }

    /// The code that is in use.
    fn code(&self) -> Result<(Arc<Parity>, SharedParity)> {
        let pool = self.core.name();
        let parity = self.parity().ok_or_else(|| Error::NoParity { pool: pool.clone() })?;
        match &parity.code {
            Ok(code) => {
                let code = Arc::clone(code);
                Ok((parity, code))
            }
            Err(reason) => {
                Err(Error::ParityUnusable { pool, path: parity.path.clone(), reason: reason.clone() })
            }
        }
    }

    fn parity_error(&self, parity: &Parity) -> impl Fn(steadfast_por::parity::Error) -> Error {
        let (pool, path) = (self.core.name(), parity.path.clone());
        move |source| match source {
            steadfast_por::parity::Error::StoreAway { source } => Error::Device(source),
            source => Error::Parity { pool: pool.clone(), path: path.clone(), source: Box::new(source) },
        }
    }

    /// Reads all stores once, recovers what is missing or wrong, and puts whole objects back,
    /// within about `memory` bytes. Writers go on meanwhile. `watch` hears how many cells were
    /// looked at, of how many.
    pub fn recover(&self, memory: u64, watch: &mut (dyn FnMut(u64, u64) + Send)) -> Result<Recovered> {
        self.recover_until(memory, &AtomicBool::new(false), watch)
    }

    /// Like [`Devices::recover`]; it ends with an error soon after `stop` is true. One at a time.
    pub fn recover_until(
        &self,
        memory: u64,
        stop: &AtomicBool,
        watch: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<Recovered> {
        self.core.check_writable()?;
        let (parity, code) = self.code()?;
        self.core.check_ours()?;
        self.end_begun_step(&parity, &code);
        // The tiles first: what they lack of themselves the content cannot get from them.
        let mended = mend(&code, &self.core.env, memory, stop, watch);
        let (mended, tiles_trouble) = match mended {
            Ok(mended) => (mended, None),
            Err(stopped @ steadfast_por::parity::Error::Stopped) => {
                return Err(self.parity_error(&parity)(stopped));
            }
            // Where no tile is missing the content comes back all the same; else that fails, too.
            Err(error) => (None, Some(error.to_string())),
        };
        // The tile for which it waits is back, if it could be.
        parity.pass_after_ns.store(0, Ordering::Relaxed);
        let stores: Vec<Arc<Covered>> = self.stores().into_iter().map(|(_, store)| store).collect();
        let repair = steadfast_por::repair(&stores, &self.core.env, memory, stop, watch);
        // Segments that found no room in the journal meanwhile come in soon.
        parity.catch_up.lock().look_ns = 0;
        let repair = repair.map_err(self.parity_error(&parity))?;
        // Objects that it let go wait for a pass, whoever writes.
        parity.idle_passes.store(0, Ordering::Relaxed);
        let lost = repair.from_code.undetermined.iter().chain(&repair.from_code.refused);
        let lost_cells: Vec<CellId> = lost.copied().collect();
        let recovered = Recovered {
            cells: repair.cells,
            held: repair.held,
            from_journal: repair.from_journal,
            from_code: repair.from_code.recovered,
            restored: repair.restored,
            lost: lost_cells.iter().map(|id| (id.store, id.segment, id.index)).collect(),
            unsound: repair.unsound,
            rounds: repair.rounds,
            solving: repair.solving,
            tiles: mended.map_or((0, 0), |mended| {
                let lost = mended.from_code.undetermined.len() + mended.from_code.refused.len();
                (mended.restored.len() as u64, lost as u64)
            }),
            tiles_trouble,
            lost_cells,
        };
        {
            // It read everything: what did not come back is known exactly.
            let mut standing = parity.standing.lock();
            let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
            standing.audited_ns = self.core.now_ns();
            standing.samples = count(recovered.cells);
            standing.failed = count(recovered.lost.len() as u64);
            standing.cells = recovered.cells;
        }
        if recovered.lost.is_empty() {
            self.errors.lost.lock().clear();
        }
        self.core.health.changed.note();
        self.core.events.note(EventKind::Recovered {
            objects: recovered.restored.len() as u64,
            lost: recovered.lost.len() as u64,
        });
        Ok(recovered)
    }

    /// True if the code should be made anew behind this recovery: a store that saw which cells did
    /// not come back, of this one or a former one, may know which cells share a tile, and one that
    /// saw many recoveries, too. Or if that was begun, and has not ended.
    #[must_use]
    pub fn is_rekey_due(&self, recovered: &Recovered) -> bool {
        let is_due = |code: &ParityDevice| code.rekey_stage().is_some() || code.owes_rekey();
        !recovered.lost.is_empty() || self.code().is_ok_and(|(_, code)| is_due(&reading(&code)))
    }

    /// True if a recovery named lost cells since the pool was imported, or as it was, or stores saw
    /// too many under one map, and the code was not made anew since.
    #[must_use]
    pub fn owes_rekey(&self) -> bool {
        self.code().is_ok_and(|(_, code)| reading(&code).owes_rekey())
    }

    /// True if a recovery was cut off, of this opening or a former one, and passes wait for the
    /// next.
    #[must_use]
    pub fn owes_repair(&self) -> bool {
        let Ok((_, code)) = self.code() else { return false };
        let code = reading(&code);
        code.owes_repair() || tile_store(&code).is_some_and(|tiles| tiles.status().owes_repair)
    }

    /// Makes the code anew, under another map, behind a recovery that has just ended: all stores
    /// are read, once if memory holds all tiles. It leaves out the objects with cells that the
    /// recovery named. The present code stays valid until the other one is whole. Ends with an
    /// error soon after `stop` is true, and goes on from there the next time.
    pub fn rekey(
        &self,
        recovered: &Recovered,
        memory: u64,
        stop: &AtomicBool,
        watch: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<Rekeyed> {
        self.rekey_for(recovered, None, memory, stop, watch)
    }

    /// Like [`Devices::rekey`]; the code gives back so many cells in a million from then on, one of
    /// [`LOSSES_PPM`]. Without a number as many as before, or as the one that was begun and has not
    /// ended.
    pub fn rekey_for(
        &self,
        recovered: &Recovered,
        loss_ppm: Option<u32>,
        memory: u64,
        stop: &AtomicBool,
        watch: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<Rekeyed> {
        self.core.check_writable()?;
        let (parity, code) = self.code()?;
        self.core.check_ours()?;
        self.end_begun_step(&parity, &code);
        let outcome = self.rekey_code(&parity, (&recovered.lost_cells, loss_ppm), memory, stop, watch);
        // Segments that found no room in the journal meanwhile come in soon, and the rest of those
        // that were left out.
        parity.catch_up.lock().look_ns = 0;
        self.core.health.changed.note();
        self.core.events.note(match &outcome {
            Ok(rekeyed) => EventKind::Rekeyed { left_out: rekeyed.left_out.len() as u64 },
            Err(error) => EventKind::RekeyFailed { reason: error.to_string() },
        });
        outcome
    }

    fn rekey_code(
        &self,
        parity: &Parity,
        (lost, loss_ppm): (&[CellId], Option<u32>),
        memory: u64,
        stop: &AtomicBool,
        watch: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<Rekeyed> {
        // [parity_device.5]
        let feature = Feature::known(REKEY_FEATURE).expect("known, as its name is here");
        if !self.core.features.read().contains(&feature) {
            let _turn = self.core.sync_turn.lock();
            let before = self.core.features.read().clone();
            self.core.features.write().push(feature);
            self.write_labels_or(&[], || *self.core.features.write() = before)?;
        }
        let stores: Vec<Arc<Covered>> = self.stores().into_iter().map(|(_, store)| store).collect();
        let made = steadfast_por::rekey(&stores, Some(lost), loss_ppm, &self.core.env, memory, stop, watch);
        let (pool, path) = (self.core.name(), parity.path.clone());
        let made = made.map_err(|source| match source {
            steadfast_por::parity::Error::NoRoomBeside { have: bytes, need: needed, missing } => {
                Error::ParityRoom { pool, path, bytes, needed, missing }
            }
            source => Error::Rekey { pool, path, source: Box::new(source) },
        })?;
        Ok(Rekeyed { left_out: made.left_out, rounds: made.rounds })
    }
}

/// The largest code for which a medium has room, if that is large enough for so many cells.
pub(crate) fn plan(
    (name, pool): (&str, PoolGuid),
    slot_size: u32,
    cells: u64,
    wish: ParityWish<'_>,
    path: &str,
    medium: &dyn Medium,
) -> Result<Creation<'static>> {
    let least = u64::from(slot_size) * JOURNAL_SEGMENTS;
    let bytes = medium.size().map_err(|error| Error::ParityUnusable {
        pool: name.to_owned(),
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let (part, most) = match wish.tiles {
        None => (JOURNAL_PART, JOURNAL_MAX),
        Some(_) => (JOURNAL_PART_AWAY, JOURNAL_MAX_AWAY),
    };
    let journal_bytes = (bytes / part).min(most).max(least);
    let (loss_ppm, is_away) = (wish.loss_ppm, wish.tiles.is_some());
    let creation = Creation { pool, cells: 0, loss_ppm, journal_bytes, key: None, is_away };
    let cells = cells.max(1);
    let planned = creation.fitting(bytes).filter(|planned| planned.cells >= cells);
    planned.ok_or_else(|| {
        // More, of which the journal is a part.
        let content = Creation { cells, journal_bytes: least, ..creation }.bytes();
        let with_part = (content - least).saturating_mul(part) / (part - 1);
        let needed = (content.max(with_part) + 2 * PAYLOAD as u64).next_multiple_of(PAYLOAD as u64);
        Error::ParitySmall { path: path.to_owned(), bytes, needed }
    })
}
