//! `zpool list`.

use super::operands;
use super::pool_properties::{as_json, cell};
use super::status_json::{CLASSES, vdev_head};
use super::vdev_tree::{BY_GUID, FULL_PATHS, LINKS, label, with_members};
use crate::command::Command;
use crate::json::{self, KEY_GUID};
use crate::options::{EXACT, JSON, JSON_INT, MANY, Parsed, SCRIPTED, Syntax, flag, valued};
use crate::properties::{column, columns_of, shown};
use crate::repeat::{Plan, TIME};
use crate::session::{Doing, Failure, Session};
use crate::table::{Column, render, tame};
use serde_json::{Map, Value as Json};
use steadfast_control::api::{PoolInfo, PoolList, PoolReport, PoolStatus, Value, VdevClass, VdevReport};
use steadfast_property::Scope;

pub(super) const COMMAND: Command = Command {
    names: &["list"],
    syntax: Syntax {
        flags: &[
            BY_GUID,
            SCRIPTED,
            JSON,
            JSON_INT,
            KEY_GUID,
            LINKS,
            EXACT,
            FULL_PATHS,
            flag('v', "devices too"),
            valued('o', "property[,property]...", "which columns"),
            TIME,
        ],
        operands: "[pool]... [interval [count]]",
        least: 0,
        most: MANY,
    },
    doc: "Lists pools with their size and health.",
    run: list,
};

const LIST_COLUMNS: &str =
    "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot";

fn list(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let plan = Plan::read(parsed)?;
    plan.run(session, |session| list_once(session, parsed, &plan.names).map(|()| true))
}

fn list_once(session: &mut Session<'_, '_>, parsed: &Parsed, wanted: &[String]) -> Result<(), Failure> {
    let given: Vec<&str> = parsed.values('o').collect();
    let names = columns_of(Scope::Pool, if given.is_empty() { &[LIST_COLUMNS] } else { &given })?;
    let pools = operands::reports(session, wanted, |names| PoolList { names }, "cannot list pools")?;
    let exact = parsed.has('p');
    let mut reports: Vec<PoolReport> = Vec::new();
    if parsed.has('v') && !pools.is_empty() {
        let names = pools.iter().map(|pool| pool.name.clone()).collect();
        reports = session.ask(PoolStatus { names }).doing(|| "cannot list the devices".to_owned())?;
    }
    let devices_of = |pool: &PoolInfo| {
        let report = reports.iter().find(|report| report.name == pool.name);
        report.map_or(&[][..], |report| &report.vdevs[..])
    };
    if parsed.has('j') {
        let own = names.iter().filter(|name| *name != "name");
        let properties = |pool: &PoolInfo| own.clone().map(|name| (name.clone(), cell(pool, name))).collect();
        let with_devices = |pool: &PoolInfo, entry: &mut Json| {
            if parsed.has('v') {
                entry["vdevs"] = devices_json(devices_of(pool), parsed);
            }
        };
        session.line(as_json("zpool list", &pools, parsed, properties, with_devices));
        return Ok(());
    }
    if pools.is_empty() {
        if !parsed.has('H') && wanted.is_empty() {
            session.line("no pools available");
        }
        return Ok(());
    }
    let columns: Vec<Column> = names.iter().map(|name| column(Scope::Pool, name)).collect();
    let mut rows = Vec::new();
    for pool in &pools {
        let row = names.iter().map(|name| match name.as_str() {
            "name" => tame(&pool.name),
            name => shown(Scope::Pool, name, &cell(pool, name).value, exact),
        });
        rows.push(row.collect());
        let mut section = None;
        for vdev in devices_of(pool) {
            let heading = match vdev.class {
                VdevClass::Special => Some("special"),
                VdevClass::Log => Some("logs"),
                VdevClass::Cache => Some("cache"),
                VdevClass::Spare => Some("spare"),
                VdevClass::Anchor => Some("anchor"),
                _ => None,
            };
            if let Some(heading) = heading.filter(|_| heading != section) {
                let cell = |name: &String| if name == "name" { heading } else { "-" };
                rows.push(names.iter().map(|name| cell(name).to_owned()).collect());
            }
            section = heading;
            for (depth, vdev) in with_members(vdev, 1) {
                let label = tame(&label(vdev, parsed));
                let cell = |name: &String| match name.as_str() {
                    // As in ZFS: for scripts a tab instead of the indent.
                    "name" if parsed.has('H') => format!("\t{label}"),
                    "name" => format!("{}{label}", "  ".repeat(depth)),
                    name => vdev_cell(vdev, depth, name, exact),
                };
                rows.push(names.iter().map(cell).collect());
            }
        }
    }
    session.out.push_str(&render(&columns, &rows, parsed.has('H')));
    Ok(())
}

/// Properties of a group or device in `zpool list -v -j`.
const DEVICE_COLUMNS: [&str; 9] = [
    "size",
    "allocated",
    "free",
    "checkpoint",
    "expandsize",
    "fragmentation",
    "capacity",
    "dedupratio",
    "health",
];

/// Groups and devices by name: normal ones first, then classes by their names.
fn devices_json(vdevs: &[VdevReport], parsed: &Parsed) -> Json {
    let of_class = |class| vdevs.iter().filter(move |vdev| vdev.class == class);
    let mut map = by_name(of_class(VdevClass::Main), 1, parsed);
    for (class, name) in CLASSES {
        if of_class(class).next().is_some() {
            map.insert(name.to_owned(), by_name(of_class(class), 1, parsed).into());
        }
    }
    map.into()
}

fn by_name<'a>(
    vdevs: impl Iterator<Item = &'a VdevReport>,
    depth: usize,
    parsed: &Parsed,
) -> Map<String, Json> {
    let entry = |vdev: &VdevReport| {
        let mut entry = vdev_head(vdev, parsed);
        let property = |name: &str| {
            let value = vdev_cell(vdev, depth, name, parsed.has('p'));
            let told = json::property(&value, &Value::measured(&value), parsed.has_long("json-int"));
            (name.to_owned(), told)
        };
        entry["properties"] = DEVICE_COLUMNS.into_iter().map(property).collect::<Map<_, _>>().into();
        if !vdev.children.is_empty() {
            entry["vdevs"] = by_name(vdev.children.iter(), depth + 1, parsed).into();
        }
        (label(vdev, parsed), entry)
    };
    vdevs.map(entry).collect()
}

/// A share as `zpool list -v` writes it: with at least three digits.
fn percent(part: u64, whole: u64) -> String {
    let percent = part as f64 * 100.0 / whole.max(1) as f64;
    match percent {
        0.0..10.0 => format!("{percent:.2}%"),
        10.0..100.0 => format!("{percent:.1}%"),
        _ => format!("{percent:.0}%"),
    }
}

/// A cell of `zpool list -v`. As in ZFS, space is counted by group; a member has only size,
/// expandsize and state.
fn vdev_cell(vdev: &VdevReport, depth: usize, name: &str, exact: bool) -> String {
    let counted = depth == 1 && !matches!(vdev.class, VdevClass::Anchor | VdevClass::Spare);
    if name == "capacity" && counted && !exact {
        return percent(vdev.allocated, vdev.size);
    }
    let value = match name {
        "health" => vdev.state.as_str().to_owned(),
        "size" if vdev.class != VdevClass::Anchor => vdev.size.to_string(),
        "allocated" if counted => vdev.allocated.to_string(),
        "free" if counted => vdev.size.saturating_sub(vdev.allocated).to_string(),
        "expandsize" if vdev.expandsize > 0 => vdev.expandsize.to_string(),
        "capacity" if counted => (vdev.allocated * 100).checked_div(vdev.size).unwrap_or(0).to_string(),
        _ => "-".to_owned(),
    };
    shown(Scope::Pool, name, &value, exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_control::api::Health;

    #[test]
    fn expandsize_is_listed_for_devices_and_groups() {
        let device = |expandsize| {
            let vdev = VdevReport::new("/d".into(), 7, VdevClass::Main, Health::Online);
            VdevReport { size: 64 << 20, allocated: 1 << 20, expandsize, ..vdev }
        };
        let cells = |vdev: &VdevReport, depth| {
            ["size", "allocated", "free", "expandsize", "capacity"]
                .map(|name| vdev_cell(vdev, depth, name, true))
        };
        assert_eq!(cells(&device(5), 1), ["67108864", "1048576", "66060288", "5", "1"]);
        assert_eq!(cells(&device(5), 2), ["67108864", "-", "-", "5", "-"], "a member of a group");
        assert_eq!(cells(&device(0), 1)[3], "-");
        assert_eq!(vdev_cell(&device(0), 1, "capacity", false), "1.56%");
        assert_eq!([percent(1, 4), percent(7, 7), percent(0, 0)], ["25.0%", "100%", "0.00%"]);
    }
}
