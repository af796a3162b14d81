//! Meaning of single values: one function per kind of value.

use crate::error::{Error, ErrorKind, nearest};
use crate::lexer::Item;
use crate::model::*;
use crate::number::{Number, Unit, number, numbers};

/// Larger than any storage, small enough for signed offsets.
const BYTES_MAX: f64 = 4.0e18;
/// 1,000 days.
const SECONDS_MAX: f64 = 86_400_000.0;
/// Threads of one definition.
const THREADS_MAX: f64 = 4_096.0;

pub(crate) fn bad(item: &Item, text: impl Into<String>) -> Error {
    let word = item.values.first().map_or("", |v| v.text.as_str());
    Error::new(ErrorKind::BadValue, &item.place, word, text.into())
}

/// The single value of an item.
pub(crate) fn single(item: &Item) -> Result<&str, Error> {
    match item.values.as_slice() {
        [value] => Ok(&value.text),
        _ => Err(bad(item, format!("{}= takes one value", item.keyword))),
    }
}

pub(crate) fn plain(item: &Item, unit: Unit, low: f64, high: f64) -> Result<f64, Error> {
    let text = single(item)?;
    match number(text, unit) {
        Some(Number::Plain(value)) => within(item, value, low, high),
        _ => {
            let error = bad(item, format!("{}=: '{text}' is not a number", item.keyword));
            let units = if unit == Unit::Size { "k, m, g, t" } else { "s, m, h" };
            Err(error.hint(match text.contains(['#', '*', '/']) {
                true => "put a blank before a comment".to_string(),
                false => format!("units are {units}"),
            }))
        }
    }
}

fn within(item: &Item, value: f64, low: f64, high: f64) -> Result<f64, Error> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(bad(item, format!("{}={value} is out of range", item.keyword))
        .hint(format!("allowed: {low} to {high}")))
}

pub(crate) fn bytes(item: &Item, low: u64) -> Result<u64, Error> {
    Ok(plain(item, Unit::Size, low as f64, BYTES_MAX)? as u64)
}

pub(crate) fn seconds(item: &Item, low: u64) -> Result<u64, Error> {
    let value = plain(item, Unit::Time, low as f64, SECONDS_MAX)?;
    if value.fract() != 0.0 {
        return Err(bad(item, format!("{}= takes whole seconds", item.keyword)));
    }
    Ok(value as u64)
}

pub(crate) fn percent(item: &Item) -> Result<f64, Error> {
    let text = single(item)?;
    match number(text, Unit::Size) {
        Some(Number::Plain(value) | Number::Percent(value)) => within(item, value, 0.0, 100.0),
        None => Err(bad(item, format!("{}=: '{text}' is not a percentage", item.keyword))),
    }
}

pub(crate) fn choice<'a>(item: &Item, text: &str, known: &[&'a str]) -> Result<&'a str, Error> {
    let lower = text.to_ascii_lowercase();
    if let Some(found) = known.iter().find(|k| **k == lower) {
        return Ok(found);
    }
    let error = bad(item, format!("{}={text} is not known", item.keyword));
    Err(match nearest(&lower, known.iter().copied()) {
        Some(near) => error.hint(format!("did you mean '{near}'?")),
        None => error.hint(format!("known: {}", known.join(", "))),
    })
}

pub(crate) fn yes_or_no(item: &Item) -> Result<bool, Error> {
    Ok(matches!(choice(item, single(item)?, &["yes", "no", "y", "n"])?, "yes" | "y"))
}

pub(crate) fn openflags(item: &Item) -> Result<OpenFlags, Error> {
    let mut flags = OpenFlags::default();
    for value in &item.values {
        let known = [
            "o_direct",
            "directio",
            "o_sync",
            "o_dsync",
            "o_rsync",
            "fsync",
            "fsync_each",
            "0x4000",
            "0x1000",
            "none",
        ];
        match choice(item, &value.text, &known)? {
            "o_direct" | "directio" | "0x4000" => flags.direct = true,
            "fsync" => flags.fsync = true,
            "fsync_each" => flags.fsync_each = true,
            "none" => {}
            _ => flags.dsync = true,
        }
    }
    Ok(flags)
}

pub(crate) fn xfersize(item: &Item) -> Result<XferSize, Error> {
    let list = plain_list(item, Unit::Size)?;
    let size = |v: f64| within(item, v, 1.0, (1u64 << 30) as f64).map(|v| v as u64);
    match list.as_slice() {
        [one] => Ok(XferSize::Fixed(size(*one)?)),
        [low, high, align] if *low <= *high && *align > 100.0 => {
            let (low, high, align) = (size(*low)?, size(*high)?, size(*align)?);
            if low % align != 0 || high % align != 0 {
                return Err(bad(item, "xfersize=(min,max,align): min and max must be multiples of align"));
            }
            Ok(XferSize::Between { low, high, align })
        }
        list if list.len() % 2 == 0 && !list.is_empty() => Ok(XferSize::Weighted(weighted(item, list)?)),
        _ => Err(bad(item, "xfersize= takes one size, (size,percent,...) or (min,max,align)")),
    }
}

/// Whether percentages make the whole. People round them: 33.34 three times is 100.02.
pub(crate) fn whole(sum: f64) -> bool {
    sum.trunc() == 100.0 || (sum - 100.0).abs() <= 0.01
}

/// `(value,percent,...)`, summing to 100.
fn weighted(item: &Item, list: &[f64]) -> Result<Vec<(u64, f64)>, Error> {
    let pairs: Vec<(u64, f64)> = list.chunks_exact(2).map(|pair| (pair[0] as u64, pair[1])).collect();
    let sum: f64 = pairs.iter().map(|(_, percent)| percent).sum();
    if !whole(sum) {
        return Err(bad(item, format!("the percentages of {}= add up to {sum}, not to 100", item.keyword)));
    }
    if pairs.iter().any(|(size, _)| *size == 0) {
        return Err(bad(item, format!("{}= contains a size of zero", item.keyword)));
    }
    Ok(pairs)
}

pub(crate) fn sizes(item: &Item) -> Result<Vec<(u64, f64)>, Error> {
    let list = plain_list(item, Unit::Size)?;
    match list.as_slice() {
        [one] => Ok(vec![(within(item, *one, 0.0, BYTES_MAX)? as u64, 100.0)]),
        [average, 0.0] => Ok(vec![(within(item, *average, 1.0, BYTES_MAX / 2.0)? as u64, 0.0)]),
        list if list.len() % 2 == 0 && !list.is_empty() => weighted(item, list),
        _ => Err(bad(item, "sizes= takes one size or (size,percent,...)")),
    }
}

fn plain_list(item: &Item, unit: Unit) -> Result<Vec<f64>, Error> {
    let list = numbers(item, unit)?;
    list.into_iter()
        .map(|n| match n {
            Number::Plain(value) | Number::Percent(value) => within(item, value, 0.0, BYTES_MAX),
        })
        .collect()
}

pub(crate) fn seek_text(item: &Item, text: &str) -> Result<Seek, Error> {
    if let Some(Number::Plain(value) | Number::Percent(value)) = number(text, Unit::Size) {
        return Ok(Seek::Percent(within(item, value, 0.0, 100.0)?));
    }
    // vdbench takes any beginning of its words.
    let lower = text.to_ascii_lowercase();
    let begun = ["random", "sequential"].into_iter().find(|word| lower.len() > 1 && word.starts_with(&lower));
    Ok(
        match choice(
            item,
            begun.unwrap_or(text),
            &["random", "sequential", "seq", "seqnz", "sequentialnz", "eof", "backward"],
        )? {
            "random" => Seek::Percent(100.0),
            "eof" => Seek::Eof,
            "backward" => Seek::Backward,
            "seqnz" | "sequentialnz" => Seek::SequentialFromAnywhere,
            _ => Seek::Percent(0.0),
        },
    )
}

pub(crate) fn seek(item: &Item) -> Result<Seek, Error> {
    if item.values.first().is_some_and(|value| value.text.eq_ignore_ascii_case("poisson")) {
        return Ok(Seek::Poisson(midpoint(item, &item.values[1..])?));
    }
    seek_text(item, single(item)?)
}

/// vdbench's `n` of `(poisson,n)` where none is said.
const MIDPOINT: f64 = 3.0;

/// The number behind `poisson`, or what vdbench takes; `skewed,midpoint=3` is an older spelling of
/// it.
fn midpoint(item: &Item, rest: &[crate::lexer::Value]) -> Result<f64, Error> {
    let [value] = rest else {
        return if rest.is_empty() { Ok(MIDPOINT) } else { Err(bad(item, "poisson takes one number")) };
    };
    let text = value.text.strip_prefix("midpoint=").unwrap_or(&value.text);
    match number(text, Unit::Size) {
        Some(Number::Plain(value)) => within(item, value, 0.001, 1e9),
        _ => Err(bad(item, format!("poisson: '{text}' is not a number"))),
    }
}

/// `mask=(file)` or `mask=(file,directory)`.
pub(crate) fn mask(item: &Item) -> Result<(String, String), Error> {
    let words: Vec<&str> = item.values.iter().map(|value| value.text.as_str()).collect();
    let (file, directory) = match words.as_slice() {
        [file] if file.eq_ignore_ascii_case("default") => (FILE_MASK, DIRECTORY_MASK),
        [file] => (*file, DIRECTORY_MASK),
        [file, directory] => (*file, *directory),
        _ => return Err(bad(item, "mask= takes (file,directory)")),
    };
    let numbers = |mask: &str| mask_numbers(mask);
    if numbers(file) != Some(1) || numbers(directory) != Some(2) {
        let text =
            "mask=(file,directory) needs one number for the file and two (level and place) for the directory";
        return Err(bad(item, text).hint("such as mask=(vdb_f%04d.file,vdb.%d_%d.dir)"));
    }
    Ok((file.to_string(), directory.to_string()))
}

/// Names of files as vdbench gives them.
const FILE_MASK: &str = "vdb_f%04d.file";
/// Names of directories.
const DIRECTORY_MASK: &str = "vdb.%d_%d.dir";

/// How many numbers a mask has; `None` if it is none that a name can be made of.
fn mask_numbers(mask: &str) -> Option<usize> {
    let mut count = 0;
    let mut rest = mask;
    if mask.is_empty() || mask.contains('/') || mask.len() > 100 {
        return None;
    }
    while let Some(at) = rest.find('%') {
        let digits = rest[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let width = &rest[at + 1..at + 1 + digits];
        if !rest[at + 1 + digits..].starts_with('d') || width.parse::<usize>().is_ok_and(|width| width > 20) {
            return None;
        }
        count += 1;
        rest = &rest[at + 2 + digits..];
    }
    Some(count)
}

pub(crate) fn range(item: &Item) -> Result<Range, Error> {
    let list = plain_list(item, Unit::Size)?;
    let [low, high] = list.as_slice() else { return Err(bad(item, "range= takes (low,high)")) };
    if high <= low {
        return Err(bad(item, "range=(low,high): high must be greater than low"));
    }
    if *high <= 200.0 {
        if *low >= 100.0 {
            return Err(bad(item, "range=(low,high) in per cent: low must be below 100"));
        }
        return Ok(Range::Percent { low: *low, high: *high });
    }
    Ok(Range::Bytes { low: *low as u64, high: *high as u64 })
}

/// `deduphotsets=(sets,blocks,...)`.
pub(crate) fn hot_sets(item: &Item) -> Result<HotSets, Error> {
    // As many as vdbench counts.
    const BLOCKS_MAX: u64 = 1_000_000;
    let list = plain_list(item, Unit::Size)?;
    if !list.len().is_multiple_of(2) || list.is_empty() || list.len() > 2 * HOT_PAIRS_MAX {
        let text = format!("deduphotsets= takes pairs of sets and blocks, up to {HOT_PAIRS_MAX}");
        return Err(bad(item, text).hint("ten sets of three blocks: deduphotsets=(10,3)"));
    }
    let mut hot = HotSets::default();
    for (pair, numbers) in hot.pairs.iter_mut().zip(list.chunks_exact(2)) {
        if numbers.iter().any(|number| !(1.0..=BLOCKS_MAX as f64).contains(number)) {
            return Err(bad(item, format!("deduphotsets= takes numbers from 1 to {BLOCKS_MAX}")));
        }
        *pair = (numbers[0] as u32, numbers[1] as u32);
    }
    if hot.blocks() > BLOCKS_MAX {
        return Err(bad(item, format!("More than one million hot dedup blocks: {}", hot.blocks())));
    }
    Ok(hot)
}

/// `stride=(min,max)`.
pub(crate) fn stride(item: &Item) -> Result<(u64, u64), Error> {
    match plain_list(item, Unit::Size)?.as_slice() {
        [low, high] if low <= high => Ok((*low as u64, *high as u64)),
        [_, _] => Err(bad(item, "stride=(min,max): max must not be below min")),
        _ => Err(bad(item, "stride= takes (min,max)")),
    }
}

pub(crate) fn threads(item: &Item) -> Result<u32, Error> {
    Ok(plain(item, Unit::Size, 1.0, THREADS_MAX)? as u32)
}

pub(crate) fn operation(item: &Item, text: &str) -> Result<Operation, Error> {
    let known: Vec<&str> = Operation::ALL.iter().map(|o| o.name()).collect();
    let lower = text.to_ascii_lowercase();
    if matches!(lower.as_str(), "get" | "put") {
        let text = format!("operation={lower} is for object stores and is not carried out");
        return Err(Error::new(ErrorKind::NotYet, &item.place, &lower, text).hint("use read or write"));
    }
    let name = choice(item, text, &known)?;
    Operation::ALL.into_iter().find(|o| o.name() == name).ok_or_else(|| bad(item, "no such operation"))
}

pub(crate) fn fileio(item: &Item) -> Result<FileIo, Error> {
    let known = ["sequential", "seq", "seqnz", "sequentialnz", "random", "shared", "delete"];
    let words: Vec<&str> =
        item.values.iter().map(|v| choice(item, &v.text, &known)).collect::<Result<_, _>>()?;
    match words.as_slice() {
        ["random"] => Ok(FileIo::Random { shared: false }),
        ["random", "shared"] => Ok(FileIo::Random { shared: true }),
        ["sequential" | "seq"] => Ok(FileIo::Sequential { delete: false, anywhere: false }),
        ["sequential" | "seq", "delete"] => Ok(FileIo::Sequential { delete: true, anywhere: false }),
        ["seqnz" | "sequentialnz"] => Ok(FileIo::Sequential { delete: false, anywhere: true }),
        _ => {
            Err(bad(item, "fileio= takes random, (random,shared), sequential, seqnz or (sequential,delete)"))
        }
    }
}

pub(crate) fn fileselect(item: &Item) -> Result<(FileSelect, FileFilter), Error> {
    let mut select = FileSelect::Sequential;
    let mut filter = FileFilter::Any;
    let first = item.values.first().map_or("", |value| value.text.as_str()).to_ascii_lowercase();
    if matches!(first.as_str(), "poisson" | "skewed") {
        return Ok((FileSelect::Poisson(midpoint(item, &item.values[1..])?), filter));
    }
    for value in &item.values {
        let known = [
            "sequential",
            "seq",
            "random",
            "once",
            "empty",
            "full",
            "notfull",
            "seqnz",
            "sequentialnz",
            "poisson",
        ];
        match choice(item, &value.text, &known)? {
            "random" => select = FileSelect::Random,
            "once" => select = FileSelect::Once,
            "empty" => filter = FileFilter::Empty,
            "full" => filter = FileFilter::Full,
            "notfull" => filter = FileFilter::NotFull,
            "seqnz" | "sequentialnz" => select = FileSelect::SequentialFromAnywhere,
            "poisson" => return Err(bad(item, "fileselect=(poisson,n): poisson comes first")),
            _ => select = FileSelect::Sequential,
        }
    }
    Ok((select, filter))
}

pub(crate) fn stopafter(item: &Item) -> Result<StopAfter, Error> {
    match number(single(item)?, Unit::Size) {
        Some(Number::Plain(value)) => Ok(StopAfter::Count(within(item, value, 1.0, BYTES_MAX)? as u64)),
        Some(Number::Percent(value)) => Ok(StopAfter::Percent(within(item, value, 0.0, 1e6)?)),
        None => Err(bad(item, "stopafter= takes a number of operations or a percentage")),
    }
}

pub(crate) fn format(item: &Item) -> Result<Format, Error> {
    let mut format = Format::default();
    for value in &item.values {
        let known =
            ["yes", "no", "only", "restart", "clean", "once", "directories", "dirs", "limited", "complete"];
        let word = choice(item, &value.text, &known)?;
        format.wanted = word != "no";
        match word {
            "only" => format.only = true,
            "restart" => format.restart = true,
            "clean" => format.clean = true,
            "once" => format.once = true,
            "directories" | "dirs" => format.directories = true,
            "limited" => format.limited = true,
            "complete" => format.complete = true,
            _ => {}
        }
    }
    if format.complete {
        let text = "format=complete can be combined only with format=no, as format=(no,complete)".to_string();
        if item.values.iter().any(|v| !matches!(v.text.to_ascii_lowercase().as_str(), "no" | "complete")) {
            return Err(Error::new(ErrorKind::Conflict, &item.place, "complete", text));
        }
        format.wanted = false;
    }
    Ok(format)
}

pub(crate) fn compratio(item: &Item) -> Result<f64, Error> {
    plain(item, Unit::Size, 1.0, 25.0)
}

/// The obsolete `compression=%`.
pub(crate) fn compression(item: &Item) -> Result<f64, Error> {
    let percent = percent(item)?;
    within(item, 100.0 / percent.max(0.001), 1.0, 25.0)
}

/// Whether a host is this machine, by a name that everybody knows.
pub(crate) fn local_host(name: &str) -> bool {
    ["localhost", "default", "*", "127.0.0.1", "::1"].contains(&name.to_ascii_lowercase().as_str())
}
