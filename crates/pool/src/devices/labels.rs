//! Labels of the pool's devices: their content as of now, and writing them.

use crate::core::error::Error;
use crate::core::error::Result;
use crate::devices::leaf::Leaf;
use crate::devices::probe::give_back;
use crate::devices::state::Devices;
use std::sync::Arc;
use steadfast_device::Device;
use steadfast_format::AuxClass;
use steadfast_format::AuxConfig;
use steadfast_format::GroupConfig;
use steadfast_format::LabelConfig;
use steadfast_format::LeafConfig;
use steadfast_format::LeafState;
use steadfast_format::PoolState;
use steadfast_format::Txg;

impl Devices {
    /// Bytes of a slot on a leaf.
    pub(crate) fn column_of(&self, leaf: &LeafConfig) -> u32 {
        let groups = self.topology.groups.read();
        groups
            .iter()
            .find(|group| group.id == leaf.group)
            .map_or(self.core.identity.slot_size, |group| group.column)
    }

    /// Devices as they are now, and the groups that they are of: each that a device names is among
    /// them.
    pub(crate) fn leaves_and_groups(&self) -> (Vec<(Arc<Leaf>, LeafConfig)>, Vec<GroupConfig>) {
        loop {
            // The last device of a group goes before it, the first one comes about when it does.
            let groups = self.topology.groups.read().clone();
            let leaves = self.leaves().into_iter().map(|leaf| {
                let config = leaf.config();
                (leaf, config)
            });
            let leaves: Vec<_> = leaves.collect();
            let is_listed = |(_, config): &(_, LeafConfig)| {
                config.group == 0 || groups.iter().any(|group| group.id == config.group)
            };
            if leaves.iter().all(is_listed) {
                return (leaves, groups);
            }
        }
    }

    /// The label of one device as of now.
    pub(crate) fn label_of(&self, leaf: &Leaf, state: PoolState, txg: Txg) -> LabelConfig {
        let own = leaf.config();
        // Each lock is let go before the next one is taken.
        let known_as = *self.core.identity.known_as.read();
        let becoming = *self.core.identity.becoming.read();
        let leaves = self.leaves().iter().map(|leaf| self.listed(leaf)).collect();
        let features = self.core.features.read().clone();
        let groups = self.topology.groups.read().clone();
        LabelConfig {
            pool: self.core.identity.guid,
            known_as,
            becoming,
            name: self.core.identity.label_name.clone().unwrap_or_else(|| self.core.name()),
            device: own.id,
            device_guid: own.guid,
            txg,
            created_ns: self.core.identity.created_ns,
            state,
            host: self.core.identity.host.clone(),
            ashift: self.core.identity.ashift,
            slot_size: self.core.identity.slot_size,
            leaves,
            features,
            aux: self.labelled_aux(),
            groups,
            key: self.core.sealing.as_ref().map(|sealing| sealing.wrapped.read().clone()),
        }
    }

    /// A leaf as the labels list it.
    pub(crate) fn listed(&self, leaf: &Leaf) -> LeafConfig {
        let config = leaf.config();
        let is_out = matches!(config.state, LeafState::Offline | LeafState::Faulted);
        match is_out && self.topology.until_import.lock().contains(&config.id) {
            true => LeafConfig { state: LeafState::Gone, ..config },
            false => config,
        }
    }

    /// Auxiliary devices as labels are to list them. Until the root under way is durable log
    /// devices are listed as they were [log_device.2].
    pub(crate) fn labelled_aux(&self) -> Vec<AuxConfig> {
        let mut aux = self.aux.listed.read().clone();
        if let Some(before) = self.aux.logs_before.lock().as_ref() {
            aux.retain(|aux| aux.class != AuxClass::Log);
            aux.extend(before.iter().cloned());
        }
        aux
    }

    /// The greatest number of a group, or of a mirror of log devices.
    pub(crate) fn last_group(&self) -> u8 {
        self.last_of_groups().max(self.last_log_mirror())
    }

    /// The greatest number of a group.
    pub(crate) fn last_of_groups(&self) -> u8 {
        self.topology.groups.read().iter().map(|group| group.id).max().unwrap_or(0)
    }

    /// The greatest number of a mirror of log devices.
    pub(crate) fn last_log_mirror(&self) -> u8 {
        self.aux.listed.read().iter().map(|aux| aux.log.mirror).max().unwrap_or(0)
    }

    /// Writes all copies of all labels, two at a time with a flush between, so that a crash leaves
    /// two good ones.
    ///
    /// Devices that are about to be added get theirs before the others list them: a crash leaves
    /// none that is listed and has no label, which an import would take for missing.
    pub(crate) fn write_labels(&self, state: PoolState, txg: Txg) -> Result<()> {
        self.write_labels_noting(state, txg, &mut false)
    }

    /// Writes labels that say what a verb is about to do, as of the last commit. If that fails,
    /// `undo` takes back in memory what they were to say, and labels of leaves that say so already
    /// say again what is so: the next root is none that they could be read with. Devices that were
    /// to come lose theirs after that, for as long as one lists them they are needed. No commit may
    /// run meanwhile.
    pub(crate) fn write_labels_or(&self, coming: &[Arc<dyn Device>], undo: impl FnOnce()) -> Result<()> {
        let (txg, mut begun) = (self.core.txgs.commits.committed(), false);
        let Err(error) = self.write_labels_noting(PoolState::Active, txg, &mut begun) else { return Ok(()) };
        undo();
        // Labels of log devices are not older, and that is all they have to be [log_device.3]: one
        // that fails must not be what keeps the others from it.
        let put_back = || -> Result<()> {
            for copies in [[0, 2], [1, 3]] {
                self.write_leaf_labels(copies, PoolState::Active, txg, |_| true)?;
                // One that was about to step in waits again.
                self.write_spare_labels(copies, PoolState::Active, txg);
            }
            Ok(())
        };
        if !begun || put_back().is_ok() {
            coming.iter().for_each(|device| give_back(&**device));
        }
        // The next commit writes all labels again.
        self.labels_due.mark();
        self.core.health.changed.note();
        Err(error)
    }

    /// The same as [`Self::write_labels`]; `begun` says whether some of those of leaves may have
    /// been written.
    pub(crate) fn write_labels_noting(&self, state: PoolState, txg: Txg, begun: &mut bool) -> Result<()> {
        let is_new = |leaf: &Arc<Leaf>| {
            let is_known = self.core.space.is_in_use(leaf.id()) || self.core.space.is_out_of_use(leaf.id());
            leaf.in_use().is_some() && !is_known
        };
        let new: Vec<Arc<Leaf>> = self.leaves().into_iter().filter(is_new).collect();
        if !new.is_empty() {
            self.label_logs_first(state, txg)?;
        }
        for leaf in &new {
            let label = self.label_of(leaf, state, txg).encode(steadfast_crypto::hash);
            let label = label.ok_or_else(|| Error::LabelTooLong { pool: self.core.name() })?;
            *begun = true;
            for copies in [[0, 2], [1, 3]] {
                copies.iter().try_for_each(|&copy| leaf.device.write_label(copy, &label))?;
                leaf.device.flush()?;
            }
        }
        for copies in [[0, 2], [1, 3]] {
            self.write_log_labels(copies, state, txg)?;
            self.write_spare_labels(copies, state, txg);
            self.write_cache_labels(copies, state, txg);
            *begun = true;
            // Those that are new have theirs. One of them that fails is no device of a group yet
            // that could do without it.
            self.write_leaf_labels(copies, state, txg, |leaf| {
                !new.iter().any(|other| other.id() == leaf.id())
            })?;
        }
        Ok(())
    }

    /// Two copies of the labels of some leaves, durable when it returns.
    pub(crate) fn write_leaf_labels(
        &self,
        copies: [usize; 2],
        state: PoolState,
        txg: Txg,
        of: impl Fn(&Leaf) -> bool,
    ) -> Result<()> {
        let encode = |leaf: &Leaf| self.label_of(leaf, state, txg).encode(steadfast_crypto::hash);
        if self.leaves().iter().any(|leaf| encode(leaf).is_none()) {
            return Err(Error::LabelTooLong { pool: self.core.name() });
        }
        self.on_leaves(|leaf| {
            let label = encode(leaf).expect("they fit just now");
            copies.iter().filter(|_| of(leaf)).try_for_each(|&copy| leaf.device.write_label(copy, &label))
        })?;
        Ok(self.core.space.flush_devices()?)
    }

    /// The devices now.
    pub(crate) fn leaves(&self) -> Vec<Arc<Leaf>> {
        self.topology.leaves.read().clone()
    }

    pub(crate) fn leaf_named(&self, path: &str) -> Result<Arc<Leaf>> {
        let found = self.leaves().into_iter().find(|leaf| leaf.path() == path);
        found.ok_or_else(|| Error::ForeignDevice { path: path.to_owned(), pool: self.core.name() })
    }

    /// Writes all labels of log devices, before a leaf by itself gets some of this txg: an import
    /// would take those there are for older than the leaves' [log_device.3].
    pub(crate) fn label_logs_first(&self, state: PoolState, txg: Txg) -> Result<()> {
        [[0, 2], [1, 3]].into_iter().try_for_each(|copies| self.write_log_labels(copies, state, txg))
    }

    fn write_log_labels(&self, copies: [usize; 2], state: PoolState, txg: Txg) -> Result<()> {
        let logs = self.log_labels.get().and_then(|logs| logs.upgrade());
        logs.map_or(Ok(()), |logs| logs.write_log_labels(copies, state, txg))
    }
}
