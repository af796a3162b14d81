//! `zpool status`: health, messages, progress, devices, damaged files.

use super::progress::{move_lines, scan_lines};
use super::status_json::as_json;
use super::vdev_table::vdev_table;
use super::vdev_tree::{BY_GUID, FULL_PATHS, LINKS, chosen, label};
use super::{dedup, errors};
use crate::command::Command;
use crate::date;
use crate::message::three_parts;
use crate::options::{EXACT, JSON, JSON_INT, MANY, Parsed, Syntax, flag};
use crate::repeat::{Plan, TIME};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{Health, LogReport, PoolReport, PoolStatus, TrimReport, TrimState, VdevReport};
use steadfast_property::nice_bytes;

pub(super) const COMMAND: Command = Command {
    names: &["status"],
    syntax: Syntax {
        flags: &[
            JSON,
            JSON_INT,
            flag('D', "the dedup table (DDT): how many blocks are referenced how often"),
            flag('e', "only devices with errors"),
            BY_GUID,
            flag('i', "progress of the initialization of each device"),
            LINKS,
            EXACT,
            FULL_PATHS,
            flag('s', "number of calls that took 30 s or longer"),
            flag('t', "progress of the trim of each device"),
            flag('v', "errors by kind, and the damaged files with the damaged byte ranges"),
            flag('x', "only pools with problems"),
            TIME,
        ],
        operands: "[pool]... [interval [count]]",
        least: 0,
        most: MANY,
    },
    doc: "Shows the health of pools and of their devices.",
    run: status,
};

fn status(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let plan = Plan::read(parsed)?;
    plan.run(session, |session| once(session, parsed, &plan.names).map(|()| true))
}

fn once(session: &mut Session<'_, '_>, parsed: &Parsed, wanted: &[String]) -> Result<(), Failure> {
    let request = PoolStatus { names: wanted.to_vec() };
    let mut pools = session.ask(request).doing(|| "cannot get the status".into())?;
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
        for (at, line) in scan_lines(scan).into_iter().enumerate() {
            session.line(if at == 0 { format!("  scan: {line}") } else { format!("\t{line}") });
        }
    }
    if let Some(moving) = &pool.moving {
        move_lines(moving).into_iter().for_each(|line| session.line(line));
    }
    session.line("config:\n");
    let vdevs = remarked(&pool.vdevs, parsed);
    session.out.push_str(&vdev_table(&pool.name, pool.state, &vdevs, true, parsed.has('p')));
    if let Some(line) = log_line(&pool.log) {
        session.line(format!("\n   log: {line}"));
    }
    if parsed.has('D') {
        session.line("");
        for line in dedup::status_lines(&pool.sharing, parsed.has('p')) {
            session.line(line);
        }
    }
    if let Some(table) = errors::table(&vdevs, parsed.has('p')).filter(|_| parsed.has('v')) {
        session.out.push_str(&format!("\n{table}"));
    }
    session.line("");
    match (pool.error_count, parsed.has('v')) {
        (0, _) => session.line("errors: No known data errors"),
        (count, false) => {
            session
                .line(format!("errors: {count} data errors, use `{} status -v` for a list", words.zpool()));
        }
        (count, true) => {
            session.line("errors: Permanent errors have been detected in the following files:\n");
            for error in &pool.errors {
                session.line(format!("        {}", errors::place(error)));
            }
            let unlisted = count.saturating_sub(pool.errors.len() as u64);
            if unlisted > 0 {
                session.line(format!("        (and {unlisted} more)"));
            }
        }
    }
}

/// The line about the intent log (ZIL); `None` if there is no log and none was replayed.
fn log_line(log: &LogReport) -> Option<String> {
    let LogReport { size, devices, groups, bytes, durable, committed_instead, replayed, held } = *log;
    if size == 0 && replayed == 0 && held == 0 {
        return None;
    }
    let place = match devices {
        0 if size == 0 => "no space yet".to_owned(),
        0 => format!("{} in the pool", nice_bytes(size)),
        1 => format!("{} on its own device", nice_bytes(size)),
        _ => format!("{} on {devices} devices", nice_bytes(size)),
    };
    let many = |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let mut line = format!(
        "{place}; {}, {} for {}; {} waited for a commit",
        many(groups, "group"),
        nice_bytes(bytes),
        many(durable, "fsync"),
        many(committed_instead, "fsync"),
    );
    if replayed > 0 {
        line.push_str(&format!("; {} replayed", many(replayed, "group")));
    }
    if held > 0 {
        line.push_str(&format!("; records of {} wait for the key", many(held, "file system")));
    }
    Some(line)
}

/// Devices with notes about trim, initialization and slow calls behind the notes of the daemon.
fn remarked(vdevs: &[VdevReport], parsed: &Parsed) -> Vec<VdevReport> {
    let with_more = |vdev: &VdevReport| {
        let trim = vdev.trim.as_ref().and_then(|trim| remark(trim, TRIMMED, parsed.has('t')));
        let initialize =
            vdev.initialize.as_ref().and_then(|initialize| remark(initialize, INITIALIZED, parsed.has('i')));
        let slow_calls = (parsed.has('s') && vdev.children.is_empty()).then(|| errors::slow(vdev));
        let notes = vdev.note.iter().cloned().chain(trim).chain(initialize).chain(slow_calls);
        let notes: Vec<String> = notes.collect();
        let (name, children) = (label(vdev, parsed), remarked(&vdev.children, parsed));
        VdevReport { name, note: (!notes.is_empty()).then(|| notes.join("  ")), children, ..vdev.clone() }
    };
    chosen(vdevs, parsed).iter().map(with_more).collect()
}

/// Words for a trim: verb, participle, present participle.
const TRIMMED: [&str; 3] = ["trim", "trimmed", "trimming"];

/// Words for an initialization.
const INITIALIZED: [&str; 3] = ["initialize", "initialized", "initializing"];

/// The note about a trim or an initialization: always with `-t` or `-i`, else only while it is
/// active.
fn remark(trim: &TrimReport, [verb, done, doing]: [&str; 3], asked: bool) -> Option<String> {
    if !asked {
        return (trim.state == TrimState::Active).then(|| format!("({doing})"));
    }
    let percent = (u128::from(trim.done) * 100).checked_div(trim.total.into()).unwrap_or(100);
    let since = date::creation(trim.since);
    Some(match trim.state {
        TrimState::Unsupported => format!("({verb} unsupported)"),
        TrimState::Untrimmed => format!("(un{done})"),
        TrimState::Active => format!("({percent}% {done}, started at {since})"),
        TrimState::Suspended => format!("({percent}% {done}, suspended, started at {since})"),
        TrimState::Complete => format!("({percent}% {done}, completed at {since})"),
    })
}
