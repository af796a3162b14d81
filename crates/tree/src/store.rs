//! The tree's view of the layers below: nodes in, pointers out.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use steadfast_format::BlockPointer;

/// Where nodes are stored. Implemented over `blockio`; a tree has one store, and a store may serve
/// one tree only (it knows the dataset, kind and keys of what it writes).
pub trait NodeStore: Send + Sync {
    /// The bytes of a node, verified against the pointer's hash and opened. Many callers at once.
    fn read(&self, pointer: &BlockPointer) -> Result<Vec<u8>, StoreError>;

    /// The same of several nodes, side by side where anything is gained; answers in the same order.
    fn read_many(&self, pointers: &[BlockPointer]) -> Vec<Result<Vec<u8>, StoreError>> {
        pointers.iter().map(|pointer| self.read(pointer)).collect()
    }

    /// Nodes that will be wanted soon. A hint for places where each request is dear: what lies
    /// around them is brought near, in the background. False where nothing is brought.
    fn bring(&self, pointers: &[BlockPointer]) -> bool {
        let _ = pointers;
        false
    }

    /// Writes nodes given as (level, bytes), all of one level, and returns their pointers in the
    /// same order. Called by [`Tree::sync`](crate::Tree::sync) only, children before parents; the
    /// store may work on one call's nodes in parallel. A pointer's `level` is the given one and its
    /// `lsize` the bytes' length. On an error nothing of this call is referenced by the tree: the
    /// store takes back what it had placed.
    fn write(&self, nodes: Vec<(u8, Vec<u8>)>) -> Result<Vec<BlockPointer>, StoreError>;

    /// The block is no longer referenced as of the txg being synced. Called once for each pointer
    /// the store gave out and the tree gave up, at the end of a successful sync, from the thread
    /// that syncs. Readers that began before may still ask for the block for a moment, and begin
    /// again if they are refused.
    fn free(&self, pointer: &BlockPointer);

    /// False if nodes that were read or written are not to be kept in the cache: each is read again
    /// whenever it is wanted.
    fn keeps(&self) -> bool {
        true
    }

    /// Whose key opens the nodes; 0 if none does. Nodes that were opened by one key are not in the
    /// cache for the trees of another: a pointer that was made up leads to what its own key opens,
    /// or to an error.
    fn domain(&self) -> u64 {
        0
    }
}

/// An error of a [`NodeStore`], with its source untouched, so that a caller above the tree can find
/// in it what the room below the tree said.
#[derive(Clone)]
pub struct StoreError(Arc<dyn StdError + Send + Sync>);

impl StoreError {
    /// Wraps an error of the store.
    pub fn new(source: impl StdError + Send + Sync + 'static) -> Self {
        StoreError(Arc::new(source))
    }

    /// The error as the store made it.
    #[must_use]
    pub fn get_ref(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.0
    }

    /// The error as the store made it, if it is an `E`.
    #[must_use]
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreError").field(&self.0).finish()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}
