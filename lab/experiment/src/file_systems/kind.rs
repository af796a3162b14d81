//! The kinds of file system that are compared, and whether this machine can make one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::zfs_fuse;
use crate::host::requirements::on_path;

/// Kind of a file system.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// A kernel file system on a loop device.
    Loop {
        /// Its name: `ext4`.
        file_system: &'static str,
        /// Words for the program that makes it.
        words: &'static str,
        /// Options of its mount; may be empty.
        options: &'static str,
    },
    /// gocryptfs over an ext4 of its own.
    Gocryptfs,
    /// A pool of zfs-fuse. There is one server of it on a machine.
    ZfsFuse {
        /// Where its programs lie.
        programs: PathBuf,
        /// Words for `zpool create`.
        words: &'static str,
    },
    /// A folder in a directory that somebody has mounted, and whose file system stays as it is.
    Folder {
        /// The directory.
        parent: PathBuf,
    },
    /// A FUSE file system that keeps names in memory and does nothing else.
    Memory {
        /// The program.
        program: PathBuf,
    },
    /// A pool of ours.
    Ours {
        /// Words for `pool create`.
        words: &'static str,
        /// A property set on it afterwards. A build that refuses it takes no part.
        property: Option<&'static str>,
    },
}

/// How an arm is made.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    /// Key of its column.
    pub key: &'static str,
    /// Heading of its column.
    pub label: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Size of its image.
    pub image_bytes: u64,
}

impl Kind {
    /// Why this machine cannot make it; `None` if it can.
    pub(crate) fn lacks(&self) -> Option<String> {
        let program = |name: &str, package: &str| {
            (!on_path(name)
                && !Path::new("/usr/sbin").join(name).exists()
                && !Path::new("/sbin").join(name).exists())
            .then(|| format!("{name} is not installed: apt install {package}"))
        };
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let kernel = |name: &str| {
            // `mount` loads a file system that is a module.
            let listed = known.lines().any(|line| line.trim() == name)
                || on_path("modprobe")
                    && Command::new("modprobe")
                        .args(["-n", "-q", name])
                        .status()
                        .is_ok_and(|status| status.success());
            (!listed).then(|| format!("this kernel knows no {name}"))
        };
        match self {
            Kind::Loop { file_system, .. } => {
                let package = match *file_system {
                    "xfs" => "xfsprogs",
                    "btrfs" => "btrfs-progs",
                    _ => "e2fsprogs",
                };
                program(&format!("mkfs.{file_system}"), package).or_else(|| kernel(file_system))
            }
            Kind::Gocryptfs => {
                program("gocryptfs", "gocryptfs").or_else(|| program("mkfs.ext4", "e2fsprogs"))
            }
            Kind::ZfsFuse { programs, .. } => zfs_fuse::lacks(programs).or_else(|| {
                let running = Command::new(programs.join("zpool")).arg("list").output();
                running.is_ok_and(|said| said.status.success()).then(|| {
                    "a zfs-fuse is running already, and a machine has one: its pools are left alone"
                        .to_owned()
                })
            }),
            Kind::Memory { program } => (!program.is_file())
                .then(|| "not built: cargo build --release -p steadfast-fuse --example memfs".to_owned()),
            Kind::Folder { parent } => {
                (!parent.is_dir()).then(|| format!("there is no directory {}", parent.display()))
            }
            Kind::Ours { .. } => None,
        }
    }
}
