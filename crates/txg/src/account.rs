//! Limits below the pool's, of a dataset or an owner (ZFS: quotas), as an operation is admitted.

use steadfast_format::Txg;

use crate::{AdmitKind, Verdict};

/// A quota besides the pool's room: asked before an operation begins, and told how it ends.
///
/// All calls but the first three come under the budget's lock, so that asking and taking is one
/// step: two operations never both get the last of a limit. They must be quick and must not call
/// the budget.
pub trait Account: Send + Sync {
    /// False while there is nothing to be held to: then operations begin without an account.
    fn is_limited(&self) -> bool;

    /// Bytes that can still be taken as far as quotas are concerned; `None` if none is set.
    fn room(&self) -> Option<u64>;

    /// Bytes that can be written where the pool has `free` left: the same, and what other datasets
    /// have reserved is not theirs.
    fn free(&self, free: u64) -> u64 {
        self.room().map_or(free, |room| room.min(free))
    }

    /// May an operation of this kind take so many bytes more?
    fn admit(&self, kind: AdmitKind, space: u64) -> Verdict;

    /// So many bytes are promised, to an operation without a txg as yet.
    fn take(&self, space: u64);

    /// The taken space belongs to this txg. It ends when the txg's real usage is known, which the
    /// account learns elsewhere.
    fn assign(&self, txg: Txg, space: u64);

    /// An operation of this txg needs another number of bytes than was taken for it.
    fn settle(&self, txg: Txg, old: u64, new: u64);

    /// The taken space goes back: the operation did not begin.
    fn give_back(&self, space: u64);
}
