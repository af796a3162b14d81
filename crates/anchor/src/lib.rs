//! # Anchor
//!
//! The linearizable register that holds the only acceptable root of a pool.
//!
//! A pool's devices can be put back to an earlier copy, whole and consistent, by a thief of
//! backups, by a careless operator or by the store itself; nothing *in* the pool can tell. So a
//! pool may have an anchor: a record of 1,024 bytes kept elsewhere, in a place the store does not
//! reach, moved on by compare-and-swap with every commit. The root it names is the only one that is
//! ever opened.
//!
//! ## Definitions
//! *Register*: keeps one record and changes it by compare-and-swap ([`Register`]). *Record*: pool,
//! order (`seq`), takeover (`epoch`), writer, the root itself ([`AnchorRecord`]). *Writer*: one
//! import of a pool. *Fenced*: a writer whose record was replaced by another's. *Witness*: what a
//! host remembers of the last record it saw ([`Witness`]).
//!
//! ## Invariants
//! [anchor.1] Everything reachable from an anchored root was durable before the swap that anchored
//!      it.
//!      `pool::commit`, step 6
//! [anchor.2] Nothing reachable from the anchored root, or from one whose swap is under way, is
//!      overwritten or discarded: space is released after [`Anchor::advance`] has returned, never
//!      before.
//!      assert: `pool::commit`, step 9
//! [anchor.3] The only acceptable root is the anchored one: no roll-forward to a newer root that
//!      was not anchored, no fallback to an older one.
//!      assert: `pool::import`
//! [anchor.4] Records form a chain: `seq` grows by one, `prev` is the hash of the record before,
//!      `epoch` never falls; a root that is advanced to names the one before as its parent.
//!      assert: `Anchor::swap`
//! [anchor.5] A fenced writer never swaps again.
//!      assert: `Anchor::swap`
//!
//! ## What an unknown outcome does
//! A swap may fail after it took effect (a sync that reports an error, a network that loses the
//! answer). It is then sent again, the same bytes: a register that holds them answers that it is
//! done (and makes them durable again), one that holds the record before does the swap, and one
//! that holds anything else has another writer, and we are fenced. If nothing answers after some
//! attempts the pool stops writing, and goes on neither with the old root nor the new.
//!
//! ## What a crash does
//! - *Before the swap*: the register holds T-1, and all of T-1 is still there [anchor.2]. The
//!   blocks of T are garbage in free space. By [anchor.3] its uberblock is not opened, though it
//!   may be on the devices.
//! - *During the swap*: the slot is torn, and the other one holds T-1; or it is whole, and T is
//!   opened.
//! - *After it*: T.
//!
//! ## What it does not do
//! A register does not stop a stale writer from *writing to the devices*: it stops him from
//! committing. Before each commit, and before it discards anything, a writer looks whether the
//! record is still its own; between that look and its last write lies a window of one commit, and
//! blocks written ahead of a commit are not preceded by a look. Devices that two hosts reach need a
//! lock of their own (file devices take one) or names that no two writers share (objects).
//!
//! ## Reading order
//! [`register`] (the interface), [`file`](mod@file) (two slots and a lock), [`witness`], [`writer`]
//! (open, take over, advance, fence).
#![forbid(unsafe_code)]

pub mod file;
pub mod memory;
pub mod register;
pub mod witness;
pub mod writer;

pub use file::FileRegister;
pub use memory::MemoryRegister;
pub use register::{Register, RegisterError, SwapError};
pub use steadfast_format::{AnchorRecord, LogHead, anchor::RecordBytes};
pub use witness::{FileWitness, MemoryWitness, Witness};
pub use writer::{Anchor, Error, Holding, Root, Start, Status};

/// The key of a sealed pool's macs, from its master key.
#[must_use]
pub fn mac_key(master: &steadfast_crypto::Key) -> steadfast_crypto::Key {
    steadfast_crypto::derive(master, b"", "steadfast anchor mac v1")
}
