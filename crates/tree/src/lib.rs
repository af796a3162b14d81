//! The copy-on-write B+tree that indexes everything and is the Merkle tree.
//!
//! A tree maps keys (1 to 512 bytes, in byte order) to values (up to 3,072 bytes). Its nodes are
//! blocks; an inner node holds its children's pointers, each with the hash of the child as stored,
//! so the root's pointer authenticates every key and every absence of a key. A stored node is never
//! changed: a change makes new versions of the nodes from the leaf up to the root, in memory, and
//! [`Tree::sync`] writes each of them once per transaction group, however often it changed.
//!
//! ## Definitions
//!
//! *Link*: what a parent (or the tree, for the root) holds of a child: either the pointer of a
//! stored node, or a *dirty* node in memory with its *epoch* and its *node version*.
//! *Epoch*: number of snapshots taken so far, plus one. Everything changed between two snapshots
//! has one epoch.
//! *Node version*: identity of one version of one node. It is set, once, to the pointer where the
//! version was written, and holds the duty to free the version before it.
//! *Version of the tree*: number of syncs that have ended.
//!
//! ## A node's life
//!
//! ```text
//! stored p0 ─[first change in epoch 5]→ dirty, epoch 5, version c5 ⊢ p0
//!     ─[changes of epoch 5, in place]→ same link
//!     ─[snapshot of epoch 5]→ frozen
//!         ─[sync]→ c5 = p1, p0 to be freed; live link becomes "stored p1"
//!         ─[change in epoch 6, before or while that sync runs]→ copy, epoch 6, version c6 ⊢ c5
//!             ─[sync of epoch 6]→ c6 = p2; the pointer that c5 was set to (p1) is to be freed
//! ```
//!
//! A node made and dropped in one epoch was never stored: its version has no predecessor and
//! nothing is freed. A node that is merged away or emptied leaves what it stood for in the epoch's
//! list of dropped versions, which [`Tree::snapshot`] freezes and the sync of that snapshot (or of
//! a later one) frees. If a snapshot is never synced, or its sync failed, node versions of a later
//! one find through unset node versions the version that is really stored.
//!
//! ## Invariants
//!
//! [tree.1] A node that anyone else may see is never changed.
//!      guard: `Arc::make_mut` in `write::Writer::own`
//! [tree.2] A link is changed in its own epoch only, so what a snapshot holds stays as it was.
//!      guard: the same; test: `a_snapshot_is_written_as_it_was_taken`
//! [tree.3] Children are written before their parents.
//!      guard: `Node::encode` asserts
//! [tree.4] A pointer the store gave out is freed once, by the sync of the first written version
//!      without it.
//!      guard: a version has one successor, and its duty is taken, not copied;
//!      test: the store `testing::CountingStore`
//! [tree.5] Syncs of one tree are of later and later snapshots.
//!      guard: asserts in `Tree::sync`
//! [tree.6] An operation that fails has changed nothing.
//!      guard: nothing can fail after the survey (`write`);
//!      test: `a_failed_operation_leaves_the_tree_as_it_was`
//! [tree.7] Keys below a link lie within its separators.
//!      guard: checked whenever a node is read, and on cache hits of ranges;
//!      test: `a_valid_node_in_the_wrong_place_is_found_out`
//! [tree.8] `dirty_bytes` is the number of bytes that the next sync writes.
//!      test: `dirty_bytes_are_what_sync_writes`
//!
//! ## Locks
//!
//! `ledger` (one sync at a time; held while the store writes) before `state` (the root link; never
//! held while the store works) before the cache's shards and its list of reads under way. Readers
//! hold `state` shared while they walk dirty nodes, and nothing while a stored node is read.
//! Writers hold it alone while they change memory; a writer that finds nodes missing lets go, reads
//! them side by side, and begins again with the nodes in hand. Callbacks run under no lock, except
//! that of [`Tree::modify`]. A caller that holds locks of its own runs in [`without_reading`].
//!
//! ## Readers and freed blocks
//!
//! A reader works on the version of the tree it found. If a sync ends meanwhile, blocks of that
//! version may have been freed; a reader therefore never begins to read a block after its version
//! has passed, but goes back to the root (a range: to where it was). A read that fails is blamed on
//! the device only if the version is still the same.
//!
//! ## Cost
//!
//! With 16 KiB nodes a names leaf holds some 150 entries and an inner node some 110 children: three
//! levels index two million keys, four two hundred million. One random change rewrites one node per
//! level at the next sync; many changes share the upper ones. A change in memory copies a node at
//! most once per epoch (about a microsecond) and is two binary searches per level otherwise.
//!
//! ## Reading order
//!
//! `page` (entries in memory), `node` (links and node versions), `write` (survey, change, split,
//! merge), `cursor` (reading), `tree` (locks and the interface), `sync` (writing), `cache`, `nodes`
//! (reads under way), `unread` (operations that read nothing), `ahead` (walks).
//!
//! ## Not here
//!
//! The meaning of keys is `format`'s and `dataset`'s; the place of blocks is the store's; the time
//! of a sync is `txg`'s.
#![forbid(unsafe_code)]

mod ahead;
mod cache;
mod cursor;
mod error;
mod node;
mod nodes;
mod page;
mod store;
mod sync;
pub mod testing;
mod tree;
mod unread;
mod write;

pub use cache::{CacheStatistics, NodeCache};
pub use cursor::{Entry, Range};
pub use error::Error;
pub use store::{NodeStore, StoreError};
pub use sync::Snapshot;
pub use tree::{Options, Tree};
pub use unread::{Attempts, is_unread, without_reading};
pub use write::Change;

/// Result of the tree's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;
