//! `zfs reflink`: copies a file by sharing its blocks.

use super::select::name_of_path;
use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use steadfast_control::api::PoolSync;
use steadfast_control::{Code, Refusal};

pub(super) const COMMAND: Command = Command {
    names: &["reflink"],
    syntax: Syntax {
        flags: &[flag('f', "overwrite an existing target")],
        operands: "source target",
        least: 2,
        most: 2,
    },
    doc: "Copies a file by sharing its blocks (block cloning). Commits the pool first.",
    run: reflink,
};

fn reflink(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (source, target) = (parsed.operands[0].clone(), parsed.operands[1].clone());
    let doing = || format!("cannot clone the blocks of '{}'", tame(&source));
    let from = File::open(&source).map_err(|error| io_refusal(&error, &source)).doing(doing)?;
    let about = from.metadata().map_err(|error| io_refusal(&error, &source)).doing(doing)?;
    if !about.is_file() {
        let refusal = Refusal::new(Code::FileIo, format!("{} is not a regular file", tame(&source)));
        return Err(refusal.with("path", &source)).doing(doing);
    }
    let whole = |path: &str| -> Result<String, Refusal> {
        let path = Path::new(path);
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().map_err(|error| io_refusal(&error, &folder.to_string_lossy()))?;
        Ok(folder.to_string_lossy().into_owned())
    };
    let (source_folder, target_folder) = (whole(&source).doing(doing)?, whole(&target).doing(doing)?);
    let name = name_of_path(session, &source_folder).doing(doing)?;
    let other = name_of_path(session, &target_folder).doing(doing)?;
    if name != other {
        let what =
            format!("source and target are in two file systems: '{}' and '{}'", tame(&name), tame(&other));
        return Err(Refusal::new(Code::FsApart, what).with("source", &source).with("target", &target))
            .doing(doing);
    }
    // Uncommitted data has no blocks to share.
    let pool = name.split('/').next().unwrap_or_default().to_owned();
    session.ask(PoolSync { names: vec![pool] }).doing(doing)?;
    let mut options = OpenOptions::new();
    options.write(true).mode(about.mode() & 0o7777);
    // Do not truncate yet: the target may be the source.
    if parsed.has('f') {
        options.create(true).truncate(false)
    } else {
        options.create_new(true)
    };
    let to = options.open(&target).map_err(|error| io_refusal(&error, &target)).doing(doing)?;
    let is_same = to.metadata().is_ok_and(|other| (other.dev(), other.ino()) == (about.dev(), about.ino()));
    if is_same {
        let what = format!("'{}' and '{}' are the same file", tame(&source), tame(&target));
        return Err(Refusal::new(Code::FileIo, what).with("path", &target)).doing(doing);
    }
    let emptied = to.set_len(0);
    emptied
        .and_then(|()| carry(&from, &to, about.len()))
        .map_err(|error| io_refusal(&error, &target))
        .doing(doing)
}

/// Copies all bytes with `copy_file_range`, for which the file system shares blocks where it can.
fn carry(from: &File, to: &File, size: u64) -> io::Result<()> {
    let (mut source, mut target) = (0, 0);
    while source < size {
        let length = usize::try_from(size - source).unwrap_or(usize::MAX).min(1 << 30);
        let copied = rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), length)?;
        if copied == 0 {
            // The source was truncated meanwhile.
            break;
        }
    }
    Ok(())
}

fn io_refusal(error: &io::Error, path: &str) -> Refusal {
    Refusal::new(Code::FileIo, format!("{}: {error}", tame(path))).with("path", path)
}
