//! A device takes the place of another one (ZFS: `zpool replace`).

use crate::core::error::Error;
use crate::core::error::Result;
use crate::devices::groups::DeviceHandle;
use crate::devices::leaf::Leaf;
use crate::devices::state::Devices;
use std::sync::Arc;
use steadfast_format::DeviceId;
use steadfast_format::LeafConfig;
use steadfast_format::LeafState;
use steadfast_format::ScanKind;
use steadfast_format::medium;
use steadfast_segment::MemberSpec;

impl Devices {
    /// Whether what lives, and what was let in, has room if a device had so many slots. Where
    /// devices of a group differ, a smaller one can hold all columns of the old one and still take
    /// room from segments of the others.
    pub(crate) fn fits_with(&self, device: DeviceId, slots: u32) -> bool {
        let live = self.core.space.accounting().live_bytes;
        let needed = live.saturating_add(self.core.txgs.budget.reserved().space);
        self.core.space.capacity_with(device, slots).is_none_or(|capacity| needed <= capacity)
    }

    /// The least slots of a device that may take the place of another, which has columns in so
    /// many.
    pub(crate) fn slots_needed(&self, config: &LeafConfig, held: u32) -> u32 {
        let (mut least, mut most) = (held, config.slots.max(held));
        while least < most {
            let middle = least + (most - least) / 2;
            if self.fits_with(config.id, middle) {
                most = middle;
            } else {
                least = middle + 1;
            }
        }
        least
    }

    /// Puts a device into the place of another of a group: what the old one holds, or should hold,
    /// is built on the new one, and then the old one leaves. Begun when it returns.
    pub(crate) fn replace(&self, old: &str, new: DeviceHandle, force: bool) -> Result<()> {
        self.core.check_writable()?;
        let leaf = self.leaf_named(old)?;
        let config = leaf.config();
        if config.state == LeafState::Leaving {
            return Err(Error::ScanActive { pool: self.core.name(), what: "resilver" });
        }
        let spare = |path: &str| self.aux.listed.read().iter().any(|aux| aux.path == path);
        if spare(&new.path) {
            return Err(Error::Twice { path: new.path });
        }
        if self.leaves().iter().any(|other| other.path() == new.path && other.id() != config.id) {
            return Err(Error::Twice { path: new.path });
        }
        crate::devices::probe::check_unoccupied(&new, force)?;
        let bytes = new.device.character().size_bytes;
        if config.state == LeafState::Spared {
            return self.relieve(&leaf, new);
        }
        let slots = medium::slot_count(bytes, self.column_of(&config));
        let held = u32::try_from(self.core.space.columns_on(config.id).max(1)).unwrap_or(u32::MAX);
        if slots < held || slots < config.slots && !self.fits_with(config.id, slots) {
            let needed = medium::device_bytes(self.slots_needed(&config, held), self.column_of(&config));
            return Err(Error::TooSmall { path: new.path, bytes, needed });
        }
        if self.leaves().len() >= steadfast_format::LabelConfig::LEAVES_MAX {
            return Err(Error::LabelTooLong { pool: self.core.name() });
        }
        self.need_places(1)?;
        if !(new.device.character().appendable && leaf.device.character().appendable) {
            return Err(Error::GroupOfObjects { path: new.path, group: "mirror".to_owned() });
        }
        self.form_mirror(&leaf)?;
        let _due = self.resilver_due();
        {
            let _turn = self.core.sync_turn.lock();
            let id = DeviceId(self.core.space.last_device().0 + 1);
            let (group, guid) = (leaf.config().group, self.core.env.random.nonzero_u64());
            let added = LeafConfig { id, guid, slots, group, state: LeafState::Online, path: new.path };
            let added = Arc::new(Leaf::new(added, new.device, &self.core.env, &self.core.events));
            added.erase_rings()?;
            leaf.config.write().state = LeafState::Leaving;
            let before = self.leaves();
            {
                let mut leaves = self.topology.leaves.write();
                let at = leaves.iter().position(|other| other.id() == config.id).expect("found by its path");
                leaves.insert(at + 1, Arc::clone(&added));
            }
            self.write_labels_or(&[Arc::clone(&added.device)], || {
                leaf.config.write().state = config.state;
                *self.topology.leaves.write() = before;
            })?;
            let member = MemberSpec { id, slots, device: Some(Arc::clone(&added.device)) };
            assert!(self.core.space.add_to_group(config.id, member), "the id is more than the greatest");
            self.core.space.set_leaving(config.id, true);
            self.topology.replacing.lock().push(config.id);
            self.prepare_resilver()?;
        }
        self.core.commit_changes()?;
        self.core.update_limits();
        *self.scans.scan.lock() = Some(self.begin_scan(ScanKind::Resilver));
        self.note_scan("resilver", "start");
        Ok(())
    }
}
