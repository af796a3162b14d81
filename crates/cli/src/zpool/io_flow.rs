//! Calls of pools, groups and devices between two moments, for `zpool iostat`.

use super::vdev_tree::short;
use std::path::{Path, PathBuf};
use steadfast_control::api::{CallCount, DeviceIo, PoolIo, VdevClass};

/// The calls between two moments, of a pool, a group or a device.
pub(super) struct Flow {
    pub depth: usize,
    /// Heading of its class; none for normal devices.
    pub section: Option<&'static str>,
    pub name: String,
    pub guid: u64,
    /// True if the operator named it: it is printed without its pool.
    pub alone: bool,
    /// Bytes allocated and free. `None` for a member of a group: as in ZFS, space is counted by
    /// group.
    pub room: Option<(u64, u64)>,
    pub seconds: f64,
    /// Reads, writes, flushes, trims.
    pub calls: [CallCount; 4],
    pub devices: Vec<Flow>,
}

/// A group or device as typed.
pub(super) struct Word {
    pub text: String,
    pub path: PathBuf,
}

impl Word {
    /// True if the word is this name, this GUID, or the path of this name.
    fn is(&self, name: &str, guid: u64) -> bool {
        name == self.text
            || short(name) == self.text
            || Path::new(name) == self.path
            || guid != 0 && guid.to_string() == self.text
    }

    pub fn is_in(&self, pool: &PoolIo) -> bool {
        let devices = pool.devices.iter().map(|device| (&device.name, device.guid));
        let groups = pool.groups.iter().map(|group| (&group.name, group.guid));
        devices.chain(groups).any(|(name, guid)| self.is(name, guid))
    }
}

/// The calls since `before`, or since the import.
pub(super) fn flow(pool: &PoolIo, before: &[PoolIo]) -> Flow {
    // A pool that was imported again starts to count at zero.
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
    let less = |now: &[u64], then: &[u64]| {
        let before = |at: usize| then.get(at).copied().unwrap_or(0);
        now.iter().enumerate().map(|(at, n)| n.saturating_sub(before(at))).collect()
    };
    CallCount {
        calls: now.calls.saturating_sub(then.calls),
        bytes: now.bytes.saturating_sub(then.bytes),
        nanos: now.nanos.saturating_sub(then.nanos),
        histogram: less(&now.histogram, &then.histogram),
        sizes: less(&now.sizes, &then.sizes),
    }
}

fn sum<'a>(counts: impl Iterator<Item = &'a CallCount>) -> CallCount {
    let mut all = CallCount::default();
    for count in counts {
        all.calls += count.calls;
        all.bytes += count.bytes;
        all.nanos += count.nanos;
        for (sums, counts) in [(&mut all.histogram, &count.histogram), (&mut all.sizes, &count.sizes)] {
            sums.resize(sums.len().max(counts.len()), 0);
            sums.iter_mut().zip(counts).for_each(|(sum, calls)| *sum += calls);
        }
    }
    all
}

/// Heading of devices for metadata and small blocks.
const SPECIAL: &str = "special";

impl Flow {
    /// A group without devices.
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

    /// Itself and all below, in the order of printing.
    pub fn lines(&self, deep: bool) -> Vec<&Flow> {
        let below = self.devices.iter().filter(|_| deep).flat_map(|flow| flow.lines(true));
        std::iter::once(self).chain(below).collect()
    }

    /// Keeps only the named groups and devices, each without its members.
    pub fn only(self, words: &[Word]) -> Flow {
        let devices = self.devices.into_iter().flat_map(|flow| flow.named(words)).collect();
        Flow { devices, ..self }
    }

    fn named(mut self, words: &[Word]) -> Vec<Flow> {
        let below = std::mem::take(&mut self.devices).into_iter().flat_map(|flow| flow.named(words));
        let is_named = words.iter().any(|word| word.is(&self.name, self.guid));
        let own = is_named.then_some(Flow { alone: true, ..self });
        own.into_iter().chain(below).collect()
    }

    pub fn per_second(&self, amount: u64) -> u64 {
        (amount as f64 / self.seconds).round() as u64
    }

    /// Average nanoseconds of a call; 0 without calls.
    pub fn average(&self, call: usize) -> u64 {
        self.calls[call].nanos.checked_div(self.calls[call].calls).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_control::api::GroupIo;

    fn count(calls: u64, bytes: u64, nanos: u64) -> CallCount {
        CallCount { calls, bytes, nanos, histogram: vec![0, calls], sizes: vec![calls] }
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
        let (groups, stores, requests, caches) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        PoolIo { name, guid: 9, age_ns, allocated: 20, free: 40, groups, devices, stores, requests, caches }
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
