//! Attributes: what `stat` shows and `chmod`, `chown`, `truncate`, `utimens` change.

use std::sync::Arc;

use parking_lot::MutexGuard;
use steadfast_dataset::{Inode, InodeRecord, Time};
use steadfast_env::brief::BriefGuard;
use steadfast_format::InodeId;
use steadfast_txg::AdmitKind;

use crate::content::SIZE_MAX;
use crate::filesystem::{is_directory, is_fixed};
use crate::{Errno, FileSystem, Result, S_IFMT, S_IFREG, S_ISGID, S_ISUID, S_IXGRP};

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attr {
    /// Number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes it occupies.
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
    /// Type and permissions.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Bytes of a good transfer.
    pub blksize: u32,
    /// False while content is on its way to the devices: then `blocks` will be another number
    /// without anybody's doing.
    pub is_settled: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SetTime {
    /// That one.
    To(Time),
    /// The current one.
    Now,
}

/// Attributes to change; `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr<'a> {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time (write-back caches bring it).
    pub ctime: Option<Time>,
    /// The fate of set-id bits.
    pub set_ids: SetIds<'a>,
}

impl SetAttr<'_> {
    /// True if nothing but times changes.
    fn is_of_times(&self) -> bool {
        let others = (self.mode, self.uid, self.gid, self.size);
        others == (None, None, None, None) && matches!(self.set_ids, SetIds::Stay)
    }
}

/// The fate of set-id bits when content changes.
#[derive(Clone, Copy, Default)]
pub enum SetIds<'a> {
    /// The caller has `CAP_FSETID`, or is asked for nothing.
    #[default]
    Stay,
    /// They go. Set-gid without execution by the group stays for a member of that group (Linux,
    /// `setattr_should_drop_sgid`): the function says who is one, and is asked only then.
    Go(&'a dyn Fn(u32) -> bool),
}

impl std::fmt::Debug for SetIds<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, SetIds::Stay) { "Stay" } else { "Go" })
    }
}

impl From<bool> for SetIds<'_> {
    /// True: they go; the caller is a member.
    fn from(go: bool) -> Self {
        if go { SetIds::Go(&|_| true) } else { SetIds::Stay }
    }
}

impl SetIds<'_> {
    /// Takes the bits away that go.
    pub(crate) fn apply(self, record: &mut InodeRecord) {
        let SetIds::Go(is_member) = self else { return };
        drop_set_ids(record);
        if record.mode & S_ISGID != 0 && !is_directory(record) && !is_member(record.gid) {
            record.mode &= !S_ISGID;
        }
    }
}

/// Attributes of an inode whose content is all stored. Content that is not counts as occupying its
/// own size (`Entry::add_pending`), so that nothing takes a new file for one hole.
pub(crate) fn attr_of(id: InodeId, record: &InodeRecord, block_bytes: u32) -> Attr {
    let (size, blksize) = if is_directory(record) {
        (record.size + 2, block_bytes)
    } else {
        (record.size, if record.record_shift == 0 { 131_072 } else { 1 << record.record_shift })
    };
    Attr {
        ino: id.0,
        size,
        blocks: record.allocated.div_ceil(512),
        atime: record.atime,
        mtime: record.mtime,
        ctime: record.ctime,
        btime: record.btime,
        mode: record.mode,
        nlink: record.nlink,
        uid: record.uid,
        gid: record.gid,
        rdev: record.rdev,
        blksize,
        is_settled: true,
    }
}

/// Clears set-id bits as Linux does when content or owner change.
pub(crate) fn drop_set_ids(record: &mut InodeRecord) {
    if is_directory(record) {
        return;
    }
    record.mode &= !S_ISUID;
    if record.mode & S_IXGRP != 0 {
        record.mode &= !S_ISGID;
    }
}

impl FileSystem {
    /// Changes attributes; what the kernel checks (`default_permissions`) is not checked again.
    pub fn setattr(&self, ino: u64, set: &SetAttr<'_>) -> Result<Attr> {
        let inode = self.inode(ino)?;
        let now = self.now();
        let time = |set: SetTime| match set {
            SetTime::To(time) => time,
            SetTime::Now => now,
        };
        let apply = |record: &mut InodeRecord| {
            if let Some(mode) = set.mode {
                record.mode = record.mode & S_IFMT | mode & 0o7777;
            }
            if set.uid.is_some() || set.gid.is_some() {
                record.uid = set.uid.unwrap_or(record.uid);
                record.gid = set.gid.unwrap_or(record.gid);
                // A mode given at the same time is the kernel's own wish about these bits.
                if set.mode.is_none() {
                    drop_set_ids(record);
                }
            }
            set.set_ids.apply(record);
            if set.size.is_some() {
                record.mtime = now;
            }
            if let Some(atime) = set.atime {
                record.atime = time(atime);
            }
            if let Some(mtime) = set.mtime {
                record.mtime = time(mtime);
            }
            record.ctime = set.ctime.unwrap_or(now);
        };
        if set.is_of_times() && inode.record().nlink == 0 {
            // No crash leaves an inode without names behind, so its times need no operation and
            // nobody waits for them. A kernel that collects writes tells them after each unlink.
            self.dataset.touch(&inode, apply);
            return Ok(self.entry_of(&inode).attr);
        }
        if set.uid.is_some() || set.gid.is_some() {
            self.dataset.check_new_owner(&inode, set.uid, set.gid)?;
        }
        let drops_capability = set.size.is_some() || set.uid.is_some() || set.gid.is_some();
        let has_capability = inode.record().flags & InodeRecord::FLAG_CAPABILITY != 0;
        if let Some(size) = set.size {
            let record = inode.record();
            if is_directory(&record) {
                return Err(Errno::EISDIR);
            }
            if record.mode & S_IFMT != S_IFREG {
                return Err(Errno::EINVAL);
            }
            if size > SIZE_MAX {
                return Err(Errno::EFBIG);
            }
            if is_fixed(ino, &record) && size != record.size {
                return Err(Errno::EINVAL);
            }
            let kind = if size < record.size { AdmitKind::Remove } else { AdmitKind::Write };
            self.operate(kind, |op| {
                self.dataset.may_change(&inode)?;
                let _names = self.acl_follows(&inode, set.mode)?;
                self.dataset.set_size(op, &inode, size, apply);
                Ok(())
            })?;
        } else {
            self.operate(AdmitKind::Remove, |op| {
                self.dataset.may_change(&inode)?;
                let _names = self.acl_follows(&inode, set.mode)?;
                self.dataset.change(op, &inode, apply);
                Ok(())
            })?;
        }
        if drops_capability && has_capability {
            self.drop_capability(&inode)?;
        }
        self.settle(ino)?;
        Ok(self.entry_of(&inode).attr)
    }

    /// How often an inode was changed, as long as somebody holds it. Where the number grew by one
    /// between two looks, the change of the looker was the only one: so the front for NFS knows
    /// that the attributes it saw before a change are those from which the change was made.
    pub fn changes(&self, ino: u64) -> Result<u64> {
        Ok(self.inode(ino)?.changes())
    }

    /// Brings an access list into step with a mode that is about to be set [acl.1]. The mode is to
    /// be set while what this returns is held.
    fn acl_follows(
        &self,
        inode: &Inode,
        mode: Option<u32>,
    ) -> Result<Option<BriefGuard<MutexGuard<'_, ()>>>> {
        let Some(mode) = mode else { return Ok(None) };
        let names = self.names.lock();
        let changes = self.acl_with_mode(inode, mode)?;
        if !changes.is_empty() {
            self.dataset.batch(changes)?;
        }
        Ok(Some(names))
    }

    /// File capabilities do not survive a change of content or owner.
    pub(crate) fn drop_capability(&self, inode: &Arc<Inode>) -> Result<()> {
        match self.removexattr(inode.id.0, b"security.capability") {
            Err(Errno::ENODATA) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
