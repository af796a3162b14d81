//! Extended attributes.

use steadfast_dataset::InodeRecord;
use steadfast_format::InodeId;
use steadfast_format::file_keys::NamesKey;
use steadfast_format::xattr::{VALUE_MAX, XattrStart, split};
use steadfast_txg::AdmitKind;

use crate::{Caller, Errno, FileSystem, Result};

/// `setxattr`: it must not exist.
const XATTR_CREATE: u32 = 1;
/// `setxattr`: it must exist.
const XATTR_REPLACE: u32 = 2;
/// Bytes of names that a listing may have.
const LIST_MAX: usize = 65_536;

/// Name spaces that are kept. POSIX ACLs are refused while nobody enforces them.
fn check_name(name: &[u8]) -> Result<()> {
    let known = [&b"user."[..], b"trusted.", b"security."];
    if !known.iter().any(|space| name.starts_with(space) && name.len() > space.len()) {
        return Err(Errno::EOPNOTSUPP);
    }
    if name.len() > NamesKey::XATTR_NAME_MAX {
        return Err(Errno::ERANGE);
    }
    Ok(())
}

impl FileSystem {
    /// Value of an attribute.
    pub fn getxattr(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
        check_name(name)?;
        let inode = self.inode(ino)?;
        if inode.record().flags & InodeRecord::FLAG_XATTRS == 0 {
            return Err(Errno::ENODATA);
        }
        let (from, to) = NamesKey::xattr_range(inode.id, name);
        let mut items = self.dataset.names().range(from..to);
        let Some(first) = items.next() else { return Err(Errno::ENODATA) };
        let start = XattrStart::decode(&first?.1).map_err(|_| Errno::EIO)?;
        let mut value = start.bytes;
        for item in items {
            value.extend_from_slice(&item?.1);
        }
        if value.len() != start.total as usize {
            return Err(Errno::EIO);
        }
        Ok(value)
    }

    /// Names of all attributes the caller may see. `trusted.*` is root's.
    pub fn listxattr(&self, caller: Caller, ino: u64) -> Result<Vec<Vec<u8>>> {
        let inode = self.inode(ino)?;
        let mut names: Vec<Vec<u8>> = Vec::new();
        if inode.record().flags & InodeRecord::FLAG_XATTRS == 0 {
            return Ok(names);
        }
        let (from, to) = (NamesKey::xattrs(inode.id), NamesKey::targets(inode.id));
        for item in self.dataset.names().range(from..to) {
            if let Ok(NamesKey::Xattr { name, chunk: 0, .. }) = NamesKey::decode(&item?.0)
                && (caller.uid == 0 || !name.starts_with(b"trusted."))
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Sets an attribute; `flags` as in `setxattr(2)`.
    pub fn setxattr(&self, ino: u64, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        check_name(name)?;
        if value.len() > VALUE_MAX {
            return Err(Errno::E2BIG);
        }
        let op = self.dataset.begin_with_items(AdmitKind::Write, value.len() as u64)?;
        let _names = self.names.lock();
        let inode = self.inode(ino)?;
        let old = self.chunks(inode.id, name)?;
        match flags {
            XATTR_CREATE if !old.is_empty() => return Err(Errno::EEXIST),
            XATTR_REPLACE if old.is_empty() => return Err(Errno::ENODATA),
            0 | XATTR_CREATE | XATTR_REPLACE => {}
            _ => return Err(Errno::EINVAL),
        }
        if old.is_empty() {
            let caller = Caller { uid: 0, gid: 0 };
            let listed: usize = self.listxattr(caller, ino)?.iter().map(|name| name.len() + 1).sum();
            if listed + name.len() + 1 > LIST_MAX {
                return Err(Errno::ENOSPC);
            }
        }
        let chunks = split(value);
        let key = |chunk| NamesKey::Xattr { inode: inode.id, name: name.to_vec(), chunk }.encode();
        let mut changes = Vec::new();
        for (chunk, bytes) in (0u16..).zip(&chunks) {
            changes.push((key(chunk), Some(bytes.clone())));
        }
        changes.extend(old.into_iter().skip(chunks.len()).map(|key| (key, None)));
        self.dataset.batch(changes)?;
        let now = self.now();
        self.dataset.change(&op, &inode, |record| {
            record.flags |= InodeRecord::FLAG_XATTRS;
            if name == b"security.capability" {
                record.flags |= InodeRecord::FLAG_CAPABILITY;
            }
            record.ctime = now;
        });
        Ok(())
    }

    /// Removes an attribute.
    pub fn removexattr(&self, ino: u64, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let op = self.dataset.begin(AdmitKind::Remove)?;
        let _names = self.names.lock();
        let inode = self.inode(ino)?;
        let old = self.chunks(inode.id, name)?;
        if old.is_empty() {
            return Err(Errno::ENODATA);
        }
        self.dataset.batch(old.into_iter().map(|key| (key, None)).collect())?;
        let now = self.now();
        self.dataset.change(&op, &inode, |record| {
            if name == b"security.capability" {
                record.flags &= !InodeRecord::FLAG_CAPABILITY;
            }
            record.ctime = now;
        });
        Ok(())
    }

    fn chunks(&self, inode: InodeId, name: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (from, to) = NamesKey::xattr_range(inode, name);
        let items = self.dataset.names().range(from..to);
        items.map(|item| Ok(item?.0)).collect()
    }
}
