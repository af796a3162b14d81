//! Encoders of what the kernel reads: fixed structures, directory entries, notifications.

use super::{OUT_HEADER_SIZE, notify};
use crate::types::{Attr, AttrReply, Entry, Errno, FileKind, Opened, StatFs};
use std::time::Duration;

/// Size of the attributes inside other structures.
pub const ATTR_SIZE: usize = 88;
/// Size of the answer to a lookup.
pub const ENTRY_OUT_SIZE: usize = 40 + ATTR_SIZE;
/// Size of the answer to GETATTR and SETATTR.
pub const ATTR_OUT_SIZE: usize = 16 + ATTR_SIZE;
/// Size of the answer to OPEN; CREATE answers an entry and this.
pub const OPEN_OUT_SIZE: usize = 16;
/// Size of the answer to STATFS.
pub const STATFS_OUT_SIZE: usize = 80;
/// Size of the answer to STATX.
pub const STATX_OUT_SIZE: usize = 288;
/// Size of the header of an IOCTL answer.
pub const IOCTL_OUT_SIZE: usize = 16;
/// Bytes of a directory entry in front of its name.
pub const DIRENT_HEADER_SIZE: usize = 24;

/// Longest fixed structure that a reply can hold.
pub(crate) const FIXED_OUT_MAX: usize = STATX_OUT_SIZE;

/// Flags of `Opened` on the wire.
mod fopen {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const NONSEEKABLE: u32 = 1 << 2;
    pub const CACHE_DIR: u32 = 1 << 3;
    pub const STREAM: u32 = 1 << 4;
    pub const NOFLUSH: u32 = 1 << 5;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Writes fields one after the other; the slice must be exactly as long as the structure.
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let rest = std::mem::take(&mut self.0);
        let (head, tail) = rest.split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.0 = tail;
        self
    }
    fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }
    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }
    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }
    fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }
    fn zeros(&mut self, count: usize) -> &mut Self {
        let rest = std::mem::take(&mut self.0);
        let (head, tail) = rest.split_at_mut(count);
        head.fill(0);
        self.0 = tail;
        self
    }
    fn end(&self) {
        assert!(self.0.is_empty(), "a structure was {} bytes short", self.0.len());
    }
}

/// | off | len | field                                       |
/// |-----|-----|---------------------------------------------|
/// |   0 |   4 | len, of the whole message                   |
/// |   4 |   4 | error, negative; or a notification's number |
/// |   8 |   8 | unique of the request; 0: a notification    |
pub fn encode_out_header(len: usize, error: i32, unique: u64) -> [u8; OUT_HEADER_SIZE] {
    let mut out = [0; OUT_HEADER_SIZE];
    let len = u32::try_from(len).expect("a reply is bounded by the buffers");
    Writer(&mut out).u32(len).bytes(&error.to_ne_bytes()).u64(unique).end();
    out
}

/// The whole message that says a request failed.
pub fn encode_error(errno: Errno, unique: u64) -> [u8; OUT_HEADER_SIZE] {
    // The kernel accepts 1 to 511 and takes anything else for a broken server.
    let errno = if (1..512).contains(&errno.0) { errno.0 } else { Errno::EIO.0 };
    encode_out_header(OUT_HEADER_SIZE, -errno, unique)
}

fn put_attr(w: &mut Writer<'_>, a: &Attr) {
    w.u64(a.ino).u64(a.size).u64(a.blocks);
    w.i64(a.atime.secs).i64(a.mtime.secs).i64(a.ctime.secs);
    w.u32(a.atime.nanos).u32(a.mtime.nanos).u32(a.ctime.nanos);
    w.u32(a.mode).u32(a.nlink).u32(a.uid).u32(a.gid).u32(a.rdev).u32(a.blksize).u32(0);
}

/// | off | len | field            |
/// |-----|-----|------------------|
/// |   0 |   8 | nodeid           |
/// |   8 |   8 | generation       |
/// |  16 |   8 | entry_valid      |
/// |  24 |   8 | attr_valid       |
/// |  32 |   4 | entry_valid_nsec |
/// |  36 |   4 | attr_valid_nsec  |
/// |  40 |  88 | attr             |
///
/// # Panics
/// If `out` is not [`ENTRY_OUT_SIZE`] long.
pub fn encode_entry(out: &mut [u8], entry: &Entry) {
    let mut w = Writer(out);
    w.u64(entry.ino).u64(entry.generation);
    w.u64(entry.entry_ttl.as_secs()).u64(entry.attr_ttl.as_secs());
    w.u32(entry.entry_ttl.subsec_nanos()).u32(entry.attr_ttl.subsec_nanos());
    put_attr(&mut w, &entry.attr);
    w.end();
}

/// | off | len | field           |
/// |-----|-----|-----------------|
/// |   0 |   8 | attr_valid      |
/// |   8 |   4 | attr_valid_nsec |
/// |  12 |   4 | zero            |
/// |  16 |  88 | attr            |
///
/// # Panics
/// If `out` is not [`ATTR_OUT_SIZE`] long.
pub fn encode_attr(out: &mut [u8], reply: &AttrReply) {
    let mut w = Writer(out);
    w.u64(reply.ttl.as_secs()).u32(reply.ttl.subsec_nanos()).u32(0);
    put_attr(&mut w, &reply.attr);
    w.end();
}

/// | off | len | field      |
/// |-----|-----|------------|
/// |   0 |   8 | fh         |
/// |   8 |   4 | open_flags |
/// |  12 |   4 | backing_id |
///
/// # Panics
/// If `out` is not [`OPEN_OUT_SIZE`] long.
pub fn encode_open(out: &mut [u8], opened: &Opened) {
    let mut flags = 0;
    for (on, bit) in [
        (opened.direct_io, fopen::DIRECT_IO),
        (opened.keep_cache, fopen::KEEP_CACHE),
        (opened.nonseekable, fopen::NONSEEKABLE),
        (opened.cache_dir, fopen::CACHE_DIR),
        (opened.stream, fopen::STREAM),
        (opened.no_flush, fopen::NOFLUSH),
        (opened.parallel_direct_writes, fopen::PARALLEL_DIRECT_WRITES),
    ] {
        flags |= if on { bit } else { 0 };
    }
    Writer(out).u64(opened.fh).u32(flags).u32(0).end();
}

/// | off | len | field   |   | off | len | field        |
/// |-----|-----|---------|---|-----|-----|--------------|
/// |   0 |   8 | blocks  |   |  40 |   4 | bsize        |
/// |   8 |   8 | bfree   |   |  44 |   4 | namelen      |
/// |  16 |   8 | bavail  |   |  48 |   4 | frsize       |
/// |  24 |   8 | files   |   |  52 |  28 | zero         |
/// |  32 |   8 | ffree   |   |     |     |              |
///
/// # Panics
/// If `out` is not [`STATFS_OUT_SIZE`] long.
pub fn encode_statfs(out: &mut [u8], s: &StatFs) {
    let mut w = Writer(out);
    w.u64(s.blocks).u64(s.bfree).u64(s.bavail).u64(s.files).u64(s.ffree);
    w.u32(s.bsize).u32(s.namelen).u32(s.frsize).zeros(28).end();
}

/// Bits of the mask in a STATX answer: type to blocks, and the birth time.
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

/// | off | len | field                            |
/// |-----|-----|----------------------------------|
/// |   0 |   8 | attr_valid                       |
/// |   8 |   4 | attr_valid_nsec                  |
/// |  12 |  20 | zero                             |
/// |  32 | 256 | as `struct statx` of `statx(2)`  |
///
/// # Panics
/// If `out` is not [`STATX_OUT_SIZE`] long.
pub fn encode_statx(out: &mut [u8], reply: &AttrReply) {
    let a = &reply.attr;
    let mut w = Writer(out);
    w.u64(reply.ttl.as_secs()).u32(reply.ttl.subsec_nanos()).zeros(20);
    w.u32(STATX_BASIC_STATS | if a.btime.is_some() { STATX_BTIME } else { 0 });
    w.u32(a.blksize).u64(0).u32(a.nlink).u32(a.uid).u32(a.gid);
    w.u16(a.mode as u16).u16(0); // a mode has 16 bits
    w.u64(a.ino).u64(a.size).u64(a.blocks).u64(0);
    for time in [a.atime, a.btime.unwrap_or_default(), a.ctime, a.mtime] {
        w.i64(time.secs).u32(time.nanos).u32(0);
    }
    // The 32-bit encoding: minor bits 0-7, major 8-19, minor 20-31.
    let (major, minor) = ((a.rdev >> 8) & 0xfff, (a.rdev & 0xff) | ((a.rdev >> 12) & 0xfff00));
    w.u32(major).u32(minor).u32(0).u32(0).zeros(112).end();
}

/// WRITE and the 32-bit COPY_FILE_RANGE answer how many bytes went.
pub fn encode_count(count: u32) -> [u8; 8] {
    let mut out = [0; 8];
    Writer(&mut out).u32(count).u32(0).end();
    out
}

/// GETXATTR and LISTXATTR answer a length like this when only the length was asked for.
pub fn encode_length(len: u32) -> [u8; 8] {
    encode_count(len)
}

/// | off | len | field          |
/// |-----|-----|----------------|
/// |   0 |   4 | result         |
/// |   4 |  12 | zero: no retry |
///
/// # Panics
/// If `out` is not [`IOCTL_OUT_SIZE`] long.
pub fn encode_ioctl(out: &mut [u8], result: i32) {
    Writer(out).bytes(&result.to_ne_bytes()).zeros(12).end();
}

/// | off | len | field   |
/// |-----|-----|---------|
/// |   0 |   8 | ino     |
/// |   8 |   8 | off     |
/// |  16 |   4 | namelen |
/// |  20 |   4 | type    |
/// |  24 |   n | name, zeros to the next multiple of 8 |
///
/// Returns the bytes filled, or `None` if `out` is too short. READDIRPLUS puts an entry in front.
pub fn encode_dirent(out: &mut [u8], ino: u64, cookie: u64, kind: FileKind, name: &[u8]) -> Option<usize> {
    let size = DIRENT_HEADER_SIZE.checked_add(name.len())?.checked_next_multiple_of(8)?;
    let mut w = Writer(out.get_mut(..size)?);
    w.u64(ino).u64(cookie).u32(u32::try_from(name.len()).ok()?).u32(kind as u32);
    w.bytes(name).zeros(size - DIRENT_HEADER_SIZE - name.len()).end();
    Some(size)
}

/// One message that the server sends unasked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Notification {
    /// Forget the attributes of an inode and pages of it: from `offset`, `length` bytes (0: to the
    /// end). A negative offset drops attributes only.
    InvalInode {
        /// The inode.
        ino: u64,
        /// First byte.
        offset: i64,
        /// Bytes.
        length: i64,
    },
    /// Forget a name.
    InvalEntry {
        /// Its directory.
        parent: u64,
        /// The name.
        name: Vec<u8>,
        /// Look it up again when next used, but do not tear down what is mounted below.
        expire_only: bool,
    },
    /// A name was removed elsewhere: forget it and tell watchers.
    Delete {
        /// Its directory.
        parent: u64,
        /// The inode it named.
        child: u64,
        /// The name.
        name: Vec<u8>,
    },
    /// Forget all names of the mount.
    IncEpoch,
}

impl Notification {
    /// The whole message.
    pub fn encode(&self) -> Vec<u8> {
        let (code, fixed, name) = match self {
            Self::InvalInode { ino, offset, length } => {
                let mut fixed = vec![0; 24];
                Writer(&mut fixed).u64(*ino).i64(*offset).i64(*length).end();
                (notify::INVAL_INODE, fixed, None)
            }
            Self::InvalEntry { parent, name, expire_only } => {
                let mut fixed = vec![0; 16];
                let flags = if *expire_only { notify::EXPIRE_ONLY } else { 0 };
                Writer(&mut fixed).u64(*parent).u32(name.len() as u32).u32(flags).end();
                (notify::INVAL_ENTRY, fixed, Some(name))
            }
            Self::Delete { parent, child, name } => {
                let mut fixed = vec![0; 24];
                Writer(&mut fixed).u64(*parent).u64(*child).u32(name.len() as u32).u32(0).end();
                (notify::DELETE, fixed, Some(name))
            }
            Self::IncEpoch => (notify::INC_EPOCH, Vec::new(), None),
        };
        let len = OUT_HEADER_SIZE + fixed.len() + name.map_or(0, |n| n.len() + 1);
        let mut out = Vec::with_capacity(len);
        out.extend_from_slice(&encode_out_header(len, code, 0));
        out.extend_from_slice(&fixed);
        if let Some(name) = name {
            out.extend_from_slice(name);
            out.push(0);
        }
        out
    }
}

/// The whole time-to-live that means "until told otherwise": a bit more than three years.
pub const TTL_LONG: Duration = Duration::from_secs(100_000_000);
