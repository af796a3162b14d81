//! The changes of the txg being synced, as one dataset was frozen.

use std::sync::Arc;

use steadfast_format::Txg;
use steadfast_tree::Snapshot;

use crate::inode::Inode;
use crate::owners::OwnedBy;

pub(crate) struct FrozenSet {
    pub txg: Txg,
    pub names: Snapshot,
    pub inodes: Vec<Arc<Inode>>,
    /// Records to be folded though nobody wrote them. Their inodes are among `inodes`.
    pub folds: Vec<(Arc<Inode>, u64)>,
    /// Inodes whose owner changes with this txg, or that have none from now on, and the owner
    /// before.
    pub moved: Vec<(Arc<Inode>, OwnedBy)>,
    pub files: u64,
    pub next_inode: u64,
    /// Its shared records are counted.
    pub shares_counted: bool,
}
