//! Verbs that change what a pool is made of, with the power gone at any write of them.
//!
//! Nothing of what the pool's files hold changes meanwhile, so what is asked of a state is simple:
//! the pool opens without help, its files are what they were, the offline check finds nothing that
//! a crash may not leave, and what was begun comes to its end or was never begun: then the check
//! finds nothing at all, and files are still what they were.

use crate::base::Failure;
use crate::cut::{Cutter, Depth, print};
use crate::disk::{Effect, Fault};
use crate::draw::Draw;
use crate::pages::{Image, PAGE};
use crate::tree::Tree;
use crate::world::{self, Disks, SETTINGS, Setting};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use steadfast_device::{Device, Operation};
use steadfast_env::Env;
use steadfast_format::{GroupClass, LeafState, medium};
use steadfast_inspect::{Finding, Leaf, Request, Severity, check};
use steadfast_model::Model;
use steadfast_pool::{DeviceHandle, GroupHandles, Pool, Redundancy, ScanRow, ScanState, ScrubCommand};
use steadfast_posix::{Caller, FileSystem};

/// Opens file systems that verbs seal.
pub(crate) const KEY: [u8; 32] = [7; 32];

/// A pool, what is done to it, and what it must survive.
pub struct Verb {
    /// Its name.
    pub name: &'static str,
    /// The groups it begins with, by redundancy and number of devices. A device more or less is
    /// what verbs are about: some are left over.
    pub groups: &'static [(Redundancy, usize)],
    /// Devices that do not belong to it in the beginning.
    pub spare: usize,
    /// One of its devices that has so many slots only, however many fit.
    pub short: Option<(usize, u32)>,
    /// Those of its devices that are spoilt before it is done: a bit of each page of their segments
    /// is wrong.
    pub spoilt: &'static [usize],
    /// Done before: what it does is not cut.
    pub before: fn(&Machine, &Pool) -> Result<(), Failure>,
    /// Done, and cut at any write.
    pub act: fn(&Machine, &Pool) -> Result<(), Failure>,
}

/// Devices of a run.
pub struct Machine {
    pub(crate) env: Env,
    pub(crate) disks: Disks,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// States that the verb may leave.
    pub states: u64,
    /// Of these, states of which no equal one was seen before, and that were opened.
    pub opened: u64,
    /// Of those, states in which a scrub or a resilver was under way, and went on.
    pub resumed: u64,
    /// Of the opened ones, those that had a checkpoint, and went back to it.
    pub back: u64,
}

pub(crate) fn said(error: steadfast_pool::Error) -> Failure {
    error.to_string()
}

pub(crate) fn nothing(_: &Machine, _: &Pool) -> Result<(), Failure> {
    Ok(())
}

/// State of a pool: its file systems with their origins, and each as it was at each snapshot.
#[derive(Debug, PartialEq)]
pub(crate) struct State {
    /// Names and origins.
    pub datasets: Vec<(String, Option<String>)>,
    /// By full name, snapshots among them, oldest first behind their file systems.
    pub trees: Vec<(String, Tree)>,
}

impl State {
    pub fn difference(&self, other: &State) -> String {
        if self.datasets != other.datasets {
            return format!("file systems {:?} and {:?}", self.datasets, other.datasets);
        }
        let names =
            |state: &State| -> Vec<String> { state.trees.iter().map(|(name, _)| name.clone()).collect() };
        if names(self) != names(other) {
            return format!("{:?} and {:?}", names(self), names(other));
        }
        let changed = self.trees.iter().zip(&other.trees).find(|(ours, theirs)| ours != theirs);
        changed.map_or(String::new(), |((name, ours), (_, theirs))| {
            format!("{name}: {}", ours.difference(theirs))
        })
    }
}

pub(crate) fn take(pool: &Pool, name: &str) -> Result<(), Failure> {
    pool.datasets().take_snapshots(&[format!("tank@{name}")], &Default::default()).map_err(said)
}

impl Verb {
    pub(crate) fn setting(&self) -> Setting {
        let disks = self.groups.iter().map(|(_, count)| count).sum::<usize>() + self.spare;
        Setting { disks, redundancy: self.groups[0].0, short: self.short, ..SETTINGS[0] }
    }

    /// The pool with files in it, and what it holds after `before`.
    pub(crate) fn begin(&self, seed: u64) -> Result<(Machine, Pool), Failure> {
        let env = world::env(0x5eed ^ seed, None);
        let machine = Machine { env, disks: Disks::blank(&self.setting()) };
        let mut handles = machine.disks.handles().into_iter();
        let group = |(redundancy, count): &(Redundancy, usize)| GroupHandles {
            redundancy: *redundancy,
            class: GroupClass::Normal,
            devices: handles.by_ref().take(*count).collect(),
        };
        let groups = self.groups.iter().map(group).collect();
        let pool = world::create_of(&machine.env, &machine.disks, groups).map_err(said)?;
        let (fs, handle) = world::files(&pool, "tank").map_err(said)?;
        write_files(&fs, 0x1)?;
        drop((fs, handle));
        pool.sync().map_err(said)?;
        (self.before)(&machine, &pool)?;
        Ok((machine, pool))
    }

    /// Runs it, and judges one in `every` of the states that it may leave.
    ///
    /// # Errors
    /// The first that is not as it must be.
    pub fn explore(&self, every: u64) -> Result<Counts, Failure> {
        self.explore_drawn(every, 0)
    }

    /// The same under another draw: other salts and numbers in the pool, and other fates of writes
    /// that were not flushed.
    ///
    /// # Errors
    /// The first that is not as it must be.
    pub fn explore_drawn(&self, every: u64, seed: u64) -> Result<Counts, Failure> {
        let (machine, pool) = self.begin(seed)?;
        pool.sync().map_err(said)?;
        self.spoilt.iter().for_each(|disk| machine.spoil(*disk));
        let images = machine.disks.images();
        let _ = machine.disks.log.take();
        (self.act)(&machine, &pool)?;
        let events = machine.disks.log.take();
        let expected = state_of(&pool)?;
        // Changes written by `act` itself are in the state before, or are not.
        let before = self.tree_of(&images)?;
        drop(pool);
        let (mut counts, mut seen) = (Counts::default(), HashSet::new());
        let depth = Depth { all_below: 3, drawn: 6, ..Depth::SECOND };
        let cutter = Cutter::new(images, depth, 0x7e4b ^ seed);
        cutter.walk(&events, |moment, fates, images| {
            counts.states += 1;
            if !seen.insert(print(&images)) || !(seen.len() as u64).is_multiple_of(every) {
                return Ok(());
            }
            counts.opened += 1;
            let resumed = self.judge(&images, &[&before, &expected]).map_err(|what| {
                format!(
                    "{}: power lost after event {}, unflushed writes {fates:?}: {what}",
                    self.name, moment.event
                )
            })?;
            counts.resumed += u64::from(resumed);
            Ok::<_, Failure>(())
        })?;
        Ok(counts)
    }

    fn tree_of(&self, images: &[Image]) -> Result<State, Failure> {
        let disks = Disks::unheard(&self.setting(), images);
        let pool = world::import(&world::env(0xc0f, None), &disks).map_err(said)?;
        state_of(&pool)
    }

    /// True if a scrub or a resilver was under way.
    fn judge(&self, images: &[Image], allowed: &[&State]) -> Result<bool, Failure> {
        let attempt = || {
            let machine =
                Machine { env: world::env(0xc0f, None), disks: Disks::unheard(&self.setting(), images) };
            let pool =
                world::import(&machine.env, &machine.disks).map_err(|error| format!("import: {error}"))?;
            let scan = pool.state().scan;
            let found = state_of(&pool)?;
            if !allowed.contains(&&found) {
                return Err(format!("files: {}", allowed[0].difference(&found)));
            }
            machine.finish(&pool).map_err(|what| format!("what was begun does not end: {what}"))?;
            if !self.spoilt.is_empty() {
                scrubbed(&pool, scan)?;
            }
            let after = state_of(&pool)?;
            if after != found {
                return Err(format!("files after it: {}", found.difference(&after)));
            }
            whole(&pool)?;
            pool.export().map_err(|error| format!("export: {error}"))?;
            drop(pool);
            machine.inspect()?;
            let pool =
                world::import(&machine.env, &machine.disks).map_err(|error| format!("again: {error}"))?;
            let again = state_of(&pool)?;
            if again != found {
                return Err(format!("opened again: {}", found.difference(&again)));
            }
            drop(pool);
            machine.judge_other(allowed)?;
            Ok(scan.is_some_and(|scan| scan.state == ScanState::Active))
        };
        catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|_| Err("it panics".to_owned()))
    }
}

/// A pool that was spoilt was scrubbed: by the scrub that was under way when it was imported, and
/// went on; or before; or now, if none was begun.
pub(crate) fn scrubbed(pool: &Pool, then: Option<ScanRow>) -> Result<(), Failure> {
    match then.map(|scan| scan.state) {
        Some(ScanState::Finished) => Ok(()),
        Some(ScanState::Active) => match pool.state().scan {
            Some(scan) if (scan.state, scan.lost) == (ScanState::Finished, 0) => Ok(()),
            scan => Err(format!("a scrub was under way, {then:?}, and became {scan:?}")),
        },
        _ => {
            pool.devices().scrub(ScrubCommand::Start).map_err(said)?;
            finish(pool)
        }
    }
}

impl Machine {
    pub(crate) fn path(&self, disk: usize) -> String {
        self.disks.all[disk].character().identity
    }

    pub(crate) fn handle(&self, disk: usize) -> DeviceHandle {
        DeviceHandle { path: self.path(disk), device: Arc::clone(&self.disks.all[disk]) as Arc<dyn Device> }
    }

    /// A bit is wrong in each page that was written between the labels of a disk.
    pub(crate) fn spoil(&self, disk: usize) {
        let disk = &self.disks.all[disk];
        let image = disk.image();
        for at in (medium::SLOTS_OFFSET..medium::label_offset(2, image.size_bytes())).step_by(PAGE) {
            let mut page = [0; PAGE];
            image.read(at, &mut page);
            if page.iter().any(|byte| *byte != 0) {
                disk.rot(at + 200, 3);
            }
        }
    }

    /// Some file systems more, so that there are some segments; and a scrub takes one of them at a
    /// time beside other load.
    pub(crate) fn fill_for_scrub(&self, pool: &Pool) -> Result<(), Failure> {
        for name in ["tank/d", "tank/e", "tank/f"] {
            pool.datasets().create_dataset(name, Default::default(), None).map_err(said)?;
            self.change_of(pool, name, 0x16)?;
        }
        pool.set_pool_prop("scrublimit", Some("1000000000000000")).map_err(said)
    }

    /// Scrubs beside other load, with a commit behind each part. It finds something.
    pub(crate) fn scrub(&self, pool: &Pool) -> Result<(), Failure> {
        pool.devices().scrub(ScrubCommand::Start).map_err(said)?;
        for _ in 0..200 {
            pool.sync().map_err(said)?;
            match pool.state().scan {
                Some(scan) if scan.state == ScanState::Active => {}
                Some(scan) if scan.repaired > 0 && scan.lost == 0 => return Ok(()),
                scan => return Err(format!("a scrub of what is spoilt came to {scan:?}")),
            }
            let (fs, handle) = world::files(pool, "tank").map_err(said)?;
            Tree::of(&fs).map_err(|error| error.to_string())?;
            fs.forget_all();
            drop((fs, handle));
        }
        Err("a scrub does not end".into())
    }

    pub(crate) fn fail(&self, disk: usize) {
        for operation in [Operation::Write, Operation::Read, Operation::Flush] {
            let fault = Fault { operation, skip: 0, times: 1 << 40, effect: Effect::Gone };
            self.disks.all[disk].arm(fault);
        }
    }

    pub(crate) fn attach(&self, pool: &Pool, beside: usize, new: usize) -> Result<(), Failure> {
        pool.attach(&self.path(beside), self.handle(new), false).map_err(said)?;
        self.finish(pool)
    }

    pub(crate) fn replace(&self, pool: &Pool, old: usize, new: usize) -> Result<(), Failure> {
        pool.replace(&self.path(old), self.handle(new), false).map_err(said)?;
        self.finish(pool)
    }

    /// Adds the next two devices as a mirror.
    pub(crate) fn add_mirror(&self, pool: &Pool, class: GroupClass) -> Result<(), Failure> {
        let taken = pool.state().leaves.len();
        let devices = vec![self.handle(taken), self.handle(taken + 1)];
        let group = GroupHandles { redundancy: Redundancy::Mirror, class, devices };
        pool.devices().add_groups(vec![group], false, false).map_err(said)
    }

    /// Gives the log a device of its own, or a mirror of some.
    pub(crate) fn add_logs(&self, pool: &Pool, disks: &[usize]) -> Result<(), Failure> {
        let redundancy = if disks.len() > 1 { Redundancy::Mirror } else { Redundancy::None };
        let devices = disks.iter().map(|disk| self.handle(*disk)).collect();
        let group = GroupHandles { redundancy, class: GroupClass::Normal, devices };
        pool.zil().add_logs(vec![group], false, false).map_err(said)
    }

    pub(crate) fn remove(&self, pool: &Pool, disk: usize) -> Result<(), Failure> {
        pool.devices().remove_groups(&[self.path(disk)], false).map_err(said)?;
        self.finish(pool)
    }

    /// Other content, committed.
    pub(crate) fn change(&self, pool: &Pool) -> Result<(), Failure> {
        self.change_of(pool, "tank", 0x2)
    }

    pub(crate) fn change_of(&self, pool: &Pool, name: &str, seed: u64) -> Result<(), Failure> {
        let (fs, handle) = world::files(pool, name).map_err(said)?;
        write_files(&fs, seed)?;
        drop((fs, handle));
        pool.sync().map_err(said)
    }

    /// Lets everything come to its end that goes on in the background.
    pub(crate) fn finish(&self, pool: &Pool) -> Result<(), Failure> {
        finish(pool)
    }

    /// A pool that was split off, if there is one, opens, holds what it may, comes to rest and
    /// opens again.
    pub(crate) fn judge_other(&self, allowed: &[&State]) -> Result<(), Failure> {
        for time in ["first", "again"] {
            let other = world::import_other(&self.env, &self.disks);
            let other = other.map_err(|error| format!("what was split off, {time}: {error}"))?;
            let Some(pool) = other else { return Ok(()) };
            let found = state_of(&pool)?;
            if !allowed.contains(&&found) {
                return Err(format!("what was split off, {time}: {}", allowed[0].difference(&found)));
            }
            self.finish(&pool)?;
            whole(&pool)?;
            pool.export().map_err(|error| format!("export of what was split off: {error}"))?;
        }
        Ok(())
    }

    /// The offline check of the pool's devices finds nothing but what a device that is out of use
    /// leaves.
    pub(crate) fn inspect(&self) -> Result<(), Failure> {
        // One that has left may have a label still, if the power went while it was erased.
        let (pools, _) = steadfast_pool::scan(self.disks.handles());
        let tank = pools.into_iter().find(|found| found.config.name == "tank");
        let found = tank.ok_or("there is no pool")?;
        let listed = |guid| {
            let config = &found.config;
            config.leaves.iter().any(|leaf| leaf.guid == guid)
                || config.aux.iter().any(|aux| aux.guid == guid)
        };
        let members = found.devices.iter().filter(|device| listed(device.label.device_guid));
        let leaves: Vec<Leaf> = members
            .map(|found| Leaf { path: found.handle.path.clone(), device: Arc::clone(&found.handle.device) })
            .collect();
        const ALLOWED: &[&str] = &["uberblock-torn", "uberblock-few", "column-missing", "device-out"];
        let mut worst: Option<String> = None;
        let mut found = |finding: Finding| {
            let (code, severity) = finding.class();
            if severity > Severity::Note && !ALLOWED.contains(&code) && worst.is_none() {
                worst = Some(finding.to_string());
            }
        };
        let secret = Some(self.disks.secret().unwrap_or(&KEY).to_vec());
        let record = self.disks.record();
        let request = Request { leaves: &leaves, secret, anchor: record.as_ref(), env: &self.env };
        check(&request, &mut found);
        worst.map_or(Ok(()), |what| Err(format!("inspected: {what}")))
    }
}

/// Lets everything come to its end that goes on in the background of a pool.
pub(crate) fn finish(pool: &Pool) -> Result<(), Failure> {
    let mut quiet = 0;
    for _ in 0..20_000 {
        let busy = pool.scan_remaining() != [0, 0] || pool.move_remaining().is_some();
        quiet = if busy { 0 } else { quiet + 1 };
        if let Some(reason) = pool.suspended() {
            return Err(format!("suspended: {reason}"));
        }
        // Spares look at what is out of use, and what left is forgotten some commits later.
        if quiet > 40 {
            return pool.sync().map_err(said);
        }
        pool.step();
        if quiet % 10 == 5 {
            pool.sync().map_err(said)?;
        }
    }
    let state = pool.state();
    Err(format!("{:?}, {:?}", state.scan, state.moving))
}

/// Nothing is half done: no device is about to leave, and a scrub finds nothing.
pub(crate) fn whole(pool: &Pool) -> Result<(), Failure> {
    let state = pool.state();
    if let Some(leaf) = state.leaves.iter().find(|leaf| leaf.config.state == LeafState::Leaving) {
        return Err(format!("{} is leaving still", leaf.config.path));
    }
    pool.devices().scrub(ScrubCommand::Start).map_err(|error| format!("scrub: {error}"))?;
    finish(pool)?;
    let scan = pool.state().scan.ok_or("no scrub")?;
    if (scan.repaired, scan.lost) != (0, 0) || !pool.state().damaged.is_empty() {
        return Err(format!("a scrub finds {scan:?} {:?}", pool.state().damaged));
    }
    Ok(())
}

/// State of a pool now, by names as if it were called `tank`: file systems that were split off are
/// left out.
pub(crate) fn state_of(pool: &Pool) -> Result<State, Failure> {
    let mut state = State { datasets: Vec::new(), trees: Vec::new() };
    let mut names = pool.datasets().names();
    names.sort();
    let own = pool.name();
    let shown = |name: &str| name.replacen(&own, "tank", 1);
    for name in names {
        let info = pool.datasets().dataset_info(&name).map_err(said)?;
        if info.encryption_root.as_deref() == Some(&name) && !info.key_loaded {
            pool.datasets().load_key(&name, &KEY, false).map_err(said)?;
        }
        let (fs, handle) = world::files(pool, &name).map_err(said)?;
        let files = Tree::of(&fs).map_err(|error| error.to_string());
        fs.forget_all();
        state.datasets.push((shown(&name), info.origin.map(|origin| shown(&origin))));
        state.trees.push((shown(&name), files?));
        for (snapshot, _) in handle.snapshots().list() {
            let opened =
                handle.snapshots().open(&snapshot).ok_or_else(|| format!("{snapshot} does not open"))?;
            let tree = opened.with(|dataset| Tree::of(&world::snapshot(dataset)).map_err(|e| e.to_string()));
            state.trees.push((shown(&format!("{name}@{snapshot}")), tree.ok_or("it is gone")??));
        }
    }
    Ok(state)
}

/// Some files of some sizes.
pub(crate) fn write_files(fs: &FileSystem, seed: u64) -> Result<(), Failure> {
    let mut draw = Draw(seed);
    for (number, bytes) in [100, 5000, 70_000, 300_000, 16_384].into_iter().enumerate() {
        let name = format!("f{number}").into_bytes();
        let _ = fs.unlink(Model::ROOT, &name);
        let made = fs.mknod(Caller::ROOT, Model::ROOT, &name, 0o100_644, 0);
        let made = made.map_err(|errno| format!("mknod gives {errno:?}"))?;
        let written = fs.write(made.ino, 0, &draw.bytes(bytes), false);
        written.map_err(|errno| format!("write gives {errno:?}"))?;
        fs.forget(made.ino, 1);
    }
    fs.forget_all();
    Ok(())
}
