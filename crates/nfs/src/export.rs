//! Exports: file systems that are shared, and the table in which requests find them.

use crate::handle::{ExportId, FOLDERS, HandleKey, LIVE};
use crate::mount3::Listed;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use steadfast_posix::{Errno, FileSystem, Identity, Time};
use steadfast_property::ShareOptions;

/// A change that a request made, for caches above the file system.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Note {
    /// Attributes of an inode.
    Attributes(u64),
    /// Content of an inode: offset and length, 0 for all that follows.
    Content(u64, u64, u64),
    /// A name in a directory came, went or changed its meaning.
    Name(u64, Vec<u8>),
}

/// A file system as requests find it.
pub struct View<'a> {
    /// The file system.
    pub fs: &'a Arc<FileSystem>,
    /// Changes when writes that were answered and not yet durable may be lost.
    pub verifier: [u8; 8],
    /// It is mounted read-only.
    pub read_only: bool,
    /// Its snapshots.
    pub snapshots: &'a dyn Snapshots,
}

impl View<'_> {
    /// Runs a read on the live file system or a snapshot; `None` if that is not there, or is none.
    pub(crate) fn on<R>(&self, snapshot: u64, read: impl FnOnce(&Arc<FileSystem>) -> R) -> Option<R> {
        match snapshot {
            LIVE => Some(read(self.fs)),
            FOLDERS => None,
            number => {
                let (mut read, mut done) = (Some(read), None);
                self.snapshots.enter(number, &mut |fs| done = read.take().map(|read| read(fs)));
                done
            }
        }
    }
}

/// The snapshots of a file system, as requests find them.
pub trait Snapshots {
    /// True if a listing of the top names the folder that leads to them.
    fn is_visible(&self) -> bool;

    /// Time of the folders that lead to them.
    fn since(&self) -> Time;

    /// When one of them last came, went or got another name. Clients keep their listing until this
    /// changes.
    fn changed(&self) -> Time;

    /// Names and numbers. A number means the same snapshot for ever.
    fn list(&self) -> Vec<(String, u64)>;

    /// The number of a snapshot.
    fn number(&self, name: &str) -> Option<u64>;

    /// Runs a read on a snapshot, unless it is not there; nothing of it is freed meanwhile.
    fn enter(&self, number: u64, read: &mut dyn FnMut(&Arc<FileSystem>));
}

/// A change of a snapshot that a client asks for, by its name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SnapshotChange {
    /// It is to be taken.
    Take(String),
    /// It is to be destroyed.
    Destroy(String),
    /// It is to be called by the second name.
    Rename(String, String),
}

/// A file that caches above the file system leave alone for a while.
pub trait Still {
    /// They go on, with the size that was set if the notes tell of that.
    fn end(self: Box<Self>, notes: &[Note]);
}

/// A mounted file system, as the front reaches it.
pub trait Volume: Send + Sync {
    /// Runs a request. False if it cannot at the moment: it is being unmounted, or its content
    /// exchanged.
    fn enter(&self, act: &mut dyn FnMut(&View<'_>)) -> bool;

    /// Tells caches above the file system what changed. False if none of them can hold anything of
    /// it; otherwise nobody may hear of the change before [`Volume::await_noted`] returned. No
    /// request of this volume runs in the calling thread.
    fn note(&self, notes: &[Note]) -> bool;

    /// Waits until caches know what they were told before, for a limited time. No request of this
    /// volume runs in the calling thread.
    fn await_noted(&self);

    /// Content of an inode is about to be read or changed: caches above the file system hand over
    /// what they hold of it. `file` finds the inode, if there is any. False if they could not in a
    /// limited time, so that the client has to ask again. No request of this volume runs in the
    /// calling thread.
    fn hand_over(&self, file: &dyn Fn() -> Option<u64>) -> bool;

    /// The size of a file is about to be set: caches above the file system neither change nor hand
    /// over content of it until this ends. None if there are no such caches, or they cannot in a
    /// limited time. No request of this volume runs in the calling thread.
    fn keep_still(&self, ino: u64) -> Option<Box<dyn Still>>;

    /// Changes a snapshot, if this user may, and waits for a limited time only. No request of this
    /// volume runs in the calling thread: others may wait for the end of those that do.
    ///
    /// # Errors
    /// `EPERM`; `EEXIST`; `ENOENT`; `EBUSY` for one that something holds; `EAGAIN` if others take
    /// too long; and more.
    fn change_snapshot(&self, who: &Identity<'_>, change: &SnapshotChange) -> Result<(), Errno>;
}

/// A file system that is shared.
pub struct Export {
    /// Which.
    pub id: ExportId,
    /// Its path.
    pub path: String,
    /// Clients that may use it, and how.
    pub options: ShareOptions,
    /// Signs its handles.
    pub key: HandleKey,
    /// The mount.
    pub volume: Arc<dyn Volume>,
}

/// All exports of a daemon.
#[derive(Default)]
pub struct Exports {
    table: RwLock<BTreeMap<ExportId, Arc<Export>>>,
    /// How long clients of an export that is not there are told to wait, as it may come back: a
    /// daemon that starts imports one pool after the other, and a new option is a new mount.
    grace: Duration,
    /// When an export was last taken away; at first, when all this began.
    ended: Mutex<Option<Instant>>,
}

impl Exports {
    /// No exports yet. Clients of one that is not there wait so long before they hear that it is
    /// gone.
    #[must_use]
    pub fn with_grace(grace: Duration) -> Exports {
        Exports { grace, ended: Mutex::new(Some(Instant::now())), ..Exports::default() }
    }

    /// Adds an export, or changes it.
    pub fn share(&self, export: Export) {
        self.table.write().insert(export.id, Arc::new(export));
    }

    /// Removes an export; requests that are under way end as they began.
    pub fn unshare(&self, id: ExportId) {
        if self.table.write().remove(&id).is_some() {
            *self.ended.lock() = Some(Instant::now());
        }
    }

    /// True if an export that is not there may come back in a moment.
    #[must_use]
    pub fn is_settling(&self) -> bool {
        self.ended.lock().is_some_and(|ended| ended.elapsed() < self.grace)
    }

    /// An export.
    #[must_use]
    pub fn get(&self, id: ExportId) -> Option<Arc<Export>> {
        self.table.read().get(&id).cloned()
    }

    /// True if nothing is shared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.read().is_empty()
    }

    /// The innermost export that holds a path, and the names that lead from its top to there.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<(Arc<Export>, Vec<String>)> {
        let plain = |path: &str| path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let wanted: Vec<String> = plain(path);
        let table = self.table.read();
        let within = table.values().filter_map(|export| {
            let own: Vec<String> = plain(&export.path);
            wanted.starts_with(&own).then_some((own.len(), export))
        });
        let (length, export) = within.max_by_key(|(length, _)| *length)?;
        Some((Arc::clone(export), wanted[length..].to_vec()))
    }

    /// The list for clients, by path.
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        let table = self.table.read();
        let listed = |export: &Arc<Export>| Listed {
            path: export.path.clone().into_bytes(),
            clients: export.options.clients(),
        };
        let mut list: Vec<Listed> = table.values().map(listed).collect();
        list.sort_by(|one, other| one.path.cmp(&other.path));
        list
    }
}
