//! `.zfs/snapshot/NAME` in a mount: each snapshot is a read-only folder beside the live file
//! system.
//!
//! An inode number of the kernel has 64 bits. The lower 48 are the inode of the file system; the
//! upper 16 are the slot: 0 is the live file system, all ones are the folders `.zfs` and
//! `.zfs/snapshot`, anything else is an open snapshot. So no two files of a mount share a number,
//! and `cp`, `diff` and `tar` tell a file from its older self.
//!
//! A snapshot is open while the kernel remembers an inode of it. If it is destroyed meanwhile,
//! requests to it fail with `ESTALE`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use steadfast_env::insist::{Client, serving};
use steadfast_env::requests::{Origin, Requests};
use steadfast_env::waiting::Span;
use steadfast_format::DatasetId;
use steadfast_fuse::wire::request::Operation;
use steadfast_fuse::{
    Attr, AttrReply, CopyArgs, DirPlusSink, DirSink, Entry, Errno, FallocateArgs, FileKind, Forget, Handler,
    IoctlArgs, Later, Negotiated, OpenArgs, Opened, ReadArgs, ReleaseArgs, RenameArgs, Reply, Request,
    SetAttr, SetXattrArgs, StatFs, ValueSink, Whence, WriteArgs,
};
use steadfast_pool::{SnapshotHandle, SnapshotsOf};
use steadfast_posix::{Caller, FileSystem, Options};

use crate::convert::{self, TTL};
use crate::desk::{Person, SnapshotDesk};
use crate::fsync_waiters::is_dying;
use crate::head::{HeadHandler, counted};
use crate::snapshot_door::SnapshotDoor;
use crate::teller::StillFile;

/// Bits of an inode's number within its file system.
const INODE_BITS: u32 = 48;
const INODE_MASK: u64 = (1 << INODE_BITS) - 1;
/// Slot of the folders that lead to snapshots.
const CONTROL: u64 = 0xffff;
/// The folder `.zfs`.
pub(crate) const ZFS_DIR: u64 = CONTROL << INODE_BITS | 1;
/// The folder `.zfs/snapshot`.
pub(crate) const SNAPSHOT_DIR: u64 = CONTROL << INODE_BITS | 2;
/// The top of a file system.
const TOP: u64 = 1;
const ZFS: &[u8] = b".zfs";
const SNAPSHOT: &[u8] = b"snapshot";
/// Cookie of `.zfs` at the top, after `.` and `..` and before all that a hash gives.
const ZFS_COOKIE: u64 = 3;
const ACCESS_MODE: u32 = 0o3;
const O_TRUNC: u32 = 0o1000;
const RENAME_EXCHANGE: u32 = 2;

/// Part of the mount that an inode belongs to.
enum Part {
    Head,
    /// The folder `.zfs`.
    Zfs,
    /// The folder `.zfs/snapshot`.
    Snapshots,
    /// An open snapshot, and the inode within it.
    Snapshot(Arc<OpenSnapshot>, u64),
}

/// The name of a snapshot, which is text.
fn text(name: &[u8]) -> Reply<&str> {
    std::str::from_utf8(name).map_err(|_| Errno::EINVAL)
}

/// An open snapshot.
struct OpenSnapshot {
    slot: u64,
    fs: FileSystem,
    handle: SnapshotHandle,
    /// References that the kernel has to its inodes.
    refs: AtomicU64,
}

impl OpenSnapshot {
    /// Runs a read on the snapshot, unless it was destroyed.
    fn ask<T>(&self, ask: impl FnOnce(&FileSystem) -> steadfast_posix::Result<T>) -> Reply<T> {
        let answer = self.handle.with(|_| ask(&self.fs));
        answer.ok_or(Errno::ESTALE)?.map_err(convert::errno)
    }

    fn number(&self, ino: u64) -> u64 {
        self.slot << INODE_BITS | ino
    }

    fn attr(&self, found: &steadfast_posix::Attr) -> Attr {
        Attr { ino: self.number(found.ino), ..convert::attr(found) }
    }

    /// An entry for the kernel, which takes a reference with it.
    fn entry(&self, found: &steadfast_posix::Entry, ttl: Duration) -> Entry {
        self.refs.fetch_add(1, Ordering::AcqRel);
        let (ino, attr) = (self.number(found.ino), self.attr(&found.attr));
        Entry { ino, generation: found.generation, attr, entry_ttl: ttl, attr_ttl: TTL }
    }
}

/// Open snapshots, by slot and by number.
#[derive(Default)]
struct OpenSnapshots {
    by_slot: HashMap<u64, Arc<OpenSnapshot>>,
    by_number: HashMap<DatasetId, u64>,
    last: u64,
}

/// A file system with its snapshots.
pub(crate) struct SnapshotFolders {
    /// Held while a request to the live file system runs; alone while its content is exchanged
    /// ([`crate::MountedFs::renew`]).
    pub(crate) head: RwLock<HeadHandler>,
    snapshots: SnapshotsOf,
    options: Options,
    /// Show access control lists; show user attributes.
    shown: [bool; 2],
    /// Time of the mount: the times of the folder `.zfs`.
    since: steadfast_fuse::Time,
    views: RwLock<OpenSnapshots>,
    requests: Arc<Requests>,
    /// Changes snapshots for users of the folder; without it nobody does that there.
    pub(crate) desk: OnceLock<Arc<dyn SnapshotDesk>>,
}

/// How long the kernel may keep attributes of the folders that lead to snapshots: the times of one
/// of them change with the list.
fn folder_ttl(ino: u64) -> Duration {
    if ino == SNAPSHOT_DIR { Duration::ZERO } else { TTL }
}

impl SnapshotFolders {
    pub(crate) fn new(
        head: HeadHandler,
        snapshots: SnapshotsOf,
        options: Options,
        shown: [bool; 2],
    ) -> SnapshotFolders {
        let since = convert::time(head.fs.dataset().now());
        let requests = Arc::clone(&head.requests);
        let (head, views) = (RwLock::new(head), RwLock::default());
        SnapshotFolders { head, snapshots, options, shown, since, views, requests, desk: OnceLock::new() }
    }

    /// The way of network clients to the snapshots.
    pub(crate) fn door(&self) -> SnapshotDoor {
        let since = self.head.read().fs.dataset().now();
        SnapshotDoor::new(self.snapshots.clone(), self.options.clone(), self.shown, since)
    }

    /// Has pages of a file handed over that the kernel may hold back, and waits for them. False if
    /// that is not possible now.
    pub(crate) fn hand_over(&self, ino: u64) -> bool {
        let (collected, file) = {
            let head = self.head.read();
            let Some(file) = head.held(ino) else { return true };
            (Arc::clone(&head.collected), file)
        };
        collected.hand_over_to_client(file)
    }

    /// Has the kernel keep a file still that it may hold pages of, while its size is set.
    pub(crate) fn keep_still(&self, ino: u64) -> Option<StillFile> {
        let (collected, file) = {
            let head = self.head.read();
            (Arc::clone(&head.collected), head.held(ino)?)
        };
        collected.keep_still(file)
    }

    fn part(&self, ino: u64) -> Reply<Part> {
        match ino >> INODE_BITS {
            0 => Ok(Part::Head),
            CONTROL if ino == ZFS_DIR => Ok(Part::Zfs),
            CONTROL if ino == SNAPSHOT_DIR => Ok(Part::Snapshots),
            slot => {
                let view = self.views.read().by_slot.get(&slot).cloned();
                view.map(|view| Part::Snapshot(view, ino & INODE_MASK)).ok_or(Errno::ESTALE)
            }
        }
    }

    /// Refuses a change outside of the live file system.
    fn is_head(&self, ino: u64) -> Reply<()> {
        match self.part(ino)? {
            Part::Head => Ok(()),
            _ => Err(Errno::EROFS),
        }
    }

    /// Refuses a new name outside of the live file system, and `.zfs` at its top.
    fn may_make(&self, parent: u64, name: &[u8]) -> Reply<()> {
        self.is_head(parent)?;
        if parent == TOP && name == ZFS { Err(Errno::EEXIST) } else { Ok(()) }
    }

    /// The same for the removal of a name.
    fn may_remove(&self, parent: u64, name: &[u8]) -> Reply<()> {
        self.is_head(parent)?;
        if parent == TOP && name == ZFS { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Changes a snapshot for a user, where waiting is possible.
    fn at_desk(
        &self,
        req: &Request,
        change: impl FnOnce(&dyn SnapshotDesk, Person) -> Result<(), Errno>,
    ) -> Reply<()> {
        if !req.may_wait {
            return Err(Errno::EAGAIN);
        }
        change(self.desk.get().ok_or(Errno::EROFS)?.as_ref(), Person::from(req)).map_err(
            |errno| match errno {
                // Here it would mean that another thread is to try.
                Errno::EAGAIN => Errno::EBUSY,
                errno => errno,
            },
        )
    }

    fn folder_attr(&self, ino: u64) -> Attr {
        // Everybody may try in the folder of snapshots, where the desk decides.
        let rights = if ino == SNAPSHOT_DIR && self.desk.get().is_some() { 0o777 } else { 0o555 };
        // As in ZFS: the property `snapshots_changed`.
        let changed = match ino {
            SNAPSHOT_DIR => convert::time(steadfast_posix::Time::from_ns(self.snapshots.changed_ns().into())),
            _ => self.since,
        };
        Attr {
            ino,
            atime: self.since,
            mtime: changed,
            ctime: changed,
            btime: Some(self.since),
            mode: steadfast_posix::S_IFDIR | rights,
            nlink: 2,
            blksize: 4096,
            ..Attr::default()
        }
    }

    /// One of the folders that lead to snapshots.
    fn folder(&self, ino: u64) -> Entry {
        let attr = self.folder_attr(ino);
        Entry { ino, generation: 0, attr, entry_ttl: TTL, attr_ttl: folder_ttl(ino) }
    }

    /// Opens a snapshot and gives its top folder.
    fn open_snapshot(&self, name: &[u8]) -> Reply<Entry> {
        // Looked up each time: another snapshot may have the name by then.
        const NAME_TTL: Duration = Duration::ZERO;
        let missing = || Errno::ENOENT;
        let name = std::str::from_utf8(name).map_err(|_| missing())?;
        let handle = self.snapshots.open(name).ok_or_else(missing)?;
        let mut views = self.views.write();
        let known = views.by_number.get(&handle.number()).and_then(|slot| views.by_slot.get(slot)).cloned();
        let view = match known {
            Some(view) => view,
            None => {
                let free = |views: &OpenSnapshots| {
                    (1..CONTROL)
                        .map(|step| (views.last + step - 1) % (CONTROL - 1) + 1)
                        .find(|slot| !views.by_slot.contains_key(slot))
                };
                let slot = free(&views).ok_or(Errno::ENFILE)?;
                views.last = slot;
                let dataset = handle.with(Arc::clone).ok_or_else(missing)?;
                let fs = FileSystem::of_snapshot(dataset, self.options.clone());
                let [acls, attributes] = self.shown;
                fs.set_acls(acls);
                fs.set_user_attributes(attributes);
                views.by_number.insert(handle.number(), slot);
                let view = Arc::new(OpenSnapshot { slot, fs, handle, refs: AtomicU64::new(0) });
                views.by_slot.insert(slot, Arc::clone(&view));
                view
            }
        };
        let top = view.ask(|fs| fs.entry_by_ino(TOP))?;
        Ok(view.entry(&top, NAME_TTL))
    }

    fn forget_view(&self, view: &OpenSnapshot, ino: u64, count: u64) {
        view.fs.forget(ino, count);
        let mut views = self.views.write();
        // Under the lock, so that no lookup finds a snapshot that is being closed.
        if view.refs.fetch_sub(count, Ordering::AcqRel) == count {
            views.by_slot.remove(&view.slot);
            views.by_number.remove(&view.handle.number());
        }
    }

    /// True if a listing from `offset` on shows `.zfs`.
    fn tells_zfs(&self, ino: u64, offset: u64) -> bool {
        ino == TOP && offset < ZFS_COOKIE && self.snapshots.is_visible()
    }

    /// A `.zfs` that is listed counts as a folder of the root.
    fn with_zfs(&self, ino: u64, mut reply: AttrReply) -> AttrReply {
        reply.attr.nlink += u32::from(self.tells_zfs(ino, 0));
        reply
    }

    /// Lists the root with `.zfs`, until `add` (number, cookie, kind, name) has no room.
    fn list_top(&self, offset: u64, mut add: impl FnMut(u64, u64, FileKind, &[u8]) -> bool) -> Reply<()> {
        let mut told = false;
        let take = |found: steadfast_posix::DirEntry| {
            if found.cookie > ZFS_COOKIE && !told {
                told = true;
                if !add(ZFS_DIR, ZFS_COOKIE, FileKind::Directory, ZFS) {
                    return false;
                }
            }
            add(found.ino, found.cookie, FileKind::from_mode(u32::from(found.kind) << 12), &found.name)
        };
        self.head.read().fs.readdir(TOP, offset, take).map_err(convert::errno)?;
        if !told {
            // The folder is empty, or the buffer is full: then `.zfs` does not fit either, and
            // comes with the next call.
            let _ = add(ZFS_DIR, ZFS_COOKIE, FileKind::Directory, ZFS);
        }
        Ok(())
    }

    /// Names of a folder that leads to snapshots, from a cookie on: number, cookie, name.
    fn folder_names(&self, ino: u64, offset: u64) -> Vec<(u64, u64, Vec<u8>)> {
        let above = if ino == ZFS_DIR { TOP } else { ZFS_DIR };
        let mut names = vec![(ino, 1, b".".to_vec()), (above, 2, b"..".to_vec())];
        if ino == ZFS_DIR {
            names.push((SNAPSHOT_DIR, 3, SNAPSHOT.to_vec()));
        } else {
            // Cookies are the snapshots' numbers: a listing continues correctly if snapshots come
            // or go meanwhile.
            let list = self.snapshots.list();
            let listed = list.into_iter().map(|(name, number)| (u64::MAX, number.0 + 2, name.into_bytes()));
            names.extend(listed);
            names.sort_by_key(|(_, cookie, _)| *cookie);
        }
        names.retain(|(_, cookie, _)| *cookie > offset);
        names
    }
}

impl Handler for SnapshotFolders {
    fn init(&self, negotiated: &Negotiated) {
        self.head.read().init(negotiated);
    }

    fn is_quick(&self, operation: &Operation<'_>) -> bool {
        self.head.read().is_quick(operation)
    }

    fn attend(&self, thread: u32, answer: &mut dyn FnMut()) {
        serving(Client { is_dying, thread }, answer);
    }

    fn measure(&self, operation: &Operation<'_>, serve: &mut dyn FnMut() -> bool) {
        let Some(counted) = counted(operation) else {
            serve();
            return;
        };
        let span = Span::begin();
        if serve() {
            self.requests.add(Origin::Local, counted, &span.split());
        }
    }

    fn destroy(&self) {
        *self.views.write() = OpenSnapshots::default();
        self.head.read().destroy();
    }

    fn lookup(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<Entry> {
        match self.part(parent)? {
            Part::Head if parent == TOP && name == ZFS => Ok(self.folder(ZFS_DIR)),
            Part::Head => self.head.read().lookup(req, parent, name),
            Part::Zfs => match name {
                b"." => Ok(self.folder(ZFS_DIR)),
                b".." => self.head.read().lookup(req, TOP, b"."),
                SNAPSHOT => Ok(self.folder(SNAPSHOT_DIR)),
                _ => Err(Errno::ENOENT),
            },
            Part::Snapshots => match name {
                b"." => Ok(self.folder(SNAPSHOT_DIR)),
                b".." => Ok(self.folder(ZFS_DIR)),
                name => self.open_snapshot(name),
            },
            Part::Snapshot(_, TOP) if name == b".." => Ok(self.folder(SNAPSHOT_DIR)),
            Part::Snapshot(view, ino) => {
                let found = view.ask(|fs| fs.lookup(ino, name))?;
                Ok(view.entry(&found, TTL))
            }
        }
    }

    fn forget(&self, forgets: &[Forget]) {
        for forget in forgets {
            match self.part(forget.ino) {
                Ok(Part::Head) => self.head.read().forget(std::slice::from_ref(forget)),
                Ok(Part::Snapshot(view, ino)) => self.forget_view(&view, ino, forget.nlookup),
                _ => {}
            }
        }
    }

    fn getattr(&self, req: &Request, ino: u64, fh: Option<u64>) -> Reply<AttrReply> {
        match self.part(ino)? {
            Part::Head => Ok(self.with_zfs(ino, self.head.read().getattr(req, ino, fh)?)),
            Part::Snapshot(view, ino) => {
                let found = view.ask(|fs| fs.getattr(ino))?;
                Ok(AttrReply { attr: view.attr(&found), ttl: TTL })
            }
            Part::Zfs | Part::Snapshots => {
                Ok(AttrReply { attr: self.folder_attr(ino), ttl: folder_ttl(ino) })
            }
        }
    }

    fn setattr(&self, req: &Request, ino: u64, set: &SetAttr) -> Reply<AttrReply> {
        self.is_head(ino)?;
        Ok(self.with_zfs(ino, self.head.read().setattr(req, ino, set)?))
    }

    fn readlink(&self, req: &Request, ino: u64) -> Reply<Vec<u8>> {
        match self.part(ino)? {
            Part::Head => self.head.read().readlink(req, ino),
            Part::Snapshot(view, ino) => view.ask(|fs| fs.readlink(ino)),
            Part::Zfs | Part::Snapshots => Err(Errno::EINVAL),
        }
    }

    fn symlink(&self, req: &Request, parent: u64, name: &[u8], target: &[u8]) -> Reply<Entry> {
        self.may_make(parent, name)?;
        self.head.read().symlink(req, parent, name, target)
    }

    fn mknod(&self, req: &Request, parent: u64, name: &[u8], mode: u32, rdev: u32) -> Reply<Entry> {
        self.may_make(parent, name)?;
        self.head.read().mknod(req, parent, name, mode, rdev)
    }

    fn mkdir(&self, req: &Request, parent: u64, name: &[u8], mode: u32) -> Reply<Entry> {
        if parent == SNAPSHOT_DIR {
            let snapshot = text(name)?;
            self.at_desk(req, |desk, person| desk.take(person, snapshot))?;
            return self.open_snapshot(name);
        }
        self.may_make(parent, name)?;
        self.head.read().mkdir(req, parent, name, mode)
    }

    fn unlink(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<()> {
        self.may_remove(parent, name)?;
        self.head.read().unlink(req, parent, name)
    }

    fn rmdir(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<()> {
        if parent == SNAPSHOT_DIR {
            let snapshot = text(name)?;
            return self.at_desk(req, |desk, person| desk.destroy(person, snapshot));
        }
        self.may_remove(parent, name)?;
        self.head.read().rmdir(req, parent, name)
    }

    fn rename(&self, req: &Request, args: &RenameArgs<'_>) -> Reply<()> {
        if (args.parent, args.new_parent) == (SNAPSHOT_DIR, SNAPSHOT_DIR) {
            if args.flags & RENAME_EXCHANGE != 0 {
                return Err(Errno::EINVAL);
            }
            let (snapshot, to) = (text(args.name)?, text(args.new_name)?);
            return self.at_desk(req, |desk, person| desk.rename(person, snapshot, to));
        }
        self.may_remove(args.parent, args.name)?;
        self.may_make(args.new_parent, args.new_name)?;
        self.head.read().rename(req, args)
    }

    fn link(&self, req: &Request, ino: u64, new_parent: u64, new_name: &[u8]) -> Reply<Entry> {
        self.is_head(ino)?;
        self.may_make(new_parent, new_name)?;
        self.head.read().link(req, ino, new_parent, new_name)
    }

    fn open(&self, req: &Request, ino: u64, args: &OpenArgs) -> Reply<Opened> {
        match self.part(ino)? {
            Part::Head => self.head.read().open(req, ino, args),
            _ if args.flags & (ACCESS_MODE | O_TRUNC) != 0 => Err(Errno::EROFS),
            _ => Ok(Opened { keep_cache: true, no_flush: true, ..Opened::default() }),
        }
    }

    fn release(&self, req: &Request, args: &ReleaseArgs) -> Reply<()> {
        match self.part(args.ino) {
            Ok(Part::Head) => self.head.read().release(req, args),
            _ => Ok(()),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        args: &OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        self.may_make(parent, name)?;
        self.head.read().create(req, parent, name, mode, args)
    }

    fn tmpfile(&self, req: &Request, parent: u64, mode: u32, args: &OpenArgs) -> Reply<(Entry, Opened)> {
        self.is_head(parent)?;
        self.head.read().tmpfile(req, parent, mode, args)
    }

    fn read(&self, req: &Request, args: &ReadArgs, out: &mut [u8]) -> Reply<usize> {
        match self.part(args.ino)? {
            Part::Head => self.head.read().read(req, args, out),
            Part::Snapshot(view, ino) => view.ask(|fs| fs.read(ino, args.offset, out)),
            Part::Zfs | Part::Snapshots => Err(Errno::EISDIR),
        }
    }

    fn write(&self, req: &Request, args: &WriteArgs, data: &[u8]) -> Reply<usize> {
        self.is_head(args.ino)?;
        self.head.read().write(req, args, data)
    }

    fn statfs(&self, req: &Request, ino: u64) -> Reply<StatFs> {
        self.head.read().statfs(req, ino)
    }

    fn opendir(&self, req: &Request, ino: u64, args: &OpenArgs) -> Reply<Opened> {
        self.head.read().opendir(req, ino, args)
    }

    fn flush(&self, req: &Request, ino: u64, fh: u64, lock_owner: u64) -> Reply<()> {
        self.head.read().flush(req, ino, fh, lock_owner)
    }

    fn fsync(&self, req: &Request, ino: u64, fh: u64, datasync: bool) -> Reply<()> {
        match self.part(ino)? {
            Part::Head => self.head.read().fsync(req, ino, fh, datasync),
            _ => Ok(()),
        }
    }

    fn fsyncdir(&self, req: &Request, ino: u64, fh: u64, datasync: bool) -> Reply<()> {
        match self.part(ino)? {
            Part::Head => self.head.read().fsyncdir(req, ino, fh, datasync),
            _ => Ok(()),
        }
    }

    fn fsync_later(&self, req: &Request, ino: u64, later: Later) -> Option<Later> {
        match self.part(ino) {
            Ok(Part::Head) => self.head.read().fsync_later(req, ino, later),
            _ => Some(later),
        }
    }

    fn syncfs(&self, req: &Request, ino: u64) -> Reply<()> {
        self.head.read().syncfs(req, ino)
    }

    fn setxattr(&self, req: &Request, args: &SetXattrArgs<'_>) -> Reply<()> {
        self.is_head(args.ino)?;
        self.head.read().setxattr(req, args)
    }

    fn getxattr(&self, req: &Request, ino: u64, name: &[u8], out: &mut ValueSink<'_>) -> Reply<()> {
        match self.part(ino)? {
            Part::Head => self.head.read().getxattr(req, ino, name, out),
            Part::Snapshot(view, ino) => out.put(&view.ask(|fs| fs.getxattr(ino, name))?),
            Part::Zfs | Part::Snapshots => Err(Errno::ENODATA),
        }
    }

    fn listxattr(&self, req: &Request, ino: u64, out: &mut ValueSink<'_>) -> Reply<()> {
        let Part::Snapshot(view, ino) = self.part(ino)? else {
            return if ino >> INODE_BITS == 0 { self.head.read().listxattr(req, ino, out) } else { Ok(()) };
        };
        let caller = Caller { uid: req.uid, gid: req.gid, umask: 0 };
        for name in view.ask(|fs| fs.listxattr(caller, ino))? {
            out.put(&name)?;
            out.put(&[0])?;
        }
        Ok(())
    }

    fn removexattr(&self, req: &Request, ino: u64, name: &[u8]) -> Reply<()> {
        self.is_head(ino)?;
        self.head.read().removexattr(req, ino, name)
    }

    fn readdir(&self, req: &Request, ino: u64, fh: u64, offset: u64, out: &mut DirSink<'_>) -> Reply<()> {
        match self.part(ino)? {
            Part::Head if self.tells_zfs(ino, offset) => {
                self.list_top(offset, |number, cookie, kind, name| out.add(number, cookie, kind, name))
            }
            Part::Head => self.head.read().readdir(req, ino, fh, offset, out),
            Part::Zfs | Part::Snapshots => {
                let mut names = self.folder_names(ino, offset).into_iter();
                // Until the buffer is full.
                let _ =
                    names.all(|(number, cookie, name)| out.add(number, cookie, FileKind::Directory, &name));
                Ok(())
            }
            Part::Snapshot(view, ino) => view.ask(|fs| {
                fs.readdir(ino, offset, |found| {
                    let kind = FileKind::from_mode(u32::from(found.kind) << 12);
                    out.add(view.number(found.ino), found.cookie, kind, &found.name)
                })
            }),
        }
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: u64,
        fh: u64,
        offset: u64,
        out: &mut DirPlusSink<'_>,
    ) -> Reply<()> {
        match self.part(ino)? {
            // Only names; the kernel asks for attributes later.
            Part::Head if self.tells_zfs(ino, offset) => {
                self.list_top(offset, |number, cookie, kind, name| out.add_bare(number, cookie, kind, name))
            }
            Part::Head => self.head.read().readdirplus(req, ino, fh, offset, out),
            Part::Zfs | Part::Snapshots => {
                let mut names = self.folder_names(ino, offset).into_iter();
                // Until the buffer is full.
                let _ = names
                    .all(|(number, cookie, name)| out.add_bare(number, cookie, FileKind::Directory, &name));
                Ok(())
            }
            Part::Snapshot(view, ino) => view.ask(|fs| {
                fs.readdir(ino, offset, |found| {
                    let kind = FileKind::from_mode(u32::from(found.kind) << 12);
                    let bare = matches!(&found.name[..], b"." | b"..");
                    match fs.entry_by_ino(found.ino) {
                        Ok(known) if !bare => {
                            let taken = out.add(found.cookie, &found.name, &view.entry(&known, TTL));
                            if !taken {
                                view.refs.fetch_sub(1, Ordering::AcqRel);
                                fs.forget(found.ino, 1);
                            }
                            taken
                        }
                        known => {
                            if known.is_ok() {
                                fs.forget(found.ino, 1);
                            }
                            out.add_bare(view.number(found.ino), found.cookie, kind, &found.name)
                        }
                    }
                })
            }),
        }
    }

    fn ioctl(&self, req: &Request, args: &IoctlArgs<'_>, out: &mut [u8]) -> Reply<(i32, usize)> {
        self.is_head(args.ino).map_err(|_| Errno::ENOTTY)?;
        self.head.read().ioctl(req, args, out)
    }

    fn fallocate(&self, req: &Request, args: &FallocateArgs) -> Reply<()> {
        self.is_head(args.ino)?;
        self.head.read().fallocate(req, args)
    }

    fn lseek(&self, req: &Request, ino: u64, fh: u64, offset: u64, whence: Whence) -> Reply<u64> {
        match self.part(ino)? {
            Part::Head => self.head.read().lseek(req, ino, fh, offset, whence),
            Part::Snapshot(view, ino) => view.ask(|fs| fs.seek(ino, offset, matches!(whence, Whence::Data))),
            Part::Zfs | Part::Snapshots => Err(Errno::EINVAL),
        }
    }

    fn copy_file_range(&self, req: &Request, args: &CopyArgs) -> Reply<u64> {
        // The kernel copies between two file systems by itself.
        self.is_head(args.ino_in).map_err(|_| Errno::EXDEV)?;
        self.is_head(args.ino_out)?;
        self.head.read().copy_file_range(req, args)
    }
}
