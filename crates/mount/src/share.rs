//! A mounted file system as network clients use it: the very object that the kernel's requests use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use steadfast_format::InodeId;
use steadfast_fuse::{Notifier, NotifyError};
use steadfast_nfs::{Note, SnapshotChange, Still, View, Volume};
use steadfast_posix::{Errno, FileSystem, Identity};

use crate::desk::Person;
use crate::snapshot_door::SnapshotDoor;
use crate::snapshots::SnapshotFolders;
use crate::teller::{StillFile, Teller};
use crate::top::{TOP, TopFolder};

/// Longest wait for requests under way, before the file system is unmounted.
const PARTING_MAX: Duration = Duration::from_secs(10);
/// Longest wait of a reply until the kernel knows what changed.
const NOTED_MAX: Duration = Duration::from_secs(1);

/// The way of network clients into a mount.
pub(crate) struct NetworkDoor {
    folders: Arc<SnapshotFolders>,
    snapshots: SnapshotDoor,
    notifier: Notifier,
    top: Arc<TopFolder>,
    /// Tells the kernel what it does not take from answers, if it collects writes.
    teller: Option<Arc<Teller>>,
    /// Held while a request runs.
    is_open: RwLock<bool>,
    verifier: Mutex<[u8; 8]>,
    read_only: AtomicBool,
}

impl NetworkDoor {
    pub(crate) fn new(folders: Arc<SnapshotFolders>, notifier: Notifier, read_only: bool) -> NetworkDoor {
        let (verifier, top, teller) = {
            let head = folders.head.read();
            let teller = head.collected.is_on().then(|| Arc::clone(&head.collected.teller));
            (Mutex::new(verifier_of(&head.fs)), Arc::clone(&head.top), teller)
        };
        let (is_open, read_only) = (RwLock::new(true), AtomicBool::new(read_only));
        let snapshots = folders.door();
        NetworkDoor { folders, snapshots, notifier, top, teller, is_open, verifier, read_only }
    }

    /// Lets nobody in any more, and waits for those inside. False if they do not leave.
    pub(crate) fn close(&self) -> bool {
        let Some(mut is_open) = self.is_open.try_write_for(PARTING_MAX) else { return false };
        *is_open = false;
        self.snapshots.close();
        true
    }

    /// The same, however long they take.
    pub(crate) fn close_for_good(&self) {
        *self.is_open.write() = false;
        self.snapshots.close();
    }

    pub(crate) fn open(&self) {
        *self.is_open.write() = true;
    }

    /// Writes that were answered and were not durable may be lost: clients are to send them again.
    pub(crate) fn renew_verifier(&self, fs: &FileSystem) {
        *self.verifier.lock() = verifier_of(fs);
    }

    pub(crate) fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }

    /// True if the kernel remembers the inode, or a network request of the moment does.
    fn is_remembered(&self, ino: u64) -> bool {
        ino == TOP || self.folders.head.read().fs.dataset().is_referenced(InodeId(ino))
    }

    /// Tells the kernel, if it can hold anything of what changed.
    fn tell(&self, note: &Note) -> bool {
        match note {
            Note::Attributes(TOP) => return self.top.tell_attributes(|| self.push(note)),
            Note::Name(TOP, _) if !self.top.has_shown_names() => return false,
            Note::Attributes(ino) | Note::Content(ino, ..) | Note::Name(ino, _) => {
                if !self.is_remembered(*ino) {
                    return false;
                }
            }
        }
        self.push(note);
        true
    }

    fn push(&self, note: &Note) {
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let push = || match note {
            Note::Attributes(ino) => self.forget(*ino, -1, 0),
            Note::Content(ino, offset, length) => self.forget(*ino, signed(*offset), signed(*length)),
            Note::Name(directory, name) => self.notifier.inval_entry(*directory, name),
        };
        if push() == Err(NotifyError::Full) {
            self.notifier.drain(NOTED_MAX).ok();
            push().ok();
        }
    }
}

impl NetworkDoor {
    /// Has the kernel forget attributes and pages of an inode. If it collects writes it keeps size
    /// and times of a file, and is told these.
    fn forget(&self, ino: u64, offset: i64, length: i64) -> Result<(), NotifyError> {
        let is_file = || self.folders.head.read().content(ino).is_some();
        let Some(teller) = self.teller.as_ref().filter(|_| is_file()) else {
            return self.notifier.inval_inode(ino, offset, length);
        };
        let (teller, mount) = (Arc::clone(teller), Arc::downgrade(&self.folders));
        let then = move |is_known: bool| teller.note(ino, !is_known, &mount);
        self.notifier.inval_inode_then(ino, offset, length, then)
    }
}

/// Differs from mount to mount: the time at which it began.
fn verifier_of(fs: &FileSystem) -> [u8; 8] {
    (fs.dataset().now().as_ns() as u64).to_be_bytes()
}

/// A file that the kernel keeps still.
struct StillInode {
    ino: u64,
    file: StillFile,
}

impl Still for StillInode {
    fn end(self: Box<Self>, notes: &[Note]) {
        let is_set = notes.iter().any(|note| matches!(note, Note::Content(ino, ..) if *ino == self.ino));
        self.file.end(is_set);
    }
}

impl Volume for NetworkDoor {
    fn enter(&self, act: &mut dyn FnMut(&View<'_>)) -> bool {
        let Some(is_open) = self.is_open.try_read().filter(|is_open| **is_open) else { return false };
        let head = self.folders.head.read();
        let (verifier, read_only) = (*self.verifier.lock(), self.read_only.load(Ordering::Relaxed));
        act(&View { fs: &head.fs, verifier, read_only, snapshots: &self.snapshots });
        drop(is_open);
        true
    }

    fn note(&self, notes: &[Note]) -> bool {
        let told = notes.iter().filter(|note| self.tell(note)).count();
        // Others may have told what this change would have. [top.2]
        let is_idle = || self.notifier.is_idle() && self.teller.iter().all(|teller| teller.is_idle());
        told > 0 || !notes.is_empty() && !is_idle()
    }

    fn await_noted(&self) {
        self.notifier.drain(NOTED_MAX).ok();
        if let Some(teller) = &self.teller {
            teller.await_told(NOTED_MAX);
        }
    }

    fn hand_over(&self, file: &dyn Fn() -> Option<u64>) -> bool {
        self.teller.is_none() || file().is_none_or(|ino| self.folders.hand_over(ino))
    }

    fn keep_still(&self, ino: u64) -> Option<Box<dyn Still>> {
        self.teller.as_ref()?;
        let file = self.folders.keep_still(ino)?;
        Some(Box::new(StillInode { ino, file }))
    }

    fn change_snapshot(&self, who: &Identity<'_>, change: &SnapshotChange) -> Result<(), Errno> {
        let desk = self.folders.desk.get().ok_or(Errno::EROFS)?;
        // A client has no thread here.
        let person = Person { uid: who.uid, gid: who.gid, pid: 0 };
        let done = match change {
            SnapshotChange::Take(name) => desk.take(person, name),
            SnapshotChange::Destroy(name) => desk.destroy(person, name),
            SnapshotChange::Rename(name, to) => desk.rename(person, name, to),
        };
        done.map_err(|errno| Errno(errno.0))
    }
}
