//! Differences of two trees. Shared parts are not read.
//!
//! A node is never older than its children. So a block that was born by the base's txg and hangs in
//! the target's tree hangs in the base's tree too. The target's walk does not enter it, and notes
//! its address. The base's walk skips the noted addresses and reads the rest. Both walks give items
//! in key order, and are merged. The cost follows the changes, in both.
//!
//! Each walk knows which nodes it will enter: it reads up to [`NODES_AT_ONCE`] of one level side by
//! side, and holds their bytes until it comes to them.

use std::collections::HashSet;

use steadfast_blockio::BlockBytes;
use steadfast_dataset::Blocks;
use steadfast_format::node::Node;
use steadfast_format::{Address, BlockPointer, Txg};

use crate::core::error::{Error, Result};
use steadfast_refs::blocks::DatasetBlocks;

/// Nodes that a tree shares with another: they are not entered.
pub(crate) type Shared = HashSet<Address>;

/// A key and its value, in the bytes of their leaf.
struct Item {
    leaf: BlockBytes,
    place: Place,
}

impl Item {
    fn key(&self) -> &[u8] {
        &self.leaf[self.place.key..self.place.value]
    }

    fn value(&self) -> &[u8] {
        &self.leaf[self.place.value..self.place.end]
    }
}

/// Where an item lies in its leaf: its key, the value behind that, its end.
#[derive(Clone, Copy)]
struct Place {
    key: usize,
    value: usize,
    end: usize,
}

/// Nodes of one level that a walk reads side by side, at most: a mebibyte of the largest.
const NODES_AT_ONCE: usize = 64;

/// A node that a walk will enter.
struct Ahead {
    pointer: BlockPointer,
    /// It was read with others before it.
    bytes: Option<BlockBytes>,
}

impl Ahead {
    fn new(pointer: BlockPointer) -> Ahead {
        Ahead { pointer, bytes: None }
    }
}

/// Takes the last of the nodes that are to be entered, with its bytes. With it come those before it
/// on its level. One of these that cannot be read is read again in its turn, and the error is told
/// then.
fn take_last(blocks: &DatasetBlocks, open: &mut Vec<Ahead>) -> Result<Option<(BlockPointer, BlockBytes)>> {
    let Some(Ahead { pointer, bytes }) = open.pop() else { return Ok(None) };
    if let Some(bytes) = bytes {
        return Ok(Some((pointer, bytes)));
    }
    let beside = open.iter().rev().take(NODES_AT_ONCE - 1);
    let count = beside.take_while(|next| next.pointer.level == pointer.level && next.bytes.is_none()).count();
    if count == 0 {
        return Ok(Some((pointer, read(blocks, &pointer)?)));
    }
    let next = open.len() - count;
    let next = &mut open[next..];
    let pointers: Vec<BlockPointer> =
        std::iter::once(pointer).chain(next.iter().map(|next| next.pointer)).collect();
    let mut answers = blocks.read_many(&pointers).into_iter();
    let first = answers.next().expect("one answer for each");
    for (next, answer) in next.iter_mut().zip(answers) {
        next.bytes = answer.ok();
    }
    Ok(Some((pointer, first.map_err(|error| bad(blocks, error.to_string()))?)))
}

/// Items of those leaves of a tree that a walk enters, in key order.
struct Items<'a> {
    blocks: &'a DatasetBlocks,
    /// Nodes born by then are not entered.
    since: Txg,
    shared: Option<&'a Shared>,
    /// Keys from here on are not wanted.
    end: Option<&'a [u8]>,
    /// Nodes to be entered, the next one last.
    open: Vec<Ahead>,
    /// The leaf that was read, and its items, the next one last.
    leaf: Option<BlockBytes>,
    items: Vec<Place>,
}

impl<'a> Items<'a> {
    fn new(
        blocks: &'a DatasetBlocks,
        root: Option<BlockPointer>,
        since: Txg,
        shared: Option<&'a Shared>,
        end: Option<&'a [u8]>,
    ) -> Items<'a> {
        let mut items = Items { blocks, since, shared, end, open: Vec::new(), leaf: None, items: Vec::new() };
        items.open.extend(root.filter(|root| items.enters(root)).map(Ahead::new));
        items
    }

    fn enters(&self, pointer: &BlockPointer) -> bool {
        pointer.birth > self.since && !self.shared.is_some_and(|shared| shared.contains(&pointer.copies[0]))
    }

    fn next(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some((place, leaf)) = self.items.pop().zip(self.leaf.as_ref()) {
                return Ok(Some(Item { leaf: leaf.clone(), place }));
            }
            let Some((pointer, bytes)) = take_last(self.blocks, &mut self.open)? else { return Ok(None) };
            let node = decode(self.blocks, &pointer, &bytes)?;
            let is_wanted = |key: &[u8]| self.end.is_none_or(|end| key < end);
            if node.level() > 0 {
                // Keys of the first child may lie before its entry's.
                let wanted =
                    node.entries().enumerate().filter(|(at, entry)| *at == 0 || is_wanted(entry.key));
                let mut entered: Vec<Ahead> = Vec::with_capacity(node.entries().len());
                for (_, entry) in wanted {
                    let child = pointer_of(self.blocks, entry.value)?;
                    entered.extend(self.enters(&child).then(|| Ahead::new(child)));
                }
                self.open.extend(entered.into_iter().rev());
            } else {
                let wanted = node.entries().filter(|entry| is_wanted(entry.key));
                self.items.extend(wanted.map(|entry| {
                    let value = entry.offset + entry.key.len();
                    Place { key: entry.offset, value, end: value + entry.value.len() }
                }));
                self.items.reverse();
                self.leaf = Some(bytes);
            }
        }
    }
}

fn bad(blocks: &DatasetBlocks, reason: String) -> Error {
    Error::BadDataset { dataset: blocks.dataset, reason }
}

fn read(blocks: &DatasetBlocks, pointer: &BlockPointer) -> Result<BlockBytes> {
    blocks.read(pointer).map_err(|error| bad(blocks, error.to_string()))
}

/// The node whose bytes a pointer leads to.
fn decode<'b>(blocks: &DatasetBlocks, pointer: &BlockPointer, bytes: &'b [u8]) -> Result<Node<'b>> {
    let node = Node::decode(bytes).map_err(|error| bad(blocks, error.to_string()))?;
    match node.level() == pointer.level {
        true => Ok(node),
        false => Err(bad(blocks, format!("level {} where {} is expected", node.level(), pointer.level))),
    }
}

fn pointer_of(blocks: &DatasetBlocks, value: &[u8]) -> Result<BlockPointer> {
    BlockPointer::decode(value).map_err(|error| bad(blocks, error.to_string()))
}

/// Nodes of a tree born by `since` below (or at) nodes that are younger.
pub(crate) fn shared(blocks: &DatasetBlocks, root: Option<BlockPointer>, since: Txg) -> Result<Shared> {
    let mut shared = Shared::new();
    let mut open: Vec<Ahead> = Vec::new();
    let mut note = |pointer: BlockPointer, open: &mut Vec<Ahead>| {
        if pointer.birth <= since {
            shared.insert(pointer.copies[0]);
        } else if pointer.level > 0 {
            open.push(Ahead::new(pointer));
        }
    };
    root.into_iter().for_each(|root| note(root, &mut open));
    while let Some((pointer, bytes)) = take_last(blocks, &mut open)? {
        for entry in decode(blocks, &pointer, &bytes)?.entries() {
            note(pointer_of(blocks, entry.value)?, &mut open);
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
    differences_before(None, blocks, (base, root), each)
}

/// The same of keys below `end`, if there is one: what lies behind it is not read.
pub(crate) fn differences_before(
    end: Option<&[u8]>,
    blocks: &DatasetBlocks,
    (base, root): (Option<Base>, Option<BlockPointer>),
    each: Each<'_>,
) -> Result<()> {
    let Some(base) = base else {
        let mut items = Items::new(blocks, root, Txg(0), None, end);
        while let Some(item) = items.next()? {
            each(item.key(), None, Some(item.value()))?;
        }
        return Ok(());
    };
    let shared = shared(blocks, root, base.txg)?;
    let mut old = Items::new(blocks, base.root, Txg(0), Some(&shared), end);
    let mut new = Items::new(blocks, root, base.txg, None, end);
    let (mut before, mut after) = (old.next()?, new.next()?);
    loop {
        match (before.take(), after.take()) {
            (None, None) => return Ok(()),
            (Some(left), None) => {
                each(left.key(), Some(left.value()), None)?;
                before = old.next()?;
            }
            (None, Some(right)) => {
                each(right.key(), None, Some(right.value()))?;
                after = new.next()?;
            }
            (Some(left), Some(right)) => match left.key().cmp(right.key()) {
                std::cmp::Ordering::Less => {
                    each(left.key(), Some(left.value()), None)?;
                    (before, after) = (old.next()?, Some(right));
                }
                std::cmp::Ordering::Greater => {
                    each(right.key(), None, Some(right.value()))?;
                    (before, after) = (Some(left), new.next()?);
                }
                std::cmp::Ordering::Equal => {
                    if left.value() != right.value() {
                        each(left.key(), Some(left.value()), Some(right.value()))?;
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
        Some(root) => span(blocks, (&root, None), since, (&[], &[]), each),
    }
}

fn span(
    blocks: &DatasetBlocks,
    (pointer, bytes): (&BlockPointer, Option<BlockBytes>),
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
    let bytes = bytes.map_or_else(|| read(blocks, pointer), Ok)?;
    let node = decode(blocks, pointer, &bytes)?;
    let entries: Vec<_> = node.entries().collect();
    if node.level() == 0 {
        let keys: Vec<Vec<u8>> = entries.iter().map(|entry| entry.key.to_vec()).collect();
        each(Found::Span { from, to, keys: &keys })?;
        return entries.iter().try_for_each(|entry| each(Found::Item { key: entry.key, value: entry.value }));
    }
    let children =
        entries.iter().map(|entry| pointer_of(blocks, entry.value)).collect::<Result<Vec<BlockPointer>>>()?;
    let younger = children.iter().rev().filter(|child| child.birth > since);
    let mut ahead: Vec<Ahead> = younger.copied().map(Ahead::new).collect();
    for (at, (entry, child)) in entries.iter().zip(&children).enumerate() {
        let first = if at == 0 { from } else { entry.key };
        let end = entries.get(at + 1).map_or(to, |next| next.key);
        let bytes = match child.birth > since {
            true => take_last(blocks, &mut ahead)?.map(|(_, bytes)| bytes),
            false => None,
        };
        span(blocks, (child, bytes), since, (first, end), each)?;
    }
    Ok(())
}

/// The first or the last key of a tree.
fn edge(blocks: &DatasetBlocks, pointer: &BlockPointer, last: bool) -> Result<Vec<u8>> {
    let mut at = *pointer;
    loop {
        let bytes = read(blocks, &at)?;
        let node = decode(blocks, &at, &bytes)?;
        let mut entries = node.entries();
        let entry = if last { entries.last() } else { entries.next() };
        let entry = entry.ok_or_else(|| bad(blocks, "a node without entries".into()))?;
        if node.level() == 0 {
            return Ok(entry.key.to_vec());
        }
        at = pointer_of(blocks, entry.value)?;
    }
}
