//! Log devices that come, fail, go and return, with the power gone at any moment, and with it all
//! but one side of their mirror; or a side is found zeroed, spoilt, or as it was in the beginning.
//!
//! ## What is asked of each state
//! [mirror_faults.1] Log devices in use by the labels of the leaves are there, with labels no older
//!      than theirs.
//! [mirror_faults.2] Without all but one of a mirror's devices in use, whichever that is, and
//!      without those that are out of use, the pool opens without help and holds what was promised:
//!      all that had been when the power went, and nothing that never was.
//! [mirror_faults.3] With one of them zeroed, spoilt or put back, and the others there: the same.
//! [mirror_faults.4] A promise made with one side alone is not forgotten when the others come back
//!      without it: the pool asks for that side, or has it.
//! [mirror_faults.5] Then it lives on: with all of them it opens, is exported, the offline check
//!      finds nothing, and it opens again.

use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use steadfast_device::{Device, Operation};
use steadfast_env::Bug;
use steadfast_format::{AuxClass, GroupClass, medium};
use steadfast_model::Model;
use steadfast_pool::{DeviceHandle, Error, FoundPool, GroupHandles, Pool, Redundancy, scan};
use steadfast_posix::{Caller, Errno, FileSystem};

use crate::base::Failure;
use crate::cut::{Cutter, Depth, Moment, print};
use crate::disk::{Effect, Fault};
use crate::draw::Draw;
use crate::log::EventKind;
use crate::pages::{Image, PAGE};
use crate::tree::{Shape, Tree};
use crate::verbs::{Counts, Machine, said};
use crate::world::{self, Disks, SETTINGS, Setting};

/// Devices that may be of the log: disks 1 to 4. Disk 0 holds segments.
const LOGS: usize = 4;
/// Bytes of a file.
const BYTES: usize = 6_000;
/// Bytes of a log device, from its first slot on, that are spoilt: more than histories fill.
const SPOILT_BYTES: u64 = 2 << 20;
/// One state in so many is gone on from [mirror_faults.4], [mirror_faults.5].
const LIVES_EVERY: u64 = 4;

/// Names and contents of files.
type Files = BTreeMap<Vec<u8>, Vec<u8>>;

/// One step.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Another file, durable when it returns.
    Promise,
    /// A commit.
    Commit,
    /// The next write of this disk fails.
    Fail(usize),
    /// The second disk comes beside the first.
    Attach(usize, usize),
    /// One goes.
    Detach(usize),
    /// The second disk takes the place of the first.
    Replace(usize, usize),
    /// One is out of use.
    Offline(usize),
    /// One is in use again.
    Online(usize),
    /// One goes with all of its mirror.
    Remove(usize),
}

/// Steps that are cut, and what the log lies on before them.
pub struct History {
    /// Its name.
    pub name: &'static str,
    /// Disks: one stands alone, more are a mirror.
    pub logs: &'static [usize],
    /// Its steps.
    pub steps: &'static [Step],
}

use Step::{Attach, Commit, Detach, Fail, Offline, Online, Promise, Remove, Replace};

/// All of them.
pub const HISTORIES: &[History] = &[
    History {
        name: "a log mirror in use",
        logs: &[1, 2],
        steps: &[Promise, Promise, Commit, Promise, Promise, Commit, Promise],
    },
    History { name: "a log mirror of three", logs: &[1, 2, 3], steps: &[Promise, Promise, Commit, Promise] },
    History {
        name: "a side fails and is brought back",
        logs: &[1, 2],
        steps: &[Promise, Fail(2), Promise, Promise, Online(2), Promise, Fail(1), Promise, Promise],
    },
    History {
        name: "both sides fail",
        logs: &[1, 2],
        steps: &[Promise, Fail(1), Fail(2), Promise, Promise, Commit, Promise, Online(1), Promise],
    },
    History {
        name: "a single log device becomes a mirror",
        logs: &[1],
        steps: &[Promise, Attach(1, 2), Promise, Promise],
    },
    History { name: "a side is detached", logs: &[1, 2], steps: &[Promise, Detach(1), Promise, Promise] },
    History { name: "a side is replaced", logs: &[1, 2], steps: &[Promise, Replace(1, 3), Promise, Promise] },
    History {
        name: "sides are out of use in turn",
        logs: &[1, 2],
        steps: &[Promise, Offline(1), Promise, Online(1), Promise, Offline(2), Promise, Promise],
    },
    History {
        name: "both sides are out of use",
        logs: &[1, 2],
        steps: &[Promise, Offline(1), Offline(2), Promise, Promise, Online(2), Promise, Online(1), Promise],
    },
    History {
        name: "a log mirror is removed",
        logs: &[1, 2],
        steps: &[Promise, Remove(1), Promise, Promise],
    },
];

fn setting() -> Setting {
    let props = &[("recordsize", "16384"), ("journal", "ordered")];
    Setting { name: "log mirror", logs: LOGS, props, ..SETTINGS[0] }
}

/// A pool at work.
struct Work {
    machine: Machine,
    handles: Vec<DeviceHandle>,
    pool: Pool,
    fs: FileSystem,
    files: Files,
    draw: Draw,
}

/// Trace of its run.
struct Ran {
    /// Images of the disks when its steps began.
    images: Vec<Image>,
    events: Vec<crate::log::Event>,
    /// Promised files after each step.
    states: Vec<Files>,
}

/// Makes a file, and asks for it to be durable.
fn promise(fs: &FileSystem, name: &[u8], content: &[u8]) -> Result<(), Failure> {
    let told = |what: &'static str| move |errno: Errno| format!("{what} gives {errno:?}");
    let made = fs.mknod(Caller::ROOT, Model::ROOT, name, 0o100_644, 0).map_err(told("mknod"))?;
    fs.write(made.ino, 0, content, false).map_err(told("write"))?;
    fs.fsync(made.ino).map_err(told("fsync"))?;
    fs.forget(made.ino, 1);
    Ok(())
}

/// The files of a pool.
fn files_of(pool: &Pool) -> Result<Files, Failure> {
    let (fs, _handle) = world::files(pool, "tank").map_err(said)?;
    let tree = Tree::of(&fs).map_err(|error| error.to_string())?;
    fs.forget_all();
    let Shape::Directory(entries) = &tree.nodes[&Model::ROOT].shape else {
        return Err("the root is no directory".to_owned());
    };
    let content = |ino: &u64| match &tree.nodes[ino].shape {
        Shape::File(content) => content.clone(),
        _ => Vec::new(),
    };
    Ok(entries.iter().map(|(name, ino)| (name.clone(), content(ino))).collect())
}

/// Holds what was found against what may be.
fn hold(found: &Files, allowed: &[Files]) -> Result<(), Failure> {
    if allowed.contains(found) {
        return Ok(());
    }
    let text = |files: &Files| -> Vec<String> {
        let name = |(name, content): (&Vec<u8>, &Vec<u8>)| {
            format!("{} ({} bytes)", String::from_utf8_lossy(name), content.len())
        };
        files.iter().map(name).collect()
    };
    let allowed: Vec<Vec<String>> = allowed.iter().map(&text).collect();
    Err(format!("there is {:?}, and not one of {allowed:?}", text(found)))
}

impl History {
    /// Takes its steps, in a world with a bug if one is given.
    fn run(&self, seed: u64, bug: Option<Bug>) -> Result<Ran, Failure> {
        let machine = Machine { env: world::env(0x0116 ^ seed, bug), disks: Disks::blank(&setting()) };
        let handles = machine.disks.handles();
        let main = GroupHandles::alone(vec![handles[0].clone()]);
        let pool = world::create_of(&machine.env, &machine.disks, main).map_err(said)?;
        let redundancy = if self.logs.len() > 1 { Redundancy::Mirror } else { Redundancy::None };
        let devices = self.logs.iter().map(|at| handles[*at].clone()).collect();
        let group = GroupHandles { redundancy, class: GroupClass::Normal, devices };
        pool.zil().add_logs(vec![group], false, false).map_err(said)?;
        let (fs, handle) = world::files(&pool, "tank").map_err(said)?;
        let mut work = Work { machine, handles, pool, fs, files: Files::new(), draw: Draw(seed ^ 0x10_6517) };
        work.take(Promise)?;
        work.pool.sync().map_err(said)?;
        let images = work.machine.disks.images();
        let _ = work.machine.disks.log.take();
        let mut states = vec![work.files.clone()];
        for (index, step) in self.steps.iter().enumerate() {
            work.machine.disks.log.note(0, EventKind::Begin(index));
            work.take(*step).map_err(|what| format!("{step:?}: {what}"))?;
            work.machine.disks.log.note(0, EventKind::Return(index));
            states.push(work.files.clone());
        }
        let events = work.machine.disks.log.take();
        work.fs.forget_all();
        let Work { fs, pool, .. } = work;
        drop((fs, handle));
        drop(pool);
        Ok(Ran { images, events, states })
    }

    /// Takes its steps, and judges about so many of the states in which the power may go.
    ///
    /// # Errors
    /// The first that is not as it must be.
    pub fn explore(&self, states: usize, seed: u64) -> Result<Counts, Failure> {
        self.explore_with(states, seed, None)
    }

    fn explore_with(&self, states: usize, seed: u64, bug: Option<Bug>) -> Result<Counts, Failure> {
        let ran = self.run(seed, bug).map_err(|what| format!("{}: {what}", self.name))?;
        let depth = Depth { all_below: 3, drawn: 6, tears: true, states_max: Some(states), ..Depth::SECOND };
        let cutter = Cutter::new(ran.images.clone(), depth, 0x7e4b ^ seed);
        let (mut counts, mut seen) = (Counts::default(), HashSet::new());
        cutter.walk(&ran.events, |moment, fates, images| {
            counts.states += 1;
            // After an operation has returned more is asked of the same state.
            if !seen.insert((print(&images), moment.returned)) {
                return Ok(());
            }
            let Moment { event, begun, returned } = moment;
            let allowed = &ran.states[returned..=begun];
            let turn = seen.len() as u64;
            let attempt = || judge(&ran.images, &images, allowed, turn);
            let judged = catch_unwind(AssertUnwindSafe(attempt));
            let judged = judged.unwrap_or_else(|_| Err("it panics".to_owned()));
            counts.opened += judged.map_err(|what| {
                let step = self.steps.get(returned);
                let name = self.name;
                format!("{name}: power lost after event {event}, in {step:?}, unflushed {fates:?}: {what}")
            })?;
            Ok::<(), Failure>(())
        })?;
        Ok(counts)
    }
}

/// Looks for a bug where devices fail, in so many states of each history. Returns the broken claim,
/// if any, and the number of judged states.
#[must_use]
pub fn hunt(bug: Bug, states: usize) -> (Option<Failure>, Counts) {
    let mut all = Counts::default();
    let fails = |history: &&History| history.steps.iter().any(|step| matches!(step, Fail(_)));
    for history in HISTORIES.iter().filter(fails) {
        match history.explore_with(states, 0, Some(bug)) {
            Ok(counts) => {
                all.states += counts.states;
                all.opened += counts.opened;
            }
            Err(what) => return (Some(what), all),
        }
    }
    (None, all)
}

impl Work {
    fn path(&self, disk: usize) -> &str {
        &self.handles[disk].path
    }

    fn take(&mut self, step: Step) -> Result<(), Failure> {
        let handle = |disk: usize| self.handles[disk].clone();
        let done = match step {
            Promise => {
                let name = format!("f{}", self.files.len()).into_bytes();
                let content = self.draw.bytes(BYTES);
                promise(&self.fs, &name, &content)?;
                self.files.insert(name, content);
                Ok(())
            }
            Commit => self.pool.sync(),
            Fail(disk) => {
                let fault = Fault { operation: Operation::Write, skip: 0, times: 1, effect: Effect::Fail };
                self.machine.disks.all[disk].arm(fault);
                Ok(())
            }
            Attach(beside, new) => self.pool.attach(self.path(beside), handle(new), false),
            Detach(disk) => self.pool.detach(self.path(disk)),
            Replace(old, new) => self.pool.replace(self.path(old), handle(new), false),
            Offline(disk) => self.pool.offline(self.path(disk)),
            Online(disk) => {
                let open = || Ok(Arc::clone(&self.machine.disks.all[disk]) as Arc<dyn Device>);
                self.pool.online(self.path(disk), &open).map(drop)
            }
            Remove(disk) => self.pool.zil().remove_log(self.path(disk)),
        };
        done.map_err(said)
    }
}

/// Log disks that the labels of a state call in use, those of a mirror together [mirror_faults.1];
/// and the others.
fn sides(disks: &Disks) -> Result<(Vec<Vec<usize>>, Vec<usize>), Failure> {
    let (pools, _) = scan(disks.handles());
    let tank = pools.into_iter().find(|found| found.config.name == "tank");
    let FoundPool { config, devices, .. } = tank.ok_or("there is no pool")?;
    let mut mirrors: Vec<(u8, Vec<usize>)> = Vec::new();
    for aux in config.aux.iter().filter(|aux| aux.class == AuxClass::Log && aux.is_in_use()) {
        let here = devices.iter().find(|device| device.label.device_guid == aux.guid);
        let here = here.ok_or_else(|| format!("{} is in use and has no label", aux.path))?;
        if here.label.txg < config.txg {
            let (own, newest) = (here.label.txg, config.txg);
            return Err(format!("{} is in use, and its labels are of txg {own}, not {newest}", aux.path));
        }
        let disk = disks.all.iter().position(|disk| disk.character().identity == here.handle.path);
        let disk = disk.expect("it is one of them");
        let same = |(mirror, _): &&mut (u8, Vec<usize>)| aux.log.mirror != 0 && *mirror == aux.log.mirror;
        match mirrors.iter_mut().find(same) {
            Some((_, disks)) => disks.push(disk),
            None => mirrors.push((aux.log.mirror, vec![disk])),
        }
    }
    let mirrors: Vec<Vec<usize>> = mirrors.into_iter().map(|(_, disks)| disks).collect();
    let others = (1..=LOGS).filter(|disk| !mirrors.iter().flatten().any(|used| used == disk)).collect();
    Ok((mirrors, others))
}

/// Harm done to a side.
#[derive(Clone, Copy, Debug)]
enum Harm {
    /// Its slots read as zeros; its labels are there.
    Zeroed,
    /// In every page of it that was written a bit is wrong.
    Spoilt,
    /// It is as it was in the beginning, labels and all.
    PutBack,
}

const HARMS: [Harm; 3] = [Harm::Zeroed, Harm::Spoilt, Harm::PutBack];

impl Harm {
    fn strike(self, image: &mut Image, beginning: &Image) {
        let start = medium::SLOTS_OFFSET;
        match self {
            Harm::Zeroed => image.discard(start, medium::label_offset(2, image.size_bytes()) - start),
            Harm::Spoilt => {
                for at in (start..start + SPOILT_BYTES).step_by(PAGE) {
                    let mut page = [0; PAGE];
                    image.read(at, &mut page);
                    if page.iter().any(|byte| *byte != 0) {
                        image.write(at + 200, &[page[200] ^ 8]);
                    }
                }
            }
            Harm::PutBack => *image = beginning.clone(),
        }
    }
}

/// Asks all that is asked of a state; how many pools were opened for it.
fn judge(beginning: &[Image], images: &[Image], allowed: &[Files], turn: u64) -> Result<u64, Failure> {
    let (mirrors, others) = sides(&Disks::unheard(&setting(), images))?;
    let mut opened = 0;
    let lives = turn.is_multiple_of(LIVES_EVERY);
    // One after the other, so that all come about.
    let harm = HARMS[usize::try_from(turn).expect("few") % HARMS.len()];
    if mirrors.is_empty() {
        let told = |what: Failure| format!("with none, as none is in use: {what}");
        opened += open(images, &others, allowed, lives).map_err(told)?;
    }
    for (mirror, left) in mirrors.iter().flat_map(|mirror| mirror.iter().map(move |left| (mirror, *left))) {
        let lost = mirror.iter().copied().filter(|disk| *disk != left);
        let lost: Vec<usize> = lost.chain(others.iter().copied()).collect();
        let told = |what: Failure| format!("of {mirror:?} only {left} is left: {what}");
        opened += open(images, &lost, allowed, lives).map_err(told)?;
        if mirror.len() > 1 {
            let mut images = images.to_vec();
            harm.strike(&mut images[left], &beginning[left]);
            let told = |what: Failure| format!("of {mirror:?} {left} is found as by {harm:?}: {what}");
            opened += open(&images, &[], allowed, lives).map_err(told)?;
        }
    }
    Ok(opened)
}

/// Opens a pool without some disks, and looks at what it holds; with `lives` goes on from there.
fn open(images: &[Image], lost: &[usize], allowed: &[Files], lives: bool) -> Result<u64, Failure> {
    let (machine, pool) = import(images, lost, 1)?;
    hold(&files_of(&pool)?, allowed)?;
    if !lives {
        return Ok(1);
    }
    let (fs, handle) = world::files(&pool, "tank").map_err(said)?;
    promise(&fs, b"life", b"goes on")?;
    fs.forget_all();
    drop((fs, handle));
    let lived = files_of(&pool)?;
    drop(pool);
    let images = machine.disks.images();
    // [mirror_faults.4]
    let kept: Vec<usize> = (1..=LOGS).filter(|disk| !lost.contains(disk)).collect();
    match try_import(&images, &kept, 2) {
        (_, Err(Error::LogMissing { .. })) => {}
        (_, Err(error)) => return Err(format!("without those that were left: {error}")),
        (_, Ok(pool)) => {
            let found = files_of(&pool)?;
            let told = |what: Failure| format!("without those that were left: {what}");
            hold(&found, std::slice::from_ref(&lived)).map_err(told)?;
        }
    }
    // [mirror_faults.5]
    let (machine, pool) = import(&images, &[], 3).map_err(|what| format!("with all again: {what}"))?;
    let told = |what: Failure| format!("with all again: {what}");
    hold(&files_of(&pool)?, std::slice::from_ref(&lived)).map_err(told)?;
    pool.export().map_err(|error| format!("export: {error}"))?;
    drop(pool);
    machine.inspect()?;
    let (_, pool) = import(&machine.disks.images(), &[], 4).map_err(|what| format!("at last: {what}"))?;
    hold(&files_of(&pool)?, std::slice::from_ref(&lived)).map_err(|what| format!("at last: {what}"))?;
    Ok(4)
}

/// Imports a pool without some disks. Each import of one pool has a `number` of its own: what it
/// draws, the epoch of its log, is drawn by no other.
fn try_import(images: &[Image], lost: &[usize], number: u64) -> (Machine, Result<Pool, Error>) {
    let machine =
        Machine { env: world::env(0xc0f + number, None), disks: Disks::unheard(&setting(), images) };
    let handles = machine.disks.handles().into_iter().enumerate();
    let handles = handles.filter(|(disk, _)| !lost.contains(disk)).map(|(_, handle)| handle).collect();
    let pool = world::import_of(&machine.env, &machine.disks, handles);
    (machine, pool)
}

fn import(images: &[Image], lost: &[usize], number: u64) -> Result<(Machine, Pool), Failure> {
    let (machine, pool) = try_import(images, lost, number);
    let pool = pool.map_err(|error| format!("import: {error}"))?;
    Ok((machine, pool))
}
