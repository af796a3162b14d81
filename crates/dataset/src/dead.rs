//! Dead inode records: what an earlier version left of inodes that a stream removed.
//!
//! ## Definitions
//! A record is *dead* if no entry leads to its inode, no orphan's listing names it, and it is the
//! only thing there is of it: no entry, attribute, target or content. Nothing can lead to it again,
//! so it counts for nothing. An increment that removed its leaf would give up the charge of its
//! owner once more.
//!
//! ## Costs
//! One walk of the names tree, and 16 bytes of memory for each 64 inodes, or less. So it is not
//! done at each open, but once before an increment is received upon a snapshot of which nobody
//! knows that it has none.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use steadfast_format::InodeId;
use steadfast_format::dirent::Dirent;
use steadfast_format::file_keys::NamesKey;
use steadfast_txg::AdmitKind;

use crate::dataset::{Dataset, ROOT_INODE};
use crate::extents::extent_key;
use crate::owners::Stage;
use crate::{Error, Result};

/// Records that are removed in one operation.
const BATCH: usize = 128;

/// A set of numbers that lie close together.
#[derive(Default)]
struct Numbers(BTreeMap<u64, u64>);

impl Numbers {
    fn insert(&mut self, number: u64) {
        *self.0.entry(number / 64).or_default() |= 1 << (number % 64);
    }

    fn remove_all(&mut self, others: &Numbers) {
        for (word, bits) in &others.0 {
            if let Some(own) = self.0.get_mut(word) {
                *own &= !bits;
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| word * 64 + bit)
        })
    }
}

impl Dataset {
    /// Removes dead records, and has the owners counted anew if there were any. Gives how many.
    /// Nobody else uses the dataset, and nothing of it changed since it was opened.
    ///
    /// # Errors
    /// A tree cannot be read, or an item of it not be understood: it may be what leads to an inode,
    /// so nothing is removed.
    pub fn remove_dead_records(&self) -> Result<u64> {
        let dead = self.dead_records()?;
        for some in dead.chunks(BATCH) {
            self.operate(
                || self.begin(AdmitKind::Remove),
                |_| self.batch(some.iter().map(|inode| (NamesKey::Inode(*inode).encode(), None)).collect()),
            )?;
        }
        if !dead.is_empty() {
            let mut state = self.owners.state.lock();
            if state.stage != Stage::Off {
                state.stage = Stage::Wanted;
                self.owners.wanting.store(true, Ordering::Release);
            }
        }
        Ok(dead.len() as u64)
    }

    fn dead_records(&self) -> Result<Vec<InodeId>> {
        let bad = |source| Error::Item { dataset: self.id, source };
        let (mut alone, mut led_to) = (Numbers::default(), Numbers::default());
        led_to.insert(ROOT_INODE.0);
        for item in self.names.range::<&[u8]>(..) {
            let (key, value) = item?;
            match NamesKey::decode(&key).map_err(bad)? {
                NamesKey::Head => {}
                NamesKey::Inode(inode) => alone.insert(inode.0),
                NamesKey::Orphan(inode) => led_to.insert(inode.0),
                NamesKey::Entry { directory, .. } => {
                    led_to.insert(directory.0);
                    led_to.insert(Dirent::decode(&value).map_err(bad)?.inode.0);
                }
                NamesKey::Xattr { inode, .. } | NamesKey::Target { inode, .. } => led_to.insert(inode.0),
            }
        }
        alone.remove_all(&led_to);
        let mut dead = Vec::new();
        for inode in alone.iter().map(InodeId) {
            let (from, to) = (extent_key(inode, 0), NamesKey::all_of(InodeId(inode.0 + 1)));
            if self.extents.range(from..to).next().transpose()?.is_none() {
                dead.push(inode);
            }
        }
        Ok(dead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_and_taken_out() {
        let (mut numbers, mut others) = (Numbers::default(), Numbers::default());
        [1, 63, 64, 1 << 47].into_iter().for_each(|number| numbers.insert(number));
        [63, 65, 1 << 48].into_iter().for_each(|number| others.insert(number));
        numbers.remove_all(&others);
        assert_eq!(numbers.iter().collect::<Vec<_>>(), [1, 64, 1 << 47]);
    }
}
