//! Reasons why a parity device refuses.

use std::io;

use steadfast_format::parity::ParitySegment;
use steadfast_format::{DecodeError, PoolGuid};

use crate::cell::CellId;

/// Reason why a parity device refuses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The medium failed.
    #[error("{operation} at byte {offset} of the parity device failed: {source}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// Where.
        offset: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// After a failed write nothing more is accepted until the device is opened again.
    #[error("the parity device failed before; open it again")]
    Failed,
    /// Neither copy of the header is valid.
    #[error("this is no parity device: {0}")]
    NotParity(DecodeError),
    /// It is another pool's.
    #[error("the parity device is of pool {found:x}, not of {wanted:x}", found = found.0, wanted = wanted.0)]
    Foreign {
        /// Its pool.
        found: PoolGuid,
        /// The pool that it was opened for.
        wanted: PoolGuid,
    },
    /// Its key comes from the pool's master key, which was not given.
    #[error("the key of the parity comes from the pool's key, which is not loaded")]
    KeyNeeded,
    /// It is smaller than it has to be.
    #[error("the parity device has {have} bytes; it needs {need}")]
    TooSmall {
        /// Bytes there are.
        have: u64,
        /// Bytes it needs.
        need: u64,
    },
    /// A second code finds no room beside the present one.
    #[error(
        "the parity device has {have} bytes; a second code beside the present one needs {need}, and {missing} bytes are missing"
    )]
    NoRoomBeside {
        /// Bytes there are.
        have: u64,
        /// Bytes that both codes need.
        need: u64,
        /// Bytes of these for which there is no room.
        missing: u64,
    },
    /// The journal has no room until a pass has put its records into the tiles.
    #[error("the journal has room for {free} bytes; the record has {need}: make a pass")]
    JournalFull {
        /// Bytes of the record.
        need: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Another step of a pass is running.
    #[error("another step of a pass is under way")]
    StepRunning,
    /// Passes wait for a recovery, which reads the tiles.
    #[error("a recovery reads the parity; passes wait until it ends")]
    Recovering,
    /// Passes wait for a recovery that goes on where one was cut off.
    #[error("a recovery was cut off before all was put back; passes wait for the next one")]
    RecoveryOwed,
    /// The store lacks cells that the code must take in when it is made anew.
    #[error("segment {} has cells that its store does not have any more: recover first", .0.segment)]
    Missing(ParitySegment),
    /// A pass gave the code up that was being made, because its room failed.
    #[error("the code that was being made is given up: its room failed")]
    GivenUp,
    /// The room for the new code failed. The old one is as it was.
    #[error("the room for the new code failed at byte {offset}: {source}")]
    NoRoom {
        /// Where.
        offset: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// Somebody asked for the end of a recovery.
    #[error("the work on it was stopped")]
    Stopped,
    /// The pool holds more than the code was made for.
    #[error("the code is made for {planned} cells; the pool would have {cells}")]
    Outgrown {
        /// Cells with this segment.
        cells: u64,
        /// Cells that the code is made for.
        planned: u64,
    },
    /// The manifest has no room for another segment.
    #[error("the manifest has room for {rows} segments")]
    ManifestFull {
        /// Rows there are.
        rows: u64,
    },
    /// The tag area has no room for the tags of another segment.
    #[error("the area of tags has {units} units, and they are taken")]
    TagsFull {
        /// Units there are.
        units: u32,
    },
    /// A segment of no bytes, or of more than the format has.
    #[error("a segment of {0} bytes cannot be covered")]
    Length(usize),
    /// The segment is in the code already.
    #[error("segment {} is in the code already", .0.segment)]
    Exists(ParitySegment),
    /// The segment is not in the code.
    #[error("segment {} is not in the code", .0.segment)]
    Unknown(ParitySegment),
    /// Cells that are to leave the code are not those that entered it.
    #[error("{} cells are not those that entered the code", .0.len())]
    WrongCells(Vec<CellId>),
    /// The store does not take back what was recovered.
    #[error("the store refuses what was recovered: {source}")]
    Store {
        /// The store's answer.
        source: steadfast_device::Error,
    },
    /// A store does not answer, which tells nothing of what it has.
    #[error("what a store has is not known: {source}")]
    StoreAway {
        /// The last try.
        source: steadfast_device::Error,
    },
    /// The store of the tiles did not do what it was asked. It may later.
    #[error("the store of the tiles: {source}")]
    TileStore {
        /// The store's answer.
        source: steadfast_device::Error,
    },
    /// The store of the tiles cannot be opened.
    #[error("the store of the tiles, {address}, cannot be opened: {reason}")]
    NoTileStore {
        /// Its address.
        address: String,
        /// Why.
        reason: String,
    },
    /// The code over the tiles at the store did not take one in.
    #[error("the code over the tiles at their store takes no more: {reason}")]
    Inner {
        /// Why.
        reason: String,
    },
    /// The code over the tiles at the store has no room for those of a second code.
    #[error(
        "the code over the tiles at their store is made for {planned} tiles, and there would be {tiles}; \
         zpool remove and zpool add make a larger one"
    )]
    InnerSmall {
        /// Tiles of both codes.
        tiles: u64,
        /// Tiles that it is made for.
        planned: u64,
    },
    /// A tile is not what its head says.
    #[error("tile {0} of the parity is damaged")]
    TileDamaged(u32),
    /// A record that was durable is damaged.
    #[error("the journal of the parity is damaged at position {0}")]
    JournalDamaged(u64),
    /// The manifest is not the one that the header names.
    #[error("the manifest of the parity is damaged")]
    ManifestDamaged,
}

/// Outcome on a parity device.
pub type Result<T> = std::result::Result<T, Error>;
