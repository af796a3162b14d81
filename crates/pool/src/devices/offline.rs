//! Devices are taken out of use and into use again (ZFS: `zpool offline`, `zpool online`).

use crate::core::error::Error;
use crate::core::error::Result;
use crate::devices::groups::DeviceHandle;
use crate::devices::leaf::Leaf;
use crate::devices::state::Devices;
use std::sync::Arc;
use steadfast_device::{Device, Presence};
use steadfast_format::{LabelConfig, LeafState};

/// How a device is taken out of use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Offline {
    /// As if it had failed: a spare steps in for it.
    pub as_failed: bool,
    /// An import takes it into use again.
    pub until_import: bool,
}

impl Devices {
    /// Takes a device of a group out of use. Durable when it returns, but for what shall end with
    /// the next import.
    pub(crate) fn offline(&self, path: &str, how: Offline) -> Result<()> {
        self.core.check_writable()?;
        let leaf = self.leaf_named(path)?;
        {
            let _turn = self.core.sync_turn.lock();
            if matches!(leaf.config().state, LeafState::Offline | LeafState::Spared) {
                return Ok(());
            }
            if !self.core.space.take_out(leaf.id()) {
                return Err(Error::DeviceNeeded { pool: self.core.name(), path: path.to_owned() });
            }
            let state = if how.as_failed { LeafState::Faulted } else { LeafState::Offline };
            leaf.config.write().state = state;
            if how.until_import {
                self.topology.until_import.lock().insert(leaf.id());
            } else {
                self.topology.until_import.lock().remove(&leaf.id());
            }
            self.labels_due.mark();
        }
        self.core.commit_changes()?;
        self.core.update_limits();
        Ok(())
    }

    /// Takes a device into use again: one that was offline as it is, one that failed or was missing
    /// as `open` finds it. Data that it missed is resilvered. True if it was out of use.
    pub(crate) fn online(&self, path: &str, open: &dyn Fn() -> Result<Arc<dyn Device>>) -> Result<bool> {
        self.core.check_writable()?;
        let leaf = self.leaf_named(path)?;
        if leaf.config().state == LeafState::Spared {
            leaf.device.release();
            self.relieve(&leaf, DeviceHandle { path: path.to_owned(), device: open()? })?;
            return Ok(true);
        }
        let _due = self.resilver_due();
        {
            let _turn = self.core.sync_turn.lock();
            let state = leaf.config().state;
            if matches!(state, LeafState::Online | LeafState::Leaving) {
                return Ok(false);
            }
            let leaf = if state == LeafState::Offline {
                leaf
            } else {
                leaf.device.release();
                let injector = Arc::clone(&leaf.injector);
                let new = Arc::new(Leaf::with_injector(
                    leaf.config(),
                    open()?,
                    &self.core.env,
                    &self.core.events,
                    injector,
                ));
                let label = crate::devices::probe::label_of(&*new.device)?;
                if label.pool != self.core.identity.guid || label.device_guid != leaf.config().guid {
                    return Err(Error::ForeignDevice { path: path.to_owned(), pool: self.core.name() });
                }
                let mut leaves = self.topology.leaves.write();
                let place =
                    leaves.iter_mut().find(|other| other.id() == new.id()).expect("found by its path");
                *place = Arc::clone(&new);
                new
            };
            self.core.space.take_in(leaf.id(), Arc::clone(&leaf.device));
            self.topology.until_import.lock().remove(&leaf.id());
            // A spare that was sent back steps in if it fails again.
            self.aux.unhelped.lock().remove(&leaf.id());
            leaf.config.write().state = LeafState::Online;
            self.labels_due.mark();
            self.prepare_resilver()?;
        }
        self.core.commit_changes()?;
        self.core.update_limits();
        self.resilver_if_needed();
        Ok(true)
    }

    /// Releases a device that is out of use. Taken out of use first is one that is not at its path
    /// any more, and with `force` one that lost its labels: it was wiped where it is.
    pub(crate) fn let_go(&self, path: &str, force: bool) -> Result<()> {
        let leaf = self.leaf_named(path)?;
        let is_elsewhere = || leaf.device.presence() == Presence::Removed;
        if leaf.config().state == LeafState::Online && (is_elsewhere() || force && !self.has_own_label(&leaf))
        {
            self.offline(path, Offline { as_failed: true, until_import: false })?;
        }
        match leaf.config().state {
            LeafState::Online | LeafState::Leaving => {
                Err(Error::StillInUse { pool: self.core.name(), path: path.to_owned() })
            }
            LeafState::Offline
            | LeafState::Faulted
            | LeafState::Gone
            | LeafState::Spared
            | LeafState::Parted => {
                leaf.device.release();
                Ok(())
            }
        }
    }

    fn has_own_label(&self, leaf: &Leaf) -> bool {
        let is_own = |label: LabelConfig| {
            label.pool == self.core.identity.guid && label.device_guid == leaf.config().guid
        };
        crate::devices::probe::label_of(&*leaf.device).is_ok_and(is_own)
    }
}
