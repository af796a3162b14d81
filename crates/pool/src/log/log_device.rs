//! Devices of which the intent log has the whole: how they come, fail and get lost.
//!
//! A log device has labels like any other and slots of the pool's size; the log goes round all of them, over several devices if there
//! are several, and takes no room of the pool. The labels of all devices list it. Those of a mirror hold the same groups at the same places; how
//! they come and go is told in `log_mirror.rs`.
//!
//! ## Invariants
//! (D1) Where groups go changes only over a commit: the log stands down, and is ready again with the new place when a root
//!      that holds all its groups is durable.                                              `Log::stand_down`, `Log::ready`
//! (D2) A device is marked as given up or out of use, or unlisted, only in labels that are written after such a root: nothing on it is
//!      needed then, whatever becomes of it.                                               `Inner::settle_logs`, `labelled_aux`
//! (D3) Labels of log devices are durable before those of leaves: one that is older than the leaves' is of an earlier copy.
//!                                                                                         `write_labels`, `label_logs_first`
//! (D4) A group is promised when every device of its mirror has it that labels call in use: so any one of them is enough.
//!                                                                                         `on_all`; sim: `log_mirror`
//! (D5) One that labels do not call in use is not read: it may have some promises and lack later ones.    [`find`]
//! (D6) The log is ready only while labels of leaves say what is so: else one that they call in use would lack what is promised
//!      from then on.                                                                      `Inner::begin_log`
//!
//! ## When one fails in use
//! The group that was under way is not promised; its callers commit, and that commit gives the device up. From then on groups go to
//! the log devices that are left, of its mirror or others, or to segments of the pool. The pool says so (status, event) until the device is
//! removed, replaced or brought back.
//!
//! ## When one is lost
//! If another one of its mirror is here that is in use, nothing is missing: the lost one is called gone, and is in use again when an import
//! finds it. Else a pool that has not given it up is not imported for writing without it: what `fsync` promised may be there and nowhere else. The
//! operator may accept that (`accept_lost_log`), which is noted in the history, and gives it up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_device::inject::{Injected, Injector};
use steadfast_device::metered::Sample;
use steadfast_device::{Device, Meter, Metered, Presence, SegmentPlace};
use steadfast_env::{Bug, Env, Job, Tasks};
use steadfast_format::{
    AuxClass, AuxConfig, DeviceId, LabelConfig, LogOut, LogPart, PoolState, SegmentId, Txg, medium,
};
use steadfast_intent_log::{Group, Lack, Medium, MediumError};
use steadfast_segment::{LogSegment, Redundancy, Space};

use crate::core::error::{Error, Result};
use crate::core::events::{EventKind, Events};
use crate::core::inner::Inner;
use crate::import::create::{DeviceHandle, GroupHandles};
use crate::import::scan::{FoundDevice, FoundPool};

/// Name of the feature.
pub(crate) const FEATURE: &str = "log_device";
/// Feature of pools with a log mirror, or a log device that is out of use for a while.
pub(crate) const MIRRORS: &str = "log_mirrors";
/// Bytes of a device that are used at most: an import reads them all.
const BYTES_MAX: u32 = 128 << 20;
/// Bytes of zeros written at once when a device is prepared.
const ZEROS: u32 = 1 << 20;

/// What `zpool status` shows of a log device.
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
    /// What was asked of it, with times.
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
    meter: Arc<Meter>,
    /// Faults on purpose.
    pub injector: Arc<Injector>,
    events: Arc<Events>,
    pub slots: u32,
    slot_size: u32,
    /// What failed, once something did.
    trouble: Mutex<Option<String>>,
    /// Others may have it.
    released: AtomicBool,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    checksum_errors: AtomicU64,
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
            trouble: Mutex::new(None),
            released: AtomicBool::new(false),
            read_errors: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
            checksum_errors: AtomicU64::new(0),
        }
    }

    /// What labels say of it when it comes.
    pub fn listed(&self, mirror: u8) -> AuxConfig {
        let log = LogPart { mirror, out: None };
        AuxConfig { log, ..AuxConfig::new(AuxClass::Log, self.guid, self.path.clone()) }
    }

    fn place(&self, slot: u32) -> SegmentPlace {
        SegmentPlace { segment: SegmentId(u64::from(slot) + 1), slot, slot_size: self.slot_size }
    }

    /// Passes a result on; an error is the end of the device's use.
    fn hear(&self, result: steadfast_device::Result<()>) -> steadfast_device::Result<()> {
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

    fn write(&self, slot: u32, offset: u32, bytes: &[u8]) -> steadfast_device::Result<()> {
        self.hear(self.device.append_segment(self.place(slot), offset, bytes))
    }

    fn flush(&self) -> steadfast_device::Result<()> {
        self.hear(self.device.flush())
    }

    fn read(&self, slot: u32, offset: u32, out: &mut [u8]) -> steadfast_device::Result<()> {
        let read = self.device.read_segment(self.place(slot), offset, out);
        read.inspect_err(|_| _ = self.read_errors.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes all of it once, so that no flush has to make a host find room, and nothing of a former use is left.
    pub fn prepare(&self) -> steadfast_device::Result<()> {
        let zeros = vec![0; ZEROS.min(self.slot_size) as usize];
        for slot in 0..self.slots {
            for at in (0..self.slot_size).step_by(zeros.len()) {
                self.device.append_segment(self.place(slot), at, &zeros)?;
            }
        }
        self.device.flush()
    }

    /// Lets others have it.
    pub fn release(&self) {
        self.released.store(true, Ordering::Release);
        self.device.release();
    }

    /// It belongs to nobody any more. One that cannot be written keeps a label that no pool answers to.
    pub fn part_with(&self) {
        let _ = crate::import::scan::erase(&*self.device);
        self.release();
    }
}

/// Log devices that hold the same: those of a mirror, or one alone.
type Sides = Vec<Arc<LogDevice>>;

/// Does something to devices that hold the same, at once. Fails if one of them does (D4).
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
enum Part {
    Segment(LogSegment),
    /// A slot of each of these.
    Slot(Sides, u32),
}

/// Segments of the pool, slots of log devices, or both: the log's medium.
pub(crate) struct LogMedium {
    env: Env,
    space: Arc<Space>,
    parts: Vec<Part>,
}

/// A group that is to be written to a device that lacks it.
pub(crate) struct LogMend {
    device: Arc<LogDevice>,
    slot: u32,
    offset: u32,
    bytes: Vec<u8>,
    was_durable: bool,
}

impl LogMedium {
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// True if it lies among what the pool holds, and not on devices of its own.
    pub fn is_in_pool(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Segment(_)))
    }

    /// What has to be written where, so that each copy on a log device has these groups.
    fn mends(&self, groups: &[Group], lacks: &[Lack]) -> Vec<LogMend> {
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
    /// Those that are here, and in use again after the first commit: others of their mirrors have all.
    pub returning: Vec<u64>,
}

/// The device that was found of a log device that labels list.
fn here<'f>(found: &'f FoundPool, aux: &AuxConfig) -> Option<&'f FoundDevice> {
    let is_it = |label: &LabelConfig| label.device.0 == 0 && label.device_guid == aux.guid;
    found.devices.iter().find(|device| is_it(&device.label))
}

/// Why one that labels call in use cannot be used as it was found (D3).
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
            aux.log.out = Some(LogOut::Gone); // (D5)
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

/// While it lives no group goes to a log device: what is promised is committed.
pub(crate) struct LogRest<'a>(&'a Inner);

impl Drop for LogRest<'_> {
    fn drop(&mut self) {
        self.0.log_rests.store(false, Ordering::Release);
    }
}

impl Inner {
    /// Lets log devices rest, if there are any. What was promised on them is in the root of the next commit (D1); the first commit after
    /// the rest writes groups again.
    pub(crate) fn rest_log_devices(&self) -> Option<LogRest<'_>> {
        if self.logs_in_use().is_empty() {
            return None;
        }
        let _turn = self.sync_turn.lock();
        self.log_rests.store(true, Ordering::Release);
        self.log.stand_down();
        Some(LogRest(self))
    }

    /// File systems whose promises a log device holds until their keys are loaded.
    pub(crate) fn held_on_devices(&self) -> usize {
        if self.logs_in_use().is_empty() { 0 } else { self.held.lock().count() }
    }

    /// A log device that is here.
    pub(crate) fn log_here(&self, guid: u64) -> Option<Arc<LogDevice>> {
        self.log_devices.read().iter().find(|log| log.guid == guid).cloned()
    }

    /// Log devices that are in use and here, those of a mirror together.
    pub(crate) fn logs_in_use(&self) -> Vec<Sides> {
        let aux = self.aux.read().clone();
        let sides = |group: Vec<&AuxConfig>| -> Sides {
            let used = group.into_iter().filter(|aux| aux.is_in_use());
            used.filter_map(|aux| self.log_here(aux.guid)).collect()
        };
        grouped(&aux).into_iter().map(sides).filter(|sides| !sides.is_empty()).collect()
    }

    /// A medium of these segments, and of so many slots of these devices as each mirror has.
    fn medium_of(
        &self,
        mirrors: &[Sides],
        segments: Vec<LogSegment>,
        slots: impl Fn(&Sides) -> Option<u32>,
    ) -> LogMedium {
        let mut parts: Vec<Part> = segments.into_iter().map(Part::Segment).collect();
        for sides in mirrors {
            for slot in 0..slots(sides).unwrap_or(0) {
                let sides = sides.iter().filter(|log| slot < log.slots).cloned().collect();
                parts.push(Part::Slot(sides, slot));
            }
        }
        LogMedium { env: self.env.clone(), space: Arc::clone(&self.space), parts }
    }

    /// All places where groups that still count may lie.
    pub(crate) fn log_medium(&self) -> LogMedium {
        let any = |sides: &Sides| sides.iter().map(|log| log.slots).max();
        self.medium_of(&self.logs_in_use(), self.space.log_segments(), any)
    }

    /// Where groups go from now on: log devices, or without any the pool's own segments.
    pub(crate) fn log_target(&self) -> LogMedium {
        let mirrors = self.logs_in_use();
        let segments = if mirrors.is_empty() { self.space.log_segments() } else { Vec::new() };
        let all = |sides: &Sides| sides.iter().map(|log| log.slots).min();
        self.medium_of(&mirrors, segments, all)
    }

    /// What the replay of these groups found to be lacking on devices, to be mended before the first commit.
    pub(crate) fn note_lacks(&self, medium: &LogMedium, groups: &[Group], lacks: &[Lack]) {
        self.log_mends.lock().extend(medium.mends(groups, lacks));
    }

    /// Writes to log devices what they lack of the groups that are being replayed, and others of their mirrors have. One that cannot be
    /// written is given up by the next commit.
    pub(crate) fn mend_logs(&self) {
        let mut healed: BTreeMap<u64, (Arc<LogDevice>, u64)> = BTreeMap::new();
        let mends = std::mem::take(&mut *self.log_mends.lock());
        for LogMend { device, slot, offset, bytes, was_durable } in mends {
            let lost = u64::from(was_durable);
            device.checksum_errors.fetch_add(lost, Ordering::Relaxed);
            if device.write(slot, offset, &bytes).is_ok() {
                healed.entry(device.guid).or_insert_with(|| (device, 0)).1 += lost;
            }
        }
        for (device, groups) in healed.into_values() {
            if device.flush().is_ok() && groups > 0 {
                let path = device.path.clone();
                self.events.note(EventKind::LogMended { path, groups });
            }
        }
    }

    fn mark_given_up(&self, guids: &[u64]) {
        for aux in self.aux.write().iter_mut().filter(|aux| guids.contains(&aux.guid)) {
            aux.given_up = true;
        }
    }

    /// What the label of a log device says as of now.
    fn label_of_log(&self, log: &LogDevice, state: PoolState, txg: Txg) -> Option<Vec<u8>> {
        let leaf = self.leaves().into_iter().next().expect("a pool has a leaf");
        let label = self.label_of(&leaf, state, txg);
        LabelConfig { device: DeviceId(0), device_guid: log.guid, ..label }.encode(steadfast_crypto::hash)
    }

    /// Writes two copies of the labels of log devices, and makes them durable (D3). If one fails, labels of leaves must wait for the
    /// commit that gives it up; at the end of the pool's use here it is given up at once, for nothing on it is needed then.
    pub(crate) fn write_log_labels(&self, copies: [usize; 2], state: PoolState, txg: Txg) -> Result<()> {
        let used: Vec<u64> = self.logs_in_use().iter().flatten().map(|log| log.guid).collect();
        for log in self.labelled_logs() {
            // One that goes with the commit under way holds nothing up.
            let goes = !used.contains(&log.guid);
            if goes && log.has_failed() {
                continue;
            }
            let label = self.label_of_log(&log, state, txg);
            let label = label.ok_or_else(|| Error::LabelTooLong { pool: self.name() })?;
            let written = copies.iter().try_for_each(|copy| log.device.write_label(*copy, &label));
            let Err(error) = log.hear(written.and_then(|()| log.device.flush())) else { continue };
            if goes {
                continue;
            }
            self.changed.store(true, Ordering::Release);
            if state == PoolState::Active {
                return Err(Error::LogUnfit { path: log.path.clone(), reason: error.to_string() });
            }
            if self.held.lock().count() == 0 {
                self.mark_given_up(&[log.guid]);
            }
        }
        Ok(())
    }

    /// Writes all labels of log devices, before a leaf by itself gets some of this txg: an import would take those there are for older
    /// than the leaves' (D3).
    pub(crate) fn label_logs_first(&self, state: PoolState, txg: Txg) -> Result<()> {
        [[0, 2], [1, 3]].into_iter().try_for_each(|copies| self.write_log_labels(copies, state, txg))
    }

    /// Refuses to go on without log devices that are needed, or gives them up if the operator accepts that: then what the history is
    /// to say. `promised` says whether the root that is opened names a log, and the pool was not exported.
    pub(crate) fn do_without(
        &self,
        missing: &[(u64, &'static str)],
        accept: bool,
        promised: bool,
    ) -> Result<Vec<String>> {
        let committed = self.txgs.commits.committed();
        let empty = !promised && self.held.lock().count() == 0;
        let mut notices = Vec::new();
        let listed = self.aux.read().clone();
        for (guid, reason) in missing {
            let aux = listed.iter().find(|aux| aux.guid == *guid).expect("labels list it");
            let path = aux.path.clone();
            if !accept {
                let others = listed.iter().filter(|other| is_beside(aux, other) && other.guid != *guid);
                let others: Vec<&str> = others.map(|other| other.path.as_str()).collect();
                let pool = self.name();
                let reason = match others.is_empty() {
                    true => (*reason).to_owned(),
                    false => {
                        let others = others.join(", ");
                        format!("{reason}, and no other device of its mirror ({others}) is here that has all")
                    }
                };
                return Err(Error::LogMissing { pool, path, reason, committed, empty });
            }
            let told = match empty {
                true => "nothing was on it".to_owned(),
                false => format!("what fsync promised after txg {committed} and was on it is lost"),
            };
            notices.push(format!("the operator gave up the log device {path}: {reason}; {told}"));
        }
        self.mark_given_up(&missing.iter().map(|(guid, _)| *guid).collect::<Vec<_>>());
        Ok(notices)
    }

    pub(crate) fn check_log_free(&self) -> Result<()> {
        match self.held.lock().count() {
            0 => Ok(()),
            datasets => Err(Error::LogHeld { pool: self.name(), datasets }),
        }
    }

    /// Refuses what cannot become log devices of this pool.
    fn check_new_logs(&self, groups: &[GroupHandles], force: bool) -> Result<()> {
        self.check_writable()?;
        self.need_feature("intent_log")?;
        self.check_log_free()?;
        for group in groups {
            if matches!(group.redundancy, Redundancy::Raidz(_)) {
                return Err(Error::LogParity);
            }
            crate::devices::groups::check(group)?;
        }
        let known = |path: &str| {
            self.leaves().iter().any(|leaf| leaf.path() == path)
                || self.log_devices.read().iter().any(|log| log.path == path)
        };
        let handles: Vec<&DeviceHandle> = groups.iter().flat_map(|group| &group.devices).collect();
        for (index, handle) in handles.iter().enumerate() {
            let twice = handles[..index].iter().any(|other| other.path == handle.path);
            if twice || known(&handle.path) {
                return Err(Error::Twice { path: handle.path.clone() });
            }
            crate::devices::grow::check_unoccupied(handle, force)?;
            let bytes = handle.device.character().size_bytes;
            if medium::slot_count(bytes, self.slot_size) == 0 || !handle.device.character().appendable {
                let needed = medium::device_bytes(1, self.slot_size);
                return Err(Error::TooSmall { path: handle.path.clone(), bytes, needed });
            }
        }
        Ok(())
    }

    /// Gives the intent log devices of its own, mirrors or single ones, which lose what they held. Durable when it returns.
    pub(crate) fn add_logs(&self, groups: Vec<GroupHandles>, force: bool, dry_run: bool) -> Result<()> {
        self.check_new_logs(&groups, force)?;
        if dry_run {
            return Ok(());
        }
        let open = |handle: DeviceHandle| {
            let guid = self.env.random.nonzero_u64();
            Arc::new(LogDevice::new(&self.env, &self.events, guid, handle, self.slot_size))
        };
        let new: Vec<(Redundancy, Sides)> = groups
            .into_iter()
            .map(|group| (group.redundancy, group.devices.into_iter().map(&open).collect()))
            .collect();
        let all = || new.iter().flat_map(|(_, sides)| sides);
        for log in all() {
            crate::import::scan::erase(&*log.device)?;
            log.prepare()?;
        }
        {
            let _turn = self.sync_turn.lock();
            self.check_log_free()?;
            let (mut listed, mut last) = (Vec::new(), self.last_group());
            for (redundancy, sides) in &new {
                if *redundancy == Redundancy::Mirror {
                    last = last.checked_add(1).ok_or(Error::TooManyGroups)?;
                }
                let mirror = if *redundancy == Redundancy::Mirror { last } else { 0 };
                listed.extend(sides.iter().map(|log| log.listed(mirror)));
            }
            self.log.stand_down();
            let before = (self.aux.read().clone(), self.features.read().clone());
            self.log_devices.write().extend(all().cloned());
            self.aux.write().extend(listed);
            self.fit_log_features();
            let coming: Vec<_> = all().map(|log| Arc::clone(&log.device)).collect();
            self.write_labels_or(&coming, || {
                (*self.aux.write(), *self.features.write()) = before;
                self.log_devices.write().retain(|log| !all().any(|new| new.guid == log.guid));
            })?;
        }
        self.commit_changes()
    }

    /// What stands before each log device that is here, by its path.
    pub(crate) fn log_injectors(&self) -> Vec<(String, Arc<Injector>)> {
        self.log_devices.read().iter().map(|log| (log.path.clone(), Arc::clone(&log.injector))).collect()
    }

    /// Log devices as status shows them.
    pub(crate) fn log_devices_status(&self) -> Vec<LogDeviceStatus> {
        let aux = self.aux.read().clone();
        let status = |aux: AuxConfig| {
            let here = self.log_here(aux.guid);
            let missing = || {
                let why = match aux.log.out {
                    _ if aux.given_up => "given up",
                    Some(LogOut::Gone) => "was not found at import",
                    Some(LogOut::Offline) | None => "not here",
                };
                why.to_owned()
            };
            let of = |count: fn(&LogDevice) -> &AtomicU64| {
                here.as_ref().map_or(0, |log| count(log).load(Ordering::Relaxed))
            };
            LogDeviceStatus {
                size_bytes: here.as_ref().map_or(0, |log| u64::from(log.slots) * u64::from(log.slot_size)),
                trouble: here.as_ref().map_or_else(|| Some(missing()), |log| log.trouble.lock().clone()),
                sample: here.as_ref().map(|log| log.meter.sample()),
                errors: (of(|log| &log.read_errors), of(|log| &log.write_errors)),
                checksum_errors: of(|log| &log.checksum_errors),
                mirror: aux.log.mirror,
                out: aux.log.out,
                presence: here.as_ref().map_or(Presence::Removed, |log| log.device.presence()),
                given_up: aux.given_up,
                guid: aux.guid,
                path: aux.path,
            }
        };
        aux.into_iter().filter(|aux| aux.class == AuxClass::Log).map(status).collect()
    }
}
