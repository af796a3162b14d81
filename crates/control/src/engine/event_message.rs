//! An event as a line for the journal: how urgent it is, and one sentence.

use crate::api::PoolEvent;

/// Urgency, as syslog(3) numbers it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Priority {
    /// The pool does not work.
    Critical = 2,
    /// Data or a device is lost.
    Error = 3,
    /// Something failed, and the pool goes on without loss.
    Warning = 4,
    /// An operator wants to know it.
    Notice = 5,
    /// A command did it; its history has it too.
    Info = 6,
}

/// The kind of an event: `ereport`, `resource` or `sysevent`.
pub(super) fn kind(event: &PoolEvent) -> &str {
    event.class.split('.').next().unwrap_or_default()
}

/// The last word of an event's class.
pub(super) fn subclass(event: &PoolEvent) -> &str {
    event.class.rsplit('.').next().unwrap_or_default()
}

/// Urgency of an event, and its sentence.
pub(super) fn describe(event: &PoolEvent) -> (Priority, String) {
    let (priority, what) = words(event);
    match &event.pool {
        Some(pool) => (priority, tame(&format!("pool '{pool}': {what}"))),
        None => (priority, tame(&what)),
    }
}

/// Control characters made visible: no name may forge a line, or a header of a mail.
pub(super) fn tame(text: &str) -> String {
    let visible = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(visible).collect()
}

fn words(event: &PoolEvent) -> (Priority, String) {
    let field = |name: &str| event.fields.get(name).map_or("", String::as_str);
    let with_detail = |what: String| match field("detail") {
        "" => what,
        detail => format!("{what}: {detail}"),
    };
    let device = || match field("vdev_path") {
        "" => "a device".to_owned(),
        path => format!("device {path}"),
    };
    match subclass(event) {
        "statechange" => {
            let state = field("vdev_state");
            let priority = match state {
                "FAULTED" | "UNAVAIL" | "REMOVED" => Priority::Error,
                "DEGRADED" | "INUSE" => Priority::Warning,
                _ => Priority::Notice,
            };
            let what = match field("instead_of") {
                "" => format!("{} is {state}", device()),
                instead => format!("spare {} stands for {instead}", field("vdev_path")),
            };
            (priority, with_detail(what))
        }
        "data" => {
            let name = if field("path").is_empty() {
                format!("inode {}", field("inode"))
            } else {
                field("path").to_owned()
            };
            let begin: u64 = field("offset").parse().unwrap_or(0);
            let end = begin.saturating_add(field("length").parse().unwrap_or(0)).saturating_sub(1);
            let what = format!(
                "{name} of {}: bytes {begin} to {end} cannot be read from any copy",
                field("dataset")
            );
            (Priority::Error, what)
        }
        "io_failure" => (Priority::Critical, format!("suspended: {}", field("reason"))),
        "store_away" => (Priority::Error, format!("waits for its store: {}", field("reason"))),
        "store_back" | "resume" => {
            let seconds = field("delay_ms").parse::<u64>().unwrap_or(0) / 1_000;
            (Priority::Notice, format!("goes on: {} is back after {seconds} s", device()))
        }
        "zpool" => (Priority::Error, with_detail("cannot be imported".to_owned())),
        "nospace" => (Priority::Warning, "full: writes are refused".to_owned()),
        "delay" => {
            let what = format!("transaction group {} took {} ms to commit", field("txg"), field("delay_ms"));
            (Priority::Warning, what)
        }
        "log_failure" => (Priority::Warning, with_detail(format!("log {} failed", device()))),
        "log_checksum" => {
            let what = format!(
                "log {} lost {} groups, which were rewritten from its mirror",
                device(),
                field("groups")
            );
            (Priority::Warning, what)
        }
        "bad_label" => {
            let what = format!("{} had lost its labels, which a scrub writes again: was it wiped?", device());
            (Priority::Warning, what)
        }
        "parity_failure" => {
            (Priority::Error, with_detail(format!("parity {} is not in use", field("vdev_path"))))
        }
        "tiles_away" => {
            let what = format!("the store of the parity's tiles, {}, fails: passes wait", field("vdev_path"));
            (Priority::Warning, with_detail(what))
        }
        "audit_failure" => {
            let what = format!("{} of {} samples were not held", field("failed"), field("samples"));
            (Priority::Error, format!("audit failed: {what}"))
        }
        "agent_silent" => {
            let what =
                format!("no answer of the agent beside {}: cells are read from it", field("vdev_path"));
            (Priority::Warning, with_detail(what))
        }
        "recover_failure" => {
            let what = format!("{} cells did not come back, {} objects did", field("lost"), field("objects"));
            (Priority::Error, what)
        }
        "prove_failure" => {
            let (wrong, unread) = (field("wrong"), field("unread"));
            let what = format!("{wrong} blocks in objects that came back do not have their hash");
            (
                Priority::Error,
                if unread == "0" { what } else { format!("{what}, {unread} nodes or blocks cannot be read") },
            )
        }
        "rekey_failure" => (Priority::Error, with_detail("no code under another map".to_owned())),
        "changes_lost" => (Priority::Error, field("notice").to_owned()),
        "log_given_up" | "rollback" => (Priority::Warning, field("notice").to_owned()),
        word if word.starts_with("budget_") => {
            let word = word.trim_start_matches("budget_");
            let priority = if word == "freed" { Priority::Notice } else { Priority::Warning };
            let (property, used, limit) = (field("property"), field("used"), field("limit"));
            let what =
                format!("{property} {word} ({used} of {limit}): background work {}", field("background"));
            (priority, what)
        }
        // A block: its copy was bad.
        word if event.fields.contains_key("healed") => {
            let (priority, end) = match field("healed") {
                "yes" => (Priority::Warning, "; another copy is good"),
                _ => (Priority::Error, ""),
            };
            let place = format!("segment {}, offset {}", field("segment"), field("offset"));
            let what = format!("{word} error of a block of {} at {place} on {}", field("dataset"), device());
            (priority, format!("{}{end}", with_detail(what)))
        }
        "io" => (Priority::Warning, with_detail(format!("{} failed", device()))),
        word if kind(event) == "sysevent" => {
            let is_news = ["_start", "_finish", "_cancel", "_pause", "_resume", "_suspend"]
                .iter()
                .any(|end| word.ends_with(end))
                || word.starts_with("vdev_");
            let what = match field("vdev_path") {
                "" => word.to_owned(),
                path => format!("{word} {path}"),
            };
            (if is_news { Priority::Notice } else { Priority::Info }, what)
        }
        word => (Priority::Warning, with_detail(word.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn event(class: &str, fields: &[(&str, &str)]) -> PoolEvent {
        let fields: BTreeMap<String, String> =
            fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        PoolEvent { eid: 1, time_ns: 0, class: class.to_owned(), pool: Some("tank".to_owned()), fields }
    }

    #[test]
    fn a_lost_device_is_more_urgent_than_a_healed_block_and_a_command() {
        let of = |class: &str, fields: &[(&str, &str)]| describe(&event(class, fields));
        let faulted = [("vdev_path", "/dev/sdb"), ("vdev_state", "FAULTED"), ("detail", "is out of use")];
        assert_eq!(
            of("resource.fs.steadfast.statechange", &faulted),
            (Priority::Error, "pool 'tank': device /dev/sdb is FAULTED: is out of use".to_owned())
        );
        let block = |healed| [("segment", "7"), ("offset", "512"), ("dataset", "tank/a"), ("healed", healed)];
        assert_eq!(of("ereport.fs.steadfast.checksum", &block("yes")).0, Priority::Warning);
        assert_eq!(of("ereport.fs.steadfast.checksum", &block("no")).0, Priority::Error);
        assert_eq!(of("ereport.fs.steadfast.io_failure", &[("reason", "no device")]).0, Priority::Critical);
        assert_eq!(of("sysevent.fs.steadfast.scrub_finish", &[]).0, Priority::Notice);
        assert_eq!(of("sysevent.fs.steadfast.history_event", &[]).0, Priority::Info);
        let budget =
            [("property", "requestbudget"), ("used", "80"), ("limit", "100"), ("background", "waits")];
        assert_eq!(
            of("sysevent.fs.steadfast.budget_reached", &budget),
            (
                Priority::Warning,
                "pool 'tank': requestbudget reached (80 of 100): background work waits".to_owned()
            )
        );
        let range = [("path", "/a"), ("dataset", "tank"), ("offset", "0"), ("length", "4096")];
        assert!(of("ereport.fs.steadfast.data", &range).1.contains("/a of tank: bytes 0 to 4095 cannot"));
    }

    #[test]
    fn no_name_forges_a_line() {
        let name = [("path", "/a\n<2>pool 'x': suspended"), ("dataset", "tank")];
        let (_, line) = describe(&event("ereport.fs.steadfast.data", &name));
        assert!(!line.contains('\n') && line.contains("/a\\n<2>pool"), "{line}");
    }
}
