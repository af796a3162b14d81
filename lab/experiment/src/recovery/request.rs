//! Options of `steadfast lab run recovery`, and how large everything is.

use std::path::PathBuf;

use crate::options::{Document, Form, Places, RepeatLine, one_of, size, wanted};

/// Columns.
pub const ARMS: [&str; 4] = ["raidz1", "raidz2", "btrfs", "zfs-fuse"];
/// Model of a hard disk, as `zpool inject` takes it.
pub(super) const MODEL: &str = "disk seek=8ms rate=60M";
/// Model of a faster disk, for tests.
const MODEL_TINY: &str = "disk seek=1ms rate=400M";
/// Devices that raidz2 uses, and one that replaces another.
pub(super) const DEVICES: usize = 7;
/// Smallest device.
const DEVICE_LEAST: u64 = 256 << 20;

/// Options of `run recovery`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct RecoveryRequest {
    /// Rounds; the median is reported [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Size of each device [default: 2G, with --quick 512M]
    #[arg(long, value_name = "SIZE", value_parser = size(DEVICE_LEAST, "give 256M or more"))]
    size: Option<u64>,
    /// Columns, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = one_of(ARMS))]
    arms: Option<Vec<String>>,
    /// Seven disks or files of one size to use instead of images, with commas between: ALL DATA ON
    /// THEM IS LOST
    #[arg(long, value_name = "LIST", value_delimiter = ',', num_args = 1, value_parser = clap::value_parser!(PathBuf))]
    pub(super) devices: Vec<PathBuf>,
    /// Directory of zfs-fuse, zpool and zfs of zfs-fuse [default: /sbin, where Debian puts them]
    #[arg(long, value_name = "DIR")]
    pub(super) zfs_fuse: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(flatten)]
    pub(crate) document: Document,
}

impl RecoveryRequest {
    /// Refuses a wrong number of devices.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.devices.len() {
            0 | DEVICES => Ok(()),
            given => Err(format!("--devices: give {DEVICES} of them, not {given}")),
        }
    }

    /// Rounds.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(2)
    }

    /// Bytes of a device.
    pub(super) fn device_bytes(&self) -> u64 {
        self.size.unwrap_or(self.form.sized(64 << 20, 512 << 20, 2 << 30))
    }

    /// Model of a hard disk, as `zpool inject` takes it.
    pub(super) fn model(&self) -> &'static str {
        if self.form.tiny { MODEL_TINY } else { MODEL }
    }

    /// Files of the tree of small files.
    pub(super) fn files(&self) -> u64 {
        self.form.sized(100, 1_000, 4_000)
    }

    /// Is this column wanted?
    pub(super) fn wants(&self, arm: &str) -> bool {
        wanted(self.arms.as_deref(), arm)
    }

    /// The command that repeats a run.
    pub(super) fn repeat(&self) -> String {
        RepeatLine::new("recovery")
            .form(self.form)
            .value("--rounds", self.rounds)
            .size("--size", self.size)
            .list("--arms", self.arms.as_deref())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::{read, refused, repeats};

    #[test]
    fn options_are_read_and_repeated() {
        let lines = ["", "--quick --rounds 3 --size 1024M --arms raidz1,btrfs", "--tiny --rounds 1"];
        repeats("recovery", &lines, RecoveryRequest::repeat);
        let request: RecoveryRequest = read("--devices a,b");
        assert!(request.check().unwrap_err().contains("give 7 of them, not 2"));
    }

    #[test]
    fn every_mistake_is_a_sentence() {
        for (line, word) in [
            ("--rounds 0", "'0' for '--rounds"),
            ("--size 1M", "256M"),
            ("--arms ext4", "raidz1"),
            ("--out", "value is required"),
            ("--fast", "--fast"),
            ("cow", "'cow'"),
        ] {
            refused::<RecoveryRequest>(line, word);
        }
    }
}
