//! # The FUSE protocol, as bytes
//!
//! Facts are those of the kernel's user-space interface header `linux/fuse.h`, protocol 7.45;
//! everything is in the machine's own byte order, and structures are padded to eight bytes. Nothing
//! here does I/O, and decoding is a pure function: any bytes give a value or a [`DecodeError`],
//! never a panic.
//!
//! A request is a 40-byte header, a fixed structure that the opcode chooses, and a rest (names,
//! data). Over `/dev/fuse` these follow each other; over the kernel's io_uring queues they lie in
//! three places. [`Parts`] hides the difference from the decoder.

pub mod init;
pub mod reply;
pub mod request;

use thiserror::Error;

/// Major version of the protocol; there has been no other since 2006.
pub const MAJOR: u32 = 7;
/// Newest minor version we speak.
pub const MINOR: u32 = 45;
/// Oldest minor version we accept: Linux 5.4. Older structures are shorter and are not written down
/// here.
pub const MINOR_MIN: u32 = 31;

/// Size of the header in front of each request.
pub const IN_HEADER_SIZE: usize = 40;
/// Size of the header in front of each reply and notification.
pub const OUT_HEADER_SIZE: usize = 16;
/// Fixed structure of WRITE. Header and this make 80 bytes in front of the data.
pub const WRITE_IN_SIZE: usize = 40;

/// Why bytes are not a request. Where the header was readable, the session answers `EIO` (a bug of
/// the kernel, or of this decoder: it is logged); where it was not, the message is dropped.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer bytes than a header.
    #[error("a request of {len} bytes is shorter than its header")]
    HeaderShort {
        /// Bytes there were.
        len: usize,
    },
    /// The length in the header is not the length of the message.
    #[error("the header says {said} bytes, the message has {len}")]
    LengthMismatch {
        /// Length in the header.
        said: u32,
        /// Bytes there were.
        len: usize,
    },
    /// The structure that the opcode asks for is cut short.
    #[error("opcode {opcode}: {need} bytes of arguments expected, {have} found")]
    BodyShort {
        /// The opcode.
        opcode: u32,
        /// Bytes needed.
        need: usize,
        /// Bytes there were.
        have: usize,
    },
    /// A name without its NUL byte, empty, or with a `/` in it.
    #[error("opcode {opcode}: a name is empty, unterminated or holds a slash")]
    Name {
        /// The opcode.
        opcode: u32,
    },
    /// Extensions are longer than the message or contradict themselves.
    #[error("opcode {opcode}: extensions do not fit")]
    Extension {
        /// The opcode.
        opcode: u32,
    },
    /// A field with a value outside its range.
    #[error("opcode {opcode}: {field} is out of range")]
    Field {
        /// The opcode.
        opcode: u32,
        /// Which field.
        field: &'static str,
    },
}

/// The header of a request.
///
/// | off | len | field        |
/// |-----|-----|--------------|
/// |   0 |   4 | len          |
/// |   4 |   4 | opcode       |
/// |   8 |   8 | unique       |
/// |  16 |   8 | nodeid       |
/// |  24 |   4 | uid          |
/// |  28 |   4 | gid          |
/// |  32 |   4 | pid          |
/// |  36 |   2 | total_extlen |
/// |  38 |   2 | padding      |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InHeader {
    /// Bytes of the whole message.
    pub len: u32,
    /// The operation: see [`opcode`].
    pub opcode: u32,
    /// Number that the reply repeats.
    pub unique: u64,
    /// Inode the request is about.
    pub nodeid: u64,
    /// File system user id of the caller.
    pub uid: u32,
    /// File system group id of the caller.
    pub gid: u32,
    /// Thread id of the caller.
    pub pid: u32,
    /// Extensions at the end of the message, in units of 8 bytes.
    pub total_extlen: u16,
}

impl InHeader {
    /// Reads the header at the start of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Some(head) = bytes.first_chunk::<IN_HEADER_SIZE>() else {
            return Err(DecodeError::HeaderShort { len: bytes.len() });
        };
        let f = Fields(head);
        Ok(Self {
            len: f.u32(0),
            opcode: f.u32(4),
            unique: f.u64(8),
            nodeid: f.u64(16),
            uid: f.u32(24),
            gid: f.u32(28),
            pid: f.u32(32),
            total_extlen: f.u16(36),
        })
    }
}

/// Where the arguments of a request lie.
#[derive(Clone, Copy, Debug)]
pub enum Parts<'a> {
    /// One run of bytes: the fixed structure, then the rest (`/dev/fuse`).
    Stream(&'a [u8]),
    /// The fixed structure in its own field (which may be longer than it), the rest in the payload
    /// (io_uring).
    Split {
        /// Field that begins with the fixed structure.
        fixed: &'a [u8],
        /// Everything after it.
        payload: &'a [u8],
    },
}

/// Reads numbers at constant offsets of a structure whose size was checked: an offset outside is
/// our bug, which the golden tests of every structure would show.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.array(at))
    }
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&self.0[at..at + N]);
        out
    }
}

macro_rules! opcodes {
    ($($name:ident = $value:literal,)*) => {
        /// Numbers of the operations.
        #[allow(missing_docs, reason = "the protocol's own names")]
        pub mod opcode {
            $(pub const $name: u32 = $value;)*

            /// The protocol's name of an operation, for logs.
            pub fn name(opcode: u32) -> &'static str {
                match opcode { $($value => stringify!($name),)* _ => "unknown operation" }
            }
        }
    };
}

opcodes! {
    LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8, MKDIR = 9, UNLINK = 10,
    RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16, STATFS = 17, RELEASE = 18, FSYNC = 20,
    SETXATTR = 21, GETXATTR = 22, LISTXATTR = 23, REMOVEXATTR = 24, FLUSH = 25, INIT = 26, OPENDIR = 27, READDIR = 28,
    RELEASEDIR = 29, FSYNCDIR = 30, GETLK = 31, SETLK = 32, SETLKW = 33, ACCESS = 34, CREATE = 35, INTERRUPT = 36,
    BMAP = 37, DESTROY = 38, IOCTL = 39, POLL = 40, NOTIFY_REPLY = 41, BATCH_FORGET = 42, FALLOCATE = 43,
    READDIRPLUS = 44, RENAME2 = 45, LSEEK = 46, COPY_FILE_RANGE = 47, SETUPMAPPING = 48, REMOVEMAPPING = 49,
    SYNCFS = 50, TMPFILE = 51, STATX = 52, COPY_FILE_RANGE_64 = 53,
}

/// Numbers of the messages that the server sends unasked; they stand in the reply header's error
/// field.
pub mod notify {
    /// Forget cached attributes and pages of an inode.
    pub const INVAL_INODE: i32 = 2;
    /// Forget a name.
    pub const INVAL_ENTRY: i32 = 3;
    /// A name was removed.
    pub const DELETE: i32 = 6;
    /// Forget every name (7.44).
    pub const INC_EPOCH: i32 = 8;

    /// In INVAL_ENTRY: look the name up again when it is next used, but tear nothing down now
    /// (7.38).
    pub const EXPIRE_ONLY: u32 = 1;
}
