//! Spares: devices that wait, and step in for one that is out of use.
//!
//! ## States of a spare
//! available ─[`stand_in`]→ in use: a leaf beside the device that it stands for ─[`dismiss`]→
//! leaving ─[everything on it lies elsewhere]→ available
//!
//! The labels always list a spare as an auxiliary device, under one guid. In use it is a leaf of
//! that guid besides, and the entry names the leaf and the device that it stands for. That device
//! stays listed until it is back or replaced. Once no row names it any more, it is
//! [`LeafState::Spared`] and counts for nothing: as many devices may fail as before.
//!
//! ## Invariants
//! [spare.1] A spare stands for one device, and one device has one spare at most.
//!      assert: `stand_in`
//! [spare.2] A spare is available again in the labels of a commit after which no row names it.
//!      `finish_leaving`
//! [spare.3] A device is spared only when no row of a committed root names it. Its content is never
//!      read again, so it comes back as a new one.
//!      `look_after_spares`, `relieve`
//!
//! ## What a crash does
//! Between the labels and the commit that follows: import finds a leaf with nothing on it, which is
//! true.

use crate::devices::spare::Spare;
use crate::devices::state::Devices;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_device::Presence;
use steadfast_format::{
    AuxClass, AuxConfig, DeviceId, Feature, LabelConfig, LeafConfig, LeafState, PoolState, ScanKind, ScanRow,
    ScanState, Standing, Txg, medium,
};
use steadfast_segment::MemberSpec;

use crate::core::error::{Error, Result};
use crate::core::events::EventKind;
use crate::devices::attach::DROPS_PER_COMMIT;
use crate::devices::groups::DeviceHandle;
use crate::devices::leaf::Leaf;
use crate::devices::offline::Offline;
use crate::devices::probe::{FoundPool, check_takes_slots, check_unoccupied, erase, give_back};

/// Name of the feature.
pub(crate) const FEATURE: &str = "spares";

/// A spare as status shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SpareStatus {
    /// Path by which it was last opened.
    pub path: String,
    /// Random name.
    pub guid: u64,
    /// Bytes of the device; 0 if it is not here.
    pub size_bytes: u64,
    /// Device that it stands for, if it is in use.
    pub standing: Option<Standing>,
    /// Why it cannot step in, if it cannot.
    pub trouble: Option<String>,
}

/// Spares that a pool's labels list and that are not in use; paths are put right in `aux`.
pub(crate) fn find(found: &FoundPool, aux: &mut [AuxConfig]) -> Vec<Arc<Spare>> {
    let waiting = aux.iter_mut().filter(|aux| aux.class == AuxClass::Spare && aux.standing.is_none());
    let spare = |aux: &mut AuxConfig| {
        let is_it = |label: &LabelConfig| label.device_guid == aux.guid;
        let here = found.devices.iter().find(|device| is_it(&device.label));
        if let Some(here) = here {
            aux.path.clone_from(&here.handle.path);
        }
        Spare::new(aux.guid, here.map(|here| Arc::clone(&here.handle.device)))
    };
    waiting.map(spare).collect()
}

/// Steps that a spare in use can be due for.
enum Due {
    /// This device, which it stands for, counts for nothing once all of it is on the spare.
    Spared(Arc<Leaf>),
    /// It goes on leaving, though the device that it stood for is out of use.
    SentBack(Arc<Leaf>),
    /// It is not needed any more.
    Dismissed(Arc<Leaf>),
}

/// Spares and devices at one moment.
struct Look {
    listed: Vec<AuxConfig>,
    leaves: Vec<Arc<Leaf>>,
}

impl Look {
    fn due(&self) -> impl Iterator<Item = Due> + '_ {
        let leaf_of = move |id: DeviceId| self.leaves.iter().find(|leaf| leaf.id() == id).cloned();
        self.listed.iter().filter_map(|aux| aux.standing).filter_map(move |standing| {
            let spare = leaf_of(standing.leaf)?;
            let original = leaf_of(standing.instead).filter(|original| is_out(original));
            match (original, spare.config().state) {
                (Some(original), LeafState::Online) => Some(Due::Spared(original)),
                (Some(_), LeafState::Leaving) => Some(Due::SentBack(spare)),
                (None, LeafState::Online) => Some(Due::Dismissed(spare)),
                _ => None,
            }
        })
    }

    /// Devices that failed and that no spare stands for, but for those that are to go without.
    fn helpless<'a>(&'a self, unhelped: &'a BTreeSet<DeviceId>) -> impl Iterator<Item = &'a Arc<Leaf>> {
        let stands = |id: DeviceId| move |standing: Standing| standing.instead == id;
        let helped = move |id: DeviceId| self.listed.iter().any(|aux| aux.standing.is_some_and(stands(id)));
        self.leaves.iter().filter(move |leaf| {
            let config = leaf.config();
            has_failed(leaf) && config.group != 0 && !helped(config.id) && !unhelped.contains(&config.id)
        })
    }
}

fn has_failed(leaf: &Leaf) -> bool {
    matches!(leaf.config().state, LeafState::Faulted | LeafState::Gone)
}

fn is_out(leaf: &Leaf) -> bool {
    has_failed(leaf) || leaf.config().state == LeafState::Spared
}

impl Devices {
    /// Spares as the labels list them.
    fn listed_spares(&self) -> Vec<AuxConfig> {
        self.aux.listed.read().iter().filter(|aux| aux.class == AuxClass::Spare).cloned().collect()
    }

    /// Refuses what cannot be done to a group while a spare stands for one of its devices.
    pub(crate) fn check_no_spare(&self, leaf: &Leaf) -> Result<()> {
        let members = self.group_of(leaf);
        let is_member = |id| members.iter().any(|member| member.id() == id);
        let standing = |aux: &AuxConfig| aux.standing.is_some_and(|standing| is_member(standing.leaf));
        match self.listed_spares().into_iter().find(standing) {
            Some(aux) => Err(Error::SpareInUse { pool: self.core.name(), path: aux.path }),
            None => Ok(()),
        }
    }

    fn waiting(&self, guid: u64) -> Option<Arc<Spare>> {
        self.aux.spares.read().iter().find(|spare| spare.guid == guid).cloned()
    }

    /// Refuses devices that cannot become auxiliary ones: in use, too small, of whole objects.
    pub(crate) fn check_new_aux(&self, handles: &[DeviceHandle], force: bool) -> Result<()> {
        self.core.check_writable()?;
        let known = |path: &str| {
            let listed = self.aux.listed.read().iter().any(|aux| aux.path == path);
            listed || self.leaves().iter().any(|leaf| leaf.path() == path)
        };
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

    /// Lists new spares in memory; the next labels say so. Returns their guids.
    pub(crate) fn list_spares(&self, handles: Vec<DeviceHandle>) -> Vec<u64> {
        let mut new = Vec::new();
        for DeviceHandle { path, device } in handles {
            let guid = self.core.env.random.nonzero_u64();
            new.push(guid);
            self.aux.listed.write().push(AuxConfig::new(AuxClass::Spare, guid, path));
            self.aux.spares.write().push(Spare::new(guid, Some(device)));
        }
        if !new.is_empty() && !self.core.has_feature(FEATURE) {
            self.core.features.write().extend(Feature::known(FEATURE));
        }
        new
    }

    /// Adds devices that wait to step in for others. With `dry_run` only says whether it would.
    /// Devices that carry a pool are refused unless `force`. Durable when it returns.
    pub fn add_spares(&self, handles: Vec<DeviceHandle>, force: bool, dry_run: bool) -> Result<()> {
        self.check_new_aux(&handles, force)?;
        if dry_run {
            return Ok(());
        }
        // All of them before the first is listed.
        handles.iter().try_for_each(|handle| erase(&*handle.device))?;
        let _turn = self.core.sync_turn.lock();
        let before = (self.aux.listed.read().clone(), self.core.features.read().clone());
        let new = self.list_spares(handles);
        let written = self.write_labels_or(&[], || {
            (*self.aux.listed.write(), *self.core.features.write()) = before;
            let mut spares = self.aux.spares.write();
            for spare in spares.iter().filter(|spare| new.contains(&spare.guid)) {
                spare.device.iter().for_each(|device| give_back(&**device));
            }
            spares.retain(|spare| !new.contains(&spare.guid));
        });
        // One of them may be what a device that failed waits for.
        self.core.txgs.commits.nudge();
        written
    }

    /// Takes a spare away that is not in use, by its path. Durable when it returns.
    pub fn remove_spare(&self, path: &str) -> Result<()> {
        self.core.check_writable()?;
        let _turn = self.core.sync_turn.lock();
        let listed = self.listed_spares().into_iter().find(|aux| aux.path == path);
        let Some(aux) = listed else {
            return Err(Error::ForeignDevice { path: path.to_owned(), pool: self.core.name() });
        };
        if aux.standing.is_some() {
            return Err(Error::SpareInUse { pool: self.core.name(), path: path.to_owned() });
        }
        let spare = self.waiting(aux.guid);
        let before = (self.aux.listed.read().clone(), self.core.features.read().clone());
        self.aux.listed.write().retain(|other| other.guid != aux.guid);
        self.aux.spares.write().retain(|other| other.guid != aux.guid);
        if self.listed_spares().is_empty() {
            self.core.features.write().retain(|feature| feature.name != FEATURE);
        }
        self.write_labels_or(&[], || {
            (*self.aux.listed.write(), *self.core.features.write()) = before;
            self.aux.spares.write().extend(spare.clone());
        })?;
        if let Some(spare) = spare {
            // It belongs to nobody now; a device that cannot be written keeps a label that no pool
            // answers to.
            let _ = spare.device.as_ref().map(|device| erase(&**device));
            spare.release();
        }
        Ok(())
    }

    /// Spares as status shows them.
    pub(crate) fn spares_status(&self) -> Vec<SpareStatus> {
        let status = |aux: AuxConfig| {
            let waiting = self.waiting(aux.guid);
            let device = waiting.as_ref().and_then(|spare| spare.device.as_ref());
            let gone = device.is_none_or(|device| device.presence() != Presence::Whole);
            let trouble = waiting.as_ref().and_then(|spare| spare.trouble.lock().clone());
            let missing = (gone && aux.standing.is_none()).then(|| "is not here".to_owned());
            SpareStatus {
                path: aux.path,
                guid: aux.guid,
                size_bytes: device.map_or(0, |device| device.character().size_bytes),
                standing: aux.standing,
                trouble: trouble.or(missing),
            }
        };
        self.listed_spares().into_iter().map(status).collect()
    }

    /// Writes two copies of the labels of spares that wait. An error is trouble of that spare
    /// alone.
    pub(crate) fn write_spare_labels(&self, copies: [usize; 2], state: PoolState, txg: Txg) {
        for spare in self.aux.spares.read().iter().filter(|spare| spare.trouble.lock().is_none()) {
            let Some(device) = &spare.device else { continue };
            if let Err(reason) = self.write_aux_label(spare.guid, &**device, copies, state, txg) {
                *spare.trouble.lock() = Some(reason);
            }
        }
    }

    /// Spares and devices as they are now.
    fn look_at_spares(&self) -> Look {
        let listed = self.listed_spares();
        let leaves = if listed.is_empty() { Vec::new() } else { self.leaves() };
        Look { listed, leaves }
    }

    /// Whether the sync task is about to let a spare step in or go. The cause (a device failed, or
    /// one is back) is seen before that. A caller that saw it and waits for the resilver has to
    /// wait for the resilver's end.
    pub(crate) fn is_spare_due(&self) -> bool {
        if self.core.space.keeps() {
            return false;
        }
        let look = self.look_at_spares();
        let unhelped = self.aux.unhelped.lock().clone();
        let follows = |due: Due| match due {
            Due::Dismissed(_) => true,
            // Nothing is left there but what the commit gives up that is on its way.
            Due::Spared(original) => {
                has_failed(&original) && self.core.space.columns_named_on(original.id()) == 0
            }
            // The rest of that may be impossible.
            Due::SentBack(_) => false,
        };
        let fits = |leaf: &Arc<Leaf>| self.fitting(&leaf.config()).is_some();
        look.due().any(follows) || look.helpless(&unhelped).any(fits)
    }

    /// Lets spares step in and go, as devices fail and come back. Sync context only, between
    /// commits.
    pub(crate) fn look_after_spares(&self) -> Result<()> {
        // A device for which a spare stands in counts for nothing, but for the checkpoint.
        if self.core.space.keeps() {
            return Ok(());
        }
        let look = self.look_at_spares();
        for due in look.due() {
            match due {
                Due::Spared(original) => self.spare_if_empty(&original),
                Due::SentBack(spare) => self.go_on_sending_back(&spare),
                Due::Dismissed(spare) => self.dismiss(&spare)?,
            }
        }
        let unhelped = self.aux.unhelped.lock().clone();
        for leaf in look.helpless(&unhelped) {
            if let Some(spare) = self.fitting(&leaf.config())
                && let Err(error) = self.stand_in(leaf, &spare)
            {
                *spare.trouble.lock() = Some(error.to_string());
            }
        }
        Ok(())
    }

    /// The smallest spare that holds what a device does.
    fn fitting(&self, config: &LeafConfig) -> Option<Arc<Spare>> {
        let least = self.core.space.columns_on(config.id).max(1);
        let column = self.column_of(config);
        let size = |spare: &Spare| spare.device.as_ref().map_or(0, |device| device.character().size_bytes);
        let all = self.aux.spares.read();
        let fits = all.iter().filter(|spare| {
            spare.trouble.lock().is_none() && u64::from(medium::slot_count(size(spare), column)) >= least
        });
        fits.min_by_key(|spare| size(spare)).cloned()
    }

    /// A spare that waits stands in for a device as the operator says. A device in use is taken out
    /// of use, as if it had failed. Durable when it returns.
    pub fn stand_in_by_hand(&self, path: &str, spare_path: &str) -> Result<()> {
        self.core.check_writable()?;
        self.core.check_no_checkpoint()?;
        let leaf = self.leaf_named(path)?;
        let config = leaf.config();
        let standing = |aux: &AuxConfig| aux.standing.is_some_and(|standing| standing.instead == config.id);
        if let Some(aux) = self.listed_spares().into_iter().find(standing) {
            return Err(Error::SpareInUse { pool: self.core.name(), path: aux.path });
        }
        if config.state == LeafState::Leaving {
            return Err(Error::ScanActive { pool: self.core.name(), what: "resilver" });
        }
        let listed = self.listed_spares().into_iter().find(|aux| aux.path == spare_path);
        let absent = || Error::ForeignDevice { path: spare_path.to_owned(), pool: self.core.name() };
        let spare = listed.and_then(|aux| self.waiting(aux.guid)).ok_or_else(absent)?;
        let column = self.column_of(&config);
        let bytes = spare.device.as_ref().map_or(0, |device| device.character().size_bytes);
        let least = u32::try_from(self.core.space.columns_on(config.id).max(1)).unwrap_or(u32::MAX);
        if medium::slot_count(bytes, column) < least {
            let needed = medium::device_bytes(least, column);
            return Err(Error::TooSmall { path: spare_path.to_owned(), bytes, needed });
        }
        // No other spare steps in meanwhile.
        self.aux.unhelped.lock().insert(config.id);
        let result = match config.state {
            LeafState::Online => self.offline(path, Offline { as_failed: true, until_import: false }),
            _ => Ok(()),
        };
        let result = result.and_then(|()| self.stand_in(&leaf, &spare));
        self.aux.unhelped.lock().remove(&config.id);
        result?;
        self.core.commit_changes()
    }

    /// A spare becomes a leaf beside the device that it stands for. The data that the device lacks
    /// is resilvered onto it after the next commit.
    fn stand_in(&self, original: &Leaf, spare: &Arc<Spare>) -> Result<()> {
        let config = original.config();
        let _due = self.resilver_due();
        let _turn = self.core.sync_turn.lock();
        // Somebody may have taken it away meanwhile.
        let listed = self.listed_spares().into_iter().find(|aux| aux.guid == spare.guid);
        let Some(aux) = listed else { return Ok(()) };
        assert!(aux.standing.is_none(), "[spare.1] one that waits stands for nobody");
        let Some(device) = spare.device.clone() else { return Ok(()) };
        if self.leaves().len() >= LabelConfig::LEAVES_MAX {
            return Err(Error::LabelTooLong { pool: self.core.name() });
        }
        self.need_places(1)?;
        if original.config().state != config.state {
            // Somebody brought it back meanwhile.
            return Ok(());
        }
        let id = DeviceId(self.core.space.last_device().0 + 1);
        let slots = medium::slot_count(device.character().size_bytes, self.column_of(&config));
        let state = LeafState::Online;
        let path = aux.path.clone();
        let added =
            LeafConfig { id, guid: spare.guid, slots, group: config.group, state, path: path.clone() };
        let added = Arc::new(Leaf::new(added, device, &self.core.env, &self.core.events));
        added.erase_rings()?;
        let before = (self.leaves(), self.aux.listed.read().clone());
        self.insert_behind(config.id, &added);
        self.set_standing(spare.guid, Some(Standing { leaf: id, instead: config.id }));
        self.aux.spares.write().retain(|other| other.guid != spare.guid);
        self.write_labels_or(&[], || {
            (*self.topology.leaves.write(), *self.aux.listed.write()) = before;
            self.aux.spares.write().push(Arc::clone(spare));
        })?;
        let member = MemberSpec { id, slots, device: Some(Arc::clone(&added.device)) };
        assert!(self.core.space.add_to_group(config.id, member), "the id is more than the greatest");
        self.prepare_resilver()?;
        self.core.events.note(EventKind::Spare { path, word: "INUSE", instead: original.path() });
        self.resilver_soon();
        Ok(())
    }

    fn insert_behind(&self, id: DeviceId, added: &Arc<Leaf>) {
        let mut leaves = self.topology.leaves.write();
        let at = leaves.iter().position(|other| other.id() == id).map_or(leaves.len(), |at| at + 1);
        leaves.insert(at, Arc::clone(added));
    }

    fn set_standing(&self, guid: u64, standing: Option<Standing>) {
        for aux in self.aux.listed.write().iter_mut().filter(|aux| aux.guid == guid) {
            aux.standing = standing;
        }
    }

    /// A resilver begins after the next commit, which is asked for.
    fn resilver_soon(&self) {
        self.scans.resilver_wanted.store(true, Ordering::Release);
        self.core.health.changed.note();
        self.core.txgs.commits.request_sync(self.core.txgs.gate.open_txg());
    }

    /// A spare whose device is back or replaced is not needed any more: what it holds moves to the
    /// others of its group.
    fn dismiss(&self, spare: &Leaf) -> Result<()> {
        let _due = self.resilver_due();
        let _turn = self.core.sync_turn.lock();
        let id = spare.id();
        // Somebody may have sent it back meanwhile, or what it stands for may have failed again.
        let is_it = |due: Due| matches!(due, Due::Dismissed(leaf) if leaf.id() == id);
        if !self.look_at_spares().due().any(is_it) {
            return Ok(());
        }
        spare.config.write().state = LeafState::Leaving;
        self.core.space.set_leaving(id, true);
        self.topology.replacing.lock().push(id);
        self.labels_due.mark();
        self.prepare_resilver()?;
        self.resilver_soon();
        Ok(())
    }

    /// A device of which everything is on its spare counts for nothing any more [spare.3].
    fn spare_if_empty(&self, original: &Leaf) {
        let id = original.id();
        let _turn = self.core.sync_turn.lock();
        // Somebody may have brought it back meanwhile.
        if !has_failed(original) {
            return;
        }
        if self.core.space.columns_on(id) > 0 {
            if self.core.space.columns_named_on(id) == 0 {
                // The rest goes with the next commit, which is reason enough for one.
                self.core.health.changed.note();
            }
            return;
        }
        original.config.write().state = LeafState::Spared;
        self.core.space.remove_device(id);
        self.labels_due.mark();
        self.core.health.changed.note();
    }

    /// The spare in use that is, or stands for, a leaf.
    pub(crate) fn standing_at(&self, id: DeviceId) -> Option<(AuxConfig, Standing)> {
        let mut listed = self.listed_spares().into_iter();
        listed.find_map(|aux| {
            let standing = aux.standing.filter(|standing| standing.leaf == id || standing.instead == id)?;
            Some((aux, standing))
        })
    }

    /// `zpool detach` of a spare in use: it waits again, and its group lacks what it held until the
    /// device that it stood for is back or replaced. It does not step in for that device again
    /// before the next import.
    pub(crate) fn send_back(&self, spare: &Leaf, instead: DeviceId) -> Result<()> {
        let id = spare.id();
        {
            let _turn = self.core.sync_turn.lock();
            let needed = || Error::DeviceNeeded { pool: self.core.name(), path: spare.path() };
            if self.core.space.is_needed(id) {
                return Err(needed());
            }
            self.core.space.close_redundant()?;
            if self.core.space.is_needed(id) {
                return Err(needed());
            }
            if spare.config().state == LeafState::Leaving {
                // It goes already.
                return Ok(());
            }
            self.count_again(instead, id)?;
            spare.config.write().state = LeafState::Leaving;
            self.core.space.set_leaving(id, true);
            self.topology.replacing.lock().push(id);
            self.labels_due.mark();
            self.prepare_resilver()?;
        }
        self.core.commit_changes()?;
        self.drop_columns_on(id)?;
        self.settle_leaving(id)?;
        self.core.update_limits();
        Ok(())
    }

    /// Continues a [`send_back`] that a crash cut off, or that lost its device again on the way
    /// back.
    fn go_on_sending_back(&self, spare: &Leaf) {
        let id = spare.id();
        let _turn = self.core.sync_turn.lock();
        if !self.core.space.is_needed(id) && self.core.space.drop_columns(id, DROPS_PER_COMMIT) > 0 {
            self.core.health.changed.note();
            self.core.txgs.commits.request_sync(self.core.txgs.gate.open_txg());
        }
    }

    /// A device that counted for nothing because its spare held all of it is one that failed again,
    /// with nothing on it: a new member of its group, by a number that no row names [spare.3].
    /// Under `sync_turn`.
    fn count_again(&self, instead: DeviceId, beside: DeviceId) -> Result<()> {
        let original = self.leaves().into_iter().find(|leaf| leaf.id() == instead);
        let mut unhelped = self.aux.unhelped.lock();
        let Some(original) = original.filter(|leaf| leaf.config().state == LeafState::Spared) else {
            unhelped.insert(instead);
            return Ok(());
        };
        self.need_places(1)?;
        let id = DeviceId(self.core.space.last_device().0 + 1);
        let slots = original.config().slots;
        let member = MemberSpec { id, slots, device: None };
        assert!(self.core.space.add_to_group(beside, member), "the id is more than the greatest");
        {
            let mut config = original.config.write();
            (config.id, config.state) = (id, LeafState::Faulted);
        }
        for aux in self.aux.listed.write().iter_mut() {
            if let Some(standing) = aux.standing.as_mut().filter(|standing| standing.instead == instead) {
                standing.instead = id;
            }
        }
        unhelped.insert(id);
        Ok(())
    }

    /// `zpool detach` of a device that a spare stands for: it leaves, and the spare belongs to the
    /// group for good. Refused while the spare lacks anything.
    pub(crate) fn keep_for_good(&self, original: &Leaf, spare: &AuxConfig) -> Result<()> {
        let config = original.config();
        {
            let _turn = self.core.sync_turn.lock();
            let is_busy =
                config.state == LeafState::Leaving || self.scan_status().is_some_and(is_resilvering);
            if is_busy || self.core.space.columns_on(config.id) > 0 {
                return Err(Error::ScanActive { pool: self.core.name(), what: "resilver" });
            }
            original.config.write().state = LeafState::Leaving;
            self.topology.replacing.lock().push(config.id);
            self.aux.listed.write().retain(|aux| aux.guid != spare.guid);
            if self.listed_spares().is_empty() {
                self.core.features.write().retain(|feature| feature.name != FEATURE);
            }
            self.labels_due.mark();
        }
        self.core.commit_changes()?;
        self.settle_leaving(config.id)?;
        self.core.update_limits();
        Ok(())
    }

    /// A leaf that left and that is a spare waits again [spare.2]. True if it is one. At the
    /// beginning of a commit, whose labels say so.
    pub(crate) fn take_back(&self, leaf: &Leaf) -> bool {
        let config = leaf.config();
        let is_it = |aux: &AuxConfig| aux.standing.is_some_and(|standing| standing.leaf == config.id);
        let Some(aux) = self.listed_spares().into_iter().find(is_it) else { return false };
        self.set_standing(aux.guid, None);
        self.aux.spares.write().push(Spare::new(aux.guid, Some(Arc::clone(&leaf.device))));
        self.core.events.note(EventKind::Spare { path: aux.path, word: "AVAIL", instead: String::new() });
        true
    }

    /// Gives the place of a device that its spare stands for whole to another device, or to itself
    /// as a new one [spare.3]. The spare goes when it sees that.
    pub(crate) fn relieve(&self, original: &Leaf, new: DeviceHandle) -> Result<()> {
        let config = original.config();
        let is_it = |aux: &AuxConfig| aux.standing.is_some_and(|standing| standing.instead == config.id);
        let standing = self.listed_spares().into_iter().find(is_it).and_then(|aux| aux.standing);
        let beside = standing.map_or(config.id, |standing| standing.leaf);
        let bytes = new.device.character().size_bytes;
        let slots = medium::slot_count(bytes, self.column_of(&config));
        let held = self.core.space.columns_on(beside).max(1);
        if u64::from(slots) < held {
            let held = u32::try_from(held).unwrap_or(u32::MAX);
            let needed = medium::device_bytes(held, self.column_of(&config));
            return Err(Error::TooSmall { path: new.path, bytes, needed });
        }
        self.need_places(1)?;
        let _due = self.resilver_due();
        {
            let _turn = self.core.sync_turn.lock();
            let id = DeviceId(self.core.space.last_device().0 + 1);
            let (group, guid) = (config.group, self.core.env.random.nonzero_u64());
            let added = LeafConfig { id, guid, slots, group, state: LeafState::Online, path: new.path };
            let added = Arc::new(Leaf::new(added, new.device, &self.core.env, &self.core.events));
            added.erase_rings()?;
            let before = self.leaves();
            self.insert_behind(config.id, &added);
            self.topology.leaves.write().retain(|other| other.id() != config.id);
            self.write_labels_or(&[Arc::clone(&added.device)], || *self.topology.leaves.write() = before)?;
            let member = MemberSpec { id, slots, device: Some(Arc::clone(&added.device)) };
            assert!(self.core.space.add_to_group(beside, member), "the id is more than the greatest");
        }
        self.core.commit_changes()?;
        self.core.update_limits();
        Ok(())
    }
}

fn is_resilvering(row: ScanRow) -> bool {
    row.kind == ScanKind::Resilver && row.state == ScanState::Active
}
