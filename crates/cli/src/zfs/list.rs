//! `zfs list`.

use super::dataset_properties::{as_json, cell};
use super::select::{Kinds, select};
use crate::command::Command;
use crate::options::{EXACT, JSON, JSON_INT, MANY, Parsed, SCRIPTED, Syntax, flag, valued};
use crate::properties::{column, columns_of, shown};
use crate::session::{Doing, Failure, Session};
use crate::table::{Column, render};
use std::cmp::Ordering;
use steadfast_control::api::FsInfo;
use steadfast_property::Scope;

pub(super) const COMMAND: Command = Command {
    names: &["list"],
    syntax: Syntax {
        flags: &[
            SCRIPTED,
            EXACT,
            JSON,
            JSON_INT,
            flag('r', "children too"),
            valued('d', "depth", "children down to this depth"),
            valued('o', "property[,property]...", "which columns"),
            valued('t', "type[,type]...", "filesystem, volume, snapshot, bookmark or all"),
            valued('s', "property", "sort by it, ascending"),
            valued('S', "property", "sort by it, descending"),
        ],
        operands: "[filesystem|snapshot]...",
        least: 0,
        most: MANY,
    },
    doc: "Lists file systems and snapshots with their sizes and mountpoints.",
    run: list,
};

const LIST_COLUMNS: &str = "name,used,available,referenced,mountpoint";

/// The columns of `-o space`.
const SPACE_COLUMNS: &str =
    "name,available,used,usedbysnapshots,usedbydataset,usedbyrefreservation,usedbychildren";

fn in_full(column: &str) -> String {
    if column == "space" { SPACE_COLUMNS } else { column }.to_owned()
}

fn list(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let given: Vec<&str> = parsed.values('o').collect();
    let given: Vec<String> = given.iter().flat_map(|list| list.split(',')).map(in_full).collect();
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    let names = columns_of(Scope::Dataset, if given.is_empty() { &[LIST_COLUMNS] } else { &given })?;
    let mut orders = Vec::new();
    for (letter, name) in parsed.ordered().filter(|(letter, _)| matches!(letter, 's' | 'S')) {
        let name = columns_of(Scope::Dataset, &[name])?.remove(0);
        orders.push((name, letter == 'S'));
    }
    let kinds = Kinds::of(parsed, false)?;
    let mut wanted: Vec<String> = names.clone();
    wanted.extend(orders.iter().map(|(name, _)| name.clone()));
    let mut found =
        select(session, parsed, &parsed.operands, kinds, &wanted).doing(|| "cannot list datasets".into())?;
    if parsed.value('d') == Some("0") {
        // Snapshots and bookmarks lie one below their dataset, unless they are named themselves.
        found.retain(|fs| !fs.name.contains(['@', '#']) || parsed.operands.contains(&fs.name));
    }
    sort(&mut found, &orders);
    let exact = parsed.has('p');
    if parsed.has('j') {
        let text = as_json("zfs list", &found, exact, parsed.has_long("json-int"), |fs| {
            names.iter().filter(|n| *n != "name").map(|n| (n.clone(), cell(fs, n))).collect()
        });
        session.line(text);
        return Ok(());
    }
    if found.is_empty() {
        if !parsed.has('H') && !session.has_failed() {
            session.line("no datasets available");
        }
        return Ok(());
    }
    let columns: Vec<Column> = names.iter().map(|name| column(Scope::Dataset, name)).collect();
    let row = |fs: &FsInfo| {
        let cells = names.iter().map(|name| shown(Scope::Dataset, name, &cell(fs, name).value, exact));
        cells.collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    session.out.push_str(&render(&columns, &rows, parsed.has('H')));
    Ok(())
}

/// Sort key: file systems by name, each followed by its snapshots from old to new, then by its
/// children.
fn in_order(fs: &FsInfo) -> (Vec<&str>, bool, u64, &str) {
    let (filesystem, snapshot) = fs.name.split_once('@').unwrap_or((&fs.name, ""));
    let age = if snapshot.is_empty() { 0 } else { fs.createtxg };
    (filesystem.split('/').collect(), !snapshot.is_empty(), age, snapshot)
}

/// Sorts by the first order, ties by the next, at last by name. A missing value comes last.
fn sort(found: &mut [FsInfo], orders: &[(String, bool)]) {
    let compare = |a: &FsInfo, b: &FsInfo| {
        for (name, reverse) in orders {
            let (a, b) = (cell(a, name).value, cell(b, name).value);
            let order = match (a == "-", b == "-") {
                (false, false) => match (a.parse::<f64>(), b.parse::<f64>()) {
                    (Ok(a), Ok(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
                    _ => a.cmp(&b),
                },
                (a_missing, b_missing) => {
                    let order = a_missing.cmp(&b_missing);
                    if *reverse { order.reverse() } else { order }
                }
            };
            let order = if *reverse { order.reverse() } else { order };
            if order != Ordering::Equal {
                return order;
            }
        }
        in_order(a).cmp(&in_order(b))
    };
    found.sort_by(compare);
}
