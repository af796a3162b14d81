//! Extended attributes.

use steadfast_dataset::{Inode, InodeRecord};
use steadfast_format::InodeId;
use steadfast_format::file_keys::NamesKey;
use steadfast_format::xattr::{VALUE_MAX, XattrStart, split};
use steadfast_txg::AdmitKind;

use crate::acl::{Acl, AclKind};
use crate::filesystem::is_directory;
use crate::namespace::Changes;
use crate::{Caller, Errno, FileSystem, Result, S_IFDIR, S_IFLNK, S_IFMT, S_ISGID};

/// `setxattr`: it must not exist.
const XATTR_CREATE: u32 = 1;
/// `setxattr`: it must exist.
const XATTR_REPLACE: u32 = 2;
/// Bytes of names that a listing may have.
const LIST_MAX: usize = 65_536;

/// Flag of an inode that has such a list.
fn flag_of(kind: AclKind) -> u8 {
    match kind {
        AclKind::Access => InodeRecord::FLAG_ACCESS_ACL,
        AclKind::Default => InodeRecord::FLAG_DEFAULT_ACL,
    }
}

/// Items of the names tree that hold an attribute.
pub(crate) fn attribute_items(
    inode: InodeId,
    name: &[u8],
    value: &[u8],
) -> impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)> {
    let key = move |chunk| NamesKey::Xattr { inode, name: name.to_vec(), chunk }.encode();
    (0u16..).zip(split(value)).map(move |(chunk, bytes)| (key(chunk), Some(bytes)))
}

/// Prefix of users' own attributes.
const OF_USERS: &[u8] = b"user.";

impl FileSystem {
    /// Name spaces that are kept. Of `system.` these are ACLs, where somebody enforces them. As in
    /// ZFS what is switched off is what users name: capabilities and labels of security stay.
    fn check_name(&self, name: &[u8]) -> Result<()> {
        if self.has_acls() && AclKind::of(name).is_some() {
            return Ok(());
        }
        let known = [OF_USERS, b"trusted.", b"security."];
        // A name space alone is no name.
        if known.contains(&name) {
            return Err(Errno::EINVAL);
        }
        let off = !self.has_user_attributes() && name.starts_with(OF_USERS);
        if off || !known.iter().any(|space| name.starts_with(space) && name.len() > space.len()) {
            return Err(Errno::EOPNOTSUPP);
        }
        if name.len() > NamesKey::XATTR_NAME_MAX {
            return Err(Errno::ERANGE);
        }
        Ok(())
    }

    /// Value of an attribute.
    pub fn getxattr(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.check_name(name)?;
        let inode = self.inode(ino)?;
        let flags = inode.record().flags;
        let wanted = AclKind::of(name).map_or(InodeRecord::FLAG_XATTRS, flag_of);
        if flags & wanted == 0 {
            return Err(Errno::ENODATA);
        }
        self.stored_value(&inode, name)
    }

    fn stored_value(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
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
        let mut names = self.names_of_attributes(caller, ino)?;
        names.retain(|name| {
            (self.has_acls() || AclKind::of(name).is_none())
                && (self.has_user_attributes() || !name.starts_with(OF_USERS))
        });
        Ok(names)
    }

    /// The same, with those that are switched off.
    fn names_of_attributes(&self, caller: Caller, ino: u64) -> Result<Vec<Vec<u8>>> {
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
        self.check_name(name)?;
        if let Some(kind) = AclKind::of(name) {
            return self.set_acl(ino, kind, value, false);
        }
        if value.len() > VALUE_MAX {
            return Err(Errno::E2BIG);
        }
        let begin = || Ok(self.dataset.begin_with_items(AdmitKind::Write, value.len() as u64)?);
        self.dataset.operate(begin, |op| {
            let _names = self.names.lock();
            let inode = self.inode(ino)?;
            self.dataset.may_change(&inode)?;
            let old = self.chunks(inode.id, name)?;
            match flags {
                XATTR_CREATE if !old.is_empty() => return Err(Errno::EEXIST),
                XATTR_REPLACE if old.is_empty() => return Err(Errno::ENODATA),
                0 | XATTR_CREATE | XATTR_REPLACE => {}
                _ => return Err(Errno::EINVAL),
            }
            if old.is_empty() {
                let listed: usize =
                    self.names_of_attributes(Caller::ROOT, ino)?.iter().map(|name| name.len() + 1).sum();
                if listed + name.len() + 1 > LIST_MAX {
                    return Err(Errno::ENOSPC);
                }
            }
            self.dataset.batch(replace(&inode, name, old, Some(value)))?;
            let now = self.now();
            self.dataset.change(op, &inode, |record| {
                record.flags |= InodeRecord::FLAG_XATTRS;
                if name == b"security.capability" {
                    record.flags |= InodeRecord::FLAG_CAPABILITY;
                }
                record.ctime = now;
            });
            Ok(())
        })?;
        self.settle(ino)
    }

    /// Removes an attribute.
    pub fn removexattr(&self, ino: u64, name: &[u8]) -> Result<()> {
        self.check_name(name)?;
        if let Some(kind) = AclKind::of(name) {
            return self.set_acl(ino, kind, &[], false);
        }
        self.operate(AdmitKind::Remove, |op| {
            let _names = self.names.lock();
            let inode = self.inode(ino)?;
            self.dataset.may_change(&inode)?;
            let old = self.chunks(inode.id, name)?;
            if old.is_empty() {
                return Err(Errno::ENODATA);
            }
            self.dataset.batch(old.into_iter().map(|key| (key, None)).collect())?;
            let now = self.now();
            self.dataset.change(op, &inode, |record| {
                if name == b"security.capability" {
                    record.flags &= !InodeRecord::FLAG_CAPABILITY;
                }
                record.ctime = now;
            });
            Ok(())
        })?;
        self.settle(ino)
    }

    /// Sets an access control list from its bytes; no bytes, or a list without entries, remove it.
    /// An access list sets the mode as well, and with `kill_sgid` takes the set-gid bit: its setter
    /// is outside the group.
    pub fn set_acl(&self, ino: u64, kind: AclKind, value: &[u8], kill_sgid: bool) -> Result<()> {
        self.check_name(kind.name())?;
        if value.len() > VALUE_MAX {
            return Err(Errno::E2BIG);
        }
        let acl = if value.is_empty() { None } else { Acl::decode(value)? };
        let admit = if acl.is_some() { AdmitKind::Write } else { AdmitKind::Remove };
        let begin = || Ok(self.dataset.begin_with_items(admit, value.len() as u64)?);
        let is_set = self.dataset.operate(begin, |op| {
            let _names = self.names.lock();
            let inode = self.inode(ino)?;
            let record = inode.record();
            if record.mode & S_IFMT == S_IFLNK {
                return Err(Errno::EOPNOTSUPP);
            }
            if kind == AclKind::Default && !is_directory(&record) {
                return if acl.is_some() { Err(Errno::EACCES) } else { Ok(false) };
            }
            let stored = acl.as_ref().filter(|acl| kind == AclKind::Default || !acl.is_minimal());
            let bytes = stored.map(Acl::encode);
            self.dataset.may_change(&inode)?;
            let old = self.chunks(inode.id, kind.name())?;
            self.dataset.batch(replace(&inode, kind.name(), old, bytes.as_deref()))?;
            let now = self.now();
            self.dataset.change(op, &inode, |record| {
                record.flags &= !flag_of(kind);
                if bytes.is_some() {
                    record.flags |= InodeRecord::FLAG_XATTRS | flag_of(kind);
                }
                if let (AclKind::Access, Some(acl)) = (kind, &acl) {
                    record.mode = acl.mode(record.mode);
                    if kill_sgid {
                        record.mode &= !S_ISGID;
                    }
                }
                record.ctime = now;
            });
            Ok(true)
        })?;
        if is_set { self.settle(ino) } else { Ok(()) }
    }

    pub(crate) fn stored_acl(&self, inode: &Inode, kind: AclKind) -> Result<Option<Acl>> {
        if inode.record().flags & flag_of(kind) == 0 {
            return Ok(None);
        }
        // The stored value was a list.
        Acl::decode(&self.stored_value(inode, kind.name())?).map_err(|_| Errno::EIO)
    }

    /// Changes of the names tree that bring a stored access list into step with a new mode [acl.1].
    /// Under the names mutex.
    pub(crate) fn acl_with_mode(&self, inode: &Inode, mode: u32) -> Result<Changes> {
        let Some(acl) = self.stored_acl(inode, AclKind::Access)? else { return Ok(Vec::new()) };
        Ok(attribute_items(inode.id, AclKind::Access.name(), &acl.with_mode(mode).encode()).collect())
    }

    /// Mode and lists of something new in `directory` for which `mode` was asked. Under the names
    /// mutex.
    pub(crate) fn inherit(&self, directory: &Inode, mode: u32, umask: u32) -> Result<Inherited> {
        let default = if self.has_acls() && mode & S_IFMT != S_IFLNK {
            self.stored_acl(directory, AclKind::Default)?
        } else {
            None
        };
        let Some(default) = default else {
            return Ok(Inherited { mode: mode & !umask, flags: 0, lists: Vec::new() });
        };
        let mut lists = Vec::new();
        if mode & S_IFMT == S_IFDIR {
            lists.push((AclKind::Default, default.encode()));
        }
        let (access, mode) = default.inherited(mode);
        if !access.is_minimal() {
            lists.push((AclKind::Access, access.encode()));
        }
        let none = if lists.is_empty() { 0 } else { InodeRecord::FLAG_XATTRS };
        let flags = lists.iter().fold(none, |flags, (kind, _)| flags | flag_of(*kind));
        Ok(Inherited { mode, flags, lists })
    }

    fn chunks(&self, inode: InodeId, name: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (from, to) = NamesKey::xattr_range(inode, name);
        let items = self.dataset.names().range(from..to);
        items.map(|item| Ok(item?.0)).collect()
    }
}

/// Attributes that a new file inherits from its directory.
pub(crate) struct Inherited {
    /// Type and permissions.
    pub mode: u32,
    /// Flags of its record.
    pub flags: u8,
    /// Its lists.
    pub lists: Vec<(AclKind, Vec<u8>)>,
}

/// Changes that give an attribute a new value, or none, in place of the items it had.
fn replace(inode: &Inode, name: &[u8], old: Vec<Vec<u8>>, value: Option<&[u8]>) -> Changes {
    let mut changes: Changes =
        value.map(|value| attribute_items(inode.id, name, value).collect()).unwrap_or_default();
    let kept = changes.len();
    changes.extend(old.into_iter().skip(kept).map(|key| (key, None)));
    changes
}
