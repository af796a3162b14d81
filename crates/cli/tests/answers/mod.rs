//! The engine over image files, behind the socket: no kernel is needed, because mounts only
//! pretend. Figures that depend on time and on the engine's own use of space are replaced by fixed
//! ones, so that output can be compared to the letter.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steadfast_control::api::{
    CallCount, DataError, FsDiffEntry, PoolClear, PoolEvent, PoolIo, PoolReport, Request,
};
use steadfast_control::engine::{Engine, Front, MountSettings, Mounted, UsageOf};
use steadfast_control::runtime::Surroundings;
use steadfast_control::{Caller, Code, Refusal, Runtime, Service};
use steadfast_env::{Clock, Env};
use steadfast_pool::{DatasetHandle, Memory};

/// Saturday, 21 November 2026, 5:25:07.000000042 UTC.
pub const NOW_NS: u64 = 1_795_238_707_000_000_042;
const ALLOCATED: u64 = 27_158_118;
const FREE: u64 = (256 << 20) - ALLOCATED;
const MEMORY: Memory =
    Memory { node_cache_bytes: 8 << 20, block_cache_bytes: 8 << 20, dirty_bytes_max: 16 << 20 };

/// Fixed figures, by the names of fields and properties.
const FIGURES: [(&str, &str); 11] = [
    ("size", "268435456"),
    ("allocated", "27158118"),
    ("free", "241277338"),
    ("capacity", "10"),
    ("fragmentation", "0"),
    ("dedupratio", "1.00"),
    ("used", "27158118"),
    ("available", "161061273600"),
    ("referenced", "98304"),
    ("compressratio", "2.49"),
    ("estimate", "1048576"),
];

/// The engine with fixed figures.
pub struct Host {
    engine: Engine,
    /// Folder of the mountpoints, which answers leave out.
    mounts: String,
    /// How often counters were looked at.
    looks: AtomicU64,
    /// Files that are reported as damaged.
    damaged: Mutex<BTreeMap<String, Vec<DataError>>>,
}

impl Host {
    /// An engine that keeps its list of pools and its mountpoints in a folder.
    pub fn new(folder: &Path) -> Host {
        let around = Surroundings {
            runtime_dir: Some(folder.join("run")),
            home: Some(folder.join("home")),
            ..Surroundings::default()
        };
        // Mountpoints of an ordinary user are below the home folder.
        let runtime = Runtime::locate(&around, 12_345);
        let real = Env::real();
        let env = Env { clock: Arc::new(FixedDate { real: Arc::clone(&real.clock) }), ..real };
        Host {
            engine: Engine::start(env, runtime, MEMORY, Arc::new(Pretence)).unwrap(),
            mounts: folder.join("home/steadfast").display().to_string(),
            looks: AtomicU64::new(0),
            damaged: Mutex::default(),
        }
    }

    /// Reports a file as damaged until `zpool clear`.
    pub fn damage(&self, pool: &str, error: DataError) {
        self.damaged.lock().unwrap().entry(pool.to_owned()).or_default().push(error);
    }

    fn add_damage(&self, reports: &mut [PoolReport]) {
        for report in reports {
            let Some(errors) = self.damaged.lock().unwrap().get(&report.name).cloned() else { continue };
            let what = "blocks of a file failed authentication on all of their copies";
            report.messages.push(Refusal::new(Code::BlkAuthAll, what).with("pool", &report.name));
            report.vdevs.iter_mut().for_each(|vdev| vdev.checksum_errors = errors.len() as u64);
            report.error_count = errors.len() as u64;
            report.errors = errors;
        }
    }

    fn add_events(&self, events: &mut Vec<PoolEvent>) {
        for (pool, errors) in self.damaged.lock().unwrap().iter() {
            for error in errors {
                let fields = BTreeMap::from([("path".to_owned(), error.path.clone().unwrap_or_default())]);
                let class = "ereport.fs.steadfast.data".to_owned();
                let eid = events.last().map_or(1, |event| event.eid + 1);
                events.push(PoolEvent { eid, time_ns: NOW_NS, class, pool: Some(pool.clone()), fields });
            }
        }
    }

    /// Each look finds one second more, with 100 reads of 4 KiB and 10 writes of 1 MiB on each
    /// device.
    fn fix_calls(&self, pools: &mut [PoolIo]) {
        let looks = self.looks.fetch_add(1, Ordering::SeqCst) + 1;
        let count = |calls: u64, bytes: u64, nanos: u64| {
            let mut histogram = vec![0; 40];
            histogram[nanos.max(1).ilog2() as usize] = calls * looks;
            let (calls, bytes, nanos) = (calls * looks, calls * bytes * looks, calls * nanos * looks);
            let mut sizes = vec![0; 40];
            if let Some(size) = bytes.checked_div(calls).filter(|size| *size > 0) {
                sizes[size.ilog2() as usize] = calls;
            }
            CallCount { calls, bytes, nanos, histogram, sizes }
        };
        for pool in pools {
            pool.age_ns = looks * 1_000_000_000;
            pool.allocated = ALLOCATED * pool.devices.len() as u64;
            pool.free = FREE * pool.devices.len() as u64;
            for device in &mut pool.devices {
                device.read = count(100, 4096, 17_000);
                device.write = count(10, 1 << 20, 2_500_000);
                device.flush = count(3, 0, 9_000_000);
                device.trim = count(0, 0, 0);
            }
        }
    }
}

impl Service for Host {
    fn answer(&self, caller: &Caller, request: Request) -> Result<Value, Refusal> {
        if let Request::PoolClear(PoolClear { name, .. }) = &request {
            self.damaged.lock().unwrap().remove(name);
        }
        if let (Request::FsSend(send), Some(descriptor)) = (&request, &caller.descriptor) {
            // The engine reports each second only.
            descriptor.progress(&send.snapshot, 7, 1);
        }
        let asked = request.clone();
        let mut answer = self.engine.answer(caller, request)?;
        // `free` of the activities is the space that is still being freed.
        if !matches!(asked, Request::PoolActivities(_)) {
            fix_figures(&mut answer);
        }
        let answer = match asked {
            Request::PoolStatus(_) => {
                let mut reports: Vec<PoolReport> = serde_json::from_value(answer).unwrap();
                self.add_damage(&mut reports);
                serde_json::to_value(reports)
            }
            Request::PoolEvents(_) => {
                let mut events: Vec<PoolEvent> = serde_json::from_value(answer).unwrap();
                self.add_events(&mut events);
                serde_json::to_value(events)
            }
            Request::PoolIostat(_) => {
                let mut pools: Vec<PoolIo> = serde_json::from_value(answer).unwrap();
                self.fix_calls(&mut pools);
                serde_json::to_value(pools)
            }
            Request::FsDiff(_) => serde_json::to_value(differences()),
            _ => Ok(answer),
        };
        Ok(serde_json::from_str(&answer.unwrap().to_string().replace(&self.mounts, "")).unwrap())
    }

    fn shutdown(&self, force: bool) -> Result<(), Refusal> {
        self.engine.shutdown(force)
    }
}

/// Differences between two snapshots: mounts that pretend have no files that could differ.
fn differences() -> Vec<FsDiffEntry> {
    let entry = |change: &str, path: &str, to: Option<&str>| FsDiffEntry {
        change: change.into(),
        kind: "F".into(),
        path: path.into(),
        to: to.map(str::to_owned),
        links: 0,
        time: "1795238707.5".into(),
    };
    vec![entry("M", "/tank/a", None), entry("R", "/tank/b", Some("/tank/c"))]
}

/// Puts the fixed figures into an answer, wherever a field or a property has one of their names.
fn fix_figures(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(fix_figures),
        Value::Object(fields) => {
            for (name, inner) in fields {
                match FIGURES.iter().find(|(known, _)| known == name) {
                    Some((_, figure)) if inner.is_number() => *inner = figure.parse::<u64>().unwrap().into(),
                    Some((_, figure)) if inner["value"].is_string() => inner["value"] = (*figure).into(),
                    _ => fix_figures(inner),
                }
            }
        }
        _ => {}
    }
}

/// A clock whose date stands still.
struct FixedDate {
    real: Arc<dyn Clock>,
}

impl Clock for FixedDate {
    fn wall_ns(&self) -> i128 {
        i128::from(NOW_NS)
    }

    fn monotonic_ns(&self) -> u64 {
        self.real.monotonic_ns()
    }

    fn sleep(&self, duration: Duration) {
        self.real.sleep(duration);
    }
}

/// Paths in a folder; none in a volume's file.
fn inside(at: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(at).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Mounts without a kernel.
struct Pretence;

struct PretendedMount {
    at: PathBuf,
    /// Contents of the folder when it was mounted over.
    covered: Vec<PathBuf>,
    ended: AtomicBool,
    _dataset: DatasetHandle,
}

impl Front for Pretence {
    fn mount(
        &self,
        dataset: DatasetHandle,
        at: &Path,
        _: &MountSettings,
        _: UsageOf,
    ) -> Result<Box<dyn Mounted>, Refusal> {
        let (at, ended) = (at.to_owned(), AtomicBool::new(false));
        Ok(Box::new(PretendedMount { covered: inside(&at), at, ended, _dataset: dataset }))
    }

    fn may_allow_other(&self) -> bool {
        true
    }

    fn clear_stale(&self, _: &Path) -> bool {
        false
    }
}

impl Mounted for PretendedMount {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn unmount(&self, _: bool) -> Result<(), Refusal> {
        // Mountpoints of inner file systems would vanish with a real mount.
        for path in inside(&self.at).iter().filter(|path| !self.covered.contains(path)) {
            let _ = std::fs::remove_dir_all(path);
        }
        self.ended.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn collects_writes(&self) -> bool {
        false
    }

    fn settle(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn note_snapshots(&self) {}

    fn await_notes(&self) {}

    fn remount(&self, _: &MountSettings) -> Result<(), Refusal> {
        Ok(())
    }
}
