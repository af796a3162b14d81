//! Moving file systems, and changing their keys.

use super::mounts::Placed;
use super::{Engine, Held, filesystems, refuse, touched};
use crate::api::{Caller, FsChangeKey, FsMount, FsRename, Outcome};
use crate::refusal::{Code, Refusal};
use std::sync::Arc;

impl Engine {
    pub(super) fn rename_fs(&self, caller: &Caller, request: &FsRename) -> Result<Outcome, Refusal> {
        let (name, to) = (request.name.as_str(), request.to.as_str());
        let held = self.held(name)?;
        held.pool.dataset_info(name).map_err(refuse::pool)?;
        let place = |what: String| Err(Refusal::new(Code::FsPlace, what).with("fs", name));
        let pool = name.split('/').next().unwrap_or(name);
        if !name.contains('/') || !to.contains('/') {
            return place(format!(
                "a pool's own file system has the pool's name; `zpool export {pool}` and `zpool import {pool} NEWNAME` \
                 change it"
            ));
        }
        if to.split('/').next() != Some(pool) {
            return place(format!("'{to}' lies in another pool than '{name}'"));
        }
        if held.pool.is_read_only() {
            let what = "the pool is imported read-only";
            return Err(Refusal::new(Code::PoolReadonly, what).with("pool", pool));
        }
        let all = held.pool.datasets();
        let missing: Vec<String> = to
            .match_indices('/')
            .map(|(at, _)| to[..at].to_owned())
            .filter(|parent| !all.contains(parent))
            .collect();
        if let Some(parent) = missing.first().filter(|_| !request.parents) {
            let what = format!("the parent '{parent}' does not exist");
            return Err(Refusal::new(Code::FsParent, what).with("parent", parent));
        }
        if missing.iter().any(|parent| *parent == name || parent.starts_with(&format!("{name}/"))) {
            return place(format!("'{to}' lies inside '{name}'"));
        }
        let mounted = match request.no_remount {
            true => Vec::new(),
            false => self.leave(&held, &[name.to_owned()], request.force)?,
        };
        let moved = filesystems::with_parents(&held, &missing, || held.pool.rename_dataset(name, to));
        let renamed = |old: &str| match old.strip_prefix(name) {
            Some(tail) if moved.is_ok() => format!("{to}{tail}"),
            _ => old.to_owned(),
        };
        let mut warnings: Vec<Refusal> =
            missing.iter().filter_map(|parent| filesystems::give(&held, parent, caller).err()).collect();
        // Only these: what was moved below them is mounted as it was, if it was.
        let there = held.pool.datasets();
        let parents = missing.into_iter().filter(|parent| there.contains(parent));
        warnings.extend(self.mount_these(&held, parents, Vec::new()));
        if request.no_remount && moved.is_ok() {
            held.rename_mounts(name, to);
        }
        let mut remounted = Vec::new();
        for mut placed in mounted {
            placed.name = renamed(&placed.name);
            let name = placed.name.clone();
            match self.mount_again(&held, placed) {
                Ok(true) => remounted.push(name),
                Ok(false) => {}
                Err(refusal) => warnings.push(refusal),
            }
        }
        moved.map_err(refuse::pool)?;
        self.log(&held, caller);
        Ok(Outcome { touched: remounted, warnings })
    }

    /// Mounts again what was mounted, where and as it was.
    pub(super) fn mount_placed(&self, held: &Arc<Held>, placed: Vec<Placed>) -> Vec<Refusal> {
        placed.into_iter().filter_map(|placed| self.mount_again(held, placed).err()).collect()
    }

    /// Mounts one again, unless it is mounted by now. What lay below it where it was does so still.
    fn mount_again(&self, held: &Arc<Held>, placed: Placed) -> Result<bool, Refusal> {
        let Placed { name, was, at, options } = placed;
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

    /// What is mounted at and below a name, outermost first, and where, if that is not where its mountpoint says.
    pub(super) fn placed_below(&self, held: &Arc<Held>, name: &str) -> Vec<Placed> {
        let placed = |name: String| {
            let was = held.mounted_at(&name)?;
            let own = self.mountpoint(held, &name).ok().flatten();
            let at = Some(was.clone()).filter(|at| Some(at) != own.as_ref() && !held.is_displaced(&name));
            let options = held.options_of(&name);
            Some(Placed { name, was, at, options })
        };
        held.mounted_below(name).into_iter().filter_map(placed).collect()
    }

    pub(super) fn change_key(&self, caller: &Caller, request: &FsChangeKey) -> Result<Outcome, Refusal> {
        let name = request.name.as_str();
        let held = self.held(name)?;
        let info = held.pool.dataset_info(name).map_err(refuse::pool)?;
        let Some(root) = &info.encryption_root else {
            let what = format!("'{name}' is not encrypted");
            return Err(Refusal::new(Code::KeyNone, what).with("fs", name));
        };
        // Before a passphrase is stretched.
        if !info.key_loaded {
            let what = format!("the key of '{root}' is not loaded, and what it wraps cannot be wrapped anew");
            return Err(Refusal::new(Code::KeyNeeded, what).with("fs", root));
        }
        let key = request.key.as_ref().map(|key| self.new_key(key)).transpose()?;
        let location = match &request.location {
            Some(location) => Some(location.as_str()),
            None if root != name => Some("prompt"),
            None => None,
        };
        held.pool.change_key(name, key, location.filter(|_| request.key.is_some())).map_err(refuse::pool)?;
        self.log(&held, caller);
        Ok(touched(name))
    }
}
