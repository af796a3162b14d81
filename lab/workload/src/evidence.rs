//! The report of a corrupted block: place, expected and found bytes. The shapes are vdbench's.

use std::path::Path;

const SECTOR: usize = 512;
/// Bytes of a line of a dump.
const LINE: usize = 16;
/// Lines of a sector's data that are shown; the first two, its header, always are.
const LINES_MAX: usize = 8;

/// Heading of the report of one transfer.
pub(crate) fn title(name: &str, path: &Path, lba: u64, length: usize) -> String {
    let shown = steadfast_lab_params::thousands(lba);
    format!(
        "Corrupted data block for {name},lun={}; lba: {shown} (0x{lba:08x}) xfersize={length}",
        path.display()
    )
}

/// The report of one key block. Sectors that are wrong in the same way are told once, by the first.
pub(crate) fn block(lba: u64, expected: &[u8], found: &[u8], during: &str) -> Vec<String> {
    let pairs = expected.chunks(SECTOR).zip(found.chunks(SECTOR)).enumerate();
    let wrong: Vec<(usize, &[u8], &[u8])> =
        pairs.filter(|(_, (e, f))| e != f).map(|(at, (e, f))| (at, e, f)).collect();
    let total = found.len().div_ceil(SECTOR);
    let mut lines = vec![
        format!("Key block lba: 0x{lba:08x}"),
        format!("   Key block of {} bytes was found to be corrupted during {during}.", found.len()),
        format!("   {} of {total} sectors are corrupted.", wrong.len()),
    ];
    let kinds: Vec<Vec<&str>> = wrong.iter().map(|(_, e, f)| kinds(e, f)).collect();
    let alike = wrong.len() == total && kinds.iter().all(|kind| *kind == kinds[0]);
    let told = if alike { 1 } else { wrong.len() };
    lines.push(match alike && total > 1 {
        true => "   All sectors are wrong in the same way: the first will be reported.".to_string(),
        false => format!("   All {told} corrupted sectors will be reported."),
    });
    for ((at, expected, found), kinds) in wrong.iter().zip(&kinds).take(told) {
        let sector = lba + (at * SECTOR) as u64;
        lines.push(format!(
            "        Block lba: 0x{lba:08x}; sector lba: 0x{sector:08x}; Key block size: {}; relative sector in key block: 0x{at:02x} ({at:>2})",
            total * SECTOR
        ));
        lines.extend(kinds.iter().map(|kind| format!("        ===> {kind}")));
        lines.extend(fields(expected, found));
        lines.extend(dump(expected, found));
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
    lines.push(format!("        Timestamp found in sector: {} ms since 1970", number(found, 8, 8)));
    lines
}

/// Expected on the left, found on the right; a star marks lines that differ.
fn dump(expected: &[u8], found: &[u8]) -> Vec<String> {
    let hex = |bytes: &[u8]| {
        let words: Vec<String> = bytes
            .chunks(4)
            .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
            .collect();
        words.join(" ")
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
            format!("0x{:03x}{star}  {:<35}   {}", at * LINE, hex(e), hex(f))
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
