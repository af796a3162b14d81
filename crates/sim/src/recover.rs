//! Checks of a state: its pool opens, is sound, and lives on.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use steadfast_device::{Device, Operation};
use steadfast_env::{Bug, Env};
use steadfast_format::LeafState;
use steadfast_inspect::{Finding, Leaf, Request, Severity, check};
use steadfast_model::Model;
use steadfast_pool::{Redundancy, ScrubCommand};
use steadfast_posix::{Caller, Errno};

use crate::base::{Failure, close};
use crate::disk::{Effect, Fault};
use crate::draw::Draw;
use crate::log::Event;
use crate::pages::Image;
use crate::tree::Tree;
use crate::verbs;
use crate::world::{self, Disks, Mounted, Setting};

/// Every recovery runs in the same world, so that it follows from what lies on the devices.
const RECOVERY: u64 = 0x00c0_ffee;

/// Result of opening a state.
pub struct Recovered {
    /// Content of the pool.
    pub tree: Tree,
    /// Events on the devices during its import.
    pub events: Vec<Event>,
    /// Pages on which all of this depends, by device, in the order in which they were read.
    pub reads: Vec<(usize, u32)>,
}

/// Opens a pool that lay on a device which lied. `None` if the pool refuses.
///
/// # Errors
/// It panics.
pub fn recover_lied_to(
    setting: &Setting,
    images: &[Image],
    bug: Option<Bug>,
) -> Result<Option<Tree>, Failure> {
    let attempt = || {
        let disks = Disks::new(setting, images);
        let pool = world::import(&world::env(RECOVERY, bug), &disks).ok()?;
        let mounted = world::mount(pool).ok()?;
        Some(Tree::readable(&mounted.fs))
    };
    catch_unwind(AssertUnwindSafe(attempt)).map_err(panic_text)
}

/// Opens a pool without some of its disks, whose groups can do without them. With `after` they are
/// there, and fail for good after some operations that are drawn by it.
///
/// # Errors
/// It does not open, or something of it cannot be read.
pub fn recover_without(
    setting: &Setting,
    images: &[Image],
    away: &[usize],
    after: Option<u64>,
    bug: Option<Bug>,
) -> Result<Tree, Failure> {
    let attempt = || {
        let disks = Disks::new(setting, images);
        let env = world::env(RECOVERY, bug);
        let Some(turn) = after else { return tree_without(&env, &disks, away) };
        let mut draw = Draw(turn);
        for disk in away {
            for (operation, most) in [(Operation::Read, 80), (Operation::Write, 24), (Operation::Flush, 6)] {
                let skip = draw.below(most) as u64;
                disks.all[*disk].arm(Fault { operation, skip, times: u64::MAX, effect: Effect::Gone });
            }
        }
        tree_without(&env, &disks, &[])
    };
    catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|panic| Err(panic_text(panic)))
}

fn tree_without(env: &Env, disks: &Disks, away: &[usize]) -> Result<Tree, Failure> {
    let handles = disks.handles().into_iter().enumerate();
    let here = handles.filter(|(disk, _)| !away.contains(disk)).map(|(_, handle)| handle).collect();
    let pool = world::import_of(env, disks, here).map_err(|error| format!("import: {error}"))?;
    let mounted = world::mount(pool).map_err(|error| format!("mount: {error}"))?;
    Tree::of(&mounted.fs).map_err(|error| error.to_string())
}

fn panic_text(panic: Box<dyn std::any::Any + Send>) -> Failure {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    format!("it panics: {}", text.unwrap_or_default())
}

/// Extent of the checks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Checks<'a> {
    /// Open, read everything.
    Read,
    /// And inspect before, write, close, inspect, open again.
    Live {
        /// Effects that struck on the way.
        struck: FaultsSeen,
        /// Disks of which all that is wrong is mended at last, because their groups can spare them;
        /// then as many others are away.
        mends: &'a [usize],
    },
}

/// Effects that struck on the way to a state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FaultsSeen {
    /// None.
    None,
    /// Devices failed, and said so: a group may have given one up.
    Reported,
    /// Some were silent: devices that groups can spare may hold wrong bytes.
    Silent,
}

impl FaultsSeen {
    /// By these, on devices that groups can spare or on others.
    #[must_use]
    pub fn by(effects: &[Effect], spared: bool) -> FaultsSeen {
        // One that comes back without its cache and was only read meanwhile is not given up.
        let is_told = |effect: &Effect| effect.is_loud() && !matches!(effect, Effect::Away(_));
        match effects {
            [] => FaultsSeen::None,
            _ if spared && !effects.iter().all(is_told) => FaultsSeen::Silent,
            _ => FaultsSeen::Reported,
        }
    }

    /// Codes of what the check may find of it in a pool of that setting.
    fn findings(self, setting: &Setting) -> &'static [&'static str] {
        // A device of a group that failed for a moment is given up, and what was written meanwhile
        // lacks its column.
        const TOLD: &[&str] = &["column-missing", "device-out"];
        const UNTOLD: &[&str] = &[
            "column-missing",
            "device-out",
            "chunk-wrong",
            "parity-wrong",
            "label-copy",
            "log-copy",
            "log-side-old",
            "uberblock-few",
        ];
        match self {
            FaultsSeen::Reported if setting.redundancy != Redundancy::None => TOLD,
            FaultsSeen::Silent => UNTOLD,
            _ => &[],
        }
    }
}

/// Opens a pool and asks all that can be asked of it without knowing what it should hold.
///
/// # Errors
/// The first claim that does not hold.
pub fn recover(
    setting: &Setting,
    images: &[Image],
    care: Checks<'_>,
    bug: Option<Bug>,
) -> Result<Recovered, Failure> {
    let result = catch_unwind(AssertUnwindSafe(|| attempt(setting, images, care, bug)));
    result.unwrap_or_else(|panic| Err(panic_text(panic)))
}

fn attempt(
    setting: &Setting,
    images: &[Image],
    care: Checks<'_>,
    bug: Option<Bug>,
) -> Result<Recovered, Failure> {
    let env = world::env(RECOVERY, bug);
    let disks = Disks::new(setting, images);
    if let Checks::Live { struck, .. } = care {
        // A crash may leave a note or a copy less behind, never a block less.
        inspect(setting, &env, &disks, struck, &["label-copy", "uberblock-torn", "uberblock-few"])
            .map_err(|what| format!("inspected before: {what}"))?;
    }
    let pool = world::import(&env, &disks).map_err(|error| format!("import: {error}"))?;
    let mounted = world::mount(pool).map_err(|error| format!("mount: {error}"))?;
    let events = disks.log.take();
    let tree = Tree::of(&mounted.fs).map_err(|error| error.to_string())?;
    let mut reads = None;
    if let Checks::Live { struck, mends } = care {
        let errno = |what: &'static str| move |errno| format!("life goes on, {what}: {errno:?}");
        let (fs, mut draw) = (&mounted.fs, Draw(RECOVERY));
        // A full pool may refuse to take more, and must not refuse to give back.
        let refused = |errno: &Errno| setting.brim && *errno == Errno::ENOSPC;
        match fs.mknod(Caller::ROOT, Model::ROOT, b"life", 0o100_644, 0) {
            Err(errno) if refused(&errno) => {}
            made => {
                let made = made.map_err(errno("create"))?;
                let written = fs.write(made.ino, 0, &draw.bytes(5000), false);
                written
                    .map(|_| ())
                    .or_else(|no| if refused(&no) { Ok(()) } else { Err(no) })
                    .map_err(errno("write"))?;
                fs.forget(made.ino, 1);
            }
        }
        if let Ok(directory) = fs.lookup(Model::ROOT, b"A") {
            if let Ok(big) = fs.lookup(directory.ino, b"big") {
                let written = fs.write(big.ino, 5000, &draw.bytes(3000), false);
                written
                    .map(|_| ())
                    .or_else(|no| if refused(&no) { Ok(()) } else { Err(no) })
                    .map_err(errno("overwrite"))?;
                fs.forget(big.ino, 1);
            }
            if fs.lookup(directory.ino, b"foo").is_ok() {
                fs.unlink(directory.ino, b"foo").map_err(errno("unlink"))?;
            }
            fs.forget(directory.ino, 1);
        }
        let lived = Tree::of(fs).map_err(|error| error.to_string())?;
        close(mounted).map_err(|error| format!("close: {error}"))?;
        inspect(setting, &env, &disks, struck, &["uberblock-torn"])
            .map_err(|what| format!("inspected after: {what}"))?;
        let pool = world::import(&env, &disks).map_err(|error| format!("second import: {error}"))?;
        let again = world::mount(pool).map_err(|error| format!("second mount: {error}"))?;
        let found = Tree::of(&again.fs).map_err(|error| format!("second look: {error}"))?;
        if found != lived {
            return Err(format!("opened again: {}", lived.difference(&found)));
        }
        // The later checks are made of some states only, and must be the same for all.
        reads = Some(disks.log.reads());
        if !mends.is_empty() {
            mend(setting, &env, &disks, again, mends).map_err(|what| format!("mended: {what}"))?;
            let away = others(setting, mends);
            let told = |what: Failure| format!("mended, and without disks {away:?}: {what}");
            let found = tree_without(&env, &disks, &away).map_err(told)?;
            if found != lived {
                return Err(told(lived.difference(&found)));
            }
        }
    }
    Ok(Recovered { tree, events, reads: reads.unwrap_or_else(|| disks.log.reads()) })
}

/// Devices that were given up come back, and a scrub finds what is wrong on them: then the check
/// finds nothing, but for what was torn of old.
fn mend(
    setting: &Setting,
    env: &Env,
    disks: &Disks,
    mounted: Mounted,
    struck: &[usize],
) -> Result<(), Failure> {
    let pool = &mounted.pool;
    verbs::finish(pool)?;
    for leaf in pool.state().leaves.into_iter().filter(|leaf| leaf.config.state != LeafState::Online) {
        let path = leaf.config.path;
        let disk = struck.iter().map(|at| &disks.all[*at]).find(|disk| disk.character().identity == path);
        let disk = disk.ok_or_else(|| format!("{path} is out of use, and nothing struck it"))?;
        let open = || -> steadfast_pool::Result<Arc<dyn Device>> { Ok(Arc::clone(disk) as Arc<dyn Device>) };
        pool.online(&path, &open).map_err(|error| format!("{path} does not come back: {error}"))?;
    }
    verbs::finish(pool)?;
    pool.devices().scrub(ScrubCommand::Start).map_err(|error| format!("scrub: {error}"))?;
    verbs::finish(pool)?;
    verbs::whole(pool)?;
    close(mounted).map_err(|error| format!("close: {error}"))?;
    inspect(setting, env, disks, FaultsSeen::None, &["uberblock-torn"])
        .map_err(|what| format!("inspected: {what}"))
}

/// As many disks that were not struck as each group can spare.
fn others(setting: &Setting, struck: &[usize]) -> Vec<usize> {
    let of = |(devices, spared): (Range<usize>, usize)| {
        devices.filter(|disk| !struck.contains(disk)).take(spared).collect::<Vec<usize>>()
    };
    let segments = setting.groups().into_iter().filter(|(devices, _)| devices.end <= setting.disks);
    segments.flat_map(of).collect()
}

/// Checks everything offline; findings that are neither notes nor `allowed` are errors.
fn inspect(
    setting: &Setting,
    env: &Env,
    disks: &Disks,
    struck: FaultsSeen,
    allowed: &[&str],
) -> Result<(), Failure> {
    let leaves: Vec<Leaf> = disks
        .handles()
        .into_iter()
        .map(|handle| Leaf { path: handle.path, device: Arc::clone(&handle.device) })
        .collect();
    let mut worst: Option<String> = None;
    let spared = struck.findings(setting);
    let mut found = |finding: Finding| {
        let (code, severity) = finding.class();
        let is_allowed = [allowed, spared].iter().any(|codes| codes.contains(&code));
        if severity > Severity::Note && !is_allowed && worst.is_none() {
            worst = Some(finding.to_string());
        }
    };
    let record = disks.record();
    let request =
        Request { leaves: &leaves, secret: disks.secret().map(<[u8]>::to_vec), anchor: record.as_ref(), env };
    check(&request, &mut found);
    worst.map_or(Ok(()), Err)
}
