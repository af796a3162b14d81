//! The checkpoint of a pool: one earlier root to which the pool can be taken back as a whole (ZFS:
//! `zpool checkpoint`). Its cost is in the room `segment`, the way back in `import/checkpoint.rs`.

use steadfast_format::{Feature, LeafState, Txg};

use crate::Pool;
use crate::core::checkpoint::{FEATURE, Keeping, Wish};
use crate::core::error::{Error, Result};
use crate::core::state::Core;

/// Commits in a row after which the cleaner is taken to have nothing to give.
const FUTILE_MAX: u32 = 8;

/// The checkpoint, for status.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CheckpointStatus {
    /// Txg of its root.
    pub txg: Txg,
    /// When that was committed, nanoseconds since 1970.
    pub time_ns: u64,
    /// Bytes that would be free without it.
    pub bytes: u64,
}

impl Core {
    /// Refuses while there is a checkpoint: it may need what lies on any device.
    pub(crate) fn check_no_checkpoint(&self) -> Result<()> {
        match self.space.keeps() {
            true => Err(Error::CheckpointThere { pool: self.name() }),
            false => Ok(()),
        }
    }
}

impl Pool {
    /// Takes a checkpoint of all that was done so far. Durable when it returns.
    pub fn checkpoint(&self) -> Result<()> {
        self.core.check_writable()?;
        self.core.check_no_checkpoint()?;
        if self.core.space.has_objects() {
            return Err(Error::CheckpointStore { pool: self.name() });
        }
        self.zil.check_log_free()?;
        self.check_devices_stay()?;
        self.make_room_to_keep()?;
        self.core.wait_durable()?;
        self.list_checkpoint_feature()?;
        self.core.checkpoint.lock().wish = Some(Wish::Take);
        // The first commit keeps its root, and the second stores which one that is.
        self.core.commit_changes()?;
        self.core.commit_changes()
    }

    /// Discards the checkpoint. All that it alone needed is free when this returns.
    pub fn discard_checkpoint(&self) -> Result<()> {
        self.core.check_writable()?;
        if !self.core.space.keeps() {
            return Err(Error::NoCheckpoint { pool: self.name() });
        }
        self.core.checkpoint.lock().wish = Some(Wish::Discard);
        self.core.commit_changes()?;
        self.forget_checkpoint_feature();
        self.core.commit_changes()
    }

    /// The checkpoint, if there is one.
    #[must_use]
    pub fn checkpoint_status(&self) -> Option<CheckpointStatus> {
        let root = self.core.checkpoint.lock().root.clone()?;
        let bytes = self.core.space.accounting().kept_bytes;
        Some(CheckpointStatus { txg: root.txg, time_ns: root.time_ns, bytes })
    }

    /// The labels list the feature as long as the newest root has a checkpoint, and no longer.
    pub(crate) fn forget_checkpoint_feature(&self) {
        if !self.core.space.keeps() && self.core.has_feature(FEATURE) {
            self.core.features.write().retain(|feature| feature.name != FEATURE);
            self.devices.labels_due.mark();
            self.core.health.changed.note();
        }
    }

    /// [checkpoint.2]
    fn list_checkpoint_feature(&self) -> Result<()> {
        let _turn = self.core.sync_turn.lock();
        if self.core.has_feature(FEATURE) {
            return Ok(());
        }
        self.core.features.write().extend(Feature::known(FEATURE));
        let undo = || self.core.features.write().retain(|feature| feature.name != FEATURE);
        self.devices.write_labels_or(&[], undo)
    }

    /// No device leaves, is replaced or is stood in for: the checkpoint's root names all of them.
    fn check_devices_stay(&self) -> Result<()> {
        self.devices.check_no_move(&[])?;
        for leaf in self.devices.leaves() {
            match leaf.config().state {
                LeafState::Online | LeafState::Offline | LeafState::Faulted | LeafState::Gone => {}
                LeafState::Leaving => {
                    return Err(Error::ScanActive { pool: self.name(), what: "resilver" });
                }
                LeafState::Spared | LeafState::Parted => {
                    return Err(Error::NotWhole { pool: self.name(), path: leaf.path() });
                }
            }
        }
        Ok(())
    }

    /// Lets the cleaner work until the pool can go on beside a checkpoint, or nothing is gained.
    fn make_room_to_keep(&self) -> Result<()> {
        let space = &self.core.space;
        let mut futile = 0;
        space.wish_room(true);
        let result = loop {
            if space.has_room_to_keep() {
                break Ok(());
            }
            if futile >= FUTILE_MAX {
                break Err(Error::CheckpointRoom { pool: self.name() });
            }
            let before = space.gains();
            if let Err(error) = self.core.commit_changes() {
                break Err(error);
            }
            futile = if space.gains().0 > before.0 { 0 } else { futile + 1 };
        };
        space.wish_room(false);
        result
    }
}

impl Keeping {
    /// The checkpoint that an import found.
    pub(crate) fn found(root: steadfast_format::Uberblock) -> Keeping {
        Keeping { root: Some(root), wish: None, dirty: false }
    }
}
