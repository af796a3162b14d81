//! `zpool destroy`.

use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolDestroy;

pub(super) const COMMAND: Command = Command {
    names: &["destroy"],
    syntax: Syntax { flags: &[flag('f', "even if files are open")], operands: "pool", least: 1, most: 1 },
    doc: "Destroys a pool and all its data.",
    run: destroy,
};

fn destroy(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let request = PoolDestroy { name: name.clone(), force: parsed.has('f') };
    let outcome = session
        .ask_in_steps(request, &format!("destroy {}", tame(&name)))
        .doing(|| format!("cannot destroy '{}'", tame(&name)))?;
    session.warn(&format!("'{name}' is destroyed, but"), &outcome.warnings);
    Ok(())
}
