//! Faults on purpose on a pool's devices, log devices and cache devices, to see the pool heal.
//! Nothing of it is stored: a fault ends with the import. A spare that waits is never read or
//! written, so it cannot be given a fault.

use std::sync::Arc;

use steadfast_device::inject::Injector;
pub use steadfast_device::inject::{Armed, Calls, Injection, When};

use crate::Pool;
use crate::core::error::{Error, Result};

impl Pool {
    /// Fault injectors of the devices in use, by path.
    fn injectors(&self) -> Vec<(String, Arc<Injector>)> {
        let leaves = self.devices.leaves().into_iter().map(|leaf| (leaf.path(), Arc::clone(&leaf.injector)));
        leaves.chain(self.zil.log_injectors()).chain(self.devices.cache_injectors()).collect()
    }

    /// Injects something into the calls of the device at this path.
    ///
    /// # Errors
    /// If the pool uses no such device.
    pub fn inject(&self, path: &str, injection: Injection) -> Result<()> {
        let found = self.injectors().into_iter().find(|(known, _)| known == path);
        let (_, injector) =
            found.ok_or_else(|| Error::ForeignDevice { path: path.to_owned(), pool: self.name() })?;
        injector.arm(injection);
        Ok(())
    }

    /// Faults injected, by path of the device.
    #[must_use]
    pub fn injected(&self) -> Vec<(String, Vec<Armed>)> {
        let armed = self.injectors().into_iter().map(|(path, injector)| (path, injector.armed()));
        armed.filter(|(_, armed)| !armed.is_empty()).collect()
    }

    /// Injects nothing any more into the device at this path, or into any. Gives how many
    /// injections there were.
    pub fn clear_injected(&self, path: Option<&str>) -> usize {
        let all = self.injectors().into_iter();
        all.filter(|(known, _)| path.is_none_or(|path| known == path))
            .map(|(_, injector)| injector.clear())
            .sum()
    }
}
