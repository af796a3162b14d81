//! Names that the kernel may remember, before and after the content of a mount is exchanged.

use std::collections::BTreeMap;

use steadfast_format::InodeId;
use steadfast_posix::{Errno, FileSystem};

const TOP: u64 = 1;

/// Folders that the kernel may know, each with its names and their inodes.
pub(crate) type Names = BTreeMap<u64, BTreeMap<Vec<u8>, u64>>;

/// Names in the top folder and in those of the inodes that the kernel knows. `None` if they cannot
/// be read.
pub(crate) fn names_in(fs: &FileSystem, known: &[(InodeId, u64)]) -> Option<Names> {
    let folders = std::iter::once(TOP).chain(known.iter().map(|(inode, _)| inode.0));
    folders.map(|folder| Some((folder, names_of(fs, folder)?))).collect()
}

fn names_of(fs: &FileSystem, folder: u64) -> Option<BTreeMap<Vec<u8>, u64>> {
    let mut names = BTreeMap::new();
    let listed = fs.readdir(folder, 0, |found| {
        names.insert(found.name, found.ino);
        true
    });
    match listed {
        // It is no folder, or not there.
        Err(Errno::ENOTDIR | Errno::ESTALE) => Some(BTreeMap::new()),
        listed => listed.ok().map(|()| names),
    }
}

/// Names, each with its folder, that mean something else in `new`.
pub(crate) fn names_that_differ(old: &Names, mut new: Names) -> Vec<(u64, Vec<u8>)> {
    let mut changed = Vec::new();
    for (folder, names) in old {
        let mut now = new.remove(folder).unwrap_or_default();
        for (name, inode) in names {
            if now.remove(name) != Some(*inode) {
                changed.push((*folder, name.clone()));
            }
        }
        changed.extend(now.into_keys().map(|name| (*folder, name)));
    }
    changed
}
