//! `zpool trim`.

use super::operands::{check_refused, device_path};
use super::wait::wait_for_sweep;
use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::path::PathBuf;
use steadfast_control::api::{PoolTrim, TrimCommand};
use steadfast_property::parse_size;

pub(super) const COMMAND: Command = Command {
    names: &["trim"],
    syntax: Syntax {
        flags: &[
            flag('c', "cancel"),
            flag('d', "refused: no device here can promise a secure trim; encrypt, and destroy the key")
                .or("secure"),
            valued('r', "rate", "at most so many bytes per second on each device"),
            flag('s', "suspend; `zpool trim` without options continues"),
            flag('w', "wait until the trim has finished"),
        ],
        operands: "pool [device]...",
        least: 1,
        most: MANY,
    },
    doc: "Returns free space to the storage below: discards on disks, holes in image files.",
    run: trim,
};

fn trim(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    check_refused(parsed)?;
    let usage = |sentence: &str| Err(Failure::Usage(sentence.to_owned()));
    let name = parsed.operands[0].clone();
    let command = match (parsed.has('c'), parsed.has('s')) {
        (true, true) => return usage("-c cannot be combined with -s"),
        (true, false) => TrimCommand::Cancel,
        (false, true) => TrimCommand::Suspend,
        (false, false) => TrimCommand::Start,
    };
    let stops = command != TrimCommand::Start;
    if stops && parsed.has('w') {
        return usage("-w cannot be combined with -c or -s");
    }
    let rate = match parsed.value('r') {
        None => None,
        Some(_) if stops => return usage("-r cannot be combined with -c or -s"),
        Some(text) => match parse_size(text).filter(|rate| *rate > 0) {
            Some(rate) => Some(rate),
            None => {
                return Err(Failure::Usage(format!(
                    "invalid rate '{text}': must be a size in bytes per second, such as 64M"
                )));
            }
        },
    };
    let devices: Vec<PathBuf> = parsed.operands[1..].iter().map(|word| device_path(session, word)).collect();
    let request = PoolTrim { name: name.clone(), devices: devices.clone(), command, rate };
    session.ask(request).doing(|| format!("cannot trim '{}'", tame(&name)))?;
    if parsed.has('w') { wait_for_sweep(session, &name, "trim", devices) } else { Ok(()) }
}
