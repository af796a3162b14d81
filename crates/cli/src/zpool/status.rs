//! `zpool status`: health, messages, progress, devices, damaged files.

use super::operands::reports;
use super::progress::{move_lines, scan_lines};
use super::reason::{reason, status_text};
use super::scripts::{self, SCRIPTS, Scripts};
use super::status_json::as_json;
use super::stores::{self, STORES};
use super::vdev_table::{Extra, vdev_table};
use super::vdev_tree::{BY_GUID, FULL_PATHS, LINKS, chosen, label};
use super::{dedup, errors};
use crate::command::Command;
use crate::date::{self, now};
use crate::json::{FLAT_VDEVS, KEY_GUID};
use crate::options::{EXACT, Flag, JSON, JSON_INT, MANY, Parsed, Syntax, flag};
use crate::repeat::{Plan, TIME};
use crate::session::{Failure, Session};
use crate::table::tame;
use steadfast_control::api::{Health, LogReport, PoolReport, PoolStatus, TrimReport, TrimState, VdevReport};
use steadfast_property::{nice_bytes, nice_number};

pub(super) const COMMAND: Command = Command {
    names: &["status"],
    syntax: Syntax {
        flags: &[
            SCRIPTS,
            JSON,
            JSON_INT,
            FLAT_VDEVS,
            KEY_GUID,
            flag('d', "a column for errors of direct I/O; always 0: what is read is verified either way"),
            flag('D', "the dedup table (DDT): how many blocks are referenced how often"),
            flag('e', "only devices with errors"),
            BY_GUID,
            flag('i', "progress of the initialization of each device"),
            LINKS,
            EXACT,
            FULL_PATHS,
            Flag {
                letter: '\0',
                long: "power",
                value: "",
                doc: "a column for the power of slots; not known: -",
            },
            flag('s', "a column for the number of calls that took 30 s or longer"),
            STORES,
            flag('t', "progress of the trim of each device"),
            flag('v', "errors by kind, the intent log, and the damaged files with the damaged byte ranges"),
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
    if scripts::listed(session, parsed, "status") {
        return Ok(());
    }
    let plan = Plan::read(parsed)?;
    plan.run(session, |session| once(session, parsed, &plan.names).map(|()| true))
}

fn once(session: &mut Session<'_, '_>, parsed: &Parsed, wanted: &[String]) -> Result<(), Failure> {
    let mut pools = reports(session, wanted, |names| PoolStatus { names }, "cannot get the status")?;
    let found = pools.len() + wanted.len();
    if parsed.has('x') {
        let healthy: Vec<PoolReport> = pools.extract_if(.., |pool| is_healthy(pool)).collect();
        if !parsed.has('j') && !wanted.is_empty() {
            healthy.iter().for_each(|pool| session.line(format!("pool '{}' is healthy", tame(&pool.name))));
        }
    }
    let scripts = scripts::run(session, parsed, &pools)?;
    if parsed.has('j') {
        session.line(as_json(&pools, parsed, &scripts));
        return Ok(());
    }
    if found == 0 {
        session.tell("no pools available\n");
    } else if pools.is_empty() && wanted.is_empty() {
        session.line("all pools are healthy");
    }
    for (index, pool) in pools.iter().enumerate() {
        if index > 0 {
            session.line("");
        }
        print(session, pool, parsed, &scripts);
    }
    Ok(())
}

fn is_healthy(pool: &PoolReport) -> bool {
    let is_quiet = pool.messages.is_empty() && reason(pool).is_none();
    pool.state == Health::Online && is_quiet && pool.error_count == 0
}

fn print(session: &mut Session<'_, '_>, pool: &PoolReport, parsed: &Parsed, scripts: &Scripts) {
    session.line(format!("  pool: {}", tame(&pool.name)));
    session.line(format!(" state: {}", pool.state.as_str()));
    let words = session.words;
    session.out.push_str(&status_text(reason(pool), &pool.messages, words));
    if let Some(scan) = &pool.scan {
        for (at, line) in scan_lines(scan, now()).into_iter().enumerate() {
            session.line(if at == 0 { format!("  scan: {line}") } else { format!("\t{line}") });
        }
    }
    if let Some(moving) = &pool.moving {
        move_lines(moving).into_iter().for_each(|line| session.line(line));
    }
    if let Some(checkpoint) = &pool.checkpoint {
        let (taken, bytes) = (date::ctime(checkpoint.taken), nice_bytes(checkpoint.bytes));
        session.line(format!("checkpoint: created {taken}, consumes {bytes}"));
    }
    if let Some(audit) = &pool.audit {
        session.line(format!(" audit: {audit}"));
    }
    if let Some(line) = log_line(&pool.log).filter(|_| parsed.has('v')) {
        session.line(format!("   log: {line}"));
    }
    session.line("config:\n");
    let vdevs = remarked(&pool.vdevs, parsed);
    let extra = columns(parsed, scripts);
    session.out.push_str(&vdev_table(&pool.name, pool.state, &vdevs, parsed.has('p'), &extra));
    if let Some(table) = errors::table(&vdevs, parsed.has('p')).filter(|_| parsed.has('v')) {
        session.out.push_str(&format!("\n{table}"));
    }
    session.line("");
    if stores::are_told(session, parsed) {
        session.out.push_str(&stores::section(pool));
    }
    match (pool.error_count, parsed.has('v')) {
        (0, _) => session.line("errors: No known data errors"),
        (count, false) => {
            session.line(format!("errors: {count} data errors, use '-v' for a list"));
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
    if parsed.has('D') {
        session.line("");
        for line in dedup::status_lines(&pool.sharing, parsed.has('p')) {
            session.line(line);
        }
    }
}

/// The columns behind the counters, in the order of ZFS.
fn columns<'a>(parsed: &Parsed, scripts: &'a Scripts) -> Vec<Extra<'a>> {
    let exact = parsed.has('p');
    let mut columns = Vec::new();
    let mut add = |heading: &str, cell: Box<dyn Fn(&VdevReport) -> String + 'a>| {
        columns.push(Extra { heading: heading.to_owned(), width: 5, cell });
    };
    if parsed.has('s') {
        add(
            "SLOW",
            Box::new(move |vdev| match (vdev.children.is_empty(), exact) {
                (false, _) => "-".to_owned(),
                (true, true) => vdev.kinds.slow.to_string(),
                (true, false) => nice_number(vdev.kinds.slow),
            }),
        );
    }
    if parsed.has_long("power") {
        add("POWER", Box::new(|_| "-".to_owned()));
    }
    if parsed.has('d') {
        add("DIO", Box::new(|_| "0".to_owned()));
    }
    columns.extend(scripts.columns().map(|(heading, width)| Extra {
        heading: heading.to_owned(),
        width: width + 1,
        cell: Box::new(move |vdev| scripts.value(vdev.guid, heading).unwrap_or("-").to_owned()),
    }));
    columns
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

/// Devices with notes about trim and initialization behind the notes of the daemon.
fn remarked(vdevs: &[VdevReport], parsed: &Parsed) -> Vec<VdevReport> {
    let with_more = |vdev: &VdevReport| {
        let trim = vdev.trim.as_ref().and_then(|trim| remark(trim, TRIMMED, parsed.has('t')));
        let initialize =
            vdev.initialize.as_ref().and_then(|initialize| remark(initialize, INITIALIZED, parsed.has('i')));
        let notes = vdev.note.iter().cloned().chain(trim).chain(initialize);
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
    let since = date::ctime(trim.since);
    Some(match trim.state {
        TrimState::Unsupported => format!("({verb} unsupported)"),
        TrimState::Untrimmed => format!("(un{done})"),
        TrimState::Active => format!("({percent}% {done}, started at {since})"),
        TrimState::Suspended => format!("({percent}% {done}, suspended, started at {since})"),
        TrimState::Complete => format!("({percent}% {done}, completed at {since})"),
    })
}
