//! # Intent log (ZFS: ZIL)
//!
//! Keeps promises made to `fsync` between two commits, and replays them after a crash. A commit
//! makes a whole txg durable by some fifteen blocks and three flushes. A *group* of the log makes
//! the changes of one dataset since its last group durable by one write and one flush. A group is
//! needed only until its txg is committed; the log of an exported pool is empty.
//!
//! Like ZFS's ZIL (`zil_commit`, `zil_replay`), but one log serves a pool, its segments are written
//! round and round instead of as a chain of blocks, and its records are states, not operations:
//! replaying one twice changes nothing. Log devices are ZFS's SLOG.
//!
//! ## Definitions
//! *Group*: records under one header and one hash, written in one piece. It is its own commit mark:
//! what is torn does not have the hash. *Epoch*: an import; groups of another epoch mean nothing.
//! *Circle*: the log's segments, written round and round. *Head*: epoch and sequence number of the
//! first group that a root does not hold, in the root's uberblock.
//!
//! ## States
//!
//! | state   | what `fsync` does         | becomes |
//! |---------|---------------------------|---|
//! | none    | commits a txg             | *wanted*, by the first `fsync` of a pool that may have a log |
//! | wanted  | commits a txg             | *ready*, by the commit that reserves the segments and whose uberblock has the epoch |
//! | ready   | writes a group            | *broken*, by a write or flush that fails |
//! | broken  | commits a txg             | *ready*, by the commit of the txg that was open then |
//! | resting | commits a txg             | *ready*, perhaps elsewhere, by the commit of the txg that was open when it stood down |
//!
//! ## Invariants
//! [intent_log.1] Groups are written side by side and flushed one flush after the other; a promise
//!      is given when all groups up to it are written *and then* flushed. So if a group was
//!      promised, it and all before it down to the head can be read, or the medium lost what it had
//!      flushed; each group says how many before it were not flushed when it was drafted, so that a
//!      gap of the one kind is told from one of the other.
//!      `Flow::reach`; test: `a_gap_is_told_from_an_end`
//! [intent_log.2] A group's number, its txg and its content are fixed in one still moment of the
//!      gate, and so is the head of a root: a root of txg T holds exactly the groups before its
//!      head.
//!      `Log::write`, `Log::next`
//! [intent_log.3] A group is overwritten only after the commit of its txg, and not while it is
//!      being written.
//!      assert: `Circle::place`; test: `circle`
//! [intent_log.4] Groups are written only after an uberblock with their epoch is durable.
//!      `Log::ready`
//! [intent_log.5] A group that was drafted and not written leaves a hole in the promises, so
//!      nothing is logged until its txg is committed. Nor are groups behind one that failed
//!      promised.
//!      `Flow::is_open`
//! [intent_log.6] No (key, nonce) pair is used twice: bodies are sealed by the same counters as
//!      blocks ([seal.1], [seal.2]), and a group that is written again is sealed again.
//! [intent_log.7] In a pool with an anchor a group is promised only after the register holds its
//!      number and hash, which binds in all groups before it ([`Vouch`]); and a replay ends exactly
//!      there: a log that does not reach so far was put back or is damaged, and what lies behind
//!      was promised to nobody.
//!      `Log::vouch`, [`Survey::hold_to`]; test: `pool`, `tests/anchored.rs`
//!
//! ## What a crash does
//! *Before the write*: nobody was promised anything. *In the write, or before its flush ends*: the
//! group is there or is not; its hash tells, and nobody was promised it yet. *After the flush,
//! before the caller hears of it*: it is there; to keep what was not promised is no harm. *Between
//! a commit's freeze and its uberblock*: the old root's head counts, all groups since are replayed.
//! *After the uberblock*: its head counts. *In a replay*: a replay is operations of one open txg
//! and writes nothing to the log; the old root and its groups are there until the txg's uberblock,
//! whose head has a new epoch.
//!
//! ## What a group holds
//! States, not operations (`dataset::journal`): replaying is idempotent, knows no meaning of names,
//! and a group is as large as what differs, however often it was changed. Changes too large for a
//! group are committed instead; so is what comes before the log is ready, or while it is broken or
//! full.
//!
//! ## Encrypted datasets
//! A group is sealed under its dataset's key. While one waits for a key that was not there at
//! import, the pool holds the log: it is not made *ready*, and heads of roots stay what they were
//! (`pool`, `held.rs`).
//!
//! ## Group commit
//! Callers of one dataset queue. A caller that finds fewer than two leaders leads: it takes all who
//! queue, drafts, writes, flushes, wakes them. Meanwhile others queue and make the next group,
//! which is drafted and written while this one is flushed. A lone caller pays for no hand-over.
//!
//! ## Lock order
//! A queue < `Log::circle` < gate (exclusively) < everything of a dataset, `Flow`. Nothing waits
//! for a commit under `Log::circle`.
#![forbid(unsafe_code)]

mod circle;
mod flow;
mod log;
mod queue;
mod read;

pub use log::{Log, LogCounts, Medium, MediumError, Vouch};
pub use queue::DatasetLog;
pub use read::{Damage, Group, Lack, Listed, Survey, Wanted, list_groups, open_group, read_groups, survey};
