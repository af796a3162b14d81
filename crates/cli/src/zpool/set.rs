//! `zpool set`.

use super::vdev_properties;
use crate::command::Command;
use crate::options::{Parsed, Syntax};
use crate::properties::assignments;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolSet;
use steadfast_property::Scope;

pub(super) const COMMAND: Command = Command {
    names: &["set"],
    syntax: Syntax { flags: &[], operands: "property=value pool [device]", least: 2, most: 3 },
    doc: "Sets a property of a pool, or of a group or device of it.",
    run: set,
};

fn set(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    if parsed.operands.len() == 3 {
        return vdev_properties::set(session, parsed);
    }
    let name = parsed.operands[1].clone();
    let properties = assignments(session, Scope::Pool, std::iter::once(parsed.operands[0].as_str()))?;
    // A new pool may be made without a feature; it is not taken away from one that stands.
    if let Some(feature) = disabled_feature(&parsed.operands[0]) {
        return Err(Failure::Usage(format!("'{}' can only be set to enabled", tame(feature))));
    }
    let outcome = session
        .ask(PoolSet { name: name.clone(), properties, vdev: None })
        .doing(|| format!("cannot set property for '{}'", tame(&name)))?;
    session.warn(&format!("the property of '{name}' is set, but"), &outcome.warnings);
    Ok(())
}

/// The feature that an assignment is to disable.
fn disabled_feature(assignment: &str) -> Option<&str> {
    let (name, value) = assignment.split_once('=')?;
    (name.starts_with("feature@") && value == "disabled").then_some(name)
}
