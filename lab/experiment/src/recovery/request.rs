//! The command line of `steadfast lab run recovery`, and how large everything is.

use std::path::PathBuf;

use crate::error::Error;
use crate::number;

/// Help, for the text of `steadfast lab --help`.
pub const USAGE: &str = "\
options of run recovery (needs root):
  --rounds N      rounds; the middle is reported   (default: 2)
  --size SIZE     size of each device              (default: 2G, with --quick 512M)
  --quick         small devices; the report says so
  --arms NAMES    columns: raidz1 raidz2 btrfs zfs-fuse
  --devices LIST  disks or files to use instead of images, seven of one size, separated by commas: ALL ON THEM IS LOST
  --zfs-fuse DIR  where zfs-fuse, zpool and zfs of zfs-fuse lie (default: /sbin, where Debian puts them)
  --dir DIR       where the images lie: the disk that is measured  (default: /var/tmp)
  --out DIR       where the results go             (default: lab-recovery-DATE in this directory)
  --markdown FILE writes table and pictures into FILE, between its marks <!-- recovery --> and <!-- /recovery -->
";

/// Columns.
pub const ARMS: [&str; 4] = ["raidz1", "raidz2", "btrfs", "zfs-fuse"];
/// The device that stands for a hard disk.
pub(super) const MODEL: &str = "disk seek=8ms rate=60M";
/// One that is soon done with it.
const MODEL_TINY: &str = "disk seek=1ms rate=400M";
/// Devices that raidz2 uses, and one that takes the place of another.
pub(super) const DEVICES: usize = 7;

/// What `run recovery` was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecoveryRequest {
    /// `--rounds`.
    pub rounds: u32,
    /// `--size`, bytes.
    pub size: Option<u64>,
    /// `--quick`.
    pub quick: bool,
    /// `--tiny`: sizes for tests of the experiment itself; the figures mean nothing.
    pub tiny: bool,
    /// `--arms`; none means all.
    pub arms: Option<Vec<String>>,
    /// `--devices`; empty means images.
    pub devices: Vec<PathBuf>,
    /// `--zfs-fuse`.
    pub zfs_fuse: Option<PathBuf>,
    /// `--dir`.
    pub dir: Option<PathBuf>,
    /// `--out`.
    pub out: Option<PathBuf>,
    /// `--markdown`.
    pub markdown: Option<PathBuf>,
    /// `--json`.
    pub json: bool,
}

impl RecoveryRequest {
    /// Bytes of a device.
    pub fn device_bytes(&self) -> u64 {
        self.size.unwrap_or(match (self.tiny, self.quick) {
            (true, _) => 64 << 20,
            (false, true) => 512 << 20,
            _ => 2 << 30,
        })
    }

    /// What stands for a hard disk, as `zpool inject` takes it.
    pub(super) fn model(&self) -> &'static str {
        if self.tiny { MODEL_TINY } else { MODEL }
    }

    /// Files of the tree of small files.
    pub(super) fn files(&self) -> u64 {
        match (self.tiny, self.quick) {
            (true, _) => 100,
            (false, true) => 1_000,
            _ => 4_000,
        }
    }

    /// Is this column wanted?
    pub fn wants(&self, arm: &str) -> bool {
        self.arms.as_ref().is_none_or(|arms| arms.iter().any(|name| name == arm))
    }
}

fn usage(text: String) -> Error {
    Error::Usage(format!("{text}\nSee `steadfast lab --help`."))
}

/// Reads the words after `steadfast lab run`, one of which is `recovery`. `None` if help is asked for.
pub(crate) fn parse(args: &[String]) -> Result<Option<RecoveryRequest>, Error> {
    let mut request = RecoveryRequest {
        rounds: 2,
        size: None,
        quick: false,
        tiny: false,
        arms: None,
        devices: Vec::new(),
        zfs_fuse: None,
        dir: None,
        out: None,
        markdown: None,
        json: false,
    };
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        let mut value = || {
            let given = attached.clone().or_else(|| words.next().cloned());
            given.filter(|value| !value.is_empty()).ok_or_else(|| usage(format!("{name} needs a value")))
        };
        match name {
            "recovery" => {}
            "-h" | "--help" => return Ok(None),
            "--quick" => request.quick = true,
            "--tiny" => request.tiny = true,
            "--json" => request.json = true,
            "--rounds" => {
                let text = value()?;
                let rounds = text.parse().ok().filter(|rounds| (1..=100).contains(rounds));
                request.rounds = rounds
                    .ok_or_else(|| usage(format!("--rounds {text}: give a whole number from 1 to 100")))?;
            }
            "--size" => {
                let text = value()?;
                let size = number::parse_size(&text).filter(|size| *size >= 256 << 20);
                request.size = Some(size.ok_or_else(|| usage(format!("--size {text}: give 256M or more")))?);
            }
            "--arms" => {
                let names: Vec<String> = value()?.split(',').map(str::to_owned).collect();
                if let Some(unknown) = names.iter().find(|name| !ARMS.contains(&name.as_str())) {
                    return Err(usage(format!("--arms {unknown}: give some of {}", ARMS.join(", "))));
                }
                request.arms = Some(names);
            }
            "--devices" => request.devices = value()?.split(',').map(PathBuf::from).collect(),
            "--zfs-fuse" => request.zfs_fuse = Some(PathBuf::from(value()?)),
            "--dir" => request.dir = Some(PathBuf::from(value()?)),
            "--out" => request.out = Some(PathBuf::from(value()?)),
            "--markdown" => request.markdown = Some(PathBuf::from(value()?)),
            _ if name.starts_with('-') => {
                return Err(usage(format!("lab run recovery knows no option {name}")));
            }
            _ => return Err(usage(format!("lab run runs one experiment; `{name}` is a second"))),
        }
    }
    if !request.devices.is_empty() && request.devices.len() != DEVICES {
        return Err(usage(format!("--devices: give {DEVICES} of them, not {}", request.devices.len())));
    }
    Ok(Some(request))
}

/// The command that repeats a run.
pub(crate) fn repeat(request: &RecoveryRequest) -> String {
    let mut line = "steadfast lab run recovery".to_owned();
    for (given, word) in [(request.quick, " --quick"), (request.tiny, " --tiny")] {
        if given {
            line.push_str(word);
        }
    }
    if request.rounds != 2 {
        line.push_str(&format!(" --rounds {}", request.rounds));
    }
    if let Some(size) = request.size {
        line.push_str(&format!(" --size {}M", size >> 20));
    }
    if let Some(arms) = &request.arms {
        line.push_str(&format!(" --arms {}", arms.join(",")));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Option<RecoveryRequest>, Error> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_and_repeated() {
        for line in [
            "recovery",
            "recovery --quick --rounds 3 --size 1024M --arms raidz1,btrfs",
            "recovery --tiny --rounds 1",
        ] {
            let request = words(line).unwrap().unwrap();
            assert_eq!(repeat(&request), format!("steadfast lab run {line}"));
        }
        assert!(words("recovery --help").unwrap().is_none());
    }

    #[test]
    fn every_mistake_is_a_sentence_and_status_2() {
        for (line, word) in [
            ("recovery --rounds 0", "--rounds 0"),
            ("recovery --size 1M", "256M"),
            ("recovery --arms ext4", "raidz1"),
            ("recovery --devices a,b", "give 7"),
            ("recovery --out", "needs a value"),
            ("recovery --fast", "--fast"),
            ("recovery cow", "second"),
        ] {
            let error = words(line).unwrap_err();
            assert_eq!(error.exit_status(), 2, "{line}");
            assert!(error.to_string().contains(word), "{line}: {error}");
        }
    }
}
