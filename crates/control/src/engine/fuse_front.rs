//! Mounts through the kernel's FUSE.

use super::front::{Front, MountSettings, Mounted, UsageOf};
use crate::refusal::{Code, Refusal};
use rustix::mount::{MountFlags, mount_remount};
use std::path::Path;
use std::sync::Arc;
use steadfast_fuse::Error;
use steadfast_mount::{MountError, MountSpec, MountedFs, SnapshotDesk};
use steadfast_nfs::Volume;
use steadfast_pool::DatasetHandle;
use steadfast_posix::Atime;

/// Mounts through FUSE, for the daemon.
#[derive(Clone, Copy, Debug, Default)]
pub struct FuseFront;

impl Front for FuseFront {
    fn mount(
        &self,
        dataset: DatasetHandle,
        at: &Path,
        settings: &MountSettings,
        usage: UsageOf,
    ) -> Result<Box<dyn Mounted>, Refusal> {
        let source = settings.source.clone();
        let spec = MountSpec {
            mountpoint: at.to_owned(),
            fs_name: settings.source.clone(),
            read_only: settings.read_only,
            atime: atime(settings),
            dir_atime: settings.dir_atime,
            nosuid: !settings.setuid,
            nodev: !settings.devices,
            noexec: !settings.exec,
            acl: settings.acl,
            xattr: settings.xattr,
            utf8_only: settings.utf8_only,
            sync_always: settings.sync_always,
            allow_other: settings.allow_other,
            usage,
            switches: settings.switches.join(","),
            log: Some(Arc::new(move |event| eprintln!("steadfast: mount of '{source}': {event}"))),
        };
        match MountedFs::mount(dataset, &spec) {
            Ok(mounted) => Ok(Box::new(mounted)),
            Err(MountError::Fuse(error)) => Err(refusal(&error)),
            Err(MountError::Switch(error)) => Err(Refusal::new(Code::PropValue, error.to_string())),
            Err(error) => Err(Refusal::new(Code::VdevIo, error.to_string())),
        }
    }

    fn may_allow_other(&self) -> bool {
        rustix::process::geteuid().is_root()
            || std::fs::read_to_string("/etc/fuse.conf")
                .is_ok_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"))
    }

    fn may_collect(&self) -> bool {
        steadfast_mount::may_collect()
    }

    fn clear_stale(&self, at: &Path) -> bool {
        steadfast_fuse::clear_stale(at).unwrap_or(false)
    }
}

impl Mounted for MountedFs {
    fn has_ended(&self) -> bool {
        !self.is_alive()
    }

    fn is_attached(&self) -> bool {
        MountedFs::is_attached(self)
    }

    fn unmount(&self, force: bool) -> Result<(), Refusal> {
        MountedFs::unmount(self, force).map_err(|error| refusal(&error))
    }

    fn settle(&self) -> std::io::Result<()> {
        MountedFs::settle(self)
    }

    fn collects_writes(&self) -> bool {
        MountedFs::collects_writes(self)
    }

    fn may_renew(&self) -> bool {
        MountedFs::may_renew(self)
    }

    fn renew(&self, change: &mut dyn FnMut() -> Option<DatasetHandle>) -> Result<(), Refusal> {
        MountedFs::renew(self, change).map_err(|error| {
            let code = if matches!(error, MountError::InUse) { Code::FsBusy } else { Code::FuseMount };
            let what = format!("{}: {error}", self.mountpoint().display());
            Refusal::new(code, what).with("mountpoint", self.mountpoint().display())
        })
    }

    fn network_door(&self) -> Option<(Arc<dyn Volume>, [u8; 16])> {
        MountedFs::network_door(self)
    }

    fn set_desk(&self, desk: Arc<dyn SnapshotDesk>) {
        MountedFs::set_desk(self, desk);
    }

    fn note_snapshots(&self) {
        MountedFs::note_snapshots(self);
    }

    fn await_notes(&self) {
        MountedFs::await_notes(self);
    }

    fn remount(&self, settings: &MountSettings) -> Result<(), Refusal> {
        let at = self.mountpoint();
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, settings.read_only);
        flags.set(MountFlags::NOEXEC, !settings.exec);
        flags.set(MountFlags::NOSUID, !settings.setuid);
        flags.set(MountFlags::NODEV, !settings.devices);
        flags.set(MountFlags::NOATIME, !settings.atime);
        flags.set(MountFlags::NODIRATIME, !settings.dir_atime);
        flags.set(MountFlags::STRICTATIME, settings.atime && !settings.relatime);
        flags.set(MountFlags::SYNCHRONOUS, settings.sync_always && self.collects_writes());
        // The kernel hands changed pages over first.
        steadfast_fuse::aside(|| mount_remount(at, flags, "")).map_err(|error| {
            let (code, why) = match error {
                rustix::io::Errno::BUSY => (Code::FsBusy, "a program has a file open for writing"),
                // It was unmounted a moment ago; the session may not know yet.
                rustix::io::Errno::INVAL => (Code::FsNotMounted, "nothing is mounted there any more"),
                rustix::io::Errno::PERM => (Code::FuseMount, "only root may change a mount's options"),
                _ => (Code::FuseMount, "the kernel refused"),
            };
            let what = format!("cannot change the mount options of {}: {why} ({error})", at.display());
            Refusal::new(code, what).with("mountpoint", at.display())
        })?;
        self.set_atime(atime(settings), settings.dir_atime);
        self.set_read_only(settings.read_only);
        Ok(())
    }
}

fn atime(settings: &MountSettings) -> Atime {
    match (settings.atime && !settings.read_only, settings.relatime) {
        (false, _) => Atime::Off,
        (true, true) => Atime::Relative,
        (true, false) => Atime::Strict,
    }
}

fn refusal(error: &Error) -> Refusal {
    let code = match error {
        // The helper's own words: it cannot reach the device for this user.
        Error::HelperRefused { message } if message.contains("/dev/fuse") => Code::FuseMissing,
        Error::DeviceMissing
        | Error::DeviceRefused { .. }
        | Error::HelperMissing
        | Error::ProtocolTooOld { .. } => Code::FuseMissing,
        Error::Busy { .. } | Error::MountedOver { .. } | Error::HeldElsewhere { .. } => Code::FsBusy,
        Error::MountpointNotDirectory { .. } | Error::MountpointNotFile { .. } => Code::FsMountpoint,
        _ => Code::FuseMount,
    };
    match error {
        // The catalogue says what to do, in the words of the command line.
        Error::Busy { path } => {
            let what =
                format!("{} is in use: a program has a file open, or a working folder there", path.display());
            Refusal::new(code, what).with("mountpoint", path.display())
        }
        _ => Refusal::new(code, error.to_string()),
    }
}
