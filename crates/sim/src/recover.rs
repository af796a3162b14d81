//! What is asked of a state: that the pool in it opens, is sound, and lives on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use steadfast_env::{Bug, Env};
use steadfast_inspect::{Finding, Leaf, Request, Severity, check};
use steadfast_model::Model;
use steadfast_posix::{Caller, Errno};

use crate::draw::Draw;
use crate::log::Event;
use crate::pages::Image;
use crate::tree::Tree;
use crate::workload::{Failure, close};
use crate::world::{self, Disks, Setting};

/// Every recovery runs in the same world, so that it follows from what lies on the devices.
const RECOVERY: u64 = 0x00c0_ffee;

/// What came of a state.
pub struct Recovered {
    /// What the pool held.
    pub tree: Tree,
    /// What its import did to the devices.
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

fn panic_text(panic: Box<dyn std::any::Any + Send>) -> Failure {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    format!("it panics: {}", text.unwrap_or_default())
}

/// What is done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Care {
    /// Open, read everything.
    Read,
    /// And inspect before, write, close, inspect, open again.
    Live {
        /// A fault struck on the way, so a group may have given up a disk.
        struck: bool,
    },
}

/// Opens a pool and asks all that can be asked of it without knowing what it should hold.
///
/// # Errors
/// What is wrong with it.
pub fn recover(
    setting: &Setting,
    images: &[Image],
    care: Care,
    bug: Option<Bug>,
) -> Result<Recovered, Failure> {
    let result = catch_unwind(AssertUnwindSafe(|| attempt(setting, images, care, bug)));
    result.unwrap_or_else(|panic| Err(panic_text(panic)))
}

fn attempt(setting: &Setting, images: &[Image], care: Care, bug: Option<Bug>) -> Result<Recovered, Failure> {
    let env = world::env(RECOVERY, bug);
    let disks = Disks::new(setting, images);
    if let Care::Live { struck } = care {
        // What a crash leaves behind is a note or a copy less, never a block less.
        inspect(setting, &env, &disks, struck, &["label-copy", "uberblock-torn", "uberblock-few"])
            .map_err(|what| format!("inspected before: {what}"))?;
    }
    let pool = world::import(&env, &disks).map_err(|error| format!("import: {error}"))?;
    let mounted = world::mount(pool).map_err(|error| format!("mount: {error}"))?;
    let events = disks.log.take();
    let tree = Tree::of(&mounted.fs).map_err(|error| error.to_string())?;
    if let Care::Live { struck } = care {
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
    }
    Ok(Recovered { tree, events, reads: disks.log.reads() })
}

/// Checks everything offline; findings that are neither notes nor `allowed` are errors.
fn inspect(
    setting: &Setting,
    env: &Env,
    disks: &Disks,
    struck: bool,
    allowed: &[&str],
) -> Result<(), Failure> {
    let leaves: Vec<Leaf> = disks
        .handles()
        .into_iter()
        .map(|handle| Leaf { path: handle.path, device: Arc::clone(&handle.device) })
        .collect();
    let mut worst: Option<String> = None;
    // A store of objects keeps one copy of each label and uberblock.
    let single: &[&str] = if setting.objects { &["label-copy", "uberblock-few"] } else { &[] };
    // A device of a group that failed for a moment is given up, and what was written meanwhile lacks its column.
    let is_group = setting.redundancy != steadfast_pool::Redundancy::None;
    let spared: &[&str] = if struck && is_group { &["column-missing", "device-out"] } else { &[] };
    let mut found = |finding: Finding| {
        let (code, severity) = finding.class();
        let is_allowed = [allowed, single, spared].iter().any(|codes| codes.contains(&code));
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
