//! NFS version 3 (RFC 1813) on the wire: the arguments of its 22 procedures, and the parts of which
//! its results consist.

use crate::xdr::{Garbage, Reader, Result, Writer};
use steadfast_posix::{Attr, Errno, S_IFMT, Time};

/// Number of the program.
pub const PROGRAM: u32 = 100_003;
/// Its version.
pub const VERSION: u32 = 3;
/// Longest file handle.
pub const HANDLE_MAX: usize = 64;
/// Longest transfer: reads are cut to it, longer writes are refused.
pub const TRANSFER_MAX: usize = 1 << 20;
/// Longest name that is read; `posix` refuses those that are too long.
const NAME_READ_MAX: usize = 4_096;
/// Longest target of a symbolic link.
const TARGET_READ_MAX: usize = 8_192;

/// Kinds of files (`ftype3`).
pub mod kind {
    /// Regular file.
    pub const REGULAR: u32 = 1;
    /// Directory.
    pub const DIRECTORY: u32 = 2;
    /// Block device.
    pub const BLOCK: u32 = 3;
    /// Character device.
    pub const CHARACTER: u32 = 4;
    /// Symbolic link.
    pub const LINK: u32 = 5;
    /// Socket.
    pub const SOCKET: u32 = 6;
    /// Named pipe.
    pub const FIFO: u32 = 7;
}

/// Rights that ACCESS asks for.
pub mod access {
    /// Read a file, list a directory.
    pub const READ: u32 = 0x01;
    /// Look a name up.
    pub const LOOKUP: u32 = 0x02;
    /// Change content that is there.
    pub const MODIFY: u32 = 0x04;
    /// Add content, make names.
    pub const EXTEND: u32 = 0x08;
    /// Remove names.
    pub const DELETE: u32 = 0x10;
    /// Run a program.
    pub const EXECUTE: u32 = 0x20;
}

/// Result of a procedure (`nfsstat3`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Status(pub u32);

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Status = Status($value);)*
        }
    };
}

numbers! {
    /// Done.
    OK = 0;
    /// Not the owner.
    PERM = 1;
    /// No such name.
    NOENT = 2;
    /// The device failed.
    IO = 5;
    /// No such device.
    NXIO = 6;
    /// The caller may not.
    ACCES = 13;
    /// The name is taken.
    EXIST = 17;
    /// A link across file systems.
    XDEV = 18;
    /// Not a directory.
    NOTDIR = 20;
    /// A directory.
    ISDIR = 21;
    /// An argument makes no sense.
    INVAL = 22;
    /// Too large.
    FBIG = 27;
    /// No space.
    NOSPC = 28;
    /// Read-only.
    ROFS = 30;
    /// Too many links.
    MLINK = 31;
    /// The name is too long.
    NAMETOOLONG = 63;
    /// The directory is not empty.
    NOTEMPTY = 66;
    /// A quota is reached.
    DQUOT = 69;
    /// The file is there no more.
    STALE = 70;
    /// The handle is none of this server.
    BADHANDLE = 10_001;
    /// The file changed since the guard's time.
    NOT_SYNC = 10_002;
    /// Not offered.
    NOTSUPP = 10_004;
    /// Not even one entry has room.
    TOOSMALL = 10_005;
    /// A fault of the server.
    SERVERFAULT = 10_006;
    /// This kind of file cannot be made.
    BADTYPE = 10_007;
    /// Ask again later.
    JUKEBOX = 10_008;
}

impl From<Errno> for Status {
    /// Each number of `posix` has one here. Any other is a failure of the device.
    fn from(errno: Errno) -> Status {
        match errno {
            Errno::EPERM => Status::PERM,
            Errno::ENOENT => Status::NOENT,
            Errno::ENXIO => Status::NXIO,
            Errno::EACCES => Status::ACCES,
            Errno::EEXIST => Status::EXIST,
            Errno::ENOTDIR => Status::NOTDIR,
            Errno::EISDIR => Status::ISDIR,
            // A name that is no UTF-8, where names have to be.
            Errno::EINVAL | Errno::EILSEQ => Status::INVAL,
            Errno::EFBIG => Status::FBIG,
            Errno::ENOSPC => Status::NOSPC,
            Errno::EROFS => Status::ROFS,
            Errno::EMLINK => Status::MLINK,
            Errno::ENAMETOOLONG => Status::NAMETOOLONG,
            Errno::ENOTEMPTY => Status::NOTEMPTY,
            Errno::EDQUOT => Status::DQUOT,
            Errno::ESTALE => Status::STALE,
            Errno::EOPNOTSUPP => Status::NOTSUPP,
            Errno::EAGAIN | Errno::EINTR => Status::JUKEBOX,
            _ => Status::IO,
        }
    }
}

/// A handle as a client sends it.
pub type Handle<'a> = &'a [u8];

/// A time to set (`set_atime`, `set_mtime`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SetTime {
    /// The server's.
    Now,
    /// That one.
    To(Time),
}

/// Attributes to set (`sattr3`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NewAttributes {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
}

/// How durable a write is to be before it is answered (`stable_how`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Stable {
    /// Not at all; COMMIT follows.
    No = 0,
    /// The data, and what is needed to find it.
    Data = 1,
    /// All of it.
    File = 2,
}

/// How CREATE treats a name that exists.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HowToCreate {
    /// Takes the file that exists.
    Unchecked(NewAttributes),
    /// Refuses.
    Guarded(NewAttributes),
    /// Refuses, unless this very call made it: the verifier is kept with the file.
    Exclusive([u8; 8]),
}

/// A call.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "procedures and arguments are those of RFC 1813")]
pub enum Call<'a> {
    Null,
    Getattr { object: Handle<'a> },
    Setattr { object: Handle<'a>, new: NewAttributes, guard: Option<Time> },
    Lookup { dir: Handle<'a>, name: &'a [u8] },
    Access { object: Handle<'a>, rights: u32 },
    Readlink { object: Handle<'a> },
    Read { file: Handle<'a>, offset: u64, count: u32 },
    Write { file: Handle<'a>, offset: u64, count: u32, stable: Stable, data: &'a [u8] },
    Create { dir: Handle<'a>, name: &'a [u8], how: HowToCreate },
    Mkdir { dir: Handle<'a>, name: &'a [u8], new: NewAttributes },
    Symlink { dir: Handle<'a>, name: &'a [u8], new: NewAttributes, target: &'a [u8] },
    Mknod { dir: Handle<'a>, name: &'a [u8], kind: u32, new: NewAttributes, device: (u32, u32) },
    Remove { dir: Handle<'a>, name: &'a [u8] },
    Rmdir { dir: Handle<'a>, name: &'a [u8] },
    Rename { from: Handle<'a>, name: &'a [u8], to: Handle<'a>, new_name: &'a [u8] },
    Link { file: Handle<'a>, dir: Handle<'a>, name: &'a [u8] },
    Readdir { dir: Handle<'a>, cookie: u64, verifier: [u8; 8], count: u32 },
    Readdirplus { dir: Handle<'a>, cookie: u64, verifier: [u8; 8], dircount: u32, maxcount: u32 },
    Fsstat { root: Handle<'a> },
    Fsinfo { root: Handle<'a> },
    Pathconf { object: Handle<'a> },
    Commit { file: Handle<'a>, offset: u64, count: u32 },
    // Of the program beside it ([`crate::acl3`]); lists are those of `posix`.
    Getacl { object: Handle<'a>, wanted: u32 },
    Setacl { object: Handle<'a>, access: Option<Vec<u8>>, default: Option<Vec<u8>> },
}

pub(crate) fn handle<'a>(reader: &mut Reader<'a>) -> Result<Handle<'a>> {
    reader.opaque(HANDLE_MAX)
}

fn name<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    reader.opaque(NAME_READ_MAX)
}

fn time(reader: &mut Reader<'_>) -> Result<Time> {
    let (seconds, nanos) = (reader.u32()?, reader.u32()?);
    if nanos >= 1_000_000_000 {
        return Err(Garbage);
    }
    Ok(Time { seconds: i64::from(seconds), nanos })
}

fn set_time(reader: &mut Reader<'_>) -> Result<Option<SetTime>> {
    match reader.u32()? {
        0 => Ok(None),
        1 => Ok(Some(SetTime::Now)),
        2 => Ok(Some(SetTime::To(time(reader)?))),
        _ => Err(Garbage),
    }
}

fn attributes(reader: &mut Reader<'_>) -> Result<NewAttributes> {
    Ok(NewAttributes {
        mode: reader.optional(Reader::u32)?,
        uid: reader.optional(Reader::u32)?,
        gid: reader.optional(Reader::u32)?,
        size: reader.optional(Reader::u64)?,
        atime: set_time(reader)?,
        mtime: set_time(reader)?,
    })
}

fn write<'a>(reader: &mut Reader<'a>) -> Result<Call<'a>> {
    let (file, offset, count) = (handle(reader)?, reader.u64()?, reader.u32()?);
    let stable = match reader.u32()? {
        0 => Stable::No,
        1 => Stable::Data,
        2 => Stable::File,
        _ => return Err(Garbage),
    };
    let data = reader.opaque(TRANSFER_MAX)?;
    Ok(Call::Write { file, offset, count, stable, data })
}

fn create<'a>(reader: &mut Reader<'a>) -> Result<Call<'a>> {
    let (dir, name) = (handle(reader)?, name(reader)?);
    let how = match reader.u32()? {
        0 => HowToCreate::Unchecked(attributes(reader)?),
        1 => HowToCreate::Guarded(attributes(reader)?),
        2 => HowToCreate::Exclusive(reader.fixed()?),
        _ => return Err(Garbage),
    };
    Ok(Call::Create { dir, name, how })
}

fn mknod<'a>(reader: &mut Reader<'a>) -> Result<Call<'a>> {
    let (dir, name, kind) = (handle(reader)?, name(reader)?, reader.u32()?);
    let (mut new, mut device) = (NewAttributes::default(), (0, 0));
    match kind {
        kind::BLOCK | kind::CHARACTER => {
            new = attributes(reader)?;
            device = (reader.u32()?, reader.u32()?);
        }
        kind::SOCKET | kind::FIFO => new = attributes(reader)?,
        kind::REGULAR | kind::DIRECTORY | kind::LINK => {}
        _ => return Err(Garbage),
    }
    Ok(Call::Mknod { dir, name, kind, new, device })
}

impl<'a> Call<'a> {
    /// Reads the arguments of a procedure; `None` if there is no such procedure.
    ///
    /// # Errors
    /// The arguments cannot be read.
    pub fn decode(procedure: u32, reader: &mut Reader<'a>) -> Result<Option<Call<'a>>> {
        let r = reader;
        Ok(Some(match procedure {
            0 => Call::Null,
            1 => Call::Getattr { object: handle(r)? },
            2 => Call::Setattr { object: handle(r)?, new: attributes(r)?, guard: r.optional(time)? },
            3 => Call::Lookup { dir: handle(r)?, name: name(r)? },
            4 => Call::Access { object: handle(r)?, rights: r.u32()? },
            5 => Call::Readlink { object: handle(r)? },
            6 => Call::Read { file: handle(r)?, offset: r.u64()?, count: r.u32()? },
            7 => write(r)?,
            8 => create(r)?,
            9 => Call::Mkdir { dir: handle(r)?, name: name(r)?, new: attributes(r)? },
            10 => {
                let (dir, name, new) = (handle(r)?, name(r)?, attributes(r)?);
                Call::Symlink { dir, name, new, target: r.opaque(TARGET_READ_MAX)? }
            }
            11 => mknod(r)?,
            12 => Call::Remove { dir: handle(r)?, name: name(r)? },
            13 => Call::Rmdir { dir: handle(r)?, name: name(r)? },
            14 => Call::Rename { from: handle(r)?, name: name(r)?, to: handle(r)?, new_name: name(r)? },
            15 => Call::Link { file: handle(r)?, dir: handle(r)?, name: name(r)? },
            16 => {
                let (dir, cookie, verifier) = (handle(r)?, r.u64()?, r.fixed()?);
                Call::Readdir { dir, cookie, verifier, count: r.u32()? }
            }
            17 => {
                let (dir, cookie, verifier) = (handle(r)?, r.u64()?, r.fixed()?);
                Call::Readdirplus { dir, cookie, verifier, dircount: r.u32()?, maxcount: r.u32()? }
            }
            18 => Call::Fsstat { root: handle(r)? },
            19 => Call::Fsinfo { root: handle(r)? },
            20 => Call::Pathconf { object: handle(r)? },
            21 => Call::Commit { file: handle(r)?, offset: r.u64()?, count: r.u32()? },
            _ => return Ok(None),
        }))
    }
}

fn kind_of(mode: u32) -> u32 {
    match mode & S_IFMT {
        0o040_000 => kind::DIRECTORY,
        0o060_000 => kind::BLOCK,
        0o020_000 => kind::CHARACTER,
        0o120_000 => kind::LINK,
        0o140_000 => kind::SOCKET,
        0o010_000 => kind::FIFO,
        _ => kind::REGULAR,
    }
}

/// Device number of Linux in its parts: 12 bits of major, 20 of minor, interleaved as `stat` has
/// them.
#[must_use]
pub fn device_parts(rdev: u32) -> (u32, u32) {
    (rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xfff00)
}

/// The reverse of [`device_parts`]; `None` for numbers that Linux does not have.
#[must_use]
pub fn device_number(major: u32, minor: u32) -> Option<u32> {
    let fits = major < 1 << 12 && minor < 1 << 20;
    fits.then_some(minor & 0xff | major << 8 | (minor & 0xfff00) << 12)
}

/// Seconds have 32 bits without a sign: a time before 1970 is shown as 1970, one after 2106 as
/// 2106.
fn write_time(out: &mut Writer, time: Time) {
    let (seconds, nanos) = told(time);
    out.u32(seconds).u32(nanos);
}

/// A time as the protocol can tell it.
fn told(time: Time) -> (u32, u32) {
    match u32::try_from(time.seconds) {
        Ok(seconds) => (seconds, time.nanos),
        Err(_) if time.seconds < 0 => (0, 0),
        Err(_) => (u32::MAX, 999_999_999),
    }
}

/// Bytes of attributes.
const ATTRIBUTES: usize = 84;

/// Attributes (`fattr3`), with one look at the room of the reply for all fields.
pub fn write_attributes(out: &mut Writer, fsid: u64, attr: &Attr) {
    out.fixed(&fields_of(fsid, attr));
}

fn fields_of(fsid: u64, attr: &Attr) -> [u8; ATTRIBUTES] {
    let (major, minor) = device_parts(attr.rdev);
    let mut fields = [0; ATTRIBUTES];
    let mut at = 0;
    let mut put = |field: &[u8]| {
        fields[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    };
    for field in [kind_of(attr.mode), attr.mode & 0o7777, attr.nlink, attr.uid, attr.gid] {
        put(&field.to_be_bytes());
    }
    put(&attr.size.to_be_bytes());
    put(&attr.blocks.saturating_mul(512).to_be_bytes());
    put(&major.to_be_bytes());
    put(&minor.to_be_bytes());
    put(&fsid.to_be_bytes());
    put(&attr.ino.to_be_bytes());
    for time in [attr.atime, attr.mtime, attr.ctime] {
        let (seconds, nanos) = told(time);
        put(&seconds.to_be_bytes());
        put(&nanos.to_be_bytes());
    }
    fields
}

/// Bytes of a listing's entry before its name, and between the name and the handle.
const BEFORE_NAME: usize = 16;
const BEHIND_NAME: usize = 8 + 4 + ATTRIBUTES + 8;

/// An entry of a listing with attributes and handle (`entryplus3`), as [`Writer`] would write field
/// by field: a listing has thousands, and each look at the room of the reply counts.
pub(crate) fn write_entry(
    out: &mut Writer,
    (ino, name, cookie): (u64, &[u8], u64),
    fsid: u64,
    attr: &Attr,
    handle: &[u8],
) {
    let mut before = [0; BEFORE_NAME];
    before[..4].copy_from_slice(&1_u32.to_be_bytes());
    before[4..12].copy_from_slice(&ino.to_be_bytes());
    before[12..].copy_from_slice(&(name.len() as u32).to_be_bytes());
    let mut behind = [0; BEHIND_NAME];
    behind[..8].copy_from_slice(&cookie.to_be_bytes());
    behind[8..12].copy_from_slice(&1_u32.to_be_bytes());
    behind[12..12 + ATTRIBUTES].copy_from_slice(&fields_of(fsid, attr));
    behind[12 + ATTRIBUTES..16 + ATTRIBUTES].copy_from_slice(&1_u32.to_be_bytes());
    behind[16 + ATTRIBUTES..].copy_from_slice(&(handle.len() as u32).to_be_bytes());
    out.out.extend_from_slice(&before);
    out.out.extend_from_slice(name);
    out.pad(name.len()).fixed(&behind).fixed(handle);
}

/// Attributes that may be missing (`post_op_attr`).
pub fn write_post(out: &mut Writer, fsid: u64, attr: Option<&Attr>) {
    out.bool(attr.is_some());
    if let Some(attr) = attr {
        write_attributes(out, fsid, attr);
    }
}

/// Attributes before and after a change (`wcc_data`). With those before, the reply promises that
/// nothing else changed the file between the two: a client that knows the first keeps its cache.
pub fn write_wcc(out: &mut Writer, fsid: u64, before: Option<&Attr>, after: Option<&Attr>) {
    out.bool(before.is_some());
    if let Some(before) = before {
        out.u64(before.size);
        write_time(out, before.mtime);
        write_time(out, before.ctime);
    }
    write_post(out, fsid, after);
}

#[cfg(test)]
mod tests;
