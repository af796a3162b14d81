//! `zpool history`.

use crate::command::Command;
use crate::date;
use crate::json::{self, Numbers};
use crate::options::{JSON, JSON_INT, MANY, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use serde_json::{Map, Value, json};
use steadfast_control::api::{HistoryRecord, PoolHistory, PoolPast};
use steadfast_control::owners;

pub(super) const COMMAND: Command = Command {
    names: &["history"],
    syntax: Syntax {
        flags: &[flag('i', "internal events too"), JSON, JSON_INT, flag('l', "with user and host")],
        operands: "[pool]...",
        least: 0,
        most: MANY,
    },
    doc: "Lists the commands that changed a pool, oldest first.",
    run: history,
};

fn history(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let request = PoolHistory { names: parsed.operands.clone() };
    let pools = session.ask(request).doing(|| "cannot list the history".into())?;
    if parsed.has('j') {
        let numbers = Numbers::of(parsed);
        let record = |record: &HistoryRecord| {
            json!({
                "time": numbers.raw(record.time),
                "txg": record.txg.map_or(Value::Null, |txg| numbers.raw(txg)),
                "internal": record.internal,
                "command": record.text,
                "user": numbers.raw(record.uid.into()),
                "host": record.host,
            })
        };
        let records = |pool: &PoolPast| -> Value {
            pool.records.iter().filter(|r| !r.internal || parsed.has('i')).map(record).collect()
        };
        let entry =
            |pool: &PoolPast| (pool.name.clone(), json!({ "name": pool.name, "records": records(pool) }));
        let mut document = json::document("zpool history");
        document.insert("pools".into(), pools.iter().map(entry).collect::<Map<_, _>>().into());
        session.line(json::text(document));
        return Ok(());
    }
    if pools.is_empty() {
        session.tell("no pools available\n");
    }
    let users = owners::names(false);
    for pool in pools {
        session.line(format!("History for '{}':", tame(&pool.name)));
        for record in pool.records.iter().filter(|r| !r.internal || parsed.has('i')) {
            let mut line = date::history(record.time);
            if let Some(txg) = record.txg.filter(|_| record.internal) {
                line.push_str(&format!(" [txg:{txg}]"));
            }
            line.push_str(&format!(" {}", tame(&record.text)));
            if parsed.has('l') {
                let user = match users.get(&record.uid) {
                    Some(name) => format!("{} ({})", record.uid, tame(name)),
                    None => record.uid.to_string(),
                };
                // As in ZFS the system stands behind the host.
                line.push_str(&format!(" [user {user} on {}:linux]", tame(&record.host)));
            }
            session.line(line);
        }
        session.line("");
    }
    Ok(())
}
