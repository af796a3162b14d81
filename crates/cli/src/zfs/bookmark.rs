//! `zfs bookmark`.

use crate::command::Command;
use crate::options::{Parsed, Syntax};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::FsBookmark;
use steadfast_control::{Code, Refusal};

pub(super) const COMMAND: Command = Command {
    names: &["bookmark"],
    syntax: Syntax {
        flags: &[],
        operands: "filesystem@snapshot|filesystem#bookmark filesystem#newbookmark",
        least: 2,
        most: 2,
    },
    doc: "Marks the moment of a snapshot as a base for `zfs send -i`. A bookmark holds no data and outlives its snapshot.",
    run: bookmark,
};

fn bookmark(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (mut of, name) = (parsed.operands[0].clone(), parsed.operands[1].clone());
    // As in ZFS, either side may leave out the file system.
    if let (true, Some((other, _))) = (of.starts_with(['@', '#']), name.split_once('#')) {
        of.insert_str(0, other);
    }
    let doing = || format!("cannot create bookmark '{}'", tame(&name));
    let fs = of.split(['@', '#']).next().unwrap_or_default();
    let mark = match name.split_once('#') {
        Some((other, mark)) if other.is_empty() || other == fs => mark.to_owned(),
        _ => {
            let what = format!(
                "invalid bookmark name: a bookmark of '{}' must be named '{}#NAME'",
                tame(&of),
                tame(fs)
            );
            return Err(Refusal::new(Code::NameInvalid, what)).doing(doing);
        }
    };
    session.ask(FsBookmark { of, name: mark }).doing(doing)?;
    Ok(())
}
