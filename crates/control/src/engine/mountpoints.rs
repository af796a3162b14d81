//! Folders and files that something is mounted at.
//!
//! They may lie in a mount of this daemon, so each look and each change goes [`aside`].

use crate::refusal::{Code, Refusal};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};
use steadfast_fuse::aside;
use steadfast_pool::DatasetInfo;

/// A path under a prefix.
pub(super) fn under(prefix: Option<&Path>, path: &str) -> PathBuf {
    match prefix {
        Some(prefix) => prefix.join(path.trim_start_matches('/')),
        None => PathBuf::from(path),
    }
}

/// Kind of a mountpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Shape {
    /// A file system over a folder.
    Folder,
    /// A volume over a file.
    File,
}

impl Shape {
    /// Kind of a dataset's mountpoint.
    pub fn of(info: &DatasetInfo) -> Shape {
        if info.volume.is_some() { Shape::File } else { Shape::Folder }
    }
}

/// Makes a mountpoint: an empty folder, or for a volume an empty file. Returns the new folders and
/// file, outermost first.
pub(super) fn prepare(at: &Path, overlay: bool, shape: Shape) -> Result<Vec<PathBuf>, Refusal> {
    aside(|| prepare_here(at, overlay, shape))
}

fn prepare_here(at: &Path, overlay: bool, shape: Shape) -> Result<Vec<PathBuf>, Refusal> {
    check_here(at, overlay, shape)?;
    let mut made: Vec<PathBuf> =
        at.ancestors().take_while(|folder| !folder.exists()).map(PathBuf::from).collect();
    made.reverse();
    for (index, folder) in made.iter().enumerate() {
        let makes_file = shape == Shape::File && index + 1 == made.len();
        let outcome = match makes_file {
            true => fs::File::create_new(folder).map(drop),
            false => fs::create_dir(folder),
        };
        match outcome {
            // Another process made it meanwhile: only empty folders are removed later, so that does
            // not matter.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                unmake_here(&made[..index]);
                let what = format!("the mountpoint {} cannot be created: {error}", at.display());
                return Err(Refusal::new(Code::FuseMount, what).with("mountpoint", at.display()));
            }
            _ => {}
        }
    }
    Ok(made)
}

/// Removes folders and files that were made for a mount, innermost first, as long as they are
/// empty.
pub(super) fn unmake(made: &[PathBuf]) {
    if !made.is_empty() {
        aside(|| unmake_here(made));
    }
}

fn unmake_here(made: &[PathBuf]) {
    for place in made.iter().rev() {
        // A file with contents is no longer ours.
        let empty_file = fs::symlink_metadata(place).is_ok_and(|found| found.is_file() && found.len() == 0);
        let removed = if empty_file { fs::remove_file(place) } else { fs::remove_dir(place) };
        if removed.is_err() {
            return;
        }
    }
}

/// Refuses a mountpoint that a user could lead elsewhere: a link in its path, or a folder that
/// others than root may change.
pub(super) fn check_for_guest(at: &Path) -> Result<(), Refusal> {
    aside(|| check_for_guest_here(at))
}

fn check_for_guest_here(at: &Path) -> Result<(), Refusal> {
    let refuse = |why: String| {
        let what = format!("the mountpoint {} is not for users: {why}", at.display());
        Err(Refusal::new(Code::PeerRights, what).with("mountpoint", at.display()))
    };
    // Others do not exchange a folder that root made in one like /tmp.
    let mut inner_is_roots = false;
    for folder in at.ancestors() {
        let found = match fs::symlink_metadata(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return refuse(format!("{}: {error}", folder.display())),
            Ok(found) => found,
        };
        let is_shared = found.mode() & 0o022 != 0 && !(found.mode() & 0o1000 != 0 && inner_is_roots);
        if !found.is_dir() {
            return refuse(format!("{} is no folder", folder.display()));
        }
        // The mountpoint itself may be anybody's: only its folder decides what it is.
        if folder != at && (found.uid() != 0 || is_shared) {
            return refuse(format!("others than root may change {}", folder.display()));
        }
        inner_is_roots = found.uid() == 0;
    }
    Ok(())
}

/// Checks a mountpoint; makes nothing.
pub(super) fn check(at: &Path, overlay: bool, shape: Shape) -> Result<(), Refusal> {
    aside(|| check_here(at, overlay, shape))
}

/// True if something is at a path that may lie in a mount of this daemon.
pub(super) fn is_there(at: &Path) -> bool {
    aside(|| at.exists())
}

fn check_here(at: &Path, overlay: bool, shape: Shape) -> Result<(), Refusal> {
    let refuse = |what: String| Refusal::new(Code::FsMountpoint, what).with("mountpoint", at.display());
    if shape == Shape::File {
        return match fs::metadata(at) {
            Ok(found) if found.is_file() && (overlay || found.len() == 0) => Ok(()),
            Ok(found) if found.is_file() => {
                Err(refuse(format!("the mountpoint {} is a file that is not empty", at.display())))
            }
            Ok(_) => Err(refuse(format!(
                "the mountpoint {} is not a file; a volume is mounted on a file",
                at.display()
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(refuse(format!("the mountpoint {} cannot be read: {error}", at.display()))),
        };
    }
    match fs::read_dir(at) {
        Ok(mut entries) => match entries.next() {
            Some(_) if !overlay => Err(refuse(format!("the mountpoint {} is not empty", at.display()))),
            _ => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(refuse(format!("the mountpoint {} is not a folder", at.display())))
        }
        Err(error) => Err(refuse(format!("the mountpoint {} cannot be read: {error}", at.display()))),
    }
}
