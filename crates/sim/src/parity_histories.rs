//! Histories of a pool whose store a code covers, with the power gone at any write of their last
//! steps: the parity device comes and goes, passes run, objects leave the code before they leave
//! the store, the store loses objects, and recoveries are cut, interrupted and begun again.
//!
//! The store takes whole objects, durable when it answers. The parity device is a disk with a
//! cache: of what was not flushed each write is there or not, or torn.
//!
//! ## Invariants
//! [parity_histories.1] A state opens without help, and the parity device that its labels list is
//!     in use: a crash alone makes none old.
//! [parity_histories.2] Files are those of the model after some step: not more than had begun, and
//!     no fewer than had returned. If the store lost objects before, they are after a recovery.
//! [parity_histories.3] All comes into the code, and the code is the sum of what it covers:
//!     objects that are lost then come back, each of them. So they do behind a re-key that goes on.
//! [parity_histories.4] Afterwards the pool is written, closed, checked offline, and opened again.
//! [parity_histories.5] A state of a cut inside all of this holds to the same.
//!
//! 3 to 5 cost ten times as much as 1 and 2. So a run may ask them of one state in so many; which
//! ones follows from what their devices hold ([`Lives`]).

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use steadfast_device::{Objects, Operation};
use steadfast_pool::{ParityMedium, ParityStatus, Pool, Recovered, Registers, Rekeyed};
use steadfast_posix::{Caller, Errno, FileSystem};

use crate::base::Failure;
use crate::cut::{Cutter, Depth, Moment, print};
use crate::disk::{Effect, Fault};
use crate::draw::Draw;
use crate::log::{Event, EventKind};
use crate::outcomes::OutcomeCache;
use crate::pages::Image;
use crate::verbs::{Machine, said};
use crate::world::{self, Disks, SETTINGS, Setting};

const ROOT: u64 = 1;
const FILES: [&str; 4] = ["a", "b", "c", "d"];
/// A file that is written when a state lives on.
const LATER: &str = "later";
const PATH: &str = "parity";
/// Settings of pools, by their places: one store; one with an anchor, encrypted, and in a fourth of
/// its histories with a log device.
const OF_SETTINGS: [usize; 2] = [8, 27];
/// Bytes of parity devices when they come: a code of one tile, and one of three.
const PARITY_BYTES: [u64; 2] = [32 << 20, 64 << 20];
/// Bytes of the disks that they are a part of: with room for a second code.
const DISK_BYTES: [u64; 2] = [60 << 20, 120 << 20];
/// Steps that are not cut, and those that are.
const STEPS: usize = 7;
const CUT_STEPS: usize = 3;
/// Objects that the store loses at once, at most. All that such a pool has is within the bound.
const LOST_MAX: usize = 4;
/// Requests among which the one is drawn that fails in a recovery.
const REQUESTS: usize = 24;
/// Memory of a recovery: enough, or so little that it goes over the store again for each tile.
const MEMORY: [u64; 2] = [1 << 30, 1];
/// Commits until all must be covered.
const PATIENCE: usize = 200;
/// Steps of the pool until one of a pass for deletes is running.
const STEP_PATIENCE: usize = 200;
/// One whole life in so many is cut again.
const SECOND_EVERY: u64 = 40;

/// A fault of a trusted device, to show that it would be found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Planted {
    /// The parity device says that it flushed, and did nothing.
    FlushLies,
}

/// States that live on behind their opening.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lives {
    /// All of them.
    All,
    /// One in so many; the others are opened, give back what was lost, and are read.
    OneIn(u64),
}

impl Lives {
    fn is_whole(self, print: u128) -> bool {
        match self {
            Lives::All => true,
            Lives::OneIn(count) => print.is_multiple_of(u128::from(count)),
        }
    }
}

/// Version of each file: nothing where there is none.
type Files = BTreeMap<&'static str, u64>;

/// Counters.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// States that were judged.
    pub states: u64,
    /// Of these, states that were opened: the others are equal to one of them in all that was read.
    pub opened: u64,
    /// Of these, states that lived on.
    pub whole: u64,
    /// States of a cut inside the life of an opened one.
    pub second: u64,
    /// States of a store that had lost objects.
    pub lossy: u64,
    /// Objects that came back.
    pub restored: u64,
    /// Recoveries and re-keys that a fault ended.
    pub interrupted: u64,
    /// Codes that were made anew.
    pub rekeyed: u64,
    /// Changes while a step of a pass is running.
    pub visited: u64,
}

impl Counts {
    /// Adds others.
    pub fn add(&mut self, other: Counts) {
        self.states += other.states;
        self.opened += other.opened;
        self.whole += other.whole;
        self.second += other.second;
        self.lossy += other.lossy;
        self.restored += other.restored;
        self.interrupted += other.interrupted;
        self.rekeyed += other.rekeyed;
        self.visited += other.visited;
    }
}

/// One step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    /// Writes a version of a file.
    Write(&'static str),
    Remove(&'static str),
    /// The parity device comes, or goes.
    Add,
    Leave,
    /// Time passes, so that deletes and passes get their turn.
    Wait(usize),
    /// Time passes until a step of a pass is running, and so many steps on; then a version of a
    /// file is written, or the file removed.
    Beside(&'static str, bool, usize),
    /// The store loses so many objects, behind a commit.
    Lose(usize),
    /// All comes back, with so much memory.
    Recover(u64),
    /// The code is made anew behind a recovery, with so much memory.
    Rekey(u64),
    /// The same, and a request to the store fails.
    CutRekey(usize),
    /// A recovery in which a request to a device fails.
    Interrupted(usize, Operation, usize),
    /// The pool is closed and opened.
    Reopen,
}

/// A pool and its model.
struct Life {
    machine: Machine,
    /// None only while it is opened again.
    pool: Option<Pool>,
    files: Files,
    version: u64,
    draw: Draw,
    /// The store has lost objects that did not come back yet.
    lossy: bool,
    interrupted: u64,
    rekeyed: u64,
    visited: u64,
}

fn content(version: u64) -> Vec<u8> {
    let mut draw = Draw(version);
    let length = 1 + draw.below(120_000);
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(draw.bytes(length));
    bytes
}

fn read(pool: &Pool) -> Result<Files, Failure> {
    let (fs, _open) = world::files(pool, "tank").map_err(said)?;
    let mut files = Files::new();
    for name in FILES.into_iter().chain([LATER]) {
        let entry = match fs.lookup(ROOT, name.as_bytes()) {
            Ok(entry) => entry,
            Err(Errno::ENOENT) => continue,
            Err(errno) => return Err(format!("looking for {name} gives {errno:?}")),
        };
        let mut bytes = vec![0; usize::try_from(entry.attr.size).unwrap_or(0)];
        let mut at = 0;
        while at < bytes.len() {
            let read = fs.read(entry.ino, at as u64, &mut bytes[at..]);
            at += read.map_err(|errno| format!("file {name} cannot be read: {errno:?}"))?.max(1);
        }
        fs.forget(entry.ino, 1);
        let version = bytes.get(..8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight")));
        if bytes != content(version) {
            return Err(format!("file {name} has bytes that nobody wrote"));
        }
        files.insert(name, version);
    }
    Ok(files)
}

/// Writes a version, or removes the file if it is 0. Durable when it returns.
fn change(pool: &Pool, name: &str, version: u64) -> Result<(), Failure> {
    let errno = |errno| format!("{name}: {errno:?}");
    let (fs, _open): (FileSystem, _) = world::files(pool, "tank").map_err(said)?;
    match fs.unlink(ROOT, name.as_bytes()) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(other) => return Err(errno(other)),
    }
    if version != 0 {
        let entry = fs.mknod(Caller::ROOT, ROOT, name.as_bytes(), 0o100_644, 0).map_err(errno)?;
        fs.write(entry.ino, 0, &content(version), false).map_err(errno)?;
        fs.forget(entry.ino, 1);
    }
    pool.sync().map_err(said)
}

fn parity(pool: &Pool) -> Option<ParityStatus> {
    pool.state().parity
}

/// True if a step of a pass is running.
fn is_step_running(pool: &Pool) -> bool {
    parity(pool).and_then(|status| status.figures).is_some_and(|figures| figures.is_step_running)
}

/// Lets time pass until the code covers all. [parity_histories.3]
fn covered(pool: &Pool) -> Result<(), Failure> {
    for _ in 0..PATIENCE {
        let status = parity(pool).ok_or("the parity device is gone")?;
        match (&status.trouble, status.uncovered) {
            (Some(trouble), _) => return Err(format!("the parity device is not in use: {trouble}")),
            (None, 0) => return Ok(()),
            (None, _) => {}
        }
        (0..20).for_each(|_| pool.step());
        pool.sync().map_err(said)?;
    }
    Err(format!("content is never covered: {:?}", parity(pool)))
}

/// A recovery after which nothing is missing.
fn recovered(pool: &Pool, memory: u64) -> Result<Recovered, Failure> {
    let recovered = pool.devices().recover(memory, &mut |_, _| ()).map_err(said)?;
    if !recovered.lost.is_empty() || !recovered.unsound.is_empty() {
        return Err(format!("not all came back: {recovered:?}"));
    }
    let back = recovered.from_journal + recovered.from_code;
    if recovered.held + back != recovered.cells {
        return Err(format!("cells are missing in the count: {recovered:?}"));
    }
    Ok(recovered)
}

/// Drops some objects of the store. Those that were there.
fn lose(disks: &Disks, draw: &mut Draw, count: usize) -> Result<usize, Failure> {
    let store = &disks.all[0];
    let mut there = store.stored_segments().map_err(|error| error.to_string())?;
    let mut lost = 0;
    while lost < count && !there.is_empty() {
        let segment = there.swap_remove(draw.below(there.len()));
        lost += usize::from(store.lose(segment).map_err(|error| error.to_string())?);
    }
    Ok(lost)
}

/// The part of a disk that a parity device takes when it comes; the rest is for it to grow.
struct Part(Box<dyn ParityMedium>);

impl ParityMedium for Part {
    fn size(&self) -> io::Result<u64> {
        let whole = self.0.size()?;
        let at = DISK_BYTES.iter().position(|bytes| *bytes == whole).expect("one of these");
        Ok(PARITY_BYTES[at])
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(at, out)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        self.0.grow(bytes)
    }
}

fn add(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    let corner = machine.disks.corner().expect("bytes for a parity device");
    let medium = corner.parity(PATH).map_err(|error| error.to_string())?;
    let medium = Box::new(Part(medium));
    // A former one may lie there.
    pool.devices().add_parity(PATH, medium, true, false).map_err(said)
}

impl Life {
    fn begin(setting: &Setting, seed: u64) -> Result<Life, Failure> {
        let machine = Machine { env: world::env(seed, None), disks: Disks::blank(setting) };
        let pool = world::create(&machine.env, &machine.disks).map_err(said)?;
        let draw = Draw(seed ^ 0x9a17);
        Ok(Life {
            machine,
            pool: Some(pool),
            files: Files::new(),
            version: 0,
            draw,
            lossy: false,
            interrupted: 0,
            rekeyed: 0,
            visited: 0,
        })
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("nobody opens it again")
    }

    fn draw_step(&mut self) -> Step {
        let has_parity = parity(self.pool()).is_some();
        let draw = &mut self.draw;
        if self.lossy {
            return match draw.below(10) {
                0..4 => Step::Recover(*draw.pick(&MEMORY)),
                4..6 => Step::Interrupted(0, Operation::Read, draw.below(REQUESTS)),
                6..8 => Step::Interrupted(0, Operation::Write, draw.below(4)),
                8 => Step::Interrupted(usize::MAX, Operation::Read, draw.below(REQUESTS)),
                _ => Step::Lose(1),
            };
        }
        match draw.below(24) {
            20..23 if has_parity => self.draw_beside(),
            0..5 => Step::Write(FILES[draw.below(FILES.len())]),
            5..7 => Step::Remove(FILES[draw.below(FILES.len())]),
            7 | 8 if has_parity => Step::Leave,
            7..11 if !has_parity => Step::Add,
            7..12 => Step::Wait(1 + draw.below(60)),
            12..17 if has_parity => Step::Lose(1 + draw.below(LOST_MAX)),
            17 | 23 if has_parity => match draw.below(4) {
                0 => Step::Recover(*draw.pick(&MEMORY)),
                1 => Step::CutRekey(draw.below(REQUESTS)),
                _ => Step::Rekey(*draw.pick(&MEMORY)),
            },
            18 => Step::Reopen,
            _ => Step::Wait(1 + draw.below(200)),
        }
    }

    fn draw_beside(&mut self) -> Step {
        let draw = &mut self.draw;
        let (name, stays) = (FILES[draw.below(FILES.len())], draw.below(3) > 0);
        Step::Beside(name, stays, draw.below(2))
    }

    fn write(&mut self, name: &'static str) -> Result<(), Failure> {
        self.version += 1;
        change(self.pool(), name, self.version)?;
        self.files.insert(name, self.version);
        Ok(())
    }

    /// Changes a file while a step of a pass is running: a former delete made one due. If none
    /// comes, without one. Where nothing runs beside a step, it ends some steps later.
    fn beside(&mut self, name: &'static str, stays: bool, later: usize) -> Result<(), Failure> {
        for round in 0..STEP_PATIENCE {
            if is_step_running(self.pool()) {
                self.visited += 1;
                // It has stored its tiles a step on, and nobody knows.
                (0..later).for_each(|_| self.pool().step());
                break;
            }
            // The outcome of an audit is in the next root, which leaves objects behind.
            if round.is_multiple_of(10) && parity(self.pool()).is_some() {
                if !self.pool().devices().audit(4).map_err(said)?.is_held() {
                    return Err("an audit beside passes fails".to_owned());
                }
                self.pool().sync().map_err(said)?;
            }
            self.pool().step();
        }
        if stays {
            return self.write(name);
        }
        change(self.pool(), name, 0)?;
        self.files.remove(name);
        Ok(())
    }

    fn take(&mut self, step: Step) -> Result<(), Failure> {
        match step {
            Step::Write(name) => self.write(name)?,
            Step::Remove(name) => {
                change(self.pool(), name, 0)?;
                self.files.remove(name);
            }
            Step::Add => add(&self.machine, self.pool())?,
            Step::Leave => self.pool().devices().remove_parity(PATH).map(|_| ()).map_err(said)?,
            Step::Wait(steps) => (0..steps).for_each(|_| self.pool().step()),
            Step::Beside(name, stays, later) => self.beside(name, stays, later)?,
            Step::Lose(count) => {
                // A commit makes the journal durable.
                if !self.lossy {
                    covered(self.pool())?;
                    self.write(FILES[0])?;
                }
                lose(&self.machine.disks, &mut self.draw, count)?;
                self.lossy = true;
            }
            Step::Recover(memory) => {
                recovered(self.pool(), memory)?;
                self.lossy = false;
            }
            Step::Rekey(memory) => {
                let back = recovered(self.pool(), memory)?;
                self.rekey(&back, memory).map_err(said)?;
                self.rekeyed += 1;
            }
            Step::CutRekey(skip) => {
                let back = recovered(self.pool(), MEMORY[0])?;
                let disk = &self.machine.disks.all[0];
                let (operation, skip) = (Operation::Read, skip as u64);
                disk.arm(Fault { operation, skip, times: 1, effect: Effect::Fail });
                let outcome = self.rekey(&back, MEMORY[1]);
                disk.disarm();
                match outcome {
                    Ok(_) => self.rekeyed += 1,
                    Err(_) => self.interrupted += 1,
                }
            }
            Step::Interrupted(disk, operation, skip) => {
                // A pass that cannot read ends the use of the device; a recovery that cannot does
                // not.
                while is_step_running(self.pool()) {
                    self.pool().step();
                }
                let disks = &self.machine.disks.all;
                let disk = &disks[disk.min(disks.len() - 1)];
                disk.arm(Fault { operation, skip: skip as u64, times: 1, effect: Effect::Fail });
                let outcome = self.pool().devices().recover(MEMORY[0], &mut |_, _| ());
                disk.disarm();
                match outcome {
                    Ok(recovered) if !recovered.lost.is_empty() || !recovered.unsound.is_empty() => {
                        return Err(format!("not all came back: {recovered:?}"));
                    }
                    // It may have lost another one meanwhile, so nothing is known of the store.
                    Ok(_) => {}
                    Err(_) => self.interrupted += 1,
                }
            }
            Step::Reopen => {
                self.pool().export().map_err(said)?;
                self.pool = None;
                let pool = world::import(&self.machine.env, &self.machine.disks).map_err(said)?;
                self.pool = Some(pool);
            }
        }
        match parity(self.pool()).and_then(|status| status.trouble) {
            Some(trouble) => Err(format!("the parity device is not in use: {trouble}")),
            None => Ok(()),
        }
    }

    fn rekey(&self, back: &Recovered, memory: u64) -> Result<Rekeyed, steadfast_pool::Error> {
        self.pool().devices().rekey(back, memory, &AtomicBool::new(false), &mut |_, _| ())
    }

    fn compare(&self) -> Result<(), Failure> {
        if self.lossy {
            return Ok(());
        }
        let found = read(self.pool())?;
        if found == self.files {
            Ok(())
        } else {
            Err(format!("files are {found:?}, and should be {:?}", self.files))
        }
    }
}

/// Files of a state, and traces of its life on the devices.
struct Lived {
    found: Files,
    restored: u64,
    events: Vec<Event>,
    reads: Vec<(usize, u32)>,
}

/// Opens a state, and lets it live on if it is to. [parity_histories.1], [parity_histories.3],
/// [parity_histories.4]
fn live(disks: Disks, lossy: bool, is_whole: bool) -> Result<Lived, Failure> {
    let attempt = || {
        let machine = Machine { env: world::env(0xc0f, None), disks };
        let Machine { env, disks } = &machine;
        let pool = world::import(env, disks).map_err(|error| format!("import: {error}"))?;
        let is_listed = parity(&pool).map(|status| status.trouble);
        if let Some(Some(trouble)) = &is_listed {
            return Err(format!("the parity device is not in use: {trouble}"));
        }
        let mut restored = 0;
        if lossy && is_listed.is_some() {
            let back = recovered(&pool, MEMORY[0]).map_err(|what| format!("recovery: {what}"))?;
            restored += back.restored.len() as u64;
        }
        let found = read(&pool)?;
        let lived = |found, restored| {
            let (events, reads) = (disks.log.take(), disks.log.reads());
            Ok(Lived { found, restored, events, reads })
        };
        if !is_whole {
            return lived(found, restored);
        }
        if is_listed.is_none() {
            add(&machine, &pool).map_err(|what| format!("a parity device cannot come: {what}"))?;
        }
        change(&pool, LATER, 1_000_000)?;
        covered(&pool)?;
        pool.sync().map_err(said)?;
        let mut draw = Draw(0x105e);
        lose(disks, &mut draw, LOST_MAX)?;
        // One whose put never came before the crash is in the code, and comes too, as left over.
        let back = recovered(&pool, MEMORY[0]).map_err(|what| format!("second recovery: {what}"))?;
        restored += back.restored.len() as u64;
        // One that was cut goes on, and gives back what is lost behind it.
        if pool.devices().is_rekey_due(&back) {
            let stop = AtomicBool::new(false);
            let rekeyed = pool.devices().rekey(&back, MEMORY[0], &stop, &mut |_, _| ());
            rekeyed.map_err(|error| format!("a re-key goes on: {error}"))?;
            lose(disks, &mut draw, LOST_MAX)?;
            let back = recovered(&pool, MEMORY[0]).map_err(|what| format!("behind a re-key: {what}"))?;
            restored += back.restored.len() as u64;
        }
        if !pool.devices().audit(10).map_err(said)?.is_held() {
            return Err("an audit after a recovery fails".to_owned());
        }
        let mut expected = found.clone();
        expected.insert(LATER, 1_000_000);
        let check = |pool: &Pool, when: &str| match read(pool)? {
            now if now == expected => Ok(()),
            now => Err(format!("{when}, files are {now:?}, and were {expected:?}")),
        };
        check(&pool, "after a recovery")?;
        pool.export().map_err(|error| format!("export: {error}"))?;
        drop(pool);
        machine.inspect()?;
        let pool = world::import(env, disks).map_err(|error| format!("import again: {error}"))?;
        check(&pool, "opened again")?;
        if let Some(trouble) = parity(&pool).and_then(|status| status.trouble) {
            return Err(format!("opened again, the parity device is not in use: {trouble}"));
        }
        drop(pool);
        lived(found, restored)
    };
    catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|_| Err("it panics".to_owned()))
}

/// Outcomes of states that were opened.
#[derive(Default)]
struct Known {
    seen: HashMap<(u128, bool), Arc<Files>>,
    /// Without a loss, and with one; of states that were opened, and of those that lived on.
    outcomes: [[OutcomeCache<Arc<Files>>; 2]; 2],
}

/// Runs the history of a seed, cuts the end of it anywhere, and judges about `most` of the states.
///
/// # Errors
/// The first claim that does not hold.
pub fn explore(seed: u64, most: usize, lives: Lives, planted: Option<Planted>) -> Result<Counts, Failure> {
    let at = |count: usize, divisor: u64| usize::try_from(seed / divisor % count as u64).expect("small");
    let parity_bytes = DISK_BYTES[at(DISK_BYTES.len(), 1)];
    let setting = SETTINGS[OF_SETTINGS[at(OF_SETTINGS.len(), 2)]];
    // An import reads all of a log device, which is as large as all else.
    let logs = if at(4, 4) == 0 { setting.logs } else { 0 };
    let setting = Setting { parity_bytes, logs, ..setting };
    let told = |what: String| format!("history {seed} ({}, {} bytes): {what}", setting.name, parity_bytes);
    let mut life = Life::begin(&setting, seed).map_err(told)?;
    let mut before = Vec::new();
    for index in 0..STEPS {
        // Half of them have a parity device from the beginning of what is cut.
        let step = match index {
            2 if seed % 8 < 6 => Step::Add,
            _ => life.draw_step(),
        };
        let step = match (step, parity(life.pool()).is_some()) {
            (Step::Add, true) => Step::Wait(30),
            (step, _) => step,
        };
        before.push(step);
        life.take(step).map_err(|what| told(format!("{before:?}: {what}")))?;
    }
    life.compare().map_err(|what| told(format!("{before:?}: {what}")))?;
    life.pool().sync().map_err(|error| told(said(error)))?;
    let images = life.machine.disks.images();
    if planted == Some(Planted::FlushLies) {
        let flush = Fault { operation: Operation::Flush, skip: 0, times: u64::MAX, effect: Effect::Lost };
        life.machine.disks.all.last().expect("the parity device").arm(flush);
    }
    let _ = life.machine.disks.log.take();
    let mut stands = vec![life.files.clone()];
    // The store may have lost something from this step on, and up to that one.
    let mut lossy = vec![life.lossy];
    let mut steps = Vec::new();
    for index in 0..CUT_STEPS {
        let step = match index {
            0 if seed % 3 == 1 && !life.lossy => life.draw_beside(),
            _ => life.draw_step(),
        };
        life.machine.disks.log.note(0, EventKind::Begin(index));
        steps.push(step);
        life.take(step).map_err(|what| told(format!("{before:?}, {steps:?}: {what}")))?;
        life.machine.disks.log.note(0, EventKind::Return(index));
        stands.push(life.files.clone());
        lossy.push(life.lossy);
    }
    life.compare().map_err(|what| told(format!("{before:?}, {steps:?}: {what}")))?;
    let events = life.machine.disks.log.take();
    let mut counts = Counts {
        interrupted: life.interrupted,
        rekeyed: life.rekeyed,
        visited: life.visited,
        ..Counts::default()
    };
    drop(life);
    let mut known = Known::default();
    let depth = Depth { all_below: 3, drawn: 6, tears: true, states_max: Some(most), ..Depth::SECOND };
    Cutter::new(images, depth, seed ^ 0x7e4b).walk(&events, |moment, fates, images| {
        let Moment { event, begun, returned } = moment;
        let story = |what: String| {
            told(format!(
                "power lost after event {event}, in step {begun} of {before:?}, {steps:?}, {fates:?}: {what}"
            ))
        };
        counts.states += 1;
        let is_lossy = lossy[returned..=begun].contains(&true);
        counts.lossy += u64::from(is_lossy);
        let key = (print(&images), is_lossy);
        let is_whole = lives.is_whole(key.0);
        let outcomes = &mut known.outcomes[usize::from(is_whole)][usize::from(is_lossy)];
        let found = match known.seen.get(&key).cloned().or_else(|| outcomes.find(&images)) {
            Some(found) => found,
            None => {
                counts.opened += 1;
                counts.whole += u64::from(is_whole);
                let is_cut = is_whole && (key.0 >> 64).is_multiple_of(u128::from(SECOND_EVERY));
                let disks = match is_cut {
                    true => Disks::new(&setting, &images),
                    false => Disks::heard_to_read(&setting, &images),
                };
                let lived = live(disks, is_lossy, is_whole).map_err(story)?;
                counts.restored += lived.restored;
                if is_cut {
                    counts.second += second(&setting, &images, &lived).map_err(story)?;
                }
                let found = Arc::new(lived.found);
                outcomes.insert(&images, &lived.reads, Arc::clone(&found));
                found
            }
        };
        known.seen.insert(key, Arc::clone(&found));
        if stands[returned..=begun].contains(&found) {
            return Ok(());
        }
        Err(story(format!("files are {found:?}, and should be one of {:?}", &stands[returned..=begun])))
    })?;
    Ok(counts)
}

/// Cuts the life of a state. [parity_histories.5] The number of states.
fn second(setting: &Setting, images: &[Image], first: &Lived) -> Result<u64, Failure> {
    let mut later = first.found.clone();
    later.insert(LATER, 1_000_000);
    let (depth, mut states) = (Depth::SAMPLED_SECOND, 0);
    let cutter = Cutter::new(images.to_vec(), depth, first.events.len() as u64);
    cutter.walk(&first.events, |moment, fates, images| {
        states += 1;
        let told = |what: String| format!("cut again after event {}, {fates:?}: {what}", moment.event);
        let again = live(Disks::unheard(setting, &images), true, true).map_err(told)?;
        match [&first.found, &later].contains(&&again.found) {
            true => Ok(()),
            false => Err(told(format!("files are {:?}, and were {:?}", again.found, first.found))),
        }
    })?;
    Ok(states)
}

/// Histories of seeds from `from` on until so many states are judged, about `most` of each. Ends
/// with the first claim that does not hold. `progress` is told now and then.
///
/// # Errors
/// The claim.
pub fn run(
    from: u64,
    states: u64,
    most: usize,
    lives: Lives,
    planted: Option<Planted>,
    progress: impl Fn(u64, &Counts),
) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    let mut told = 0;
    for seed in from.. {
        counts.add(explore(seed, most, lives, planted)?);
        if counts.states >= told + 2_000 {
            told = counts.states;
            progress(seed, &counts);
        }
        if counts.states >= states {
            break;
        }
    }
    Ok(counts)
}
