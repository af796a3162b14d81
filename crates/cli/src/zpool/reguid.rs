//! `zpool reguid`.

use crate::command::Command;
use crate::options::{Parsed, Syntax};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolReguid;

pub(super) const COMMAND: Command = Command {
    names: &["reguid"],
    syntax: Syntax { flags: &[], operands: "pool", least: 1, most: 1 },
    doc: "Gives a pool a new GUID, so that a copy of its devices counts as a different pool.",
    run: reguid,
};

fn reguid(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let request = PoolReguid { name: name.clone() };
    let outcome = session.ask(request).doing(|| format!("cannot change the GUID of '{}'", tame(&name)))?;
    session.warn(&format!("'{name}' has a new GUID, but"), &outcome.warnings);
    Ok(())
}
