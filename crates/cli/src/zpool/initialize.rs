//! `zpool initialize`.

use super::operands::device_path;
use super::wait::wait_for_sweep;
use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::path::PathBuf;
use steadfast_control::api::{PoolInitialize, TrimCommand};

pub(super) const COMMAND: Command = Command {
    names: &["initialize"],
    syntax: Syntax {
        flags: &[
            flag('c', "cancel").or("cancel"),
            flag('s', "suspend; `zpool initialize` without options continues").or("suspend"),
            flag('u', "forget an initialization that finished or was suspended").or("uninit"),
            flag('w', "wait until the initialization has finished").or("wait"),
        ],
        operands: "pool [device]...",
        least: 1,
        most: MANY,
    },
    doc: "Writes a pattern to all free space of devices, so that thin storage below allocates it now.",
    run: initialize,
};

fn initialize(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let asked: Vec<(char, TrimCommand)> =
        [('c', TrimCommand::Cancel), ('s', TrimCommand::Suspend), ('u', TrimCommand::Forget)]
            .into_iter()
            .filter(|(letter, _)| parsed.has(*letter))
            .collect();
    let command = match asked[..] {
        [] => TrimCommand::Start,
        [(letter, _)] if parsed.has('w') => {
            return Err(Failure::Usage(format!("-w cannot be combined with -{letter}")));
        }
        [(_, command)] => command,
        [(first, _), (second, _), ..] => {
            return Err(Failure::Usage(format!("-{first} cannot be combined with -{second}")));
        }
    };
    let devices: Vec<PathBuf> = parsed.operands[1..].iter().map(|word| device_path(session, word)).collect();
    let request = PoolInitialize { name: name.clone(), devices: devices.clone(), command };
    session.ask(request).doing(|| format!("cannot initialize '{}'", tame(&name)))?;
    if parsed.has('w') { wait_for_sweep(session, &name, "initialize", devices) } else { Ok(()) }
}
