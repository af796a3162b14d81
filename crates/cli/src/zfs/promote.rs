//! `zfs promote`.

use crate::command::Command;
use crate::options::{Parsed, Syntax};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::FsPromote;

pub(super) const COMMAND: Command = Command {
    names: &["promote"],
    syntax: Syntax { flags: &[], operands: "clone", least: 1, most: 1 },
    doc: "Swaps the roles of a clone and its origin: the clone gets the snapshots, the origin becomes the clone.",
    run: promote,
};

fn promote(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let request = FsPromote { name: name.clone() };
    let outcome = session.ask(request).doing(|| format!("cannot promote '{}'", tame(&name)))?;
    session.warn(&format!("'{name}' is promoted, but"), &outcome.warnings);
    Ok(())
}
