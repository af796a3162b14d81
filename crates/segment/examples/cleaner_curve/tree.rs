//! The nodes of a B+tree, counted and not kept: which of them a commit writes anew, and where they
//! lie.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::{Address, DatasetId};
use steadfast_segment::{Class, Error, Space};

type Key = (u64, u32);

/// One level of a tree with two copies of every node, and the levels above it. Nodes split and
/// merge as those of `steadfast-tree` do: in halves when full, below a quarter with the next one if
/// both together are three quarters full at most.
pub struct Leaves {
    classes: [Class; 2],
    node_bytes: usize,
    /// Items that a node holds at most.
    fill: usize,
    /// First key of each node, its items, and its copies if it was written.
    nodes: BTreeMap<Key, Node>,
    dirty: BTreeSet<Key>,
    /// Copies of nodes that were merged away.
    dropped: Vec<Address>,
    above: Option<Box<Leaves>>,
}

#[derive(Default)]
struct Node {
    keys: BTreeSet<Key>,
    copies: Option<[Address; 2]>,
}

/// Children of an inner node at most.
const INNER_FILL: usize = 110;

impl Leaves {
    pub fn new(classes: [Class; 2], node_bytes: usize, fill: usize) -> Leaves {
        let nodes = BTreeMap::from([((0, 0), Node::default())]);
        Leaves { classes, node_bytes, fill, nodes, dirty: BTreeSet::new(), dropped: Vec::new(), above: None }
    }

    /// Sets an item, or removes it.
    pub fn change(&mut self, key: Key, set: bool) {
        let (&first, node) =
            self.nodes.range_mut(..=key).next_back().expect("a node begins at the least key");
        let changed =
            if set { node.keys.insert(key) || node.keys.contains(&key) } else { node.keys.remove(&key) };
        if !changed {
            return;
        }
        self.dirty.insert(first);
        if node.keys.len() > self.fill {
            let middle = *node.keys.iter().nth(self.fill / 2).expect("it is full");
            let keys = node.keys.split_off(&middle);
            self.nodes.insert(middle, Node { keys, copies: None });
            self.dirty.insert(middle);
            return;
        }
        let left = node.keys.len();
        let next = self.nodes.range((std::ops::Bound::Excluded(first), std::ops::Bound::Unbounded)).next();
        let Some((&next, neighbour)) = next else { return };
        if left < self.fill / 4 && left + neighbour.keys.len() <= self.fill * 3 / 4 {
            let gone = self.nodes.remove(&next).expect("found just now");
            self.dropped.extend(gone.copies.into_iter().flatten());
            self.dirty.remove(&next);
            if let Some(above) = &mut self.above {
                above.change(next, false);
            }
            self.nodes.get_mut(&first).expect("it was changed").keys.extend(gone.keys);
        }
    }

    /// Bytes of one copy of all nodes that the next sync writes.
    pub fn unwritten_bytes(&mut self) -> u64 {
        let own = self.dirty.len() * self.node_bytes;
        if self.nodes.len() == 1 && self.above.is_none() {
            return own as u64;
        }
        let (classes, node_bytes) = (self.classes, self.node_bytes);
        let above = self.above.get_or_insert_with(|| Box::new(Leaves::new(classes, node_bytes, INNER_FILL)));
        for &first in &self.dirty {
            above.change(first, true);
        }
        own as u64 + above.unwritten_bytes()
    }

    /// Writes the nodes that changed and frees what they replace. Gives the bytes written.
    pub fn sync(&mut self, space: &Space) -> Result<u64, Error> {
        self.unwritten_bytes();
        let mut written = 0;
        let bytes = vec![0; self.node_bytes];
        let mut old = std::mem::take(&mut self.dropped);
        for first in std::mem::take(&mut self.dirty) {
            let node = self.nodes.get_mut(&first).expect("a dirty node exists");
            old.extend(node.copies.take().into_iter().flatten());
            let mut copies = [Address::NONE; 2];
            for (copy, class) in copies.iter_mut().zip(self.classes) {
                *copy = space.append(DatasetId(0), class, &bytes)?;
                written += bytes.len() as u64;
            }
            node.copies = Some(copies);
        }
        if let Some(above) = &mut self.above {
            written += above.sync(space)?;
        }
        for copy in old {
            space.free(copy, self.node_bytes)?;
        }
        Ok(written)
    }
}
