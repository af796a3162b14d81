//! `zfs unload-key`.

use super::keys::roots;
use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{FsList, FsUnloadKey};

pub(super) const COMMAND: Command = Command {
    names: &["unload-key"],
    syntax: Syntax {
        flags: &[flag('a', "all keys"), flag('r', "children too")],
        operands: "[filesystem]",
        least: 0,
        most: 1,
    },
    doc: "Unloads the keys of encrypted file systems.",
    run: unload_key,
};

fn unload_key(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    match (parsed.has('a'), parsed.operands.first()) {
        (true, Some(_)) => Err(Failure::Usage("too many arguments: -a means all".into())),
        (false, None) => Err(Failure::Usage("missing dataset argument (specify -a for all)".into())),
        (all, operand) if all || parsed.has('r') => {
            let names = operand.cloned().into_iter().collect();
            let found = session.ask(FsList { names, depth: None }).doing(|| "cannot unload keys".into())?;
            let loaded: Vec<String> = roots(&found)
                .filter(|fs| fs.value("keystatus") == "available")
                .map(|fs| fs.name.clone())
                .collect();
            // Children first: a parent's key can be unloaded when no child uses it.
            for name in loaded.into_iter().rev() {
                if let Err(refusal) = session.ask(FsUnloadKey { name: name.clone() }) {
                    session.complain(&format!("cannot unload the key of '{}'", tame(&name)), &refusal);
                }
            }
            Ok(())
        }
        (_, operand) => {
            let name = operand.expect("the arms above took the case without one").clone();
            session
                .ask(FsUnloadKey { name: name.clone() })
                .doing(|| format!("cannot unload the key of '{}'", tame(&name)))?;
            Ok(())
        }
    }
}
