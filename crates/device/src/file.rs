//! A regular file or a block device, by positional reads and writes.
//!
//! Large transfers, aligned to 4,096 bytes, bypass the kernel's page cache through a second
//! descriptor ([`OpenOptions::direct`]): what they carry has a cache of its own above, and a copy
//! into the page cache and out of it costs more processor time than everything else on the way
//! (decision 0033). Small and unaligned ones go through the page cache, which gathers small
//! appends, reads ahead for small reads, and is kept coherent with direct transfers by the kernel.
//! `fdatasync` is the flush of both.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use rustix::fs::{FallocateFlags, OFlags};
use steadfast_format::Txg;
use steadfast_format::medium::{
    CONFIG_OFFSET, CONFIG_SIZE, DEVICE_SIZE_MIN, LABELS, RING_OFFSET, RING_SLOTS, UBERBLOCK_SIZE,
    label_offset, slot_count, slot_offset,
};

use crate::buffer::ALIGNMENT;
use crate::medium::{Backing, Medium};
use crate::{Buffer, Character, Device, Error, Kind, Operation, Presence, Result, SegmentPlace};

/// Purpose of opening a device, and the access left to others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// Reading and writing; nobody else may have it so, nor [`Access::Read`].
    Write,
    /// Reading; nobody may have it open for writing.
    Read,
    /// Reading, even if another process has it: bytes may be half-written. For labels.
    Peek,
}

/// How to open a file or disk.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Access.
    pub access: Access,
    /// Bypass the page cache for large aligned transfers, where the file system can.
    pub direct: bool,
}

impl OpenOptions {
    /// For a pool in use.
    pub const WRITE: OpenOptions = OpenOptions { access: Access::Write, direct: true };
    /// For an inspection of a pool nobody uses.
    pub const READ: OpenOptions = OpenOptions { access: Access::Read, direct: true };
    /// For looking at labels.
    pub const PEEK: OpenOptions = OpenOptions { access: Access::Peek, direct: false };
}

/// Smaller transfers go through the page cache: metadata gains more from what the kernel reads
/// ahead and gathers than it loses by a copy.
const DIRECT_BYTES_MIN: usize = 64 << 10;

/// Buffers that one call fills (`IOV_MAX` of Linux).
const PARTS_MAX: usize = 1024;

/// A file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    identity: String,
    medium: Option<Medium>,
    kind: Kind,
    writable: bool,
    /// The descriptors, until the device is released: a thread that still holds the device when its
    /// pool is exported must keep neither the lock on the image nor the file system below it in
    /// use. Held shared through a transfer.
    files: RwLock<Option<Files>>,
    /// False once a direct transfer was refused as such: the file system wants more alignment, or
    /// cannot after all.
    direct_works: AtomicBool,
    size_bytes: AtomicU64,
    punches: AtomicBool,
    flush_failed: AtomicBool,
}

/// The descriptors of an open device.
#[derive(Debug)]
struct Files {
    buffered: File,
    /// For transfers that bypass the page cache.
    direct: Option<File>,
    /// Keep others away as long as they are open; none where [`Access::Peek`] was asked for.
    _claims: Vec<File>,
}

/// A file or a block device that nobody else may use, whatever its size: bytes for another purpose
/// than a device's.
#[derive(Debug)]
pub struct ClaimedFile {
    /// Opened for reading and writing.
    file: File,
    /// Keeps others from what a loop device shows.
    _behind: Vec<File>,
}

impl ClaimedFile {
    /// Opens what is at `path` as [`FileDevice::open`] opens a device of a pool in use, changing
    /// nothing.
    ///
    /// # Errors
    /// It is missing, no file or disk, or in use.
    pub fn open(path: &Path) -> Result<ClaimedFile> {
        let identity = path.display().to_string();
        look_at(&identity, path)?;
        let mut claims = Vec::new();
        claim(&identity, path, Access::Write, &mut claims)?;
        Ok(ClaimedFile { file: claims.remove(0), _behind: claims })
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl FileDevice {
    /// Opens what is at `path`, changing nothing. Refuses what is missing, too small, no file or
    /// disk, or in use.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<FileDevice> {
        let identity = path.display().to_string();
        let writable = options.access == Access::Write;
        let (metadata, kind) = look_at(&identity, path)?;
        let mut claims = Vec::new();
        if options.access != Access::Peek {
            claim(&identity, path, options.access, &mut claims)?;
        }
        let open = |flags: OFlags| open_at(&identity, path, writable, flags);
        let file = open(OFlags::empty())?;
        // A file system without direct transfers (an old tmpfs, say) refuses the flag: then all is
        // buffered.
        let direct = if options.direct { open(OFlags::DIRECT).ok() } else { None };
        let size_bytes = size(&file).map_err(|error| io_error(&identity, Operation::Open, 0, error))?;
        if size_bytes < DEVICE_SIZE_MIN {
            return Err(Error::TooSmall { device: identity, size_bytes, min_bytes: DEVICE_SIZE_MIN });
        }
        // A file allocated in full keeps its space; a sparse file stays sparse.
        let punches = kind == Kind::Disk || metadata.blocks().saturating_mul(512) < size_bytes;
        Ok(FileDevice {
            identity,
            medium: Medium::of(path),
            kind,
            writable,
            files: RwLock::new(Some(Files { buffered: file, direct, _claims: claims })),
            direct_works: AtomicBool::new(true),
            size_bytes: AtomicU64::new(size_bytes),
            punches: AtomicBool::new(punches),
            flush_failed: AtomicBool::new(false),
        })
    }

    /// True if large aligned transfers bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.files(|files| Ok(self.direct_of(files).is_some())).unwrap_or(false)
    }

    /// Works with the descriptors, which stay open meanwhile.
    fn files<R>(&self, work: impl FnOnce(&Files) -> Result<R>) -> Result<R> {
        match &*self.files.read().unwrap_or_else(PoisonError::into_inner) {
            Some(files) => work(files),
            None => Err(Error::Released { device: self.identity.clone() }),
        }
    }

    fn direct_of<'f>(&self, files: &'f Files) -> Option<&'f File> {
        files.direct.as_ref().filter(|_| self.direct_works.load(Ordering::Relaxed))
    }

    /// Does a transfer of `least` bytes or more directly if it is of the kind for that; `None` if
    /// it is to go through the page cache.
    fn directly(
        &self,
        files: &Files,
        at: u64,
        length: usize,
        least: usize,
        transfer: impl FnOnce(&File) -> io::Result<()>,
    ) -> Option<io::Result<()>> {
        let direct = self.direct_of(files).filter(|_| length >= least)?;
        if !at.is_multiple_of(ALIGNMENT as u64) || !length.is_multiple_of(ALIGNMENT) {
            return None;
        }
        match transfer(direct) {
            // Not a fault of the medium: the file system does not take this transfer as a direct
            // one.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.direct_works.store(false, Ordering::Relaxed);
                None
            }
            result => Some(result),
        }
    }

    fn size(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// The byte of the device at `offset` of `place`, if `length` bytes from there are in the slot
    /// and on the device.
    fn locate(&self, operation: Operation, place: SegmentPlace, offset: u32, length: usize) -> Result<u64> {
        let at = slot_offset(place.slot, place.slot_size) + u64::from(offset);
        let in_slot = u64::from(offset) + length as u64 <= u64::from(place.slot_size);
        if !in_slot || place.slot >= slot_count(self.size(), place.slot_size) {
            return Err(self.outside(operation, at, length));
        }
        Ok(at)
    }

    fn outside(&self, operation: Operation, offset: u64, length: usize) -> Error {
        let device = self.identity.clone();
        Error::Outside { device, operation, offset, length: length as u64, size_bytes: self.size() }
    }

    fn label(&self, operation: Operation, copy: usize) -> Result<u64> {
        assert!(copy < LABELS, "labels are 0 to 3");
        let size = self.size();
        // It cannot have been smaller when it was opened.
        if size < DEVICE_SIZE_MIN { Err(self.outside(operation, 0, 0)) } else { Ok(label_offset(copy, size)) }
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.write_directly(at, bytes, DIRECT_BYTES_MIN)
    }

    /// Works with the descriptors of a device that takes writes.
    fn files_to_write<R>(&self, work: impl FnOnce(&Files) -> Result<R>) -> Result<R> {
        if !self.writable {
            return Err(Error::ReadOnly { device: self.identity.clone() });
        }
        self.files(|files| {
            if self.flush_failed.load(Ordering::Acquire) {
                return Err(Error::Poisoned { device: self.identity.clone() });
            }
            work(files)
        })
    }

    fn write_directly(&self, at: u64, bytes: &[u8], least: usize) -> Result<()> {
        self.files_to_write(|files| {
            let direct = self.directly(files, at, bytes.len(), least, |file| {
                if is_aligned(bytes) {
                    return file.write_all_at(bytes, at);
                }
                let mut buffer = Buffer::with_capacity(bytes.len());
                buffer.extend(bytes);
                file.write_all_at(&buffer, at)
            });
            let written = direct.unwrap_or_else(|| files.buffered.write_all_at(bytes, at));
            written.map_err(|error| io_error(&self.identity, Operation::Write, at, error))
        })
    }

    fn write_parts(&self, at: u64, parts: &[&[u8]]) -> Result<()> {
        let length = parts.iter().map(|part| part.len()).sum();
        if !parts.iter().all(|part| is_aligned(part) && part.len().is_multiple_of(ALIGNMENT)) {
            // A copy here, or none of it goes directly.
            return self.write(at, &Buffer::gather(parts));
        }
        self.files_to_write(|files| {
            let write = |file: &File| write_all_parts(file, at, parts);
            let direct = self.directly(files, at, length, DIRECT_BYTES_MIN, write);
            let written = direct.unwrap_or_else(|| write(&files.buffered));
            written.map_err(|error| io_error(&self.identity, Operation::Write, at, error))
        })
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        self.files(|files| {
            let direct = self.directly(files, at, out.len(), DIRECT_BYTES_MIN, |file| {
                if is_aligned(out) {
                    return file.read_exact_at(out, at);
                }
                let mut buffer = Buffer::zeroed(out.len());
                file.read_exact_at(&mut buffer, at)?;
                out.copy_from_slice(&buffer);
                Ok(())
            });
            let read = match direct {
                Some(read) => read,
                None => files.buffered.read_exact_at(out, at),
            };
            read.map_err(|error| io_error(&self.identity, Operation::Read, at, error))
        })
    }

    fn read_parts(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<()> {
        let length = parts.iter().map(|part| part.len()).sum();
        // Each part must be fit for a direct transfer, as nothing is gained by copying.
        let aligned = parts.iter().all(|part| is_aligned(part) && part.len().is_multiple_of(ALIGNMENT));
        self.files(|files| {
            let direct = if aligned {
                self.directly(files, at, length, DIRECT_BYTES_MIN, |file| read_exact_parts(file, at, parts))
            } else {
                None
            };
            let read = direct.unwrap_or_else(|| read_exact_parts(&files.buffered, at, parts));
            read.map_err(|error| io_error(&self.identity, Operation::Read, at, error))
        })
    }
}

/// Refuses what is missing, or neither file nor disk. Before it is opened: opening a terminal or a
/// pipe can hang or have effects.
fn look_at(identity: &str, path: &Path) -> Result<(Metadata, Kind)> {
    let device = identity.to_owned();
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::NotFound { device }),
        Err(error) => return Err(io_error(identity, Operation::Open, 0, error)),
    };
    let file_type = metadata.file_type();
    if file_type.is_block_device() {
        return Ok((metadata, Kind::Disk));
    }
    if file_type.is_file() {
        return Ok((metadata, Kind::File));
    }
    let found = if file_type.is_dir() { "a directory" } else { "neither file nor disk" };
    Err(Error::WrongType { device, found, wanted: "a file or a block device" })
}

fn open_at(identity: &str, path: &Path, writable: bool, flags: OFlags) -> Result<File> {
    let flags = i32::try_from(flags.bits()).expect("open flags fit in an int");
    let opened = std::fs::OpenOptions::new().read(true).write(writable).custom_flags(flags).open(path);
    opened.map_err(|error| match error.raw_os_error() {
        Some(number) if number == rustix::io::Errno::BUSY.raw_os_error() => {
            Error::Busy { device: identity.to_owned(), holder: None }
        }
        _ => io_error(identity, Operation::Open, 0, error),
    })
}

/// Locks a file or disk, and what a loop device shows: its user by the other path would otherwise
/// not be noticed. Other parts of a file may be other devices, so a part locks it shared.
fn claim(identity: &str, path: &Path, access: Access, claims: &mut Vec<File>) -> Result<()> {
    let mut path = path.to_owned();
    let mut is_shared = access != Access::Write;
    loop {
        let failed = |error| io_error(identity, Operation::Open, 0, error);
        let metadata = match path.metadata() {
            // The file behind a loop device was deleted: nobody can open it by a path.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !claims.is_empty() => return Ok(()),
            metadata => metadata.map_err(failed)?,
        };
        // On a block device O_EXCL without O_CREAT refuses what is mounted or part of something
        // mounted.
        let is_exclusive = metadata.file_type().is_block_device() && !is_shared;
        let flags = if is_exclusive { OFlags::EXCL } else { OFlags::empty() };
        // For writing: NFS gives no exclusive lock otherwise.
        let file = open_at(identity, &path, access == Access::Write, flags)?;
        match if is_shared { file.try_lock_shared() } else { file.try_lock() } {
            Ok(()) => claims.push(file),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Busy { device: identity.to_owned(), holder: lock_holder(&metadata) });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let Some(backing) = Backing::of(&metadata) else { return Ok(()) };
        (path, is_shared) = (backing.path, is_shared || !backing.is_whole);
    }
}

/// Writes buffers from `at` on, one behind the other.
fn write_all_parts(file: &File, mut at: u64, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<io::IoSlice<'_>> = parts.iter().map(|part| io::IoSlice::new(part)).collect();
    let mut left = &mut slices[..];
    while left.iter().any(|slice| !slice.is_empty()) {
        // The system takes so many at once.
        let most = left.len().min(PARTS_MAX);
        match rustix::io::pwritev(file, &left[..most], at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                at += count as u64;
                io::IoSlice::advance_slices(&mut left, count);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Fills buffers with the bytes from `at` on, one buffer after the other.
fn read_exact_parts(file: &File, mut at: u64, parts: &mut [&mut [u8]]) -> io::Result<()> {
    let mut slices: Vec<io::IoSliceMut<'_>> =
        parts.iter_mut().map(|part| io::IoSliceMut::new(part)).collect();
    let mut left = &mut slices[..];
    while left.iter().any(|slice| !slice.is_empty()) {
        // The system takes so many at once.
        let most = left.len().min(PARTS_MAX);
        match rustix::io::preadv(file, &mut left[..most], at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                at += count as u64;
                io::IoSliceMut::advance_slices(&mut left, count);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Device for FileDevice {
    fn character(&self) -> Character {
        Character {
            kind: self.kind,
            size_bytes: self.size(),
            appendable: true,
            writable: self.writable,
            identity: self.identity.clone(),
            medium: self.medium,
        }
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()> {
        self.append_segment(place, 0, bytes)
    }

    fn append_segment(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        self.write(self.locate(Operation::Write, place, offset, bytes.len())?, bytes)
    }

    fn append_segment_directly(&self, place: SegmentPlace, offset: u32, bytes: &[u8]) -> Result<()> {
        let at = self.locate(Operation::Write, place, offset, bytes.len())?;
        self.write_directly(at, bytes, ALIGNMENT)
    }

    fn append_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &[&[u8]]) -> Result<()> {
        let length = parts.iter().map(|part| part.len()).sum();
        self.write_parts(self.locate(Operation::Write, place, offset, length)?, parts)
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        self.read(self.locate(Operation::Read, place, offset, out.len())?, out)
    }

    fn read_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &mut [&mut [u8]]) -> Result<()> {
        let length = parts.iter().map(|part| part.len()).sum();
        self.read_parts(self.locate(Operation::Read, place, offset, length)?, parts)
    }

    fn discard_segment(&self, place: SegmentPlace) -> Result<()> {
        let at = self.locate(Operation::Discard, place, 0, place.slot_size as usize)?;
        if !self.writable {
            return Err(Error::ReadOnly { device: self.identity.clone() });
        }
        if !self.punches.load(Ordering::Relaxed) {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.files(|files| {
            match rustix::fs::fallocate(&files.buffered, flags, at, u64::from(place.slot_size)) {
                Ok(()) => Ok(()),
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                    self.punches.store(false, Ordering::Relaxed);
                    Ok(())
                }
                Err(error) => Err(io_error(&self.identity, Operation::Discard, at, error.into())),
            }
        })
    }

    fn can_discard(&self) -> bool {
        self.punches.load(Ordering::Relaxed)
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() <= CONFIG_SIZE, "a configuration fits in its area");
        let at = self.label(Operation::Write, copy)? + CONFIG_OFFSET;
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        self.write(at, &padded)
    }

    fn read_label(&self, copy: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; CONFIG_SIZE];
        self.read(self.label(Operation::Read, copy)? + CONFIG_OFFSET, &mut bytes)?;
        Ok(bytes)
    }

    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        let ring = self.label(Operation::Write, copy)? + RING_OFFSET;
        self.write(ring + txg.0 % RING_SLOTS * UBERBLOCK_SIZE as u64, bytes)
    }

    fn read_uberblocks(&self, copy: usize) -> Result<Vec<Vec<u8>>> {
        let mut ring = vec![0; RING_SLOTS as usize * UBERBLOCK_SIZE];
        self.read(self.label(Operation::Read, copy)? + RING_OFFSET, &mut ring)?;
        Ok(ring.chunks(UBERBLOCK_SIZE).map(<[u8]>::to_vec).collect())
    }

    fn flush(&self) -> Result<()> {
        if self.flush_failed.load(Ordering::Acquire) {
            return Err(Error::Poisoned { device: self.identity.clone() });
        }
        self.files(|files| {
            files.buffered.sync_data().map_err(|error| {
                self.flush_failed.store(true, Ordering::Release);
                io_error(&self.identity, Operation::Flush, 0, error)
            })
        })
    }

    fn presence(&self) -> Presence {
        let found = self.files(|files| {
            if self.kind == Kind::File && files.buffered.metadata().is_ok_and(|found| found.nlink() == 0) {
                return Ok(Presence::Removed);
            }
            Ok(match size(&files.buffered) {
                Ok(size_bytes) if size_bytes < self.size() => Presence::Short { size_bytes },
                Err(_) => Presence::Removed,
                Ok(_) => Presence::Whole,
            })
        });
        // Of a device given back nothing is known any more: what its pool saw last stands.
        found.unwrap_or(Presence::Whole)
    }

    fn seen_bytes(&self) -> u64 {
        self.files(|files| Ok(size(&files.buffered).unwrap_or_else(|_| self.size())))
            .unwrap_or_else(|_| self.size())
    }

    fn refresh_size(&self) -> Result<u64> {
        let found = self.files(|files| {
            size(&files.buffered).map_err(|error| io_error(&self.identity, Operation::Open, 0, error))
        })?;
        self.size_bytes.store(found, Ordering::Relaxed);
        Ok(found)
    }

    fn release(&self) {
        // Waits for the transfers under way: when it returns, nothing of this handle keeps the
        // image open.
        *self.files.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(ALIGNMENT)
}

/// Size of a file or block device: where its end is.
fn size(file: &File) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?)
}

fn io_error(identity: &str, operation: Operation, offset: u64, source: io::Error) -> Error {
    Error::Io { device: identity.to_owned(), operation, offset, source }
}

/// The process that holds a lock on a file, as far as the kernel's table tells ("1: FLOCK ADVISORY
/// WRITE 812 08:01:1234 0 EOF").
fn lock_holder(metadata: &Metadata) -> Option<u32> {
    let table = std::fs::read_to_string("/proc/locks").ok()?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let wanted = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    let line = table.lines().find(|line| line.split_whitespace().nth(5) == Some(&wanted))?;
    line.split_whitespace().nth(4)?.parse().ok().filter(|&id| id != 0)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
