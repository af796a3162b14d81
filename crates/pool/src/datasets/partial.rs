//! Receiving: hidden datasets, what is kept of them when a stream breaks off, and how they go
//! (`receive.rs`).

use crate::datasets::receiving::Receiving;
use crate::datasets::state::Datasets;
use std::sync::Arc;

use steadfast_format::stream::StreamBegin;
use steadfast_format::{DatasetId, MetaKey, ReceiveRow, Txg, meta_keys};

use crate::core::error::{Error, Result};
use crate::datasets::table::{Entry, ROOT, Table};

/// A partial receive that was kept when its stream broke off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Partial {
    /// Guid of the snapshot.
    pub guid: u64,
    /// Guid of its base, or 0.
    pub base: u64,
    /// Inode and offset up to which content is there.
    pub position: (u64, u64),
    /// It is received raw.
    pub raw: bool,
    /// It is received in packed records.
    pub packed: bool,
}

impl Entry {
    /// True if it is a dataset that nobody sees.
    pub fn is_hidden(&self) -> bool {
        self.receiving.is_some()
    }

    /// True while somebody receives into it. He writes through what is open now: what is opened
    /// anew does not have all of it.
    pub fn is_arriving(&self) -> bool {
        self.receiving.as_ref().is_some_and(|receiving| receiving.active)
    }

    /// The item of the meta tree that a commit of `txg` writes or removes for it.
    pub fn receive_item(&mut self, txg: Txg) -> Option<Option<Vec<u8>>> {
        let settled = self.receiving.as_mut().is_some_and(|receiving| receiving.settle(txg));
        let dirty = std::mem::take(&mut self.receive_dirty) || settled;
        dirty.then(|| self.receiving.as_ref().map(|receiving| receiving.row.encode()))
    }
}

impl Table {
    /// Hidden datasets whose snapshots are for `id`, or that lie below it.
    fn hidden_of(&self, id: DatasetId) -> Vec<DatasetId> {
        let is_of = |entry: &Entry| {
            let row = entry.receiving.as_ref().map(|receiving| &receiving.row);
            row.is_some_and(|row| row.target == id || entry.row.parent == id)
        };
        self.iter_all().filter(|(_, entry)| is_of(entry)).map(|(id, _)| id).collect()
    }

    /// Refuses to destroy a dataset while a receive into it, or below it, has begun again. Hidden
    /// datasets in `going` do not count: they are destroyed with it.
    pub(crate) fn check_no_hidden(&self, id: DatasetId, going: &[DatasetId]) -> Result<()> {
        match self.hidden_of(id).iter().all(|hidden| going.contains(hidden)) {
            true => Ok(()),
            false => Err(Error::ReceiveActive { name: self.full_name(id) }),
        }
    }

    /// The hidden dataset that a dataset of this name is received into.
    pub(crate) fn hidden_for(&self, name: &str) -> Option<DatasetId> {
        let target = self.find(name).ok();
        let (parent, last) = name.rsplit_once('/').unwrap_or(("", name));
        let parent = self.find(parent).ok();
        let is_for = |entry: &Entry| {
            let Some(receiving) = &entry.receiving else { return false };
            let row = &receiving.row;
            if receiving.is_in_place() {
                return Some(entry.row.parent) == target;
            }
            if row.target.0 != 0 && !row.clone {
                return Some(row.target) == target;
            }
            Some(entry.row.parent) == parent && row.name.split('@').next() == Some(last)
        };
        self.iter_all().find(|(_, entry)| is_for(entry)).map(|(id, _)| id)
    }
}

impl Datasets {
    /// A stream broke off: what is to be kept is made durable, the rest is freed.
    pub(crate) fn broke_off(&self, hidden: DatasetId) -> Result<()> {
        let kept = {
            let mut table = self.table.write();
            let Some(entry) = table.get_mut(hidden) else { return Ok(()) };
            let Some(receiving) = &mut entry.receiving else { return Ok(()) };
            receiving.active = false;
            receiving.expected = None;
            receiving.row.kept
        };
        if kept { self.core.commit_changes() } else { self.discard(hidden) }
    }

    /// Takes what somebody began to receive, to go on with it.
    pub(crate) fn go_on(&self, name: &str, begin: &StreamBegin) -> Result<(DatasetId, Option<Arc<()>>)> {
        let mut table = self.table.write();
        let nothing = || Error::NoPartial { name: name.to_owned() };
        let hidden = table.hidden_for(name).ok_or_else(nothing)?;
        let entry = table.get(hidden).ok_or_else(nothing)?;
        let receiving = entry.receiving.as_ref().ok_or_else(nothing)?;
        if receiving.active {
            return Err(Error::ReceiveActive { name: name.to_owned() });
        }
        let row = &receiving.row;
        if (row.guid, row.base.map_or(0, |base| base.1), row.position, entry.row.raw)
            != (begin.guid, begin.base, begin.position, begin.raw)
        {
            return Err(Error::OtherPartial { name: name.to_owned() });
        }
        let pin = row.base.and_then(|(txg, _)| table.get(row.target)?.snapshots.get(&txg));
        let pin = pin.map(|snapshot| Arc::clone(&snapshot.pins));
        if let Some(receiving) = table.get_mut(hidden).and_then(|entry| entry.receiving.as_mut()) {
            receiving.active = true;
        }
        drop(table);
        self.open_to_receive(hidden)?;
        Ok((hidden, pin))
    }

    /// Opens what somebody has begun to receive into. Into what cannot be opened nobody receives:
    /// it can be gone on with, or given up, as soon as it can.
    pub(crate) fn open_to_receive(&self, hidden: DatasetId) -> Result<()> {
        let opened = self.open_head(hidden);
        if opened.is_err()
            && let Some(receiving) =
                self.table.write().get_mut(hidden).and_then(|entry| entry.receiving.as_mut())
        {
            receiving.active = false;
        }
        opened.map(drop)
    }

    /// Frees what was received into a hidden dataset. Durable when it returns; its space comes back
    /// in the background.
    pub(crate) fn discard(&self, hidden: DatasetId) -> Result<()> {
        let (base, alone) = {
            let table = self.table.read();
            let Some(receiving) = table.get(hidden).and_then(|entry| entry.receiving.as_ref()) else {
                return Ok(());
            };
            let base = receiving.row.base;
            (base, base.is_none() && table.owned_alone(hidden).is_some())
        };
        let open = || match self.open_head(hidden) {
            // Its segments are nobody else's, and go without a look at what is in them.
            Err(Error::KeyNotLoaded { .. }) if alone => Ok(()),
            opened => opened.map(drop),
        };
        open()?;
        // Content written ahead of its commit is in the trees from here on.
        self.core.commit_changes()?;
        {
            let _turn = self.core.sync_turn.lock();
            let _figures = self.figures.write();
            let mut table = self.table.write();
            let name = table.full_name(hidden);
            let Some(entry) = table.get_mut(hidden) else { return Ok(()) };
            match &entry.receiving {
                // Somebody else gave it up meanwhile: the cells that it has by now are what is to
                // be freed of it.
                None => return Ok(()),
                // Or goes on with it.
                Some(receiving) if receiving.active => return Err(Error::ReceiveActive { name }),
                Some(_) => {}
            }
            if let Some((txg, _)) = base {
                let forgotten = self.forget_shared(entry, txg);
                if let Err(error) = &forgotten {
                    self.core.suspend(error);
                }
                forgotten?;
            } else if let Some(open) = &entry.open {
                open.head.begin_destroy();
            }
            entry.receiving = None;
            entry.receive_dirty = true;
            entry.row.destroying = true;
            entry.row_dirty = true;
        }
        match open() {
            // The sync task was faster.
            Err(Error::NoSuchDataset { .. }) => {}
            opened => opened?,
        }
        self.core.commit_changes()
    }

    /// A hidden dataset that began as a snapshot is empty: what it wrote is dead, and what it let
    /// go lives on in the snapshot.
    pub(crate) fn forget_shared(&self, entry: &mut Entry, base: Txg) -> Result<()> {
        let id = entry.row.id;
        let open = entry.open.take().ok_or_else(|| Error::BadDataset {
            dataset: id,
            reason: "the dataset of a receive that broke off is not open".into(),
        })?;
        let snapped = Txg(self.snapped.load(std::sync::atomic::Ordering::Acquire));
        let mut places = Vec::new();
        for root in [entry.row.names, entry.row.extents] {
            crate::datasets::newer::visit(&open.blocks, root, base, |pointer| {
                places.extend(steadfast_refs::deadlist::places_of(pointer));
            })?;
        }
        for (cell, _) in self.cells_of(id)? {
            self.remove_cell(id, cell)?;
        }
        let row = &mut entry.row;
        (row.names, row.extents) = (None, None);
        (row.used, row.data, row.logical) = (0, 0, 0);
        (row.lineage.kept, row.lineage.kept_logical) = (0, 0);
        entry.deadlist.set_chain(Vec::new(), Txg(0));
        if !places.is_empty() {
            let cell = steadfast_format::CellId { left: snapped, born: base };
            self.put(id, cell, &places, self.sum_of(&places))?;
            entry.add_dead(base, snapped.next());
        }
        Ok(())
    }

    /// Frees what was kept of a receive that broke off. Durable when it returns.
    pub fn abort_receive(&self, name: &str) -> Result<()> {
        self.core.check_writable()?;
        let (hidden, active) = {
            let table = self.table.read();
            let hidden = table.hidden_for(name).ok_or_else(|| Error::NoPartial { name: name.to_owned() })?;
            let receiving = table.get(hidden).and_then(|entry| entry.receiving.as_ref());
            (hidden, receiving.is_some_and(|receiving| receiving.active))
        };
        if active {
            return Err(Error::ReceiveActive { name: name.to_owned() });
        }
        self.discard(hidden)
    }

    /// The kept partial receive of a dataset of this name.
    #[must_use]
    pub fn partial(&self, name: &str) -> Option<Partial> {
        let table = self.table.read();
        let entry = table.get(table.hidden_for(name)?)?;
        let row = &entry.receiving.as_ref().filter(|receiving| receiving.row.kept)?.row;
        let (base, position) = (row.base.map_or(0, |base| base.1), (row.position.0.0, row.position.1));
        Some(Partial { guid: row.guid, base, position, raw: entry.row.raw, packed: row.packed })
    }

    /// Names of file systems that are not there yet, and of which a receive that broke off has left
    /// something.
    #[must_use]
    pub fn unfinished(&self) -> Vec<String> {
        let table = self.table.read();
        let name = |entry: &Entry| {
            let receiving =
                entry.receiving.as_ref().filter(|r| r.row.kept && !r.is_increment() && !r.is_in_place())?;
            let last = receiving.row.name.split('@').next()?;
            Some(format!("{}/{last}", table.full_name(entry.row.parent)))
        };
        let mut names: Vec<String> = table.iter_all().filter_map(|(_, entry)| name(entry)).collect();
        names.retain(|name| table.find(name).is_err());
        names.sort();
        names
    }

    /// Refuses to destroy what something is received upon. [receive.3]
    pub(crate) fn check_receives(
        &self,
        table: &Table,
        id: DatasetId,
        is_needed: impl Fn(Txg) -> bool,
    ) -> Result<()> {
        for hidden in table.hidden_of(id) {
            let receiving = table.get(hidden).and_then(|entry| entry.receiving.as_ref());
            let base = receiving.filter(|r| r.row.target == id).and_then(|r| r.row.base);
            if base.is_some_and(|(txg, _)| is_needed(txg)) {
                return Err(Error::PartialExists { name: table.full_name(id) });
            }
        }
        Ok(())
    }

    /// Frees what was kept for a dataset, or below it, that is about to be destroyed, but for what
    /// goes with it.
    pub(crate) fn discard_partials(&self, name: &str, going: &[DatasetId]) -> Result<()> {
        let hidden = {
            let table = self.table.read();
            let id = table.find(name)?;
            let hidden = table.hidden_of(id);
            let active = |id: &DatasetId| {
                table.get(*id).and_then(|entry| entry.receiving.as_ref()).is_some_and(|r| r.active)
            };
            if hidden.iter().any(active) {
                return Err(Error::ReceiveActive { name: name.to_owned() });
            }
            hidden
        };
        hidden.into_iter().filter(|id| !going.contains(id)).try_for_each(|id| self.discard(id))
    }

    /// Hidden datasets, as stored.
    pub(crate) fn load_receives(&self, pool: &str) -> Result<()> {
        for item in self.core.items_of(meta_keys::RECEIVE) {
            let (MetaKey::Receive(id), value) = item? else { continue };
            let row = ReceiveRow::decode(&value);
            let row = row.map_err(|source| self.core.corrupt(pool, "a receive row", source))?;
            let mut table = self.table.write();
            let bad = |reason: &str| Error::BadDataset { dataset: id, reason: reason.to_owned() };
            let older: Vec<Txg> = match row.base {
                None => Vec::new(),
                Some((txg, guid)) => {
                    let target = table.get(row.target).filter(|_| row.target != id);
                    let target = target.ok_or_else(|| bad("the target of the receive does not exist"))?;
                    if target.snapshots.get(&txg).is_none_or(|base| base.row.guid != guid) {
                        return Err(bad("the base snapshot of the receive does not exist"));
                    }
                    table.chain_up_to(row.target, txg)
                }
            };
            let entry = table.get_mut(id).ok_or_else(|| bad("a receive into it is under way"))?;
            if id == ROOT || !entry.snapshots.is_empty() {
                return Err(bad("a receive into it is under way, and it is in use"));
            }
            entry.deadlist.set_chain(older, Txg(0));
            entry.receiving = Some(Receiving::new(row, false));
        }
        Ok(())
    }

    /// Frees what was being received when the pool was last in use, but for what is kept.
    pub(crate) fn discard_broken_off(&self) -> Result<()> {
        let broken: Vec<DatasetId> = {
            let table = self.table.read();
            let is_broken = |(id, entry): &(DatasetId, &Entry)| {
                let given_up = |r: &Receiving| {
                    // One with a key of its own is not opened, and need not be.
                    let goes =
                        entry.open.is_some() || r.row.base.is_none() && table.owned_alone(*id).is_some();
                    !r.row.kept && !r.active && goes
                };
                entry.receiving.as_ref().is_some_and(given_up)
            };
            table.iter_all().filter(is_broken).map(|(id, _)| id).collect()
        };
        broken.into_iter().try_for_each(|id| self.discard(id))
    }
}

/// Name of a row that has none yet.
pub(crate) fn hidden_name(id: DatasetId) -> String {
    format!("receive:{id}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_format::InodeId;

    #[test]
    fn what_somebody_goes_on_with_or_has_given_up_is_not_given_up_by_another() {
        let pool = crate::test_pool::tank();
        let row = ReceiveRow {
            target: DatasetId(0),
            base: None,
            guid: 7,
            position: (InodeId(0), 0),
            kept: true,
            clone: false,
            packed: false,
            name: "copy@a".into(),
        };
        let receiving = Receiving::new(row, true);
        let hidden = pool.datasets.add_hidden(ROOT, Default::default(), [1; 16], receiving, false, false);
        let hidden = hidden.expect("made");
        pool.core.commit_changes().expect("committed");
        // The receive was resumed after the check and before the discard.
        assert!(matches!(pool.datasets.discard(hidden), Err(Error::ReceiveActive { .. })));
        assert!(pool.datasets.partial("tank/copy").is_some());
        pool.datasets.broke_off(hidden).expect("kept");
        pool.datasets.discard(hidden).expect("given up");
        pool.datasets.discard(hidden).expect("it was given up");
        assert!(pool.datasets.partial("tank/copy").is_none());
    }
}
