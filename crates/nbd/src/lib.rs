//! # Network block devices
//!
//! A server of the NBD protocol for one connection, over any stream of bytes: [`serve`]. Written
//! after the protocol's specification, doc/proto.md of github.com/NetworkBlockDevice/nbd. It knows
//! no volume: what is served is behind [`Exports`] and [`Export`].
//!
//! ## What is spoken
//! The fixed newstyle handshake with EXPORT_NAME, ABORT, LIST, INFO, GO, STRUCTURED_REPLY,
//! LIST_META_CONTEXT and SET_META_CONTEXT (`base:allocation`); READ, WRITE, FLUSH, TRIM,
//! WRITE_ZEROES, CACHE, BLOCK_STATUS and DISC, with FUA, NO_HOLE, DF, REQ_ONE and FAST_ZERO. TLS is
//! refused: the way here is a socket that only its owner can open.
//!
//! ## Invariants
//! [nbd.1] No bytes of a client cause a panic, or take more memory than [`PIECE`] for content and
//!      [`OPTION_BYTES_MAX`] for an option.
//!      test: `any_bytes_are_answered_or_refused`; fuzz: `nbd`
//! [nbd.2] An export is asked for nothing outside of its size, and not to change if it is only to
//!      be read.
//!      `Request::check`
//! [nbd.3] The answer to FLUSH, or to a request with FUA, is sent after the export said that it is
//!      durable.
//!      test: `a_flush_is_answered_after_the_export`
//! [nbd.4] Requests of a connection are carried out one after the other: a client that wants more
//!      opens several connections, which all see the same content (CAN_MULTI_CONN).
//!
//! ## What it costs
//! A thread, a buffer that grows to [`PIECE`] and a socket for each connection. A READ is one copy
//! from the export into the buffer, a WRITE one from the socket into it.
#![forbid(unsafe_code)]

pub mod fuzz;
mod handshake;
#[cfg(test)]
mod tests;
mod transmission;
pub mod wire;

use std::io::{self, Read, Write};

/// Content that is held at once.
pub const PIECE: usize = 1 << 20;
/// Most content of one request.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// Most bytes of an option that is looked at.
pub const OPTION_BYTES_MAX: usize = 64 << 10;
/// Most options of a handshake.
pub const OPTIONS_MAX: usize = 512;

/// Error of a request, as clients receive it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Fault {
    /// It is only to be read.
    Perm = 1,
    /// The device, or what is on it.
    Io = 5,
    /// No memory.
    NoMemory = 12,
    /// The request makes no sense.
    Invalid = 22,
    /// There is no room.
    NoSpace = 28,
    /// More than can be sent in one piece.
    Overflow = 75,
    /// Not offered.
    Unsupported = 95,
    /// The server ends.
    Shutdown = 108,
}

/// An opened export. Offsets and lengths are within its size.
pub trait Export {
    /// Bytes.
    fn size(&self) -> u64;
    /// Bytes of a good transfer: a power of two.
    fn block_bytes(&self) -> u32;
    /// Nothing of it can be changed.
    fn is_read_only(&self) -> bool;
    /// Fills `out` with what is at `offset`.
    ///
    /// # Errors
    /// A fault, and the content of `out` is nobody's.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Fault>;
    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// A fault; what was written before it is written.
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault>;
    /// Makes a range read as zeros, and occupy nothing.
    ///
    /// # Errors
    /// A fault.
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Fault>;
    /// Makes every answered write durable, of any client.
    ///
    /// # Errors
    /// A fault: nothing is promised.
    fn flush(&mut self) -> Result<(), Fault>;
    /// How far from `offset` on it is all data (true) or all hole (false), at most `length` bytes,
    /// at least one.
    ///
    /// # Errors
    /// A fault.
    fn extent(&mut self, offset: u64, length: u64) -> Result<(u64, bool), Fault>;
}

/// The exports of a server.
pub trait Exports {
    /// Names of exports.
    fn list(&self) -> Vec<String>;
    /// Opens one; a sentence why not.
    ///
    /// # Errors
    /// Message to the client.
    fn open(&self, name: &str) -> Result<Box<dyn Export>, String>;
}

/// Why a conversation ended before its client said so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection broke, or the client left without a word.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// The bytes received are not the protocol.
    #[error("the client does not speak NBD: {0}")]
    Protocol(&'static str),
    /// A read failed after its answer had begun.
    #[error("a read failed in the middle of its answer")]
    HalfRead,
}

/// Serves one client until it leaves.
///
/// # Errors
/// [`Error`]; the connection is to be closed in any case.
pub fn serve(stream: &mut (impl Read + Write), exports: &dyn Exports) -> Result<(), Error> {
    match handshake::shake(stream, exports)? {
        Some(agreed) => transmission::transmit(stream, agreed),
        None => Ok(()),
    }
}

/// Result of a handshake.
struct Agreed {
    export: Box<dyn Export>,
    structured: bool,
    allocation: bool,
}
