//! `zpool iostat`: operations, bandwidth and latency of pools and devices.

use super::caches::{self, CACHES, CacheFlow};
use super::io_flow::{Flow, Word, flow};
use super::operands::device_path;
use super::requests::{self, REQUESTS, RequestFlow};
use super::scripts::{self, SCRIPTS, Scripts};
use super::stores::{self, STORES, StoreFlow};
use super::vdev_tree::{BY_GUID, FULL_PATHS, LINKS, label_of};
use crate::command::{Command, FAILED};
use crate::json::{self, Numbers};
use crate::options::{JSON, JSON_INT, MANY, Parsed, SCRIPTED, Syntax, flag};
use crate::repeat::{Plan, TIME};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use serde_json::{Value, json};
use steadfast_control::Refusal;
use steadfast_control::api::{PoolIo, PoolIostat, PoolList, PoolStatus};
use steadfast_property::{nice_bytes, nice_nanos, nice_number};

pub(super) const COMMAND: Command = Command {
    names: &["iostat"],
    syntax: Syntax {
        flags: &[
            BY_GUID,
            CACHES,
            SCRIPTED,
            JSON,
            JSON_INT,
            flag('l', "average latencies"),
            LINKS,
            flag('n', "print headings once"),
            flag('p', "exact numbers, times in nanoseconds"),
            FULL_PATHS,
            flag('q', "columns for queues; always empty: calls go to the devices at once"),
            flag('r', "histograms of the sizes of calls; none are aggregated"),
            REQUESTS,
            SCRIPTS,
            STORES,
            flag('v', "devices too"),
            flag('w', "latency histograms"),
            flag('y', "omit the first report, the average since the import"),
            TIME,
        ],
        operands: "[pool]...|[pool] [device|group]... [interval [count]]",
        least: 0,
        most: MANY,
    },
    doc: "Prints operations and bandwidth of pools and devices: first the average since the import, then of each interval.",
    run: iostat,
};

/// Unit of a column.
#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    PerSecond,
    BytesPerSecond,
    Nanos,
    /// The column is empty: there is no such queue or activity here.
    Nothing,
}

/// Headings as in ZFS: a group above its columns.
const GROUPS: [(&str, &[&str]); 3] =
    [("capacity", &["alloc", "free"]), ("operations", &["read", "write"]), ("bandwidth", &["read", "write"])];
/// With `-l`. There are no queues above devices: the total wait equals the disk wait, and the queue
/// columns are empty. The last column is ours: a commit waits for flushes.
const LATENCY: [(&str, &[&str]); 8] = [
    ("total_wait", &["read", "write"]),
    ("disk_wait", &["read", "write"]),
    ("syncq_wait", &["read", "write"]),
    ("asyncq_wait", &["read", "write"]),
    ("scrub", &["wait"]),
    ("trim", &["wait"]),
    ("rebuild", &["wait"]),
    ("flush", &["wait"]),
];
/// With `-q`. Calls wait in no queue of ours, so none is pending; those under way are not counted.
const QUEUES: [(&str, &[&str]); 7] = [
    ("syncq_read", &["pend", "activ"]),
    ("syncq_write", &["pend", "activ"]),
    ("asyncq_read", &["pend", "activ"]),
    ("asyncq_write", &["pend", "activ"]),
    ("scrubq_read", &["pend", "activ"]),
    ("trimq_write", &["pend", "activ"]),
    ("rebuildq_write", &["pend", "activ"]),
];
/// With `-w`, in the columns of ZFS; the last one is ours.
const HISTOGRAM: [(&str, &[&str]); 8] = LATENCY;

/// With `-r`: `ind` counts calls as they were made, `agg` those that were joined. The columns are
/// those of ZFS, for programs take them by their number; of its kinds reads, writes and trims are
/// told apart.
const SIZES: [(&str, &[&str]); 7] = [
    ("sync_read", &["ind", "agg"]),
    ("sync_write", &["ind", "agg"]),
    ("async_read", &["ind", "agg"]),
    ("async_write", &["ind", "agg"]),
    ("scrub", &["ind", "agg"]),
    ("trim", &["ind", "agg"]),
    ("rebuild", &["ind", "agg"]),
];

/// The smallest size in a histogram of sizes: 2^9 bytes.
const SMALLEST: usize = 9;

pub(super) type Groups = [(&'static str, &'static [&'static str])];

/// Splits names into pools, and groups or devices: of the pool before them, or of any pool.
fn split_names(session: &mut Session<'_, '_>, names: &[String]) -> Result<(Vec<String>, Vec<Word>), Failure> {
    let pools_alone = || Ok((names.to_vec(), Vec::new()));
    let Some(first) = names.first() else { return pools_alone() };
    let listed = session.ask(PoolList::default()).doing(doing)?;
    let is_pool = |name: &String| listed.iter().any(|pool| pool.name == *name);
    if names.iter().all(is_pool) {
        return pools_alone();
    }
    let pools = if is_pool(first) { vec![first.clone()] } else { Vec::new() };
    let all = session.ask(PoolIostat { names: pools.clone() }).doing(doing)?;
    let words: Vec<Word> = names[pools.len()..]
        .iter()
        .map(|text| Word { text: text.clone(), path: device_path(session, text) })
        .collect();
    let unknown = |word: &&Word| !all.iter().any(|pool| word.is_in(pool));
    match (words.iter().find(unknown), pools.first()) {
        (None, _) => Ok((pools, words)),
        (Some(word), Some(pool)) => Err(Refusal::no_device(pool, &word.text)).doing(doing),
        // Let the daemon refuse the name as an unknown pool.
        (Some(_), None) => pools_alone(),
    }
}

fn doing() -> String {
    "cannot get I/O statistics".into()
}

fn iostat(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    if scripts::listed(session, parsed, "iostat") {
        return Ok(());
    }
    let plan = Plan::read(parsed)?;
    let is_histogram = parsed.has('w') || parsed.has('r');
    if parsed.has('w') && parsed.has('r') {
        return Err(Failure::Usage("-w cannot be combined with -r".into()));
    }
    if is_histogram && ['l', 'q', 'c'].iter().any(|letter| parsed.has(*letter)) {
        return Err(Failure::Usage("-w and -r cannot be combined with -l, -q or -c".into()));
    }
    let of_requests = parsed.has_long(REQUESTS.long);
    if of_requests && ['l', 'q', 'c', 'r', 'v', 'w'].iter().any(|letter| parsed.has(*letter)) {
        return Err(Failure::Usage("--requests cannot be combined with -c, -l, -q, -r, -v or -w".into()));
    }
    let of_caches = parsed.has_long(CACHES.long);
    if of_caches && (of_requests || ['l', 'q', 'c', 'r', 'v', 'w'].iter().any(|letter| parsed.has(*letter))) {
        let sentence = "--caches cannot be combined with -c, -l, -q, -r, -v, -w or --requests";
        return Err(Failure::Usage(sentence.into()));
    }
    let (names, words) = split_names(session, &plan.names)?;
    let scripts = match parsed.has('c') {
        true => {
            let pools = session.ask(PoolStatus { names: names.clone() }).doing(doing)?;
            scripts::run(session, parsed, &pools)?
        }
        false => Scripts::default(),
    };
    let mut before: Vec<PoolIo> = Vec::new();
    let mut reports = 0_u64;
    let mut first = true;
    let skips_first = parsed.has('y') && plan.repeats();
    plan.run(session, |session| {
        let pools = session.ask(PoolIostat { names: names.clone() }).doing(doing)?;
        let flows = pools.iter().map(|pool| flow(pool, &before));
        let flows: Vec<Flow> = match words.is_empty() {
            true => flows.collect(),
            false => flows.map(|flow| flow.only(&words)).filter(|flow| !flow.devices.is_empty()).collect(),
        };
        let told: Vec<&Flow> = match words.is_empty() {
            true => flows.iter().collect(),
            false => flows.iter().flat_map(|flow| &flow.devices).collect(),
        };
        let stores = stores::flows(&pools, &before);
        let requests = requests::flows(&pools, &before);
        let caches = caches::flows(&pools, &before);
        before = pools;
        if std::mem::take(&mut first) && skips_first {
            return Ok(false);
        }
        if parsed.has('j') {
            let deep = parsed.has('v') || !words.is_empty();
            let requests = of_requests.then_some(&requests[..]);
            let caches = of_caches.then_some(&caches[..]);
            session.line(as_json(&flows, (&stores, requests, caches), deep, parsed));
        } else if of_requests {
            requests::table(session, &requests, parsed);
        } else if of_caches {
            caches::table(session, &caches, parsed);
        } else if parsed.has('H') && parsed.has_long(STORES.long) {
            // Lines of the other table have other columns.
            stores::table(session, &stores, parsed);
        } else if flows.is_empty() && !parsed.has('H') {
            session.tell("no pools available\n");
            if !plan.repeats() {
                return Err(Failure::Status(FAILED));
            }
        } else if is_histogram {
            told.iter().for_each(|flow| histograms(session, flow, parsed));
        } else {
            // As in ZFS: headings once, or before each report of several lines.
            let headings = reports == 0 || (parsed.has('v') && !parsed.has('n'));
            table(session, &told, parsed, headings, &scripts);
            let is_deep = parsed.has('v') && !parsed.has('H') && words.is_empty();
            if parsed.has_long(STORES.long) || is_deep && stores::are_told(session, parsed) {
                stores::table(session, &stores, parsed);
            }
        }
        reports += 1;
        Ok(true)
    })
}

/// Numbers and units of a line.
fn cells(flow: &Flow, parsed: &Parsed) -> Vec<(u64, Unit)> {
    use Unit::{Bytes, BytesPerSecond, Nanos, Nothing, PerSecond};
    let [read, write, ..] = &flow.calls;
    let room = |part: fn((u64, u64)) -> u64| flow.room.map_or((0, Nothing), |room| (part(room), Bytes));
    let mut cells = vec![
        room(|(allocated, _)| allocated),
        room(|(_, free)| free),
        (flow.per_second(read.calls), PerSecond),
        (flow.per_second(write.calls), PerSecond),
        (flow.per_second(read.bytes), BytesPerSecond),
        (flow.per_second(write.bytes), BytesPerSecond),
    ];
    if parsed.has('l') {
        let waits = [flow.average(0), flow.average(1)].map(|nanos| (nanos, Nanos));
        cells.extend([waits, waits, [(0, Nothing); 2], [(0, Nothing); 2]].concat());
        cells.extend([(0, Nothing), (flow.average(3), Nanos), (0, Nothing), (flow.average(2), Nanos)]);
    }
    if parsed.has('q') {
        cells.extend(QUEUES.iter().flat_map(|_| [(0, PerSecond), (0, Nothing)]));
    }
    cells
}

/// Name at the head of a line.
fn label(flow: &Flow, parsed: &Parsed) -> String {
    let name = match flow.depth {
        0 => tame(&flow.name),
        _ => tame(&label_of(&flow.name, flow.guid, parsed)),
    };
    if parsed.has('H') || flow.alone {
        name
    } else {
        format!("{:indent$}{name}", "", indent = 2 * flow.depth)
    }
}

fn shown((value, unit): (u64, Unit), exact: bool) -> String {
    match unit {
        Unit::Nothing => "-".to_owned(),
        Unit::Nanos if value == 0 => "-".to_owned(),
        _ if exact => value.to_string(),
        Unit::PerSecond => nice_number(value),
        Unit::BytesPerSecond if value == 0 => "0".to_owned(),
        Unit::Bytes | Unit::BytesPerSecond => nice_bytes(value),
        Unit::Nanos => nice_nanos(value),
    }
}

/// Widths of columns: five characters as in ZFS, or more for a long heading or cell.
pub(super) fn widths(groups: &Groups, rows: &[Vec<String>]) -> Vec<usize> {
    let mut widths = Vec::new();
    for (group, columns) in groups {
        let width = if columns.len() == 1 { group.len().max(5) } else { 5 };
        widths.extend(columns.iter().map(|_| width));
    }
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

/// Three lines: groups, columns, rules. `extra` are columns without a group.
pub(super) fn headings(
    session: &mut Session<'_, '_>,
    title: &str,
    name_width: usize,
    groups: &Groups,
    widths: &[usize],
    extra: &[&str],
) {
    let mut top = " ".repeat(name_width);
    let mut names = format!("{title:name_width$}");
    let mut at = 0;
    for (group, columns) in groups {
        let room = widths[at..at + columns.len()].iter().sum::<usize>() + 2 * (columns.len() - 1);
        let left = room.saturating_sub(group.len()).div_ceil(2);
        top.push_str(&format!("  {:room$}", format!("{:left$}{group}", "")));
        for (column, width) in columns.iter().zip(&widths[at..]) {
            names.push_str(&format!("  {column:>width$}"));
        }
        at += columns.len();
    }
    for (heading, width) in extra.iter().zip(&widths[at..]) {
        names.push_str(&format!("  {heading:>width$}"));
    }
    session.line(top.trim_end());
    session.line(names);
    rule(session, name_width, widths);
}

pub(super) fn rule(session: &mut Session<'_, '_>, name_width: usize, widths: &[usize]) {
    let rules: Vec<String> =
        std::iter::once(&name_width).chain(widths).map(|width| "-".repeat(*width)).collect();
    session.line(rules.join("  "));
}

fn table(
    session: &mut Session<'_, '_>,
    flows: &[&Flow],
    parsed: &Parsed,
    with_headings: bool,
    scripts: &Scripts,
) {
    let exact = parsed.has('p');
    let are_named = flows.iter().any(|flow| flow.alone);
    let lines: Vec<&Flow> = flows.iter().flat_map(|flow| flow.lines(parsed.has('v'))).collect();
    let row = |flow: &&Flow| cells(flow, parsed).into_iter().map(|cell| shown(cell, exact)).collect();
    let mut rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    let extra: Vec<(&str, usize)> = scripts.columns().collect();
    for (flow, row) in lines.iter().zip(&mut rows) {
        let value = |name: &str| scripts.value(flow.guid, name).unwrap_or("-").to_owned();
        row.extend(extra.iter().map(|(name, _)| value(name)));
    }
    if parsed.has('H') {
        for (flow, row) in lines.iter().zip(rows) {
            session.line(format!("{}\t{}", label(flow, parsed), row.join("\t")));
        }
        return;
    }
    let groups: Vec<_> = GROUPS
        .iter()
        .chain(LATENCY.iter().filter(|_| parsed.has('l')))
        .chain(QUEUES.iter().filter(|_| parsed.has('q')))
        .copied()
        .collect();
    let mut widths = widths(&groups, &rows);
    widths.extend(extra.iter().map(|(_, width)| width));
    let name_width = lines.iter().map(|flow| label(flow, parsed).chars().count()).max().unwrap_or(0).max(10);
    if with_headings {
        let title = if are_named { "vdev" } else { "pool" };
        let names: Vec<&str> = extra.iter().map(|(name, _)| *name).collect();
        headings(session, title, name_width, &groups, &widths, &names);
    }
    let mut section = None;
    for (flow, row) in lines.iter().zip(rows) {
        if !are_named
            && flow.section != section
            && let Some(heading) = flow.section
        {
            let dashes = widths.iter().map(|width| format!("  {:>width$}", "-"));
            session.line(format!("{heading:name_width$}{}", dashes.collect::<String>()));
        }
        section = flow.section;
        let mut line = format!("{:name_width$}", label(flow, parsed));
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        session.line(line);
    }
    if !are_named && (parsed.has('v') || flows.len() > 1) {
        rule(session, name_width, &widths);
    }
}

/// Numbers of calls by latency or size in powers of two, from the least to the greatest seen.
fn histograms(session: &mut Session<'_, '_>, flow: &Flow, parsed: &Parsed) {
    let (sizes, exact) = (parsed.has('r'), parsed.has('p'));
    let groups: &Groups = if sizes { &SIZES } else { &HISTOGRAM };
    for flow in flow.lines(parsed.has('v')) {
        let [read, write, flush, trim] = &flow.calls;
        let none = Vec::new();
        let columns: Vec<&Vec<u64>> = match sizes {
            true => {
                let mut columns = vec![&none; 14];
                (columns[0], columns[2], columns[10]) = (&read.sizes, &write.sizes, &trim.sizes);
                columns
            }
            false => {
                let mut columns = vec![&none; 12];
                (columns[0], columns[1]) = (&read.histogram, &write.histogram);
                (columns[2], columns[3]) = (&read.histogram, &write.histogram);
                (columns[9], columns[11]) = (&trim.histogram, &flush.histogram);
                columns
            }
        };
        let used = |at: &usize| columns.iter().any(|counts| counts.get(*at).is_some_and(|n| *n > 0));
        let buckets = columns.iter().map(|counts| counts.len()).max().unwrap_or(0);
        let (low, high) = ((0..buckets).find(used), (0..buckets).rev().find(used));
        let low = if sizes { low.map(|low| low.min(SMALLEST)) } else { low };
        let range = low.zip(high).map_or(0..0, |(low, high)| low..high + 1);
        let cell = |counts: &&Vec<u64>, at: usize| {
            let calls = counts.get(at).copied().unwrap_or(0);
            if exact { calls.to_string() } else { nice_number(calls) }
        };
        let rows: Vec<(String, Vec<String>)> = range
            .map(|at| {
                // As ZFS has it: the least size of a row, and the greatest latency.
                let edge = if sizes { 1_u64 << at } else { u64::MAX >> (63 - at.min(63)) };
                let edge = match (exact, sizes) {
                    (true, _) => edge.to_string(),
                    (false, true) => nice_number(edge),
                    (false, false) => nice_nanos(edge),
                };
                (edge, columns.iter().map(|counts| cell(counts, at)).collect())
            })
            .collect();
        if parsed.has('H') {
            rows.into_iter().for_each(|(edge, row)| session.line(format!("{edge}\t{}", row.join("\t"))));
            continue;
        }
        let cells: Vec<Vec<String>> = rows.iter().map(|(_, row)| row.clone()).collect();
        let widths = widths(groups, &cells);
        let title = label(flow, parsed).trim_start().to_owned();
        let name_width = title.chars().count().max(10);
        headings(session, &title, name_width, groups, &widths, &[]);
        for (edge, row) in rows {
            let mut line = format!("{edge:name_width$}");
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("  {cell:>width$}"));
            }
            session.line(line);
        }
        rule(session, name_width, &widths);
    }
}

fn as_json(
    flows: &[Flow],
    (stores, requests, caches): (&[StoreFlow], Option<&[RequestFlow]>, Option<&[CacheFlow]>),
    deep: bool,
    parsed: &Parsed,
) -> String {
    let as_number = parsed.has_long("json-int");
    let plain = |flow: &Flow| {
        let number = |value: u64| json::number(value, as_number);
        let call = |at: usize| {
            let count = &flow.calls[at];
            let mut call = json!({
                "operations": number(flow.per_second(count.calls)),
                "bandwidth": number(flow.per_second(count.bytes)),
                "calls": number(count.calls),
                "bytes": number(count.bytes),
            });
            if parsed.has('l') {
                call["wait_ns"] = number(flow.average(at));
            }
            if parsed.has('r') {
                call["sizes"] = count.sizes.iter().map(|calls| number(*calls)).collect();
            }
            if parsed.has('w') {
                call["histogram"] = count.histogram.iter().map(|calls| number(*calls)).collect();
            }
            call
        };
        let mut entry = json!({
            "name": flow.name,
            "guid": number(flow.guid),
            "seconds": flow.seconds,
            "read": call(0),
            "write": call(1),
            "flush": call(2),
            "trim": call(3),
        });
        if let Some((allocated, free)) = flow.room {
            (entry["alloc_space"], entry["free_space"]) = (number(allocated), number(free));
        }
        entry
    };
    let by_name: serde_json::Map<String, Value> = flows
        .iter()
        .map(|flow| {
            let mut entry = nested(flow, deep, &plain);
            if let Some(stores) = stores::iostat_json(&flow.name, stores, Numbers::of(parsed)) {
                entry["stores"] = stores;
            }
            if let Some(requests) = requests {
                entry["requests"] = requests::json(&flow.name, requests, Numbers::of(parsed));
            }
            if let Some(caches) = caches {
                entry["caches"] = caches::json(&flow.name, caches, Numbers::of(parsed));
            }
            (flow.name.clone(), entry)
        })
        .collect();
    let mut document = json::document("zpool iostat");
    document.insert("pools".into(), by_name.into());
    json::text(document)
}

/// An entry with the entries of its members.
fn nested(flow: &Flow, deep: bool, plain: &dyn Fn(&Flow) -> Value) -> Value {
    let mut entry = plain(flow);
    if deep && (flow.depth == 0 || !flow.devices.is_empty()) {
        let parts = flow.devices.iter().map(|part| (part.name.clone(), nested(part, deep, plain)));
        entry["vdevs"] = parts.collect::<serde_json::Map<String, Value>>().into();
    }
    entry
}
