//! `zpool set`.

use crate::command::Command;
use crate::options::{Parsed, Syntax};
use crate::properties::assignments;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolSet;
use steadfast_property::Scope;

pub(super) const COMMAND: Command = Command {
    names: &["set"],
    syntax: Syntax { flags: &[], operands: "property=value pool", least: 2, most: 2 },
    doc: "Sets a property of a pool.",
    run: set,
};

fn set(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[1].clone();
    let properties = assignments(session, Scope::Pool, std::iter::once(parsed.operands[0].as_str()))?;
    let outcome = session
        .ask(PoolSet { name: name.clone(), properties })
        .doing(|| format!("cannot set property for '{}'", tame(&name)))?;
    session.warn(&format!("the property of '{name}' is set, but"), &outcome.warnings);
    Ok(())
}
