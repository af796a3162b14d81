//! Verbs of one device, by its path. It holds segments, or it is a log device: its room does the
//! work.

use std::sync::Arc;

use steadfast_device::Device;

use crate::core::error::Result;
use crate::devices::groups::DeviceHandle;
use crate::{Offline, Pool};

impl Pool {
    /// Adds a device to the group of another, or makes a mirror of one that stands alone. Begun
    /// when it returns; a resilver ends it, or the evening out of a raidz group.
    pub fn attach(&self, path: &str, new: DeviceHandle, force: bool) -> Result<()> {
        self.core.check_no_checkpoint()?;
        if let Some(log) = self.zil.log_named(path) {
            self.core.check_writable()?;
            return self.zil.attach_log(&log, new, force);
        }
        self.devices.attach(path, new, force)
    }

    /// Takes a device out of a mirror, or ends a replacement by giving up one of its halves.
    /// Refused if it holds the last copy of something.
    pub fn detach(&self, path: &str) -> Result<()> {
        self.core.check_no_checkpoint()?;
        if let Some(log) = self.zil.log_named(path) {
            self.core.check_writable()?;
            return self.zil.detach_log(&log);
        }
        self.devices.detach(path)
    }

    /// Takes a device of a group out of use. Refused if the group cannot do without it.
    pub fn offline(&self, path: &str) -> Result<()> {
        self.offline_as(path, Offline::default())
    }

    /// The same in another way.
    pub fn offline_as(&self, path: &str, how: Offline) -> Result<()> {
        if let Some(log) = self.zil.log_named(path) {
            self.core.check_writable()?;
            return self.zil.offline_log(&log, how);
        }
        if let Some(cache) = self.devices.cache_named(path) {
            return self.devices.offline_cache(&cache, how);
        }
        self.devices.offline(path, how)
    }

    /// Takes a device into use again; `open` opens it if that is needed. True if it was out of use.
    pub fn online(&self, path: &str, open: &dyn Fn() -> Result<Arc<dyn Device>>) -> Result<bool> {
        if let Some(log) = self.zil.log_named(path) {
            self.core.check_writable()?;
            return self.zil.online_log(&log, open);
        }
        if let Some(cache) = self.devices.cache_named(path) {
            return self.devices.online_cache(&cache, open);
        }
        self.devices.online(path, open)
    }

    /// Puts a device into the place of another of a group. Begun when it returns; the resilver ends
    /// it.
    pub fn replace(&self, old: &str, new: DeviceHandle, force: bool) -> Result<()> {
        self.core.check_no_checkpoint()?;
        if let Some(log) = self.zil.log_named(old) {
            self.core.check_writable()?;
            return self.zil.replace_log(&log, new, force);
        }
        self.devices.replace(old, new, force)
    }

    /// Gives up the hold on a device that is out of use, so that what lies under its path now can
    /// be opened. Refused for one in use; with `force` not if its labels are gone.
    pub fn let_go(&self, path: &str, force: bool) -> Result<()> {
        if let Some(log) = self.zil.log_named(path) {
            return self.zil.let_go_of_log(&log);
        }
        self.devices.let_go(path, force)
    }
}
