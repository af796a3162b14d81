//! `zpool scrub`.

use super::wait::wait_for;
use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{PoolList, PoolScrub, ScrubCommand};

pub(super) const COMMAND: Command = Command {
    names: &["scrub"],
    syntax: Syntax {
        flags: &[
            flag('a', "all pools"),
            flag('C', "accepted, no effect: a scrub always reads all data"),
            flag('e', "accepted, no effect: a scrub always reads all data"),
            valued('E', "date", "accepted, no effect: a scrub always reads all data"),
            flag('p', "pause; `zpool scrub` without options continues"),
            flag('s', "stop"),
            valued('S', "date", "accepted, no effect: a scrub always reads all data"),
            flag('w', "wait until the scrub has finished"),
        ],
        operands: "[pool]...",
        least: 0,
        most: MANY,
    },
    doc: "Reads all data of a pool, verifies its checksums, repairs what redundancy allows, and lists the files that are damaged.",
    run: scrub,
};

/// Options of ZFS that ask for a part of the data. All data contains it.
const PARTS: [(char, &str); 4] = [
    ('C', "-C has no effect: data that was correct at the last scrub may be damaged now"),
    ('e', "-e has no effect: errors are found by reading all data"),
    ('S', "-S has no effect: a segment holds data of many dates"),
    ('E', "-E has no effect: a segment holds data of many dates"),
];

fn scrub(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let usage = |sentence: &str| Err(Failure::Usage(sentence.to_owned()));
    let command = match (parsed.has('p'), parsed.has('s')) {
        (true, true) => return usage("-p cannot be combined with -s"),
        (true, false) => ScrubCommand::Pause,
        (false, true) => ScrubCommand::Stop,
        (false, false) => ScrubCommand::Start,
    };
    if command != ScrubCommand::Start && parsed.has('w') {
        return usage("-w cannot be combined with -p or -s");
    }
    for (_, why) in PARTS.iter().filter(|(letter, _)| parsed.has(*letter) && command == ScrubCommand::Start) {
        session.tell(&format!("note: {why}; all data of the pool is scrubbed\n"));
    }
    let all = parsed.has('a');
    let names: Vec<String> = match (all, parsed.operands.is_empty()) {
        (true, false) => return usage("too many arguments: -a means all pools"),
        (false, true) => return usage("missing pool argument"),
        (true, true) => {
            let pools = session.ask(PoolList::default()).doing(|| "cannot list pools".into())?;
            pools.into_iter().map(|pool| pool.name).collect()
        }
        (false, false) => parsed.operands.clone(),
    };
    let mut begun = Vec::new();
    for name in names {
        let doing = || match command {
            ScrubCommand::Start => format!("cannot scrub {}", tame(&name)),
            ScrubCommand::Pause => format!("cannot pause scrubbing {}", tame(&name)),
            ScrubCommand::Stop => format!("cannot cancel scrubbing {}", tame(&name)),
        };
        match session.ask(PoolScrub { name: name.clone(), command }) {
            Ok(_) => begun.push(name),
            // With -a, a refusal for one pool does not stop the others.
            Err(refusal) if all => session.complain(&doing(), &refusal),
            Err(refusal) => return Err(refusal).doing(doing),
        }
    }
    for name in begun.iter().filter(|_| parsed.has('w')) {
        wait_for(session, name, &["scrub"])?;
    }
    Ok(())
}
