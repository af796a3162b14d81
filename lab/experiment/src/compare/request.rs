//! Options of `steadfast lab run FILE --target LIST`.

use std::path::{Path, PathBuf};

use crate::file_systems::Kind;
use crate::options::{Places, RepeatLine, size};

/// Smallest image.
const IMAGE_LEAST: u64 = 256 << 20;
/// Directories that can be compared in one run.
const DIRECTORIES: [&str; 4] = ["dir1", "dir2", "dir3", "dir4"];

/// Something that is compared.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Contender {
    /// Key of its column.
    pub key: &'static str,
    /// Heading of its column.
    pub label: String,
    /// Its kind.
    pub kind: Kind,
}

/// Options of `run FILE`.
#[derive(clap::Args, Clone, Debug, Eq, PartialEq)]
pub struct CompareRequest {
    /// The parameter file; further words are targets with options
    #[arg(value_name = "FILE", required = true, num_args = 1..)]
    words: Vec<String>,
    /// Some of steadfast, ext4, xfs, btrfs, zfs-fuse, gocryptfs, with commas between,
    /// and directories, which have a '/' in their names; ratios refer to the first.
    /// May be repeated, and then one of them may have options: of its mount
    /// (ext4:data=journal) or properties (steadfast:recordsize=64K,compression=lz4)
    #[arg(long = "target", value_name = "LIST", verbatim_doc_comment)]
    targets: Vec<String>,
    /// Directory of zfs-fuse and its zpool [default: /sbin, where Debian puts them]
    #[arg(long, value_name = "DIR")]
    zfs_fuse: Option<PathBuf>,
    /// Interleaved rounds, each on file systems made anew; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) rounds: u32,
    /// The short form: one round, 4 seconds of each run, unless options say more
    #[arg(long)]
    quick: bool,
    /// Size of each image file
    #[arg(long = "size", value_name = "SIZE", default_value = "4G", value_parser = size(IMAGE_LEAST, "give 256M or more, such as 512M or 8G"))]
    pub(super) image_bytes: u64,
    /// Seconds of each run of the load [default: what the parameter file says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=86_400))]
    pub(super) elapsed: Option<u32>,
    /// Seconds of each interval [default: what the parameter file says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub(super) interval: Option<u32>,
    #[command(flatten)]
    pub(crate) places: Places,
    #[arg(skip)]
    pub(super) file: PathBuf,
    #[arg(skip)]
    pub(super) contenders: Vec<Contender>,
}

impl CompareRequest {
    /// Finds the file among the words, and the contenders.
    pub(crate) fn resolved(mut self) -> Result<Self, String> {
        for word in std::mem::take(&mut self.words) {
            if has_options(&word) {
                self.targets.push(word);
            } else if self.file.as_os_str().is_empty() {
                self.file = PathBuf::from(word);
            } else {
                return Err(format!("lab run runs one parameter file; `{word}` is a second"));
            }
        }
        if !self.file.is_file() {
            return Err(format!("there is no parameter file {}", self.file.display()));
        }
        if self.targets.is_empty() {
            return Err(
                "a parameter file is run on what --target names: for example --target steadfast,ext4,btrfs,/mnt/other"
                    .to_owned(),
            );
        }
        if self.quick {
            self.elapsed.get_or_insert(4);
            self.interval.get_or_insert(1);
            if self.rounds == 3 {
                self.rounds = 1;
            }
        }
        let programs = self.zfs_fuse.clone().unwrap_or_else(|| PathBuf::from("/sbin"));
        self.contenders = contenders(&self.targets, &programs)?;
        Ok(self)
    }

    /// The command that repeats a run.
    pub(super) fn repeat(&self) -> String {
        let line = RepeatLine::new(&self.file.display().to_string());
        let line = self.targets.iter().fold(line, |line, target| line.value("--target", Some(target)));
        line.value("--zfs-fuse", self.zfs_fuse.as_ref().map(|programs| programs.display()))
            .value("--rounds", Some(self.rounds).filter(|rounds| *rounds != 3))
            .size("--size", Some(self.image_bytes).filter(|bytes| *bytes != 4 << 30))
            .value("--elapsed", self.elapsed)
            .value("--interval", self.interval)
            .finish()
    }
}

/// Keys of the columns of targets by name: the same one may be there several times with different
/// options.
const KEYS: [(&str, [&str; 4]); 6] = [
    ("steadfast", ["steadfast", "steadfast2", "steadfast3", "steadfast4"]),
    ("ext4", ["ext4", "ext4b", "ext4c", "ext4d"]),
    ("xfs", ["xfs", "xfsb", "xfsc", "xfsd"]),
    ("btrfs", ["btrfs", "btrfsb", "btrfsc", "btrfsd"]),
    ("zfs-fuse", ["zfsfuse", "zfsfuse2", "zfsfuse3", "zfsfuse4"]),
    ("gocryptfs", ["gocryptfs", "gocryptfs2", "gocryptfs3", "gocryptfs4"]),
];

/// Does this word name a target with options?
fn has_options(word: &str) -> bool {
    word.split_once(':').is_some_and(|(name, _)| KEYS.iter().any(|(known, _)| *known == name))
}

/// Options of one target. They become words of a command line, so what a shell would understand is
/// refused.
fn options(target: &str, text: &str) -> Result<Vec<String>, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "=_.+-/@%".contains(c);
    let all: Vec<String> = text.split(',').map(str::to_owned).collect();
    match all.iter().find(|one| one.is_empty() || one.starts_with('-') || !one.chars().all(plain)) {
        None => Ok(all),
        Some(bad) => Err(format!("--target {target}: '{bad}' is neither a mount option nor a property")),
    }
}

fn contender(
    name: &str,
    options: &[String],
    (programs, key): (&Path, &'static str),
) -> Result<Contender, String> {
    // They live as long as the program, as the words of the targets without options do.
    let mounted: &'static str = options.join(",").leak();
    let properties: String = options.iter().map(|one| format!("-O {one} ")).collect();
    if let (Some(bad), "steadfast" | "zfs-fuse") = (options.iter().find(|one| !one.contains('=')), name) {
        return Err(format!("--target {name}: properties are written NAME=VALUE, not '{bad}'"));
    }
    let on_loop = |file_system| Kind::Loop { file_system, words: "-q", options: mounted };
    let kind = match name {
        "steadfast" => Kind::Ours { words: properties.leak(), property: None },
        "ext4" => on_loop("ext4"),
        "xfs" => on_loop("xfs"),
        "btrfs" => on_loop("btrfs"),
        "zfs-fuse" => Kind::ZfsFuse { programs: programs.to_owned(), words: properties.leak() },
        _ if options.is_empty() => Kind::Gocryptfs,
        _ => return Err(format!("--target {name}: it takes no options")),
    };
    let label = if options.is_empty() { name.to_owned() } else { format!("{name}:{}", options.join(",")) };
    Ok(Contender { key, label, kind })
}

fn contenders(targets: &[String], programs: &Path) -> Result<Vec<Contender>, String> {
    let mut found: Vec<Contender> = Vec::new();
    let mut directories = DIRECTORIES.into_iter();
    let names = targets.iter().flat_map(|list| match has_options(list) {
        true => vec![list.as_str()],
        false => list.split(',').collect(),
    });
    for word in names {
        let (name, text) = match has_options(word) {
            true => word.split_once(':').unwrap_or((word, "")),
            false => (word, ""),
        };
        let one = match KEYS.iter().find(|(known, _)| *known == name) {
            Some((_, keys)) => {
                let key = keys.iter().find(|key| found.iter().all(|known| known.key != **key));
                let key = key.ok_or_else(|| {
                    format!("--target {name}: at most {} of a kind are compared at once", keys.len())
                })?;
                let options = if word == name { Vec::new() } else { options(name, text)? };
                contender(name, &options, (programs, key))?
            }
            None if name.contains('/') => {
                let key = directories.next().ok_or_else(|| {
                    format!("--target: at most {} directories are compared at once", DIRECTORIES.len())
                })?;
                Contender { key, label: name.to_owned(), kind: Kind::Folder { parent: PathBuf::from(name) } }
            }
            None => {
                return Err(format!(
                    "--target {name}: give some of steadfast, ext4, xfs, btrfs, zfs-fuse, gocryptfs, or a directory with a '/' in its name"
                ));
            }
        };
        if found.iter().any(|known| known.label == one.label) {
            return Err(format!("--target: {} is given twice", one.label));
        }
        found.push(one);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::parse;

    #[test]
    fn targets_and_options_are_read_and_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.parm");
        std::fs::write(&file, "").unwrap();
        let file = file.display().to_string();
        let words = |line: &str| {
            let request = parse::<CompareRequest>(line).map_err(|error| error.to_string())?;
            request.resolved()
        };
        let line = format!("{file} --target steadfast,ext4,/mnt/x,./y --rounds 2 --size 512M --elapsed 5");
        let request = words(&line).unwrap();
        assert_eq!(request.repeat(), format!("steadfast lab run {line}"));
        let keys: Vec<&str> = request.contenders.iter().map(|contender| contender.key).collect();
        assert_eq!(keys, ["steadfast", "ext4", "dir1", "dir2"]);
        let line = format!(
            "{file} --target ext4:data=journal --target ext4,zfs-fuse --target steadfast:recordsize=64K,compression=lz4 --zfs-fuse /opt/z"
        );
        let request = words(&line).unwrap();
        assert_eq!(request.repeat(), format!("steadfast lab run {line}"));
        let seen: Vec<(&str, &str)> = request.contenders.iter().map(|c| (c.key, c.label.as_str())).collect();
        let wanted = [
            ("ext4", "ext4:data=journal"),
            ("ext4b", "ext4"),
            ("zfsfuse", "zfs-fuse"),
            ("steadfast", "steadfast:recordsize=64K,compression=lz4"),
        ];
        assert_eq!(seen, wanted);
        assert_eq!(
            request.contenders[3].kind,
            Kind::Ours { words: "-O recordsize=64K -O compression=lz4 ", property: None }
        );
        let Kind::Loop { options, .. } = request.contenders[0].kind else { panic!("no loop") };
        assert_eq!(options, "data=journal");
        let apart = words(&format!("{file} --target ext4:data=journal xfs:noatime")).unwrap();
        assert_eq!(apart.contenders.len(), 2, "as further words too");
        for (line, word) in [
            (format!("{file} --target ext4:data=journal;reboot"), "neither a mount option"),
            (format!("{file} --target steadfast:lz4"), "NAME=VALUE"),
            (format!("{file} --target gocryptfs:fast"), "no options"),
            (format!("{file} --target ext4:"), "neither a mount option"),
            (format!("{file} --target ext4:a --target ext4:a"), "twice"),
            (format!("{file} --target zfs"), "gocryptfs"),
            (format!("{file} --target ext4,ext4"), "twice"),
            (format!("{file} --target /a,/b,/c,/d,/e"), "at most 4"),
            (file.clone(), "--target steadfast,ext4"),
            ("no/such.parm --target ext4".to_owned(), "no parameter file"),
            (format!("{file} {file} --target ext4"), "second"),
            (format!("{file} --target ext4 --size 1M"), "256M"),
            (format!("{file} --fast"), "--fast"),
        ] {
            let error = words(&line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
