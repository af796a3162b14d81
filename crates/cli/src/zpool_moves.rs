//! `zpool attach`, `detach`, `remove`, `rebalance`, `resilver`: devices come and go, and what lies on them moves.

use crate::date;
use crate::family::{Doing, Failure, Session};
use crate::options::Parsed;
use crate::table::tame;
use crate::zpool::{assignments, device_path};
use crate::zpool_growth::check_new;
use crate::zpool_trim::{duration, wait_for};
use crate::{zpool_import, zpool_vdevs};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use steadfast_control::api::{
    PoolAttach, PoolDetach, PoolRebalance, PoolReguid, PoolRemove, PoolResilver, PoolSelector, PoolSplit,
    Properties, ScanReport, ScrubCommand,
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

/// Properties that say how a pool is imported, and are not stored in it.
const OF_IMPORT: [&str; 3] = ["altroot", "cachefile", "readonly"];

pub(crate) fn split(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (name, new_name) = (parsed.operands[0].clone(), parsed.operands[1].clone());
    let devices = parsed.operands[2..].iter().map(|word| device_path(session, word)).collect();
    let dry_run = parsed.has('n');
    let (of_import, properties): (Properties, Properties) = assignments(parsed.values('o'))?
        .into_iter()
        .partition(|(name, _)| OF_IMPORT.contains(&name.as_str()));
    if parsed.value('R').is_none() {
        if parsed.has('l') {
            return Err(Failure::Usage(
                "-l: keys are loaded only if the new pool is imported, for which there is -R".into(),
            ));
        }
        if let Some(property) = of_import.keys().next() {
            return Err(Failure::Usage(format!(
                "-o {property}: it says how the new pool is imported, for which there is -R"
            )));
        }
    }
    let request = PoolSplit { name: name.clone(), new_name: new_name.clone(), devices, dry_run, properties };
    let outcome = session.ask(request).doing(|| format!("cannot split '{}'", tame(&name)))?;
    if dry_run {
        let known = if parsed.has('g') { zpool_vdevs::vdevs(session, &name)? } else { Vec::new() };
        session.line(format!("would create '{new_name}' with the following layout:\n\n\t{new_name}"));
        for device in &outcome.touched {
            let known = known.iter().find(|(vdev, _)| vdev.name == *device);
            let label = known.map_or(device.clone(), |(vdev, _)| zpool_vdevs::label(vdev, parsed));
            session.line(format!("\t  {}", tame(&label)));
        }
    }
    session.warn(&format!("'{new_name}' is made, but"), &outcome.warnings);
    if let Some(root) = parsed.value('R').filter(|_| !dry_run) {
        let mut properties = of_import;
        properties.insert("altroot".into(), root.to_owned());
        properties.entry("cachefile".into()).or_insert_with(|| "none".into());
        let search: Vec<PathBuf> = outcome.touched.iter().map(PathBuf::from).collect();
        let selector = PoolSelector::Name(new_name.clone());
        zpool_import::one(session, parsed, &new_name, selector, None, &search, &properties)?;
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
