//! Differences of two trees. Shared parts are not read.
//!
//! A node is never older than its children. So a block that was born by the base's txg and hangs in
//! the target's tree hangs in the base's tree too. The target's walk does not enter it, and notes
//! its address. The base's walk skips the noted addresses and reads the rest. Both walks give items
//! in key order, and are merged. The cost follows the changes, in both.

use std::collections::HashSet;

use steadfast_dataset::Blocks;
use steadfast_format::node::Node;
use steadfast_format::{Address, BlockPointer, Txg};

use crate::core::error::{Error, Result};
use steadfast_refs::blocks::DatasetBlocks;

/// Nodes that a tree shares with another: they are not entered.
pub(crate) type Shared = HashSet<Address>;

/// A key and its value.
type Item = (Vec<u8>, Vec<u8>);

/// Items of those leaves of a tree that a walk enters, in key order.
struct Items<'a> {
    blocks: &'a DatasetBlocks,
    /// Nodes born by then are not entered.
    since: Txg,
    shared: Option<&'a Shared>,
    /// Nodes to be read, the next one last.
    open: Vec<BlockPointer>,
    /// Items of the leaf that was read, the next one last.
    items: Vec<Item>,
}

impl<'a> Items<'a> {
    fn new(
        blocks: &'a DatasetBlocks,
        root: Option<BlockPointer>,
        since: Txg,
        shared: Option<&'a Shared>,
    ) -> Items<'a> {
        Items { blocks, since, shared, open: root.into_iter().collect(), items: Vec::new() }
    }

    fn next(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(item) = self.items.pop() {
                return Ok(Some(item));
            }
            let Some(pointer) = self.open.pop() else { return Ok(None) };
            let is_shared = |shared: &Shared| shared.contains(&pointer.copies[0]);
            if pointer.birth <= self.since || self.shared.is_some_and(is_shared) {
                continue;
            }
            let (blocks, open, items) = (self.blocks, &mut self.open, &mut self.items);
            read(blocks, &pointer, |node| {
                if node.level() > 0 {
                    open.extend(children(blocks, node)?.into_iter().rev());
                } else {
                    items.extend(node.entries().map(|e| (e.key.to_vec(), e.value.to_vec())));
                    items.reverse();
                }
                Ok(())
            })?;
        }
    }
}

fn bad(blocks: &DatasetBlocks, reason: String) -> Error {
    Error::BadDataset { dataset: blocks.dataset, reason }
}

fn read<R>(
    blocks: &DatasetBlocks,
    pointer: &BlockPointer,
    use_it: impl FnOnce(&Node<'_>) -> Result<R>,
) -> Result<R> {
    let bytes = blocks.read(pointer).map_err(|error| bad(blocks, error.to_string()))?;
    let node = Node::decode(&bytes).map_err(|error| bad(blocks, error.to_string()))?;
    match node.level() == pointer.level {
        true => use_it(&node),
        false => Err(bad(blocks, format!("level {} where {} is expected", node.level(), pointer.level))),
    }
}

fn children(blocks: &DatasetBlocks, node: &Node<'_>) -> Result<Vec<BlockPointer>> {
    let decode = |bytes: &[u8]| BlockPointer::decode(bytes).map_err(|error| bad(blocks, error.to_string()));
    node.entries().map(|entry| decode(entry.value)).collect()
}

/// Nodes of a tree born by `since` below (or at) nodes that are younger.
pub(crate) fn shared(blocks: &DatasetBlocks, root: Option<BlockPointer>, since: Txg) -> Result<Shared> {
    let mut shared = Shared::new();
    let mut open: Vec<BlockPointer> = root.into_iter().collect();
    while let Some(pointer) = open.pop() {
        if pointer.birth <= since {
            shared.insert(pointer.copies[0]);
        } else if pointer.level > 0 {
            open.extend(read(blocks, &pointer, |node| children(blocks, node))?);
        }
    }
    Ok(shared)
}

/// The tree that another one is compared with, and the txg of which it is.
#[derive(Clone, Copy)]
pub(crate) struct Base {
    pub root: Option<BlockPointer>,
    pub txg: Txg,
}

/// Hears of each key at which two trees differ: its value in the base and in the target.
pub(crate) type Each<'a> = &'a mut dyn FnMut(&[u8], Option<&[u8]>, Option<&[u8]>) -> Result<()>;

/// Visits the keys at which a tree differs from its base, or all its keys if it has none, in order.
pub(crate) fn differences(
    blocks: &DatasetBlocks,
    base: Option<Base>,
    root: Option<BlockPointer>,
    each: Each<'_>,
) -> Result<()> {
    let Some(base) = base else {
        let mut items = Items::new(blocks, root, Txg(0), None);
        while let Some((key, value)) = items.next()? {
            each(&key, None, Some(&value))?;
        }
        return Ok(());
    };
    let shared = shared(blocks, root, base.txg)?;
    let mut old = Items::new(blocks, base.root, Txg(0), Some(&shared));
    let mut new = Items::new(blocks, root, base.txg, None);
    let (mut before, mut after) = (old.next()?, new.next()?);
    loop {
        match (before.take(), after.take()) {
            (None, None) => return Ok(()),
            (Some((key, value)), None) => {
                each(&key, Some(&value), None)?;
                before = old.next()?;
            }
            (None, Some((key, value))) => {
                each(&key, None, Some(&value))?;
                after = new.next()?;
            }
            (Some(left), Some(right)) => match left.0.cmp(&right.0) {
                std::cmp::Ordering::Less => {
                    each(&left.0, Some(&left.1), None)?;
                    (before, after) = (old.next()?, Some(right));
                }
                std::cmp::Ordering::Greater => {
                    each(&right.0, None, Some(&right.1))?;
                    (before, after) = (Some(left), new.next()?);
                }
                std::cmp::Ordering::Equal => {
                    if left.1 != right.1 {
                        each(&left.0, Some(&left.1), Some(&right.1))?;
                    }
                    (before, after) = (old.next()?, new.next()?);
                }
            },
        }
    }
}

/// Finding in a tree whose base is gone.
pub(crate) enum Found<'a> {
    /// These keys, and no others, from one key up to another (empty: up to the end).
    Span { from: &'a [u8], to: &'a [u8], keys: &'a [Vec<u8>] },
    /// An item that may be new.
    Item { key: &'a [u8], value: &'a [u8] },
}

/// Visits a tree where it may differ from what it was at a txg, in order. A leaf that went since
/// shows nowhere but in the parent it had: so below parents that are younger, what lies between
/// older leaves is told too. Costs the edges of what hangs below those.
pub(crate) fn spans(
    blocks: &DatasetBlocks,
    root: Option<BlockPointer>,
    since: Txg,
    each: &mut dyn FnMut(Found<'_>) -> Result<()>,
) -> Result<()> {
    match root {
        None => each(Found::Span { from: &[], to: &[], keys: &[] }),
        Some(root) if root.birth <= since => Ok(()),
        Some(root) => span(blocks, &root, since, (&[], &[]), each),
    }
}

fn span(
    blocks: &DatasetBlocks,
    pointer: &BlockPointer,
    since: Txg,
    (from, to): (&[u8], &[u8]),
    each: &mut dyn FnMut(Found<'_>) -> Result<()>,
) -> Result<()> {
    if pointer.birth <= since {
        let first = edge(blocks, pointer, false)?;
        let mut behind = edge(blocks, pointer, true)?;
        // No key lies between a key and itself with a zero behind it.
        behind.push(0);
        if from < &first[..] {
            each(Found::Span { from, to: &first, keys: &[] })?;
        }
        if to.is_empty() || &behind[..] < to {
            each(Found::Span { from: &behind, to, keys: &[] })?;
        }
        return Ok(());
    }
    let (level, entries): (u8, Vec<Item>) = read(blocks, pointer, |node| {
        Ok((node.level(), node.entries().map(|e| (e.key.to_vec(), e.value.to_vec())).collect()))
    })?;
    if level == 0 {
        let keys: Vec<Vec<u8>> = entries.iter().map(|(key, _)| key.clone()).collect();
        each(Found::Span { from, to, keys: &keys })?;
        return entries.iter().try_for_each(|(key, value)| each(Found::Item { key, value }));
    }
    for (at, (key, value)) in entries.iter().enumerate() {
        let child = BlockPointer::decode(value).map_err(|error| bad(blocks, error.to_string()))?;
        let first = if at == 0 { from } else { &key[..] };
        let end = entries.get(at + 1).map_or(to, |(next, _)| &next[..]);
        span(blocks, &child, since, (first, end), each)?;
    }
    Ok(())
}

/// The first or the last key of a tree.
fn edge(blocks: &DatasetBlocks, pointer: &BlockPointer, last: bool) -> Result<Vec<u8>> {
    let mut at = *pointer;
    loop {
        let next = read(blocks, &at, |node| {
            let mut entries = node.entries();
            let entry = if last { entries.last() } else { entries.next() };
            let entry = entry.ok_or_else(|| bad(blocks, "a node without entries".into()))?;
            if node.level() == 0 {
                return Ok(Err(entry.key.to_vec()));
            }
            let child = BlockPointer::decode(entry.value).map_err(|error| bad(blocks, error.to_string()))?;
            Ok(Ok(child))
        })?;
        match next {
            Ok(child) => at = child,
            Err(key) => return Ok(key),
        }
    }
}
