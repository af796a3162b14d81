//! `zpool iostat`: what is asked of pools and devices, and how long they take.

use crate::family::{Doing, Failure, Session};
use crate::json;
use crate::options::Parsed;
use crate::repeat::Plan;
use crate::table::tame;
use crate::zpool::device_path;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use steadfast_control::Refusal;
use steadfast_control::api::{CallCount, DeviceIo, PoolIo, PoolIostat, PoolList, VdevClass};
use steadfast_property::{nice_bytes, nice_nanos, nice_number};

/// What passed between two moments, of a pool or a device.
struct Flow {
    depth: usize,
    /// The heading it stands under, if it holds no segments.
    section: Option<&'static str>,
    name: String,
    guid: u64,
    /// It was named, and is told of without what it belongs to.
    alone: bool,
    /// Bytes allocated and free. None of a member of a group: as in ZFS room is counted by group.
    room: Option<(u64, u64)>,
    seconds: f64,
    /// Reads, writes, flushes, discards.
    calls: [CallCount; 4],
    devices: Vec<Flow>,
}

/// What a column says of its numbers.
#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    PerSecond,
    BytesPerSecond,
    Nanos,
    /// There is no such queue or activity here.
    Nothing,
}

/// Headings as in ZFS: a group above its columns.
const GROUPS: [(&str, &[&str]); 3] =
    [("capacity", &["alloc", "free"]), ("operations", &["read", "write"]), ("bandwidth", &["read", "write"])];
/// With `-l`. Nothing is queued above a device, so the total wait is the disk wait, and there are no queues to wait in. The
/// last column is ours: flushes are what a commit waits for.
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
/// With `-w`.
const HISTOGRAM: [(&str, &[&str]); 4] = [
    ("total_wait", &["read", "write"]),
    ("disk_wait", &["read", "write"]),
    ("trim", &["wait"]),
    ("flush", &["wait"]),
];

type Groups = [(&'static str, &'static [&'static str])];

/// A device or group as it was typed.
struct Word {
    text: String,
    path: PathBuf,
}

impl Word {
    /// Is this its name, its number, or its path as one types it?
    fn is(&self, name: &str, guid: u64) -> bool {
        name == self.text || Path::new(name) == self.path || guid != 0 && guid.to_string() == self.text
    }

    fn is_in(&self, pool: &PoolIo) -> bool {
        let devices = pool.devices.iter().map(|device| (&device.name, device.guid));
        let groups = pool.groups.iter().map(|group| (&group.name, group.guid));
        devices.chain(groups).any(|(name, guid)| self.is(name, guid))
    }
}

/// What of the names are pools, and what are devices and groups: of the pool that stands before them, or of any.
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
        // Whichever it was to be, it is no pool.
        (Some(_), None) => pools_alone(),
    }
}

fn doing() -> String {
    "cannot tell iostat".into()
}

/// Prints one report, or one after each interval.
///
/// # Errors
/// What the daemon refuses.
pub(crate) fn iostat(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let plan = Plan::read(parsed)?;
    if parsed.has('q') {
        return Err(Failure::Usage(
            "-q: there are no queues above a device, so that nothing waits in them; -l tells how long calls take".into(),
        ));
    }
    if parsed.has('r') {
        return Err(Failure::Usage(
            "-r: sizes of requests are not counted; bandwidth by operations is their average, and -w tells how long they take".into(),
        ));
    }
    if parsed.has('w') && (parsed.has('l') || parsed.has('H')) {
        return Err(Failure::Usage("-w prints histograms, which go with neither -l nor -H".into()));
    }
    let (names, words) = split_names(session, &plan.names)?;
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
        before = pools;
        if std::mem::take(&mut first) && skips_first {
            return Ok(false);
        }
        if parsed.has('j') {
            session.line(as_json(&flows, parsed.has('v') || !words.is_empty(), parsed));
        } else if flows.is_empty() && !parsed.has('H') {
            session.line("no pools available");
        } else if parsed.has('w') {
            told.iter().for_each(|flow| histograms(session, flow, parsed));
        } else {
            // As in ZFS: headings once, or before every report that has several lines.
            let headings = reports == 0 || (parsed.has('v') && !parsed.has('n'));
            table(session, &told, parsed, headings);
        }
        reports += 1;
        Ok(true)
    })
}

/// What passed since `before`, or since the import where there is nothing before.
fn flow(pool: &PoolIo, before: &[PoolIo]) -> Flow {
    // A pool that was exported and imported again meanwhile counts anew.
    let old = before.iter().find(|old| old.guid == pool.guid && old.age_ns <= pool.age_ns);
    let passed = pool.age_ns - old.map_or(0, |old| old.age_ns);
    let seconds = (passed as f64 / 1e9).max(1e-9);
    let device = |device: &DeviceIo| {
        let old = old.and_then(|old| old.devices.iter().find(|old| old.guid == device.guid));
        let now = [&device.read, &device.write, &device.flush, &device.trim];
        let then = old.map(|old| [&old.read, &old.write, &old.flush, &old.trim]);
        Flow {
            depth: 1,
            section: match device.class {
                VdevClass::Special => Some(SPECIAL),
                VdevClass::Log => Some("logs"),
                VdevClass::Cache => Some("cache"),
                _ => None,
            },
            name: device.name.clone(),
            guid: device.guid,
            alone: false,
            room: device.group.is_empty().then_some((device.allocated, device.free)),
            seconds,
            calls: std::array::from_fn(|at| less(now[at], then.map(|then| then[at]))),
            devices: Vec::new(),
        }
    };
    let whole = |name: &str| {
        let group = pool.groups.iter().find(|known| known.name == name);
        let room = group.map(|group| (group.allocated, group.free));
        Flow::group(name, group.map_or(0, |group| group.guid), room, seconds)
    };
    let flows = pool.devices.iter().map(|each| (each.group.as_str(), device(each)));
    let mut devices: Vec<Flow> = Vec::new();
    for (group, flow) in flows {
        match devices.last_mut() {
            Some(last) if !group.is_empty() && last.name == group => last.take(flow),
            _ if group.is_empty() => devices.push(flow),
            _ => {
                let mut whole = Flow { section: flow.section, ..whole(group) };
                whole.take(flow);
                devices.push(whole);
            }
        }
    }
    Flow {
        depth: 0,
        section: None,
        name: pool.name.clone(),
        guid: pool.guid,
        alone: false,
        room: Some((pool.allocated, pool.free)),
        seconds,
        calls: std::array::from_fn(|at| sum(devices.iter().map(|device| &device.calls[at]))),
        devices,
    }
}

fn less(now: &CallCount, then: Option<&CallCount>) -> CallCount {
    let Some(then) = then else { return now.clone() };
    let bucket = |at: usize| then.histogram.get(at).copied().unwrap_or(0);
    CallCount {
        calls: now.calls.saturating_sub(then.calls),
        bytes: now.bytes.saturating_sub(then.bytes),
        nanos: now.nanos.saturating_sub(then.nanos),
        histogram: now.histogram.iter().enumerate().map(|(at, n)| n.saturating_sub(bucket(at))).collect(),
    }
}

fn sum<'a>(counts: impl Iterator<Item = &'a CallCount>) -> CallCount {
    let mut all = CallCount::default();
    for count in counts {
        all.calls += count.calls;
        all.bytes += count.bytes;
        all.nanos += count.nanos;
        all.histogram.resize(all.histogram.len().max(count.histogram.len()), 0);
        for (sum, calls) in all.histogram.iter_mut().zip(&count.histogram) {
            *sum += calls;
        }
    }
    all
}

/// Heading of devices for metadata and small blocks.
const SPECIAL: &str = "special";

impl Flow {
    /// A group of devices, none yet.
    fn group(name: &str, guid: u64, room: Option<(u64, u64)>, seconds: f64) -> Flow {
        Flow {
            depth: 1,
            section: None,
            name: name.to_owned(),
            guid,
            alone: false,
            room,
            seconds,
            calls: std::array::from_fn(|_| CallCount::default()),
            devices: Vec::new(),
        }
    }

    /// Adds a device of the group.
    fn take(&mut self, mut device: Flow) {
        device.depth = self.depth + 1;
        self.calls = std::array::from_fn(|at| sum([&self.calls[at], &device.calls[at]].into_iter()));
        self.devices.push(device);
    }

    /// Itself and all below, in the order in which they are printed.
    fn lines(&self, deep: bool) -> Vec<&Flow> {
        let below = self.devices.iter().filter(|_| deep).flat_map(|flow| flow.lines(true));
        std::iter::once(self).chain(below).collect()
    }

    /// Those of its groups and devices that are named, each by itself.
    fn only(self, words: &[Word]) -> Flow {
        let devices = self.devices.into_iter().flat_map(|flow| flow.named(words)).collect();
        Flow { devices, ..self }
    }

    fn named(mut self, words: &[Word]) -> Vec<Flow> {
        let below = std::mem::take(&mut self.devices).into_iter().flat_map(|flow| flow.named(words));
        let is_named = words.iter().any(|word| word.is(&self.name, self.guid));
        let own = is_named.then_some(Flow { alone: true, ..self });
        own.into_iter().chain(below).collect()
    }

    fn per_second(&self, amount: u64) -> u64 {
        (amount as f64 / self.seconds).round() as u64
    }

    /// Nanoseconds of a call on average; 0 if there was none.
    fn average(&self, call: usize) -> u64 {
        self.calls[call].nanos.checked_div(self.calls[call].calls).unwrap_or(0)
    }

    fn cells(&self, parsed: &Parsed) -> Vec<(u64, Unit)> {
        use Unit::{Bytes, BytesPerSecond, Nanos, Nothing, PerSecond};
        let [read, write, ..] = &self.calls;
        let room = |part: fn((u64, u64)) -> u64| self.room.map_or((0, Nothing), |room| (part(room), Bytes));
        let mut cells = vec![
            room(|(allocated, _)| allocated),
            room(|(_, free)| free),
            (self.per_second(read.calls), PerSecond),
            (self.per_second(write.calls), PerSecond),
            (self.per_second(read.bytes), BytesPerSecond),
            (self.per_second(write.bytes), BytesPerSecond),
        ];
        if parsed.has('l') {
            let waits = [self.average(0), self.average(1)].map(|nanos| (nanos, Nanos));
            cells.extend([waits, waits, [(0, Nothing); 2], [(0, Nothing); 2]].concat());
            cells.extend([(0, Nothing), (self.average(3), Nanos), (0, Nothing), (self.average(2), Nanos)]);
        }
        cells
    }

    fn label(&self, parsed: &Parsed) -> String {
        let numbered = parsed.has('g') && self.depth > 0 && self.guid != 0;
        let name = if numbered { self.guid.to_string() } else { tame(&self.name) };
        // Scripts get names, people a tree.
        if parsed.has('H') || self.alone {
            name
        } else {
            format!("{:indent$}{name}", "", indent = 2 * self.depth)
        }
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

/// Width of a column: five characters as ZFS has it, or what a long group's name needs.
fn widths(groups: &Groups, rows: &[Vec<String>]) -> Vec<usize> {
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

/// Three lines: groups, columns, rules.
fn headings(
    session: &mut Session<'_, '_>,
    title: &str,
    name_width: usize,
    groups: &Groups,
    widths: &[usize],
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
    session.line(top.trim_end());
    session.line(names);
    rule(session, name_width, widths);
}

fn rule(session: &mut Session<'_, '_>, name_width: usize, widths: &[usize]) {
    let rules: Vec<String> =
        std::iter::once(&name_width).chain(widths).map(|width| "-".repeat(*width)).collect();
    session.line(rules.join("  "));
}

fn table(session: &mut Session<'_, '_>, flows: &[&Flow], parsed: &Parsed, with_headings: bool) {
    let exact = parsed.has('p');
    let are_named = flows.iter().any(|flow| flow.alone);
    let lines: Vec<&Flow> = flows.iter().flat_map(|flow| flow.lines(parsed.has('v'))).collect();
    let cells = |flow: &&Flow| flow.cells(parsed).into_iter().map(|cell| shown(cell, exact)).collect();
    let rows: Vec<Vec<String>> = lines.iter().map(cells).collect();
    if parsed.has('H') {
        for (flow, row) in lines.iter().zip(rows) {
            session.line(format!("{}\t{}", flow.label(parsed), row.join("\t")));
        }
        return;
    }
    let groups: Vec<_> = GROUPS.iter().chain(LATENCY.iter().filter(|_| parsed.has('l'))).copied().collect();
    let widths = widths(&groups, &rows);
    let name_width = lines.iter().map(|flow| flow.label(parsed).chars().count()).max().unwrap_or(0).max(10);
    if with_headings {
        let title = if are_named { "vdev" } else { "pool" };
        headings(session, title, name_width, &groups, &widths);
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
        let mut line = format!("{:name_width$}", flow.label(parsed));
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        session.line(line);
    }
    if !are_named && (parsed.has('v') || flows.len() > 1) {
        rule(session, name_width, &widths);
    }
}

/// How many calls took how long, in powers of two, from the shortest that was seen to the longest.
fn histograms(session: &mut Session<'_, '_>, flow: &Flow, parsed: &Parsed) {
    for flow in flow.lines(parsed.has('v')) {
        let [read, write, flush, trim] = &flow.calls;
        let columns = [read, write, read, write, trim, flush];
        let used = |at: &usize| columns.iter().any(|count| count.histogram.get(*at).is_some_and(|n| *n > 0));
        let buckets = columns.iter().map(|count| count.histogram.len()).max().unwrap_or(0);
        let (low, high) = ((0..buckets).find(used), (0..buckets).rev().find(used));
        let range = low.zip(high).map_or(0..0, |(low, high)| low..high + 1);
        let cell = |count: &&CallCount, at: usize| {
            let calls = count.histogram.get(at).copied().unwrap_or(0);
            if parsed.has('p') { calls.to_string() } else { nice_number(calls) }
        };
        let rows: Vec<(String, Vec<String>)> = range
            .map(|at| {
                let edge = 1_u64 << at;
                let edge = if parsed.has('p') { edge.to_string() } else { nice_nanos(edge) };
                (edge, columns.iter().map(|count| cell(count, at)).collect())
            })
            .collect();
        let cells: Vec<Vec<String>> = rows.iter().map(|(_, row)| row.clone()).collect();
        let widths = widths(&HISTOGRAM, &cells);
        let title = flow.label(parsed).trim_start().to_owned();
        let name_width = title.chars().count().max(10);
        headings(session, &title, name_width, &HISTOGRAM, &widths);
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

fn as_json(flows: &[Flow], deep: bool, parsed: &Parsed) -> String {
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
    let by_name: serde_json::Map<String, Value> =
        flows.iter().map(|flow| (flow.name.clone(), nested(flow, deep, &plain))).collect();
    let mut document = json::document("zpool iostat");
    document.insert("pools".into(), by_name.into());
    json::text(document)
}

/// An entry with those of its parts in it.
fn nested(flow: &Flow, deep: bool, plain: &dyn Fn(&Flow) -> Value) -> Value {
    let mut entry = plain(flow);
    if deep && (flow.depth == 0 || !flow.devices.is_empty()) {
        let parts = flow.devices.iter().map(|part| (part.name.clone(), nested(part, deep, plain)));
        entry["vdevs"] = parts.collect::<serde_json::Map<String, Value>>().into();
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_control::api::GroupIo;

    fn count(calls: u64, bytes: u64, nanos: u64) -> CallCount {
        CallCount { calls, bytes, nanos, histogram: vec![0, calls] }
    }

    fn pool(age_ns: u64, calls: u64) -> PoolIo {
        let device = |guid| DeviceIo {
            class: VdevClass::Main,
            group: String::new(),
            name: format!("/d{guid}"),
            guid,
            allocated: 10,
            free: 20,
            read: count(calls, calls * 4096, calls * 500),
            write: count(0, 0, 0),
            flush: count(1, 0, 7),
            trim: count(0, 0, 0),
        };
        let (name, devices) = ("tank".into(), vec![device(1), device(2)]);
        PoolIo { name, guid: 9, age_ns, allocated: 20, free: 40, groups: Vec::new(), devices }
    }

    #[test]
    fn rates_are_what_passed_between_two_answers() {
        let (old, new) = (pool(1_000_000_000, 10), pool(3_000_000_000, 30));
        let since_import = flow(&old, &[]);
        assert_eq!(since_import.per_second(since_import.calls[0].calls), 20);
        assert_eq!((since_import.room, since_import.devices[0].room), (Some((20, 40)), Some((10, 20))));
        let between = flow(&new, std::slice::from_ref(&old));
        assert_eq!(between.calls[0].calls, 40, "twenty more on each of two devices");
        assert_eq!(between.per_second(between.calls[0].calls), 20);
        assert_eq!(between.per_second(between.calls[0].bytes), 20 * 4096);
        assert_eq!((between.average(0), between.average(1)), (500, 0));
        assert_eq!(between.calls[2].calls, 0, "no flush was new");
        assert_eq!(between.calls[0].histogram, [0, 40]);
        let anew = flow(&pool(500_000_000, 5), &[old]);
        assert_eq!(anew.calls[0].calls, 10, "a pool that was imported again counts from there");
    }

    #[test]
    fn room_is_that_of_pools_and_groups_and_not_of_their_members() {
        let mut io = pool(1_000_000_000, 10);
        io.devices.iter_mut().for_each(|device| device.group = "mirror-0".into());
        io.groups = vec![GroupIo { name: "mirror-0".into(), guid: 5, allocated: 22, free: 8 }];
        let flow = flow(&io, &[]);
        let rooms: Vec<Option<(u64, u64)>> = flow.lines(true).iter().map(|line| line.room).collect();
        assert_eq!(rooms, [Some((20, 40)), Some((22, 8)), None, None]);
        assert_eq!(flow.calls[0].calls, 20, "calls are of both");
    }

    #[test]
    fn a_group_is_the_sum_of_its_devices_and_stands_before_them() {
        let mut io = pool(1_000_000_000, 10);
        io.devices.iter_mut().for_each(|device| device.group = "raidz1-0".into());
        let mut alone = io.devices[0].clone();
        (alone.group, alone.name) = (String::new(), "/alone".into());
        io.devices.push(alone);
        let flow = flow(&io, &[]);
        let lines: Vec<(usize, &str)> = flow.lines(true).iter().map(|l| (l.depth, l.name.as_str())).collect();
        assert_eq!(lines, [(0, "tank"), (1, "raidz1-0"), (2, "/d1"), (2, "/d2"), (1, "/alone")]);
        assert_eq!(
            (flow.devices[0].calls[0].calls, flow.calls[0].calls),
            (20, 30),
            "each device counts once"
        );
        assert_eq!(
            (flow.devices[0].room, flow.devices[1].room),
            (None, Some((10, 20))),
            "no group is told of"
        );
    }
    #[test]
    fn what_is_named_is_told_of_alone() {
        let mut io = pool(1_000_000_000, 10);
        io.devices.iter_mut().for_each(|device| device.group = "mirror-0".into());
        io.groups = vec![GroupIo { name: "mirror-0".into(), guid: 5, allocated: 22, free: 8 }];
        let word = |text: &str| Word { text: text.into(), path: PathBuf::from("/").join(text) };
        let told = |words: &[&str]| {
            let words: Vec<Word> = words.iter().map(|text| word(text)).collect();
            let pool = flow(&io, &[]).only(&words);
            assert!(pool.devices.iter().all(|flow| flow.alone && flow.devices.is_empty()));
            pool.devices.iter().map(|flow| (flow.name.clone(), flow.room.is_some())).collect::<Vec<_>>()
        };
        let named = |name: &str, room| (name.to_owned(), room);
        assert_eq!(told(&["/d2"]), [named("/d2", false)]);
        assert_eq!(
            told(&["d2", "mirror-0"]),
            [named("mirror-0", true), named("/d2", false)],
            "in the pool's order"
        );
        assert_eq!(told(&["5", "1"]), [named("mirror-0", true), named("/d1", false)], "by number");
        assert_eq!(told(&["/d3"]), []);
        assert!(word("5").is_in(&io) && word("d1").is_in(&io) && !word("tank").is_in(&io));
    }
}
