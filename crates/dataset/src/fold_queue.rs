//! The records to be folded ([`crate::fold`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use steadfast_format::InodeId;

use crate::inode::Inode;

/// Records to be folded.
#[derive(Default)]
pub(crate) struct FoldQueue {
    /// Found in many pieces by readers.
    pub(crate) read: BTreeSet<(InodeId, u64)>,
    /// Found wasteful in a pool that gets full.
    pub(crate) wasteful: BTreeSet<(InodeId, u64)>,
    /// Could not be read to be folded: nobody tries again until errors are cleared, or the pool
    /// would commit for ever.
    pub(crate) unreadable: BTreeSet<(InodeId, u64)>,
    /// Where the walk for wasteful ones goes on.
    pub(crate) cursor: Option<Vec<u8>>,
    /// The walk has found something since it began.
    pub(crate) found: bool,
    /// The last walk found nothing, and no overlay was written since.
    pub(crate) clean: bool,
    /// For the txg that closes next.
    pub(crate) picked: Vec<(Arc<Inode>, u64)>,
}
