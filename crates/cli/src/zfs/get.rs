//! `zfs get`.

use super::dataset_properties::{as_json, cell};
use super::select::{Kinds, select};
use super::userspace;
use crate::command::Command;
use crate::options::{EXACT, JSON, JSON_INT, MANY, Parsed, SCRIPTED, Syntax, flag, valued};
use crate::properties::{all_properties, columns_of, get_columns, get_fields, get_row, shown};
use crate::session::{Doing, Failure, Session};
use crate::table::{render, tame};
use steadfast_control::api::{FsInfo, Source, Value};
use steadfast_property::{DATASET, Scope};

pub(super) const COMMAND: Command = Command {
    names: &["get"],
    syntax: Syntax {
        flags: &[
            SCRIPTED,
            EXACT,
            JSON,
            JSON_INT,
            flag('r', "children too"),
            valued('d', "depth", "children down to this depth"),
            valued('o', "field[,field]...", "which of name, property, value, received, source, or all"),
            valued(
                's',
                "source[,source]...",
                "only values from local, default, inherited, temporary, received, none",
            ),
            valued('t', "type[,type]...", "filesystem, volume, snapshot, bookmark or all"),
        ],
        operands: "all|property[,property]... [filesystem|snapshot]...",
        least: 1,
        most: MANY,
    },
    doc: "Prints properties of file systems and snapshots.",
    run: get,
};

fn get(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let fields = get_fields(parsed, true)?;
    let wanted = match parsed.operands[0].as_str() {
        "all" => None,
        list => Some(columns_of(Scope::Dataset, &[list])?),
    };
    let mut sources: Vec<&str> = Vec::new();
    for source in parsed.values('s').flat_map(|list| list.split(',')) {
        if !["local", "default", "inherited", "temporary", "received", "none"].contains(&source) {
            let allowed = "must be local, default, inherited, temporary, received or none";
            return Err(Failure::Usage(format!("invalid source '{source}': {allowed}")));
        }
        sources.push(source);
    }
    let kinds = Kinds::of(parsed, true)?;
    let mut found = select(session, parsed, &parsed.operands[1..], kinds, wanted.as_deref().unwrap_or(&[]))
        .doing(|| "cannot get properties".into())?;
    for fs in found.iter_mut().filter(|fs| !fs.name.contains('#')) {
        let names = wanted.as_deref().unwrap_or_default();
        fs.properties.extend(userspace::values(session, &fs.name, names, parsed.has('p'))?);
    }
    let from = |value: &Value| {
        let word = match &value.source {
            Source::None => "none",
            Source::Default => "default",
            Source::Local => "local",
            Source::Received => "received",
            Source::Temporary => "temporary",
            Source::Inherited(_) => "inherited",
        };
        sources.is_empty() || sources.contains(&word)
    };
    let names_for = |fs: &FsInfo| wanted.clone().unwrap_or_else(|| all_properties(DATASET, &fs.properties));
    let exact = parsed.has('p');
    if parsed.has('j') {
        let text = as_json("zfs get", &found, exact, parsed.has_long("json-int"), |fs| {
            let all = names_for(fs).into_iter().map(|n| {
                let value = cell(fs, &n);
                (n, value)
            });
            all.filter(|(_, value)| from(value)).collect()
        });
        session.line(text);
        return Ok(());
    }
    let mut rows = Vec::new();
    for fs in &found {
        for name in names_for(fs) {
            let value = cell(fs, &name);
            if from(&value) {
                let shown = shown(Scope::Dataset, &name, &value.value, exact);
                let received = fs
                    .received
                    .get(&name)
                    .map(|value| tame(&self::shown(Scope::Dataset, &name, value, exact)));
                rows.push(get_row(&fields, (&fs.name, &name), shown, received, &value.source));
            }
        }
    }
    if !rows.is_empty() {
        session.out.push_str(&render(&get_columns(&fields), &rows, parsed.has('H')));
    }
    Ok(())
}
