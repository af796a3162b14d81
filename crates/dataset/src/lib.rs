//! # Dataset
//!
//! One file system's content: inodes in memory, names and extents in trees, file data on its way to
//! blocks. The meaning of names and attributes is `posix`'s question; this room keeps them, and
//! makes them durable with their txg.
//!
//! ## Layers
//! A byte of a file is looked for from the top down:
//!
//! ```text
//! open     writes and cuts of operations of the open txg, in memory    per inode, under its lock
//! frozen   the same of the txg being synced; never changes             per inode, shared
//! cuts     ranges cut in earlier txgs, extents not all freed yet       per dataset, by sync only
//! extents  the extents tree: content as of the last sync               per dataset, by sync only
//! ```
//! A record may also be *shared* in a layer: its content is a block that another record refers to
//! (`share`); data and cuts of the same layer win over it.
//!
//! In each layer a byte is *data*, *cut* (zero), or *not there* (look below). A write covers a part
//! of a record and reads no content; what covers a record in part becomes an overlay of its extent
//! when it is synced (`overlaid`). A truncation or a punched hole is one range in the open layer,
//! whatever the size of the file.
//!
//! ## Invariants
//! [dataset.1] Bytes at and above a file's size read as zeros in the layers taken together:
//!      shrinking cuts to the end.
//!      test: `a_file_that_grows_again_shows_zeros`
//! [dataset.2] Only sync changes the extents tree and the cuts, and only one sync runs at a time.
//!      assert: `sync`
//! [dataset.3] Freeze hands exactly the changes of operations that entered the txg to its sync.
//! [dataset.4] Every inode with nlink 0 is listed as an orphan until its content is cut and its
//!      names items go, in one txg.
//!      test: `orphans_are_reclaimed_at_open`
//! [dataset.5] Extents of one file do not overlap, and begin at multiples of its record size.
//!      `check`
//! [dataset.6] An operation's changes to the names tree are one batch of the tree: others see all
//!      or none, and a refusal or a read error leaves none.
//!
//! ## What sync does
//! Cuts first, a bounded number of extents (the rest stays listed in the extents tree and goes on
//! in later txgs), then the frozen records in batches: plan, write, replace the extents, free what
//! they replaced. Then the extents tree, then the names tree. A crash at any line leaves the roots
//! of the txg before.
//!
//! ## Inodes in memory
//! An inode's attributes are authoritative in memory while it is cached; they go to the names tree
//! at freeze. It is kept while it is dirty, on its way to the devices, or not committed: `fsync`
//! asks it for the txg of its last change. An inode that is only looked up stays too, while there
//! is room: `inode_cache`.
//!
//! ## Blocks a file occupies
//! They are known only when its sync has ended, and the names tree of that txg is frozen by then.
//! So a record flushed with data on its way says "not noted"; it is noted with the next flush. Only
//! a file whose inode was forgotten in between has its extents counted when it is next looked at.
//!
//! ## Lock order
//! Gate; names mutex of `posix`; one inode's lock (never two, but parent before child in `posix`);
//! the map of inodes; the names tree. No lock but the gate is held while a block is read.
#![forbid(unsafe_code)]

mod ahead;
mod check;
mod cost;
mod cuts;
mod data;
mod dataset;
mod dead;
mod draft;
mod durable;
mod early;
mod early_list;
mod error;
mod extents;
mod fold;
mod fold_queue;
#[cfg(debug_assertions)]
mod forge;
mod frees;
mod freeze;
mod frozen;
mod growth;
mod inode;
mod inode_cache;
mod inodes;
mod journal;
mod layer;
mod memory;
mod overlaid;
mod owner_rows;
mod owners;
mod plan;
mod problem;
mod ranges;
mod record;
mod replay;
mod share;
mod state;
mod store;
mod sweep;
mod sync;
mod sync_mode;
mod unlogged;

pub use check::{Allocated, Claims, check_trees};
pub use cost::NAME_COST;
pub use data::blocks_of;
pub use dataset::{Counters, Dataset, DatasetParts, Resized, Settings};
pub use draft::{Draft, Drafted};
pub use early::STEP_BYTES_MAX as EARLY_STEP_BYTES;
pub use error::{Damage, Error};
pub use inode::{Inode, InodeState};
pub use inode_cache::{InodeRoom, InodesInMemory};
pub use journal::{Answer, Durable, Journal, JournalMode};
pub use memory::{MemoryBlocks, MemoryImage};
pub use owner_rows::{WriteClaim, WriteRoom, WriteTerms};
pub use owners::OwnerQuota;
pub use plan::OverlayCounts;
pub use problem::Problem;
pub use ranges::RangeSet;
pub use replay::{ReceivedContent, Removal};
pub use share::{ShareRange, Sharing, Unshared};
pub use steadfast_blockio::{BlockBytes, BlockPart, BlockWrite, Blocks};
pub use steadfast_format::inode::{InodeRecord, Time};
pub use steadfast_tree::{Attempts, NodeCache, without_reading};
pub use sync::SyncResult;
pub use sync_mode::SyncMode;

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
