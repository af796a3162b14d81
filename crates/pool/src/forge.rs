//! Items of a pool's trees, written as a stranger with all keys could write them: whatever they
//! say, hashed up to the uberblock by the commit that follows. Tests and fuzzers spoil pools with
//! it. Only with debug assertions: no program that is shipped has it.

use steadfast_format::DatasetId;

use crate::Pool;
use crate::core::error::Result;

/// A tree of a pool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ForgedTree {
    /// The pool's own.
    Meta,
    /// Names of a dataset.
    Names(DatasetId),
    /// Content of a dataset.
    Extents(DatasetId),
}

impl Pool {
    /// All items of a tree.
    pub fn forged_items(&self, tree: ForgedTree) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        Ok(match tree {
            ForgedTree::Meta => self.core.meta.range::<&[u8]>(..).collect::<std::result::Result<_, _>>()?,
            ForgedTree::Names(id) => self.datasets.open_head(id)?.forged_items(false)?,
            ForgedTree::Extents(id) => self.datasets.open_head(id)?.forged_items(true)?,
        })
    }

    /// Sets an item of a tree, or removes it, with the next commit. The pool in memory does not
    /// know: the commit is to be its last. A row that the commit writes itself wins.
    pub fn forge(&self, tree: ForgedTree, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        match tree {
            ForgedTree::Meta => match value {
                Some(value) => drop(self.core.meta.insert(key, value)?),
                None => drop(self.core.meta.remove(key)?),
            },
            ForgedTree::Names(id) => self.datasets.open_head(id)?.forge(false, key, value)?,
            ForgedTree::Extents(id) => self.datasets.open_head(id)?.forge(true, key, value)?,
        }
        self.core.health.changed.note();
        Ok(())
    }
}
