//! Why a mount cannot be made, or unmade.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Failures of mounting and unmounting. Each sentence says what happened and, where there is one,
/// the way out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no `/dev/fuse`.
    #[error(
        "/dev/fuse does not exist: this kernel has no FUSE, or the container hides it. \
         Type `modprobe fuse`; in a container, start it with `--device /dev/fuse --cap-add SYS_ADMIN`."
    )]
    DeviceMissing,
    /// `/dev/fuse` cannot be opened.
    #[error("/dev/fuse cannot be opened: {source}. Ask an administrator to type `chmod 666 /dev/fuse`.")]
    DeviceRefused {
        /// Why.
        source: io::Error,
    },
    /// There is no `fusermount3`.
    #[error(
        "the program fusermount3 is not installed; without it only root can mount. \
         Type `apt install fuse3` (or your system's word for it), or run as root."
    )]
    HelperMissing,
    /// `fusermount3` could not be run.
    #[error("the program {} could not be run: {source}", program.display())]
    HelperNotRun {
        /// Where it is.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `fusermount3` said no.
    #[error("fusermount3 refused: {message}")]
    HelperRefused {
        /// Its own words.
        message: String,
    },
    /// The mountpoint cannot be reached.
    #[error("the mountpoint {} cannot be used: {source}", path.display())]
    MountpointUnreachable {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A symbolic link of an ordinary user leads to the mountpoint.
    #[error(
        "the mountpoint {} is not used: the symbolic link {} on the way belongs to user {uid}, who could lead the mount anywhere. \
         Remove the link, or mount where only root changes the path.",
        path.display(),
        link.display()
    )]
    MountpointLink {
        /// The path.
        path: PathBuf,
        /// The link.
        link: PathBuf,
        /// Owner of the link.
        uid: u32,
    },
    /// The mountpoint is no directory.
    #[error("the mountpoint {} is not a directory", path.display())]
    MountpointNotDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The mountpoint of a file is no regular file.
    #[error("the mountpoint {} is not a file", path.display())]
    MountpointNotFile {
        /// The path.
        path: PathBuf,
    },
    /// An earlier server of this mountpoint ended without unmounting.
    #[error(
        "{} is still mounted by a server that is gone. Type `fusermount3 -uz {}` (or, as root, `umount -l {}`).",
        path.display(), path.display(), path.display()
    )]
    MountpointStale {
        /// The path.
        path: PathBuf,
    },
    /// `mount(2)` failed.
    #[error("the kernel refused to mount at {}: {source}", path.display())]
    MountRefused {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The handshake could not be read or answered.
    #[error("the handshake with the kernel failed: {message}")]
    Handshake {
        /// The event.
        message: String,
    },
    /// The kernel is too old.
    #[error("the kernel speaks FUSE {major}.{minor}; at least 7.31 (Linux 5.4) is needed")]
    ProtocolTooOld {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
    },
    /// No thread could be started.
    #[error("no thread could be started to serve the mount: {source}")]
    ThreadNotStarted {
        /// Why.
        source: io::Error,
    },
    /// Files of the mount are in use.
    #[error("{} is in use: a program has a file open or its working directory there. \
             Close it (`fuser -vm {}` names it) and try again, or unmount lazily.", path.display(), path.display())]
    Busy {
        /// The path.
        path: PathBuf,
    },
    /// The table of mounts cannot be read.
    #[error("/proc/self/mountinfo, which tells what is mounted, cannot be read: {source}")]
    TableUnreadable {
        /// Why.
        source: io::Error,
    },
    /// Something else was mounted over the mountpoint, or over a folder above it.
    #[error("something else is mounted over {} or a folder above it: unmount that first", path.display())]
    MountedOver {
        /// The path.
        path: PathBuf,
    },
    /// `umount(2)` failed.
    #[error("the kernel refused to unmount {}: {source}", path.display())]
    UnmountRefused {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The mount is gone here, but not everywhere.
    #[error(
        "{} is unmounted here, but another mount namespace (a container or a service) still holds it",
        path.display()
    )]
    HeldElsewhere {
        /// The path.
        path: PathBuf,
    },
}
