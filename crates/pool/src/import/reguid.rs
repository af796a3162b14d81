//! Another number for a pool (`zpool reguid`): copies of its images are then another pool, and both can be imported at once.
//!
//! What blocks, uberblocks, logs and keys are bound to stays; labels say by which number people know the pool. They change in two rounds:
//! first all say what the pool is about to be known by, then all say that it is. So at every moment the devices' labels name two
//! numbers at most, and which of them counts does not depend on which devices are found.
//!
//! ## Invariants
//! (R1) No device says the new number before all have said that it comes: [`crate::scan()`] puts together those of both rounds.
//! (R2) All devices are there: one that is not would be left behind with the old number.        `Inner::check_whole`

use steadfast_format::{Feature, LeafState, PoolGuid, PoolState};

use crate::core::error::{Error, Result};
use crate::core::inner::Inner;
use crate::log::log_device::LogDeviceStatus;

/// Name of the feature.
pub(crate) const FEATURE: &str = "renumbered";

impl Inner {
    /// Number by which people know the pool.
    pub(crate) fn known_as(&self) -> PoolGuid {
        self.known_as.read().unwrap_or(self.guid)
    }

    /// Gives the pool another number. Durable when it returns.
    pub(crate) fn reguid(&self) -> Result<()> {
        self.check_writable()?;
        let _turn = self.sync_turn.lock();
        self.check_whole()?;
        let new = PoolGuid(self.env.random.nonzero_u64());
        let features = self.features.read().clone();
        if !self.has_feature(FEATURE) {
            self.features.write().extend(Feature::known(FEATURE));
        }
        *self.becoming.write() = Some(new);
        let committed = self.txgs.commits.committed();
        if let Err(error) = self.write_labels(PoolState::Active, committed) {
            // Nobody says the new number, so it never was.
            *self.becoming.write() = None;
            *self.features.write() = features;
            self.commit_state.lock().labels_dirty = true;
            return Err(error);
        }
        // From here on it is the new one: some devices may say so.
        *self.known_as.write() = Some(new);
        *self.becoming.write() = None;
        self.commit_state.lock().labels_dirty = true;
        self.write_labels(PoolState::Active, committed)
    }

    /// (R2)
    pub(crate) fn check_whole(&self) -> Result<()> {
        let away = |path: String| Err(Error::NotWhole { pool: self.name(), path });
        for leaf in self.leaves() {
            let is_here = leaf.in_use().is_some() && !self.space.is_out_of_use(leaf.id());
            if !is_here || leaf.config().state != LeafState::Online {
                return away(leaf.path());
            }
        }
        let is_away = |log: &LogDeviceStatus| log.sample.is_none() || log.out.is_some();
        let logs = self.log_devices_status().into_iter().find(is_away).map(|log| log.path);
        let spares = self.spares_status().into_iter().find(|spare| spare.trouble.is_some());
        let caches = self.caches_status().into_iter().find(|cache| cache.trouble.is_some());
        let missing = logs.or(spares.map(|spare| spare.path)).or(caches.map(|cache| cache.path));
        missing.map_or(Ok(()), away)
    }
}
