//! `zpool get` and `zpool set` of groups and devices: properties as in vdevprops(7). Only `comment`
//! and user properties can be set.

use super::status_json::vdev_head;
use super::vdev_tree::{Vdev, is_called, label, short, vdevs};
use crate::json;
use crate::options::Parsed;
use crate::properties::{get_columns, get_fields, get_row};
use crate::session::{Doing, Failure, Session};
use crate::table::{render, tame};
use serde_json::{Map, json};
use steadfast_control::Refusal;
use steadfast_control::api::{
    Health, PoolList, PoolSet, Properties, Source, TrimState, Value, VdevClass, VdevKind, VdevReport,
};
use steadfast_property::{VDEV_PREFIX, is_user_property, nice_bytes, vdev_property};

/// The properties, in the order of ZFS. Those that are not measured here are `-`.
const PROPERTIES: [&str; 51] = [
    "name",
    "capacity",
    "state",
    "guid",
    "asize",
    "psize",
    "ashift",
    "size",
    "free",
    "allocated",
    "comment",
    "expandsize",
    "fragmentation",
    "bootsize",
    "parity",
    "path",
    "devid",
    "physpath",
    "encpath",
    "fru",
    "parent",
    "children",
    "numchildren",
    "read_errors",
    "write_errors",
    "checksum_errors",
    "initialize_errors",
    "trim_errors",
    "slow_ios",
    "null_ops",
    "read_ops",
    "write_ops",
    "free_ops",
    "claim_ops",
    "trim_ops",
    "null_bytes",
    "read_bytes",
    "write_bytes",
    "free_bytes",
    "claim_bytes",
    "trim_bytes",
    "removing",
    "allocating",
    "failfast",
    "checksum_n",
    "checksum_t",
    "io_n",
    "io_t",
    "slow_io_n",
    "slow_io_t",
    "trim_support",
];

/// Selects all groups and devices.
const ALL: &str = "all-vdevs";

/// Names of the vdev above all others.
const ROOT: [&str; 2] = ["root", "root-0"];

/// True of the name of a pool's property that is one of a vdev's.
pub(super) fn is_of_vdev(name: &str) -> bool {
    name.starts_with(VDEV_PREFIX)
}

/// The number of a vdev, or the name of the one above all others.
fn number(vdev: &VdevReport) -> String {
    if vdev.guid == 0 { vdev.name.clone() } else { vdev.guid.to_string() }
}

/// The name by which a pool has a property of a vdev.
fn stored(vdev: &VdevReport, property: &str) -> String {
    vdev_property(&number(vdev), property)
}

/// All vdevs of a pool, the one above all others first.
fn with_root(session: &mut Session<'_, '_>, pool: &str) -> Result<Vec<Vdev>, Failure> {
    let mut all = vdevs(session, pool)?;
    let tops = all.iter().filter(|(_, parent)| parent == pool).map(|(vdev, _)| vdev.clone());
    let tops: Vec<VdevReport> = tops.filter(|vdev| vdev.class != VdevClass::Anchor).collect();
    let state =
        tops.iter().map(|vdev| vdev.state).find(|state| !matches!(state, Health::Online | Health::Avail));
    let sum = |part: fn(&VdevReport) -> u64| tops.iter().map(part).sum();
    let root = VdevReport {
        size: sum(|vdev| vdev.size),
        allocated: sum(|vdev| vdev.allocated),
        expandsize: sum(|vdev| vdev.expandsize),
        children: tops.clone(),
        ..VdevReport::new(ROOT[1].to_owned(), 0, VdevClass::Main, state.unwrap_or(Health::Online))
    };
    all.insert(0, (root, "-".to_owned()));
    Ok(all)
}

/// True if the word names this vdev.
fn is_meant(session: &Session<'_, '_>, vdev: &VdevReport, word: &str) -> bool {
    match vdev.name == ROOT[1] {
        true => ROOT.contains(&word),
        false => is_called(session, vdev, word),
    }
}

/// Sets a property of a group or device.
///
/// # Errors
/// The property cannot be set, or there is no such pool or device.
pub(super) fn set(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let [assignment, pool, word] = &parsed.operands[..] else { unreachable!("three words") };
    let Some((name, value)) = assignment.split_once('=') else {
        return Err(Failure::Usage(format!(
            "missing '=' for property=value argument: '{}'",
            tame(assignment)
        )));
    };
    if name != COMMENT && !is_user_property(name) {
        let sentence = format!("'{}' cannot be set on a device; comment and user properties can", tame(name));
        return Err(Failure::Usage(sentence));
    }
    let doing = || format!("cannot set property for '{}'", tame(word));
    let all = with_root(session, pool)?;
    let Some((vdev, _)) = all.iter().find(|(vdev, _)| is_meant(session, vdev, word)) else {
        return Err(Refusal::no_device(pool, word)).doing(doing);
    };
    let properties = Properties::from([(name.to_owned(), value.to_owned())]);
    let request = PoolSet { name: pool.clone(), properties, vdev: Some(number(vdev)) };
    let outcome = session.ask(request).doing(doing)?;
    session.warn(&format!("the property of '{}' is set, but", tame(word)), &outcome.warnings);
    Ok(())
}

/// The one property of vdevs with a name of ZFS that can be set.
const COMMENT: &str = "comment";

/// True if the second word names a group or device of the pool in the first word. Else all words
/// are pools.
///
/// # Errors
/// There is no such pool.
pub(super) fn are_named(session: &mut Session<'_, '_>, words: &[String]) -> Result<bool, Failure> {
    let [pool, second, ..] = words else { return Ok(false) };
    if second == ALL || ROOT.contains(&second.as_str()) || second.contains('/') {
        return Ok(true);
    }
    let all = vdevs(session, pool)?;
    Ok(all.iter().any(|(vdev, _)| is_called(session, vdev, second)))
}

/// Prints properties of groups and devices of one pool.
///
/// # Errors
/// The property, the device or the pool is unknown.
pub(super) fn get(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let fields = get_fields(parsed, false)?;
    let listed = wanted(&parsed.operands[0])?;
    let (pool, words) = (parsed.operands[1].as_str(), &parsed.operands[2..]);
    let all = with_root(session, pool)?;
    let info = session.ask(PoolList { names: vec![pool.to_owned()] }).doing(|| doing(pool))?;
    let own = |vdev: &VdevReport, name: &str| -> Option<&Value> {
        info.first()?.properties.get(&stored(vdev, name))
    };
    // With `all` a vdev's own properties stand behind the others.
    let names_of = |vdev: &VdevReport| -> Vec<String> {
        let more = info.iter().flat_map(|info| info.properties.keys());
        let prefix = stored(vdev, "");
        let more = more.filter_map(|name| name.strip_prefix(&prefix)).filter(|name| is_user_property(name));
        let more = more.filter(|_| parsed.operands[0] == "all");
        listed.iter().copied().chain(more).map(str::to_owned).collect()
    };
    let value_of = |vdev: &Vdev, name: &str, exact: bool| match own(&vdev.0, name) {
        Some(own) => own.clone(),
        None if is_user_property(name) => Value { value: "-".to_owned(), source: Source::Default },
        None => Value::measured(value(vdev, name, exact)),
    };
    let mut found: Vec<&Vdev> = Vec::new();
    for word in words {
        let named = |(vdev, _): &&Vdev| match word == ALL {
            true => vdev.name != ROOT[1],
            false => is_meant(session, vdev, word),
        };
        let named: Vec<&Vdev> = all.iter().filter(named).collect();
        if named.is_empty() && word != ALL {
            return Err(Refusal::no_device(pool, word)).doing(|| doing(pool));
        }
        found.extend(named);
    }
    let exact = parsed.has('p');
    if parsed.has('j') {
        let as_number = parsed.has_long("json-int");
        let mut by_name = Map::new();
        for vdev in found {
            let property = |name: String| {
                let value = value_of(vdev, &name, exact);
                (name, json::property(&value.value, &value, as_number))
            };
            let properties: Map<_, _> = names_of(&vdev.0).into_iter().map(property).collect();
            let mut entry = vdev_head(&vdev.0, parsed);
            entry["type"] = json!("VDEV");
            entry["properties"] = properties.into();
            by_name.insert(label(&vdev.0, parsed), entry);
        }
        let mut document = json::document("zpool get");
        for info in &info {
            let numbers = (info.guid, info.txg);
            let head = json::pool(&info.name, info.state.as_str(), numbers, json::Numbers::of(parsed));
            document.insert("pool".into(), head);
        }
        document.insert("vdevs".into(), by_name.into());
        session.line(json::text(document));
        return Ok(());
    }
    let mut rows = Vec::new();
    for vdev in found {
        for name in names_of(&vdev.0) {
            let value = value_of(vdev, &name, exact);
            let shown = tame(&value.value);
            rows.push(get_row(&fields, (&label(&vdev.0, parsed), &name), shown, None, &value.source));
        }
    }
    session.out.push_str(&render(&get_columns(&fields), &rows, parsed.has('H')));
    Ok(())
}

fn doing(pool: &str) -> String {
    format!("cannot get device properties of '{}'", tame(pool))
}

/// The properties of a comma-separated list; `all` means all.
fn wanted(list: &str) -> Result<Vec<&str>, Failure> {
    if list == "all" {
        return Ok(PROPERTIES.into_iter().filter(|name| *name != "name").collect());
    }
    let names: Vec<&str> = list.split(',').collect();
    match names.iter().find(|name| !PROPERTIES.contains(*name) && !is_user_property(name)) {
        None => Ok(names),
        Some(name) => Err(Failure::Usage(format!(
            "invalid property '{}': must be one of {}",
            tame(name),
            PROPERTIES.join(", ")
        ))),
    }
}

/// A value as printed; `-` if the vdev has none.
fn value((vdev, parent): &Vdev, name: &str, exact: bool) -> String {
    let bytes = |bytes: u64| if exact { bytes.to_string() } else { nice_bytes(bytes) };
    let is_leaf = vdev.children.is_empty();
    match name {
        "name" => short(&vdev.name).to_owned(),
        "capacity" => {
            let percent = vdev.allocated.saturating_mul(100).checked_div(vdev.size).unwrap_or(0);
            if exact { percent.to_string() } else { format!("{percent}%") }
        }
        "state" => vdev.state.as_str().to_owned(),
        "guid" if vdev.guid != 0 => vdev.guid.to_string(),
        "size" => bytes(vdev.size),
        "free" => bytes(vdev.size.saturating_sub(vdev.allocated)),
        "allocated" => bytes(vdev.allocated),
        "expandsize" if vdev.expandsize > 0 => bytes(vdev.expandsize),
        "path" if is_leaf => vdev.name.clone(),
        "parent" => parent.clone(),
        "children" if !is_leaf => {
            vdev.children.iter().map(|child| short(&child.name)).collect::<Vec<_>>().join(",")
        }
        "numchildren" => vdev.children.len().to_string(),
        "read_errors" => vdev.read_errors.to_string(),
        "write_errors" => vdev.write_errors.to_string(),
        "checksum_errors" => vdev.checksum_errors.to_string(),
        "initialize_errors" | "trim_errors" if is_leaf => "0".to_owned(),
        "slow_ios" if is_leaf => vdev.kinds.slow.to_string(),
        "asize" | "psize" => bytes(vdev.size),
        "parity" => match vdev.kind {
            VdevKind::Plain | VdevKind::Mirror => "0",
            VdevKind::Raidz1 => "1",
            VdevKind::Raidz2 => "2",
            VdevKind::Raidz3 => "3",
        }
        .to_owned(),
        "trim_support" if is_leaf => {
            let is_supported = vdev.trim.is_some_and(|trim| trim.state != TrimState::Unsupported);
            if is_supported { "on" } else { "off" }.to_owned()
        }
        "failfast" => "off".to_owned(),
        _ => "-".to_owned(),
    }
}
