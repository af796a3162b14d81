//! How a workload is run: on the pool of its setting, beside the model, while the devices note
//! what is done to them.

use std::collections::BTreeMap;

use steadfast_env::Bug;
use steadfast_model::{Id, Model};
use steadfast_pool::Pool;
use steadfast_posix::{Caller, Errno};

use crate::disk::Effect;
use crate::draw::Draw;
use crate::log::{Event, EventKind};
use crate::op::{At, EIO, ENOSPC, EROFS, Op, Path, Promise, Sides};
use crate::pages::Image;
use crate::tree::Tree;
use crate::workload::Number;
use crate::world::{self, Disks, Mounted, Setting};

/// The pool that the workloads of a setting begin with.
pub struct Base {
    setting: Setting,
    images: Vec<Image>,
    model: Model,
    inos: BTreeMap<Id, u64>,
}

/// A workload as it ran.
pub struct Trace {
    /// Its number.
    pub number: Number,
    /// Its operations.
    pub ops: Vec<Op>,
    /// Images of the devices when it began.
    pub images: Vec<Image>,
    /// Events on them.
    pub events: Vec<Event>,
    /// Visible trees after each operation.
    pub trees: Vec<Tree>,
    /// Promise of each operation when it returned.
    pub promises: Vec<Promise>,
    /// Effects that struck.
    pub struck: Vec<Effect>,
    /// The devices that were struck, if their groups can spare all of them: then nothing may be
    /// lost, and nothing refused.
    pub spared: Vec<usize>,
    /// Errno of the operation that was struck.
    pub errno: Option<i32>,
    /// Operations that were refused for want of room.
    pub refused: u64,
}

/// Why a workload did not run to its end.
pub type Failure = String;

/// Files that fill a pool: so many of so many bytes, in a dataset of their own.
const FILLERS: usize = 1200;
const FILLER_BYTES: usize = 48 << 10;

/// Files that `make_room` removes.
const ROOM_FILES: usize = 40;

/// Removes some of the files that fill a pool.
fn make_room(pool: &Pool) -> Result<(), Failure> {
    let (fs, handle) = world::files(pool, "tank/filler").map_err(|error| error.to_string())?;
    for number in 0..ROOM_FILES {
        let removed = fs.unlink(Model::ROOT, format!("f{number}").as_bytes());
        removed.map_err(|errno| format!("removing a file of a full pool gives {errno:?}"))?;
    }
    fs.forget_all();
    drop((fs, handle));
    pool.sync().map_err(|error| error.to_string())
}

/// Fills the pool but for a little, in segments that are partly dead; or to the brim.
fn fill(pool: &Pool, brim: bool) -> Result<(), Failure> {
    let said = |error: steadfast_pool::Error| error.to_string();
    pool.datasets()
        .create_dataset("tank/filler", [("compression".to_owned(), "off".to_owned())].into(), None)
        .map_err(said)?;
    let (fs, handle) = world::files(pool, "tank/filler").map_err(said)?;
    let mut draw = Draw(0xf111);
    let mut made = Vec::new();
    for number in 0..FILLERS {
        let name = format!("f{number}").into_bytes();
        let entry = match fs.mknod(Caller::ROOT, Model::ROOT, &name, 0o100_644, 0) {
            Ok(entry) => entry,
            Err(Errno::ENOSPC) => break,
            Err(errno) => return Err(format!("filling gives {errno:?}")),
        };
        let written = fs.write(entry.ino, 0, &draw.bytes(FILLER_BYTES), false);
        fs.forget(entry.ino, 1);
        match written {
            Ok(_) => made.push(name),
            Err(Errno::ENOSPC) => break,
            Err(errno) => return Err(format!("filling gives {errno:?}")),
        }
        if number % 16 == 15 {
            pool.sync().map_err(said)?;
        }
    }
    if made.len() == FILLERS {
        return Err("the pool is larger than what fills it".to_owned());
    }
    pool.sync().map_err(said)?;
    for name in made.iter().filter(|_| !brim && draw.percent(4)) {
        fs.unlink(Model::ROOT, name).map_err(|errno| format!("unlink gives {errno:?}"))?;
    }
    pool.sync().map_err(said)?;
    fs.forget_all();
    drop(fs);
    drop(handle);
    Ok(())
}

impl Base {
    /// Makes it: directories `A`, `B`, `A/C`, files `A/foo`, `A/big`, `B/bar`.
    ///
    /// # Errors
    /// The error.
    pub fn new(setting: &Setting, bug: Option<Bug>) -> Result<Base, Failure> {
        let env = world::env(0x5eed, bug);
        let disks = Disks::blank(setting);
        let pool = world::create(&env, &disks).map_err(|error| error.to_string())?;
        let mounted = world::mount(pool).map_err(|error| error.to_string())?;
        let (mut model, mut inos) = (Model::default(), BTreeMap::from([(Model::ROOT, Model::ROOT)]));
        let mut draw = Draw(0xba5e);
        {
            let (wait, set, interval) = (|| (), |_: &str, _: &str| Ok(()), || Ok(None));
            let mut sides = Sides {
                fs: &mounted.fs,
                model: &mut model,
                inos: &mut inos,
                draw: &mut draw,
                wait: &wait,
                set: &set,
                interval: &interval,
                room: &|| Ok(()),
                always: false,
            };
            for op in [
                Op::Mkdir("A"),
                Op::Mkdir("B"),
                Op::Mkdir("A/C"),
                Op::Create("A/foo"),
                Op::Write("A/foo", At::Byte(0), 9000),
                Op::Create("A/big"),
                Op::Write("A/big", At::Byte(0), 40_000),
                Op::Create("B/bar"),
                Op::Write("B/bar", At::Byte(0), 100),
            ] {
                sides.apply(op).map_err(|error| error.text)?;
            }
            for path in ["A/foo", "A/C"] {
                sides.base_xattr(path);
            }
        }
        if setting.full {
            mounted.fs.syncfs().map_err(|errno| format!("sync gives {errno:?}"))?;
            fill(&mounted.pool, setting.brim)?;
        }
        close(mounted)?;
        let images = disks.images();
        Ok(Base { setting: *setting, images, model, inos })
    }

    /// Runs a workload, and takes the power away behind its end.
    ///
    /// # Errors
    /// It did not run: the stack refused or panicked, or said something else than the model.
    pub fn run(&self, number: Number, bug: Option<Bug>) -> Result<Trace, Failure> {
        let seed = number.seed();
        let env = world::env(seed, bug);
        let disks = Disks::new(&self.setting, &self.images);
        let pool = world::import(&env, &disks).map_err(|error| error.to_string())?;
        let mounted = world::mount(pool).map_err(|error| error.to_string())?;
        let (mut model, mut inos) = (self.model.clone(), self.inos.clone());
        let mut draw = Draw(seed ^ 0xda7a);
        let ops = number.ops();
        let mut trees = vec![Tree::of_model(&model, &inos)];
        let mut promises = Vec::new();
        let faults = number.faults();
        faults.iter().for_each(|(disk, fault)| disks.all[*disk].arm(*fault));
        let struck = || disks.all.iter().any(|disk| disk.is_struck());
        let is_spared = faults.iter().all(|(disk, _)| self.setting.spared(*disk) > 0);
        let (mut errno, mut refused) = (None, 0);
        let wait = || {
            // The first ones store content early, the next lets the interval pass, then one
            // commits.
            for _ in 0..8 {
                mounted.pool.step();
            }
        };
        let root = mounted.pool.root_dataset();
        let set = |name: &str, value: &str| {
            mounted.pool.datasets().set_property(&root, name, Some(value)).map_err(|error| error.to_string())
        };
        let interval = || match mounted.pool.zil().log_interval() {
            // The thread of the simulation does the work that it asked for.
            Some(false) => mounted.pool.sync().map(|()| Some(true)).map_err(|error| error.to_string()),
            looked => Ok(looked),
        };
        let always = self.setting.props.contains(&("sync", "always"));
        let room = || make_room(&mounted.pool);
        let mut has_room = false;
        for (index, op) in ops.iter().enumerate() {
            disks.log.note(0, EventKind::Begin(index));
            let before = self.setting.full.then(|| (model.clone(), inos.clone()));
            let mut sides = Sides {
                fs: &mounted.fs,
                model: &mut model,
                inos: &mut inos,
                draw: &mut draw,
                wait: &wait,
                set: &set,
                interval: &interval,
                room: &room,
                always,
            };
            let promise = match sides.apply(*op) {
                Ok(promise) => promise,
                Err(error) if error.errno == ENOSPC && (op.gives_back() || has_room) => {
                    return Err(format!("operation {index}, {op}, is refused for want of room"));
                }
                Err(error) if error.errno == ENOSPC && before.is_some() => {
                    // A change refused for want of room changes nothing.
                    (model, inos) = before.expect("just asked");
                    refused += 1;
                    Promise::None
                }
                // An operation struck by a fault of a device returns an error. Its effect may be
                // found, or not; operations before it that are promised afterwards must be found.
                Err(error) if struck() && !is_spared => {
                    if ![EIO, ENOSPC, EROFS].contains(&error.errno) {
                        return Err(format!("operation {index}, {op}, after a fault: {}", error.text));
                    }
                    errno = Some(error.errno);
                    trees.push(Tree::of_model(&model, &inos));
                    promises.push(Promise::None);
                    disks.log.note(0, EventKind::Return(index));
                    disks.log.note(0, EventKind::Begin(index + 1));
                    if mounted.fs.syncfs().is_ok() {
                        promises.push(Promise::UpTo(index));
                        disks.log.note(0, EventKind::Return(index + 1));
                    }
                    trees.push(Tree::of_model(&model, &inos));
                    break;
                }
                Err(error) => {
                    let despite = if struck() { ", though groups make up for all faults" } else { "" };
                    return Err(format!("operation {index}, {op}{despite}: {}", error.text));
                }
            };
            has_room |= *op == Op::Room;
            disks.log.note(0, EventKind::Return(index));
            trees.push(Tree::of_model(&model, &inos));
            promises.push(promise);
        }
        let last = &trees[trees.len() - 1];
        if is_spared || !struck() {
            let seen = Tree::of(&mounted.fs).map_err(|error| format!("before any crash: {error}"))?;
            if seen != *last {
                return Err(format!("before any crash: {}", last.difference(&seen)));
            }
        } else if errno.is_none() {
            // An operation that failed may have been done on one side only.
            Tree::readable(&mounted.fs)
                .is_part_of(std::slice::from_ref(last))
                .map_err(|what| format!("before any crash: {what}"))?;
        }
        if let Some(reason) = mounted.pool.suspended().filter(|_| is_spared) {
            return Err(format!("the pool is suspended: {reason}"));
        }
        drop(mounted);
        let hit: Vec<usize> = (0..disks.all.len()).filter(|at| disks.all[*at].is_struck()).collect();
        let struck = hit.iter().flat_map(|at| disks.all[*at].struck()).collect();
        let spared = if is_spared { hit } else { Vec::new() };
        let (images, events) = (self.images.clone(), disks.log.take());
        Ok(Trace { number, ops, images, events, trees, promises, struck, spared, errno, refused })
    }
}

/// Unmounts and closes.
///
/// # Errors
/// The pool's error.
pub fn close(mounted: Mounted) -> Result<(), Failure> {
    let Mounted { fs, handle, pool } = mounted;
    fs.forget_all();
    drop(fs);
    drop(handle);
    pool.close().map_err(|error| error.to_string())
}

impl Sides<'_> {
    fn base_xattr(&mut self, path: Path) {
        let (mut id, mut ino) = (Model::ROOT, Model::ROOT);
        for name in path.split('/') {
            id = self.model.lookup(id, name.as_bytes()).expect("made");
            let entry = self.fs.lookup(ino, name.as_bytes()).expect("made");
            self.fs.forget(entry.ino, 1);
            ino = entry.ino;
        }
        self.model.set_xattr(id, b"user.base", b"base").expect("there");
        self.fs.setxattr(ino, b"user.base", b"base", 0).expect("set");
    }
}
