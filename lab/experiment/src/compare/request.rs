//! The command line of `steadfast lab run FILE --target LIST`.

use std::path::{Path, PathBuf};

use crate::args::{Words, count, usage};
use crate::arms::Kind;
use crate::error::Error;
use crate::number;

/// Help, for the text of `steadfast lab --help`.
pub const USAGE: &str = "\
options of run FILE, any parameter file on any file systems (needs root for all but directories):
  --target LIST   some of steadfast, ext4, xfs, btrfs, zfs-fuse, gocryptfs, and directories, which have a '/' in their
                  names; with commas between; ratios refer to the first. May be repeated, and then one of them may
                  have options: ext4:data=journal (of its mount), steadfast:recordsize=64K,compression=lz4 (properties)
  --zfs-fuse DIR  where zfs-fuse and its zpool lie (default: /sbin, where Debian puts them)
  --rounds N      interleaved rounds, each on file systems made anew; the middle is reported  (default: 3)
  --size SIZE     size of each image file          (default: 4G)
  --elapsed N     seconds of each run of the load  (default: what the parameter file says)
  --interval N    seconds of each interval         (default: what the parameter file says)
  --dir DIR       where the images lie: the disk that is measured  (default: /var/tmp)
  --out DIR       where the results go             (default: lab-FILE-DATE in this directory)
";

/// Directories that can be compared in one run.
const DIRECTORIES: [&str; 4] = ["dir1", "dir2", "dir3", "dir4"];

/// Something that is compared.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Contender {
    /// Key of its column.
    pub key: &'static str,
    /// Heading of its column.
    pub label: String,
    /// What it is made of.
    pub kind: Kind,
}

/// What `run FILE` was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CompareRequest {
    /// The parameter file.
    pub file: PathBuf,
    /// Each `--target`, as it was written.
    pub targets: Vec<String>,
    /// `--zfs-fuse`.
    pub zfs_fuse: Option<PathBuf>,
    pub(crate) contenders: Vec<Contender>,
    /// `--rounds`.
    pub rounds: u32,
    /// `--size`, bytes.
    pub image_bytes: u64,
    /// `--elapsed`.
    pub elapsed_s: Option<u32>,
    /// `--interval`.
    pub interval_s: Option<u32>,
    /// `--dir`.
    pub dir: Option<PathBuf>,
    /// `--out`.
    pub out: Option<PathBuf>,
    /// `--json`.
    pub json: bool,
}

/// Is this word the name of a parameter file, and not of an experiment?
pub(crate) fn is_file(word: &str) -> bool {
    word.contains('/') || word.ends_with(".parm") || word.ends_with(".vdb") || Path::new(word).is_file()
}

/// Keys of the columns of targets by name: the same one may be there several times with different options.
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

/// Options of one target. They become words of a command line, so what a shell would understand is refused.
fn options(target: &str, text: &str) -> Result<Vec<String>, Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "=_.+-/@%".contains(c);
    let all: Vec<String> = text.split(',').map(str::to_owned).collect();
    match all.iter().find(|one| one.is_empty() || one.starts_with('-') || !one.chars().all(plain)) {
        None => Ok(all),
        Some(bad) => {
            Err(usage(format!("--target {target}: '{bad}' is no option of a mount and no property")))
        }
    }
}

fn contender(
    name: &str,
    options: &[String],
    (programs, key): (&Path, &'static str),
) -> Result<Contender, Error> {
    // They live as long as the program, as the words of the targets without options do.
    let mounted: &'static str = options.join(",").leak();
    let properties: String = options.iter().map(|one| format!("-O {one} ")).collect();
    if let (Some(bad), "steadfast" | "zfs-fuse") = (options.iter().find(|one| !one.contains('=')), name) {
        return Err(usage(format!("--target {name}: properties are written NAME=VALUE, not '{bad}'")));
    }
    let on_loop = |file_system| Kind::Loop { file_system, words: "-q", options: mounted };
    let kind = match name {
        "steadfast" => Kind::Ours { words: properties.leak(), property: None },
        "ext4" => on_loop("ext4"),
        "xfs" => on_loop("xfs"),
        "btrfs" => on_loop("btrfs"),
        "zfs-fuse" => Kind::ZfsFuse { programs: programs.to_owned(), words: properties.leak() },
        _ if options.is_empty() => Kind::Gocryptfs,
        _ => return Err(usage(format!("--target {name}: it takes no options"))),
    };
    let label = if options.is_empty() { name.to_owned() } else { format!("{name}:{}", options.join(",")) };
    Ok(Contender { key, label, kind })
}

fn contenders(targets: &[String], programs: &Path) -> Result<Vec<Contender>, Error> {
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
                    usage(format!("--target {name}: at most {} of a kind are compared at once", keys.len()))
                })?;
                let options = if word == name { Vec::new() } else { options(name, text)? };
                contender(name, &options, (programs, key))?
            }
            None if name.contains('/') => {
                let key = directories.next().ok_or_else(|| {
                    usage(format!("--target: at most {} directories are compared at once", DIRECTORIES.len()))
                })?;
                Contender { key, label: name.to_owned(), kind: Kind::Folder { parent: PathBuf::from(name) } }
            }
            None => {
                return Err(usage(format!(
                    "--target {name}: give some of steadfast, ext4, xfs, btrfs, zfs-fuse, gocryptfs, or a directory with a '/' in its name"
                )));
            }
        };
        if found.iter().any(|known| known.label == one.label) {
            return Err(usage(format!("--target: {} is given twice", one.label)));
        }
        found.push(one);
    }
    Ok(found)
}

/// Reads the words after `steadfast lab run`, one of which is a file. `None` if help is asked for.
pub(crate) fn parse(args: &[String]) -> Result<Option<CompareRequest>, Error> {
    let mut words = Words::new(args);
    let mut request = CompareRequest {
        file: PathBuf::new(),
        targets: Vec::new(),
        zfs_fuse: None,
        contenders: Vec::new(),
        rounds: 3,
        image_bytes: 4 << 30,
        elapsed_s: None,
        interval_s: None,
        dir: None,
        out: None,
        json: false,
    };
    while let Some(word) = words.next() {
        match word {
            "-h" | "--help" => return Ok(None),
            "--json" => request.json = true,
            "--target" => request.targets.push(words.value(word)?.to_owned()),
            "--zfs-fuse" => request.zfs_fuse = Some(PathBuf::from(words.value(word)?)),
            "--rounds" => request.rounds = count(word, words.value(word)?, 1, 100)?,
            "--elapsed" => request.elapsed_s = Some(count(word, words.value(word)?, 2, 86_400)?),
            "--interval" => request.interval_s = Some(count(word, words.value(word)?, 1, 3_600)?),
            "--size" => {
                let value = words.value(word)?;
                request.image_bytes = number::parse_size(value)
                    .filter(|size| *size >= 256 << 20)
                    .ok_or_else(|| usage(format!("--size {value}: give 256M or more, such as 512M or 8G")))?;
            }
            "--dir" | "--work" => request.dir = Some(PathBuf::from(words.value(word)?)),
            "--out" => request.out = Some(PathBuf::from(words.value(word)?)),
            _ if word.starts_with('-') => return Err(usage(format!("lab run FILE knows no option {word}"))),
            // What follows `--target` as further words.
            _ if has_options(word) => request.targets.push(word.to_owned()),
            _ if request.file.as_os_str().is_empty() => request.file = PathBuf::from(word),
            _ => return Err(usage(format!("lab run runs one parameter file; `{word}` is a second"))),
        }
    }
    if !request.file.is_file() {
        return Err(usage(format!("there is no parameter file {}", request.file.display())));
    }
    if request.targets.is_empty() {
        return Err(usage(
            "a parameter file is run on what --target names: for example --target steadfast,ext4,btrfs,/mnt/other".to_owned(),
        ));
    }
    let programs = request.zfs_fuse.clone().unwrap_or_else(|| PathBuf::from("/sbin"));
    request.contenders = contenders(&request.targets, &programs)?;
    Ok(Some(request))
}

/// The command that repeats a run.
pub(crate) fn repeat(request: &CompareRequest) -> String {
    let mut line = format!("steadfast lab run {}", request.file.display());
    request.targets.iter().for_each(|target| line.push_str(&format!(" --target {target}")));
    if let Some(programs) = &request.zfs_fuse {
        line.push_str(&format!(" --zfs-fuse {}", programs.display()));
    }
    if request.rounds != 3 {
        line.push_str(&format!(" --rounds {}", request.rounds));
    }
    if request.image_bytes != 4 << 30 {
        line.push_str(&format!(" --size {}", request.image_bytes));
    }
    for (given, word) in [(request.elapsed_s, "--elapsed"), (request.interval_s, "--interval")] {
        if let Some(seconds) = given {
            line.push_str(&format!(" {word} {seconds}"));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_options_are_read_and_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.parm");
        std::fs::write(&file, "").unwrap();
        let file = file.display().to_string();
        let words = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let line =
            format!("{file} --target steadfast,ext4,/mnt/x,./y --rounds 2 --size 536870912 --elapsed 5");
        let request = words(&line).unwrap().unwrap();
        assert_eq!(repeat(&request), format!("steadfast lab run {line}"));
        let keys: Vec<&str> = request.contenders.iter().map(|contender| contender.key).collect();
        assert_eq!(keys, ["steadfast", "ext4", "dir1", "dir2"]);
        let line = format!(
            "{file} --target ext4:data=journal --target ext4,zfs-fuse --target steadfast:recordsize=64K,compression=lz4 --zfs-fuse /opt/z"
        );
        let request = words(&line).unwrap().unwrap();
        assert_eq!(repeat(&request), format!("steadfast lab run {line}"));
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
        let apart = words(&format!("{file} --target ext4:data=journal xfs:noatime")).unwrap().unwrap();
        assert_eq!(apart.contenders.len(), 2, "as further words too");
        for (line, word) in [
            (format!("{file} --target ext4:data=journal;reboot"), "no option"),
            (format!("{file} --target steadfast:lz4"), "NAME=VALUE"),
            (format!("{file} --target gocryptfs:fast"), "no options"),
            (format!("{file} --target ext4:"), "no option"),
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
            assert!(error.exit_status() == 2 && error.to_string().contains(word), "{line}: {error}");
        }
    }
}
