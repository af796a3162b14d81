//! A register in a file: two slots, a lock, a sync. FORMAT.md, "Register file".
//!
//! ## Why it is atomic
//! The record of `seq` goes into slot `seq` modulo 2, so a swap never touches the record it
//! replaces. A slot that was torn fails its checksum, and the register holds the record before: the
//! swap was not acknowledged, so this is what it may hold. A swap reads, compares and writes under
//! an exclusive lock of the file, so two processes that race are put in order.
//!
//! ## Why the path is opened anew each time
//! A register that was moved away, or put back from a copy, is another file under the same name. A
//! process that kept the old one open would swap there for ever, unseen by those that open the
//! name.
//!
//! ## What is assumed of the file system
//! That `flock` excludes every process that opens the file (NFS: between hosts since Linux 2.6.12,
//! if the server has a lock manager; not on mounts with `nolock` or `local_lock=flock`), that
//! `fdatasync` makes durable, that a read under the lock sees what was written under it (NFS:
//! taking the lock drops the client's cache). A failed sync leaves pages of which nothing is known,
//! so a swap that is sent again writes its slot again before it syncs.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use steadfast_env::Clock;
use steadfast_format::AnchorRecord;
use steadfast_format::anchor::{FILE_SIZE, RecordBytes, SLOT_SIZE, SLOTS, decode_slot, encode_slot};

use crate::register::{Register, RegisterError, SwapError};

/// How long a swap waits for others to let go of the lock, which a healthy one holds for one write.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Content of a slot of a register file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Slot {
    /// Nothing yet.
    Empty,
    /// Bytes that are no record: torn, or damaged.
    Bad(String),
    /// A record; its mac was not looked at.
    Whole(Box<RecordBytes>, Box<AnchorRecord>),
}

/// Reads the slots of a register file's bytes.
#[must_use]
pub fn slots(file: &[u8; FILE_SIZE]) -> [Slot; SLOTS] {
    let slot = |index: usize| {
        let bytes = &file[index * SLOT_SIZE..(index + 1) * SLOT_SIZE];
        match decode_slot(bytes, steadfast_crypto::hash) {
            Ok(None) => Slot::Empty,
            Err(error) => Slot::Bad(error.to_string()),
            Ok(Some(bytes)) => match AnchorRecord::decode(bytes) {
                Ok(record) => Slot::Whole(Box::new(*bytes), Box::new(record)),
                Err(error) => Slot::Bad(error.to_string()),
            },
        }
    };
    [slot(0), slot(1)]
}

/// The record that counts: the whole one with the greatest `seq`. The error says what the slots
/// look like.
pub(crate) fn newest(file: &[u8; FILE_SIZE]) -> Result<Box<RecordBytes>, String> {
    let mut best: Option<(u64, Box<RecordBytes>)> = None;
    let mut reasons = Vec::new();
    for (index, slot) in slots(file).into_iter().enumerate() {
        match slot {
            Slot::Empty => reasons.push(format!("slot {index} is empty")),
            Slot::Bad(reason) => reasons.push(format!("slot {index}: {reason}")),
            Slot::Whole(bytes, record) => {
                if best.as_ref().is_none_or(|(seq, _)| record.seq > *seq) {
                    best = Some((record.seq, bytes));
                }
            }
        }
    }
    best.map(|(_, bytes)| bytes).ok_or_else(|| reasons.join("; "))
}

/// Writes a record into its slot. Not synced.
pub(crate) fn write_slot(file: &File, record: &RecordBytes) -> io::Result<()> {
    let seq = AnchorRecord::decode(record).expect("what is written can be read").seq;
    let slot = seq % SLOTS as u64;
    file.write_all_at(&encode_slot(record, steadfast_crypto::hash), slot * SLOT_SIZE as u64)
}

/// All bytes of a register file; an error if it is shorter or longer.
fn read_all(file: &File) -> Result<io::Result<Box<[u8; FILE_SIZE]>>, String> {
    let length = match file.metadata() {
        Ok(metadata) => metadata.len(),
        Err(error) => return Ok(Err(error)),
    };
    if length != FILE_SIZE as u64 {
        return Err(format!("it has {length} bytes and not {FILE_SIZE}"));
    }
    let mut bytes = Box::new([0; FILE_SIZE]);
    Ok(file.read_exact_at(&mut bytes[..], 0).map(|()| bytes))
}

/// A register in a local file.
pub struct FileRegister {
    path: PathBuf,
    clock: Arc<dyn Clock>,
}

impl FileRegister {
    /// A register at `path`, which need not exist yet.
    #[must_use]
    pub fn new(path: &Path, clock: Arc<dyn Clock>) -> FileRegister {
        FileRegister { path: path.to_owned(), clock }
    }

    fn unreachable(&self, reason: impl ToString) -> RegisterError {
        RegisterError::Unreachable { register: self.identity(), reason: reason.to_string() }
    }

    fn damaged(&self, reason: impl ToString) -> RegisterError {
        RegisterError::Damaged { register: self.identity(), reason: reason.to_string() }
    }

    fn unfit(&self, reason: impl ToString) -> RegisterError {
        RegisterError::Unfit { register: self.identity(), reason: reason.to_string() }
    }

    fn open(&self, write: bool) -> Result<File, RegisterError> {
        // O_NONBLOCK: opening a pipe in the register's place must not wait for its other end.
        let opened = OpenOptions::new().read(true).write(write).custom_flags(O_NONBLOCK).open(&self.path);
        let file = opened.map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                RegisterError::Missing { register: self.identity() }
            }
            ErrorKind::IsADirectory => self.damaged("it is a folder"),
            _ => self.unreachable(error),
        })?;
        match file.metadata() {
            Ok(metadata) if !metadata.is_file() => Err(self.damaged("it is not a regular file")),
            Ok(_) => Ok(file),
            Err(error) => Err(self.unreachable(error)),
        }
    }

    /// Waits for the lock, which is released when the file is closed.
    fn lock(&self, file: &File, exclusive: bool) -> Result<(), RegisterError> {
        let mut waited = Duration::ZERO;
        loop {
            let locked = if exclusive { file.try_lock() } else { file.try_lock_shared() };
            match locked {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) if waited < LOCK_PATIENCE => {
                    self.clock.sleep(LOCK_PAUSE);
                    waited += LOCK_PAUSE;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(
                        self.unreachable(format!("another process has kept it locked for {LOCK_PATIENCE:?}"))
                    );
                }
                Err(TryLockError::Error(error)) => return Err(self.unreachable(error)),
            }
        }
    }

    fn contents(&self, file: &File) -> Result<Box<RecordBytes>, RegisterError> {
        let bytes = read_all(file).map_err(|reason| self.damaged(reason))?;
        let bytes = bytes.map_err(|error| self.unreachable(error))?;
        newest(&bytes).map_err(|reason| self.damaged(reason))
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}

/// `O_NONBLOCK` of Linux on all architectures we build for (fcntl.h).
const O_NONBLOCK: i32 = 0o4000;

impl Register for FileRegister {
    fn identity(&self) -> String {
        self.path.display().to_string()
    }

    fn check_vacant(&self, replace: bool) -> Result<(), RegisterError> {
        let occupied =
            |contents: String| Err(RegisterError::Occupied { register: self.identity(), contents });
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        if !folder.is_dir() {
            return Err(self.unfit(format!("the folder {} does not exist", folder.display())));
        }
        match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(self.unfit(error)),
            Ok(metadata) if metadata.is_dir() => return Err(self.unfit("it is a folder; name a file")),
            Ok(metadata) if !metadata.is_file() => return Err(self.unfit("it is not a regular file")),
            Ok(metadata) if metadata.len() == 0 || replace => return Ok(()),
            Ok(_) => {}
        }
        match self.open(false).and_then(|file| self.contents(&file)) {
            Ok(record) => {
                let record = AnchorRecord::decode(&record[..]).expect("just read");
                match record.retired {
                    true => Ok(()),
                    false => occupied(format!("the anchor of the pool {}", record.pool.0)),
                }
            }
            Err(RegisterError::Damaged { .. }) => occupied("something else".to_owned()),
            Err(error) => Err(self.unfit(error)),
        }
    }

    fn create(&self, first: &RecordBytes, replace: bool) -> Result<(), RegisterError> {
        self.check_vacant(replace)?;
        let exists = self.path.exists();
        let opened =
            OpenOptions::new().read(true).write(true).create_new(!exists).mode(0o600).open(&self.path);
        let file = opened.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => RegisterError::Occupied {
                register: self.identity(),
                contents: "something that came there just now".to_owned(),
            },
            _ => self.unfit(error),
        })?;
        self.lock(&file, true)?;
        let written = file
            .set_len(0)
            .and_then(|()| file.write_all_at(&[0; FILE_SIZE], 0))
            .and_then(|()| write_slot(&file, first))
            .and_then(|()| file.sync_all())
            .and_then(|()| self.sync_folder());
        written.map_err(|error| self.unfit(error))
    }

    fn read(&self) -> Result<Box<RecordBytes>, RegisterError> {
        let file = self.open(false)?;
        self.lock(&file, false)?;
        self.contents(&file)
    }

    fn swap(&self, expected: &RecordBytes, next: &RecordBytes) -> Result<(), SwapError> {
        let file = self.open(true)?;
        self.lock(&file, true)?;
        let now = self.contents(&file)?;
        if *now != *expected && *now != *next {
            return Err(SwapError::Lost(now));
        }
        // Also if it is there already: that it can be read does not mean that it is durable.
        let written = write_slot(&file, next).and_then(|()| file.sync_data());
        written.map_err(|error| SwapError::Failed(self.unreachable(error)))
    }
}
