//! What pools and file systems measure, as properties and reports.

use super::{Engine, Held, candidates, growth, missing, mounts, refuse, sharing};
use crate::api::{
    CallCount, DataError, DeviceIo, ErrorKinds, FsInfo, FsList, GroupIo, Health, HistoryRecord, LogReport,
    PoolInfo, PoolIo, PoolPast, PoolReport, Properties, ScanReport, Source, TrimReport, TrimState, Value,
    VdevClass, VdevKind, VdevReport,
};
use crate::cachefile::CachedPool;
use crate::refusal::{Code, Refusal};
use std::collections::BTreeMap;
use steadfast_format::{GroupClass, GroupConfig, LeafState, PoolGuid, ScanKind, ScanState};
use steadfast_pool::{LeafStatus, LogDeviceStatus, LogOut, PoolStatus as Measured, Presence};
use steadfast_property::{DATASET, POOL, applies, is_user_property};

impl Engine {
    pub(super) fn list_pools(&self, names: &[String]) -> Result<Vec<PoolInfo>, Refusal> {
        let lost = self.lost_among(names);
        let here: Vec<String> =
            names.iter().filter(|n| !lost.iter().any(|(l, _)| l.name == **n)).cloned().collect();
        let mut infos: Vec<PoolInfo> = lost.iter().map(|(pool, _)| lost_info(pool)).collect();
        if names.is_empty() || !here.is_empty() {
            for (name, held) in self.select(&here)? {
                infos.push(pool_info(&name, &held));
            }
        }
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(infos)
    }

    /// Remembered pools that are not imported, and why. Their devices are looked at when nothing is locked.
    fn lost_among(&self, names: &[String]) -> Vec<(CachedPool, Refusal)> {
        let lost = self.lost.lock();
        let wanted = lost.iter().filter(|(name, _)| names.is_empty() || names.contains(name));
        wanted.map(|(_, lost)| (lost.pool.clone(), lost.why.clone())).collect()
    }

    pub(super) fn report_pools(&self, names: &[String]) -> Result<Vec<PoolReport>, Refusal> {
        let lost = self.lost_among(names);
        let here: Vec<String> =
            names.iter().filter(|n| !lost.iter().any(|(l, _)| l.name == **n)).cloned().collect();
        let mut reports: Vec<PoolReport> = lost.iter().map(|(pool, why)| lost_report(pool, why)).collect();
        if names.is_empty() || !here.is_empty() {
            for (name, held) in self.select(&here)? {
                reports.push(pool_report(&name, &held));
            }
        }
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(reports)
    }

    pub(super) fn io_counters(&self, names: &[String]) -> Result<Vec<PoolIo>, Refusal> {
        let count = |count: &steadfast_pool::Count| CallCount {
            calls: count.calls,
            bytes: count.bytes,
            nanos: count.nanos,
            histogram: count.histogram.to_vec(),
        };
        let device = |state: &Measured, leaf: &LeafStatus| DeviceIo {
            class: class_of(state, leaf.config.group),
            group: if stands_alone(state, leaf) {
                String::new()
            } else {
                group_name(state, leaf.config.group)
            },
            name: leaf.config.path.clone(),
            guid: leaf.config.guid,
            allocated: leaf.allocated_bytes,
            free: leaf.size_bytes.saturating_sub(leaf.allocated_bytes),
            read: count(&leaf.sample.read),
            write: count(&leaf.sample.write),
            flush: count(&leaf.sample.flush),
            trim: count(&leaf.sample.trim),
        };
        let pool = |(name, held): (String, std::sync::Arc<Held>)| {
            let state = held.pool.state();
            let (size, live) = (state.accounting.size_bytes, state.accounting.live_bytes);
            let devices = {
                let logs = state.log_devices.iter().filter_map(|log| Some((log, log.sample.as_ref()?)));
                let logs = logs.map(|(log, sample)| DeviceIo {
                    class: VdevClass::Log,
                    group: log_mirror_of(log).unwrap_or_default(),
                    name: log.path.clone(),
                    guid: log.guid,
                    allocated: 0,
                    free: log.size_bytes,
                    read: count(&sample.read),
                    write: count(&sample.write),
                    flush: count(&sample.flush),
                    trim: count(&sample.trim),
                });
                let caches = state.caches.iter().filter_map(|cache| Some((cache, cache.sample.as_ref()?)));
                let caches = caches.map(|(cache, sample)| DeviceIo {
                    class: VdevClass::Cache,
                    group: String::new(),
                    name: cache.path.clone(),
                    guid: cache.guid,
                    allocated: cache.counts.bytes,
                    free: cache.size_bytes.saturating_sub(cache.counts.bytes),
                    read: count(&sample.read),
                    write: count(&sample.write),
                    flush: count(&sample.flush),
                    trim: count(&sample.trim),
                });
                let (special, main): (Vec<DeviceIo>, Vec<DeviceIo>) = state
                    .leaves
                    .iter()
                    .map(|leaf| device(&state, leaf))
                    .partition(|device| device.class == VdevClass::Special);
                main.into_iter().chain(special).chain(logs).chain(caches).collect()
            };
            PoolIo {
                name,
                guid: held.pool.guid().0,
                age_ns: self.env.clock.monotonic_ns().saturating_sub(held.since_ns),
                allocated: live,
                free: size.saturating_sub(live),
                groups: rooms(&state),
                devices,
            }
        };
        Ok(self.select(names)?.into_iter().map(pool).collect())
    }

    pub(super) fn pasts(&self, names: &[String]) -> Result<Vec<PoolPast>, Refusal> {
        let mut pasts = Vec::new();
        for (name, held) in self.select(names)? {
            let entries = held.pool.history().map_err(refuse::pool)?;
            let record = |entry: steadfast_format::HistoryEntry| HistoryRecord {
                time: entry.time_ns / 1_000_000_000,
                txg: Some(entry.txg.0),
                internal: entry.internal,
                text: entry.text,
                uid: entry.uid,
                host: entry.host,
            };
            pasts.push(PoolPast { name, records: entries.into_iter().map(record).collect() });
        }
        Ok(pasts)
    }

    pub(super) fn list_fs(&self, request: &FsList) -> Result<Vec<FsInfo>, Refusal> {
        let starts = if request.names.is_empty() {
            self.select(&[])?.into_iter().map(|(name, _)| name).collect()
        } else {
            request.names.clone()
        };
        let mut found: Vec<FsInfo> = Vec::new();
        for start in starts {
            let held = self.held(&start)?;
            let all = held.pool.datasets();
            if let Some(token) = Engine::resume_token(&held, &start).filter(|_| !all.contains(&start)) {
                found.push(unfinished(&start, token));
                continue;
            }
            if !all.contains(&start) {
                let what = format!("there is no file system '{start}'");
                return Err(Refusal::new(Code::FsAbsent, what).with("fs", &start));
            }
            let below = format!("{start}/");
            for name in all {
                let depth = match name.strip_prefix(&below) {
                    Some(tail) => tail.matches('/').count() + 1,
                    None if name == start => 0,
                    None => continue,
                };
                let deep = request.depth.is_some_and(|most| depth > most as usize);
                if !deep && !found.iter().any(|fs| fs.name == name) {
                    match self.fs_info(&held, &name) {
                        Ok(info) => found.push(info),
                        // It was destroyed since it was listed.
                        Err(refusal) if refusal.code == Code::FsAbsent => {}
                        Err(refusal) => return Err(refusal),
                    }
                }
            }
        }
        Ok(found)
    }

    pub(super) fn fs_info(&self, held: &Held, name: &str) -> Result<FsInfo, Refusal> {
        let info = held.pool.dataset_info(name).map_err(refuse::pool)?;
        let mut properties: BTreeMap<String, Value> = BTreeMap::new();
        let base = self.mount_base();
        let volume = info.volume.is_some();
        let all = DATASET.iter().map(|p| p.name.to_owned()).chain(self.user_properties(held, name)?);
        for property in all.filter(|property| applies(property, volume)) {
            if let Some(resolved) = held.pool.resolve(name, &property, &base).map_err(refuse::pool)? {
                properties.insert(property, resolved.into());
            }
        }
        let mut measure = |name: &str, value: String| {
            properties.insert(name.to_owned(), Value::measured(value));
        };
        measure("type", if volume { "volume" } else { "filesystem" }.into());
        if let Some(volume) = info.volume {
            let known = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
            measure("volsize", known(volume.bytes));
            measure("volblocksize", known(volume.block_bytes));
            measure("nbd", self.nbd_address(held, name)?.unwrap_or_else(|| "-".to_owned()));
        }
        measure("creation", info.created_seconds.to_string());
        measure("createtxg", info.created_txg.0.to_string());
        measure("objsetid", info.id.0.to_string());
        measure("used", info.used.to_string());
        measure("available", info.available.to_string());
        measure("referenced", info.referenced.to_string());
        measure("usedbysnapshots", info.used_by_snapshots.to_string());
        measure("usedbydataset", info.used_by_dataset.to_string());
        measure("usedbychildren", info.used_by_children.to_string());
        measure("usedbyrefreservation", info.used_by_refreservation.to_string());
        measure("written", info.written.to_string());
        measure("logicalused", info.logical_used.to_string());
        measure("logicalreferenced", info.logical.to_string());
        measure("filecount", info.files.to_string());
        let ratio = |logical: u64, data: u64| {
            let ratio = if data == 0 { 1.0 } else { logical as f64 / data as f64 };
            format!("{:.2}", ratio.max(1.0))
        };
        measure("compressratio", ratio(info.logical_used, info.data_used));
        measure("refcompressratio", ratio(info.logical, info.data));
        measure("snapshot_count", info.snapshots.to_string());
        if !volume {
            measure("filesystem_count", info.filesystems.to_string());
        }
        if let Some(origin) = info.origin {
            measure("origin", origin);
        }
        if let Some(token) = Engine::resume_token(held, name) {
            measure("receive_resume_token", token);
        }
        let received = held.pool.received_props(name).map_err(refuse::pool)?;
        let mounted_at = held.mounted_at(name);
        measure("mounted", if mounted_at.is_some() { "yes" } else { "no" }.into());
        match &info.encryption_root {
            None => {
                measure("encryption", "off".into());
                measure("keystatus", "none".into());
            }
            Some(root) => {
                let format = held.pool.key_format(root).map_err(refuse::pool)?;
                measure("encryption", "aes-256-gcm".into());
                measure("keyformat", format.name().into());
                measure("encryptionroot", root.clone());
                measure("keystatus", if info.key_loaded { "available" } else { "unavailable" }.into());
                if root != name {
                    measure("keylocation", "none".into());
                }
            }
        }
        if held.pool.is_read_only() {
            properties.insert("readonly".into(), Value { value: "on".into(), source: Source::Temporary });
        }
        if let (Some(altroot), Some(mountpoint)) = (&held.altroot, properties.get_mut("mountpoint"))
            && mountpoint.value.starts_with('/')
        {
            mountpoint.value = mounts::under(Some(altroot), &mountpoint.value).display().to_string();
        }
        Ok(FsInfo { name: name.to_owned(), createtxg: info.created_txg.0, mounted_at, properties, received })
    }

    /// Names of user properties set on a file system or above it.
    pub(super) fn user_properties(&self, held: &Held, name: &str) -> Result<Vec<String>, Refusal> {
        let mut names: Vec<String> = Vec::new();
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        for end in ends {
            let local = held.pool.local_props(&name[..end]).map_err(refuse::pool)?;
            names.extend(local.into_keys().filter(|key| is_user_property(key)));
        }
        names.sort();
        names.dedup();
        Ok(names)
    }
}

fn health(measured: &Measured) -> Health {
    let whole = measured.leaves.iter().all(|leaf| {
        matches!(leaf.config.state, LeafState::Online | LeafState::Leaving)
            && !leaf.is_out
            && leaf.presence == Presence::Whole
            && leaf.degraded.is_none()
    }) && measured.log_devices.iter().all(|log| log_health(log).0 == Health::Online);
    match (&measured.suspended, whole) {
        (Some(_), _) => Health::Suspended,
        (None, false) => Health::Degraded,
        (None, true) => Health::Online,
    }
}

/// State of a device, and what is remarkable about it.
fn leaf_health(leaf: &LeafStatus) -> (Health, Option<String>) {
    match leaf.config.state {
        LeafState::Leaving if leaf.is_out && leaf.presence == Presence::Whole => {
            return (Health::Faulted, Some("is out of use".into()));
        }
        LeafState::Online | LeafState::Leaving => {}
        LeafState::Offline => return (Health::Offline, None),
        LeafState::Faulted => return (Health::Faulted, Some("failed and was taken out of use".into())),
        LeafState::Gone => return (Health::Unavail, Some("was not found at import".into())),
        LeafState::Parted => return (Health::Removed, Some("went to another pool".into())),
        LeafState::Spared => return (Health::Faulted, Some("a spare holds what it should".into())),
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
fn log_health(log: &LogDeviceStatus) -> (Health, Option<String>) {
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

/// What status calls the mirror of a log device, if it is of one.
pub(super) fn log_mirror_of(log: &LogDeviceStatus) -> Option<String> {
    log_mirror_name(log.mirror)
}

/// The name of a mirror of log devices, by its number. No group has that.
fn log_mirror_name(mirror: u8) -> Option<String> {
    (mirror != 0).then(|| format!("mirror-{}", mirror - 1))
}

fn log_mirror_number(pool: PoolGuid, mirror: u8) -> u64 {
    steadfast_pool::number_of(pool, "log mirror", mirror.into())
}

/// The number by which status knows a group of a pool that was made with this number.
pub(super) fn group_number(pool: PoolGuid, group: u8) -> u64 {
    steadfast_pool::number_of(pool, "group", group.into())
}

/// The mirrors of log devices, by what status calls them.
pub(super) fn log_mirrors(measured: &Measured) -> BTreeMap<String, Vec<&LogDeviceStatus>> {
    let mut mirrors: BTreeMap<String, Vec<&LogDeviceStatus>> = BTreeMap::new();
    for log in &measured.log_devices {
        if let Some(name) = log_mirror_of(log) {
            mirrors.entry(name).or_default().push(log);
        }
    }
    mirrors
}

/// Log devices, each with the number of its mirror, or 0: those of one below a line of it. `pool` is the number with which it was made.
pub(super) fn with_log_mirrors(pool: PoolGuid, logs: Vec<(u8, VdevReport)>) -> Vec<VdevReport> {
    let mut vdevs: Vec<VdevReport> = Vec::new();
    for (mirror, log) in logs {
        let Some(name) = log_mirror_name(mirror) else {
            vdevs.push(log);
            continue;
        };
        match vdevs.iter_mut().find(|vdev| vdev.name == name) {
            Some(vdev) => vdev.children.push(log),
            None => {
                let guid = log_mirror_number(pool, mirror);
                let vdev = VdevReport::new(name, guid, log.class, log.state);
                vdevs.push(VdevReport { kind: VdevKind::Mirror, children: vec![log], ..vdev });
            }
        }
    }
    for vdev in vdevs.iter_mut().filter(|vdev| !vdev.children.is_empty()) {
        let all = |state: Health| vdev.children.iter().all(|child| child.state == state);
        let any = vdev.children.iter().any(|child| child.state == Health::Online);
        let state = match (all(Health::Online), any) {
            (true, _) => Health::Online,
            (false, true) => Health::Degraded,
            (false, false) if all(Health::Offline) => Health::Offline,
            (false, false) if all(Health::Unavail) => Health::Unavail,
            (false, false) => Health::Faulted,
        };
        // Each holds all of it. Of one that is not here nobody knows how much that is.
        let sizes = vdev.children.iter().map(|child| child.size).filter(|size| *size > 0);
        let size = sizes.min().unwrap_or(0);
        (vdev.state, vdev.size) = (state, size);
    }
    vdevs
}

/// What to do about a side of a log mirror.
const SIDE_FAILED: &str = "If it is well again, `zpool online {pool} {device}`; else `zpool replace {pool} {device} NEW`. Or take it out of its mirror with `zpool detach {pool} {device}`.";

/// Whether a group does without so many of its devices as are out of use.
fn does_without(measured: &Measured, id: u8) -> bool {
    let Some(group) = measured.groups.iter().find(|group| group.id == id) else { return false };
    let spared = steadfast_pool::redundancy_of(group).spared(group.width.into());
    let of_use = |leaf: &LeafStatus| matches!(leaf_health(leaf).0, Health::Online | Health::Degraded);
    let members = measured.leaves.iter().filter(|leaf| leaf.config.group == id);
    members.filter(|leaf| !of_use(leaf)).count() <= spared as usize
}

/// What is to be said of a device that was removed or cut short, which others of its group may make up for.
fn lost_device(measured: &Measured, pool: &str, leaf: &LeafStatus) -> Refusal {
    let mut refusal = gone(pool, leaf);
    if does_without(measured, leaf.config.group) {
        refusal.what.push_str(", and its group does without");
        let (what, device) = (refusal.what, &leaf.config.path);
        return Refusal::new(Code::VdevDegraded, what).with("device", device).with("pool", pool);
    }
    refusal
}

/// What is to be said of a device that was removed or cut short, where nothing makes up for it.
fn gone(pool: &str, leaf: &LeafStatus) -> Refusal {
    let note = leaf_health(leaf).1.unwrap_or_default();
    let what = format!("the device {} {note}", leaf.config.path);
    Refusal::new(Code::VdevGone, what).with("device", &leaf.config.path).with("pool", pool)
}

/// Refuses to let go of a pool with a device whose last name was removed: its bytes are there only as long as it is open.
pub(super) fn check_names_last(pool: &str, held: &Held) -> Result<(), Refusal> {
    let leaves = held.pool.state().leaves;
    let is_lost = |leaf: &&LeafStatus| {
        // A group does without a device as long as it may; more than that is for status to tell.
        leaf.presence == Presence::Removed && leaf.config.group == 0
    };
    match leaves.iter().find(is_lost) {
        Some(leaf) => {
            let mut refusal = gone(pool, leaf);
            refusal.what.push_str(", and is lost when the pool lets go of it");
            Err(refusal)
        }
        None => Ok(()),
    }
}

fn pool_info(name: &str, held: &Held) -> PoolInfo {
    let measured = held.pool.state();
    let set = held.pool.pool_props();
    let mut properties: BTreeMap<String, Value> = BTreeMap::new();
    for property in POOL {
        match (set.get(property.name), property.default) {
            (Some(value), _) => {
                properties
                    .insert(property.name.into(), Value { value: value.clone(), source: Source::Local });
            }
            (None, Some(default)) => {
                properties
                    .insert(property.name.into(), Value { value: default.into(), source: Source::Default });
            }
            (None, None) => {}
        }
    }
    for (name, value) in set.iter().filter(|(name, _)| is_user_property(name)) {
        properties.insert(name.clone(), Value { value: value.clone(), source: Source::Local });
    }
    let accounting = &measured.accounting;
    let size = accounting.size_bytes;
    let live = accounting.live_bytes;
    let state = health(&measured);
    let percent = (live * 100).checked_div(size).unwrap_or(0);
    let gain: u64 = tops(&measured).iter().map(|vdev| vdev.expandsize).sum();
    let values: [(&str, String); 10] = [
        ("size", size.to_string()),
        ("allocated", live.to_string()),
        ("free", size.saturating_sub(live).to_string()),
        ("capacity", percent.to_string()),
        ("fragmentation", accounting.fragmentation_percent().to_string()),
        ("health", state.as_str().into()),
        ("guid", held.pool.guid().0.to_string()),
        ("version", "1".into()),
        ("checkpoint", "-".into()),
        ("expandsize", if gain == 0 { "-".into() } else { gain.to_string() }),
    ];
    for (name, value) in values.into_iter().chain(sharing::values(&held.pool.sharing())) {
        properties.insert(name.into(), Value::measured(value));
    }
    for (name, state) in growth::feature_states(held) {
        properties.insert(name, Value { value: state.into(), source: Source::Local });
    }
    properties
        .insert("ashift".into(), Value { value: held.pool.ashift().to_string(), source: Source::Local });
    let temporary = |value: String| Value { value, source: Source::Local };
    if let Some(altroot) = &held.altroot {
        properties.insert("altroot".into(), temporary(altroot.display().to_string()));
    }
    if !held.cached {
        properties.insert("cachefile".into(), temporary("none".into()));
    }
    if held.pool.is_read_only() {
        properties.insert("readonly".into(), temporary("on".into()));
    }
    PoolInfo { name: name.to_owned(), guid: held.pool.guid().0, state, txg: measured.txg.0, properties }
}

/// What status calls a group: its number never changes, whatever leaves beside it.
pub(super) fn group_name(measured: &Measured, id: u8) -> String {
    measured.groups.iter().find(|group| group.id == id).map(name_of).unwrap_or_default()
}

/// The same of what labels say.
pub(super) fn name_of(group: &GroupConfig) -> String {
    let index = group.id - 1;
    // A mirror of one column has a second device only while it is replaced, or while one leaves.
    match (steadfast_pool::redundancy_of(group), group.width) {
        (steadfast_pool::Redundancy::Mirror, 1) => format!("replacing-{index}"),
        (redundancy, _) => format!("{}-{index}", steadfast_pool::group_word(redundancy)),
    }
}

/// What a group holds.
fn class_of(measured: &Measured, id: u8) -> VdevClass {
    let group = measured.groups.iter().find(|group| group.id == id);
    match group.map(|group| group.class) {
        Some(GroupClass::Special) => VdevClass::Special,
        _ => VdevClass::Main,
    }
}

/// Whether a device has no other of its group beside it: a mirror of one is shown like a device without a group.
fn stands_alone(measured: &Measured, leaf: &LeafStatus) -> bool {
    let group = leaf.config.group;
    group == 0 || measured.leaves.iter().filter(|other| other.config.group == group).count() == 1
}

/// Whether all that lies on a device's group goes to others.
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

/// What is removed, as status calls it.
fn removed_names(measured: &Measured) -> String {
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
fn group_report(measured: &Measured, id: u8, vdev: &dyn Fn(&LeafStatus) -> VdevReport) -> VdevReport {
    let group = measured.groups.iter().find(|group| group.id == id).expect("a leaf's group is listed");
    let redundancy = steadfast_pool::redundancy_of(group);
    let children: Vec<VdevReport> =
        measured.leaves.iter().filter(|leaf| leaf.config.group == id).map(vdev).collect();
    let children = super::spares::nested(measured, children);
    let of_use = |child: &&VdevReport| matches!(child.state, Health::Online | Health::Degraded);
    let bad = children.len() - children.iter().filter(of_use).count();
    let state = match bad {
        0 if children.iter().all(|child| child.state == Health::Online) => Health::Online,
        bad if bad <= redundancy.spared(group.width.into()) as usize => Health::Degraded,
        _ => Health::Faulted,
    };
    // As ZFS says: what a mirror holds and could hold is that once, what raidz does is all of it with its parity. Of what lives each device
    // is told its share. Where devices differ, some segments have fewer columns and more parity for what they hold, which is not counted here.
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
    let kind = super::anchors::kind(redundancy);
    VdevReport { kind, size, allocated, expandsize: gain(redundancy, &children), children, ..report }
}

/// What a group gains if its devices are expanded: a mirror what the least of them then has more than now, as in ZFS. Where devices of
/// raidz differ, all they have is of use as far as parity allows.
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
fn tops(measured: &Measured) -> Vec<VdevReport> {
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

/// All devices of a pool, in groups as status shows them.
pub(super) fn devices_of(measured: &Measured) -> Vec<VdevReport> {
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
    devices.extend(measured.caches.iter().map(super::spares::cache_report));
    devices.extend(measured.spares.iter().map(super::spares::report));
    devices
}

/// A device as status shows it.
fn leaf_report(measured: &Measured, leaf: &LeafStatus) -> VdevReport {
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

/// What each group holds and could hold, as status has it; log mirrors among them.
fn rooms(measured: &Measured) -> Vec<GroupIo> {
    let room = |name: String, guid: u64, allocated: u64, size: u64| GroupIo {
        name,
        guid,
        allocated,
        free: size.saturating_sub(allocated),
    };
    let groups = measured.groups.iter().map(|group| {
        let report = group_report(measured, group.id, &|leaf| leaf_report(measured, leaf));
        room(report.name, report.guid, report.allocated, report.size)
    });
    let logs = log_mirrors(measured).into_iter().map(|(name, sides)| {
        // Each holds all of it. Of one that is not here nobody knows how much that is.
        let sizes = sides.iter().map(|log| log.size_bytes).filter(|size| *size > 0);
        let guid = log_mirror_number(measured.made_as, sides[0].mirror);
        room(name, guid, 0, sizes.min().unwrap_or(0))
    });
    groups.chain(logs).collect()
}

fn pool_report(name: &str, held: &Held) -> PoolReport {
    let measured = held.pool.state();
    let mut messages = Vec::new();
    let fenced = measured.anchor.as_ref().is_some_and(|anchor| anchor.fenced.is_some());
    if let Some(reason) = &measured.suspended {
        let what = format!("the pool is suspended: {reason}");
        let code = if fenced { Code::AnchorFenced } else { Code::PoolSuspended };
        messages.push(Refusal::new(code, what).with("pool", name));
    }
    let lost =
        |leaf: &&LeafStatus| leaf.presence != Presence::Whole && leaf.config.state == LeafState::Online;
    let out: Vec<&str> = measured
        .leaves
        .iter()
        .filter(|leaf| {
            !matches!(leaf.config.state, LeafState::Online | LeafState::Leaving | LeafState::Parted)
        })
        .map(|leaf| leaf.config.path.as_str())
        .collect();
    if !out.is_empty() {
        let devices = if out.len() == 1 { "one device is" } else { "some devices are" };
        let what = format!("{devices} out of use ({}), and the pool does without", out.join(", "));
        messages.push(Refusal::new(Code::VdevDegraded, what).with("pool", name).with("device", out[0]));
    }
    messages.extend(measured.leaves.iter().filter(lost).map(|leaf| lost_device(&measured, name, leaf)));
    for log in &measured.log_devices {
        let (state, why) = log_health(log);
        if matches!(state, Health::Unavail | Health::Faulted | Health::Removed | Health::Offline) {
            let why = why.unwrap_or_else(|| "offline".to_owned());
            let beside = |other: &&LogDeviceStatus| log.mirror != 0 && other.mirror == log.mirror;
            let mut others = measured.log_devices.iter().filter(beside);
            let tail = match others.any(|other| log_health(other).0 == Health::Online) {
                true => ", and its mirror does without",
                false => "",
            };
            let what = format!("the log device {} is not used any more ({why}){tail}", log.path);
            let refusal = Refusal::new(Code::LogFailed, what);
            let refusal = if log.mirror == 0 { refusal } else { refusal.advising(SIDE_FAILED) };
            messages.push(refusal.with("pool", name).with("device", &log.path));
        }
    }
    if !measured.damaged.is_empty() {
        let count = measured.damaged.len();
        let files = if count == 1 { "a file".to_owned() } else { format!("{count} files") };
        let what = format!(
            "blocks of {files} failed authentication on all of their copies; nothing was returned to readers"
        );
        messages.push(Refusal::new(Code::BlkAuthAll, what).with("pool", name));
    } else {
        let failed = |leaf: &&LeafStatus| {
            leaf.counts.read_errors + leaf.counts.write_errors + leaf.counts.checksum_errors > 0
        };
        let bad: Vec<&str> =
            measured.leaves.iter().filter(failed).map(|leaf| leaf.config.path.as_str()).collect();
        if !bad.is_empty() {
            let what =
                format!("errors were counted on {}, and what was read was right or mended", bad.join(", "));
            messages.push(Refusal::new(Code::DevErrors, what).with("pool", name));
        }
    }
    let anchor = |anchor: &steadfast_anchor::Status| {
        let state = if anchor.fenced.is_some() { Health::Faulted } else { Health::Online };
        VdevReport {
            note: Some(anchor_note(anchor)),
            write_errors: anchor.failures,
            ..VdevReport::new(anchor.register.clone(), 0, VdevClass::Anchor, state)
        }
    };
    // One entry for each range; one without a range for metadata.
    let errors = measured.damaged.iter().flat_map(|file| {
        let ranges = if file.ranges.is_empty() { vec![(0, 0)] } else { file.ranges.clone() };
        ranges.into_iter().map(move |(start, end)| DataError {
            dataset: file.dataset.clone(),
            mountpoint: held.mounted_at(&file.dataset),
            path: file.path.as_deref().map(legible),
            inode: file.inode,
            offset: start,
            length: end - start,
        })
    });
    let errors: Vec<DataError> = errors.collect();
    PoolReport {
        sharing: sharing::report(&held.pool.sharing()),
        name: name.to_owned(),
        guid: held.pool.guid().0,
        state: health(&measured),
        txg: measured.txg.0,
        messages,
        vdevs: devices_of(&measured).into_iter().chain(measured.anchor.iter().map(anchor)).collect(),
        error_count: errors.len() as u64,
        log: LogReport {
            size: measured.log.size_bytes,
            devices: measured.log_devices.iter().filter(|log| log_health(log).0 == Health::Online).count()
                as u64,
            groups: measured.log.counts.groups,
            bytes: measured.log.counts.bytes,
            durable: measured.log.counts.durable,
            committed_instead: measured.log.counts.committed_instead,
            replayed: measured.log.replayed,
            held: measured.log.held as u64,
        },
        errors: errors.into_iter().take(1000).collect(),
        scan: measured.scan.as_ref().map(|row| match row.kind {
            ScanKind::Scrub => ScanReport {
                limit: measured.scrub_limit.unwrap_or(0),
                left_out: measured.scrub_left_out.clone(),
                ..scan_report(row)
            },
            _ => scan_report(row),
        }),
        moving: measured.moving.as_ref().map(|row| ScanReport {
            what: match removed_names(&measured) {
                names if names.is_empty() => format!("vdev {}", row.device),
                names => names,
            },
            ..scan_report(row)
        }),
    }
}

fn scan_report(scan: &steadfast_pool::ScanRow) -> ScanReport {
    let function = steadfast_pool::move_word(scan.kind);
    let state = match scan.state {
        ScanState::Active => "active",
        ScanState::Paused => "paused",
        ScanState::Finished => "finished",
        ScanState::Canceled => "canceled",
    };
    ScanReport {
        function: function.to_owned(),
        state: state.to_owned(),
        started: scan.begun_ns / 1_000_000_000,
        ended: scan.ended_ns / 1_000_000_000,
        total: scan.total,
        scanned: scan.read,
        repaired: scan.repaired,
        resilvered: scan.rebuilt,
        lost: scan.lost,
        missing: scan.missing,
        what: String::new(),
        limit: 0,
        left_out: Vec::new(),
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

/// What is remarkable about an anchor.
fn anchor_note(anchor: &steadfast_anchor::Status) -> String {
    let steadfast_anchor::Status { seq, epoch, txg, .. } = anchor;
    let mut note = format!("record {seq}, epoch {epoch}, txg {txg}");
    if anchor.fenced.is_some() {
        note.push_str("; another daemon has taken over");
    }
    if let Some(trouble) = &anchor.witness_trouble {
        note.push_str("; this host cannot remember it: ");
        note.push_str(trouble);
    }
    note
}

/// A remembered pool that is not imported, in a list.
fn lost_info(pool: &CachedPool) -> PoolInfo {
    let mut properties = BTreeMap::new();
    properties.insert("health".to_owned(), Value::measured(Health::Unavail.as_str()));
    properties.insert("guid".to_owned(), Value::measured(pool.guid));
    PoolInfo { name: pool.name.clone(), guid: pool.guid, state: Health::Unavail, txg: 0, properties }
}

/// The same in detail.
fn lost_report(pool: &CachedPool, why: &Refusal) -> PoolReport {
    PoolReport {
        name: pool.name.clone(),
        guid: pool.guid,
        state: Health::Unavail,
        txg: 0,
        messages: vec![missing(pool, why)],
        vdevs: candidates::remembered(pool),
        errors: Vec::new(),
        error_count: 0,
        scan: None,
        moving: None,
        sharing: Default::default(),
        log: LogReport::default(),
    }
}

/// A path as text: bytes that are no UTF-8 as `\xff`, so that two names never look the same.
fn legible(path: &[u8]) -> String {
    let chunk =
        |chunk: std::str::Utf8Chunk<'_>| format!("{}{}", chunk.valid(), chunk.invalid().escape_ascii());
    path.utf8_chunks().map(chunk).collect()
}

/// A file system of which a part has arrived: there is nothing to be told of it but how it goes on.
pub(super) fn unfinished(name: &str, token: String) -> FsInfo {
    let properties = [("type", "filesystem".to_owned()), ("receive_resume_token", token)];
    let properties = properties.map(|(name, value)| (name.to_owned(), Value::measured(value)));
    FsInfo {
        name: name.to_owned(),
        createtxg: 0,
        mounted_at: None,
        properties: properties.into(),
        received: Properties::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use steadfast_device::MemoryDevice;
    use steadfast_pool::{CreateSpec, DeviceHandle, GroupHandles, Pool};

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
