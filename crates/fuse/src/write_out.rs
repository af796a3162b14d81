//! Pages that the kernel holds back of a mount are handed over: before a snapshot is taken, before
//! the end of a file's data is asked for, and from time to time.
//!
//! ## The problem
//! `syncfs` starts the writes of all changed pages and, on a FUSE mount, returns before the server
//! has answered them (Linux 6.18: `AS_NO_DATA_INTEGRITY`; before 6.16 a page counted as written
//! once it had been copied for its request). `fsync` does wait for those of its file.
//!
//! ## The idea
//! Changed pages without a descriptor that may change them are none: the last `close` hands them
//! over and waits (`fuse_flush`, `fuse_vma_close`). So `syncfs` starts all writes at once, and
//! `fdatasync` of each file with such a descriptor waits for its own. The files are opened by
//! handle, as their names are nobody's to keep: the kernel finds them in its cache of inodes.
//!
//! The kernel holds the file's lock from before its pages go until the FSYNC behind them is
//! answered, and a program that writes to the file waits for that lock. These FSYNCs are therefore
//! answered at once ([`OwnSyncs`]): pages are to come, and nothing is to be durable. A commit would
//! hold writers up for as long as it takes, seconds on a store far away.

use crate::aside::aside;
use crate::mount::{self, DeviceNumber, Mounted};
use crate::types::Time;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{AtFlags, StatxFlags, Timespec, Timestamps};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `FILEID_INO64_GEN`: a handle of an inode number, its high half first, and a generation.
const INODE_AND_GENERATION: i32 = 0x81;
/// This look counts for no access time.
const READ: i32 = libc::O_RDONLY | libc::O_NOATIME;
/// Bytes of such a handle.
const HANDLE_BYTES: u32 = 12;

/// `struct file_handle` with a handle of FUSE behind it.
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    ino_high: u32,
    ino_low: u32,
    generation: u32,
}

/// Threads that wait for pages of a mount, and want nothing of it durable.
#[derive(Debug, Default)]
pub(crate) struct OwnSyncs(Mutex<Vec<u32>>);

impl OwnSyncs {
    fn threads(&self) -> MutexGuard<'_, Vec<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True for the number of such a thread, as requests have it.
    pub(crate) fn has(&self, thread: u32) -> bool {
        self.threads().contains(&thread)
    }
}

/// The calling thread is one of them until this is dropped.
struct OwnSync<'s>(&'s OwnSyncs, u32);

impl OwnSync<'_> {
    fn begin(syncs: &OwnSyncs) -> OwnSync<'_> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        syncs.threads().push(thread);
        OwnSync(syncs, thread)
    }
}

impl Drop for OwnSync<'_> {
    fn drop(&mut self) {
        self.0.threads().retain(|thread| *thread != self.1);
    }
}

/// Hands over every page that had changed when this was called. `files`: number and generation of
/// each file with a descriptor that may change its pages.
///
/// A process without the right to open by handle (`CAP_DAC_READ_SEARCH`) does not wait for the last
/// writes.
pub(crate) fn write_out(mountpoint: &Path, files: &[(u64, u64)], syncs: &OwnSyncs) -> io::Result<()> {
    aside(|| {
        let _own = OwnSync::begin(syncs);
        write_out_here(mountpoint, files)
    })
}

fn write_out_here(mountpoint: &Path, files: &[(u64, u64)]) -> io::Result<()> {
    let top = std::fs::File::open(mountpoint)?;
    rustix::fs::syncfs(&top)?;
    for &(ino, generation) in files {
        match open_by_handle(top.as_fd(), ino, generation, READ) {
            Ok(file) => rustix::fs::fdatasync(file)?,
            // It was removed, or the kernel forgot it: then nothing of it is held back.
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn open_by_handle(mount: BorrowedFd<'_>, ino: u64, generation: u64, access: i32) -> io::Result<OwnedFd> {
    let mut handle = FileHandle {
        bytes: HANDLE_BYTES,
        kind: INODE_AND_GENERATION,
        ino_high: (ino >> 32) as u32,
        ino_low: ino as u32,
        // The kernel keeps 32 bits of it.
        generation: generation as u32,
    };
    let flags = access | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the handle begins as `struct file_handle` does, has as many bytes behind that as it
    // says, and lives until the call returns.
    let fd = unsafe {
        libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast::<libc::file_handle>(), flags)
    };
    match fd {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just opened it, and nobody else knows it.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// The pages that the kernel holds back of one mount. It may outlive the session: then every call
/// fails or does nothing.
///
/// Every call uses the mount, so other threads must serve it meanwhile, without a lock that the
/// caller holds.
#[derive(Clone, Debug)]
pub struct HeldPages {
    mountpoint: PathBuf,
    device: DeviceNumber,
}

impl HeldPages {
    pub(crate) fn of(mounted: &Mounted) -> HeldPages {
        HeldPages { mountpoint: mounted.mountpoint.clone(), device: mounted.device }
    }

    /// The top folder, if it is still this mount that is there.
    fn top(&self) -> io::Result<std::fs::File> {
        let top = std::fs::File::open(&self.mountpoint)?;
        // Attributes may be old, the number of the device is not.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let known = rustix::fs::statx(&top, "", flags, StatxFlags::INO)?;
        if (known.stx_dev_major, known.stx_dev_minor) != (self.device.major, self.device.minor) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(top)
    }

    /// Starts the writes of all changed pages, and hands over changed times.
    ///
    /// # Errors
    /// The mount cannot be reached.
    pub fn start(&self) -> io::Result<()> {
        aside(|| Ok(rustix::fs::syncfs(self.top()?)?))
    }

    /// Starts the writes of all changed pages of these files (number and generation), and waits
    /// until they are answered. Nothing is made durable. False without the right to open files by
    /// handle (root has it): then nothing was waited for.
    ///
    /// # Errors
    /// The mount cannot be reached.
    pub fn finish(&self, files: &[(u64, u64)]) -> io::Result<bool> {
        aside(|| self.finish_here(files))
    }

    fn finish_here(&self, files: &[(u64, u64)]) -> io::Result<bool> {
        /// `SYNC_FILE_RANGE_WAIT_BEFORE`, `_WRITE` and `_WAIT_AFTER`.
        const ALL: libc::c_uint = 1 | 2 | 4;
        let top = self.top()?;
        for &(ino, generation) in files {
            let file = match open_by_handle(top.as_fd(), ino, generation, READ) {
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) => continue,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
                opened => opened?,
            };
            // A page that cannot be written is told to the programs that have the file open.
            // SAFETY: the descriptor is open, and the call touches no memory of ours.
            unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, ALL) };
        }
        Ok(true)
    }

    /// Lets the kernel hold back so many bytes at most, strictly; without a number, `percent` of
    /// what it lets be dirty.
    ///
    /// # Errors
    /// Without root's rights, without `/sys`, and before Linux 6.2.
    pub fn set_bound(&self, bytes: Option<u64>, percent: u8) -> io::Result<()> {
        match bytes {
            Some(bytes) => mount::set_dirty_bytes(self.device, bytes),
            None => mount::set_dirty_percent(self.device, percent),
        }
    }

    /// A file as the kernel knows it, by number and generation. Opening it asks the handler for
    /// nothing, unless the kernel has forgotten the file: then it looks `.` up in it.
    /// The thread should be one of [`crate::aside`].
    ///
    /// # Errors
    /// The file is gone, the mount cannot be reached, or the right to open by handle is missing.
    pub fn known(&self, (ino, generation): (u64, u64)) -> io::Result<KnownFile> {
        Ok(KnownFile { file: open_by_handle(self.top()?.as_fd(), ino, generation, libc::O_PATH)? })
    }
}

/// A file as the kernel knows it. Where it collects writes it takes size and times of a file from
/// nobody but itself, and this is a way to tell it.
#[derive(Debug)]
pub struct KnownFile {
    /// Without the right to read or write.
    file: OwnedFd,
}

/// Size and times that the kernel keeps of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KernelsView {
    /// Bytes.
    pub size: u64,
    /// Time of the last change of content.
    pub mtime: Time,
    /// Time of the last change.
    pub ctime: Time,
}

impl KnownFile {
    /// The kernel's answer to `stat(2)`, without a request.
    ///
    /// # Errors
    /// The mount is gone.
    pub fn view(&self) -> io::Result<KernelsView> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let wanted = StatxFlags::SIZE | StatxFlags::MTIME | StatxFlags::CTIME;
        let known = rustix::fs::statx(&self.file, "", flags, wanted)?;
        let time = |time: rustix::fs::StatxTimestamp| Time { secs: time.tv_sec, nanos: time.tv_nsec };
        Ok(KernelsView { size: known.stx_size, mtime: time(known.stx_mtime), ctime: time(known.stx_ctime) })
    }

    /// Has the kernel ask for a truncation to `size`, which should be what it takes for the size.
    /// The handler gets `setattr` of this thread, under the lock of the file in the kernel, with a
    /// time of modification just if that is another size by then. The kernel takes over the size of
    /// the answer.
    ///
    /// # Errors
    /// That of the handler; the mount cannot be written; the file is being executed.
    pub fn tell_size(&self, size: u64) -> io::Result<()> {
        // Only a truncation by path leaves the times to the kernel. `/proc/self` would show the
        // descriptors of another thread.
        let path = format!("/proc/thread-self/fd/{}\0", self.file.as_raw_fd());
        let size = libc::off_t::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the path ends with a zero byte and lives until the call returns.
        match unsafe { libc::truncate(path.as_ptr().cast(), size) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Tells the time of the last change of content, and that the last change of all is now. Pages
    /// and times that the kernel holds back are handed over first: the handler may get `setattr` of
    /// this thread with the kernel's own time, and then with this one.
    ///
    /// # Errors
    /// That of the handler; the mount cannot be written.
    pub fn tell_mtime(&self, mtime: Time) -> io::Result<()> {
        let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        let mtime = Timespec { tv_sec: mtime.secs, tv_nsec: mtime.nanos.into() };
        let times = Timestamps { last_access: omit, last_modification: mtime };
        Ok(rustix::fs::utimensat(&self.file, "", &times, AtFlags::EMPTY_PATH)?)
    }
}

/// Bytes that the kernel lets all file systems together hold back, before it makes writers wait.
/// `None` if it does not tell.
#[must_use]
pub fn dirty_threshold() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/vmstat").ok()?;
    let pages = stat.lines().find_map(|line| line.strip_prefix("nr_dirty_threshold "))?;
    pages.trim().parse::<u64>().ok()?.checked_mul(rustix::param::page_size() as u64)
}
