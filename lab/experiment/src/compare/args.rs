//! The command line of `steadfast lab run FILE --target LIST`.

use std::path::{Path, PathBuf};

use crate::args::{Words, count, usage};
use crate::arms::Kind;
use crate::error::Error;
use crate::number;

/// Help, for the text of `steadfast lab --help`.
pub const USAGE: &str = "\
options of run FILE, any parameter file on any file systems (needs root for all but directories):
  --target LIST   some of steadfast, ext4, xfs, btrfs, gocryptfs, and directories, which have a '/' in their names;
                  with commas between; ratios refer to the first
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
    /// `--target`, as it was written.
    pub target: String,
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

fn contenders(list: &str) -> Result<Vec<Contender>, Error> {
    let mut found: Vec<Contender> = Vec::new();
    let mut directories = DIRECTORIES.into_iter();
    for name in list.split(',') {
        let on_loop = |file_system| Kind::Loop { file_system, words: "-q", options: "" };
        let (key, kind) = match name {
            "steadfast" => ("steadfast", Kind::Ours { words: "", property: None }),
            "ext4" => ("ext4", on_loop("ext4")),
            "xfs" => ("xfs", on_loop("xfs")),
            "btrfs" => ("btrfs", on_loop("btrfs")),
            "gocryptfs" => ("gocryptfs", Kind::Gocryptfs),
            _ if name.contains('/') => {
                let key = directories.next().ok_or_else(|| {
                    usage(format!("--target: at most {} directories are compared at once", DIRECTORIES.len()))
                })?;
                (key, Kind::Folder { parent: PathBuf::from(name) })
            }
            _ => {
                return Err(usage(format!(
                    "--target {name}: give some of steadfast, ext4, xfs, btrfs, gocryptfs, or a directory with a '/' in its name"
                )));
            }
        };
        if found.iter().any(|known| known.label == name) {
            return Err(usage(format!("--target: {name} is given twice")));
        }
        found.push(Contender { key, label: name.to_owned(), kind });
    }
    Ok(found)
}

/// Reads the words after `steadfast lab run`, one of which is a file. `None` if help is asked for.
pub(crate) fn parse(args: &[String]) -> Result<Option<CompareRequest>, Error> {
    let mut words = Words::new(args);
    let mut request = CompareRequest {
        file: PathBuf::new(),
        target: String::new(),
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
            "--target" => words.value(word)?.clone_into(&mut request.target),
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
            _ if request.file.as_os_str().is_empty() => request.file = PathBuf::from(word),
            _ => return Err(usage(format!("lab run runs one parameter file; `{word}` is a second"))),
        }
    }
    if !request.file.is_file() {
        return Err(usage(format!("there is no parameter file {}", request.file.display())));
    }
    if request.target.is_empty() {
        return Err(usage(
            "a parameter file is run on what --target names: for example --target steadfast,ext4,btrfs,/mnt/other".to_owned(),
        ));
    }
    request.contenders = contenders(&request.target)?;
    Ok(Some(request))
}

/// The command that repeats a run.
pub(crate) fn repeat(request: &CompareRequest) -> String {
    let mut line = format!("steadfast lab run {} --target {}", request.file.display(), request.target);
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
        for (line, word) in [
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
