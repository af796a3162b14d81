//! Attaching a device to a group, and detaching one.
//!
//! | verb                        | the group                                  | its content |
//! |-----------------------------|--------------------------------------------|---|
//! | attach to a single device   | becomes a mirror of two                    | a resilver makes its segments mirrors, with checksums |
//! | attach to a mirror          | has a column more                          | a resilver gives each segment the column |
//! | attach to raidz             | has a device more, its columns stay as many | new segments use all devices; columns of old ones move over |
//! | detach from a mirror        | has a column less, one at least            | segments lose the column, nothing is copied |
//! | detach the old half of a replacement | as it was                         | its columns are reconstructed from the others |
//! | detach the new half         | as it was before the replacement           | columns moved so far move back |
//! | detach a spare in use       | as it was before the spare stepped in      | segments lack the spare's columns |
//! | detach a device with a spare | the spare belongs to it for good          | nothing moves |
//!
//! A mirror of which one device is left stays a mirror of one column. Its checksums stay, so a
//! scrub still finds errors, and it takes devices again.
//!
//! ## Why raidz keeps its columns
//! A slot is as large as a column of the group was when it was made. A segment of one more column
//! has smaller columns, which leave a part of each slot empty: n + 1 devices of s slots take s such
//! segments, as many as n devices took before, and nothing is gained. Of segments with n columns
//! the same devices take (n + 1) s / n: the new device is used to the full, and a segment survives
//! as many failures as before. The price is the worse ratio of data to parity: raidz2 of 6 devices
//! and one more has 4.67 devices of content instead of 5 (decision 0081). Where devices differ in
//! size, there are segments of fewer columns (decision 0115).
//!
//! ## Invariants
//! [attach.1] Labels name a device, and a group what it has become, before anything is placed
//!      accordingly.
//! [attach.2] No verb takes away the last readable copy of anything: a device whose columns are
//!      needed cannot leave.
//!      `Space::is_needed`
//! [attach.3] A refused verb changes nothing.

use crate::devices::state::Devices;
use std::sync::Arc;

use steadfast_format::{
    DeviceId, Feature, GroupClass, GroupConfig, GroupKind, LabelConfig, LeafConfig, LeafState, Placement,
    ScanKind, SegmentRow, medium,
};
use steadfast_segment::{MemberSpec, Redundancy};

use crate::core::error::{Error, Result};
use crate::devices::groups;
use crate::devices::groups::DeviceHandle;
use crate::devices::leaf::Leaf;

/// Segments that lose a column between two commits.
pub(crate) const DROPS_PER_COMMIT: usize = 512;
/// Commits after which a device without columns has left: one that names it no more, one whose
/// labels list it no more.
const COMMITS_TO_LEAVE: usize = 4;

impl Devices {
    /// A device that stands alone becomes a mirror of one column. Durable when it returns.
    pub(crate) fn form_mirror(&self, leaf: &Leaf) -> Result<()> {
        if leaf.config().group != 0 {
            return Ok(());
        }
        {
            let _turn = self.core.sync_turn.lock();
            let before = (self.topology.groups.read().clone(), self.core.features.read().clone());
            let id = self.last_group().checked_add(1).ok_or(Error::TooManyGroups)?;
            let kind = GroupKind::Mirror;
            let (column, class) = (self.core.identity.slot_size, GroupClass::Normal);
            self.topology.groups.write().push(GroupConfig { id, kind, width: 1, column, class });
            leaf.config.write().group = id;
            if !self.core.has_feature(groups::FEATURE) {
                self.core.features.write().extend(Feature::known(groups::FEATURE));
            }
            self.write_labels_or(&[], || {
                leaf.config.write().group = 0;
                (*self.topology.groups.write(), *self.core.features.write()) = before;
            })?;
            self.core.space.set_group(leaf.id(), Redundancy::Mirror, 1);
        }
        self.core.commit_changes()
    }

    /// Adds a device to the group of another, or makes a mirror of one that stands alone. Begun
    /// when it returns; a resilver ends it, or the evening out of a raidz group.
    pub(crate) fn attach(&self, path: &str, new: DeviceHandle, force: bool) -> Result<()> {
        self.core.check_writable()?;
        let leaf = self.leaf_named(path)?;
        self.check_attach(&leaf, &new, force)?;
        self.form_mirror(&leaf)?;
        let listed =
            self.topology.groups.read().iter().find(|group| group.id == leaf.config().group).cloned();
        let listed = listed.expect("a leaf's group is listed");
        let is_mirror = listed.kind == GroupKind::Mirror;
        let _due = if is_mirror { self.resilver_due() } else { self.expansion_due() };
        {
            let _turn = self.core.sync_turn.lock();
            // One may have stepped in since [attach.3].
            self.check_no_spare(&leaf)?;
            let id = DeviceId(self.core.space.last_device().0 + 1);
            let slots = medium::slot_count(new.device.character().size_bytes, listed.column);
            let (guid, state) = (self.core.env.random.nonzero_u64(), LeafState::Online);
            let config = LeafConfig { id, guid, slots, group: listed.id, state, path: new.path };
            let added = Arc::new(Leaf::new(config, new.device, &self.core.env, &self.core.events));
            added.erase_rings()?;
            let before = self.leaves();
            let last = before.iter().rposition(|other| other.config().group == listed.id);
            self.topology.leaves.write().insert(last.expect("it has a leaf") + 1, Arc::clone(&added));
            let width = listed.width + u8::from(is_mirror);
            self.set_width(listed.id, width);
            self.write_labels_or(&[Arc::clone(&added.device)], || {
                *self.topology.leaves.write() = before;
                self.set_width(listed.id, listed.width);
            })?;
            let member = MemberSpec { id, slots, device: Some(Arc::clone(&added.device)) };
            assert!(self.core.space.add_to_group(leaf.id(), member), "the id is more than the greatest");
            if is_mirror {
                self.core.space.set_group(leaf.id(), Redundancy::Mirror, width.into());
                self.prepare_resilver()?;
            } else {
                self.core.space.close_redundant()?;
            }
        }
        self.core.commit_changes()?;
        self.core.update_limits();
        if is_mirror {
            self.resilver_if_needed();
        } else {
            *self.moves.job.lock() = Some(self.begin_move(ScanKind::Expand, 0));
            self.note_scan("expand", "start");
        }
        Ok(())
    }

    fn set_width(&self, group: u8, width: u8) {
        let mut groups = self.topology.groups.write();
        if let Some(listed) = groups.iter_mut().find(|listed| listed.id == group) {
            listed.width = width;
        }
    }

    /// [attach.3]
    fn check_attach(&self, leaf: &Leaf, new: &DeviceHandle, force: bool) -> Result<()> {
        let is_listed = self.aux.listed.read().iter().any(|aux| aux.path == new.path);
        if is_listed || self.leaves().iter().any(|other| other.path() == new.path) {
            return Err(Error::Twice { path: new.path.clone() });
        }
        self.check_no_spare(leaf)?;
        crate::devices::probe::check_unoccupied(new, force)?;
        let members = self.group_of(leaf);
        if members.iter().any(|member| member.config().state == LeafState::Leaving) {
            return match self.is_being_removed(leaf) {
                true => Err(Error::MoveActive { pool: self.core.name(), what: "remove" }),
                false => Err(Error::ScanActive { pool: self.core.name(), what: "resilver" }),
            };
        }
        let config = leaf.config();
        let listed = self.topology.groups.read().iter().find(|group| group.id == config.group).cloned();
        let redundancy = listed.as_ref().map_or(Redundancy::Mirror, groups::redundancy_of);
        let is_mirror = redundancy == Redundancy::Mirror;
        let most = if is_mirror { Placement::COPIES_MAX } else { SegmentRow::COLUMNS_MAX };
        let group = groups::word(redundancy);
        if members.len() >= most {
            return Err(Error::GroupSize { group, devices: members.len() + 1, least: 2, most });
        }
        if !is_mirror {
            self.check_no_move(&[ScanKind::Expand])?;
        }
        for (path, device) in [(leaf.path(), &leaf.device), (new.path.clone(), &new.device)] {
            if !device.character().appendable {
                return Err(Error::GroupOfObjects { path, group });
            }
        }
        let bytes = new.device.character().size_bytes;
        let slots = medium::slot_count(bytes, self.column_of(&config));
        let least = members.iter().map(|member| member.config().slots).min().unwrap_or(1);
        let least = if is_mirror { least } else { 1 };
        if slots < least {
            let needed = medium::device_bytes(least, self.column_of(&config));
            return Err(Error::TooSmall { path: new.path.clone(), bytes, needed });
        }
        if self.leaves().len() >= LabelConfig::LEAVES_MAX {
            return Err(Error::LabelTooLong { pool: self.core.name() });
        }
        self.need_places(1)
    }

    /// Takes a device out of a mirror, or ends a replacement by giving up one of its halves. Done
    /// when it returns, but for a resilver that a replacement may need.
    pub(crate) fn detach(&self, path: &str) -> Result<()> {
        self.core.check_writable()?;
        let leaf = self.leaf_named(path)?;
        let config = leaf.config();
        let members = self.group_of(&leaf);
        let at = members.iter().position(|member| member.id() == config.id).expect("its own group");
        let is_leaving = |leaf: &Arc<Leaf>| leaf.config().state == LeafState::Leaving;
        if let Some((spare, standing)) = self.standing_at(config.id) {
            return match standing.leaf == config.id {
                true => self.send_back(&leaf, standing.instead),
                false => self.keep_for_good(&leaf, &spare),
            };
        }
        self.check_no_spare(&leaf)?;
        let refuse = |reason| Error::Detach { pool: self.core.name(), path: path.to_owned(), reason };
        if self.is_being_removed(&leaf) {
            return Err(Error::MoveActive { pool: self.core.name(), what: "remove" });
        }
        let kind =
            self.topology.groups.read().iter().find(|group| group.id == config.group).map(|group| group.kind);
        match kind {
            None => Err(refuse("it stands alone; `zpool remove` lets a pool live without it")),
            Some(_) if config.state == LeafState::Leaving => self.give_up_old(&leaf),
            Some(_) if at > 0 && is_leaving(&members[at - 1]) => self.give_up_new(&leaf, &members[at - 1]),
            Some(GroupKind::Mirror) => {
                if members.iter().any(is_leaving) {
                    return Err(Error::ScanActive { pool: self.core.name(), what: "resilver" });
                }
                self.detach_member(&leaf, &members)
            }
            Some(GroupKind::Raidz(_)) => Err(refuse(
                "a raidz group needs each of its devices: only one that is being replaced, or its replacement, can be detached",
            )),
        }
    }

    /// The old half: the resilver goes on without it.
    fn give_up_old(&self, leaf: &Leaf) -> Result<()> {
        {
            let _turn = self.core.sync_turn.lock();
            if !self.core.space.take_out(leaf.id()) {
                return Err(Error::DeviceNeeded { pool: self.core.name(), path: leaf.path() });
            }
            self.labels_due.mark();
            self.prepare_resilver()?;
        }
        self.core.commit_changes()?;
        self.core.update_limits();
        self.resilver_if_needed();
        Ok(())
    }

    /// The new half: the old one stays, and what the new one got moves back.
    fn give_up_new(&self, new: &Leaf, old: &Leaf) -> Result<()> {
        {
            let _turn = self.core.sync_turn.lock();
            if !self.leaves().iter().any(|leaf| leaf.id() == old.id()) {
                let reason = "what it replaced has left: it holds what others need";
                return Err(Error::Detach { pool: self.core.name(), path: new.path(), reason });
            }
            let state =
                if self.core.space.is_out_of_use(old.id()) { LeafState::Offline } else { LeafState::Online };
            old.config.write().state = state;
            new.config.write().state = LeafState::Leaving;
            self.core.space.set_leaving(old.id(), false);
            self.core.space.set_leaving(new.id(), true);
            {
                let mut replacing = self.topology.replacing.lock();
                replacing.retain(|id| *id != old.id());
                replacing.push(new.id());
            }
            self.labels_due.mark();
            self.prepare_resilver()?;
        }
        self.core.commit_changes()?;
        self.core.update_limits();
        self.resilver_if_needed();
        self.settle_leaving(new.id())
    }

    /// A member of a mirror.
    fn detach_member(&self, leaf: &Leaf, members: &[Arc<Leaf>]) -> Result<()> {
        let needed = || Error::DeviceNeeded { pool: self.core.name(), path: leaf.path() };
        let others = members.iter().filter(|other| other.id() != leaf.id());
        {
            let _turn = self.core.sync_turn.lock();
            // One may have stepped in since, and is a member more.
            self.check_no_spare(leaf)?;
            let in_use = others.filter(|other| self.core.space.is_in_use(other.id())).count();
            // [attach.2], before anything is closed [attach.3], and of what was open after it.
            if in_use == 0 || self.core.space.is_needed(leaf.id()) {
                return Err(needed());
            }
            self.core.space.close_redundant()?;
            if self.core.space.is_needed(leaf.id()) {
                return Err(needed());
            }
            let group = leaf.config().group;
            let width = u8::try_from(members.len() - 1).expect("at most four");
            leaf.config.write().state = LeafState::Leaving;
            self.set_width(group, width);
            self.core.space.set_leaving(leaf.id(), true);
            self.core.space.set_group(leaf.id(), Redundancy::Mirror, width.into());
            self.topology.replacing.lock().push(leaf.id());
            self.labels_due.mark();
            self.prepare_resilver()?;
        }
        // The labels say so before a row does [attach.1].
        self.core.commit_changes()?;
        self.core.update_limits();
        self.drop_columns()?;
        self.settle_leaving(leaf.id())
    }

    /// Begins to build what is missing on devices, from the beginning.
    pub fn resilver_anew(&self) -> Result<()> {
        self.core.check_writable()?;
        {
            let _turn = self.core.sync_turn.lock();
            self.prepare_resilver()?;
        }
        self.core.commit_changes()?;
        *self.scans.scan.lock() = Some(self.begin_scan(ScanKind::Resilver));
        self.note_scan("resilver", "start");
        Ok(())
    }

    /// Segments do without what they have on a device that leaves and that none of them needs.
    pub(crate) fn drop_columns_on(&self, id: DeviceId) -> Result<()> {
        loop {
            let dropped = {
                let _turn = self.core.sync_turn.lock();
                self.core.space.drop_columns(id, DROPS_PER_COMMIT)
            };
            self.core.commit_changes()?;
            if dropped == 0 {
                return Ok(());
            }
        }
    }

    /// Segments of mirrors lose the columns that are too many.
    fn drop_columns(&self) -> Result<()> {
        let all = self.core.space.mendable(true);
        for some in all.chunks(DROPS_PER_COMMIT) {
            {
                let _turn = self.core.sync_turn.lock();
                for id in some {
                    self.core.space.fit(*id)?;
                }
            }
            self.core.commit_changes()?;
        }
        Ok(())
    }

    /// Commits until a device that nothing names has left, and is free for others: a commit that
    /// has begun to list it no more has yet to erase its labels and to let go of it.
    pub(crate) fn settle_leaving(&self, id: DeviceId) -> Result<()> {
        // In this order: it is among those that leave until it is among those that have left.
        let is_leaving = || self.topology.replacing.lock().contains(&id);
        let is_held = || self.topology.departed.lock().iter().any(|leaf| leaf.id() == id);
        for _ in 0..COMMITS_TO_LEAVE {
            if !is_leaving() && !is_held() {
                break;
            }
            self.core.commit_changes()?;
        }
        Ok(())
    }
}
