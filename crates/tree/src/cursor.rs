//! Reading in order: a cursor is a path of nodes, a range is two cursors and the bounds between
//! them.

use std::ops::Bound;
use std::sync::Arc;

use steadfast_format::BlockPointer;

use crate::node::{Child, Node};
use crate::tree::LoadError;
use crate::unread::KeyRange;
use crate::write::Bounds;
use crate::{Result, Tree};

/// A path from the root of one version of the tree to an entry of a leaf.
#[derive(Debug)]
pub(crate) struct Cursor {
    root: Option<Child>,
    version: u64,
    /// Nodes from the root down, each with the index of the child (or entry) taken.
    path: Vec<(Arc<Node>, usize)>,
}

impl Cursor {
    pub(crate) fn new(tree: &Tree) -> Self {
        let state = tree.state();
        Cursor { root: state.root.clone(), version: tree.version(), path: Vec::new() }
    }

    /// A cursor in the same version of the tree.
    fn fork(&self) -> Self {
        Cursor { root: self.root.clone(), version: self.version, path: Vec::new() }
    }

    /// The leaf that holds a key if any does.
    pub(crate) fn descend_to_key(&mut self, tree: &Tree, key: &[u8]) -> Result<Option<Arc<Node>>, LoadError> {
        self.path.clear();
        self.descend(tree, |node| node.child_index(key))?;
        Ok(self.path.last().map(|(leaf, _)| Arc::clone(leaf)))
    }

    /// Where the leaf behind this one begins; `None` behind the last.
    pub(crate) fn behind(&self) -> Option<Vec<u8>> {
        let (_, above) = self.path.split_last()?;
        within(above).upper.map(<[u8]>::to_vec)
    }

    /// True if the leaf was changed since the last sync.
    pub(crate) fn is_at_dirty(&self) -> bool {
        let child = match &self.path[..] {
            [.., (parent, index), _] => Some(&parent.children[*index]),
            _ => self.root.as_ref(),
        };
        matches!(child, Some(Child::Dirty(_)))
    }

    /// Nodes of the path that are stored.
    pub(crate) fn each_stored(&self, mut f: impl FnMut(&BlockPointer, &Arc<Node>)) {
        let mut child = self.root.as_ref();
        for (node, index) in &self.path {
            if let Some(Child::Stored(pointer)) = child {
                f(pointer, node);
            }
            child = node.children.get(*index);
        }
    }

    /// Goes to the first entry within a lower bound; false if there is none.
    fn seek_first(&mut self, tree: &Tree, lower: &Bound<Vec<u8>>) -> Result<bool, LoadError> {
        self.path.clear();
        match lower {
            Bound::Unbounded => self.descend(tree, |_| 0)?,
            Bound::Included(key) | Bound::Excluded(key) => {
                self.descend(tree, |node| node.child_index(key))?
            }
        }
        let Some((leaf, index)) = self.path.last_mut() else { return Ok(false) };
        *index = match lower {
            Bound::Unbounded => 0,
            Bound::Included(key) => leaf.page.search(key).unwrap_or_else(|index| index),
            Bound::Excluded(key) => leaf.page.search(key).map_or_else(|index| index, |index| index + 1),
        };
        if *index < leaf.page.len() {
            return Ok(true);
        }
        *index -= 1;
        self.next(tree)
    }

    /// Goes to the last entry within an upper bound; false if there is none.
    fn seek_last(&mut self, tree: &Tree, upper: &Bound<Vec<u8>>) -> Result<bool, LoadError> {
        self.path.clear();
        match upper {
            Bound::Unbounded => self.descend(tree, |node| node.page.len() - 1)?,
            Bound::Included(key) | Bound::Excluded(key) => {
                self.descend(tree, |node| node.child_index(key))?
            }
        }
        let Some((leaf, index)) = self.path.last_mut() else { return Ok(false) };
        let end = match upper {
            Bound::Unbounded => leaf.page.len(),
            Bound::Included(key) => leaf.page.search(key).map_or_else(|index| index, |index| index + 1),
            Bound::Excluded(key) => leaf.page.search(key).unwrap_or_else(|index| index),
        };
        *index = end.saturating_sub(1);
        if end > 0 { Ok(true) } else { self.previous(tree) }
    }

    /// Goes to the next entry; false, and the cursor is of no use, if there is none.
    fn next(&mut self, tree: &Tree) -> Result<bool, LoadError> {
        while let Some((node, index)) = self.path.last_mut() {
            if *index + 1 < node.page.len() {
                *index += 1;
                self.descend(tree, |_| 0)?;
                return Ok(true);
            }
            self.path.pop();
        }
        Ok(false)
    }

    /// Goes to the entry before; false, and the cursor is of no use, if there is none.
    fn previous(&mut self, tree: &Tree) -> Result<bool, LoadError> {
        while let Some((_, index)) = self.path.last_mut() {
            if *index > 0 {
                *index -= 1;
                self.descend(tree, |node| node.page.len() - 1)?;
                return Ok(true);
            }
            self.path.pop();
        }
        Ok(false)
    }

    /// First key of the leaf, and its value.
    pub(crate) fn first_entry(&self) -> Option<Entry> {
        let (leaf, _) = self.path.last()?;
        (!leaf.page.is_empty()).then(|| (leaf.page.key(0).to_vec(), leaf.page.value(0).to_vec()))
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        let (leaf, index) = self.path.last().expect("the cursor is on an entry");
        (leaf.page.key(*index), leaf.page.value(*index))
    }

    /// Extends the path to a leaf; `choose` picks the index in each further node.
    fn descend(&mut self, tree: &Tree, choose: impl Fn(&Node) -> usize) -> Result<(), LoadError> {
        loop {
            let child = match self.path.last() {
                Some((node, _)) if node.is_leaf() => return Ok(()),
                Some((node, index)) => &node.children[*index],
                None => match &self.root {
                    Some(root) => root,
                    None => return Ok(()),
                },
            };
            let node = match child {
                Child::Dirty(dirty) => Arc::clone(&dirty.node),
                Child::Stored(pointer) => match self.path.split_last() {
                    Some(((parent, index), above)) if pointer.level == 0 => {
                        tree.load_leaf(parent, *index, within(above), self.version)?
                    }
                    _ => tree.load(pointer, within(&self.path), Some(self.version))?,
                },
            };
            let index = choose(&node);
            self.path.push((node, index));
        }
    }
}

/// Bounds of the child to which a path leads.
fn within(path: &[(Arc<Node>, usize)]) -> Bounds<'_> {
    path.iter().fold(Bounds::default(), |bounds, (node, index)| bounds.of_child(node, *index))
}

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Iterator over keys and values in order, from either end. Made by [`Tree::range`].
#[derive(Debug)]
pub struct Range<'t> {
    tree: &'t Tree,
    /// Version both ends work on.
    origin: Cursor,
    front: Option<Cursor>,
    back: Option<Cursor>,
    /// Range of the keys still to come.
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    ended: bool,
}

impl<'t> Range<'t> {
    pub(crate) fn new(tree: &'t Tree, lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>) -> Self {
        Range { tree, origin: Cursor::new(tree), front: None, back: None, lower, upper, ended: false }
    }

    fn step(&mut self, forward: bool) -> Option<Result<Entry>> {
        match self.advance(forward) {
            Ok(false) => None,
            Ok(true) => {
                let end = if forward { &self.front } else { &self.back };
                let (key, value) = end.as_ref().expect("just moved").entry();
                Some(Ok((key.to_vec(), value.to_vec())))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Shows what is still to come to a function, until it says no. A leaf at once: where the range
    /// ends in it is looked up once, and not asked for each entry.
    pub(crate) fn visit(&mut self, mut f: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        while self.advance(true)? {
            let cursor = self.front.as_mut().expect("just moved");
            let (leaf, at) = cursor.path.last_mut().expect("the cursor is on an entry");
            let page = &leaf.page;
            let end = match &self.upper {
                Bound::Included(upper) => page.search(upper).map_or_else(|index| index, |index| index + 1),
                Bound::Excluded(upper) => page.search(upper).unwrap_or_else(|index| index),
                Bound::Unbounded => page.len(),
            };
            for index in *at..end {
                if !f(page.key(index), page.value(index)) {
                    return Ok(());
                }
            }
            // The first of them was within the bounds, or the cursor would not be on it.
            *at = end - 1;
            self.lower = Bound::Excluded(page.key(end - 1).to_vec());
        }
        Ok(())
    }

    /// Moves one end to the next entry; false if there is none.
    fn advance(&mut self, forward: bool) -> Result<bool> {
        while !self.ended {
            match self.try_step(forward) {
                Ok(true) => return Ok(true),
                Ok(false) => self.ended = true,
                Err(LoadError::Stale) => {
                    self.origin = Cursor::new(self.tree);
                    (self.front, self.back) = (None, None);
                }
                Err(LoadError::Unread(wanted)) => {
                    self.ended = true;
                    return Err(self.tree.miss(*wanted, self.rest()));
                }
                Err(LoadError::Failed(error)) => {
                    self.ended = true;
                    return Err(error);
                }
            }
        }
        Ok(false)
    }

    /// Keys still to come, and perhaps one at each end.
    fn rest(&self) -> KeyRange {
        let from = match &self.lower {
            Bound::Included(key) | Bound::Excluded(key) => key.clone(),
            Bound::Unbounded => Vec::new(),
        };
        let to = match &self.upper {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
            Bound::Unbounded => None,
        };
        KeyRange::new(from, to)
    }

    fn try_step(&mut self, forward: bool) -> Result<bool, LoadError> {
        let end = if forward { &mut self.front } else { &mut self.back };
        let found = match end {
            Some(cursor) if forward => cursor.next(self.tree)?,
            Some(cursor) => cursor.previous(self.tree)?,
            None => {
                let cursor = end.insert(self.origin.fork());
                match forward {
                    true => cursor.seek_first(self.tree, &self.lower)?,
                    false => cursor.seek_last(self.tree, &self.upper)?,
                }
            }
        };
        if !found {
            return Ok(false);
        }
        let (key, _) = end.as_ref().expect("set above").entry();
        let within = match forward {
            true => match &self.upper {
                Bound::Included(upper) => key <= upper.as_slice(),
                Bound::Excluded(upper) => key < upper.as_slice(),
                Bound::Unbounded => true,
            },
            false => match &self.lower {
                Bound::Included(lower) => key >= lower.as_slice(),
                Bound::Excluded(lower) => key > lower.as_slice(),
                Bound::Unbounded => true,
            },
        };
        if !within {
            return Ok(false);
        }
        let passed = if forward { &mut self.lower } else { &mut self.upper };
        match passed {
            Bound::Excluded(last) => {
                last.clear();
                last.extend_from_slice(key);
            }
            other => *other = Bound::Excluded(key.to_vec()),
        }
        Ok(true)
    }
}

impl Iterator for Range<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}
