//! Snapshots of a mounted file system as network clients use them.
//!
//! The kernel's snapshots are open as long as it remembers an inode of theirs. A network client
//! tells nobody when it forgets, so a few that were used last are kept open here.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use steadfast_format::DatasetId;
use steadfast_nfs::Snapshots;
use steadfast_pool::{SnapshotHandle, SnapshotsOf};
use steadfast_posix::{FileSystem, Options, Time};

/// Snapshots that are kept open.
const OPEN_MAX: usize = 16;

/// The way of network clients to the snapshots of a mount.
pub(crate) struct SnapshotDoor {
    snapshots: SnapshotsOf,
    options: Options,
    /// Show access control lists; show user attributes.
    shown: [bool; 2],
    since: Time,
    /// Used last: at the back.
    open: Mutex<VecDeque<(SnapshotHandle, Arc<FileSystem>)>>,
}

impl SnapshotDoor {
    pub(crate) fn new(
        snapshots: SnapshotsOf,
        options: Options,
        shown: [bool; 2],
        since: Time,
    ) -> SnapshotDoor {
        SnapshotDoor { snapshots, options, shown, since, open: Mutex::default() }
    }

    /// Closes all.
    pub(crate) fn close(&self) {
        let open = std::mem::take(&mut *self.open.lock());
        drop(open);
    }

    fn open(&self, number: DatasetId) -> Option<(SnapshotHandle, Arc<FileSystem>)> {
        {
            let mut open = self.open.lock();
            if let Some(at) = open.iter().position(|(handle, _)| handle.number() == number) {
                let found = open.remove(at)?;
                open.push_back(found.clone());
                return Some(found);
            }
        }
        // Without the lock: this reads.
        let handle = self.snapshots.open_number(number)?;
        let fs = FileSystem::of_snapshot(handle.with(Arc::clone)?, self.options.clone());
        let [acls, attributes] = self.shown;
        fs.set_acls(acls);
        fs.set_user_attributes(attributes);
        let made = (handle, Arc::new(fs));
        let mut open = self.open.lock();
        // Others that did the same at once have one each until it is closed.
        let closed = if open.len() < OPEN_MAX { None } else { open.pop_front() };
        open.push_back(made.clone());
        drop(open);
        drop(closed);
        Some(made)
    }
}

impl Snapshots for SnapshotDoor {
    fn is_visible(&self) -> bool {
        self.snapshots.is_visible()
    }

    fn since(&self) -> Time {
        self.since
    }

    fn changed(&self) -> Time {
        Time::from_ns(self.snapshots.changed_ns().into())
    }

    fn list(&self) -> Vec<(String, u64)> {
        self.snapshots.list().into_iter().map(|(name, number)| (name, number.0)).collect()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.snapshots.number(name).map(|number| number.0)
    }

    fn enter(&self, number: u64, read: &mut dyn FnMut(&Arc<FileSystem>)) {
        let number = DatasetId(number);
        if let Some((handle, fs)) = self.open(number)
            && handle.with(|_| read(&fs)).is_none()
        {
            // It was destroyed.
            self.open.lock().retain(|(handle, _)| handle.number() != number);
        }
    }
}
