//! The namespace: the trees of heads and of snapshots, held against themselves and against what
//! their rows say of them. The rules are those of the dataset's own check
//! ([`steadfast_dataset::check_trees`]).
//!
//! This comes after the walks that read every copy, so it reads one copy of each node, and says
//! nothing where a node cannot be had: that was told. Heads are walked, and each snapshot whose
//! roots are not those of the one after it, so the check of a pool with many snapshots reads names
//! and extents once for each.
//!
//! Not looked at: datasets without their key, those that are being destroyed, and those into which
//! a receive is under way, whose names come before what they lead to.

use std::sync::Arc;

use steadfast_blockio::ReadContext;
use steadfast_crypto::BlockKeys;
use steadfast_dataset::{Claims, Counters, Problem, check_trees};
use steadfast_format::node::{NODE_BYTES_MAX, Node};
use steadfast_format::{BlockKind, BlockPointer, DatasetId, DatasetRow, InodeId, Txg};

use crate::meta::Meta;
use crate::view::View;
use crate::{Finding, Found};

type Keys = Option<Arc<BlockKeys>>;
type Roots = [Option<BlockPointer>; 2];

/// A node of a walk cannot be read, or is not where its key belongs.
struct Broken;

/// Items of a tree in the order of their keys, from one copy of each node.
struct Items<'v> {
    view: &'v View,
    dataset: DatasetId,
    kind: BlockKind,
    keys: Keys,
    open: Vec<BlockPointer>,
    leaf: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
    last: Vec<u8>,
}

impl<'v> Items<'v> {
    fn new(
        view: &'v View,
        dataset: DatasetId,
        kind: BlockKind,
        root: Option<BlockPointer>,
        keys: Keys,
    ) -> Items<'v> {
        let open = root.into_iter().collect();
        Items { view, dataset, kind, keys, open, leaf: Vec::new().into_iter(), last: Vec::new() }
    }

    /// Reads a node: a leaf's items, or an inner node's children. A leaf begins behind the one
    /// before, so none is read twice.
    fn enter(&mut self, pointer: &BlockPointer) -> Option<()> {
        if pointer.kind != self.kind || pointer.lsize as usize > NODE_BYTES_MAX {
            return None;
        }
        let family = self.view.families.get(&self.dataset).copied().unwrap_or(self.dataset);
        let context = ReadContext { dataset: self.dataset, family, keys: self.keys.as_deref(), cache: false };
        let bytes = self.view.blockio.read(pointer, &context).ok()?;
        let node = Node::decode(&bytes).ok().filter(|node| node.level() == pointer.level)?;
        if node.level() > 0 {
            let children = node.entries().map(|entry| BlockPointer::decode(entry.value));
            let children: Vec<BlockPointer> = children.collect::<Result<_, _>>().ok()?;
            self.open.extend(children.into_iter().rev());
            return Some(());
        }
        let items: Vec<_> = node.entries().map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect();
        let (first, last) = (items.first()?, items.last()?);
        if !self.last.is_empty() && first.0 <= self.last {
            return None;
        }
        self.last.clone_from(&last.0);
        self.leaf = items.into_iter();
        Some(())
    }
}

impl Iterator for Items<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.leaf.next() {
                return Some(Ok(item));
            }
            let pointer = self.open.pop()?;
            if self.enter(&pointer).is_none() {
                self.open.clear();
                return Some(Err(Broken));
            }
        }
    }
}

/// Checks a dataset's head and its snapshots.
pub(crate) fn check(view: &View, meta: &Meta, row: &DatasetRow, keys: &Keys, found: &mut Found<'_>) {
    if row.destroying || meta.hidden.contains(&row.id) {
        return;
    }
    // The walk of the head told of items that cannot be understood, as far as they are its own.
    let told = meta.base(row.id).0 == 0;
    let counters = Counters {
        used: row.used,
        data: row.data,
        logical: row.logical,
        files: row.files,
        next_inode: row.next_inode,
    };
    let mut roots = [row.names, row.extents];
    check_roots(view, row, keys, roots, counters, &mut |problem| {
        let is_known = match problem {
            // The walk compared the bytes of blocks.
            Problem::Counter { name, .. } => name == "data",
            Problem::Item(_) => told,
            _ => false,
        };
        if !is_known {
            found(Finding::Namespace { dataset: row.id, snapshot: None, problem });
        }
    });
    let of_dataset = (row.id, Txg(0))..=(row.id, Txg(u64::MAX));
    for snapshot in meta.snapshots.range(of_dataset).rev().map(|(_, snapshot)| snapshot) {
        if roots == [snapshot.names, snapshot.extents] {
            continue;
        }
        roots = [snapshot.names, snapshot.extents];
        let counters = Counters {
            used: snapshot.used,
            data: snapshot.data,
            logical: snapshot.logical,
            files: snapshot.files,
            next_inode: snapshot.next_inode,
        };
        check_roots(view, row, keys, roots, counters, &mut |problem| {
            let snapshot = Some(snapshot.name.clone());
            found(Finding::Namespace { dataset: row.id, snapshot, problem });
        });
    }
}

fn check_roots(
    view: &View,
    row: &DatasetRow,
    keys: &Keys,
    [names, extents]: Roots,
    counters: Counters,
    tell: &mut dyn FnMut(Problem),
) {
    let unit = view.table.geometry.unit;
    let numbers_end = if row.raw { InodeId::END } else { InodeId::FILES_END };
    let claims = Claims { hash_seed: row.hash_seed, unit, numbers_end, counters, allocated: None };
    let items = |kind, root| Items::new(view, row.id, kind, root, keys.clone());
    // The walks before told which nodes cannot be read.
    let _ = check_trees(|| items(BlockKind::Names, names), items(BlockKind::Extents, extents), &claims, tell);
}
