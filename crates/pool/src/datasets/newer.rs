//! Blocks of a tree that were born after some txg. A node is never older than its children, so
//! older nodes are skipped unread. The cost follows the change.

use steadfast_dataset::Blocks;
use steadfast_format::extent::Extent;
use steadfast_format::file_keys::ExtentsKey;
use steadfast_format::node::Node;
use steadfast_format::{BlockKind, BlockPointer, Txg};

use crate::core::error::{Error, Result};
use steadfast_refs::blocks::DatasetBlocks;

/// Visits the blocks of one tree, content included, that were born after `since`: each node before
/// what it leads to.
pub(crate) fn visit(
    blocks: &DatasetBlocks,
    root: Option<BlockPointer>,
    since: Txg,
    mut visit: impl FnMut(&BlockPointer),
) -> Result<()> {
    items(blocks, root, since, &mut visit, |_, _| {})
}

/// The same, and the items of leaves that were born after `since`, each leaf's in order.
pub(crate) fn items(
    blocks: &DatasetBlocks,
    root: Option<BlockPointer>,
    since: Txg,
    visit: &mut dyn FnMut(&BlockPointer),
    mut item: impl FnMut(&[u8], &[u8]),
) -> Result<()> {
    let bad = |reason: String| Error::BadDataset { dataset: blocks.dataset, reason };
    let mut open: Vec<BlockPointer> = root.into_iter().collect();
    while let Some(pointer) = open.pop() {
        if pointer.birth <= since {
            continue;
        }
        visit(&pointer);
        let bytes = blocks.read(&pointer).map_err(|error| bad(error.to_string()))?;
        let node = Node::decode(&bytes).map_err(|error| bad(error.to_string()))?;
        if node.level() != pointer.level {
            return Err(bad(format!("level {} where {} is expected", node.level(), pointer.level)));
        }
        let first = open.len();
        for entry in node.entries() {
            if node.level() > 0 {
                open.push(BlockPointer::decode(entry.value).map_err(|error| bad(error.to_string()))?);
                continue;
            }
            if pointer.kind == BlockKind::Extents
                && let Ok(ExtentsKey::Extent { .. }) = ExtentsKey::decode(entry.key)
            {
                let extent = Extent::decode(entry.value).map_err(|error| bad(error.to_string()))?;
                extent.pointers().into_iter().filter(|block| block.birth > since).for_each(&mut *visit);
            }
            item(entry.key, entry.value);
        }
        // In key order: the first child comes off first.
        open[first..].reverse();
    }
    Ok(())
}
