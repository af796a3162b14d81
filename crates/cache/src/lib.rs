//! Which blocks a cache keeps (ZFS: the lists of the ARC).
//!
//! The policy is S3-FIFO (Yang and others, *FIFO queues are all you need for cache eviction*,
//! SOSP 2023). A new entry stands in a small queue of a tenth of the room. If it was used there, it
//! moves to the main queue; otherwise it goes, and its address is remembered as a *ghost*. An entry
//! that comes again while it is a ghost goes to the main queue at once. The main queue gives an
//! entry another round for each of its uses. A hit moves nothing: it changes two numbers of the
//! entry, so a reader needs a shared lock only. A scan passes through the small queue and leaves
//! the main queue alone.
//!
//! One thing differs from the paper. `tar` looks each of the forty inodes of a leaf up, one after
//! the other, and never comes back: with plain S3-FIFO these uses carry each leaf of the scan into
//! the main queue. So a use counts only if a twentieth of the room was filled anew since the last
//! one that counted (the *correlated reference period* of LRU-K: O'Neil and others, SIGMOD 1993).
//! `cargo run -p steadfast-cache --example compare` prints the misses of this policy, of plain
//! S3-FIFO, of a clock, LRU and SIEVE for loads like those of a tree. Decision 0183 has the table.
//!
//! ## Invariants
//! [cache.1] The entries take at most [`Shard::bytes_max`] bytes, with what the queues and
//!     ghosts take for them.
//! [cache.2] Each entry has exactly one valid name in the queue in which it stands. Other names
//!     are of entries that were removed, and are passed over; they are never the greater part.
//! [cache.3] When an entry becomes a ghost, there are at most as many ghosts as entries, or
//!     `GHOSTS_MIN`.
//!
//! The owner of a shard decides when an entry is right, and how threads share the shard: the node
//! cache (`crates/tree`) and the block cache (`crates/blockio`).
#![forbid(unsafe_code)]

mod address;
mod shard;

pub use address::{AddressMap, shard_of};
pub use shard::Shard;
