//! Pages that the kernel holds back of a mount are handed over before a snapshot is taken.
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

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::io;
use std::path::Path;

/// `FILEID_INO64_GEN`: a handle of an inode number, its high half first, and a generation.
const INODE_AND_GENERATION: i32 = 0x81;
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

/// Hands over every page that had changed when this was called. `files`: number and generation of
/// each file with a descriptor that may change its pages.
///
/// A process without the right to open by handle (`CAP_DAC_READ_SEARCH`) does not wait for the last
/// writes.
pub(crate) fn write_out(mountpoint: &Path, files: &[(u64, u64)]) -> io::Result<()> {
    let top = std::fs::File::open(mountpoint)?;
    rustix::fs::syncfs(&top)?;
    for &(ino, generation) in files {
        match open_by_handle(top.as_fd(), ino, generation) {
            Ok(file) => rustix::fs::fdatasync(file)?,
            // It was removed, or the kernel forgot it: then nothing of it is held back.
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn open_by_handle(mount: BorrowedFd<'_>, ino: u64, generation: u64) -> io::Result<OwnedFd> {
    let mut handle = FileHandle {
        bytes: HANDLE_BYTES,
        kind: INODE_AND_GENERATION,
        ino_high: (ino >> 32) as u32,
        ino_low: ino as u32,
        // The kernel keeps 32 bits of it.
        generation: generation as u32,
    };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
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
