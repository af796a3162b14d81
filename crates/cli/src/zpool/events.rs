//! `zpool events`.

use crate::command::Command;
use crate::date;
use crate::json;
use crate::options::{JSON, JSON_INT, Parsed, SCRIPTED, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::time::Duration;
use steadfast_control::api::{PoolEvent, PoolEvents, PoolEventsClear};

pub(super) const COMMAND: Command = Command {
    names: &["events"],
    syntax: Syntax {
        flags: &[
            flag('c', "clear all events"),
            flag('f', "follow: print new events as they occur"),
            SCRIPTED,
            JSON,
            JSON_INT,
            flag('v', "all fields of each event"),
        ],
        operands: "[pool]",
        least: 0,
        most: 1,
    },
    doc: "Lists recent events: imports, changes, damaged blocks, failing devices.",
    run: events,
};

/// Time between two looks of `-f`: after one that found something, and at most. A script sees
/// events that follow each other at once, and a daemon without any is asked twice a second.
const POLL: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];

fn events(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let doing = || "cannot list events".to_owned();
    if parsed.has('c') {
        if let Some(letter) = ['f', 'H', 'v'].into_iter().find(|letter| parsed.has(*letter)) {
            return Err(Failure::Usage(format!("-c cannot be combined with -{letter}")));
        }
        if let Some(pool) = parsed.operands.first() {
            let sentence =
                format!("too many arguments: -c clears the events of all pools, not of '{}'", tame(pool));
            return Err(Failure::Usage(sentence));
        }
        let gone = session.ask(PoolEventsClear {}).doing(doing)?;
        session.line(format!("cleared {} events", gone.touched.len()));
        return Ok(());
    }
    let name = parsed.operands.first().cloned();
    let mut after = 0;
    let (mut begun, mut pause) = (false, POLL[0]);
    loop {
        let found = session.ask(PoolEvents { name: name.clone(), after }).doing(doing)?;
        after = found.last().map_or(after, |event| event.eid);
        match (parsed.has('j'), parsed.has('f')) {
            // With -f each event is a document of its own, one per line.
            (true, true) => found.iter().for_each(|event| session.line(as_json(event, parsed).to_string())),
            (true, false) => {
                let mut document = json::document("zpool events");
                let all = found.iter().map(|event| as_json(event, parsed)).collect();
                document.insert("events".into(), serde_json::Value::Array(all));
                session.line(json::text(document));
            }
            (false, _) => {
                if !begun && !parsed.has('H') {
                    session.line(format!("{:<30}  CLASS", "TIME"));
                }
                found.iter().for_each(|event| print(session, event, parsed));
            }
        }
        begun = true;
        if !parsed.has('f') || !session.flush() {
            return Ok(());
        }
        pause = if found.is_empty() { POLL[1].min(pause * 2) } else { POLL[0] };
        (session.world.sleep)(pause);
    }
}

fn print(session: &mut Session<'_, '_>, event: &PoolEvent, parsed: &Parsed) {
    let time = date::event(event.time_ns);
    if parsed.has('H') {
        session.line(format!("{time}\t{}", tame(&event.class)));
    } else {
        session.line(format!("{time:<30}  {}", tame(&event.class)));
    }
    if !parsed.has('v') {
        return;
    }
    let pool = event.pool.as_ref().map(|pool| ("pool", pool));
    let fields = pool.into_iter().chain(event.fields.iter().map(|(field, value)| (field.as_str(), value)));
    for (field, value) in fields {
        session.line(format!("        {} = \"{}\"", tame(field), tame(value)));
    }
    session.line(format!("        eid = {}\n", event.eid));
}

fn as_json(event: &PoolEvent, parsed: &Parsed) -> serde_json::Value {
    let as_number = parsed.has_long("json-int");
    serde_json::json!({
        "eid": json::number(event.eid, as_number),
        "time_ns": json::number(event.time_ns, as_number),
        "class": event.class,
        "pool": event.pool,
        "fields": event.fields,
    })
}
