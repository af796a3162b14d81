//! Log devices come, go and change places while they are in use: mirrors and single ones.
//!
//! | verb                          | the log device                          | its content |
//! |-------------------------------|-----------------------------------------|---|
//! | attach to a single one        | becomes a mirror of two                 | nothing: groups go to both from the next commit on |
//! | attach to a mirror            | has a side more                         | the same |
//! | detach                        | has a side less; of two, stands alone   | is not needed |
//! | replace                       | another one takes its place             | nothing |
//! | offline                       | is not written; others are, or the pool | is not needed, and not believed |
//! | online, clear                 | is in use again                         | does not count |
//! | remove                        | goes, with all of its mirror            | is not needed |
//!
//! Nothing is copied by any of them: each is a list of [`LogChange`]s that the next commit takes at
//! its beginning. Its root holds all earlier promises [log_device.1], its labels say what is true
//! from then on [log_device.2], and then the log goes on [log_device.6].
//!
//! ## What a crash does
//! *Before the uberblock of that commit*: labels and the content of the listed devices are as they
//! were. *After it, before all leaves have their labels*: no group counts, whichever devices the
//! labels list. *Later*: the change is done.

use crate::log::log_change::LogChange;
use crate::log::state::Zil;
use std::sync::Arc;

use steadfast_device::Device;
use steadfast_device::inject::Injector;
use steadfast_format::{
    AuxClass, AuxConfig, Feature, LabelConfig, LogOut, LogPart, Placement, PoolState, medium,
};

use crate::core::error::{Error, Result};
use crate::devices::groups::DeviceHandle;
use crate::devices::offline::Offline;
use crate::log::log_device::{self, LogDevice, is_beside};

impl Zil {
    /// The log device that labels list with this path.
    fn log_listed(&self, path: &str) -> Option<AuxConfig> {
        let aux = self.devices.aux.listed.read();
        aux.iter().find(|aux| aux.class == AuxClass::Log && aux.path == path).cloned()
    }

    /// The log device that a verb means by this path: none, if a device that holds segments has
    /// come where a lost one was.
    pub(crate) fn log_named(&self, path: &str) -> Option<AuxConfig> {
        let is_leaf = self.devices.leaves().iter().any(|leaf| leaf.path() == path);
        self.log_listed(path).filter(|_| !is_leaf)
    }

    /// Features say what labels list.
    pub(crate) fn fit_log_features(&self) {
        let (any, mirrors) = {
            let aux = self.devices.aux.listed.read();
            let logs = || aux.iter().filter(|aux| aux.class == AuxClass::Log);
            (logs().next().is_some(), logs().any(|aux| aux.log != LogPart::default()))
        };
        let mut features = self.core.features.write();
        for (name, is_used) in [(log_device::FEATURE, any), (log_device::MIRRORS, mirrors)] {
            match (is_used, features.iter().any(|feature| feature.name == name)) {
                (true, false) => features.extend(Feature::known(name)),
                (false, true) => features.retain(|feature| feature.name != name),
                _ => {}
            }
        }
    }

    /// Takes the changes of log devices that are due, and gives up those that failed. At the
    /// beginning of a commit, under `sync_turn` ([log_device.1], [log_device.2]).
    pub(crate) fn settle_logs(&self) {
        let is_held = self.held.lock().count() > 0;
        let mut changes: Vec<LogChange> = Vec::new();
        for sides in self.logs_in_use() {
            let (failed, whole): (Vec<_>, Vec<_>) = sides.into_iter().partition(|log| log.has_failed());
            // A group held for a key may lie on one side only, and no root holds it.
            if !is_held || !whole.is_empty() {
                changes.extend(failed.iter().map(|log| LogChange::Out { guid: log.guid, out: None }));
            }
        }
        if !is_held {
            changes.append(&mut self.changes.lock());
        }
        if changes.is_empty() {
            return;
        }
        self.log.stand_down();
        self.log.want();
        let groups = self.devices.last_of_groups();
        {
            let mut aux = self.devices.aux.listed.write();
            let logs = aux.iter().filter(|aux| aux.class == AuxClass::Log);
            *self.devices.aux.logs_before.lock() = Some(logs.cloned().collect());
            changes.iter().for_each(|change| change.list(&mut aux, groups));
        }
        {
            let mut devices = self.log_devices.write();
            for device in changes.iter().filter_map(LogChange::device) {
                devices.retain(|known| known.guid != device.guid);
                devices.push(Arc::clone(device));
            }
        }
        self.devices.labels_due.mark();
    }

    /// The root under way is durable: labels say from now on what is so, and those that they list
    /// no more take none.
    pub(crate) fn logs_settled(&self) {
        if self.devices.aux.logs_before.lock().take().is_none() {
            return;
        }
        let listed = self.devices.aux.listed.read().clone();
        self.log_devices.write().retain(|known| listed.iter().any(|aux| aux.guid == known.guid));
        self.fit_log_features();
    }

    /// Log devices that are here, and in use as labels are to list them: with one that goes in the
    /// commit under way, as long as its root is not durable ([log_device.2], [log_device.3]).
    pub(crate) fn labelled_logs(&self) -> Vec<Arc<LogDevice>> {
        let listed = self.devices.labelled_aux();
        let used = listed.iter().filter(|aux| aux.class == AuxClass::Log && aux.is_in_use());
        used.filter_map(|aux| self.log_here(aux.guid)).collect()
    }

    /// Has changes of log devices made. Durable when it returns.
    fn change_logs(&self, changes: Vec<LogChange>) -> Result<()> {
        {
            let _turn = self.core.sync_turn.lock();
            self.check_log_free()?;
            let (mut aux, groups) = (self.devices.aux.listed.read().clone(), self.devices.last_of_groups());
            changes.iter().for_each(|change| change.list(&mut aux, groups));
            let leaf = self.devices.leaves().into_iter().next().expect("a pool has a leaf");
            let mut label =
                self.devices.label_of(&leaf, PoolState::Active, self.core.txgs.commits.committed());
            if !self.core.has_feature(log_device::MIRRORS) {
                label.features.extend(Feature::known(log_device::MIRRORS));
            }
            if (LabelConfig { aux, ..label }).encode(steadfast_crypto::hash).is_none() {
                return Err(Error::LabelTooLong { pool: self.core.name() });
            }
            self.changes.lock().extend(changes);
        }
        self.settle_labels()
    }

    /// Commits until labels say what is so. Where a log device fails meanwhile, the commit that
    /// gives it up writes them.
    pub(crate) fn settle_labels(&self) -> Result<()> {
        let most = self.devices.aux.listed.read().len() + 2;
        for _ in 0..most {
            self.core.commit_changes()?;
            if !self.devices.labels_due.is_due() {
                return Ok(());
            }
        }
        let failed = self.logs_in_use().into_iter().flatten().find(|log| log.has_failed());
        let path = failed.map_or_else(|| self.core.name(), |log| log.path.clone());
        Err(Error::LogUnfit { path, reason: "labels could not be written".to_owned() })
    }

    /// Others of the mirror of a log device, that one among them.
    fn sides_of(&self, log: &AuxConfig) -> Vec<AuxConfig> {
        let aux = self.devices.aux.listed.read();
        let is_side = |aux: &&AuxConfig| aux.guid == log.guid || is_beside(aux, log);
        aux.iter().filter(is_side).cloned().collect()
    }

    /// Makes a log device of one that is to come beside these, or in the place of one of them. It
    /// loses what it held.
    fn new_side(
        &self,
        sides: &[AuxConfig],
        old: Option<&AuxConfig>,
        handle: DeviceHandle,
        force: bool,
    ) -> Result<Arc<LogDevice>> {
        let is_old = |aux: &AuxConfig| old.is_some_and(|old| old.guid == aux.guid);
        let is_listed =
            self.devices.aux.listed.read().iter().any(|aux| aux.path == handle.path && !is_old(aux));
        if is_listed || self.devices.leaves().iter().any(|leaf| leaf.path() == handle.path) {
            return Err(Error::Twice { path: handle.path });
        }
        if let Some(old) = old.filter(|old| old.path == handle.path && old.is_in_use()) {
            return Err(Error::StillInUse { pool: self.core.name(), path: old.path.clone() });
        }
        crate::devices::probe::check_unoccupied(&handle, force)?;
        let character = handle.device.character();
        if !character.appendable {
            return Err(Error::GroupOfObjects { path: handle.path, group: "mirror".to_owned() });
        }
        let guid = self.core.env.random.nonzero_u64();
        let log =
            LogDevice::new(&self.core.env, &self.core.events, guid, handle, self.core.identity.slot_size);
        let here = sides.iter().filter_map(|aux| self.log_here(aux.guid));
        let least = here.map(|log| log.slots).min().unwrap_or(0).max(1);
        if log.slots < least {
            let (bytes, needed) =
                (character.size_bytes, medium::device_bytes(least, self.core.identity.slot_size));
            return Err(Error::TooSmall { path: log.path.clone(), bytes, needed });
        }
        crate::devices::probe::erase(&*log.device)?;
        log.prepare()?;
        Ok(Arc::new(log))
    }

    /// Adds a side to a log mirror, or makes one of a single log device. Durable when it returns.
    pub(crate) fn attach_log(&self, beside: &AuxConfig, new: DeviceHandle, force: bool) -> Result<()> {
        self.check_log_free()?;
        let sides = self.sides_of(beside);
        let (devices, most) = (sides.len() + 1, Placement::COPIES_MAX);
        if devices > most {
            return Err(Error::GroupSize { group: "mirror".to_owned(), devices, least: 2, most });
        }
        if beside.log.mirror == 0 && self.devices.last_group() == u8::MAX {
            return Err(Error::TooManyGroups);
        }
        let device = self.new_side(&sides, None, new, force)?;
        self.change_logs(vec![LogChange::Join { beside: beside.guid, device }])
    }

    /// Takes a side out of a log mirror. Durable when it returns.
    pub(crate) fn detach_log(&self, log: &AuxConfig) -> Result<()> {
        let sides = self.sides_of(log);
        if sides.len() < 2 {
            let reason = "it stands alone; `zpool remove` lets a pool live without it";
            return Err(Error::Detach { pool: self.core.name(), path: log.path.clone(), reason });
        }
        let is_enough = |aux: &AuxConfig| {
            let here = || self.log_here(aux.guid).is_some_and(|here| !here.has_failed());
            aux.guid != log.guid && aux.is_in_use() && here()
        };
        if !sides.iter().any(is_enough) {
            return Err(Error::DeviceNeeded { pool: self.core.name(), path: log.path.clone() });
        }
        let here = self.log_here(log.guid);
        self.change_logs(vec![LogChange::Leave(vec![log.guid])])?;
        here.into_iter().for_each(|here| here.part_with());
        Ok(())
    }

    /// Puts a device into the place of a log device. Durable when it returns.
    pub(crate) fn replace_log(&self, old: &AuxConfig, new: DeviceHandle, force: bool) -> Result<()> {
        self.check_log_free()?;
        let here = self.log_here(old.guid);
        let in_place = new.path == old.path;
        let device = self.new_side(&self.sides_of(old), Some(old), new, force)?;
        self.change_logs(vec![LogChange::Swap { old: old.guid, device }])?;
        match here {
            // The path names the new device now.
            Some(here) if in_place => here.release(),
            Some(here) => here.part_with(),
            None => {}
        }
        Ok(())
    }

    /// Takes a log device out of use; the last one too, for the log goes on in the pool. Durable
    /// when it returns.
    pub(crate) fn offline_log(&self, log: &AuxConfig, how: Offline) -> Result<()> {
        let out = match how {
            Offline { until_import: true, .. } => Some(LogOut::Gone),
            Offline { as_failed: true, .. } => None,
            Offline { .. } => Some(LogOut::Offline),
        };
        let is_out = log.given_up || log.log.out == Some(LogOut::Offline);
        if is_out && (log.given_up || !how.as_failed) {
            return Ok(());
        }
        self.change_logs(vec![LogChange::Out { guid: log.guid, out }])
    }

    /// Takes a log device into use again: as it is, or as `open` finds it. True if it was out of
    /// use.
    pub(crate) fn online_log(
        &self,
        log: &AuxConfig,
        open: &dyn Fn() -> Result<Arc<dyn Device>>,
    ) -> Result<bool> {
        let here = self.log_here(log.guid);
        if log.is_in_use() && here.is_some() {
            return Ok(false);
        }
        self.check_log_free()?;
        let device = match here {
            Some(here) if here.is_usable() => here,
            here => {
                let kept = here.map(|here| {
                    here.release();
                    Arc::clone(&here.injector)
                });
                let injector = kept.unwrap_or_else(|| Injector::new(Arc::clone(&self.core.env.clock)));
                let handle = DeviceHandle { path: log.path.clone(), device: open()? };
                let label = crate::devices::probe::label_of(&*handle.device)?;
                if label.pool != self.core.identity.guid || label.device_guid != log.guid {
                    return Err(Error::ForeignDevice { path: handle.path, pool: self.core.name() });
                }
                let (env, events, size) = (&self.core.env, &self.core.events, self.core.identity.slot_size);
                Arc::new(LogDevice::with_injector(env, events, log.guid, handle, size, injector))
            }
        };
        self.change_logs(vec![LogChange::In(device)])?;
        Ok(true)
    }

    /// Log devices that import found beside others of their mirrors, which have all: after its
    /// first commit nothing that they lack counts. True if there are any; then another commit takes
    /// them into use.
    pub(crate) fn take_back_logs(&self, guids: &[u64]) -> bool {
        if self.held.lock().count() > 0 {
            return false;
        }
        let here = guids.iter().filter_map(|guid| self.log_here(*guid));
        let changes: Vec<LogChange> = here.map(LogChange::In).collect();
        let any = !changes.is_empty();
        self.changes.lock().extend(changes);
        if any {
            self.core.health.changed.note();
        }
        any
    }

    /// Releases a log device that is out of use.
    pub(crate) fn let_go_of_log(&self, log: &AuxConfig) -> Result<()> {
        let here = self.log_here(log.guid);
        if log.is_in_use() && here.is_some() {
            return Err(Error::StillInUse { pool: self.core.name(), path: log.path.clone() });
        }
        here.into_iter().for_each(|here| here.release());
        Ok(())
    }

    /// Takes a device away from the intent log, by its path, with all of its mirror; groups go
    /// elsewhere from now on. Durable when it returns.
    pub fn remove_log(&self, path: &str) -> Result<()> {
        self.core.check_writable()?;
        let Some(log) = self.log_listed(path) else {
            return Err(Error::NoSuchLog { pool: self.core.name(), path: path.to_owned() });
        };
        let guids: Vec<u64> = self.sides_of(&log).iter().map(|aux| aux.guid).collect();
        let here: Vec<Arc<LogDevice>> = guids.iter().filter_map(|guid| self.log_here(*guid)).collect();
        self.change_logs(vec![LogChange::Leave(guids)])?;
        here.iter().for_each(|log| log.part_with());
        Ok(())
    }

    /// Forgets what was counted of log devices, of all if none is named.
    pub(crate) fn clear_log_errors(&self, paths: &[String]) {
        for log in self.log_devices.read().iter() {
            if paths.is_empty() || paths.contains(&log.path) {
                log.forget_errors();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use steadfast_device::MemoryDevice;
    use steadfast_env::Env;

    use super::*;
    use crate::core::events::Events;

    fn log(guid: u64, mirror: u8) -> AuxConfig {
        let log = LogPart { mirror, out: None };
        AuxConfig { log, ..AuxConfig::new(AuxClass::Log, guid, format!("l{guid}")) }
    }

    #[test]
    fn one_that_is_left_of_a_mirror_stands_alone() {
        let spare = AuxConfig::new(AuxClass::Spare, 9, "s".into());
        let mut aux = vec![log(1, 3), spare.clone(), log(2, 3), log(3, 5), log(4, 5), log(5, 5), log(6, 0)];
        LogChange::Leave(vec![2, 4]).list(&mut aux, 0);
        assert_eq!(aux, [log(1, 0), spare.clone(), log(3, 5), log(5, 5), log(6, 0)]);
        LogChange::Leave(vec![3, 5]).list(&mut aux, 0);
        assert_eq!(aux, [log(1, 0), spare, log(6, 0)]);
    }

    #[test]
    fn one_is_out_for_a_while_or_for_ever_and_stays_of_its_mirror() {
        let mut aux = vec![log(1, 3), log(2, 3)];
        for out in [Some(LogOut::Offline), Some(LogOut::Gone), None] {
            LogChange::Out { guid: 2, out }.list(&mut aux, 0);
            assert_eq!((aux[1].given_up, aux[1].log), (out.is_none(), LogPart { mirror: 3, out }));
            assert!(aux[0].is_in_use() && !aux[1].is_in_use());
        }
        assert_eq!(log_device::grouped(&aux).len(), 1);
        // A device that is not listed changes nothing.
        LogChange::Out { guid: 7, out: None }.list(&mut aux, 0);
        assert!(aux[0].is_in_use());
    }

    #[test]
    fn two_that_get_a_side_at_once_are_two_mirrors() {
        let env = Env::seeded(1);
        let events = Arc::new(Events::new(Arc::clone(&env.clock)));
        let device = |guid: u64| {
            let device = Arc::new(MemoryDevice::new("m", 64 << 20)) as Arc<dyn Device>;
            let handle = DeviceHandle { path: format!("l{guid}"), device };
            Arc::new(LogDevice::new(&env, &events, guid, handle, 1 << 20))
        };
        let mut aux = vec![log(1, 0), log(2, 0)];
        for (beside, guid) in [(1, 3), (2, 4), (1, 5)] {
            LogChange::Join { beside, device: device(guid) }.list(&mut aux, 6);
        }
        assert_eq!(aux, [log(1, 7), log(3, 7), log(5, 7), log(2, 8), log(4, 8)]);
    }
}
