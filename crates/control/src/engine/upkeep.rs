//! Work in the background that no command asked for.
//!
//! - A removed or replaced device leaves its pool long after the command returned: it is dropped
//!   from the list of pools to import at the next start.
//! - `autoreplace=on`: a new device at the path of a missing or failed one replaces it, like
//!   `zpool replace`.
//! - `autoexpand=on`: a device that has grown is expanded, like `zpool online -e`.
//! - An import that recovered by itself, and named lost cells, is followed by a recovery
//!   (`recoveries.rs`), and so is one that finds that a recovery was cut off. The objects that it
//!   put back are held against their hashes.

use crate::api::PoolReplace;
use crate::caller::Caller;
use crate::engine::autoexpand::wants_expanding;
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::engine::{devices, recoveries};
use crate::memory::machine_bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use steadfast_device::{Medium, OpenOptions};
use steadfast_format::LeafState;

/// Time between two looks.
pub(super) const LOOK: Duration = Duration::from_secs(2);

impl Engine {
    /// One look at all pools: autoreplace, autoexpand, devices that left.
    pub fn look_after(&self) {
        let pools: Vec<(String, Arc<ImportedPool>)> =
            self.pools.read().iter().map(|(name, held)| (name.clone(), Arc::clone(held))).collect();
        for (name, held) in pools.iter().filter(|(_, held)| wants_replacing(held)) {
            self.replace_missing(name, held);
        }
        for (name, held) in pools.iter().filter(|(_, held)| wants_expanding(held)) {
            self.use_growth(name, held);
        }
        for (name, held) in pools.iter().filter(|(_, held)| wants_recovering(held)) {
            self.recover_again(name, held);
        }
        for (name, held) in pools.iter().filter(|(_, held)| wants_proving(held)) {
            let _turn = self.verbs.lock();
            if self.is_here(name, held) && wants_proving(held) {
                recoveries::begin_proof(held, &self.env);
            }
        }
        let mut moved = false;
        for (_, held) in &pools {
            moved |= held.follow_devices();
        }
        if moved && let Err(refusal) = self.remember() {
            eprintln!("steadfast: {}", refusal.what);
        }
    }

    /// Replaces missing and failed devices by new ones at their paths.
    fn replace_missing(&self, name: &str, held: &Arc<ImportedPool>) {
        for leaf in held.pool.state().leaves {
            let is_out =
                matches!(leaf.config.state, LeafState::Faulted | LeafState::Gone | LeafState::Spared);
            let path = PathBuf::from(&leaf.config.path);
            let (true, Some(medium)) = (is_out, Medium::of(&path)) else { continue };
            if self.backoff.lock().is_resting(&path, medium) {
                continue;
            }
            // With a label it is the old device, which `zpool online` brings back, or one of
            // another pool. Other contents must not be overwritten.
            let Ok(handle) = devices::open(&path, &OpenOptions::PEEK) else { continue };
            if devices::contents(&path).is_some() || steadfast_pool::label_of(&*handle.device).is_ok() {
                continue;
            }
            drop(handle);
            let command = format!("zpool replace {name} {} (autoreplace)", path.display());
            let caller = Caller {
                uid: 0,
                gid: 0,
                guest: false,
                pid: std::process::id(),
                command,
                descriptor: None,
                steps: None,
            };
            let request = PoolReplace { name: name.to_owned(), old: path.clone(), new: None, force: false };
            let _turn = self.verbs.lock();
            match request.run(self, &caller) {
                Ok(_) => {
                    self.backoff.lock().forget(&path);
                    eprintln!(
                        "steadfast: pool '{name}': {} is a new device, and replaces the missing one",
                        path.display()
                    );
                }
                Err(refusal) => self.let_rest(name, path, medium, "is new", refusal.what),
            }
        }
    }

    /// Begins the recovery behind which the code of a pool is made anew, or that goes on where one
    /// was cut off.
    fn recover_again(&self, name: &str, held: &Arc<ImportedPool>) {
        let _turn = self.verbs.lock();
        // A verb may have begun a recovery meanwhile.
        if self.is_here(name, held)
            && wants_recovering(held)
            && let Err(refusal) = recoveries::begin(held, &self.env, machine_bytes() / 4, (false, None))
        {
            eprintln!("steadfast: pool '{name}': its recovery cannot go on: {}", refusal.what);
        }
    }

    /// False if a verb has exported the pool meanwhile.
    fn is_here(&self, name: &str, held: &Arc<ImportedPool>) -> bool {
        self.pools.read().get(name).is_some_and(|now| Arc::ptr_eq(now, held))
    }

    /// Expands devices that have grown.
    fn use_growth(&self, name: &str, held: &Arc<ImportedPool>) {
        let _turn = self.verbs.lock();
        if !self.is_here(name, held) {
            return;
        }
        let is_due =
            |path: &Path| Medium::of(path).is_none_or(|medium| !self.backoff.lock().is_resting(path, medium));
        for (path, refusal) in self.expand_grown(held, name, is_due) {
            // A path without a medium is gone.
            if let Some(medium) = Medium::of(&path) {
                self.let_rest(name, path, medium, "has grown", refusal.what);
            }
        }
    }

    /// Notes that a device was refused, and prints a reason that was not printed before.
    fn let_rest(&self, name: &str, path: PathBuf, medium: Medium, found: &str, said: String) {
        let shown = path.display().to_string();
        if self.backoff.lock().refuse(path, medium, &said) {
            eprintln!("steadfast: pool '{name}': {shown} {found}, but {said}");
        }
    }
}

fn wants_replacing(held: &ImportedPool) -> bool {
    let is_on = held.pool.pool_props().get("autoreplace").is_some_and(|value| value == "on");
    is_on && !held.pool.is_read_only() && held.pool.suspended().is_none()
}

fn wants_recovering(held: &ImportedPool) -> bool {
    let is_begun = held.recoveries.has_begun() || held.pool.is_read_only();
    let devices = held.pool.devices();
    !is_begun && held.pool.suspended().is_none() && (devices.owes_rekey() || devices.owes_repair())
}

/// A recovery that goes on, or is due, looks at it itself.
fn wants_proving(held: &ImportedPool) -> bool {
    held.pool.devices().is_proof_due()
        && held.recoveries.progress().is_none()
        && !wants_recovering(held)
        && held.pool.suspended().is_none()
}

impl ImportedPool {
    /// Adds devices by the paths as typed, unless they are known already.
    pub(super) fn note_devices(&self, paths: Vec<PathBuf>) {
        let mut known = self.devices.write();
        for path in paths {
            if !known.contains(&path) {
                known.push(path);
            }
        }
    }

    /// Updates the list of the pool's devices. True if it changed.
    pub(super) fn follow_devices(&self) -> bool {
        let mut known = self.devices.write();
        // Asked under the lock of the list, so that no device that a verb adds meanwhile is
        // dropped.
        let now = self.pool.device_paths();
        // Paths as typed: the pool keeps them as text, and a path need not be UTF-8.
        let of = |path: &String| {
            let typed = known.iter().find(|typed| typed.display().to_string() == *path);
            typed.cloned().unwrap_or_else(|| PathBuf::from(path))
        };
        let now: Vec<PathBuf> = now.iter().map(of).collect();
        let is_same = now.len() == known.len() && now.iter().all(|path| known.contains(path));
        if !is_same {
            *known = now;
        }
        !is_same
    }
}
