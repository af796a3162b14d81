//! `zpool ddtprune`.

use crate::command::Command;
use crate::options::{Parsed, Syntax, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::PoolDdtPrune;

pub(super) const COMMAND: Command = Command {
    names: &["ddtprune"],
    syntax: Syntax {
        flags: &[
            valued('d', "days", "entries that are at least so many days old"),
            valued('p', "percentage", "the oldest entries, so many percent"),
        ],
        operands: "pool",
        least: 1,
        most: 1,
    },
    doc: "Removes entries of the dedup table (DDT) whose block is referenced once.",
    run: ddtprune,
};

fn ddtprune(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let number = |letter: char, what: &str, most: u32| -> Result<Option<u32>, Failure> {
        let Some(text) = parsed.value(letter) else { return Ok(None) };
        match text.parse() {
            Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
            _ => Err(Failure::Usage(format!("invalid {what} '{text}': must be a number from 1 to {most}"))),
        }
    };
    let (days, percent) = (number('d', "days", 36_500)?, number('p', "percentage", 100)?);
    if days.is_some() == percent.is_some() {
        return Err(Failure::Usage("specify either -d or -p".to_owned()));
    }
    let name = parsed.operands[0].clone();
    let percent = percent.and_then(|percent| u8::try_from(percent).ok());
    let doing = || format!("cannot prune the dedup table of '{}'", tame(&name));
    let pruned = session.ask(PoolDdtPrune { name: name.clone(), days, percent }).doing(doing)?;
    session.line(format!("{} entries removed", pruned.blocks));
    Ok(())
}
