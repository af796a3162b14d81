//! Snapshot and sync: from nodes in memory to a root pointer.

use std::sync::Arc;

use steadfast_format::BlockPointer;

use crate::node::{Child, Dirty, Node, Predecessor};
use crate::tree::{LoadError, State};
use crate::write::Bounds;
use crate::{Error, Result, Tree};

/// Encoded nodes given to the store in one call, at most (and one node more): bounds the memory of
/// a sync, and is far more than enough to keep all cores busy.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// The tree as it was at one moment: what one transaction group writes. Holds the nodes of that
/// moment in memory; drop it when it is synced.
#[derive(Debug)]
pub struct Snapshot {
    token: Arc<()>,
    epoch: u64,
    root: Option<Child>,
    dirty_bytes: usize,
}

impl Snapshot {
    /// Encoded bytes that the sync of this snapshot writes, at most.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes as u64
    }

    /// True if the tree has no keys in this snapshot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }
}

/// Nodes that a snapshot dropped; its sync frees them.
#[derive(Debug)]
pub(crate) struct Frozen {
    epoch: u64,
    dropped: Vec<Predecessor>,
    dirty_bytes: usize,
}

/// Account of syncs. Its lock makes them one at a time.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Epoch of the latest snapshot whose sync was tried, and of the latest whose sync succeeded.
    tried: u64,
    synced: u64,
    /// Pointers to free when a sync succeeds. Survives a failed one.
    superseded: Vec<BlockPointer>,
    /// Root of the stored tree.
    root: Option<BlockPointer>,
}

impl Ledger {
    pub(crate) fn new(root: Option<BlockPointer>) -> Self {
        Ledger { tried: 0, synced: 0, superseded: Vec::new(), root }
    }
}

impl Tree {
    /// Freezes the tree as it is. Takes no longer for a large tree than for a small one.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut state = self.state_mut();
        let state = &mut *state;
        let epoch = state.epoch;
        let dirty_bytes = std::mem::take(&mut state.dirty_bytes);
        state.frozen.push(Frozen { epoch, dropped: std::mem::take(&mut state.dropped), dirty_bytes });
        state.epoch += 1;
        state.changed = false;
        Snapshot {
            token: Arc::clone(&self.token),
            epoch,
            root: state.root.clone(),
            dirty_bytes: state.frozen.iter().map(|frozen| frozen.dirty_bytes).sum(),
        }
    }

    /// Writes all nodes of the snapshot that are not stored, children before parents, and returns
    /// the root's pointer (`None` for an empty tree). Then frees the versions they replace and the
    /// nodes that were dropped, and lets the live tree forget what is now stored; the cache keeps
    /// what it has room for.
    ///
    /// Snapshots are synced in the order they were taken; one may be left out, and its changes go
    /// with the next. Another thread may read, change and snapshot the tree meanwhile.
    ///
    /// On an error nothing is freed and the tree goes on working from memory. Nodes already written
    /// stay so: the same snapshot or a later one may be synced again, and writes only what is
    /// missing. Nodes written by the failed one belong to the later sync; a caller that gives the
    /// txg up gives up the tree with it.
    pub fn sync(&self, snapshot: &Snapshot) -> Result<Option<BlockPointer>> {
        assert!(Arc::ptr_eq(&snapshot.token, &self.token), "a snapshot of another tree");
        let mut ledger = self.ledger.lock().expect("a panic during an earlier sync");
        assert!(
            snapshot.epoch > ledger.synced,
            "snapshots are synced once, in the order they were taken [tree.5]"
        );
        assert!(snapshot.epoch >= ledger.tried, "a later snapshot was already tried [tree.5]");
        ledger.tried = snapshot.epoch;

        let mut levels = Vec::new();
        if let Some(root) = &snapshot.root {
            collect_unwritten(root, &mut levels);
        }
        for (level, nodes) in (0..).zip(levels) {
            if let Err(error) = self.write_level(level, &nodes, &mut ledger) {
                self.state_mut().changed = true;
                return Err(error);
            }
        }
        let root = snapshot.root.as_ref().map(|root| *root.pointer().expect("written above"));
        self.finish(snapshot.epoch, &mut ledger);
        ledger.synced = snapshot.epoch;
        ledger.root = root;
        for pointer in std::mem::take(&mut ledger.superseded) {
            self.nodes.cache.remove(&pointer);
            self.store().free(&pointer);
        }
        Ok(root)
    }

    /// Bytes that the next sync writes at most, if a node of so many encoded bytes takes what
    /// `stored` says of it. Walks the nodes changed since the last snapshot.
    #[must_use]
    pub fn unwritten_bytes(&self, stored: impl Fn(usize) -> u64) -> u64 {
        let state = self.state();
        let mut levels = Vec::new();
        if let Some(root) = &state.root {
            collect_unwritten(root, &mut levels);
        }
        levels.iter().flatten().map(|dirty| stored(dirty.node.size())).sum()
    }

    fn write_level(&self, level: u8, nodes: &[&Dirty], ledger: &mut Ledger) -> Result<()> {
        let mut rest = nodes;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |dirty: &&&Dirty| {
                let within = bytes < BATCH_BYTES_MAX;
                bytes += dirty.node.size();
                within
            };
            let (batch, later) = rest.split_at(rest.iter().take_while(fits).count());
            rest = later;
            let encoded = batch.iter().map(|dirty| (level, dirty.node.encode())).collect();
            let pointers = self.store().write(encoded).map_err(|source| Error::Write { level, source })?;
            assert_eq!(pointers.len(), batch.len(), "the store answers for each node");
            for (dirty, pointer) in batch.iter().zip(pointers) {
                assert!(
                    pointer.level == level && pointer.lsize as usize == dirty.node.size(),
                    "the store's pointer describes the node it was given"
                );
                dirty.node_version.pointer.set(pointer).expect("a version is written once");
                ledger
                    .superseded
                    .extend(dirty.node_version.take_predecessor().and_then(Predecessor::into_pointer));
                if self.store().keeps() {
                    self.nodes.cache.insert(pointer, settled(&dirty.node));
                }
            }
        }
        Ok(())
    }

    /// The snapshot is stored: what it dropped is superseded, and the live tree need not keep it in
    /// memory.
    fn finish(&self, epoch: u64, ledger: &mut Ledger) {
        let mut state = self.state_mut();
        let State { frozen, root, .. } = &mut *state;
        let later = frozen.partition_point(|frozen| frozen.epoch <= epoch);
        for Frozen { dropped, .. } in frozen.drain(..later) {
            ledger.superseded.extend(dropped.into_iter().filter_map(Predecessor::into_pointer));
        }
        if let Some(root) = root {
            settle(root);
        }
        self.advance_version();
    }

    /// Calls a function for the pointer of every node of the tree as last synced (or opened),
    /// parents first, each when it is no longer needed here. Reads inner nodes only. Not to be used
    /// while the tree is synced: nodes may then be gone before they are visited.
    pub fn visit_pointers(&self, mut f: impl FnMut(&BlockPointer)) -> Result<()> {
        let root = self.ledger.lock().expect("a panic during an earlier sync").root;
        match root {
            Some(root) => self.visit(&root, Bounds::default(), &mut f),
            None => Ok(()),
        }
    }

    fn visit(
        &self,
        pointer: &BlockPointer,
        bounds: Bounds<'_>,
        f: &mut impl FnMut(&BlockPointer),
    ) -> Result<()> {
        if pointer.level == 0 {
            f(pointer);
            return Ok(());
        }
        let node = self.load(pointer, bounds, None).map_err(|error| match error {
            LoadError::Failed(error) => error,
            LoadError::Unread(_) => Error::Unread,
            LoadError::Stale => unreachable!("no version given"),
        })?;
        f(pointer);
        for (index, child) in node.children.iter().enumerate() {
            self.visit(child.pointer().expect("stored"), bounds.of_child(&node, index), f)?;
        }
        Ok(())
    }
}

/// Links of nodes not yet written, by level. A written node has only written nodes below it
/// [tree.3].
fn collect_unwritten<'s>(child: &'s Child, levels: &mut Vec<Vec<&'s Dirty>>) {
    let Child::Dirty(dirty) = child else { return };
    if dirty.node_version.pointer.get().is_some() {
        return;
    }
    dirty.node.children.iter().for_each(|child| collect_unwritten(child, levels));
    let level = usize::from(dirty.node.level);
    if levels.len() <= level {
        levels.resize_with(level + 1, Vec::new);
    }
    levels[level].push(dirty);
}

/// The node as the cache keeps it: with pointers instead of children.
fn settled(node: &Arc<Node>) -> Arc<Node> {
    if node.is_leaf() {
        return Arc::clone(node);
    }
    let mut node = Node::clone(node);
    node.children.iter_mut().for_each(Child::settle);
    Arc::new(node)
}

/// Replaces links to written nodes by their pointers throughout a live tree. Walks only nodes not
/// yet written.
fn settle(child: &mut Child) {
    child.settle();
    if let Child::Dirty(dirty) = child
        && dirty.node.children.iter().any(can_settle)
    {
        Arc::make_mut(&mut dirty.node).children.iter_mut().for_each(settle);
    }
}

fn can_settle(child: &Child) -> bool {
    match child {
        Child::Stored(_) => false,
        Child::Dirty(dirty) => {
            dirty.node_version.pointer.get().is_some() || dirty.node.children.iter().any(can_settle)
        }
    }
}
