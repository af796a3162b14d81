//! Log devices of a pool: added, labelled, mended, done without.

use crate::core::error::Error;
use crate::core::error::Result;
use crate::core::events::EventKind;
use crate::devices::groups::DeviceHandle;
use crate::devices::groups::GroupHandles;
use crate::devices::probe::{check_takes_slots, check_unoccupied, lost_labels};
use crate::devices::state::LogLabels;
use crate::log::log_device::LogDevice;
use crate::log::log_device::LogDeviceStatus;
use crate::log::log_device::LogMedium;
use crate::log::log_device::LogMend;
use crate::log::log_device::Part;
use crate::log::log_device::Sides;
use crate::log::log_device::grouped;
use crate::log::log_device::is_beside;
use crate::log::state::Zil;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use steadfast_device::Presence;
use steadfast_device::inject::Injector;
use steadfast_format::AuxClass;
use steadfast_format::AuxConfig;
use steadfast_format::DeviceId;
use steadfast_format::LabelConfig;
use steadfast_format::LogOut;
use steadfast_format::PoolState;
use steadfast_format::Txg;
use steadfast_intent_log::Group;
use steadfast_intent_log::Lack;
use steadfast_segment::LogSegment;
use steadfast_segment::Redundancy;

impl Zil {
    /// Lets log devices rest, if there are any. Promises made on them are in the root of the next
    /// commit [log_device.1]; the first commit after the rest writes groups again.
    pub(crate) fn rest_log_devices(&self) -> Option<LogRest<'_>> {
        if self.logs_in_use().is_empty() {
            return None;
        }
        let _turn = self.core.sync_turn.lock();
        self.rests.store(true, Ordering::Release);
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
        let aux = self.devices.aux.listed.read().clone();
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
        LogMedium { env: self.core.env.clone(), space: Arc::clone(&self.core.space), parts }
    }

    /// All places where groups that still count may lie.
    pub(crate) fn log_medium(&self) -> LogMedium {
        let any = |sides: &Sides| sides.iter().map(|log| log.slots).max();
        self.medium_of(&self.logs_in_use(), self.core.space.log_segments(), any)
    }

    /// Where groups go from now on: log devices, or without any the pool's own segments.
    pub(crate) fn log_target(&self) -> LogMedium {
        let mirrors = self.logs_in_use();
        let segments = if mirrors.is_empty() { self.core.space.log_segments() } else { Vec::new() };
        let all = |sides: &Sides| sides.iter().map(|log| log.slots).min();
        self.medium_of(&mirrors, segments, all)
    }

    /// Notes groups that the replay found lacking on devices. They are written there before the
    /// first commit.
    pub(crate) fn note_lacks(&self, medium: &LogMedium, groups: &[Group], lacks: &[Lack]) {
        self.mends.lock().extend(medium.mends(groups, lacks));
    }

    /// Writes to log devices what they lack of the groups that are being replayed, and others of
    /// their mirrors have. One that cannot be written is given up by the next commit.
    pub(crate) fn mend_logs(&self) {
        let mut healed: BTreeMap<u64, (Arc<LogDevice>, u64)> = BTreeMap::new();
        let mends = std::mem::take(&mut *self.mends.lock());
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
                self.core.events.note(EventKind::LogMended { path, groups });
            }
        }
    }

    fn mark_given_up(&self, guids: &[u64]) {
        for aux in self.devices.aux.listed.write().iter_mut().filter(|aux| guids.contains(&aux.guid)) {
            aux.given_up = true;
        }
    }

    /// Label of a log device as of now.
    fn label_of_log(&self, log: &LogDevice, state: PoolState, txg: Txg) -> Option<Vec<u8>> {
        let leaf = self.devices.leaves().into_iter().next().expect("a pool has a leaf");
        let label = self.devices.label_of(&leaf, state, txg);
        LabelConfig { device: DeviceId(0), device_guid: log.guid, ..label }.encode(steadfast_crypto::hash)
    }

    /// Refuses to go on without log devices that are needed, or gives them up if the operator
    /// accepts that: then what the history is to say. `promised` says whether the root that is
    /// opened names a log, and the pool was not exported.
    pub(crate) fn do_without(
        &self,
        missing: &[(u64, &'static str)],
        accept: bool,
        promised: bool,
    ) -> Result<Vec<String>> {
        let committed = self.core.txgs.commits.committed();
        let empty = !promised && self.held.lock().count() == 0;
        let mut notices = Vec::new();
        let listed = self.devices.aux.listed.read().clone();
        for (guid, reason) in missing {
            let aux = listed.iter().find(|aux| aux.guid == *guid).expect("labels list it");
            let path = aux.path.clone();
            if !accept {
                let others = listed.iter().filter(|other| is_beside(aux, other) && other.guid != *guid);
                let others: Vec<&str> = others.map(|other| other.path.as_str()).collect();
                let pool = self.core.name();
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
            datasets => Err(Error::LogHeld { pool: self.core.name(), datasets }),
        }
    }

    /// Refuses what cannot become log devices of this pool.
    fn check_new_logs(&self, groups: &[GroupHandles], force: bool) -> Result<()> {
        self.core.check_writable()?;
        self.core.need_feature("intent_log")?;
        self.check_log_free()?;
        for group in groups {
            check_log_group(group)?;
        }
        let known = |path: &str| {
            self.devices.leaves().iter().any(|leaf| leaf.path() == path)
                || self.log_devices.read().iter().any(|log| log.path == path)
        };
        let handles: Vec<&DeviceHandle> = groups.iter().flat_map(|group| &group.devices).collect();
        for (index, handle) in handles.iter().enumerate() {
            let twice = handles[..index].iter().any(|other| other.path == handle.path);
            if twice || known(&handle.path) {
                return Err(Error::Twice { path: handle.path.clone() });
            }
            check_unoccupied(handle, force)?;
            check_takes_slots(handle, self.core.identity.slot_size)?;
        }
        Ok(())
    }

    /// Log devices on these devices, which are not written yet.
    pub(crate) fn open_logs(&self, groups: Vec<GroupHandles>) -> Vec<(Redundancy, Sides)> {
        let open = |handle: DeviceHandle| {
            let guid = self.core.env.random.nonzero_u64();
            let slot_size = self.core.identity.slot_size;
            Arc::new(LogDevice::new(&self.core.env, &self.core.events, guid, handle, slot_size))
        };
        let mirror =
            |group: GroupHandles| (group.redundancy, group.devices.into_iter().map(&open).collect::<Sides>());
        groups.into_iter().map(mirror).collect()
    }

    /// Lists new log devices in memory; the next labels say so. An error changes nothing.
    pub(crate) fn list_logs(&self, new: &[(Redundancy, Sides)]) -> Result<()> {
        let (mut listed, mut last) = (Vec::new(), self.devices.last_group());
        for (redundancy, sides) in new {
            if *redundancy == Redundancy::Mirror {
                last = last.checked_add(1).ok_or(Error::TooManyGroups)?;
            }
            let mirror = if *redundancy == Redundancy::Mirror { last } else { 0 };
            listed.extend(sides.iter().map(|log| log.listed(mirror)));
        }
        self.log_devices.write().extend(new.iter().flat_map(|(_, sides)| sides).cloned());
        self.devices.aux.listed.write().extend(listed);
        self.fit_log_features();
        Ok(())
    }

    /// The same of single devices and of mirrors.
    pub fn add_logs(&self, groups: Vec<GroupHandles>, force: bool, dry_run: bool) -> Result<()> {
        self.check_new_logs(&groups, force)?;
        if dry_run {
            return Ok(());
        }
        let new = self.open_logs(groups);
        let all = || new.iter().flat_map(|(_, sides)| sides);
        all().try_for_each(|log| log.wipe())?;
        {
            let _turn = self.core.sync_turn.lock();
            self.check_log_free()?;
            let before = (self.devices.aux.listed.read().clone(), self.core.features.read().clone());
            self.list_logs(&new)?;
            self.log.stand_down();
            let coming: Vec<_> = all().map(|log| Arc::clone(&log.device)).collect();
            self.devices.write_labels_or(&coming, || {
                (*self.devices.aux.listed.write(), *self.core.features.write()) = before;
                self.log_devices.write().retain(|log| !all().any(|new| new.guid == log.guid));
            })?;
        }
        self.core.commit_changes()
    }

    /// Fault injectors of the log devices that are here, by path.
    pub(crate) fn log_injectors(&self) -> Vec<(String, Arc<Injector>)> {
        self.log_devices.read().iter().map(|log| (log.path.clone(), Arc::clone(&log.injector))).collect()
    }

    /// Log devices as status shows them.
    pub(crate) fn log_devices_status(&self) -> Vec<LogDeviceStatus> {
        let aux = self.devices.aux.listed.read().clone();
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

/// Refuses a group that cannot become log devices: parity, or too few devices.
pub(crate) fn check_log_group(group: &GroupHandles) -> Result<()> {
    if matches!(group.redundancy, Redundancy::Raidz(_)) {
        return Err(Error::LogParity);
    }
    crate::devices::groups::check(group)
}

impl LogLabels for Zil {
    /// Writes two copies of the labels of log devices, and makes them durable [log_device.3]. If
    /// one fails, labels of leaves must wait for the commit that gives it up; at the end of the
    /// pool's use here it is given up at once, for nothing on it is needed then.
    fn write_log_labels(&self, copies: [usize; 2], state: PoolState, txg: Txg) -> Result<()> {
        let used: Vec<u64> = self.logs_in_use().iter().flatten().map(|log| log.guid).collect();
        for log in self.labelled_logs() {
            // One that goes with the commit under way holds nothing up.
            let goes = !used.contains(&log.guid);
            if goes && log.has_failed() {
                continue;
            }
            let label = self.label_of_log(&log, state, txg);
            let label = label.ok_or_else(|| Error::LabelTooLong { pool: self.core.name() })?;
            let written = copies.iter().try_for_each(|copy| log.device.write_label(*copy, &label));
            let Err(error) = log.hear(written.and_then(|()| log.device.flush())) else { continue };
            if goes {
                continue;
            }
            self.core.health.changed.note();
            if state == PoolState::Active {
                return Err(Error::LogUnfit { path: log.path.clone(), reason: error.to_string() });
            }
            if self.held.lock().count() == 0 {
                self.mark_given_up(&[log.guid]);
            }
        }
        Ok(())
    }

    fn count_lost_labels(&self) -> Vec<String> {
        let pool = self.core.identity.guid;
        let has_lost = |log: &Arc<LogDevice>| lost_labels(&*log.device, (pool, log.guid));
        let lost: Vec<Arc<LogDevice>> = self.logs_in_use().into_iter().flatten().filter(has_lost).collect();
        // Its part of the log is not read before the next import, so nothing else would tell.
        lost.iter().for_each(|log| _ = log.checksum_errors.fetch_add(1, Ordering::Relaxed));
        lost.iter().map(|log| log.path.clone()).collect()
    }
}

/// While it lives no group goes to a log device: what is promised is committed.
pub(crate) struct LogRest<'a>(&'a Zil);

impl Drop for LogRest<'_> {
    fn drop(&mut self) {
        self.0.rests.store(false, Ordering::Release);
    }
}
