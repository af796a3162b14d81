//! The folders `.zfs` and `.zfs/snapshot` for clients, and which file system a handle belongs to.
//!
//! A snapshot is a file system of its own for a client: another number of file system in its
//! attributes, so that numbers of inodes stay unique. A Linux client mounts it by itself when
//! somebody goes there. The two folders belong to the live file system.
//!
//! A name that comes, goes or changes in `.zfs/snapshot` is a snapshot that does. The volume
//! decides who may, and the request waits for it with no part of the volume in its hands.
//!
//! ## Invariants
//! [nfs_snapshot.1] Nothing within a snapshot is changed. `Operation::run`
//! [nfs_snapshot.2] `.zfs` at the top of the live file system is always the folder: no name like it
//!      is made, moved or removed there. `Operation::check_names`

use crate::acl3;
use crate::export::{Export, SnapshotChange, View};
use crate::handle::{FOLDERS, FileId, LIVE, Signed};
use crate::nfs3::{Call, Status, access, write_attributes, write_wcc};
use crate::operation::{Listing, Operation, Result, TOP};
use crate::rpc;
use std::sync::Arc;
use steadfast_posix::{Attr, FileSystem, S_IFDIR};

/// The folder that leads to snapshots.
pub(crate) const ZFS: &[u8] = b".zfs";
const SNAPSHOT: &[u8] = b"snapshot";
/// Inodes in handles of the folders.
const ZFS_INO: u64 = 1;
const SNAPSHOT_INO: u64 = 2;
/// Numbers that files of the live file system do not have: their upper 16 bits are zero.
const NUMBERS: u64 = 0xffff << 48;
/// Cookie of `.zfs` at the top, after `.` and `..` and before all that a hash gives.
pub(crate) const ZFS_COOKIE: u64 = 3;

/// One of the two folders.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Folder {
    Zfs,
    Snapshots,
}

impl Folder {
    /// The folder of a handle.
    pub(crate) fn of(file: FileId) -> Option<Folder> {
        match (file.snapshot, file.ino) {
            (FOLDERS, ZFS_INO) => Some(Folder::Zfs),
            (FOLDERS, SNAPSHOT_INO) => Some(Folder::Snapshots),
            _ => None,
        }
    }

    pub(crate) fn id(self) -> FileId {
        let ino = if self == Folder::Zfs { ZFS_INO } else { SNAPSHOT_INO };
        FileId { snapshot: FOLDERS, ino, generation: 0 }
    }

    /// Its number in attributes and listings.
    pub(crate) fn number(self) -> u64 {
        NUMBERS | self.id().ino
    }

    pub(crate) fn attr(self, view: &View<'_>) -> Attr {
        let since = view.snapshots.since();
        // Everybody may try in the folder of snapshots, where the volume decides.
        let (changed, rights) = match self {
            Folder::Zfs => (since, 0o555),
            Folder::Snapshots => (view.snapshots.changed(), 0o777),
        };
        Attr {
            ino: self.number(),
            size: 0,
            blocks: 0,
            atime: since,
            mtime: changed,
            ctime: changed,
            btime: since,
            mode: S_IFDIR | rights,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            is_settled: true,
        }
    }
}

/// The end of a name in a folder.
pub(crate) enum Way {
    Folder(Folder),
    /// The top of the live file system.
    Up,
    /// The top of a snapshot.
    Snapshot(u64),
}

impl Folder {
    /// Follows a name.
    pub(crate) fn find(self, view: &View<'_>, name: &[u8]) -> Option<Way> {
        match (self, name) {
            (folder, b".") => Some(Way::Folder(folder)),
            (Folder::Zfs, b"..") => Some(Way::Up),
            (Folder::Zfs, SNAPSHOT) => Some(Way::Folder(Folder::Snapshots)),
            (Folder::Zfs, _) => None,
            (Folder::Snapshots, b"..") => Some(Way::Folder(Folder::Zfs)),
            (Folder::Snapshots, name) => {
                std::str::from_utf8(name).ok().and_then(|name| view.snapshots.number(name)).map(Way::Snapshot)
            }
        }
    }

    /// The change of a snapshot that a call asks for. `None` if it is another call, or goes beyond
    /// the folder.
    pub(crate) fn change(self, export: &Export, call: &Call<'_>) -> Option<Result<SnapshotChange>> {
        let text = |name: &[u8]| std::str::from_utf8(name).map(str::to_owned).map_err(|_| Status::INVAL);
        if self != Folder::Snapshots {
            return None;
        }
        match call {
            Call::Mkdir { name, .. } => Some(text(name).map(SnapshotChange::Take)),
            Call::Rmdir { name, .. } => Some(text(name).map(SnapshotChange::Destroy)),
            Call::Rename { name, to, new_name, .. } => {
                let target = export.key.open(to).and_then(Folder::of);
                let names = || text(name).and_then(|name| text(new_name).map(|to| (name, to)));
                let change = || names().map(|(name, to)| SnapshotChange::Rename(name, to));
                (target == Some(Folder::Snapshots)).then(change)
            }
            _ => None,
        }
    }

    /// Names from a cookie on: number, cookie, name. Cookies of snapshots are their numbers, so a
    /// listing goes on correctly if others come or go meanwhile.
    fn names(self, view: &View<'_>, cookie: u64) -> Vec<(u64, u64, Vec<u8>)> {
        let above = if self == Folder::Zfs { TOP } else { Folder::Zfs.number() };
        let mut names = vec![(self.number(), 1, b".".to_vec()), (above, 2, b"..".to_vec())];
        match self {
            Folder::Zfs => names.push((Folder::Snapshots.number(), 3, SNAPSHOT.to_vec())),
            Folder::Snapshots => {
                let listed = view.snapshots.list().into_iter();
                names.extend(
                    listed.map(|(name, number)| (NUMBERS | (number + 2), number + 2, name.into_bytes())),
                );
                names.sort_unstable_by_key(|(_, cookie, _)| *cookie);
            }
        }
        names.retain(|(_, at, _)| *at > cookie);
        names
    }
}

impl Operation<'_> {
    /// Carries out a read of one of the folders. Everybody may.
    pub(crate) fn run_on_folder(&self, folder: Folder, call: &Call<'_>) -> Result<Vec<u8>> {
        let attr = folder.attr(self.view);
        let mut out = rpc::reply(self.xid);
        out.u32(Status::OK.0);
        match call {
            Call::Getattr { .. } => write_attributes(&mut out, self.fsid(), &attr),
            Call::Lookup { name, .. } => return self.lookup_in_folder(folder, name),
            Call::Access { rights, .. } => {
                self.post(&mut out, Some(&attr));
                let changes = match folder {
                    Folder::Snapshots if !self.read_only => access::MODIFY | access::EXTEND | access::DELETE,
                    _ => 0,
                };
                out.u32(rights & (access::READ | access::LOOKUP | changes));
            }
            Call::Readdir { cookie, count, .. } => {
                let mut listing = Listing::begin(self, Some(&attr), *count as usize, &mut out);
                for (number, cookie, name) in folder.names(self.view, *cookie) {
                    let added = listing.add(name.len(), 0, |out| {
                        out.bool(true).u64(number).opaque(&name).u64(cookie);
                    });
                    if !added {
                        break;
                    }
                }
                listing.end()?;
            }
            // Without attributes and handles: a snapshot is opened when somebody goes there.
            Call::Readdirplus { cookie, maxcount, .. } => {
                let mut listing = Listing::begin(self, Some(&attr), *maxcount as usize, &mut out);
                for (number, cookie, name) in folder.names(self.view, *cookie) {
                    let added = listing.add(name.len(), 8, |out| {
                        out.bool(true).u64(number).opaque(&name).u64(cookie).bool(false).bool(false);
                    });
                    if !added {
                        break;
                    }
                }
                listing.end()?;
            }
            // A client that hears that there are none asks for no list of this server again.
            Call::Getacl { wanted, .. } => {
                self.post(&mut out, Some(&attr));
                acl3::write(&mut out, *wanted, None, None, (attr.mode, attr.uid, attr.gid));
            }
            Call::Fsstat { .. } => self.fsstat(&attr, &mut out),
            Call::Fsinfo { .. } => self.fsinfo(&attr, &mut out),
            Call::Pathconf { .. } => self.pathconf(&attr, &mut out),
            Call::Read { .. } => return Err(Status::ISDIR),
            _ => return Err(Status::INVAL),
        }
        Ok(rpc::record(out))
    }

    /// The reply to a change of a snapshot that was made.
    pub(crate) fn changed(&self, change: &SnapshotChange) -> Vec<u8> {
        let folder = Folder::Snapshots.attr(self.view);
        let mut out = rpc::reply(self.xid);
        out.u32(Status::OK.0);
        if let SnapshotChange::Take(name) = change {
            let number = self.view.snapshots.number(name);
            let top = number.and_then(|number| self.view.on(number, |fs| self.top_of_snapshot(fs, number)));
            match top {
                Some(Ok((handle, attr, within))) => {
                    out.bool(true).opaque(&handle).bool(true);
                    write_attributes(&mut out, within, &attr);
                }
                // It was destroyed since.
                _ => _ = out.bool(false).bool(false),
            }
        }
        // Others may have changed snapshots meanwhile: no attributes from before.
        let ends = if matches!(change, SnapshotChange::Rename(..)) { 2 } else { 1 };
        (0..ends).for_each(|_| write_wcc(&mut out, self.fsid(), None, Some(&folder)));
        rpc::record(out)
    }

    /// The handle of a snapshot's top, its attributes and the number of its file system.
    fn top_of_snapshot(&self, fs: &Arc<FileSystem>, number: u64) -> Result<(Signed, Attr, u64)> {
        let top = fs.lookup(TOP, b".")?;
        fs.forget(top.ino, 1);
        let within = Operation { snapshot: number, ..*self };
        Ok((within.sign(top.ino, top.generation), top.attr, within.fsid()))
    }

    fn lookup_in_folder(&self, folder: Folder, name: &[u8]) -> Result<Vec<u8>> {
        let attr = folder.attr(self.view);
        match folder.find(self.view, name) {
            None => Ok(self.found_nothing(&attr)),
            Some(Way::Folder(found)) => Ok(self.found_folder(found, &attr)),
            Some(Way::Up) => self.found_top(self, &attr),
            Some(Way::Snapshot(number)) => self
                .view
                .on(number, |fs| {
                    let view = self.view_of_snapshot(fs);
                    let within = Operation { view: &view, snapshot: number, read_only: true, ..*self };
                    self.found_top(&within, &attr)
                })
                // It was destroyed since its name was found.
                .unwrap_or_else(|| Ok(self.found_nothing(&attr))),
        }
    }

    /// A lookup's reply: one of the folders.
    pub(crate) fn found_folder(&self, found: Folder, directory: &Attr) -> Vec<u8> {
        // The folders belong to the live file system, whatever this request is about.
        let live = Operation { snapshot: LIVE, ..*self };
        let mut out = rpc::reply(self.xid);
        out.u32(Status::OK.0).opaque(&self.export.key.sign(self.export.id, found.id()));
        live.post(&mut out, Some(&found.attr(self.view)));
        self.post(&mut out, Some(directory));
        rpc::record(out)
    }

    /// The same: no such name. With the directory's attributes a client can keep that.
    pub(crate) fn found_nothing(&self, directory: &Attr) -> Vec<u8> {
        let mut out = rpc::reply(self.xid);
        out.u32(Status::NOENT.0);
        self.post(&mut out, Some(directory));
        rpc::record(out)
    }

    /// The same: the top of the file system that `within` is about.
    fn found_top(&self, within: &Operation<'_>, directory: &Attr) -> Result<Vec<u8>> {
        let top = within.view.fs.lookup(TOP, b".")?;
        within.view.fs.forget(top.ino, 1);
        let mut out = rpc::reply(self.xid);
        out.u32(Status::OK.0).opaque(&within.sign(top.ino, top.generation));
        within.post(&mut out, Some(&top.attr));
        self.post(&mut out, Some(directory));
        Ok(rpc::record(out))
    }

    /// Refuses names of the live file system's top that belong to the folder [nfs_snapshot.2].
    pub(crate) fn check_names(&self, directory: u64, call: &Call<'_>) -> Result<()> {
        let is_folder = |name: &[u8]| directory == TOP && name == ZFS;
        match call {
            Call::Create { name, .. }
            | Call::Mkdir { name, .. }
            | Call::Symlink { name, .. }
            | Call::Mknod { name, .. }
                if is_folder(name) =>
            {
                Err(Status::EXIST)
            }
            Call::Remove { name, .. } | Call::Rmdir { name, .. } | Call::Rename { name, .. }
                if is_folder(name) =>
            {
                Err(Status::PERM)
            }
            _ => Ok(()),
        }
    }

    /// True if a listing of the top from a cookie on names the folder.
    pub(crate) fn tells_folder(&self, directory: u64, cookie: u64) -> bool {
        self.snapshot == LIVE && directory == TOP && cookie < ZFS_COOKIE && self.view.snapshots.is_visible()
    }
}

/// The end of a path that begins with `.zfs`, and the names behind a snapshot's, which are to be
/// followed within it. `None` if it leads nowhere.
pub(crate) fn way_of<'n>(view: &View<'_>, names: &'n [String]) -> Option<(Way, &'n [String])> {
    let mut folder = Folder::Zfs;
    for (at, name) in names.iter().enumerate().skip(1) {
        match folder.find(view, name.as_bytes())? {
            Way::Folder(next) => folder = next,
            found => return Some((found, &names[at + 1..])),
        }
    }
    Some((Way::Folder(folder), &[]))
}
