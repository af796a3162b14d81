//! Devices that belong to the intent log alone (ZFS: SLOG): how they come, fail and get lost.
//!
//! A log device has labels like any other device, and slots of the pool's size. The log goes round
//! all slots of all log devices, and takes no room of the pool. The labels of all devices list it.
//! The devices of a mirror hold the same groups at the same places; `log_mirror.rs` has how they
//! come and go.
//!
//! ## Invariants
//! [log_device.1] The place of groups changes only over a commit: the log stands down, and is ready
//!      again with the new place when a root that holds all its groups is durable.
//!      `Log::stand_down`, `Log::ready`
//! [log_device.2] A device is marked as given up or out of use, or unlisted, only in labels that
//!      are written after such a root. So nothing on it is needed then, even if it is lost.
//!      `settle_logs`, `labelled_aux`
//! [log_device.3] Labels of log devices are durable before those of leaves: one that is older than
//!      the leaves' is of an earlier copy.
//!      `write_labels`, `label_logs_first`
//! [log_device.4] A group is promised when it is on every device of its mirror that labels call in
//!      use: so any one of them is enough.
//!      `on_all`; sim: `log_mirror`
//! [log_device.5] A device that labels do not call in use is not read: it may have some promises
//!      and lack later ones.
//!      [`find`]
//! [log_device.6] The log is ready only while the labels of leaves are true: otherwise a device
//!      that they call in use would lack later promises.
//!      `begin_log`
//!
//! ## When one fails in use
//! The group being written is not promised: its callers commit, and that commit gives the device
//! up. From then on groups go to the remaining log devices, of its mirror or others, or to segments
//! of the pool. The pool reports it (status, event) until the device is removed, replaced or
//! brought back.
//!
//! ## When one is lost
//! If another device of its mirror is here and in use, nothing is missing: the lost one is called
//! gone, and is in use again when an import finds it. Otherwise a pool that has not given it up is
//! not imported for writing without it: promises of `fsync` may be there and nowhere else. The
//! operator may accept their loss (`accept_lost_log`), which is noted in the history and gives the
//! device up.

use crate::core::ranked::{RankedMutex, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_device::inject::{Injected, Injector};
use steadfast_device::metered::Sample;
use steadfast_device::{Device, Meter, Metered, Presence, SegmentPlace};
use steadfast_env::{Bug, Env, Job, Tasks};
use steadfast_format::{AuxClass, AuxConfig, LabelConfig, LogOut, LogPart, SegmentId, medium};
use steadfast_intent_log::{Group, Lack, Medium, MediumError};
use steadfast_segment::{LogSegment, Space};

use crate::core::error::Result;
use crate::core::events::{EventKind, Events};
use crate::devices::groups::DeviceHandle;
use crate::devices::probe::{FoundDevice, FoundPool, erase};

/// Name of the feature.
pub(crate) const FEATURE: &str = "log_device";
/// Feature of pools with a log mirror, or a log device that is out of use for a while.
pub(crate) const MIRRORS: &str = "log_mirrors";
/// Bytes of a device that are used at most: an import reads them all.
const BYTES_MAX: u32 = 128 << 20;
/// Bytes of zeros written at once when a device is prepared.
const ZEROS: u32 = 1 << 20;

/// Status that `zpool status` shows for a log device.
#[derive(Clone, Debug)]
pub struct LogDeviceStatus {
    /// Path by which it was last opened.
    pub path: String,
    /// Random name.
    pub guid: u64,
    /// Its mirror, from 1, whose number no group has; 0 if it stands alone.
    pub mirror: u8,
    /// Bytes that groups can fill; 0 if it is not here.
    pub size_bytes: u64,
    /// The pool does without it for ever.
    pub given_up: bool,
    /// Why it is out of use for the time being, if it is.
    pub out: Option<LogOut>,
    /// Why, if it failed since import; or why it is not here.
    pub trouble: Option<String>,
    /// Operations of the device, with times.
    pub sample: Option<Sample>,
    /// Reads, and writes and flushes, that failed.
    pub errors: (u64, u64),
    /// Groups that it had lost, and that were on another device of its mirror.
    pub checksum_errors: u64,
    /// Is what was opened still there?
    pub presence: Presence,
}

/// A log device that is here.
pub(crate) struct LogDevice {
    pub guid: u64,
    pub path: String,
    pub device: Arc<dyn Device>,
    pub meter: Arc<Meter>,
    /// Faults on purpose.
    pub injector: Arc<Injector>,
    pub events: Arc<Events>,
    pub slots: u32,
    pub slot_size: u32,
    /// Its error, once it failed.
    pub trouble: RankedMutex<Option<String>, rank::Trouble>,
    /// Others may have it.
    pub released: AtomicBool,
    pub read_errors: AtomicU64,
    pub write_errors: AtomicU64,
    pub checksum_errors: AtomicU64,
}

impl LogDevice {
    pub fn new(
        env: &Env,
        events: &Arc<Events>,
        guid: u64,
        handle: DeviceHandle,
        slot_size: u32,
    ) -> LogDevice {
        let injector = Injector::new(Arc::clone(&env.clock));
        LogDevice::with_injector(env, events, guid, handle, slot_size, injector)
    }

    /// The same for a device that is opened anew: what was injected stays in force.
    pub fn with_injector(
        env: &Env,
        events: &Arc<Events>,
        guid: u64,
        handle: DeviceHandle,
        slot_size: u32,
        injector: Arc<Injector>,
    ) -> LogDevice {
        let ear = Arc::clone(events);
        let on_error = Box::new(move |error: &steadfast_device::Error| ear.device_failed(error));
        let DeviceHandle { path, device } = handle;
        let fits = medium::slot_count(device.character().size_bytes, slot_size);
        let device = Arc::new(Injected::new(device, Arc::clone(&injector)));
        let (device, meter) = Metered::new(device, Arc::clone(&env.clock), on_error);
        LogDevice {
            guid,
            path,
            device: Arc::new(device),
            meter,
            injector,
            events: Arc::clone(events),
            slots: fits.min((BYTES_MAX / slot_size).max(1)),
            slot_size,
            trouble: RankedMutex::new(None),
            released: AtomicBool::new(false),
            read_errors: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
            checksum_errors: AtomicU64::new(0),
        }
    }

    /// The device as labels list it when it comes.
    pub fn listed(&self, mirror: u8) -> AuxConfig {
        let log = LogPart { mirror, out: None };
        AuxConfig { log, ..AuxConfig::new(AuxClass::Log, self.guid, self.path.clone()) }
    }

    pub fn place(&self, slot: u32) -> SegmentPlace {
        SegmentPlace { segment: SegmentId(u64::from(slot) + 1), slot, slot_size: self.slot_size }
    }

    /// Passes a result on; an error is the end of the device's use.
    pub fn hear(&self, result: steadfast_device::Result<()>) -> steadfast_device::Result<()> {
        result.inspect_err(|error| {
            self.write_errors.fetch_add(1, Ordering::Relaxed);
            let mut trouble = self.trouble.lock();
            if trouble.is_none() {
                let (path, reason) = (self.path.clone(), error.to_string());
                *trouble = Some(reason.clone());
                drop(trouble);
                self.events.note(EventKind::LogFailed { path, reason });
            }
        })
    }

    pub fn has_failed(&self) -> bool {
        self.trouble.lock().is_some()
    }

    /// True if it can be taken into use as it is.
    pub fn is_usable(&self) -> bool {
        let is_ours = !self.released.load(Ordering::Acquire);
        is_ours && !self.has_failed() && self.device.presence() == Presence::Whole
    }

    /// Forgets what was counted.
    pub fn forget_errors(&self) {
        for count in [&self.read_errors, &self.write_errors, &self.checksum_errors] {
            count.store(0, Ordering::Relaxed);
        }
        self.meter.forget_slow();
    }

    pub fn write(&self, slot: u32, offset: u32, bytes: &[u8]) -> steadfast_device::Result<()> {
        self.hear(self.device.append_segment(self.place(slot), offset, bytes))
    }

    pub fn flush(&self) -> steadfast_device::Result<()> {
        self.hear(self.device.flush())
    }

    pub fn read(&self, slot: u32, offset: u32, out: &mut [u8]) -> steadfast_device::Result<()> {
        let read = self.device.read_segment(self.place(slot), offset, out);
        read.inspect_err(|_| _ = self.read_errors.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes all of it once, so that no flush has to make a host find room, and nothing of a
    /// former use is left.
    pub fn prepare(&self) -> steadfast_device::Result<()> {
        let zeros = vec![0; ZEROS.min(self.slot_size) as usize];
        for slot in 0..self.slots {
            for at in (0..self.slot_size).step_by(zeros.len()) {
                self.device.append_segment(self.place(slot), at, &zeros)?;
            }
        }
        self.device.flush()
    }

    /// Takes away what the device held, labels included, and prepares it.
    pub fn wipe(&self) -> Result<()> {
        erase(&*self.device)?;
        Ok(self.prepare()?)
    }

    /// Lets others have it.
    pub fn release(&self) {
        self.released.store(true, Ordering::Release);
        self.device.release();
    }

    /// It belongs to nobody any more. One that cannot be written keeps a label that no pool answers
    /// to.
    pub fn part_with(&self) {
        let _ = erase(&*self.device);
        self.release();
    }
}

/// Log devices that hold the same: those of a mirror, or one alone.
pub(crate) type Sides = Vec<Arc<LogDevice>>;

/// Does something to devices that hold the same, at once. Fails if one of them does [log_device.4].
fn on_all(
    tasks: &dyn Tasks,
    sides: &[Arc<LogDevice>],
    act: &(dyn Fn(&LogDevice) -> steadfast_device::Result<()> + Sync),
) -> steadfast_device::Result<()> {
    if let [alone] = sides {
        return act(alone);
    }
    let results: Vec<Mutex<steadfast_device::Result<()>>> =
        sides.iter().map(|_| Mutex::new(Ok(()))).collect();
    let jobs = sides.iter().zip(&results).map(|(side, result)| -> Job<'_> {
        Box::new(move || {
            let done = act(side);
            *result.lock() = done;
        })
    });
    tasks.run_waiting(jobs.collect());
    results.into_iter().try_for_each(|result| result.into_inner())
}

/// Where a part of the log lies.
pub(crate) enum Part {
    Segment(LogSegment),
    /// A slot of each of these.
    Slot(Sides, u32),
}

/// Segments of the pool, slots of log devices, or both: the log's medium.
pub(crate) struct LogMedium {
    pub env: Env,
    pub space: Arc<Space>,
    pub parts: Vec<Part>,
}

/// A group that is to be written to a device that lacks it.
pub(crate) struct LogMend {
    pub device: Arc<LogDevice>,
    pub slot: u32,
    pub offset: u32,
    pub bytes: Vec<u8>,
    pub was_durable: bool,
}

impl LogMedium {
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// True if it lies among what the pool holds, and not on devices of its own.
    pub fn is_in_pool(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Segment(_)))
    }

    /// Writes that give each copy on a log device these groups.
    pub fn mends(&self, groups: &[Group], lacks: &[Lack]) -> Vec<LogMend> {
        let Some(first) = groups.first().map(|group| group.header.sequence) else { return Vec::new() };
        let mend = |lack: &Lack| {
            // They follow each other without a gap.
            let at = usize::try_from(lack.sequence.checked_sub(first)?).ok()?;
            let group = groups.get(at).filter(|group| group.place == lack.place)?;
            let Part::Slot(sides, slot) = &self.parts[lack.place.0] else { return None };
            let (device, slot) = (Arc::clone(&sides[lack.copy]), *slot);
            let (offset, bytes) = (lack.place.1, group.stored());
            Some(LogMend { device, slot, offset, bytes, was_durable: lack.was_durable })
        };
        lacks.iter().filter_map(mend).collect()
    }
}

impl Medium for LogMedium {
    fn segments(&self) -> usize {
        self.parts.len()
    }

    fn segment_bytes(&self) -> u32 {
        (0..self.parts.len()).map(|part| self.bytes_of(part)).min().unwrap_or(self.space.geometry().slot_size)
    }

    fn bytes_of(&self, segment: usize) -> u32 {
        match &self.parts[segment] {
            Part::Segment(at) => at.bytes,
            Part::Slot(..) => self.space.geometry().slot_size,
        }
    }

    fn copies(&self, segment: usize) -> usize {
        match &self.parts[segment] {
            Part::Segment(at) => at.copies(),
            Part::Slot(sides, _) => sides.len(),
        }
    }

    fn write(&self, segment: usize, offset: u32, bytes: &[u8]) -> std::result::Result<(), MediumError> {
        match &self.parts[segment] {
            Part::Segment(at) => Ok(self.space.write_log(at, offset, bytes)?),
            Part::Slot(sides, slot) => {
                let written = on_all(&*self.env.tasks, sides, &|side| side.write(*slot, offset, bytes));
                if self.env.has_bug(Bug::LogSideSwallowed) && sides.iter().any(|side| !side.has_failed()) {
                    return Ok(());
                }
                Ok(written?)
            }
        }
    }

    fn flush(&self, segment: usize) -> std::result::Result<(), MediumError> {
        match &self.parts[segment] {
            Part::Segment(at) => Ok(self.space.flush_log(at)?),
            Part::Slot(sides, _) => Ok(on_all(&*self.env.tasks, sides, &LogDevice::flush)?),
        }
    }

    fn read(
        &self,
        segment: usize,
        copy: usize,
        offset: u32,
        out: &mut [u8],
    ) -> std::result::Result<(), MediumError> {
        match &self.parts[segment] {
            Part::Segment(at) => Ok(self.space.read_log(at, copy, offset, out)?),
            Part::Slot(sides, slot) => Ok(sides[copy].read(*slot, offset, out)?),
        }
    }
}

/// Log devices as labels list them, those of a mirror together.
pub(crate) fn grouped(aux: &[AuxConfig]) -> Vec<Vec<&AuxConfig>> {
    let mut groups: Vec<Vec<&AuxConfig>> = Vec::new();
    for one in aux.iter().filter(|aux| aux.class == AuxClass::Log) {
        let same = groups.iter_mut().find(|group| is_beside(group[0], one));
        match same {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// True if two log devices are of one mirror.
pub(crate) fn is_beside(one: &AuxConfig, other: &AuxConfig) -> bool {
    let is_log = [one, other].iter().all(|aux| aux.class == AuxClass::Log);
    is_log && one.log.mirror != 0 && one.log.mirror == other.log.mirror
}

/// Log devices that import found, and the auxiliary devices as labels list them from now on.
pub(crate) struct FoundLogs {
    pub devices: Vec<Arc<LogDevice>>,
    pub aux: Vec<AuxConfig>,
    /// Those that are needed and not here, and why what is there does not count.
    pub missing: Vec<(u64, &'static str)>,
    /// Those that are here, and in use again after the first commit: others of their mirrors have
    /// all.
    pub returning: Vec<u64>,
}

/// The device that was found of a log device that labels list.
fn here<'f>(found: &'f FoundPool, aux: &AuxConfig) -> Option<&'f FoundDevice> {
    let is_it = |label: &LabelConfig| label.device.0 == 0 && label.device_guid == aux.guid;
    found.devices.iter().find(|device| is_it(&device.label))
}

/// Why one that labels call in use cannot be used as it was found [log_device.3].
fn fault(found: &FoundPool, aux: &AuxConfig) -> Option<&'static str> {
    match here(found, aux) {
        None => Some("it was not found"),
        Some(device) if device.label.txg < found.config.txg => {
            Some("what was found is an earlier copy of it")
        }
        Some(_) => None,
    }
}

/// Finds the log devices that a pool's labels list.
pub(crate) fn find(env: &Env, events: &Arc<Events>, found: &FoundPool) -> FoundLogs {
    let listed = &found.config.aux;
    let mut logs =
        FoundLogs { devices: Vec::new(), aux: listed.clone(), missing: Vec::new(), returning: Vec::new() };
    for aux in &mut logs.aux {
        if aux.class != AuxClass::Log || aux.given_up {
            continue;
        }
        if let Some(reason) = fault(found, aux).filter(|_| aux.is_in_use()) {
            let is_whole = |other: &AuxConfig| other.is_in_use() && fault(found, other).is_none();
            if !listed.iter().any(|other| is_beside(aux, other) && is_whole(other)) {
                logs.missing.push((aux.guid, reason));
                continue;
            }
            aux.log.out = Some(LogOut::Gone); // [log_device.5]
        }
        let Some(device) = here(found, aux) else { continue };
        aux.path.clone_from(&device.handle.path);
        let (handle, slot_size) = (device.handle.clone(), found.config.slot_size);
        logs.devices.push(Arc::new(LogDevice::new(env, events, aux.guid, handle, slot_size)));
        if aux.log.out == Some(LogOut::Gone) {
            logs.returning.push(aux.guid);
        }
    }
    logs
}
