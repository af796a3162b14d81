//! Gives a pool another number (`zpool reguid`): copies of its images are then another pool, and
//! both can be imported at once.
//!
//! The number that blocks, uberblocks, logs and keys are bound to stays. Labels carry the number by
//! which people know the pool. The number changes in two rounds. In the first all labels name the
//! number that comes, in the second they all say that it counts. So at every moment the devices'
//! labels name two numbers at most, and which of them counts does not depend on which devices are
//! found.
//!
//! ## Invariants
//! [reguid.1] No device says the new number before all have said that it comes: [`crate::scan()`]
//!      puts devices of both rounds together.
//! [reguid.2] All devices are here: a missing one would be left behind with the old number.
//!      `check_whole`

use crate::Pool;
use steadfast_format::{Feature, LeafState, PoolGuid, PoolState};

use crate::core::error::{Error, Result};
use crate::log::log_device::LogDeviceStatus;

/// Name of the feature.
pub(crate) const FEATURE: &str = "renumbered";

impl Pool {
    /// Gives the pool another number: the wanted one, or a random one. Durable when it returns.
    pub fn reguid(&self, wanted: Option<PoolGuid>) -> Result<()> {
        self.core.check_writable()?;
        self.core.check_no_checkpoint()?;
        let _turn = self.core.sync_turn.lock();
        self.check_whole()?;
        let new = wanted.unwrap_or_else(|| PoolGuid(self.core.env.random.nonzero_u64()));
        let features = self.core.features.read().clone();
        if !self.core.has_feature(FEATURE) {
            self.core.features.write().extend(Feature::known(FEATURE));
        }
        *self.core.identity.becoming.write() = Some(new);
        let committed = self.core.txgs.commits.committed();
        if let Err(error) = self.devices.write_labels(PoolState::Active, committed) {
            // Nobody says the new number, so it never was.
            *self.core.identity.becoming.write() = None;
            *self.core.features.write() = features;
            self.devices.labels_due.mark();
            return Err(error);
        }
        // From here on it is the new one: some devices may say so.
        *self.core.identity.known_as.write() = Some(new);
        *self.core.identity.becoming.write() = None;
        self.devices.labels_due.mark();
        self.devices.write_labels(PoolState::Active, committed)
    }

    /// [reguid.2]
    pub(crate) fn check_whole(&self) -> Result<()> {
        let away = |path: String| Err(Error::NotWhole { pool: self.core.name(), path });
        for leaf in self.devices.leaves() {
            let is_here = leaf.in_use().is_some() && !self.core.space.is_out_of_use(leaf.id());
            if !is_here || leaf.config().state != LeafState::Online {
                return away(leaf.path());
            }
        }
        let is_away = |log: &LogDeviceStatus| log.sample.is_none() || log.out.is_some();
        let logs = self.zil.log_devices_status().into_iter().find(is_away).map(|log| log.path);
        let spares = self.devices.spares_status().into_iter().find(|spare| spare.trouble.is_some());
        let mut caches = self.devices.caches_status().into_iter();
        let caches = caches.find(|cache| cache.trouble.is_some() || cache.is_offline);
        let missing = logs.or(spares.map(|spare| spare.path)).or(caches.map(|cache| cache.path));
        missing.map_or(Ok(()), away)
    }
}
