//! Places where a handler puts answers of unknown length, straight into the reply's memory.

use crate::types::{Entry, Errno, FileKind};
use crate::wire::reply::{DIRENT_HEADER_SIZE, ENTRY_OUT_SIZE, encode_dirent, encode_entry};

/// Takes the names of `readdir` until the reply is full.
pub struct DirSink<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> DirSink<'a> {
    /// A sink over the whole of `out`.
    pub fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    /// Adds a name. `cookie` is what `offset` will be when the listing goes on *after* this name:
    /// never 0. Returns false, adding nothing, when there is no room: stop then.
    #[must_use]
    pub fn add(&mut self, ino: u64, cookie: u64, kind: FileKind, name: &[u8]) -> bool {
        match encode_dirent(&mut self.out[self.len..], ino, cookie, kind, name) {
            Some(size) => {
                self.len += size;
                true
            }
            None => false,
        }
    }

    /// Bytes filled so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Nothing added yet?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Takes the names and attributes of `readdirplus` until the reply is full.
pub struct DirPlusSink<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> DirPlusSink<'a> {
    /// A sink over the whole of `out`.
    pub fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    /// Adds a name with its attributes. Returns false, adding nothing, when there is no room: stop
    /// then. After true the entry's lookup count is one higher, except for `.` and `..`.
    #[must_use]
    pub fn add(&mut self, cookie: u64, name: &[u8], entry: &Entry) -> bool {
        self.put(cookie, name, entry.attr.ino, FileKind::from_mode(entry.attr.mode), Some(entry))
    }

    /// Adds a name without attributes (no lookup count): the kernel will look it up when it needs
    /// them.
    #[must_use]
    pub fn add_bare(&mut self, ino: u64, cookie: u64, kind: FileKind, name: &[u8]) -> bool {
        self.put(cookie, name, ino, kind, None)
    }

    fn put(&mut self, cookie: u64, name: &[u8], ino: u64, kind: FileKind, entry: Option<&Entry>) -> bool {
        let out = &mut self.out[self.len..];
        if out.len() < ENTRY_OUT_SIZE + DIRENT_HEADER_SIZE {
            return false;
        }
        let (head, tail) = out.split_at_mut(ENTRY_OUT_SIZE);
        let Some(size) = encode_dirent(tail, ino, cookie, kind, name) else { return false };
        match entry {
            Some(entry) => encode_entry(head, entry),
            None => head.fill(0),
        }
        self.len += ENTRY_OUT_SIZE + size;
        true
    }

    /// Bytes filled so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Nothing added yet?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Takes the value of an extended attribute, or a list of names: a question for the length only
/// counts.
pub struct ValueSink<'a> {
    /// `None`: the caller asks for the length only.
    out: Option<&'a mut [u8]>,
    len: usize,
}

impl<'a> ValueSink<'a> {
    /// A sink over the whole of `out`, or one that only counts.
    pub fn new(out: Option<&'a mut [u8]>) -> Self {
        Self { out, len: 0 }
    }

    /// Appends bytes. `ERANGE` if the caller's buffer is too small: pass it on with `?`.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let end = self.len.checked_add(bytes.len()).ok_or(Errno::ERANGE)?;
        if let Some(out) = &mut self.out {
            out.get_mut(self.len..end).ok_or(Errno::ERANGE)?.copy_from_slice(bytes);
        }
        self.len = end;
        Ok(())
    }

    /// Bytes put so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Nothing put yet?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if only the length is asked for, so that a value need not be fetched if its length is
    /// known.
    pub fn counts_only(&self) -> bool {
        self.out.is_none()
    }

    /// Adds to the length without bytes; for [`ValueSink::counts_only`] sinks.
    ///
    /// # Panics
    /// If the sink takes bytes.
    pub fn count(&mut self, len: usize) {
        assert!(self.counts_only(), "a value was counted, not put");
        self.len = self.len.saturating_add(len);
    }
}
