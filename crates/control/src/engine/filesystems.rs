//! Verbs of file systems.

use super::mounts::Placed;
use super::{Engine, Held, mounts, refuse, volumes};
use crate::api::{Caller, FsCreate, FsDestroy, FsInherit, Outcome, Properties};
use crate::check::check_kind;
use crate::refusal::{Code, Refusal};
use crate::secret::{Key, KeyFormat};
use std::path::PathBuf;
use std::sync::Arc;
use steadfast_posix::{Atime, FileSystem, Options, SetAttr, Usage};
use steadfast_property::is_user_property;
use zeroize::Zeroizing;

/// Properties that a mount depends on as a place.
const PLACE: [&str; 3] = ["mountpoint", "canmount", "volmode"];
/// Properties that a mount takes as options.
const OPTIONS: [&str; 9] =
    ["readonly", "exec", "setuid", "devices", "atime", "relatime", "acltype", "xattr", "writeback_cache"];

/// One change: a new value, or `None` to inherit.
pub(super) type Edit = (String, Option<String>);
/// Changes properties of a pool, all or none.
type Setter<'s> = &'s dyn Fn(&[(&str, Option<&str>)]) -> steadfast_pool::Result<()>;

/// Gives the top folder of a new file system to whom it was made for. Without it an ordinary user could not write into
/// a pool of their own.
pub(super) fn give(held: &Held, name: &str, caller: &Caller) -> Result<(), Refusal> {
    const TOP: u64 = 1;
    if (caller.uid, caller.gid) == (0, 0) {
        return Ok(());
    }
    let refuse_os = |errno: steadfast_posix::Errno| {
        let error = std::io::Error::from_raw_os_error(errno.0);
        let what = format!("the top folder of '{name}' still belongs to root: {error}");
        Refusal::new(Code::FileIo, what).with("file", name)
    };
    let handle = held.pool.open_dataset(name).map_err(refuse::pool)?;
    // Nobody asks this one how full it is.
    let usage = Arc::new(|| Usage { used_bytes: 0, available_bytes: 0 });
    let options = Options { atime: Atime::Off, usage, block_bytes: 4096 };
    let files = FileSystem::new(Arc::clone(handle.dataset()), options).map_err(refuse_os)?;
    let owner = SetAttr { uid: Some(caller.uid), gid: Some(caller.gid), ..SetAttr::default() };
    files.setattr(TOP, &owner).map(drop).map_err(refuse_os)
}

/// Makes parents that are missing, outermost first, and what they are for. If that is refused they go again.
pub(super) fn with_parents(
    held: &Held,
    missing: &[String],
    make: impl FnOnce() -> steadfast_pool::Result<()>,
) -> steadfast_pool::Result<()> {
    let mut made: Vec<&String> = Vec::new();
    let parents = missing.iter().try_for_each(|parent| -> steadfast_pool::Result<()> {
        held.pool.create_dataset(parent, Properties::new(), None)?;
        made.push(parent);
        Ok(())
    });
    let done = parents.and_then(|()| make());
    if done.is_err() {
        for parent in made.into_iter().rev() {
            // They are empty; what was refused is the news, whether or not this succeeds.
            let _ = held.pool.destroy_dataset(parent);
        }
    }
    done
}

impl Engine {
    pub(super) fn create_fs(&self, caller: &Caller, request: FsCreate) -> Result<Outcome, Refusal> {
        let held = self.held(&request.name)?;
        let all = held.pool.datasets();
        if all.contains(&request.name) {
            if request.parents {
                return Ok(Outcome::default());
            }
            let what = format!("'{}' exists", request.name);
            return Err(Refusal::new(Code::FsExists, what).with("fs", &request.name));
        }
        // Parents that are missing, outermost first.
        let ends = request.name.match_indices('/').map(|(at, _)| at);
        let missing: Vec<String> =
            ends.map(|end| request.name[..end].to_owned()).filter(|parent| !all.contains(parent)).collect();
        if let Some(parent) = missing.first().filter(|_| !request.parents) {
            let what = format!("the parent '{parent}' does not exist");
            return Err(Refusal::new(Code::FsParent, what).with("parent", parent));
        }
        let mut nearest = request.name.match_indices('/').map(|(at, _)| &request.name[..at]);
        let nearest = nearest.rfind(|parent| all.iter().any(|n| n == parent)).unwrap_or(&request.name);
        let parent = held.pool.dataset_info(nearest).map_err(refuse::pool)?;
        let mut props = request.properties.clone();
        key_rules(&mut props, parent.encryption_root.as_deref(), request.key.as_ref())?;
        if parent.encryption_root.is_some() && !parent.key_loaded && request.key.is_none() {
            let root = parent.encryption_root.unwrap_or_default();
            let what = format!("the key of '{root}' is not loaded, and what is created below needs it");
            return Err(Refusal::new(Code::KeyNeeded, what).with("fs", root));
        }
        if held.pool.is_read_only() {
            let what = "the pool is imported read-only";
            return Err(Refusal::new(Code::PoolReadonly, what).with("pool", held.pool.name()));
        }
        let volume = request.volume.map(|volume| volumes::spec(volume, &mut props)).transpose()?;
        let mut created = missing.clone();
        created.push(request.name.clone());
        if request.dry_run {
            return Ok(Outcome { touched: created, warnings: Vec::new() });
        }
        let key = request.key.as_ref().map(|key| self.new_key(key)).transpose()?;
        let made = with_parents(&held, &missing, || match volume {
            None => held.pool.create_dataset(&request.name, props, key).map(drop),
            Some(spec) => held.pool.create_volume(&request.name, props, key, spec).map(drop),
        });
        made.map_err(refuse::pool)?;
        self.log(&held, caller);
        let mut warnings: Vec<Refusal> =
            created.iter().filter_map(|name| give(&held, name, caller).err()).collect();
        if !request.no_mount {
            // Only what was created: a sibling that somebody unmounted stays so.
            for name in &created {
                warnings.extend(self.mount_below(&held, name));
            }
        }
        Ok(Outcome { touched: created, warnings })
    }

    pub(super) fn destroy_fs(&self, caller: &Caller, request: &FsDestroy) -> Result<Outcome, Refusal> {
        let name = request.name.as_str();
        let held = self.held(name)?;
        held.pool.dataset_info(name).map_err(refuse::pool)?;
        if !name.contains('/') {
            let what = format!("'{name}' is a pool's own file system");
            return Err(Refusal::new(Code::FsRoot, what).with("pool", name));
        }
        let below = format!("{name}/");
        let children: Vec<String> =
            held.pool.datasets().into_iter().filter(|n| n.starts_with(&below)).rev().collect();
        if !children.is_empty() && !request.recursive {
            let children = children.join(", ");
            let what = format!("'{name}' has children: {children}");
            return Err(Refusal::new(Code::FsChildren, what).with("fs", name));
        }
        let doomed = self.with_dependents(&held, vec![name.to_owned()], request.clones);
        let mut gone: Vec<String> = Vec::new();
        for name in doomed.as_deref().unwrap_or(&[name.to_owned()]) {
            let snapshots = held.pool.snapshot_names(name).map_err(refuse::pool)?;
            let snapshots: Vec<String> =
                snapshots.iter().map(|snapshot| format!("{name}@{snapshot}")).collect();
            if !snapshots.is_empty() && !request.recursive {
                let list = snapshots.join(", ");
                let what = format!("'{name}' has snapshots: {list}");
                return Err(Refusal::new(Code::FsSnapshots, what).with("fs", name).with("snapshots", list));
            }
            gone.extend(snapshots);
            gone.push(name.clone());
        }
        let doomed = doomed?;
        if request.dry_run {
            return Ok(Outcome { touched: gone, warnings: Vec::new() });
        }
        self.check_writable(&held)?;
        self.destroy_in_order(&held, &doomed, request.force)?;
        self.log(&held, caller);
        Ok(Outcome { touched: gone, warnings: Vec::new() })
    }

    pub(super) fn inherit_fs(&self, caller: &Caller, request: &FsInherit) -> Result<Outcome, Refusal> {
        let held = self.held(&request.name)?;
        let change = |name: &str| match request.received {
            true => self.revert_fs(caller, &held, name, &request.property),
            false => self.change_fs(caller, name, vec![(request.property.clone(), None)], false),
        };
        let mut outcome = change(&request.name)?;
        if !request.recursive {
            return Ok(outcome);
        }
        let below = format!("{}/", request.name);
        let all: Vec<String> = held.pool.datasets().into_iter().filter(|n| n.starts_with(&below)).collect();
        for name in &all {
            let more = change(name)?;
            outcome.touched.extend(more.touched);
            outcome.warnings.extend(more.warnings);
        }
        // Their snapshots too, which have no other properties that could be set.
        let mut snapshots = Vec::new();
        for name in all.iter().chain([&request.name]).filter(|_| is_user_property(&request.property)) {
            snapshots.extend(held.pool.snapshots_with(name, &request.property).map_err(refuse::pool)?);
        }
        if !snapshots.is_empty() {
            let edits = [(request.property.as_str(), None)];
            match request.received {
                true => held.pool.revert_snapshot_property(&snapshots, &request.property),
                false => held.pool.set_snapshot_properties(&snapshots, &edits),
            }
            .map_err(refuse::pool)?;
            outcome.touched.extend(snapshots);
        }
        Ok(outcome)
    }

    /// A property goes back to what was received.
    fn revert_fs(
        &self,
        caller: &Caller,
        held: &Held,
        name: &str,
        property: &str,
    ) -> Result<Outcome, Refusal> {
        let value = held.pool.received_props(name).map_err(refuse::pool)?.remove(property);
        let edits = vec![(property.to_owned(), value)];
        self.change_with(caller, name, edits, false, &|_| held.pool.revert_property(name, property))
    }

    /// Sets and removes properties, all or none, and brings mounts into line with them.
    pub(super) fn change_fs(
        &self,
        caller: &Caller,
        name: &str,
        edits: Vec<Edit>,
        no_mount: bool,
    ) -> Result<Outcome, Refusal> {
        let held = self.held(name)?;
        self.change_with(caller, name, edits, no_mount, &|changes| held.pool.set_properties(name, changes))
    }

    fn change_with(
        &self,
        caller: &Caller,
        name: &str,
        edits: Vec<Edit>,
        no_mount: bool,
        set: Setter<'_>,
    ) -> Result<Outcome, Refusal> {
        let held = self.held(name)?;
        let info = held.pool.dataset_info(name).map_err(refuse::pool)?;
        if edits.iter().any(|(property, _)| property == "keylocation")
            && info.encryption_root.as_deref() != Some(name)
        {
            let what = format!("'{name}' has no key of its own, so it has no keylocation");
            return Err(Refusal::new(Code::KeyRules, what).with("fs", name));
        }
        let volume = info.volume.is_some();
        let given = edits.iter().filter_map(|(property, value)| Some((property.clone(), value.clone()?)));
        check_kind(name, &given.collect(), volume)?;
        let touches = |list: &[&str]| edits.iter().any(|(property, _)| list.contains(&property.as_str()));
        let place = touches(&PLACE) && !no_mount;
        let growth = volumes::growth(&held, name, &info, &edits)?;
        let mut left: Vec<Placed> = Vec::new();
        if place {
            let mut targets: Vec<PathBuf> = Vec::new();
            if let Some((_, Some(path))) = edits
                .iter()
                .find(|(p, v)| p == "mountpoint" && v.as_deref().is_some_and(|v| v.starts_with('/')))
            {
                targets.push(mounts::under(held.altroot.as_deref(), path));
            }
            // The new place is looked at before the old one is left.
            let old = self.mountpoint(&held, name)?;
            for target in targets.iter().filter(|target| Some(*target) != old.as_ref()) {
                mounts::check(target, self.is_overlay(&held, name)?, mounts::Shape::of(&info))?;
            }
            left = self.leave(&held, &[name.to_owned()], false)?;
        }
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
            Some(growth) => held.pool.grow_volume(name, growth.bytes),
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
        if place {
            // Whoever sets where it belongs wants it there, or nowhere.
            let is_off = self.value(&held, name, "canmount").is_ok_and(|value| value == "off");
            let moves = touches(&["mountpoint"]) || touches(&["canmount"]) && is_off;
            for placed in left.iter_mut().filter(|placed| moves && placed.name == name) {
                placed.at = None;
            }
            warnings = self.mount_below_again(&held, name, left);
        } else if touches(&OPTIONS) && !no_mount {
            warnings = self.remount(&held, name);
        }
        Ok(Outcome { touched: vec![name.to_owned()], warnings })
    }

    /// Mounts again, where it is, all that is mounted at and below a name, so that options count now. What is busy keeps its options until it is
    /// mounted next.
    fn remount(&self, held: &Arc<Held>, name: &str) -> Vec<Refusal> {
        match self.leave(held, &[name.to_owned()], false) {
            Ok(left) => self.mount_placed(held, left),
            Err(mut refusal) => {
                refusal.what = format!("it counts from the next mount on, because now {}", refusal.what);
                vec![refusal]
            }
        }
    }
}

/// Brings encryption, keyformat and keylocation of something new into agreement with its parent and its key.
///
/// # Errors
/// [`Code::KeyRules`].
pub(super) fn key_rules(
    properties: &mut Properties,
    parent_root: Option<&str>,
    key: Option<&Key>,
) -> Result<(), Refusal> {
    let rules = |what: String| Err(Refusal::new(Code::KeyRules, what));
    let encryption = properties.get("encryption").map(String::as_str);
    match (encryption, parent_root, key) {
        (Some("off"), Some(root), _) => rules(format!(
            "what is created below the encrypted '{root}' is encrypted, and encryption=off is asked for"
        )),
        (None | Some("off"), None, Some(_)) => rules("a keyformat is given without encryption=on".into()),
        (Some(cipher), None, None) if cipher != "off" => {
            rules(format!("encryption={cipher} is asked for without keyformat="))
        }
        (_, _, Some(key)) => {
            properties.entry("encryption".into()).or_insert_with(|| "aes-256-gcm".into());
            properties.insert("keyformat".into(), key.format.as_str().into());
            properties.entry("keylocation".into()).or_insert_with(|| "prompt".into());
            Ok(())
        }
        (_, _, None) => {
            properties.remove("keyformat");
            Ok(())
        }
    }
}

/// A key in the form the pool's room reads: passphrase and raw key as they are, a hex key as digits.
pub(super) fn secret(key: &Key) -> Zeroizing<Vec<u8>> {
    let bytes = key.secret.expose();
    if key.format != KeyFormat::Hex {
        return Zeroizing::new(bytes.to_vec());
    }
    let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
    Zeroizing::new(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect())
}
