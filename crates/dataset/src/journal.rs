//! The tracked changes of the intent log (ZIL): changes that neither a commit nor a log group
//! holds yet.
//!
//! The log holds *states*, not operations: which items of the names tree differ, what inodes look
//! like, which bytes were written or cut. Operations note only *where* they changed something: the
//! keys of their batch, which are at hand, the inode's number once a txg, a range per write. The
//! content is looked up when `fsync` is called, at a moment at which no operation is under way
//! ([`steadfast_txg::Gate::still`]). So a change that is made a thousand times is logged once, a
//! group never holds half an operation, and a dataset that nobody syncs pays some 50 ns an
//! operation.
//!
//! ## Definitions
//! *Pending*: changed since the last commit or group. *Base*: the txg whose root a replay begins
//! with.
//!
//! ## Invariants
//! [journal.1] Everything pending of the open and the frozen txg is listed: a group brings any base
//!      below it to the very state at which it was drafted (but for content, with
//!      `journal=writeback`).
//!      test: `pool`, `tests/log.rs`; the crash explorer
//! [journal.2] An inode that is not pending shows nothing that a commit or an earlier group does
//!      not hold.
//! [journal.3] A group may be replayed over a newer base than it was drafted for, the commit of the
//!      txg that was frozen then: what would be older than that base is marked with the txg `until`
//!      which it applies.
//! [journal.4] Drafting clears nothing; [`Dataset::accept`] clears what a draft holds, in the same
//!      still moment.
//!
//! ## Lock order
//! An inode's lock, then `pending`. A still moment, in which no operation has either, takes them
//! the other way round.

use std::sync::Arc;
use std::time::Duration;

use crate::dataset::Dataset;
use crate::inode::Inode;

/// Content of a dataset's log: the property `journal`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum JournalMode {
    /// Nothing: `fsync` commits a txg.
    #[default]
    Off = 0,
    /// Names, attributes, sizes, holes.
    Writeback = 1,
    /// The same, and content.
    Ordered = 2,
    /// The same as [`JournalMode::Ordered`], and about once a second all that is pending is logged,
    /// asked or not ([`Dataset::log_pending`]).
    Data = 3,
}

impl JournalMode {
    pub(crate) fn from_u8(value: u8) -> JournalMode {
        match value {
            1 => JournalMode::Writeback,
            2 => JournalMode::Ordered,
            3 => JournalMode::Data,
            _ => JournalMode::Off,
        }
    }
}

/// Answer of a journal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durable {
    /// It is durable.
    Yes,
    /// The journal cannot tell: commit.
    CommitInstead,
    /// The caller gave up waiting.
    GaveUp,
}

/// Hears what came of asking a journal. May wait for a commit.
pub type Answer = Box<dyn FnOnce(Durable) + Send>;

/// Makes changes durable before their txg is committed: the intent log, as a dataset sees it.
pub trait Journal: Send + Sync {
    /// Makes all that `inode` shows, and all changes of names made before, durable. `go_on` is
    /// asked each time `patience` has passed. Called without gate or locks.
    fn make_durable(
        &self,
        dataset: &Dataset,
        inode: &Arc<Inode>,
        patience: Duration,
        go_on: &dyn Fn() -> bool,
    ) -> Durable;

    /// Makes all pending changes durable, of any caller, and waits for no commit:
    /// [`Durable::GaveUp`] where it would have to. So the commit may call it.
    fn log_pending(&self, dataset: &Dataset) -> Durable;

    /// The same as `make_durable`, without waiting: another thread may call `answer` after this
    /// returned.
    fn make_durable_later(&self, dataset: &Dataset, inode: &Arc<Inode>, answer: Answer) {
        answer(self.make_durable(dataset, inode, Duration::MAX, &|| true));
    }
}
