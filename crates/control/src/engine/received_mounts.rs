//! Where file systems are mounted that follow a stream: `docs/decisions/0128-following-a-tree.md`.
//!
//! What is received must not change by being mounted, or the next increment finds it changed. The directory that a file system of another
//! name is mounted over comes with the stream, in what it lies in, so it is mounted when all of the stream is there. If the stream fails
//! first, it is mounted where it was, and moves to its mountpoint with the next stream, or whenever else it is mounted again.

use super::mounts::Placed;
use super::{Engine, Held};
use crate::api::FsMount;
use crate::refusal::Refusal;
use std::path::PathBuf;
use std::sync::Arc;

impl Engine {
    /// Where something is to be mounted again.
    fn home_of(&self, held: &Held, placed: &Placed) -> Option<PathBuf> {
        placed.at.clone().or_else(|| self.mountpoint(held, &placed.name).ok().flatten())
    }

    /// True if mounting it would make something in a file system of the pool, or another one is still mounted there, or what it lies in waits.
    fn is_to_wait(&self, held: &Held, placed: &Placed, waiting: &[Placed]) -> bool {
        let Some(home) = self.home_of(held, placed) else { return false };
        let holds = |other: &Placed| self.home_of(held, other).is_some_and(|other| home.starts_with(other));
        let is_taken = held.mounts.lock().values().any(|mount| mount.at == home && !mount.served.has_ended());
        is_taken || waiting.iter().any(holds) || !home.exists() && held.is_inside_ours(&home)
    }

    /// Mounts again what was left for a moment. What would change what it lies in waits.
    pub(super) fn mount_or_wait(
        &self,
        held: &Arc<Held>,
        placed: Vec<Placed>,
        waiting: &mut Vec<Placed>,
    ) -> Vec<Refusal> {
        let mut warnings = Vec::new();
        for placed in placed {
            match self.is_to_wait(held, &placed, waiting) {
                true => waiting.push(placed),
                false => warnings.extend(self.mount_placed(held, vec![placed])),
            }
        }
        warnings
    }

    /// All was received: mounts what is new, what waits, and what a stream that failed left where it was.
    pub(super) fn mount_all_received(
        &self,
        held: &Arc<Held>,
        (target, new): (&str, Vec<String>),
        mut waiting: Vec<Placed>,
    ) -> Vec<Refusal> {
        let mut warnings = Vec::new();
        for name in held.displaced_below(target) {
            if held.mounted_at(&name).is_none() {
                continue;
            }
            match self.leave(held, &[name], false) {
                Ok(left) => waiting.extend(left),
                // It stays where it is.
                Err(refusal) => warnings.push(refusal),
            }
        }
        let names: Vec<String> = new.into_iter().chain(waiting.iter().map(|p| p.name.clone())).collect();
        warnings.extend(self.mount_these(held, names.into_iter(), waiting));
        warnings
    }

    /// Not all was received: what waits is mounted where it belongs, if there is a directory, or where it was. Gives names of what is not
    /// where it belongs, each with a sentence.
    pub(super) fn mount_back(&self, held: &Arc<Held>, mut waiting: Vec<Placed>) -> Vec<(String, String)> {
        waiting.sort_by_cached_key(|placed| self.home_of(held, placed));
        let mut away = Vec::new();
        let warnings = self.mount_or_wait(held, waiting, &mut away);
        let mut told: Vec<(String, String)> =
            warnings.into_iter().map(|refusal| (String::new(), format!("{}.", refusal.what))).collect();
        away.sort_by(|one: &Placed, other| one.was.cmp(&other.was));
        for Placed { name, was, options, .. } in away {
            let later = "until a stream brings the directory of its mountpoint";
            let request = FsMount { name: name.clone(), at: Some(was.clone()), options, overlay: true };
            let mounted = was.exists() && self.mount(held, &request).is_ok();
            let sentence = match mounted {
                true => format!("'{name}' is mounted at {}, where it was, {later}.", was.display()),
                false => format!("'{name}' is not mounted, {later}."),
            };
            if let Some(mount) = held.mounts.lock().get_mut(&name) {
                mount.displaced = mounted;
            }
            told.push((name, sentence));
        }
        told
    }
}

impl Held {
    /// Is it mounted where it was under another name?
    pub(super) fn is_displaced(&self, name: &str) -> bool {
        self.mounts.lock().get(name).is_some_and(|mount| mount.displaced)
    }

    /// Names of those at and below a name.
    fn displaced_below(&self, name: &str) -> Vec<String> {
        self.mounted_below(name).into_iter().filter(|name| self.is_displaced(name)).collect()
    }
}
