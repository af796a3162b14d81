//! [`FileSystem`]: parts, lookups, references.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use steadfast_dataset::{Dataset, Inode, InodeRecord, SyncMode};
use steadfast_env::brief::BriefMutex;
use steadfast_env::requests::Requests;
use steadfast_env::waiting::for_commit;
use steadfast_format::InodeId;
use steadfast_format::dirent::{Dirent, PROBES, first_cookie};
use steadfast_format::file_keys::NamesKey;
use steadfast_txg::{AdmitKind, Operation, Patience};

use crate::attributes::{Attr, attr_of};
use crate::walk::{Listings, Walks, bring_below};
use crate::{Errno, Result, S_IFDIR, S_IFMT, S_IFREG};

/// The top.
const ROOT: u64 = 1;
/// How often a wait looks whether its caller was killed.
pub(crate) const DYING_PATIENCE: Duration = Duration::from_millis(500);

/// The caller.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group for new files.
    pub gid: u32,
    /// Bits that new files do not get, unless a default ACL speaks for them. 0 if they were taken
    /// away already.
    pub umask: u32,
}

impl Caller {
    /// Root, without a umask.
    pub const ROOT: Caller = Caller { uid: 0, gid: 0, umask: 0 };
}

/// When reading changes a file's access time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Atime {
    /// Never.
    Off,
    /// If it is older than the last change, or than a day.
    Relative,
    /// Always.
    Strict,
}

/// Space as `df` sees it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Bytes this dataset occupies.
    pub used_bytes: u64,
    /// Bytes that could still be written.
    pub available_bytes: u64,
}

/// How a dataset is mounted.
#[derive(Clone)]
pub struct Options {
    /// Access times.
    pub atime: Atime,
    /// Answers `statfs`.
    pub usage: Arc<dyn Fn() -> Usage + Send + Sync>,
    /// Unit in which `statfs` counts.
    pub block_bytes: u32,
}

/// An inode as lookup and create give it: with one reference more, to be given back by
/// [`FileSystem::forget`].
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Number.
    pub ino: u64,
    /// With the number it names the file for ever.
    pub generation: u64,
    /// Attributes.
    pub attr: Attr,
}

impl Entry {
    /// Content of so many bytes is on its way to the devices, beside what is allocated.
    fn add_pending(&mut self, allocated: u64, bytes: u64) {
        self.attr.blocks = (allocated + bytes).div_ceil(512);
        self.attr.is_settled = false;
    }
}

/// Answer of `statfs`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StatFs {
    /// All blocks: used and available.
    pub blocks: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Inodes, used and free.
    pub files: u64,
    /// Inodes that could still be made.
    pub files_free: u64,
    /// Longest name.
    pub name_max: u32,
}

/// State of a name's place in its directory.
pub(crate) enum Probe {
    /// The name, at this cookie.
    Found(u64, Dirent),
    /// Not the name, which would get this cookie.
    Free(u64),
    /// Not the name, and no cookie for it.
    Full,
}

/// A mounted dataset.
pub struct FileSystem {
    pub(crate) dataset: Arc<Dataset>,
    /// [posix.3]
    pub(crate) names: BriefMutex<()>,
    pub(crate) walks: Walks,
    pub(crate) listings: Listings,
    /// Read by every call, so shared.
    pub(crate) options: RwLock<Options>,
    /// Of the options; never changes.
    block_bytes: u32,
    pub(crate) acls: AtomicBool,
    pub(crate) user_attributes: AtomicBool,
    pub(crate) utf8_only: AtomicBool,
    pub(crate) dir_atime: AtomicBool,
    /// New files have the time of the clock tick.
    pub(crate) new_at_tick: AtomicBool,
    /// Where the fronts count their requests.
    requests: RwLock<Arc<Requests>>,
}

impl FileSystem {
    /// Takes a dataset over for use; reclaims what a crash left without links.
    pub fn new(dataset: Arc<Dataset>, options: Options) -> Result<FileSystem> {
        let fs = FileSystem::bare(dataset, options);
        for orphan in fs.dataset.orphans()? {
            // On a read-only, full or damaged pool they wait for better days.
            if let Ok(inode) = fs.dataset.inode(orphan) {
                fs.reclaim(&inode);
            }
        }
        Ok(fs)
    }

    /// Takes a dataset over that is only read: nothing of it changes, not even what it remembers of
    /// being read.
    #[must_use]
    pub fn of_snapshot(dataset: Arc<Dataset>, options: Options) -> FileSystem {
        FileSystem::bare(dataset, Options { atime: Atime::Off, ..options })
    }

    fn bare(dataset: Arc<Dataset>, options: Options) -> FileSystem {
        FileSystem {
            dataset,
            names: BriefMutex::new(()),
            walks: Walks::default(),
            listings: Listings::default(),
            block_bytes: options.block_bytes,
            options: RwLock::new(options),
            acls: AtomicBool::new(false),
            user_attributes: AtomicBool::new(true),
            utf8_only: AtomicBool::new(false),
            dir_atime: AtomicBool::new(true),
            new_at_tick: AtomicBool::new(false),
            requests: RwLock::default(),
        }
    }

    /// The dataset.
    #[must_use]
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Where the fronts count their requests from now on: with those of the whole pool.
    pub fn set_requests(&self, requests: &Arc<Requests>) {
        *self.requests.write() = Arc::clone(requests);
    }

    /// Where the fronts count their requests.
    #[must_use]
    pub fn requests(&self) -> Arc<Requests> {
        Arc::clone(&self.requests.read())
    }

    /// Changes how access times are kept.
    pub fn set_atime(&self, atime: Atime) {
        self.options.write().atime = atime;
    }

    /// Says whether directories have access times, as files have; so until this is called.
    pub fn set_dir_atime(&self, on: bool) {
        self.dir_atime.store(on, Ordering::Relaxed);
    }

    /// Says whether new files have the time of the system's last clock tick. A kernel that
    /// collects writes stamps them so, and has no other time to tell us of a file that is written
    /// in the tick in which it was made.
    pub fn set_new_at_tick(&self, on: bool) {
        self.new_at_tick.store(on, Ordering::Relaxed);
    }

    /// True if this is a volume: its root is a file of a fixed size.
    #[must_use]
    pub fn is_volume(&self) -> bool {
        self.inode(ROOT).is_ok_and(|root| is_fixed(ROOT, &root.record()))
    }

    /// Says whether access control lists are shown, taken and handed down; not so before this is
    /// called. Lists that are stored follow the mode in either case.
    pub fn set_acls(&self, on: bool) {
        self.acls.store(on, Ordering::Relaxed);
    }

    /// Says whether extended attributes of users (`user.*`) are shown and taken; so until this is
    /// called. Stored attributes stay.
    pub fn set_user_attributes(&self, on: bool) {
        self.user_attributes.store(on, Ordering::Relaxed);
    }

    /// Says whether new names have to be UTF-8; not so before this is called. Names that are there
    /// already are not looked at.
    pub fn set_utf8_only(&self, on: bool) {
        self.utf8_only.store(on, Ordering::Relaxed);
    }

    pub(crate) fn has_user_attributes(&self) -> bool {
        self.user_attributes.load(Ordering::Relaxed)
    }

    pub(crate) fn has_dir_atime(&self) -> bool {
        self.dir_atime.load(Ordering::Relaxed)
    }

    pub(crate) fn has_acls(&self) -> bool {
        self.acls.load(Ordering::Relaxed)
    }

    /// Runs an operation that changes metadata only ([`Dataset::operate`]).
    pub(crate) fn operate<'d, R>(
        &'d self,
        kind: AdmitKind,
        act: impl FnMut(&mut Operation<'d>) -> Result<R>,
    ) -> Result<R> {
        self.dataset.operate(|| Ok(self.dataset.begin(kind)?), act)
    }

    pub(crate) fn inode(&self, ino: u64) -> Result<Arc<Inode>> {
        Ok(self.dataset.inode(InodeId(ino))?)
    }

    /// A directory that may hold entries (one that was removed may not).
    pub(crate) fn directory(&self, ino: u64) -> Result<Arc<Inode>> {
        let inode = self.inode(ino)?;
        let record = inode.record();
        if record.mode & S_IFMT != S_IFDIR {
            return Err(Errno::ENOTDIR);
        }
        Ok(inode)
    }

    /// The entry of a name, with its cookie.
    pub(crate) fn find(&self, directory: InodeId, name: &[u8]) -> Result<Option<(u64, Dirent)>> {
        match self.probe(directory, name)? {
            Probe::Found(cookie, entry) => Ok(Some((cookie, entry))),
            Probe::Free(_) | Probe::Full => Ok(None),
        }
    }

    /// Looks for a name, or else for the first cookie it may have, in one walk.
    pub(crate) fn probe(&self, directory: InodeId, name: &[u8]) -> Result<Probe> {
        let first = first_cookie(self.dataset.hash_seed(), name);
        let key = |cookie| NamesKey::Entry { directory, cookie }.encode();
        let mut result = Ok(Probe::Full);
        // Cookies that follow each other are taken; the first gap is where a new name would go.
        let (mut next, mut free) = (first, None);
        self.dataset.names().scan(&key(first), &key(first + PROBES), |key, value| {
            let Ok(NamesKey::Entry { cookie, .. }) = NamesKey::decode(key) else {
                result = Err(Errno::EIO);
                return false;
            };
            if cookie > next {
                free.get_or_insert(next);
            }
            next = cookie + 1;
            match Dirent::decode(value) {
                Ok(entry) if entry.name == name => result = Ok(Probe::Found(cookie, entry)),
                Ok(_) => return true,
                Err(_) => result = Err(Errno::EIO),
            }
            false
        })?;
        if let Ok(Probe::Full) = result
            && let Some(cookie) = free.or((next < first + PROBES).then_some(next))
        {
            return Ok(Probe::Free(cookie));
        }
        result
    }

    /// An entry for the caller, with one reference more.
    pub(crate) fn entry(&self, id: InodeId) -> Result<Entry> {
        let inode = self.dataset.inode_ref(id)?;
        Ok(self.entry_of(&inode))
    }

    pub(crate) fn entry_of(&self, inode: &Inode) -> Entry {
        let (record, pending) = inode.record_and_pending();
        let mut entry = self.entry_as(inode.id, &record);
        if let Some(bytes) = pending {
            entry.add_pending(record.allocated, self.pending_blocks(bytes));
        }
        entry
    }

    fn entry_as(&self, id: InodeId, record: &InodeRecord) -> Entry {
        let attr = attr_of(id, record, self.block_bytes);
        Entry { ino: id.0, generation: record.generation, attr }
    }

    /// Bytes of content that is not stored yet as they will be once they are: `stat` must not tell
    /// less before a commit.
    fn pending_blocks(&self, bytes: u64) -> u64 {
        bytes * self.dataset.copies()
    }

    /// Puts an entry as it is now into `place`, with so many references more. `None` if its inode
    /// is not in memory.
    pub(crate) fn look(&self, id: InodeId, refs: u64, place: &mut Option<Entry>) -> Option<Result<()>> {
        // How many copies content has is not asked under the inode's lock.
        let show = |record: &InodeRecord, pending: Option<u64>| {
            *place = Some(self.entry_as(id, record));
            pending.map(|bytes| (record.allocated, bytes))
        };
        let shown = self.dataset.peek(id, refs, show).transpose()?;
        Some(shown.map_err(Errno::from).map(|pending| {
            if let (Some((allocated, bytes)), Some(entry)) = (pending, place) {
                entry.add_pending(allocated, self.pending_blocks(bytes));
            }
        }))
    }

    /// Finds a name. `.` on any inode and `..` on directories are resolved too, for file handles.
    ///
    /// # Errors
    /// `ESTALE` for `.` of an inode without links: the kernel asks this only if it does not know
    /// the inode any more, and the forget that lets the inode go may still be under way.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Entry> {
        if name == b"." {
            let inode = self.dataset.inode(InodeId(parent))?;
            if inode.record().nlink == 0 {
                return Err(Errno::ESTALE);
            }
            return self.entry(InodeId(parent));
        }
        let directory = self.directory(parent)?;
        if name == b".." {
            return self.entry(directory.record().parent);
        }
        if name.len() > steadfast_format::dirent::NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        for _ in 0..3 {
            let (_, entry) = self.find(directory.id, name)?.ok_or(Errno::ENOENT)?;
            if u32::from(entry.kind) << 12 == S_IFDIR {
                bring_below(&self.dataset, entry.inode);
            }
            match self.entry(entry.inode) {
                // Renamed over or unlinked and reclaimed between the two steps: look again.
                Err(Errno::ESTALE) => {}
                other => return other,
            }
        }
        Err(Errno::EIO)
    }

    /// Gives back references that entries and opens took.
    pub fn forget(&self, ino: u64, refs: u64) {
        if let Some(orphan) = self.dataset.forget_number(InodeId(ino), refs) {
            self.reclaim(&orphan);
        }
    }

    /// The end of a use: the kernel's references are gone, files that only they kept are removed.
    pub fn forget_all(&self) {
        for orphan in self.dataset.forget_all() {
            self.reclaim(&orphan);
        }
    }

    /// An inode by number, with one reference more: for listings with attributes.
    pub fn entry_by_ino(&self, ino: u64) -> Result<Entry> {
        self.entry(InodeId(ino))
    }

    /// Generation of an inode: tells two lives of one number apart.
    pub fn generation(&self, ino: u64) -> Result<u64> {
        Ok(self.inode(ino)?.record().generation)
    }

    /// Removes an orphan; what is refused now is done when the dataset is opened again.
    pub(crate) fn reclaim(&self, inode: &Arc<Inode>) {
        let _ = self.dataset.reclaim(inode);
    }

    /// Attributes.
    pub fn getattr(&self, ino: u64) -> Result<Attr> {
        let inode = self.inode(ino)?;
        Ok(self.entry_of(&inode).attr)
    }

    /// Opens a file or directory: one reference more, given back by [`FileSystem::release`].
    pub fn open(&self, ino: u64) -> Result<()> {
        self.dataset.inode_ref(InodeId(ino))?;
        Ok(())
    }

    /// Closes what [`FileSystem::open`] opened.
    pub fn release(&self, ino: u64) {
        self.forget(ino, 1);
    }

    /// True if each change is durable before its caller hears of it (`sync=always`), so that
    /// changes wait for devices.
    #[must_use]
    pub fn changes_wait(&self) -> bool {
        self.dataset.sync_mode() == SyncMode::Always
    }

    /// True if reads wait for a device that is away (`failmode=wait`).
    #[must_use]
    pub fn reads_wait(&self) -> bool {
        self.dataset.reads_wait()
    }

    /// Ends a change that `ino` shows, without locks: with `sync=always` it is durable when this
    /// returns.
    pub(crate) fn settle(&self, ino: u64) -> Result<()> {
        if !self.changes_wait() {
            return Ok(());
        }
        match self.dataset.inode(InodeId(ino)) {
            // A caller that is killed meanwhile hears no answer: the change is there, durable or
            // not.
            Ok(inode) => {
                let is_heard = || !Patience::is_in_vain();
                for_commit(|| self.dataset.wait_durable_while(&inode, DYING_PATIENCE, is_heard))?;
            }
            // Removed by now: everything, then.
            Err(_) => for_commit(|| self.dataset.wait_all_durable())?,
        }
        Ok(())
    }

    /// The same for what made an entry; its reference goes back if the caller never hears of it.
    pub(crate) fn settle_entry(&self, ino: u64, entry: Entry) -> Result<Entry> {
        self.settle(ino).inspect_err(|_| self.forget(entry.ino, 1))?;
        Ok(entry)
    }

    /// Waits until an inode (a directory with its entries) is durable.
    pub fn fsync(&self, ino: u64) -> Result<()> {
        let inode = self.inode(ino)?;
        Ok(for_commit(|| self.dataset.wait_durable(&inode))?)
    }

    /// As [`FileSystem::fsync`] for a caller that may be killed meanwhile: `is_dying` is asked
    /// twice a second, and if it says so the answer is `EINTR`. A signal that is only handled must
    /// not come here: programs take any error of an `fsync` for lost data.
    pub fn fsync_unless(&self, ino: u64, is_dying: impl Fn() -> bool) -> Result<()> {
        let inode = self.inode(ino)?;
        let durable = for_commit(|| self.dataset.wait_durable_while(&inode, DYING_PATIENCE, || !is_dying()))?;
        if durable { Ok(()) } else { Err(Errno::EINTR) }
    }

    /// As [`FileSystem::fsync`], without waiting: another thread may call `answer` after this
    /// returned.
    pub fn fsync_later(&self, ino: u64, answer: impl FnOnce(Result<()>) + Send + 'static) {
        match self.inode(ino) {
            Ok(inode) => {
                let answer = |durable: steadfast_dataset::Result<()>| answer(durable.map_err(Into::into));
                self.dataset.make_durable_later(&inode, answer);
            }
            Err(error) => answer(Err(error)),
        }
    }

    /// True if [`FileSystem::fsync_later`] is likely to do without a commit.
    #[must_use]
    pub fn is_journaled(&self) -> bool {
        self.dataset.is_journaled()
    }

    /// Waits until everything is durable.
    pub fn syncfs(&self) -> Result<()> {
        Ok(for_commit(|| self.dataset.wait_all_durable())?)
    }

    /// Space.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        let (usage, block_bytes) = (Arc::clone(&self.options.read().usage), self.block_bytes);
        let usage = usage();
        let block = u64::from(block_bytes);
        let blocks_free = usage.available_bytes / block;
        let files = self.dataset.counters().files;
        // As in ZFS: an inode needs a sector at least, so that many could still be made.
        let files_free = usage.available_bytes / 512;
        StatFs {
            blocks: usage.used_bytes.div_ceil(block) + blocks_free,
            blocks_free,
            block_bytes,
            files: files + files_free,
            files_free,
            name_max: 255,
        }
    }

    pub(crate) fn now(&self) -> crate::Time {
        self.dataset.now()
    }
}

/// True for the file that a volume is: its size does not follow what is written.
pub(crate) fn is_fixed(ino: u64, record: &InodeRecord) -> bool {
    ino == ROOT && record.mode & S_IFMT == S_IFREG
}

/// True for a directory.
pub(crate) fn is_directory(record: &InodeRecord) -> bool {
    record.mode & S_IFMT == S_IFDIR
}
