//! `zpool remove`.

use super::operands::{device_path, of_devices};
use super::wait::wait_for;
use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolRemove;

pub(super) const COMMAND: Command = Command {
    names: &["remove"],
    syntax: Syntax {
        flags: &[
            flag('n', "check only, and tell the memory that the removal will take: none"),
            flag('p', "with -n: exact numbers"),
            flag('s', "cancel the removal in progress"),
            flag('w', "wait until the removal has finished"),
        ],
        operands: "pool [device]...",
        least: 1,
        most: MANY,
    },
    doc: "Removes a group, a single device, a log, a cache, a spare or the anchor. Its data moves to the other devices first.",
    run: remove,
};

fn remove(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let cancel = parsed.has('s');
    match (cancel, parsed.operands.len()) {
        (true, 2..) => return Err(Failure::Usage("too many arguments: -s takes no device".into())),
        (true, _) if parsed.has('n') || parsed.has('w') => {
            return Err(Failure::Usage("-s cannot be combined with -n or -w".into()));
        }
        (false, 1) => return Err(Failure::Usage("missing device argument".into())),
        _ => {}
    }
    let devices = parsed.operands[1..].iter().map(|word| device_path(session, word)).collect();
    let request = PoolRemove { name: name.clone(), devices, dry_run: parsed.has('n'), cancel };
    let outcome = session.ask(request).doing(|| match cancel {
        true => "cannot cancel removal".to_owned(),
        false => of_devices("remove", &parsed.operands[1..]),
    })?;
    session.warn(&format!("devices of '{name}' are removed, but"), &outcome.warnings);
    if parsed.has('n') {
        // Blocks that were moved have places of their own; no table in memory leads there.
        for device in &parsed.operands[1..] {
            let device = tame(device);
            session.line(match parsed.has('p') {
                true => format!("{device} 0"),
                false => format!("Memory that will be used after removing {device}: 0"),
            });
        }
    }
    if parsed.has('w') { wait_for(session, &name, &["remove"]) } else { Ok(()) }
}
