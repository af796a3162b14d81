//! `steadfast demo`: a tour on a fresh machine, in under three minutes.
//!
//! The demo creates pools on image files, runs the parameter files of the source reports on them,
//! and prints reports. Then it damages a pool of three images and shows that the pool heals. It
//! runs commands that a person could type, in a folder and with a daemon of its own, and always
//! removes both.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_lab_experiment::{
    Context, Error, Pools, RunRequest, Target, check_fuse, run, stop_on_signals, terminal,
};

const USAGE: &str = "\
usage: steadfast demo [--quick] [--out DIR] [--elapsed SECONDS] [--work DIR]

Creates pools on image files, measures them, damages one and shows that it heals. Removes everything except the
reports. Needs FUSE and 700 MB of free space while it runs.

  --quick             about 20 seconds: each run takes 2
  --out DIR           folder of the reports (default: ./steadfast-demo)
  --elapsed SECONDS   length of each run (default: 10, as in the parameter files)
  --work DIR          folder of the image files while the demo runs (default: /var/tmp)
";

/// Seconds of each run with `--quick`.
const QUICK_S: u32 = 2;
/// Files of the third part, and the one that is damaged.
const FILES: [&str; 3] = ["letters.txt", "photos.tar", "thesis.pdf"];
const DAMAGED: &str = "photos.tar";
/// Length of each: several records, so that one can be damaged and its neighbours intact.
const FILE_BYTES: usize = 1 << 20;
/// Offset of the flipped bit in the file.
const FLIP_AT: usize = 600_000;
/// So many bytes of a file occur only once in an image.
const MARK_BYTES: usize = 64;
/// Steps in which a damaged file is read.
const STEP: usize = 4096;

/// Runs the demo with the words behind `demo`; returns the exit status.
pub fn main(args: &[String], context: &Context) -> i32 {
    let options = match parse(args) {
        Ok(Some(options)) => options,
        Ok(None) => {
            say(USAGE);
            return 0;
        }
        Err(sentence) => {
            eprintln!("steadfast demo: {sentence}\n{USAGE}");
            return 2;
        }
    };
    match tell(&options, context) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("steadfast demo: {error}");
            error.exit_status()
        }
    }
}

struct Options {
    out: PathBuf,
    work: PathBuf,
    elapsed_s: Option<u32>,
}

fn parse(args: &[String]) -> Result<Option<Options>, String> {
    let mut options = Options { out: "steadfast-demo".into(), work: "/var/tmp".into(), elapsed_s: None };
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), None),
        };
        let mut value =
            || attached.or_else(|| words.next().map(String::as_str)).filter(|value| !value.is_empty());
        match name {
            "-h" | "--help" => return Ok(None),
            "--quick" => options.elapsed_s = options.elapsed_s.or(Some(QUICK_S)),
            "--out" => options.out = value().ok_or("--out needs a directory")?.into(),
            "--work" => options.work = value().ok_or("--work needs a directory")?.into(),
            "--elapsed" => {
                let seconds = value().and_then(|value| value.parse().ok()).filter(|s| (2..=3600).contains(s));
                options.elapsed_s = Some(seconds.ok_or("--elapsed needs whole seconds from 2 to 3600")?);
            }
            _ => return Err(format!("invalid option '{}'", crate::table::tame(word))),
        }
    }
    Ok(Some(options))
}

/// A reader that has gone is no failure.
fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

fn tell(options: &Options, context: &Context) -> Result<(), Error> {
    check_fuse()?;
    let stop = stop_on_signals()?;
    let length = match options.elapsed_s {
        Some(seconds) => {
            format!("Each run takes {seconds} s; the runs of the source reports took 10 s.")
        }
        None => "Each run takes 10 s, as in the source reports: about two minutes in all.".to_owned(),
    };
    say(&format!(
        "\
Steadfast keeps files in pools on storage it does not trust. This demo shows:

  1  the savings and the cost of compression: two pools on image files, with the same load
  2  the cost of encryption: the same again
  3  a pool of three images that heals: one bit is flipped, then a whole image is deleted

{length} At the end everything is removed except the reports.

"
    ));
    let mut pages = Vec::new();
    for (number, name) in [(1, "compression"), (2, "encryption")] {
        say(&format!("{number}  {name}\n"));
        let request = RunRequest {
            out: Some(options.out.join(name)),
            elapsed_s: options.elapsed_s,
            ..RunRequest::new(name)
        };
        let results = run(&request, context, &stop)?;
        say(&format!("\n{}\n", terminal::table(&results.report)));
        pages.push(results.html);
    }
    say("3  healing\n\n");
    heal(options, context, &stop)?;
    say("\nThe reports, with charts, for a browser:\n\n");
    for page in pages {
        say(&format!("    {}\n", page.display()));
    }
    Ok(())
}

/// Part 3.
fn heal(options: &Options, context: &Context, stop: &AtomicBool) -> Result<(), Error> {
    let mut pools = Pools::new(&context.steadfast, &context.version, 128 << 20, &options.work)?;
    let result = heal_in(&mut pools, stop);
    let cleaned = pools.clean_up();
    result?;
    cleaned
}

/// Files as they were written.
type Written = Vec<(&'static str, Vec<u8>)>;

fn heal_in(pools: &mut Pools, stop: &AtomicBool) -> Result<(), Error> {
    let (place, images) = pools.prepare_group("demo", "raidz1", 3, &["compression=off"])?;
    let written = write_files(&place)?;
    pools.commands().run(&["pool", "sync", "demo"], None)?;
    say(&format!(
        "   Written to a new pool, raidz1 of three images: {}, 1 MiB of random bytes each.\n",
        FILES.join(", ")
    ));
    stopped(stop)?;

    pools.commands().run(&["pool", "export", "demo"], None)?;
    let (image, at) = flip_one(&images, &written)?;
    say(&format!("   Pool exported; bit 0 of byte {at} of {} flipped; pool imported.\n\n", name_of(&image)));
    let folder = image.parent().unwrap_or(Path::new("/")).display().to_string();
    pools.commands().run(&["pool", "import", "-d", &folder, "demo"], None)?;
    stopped(stop)?;
    read_all(&place, &written)?;
    say("\n   The hash of one block was wrong: its content was computed from the other images.\n");
    pools.commands().run(&["pool", "scrub", "-w", "demo"], None)?;
    let healed = show_status(pools)?;
    if !healed.contains(name_of(&image)) || healed.contains("errors: Permanent") {
        return Err(bug("The flipped bit was not found in the image, or not healed."));
    }
    stopped(stop)?;

    let (lost, fresh) = (&images[0], images[0].with_file_name("fresh.img"));
    fs::remove_file(lost).map_err(Error::io("remove", lost))?;
    say(&format!("\n   {} deleted; the pool goes on without it.\n\n", name_of(lost)));
    // Nothing of the lost image answers from memory.
    pools.commands().run(&["pool", "export", "demo"], None)?;
    pools.commands().run(&["pool", "import", "-d", &folder, "demo"], None)?;
    read_all(&place, &written)?;
    pools.make_image(&fresh)?;
    let (lost, fresh) = (lost.display().to_string(), fresh.display().to_string());
    pools.commands().run(&["pool", "replace", "-w", "demo", &lost, &fresh], None)?;
    say("\n   A new image replaces it.\n");
    let whole = show_status(pools)?;
    if !whole.contains("state: ONLINE") || !whole.contains("fresh.img") {
        return Err(bug("The pool is not whole again."));
    }
    read_all(&place, &written)
}

fn bug(what: &str) -> Error {
    Error::Missing {
        what: what.to_owned(),
        action: "this is a bug of Steadfast; please report it.".to_owned(),
    }
}

fn write_files(place: &Path) -> Result<Written, Error> {
    let mut written = Vec::new();
    for name in FILES {
        let bytes = random_bytes(FILE_BYTES)?;
        let path = place.join(name);
        fs::write(&path, &bytes).map_err(Error::io("write", &path))?;
        written.push((name, bytes));
    }
    Ok(written)
}

/// Flips a bit of the damaged file in the image that holds it.
fn flip_one(images: &[PathBuf], written: &Written) -> Result<(PathBuf, u64), Error> {
    let bytes = &written.iter().find(|file| file.0 == DAMAGED).expect("it is one of the files").1;
    // The border of a column may divide one mark.
    for from in [FLIP_AT, FLIP_AT + 5 * MARK_BYTES] {
        for image in images {
            if let Some(at) = find(image, &bytes[from..from + MARK_BYTES])? {
                flip_bit(image, at)?;
                return Ok((image.clone(), at));
            }
        }
    }
    Err(Error::Missing {
        what: format!("The bytes of {DAMAGED} were not found in an image, so no bit was flipped."),
        action: "this is a bug of the demo, not of your machine; please report it.".to_owned(),
    })
}

/// Reads all files; each must be as it was written.
fn read_all(place: &Path, written: &Written) -> Result<(), Error> {
    for (name, bytes) in written {
        let outcome = read_back(&place.join(name), bytes)?;
        say(&format!("   {name:<12} {}\n", outcome.sentence()));
        if outcome != Outcome::Whole {
            return Err(bug(&format!("{name}: {}. This should not happen.", outcome.sentence())));
        }
    }
    Ok(())
}

fn show_status(pools: &mut Pools) -> Result<String, Error> {
    say("\n   $ steadfast pool status -v demo\n");
    let status = pools.commands().attempt(&["pool", "status", "-v", "demo"], None, true)?;
    for line in status.stdout.lines() {
        say(&format!("   {line}\n"));
    }
    Ok(status.stdout)
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn stopped(stop: &AtomicBool) -> Result<(), Error> {
    if stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
}

fn random_bytes(length: usize) -> Result<Vec<u8>, Error> {
    let source = Path::new("/dev/urandom");
    let mut bytes = vec![0; length];
    File::open(source).and_then(|mut file| file.read_exact(&mut bytes)).map_err(Error::io("read", source))?;
    Ok(bytes)
}

/// Offset of the first `mark` in a file.
fn find(path: &Path, mark: &[u8]) -> Result<Option<u64>, Error> {
    const PIECE: usize = 1 << 20;
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    let mut window: Vec<u8> = Vec::with_capacity(PIECE + mark.len());
    let mut start = 0u64;
    let mut piece = vec![0; PIECE];
    loop {
        let read = file.read(&mut piece).map_err(Error::io("read", path))?;
        if read == 0 {
            return Ok(None);
        }
        window.extend_from_slice(&piece[..read]);
        if let Some(at) = window.windows(mark.len()).position(|bytes| bytes == mark) {
            return Ok(Some(start + at as u64));
        }
        let done = window.len().saturating_sub(mark.len() - 1);
        window.drain(..done);
        start += done as u64;
    }
}

fn flip_bit(path: &Path, at: u64) -> Result<(), Error> {
    let change = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut byte = [0];
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut byte)?;
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&[byte[0] ^ 1])?;
        file.sync_all()
    };
    change().map_err(Error::io("change a bit of", path))
}

/// Result of reading a file.
#[derive(Debug, Eq, PartialEq)]
enum Outcome {
    /// All bytes are as written.
    Whole,
    /// Reading the bytes from `from` to before `to` failed; `wrong` of the other bytes were wrong.
    Refused { from: usize, to: usize, errno: i32, wrong: usize },
    /// Reading succeeded, and so many bytes were wrong. This must never happen.
    Wrong { bytes: usize },
}

impl Outcome {
    fn sentence(&self) -> String {
        match self {
            Outcome::Whole => "read; all bytes are as written".to_owned(),
            Outcome::Refused { from, to, errno, wrong } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                let rest = match wrong {
                    0 => "all other bytes are as written".to_owned(),
                    wrong => format!("{wrong} other bytes are wrong"),
                };
                format!("bytes {from} to {}: {error}; {rest}", to - 1)
            }
            Outcome::Wrong { bytes } => format!("read; {bytes} bytes are wrong"),
        }
    }
}

/// Reads a file step by step and compares it with what was written.
fn read_back(path: &Path, expected: &[u8]) -> Result<Outcome, Error> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let (mut refused, mut wrong): (Option<(usize, usize, i32)>, usize) = (None, 0);
    let mut buffer = vec![0; STEP];
    for at in (0..expected.len()).step_by(STEP) {
        let end = (at + STEP).min(expected.len());
        let step = &mut buffer[..end - at];
        match file.read_exact_at(step, at as u64) {
            Ok(()) => wrong += step.iter().zip(&expected[at..end]).filter(|(a, b)| a != b).count(),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                refused = Some((refused.map_or(at, |(from, ..)| from), end, errno));
            }
        }
    }
    Ok(match (refused, wrong) {
        (Some((from, to, errno)), wrong) => Outcome::Refused { from, to, errno, wrong },
        (None, 0) => Outcome::Whole,
        (None, bytes) => Outcome::Wrong { bytes },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_lab_experiment::Workdir;

    fn words(line: &str) -> Result<Option<Options>, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_and_mistakes_are_sentences() {
        let options = words("--elapsed 3 --out=/tmp/x").unwrap().unwrap();
        assert_eq!((options.elapsed_s, options.out), (Some(3), PathBuf::from("/tmp/x")));
        assert_eq!(words("--quick").unwrap().unwrap().elapsed_s, Some(2));
        assert_eq!(words("--elapsed 3 --quick").unwrap().unwrap().elapsed_s, Some(3));
        assert!(words("--help").unwrap().is_none());
        for wrong in ["--elapsed 1", "--elapsed", "--out=", "now"] {
            assert!(words(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_are_found_wherever_they_lie_and_a_flip_is_told_from_the_whole() {
        let dir = Workdir::create(&std::env::temp_dir()).unwrap();
        let path = dir.path().join("image");
        let bytes = random_bytes(3 << 20).unwrap();
        fs::write(&path, &bytes).unwrap();
        // Across the border of two pieces, at the start and at the end.
        for at in [0, (1 << 20) - 10, 2_000_001, bytes.len() - MARK_BYTES] {
            assert_eq!(find(&path, &bytes[at..at + MARK_BYTES]).unwrap(), Some(at as u64));
        }
        assert_eq!(find(&path, &[7; MARK_BYTES]).unwrap(), None);
        assert_eq!(read_back(&path, &bytes).unwrap(), Outcome::Whole);
        flip_bit(&path, 12_345).unwrap();
        assert_eq!(read_back(&path, &bytes).unwrap(), Outcome::Wrong { bytes: 1 });
    }
}
