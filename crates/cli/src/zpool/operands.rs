//! Devices as an operator types them: paths, and lists such as `mirror sda sdb log sdc`.

use crate::options::{Flag, Parsed, flag, valued};
use crate::properties::assignments;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::path::{Path, PathBuf};
use steadfast_bucket::Location;
use steadfast_control::api::{Call, PoolList, VdevClass, VdevKind, VdevSpec};
use steadfast_control::check::{property_refusal, vdev_word};
use steadfast_control::{Code, Refusal, stores};
use steadfast_property::{Scope, nearest, parse_assignment};

/// `-f` of verbs that take new devices.
pub(super) const FORCE: Flag = flag('f', "overwrite devices that seem to be in use");
/// `--power` of verbs that could switch the power of a slot.
pub(super) const POWER: Flag = Flag {
    letter: '\0',
    long: "power",
    value: "",
    doc: "refused: the daemon does not switch the power of slots; use the tools of the enclosure, such as sg_ses",
};
/// `-o` of verbs that take new devices.
pub(super) const ASHIFT: Flag = valued('o', "property=value", "ashift=N; must be 0 or the pool's own ashift");

/// The attempted operation on devices, as ZFS names it: `cannot offline sda`.
pub(super) fn of_devices(verb: &str, words: &[String]) -> String {
    format!("cannot {verb} {}", tame(&words.join(", ")))
}

/// Refuses options of ZFS whose description begins with [`crate::options::REFUSED`].
pub(super) fn check_refused(parsed: &Parsed) -> Result<(), Failure> {
    match parsed.refused() {
        Some((name, why)) => Err(Failure::Usage(format!("{name}: {why}"))),
        None => Ok(()),
    }
}

/// Words of a list of devices that are no devices.
const GROUP_WORDS: [&str; 10] =
    ["mirror", "raidz", "raidz1", "raidz2", "raidz3", "special", "cache", "spare", "anchor", "parity"];

/// Reads a list of devices.
pub(super) fn vdevs(session: &Session<'_, '_>, words: &[String]) -> Result<Vec<VdevSpec>, Refusal> {
    let mut class = VdevClass::Main;
    let mut vdevs: Vec<VdevSpec> = Vec::new();
    let mut group: Option<VdevKind> = None;
    // A word behind which no device has come.
    let mut bare: Option<&str> = None;
    let needs_device = |word: &str| {
        let instead = "Name a device behind the word, or leave the word out.";
        Refusal::new(Code::VdevGroup, format!("no device follows '{word}'")).advising(instead)
    };
    for word in words {
        let kind = match word.as_str() {
            "mirror" => Some(VdevKind::Mirror),
            "raidz" | "raidz1" => Some(VdevKind::Raidz1),
            "raidz2" => Some(VdevKind::Raidz2),
            "raidz3" => Some(VdevKind::Raidz3),
            _ => None,
        };
        let named_class = match word.as_str() {
            "special" => Some(VdevClass::Special),
            "log" => Some(VdevClass::Log),
            "cache" => Some(VdevClass::Cache),
            "spare" => Some(VdevClass::Spare),
            "anchor" => Some(VdevClass::Anchor),
            "parity" => Some(VdevClass::Parity),
            _ => None,
        };
        if let Some(kind) = kind {
            // As in ZFS: single devices follow these words, and a group behind them is a normal
            // one.
            let has_devices = vdevs.last().is_some_and(|last| last.class == class);
            if has_devices && matches!(class, VdevClass::Spare | VdevClass::Cache) {
                class = VdevClass::Main;
            }
            group = Some(kind);
            vdevs.push(VdevSpec { class, kind, devices: Vec::new() });
        } else if let Some(named) = named_class {
            if let Some(bare) = bare.replace(word) {
                return Err(needs_device(bare));
            }
            (class, group) = (named, None);
        } else if let Some(refusal) = not_built(word) {
            return Err(refusal);
        } else {
            let device = match Location::is_meant(word) {
                // Written the one way, so that a store has one name; and never with a secret.
                true => PathBuf::from(stores::wished(word)?.to_string()),
                false => device_path(session, word),
            };
            if !word.contains('/')
                && !device.exists()
                && let Some(meant) = nearest(word, GROUP_WORDS.iter().copied())
            {
                let what = format!("{}: no such file or device; did you mean '{meant}'?", tame(word));
                return Err(Refusal::new(Code::VdevMissing, what).with("device", tame(word)));
            }
            bare = None;
            match (group, vdevs.last_mut()) {
                (Some(_), Some(last)) => last.devices.push(device),
                _ => vdevs.push(VdevSpec { class, kind: VdevKind::Plain, devices: vec![device] }),
            }
        }
    }
    if let Some(bare) = bare {
        return Err(needs_device(bare));
    }
    if vdevs.iter().any(|vdev| vdev.kind == VdevKind::Mirror && vdev.devices.len() > MIRROR_MAX) {
        let what = format!("mirrors of more than {MIRROR_MAX} devices are not built");
        let instead = "Use mirrors of up to four devices, with spares.";
        return Err(Refusal::new(Code::Later, what).advising(instead).with("word", "mirror"));
    }
    Ok(vdevs)
}

/// Most devices of a mirror: the copies that a segment's row names.
const MIRROR_MAX: usize = 4;

/// Folders in which ZFS looks for a disk that is named without one.
const DISKS: [&str; 7] = [
    "/dev",
    "/dev/disk/by-vdev",
    "/dev/mapper",
    "/dev/disk/by-partlabel",
    "/dev/disk/by-partuuid",
    "/dev/disk/by-id",
    "/dev/disk/by-path",
];

/// The absolute path of a device as typed: below the working folder, or among the disks.
pub(super) fn device_path(session: &Session<'_, '_>, word: &str) -> PathBuf {
    let device = session.world.absolute(word);
    if word.contains('/') || device.exists() {
        return device;
    }
    let found = DISKS.iter().map(|folder| Path::new(folder).join(word)).find(|path| path.exists());
    found.unwrap_or(device)
}

/// The refusal of a word that names devices of a kind that is not built.
fn not_built(word: &str) -> Option<Refusal> {
    let (what, instead) = if word == "dedup" {
        (
            "'dedup' devices are not built".to_owned(),
            "Add a special device; it holds the dedup table (DDT), as all metadata.",
        )
    } else if word.starts_with("draid") {
        (format!("'{}' groups are not built", tame(word)), "Use raidz1, raidz2 or raidz3, with spares.")
    } else {
        return None;
    };
    Some(Refusal::new(Code::Later, what).advising(instead).with("word", word))
}

/// Checks `-o` of a verb that takes new devices: all devices have the pool's ashift.
///
/// Those that begin with `own` are the verb's own.
///
/// # Errors
/// Another property, or another ashift.
pub(super) fn check_new(
    session: &mut Session<'_, '_>,
    parsed: &Parsed,
    pool: &str,
    own: &[&str],
    doing: impl Fn() -> String,
) -> Result<(), Failure> {
    let others = parsed.values('o').filter(|text| !own.iter().any(|own| text.starts_with(own)));
    for (name, value) in assignments(session, Scope::Pool, others)? {
        let text = format!("{name}={value}");
        let (name, value) = parse_assignment(Scope::Pool, &text).map_err(property_refusal).doing(&doing)?;
        if name != "ashift" {
            return Err(Failure::Usage(format!(
                "invalid property '{}': new devices take ashift only",
                tame(&name)
            )));
        }
        let found = session.ask(PoolList { names: vec![pool.to_owned()] }).doing(&doing)?;
        let own =
            found.first().and_then(|pool| pool.properties.get(&name)).map_or("", |own| own.value.as_str());
        if value != "0" && value != own {
            let what = format!("the pool has ashift={own}, and all its devices must have the same");
            let refusal = Refusal::new(Code::PropCreation, what).with("property", "ashift");
            return Err(refusal).doing(&doing);
        }
    }
    Ok(())
}

/// The lines of a layout: class, group and device names, each with its depth.
pub(super) fn layout(vdevs: &[VdevSpec]) -> Vec<(usize, String)> {
    let (mut lines, mut section) = (Vec::new(), VdevClass::Main);
    for vdev in vdevs {
        let mut depth = 1;
        let class = vdev_word(vdev.class, VdevKind::Plain);
        if vdev.class != VdevClass::Main && vdev.class != section {
            lines.push((0, class.to_owned()));
        }
        section = vdev.class;
        if vdev.kind != VdevKind::Plain {
            lines.push((depth, vdev_word(VdevClass::Main, vdev.kind).to_owned()));
            depth += 1;
        }
        lines.extend(vdev.devices.iter().map(|device| (depth, tame(&device.display().to_string()))));
    }
    lines
}
/// Reports of the pools with these names, or of all. As in ZFS a name that is none is told, and the
/// others are reported.
///
/// # Errors
/// Another refusal of the daemon, or that of a single name.
pub(super) fn reports<C: Call<Answer = Vec<T>>, T>(
    session: &mut Session<'_, '_>,
    names: &[String],
    request: impl Fn(Vec<String>) -> C,
    doing: &str,
) -> Result<Vec<T>, Failure> {
    match session.ask(request(names.to_vec())) {
        Err(refusal) if names.len() > 1 && refusal.code == Code::PoolAbsent => {}
        all => return all.doing(|| doing.to_owned()),
    }
    let mut found = Vec::new();
    for name in names {
        match session.ask(request(vec![name.clone()])) {
            Err(refusal) if refusal.code == Code::PoolAbsent => session.complain(doing, &refusal),
            one => found.extend(one.doing(|| doing.to_owned())?),
        }
    }
    Ok(found)
}
