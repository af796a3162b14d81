//! Nodes in memory, and the links that hold them.
//!
//! A [`Node`] is content only and, once shared, never changes. The identity of a node (its place,
//! its predecessor) belongs to the [`Child`] link in its parent, so the cache and readers can share
//! nodes without knowing.

use std::sync::{Arc, Mutex, OnceLock};

use steadfast_format::node::{self as stored, NodeEncoder};
use steadfast_format::{BlockPointer, DecodeError};

use crate::page::Page;

/// Content of a node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) level: u8,
    /// Leaf: keys and values. Inner node: keys, first one empty, and no values.
    pub(crate) page: Page,
    /// Inner node: as many as the page has entries. Leaf: none.
    pub(crate) children: Vec<Child>,
}

/// Link to a node.
#[derive(Clone, Debug)]
pub(crate) enum Child {
    /// Stored, and in memory only as far as the cache keeps it.
    Stored(BlockPointer),
    /// In memory, and perhaps stored in the meantime: see [`Dirty::node_version`].
    Dirty(Dirty),
}

/// Link to a node that was changed in memory.
#[derive(Clone, Debug)]
pub(crate) struct Dirty {
    /// Epoch in which it was made. Only in that epoch may it be changed further [tree.2].
    pub(crate) epoch: u64,
    pub(crate) node_version: Arc<NodeVersion>,
    pub(crate) node: Arc<Node>,
}

/// Identity of one version of a node: where it was stored, and what it stands in for.
#[derive(Debug, Default)]
pub(crate) struct NodeVersion {
    /// Set once, by the sync that wrote this version.
    pub(crate) pointer: OnceLock<BlockPointer>,
    /// The version to free when this one is written, or when this one is dropped without having
    /// been. Taken by whoever frees it: the duty to free exists once [tree.4].
    predecessor: Mutex<Option<Predecessor>>,
}

/// An earlier version of a node.
#[derive(Debug)]
pub(crate) enum Predecessor {
    /// It is stored here.
    Stored(BlockPointer),
    /// It belongs to a snapshot that was not yet written when it was cloned.
    Unwritten(Arc<NodeVersion>),
}

impl NodeVersion {
    pub(crate) fn new(predecessor: Option<Predecessor>) -> Arc<NodeVersion> {
        Arc::new(NodeVersion { pointer: OnceLock::new(), predecessor: Mutex::new(predecessor) })
    }

    pub(crate) fn take_predecessor(&self) -> Option<Predecessor> {
        self.predecessor.lock().expect("no panic while held").take()
    }
}

impl Predecessor {
    /// Pointer that is to be freed for this version: its own, or if it was never written that of
    /// the nearest version before it that was.
    pub(crate) fn into_pointer(self) -> Option<BlockPointer> {
        let mut version = self;
        loop {
            match version {
                Predecessor::Stored(pointer) => return Some(pointer),
                Predecessor::Unwritten(node_version) => match node_version.pointer.get() {
                    Some(pointer) => return Some(*pointer),
                    None => version = node_version.take_predecessor()?,
                },
            }
        }
    }
}

impl Child {
    /// A new node without predecessor.
    pub(crate) fn new(epoch: u64, node: Node) -> Child {
        Child::Dirty(Dirty { epoch, node_version: NodeVersion::new(None), node: Arc::new(node) })
    }

    /// Where the linked version is stored, if it is.
    pub(crate) fn pointer(&self) -> Option<&BlockPointer> {
        match self {
            Child::Stored(pointer) => Some(pointer),
            Child::Dirty(dirty) => dirty.node_version.pointer.get(),
        }
    }

    /// Forgets the node if it is stored.
    pub(crate) fn settle(&mut self) {
        if let Child::Dirty(dirty) = self
            && let Some(&pointer) = dirty.node_version.pointer.get()
        {
            *self = Child::Stored(pointer);
        }
    }

    pub(crate) fn level(&self) -> u8 {
        match self {
            Child::Stored(pointer) => pointer.level,
            Child::Dirty(dirty) => dirty.node.level,
        }
    }
}

impl Node {
    pub(crate) fn leaf() -> Node {
        Node { level: 0, page: Page::default(), children: Vec::new() }
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.level == 0
    }

    /// Bytes of the node when encoded.
    pub(crate) fn size(&self) -> usize {
        let pointers = self.children.len() * BlockPointer::ENCODED_SIZE;
        stored::encoded_size(self.page.len(), self.page.live_bytes() + pointers)
    }

    /// Bytes an entry adds to [`Node::size`].
    pub(crate) fn entry_size(&self, index: usize) -> usize {
        let pointer = if self.is_leaf() { 0 } else { BlockPointer::ENCODED_SIZE };
        stored::SLOT_SIZE + self.page.entry_bytes(index) + pointer
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Node>() + self.page.memory_bytes() + self.children.capacity() * size_of::<Child>()
    }

    /// Index of the child that holds a key.
    pub(crate) fn child_index(&self, key: &[u8]) -> usize {
        match self.page.search(key) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        }
    }

    /// First key of the child after `index`, which bounds child `index` from above.
    pub(crate) fn upper_key(&self, index: usize) -> Option<&[u8]> {
        (index + 1 < self.page.len()).then(|| self.page.key(index + 1))
    }

    /// The node's bytes. All children are stored.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let pointers = self.children.len() * BlockPointer::ENCODED_SIZE;
        let count = self.page.len();
        let mut encoder = NodeEncoder::new(self.level, count, self.page.live_bytes() + pointers);
        if self.is_leaf() {
            (0..count).for_each(|index| encoder.push(self.page.key(index), self.page.value(index)));
        } else {
            for (index, child) in self.children.iter().enumerate() {
                let pointer = child.pointer().expect("children are written before parents [tree.3]");
                encoder.push(self.page.key(index), &pointer.to_bytes());
            }
        }
        encoder.finish()
    }

    /// A node from stored bytes.
    pub(crate) fn decode(bytes: Vec<u8>) -> Result<Node, DecodeError> {
        let view = stored::Node::decode(&bytes)?;
        let level = view.level();
        if level == 0 {
            let entries: Vec<_> =
                view.entries().map(|entry| (entry.offset, entry.key.len(), entry.value.len())).collect();
            return Ok(Node { level, page: Page::over(bytes, entries.into_iter()), children: Vec::new() });
        }
        let mut page = Page::default();
        let mut children = Vec::with_capacity(view.count());
        for entry in view.entries() {
            page.push(entry.key, &[]);
            children.push(Child::Stored(BlockPointer::decode(entry.value)?));
        }
        Ok(Node { level, page, children })
    }

    /// First key that is not within what the parent says, if there is one.
    pub(crate) fn key_outside(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Option<&[u8]> {
        let first = usize::from(!self.is_leaf());
        if first >= self.page.len() {
            return None;
        }
        let (lowest, highest) = (self.page.key(first), self.page.key(self.page.len() - 1));
        let too_low = lower.is_some_and(|lower| if first == 0 { lowest < lower } else { lowest <= lower });
        if too_low {
            return Some(lowest);
        }
        upper.is_some_and(|upper| highest >= upper).then_some(highest)
    }
}

/// A separator between two neighbouring keys, as short as can be: above `left`, not above `right`.
pub(crate) fn separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    debug_assert!(left < right);
    let common = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    &right[..common + 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_is_the_shortest_that_separates() {
        for (left, right, expected) in
            [("abc", "abd", "abd"), ("a", "abc", "ab"), ("abc", "x", "x"), ("abcq", "abdzzz", "abd")]
        {
            let found = separator(left.as_bytes(), right.as_bytes());
            assert_eq!(found, expected.as_bytes());
            assert!(left.as_bytes() < found && found <= right.as_bytes());
        }
    }
}
