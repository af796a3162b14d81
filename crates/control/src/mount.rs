//! Mounting a dataset: the kernel's protocol translated into `posix` calls. Decides nothing.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_fuse::wire::request::Operation;
use steadfast_fuse::{
    Attr, AttrReply, CopyArgs, DirPlusSink, DirSink, Entry, Errno, FallocateArgs, FileKind, Forget, Handler,
    Later, LogSink, MountOptions, Negotiated, OpenArgs, Opened, ReadArgs, RenameArgs, Reply, Request,
    Session, SetAttr, SetTime, SetXattrArgs, StatFs, Time, UnmountMode, ValueSink, Whence, WriteArgs,
};
use steadfast_pool::DatasetHandle;
use steadfast_posix::{AclKind, Atime, Caller, Fallocate, FileSystem, Options, Patience, Usage};

use crate::mount_snapshots::{SNAPSHOT_DIR, WithSnapshots};

/// Only this daemon changes the file system, so the kernel may trust its copies until it is told otherwise.
pub(crate) const TTL: Duration = Duration::from_secs(3600);
/// As long as the blocks of a file are not known: content is on its way to the devices.
const TTL_UNSETTLED: Duration = Duration::from_secs(1);
/// How long a verb waits for what the kernel is told.
const NOTES_MAX: Duration = Duration::from_secs(1);
const O_TRUNC: u32 = 0o1000;
/// The top folder.
const TOP: u64 = 1;

/// How to mount a dataset.
pub struct MountSpec {
    /// Existing directory, or file for a volume.
    pub mountpoint: PathBuf,
    /// What `df` shows as the source: the dataset's name.
    pub fs_name: String,
    /// Refuse every change.
    pub read_only: bool,
    /// When reading changes access times.
    pub atime: Atime,
    /// Set-id bits have no effect.
    pub nosuid: bool,
    /// Device nodes cannot be opened.
    pub nodev: bool,
    /// Nothing can be executed.
    pub noexec: bool,
    /// POSIX access control lists are kept and count.
    pub acl: bool,
    /// Extended attributes of users are kept and shown.
    pub xattr: bool,
    /// New names have to be UTF-8.
    pub utf8_only: bool,
    /// Other users may enter.
    pub allow_other: bool,
    /// Space for `df`.
    pub usage: Arc<dyn Fn() -> Usage + Send + Sync>,
    /// Switches of the transport (`steadfast_fuse::SWITCHES`), separated by commas, for measuring.
    pub switches: String,
    /// Where events of the session go.
    pub log: Option<LogSink>,
}

/// Switches of the transport for every mount of this process, as `MountSpec::switches` has them; those win.
pub const SWITCHES_VARIABLE: &str = "STEADFAST_FUSE";

/// A mounted dataset. Dropping it unmounts lazily.
pub struct MountedFs {
    session: Session,
    fs: Arc<FileSystem>,
    // Dropped last: the dataset is in use until the session is gone.
    _handle: DatasetHandle,
}

impl MountedFs {
    /// Mounts; the mount works when this returns.
    pub fn mount(handle: DatasetHandle, spec: &MountSpec) -> Result<MountedFs, MountError> {
        let shown = Options { atime: spec.atime, usage: Arc::clone(&spec.usage), block_bytes: 4096 };
        let fs = FileSystem::new(Arc::clone(handle.dataset()), shown.clone())
            .map_err(|errno| MountError::Dataset(std::io::Error::from_raw_os_error(errno.0)))?;
        let volume = fs.is_volume();
        if volume {
            // To be read is no change of a volume: an increment is received upon what was only looked at.
            fs.set_atime(Atime::Off);
        }
        fs.set_acls(spec.acl);
        fs.set_user_attributes(spec.xattr);
        fs.set_utf8_only(spec.utf8_only);
        let fs = Arc::new(fs);
        let mut options = MountOptions::new(spec.fs_name.clone());
        options.subtype = Some("steadfast".into());
        options.allow_other = spec.allow_other;
        options.read_only = spec.read_only;
        options.nosuid = spec.nosuid;
        options.nodev = spec.nodev;
        options.noexec = spec.noexec;
        options.posix_acl = spec.acl;
        options.noatime = spec.atime == Atime::Off;
        options.strictatime = spec.atime == Atime::Strict;
        options.log = spec.log.clone();
        let usual = std::env::var(SWITCHES_VARIABLE).unwrap_or_default();
        options.set_switches(&usual)?;
        options.set_switches(&spec.switches)?;
        options.root_is_file = volume;
        // What others write to a volume is not in the kernel's pages.
        options.writeback_cache &= !volume;
        let front = Front {
            fs: Arc::clone(&fs),
            volume,
            umask_is_ours: spec.acl,
            direct_writes: AtomicBool::new(false),
            collects_writes: AtomicBool::new(false),
            waiting: Arc::default(),
        };
        let front = Arc::new(WithSnapshots::new(front, handle.snapshots(), shown, [spec.acl, spec.xattr]));
        let session = Session::mount(&spec.mountpoint, &options, front)?;
        // The kernel keeps what it was told of `st_blocks`. If the queue is full it does so for an hour more.
        let notifier = session.notifier();
        fs.dataset().on_resized(Some(Arc::new(move |inode| {
            notifier.inval_inode(inode.0, -1, 0).ok();
        })));
        Ok(MountedFs { session, fs, _handle: handle })
    }

    /// Unmounts. A busy mount is refused, or with `force` detached and ended.
    pub fn unmount(&self, force: bool) -> Result<(), steadfast_fuse::Error> {
        self.session.unmount(if force { UnmountMode::Force } else { UnmountMode::Clean })
    }

    /// False once somebody else unmounted it.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.session.has_ended()
    }

    /// Where it is mounted.
    #[must_use]
    pub fn mountpoint(&self) -> &std::path::Path {
        self.session.mountpoint()
    }

    /// Has the kernel hand over what it collected of programs' writes, in its page cache and in memory that files are mapped to, and waits
    /// until that is done. What programs write meanwhile may be among it.
    ///
    /// # Errors
    /// The mount cannot be reached, or what was collected could not be written.
    pub fn settle(&self) -> std::io::Result<()> {
        let top = std::fs::File::open(self.mountpoint())?;
        Ok(rustix::fs::syncfs(top)?)
    }

    /// Tells the kernel that the listings of snapshots, and of the top folder that may name them, are not what they were. What it
    /// does not know by heart is no error.
    pub fn note_snapshots(&self) {
        let notifier = self.session.notifier();
        for folder in [TOP, SNAPSHOT_DIR] {
            notifier.inval_inode(folder, 0, 0).ok();
        }
    }

    /// Waits until the kernel knows what it was told, a second at most: who lists snapshots after a verb that takes or destroys some is to see
    /// them. Not to be called while a lock is held that who serves the mount may want.
    pub fn await_notes(&self) {
        self.session.notifier().drain(NOTES_MAX).ok();
    }

    /// Changes how access times are kept.
    pub fn set_atime(&self, atime: Atime) {
        self.fs.set_atime(if self.fs.is_volume() { Atime::Off } else { atime });
    }
}

/// Why a dataset was not mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The dataset could not be read.
    #[error("the dataset cannot be read: {0}")]
    Dataset(std::io::Error),
    /// A switch of the transport that is none.
    #[error(transparent)]
    Switch(#[from] steadfast_fuse::SwitchError),
    /// The kernel refused.
    #[error(transparent)]
    Fuse(#[from] steadfast_fuse::Error),
}

pub(crate) struct Front {
    pub(crate) fs: Arc<FileSystem>,
    /// A volume: one file, which others may write to as well, and whose size is not the writers' to change.
    volume: bool,
    /// With ACLs the kernel leaves the umask to us, because a default ACL takes its place.
    umask_is_ours: bool,
    /// As kernel and session agreed.
    direct_writes: AtomicBool,
    /// The kernel collects writes, and keeps their times.
    collects_writes: AtomicBool,
    waiting: Arc<Waiting>,
}

pub(crate) fn errno(error: steadfast_posix::Errno) -> Errno {
    Errno(error.0)
}

pub(crate) fn time(time: steadfast_posix::Time) -> Time {
    Time { secs: time.seconds, nanos: time.nanos }
}

fn back(time: Time) -> steadfast_posix::Time {
    steadfast_posix::Time { seconds: time.secs, nanos: time.nanos }
}

pub(crate) fn attr(attr: &steadfast_posix::Attr) -> Attr {
    Attr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        btime: Some(time(attr.btime)),
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.blksize,
    }
}

fn entry(entry: &steadfast_posix::Entry) -> Entry {
    Entry {
        ino: entry.ino,
        generation: entry.generation,
        attr: attr(&entry.attr),
        entry_ttl: TTL,
        attr_ttl: attr_ttl(&entry.attr),
    }
}

fn attr_ttl(attributes: &steadfast_posix::Attr) -> Duration {
    if attributes.is_settled { TTL } else { TTL_UNSETTLED }
}

/// Was the caller killed? The kernel lets nobody die before a request in our hands is answered, and only tells that *some*
/// signal came; a fatal one is pending at the thread as SIGKILL until it gets to die.
fn is_dying(thread: u32) -> bool {
    const SIGKILL: u64 = 1 << (9 - 1);
    if thread == 0 {
        return false;
    }
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    pending.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & SIGKILL != 0)
}

/// How long a caller may be dying before somebody looks.
const DYING_LOOK: Duration = Duration::from_millis(500);

/// Callers whose answer another thread will give. Each is answered once: by who took it from here.
#[derive(Default)]
struct Waiting {
    callers: Mutex<Callers>,
}

#[derive(Default)]
struct Callers {
    next: u64,
    by_number: HashMap<u64, (u32, Later)>,
    /// A thread looks twice a second which of them are dying.
    watched: bool,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Callers> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a caller until somebody takes it; who is killed meanwhile is answered `EINTR`.
    fn add(self: &Arc<Waiting>, caller: u32, later: Later) -> u64 {
        let mut callers = self.lock();
        let number = callers.next;
        callers.next += 1;
        callers.by_number.insert(number, (caller, later));
        if !callers.watched {
            let waiting = Arc::clone(self);
            let watch = std::thread::Builder::new().name("fsync watch".into()).spawn(move || waiting.watch());
            // Without a thread nobody can be killed while waiting; the next caller tries again.
            callers.watched = watch.is_ok();
        }
        number
    }

    fn take(&self, number: u64) -> Option<Later> {
        self.lock().by_number.remove(&number).map(|(_, later)| later)
    }

    /// Looks after the callers until there are none.
    fn watch(&self) {
        loop {
            std::thread::sleep(DYING_LOOK);
            let waiting: Vec<(u64, u32)> = {
                let mut callers = self.lock();
                if callers.by_number.is_empty() {
                    callers.watched = false;
                    return;
                }
                callers.by_number.iter().map(|(&number, &(caller, _))| (number, caller)).collect()
            };
            for (number, caller) in waiting {
                if is_dying(caller)
                    && let Some(later) = self.take(number)
                {
                    later.answer(Err(Errno::EINTR));
                }
            }
        }
    }
}

/// Does it change something, which with `sync=always` waits for devices?
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

/// Serves a call that changes something: it waits as long as its caller lives, or not at all (`EAGAIN`) where others wait
/// behind it. An errno becomes the kernel's.
fn changing<T>(req: &Request, change: impl FnOnce() -> steadfast_posix::Result<T>) -> Reply<T> {
    let patience = match req.may_wait {
        true => Patience::WhileAlive { is_dying, caller: req.pid },
        false => Patience::None,
    };
    patience.during(change).map_err(errno)
}

impl Front {
    fn caller(&self, req: &Request) -> Caller {
        let umask = req.umask.filter(|_| self.umask_is_ours).unwrap_or(0);
        Caller { uid: req.uid, gid: req.gid, umask: umask & 0o777 }
    }

    fn reply(&self, attributes: &steadfast_posix::Attr) -> AttrReply {
        // Who sets `volsize` tells no kernel.
        let ttl = if self.volume { TTL_UNSETTLED } else { attr_ttl(attributes) };
        AttrReply { attr: attr(attributes), ttl }
    }

    /// Nothing waits at close: errors of delayed writes are told by fsync, and space was promised at write.
    fn opened(&self, args: &OpenArgs) -> Opened {
        let direct = self.volume || self.direct_writes.load(Ordering::Relaxed) && args.writes_directly();
        Opened {
            keep_cache: !self.volume,
            no_flush: true,
            direct_io: direct,
            parallel_direct_writes: direct,
            ..Opened::default()
        }
    }

    fn truncate_at_open(&self, req: &Request, ino: u64, args: &OpenArgs) -> Reply<()> {
        if args.flags & O_TRUNC != 0 && !self.volume {
            let set = steadfast_posix::SetAttr {
                size: Some(0),
                kill_suidgid: args.kill_suidgid,
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
        changing(req, make).map(|made| entry(&made))
    }
}

/// An open file takes no reference of its own: the kernel's lookup lives as long as the inode in its memory, which a file
/// that is open keeps there. FORGET comes after the last RELEASE.
impl Handler for Front {
    fn init(&self, negotiated: &Negotiated) {
        self.direct_writes.store(negotiated.direct_writes, Ordering::Relaxed);
        self.collects_writes.store(negotiated.collects_writes(), Ordering::Relaxed);
    }

    /// Names, attributes and what goes into memory; not what may need many blocks of a device, or a commit.
    fn is_quick(&self, operation: &Operation<'_>) -> bool {
        if self.fs.changes_wait() && is_change(operation) {
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

    fn destroy(&self) {
        self.fs.forget_all();
    }

    fn lookup(&self, _req: &Request, parent: u64, name: &[u8]) -> Reply<Entry> {
        match self.fs.lookup(parent, name) {
            Ok(found) => Ok(entry(&found)),
            Err(steadfast_posix::Errno::ENOENT) => Ok(Entry::negative(TTL)),
            Err(error) => Err(errno(error)),
        }
    }

    fn forget(&self, forgets: &[Forget]) {
        for forget in forgets {
            self.fs.forget(forget.ino, forget.nlookup);
        }
    }

    fn getattr(&self, _req: &Request, ino: u64, _fh: Option<u64>) -> Reply<AttrReply> {
        self.fs.getattr(ino).map(|attr| self.reply(&attr)).map_err(errno)
    }

    fn setattr(&self, req: &Request, ino: u64, set: &SetAttr) -> Reply<AttrReply> {
        let when = |set: SetTime| match set {
            SetTime::Now => steadfast_posix::SetTime::Now,
            SetTime::At(time) => steadfast_posix::SetTime::To(back(time)),
        };
        let set = steadfast_posix::SetAttr {
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            // A size of 0 without a handle is `O_TRUNC`, which does nothing to a device.
            size: set.size.filter(|size| !(self.volume && *size == 0 && set.fh.is_none())),
            atime: set.atime.map(when),
            mtime: set.mtime.map(when),
            ctime: set.ctime.map(back),
            kill_suidgid: set.kill_suidgid,
        };
        changing(req, || self.fs.setattr(ino, &set)).map(|attr| self.reply(&attr))
    }

    fn readlink(&self, _req: &Request, ino: u64) -> Reply<Vec<u8>> {
        self.fs.readlink(ino).map_err(errno)
    }

    fn symlink(&self, req: &Request, parent: u64, name: &[u8], target: &[u8]) -> Reply<Entry> {
        self.made(req, || self.fs.symlink(self.caller(req), parent, name, target))
    }

    fn mknod(&self, req: &Request, parent: u64, name: &[u8], mode: u32, rdev: u32) -> Reply<Entry> {
        self.made(req, || self.fs.mknod(self.caller(req), parent, name, mode, rdev))
    }

    fn mkdir(&self, req: &Request, parent: u64, name: &[u8], mode: u32) -> Reply<Entry> {
        self.made(req, || self.fs.mkdir(self.caller(req), parent, name, mode))
    }

    fn unlink(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<()> {
        changing(req, || self.fs.unlink(parent, name))
    }

    fn rmdir(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<()> {
        changing(req, || self.fs.rmdir(parent, name))
    }

    fn rename(&self, req: &Request, args: &RenameArgs<'_>) -> Reply<()> {
        changing(req, || self.fs.rename(args.parent, args.name, args.new_parent, args.new_name, args.flags))
    }

    fn link(&self, req: &Request, ino: u64, new_parent: u64, new_name: &[u8]) -> Reply<Entry> {
        self.made(req, || self.fs.link(ino, new_parent, new_name))
    }

    fn open(&self, req: &Request, ino: u64, args: &OpenArgs) -> Reply<Opened> {
        self.truncate_at_open(req, ino, args)?;
        Ok(self.opened(args))
    }

    fn create(
        &self,
        req: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        args: &OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        let mode = mode & 0o7777 | steadfast_posix::S_IFREG;
        let made = self.made(req, || self.fs.mknod(self.caller(req), parent, name, mode, 0))?;
        // What is new is empty: nothing may follow that could have to wait, for then the call is made again, and the name is there.
        Ok((made, self.opened(args)))
    }

    fn tmpfile(&self, req: &Request, parent: u64, mode: u32, args: &OpenArgs) -> Reply<(Entry, Opened)> {
        let made = self.made(req, || self.fs.tmpfile(self.caller(req), parent, mode))?;
        Ok((made, self.opened(args)))
    }

    fn read(&self, _req: &Request, args: &ReadArgs, out: &mut [u8]) -> Reply<usize> {
        self.fs.read(args.ino, args.offset, out).map_err(errno)
    }

    fn write(&self, req: &Request, args: &WriteArgs, data: &[u8]) -> Reply<usize> {
        let collected = args.writeback && self.collects_writes.load(Ordering::Relaxed);
        let dropped = changing(req, || match collected {
            true => self.fs.write_collected(args.ino, args.offset, data, args.kill_suidgid),
            false => self.fs.write(args.ino, args.offset, data, args.kill_suidgid),
        })?;
        if dropped {
            req.forget_attr(args.ino);
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
        // From now on the kernel opens, caches and closes directories without a word to us.
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
        let number = self.waiting.add(req.pid, later);
        let waiting = Arc::clone(&self.waiting);
        self.fs.fsync_later(ino, move |durable| {
            if let Some(later) = waiting.take(number) {
                later.answer(durable.map_err(errno));
            }
        });
        None
    }

    fn syncfs(&self, _req: &Request, _ino: u64) -> Reply<()> {
        self.fs.syncfs().map_err(errno)
    }

    fn setxattr(&self, req: &Request, args: &SetXattrArgs<'_>) -> Reply<()> {
        if let Some(kind) = AclKind::of(args.name) {
            return changing(req, || self.fs.set_acl(args.ino, kind, args.value, args.kill_sgid));
        }
        changing(req, || self.fs.setxattr(args.ino, args.name, args.value, args.flags))
    }

    fn getxattr(&self, _req: &Request, ino: u64, name: &[u8], out: &mut ValueSink<'_>) -> Reply<()> {
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
        changing(req, || self.fs.removexattr(ino, name))
    }

    fn readdir(&self, _req: &Request, ino: u64, _fh: u64, offset: u64, out: &mut DirSink<'_>) -> Reply<()> {
        let take = |found: steadfast_posix::DirEntry| {
            let kind = FileKind::from_mode(u32::from(found.kind) << 12);
            out.add(found.ino, found.cookie, kind, &found.name)
        };
        self.fs.readdir(ino, offset, take).map_err(errno)
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: u64,
        _fh: u64,
        offset: u64,
        out: &mut DirPlusSink<'_>,
    ) -> Reply<()> {
        let take = |found: steadfast_posix::DirEntry| {
            let kind = FileKind::from_mode(u32::from(found.kind) << 12);
            if matches!(&found.name[..], b"." | b"..") {
                return out.add_bare(found.ino, found.cookie, kind, &found.name);
            }
            match self.fs.entry_by_ino(found.ino) {
                Ok(known) => {
                    let taken = out.add(found.cookie, &found.name, &entry(&known));
                    if !taken {
                        self.fs.forget(found.ino, 1);
                    }
                    taken
                }
                // Removed since it was listed, or unreadable: the name is told, the rest is asked for later.
                Err(_) => out.add_bare(found.ino, found.cookie, kind, &found.name),
            }
        };
        self.fs.readdir(ino, offset, take).map_err(errno)
    }

    fn fallocate(&self, req: &Request, args: &FallocateArgs) -> Reply<()> {
        let mode = Fallocate::from_bits(args.mode).map_err(errno)?;
        // Linux drops set-id bits on every fallocate by a caller without CAP_FSETID; the protocol does not tell who
        // has it, and root keeps them on ext4.
        let kill = req.uid != 0;
        let dropped = changing(req, || self.fs.fallocate(args.ino, mode, args.offset, args.length, kill))?;
        if dropped {
            req.forget_attr(args.ino);
        }
        Ok(())
    }

    fn lseek(&self, _req: &Request, ino: u64, _fh: u64, offset: u64, whence: Whence) -> Reply<u64> {
        self.fs.seek(ino, offset, matches!(whence, Whence::Data)).map_err(errno)
    }

    fn copy_file_range(&self, req: &Request, args: &CopyArgs) -> Reply<u64> {
        let copied = changing(req, || {
            self.fs.copy_file_range(args.ino_in, args.offset_in, args.ino_out, args.offset_out, args.length)
        });
        req.forget_attr(args.ino_out);
        copied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lives_is_not_dying() {
        assert!(!is_dying(std::process::id()));
        assert!(!is_dying(0), "a caller of another pid namespace");
    }
}
