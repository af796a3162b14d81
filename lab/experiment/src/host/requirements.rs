//! Programs, rights and room that an experiment cannot do without.

use std::fs::OpenOptions;
use std::path::Path;

use steadfast_lab_report::number;

use super::space;
use crate::error::Error;

/// Is there what a FUSE mount needs? Says what is missing and what to type.
pub fn check_fuse() -> Result<(), Error> {
    let device = Path::new("/dev/fuse");
    if !device.exists() {
        return Err(Error::Missing {
            what: "This needs FUSE, and there is no /dev/fuse on this machine.".to_owned(),
            action: "type `sudo modprobe fuse`; in a container, start it with `--device /dev/fuse --cap-add SYS_ADMIN`."
                .to_owned(),
        });
    }
    let root = rustix::process::geteuid().is_root();
    if !root && !on_path("fusermount3") {
        return Err(Error::Missing {
            what: "This needs fusermount3 to mount without being root, and it is not installed.".to_owned(),
            action: "type `sudo apt install fuse3` (Fedora: `sudo dnf install fuse3`), or run this as root."
                .to_owned(),
        });
    }
    match OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && !root => Err(Error::Missing {
            what: "This needs FUSE, and /dev/fuse may not be opened by this user.".to_owned(),
            action: "type `sudo chmod 666 /dev/fuse` (what most distributions ship), or run this as root.".to_owned(),
        }),
        Err(error) => Err(Error::Missing {
            what: format!("This needs FUSE, and /dev/fuse cannot be opened: {error}."),
            action: "type `sudo modprobe fuse`; in a container, start it with `--device /dev/fuse --cap-add SYS_ADMIN`."
                .to_owned(),
        }),
    }
}

pub(crate) fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// Refuses everybody but root. `why` says for what root is needed, `command` what to type.
pub(crate) fn check_root(why: &str, command: &str) -> Result<(), Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::Missing {
        what: format!("This needs root: {why}."),
        action: format!("type `sudo {command}`."),
    })
}

/// Refuses a directory with less free space than `needed` bytes.
pub(crate) fn check_room(directory: &Path, needed: u64, action: &str) -> Result<(), Error> {
    let available = space::available(directory)?;
    if available >= needed {
        return Ok(());
    }
    Err(Error::Missing {
        what: format!(
            "{} has {} free, and this experiment needs {}.",
            directory.display(),
            number::bytes(available),
            number::bytes(needed)
        ),
        action: action.to_owned(),
    })
}
