//! The table of mounts of a pool.

use crate::engine::front::Mounted;
use crate::engine::mountpoints::unmake;
use crate::engine::state::ImportedPool;
use crate::refusal::{Code, Refusal};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl ImportedPool {
    /// Tells mounts at and below these names that their snapshots changed, and waits until the
    /// kernel knows.
    pub(super) fn note_snapshots<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let names: BTreeSet<&str> = names.into_iter().collect();
        let is_of = |name: &str| {
            std::iter::successors(Some(name), |name| above(name)).any(|name| names.contains(name))
        };
        let touched: Vec<Arc<dyn Mounted>> = {
            let mounts = self.mounts.lock();
            let touched = mounts.iter().filter(|(name, _)| is_of(name));
            touched.map(|(_, mount)| Arc::clone(&mount.served)).collect()
        };
        touched.iter().for_each(|served| served.note_snapshots());
        touched.iter().for_each(|served| served.await_notes());
    }

    /// The same for those of these snapshots that no longer exist: deferred ones go with their last
    /// hold or clone.
    pub(super) fn note_gone(&self, snapshots: &[String]) {
        let there: BTreeSet<String> = self.those_there(snapshots).into_iter().collect();
        let gone = snapshots.iter().filter(|name| !there.contains(*name));
        self.note_snapshots(gone.filter_map(|name| Some(name.split_once('@')?.0)));
    }

    /// Those of these snapshots, by full name, that exist.
    pub(super) fn those_there(&self, snapshots: &[String]) -> Vec<String> {
        let mut names: BTreeMap<&str, HashSet<String>> = BTreeMap::new();
        let mut there = Vec::new();
        for full in snapshots {
            let Some((fs, snapshot)) = full.split_once('@') else { continue };
            let list = || self.pool.datasets().snapshot_names(fs).unwrap_or_default().into_iter().collect();
            if names.entry(fs).or_insert_with(list).contains(snapshot) {
                there.push(full.clone());
            }
        }
        there
    }

    /// Makes the kernel write out dirty pages of mounted file systems, those of `chosen`, for a
    /// snapshot or a sync. Warns of pages that could not be written. The caller must not hold the
    /// turn of verbs: writes wait for a suspended pool, and only a verb ends that.
    pub(super) fn settle(&self, chosen: impl Fn(&str) -> bool) -> Vec<Refusal> {
        if self.pool.is_read_only() || self.pool.suspended().is_some() {
            return Vec::new();
        }
        let mounts: Vec<(String, Arc<dyn Mounted>)> = {
            let mounts = self.mounts.lock();
            let live = mounts.iter().filter(|(name, mount)| chosen(name) && !mount.served.has_ended());
            live.map(|(name, mount)| (name.clone(), Arc::clone(&mount.served))).collect()
        };
        let settle = |(name, served): (String, Arc<dyn Mounted>)| match served.settle() {
            Err(error) if !served.has_ended() => {
                let what = format!("dirty pages of '{name}' cannot be written: {error}");
                Some(Refusal::new(Code::FsCollected, what).with("fs", name))
            }
            _ => None,
        };
        mounts.into_iter().filter_map(settle).collect()
    }

    /// Forgets mounts that were unmounted without us.
    pub(super) fn reap(&self) {
        self.mounts.lock().retain(|_, mount| !mount.served.has_ended());
    }

    /// Ends a mount that umount(8) took away here and a copy in another mount namespace keeps.
    ///
    /// # Errors
    /// Files are open there.
    pub(super) fn end_detached(&self, name: &str) -> Result<(), Refusal> {
        let served = self.mounts.lock().get(name).map(|mount| Arc::clone(&mount.served));
        match served {
            Some(served) if !served.has_ended() && !served.is_attached() => served.unmount(false),
            _ => Ok(()),
        }
    }

    /// Path of a mounted file system.
    pub(super) fn mounted_at(&self, name: &str) -> Option<PathBuf> {
        self.mounts.lock().get(name).filter(|mount| !mount.served.has_ended()).map(|mount| mount.at.clone())
    }

    /// True if the kernel collects writes of a file system; `None` for one that is not mounted.
    pub(super) fn collects_writes(&self, name: &str) -> Option<bool> {
        let mounts = self.mounts.lock();
        let mount = mounts.get(name).filter(|mount| !mount.served.has_ended());
        mount.map(|mount| mount.served.collects_writes())
    }

    /// Mount options that differ from the properties.
    pub(super) fn options_of(&self, name: &str) -> Vec<String> {
        self.mounts.lock().get(name).map(|mount| mount.options.clone()).unwrap_or_default()
    }

    /// Paths of those that are mounted.
    pub(super) fn places_of(&self, names: &[String]) -> Vec<PathBuf> {
        names.iter().filter_map(|name| self.mounted_at(name)).collect()
    }

    /// Names of mounted file systems at and below `name`, parents first.
    pub(super) fn mounted_below(&self, name: &str) -> Vec<String> {
        self.reap();
        let below = format!("{name}/");
        let mounts = self.mounts.lock();
        let mut names: Vec<(PathBuf, String)> = mounts
            .iter()
            .filter(|(n, _)| *n == name || n.starts_with(&below))
            .map(|(n, mount)| (mount.at.clone(), n.clone()))
            .collect();
        // By path, not by name: an inner mount must be unmounted first.
        names.sort();
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// Renames mounts at and below `from` to `to`.
    pub(super) fn rename_mounts(&self, from: &str, to: &str) {
        let below = format!("{from}/");
        let mut mounts = self.mounts.lock();
        let moved: Vec<String> =
            mounts.keys().filter(|name| *name == from || name.starts_with(&below)).cloned().collect();
        for old in moved {
            let mount = mounts.remove(&old).expect("just listed");
            let new = format!("{to}{}", &old[from.len()..]);
            mount.name.lock().clone_from(&new);
            mounts.insert(new, mount);
        }
    }

    /// Unmounts one file system.
    pub(super) fn unmount(&self, name: &str, force: bool) -> Result<(), Refusal> {
        let Some(mount) = self.mounts.lock().remove(name) else {
            return Err(Refusal::new(Code::FsNotMounted, format!("'{name}' is not mounted")).with("fs", name));
        };
        // Cleanly first, so that the kernel writes out dirty pages; by force only if it is busy.
        let unmounted = match mount.served.unmount(false) {
            Err(refusal) if force && refusal.code == Code::FsBusy => mount.served.unmount(true),
            other => other,
        };
        if let Err(refusal) = unmounted {
            self.mounts.lock().insert(name.to_owned(), mount);
            return Err(refusal.with("fs", name));
        }
        // A folder inside another file system of the pool is data of that one. It stays: a
        // read-only import could not make it again.
        let made = mount.made.iter().filter(|folder| !self.is_inside_ours(folder)).cloned();
        unmake(&made.collect::<Vec<_>>());
        Ok(())
    }

    /// Lets the folders made for mounts stay when these are unmounted: `zfs unmount` of ZFS leaves
    /// them, and programs use them. A later mount there takes them over.
    pub(super) fn leave_folders(&self, names: &[String]) {
        let (mut mounts, mut folders) = (self.mounts.lock(), self.folders.lock());
        for name in names {
            if let Some(mount) = mounts.get_mut(name) {
                folders.insert(name.clone(), (mount.at.clone(), std::mem::take(&mut mount.made)));
            }
        }
    }

    /// Folders that were made for a mount of a file system there and were left.
    pub(super) fn take_folders(&self, name: &str, at: &Path) -> Vec<PathBuf> {
        let left = self.folders.lock().remove(name);
        left.filter(|(was, _)| was == at).map(|(_, folders)| folders).unwrap_or_default()
    }

    /// Removes the folders that were left of file systems which are destroyed.
    pub(super) fn remove_folders(&self, names: &[String]) {
        let left: Vec<_> = names.iter().filter_map(|name| self.folders.lock().remove(name)).collect();
        left.iter().for_each(|(_, folders)| unmake(folders));
    }

    /// True if a path lies inside a mounted file system of this pool.
    pub(super) fn is_inside_ours(&self, at: &Path) -> bool {
        self.mounts.lock().values().any(|mount| at != mount.at && at.starts_with(&mount.at))
    }
}

/// Name of the parent.
fn above(name: &str) -> Option<&str> {
    Some(name.rsplit_once('/')?.0)
}
