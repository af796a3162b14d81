//! Random operations of many processes on one tree, in a form that lets every reader tell right
//! bytes from wrong ones.
//!
//! The idea: the word at offset `o` of *any* file is either zero or `pattern(o)`. Writes, copies,
//! truncations, holes and renames keep that true without any process knowing what the others do, so
//! contents are checked at every read, while all run, and once more at the end. The resulting tree
//! is not modelled here; the stage compares it before an export and after the import, and the
//! checker reads the pool in between.
//!
//! ## Invariants
//! [stress.1] Offsets and lengths of everything that moves or drops content are multiples of
//!      [`WORD`].
//! [stress.2] An operation ends with success or with an error that a race on names explains
//!      (`expected`); anything else, EIO above all, ends the worker with a failure.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, RenameFlags, SeekFrom, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;

use crate::random::{Rng, mix};

/// Bytes of a word.
pub const WORD: u64 = 8;
/// Files are written up to here.
const SIZE_MAX: u64 = 2 << 20;
/// Levels of folders below one that is moved, at most.
const HEIGHT_MAX: u32 = 3;
/// Most bytes of one operation.
const TRANSFER_MAX: u64 = 256 << 10;
/// A place far out, beyond what 32 bits of blocks reach.
const FAR: u64 = 1 << 43;
/// How often a word that is wrong is read again: a copy that is under way may be seen half done.
const LOOKS: u32 = 4;

/// Value of the word at this offset of any file, unless it is zero.
fn pattern(offset: u64) -> u64 {
    mix(offset ^ 0x5_7ead_fa57)
}

/// `DIR SEED OPERATIONS INDEX`: works; `DIR verify`: reads every word of every file. Returns the
/// exit status.
pub(crate) fn worker_main(args: &[String]) -> i32 {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [dir, "verify"] => {
            verify(Path::new(dir)).map(|count| println!("{count} words are what they should be"))
        }
        [dir, seed, operations, index] => match (seed.parse(), operations.parse(), index.parse()) {
            (Ok(seed), Ok(operations), Ok(index)) => work(Path::new(dir), seed, operations, index),
            _ => Err("seed, operations and index are numbers".to_owned()),
        },
        _ => Err("usage: steadfast lab stress-worker DIR (SEED OPERATIONS INDEX | verify)".to_owned()),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("stress-worker: {error}");
            1
        }
    }
}

/// Errors that a race with another process, or the shape of the tree, explains.
fn expected(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        code,
        Some(
            Errno::NOENT
                | Errno::EXIST
                | Errno::NOTDIR
                | Errno::ISDIR
                | Errno::NOTEMPTY
                | Errno::INVAL // a folder into itself
                | Errno::LOOP
                | Errno::NXIO // no data behind this offset; nobody reads this pipe
                | Errno::NODATA
                | Errno::PERM // a link to a folder
                | Errno::BUSY
                | Errno::OPNOTSUPP
                | Errno::MLINK
        )
    )
}

struct Worker {
    root: PathBuf,
    rng: Rng,
    buffer: Vec<u8>,
}

/// Name and body of an operation.
type Operation = (&'static str, u64, fn(&mut Worker) -> io::Result<()>);

/// Operations, with their weights.
const OPERATIONS: &[Operation] = &[
    ("create", 10, |w| w.open(true).map(drop)),
    ("write", 16, Worker::write),
    ("read", 16, Worker::read),
    ("truncate", 5, Worker::truncate),
    ("allocate", 3, |w| w.allocate(FallocateFlags::empty())),
    ("keep-size", 2, |w| w.allocate(FallocateFlags::KEEP_SIZE)),
    ("punch", 4, |w| w.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)),
    ("zero", 3, |w| w.allocate(FallocateFlags::ZERO_RANGE)),
    ("copy-range", 3, Worker::copy_range),
    ("seek", 2, Worker::seek),
    ("fsync", 2, |w| w.open(false)?.sync_all()),
    ("fdatasync", 2, |w| w.open(false)?.sync_data()),
    ("mkdir", 4, |w| fs::create_dir(w.folder())),
    ("rmdir", 2, |w| fs::remove_dir(w.folder())),
    ("unlink", 6, |w| fs::remove_file(w.path())),
    ("link", 4, |w| fs::hard_link(w.path(), w.path())),
    ("symlink", 3, Worker::symlink),
    ("mknod", 2, Worker::mknod),
    ("rename", 8, |w| fs::rename(w.path(), w.path())),
    ("rename-folder", 3, Worker::rename_folder),
    ("rename-noreplace", 2, |w| w.rename_with(RenameFlags::NOREPLACE)),
    ("rename-exchange", 2, |w| w.rename_with(RenameFlags::EXCHANGE)),
    ("stat", 6, |w| fs::symlink_metadata(w.path()).map(drop)),
    ("list", 3, |w| fs::read_dir(w.folder())?.try_for_each(|entry| entry.map(drop))),
    ("chmod", 2, Worker::chmod),
    ("chown", 2, Worker::chown),
    ("times", 2, Worker::times),
    ("set-xattr", 3, Worker::set_xattr),
    ("get-xattr", 2, Worker::get_xattr),
    ("remove-xattr", 2, Worker::remove_xattr),
    ("unlinked-open", 2, Worker::unlinked_open),
    ("statfs", 1, |w| Ok(rustix::fs::statvfs(&w.root).map(drop)?)),
];

fn work(root: &Path, seed: u64, operations: u64, index: u64) -> Result<(), String> {
    let mut worker = Worker {
        root: root.to_owned(),
        rng: Rng::new(mix(seed) ^ index),
        buffer: vec![0; TRANSFER_MAX as usize],
    };
    let sum: u64 = OPERATIONS.iter().map(|(_, weight, _)| weight).sum();
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for number in 0..operations {
        let mut at = worker.rng.below(sum);
        let chosen = OPERATIONS.iter().find(|(_, weight, _)| {
            let hit = at < *weight;
            at = at.wrapping_sub(*weight);
            hit
        });
        let Some((name, _, run)) = chosen else { continue };
        let count = counts.entry(name).or_default();
        match run(&mut worker) {
            Ok(()) => count.0 += 1,
            Err(error) if expected(&error) => count.1 += 1,
            Err(error) => return Err(format!("worker {index}, operation {number}, {name}: {error}")),
        }
    }
    let shown: Vec<String> =
        counts.iter().map(|(name, (done, refused))| format!("{name} {done}+{refused}")).collect();
    println!("worker {index}: {}", shown.join(", "));
    Ok(())
}

impl Worker {
    /// A folder that may be there.
    fn folder(&mut self) -> PathBuf {
        let mut path = self.root.to_owned();
        for _ in 0..=self.rng.below(3) {
            path.push(format!("d{}", self.rng.below(4)));
        }
        path
    }

    /// A file that may be there.
    fn path(&mut self) -> PathBuf {
        let mut path = if self.rng.below(4) == 0 { self.root.to_owned() } else { self.folder() };
        path.push(match self.rng.below(20) {
            18 => OsString::from_vec(b"not \xff utf-8\n".to_vec()),
            19 => OsString::from("n".repeat(255)),
            n => OsString::from(format!("f{n}")),
        });
        path
    }

    fn open(&mut self, create: bool) -> io::Result<File> {
        let path = self.path();
        // A pipe without a partner must not hold us up.
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file =
            OpenOptions::new().read(true).write(true).create(create).custom_flags(nonblock).open(path)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::NOENT.into()) }
    }

    fn range(&mut self) -> (u64, u64) {
        let far = if self.rng.below(64) == 0 { FAR } else { 0 };
        let offset = far + self.rng.below(SIZE_MAX / WORD) * WORD;
        let most = if self.rng.below(4) == 0 { TRANSFER_MAX } else { 16 << 10 };
        (offset, (1 + self.rng.below(most / WORD)) * WORD)
    }

    fn write(&mut self) -> io::Result<()> {
        let file = self.open(true)?;
        let (offset, length) = self.range();
        let bytes = &mut self.buffer[..length as usize];
        for (at, word) in bytes.chunks_exact_mut(WORD as usize).enumerate() {
            word.copy_from_slice(&pattern(offset + at as u64 * WORD).to_le_bytes());
        }
        file.write_all_at(bytes, offset)
    }

    fn read(&mut self) -> io::Result<()> {
        let file = self.open(false)?;
        let (offset, length) = self.range();
        check(&file, offset, &mut self.buffer[..length as usize]).map(drop)
    }

    fn truncate(&mut self) -> io::Result<()> {
        let file = self.open(false)?;
        let (offset, _) = self.range();
        file.set_len(if self.rng.below(4) == 0 { 0 } else { offset })
    }

    fn allocate(&mut self, flags: FallocateFlags) -> io::Result<()> {
        let file = self.open(false)?;
        let (offset, length) = self.range();
        Ok(rustix::fs::fallocate(&file, flags, offset, length)?)
    }

    fn copy_range(&mut self) -> io::Result<()> {
        let (from, to) = (self.open(false)?, self.open(true)?);
        let (offset, length) = self.range();
        // To the same offset: only there are the words right.
        let (mut here, mut there) = (offset, offset);
        let copied =
            rustix::fs::copy_file_range(&from, Some(&mut here), &to, Some(&mut there), length as usize)?;
        if (copied as u64).is_multiple_of(WORD) { Ok(()) } else { to.set_len(offset) }
    }

    fn seek(&mut self) -> io::Result<()> {
        let file = self.open(false)?;
        let (offset, _) = self.range();
        let data = rustix::fs::seek(&file, SeekFrom::Data(offset))?;
        let hole = rustix::fs::seek(&file, SeekFrom::Hole(offset))?;
        if data < offset || hole < offset {
            return Err(io::Error::other(format!("seek from {offset}: data at {data}, hole at {hole}")));
        }
        Ok(())
    }

    fn symlink(&mut self) -> io::Result<()> {
        let (target, path) = (self.path(), self.path());
        let target = target.strip_prefix(&self.root).unwrap_or(&target).to_owned();
        symlink(target, path)
    }

    fn mknod(&mut self) -> io::Result<()> {
        let path = self.path();
        Ok(rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from(0o600), 0)?)
    }

    fn rename_with(&mut self, flags: RenameFlags) -> io::Result<()> {
        let (from, to) = (self.path(), self.path());
        Ok(rustix::fs::renameat_with(CWD, &from, CWD, &to, flags)?)
    }

    /// A folder goes below another one. One that is high already goes for good: what lies deeper
    /// than our names reach nobody would ever remove, so the tree would grow until it is too deep
    /// for any path, and the file system full.
    fn rename_folder(&mut self) -> io::Result<()> {
        let (from, to) = (self.folder(), self.folder());
        if is_high(&from, HEIGHT_MAX) { fs::remove_dir_all(from) } else { fs::rename(from, to) }
    }

    fn chmod(&mut self) -> io::Result<()> {
        let path = self.path();
        // An ordinary user must still be able to use it.
        let mode = 0o600 | (self.rng.next() as u32 & 0o177);
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    fn chown(&mut self) -> io::Result<()> {
        let path = self.path();
        let root = rustix::process::geteuid().is_root();
        let group = if root {
            rustix::process::Gid::from_raw(self.rng.below(3) as u32)
        } else {
            rustix::process::getgid()
        };
        Ok(rustix::fs::chownat(CWD, &path, None, Some(group), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn times(&mut self) -> io::Result<()> {
        let path = self.path();
        let mut time = || Timespec {
            tv_sec: self.rng.below(1 << 33).cast_signed(),
            tv_nsec: self.rng.below(1_000_000_000).cast_signed(),
        };
        let times = Timestamps { last_access: time(), last_modification: time() };
        Ok(rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn attribute(&mut self) -> String {
        format!("user.a{}", self.rng.below(6))
    }

    fn set_xattr(&mut self) -> io::Result<()> {
        let (path, name) = (self.path(), self.attribute());
        let most = if self.rng.below(16) == 0 { 3_000 } else { 60 };
        let value = vec![self.rng.next() as u8; self.rng.below(most) as usize];
        Ok(rustix::fs::lsetxattr(&path, name, &value, XattrFlags::empty())?)
    }

    fn get_xattr(&mut self) -> io::Result<()> {
        let (path, name) = (self.path(), self.attribute());
        let mut value = vec![0u8; 65_536];
        let length = rustix::fs::lgetxattr(&path, name, &mut value)?;
        match value[..length].iter().all(|byte| *byte == value[0]) {
            true => Ok(()),
            false => Err(io::Error::other("an attribute of two values at once")),
        }
    }

    fn remove_xattr(&mut self) -> io::Result<()> {
        let (path, name) = (self.path(), self.attribute());
        Ok(rustix::fs::lremovexattr(&path, name)?)
    }

    /// A file without a name must keep its content as long as it is open.
    fn unlinked_open(&mut self) -> io::Result<()> {
        let path = self.root.join(format!("open-{}-{}", std::process::id(), self.rng.below(1 << 30)));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        let (offset, length) = self.range();
        let mut bytes = vec![0u8; length as usize];
        for (at, word) in bytes.chunks_exact_mut(WORD as usize).enumerate() {
            word.copy_from_slice(&pattern(offset + at as u64 * WORD).to_le_bytes());
        }
        file.write_all_at(&bytes, offset)?;
        fs::remove_file(&path)?;
        file.sync_all()?;
        let mut read = vec![0u8; bytes.len()];
        file.read_exact_at(&mut read, offset)?;
        if read == bytes { Ok(()) } else { Err(io::Error::other("an open file without a name changed")) }
    }
}

/// Are there folders in folders, so many levels below this one?
fn is_high(folder: &Path, levels: u32) -> bool {
    folder.is_dir() && (levels == 0 || (0..4).any(|n| is_high(&folder.join(format!("d{n}")), levels - 1)))
}

/// Reads once and holds every whole word against what it may be. Returns how many bytes there were.
fn check(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<u64> {
    let mut look = 0;
    loop {
        look += 1;
        let count = file.read_at(buffer, offset)?;
        let wrong = buffer[..count].chunks_exact(WORD as usize).enumerate().find_map(|(at, bytes)| {
            let place = offset + at as u64 * WORD;
            let word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            (word != 0 && word != pattern(place)).then_some((place, word))
        });
        match wrong {
            None => return Ok(count as u64),
            Some((place, word)) if look == LOOKS => {
                return Err(io::Error::other(format!(
                    "the word at {place} is {word:016x}, which nobody wrote there"
                )));
            }
            Some(_) => std::thread::yield_now(),
        }
    }
}

/// Reads every file below `root` and returns how many words there were. Holes are skipped where the
/// file system tells them.
///
/// # Errors
/// The first wrong word, or whatever cannot be read.
pub fn verify(root: &Path) -> Result<u64, String> {
    let mut words = 0;
    let mut buffer = vec![0u8; TRANSFER_MAX as usize];
    let mut waiting = vec![root.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))? {
            let path = entry.map_err(|error| error.to_string())?.path();
            let say = |error: io::Error| format!("{}: {error}", path.display());
            let about = fs::symlink_metadata(&path).map_err(say)?;
            if about.is_dir() {
                waiting.push(path);
            } else if about.is_file() {
                let file = File::open(&path).map_err(say)?;
                let mut offset = 0;
                while offset < about.len() {
                    offset = match rustix::fs::seek(&file, SeekFrom::Data(offset)) {
                        Ok(data) => data / WORD * WORD,
                        Err(Errno::NXIO) => break,
                        Err(error) => return Err(say(error.into())),
                    };
                    let count = check(&file, offset, &mut buffer).map_err(say)?;
                    words += count / WORD;
                    offset += count.max(WORD);
                }
            }
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_workers_leave_a_tree_that_verifies_and_a_wrong_byte_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().to_owned(), dir.path().to_owned());
        let other = std::thread::spawn(move || work(&two, 5, 3_000, 1));
        work(&one, 5, 3_000, 0).unwrap();
        other.join().unwrap().unwrap();
        assert!(verify(dir.path()).unwrap() > 1_000);
        let longest = deepest(dir.path());
        assert!(longest <= 8, "{longest} levels");
        let mut bytes = vec![0u8; 64];
        bytes[33] = 1;
        fs::write(dir.path().join("broken"), bytes).unwrap();
        assert!(verify(dir.path()).unwrap_err().contains("broken: the word at 32"));
    }

    fn deepest(folder: &Path) -> usize {
        let folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        folders
            .filter(|path| path.is_dir() && !path.is_symlink())
            .map(|path| 1 + deepest(&path))
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn every_operation_succeeds_at_least_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut worker =
            Worker { root: dir.path().to_owned(), rng: Rng::new(3), buffer: vec![0; TRANSFER_MAX as usize] };
        for (name, _, run) in OPERATIONS {
            let mut done = false;
            for _ in 0..5_000 {
                // Something to work on, every time.
                let _ = (fs::create_dir(worker.folder()), worker.write(), worker.set_xattr());
                match run(&mut worker) {
                    Ok(()) => done = true,
                    Err(error) => assert!(expected(&error), "{name}: {error}"),
                }
                if done {
                    break;
                }
            }
            assert!(done, "{name} never succeeded");
        }
    }
}
