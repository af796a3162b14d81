//! The decoder: bytes of a request to an [`Operation`].

use super::init::InitIn;
use super::{DecodeError, Fields, IN_HEADER_SIZE, InHeader, Parts, WRITE_IN_SIZE, opcode};
use crate::types::*;

/// Shape of later messages, as the handshake decided.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Dialect {
    /// SETXATTR has its longer structure.
    pub setxattr_ext: bool,
}

/// A request with its arguments checked and named; names and data borrow from the message.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(
    missing_docs,
    reason = "each is the protocol's operation of that name; fields are those of Handler's methods"
)]
pub enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    Forget {
        nlookup: u64,
    },
    BatchForget {
        forgets: ForgetIter<'a>,
    },
    Getattr {
        fh: Option<u64>,
    },
    Statx {
        fh: Option<u64>,
    },
    Setattr(SetAttr),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename(RenameArgs<'a>),
    Link {
        ino: u64,
        new_name: &'a [u8],
    },
    Open(OpenArgs),
    Read {
        args: ReadArgs,
        size: usize,
    },
    Write {
        args: WriteArgs,
        data: &'a [u8],
    },
    Statfs,
    Release(ReleaseArgs),
    Fsync {
        fh: u64,
        datasync: bool,
    },
    Setxattr(SetXattrArgs<'a>),
    Getxattr {
        name: &'a [u8],
        size: usize,
    },
    Listxattr {
        size: usize,
    },
    Removexattr {
        name: &'a [u8],
    },
    Flush {
        fh: u64,
        lock_owner: u64,
    },
    Init(InitIn),
    Opendir(OpenArgs),
    Readdir {
        fh: u64,
        offset: u64,
        size: usize,
    },
    Readdirplus {
        fh: u64,
        offset: u64,
        size: usize,
    },
    Releasedir(ReleaseArgs),
    Fsyncdir {
        fh: u64,
        datasync: bool,
    },
    Access {
        mask: u32,
    },
    Create {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        args: OpenArgs,
    },
    Tmpfile {
        mode: u32,
        umask: u32,
        args: OpenArgs,
    },
    Interrupt {
        unique: u64,
    },
    Destroy,
    Ioctl {
        args: IoctlArgs<'a>,
        out_size: usize,
    },
    Fallocate(FallocateArgs),
    Lseek {
        fh: u64,
        offset: u64,
        whence: u32,
    },
    CopyFileRange {
        args: CopyArgs,
        wide: bool,
    },
    Syncfs,
    NotifyReply,
    /// An operation we do not serve: answered `ENOSYS`.
    Unsupported,
}

/// A request: its header, its caller and its operation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Incoming<'a> {
    /// The header.
    pub header: InHeader,
    /// The operation.
    pub operation: Operation<'a>,
    /// A group from the extensions: see [`Request::group`].
    pub group: Option<u32>,
}

/// The inodes of a BATCH_FORGET.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ForgetIter<'a>(&'a [u8]);

impl Iterator for ForgetIter<'_> {
    type Item = Forget;

    fn next(&mut self) -> Option<Forget> {
        let (one, rest) = self.0.split_first_chunk::<16>()?;
        self.0 = rest;
        let f = Fields(one);
        Some(Forget { ino: f.u64(0), nlookup: f.u64(8) })
    }
}

/// Reads a message as `/dev/fuse` delivers it.
pub fn decode(bytes: &[u8], dialect: Dialect) -> Result<Incoming<'_>, DecodeError> {
    let header = InHeader::decode(bytes)?;
    if usize::try_from(header.len) != Ok(bytes.len()) {
        return Err(DecodeError::LengthMismatch { said: header.len, len: bytes.len() });
    }
    decode_parts(header, Parts::Stream(&bytes[IN_HEADER_SIZE..]), dialect)
}

/// Reads a message whose parts the transport has separated.
pub fn decode_parts<'a>(
    header: InHeader,
    parts: Parts<'a>,
    dialect: Dialect,
) -> Result<Incoming<'a>, DecodeError> {
    let (fixed, rest) = match parts {
        Parts::Stream(body) => (None, body),
        Parts::Split { fixed, payload } => (Some(fixed), payload),
    };
    let extensions = usize::from(header.total_extlen) * 8;
    let Some(split) = rest.len().checked_sub(extensions) else {
        return Err(DecodeError::Extension { opcode: header.opcode });
    };
    let (rest, extensions) = rest.split_at(split);
    let group = decode_group(extensions).ok_or(DecodeError::Extension { opcode: header.opcode })?;
    let operation = Body { opcode: header.opcode, fixed, rest }.operation(&header, dialect)?;
    Ok(Incoming { header, operation, group })
}

/// Walks the extensions for the supplementary group. `None` if they contradict themselves.
///
/// Each is a header of two words, size (with the header, a multiple of 8 after padding) and type,
/// and its content.
fn decode_group(mut bytes: &[u8]) -> Option<Option<u32>> {
    /// Types up to this one are security contexts.
    const EXT_GROUPS: u32 = 32;
    let mut group = None;
    while !bytes.is_empty() {
        let head = Fields(bytes.first_chunk::<8>()?);
        let size = head.u32(0) as usize;
        let content = bytes.get(8..size)?;
        if head.u32(4) == EXT_GROUPS {
            // A count, always 1 so far, and as many groups.
            let count = Fields(content.first_chunk::<4>()?).u32(0);
            if count > 0 {
                group = Some(Fields(content.get(4..8)?).u32(0));
            }
        }
        bytes = bytes.get(size.next_multiple_of(8)..)?;
    }
    Some(group)
}

struct Body<'a> {
    opcode: u32,
    /// Where the fixed structure lies if not at the start of `rest`.
    fixed: Option<&'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    /// The fixed structure.
    fn fixed(&mut self, need: usize) -> Result<Fields<'a>, DecodeError> {
        let from = self.fixed.unwrap_or(self.rest);
        if from.len() < need {
            return Err(DecodeError::BodyShort { opcode: self.opcode, need, have: from.len() });
        }
        if self.fixed.is_none() {
            self.rest = &self.rest[need..];
        }
        Ok(Fields(&from[..need]))
    }

    /// A string that ends in a NUL byte.
    fn string(&mut self) -> Result<&'a [u8], DecodeError> {
        let Some(end) = self.rest.iter().position(|&b| b == 0) else {
            return Err(DecodeError::Name { opcode: self.opcode });
        };
        let string = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(string)
    }

    /// A string that can be a name in a directory.
    fn name(&mut self) -> Result<&'a [u8], DecodeError> {
        let name = self.string()?;
        if name.is_empty() || name.contains(&b'/') {
            return Err(DecodeError::Name { opcode: self.opcode });
        }
        Ok(name)
    }

    /// A string that can be the name of an extended attribute.
    fn xattr_name(&mut self) -> Result<&'a [u8], DecodeError> {
        let name = self.string()?;
        if name.is_empty() {
            return Err(DecodeError::Name { opcode: self.opcode });
        }
        Ok(name)
    }

    /// Exactly `size` bytes of data, which may be followed by padding.
    fn data(&mut self, size: usize) -> Result<&'a [u8], DecodeError> {
        match self.rest.get(..size) {
            Some(data) => Ok(data),
            None => {
                let (opcode, have) = (self.opcode, self.rest.len());
                Err(DecodeError::BodyShort { opcode, need: size, have })
            }
        }
    }

    fn operation(mut self, header: &InHeader, dialect: Dialect) -> Result<Operation<'a>, DecodeError> {
        let ino = header.nodeid;
        Ok(match header.opcode {
            opcode::LOOKUP => Operation::Lookup { name: self.name()? },
            opcode::FORGET => Operation::Forget { nlookup: self.fixed(8)?.u64(0) },
            opcode::BATCH_FORGET => {
                let count = self.fixed(8)?.u32(0) as usize;
                let size = count.checked_mul(16).ok_or(self.out_of_range("count"))?;
                Operation::BatchForget { forgets: ForgetIter(self.data(size)?) }
            }
            opcode::GETATTR => {
                let f = self.fixed(16)?;
                Operation::Getattr { fh: (f.u32(0) & GETATTR_FH != 0).then(|| f.u64(8)) }
            }
            opcode::STATX => {
                let f = self.fixed(24)?;
                Operation::Statx { fh: (f.u32(0) & GETATTR_FH != 0).then(|| f.u64(8)) }
            }
            opcode::SETATTR => Operation::Setattr(setattr(&self.fixed(88)?)),
            opcode::READLINK => Operation::Readlink,
            opcode::SYMLINK => Operation::Symlink { name: self.name()?, target: self.string()? },
            opcode::MKNOD => {
                let f = self.fixed(16)?;
                Operation::Mknod { mode: f.u32(0), rdev: f.u32(4), umask: f.u32(8), name: self.name()? }
            }
            opcode::MKDIR => {
                let f = self.fixed(8)?;
                Operation::Mkdir { mode: f.u32(0), umask: f.u32(4), name: self.name()? }
            }
            opcode::UNLINK => Operation::Unlink { name: self.name()? },
            opcode::RMDIR => Operation::Rmdir { name: self.name()? },
            opcode::RENAME => {
                let new_parent = self.fixed(8)?.u64(0);
                let (name, new_name) = (self.name()?, self.name()?);
                Operation::Rename(RenameArgs { parent: ino, name, new_parent, new_name, flags: 0 })
            }
            opcode::RENAME2 => {
                let f = self.fixed(16)?;
                let (new_parent, flags) = (f.u64(0), f.u32(8));
                let (name, new_name) = (self.name()?, self.name()?);
                Operation::Rename(RenameArgs { parent: ino, name, new_parent, new_name, flags })
            }
            opcode::LINK => Operation::Link { ino: self.fixed(8)?.u64(0), new_name: self.name()? },
            opcode::OPEN => Operation::Open(open(&self.fixed(8)?, 4)),
            opcode::OPENDIR => Operation::Opendir(open(&self.fixed(8)?, 4)),
            opcode::READ => {
                let f = self.fixed(40)?;
                let lock_owner = (f.u32(20) & READ_LOCKOWNER != 0).then(|| f.u64(24));
                let args = ReadArgs {
                    ino,
                    fh: f.u64(0),
                    offset: self.offset(f.u64(8))?,
                    flags: f.u32(32),
                    lock_owner,
                };
                Operation::Read { args, size: f.u32(16) as usize }
            }
            opcode::WRITE => {
                let f = self.fixed(WRITE_IN_SIZE)?;
                let flags = f.u32(20);
                let args = WriteArgs {
                    ino,
                    fh: f.u64(0),
                    offset: self.offset(f.u64(8))?,
                    flags: f.u32(32),
                    writeback: flags & WRITE_CACHE != 0,
                    lock_owner: (flags & WRITE_LOCKOWNER != 0).then(|| f.u64(24)),
                    kill_suidgid: flags & WRITE_KILL_SUIDGID != 0,
                };
                Operation::Write { args, data: self.data(f.u32(16) as usize)? }
            }
            opcode::STATFS => Operation::Statfs,
            opcode::RELEASE => Operation::Release(release(ino, &self.fixed(24)?)),
            opcode::RELEASEDIR => Operation::Releasedir(release(ino, &self.fixed(24)?)),
            opcode::FSYNC => {
                let f = self.fixed(16)?;
                Operation::Fsync { fh: f.u64(0), datasync: f.u32(8) & FSYNC_DATASYNC != 0 }
            }
            opcode::FSYNCDIR => {
                let f = self.fixed(16)?;
                Operation::Fsyncdir { fh: f.u64(0), datasync: f.u32(8) & FSYNC_DATASYNC != 0 }
            }
            opcode::SETXATTR => {
                let f = self.fixed(if dialect.setxattr_ext { 16 } else { 8 })?;
                let name = self.xattr_name()?;
                let value = self.data(f.u32(0) as usize)?;
                let kill_sgid = dialect.setxattr_ext && f.u32(8) & SETXATTR_ACL_KILL_SGID != 0;
                Operation::Setxattr(SetXattrArgs { ino, name, value, flags: f.u32(4), kill_sgid })
            }
            opcode::GETXATTR => {
                let size = self.fixed(8)?.u32(0) as usize;
                Operation::Getxattr { name: self.xattr_name()?, size }
            }
            opcode::LISTXATTR => Operation::Listxattr { size: self.fixed(8)?.u32(0) as usize },
            opcode::REMOVEXATTR => Operation::Removexattr { name: self.xattr_name()? },
            opcode::FLUSH => {
                let f = self.fixed(24)?;
                Operation::Flush { fh: f.u64(0), lock_owner: f.u64(16) }
            }
            opcode::INIT => Operation::Init(InitIn::decode(self.fixed.unwrap_or(self.rest))?),
            opcode::READDIR => {
                let f = self.fixed(40)?;
                Operation::Readdir { fh: f.u64(0), offset: f.u64(8), size: f.u32(16) as usize }
            }
            opcode::READDIRPLUS => {
                let f = self.fixed(40)?;
                Operation::Readdirplus { fh: f.u64(0), offset: f.u64(8), size: f.u32(16) as usize }
            }
            opcode::ACCESS => Operation::Access { mask: self.fixed(8)?.u32(0) },
            opcode::CREATE => {
                let f = self.fixed(16)?;
                let args = open(&f, 12);
                Operation::Create { name: self.name()?, mode: f.u32(4), umask: f.u32(8), args }
            }
            opcode::TMPFILE => {
                // A name follows that means nothing.
                let f = self.fixed(16)?;
                Operation::Tmpfile { mode: f.u32(4), umask: f.u32(8), args: open(&f, 12) }
            }
            opcode::INTERRUPT => Operation::Interrupt { unique: self.fixed(8)?.u64(0) },
            opcode::DESTROY => Operation::Destroy,
            opcode::IOCTL => {
                let f = self.fixed(32)?;
                let input = self.data(f.u32(24) as usize)?;
                let args = IoctlArgs { ino, fh: f.u64(0), command: f.u32(12), argument: f.u64(16), input };
                Operation::Ioctl { args, out_size: f.u32(28) as usize }
            }
            opcode::FALLOCATE => {
                let f = self.fixed(32)?;
                let (offset, length) = (self.offset(f.u64(8))?, f.u64(16));
                if offset.checked_add(length).is_none_or(|end| end > OFFSET_MAX) {
                    return Err(self.out_of_range("length"));
                }
                Operation::Fallocate(FallocateArgs { ino, fh: f.u64(0), offset, length, mode: f.u32(24) })
            }
            opcode::LSEEK => {
                let f = self.fixed(24)?;
                Operation::Lseek { fh: f.u64(0), offset: f.u64(8), whence: f.u32(16) }
            }
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
                let f = self.fixed(56)?;
                let wide = header.opcode == opcode::COPY_FILE_RANGE_64;
                let args = CopyArgs {
                    ino_in: ino,
                    fh_in: f.u64(0),
                    offset_in: self.offset(f.u64(8))?,
                    ino_out: f.u64(16),
                    fh_out: f.u64(24),
                    offset_out: self.offset(f.u64(32))?,
                    length: if wide { f.u64(40).min(OFFSET_MAX) } else { f.u64(40).min(COPY_NARROW_MAX) },
                    flags: f.u64(48),
                };
                Operation::CopyFileRange { args, wide }
            }
            opcode::SYNCFS => Operation::Syncfs,
            opcode::NOTIFY_REPLY => Operation::NotifyReply,
            _ => Operation::Unsupported,
        })
    }

    /// A position in a file: handlers may add lengths to it without fear.
    fn offset(&self, offset: u64) -> Result<u64, DecodeError> {
        if offset > OFFSET_MAX { Err(self.out_of_range("offset")) } else { Ok(offset) }
    }

    fn out_of_range(&self, field: &'static str) -> DecodeError {
        DecodeError::Field { opcode: self.opcode, field }
    }
}

const OFFSET_MAX: u64 = i64::MAX as u64;
/// The answer of the older COPY_FILE_RANGE has 32 bits; whole pages, so that a caller's loop stays
/// aligned.
const COPY_NARROW_MAX: u64 = 0xffff_f000;
const GETATTR_FH: u32 = 1;
const READ_LOCKOWNER: u32 = 1 << 1;
const WRITE_CACHE: u32 = 1 << 0;
const WRITE_LOCKOWNER: u32 = 1 << 1;
const WRITE_KILL_SUIDGID: u32 = 1 << 2;
const OPEN_KILL_SUIDGID: u32 = 1;
const FSYNC_DATASYNC: u32 = 1;
const SETXATTR_ACL_KILL_SGID: u32 = 1;

fn open(f: &Fields<'_>, open_flags_at: usize) -> OpenArgs {
    OpenArgs { flags: f.u32(0), kill_suidgid: f.u32(open_flags_at) & OPEN_KILL_SUIDGID != 0 }
}

fn release(ino: u64, f: &Fields<'_>) -> ReleaseArgs {
    ReleaseArgs { ino, fh: f.u64(0), flags: f.u32(8), lock_owner: f.u64(16) }
}

/// Which fields of a SETATTR count.
mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// | off | len | field      |   | off | len | field     |
/// |-----|-----|------------|---|-----|-----|-----------|
/// |   0 |   4 | valid      |   |  56 |   4 | atimensec |
/// |   8 |   8 | fh         |   |  60 |   4 | mtimensec |
/// |  16 |   8 | size       |   |  64 |   4 | ctimensec |
/// |  24 |   8 | lock_owner |   |  68 |   4 | mode      |
/// |  32 |   8 | atime      |   |  76 |   4 | uid       |
/// |  40 |   8 | mtime      |   |  80 |   4 | gid       |
/// |  48 |   8 | ctime      |   |     |     |           |
fn setattr(f: &Fields<'_>) -> SetAttr {
    let valid = f.u32(0);
    let has = |bit: u32| valid & bit != 0;
    let time =
        |secs: usize, nanos: usize| Time { secs: f.u64(secs) as i64, nanos: f.u32(nanos).min(999_999_999) };
    let set_time = |bit: u32, now: u32, secs: usize, nanos: usize| {
        if has(now) { Some(SetTime::Now) } else { has(bit).then(|| SetTime::At(time(secs, nanos))) }
    };
    SetAttr {
        mode: has(fattr::MODE).then(|| f.u32(68)),
        uid: has(fattr::UID).then(|| f.u32(76)),
        gid: has(fattr::GID).then(|| f.u32(80)),
        size: has(fattr::SIZE).then(|| f.u64(16)),
        atime: set_time(fattr::ATIME, fattr::ATIME_NOW, 32, 56),
        mtime: set_time(fattr::MTIME, fattr::MTIME_NOW, 40, 60),
        ctime: has(fattr::CTIME).then(|| time(48, 64)),
        fh: has(fattr::FH).then(|| f.u64(8)),
        lock_owner: has(fattr::LOCKOWNER).then(|| f.u64(24)),
        kill_suidgid: has(fattr::KILL_SUIDGID),
    }
}
