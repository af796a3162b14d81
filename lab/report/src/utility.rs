//! `vdbench parse`, `vdbench compare`, `vdbench print`: what is done with results afterwards.
//!
//! They read `flatfile.html` only, so results of vdbench itself are taken as well as ours.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Most bytes that `print` shows.
const PRINT_MAX: u64 = 1 << 20;

const PARSE_USAGE: &str =
    "usage: vdbench parse -i flatfile.html [-o output.csv] [-c column ...] [-a] [-f column value ...]";
const COMPARE_USAGE: &str =
    "usage: vdbench compare [-o out.txt] OLD NEW, or: vdbench compare [-o out.txt] old DIR ... new DIR ...";
const PRINT_USAGE: &str = "usage: vdbench print FILE ADDRESS [BYTES]";

/// Utilities of vdbench that do not exist here, and what there is instead.
const ABSENT: [(&str, &str); 10] = [
    ("csim", "write the data to a file system with compression and ask it (steadfast lab run compression)"),
    ("dsim", "write the data to a file system with deduplication and ask it"),
    ("sds", "write sd= lines by hand, or with count=(start,n)"),
    ("showlba", "latency.csv and report.html show response times over time"),
    ("printjournal", "-jr says what a journal knows and what was under way"),
    ("edit", "any editor does"),
    ("jstack", "there is no JVM"),
    ("rsh", "start 'vdbench agent' on the other host"),
    ("kill", "Ctrl-C ends all hosts of a run"),
    ("rand", "cat /dev/urandom has random bytes"),
];

/// Carries out a utility, if the first word names one. The sentence says why it failed.
pub(crate) fn run(args: &[String], out: &mut dyn Write) -> Option<Result<(), String>> {
    let (first, rest) = args.split_first()?;
    let done = match first.as_str() {
        "parse" | "parseflat" => parse(rest, out),
        "compare" => compare(rest, out),
        "print" => print(rest, out),
        _ => {
            let (_, instead) = ABSENT.iter().find(|(name, _)| *name == first)?;
            Err(format!("the utility {first} is not carried out here; {instead}."))
        }
    };
    Some(done)
}

/// The table of a flatfile: names of columns, rows of as many values.
struct Flat {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Flat {
    fn read(path: &Path) -> Result<Flat, String> {
        let bytes = fs::read(path).map_err(|e| format!("{} cannot be read: {e}.", path.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        let mut flat = Flat { columns: Vec::new(), rows: Vec::new() };
        for line in text.lines().filter(|line| !line.starts_with(['*', '<'])) {
            let words: Vec<String> = line.split_whitespace().map(String::from).collect();
            if words.first().is_some_and(|word| word == "tod") {
                flat.columns = words;
            } else if !words.is_empty() && words.len() == flat.columns.len() {
                flat.rows.push(words);
            }
        }
        match flat.columns.is_empty() {
            true => Err(format!("{} is not a flatfile: it has no line of columns.", path.display())),
            false => Ok(flat),
        }
    }

    fn column(&self, name: &str) -> Result<usize, String> {
        let found = self.columns.iter().position(|column| column.eq_ignore_ascii_case(name));
        found.ok_or_else(|| format!("no column {name}; there are: {}.", self.columns.join(" ")))
    }
}

fn parse(args: &[String], out: &mut dyn Write) -> Result<(), String> {
    let (mut input, mut output, mut averages) = (None, None, false);
    let (mut columns, mut filters) = (Vec::new(), Vec::new());
    let mut option = "";
    for arg in args {
        match (arg.as_str(), option) {
            ("-a", _) => averages = true,
            (new @ ("-i" | "-o" | "-c" | "-f"), _) => option = new,
            (value, "-i") => input = Some(PathBuf::from(value)),
            (value, "-o") => output = Some(PathBuf::from(value)),
            (value, "-c") => columns.push(value.to_string()),
            (value, "-f") => filters.push(value.to_string()),
            _ => return Err(format!("'{arg}' is not understood. {PARSE_USAGE}")),
        }
    }
    let flat = Flat::read(&input.ok_or(PARSE_USAGE)?)?;
    if filters.len() % 2 != 0 {
        return Err(format!("-f takes pairs of column and value. {PARSE_USAGE}"));
    }
    let interval = flat.column("Interval")?;
    let filters: Vec<(usize, &String)> = filters
        .chunks(2)
        .map(|pair| Ok((flat.column(&pair[0])?, &pair[1])))
        .collect::<Result<_, String>>()?;
    let wanted: Vec<usize> = match columns.is_empty() {
        true => (0..flat.columns.len()).collect(),
        false => columns.iter().map(|name| flat.column(name)).collect::<Result<_, _>>()?,
    };
    let line = |row: &[String]| wanted.iter().map(|at| row[*at].clone()).collect::<Vec<_>>().join(",") + "\n";
    let header = if columns.is_empty() { line(&flat.columns) } else { columns.join(",") + "\n" };
    let rows = flat.rows.iter().filter(|row| row[interval].starts_with("avg") == averages);
    let text: String = std::iter::once(header)
        .chain(rows.filter(|row| filters.iter().all(|(at, value)| row[*at] == **value)).map(|row| line(row)))
        .collect();
    match output {
        None => out.write_all(text.as_bytes()).map_err(|e| format!("the rows cannot be written: {e}.")),
        Some(path) => {
            fs::write(&path, text).map_err(|e| format!("{} cannot be written: {e}.", path.display()))
        }
    }
}

/// Compared columns of each run, and whether more is better.
const FIGURES: [(&str, bool); 3] = [("rate", true), ("resp", false), ("MB/sec", true)];
/// Compared percentiles of each operation, where a directory has a latency.csv. Less is better.
const PERCENTILES: [&str; 5] = ["p50_ms", "p90_ms", "p99_ms", "p99.9_ms", "max_ms"];

/// Figures of one run in all directories of a side.
#[derive(Default)]
struct Compared {
    figures: [Vec<f64>; FIGURES.len()],
    /// `read p99_ms`, in the order of [`PERCENTILES`].
    percentiles: BTreeMap<(String, usize), Vec<f64>>,
}

/// Figures of each run (its name and how often it occurred before) in each directory of one side.
type Side = BTreeMap<(String, usize), Compared>;

fn compare(args: &[String], out: &mut dyn Write) -> Result<(), String> {
    let (mut old, mut new, mut output, mut words) = (Vec::new(), Vec::new(), None, args.iter());
    let mut side = None;
    while let Some(word) = words.next() {
        match word.as_str() {
            "-o" => output = Some(words.next().ok_or(COMPARE_USAGE)?),
            "old" | "new" => side = Some(word.as_str()),
            _ if side == Some("new") || (side.is_none() && !old.is_empty()) => new.push(PathBuf::from(word)),
            _ => old.push(PathBuf::from(word)),
        }
    }
    if old.is_empty() || new.is_empty() || (side.is_none() && new.len() > 1) {
        return Err(COMPARE_USAGE.to_string());
    }
    let (old, new) = (collect(&old)?, collect(&new)?);
    let mut lines = vec!["run\tfigure\told\told range\tnew\tnew range\tdelta %\tverdict".to_string()];
    for (key, olds) in &old {
        let Some(news) = new.get(key) else { continue };
        let again = if key.1 > 0 { format!("#{}", key.1 + 1) } else { String::new() };
        for (((name, more), a), b) in FIGURES.iter().zip(&olds.figures).zip(&news.figures) {
            lines.extend(judged(a, b, *more).map(|text| format!("{}{again}\t{name}\t{text}", key.0)));
        }
        for ((operation, at), a) in &olds.percentiles {
            let Some(b) = news.percentiles.get(&(operation.clone(), *at)) else { continue };
            let name = format!("{operation} {}", PERCENTILES[*at].trim_end_matches("_ms"));
            lines.extend(judged(a, b, false).map(|text| format!("{}{again}\t{name}\t{text}", key.0)));
        }
    }
    if lines.len() == 1 {
        return Err("the two sides have no run of the same name in common.".to_string());
    }
    match output {
        None => out
            .write_all(aligned(&lines).as_bytes())
            .map_err(|e| format!("the table cannot be written: {e}.")),
        // A file is for programs: a tab between two cells.
        Some(path) => {
            fs::write(path, lines.join("\n") + "\n").map_err(|e| format!("{path} cannot be written: {e}."))
        }
    }
}

/// Lines of cells with tabs between them as columns, numbers to the right.
fn aligned(lines: &[String]) -> String {
    let rows: Vec<Vec<&str>> = lines.iter().map(|line| line.split('\t').collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<&str>| {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(at, (cell, width))| match at {
                0 | 1 => format!("{cell:<width$}"),
                _ if at + 1 == columns => (*cell).to_string(),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        cells.join("  ").trim_end().to_string() + "\n"
    };
    rows.iter().map(line).collect()
}

/// All runs below these directories: each holds a flatfile, or directories that do.
fn collect(dirs: &[PathBuf]) -> Result<Side, String> {
    let mut side = Side::new();
    for dir in dirs {
        let mut files = vec![dir.join("flatfile.html")];
        if !files[0].is_file() {
            let entries = fs::read_dir(dir).map_err(|e| format!("{} cannot be read: {e}.", dir.display()))?;
            files = entries.flatten().map(|entry| entry.path().join("flatfile.html")).collect();
            files.retain(|file| file.is_file());
            files.sort();
        }
        if files.is_empty() {
            return Err(format!("{} has no flatfile.html, nor has a directory in it.", dir.display()));
        }
        for file in files {
            add(&mut side, &Flat::read(&file)?)?;
            // Results of vdbench itself have none.
            if let Ok(text) = fs::read_to_string(file.with_file_name("latency.csv")) {
                add_percentiles(&mut side, &text);
            }
        }
    }
    Ok(side)
}

fn add(side: &mut Side, flat: &Flat) -> Result<(), String> {
    let (run, interval) = (flat.column("Run")?, flat.column("Interval")?);
    let columns: Vec<usize> = FIGURES.iter().map(|(name, _)| flat.column(name)).collect::<Result<_, _>>()?;
    let mut seen: BTreeMap<&String, usize> = BTreeMap::new();
    for row in flat.rows.iter().filter(|row| row[interval].starts_with("avg")) {
        let number = seen.entry(&row[run]).or_default();
        let figures = side.entry((row[run].clone(), *number)).or_default();
        *number += 1;
        for (to, at) in figures.figures.iter_mut().zip(&columns) {
            to.extend(row[*at].parse::<f64>().ok().filter(|value| value.is_finite()));
        }
    }
    Ok(())
}

/// The averages of a latency.csv, in the order of runs that the flatfile has.
fn add_percentiles(side: &mut Side, text: &str) {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or("").split(',').collect();
    let column = |name: &str| header.iter().position(|column| *column == name);
    let Some(columns) = PERCENTILES.iter().map(|name| column(name)).collect::<Option<Vec<usize>>>() else {
        return;
    };
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    for row in lines {
        // A name with commas is in quotes; nothing behind it is.
        let cells: Vec<&str> = row.rsplitn(header.len(), ',').collect::<Vec<_>>().into_iter().rev().collect();
        let [run, interval, operation, ..] = cells.as_slice() else { continue };
        if *interval != "avg" || cells.len() != header.len() {
            continue;
        }
        let run = run.trim_matches('"').replace("\"\"", "\"");
        let number = seen.entry((run.clone(), (*operation).to_string())).or_default();
        let Some(found) = side.get_mut(&(run, *number)) else { continue };
        *number += 1;
        for (at, column) in columns.iter().enumerate() {
            if let Ok(value) = cells[*column].parse::<f64>() {
                found.percentiles.entry(((*operation).to_string(), at)).or_default().push(value);
            }
        }
    }
}

/// Medians, ranges, difference, and a verdict only where the ranges of repeated runs do not touch.
fn judged(old: &[f64], new: &[f64], more_is_better: bool) -> Option<String> {
    let (a, b) = (Spread::of(old)?, Spread::of(new)?);
    let delta = if a.median == 0.0 { 0.0 } else { (b.median / a.median - 1.0) * 100.0 };
    let verdict = if old.len() < 2 || new.len() < 2 {
        "one run: no verdict"
    } else if b.low > a.high {
        if more_is_better { "better" } else { "worse" }
    } else if b.high < a.low {
        if more_is_better { "worse" } else { "better" }
    } else {
        "ranges overlap"
    };
    Some(format!("{a}\t{b}\t{delta:+.1}\t{verdict}"))
}

struct Spread {
    low: f64,
    median: f64,
    high: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let even = sorted.len().is_multiple_of(2);
        let median = if even { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] };
        Some(Spread { low, median, high })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3}\t{:.3}..{:.3}", self.median, self.low, self.high)
    }
}

fn print(args: &[String], out: &mut dyn Write) -> Result<(), String> {
    let [path, address, rest @ ..] = args else { return Err(PRINT_USAGE.to_string()) };
    let address = size(address).ok_or(PRINT_USAGE)?;
    let length = match rest {
        [] => 512,
        [text] => size(text).filter(|n| (1..=PRINT_MAX).contains(n)).ok_or(PRINT_USAGE)?,
        _ => return Err(PRINT_USAGE.to_string()),
    };
    let refused = |e: std::io::Error| format!("{path} cannot be read: {e}.");
    let mut file = fs::File::open(path).map_err(refused)?;
    file.seek(SeekFrom::Start(address)).map_err(refused)?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.is_empty() {
        return Err(format!("{path} ends before byte {address}."));
    }
    let mut text = String::new();
    for (at, line) in bytes.chunks(16).enumerate() {
        let words: Vec<String> =
            line.chunks(4).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
        let shown: String =
            line.iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '.' }).collect();
        text += &format!("0x{:012x}  {:<35}  {shown}\n", address + at as u64 * 16, words.join(" "));
    }
    out.write_all(text.as_bytes()).map_err(|e| format!("the bytes cannot be written: {e}."))
}

/// `4096`, `4k`, `0x1000`.
fn size(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().filter(|n| *n < 1 << 62);
    }
    let power = match lower.chars().last()? {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        _ => 0,
    };
    let digits = if power > 0 { &lower[..lower.len() - 1] } else { lower.as_str() };
    digits.parse::<u64>().ok()?.checked_mul(1 << power).filter(|n| *n < 1 << 62)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_repeated_runs_whose_ranges_part() {
        let verdict = |old: &[f64], new: &[f64], more| {
            judged(old, new, more).unwrap().rsplit('\t').next().unwrap().to_string()
        };
        assert_eq!(verdict(&[100.0], &[200.0], true), "one run: no verdict");
        assert_eq!(verdict(&[100.0, 110.0], &[120.0, 130.0], true), "better");
        assert_eq!(verdict(&[100.0, 110.0], &[120.0, 130.0], false), "worse");
        assert_eq!(verdict(&[120.0, 130.0], &[100.0, 110.0], false), "better");
        assert_eq!(verdict(&[100.0, 125.0], &[120.0, 130.0], true), "ranges overlap");
        assert_eq!(judged(&[], &[1.0], true), None);
        assert_eq!(
            judged(&[1.0, 3.0], &[3.0, 9.0, 4.0], true).unwrap(),
            "2.000\t1.000..3.000\t4.000\t3.000..9.000\t+100.0\tranges overlap"
        );
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!([size("4096"), size("4K"), size("0x1000")], [Some(4096); 3]);
        assert_eq!([size(""), size("k"), size("-1"), size("99999999t")], [None; 4]);
    }
}
