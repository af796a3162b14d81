//! Permissions: may this caller do that?
//!
//! A FUSE mount leaves these questions to the kernel (`default_permissions`). A network front has
//! no kernel before it and asks here. The answers are those of Linux (`generic_permission`,
//! `may_delete`, `setattr_prepare`).
//!
//! User 0 has the capabilities of root: it reads and writes everything, searches all directories,
//! and runs a file that anybody may run.
//!
//! A question and the change after it are two steps, but for the removal of a name. Somebody may
//! take a right away in between, as with an open file; nobody gains one.

use steadfast_dataset::{Inode, InodeRecord};
use steadfast_format::InodeId;

use crate::acl::Acl;
use crate::attributes::{SetAttr, SetTime};
use crate::filesystem::is_directory;
use crate::{AclKind, Errno, FileSystem, Result, S_IFDIR, S_IFMT, S_ISGID, S_ISUID, S_IXGRP};

/// Read a file, list a directory.
pub const MAY_READ: u32 = 4;
/// Write a file, change the names of a directory.
pub const MAY_WRITE: u32 = 2;
/// Run a file, search a directory.
pub const MAY_EXECUTE: u32 = 1;
/// Only the owner of a name, or of the directory, may remove it.
const S_ISVTX: u32 = 0o1000;

/// The identity of a caller, with all its groups.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// User.
    pub uid: u32,
    /// First group.
    pub gid: u32,
    /// More groups.
    pub groups: &'a [u32],
}

impl Identity<'_> {
    /// True for root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// True if the caller is of this group.
    #[must_use]
    pub fn is_of(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    fn owns(&self, record: &InodeRecord) -> bool {
        self.is_root() || self.uid == record.uid
    }
}

/// Rights by mode and access list alone, before root's capabilities.
fn by_mode(who: &Identity<'_>, record: &InodeRecord, acl: Option<&Acl>, wanted: u32) -> bool {
    if who.uid == record.uid {
        return wanted & !(record.mode >> 6) == 0;
    }
    // With an empty mask the kernel does not look at the list.
    if let Some(acl) = acl.filter(|_| record.mode & 0o070 != 0) {
        return acl.permits(|uid| uid == who.uid, |gid| who.is_of(gid.unwrap_or(record.gid)), wanted);
    }
    let class = if who.is_of(record.gid) { record.mode >> 3 } else { record.mode };
    wanted & !class == 0
}

/// True if `who` may do all of `wanted` with an inode.
fn permits(who: &Identity<'_>, record: &InodeRecord, acl: Option<&Acl>, wanted: u32) -> bool {
    let runs_nothing = !is_directory(record) && record.mode & 0o111 == 0;
    let by_root = who.is_root() && (wanted & MAY_EXECUTE == 0 || !runs_nothing);
    by_root || by_mode(who, record, acl, wanted)
}

/// With the sticky bit only owners remove names.
fn check_sticky(who: &Identity<'_>, directory: &InodeRecord, record: &InodeRecord) -> Result<()> {
    let free = directory.mode & S_ISVTX == 0 || who.owns(record) || who.owns(directory);
    if free { Ok(()) } else { Err(Errno::EPERM) }
}

impl FileSystem {
    fn access_list(&self, inode: &Inode) -> Result<Option<Acl>> {
        if !self.has_acls() {
            return Ok(None);
        }
        self.stored_acl(inode, AclKind::Access)
    }

    /// True if a caller may do all of `wanted` (a sum of [`MAY_READ`] and others) with an inode.
    ///
    /// # Errors
    /// The inode cannot be read.
    pub fn may(&self, who: &Identity<'_>, ino: u64, wanted: u32) -> Result<bool> {
        let inode = self.inode(ino)?;
        Ok(permits(who, &inode.record(), self.access_list(&inode)?.as_ref(), wanted))
    }

    /// Refuses a caller who may not do all of `wanted` with an inode.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn check(&self, who: &Identity<'_>, ino: u64, wanted: u32) -> Result<()> {
        if self.may(who, ino, wanted)? { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Refuses a caller who may not use the content of a file. Its owner may, whatever the mode:
    /// with a network front a file that was open stays usable after a `chmod`.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn check_content(&self, who: &Identity<'_>, ino: u64, wanted: u32) -> Result<()> {
        let is_owner = who.uid == self.inode(ino)?.record().uid;
        if is_owner { Ok(()) } else { self.check(who, ino, wanted) }
    }

    /// Refuses a caller who may not make names in a directory.
    ///
    /// # Errors
    /// `EACCES`, or `ENOTDIR`.
    pub fn check_add(&self, who: &Identity<'_>, directory: u64) -> Result<()> {
        self.directory(directory)?;
        self.check(who, directory, MAY_WRITE | MAY_EXECUTE)
    }

    /// Removes a name for a caller who may do that: of an empty directory, or of something else.
    /// Gives the number of what had it.
    ///
    /// # Errors
    /// `EACCES`, or `EPERM` in a sticky directory; those of [`FileSystem::unlink`] and
    /// [`FileSystem::rmdir`].
    pub fn remove_for(
        &self,
        who: &Identity<'_>,
        directory: u64,
        name: &[u8],
        want_directory: bool,
    ) -> Result<u64> {
        self.check_add(who, directory)?;
        // Brought before the operation, which reads nothing and would have to begin again.
        if let Some((_, entry)) = self.find(InodeId(directory), name)? {
            _ = self.inode(entry.inode.0);
        }
        self.remove(directory, name, want_directory, |above, record| check_sticky(who, above, record))
    }

    /// Refuses a caller who may not remove this name from a directory.
    fn check_remove(&self, who: &Identity<'_>, directory: u64, name: &[u8]) -> Result<()> {
        self.check_add(who, directory)?;
        let inode = self.directory(directory)?;
        let (_, entry) = self.find(inode.id, name)?.ok_or(Errno::ENOENT)?;
        check_sticky(who, &inode.record(), &self.inode(entry.inode.0)?.record())
    }

    /// Refuses a caller who may not rename. A name that is replaced has to be removable, and a
    /// directory that gets another parent has to be writable: its `..` changes.
    ///
    /// # Errors
    /// `EACCES`, or `EPERM` in a sticky directory; `ENOENT`, `ENOTDIR`.
    pub fn check_rename(
        &self,
        who: &Identity<'_>,
        (parent, name): (u64, &[u8]),
        (new_parent, new_name): (u64, &[u8]),
    ) -> Result<()> {
        self.check_remove(who, parent, name)?;
        match self.check_remove(who, new_parent, new_name) {
            Err(Errno::ENOENT) | Ok(()) => {}
            Err(error) => return Err(error),
        }
        if parent == new_parent {
            return Ok(());
        }
        let directory = self.directory(parent)?;
        let (_, entry) = self.find(directory.id, name)?.ok_or(Errno::ENOENT)?;
        let moved = self.inode(entry.inode.0)?;
        if is_directory(&moved.record()) { self.check(who, entry.inode.0, MAY_WRITE) } else { Ok(()) }
    }

    /// Refuses a caller who may not change these attributes, and takes the set-gid bit out of a
    /// mode that is set by somebody outside the group.
    ///
    /// # Errors
    /// `EPERM`, or `EACCES` for a change that the right to write would allow.
    pub fn check_setattr(&self, who: &Identity<'_>, ino: u64, set: &mut SetAttr<'_>) -> Result<()> {
        let record = self.inode(ino)?.record();
        let owns = who.owns(&record);
        let refuse = |refused: bool| if refused { Err(Errno::EPERM) } else { Ok(()) };
        refuse(set.uid.is_some_and(|uid| !who.is_root() && (who.uid != record.uid || uid != record.uid)))?;
        let keeps = |gid| who.uid == record.uid && (gid == record.gid || who.is_of(gid));
        refuse(set.gid.is_some_and(|gid| !who.is_root() && !keeps(gid)))?;
        if let Some(mode) = &mut set.mode {
            refuse(!owns)?;
            let gid = set.gid.unwrap_or(record.gid);
            if !who.is_root() && !who.is_of(gid) {
                *mode &= !S_ISGID;
            }
            // A new owner does not get the old one's powers.
            if (set.uid.is_some() || set.gid.is_some()) && record.mode & S_IFMT != S_IFDIR {
                *mode &= !S_ISUID;
                if *mode & S_IXGRP != 0 {
                    *mode &= !S_ISGID;
                }
            }
        }
        let is_chosen = |time: Option<SetTime>| matches!(time, Some(SetTime::To(_)));
        refuse((is_chosen(set.atime) || is_chosen(set.mtime)) && !owns)?;
        if (set.atime.is_some() || set.mtime.is_some()) && !owns {
            self.check(who, ino, MAY_WRITE)?;
        }
        if set.size.is_some() { self.check_content(who, ino, MAY_WRITE) } else { Ok(()) }
    }

    /// Mode of something new, where `mode` was asked for: in a set-gid directory it gets the
    /// directory's group, whose set-gid bit only its members may give away.
    ///
    /// # Errors
    /// `ENOTDIR`, or the directory cannot be read.
    pub fn mode_for_new(&self, who: &Identity<'_>, directory: u64, mode: u32) -> Result<u32> {
        let above = self.directory(directory)?.record();
        let gives = mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP && mode & S_IFMT != S_IFDIR;
        let is_foreign = above.mode & S_ISGID != 0 && !who.is_root() && !who.is_of(above.gid);
        Ok(if gives && is_foreign { mode & !S_ISGID } else { mode })
    }
}
