//! Checks that need no pool: names, property values, device lists, forms of keys.
//!
//! Each verb uses these in its own `check`. A request that passes has well-formed names, exact
//! property values ([`steadfast_property`]) and absolute paths, and asks for nothing that is not
//! built.

use crate::api::{Properties, VdevClass, VdevKind, VdevSpec};
use crate::refusal::{Code, Refusal};
use crate::secret::{Key, KeyFormat};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use steadfast_format::{Feature, Placement};
use steadfast_pool::LOSSES_PPM;
use steadfast_property::{
    ALLOW_PREFIX, Change, NameError, PropertyError, Scope, applies, check_snapshot_name, is_user_property,
    lookup, parse_assignment,
};

/// Prefix of the properties that stand for features.
pub(crate) const FEATURE: &str = "feature@";

/// Refuses a name of neither a snapshot nor a bookmark, which follows the same rules behind its
/// `#`.
pub(crate) fn check_snapshot_or_bookmark(name: &str) -> Result<(), Refusal> {
    check_snapshot_name(&name.replacen('#', "@", 1)).map_err(name_refusal)
}

/// Refuses a loss that no code is made for.
pub(crate) fn check_loss(loss_ppm: Option<u32>) -> Result<(), Refusal> {
    if loss_ppm.is_none_or(|loss| LOSSES_PPM.contains(&loss)) {
        return Ok(());
    }
    let percent = |ppm: &u32| f64::from(*ppm) / 1e4;
    let (least, most) = (percent(LOSSES_PPM.start()), percent(LOSSES_PPM.end()));
    let what = format!("the cells that may be lost are {least} % to {most} % of all");
    Err(Refusal::new(Code::PropValue, what).with("property", "loss"))
}

/// The refusal of a name.
#[must_use]
pub fn name_refusal(error: NameError) -> Refusal {
    Refusal::new(Code::NameInvalid, error.to_string())
}

/// Refuses file system properties of a volume, and volume properties of a file system.
pub(crate) fn check_kind(name: &str, properties: &Properties, volume: bool) -> Result<(), Refusal> {
    if !volume && properties.get("refreservation").is_some_and(|value| value == "auto") {
        let what =
            format!("refreservation=auto is the size of a volume, and '{name}' is not made or set as one");
        return Err(Refusal::new(Code::PropKind, what).with("property", "refreservation").with("fs", name));
    }
    let Some(property) = properties.keys().find(|property| !applies(property, volume)) else { return Ok(()) };
    let (kind, other) = if volume { ("volume", "file system") } else { ("file system", "volume") };
    let what = format!("'{property}' is a property of a {other}, and '{name}' is a {kind}");
    Err(Refusal::new(Code::PropKind, what).with("property", property).with("fs", name))
}

/// Refuses properties other than user properties: nothing else can be set on a snapshot.
pub(crate) fn check_user_properties(properties: &mut Properties) -> Result<(), Refusal> {
    only_user_properties(properties.keys())?;
    *properties = exact(Scope::Dataset, properties, &[Change::Anytime])?;
    Ok(())
}

pub(crate) fn only_user_properties<'n>(names: impl IntoIterator<Item = &'n String>) -> Result<(), Refusal> {
    let Some(name) = names.into_iter().find(|name| !is_user_property(name)) else { return Ok(()) };
    let what = format!("'{name}' cannot be set on a snapshot; only user properties (with a ':') can");
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

pub(crate) fn exact(scope: Scope, given: &Properties, allowed: &[Change]) -> Result<Properties, Refusal> {
    let mut exact = Properties::new();
    for (name, value) in given {
        // Quotas of users and groups are stored by number.
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

pub(crate) fn inheritable(name: &str, received: bool) -> Result<String, Refusal> {
    if is_user_property(name) && !name.starts_with(ALLOW_PREFIX) {
        return Ok(name.to_owned());
    }
    let Some(property) = lookup(Scope::Dataset, name) else {
        // For the parser's error, which suggests the nearest name. The value does not matter.
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
        // User and group quotas: one table row stands for all of them.
        Change::Anytime if property.name.ends_with("...") => Ok(name.to_owned()),
        Change::Anytime => Ok(property.name.to_owned()),
        Change::Never => Err(Refusal::new(Code::PropReadonly, format!("'{}' is readonly", property.name))
            .with("property", name)),
        Change::AtCreation | Change::AtImport => {
            let what = format!("'{}' is fixed at creation and cannot be inherited", property.name);
            Err(Refusal::new(Code::PropCreation, what).with("property", name))
        }
    }
}

pub(crate) fn check_paths(paths: &[PathBuf]) -> Result<(), Refusal> {
    match paths.iter().find(|path| !is_whole(path)) {
        None => Ok(()),
        Some(path) => Err(relative(path)),
    }
}

/// True if a device is named wholly: by an absolute path or by the address of a store.
fn is_whole(path: &Path) -> bool {
    path.is_absolute() || crate::stores::is_address(path)
}

fn relative(path: &Path) -> Refusal {
    Refusal::new(Code::ApiRequest, format!("the path {} is not absolute", path.display()))
}

/// Action if spares or cache devices are listed as a group.
const SINGLY: &str = "List spares and cache devices one by one, without `mirror` or `raidz`.";

/// Action if the anchor is listed as a group.
const ONE_ANCHOR: &str = "List one path: `anchor PATH`.";

/// Action if the parity device is listed as a group.
const ONE_PARITY: &str =
    "List one path: `parity PATH`. For redundancy list the devices as `mirror` or `raidz1` to `raidz3`.";

/// Refuses device lists that no pool can have. A new pool needs a main device; a pool has at most
/// one anchor.
pub(crate) fn check_vdevs(vdevs: &[VdevSpec], new_pool: bool) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for vdev in vdevs {
        check_log(vdev)?;
        if vdev.kind != VdevKind::Plain && vdev.devices.is_empty() {
            let group = vdev_word(VdevClass::Main, vdev.kind);
            let what = format!("'{group}' is followed by no device");
            return Err(Refusal::new(Code::VdevGroup, what));
        }
        let may_be_group = matches!(vdev.class, VdevClass::Main | VdevClass::Special | VdevClass::Log);
        if !may_be_group && vdev.kind != VdevKind::Plain {
            let word = match vdev.class {
                VdevClass::Spare | VdevClass::Cache | VdevClass::Anchor | VdevClass::Parity => {
                    let kind = vdev_word(VdevClass::Main, vdev.kind);
                    format!("{} {kind}", vdev_word(vdev.class, vdev.kind))
                }
                class => vdev_word(class, vdev.kind).to_owned(),
            };
            let refusal = Refusal::new(Code::Later, format!("'{word}' devices are not built"));
            let instead = match vdev.class {
                VdevClass::Parity => ONE_PARITY,
                VdevClass::Anchor => ONE_ANCHOR,
                _ => SINGLY,
            };
            return Err(refusal.advising(instead).with("word", word));
        }
        for device in &vdev.devices {
            if !is_whole(device) {
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
        let what = format!("a pool has one anchor, and {} would be a second one", second.display());
        return Err(Refusal::new(Code::AnchorExists, what).with("register", second.display()));
    }
    if let Some(second) = of(VdevClass::Parity).nth(1) {
        let what = format!("a pool has one parity device, and {} would be a second one", second.display());
        return Err(Refusal::new(Code::ParityExists, what).with("device", second.display()));
    }
    if seen.is_empty() || new_pool && of(VdevClass::Main).next().is_none() {
        return Err(Refusal::new(Code::VdevMissing, "no device is given").with("device", "tank.img"));
    }
    Ok(())
}

/// Refuses log devices that are no single devices or mirrors, in ZFS's words.
fn check_log(vdev: &VdevSpec) -> Result<(), Refusal> {
    let (devices, most) = (vdev.devices.len(), Placement::COPIES_MAX);
    match (vdev.class, vdev.kind) {
        (VdevClass::Log, VdevKind::Raidz1 | VdevKind::Raidz2 | VdevKind::Raidz3) => {
            let what = "invalid vdev specification: unsupported 'log' device: raidz";
            Err(Refusal::new(Code::VdevLog, what))
        }
        (VdevClass::Log, VdevKind::Mirror) if !(2..=most).contains(&devices) => {
            let what = format!("a mirror has 2 to {most} devices, not {devices}");
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

/// The refusal of a key that would be read from standard input, like the stream.
#[must_use]
pub fn key_beside_stream(target: &str) -> Refusal {
    let what = "standard input carries the stream, so the key cannot be read from it: keyformat= needs keylocation=file:///PATH";
    Refusal::new(Code::KeyRules, what)
        .with("fs", target)
        .advising("Name a file that holds the key; `zfs set keylocation=prompt` changes that afterwards.")
}

/// Refuses features of a pool that this version could not switch on.
pub(crate) fn check_features(properties: &Properties) -> Result<(), Refusal> {
    let is_known = |name: &str| Feature::known(name).is_some() && !Feature::STRUCTURAL.contains(&name);
    let unknown = |name: &&String| name.strip_prefix(FEATURE).is_some_and(|feature| !is_known(feature));
    let Some(name) = properties.keys().find(unknown) else { return Ok(()) };
    if name.strip_prefix(FEATURE).is_some_and(|feature| Feature::STRUCTURAL.contains(&feature)) {
        let what = format!(
            "'{name}' cannot be set: the command that needs it turns it on; `zpool upgrade -v` lists the others"
        );
        return Err(Refusal::new(Code::PropUnknown, what).with("property", name));
    }
    let what = format!("there is no feature '{name}'; `zpool upgrade -v` lists the features");
    Err(Refusal::new(Code::PropUnknown, what).with("property", name))
}

/// The same for a new pool, which uses all features that are not disabled.
pub(crate) fn check_new_features(features: &Properties) -> Result<(), Refusal> {
    check_features(features)?;
    for (name, value) in features {
        let refuse = |what: String| Err(Refusal::new(Code::PropValue, what).with("property", name));
        match value.as_str() {
            "enabled" => {}
            "disabled" if name.strip_prefix(FEATURE).is_some_and(|name| ALWAYS_USED.contains(&name)) => {
                return refuse(format!("'{name}' cannot be disabled: every pool needs it"));
            }
            "disabled" => {}
            _ => return refuse(format!("'{name}' must be enabled or disabled, not '{value}'")),
        }
    }
    Ok(())
}

/// Features that every pool uses.
pub(crate) const ALWAYS_USED: [&str; 1] = ["relocation"];

/// Features for what every pool of ZFS can do, whose features begin behind its version 28. `-d`
/// leaves them in.
pub(crate) const OF_EVERY_ZFS_POOL: [&str; 13] = [
    "block_sharing",
    "clones",
    "content_copies",
    "intent_log",
    "moved_datasets",
    "owner_accounting",
    "received_clones",
    "received_notes",
    "received_properties",
    "receives",
    "relocation",
    "snapshots",
    "volumes",
];

/// A key comes with a key format, and a key format with a key.
pub(crate) fn check_key(properties: &Properties, key: Option<&Key>) -> Result<(), Refusal> {
    let rules = |what: &str| Err(Refusal::new(Code::KeyRules, what));
    let format = properties.get("keyformat").and_then(|text| KeyFormat::parse(text));
    let encryption = properties.get("encryption").map(String::as_str);
    if encryption == Some("off") && (format.is_some() || properties.contains_key("keylocation")) {
        return rules("keyformat= or keylocation= is given, but encryption is off");
    }
    match (format, key) {
        (None, Some(_)) => rules("a key is given without keyformat="),
        (Some(format), None) => rules(&format!("keyformat={} is given without a key", format.as_str())),
        (Some(format), Some(key)) if format != key.format => {
            rules("the key does not have the format in keyformat=")
        }
        (Some(_), Some(key)) => key.check().map_err(|error| Refusal::new(Code::KeyFormat, error.to_string())),
        (None, None) if properties.contains_key("keylocation") => {
            rules("keylocation= is given without keyformat=")
        }
        (None, None) => Ok(()),
    }
}
