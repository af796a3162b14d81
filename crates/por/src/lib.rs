//! # Proofs of retrievability
//!
//! The owner of the data asks the store, again and again and cheaply, to prove that it still holds
//! all of it, and gets back what it lost, up to a fraction that was agreed on beforehand, whoever
//! chose what was lost. This room is the arithmetic of both, the device that holds the code, and
//! one that covers a store. It sees segments as bytes. DESIGN.md, chapter 24; decision 0184.
//!
//! ## Definitions
//! *Cell*: 4,096 bytes of a segment, with an identity ([`CellId`]) and a *tag* of 16 bytes.
//! *Tile*: 2,048 *rows*; a row is the sum (exclusive or) of cells, of their contents and of their
//! tags. *Map*: the secret function from a cell's identity to its tile and nine rows in it.
//! *Stratum*: a part of the pool that is audited by itself. *Loss*: the fraction of all cells that
//! may vanish between two audits and still comes back.
//!
//! ## States of a cell
//! ```text
//! written ─[tagged, added]→ in the code ─[lost]→ unknown ─[solved, tag proven]→ in the code
//!                           in the code ─[taken out]→ free to be deleted
//! ```
//!
//! ## Invariants
//! [por.1] An identity has one content for ever. Segment ids are used once; where a crash makes two
//!     openings of a pool use one id, the opening's random number tells them apart.
//!     test: `one_mask_used_twice_shows_the_point` says what it would cost
//! [por.2] A tile is the sum of the cells that were added and not taken out, in any order and in
//!     any batches.
//!     test: `a_tile_is_the_sum_of_its_cells`
//! [por.3] Only a cell whose tag was made or checked enters or leaves a tile.
//!     type: [`Proven`]
//! [por.4] Any cells, at most the planned fraction and chosen without the map, come back but for
//!     the chance that [`bound::Plan::failure_log2`] names.
//!     test: `losses_at_the_bound_come_back`
//! [por.5] A missing cell either comes back with its own tag or is named. Nothing is guessed.
//!     test: `beyond_the_bound_each_cell_comes_back_or_is_named`
//! [por.6] A store that lacks the fraction e passes an audit of N samples with at most
//!     (1 - e)^N + 257 / 2^128.
//!     test: `audits_find_losses_as_often_as_the_formula_says`
//! [por.7] A reply to another challenge, or from another list of cells, fails.
//!     test: `a_reply_answers_one_challenge_only`
//! [por.8] All kernels give the same bytes.
//!     test: `all_kernels_*`
//!
//! ## Not here
//! The schedule of audits and passes. A proof says that the cells can be had, not that
//! reads are served: a store that passes audits and refuses reads is a matter of read errors.
//!
//! ## Reading order
//! [`cell`], [`tag`], [`code`], [`tile`], `solve`, [`recover`], [`audit`], [`agent`], [`bound`],
//! [`parity`], [`covered`], [`mod@tile_store`];
//! the arithmetic below is `field` and `gather`, each with a scalar twin, and `simd`, the one
//! module that is unsafe.
#![deny(unsafe_code)]

pub mod agent;
pub mod audit;
pub mod bound;
pub mod cell;
pub mod code;
pub mod covered;
mod field;
mod gather;
mod kernel;
pub mod parity;
pub mod recover;
#[allow(unsafe_code)]
mod simd;
mod solve;
pub mod tag;
pub mod tile;
pub mod tile_store;

pub use audit::{Challenge, Reply, SegmentCells, Stratum};
pub use cell::{CellId, PAYLOAD, Payload, Tag};
pub use code::{Map, Place};
pub use covered::{AgentAudit, Audit, Covered, Part, Rekey, Repair, SharedParity, pass_step, rekey, repair};
pub use kernel::Kernel;
pub use recover::{Recovered, Recovery};
pub use tag::{Proven, TagKeys};
pub use tile::{Batch, Tile};
pub use tile_store::{OpenStore, TileStore, TilesPlace, TilesStatus, tile_store};
