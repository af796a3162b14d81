//! A private directory for one experiment, and its removal, which never crosses into something
//! mounted.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::mounts::mounts_below;
use crate::error::Error;

/// A directory that only its owner can enter, removed with all that is in it when dropped.
#[derive(Debug)]
pub struct Workdir {
    path: PathBuf,
    kept: bool,
}

impl Workdir {
    /// Makes a directory with a new name below `parent`.
    pub fn create(parent: &Path) -> Result<Self, Error> {
        let stamp = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        for attempt in 0..100u32 {
            let tail = stamp.subsec_micros().wrapping_add(attempt);
            // Short: sockets live below it, and their paths may have 107 bytes.
            let path = parent.join(format!("steadfast-lab.{}.{tail:x}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let path = path.canonicalize().map_err(Error::io("find", &path))?;
                    return Ok(Self { path, kept: false });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create", &path)(error)),
            }
        }
        Err(Error::Io {
            doing: "create a directory in",
            path: parent.to_owned(),
            source: std::io::ErrorKind::AlreadyExists.into(),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory in it, made if it is not there.
    pub fn subdirectory(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(Error::io("create", &path))?;
        Ok(path)
    }

    /// Leaves it behind.
    pub fn keep(&mut self) {
        self.kept = true;
    }

    /// Removes it, unless something is still mounted in it.
    pub fn remove(&mut self) -> Result<(), Error> {
        if self.kept || !self.path.exists() {
            return Ok(());
        }
        let mounts = mounts_below(&self.path);
        if let Some(mount) = mounts.first() {
            return Err(Error::Missing {
                what: format!(
                    "{} is still mounted, so {} was not removed.",
                    mount.display(),
                    self.path.display()
                ),
                action: format!(
                    "type `umount {0}` (as an ordinary user `fusermount3 -u {0}`), then `rm -r {1}`.",
                    mount.display(),
                    self.path.display()
                ),
            });
        }
        fs::remove_dir_all(&self.path).map_err(Error::io("remove", &self.path))
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn is_private_and_gone_when_dropped() {
        let dir = Workdir::create(&std::env::temp_dir()).unwrap();
        let path = dir.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(dir.subdirectory("a/b").unwrap().join("file"), "x").unwrap();
        drop(dir);
        assert!(!path.exists());
    }
}
