//! `zfs load-key`.

use super::keys::{load_keys, load_one};
use crate::command::Command;
use crate::options::{Parsed, Syntax, flag, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::FsList;
use steadfast_control::{Code, Refusal};

pub(super) const COMMAND: Command = Command {
    names: &["load-key"],
    syntax: Syntax {
        flags: &[
            flag('a', "all keys"),
            flag('r', "children too"),
            flag('n', "check the key only"),
            valued('L', "keylocation", "prompt or file:///path, instead of the property keylocation"),
        ],
        operands: "[filesystem]",
        least: 0,
        most: 1,
    },
    doc: "Loads the keys of encrypted file systems, from where the property keylocation says.",
    run: load_key,
};

fn load_key(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let location = parsed.value('L');
    let dry_run = parsed.has('n');
    match (parsed.has('a'), parsed.operands.first()) {
        (true, Some(_)) => Err(Failure::Usage("too many arguments: -a means all".into())),
        (false, None) => Err(Failure::Usage("missing dataset argument (specify -a for all)".into())),
        (all, operand) if all || parsed.has('r') => {
            let names = operand.cloned().into_iter().collect();
            let found = session.ask(FsList { names, depth: None }).doing(|| "cannot load keys".into())?;
            load_keys(session, &found, location, dry_run);
            Ok(())
        }
        (_, operand) => {
            let name = operand.expect("the arms above took the case without one").clone();
            let doing = || format!("cannot load the key of '{}'", tame(&name));
            let found = session.ask(FsList { names: vec![name.clone()], depth: Some(0) }).doing(doing)?;
            let Some(fs) = found.first() else {
                return Err(Refusal::new(Code::FsAbsent, "the file system does not exist")).doing(doing);
            };
            if !dry_run && fs.value("keystatus") == "available" {
                return Err(Refusal::new(Code::KeyLoaded, "the key is already loaded")).doing(doing);
            }
            load_one(session, fs, location, dry_run).doing(doing)
        }
    }
}
