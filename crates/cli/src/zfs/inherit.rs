//! `zfs inherit`.

use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag};
use crate::properties::columns_of;
use crate::session::{Failure, Session};
use crate::table::tame;
use steadfast_control::api::FsInherit;
use steadfast_property::{Scope, lookup};

pub(super) const COMMAND: Command = Command {
    names: &["inherit"],
    syntax: Syntax {
        flags: &[
            flag('r', "all file systems below and their snapshots too"),
            flag('S', "return to the received value, if there is one"),
        ],
        operands: "property filesystem|snapshot...",
        least: 2,
        most: MANY,
    },
    doc: "Clears a property, so that the value of the parent applies.",
    run: inherit,
};

fn inherit(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (property, names) = parsed.operands.split_first().expect("the syntax asks for two operands at least");
    // As in ZFS, an unknown property is a usage error.
    if lookup(Scope::Dataset, property).is_none() && !steadfast_property::is_user_property(property) {
        columns_of(Scope::Dataset, &[property])?;
    }
    for name in names {
        let request = FsInherit {
            name: name.clone(),
            property: property.clone(),
            recursive: parsed.has('r'),
            received: parsed.has('S'),
        };
        match session.ask(request) {
            Ok(outcome) => session.remark(&format!("'{name}' inherits {property}, but"), outcome.warnings),
            Err(refusal) => {
                session.complain(&format!("cannot inherit {property} for '{}'", tame(name)), &refusal)
            }
        }
    }
    Ok(())
}
