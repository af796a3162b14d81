//! Makes a pool larger: by a device more, or by one that has grown. Also enables features.
//!
//! ## What a crash does
//! *Add*: the labels of all devices, the new one's among them, list the new device before anything
//! is placed on it, and they carry the txg of the last commit. A crash before the next commit
//! leaves an uberblock that counts fewer devices than the newest labels list; import accepts that,
//! for there is nothing on the others. (The other way round, an uberblock that counts more,
//! means that a device is missing, and import refuses.) *Grow*: the front labels stay where they
//! are and say at every moment how many slots the pool uses; back labels move to the new end. Their
//! old room becomes part of a slot.

use crate::devices::probe::check_unoccupied;
use crate::devices::state::Devices;
use std::sync::Arc;

use steadfast_format::{Feature, GroupClass, GroupConfig, LabelConfig, medium};

use crate::core::error::{Error, Result};
use crate::devices::groups;
use crate::devices::groups::DeviceHandle;
use crate::devices::groups::GroupHandles;
use crate::devices::leaf::Leaf;

/// Room that a device gains when it is expanded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Growth {
    /// Slots the pool uses.
    pub slots: u32,
    /// Slots that fit on it now.
    pub fits: u32,
}

impl Devices {
    /// Makes the pool larger by devices, which lose what they held. With `dry_run` only says
    /// whether it would. Durable when it returns. Devices that carry an active or exported pool are
    /// refused unless `force`.
    pub fn add_groups(&self, new: Vec<GroupHandles>, force: bool, dry_run: bool) -> Result<()> {
        self.core.check_writable()?;
        let handles: Vec<&DeviceHandle> = new.iter().flat_map(|group| &group.devices).collect();
        for (index, handle) in handles.iter().enumerate() {
            let twice = handles[..index].iter().any(|other| other.path == handle.path);
            if twice || self.leaves().iter().any(|leaf| leaf.path() == handle.path) {
                return Err(Error::Twice { path: handle.path.clone() });
            }
            check_unoccupied(handle, force)?;
        }
        new.iter().try_for_each(groups::check)?;
        if handles.iter().any(|handle| !handle.device.character().appendable) {
            self.core.check_no_checkpoint()?;
        }
        {
            // No commit runs meanwhile, so labels and uberblocks agree on what the last one was.
            // And no device comes or goes: a spare steps in, and one that was replaced leaves,
            // between two commits.
            let _turn = self.core.sync_turn.lock();
            let (mut listed, mut leaves) = (self.topology.groups.read().clone(), self.leaves());
            let before = leaves.len();
            let geometry = self.core.space.geometry();
            let given = (self.core.space.last_device(), self.last_log_mirror());
            for group in new {
                groups::add(
                    &self.core.env,
                    &self.core.events,
                    geometry,
                    group,
                    given,
                    &mut listed,
                    &mut leaves,
                )?;
            }
            let added = leaves.split_off(before);
            if before + added.len() > LabelConfig::LEAVES_MAX {
                return Err(Error::LabelTooLong { pool: self.core.name() });
            }
            self.need_places(added.len())?;
            if dry_run {
                return Ok(());
            }
            for leaf in &added {
                leaf.erase_rings()?;
            }
            let stores = added.iter().filter(|leaf| leaf.device.objects().is_some());
            let stores: Vec<_> = stores.map(|leaf| (leaf.id(), Arc::clone(&leaf.device))).collect();
            if !stores.is_empty() {
                self.core.space.claim_epoch_anew(&stores)?;
            }
            let old = (self.leaves(), self.topology.groups.read().clone(), self.core.features.read().clone());
            self.topology.leaves.write().extend(added.iter().cloned());
            (*self.topology.groups.write()).clone_from(&listed);
            if !listed.is_empty() && !self.core.has_feature(groups::FEATURE) {
                self.core.features.write().extend(Feature::known(groups::FEATURE));
            }
            let is_special = |group: &GroupConfig| group.class == GroupClass::Special;
            if listed.iter().any(is_special) && !self.core.has_feature(groups::SPECIAL) {
                self.core.features.write().extend(Feature::known(groups::SPECIAL));
            }
            let coming: Vec<_> = added.iter().map(|leaf| Arc::clone(&leaf.device)).collect();
            self.write_labels_or(&coming, || {
                (*self.topology.leaves.write(), *self.topology.groups.write(), *self.core.features.write()) =
                    old;
            })?;
            for group in crate::devices::groups::group_specs(self.core.identity.slot_size, &listed, &added) {
                assert!(self.core.space.add_group(group), "the ids are more than the greatest");
            }
            if listed.iter().any(is_special) {
                self.core.space.close_misplaced()?;
            }
        }
        self.core.commit_changes()?;
        self.core.update_limits();
        Ok(())
    }

    /// Refuses devices for which there is no number before the next import.
    pub(crate) fn need_places(&self, devices: usize) -> Result<()> {
        if self.core.space.has_places(devices) { Ok(()) } else { Err(Error::TooManyGroups) }
    }

    /// Room that a device would gain now.
    pub(crate) fn growth(&self, leaf: &Leaf) -> Growth {
        let slots = leaf.config().slots;
        let bytes = leaf.device.seen_bytes();
        Growth { slots, fits: medium::slot_count(bytes, self.column_of(&leaf.config())).max(slots) }
    }

    /// Uses all of a device that has grown. Gives the bytes gained.
    pub fn expand(&self, path: &str) -> Result<u64> {
        self.core.check_writable()?;
        let leaf = self.leaves().into_iter().find(|leaf| leaf.path() == path);
        let leaf =
            leaf.ok_or_else(|| Error::ForeignDevice { path: path.to_owned(), pool: self.core.name() })?;
        let gained = {
            let _turn = self.core.sync_turn.lock();
            let config = leaf.config();
            // Looked at first: a device that was cut short keeps its place of the back labels.
            if medium::slot_count(leaf.device.seen_bytes(), self.column_of(&config)) <= config.slots {
                return Ok(0);
            }
            let slots = medium::slot_count(leaf.device.refresh_size()?, self.column_of(&config));
            leaf.config.write().slots = slots;
            self.write_labels_or(&[], || leaf.config.write().slots = config.slots)?;
            self.core.space.grow_device(config.id, slots)
        };
        self.core.commit_changes()?;
        self.core.update_limits();
        self.even_out(leaf.config().group);
        Ok(u64::from(gained) * u64::from(self.column_of(&leaf.config())))
    }
}
