//! The procedures of NFS 3, as calls of `posix`.

use crate::acl3;
use crate::export::{Export, Note, SnapshotChange, View};
use crate::handle::{FileId, LIVE, SIZE_MAX, Signed};
use crate::nfs3::{
    Call, Handle, HowToCreate, NewAttributes, SetTime, Stable, Status, TRANSFER_MAX, access, device_number,
    kind, write_attributes, write_entry, write_post, write_wcc,
};
use crate::reply::Reply;
use crate::rpc;
use crate::snapshot_folders::{Folder, ZFS, ZFS_COOKIE};
use crate::spare;
use crate::xdr::Writer;
use std::sync::Arc;
use steadfast_posix::requests;
use steadfast_posix::{
    AclKind, Attr, Caller, Entry, Errno, FileSystem, Identity, MAY_EXECUTE, MAY_READ, MAY_WRITE, S_IFDIR,
    S_IFMT, S_IFREG, SetAttr, SetIds, Time,
};

/// Longest answer of a listing.
const LISTING_MAX: usize = 256 << 10;
/// Bytes of an entry in a listing with attributes, its name taken for 16 bytes.
const LISTED_BYTES: usize = 24 + 16 + POST_BYTES + 8 + SIZE_MAX;
/// Bytes of attributes that are there (`post_op_attr`).
const POST_BYTES: usize = 88;
/// Shorter reads are copied: that costs less than a piece of its own.
const SHARED_MIN: usize = 16 << 10;
/// Most pieces of one reply (`UIO_MAXIOV` without the head and the padding).
const PARTS_MAX: usize = 1_022;
/// The top of a file system.
pub(crate) const TOP: u64 = 1;

pub(crate) type Result<T, E = Status> = std::result::Result<T, E>;

/// The end of a request within its volume.
pub(crate) enum Outcome {
    /// The reply.
    Done(Reply),
    /// The reply, once an inode is durable.
    Durable {
        /// The file system.
        fs: Arc<FileSystem>,
        /// The inode.
        ino: u64,
        /// The reply.
        reply: Vec<u8>,
    },
    /// A snapshot is to be changed. That is done outside of the volume, and answered behind it.
    Snapshot(SnapshotChange),
}

impl From<Vec<u8>> for Outcome {
    fn from(reply: Vec<u8>) -> Outcome {
        Outcome::Done(reply.into())
    }
}

/// A file that a handle names, with a reference while this lives.
struct Held<'a> {
    fs: &'a FileSystem,
    ino: u64,
    attr: Attr,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.fs.forget(self.ino, 1);
    }
}

/// A file before a change.
struct Before {
    ino: u64,
    /// How often it had been changed.
    changes: u64,
    attr: Attr,
}

impl Held<'_> {
    /// The state to compare with when the change is made. None if it cannot be read: a reply can do
    /// without.
    fn look(&self) -> Option<Before> {
        // The number first: a change between the two counts as another one's.
        let changes = self.fs.changes(self.ino).ok()?;
        Some(Before { ino: self.ino, changes, attr: self.fs.getattr(self.ino).ok()? })
    }

    fn is_directory(&self) -> bool {
        self.attr.mode & S_IFMT == S_IFDIR
    }
}

/// One request.
#[derive(Clone, Copy)]
pub(crate) struct Operation<'a> {
    pub view: &'a View<'a>,
    pub export: &'a Export,
    pub who: Identity<'a>,
    pub read_only: bool,
    pub xid: u32,
    /// The snapshot that `view` shows, or [`LIVE`].
    pub snapshot: u64,
}

/// The file of a handle; or the one of a name, if there is any, in the directory of the handle.
pub(crate) struct ContentOf<'a> {
    handle: Handle<'a>,
    name: Option<&'a [u8]>,
}

impl ContentOf<'_> {
    /// Its inode in the live file system.
    pub(crate) fn find(&self, export: &Export) -> Option<u64> {
        let at = export.key.open(self.handle).filter(|at| at.snapshot == LIVE)?;
        let Some(name) = self.name else { return Some(at.ino) };
        let mut found = None;
        export.volume.enter(&mut |view| {
            found = view.fs.lookup(at.ino, name).ok().map(|found| found.ino);
            found.iter().for_each(|ino| view.fs.forget(*ino, 1));
        });
        found
    }
}

impl Call<'_> {
    /// The handle by which the export is found.
    pub(crate) fn handle(&self) -> Handle<'_> {
        match self {
            Call::Null => &[],
            Call::Getattr { object }
            | Call::Setattr { object, .. }
            | Call::Access { object, .. }
            | Call::Readlink { object }
            | Call::Getacl { object, .. }
            | Call::Setacl { object, .. }
            | Call::Pathconf { object } => object,
            Call::Lookup { dir, .. }
            | Call::Create { dir, .. }
            | Call::Mkdir { dir, .. }
            | Call::Symlink { dir, .. }
            | Call::Mknod { dir, .. }
            | Call::Remove { dir, .. }
            | Call::Rmdir { dir, .. }
            | Call::Readdir { dir, .. }
            | Call::Readdirplus { dir, .. } => dir,
            Call::Read { file, .. }
            | Call::Write { file, .. }
            | Call::Link { file, .. }
            | Call::Commit { file, .. } => file,
            Call::Rename { from, .. } => from,
            Call::Fsstat { root } | Call::Fsinfo { root } => root,
        }
    }

    /// The file whose content the call reads, tells of or changes.
    pub(crate) fn content(&self) -> Option<ContentOf<'_>> {
        match self {
            Call::Getattr { .. }
            | Call::Setattr { .. }
            | Call::Read { .. }
            | Call::Write { .. }
            | Call::Commit { .. } => Some(ContentOf { handle: self.handle(), name: None }),
            Call::Create { dir, name, how: HowToCreate::Unchecked(new) } if new.size.is_some() => {
                Some(ContentOf { handle: dir, name: Some(name) })
            }
            _ => None,
        }
    }

    /// True if the call sets the size of a file that there is.
    pub(crate) fn sets_size(&self) -> bool {
        match self {
            Call::Setattr { new, .. } | Call::Create { how: HowToCreate::Unchecked(new), .. } => {
                new.size.is_some()
            }
            _ => false,
        }
    }

    /// True if the call may be carried out twice with the same result.
    pub(crate) fn is_repeatable(&self) -> bool {
        !matches!(
            self,
            Call::Setattr { .. }
                | Call::Setacl { .. }
                | Call::Create { .. }
                | Call::Mkdir { .. }
                | Call::Symlink { .. }
                | Call::Mknod { .. }
                | Call::Remove { .. }
                | Call::Rmdir { .. }
                | Call::Rename { .. }
                | Call::Link { .. }
        )
    }

    /// The operation as it is counted.
    pub(crate) fn counted(&self) -> requests::Operation {
        use requests::Operation as Counted;
        match self {
            Call::Getattr { .. } | Call::Access { .. } | Call::Getacl { .. } => Counted::Getattr,
            Call::Setattr { .. } | Call::Setacl { .. } => Counted::Setattr,
            Call::Lookup { .. } => Counted::Lookup,
            Call::Readlink { .. } => Counted::Readlink,
            Call::Read { .. } => Counted::Read,
            Call::Write { .. } => Counted::Write,
            Call::Create { .. } => Counted::Create,
            Call::Mkdir { .. } => Counted::Mkdir,
            Call::Symlink { .. } | Call::Mknod { .. } | Call::Link { .. } => Counted::Link,
            Call::Remove { .. } => Counted::Remove,
            Call::Rmdir { .. } => Counted::Rmdir,
            Call::Rename { .. } => Counted::Rename,
            Call::Readdir { .. } | Call::Readdirplus { .. } => Counted::List,
            Call::Commit { .. } => Counted::Sync,
            Call::Null | Call::Fsstat { .. } | Call::Fsinfo { .. } | Call::Pathconf { .. } => Counted::Other,
        }
    }

    fn is_change(&self) -> bool {
        !self.is_repeatable() || matches!(self, Call::Write { .. })
    }
}

impl Operation<'_> {
    /// Carries a call out, on the live file system or where its handle leads. Notes say what it
    /// changed, even if it failed then.
    pub(crate) fn run(&self, call: &Call<'_>, notes: &mut Vec<Note>) -> Result<Outcome> {
        let file = self.export.key.open(call.handle()).ok_or(Status::BADHANDLE)?;
        let is_live = file.snapshot == LIVE;
        if !self.read_only
            && let Some(change) = Folder::of(file).and_then(|folder| folder.change(self.export, call))
        {
            return change.map(Outcome::Snapshot);
        }
        // [nfs_snapshot.1]
        if call.is_change() && (self.read_only || !is_live) {
            return Err(Status::ROFS);
        }
        if let Some(folder) = Folder::of(file) {
            return self.run_on_folder(folder, call).map(Outcome::from);
        }
        if is_live {
            return self.run_here(file, call, notes);
        }
        let read = |fs: &Arc<FileSystem>| {
            let view = self.view_of_snapshot(fs);
            let within = Operation { view: &view, snapshot: file.snapshot, read_only: true, ..*self };
            within.run_here(file, call, notes)
        };
        self.view.on(file.snapshot, read).unwrap_or(Err(Status::STALE))
    }

    pub(crate) fn view_of_snapshot<'v>(&self, fs: &'v Arc<FileSystem>) -> View<'v>
    where
        Self: 'v,
    {
        View { fs, verifier: self.view.verifier, read_only: true, snapshots: self.view.snapshots }
    }

    fn run_here(&self, file: FileId, call: &Call<'_>, notes: &mut Vec<Note>) -> Result<Outcome> {
        let file = self.hold(file)?;
        self.check_names(file.ino, call)?;
        let mut out = rpc::reply(self.xid);
        out.u32(Status::OK.0);
        // The inode that has to be durable before the client hears of it.
        let mut durable = None;
        match call {
            Call::Null => {}
            Call::Getattr { .. } => write_attributes(&mut out, self.fsid(), &file.attr),
            Call::Setattr { new, guard, .. } => {
                self.setattr(&file, new, *guard, notes, &mut out)?;
                durable = Some(file.ino);
            }
            Call::Getacl { wanted, .. } => self.getacl(&file, *wanted, &mut out)?,
            Call::Setacl { access, default, .. } => {
                self.setacl(&file, access.as_deref(), default.as_deref(), notes)?;
                self.post(&mut out, self.attr(file.ino).as_ref());
                durable = Some(file.ino);
            }
            Call::Lookup { name, .. } => return self.lookup(&file, name).map(Outcome::from),
            Call::Access { rights, .. } => {
                let granted = self.access(&file, *rights)?;
                self.post(&mut out, Some(&file.attr));
                out.u32(granted);
            }
            Call::Readlink { .. } => {
                let target = self.fs().readlink(file.ino)?;
                self.post(&mut out, self.attr(file.ino).as_ref());
                out.opaque(&target);
            }
            Call::Read { offset, count, .. } => {
                return self.read(&file, *offset, *count, out).map(Outcome::Done);
            }
            Call::Write { offset, count, stable, data, .. } => {
                let count = data.len().min(*count as usize);
                let before = file.look();
                self.write(&file, *offset, &data[..count], notes)?;
                self.wcc(&mut out, &file, before, u64::from(count > 0));
                let kept = if *stable == Stable::No { Stable::No } else { Stable::File };
                out.u32(count as u32).u32(kept as u32).fixed(&self.view.verifier);
                if *stable != Stable::No {
                    return Ok(self.durable(file.ino, out));
                }
            }
            Call::Create { name, how, .. } => {
                let before = file.look();
                let (made, is_new) = self.create(&file, name, how, notes)?;
                self.made(&mut out, (&file, before), &made, is_new);
                durable = Some(file.ino);
            }
            Call::Mkdir { name, new, .. } => {
                let before = file.look();
                let make = |caller, mode| self.fs().mkdir(caller, file.ino, name, mode);
                let made = self.make(&file, name, S_IFDIR, new, notes, make)?;
                self.made(&mut out, (&file, before), &made, true);
                durable = Some(file.ino);
            }
            Call::Symlink { name, new, target, .. } => {
                let make = |caller, _| self.fs().symlink(caller, file.ino, name, target);
                let new = NewAttributes { mode: None, size: None, ..*new };
                let before = file.look();
                let made = self.make(&file, name, 0, &new, notes, make)?;
                self.made(&mut out, (&file, before), &made, true);
                durable = Some(file.ino);
            }
            Call::Mknod { name, kind, new, device, .. } => {
                let before = file.look();
                let made = self.mknod(&file, name, *kind, new, *device, notes)?;
                self.made(&mut out, (&file, before), &made, true);
                durable = Some(file.ino);
            }
            Call::Remove { name, .. } | Call::Rmdir { name, .. } => {
                let before = file.look();
                self.remove(&file, name, matches!(call, Call::Rmdir { .. }), notes)?;
                self.wcc(&mut out, &file, before, 1);
                durable = Some(file.ino);
            }
            Call::Rename { name, to, new_name, .. } => {
                let target = self.second(to)?;
                if target.ino == TOP && *new_name == ZFS {
                    return Err(Status::EXIST);
                }
                let before = [file.look(), target.look()];
                let moves = self.rename((&file, name), (&target, new_name), notes)?;
                // A directory within which a name moves is changed twice.
                let own = if file.ino == target.ino { 2 } else { 1 };
                let [from, to] = before.map(|before| before.filter(|_| moves));
                self.wcc(&mut out, &file, from, own);
                self.wcc(&mut out, &target, to, own);
                durable = Some(target.ino);
            }
            Call::Link { dir, name, .. } => {
                let directory = self.second(dir)?;
                if directory.ino == TOP && *name == ZFS {
                    return Err(Status::EXIST);
                }
                self.fs().check_add(&self.who, directory.ino)?;
                let before = directory.look();
                let linked = self.fs().link(file.ino, directory.ino, name)?;
                self.fs().forget(linked.ino, 1);
                notes.extend([Note::Name(directory.ino, name.to_vec()), Note::Attributes(directory.ino)]);
                notes.push(Note::Attributes(file.ino));
                self.post(&mut out, self.attr(file.ino).as_ref());
                self.wcc(&mut out, &directory, before, 1);
                durable = Some(directory.ino);
            }
            Call::Readdir { cookie, count, .. } => {
                self.fs().check(&self.who, file.ino, MAY_READ)?;
                self.readdir(&file, *cookie, *count as usize, &mut out)?;
            }
            Call::Readdirplus { cookie, maxcount, .. } => {
                self.fs().check(&self.who, file.ino, MAY_READ)?;
                self.readdir_plus(&file, *cookie, *maxcount as usize, &mut out)?;
            }
            Call::Fsstat { .. } => self.fsstat(&file.attr, &mut out),
            Call::Fsinfo { .. } => self.fsinfo(&file.attr, &mut out),
            Call::Pathconf { .. } => self.pathconf(&file.attr, &mut out),
            Call::Commit { .. } => {
                let before = file.look();
                self.wcc(&mut out, &file, before, 0);
                out.fixed(&self.view.verifier);
                return Ok(self.durable(file.ino, out));
            }
        }
        match durable.filter(|_| self.export.options.sync) {
            Some(ino) => Ok(self.durable(ino, out)),
            None => Ok(rpc::record(out).into()),
        }
    }

    fn fs(&self) -> &FileSystem {
        self.view.fs
    }

    pub(crate) fn fsid(&self) -> u64 {
        // Two file systems of one daemon must differ, and one must stay itself.
        let of_snapshot = self.snapshot.rotate_left(24);
        self.export.id.pool ^ self.export.id.dataset.rotate_left(48) ^ of_snapshot
    }

    fn durable(&self, ino: u64, out: Writer) -> Outcome {
        Outcome::Durable { fs: Arc::clone(self.view.fs), ino, reply: rpc::record(out) }
    }

    /// The file that a handle names.
    fn hold(&self, file: FileId) -> Result<Held<'_>> {
        if file.snapshot != self.snapshot {
            return Err(Status::ROFS);
        }
        let found = self.fs().lookup(file.ino, b".").map_err(|errno| match errno {
            // Nothing but a file that is gone: the number was ours.
            Errno::ENOENT | Errno::ESTALE => Status::STALE,
            errno => errno.into(),
        })?;
        let held = Held { fs: self.fs(), ino: found.ino, attr: found.attr };
        if found.generation == file.generation { Ok(held) } else { Err(Status::STALE) }
    }

    /// The second handle of a request.
    fn second(&self, handle: Handle<'_>) -> Result<Held<'_>> {
        match crate::handle::export_of(handle) {
            None => Err(Status::BADHANDLE),
            Some(id) if id != self.export.id => Err(Status::XDEV),
            Some(_) => self.hold(self.export.key.open(handle).ok_or(Status::BADHANDLE)?),
        }
    }

    /// Attributes as they are now; none if the file went meanwhile.
    fn attr(&self, ino: u64) -> Option<Attr> {
        self.fs().getattr(ino).ok()
    }

    pub(crate) fn post(&self, out: &mut Writer, attr: Option<&Attr>) {
        write_post(out, self.fsid(), attr);
    }

    /// Attributes before and after `own` changes; those before only if nobody else made any.
    fn wcc(&self, out: &mut Writer, file: &Held<'_>, before: Option<Before>, own: u64) {
        let after = self.attr(file.ino);
        let is_ours = |before: &Before| {
            self.fs().changes(before.ino).is_ok_and(|changes| changes == before.changes + own)
        };
        let before = before.filter(is_ours).map(|before| before.attr);
        write_wcc(out, self.fsid(), before.as_ref(), after.as_ref());
    }

    pub(crate) fn sign(&self, ino: u64, generation: u64) -> Signed {
        self.export.key.give(self.export.id, FileId { snapshot: self.snapshot, ino, generation })
    }

    /// Results of what made a name: the handle, its attributes, those of the directory.
    fn made(
        &self,
        out: &mut Writer,
        (directory, before): (&Held<'_>, Option<Before>),
        made: &Entry,
        is_new: bool,
    ) {
        out.bool(true).opaque(&self.sign(made.ino, made.generation));
        self.post(out, self.attr(made.ino).as_ref());
        self.wcc(out, directory, before, u64::from(is_new));
    }

    fn lookup(&self, directory: &Held<'_>, name: &[u8]) -> Result<Vec<u8>> {
        if !directory.is_directory() {
            return Err(Status::NOTDIR);
        }
        self.fs().check(&self.who, directory.ino, MAY_EXECUTE)?;
        if directory.ino == TOP {
            match name {
                ZFS if self.snapshot == LIVE => return Ok(self.found_folder(Folder::Zfs, &directory.attr)),
                b".." if self.snapshot != LIVE => {
                    return Ok(self.found_folder(Folder::Snapshots, &directory.attr));
                }
                _ => {}
            }
        }
        let found = match self.fs().lookup(directory.ino, name) {
            Err(Errno::ENOENT) => return Ok(self.found_nothing(&directory.attr)),
            found => found?,
        };
        self.fs().forget(found.ino, 1);
        let mut out = rpc::reply(self.xid);
        out.u32(Status::OK.0).opaque(&self.sign(found.ino, found.generation));
        self.post(&mut out, Some(&found.attr));
        self.post(&mut out, Some(&directory.attr));
        Ok(rpc::record(out))
    }

    fn access(&self, file: &Held<'_>, rights: u32) -> Result<u32> {
        let is_directory = file.is_directory();
        let mut granted = 0;
        let needs = [
            (access::READ, MAY_READ, true),
            (access::LOOKUP, MAY_EXECUTE, is_directory),
            (access::MODIFY, if is_directory { MAY_WRITE | MAY_EXECUTE } else { MAY_WRITE }, !self.read_only),
            (access::EXTEND, if is_directory { MAY_WRITE | MAY_EXECUTE } else { MAY_WRITE }, !self.read_only),
            (access::DELETE, MAY_WRITE | MAY_EXECUTE, is_directory && !self.read_only),
            (access::EXECUTE, MAY_EXECUTE, !is_directory),
        ];
        for (right, needed, applies) in needs {
            if rights & right != 0 && applies && self.fs().may(&self.who, file.ino, needed)? {
                granted |= right;
            }
        }
        Ok(granted)
    }

    fn getacl(&self, file: &Held<'_>, wanted: u32, out: &mut Writer) -> Result<()> {
        let stored = |kind: AclKind| match self.fs().getxattr(file.ino, kind.name()) {
            Ok(list) => Ok(Some(list)),
            Err(Errno::ENODATA) => Ok(None),
            Err(errno) => Err(errno),
        };
        let (access, default) = (stored(AclKind::Access)?, stored(AclKind::Default)?);
        let attr = self.attr(file.ino).unwrap_or(file.attr);
        self.post(out, Some(&attr));
        let of_file = (attr.mode, attr.uid, attr.gid);
        acl3::write(out, wanted, access.as_deref(), default.as_deref(), of_file);
        Ok(())
    }

    /// Sets those lists that are given; one without entries takes the stored one away.
    fn setacl(
        &self,
        file: &Held<'_>,
        access: Option<&[u8]>,
        default: Option<&[u8]>,
        notes: &mut Vec<Note>,
    ) -> Result<()> {
        // Lists are their owner's, as the mode is, and set-gid goes as it would then.
        let mut set = SetAttr { mode: Some(file.attr.mode), ..SetAttr::default() };
        self.fs().check_setattr(&self.who, file.ino, &mut set)?;
        let kill_sgid = set.mode != Some(file.attr.mode);
        notes.push(Note::Attributes(file.ino));
        for (kind, list) in [(AclKind::Access, access), (AclKind::Default, default)] {
            if let Some(list) = list {
                self.fs().set_acl(file.ino, kind, list, kill_sgid)?;
            }
        }
        Ok(())
    }

    fn read(&self, file: &Held<'_>, offset: u64, count: u32, mut out: Writer) -> Result<Reply> {
        // The right to run a program is enough to load it.
        if !self.fs().may(&self.who, file.ino, MAY_EXECUTE)? || file.is_directory() {
            self.fs().check_content(&self.who, file.ino, MAY_READ)?;
        }
        let count = TRANSFER_MAX.min(count as usize);
        let write_head = |out: &mut Writer, read: usize| {
            let attr = self.attr(file.ino).unwrap_or(file.attr);
            self.post(out, Some(&attr));
            let is_end = offset.saturating_add(read as u64) >= attr.size;
            out.u32(read as u32).bool(is_end).u32(read as u32);
        };
        if count >= SHARED_MIN
            && let Some(content) = self.fs().read_shared(file.ino, offset, count)?
            && content.len() <= PARTS_MAX
        {
            write_head(&mut out, content.iter().map(|part| part.len()).sum());
            return Ok(Reply::with_content(out, content));
        }
        let at = out.out.len();
        let data = at + POST_BYTES + 12;
        spare::lengthen(&mut out.out, data + count);
        let read = self.fs().read(file.ino, offset, &mut out.out[data..])?;
        out.out.truncate(data + read);
        out.pad(read);
        let mut head = Writer { out: Vec::with_capacity(POST_BYTES + 12) };
        write_head(&mut head, read);
        out.out[at..data].copy_from_slice(&head.out);
        Ok(rpc::record(out).into())
    }

    /// Set-id bits go with a change of content, unless root makes it.
    fn changing<R>(&self, act: impl FnOnce(SetIds<'_>) -> R) -> R {
        let is_of = |gid| self.who.is_of(gid);
        act(if self.who.is_root() { SetIds::Stay } else { SetIds::Go(&is_of) })
    }

    fn write(&self, file: &Held<'_>, offset: u64, data: &[u8], notes: &mut Vec<Note>) -> Result<()> {
        self.fs().check_content(&self.who, file.ino, MAY_WRITE)?;
        self.changing(|set_ids| self.fs().write_for_network(file.ino, offset, data, set_ids))?;
        notes.push(Note::Content(file.ino, offset, data.len() as u64));
        Ok(())
    }

    fn setattr(
        &self,
        file: &Held<'_>,
        new: &NewAttributes,
        guard: Option<Time>,
        notes: &mut Vec<Note>,
        out: &mut Writer,
    ) -> Result<()> {
        if guard.is_some_and(|guard| guard != file.attr.ctime) {
            return Err(Status::NOT_SYNC);
        }
        let before = file.look();
        self.set(file.ino, new, notes)?;
        self.wcc(out, file, before, 1);
        Ok(())
    }

    fn set(&self, ino: u64, new: &NewAttributes, notes: &mut Vec<Note>) -> Result<()> {
        let time = |time: Option<SetTime>| {
            time.map(|time| match time {
                SetTime::Now => steadfast_posix::SetTime::Now,
                SetTime::To(time) => steadfast_posix::SetTime::To(time),
            })
        };
        let NewAttributes { mode, uid, gid, size, atime, mtime } = *new;
        self.changing(|set_ids| {
            let set_ids = if size.is_some() { set_ids } else { SetIds::Stay };
            let (atime, mtime) = (time(atime), time(mtime));
            let mut set = SetAttr { mode, uid, gid, size, atime, mtime, ctime: None, set_ids };
            self.fs().check_setattr(&self.who, ino, &mut set)?;
            self.fs().setattr(ino, &set)
        })?;
        notes.push(match size {
            Some(_) => Note::Content(ino, 0, 0),
            None => Note::Attributes(ino),
        });
        Ok(())
    }

    /// Makes something new with `make`, which gets the caller and the mode, and gives it the rest
    /// of its attributes.
    fn make(
        &self,
        directory: &Held<'_>,
        name: &[u8],
        kind: u32,
        new: &NewAttributes,
        notes: &mut Vec<Note>,
        make: impl FnOnce(Caller, u32) -> steadfast_posix::Result<Entry>,
    ) -> Result<Entry> {
        self.fs().check_add(&self.who, directory.ino)?;
        let mode = kind | new.mode.unwrap_or(0) & 0o7777;
        let mode = self.fs().mode_for_new(&self.who, directory.ino, mode)?;
        // The client took its umask away already.
        let caller = Caller { uid: self.who.uid, gid: self.who.gid, umask: 0 };
        let made = make(caller, mode)?;
        let _held = Held { fs: self.fs(), ino: made.ino, attr: made.attr };
        notes.extend([Note::Name(directory.ino, name.to_vec()), Note::Attributes(directory.ino)]);
        let mut rest = NewAttributes { mode: None, ..*new };
        if !self.who.is_root() {
            // It has the owner that it gets; only root may name another one.
            (rest.uid, rest.gid) = (None, None);
        }
        if rest != NewAttributes::default() {
            self.set(made.ino, &rest, notes)?;
        }
        Ok(made)
    }

    /// The file, and true if it is new.
    fn create(
        &self,
        directory: &Held<'_>,
        name: &[u8],
        how: &HowToCreate,
        notes: &mut Vec<Note>,
    ) -> Result<(Entry, bool)> {
        let new = match how {
            HowToCreate::Unchecked(new) | HowToCreate::Guarded(new) => *new,
            HowToCreate::Exclusive(verifier) => marked(verifier),
        };
        let make = |caller, mode| self.fs().mknod(caller, directory.ino, name, mode, 0);
        let first = self.make(directory, name, S_IFREG, &new, notes, make);
        if !matches!(first, Err(Status::EXIST)) {
            return first.map(|made| (made, true));
        }
        let found = self.fs().lookup(directory.ino, name)?;
        let held = Held { fs: self.fs(), ino: found.ino, attr: found.attr };
        let is_regular = found.attr.mode & S_IFMT == S_IFREG;
        match how {
            HowToCreate::Unchecked(_) if held.is_directory() => Err(Status::ISDIR),
            HowToCreate::Unchecked(new) if is_regular => {
                // The size counts for a file that exists, and nothing else.
                if new.size.is_some() {
                    let size = NewAttributes { size: new.size, ..NewAttributes::default() };
                    self.set(found.ino, &size, notes)?;
                }
                Ok((found, false))
            }
            HowToCreate::Exclusive(verifier) if is_regular && has_mark(&found.attr, verifier) => {
                Ok((found, false))
            }
            _ => Err(Status::EXIST),
        }
    }

    fn mknod(
        &self,
        directory: &Held<'_>,
        name: &[u8],
        kind: u32,
        new: &NewAttributes,
        (major, minor): (u32, u32),
        notes: &mut Vec<Note>,
    ) -> Result<Entry> {
        let (bits, rdev) = match kind {
            kind::SOCKET => (0o140_000, 0),
            kind::FIFO => (0o010_000, 0),
            kind::BLOCK | kind::CHARACTER => {
                if !self.who.is_root() {
                    return Err(Status::PERM);
                }
                let bits = if kind == kind::BLOCK { 0o060_000 } else { 0o020_000 };
                (bits, device_number(major, minor).ok_or(Status::INVAL)?)
            }
            _ => return Err(Status::BADTYPE),
        };
        let new = NewAttributes { size: None, ..*new };
        let make = |caller, mode| self.fs().mknod(caller, directory.ino, name, mode, rdev);
        self.make(directory, name, bits, &new, notes, make)
    }

    /// The inode of a name, for a note about it.
    fn named(&self, directory: &Held<'_>, name: &[u8]) -> Option<u64> {
        let found = self.fs().lookup(directory.ino, name).ok()?;
        self.fs().forget(found.ino, 1);
        Some(found.ino)
    }

    fn remove(
        &self,
        directory: &Held<'_>,
        name: &[u8],
        is_directory: bool,
        notes: &mut Vec<Note>,
    ) -> Result<()> {
        match name {
            b"." => return Err(Status::INVAL),
            b".." => return Err(Status::EXIST),
            _ => {}
        }
        let gone = self.fs().remove_for(&self.who, directory.ino, name, is_directory)?;
        notes.extend([Note::Name(directory.ino, name.to_vec()), Note::Attributes(directory.ino)]);
        notes.push(Note::Attributes(gone));
        Ok(())
    }

    /// False if both names are of one file, so that nothing moved.
    fn rename(
        &self,
        (from, name): (&Held<'_>, &[u8]),
        (to, new_name): (&Held<'_>, &[u8]),
        notes: &mut Vec<Note>,
    ) -> Result<bool> {
        if [name, new_name].iter().any(|name| matches!(*name, b"." | b"..")) {
            return Err(Status::INVAL);
        }
        self.fs().check_rename(&self.who, (from.ino, name), (to.ino, new_name))?;
        let touched = [self.named(from, name), self.named(to, new_name)];
        self.fs().rename(from.ino, name, to.ino, new_name, 0)?;
        notes.extend([Note::Name(from.ino, name.to_vec()), Note::Name(to.ino, new_name.to_vec())]);
        notes.extend([Note::Attributes(from.ino), Note::Attributes(to.ino)]);
        notes.extend(touched.into_iter().flatten().map(Note::Attributes));
        Ok(touched[0] != touched[1])
    }

    /// Lists a directory. Cookies are those of the file system, which stay true while names come
    /// and go, so the verifier is always zero.
    fn readdir(&self, directory: &Held<'_>, cookie: u64, count: usize, out: &mut Writer) -> Result<()> {
        let attr = self.attr(directory.ino);
        let mut listing = Listing::begin(self, attr.as_ref(), count, out);
        let mut tells_folder = self.tells_folder(directory.ino, cookie);
        let folder = |listing: &mut Listing<'_>| {
            listing.add(ZFS.len(), 0, |out| {
                out.bool(true).u64(Folder::Zfs.number()).opaque(ZFS).u64(ZFS_COOKIE);
            })
        };
        self.fs().list(directory.ino, cookie, |entry| {
            if entry.cookie > ZFS_COOKIE && std::mem::take(&mut tells_folder) && !folder(&mut listing) {
                return false;
            }
            listing.add(entry.name.len(), 0, |out| {
                out.bool(true).u64(entry.ino).opaque(entry.name).u64(entry.cookie);
            })
        })?;
        if tells_folder && !listing.is_full {
            folder(&mut listing);
        }
        listing.end()
    }

    fn readdir_plus(&self, directory: &Held<'_>, cookie: u64, count: usize, out: &mut Writer) -> Result<()> {
        let attr = self.attr(directory.ino);
        let entries = usize::try_from(directory.attr.size).unwrap_or(usize::MAX);
        let room = entries.saturating_mul(LISTED_BYTES).min(LISTING_MAX).min(count);
        spare::reserve(&mut out.out, room);
        let mut listing = Listing::begin(self, attr.as_ref(), count, out);
        let extra = POST_BYTES + 8 + SIZE_MAX;
        let (fsid, mut tells_folder) = (self.fsid(), self.tells_folder(directory.ino, cookie));
        let folder = |listing: &mut Listing<'_>| {
            listing.add(ZFS.len(), extra, |out| {
                out.bool(true).u64(Folder::Zfs.number()).opaque(ZFS).u64(ZFS_COOKIE);
                self.post(out, Some(&Folder::Zfs.attr(self.view)));
                out.bool(true).opaque(&self.export.key.sign(self.export.id, Folder::Zfs.id()));
            })
        };
        self.fs().readdir_looking(directory.ino, cookie, |entry, known| {
            if entry.cookie > ZFS_COOKIE && std::mem::take(&mut tells_folder) && !folder(&mut listing) {
                return false;
            }
            listing.add(entry.name.len(), extra, |out| match known {
                Some(Ok(known)) => {
                    let handle = self.sign(known.ino, known.generation);
                    let own = (entry.ino, entry.name, entry.cookie);
                    write_entry(out, own, fsid, &known.attr, &handle);
                }
                _ => {
                    out.bool(true).u64(entry.ino).opaque(entry.name).u64(entry.cookie);
                    out.bool(false).bool(false);
                }
            })
        })?;
        if tells_folder && !listing.is_full {
            folder(&mut listing);
        }
        listing.end()
    }

    pub(crate) fn fsstat(&self, attr: &Attr, out: &mut Writer) {
        let stat = self.fs().statfs();
        let block = u64::from(stat.block_bytes);
        self.post(out, Some(attr));
        let free = stat.blocks_free.saturating_mul(block);
        out.u64(stat.blocks.saturating_mul(block)).u64(free).u64(free);
        out.u64(stat.files).u64(stat.files_free).u64(stat.files_free).u32(0);
    }

    pub(crate) fn fsinfo(&self, attr: &Attr, out: &mut Writer) {
        let transfer = TRANSFER_MAX as u32;
        self.post(out, Some(attr));
        out.u32(transfer).u32(transfer).u32(4_096).u32(transfer).u32(transfer).u32(4_096);
        // A listing's good size; the greatest file; times have nanoseconds; links, symbolic links,
        // one answer of PATHCONF for all, times can be set.
        out.u32(64 << 10).u64(i64::MAX as u64).u32(0).u32(1).u32(0x1b);
    }

    pub(crate) fn pathconf(&self, attr: &Attr, out: &mut Writer) {
        self.post(out, Some(attr));
        out.u32(1 << 30).u32(255).bool(true).bool(true).bool(false).bool(true);
    }
}

/// The attributes of a file that CREATE makes with a verifier: it is kept in the times, as knfsd
/// does. The client sets them when it has the reply.
fn marked(verifier: &[u8; 8]) -> NewAttributes {
    let [atime, mtime] = marks(verifier);
    NewAttributes {
        mode: Some(0o600),
        atime: Some(SetTime::To(atime)),
        mtime: Some(SetTime::To(mtime)),
        ..NewAttributes::default()
    }
}

fn marks(verifier: &[u8; 8]) -> [Time; 2] {
    let half = |at: usize| u32::from_be_bytes(verifier[at..at + 4].try_into().expect("four bytes"));
    [0, 4].map(|at| Time { seconds: i64::from(half(at)), nanos: 0 })
}

fn has_mark(attr: &Attr, verifier: &[u8; 8]) -> bool {
    [attr.atime, attr.mtime] == marks(verifier)
}

/// Results of a listing as they grow.
pub(crate) struct Listing<'a> {
    out: &'a mut Writer,
    /// Length that they may have.
    end: usize,
    is_empty: bool,
    is_full: bool,
}

impl<'a> Listing<'a> {
    /// Begins them with the attributes of the directory.
    pub(crate) fn begin(
        operation: &Operation<'_>,
        directory: Option<&Attr>,
        count: usize,
        out: &'a mut Writer,
    ) -> Listing<'a> {
        // The count is about the results behind the status; two numbers end them.
        let end = out.out.len() + count.min(LISTING_MAX).saturating_sub(8);
        operation.post(out, directory);
        out.u64(0);
        Listing { out, end, is_empty: true, is_full: false }
    }

    /// Adds an entry, if it has room.
    pub(crate) fn add(&mut self, name: usize, extra: usize, write: impl FnOnce(&mut Writer)) -> bool {
        if self.out.out.len() + 24 + name.next_multiple_of(4) + extra > self.end {
            self.is_full = true;
            return false;
        }
        write(self.out);
        self.is_empty = false;
        true
    }

    pub(crate) fn end(self) -> Result<()> {
        if self.is_empty && self.is_full {
            return Err(Status::TOOSMALL);
        }
        self.out.bool(false).bool(!self.is_full);
        Ok(())
    }
}
