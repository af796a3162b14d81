//! `zfs userspace` and `zfs groupspace`, and properties of users and groups for `zfs get`.

use super::select::{is_path, name_of_path};
use crate::command::Command;
use crate::options::{EXACT, Flag, Parsed, SCRIPTED, Syntax, flag, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::{Column, render, tame};
use std::collections::BTreeMap;
use steadfast_control::api::{FsUserspace, OwnerEntry, Source, Value};
use steadfast_control::owners::{Names, by_number, names};
use steadfast_property::{OwnerProperty, nice_bytes, nice_number};

pub(super) const USERSPACE: Command = Command {
    names: &["userspace"],
    syntax: Syntax { flags: FLAGS, operands: "filesystem|snapshot|path", least: 1, most: 1 },
    doc: "Lists the space and the quotas of each user.",
    run: |session: &mut Session<'_, '_>, parsed: &Parsed| {
        owners(session, parsed, Kinds { users: true, groups: false })
    },
};

pub(super) const GROUPSPACE: Command = Command {
    names: &["groupspace"],
    syntax: Syntax { flags: FLAGS, operands: "filesystem|snapshot|path", least: 1, most: 1 },
    doc: "Lists the space and the quotas of each group.",
    run: |session: &mut Session<'_, '_>, parsed: &Parsed| {
        owners(session, parsed, Kinds { users: false, groups: true })
    },
};

const FLAGS: &[Flag] = &[
    SCRIPTED,
    flag('i', "accepted, no effect: there are no Windows SIDs"),
    flag('n', "numeric IDs instead of names"),
    EXACT,
    valued('o', "field[,field]...", "which of type, name, used, quota, objused, objquota"),
    valued('s', "field", "sort by it, ascending"),
    valued('S', "field", "sort by it, descending"),
    valued('t', "type[,type]...", "posixuser, smbuser, posixgroup, smbgroup or all"),
];

/// Columns, in the order of the default.
const FIELDS: [&str; 6] = ["type", "name", "used", "quota", "objused", "objquota"];

/// Kinds of owners to list.
#[derive(Clone, Copy, Default)]
struct Kinds {
    users: bool,
    groups: bool,
}

fn field(name: &str) -> Result<&'static str, Failure> {
    FIELDS.into_iter().find(|known| *known == name).ok_or_else(|| {
        Failure::Usage(format!(
            "invalid field '{name}': must be type, name, used, quota, objused or objquota"
        ))
    })
}

fn kinds(parsed: &Parsed, default: Kinds) -> Result<Kinds, Failure> {
    let mut kinds = if parsed.value('t').is_some() { Kinds::default() } else { default };
    for kind in parsed.values('t').flat_map(|list| list.split(',')) {
        match kind {
            "all" => kinds = Kinds { users: true, groups: true },
            "posixuser" => kinds.users = true,
            "posixgroup" => kinds.groups = true,
            // There are no Windows users.
            "smbuser" | "smbgroup" => {}
            kind => {
                let allowed = "must be posixuser, smbuser, posixgroup, smbgroup or all";
                return Err(Failure::Usage(format!("invalid type '{kind}': {allowed}")));
            }
        }
    }
    Ok(kinds)
}

/// Names of users and of groups.
struct OwnerNames {
    users: Names,
    groups: Names,
}

impl OwnerNames {
    fn read(numeric: bool) -> OwnerNames {
        let read = |group| if numeric { Names::new() } else { names(group) };
        OwnerNames { users: read(false), groups: read(true) }
    }

    fn name(&self, entry: &OwnerEntry) -> String {
        let names = if entry.group { &self.groups } else { &self.users };
        names.get(&entry.id).map_or_else(|| entry.id.to_string(), |name| tame(name))
    }
}

/// A number of bytes or of objects as printed.
fn amount(value: u64, is_quota: bool, of_objects: bool, exact: bool) -> String {
    match (value, is_quota, of_objects, exact) {
        (value, .., true) => value.to_string(),
        (0, true, ..) => "none".to_owned(),
        (value, _, true, _) => nice_number(value),
        (0, ..) => "0B".to_owned(),
        (value, ..) => nice_bytes(value),
    }
}

fn owners(session: &mut Session<'_, '_>, parsed: &Parsed, default: Kinds) -> Result<(), Failure> {
    let mut fields = Vec::new();
    for name in parsed.values('o').flat_map(|list| list.split(',')) {
        fields.push(field(name)?);
    }
    if fields.is_empty() {
        fields = FIELDS.to_vec();
    }
    let mut orders = Vec::new();
    for (letter, name) in parsed.ordered().filter(|(letter, _)| matches!(letter, 's' | 'S')) {
        orders.push((field(name)?, letter == 'S'));
    }
    let kinds = kinds(parsed, default)?;
    let operand = &parsed.operands[0];
    let doing = || format!("cannot list the space of users and groups of '{}'", tame(operand));
    let name = if is_path(operand) { name_of_path(session, operand).doing(doing)? } else { operand.clone() };
    let mut found = session.ask(FsUserspace { name }).doing(doing)?;
    found.retain(|entry| if entry.group { kinds.groups } else { kinds.users });
    let owner_names = OwnerNames::read(parsed.has('n'));
    let numeric = parsed.has('n');
    let compare = |name: &str, a: &OwnerEntry, b: &OwnerEntry| match name {
        "type" => b.group.cmp(&a.group),
        "name" if numeric => a.id.cmp(&b.id),
        "name" => owner_names.name(a).cmp(&owner_names.name(b)),
        "used" => a.used.cmp(&b.used),
        "quota" => a.quota.cmp(&b.quota),
        "objused" => a.objects.cmp(&b.objects),
        _ => a.object_quota.cmp(&b.object_quota),
    };
    found.sort_by(|a, b| {
        let asked = orders.iter().map(|(name, reverse)| {
            let order = compare(name, a, b);
            if *reverse { order.reverse() } else { order }
        });
        asked
            .chain([compare("type", a, b), compare("name", a, b)])
            .fold(std::cmp::Ordering::Equal, |all, one| all.then(one))
    });
    let exact = parsed.has('p');
    let cell = |entry: &OwnerEntry, name: &str| match name {
        "type" => if entry.group { "POSIX Group" } else { "POSIX User" }.to_owned(),
        "name" => owner_names.name(entry),
        "used" => amount(entry.used, false, false, exact),
        "quota" => amount(entry.quota, true, false, exact),
        "objused" => amount(entry.objects, false, true, exact),
        _ => amount(entry.object_quota, true, true, exact),
    };
    let rows: Vec<Vec<String>> =
        found.iter().map(|entry| fields.iter().map(|name| cell(entry, name)).collect()).collect();
    let column =
        |name: &&str| Column { heading: name.to_uppercase(), right: !matches!(*name, "type" | "name") };
    let columns: Vec<Column> = fields.iter().map(column).collect();
    session.out.push_str(&render(&columns, &rows, parsed.has('H')));
    Ok(())
}

/// Values of properties such as `userused@joe` of one file system; empty without such names.
///
/// # Errors
/// The daemon's refusal.
pub(super) fn values(
    session: &mut Session<'_, '_>,
    fs: &str,
    wanted: &[String],
    exact: bool,
) -> Result<BTreeMap<String, Value>, Failure> {
    let mut values = BTreeMap::new();
    let asked: Vec<&String> = wanted.iter().filter(|name| OwnerProperty::split(name).is_some()).collect();
    if asked.is_empty() {
        return Ok(values);
    }
    let found = session
        .ask(FsUserspace { name: fs.to_owned() })
        .doing(|| format!("cannot list the space of users and groups of '{}'", tame(fs)))?;
    for name in asked {
        let property = by_number(name).and_then(|name| OwnerProperty::parse(&name));
        let value = property.map_or_else(
            || Value::measured("-"),
            |OwnerProperty { owner: (group, id), objects, used }| {
                let entry = found.iter().find(|entry| (entry.group, entry.id) == (group, id));
                let number = entry.map_or(0, |entry| match (objects, used) {
                    (false, true) => entry.used,
                    (false, false) => entry.quota,
                    (true, true) => entry.objects,
                    (true, false) => entry.object_quota,
                });
                Value { value: amount(number, !used, objects, exact), source: Source::Local }
            },
        );
        values.insert(name.clone(), value);
    }
    Ok(values)
}
