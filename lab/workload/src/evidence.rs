//! The report of a corrupted block: place, expected and found bytes. The shapes are vdbench's.

use std::path::Path;

const SECTOR: usize = 512;
/// Bytes of a line of a dump.
const LINE: usize = 16;
/// Lines of a sector's data that are shown; the first two, its header, always are.
const LINES_MAX: usize = 8;

/// The storage or file that a block belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    /// `sd=` or `fsd=`.
    pub name: &'a str,
    /// It is a file of a tree.
    pub tree: bool,
    pub path: &'a Path,
}

/// Heading of the report of one transfer.
pub(crate) fn title(owner: Owner<'_>, lba: u64, length: usize) -> String {
    let (name, path) = (owner.name, owner.path.display());
    if owner.tree {
        return format!(
            "Corrupted data block for fsd={name},file={path}; file lba: 0x{lba:08x} xfersize={length}"
        );
    }
    let shown = steadfast_lab_params::thousands(lba);
    format!("Corrupted data block for sd={name},lun={path}; lba: {shown} (0x{lba:08x}) xfersize={length}")
}

/// A date as vdbench writes it.
fn date(ms: u64) -> String {
    let time = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    match time {
        Some(time) => time.strftime("%a %b %d %Y %H:%M:%S%.3f UTC").to_string(),
        None => format!("no date (0x{ms:x})"),
    }
}

/// Whether the sum in a sector is that of its time.
fn sum_is_right(sector: &[u8]) -> bool {
    let sum = sector.get(8..16).unwrap_or_default().iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    sector.get(17) == Some(&sum)
}

/// Times of a block, in their order. `written`: what is remembered of its last write, `now`: both
/// milliseconds since 1970.
fn timeline(first: &[u8], written: Option<u64>, now: u64, during: &str) -> Vec<String> {
    let mut times = Vec::new();
    if let Some(at) = written.filter(|at| *at > 0) {
        times.push((at, "The last write of this key block began.".to_string()));
    }
    if sum_is_right(first) {
        let text = "The first corrupted sector was written, as it says itself.";
        times.push((number(first, 8, 8), text.to_string()));
    }
    times.push((now, format!("The key block was found to be corrupted during {during}.")));
    times.sort();
    let mut lines = vec!["   Timeline:".to_string()];
    if !sum_is_right(first) {
        lines.push("   The first corrupted sector has no valid time.".to_string());
    }
    lines.extend(times.into_iter().map(|(at, text)| format!("   {} {text}", date(at))));
    lines
}

/// A key block that is not what it should be.
pub(crate) struct Bad<'a> {
    pub lba: u64,
    pub expected: &'a [u8],
    pub found: &'a [u8],
    /// The time of its last write, where times are remembered.
    pub written: Option<u64>,
    /// Now, milliseconds since 1970.
    pub now: u64,
    pub during: &'a str,
}

/// The report of one key block. Sectors that are wrong in the same way are told once, by the first.
pub(crate) fn block(owner: Owner<'_>, bad: &Bad<'_>) -> Vec<String> {
    let Bad { lba, expected, found, .. } = *bad;
    let pairs = expected.chunks(SECTOR).zip(found.chunks(SECTOR)).enumerate();
    let wrong: Vec<(usize, &[u8], &[u8])> =
        pairs.filter(|(_, (e, f))| e != f).map(|(at, (e, f))| (at, e, f)).collect();
    let total = found.len().div_ceil(SECTOR);
    let bytes = steadfast_lab_params::thousands(found.len() as u64);
    let mut lines = vec![
        format!("Key block lba: 0x{lba:08x}"),
        format!("   Key block of {bytes} bytes has {total} 512-byte sectors."),
    ];
    let first = wrong.first().map_or(&[][..], |(_, _, found)| found);
    lines.extend(timeline(first, bad.written, bad.now, bad.during));
    lines.push(format!("   {} of {total} sectors are corrupted.", wrong.len()));
    let kinds: Vec<Vec<&str>> = wrong.iter().map(|(_, e, f)| kinds(e, f)).collect();
    let alike = wrong.len() == total && kinds.iter().all(|kind| *kind == kinds[0]);
    let told = if alike { 1 } else { wrong.len() };
    lines.push(match alike && total > 1 {
        true => "   All sectors are wrong in the same way: the first will be reported.".to_string(),
        false => format!("   All {told} corrupted sectors will be reported."),
    });
    let (name, path, size) = (owner.name, owner.path.display(), total * SECTOR);
    for ((at, expected, found), kinds) in wrong.iter().zip(&kinds).take(told) {
        let sector = lba + (at * SECTOR) as u64;
        lines.push(String::new());
        lines.extend(match owner.tree {
            true => [
                format!(
                    "        Data Validation error for fsd={name}; Key block size: {size}; relative sector in key block: 0x{at:02x}"
                ),
                format!(
                    "        File name: {path}; file block lba: 0x{lba:08x}; bad sector file lba: 0x{sector:08x}"
                ),
            ],
            false => [
                format!("        Data Validation error for sd={name},lun={path}"),
                format!(
                    "        Block lba: 0x{lba:08x}; sector lba: 0x{sector:08x}; Key block size: {size}; relative sector in key block: 0x{at:02x} ({at:>2})"
                ),
            ],
        });
        lines.extend(kinds.iter().map(|kind| format!("        ===> {kind}")));
        lines.extend(fields(expected, found));
        lines.extend(dump(expected, found, bad.written.is_some()));
    }
    lines
}

/// In which ways a sector is wrong.
fn kinds(expected: &[u8], found: &[u8]) -> Vec<&'static str> {
    let differs = |from: usize, to: usize| expected.get(from..to) != found.get(from..to);
    let known = [
        (0, 8, "Logical byte address miscompare."),
        (8, 16, "Timestamp miscompare."),
        (16, 17, "Data Validation key miscompare."),
        (17, 18, "Checksum of the timestamp is wrong."),
        (18, 20, "Reserved bytes are not zero."),
        (20, 28, "SD or FSD name miscompare."),
        (28, 32, "Owner ID miscompare."),
        (32, found.len().max(32), "Compression pattern miscompare."),
    ];
    known.iter().filter(|(from, to, _)| differs(*from, *to)).map(|(_, _, text)| *text).collect()
}

/// The fields of the header that say which write was lost or misplaced.
fn fields(expected: &[u8], found: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, from, length) in [("Logical byte address", 0, 8), ("Key", 16, 1), ("Owner ID", 28, 4)] {
        let (wanted, got) = (number(expected, from, length), number(found, from, length));
        if wanted != got {
            lines.push(format!("        {name} expected: 0x{wanted:x}; found: 0x{got:x}"));
        }
    }
    lines.push(format!("        Timestamp found in sector: {}", date(number(found, 8, 8))));
    lines
}

/// Expected on the left, dots where nobody knows; found on the right, dots for words that are as
/// expected. A star marks lines that differ. `timed`: the time of the write is known.
fn dump(expected: &[u8], found: &[u8], timed: bool) -> Vec<String> {
    const DOTS: &str = "........";
    let words = |bytes: &[u8]| -> Vec<String> {
        let hex = |word: &[u8]| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        bytes.chunks(4).map(hex).collect()
    };
    let row = |at: usize, e: &[u8], f: &[u8]| -> (String, String) {
        let (mut left, mut right) = (words(e), words(f));
        for (word, (wanted, found)) in left.iter_mut().zip(&mut right).enumerate() {
            // Bytes 8 to 15 are the time, byte 17 is its sum.
            match (at, word) {
                (0, 2 | 3) if !timed => *wanted = DOTS.to_string(),
                (1, 0) if !timed => wanted.replace_range(2..4, ".."),
                _ if wanted == found => *found = DOTS.to_string(),
                _ => {}
            }
        }
        (left.join(" "), right.join(" "))
    };
    let lines: Vec<(usize, &[u8], &[u8])> = expected
        .chunks(LINE)
        .zip(found.chunks(LINE))
        .enumerate()
        .filter(|(at, (e, f))| *at < 2 || e != f)
        .map(|(at, (e, f))| (at, e, f))
        .collect();
    let mut out: Vec<String> = lines
        .iter()
        .take(LINES_MAX)
        .map(|(at, e, f)| {
            let star = if e == f { ' ' } else { '*' };
            let (left, right) = row(*at, e, f);
            format!("0x{:03x}{star}  {left:<35}   {right}", at * LINE)
        })
        .collect();
    if lines.len() > LINES_MAX {
        out.push(format!("       and {} more lines that differ", lines.len() - LINES_MAX));
    }
    out
}

/// A big-endian number of a sector; 0 where the sector is too short.
pub(crate) fn number(bytes: &[u8], from: usize, length: usize) -> u64 {
    let field = bytes.get(from..from + length).unwrap_or_default();
    field.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
