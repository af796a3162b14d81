//! `zpool add`, `online`, `offline`, `clear`, `labelclear`, `upgrade`: what a pool is made of and what it may use.

use crate::family::{Doing, Failure, Session};
use crate::options::{Flag, Parsed, valued};
use crate::table::{Column, render, tame};
use crate::zpool::{assignments, device_path, vdevs, with_members};
use steadfast_control::api::{
    LabelClear, PoolAdd, PoolClear, PoolInfo, PoolList, PoolOffline, PoolOnline, PoolStatus, PoolUpgrade,
    VdevClass, VdevKind, VdevReport, VdevSpec,
};
use steadfast_control::check::{property_refusal, vdev_word};
use steadfast_control::{Code, Refusal};
use steadfast_format::Feature;
use steadfast_property::{Scope, parse_assignment};

/// What may be said of new devices.
pub(crate) const ASHIFT: Flag = valued('o', "property=value", "ashift=, which is the pool's own or 0");

/// Looks at what is said of new devices: all of a pool have the allocation unit that it was created with.
///
/// # Errors
/// Another property, or another unit.
pub(crate) fn check_new(
    session: &mut Session<'_, '_>,
    parsed: &Parsed,
    pool: &str,
    doing: impl Fn() -> String,
) -> Result<(), Failure> {
    for (name, value) in assignments(parsed.values('o'))? {
        let text = format!("{name}={value}");
        let (name, value) = parse_assignment(Scope::Pool, &text).map_err(property_refusal).doing(&doing)?;
        if name != "ashift" {
            return Err(Failure::Usage(format!(
                "of new devices ashift= can be said, and not '{}'",
                tame(&name)
            )));
        }
        let found = session.ask(PoolList { names: vec![pool.to_owned()] }).doing(&doing)?;
        let own =
            found.first().and_then(|pool| pool.properties.get(&name)).map_or("", |own| own.value.as_str());
        if value != "0" && value != own {
            let what = format!("the pool was created with ashift={own}, which holds for all its devices");
            let refusal = Refusal::new(Code::PropCreation, what).with("property", "ashift");
            return Err(refusal).doing(&doing);
        }
    }
    Ok(())
}

/// New devices as they were typed, below the words that say what they are, each with how deep it is.
pub(crate) fn layout(vdevs: &[VdevSpec]) -> Vec<(usize, String)> {
    let (mut lines, mut section) = (Vec::new(), VdevClass::Main);
    for vdev in vdevs {
        let mut depth = 1;
        let class = vdev_word(vdev.class, VdevKind::Plain);
        if vdev.class != VdevClass::Main && vdev.class != section {
            lines.push((0, class.to_owned()));
        }
        section = vdev.class;
        if vdev.kind != VdevKind::Plain {
            lines.push((depth, vdev_word(VdevClass::Main, vdev.kind).to_owned()));
            depth += 1;
        }
        lines.extend(vdev.devices.iter().map(|device| (depth, tame(&device.display().to_string()))));
    }
    lines
}

pub(crate) fn add(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let doing = || format!("cannot add to '{}'", tame(&name));
    check_new(session, parsed, &name, doing)?;
    let vdevs = vdevs(session, &parsed.operands[1..]).doing(doing)?;
    let layout = layout(&vdevs);
    let dry_run = parsed.has('n');
    let before: Vec<VdevReport> = if dry_run {
        let request = PoolStatus { names: vec![name.clone()] };
        session.ask(request).doing(doing)?.into_iter().flat_map(|pool| pool.vdevs).collect()
    } else {
        Vec::new()
    };
    let request = PoolAdd { name: name.clone(), vdevs, force: parsed.has('f'), dry_run };
    let outcome = session.ask(request).doing(doing)?;
    if dry_run {
        session.line(format!("would update '{name}' to the following configuration:\n\n\t{name}"));
        let before = before.iter().flat_map(|vdev| with_members(vdev, 1));
        let before = before.map(|(depth, vdev)| (depth, tame(&vdev.name)));
        for (depth, name) in before.chain(layout) {
            session.line(format!("\t{}{name}", "  ".repeat(depth)));
        }
    }
    session.warn(&format!("'{name}' is larger, but"), &outcome.warnings);
    Ok(())
}

pub(crate) fn online(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let devices = parsed.operands[1..].iter().map(|word| device_path(session, word)).collect();
    let request = PoolOnline { name: name.clone(), devices, expand: parsed.has('e') };
    let outcome = session.ask(request).doing(|| format!("cannot bring online in '{}'", tame(&name)))?;
    session.warn(&format!("devices of '{name}' are online, but"), &outcome.warnings);
    Ok(())
}

pub(crate) fn offline(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let devices = parsed.operands[1..].iter().map(|word| device_path(session, word)).collect();
    let (as_failed, until_import) = (parsed.has('f'), parsed.has('t'));
    let request = PoolOffline { name: name.clone(), devices, as_failed, until_import };
    session.ask(request).doing(|| format!("cannot take offline in '{}'", tame(&name)))?;
    Ok(())
}

pub(crate) fn clear(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let devices = parsed.operands[1..].iter().map(|word| device_path(session, word)).collect();
    let request = PoolClear { name: name.clone(), devices };
    let outcome = session.ask(request).doing(|| format!("cannot clear errors for '{}'", tame(&name)))?;
    session.warn(&format!("errors of '{name}' are cleared, but"), &outcome.warnings);
    Ok(())
}

pub(crate) fn labelclear(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let device = device_path(session, &parsed.operands[0]);
    let doing = || format!("cannot clear the label of {}", tame(&parsed.operands[0]));
    session.ask(LabelClear { device, force: parsed.has('f') }).doing(doing)?;
    Ok(())
}

/// Features that a pool could be given, by its properties.
fn missing(pool: &PoolInfo) -> Vec<&'static str> {
    let names = Feature::KNOWN.iter().map(|(name, ..)| *name);
    let names = names.filter(|name| !Feature::STRUCTURAL.contains(name));
    let is_off = |name: &&str| {
        pool.properties.get(&format!("feature@{name}")).is_some_and(|property| property.value == "disabled")
    };
    names.filter(is_off).collect()
}

pub(crate) fn upgrade(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let doing = || "cannot upgrade".to_owned();
    if parsed.has('v') {
        session.line("This version knows the following features of pools.\n");
        let columns = ["FEATURE", "NEEDED TO", "DESCRIPTION"]
            .map(|heading| Column { heading: heading.to_owned(), right: false });
        let row = |(name, need, doc): &(&str, steadfast_format::feature::Need, &str)| {
            let need = match need {
                steadfast_format::feature::Need::Read => "read",
                steadfast_format::feature::Need::Write => "write",
                steadfast_format::feature::Need::Safe => "-",
            };
            vec![(*name).to_owned(), need.to_owned(), (*doc).to_owned()]
        };
        let rows: Vec<Vec<String>> = Feature::KNOWN.iter().map(row).collect();
        session.out.push_str(&render(&columns, &rows, false));
        return Ok(());
    }
    match (parsed.has('a'), &parsed.operands[..]) {
        (true, [_, ..]) => Err(Failure::Usage("too many arguments: -a means all pools".into())),
        (false, []) => {
            let pools = session.ask(PoolList::default()).doing(doing)?;
            let rows: Vec<Vec<String>> = pools
                .iter()
                .flat_map(|pool| {
                    missing(pool).into_iter().map(|name| vec![tame(&pool.name), name.to_owned()])
                })
                .collect();
            if rows.is_empty() {
                session.line("All imported pools use all features of this version.");
            } else {
                session.line("These pools do not use these features; `zpool upgrade POOL` lets them.\n");
                let columns = ["POOL", "FEATURE"].map(|h| Column { heading: h.to_owned(), right: false });
                session.out.push_str(&render(&columns, &rows, false));
            }
            Ok(())
        }
        (_, names) => {
            let enabled = session.ask(PoolUpgrade { names: names.to_vec() }).doing(doing)?.touched;
            if enabled.is_empty() {
                session.line("All features of this version are enabled already.");
            }
            for line in enabled {
                if let Some((pool, feature)) = line.split_once(' ') {
                    session.line(format!("{}: enabled {}", tame(pool), tame(feature)));
                }
            }
            Ok(())
        }
    }
}
