//! Content: read(2), write(2) (ZFS: `zfs_read`, `zfs_write`), fallocate, lseek, copy_file_range.

use std::sync::Arc;
use steadfast_dataset::{BlockPart, Error, Inode, InodeRecord, ShareRange, Sharing, Unshared};
use steadfast_txg::{AdmitKind, Claim, Patience, Refusal};

use crate::attributes::SetIds;
use crate::filesystem::{Atime, DYING_PATIENCE, is_directory, is_fixed};
use crate::{Errno, FileSystem, Result, S_IFMT, S_IFREG, WriteClaim, WriteRoom, WriteTerms};

/// Greatest size of a file.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;
/// Bytes that `copy_file_range` carries at once.
const COPY_BYTES: usize = 1 << 20;
/// From so many bytes on that could be shared if they were stored, a copy waits for the commit that
/// stores them: copying them costs more than one.
const WAIT_BYTES: u64 = 4 << 20;
const DAY_NS: i128 = 24 * 3600 * 1_000_000_000;

/// Origin of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Origin {
    /// A program wrote just now.
    Caller,
    /// A client wrote just now that reads past the kernel.
    Network,
    /// A cache above us collected it.
    Cache {
        /// Its bytes were counted when they were accepted.
        is_promised: bool,
    },
}

/// Modes of `fallocate` that are offered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fallocate {
    /// Nothing is placed in advance (delayed allocation, copy-on-write); the size grows unless it
    /// is to be kept.
    Allocate {
        /// `FALLOC_FL_KEEP_SIZE`.
        keep_size: bool,
    },
    /// The range reads as zeros and occupies nothing.
    PunchHole,
    /// The range reads as zeros.
    ZeroRange {
        /// `FALLOC_FL_KEEP_SIZE`.
        keep_size: bool,
    },
}

impl Fallocate {
    /// From the bits of `fallocate(2)`; what is not offered is refused.
    pub fn from_bits(bits: u32) -> Result<Fallocate> {
        match bits {
            0 | 1 => Ok(Fallocate::Allocate { keep_size: bits == 1 }),
            3 => Ok(Fallocate::PunchHole),
            0x10 | 0x11 => Ok(Fallocate::ZeroRange { keep_size: bits == 0x11 }),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

impl FileSystem {
    /// Reads at `offset` into `out`; the number of bytes up to the end of the file.
    pub fn read(&self, ino: u64, offset: u64, out: &mut [u8]) -> Result<usize> {
        let (inode, record) = self.to_read(ino, offset)?;
        let count = self.dataset.read(&inode, offset, out)?;
        self.accessed(&inode, &record);
        Ok(count)
    }

    /// As [`FileSystem::read`]; the access time stays (`O_NOATIME`).
    pub fn read_unnoticed(&self, ino: u64, offset: u64, out: &mut [u8]) -> Result<usize> {
        let (inode, _) = self.to_read(ino, offset)?;
        Ok(self.dataset.read(&inode, offset, out)?)
    }

    /// A file is opened for reading, and a cache that this file system does not see may answer the
    /// reads. True if the access time moved: [`Atime::Relative`] counts the open as the first read.
    pub fn opened_for_reading(&self, ino: u64) -> Result<bool> {
        if self.options.read().atime != Atime::Relative {
            return Ok(false);
        }
        let inode = self.inode(ino)?;
        Ok(self.accessed(&inode, &inode.record()))
    }

    /// True if each read counts ([`Atime::Strict`]), so no cache may answer it.
    #[must_use]
    pub fn sees_each_read(&self) -> bool {
        self.options.read().atime == Atime::Strict
    }

    /// True if each listing of a directory counts.
    #[must_use]
    pub fn sees_each_listing(&self) -> bool {
        self.sees_each_read() && self.has_dir_atime()
    }

    /// The same bytes as they lie in the cache, at most `length`, if they do so without gaps:
    /// [`steadfast_dataset::Dataset::read_shared`]. `None`: [`FileSystem::read`] has them.
    pub fn read_shared(&self, ino: u64, offset: u64, length: usize) -> Result<Option<Vec<BlockPart>>> {
        let (inode, record) = self.to_read(ino, offset)?;
        let parts = self.dataset.read_shared(&inode, offset, length)?;
        if parts.is_some() {
            self.accessed(&inode, &record);
        }
        Ok(parts)
    }

    fn to_read(&self, ino: u64, offset: u64) -> Result<(Arc<Inode>, InodeRecord)> {
        let inode = self.inode(ino)?;
        let record = inode.record();
        if is_directory(&record) {
            return Err(Errno::EISDIR);
        }
        if record.mode & S_IFMT != S_IFREG {
            return Err(Errno::EINVAL);
        }
        if offset == 0 && self.dataset.brings_content() {
            self.listings.begins(&self.dataset, inode.id);
        }
        Ok((inode, record))
    }

    /// The inode is read. True if its access time moved.
    pub(crate) fn accessed(&self, inode: &Arc<Inode>, record: &InodeRecord) -> bool {
        if is_directory(record) && !self.has_dir_atime() {
            return false;
        }
        let atime = self.options.read().atime;
        if atime == Atime::Off {
            return false;
        }
        let now = self.now();
        let is_old = record.atime.as_ns() <= record.mtime.as_ns()
            || record.atime.as_ns() <= record.ctime.as_ns()
            || now.as_ns() - record.atime.as_ns() >= DAY_NS;
        let moves = is_old || atime == Atime::Strict;
        if moves {
            self.dataset.touch(inode, |record| record.atime = now);
        }
        moves
    }

    /// Writes `data` at `offset`, all or nothing. True if set-id bits or capabilities were dropped.
    pub fn write<'a>(
        &self,
        ino: u64,
        offset: u64,
        data: &[u8],
        set_ids: impl Into<SetIds<'a>>,
    ) -> Result<bool> {
        self.write_at(ino, offset, data, set_ids.into(), Origin::Caller)
    }

    /// The same for a client that reads past the kernel: the kernel has no page of it, so
    /// what is stored stays in the block cache for the next reader.
    pub fn write_for_network<'a>(
        &self,
        ino: u64,
        offset: u64,
        data: &[u8],
        set_ids: impl Into<SetIds<'a>>,
    ) -> Result<bool> {
        self.write_at(ino, offset, data, set_ids.into(), Origin::Network)
    }

    /// Would writes be admitted that take as much together, the last one to this file? Waits as a
    /// write would, and changes nothing.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`, and those of any write.
    pub fn may_write(&self, ino: u64, claim: WriteClaim) -> Result<()> {
        let inode = self.inode(ino)?;
        self.dataset.may_change(&inode)?;
        Ok(self.dataset.may_write(&inode, claim)?)
    }

    /// How a file's content is counted that comes later, and its size.
    ///
    /// # Errors
    /// As for any use of an inode.
    pub fn write_terms(&self, ino: u64) -> Result<(WriteTerms, u64)> {
        let inode = self.inode(ino)?;
        Ok(self.dataset.write_terms(&inode))
    }

    /// Room for writes as of now.
    #[must_use]
    pub fn write_room(&self) -> WriteRoom {
        self.dataset.write_room()
    }

    /// A claim to the pool's space, for a cache above this file system.
    #[must_use]
    pub fn join_claims(&self) -> Claim {
        self.dataset.join_claims()
    }

    /// True if no commit comes for now: the pool is suspended, or its store is away.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.dataset.is_halted()
    }

    /// The same for content that a cache above us collected, which keeps the times of the writes
    /// itself and tells them: ours would be those of the cache's being emptied, another number than
    /// everybody was shown. `is_promised`: [`FileSystem::may_write`] counted these bytes, so they
    /// are taken even if others used up the room since.
    pub fn write_collected<'a>(
        &self,
        ino: u64,
        offset: u64,
        data: &[u8],
        set_ids: impl Into<SetIds<'a>>,
        is_promised: bool,
    ) -> Result<bool> {
        self.write_at(ino, offset, data, set_ids.into(), Origin::Cache { is_promised })
    }

    fn write_at(
        &self,
        ino: u64,
        offset: u64,
        data: &[u8],
        set_ids: SetIds<'_>,
        origin: Origin,
    ) -> Result<bool> {
        let inode = self.inode(ino)?;
        let before = inode.record();
        if before.mode & S_IFMT != S_IFREG {
            return Err(Errno::EINVAL);
        }
        if data.is_empty() {
            return Ok(false);
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > SIZE_MAX) {
            return Err(Errno::EFBIG);
        }
        // As at the end of a block device.
        if is_fixed(ino, &before) && offset + data.len() as u64 > before.size {
            return Err(Errno::ENOSPC);
        }
        let has_capability = before.flags & InodeRecord::FLAG_CAPABILITY != 0;
        if has_capability {
            // Before the content, lest new bytes ever carry old powers.
            self.drop_capability(&inode)?;
        }
        inode.keep_written(origin == Origin::Network);
        let now = self.now();
        let bytes = data.len() as u64;
        let begin = || match (self.dataset.begin_write(&inode, offset, bytes), origin) {
            (
                Err(Error::Refused(Refusal::NoSpace | Refusal::OverQuota)),
                Origin::Cache { is_promised: true },
            ) => self.dataset.begin_write_as(AdmitKind::Accepted, &inode, offset, bytes),
            (begun, _) => begun,
        };
        self.dataset.operate(begin, |op| {
            self.dataset.may_change(&inode)?;
            self.dataset.write(op, &inode, offset, data, false, |record| {
                if matches!(origin, Origin::Caller | Origin::Network) {
                    (record.mtime, record.ctime) = (now, now);
                }
                set_ids.apply(record);
            })
        })?;
        if !matches!(origin, Origin::Cache { .. }) {
            // A program that is to find it durable asks for that by `fsync`, which can be given up.
            self.settle(ino)?;
        }
        Ok(has_capability || inode.record().mode != before.mode)
    }

    /// `fallocate(2)`. True if set-id bits or capabilities were dropped.
    pub fn fallocate<'a>(
        &self,
        ino: u64,
        mode: Fallocate,
        offset: u64,
        length: u64,
        set_ids: impl Into<SetIds<'a>>,
    ) -> Result<bool> {
        let set_ids = set_ids.into();
        let inode = self.inode(ino)?;
        let before = inode.record();
        if before.mode & S_IFMT != S_IFREG {
            return Err(Errno::EINVAL);
        }
        if length == 0 {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(length).filter(|end| *end <= SIZE_MAX).ok_or(Errno::EFBIG)?;
        if is_fixed(ino, &before) && end > before.size {
            return Err(Errno::ENOSPC);
        }
        self.dataset.may_change(&inode)?;
        let has_capability = before.flags & InodeRecord::FLAG_CAPABILITY != 0;
        if has_capability {
            self.drop_capability(&inode)?;
        }
        let now = self.now();
        let stamp = |record: &mut InodeRecord| {
            (record.mtime, record.ctime) = (now, now);
            set_ids.apply(record);
        };
        let grows = |keep_size: bool| !keep_size && end > before.size;
        match mode {
            Fallocate::Allocate { keep_size } => {
                // A promise of space would be a lie in a copy-on-write pool, but what cannot fit
                // now is refused.
                let usage = std::sync::Arc::clone(&self.options.read().usage);
                // The range between the old end and the new bytes stays a hole.
                let more = end.saturating_sub(before.size.max(offset));
                if self.dataset.quota_room().is_some_and(|room| room < more) {
                    return Err(Errno::EDQUOT);
                }
                if usage().available_bytes < more {
                    return Err(Errno::ENOSPC);
                }
                let op = self.dataset.begin(AdmitKind::Write)?;
                if grows(keep_size) {
                    self.dataset.grow(&op, &inode, end, stamp);
                } else if keep_size {
                    // Nothing of the file changes but bits of its mode that a write takes.
                    self.dataset.change(&op, &inode, |record: &mut InodeRecord| {
                        let mode = record.mode;
                        set_ids.apply(record);
                        if record.mode != mode {
                            record.ctime = now;
                        }
                    });
                } else {
                    self.dataset.change(&op, &inode, stamp);
                }
            }
            Fallocate::PunchHole | Fallocate::ZeroRange { .. } => {
                let op = self.dataset.begin(AdmitKind::Remove)?;
                self.dataset.cut(&op, &inode, offset..end);
                match mode {
                    Fallocate::ZeroRange { keep_size } if grows(keep_size) => {
                        self.dataset.grow(&op, &inode, end, stamp);
                    }
                    _ => self.dataset.change(&op, &inode, stamp),
                }
            }
        }
        self.settle(ino)?;
        Ok(has_capability || inode.record().mode != before.mode)
    }

    /// `SEEK_DATA` (or, if not `data`, `SEEK_HOLE`).
    pub fn seek(&self, ino: u64, offset: u64, data: bool) -> Result<u64> {
        let inode = self.inode(ino)?;
        self.dataset.seek(&inode, offset, data)?.ok_or(Errno::ENXIO)
    }

    /// Copies within the dataset; the number of bytes copied, 0 at the end of the source. Whole
    /// records are shared where they can be. The target loses its set-id bits.
    pub fn copy_file_range(
        &self,
        source: u64,
        source_offset: u64,
        target: u64,
        target_offset: u64,
        length: u64,
    ) -> Result<u64> {
        self.copy_file_range_by(source, source_offset, target, target_offset, length, true)
    }

    /// The same. `set_ids`: the fate of the target's set-id bits.
    pub fn copy_file_range_by<'a>(
        &self,
        source: u64,
        source_offset: u64,
        target: u64,
        target_offset: u64,
        length: u64,
        set_ids: impl Into<SetIds<'a>>,
    ) -> Result<u64> {
        let record = self.inode(source)?.record();
        if is_directory(&record) {
            return Err(Errno::EISDIR);
        }
        // Bytes that the copy itself adds behind the end are not copied again.
        let length = length.min(record.size.saturating_sub(source_offset));
        if source == target
            && source_offset < target_offset.saturating_add(length)
            && target_offset < source_offset.saturating_add(length)
        {
            return Err(Errno::EINVAL);
        }
        let range = ShareRange { source: source_offset, target: target_offset, length };
        self.carry(source, target, range, set_ids.into())
    }

    /// Shares what can be shared of a range and copies the rest.
    fn carry(&self, source: u64, target: u64, range: ShareRange, set_ids: SetIds<'_>) -> Result<u64> {
        let ShareRange { length, .. } = range;
        let mut buffer = Vec::new();
        let (mut copied, mut shares, mut waited) = (0, true, false);
        while copied < length {
            let rest = ShareRange {
                source: range.source + copied,
                target: range.target + copied,
                length: length - copied,
            };
            let mut most = COPY_BYTES as u64;
            if shares {
                match self.share(source, target, rest, set_ids) {
                    Ok(Sharing::Done(bytes)) => {
                        copied += bytes;
                        continue;
                    }
                    Ok(Sharing::Not(Unshared::Never)) => shares = false,
                    Ok(Sharing::Not(Unshared::NotStored)) if !waited && rest.length >= WAIT_BYTES => {
                        waited = true;
                        let inode = self.inode(source)?;
                        self.dataset.wait_stored(&inode, DYING_PATIENCE, || !Patience::is_in_vain())?;
                        continue;
                    }
                    // The record alone: what follows may be shared.
                    Ok(Sharing::Not(_)) => {
                        let record_size = 1 << self.inode(source)?.record().record_shift;
                        most = most.min(record_size - rest.source % record_size);
                    }
                    Err(error) if copied == 0 => return Err(error),
                    Err(_) => break,
                }
            }
            let want = usize::try_from(rest.length.min(most)).expect("at most the buffer");
            buffer.resize(want, 0);
            let count = self.read(source, rest.source, &mut buffer)?;
            if count == 0 {
                break;
            }
            match self.write(target, rest.target, &buffer[..count], set_ids) {
                Ok(_) => copied += count as u64,
                Err(error) if copied == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(copied)
    }

    /// Shares whole records, and drops what a write drops.
    fn share(&self, source: u64, target: u64, range: ShareRange, set_ids: SetIds<'_>) -> Result<Sharing> {
        let (from_inode, inode) = (self.inode(source)?, self.inode(target)?);
        let before = inode.record();
        if from_inode.record().mode & S_IFMT != S_IFREG || before.mode & S_IFMT != S_IFREG {
            return Err(Errno::EINVAL);
        }
        if range.target.checked_add(range.length).is_none_or(|end| end > SIZE_MAX) {
            return Err(Errno::EFBIG);
        }
        // A copy writes as far as its size goes, and says so.
        if is_fixed(target, &before) && range.target + range.length > before.size {
            return Ok(Sharing::Not(Unshared::Never));
        }
        self.dataset.may_change(&inode)?;
        if before.flags & InodeRecord::FLAG_CAPABILITY != 0 {
            self.drop_capability(&inode)?;
        }
        let now = self.now();
        let stamp = |record: &mut InodeRecord| {
            (record.mtime, record.ctime) = (now, now);
            set_ids.apply(record);
        };
        let shared = self.dataset.share(&from_inode, &inode, range, stamp)?;
        if let Sharing::Done(_) = shared {
            let record = from_inode.record();
            self.accessed(&from_inode, &record);
            self.settle(target)?;
        }
        Ok(shared)
    }
}
