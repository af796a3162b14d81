//! `zpool destroy`.

use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolDestroy;
use steadfast_control::{Code, Refusal};

pub(super) const COMMAND: Command = Command {
    names: &["destroy"],
    syntax: Syntax { flags: &[flag('f', "even if files are open")], operands: "pool", least: 1, most: 1 },
    doc: "Destroys a pool and all its data. One that is imported read-only is exported instead.",
    run: destroy,
};

fn destroy(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let request = PoolDestroy { name: name.clone(), force: parsed.has('f') };
    let outcome = session
        .ask_in_steps(request, &format!("destroy {}", tame(&name)))
        .doing(|| format!("cannot destroy '{}'", tame(&name)))?;
    if outcome.touched.is_empty() {
        let name = tame(&name);
        session.tell(&format!(
            "note: '{name}' was imported read-only: it is exported, and its devices are as they were\n"
        ));
    }
    // They stay on purpose: `zpool import -D` needs them.
    let (left, others): (Vec<Refusal>, Vec<Refusal>) =
        outcome.warnings.into_iter().partition(|warning| warning.code == Code::TilesLeft);
    for tiles in left {
        session.tell(&format!("note: {}. {}\n", tame(&tiles.what), tame(&tiles.advice())));
    }
    session.warn(&format!("'{name}' is destroyed, but"), &others);
    Ok(())
}
