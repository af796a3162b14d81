//! `steadfast store`: a store of whole objects looked at before a pool is put on it, cleaned after
//! the pool was destroyed, and the prices of stores. No daemon is asked.

use steadfast_bucket::prices::{Price, amount, exact};
use steadfast_bucket::probe::{self, Report};
use steadfast_bucket::{Counts, Store as _, Tuning};
use steadfast_control::prices::{find, load};
use steadfast_control::{store_clean, stores};
use steadfast_property::nice_bytes;

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
            Flag { letter: 'n', long: "", value: "", doc: "clean: count the objects and remove none" },
            Flag {
                letter: 'f',
                long: "",
                value: "",
                doc: "clean: also those of an exported pool, or without a label",
            },
        ],
        operands: "probe address|clean address|prices [address]",
        least: 1,
        most: 2,
    },
    doc: "`probe` asks a store of objects for its promises, and says what a pool may keep there. The address is \
          s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder; another server than the \
          provider's is ?endpoint=http://host:port. Exits with 1 if the store is not good for data. \
          `prices` shows the table of prices by which costs are estimated, or the row for one store; exits with 1 if \
          the store has no price. `clean` removes the objects of a destroyed pool; `zpool destroy` leaves them, so \
          that `zpool import -D` can undo it. The prefix of a pool that was not destroyed is refused, and objects \
          that no pool made stay.",
    run: store,
};

fn store(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    match (parsed.operands[0].as_str(), parsed.operands.get(1)) {
        ("probe", Some(address)) => probe(session, parsed, address),
        ("probe", None) => Err(Failure::Usage("missing address of a store".to_owned())),
        ("clean", Some(address)) => clean(session, parsed, address),
        ("clean", None) => Err(Failure::Usage("missing address of a store".to_owned())),
        ("prices", address) => prices(session, parsed, address.map(String::as_str)),
        (verb, _) => {
            Err(Failure::Usage(format!("unknown verb '{}'; there are: probe, clean, prices", tame(verb))))
        }
    }
}

/// Requests, bytes and price of a probe.
struct Made {
    counts: Counts,
    /// Amount in billionths, currency and row; or the reason why there is no price.
    price: Result<(u64, String, String), String>,
}

fn probe(session: &mut Session<'_, '_>, parsed: &Parsed, address: &str) -> Result<(), Failure> {
    let doing = || "cannot probe the store".to_owned();
    let location = stores::location(address).doing(doing)?;
    let client = stores::open(location.clone(), Tuning::impatient()).doing(doing)?;
    let report =
        probe::run(&client, parsed.has_long(QUICK)).map_err(|error| stores::refusal(&error)).doing(doing)?;
    let counts = client.counts();
    let table = load(&session.world.runtime().prices()).map_err(|refusal| refusal.what);
    let price = table.and_then(|table| {
        let row = find(&table, &location)?;
        Ok((row.of_traffic(&counts).total(), row.currency.clone(), row.name.clone()))
    });
    let made = Made { counts, price };
    if parsed.has(JSON.letter) {
        session.line(as_json(&report, &made));
    } else {
        session.out.push_str(&as_text(&report, &made));
    }
    if report.data { Ok(()) } else { Err(Failure::Status(1)) }
}

fn clean(session: &mut Session<'_, '_>, parsed: &Parsed, address: &str) -> Result<(), Failure> {
    if parsed.has_long(QUICK) {
        return Err(Failure::Usage("--quick belongs to probe".to_owned()));
    }
    let dry_run = parsed.has('n');
    let doing = || "cannot clean the store".to_owned();
    let cleaned = store_clean::clean(address, dry_run, parsed.has('f')).doing(doing)?;
    if parsed.has(JSON.letter) {
        let mut document = json::document("store clean");
        document.insert("pool".into(), json!(cleaned.pool));
        document.insert("dry_run".into(), json!(dry_run));
        document.insert("objects".into(), json!(cleaned.objects));
        document.insert("bytes".into(), json!(cleaned.bytes));
        document.insert("others".into(), json!(cleaned.others));
        session.line(json::text(document));
        return Ok(());
    }
    let (verb, of) = (
        if dry_run { "would remove" } else { "removed" },
        cleaned.pool.as_ref().map(|pool| format!(" of the pool '{}'", tame(pool))).unwrap_or_default(),
    );
    let bytes = nice_bytes(cleaned.bytes);
    session.line(format!("{verb} {} objects{of}, {bytes}", cleaned.objects));
    if cleaned.others > 0 {
        session.line(format!("{} objects that no pool made stay", cleaned.others));
    }
    Ok(())
}

fn prices(session: &mut Session<'_, '_>, parsed: &Parsed, address: Option<&str>) -> Result<(), Failure> {
    if parsed.has_long(QUICK) {
        return Err(Failure::Usage("--quick belongs to probe".to_owned()));
    }
    let doing = || "cannot show prices".to_owned();
    let file = session.world.runtime().prices();
    let table = load(&file).doing(doing)?;
    let found: Vec<(&Price, bool)> = match address {
        None => table.rows().collect(),
        Some(address) => {
            let location = stores::location(address).doing(doing)?;
            match find(&table, &location) {
                Ok(row) => table.rows().filter(|(other, _)| *other == row).take(1).collect(),
                Err(why) => {
                    let way = "; write a row for it into";
                    session.tell(&format!("{}{way} {}\n", tame(&why), file.display()));
                    return Err(Failure::Status(1));
                }
            }
        }
    };
    if parsed.has(JSON.letter) {
        session.line(prices_json(&found, &file.display().to_string()));
    } else {
        session.out.push_str(&prices_text(&found, &file.display().to_string()));
    }
    Ok(())
}

fn prices_text(rows: &[(&Price, bool)], file: &str) -> String {
    let column = |heading: &str, right| Column { heading: heading.to_owned(), right };
    let columns = [
        column("NAME", false),
        column("WRITE", true),
        column("READ", true),
        column("LIST", true),
        column("DELETE", true),
        column("EGRESS", true),
        column("STORED", true),
    ];
    let cells = |(row, _): &(&Price, bool)| {
        let shown = |price: f64| match row.currency.as_str() {
            "USD" => format!("${price}"),
            currency => format!("{price} {currency}"),
        };
        let prices = [
            row.writes_per_million,
            row.reads_per_million,
            row.lists_per_million,
            row.deletes_per_million,
            row.egress_per_gb,
            row.stored_per_gb_month,
        ];
        std::iter::once(tame(&row.name)).chain(prices.into_iter().map(shown)).collect()
    };
    let mut text = render(&columns, &rows.iter().map(cells).collect::<Vec<_>>(), false);
    text.push_str("\nwrite, read, list, delete: a million requests; egress: a GB read;\n");
    text.push_str("stored: a GB for a month. First tier, no free allowance.\n");
    for (row, own) in rows {
        let from = if *own { file } else { row.source.as_str() };
        let as_of =
            if row.as_of.is_empty() { String::new() } else { format!(", as of {}", tame(&row.as_of)) };
        text.push_str(&format!("{}:\n    {}{as_of}\n", tame(&row.name), tame(from)));
    }
    if !rows.iter().any(|(_, own)| *own) {
        text.push_str(&format!("Rows of your own come first: {file}\n"));
    }
    text
}

fn prices_json(rows: &[(&Price, bool)], file: &str) -> String {
    let mut document = json::document("store prices");
    document.insert("file".into(), json!(file));
    let told = rows.iter().map(|(row, own)| {
        let mut row = json!(row);
        row["built_in"] = json!(!own);
        row
    });
    document.insert("prices".into(), told.collect());
    json::text(document)
}

fn verdicts(report: &Report) -> [(&'static str, bool); 3] {
    [("data", report.data), ("roots", report.roots), ("register", report.register)]
}

fn as_text(report: &Report, made: &Made) -> String {
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
    let requests: Vec<String> = made
        .counts
        .words()
        .filter(|(_, count)| *count > 0)
        .map(|(word, count)| format!("{count} {word}"))
        .collect();
    text.push_str(&format!("requests made: {}\n", requests.join(", ")));
    let (read, written) = (nice_bytes(made.counts.bytes_in), nice_bytes(made.counts.bytes_out));
    text.push_str(&format!("bytes: {read} read, {written} written\n"));
    text.push_str(&match &made.price {
        Ok((nano, currency, row)) => {
            format!("price: about {}, by the row '{}'\n", amount(*nano, currency), tame(row))
        }
        Err(why) => format!("price: {}\n", tame(why)),
    });
    text
}

fn as_json(report: &Report, made: &Made) -> String {
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
    let requests: serde_json::Map<_, _> =
        made.counts.words().map(|(word, count)| (word.to_owned(), json!(count))).collect();
    document.insert("requests".into(), json!(requests));
    document.insert("requests_total".into(), json!(made.counts.total()));
    document.insert("hedges".into(), json!(made.counts.hedges));
    document.insert("bytes_in".into(), json!(made.counts.bytes_in));
    document.insert("bytes_out".into(), json!(made.counts.bytes_out));
    let price =
        made.price.as_ref().ok().map(
            |(nano, currency, row)| json!({ "table": row, "currency": currency, "amount": exact(*nano) }),
        );
    document.insert("price".into(), json!(price));
    document.insert("unpriced".into(), json!(made.price.as_ref().err()));
    json::text(document)
}
