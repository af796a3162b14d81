//! `steadfast store`: a store of whole objects looked at before a pool is put on it. No daemon is
//! asked.

use steadfast_bucket::probe::{self, Report};
use steadfast_bucket::{Operation, Store as _, Tuning};
use steadfast_control::stores;

use crate::command::Command;
use crate::json;
use crate::options::{Flag, JSON, Parsed, Syntax};
use crate::session::{Doing, Failure, Session};
use crate::table::{Column, render, tame};
use serde_json::json;

const QUICK: &str = "quick";

pub(crate) const COMMAND: Command = Command {
    names: &["store"],
    syntax: Syntax {
        flags: &[
            JSON,
            Flag {
                letter: '\0',
                long: QUICK,
                value: "",
                doc: "two rounds of each race, no upload in parts, no rate",
            },
        ],
        operands: "probe address",
        least: 2,
        most: 2,
    },
    doc: "Asks a store of objects for its promises, and says what a pool may keep there. The address is \
          s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder; another server than the \
          provider's is ?endpoint=http://host:port. Exits with 1 if the store is not good for data.",
    run: store,
};

fn store(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let verb = parsed.operands[0].as_str();
    if verb != "probe" {
        return Err(Failure::Usage(format!("unknown verb '{}'; there is: probe", tame(verb))));
    }
    let doing = || "cannot probe the store".to_owned();
    let location = stores::location(&parsed.operands[1]).doing(doing)?;
    let client = stores::open(location, Tuning::impatient()).doing(doing)?;
    let report =
        probe::run(&client, parsed.has_long(QUICK)).map_err(|error| stores::refusal(&error)).doing(doing)?;
    let requests: Vec<(&str, u64)> = Operation::REQUESTS
        .iter()
        .map(|operation| (operation.word(), client.counts().of(*operation)))
        .filter(|(_, count)| *count > 0)
        .collect();
    if parsed.has(JSON.letter) {
        session.line(as_json(&report, &requests));
    } else {
        session.out.push_str(&as_text(&report, &requests));
    }
    if report.data { Ok(()) } else { Err(Failure::Status(1)) }
}

fn verdicts(report: &Report) -> [(&'static str, bool); 3] {
    [("data", report.data), ("roots", report.roots), ("register", report.register)]
}

fn as_text(report: &Report, requests: &[(&str, u64)]) -> String {
    let column = |heading: &str| Column { heading: heading.to_owned(), right: false };
    let rows: Vec<Vec<String>> = report
        .checks
        .iter()
        .map(|check| vec![check.name.to_owned(), check.outcome.word().to_owned(), tame(&check.found)])
        .collect();
    let mut text = format!("store: {}\n\n", tame(&report.address));
    text.push_str(&render(&[column("CHECK"), column("RESULT"), column("FOUND")], &rows, false));
    let uses = verdicts(report).map(|(name, good)| format!("{name} {}", if good { "yes" } else { "no" }));
    text.push_str(&format!("\ngood for: {}\n", uses.join(", ")));
    for reason in &report.reasons {
        text.push_str(&format!("    {reason}\n"));
    }
    let made: Vec<String> = requests.iter().map(|(word, count)| format!("{count} {word}")).collect();
    text.push_str(&format!("requests made: {}\n", made.join(", ")));
    text
}

fn as_json(report: &Report, requests: &[(&str, u64)]) -> String {
    let mut document = json::document("store probe");
    let checks: serde_json::Map<_, _> = report
        .checks
        .iter()
        .map(|check| {
            (check.name.replace(' ', "_"), json!({ "result": check.outcome.word(), "found": check.found }))
        })
        .collect();
    document.insert("store".into(), json!(report.address));
    document.insert("checks".into(), json!(checks));
    for (name, good) in verdicts(report) {
        document.insert(name.into(), json!(good));
    }
    document.insert("reasons".into(), json!(report.reasons));
    let made: serde_json::Map<_, _> =
        requests.iter().map(|(word, count)| ((*word).to_owned(), json!(count))).collect();
    document.insert("requests".into(), json!(made));
    json::text(document)
}
