//! `zpool trim` and `zpool wait`: what goes on in the background of a pool, begun and waited for.

use crate::date;
use crate::family::{Doing, Failure, Session};
use crate::options::Parsed;
use crate::table::tame;
use crate::zpool::device_path;
use crate::zpool_scan::{Pace, now, pace};
use std::time::{Duration, Instant};
use steadfast_control::Code;
use steadfast_control::api::{
    Activities, PoolActivities, PoolInitialize, PoolList, PoolReplace, PoolScrub, PoolTrim, ScanReport,
    ScrubCommand, TrimCommand, TrimReport, TrimState,
};
use steadfast_property::{nice_bytes, parse_size};

/// How long the daemon waits before it says how much is left of what is waited for; what ends sooner is told at once.
const LOOK: Duration = Duration::from_millis(250);

/// What `zpool wait` knows, in the order of its columns. Most of it does not exist here, and is over as soon as it is asked for.
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

pub(crate) fn trim(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let usage = |sentence: &str| Err(Failure::Usage(sentence.to_owned()));
    let name = parsed.operands[0].clone();
    let command = match (parsed.has('c'), parsed.has('s')) {
        (true, true) => return usage("-c cannot be combined with -s"),
        (true, false) => TrimCommand::Cancel,
        (false, true) => TrimCommand::Suspend,
        (false, false) => TrimCommand::Start,
    };
    let stops = command != TrimCommand::Start;
    if stops && parsed.has('w') {
        return usage("-w cannot be used with -c or -s");
    }
    if parsed.has('d') {
        return usage("-d: a secure trim is not offered, because no device here could promise it");
    }
    let rate = match parsed.value('r') {
        None => None,
        Some(_) if stops => return usage("-r cannot be used with -c or -s"),
        Some(text) => match parse_size(text).filter(|rate| *rate > 0) {
            Some(rate) => Some(rate),
            None => return Err(Failure::Usage(format!("invalid value for rate: '{text}'"))),
        },
    };
    let devices = parsed.operands[1..].iter().map(|word| device_path(session, word)).collect();
    let request = PoolTrim { name: name.clone(), devices, command, rate };
    session.ask(request).doing(|| format!("cannot trim '{}'", tame(&name)))?;
    if parsed.has('w') { wait_for(session, &name, &["trim"], None, |_, _| {}) } else { Ok(()) }
}

pub(crate) fn initialize(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let asked: Vec<(char, TrimCommand)> =
        [('c', TrimCommand::Cancel), ('s', TrimCommand::Suspend), ('u', TrimCommand::Forget)]
            .into_iter()
            .filter(|(letter, _)| parsed.has(*letter))
            .collect();
    let command = match asked[..] {
        [] => TrimCommand::Start,
        [(letter, _)] if parsed.has('w') => {
            return Err(Failure::Usage(format!("-w cannot be used with -{letter}")));
        }
        [(_, command)] => command,
        [(first, _), (second, _), ..] => {
            return Err(Failure::Usage(format!("-{first} cannot be combined with -{second}")));
        }
    };
    let devices = parsed.operands[1..].iter().map(|word| device_path(session, word)).collect();
    let request = PoolInitialize { name: name.clone(), devices, command };
    session.ask(request).doing(|| format!("cannot initialize '{}'", tame(&name)))?;
    if parsed.has('w') { wait_for(session, &name, &["initialize"], None, |_, _| {}) } else { Ok(()) }
}

/// Options of ZFS's scrub that are not offered, and why.
const SCRUB_REFUSED: [(char, &str); 4] = [
    (
        'C',
        "-C: what was right at the last scrub may be wrong by now, so that every scrub reads all that is stored; one that was paused \
         goes on with `zpool scrub` alone",
    ),
    (
        'e',
        "-e: errors are found by looking at all that is stored; to mend a file of which is known that it has some, read it",
    ),
    ('E', SCRUB_DATES),
    ('S', SCRUB_DATES),
];
const SCRUB_DATES: &str = "-S and -E: segments are read whole, in the order of the devices, and hold what was written at many times; \
    `zpool scrub` reads them all, `-p` pauses it and `-s` stops it";

pub(crate) fn scrub(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let usage = |sentence: &str| Err(Failure::Usage(sentence.to_owned()));
    let command = match (parsed.has('p'), parsed.has('s')) {
        (true, true) => return usage("-p cannot be combined with -s"),
        (true, false) => ScrubCommand::Pause,
        (false, true) => ScrubCommand::Stop,
        (false, false) => ScrubCommand::Start,
    };
    if command != ScrubCommand::Start && parsed.has('w') {
        return usage("-w cannot be used with -p or -s");
    }
    if let Some((_, why)) = SCRUB_REFUSED.iter().find(|(letter, _)| parsed.has(*letter)) {
        return usage(why);
    }
    let all = parsed.has('a');
    let names: Vec<String> = match (all, parsed.operands.is_empty()) {
        (true, false) => return usage("too many arguments: -a means all pools"),
        (false, true) => return usage("missing pool argument"),
        (true, true) => {
            let pools = session.ask(PoolList::default()).doing(|| "cannot list pools".into())?;
            pools.into_iter().map(|pool| pool.name).collect()
        }
        (false, false) => parsed.operands.clone(),
    };
    let mut begun = Vec::new();
    for name in names {
        let doing = || format!("cannot scrub '{}'", tame(&name));
        match session.ask(PoolScrub { name: name.clone(), command }) {
            Ok(_) => begun.push(name),
            // One pool that cannot be scrubbed now keeps the others from nothing.
            Err(refusal) if all => session.complain(&doing(), &refusal),
            Err(refusal) => return Err(refusal).doing(doing),
        }
    }
    for name in begun.iter().filter(|_| parsed.has('w')) {
        wait_for(session, name, &["scrub"], None, |_, _| {})?;
    }
    Ok(())
}

pub(crate) fn replace(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let doing = || format!("cannot replace in '{}'", tame(&name));
    crate::zpool_growth::check_new(session, parsed, &name, doing)?;
    let old = device_path(session, &parsed.operands[1]);
    let new = parsed.operands.get(2).map(|word| device_path(session, word));
    let request = PoolReplace { name: name.clone(), old, new, force: parsed.has('f') };
    let outcome = session.ask(request).doing(doing)?;
    session.warn(&format!("the device of '{name}' is replaced, but"), &outcome.warnings);
    if parsed.has('w') { wait_for(session, &name, &["resilver"], None, |_, _| {}) } else { Ok(()) }
}

/// A duration as status prints it.
pub(crate) fn duration(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days} days {clock}") } else { clock }
}

/// What status says of a scrub or resilver, line by line.
pub(crate) fn scan_lines(scan: &ScanReport) -> Vec<String> {
    let date = date::creation;
    let mended = match scan.function.as_str() {
        "scrub" => format!("repaired {}", nice_bytes(scan.repaired + scan.resilvered)),
        _ => format!("resilvered {}", nice_bytes(scan.resilvered + scan.repaired)),
    };
    let errors = format!("with {} unrecoverable", nice_bytes(scan.lost));
    let took = duration(scan.ended.saturating_sub(scan.started));
    let mut lines = match scan.state.as_str() {
        "finished" => {
            let words = if scan.function == "scrub" { format!("scrub {mended}") } else { mended };
            vec![format!("{words} in {took} {errors} on {}", date(scan.ended))]
        }
        "canceled" => vec![format!("{} canceled on {}", scan.function, date(scan.ended))],
        state => {
            let head = match state {
                "paused" => format!("{} paused, started on {}", scan.function, date(scan.started)),
                _ => format!("{} in progress since {}", scan.function, date(scan.started)),
            };
            let Pace { rate, left } = pace(scan, now());
            let percent = scan.scanned as f64 * 100.0 / scan.total.max(1) as f64;
            let left = left
                .map_or_else(|| "no estimated time".to_owned(), |left| format!("{} to go", duration(left)));
            let limit = match scan.limit {
                0 => String::new(),
                limit => format!(", {}/s at most beside other load", nice_bytes(limit)),
            };
            let (scanned, total) = (nice_bytes(scan.scanned), nice_bytes(scan.total));
            vec![
                head,
                format!("{scanned} / {total} scanned at {}/s{limit}", nice_bytes(rate)),
                format!("{mended}, {:.2}% done, {left}", percent.min(100.0)),
            ]
        }
    };
    if !scan.left_out.is_empty() {
        let names: Vec<String> = scan.left_out.iter().map(|name| tame(name)).collect();
        lines.push(format!("not looked at, because their keys are not loaded: {}", names.join(", ")));
    }
    if scan.missing > 0 {
        lines.push(format!("{} columns are missing still: no device had room for them", scan.missing));
    }
    lines
}

/// Words for a trim: the verb, the participle, and what one is under way.
pub(crate) const TRIMMED: [&str; 3] = ["trim", "trimmed", "trimming"];
/// The same for an initialization.
pub(crate) const INITIALIZED: [&str; 3] = ["initialize", "initialized", "initializing"];

/// What status says behind a device's line: with `-t` (`-i`) always, else while a trim (an initialization) is under way.
pub(crate) fn remark(trim: &TrimReport, [verb, done, doing]: [&str; 3], asked: bool) -> Option<String> {
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

pub(crate) fn wait(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let stamp = match parsed.value('T') {
        None => None,
        Some("d") => Some('d'),
        Some("u") => Some('u'),
        Some(other) => {
            return Err(Failure::Usage(format!("invalid time format '{other}': must be d or u")));
        }
    };
    let interval = match parsed.operands.get(1).map(|text| (text, text.parse::<f64>())) {
        None => None,
        Some((_, Ok(seconds))) if seconds > 0.0 && seconds < 1e9 => Some(Duration::from_secs_f64(seconds)),
        Some((text, _)) => return Err(Failure::Usage(format!("invalid interval '{text}'"))),
    };
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
        let seconds = now();
        match stamp {
            Some('u') => session.line(seconds.to_string()),
            Some(_) => session.line(date::creation(seconds)),
            None => {}
        }
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
    wait_for(session, &name, &wanted, interval, report)
}

/// Waits until none of these activities goes on: it ended, was stopped, or its pool was let go. With an interval, reports
/// at the beginning, after each, and at the end.
pub(crate) fn wait_for(
    session: &mut Session<'_, '_>,
    name: &str,
    wanted: &[&str],
    interval: Option<Duration>,
    mut report: impl FnMut(&mut Session<'_, '_>, Activities),
) -> Result<(), Failure> {
    let mut step = Duration::ZERO;
    let mut known = false;
    let mut quiet = Duration::ZERO;
    loop {
        let until_over = wanted.iter().map(|name| (*name).to_owned()).collect();
        let patience_ms = u64::try_from(step.as_millis()).unwrap_or(u64::MAX);
        let asked = Instant::now();
        let now = match session.ask(PoolActivities { name: name.to_owned(), until_over, patience_ms }) {
            Ok(now) => now,
            Err(refusal) if known && refusal.code == Code::PoolAbsent => return Ok(()),
            Err(refusal) => return Err(refusal).doing(|| format!("cannot wait for '{}'", tame(name))),
        };
        let over = wanted.iter().all(|wanted| now.left(wanted) == 0);
        if !over {
            // The daemon waits, and answers when it is over. One that answers sooner is not asked at once again.
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
            return Ok(());
        }
        known = true;
        step = interval.map_or(LOOK, |interval| LOOK.min(interval));
    }
}
