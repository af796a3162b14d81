//! File systems that are sent as they are now (`zfs send FILESYSTEM`): from a snapshot that is
//! taken for the stream and goes with it.
//!
//! A pool that is read-only does not change, so its snapshot is one in memory. A daemon that was
//! killed leaves one on a pool that is not: the next import destroys it.

use std::sync::{Arc, OnceLock};

use crate::api::FsSend;
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool};
use crate::refusal::{Code, Refusal};

/// Hexadecimal digits behind [`Live::CALLED`] in the name of such a snapshot: of the daemon, and of
/// the stream.
const DIGITS: usize = 16;

/// Tells snapshots of this daemon's streams from those that a killed one left.
static RUN: OnceLock<u32> = OnceLock::new();

/// Snapshot of a file system that is sent as it is now. It goes with the stream.
pub(super) struct Live {
    held: Arc<ImportedPool>,
    name: String,
}

impl Drop for Live {
    fn drop(&mut self) {
        let datasets = self.held.pool.datasets();
        match self.held.pool.is_read_only() {
            true => datasets.hide_head(&self.name),
            // If the pool is suspended it stays, and the next such stream takes it away.
            false => _ = datasets.destroy_snapshots(std::slice::from_ref(&self.name), false),
        }
    }
}

impl Live {
    /// Name under which it goes, as in ZFS.
    pub const CALLED: &str = "--head--";

    /// Takes a snapshot of the file system that is asked for, and lets the request ask for that
    /// instead.
    pub fn take(request: &mut FsSend, engine: &Engine) -> Result<Live, Refusal> {
        let fs = request.snapshot.clone();
        if request.recursive || request.intermediate {
            let what = "Unsupported flag with filesystem or bookmark";
            return Err(Refusal::new(Code::ApiRequest, what));
        }
        let _turn = engine.verbs.lock();
        let held = engine.held(&fs)?;
        let datasets = held.pool.datasets();
        datasets.dataset_info(&fs).map_err(refuse::pool)?;
        held.reap();
        let is_read_only = held.pool.is_read_only();
        if held.mounted_at(&fs).is_some() && !is_read_only {
            let what = format!("'{fs}' is mounted, and only what nobody can change goes without a snapshot");
            let refusal = Refusal::new(Code::FsBusy, what).with("fs", &fs);
            let action = format!("Unmount it, or take a snapshot and send that: `zfs snapshot {fs}@NAME`.");
            return Err(refusal.advising(&action));
        }
        let mut number = [0; DIGITS / 2];
        engine.env.random.fill(&mut number);
        let [run, tail] = [0, 4].map(|at| u32::from_le_bytes(number[at..at + 4].try_into().expect("four")));
        let prefix = format!("{}{:08x}", Live::CALLED, RUN.get_or_init(|| run));
        let name = format!("{fs}@{prefix}{tail:08x}");
        match is_read_only {
            true => datasets.show_head(&name).map_err(refuse::pool)?,
            false => {
                destroy_left(&held, &fs, |name| !name.starts_with(&prefix));
                let names = std::slice::from_ref(&name);
                datasets.take_snapshots(names, &Default::default()).map_err(refuse::pool)?;
            }
        }
        request.snapshot.clone_from(&name);
        Ok(Live { held: Arc::clone(&held), name })
    }
}

impl Engine {
    /// Destroys what a daemon left that was killed while it sent file systems as they were. For a
    /// pool that was imported just now.
    pub(in crate::engine) fn destroy_left_live(&self, held: &ImportedPool) {
        if held.pool.is_read_only() {
            return;
        }
        for name in held.pool.datasets().names() {
            destroy_left(held, &name, |_| true);
        }
    }
}

/// Destroys such snapshots of a file system, as far as they are left over. One that somebody cloned
/// stays.
fn destroy_left(held: &ImportedPool, fs: &str, is_left_over: impl Fn(&str) -> bool) {
    let is_live = |name: &&String| {
        let tail = name.strip_prefix(Live::CALLED).filter(|tail| tail.len() == DIGITS);
        tail.is_some_and(|tail| tail.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let datasets = held.pool.datasets();
    let names = datasets.snapshot_names(fs).unwrap_or_default();
    for name in names.iter().filter(is_live).filter(|name| is_left_over(name)) {
        let _ = datasets.destroy_snapshots(&[format!("{fs}@{name}")], false);
    }
}
