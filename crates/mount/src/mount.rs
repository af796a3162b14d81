//! Mounting a dataset through FUSE.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast_format::InodeId;
use steadfast_fuse::{Handler, LogSink, MountOptions, NotifyError, Session, UnmountMode};
use steadfast_nfs::Volume;
use steadfast_pool::DatasetHandle;
use steadfast_posix::{Atime, FileSystem, Options, Usage};

use crate::collected::Collected;
use crate::desk::SnapshotDesk;
use crate::head::HeadHandler;
use crate::names::{names_in, names_that_differ};
use crate::share::NetworkDoor;
use crate::snapshots::{SNAPSHOT_DIR, SnapshotFolders};
use crate::teller::Content;

/// Longest wait for the kernel to take what it is told.
const NOTES_MAX: Duration = Duration::from_secs(1);
/// Longest wait for requests under way, before the content of the mount is exchanged.
const RENEW_MAX: Duration = Duration::from_secs(10);
/// Inode of the top folder.
const TOP: u64 = 1;

/// How to mount a dataset.
pub struct MountSpec {
    /// Existing directory, or file for a volume.
    pub mountpoint: PathBuf,
    /// Source in `df`: the dataset's name.
    pub fs_name: String,
    /// Refuse every change.
    pub read_only: bool,
    /// When reading changes access times.
    pub atime: Atime,
    /// Directories have access times, as files have.
    pub dir_atime: bool,
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
    /// Each `write(2)` is durable when it returns, also where the kernel collects writes.
    pub sync_always: bool,
    /// Other users may enter.
    pub allow_other: bool,
    /// Space for `df`.
    pub usage: Arc<dyn Fn() -> Usage + Send + Sync>,
    /// Switches of the transport (`steadfast_fuse::SWITCHES`), separated by commas, for measuring.
    pub switches: String,
    /// Receiver of the session's events.
    pub log: Option<LogSink>,
}

/// Environment variable: switches of the transport for every mount of this process, in the form of
/// `MountSpec::switches`, which win.
pub const SWITCHES_VARIABLE: &str = "STEADFAST_FUSE";

/// Requests at once with pages that the kernel collected, or reads ahead: each that waits holds a
/// thread and its buffers of two megabytes.
const COLLECTED_AT_ONCE: u16 = 16;

/// A mounted dataset. Dropping it unmounts lazily.
pub struct MountedFs {
    session: Session,
    handler: Arc<SnapshotFolders>,
    /// The way of network clients.
    door: Arc<NetworkDoor>,
    /// How file systems of this mount are made.
    shown: Mutex<Shown>,
    // Dropped last: the dataset is in use until the session is gone.
    handle: Mutex<Option<DatasetHandle>>,
}

/// Settings of a mount that count in `posix`.
#[derive(Clone)]
struct Shown {
    options: Options,
    dir_atime: bool,
    acl: bool,
    xattr: bool,
    utf8_only: bool,
}

impl Shown {
    fn file_system(&self, handle: &DatasetHandle) -> Result<FileSystem, MountError> {
        let fs = FileSystem::new(Arc::clone(handle.dataset()), self.options.clone())
            .map_err(|errno| MountError::Dataset(std::io::Error::from_raw_os_error(errno.0)))?;
        if fs.is_volume() {
            // Reading must not change a volume: an increment is received only onto an unchanged
            // one.
            fs.set_atime(Atime::Off);
        }
        fs.set_requests(handle.requests());
        fs.set_dir_atime(self.dir_atime);
        fs.set_acls(self.acl);
        fs.set_user_attributes(self.xattr);
        fs.set_utf8_only(self.utf8_only);
        Ok(fs)
    }
}

/// Content of each file that the kernel knows. Where it collects writes it takes neither sizes nor
/// times from an answer.
fn contents(fs: &FileSystem, lookups: &[(InodeId, u64)]) -> HashMap<u64, Content> {
    lookups.iter().filter_map(|(inode, _)| Some((inode.0, Content::of(fs, inode.0)?))).collect()
}

/// True if this process can let the kernel collect more than a few pages, and tell it of changes
/// behind its back: root can, where `/sys` can be written.
#[must_use]
pub fn may_collect() -> bool {
    rustix::process::geteuid().is_root()
        && rustix::fs::access("/sys/class/bdi", rustix::fs::Access::WRITE_OK).is_ok()
}

impl MountedFs {
    /// Mounts; the mount works when this returns.
    pub fn mount(handle: DatasetHandle, spec: &MountSpec) -> Result<MountedFs, MountError> {
        let shown = Options { atime: spec.atime, usage: Arc::clone(&spec.usage), block_bytes: 4096 };
        let shown = Shown {
            options: shown,
            dir_atime: spec.dir_atime,
            acl: spec.acl,
            xattr: spec.xattr,
            utf8_only: spec.utf8_only,
        };
        let fs = Arc::new(shown.file_system(&handle)?);
        let volume = fs.is_volume();
        let mut options = MountOptions::new(spec.fs_name.clone());
        options.subtype = Some("steadfast".into());
        options.allow_other = spec.allow_other;
        options.read_only = spec.read_only;
        options.flags.nosuid = spec.nosuid;
        options.flags.nodev = spec.nodev;
        options.flags.noexec = spec.noexec;
        options.posix_acl = spec.acl;
        options.flags.noatime = spec.atime == Atime::Off;
        options.flags.strictatime = spec.atime == Atime::Strict;
        options.flags.nodiratime = !spec.dir_atime;
        options.log = spec.log.clone();
        let usual = std::env::var(SWITCHES_VARIABLE).unwrap_or_default();
        options.set_switches(&usual)?;
        options.set_switches(&spec.switches)?;
        options.root_is_file = volume;
        // NBD clients write to a volume too, past the kernel's page cache.
        options.writeback_cache &= !volume;
        if options.writeback_cache {
            options.max_background = options.max_background.min(COLLECTED_AT_ONCE);
        }
        options.flags.synchronous = options.writeback_cache && spec.sync_always;
        let head = HeadHandler::new(Arc::clone(&fs), volume, spec.acl);
        let handler = Arc::new(SnapshotFolders::new(
            head,
            handle.snapshots(),
            shown.options.clone(),
            [spec.acl, spec.xattr],
        ));
        let session = Session::mount(&spec.mountpoint, &options, Arc::clone(&handler) as Arc<dyn Handler>)?;
        handler.head.read().notifier.set(session.notifier()).ok();
        let handle = Mutex::new(Some(handle));
        let door = NetworkDoor::new(Arc::clone(&handler), session.notifier(), spec.read_only);
        let (door, shown) = (Arc::new(door), Mutex::new(shown));
        let mounted = MountedFs { session, handler, door, shown, handle };
        mounted.tell_sizes_of(&fs);
        mounted.keep_pages(&options).map_err(|source| steadfast_fuse::Error::ThreadNotStarted { source })?;
        Ok(mounted)
    }

    /// Bounds what the kernel holds back, if it collects writes.
    fn keep_pages(&self, options: &MountOptions) -> std::io::Result<()> {
        if !self.collects_writes() {
            return Ok(());
        }
        let (pages, notifier) = (self.session.held_pages(), self.session.notifier());
        let (percent, log) = (options.dirty_percent, options.log.clone());
        let (collected, (room, claim)) = (self.collected(), {
            let head = self.handler.head.read();
            (head.fs.write_room(), head.fs.join_claims())
        });
        collected.start(pages, notifier, percent, log, claim, &self.handler)?;
        collected.look(&room, Vec::new);
        Ok(())
    }

    fn collected(&self) -> Arc<Collected> {
        Arc::clone(&self.handler.head.read().collected)
    }

    /// Without this the kernel would show the old `st_blocks` until its TTL ends, as it does if the
    /// queue is full.
    fn tell_sizes_of(&self, fs: &FileSystem) {
        let notifier = self.session.notifier();
        fs.dataset().on_resized(Some(Arc::new(move |inode| {
            notifier.inval_inode(inode.0, -1, 0).ok();
        })));
    }

    /// Lets users take, destroy and rename snapshots in `.zfs/snapshot`. The first desk stays.
    pub fn set_desk(&self, desk: Arc<dyn SnapshotDesk>) {
        let _ = self.handler.desk.set(desk);
    }

    /// True if the kernel collects writes of this mount.
    #[must_use]
    pub fn collects_writes(&self) -> bool {
        self.session.negotiated().collects_writes()
    }

    /// True if [`MountedFs::renew`] is possible: the kernel can look names up again and leave
    /// mounts on them alone.
    #[must_use]
    pub fn may_renew(&self) -> bool {
        let head = self.handler.head.read();
        !head.fs.is_volume() && head.can_expire_names()
    }

    /// Lets the dataset go, calls `change`, which gives it other content, and goes on with the
    /// dataset that it gives, while the mount and its open files stay. Files that the dataset does
    /// not have any more answer `ESTALE`. Requests wait meanwhile, so `change` must not use the
    /// mount.
    ///
    /// # Errors
    /// Requests under way did not end in time, or the names cannot be read: `change` was not
    /// called. Or `change` gave nothing, or a dataset that cannot be read: the mount serves what it
    /// had, and should be ended.
    pub fn renew(&self, change: &mut dyn FnMut() -> Option<DatasetHandle>) -> Result<(), MountError> {
        let mut head = self.handler.head.try_write_for(RENEW_MAX).ok_or(MountError::InUse)?;
        let lookups = head.fs.dataset().all_lookups();
        let shown = if head.collected.is_on() { contents(&head.fs, &lookups) } else { HashMap::default() };
        // This look at names counts for no access time.
        let options = self.shown.lock().options.clone();
        let listed = |fs: &FileSystem| {
            names_in(&FileSystem::of_snapshot(Arc::clone(fs.dataset()), options.clone()), &lookups)
        };
        let names = listed(&head.fs).ok_or(MountError::InUse)?;
        head.fs.dataset().on_resized(None);
        drop(self.handle.lock().take());
        let handle = change().ok_or(MountError::Gone)?;
        if Arc::ptr_eq(handle.dataset(), head.fs.dataset()) {
            // Nothing was changed.
            self.tell_sizes_of(&head.fs);
            *self.handle.lock() = Some(handle);
            return Ok(());
        }
        let fs = Arc::new(self.shown.lock().file_system(&handle)?);
        fs.dataset().adopt_lookups(&lookups);
        self.tell_sizes_of(&fs);
        self.door.renew_verifier(&fs);
        // If they cannot be read, all that were there are looked up again.
        let names = names_that_differ(&names, listed(&fs).unwrap_or_default());
        let mut changed = if shown.is_empty() { HashMap::new() } else { contents(&fs, &lookups) };
        changed.retain(|file, content| shown.get(file) != Some(content));
        fs.set_new_at_tick(head.collected.is_on());
        head.fs = fs;
        *self.handle.lock() = Some(handle);
        drop(head);
        let notifier = self.session.notifier();
        for (folder, name) in names {
            self.tell(|| notifier.expire_entry(folder, &name));
        }
        self.tell(|| notifier.inval_inode(TOP, 0, 0));
        for (inode, _) in lookups {
            self.tell(|| notifier.inval_inode(inode.0, 0, 0));
        }
        self.await_notes();
        let changed: Vec<u64> = changed.into_keys().collect();
        self.collected().tell(&changed, |ino| self.handler.head.read().content(ino));
        Ok(())
    }

    /// Tells the kernel something, even if that has to wait for a while.
    fn tell(&self, note: impl Fn() -> Result<(), NotifyError>) {
        let mut patience = 10;
        while let (Err(NotifyError::Full), 1..) = (note(), patience) {
            self.await_notes();
            patience -= 1;
        }
    }

    /// Unmounts. A busy mount is refused, or with `force` detached and ended.
    pub fn unmount(&self, force: bool) -> Result<(), steadfast_fuse::Error> {
        if !self.door.close() {
            return Err(steadfast_fuse::Error::Busy { path: self.mountpoint().to_owned() });
        }
        let mode = if force { UnmountMode::Force } else { UnmountMode::Clean };
        let unmounted = self.collected().aside(|| self.session.unmount(mode));
        if unmounted.is_err() {
            self.door.open();
        }
        unmounted
    }

    /// The way of network clients into this file system, and the secret of its handles. `None` for
    /// a volume.
    #[must_use]
    pub fn network_door(&self) -> Option<(Arc<dyn Volume>, [u8; 16])> {
        let head = self.handler.head.read();
        let secret = *head.fs.dataset().hash_seed();
        (!head.fs.is_volume()).then(|| (Arc::clone(&self.door) as Arc<dyn Volume>, secret))
    }

    /// Says whether network clients may change it, as the kernel was told for its own.
    pub fn set_read_only(&self, read_only: bool) {
        self.door.set_read_only(read_only);
    }

    /// False once it was unmounted, by this daemon or by anybody else.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.session.has_ended()
    }

    /// False if it is not in this process's mount namespace any more.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.session.is_attached()
    }

    /// Its mountpoint.
    #[must_use]
    pub fn mountpoint(&self) -> &std::path::Path {
        self.session.mountpoint()
    }

    /// Makes the kernel write out the dirty pages of this mount, those of mapped files included,
    /// and waits for them; a daemon that is not root's does not wait for the last ones. Bytes that
    /// programs write meanwhile may be included.
    ///
    /// # Errors
    /// The mount cannot be reached, or a page could not be written.
    pub fn settle(&self) -> std::io::Result<()> {
        let files = self.handler.head.read().may_be_dirty();
        self.session.write_out(&files)
    }

    /// Tells the kernel to drop its listings of the snapshots' folder and of the top folder, which
    /// may show `.zfs`. It is no error if the kernel has none.
    pub fn note_snapshots(&self) {
        let notifier = self.session.notifier();
        for folder in [TOP, SNAPSHOT_DIR] {
            notifier.inval_inode(folder, 0, 0).ok();
        }
    }

    /// Waits until the kernel took what it was told, a second at most. A listing after
    /// `zfs snapshot` or `zfs destroy` then shows the change. The caller must hold no lock that a
    /// request of the mount may need.
    pub fn await_notes(&self) {
        self.session.notifier().drain(NOTES_MAX).ok();
    }

    /// Changes how access times are kept, and whether directories have them.
    pub fn set_atime(&self, atime: Atime, of_dirs: bool) {
        let mut shown = self.shown.lock();
        (shown.options.atime, shown.dir_atime) = (atime, of_dirs);
        drop(shown);
        let head = self.handler.head.read();
        head.fs.set_dir_atime(of_dirs);
        head.fs.set_atime(if head.fs.is_volume() { Atime::Off } else { atime });
    }
}

impl Drop for MountedFs {
    fn drop(&mut self) {
        // Somebody else may have unmounted it.
        self.door.close_for_good();
        self.collected().end();
    }
}

/// Reason why a dataset was not mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The dataset could not be read.
    #[error("the dataset cannot be read: {0}")]
    Dataset(std::io::Error),
    /// Requests under way did not end in time, or names cannot be read.
    #[error("requests to the mount do not end, or its names cannot be read")]
    InUse,
    /// There is no dataset to go on with.
    #[error("the dataset cannot be opened")]
    Gone,
    /// Unknown switch of the transport, or unknown value of one.
    #[error(transparent)]
    Switch(#[from] steadfast_fuse::SwitchError),
    /// The kernel refused.
    #[error(transparent)]
    Fuse(#[from] steadfast_fuse::Error),
}
