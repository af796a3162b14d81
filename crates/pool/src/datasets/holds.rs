//! Holds: tags that keep a snapshot from being destroyed; and new names and properties for
//! snapshots.

use crate::datasets::state::Datasets;
use steadfast_format::{MetaKey, Txg, meta_keys};

use crate::core::error::{Error, Result};
use crate::datasets::snapshot::Snapshot;

/// A tag and when it was set, in seconds since 1970.
pub type Hold = (String, u64);

impl Datasets {
    /// Keeps snapshots by a tag, all or none.
    pub fn hold(&self, names: &[String], tag: &str) -> Result<()> {
        self.core.check_writable()?;
        {
            let mut table = self.table.write();
            let mut found = Vec::new();
            for name in names {
                let (id, txg) = table.find_snapshot(name)?;
                let snapshot = &table.get(id).expect("just found").snapshots[&txg];
                if snapshot.holds.contains_key(tag) {
                    return Err(Error::HoldExists { name: name.clone(), tag: tag.to_owned() });
                }
                found.push((id, txg));
            }
            let now = self.core.now_ns();
            for (id, txg) in found {
                let entry = table.get_mut(id).expect("just found");
                let snapshot = entry.snapshots.get_mut(&txg).expect("just found");
                snapshot.holds.insert(tag.to_owned(), now);
                snapshot.holds_dirty.insert(tag.to_owned());
                entry.snapshots_dirty.insert(txg);
            }
        }
        self.core.commit_changes()
    }

    /// Takes a tag away from snapshots, all or none.
    pub fn release(&self, names: &[String], tag: &str) -> Result<()> {
        self.core.check_writable()?;
        {
            let _figures = self.figures.write();
            let mut table = self.table.write();
            let mut found = Vec::new();
            for name in names {
                let (id, txg) = table.find_snapshot(name)?;
                let snapshot = &table.get(id).expect("just found").snapshots[&txg];
                if !snapshot.holds.contains_key(tag) {
                    return Err(Error::NoSuchHold { name: name.clone(), tag: tag.to_owned() });
                }
                let goes = snapshot.row.deferred && snapshot.holds.len() == 1;
                if goes && table.clones_of(snapshot.row.number).is_empty() {
                    // [receive.3]
                    self.find_unneeded(&table, name)?;
                }
                found.push((id, txg));
            }
            let mut due = Vec::new();
            for (id, txg) in found {
                let entry = table.get_mut(id).expect("just found");
                let snapshot = entry.snapshots.get_mut(&txg).expect("just found");
                snapshot.holds.remove(tag);
                snapshot.holds_dirty.insert(tag.to_owned());
                entry.snapshots_dirty.insert(txg);
                if snapshot.row.deferred && snapshot.holds.is_empty() {
                    due.push(snapshot.row.number);
                }
            }
            for number in due {
                self.release_origin(&mut table, number)?;
            }
        }
        self.core.commit_changes()
    }

    /// Tags that keep a snapshot, and when they were set.
    pub fn holds(&self, name: &str) -> Result<Vec<Hold>> {
        let table = self.table.read();
        let (id, txg) = table.find_snapshot(name)?;
        let snapshot = &table.get(id).expect("just found").snapshots[&txg];
        Ok(snapshot.holds.iter().map(|(tag, ns)| (tag.clone(), ns / 1_000_000_000)).collect())
    }

    /// Gives snapshots another name (what follows the `@`), all or none.
    pub fn rename_snapshots(&self, names: &[String], to: &str) -> Result<()> {
        self.core.check_writable()?;
        {
            let mut table = self.table.write();
            let mut found = Vec::new();
            for name in names {
                let (id, txg) = table.find_snapshot(name)?;
                let entry = table.get(id).expect("just found");
                let is_there = entry.snapshot(to).is_some_and(|other| other != txg);
                if is_there || found.iter().any(|&(of, other)| of == id && other != txg) {
                    let name = format!("{}@{to}", table.full_name(id));
                    return Err(Error::SnapshotExists { name });
                }
                found.push((id, txg));
            }
            for (id, txg) in found {
                let entry = table.get_mut(id).expect("just found");
                to.clone_into(&mut entry.snapshots.get_mut(&txg).expect("just found").row.name);
                entry.snapshots_dirty.insert(txg);
            }
        }
        self.core.commit_changes()
    }

    /// Sets, or with `None` removes, properties of users on snapshots, all or none. Durable when it
    /// returns.
    pub fn set_snapshot_properties(&self, names: &[String], edits: &[(&str, Option<&str>)]) -> Result<()> {
        self.core.check_writable()?;
        self.edit_snapshots(names, |snapshot| {
            for (property, value) in edits {
                match value {
                    Some(value) => snapshot.received.set(&mut snapshot.props, property, value),
                    None => snapshot.received.inherit(&mut snapshot.props, property),
                }
                snapshot.props_dirty.push((*property).to_owned());
            }
        })?;
        for name in names {
            for (property, value) in edits {
                match value {
                    Some(value) => self.core.note_done(&format!("set {name} {property}={value}")),
                    None => self.core.note_done(&format!("inherit {name} {property}")),
                }
            }
        }
        self.core.commit_changes()
    }

    /// A property of snapshots goes back to what was received of it, or to what their datasets
    /// have; all or none. Durable when it returns.
    pub fn revert_snapshot_property(&self, names: &[String], property: &str) -> Result<()> {
        self.core.check_writable()?;
        self.edit_snapshots(names, |snapshot| {
            snapshot.received.revert(&mut snapshot.props, property);
            snapshot.props_dirty.push(property.to_owned());
        })?;
        names.iter().for_each(|name| self.core.note_done(&format!("inherit -S {name} {property}")));
        self.core.commit_changes()
    }

    /// Does something to the rows of snapshots, which the next commit stores; to none of them if
    /// one is not there.
    fn edit_snapshots(&self, names: &[String], edit: impl Fn(&mut Snapshot)) -> Result<()> {
        let mut table = self.table.write();
        let found: Vec<_> = names.iter().map(|name| table.find_snapshot(name)).collect::<Result<_>>()?;
        for (id, txg) in found {
            let entry = table.get_mut(id).expect("just found");
            edit(entry.snapshots.get_mut(&txg).expect("just found"));
            entry.snapshots_dirty.insert(txg);
        }
        Ok(())
    }

    /// Full names of the snapshots of a dataset on which a property of users is set, or was
    /// received.
    pub fn snapshots_with(&self, dataset: &str, property: &str) -> Result<Vec<String>> {
        let table = self.table.read();
        let id = table.find(dataset)?;
        let snapshots = table.get(id).expect("just found").snapshots.values();
        let having = snapshots.filter(|snapshot| {
            snapshot.props.contains_key(property) || snapshot.received.names().any(|name| name == property)
        });
        Ok(having.map(|snapshot| format!("{dataset}@{}", snapshot.row.name)).collect())
    }

    /// Tags, as stored.
    pub(crate) fn load_holds(&self, pool: &str) -> Result<()> {
        let numbers = self.table.read().snapshots_by_number();
        for item in self.core.items_of(meta_keys::HOLD) {
            let (MetaKey::Hold(number, tag), value) = item? else { continue };
            let time = <[u8; 8]>::try_from(value.as_slice()).map_err(|_| {
                let source =
                    steadfast_format::DecodeError::Short { structure: "hold", need: 8, have: value.len() };
                self.core.corrupt(pool, "a hold", source)
            })?;
            let Some((id, txg)) = numbers.get(&number) else { continue };
            let mut table = self.table.write();
            if let Some(snapshot) = table.get_mut(*id).and_then(|entry| entry.snapshots.get_mut(txg)) {
                snapshot.holds.insert(tag, u64::from_le_bytes(time));
            }
        }
        Ok(())
    }

    /// Notes that snapshots go when nothing keeps them any more; those that nothing keeps go at
    /// once. Under `figures`.
    pub(crate) fn defer(
        &self,
        table: &mut crate::datasets::table::Table,
        id: steadfast_format::DatasetId,
        txg: Txg,
    ) {
        if let Some(entry) = table.get_mut(id)
            && let Some(snapshot) = entry.snapshots.get_mut(&txg)
        {
            snapshot.row.deferred = true;
            entry.snapshots_dirty.insert(txg);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::core::error::Error;

    #[test]
    fn two_snapshots_of_a_dataset_do_not_get_one_name() {
        let pool = crate::test_pool::tank();
        let both = ["tank@a".to_owned(), "tank@b".to_owned()];
        for name in &both {
            pool.datasets().take_snapshots(std::slice::from_ref(name), &Default::default()).expect("taken");
        }
        assert!(matches!(pool.datasets().rename_snapshots(&both, "c"), Err(Error::SnapshotExists { .. })));
        assert_eq!(pool.datasets().snapshot_names("tank").expect("listed"), ["a", "b"]);
        pool.datasets().rename_snapshots(&both[..1], "c").expect("renamed");
        assert_eq!(pool.datasets().snapshot_names("tank").expect("listed"), ["c", "b"]);
    }
}
