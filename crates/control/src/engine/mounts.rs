//! Where file systems are mounted, and the rules of mounting: order, mountpoints, keys.

use super::{Engine, Held, refuse};
use crate::api::{FsMount, FsUnmount, Outcome};
use crate::refusal::{Code, Refusal};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadfast_pool::{DatasetHandle, DatasetInfo};
use steadfast_posix::Usage;

/// How one file system is to be mounted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MountSettings {
    /// What `df` shows: the file system's name.
    pub source: String,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Set-user-id bits count.
    pub setuid: bool,
    /// Device nodes work.
    pub devices: bool,
    /// Reads are recorded.
    pub atime: bool,
    /// Reads are recorded at most once a day.
    pub relatime: bool,
    /// POSIX access control lists are kept and count.
    pub acl: bool,
    /// Extended attributes of users are kept and shown.
    pub xattr: bool,
    /// New names have to be UTF-8.
    pub utf8_only: bool,
    /// Users other than the daemon's may enter.
    pub allow_other: bool,
    /// Switches of the transport, `NAME=VALUE` each.
    pub switches: Vec<String>,
}

/// Tells how full a file system is, each time it is asked.
pub type UsageOf = Arc<dyn Fn() -> Usage + Send + Sync>;

/// Makes mounts. Passed in, so that tests need no kernel.
pub trait Front: Send + Sync {
    /// Mounts a dataset at a folder that exists, and serves it until it is unmounted. The handle lives as long as the
    /// mount.
    ///
    /// # Errors
    /// [`Code::FuseMissing`], [`Code::FuseMount`].
    fn mount(
        &self,
        dataset: DatasetHandle,
        at: &Path,
        settings: &MountSettings,
        usage: UsageOf,
    ) -> Result<Box<dyn Mounted>, Refusal>;

    /// May users other than the daemon's enter its mounts? Root may say so, others if the administrator lets them. The
    /// owner's bits and modes count in either case.
    fn may_allow_other(&self) -> bool;

    /// Frees a folder at which a server that died has left a mount. True if there was one.
    fn clear_stale(&self, at: &Path) -> bool;
}

/// A mount that is served.
pub trait Mounted: Send + Sync {
    /// Was it unmounted, by whomever?
    fn has_ended(&self) -> bool;

    /// Unmounts it. With `force` even if files are open.
    ///
    /// # Errors
    /// [`Code::FsBusy`], [`Code::FuseMount`].
    fn unmount(&self, force: bool) -> Result<(), Refusal>;

    /// Changes how it is mounted, while files stay open. Who may enter does not change.
    ///
    /// # Errors
    /// [`Code::FsBusy`] if files are open for writing and it is to be read-only, [`Code::FuseMount`].
    fn remount(&self, settings: &MountSettings) -> Result<(), Refusal>;

    /// Waits until all that programs have written is with the file system, whatever the kernel collected of it.
    ///
    /// # Errors
    /// What was collected could not be written.
    fn settle(&self) -> std::io::Result<()>;

    /// Snapshots came or went, or are listed now or no more.
    fn note_snapshots(&self);

    /// Waits until that is known wherever it is asked for; not for ever.
    fn await_notes(&self);
}

/// A file system that is or was mounted.
pub(super) struct Placed {
    pub name: String,
    /// Where it was.
    pub was: PathBuf,
    /// The same, if that is not where its mountpoint says.
    pub at: Option<PathBuf>,
    /// With what that differs from its properties.
    pub options: Vec<String>,
}

/// One entry of the mount table.
pub(super) struct Mount {
    pub served: Arc<dyn Mounted>,
    pub at: PathBuf,
    /// What it was mounted with that differs from its properties, as long as it is mounted, and when we mount it again as it was.
    pub options: Vec<String>,
    /// Folders we made for it, outermost first; we remove them again.
    pub made: Vec<PathBuf>,
    /// Its file system's name, which a rename changes: shared with what tells `df` how full it is.
    pub name: Arc<Mutex<String>>,
    /// It is where it was under another name, and moves to its mountpoint when it is mounted again.
    pub displaced: bool,
}

impl Held {
    /// Tells mounts at and below names that their snapshots are not what they were. Who is answered after that and lists them sees it.
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

    /// Tells mounts of those of some snapshots, by their full names, that are not there any more: they went with what kept them.
    pub(super) fn note_gone(&self, snapshots: &[String]) {
        let there: BTreeSet<String> = self.those_there(snapshots).into_iter().collect();
        let gone = snapshots.iter().filter(|name| !there.contains(*name));
        self.note_snapshots(gone.filter_map(|name| Some(name.split_once('@')?.0)));
    }

    /// Those of some snapshots, by their full names, that are there.
    pub(super) fn those_there(&self, snapshots: &[String]) -> Vec<String> {
        let mut names: BTreeMap<&str, HashSet<String>> = BTreeMap::new();
        let mut there = Vec::new();
        for full in snapshots {
            let Some((fs, snapshot)) = full.split_once('@') else { continue };
            let list = || self.pool.snapshot_names(fs).unwrap_or_default().into_iter().collect();
            if names.entry(fs).or_insert_with(list).contains(snapshot) {
                there.push(full.clone());
            }
        }
        there
    }

    /// Waits until mounted file systems, those of `chosen`, have what the kernel collected for them, so that a snapshot has it too, and warns of
    /// those that it cannot be written to. Must not be called by who holds the turn of verbs: writes wait for a pool that is suspended, and it is
    /// verbs that end that.
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
                let what = format!("what the kernel collected for '{name}' cannot be written: {error}");
                Some(Refusal::new(Code::FsCollected, what).with("fs", name))
            }
            _ => None,
        };
        mounts.into_iter().filter_map(settle).collect()
    }

    /// Forgets mounts that someone unmounted behind our back.
    pub(super) fn reap(&self) {
        self.mounts.lock().retain(|_, mount| !mount.served.has_ended());
    }

    /// Where a file system is mounted, if it is.
    pub(super) fn mounted_at(&self, name: &str) -> Option<PathBuf> {
        self.mounts.lock().get(name).filter(|mount| !mount.served.has_ended()).map(|mount| mount.at.clone())
    }

    /// What a file system was mounted with that differs from its properties.
    pub(super) fn options_of(&self, name: &str) -> Vec<String> {
        self.mounts.lock().get(name).map(|mount| mount.options.clone()).unwrap_or_default()
    }

    /// Where these are mounted that are.
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
        // By place, not by name: what is mounted inside another is what must go first.
        names.sort();
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// What was mounted at and below `from` is called `to` now.
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
        // In order first, so that the kernel hands over what it still holds; by force only what is busy.
        let unmounted = match mount.served.unmount(false) {
            Err(refusal) if force && refusal.code == Code::FsBusy => mount.served.unmount(true),
            other => other,
        };
        if let Err(refusal) = unmounted {
            self.mounts.lock().insert(name.to_owned(), mount);
            return Err(refusal.with("fs", name));
        }
        // A folder inside another file system of the pool is data of that one: a read-only import can mount there only
        // if it is still there.
        let made = mount.made.iter().filter(|folder| !self.is_inside_ours(folder)).cloned();
        unmake(&made.collect::<Vec<_>>());
        Ok(())
    }

    /// Does a place lie inside a mounted file system of this pool?
    pub(super) fn is_inside_ours(&self, at: &Path) -> bool {
        self.mounts.lock().values().any(|mount| at != mount.at && at.starts_with(&mount.at))
    }
}

impl Engine {
    /// Value of a property that counts.
    pub(super) fn value(&self, held: &Held, name: &str, property: &str) -> Result<String, Refusal> {
        let resolved = held.pool.resolve(name, property, &self.mount_base()).map_err(refuse::pool)?;
        Ok(resolved.map(|r| r.value).unwrap_or_default())
    }

    /// Did somebody set the mountpoint of this file system or of one above it?
    fn is_chosen(&self, held: &Held, name: &str) -> Result<bool, Refusal> {
        let resolved = held.pool.resolve(name, "mountpoint", &self.mount_base()).map_err(refuse::pool)?;
        Ok(resolved.is_some_and(|r| r.source != steadfast_property::Source::Default))
    }

    /// Where a file system belongs, with the altroot; `None` for `none` and `legacy`.
    pub(super) fn mountpoint(&self, held: &Held, name: &str) -> Result<Option<PathBuf>, Refusal> {
        let value = self.value(held, name, "mountpoint")?;
        Ok(value.starts_with('/').then(|| under(held.altroot.as_deref(), &value)))
    }

    /// Mounts one file system as asked.
    pub(super) fn mount(&self, held: &Arc<Held>, request: &FsMount) -> Result<(), Refusal> {
        let name = request.name.as_str();
        held.reap();
        if request.options.iter().any(|option| option == "remount") {
            return self.remount_as(held, request);
        }
        let info = held.pool.dataset_info(name).map_err(refuse::pool)?;
        if let Some(at) = held.mounted_at(name) {
            let what = format!("'{name}' is mounted at {}", at.display());
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
                let what = format!("'{name}' has no mountpoint of its own");
                return Err(Refusal::new(Code::FsCanmount, what).with("fs", name));
            }
        };
        let settings = self.settings(held, name, &request.options)?;
        let options = self.telling(held, name, &request.options)?;
        if !settings.allow_other && self.is_inside_a_mount(&at) {
            let what = format!("{} lies inside another mount of this daemon", at.display());
            return Err(Refusal::new(Code::FuseNested, what).with("fs", name));
        }
        self.front.clear_stale(&at);
        let shape = Shape::of(&info);
        let mut made = prepare(&at, request.overlay || self.is_overlay(held, name)?, shape)?;
        // The folder of a place that nobody chose is ours, whoever made it: a daemon that was killed, say.
        let chosen = request.at.is_some() || self.is_chosen(held, name)?;
        if made.is_empty() && !chosen {
            made.push(at.clone());
        }
        let handle = held.pool.open_dataset(name).map_err(refuse::pool)?;
        let called = Arc::new(Mutex::new(name.to_owned()));
        match self.front.mount(handle, &at, &settings, usage_of(held, Arc::clone(&called))) {
            Ok(served) => {
                let served = Arc::from(served);
                let mount = Mount { served, at, options, made, name: called, displaced: false };
                held.mounts.lock().insert(name.to_owned(), mount);
                Ok(())
            }
            Err(refusal) => {
                unmake(&made);
                Err(refusal.with("fs", name))
            }
        }
    }

    /// May a file system be mounted over a folder that is not empty, whoever asks?
    pub(super) fn is_overlay(&self, held: &Held, name: &str) -> Result<bool, Refusal> {
        let overlay = held.pool.resolve(name, "overlay", &self.mount_base()).map_err(refuse::pool)?;
        Ok(overlay.is_some_and(|resolved| resolved.value == "on"))
    }

    /// Gives a mount other options.
    fn remount_as(&self, held: &Arc<Held>, request: &FsMount) -> Result<(), Refusal> {
        // By its place: what the kernel lists as the source is the name it had when it was mounted.
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
                mount.options = options;
                Ok(())
            }
            _ => {
                let place = request.at.as_ref().map_or(String::new(), |at| format!(" at {}", at.display()));
                let what = format!("'{name}' is not mounted{place}, so there is nothing to change");
                Err(Refusal::new(Code::FsNotMounted, what).with("fs", name))
            }
        }
    }

    fn is_inside_a_mount(&self, at: &Path) -> bool {
        let holds = |held: &Arc<Held>| {
            held.mounts.lock().values().any(|mount| at.starts_with(&mount.at) && !mount.served.has_ended())
        };
        self.pools.read().values().any(holds)
    }

    fn settings(&self, held: &Held, name: &str, options: &[String]) -> Result<MountSettings, Refusal> {
        let is_on = |property: &str| self.value(held, name, property).map(|value| value == "on");
        // What came raw is kept as it was sealed.
        let raw = held.pool.dataset_info(name).is_ok_and(|info| info.raw);
        let only = held.pool.is_read_only() || raw;
        let mut settings = MountSettings {
            source: name.to_owned(),
            read_only: only || is_on("readonly")?,
            exec: is_on("exec")?,
            setuid: is_on("setuid")?,
            devices: is_on("devices")?,
            atime: is_on("atime")?,
            relatime: is_on("relatime")?,
            acl: self.value(held, name, "acltype")? == "posix",
            xattr: self.value(held, name, "xattr")? != "off",
            utf8_only: is_on("utf8only")?,
            allow_other: self.front.may_allow_other(),
            switches: Vec::new(),
        };
        // What is off leaves it to STEADFAST_FUSE.
        if is_on("writeback_cache")? {
            settings.switches.push("writeback_cache=on".to_owned());
        }
        for option in options {
            match option.as_str() {
                "ro" => settings.read_only = true,
                "rw" => settings.read_only = only,
                "exec" => settings.exec = true,
                "noexec" => settings.exec = false,
                "suid" | "setuid" => settings.setuid = true,
                "nosuid" | "nosetuid" => settings.setuid = false,
                "dev" | "devices" => settings.devices = true,
                "nodev" | "nodevices" => settings.devices = false,
                "atime" => settings.atime = true,
                "noatime" => settings.atime = false,
                // mount(8) gives back what the kernel lists, which is one word for both.
                "relatime" => (settings.atime, settings.relatime) = (true, true),
                "norelatime" => settings.relatime = false,
                "strictatime" => (settings.atime, settings.relatime) = (true, false),
                "acl" | "posixacl" => settings.acl = true,
                "noacl" => settings.acl = false,
                "xattr" | "saxattr" => settings.xattr = true,
                "noxattr" => settings.xattr = false,
                "allow_other" => settings.allow_other = true,
                "" | "defaults" | "remount" => {}
                switch if is_switch(switch) => settings.switches.push(switch.to_owned()),
                other => {
                    let what = format!(
                        "the mount option '{other}' is not known: use ro, rw, [no]exec, [no]suid, [no]dev, [no]atime, \
                         [no]relatime, [no]acl, [no]xattr, allow_other or a switch of the transport (docs/measurements/fuse.md)"
                    );
                    return Err(Refusal::new(Code::PropValue, what).with("option", other));
                }
            }
        }
        Ok(settings)
    }

    /// Those of some options that change something. mount(8) gives all that there are; what only says again what properties say is to follow these.
    fn telling(&self, held: &Held, name: &str, options: &[String]) -> Result<Vec<String>, Refusal> {
        let (mut telling, mut settings) = (Vec::new(), self.settings(held, name, &[])?);
        for option in options {
            let mut more: Vec<String> = telling.clone();
            more.push(option.clone());
            let changed = self.settings(held, name, &more)?;
            if changed != settings {
                (telling, settings) = (more, changed);
            }
        }
        Ok(telling)
    }

    /// Mounts everything at and below `name` that mounts by itself and whose key is loaded. What fails is told as
    /// warnings.
    pub(super) fn mount_below(&self, held: &Arc<Held>, name: &str) -> Vec<Refusal> {
        self.mount_below_again(held, name, Vec::new())
    }

    /// The same after some of it was left, as [`Engine::leave`] gives it: that is mounted as it was, where it was if that is not where its
    /// mountpoint says, and also what does not mount by itself.
    pub(super) fn mount_below_again(&self, held: &Arc<Held>, name: &str, left: Vec<Placed>) -> Vec<Refusal> {
        let below = format!("{name}/");
        let names = held.pool.datasets().into_iter().filter(|n| n == name || n.starts_with(&below));
        self.mount_these(held, names, left)
    }

    /// Mounts those of some file systems that mount by themselves or were left.
    pub(super) fn mount_these(
        &self,
        held: &Arc<Held>,
        names: impl Iterator<Item = String>,
        left: Vec<Placed>,
    ) -> Vec<Refusal> {
        let mut left: BTreeMap<String, Placed> =
            left.into_iter().map(|placed| (placed.name.clone(), placed)).collect();
        let mut warnings = Vec::new();
        let mut planned: Vec<(PathBuf, FsMount)> = Vec::new();
        for name in names {
            let was = left.remove(&name);
            let elsewhere = was.as_ref().and_then(|placed| placed.at.clone());
            let wanted = || -> Result<Option<PathBuf>, Refusal> {
                let info = held.pool.dataset_info(&name).map_err(refuse::pool)?;
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
        // By place: what is mounted inside another comes after it.
        planned.sort_by(|(at, one), (place, other)| (at, &one.name).cmp(&(place, &other.name)));
        for (_, request) in planned {
            if let Err(mut refusal) = self.mount(held, &request) {
                refusal.what = format!("'{}' is not mounted: {}", request.name, refusal.what);
                warnings.push(refusal);
            }
        }
        warnings
    }

    /// Unmounts everything at and below `name`, or nothing: what was unmounted before one refused is mounted again.
    pub(super) fn unmount_below(
        &self,
        held: &Arc<Held>,
        name: &str,
        force: bool,
    ) -> Result<Vec<String>, Refusal> {
        let left = self.leave(held, &[name.to_owned()], force)?;
        Ok(left.into_iter().rev().map(|placed| placed.name).collect())
    }

    /// Unmounts everything at and below these names, one name after the other, or nothing: what was unmounted before one refused is
    /// mounted again where it was. Gives what was mounted, in the order in which it can be mounted again, as [`Engine::mount_placed`] takes it.
    pub(super) fn leave(
        &self,
        held: &Arc<Held>,
        names: &[String],
        force: bool,
    ) -> Result<Vec<Placed>, Refusal> {
        let mut left: Vec<Placed> = Vec::new();
        for name in names {
            for placed in self.placed_below(held, name).into_iter().rev() {
                if let Err(refusal) = held.unmount(&placed.name, force) {
                    // They were mounted a moment ago; if that fails now, the refusal below is still the news.
                    let _ = self.mount_placed(held, left);
                    return Err(refusal);
                }
                left.insert(0, placed);
            }
        }
        Ok(left)
    }

    pub(super) fn unmount_fs(&self, held: &Arc<Held>, request: &FsUnmount) -> Result<Outcome, Refusal> {
        held.pool.dataset_info(&request.name).map_err(refuse::pool)?;
        held.reap();
        if held.mounted_at(&request.name).is_none() {
            let what = format!("'{}' is not mounted", request.name);
            return Err(Refusal::new(Code::FsNotMounted, what).with("fs", &request.name));
        }
        // Children that are mounted inside it go with it, as in ZFS.
        let done = self.unmount_below(held, &request.name, request.force)?;
        Ok(Outcome { touched: done, warnings: Vec::new() })
    }
}

/// Name of what a file system lies below.
fn above(name: &str) -> Option<&str> {
    Some(name.rsplit_once('/')?.0)
}

/// Is this option of the form of a switch of the transport? Its value is looked at by the front.
fn is_switch(option: &str) -> bool {
    let Some((name, _)) = option.split_once('=') else { return false };
    steadfast_fuse::SWITCHES.iter().any(|switch| switch.name == name)
}

/// What `df` is told of a file system: its own bytes, and what its pool still takes.
pub(super) fn usage_of(held: &Arc<Held>, name: Arc<Mutex<String>>) -> UsageOf {
    // Weak, because the mount is part of what is held.
    let held = Arc::downgrade(held);
    Arc::new(move || {
        let name = name.lock().clone();
        let info = held.upgrade().and_then(|held| held.pool.dataset_info(&name).ok());
        info.map_or_else(Usage::default, |info| Usage {
            used_bytes: info.referenced,
            available_bytes: info.available,
        })
    })
}

/// A path under a prefix.
pub(super) fn under(prefix: Option<&Path>, path: &str) -> PathBuf {
    match prefix {
        Some(prefix) => prefix.join(path.trim_start_matches('/')),
        None => PathBuf::from(path),
    }
}

/// What something is mounted over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Shape {
    /// A file system over a folder.
    Folder,
    /// A volume over a file.
    File,
}

impl Shape {
    /// What a dataset is mounted over.
    pub fn of(info: &DatasetInfo) -> Shape {
        if info.volume.is_some() { Shape::File } else { Shape::Folder }
    }
}

/// Makes sure that a mountpoint is an empty folder, or for a volume an empty file. Returns what was made for it, outermost first.
pub(super) fn prepare(at: &Path, overlay: bool, shape: Shape) -> Result<Vec<PathBuf>, Refusal> {
    check(at, overlay, shape)?;
    let mut made: Vec<PathBuf> =
        at.ancestors().take_while(|folder| !folder.exists()).map(PathBuf::from).collect();
    made.reverse();
    for (index, folder) in made.iter().enumerate() {
        let makes_file = shape == Shape::File && index + 1 == made.len();
        let outcome = match makes_file {
            true => fs::File::create_new(folder).map(drop),
            false => fs::create_dir(folder),
        };
        match outcome {
            // Somebody was faster; then it is theirs, which only matters when we clean up what is empty.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                unmake(&made[..index]);
                let what = format!("the mountpoint {} cannot be made: {error}", at.display());
                return Err(Refusal::new(Code::FuseMount, what).with("mountpoint", at.display()));
            }
            _ => {}
        }
    }
    Ok(made)
}

/// Removes what was made for a mount, innermost first, as far as it is empty.
pub(super) fn unmake(made: &[PathBuf]) {
    for place in made.iter().rev() {
        // Not if something is in it by now: that is somebody's.
        let empty_file = fs::symlink_metadata(place).is_ok_and(|found| found.is_file() && found.len() == 0);
        let removed = if empty_file { fs::remove_file(place) } else { fs::remove_dir(place) };
        if removed.is_err() {
            return;
        }
    }
}

/// Checks that something can be mounted here; makes nothing.
pub(super) fn check(at: &Path, overlay: bool, shape: Shape) -> Result<(), Refusal> {
    let refuse = |what: String| Refusal::new(Code::FsMountpoint, what).with("mountpoint", at.display());
    if shape == Shape::File {
        return match fs::metadata(at) {
            Ok(found) if found.is_file() && (overlay || found.len() == 0) => Ok(()),
            Ok(found) if found.is_file() => {
                Err(refuse(format!("the mountpoint {} is a file that is not empty", at.display())))
            }
            Ok(_) => {
                Err(refuse(format!("the mountpoint {} is not a file, as a volume is one", at.display())))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => {
                Err(refuse(format!("the mountpoint {} cannot be looked at: {error}", at.display())))
            }
        };
    }
    match fs::read_dir(at) {
        Ok(mut entries) => match entries.next() {
            Some(_) if !overlay => Err(refuse(format!("the mountpoint {} is not empty", at.display()))),
            _ => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(refuse(format!("the mountpoint {} is not a folder", at.display())))
        }
        Err(error) => Err(refuse(format!("the mountpoint {} cannot be looked at: {error}", at.display()))),
    }
}
