//! A trace is done again: each operation when its time has come, at the place where its device lies
//! now.
//!
//! Each storage has its operations in the order of their times, and `threads=` threads that take
//! the next one, wait until it is due, and do it. So as many are under way as in the trace, up to
//! `threads=`: what finds no thread free is late, and how late the latest was is told. Nothing is
//! left out for being late.
//!
//! Devices of one share lie one behind the other, and so do its storages; what crosses from one
//! storage to the next is moved back. A share without names has the devices that no other has.

use crate::drive::{Context, Job, Names, check_buffers, mix_key};
use crate::error::Error;
use crate::event::{Event, Observer};
use crate::file_calls::{self, open_flags};
use crate::pattern::Pattern;
use crate::random::mix;
use crate::rate::sleep_until;
use crate::result::RunResult;
use crate::shared::{Buffer, Cells, INCORRECT_SIZE, Shared, Slot, errno_text};
use crate::trace::{self, Kind, Trace};
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use steadfast_lab_params::{
    OpenFlags, Operation, Rate, RawWork, Replay, ReplayShare, Run, short_bytes, thousands,
};

/// An operation and its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Step {
    at_ns: u64,
    address: u64,
    length: u32,
    kind: Kind,
}

/// One storage and what is done to it.
struct Player {
    index: usize,
    workload: usize,
    path: PathBuf,
    flags: OpenFlags,
    writes: bool,
    largest: u64,
    file_key: u64,
    steps: Vec<Step>,
    pace: Pace,
    next: AtomicU64,
    latest_ns: AtomicU64,
    flushes: AtomicU64,
    flush_ns: AtomicU64,
}

/// When operations are due.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pace {
    /// Of the trace's own distances; 0: at once.
    scale: f64,
    repeat: u64,
    /// From one round to the next, before scaling.
    period_ns: u64,
}

impl Pace {
    /// `span_ns`: from the first operation to the last.
    fn new(rate: &Rate, operations: usize, span_ns: u64, repeat: u64) -> Pace {
        let count = operations.max(1) as u64;
        // The mean distance also parts the last of a round from the first of the next.
        let period_ns = span_ns + span_ns / count.saturating_sub(1).max(1);
        let scale = match rate {
            Rate::Max => 0.0,
            Rate::Fixed(wanted) if period_ns > 0 => count as f64 * 1e9 / period_ns as f64 / wanted,
            // All at one time: only their number says how fast they may go.
            _ => 1.0,
        };
        Pace { scale, repeat, period_ns }
    }

    fn due(&self, step: &Step, round: u64) -> u64 {
        ((round * self.period_ns + step.at_ns) as f64 * self.scale) as u64
    }
}

impl Player {
    fn slots(&self) -> Vec<Slot> {
        let slot =
            |operation| Slot { storage: self.index, workload: self.workload, operation, requested: true };
        [Operation::Read, Operation::Write].map(slot).to_vec()
    }

    fn work(&self, shared: &Shared<'_>, cells: &Cells, pattern: &Pattern, key: u64) {
        let mut options = OpenOptions::new();
        options.read(true).write(self.writes).custom_flags(open_flags(self.flags));
        let file = match options.open(&self.path) {
            Ok(file) => file,
            Err(error) => {
                let text = format!("Open for lun '{}' failed\n{}", self.path.display(), errno_text(&error));
                return shared.fail(text);
            }
        };
        let mut buffer = Buffer::new(self.largest as usize);
        let count = self.steps.len() as u64;
        while !shared.ended() {
            let number = self.next.fetch_add(1, Relaxed);
            if number >= count.saturating_mul(self.pace.repeat) {
                break;
            }
            let (round, step) = (number / count, &self.steps[(number % count) as usize]);
            let due = self.pace.due(step, round);
            if self.pace.scale > 0.0 {
                if !sleep_until(shared.start, due, || shared.ended()) {
                    break;
                }
                self.latest_ns.fetch_max(shared.now_ns().saturating_sub(due), Relaxed);
            }
            let late_ns = match shared.from_arrival && self.pace.scale > 0.0 {
                true => shared.now_ns().saturating_sub(due),
                false => 0,
            };
            let bytes = buffer.bytes(step.length as usize);
            if step.kind == Kind::Write {
                pattern.fill(bytes, self.file_key, step.address, mix(key, number));
            }
            let begun = Instant::now();
            let (operation, done) = match step.kind {
                Kind::Read => (Operation::Read, file.read_at(bytes, step.address)),
                Kind::Write => {
                    (Operation::Write, file_calls::write(&file, bytes, step.address, self.flags.fsync_each))
                }
                Kind::Flush => (Operation::Write, file.sync_data().map(|()| 0)),
            };
            let ns = begun.elapsed().as_nanos() as u64 + late_ns;
            let errno = match done {
                Ok(_) if step.kind == Kind::Flush => {
                    self.flushes.fetch_add(1, Relaxed);
                    self.flush_ns.fetch_add(ns, Relaxed);
                    continue;
                }
                Ok(count) if count == step.length as usize => {
                    let cell = &cells.slots[usize::from(step.kind == Kind::Write)].1;
                    cell.record(ns, u64::from(step.length), shared.interval.load(Relaxed));
                    continue;
                }
                Ok(_) => INCORRECT_SIZE.to_string(),
                Err(error) => errno_text(&error),
            };
            shared.io_error(operation, &self.path, step.address, u64::from(step.length), errno);
        }
        if self.writes
            && self.flags.fsync
            && let Err(error) = file.sync_all()
        {
            shared.io_error(Operation::Write, &self.path, 0, 0, errno_text(&error));
        }
    }

    /// Notes for the end.
    fn notes(&self, name: &str) -> Vec<String> {
        let mut notes = Vec::new();
        let (flushes, ns) = (self.flushes.load(Relaxed), self.flush_ns.load(Relaxed));
        if flushes > 0 {
            let mean = ns as f64 / flushes as f64 / 1e6;
            notes.push(format!("sd={name}: {flushes} flushes of {mean:.3} ms; no column counts them."));
        }
        if self.pace.scale > 0.0 {
            let late = self.latest_ns.load(Relaxed) as f64 / 1e9;
            notes.push(format!("sd={name}: the operation furthest behind the trace was {late:.6} s late."));
        }
        let all = (self.steps.len() as u64).saturating_mul(self.pace.repeat);
        let begun = self.next.load(Relaxed).min(all);
        if begun < all {
            notes.push(format!(
                "sd={name}: {} of {} operations were begun when the run was over; use a longer elapsed=.",
                thousands(begun),
                thousands(all)
            ));
        }
        notes
    }
}

/// Gives each storage its operations. `sizes`: bytes of each. The sentence says what does not fit.
fn deal(trace: &Trace, replay: &Replay, sizes: &[u64], names: &[&str]) -> Result<Vec<Vec<Step>>, String> {
    let end = |device: &trace::Device| replay.fold.map_or(device.end, |fold| device.end.min(fold));
    // Share and start of each device.
    let mut places: Vec<Option<(usize, u64)>> = vec![None; trace.devices.len()];
    for (at, share) in replay.shares.iter().enumerate() {
        let mut needed = 0u64;
        let mut place = |device: usize, needed: &mut u64| {
            places[device] = Some((at, *needed));
            *needed = needed.saturating_add(end(&trace.devices[device]));
        };
        for name in &share.devices {
            let found = trace.devices.iter().position(|device| device.name == *name).ok_or_else(|| {
                let known: Vec<&str> = trace.devices.iter().take(20).map(|d| d.name.as_str()).collect();
                format!(": it has no operation of device {name}; its devices are {}", known.join(", "))
            })?;
            place(found, &mut needed);
        }
        if share.devices.is_empty() {
            let others = |name: &String| replay.shares.iter().any(|share| share.devices.contains(name));
            for (device, known) in trace.devices.iter().enumerate() {
                if !others(&known.name) {
                    place(device, &mut needed);
                }
            }
        }
        let room: u64 = share.sds.iter().map(|sd| sizes[*sd]).sum();
        if needed > room {
            let sds: Vec<&str> = share.sds.iter().map(|sd| names[*sd]).collect();
            return Err(format!(
                ": its operations reach to {} ({}), and sd={} has {}; use a larger size=, or replay=(file,fold=size)",
                thousands(needed),
                short_bytes(needed),
                sds.join(","),
                short_bytes(room)
            ));
        }
    }
    let mut out = vec![Vec::new(); sizes.len()];
    for operation in &trace.operations {
        let Some((share, start)) = places[usize::from(operation.device)] else { continue };
        let length = u64::from(operation.length);
        let mut address = operation.address;
        if let Some(fold) = replay.fold {
            if length > fold {
                return Err(format!(": a transfer of {length} bytes is longer than fold={fold}"));
            }
            address = (address % fold).min(fold - length);
        }
        let sds = &replay.shares[share].sds;
        let step = |address| Step {
            at_ns: operation.at_ns,
            address,
            length: operation.length,
            kind: operation.kind,
        };
        if operation.kind == Kind::Flush {
            // The device of a flush is not known, so it is one of all devices.
            sds.iter().for_each(|sd| out[*sd].push(step(0)));
            continue;
        }
        let (sd, address) = locate(&replay.shares[share], sizes, start + address, length)
            .ok_or_else(|| format!(": a transfer of {length} bytes has no room in one storage"))?;
        out[sd].push(step(address));
    }
    Ok(out)
}

/// The storage of a share that an address lies in, and where in it.
fn locate(share: &ReplayShare, sizes: &[u64], mut address: u64, length: u64) -> Option<(usize, u64)> {
    for sd in &share.sds {
        let size = sizes[*sd];
        if address < size {
            return (length <= size).then(|| (*sd, address.min(size - length)));
        }
        address -= size;
    }
    None
}

impl Context<'_> {
    /// Carries out a run that repeats a trace.
    pub(crate) fn replay(
        &mut self,
        run: &Run,
        work: &RawWork,
        replay: &Replay,
        observer: &mut Observer<'_>,
    ) -> Result<RunResult, Error> {
        let refused = |why: String| Error::Start(format!("rd={}: replay={why}.", run.label));
        let trace = trace::read(Path::new(&replay.file)).map_err(refused)?;
        let mut sizes = Vec::new();
        for sd in &work.sds {
            let found = file_calls::length(Path::new(&sd.lun));
            let found = found
                .map_err(|e| Error::Start(format!("Open for lun '{}' failed\n{}", sd.lun, errno_text(&e))))?;
            sizes.push(sd.size.or(found).unwrap_or(0));
        }
        let names: Vec<&str> = work.sds.iter().map(|sd| sd.name.as_str()).collect();
        let named = |why: String| refused(format!("{}{why}", replay.file));
        let dealt = deal(&trace, replay, &sizes, &names).map_err(named)?;
        tell(&trace, replay, observer);
        let used = trace.operations.len();
        let span = trace.operations.last().map_or(0, |last| last.at_ns);
        let pace = Pace::new(&run.rate, used, span, replay.repeat);
        drop(trace);
        let mut players = Vec::new();
        for (index, (sd, steps)) in work.sds.iter().zip(dealt).enumerate() {
            let user = work.wds.iter().position(|(_, sds)| sds.contains(&index));
            let wd = user.map(|at| &work.wds[at].0);
            players.push(Player {
                index,
                workload: user.unwrap_or(0),
                path: PathBuf::from(&sd.lun),
                flags: wd.and_then(|wd| wd.openflags).or(sd.openflags).unwrap_or_default(),
                writes: steps.iter().any(|step| step.kind != Kind::Read),
                largest: steps.iter().map(|step| u64::from(step.length)).max().unwrap_or(0),
                file_key: sd.lun.bytes().fold(self.seed, |key, byte| mix(key, u64::from(byte))),
                steps,
                pace,
                next: AtomicU64::new(0),
                latest_ns: AtomicU64::new(0),
                flushes: AtomicU64::new(0),
                flush_ns: AtomicU64::new(0),
            });
        }
        check_buffers(run, players.iter().map(|p| (work.sds[p.index].threads, p.largest)))?;
        let all: Vec<(String, u64)> = work.sds.iter().map(|sd| sd.name.clone()).zip(sizes).collect();
        let total = (all.len() as u64, all.iter().map(|(_, size)| size).sum());
        let pattern = self.pattern(run, None, total);
        let mut jobs: Vec<(Vec<Slot>, Job<'_>)> = Vec::new();
        for player in &players {
            for _ in 0..work.sds[player.index].threads {
                let key = mix_key(self.draws, jobs.len() as u64 + 1, run);
                let pattern = &pattern;
                jobs.push((
                    player.slots(),
                    Box::new(move |shared, cells| player.work(shared, cells, pattern, key)),
                ));
            }
        }
        let mut result = self.drive(run, &Names::of(work), jobs, &all, observer);
        for player in &players {
            result.notes.extend(player.notes(&work.sds[player.index].name));
        }
        Ok(result)
    }
}

/// Description of the trace, and operations in it that are not carried out.
fn tell(trace: &Trace, replay: &Replay, observer: &mut Observer<'_>) {
    let seconds = trace.operations.last().map_or(0.0, |last| last.at_ns as f64 / 1e9);
    observer(&Event::Notice(&format!(
        "replay={}: {}, {} operations of {} devices in {seconds:.3} seconds{}.",
        replay.file,
        trace.format,
        thousands(trace.operations.len() as u64),
        trace.devices.len(),
        if replay.repeat > 1 { format!(", {} times", replay.repeat) } else { String::new() }
    )));
    let all = replay.shares.iter().any(|share| share.devices.is_empty());
    for device in &trace.devices {
        if !all && !replay.shares.iter().any(|share| share.devices.contains(&device.name)) {
            observer(&Event::Notice(&format!(
                "replay={}: {} operations of device {} are not done: no sd has it.",
                replay.file,
                thousands(device.operations),
                device.name
            )));
        }
    }
    if trace.trims > 0 {
        let text = format!("replay={}: {} trims are not done.", replay.file, thousands(trace.trims));
        observer(&Event::Notice(&text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Device, Traced};

    fn trace(operations: &[(u64, usize, u64, u32)]) -> Trace {
        let devices = ["a", "b", "c"].map(|name| Device { name: name.into(), end: 0, operations: 1 });
        let mut devices = devices.to_vec();
        let operations = operations
            .iter()
            .map(|(at_ns, device, address, length)| {
                devices[*device].end = devices[*device].end.max(address + u64::from(*length));
                Traced {
                    at_ns: *at_ns,
                    address: *address,
                    length: *length,
                    device: *device as u16,
                    kind: if *length == 0 { Kind::Flush } else { Kind::Write },
                }
            })
            .collect();
        Trace { format: "t", devices, operations, trims: 0 }
    }

    fn replay(shares: &[(&[&str], &[usize])], fold: Option<u64>) -> Replay {
        let share = |(devices, sds): &(&[&str], &[usize])| ReplayShare {
            devices: devices.iter().map(|name| name.to_string()).collect(),
            sds: sds.to_vec(),
        };
        Replay { file: "t".into(), repeat: 1, fold, shares: shares.iter().map(share).collect() }
    }

    fn places(dealt: Result<Vec<Vec<Step>>, String>) -> Vec<Vec<(u64, u32)>> {
        dealt.unwrap().iter().map(|steps| steps.iter().map(|s| (s.address, s.length)).collect()).collect()
    }

    const SIZES: [u64; 2] = [8192, 8192];
    const NAMES: [&str; 2] = ["s1", "s2"];

    #[test]
    fn devices_lie_one_behind_the_other_over_the_storages_of_their_share() {
        let trace =
            trace(&[(0, 0, 0, 4096), (1, 1, 4096, 4096), (2, 0, 4096, 2048), (3, 1, 0, 4096), (4, 1, 0, 0)]);
        let both = replay(&[(&["a", "b"], &[0, 1])], None);
        // a has 6,144 bytes, b begins behind them; what would cross from one storage to the next is
        // moved back.
        let wanted = [vec![(0, 4096), (4096, 2048), (4096, 4096), (0, 0)], vec![(2048, 4096), (0, 0)]];
        assert_eq!(places(deal(&trace, &both, &SIZES, &NAMES)), wanted);
        let apart = replay(&[(&["b"], &[0]), (&[], &[1])], None);
        let wanted = [vec![(4096, 4096), (0, 4096), (0, 0)], vec![(0, 4096), (4096, 2048)]];
        assert_eq!(places(deal(&trace, &apart, &SIZES, &NAMES)), wanted);
        let one = replay(&[(&["b"], &[1])], None);
        assert_eq!(places(deal(&trace, &one, &SIZES, &NAMES))[0], [], "a is of no storage");
    }

    #[test]
    fn what_does_not_fit_is_refused_or_folded() {
        let far = trace(&[(0, 0, 1 << 40, 4096), (1, 0, (1 << 40) + 6144, 4096)]);
        let all = |fold| replay(&[(&[], &[0])], fold);
        let why = deal(&far, &all(None), &SIZES, &NAMES).unwrap_err();
        assert!(why.contains("and sd=s1 has 8192") && why.contains("fold=size"), "{why}");
        assert_eq!(places(deal(&far, &all(Some(8192)), &SIZES, &NAMES))[0], [(0, 4096), (4096, 4096)]);
        assert!(deal(&far, &all(Some(2048)), &SIZES, &NAMES).unwrap_err().contains("longer than fold"));
        let other = replay(&[(&["x"], &[0])], None);
        let why = deal(&far, &other, &SIZES, &NAMES).unwrap_err();
        assert!(why.contains("device x; its devices are a, b, c"), "{why}");
    }

    #[test]
    fn a_rate_stretches_the_distances_and_rounds_follow_each_other() {
        let step = |at_ns| Step { at_ns, address: 0, length: 1, kind: Kind::Read };
        // Five in 4 s: one a second.
        let own = Pace::new(&Rate::AsTraced, 5, 4_000_000_000, 2);
        assert_eq!((own.due(&step(4_000_000_000), 0), own.due(&step(0), 1)), (4_000_000_000, 5_000_000_000));
        let ten = Pace::new(&Rate::Fixed(10.0), 5, 4_000_000_000, 2);
        assert_eq!((ten.due(&step(4_000_000_000), 0), ten.due(&step(0), 1)), (400_000_000, 500_000_000));
        let max = Pace::new(&Rate::Max, 5, 4_000_000_000, 2);
        assert_eq!(max.due(&step(4_000_000_000), 1), 0);
        assert_eq!(Pace::new(&Rate::Fixed(10.0), 1, 0, 1).due(&step(0), 0), 0);
    }
}
