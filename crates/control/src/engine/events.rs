//! Events: those that the engine posts, and those that its pools noticed. They are kept in memory
//! for `zpool events`; `event_relay` tells others.
//!
//! [events.1] An event that a pool noticed before a list was asked for is in the list, and events
//!     of one pool are in the order in which they happened, whichever threads take them over.
//!     test: `a_list_has_each_event_that_happened_before`

use crate::engine::state::Engine;
use std::collections::BTreeMap;
use steadfast_pool::{Event, EventKind, Obstacle, Pool};

/// Prefix of all classes, after their kind.
pub(super) const SPACE: &str = "fs.steadfast";

impl Engine {
    /// Posts the event of a command.
    pub(super) fn post(&self, what: &str, pool: &Pool, name: &str, fields: &[(&str, String)]) {
        let time_ns = u64::try_from(self.env.clock.wall_ns()).unwrap_or(0);
        let mut all: BTreeMap<String, String> =
            fields.iter().map(|(field, value)| ((*field).to_owned(), value.clone())).collect();
        all.insert("pool_guid".into(), pool.guid().0.to_string());
        self.events.lock().push(time_ns, format!("sysevent.{SPACE}.{what}"), Some(name.to_owned()), all);
    }

    /// Takes over the events of a pool: before the pool is exported, and when events are listed.
    /// When it returns, all events until its call are in the ring [events.1].
    pub(super) fn harvest(&self, name: &str, pool: &Pool) {
        // Before they are taken, so that another thread that finds none waits until they are here.
        let mut ring = self.events.lock();
        let found = pool.take_events();
        if found.is_empty() {
            return;
        }
        let device = |id| {
            pool.leaves().into_iter().find(|leaf| Some(leaf.config.id) == id).map(|leaf| leaf.config.path)
        };
        for Event { time_ns, kind } in found {
            let mut fields = BTreeMap::from([("pool_guid".to_owned(), pool.guid().0.to_string())]);
            let mut kind_of_class = "ereport";
            let mut set = |field: &str, value: String| _ = fields.insert(field.to_owned(), value);
            let class = match kind {
                EventKind::Block { device: id, dataset, address, badness, detail, healed } => {
                    device(id).into_iter().for_each(|path| set("vdev_path", path));
                    set("dataset", pool.dataset_by_id(dataset));
                    set("segment", address.segment.0.to_string());
                    set("offset", address.offset.to_string());
                    set("detail", detail);
                    set("healed", if healed { "yes" } else { "no" }.into());
                    match badness.word() {
                        "unreadable" => "io".to_owned(),
                        word => word.to_owned(),
                    }
                }
                EventKind::File { dataset, path, inode, offset, length } => {
                    set("dataset", dataset);
                    path.iter().for_each(|path| set("path", String::from_utf8_lossy(path).into_owned()));
                    set("inode", inode.to_string());
                    set("offset", offset.to_string());
                    set("length", length.to_string());
                    "data".to_owned()
                }
                EventKind::Device { device, detail, errno } => {
                    set("vdev_path", device);
                    set("detail", detail);
                    errno.iter().for_each(|errno| set("errno", errno.to_string()));
                    "io".to_owned()
                }
                EventKind::NoSpace => "nospace".to_owned(),
                EventKind::Stall { txg, nanos } => {
                    set("txg", txg.0.to_string());
                    set("delay_ms", (nanos / 1_000_000).to_string());
                    "delay".to_owned()
                }
                EventKind::Trim { what, device, word } => {
                    set("vdev_path", device);
                    kind_of_class = "sysevent";
                    format!("{what}_{word}")
                }
                EventKind::Suspended { reason } => {
                    set("reason", reason);
                    "io_failure".to_owned()
                }
                EventKind::StoreAway { outage } => {
                    outage.fields.into_iter().for_each(|(field, value)| set(field, value));
                    set("vdev_path", outage.device);
                    set("reason", outage.reason);
                    "store_away".to_owned()
                }
                EventKind::ParityOut { path, reason } => {
                    set("vdev_path", path);
                    set("detail", reason);
                    "parity_failure".to_owned()
                }
                EventKind::TilesAway { address, reason } => {
                    set("vdev_path", address);
                    set("detail", reason);
                    "tiles_away".to_owned()
                }
                EventKind::Audited { samples, failed, stored, covered } => {
                    set("samples", samples.to_string());
                    set("failed", failed.to_string());
                    set("stored_bytes", stored.to_string());
                    set("covered_bytes", covered.to_string());
                    if failed == 0 {
                        kind_of_class = "sysevent";
                    }
                    if failed == 0 { "audit_finish" } else { "audit_failure" }.to_owned()
                }
                EventKind::AgentSilent { device, reason } => {
                    set("vdev_path", device);
                    set("detail", reason);
                    "agent_silent".to_owned()
                }
                EventKind::Recovered { objects, lost } => {
                    set("objects", objects.to_string());
                    set("lost", lost.to_string());
                    if lost == 0 {
                        kind_of_class = "sysevent";
                    }
                    if lost == 0 { "recover_finish" } else { "recover_failure" }.to_owned()
                }
                EventKind::Proven { blocks, bytes, wrong, unread, left_out } => {
                    set("blocks", blocks.to_string());
                    set("bytes", bytes.to_string());
                    set("wrong", wrong.to_string());
                    set("unread", unread.to_string());
                    set("left_out", left_out.join(" "));
                    if wrong + unread == 0 {
                        kind_of_class = "sysevent";
                    }
                    if wrong + unread == 0 { "prove_finish" } else { "prove_failure" }.to_owned()
                }
                EventKind::Rekeyed { left_out } => {
                    set("left_out", left_out.to_string());
                    kind_of_class = "sysevent";
                    "rekey_finish".to_owned()
                }
                EventKind::RekeyFailed { reason } => {
                    set("detail", reason);
                    "rekey_failure".to_owned()
                }
                EventKind::Resumed { outage, nanos } => {
                    set("vdev_path", outage.device);
                    set("delay_ms", (nanos / 1_000_000).to_string());
                    kind_of_class = "sysevent";
                    match outage.obstacle {
                        Obstacle::StoreAway => "store_back",
                        _ => "resume",
                    }
                    .to_owned()
                }
                EventKind::Scan { what, word } => {
                    kind_of_class = "sysevent";
                    format!("{what}_{word}")
                }
                EventKind::DeviceRemoved { path } => {
                    set("vdev_path", path);
                    kind_of_class = "sysevent";
                    "vdev_remove".to_owned()
                }
                EventKind::DeviceFaulted { path, reason } => {
                    set("vdev_path", path);
                    set("vdev_state", "FAULTED".to_owned());
                    set("detail", reason);
                    kind_of_class = "resource";
                    "statechange".to_owned()
                }
                EventKind::Spare { path, word, instead } => {
                    set("vdev_path", path);
                    set("vdev_state", word.to_owned());
                    if !instead.is_empty() {
                        set("instead_of", instead);
                    }
                    kind_of_class = "resource";
                    "statechange".to_owned()
                }
                EventKind::DeviceDegraded { path, reason } => {
                    set("vdev_path", path);
                    set("vdev_state", "DEGRADED".to_owned());
                    set("detail", reason);
                    kind_of_class = "resource";
                    "statechange".to_owned()
                }
                EventKind::RootAccepted { notice } => {
                    set("notice", notice);
                    "rollback".to_owned()
                }
                EventKind::LogFailed { path, reason } => {
                    set("vdev_path", path);
                    set("detail", reason);
                    "log_failure".to_owned()
                }
                EventKind::LogMended { path, groups } => {
                    set("vdev_path", path);
                    set("groups", groups.to_string());
                    "log_checksum".to_owned()
                }
                EventKind::LabelsLost { path } => {
                    set("vdev_path", path);
                    "bad_label".to_owned()
                }
                EventKind::LogGivenUp { notice } => {
                    set("notice", notice);
                    "log_given_up".to_owned()
                }
                other => {
                    set("detail", format!("{other:?}"));
                    "other".to_owned()
                }
            };
            ring.push(time_ns, format!("{kind_of_class}.{SPACE}.{class}"), Some(name.to_owned()), fields);
        }
    }
}
