//! Items of a dataset's trees, written as they stand: for `Pool::forge`.

use crate::{Dataset, Result};

impl Dataset {
    /// All items of the extents tree, or of the names tree.
    pub fn forged_items(&self, extents: bool) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let tree = if extents { &self.extents } else { &self.names };
        Ok(tree.range::<&[u8]>(..).collect::<std::result::Result<_, _>>()?)
    }

    /// Sets an item of the extents tree, or of the names tree, or removes it.
    pub fn forge(&self, extents: bool, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let tree = if extents { &self.extents } else { &self.names };
        match value {
            Some(value) => drop(tree.insert(key, value)?),
            None => drop(tree.remove(key)?),
        }
        self.changes.changed.note();
        Ok(())
    }
}
