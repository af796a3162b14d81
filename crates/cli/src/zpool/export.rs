//! `zpool export`.

use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{PoolExport, PoolList};
use steadfast_control::{Code, Refusal};

pub(super) const COMMAND: Command = Command {
    names: &["export"],
    syntax: Syntax {
        flags: &[
            flag('a', "all pools"),
            flag('f', "even if files are open, or the pool is suspended and loses its last changes"),
        ],
        operands: "[pool]...",
        least: 0,
        most: MANY,
    },
    doc: "Unmounts pools and closes their devices.",
    run: export,
};

fn export(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let mut names = parsed.operands.clone();
    match (parsed.has('a'), names.is_empty()) {
        (true, true) => {
            let pools = session.ask(PoolList::default()).doing(|| "cannot list pools".into())?;
            names = pools.into_iter().map(|pool| pool.name).collect();
        }
        (true, false) => return Err(Failure::Usage("too many arguments: -a means all pools".into())),
        (false, true) => return Err(Failure::Usage("missing pool argument".into())),
        (false, false) => {}
    }
    for name in names {
        let request = PoolExport { name: name.clone(), force: parsed.has('f') };
        match session.ask_in_steps(request, &format!("export {}", tame(&name))) {
            Ok(outcome) => {
                // It was asked for by -f, so it is no failure.
                let (lost, others): (Vec<Refusal>, Vec<Refusal>) =
                    outcome.warnings.into_iter().partition(|warning| warning.code == Code::ChangesLost);
                for lost in lost {
                    session.tell(&format!("note: {}\n", tame(&lost.what)));
                }
                session.warn(&format!("'{name}' is exported, but"), &others);
            }
            Err(refusal) => session.complain(&format!("cannot export '{}'", tame(&name)), &refusal),
        }
    }
    Ok(())
}
