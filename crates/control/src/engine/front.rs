//! How file systems are mounted: settings, and the interface to the kernel. Tests implement it
//! without one.

use crate::engine::shares::Share;
use crate::refusal::Refusal;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadfast_mount::SnapshotDesk;
use steadfast_nfs::Volume;
use steadfast_pool::DatasetHandle;
use steadfast_posix::Usage;

/// How one file system is to be mounted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MountSettings {
    /// Source in `df`: the file system's name.
    pub source: String,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Set-user-id bits count.
    pub setuid: bool,
    /// Device nodes work.
    pub devices: bool,
    /// Reads are recorded.
    pub atime: bool,
    /// Reads are recorded at most once a day.
    pub relatime: bool,
    /// Listing directories is recorded as reading is.
    pub dir_atime: bool,
    /// POSIX access control lists are kept and count.
    pub acl: bool,
    /// Extended attributes of users are kept and shown.
    pub xattr: bool,
    /// New names have to be UTF-8.
    pub utf8_only: bool,
    /// Each `write` is durable when it returns.
    pub sync_always: bool,
    /// Users other than the daemon's may enter.
    pub allow_other: bool,
    /// Switches of the transport, `NAME=VALUE` each.
    pub switches: Vec<String>,
}

impl MountSettings {
    /// Each read moves an access time.
    pub(super) fn counts_each_read(&self) -> bool {
        self.atime && !self.relatime && !self.read_only
    }

    /// These settings with those of `other` that [`Mounted::remount`] gives to a mount in use.
    pub(super) fn remounted_as(&self, other: &MountSettings) -> MountSettings {
        let (acl, xattr, utf8_only, allow_other) = (self.acl, self.xattr, self.utf8_only, self.allow_other);
        MountSettings { acl, xattr, utf8_only, allow_other, switches: self.switches.clone(), ..other.clone() }
    }
}

/// Gives the used and available space of a file system.
pub type UsageOf = Arc<dyn Fn() -> Usage + Send + Sync>;

/// Makes mounts. Passed in, so that tests need no kernel.
pub trait Front: Send + Sync {
    /// Mounts a dataset at a folder that exists, and serves it until it is unmounted. The handle
    /// lives as long as the mount.
    ///
    /// # Errors
    /// [`crate::Code::FuseMissing`], [`crate::Code::FuseMount`].
    fn mount(
        &self,
        dataset: DatasetHandle,
        at: &Path,
        settings: &MountSettings,
        usage: UsageOf,
    ) -> Result<Box<dyn Mounted>, Refusal>;

    /// True if users other than the daemon's may enter its mounts: root may allow it, others if the
    /// administrator permits it. File modes apply in either case.
    fn may_allow_other(&self) -> bool;

    /// True if it may let the kernel collect writes, which takes root: see
    /// [`steadfast_mount::may_collect`].
    fn may_collect(&self) -> bool {
        true
    }

    /// Frees a folder at which a server that died has left a mount. True if there was one.
    fn clear_stale(&self, at: &Path) -> bool;
}

/// A mount that is served.
pub trait Mounted: Send + Sync {
    /// True if it was unmounted, by us or by anybody else.
    fn has_ended(&self) -> bool;

    /// False if umount(8) took it away here, though a copy in another mount namespace keeps it.
    fn is_attached(&self) -> bool {
        true
    }

    /// Unmounts it. With `force` even if files are open.
    ///
    /// # Errors
    /// [`crate::Code::FsBusy`], [`crate::Code::FuseMount`].
    fn unmount(&self, force: bool) -> Result<(), Refusal>;

    /// Changes its options while files stay open. `allow_other` does not change.
    ///
    /// # Errors
    /// [`crate::Code::FsBusy`] if files are open for writing and it is to be read-only,
    /// [`crate::Code::FuseMount`].
    fn remount(&self, settings: &MountSettings) -> Result<(), Refusal>;

    /// Makes the kernel write out dirty pages. A daemon that is not root's does not wait for the
    /// last ones.
    ///
    /// # Errors
    /// A page could not be written.
    fn settle(&self) -> std::io::Result<()>;

    /// True if the kernel collects its writes.
    fn collects_writes(&self) -> bool;

    /// True if [`Mounted::renew`] is possible.
    fn may_renew(&self) -> bool {
        false
    }

    /// Lets its dataset go, calls `change`, which gives it other content, and goes on with the
    /// handle that it gives. Files stay open. Requests wait meanwhile: `change` must not use the
    /// mount.
    ///
    /// # Errors
    /// [`crate::Code::FsBusy`] if `change` was not called. Others if the mount is to be ended.
    fn renew(&self, _change: &mut dyn FnMut() -> Option<DatasetHandle>) -> Result<(), Refusal> {
        Err(Refusal::new(crate::Code::FsBusy, "the content of this mount cannot be exchanged"))
    }

    /// The way of network clients into it, and the secret of its handles. `None` if it cannot be
    /// shared.
    fn network_door(&self) -> Option<(Arc<dyn Volume>, [u8; 16])> {
        None
    }

    /// Lets users change snapshots in the folder of snapshots.
    fn set_desk(&self, _desk: Arc<dyn SnapshotDesk>) {}

    /// The list of snapshots, or its visibility, changed.
    fn note_snapshots(&self);

    /// Waits until the kernel knows, for a limited time.
    fn await_notes(&self);
}

/// A mount that was unmounted to be mounted again.
pub(super) struct FormerMount {
    pub name: String,
    /// Its path.
    pub was: PathBuf,
    /// Its path, if that was not its mountpoint.
    pub at: Option<PathBuf>,
    /// Mount options that differ from its properties.
    pub options: Vec<String>,
}

/// One entry of the mount table.
pub(super) struct Mount {
    pub served: Arc<dyn Mounted>,
    pub at: PathBuf,
    /// The settings that were asked for.
    pub settings: MountSettings,
    /// Mount options that differ from its properties.
    pub options: Vec<String>,
    /// Folders we made for it, outermost first; we remove them again.
    pub made: Vec<PathBuf>,
    /// Its file system's name, shared with its [`UsageOf`]. A rename changes it.
    pub name: Arc<Mutex<String>>,
    /// It is at the path of its old name, and moves to its mountpoint at the next mount.
    pub displaced: bool,
    /// Its export, as long as it is shared.
    pub share: Option<Share>,
}
