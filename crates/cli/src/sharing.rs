//! `zfs reflink`, `zpool prefetch`, `zpool ddtprune`, and what `zpool status -D` says.

use crate::family::{Command, Doing, Failure, Session};
use crate::json;
use crate::options::{Parsed, Syntax, flag, valued};
use crate::table::tame;
use crate::zfs::name_of_path;
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use steadfast_control::api::{PoolDdtPrune, PoolPrefetch, PoolSync, SharingClassReport, SharingReport};
use steadfast_control::{Code, Refusal};
use steadfast_property::{nice_bytes, nice_number};

const MANY: usize = usize::MAX;

/// `zfs reflink`.
pub(crate) const REFLINK: Command = Command {
    names: &["reflink"],
    syntax: Syntax {
        flags: &[flag('f', "replace the target's content if it exists")],
        operands: "source target",
        least: 2,
        most: 2,
    },
    doc: "Copies a file by sharing its blocks; what was just written is stored first.",
    run: reflink,
};

/// `zpool prefetch`.
pub(crate) const PREFETCH: Command = Command {
    names: &["prefetch"],
    syntax: Syntax {
        flags: &[valued('t', "type", "what: ddt, the table of blocks known by content")],
        operands: "[pool]...",
        least: 0,
        most: MANY,
    },
    doc: "Reads what deduplication looks up into memory.",
    run: prefetch,
};

/// `zpool ddtprune`.
pub(crate) const DDTPRUNE: Command = Command {
    names: &["ddtprune"],
    syntax: Syntax {
        flags: &[
            valued('d', "days", "blocks written so long ago or longer"),
            valued('p', "percentage", "so many of a hundred, the oldest"),
        ],
        operands: "pool",
        least: 1,
        most: 1,
    },
    doc: "Forgets the content of blocks that nothing shares.",
    run: ddtprune,
};

fn io_refusal(error: &io::Error, path: &str) -> Refusal {
    Refusal::new(Code::FileIo, format!("{}: {error}", tame(path))).with("path", path)
}

fn reflink(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (source, target) = (parsed.operands[0].clone(), parsed.operands[1].clone());
    let doing = || format!("cannot share the blocks of '{}'", tame(&source));
    let from = File::open(&source).map_err(|error| io_refusal(&error, &source)).doing(doing)?;
    let about = from.metadata().map_err(|error| io_refusal(&error, &source)).doing(doing)?;
    if !about.is_file() {
        let refusal = Refusal::new(Code::FileIo, format!("{} is no regular file", tame(&source)));
        return Err(refusal.with("path", &source)).doing(doing);
    }
    let whole = |path: &str| -> Result<String, Refusal> {
        let path = Path::new(path);
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().map_err(|error| io_refusal(&error, &folder.to_string_lossy()))?;
        Ok(folder.to_string_lossy().into_owned())
    };
    let (source_folder, target_folder) = (whole(&source).doing(doing)?, whole(&target).doing(doing)?);
    let name = name_of_path(session, &source_folder).doing(doing)?;
    let other = name_of_path(session, &target_folder).doing(doing)?;
    if name != other {
        let what = format!("'{}' and '{}' are two file systems", tame(&name), tame(&other));
        return Err(Refusal::new(Code::FsApart, what).with("source", &source).with("target", &target))
            .doing(doing);
    }
    // What is not stored yet has no blocks to share.
    let pool = name.split('/').next().unwrap_or_default().to_owned();
    session.ask(PoolSync { names: vec![pool] }).doing(doing)?;
    let mut options = OpenOptions::new();
    options.write(true).mode(about.mode() & 0o7777);
    // Not emptied yet: it may be the source.
    if parsed.has('f') {
        options.create(true).truncate(false)
    } else {
        options.create_new(true)
    };
    let to = options.open(&target).map_err(|error| io_refusal(&error, &target)).doing(doing)?;
    let is_same = to.metadata().is_ok_and(|other| (other.dev(), other.ino()) == (about.dev(), about.ino()));
    if is_same {
        let what = format!("'{}' is '{}'", tame(&source), tame(&target));
        return Err(Refusal::new(Code::FileIo, what).with("path", &target)).doing(doing);
    }
    let emptied = to.set_len(0);
    emptied
        .and_then(|()| carry(&from, &to, about.len()))
        .map_err(|error| io_refusal(&error, &target))
        .doing(doing)
}

/// All bytes of a file, by `copy_file_range` alone: the file system shares what it can.
fn carry(from: &File, to: &File, size: u64) -> io::Result<()> {
    let (mut source, mut target) = (0, 0);
    while source < size {
        let length = usize::try_from(size - source).unwrap_or(usize::MAX).min(1 << 30);
        let copied = rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), length)?;
        if copied == 0 {
            // The source has become shorter meanwhile.
            break;
        }
    }
    Ok(())
}

fn prefetch(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    match parsed.value('t') {
        None | Some("ddt") => {}
        Some("brt") => {
            // The rows of shared blocks are looked up where they lie, and few are.
            return Ok(());
        }
        Some(other) => return Err(Failure::Usage(format!("invalid type '{other}': must be ddt"))),
    }
    let names = parsed.operands.clone();
    session.ask(PoolPrefetch { names }).doing(|| "cannot prefetch".into())?;
    Ok(())
}

fn ddtprune(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let number = |letter: char, what: &str, most: u32| -> Result<Option<u32>, Failure> {
        let Some(text) = parsed.value(letter) else { return Ok(None) };
        match text.parse() {
            Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
            _ => Err(Failure::Usage(format!("invalid {what} '{text}': must be a number from 1 to {most}"))),
        }
    };
    let (days, percent) = (number('d', "days", 36_500)?, number('p', "percentage", 100)?);
    if days.is_some() == percent.is_some() {
        return Err(Failure::Usage("one of -d and -p says what is to be forgotten".to_owned()));
    }
    let name = parsed.operands[0].clone();
    let percent = percent.and_then(|percent| u8::try_from(percent).ok());
    let doing = || format!("cannot prune '{}'", tame(&name));
    let pruned = session.ask(PoolDdtPrune { name: name.clone(), days, percent }).doing(doing)?;
    session.line(format!("{} blocks forgotten", pruned.blocks));
    Ok(())
}

/// The part of `zpool status -D`.
pub(crate) fn status_lines(sharing: &SharingReport, exact: bool) -> Vec<String> {
    let bytes = |bytes: u64| if exact { bytes.to_string() } else { nice_bytes(bytes) };
    let count = |count: u64| if exact { count.to_string() } else { nice_number(count) };
    if sharing.entries == 0 {
        return vec![" dedup: no DDT entries".to_owned()];
    }
    let (table, memory) = (bytes(sharing.table_bytes), bytes(sharing.index_bytes));
    let filled = if sharing.index_filled { "" } else { ", being read" };
    let mut lines = vec![
        format!(" dedup: DDT entries {}, size {table} on disk, {memory} in core{filled}", sharing.entries),
        String::new(),
        format!("{:<6}   {:^30}   {:^30}", "bucket", "allocated", "referenced").trim_end().to_owned(),
        format!("{}   {}   {}", "_".repeat(6), "_".repeat(30), "_".repeat(30)),
        row("refcnt", ["blocks", "LSIZE", "PSIZE", "DSIZE"], ["blocks", "LSIZE", "PSIZE", "DSIZE"]),
        row("------", ["------", "-----", "-----", "-----"], ["------", "-----", "-----", "-----"]),
    ];
    let shown = |sums: &[u64; 4]| [count(sums[0]), bytes(sums[1]), bytes(sums[2]), bytes(sums[3])];
    for class in &sharing.classes {
        let (allocated, referenced) = (shown(&class.allocated), shown(&class.referenced));
        lines.push(row(&count(class.references), text(&allocated), text(&referenced)));
    }
    let total = total(sharing);
    let (allocated, referenced) = (shown(&total.allocated), shown(&total.referenced));
    lines.push(row("Total", text(&allocated), text(&referenced)));
    lines
}

/// All classes together.
fn total(sharing: &SharingReport) -> SharingClassReport {
    let mut total = SharingClassReport::default();
    for class in &sharing.classes {
        for (sums, part) in
            [(&mut total.allocated, &class.allocated), (&mut total.referenced, &class.referenced)]
        {
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum = sum.saturating_add(*part));
        }
    }
    total
}

/// The same as JSON, as OpenZFS names it: classes are numbered by the power of two that they begin with.
pub(crate) fn as_json(sharing: &SharingReport, exact: bool, as_number: bool) -> Value {
    let number = |value| json::number(value, as_number);
    let bytes = |value| if as_number || exact { number(value) } else { json!(nice_bytes(value)) };
    let count = |value| if as_number || exact { number(value) } else { json!(nice_number(value)) };
    let class = |class: &SharingClassReport| {
        let ([blocks, lsize, psize, dsize], [ref_blocks, ref_lsize, ref_psize, ref_dsize]) =
            (class.allocated, class.referenced);
        json!({
            "blocks": count(blocks),
            "logical_size": bytes(lsize),
            "physical_size": bytes(psize),
            "deflated_size": bytes(dsize),
            "ref_blocks": count(ref_blocks),
            "ref_lsize": bytes(ref_lsize),
            "ref_psize": bytes(ref_psize),
            "ref_dsize": bytes(ref_dsize),
        })
    };
    let mut classes = Map::new();
    for of in &sharing.classes {
        classes.insert(of.references.max(1).ilog2().to_string(), class(of));
    }
    if sharing.entries == 0 {
        return json!({ "obj_count": count(0), "ddt_object_stats": classes });
    }
    classes.insert("total".to_owned(), class(&total(sharing)));
    json!({
        "obj_count": count(sharing.entries),
        "dspace": bytes(sharing.table_bytes),
        "mspace": bytes(sharing.index_bytes),
        "index_filled": sharing.index_filled,
        "ddt_object_stats": classes,
    })
}

fn text(cells: &[String; 4]) -> [&str; 4] {
    [&cells[0], &cells[1], &cells[2], &cells[3]]
}

fn row(bucket: &str, allocated: [&str; 4], referenced: [&str; 4]) -> String {
    let part = |[blocks, lsize, psize, dsize]: [&str; 4]| {
        format!("{blocks:>6}   {lsize:>5}   {psize:>5}   {dsize:>5}")
    };
    format!("{bucket:>6}   {}   {}", part(allocated), part(referenced))
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_control::api::SharingClassReport;

    #[test]
    fn a_table_of_classes_adds_up() {
        let class = |references, blocks: u64| SharingClassReport {
            references,
            allocated: [blocks, blocks << 17, blocks << 17, blocks << 17],
            referenced: [blocks * references, 0, 0, 0],
        };
        let sharing = SharingReport {
            entries: 3000,
            table_bytes: 786_432,
            index_bytes: 120_000,
            index_filled: true,
            classes: vec![class(1, 2000), class(2, 1000)],
        };
        let lines = status_lines(&sharing, false);
        assert_eq!(lines[0], " dedup: DDT entries 3000, size 768K on disk, 117K in core");
        assert_eq!(lines.len(), 9);
        let unfilled = SharingReport { index_filled: false, ..sharing.clone() };
        assert!(status_lines(&unfilled, false)[0].ends_with("117K in core, being read"));
        assert!(lines[8].trim_start().starts_with("Total    2.93K    375M"), "{}", lines[8]);
        assert_eq!(status_lines(&SharingReport::default(), false), [" dedup: no DDT entries"]);
        let told = as_json(&sharing, false, true);
        assert_eq!((&told["obj_count"], &told["dspace"]), (&json!(3000), &json!(786_432)));
        let classes = told["ddt_object_stats"].as_object().unwrap();
        assert_eq!(classes.keys().collect::<Vec<_>>(), ["0", "1", "total"]);
        assert_eq!((&classes["1"]["blocks"], &classes["1"]["ref_blocks"]), (&json!(1000), &json!(2000)));
        assert_eq!(classes["total"]["logical_size"], json!(3000_u64 << 17));
        assert_eq!(as_json(&sharing, false, false)["dspace"], json!("768K"));
        assert_eq!(as_json(&SharingReport::default(), true, false)["obj_count"], json!("0"));
    }
}
