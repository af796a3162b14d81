//! State that the threads of one run share, and state of each thread.
//!
//! Shared and read: the end flags and the number of the interval, written a few times in a run.
//! Shared and written: nothing on the way of an operation, except where the parameters ask for it
//! (a sequential pointer, a schedule). Each thread's counters are its own; the driver reads them
//! (see [`crate::histogram`]).

use crate::histogram::Cell;
use crate::result::Counter;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, mpsc};
use std::time::{Instant, SystemTime};
use steadfast_lab_params::Operation;

/// An operation that did not do what it was asked to.
#[derive(Clone, Debug)]
pub struct IoError {
    /// When.
    pub at: SystemTime,
    /// Where, if not in this process.
    pub host: Option<String>,
    /// `read` or `write`.
    pub operation: Operation,
    /// The file.
    pub path: String,
    /// Where in it.
    pub offset: u64,
    /// How much was wanted.
    pub bytes: u64,
    /// `ENOSPC: 'No space left on device'`, or INCORRECT_SIZE.
    pub errno: String,
    /// Of corrupted data: what was expected and what was found, line by line.
    pub evidence: Vec<String>,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "op: {:<6} lun: {:<16} lba: {:>12} 0x{:08X} xfer: {:>8} errno: {} ",
            self.operation.name(),
            self.path,
            self.offset,
            self.offset,
            self.bytes,
            self.errno
        )
    }
}

/// Fewer bytes than asked for: vdbench's error 798.
pub(crate) const INCORRECT_SIZE: &str =
    "INCORRECT_SIZE: 'Vdbench determined that not enough bytes were read or written'";

/// `ENOSPC: 'No space left on device'`.
pub(crate) fn errno_text(error: &std::io::Error) -> String {
    let names: &[(i32, &str)] = &[
        (1, "EPERM"),
        (2, "ENOENT"),
        (5, "EIO"),
        (9, "EBADF"),
        (12, "ENOMEM"),
        (13, "EACCES"),
        (16, "EBUSY"),
        (17, "EEXIST"),
        (20, "ENOTDIR"),
        (21, "EISDIR"),
        (22, "EINVAL"),
        (24, "EMFILE"),
        (27, "EFBIG"),
        (28, "ENOSPC"),
        (30, "EROFS"),
        (36, "ENAMETOOLONG"),
        (39, "ENOTEMPTY"),
        (107, "ENOTCONN"),
        (110, "ETIMEDOUT"),
        (116, "ESTALE"),
        (122, "EDQUOT"),
    ];
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    match error.raw_os_error() {
        Some(code) => match names.iter().find(|(number, _)| *number == code) {
            Some((_, name)) => format!("{name}: '{text}'"),
            None => format!("{code}: '{text}'"),
        },
        None => text.to_string(),
    }
}

/// From the threads to the driver, off the fast path.
#[derive(Debug)]
pub(crate) enum Note {
    Message(String),
    Error(IoError),
}

/// Counters with vdbench's names.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::enum_variant_names)]
pub(crate) enum Count {
    FileCreates,
    DirectoryCreates,
    FileDeletes,
    DirectoryDeletes,
    WriteOpens,
    ReadOpens,
    FileBusy,
    FileMustExist,
    FileCloses,
    FileCopies,
    FileMoves,
}

/// Their names and texts, in the order in which they are reported.
pub(crate) const COUNTERS: [(&str, &str); 11] = [
    ("FILE_CREATES", "Files created:"),
    ("DIRECTORY_CREATES", "Directories created:"),
    ("FILE_DELETES", "Files deleted:"),
    ("DIRECTORY_DELETES", "Directories deleted:"),
    ("WRITE_OPENS", "Files opened for write activity:"),
    ("READ_OPENS", "Files opened for read activity:"),
    ("FILE_BUSY", "File busy:"),
    ("FILE_MUST_EXIST", "File does not exist (yet):"),
    ("FILE_CLOSES", "Close requests:"),
    ("FILE_COPIES", "Files copied:"),
    ("FILE_MOVES", "Files moved:"),
];

/// Flags and counters of one run.
pub(crate) struct Shared<'a> {
    /// The caller's.
    pub stop: &'a AtomicBool,
    /// Set by the driver at the end of the time, or by an error.
    pub end: AtomicBool,
    /// Number of the interval, from 0.
    pub interval: AtomicU32,
    /// Threads that are still at work.
    pub busy: AtomicUsize,
    pub start: Instant,
    pub errors: AtomicU64,
    /// Seconds after the start at which the last error came.
    pub last_error_s: AtomicU64,
    /// Some write found no space.
    full: AtomicBool,
    pub error_limit: u64,
    /// Response times begin when an operation was due, not when it was begun.
    pub from_arrival: bool,
    pub failure: Mutex<Option<String>>,
    pub notes: Mutex<mpsc::Sender<Note>>,
    pub label: String,
    counters: [AtomicU64; COUNTERS.len()],
}

impl<'a> Shared<'a> {
    pub(crate) fn new(
        stop: &'a AtomicBool,
        label: &str,
        error_limit: u64,
        notes: mpsc::Sender<Note>,
    ) -> Shared<'a> {
        Shared {
            stop,
            end: AtomicBool::new(false),
            interval: AtomicU32::new(0),
            busy: AtomicUsize::new(0),
            start: Instant::now(),
            errors: AtomicU64::new(0),
            last_error_s: AtomicU64::new(0),
            full: AtomicBool::new(false),
            error_limit,
            from_arrival: false,
            failure: Mutex::new(None),
            notes: Mutex::new(notes),
            label: label.to_string(),
            counters: Default::default(),
        }
    }

    #[inline]
    pub(crate) fn ended(&self) -> bool {
        self.end.load(Relaxed) || self.stop.load(Relaxed)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    pub(crate) fn count(&self, what: Count) {
        self.counters[what as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn counters(&self) -> Vec<Counter> {
        let counts = self.counters.iter().map(|c| c.load(Relaxed)).zip(COUNTERS);
        counts.filter(|(n, _)| *n > 0).map(|(count, (name, text))| Counter { name, text, count }).collect()
    }

    pub(crate) fn note(&self, note: Note) {
        // The driver lives longer than the threads; if it does not listen any more, nobody does.
        if let Ok(sender) = self.notes.lock() {
            let _ = sender.send(note);
        }
    }

    /// Ends the run with a sentence; the first one counts.
    pub(crate) fn fail(&self, sentence: String) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(sentence);
        }
        self.end.store(true, Relaxed);
    }

    /// Reports an I/O error, and ends the run when there were too many.
    pub(crate) fn io_error(&self, operation: Operation, path: &Path, offset: u64, bytes: u64, errno: String) {
        self.data_error(operation, path, offset, bytes, errno, Vec::new());
    }

    /// As [`Shared::io_error`], with what was found.
    pub(crate) fn data_error(
        &self,
        operation: Operation,
        path: &Path,
        offset: u64,
        bytes: u64,
        errno: String,
        evidence: Vec<String>,
    ) {
        let count = self.errors.fetch_add(1, Relaxed) + 1;
        self.last_error_s.store(self.now_ns() / 1_000_000_000, Relaxed);
        if count > self.error_limit.max(1) {
            return;
        }
        let path = path.display().to_string();
        // The error that ends the run may be the short write before: what matters is that there was
        // one at all.
        let out_of_space =
            self.full.fetch_or(errno.starts_with("ENOSPC"), Relaxed) || errno.starts_with("ENOSPC");
        self.note(Note::Error(IoError {
            at: SystemTime::now(),
            host: None,
            operation,
            path: path.clone(),
            offset,
            bytes,
            errno,
            evidence,
        }));
        if count >= self.error_limit.max(1) {
            let mut text = format!(
                "'data_errors={}' requested. Abort rd={} after last error.",
                self.error_limit, self.label
            );
            if out_of_space {
                text += &format!(
                    "\nNo space is left for {path}: make room there, or ask for fewer or smaller files in the parameter file."
                );
            }
            self.fail(text);
        }
    }
}

/// Names one counter of response times.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Slot {
    pub storage: usize,
    pub workload: usize,
    pub operation: Operation,
    pub requested: bool,
}

/// The counters of one thread.
#[derive(Debug)]
pub(crate) struct Cells {
    pub slots: Vec<(Slot, Cell)>,
}

impl Cells {
    pub(crate) fn new(slots: &[Slot]) -> Cells {
        Cells { slots: slots.iter().map(|slot| (*slot, Cell::default())).collect() }
    }
}

/// A buffer that begins on a page, as O_DIRECT wants it.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    pub(crate) fn new(length: usize) -> Buffer {
        const PAGE: usize = 4096;
        let memory = vec![0u8; length + PAGE];
        let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
        Buffer { memory, start, length }
    }

    #[inline]
    pub(crate) fn bytes(&mut self, length: usize) -> &mut [u8] {
        &mut self.memory[self.start..self.start + length.min(self.length)]
    }
}
