//! # A link before a store
//!
//! `lab run bucket` measures file systems on a store that is far away. The store is on this
//! machine, or near it; [`Link`] stands before it and makes the way long:
//!
//! ```text
//! client ─► socket of the link ─► half a round trip, rate ─► store
//!        ◄─                    ◄─ half a round trip, rate ◄─
//!                     └► Scanner: requests and answers ─► Tally
//! ```
//!
//! Every byte leaves half a round trip after it came, and no sooner than the rate allows: all
//! connections share the rate of their direction, or each has it for itself ([`Link::start_each`]),
//! as from a machine of its own. A round trip of less than 4 ms is played to some microseconds
//! (`alarm`); a longer one wakes once a millisecond, and is late by as much. A new connection costs
//! one round trip, as its handshake would. The growth of TCP's window is not played: a client that
//! opens connections for each request looks better here than on a real way.
//!
//! Packets may get lost ([`Loss`]): a lost one arrives a round trip later, and nothing behind it on
//! its connection arrives before it. Which ones follows from a seed, the number of the connection
//! and the place in its stream, so a run can be repeated. A window that shrinks after a loss and
//! timeouts are not played.
//!
//! The link also reads the heads of HTTP/1.1 as they pass, without changing them, so that the
//! requests of every client are counted by the same instrument. Bytes that are no HTTP pass and
//! count as bytes alone.
//!
//! ## Invariants
//! [link.1] Bytes leave in the order in which they came, unchanged.
//!      test: `bytes_arrive_unchanged`
//! [link.2] No byte leaves earlier than half a round trip after it came.
//!      `Way::due`; test: `waits_are_never_short_and_short_ways_have_a_timer`
//! [link.3] A request is in flight from the last byte of its head to the last byte of its answer.
//!      `Exchange`
//! [link.4] The packets that are lost do not depend on how the bytes were cut into reads.
//!      test: `losses_follow_the_seed`
//!
//! ## Reading order
//! `scanner` (HTTP), `tally` (counts), `loss`, `alarm` (waits), `link`.
#![forbid(unsafe_code)]

mod alarm;
mod link;
mod loss;
mod scanner;
mod tally;

pub use link::{Conditions, Link};
pub use loss::Loss;
pub use tally::{Counts, Kind, SLICE, Slice};
