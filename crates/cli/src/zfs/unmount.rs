//! `zfs unmount`.

use super::mount::mounted;
use super::select::name_of_path;
use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::path::Path;
use steadfast_control::api::{FsList, FsMount, FsUnloadKey, FsUnmount};
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
    let unload = |how| if parsed.has('u') { how } else { Unload::No };
    match (parsed.has('a'), parsed.operands.first()) {
        (true, Some(_)) => return Err(Failure::Usage("too many arguments: -a means all".into())),
        (false, None) => return Err(Failure::Usage("missing filesystem argument".into())),
        (true, None) => {
            // The deepest folder first: a file system lies inside another whatever its name.
            let mut all = mounted(session)?;
            // As in ZFS, those that `mount -a` does not mount stay.
            all.retain(|fs| fs.value("canmount") != "noauto");
            all.sort_by(|one, other| other.mounted_at.cmp(&one.mounted_at));
            // Some were unmounted with the one above them by name.
            let mut gone: Vec<String> = Vec::new();
            for fs in all {
                if !gone.contains(&fs.name) {
                    gone.extend(unmount_one(session, &fs.name, force, unload(Unload::IfUnused)));
                }
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
            unmount_one(session, &name, force, unload(Unload::All));
        }
    }
    Ok(())
}

/// Unmounts a file system with those below it, and returns their names.
fn unmount_one(session: &mut Session<'_, '_>, name: &str, force: bool, unload: Unload) -> Vec<String> {
    let doing = format!("cannot unmount '{}'", tame(name));
    let unmounted = match session.ask(FsUnmount { name: name.to_owned(), force }) {
        Ok(outcome) => {
            session.warn(&format!("'{name}' is unmounted, but"), &outcome.warnings);
            outcome.touched
        }
        Err(refusal) => {
            session.complain(&doing, &refusal);
            return Vec::new();
        }
    };
    // Also of encryption roots below it, which were unmounted with it: these first.
    for key in unmounted.iter().filter(|_| unload != Unload::No) {
        let Err(refusal) = session.ask(FsUnloadKey { name: key.clone() }) else { continue };
        match refusal.code {
            // As in ZFS, a missing key is no error.
            Code::KeyNone | Code::KeyInherited | Code::KeyUnloaded => {}
            // Others use it, and may be unmounted yet.
            Code::KeyBusy if unload == Unload::IfUnused => {}
            Code::KeyBusy => {
                for name in unmounted.iter().rev() {
                    let again = FsMount { name: name.clone(), at: None, options: Vec::new(), overlay: true };
                    if let Err(refusal) = session.ask(again) {
                        session.complain(&format!("cannot mount '{}' again", tame(name)), &refusal);
                    }
                }
                session.complain(&doing, &refusal);
                return Vec::new();
            }
            _ => session.complain(&format!("cannot unload the key of '{}'", tame(key)), &refusal),
        }
    }
    unmounted
}

/// Whether keys are unloaded.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Unload {
    No,
    /// Those that no mount needs.
    IfUnused,
    /// All: a key that a mount needs keeps everything as it was.
    All,
}
