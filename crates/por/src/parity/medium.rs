//! Where a parity device's bytes lie.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;

/// A file, a disk or memory: bytes with a place. Writes before a flush that succeeded survive a
/// crash; later ones may survive whole, in part, in any order, or not at all.
pub trait Medium: Send + Sync {
    /// Bytes there are.
    ///
    /// # Errors
    /// Of the system.
    fn size(&self) -> io::Result<u64>;

    /// Fills `out` with the bytes from `at` on.
    ///
    /// # Errors
    /// Of the system; fewer bytes are an error.
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes `bytes` from `at` on.
    ///
    /// # Errors
    /// Of the system.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes durable all that was written before.
    ///
    /// # Errors
    /// Of the system.
    fn flush(&self) -> io::Result<()>;

    /// Makes it so many bytes, if it has fewer. Room for them is taken at once.
    ///
    /// # Errors
    /// It cannot grow; then it is as long as before.
    fn grow(&self, bytes: u64) -> io::Result<()>;

    /// Lets go of it, so that others may use it. Later calls fail.
    fn release(&self) {}

    /// Bytes of room that it lacks to be so many bytes, more than it has, as far as the system
    /// tells.
    fn missing_for(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.size().unwrap_or(0))
    }
}

impl Medium for File {
    fn size(&self) -> io::Result<u64> {
        // A disk has no length in its metadata.
        io::Seek::seek(&mut &*self, io::SeekFrom::End(0))
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, at)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn flush(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        let size = Medium::size(self)?;
        if size >= bytes {
            return Ok(());
        }
        // A file system that is full refuses now, and not when half of a code is made. A disk
        // refuses all of this.
        // Holes before its end are filled, too: the present code would lack that room later.
        match fallocate(self, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.set_len(bytes)?,
            Err(error) => {
                // The room that it took behind its end goes back.
                self.set_len(size)?;
                return Err(error.into());
            }
        }
        self.sync_all()
    }

    fn missing_for(&self, bytes: u64) -> u64 {
        let more = bytes.saturating_sub(Medium::size(self).unwrap_or(0));
        let file = self.metadata().ok().filter(std::fs::Metadata::is_file);
        let (Some(file), Ok(system)) = (file, fstatvfs(self)) else { return more };
        let taken = file.blocks().saturating_mul(512).min(bytes);
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        match (bytes - taken).saturating_sub(free) {
            // A quota, or a limit of files, leaves less than the system tells.
            0 => more,
            missing => missing,
        }
    }
}
