//! # Blocks
//!
//! The one path on which a block is sealed or opened, with the cache of verified blocks.
//!
//! ## The way down, and back
//!
//! ```text
//! write   bytes → compress (kept if it saves a unit) → seal → hash
//!               → append one to three copies → pointer
//! read    pointer → cache? → copy 0: fetch → hash equal? → open → decompress → cache
//!                              └ no ─ copy 1: the same; count what was bad, return the good copy,
//!                                     and write bad copies of content anew from it
//! ```
//!
//! ## Invariants
//! [block.1] A [`Block`] comes from bytes whose BLAKE3 is the one in their pointer, opened with the
//!      pointer's identity as associated data; there is no other constructor.
//!      type: `Verified`; test: `every_flipped_byte_is_noticed`
//! [block.2] A block of one place never passes for another: the hash lies beside the parent, and
//!      the seal binds pool, dataset, kind, level, compression, size and birth ([`seal`]).
//!      test: `swapped_blocks_are_noticed`
//! [block.3] Decompression writes at most `lsize` bytes whatever it is fed.
//!      test: `foreign_bytes_never_panic`
//! [block.4] The cache holds opened bytes of file content only, by address; as an address never
//!      names a second block, an entry is never wrong, only useless. A reader without the key gets
//!      nothing from it.
//!      test: `the_cache_asks_for_the_key`
//! [block.6] A block that many want at once is read once; nobody holds a lock while it is read.
//!      test: `a_block_that_many_want_is_read_once`
//! [block.7] A block from a cache device is verified like one from the pool's own devices
//!      ([`l2arc`](L2Arc)).
//! [block.8] A block that was compressed elsewhere is stored so only if that saves a unit, as here.
//!      The caller has checked that it decompresses to the bytes beside it ([`BlockIo::unpack`]).
//!      test: `what_was_compressed_before_is_stored_and_read_so`
//! [block.5] Copies of metadata lie in different segments ([`steadfast_segment::Class`]), and so do
//!      those of content (`DatasetId::of_copy`).
//!      test: `copies_of_content_lie_apart`
//! [block.9] A copy is written anew only from one whose hash is that of the pointer.
//!      test: `a_bad_copy_of_content_is_healed_by_reading`
//!
//! ## Cost
//! `benches/write.rs` on two busy cores, 128 KiB blocks into memory: 500 to 900 MB/s unsealed, 650
//! to 750 MB/s sealed, with or without LZ4; zstd-3 280 MB/s on data that compresses. Reading on one
//! core: 1 to 2.5 GB/s. `write_many` spreads all but the copy into the open segment over the cores,
//! and appends one block while the next ones are sealed.
//!
//! ## Not here
//! Which blocks there are (trees), where they go (`segment`), which key is whose (`pool`).
#![forbid(unsafe_code)]

mod ahead;
mod blocks;
mod cache;
mod compress;
mod error;
mod in_order;
mod io;
mod l2arc;
mod read;
pub mod seal;
mod stats;
mod write;
pub mod zle;

pub use ahead::ReadAhead;
pub use blocks::{BlockBytes, BlockPart, BlockWrite, Blocks, WriteContext};
pub use cache::Block;
pub use compress::{CompressionSetting, fuzz as fuzz_decompress};
pub use error::{Attempt, Badness, BlockFault, Error, ErrorLog};
pub use io::BlockIo;
pub use l2arc::{L2Arc, L2ArcCounts};
pub use read::{PackedPart, ReadContext};
pub use stats::Statistics;
