//! `zpool get`.

use super::pool_properties::{as_json, cell};
use super::vdev_properties;
use crate::command::Command;
use crate::json::KEY_GUID;
use crate::options::{EXACT, JSON, JSON_INT, MANY, Parsed, SCRIPTED, Syntax, valued};
use crate::properties::{all_properties, columns_of, get_columns, get_fields, get_row, shown};
use crate::session::{Doing, Failure, Session};
use crate::table::render;
use steadfast_control::api::{PoolInfo, PoolList, Value};
use steadfast_property::{POOL, Scope};

pub(super) const COMMAND: Command = Command {
    names: &["get"],
    syntax: Syntax {
        flags: &[
            SCRIPTED,
            JSON,
            JSON_INT,
            KEY_GUID,
            EXACT,
            valued('o', "field[,field]...", "which of name, property, value, source"),
        ],
        operands: "all|property[,property]... [pool]...|[pool all-vdevs|device...]",
        least: 1,
        most: MANY,
    },
    doc: "Prints properties of pools, or of groups and devices of one pool.",
    run: get,
};

fn get(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    if vdev_properties::are_named(session, &parsed.operands[1..])? {
        return vdev_properties::get(session, parsed);
    }
    let fields = get_fields(parsed, false)?;
    let wanted = match parsed.operands[0].as_str() {
        "all" => None,
        list => Some(columns_of(Scope::Pool, &[list])?),
    };
    let request = PoolList { names: parsed.operands[1..].to_vec() };
    let pools = session.ask(request).doing(|| "cannot get properties".into())?;
    let exact = parsed.has('p');
    let names_for = |pool: &PoolInfo| {
        wanted.clone().unwrap_or_else(|| {
            let all = all_properties(POOL, &pool.properties);
            all.into_iter().filter(|name| !vdev_properties::is_of_vdev(name)).collect()
        })
    };
    let value_of = |pool: &PoolInfo, name: &str| match name {
        "name" => Value::measured(&pool.name),
        name => cell(pool, name),
    };
    if parsed.has('j') {
        let properties = |pool: &PoolInfo| {
            names_for(pool)
                .into_iter()
                .map(|n| {
                    let value = value_of(pool, &n);
                    (n, value)
                })
                .collect()
        };
        let text = as_json("zpool get", &pools, parsed, properties, |_, _| ());
        session.line(text);
        return Ok(());
    }
    let mut rows = Vec::new();
    for pool in &pools {
        for name in names_for(pool) {
            let value = value_of(pool, &name);
            let shown = shown(Scope::Pool, &name, &value.value, exact);
            rows.push(get_row(&fields, (&pool.name, &name), shown, None, &value.source));
        }
    }
    if !rows.is_empty() {
        session.out.push_str(&render(&get_columns(&fields), &rows, parsed.has('H')));
    }
    Ok(())
}
