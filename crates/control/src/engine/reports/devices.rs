//! State of the devices and groups of an imported pool.

use crate::api::{ErrorKinds, Health, TilesReport, TrimReport, TrimState, VdevClass, VdevReport};
use crate::engine::reports::groups::{group_name, group_number, kind, with_log_mirrors};
use crate::engine::reports::{replacements, spares};
use crate::refusal::{Code, Refusal};
use steadfast_format::{GroupClass, LeafState};
use steadfast_pool::{
    LeafStatus, LogDeviceStatus, LogOut, ParityStatus, PoolStatus as Measured, Presence, TilesStatus,
};

pub(in crate::engine) fn health(measured: &Measured) -> Health {
    let whole = measured.leaves.iter().all(|leaf| {
        matches!(leaf.config.state, LeafState::Online | LeafState::Leaving)
            && !leaf.is_out
            && leaf.presence == Presence::Whole
            && leaf.away.is_none()
            && leaf.degraded.is_none()
    }) && measured.log_devices.iter().all(|log| log_health(log).0 == Health::Online)
        && measured.parity.iter().all(|parity| parity_health(parity) == Health::Online);
    match (&measured.suspended, whole) {
        (Some(_), _) => Health::Suspended,
        (None, false) => Health::Degraded,
        (None, true) => Health::Online,
    }
}

/// State of a parity device: degraded if the last audit failed.
fn parity_health(parity: &ParityStatus) -> Health {
    match &parity.trouble {
        Some(_) => Health::Unavail,
        None if parity.audit.is_some_and(|audit| audit.failed > 0) => Health::Degraded,
        None if parity.owes_repair => Health::Degraded,
        None if parity.tiles.as_ref().is_some_and(TilesStatus::holds_up) => Health::Degraded,
        None => Health::Online,
    }
}

/// A parity device in its section.
fn parity_report(pool: &str, parity: &ParityStatus) -> VdevReport {
    let figures = parity.figures.as_ref();
    let note = match (&parity.trouble, figures) {
        (Some(trouble), _) => trouble.clone(),
        (None, None) => String::new(),
        (None, Some(figures)) => {
            let mut note =
                format!("pass {}, up to {} % may be lost", figures.generation, percent(figures.loss_ppm));
            match parity.uncovered {
                0 => note.push_str(", all covered"),
                1 => note.push_str(", 1 object is not covered yet"),
                objects => note.push_str(&format!(", {objects} objects are not covered yet")),
            }
            if let Some(reason) = &parity.left_out {
                note.push_str(&format!(" ({reason})"));
            }
            if let Some(next) = figures.next {
                note.push_str(&format!(", {} of {} tiles of another code are made", next.made, next.tiles));
                if next.loss_ppm != figures.loss_ppm {
                    note.push_str(&format!(" (for up to {} %)", percent(next.loss_ppm)));
                }
            }
            if figures.is_map_used_up() && figures.next.is_none() {
                let seen = figures.recoveries;
                note.push_str(&format!(
                    ", {seen} recoveries by this code: make another by `steadfast audit rekey {pool}`"
                ));
            }
            match &parity.tiles {
                None => {}
                Some(tiles) => note.push_str(&tiles_note(tiles)),
            }
            match &parity.audit {
                None => note.push_str(", never audited"),
                Some(audit) if audit.failed == 0 => {
                    note.push_str(&format!(", {} samples held {}", audit.samples, moment(audit.audited_ns)));
                }
                Some(audit) => note.push_str(&format!(
                    ", {} of {} samples failed {}",
                    audit.failed,
                    audit.samples,
                    moment(audit.audited_ns)
                )),
            }
            note
        }
    };
    VdevReport {
        size: figures.map_or(0, |figures| figures.bytes),
        note: Some(note),
        tiles: parity.tiles.as_ref().map(|tiles| TilesReport {
            store: tiles.address.clone(),
            trouble: tiles.trouble.clone(),
            lost: tiles.lost,
            to_delete: tiles.stale,
            gone: tiles.held,
            staying: tiles.staying.as_ref().map_or(0, |(count, _)| *count),
        }),
        ..VdevReport::new(parity.path.clone(), parity.guid, VdevClass::Parity, parity_health(parity))
    }
}

/// Tiles at a store in the note of their parity device.
fn tiles_note(tiles: &TilesStatus) -> String {
    let TilesStatus { address, trouble, lost, stale, .. } = tiles;
    let mut note = match (lost, trouble) {
        (None, None) => format!(", tiles at {address}"),
        (Some(tile), _) => format!(", passes wait for tile {tile}, which {address} does not have"),
        (None, Some(reason)) => format!(", passes wait for the tiles at {address} ({reason})"),
    };
    match stale {
        0 => {}
        1 => note.push_str(", 1 object there waits to be deleted"),
        objects => note.push_str(&format!(", {objects} objects there wait to be deleted")),
    }
    note
}

/// Millionths as percent, without zeros behind.
fn percent(ppm: u32) -> String {
    let text = format!("{:.4}", f64::from(ppm) / 10_000.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A moment in nanoseconds since 1970, for people.
pub(in crate::engine) fn moment(time_ns: u64) -> String {
    let seconds = i64::try_from(time_ns / 1_000_000_000).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).unwrap_or_default().strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// State of a device, and a remark.
pub(in crate::engine) fn leaf_health(leaf: &LeafStatus) -> (Health, Option<String>) {
    match leaf.config.state {
        LeafState::Leaving if leaf.is_out && leaf.presence == Presence::Whole => {
            return (Health::Faulted, Some("is out of use".into()));
        }
        LeafState::Online | LeafState::Leaving => {}
        LeafState::Offline => return (Health::Offline, None),
        LeafState::Faulted => return (Health::Faulted, Some("is out of use".into())),
        LeafState::Gone => return (Health::Unavail, Some("was not found at import".into())),
        LeafState::Parted => return (Health::Removed, Some("moved to another pool by zpool split".into())),
        LeafState::Spared => return (Health::Faulted, Some("replaced by a spare".into())),
    }
    if let Some(outage) = &leaf.away {
        return (Health::Unavail, Some(format!("is away since {}", moment(outage.since_ns))));
    }
    match leaf.presence {
        Presence::Whole if leaf.degraded.is_some() => {
            (Health::Degraded, leaf.degraded.map(steadfast_pool::Cause::words))
        }
        Presence::Whole if leaf.growth.fits > leaf.growth.slots && leaf.config.state == LeafState::Online => {
            (Health::Online, Some("has grown; `zpool online -e` uses all of it".into()))
        }
        Presence::Whole => (Health::Online, None),
        Presence::Removed => (Health::Removed, Some("was removed while in use".into())),
        Presence::Short { size_bytes } => {
            (Health::Faulted, Some(format!("was cut short to {size_bytes} bytes while in use")))
        }
    }
}

/// Errors of a device by kind.
fn error_kinds(leaf: &LeafStatus) -> ErrorKinds {
    ErrorKinds {
        unreadable: leaf.counts.read_errors,
        hash: leaf.counts.hash_errors,
        authentication: leaf.counts.authentication_errors,
        stale: leaf.counts.stale_errors,
        misplaced: leaf.counts.misplaced_errors,
        slow: leaf.slow,
    }
}

/// The same of a log device.
pub(in crate::engine) fn log_health(log: &LogDeviceStatus) -> (Health, Option<String>) {
    let because = |text: &str| match &log.trouble {
        Some(trouble) => Some(format!("{text}: {trouble}")),
        None => Some(text.to_owned()),
    };
    match (log.sample.is_some(), log.given_up, log.presence) {
        _ if log.out == Some(LogOut::Offline) => (Health::Offline, None),
        (false, ..) => (Health::Unavail, log.trouble.clone()),
        (true, true, _) => (Health::Faulted, because("given up")),
        _ if log.out.is_some() => (Health::Offline, Some("until the next import, or `zpool online`".into())),
        (true, false, _) if log.trouble.is_some() => (Health::Faulted, because("failed")),
        (true, false, Presence::Whole) => (Health::Online, None),
        (true, false, Presence::Removed) => (Health::Removed, Some("was removed while in use".into())),
        (true, false, Presence::Short { size_bytes }) => {
            (Health::Faulted, Some(format!("was cut short to {size_bytes} bytes while in use")))
        }
    }
}

/// Message about a device that was removed or cut short, without redundancy.
pub(in crate::engine) fn gone(pool: &str, leaf: &LeafStatus) -> Refusal {
    let note = leaf_health(leaf).1.unwrap_or_default();
    let what = format!("the device {} {note}", leaf.config.path);
    Refusal::new(Code::VdevGone, what).with("device", &leaf.config.path).with("pool", pool)
}

/// Class of a group.
pub(in crate::engine) fn class_of(measured: &Measured, id: u8) -> VdevClass {
    let group = measured.groups.iter().find(|group| group.id == id);
    match group.map(|group| group.class) {
        Some(GroupClass::Special) => VdevClass::Special,
        _ => VdevClass::Main,
    }
}

/// True if a device has no other in its group: a mirror of one is shown like a single device.
pub(in crate::engine) fn stands_alone(measured: &Measured, leaf: &LeafStatus) -> bool {
    let group = leaf.config.group;
    group == 0 || measured.leaves.iter().filter(|other| other.config.group == group).count() == 1
}

/// True if the device's group is being removed.
fn is_removed(measured: &Measured, leaf: &LeafStatus) -> bool {
    let same = |other: &&LeafStatus| {
        let (own, other) = (&leaf.config, &other.config);
        own.id == other.id || own.group != 0 && own.group == other.group
    };
    measured.leaves.iter().filter(same).all(|leaf| leaf.config.state == LeafState::Leaving)
}

/// Why a device leaves, if it does.
fn leaving(measured: &Measured, leaf: &LeafStatus) -> Option<&'static str> {
    match leaf.config.state {
        LeafState::Leaving if is_removed(measured, leaf) => Some("is being removed"),
        LeafState::Leaving => Some("is being replaced"),
        _ => None,
    }
}

/// Names of removed groups and devices.
pub(in crate::engine) fn removed_names(measured: &Measured) -> String {
    let mut names: Vec<String> = Vec::new();
    for leaf in measured.leaves.iter().filter(|leaf| is_removed(measured, leaf)) {
        let name = match leaf.config.group {
            0 => leaf.config.path.clone(),
            group => group_name(measured, group),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

/// A group with its members.
pub(in crate::engine) fn group_report(
    measured: &Measured,
    id: u8,
    vdev: &dyn Fn(&LeafStatus) -> VdevReport,
) -> VdevReport {
    let group = measured.groups.iter().find(|group| group.id == id).expect("a leaf's group is listed");
    let redundancy = steadfast_pool::redundancy_of(group);
    let members: Vec<&LeafStatus> = measured.leaves.iter().filter(|leaf| leaf.config.group == id).collect();
    let children = members.iter().map(|leaf| vdev(leaf)).collect();
    let children = replacements::nested(measured, group.width, &members, children);
    let children = spares::nested(measured, children);
    let of_use = |child: &&VdevReport| matches!(child.state, Health::Online | Health::Degraded);
    let bad = children.len() - children.iter().filter(of_use).count();
    let state = match bad {
        0 if children.iter().all(|child| child.state == Health::Online) => Health::Online,
        bad if bad <= redundancy.spared(group.width.into()) as usize => Health::Degraded,
        _ => Health::Faulted,
    };
    // As in ZFS: a mirror counts its data once, raidz counts data and parity. Each device reports
    // its share of live data. If devices differ in size, some segments have fewer columns; that is
    // not counted here.
    let sizes = children.iter().map(|child| child.size);
    let live: u64 = children.iter().map(|child| child.allocated).sum();
    let (size, allocated) = match redundancy {
        steadfast_pool::Redundancy::Mirror => (sizes.min().unwrap_or(0), live),
        steadfast_pool::Redundancy::Raidz(parity) => {
            let columns = u64::from(group.width);
            (sizes.sum(), live * columns / columns.saturating_sub(parity.into()).max(1))
        }
        _ => (sizes.sum(), live),
    };
    let number = group_number(measured.made_as, id);
    let report = VdevReport::new(group_name(measured, id), number, class_of(measured, id), state);
    let kind = kind(redundancy);
    VdevReport { kind, size, allocated, expandsize: gain(redundancy, &children), children, ..report }
}

/// Size of a pool, and bytes that live, as `zpool list` counts them: parity included.
pub(in crate::engine) fn raw_room(measured: &Measured) -> (u64, u64) {
    let (mut size, mut live) = (measured.accounting.size_bytes, measured.accounting.live_bytes);
    for group in &measured.groups {
        if let steadfast_pool::Redundancy::Raidz(parity) = steadfast_pool::redundancy_of(group) {
            let report = group_report(measured, group.id, &|leaf| leaf_report(measured, leaf));
            let of_parity = |bytes: u64| bytes * u64::from(parity) / u64::from(group.width).max(1);
            size += of_parity(report.size);
            live += of_parity(report.allocated);
        }
    }
    (size, live)
}

/// Bytes that a group gains if its devices are expanded. A mirror gains by its smallest device, as
/// in ZFS. Devices of raidz may differ in size: each byte counts as far as parity allows.
fn gain(redundancy: steadfast_pool::Redundancy, children: &[VdevReport]) -> u64 {
    let least = |size: fn(&VdevReport) -> u64| children.iter().map(size).min().unwrap_or(0);
    match redundancy {
        steadfast_pool::Redundancy::Mirror => {
            least(|child| child.size + child.expandsize).saturating_sub(least(|child| child.size))
        }
        _ => children.iter().map(|child| child.expandsize).sum(),
    }
}

/// Groups, and devices that stand alone, in the order of their first devices; special ones last.
pub(in crate::engine) fn tops(measured: &Measured) -> Vec<VdevReport> {
    let vdev = |leaf: &LeafStatus| leaf_report(measured, leaf);
    let first = |leaf: &LeafStatus| {
        measured.leaves.iter().position(|l| l.config.group == leaf.config.group).expect("it is one of them")
    };
    let of_group = measured.leaves.iter().enumerate();
    let of_group = of_group.filter(|(at, leaf)| leaf.config.group == 0 || first(leaf) == *at);
    let mut groups: Vec<VdevReport> = of_group
        .map(|(_, leaf)| match stands_alone(measured, leaf) {
            true => vdev(leaf),
            false => group_report(measured, leaf.config.group, &vdev),
        })
        .collect();
    groups.sort_by_key(|vdev| vdev.class == VdevClass::Special);
    groups
}

/// All devices of the pool of this name, in groups as status shows them.
pub(in crate::engine) fn devices_of(pool: &str, measured: &Measured) -> Vec<VdevReport> {
    let log = |log: &LogDeviceStatus| {
        let (state, note) = log_health(log);
        let report = VdevReport {
            note,
            size: log.size_bytes,
            read_errors: log.errors.0,
            write_errors: log.errors.1,
            checksum_errors: log.checksum_errors,
            kinds: ErrorKinds { hash: log.checksum_errors, ..ErrorKinds::default() },
            ..VdevReport::new(log.path.clone(), log.guid, VdevClass::Log, state)
        };
        (log.mirror, report)
    };
    let mut devices = tops(measured);
    devices.extend(with_log_mirrors(measured.made_as, measured.log_devices.iter().map(log).collect()));
    devices.extend(measured.caches.iter().map(spares::cache_report));
    devices.extend(measured.spares.iter().map(spares::report));
    devices.extend(measured.parity.iter().map(|parity| parity_report(pool, parity)));
    devices
}

/// A device as status shows it.
pub(in crate::engine) fn leaf_report(measured: &Measured, leaf: &LeafStatus) -> VdevReport {
    // A slot of a device holds a column, which in raidz is smaller than a segment.
    let group = measured.groups.iter().find(|group| group.id == leaf.config.group);
    let column = u64::from(group.map_or(measured.accounting.slot_size, |group| group.column));
    let (state, note) = leaf_health(leaf);
    let class = class_of(measured, leaf.config.group);
    VdevReport {
        note: match (leaving(measured, leaf), note) {
            (Some(leaving), Some(note)) => Some(format!("{note}, {leaving}")),
            (leaving, note) => leaving.map(str::to_owned).or(note),
        },
        size: leaf.size_bytes,
        allocated: leaf.allocated_bytes,
        expandsize: u64::from(leaf.growth.fits - leaf.growth.slots) * column,
        read_errors: leaf.counts.read_errors,
        write_errors: leaf.counts.write_errors,
        checksum_errors: leaf.counts.checksum_errors,
        kinds: error_kinds(leaf),
        trim: Some(trim_report(&leaf.trim)),
        initialize: Some(trim_report(&leaf.initialize)),
        ..VdevReport::new(leaf.config.path.clone(), leaf.config.guid, class, state)
    }
}

fn trim_report(status: &steadfast_pool::TrimStatus) -> TrimReport {
    let state = match status.state {
        steadfast_pool::TrimState::Unsupported => TrimState::Unsupported,
        steadfast_pool::TrimState::Untrimmed => TrimState::Untrimmed,
        steadfast_pool::TrimState::Active => TrimState::Active,
        steadfast_pool::TrimState::Suspended => TrimState::Suspended,
        steadfast_pool::TrimState::Complete => TrimState::Complete,
    };
    let (done, total) = (status.done_bytes, status.total_bytes);
    TrimReport { state, done, total, trimmed: status.trimmed_bytes, since: status.since }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use steadfast_device::MemoryDevice;
    use steadfast_pool::{CreateSpec, DeviceHandle, Figures, GroupHandles, NextFigures, Pool};

    #[test]
    fn a_code_that_is_used_up_names_the_command_for_another_one() {
        let figures = Figures {
            cells: 1,
            planned: 2,
            loss_ppm: 20_000,
            tiles: 1,
            journal_size: 4096,
            journal_used: 0,
            generation: 3,
            is_step_running: false,
            segments: 1,
            bytes: 1 << 20,
            recoveries: 1024,
            next: None,
        };
        let note = |recoveries, next| {
            let parity = ParityStatus {
                path: "/safe/parity".into(),
                guid: 1,
                trouble: None,
                figures: Some(Figures { recoveries, next, ..figures }),
                owes_repair: false,
                uncovered: 0,
                left_out: None,
                held_back: 0,
                unread: None,
                audit: None,
                tiles: None,
            };
            parity_report("tank", &parity).note.unwrap_or_default()
        };
        assert!(note(1024, None).contains("1024 recoveries by this code"));
        assert!(note(1024, None).contains("`steadfast audit rekey tank`"));
        assert!(!note(1023, None).contains("recoveries by this code"));
        // Another one is under way.
        let next = NextFigures { made: 1, tiles: 2, loss_ppm: 20_000 };
        assert!(!note(1024, Some(next)).contains("recoveries by this code"));
    }

    /// A store that does not answer and a lost tile hold up passes; objects that stay do not.
    #[test]
    fn tiles_at_a_store_are_told() {
        let whole = TilesStatus { address: "s3://far".into(), ..TilesStatus::default() };
        let told = |tiles: &TilesStatus| (tiles_note(tiles), tiles.holds_up());
        assert_eq!(told(&whole), (", tiles at s3://far".into(), false));
        let waits = TilesStatus { stale: 3, staying: Some((2, "no answer".into())), ..whole.clone() };
        let note = ", tiles at s3://far, 3 objects there wait to be deleted";
        assert_eq!(told(&waits), (note.into(), false));
        let away = TilesStatus { stale: 1, trouble: Some("no answer".into()), ..whole.clone() };
        let note = ", passes wait for the tiles at s3://far (no answer), 1 object there waits to be deleted";
        assert_eq!(told(&away), (note.into(), true));
        let lost = TilesStatus { lost: Some(7), ..whole };
        assert_eq!(told(&lost), (", passes wait for tile 7, which s3://far does not have".into(), true));
    }

    #[test]
    fn a_device_that_leaves_and_is_out_of_use_is_not_online() {
        let handle = |path: &str| DeviceHandle {
            path: path.into(),
            device: Arc::new(MemoryDevice::new(path, 64 << 20)),
        };
        let mirror = GroupHandles {
            redundancy: steadfast_pool::Redundancy::Mirror,
            class: GroupClass::Normal,
            devices: vec![handle("a"), handle("b")],
        };
        let spec = CreateSpec {
            name: "tank".into(),
            groups: vec![mirror],
            ashift: 12,
            force: false,
            pool_props: Default::default(),
            root_props: Default::default(),
            key: None,
            aux: Default::default(),
            anchor: Default::default(),
            host: "host".into(),
            memory: Default::default(),
        };
        let pool = Pool::create(&steadfast_env::Env::simulated(1), spec).unwrap();
        let mut measured = pool.state();
        let told = |measured: &Measured| {
            let group = group_report(measured, 1, &|leaf| leaf_report(measured, leaf));
            let leaf = group.children[0].clone();
            (leaf.state, leaf.note.unwrap_or_default(), group.state, health(measured))
        };
        use Health::{Degraded, Faulted, Online};
        assert_eq!(told(&measured), (Online, String::new(), Online, Online));
        measured.leaves[0].config.state = LeafState::Leaving;
        assert_eq!(told(&measured), (Online, "is being replaced".into(), Online, Online));
        measured.leaves[0].is_out = true;
        let note = "is out of use, is being replaced";
        assert_eq!(told(&measured), (Faulted, note.into(), Degraded, Degraded));
        // All of its group leave.
        measured.leaves[1].config.state = LeafState::Leaving;
        let note = "is out of use, is being removed";
        assert_eq!(told(&measured), (Faulted, note.into(), Degraded, Degraded));
        // It is gone.
        measured.leaves[0].presence = Presence::Removed;
        let note = "was removed while in use, is being removed";
        assert_eq!(told(&measured).1, note);
        assert_eq!(told(&measured).0, Health::Removed);
        pool.close().unwrap();
    }
}
