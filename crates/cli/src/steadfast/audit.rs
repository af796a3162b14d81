//! `steadfast audit`: stores, files and disks are asked for what they should hold, drawn at random;
//! `steadfast audit recover` puts back what stores lost.

use crate::command::Command;
use crate::json;
use crate::options::{Flag, JSON, Parsed, Syntax, flag, valued};
use crate::progress::Bar;
use crate::session::{Doing, Failure, Session};
use crate::steadfast::{audit_agent, audit_file};
use crate::table::tame;
use crate::zpool::add::loss;
use crate::zpool::errors;
use serde_json::json;
use std::time::{Duration, Instant};
use steadfast_bucket::prices::{amount, exact};
use steadfast_control::api::{
    AuditOutcome, AuditStratum, LostContent, LostNode, PoolAudit, PoolRecover, PoolRecovery, ProvenContent,
    RecoverOutcome, RecoveryState, RekeyOutcome,
};
use steadfast_control::{Code, Refusal};
use steadfast_property::{nice_bytes, parse_size};

/// Bytes of a cell.
const CELL: u64 = 4096;
/// Failed cells and objects that a text names.
const NAMED_MAX: usize = 20;

pub(crate) const COMMAND: Command = Command {
    names: &["audit"],
    syntax: Syntax {
        flags: &[
            JSON,
            valued(
                'n',
                "samples",
                "samples of each store, file or disk; by default 2^-40 remains that a loss is missed",
            ),
            RECORD,
            KEY,
            AGENT,
            LISTEN,
            MEMORY,
            STOP,
            FILES,
            LOSS,
        ],
        operands: "pool|recover pool|rekey pool|verify file|agent store",
        least: 1,
        most: 2,
    },
    doc: "Asks the stores of a pool with a parity device for cells drawn at random, and checks each. A store that \
          lacks half of what the code gives back is found out but for one case in 2^40. Of a pool of files and disks \
          it is a scrub by sample: each device is read at places drawn at random, and one of which 1 % of the bytes \
          are bad is found out as surely; what is wrong is put right as by a scrub. Exits with 1 if a sample is \
          not held. `recover` reads all stores once, and puts back objects that are missing or changed, with the \
          bytes that they had; it exits with 1 if cells did not come back, and names them, and the files in them. It goes on if the command is \
          interrupted: the same command waits for it again, and `-s` ends it. Where cells did not come back, the code is \
          made anew behind it, under another map, and leaves their objects out: what came back and what did not \
          shows a store which cells stand together. `rekey` recovers and makes the code anew in any case, as after \
          a leak of the parity device, and for another loss with `--loss`. `verify` checks a file of \
          records: it exits with 1 if the file cannot be believed, and with 3 if an audit in it was not held. `agent` runs beside \
          a store and answers `audit -a`; it has no keys and is not trusted.",
    run: audit,
};

const RECORD: Flag =
    valued('r', "file", "adds the signed records of this audit and of those before to a file").or("record");
const AGENT: Flag =
    valued('a', "host:port", "asks an agent beside the store for one sum of all samples").or("agent");
const LISTEN: Flag =
    valued('l', "host:port", "with agent: where it listens; 127.0.0.1:7531 by default").or("listen");
const MEMORY: Flag = valued(
    'm',
    "size",
    "with recover and rekey: memory that it may take; a quarter of the machine's by default",
)
.or("memory");
const STOP: Flag = flag('s', "with recover and rekey: ends what is under way").or("stop");
const LOSS: Flag =
    valued('p', "percent", "with rekey: the part of all cells that comes back from then on, 0.5 to 10 %")
        .or("loss");
const FILES: Flag = flag('f', "names the files in cells that are not held").or("files");
/// The daemon answers after this time, or when the recovery has ended.
const LOOK: Duration = Duration::from_millis(500);
const KEY: Flag = valued('k', "key", "with verify: the key that the records must have").or("key");

fn audit(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    match &parsed.operands[..] {
        [word, name] if word == "recover" => recover(session, parsed, name, false),
        [word, name] if word == "rekey" => recover(session, parsed, name, true),
        [word, file] if word == "verify" => audit_file::verify(session, parsed, file),
        [word, store] if word == "agent" => audit_agent::serve(session, parsed, store),
        [_] if [KEY, LISTEN, MEMORY, STOP, LOSS].iter().any(|flag| parsed.has(flag.letter)) => {
            Err(Failure::Usage(
                "-k belongs to verify, -l to agent, -p to rekey, -m and -s to recover and rekey".to_owned(),
            ))
        }
        [name] => ask(session, parsed, name),
        [word, _] => Err(Failure::Usage(format!(
            "unknown verb '{}'; there are: recover, rekey, verify, agent",
            tame(word)
        ))),
        _ => unreachable!("one or two operands"),
    }
}

fn ask(session: &mut Session<'_, '_>, parsed: &Parsed, name: &str) -> Result<(), Failure> {
    let samples = match parsed.value('n') {
        None => None,
        Some(text) => match text.parse::<u32>() {
            Ok(samples @ 1..=10_000_000) => Some(samples),
            _ => {
                let what = format!("'{}' is no number of samples from 1 to 10,000,000", tame(text));
                return Err(Failure::Usage(what));
            }
        },
    };
    let doing = || format!("cannot audit '{}'", tame(name));
    let outcome = session
        .ask(PoolAudit {
            name: name.to_owned(),
            samples,
            agent: parsed.value(AGENT.letter).map(str::to_owned),
            files: parsed.has(FILES.letter),
        })
        .doing(doing)?;
    if parsed.has(JSON.letter) {
        session.line(as_json(name, &outcome));
    } else {
        session.out.push_str(&as_text(name, &outcome));
    }
    if let Some(file) = parsed.value(RECORD.letter) {
        let added = audit_file::add(session, name, file)?;
        if !parsed.has(JSON.letter) {
            session.line(added);
        }
    }
    if outcome.is_held() { Ok(()) } else { Err(Failure::Status(1)) }
}

/// Bits of the chance that a stratum that lacks this fraction is found out.
fn bits(missing: f64, samples: u32) -> f64 {
    -f64::from(samples) * (1.0 - missing).log2()
}

fn percent(fraction: f64) -> String {
    let text = format!("{:.4}", fraction * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Fraction of cells of which the statement is made: half of what comes back.
fn missing(outcome: &AuditOutcome) -> f64 {
    f64::from(outcome.loss_ppm) / 2e6
}

/// The part of the pool of which the statement is made.
fn share(outcome: &AuditOutcome) -> String {
    let AuditOutcome { stored_bytes, covered_bytes, .. } = *outcome;
    match part(covered_bytes as f64 / stored_bytes.max(1) as f64) {
        _ if covered_bytes >= stored_bytes => {
            format!("all that the pool stores ({})", nice_bytes(stored_bytes))
        }
        part => format!(
            "{part} % of what the pool stores ({} of {})",
            nice_bytes(covered_bytes),
            nice_bytes(stored_bytes)
        ),
    }
}

/// A fraction as percent, rounded down: what is not all is never told as 100.
pub(super) fn part(fraction: f64) -> String {
    format!("{:.1}", (fraction * 1000.0).floor() / 10.0)
}

pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn as_text(name: &str, outcome: &AuditOutcome) -> String {
    let mut text = String::new();
    for stratum in &outcome.strata {
        let AuditStratum { cells, samples, held, .. } = stratum;
        let (device, of) = (tame(&stratum.device), grouped(*cells));
        let what = match stratum.part.as_str() {
            _ if outcome.by_device => {
                format!("{device}: {} samples of {of} cells", grouped((*samples).into()))
            }
            "tiles" => format!("{device}: {} of {of} tiles read", grouped((*samples).into())),
            "newest" => {
                format!("{device}: {} challenges of the {of} newest cells", grouped((*samples).into()))
            }
            "agent" => {
                format!("{device}: sum of {} challenges of {of} cells", grouped((*samples).into()))
            }
            "parity" => {
                format!("{device}: {} challenges of {of} cells of the parity", grouped((*samples).into()))
            }
            _ => format!("{device}: {} challenges of {of} cells", grouped((*samples).into())),
        };
        let failed = samples - held;
        match failed {
            0 => text.push_str(&format!("{what}: held\n")),
            failed => text.push_str(&format!("{what}: {} not held\n", grouped(failed.into()))),
        }
        let mut objects: Vec<(&u64, &String, Vec<String>)> = Vec::new();
        for (segment, cell, reason) in &stratum.failed {
            if outcome.by_device {
                objects.push((segment, reason, vec![cell.to_string()]));
                continue;
            }
            // Cells of one object fail together as a rule.
            match objects.iter_mut().find(|(known, why, _)| (*known, *why) == (segment, reason)) {
                Some((.., cells)) => cells.push(cell.to_string()),
                None => objects.push((segment, reason, vec![cell.to_string()])),
            }
        }
        for (segment, reason, cells) in objects.iter().take(NAMED_MAX) {
            let what = match (stratum.part.as_str(), cells.as_slice()) {
                (_, [offset]) if outcome.by_device => format!("segment {segment:x}, offset {offset}"),
                ("tiles", _) => format!("tile {segment}"),
                ("agent", _) => "no proof".to_owned(),
                (_, [cell]) => format!("segment {segment:x}, cell {cell}"),
                (_, cells) => format!("segment {segment:x}, {} cells", grouped(cells.len() as u64)),
            };
            text.push_str(&format!("    {what}: {}\n", tame(reason)));
        }
    }
    if outcome.by_device && outcome.strata.is_empty() {
        text.push_str("nothing was asked: segments that are still being filled hold all of the pool\n");
    }
    let least = outcome
        .strata
        .iter()
        .filter(|stratum| matches!(stratum.part.as_str(), "all" | "agent"))
        .map(|stratum| stratum.samples)
        .min();
    if let Some(samples) = least.filter(|_| outcome.is_held()) {
        let bits = bits(missing(outcome), samples);
        let of_device = format!(
            "of {}, a device of which {} % of the bytes are bad is found out so but for one case in 2^{bits:.1}\n",
            share(outcome),
            percent(missing(outcome)),
        );
        text.push_str(&if outcome.by_device { of_device } else { format!(
            "of {}, a store that lacks {} % of its cells is found out so but for one case in 2^{bits:.1}; up to {} % come back\n",
            share(outcome),
            percent(missing(outcome)),
            percent(2.0 * missing(outcome)),
        ) });
    }
    for device in &outcome.absent {
        text.push_str(&format!("{} is not there: nothing is said of it\n", tame(device)));
    }
    for dataset in &outcome.locked {
        text.push_str(&format!(
            "the key of {} is not loaded: its blocks were drawn as far as they are listed in the clear\n",
            tame(dataset)
        ));
    }
    match outcome.uncovered_objects {
        0 => {}
        1 => text.push_str("1 object is not covered yet: nothing is promised of it\n"),
        objects => text.push_str(&format!(
            "{} objects are not covered yet: nothing is promised of them\n",
            grouped(objects)
        )),
    }
    let price = match &outcome.price {
        Some((nano, currency)) => format!(", about {}", amount(*nano, currency)),
        None => String::new(),
    };
    text.push_str(&format!(
        "{}: {:.1} s, {} {}, {} read{price}\n",
        tame(name),
        outcome.nanos as f64 / 1e9,
        grouped(outcome.requests),
        if outcome.by_device { "reads" } else { "requests" },
        nice_bytes(outcome.bytes_in),
    ));
    if let Some(reason) = &outcome.no_record {
        text.push_str(&format!("no record of it was kept: {}\n", tame(reason)));
    }
    if let Some(content) = &outcome.content {
        text.push_str(&content_text(content));
    }
    if outcome.by_device && !outcome.is_held() {
        text.push_str(&format!(
            "to read everything, and put right what can be: zpool scrub {}\n",
            tame(name)
        ));
    } else if !outcome.is_held() {
        text.push_str(&format!("to put back what is lost: steadfast audit recover {}\n", tame(name)));
    }
    text
}

fn as_json(name: &str, outcome: &AuditOutcome) -> String {
    let mut document = json::document("audit");
    document.insert("pool".into(), json!(name));
    document.insert("held".into(), json!(outcome.is_held()));
    document.insert("kind".into(), json!(if outcome.by_device { "devices" } else { "stores" }));
    // Of files and disks nothing comes back but by their redundancy.
    document.insert("loss_ppm".into(), json!((!outcome.by_device).then_some(outcome.loss_ppm)));
    document.insert("missing_ppm".into(), json!(outcome.loss_ppm / 2));
    document.insert("absent".into(), json!(outcome.absent));
    document.insert("locked".into(), json!(outcome.locked));
    document.insert("stored_bytes".into(), json!(outcome.stored_bytes));
    document.insert("covered_bytes".into(), json!(outcome.covered_bytes));
    document.insert("uncovered_objects".into(), json!(outcome.uncovered_objects));
    let strata = outcome.strata.iter().map(|stratum| {
        let failed = stratum.failed.iter().map(|(segment, place, reason)| match outcome.by_device {
            true => json!({ "segment": segment, "offset": place, "reason": reason }),
            false => json!({ "segment": segment, "cell": place, "reason": reason }),
        });
        json!({
            "device": stratum.device,
            "part": stratum.part,
            "cells": stratum.cells,
            "samples": stratum.samples,
            "held": stratum.held,
            "bits": bits(missing(outcome), stratum.samples),
            "failed": failed.collect::<Vec<_>>(),
        })
    });
    document.insert("strata".into(), strata.collect());
    document.insert("nanoseconds".into(), json!(outcome.nanos));
    document.insert("requests".into(), json!(outcome.requests));
    document.insert("bytes_in".into(), json!(outcome.bytes_in));
    let price = outcome.price.as_ref();
    let price = price.map(|(nano, currency)| json!({ "currency": currency, "amount": exact(*nano) }));
    document.insert("price".into(), json!(price));
    document.insert("record".into(), json!(outcome.record));
    document.insert("content".into(), json!(outcome.content.as_ref().map(content_json)));
    json::text(document)
}

fn recover(session: &mut Session<'_, '_>, parsed: &Parsed, name: &str, rekey: bool) -> Result<(), Failure> {
    if ['n', 'r', 'k', 'a', 'l', 'f'].into_iter().any(|letter| parsed.has(letter)) {
        return Err(Failure::Usage(
            "-n, -r, -k, -a, -l and -f belong to audits; a recovery reads everything".to_owned(),
        ));
    }
    let loss_ppm = match parsed.value(LOSS.letter) {
        Some(_) if !rekey => return Err(Failure::Usage("-p belongs to rekey".to_owned())),
        Some(text) => Some(loss(text)?),
        None => None,
    };
    let memory = match parsed.value(MEMORY.letter) {
        None => None,
        Some(text) => match parse_size(text) {
            Some(bytes) if bytes > 0 => Some(bytes),
            _ => return Err(Failure::Usage(format!("'{}' is no size, such as 4G", tame(text)))),
        },
    };
    let doing = || match rekey {
        false => format!("cannot recover '{}'", tame(name)),
        true => format!("cannot make the code of '{}' anew", tame(name)),
    };
    if parsed.has(STOP.letter) {
        return stop(session, name);
    }
    let wish = PoolRecover { name: name.to_owned(), memory, rekey, loss_ppm };
    let is_done = |outcome: &RecoverOutcome| outcome.rekeyed.is_some() || outcome.rekey_refused.is_some();
    let mut outcome = ended(session, &wish).doing(doing)?;
    if rekey && !is_done(&outcome) {
        // It was the end of a recovery that somebody else began.
        outcome = ended(session, &wish).doing(doing)?;
    }
    if parsed.has(JSON.letter) {
        session.line(recovered_json(name, &outcome));
    } else {
        session.out.push_str(&recovered_text(name, &outcome));
    }
    match outcome.rekey_refused {
        Some(refusal) => Err(refusal).doing(|| format!("cannot make the code of '{}' anew", tame(name))),
        None if outcome.lost.is_empty() && outcome.proven.as_ref().is_none_or(|proven| proven.wrong == 0) => {
            Ok(())
        }
        None => Err(Failure::Status(1)),
    }
}

/// Outcome of a recovery that begins, or of the one that is under way.
fn ended(session: &mut Session<'_, '_>, wish: &PoolRecover) -> Result<RecoverOutcome, Refusal> {
    let name = &*wish.name;
    let begun = session.ask(wish.clone())?;
    let mut bar = Bar::on_terminal(session, &tame(name));
    let since = Instant::now();
    let mut state = begun.clone();
    while state.running && state.number == begun.number {
        if let Some(bar) = &mut bar
            && state.of > 0
        {
            let what = match (state.rekeying, state.naming) {
                (true, _) => "rekey",
                (_, true) => "name files",
                _ => "recover",
            };
            bar.draw(session, what, (state.of - state.done.min(state.of)) * CELL, since.elapsed());
        }
        let patience_ms = u64::try_from(LOOK.as_millis()).expect("short");
        state = session.ask(PoolRecovery { name: name.to_owned(), stop: false, patience_ms })?;
    }
    if let Some(bar) = bar {
        bar.end(session);
    }
    match state {
        RecoveryState { number, outcome: Some(outcome), .. } if number == begun.number => Ok(outcome),
        RecoveryState { refused: Some(refusal), .. } => Err(refusal),
        _ => {
            let what = "it ended, and another one began; nothing is known of its outcome";
            Err(Refusal::new(Code::RecoveryNone, what).with("pool", name))
        }
    }
}

/// Ends the recovery that is under way.
fn stop(session: &mut Session<'_, '_>, name: &str) -> Result<(), Failure> {
    let doing = || format!("cannot end the recovery of '{}'", tame(name));
    let patience_ms = u64::try_from(LOOK.as_millis()).expect("short");
    let ask = |stop| PoolRecovery { name: name.to_owned(), stop, patience_ms };
    let mut state = session.ask(ask(true)).doing(doing)?;
    while state.running {
        state = session.ask(ask(false)).doing(doing)?;
    }
    session.line(format!("{}: the recovery has ended; what was put back stays", tame(name)));
    Ok(())
}

fn recovered_text(name: &str, outcome: &RecoverOutcome) -> String {
    let RecoverOutcome {
        cells,
        held,
        from_journal,
        from_code,
        restored,
        lost,
        content,
        proven,
        unsound,
        rounds,
        tiles: (tiles_back, tiles_lost),
        tiles_trouble,
        nanos,
        rekeyed,
        ..
    } = outcome;
    let mut text = format!(
        "{}: {} cells read in {:.1} s, {} as they should be\n",
        tame(name),
        grouped(*cells),
        *nanos as f64 / 1e9,
        grouped(*held)
    );
    if *rounds > 1 {
        text.push_str(&format!(
            "the stores were read {rounds} times: memory was short of the code (-m SIZE)\n"
        ));
    }
    if *tiles_back > 0 {
        text.push_str(&format!("tiles of the parity put back at their store: {}\n", grouped(*tiles_back)));
    }
    if *tiles_lost > 0 {
        text.push_str(&format!("cells of tiles that did not come back: {}\n", grouped(*tiles_lost)));
    }
    if let Some(trouble) = tiles_trouble {
        text.push_str(&format!(
            "tiles of the parity at their store were not looked after: {}\n",
            tame(trouble)
        ));
    }
    if from_journal + from_code > 0 {
        text.push_str(&format!(
            "{} cells came back: {} from the journal, {} from the code; objects put back: {}\n",
            grouped(from_journal + from_code),
            grouped(*from_journal),
            grouped(*from_code),
            restored.len()
        ));
    }
    let named = |numbers: Vec<String>| match numbers.len() {
        count if count > NAMED_MAX => {
            format!("{} and {} more", numbers[..NAMED_MAX].join(", "), count - NAMED_MAX)
        }
        _ => numbers.join(", "),
    };
    if !restored.is_empty() {
        let objects = restored.iter().map(|segment| format!("{segment:x}")).collect();
        text.push_str(&format!("    segments {}\n", named(objects)));
    }
    if let Some(proven) = proven {
        text.push_str(&proven_text(proven));
    }
    if !lost.is_empty() {
        text.push_str(&format!(
            "{} cells did not come back: more was lost than the code covers\n",
            lost.len()
        ));
        let cells = lost.iter().map(|(_, segment, cell)| format!("{segment:x}/{cell}")).collect();
        text.push_str(&format!("    segment/cell {}\n", named(cells)));
        match content {
            Some(content) => text.push_str(&content_text(content)),
            None => text.push_str("the files in them were not looked for: it was stopped\n"),
        }
    }
    if let Some(RekeyOutcome { left_out, nanos, .. }) = rekeyed {
        text.push_str(&format!("the code was made anew under another map in {:.1} s", *nanos as f64 / 1e9));
        match left_out.len() {
            0 => text.push('\n'),
            count => {
                let objects = left_out.iter().map(|(_, segment)| format!("{segment:x}")).collect();
                text.push_str(&format!(
                    "; objects that it leaves out, because cells of them did not come back: {count}\n    segments {}\n",
                    named(objects)
                ));
            }
        }
    }
    if !unsound.is_empty() {
        let tiles = unsound.iter().map(u32::to_string).collect();
        text.push_str(&format!("tiles that are not the sum of their cells: {}\n", named(tiles)));
    }
    text
}

/// Files in lost cells.
fn content_text(content: &LostContent) -> String {
    let LostContent { live_cells, dead_cells, files, metadata, spared, unnamed, locked, .. } = content;
    let mut text = format!(
        "live data in {} of the cells, none found in {}\n",
        grouped(*live_cells),
        grouped(*dead_cells)
    );
    let places = files.iter().map(errors::place).chain(metadata.iter().map(node));
    let all = (files.len() + metadata.len()) as u64 + unnamed;
    for place in places.take(NAMED_MAX) {
        text.push_str(&format!("    {place}\n"));
    }
    if all > NAMED_MAX as u64 {
        text.push_str(&format!("    and {} more (-j names them)\n", grouped(all - NAMED_MAX as u64)));
    }
    if *spared > 0 {
        text.push_str(&format!(
            "{} blocks have a copy elsewhere: a scrub writes them anew\n",
            grouped(*spared)
        ));
    }
    let left_out = locked.iter().map(|name| format!("{}, whose key is not loaded", tame(name)));
    let unread = (content.unread > 0)
        .then(|| format!("what is below {} of the nodes, which cannot be read", grouped(content.unread)));
    let checkpoint = content.has_checkpoint.then(|| "the pool's checkpoint".to_owned());
    for what in left_out.chain(unread).chain(checkpoint) {
        text.push_str(&format!("not looked at: {what}\n"));
    }
    text
}

/// A node of a tree, as a place.
fn node(node: &LostNode) -> String {
    let LostNode { dataset, tree, level, inodes } = node;
    let of = match inodes {
        None => String::new(),
        Some((first, last)) if first == last => format!(" (inode {first:#x})"),
        Some((first, u64::MAX)) => format!(" (inodes from {first:#x} on)"),
        Some((first, last)) => format!(" (inodes {first:#x} to {last:#x})"),
    };
    let of_tree = if tree == "pool" { String::new() } else { format!(" of its {tree}") };
    format!("{}:<metadata>{of_tree}, level {level}{of}", tame(dataset))
}

fn content_json(content: &LostContent) -> serde_json::Value {
    let files = content.files.iter().map(|file| {
        json!({
            "dataset": file.dataset,
            "path": file.path,
            "inode": file.inode,
            "offset": file.offset,
            "length": file.length,
        })
    });
    let metadata = content.metadata.iter().map(|node| {
        json!({
            "dataset": node.dataset,
            "tree": node.tree,
            "level": node.level,
            "first_inode": node.inodes.map(|(first, _)| first),
            "last_inode": node.inodes.map(|(_, last)| last),
        })
    });
    json!({
        "live_cells": content.live_cells,
        "dead_cells": content.dead_cells,
        "files": files.collect::<Vec<_>>(),
        "metadata": metadata.collect::<Vec<_>>(),
        "blocks_with_another_copy": content.spared,
        "unnamed": content.unnamed,
        "locked_datasets": content.locked,
        "unread_nodes": content.unread,
        "has_checkpoint": content.has_checkpoint,
    })
}

fn proven_text(proven: &ProvenContent) -> String {
    let ProvenContent { blocks, bytes, wrong, named, locked, unread } = proven;
    let what = format!("{} live blocks in them, {}", grouped(*blocks), nice_bytes(*bytes));
    let mut text = match wrong {
        0 => format!("{what}: each has its hash\n"),
        wrong => format!(
            "{what}: {} do not have their hash, for the code took them in so (zpool status -v names files)\n",
            grouped(*wrong)
        ),
    };
    for (segment, offset) in named.iter().take(NAMED_MAX) {
        text.push_str(&format!("    segment {segment:x}, offset {offset}\n"));
    }
    let locked = locked.iter().map(|name| format!("{}, whose key is not loaded", tame(name)));
    let unread = (*unread > 0)
        .then(|| format!("nodes and blocks that cannot be read, and what is below: {}", grouped(*unread)));
    for left_out in locked.chain(unread) {
        text.push_str(&format!("not looked at: {left_out}\n"));
    }
    text
}

fn recovered_json(name: &str, outcome: &RecoverOutcome) -> String {
    let mut document = json::document("audit recover");
    document.insert("pool".into(), json!(name));
    document.insert("cells".into(), json!(outcome.cells));
    document.insert("held".into(), json!(outcome.held));
    document.insert("from_journal".into(), json!(outcome.from_journal));
    document.insert("from_code".into(), json!(outcome.from_code));
    document.insert("restored".into(), json!(outcome.restored));
    let lost = outcome
        .lost
        .iter()
        .map(|(store, segment, cell)| json!({ "store": store, "segment": segment, "cell": cell }));
    document.insert("lost".into(), lost.collect());
    document.insert("content".into(), json!(outcome.content.as_ref().map(content_json)));
    let proven = outcome.proven.as_ref().map(|proven| {
        let named = proven.named.iter();
        let named = named.map(|(segment, offset)| json!({ "segment": segment, "offset": offset }));
        json!({
            "blocks": proven.blocks,
            "bytes": proven.bytes,
            "wrong": proven.wrong,
            "named": named.collect::<Vec<_>>(),
            "locked": proven.locked,
            "unread": proven.unread,
        })
    });
    document.insert("proven".into(), json!(proven));
    let rekeyed = outcome.rekeyed.as_ref().map(|rekeyed| {
        let left_out = rekeyed.left_out.iter();
        let left_out = left_out.map(|(store, segment)| json!({ "store": store, "segment": segment }));
        json!({
            "left_out": left_out.collect::<Vec<_>>(),
            "rounds": rekeyed.rounds,
            "nanoseconds": rekeyed.nanos,
        })
    });
    document.insert("rekeyed".into(), json!(rekeyed));
    document.insert("unsound_tiles".into(), json!(outcome.unsound));
    document.insert("tiles_restored".into(), json!(outcome.tiles.0));
    document.insert("tile_cells_lost".into(), json!(outcome.tiles.1));
    document.insert("tiles_trouble".into(), json!(outcome.tiles_trouble));
    document.insert("rounds".into(), json!(outcome.rounds));
    document.insert("nanoseconds".into(), json!(outcome.nanos));
    document.insert("solving_nanoseconds".into(), json!(outcome.solving_nanos));
    json::text(document)
}

#[cfg(test)]
mod tests {
    use steadfast_control::api::DataError;

    use super::*;

    fn outcome(stored: u64, covered: u64, uncovered: u64) -> AuditOutcome {
        let stratum = AuditStratum {
            device: "s3://bucket".to_owned(),
            part: "all".to_owned(),
            cells: 1000,
            samples: 2759,
            held: 2759,
            failed: Vec::new(),
        };
        AuditOutcome {
            loss_ppm: 20_000,
            stored_bytes: stored,
            covered_bytes: covered,
            uncovered_objects: uncovered,
            strata: if covered > 0 { vec![stratum] } else { Vec::new() },
            ..AuditOutcome::default()
        }
    }

    /// Nothing is promised of content that is not covered, and it is never rounded away.
    #[test]
    fn an_audit_says_of_which_part_of_the_pool_it_tells() {
        let of = |stored, covered, uncovered| as_text("tank", &outcome(stored, covered, uncovered));
        let all = of(4096 << 20, 4096 << 20, 0);
        assert!(all.contains("of all that the pool stores (4G), a store that lacks 1 % "), "{all}");
        assert!(!all.contains("not covered"), "{all}");
        let part = of(4096 << 20, 1024 << 20, 13);
        assert!(part.contains("of 25.0 % of what the pool stores (1G of 4G), a store"), "{part}");
        assert!(part.contains("13 objects are not covered yet: nothing is promised of them"), "{part}");
        let nearly = of(1 << 40, (1 << 40) - 1, 1);
        assert!(nearly.contains("of 99.9 % of what"), "{nearly}");
        assert!(nearly.contains("1 object is not covered yet: nothing is promised of it"), "{nearly}");
        let nothing = of(4096 << 20, 0, 2);
        assert!(!nothing.contains("found out"), "{nothing}");
        assert!(nothing.contains("2 objects are not covered yet: nothing is promised of them"), "{nothing}");
        let json: serde_json::Value = serde_json::from_str(&as_json("tank", &outcome(80, 20, 3))).unwrap();
        assert_eq!((json["stored_bytes"].as_u64(), json["covered_bytes"].as_u64()), (Some(80), Some(20)));
        assert_eq!(json["uncovered_objects"].as_u64(), Some(3));
    }

    /// Lost content is named as in `zpool status -v`, as many places as fit, and the rest of the
    /// pool that was left out is told.
    #[test]
    fn files_in_lost_cells_are_told() {
        let file = |number: u64| DataError {
            dataset: "tank@monday".to_owned(),
            mountpoint: None,
            path: Some(format!("file {number}")),
            inode: number,
            offset: 0,
            length: 4096,
        };
        let node = |tree: &str, inodes| LostNode {
            dataset: "tank".to_owned(),
            tree: tree.to_owned(),
            level: 1,
            inodes,
        };
        let content = LostContent {
            live_cells: 1200,
            dead_cells: 7,
            files: (1..3).map(file).collect(),
            metadata: vec![
                node("extents", Some((3, 5))),
                node("names", Some((9, u64::MAX))),
                node("pool", None),
            ],
            spared: 2,
            locked: vec!["tank/safe".to_owned()],
            unread: 1,
            ..LostContent::default()
        };
        let told = content_text(&content);
        for line in [
            "live data in 1,200 of the cells, none found in 7",
            "    tank@monday:/file 1 (bytes 0 to 4095)",
            "    tank:<metadata> of its extents, level 1 (inodes 0x3 to 0x5)",
            "    tank:<metadata> of its names, level 1 (inodes from 0x9 on)",
            "    tank:<metadata>, level 1",
            "2 blocks have a copy elsewhere: a scrub writes them anew",
            "not looked at: tank/safe, whose key is not loaded",
            "not looked at: what is below 1 of the nodes, which cannot be read",
        ] {
            assert!(told.lines().any(|told| told == line), "{line}: {told}");
        }
        let many = LostContent { files: (0..30).map(file).collect(), unnamed: 5, ..LostContent::default() };
        assert!(content_text(&many).contains("    and 15 more (-j names them)\n"));
        let json = content_json(&content);
        assert_eq!(json["files"][1]["path"], "file 2");
        assert_eq!(
            (json["metadata"][0]["last_inode"].as_u64(), json["dead_cells"].as_u64()),
            (Some(5), Some(7))
        );
    }
}
