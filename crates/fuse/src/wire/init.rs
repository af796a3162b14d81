//! The handshake: which features both sides have. [`negotiate`] is a pure function of the kernel's
//! offer and our wishes.
//!
//! | Flag | We | Why |
//! |---|---|---|
//! | ASYNC_READ | take | several read-ahead requests of one file at once |
//! | POSIX_LOCKS, FLOCK_LOCKS | leave | one mount sees all users, so the kernel's own locks are complete, and interruptible |
//! | ATOMIC_O_TRUNC | leave | one request saved, but the kernel truncates before it looks whether the file is being executed: a running program is cut to nothing, and the open succeeds when it has died of that (pjdfstest `open::etxtbsy`) |
//! | EXPORT_SUPPORT | option | file handles (NFS, `open_by_handle_at`) survive eviction; the handler must resolve `.` and `..` |
//! | BIG_WRITES | take | writes above 4 KiB |
//! | DONT_MASK | with POSIX_ACL | a default ACL replaces the umask, so only the handler can apply it |
//! | SPLICE_* | leave | pages that must be hashed and sealed gain nothing, and spliced buffers cannot be aligned |
//! | AUTO_INVAL_DATA | leave | drops cached pages whenever mtime moved; nothing changes behind this mount's back |
//! | EXPLICIT_INVAL_DATA | take | cached pages go only when `inval_inode` says so |
//! | DO_READDIRPLUS, READDIRPLUS_AUTO | option | `ls -l` without a lookup for each name, and plain `ls` without attributes |
//! | ASYNC_DIO | take | one large direct read or write becomes parallel requests |
//! | WRITEBACK_CACHE | option | small buffered writes 3-4 times faster, large sequential ones half as fast |
//! | NO_OPEN_SUPPORT, NO_OPENDIR_SUPPORT | n/a | the kernel tells; the handler uses it by answering `ENOSYS` to open |
//! | PARALLEL_DIROPS | option | lookups and listings of one directory run in parallel |
//! | HANDLE_KILLPRIV | leave | superseded by V2 |
//! | HANDLE_KILLPRIV_V2 | take | no xattr round trip before each write; the requests say when to drop set-id bits |
//! | POSIX_ACL | option | the kernel checks ACLs that the handler stores as xattrs |
//! | ABORT_ERROR | take | an aborted connection is told apart from an unmounted one |
//! | MAX_PAGES | take | requests of 1 MiB instead of 128 KiB |
//! | CACHE_SYMLINKS | take | targets never change |
//! | MAP_ALIGNMENT, HAS_INODE_DAX | leave | DAX is for virtio-fs |
//! | SUBMOUNTS | leave | each dataset is a mount of its own |
//! | SETXATTR_EXT | take | tells when setting an ACL must drop set-group-id |
//! | INIT_EXT | take | opens flags 32 to 63 |
//! | SECURITY_CTX | leave | labels come as ordinary xattrs |
//! | CREATE_SUPP_GROUP | take | the handler learns that the caller belongs to a set-group-id directory's group |
//! | HAS_EXPIRE_ONLY | take | a name can expire without unmounting what is mounted below it |
//! | DIRECT_IO_ALLOW_MMAP | take | a file opened O_DIRECT can still be mapped |
//! | PASSTHROUGH | leave | our data are always transformed |
//! | NO_EXPORT_SUPPORT | without export | handles are refused at once rather than stale later |
//! | HAS_RESEND | leave | nobody takes over a dead server's connection |
//! | ALLOW_IDMAP | leave | needs a handler that never relies on the caller's ids |
//! | OVER_IO_URING | option | a queue for each processor instead of system calls on `/dev/fuse`: docs/decisions/0034 |
//! | REQUEST_TIMEOUT | for `sync(2)` only | a slow disk is no reason to abort a mount, but a stopped daemon must not hold up the host: [`crate::SyncCalls`] |

use super::{DecodeError, Fields, MAJOR, MINOR, MINOR_MIN, opcode};
use crate::options::{MountOptions, Readdirplus};

/// The flags' values; bits 32 and up travel in a second word.
#[allow(missing_docs, reason = "the protocol's own names; the table above says what they do")]
pub mod flag {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const ABORT_ERROR: u64 = 1 << 21;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    pub const OVER_IO_URING: u64 = 1 << 41;
    pub const REQUEST_TIMEOUT: u64 = 1 << 42;
}

/// The page size by which the protocol counts `max_pages`: the kernel's own.
fn page_size() -> usize {
    rustix::param::page_size()
}

/// The kernel's offer.
///
/// | off | len | field                                   |
/// |-----|-----|-----------------------------------------|
/// |   0 |   4 | major                                   |
/// |   4 |   4 | minor                                   |
/// |   8 |   4 | max_readahead                           |
/// |  12 |   4 | flags                                   |
/// |  16 |   4 | flags2 (since 7.36, if INIT_EXT is set) |
/// |  20 |  44 | unused                                  |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InitIn {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Bytes of read-ahead the kernel would do.
    pub max_readahead: u32,
    /// Both flag words.
    pub flags: u64,
}

impl InitIn {
    /// Shortest form, of kernels before 7.36.
    pub(crate) const SIZE_MIN: usize = 16;

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() < Self::SIZE_MIN {
            let (need, have) = (Self::SIZE_MIN, bytes.len());
            return Err(DecodeError::BodyShort { opcode: opcode::INIT, need, have });
        }
        let f = Fields(bytes);
        let low = u64::from(f.u32(12));
        let high = if low & flag::INIT_EXT != 0 && bytes.len() >= 20 { u64::from(f.u32(16)) } else { 0 };
        Ok(Self { major: f.u32(0), minor: f.u32(4), max_readahead: f.u32(8), flags: low | high << 32 })
    }
}

/// Our answer.
///
/// | off | len | field                |
/// |-----|-----|----------------------|
/// |   0 |   4 | major                |
/// |   4 |   4 | minor                |
/// |   8 |   4 | max_readahead        |
/// |  12 |   4 | flags                |
/// |  16 |   2 | max_background       |
/// |  18 |   2 | congestion_threshold |
/// |  20 |   4 | max_write            |
/// |  24 |   4 | time_gran            |
/// |  28 |   2 | max_pages            |
/// |  30 |   2 | map_alignment, zero  |
/// |  32 |   4 | flags2               |
/// |  36 |   4 | stack depth, zero    |
/// |  40 |   2 | request_timeout      |
/// |  42 |  22 | unused, zero         |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InitOut {
    /// The smaller minor version of both sides.
    pub minor: u32,
    /// Bytes of read-ahead.
    pub max_readahead: u32,
    /// Both flag words.
    pub flags: u64,
    /// How many asynchronous requests (read-ahead, write-back, direct) may wait.
    pub max_background: u16,
    /// How many make the kernel consider us congested.
    pub congestion_threshold: u16,
    /// Bytes of the longest WRITE.
    pub max_write: u32,
    /// Pages of the longest request.
    pub max_pages: u16,
    /// Seconds after which the kernel cuts the connection if a request has no answer; 0: never.
    pub request_timeout: u16,
}

impl InitOut {
    /// Size of the structure.
    pub const ENCODED_SIZE: usize = 64;

    /// The bytes of the answer.
    pub fn encode(&self) -> [u8; Self::ENCODED_SIZE] {
        let mut out = [0; Self::ENCODED_SIZE];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAJOR.to_ne_bytes());
        put(4, &self.minor.to_ne_bytes());
        put(8, &self.max_readahead.to_ne_bytes());
        put(12, &(self.flags as u32).to_ne_bytes());
        put(16, &self.max_background.to_ne_bytes());
        put(18, &self.congestion_threshold.to_ne_bytes());
        put(20, &self.max_write.to_ne_bytes());
        put(24, &1u32.to_ne_bytes()); // time_gran: our times are true to the nanosecond
        put(28, &self.max_pages.to_ne_bytes());
        put(32, &((self.flags >> 32) as u32).to_ne_bytes());
        put(40, &self.request_timeout.to_ne_bytes());
        out
    }
}

/// Why no common language was found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mismatch {
    /// The kernel speaks a later major version: answer with ours, and it will ask again.
    MajorNewer,
    /// The kernel is older than [`MINOR_MIN`].
    TooOld,
}

/// Smallest `max_write`; the kernel refuses to go lower.
pub(crate) const MAX_WRITE_MIN: usize = 4096;
/// Largest `max_write` that `max_pages` (16 bits) can express with pages of 4 KiB, rounded to a
/// power of two.
pub(crate) const MAX_WRITE_MAX: usize = 128 << 20;

/// Chooses what both sides will use.
pub fn negotiate(offer: &InitIn, options: &MountOptions) -> Result<InitOut, Mismatch> {
    if offer.major > MAJOR {
        return Err(Mismatch::MajorNewer);
    }
    if offer.major < MAJOR || offer.minor < MINOR_MIN {
        return Err(Mismatch::TooOld);
    }
    let mut want = flag::ASYNC_READ
        | flag::BIG_WRITES
        | flag::EXPLICIT_INVAL_DATA
        | flag::ASYNC_DIO
        | flag::HANDLE_KILLPRIV_V2
        | flag::ABORT_ERROR
        | flag::MAX_PAGES
        | flag::CACHE_SYMLINKS
        | flag::SETXATTR_EXT
        | flag::INIT_EXT
        | flag::CREATE_SUPP_GROUP
        | flag::HAS_EXPIRE_ONLY
        | flag::DIRECT_IO_ALLOW_MMAP;
    want |= if options.export { flag::EXPORT_SUPPORT } else { flag::NO_EXPORT_SUPPORT };
    want |= match options.readdirplus {
        Readdirplus::Off => 0,
        Readdirplus::Auto => flag::DO_READDIRPLUS | flag::READDIRPLUS_AUTO,
        Readdirplus::Always => flag::DO_READDIRPLUS,
    };
    if options.parallel_dirops {
        want |= flag::PARALLEL_DIROPS;
    }
    if options.writeback_cache {
        want |= flag::WRITEBACK_CACHE;
    }
    if options.io_uring {
        want |= flag::OVER_IO_URING;
    }
    if options.posix_acl {
        want |= flag::POSIX_ACL | flag::DONT_MASK;
    }
    let flags = want & offer.flags;

    // Without MAX_PAGES a request has at most 32 pages.
    let page = page_size();
    let limit = if flags & flag::MAX_PAGES != 0 { usize::from(u16::MAX) * page } else { 32 * page };
    let max_write =
        options.max_write.clamp(MAX_WRITE_MIN, MAX_WRITE_MAX.min(limit)) / page.min(4096) * page.min(4096);
    let max_readahead = options.read_ahead_kb.map_or(offer.max_readahead, |kb| kb.saturating_mul(1024));
    Ok(InitOut {
        minor: offer.minor.min(MINOR),
        max_readahead: max_readahead.min(offer.max_readahead),
        flags,
        max_background: options.max_background,
        congestion_threshold: options.max_background / 4 * 3,
        max_write: max_write as u32,
        max_pages: max_write.div_ceil(page).min(usize::from(u16::MAX)) as u16,
        request_timeout: 0,
    })
}

impl InitOut {
    /// The same, with an end of the kernel's patience where it offers one (Linux 6.15).
    pub(crate) fn with_timeout(mut self, offer: &InitIn, seconds: u16) -> Self {
        if seconds > 0 && offer.flags & flag::REQUEST_TIMEOUT != 0 {
            self.flags |= flag::REQUEST_TIMEOUT;
            self.request_timeout = seconds;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(minor: u32, flags: u64) -> InitIn {
        InitIn { major: 7, minor, max_readahead: 128 << 10, flags }
    }

    #[test]
    fn only_offered_flags_are_taken() {
        let out =
            negotiate(&offer(31, flag::ASYNC_READ | flag::POSIX_LOCKS), &MountOptions::new("x")).unwrap();
        assert_eq!(out.flags, flag::ASYNC_READ);
        assert_eq!(out.minor, 31);
        assert_eq!(out.max_write, 32 * 4096, "without MAX_PAGES a request has 32 pages");
    }

    #[test]
    fn everything_offered_still_leaves_locks_and_splice_to_the_kernel() {
        let out = negotiate(&offer(99, u64::MAX), &MountOptions::new("x")).unwrap();
        assert_eq!(out.minor, MINOR);
        assert_eq!(out.max_write, 1 << 20);
        assert_eq!(out.max_pages, 256);
        let refused =
            flag::POSIX_LOCKS | flag::FLOCK_LOCKS | flag::AUTO_INVAL_DATA | flag::OVER_IO_URING | 7 << 7;
        assert_eq!(out.flags & refused, 0);
        assert_eq!(
            out.flags & (flag::WRITEBACK_CACHE | flag::POSIX_ACL | flag::DONT_MASK),
            0,
            "options, off"
        );
    }

    #[test]
    fn options_switch_their_flags() {
        let mut options = MountOptions::new("x");
        options.writeback_cache = true;
        options.posix_acl = true;
        options.export = false;
        options.readdirplus = Readdirplus::Off;
        options.parallel_dirops = false;
        let flags = negotiate(&offer(45, u64::MAX), &options).unwrap().flags;
        let on = flag::WRITEBACK_CACHE | flag::POSIX_ACL | flag::DONT_MASK | flag::NO_EXPORT_SUPPORT;
        assert_eq!(flags & on, on);
        assert_eq!(flags & (flag::EXPORT_SUPPORT | flag::DO_READDIRPLUS | flag::READDIRPLUS_AUTO), 0);
        assert_eq!(flags & flag::PARALLEL_DIROPS, 0);
    }

    #[test]
    fn a_timeout_is_set_where_it_is_wanted_and_offered() {
        let options = MountOptions::new("x");
        let answer = |flags: u64, seconds: u16| {
            let offer = offer(45, flags);
            negotiate(&offer, &options).unwrap().with_timeout(&offer, seconds)
        };
        let bytes = answer(u64::MAX, 135).encode();
        assert_eq!(u16::from_ne_bytes([bytes[40], bytes[41]]), 135);
        assert_ne!(answer(u64::MAX, 135).flags & flag::REQUEST_TIMEOUT, 0);
        for other in [answer(u64::MAX, 0), answer(!flag::REQUEST_TIMEOUT, 135)] {
            assert_eq!((other.flags & flag::REQUEST_TIMEOUT, other.request_timeout), (0, 0));
        }
    }

    #[test]
    fn old_and_foreign_kernels_are_told_apart() {
        assert_eq!(negotiate(&offer(30, 0), &MountOptions::new("x")), Err(Mismatch::TooOld));
        let future = InitIn { major: 8, minor: 0, max_readahead: 0, flags: 0 };
        assert_eq!(negotiate(&future, &MountOptions::new("x")), Err(Mismatch::MajorNewer));
    }

    #[test]
    fn any_write_size_is_brought_into_range() {
        for size in [0, 1, 4095, 5000, 1 << 20, usize::MAX] {
            let mut options = MountOptions::new("x");
            options.max_write = size;
            let out = negotiate(&offer(45, u64::MAX), &options).unwrap();
            assert!(out.max_write as usize >= MAX_WRITE_MIN && out.max_write as usize <= MAX_WRITE_MAX);
            assert_eq!(out.max_write % 4096, 0);
            assert!(usize::from(out.max_pages) * 4096 >= out.max_write as usize);
        }
    }
}
