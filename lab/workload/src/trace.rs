//! Traces: what was done to which device when, read from text.
//!
//! | format | told by | a line |
//! |---|---|---|
//! | ours | first line `steadfast trace 1` | `seconds device operation offset bytes`; operations `read write flush trim`, or their first letter; `#` begins a comment |
//! | fio | first line `fio version 2 iolog` | `file action [offset length]`; `wait` has microseconds after the `wait` before it |
//! | | or `fio version 3 iolog` | `microseconds file action [offset length]` |
//! | blkparse | neither | what blkparse(1) prints: `8,0 3 11 0.009507758 697 Q WS 223490 + 56 [kjournald]`; sectors of 512 bytes |
//!
//! Of blkparse's events those are taken that queue an operation (`Q`); where there is none of them,
//! those that hand one to the device (`D`). The device `8,0` is written `8:0` in parameter files,
//! because a comma parts a list.
//!
//! A trace is kept in memory, 32 bytes an operation, and there are at most [`OPERATIONS_MAX`] of
//! them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Two gigabytes of them.
const OPERATIONS_MAX: usize = 64 << 20;
/// Longer lines are no text.
const LINE_MAX: u64 = 64 << 10;
/// No transfer is longer: each thread has a buffer for one.
const LENGTH_MAX: u64 = 1 << 30;
const SECTOR: u64 = 512;
const OURS: &str = "steadfast trace 1";

/// Operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Read,
    Write,
    Flush,
}

/// One operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Traced {
    /// After the first one.
    pub at_ns: u64,
    pub address: u64,
    pub length: u32,
    pub device: u16,
    pub kind: Kind,
}

/// A device, or a file, of the trace.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Device {
    pub name: String,
    /// End of the furthest byte that was used.
    pub end: u64,
    pub operations: u64,
}

/// All of it, in the order of time.
#[derive(Debug)]
pub(crate) struct Trace {
    /// For the operator.
    pub format: &'static str,
    pub devices: Vec<Device>,
    pub operations: Vec<Traced>,
    /// Trims and discards, which are not carried out.
    pub trims: u64,
}

/// Reads a trace. The sentence says what cannot be read, with the number of its line.
pub(crate) fn read(path: &Path) -> Result<Trace, String> {
    let name = path.display();
    let file = File::open(path).map_err(|e| format!("'{name}' cannot be read: {e}"))?;
    parse(BufReader::with_capacity(1 << 20, file)).map_err(|why| format!("'{name}'{why}"))
}

/// State while lines are read.
#[derive(Default)]
struct Gathered {
    devices: Vec<Device>,
    known: HashMap<String, u16>,
    operations: Vec<Traced>,
    trims: u64,
}

/// A line's meaning.
enum Line {
    Nothing,
    Trim,
    Operation(Kind, u64, u64),
}

impl Gathered {
    fn device(&mut self, name: &str) -> Result<u16, String> {
        if let Some(at) = self.known.get(name) {
            return Ok(*at);
        }
        let at = u16::try_from(self.devices.len()).map_err(|_| "more than 65,536 devices".to_string())?;
        self.known.insert(name.to_string(), at);
        self.devices.push(Device { name: name.to_string(), end: 0, operations: 0 });
        Ok(at)
    }

    fn add(&mut self, at_ns: u64, device: &str, line: Line) -> Result<(), String> {
        let (kind, address, length) = match line {
            Line::Nothing => return Ok(()),
            Line::Trim => {
                self.trims += 1;
                return Ok(());
            }
            Line::Operation(kind, address, length) => (kind, address, length),
        };
        if kind != Kind::Flush && length == 0 {
            return Ok(());
        }
        let end = address.checked_add(length).filter(|end| *end < 1 << 62);
        let (Some(end), true) = (end, length <= LENGTH_MAX) else {
            return Err(format!("{length} bytes at {address} are no transfer"));
        };
        if self.operations.len() >= OPERATIONS_MAX {
            return Err(format!("more than {OPERATIONS_MAX} operations; replay a part of it"));
        }
        let device = self.device(device)?;
        let known = &mut self.devices[usize::from(device)];
        known.end = known.end.max(if kind == Kind::Flush { 0 } else { end });
        known.operations += 1;
        self.operations.push(Traced { at_ns, address, length: length as u32, device, kind });
        Ok(())
    }
}

/// Tells which of a word's ways to be written is meant.
fn operation(word: &str) -> Option<Option<Kind>> {
    Some(match word {
        "read" | "r" => Some(Kind::Read),
        "write" | "w" => Some(Kind::Write),
        "flush" | "f" | "sync" | "datasync" | "sync_file_range" => Some(Kind::Flush),
        "trim" | "t" => None,
        _ => return None,
    })
}

/// `12.345` seconds in nanoseconds; further digits are cut.
fn nanoseconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) {
        return None;
    }
    let part: String = part.chars().chain(std::iter::repeat('0')).take(9).collect();
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part.parse().ok()?)
}

/// The words behind an operation: where and how much.
fn transfer(kind: Option<Kind>, words: &[&str]) -> Result<Line, String> {
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    Ok(match (kind, number(0), number(1)) {
        (None, ..) => Line::Trim,
        (Some(Kind::Flush), ..) => Line::Operation(Kind::Flush, 0, 0),
        (Some(kind), Some(offset), Some(length)) => Line::Operation(kind, offset, length),
        _ => return Err("an offset and a length are missing".into()),
    })
}

fn ours(words: &[&str], to: &mut Gathered) -> Result<(), String> {
    if words.first().is_none_or(|word| word.starts_with('#')) {
        return Ok(());
    }
    let [seconds, device, word, rest @ ..] = words else {
        return Err("a line is: seconds device operation offset bytes".into());
    };
    let at = nanoseconds(seconds).ok_or_else(|| format!("'{seconds}' is not a number of seconds"))?;
    let kind =
        operation(word).ok_or_else(|| format!("'{word}' is not an operation: read, write, flush or trim"))?;
    to.add(at, device, transfer(kind, rest)?)
}

fn fio(words: &[&str], at_ns: u64, waited: &mut u64, to: &mut Gathered) -> Result<(), String> {
    let [file, action, rest @ ..] = words else { return Err("a line is: file action offset length".into()) };
    match *action {
        "add" | "open" | "close" => Ok(()),
        "wait" => {
            let wait = rest.first().and_then(|word| word.parse::<u64>().ok());
            let wait = wait.ok_or("a wait has no microseconds")?;
            *waited = waited.saturating_add(wait.saturating_mul(1_000));
            Ok(())
        }
        word => {
            let kind = operation(word).ok_or_else(|| format!("'{word}' is not an action of fio"))?;
            to.add(at_ns, file, transfer(kind, rest)?)
        }
    }
}

/// A line of blkparse(1); what is none of its events is passed over, as its summaries are. Whether
/// it was one.
fn blkparse(words: &[&str], wanted: &str, to: &mut Gathered) -> Result<bool, String> {
    let [device, _, _, time, _, action, flags, rest @ ..] = words else { return Ok(false) };
    let Some((major, minor)) = device.split_once(',') else { return Ok(false) };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (Some(at), true, true) = (nanoseconds(time), number(major), number(minor)) else { return Ok(false) };
    if *action != wanted {
        return Ok(false);
    }
    let of_sectors = |word: &str| word.parse::<u64>().ok()?.checked_mul(SECTOR);
    let place = match rest {
        [sector, "+", sectors, ..] => of_sectors(sector).zip(of_sectors(sectors)),
        _ => None,
    };
    let line = match (flags, place) {
        (flags, _) if flags.contains('D') => Line::Trim,
        (flags, Some((offset, length))) if length > 0 && flags.contains('R') => {
            Line::Operation(Kind::Read, offset, length)
        }
        (flags, Some((offset, length))) if length > 0 && flags.contains('W') => {
            Line::Operation(Kind::Write, offset, length)
        }
        (flags, _) if flags.starts_with('F') => Line::Operation(Kind::Flush, 0, 0),
        _ => Line::Nothing,
    };
    to.add(at, &format!("{major}:{minor}"), line)?;
    Ok(true)
}

/// The next line, without its end; `None` behind the last.
fn line<'a>(from: &mut impl BufRead, buffer: &'a mut Vec<u8>) -> Result<Option<&'a str>, String> {
    buffer.clear();
    let count = from.by_ref().take(LINE_MAX).read_until(b'\n', buffer).map_err(|e| format!(": {e}"))?;
    if count as u64 == LINE_MAX {
        return Err(" has a line that never ends: it is not a text file".into());
    }
    let text = std::str::from_utf8(buffer).map_err(|_| " is not a text file".to_string())?;
    Ok((count > 0).then(|| text.trim_end()))
}

fn parse(mut from: impl BufRead) -> Result<Trace, String> {
    match from.fill_buf().map_err(|e| format!(": {e}"))? {
        [0x1f, 0x8b, ..] => return Err(" is compressed: gunzip it first".into()),
        // A flat file of Swat's and blktrace's own files are binary.
        bytes if bytes.contains(&0) => {
            return Err(" is binary: of blktrace's files take the text that blkparse -i prints".into());
        }
        _ => {}
    }
    let mut buffer = Vec::new();
    let first = line(&mut from, &mut buffer)?.unwrap_or_default().to_string();
    let format = match first.as_str() {
        OURS => OURS,
        "fio version 2 iolog" => "fio's iolog, version 2",
        "fio version 3 iolog" => "fio's iolog, version 3",
        text if text.starts_with("fio version") || text.starts_with("steadfast trace") => {
            return Err(format!(" is of a version that is not known: {text}"));
        }
        _ => "blkparse",
    };
    let (mut found, mut issued) = (Gathered::default(), Gathered::default());
    // Of fio: `wait`s until now, and where the times of this part of the log begin.
    let (mut waited, mut base) = (0, 0u64);
    let mut number = 1u64;
    let mut text = if format == "blkparse" { Some(first.clone()) } else { None };
    loop {
        let now = match text.take() {
            Some(text) => text,
            None => match line(&mut from, &mut buffer)? {
                None => break,
                Some(text) => {
                    number += 1;
                    text.to_string()
                }
            },
        };
        let words: Vec<&str> = now.split_ascii_whitespace().collect();
        let done = match format {
            OURS => ours(&words, &mut found),
            // fio appends to a log that is there: each part has a head and times of its own.
            "fio's iolog, version 2" | "fio's iolog, version 3" if now == first => {
                base = found.operations.last().map_or(0, |last| last.at_ns);
                Ok(())
            }
            "fio's iolog, version 2" if words.is_empty() => Ok(()),
            "fio's iolog, version 2" => fio(&words, waited, &mut waited, &mut found),
            "fio's iolog, version 3" => match words.split_first() {
                None => Ok(()),
                Some((time, rest)) => match time.parse::<u64>().ok().and_then(|us| us.checked_mul(1_000)) {
                    Some(at) => fio(rest, base.saturating_add(at), &mut waited, &mut found),
                    None => Err(format!("'{time}' is not a number of microseconds")),
                },
            },
            _ => blkparse(&words, "Q", &mut found).and_then(|queued| {
                if !queued && found.operations.is_empty() {
                    blkparse(&words, "D", &mut issued)?;
                }
                Ok(())
            }),
        };
        done.map_err(|why| format!(", line {number}: {why}"))?;
    }
    if found.operations.is_empty() {
        found = issued;
    }
    if found.operations.is_empty() {
        return Err(" has no operation that is known: a trace is text of blkparse(1), an iolog of fio, or begins with \
                    'steadfast trace 1'"
            .into());
    }
    // Several processors write one trace.
    found.operations.sort_by_key(|operation| operation.at_ns);
    let first = found.operations[0].at_ns;
    found.operations.iter_mut().for_each(|operation| operation.at_ns -= first);
    Ok(Trace { format, devices: found.devices, operations: found.operations, trims: found.trims })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Trace, String> {
        parse(text.as_bytes())
    }

    fn shown(trace: &Trace) -> Vec<(u64, &str, Kind, u64, u32)> {
        let name = |operation: &Traced| trace.devices[usize::from(operation.device)].name.as_str();
        trace.operations.iter().map(|o| (o.at_ns, name(o), o.kind, o.address, o.length)).collect()
    }

    #[test]
    fn ours_says_seconds_device_operation_offset_and_bytes() {
        let trace =
            of("steadfast trace 1\n# a comment\n\n10.5 a read 4096 8192\n10.25 b w 0 512\n11 a flush\n\
                        11.1 a t 0 4096\n")
            .unwrap();
        let wanted = [
            (0, "b", Kind::Write, 0, 512),
            (250_000_000, "a", Kind::Read, 4096, 8192),
            (750_000_000, "a", Kind::Flush, 0, 0),
        ];
        assert_eq!((shown(&trace), trace.trims), (wanted.to_vec(), 1));
        let a = Device { name: "a".into(), end: 12288, operations: 2 };
        assert_eq!(trace.devices[0], a);
    }

    #[test]
    fn both_versions_of_fio_are_read_as_it_writes_them() {
        let old = "fio version 2 iolog\n/f add\n/f open\n/f read 0 4096\n/f wait 250 0\n/f write 45056 4096\n\
                   /f wait 750 0\n/f sync 0 0\n/f close\n";
        let new = "fio version 3 iolog\n23 /f add\n246 /f open\n251 /f read 0 4096\n501 /f write 45056 4096\n\
                   1251 /f sync 0 0\n1300 /f close\n";
        let wanted = vec![
            (0, "/f", Kind::Read, 0, 4096),
            (250_000, "/f", Kind::Write, 45056, 4096),
            (1_000_000, "/f", Kind::Flush, 0, 0),
        ];
        for text in [old, new] {
            assert_eq!(shown(&of(text).unwrap()), wanted, "{text}");
            // A second log behind the first goes on where that ended.
            let twice = shown(&of(&format!("{text}{text}")).unwrap())
                .into_iter()
                .map(|line| line.0)
                .collect::<Vec<_>>();
            assert_eq!(
                (twice.len(), &twice[..3], twice.is_sorted()),
                (6, &[0, 250_000, 1_000_000][..], true),
                "{text}"
            );
        }
    }

    #[test]
    fn blkparse_is_read_by_what_was_queued_or_else_by_what_was_issued() {
        let lines = "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n  \
                       8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]\n  \
                       8,0    3        3     0.000002197   697  D   W 223490 + 8 [kjournald]\n  \
                       8,16   1        4     0.500000000   698  Q  RA 0 + 256 [cat]\n  \
                       8,0    1        5     0.600000000   698  Q FWS [fsync]\n  \
                       8,0    1        6     0.700000000   698  Q  DS 0 + 2048 [fstrim]\n  \
                       8,0    1        7     0.800000000     0  C   W 223490 + 8 [0]\n  \
                       8,0    1        0     0.900000000     0  m   N cfq workload slice:300\n\
                     CPU0 (8,0):\n Reads Queued:           1,      128KiB\n";
        let trace = of(lines).unwrap();
        let wanted = vec![
            (0, "8:0", Kind::Write, 223490 * 512, 4096),
            (500_000_000, "8:16", Kind::Read, 0, 131_072),
            (600_000_000, "8:0", Kind::Flush, 0, 0),
        ];
        assert_eq!((shown(&trace), trace.trims, trace.format), (wanted, 1, "blkparse"));
        let issued: String =
            lines.lines().filter(|line| !line.contains(" Q ")).map(|l| l.to_owned() + "\n").collect();
        assert_eq!(shown(&of(&issued).unwrap()), [(0, "8:0", Kind::Write, 223490 * 512, 4096)]);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        for (text, why) in [
            ("", "has no operation"),
            ("rd=r,wd=w\n", "has no operation"),
            ("steadfast trace 2\n", "version that is not known"),
            ("fio version 4 iolog\n", "version that is not known"),
            ("steadfast trace 1\n1 a read 0\n", ", line 2: an offset and a length"),
            ("steadfast trace 1\nx a read 0 1\n", ", line 2: 'x' is not a number of seconds"),
            ("steadfast trace 1\n\n1 a erase 0 1\n", ", line 3: 'erase' is not an operation"),
            ("steadfast trace 1\n1 a read 18446744073709551615 2\n", "are no transfer"),
            ("steadfast trace 1\n1 a read 0 2000000000\n", "are no transfer"),
            ("fio version 2 iolog\n/f wait\n", ", line 2: a wait"),
            ("fio version 3 iolog\n/f read 0 4096\n", ", line 2: '/f' is not a number"),
            ("\u{1f}binary\0", "is binary"),
        ] {
            let said = of(text).unwrap_err();
            assert!(said.contains(why), "{text:?}: {said}");
        }
        assert!(parse(&[0x1f, 0x8b, 8, 0][..]).unwrap_err().contains("gunzip"));
        let long = format!("steadfast trace 1\n{}\n", "x".repeat(100_000));
        assert!(of(&long).unwrap_err().contains("never ends"));
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let whole =
            "steadfast trace 1\n0.1 a read 0 4096\n0.2 b write 4096 512\n0.3 a flush\n0.4 b trim 0 1\n";
        let others = ["fio version 3 iolog\n1 /f read 0 1\n", "8,0 3 1 0.0 697 Q W 22 + 8 [k]\n"];
        let mut random = crate::random::Random::new(&[11]);
        for round in 0..3_000 {
            let mut bytes = [&[whole][..], &others].concat()[round % 3].as_bytes().to_vec();
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes.truncate(at),
                _ => bytes.insert(at, b"9.,+ \n-"[random.below(7) as usize]),
            }
            let _ = parse(&bytes[..]);
        }
    }
}
