//! # The parity device
//!
//! Trusted bytes beside an untrusted pool: the tiles, a journal of the newest segments, whole, the
//! manifest of all segments that the code covers, and the tags of their cells. It is told of each
//! segment that is written and of each that is to be deleted; nothing else of the pool is known
//! here.
//!
//! ## Definitions
//! *Position*: place in the journal's endless sequence of bytes; position p lies at p modulo the
//! ring. *Cut* of a tile: the position up to which it includes all records. *Tail*: the least cut,
//! from which on records are kept. *Window*: the records from the tail to the end.
//! *Pass*: brings all tiles to the end of the journal, and then moves the tail there.
//!
//! ## States of a segment
//! ```text
//! [add]→ in the window ─[pass]→ in the tiles ─[remove]→ leaving ─[pass, anchored]→ may be deleted
//! ```
//!
//! ## Invariants
//! [por.9] A tile, with the records of the window from its cut on, is the sum of the cells of the
//!     manifest at the end. So a crash anywhere in a pass leaves a whole code.
//!     test: `a_crash_at_any_write_leaves_a_whole_code`
//! [por.10] A slot is overwritten only when a newer generation of its tile is durable, and a place
//!     of the ring only when a header is durable whose tail is behind it.
//! [por.11] A head is written after its tile is durable, a header after its manifest is.
//! [por.12] Each record names the check of the one before it, so a record that was lost in a crash
//!     cannot come back behind one that was written later.
//!     test: `a_lost_record_does_not_come_back`
//! [por.14] A unit of tags is written when no durable manifest names it, and is durable before one
//!     does.
//!     test: `a_crash_at_any_write_leaves_a_whole_code`
//! [por.16] While a snapshot of the code is read, no pass runs: no tile, unit of tags or record
//!     that it names is overwritten. Records are added and served meanwhile.
//!     test: `a_recovery_reads_beside_writers`
//! [por.17] A stored tile of the next code, with the records of the window from its cut on, is the
//!     sum of the cells of the manifest at the end but for the segments that are left out. One
//!     header makes it the code, when each of its tiles has reached the tail.
//!     test: `a_crash_at_any_write_of_a_re_key_leaves_a_whole_code`
//! [por.18] At most one step of a pass runs. While it does, no snapshot is taken, no code is
//!     begun, and nothing is stored for a re-key: each of them names what the step replaces.
//!     `Step::begin`, tests: `no_snapshot_is_taken_in_a_step`,
//!     `what_comes_while_a_step_runs_belongs_to_the_next_pass`
//! [por.19] A step writes to slots that no tile has, to units of tags and to a manifest that no
//!     header names, and then heads or a header. So it overwrites nothing that others read.
//!     `ParityDevice::end_tiles`
//! [por.20] A step folds the records that were there when its pass began, and no other. A cell
//!     that comes or leaves meanwhile has a record at the pass's end or behind it, which is where
//!     the cut of each tile points.
//!     `ParityDevice::take`, test: `what_comes_while_a_step_runs_belongs_to_the_next_pass`
//! [por.21] Memory says what is stored behind the last flush of a step, not before. A step that
//!     does not end, or a flush that fails for anyone, ends the use of the device: no head is
//!     written behind it.
//!     tests: `a_crash_in_a_step_with_others_beside_leaves_a_whole_code`,
//!     `a_step_that_does_not_end_stops_the_device`,
//!     `a_flush_that_fails_beside_a_step_stops_it`
//! [por.22] Where tiles lie at a store: an object leaves the inner code only when a newer head of
//!     its tile, or a header without its code, is durable. `Bodies`
//!     tests: `a_crash_at_any_write_leaves_a_whole_code_at_a_store`,
//!     `a_crash_at_any_write_of_a_re_key_leaves_a_whole_code_at_a_store`,
//!     `tiles_of_a_code_that_is_given_up_stay_until_a_header_is_without_it`
//! [por.23] An object that a head may name, of this device or of a copy, is deleted there when a
//!     root is committed whose pass is behind each header with which that head was there. The pool
//!     refuses a device of an older pass, so each copy that it takes has all of its tiles.
//!     `TileStore::tend`, test: `a_device_put_back_within_a_pass_finds_its_tiles`
//! [por.24] A recovery of which stores saw something, a put or that none came, is counted by the
//!     header of the next pass, and is no reason for one: what it did not put back may be in the
//!     journal alone. A code under another map begins with none.
//!     test: `recoveries_are_counted_until_the_code_is_made_anew`
//! [por.25] While a recovery is owed, no step of a pass begins: the journal keeps the objects that
//!     the recovery found in it and at no store. The mark is durable before the first object is put
//!     back, and goes when a recovery has put back all that can come back. `begin_step`
//!     tests: `the_journal_keeps_what_a_recovery_did_not_put_back`,
//!     `a_crash_in_a_recovery_leaves_the_journal_its_records`
//! [por.13] A segment may be deleted at the store only when a pass has released it.
//!
//! ## Crashes
//! Before a flush: records that were added since may be lost, from some record on. In a pass: some
//! tiles are of the new generation and some of the old one, each with its own cut, and the window
//! is still there. Between the last tile and the header: all are new, and the window is read once
//! more.
//!
//! ## Another map
//! *Re-key*: makes a second code of the same cells under another map, in the other area of slots.
//! A recovery that did not give back everything shows the store which cells share a tile; behind a
//! re-key that tells nothing. Decision 0238. A recovery that gave everything back tells that no
//! tile lost too much: [`RECOVERIES_MAX`] of these are borne under one map. Decision 0289.
//! ```text
//! [begin_rekey, pass]→ named by the header ─[tiles, round by round]→ complete ─[pass]→ the code
//! ```
//! Segments with lost cells are left out of it, and so of the manifest behind it.
//!
//! ## Not here
//! Several domains.
#![allow(clippy::module_name_repetitions, reason = "named as operators name it")]

mod bodies;
mod contents;
mod creation;
mod device;
mod error;
mod figures;
mod flusher;
mod geometry;
mod medium;
mod owed;
mod pass;
mod queue;
mod recovery;
mod rehearsal;
mod rekey;
mod source;
mod step;
mod tags;

pub use bodies::Bodies;
pub(crate) use bodies::{CELLS, MORE, SEALED, STAMP, name_of};
pub use creation::Creation;
pub use device::{ParityDevice, Standing, tags_of};
pub use error::{Error, Result};
pub use figures::{Figures, NextFigures, RECOVERIES_MAX};
pub use flusher::Flusher;
pub use medium::Medium;
pub use pass::{Heads, Pass};
pub use recovery::{Found, Outcome, Search, Snapshot};
pub use rekey::{MadeTiles, Stage};
pub use step::{Running, Step, StepResult};
