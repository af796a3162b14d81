//! `zfs set`: properties of file systems, volumes and snapshots.

use crate::api::{FsSet, Outcome};
use crate::caller::Caller;
use crate::check::{check_kind, check_user_properties, exact, name_refusal};
use crate::engine::front::FormerMount;
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::engine::zfs::names::halves;
use crate::engine::zfs::volumes;
use crate::engine::{mountpoints, refuse};
use crate::refusal::{Code, Refusal};
use std::path::PathBuf;
use steadfast_property::{Change, Scope, check_dataset_name, check_snapshot_name};

/// Properties that decide where and whether a file system is mounted.
const PLACE: [&str; 3] = ["mountpoint", "canmount", "volmode"];

/// Properties that a mount takes as its options.
const OPTIONS: [&str; 10] = [
    "readonly",
    "exec",
    "setuid",
    "devices",
    "atime",
    "relatime",
    "acltype",
    "xattr",
    "writeback_cache",
    "sync",
];

/// One change: a new value, or `None` to inherit.
pub(in crate::engine) type Edit = (String, Option<String>);

/// Changes properties of a pool, all or none.
type Setter<'s> = &'s dyn Fn(&[(&str, Option<&str>)]) -> steadfast_pool::Result<()>;

impl Verb for FsSet {
    fn check(&mut self) -> Result<(), Refusal> {
        if self.name.contains('@') {
            check_snapshot_name(&self.name).map_err(name_refusal)?;
            return check_user_properties(&mut self.properties);
        }
        check_dataset_name(&self.name).map_err(name_refusal)?;
        self.properties = exact(Scope::Dataset, &self.properties, &[Change::Anytime])?;
        Ok(())
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let edits = self.properties.into_iter().map(|(name, value)| (name, Some(value))).collect();
        if self.name.contains('@') {
            return engine.change_snapshots(caller, &self.name, false, edits);
        }
        engine.change_fs(caller, &self.name, edits, self.no_mount)
    }
}

impl Engine {
    /// Sets and removes properties, all or none, and adapts mounts.
    pub(in crate::engine) fn change_fs(
        &self,
        caller: &Caller,
        name: &str,
        edits: Vec<Edit>,
        no_mount: bool,
    ) -> Result<Outcome, Refusal> {
        let held = self.held(name)?;
        self.change_with(caller, name, edits, no_mount, &|changes| {
            held.pool.datasets().set_properties(name, changes)
        })
    }

    pub(in crate::engine) fn change_with(
        &self,
        caller: &Caller,
        name: &str,
        mut edits: Vec<Edit>,
        no_mount: bool,
        set: Setter<'_>,
    ) -> Result<Outcome, Refusal> {
        let held = self.held(name)?;
        let info = held.pool.datasets().dataset_info(name).map_err(refuse::pool)?;
        if edits.iter().any(|(property, _)| property == "keylocation")
            && info.encryption_root.as_deref() != Some(name)
        {
            let what = format!("'{name}' has no key of its own, so it has no keylocation");
            return Err(Refusal::new(Code::KeyRules, what).with("fs", name));
        }
        let volume = info.volume.is_some();
        let given = edits.iter().filter_map(|(property, value)| Some((property.clone(), value.clone()?)));
        check_kind(name, &given.collect(), volume)?;
        volumes::reserve_all(&held, name, &info, &mut edits)?;
        let touches = |list: &[&str]| edits.iter().any(|(property, _)| list.contains(&property.as_str()));
        // As in ZFS, canmount=on and canmount=noauto leave mounts as they are.
        let moves = |(property, value): &Edit| match property.as_str() {
            "canmount" => value.as_deref() == Some("off"),
            other => PLACE.contains(&other),
        };
        let place = edits.iter().any(moves) && !no_mount;
        let growth = volumes::growth(&held, name, &info, &edits)?;
        let mut left: Vec<FormerMount> = Vec::new();
        if place {
            let mut targets: Vec<PathBuf> = Vec::new();
            if let Some((_, Some(path))) = edits
                .iter()
                .find(|(p, v)| p == "mountpoint" && v.as_deref().is_some_and(|v| v.starts_with('/')))
            {
                targets.push(mountpoints::under(held.altroot.as_deref(), path));
            }
            // The new place is checked before the old one is unmounted.
            let old = self.mountpoint(&held, name)?;
            let is_mounted = held.mounted_at(name).is_some();
            for target in targets.iter().filter(|target| is_mounted && Some(*target) != old.as_ref()) {
                mountpoints::check(target, self.is_overlay(&held, name)?, mountpoints::Shape::of(&info))?;
            }
            left = self.leave(&held, &[name.to_owned()], false)?;
        }
        let places = self.given_places(&held, &left)?;
        let stored = edits.iter().filter(|(property, _)| property != volumes::SIZE);
        let mut changes: Vec<(&str, Option<&str>)> =
            stored.map(|(property, value)| (property.as_str(), value.as_deref())).collect();
        let reserved = growth.and_then(|growth| growth.reserved).map(|bytes| bytes.to_string());
        if let Some(reserved) = &reserved
            && !changes.iter().any(|(property, _)| *property == volumes::RESERVED)
        {
            changes.push((volumes::RESERVED, Some(reserved)));
        }
        let set = match changes.is_empty() {
            true => Ok(()),
            false => set(&changes),
        };
        let set = set.and_then(|()| match growth {
            Some(growth) => held.pool.datasets().grow_volume(name, growth.bytes),
            None => Ok(()),
        });
        if let Err(error) = set {
            self.mount_placed(&held, left);
            return Err(refuse::pool(error));
        }
        self.log(&held, caller);
        for (property, value) in &edits {
            let value = value.clone().unwrap_or_else(|| "(inherited)".into());
            let fields = [("dataset", name.to_owned()), ("property", property.clone()), ("value", value)];
            self.post("property_change", &held.pool, &held.pool.name(), &fields);
        }
        if touches(&["snapdir"]) {
            held.note_snapshots([name]);
        }
        let mut warnings = Vec::new();
        if place && !touches(&["mountpoint", "volmode"]) {
            // canmount=off: what was mounted below comes back, and nothing else is mounted.
            left.retain(|placed| placed.name != name);
            warnings = self.mount_placed(&held, left);
        } else if place {
            // A new mountpoint replaces a temporary one.
            let moves = touches(&["mountpoint"]);
            for placed in left.iter_mut().filter(|placed| moves && placed.name == name) {
                placed.at = None;
            }
            let follows = self.that_follow(&held, name)?;
            let stays =
                |other: &String| follows.contains(other) || left.iter().any(|placed| placed.name == *other);
            let names: Vec<String> = held.pool.datasets().names().into_iter().filter(stays).collect();
            warnings = self.mount_these(&held, names.into_iter(), left);
            // As in ZFS: empty folders where they were mounted go.
            places.iter().rev().for_each(|place| mountpoints::unmake(std::slice::from_ref(place)));
        } else if touches(&OPTIONS) && !no_mount {
            warnings = self.remount_below(&held, name);
        }
        if touches(&["sharenfs"]) {
            warnings.extend(self.share_below(&held, name));
        }
        Ok(Outcome { touched: vec![name.to_owned()], warnings })
    }

    /// A dataset, and those below it whose mountpoint follows from its own.
    fn that_follow(&self, held: &ImportedPool, name: &str) -> Result<Vec<String>, Refusal> {
        let below = format!("{name}/");
        let mut follow = vec![name.to_owned()];
        for other in held.pool.datasets().names() {
            let parent = other.rsplit_once('/').map_or("", |(parent, _)| parent);
            if !other.starts_with(&below) || !follow.iter().any(|known| known == parent) {
                continue;
            }
            if !self.is_set_here(held, &other)? {
                follow.push(other);
            }
        }
        Ok(follow)
    }

    /// Sets and removes user properties of a snapshot, or of all snapshots of its name in a tree.
    pub(in crate::engine) fn change_snapshots(
        &self,
        caller: &Caller,
        name: &str,
        recursive: bool,
        edits: Vec<Edit>,
    ) -> Result<Outcome, Refusal> {
        let held = self.held(halves(name)?.0)?;
        self.check_writable(&held)?;
        let touched = self.in_tree(name, recursive)?;
        let changes: Vec<(&str, Option<&str>)> =
            edits.iter().map(|(property, value)| (property.as_str(), value.as_deref())).collect();
        held.pool.datasets().set_snapshot_properties(&touched, &changes).map_err(refuse::pool)?;
        self.log(&held, caller);
        for (property, value) in edits {
            let value = value.unwrap_or_else(|| "(inherited)".into());
            let fields = [("dataset", name.to_owned()), ("property", property), ("value", value)];
            self.post("property_change", &held.pool, &held.pool.name(), &fields);
        }
        Ok(Outcome { touched, warnings: Vec::new() })
    }
}
