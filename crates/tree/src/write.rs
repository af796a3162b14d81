//! Changing a tree in memory: two walks under one lock.
//!
//! [`Survey`] walks the paths of all changes without touching anything and notes which nodes are
//! not in memory. When none is missing, [`Writer`] walks again and changes; it needs no device and
//! so cannot fail, which is why an operation that fails leaves the tree as it was.
//!
//! *Splits.* A node above the size limit is cut by bytes. If all new entries came at its right end,
//! pieces are filled from the left, so that ascending keys leave full nodes behind; mirrored for
//! the left end. If the latest inserts are an ascending run in the middle (a file that grows among
//! others), the cut is behind the run, which then has a right end to grow at. Otherwise pieces are
//! equal. A piece always fits: an entry is at most half a node.
//!
//! *Merges.* A node that shrank below a quarter is merged with a neighbour if both together are at
//! most three quarters full, so the next insert does not split it again. Neighbours that are not in
//! memory and cannot be read are left alone: a thin node is a cost, not a fault. An empty node is
//! dropped in any case. Two neighbours that were not merged are more than three eighths full on
//! average.

use std::sync::Arc;

use steadfast_cache::AddressMap;
use steadfast_format::BlockPointer;
use steadfast_format::node::{HEADER_SIZE, LEVEL_MAX};

use crate::cache::CacheView;
use crate::node::{Child, Dirty, Node, NodeVersion, Predecessor, separator};
use crate::nodes::{Nodes, Wanted};
use crate::page::{Page, Run};
use crate::unread;

/// Above this many changes a leaf is rebuilt rather than changed in place, where each insert moves
/// half the slots.
const REBUILD_CHANGES_MIN: usize = 32;
/// Inserts, each right behind the one before, that count as a run: random keys seldom make one (in
/// a leaf of 150 keys, once in three million inserts), and files that grow soon do.
const RUN_COUNT_MIN: usize = 4;

/// One change of a tree.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change<'a> {
    /// Key gets this value, whether or not it had one.
    Insert(&'a [u8], &'a [u8]),
    /// Key has no value from now on.
    Remove(&'a [u8]),
}

impl<'a> Change<'a> {
    /// The key to be changed.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        match self {
            Change::Insert(key, _) | Change::Remove(key) => key,
        }
    }
}

/// Nodes an operation has in hand, so that a cache too small to keep them cannot make it start over
/// for ever.
#[derive(Debug, Default)]
pub(crate) struct HeldNodes {
    nodes: AddressMap<(BlockPointer, Arc<Node>)>,
    /// Neighbours that could not be read; not asked for again.
    refused: AddressMap<()>,
}

impl HeldNodes {
    pub(crate) fn insert(&mut self, pointer: &BlockPointer, node: Arc<Node>) {
        self.nodes.insert(pointer.copies[0], (*pointer, node));
    }

    pub(crate) fn refuse(&mut self, pointer: &BlockPointer) {
        self.refused.insert(pointer.copies[0], ());
    }

    pub(crate) fn get(&self, pointer: &BlockPointer) -> Option<&Arc<Node>> {
        self.nodes.get(&pointer.copies[0]).map(|(_, node)| node)
    }

    /// Shows all nodes.
    pub(crate) fn each(&self, mut f: impl FnMut(&BlockPointer, &Arc<Node>)) {
        self.nodes.values().for_each(|(pointer, node)| f(pointer, node));
    }
}

/// A node to be read before a change can be made.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) wanted: Wanted,
    /// Keys below it that are to be changed, for who reads further down at once.
    pub(crate) keys: Vec<Vec<u8>>,
    /// A neighbour for a merge: not needed if it cannot be read.
    pub(crate) optional: bool,
}

/// Bounds of a subtree during a walk.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bounds<'k> {
    pub(crate) lower: Option<&'k [u8]>,
    pub(crate) upper: Option<&'k [u8]>,
}

impl<'k> Bounds<'k> {
    /// Bounds of a child.
    pub(crate) fn of_child<'n: 'k>(self, node: &'n Node, index: usize) -> Bounds<'k> {
        Bounds {
            lower: if index > 0 { Some(node.page.key(index)) } else { self.lower },
            upper: node.upper_key(index).or(self.upper),
        }
    }
}

/// Changes of the slice that go to one child, given the first key that does not.
fn group<'c, 'a>(changes: &'c [Change<'a>], upper: Option<&[u8]>) -> &'c [Change<'a>] {
    match upper {
        Some(upper) if changes.len() > 1 => {
            &changes[..changes.partition_point(|change| change.key() < upper).max(1)]
        }
        _ => changes,
    }
}

/// The first walk. See the module's text.
pub(crate) struct Survey<'t> {
    pub(crate) held: &'t mut HeldNodes,
    pub(crate) nodes: &'t Nodes,
    pub(crate) node_bytes_max: usize,
    pub(crate) missing: Vec<Missing>,
    /// Keys of removals that will find nothing, as indices of the batch; valid if nothing is
    /// missing.
    pub(crate) absent: Vec<usize>,
    seen: usize,
}

impl<'t> Survey<'t> {
    pub(crate) fn new(held: &'t mut HeldNodes, nodes: &'t Nodes, node_bytes_max: usize) -> Self {
        Survey { held, nodes, node_bytes_max, missing: Vec::new(), absent: Vec::new(), seen: 0 }
    }

    /// The stored node, from what is held or from the cache; held from now on.
    pub(crate) fn resolve(&mut self, pointer: &BlockPointer) -> Option<Arc<Node>> {
        if let Some(node) = self.held.get(pointer) {
            return Some(Arc::clone(node));
        }
        let node = self.nodes.cache.glance(pointer).or_else(|| unread::held(self.nodes, pointer)?.ok())?;
        self.held.insert(pointer, Arc::clone(&node));
        Some(node)
    }

    fn miss(&mut self, pointer: &BlockPointer, bounds: Bounds<'_>, changes: &[Change<'_>], optional: bool) {
        let keys = match unread::is_strict() {
            true => changes.iter().map(|change| change.key().to_vec()).collect(),
            false => Vec::new(),
        };
        self.missing.push(Missing { wanted: Wanted::new(pointer, bounds), keys, optional });
    }

    /// Walks the paths of `changes`, all of which lie in this subtree. Returns how large the node
    /// will be at most after them, if it is a leaf in memory.
    pub(crate) fn walk(
        &mut self,
        child: &Child,
        changes: &[Change<'_>],
        bounds: Bounds<'_>,
    ) -> Option<usize> {
        let resolved;
        let node = match child {
            Child::Dirty(dirty) => &*dirty.node,
            Child::Stored(pointer) => match self.resolve(pointer) {
                Some(node) => {
                    resolved = node;
                    &*resolved
                }
                None => {
                    self.miss(pointer, bounds, changes, false);
                    self.seen += changes.len();
                    return None;
                }
            },
        };
        if node.is_leaf() {
            return Some(self.walk_leaf(node, changes));
        }
        let mut rest = changes;
        while let Some(first) = rest.first() {
            let index = node.child_index(first.key());
            let group = group(rest, node.upper_key(index));
            rest = &rest[group.len()..];
            let after = self.walk(&node.children[index], group, bounds.of_child(node, index));
            if let Some(after) = after
                && after < self.node_bytes_max / 4
                && after > HEADER_SIZE
                && group.iter().any(|change| matches!(change, Change::Remove(_)))
            {
                self.want_neighbour(node, index, bounds);
            }
        }
        None
    }

    fn walk_leaf(&mut self, node: &Node, changes: &[Change<'_>]) -> usize {
        let mut after = node.size();
        for change in changes {
            match change {
                Change::Insert(key, value) => after += key.len() + value.len(),
                Change::Remove(key) => match node.page.search(key) {
                    Ok(index) => after -= node.entry_size(index),
                    Err(_) => self.absent.push(self.seen),
                },
            }
            self.seen += 1;
        }
        after
    }

    fn want_neighbour(&mut self, parent: &Node, index: usize, bounds: Bounds<'_>) {
        let neighbour = if index > 0 { index - 1 } else { index + 1 };
        if let Some(Child::Stored(pointer)) = parent.children.get(neighbour)
            && !self.held.refused.contains_key(&pointer.copies[0])
            && self.resolve(pointer).is_none()
            && !matches!(unread::held(self.nodes, pointer), Some(Err(_)))
        {
            self.miss(pointer, bounds.of_child(parent, neighbour), &[], true);
        }
    }
}

/// Which end of a node grew.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Growth {
    Left,
    Right,
    /// Just before this index, by a run of ascending keys.
    Before(usize),
    Anywhere,
}

/// Collects where new entries of a leaf came.
#[derive(Debug, Default)]
struct InsertSides {
    any: bool,
    not_left: bool,
    not_right: bool,
}

impl InsertSides {
    fn inserted(&mut self, left: bool, right: bool) {
        self.any = true;
        self.not_left |= !left;
        self.not_right |= !right;
    }

    fn growth(&self, page: &Page) -> Growth {
        match (self.any, self.not_right, self.not_left) {
            (true, false, _) => Growth::Right,
            (true, _, false) => Growth::Left,
            (true, true, true) => page.run_end(RUN_COUNT_MIN).map_or(Growth::Anywhere, Growth::Before),
            (false, ..) => Growth::Anywhere,
        }
    }
}

/// Result of a change to a subtree.
enum Outcome {
    /// It is where it was, perhaps thinner than a node should be.
    Kept { thin: bool },
    /// It was cut; these follow it, each from its separator on.
    Split(Vec<(Vec<u8>, Child)>),
    /// It is empty.
    Gone,
}

/// The second walk. See the module's text.
pub(crate) struct Writer<'t> {
    pub(crate) epoch: u64,
    pub(crate) node_bytes_max: usize,
    pub(crate) held: &'t mut HeldNodes,
    pub(crate) cache: &'t CacheView,
    /// Versions that the txg drops without successor.
    pub(crate) dropped: &'t mut Vec<Predecessor>,
    /// Encoded bytes of the nodes of this epoch.
    pub(crate) dirty_bytes: &'t mut usize,
    /// For each change, the value before it.
    pub(crate) before: Vec<Option<Vec<u8>>>,
}

impl Writer<'_> {
    /// Makes all changes. Every node on their paths is in memory.
    pub(crate) fn change(&mut self, root_slot: &mut Option<Child>, changes: &[Change<'_>]) {
        if root_slot.is_none() {
            *self.dirty_bytes += HEADER_SIZE;
        }
        let root = root_slot.get_or_insert_with(|| Child::new(self.epoch, Node::leaf()));
        match self.walk(root, changes) {
            Outcome::Kept { .. } => {}
            Outcome::Split(pieces) => self.grow(root, pieces),
            Outcome::Gone => {
                let root = root_slot.take().expect("inserted above");
                self.discard(root);
                return;
            }
        }
        // A root with one child is no use; the child takes its place.
        while root.level() > 0
            && let Some(node) = self.resident(root)
            && node.children.len() == 1
        {
            let child = node.children[0].clone();
            drop(node);
            let old = std::mem::replace(root, child);
            self.discard(old);
        }
    }

    /// Puts new roots above a root that was cut.
    fn grow(&mut self, root: &mut Child, mut pieces: Vec<(Vec<u8>, Child)>) {
        while !pieces.is_empty() {
            let level = root.level() + 1;
            assert!(level <= LEVEL_MAX, "a tree of more leaves than a pool has bytes");
            let mut node = Node { level, ..Node::leaf() };
            node.page.push(&[], &[]);
            for (key, _) in &pieces {
                node.page.push(key, &[]);
            }
            let old = std::mem::replace(root, Child::new(self.epoch, Node::leaf()));
            node.children = std::iter::once(old).chain(pieces.into_iter().map(|(_, child)| child)).collect();
            *self.dirty_bytes += node.size();
            pieces = if node.size() > self.node_bytes_max {
                self.split(&mut node, Growth::Anywhere)
            } else {
                Vec::new()
            };
            *root = Child::new(self.epoch, node);
        }
    }

    fn walk(&mut self, child: &mut Child, changes: &[Change<'_>]) -> Outcome {
        let node = self.own(child);
        let size_before = node.size();
        let (growth, shrank) = match node.is_leaf() {
            true => self.walk_leaf(node, changes),
            false => self.walk_inner(node, changes),
        };
        *self.dirty_bytes = *self.dirty_bytes + node.size() - size_before;
        if node.page.is_empty() {
            Outcome::Gone
        } else if node.size() > self.node_bytes_max {
            Outcome::Split(self.split(node, growth))
        } else {
            Outcome::Kept { thin: shrank && node.size() < self.node_bytes_max / 4 }
        }
    }

    fn walk_leaf(&mut self, node: &mut Node, changes: &[Change<'_>]) -> (Growth, bool) {
        let size_before = node.size();
        let growth = match changes.len() <= REBUILD_CHANGES_MIN {
            true => self.change_leaf(&mut node.page, changes),
            false => self.rebuild_leaf(&mut node.page, changes),
        };
        (growth, node.size() < size_before)
    }

    /// Makes changes one by one.
    fn change_leaf(&mut self, page: &mut Page, changes: &[Change<'_>]) -> Growth {
        let mut ends = InsertSides::default();
        let mut left_end = 0;
        for change in changes {
            let before = match (change, page.search(change.key())) {
                (Change::Insert(_, value), Ok(index)) => {
                    let before = page.value(index).to_vec();
                    page.replace_value(index, value);
                    Some(before)
                }
                (Change::Insert(key, value), Err(index)) => {
                    ends.inserted(index == left_end, index == page.len());
                    left_end = index + 1;
                    page.insert(index, key, value);
                    None
                }
                (Change::Remove(_), Ok(index)) => {
                    let before = page.value(index).to_vec();
                    page.remove(index);
                    Some(before)
                }
                (Change::Remove(_), Err(_)) => None,
            };
            self.before.push(before);
        }
        ends.growth(page)
    }

    /// Makes changes by merging them with the page into a new one: linear, however many they are.
    fn rebuild_leaf(&mut self, page: &mut Page, changes: &[Change<'_>]) -> Growth {
        let mut ends = InsertSides::default();
        let mut new = Page::default();
        let mut old = 0;
        for change in changes {
            while old < page.len() && page.key(old) < change.key() {
                new.push(page.key(old), page.value(old));
                new.run = Run::default();
                old += 1;
            }
            let found = old < page.len() && page.key(old) == change.key();
            self.before.push(found.then(|| page.value(old).to_vec()));
            if let Change::Insert(key, value) = change {
                new.push(key, value);
                if !found {
                    ends.inserted(old == 0, old == page.len());
                }
            }
            old += usize::from(found);
        }
        let run = new.run;
        (old..page.len()).for_each(|index| new.push(page.key(index), page.value(index)));
        new.run = run;
        *page = new;
        ends.growth(page)
    }

    fn walk_inner(&mut self, node: &mut Node, changes: &[Change<'_>]) -> (Growth, bool) {
        let mut outcomes = Vec::new();
        let mut rest = changes;
        while let Some(first) = rest.first() {
            let index = node.child_index(first.key());
            let group = group(rest, node.upper_key(index));
            rest = &rest[group.len()..];
            match self.walk(&mut node.children[index], group) {
                Outcome::Kept { thin: false } => {}
                outcome => outcomes.push((index, outcome)),
            }
        }
        let (mut all_right, mut all_left) = (true, true);
        let (mut thin, mut shrank) = (false, false);
        let last = node.children.len() - 1;
        // From the right, so that indices still to come stay true.
        for (index, outcome) in outcomes.into_iter().rev() {
            match outcome {
                Outcome::Kept { thin: child_thin } => thin |= child_thin,
                Outcome::Split(pieces) => {
                    all_right &= index == last;
                    all_left &= index == 0;
                    for (at, (key, child)) in (index + 1..).zip(pieces) {
                        node.page.insert(at, &key, &[]);
                        node.children.insert(at, child);
                    }
                }
                Outcome::Gone => {
                    shrank = true;
                    let child = node.children.remove(index);
                    self.discard(child);
                    node.page.remove(index);
                    if index == 0 && !node.page.is_empty() {
                        node.page.clear_first_key();
                    }
                }
            }
        }
        if thin {
            shrank |= self.merge_thin_children(node);
        }
        let growth = match (all_right, all_left) {
            (true, _) => Growth::Right,
            (_, true) => Growth::Left,
            _ => Growth::Anywhere,
        };
        (growth, shrank)
    }

    /// Merges thin children of this epoch with neighbours where that is worth it.
    fn merge_thin_children(&mut self, node: &mut Node) -> bool {
        let mut merged = false;
        for index in (0..node.children.len()).rev() {
            let thin = match &node.children[index] {
                Child::Dirty(dirty) => {
                    dirty.epoch == self.epoch && dirty.node.size() < self.node_bytes_max / 4
                }
                Child::Stored(_) => false,
            };
            if !thin {
                continue;
            }
            if index > 0 && self.fits(node, index - 1) {
                self.merge(node, index - 1);
                merged = true;
            } else if index + 1 < node.children.len() && self.fits(node, index) {
                self.merge(node, index);
                merged = true;
            }
        }
        merged
    }

    /// True if children `left` and `left + 1` are in memory and together at most three quarters of
    /// a node.
    fn fits(&mut self, node: &Node, left: usize) -> bool {
        let sizes = (self.resident(&node.children[left]), self.resident(&node.children[left + 1]));
        let (Some(one), Some(two)) = sizes else { return false };
        let key = if one.is_leaf() { 0 } else { node.page.key(left + 1).len() };
        one.size() + two.size() - HEADER_SIZE + key <= self.node_bytes_max / 4 * 3
    }

    /// Moves the entries of child `left + 1` to child `left`.
    fn merge(&mut self, parent: &mut Node, left: usize) {
        let right_child = parent.children.remove(left + 1);
        let right = self.resident(&right_child).expect("asked before");
        let key = parent.page.key(left + 1).to_vec();
        parent.page.remove(left + 1);
        let node = self.own(&mut parent.children[left]);
        let size_before = node.size();
        for index in 0..right.page.len() {
            match right.children.get(index) {
                Some(child) => {
                    let key = if index == 0 { &key } else { right.page.key(index) };
                    node.page.push(key, &[]);
                    node.children.push(child.clone());
                }
                None => node.page.push(right.page.key(index), right.page.value(index)),
            }
        }
        *self.dirty_bytes += node.size() - size_before;
        drop(right);
        self.discard(right_child);
    }

    /// Cuts a node; it keeps the first piece. The total of dirty bytes is adjusted.
    fn split(&mut self, node: &mut Node, growth: Growth) -> Vec<(Vec<u8>, Child)> {
        let cuts = cuts(node, self.node_bytes_max, growth);
        let size_before = node.size();
        let mut size_after = 0;
        let mut pieces = Vec::with_capacity(cuts.len());
        for (at, &start) in cuts.iter().enumerate() {
            let end = cuts.get(at + 1).copied().unwrap_or(node.page.len());
            let mut piece =
                Node { level: node.level, page: node.page.copy(start..end), children: Vec::new() };
            let key = if node.is_leaf() {
                separator(node.page.key(start - 1), node.page.key(start)).to_vec()
            } else {
                piece.children = node.children[start..end].to_vec();
                let key = piece.page.key(0).to_vec();
                piece.page.clear_first_key();
                key
            };
            debug_assert!(piece.size() <= self.node_bytes_max);
            size_after += piece.size();
            pieces.push((key, Child::new(self.epoch, piece)));
        }
        let first_end = cuts[0];
        node.page.truncate(first_end);
        if !node.is_leaf() {
            node.children.truncate(first_end);
        }
        size_after += node.size();
        *self.dirty_bytes = *self.dirty_bytes + size_after - size_before;
        pieces
    }

    /// The node of a link, to be changed: of this epoch, and referred to by nobody else.
    fn own<'c>(&mut self, child: &'c mut Child) -> &'c mut Node {
        let predecessor = match child {
            Child::Dirty(dirty) if dirty.epoch == self.epoch => None,
            Child::Dirty(dirty) => Some(match dirty.node_version.pointer.get() {
                Some(pointer) => Predecessor::Stored(*pointer),
                None => Predecessor::Unwritten(Arc::clone(&dirty.node_version)),
            }),
            Child::Stored(pointer) => Some(Predecessor::Stored(*pointer)),
        };
        if predecessor.is_some() {
            // Links stay as they are: a dirty child that was written meanwhile is in memory only
            // through its link.
            let node = Node::clone(&self.resident(child).expect("surveyed"));
            *self.dirty_bytes += node.size();
            *child = Child::Dirty(Dirty {
                epoch: self.epoch,
                node_version: NodeVersion::new(predecessor),
                node: Arc::new(node),
            });
        }
        match child {
            // A reader may still hold the node: it keeps what it holds, and we go on with a copy
            // [tree.1].
            Child::Dirty(dirty) => Arc::make_mut(&mut dirty.node),
            Child::Stored(_) => unreachable!("made dirty above"),
        }
    }

    /// Drops a link: the stored version behind it is freed by the txg's sync.
    fn discard(&mut self, child: Child) {
        match child {
            Child::Stored(pointer) => self.dropped.push(Predecessor::Stored(pointer)),
            Child::Dirty(dirty) if dirty.epoch == self.epoch => {
                *self.dirty_bytes -= dirty.node.size();
                self.dropped.extend(dirty.node_version.take_predecessor());
            }
            Child::Dirty(dirty) => self.dropped.push(Predecessor::Unwritten(dirty.node_version)),
        }
    }

    /// The node of a link, if it is in memory; held from now on, whatever the cache does.
    fn resident(&mut self, child: &Child) -> Option<Arc<Node>> {
        match child {
            Child::Dirty(dirty) => Some(Arc::clone(&dirty.node)),
            Child::Stored(pointer) => {
                if let Some(node) = self.held.get(pointer) {
                    return Some(Arc::clone(node));
                }
                let node = self.cache.peek(pointer)?;
                self.held.insert(pointer, Arc::clone(&node));
                Some(node)
            }
        }
    }
}

/// First indices of the pieces after the first into which an overfull node is cut.
fn cuts(node: &Node, node_bytes_max: usize, growth: Growth) -> Vec<usize> {
    let count = node.page.len();
    let room = node_bytes_max - HEADER_SIZE;
    let total = node.size() - HEADER_SIZE;
    let mut cuts = Vec::new();
    let mut filled = 0;
    if growth == Growth::Left {
        for index in (0..count).rev() {
            let entry = node.entry_size(index);
            if filled + entry > room {
                cuts.push(index + 1);
                filled = 0;
            }
            filled += entry;
        }
        cuts.reverse();
    } else {
        let (target, border) = match growth {
            Growth::Right => (room, count),
            Growth::Before(border) => (room, border),
            _ => (total.div_ceil(total.div_ceil(room)), count),
        };
        for index in 0..count {
            let entry = node.entry_size(index);
            if filled > 0 && (filled >= target || filled + entry > room || index == border) {
                cuts.push(index);
                filled = 0;
            }
            filled += entry;
        }
    }
    assert!(!cuts.is_empty(), "an overfull node has at least two pieces");
    cuts
}
