//! Snapshots that are taken, destroyed and renamed through the folder `.zfs/snapshot`.

use steadfast_fuse::{Errno, Request};

/// The user of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Person {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Thread; 0 if it is not known here, or the user is one of a network client.
    pub pid: u32,
}

impl From<&Request> for Person {
    fn from(request: &Request) -> Person {
        Person { uid: request.uid, gid: request.gid, pid: request.pid }
    }
}

/// Changes the snapshots of one mounted file system, for users who make, remove and rename folders
/// in `.zfs/snapshot`. It decides who may.
///
/// The kernel holds the lock of the folder meanwhile, so a mount has one such request at a time. An
/// implementation may use the mount, and waits for other commands for a limited time only: they may
/// wait for the mount.
pub trait SnapshotDesk: Send + Sync {
    /// Takes a snapshot.
    ///
    /// # Errors
    /// `EPERM`, `EEXIST`, `EAGAIN` if other commands take too long, and others.
    fn take(&self, person: Person, name: &str) -> Result<(), Errno>;

    /// Destroys a snapshot.
    ///
    /// # Errors
    /// `EPERM`; `EBUSY` for one with holds or clones; `EAGAIN` as above; and others.
    fn destroy(&self, person: Person, name: &str) -> Result<(), Errno>;

    /// Gives a snapshot another name.
    ///
    /// # Errors
    /// `EPERM`, `EEXIST`, `EAGAIN` as above, and others.
    fn rename(&self, person: Person, name: &str, to: &str) -> Result<(), Errno>;
}
