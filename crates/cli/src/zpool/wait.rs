//! `zpool wait`, and waiting for one activity (`-w` of other verbs).

use crate::command::Command;
use crate::options::{EXACT, Parsed, SCRIPTED, Syntax, valued};
use crate::progress::Bar;
use crate::repeat::{Stamp, TIME, interval};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use steadfast_control::Code;
use steadfast_control::api::{Activities, PoolActivities};
use steadfast_property::nice_bytes;

pub(super) const COMMAND: Command = Command {
    names: &["wait"],
    syntax: Syntax {
        flags: &[
            SCRIPTED,
            EXACT,
            valued('t', "activity[,activity]...", "wait for these only; default: all"),
            TIME,
        ],
        operands: "pool [interval]",
        least: 1,
        most: 2,
    },
    doc: "Waits until a pool has no background activity. With an interval in seconds, prints the bytes left.",
    run: wait,
};

/// The daemon answers after this time, or when the activity has finished.
const LOOK: Duration = Duration::from_millis(250);

/// Activities in the order of the columns. Those that do not exist here have always finished.
const ACTIVITIES: [&str; 10] = [
    "discard",
    "free",
    "initialize",
    "replace",
    "remove",
    "resilver",
    "scrub",
    "trim",
    "raidz_expand",
    "rebalance",
];

fn wait(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let stamp = Stamp::read(parsed)?;
    let interval = parsed.operands.get(1).map(|text| interval(text)).transpose()?;
    let mut wanted = Vec::new();
    for word in parsed.values('t').flat_map(|list| list.split(',')) {
        match ACTIVITIES.into_iter().find(|known| *known == word) {
            Some(known) => wanted.push(known),
            None => {
                let sentence = format!("invalid activity '{word}': one of {}", ACTIVITIES.join(", "));
                return Err(Failure::Usage(sentence));
            }
        }
    }
    if wanted.is_empty() {
        wanted.extend(ACTIVITIES);
    }
    let (exact, scripted) = (parsed.has('p'), parsed.has('H'));
    let shown: Vec<&str> = ACTIVITIES.into_iter().filter(|name| wanted.contains(name)).collect();
    let mut headed = scripted;
    let report = |session: &mut Session<'_, '_>, left_now: Activities| {
        stamp.print(session);
        let width = |name: &str| name.len().max(6);
        if !headed {
            let heads = shown.iter().map(|name| format!("{:>w$}", name.to_uppercase(), w = width(name)));
            session.line(heads.collect::<Vec<_>>().join("  "));
            headed = true;
        }
        let cells = shown.iter().map(|name| {
            let bytes = left_now.left(name);
            let text = match bytes {
                0 => "-".to_owned(),
                bytes if exact => bytes.to_string(),
                bytes => nice_bytes(bytes),
            };
            if scripted { text } else { format!("{text:>w$}", w = width(name)) }
        });
        session.line(cells.collect::<Vec<_>>().join(if scripted { "\t" } else { "  " }));
    };
    wait_on(session, PoolActivities { name, ..PoolActivities::default() }, &wanted, interval, report)
}

/// Waits until none of these activities is running, as [`wait_on`], with a bar on a terminal.
///
/// # Errors
/// The daemon's refusal.
pub(super) fn wait_for(session: &mut Session<'_, '_>, name: &str, wanted: &[&str]) -> Result<(), Failure> {
    let request = PoolActivities { name: name.to_owned(), ..PoolActivities::default() };
    wait_on(session, request, wanted, None, |_, _| {})
}

/// Waits until the trim or initialization of these devices, or of all, is over.
///
/// # Errors
/// The daemon's refusal.
pub(super) fn wait_for_sweep(
    session: &mut Session<'_, '_>,
    name: &str,
    wanted: &str,
    devices: Vec<PathBuf>,
) -> Result<(), Failure> {
    let request = PoolActivities { name: name.to_owned(), devices, ..PoolActivities::default() };
    wait_on(session, request, &[wanted], None, |_, _| {})
}

/// Waits until none of these activities is running: it has finished, was stopped, or its pool was
/// exported. With an interval, reports at the start, after each interval, and at the end. Without
/// one, a terminal gets a bar.
///
/// # Errors
/// The daemon's refusal.
fn wait_on(
    session: &mut Session<'_, '_>,
    request: PoolActivities,
    wanted: &[&str],
    interval: Option<Duration>,
    mut report: impl FnMut(&mut Session<'_, '_>, Activities),
) -> Result<(), Failure> {
    let mut bar = match interval {
        None => Bar::on_terminal(session, &tame(&request.name)),
        Some(_) => None,
    };
    let (begin, mut step) = (Instant::now(), Duration::ZERO);
    let mut known = false;
    let mut quiet = Duration::ZERO;
    loop {
        let until_over = wanted.iter().map(|name| (*name).to_owned()).collect();
        let name = request.name.as_str();
        let patience_ms = u64::try_from(step.as_millis()).unwrap_or(u64::MAX);
        let asked = Instant::now();
        let now = match session.ask(PoolActivities { until_over, patience_ms, ..request.clone() }) {
            Ok(now) => now,
            Err(refusal) => {
                bar.into_iter().for_each(|bar| bar.end(session));
                if known && refusal.code == Code::PoolAbsent {
                    return Ok(());
                }
                return Err(refusal).doing(|| format!("cannot wait for '{}'", tame(name)));
            }
        };
        let over = wanted.iter().all(|wanted| now.left(wanted) == 0);
        let running = wanted.iter().map(|wanted| (*wanted, now.left(wanted))).find(|(_, left)| *left > 0);
        if let (Some(bar), Some((activity, left))) = (&mut bar, running) {
            bar.draw(session, activity, left, begin.elapsed());
        }
        if !over {
            // The daemon waits. If it answered early, wait here before asking again.
            (session.world.sleep)(step.saturating_sub(asked.elapsed()));
        }
        quiet += step;
        if let Some(interval) = interval
            && (!known || over || quiet >= interval)
        {
            report(session, now);
            quiet = Duration::ZERO;
            if !session.flush() {
                return Ok(());
            }
        }
        if over {
            bar.into_iter().for_each(|bar| bar.end(session));
            return Ok(());
        }
        known = true;
        step = interval.map_or(LOOK, |interval| LOOK.min(interval));
    }
}
