//! A file of records of audits: `steadfast audit -r FILE POOL` adds to it, and `steadfast audit
//! verify FILE`, anywhere, checks it.

use crate::date;
use crate::json;
use crate::options::{JSON, Parsed};
use crate::session::{Doing, Failure, Session};
use crate::steadfast::audit::{grouped, part};
use crate::table::tame;
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use steadfast_control::api::PoolAuditRecords;
use steadfast_control::audit_record::{SignedRecord, read_all};
use steadfast_control::{Code, Refusal};

/// The file cannot be believed.
const UNBELIEVABLE: u8 = 1;
/// It can, and an audit in it was not held.
const NOT_HELD: u8 = 3;
const SECOND: u64 = 1_000_000_000;

fn refused(path: &Path, problem: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::FileIo, format!("{}: {problem}", path.display())).with("file", path.display())
}

/// Adds the records of a pool that a file does not have yet. Says what was added.
pub(super) fn add(session: &mut Session<'_, '_>, name: &str, file: &str) -> Result<String, Failure> {
    let doing = || format!("cannot write the records of '{}'", tame(name));
    let kept = session.ask(PoolAuditRecords { name: name.to_owned() }).doing(doing)?;
    let path = session.world.absolute(file);
    let before = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(refused(&path, error)).doing(doing),
    };
    let last = match before.is_empty() {
        true => 0,
        false => {
            let records = read_all(&before, Some(&kept.key)).map_err(|reason| refused(&path, reason));
            records.doing(doing)?.last().map_or(0, |last| last.record.number)
        }
    };
    let records = read_all(&kept.lines.join("\n"), Some(&kept.key));
    let records = records.map_err(|reason| refused(&path, reason)).doing(doing)?;
    let is_new = |found: &SignedRecord| found.record.number > last;
    let first = records.iter().find(|found| is_new(found)).map_or(last + 1, |found| found.record.number);
    if last > 0 && first != last + 1 {
        let gap =
            format!("it ends with record {last}, and {first} is the oldest that is kept: name another file");
        return Err(refused(&path, gap)).doing(doing);
    }
    let added: Vec<&str> = kept
        .lines
        .iter()
        .zip(&records)
        .filter(|(_, found)| is_new(found))
        .map(|(line, _)| line.as_str())
        .collect();
    let text: String = added.iter().map(|line| format!("{line}\n")).collect();
    let written = OpenOptions::new().append(true).create(true).open(&path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| refused(&path, error)).doing(doing)?;
    let newest = records.last().map_or(0, |found| found.record.number);
    let (file, key) = (tame(file), &kept.key);
    Ok(format!("{file}: {} added, the newest is record {newest}, key {key}", counted(added.len(), "record")))
}

fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{} {noun}s", grouped(count as u64)),
    }
}

/// Checks a file of records.
pub(super) fn verify(session: &mut Session<'_, '_>, parsed: &Parsed, file: &str) -> Result<(), Failure> {
    if ['n', 'r', 'a', 'l', 'm', 's'].into_iter().any(|letter| parsed.has(letter)) {
        return Err(Failure::Usage("-n, -r and -a belong to audits, -l to agent".to_owned()));
    }
    let path = session.world.absolute(file);
    let text = fs::read(&path).map_err(|error| refused(&path, error));
    let text = text.doing(|| format!("cannot read '{}'", tame(file)))?;
    let text = String::from_utf8_lossy(&text);
    let records = match read_all(&text, parsed.value('k')) {
        Ok(records) => records,
        Err(reason) => {
            let said = format!("{}: not to be believed: {reason}", tame(file));
            match parsed.has(JSON.letter) {
                true => {
                    let mut document = json::document("audit verify");
                    document.insert("believed".into(), json!(false));
                    document.insert("reason".into(), json!(reason.to_string()));
                    session.line(json::text(document));
                }
                false => session.line(said),
            }
            return Err(Failure::Status(UNBELIEVABLE));
        }
    };
    let failed: Vec<&SignedRecord> = records.iter().filter(|found| !found.record.is_held()).collect();
    if parsed.has(JSON.letter) {
        session.line(as_json(&records));
    } else {
        session.out.push_str(&as_text(file, &records, &failed));
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::Status(NOT_HELD)) }
}

/// Longest time between the ends of two audits, seconds.
fn gap_s(records: &[SignedRecord]) -> u64 {
    let gaps = records.windows(2).map(|two| two[1].record.ended_ns.saturating_sub(two[0].record.ended_ns));
    gaps.max().unwrap_or(0) / SECOND
}

fn as_text(file: &str, records: &[SignedRecord], failed: &[&SignedRecord]) -> String {
    let (first, last) = (&records[0], &records[records.len() - 1]);
    let mut text = format!(
        "{}: {} of pool {}, {} to {}, each signed and behind the one before\n",
        tame(file),
        counted(records.len(), "record"),
        tame(&last.record.pool),
        first.record.number,
        last.record.number
    );
    text.push_str(&format!(
        "from {} to {}, at most {} s between two\nkey {}\n",
        date::stamp(first.record.begun_ns / SECOND),
        date::stamp(last.record.ended_ns / SECOND),
        grouped(gap_s(records)),
        first.key
    ));
    if failed.is_empty() {
        text.push_str("each sample of each audit was held\n");
    }
    for found in records {
        if let Some(covered) = found.record.covered().filter(|covered| *covered < 1.0) {
            text.push_str(&format!(
                "record {}, {}: it tells of {} % of what the pool stored\n",
                found.record.number,
                date::stamp(found.record.ended_ns / SECOND),
                part(covered)
            ));
        }
    }
    for found in failed {
        let record = &found.record;
        for stratum in record.strata.iter().filter(|stratum| stratum.held < stratum.samples) {
            text.push_str(&format!(
                "record {}, {}: {} ({}): {} of {} not held\n",
                record.number,
                date::stamp(record.ended_ns / SECOND),
                tame(&stratum.device),
                tame(&stratum.part),
                grouped(u64::from(stratum.samples - stratum.held)),
                grouped(stratum.samples.into()),
            ));
        }
    }
    text
}

fn as_json(records: &[SignedRecord]) -> String {
    let mut document = json::document("audit verify");
    document.insert("believed".into(), json!(true));
    document.insert("key".into(), json!(records[0].key));
    document.insert("longest_gap_seconds".into(), json!(gap_s(records)));
    let held = records.iter().all(|found| found.record.is_held());
    document.insert("held".into(), json!(held));
    document.insert("records".into(), records.iter().map(|found| json!(found.record)).collect());
    json::text(document)
}
