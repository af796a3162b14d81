//! `zfs unmount`.

use super::mount::mounted;
use super::select::name_of_path;
use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::path::Path;
use steadfast_control::api::{FsList, FsUnloadKey, FsUnmount};
use steadfast_control::{Code, Refusal};

pub(super) const COMMAND: Command = Command {
    names: &["unmount", "umount"],
    syntax: Syntax {
        flags: &[
            flag('a', "all file systems"),
            flag('f', "even if files are open"),
            flag('u', "unload keys that no mounted file system uses"),
        ],
        operands: "[filesystem|mountpoint]",
        least: 0,
        most: 1,
    },
    doc: "Unmounts file systems.",
    run: unmount,
};

fn unmount(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let force = parsed.has('f');
    match (parsed.has('a'), parsed.operands.first()) {
        (true, Some(_)) => return Err(Failure::Usage("too many arguments: -a means all".into())),
        (false, None) => return Err(Failure::Usage("missing filesystem argument".into())),
        (true, None) => {
            // The deepest folder first: a file system lies inside another whatever its name.
            let mut all = mounted(session)?;
            all.sort_by(|one, other| other.mounted_at.cmp(&one.mounted_at));
            for fs in all {
                unmount_one(session, &fs.name, force, parsed.has('u'));
            }
        }
        (false, Some(operand)) => {
            let name = if operand.starts_with('/') {
                let doing = || format!("cannot unmount '{}'", tame(operand));
                let name = name_of_path(session, operand).doing(doing)?;
                let at = session.ask(FsList { names: vec![name.clone()], depth: Some(0) }).doing(doing)?;
                if !at.iter().any(|fs| fs.mounted_at.as_deref() == Some(Path::new(operand))) {
                    return Err(Refusal::new(Code::FsNotMounted, "the folder is not a mountpoint"))
                        .doing(doing);
                }
                name
            } else {
                operand.clone()
            };
            unmount_one(session, &name, force, parsed.has('u'));
        }
    }
    Ok(())
}

fn unmount_one(session: &mut Session<'_, '_>, name: &str, force: bool, unload: bool) {
    let unmounted = match session.ask(FsUnmount { name: name.to_owned(), force }) {
        Ok(outcome) => {
            session.warn(&format!("'{name}' is unmounted, but"), &outcome.warnings);
            outcome.touched
        }
        Err(refusal) => return session.complain(&format!("cannot unmount '{}'", tame(name)), &refusal),
    };
    // Also of encryption roots below it, which were unmounted with it: these first.
    for name in unmounted.into_iter().filter(|_| unload) {
        let Err(refusal) = session.ask(FsUnloadKey { name: name.clone() }) else { continue };
        // As in ZFS, a key that others use stays, and a missing key is no error.
        let stays = [Code::KeyBusy, Code::KeyNone, Code::KeyInherited, Code::KeyUnloaded];
        if !stays.contains(&refusal.code) {
            session.complain(&format!("cannot unload the key of '{}'", tame(&name)), &refusal);
        }
    }
}
