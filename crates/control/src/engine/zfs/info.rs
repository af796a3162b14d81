//! Properties of file systems, snapshots and bookmarks, as `zfs list` and `zfs get` show them.

use crate::api::{FsInfo, Properties, Source, Value};
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::zfs::token::resume_token;
use crate::engine::{mountpoints, refuse};
use crate::refusal::Refusal;
use std::collections::BTreeMap;
use steadfast_pool::{BookmarkInfo, SnapshotInfo};
use steadfast_property::{ALLOW_PREFIX, DATASET, applies, is_user_property};

impl Engine {
    pub(in crate::engine) fn fs_info(&self, held: &ImportedPool, name: &str) -> Result<FsInfo, Refusal> {
        let info = held.pool.datasets().dataset_info(name).map_err(refuse::pool)?;
        let mut properties: BTreeMap<String, Value> = BTreeMap::new();
        let base = self.mount_base();
        let volume = info.volume.is_some();
        let all = DATASET.iter().map(|p| p.name.to_owned()).chain(self.user_properties(held, name)?);
        for property in all.filter(|property| applies(property, volume)) {
            if let Some(resolved) =
                held.pool.datasets().resolve(name, &property, &base).map_err(refuse::pool)?
            {
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
        measure("guid", info.guid.to_string());
        measure("objsetid", info.id.0.to_string());
        measure("used", info.used.to_string());
        measure("available", info.available.to_string());
        measure("referenced", info.referenced.to_string());
        measure("usedbysnapshots", info.used_by_snapshots.to_string());
        measure("usedbydataset", info.used_by_dataset.to_string());
        measure("usedbychildren", info.used_by_children.to_string());
        measure("usedbyrefreservation", info.used_by_refreservation.to_string());
        measure("written", info.written.to_string());
        // Metadata counts as in `used`: an empty file system is not of no size.
        let metadata = info.referenced.saturating_sub(info.data);
        measure("logicalused", info.logical_used.saturating_add(metadata).to_string());
        measure("logicalreferenced", info.logical.saturating_add(metadata).to_string());
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
        if let Some(seconds) = held.pool.datasets().snapshots_changed(info.id) {
            measure("snapshots_changed", seconds.to_string());
        }
        if let Some(origin) = info.origin {
            measure("origin", origin);
        }
        if let Some(token) = resume_token(held, name) {
            measure("receive_resume_token", token);
        }
        let received = held.pool.datasets().received_props(name).map_err(refuse::pool)?;
        let mounted_at = held.mounted_at(name);
        measure("mounted", if mounted_at.is_some() { "yes" } else { "no" }.into());
        match &info.encryption_root {
            None => {
                measure("encryption", "off".into());
                measure("keystatus", "none".into());
            }
            Some(root) => {
                let format = held.pool.datasets().key_format(root).map_err(refuse::pool)?;
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
        for (property, value) in self.temporary(held, name)? {
            properties.insert(property.into(), Value { value: value.into(), source: Source::Temporary });
        }
        // The kernel decides at the mount, the property at the next one.
        if let (Some(collects), Some(set)) =
            (held.collects_writes(name), properties.get_mut("writeback_cache"))
            && collects != (set.value == "on")
        {
            let value = if collects { "on" } else { "off" };
            *set = Value { value: value.into(), source: Source::Temporary };
        }
        if let (Some(altroot), Some(mountpoint)) = (&held.altroot, properties.get_mut("mountpoint"))
            && mountpoint.value.starts_with('/')
        {
            mountpoint.value = mountpoints::under(Some(altroot), &mountpoint.value).display().to_string();
        }
        Ok(FsInfo { name: name.to_owned(), createtxg: info.created_txg.0, mounted_at, properties, received })
    }

    /// Properties that options of the mount hold for as long as it lasts.
    fn temporary(
        &self,
        held: &ImportedPool,
        name: &str,
    ) -> Result<Vec<(&'static str, &'static str)>, Refusal> {
        let options = held.options_of(name);
        if options.is_empty() || held.mounted_at(name).is_none() {
            return Ok(Vec::new());
        }
        let (set, mounted) = (self.settings(held, name, &[])?, self.settings(held, name, &options)?);
        let pairs = [
            ("readonly", set.read_only, mounted.read_only),
            ("exec", set.exec, mounted.exec),
            ("setuid", set.setuid, mounted.setuid),
            ("devices", set.devices, mounted.devices),
            ("atime", set.atime, mounted.atime),
            ("relatime", set.relatime, mounted.relatime),
            ("xattr", set.xattr, mounted.xattr),
        ];
        let differing = pairs.into_iter().filter(|(_, set, mounted)| set != mounted);
        Ok(differing.map(|(name, _, mounted)| (name, if mounted { "on" } else { "off" })).collect())
    }

    /// A snapshot and its properties.
    pub(in crate::engine) fn snapshot_info(
        &self,
        held: &ImportedPool,
        dataset: &str,
        info: SnapshotInfo,
        wanted: &[String],
    ) -> Result<FsInfo, Refusal> {
        let mut properties: BTreeMap<String, Value> = BTreeMap::new();
        let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
        let mut measure = |name: &str, value: String| {
            if is_wanted(name) {
                properties.insert(name.to_owned(), Value::measured(value));
            }
        };
        measure("type", "snapshot".into());
        measure("creation", info.created_seconds.to_string());
        measure("createtxg", info.txg.0.to_string());
        measure("guid", info.guid.to_string());
        measure("objsetid", info.number.0.to_string());
        measure("used", info.used.to_string());
        measure("referenced", info.referenced.to_string());
        measure("written", info.written.to_string());
        measure("logicalreferenced", info.logical.to_string());
        measure("filecount", info.files.to_string());
        measure("defer_destroy", if info.deferred { "on" } else { "off" }.into());
        measure("userrefs", info.holds.to_string());
        measure("clones", info.clones.join(","));
        if ["volsize", "volblocksize"].iter().any(|name| is_wanted(name))
            && let Some(volume) = held.pool.datasets().snapshot_volume(&info.name).map_err(refuse::pool)?
        {
            let known = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
            measure("volsize", known(volume.bytes));
            measure("volblocksize", known(volume.block_bytes));
        }
        let ratio = if info.data == 0 { 1.0 } else { info.logical as f64 / info.data as f64 };
        measure("compressratio", format!("{:.2}", ratio.max(1.0)));
        // User properties: its own, and those of its file system.
        if wanted.is_empty() || wanted.iter().any(|name| is_user_property(name)) {
            for name in self.user_properties(held, dataset)?.into_iter().filter(|name| is_wanted(name)) {
                let resolved = held.pool.datasets().resolve(dataset, &name, "/").map_err(refuse::pool)?;
                let Some(resolved) = resolved else { continue };
                let mut value = Value::from(resolved);
                if matches!(value.source, Source::Local | Source::Received) {
                    value.source = Source::Inherited(dataset.to_owned());
                }
                properties.insert(name, value);
            }
        }
        for (name, value) in info.props.into_iter().filter(|(name, _)| is_wanted(name)) {
            let came = info.counting.contains(&name);
            let source = if came { Source::Received } else { Source::Local };
            properties.insert(name, Value { value, source });
        }
        let mut received: Properties = info.received;
        received.retain(|name, _| is_wanted(name));
        Ok(FsInfo { name: info.name, createtxg: info.txg.0, mounted_at: None, properties, received })
    }

    /// Names of user properties set on a file system or above it.
    fn user_properties(&self, held: &ImportedPool, name: &str) -> Result<Vec<String>, Refusal> {
        let mut names: Vec<String> = Vec::new();
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        for end in ends {
            let local = held.pool.datasets().local_props(&name[..end]).map_err(refuse::pool)?;
            names.extend(
                local.into_keys().filter(|key| is_user_property(key) && !key.starts_with(ALLOW_PREFIX)),
            );
        }
        names.sort();
        names.dedup();
        Ok(names)
    }
}

/// A bookmark and its properties.
pub(in crate::engine) fn bookmark_info(mark: BookmarkInfo) -> FsInfo {
    let properties = [
        ("type", "bookmark".to_owned()),
        ("creation", mark.created_seconds.to_string()),
        ("createtxg", mark.txg.0.to_string()),
        ("guid", mark.guid.to_string()),
    ];
    let properties = properties.map(|(name, value)| (name.to_owned(), Value::measured(value)));
    FsInfo {
        name: mark.name,
        createtxg: mark.txg.0,
        mounted_at: None,
        properties: properties.into(),
        received: Properties::new(),
    }
}

/// A file system of an interrupted full receive: only its resume token is known.
pub(in crate::engine) fn unfinished(name: &str, token: String) -> FsInfo {
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
