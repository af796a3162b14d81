//! Hosts that share one store of whole objects, and one register or none.
//!
//! A host lives by a script that follows from the seed: it imports the pool, judges what it finds,
//! writes and removes files, lets time pass, and exports or dies. Before any request to the store
//! it may *sleep*: another host lives meanwhile, from its import to its end, which may sleep as
//! well. Then the first one wakes and goes on as if nothing had happened. A request may fail, or
//! its answer may be lost, and so may swaps of the register; lists may be late for a whole world.
//!
//! ## What is asked
//! - A change that a host was told to be durable is found by the next host.
//! - A change whose host was told an error is there whole or not at all. When another host has
//!   committed without it, it never comes; with a register, when another one has imported without
//!   it. (Without a register an import writes nothing but a claim. If its host is gone before its
//!   first commit, the next one finds what the fenced writer stored last.)
//! - The first commit of a host is behind the answer of its import: it is done alone, or with what
//!   the host changes first.
//! - An import fails only for a fault of its own requests, because another host took over
//!   meanwhile, or because somebody went on from the root that it was about to open.
//! - The offline check finds nothing, once every host is gone.

mod overtaken;
mod rotten;

pub use overtaken::{explore_overtaken, run_overtaken};
pub use rotten::{explore_rotten, run_rotten};

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use steadfast_anchor::memory::Fault as Answer;
use steadfast_anchor::{MemoryRegister, RecordBytes, Register, Witness};
use steadfast_device::objects::{MemoryStore, ObjectDevice, Request, Store, StoreFault};
use steadfast_device::{Device, Operation};
use steadfast_env::Env;
use steadfast_format::object_names::{EPOCHS, PRUNED, ROOTS};
use steadfast_format::{AnchorRecord, PoolGuid};
use steadfast_inspect::{Leaf, Request as Check, Severity, check};
use steadfast_pool::{
    AnchorWish, CreateSpec, DatasetHandle, DeviceHandle, GroupHandles, ImportSpec, Pool, Registers, scan,
};
use steadfast_posix::{Caller, FileSystem};

use crate::draw::Draw;
use crate::world::{self, MEMORY};

const ROOT: u64 = 1;
const ME: Caller = Caller::ROOT;
const REGISTER: &str = "register";
const CAPACITY_BYTES: u64 = 256 << 20;
const FILES: [&str; 4] = ["a", "b", "c", "d"];
/// Hosts that sleep in one another.
const DEPTH_MAX: usize = 3;
/// Requests among which the one is drawn before which a host sleeps: a life makes about so many.
const REQUESTS: usize = 120;

/// A fault of the code that is played, to show that it would be found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Planted {
    /// Nobody is told by name that roots were deleted: the store loses what says so.
    PrunedUntold,
    /// A host that looks for claims of others finds none: the store loses those made since its own.
    ClaimUnseen,
}

/// Requests with which an import looks for labels and roots.
const LOOKS: usize = 8;

/// Numbers of things done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Worlds.
    pub worlds: u64,
    /// States that a host imported and judged.
    pub states: u64,
    /// Hosts that slept while another one lived.
    pub slept: u64,
    /// First commits of hosts, done alone behind an import.
    pub behind: u64,
    /// Hosts that were stopped because another one had taken over.
    pub fenced: u64,
    /// Requests and swaps that failed, or whose answer was lost.
    pub faults: u64,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.worlds += other.worlds;
        self.states += other.states;
        self.slept += other.slept;
        self.behind += other.behind;
        self.fenced += other.fenced;
        self.faults += other.faults;
    }
}

/// A claim that does not hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Seed of the world.
    pub seed: u64,
    /// The claim, and what the hosts did.
    pub what: String,
}

/// The one register, of which no host remembers anything.
struct Shared(Arc<MemoryRegister>);

impl Registers for Shared {
    fn register(&self, _: &str) -> Arc<dyn Register> {
        Arc::clone(&self.0) as Arc<dyn Register>
    }

    fn witness(&self, _: PoolGuid) -> Option<Arc<dyn Witness>> {
        None
    }
}

/// Version of each file: nothing where there is none.
type Files = BTreeMap<&'static str, u64>;

/// State that the next host may find.
#[derive(Default)]
struct Model {
    /// As the last host was told.
    durable: Files,
    /// Changes that are under way, or whose host was told an error: the host, the file and its
    /// version, 0 if it goes.
    maybe: Vec<(u8, &'static str, u64)>,
    /// Hosts whose change had come when the next one imported, and was not told yet.
    came: Vec<u8>,
    version: u64,
    story: Vec<String>,
    counts: Counts,
    broken: Option<String>,
    draw: Option<Draw>,
    next_writer: u8,
    /// Imports that were judged.
    imports: u64,
}

struct World {
    store: MemoryStore,
    register: Option<Arc<MemoryRegister>>,
    /// Faults strike, and hosts sleep.
    is_calm: AtomicBool,
    planted: Option<Planted>,
    /// Roots that are kept, and those beyond.
    roots_kept: Option<(usize, usize)>,
    model: Mutex<Model>,
}

/// A pool with one file, as new: without a register and with one.
fn base(is_anchored: bool) -> &'static (MemoryStore, Option<Box<RecordBytes>>) {
    static BASES: [OnceLock<(MemoryStore, Option<Box<RecordBytes>>)>; 2] = [OnceLock::new(), OnceLock::new()];
    BASES[usize::from(is_anchored)].get_or_init(|| {
        let register = is_anchored.then(|| Arc::new(MemoryRegister::new(REGISTER)));
        let world = World::of(MemoryStore::new("bucket"), register.clone());
        let spec = CreateSpec {
            name: "tank".into(),
            groups: GroupHandles::alone(vec![world.device(1, |_| None)]),
            ashift: 12,
            force: false,
            pool_props: BTreeMap::default(),
            root_props: BTreeMap::default(),
            key: None,
            aux: Default::default(),
            anchor: world.wish(),
            host: "sim".into(),
            memory: MEMORY,
        };
        let pool = Pool::create(&Env::simulated(1), spec).expect("a pool");
        pool.export().expect("exported");
        (world.store.copy(), register.and_then(|register| register.peek()))
    })
}

impl World {
    fn of(store: MemoryStore, register: Option<Arc<MemoryRegister>>) -> World {
        let is_calm = AtomicBool::new(false);
        World { store, register, is_calm, planted: None, roots_kept: None, model: Mutex::default() }
    }

    /// A world as its seed draws it, and what else is to be drawn.
    fn begin(seed: u64, planted: Option<Planted>) -> (World, Draw) {
        let mut draw = Draw(seed);
        let is_anchored = draw.percent(50) && planted.is_none();
        let (store, record) = base(is_anchored);
        let register = record.as_ref().map(|record| {
            let register = Arc::new(MemoryRegister::new(REGISTER));
            register.put(Some(record.clone()));
            register
        });
        let mut world = World::of(store.copy(), register);
        world.planted = planted;
        if draw.percent(25) {
            world.store.settle();
        } else if draw.percent(50) || planted.is_some() {
            // A list that is late by more roots than are kept finds none.
            world.roots_kept = Some((2, draw.below(3)));
        }
        (world, draw)
    }

    /// Counts of a world that ended.
    fn end(&self, seed: u64) -> Result<Counts, Finding> {
        let found = self.model().broken.take();
        let found = found.or_else(|| offline(self).map(|what| format!("the offline check finds: {what}")));
        let model = self.model();
        if let Some(what) = found {
            let story = model.story.join("\n    ");
            return Err(Finding { seed, what: format!("{what}\n    {story}") });
        }
        Ok(Counts { worlds: 1, ..model.counts })
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wish(&self) -> AnchorWish {
        let Some(register) = &self.register else { return AnchorWish::default() };
        AnchorWish {
            registers: Some(Arc::new(Shared(Arc::clone(register)))),
            path: Some(REGISTER.to_owned()),
            ..AnchorWish::default()
        }
    }

    /// An import by `host`, with `-f`.
    fn import_spec(&self, host: String) -> ImportSpec {
        ImportSpec {
            new_name: None,
            force: true,
            destroyed: false,
            read_only: false,
            accept_lost_log: false,
            to_checkpoint: false,
            secret: None,
            anchor: self.wish(),
            host,
            memory: MEMORY,
        }
    }

    fn device(
        &self,
        writer: u8,
        hook: impl Fn(&Request) -> Option<StoreFault> + Send + Sync + 'static,
    ) -> DeviceHandle {
        let store = Arc::new(self.store.handle(hook));
        let device = ObjectDevice::open(store, Some(CAPACITY_BYTES), [writer; 16]);
        let device = device.expect("no fault strikes the opening");
        let device = Arc::new(match self.roots_kept {
            Some((kept, spare)) => device.keeping_roots(kept, spare),
            None => device,
        });
        DeviceHandle { path: "bucket".into(), device: device as Arc<dyn Device> }
    }

    /// True if nobody has taken over from a host since it did.
    fn is_owner(&self, host: u8, pool: &Pool) -> bool {
        if let Some(register) = &self.register {
            let record = register.peek().and_then(|bytes| AnchorRecord::decode(&bytes[..]).ok());
            let held = pool.state().anchor.map(|anchor| anchor.epoch);
            return record.map(|record| record.epoch) == held;
        }
        let claims = self.store.names().into_iter().filter(|name| name.starts_with("pool/epoch/"));
        let newest = claims.max().and_then(|name| self.store.read(&name, None).ok());
        newest.is_some_and(|writer| writer == [host; 16])
    }

    fn tell(&self, host: u8, what: impl Into<String>) {
        self.model().story.push(format!("host {host}: {}", what.into()));
    }

    fn draw<T>(&self, choose: impl FnOnce(&mut Draw) -> T) -> T {
        choose(self.model().draw.as_mut().expect("a seed"))
    }

    fn break_off(&self, what: String) {
        let _ = self.model().broken.get_or_insert(what);
    }
}

/// Content of a version of a file.
fn content(version: u64) -> Vec<u8> {
    let mut draw = Draw(version);
    let length = 1 + draw.below(200_000);
    draw.bytes(length)
}

/// The versions of all files, each read whole.
fn read(fs: &FileSystem) -> Result<Files, String> {
    let mut files = Files::new();
    for name in FILES {
        let Ok(entry) = fs.lookup(ROOT, name.as_bytes()) else { continue };
        let mut bytes = vec![0; usize::try_from(entry.attr.size).unwrap_or(0)];
        let mut at = 0;
        while at < bytes.len() {
            let end = bytes.len().min(at + (1 << 20));
            let read = fs.read(entry.ino, at as u64, &mut bytes[at..end]);
            at += read.map_err(|errno| format!("file {name} cannot be read: {errno:?}"))?.max(1);
        }
        fs.forget(entry.ino, 1);
        let version = bytes.get(..8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight")));
        if bytes != labelled(version) {
            return Err(format!("file {name} has bytes that nobody wrote"));
        }
        files.insert(name, version);
    }
    Ok(files)
}

/// The content, behind its version.
fn labelled(version: u64) -> Vec<u8> {
    [&version.to_le_bytes()[..], &content(version)].concat()
}

/// Writes a version, or removes the file if it is 0, and waits until that is durable.
fn change(pool: &Pool, fs: &FileSystem, name: &str, version: u64) -> Result<(), String> {
    let errno = |errno| format!("{errno:?}");
    let _ = fs.unlink(ROOT, name.as_bytes());
    if version != 0 {
        let entry = fs.mknod(ME, ROOT, name.as_bytes(), 0o100_644, 0).map_err(errno)?;
        fs.write(entry.ino, 0, &labelled(version), false).map_err(errno)?;
        fs.forget(entry.ino, 1);
    }
    pool.sync().map_err(|error| error.to_string())
}

/// Requests before which a host may sleep.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Sleeps {
    BeforeAny,
    /// Those that create a root: the last one of a writer that is fenced meanwhile comes late.
    BeforeRoot,
}

/// Faults and sleep of one life.
struct Fate {
    /// Requests of a kind until the host sleeps.
    sleeps: Option<(Sleeps, usize)>,
    /// Requests until one fails, and how.
    fails: Option<(usize, StoreFault)>,
}

/// Lives one host, from its import to its end.
fn live(world: &Arc<World>, depth: usize) {
    let host = {
        let mut model = world.model();
        model.next_writer += 1;
        model.next_writer
    };
    let is_calm = world.is_calm.load(Ordering::Relaxed);
    let fate = world.draw(|draw| {
        let sleeps = (depth < DEPTH_MAX && draw.percent(60)).then(|| match draw.below(4) {
            // After its list, while it looks for what came since.
            0 => (Sleeps::BeforeAny, draw.below(LOOKS)),
            1 => (Sleeps::BeforeRoot, draw.below(3)),
            _ => (Sleeps::BeforeAny, draw.below(REQUESTS)),
        });
        let fault = if draw.percent(50) { StoreFault::Fails } else { StoreFault::AnswerLost };
        let fails = draw.percent(25).then(|| (draw.below(REQUESTS), fault));
        let swaps = [Answer::Before, Answer::After];
        let swaps: Vec<Answer> = (0..draw.below(8)).map(|_| *draw.pick(&swaps)).collect();
        let silent = draw.percent(25);
        if let Some(register) = world.register.as_ref().filter(|_| silent && !is_calm) {
            register.arm(&swaps);
        }
        Fate { sleeps, fails }
    });
    let fate = if is_calm { Fate { sleeps: None, fails: None } } else { fate };
    let (struck, overtaken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let hook = {
        let (world, struck, overtaken) = (Arc::downgrade(world), Arc::clone(&struck), Arc::clone(&overtaken));
        let fate = Mutex::new(fate);
        // The device is opened without faults: an import that cannot read its labels is nothing.
        let opened = Arc::new(AtomicBool::new(false));
        (Arc::clone(&opened), move |request: &Request| {
            if !opened.load(Ordering::Relaxed) {
                return None;
            }
            let world = world.upgrade()?;
            if world.planted == Some(Planted::PrunedUntold) {
                let names = world.store.names().into_iter();
                names.filter(|name| name.starts_with(PRUNED)).for_each(|name| _ = world.store.remove(&name));
            }
            let (sleeps, fails) = {
                let mut fate = fate.lock().unwrap_or_else(PoisonError::into_inner);
                let is_root = request.operation == Operation::Write && request.name.starts_with(ROOTS);
                let sleeps = match &mut fate.sleeps {
                    Some((Sleeps::BeforeRoot, _)) if !is_root => false,
                    Some((kind, left)) => {
                        let (kind, mut left) = (*kind, Some(*left));
                        let sleeps = count_down(&mut left);
                        fate.sleeps = left.map(|left| (kind, left));
                        sleeps
                    }
                    None => false,
                };
                let mut left = fate.fails.map(|(left, _)| left);
                let fails = count_down(&mut left).then(|| fate.fails.expect("it counts").1);
                fate.fails = left.and_then(|left| Some((left, fate.fails?.1)));
                (sleeps, fails)
            };
            if sleeps {
                world.tell(host, format!("sleeps before {:?} {}", request.operation, request.name));
                world.model().counts.slept += 1;
                // Locks of the one that sleeps are no concern of the other's.
                let other = Arc::clone(&world);
                let job = Box::new(move || live(&other, depth + 1));
                if !Env::real().tasks.spawn("another host", job).join() {
                    world.break_off(format!("host {} panicked", host + 1));
                }
                overtaken.store(true, Ordering::Relaxed);
                world.tell(host, "wakes");
            }
            if let Some(fault) = fails {
                struck.store(true, Ordering::Relaxed);
                world.model().counts.faults += 1;
                world.tell(host, format!("{fault:?} at {:?} {}", request.operation, request.name));
            }
            fails
        })
    };
    let (opened, hook) = hook;
    let device = world.device(host, hook);
    opened.store(true, Ordering::Relaxed);
    let failures = || world.register.as_ref().map_or(0, |register| register.failures());
    let failures_before = failures();
    let (mut pools, _) = scan(vec![device]);
    let imported = match pools.pop() {
        None => Err("no label is found".to_owned()),
        Some(found) => {
            let spec = world.import_spec("sim".into());
            Pool::import(&Env::simulated(u64::from(host)), found, &spec).map_err(|error| error.to_string())
        }
    };
    let silent = failures() > failures_before;
    let excused = || struck.load(Ordering::Relaxed) || overtaken.load(Ordering::Relaxed) || silent;
    let pool = match imported {
        Ok(pool) => pool,
        Err(error) => {
            world.tell(host, format!("import failed: {error}"));
            note_fenced(world, &error);
            if !excused() {
                world.break_off(format!("host {host} cannot import: {error}"));
            }
            return;
        }
    };
    let (fs, handle) = match world::files(&pool, "tank") {
        Ok(opened) => opened,
        Err(error) => {
            world.tell(host, format!("cannot open the file system: {error}"));
            if !excused() {
                world.break_off(format!("host {host} cannot open the file system: {error}"));
            }
            return;
        }
    };
    // A host that slept in its import may have lost the pool again: it sees what was.
    if world.is_owner(host, &pool) && !judge(world, host, &fs, &excused) {
        return;
    }
    if world.draw(|draw| draw.percent(50)) && !first_commit(world, host, &pool, &excused) {
        return;
    }
    let steps = world.draw(|draw| match draw.percent(15) {
        _ if is_calm => 1,
        // Long enough for roots to be deleted, where few are kept.
        true => 4 + draw.below(4),
        false => draw.below(5),
    });
    for _ in 0..steps {
        let (name, remove, idle) = world
            .draw(|draw| (*draw.pick(&FILES), draw.percent(25), draw.percent(30).then(|| draw.below(900))));
        let (version, imports) = {
            let mut model = world.model();
            model.version += 1;
            let version = if remove { 0 } else { model.version };
            model.maybe.push((host, name, version));
            (version, model.imports)
        };
        world.tell(host, format!("begins {name} {version}"));
        match change(&pool, &fs, name, version) {
            Ok(()) => {
                world.tell(host, format!("was told {name} {version}"));
                let mut model = world.model();
                if model.imports != imports {
                    // It slept when its commit was done.
                    if !model.came.contains(&host) {
                        let what = format!("host {host} was told {name} {version}, which never came");
                        let _ = model.broken.get_or_insert(what);
                    }
                    continue;
                }
                model.maybe.clear();
                if version == 0 {
                    model.durable.remove(name);
                } else {
                    model.durable.insert(name, version);
                }
            }
            Err(error) => {
                world.tell(host, format!("{name} {version} failed: {error}"));
                note_fenced(world, &error);
                return;
            }
        }
        (0..idle.unwrap_or(0)).for_each(|_| pool.step());
    }
    drop((fs, handle));
    if is_calm || world.draw(|draw| draw.percent(50)) {
        let exported = pool.export();
        world.tell(host, format!("export: {:?}", exported.map_err(|error| error.to_string())));
    } else {
        world.tell(host, "dies");
    }
}

/// Lets the first commit of a host be done alone. False if the pool stopped.
fn first_commit(world: &World, host: u8, pool: &Pool, is_excused: &dyn Fn() -> bool) -> bool {
    let (imports, before) = (world.model().imports, pool.state().txg);
    pool.step();
    let state = pool.state();
    if let Some(reason) = state.suspended {
        world.tell(host, format!("its first commit failed: {reason}"));
        note_fenced(world, &reason);
        if !is_excused() {
            world.break_off(format!("host {host} is stopped: {reason}"));
        }
        return false;
    }
    // With rivals it was done inside the import.
    let is_behind = state.txg > before;
    world.tell(host, if is_behind { "its first commit is done" } else { "committed in its import" });
    let mut model = world.model();
    model.counts.behind += u64::from(is_behind);
    if model.imports == imports {
        model.maybe.clear();
    }
    true
}

fn count_down(left: &mut Option<usize>) -> bool {
    match left {
        Some(0) => {
            *left = None;
            true
        }
        Some(count) => {
            *count -= 1;
            false
        }
        None => false,
    }
}

fn note_fenced(world: &World, error: &str) {
    if error.contains("another host") || error.contains("another daemon") {
        world.model().counts.fenced += 1;
    }
}

/// Compares what a host finds with what it may find. False if it cannot read it for a fault of its
/// own.
fn judge(world: &World, host: u8, fs: &FileSystem, is_excused: &dyn Fn() -> bool) -> bool {
    let imports = world.model().imports;
    let found = match read(fs) {
        Ok(found) => found,
        Err(what) => {
            if !is_excused() {
                world.break_off(format!("host {host}: {what}"));
            }
            return false;
        }
    };
    let mut model = world.model();
    if model.imports != imports {
        // It slept while it read, and another one has the pool.
        return true;
    }
    model.imports += 1;
    model.counts.states += 1;
    model.story.push(format!("host {host}: finds {found:?}"));
    for name in FILES {
        let version = found.get(name).copied().unwrap_or(0);
        let durable = model.durable.get(name).copied().unwrap_or(0);
        let is_change = |change: &(u8, &str, u64)| (change.1, change.2) == (name, version);
        if version != durable && !model.maybe.iter().any(is_change) {
            let what = format!(
                "host {host} finds {name} {version}; durable is {durable}, under way {:?}",
                model.maybe
            );
            let _ = model.broken.get_or_insert(what);
            return false;
        }
    }
    // With a register, a change that did not come by now never comes: its host has lost the pool.
    // Without one it may come until the first commit of this host.
    let has_come = |change: &&(u8, &str, u64)| found.get(change.1).copied().unwrap_or(0) == change.2;
    let came: Vec<u8> = model.maybe.iter().filter(has_come).map(|change| change.0).collect();
    model.came.extend(came);
    if world.register.is_some() {
        model.maybe.clear();
    }
    model.durable = found;
    true
}

/// One world: hosts one after the other and in one another; then one that looks, alone.
///
/// # Errors
/// A claim that does not hold, with what the hosts did.
pub fn explore(seed: u64, planted: Option<Planted>) -> Result<Counts, Finding> {
    let (world, mut draw) = World::begin(seed, planted);
    let world = Arc::new(world);
    let hosts = 1 + draw.below(3);
    {
        let mut model = world.model();
        (model.draw, model.next_writer) = (Some(draw), 1);
    }
    for _ in 0..hosts {
        live(&world, 0);
    }
    world.is_calm.store(true, Ordering::Relaxed);
    world.store.list_at_once();
    if let Some(register) = &world.register {
        register.disarm();
    }
    live(&world, 0);
    live(&world, 0);
    world.end(seed)
}

/// The worst that the offline check finds.
fn offline(world: &World) -> Option<String> {
    let handle = world.device(255, |_| None);
    let leaves = [Leaf { path: handle.path, device: handle.device }];
    let record = world.register.as_ref().and_then(|register| register.peek());
    let record = record.and_then(|bytes| AnchorRecord::decode(&bytes[..]).ok());
    let mut worst = None;
    let mut found = |finding: steadfast_inspect::Finding| {
        let (_, severity) = finding.class();
        if severity > Severity::Note && worst.is_none() {
            worst = Some(finding.to_string());
        }
    };
    let env = Env::simulated(9);
    check(&Check { leaves: &leaves, secret: None, anchor: record.as_ref(), env: &env }, &mut found);
    worst
}

/// Worlds of seeds from `from` on until so many states are judged. Ends with the first claim that
/// does not hold. `progress` is told now and then.
pub fn run(
    from: u64,
    states: u64,
    planted: Option<Planted>,
    progress: impl Fn(&Counts),
) -> (Counts, Option<Finding>) {
    run_with(from, states, progress, |seed| explore(seed, planted))
}

fn run_with(
    from: u64,
    states: u64,
    progress: impl Fn(&Counts),
    explore: impl Fn(u64) -> Result<Counts, Finding>,
) -> (Counts, Option<Finding>) {
    let mut counts = Counts::default();
    let mut told = 0;
    for seed in from.. {
        match explore(seed) {
            Ok(more) => counts.add(more),
            Err(finding) => return (counts, Some(finding)),
        }
        if counts.states >= told + 10_000 {
            told = counts.states;
            progress(&counts);
        }
        if counts.states >= states {
            break;
        }
    }
    (counts, None)
}
