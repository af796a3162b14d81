//! `zpool attach`, `detach`, `remove`, `rebalance`, `resilver`: devices come and go, and what lies on them moves.

use crate::date;
use crate::family::{Doing, Failure, Session};
use crate::options::Parsed;
use crate::table::tame;
use crate::zpool::device_path;
use crate::zpool_growth::check_new;
use crate::zpool_trim::{duration, wait_for};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use steadfast_control::api::{
    PoolAttach, PoolDetach, PoolImport, PoolRebalance, PoolReguid, PoolRemove, PoolResilver, PoolSelector,
    PoolSplit, ScanReport, ScrubCommand,
};
use steadfast_property::nice_bytes;

pub(crate) fn attach(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let doing = || format!("cannot attach to '{}'", tame(&name));
    check_new(session, parsed, &name, doing)?;
    let device = device_path(session, &parsed.operands[1]);
    let new = device_path(session, &parsed.operands[2]);
    let request = PoolAttach { name: name.clone(), device, new, force: parsed.has('f') };
    let outcome = session.ask(request).doing(doing)?;
    session.warn(&format!("the device is attached to '{name}', but"), &outcome.warnings);
    if parsed.has('w') {
        wait_for(session, &name, &["resilver", "raidz_expand"], None, |_, _| {})
    } else {
        Ok(())
    }
}

pub(crate) fn detach(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let device = device_path(session, &parsed.operands[1]);
    let request = PoolDetach { name: name.clone(), device };
    let outcome = session.ask(request).doing(|| format!("cannot detach from '{}'", tame(&name)))?;
    session.warn(&format!("the device is detached from '{name}', but"), &outcome.warnings);
    Ok(())
}

pub(crate) fn remove(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let cancel = parsed.has('s');
    match (cancel, parsed.operands.len()) {
        (true, 2..) => return Err(Failure::Usage("-s ends what is under way and takes no device".into())),
        (true, _) if parsed.has('n') || parsed.has('w') => {
            return Err(Failure::Usage("-s cannot be combined with -n or -w".into()));
        }
        (false, 1) => return Err(Failure::Usage("missing device argument".into())),
        _ => {}
    }
    let devices = parsed.operands[1..].iter().map(|word| device_path(session, word)).collect();
    let request = PoolRemove { name: name.clone(), devices, dry_run: parsed.has('n'), cancel };
    let outcome = session.ask(request).doing(|| format!("cannot remove from '{}'", tame(&name)))?;
    session.warn(&format!("it is removed from '{name}', but"), &outcome.warnings);
    if parsed.has('w') { wait_for(session, &name, &["remove"], None, |_, _| {}) } else { Ok(()) }
}

pub(crate) fn rebalance(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let command = match (parsed.has('p'), parsed.has('s')) {
        (true, true) => return Err(Failure::Usage("-p cannot be combined with -s".into())),
        (true, false) => ScrubCommand::Pause,
        (false, true) => ScrubCommand::Stop,
        (false, false) => ScrubCommand::Start,
    };
    if command != ScrubCommand::Start && parsed.has('w') {
        return Err(Failure::Usage("-w cannot be used with -p or -s".into()));
    }
    let request = PoolRebalance { name: name.clone(), command };
    session.ask(request).doing(|| format!("cannot rebalance '{}'", tame(&name)))?;
    if parsed.has('w') {
        wait_for(session, &name, &["rebalance", "raidz_expand"], None, |_, _| {})
    } else {
        Ok(())
    }
}

pub(crate) fn resilver(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    for name in &parsed.operands {
        let request = PoolResilver { name: name.clone() };
        session.ask(request).doing(|| format!("cannot resilver '{}'", tame(name)))?;
    }
    Ok(())
}

pub(crate) fn reguid(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let request = PoolReguid { name: name.clone() };
    let outcome = session.ask(request).doing(|| format!("cannot reguid '{}'", tame(&name)))?;
    session.warn(&format!("'{name}' has another number, but"), &outcome.warnings);
    Ok(())
}

pub(crate) fn split(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (name, new_name) = (parsed.operands[0].clone(), parsed.operands[1].clone());
    let devices = parsed.operands[2..].iter().map(|word| device_path(session, word)).collect();
    let dry_run = parsed.has('n');
    let request = PoolSplit { name: name.clone(), new_name: new_name.clone(), devices, dry_run };
    let outcome = session.ask(request).doing(|| format!("cannot split '{}'", tame(&name)))?;
    if dry_run {
        session.line(format!("would create '{new_name}' with the following layout:\n\n\t{new_name}"));
        for device in &outcome.touched {
            session.line(format!("\t  {}", tame(device)));
        }
    }
    session.warn(&format!("'{new_name}' is made, but"), &outcome.warnings);
    if let Some(root) = parsed.value('R').filter(|_| !dry_run) {
        let properties = [("altroot", root), ("cachefile", "none")];
        let request = PoolImport {
            pool: PoolSelector::Name(new_name.clone()),
            search: outcome.touched.iter().map(PathBuf::from).collect(),
            new_name: None,
            force: false,
            destroyed: false,
            no_mount: false,
            properties: properties.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            key: None,
            anchor: None,
            accept_rollback: false,
            accept_lost_anchor: false,
            accept_lost_log: false,
        };
        let imported = session.ask(request).doing(|| format!("cannot import '{}'", tame(&new_name)))?;
        session.warn(&format!("'{new_name}' is imported, but"), &imported.warnings);
    }
    Ok(())
}

/// What status says of a removal, an expansion or a rebalance, line by line.
pub(crate) fn move_lines(moving: &ScanReport) -> Vec<String> {
    let (what, word) = match moving.function.as_str() {
        "remove" => (format!("Evacuation of {}", tame(&moving.what)), "remove"),
        "expand" => ("Expansion".to_owned(), "expand"),
        _ => ("Rebalance".to_owned(), "rebalance"),
    };
    let moved = nice_bytes(moving.resilvered);
    let lost = match (moving.lost, word) {
        (0, _) => String::new(),
        (lost, _) => format!("; {} could not be read and stay where they are", nice_bytes(lost)),
    };
    let took = duration(moving.ended.saturating_sub(moving.started));
    let head = |text: String| format!("{word}: {text}");
    match moving.state.as_str() {
        "finished" => {
            let what = if word == "remove" { format!("Removal of {}", tame(&moving.what)) } else { what };
            vec![head(format!(
                "{what} copied {moved} in {took}, completed on {}",
                date::creation(moving.ended)
            ))]
        }
        "canceled" => {
            let what = if word == "remove" { "Removal".to_owned() } else { what };
            vec![head(format!("{what} canceled on {}{lost}", date::creation(moving.ended)))]
        }
        state => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |after| after.as_secs());
            let rate = moving.scanned / now.saturating_sub(moving.started).max(1);
            let percent = (moving.scanned as f64 * 100.0 / moving.total.max(1) as f64).min(100.0);
            let left = moving.total.saturating_sub(moving.scanned).checked_div(rate);
            let left = left
                .map_or_else(|| "no estimated time".to_owned(), |left| format!("{} to go", duration(left)));
            let since = date::creation(moving.started);
            let (scanned, total) = (nice_bytes(moving.scanned), nice_bytes(moving.total));
            vec![
                head(match state {
                    "paused" => format!("{what} paused, started on {since}"),
                    _ => format!("{what} in progress since {since}"),
                }),
                format!("\t{scanned} of {total} gone through at {}/s, {moved} copied", nice_bytes(rate)),
                format!("\t{percent:.2}% done, {left}{lost}"),
            ]
        }
    }
}
