//! `zfs set`.

use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag};
use crate::properties::assignments;
use crate::session::{Failure, Session};
use crate::table::tame;
use steadfast_control::api::{FsInherit, FsSet};
use steadfast_property::{Scope, is_user_property};

pub(super) const COMMAND: Command = Command {
    names: &["set"],
    syntax: Syntax {
        flags: &[flag('u', "do not mount or unmount")],
        operands: "property=value... filesystem|snapshot...",
        least: 2,
        most: MANY,
    },
    doc: "Sets properties of file systems, or user properties (with a ':') of snapshots.",
    run: set,
};

fn set(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (settings, names): (Vec<_>, Vec<_>) =
        parsed.operands.iter().partition(|operand| operand.contains('='));
    if settings.is_empty() {
        return Err(Failure::Usage("missing property=value argument".into()));
    }
    if names.is_empty() {
        return Err(Failure::Usage("missing dataset name".into()));
    }
    // As in ZFS, a user property that is set to nothing is removed.
    let (emptied, settings): (Vec<&String>, Vec<&String>) = settings
        .into_iter()
        .partition(|setting| setting.ends_with('=') && is_user_property(&setting[..setting.len() - 1]));
    let properties = assignments(session, Scope::Dataset, settings.into_iter().map(String::as_str))?;
    for name in names {
        for property in &emptied {
            let property = property.trim_end_matches('=').to_owned();
            let request = FsInherit { name: name.clone(), property, recursive: false, received: false };
            if let Err(refusal) = session.ask(request) {
                session.complain(&format!("cannot set property for '{}'", tame(name)), &refusal);
            }
        }
        if properties.is_empty() {
            continue;
        }
        let request = FsSet { name: name.clone(), properties: properties.clone(), no_mount: parsed.has('u') };
        match session.ask(request) {
            Ok(outcome) => {
                session.remark(&format!("the property of '{name}' is set, but"), outcome.warnings);
            }
            Err(refusal) => session.complain(&format!("cannot set property for '{}'", tame(name)), &refusal),
        }
    }
    Ok(())
}
