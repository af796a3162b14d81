//! Moves a dataset, with all below it, to another name (`zfs rename`).
//!
//! A move changes one row: the dataset's parent and name. Datasets below follow by themselves, and
//! so do inherited properties. Blocks stay where they are, as they name the dataset by its id.

use crate::datasets::state::Datasets;
use steadfast_format::DatasetId;

use crate::core::error::{Error, Result};
use crate::datasets::table::{ROOT, Table};

impl Datasets {
    /// Moves a dataset, with all below it, to another name of the same pool. Durable when it
    /// returns.
    pub fn rename_dataset(&self, name: &str, to: &str) -> Result<()> {
        self.core.check_writable()?;
        let id = {
            let mut table = self.table.write();
            let id = table.find(name)?;
            let Some((parent_name, last)) = to.rsplit_once('/').filter(|_| id != ROOT) else {
                return Err(Error::RootDataset { name: if id == ROOT { name } else { to }.to_owned() });
            };
            if table.find(to).is_ok() {
                return Err(Error::DatasetExists { name: to.to_owned() });
            }
            let missing = |_| Error::NoParent { parent: parent_name.to_owned() };
            let parent = table.find(parent_name).map_err(missing)?;
            table.check_parent(parent)?;
            table.check_filesystem_limits(parent, Some(id))?;
            if table.is_within(parent, id) {
                return Err(Error::InsideItself { name: name.to_owned(), to: to.to_owned() });
            }
            let moved = table.snapshots_within(id);
            self.check_snapshot_limits(&table, &[(parent, moved)], &table.ancestry(id))?;
            self.quotas.check_renamed(id, parent, name, |id| table.full_name(id))?;
            if let Some(reason) = key_border(&table, id, parent) {
                return Err(Error::KeyBorder { name: name.to_owned(), to: to.to_owned(), reason });
            }
            if parent > id {
                self.core.need_feature("moved_datasets")?;
            }
            let entry = table.get_mut(id).expect("just found");
            entry.row.parent = parent;
            last.clone_into(&mut entry.row.name);
            entry.row_dirty = true;
            self.core.note_done(&format!("rename {name} ({id}) -> {to}"));
            id
        };
        self.apply_settings(id);
        self.core.commit_changes()
    }
}

/// Why a dataset cannot be moved below `parent` as it is encrypted.
fn key_border(table: &Table, id: DatasetId, parent: DatasetId) -> Option<String> {
    let (own, above) = (table.encryption_root(id), table.encryption_root(parent));
    let here = table.get(id).and_then(|entry| table.encryption_root(entry.row.parent));
    match (own, above) {
        // A clone may lie outside of where its key comes from, and moves as freely there.
        (Some(_), None) if here.is_none() => None,
        // Its own key goes with it anywhere.
        (Some(root), _) if root == id => None,
        (Some(root), above) if above != Some(root) => {
            let root = table.full_name(root);
            Some(format!("it takes its key from '{root}'; give it one of its own first (zfs change-key)"))
        }
        _ => None,
    }
}
