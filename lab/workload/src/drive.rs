//! One run: threads started, intervals counted, the end watched for.

use crate::anchor::{FileMap, Known, Tree, Trees};
use crate::cpu::CpuSample;
use crate::error::Error;
use crate::event::{Event, Meet, Observer, Options};
use crate::files;
use crate::histogram::Histogram;
use crate::idle::Idle;
use crate::monitor;
use crate::pattern::Pattern;
use crate::rate::{Gate, Schedule};
use crate::raw;
use crate::recovery::{self, Opening};
use crate::result::{Figures, Group, Groups, Interval, Line, RunResult};
use crate::shared::{Cells, IoError, Note, Shared, Slot, errno_text};
use crate::validate::Map;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};
use steadfast_lab_params::{
    DataLimit, Dedup, FileWork, FormatTuning, Fsd, General, Operation, Rate, RawWork, Run, Sd, Work, shares,
};

/// How often the end of a run is looked for.
const LOOK: Duration = Duration::from_millis(4);

/// A thread's work.
pub(crate) type Job<'a> = Box<dyn FnOnce(&Shared<'_>, &Cells) + Send + 'a>;

pub(crate) struct Context<'a> {
    pub general: &'a General,
    pub format: &'a FormatTuning,
    pub options: &'a Options,
    pub stop: &'a AtomicBool,
    pub trees: Trees,
    /// Of data.
    pub seed: u64,
    /// Of addresses, choices and arrivals, in this round.
    pub draws: u64,
    /// The content of `pattern=`.
    pub fixed: Option<Vec<u8>>,
    /// Blocks of storages that a recovery finds wrong before its run.
    pub lost: Vec<IoError>,
    /// Keys of storages, by name.
    pub maps: HashMap<String, Arc<Map>>,
    /// Where several hosts share a tree.
    pub meet: Option<&'a Meet<'a>>,
}

impl Context<'_> {
    /// Carries out one run. `weights`: shares of the groups, over what the parameters say.
    pub(crate) fn run(
        &mut self,
        run: &Run,
        weights: Option<&[f64]>,
        observer: &mut Observer<'_>,
    ) -> Result<RunResult, Error> {
        match &run.work {
            Work::Raw(work) if let Some(replay) = &run.replay => self.replay(run, work, replay, observer),
            Work::Raw(work) => self.raw(run, work, weights, observer),
            Work::Files(work) if work.format.is_some() => self.format(run, work, observer),
            Work::Files(work) => self.files(run, work, weights, observer),
        }
    }

    /// Data for so many storages of so many bytes altogether. `own`: what a storage says of its
    /// own, and its size.
    pub(crate) fn pattern(
        &self,
        run: &Run,
        own: Option<(Dedup, u64)>,
        (storages, bytes): (u64, u64),
    ) -> Pattern {
        let pattern = Pattern::new(run.compratio, self.seed);
        let (dedup, storages, bytes) = match own {
            Some((dedup, bytes)) => (Some(dedup), 1, bytes),
            None => (self.general.dedup, storages, bytes),
        };
        match &dedup {
            Some(dedup) if dedup.ratio > 1.0 => pattern.repeating(dedup, bytes, storages),
            _ => match &self.fixed {
                Some(bytes) => pattern.copying(bytes),
                None => pattern,
            },
        }
    }

    /// Data for each tree of a run.
    fn tree_patterns(&self, run: &Run, work: &FileWork) -> Vec<Pattern> {
        let bytes = work.fsds.iter().map(|fsd| fsd.total_bytes()).fold(0, u64::saturating_add);
        let all = (work.fsds.len() as u64, bytes);
        let own = |fsd: &Fsd| fsd.dedup.map(|dedup| (dedup, fsd.total_bytes()));
        work.fsds.iter().map(|fsd| self.pattern(run, own(fsd), all)).collect()
    }

    /// The keys of a storage of so many bytes, if data is validated.
    fn map(
        &mut self,
        sd: &Sd,
        (bytes, file_key, pattern): (u64, u64, &Pattern),
        ratio: f64,
        observer: &mut Observer<'_>,
    ) -> Result<Option<Arc<Map>>, Error> {
        let Some(rules) = self.general.validate else { return Ok(None) };
        let name = sd.name.as_str();
        let blocks = bytes.div_ceil(rules.block);
        if self.maps.get(name).is_none_or(|map| map.blocks() < blocks) {
            let title =
                format!("sd={name}: it has too many blocks to validate; use a smaller size= or range=.");
            let mut map = Map::new(rules, blocks, name).ok_or(Error::Start(title))?;
            if let Some(rules) = self.general.journal {
                let opening = Opening { rules, recovers: rules.recover, ratio, seed: self.seed, pattern };
                let found = opening
                    .storage(&mut map, sd, file_key)
                    .map_err(|why| Error::Start(format!("sd={name}: journal: {why}.")))?;
                if let Some((said, mut wrong)) = found {
                    observer(&Event::Notice(&said));
                    self.lost.append(&mut wrong);
                }
            }
            self.maps.insert(name.to_string(), Arc::new(map));
        }
        let map = self.maps.get(name).cloned();
        map.as_ref().map_or(Ok(()), |map| map.begin(ratio)).map_err(|e| journal_failed(&e))?;
        Ok(map)
    }

    /// The tree of a run, with its keys if data is validated. Files that a recovery finds missing
    /// are in `lost`.
    fn tree(
        &mut self,
        fsd: &Fsd,
        known: Known,
        run: &Run,
        pattern: &Pattern,
        lost: &mut Vec<IoError>,
        observer: &mut Observer<'_>,
    ) -> Result<Arc<Tree>, Error> {
        let rules = self.general.journal;
        let recovers = rules.is_some_and(|rules| rules.recover) && run.label == recovery::LABEL;
        if recovers && !Path::new(&fsd.anchor).is_dir() {
            return Err(Error::Start(format!(
                "anchor={} does not exist, so its journal has nothing to compare with.",
                fsd.anchor
            )));
        }
        let known = if recovers { Known::Looked } else { known };
        let (ratio, seed) = (run.compratio, self.seed);
        let mut open = |tree: &Tree, keys: &mut FileMap| {
            let Some(rules) = rules else { return Ok(()) };
            let opening = Opening { rules, recovers, ratio, seed, pattern };
            if let Some((said, mut missing)) = opening.tree(tree, keys)? {
                observer(&Event::Notice(&said));
                lost.append(&mut missing);
            }
            Ok(())
        };
        let tree =
            self.trees.open(fsd, self.general.create_anchors, known, &mut open).map_err(Error::start)?;
        if tree.created_anchor.swap(false, Relaxed) {
            observer(&Event::Message(&format!("Created anchor directory: {}", fsd.anchor)));
        }
        tree.begin(ratio).map_err(|e| journal_failed(&e))?;
        Ok(tree)
    }

    /// Blocks that a recovery found missing, as errors of its run.
    fn tell_lost(&self, lost: &[IoError], result: &mut RunResult, observer: &mut Observer<'_>) {
        let limit = self.general.data_errors.count.max(1);
        lost.iter().take(limit as usize).for_each(|error| observer(&Event::Error(error)));
        result.errors += lost.len() as u64;
        if result.errors >= limit {
            let text =
                format!("'data_errors={limit}' requested. Abort rd={} after last error.", result.run.label);
            result.failure.get_or_insert(text);
        }
    }

    /// The journals of trees begin again with all that is known.
    fn end_journals(&self, result: &mut RunResult) {
        if let Err(sentence) = self.trees.checkpoint() {
            result.failure.get_or_insert(sentence);
        }
    }

    /// Blocks compared since the last call.
    pub(crate) fn compared(&self) -> Option<u64> {
        self.general.validate?;
        let trees = self.trees.maps().map(|map| &map.compared);
        let all = self.maps.values().map(|map| &map.compared).chain(trees);
        Some(all.map(|count| count.swap(0, Relaxed)).sum())
    }

    fn raw(
        &mut self,
        run: &Run,
        work: &RawWork,
        weights: Option<&[f64]>,
        observer: &mut Observer<'_>,
    ) -> Result<RunResult, Error> {
        // A workload with its own rate takes no share of the run's.
        let skews: Vec<Option<f64>> =
            work.wds.iter().map(|(wd, _)| wd.iorate.map_or(wd.skew, |_| Some(0.0))).collect();
        let own: Vec<f64> = shares(&skews)
            .iter()
            .zip(&work.wds)
            .flat_map(|(share, (_, sds))| sds.iter().map(move |_| share / sds.len() as f64))
            .collect();
        let weights = weights.unwrap_or(&own);
        let phases = phases(&run.rate);
        let (arrival, spike) = (run.arrival, run.spike);
        let make = phases
            .as_ref()
            .map(|phases| move |share: f64| Schedule::varying(phases, share, arrival).spiking(spike));
        let controlled = work.wds.iter().any(|(wd, _)| wd.skew.is_some());
        let make = make.as_ref().map(|make| make as &dyn Fn(f64) -> Schedule);
        let unit = self.general.validate.map_or(512, |rules| rules.block);
        let seeds = (self.seed, mix_key(self.draws, 0, run));
        let mut plan = raw::Plan::new(work, weights, make, controlled, seeds, unit, run.arrival)
            .map_err(Error::start)?;
        for storage in &mut plan.storages {
            storage.removal = self.general.data_errors.remove;
        }
        let sizes: Vec<(String, u64)> =
            plan.storages.iter().map(|storage| (storage.sd.name.clone(), storage.size)).collect();
        let all = (sizes.len() as u64, total(&sizes));
        for storage in &plan.storages {
            let own = storage.sd.dedup.map(|dedup| (dedup, storage.size));
            let (dedup, bytes) =
                own.map_or((self.general.dedup, all.1), |(dedup, bytes)| (Some(dedup), bytes));
            check_hot(dedup.as_ref(), &storage.sd.name, storage.size, bytes)?;
        }
        if self.general.validate.is_some() {
            let pattern = self.pattern(run, None, all);
            for storage in &mut plan.storages {
                let place = (storage.end(), storage.file_key(), &pattern);
                storage.map = self.map(&storage.sd.clone(), place, run.compratio, observer)?;
            }
        }
        check_buffers(run, plan.storages.iter().map(|s| (s.sd.threads, s.largest())))?;
        let patterns: Vec<Pattern> = plan
            .storages
            .iter()
            .map(|storage| self.pattern(run, storage.sd.dedup.map(|dedup| (dedup, storage.size)), all))
            .collect();
        if self.options.engine == crate::event::Engine::Ring && !steadfast_lab_ring::available() {
            observer(&Event::Notice("This kernel has no io_uring: threads carry out the operations."));
        }
        let mut jobs: Vec<(Vec<Slot>, Job<'_>)> = Vec::new();
        let mut key = 0;
        for (storage, pattern) in plan.storages.iter().zip(&patterns) {
            let wanted = work.sds.iter().find(|sd| sd.name == storage.sd.name).map_or(0, |sd| sd.threads);
            if storage.sd.threads != wanted {
                observer(&Event::Notice(&format!(
                    "sd={}: threads={wanted} becomes {}, so that each stream has the same number.",
                    storage.sd.name, storage.sd.threads
                )));
            }
            let depths = self.depths(storage);
            if let Some(depths) = &depths {
                observer(&Event::Notice(&format!(
                    "sd={}: threads={} use io_uring, {} operations at a time on each of {} threads.",
                    storage.sd.name,
                    storage.sd.threads,
                    depths[0],
                    depths.len()
                )));
            }
            let mut number = 0;
            for depth in depths.into_iter().flatten() {
                key += 1;
                let gate = plan.gate.as_ref();
                let thread = raw::Thread { key: mix_key(self.draws, key, run), number };
                number += depth;
                jobs.push((
                    storage.slots(),
                    Box::new(move |shared, cells| {
                        storage.work_ring(shared, gate, cells, pattern, thread, depth)
                    }),
                ));
            }
            for number in number..storage.sd.threads as usize {
                key += 1;
                let gate = plan.gate.as_ref();
                let thread = raw::Thread { key: mix_key(self.draws, key, run), number };
                jobs.push((
                    storage.slots(),
                    Box::new(move |shared, cells| storage.work(shared, gate, cells, pattern, thread)),
                ));
            }
        }
        let mut result = self.drive(run, &Names::of(work), jobs, &sizes, observer);
        let lost = std::mem::take(&mut self.lost);
        self.tell_lost(&lost, &mut result, observer);
        for (name, map) in &self.maps {
            if let Err(error) = map.checkpoint() {
                let text = format!("the journal of sd={name} cannot be written: {error}.");
                result.failure.get_or_insert(text);
            }
        }
        Ok(result)
    }

    /// How many operations each thread of a storage carries through a ring; `None` where each has
    /// one of its own.
    fn depths(&self, storage: &raw::Storage) -> Option<Vec<usize>> {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        if !storage.suits_ring(self.options.engine, processors) {
            return None;
        }
        if !steadfast_lab_ring::available() {
            return None;
        }
        let threads = storage.sd.threads as usize;
        let carriers = threads.min(processors as usize).max(1);
        Some((0..carriers).map(|at| threads / carriers + usize::from(at < threads % carriers)).collect())
    }

    fn files(
        &mut self,
        run: &Run,
        work: &FileWork,
        weights: Option<&[f64]>,
        observer: &mut Observer<'_>,
    ) -> Result<RunResult, Error> {
        let known = if work.complete { Known::Complete } else { Known::Checked };
        let patterns = self.tree_patterns(run, work);
        let (mut trees, mut lost) = (Vec::new(), Vec::new());
        for (fsd, pattern) in work.fsds.iter().zip(&patterns) {
            trees.push(self.tree(fsd, known, run, pattern, &mut lost, observer)?);
        }
        let own = shares(&work.fwds.iter().map(|(fwd, _)| fwd.skew).collect::<Vec<_>>());
        let phases = phases(&run.rate);
        let mut groups = Vec::new();
        let mut lane_shares = Vec::new();
        let wanted: Vec<Operation> = work.fwds.iter().flat_map(|(fwd, _)| fwd.operations.clone()).collect();
        for (workload, ((fwd, fsds), share)) in work.fwds.iter().zip(&own).enumerate() {
            let parts = (fsds.len() * fwd.operations.len()).max(1);
            for &storage in fsds {
                for &operation in &fwd.operations {
                    let lane = lane_shares.len();
                    let share = weights.and_then(|w| w.get(lane)).copied().unwrap_or(share / parts as f64);
                    lane_shares.push(share);
                    let threads = (fwd.threads / parts as u32).max(1);
                    let target = fwd
                        .target
                        .as_ref()
                        .and_then(|t| trees.iter().find(|tree| tree.fsd.name == *t))
                        .cloned();
                    groups.push(files::Group {
                        fwd: fwd.clone(),
                        workload,
                        storage,
                        operation,
                        tree: trees[storage].clone(),
                        target,
                        flags: fwd.openflags.or(work.fsds[storage].openflags).unwrap_or_default(),
                        threads,
                        schedule: phases
                            .as_ref()
                            .map(|phases| Schedule::varying(phases, share, run.arrival).spiking(run.spike)),
                        lane,
                        supplied: supplied(operation, &wanted),
                        first: mix_key(self.draws, lane as u64, run) >> 32,
                        once: AtomicU64::new(0),
                        live: AtomicUsize::new(threads as usize),
                        told: AtomicBool::new(false),
                    });
                }
            }
        }
        check_buffers(run, groups.iter().map(|g| (g.threads, g.fwd.xfersize.largest())))?;
        let gate = if phases.is_none() { Gate::new(&lane_shares) } else { None };
        let sizes: Vec<(String, u64)> =
            work.fsds.iter().map(|fsd| (fsd.name.clone(), fsd.total_bytes())).collect();
        let mut jobs: Vec<(Vec<Slot>, Job<'_>)> = Vec::new();
        let mut key = 0;
        for group in &groups {
            for _ in 0..group.threads {
                key += 1;
                let (pattern, gate) = (&patterns[group.storage], gate.as_ref());
                let key = mix_key(self.draws, key, run);
                jobs.push((
                    group.slots(),
                    Box::new(move |shared, cells| group.work(shared, gate, cells, pattern, key)),
                ));
            }
        }
        let names = Names {
            storages: work.fsds.iter().map(|fsd| fsd.name.clone()).collect(),
            workloads: work.fwds.iter().map(|(fwd, _)| fwd.name.clone()).collect(),
        };
        let mut result = self.drive(run, &names, jobs, &sizes, observer);
        self.tell_lost(&lost, &mut result, observer);
        self.end_journals(&mut result);
        trees.iter().for_each(|tree| tree.save());
        Ok(result)
    }

    fn format(
        &mut self,
        run: &Run,
        work: &FileWork,
        observer: &mut Observer<'_>,
    ) -> Result<RunResult, Error> {
        let format = work.format.unwrap_or_default();
        let known = if format.restart { Known::Checked } else { Known::Fresh };
        let patterns = self.tree_patterns(run, work);
        let mut formatters = Vec::new();
        for (storage, fsd) in work.fsds.iter().enumerate() {
            let tree = self.tree(fsd, known, run, &patterns[storage], &mut Vec::new(), observer)?;
            formatters.push(files::Formatter {
                storage,
                meet: self.meet.filter(|_| fsd.share.is_some()),
                tree,
                format,
                tuning: self.format.clone(),
                flags: self.format.openflags.or(fsd.openflags).unwrap_or_default(),
                remains: Default::default(),
                next: AtomicU64::new(0),
                arrived: AtomicUsize::new(0),
            });
        }
        check_buffers(run, formatters.iter().map(|_| (self.format.threads, self.format.xfersize)))?;
        let mut jobs: Vec<(Vec<Slot>, Job<'_>)> = Vec::new();
        let mut key = 0;
        for formatter in &formatters {
            for _ in 0..self.format.threads {
                key += 1;
                let pattern = &patterns[formatter.storage];
                let key = mix_key(self.draws, key, run);
                jobs.push((
                    formatter.slots(),
                    Box::new(move |shared, cells| formatter.work(shared, cells, pattern, key)),
                ));
            }
        }
        let names = Names {
            storages: work.fsds.iter().map(|fsd| fsd.name.clone()).collect(),
            workloads: vec!["format".to_string()],
        };
        let mut result = self.drive(run, &names, jobs, &[], observer);
        self.end_journals(&mut result);
        formatters.iter().for_each(|formatter| formatter.tree.save());
        Ok(result)
    }

    /// Threads, intervals, end.
    pub(crate) fn drive(
        &self,
        run: &Run,
        names: &Names,
        jobs: Vec<(Vec<Slot>, Job<'_>)>,
        sizes: &[(String, u64)],
        observer: &mut Observer<'_>,
    ) -> RunResult {
        let (cells, jobs): (Vec<Arc<Cells>>, Vec<Job<'_>>) =
            jobs.into_iter().map(|(slots, job)| (Arc::new(Cells::new(&slots)), job)).unzip();
        let kinds = kinds(&cells);
        let nothing = nothing(names, &kinds);
        observer(&Event::Ready { run, groups: &nothing, sizes });
        let (sender, notes) = mpsc::channel();
        let mut shared = Shared::new(self.stop, &run.label, self.general.data_errors.count, sender);
        shared.from_arrival = self.options.from_arrival;
        let started = SystemTime::now();
        observer(&Event::Started { run, started });
        shared.busy.store(jobs.len(), Relaxed);
        let mut watch = Watch::new(run, (kinds, nothing), &cells, total(sizes), &self.options.watch, started);
        watch.monitor = self.general.monitor.as_deref();
        watch.error_seconds = self.general.data_errors.seconds;
        watch.idle = Idle::new(self.general.timeout.as_ref(), run, &names.storages);
        std::thread::scope(|scope| {
            for (job, cells) in jobs.into_iter().zip(&cells) {
                let shared = &shared;
                let started = std::thread::Builder::new().name("lab".into()).spawn_scoped(scope, move || {
                    let _leave = Leave(shared);
                    job(shared, cells);
                });
                if let Err(error) = started {
                    shared.fail(format!("no more threads can be started: {error}; use a smaller threads=."));
                    shared.busy.fetch_sub(1, Relaxed);
                }
            }
            watch.intervals(&shared, &notes, observer);
            shared.end.store(true, Relaxed);
        });
        watch.pass_notes(&notes, observer);
        watch.finish(&shared)
    }
}

fn journal_failed(error: &std::io::Error) -> Error {
    Error::Start(format!("the journal cannot be written: {}.", errno_text(error)))
}

/// Takes a thread off the count, also if it panics: a run must not wait for it for ever.
struct Leave<'a, 'b>(&'a Shared<'b>);

impl Drop for Leave<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("internal error in a thread of the lab; please report it.".into());
        }
        self.0.busy.fetch_sub(1, Relaxed);
    }
}

pub(crate) struct Names {
    storages: Vec<String>,
    workloads: Vec<String>,
}

impl Names {
    pub(crate) fn of(work: &RawWork) -> Names {
        Names {
            storages: work.sds.iter().map(|sd| sd.name.clone()).collect(),
            workloads: work.wds.iter().map(|(wd, _)| wd.name.clone()).collect(),
        }
    }
}

/// Counters of the threads of a run.
fn kinds(cells: &[Arc<Cells>]) -> Vec<Slot> {
    let mut kinds: Vec<Slot> = Vec::new();
    for (slot, _) in cells.iter().flat_map(|c| &c.slots) {
        if !kinds.contains(slot) {
            kinds.push(*slot);
        }
    }
    kinds
}

/// Groups of these kinds, empty.
fn nothing(names: &Names, kinds: &[Slot]) -> Groups {
    let empty = |slot: &Slot| Group {
        storage: names.storages.get(slot.storage).cloned().unwrap_or_default(),
        workload: names.workloads.get(slot.workload).cloned().unwrap_or_default(),
        operation: slot.operation,
        requested: slot.requested,
        times: Histogram::default(),
    };
    Groups(kinds.iter().map(empty).collect())
}

fn total(sizes: &[(String, u64)]) -> u64 {
    sizes.iter().map(|(_, size)| *size).fold(0, u64::saturating_add)
}

/// The driver's view of a run.
struct Watch<'a> {
    run: &'a Run,
    cells: &'a [Arc<Cells>],
    kinds: Vec<Slot>,
    limits: [Option<u64>; 3],
    watched: &'a [u32],
    monitor: Option<&'a str>,
    /// `data_errors=(n,seconds)`.
    error_seconds: Option<u64>,
    /// `timeout=`.
    idle: Option<Idle>,
    last: Groups,
    first_measured: u32,
    result: RunResult,
    cpu_at_start: CpuSample,
    cpu_at_warm: CpuSample,
    cpu_last: CpuSample,
}

impl<'a> Watch<'a> {
    fn new(
        run: &'a Run,
        (kinds, nothing): (Vec<Slot>, Groups),
        cells: &'a [Arc<Cells>],
        size: u64,
        watched: &'a [u32],
        started: SystemTime,
    ) -> Watch<'a> {
        let limit = |limit: Option<DataLimit>| {
            limit.map(|limit| match limit {
                DataLimit::Bytes(bytes) => bytes,
                DataLimit::Times(times) => (times * size as f64) as u64,
            })
        };
        let warm = u32::try_from(run.warmup / run.interval).unwrap_or(u32::MAX);
        let cpu = CpuSample::take(watched);
        Watch {
            run,
            cells,
            kinds,
            limits: [limit(run.maxdata), limit(run.maxdataread), limit(run.maxdatawritten)],
            watched,
            monitor: None,
            error_seconds: None,
            idle: None,
            last: nothing.clone(),
            // Without a warm-up the first interval is the warm-up.
            first_measured: warm.max(1).saturating_add(1),
            result: RunResult {
                run: run.clone(),
                started,
                seconds: 0.0,
                lines: Vec::new(),
                first_measured: warm.max(1).saturating_add(1),
                measured: Groups::default(),
                measured_cpu: Default::default(),
                whole: nothing,
                whole_cpu: Default::default(),
                hosts: Vec::new(),
                counters: Vec::new(),
                ended_all: false,
                notes: Vec::new(),
                errors: 0,
                failure: None,
                stopped: false,
            },
            cpu_at_start: cpu.clone(),
            cpu_at_warm: cpu.clone(),
            cpu_last: cpu,
        }
    }

    fn intervals(&mut self, shared: &Shared<'_>, notes: &mpsc::Receiver<Note>, observer: &mut Observer<'_>) {
        let last = self.run.elapsed.map(|elapsed| (elapsed + self.run.warmup) / self.run.interval);
        let mut number = 0u32;
        loop {
            number += 1;
            let deadline = shared.start + Duration::from_secs(u64::from(number) * self.run.interval);
            let mut over = false;
            while Instant::now() < deadline {
                let nap = LOOK.min(deadline.saturating_duration_since(Instant::now()));
                match notes.recv_timeout(nap) {
                    Ok(note) => pass(note, observer),
                    Err(_) => {
                        over = shared.busy.load(Relaxed) == 0 || shared.ended() || self.limit_reached();
                        if over {
                            break;
                        }
                    }
                }
            }
            over |= last == Some(u64::from(number)) || shared.ended();
            if over {
                shared.end.store(true, Relaxed);
            }
            self.interval(number, shared, observer);
            if over {
                break;
            }
            self.stale(shared, observer);
            if let Some(order) = self.monitor.and_then(monitor::order) {
                observer(&Event::Notice(order.sentence()));
                self.result.ended_all |= order == monitor::Order::EndAll;
                shared.end.store(true, Relaxed);
                break;
            }
        }
        self.result.seconds = shared.start.elapsed().as_secs_f64();
    }

    /// Ends a run whose storages fell silent, or whose last error is long ago.
    fn stale(&mut self, shared: &Shared<'_>, observer: &mut Observer<'_>) {
        if let Some(seconds) = self.error_seconds
            && shared.errors.load(Relaxed) > 0
            && shared.now_ns() / 1_000_000_000 >= shared.last_error_s.load(Relaxed) + seconds
        {
            shared.fail(format!(
                "'data_errors=(n,{seconds})' requested. Abort rd={}: the last error was {seconds} seconds ago.",
                self.run.label
            ));
        }
        let Some(idle) = &mut self.idle else { return };
        let counts = self.last.0.iter().map(|group| (group.storage.as_str(), group.times.count));
        if let Some(sentence) = idle.look(counts, self.run.interval, &self.run.label, observer) {
            shared.fail(sentence);
        }
    }

    fn limit_reached(&self) -> bool {
        if self.limits.iter().all(Option::is_none) {
            return false;
        }
        let mut bytes = [0u64; 2];
        for (slot, cell) in self.cells.iter().flat_map(|cells| &cells.slots) {
            match slot.operation {
                Operation::Read => bytes[0] += cell.bytes(),
                Operation::Write => bytes[1] += cell.bytes(),
                _ => {}
            }
        }
        let reached = [bytes[0] + bytes[1], bytes[0], bytes[1]];
        self.limits.iter().zip(reached).any(|(limit, bytes)| limit.is_some_and(|limit| bytes >= limit))
    }

    /// All counters of all threads, since the start.
    fn read(&self, into: &mut Groups, interval: u32) {
        for (kind, group) in self.kinds.iter().zip(&mut into.0) {
            group.times = Histogram::default();
            for cell in self.cells {
                for (_, cell) in cell.slots.iter().filter(|(slot, _)| slot == kind) {
                    cell.read(&mut group.times, interval);
                }
            }
        }
    }

    fn interval(&mut self, number: u32, shared: &Shared<'_>, observer: &mut Observer<'_>) {
        let index = shared.interval.fetch_add(1, Relaxed);
        let cpu = CpuSample::take(self.watched);
        let mut now = self.last.clone();
        self.read(&mut now, index);
        let groups = Groups(
            now.0
                .iter()
                .zip(&self.last.0)
                .map(|(now, before)| Group { times: now.times.since(&before.times), ..now.clone() })
                .collect(),
        );
        self.last = now;
        let passed = shared.start.elapsed().as_secs_f64() - f64::from(number - 1) * self.run.interval as f64;
        let mut operations = Vec::new();
        for operation in Operation::ALL {
            let times = groups.operation(operation);
            if times.count > 0 {
                operations.push((operation, Figures::from(&times)));
            }
        }
        let line = Line {
            number,
            requested: Figures::from(&groups.requested()),
            operations,
            cpu: cpu.since(&self.cpu_last),
            seconds: passed.clamp(0.0, self.run.interval as f64),
        };
        self.cpu_last = cpu.clone();
        let warmup = number < self.first_measured;
        self.result.whole.merge(&groups);
        if warmup {
            self.cpu_at_warm = cpu;
        } else {
            self.result.measured.merge(&groups);
        }
        self.result.lines.push(line.clone());
        observer(&Event::Interval {
            run: self.run,
            interval: &Interval { line, groups, warmup, hosts: Vec::new() },
        });
    }

    fn pass_notes(&mut self, notes: &mpsc::Receiver<Note>, observer: &mut Observer<'_>) {
        while let Ok(note) = notes.try_recv() {
            pass(note, observer);
        }
    }

    fn finish(mut self, shared: &Shared<'_>) -> RunResult {
        debug_assert_eq!(shared.busy.load(Relaxed), 0, "a thread of {} outlived its run", self.run.label);
        self.result.notes.extend(self.idle.iter().flat_map(Idle::report));
        self.result.whole_cpu = self.cpu_last.since(&self.cpu_at_start);
        self.result.measured_cpu = self.cpu_last.since(&self.cpu_at_warm);
        self.result.counters = shared.counters();
        self.result.errors = shared.errors.load(Relaxed);
        self.result.failure = shared.failure.lock().ok().and_then(|failure| failure.clone());
        self.result.stopped = self.result.failure.is_none() && shared.stop.load(Relaxed);
        if self.result.measured.0.is_empty() {
            self.result.measured = Groups(
                self.result
                    .whole
                    .0
                    .iter()
                    .map(|g| Group { times: Histogram::default(), ..g.clone() })
                    .collect(),
            );
        }
        self.result
    }
}

fn pass(note: Note, observer: &mut Observer<'_>) {
    match note {
        Note::Message(text) => observer(&Event::Message(&text)),
        Note::Error(error) => observer(&Event::Error(&error)),
    }
}

/// Each thread has a buffer of its largest transfer; together they must fit where nothing else
/// would.
pub(crate) fn check_buffers(run: &Run, threads: impl Iterator<Item = (u32, u64)>) -> Result<(), Error> {
    const BUFFERS_MAX: u64 = 16 << 30;
    let total =
        threads.map(|(threads, size)| u64::from(threads).saturating_mul(size)).fold(0, u64::saturating_add);
    if total <= BUFFERS_MAX {
        return Ok(());
    }
    Err(Error::start(format!(
        "rd={}: its threads need {} of buffers, more than {}; use fewer threads= or a smaller xfersize=.",
        run.label,
        steadfast_lab_params::short_bytes(total),
        steadfast_lab_params::short_bytes(BUFFERS_MAX)
    )))
}

/// Hot sets must be fewer than all sets, and have room in their storage.
fn check_hot(dedup: Option<&Dedup>, sd: &str, size: u64, all: u64) -> Result<(), Error> {
    let Some(dedup) = dedup.filter(|dedup| dedup.hot.sets() > 0) else { return Ok(()) };
    let sets = crate::pattern::sets(dedup, all) as u64;
    if sets <= dedup.hot.sets() {
        return Err(Error::Start(format!(
            "You do not have enough dedup sets: {} hot ones of {sets}; use fewer in deduphotsets=, or more in dedupsets=.",
            dedup.hot.sets()
        )));
    }
    if dedup.hot.blocks().saturating_mul(dedup.unit) > size {
        return Err(Error::Start(format!(
            "sd={sd}: the {} blocks of deduphotsets= have no room in {size} bytes; use fewer.",
            dedup.hot.blocks()
        )));
    }
    Ok(())
}

/// Rates with seconds; `None` for as fast as it goes.
fn phases(rate: &Rate) -> Option<Vec<(f64, f64)>> {
    match rate {
        Rate::Max | Rate::Curve(_) | Rate::AsTraced => None,
        Rate::Fixed(rate) => Some(vec![(*rate, 1.0)]),
        Rate::Variable(list) => Some(list.clone()),
    }
}

/// Whether another operation of the run makes what `operation` uses up or waits for.
fn supplied(operation: Operation, wanted: &[Operation]) -> bool {
    let any = |list: &[Operation]| list.iter().any(|o| wanted.contains(o));
    match operation {
        Operation::Mkdir => any(&[Operation::Rmdir]),
        Operation::Rmdir => any(&[Operation::Mkdir, Operation::Delete]),
        Operation::Create => any(&[Operation::Delete, Operation::Mkdir]),
        _ => any(&[Operation::Create]),
    }
}

pub(crate) fn mix_key(seed: u64, key: u64, run: &Run) -> u64 {
    let label = run
        .label
        .bytes()
        .chain(run.loops.bytes())
        .fold(seed, |sum, byte| crate::random::mix(sum, u64::from(byte)));
    crate::random::mix(label, key)
}
