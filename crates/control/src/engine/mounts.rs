//! Mounting and unmounting file systems of a pool: order, mountpoints, keys.

use crate::api::FsMount;
use crate::engine::desk::Desk;
use crate::engine::front::{FormerMount, Mount, MountSettings, Mounted, UsageOf};
use crate::engine::mountpoints;
use crate::engine::mountpoints::{Shape, unmake};
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool};
use crate::refusal::{Code, Refusal};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadfast_posix::Usage;

impl Engine {
    /// Effective value of a property.
    pub(super) fn value(&self, held: &ImportedPool, name: &str, property: &str) -> Result<String, Refusal> {
        let resolved =
            held.pool.datasets().resolve(name, property, &self.mount_base()).map_err(refuse::pool)?;
        Ok(resolved.map(|r| r.value).unwrap_or_default())
    }

    /// True if the mountpoint is set, here or above.
    fn is_chosen(&self, held: &ImportedPool, name: &str) -> Result<bool, Refusal> {
        let resolved =
            held.pool.datasets().resolve(name, "mountpoint", &self.mount_base()).map_err(refuse::pool)?;
        Ok(resolved.is_some_and(|r| r.source != steadfast_property::Source::Default))
    }

    /// True if the mountpoint is set on the dataset itself.
    pub(super) fn is_set_here(&self, held: &ImportedPool, name: &str) -> Result<bool, Refusal> {
        use steadfast_property::Source;
        let resolved =
            held.pool.datasets().resolve(name, "mountpoint", &self.mount_base()).map_err(refuse::pool)?;
        Ok(resolved.is_some_and(|resolved| matches!(resolved.source, Source::Local | Source::Received)))
    }

    /// Mountpoint of a file system, with the altroot; `None` for `none` and `legacy`.
    pub(super) fn mountpoint(&self, held: &ImportedPool, name: &str) -> Result<Option<PathBuf>, Refusal> {
        let value = self.value(held, name, "mountpoint")?;
        Ok(value.starts_with('/').then(|| mountpoints::under(held.altroot.as_deref(), &value)))
    }

    /// Mounts one file system as asked.
    pub(super) fn mount(&self, held: &Arc<ImportedPool>, request: &FsMount) -> Result<(), Refusal> {
        let name = request.name.as_str();
        held.reap();
        if request.options.iter().any(|option| option == "remount") {
            return self.remount_as(held, request);
        }
        let info = held.pool.datasets().dataset_info(name).map_err(refuse::pool)?;
        held.end_detached(name)?;
        if let Some(at) = held.mounted_at(name) {
            let what = format!("'{name}' is already mounted at {}", at.display());
            return Err(Refusal::new(Code::FsMounted, what).with("fs", name));
        }
        if self.value(held, name, "canmount")? == "off" && request.at.is_none() {
            return Err(Refusal::new(Code::FsCanmount, format!("'{name}' has canmount=off")).with("fs", name));
        }
        if info.volume.is_some() && self.value(held, name, "volmode")? == "none" {
            return Err(Refusal::new(Code::FsCanmount, format!("'{name}' has volmode=none")).with("fs", name));
        }
        if info.encryption_root.is_some() && !info.key_loaded {
            let root = info.encryption_root.unwrap_or_default();
            let what = format!("the key of '{name}' is not loaded");
            return Err(Refusal::new(Code::KeyNeeded, what).with("fs", root));
        }
        let at = match (&request.at, self.mountpoint(held, name)?) {
            (Some(at), _) => at.clone(),
            (None, Some(at)) => at,
            (None, None) => {
                let what = format!("'{name}' has mountpoint=none or mountpoint=legacy");
                return Err(Refusal::new(Code::FsCanmount, what).with("fs", name));
            }
        };
        let settings = self.settings(held, name, &request.options)?;
        if !settings.allow_other && self.is_inside_a_mount(&at) {
            let what = format!("{} is inside another mount of this daemon", at.display());
            return Err(Refusal::new(Code::FuseNested, what).with("fs", name));
        }
        // Mounts below it would be out of reach. They come back on top of it, except those in use.
        let mut below = Vec::new();
        for placed in self.placed_under(held, &at).into_iter().rev() {
            if held.unmount(&placed.name, false).is_ok() {
                below.insert(0, placed);
            }
        }
        let mounted = self.mount_there(held, request, at);
        let left_out = self.mount_placed(held, below).into_iter().next();
        mounted.and(left_out.map_or(Ok(()), Err))
    }

    /// Mounts one file system, of which all was checked that needs no look at the folder.
    fn mount_there(&self, held: &Arc<ImportedPool>, request: &FsMount, at: PathBuf) -> Result<(), Refusal> {
        let name = request.name.as_str();
        let info = held.pool.datasets().dataset_info(name).map_err(refuse::pool)?;
        let settings = self.settings(held, name, &request.options)?;
        let options = self.telling(held, name, &request.options)?;
        self.front.clear_stale(&at);
        let shape = Shape::of(&info);
        let mut made = mountpoints::prepare(&at, request.overlay || self.is_overlay(held, name)?, shape)?;
        made.extend(held.take_folders(name, &at));
        made.sort();
        made.dedup();
        // The folder of a default mountpoint is ours, even if a killed daemon made it.
        let chosen = request.at.is_some() || self.is_chosen(held, name)?;
        if made.is_empty() && !chosen {
            made.push(at.clone());
        }
        let handle = held.pool.datasets().open_dataset(name).map_err(refuse::pool)?;
        let called = Arc::new(Mutex::new(name.to_owned()));
        let now = self.settings_at_mount(held, name, &settings)?;
        match self.front.mount(handle, &at, &now, usage_of(held, Arc::clone(&called))) {
            Ok(served) => {
                let served: Arc<dyn Mounted> = Arc::from(served);
                served.set_desk(Arc::new(Desk::new(&self.me, Arc::clone(&called))));
                let (displaced, share) = (false, None);
                let mount = Mount { served, at, settings, options, made, name: called, displaced, share };
                held.mounts.lock().insert(name.to_owned(), mount);
                if let Err(refusal) = self.share(held, name) {
                    eprintln!("steadfast: '{name}' is mounted and not shared: {}", refusal.what);
                }
                Ok(())
            }
            Err(refusal) => {
                unmake(&made);
                Err(refusal.with("fs", name))
            }
        }
    }

    /// True if `overlay=on` allows a mount over a folder that is not empty.
    pub(super) fn is_overlay(&self, held: &ImportedPool, name: &str) -> Result<bool, Refusal> {
        let overlay =
            held.pool.datasets().resolve(name, "overlay", &self.mount_base()).map_err(refuse::pool)?;
        let info = held.pool.datasets().dataset_info(name).map_err(refuse::pool)?;
        // The default is for folders: a file at the path of a volume is somebody's data.
        let counts = |resolved: &steadfast_property::Resolved| {
            info.volume.is_none() || resolved.source != steadfast_property::Source::Default
        };
        Ok(overlay.filter(counts).is_some_and(|resolved| resolved.value == "on"))
    }

    /// Gives a mount other options.
    fn remount_as(&self, held: &Arc<ImportedPool>, request: &FsMount) -> Result<(), Refusal> {
        // By its path: the source that the kernel lists is its name at the time of the mount.
        let at_place = |at: &PathBuf| {
            let mounts = held.mounts.lock();
            mounts.iter().find(|(_, mount)| mount.at == *at).map(|(name, _)| name.clone())
        };
        let found = request.at.as_ref().and_then(at_place);
        let name = found.as_deref().unwrap_or(&request.name);
        let settings = self.settings(held, name, &request.options)?;
        let options = self.telling(held, name, &request.options)?;
        let mut mounts = held.mounts.lock();
        match mounts.get_mut(name) {
            Some(mount) if request.at.as_ref().is_none_or(|at| *at == mount.at) => {
                mount.served.remount(&settings).map_err(|refusal| refusal.with("fs", name))?;
                (mount.options, mount.settings) = (options, mount.settings.remounted_as(&settings));
                drop(mounts);
                if settings.read_only {
                    commit_last(held);
                }
                Ok(())
            }
            _ => {
                let place = request.at.as_ref().map_or(String::new(), |at| format!(" at {}", at.display()));
                let what = format!("'{name}' is not mounted{place}, so its mount options cannot be changed");
                Err(Refusal::new(Code::FsNotMounted, what).with("fs", name))
            }
        }
    }

    /// Gives all that is mounted at and below a name the options that its properties say now, while
    /// it is in use. An option that only a new mount has waits for one if the mount is busy.
    pub(super) fn remount_below(&self, held: &Arc<ImportedPool>, name: &str) -> Vec<Refusal> {
        let mut warnings = Vec::new();
        for placed in self.placed_below(held, name) {
            match self.remount_in_use(held, &placed) {
                Ok(true) => {}
                Ok(false) => return self.mount_anew(held, name),
                Err(refusal) => warnings.push(until_next_mount(refusal)),
            }
        }
        warnings.extend(self.count_each_read(held, name));
        warnings
    }

    /// Mounts those anew at and below a name where each read counts, and the kernel answers some of
    /// them since it collects writes. One that is in use goes on so, and a note tells of it
    /// (decision 0302).
    fn count_each_read(&self, held: &Arc<ImportedPool>, name: &str) -> Vec<Refusal> {
        let mut warnings = Vec::new();
        for name in held.mounted_below(name) {
            let counts = held.mounts.lock().get(&name).is_some_and(|mount| mount.settings.counts_each_read());
            if counts && held.collects_writes(&name) == Some(true) {
                let noted = |warning: Refusal| match warning.code {
                    Code::FsBusy => held.uncounted_reads(&name),
                    _ => warning,
                };
                warnings.extend(self.mount_anew(held, &name).into_iter().map(noted));
            }
        }
        warnings
    }

    /// False if it needs a new mount.
    fn remount_in_use(&self, held: &Arc<ImportedPool>, placed: &FormerMount) -> Result<bool, Refusal> {
        let name = placed.name.as_str();
        let wanted = self.settings(held, name, &placed.options)?;
        let found =
            held.mounts.lock().get(name).map(|mount| (Arc::clone(&mount.served), mount.settings.clone()));
        let Some((served, had)) = found else { return Ok(true) };
        // Its source is its name at the time of the mount.
        let had = MountSettings { source: wanted.source.clone(), ..had };
        if had == wanted {
            return Ok(true);
        }
        if had.remounted_as(&wanted) != wanted {
            return Ok(false);
        }
        match served.remount(&wanted) {
            Ok(()) => {}
            // Only root may.
            Err(refusal) if refusal.code == Code::FuseMount => return Ok(false),
            Err(refusal) => return Err(refusal.with("fs", name)),
        }
        let is_last = wanted.read_only;
        if let Some(mount) = held.mounts.lock().get_mut(name) {
            mount.settings = wanted;
        }
        if is_last {
            commit_last(held);
        }
        Ok(true)
    }

    /// Mounts everything at and below a name anew, unless something of it is busy.
    fn mount_anew(&self, held: &Arc<ImportedPool>, name: &str) -> Vec<Refusal> {
        match self.leave(held, &[name.to_owned()], false) {
            Ok(left) => self.mount_placed(held, left),
            Err(refusal) => vec![until_next_mount(refusal)],
        }
    }

    /// Mounts a read-only file system anew whose kernel collects writes, unless it is in use: the
    /// kernel keeps sizes of files, and a read-only mount cannot be told others (decision 0298).
    pub(super) fn mount_as_read_only(&self, held: &Arc<ImportedPool>, name: &str) -> Vec<Refusal> {
        let is_read_only = held.mounts.lock().get(name).is_some_and(|mount| mount.settings.read_only);
        if !is_read_only || held.collects_writes(name) != Some(true) {
            return Vec::new();
        }
        let mut warnings = self.mount_anew(held, name);
        warnings.retain(|warning| warning.code != Code::FsBusy);
        warnings
    }

    fn is_inside_a_mount(&self, at: &Path) -> bool {
        let holds = |held: &Arc<ImportedPool>| {
            held.mounts.lock().values().any(|mount| at.starts_with(&mount.at) && !mount.served.has_ended())
        };
        self.pools.read().values().any(holds)
    }

    /// Mounts everything at and below `name` that mounts automatically and whose key is loaded.
    /// Failures are warnings.
    pub(super) fn mount_below(&self, held: &Arc<ImportedPool>, name: &str) -> Vec<Refusal> {
        self.mount_below_again(held, name, Vec::new())
    }

    /// The same after [`Engine::leave`]: former mounts are mounted again with their options, also
    /// those with `canmount=noauto`; at their old path if that was not their mountpoint.
    pub(super) fn mount_below_again(
        &self,
        held: &Arc<ImportedPool>,
        name: &str,
        left: Vec<FormerMount>,
    ) -> Vec<Refusal> {
        let below = format!("{name}/");
        let names = held.pool.datasets().names().into_iter().filter(|n| n == name || n.starts_with(&below));
        self.mount_these(held, names, left)
    }

    /// Mounts those of these file systems that mount automatically or were mounted before.
    pub(super) fn mount_these(
        &self,
        held: &Arc<ImportedPool>,
        names: impl Iterator<Item = String>,
        left: Vec<FormerMount>,
    ) -> Vec<Refusal> {
        let mut left: BTreeMap<String, FormerMount> =
            left.into_iter().map(|placed| (placed.name.clone(), placed)).collect();
        let mut warnings = Vec::new();
        let mut planned: Vec<(PathBuf, FsMount)> = Vec::new();
        for name in names {
            let was = left.remove(&name);
            let elsewhere = was.as_ref().and_then(|placed| placed.at.clone());
            let wanted = || -> Result<Option<PathBuf>, Refusal> {
                let info = held.pool.datasets().dataset_info(&name).map_err(refuse::pool)?;
                let locked = info.encryption_root.is_some() && !info.key_loaded;
                let hidden = info.volume.is_some() && self.value(held, &name, "volmode")? == "none";
                if locked || hidden || held.mounted_at(&name).is_some() {
                    return Ok(None);
                }
                match (elsewhere.clone(), self.value(held, &name, "canmount")?.as_str()) {
                    (Some(at), _) => Ok(Some(at)),
                    (None, "on") => self.mountpoint(held, &name),
                    (None, "noauto") if was.is_some() => self.mountpoint(held, &name),
                    (None, _) => Ok(None),
                }
            };
            match wanted() {
                Ok(Some(at)) => {
                    let overlay = was.as_ref().is_some_and(|placed| placed.was == at);
                    let options = was.map(|placed| placed.options).unwrap_or_default();
                    planned.push((at, FsMount { name, at: elsewhere, options, overlay }));
                }
                Ok(None) => {}
                Err(refusal) => warnings.push(refusal),
            }
        }
        // By path: an inner mount comes after the outer one.
        planned.sort_by(|(at, one), (place, other)| (at, &one.name).cmp(&(place, &other.name)));
        let count = planned.len();
        for (at, (_, request)) in planned.into_iter().enumerate() {
            self.step("mounting", at, count);
            if let Err(mut refusal) = self.mount(held, &request) {
                refusal.what = format!("'{}' is not mounted: {}", request.name, refusal.what);
                warnings.push(refusal);
            }
        }
        warnings
    }

    /// Unmounts everything at and below `name`, or nothing.
    pub(super) fn unmount_below(
        &self,
        held: &Arc<ImportedPool>,
        name: &str,
        force: bool,
    ) -> Result<Vec<String>, Refusal> {
        let left = self.leave(held, &[name.to_owned()], force)?;
        Ok(left.into_iter().rev().map(|placed| placed.name).collect())
    }

    /// Unmounts everything at and below these names, one name after the other, or nothing: if one
    /// is refused, the others are mounted again. Gives the former mounts in the order in which
    /// [`Engine::mount_placed`] can mount them again.
    pub(super) fn leave(
        &self,
        held: &Arc<ImportedPool>,
        names: &[String],
        force: bool,
    ) -> Result<Vec<FormerMount>, Refusal> {
        let mut left: Vec<FormerMount> = Vec::new();
        let is_watched = self.verbs.are_watched();
        let mounted: BTreeSet<String> = match is_watched {
            true => names.iter().flat_map(|name| held.mounted_below(name)).collect(),
            false => BTreeSet::new(),
        };
        for name in names {
            for placed in self.placed_below(held, name).into_iter().rev() {
                self.step("unmounting", left.len(), mounted.len());
                if let Err(refusal) = held.unmount(&placed.name, force) {
                    // They were mounted a moment ago; even if that fails now, the refusal below is
                    // reported.
                    let _ = self.mount_placed(held, left);
                    return Err(refusal);
                }
                left.insert(0, placed);
            }
        }
        Ok(left)
    }

    /// Folders of former mounts that have them from the name of the dataset or from one above, and
    /// inside a file system of the pool: nobody chose them. Outermost first.
    pub(super) fn given_places(
        &self,
        held: &ImportedPool,
        left: &[FormerMount],
    ) -> Result<Vec<PathBuf>, Refusal> {
        let mut places = Vec::new();
        for former in left.iter().filter(|former| former.at.is_none() && held.is_inside_ours(&former.was)) {
            if !self.is_set_here(held, &former.name)? {
                places.push(former.was.clone());
            }
        }
        places.sort();
        Ok(places)
    }

    /// Mounts former mounts again, at their path and with their options.
    pub(super) fn mount_placed(&self, held: &Arc<ImportedPool>, placed: Vec<FormerMount>) -> Vec<Refusal> {
        placed.into_iter().filter_map(|placed| self.mount_again(held, placed).err()).collect()
    }

    /// Mounts one again, unless it is mounted by now. Contents of its folder were there before.
    pub(super) fn mount_again(&self, held: &Arc<ImportedPool>, placed: FormerMount) -> Result<bool, Refusal> {
        let FormerMount { name, was, at, options } = placed;
        if held.mounted_at(&name).is_some() {
            return Ok(false);
        }
        let own = || self.mountpoint(held, &name).ok().flatten();
        let overlay = at.is_some() || own().is_some_and(|own| own == was);
        let request = FsMount { name, at, options, overlay };
        self.mount(held, &request).map(|()| true).map_err(|mut refusal| {
            refusal.what = format!("'{}' is not mounted: {}", request.name, refusal.what);
            refusal
        })
    }

    /// Mounts at and below a name, outermost first.
    pub(super) fn placed_below(&self, held: &Arc<ImportedPool>, name: &str) -> Vec<FormerMount> {
        held.mounted_below(name).into_iter().filter_map(|name| self.placed(held, name)).collect()
    }

    /// Mounts of the pool at places below a path, outermost first.
    fn placed_under(&self, held: &Arc<ImportedPool>, path: &Path) -> Vec<FormerMount> {
        let mut names: Vec<(PathBuf, String)> = {
            let mounts = held.mounts.lock();
            let under = mounts.iter().filter(|(_, mount)| mount.at != path && mount.at.starts_with(path));
            under.map(|(name, mount)| (mount.at.clone(), name.clone())).collect()
        };
        names.sort();
        names.into_iter().filter_map(|(_, name)| self.placed(held, name)).collect()
    }

    fn placed(&self, held: &Arc<ImportedPool>, name: String) -> Option<FormerMount> {
        let was = held.mounted_at(&name)?;
        let own = self.mountpoint(held, &name).ok().flatten();
        let at = Some(was.clone()).filter(|at| Some(at) != own.as_ref() && !held.is_displaced(&name));
        let options = held.options_of(&name);
        Some(FormerMount { name, was, at, options })
    }
}

/// A mount has become read-only, or was ended by a command: what was written before is made
/// durable, as by file systems of the kernel. A pool that cannot commit now tells of it by itself.
pub(super) fn commit_last(held: &ImportedPool) {
    let pool = &held.pool;
    if !pool.is_read_only() && pool.suspended().is_none() && pool.store_away().is_none() {
        let _ = pool.sync();
    }
}

impl ImportedPool {
    /// The command that mounts a file system anew. Those that are mounted below it go with it.
    pub(super) fn words_to_mount_anew(&self, name: &str) -> String {
        let all = if self.mounted_below(name).len() > 1 { "-R " } else { "" };
        format!("`zfs unmount {name} && zfs mount {all}{name}`")
    }

    /// The note that the kernel answers reads of a file system where each of them counts.
    fn uncounted_reads(&self, name: &str) -> Refusal {
        let anew = self.words_to_mount_anew(name);
        let what = format!(
            "'{name}' is in use, so the kernel goes on collecting writes there: a read through a descriptor that is also open \
             for writing moves no access time. To have each read count, mount it anew: {anew} (ATIME-COLLECTED)"
        );
        Refusal::new(Code::AtimeCollected, what).with("fs", name)
    }
}

/// A property is set, and its mount does not have it yet.
fn until_next_mount(mut refusal: Refusal) -> Refusal {
    refusal.what = format!("the new value takes effect at the next mount: {}", refusal.what);
    refusal
}

/// Space for `df`: bytes of the file system, and bytes available to it.
pub(super) fn usage_of(held: &Arc<ImportedPool>, name: Arc<Mutex<String>>) -> UsageOf {
    // Weak, because the pool holds the mount.
    let held = Arc::downgrade(held);
    Arc::new(move || {
        let name = name.lock().clone();
        let info = held.upgrade().and_then(|held| held.pool.datasets().dataset_info(&name).ok());
        info.map_or_else(Usage::default, |info| Usage {
            used_bytes: info.referenced,
            available_bytes: info.available,
        })
    })
}
