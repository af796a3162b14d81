//! `zpool status`: the pool, what is wrong with it in three parts, its devices, its damaged files.

use crate::family::{Doing, Failure, Session};
use crate::json;
use crate::options::Parsed;
use crate::repeat::Plan;
use crate::table::tame;
use crate::zpool_trim::{INITIALIZED, TRIMMED};
use crate::{zpool_errors, zpool_moves, zpool_scan, zpool_trim, zpool_vdevs};
use serde_json::{Map, Value, json};
use steadfast_control::Refusal;
use steadfast_control::api::{
    DataError, Health, LogReport, PoolReport, PoolStatus, TrimState, VdevClass, VdevKind, VdevReport,
};
use steadfast_control::check::vdev_word;
use steadfast_property::{nice_bytes, nice_number};

/// Prints what the daemon reports.
///
/// # Errors
/// What the daemon refuses.
pub(crate) fn status(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let plan = Plan::read(parsed)?;
    plan.run(session, |session| once(session, parsed, &plan.names).map(|()| true))
}

fn once(session: &mut Session<'_, '_>, parsed: &Parsed, wanted: &[String]) -> Result<(), Failure> {
    let request = PoolStatus { names: wanted.to_vec() };
    let mut pools = session.ask(request).doing(|| "cannot tell status".into())?;
    let found = pools.len();
    if parsed.has('x') {
        pools.retain(|pool| !is_healthy(pool));
    }
    if parsed.has('j') {
        session.line(as_json(&pools, parsed));
        return Ok(());
    }
    if found == 0 {
        session.line("no pools available");
    } else if pools.is_empty() {
        match wanted {
            [name] => session.line(format!("pool '{}' is healthy", tame(name))),
            _ => session.line("all pools are healthy"),
        }
    }
    for (index, pool) in pools.iter().enumerate() {
        if index > 0 {
            session.line("");
        }
        print(session, pool, parsed);
    }
    Ok(())
}

fn is_healthy(pool: &PoolReport) -> bool {
    pool.state == Health::Online && pool.messages.is_empty() && pool.error_count == 0
}

fn print(session: &mut Session<'_, '_>, pool: &PoolReport, parsed: &Parsed) {
    session.line(format!("  pool: {}", tame(&pool.name)));
    session.line(format!(" state: {}", pool.state.as_str()));
    let words = session.words;
    for message in &pool.messages {
        session.out.push_str(&three_parts(message, words));
    }
    if let Some(scan) = &pool.scan {
        for (at, line) in zpool_trim::scan_lines(scan).into_iter().enumerate() {
            session.line(if at == 0 { format!("  scan: {line}") } else { format!("\t{line}") });
        }
    }
    if let Some(moving) = &pool.moving {
        zpool_moves::move_lines(moving).into_iter().for_each(|line| session.line(line));
    }
    session.line("config:\n");
    let vdevs = remarked(&pool.vdevs, parsed);
    session.out.push_str(&config(&pool.name, pool.state, &vdevs, true, parsed.has('p')));
    if let Some(line) = log_line(&pool.log) {
        session.line(format!("\n   log: {line}"));
    }
    if parsed.has('D') {
        session.line("");
        for line in crate::sharing::status_lines(&pool.sharing, parsed.has('p')) {
            session.line(line);
        }
    }
    if let Some(table) = zpool_errors::table(&vdevs, parsed.has('p')).filter(|_| parsed.has('v')) {
        session.out.push_str(&format!("\n{table}"));
    }
    session.line("");
    match (pool.error_count, parsed.has('v')) {
        (0, _) => session.line("errors: No known data errors"),
        (count, false) => {
            let verb = match words {
                crate::family::Words::Zfs => "zpool",
                crate::family::Words::Own => "steadfast pool",
            };
            session.line(format!("errors: {count} data errors, use `{verb} status -v` for a list"));
        }
        (count, true) => {
            session.line("errors: Permanent errors have been detected in the following files:\n");
            for error in &pool.errors {
                session.line(format!("        {}", place(error)));
            }
            let unlisted = count.saturating_sub(pool.errors.len() as u64);
            if unlisted > 0 {
                session.line(format!("        (and {unlisted} more)"));
            }
        }
    }
}

/// What is to be told of an intent log; nothing if there is none and none was replayed.
fn log_line(log: &LogReport) -> Option<String> {
    let LogReport { size, devices, groups, bytes, durable, committed_instead, replayed, held } = *log;
    if size == 0 && replayed == 0 && held == 0 {
        return None;
    }
    let place = match devices {
        0 if size == 0 => "no room yet".to_owned(),
        0 => format!("{} in the pool", nice_bytes(size)),
        1 => format!("{} on a device of its own", nice_bytes(size)),
        _ => format!("{} on {devices} devices", nice_bytes(size)),
    };
    let many = |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let mut line = format!(
        "{place}; {}, {} for {}; {committed_instead} committed instead",
        many(groups, "group"),
        nice_bytes(bytes),
        many(durable, "fsync"),
    );
    if replayed > 0 {
        line.push_str(&format!("; {} replayed", many(replayed, "group")));
    }
    if held > 0 {
        line.push_str(&format!("; kept for {} until the key is loaded", many(held, "file system")));
    }
    Some(line)
}

/// A message as status tells it: what happened, what it means, what to do, where to read on.
pub(crate) fn three_parts(message: &Refusal, words: crate::family::Words) -> String {
    let explained = crate::family::explain("", message, words);
    let mut lines = explained.lines();
    let mut text = format!("status: {}\n", capital(lines.next().unwrap_or_default()));
    for line in lines {
        let line = line.trim_start().replacen("action:  ", "action: ", 1);
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let tail = letters.as_str();
    if tail.ends_with('.') { format!("{first}{tail}") } else { format!("{first}{tail}.") }
}

/// Where a damaged range is: `/tank/file` if mounted, `tank/fs:/file` if not, `tank/fs:<0x2a>` if nameless; then which
/// bytes of it.
pub(crate) fn place(error: &DataError) -> String {
    let bytes = match error.length {
        0 => String::new(),
        length => format!(" (bytes {} to {})", error.offset, error.offset.saturating_add(length - 1)),
    };
    let place = match (&error.path, &error.mountpoint) {
        (Some(path), Some(mountpoint)) => {
            format!(
                "{}/{}",
                mountpoint.display().to_string().trim_end_matches('/'),
                path.trim_start_matches('/')
            )
        }
        (Some(path), None) => format!("{}:/{}", error.dataset, path.trim_start_matches('/')),
        (None, _) if error.inode == 0 => format!("{}:<metadata>", error.dataset),
        (None, _) => format!("{}:<{:#x}>", error.dataset, error.inode),
    };
    tame(&place) + &bytes
}

/// Whether something is wrong with a device, or with one of the group.
fn is_sick(vdev: &VdevReport) -> bool {
    let erred = [vdev.read_errors, vdev.write_errors, vdev.checksum_errors].iter().any(|count| *count > 0);
    erred || !matches!(vdev.state, Health::Online | Health::Avail) || vdev.children.iter().any(is_sick)
}

/// The devices that are asked for.
fn chosen(vdevs: &[VdevReport], parsed: &Parsed) -> Vec<VdevReport> {
    let chosen = vdevs.iter().filter(|vdev| !parsed.has('e') || is_sick(vdev));
    chosen.map(|vdev| VdevReport { children: self::chosen(&vdev.children, parsed), ..vdev.clone() }).collect()
}

/// Devices with what is to be said of their trim, their initialization and of slow calls, behind what is remarkable anyway.
fn remarked(vdevs: &[VdevReport], parsed: &Parsed) -> Vec<VdevReport> {
    let with_more = |vdev: &VdevReport| {
        let remark = zpool_trim::remark;
        let trim = vdev.trim.as_ref().and_then(|trim| remark(trim, TRIMMED, parsed.has('t')));
        let initialize =
            vdev.initialize.as_ref().and_then(|initialize| remark(initialize, INITIALIZED, parsed.has('i')));
        let slow_calls = (parsed.has('s') && vdev.children.is_empty()).then(|| zpool_errors::slow(vdev));
        let notes = vdev.note.iter().cloned().chain(trim).chain(initialize).chain(slow_calls);
        let notes: Vec<String> = notes.collect();
        let (name, children) = (zpool_vdevs::label(vdev, parsed), remarked(&vdev.children, parsed));
        VdevReport { name, note: (!notes.is_empty()).then(|| notes.join("  ")), children, ..vdev.clone() }
    };
    chosen(vdevs, parsed).iter().map(with_more).collect()
}

/// The tree of devices, indented by a tab; with counters unless it is a pool that is only a candidate.
pub(crate) fn config(name: &str, state: Health, vdevs: &[VdevReport], counters: bool, exact: bool) -> String {
    let mut rows = vec![Row { depth: 0, name, state, counts: [0; 3], note: None }];
    // What the pool's own line counts is what its devices count together, but for those that it does not need.
    for vdev in vdevs.iter().filter(|vdev| vdev.class != VdevClass::Cache) {
        let counts = [vdev.read_errors, vdev.write_errors, vdev.checksum_errors];
        for (sum, count) in rows[0].counts.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    for vdev in vdevs.iter().filter(|vdev| vdev.class == VdevClass::Main) {
        add_rows(vdev, 1, &mut rows);
    }
    for (class, heading) in SECTIONS {
        let mut section = vdevs.iter().filter(|vdev| vdev.class == class).peekable();
        if section.peek().is_some() {
            rows.push(Row {
                depth: 0,
                name: heading,
                state: Health::Online,
                counts: [0; 3],
                note: Some(HEADING),
            });
        }
        section.for_each(|vdev| add_rows(vdev, 1, &mut rows));
    }
    let width =
        rows.iter().map(|row| 2 * row.depth + tame(row.name).chars().count()).max().unwrap_or(0).max(10);
    let mut text = format!("\t{:width$}  STATE    ", "NAME");
    if counters {
        text.push_str(" READ WRITE CKSUM");
    }
    text = text.trim_end().to_owned() + "\n";
    for row in rows {
        if row.note == Some(HEADING) {
            text.push_str(&format!("\t{}\n", row.name));
            continue;
        }
        let name = format!("{:indent$}{}", "", tame(row.name), indent = 2 * row.depth);
        let mut line = format!("\t{name:width$}  {:<8}", row.state.as_str());
        if counters {
            for count in row.counts {
                let count = if exact { count.to_string() } else { nice_number(count) };
                line.push_str(&format!(" {count:>5}"));
            }
        }
        if let Some(note) = row.note {
            line.push_str(&format!("  {}", tame(note)));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// What comes after the devices that hold data, each under its heading.
const SECTIONS: [(VdevClass, &str); 6] = [
    (VdevClass::Special, "special"),
    (VdevClass::Log, "logs"),
    (VdevClass::Cache, "cache"),
    (VdevClass::Spare, "spares"),
    (VdevClass::Anchor, "anchor"),
    (VdevClass::Parity, "parity"),
];
/// Marks a row that is a heading.
const HEADING: &str = "\0heading";

struct Row<'a> {
    depth: usize,
    name: &'a str,
    state: Health,
    counts: [u64; 3],
    note: Option<&'a str>,
}

fn add_rows<'a>(vdev: &'a VdevReport, depth: usize, rows: &mut Vec<Row<'a>>) {
    rows.push(Row {
        depth,
        name: &vdev.name,
        state: vdev.state,
        counts: [vdev.read_errors, vdev.write_errors, vdev.checksum_errors],
        note: vdev.note.as_deref(),
    });
    for child in &vdev.children {
        add_rows(child, depth + 1, rows);
    }
}

fn as_json(pools: &[PoolReport], parsed: &Parsed) -> String {
    let as_number = parsed.has_long("json-int");
    let exact = parsed.has('p');
    let mut by_name = Map::new();
    for pool in pools {
        let needed = || pool.vdevs.iter().filter(|vdev| vdev.class != VdevClass::Cache);
        let sum = |field: fn(&VdevReport) -> u64| needed().map(field).sum::<u64>();
        let room = |field: fn(&VdevReport) -> u64| {
            let holds = |vdev: &&VdevReport| matches!(vdev.class, VdevClass::Main | VdevClass::Special);
            pool.vdevs.iter().filter(holds).map(field).sum::<u64>()
        };
        let root = json!({
            "name": pool.name,
            "vdev_type": "root",
            "guid": json::number(pool.guid, as_number),
            "state": pool.state.as_str(),
            "alloc_space": size(room(|v| v.allocated), exact, as_number),
            "total_space": size(room(|v| v.size), exact, as_number),
            "read_errors": json::number(sum(|v| v.read_errors), as_number),
            "write_errors": json::number(sum(|v| v.write_errors), as_number),
            "checksum_errors": json::number(sum(|v| v.checksum_errors), as_number),
            "vdevs": vdevs_json(&chosen(&pool.vdevs, parsed), false, parsed, exact, as_number),
        });
        let mut entry = json!({
            "name": pool.name,
            "state": pool.state.as_str(),
            "pool_guid": json::number(pool.guid, as_number),
            "txg": json::number(pool.txg, as_number),
            "vdevs": { pool.name.clone(): root },
            "error_count": json::number(pool.error_count, as_number),
        });
        let log = &pool.log;
        entry["log"] = json!({
            "size": size(log.size, exact, as_number),
            "devices": json::number(log.devices, as_number),
            "groups": json::number(log.groups, as_number),
            "bytes": json::number(log.bytes, as_number),
            "durable": json::number(log.durable, as_number),
            "committed_instead": json::number(log.committed_instead, as_number),
            "replayed": json::number(log.replayed, as_number),
            "held": json::number(log.held, as_number),
        });
        if let Some(message) = pool.messages.first() {
            entry["status"] = json!(message.what);
            entry["action"] = json!(message.advice());
            entry["msgid"] = json!(message.code.as_str());
        }
        if !pool.messages.is_empty() {
            let all: Vec<Value> = pool.messages.iter().map(message_json).collect();
            entry["messages"] = Value::Array(all);
        }
        if let Some(scan) = &pool.scan {
            entry["scan_stats"] = zpool_scan::as_json(scan, exact, as_number);
        }
        if let Some(moving) = &pool.moving {
            let (name, told) = zpool_scan::move_as_json(moving, exact, as_number);
            entry[name] = told;
        }
        if parsed.has('D') {
            entry["dedup_stats"] = crate::sharing::as_json(&pool.sharing, exact, as_number);
        }
        if parsed.has('v') {
            entry["errlist"] = pool.errors.iter().map(|error| Value::from(place(error))).collect();
        }
        by_name.insert(pool.name.clone(), entry);
    }
    let mut document = json::document("zpool status");
    document.insert("pools".into(), by_name.into());
    json::text(document)
}

fn message_json(message: &Refusal) -> Value {
    json!({
        "code": message.code.as_str(),
        "status": message.what,
        "meaning": message.meaning,
        "action": message.advice(),
        "fields": message.fields,
    })
}

fn size(bytes: u64, exact: bool, as_number: bool) -> Value {
    if as_number || exact { json::number(bytes, as_number) } else { json!(nice_bytes(bytes)) }
}

fn vdevs_json(vdevs: &[VdevReport], is_member: bool, parsed: &Parsed, exact: bool, as_number: bool) -> Value {
    let mut map = Map::new();
    for vdev in vdevs {
        let kind = match vdev.kind {
            VdevKind::Plain if vdev.name.starts_with("/dev/") => "disk",
            VdevKind::Plain => "file",
            kind => vdev_word(VdevClass::Main, kind),
        };
        let class = match vdev.class {
            VdevClass::Main => "normal",
            class => vdev_word(class, vdev.kind),
        };
        let mut entry = json!({
            "name": vdev.name,
            "vdev_type": kind,
            "class": class,
            "guid": json::number(vdev.guid, as_number),
            "state": vdev.state.as_str(),
            "total_space": size(vdev.size, exact, as_number),
            "read_errors": json::number(vdev.read_errors, as_number),
            "write_errors": json::number(vdev.write_errors, as_number),
            "checksum_errors": json::number(vdev.checksum_errors, as_number),
        });
        // As in ZFS room is counted by group.
        if !is_member {
            entry["alloc_space"] = size(vdev.allocated, exact, as_number);
        }
        if vdev.children.is_empty() {
            entry["path"] = json!(vdev.name);
            entry["slow_ios"] = json::number(vdev.kinds.slow, as_number);
            entry["errors_by_kind"] = zpool_errors::as_json(&vdev.kinds, as_number);
        } else {
            entry["vdevs"] = vdevs_json(&vdev.children, true, parsed, exact, as_number);
        }
        if let Some(trim) = vdev.trim.filter(|_| parsed.has('t')) {
            let unsupported = trim.state == TrimState::Unsupported;
            entry["trim_notsup"] = json::number(u64::from(unsupported), as_number);
            if !unsupported {
                entry["trim_state"] = json!(trim.state);
                entry["trimmed"] = size(trim.trimmed, exact, as_number);
                entry["trim_done"] = size(trim.done, exact, as_number);
                entry["to_trim"] = size(trim.total, exact, as_number);
                entry["trim_time"] = json::number(trim.since, as_number);
            }
        }
        if let Some(init) = vdev.initialize.filter(|_| parsed.has('i')) {
            entry["init_state"] = match init.state {
                TrimState::Untrimmed => json!("UNINITIALIZED"),
                state => json!(state),
            };
            entry["initialized"] = size(init.done, exact, as_number);
            entry["to_initialize"] = size(init.total, exact, as_number);
            entry["init_time"] = json::number(init.since, as_number);
        }
        if let Some(note) = &vdev.note {
            entry["note"] = json!(note);
        }
        map.insert(vdev.name.clone(), entry);
    }
    map.into()
}
