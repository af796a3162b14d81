//! Mounts of received file systems that follow a tree: `docs/decisions/0128-following-a-tree.md`.
//!
//! Mounting must not change a received file system, or the next increment finds it modified. The
//! folder that a renamed file system is mounted over comes with the stream, in the file system
//! around it. So it is mounted when the whole stream is there. If the stream fails, it is mounted
//! at its old place; it moves to its mountpoint with the next stream, or when it is mounted again.

use crate::api::FsMount;
use crate::engine::front::FormerMount;
use crate::engine::mountpoints::is_there;
use crate::engine::state::{Engine, ImportedPool};
use crate::refusal::Refusal;
use std::path::PathBuf;
use std::sync::Arc;

impl Engine {
    /// Path at which a former mount belongs.
    fn home_of(&self, held: &ImportedPool, placed: &FormerMount) -> Option<PathBuf> {
        placed.at.clone().or_else(|| self.mountpoint(held, &placed.name).ok().flatten())
    }

    /// True if the mount must wait: its folder would have to be made in a file system of the pool,
    /// or another mount is still there, or an outer mount waits too.
    fn is_to_wait(&self, held: &ImportedPool, placed: &FormerMount, waiting: &[FormerMount]) -> bool {
        let Some(home) = self.home_of(held, placed) else { return false };
        let holds =
            |other: &FormerMount| self.home_of(held, other).is_some_and(|other| home.starts_with(other));
        let is_taken = held.mounts.lock().values().any(|mount| mount.at == home && !mount.served.has_ended());
        is_taken || waiting.iter().any(holds) || !is_there(&home) && held.is_inside_ours(&home)
    }

    /// Mounts former mounts again, except those that must wait.
    pub(in crate::engine) fn mount_or_wait(
        &self,
        held: &Arc<ImportedPool>,
        placed: Vec<FormerMount>,
        waiting: &mut Vec<FormerMount>,
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

    /// The whole stream was received: mounts new file systems, waiting mounts, and mounts that a
    /// failed stream left at their old path.
    pub(in crate::engine) fn mount_all_received(
        &self,
        held: &Arc<ImportedPool>,
        (target, new): (&str, Vec<String>),
        mut waiting: Vec<FormerMount>,
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

    /// The stream failed: waiting mounts are mounted at their mountpoint if its folder exists, else
    /// at their old path. Gives the names of those that are not at their mountpoint, each with a
    /// sentence.
    pub(in crate::engine) fn mount_back(
        &self,
        held: &Arc<ImportedPool>,
        mut waiting: Vec<FormerMount>,
    ) -> Vec<(String, String)> {
        waiting.sort_by_cached_key(|placed| self.home_of(held, placed));
        let mut away = Vec::new();
        let warnings = self.mount_or_wait(held, waiting, &mut away);
        let mut told: Vec<(String, String)> =
            warnings.into_iter().map(|refusal| (String::new(), format!("{}.", refusal.what))).collect();
        away.sort_by(|one: &FormerMount, other| one.was.cmp(&other.was));
        for FormerMount { name, was, options, .. } in away {
            let later = "because the folder of its mountpoint does not exist yet";
            let request = FsMount { name: name.clone(), at: Some(was.clone()), options, overlay: true };
            let mounted = is_there(&was) && self.mount(held, &request).is_ok();
            let sentence = match mounted {
                true => format!("'{name}' stays mounted at {}, {later}.", was.display()),
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

impl ImportedPool {
    /// True if it is mounted at the path of its old name.
    pub(in crate::engine) fn is_displaced(&self, name: &str) -> bool {
        self.mounts.lock().get(name).is_some_and(|mount| mount.displaced)
    }

    /// Names of such mounts at and below a name.
    fn displaced_below(&self, name: &str) -> Vec<String> {
        self.mounted_below(name).into_iter().filter(|name| self.is_displaced(name)).collect()
    }
}
