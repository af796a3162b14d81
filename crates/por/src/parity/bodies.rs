//! The interface of tiles at a store: their bodies are objects there, and their heads stay on the
//! parity device. Decision 0263; [`crate::tile_store`] has one.
//!
//! ```text
//! [put]→ at the store ─[head durable, named]→ of the code ─[newer head durable]→ given up
//!    ─[header of a pass behind it committed]→ deleted
//! ```
//! An object is given up only when a newer head of its tile, or a header without its code, is
//! durable [por.22], and deleted only when the pool would refuse a device that names it [por.23];
//! both are invariants of [`super`]. While it is on its way no head names it.

use std::any::Any;

use steadfast_format::SegmentId;

use super::error::Result;
use crate::cell::PAYLOAD;
use crate::tile::Tile;

/// Salt and counter before the sealed bytes of a body.
pub(crate) const STAMP: usize = 24;
/// Bytes of a body.
pub(crate) const SEALED: usize = STAMP + Tile::SIZE + steadfast_crypto::SEAL_OVERHEAD;
/// Cells of a body.
pub(crate) const CELLS: u64 = SEALED.div_ceil(PAYLOAD) as u64;
/// Bodies for which the inner code has room beyond those of two codes.
pub(crate) const MORE: u64 = 24;

/// Bodies of tiles at a store.
pub trait Bodies: Any + Send + Sync {
    /// Bodies that memory holds at once.
    fn at_once(&self) -> usize;

    /// Refuses if the code over the objects takes no more of them, before anything is read for
    /// them.
    ///
    /// # Errors
    /// It is full, or a fault of it or of its medium keeps it from taking some.
    fn check_inner(&self, count: usize) -> Result<()>;

    /// The body of a tile's bytes.
    fn sealed(&self, map: u64, tile: u32, bytes: &[u8]) -> Vec<u8>;

    /// Stores bodies as new objects, side by side. Those that succeed are durable then, and covered
    /// but for the next flush of the medium. Gives the hash of each for its head, if it was stored.
    /// They count as on their way until [`Bodies::named`], [`Bodies::give_up`] or
    /// [`Bodies::retire`].
    ///
    /// # Errors
    /// The store, or the code over it, does not take some. Nothing of these stays. Where the
    /// code does not take one, the store is not asked for it.
    fn put_each(&self, sealed: &[Vec<u8>]) -> (Vec<Option<[u8; 32]>>, Result<()>);

    /// Bytes of bodies as the store has them, read side by side and not checked yet; none of those
    /// that it does not have.
    ///
    /// # Errors
    /// The store does not answer.
    fn read_each(&self, hashes: &[[u8; 32]]) -> Result<Vec<Vec<u8>>>;

    /// A tile's own bytes, of stored ones whose hash is right. `None` if they are of another tile.
    fn opened(&self, map: u64, tile: u32, stored: &[u8]) -> Option<Vec<u8>>;

    /// A head names the object now.
    fn named(&self, name: SegmentId);

    /// Lets an object leave whose bytes are at hand [por.22]. It is deleted when the pass of this
    /// number is committed [por.23].
    fn give_up(&self, name: SegmentId, stored: &[u8], pass: u64);

    /// Lets objects leave when the header of the pass of this number is durable [por.22]. They are
    /// deleted when it is committed [por.23].
    fn retire(&self, names: &mut dyn Iterator<Item = SegmentId>, pass: u64);

    /// Notes a tile that a pass could not read, or that all could be.
    fn note_lost(&self, tile: Option<u32>);

    /// Refuses a second code if there is no room for so many tiles of both.
    ///
    /// # Errors
    /// There is none.
    fn check_room(&self, tiles: u64) -> Result<()>;
}

/// Name of the object of a body with this hash.
pub(crate) fn name_of(hash: &[u8; 32]) -> SegmentId {
    let first: [u8; 8] = hash[..8].try_into().expect("eight of its bytes");
    SegmentId((u64::from_le_bytes(first) & (SegmentId::END - 1)).max(1))
}
