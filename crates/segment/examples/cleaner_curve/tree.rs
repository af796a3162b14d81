//! The leaves of a B+tree, counted and not kept: which of them a commit writes anew, and where they lie.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::{Address, DatasetId};
use steadfast_segment::{Class, Error, Space};

/// One tree with two copies of every leaf. Keys are pairs; inner nodes are some hundredth of the leaves and left out.
pub struct Leaves {
    classes: [Class; 2],
    leaf_bytes: usize,
    /// Items that a leaf holds at most.
    fill: usize,
    /// First key of each leaf, its items, and its copies if it was written.
    leaves: BTreeMap<(u64, u32), Leaf>,
    dirty: BTreeSet<(u64, u32)>,
}

#[derive(Default)]
struct Leaf {
    keys: BTreeSet<(u64, u32)>,
    copies: Option<[Address; 2]>,
}

impl Leaves {
    pub fn new(classes: [Class; 2], leaf_bytes: usize, fill: usize) -> Leaves {
        let leaves = BTreeMap::from([((0, 0), Leaf::default())]);
        Leaves { classes, leaf_bytes, fill, leaves, dirty: BTreeSet::new() }
    }

    /// Sets an item, or removes it.
    pub fn change(&mut self, key: (u64, u32), set: bool) {
        let (&first, leaf) =
            self.leaves.range_mut(..=key).next_back().expect("a leaf begins at the least key");
        let changed =
            if set { leaf.keys.insert(key) || leaf.keys.contains(&key) } else { leaf.keys.remove(&key) };
        if changed {
            self.dirty.insert(first);
        }
        if leaf.keys.len() > self.fill {
            let middle = *leaf.keys.iter().nth(self.fill / 2).expect("it is full");
            let keys = leaf.keys.split_off(&middle);
            self.leaves.insert(middle, Leaf { keys, copies: None });
            self.dirty.insert(middle);
        }
    }

    /// Writes the leaves that changed and frees what they replace. Gives the bytes written.
    pub fn sync(&mut self, space: &Space) -> Result<u64, Error> {
        let mut written = 0;
        let bytes = vec![0; self.leaf_bytes];
        for first in std::mem::take(&mut self.dirty) {
            let leaf = self.leaves.get_mut(&first).expect("a dirty leaf exists");
            let old = leaf.copies.take();
            if leaf.keys.is_empty() && first != (0, 0) {
                self.leaves.remove(&first);
            } else {
                let mut copies = [Address::NONE; 2];
                for (copy, class) in copies.iter_mut().zip(self.classes) {
                    *copy = space.append(DatasetId(0), class, &bytes)?;
                    written += bytes.len() as u64;
                }
                leaf.copies = Some(copies);
            }
            for copy in old.into_iter().flatten() {
                space.free(copy, self.leaf_bytes)?;
            }
        }
        Ok(written)
    }
}
