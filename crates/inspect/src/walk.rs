//! Walking a tree node by node. Every node is read and judged on its own; a bad one ends its
//! branch, not the walk.
//!
//! A walk ends on any image: levels fall with every step, and no address is entered twice, so it
//! reads at most what the devices hold. It keeps one path of pointers and the set of addresses it
//! has seen.

use std::collections::HashSet;
use std::sync::Arc;

use steadfast_crypto::BlockKeys;
use steadfast_format::extent::Extent;
use steadfast_format::file_keys::ExtentsKey;
use steadfast_format::node::{LEVEL_MAX, NODE_BYTES_MAX, Node};
use steadfast_format::{Address, BlockKind, BlockPointer, DatasetId};

use crate::finding::{At, Bookmark};
use crate::view::{Content, View};
use crate::{Finding, Found};

/// A tree to walk.
pub(crate) struct Walk {
    /// 0 for the pool's own.
    pub dataset: DatasetId,
    pub kind: BlockKind,
    pub keys: Option<Arc<BlockKeys>>,
    pub root: BlockPointer,
}

/// Hears of what a walk meets, in key order.
pub(crate) trait Visit {
    /// A node's pointer, before it is read. False: it is not read.
    fn node(
        &mut self,
        view: &mut View,
        pointer: &BlockPointer,
        bookmark: &Bookmark,
        found: &mut Found<'_>,
    ) -> bool;
    /// An item of a leaf.
    fn item(&mut self, view: &mut View, item: Item<'_>, found: &mut Found<'_>);
}

/// An item of a leaf.
pub(crate) struct Item<'a> {
    pub leaf: &'a Bookmark,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

impl Item<'_> {
    /// Blocks of content that an item of an extents tree leads to, each with where it is; none for
    /// items of other kinds. `None`, and told, if it cannot be read.
    pub fn content(
        &self,
        dataset: DatasetId,
        found: &mut Found<'_>,
    ) -> Option<Vec<(BlockPointer, Bookmark)>> {
        if self.leaf.kind == BlockKind::Names {
            return Some(Vec::new());
        }
        let Ok(ExtentsKey::Extent { inode, offset }) = ExtentsKey::decode(self.key) else {
            return Some(Vec::new());
        };
        let Ok(extent) = Extent::decode(self.value) else {
            found(self.bad("not an extent"));
            return None;
        };
        let at = At::File { inode, offset };
        let of = |pointer: &BlockPointer| Bookmark {
            dataset,
            kind: BlockKind::Data,
            level: pointer.level,
            at: at.clone(),
        };
        Some(extent.pointers().into_iter().map(|pointer| (*pointer, of(pointer))).collect())
    }

    /// The finding that this item cannot be read.
    pub fn bad(&self, reason: impl ToString) -> Finding {
        let key = crate::record::hex(self.key);
        Finding::Item { bookmark: self.leaf.clone(), key, reason: reason.to_string() }
    }
}

/// A node still to be read.
struct Open {
    pointer: BlockPointer,
    bookmark: Bookmark,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Walk {
    /// Walks the tree. False if a part of it could not be read, so that what lies below is not
    /// known.
    pub fn run(&self, view: &mut View, visit: &mut dyn Visit, found: &mut Found<'_>) -> bool {
        let mut whole = true;
        let mut entered: HashSet<Address> = HashSet::new();
        let bookmark = |pointer: &BlockPointer, at| Bookmark {
            dataset: self.dataset,
            kind: self.kind,
            level: pointer.level,
            at,
        };
        let root = Open {
            pointer: self.root,
            bookmark: bookmark(&self.root, At::Root),
            lower: Vec::new(),
            upper: None,
        };
        let mut open = vec![root];
        while let Some(Open { pointer, bookmark: here, lower, upper }) = open.pop() {
            if !visit.node(view, &pointer, &here, found) {
                continue;
            }
            if let Some(reason) = self.impossible(&pointer) {
                found(Finding::PointerOdd { bookmark: here, reason });
                whole = false;
                continue;
            }
            if !entered.insert(pointer.copies[0]) {
                found(Finding::Overlap { bookmark: here, address: pointer.copies[0], units: 1 });
                continue;
            }
            let Content::Open(bytes) = view.read(&pointer, &here, self.keys.as_deref(), found) else {
                whole = false;
                continue;
            };
            let reason = match Node::decode(&bytes) {
                Err(error) => error.to_string(),
                Ok(node) if node.level() != pointer.level => {
                    format!("level {} where {} is expected", node.level(), pointer.level)
                }
                Ok(node) => match outside(&node, &lower, upper.as_deref()) {
                    Some(key) => format!("key {} is outside its parent's bounds", crate::record::hex(key)),
                    None => {
                        self.enter(node, (lower, upper), &here, &mut open, view, visit, found);
                        continue;
                    }
                },
            };
            found(Finding::Node { bookmark: here, reason });
            whole = false;
        }
        whole
    }

    /// The reason why a pointer cannot lead to a node of this tree.
    fn impossible(&self, pointer: &BlockPointer) -> Option<String> {
        if pointer.kind != self.kind {
            return Some(format!("it is of kind {:?}, in a tree of {:?}", pointer.kind, self.kind));
        }
        if pointer.level > LEVEL_MAX {
            return Some(format!("level {}", pointer.level));
        }
        (pointer.lsize as usize > NODE_BYTES_MAX || pointer.psize as usize > 2 * NODE_BYTES_MAX)
            .then(|| format!("a node of {} bytes in {}", pointer.lsize, pointer.psize))
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one step of one walk")]
    fn enter(
        &self,
        node: Node<'_>,
        (lower, upper): (Vec<u8>, Option<Vec<u8>>),
        here: &Bookmark,
        open: &mut Vec<Open>,
        view: &mut View,
        visit: &mut dyn Visit,
        found: &mut Found<'_>,
    ) {
        if node.level() == 0 {
            for entry in node.entries() {
                visit.item(view, Item { leaf: here, key: entry.key, value: entry.value }, found);
            }
            return;
        }
        let entries: Vec<_> = node.entries().collect();
        // The first child comes off the stack first.
        for (at, entry) in entries.iter().enumerate().rev() {
            let Ok(pointer) = BlockPointer::decode(entry.value) else { continue };
            let lower = if at == 0 { lower.clone() } else { entry.key.to_vec() };
            let upper = entries.get(at + 1).map(|next| next.key.to_vec()).or_else(|| upper.clone());
            let (dataset, kind, level) = (self.dataset, self.kind, pointer.level);
            let bookmark = Bookmark { dataset, kind, level, at: At::Key(lower.clone()) };
            open.push(Open { pointer, bookmark, lower, upper });
        }
    }
}

/// A key that is not within what the parents say: below `lower`, or not below `upper`.
fn outside<'n>(node: &Node<'n>, lower: &[u8], upper: Option<&[u8]>) -> Option<&'n [u8]> {
    let skip = usize::from(node.level() > 0);
    let mut keys = node.entries().skip(skip).map(|entry| entry.key);
    let first = keys.next()?;
    if first < lower {
        return Some(first);
    }
    let last = keys.last().unwrap_or(first);
    upper.is_some_and(|upper| last >= upper).then_some(last)
}
