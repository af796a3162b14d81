//! Devices of which the intent log has the whole: how they come, fail, get lost and go.
//!
//! A log device has labels like any other and slots of the pool's size; the log goes round all of them, over several devices if there
//! are several, and takes no room of the pool. The labels of all devices list it.
//!
//! ## Invariants
//! (D1) Where groups go changes only over a commit: the log stands down, and is ready again with the new place when a root
//!      that holds all its groups is durable.                                              `Log::stand_down`, `Log::ready`
//! (D2) A device is marked as given up, or unlisted, only in labels that are written after such a root: nothing on it is
//!      needed then, whatever becomes of it.
//! (D3) Labels of log devices are durable before those of leaves: one that is older than the leaves' is of an earlier copy.
//!                                                                                         `Inner::write_labels`
//!
//! ## When one fails in use
//! The group that was under way is not promised; its callers commit, and that commit gives the device up. From then on groups go to
//! the log devices that are left, or to segments of the pool. The pool says so (status, event) until the device is removed.
//!
//! ## When one is lost
//! A pool that has not given it up is not imported for writing without it: what `fsync` promised may be there and nowhere else. The
//! operator may accept that (`accept_lost_log`), which is noted in the history, and gives it up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_device::inject::{Injected, Injector};
use steadfast_device::metered::Sample;
use steadfast_device::{Device, Meter, Metered, Place, Presence};
use steadfast_env::Env;
use steadfast_format::{
    AuxClass, AuxConfig, DeviceId, Feature, LabelConfig, PoolState, SegmentId, Txg, medium,
};
use steadfast_intent_log::{Medium, MediumError};
use steadfast_segment::{LogSegment, Space};

use crate::create::DeviceHandle;
use crate::error::{Error, Result};
use crate::events::{EventKind, Events};
use crate::inner::Inner;
use crate::scan::FoundPool;

/// Name of the feature.
pub(crate) const FEATURE: &str = "log_device";
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
    /// Bytes that groups can fill; 0 if it is not here.
    pub size_bytes: u64,
    /// The pool does without it for ever.
    pub given_up: bool,
    /// Why, if it failed since import; or why it is not here.
    pub trouble: Option<String>,
    /// What was asked of it, with times.
    pub sample: Option<Sample>,
    /// Reads, and writes and flushes, that failed.
    pub errors: (u64, u64),
    /// Is what was opened still there?
    pub presence: Presence,
}

/// A log device that is here.
pub(crate) struct LogDevice {
    pub guid: u64,
    pub path: String,
    device: Arc<dyn Device>,
    meter: Arc<Meter>,
    /// Faults on purpose.
    injector: Arc<Injector>,
    events: Arc<Events>,
    slots: u32,
    slot_size: u32,
    /// What failed, once something did.
    trouble: Mutex<Option<String>>,
    /// No group is written here any more: it is being removed.
    leaving: AtomicBool,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
}

impl LogDevice {
    fn new(env: &Env, events: &Arc<Events>, guid: u64, handle: DeviceHandle, slot_size: u32) -> LogDevice {
        let ear = Arc::clone(events);
        let on_error = Box::new(move |error: &steadfast_device::Error| ear.device_failed(error));
        let DeviceHandle { path, device } = handle;
        let fits = medium::slot_count(device.character().size_bytes, slot_size);
        let injector = Injector::new(Arc::clone(&env.clock));
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
            leaving: AtomicBool::new(false),
            read_errors: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
        }
    }

    fn place(&self, slot: u32) -> Place {
        Place { segment: SegmentId(u64::from(slot) + 1), slot, slot_size: self.slot_size }
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

    fn has_failed(&self) -> bool {
        self.trouble.lock().is_some()
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
    fn prepare(&self) -> steadfast_device::Result<()> {
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
        self.device.release();
    }
}

/// Where a part of the log lies.
enum Part {
    Segment(LogSegment),
    Device(Arc<LogDevice>, u32),
}

/// Segments of the pool, slots of log devices, or both: the log's medium.
pub(crate) struct LogMedium {
    space: Arc<Space>,
    parts: Vec<Part>,
}

impl LogMedium {
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// True if it lies among what the pool holds, and not on devices of its own.
    pub fn is_in_pool(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Segment(_)))
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
            Part::Device(..) => self.space.geometry().slot_size,
        }
    }

    fn copies(&self, segment: usize) -> usize {
        match &self.parts[segment] {
            Part::Segment(at) => at.copies(),
            Part::Device(..) => 1,
        }
    }

    fn write(&self, segment: usize, offset: u32, bytes: &[u8]) -> std::result::Result<(), MediumError> {
        match &self.parts[segment] {
            Part::Segment(at) => Ok(self.space.write_log(at, offset, bytes)?),
            Part::Device(device, slot) => Ok(device.write(*slot, offset, bytes)?),
        }
    }

    fn flush(&self, segment: usize) -> std::result::Result<(), MediumError> {
        match &self.parts[segment] {
            Part::Segment(at) => Ok(self.space.flush_log(at)?),
            Part::Device(device, _) => Ok(device.flush()?),
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
            Part::Device(device, slot) => Ok(device.read(*slot, offset, out)?),
        }
    }
}

/// Log devices that import found, and the auxiliary devices as labels list them from now on.
pub(crate) struct FoundLogs {
    pub devices: Vec<Arc<LogDevice>>,
    pub aux: Vec<AuxConfig>,
    /// Those that are needed and not here, and why what is there does not count.
    pub missing: Vec<(u64, &'static str)>,
}

/// Finds the log devices that a pool's labels list.
pub(crate) fn find(env: &Env, events: &Arc<Events>, found: &FoundPool) -> FoundLogs {
    let config = &found.config;
    let mut logs = FoundLogs { devices: Vec::new(), aux: config.aux.clone(), missing: Vec::new() };
    for aux in logs.aux.iter_mut().filter(|aux| aux.class == AuxClass::Log && !aux.given_up) {
        let is_it = |label: &LabelConfig| label.device.0 == 0 && label.device_guid == aux.guid;
        match found.devices.iter().find(|device| is_it(&device.label)) {
            None => logs.missing.push((aux.guid, "it was not found")),
            Some(here) if here.label.txg < config.txg => {
                logs.missing.push((aux.guid, "what was found is an earlier copy of it")); // (D3)
            }
            Some(here) => {
                aux.path = here.handle.path.clone();
                let device = LogDevice::new(env, events, aux.guid, here.handle.clone(), config.slot_size);
                logs.devices.push(Arc::new(device));
            }
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

    fn given_up(&self, guid: u64) -> bool {
        self.aux.read().iter().any(|aux| aux.guid == guid && aux.given_up)
    }

    /// Log devices that are in use: here, not given up, not leaving.
    fn logs_in_use(&self) -> Vec<Arc<LogDevice>> {
        let all = self.log_devices.read().clone();
        let used = |log: &Arc<LogDevice>| !self.given_up(log.guid) && !log.leaving.load(Ordering::Acquire);
        all.into_iter().filter(used).collect()
    }

    fn medium_of(&self, devices: &[Arc<LogDevice>], segments: Vec<LogSegment>) -> LogMedium {
        let slots =
            devices.iter().flat_map(|log| (0..log.slots).map(|slot| Part::Device(Arc::clone(log), slot)));
        let parts = segments.into_iter().map(Part::Segment).chain(slots).collect();
        LogMedium { space: Arc::clone(&self.space), parts }
    }

    /// All places where groups that still count may lie.
    pub(crate) fn log_medium(&self) -> LogMedium {
        self.medium_of(&self.logs_in_use(), self.space.log_segments())
    }

    /// Where groups go from now on: log devices, or without any the pool's own segments.
    pub(crate) fn log_target(&self) -> LogMedium {
        let devices = self.logs_in_use();
        let segments = if devices.is_empty() { self.space.log_segments() } else { Vec::new() };
        self.medium_of(&devices, segments)
    }

    /// Gives up log devices that failed. At the beginning of a commit, under `sync_turn` (D1, D2).
    pub(crate) fn give_up_failed_logs(&self) {
        let failed: Vec<u64> =
            self.logs_in_use().iter().filter(|log| log.has_failed()).map(|log| log.guid).collect();
        // What is held for a key that is not there may lie on one, and no root holds it.
        if failed.is_empty() || self.held.lock().count() > 0 {
            return;
        }
        self.log.stand_down();
        self.log.want();
        self.mark_given_up(&failed);
        self.commit_state.lock().labels_dirty = true;
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
        for log in self.logs_in_use() {
            let label = self.label_of_log(&log, state, txg);
            let label = label.ok_or_else(|| Error::LabelTooLong { pool: self.name() })?;
            let written = copies.iter().try_for_each(|copy| log.device.write_label(*copy, &label));
            let Err(error) = log.hear(written.and_then(|()| log.device.flush())) else { continue };
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
        for (guid, reason) in missing {
            let aux = self.aux.read().iter().find(|aux| aux.guid == *guid).cloned();
            let path = aux.expect("labels list it").path;
            if !accept {
                let (pool, reason) = (self.name(), (*reason).to_owned());
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

    fn check_log_free(&self) -> Result<()> {
        match self.held.lock().count() {
            0 => Ok(()),
            datasets => Err(Error::LogHeld { pool: self.name(), datasets }),
        }
    }

    /// Refuses what cannot become a log device of this pool.
    fn check_new_logs(&self, handles: &[DeviceHandle], force: bool) -> Result<()> {
        self.check_writable()?;
        self.need_feature("intent_log")?;
        self.check_log_free()?;
        let known = |path: &str| {
            self.leaves().iter().any(|leaf| leaf.path() == path)
                || self.log_devices.read().iter().any(|log| log.path == path)
        };
        for (index, handle) in handles.iter().enumerate() {
            let twice = handles[..index].iter().any(|other| other.path == handle.path);
            if twice || known(&handle.path) {
                return Err(Error::Twice { path: handle.path.clone() });
            }
            crate::grow::check_unoccupied(handle, force)?;
            let bytes = handle.device.character().size_bytes;
            if medium::slot_count(bytes, self.slot_size) == 0 || !handle.device.character().appendable {
                return Err(Error::TooSmall { path: handle.path.clone(), bytes });
            }
        }
        Ok(())
    }

    /// Gives the intent log devices of its own, which lose what they held. Durable when it returns.
    pub(crate) fn add_logs(&self, handles: Vec<DeviceHandle>, force: bool, dry_run: bool) -> Result<()> {
        self.check_new_logs(&handles, force)?;
        if dry_run {
            return Ok(());
        }
        let new: Vec<Arc<LogDevice>> = handles
            .into_iter()
            .map(|handle| {
                let guid = self.env.random.nonzero_u64();
                Arc::new(LogDevice::new(&self.env, &self.events, guid, handle, self.slot_size))
            })
            .collect();
        for log in &new {
            crate::scan::erase(&*log.device)?;
            log.prepare()?;
        }
        {
            let _turn = self.sync_turn.lock();
            self.check_log_free()?;
            self.log.stand_down();
            let before = (self.aux.read().clone(), self.features.read().clone());
            self.log_devices.write().extend(new.iter().cloned());
            for log in &new {
                self.aux.write().push(AuxConfig::new(AuxClass::Log, log.guid, log.path.clone()));
            }
            if !self.has_feature(FEATURE) {
                self.features.write().extend(Feature::known(FEATURE));
            }
            let written = self.write_labels(PoolState::Active, self.txgs.commits.committed());
            if written.is_err() {
                (*self.aux.write(), *self.features.write()) = before;
                self.log_devices.write().retain(|log| !new.iter().any(|new| new.guid == log.guid));
                return written;
            }
        }
        self.commit_changes()
    }

    /// Takes a log device away. Groups go elsewhere from now on. Durable when it returns.
    pub(crate) fn remove_log(&self, path: &str) -> Result<()> {
        self.check_writable()?;
        let aux = self.aux.read().clone();
        let aux = aux.into_iter().find(|aux| aux.class == AuxClass::Log && aux.path == path);
        let Some(aux) = aux else {
            return Err(Error::NoSuchLog { pool: self.name(), path: path.to_owned() });
        };
        self.check_log_free()?;
        let device = self.log_devices.read().iter().find(|log| log.guid == aux.guid).cloned();
        if let Some(device) = device.as_ref().filter(|_| !aux.given_up) {
            {
                let _turn = self.sync_turn.lock();
                device.leaving.store(true, Ordering::Release);
                self.log.stand_down();
                self.log.want();
            }
            // From here on nothing on it is needed (D1).
            self.commit_changes().inspect_err(|_| device.leaving.store(false, Ordering::Release))?;
        }
        {
            let _turn = self.sync_turn.lock();
            self.aux.write().retain(|other| other.guid != aux.guid);
            self.log_devices.write().retain(|log| log.guid != aux.guid);
            if !self.aux.read().iter().any(|aux| aux.class == AuxClass::Log) {
                self.features.write().retain(|feature| feature.name != FEATURE);
            }
            self.write_labels(PoolState::Active, self.txgs.commits.committed())?;
        }
        if let Some(device) = device {
            // It belongs to nobody now; a device that cannot be written keeps a label that no pool answers to.
            let _ = crate::scan::erase(&*device.device);
            device.release();
        }
        Ok(())
    }

    /// What stands before each log device that is here, by its path.
    pub(crate) fn log_injectors(&self) -> Vec<(String, Arc<Injector>)> {
        self.log_devices.read().iter().map(|log| (log.path.clone(), Arc::clone(&log.injector))).collect()
    }

    /// Log devices as status shows them.
    pub(crate) fn log_devices_status(&self) -> Vec<LogDeviceStatus> {
        let aux = self.aux.read().clone();
        let status = |aux: AuxConfig| {
            let here = self.log_devices.read().iter().find(|log| log.guid == aux.guid).cloned();
            let missing = || if aux.given_up { "given up" } else { "not here" }.to_owned();
            LogDeviceStatus {
                size_bytes: here.as_ref().map_or(0, |log| u64::from(log.slots) * u64::from(log.slot_size)),
                trouble: here.as_ref().map_or_else(|| Some(missing()), |log| log.trouble.lock().clone()),
                sample: here.as_ref().map(|log| log.meter.sample()),
                errors: here.as_ref().map_or((0, 0), |log| {
                    (log.read_errors.load(Ordering::Relaxed), log.write_errors.load(Ordering::Relaxed))
                }),
                presence: here.as_ref().map_or(Presence::Removed, |log| log.device.presence()),
                given_up: aux.given_up,
                guid: aux.guid,
                path: aux.path,
            }
        };
        aux.into_iter().filter(|aux| aux.class == AuxClass::Log).map(status).collect()
    }
}
