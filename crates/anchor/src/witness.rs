//! A host's memory of the last record it saw, by which a register that was put back is noticed.
//!
//! A witness is a second line. It is written without a sync, so after a power failure it may be
//! some seconds behind; and after the callers of an `fsync` were answered, so after the end of the
//! daemon it may be one group of the log behind. It is never ahead of the register, because it is
//! written after. The daemon syncs it when a pool is imported and exported.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use steadfast_format::anchor::{FILE_SIZE, RecordBytes};

use crate::file::{newest, write_slot};

/// Remembers the last record seen of one pool.
pub trait Witness: Send + Sync {
    /// The remembered record; `None` if it never saw one, or its memory is unreadable (it then
    /// counts as a new host).
    fn recall(&self) -> Option<Box<RecordBytes>>;
    /// Remembers a record that the register holds. With `durable` it is synced.
    fn note(&self, record: &RecordBytes, durable: bool) -> io::Result<()>;
    /// Forgets: the pool lives without an anchor from now on.
    fn forget(&self) -> io::Result<()>;
}

/// A witness in a file.
pub struct FileWitness {
    path: PathBuf,
    open: Mutex<Option<File>>,
}

impl FileWitness {
    /// A witness at `path`, which need not exist yet.
    #[must_use]
    pub fn new(path: &Path) -> FileWitness {
        FileWitness { path: path.to_owned(), open: Mutex::new(None) }
    }

    fn make(&self) -> io::Result<File> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)?;
        if file.metadata()?.len() != FILE_SIZE as u64 {
            file.set_len(0)?;
            file.write_all_at(&[0; FILE_SIZE], 0)?;
            file.sync_all()?;
            File::open(folder)?.sync_all()?;
        }
        Ok(file)
    }
}

impl Witness for FileWitness {
    fn recall(&self) -> Option<Box<RecordBytes>> {
        let file = File::open(&self.path).ok()?;
        let mut bytes = Box::new([0; FILE_SIZE]);
        file.read_exact_at(&mut bytes[..], 0).ok()?;
        newest(&bytes).ok()
    }

    fn note(&self, record: &RecordBytes, durable: bool) -> io::Result<()> {
        let mut open = self.open.lock();
        if open.is_none() {
            *open = Some(self.make()?);
        }
        let file = open.as_ref().expect("just opened");
        write_slot(file, record)?;
        if durable { file.sync_data() } else { Ok(()) }
    }

    fn forget(&self) -> io::Result<()> {
        *self.open.lock() = None;
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A witness in memory, for tests and simulation.
#[derive(Default)]
pub struct MemoryWitness(Mutex<Option<Box<RecordBytes>>>);

impl MemoryWitness {
    /// Makes it remember something else.
    pub fn put(&self, record: Option<Box<RecordBytes>>) {
        *self.0.lock() = record;
    }
}

impl Witness for MemoryWitness {
    fn recall(&self) -> Option<Box<RecordBytes>> {
        self.0.lock().clone()
    }

    fn note(&self, record: &RecordBytes, _durable: bool) -> io::Result<()> {
        *self.0.lock() = Some(Box::new(*record));
        Ok(())
    }

    fn forget(&self) -> io::Result<()> {
        *self.0.lock() = None;
        Ok(())
    }
}
