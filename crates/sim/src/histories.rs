//! Random histories of file systems, volumes, snapshots, clones, promotions, streams and ways back,
//! and of content that is shared between files, beside a model that knows all of them as copies,
//! with the power gone at any write of their last steps. A checkpoint of the pool is a copy of the
//! whole model.
//!
//! ## Invariants
//! [histories.1] Each step answers as the model does, and after it everything is what the model
//!      says.
//! [histories.2] The state found after a crash is the model's state after some step, whole: all
//!      file systems, all snapshots, all origins. Not more steps than had begun, and no fewer than
//!      those up to the last change of snapshots or clones that had returned.
//! [histories.3] If the state found has a checkpoint, then the model had one after that step, and
//!      whatever is written meanwhile, the pool can be taken back to that copy.
//! [histories.4] The offline check finds nothing, and what was being freed comes back: then it
//!      finds nothing either.

use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use steadfast_model::Id;
use steadfast_model::forest::{Forest, Refused};
use steadfast_pool::{Error, Pool, ReceiveSpec, SendSpec, VolumeSpec};

use crate::base::Failure;
use crate::cut::{Cutter, Depth, Moment, print};
use crate::draw::Draw;
use crate::log::EventKind;
use crate::op::{At, Op, Path, Sides};
use crate::pages::Image;
use crate::tree::Tree;
use crate::verbs::{Counts, Machine, State, state_of};
use crate::verbs_streams::{into, of, receive, send};
use crate::world::{self, Disks, SETTINGS, Setting};

/// Steps that are not cut, and those that are.
const STEPS: usize = 24;
const CUT_STEPS: usize = 4;
/// File systems at most, and snapshots of each.
const LINES_MAX: usize = 5;
const SNAPSHOTS_MAX: usize = 4;
/// Settings of pools, by their places: plain, units of 512 bytes, encrypted, a mirror, and two on
/// which equal content is stored once.
const OF_SETTINGS: [usize; 6] = [0, 6, 7, 18, 21, 22];
/// Settings of pools that have a checkpoint: plain, encrypted, an anchor (alone; encrypted, with
/// two disks), raidz1 (alone; beside a special mirror; with a device that is full soon), dedup.
const OF_CHECKPOINTS: [usize; 8] = [0, 7, 9, 10, 19, 20, 24, 21];
/// How often files are written over before a state that has a checkpoint goes back to it: slots
/// that are free are used again.
const CHANGES_BESIDE: usize = 4;
/// Steps between a checkpoint and its end, at most.
const BESIDE_MAX: usize = 3;
/// Bytes of a record, or some of them: what is copied from such a place to such a place is shared.
const RECORD: usize = 16 << 10;

/// Blocks of volumes, and how many a volume has at most.
const BLOCK: u32 = 8 << 10;
const BLOCKS_MAX: usize = 8;

const FILES: [Path; 4] = ["a", "b", "c", "d"];

/// The cut steps of a history.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Theme {
    /// Any.
    Copies,
    /// A checkpoint, some others, the way back or the discard, and one more.
    Checkpoint,
}

/// One step.
#[derive(Clone, Debug)]
enum Step {
    File(String, Op),
    Snapshot(String),
    DestroySnapshot(String),
    Rollback(String),
    Clone(String, String),
    Promote(String),
    Destroy(String),
    /// Snapshot, the older one that the receiver is to have, the receiver, and whether it is to
    /// give up what it has beyond.
    Receive(String, Option<String>, String, bool),
    /// A clone's snapshot, its origin, and a name for another clone of that.
    ReceiveClone(String, String, String),
    Volume(String, usize),
    Grow(String, usize),
    /// So many bytes from there on, into a volume.
    Fill(String, usize, usize),
    /// So many of a hundred blocks that only one pointer leads to are known by content no more.
    Prune(u8),
    Sync,
    /// Takes a checkpoint of the pool.
    Checkpoint,
    /// Discards it.
    Discard,
    /// Takes the pool back to it: a pool that was closed, or one as a crash of its program leaves
    /// it.
    GoBack(bool),
}

/// Everything that a pool shows, and showed at its checkpoint.
#[derive(Clone)]
struct Stand {
    now: Arc<State>,
    checkpoint: Option<Arc<State>>,
}

/// The model of all file systems.
#[derive(Clone)]
struct Sets {
    forest: Forest,
    /// Numbers that the stack gave the nodes of each file system's model.
    inos: BTreeMap<String, BTreeMap<Id, u64>>,
}

/// Both sides.
struct History {
    machine: Machine,
    /// None only while it is taken back.
    pool: Option<Pool>,
    model: Sets,
    checkpoint: Option<Sets>,
    draw: Draw,
    named: usize,
}

/// Runs the history of a seed, cuts the end of it anywhere, and judges one in `every` of the
/// states.
///
/// # Errors
/// The first claim that does not hold.
pub fn explore(theme: Theme, seed: u64, every: u64) -> Result<Counts, Failure> {
    let places: &[usize] = match theme {
        Theme::Copies => &OF_SETTINGS,
        Theme::Checkpoint => &OF_CHECKPOINTS,
    };
    let at = usize::try_from(seed % places.len() as u64).expect("small");
    let setting = &SETTINGS[places[at]];
    let told = |what: String| format!("history {seed} ({}): {what}", setting.name);
    let mut history = History::begin(setting, seed).map_err(told)?;
    for _ in 0..STEPS {
        let step = history.draw_step();
        history.take(&step).map_err(|what| told(format!("{step:?}: {what}")))?;
    }
    if theme == Theme::Checkpoint && history.draw.percent(30) {
        // The one that is cut is the second.
        for at in 0..=BESIDE_MAX + 1 {
            let step = history.draw_beside(at, BESIDE_MAX);
            history.take(&step).map_err(|what| told(format!("{step:?}: {what}")))?;
        }
    }
    history.compare().map_err(told)?;
    history.pool().sync().map_err(|error| told(error.to_string()))?;
    let images = history.machine.disks.images();
    let _ = history.machine.disks.log.take();
    // The expected state after each step, and whether it was durable when the step returned.
    let mut stands = vec![history.stand(None)];
    let mut durable = Vec::new();
    let mut steps = Vec::new();
    let beside = 1 + history.draw.below(BESIDE_MAX);
    let count = match theme {
        Theme::Copies => CUT_STEPS,
        Theme::Checkpoint => beside + 3,
    };
    for index in 0..count {
        let step = match theme {
            Theme::Copies => history.draw_step(),
            Theme::Checkpoint => history.draw_beside(index, beside),
        };
        history.machine.disks.log.note(0, EventKind::Begin(index));
        durable.push(history.take(&step).map_err(|what| told(format!("{steps:?}, {step:?}: {what}")))?);
        history.machine.disks.log.note(0, EventKind::Return(index));
        stands.push(history.stand(stands.last()));
        steps.push(step);
    }
    history.compare().map_err(|what| told(format!("{steps:?}: {what}")))?;
    let events = history.machine.disks.log.take();
    drop(history);
    let mut counts = Counts::default();
    let mut seen = HashSet::new();
    let depth = Depth { all_below: 3, drawn: 6, ..Depth::SECOND };
    Cutter::new(images, depth, seed ^ 0x7e4b).walk(&events, |moment, fates, images| {
        counts.states += 1;
        if !seen.insert(print(&images)) || !(seen.len() as u64).is_multiple_of(every) {
            return Ok(());
        }
        counts.opened += 1;
        let floor = (0..moment.returned).rev().find(|at| durable[*at]).map_or(0, |at| at + 1);
        let back = judge(setting, &images, &stands[floor..=moment.begun]).map_err(|what| {
            let Moment { event, begun, .. } = moment;
            told(format!("power lost after event {event}, in step {begun} of {steps:?}, {fates:?}: {what}"))
        })?;
        counts.back += u64::from(back);
        Ok::<_, Failure>(())
    })?;
    Ok(counts)
}

/// [histories.2], [histories.3], [histories.4] True if the state had a checkpoint.
fn judge(setting: &Setting, images: &[Image], allowed: &[Stand]) -> Result<bool, Failure> {
    let attempt = || {
        let machine = Machine { env: world::env(0xc0f, None), disks: Disks::unheard(setting, images) };
        let pool = world::import(&machine.env, &machine.disks).map_err(|error| format!("import: {error}"))?;
        let found = state_of(&pool)?;
        if !allowed.iter().any(|stand| *stand.now == found) {
            return Err(allowed[allowed.len() - 1].now.difference(&found));
        }
        let is_kept = pool.checkpoint_status().is_some();
        let of_it = |stand: &&Stand| *stand.now == found && stand.checkpoint.is_some() == is_kept;
        let stand =
            allowed.iter().find(of_it).ok_or_else(|| format!("its checkpoint is there: {is_kept}"))?;
        if setting.sealed {
            hold_manifests(&pool)?;
        }
        at_rest(&machine, &pool, &found)?;
        pool.export().map_err(|error| format!("export: {error}"))?;
        drop(pool);
        machine.inspect()?;
        stand.checkpoint.iter().try_for_each(|checkpoint| judge_back(&machine, checkpoint))?;
        Ok(is_kept)
    };
    catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|_| Err("it panics".to_owned()))
}

/// Lets all come to its end that goes on in the background; then everything is as it was.
fn at_rest(machine: &Machine, pool: &Pool, found: &State) -> Result<(), Failure> {
    machine.finish(pool)?;
    for _ in 0..200 {
        if pool.datasets().freeing() == 0 {
            break;
        }
        pool.sync().map_err(|error| error.to_string())?;
    }
    if pool.datasets().freeing() > 0 {
        return Err(format!("{} bytes are never freed", pool.datasets().freeing()));
    }
    let after = state_of(pool)?;
    if after == *found { Ok(()) } else { Err(format!("afterwards: {}", found.difference(&after))) }
}

/// [histories.3]
fn judge_back(machine: &Machine, checkpoint: &State) -> Result<(), Failure> {
    let Machine { env, disks } = machine;
    {
        let pool = world::import(env, disks).map_err(|error| format!("beside its checkpoint: {error}"))?;
        (0..CHANGES_BESIDE).try_for_each(|_| machine.change(&pool))?;
    }
    let pool = world::import_back(env, disks).map_err(|error| format!("back to the checkpoint: {error}"))?;
    let found = state_of(&pool)?;
    if found != *checkpoint {
        return Err(format!("back at the checkpoint: {}", checkpoint.difference(&found)));
    }
    if pool.checkpoint_status().is_some() {
        return Err("the checkpoint is there still".to_owned());
    }
    at_rest(machine, &pool, &found).map_err(|what| format!("back at the checkpoint: {what}"))?;
    pool.export().map_err(|error| format!("export, back at the checkpoint: {error}"))?;
    drop(pool);
    machine.inspect().map_err(|what| format!("back at the checkpoint: {what}"))?;
    let pool = world::import(env, disks).map_err(|error| format!("after the way back: {error}"))?;
    let again = state_of(&pool)?;
    if again == found { Ok(()) } else { Err(format!("after the way back: {}", found.difference(&again))) }
}

/// Sends every snapshot raw, whole and upon the one before it: where assertions are on, what
/// manifests say is held against the trees.
fn hold_manifests(pool: &Pool) -> Result<(), Failure> {
    for name in pool.datasets().names() {
        let snapshots = pool.datasets().snapshot_names(&name).map_err(|error| error.to_string())?;
        let mut before = None;
        for snapshot in snapshots.into_iter().map(|snapshot| format!("{name}@{snapshot}")) {
            for base in std::iter::once(None).chain(before.take().map(Some)) {
                let spec = SendSpec { snapshot: snapshot.clone(), base, raw: true, ..SendSpec::default() };
                let sent = pool.streams().send(&[spec], &mut std::io::sink(), &mut |_, _| ());
                sent.map_err(|error| format!("{snapshot} is not sent raw: {error}"))?;
            }
            before = Some(snapshot);
        }
    }
    Ok(())
}

impl History {
    fn begin(setting: &Setting, seed: u64) -> Result<History, Failure> {
        let env = world::env(seed, None);
        let machine = Machine { env, disks: Disks::blank(setting) };
        let pool = world::create(&machine.env, &machine.disks).map_err(|error| error.to_string())?;
        let root = BTreeMap::from([(steadfast_model::Model::ROOT, steadfast_model::Model::ROOT)]);
        let inos = BTreeMap::from([("tank".to_owned(), root)]);
        let model = Sets { forest: Forest::new("tank"), inos };
        let draw = Draw(seed ^ 0x4157);
        Ok(History { machine, pool: Some(pool), model, checkpoint: None, draw, named: 0 })
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("nobody takes it back")
    }

    /// Step `at` of a history with a checkpoint, beside which some others are done.
    fn draw_beside(&mut self, at: usize, beside: usize) -> Step {
        match at {
            0 => Step::Checkpoint,
            at if at == beside + 1 => match self.draw.below(3) {
                0 => Step::Discard,
                end => Step::GoBack(end == 1),
            },
            _ => self.draw_step(),
        }
    }

    fn name(&mut self) -> String {
        self.named += 1;
        format!("n{}", self.named)
    }

    fn draw_step(&mut self) -> Step {
        let names: Vec<String> = self.model.forest.lines().map(|(name, _)| name.clone()).collect();
        let name = self.draw.pick(&names).clone();
        let snapshots = self.model.forest.snapshots();
        let count = self
            .model
            .forest
            .lines()
            .find(|(known, _)| **known == name)
            .map_or(0, |(_, l)| l.snapshots.len());
        // Sometimes what is not there.
        let snapshot = match snapshots.is_empty() || self.draw.percent(3) {
            true => format!("{name}@none"),
            false => self.draw.pick(&snapshots).clone(),
        };
        let volume = self
            .model
            .forest
            .lines()
            .find(|(known, _)| **known == name)
            .and_then(|(_, l)| l.now.volume_bytes());
        match self.draw.below(28) {
            0..=7 if volume.is_some() => {
                let bytes = volume.expect("looked at just now");
                let at = self.draw.below(bytes);
                Step::Fill(name, at, 1 + self.draw.below(bytes - at))
            }
            0..=7 => {
                let at = self.draw.below(FILES.len());
                let path = FILES[at];
                let from = FILES[(at + 1 + self.draw.below(FILES.len() - 1)) % FILES.len()];
                let op = match self.draw.below(12) {
                    0 => Op::Unlink(path),
                    1 => Op::Truncate(path, self.draw.below(60_000)),
                    2..=3 => Op::Create(path),
                    4 => Op::Write(path, At::End, 1 + self.draw.below(9_000)),
                    5..=7 => Op::Write(path, At::Byte(self.draw.below(30_000)), 1 + self.draw.below(40_000)),
                    // Whole records, which are shared, and parts of some, which are not.
                    8 => Op::Copy(from, path, RECORD * self.draw.below(3), RECORD * (1 + self.draw.below(4))),
                    9 => Op::Copy(from, path, self.draw.below(30_000), 1 + self.draw.below(60_000)),
                    _ => Op::Repeat(from, path),
                };
                Step::File(name, op)
            }
            8..=10 if count < SNAPSHOTS_MAX => Step::Snapshot(format!("{name}@{}", self.name())),
            8..=12 => Step::DestroySnapshot(snapshot),
            13 => Step::Rollback(snapshot),
            14..=15 if names.len() < LINES_MAX => Step::Clone(snapshot, format!("tank/{}", self.name())),
            14..=15 => Step::Destroy(name),
            16..=17 => Step::Promote(name),
            18 => Step::Destroy(name),
            19..=22 => self.draw_receive(&snapshots, &names, &snapshot),
            23 if names.len() < LINES_MAX => Step::Volume(
                format!("tank/{}", self.name()),
                BLOCK as usize * (1 + self.draw.below(BLOCKS_MAX)),
            ),
            23..=24 => Step::Grow(name, BLOCK as usize * (1 + self.draw.below(BLOCKS_MAX))),
            25 => Step::Prune(*self.draw.pick(&[20, 50, 100])),
            _ => Step::Sync,
        }
    }

    /// Mostly what can be received: an increment into what has an older snapshot of the same name,
    /// or all of one into something new.
    fn draw_receive(&mut self, snapshots: &[String], names: &[String], snapshot: &str) -> Step {
        let force = self.draw.percent(60);
        let halves = |full: &str| -> (String, String) {
            let (fs, name) = full.split_once('@').expect("a snapshot");
            (fs.to_owned(), name.to_owned())
        };
        let (from, _) = halves(snapshot);
        let own: Vec<&String> = snapshots.iter().filter(|full| halves(full).0 == from).collect();
        let mut increments = Vec::new();
        for (at, base) in own.iter().enumerate() {
            let has = |other: &&String| halves(other).0 != from && halves(other).1 == halves(base).1;
            for other in snapshots.iter().filter(has) {
                increments.extend(own[at + 1..].iter().map(|new| (*new, *base, halves(other).0)));
            }
        }
        if !increments.is_empty() && self.draw.percent(75) {
            let (new, base, target) = self.draw.pick(&increments).clone();
            return Step::Receive(new.clone(), Some(base.clone()), target, force);
        }
        let origin = self
            .model
            .forest
            .lines()
            .find(|(name, _)| **name == from)
            .and_then(|(_, line)| line.origin.clone());
        if let Some(origin) = origin.filter(|_| names.len() < LINES_MAX && own.iter().any(|o| *o == snapshot))
        {
            return Step::ReceiveClone(snapshot.to_owned(), origin, format!("tank/{}", self.name()));
        }
        let target = match names.len() < LINES_MAX && self.draw.percent(80) {
            true => format!("tank/{}", self.name()),
            false => self.draw.pick(names).clone(),
        };
        Step::Receive(snapshot.to_owned(), None, target, force)
    }

    /// [histories.1] True if it is durable.
    fn take(&mut self, step: &Step) -> Result<bool, Failure> {
        let (model, real) = match step {
            Step::File(name, op) => {
                self.change(name, *op)?;
                return Ok(false);
            }
            Step::Sync => {
                self.pool().sync().map_err(|error| error.to_string())?;
                return Ok(true);
            }
            Step::Checkpoint => {
                self.pool().checkpoint().map_err(|error| error.to_string())?;
                self.checkpoint = Some(self.model.clone());
                return Ok(true);
            }
            Step::Discard => {
                self.pool().discard_checkpoint().map_err(|error| error.to_string())?;
                self.checkpoint = None;
                return Ok(true);
            }
            Step::GoBack(closed) => {
                self.go_back(*closed)?;
                return Ok(true);
            }
            Step::Prune(percent) => {
                self.pool().prune_known(None, Some(*percent)).map_err(|error| error.to_string())?;
                return Ok(true);
            }
            Step::Snapshot(name) => (
                self.model.forest.snapshot(name),
                self.pool().datasets().take_snapshots(std::slice::from_ref(name), &Default::default()),
            ),
            Step::DestroySnapshot(name) => (
                self.model.forest.destroy_snapshot(name),
                self.pool().datasets().destroy_snapshots(std::slice::from_ref(name), false),
            ),
            Step::Rollback(name) => (self.model.forest.rollback(name), self.pool().datasets().rollback(name)),
            Step::Clone(snapshot, name) => {
                let model = self.model.forest.clone_of(snapshot, name);
                let of = snapshot.split('@').next().unwrap_or_default();
                if model.is_ok() {
                    let inos = self.model.inos[of].clone();
                    self.model.inos.insert(name.clone(), inos);
                }
                (model, self.pool().datasets().clone_snapshot(snapshot, name, Default::default()).map(drop))
            }
            Step::Promote(name) => {
                let real = self.pool().datasets().promote(name);
                if matches!(real, Err(Error::KeyBorder { .. })) && self.would_take_the_pools_key(name) {
                    return Ok(false);
                }
                (self.model.forest.promote(name), real)
            }
            Step::Receive(snapshot, base, target, force) => {
                let origin = |name: &str| {
                    let line = self.model.forest.lines().find(|(known, _)| *known == name);
                    line.and_then(|(_, line)| line.origin.clone())
                };
                let is_clone = origin(target).is_some();
                let real = send(self.pool(), of(snapshot, base.as_deref()))
                    .and_then(|stream| receive(self.pool(), &into(target, *force), &stream));
                if is_clone && matches!(real, Err(Error::TargetIsClone { .. })) {
                    return Ok(false);
                }
                // Volumes and what is encrypted keep their content while others lie below.
                if matches!(real, Err(Error::InPlace { .. })) && self.model.forest.stays(target) {
                    return Ok(false);
                }
                let name = snapshot.split('@').nth(1).unwrap_or_default();
                let is_there = base.is_some()
                    && self.model.forest.lines().any(|(known, line)| {
                        *known == *target && line.snapshots.iter().any(|(known, _)| known == name)
                    });
                let mut model = self.model.forest.receive(snapshot, base.as_deref(), target, *force);
                if model == Err(Refused::Modified) && real.is_ok() && !self.model.forest.is_changed(target) {
                    // It was about to change, and nothing came of it.
                    model = self.model.forest.receive(snapshot, base.as_deref(), target, true);
                }
                if is_there && model.is_ok() && real.is_ok() {
                    // Nothing was done, so nothing is durable by it.
                    return Ok(false);
                }
                if model.is_ok() {
                    // Nodes keep their numbers, and older snapshots may have some that the newest
                    // has no more.
                    let from = snapshot.split('@').next().unwrap_or_default();
                    let mut inos = self.model.inos.get(target).cloned().unwrap_or_default();
                    inos.extend(self.model.inos[from].clone());
                    self.model.inos.insert(target.clone(), inos);
                }
                (model, real)
            }
            Step::ReceiveClone(snapshot, origin, target) => {
                let spec = ReceiveSpec { origin: Some(origin.clone()), ..into(target, false) };
                let real = send(self.pool(), of(snapshot, Some(origin)))
                    .and_then(|stream| receive(self.pool(), &spec, &stream));
                let model = self.model.forest.receive_clone(snapshot, origin, target);
                if model.is_ok() {
                    let from = snapshot.split('@').next().unwrap_or_default();
                    self.model.inos.insert(target.clone(), self.model.inos[from].clone());
                }
                (model, real)
            }
            Step::Volume(name, bytes) => {
                let model = self.model.forest.create_volume(name, *bytes);
                let root = BTreeMap::from([(steadfast_model::Model::ROOT, steadfast_model::Model::ROOT)]);
                self.model.inos.insert(name.clone(), root);
                let spec = VolumeSpec { bytes: *bytes as u64, block_bytes: BLOCK };
                (model, self.pool().datasets().create_volume(name, Default::default(), None, spec).map(drop))
            }
            Step::Grow(name, bytes) => (
                self.model.forest.grow_volume(name, *bytes),
                self.pool().datasets().grow_volume(name, *bytes as u64),
            ),
            Step::Fill(name, at, bytes) => {
                self.fill(name, *at, *bytes)?;
                return Ok(false);
            }
            Step::Destroy(name) => {
                let model = self.model.forest.destroy(name);
                if model.is_ok() {
                    self.model.inos.remove(name);
                }
                (model, self.pool().datasets().destroy_with_snapshots(name))
            }
        };
        let refused = real.as_ref().err().map(reason);
        match (model, refused) {
            (Ok(()), None) => Ok(true),
            (Err(model), Some(Some(real))) if model == real => Ok(false),
            (model, _) => Err(format!("the model says {model:?}, the pool {real:?}")),
        }
    }

    fn go_back(&mut self, closed: bool) -> Result<(), Failure> {
        if closed {
            self.pool().close().map_err(|error| error.to_string())?;
        }
        self.pool = None;
        let pool = world::import_back(&self.machine.env, &self.machine.disks);
        self.pool = Some(pool.map_err(|error| error.to_string())?);
        self.model = self.checkpoint.take().ok_or("the model has no checkpoint")?;
        Ok(())
    }

    /// Of a sealed pool its own file system stays the encryption root, of which the model knows
    /// nothing.
    fn would_take_the_pools_key(&self, name: &str) -> bool {
        let origin = self
            .model
            .forest
            .lines()
            .find(|(known, _)| *known == name)
            .and_then(|(_, line)| line.origin.as_ref());
        self.pool().is_sealed() && origin.is_some_and(|origin| origin.starts_with("tank@"))
    }

    fn fill(&mut self, name: &str, at: usize, bytes: usize) -> Result<(), Failure> {
        let bytes = self.draw.bytes(bytes);
        let model = self.model.forest.now(name).ok_or("the model has no such volume")?;
        model.write(steadfast_model::Model::ROOT, at, &bytes).map_err(|errno| format!("errno {errno}"))?;
        let (fs, handle) = world::files(self.pool(), name).map_err(|error| error.to_string())?;
        let written = fs.write(steadfast_model::Model::ROOT, at as u64, &bytes, false);
        drop((fs, handle));
        written.map(drop).map_err(|errno| format!("write gives {errno:?}"))
    }

    fn change(&mut self, name: &str, op: Op) -> Result<(), Failure> {
        let (fs, handle) = world::files(self.pool(), name).map_err(|error| error.to_string())?;
        let model = self.model.forest.now(name).ok_or("the model has no such file system")?;
        let mut sides = Sides {
            fs: &fs,
            model,
            inos: self.model.inos.get_mut(name).ok_or("nothing is known of its numbers")?,
            draw: &mut self.draw,
            wait: &|| (),
            interval: &|| Ok(None),
            room: &|| Ok(()),
            always: false,
            set: &|_, _| Ok(()),
        };
        let applied = sides.apply(op).map(drop).map_err(|error| error.text);
        fs.forget_all();
        drop((fs, handle));
        applied
    }

    /// Of the model, behind what it showed before.
    fn stand(&self, before: Option<&Stand>) -> Stand {
        let now = Arc::new(self.expected());
        let known = before.and_then(|stand| stand.checkpoint.clone());
        Stand { checkpoint: self.checkpoint.as_ref().map(|_| known.unwrap_or_else(|| Arc::clone(&now))), now }
    }

    /// State of the model.
    fn expected(&self) -> State {
        let mut state = State { datasets: Vec::new(), trees: Vec::new() };
        for (name, line) in self.model.forest.lines() {
            let inos = &self.model.inos[name];
            state.datasets.push((name.clone(), line.origin.clone()));
            state.trees.push((name.clone(), Tree::of_model(&line.now, inos)));
            for (snapshot, model) in &line.snapshots {
                state.trees.push((format!("{name}@{snapshot}"), Tree::of_model(model, inos)));
            }
        }
        state
    }

    fn compare(&self) -> Result<(), Failure> {
        let (expected, found) = (self.expected(), state_of(self.pool())?);
        if expected == found { Ok(()) } else { Err(expected.difference(&found)) }
    }
}

/// Meaning of a refusal of the pool.
fn reason(error: &Error) -> Option<Refused> {
    Some(match error {
        Error::NoSuchSnapshot { .. } | Error::NoSuchDataset { .. } => Refused::Absent,
        Error::SnapshotExists { .. }
        | Error::DatasetExists { .. }
        | Error::DestinationExists { .. }
        | Error::PromoteConflict { .. } => Refused::Exists,
        Error::HasClones { .. } => Refused::Clones,
        Error::YoungerSnapshots { .. } | Error::BaseNotYoungest { .. } | Error::HasSnapshots { .. } => {
            Refused::Younger
        }
        Error::Modified { .. } => Refused::Modified,
        Error::NotVolume { .. } | Error::VolumeShrinks { .. } => Refused::Kind,
        Error::NoBase { .. } => Refused::Absent,
        Error::NotClone { .. } => Refused::NotClone,
        Error::HasChildren { .. } | Error::RootDataset { .. } => Refused::Needed,
        _ => return None,
    })
}
