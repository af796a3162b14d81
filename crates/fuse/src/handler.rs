//! The one trait between a file system and the kernel.
//!
//! ## Rules
//! - Methods run on several threads at once. The kernel serialises little: two calls on one
//!   directory may overlap.
//! - Names are bytes: never empty, no NUL, no `/`. [`Handler::lookup`] also gets `.` and `..` when
//!   a network file server resolves handles (see
//!   [`MountOptions::export`](crate::MountOptions::export)).
//! - READ *fills a borrowed buffer* and WRITE *reads a borrowed one*: both transports (`/dev/fuse`
//!   and the kernel's io_uring queues) can lend the very memory the kernel copies from or to.
//!   Nothing borrowed outlives the call.
//! - A method may block: other threads go on serving, and new ones are started when all are
//!   blocked.
//! - A method may use files of its own mount only if another thread can serve that without a lock
//!   this one holds.
//! - A panic becomes `EIO` for that one request and a [`LogEvent`](crate::LogEvent).
//! - Handing out an [`Entry`] (from `lookup`, `mknod`, `mkdir`, `symlink`, `link`, `create`,
//!   `tmpfile`, and each accepted `readdirplus` entry but `.` and `..`) adds one to its lookup
//!   count; [`Handler::forget`] takes away. An inode without names lives on while its count or its
//!   open handles are above zero.
//! - The kernel trusts its copies of attributes for their time-to-live and updates them from the
//!   answers. The handler must report every other change: [`Request::forget_attr`] for the request
//!   at hand (set-id bits that a write dropped), a [`Notifier`](crate::Notifier) for changes that
//!   came another way.
//! - At an unmount the kernel may drop the last `release` and `forget` calls: [`Handler::destroy`]
//!   ends them all.
//! - Returning `ENOSYS` is *remembered by the kernel for the life of the mount*: for `fsync`,
//!   `fsyncdir`, `flush` and `access` it then reports success without asking again; for xattr calls
//!   `EOPNOTSUPP`; for `open` and `opendir` it stops asking (zero-message opens: `fh` is 0 from
//!   then on).

use crate::later::Later;
use crate::sink::{DirPlusSink, DirSink, ValueSink};
use crate::types::*;
use crate::wire::request::Operation;

/// Answer of a method.
pub type Reply<T> = Result<T, Errno>;

/// A file system as the kernel calls it. Methods not written answer `ENOSYS`, except where a line
/// says otherwise.
#[allow(unused_variables, reason = "default methods ignore their arguments, which are named for the reader")]
pub trait Handler: Send + Sync + 'static {
    /// Called once, before any other method, when the handshake is done.
    fn init(&self, negotiated: &Negotiated) {}

    /// Called once, after the last other method has returned: the file system is unmounted.
    /// All handles and lookup counts are gone.
    fn destroy(&self) {}

    /// May this be served by a thread that others wait for (over io_uring)? Such a call must not
    /// wait for anything but memory and a disk access, and not use the mount; where it would have
    /// to, and [`Request::may_wait`] is false, it answers `EAGAIN`, having changed nothing, and is
    /// called again where it may. By default: no.
    fn is_quick(&self, operation: &Operation<'_>) -> bool {
        false
    }

    /// Runs `answer`, which serves a request of a thread that waits, by calling the other methods.
    /// For a handler whose layers below want to know for whom they work.
    fn attend(&self, thread: u32, answer: &mut dyn FnMut()) {
        answer();
    }

    /// Runs `serve`, which serves a request in whatever way. It says whether the request has its
    /// answer: one that would have to wait comes again where it may. For a handler that measures.
    fn measure(&self, operation: &Operation<'_>, serve: &mut dyn FnMut() -> bool) {
        serve();
    }

    /// Resolves `name` in `parent`. A name that is not there: `ENOENT`, or [`Entry::negative`] to
    /// have it cached.
    fn lookup(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Takes lookup counts back; no answer is sent. Where there are many it comes from a thread
    /// that serves nothing else, and later than requests that came after it. By default nothing
    /// happens.
    fn forget(&self, forgets: &[Forget]) {}

    /// Attributes of an inode; `fh` is the open handle if the call came through one. Serves STATX
    /// as well.
    fn getattr(&self, req: &Request, ino: u64, fh: Option<u64>) -> Reply<AttrReply> {
        Err(Errno::ENOSYS)
    }

    /// Changes attributes and returns them as they are afterwards.
    fn setattr(&self, req: &Request, ino: u64, set: &SetAttr) -> Reply<AttrReply> {
        Err(Errno::ENOSYS)
    }

    /// Target of a symbolic link.
    fn readlink(&self, req: &Request, ino: u64) -> Reply<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// Makes a symbolic link.
    fn symlink(&self, req: &Request, parent: u64, name: &[u8], target: &[u8]) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file, device node, pipe or socket; `mode` has the type bits.
    fn mknod(&self, req: &Request, parent: u64, name: &[u8], mode: u32, rdev: u32) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a directory; `mode` has no type bits.
    fn mkdir(&self, req: &Request, parent: u64, name: &[u8], mode: u32) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Removes a name that is not a directory.
    fn unlink(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Renames, replaces or exchanges.
    fn rename(&self, req: &Request, args: &RenameArgs<'_>) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Gives the inode `ino` one more name.
    fn link(&self, req: &Request, ino: u64, new_parent: u64, new_name: &[u8]) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Opens a file. By default: handle 0, nothing special.
    fn open(&self, req: &Request, ino: u64, args: &OpenArgs) -> Reply<Opened> {
        Ok(Opened::default())
    }

    /// Fills `out` from `args.offset`; returns the bytes filled, less than `out.len()` only at the
    /// end of the file. The content of `out` at the call has no meaning.
    fn read(&self, req: &Request, args: &ReadArgs, out: &mut [u8]) -> Reply<usize> {
        Err(Errno::ENOSYS)
    }

    /// Stores `data`; returns the bytes stored.
    fn write(&self, req: &Request, args: &WriteArgs, data: &[u8]) -> Reply<usize> {
        Err(Errno::ENOSYS)
    }

    /// Space and counts; an error reaches `df`.
    fn statfs(&self, req: &Request, ino: u64) -> Reply<StatFs> {
        Err(Errno::ENOSYS)
    }

    /// The last reference of a handle is gone; exactly one per `open`. The answer reaches nobody.
    /// By default: fine.
    fn release(&self, req: &Request, args: &ReleaseArgs) -> Reply<()> {
        Ok(())
    }

    /// Makes the file durable: data only (`datasync`), or all of it.
    fn fsync(&self, req: &Request, ino: u64, fh: u64, datasync: bool) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Asked before [`Handler::fsync`] and [`Handler::fsyncdir`], by transports that can: a handler
    /// that takes `later` answers with it, at once or from another thread when this has returned;
    /// one that gives it back is asked again and waits.
    fn fsync_later(&self, req: &Request, ino: u64, later: Later) -> Option<Later> {
        Some(later)
    }

    /// Sets an extended attribute.
    fn setxattr(&self, req: &Request, args: &SetXattrArgs<'_>) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Puts the value of an extended attribute into `out`; `ENODATA` if there is none.
    fn getxattr(&self, req: &Request, ino: u64, name: &[u8], out: &mut ValueSink<'_>) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Puts every name, each followed by a NUL byte, into `out`. `trusted.*` must be hidden from
    /// ordinary users here.
    fn listxattr(&self, req: &Request, ino: u64, out: &mut ValueSink<'_>) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, req: &Request, ino: u64, name: &[u8]) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// A descriptor was closed (once per `close(2)`, so several per handle); its error reaches
    /// `close`.
    fn flush(&self, req: &Request, ino: u64, fh: u64, lock_owner: u64) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Opens a directory. By default: handle 0, nothing special.
    fn opendir(&self, req: &Request, ino: u64, args: &OpenArgs) -> Reply<Opened> {
        Ok(Opened::default())
    }

    /// Lists names that follow the cookie `offset` (0: from the start) until `out` says it is full.
    fn readdir(&self, req: &Request, ino: u64, fh: u64, offset: u64, out: &mut DirSink<'_>) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// As `readdir`, with attributes. `ENOSYS` is *not* remembered; the kernel does not fall back
    /// to `readdir`.
    fn readdirplus(
        &self,
        req: &Request,
        ino: u64,
        fh: u64,
        offset: u64,
        out: &mut DirPlusSink<'_>,
    ) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// The last reference of a directory handle is gone. By default: fine.
    fn releasedir(&self, req: &Request, args: &ReleaseArgs) -> Reply<()> {
        Ok(())
    }

    /// Makes a directory durable.
    fn fsyncdir(&self, req: &Request, ino: u64, fh: u64, datasync: bool) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// `access(2)`. Not called with
    /// [`MountOptions::default_permissions`](crate::MountOptions::default_permissions).
    fn access(&self, req: &Request, ino: u64, mask: u32) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes and opens a file in one step. `ENOSYS` makes the kernel use `mknod` and `open`.
    fn create(
        &self,
        req: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        args: &OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }

    /// Makes and opens a file that has no name yet (`O_TMPFILE`). `ENOSYS` becomes `EOPNOTSUPP`.
    fn tmpfile(&self, req: &Request, parent: u64, mode: u32, args: &OpenArgs) -> Reply<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }

    /// `ioctl(2)` whose request number describes its argument. Returns the result and the bytes
    /// filled in `out`. By default `ENOTTY`.
    fn ioctl(&self, req: &Request, args: &IoctlArgs<'_>, out: &mut [u8]) -> Reply<(i32, usize)> {
        Err(Errno::ENOTTY)
    }

    /// Allocates, punches or zeroes a range.
    fn fallocate(&self, req: &Request, args: &FallocateArgs) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Finds data or a hole at or after `offset`. `ENOSYS` makes the kernel treat all of a file as
    /// data.
    fn lseek(&self, req: &Request, ino: u64, fh: u64, offset: u64, whence: Whence) -> Reply<u64> {
        Err(Errno::ENOSYS)
    }

    /// Copies a range between two files; returns the bytes copied. `ENOSYS` makes the kernel copy.
    fn copy_file_range(&self, req: &Request, args: &CopyArgs) -> Reply<u64> {
        Err(Errno::ENOSYS)
    }

    /// Makes everything durable (`syncfs(2)`). Linux up to 6.18 sends it to virtio-fs servers and
    /// to mounts on a block device only, so it does not come here ([`crate::SyncCalls`]).
    fn syncfs(&self, req: &Request, ino: u64) -> Reply<()> {
        Err(Errno::ENOSYS)
    }
}
