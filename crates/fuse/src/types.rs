//! The nouns a handler and the transport exchange. Nothing here knows a byte offset.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// Inode number of the root directory: the protocol fixes it.
pub const ROOT_INO: u64 = 1;

/// An error number as the kernel shows it to the calling program; always positive.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident),* $(,)?) => {
        #[allow(missing_docs, reason = "the names are the documentation: errno(3)")]
        impl Errno {
            $(pub const $name: Errno = Errno(libc::$name);)*
            fn name(self) -> Option<&'static str> {
                match self { $(Errno::$name => Some(stringify!($name)),)* _ => None }
            }
        }
    };
}

errnos! {
    EPERM, ENOENT, EINTR, EIO, ENXIO, E2BIG, EBADF, EAGAIN, ENOMEM, EACCES, EBUSY, EEXIST, EXDEV, ENODEV, ENOTDIR,
    EISDIR, EINVAL, ENFILE, EMFILE, ENOTTY, ETXTBSY, EFBIG, ENOSPC, ESPIPE, EROFS, EMLINK, ERANGE, EDEADLK,
    ENAMETOOLONG, ENOSYS, ENOTEMPTY, ELOOP, ENODATA, EOVERFLOW, EBADMSG, EOPNOTSUPP, ETIMEDOUT, ESTALE, EDQUOT,
    ECONNABORTED, ENOTCONN, ECANCELED, ENOKEY,
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Errno {}

/// The caller, as the kernel names it. `uid` and `gid` are the caller's *file system* ids.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// The kernel's number of this request; useful in logs only.
    pub unique: u64,
    /// File system user id of the caller.
    pub uid: u32,
    /// File system group id of the caller.
    pub gid: u32,
    /// Thread id of the caller; 0 if it lives in another pid namespace, or for write-back.
    pub pid: u32,
    /// Umask of the caller: given by `mknod`, `mkdir`, `create` and `tmpfile`. Without
    /// [`MountOptions::posix_acl`](crate::MountOptions::posix_acl) the kernel has applied it to the
    /// mode already.
    pub umask: Option<u32>,
    /// The supplementary group of the caller that equals the parent directory's group, if it has
    /// one. Given by the calls that create a name, by kernels since 6.3.
    pub group: Option<u32>,
    /// False if other requests wait until this one is answered: see
    /// [`Handler::is_quick`](crate::Handler::is_quick).
    pub may_wait: bool,
    /// Set by [`Request::forget_attr`].
    pub stale: Cell<Option<u64>>,
}

impl Request {
    /// A request as if made by `uid` and `gid`; for tests and for calls that come from elsewhere.
    pub fn by(uid: u32, gid: u32) -> Self {
        Self { unique: 0, uid, gid, pid: 0, umask: None, group: None, may_wait: true, stale: Cell::new(None) }
    }

    /// To be called by a handler whose answer does not tell that it changed attributes of `ino`
    /// beyond size and times: above all when `write`, `fallocate` or `copy_file_range` dropped
    /// set-id bits. The kernel then forgets its copy before the caller goes on. `ino` is the inode
    /// that the request changes, which the caller has open.
    pub fn forget_attr(&self, ino: u64) {
        self.stale.set(Some(ino));
    }
}

/// A point of time: seconds since 1970 (negative before) and nanoseconds 0..=999,999,999 after that
/// second.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Time {
    /// Whole seconds since 1970-01-01 00:00:00 UTC, rounded down.
    pub secs: i64,
    /// Nanoseconds after `secs`.
    pub nanos: u32,
}

/// A time to set: the server's own clock, or a given value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SetTime {
    /// The time of the server's clock.
    Now,
    /// This value.
    At(Time),
}

/// Attributes of one inode.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Attr {
    /// The number programs see in `st_ino`.
    pub ino: u64,
    /// Bytes. The kernel refuses more than `i64::MAX`.
    pub size: u64,
    /// Units of 512 bytes that the file occupies.
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation; `None` where it is not known. Reaches programs through `statx(2)`.
    pub btime: Option<Time>,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Count of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node in the kernel's 32-bit encoding, exactly as `mknod` was given
    /// it.
    pub rdev: u32,
    /// Preferred I/O size in bytes (`st_blksize`); 0 lets the kernel choose.
    pub blksize: u32,
}

/// Attributes with the time the kernel may rely on them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AttrReply {
    /// The attributes.
    pub attr: Attr,
    /// How long the kernel may answer from its copy.
    pub ttl: Duration,
}

/// A name resolved. Handing one to the kernel adds one to the inode's *lookup count*; `forget`
/// takes it away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Inode number by which later calls name the inode; 0 caches that the name does not exist.
    pub ino: u64,
    /// Distinguishes two lives of one inode number (NFS handles); `ino` and `generation` together
    /// never repeat.
    pub generation: u64,
    /// Attributes of the inode; its `mode` must carry a file type.
    pub attr: Attr,
    /// How long the kernel may rely on the name.
    pub entry_ttl: Duration,
    /// How long the kernel may rely on the attributes.
    pub attr_ttl: Duration,
}

impl Entry {
    /// The answer "no such name, and you may remember that for `ttl`".
    pub fn negative(ttl: Duration) -> Self {
        Self { ino: 0, generation: 0, attr: Attr::default(), entry_ttl: ttl, attr_ttl: Duration::ZERO }
    }
}

/// The answer to `open`, `opendir`, `create`, `tmpfile`: a handle, and what the kernel may do with
/// it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Opened {
    /// Handle that later calls carry.
    pub fh: u64,
    /// Bypass the page cache: every read and write of this handle comes to the handler.
    pub direct_io: bool,
    /// Keep pages cached from earlier opens. Without it each open drops them.
    pub keep_cache: bool,
    /// No seeking (`lseek` fails).
    pub nonseekable: bool,
    /// The kernel may cache the listing of this directory.
    pub cache_dir: bool,
    /// Behaves like a stream: no position.
    pub stream: bool,
    /// Do not call `flush` when a descriptor is closed (without write-back cache).
    pub no_flush: bool,
    /// Several direct writes to this inode may come at once: the handler orders them itself.
    pub parallel_direct_writes: bool,
}

/// The answer to `statfs`; what `df` prints.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StatFs {
    /// Size in units of `frsize`.
    pub blocks: u64,
    /// Free, in units of `frsize`.
    pub bfree: u64,
    /// Free for ordinary users, in units of `frsize`.
    pub bavail: u64,
    /// Inodes, used and free.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Preferred I/O size in bytes.
    pub bsize: u32,
    /// Longest name in bytes.
    pub namelen: u32,
    /// Unit of the block counts in bytes.
    pub frsize: u32,
}

/// Kind of a name in a directory listing; the values are those of `d_type`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum FileKind {
    /// Not told.
    Unknown = 0,
    /// Named pipe.
    Fifo = 1,
    /// Character device.
    CharDevice = 2,
    /// Directory.
    Directory = 4,
    /// Block device.
    BlockDevice = 6,
    /// Regular file.
    Regular = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Socket.
    Socket = 12,
}

impl FileKind {
    /// The kind that the type bits of a mode name.
    pub fn from_mode(mode: u32) -> Self {
        match (mode & libc::S_IFMT) >> 12 {
            1 => Self::Fifo,
            2 => Self::CharDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::Regular,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => Self::Unknown,
        }
    }
}

/// One lookup count taken back: see [`Handler::forget`](crate::Handler::forget).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Forget {
    /// The inode.
    pub ino: u64,
    /// How many lookups the kernel forgets.
    pub nlookup: u64,
}

/// Attributes to be changed by `setattr`; `None` leaves one alone.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SetAttr {
    /// Permission bits (`chmod`).
    pub mode: Option<u32>,
    /// Owner (`chown`).
    pub uid: Option<u32>,
    /// Group (`chown`).
    pub gid: Option<u32>,
    /// Size in bytes (`truncate`).
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time: sent with a write-back cache only, where the kernel owns it.
    pub ctime: Option<Time>,
    /// Handle through which the change comes (`ftruncate`, `fchmod` on an open file).
    pub fh: Option<u64>,
    /// Lock owner, for mandatory locking.
    pub lock_owner: Option<u64>,
    /// Drop set-user-id, and set-group-id where group execution is allowed: the caller lacks
    /// `CAP_FSETID`. `security.capability` goes on any change of size or owner, with or without
    /// this flag.
    pub kill_suidgid: bool,
}

/// Arguments of `open`, `create` and `opendir`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OpenArgs {
    /// Flags of `open(2)`, without `O_CREAT`, `O_EXCL` and `O_NOCTTY`; `O_TRUNC` means: truncate
    /// now.
    pub flags: u32,
    /// With `O_TRUNC`: drop set-user-id and set-group-id as [`SetAttr::kill_suidgid`].
    pub kill_suidgid: bool,
}

impl OpenArgs {
    /// May a handler set [`Opened::direct_io`] without anybody noticing, if
    /// [`Negotiated::direct_writes`] says so? Such a file cannot be read or mapped through this
    /// handle. With `O_SYNC` and `O_DSYNC` the kernel asks for an fsync behind each cached write,
    /// but not behind a direct one.
    pub fn writes_directly(&self) -> bool {
        let accmode = self.flags as i32 & libc::O_ACCMODE;
        accmode == libc::O_WRONLY && self.flags as i32 & (libc::O_SYNC | libc::O_DSYNC) == 0
    }
}

/// Arguments of `read`; the buffer's length is the size asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadArgs {
    /// The inode.
    pub ino: u64,
    /// Handle that `open` returned.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// Flags of the open file.
    pub flags: u32,
    /// Lock owner, for mandatory locking.
    pub lock_owner: Option<u64>,
}

/// Arguments of `write`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WriteArgs {
    /// The inode.
    pub ino: u64,
    /// Handle; guessed by the kernel if `writeback`.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// Flags of the open file. `O_APPEND` needs no care: the kernel has chosen the offset.
    pub flags: u32,
    /// From the page cache (write-back or a shared mapping): the caller's ids are not those of the
    /// writer.
    pub writeback: bool,
    /// Lock owner, for mandatory locking.
    pub lock_owner: Option<u64>,
    /// Drop set-user-id and set-group-id as [`SetAttr::kill_suidgid`].
    pub kill_suidgid: bool,
}

/// Arguments of `rename`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RenameArgs<'a> {
    /// Directory of the old name.
    pub parent: u64,
    /// Old name.
    pub name: &'a [u8],
    /// Directory of the new name.
    pub new_parent: u64,
    /// New name.
    pub new_name: &'a [u8],
    /// Flags of `renameat2(2)`: `RENAME_NOREPLACE` 1, `RENAME_EXCHANGE` 2, `RENAME_WHITEOUT` 4.
    /// Unknown ones: `EINVAL`.
    pub flags: u32,
}

/// Arguments of `setxattr`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SetXattrArgs<'a> {
    /// The inode.
    pub ino: u64,
    /// Name, with its `user.` or other prefix.
    pub name: &'a [u8],
    /// Value.
    pub value: &'a [u8],
    /// `XATTR_CREATE` 1, `XATTR_REPLACE` 2, or 0.
    pub flags: u32,
    /// Setting this access ACL also drops set-group-id: the caller is outside the group.
    pub kill_sgid: bool,
}

/// Arguments of `release` and `releasedir`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReleaseArgs {
    /// The inode.
    pub ino: u64,
    /// The handle that ends.
    pub fh: u64,
    /// Flags it was opened with.
    pub flags: u32,
    /// Lock owner.
    pub lock_owner: u64,
}

/// Arguments of `fallocate`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FallocateArgs {
    /// The inode.
    pub ino: u64,
    /// The handle.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Flags of `fallocate(2)`. The kernel passes only `KEEP_SIZE` 1, `PUNCH_HOLE` 2,
    /// `ZERO_RANGE` 16.
    pub mode: u32,
}

/// Target of `lseek`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Whence {
    /// The next byte of data (`SEEK_DATA`); `ENXIO` if none.
    Data,
    /// The next hole (`SEEK_HOLE`); the end of the file counts as one.
    Hole,
}

/// Arguments of `copy_file_range`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CopyArgs {
    /// Source inode.
    pub ino_in: u64,
    /// Source handle.
    pub fh_in: u64,
    /// First byte of the source.
    pub offset_in: u64,
    /// Target inode.
    pub ino_out: u64,
    /// Target handle.
    pub fh_out: u64,
    /// First byte of the target.
    pub offset_out: u64,
    /// Bytes to copy. The answer must fit in 32 bits where the kernel is older than 7.45; the
    /// transport caps it.
    pub length: u64,
    /// Flags of `copy_file_range(2)`, 0 for now.
    pub flags: u64,
}

/// Arguments of `ioctl`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IoctlArgs<'a> {
    /// The inode.
    pub ino: u64,
    /// The handle.
    pub fh: u64,
    /// Request number.
    pub command: u32,
    /// The argument word.
    pub argument: u64,
    /// Bytes of the caller's memory, as the request number says.
    pub input: &'a [u8],
}

/// Result of the handshake with the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Negotiated {
    /// Protocol minor version both sides speak: 31 to 45.
    pub minor: u32,
    /// Longest WRITE payload in bytes.
    pub max_write: usize,
    /// Longest READ in bytes.
    pub max_read: usize,
    /// Flags both sides set: see [`wire::init`](crate::wire::init).
    pub flags: u64,
    /// Files that are opened for nothing but writing should be opened past the page cache
    /// ([`MountOptions::direct_writes`](crate::MountOptions::direct_writes)): see
    /// [`OpenArgs::writes_directly`].
    pub direct_writes: bool,
}

impl Negotiated {
    /// True if the kernel collects small writes in its page cache, and keeps and tells the times of
    /// their files itself
    /// ([`MountOptions::writeback_cache`](crate::MountOptions::writeback_cache)).
    #[must_use]
    pub fn collects_writes(&self) -> bool {
        self.flags & crate::wire::init::flag::WRITEBACK_CACHE != 0
    }

    /// True if programs can map a file that they opened past the page cache.
    #[must_use]
    pub fn maps_direct(&self) -> bool {
        self.flags & crate::wire::init::flag::DIRECT_IO_ALLOW_MMAP != 0
    }
}
