//! Medium of a path: the file or disk that stores the bytes.
//!
//! A loop device shows a file as a disk. Its own node has another inode than the file, so a lock on
//! one does not keep away the user of the other, and both would be found as two devices. Sysfs
//! names the file (`loop/backing_file`), and the part of it that is shown.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Identity of a medium: two paths with the same one lead to the same bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Medium {
    /// Number of the file system and inode of a file; number of a disk.
    place: (u64, u64),
    /// First byte that is used, where a loop device shows only a part.
    offset: u64,
}

impl Medium {
    /// The medium of a path, behind loop devices and their partitions. `None` if nothing is there.
    #[must_use]
    pub fn of(path: &Path) -> Option<Medium> {
        let metadata = fs::metadata(path).ok()?;
        if !metadata.file_type().is_block_device() {
            return Some(Medium { place: (metadata.dev(), metadata.ino()), offset: 0 });
        }
        // A deleted file has no path. Nobody can open it by one.
        let behind = Backing::of(&metadata).and_then(|backing| {
            let medium = Medium::of(&backing.path)?;
            Some(Medium { offset: medium.offset + backing.offset, ..medium })
        });
        Some(behind.unwrap_or(Medium { place: (u64::MAX, metadata.rdev()), offset: 0 }))
    }
}

/// The part of a file or disk that a loop device shows.
pub(crate) struct Backing {
    pub path: PathBuf,
    offset: u64,
    /// It is shown from its first to its last byte.
    pub is_whole: bool,
}

impl Backing {
    /// Behind a block device; `None` if it is neither a loop device nor a partition of one.
    pub fn of(metadata: &Metadata) -> Option<Backing> {
        if !metadata.file_type().is_block_device() {
            return None;
        }
        let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        Backing::in_sysfs(&folder)
    }

    fn in_sysfs(folder: &Path) -> Option<Backing> {
        let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let is_partition = folder.join("partition").exists();
        // Sysfs counts sectors of 512 bytes, whatever those of the disk are.
        let start = if is_partition { number(folder.join("start"))? * 512 } else { 0 };
        let disk = if is_partition { folder.parent()?.join("loop") } else { folder.join("loop") };
        let path = fs::read_to_string(disk.join("backing_file")).ok()?;
        let offset = start + number(disk.join("offset"))?;
        let is_whole = !is_partition && offset == 0 && number(disk.join("sizelimit"))? == 0;
        Some(Backing { path: path.strip_suffix('\n').unwrap_or(&path).into(), offset, is_whole })
    }
}

/// True if the system has built another disk upon this one: a mapped or encrypted disk, a RAID. The
/// other one is the device.
#[must_use]
pub fn is_below_another(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    if !metadata.file_type().is_block_device() {
        return false;
    }
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let holders = fs::read_dir(format!("/sys/dev/block/{major}:{minor}/holders"));
    holders.is_ok_and(|mut holders| holders.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_of_a_loop_device_is_a_part_of_its_file() {
        let base = std::env::temp_dir().join(format!("steadfast-medium-{}", std::process::id()));
        let (disk, partition) = (base.join("loop7"), base.join("loop7/loop7p2"));
        fs::create_dir_all(disk.join("loop")).unwrap();
        fs::create_dir_all(&partition).unwrap();
        let write = |path: PathBuf, text: &str| fs::write(path, text).unwrap();
        assert!(Backing::in_sysfs(&disk).is_none(), "a loop device without a file");
        write(disk.join("loop/backing_file"), "/images/a b\n.img\n");
        write(disk.join("loop/offset"), "0\n");
        write(disk.join("loop/sizelimit"), "0\n");
        write(partition.join("partition"), "2\n");
        write(partition.join("start"), "2048\n");
        let whole = Backing::in_sysfs(&disk).unwrap();
        assert!(whole.is_whole && whole.offset == 0);
        assert_eq!(whole.path, Path::new("/images/a b\n.img"));
        let part = Backing::in_sysfs(&partition).unwrap();
        assert!(!part.is_whole && part.offset == 1 << 20);
        write(disk.join("loop/offset"), "4096\n");
        let shifted = Backing::in_sysfs(&disk).unwrap();
        assert!(!shifted.is_whole && shifted.offset == 4096);
        fs::remove_dir_all(&base).unwrap();
    }
}
