//! Requests to the live file system of a mount, translated into `posix` calls: `write(2)` is
//! `HeadHandler::write`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use steadfast_env::insist::{Client, serving};
use steadfast_env::requests::{self, Origin, Requests};
use steadfast_env::waiting::Span;
use steadfast_fuse::wire::request::Operation;
use steadfast_fuse::{
    AttrReply, CopyArgs, DirPlusSink, DirSink, Entry, Errno, FallocateArgs, FileKind, Forget, Handler,
    Intent, IoctlArgs, Later, Negotiated, Notifier, OpenArgs, Opened, ReadArgs, ReleaseArgs, RenameArgs,
    Reply, Request, SetAttr, SetTime, SetXattrArgs, StatFs, ValueSink, Whence, WriteArgs, intent_of,
};
use steadfast_posix::{AclKind, Caller, Fallocate, FileSystem, Patience, SetIds};

use crate::collected::Collected;
use crate::convert::{TTL, TTL_UNSETTLED, attr, attr_ttl, entry, errno, posix_time};
use crate::fsync_waiters::{FsyncWaiters, is_dying};
use crate::groups::is_member;
use crate::mapped::Mapped;
use crate::promised::{Planned, PlannedFile};
use crate::teller::{Answer, Content};
use crate::top::{TOP, TopFolder};

const O_TRUNC: u32 = 0o1000;
const O_ACCMODE: u32 = 3;
const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_NOATIME: u32 = 0o1_000_000;
/// Bit of a handle: the kernel collects what is written through it.
const COLLECTS: u64 = 1;
/// The same for a handle through which nothing can be read.
const WRITES_ONLY: u64 = 2;
/// Bytes that a write counts for whose size is not known.
const UNKNOWN_BYTES: u64 = 1 << 20;
/// `FS_IOC_GETVERSION`, of programs of 64 and of 32 bits.
const GET_VERSION: [u32; 2] = [0x8008_7601, 0x8004_7601];
/// `FS_IOC_GETFLAGS`, and `FS_IOC_SETFLAGS`, of both.
const GET_FLAGS: [u32; 2] = [0x8008_6601, 0x8004_6601];
const SET_FLAGS: [u32; 2] = [0x4008_6602, 0x4004_6602];
/// Protocol in which names expire without an end of mounts on them (Linux 6.2).
const EXPIRE_MINOR: u32 = 38;

/// The file system as it is now, without its snapshots.
pub(crate) struct HeadHandler {
    pub(crate) fs: Arc<FileSystem>,
    /// It is a volume: one file of fixed size, which NBD clients may write to as well.
    volume: bool,
    /// With ACLs the kernel leaves the umask to us, because a default ACL replaces it.
    umask_is_ours: bool,
    /// Agreed with the kernel: direct writes of one file run in parallel.
    direct_writes: AtomicBool,
    /// The kernel maps files that are opened past its page cache (Linux 6.6).
    maps_direct: AtomicBool,
    /// Tells the kernel to forget, once it is mounted.
    pub(crate) notifier: OnceLock<Notifier>,
    /// Writes in the kernel's page cache. Where it collects them it sets their times too.
    pub(crate) collected: Arc<Collected>,
    /// The kernel can look names up again and leave mounts on them alone.
    expires_names: AtomicBool,
    mapped: Mapped,
    pub(crate) top: Arc<TopFolder>,
    waiters: Arc<FsyncWaiters>,
    pub(crate) requests: Arc<Requests>,
}

/// True if a file is opened for reads that count for its access time.
fn reads(args: &OpenArgs) -> bool {
    args.flags & O_ACCMODE != O_WRONLY && args.flags & O_NOATIME == 0
}

/// True if the request changes something: with `sync=always` it waits for devices.
fn is_change(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Open(args) => args.flags & O_TRUNC != 0,
        Operation::Setattr(_)
        | Operation::Symlink { .. }
        | Operation::Mknod { .. }
        | Operation::Mkdir { .. }
        | Operation::Unlink { .. }
        | Operation::Rmdir { .. }
        | Operation::Rename(_)
        | Operation::Link { .. }
        | Operation::Create { .. }
        | Operation::Tmpfile { .. }
        | Operation::Write { .. }
        | Operation::Setxattr(_)
        | Operation::Removexattr { .. } => true,
        _ => false,
    }
}

/// The operation as it is counted; `None` for what is no request of a client.
pub(crate) fn counted(operation: &Operation<'_>) -> Option<requests::Operation> {
    use requests::Operation as Counted;
    Some(match operation {
        Operation::Forget { .. }
        | Operation::BatchForget { .. }
        | Operation::Interrupt { .. }
        | Operation::NotifyReply
        | Operation::Unsupported
        | Operation::Init(_)
        | Operation::Destroy => return None,
        Operation::Lookup { .. } => Counted::Lookup,
        Operation::Getattr { .. } | Operation::Statx { .. } | Operation::Access { .. } => Counted::Getattr,
        Operation::Setattr(_) | Operation::Fallocate(_) => Counted::Setattr,
        Operation::Readlink => Counted::Readlink,
        Operation::Read { .. } => Counted::Read,
        Operation::Write { .. } => Counted::Write,
        Operation::Create { .. } | Operation::Tmpfile { .. } => Counted::Create,
        Operation::Mkdir { .. } => Counted::Mkdir,
        Operation::Symlink { .. } | Operation::Mknod { .. } | Operation::Link { .. } => Counted::Link,
        Operation::Unlink { .. } => Counted::Remove,
        Operation::Rmdir { .. } => Counted::Rmdir,
        Operation::Rename(_) => Counted::Rename,
        Operation::Readdir { .. } | Operation::Readdirplus { .. } => Counted::List,
        Operation::Fsync { .. } | Operation::Fsyncdir { .. } | Operation::Syncfs => Counted::Sync,
        Operation::Setxattr(_)
        | Operation::Getxattr { .. }
        | Operation::Listxattr { .. }
        | Operation::Removexattr { .. } => Counted::Xattr,
        Operation::Open(_)
        | Operation::Opendir(_)
        | Operation::Release(_)
        | Operation::Releasedir(_)
        | Operation::Statfs
        | Operation::Flush { .. }
        | Operation::Ioctl { .. }
        | Operation::Lseek { .. }
        | Operation::CopyFileRange { .. } => Counted::Other,
    })
}

/// Runs a change. It waits as long as its caller lives; it does not wait (`EAGAIN`) where other
/// requests queue behind it.
fn changing<T>(req: &Request, change: impl FnOnce() -> steadfast_posix::Result<T>) -> Reply<T> {
    changing_as(Patience::WhileAlive { is_dying, caller: req.pid }, req, change)
}

/// The same with another patience where it may wait.
fn changing_as<T>(
    patience: Patience,
    req: &Request,
    change: impl FnOnce() -> steadfast_posix::Result<T>,
) -> Reply<T> {
    let patience = if req.may_wait { patience } else { Patience::None };
    patience.during(change).map_err(errno)
}

impl HeadHandler {
    pub(crate) fn new(fs: Arc<FileSystem>, volume: bool, umask_is_ours: bool) -> HeadHandler {
        let requests = fs.requests();
        let [direct_writes, maps_direct, expires_names] = [const { AtomicBool::new(false) }; 3];
        HeadHandler {
            fs,
            volume,
            umask_is_ours,
            direct_writes,
            maps_direct,
            notifier: OnceLock::new(),
            collected: Arc::default(),
            expires_names,
            mapped: Mapped::default(),
            top: Arc::default(),
            waiters: Arc::default(),
            requests,
        }
    }

    pub(crate) fn can_expire_names(&self) -> bool {
        self.expires_names.load(Ordering::Relaxed)
    }

    fn caller(&self, req: &Request) -> Caller {
        let umask = req.umask.filter(|_| self.umask_is_ours).unwrap_or(0);
        Caller { uid: req.uid, gid: req.gid, umask: umask & 0o777 }
    }

    fn reply(&self, attributes: &steadfast_posix::Attr) -> AttrReply {
        // `zfs set volsize` does not tell the kernel.
        let ttl = if self.volume { TTL_UNSETTLED } else { self.ttl(attributes) };
        self.top.shows_attributes(attributes.ino);
        AttrReply { attr: attr(attributes), ttl }
    }

    /// How long the kernel may keep attributes. None, if it is to ask before the next write.
    fn ttl(&self, attributes: &steadfast_posix::Attr) -> Duration {
        let is_file = attributes.mode & steadfast_posix::S_IFMT == steadfast_posix::S_IFREG;
        if is_file && self.collected.is_tight() { Duration::ZERO } else { attr_ttl(attributes) }
    }

    fn entry(&self, found: &steadfast_posix::Entry) -> Entry {
        self.top.shows_attributes(found.ino);
        Entry { attr_ttl: self.ttl(&found.attr), ..entry(found) }
    }

    /// Number and generation of each file that the kernel may hold changed pages of.
    pub(crate) fn may_be_dirty(&self) -> Vec<(u64, u64)> {
        let files = self.mapped.files().into_iter();
        files.filter_map(|ino| Some((ino, self.fs.generation(ino).ok()?))).collect()
    }

    /// Number and generation of a file that the kernel may hold changed pages of.
    pub(crate) fn held(&self, ino: u64) -> Option<(u64, u64)> {
        if self.mapped.may_be_dirty(ino) { Some((ino, self.fs.generation(ino).ok()?)) } else { None }
    }

    /// The content of a file, and whether the kernel may hold pages of it.
    pub(crate) fn content(&self, ino: u64) -> Option<(Content, bool)> {
        Some((Content::of(&self.fs, ino)?, self.mapped.may_be_dirty(ino)))
    }

    /// `close` waits for nothing: space was reserved at the write, and `fsync` reports errors of
    /// delayed writes.
    ///
    /// With `relatime=off` each read has to come here, since the kernel's pages move no access time
    /// ([0242](../../../docs/decisions/0242-reads-that-count.md)).
    fn opened(&self, ino: u64, args: &OpenArgs) -> Opened {
        let access = args.flags & O_ACCMODE;
        let collects = access != O_RDONLY && self.collected.is_on();
        self.mapped.opened(ino, args.flags, collects);
        if collects {
            self.collected.note_opened(&self.fs.write_room(), || self.mapped.files());
        }
        let parallel = self.volume || self.direct_writes.load(Ordering::Relaxed) && args.writes_directly();
        let counts = reads(args) && self.fs.sees_each_read();
        Opened {
            fh: match (collects, access) {
                (false, _) => 0,
                (true, O_RDWR) => COLLECTS,
                (true, _) => COLLECTS | WRITES_ONLY,
            },
            keep_cache: !self.volume && !counts,
            no_flush: true,
            // Times of what the kernel collects are its own, so there a read may go uncounted.
            direct_io: parallel || counts && !collects && self.maps_direct.load(Ordering::Relaxed),
            parallel_direct_writes: parallel,
            ..Opened::default()
        }
    }

    /// Looks at the room before attributes of a new file are answered: the kernel cannot be told to
    /// forget those of a file that it does not know yet.
    fn look_first(&self) {
        if self.collected.is_on() {
            self.collected.look(&self.fs.write_room(), || self.mapped.files());
        }
    }

    /// The kernel asks for attributes before a program writes, reads beyond the end or seeks there.
    /// Refuses a write for which there is no room; the error is that of `write(2)`.
    fn may_write(&self, req: &Request, fh: u64, attributes: &steadfast_posix::Attr) -> Reply<()> {
        let ino = attributes.ino;
        if !self.collected.is_tight_for(attributes.uid, attributes.gid) {
            return Ok(());
        }
        let planned = match intent_of(req.pid) {
            Intent::Write { offset, bytes } => Planned { offset, bytes: bytes.unwrap_or(UNKNOWN_BYTES) },
            // Nothing is read through it, and nobody who cannot be seen seeks there.
            Intent::Unknown if fh & WRITES_ONLY != 0 => Planned { offset: None, bytes: UNKNOWN_BYTES },
            Intent::Read | Intent::Unknown => return Ok(()),
        };
        let (terms, size) = self.fs.write_terms(ino).map_err(errno)?;
        if planned.bytes == 0 {
            return Ok(());
        }
        let ask = |claim, waits: bool| match waits {
            true => changing(req, || self.fs.may_write(ino, claim)),
            false => Patience::None.during(|| self.fs.may_write(ino, claim)).map_err(errno),
        };
        let file = PlannedFile { ino, size, terms };
        self.collected.promise(req.pid, &file, planned, ask, || self.may_be_dirty())
    }

    /// The next listing shall come here too, if each counts.
    fn forget_listing(&self, ino: u64) {
        if self.fs.sees_each_listing() {
            self.forget_pages(ino);
        }
    }

    /// The kernel forgets what it keeps of an inode, soon after it has the answer.
    fn forget_pages(&self, ino: u64) {
        if let Some(notifier) = self.notifier.get() {
            // If the queue is full, one access goes uncounted.
            notifier.inval_inode(ino, 0, 0).ok();
        }
    }

    fn truncate_at_open(&self, req: &Request, ino: u64, args: &OpenArgs) -> Reply<()> {
        if args.flags & O_TRUNC != 0 && !self.volume {
            let is_member = |gid| is_member(req, gid);
            let set = steadfast_posix::SetAttr {
                size: Some(0),
                set_ids: if args.kill_suidgid { SetIds::Go(&is_member) } else { SetIds::Stay },
                ..Default::default()
            };
            changing(req, || self.fs.setattr(ino, &set))?;
        }
        Ok(())
    }

    fn made(
        &self,
        req: &Request,
        make: impl FnOnce() -> steadfast_posix::Result<steadfast_posix::Entry>,
    ) -> Reply<Entry> {
        changing(req, make).map(|made| self.entry(&made))
    }
}

/// An open file takes no reference of its own: it keeps the inode in the kernel's memory, and with
/// it the reference of the lookup. FORGET comes after the last RELEASE.
impl Handler for HeadHandler {
    fn init(&self, negotiated: &Negotiated) {
        self.direct_writes.store(negotiated.direct_writes, Ordering::Relaxed);
        self.maps_direct.store(negotiated.maps_direct(), Ordering::Relaxed);
        self.collected.init(negotiated.collects_writes());
        self.fs.set_new_at_tick(negotiated.collects_writes());
        self.expires_names.store(negotiated.minor >= EXPIRE_MINOR, Ordering::Relaxed);
    }

    /// Quick: names, attributes, writes into memory. Slow: requests that may read many blocks, or
    /// wait for a commit.
    fn is_quick(&self, operation: &Operation<'_>) -> bool {
        if self.fs.changes_wait() && is_change(operation) || self.fs.reads_wait() {
            return false;
        }
        if matches!(operation, Operation::Getattr { fh: Some(_) }) && self.collected.is_tight() {
            return false;
        }
        !matches!(
            operation,
            Operation::Read { .. }
                | Operation::Readdir { .. }
                | Operation::Readdirplus { .. }
                | Operation::Fsync { .. }
                | Operation::Fsyncdir { .. }
                | Operation::Syncfs
                | Operation::Fallocate(_)
                | Operation::Lseek { .. }
                | Operation::CopyFileRange { .. }
                | Operation::Ioctl { .. }
        )
    }

    fn attend(&self, thread: u32, answer: &mut dyn FnMut()) {
        serving(Client { is_dying, thread }, answer);
    }

    fn destroy(&self) {
        self.fs.forget_all();
    }

    fn lookup(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<Entry> {
        if name == b"." && self.collected.teller.is_telling(req.pid) {
            // The kernel does not know the file, so there is nothing to tell.
            return Err(Errno::ESTALE);
        }
        self.top.shows_names(parent);
        if matches!(name, b"." | b"..") {
            self.top.shows_attributes(TOP);
        }
        match self.fs.lookup(parent, name) {
            Ok(found) => Ok(self.entry(&found)),
            Err(steadfast_posix::Errno::ENOENT) => Ok(Entry::negative(TTL)),
            Err(error) => Err(errno(error)),
        }
    }

    fn forget(&self, forgets: &[Forget]) {
        for forget in forgets {
            self.fs.forget(forget.ino, forget.nlookup);
        }
    }

    fn getattr(&self, req: &Request, ino: u64, fh: Option<u64>) -> Reply<AttrReply> {
        self.top.shows_attributes(ino);
        let attributes = self.fs.getattr(ino).map_err(errno)?;
        if let Some(fh) = fh.filter(|fh| fh & COLLECTS != 0)
            && self.collected.is_tight()
        {
            self.may_write(req, fh, &attributes)?;
        }
        Ok(self.reply(&attributes))
    }

    fn setattr(&self, req: &Request, ino: u64, set: &SetAttr) -> Reply<AttrReply> {
        self.top.shows_attributes(ino);
        if self.collected.teller.is_telling(req.pid) {
            if set.size.is_some() && self.collected.teller.keeps_still() {
                if !req.may_wait {
                    return Err(Errno::EAGAIN);
                }
                if self.collected.teller.was_set_still() != Some(true) {
                    return Err(Errno::EBUSY);
                }
                return self.fs.getattr(ino).map(|attr| self.reply(&attr)).map_err(errno);
            }
            let attributes = self.fs.getattr(ino).map_err(errno)?;
            match self.collected.teller.answer(set, attributes.mtime) {
                Answer::AsItIs => return Ok(self.reply(&attributes)),
                Answer::Refused(errno) => return Err(errno),
                Answer::Change => {}
            }
        }
        let when = |set: SetTime| match set {
            SetTime::Now => steadfast_posix::SetTime::Now,
            SetTime::At(time) => steadfast_posix::SetTime::To(posix_time(time)),
        };
        let is_member = |gid| is_member(req, gid);
        // Where the kernel collects writes it hands their times over with the pages.
        let of_pages = SetAttr { mtime: set.mtime, ctime: set.ctime, fh: set.fh, ..SetAttr::default() };
        let is_collected = self.collected.is_on() && set.mtime.is_some() && *set == of_pages;
        // At a write the kernel asks for it of callers without CAP_FSETID only, at a chown of all.
        let has_right = req.uid == 0 && (set.uid.is_some() || set.gid.is_some());
        let set = steadfast_posix::SetAttr {
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            // A size of 0 without a handle is `O_TRUNC`, which does nothing to a device.
            size: set.size.filter(|size| !(self.volume && *size == 0 && set.fh.is_none())),
            atime: set.atime.map(when),
            mtime: set.mtime.map(when),
            ctime: set.ctime.map(posix_time),
            set_ids: if set.kill_suidgid && !has_right { SetIds::Go(&is_member) } else { SetIds::Stay },
        };
        let change = || self.fs.setattr(ino, &set);
        let attributes = match is_collected {
            true => changing_as(self.collected.patience(), req, change),
            false => changing(req, change),
        };
        attributes.map(|attributes| self.reply(&attributes))
    }

    fn readlink(&self, _req: &Request, ino: u64) -> Reply<Vec<u8>> {
        let target = self.fs.readlink(ino).map_err(errno)?;
        if self.fs.sees_each_read() {
            self.forget_pages(ino);
        }
        Ok(target)
    }

    fn symlink(&self, req: &Request, parent: u64, name: &[u8], target: &[u8]) -> Reply<Entry> {
        self.top.shows_names(parent);
        self.made(req, || self.fs.symlink(self.caller(req), parent, name, target))
    }

    fn mknod(&self, req: &Request, parent: u64, name: &[u8], mode: u32, rdev: u32) -> Reply<Entry> {
        self.top.shows_names(parent);
        self.made(req, || self.fs.mknod(self.caller(req), parent, name, mode, rdev))
    }

    fn mkdir(&self, req: &Request, parent: u64, name: &[u8], mode: u32) -> Reply<Entry> {
        self.top.shows_names(parent);
        self.made(req, || self.fs.mkdir(self.caller(req), parent, name, mode))
    }

    fn unlink(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<()> {
        self.top.shows_names(parent);
        changing(req, || self.fs.unlink(parent, name))
    }

    fn rmdir(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<()> {
        self.top.shows_names(parent);
        changing(req, || self.fs.rmdir(parent, name))
    }

    fn rename(&self, req: &Request, args: &RenameArgs<'_>) -> Reply<()> {
        self.top.shows_names(args.parent);
        self.top.shows_names(args.new_parent);
        changing(req, || self.fs.rename(args.parent, args.name, args.new_parent, args.new_name, args.flags))
    }

    fn link(&self, req: &Request, ino: u64, new_parent: u64, new_name: &[u8]) -> Reply<Entry> {
        self.top.shows_names(new_parent);
        self.made(req, || self.fs.link(ino, new_parent, new_name))
    }

    fn open(&self, req: &Request, ino: u64, args: &OpenArgs) -> Reply<Opened> {
        self.truncate_at_open(req, ino, args)?;
        if reads(args) && args.flags & O_TRUNC == 0 && self.fs.opened_for_reading(ino).map_err(errno)? {
            req.forget_attr(ino);
        }
        Ok(self.opened(ino, args))
    }

    fn release(&self, _req: &Request, args: &ReleaseArgs) -> Reply<()> {
        self.mapped.released(args.ino, args.flags, args.fh & COLLECTS != 0);
        Ok(())
    }

    fn create(
        &self,
        req: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        args: &OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        self.look_first();
        self.top.shows_names(parent);
        let mode = mode & 0o7777 | steadfast_posix::S_IFREG;
        let made = self.made(req, || self.fs.mknod(self.caller(req), parent, name, mode, 0))?;
        // Nothing that may have to wait can follow: the call would be made again, and the name
        // would exist by then.
        Ok((made, self.opened(made.ino, args)))
    }

    fn tmpfile(&self, req: &Request, parent: u64, mode: u32, args: &OpenArgs) -> Reply<(Entry, Opened)> {
        self.look_first();
        let made = self.made(req, || self.fs.tmpfile(self.caller(req), parent, mode))?;
        Ok((made, self.opened(made.ino, args)))
    }

    fn read(&self, _req: &Request, args: &ReadArgs, out: &mut [u8]) -> Reply<usize> {
        match args.flags & O_NOATIME {
            0 => self.fs.read(args.ino, args.offset, out).map_err(errno),
            _ => self.fs.read_unnoticed(args.ino, args.offset, out).map_err(errno),
        }
    }

    fn write(&self, req: &Request, args: &WriteArgs, data: &[u8]) -> Reply<usize> {
        let collected = args.writeback && self.collected.is_on();
        let is_promised = collected && self.collected.came(args.ino, args.offset, data.len() as u64);
        let is_member = |gid| is_member(req, gid);
        let set_ids = if args.kill_suidgid { SetIds::Go(&is_member) } else { SetIds::Stay };
        let dropped = match collected {
            true => changing_as(self.collected.patience(), req, || {
                self.fs.write_collected(args.ino, args.offset, data, set_ids, is_promised)
            }),
            false => changing(req, || self.fs.write(args.ino, args.offset, data, set_ids)),
        }?;
        if dropped {
            req.forget_attr(args.ino);
        }
        if collected && self.collected.note_came(data.len() as u64, self.fs.is_halted()) {
            self.collected.look(&self.fs.write_room(), || self.mapped.files());
        }
        Ok(data.len())
    }

    fn statfs(&self, _req: &Request, _ino: u64) -> Reply<StatFs> {
        let stat = self.fs.statfs();
        Ok(StatFs {
            blocks: stat.blocks,
            bfree: stat.blocks_free,
            bavail: stat.blocks_free,
            files: stat.files,
            ffree: stat.files_free,
            bsize: stat.block_bytes,
            frsize: stat.block_bytes,
            namelen: stat.name_max,
        })
    }

    fn opendir(&self, _req: &Request, _ino: u64, _args: &OpenArgs) -> Reply<Opened> {
        // ENOSYS: from now on the kernel opens, caches and closes directories without asking.
        Err(Errno::ENOSYS)
    }

    fn flush(&self, _req: &Request, _ino: u64, _fh: u64, _lock_owner: u64) -> Reply<()> {
        // See `opened`.
        Err(Errno::ENOSYS)
    }

    fn fsync(&self, req: &Request, ino: u64, _fh: u64, _datasync: bool) -> Reply<()> {
        self.fs.fsync_unless(ino, || is_dying(req.pid)).map_err(errno)
    }

    fn fsyncdir(&self, req: &Request, ino: u64, _fh: u64, _datasync: bool) -> Reply<()> {
        self.fs.fsync_unless(ino, || is_dying(req.pid)).map_err(errno)
    }

    fn fsync_later(&self, req: &Request, ino: u64, later: Later) -> Option<Later> {
        if !self.fs.is_journaled() {
            return Some(later);
        }
        let departed = Span::begin().depart();
        let number = self.waiters.add(req.pid, later);
        let (waiters, requests) = (Arc::clone(&self.waiters), Arc::clone(&self.requests));
        self.fs.fsync_later(ino, move |durable| {
            requests.add(Origin::Local, requests::Operation::Sync, &departed.split());
            if let Some(later) = waiters.take(number) {
                later.answer(durable.map_err(errno));
            }
        });
        None
    }

    fn syncfs(&self, _req: &Request, _ino: u64) -> Reply<()> {
        self.fs.syncfs().map_err(errno)
    }

    fn setxattr(&self, req: &Request, args: &SetXattrArgs<'_>) -> Reply<()> {
        self.top.shows_attributes(args.ino);
        if let Some(kind) = AclKind::of(args.name) {
            return changing(req, || self.fs.set_acl(args.ino, kind, args.value, args.kill_sgid));
        }
        changing(req, || self.fs.setxattr(args.ino, args.name, args.value, args.flags))
    }

    fn getxattr(&self, _req: &Request, ino: u64, name: &[u8], out: &mut ValueSink<'_>) -> Reply<()> {
        self.top.shows_attributes(ino);
        out.put(&self.fs.getxattr(ino, name).map_err(errno)?)
    }

    fn listxattr(&self, req: &Request, ino: u64, out: &mut ValueSink<'_>) -> Reply<()> {
        for name in self.fs.listxattr(self.caller(req), ino).map_err(errno)? {
            out.put(&name)?;
            out.put(&[0])?;
        }
        Ok(())
    }

    fn removexattr(&self, req: &Request, ino: u64, name: &[u8]) -> Reply<()> {
        if self.collected.teller.is_telling(req.pid) {
            // The kernel takes capabilities away where it truncates.
            return Ok(());
        }
        changing(req, || self.fs.removexattr(ino, name))
    }

    fn readdir(&self, _req: &Request, ino: u64, _fh: u64, offset: u64, out: &mut DirSink<'_>) -> Reply<()> {
        let take = |found: steadfast_posix::Listed<'_>| {
            let kind = FileKind::from_mode(u32::from(found.kind) << 12);
            out.add(found.ino, found.cookie, kind, found.name)
        };
        self.fs.list(ino, offset, take).map_err(errno)?;
        self.forget_listing(ino);
        Ok(())
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: u64,
        _fh: u64,
        offset: u64,
        out: &mut DirPlusSink<'_>,
    ) -> Reply<()> {
        self.top.shows_names(ino);
        let take = |found: steadfast_posix::Listed<'_>, known: Option<steadfast_posix::Result<&_>>| {
            let kind = FileKind::from_mode(u32::from(found.kind) << 12);
            match known {
                Some(Ok(known)) => out.add(found.cookie, found.name, &self.entry(known)),
                // Removed since it was listed, or unreadable: the kernel gets the name, and asks
                // for attributes later. Of `.` and `..` it wants none.
                Some(Err(_)) | None => out.add_bare(found.ino, found.cookie, kind, found.name),
            }
        };
        self.fs.readdir_plus(ino, offset, take).map_err(errno)?;
        self.forget_listing(ino);
        Ok(())
    }

    fn fallocate(&self, req: &Request, args: &FallocateArgs) -> Reply<()> {
        let mode = Fallocate::from_bits(args.mode).map_err(errno)?;
        // Linux drops set-id bits on every fallocate by a caller without CAP_FSETID. The protocol
        // does not tell who has that capability; on ext4 root keeps the bits.
        let is_member = |gid| is_member(req, gid);
        let set_ids = if req.uid != 0 { SetIds::Go(&is_member) } else { SetIds::Stay };
        let dropped = changing(req, || self.fs.fallocate(args.ino, mode, args.offset, args.length, set_ids))?;
        if dropped {
            req.forget_attr(args.ino);
        }
        Ok(())
    }

    /// Tells the generation of an inode, as `lsattr -v` asks for it, and that it has no flags, as
    /// `lsattr` and programs that copy files ask. Flags cannot be set.
    fn ioctl(&self, _req: &Request, args: &IoctlArgs<'_>, out: &mut [u8]) -> Reply<(i32, usize)> {
        if GET_FLAGS.contains(&args.command) {
            out.get_mut(..4).ok_or(Errno::EINVAL)?.fill(0);
            return Ok((0, 4));
        }
        if SET_FLAGS.contains(&args.command) {
            let wanted = args.input.get(..4).ok_or(Errno::EINVAL)?;
            return if wanted == [0; 4] { Ok((0, 0)) } else { Err(Errno::EOPNOTSUPP) };
        }
        let told = out.get_mut(..4).filter(|_| GET_VERSION.contains(&args.command)).ok_or(Errno::ENOTTY)?;
        let found = self.fs.entry_by_ino(args.ino).map_err(errno)?;
        self.fs.forget(args.ino, 1);
        // The request speaks of a long, and every file system of Linux answers with an int.
        told.copy_from_slice(&(found.generation as u32).to_ne_bytes());
        Ok((0, 4))
    }

    fn lseek(&self, _req: &Request, ino: u64, _fh: u64, offset: u64, whence: Whence) -> Reply<u64> {
        let wants_data = matches!(whence, Whence::Data);
        if !self.mapped.may_be_dirty(ino) {
            return self.fs.seek(ino, offset, wants_data).map_err(errno);
        }
        if self.collected.is_on() {
            let generation = self.fs.generation(ino).map_err(errno)?;
            if self.collected.hand_over_one((ino, generation)) {
                return self.fs.seek(ino, offset, wants_data).map_err(errno);
            }
            // Only the kernel knows the size. From now on it answers by itself: all is data.
            return Err(Errno::ENOSYS);
        }
        // A hole may be a changed page by now: all is data, as for file systems without holes.
        match self.fs.getattr(ino).map_err(errno)?.size {
            size if offset >= size => Err(Errno::ENXIO),
            _ if wants_data => Ok(offset),
            size => Ok(size),
        }
    }

    fn copy_file_range(&self, req: &Request, args: &CopyArgs) -> Reply<u64> {
        // As for `fallocate`.
        let is_member = |gid| is_member(req, gid);
        let set_ids = if req.uid != 0 { SetIds::Go(&is_member) } else { SetIds::Stay };
        let CopyArgs { ino_in, offset_in, ino_out, offset_out, length, .. } = *args;
        let copied = changing(req, || {
            self.fs.copy_file_range_by(ino_in, offset_in, ino_out, offset_out, length, set_ids)
        });
        req.forget_attr(args.ino_out);
        copied
    }
}
