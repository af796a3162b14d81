//! Where a parity device's bytes lie.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

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

    /// Makes it so many bytes, if it has fewer.
    ///
    /// # Errors
    /// It cannot grow.
    fn grow(&self, bytes: u64) -> io::Result<()>;
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
        if Medium::size(self)? >= bytes {
            return Ok(());
        }
        // A disk refuses.
        self.set_len(bytes)?;
        self.sync_all()
    }
}
