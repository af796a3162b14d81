//! One device of each mirror becomes a pool of its own (`zpool split`): the same blocks, known by
//! another number and another name.
//!
//! Blocks, uberblocks and keys stay bound to the number with which the pool was made, so only
//! labels change. A leaf that belongs to the other half is *parted*: the pool does without it, and
//! forgets it once no row names it.
//!
//! ## Rounds
//! 1. The labels of all say which leaves part, the columns that groups have without them, and, on
//!    those that part, the number by which they are about to be known.
//! 2. Those that part say that number, the new name, and that the others are the parted ones.
//!
//! | a crash                        | result |
//! |--------------------------------|---|
//! | in round 1                     | nobody says the new number: all leaves are found, and the import takes the parted ones back |
//! | in round 2, after one device   | it says the new number, so those that say it comes count as of it ([`crate::scan()`]): two pools |
//! | later                          | two pools; each forgets the other's leaves when it is imported |
//!
//! ## Invariants
//! [split.1] A device parts only while it has a column of every segment of its group, and nothing
//!      is written to it after round 1.
//! [split.2] Each half is complete: of every group it has a device with every segment.
//!      `check_split`
//! [split.4] Promises made to `fsync` before round 1 are in the root, or in a log that lies on the
//!      mirrors. Groups on log devices, which the new pool does not have, are in a root before
//!      round 1, and none is written until the split is over.
//!      `LogRest`
//! [split.3] The width of a group does not count parted leaves, on labels and in memory; a leaf
//!      taken back is counted again.

use crate::Pool;
use std::sync::Arc;

use steadfast_format::{
    AuxClass, DeviceId, Feature, GroupConfig, GroupKind, LabelConfig, LeafConfig, LeafState, PoolGuid,
    PoolState, Txg,
};
use steadfast_segment::Redundancy;

use crate::core::error::{Error, Result};
use crate::devices::attach::DROPS_PER_COMMIT;
use crate::devices::leaf::Leaf;

/// Feature of pools that were split.
pub(crate) const FEATURE: &str = "split";
/// Commits after which a device without columns has left.
const COMMITS_TO_LEAVE: usize = 4;

/// Takes parted leaves that were found back: the split did not come to its second round. [split.3]
pub(crate) fn take_back(config: &mut LabelConfig, is_here: impl Fn(&LeafConfig) -> bool) {
    for leaf in &mut config.leaves {
        if leaf.state == LeafState::Parted && is_here(leaf) {
            leaf.state = LeafState::Online;
            let group = config.groups.iter_mut().find(|group| group.id == leaf.group);
            if let Some(group) = group {
                group.width = group.width.saturating_add(1);
            }
        }
    }
}

impl Pool {
    /// Makes a pool of another name of one device of each mirror: of those that are named, or the
    /// last. It is exported. Gives their paths.
    pub fn split(&self, new_name: &str, paths: &[String], dry_run: bool) -> Result<Vec<String>> {
        self.core.check_writable()?;
        self.core.check_no_checkpoint()?;
        let parted = self.halves(paths)?;
        self.check_split(&parted)?;
        let result: Vec<String> = parted.iter().map(|leaf| leaf.path()).collect();
        if dry_run {
            return Ok(result);
        }
        let told = {
            let _resting = self.zil.rest_log_devices();
            // Log devices stay with this half. A root of both halves now has all that was promised
            // on them [split.4].
            self.core.commit_changes()?;
            self.part(new_name, &parted)?
        };
        self.core.commit_changes()?;
        self.core.update_limits();
        self.forget_parted(|| self.core.commit_changes())?;
        parted.iter().for_each(|leaf| leaf.device.release());
        told.map(|()| result)
    }

    /// One leaf of each group, those that are named among them.
    fn halves(&self, paths: &[String]) -> Result<Vec<Arc<Leaf>>> {
        let refuse = |reason: String| Error::Split { pool: self.core.name(), reason };
        let named = paths.iter().map(|path| self.devices.leaf_named(path)).collect::<Result<Vec<_>>>()?;
        let mut halves: Vec<Arc<Leaf>> = Vec::new();
        if let Some(leaf) = self.devices.leaves().iter().find(|leaf| leaf.config().group == 0) {
            return Err(refuse(format!("{} stands alone, and every group has to be a mirror", leaf.path())));
        }
        for group in self.devices.topology.groups.read().iter() {
            let members: Vec<Arc<Leaf>> =
                self.devices.leaves().into_iter().filter(|leaf| leaf.config().group == group.id).collect();
            let last = members.last().expect("a group has leaves");
            if group.kind != GroupKind::Mirror || members.len() < 2 {
                return Err(refuse(format!(
                    "the group of {} is no mirror of two devices or more, and each half needs a device of every group",
                    last.path()
                )));
            }
            let mut of_group = named.iter().filter(|leaf| leaf.config().group == group.id);
            let half = of_group.next().unwrap_or(last);
            if let Some(second) = of_group.next() {
                return Err(refuse(format!(
                    "{} and {} are of one mirror, and the new pool takes one device of each",
                    half.path(),
                    second.path()
                )));
            }
            halves.push(Arc::clone(half));
        }
        Ok(halves)
    }

    /// [split.2]
    fn check_split(&self, parted: &[Arc<Leaf>]) -> Result<()> {
        let refuse = |reason: &str| Err(Error::Split { pool: self.core.name(), reason: reason.to_owned() });
        if self.core.anchor().is_some() {
            return refuse(
                "it has an anchor, which names one root for one pool; take it away with `zpool remove` first",
            );
        }
        // [split.4]
        if self.zil.held_on_devices() > 0 {
            return refuse(
                "its log devices, which stay with it, hold what was promised to file systems whose keys are not loaded; `zfs load-key -a` first",
            );
        }
        self.check_whole()?;
        self.devices.check_no_move(&[])?;
        if !self.core.space.mendable(true).is_empty() {
            return refuse(
                "not every device of its mirrors holds everything yet; `zpool wait -t resilver` waits for that",
            );
        }
        let lacks = parted.iter().find(|leaf| !self.core.space.holds_its_group(leaf.id()));
        match lacks {
            Some(leaf) => refuse(&format!(
                "{} does not hold everything; `zpool scrub` mends what is missing",
                leaf.path()
            )),
            None => Ok(()),
        }
    }

    /// Both rounds. An error of the second round is returned when this half has finished.
    fn part(&self, new_name: &str, parted: &[Arc<Leaf>]) -> Result<Result<()>> {
        let _turn = self.core.sync_turn.lock();
        self.check_split(parted)?;
        let committed = self.core.txgs.commits.committed();
        let new = PoolGuid(self.core.env.random.nonzero_u64());
        let before = (self.devices.topology.groups.read().clone(), self.core.features.read().clone());
        let coming: Vec<LabelConfig> =
            parted.iter().map(|leaf| self.half_of(leaf, parted, new, new_name, committed)).collect();
        let known: Vec<LabelConfig> =
            parted.iter().map(|leaf| self.devices.label_of(leaf, PoolState::Active, committed)).collect();
        if !self.core.has_feature(FEATURE) {
            self.core.features.write().extend(Feature::known(FEATURE));
        }
        let first = || -> Result<()> {
            self.devices.label_logs_first(PoolState::Active, committed)?;
            for (leaf, label) in parted.iter().zip(&known) {
                let features = self.core.features.read().clone();
                self.write_to(leaf, &LabelConfig { becoming: Some(new), features, ..label.clone() })?;
            }
            self.set_parted(parted, true);
            self.devices.write_labels(PoolState::Active, committed)
        };
        if let Err(error) = first() {
            self.set_parted(parted, false);
            (*self.devices.topology.groups.write(), *self.core.features.write()) = before;
            self.devices.labels_due.mark();
            return Err(error);
        }
        // [split.1]
        for leaf in parted {
            self.core.space.set_leaving(leaf.id(), true);
            self.core.space.take_out(leaf.id());
            self.devices.topology.replacing.lock().push(leaf.id());
        }
        self.fit_groups();
        let second = parted.iter().zip(&coming).try_for_each(|(leaf, label)| self.write_to(leaf, label));
        self.devices.labels_due.mark();
        self.devices.prepare_resilver()?;
        Ok(second)
    }

    /// Leaves are parted, or are not after all. [split.3]
    fn set_parted(&self, leaves: &[Arc<Leaf>], parted: bool) {
        let mut groups = self.devices.topology.groups.write();
        for leaf in leaves {
            let mut config = leaf.config.write();
            let is_parted = config.state == LeafState::Parted;
            if is_parted == parted {
                continue;
            }
            config.state = if parted { LeafState::Parted } else { LeafState::Online };
            if let Some(group) = groups.iter_mut().find(|group| group.id == config.group) {
                group.width = if parted { group.width - 1 } else { group.width + 1 };
            }
        }
    }

    /// New segments have as many columns as groups have devices without parted ones.
    fn fit_groups(&self) {
        let groups: Vec<GroupConfig> = self.devices.topology.groups.read().clone();
        for group in groups.iter().filter(|group| group.kind == GroupKind::Mirror) {
            if let Some(leaf) = self.devices.leaves().iter().find(|leaf| leaf.config().group == group.id) {
                self.core.space.set_group(leaf.id(), Redundancy::Mirror, group.width.into());
            }
        }
    }

    /// The label of a device of the other half: all others are parted, and there are no auxiliary
    /// devices.
    fn half_of(&self, leaf: &Leaf, parted: &[Arc<Leaf>], new: PoolGuid, name: &str, txg: Txg) -> LabelConfig {
        let label = self.devices.label_of(leaf, PoolState::Exported, txg);
        let goes = |config: &LeafConfig| parted.iter().any(|leaf| leaf.id() == config.id);
        let leaves = label.leaves.iter().cloned().map(|config| match goes(&config) {
            true => config,
            false => LeafConfig { state: LeafState::Parted, ..config },
        });
        let lists = |class: AuxClass| match class {
            AuxClass::Log => crate::log::log_device::FEATURE,
            AuxClass::Anchor => "anchor",
            AuxClass::Spare => "spares",
            AuxClass::Cache => "cache_devices",
            AuxClass::Parity => crate::devices::parity::FEATURE,
        };
        let of_aux =
            [AuxClass::Log, AuxClass::Anchor, AuxClass::Spare, AuxClass::Cache, AuxClass::Parity].map(lists);
        let mut features: Vec<Feature> =
            label.features.iter().filter(|feature| !of_aux.contains(&&*feature.name)).cloned().collect();
        features.retain(|feature| feature.name != crate::log::log_device::MIRRORS);
        if !features.iter().any(|feature| feature.name == FEATURE) {
            features.extend(Feature::known(FEATURE));
        }
        if !features.iter().any(|feature| feature.name == crate::import::reguid::FEATURE) {
            features.extend(Feature::known(crate::import::reguid::FEATURE));
        }
        LabelConfig {
            known_as: Some(new),
            becoming: None,
            name: name.to_owned(),
            leaves: leaves.collect(),
            groups: label.groups.iter().map(|group| GroupConfig { width: 1, ..group.clone() }).collect(),
            aux: Vec::new(),
            features,
            ..label
        }
    }

    /// All four copies of a label of one device, so that a crash leaves two good ones.
    fn write_to(&self, leaf: &Leaf, label: &LabelConfig) -> Result<()> {
        let bytes = label.encode(steadfast_crypto::hash);
        let bytes = bytes.ok_or_else(|| Error::LabelTooLong { pool: self.core.name() })?;
        for copies in [[0, 2], [1, 3]] {
            copies.iter().try_for_each(|&copy| leaf.device.write_label(copy, &bytes))?;
            leaf.device.flush()?;
        }
        Ok(())
    }

    /// Leaves that were parted when the pool was imported: they count for nothing, and are
    /// forgotten once no row names them.
    pub(crate) fn begin_without_parted(&self) {
        for leaf in self.devices.leaves().iter().filter(|leaf| leaf.config().state == LeafState::Parted) {
            self.core.space.set_leaving(leaf.id(), true);
            self.devices.topology.replacing.lock().push(leaf.id());
        }
    }

    /// Rows do without parted leaves, some of them a commit, until nothing names them.
    pub(crate) fn forget_parted(&self, commit: impl Fn() -> Result<()>) -> Result<()> {
        let parted: Vec<DeviceId> = self
            .devices
            .leaves()
            .iter()
            .filter(|leaf| leaf.config().state == LeafState::Parted)
            .map(|leaf| leaf.id())
            .collect();
        if parted.is_empty() {
            return Ok(());
        }
        let commit = || {
            self.core.health.changed.note();
            commit()
        };
        for some in self.core.space.mendable(true).chunks(DROPS_PER_COMMIT) {
            {
                let _turn = self.core.sync_turn.lock();
                some.iter().try_for_each(|id| self.core.space.fit(*id).map(drop))?;
            }
            commit()?;
        }
        for id in &parted {
            loop {
                let dropped = {
                    let _turn = self.core.sync_turn.lock();
                    self.core.space.drop_columns(*id, DROPS_PER_COMMIT)
                };
                commit()?;
                if dropped == 0 {
                    break;
                }
            }
        }
        for _ in 0..COMMITS_TO_LEAVE {
            if !parted.iter().any(|id| self.devices.topology.replacing.lock().contains(id)) {
                break;
            }
            commit()?;
        }
        Ok(())
    }
}
