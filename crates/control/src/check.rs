//! What is refused before a pool hears of it: names, property values, device lists, keys of the wrong form.
//!
//! A request that passes has well-formed names, exact property values ([`steadfast_property`]), absolute paths, and
//! asks for nothing that is not built.

use crate::api::{PoolSelector, Properties, Request, VdevClass, VdevKind, VdevSpec};
use crate::refusal::{Code, Refusal};
use crate::secret::{Key, KeyFormat};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use steadfast_format::{Feature, Placement};
use steadfast_property::{
    Change, NameError, PropertyError, Scope, TAG_BYTES_MAX, applies, check_dataset_name, check_pool_name,
    check_snapshot_name, is_tag, is_user_property, lookup, parse_assignment,
};

/// What begins properties of pools that are features of the format.
pub(crate) const FEATURE: &str = "feature@";

/// Checks a request and brings its values into exact form.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check(mut request: Request) -> Result<Request, Refusal> {
    match &mut request {
        Request::PoolCreate(r) => {
            check_pool_name(&r.name).map_err(name_refusal)?;
            check_vdevs(&r.vdevs, true)?;
            let creation = &[Change::AtCreation, Change::AtImport, Change::Anytime];
            let (features, others): (Properties, Properties) = std::mem::take(&mut r.properties)
                .into_iter()
                .partition(|(name, _)| name.starts_with(FEATURE));
            check_new_features(&features)?;
            r.properties = exact(Scope::Pool, &others, creation)?;
            r.properties.extend(features);
            if r.properties.contains_key("readonly") {
                return Err(Refusal::new(
                    Code::PropCreation,
                    "'readonly' is for import, and a new pool is written to",
                ));
            }
            if let Some(mountpoint) = &r.mountpoint {
                let (_, value) = parse_assignment(Scope::Dataset, &format!("mountpoint={mountpoint}"))
                    .map_err(property_refusal)?;
                r.mountpoint = Some(value);
            }
            r.fs_properties =
                exact(Scope::Dataset, &r.fs_properties, &[Change::AtCreation, Change::Anytime])?;
            check_key(&r.fs_properties, r.key.as_ref())?;
            check_kind(&r.name, &r.fs_properties, false)?;
        }
        Request::PoolImportScan(r) => check_paths(&r.search)?,
        Request::PoolImport(r) => {
            check_paths(&r.search)?;
            check_paths(r.anchor.as_slice())?;
            if let PoolSelector::Name(name) = &r.pool {
                check_dataset_name(name).map_err(name_refusal)?;
            }
            if let Some(name) = &r.new_name {
                check_pool_name(name).map_err(name_refusal)?;
            }
            r.properties = exact(Scope::Pool, &r.properties, &[Change::AtImport, Change::Anytime])?;
            check_features(&r.properties)?;
            if let Some(key) = &r.key {
                key.check().map_err(|error| Refusal::new(Code::KeyFormat, error.to_string()))?;
            }
        }
        Request::PoolSet(r) => r.properties = exact(Scope::Pool, &r.properties, &[Change::Anytime])?,
        Request::FsCreate(r) => {
            check_dataset_name(&r.name).map_err(name_refusal)?;
            r.properties = exact(Scope::Dataset, &r.properties, &[Change::AtCreation, Change::Anytime])?;
            check_key(&r.properties, r.key.as_ref())?;
            check_kind(&r.name, &r.properties, r.volume.is_some())?;
            if r.properties.contains_key("volsize") {
                let what = "the size of a volume is given with -V";
                return Err(Refusal::new(Code::VolumeSize, what).with("fs", &r.name));
            }
        }
        Request::FsDestroy(r) => check_dataset_name(&r.name).map_err(name_refusal)?,
        Request::FsSet(r) if r.name.contains('@') => {
            check_snapshot_name(&r.name).map_err(name_refusal)?;
            check_own(&mut r.properties)?;
        }
        Request::FsSet(r) => {
            check_dataset_name(&r.name).map_err(name_refusal)?;
            r.properties = exact(Scope::Dataset, &r.properties, &[Change::Anytime])?;
        }
        Request::FsUserspace(r) => check_dataset_name(&r.name).map_err(name_refusal)?,
        Request::FsInherit(r) if r.name.contains('@') => {
            check_snapshot_name(&r.name).map_err(name_refusal)?;
            own_alone([&r.property])?;
        }
        Request::FsInherit(r) => {
            check_dataset_name(&r.name).map_err(name_refusal)?;
            r.property = inheritable(&r.property, r.received)?;
        }
        Request::FsMount(r) => {
            check_dataset_name(&r.name).map_err(name_refusal)?;
            check_paths(r.at.as_slice())?;
        }
        Request::FsUnmount(r) => check_dataset_name(&r.name).map_err(name_refusal)?,
        Request::FsLoadKey(r) => {
            check_dataset_name(&r.name).map_err(name_refusal)?;
            r.key.check().map_err(|error| Refusal::new(Code::KeyFormat, error.to_string()))?;
        }
        Request::FsUnloadKey(r) => check_dataset_name(&r.name).map_err(name_refusal)?,
        Request::FsList(r) => {
            for name in &r.names {
                check_dataset_name(name).map_err(name_refusal)?;
            }
        }
        Request::FsSnapshot(r) => {
            for name in &r.names {
                check_snapshot_name(name).map_err(name_refusal)?;
            }
            check_own(&mut r.properties)?;
        }
        Request::FsClone(r) => {
            check_snapshot_name(&r.snapshot).map_err(name_refusal)?;
            check_dataset_name(&r.name).map_err(name_refusal)?;
            r.properties = exact(Scope::Dataset, &r.properties, &[Change::AtCreation, Change::Anytime])?;
            // Size and block of a volume are its origin's.
            check_kind(&r.name, &r.properties, false)?;
        }
        Request::FsPromote(r) => check_dataset_name(&r.name).map_err(name_refusal)?,
        Request::FsSnapshotDestroy(r) => {
            check_dataset_name(&r.name).map_err(name_refusal)?;
            for name in r.snapshots.split([',', '%']).filter(|name| !name.is_empty()) {
                check_snapshot_name(&format!("p@{name}")).map_err(name_refusal)?;
            }
        }
        Request::FsRollback(r) => check_snapshot_name(&r.name).map_err(name_refusal)?,
        Request::FsSnapshotRename(r) => {
            check_snapshot_name(&r.name).map_err(name_refusal)?;
            let fs = r.name.split('@').next().unwrap_or_default();
            check_snapshot_name(&format!("{fs}@{}", r.to)).map_err(name_refusal)?;
        }
        Request::FsHold(r) => {
            r.names.iter().try_for_each(|name| check_snapshot_name(name)).map_err(name_refusal)?;
            if !is_tag(&r.tag) {
                let what = format!("a tag has 1 to {TAG_BYTES_MAX} bytes, and no control characters");
                return Err(Refusal::new(Code::NameInvalid, what));
            }
        }
        Request::FsHolds(r) => {
            r.names.iter().try_for_each(|name| check_snapshot_name(name)).map_err(name_refusal)?;
        }
        Request::FsListAll(r) => {
            for name in &r.names {
                match name.contains(['@', '#']) {
                    true => check_point(name)?,
                    false => check_dataset_name(name).map_err(name_refusal)?,
                }
            }
        }
        Request::FsSend(r) => {
            if r.token.is_none() {
                check_snapshot_name(&r.snapshot).map_err(name_refusal)?;
            }
            r.base.iter().try_for_each(|name| check_point(name))?;
            r.exclude.iter().try_for_each(|name| check_dataset_name(name)).map_err(name_refusal)?;
        }
        Request::FsReceive(r) => {
            let checked = match r.target.contains('@') {
                true => check_snapshot_name(&r.target),
                false => check_dataset_name(&r.target),
            };
            checked.map_err(name_refusal)?;
            r.origin.iter().try_for_each(|name| check_snapshot_name(name)).map_err(name_refusal)?;
            r.properties = exact(Scope::Dataset, &r.properties, &[Change::AtCreation, Change::Anytime])?;
            check_key(&r.properties, r.key.as_ref())?;
            if r.key.is_some() && r.properties.get("keylocation").is_none_or(|location| location == "prompt")
            {
                return Err(key_beside_stream(&r.target));
            }
            r.exclude.iter_mut().try_for_each(|name| inheritable(name, true).map(|exact| *name = exact))?;
            if let Some(name) = r.exclude.iter().find(|name| r.properties.contains_key(*name)) {
                let what = format!("'{name}' cannot be set with -o and left out with -x");
                return Err(Refusal::new(Code::PropValue, what).with("property", name));
            }
            // Size and block of a volume come with the stream.
            check_kind(&r.target, &r.properties, false)?;
        }
        Request::FsBookmark(r) => {
            check_point(&r.of)?;
            check_snapshot_name(&format!("p@{}", r.name)).map_err(name_refusal)?;
        }
        Request::FsDiff(r) => {
            check_snapshot_name(&r.base).map_err(name_refusal)?;
            match r.target.contains('@') {
                true => check_snapshot_name(&r.target),
                false => check_dataset_name(&r.target),
            }
            .map_err(name_refusal)?;
        }
        Request::FsBookmarkDestroy(r) => check_point(&r.name)?,
        Request::FsReceiveAbort(r) => check_dataset_name(&r.name).map_err(name_refusal)?,
        Request::PoolAdd(r) => check_vdevs(&r.vdevs, false)?,
        Request::PoolRemove(r) => check_paths(&r.devices)?,
        Request::PoolOnline(r) => check_paths(&r.devices)?,
        Request::PoolTrim(r) => {
            check_paths(&r.devices)?;
            if r.rate == Some(0) {
                return Err(Refusal::new(Code::ApiRequest, "a rate of 0 would never end"));
            }
        }
        Request::PoolInitialize(r) => check_paths(&r.devices)?,
        Request::PoolOffline(r) => check_paths(&r.devices)?,
        Request::PoolInject(r) => {
            check_paths(r.device.as_slice())?;
            crate::inject::check(r)?;
        }
        Request::PoolScrub(_) | Request::PoolRebalance(_) | Request::PoolResilver(_) => {}
        Request::PoolAttach(r) => {
            check_paths(std::slice::from_ref(&r.device))?;
            check_paths(std::slice::from_ref(&r.new))?;
        }
        Request::PoolDetach(r) => check_paths(std::slice::from_ref(&r.device))?,
        Request::PoolReplace(r) => {
            check_paths(std::slice::from_ref(&r.old))?;
            check_paths(r.new.as_slice())?;
        }
        Request::LabelClear(r) => check_paths(std::slice::from_ref(&r.device))?,
        Request::FsRename(r) => {
            check_dataset_name(&r.name).map_err(name_refusal)?;
            check_dataset_name(&r.to).map_err(name_refusal)?;
        }
        Request::FsChangeKey(r) => {
            check_dataset_name(&r.name).map_err(name_refusal)?;
            if let Some(key) = &r.key {
                key.check().map_err(|error| Refusal::new(Code::KeyFormat, error.to_string()))?;
            }
            if let Some(location) = &r.location {
                let text = format!("keylocation={location}");
                let (_, exact) = parse_assignment(Scope::Dataset, &text).map_err(property_refusal)?;
                r.location = Some(exact);
            }
            if r.key.is_none() && r.location.is_some() {
                return Err(Refusal::new(Code::KeyRules, "an inherited key has no keylocation of its own"));
            }
        }
        Request::PoolSplit(request) => {
            steadfast_property::check_pool_name(&request.new_name).map_err(name_refusal)?;
            check_paths(&request.devices)?;
            request.properties = exact(Scope::Pool, &request.properties, &[Change::Anytime])?;
            check_features(&request.properties)?;
        }
        // Names of pools that exist are looked up, not created: an impossible one is simply absent.
        Request::PoolDestroy(_)
        | Request::PoolExport(_)
        | Request::PoolList(_)
        | Request::PoolStatus(_)
        | Request::PoolHistory(_)
        | Request::PoolSync(_)
        | Request::DaemonPing(_)
        | Request::PoolClear(_)
        | Request::PoolActivities(_)
        | Request::PoolReguid(_)
        | Request::PoolPrefetch(_)
        | Request::PoolDdtPrune(_)
        | Request::PoolUpgrade(_)
        | Request::PoolIostat(_)
        | Request::PoolEvents(_)
        | Request::PoolEventsClear(_)
        | Request::DaemonInfo(_)
        | Request::DaemonMemory(_)
        | Request::DaemonStop(_) => {}
    }
    Ok(request)
}

/// Refuses what names neither a snapshot nor a bookmark: these follow the same rules behind a `#`.
fn check_point(name: &str) -> Result<(), Refusal> {
    check_snapshot_name(&name.replacen('#', "@", 1)).map_err(name_refusal)
}

/// The refusal of a name.
#[must_use]
pub fn name_refusal(error: NameError) -> Refusal {
    Refusal::new(Code::NameInvalid, error.to_string())
}

/// Refuses properties that a volume, or a file system, does not have.
pub(crate) fn check_kind(name: &str, properties: &Properties, volume: bool) -> Result<(), Refusal> {
    let Some(property) = properties.keys().find(|property| !applies(property, volume)) else { return Ok(()) };
    let (kind, other) = if volume { ("volume", "file system") } else { ("file system", "volume") };
    let what = format!("'{property}' is a property of a {other}, and '{name}' is a {kind}");
    Err(Refusal::new(Code::PropKind, what).with("property", property).with("fs", name))
}

/// Refuses what is no property of a user: a snapshot has no others to be set.
fn check_own(properties: &mut Properties) -> Result<(), Refusal> {
    own_alone(properties.keys())?;
    *properties = exact(Scope::Dataset, properties, &[Change::Anytime])?;
    Ok(())
}

fn own_alone<'n>(names: impl IntoIterator<Item = &'n String>) -> Result<(), Refusal> {
    let Some(name) = names.into_iter().find(|name| !is_user_property(name)) else { return Ok(()) };
    let what = format!("'{name}' cannot be set on a snapshot: only properties of your own (with a ':') can");
    Err(Refusal::new(Code::PropReadonly, what).with("property", name))
}

/// The refusal of a property or value.
#[must_use]
pub fn property_refusal(error: PropertyError) -> Refusal {
    let code = match &error {
        PropertyError::NotAssignment { .. } | PropertyError::Unknown { .. } => Code::PropUnknown,
        PropertyError::Elsewhere { .. } | PropertyError::ValueElsewhere { .. } => Code::PropElsewhere,
        PropertyError::ReadOnly { .. } => Code::PropReadonly,
        _ => Code::PropValue,
    };
    Refusal::new(code, error.to_string())
}

fn exact(scope: Scope, given: &Properties, allowed: &[Change]) -> Result<Properties, Refusal> {
    let mut exact = Properties::new();
    for (name, value) in given {
        // Users and groups are stored by number.
        let name = &crate::owners::by_number(name).unwrap_or_else(|| name.clone());
        let (name, value) = parse_assignment(scope, &format!("{name}={value}")).map_err(property_refusal)?;
        let change = lookup(scope, &name).map_or(Change::Anytime, |p| p.change);
        if !allowed.contains(&change) {
            let when = match change {
                Change::AtImport => "can be set only while a pool is imported",
                _ => "can be set only at creation",
            };
            return Err(Refusal::new(Code::PropCreation, format!("'{name}' {when}")).with("property", &name));
        }
        if exact.insert(name.clone(), value).is_some() {
            let what = format!("'{name}' is given twice, once under its short name");
            return Err(Refusal::new(Code::PropValue, what).with("property", &name));
        }
    }
    Ok(exact)
}

fn inheritable(name: &str, received: bool) -> Result<String, Refusal> {
    if is_user_property(name) {
        return Ok(name.to_owned());
    }
    let Some(property) = lookup(Scope::Dataset, name) else {
        // The parser knows the nearest name; the value does not matter for that.
        let error = parse_assignment(Scope::Dataset, &format!("{name}=")).expect_err("the name is unknown");
        return Err(property_refusal(error));
    };
    match property.change {
        Change::Anytime if !property.inherit && !received => {
            let default = property.default.map_or_else(|| "none".to_owned(), |exact| property.shown(exact));
            Err(Refusal::new(Code::PropInherit, format!("'{name}' property cannot be inherited"))
                .with("property", name)
                .with("default", default))
        }
        // Of those of users and groups one row stands for all.
        Change::Anytime if property.name.ends_with("...") => Ok(name.to_owned()),
        Change::Anytime => Ok(property.name.to_owned()),
        Change::Never => Err(Refusal::new(Code::PropReadonly, format!("'{}' is readonly", property.name))
            .with("property", name)),
        Change::AtCreation | Change::AtImport => {
            let what = format!("'{}' was fixed at creation and cannot be inherited anew", property.name);
            Err(Refusal::new(Code::PropCreation, what).with("property", name))
        }
    }
}

fn check_paths(paths: &[PathBuf]) -> Result<(), Refusal> {
    match paths.iter().find(|path| !path.is_absolute()) {
        None => Ok(()),
        Some(path) => Err(relative(path)),
    }
}

fn relative(path: &Path) -> Refusal {
    Refusal::new(Code::ApiRequest, format!("the path {} is not absolute", path.display()))
}

/// A pool is made of main devices, and has one anchor at most. What is added may be either.
fn check_vdevs(vdevs: &[VdevSpec], new_pool: bool) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for vdev in vdevs {
        check_log(vdev)?;
        let is_built = vdev.class != VdevClass::Parity;
        let may_be_group = matches!(vdev.class, VdevClass::Main | VdevClass::Special | VdevClass::Log);
        if !is_built || !may_be_group && vdev.kind != VdevKind::Plain {
            let word = match vdev.class {
                VdevClass::Spare => "spare mirror",
                VdevClass::Cache => "cache mirror",
                class => vdev_word(class, vdev.kind),
            };
            return Err(
                Refusal::new(Code::Later, format!("'{word}' devices are not yet built")).with("word", word)
            );
        }
        for device in &vdev.devices {
            if !device.is_absolute() {
                return Err(relative(device));
            }
            if !seen.insert(device) {
                let what = format!("the device {} is listed twice", device.display());
                return Err(Refusal::new(Code::VdevTwice, what).with("device", device.display()));
            }
        }
    }
    let of = |class| vdevs.iter().filter(move |vdev| vdev.class == class).flat_map(|vdev| &vdev.devices);
    if let Some(second) = of(VdevClass::Anchor).nth(1) {
        let what = format!("two anchors are given, and {} is the second", second.display());
        return Err(Refusal::new(Code::AnchorExists, what).with("register", second.display()));
    }
    if seen.is_empty() || new_pool && of(VdevClass::Main).next().is_none() {
        return Err(Refusal::new(Code::VdevMissing, "no device is given").with("device", "tank.img"));
    }
    Ok(())
}

/// Refuses what the intent log cannot lie on, in ZFS's words.
fn check_log(vdev: &VdevSpec) -> Result<(), Refusal> {
    let (devices, most) = (vdev.devices.len(), Placement::COPIES_MAX);
    match (vdev.class, vdev.kind) {
        (VdevClass::Log, VdevKind::Raidz1 | VdevKind::Raidz2 | VdevKind::Raidz3) => {
            let what = "invalid vdev specification: unsupported 'log' device: raidz";
            Err(Refusal::new(Code::VdevLog, what))
        }
        (VdevClass::Log, VdevKind::Mirror) if !(2..=most).contains(&devices) => {
            let what = format!("mirror of {devices} devices: it takes 2 to {most}");
            Err(Refusal::new(Code::VdevGroup, what))
        }
        _ => Ok(()),
    }
}

/// The word of a device list for a class and kind.
#[must_use]
pub fn vdev_word(class: VdevClass, kind: VdevKind) -> &'static str {
    match (class, kind) {
        (VdevClass::Log, _) => "log",
        (VdevClass::Cache, _) => "cache",
        (VdevClass::Spare, _) => "spare",
        (VdevClass::Anchor, _) => "anchor",
        (VdevClass::Parity, _) => "parity",
        (VdevClass::Special, _) => "special",
        (VdevClass::Main, VdevKind::Plain) => "disk",
        (VdevClass::Main, VdevKind::Mirror) => "mirror",
        (VdevClass::Main, VdevKind::Raidz1) => "raidz1",
        (VdevClass::Main, VdevKind::Raidz2) => "raidz2",
        (VdevClass::Main, VdevKind::Raidz3) => "raidz3",
    }
}

/// The refusal of a key that would have to come where a stream does.
#[must_use]
pub fn key_beside_stream(target: &str) -> Refusal {
    let what = "the stream takes up standard input, so a key cannot be asked for: keyformat= needs keylocation=file:///PATH";
    Refusal::new(Code::KeyRules, what)
        .with("fs", target)
        .advising("Name a file that holds the key; `zfs set keylocation=prompt` changes that afterwards.")
}

/// Refuses features of a pool that this version could not switch on.
fn check_features(properties: &Properties) -> Result<(), Refusal> {
    let is_known = |name: &str| Feature::known(name).is_some() && !Feature::STRUCTURAL.contains(&name);
    let unknown = |name: &&String| name.strip_prefix(FEATURE).is_some_and(|feature| !is_known(feature));
    let Some(name) = properties.keys().find(unknown) else { return Ok(()) };
    let what = format!(
        "'{name}' is no feature that can be switched on here; `zpool upgrade -v` lists those there are"
    );
    Err(Refusal::new(Code::PropUnknown, what).with("property", name))
}

/// The same of a new pool, which uses all features but those that are disabled.
fn check_new_features(features: &Properties) -> Result<(), Refusal> {
    check_features(features)?;
    for (name, value) in features {
        let refuse = |what: String| Err(Refusal::new(Code::PropValue, what).with("property", name));
        match value.as_str() {
            "enabled" => {}
            "disabled" if name.strip_prefix(FEATURE).is_some_and(|name| ALWAYS_USED.contains(&name)) => {
                return refuse(format!("'{name}' cannot be disabled: no pool does without it"));
            }
            "disabled" => {}
            _ => return refuse(format!("'{name}' must be enabled or disabled, and not '{value}'")),
        }
    }
    Ok(())
}

/// Features that a pool makes use of by itself.
pub(crate) const ALWAYS_USED: [&str; 1] = ["relocation"];

/// A key comes with a key format, and a key format with a key.
fn check_key(properties: &Properties, key: Option<&Key>) -> Result<(), Refusal> {
    let rules = |what: &str| Err(Refusal::new(Code::KeyRules, what));
    let format = properties.get("keyformat").and_then(|text| KeyFormat::parse(text));
    let encryption = properties.get("encryption").map(String::as_str);
    if encryption == Some("off") && (format.is_some() || properties.contains_key("keylocation")) {
        return rules("encryption is off, and a key format or location is given");
    }
    match (format, key) {
        (None, Some(_)) => rules("a key is given without keyformat="),
        (Some(format), None) => rules(&format!("keyformat={} is given without a key", format.as_str())),
        (Some(format), Some(key)) if format != key.format => {
            rules("the key is not of the format that keyformat= says")
        }
        (Some(_), Some(key)) => key.check().map_err(|error| Refusal::new(Code::KeyFormat, error.to_string())),
        (None, None) if properties.contains_key("keylocation") => {
            rules("keylocation= is given without keyformat=")
        }
        (None, None) => Ok(()),
    }
}
