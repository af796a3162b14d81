//! From definitions to runs: names resolved, checks across definitions, loops unrolled, formats inserted.

use crate::error::{Error, ErrorKind, Place, Warning, nearest};
use crate::hosts;
use crate::lexer::Item;
use crate::model::*;
use crate::number::{Number, Unit, numbers, show_size};
use crate::section::{Definitions, Named, Rd, Setting, resolve};

/// Runs of one file: a day of one-second runs.
const RUNS_MAX: usize = 86_400;
/// Files of one file system definition: vdbench's own limit.
const FILES_MAX: u64 = 128 << 20;
/// Directories of one file system definition.
const DIRECTORIES_MAX: u64 = 16 << 20;

/// `format=` of every run, from the command line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FormatOverride {
    /// `-c`: what earlier formats left is deleted before the first run.
    Clean,
    /// `-cy`.
    Yes,
    /// `-cn`.
    No,
    /// `-co`.
    Only,
}

impl FormatOverride {
    fn apply(self, format: &mut Format) {
        let wanted = Format { wanted: true, ..Format::default() };
        match self {
            FormatOverride::Clean => {}
            FormatOverride::Yes => *format = wanted,
            FormatOverride::No => *format = Format::default(),
            FormatOverride::Only => *format = Format { only: true, ..wanted },
        }
    }
}

/// What the command line says over the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `-e`.
    pub elapsed: Option<u64>,
    /// `-i`.
    pub interval: Option<u64>,
    /// `-w`.
    pub warmup: Option<u64>,
    /// `-v`, `-vr`, `-vw`, `-vt`.
    pub validate: Option<crate::control::Validate>,
    /// `-j` and its letters.
    pub journal: Option<crate::control::JournalRules>,
    /// `-c`, `-cy`, `-cn`, `-co`.
    pub format: Option<FormatOverride>,
    /// `-l`.
    pub repeat: Option<crate::control::Repeat>,
    /// `-r name`: begin at this run definition.
    pub from_rd: Option<String>,
}

pub(crate) fn plan(mut definitions: Definitions, overrides: &Overrides, copy: String) -> Result<Plan, Error> {
    let (wds, fwds) = resolve_workloads(&mut definitions)?;
    let mut runs = Vec::new();
    let mut rds = std::mem::take(&mut definitions.rds);
    if let Some(from) = &overrides.from_rd {
        let Some(at) = rds.iter().position(|rd| rd.name == *from) else {
            let place = Place { file: "command line".into(), line: 0 };
            return Err(Error::new(
                ErrorKind::Unresolved,
                &place,
                from,
                format!("Could not find rd={from} of option -r"),
            ));
        };
        rds.drain(..at);
    }
    for rd in &mut rds {
        rd.elapsed = overrides.elapsed.unwrap_or(rd.elapsed);
        rd.interval = overrides.interval.unwrap_or(rd.interval);
        rd.warmup = overrides.warmup.unwrap_or(rd.warmup);
        if let Some(format) = overrides.format {
            format.apply(&mut rd.format);
        }
        check_times(rd, &mut definitions.warnings)?;
        unroll(&definitions, &wds, &fwds, rd, &mut runs)?;
    }
    if overrides.format == Some(FormatOverride::Clean) {
        clean_first(&mut runs);
    }
    definitions.general.validate = overrides.validate.or(definitions.general.validate);
    definitions.general.journal = overrides.journal.or(definitions.general.journal);
    if definitions.general.journal.is_some() {
        // A journal is one of validated data.
        definitions.general.validate.get_or_insert_default();
        check_journal(&definitions, &rds)?;
    }
    check_replay(&definitions, &runs, &rds)?;
    check_validate(&mut definitions, &runs, &rds)?;
    hosts::check(&definitions, &runs)?;
    definitions.general.repeat = overrides.repeat.unwrap_or(definitions.general.repeat);
    let dedups = dedups(definitions.general.dedup, &definitions.sds, &definitions.fsds);
    if let (Some(pattern), Some(_)) = (&definitions.general.pattern, dedups.first()) {
        let place = rds.first().map_or(Place::default(), |rd| rd.place.clone());
        let text = format!("pattern={pattern} and dedupratio= are mutually exclusive.");
        return Err(Error::new(ErrorKind::Conflict, &place, "pattern", text));
    }
    for (dedup, storage) in dedups {
        check_dedup(dedup, storage, &runs, definitions.format.xfersize, &rds)?;
    }
    let is_raw = |run: &&Run| matches!(run.work, Work::Raw(_));
    if let (Some(_), Some(file)) = (runs.iter().find(is_raw), runs.iter().find(|run| !is_raw(run))) {
        let text = "SD/WD and FSD/FWD workloads do not mix in one execution.".to_string();
        let place = rds.iter().find(|rd| rd.name == file.rd).map(|rd| rd.place.clone());
        let place = place.unwrap_or(Place { file: "".into(), line: 0 });
        return Err(Error::new(ErrorKind::Conflict, &place, &format!("rd={}", file.rd), text)
            .hint("put them into two parameter files"));
    }
    Ok(Plan {
        general: definitions.general,
        format: definitions.format,
        sds: definitions.sds,
        wds,
        fsds: definitions.fsds,
        fwds,
        runs,
        warnings: definitions.warnings,
        hosts: definitions.hosts,
        copy,
    })
}

/// Each storage has a journal of its own.
fn check_journal(definitions: &Definitions, rds: &[Rd]) -> Result<(), Error> {
    let place = rds.first().map_or(Place { file: "".into(), line: 0 }, |rd| rd.place.clone());
    if definitions.general.concatenate {
        let text = "journal= and concatenatesds= do not go together here.".to_string();
        return Err(Error::new(ErrorKind::Conflict, &place, "journal", text));
    }
    Ok(())
}

/// What does not go together with a replay.
fn check_replay(definitions: &Definitions, runs: &[Run], rds: &[Rd]) -> Result<(), Error> {
    if !runs.iter().any(|run| run.replay.is_some()) {
        return Ok(());
    }
    let general = &definitions.general;
    let loops = |rd: &&Rd| {
        rd.replay.is_some() && rd.loops.iter().any(|one| !matches!(one.name, "threads" | "compratio"))
    };
    let place = rds.iter().find(|rd| rd.replay.is_some()).map_or(Place::default(), |rd| rd.place.clone());
    for (word, said) in [
        ("validate", general.validate.is_some()),
        ("concatenatesds", general.concatenate),
        ("dedupratio", !dedups(general.dedup, &definitions.sds, &definitions.fsds).is_empty()),
        ("data_errors=remove", general.data_errors.remove.is_some()),
        ("hd", definitions.hosts.len() > 1 || definitions.hosts.iter().any(|host| !host.is_here())),
        ("forxxx", rds.iter().any(|rd| loops(&rd))),
    ] {
        if said {
            let text = format!(
                "replay= and {word} do not go together here: what is done, and where, is in the trace."
            );
            return Err(Error::new(ErrorKind::Conflict, &place, word, text));
        }
    }
    Ok(())
}

/// Finds the size of key blocks: the smallest transfer, of which all others must be multiples.
fn check_validate(definitions: &mut Definitions, runs: &[Run], rds: &[Rd]) -> Result<(), Error> {
    let Some(mut rules) = definitions.general.validate else { return Ok(()) };
    let place = rds.first().map_or(Place { file: "".into(), line: 0 }, |rd| rd.place.clone());
    let refuse = |word: &str, text: String| Err(Error::new(ErrorKind::Conflict, &place, word, text));
    for (word, said) in [
        ("dedupratio", !dedups(definitions.general.dedup, &definitions.sds, &definitions.fsds).is_empty()),
        ("pattern", definitions.general.pattern.is_some()),
    ] {
        if said {
            return refuse(word, format!("data validation and {word}= do not go together here."));
        }
    }
    let mut steps: Vec<u64> = Vec::new();
    let add = |size: &XferSize, steps: &mut Vec<u64>| match size {
        XferSize::Fixed(size) => steps.push(*size),
        XferSize::Weighted(list) => steps.extend(list.iter().map(|(size, _)| *size)),
        XferSize::Between { low, align, .. } => steps.extend([*low, *align]),
    };
    for run in runs {
        match &run.work {
            Work::Raw(work) => {
                steps.push(definitions.general.formatxfersize);
                steps.extend(
                    work.sds.iter().flat_map(|sd| [sd.align, Some(sd.offset)]).flatten().filter(|n| *n > 0),
                );
                work.wds.iter().for_each(|(wd, _)| add(&wd.xfersize, &mut steps));
            }
            Work::Files(work) => {
                steps.push(definitions.format.xfersize);
                work.fwds.iter().for_each(|(fwd, _)| add(&fwd.xfersize, &mut steps));
            }
        }
    }
    rules.block = steps.iter().copied().min().unwrap_or(512);
    if let Some(odd) = steps.iter().find(|size| !size.is_multiple_of(rules.block)) {
        let text = format!(
            "data validation needs sizes that are multiples of the smallest, {}: {odd} is not",
            rules.block
        );
        return refuse("xfersize", text);
    }
    if !rules.block.is_multiple_of(512) {
        return refuse(
            "xfersize",
            format!("data validation needs multiples of 512, and {} is not", rules.block),
        );
    }
    definitions.general.validate = Some(rules);
    Ok(())
}

/// `-c`: before the first run, unless that is a format that deletes anyway.
fn clean_first(runs: &mut Vec<Run>) {
    let Some(first) = runs.first() else { return };
    let Work::Files(work) = &first.work else { return };
    if work.format.is_some_and(|format| !format.restart) {
        return;
    }
    let format = Some(Format { wanted: true, clean: true, ..Format::default() });
    let run = Run {
        label: format!("format_for_{}", first.rd),
        rate: Rate::Max,
        elapsed: None,
        warmup: 0,
        pause: 0,
        maxdata: None,
        maxdataread: None,
        maxdatawritten: None,
        stopcurve: None,
        startcmd: Default::default(),
        endcmd: Default::default(),
        work: Work::Files(FileWork { fsds: work.fsds.clone(), fwds: Vec::new(), format, complete: false }),
        ..first.clone()
    };
    runs.insert(0, run);
}

/// What repeats: everywhere, and on storages that have words of their own.
fn dedups<'a>(general: Option<Dedup>, sds: &'a [Sd], fsds: &'a [Fsd]) -> Vec<(Dedup, Option<&'a str>)> {
    let own_sds = sds.iter().filter_map(|sd| Some((sd.dedup?, Some(sd.name.as_str()))));
    let own_fsds = fsds.iter().filter_map(|fsd| Some((fsd.dedup?, Some(fsd.name.as_str()))));
    general.map(|dedup| (dedup, None)).into_iter().chain(own_sds).chain(own_fsds).collect()
}

/// Every write must be whole blocks, or blocks would not be what the ratio counts. `storage`: of this one alone.
fn check_dedup(
    dedup: Dedup,
    storage: Option<&str>,
    runs: &[Run],
    format_size: u64,
    rds: &[Rd],
) -> Result<(), Error> {
    let place = rds.first().map_or(Place { file: "".into(), line: 0 }, |rd| rd.place.clone());
    if dedup.unit == 0 {
        let text = "dedupratio= needs dedupunit=".to_string();
        return Err(
            Error::new(ErrorKind::Missing, &place, "dedupunit", text).hint("add dedupunit=128k or the like")
        );
    }
    if let DedupSets::Percent(percent) = dedup.sets
        && percent / 100.0 > 1.0 / dedup.ratio
    {
        let text = format!("dedupsets={percent}% are more contents than dedupratio={} allows", dedup.ratio);
        return Err(
            Error::new(ErrorKind::Conflict, &place, "dedupsets", text).hint("use a smaller percentage")
        );
    }
    let hot = dedup.hot.sets() > 0;
    if dedup.flipflop == FlipFlop::Hot && !hot {
        let text = "Requesting 'dedupflipflop=hot' without specifying 'deduphotsets=nnn'".to_string();
        return Err(Error::new(ErrorKind::Conflict, &place, "dedupflipflop", text));
    }
    if hot && dedup.ratio <= 1.0 {
        let text = "deduphotsets= needs a dedupratio= above 1".to_string();
        return Err(Error::new(ErrorKind::Conflict, &place, "deduphotsets", text));
    }
    if hot && runs.iter().any(|run| matches!(run.work, Work::Files(_))) {
        let text = "deduphotsets= are the first blocks of a storage (SD); a tree of files (FSD) has none"
            .to_string();
        return Err(Error::new(ErrorKind::Conflict, &place, "deduphotsets", text)
            .hint("use dedupsets= with few sets"));
    }
    for run in runs {
        let sizes: Vec<&XferSize> = match &run.work {
            Work::Raw(work) => {
                let uses = |sds: &[usize]| {
                    sds.iter().any(|at| storage.is_none_or(|name| work.sds[*at].name == name))
                };
                let writes = work.wds.iter().filter(|(wd, sds)| wd.rdpct < 100.0 && uses(sds));
                writes.map(|(wd, _)| &wd.xfersize).collect()
            }
            Work::Files(work) => {
                let uses = |fsds: &[usize]| {
                    fsds.iter().any(|at| storage.is_none_or(|name| work.fsds[*at].name == name))
                };
                work.fwds.iter().filter(|(_, fsds)| uses(fsds)).map(|(fwd, _)| &fwd.xfersize).collect()
            }
        };
        let odd = sizes.iter().any(|size| match size {
            XferSize::Fixed(size) => !size.is_multiple_of(dedup.unit),
            XferSize::Weighted(list) => list.iter().any(|(size, _)| !size.is_multiple_of(dedup.unit)),
            XferSize::Between { low, align, .. } => {
                !low.is_multiple_of(dedup.unit) || !align.is_multiple_of(dedup.unit)
            }
        });
        if odd || !format_size.is_multiple_of(dedup.unit) {
            let text = format!("xfersize= of rd={} is not a multiple of dedupunit={}", run.label, dedup.unit);
            return Err(Error::new(ErrorKind::Conflict, &place, "dedupunit", text));
        }
    }
    Ok(())
}

fn check_times(rd: &Rd, warnings: &mut Vec<Warning>) -> Result<(), Error> {
    let conflict =
        |text: String| Err(Error::new(ErrorKind::Conflict, &rd.place, &format!("rd={}", rd.name), text));
    if !rd.elapsed.is_multiple_of(rd.interval) {
        return conflict(format!("'elapsed={}' must be multiple of 'interval={}'.", rd.elapsed, rd.interval));
    }
    if rd.elapsed < 2 * rd.interval {
        return conflict(format!(
            "'elapsed={}' must be at least twice 'interval={}'.",
            rd.elapsed, rd.interval
        ));
    }
    if !rd.warmup.is_multiple_of(rd.interval) {
        return conflict(format!("'warmup={}' must be multiple of 'interval={}'.", rd.warmup, rd.interval));
    }
    if rd.elapsed / rd.interval > 1_000_000 {
        warnings.push(Warning { place: rd.place.clone(), text: "more than a million intervals".into() });
    }
    Ok(())
}

/// Names of storages in workloads. Where vdbench waits until a run needs them, a mistake is found here already.
fn resolve_workloads(definitions: &mut Definitions) -> Result<(Vec<Wd>, Vec<Fwd>), Error> {
    let sds: Vec<&str> = definitions.sds.iter().map(|sd| sd.name.as_str()).collect();
    let fsds: Vec<&str> = definitions.fsds.iter().map(|fsd| fsd.name.as_str()).collect();
    let mut wds = Vec::new();
    for Named { definition: wd, names, .. } in &definitions.wds {
        let mut wd = wd.clone();
        wd.sds = match names {
            None => sds.iter().map(|s| s.to_string()).collect(),
            Some(item) => resolve(item, &sds).map_err(|missing| {
                let text = format!("Could not find sd={missing} for wd={},host=localhost", wd.name);
                unresolved(&item.place, &missing, text, &sds)
            })?,
        };
        wds.push(wd);
    }
    let mut fwds = Vec::new();
    for Named { definition: fwd, names, rdpct_said } in &definitions.fwds {
        let mut fwd = fwd.clone();
        fwd.fsds = match names {
            None => fsds.iter().map(|s| s.to_string()).collect(),
            Some(item) => resolve(item, &fsds).map_err(|missing| {
                let text = format!("Could not find fsd={missing} for fwd={}", fwd.name);
                unresolved(&item.place, &missing, text, &fsds)
            })?,
        };
        if *rdpct_said && matches!(fwd.fileio, FileIo::Sequential { .. }) {
            let text = "'fileio=sequential' and 'rdpct=' are mutually exclusive.".to_string();
            return Err(Error::new(ErrorKind::Conflict, &fwd.place, &format!("fwd={}", fwd.name), text)
                .hint("add fileio=random"));
        }
        let needs_target = fwd.operations.iter().any(|o| matches!(o, Operation::Copy | Operation::Move));
        match &fwd.target {
            None if needs_target => {
                let text = format!("fwd={}: copy and move need target=fsd", fwd.name);
                return Err(Error::new(ErrorKind::Missing, &fwd.place, "target", text));
            }
            Some(target) if !fsds.contains(&target.as_str()) => {
                let text = format!("Could not find target={target} for fwd={}", fwd.name);
                return Err(unresolved(&fwd.place, target, text, &fsds));
            }
            _ => {}
        }
        fwds.push(fwd);
    }
    for fsd in &definitions.fsds {
        if fsd.file_count() > FILES_MAX || fsd.directories() > DIRECTORIES_MAX {
            let text = format!(
                "fsd={} describes {} directories and {} files; the limits are {DIRECTORIES_MAX} and {FILES_MAX}",
                fsd.name,
                fsd.directories(),
                fsd.file_count()
            );
            return Err(Error::new(ErrorKind::TooLarge, &fsd.place, &fsd.name, text));
        }
    }
    Ok((wds, fwds))
}

fn unresolved(place: &Place, word: &str, text: String, known: &[&str]) -> Error {
    let error = Error::new(ErrorKind::Unresolved, place, word, text);
    match nearest(word, known.iter().copied()) {
        Some(near) => error.hint(format!("did you mean '{near}'?")),
        None if known.is_empty() => error.hint("none is defined before this line"),
        None => error.hint(format!("defined: {}", known.join(", "))),
    }
}

/// A combination of one value of each loop.
type Combination<'a> = Vec<(&'static str, &'a str, &'a Setting)>;

fn unroll(defs: &Definitions, wds: &[Wd], fwds: &[Fwd], rd: &Rd, runs: &mut Vec<Run>) -> Result<(), Error> {
    let files = rd.fwds.is_some() || (rd.wds.is_none() && rd.sds.is_none() && !fwds.is_empty());
    let wrong = |text: &str| {
        Err(Error::new(ErrorKind::Conflict, &rd.place, &format!("rd={}", rd.name), text.to_string()))
    };
    if files && rd.iorate.is_some() {
        return wrong("Specifying 'iorate=' for a File System workload. Use 'fwdrate=' instead.");
    }
    if let (true, Some(_)) = (files, &rd.replay) {
        return wrong("replay= is for storages (SD): operations of a trace have no names of files.");
    }
    if !files && rd.fwdrate.is_some() {
        return wrong("Specifying 'fwdrate=' for a raw workload. Use 'iorate=' instead.");
    }
    let Pace { arrival, spike, rates } = rates(rd, files)?;
    let mut combinations: Vec<Combination<'_>> = vec![Vec::new()];
    for one in &rd.loops {
        let mut next = Vec::new();
        for combination in &combinations {
            for (shown, setting) in &one.values {
                let mut longer = combination.clone();
                longer.push((one.name, shown, setting));
                next.push(longer);
            }
            if next.len() > RUNS_MAX {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    &rd.place,
                    &rd.name,
                    "these loops have no end in sight".into(),
                ));
            }
        }
        combinations = next;
    }
    let mut first = true;
    for combination in &combinations {
        for rate in &rates {
            let mut loops: Vec<String> =
                combination.iter().map(|(name, shown, _)| format!("{name}={shown}")).collect();
            if let (true, Rate::Fixed(value)) = (rates.len() > 1, rate) {
                loops.push(format!("{}={value}", if files { "fwdrate" } else { "iorate" }));
            }
            let run = Run {
                label: rd.name.clone(),
                rd: rd.name.clone(),
                loops: if loops.is_empty() { "None".into() } else { loops.join(" ") },
                rate: rate.clone(),
                arrival,
                spike,
                startcmd: rd.startcmd.clone(),
                endcmd: rd.endcmd.clone(),
                elapsed: Some(rd.elapsed),
                interval: rd.interval,
                warmup: rd.warmup,
                pause: rd.pause,
                maxdata: rd.maxdata[0],
                maxdataread: rd.maxdata[1],
                maxdatawritten: rd.maxdata[2],
                stopcurve: rd.stopcurve,
                compratio: combination.iter().fold(defs.general.compratio, |ratio, (_, _, setting)| {
                    match setting {
                        Setting::Compratio(value) => *value,
                        _ => ratio,
                    }
                }),
                dedupratio: defs.general.dedup.map_or(1.0, |dedup| dedup.ratio),
                replay: None,
                work: Work::Raw(RawWork { sds: Vec::new(), wds: Vec::new() }),
            };
            if files {
                file_runs(defs, fwds, rd, combination, run, first, runs)?;
            } else {
                raw_runs(defs, wds, rd, combination, run, runs)?;
            }
            first = false;
            if runs.len() > RUNS_MAX {
                let text = format!("more than {RUNS_MAX} runs");
                return Err(Error::new(ErrorKind::TooLarge, &rd.place, &rd.name, text));
            }
        }
    }
    Ok(())
}

/// How fast, and how arrivals lie.
struct Pace {
    arrival: Arrival,
    spike: bool,
    rates: Vec<Rate>,
}

fn rates(rd: &Rd, files: bool) -> Result<Pace, Error> {
    let (arrival, variable, spike) = spacing(rd)?;
    let rates = rate_list(rd, files, variable)?;
    Ok(Pace { arrival, spike, rates })
}

/// `distribution=`: the arrivals, whether rates vary, whether a second's arrivals come at once.
fn spacing(rd: &Rd) -> Result<(Arrival, bool, bool), Error> {
    let mut arrival = Arrival::Exponential;
    let (mut variable, mut spike) = (false, false);
    if let Some(item) = &rd.distribution {
        for value in &item.values {
            match crate::read::choice(
                item,
                &value.text,
                &["e", "exponential", "u", "uniform", "d", "deterministic", "variable", "v", "spike", "s"],
            )? {
                "u" | "uniform" => arrival = Arrival::Uniform,
                "d" | "deterministic" => arrival = Arrival::Deterministic,
                "variable" | "v" => variable = true,
                "spike" | "s" => (variable, spike) = (true, true),
                _ => {}
            }
        }
    }
    Ok((arrival, variable, spike))
}

fn rate_list(rd: &Rd, files: bool, variable: bool) -> Result<Vec<Rate>, Error> {
    let name = if files { "fwdrate" } else { "iorate" };
    let Some(item) = (if files { &rd.fwdrate } else { &rd.iorate }) else {
        if files && rd.format.only {
            return Ok(vec![Rate::Max]);
        }
        if rd.replay.is_some() {
            return Ok(vec![Rate::AsTraced]);
        }
        let text = format!("{name}= parameter is missing.");
        return Err(Error::new(ErrorKind::Missing, &rd.place, &format!("rd={}", rd.name), text)
            .hint(format!("add {name}=max or a number of operations a second")));
    };
    if let [value] = item.values.as_slice() {
        if value.text.eq_ignore_ascii_case("max") {
            return Ok(vec![Rate::Max]);
        }
        if value.text.eq_ignore_ascii_case("curve") {
            let points = rd.curve.clone().unwrap_or_else(|| vec![10.0, 50.0, 70.0, 80.0, 90.0, 100.0]);
            return Ok(vec![Rate::Curve(points)]);
        }
    }
    let mut list = Vec::new();
    for number in numbers(item, Unit::Size)? {
        match number {
            Number::Plain(value) if value > 0.0 && value <= 1e9 => list.push(value),
            _ => return Err(crate::read::bad(item, format!("{name}= takes positive rates, max or curve"))),
        }
    }
    if variable {
        if list.len() % 2 != 0 || list.is_empty() {
            return Err(crate::read::bad(
                item,
                "distribution=variable and spike need pairs: (rate,seconds,rate,seconds,...)",
            ));
        }
        return Ok(vec![Rate::Variable(list.chunks_exact(2).map(|p| (p[0], p[1])).collect())]);
    }
    Ok(list.into_iter().map(Rate::Fixed).collect())
}

fn raw_runs(
    defs: &Definitions,
    wds: &[Wd],
    rd: &Rd,
    combination: &Combination<'_>,
    run: Run,
    runs: &mut Vec<Run>,
) -> Result<(), Error> {
    let known: Vec<&str> = defs.sds.iter().map(|sd| sd.name.as_str()).collect();
    let mut sets: Option<Sets> = None;
    let mut wanted: Option<Vec<String>> = None;
    if let Some(item) = &rd.sds {
        let word = item.values.first().map_or("", |v| v.text.as_str()).to_ascii_lowercase();
        match word.as_str() {
            "single" => sets = Some(Sets::Of(1)),
            "range" => sets = Some(Sets::Growing),
            word if word.starts_with("setsof") => {
                let count = word["setsof".len()..].parse::<usize>().ok().filter(|count| *count > 0);
                sets = Some(Sets::Of(count.ok_or_else(|| {
                    crate::read::bad(item, format!("sd={word}: how many storages in each set?"))
                        .hint("write sd=setsof2 or the like")
                })?));
            }
            _ => {
                wanted = Some(resolve(item, &known).map_err(|missing| {
                    let text = format!("Could not find sd={missing} for rd={}", rd.name);
                    unresolved(&item.place, &missing, text, &known)
                })?);
            }
        }
    }
    let mut selected: Vec<Wd> = match &rd.wds {
        Some(item) => select(item, wds, |wd| &wd.name, "WD", rd)?,
        None if wanted.is_some() => {
            let defaults = defs.default_wd();
            vec![Wd { name: "default".into(), place: rd.place.clone(), ..defaults }]
        }
        None => wds.to_vec(),
    };
    if let Some(wanted) = wanted {
        selected.iter_mut().for_each(|wd| wd.sds = wanted.clone());
    }
    let mut sds = defs.sds.clone();
    for sd in &mut sds {
        for (_, _, setting) in combination {
            match setting {
                Setting::Threads(threads) => sd.threads = *threads,
                Setting::Hitarea(bytes) => sd.hitarea = *bytes,
                _ => {}
            }
        }
        if rd.openflags.is_some() {
            sd.openflags = rd.openflags;
        }
    }
    for wd in &mut selected {
        for (name, _, setting) in combination {
            match setting {
                Setting::Xfersize(size) => wd.xfersize = size.clone(),
                Setting::Rdpct(value) => wd.rdpct = *value,
                Setting::Rhpct(value) => wd.rhpct = *value,
                Setting::Whpct(value) => wd.whpct = *value,
                Setting::Seekpct(seek) => wd.seek = *seek,
                Setting::Threads(_) | Setting::Hitarea(_) | Setting::Compratio(_) => {}
                _ => return Err(foreign_loop(rd, name, "a raw workload")),
            }
        }
        if rd.openflags.is_some() {
            wd.openflags = rd.openflags;
        }
    }
    check_streams(rd, &selected)?;
    check_priorities(rd, &selected)?;
    check_skew(rd, selected.iter().map(|wd| wd.skew))?;
    let mut names: Vec<String> = Vec::new();
    for name in selected.iter().flat_map(|wd| &wd.sds) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let groups: Vec<Vec<String>> = match sets {
        None => vec![names],
        Some(Sets::Of(count)) => names.chunks(count).map(<[String]>::to_vec).collect(),
        Some(Sets::Growing) => (1..=names.len()).map(|count| names[..count].to_vec()).collect(),
    };
    for group in groups {
        let used: Vec<Sd> = sds.iter().filter(|sd| group.contains(&sd.name)).cloned().collect();
        let mut work = RawWork { sds: used, wds: Vec::new() };
        for wd in &selected {
            let at: Vec<usize> =
                (0..work.sds.len()).filter(|i| wd.sds.contains(&work.sds[*i].name)).collect();
            if !at.is_empty() {
                work.wds.push((wd.clone(), at));
            }
        }
        if work.wds.is_empty() {
            let text = format!("rd={} has no storage to work on", rd.name);
            return Err(Error::new(ErrorKind::Missing, &rd.place, &rd.name, text)
                .hint("name wd= or sd= on the rd= line"));
        }
        if defs.general.concatenate {
            concatenate(&mut work, combination);
        } else if let Some((wd, _)) = work.wds.iter().find(|(wd, _)| wd.threads.is_some()) {
            let text = format!("threads= of wd={} needs concatenatesds=yes", wd.name);
            return Err(Error::new(ErrorKind::Conflict, &wd.place, "threads", text)
                .hint("put threads= on the sd= or the rd="));
        }
        let mut run = run.clone();
        if let Some(replay) = &rd.replay {
            run.replay = Some(crate::replay::share(replay, &mut work, &defs.groups, &run.rate, rd)?);
        }
        let label = match (&sets, group.as_slice()) {
            (None, _) => rd.name.clone(),
            (Some(Sets::Growing), [first, .., last]) => format!("{}_{first}-{last}", rd.name),
            _ => format!("{}_{}", rd.name, group.join("_")),
        };
        runs.push(Run { label, work: Work::Raw(work), ..run });
    }
    Ok(())
}

fn file_runs(
    defs: &Definitions,
    fwds: &[Fwd],
    rd: &Rd,
    combination: &Combination<'_>,
    run: Run,
    first: bool,
    runs: &mut Vec<Run>,
) -> Result<(), Error> {
    let known: Vec<&str> = defs.fsds.iter().map(|fsd| fsd.name.as_str()).collect();
    let mut selected: Vec<Fwd> = match &rd.fwds {
        Some(item) => select(item, fwds, |fwd| &fwd.name, "FWD", rd)?,
        None => fwds.to_vec(),
    };
    if let Some(item) = &rd.fsds {
        let wanted = resolve(item, &known).map_err(|missing| {
            let text = format!("Could not find fsd={missing} for rd={}", rd.name);
            unresolved(&item.place, &missing, text, &known)
        })?;
        selected.iter_mut().for_each(|fwd| fwd.fsds = wanted.clone());
    }
    let mut fsds = defs.fsds.clone();
    for fsd in &mut fsds {
        for (_, _, setting) in combination {
            match setting {
                Setting::Depth(value) => fsd.depth = *value,
                Setting::Width(value) => fsd.width = *value,
                Setting::Files(value) => fsd.files = *value,
                Setting::Sizes(value) => fsd.sizes = vec![(*value, 100.0)],
                Setting::Totalsize(value) => fsd.totalsize = Some(*value),
                Setting::Workingset(value) => fsd.workingset = Some(*value),
                _ => {}
            }
        }
        if fsd.file_count() > FILES_MAX || fsd.directories() > DIRECTORIES_MAX {
            let text = format!("rd={} makes fsd={} too large", rd.name, fsd.name);
            return Err(Error::new(ErrorKind::TooLarge, &rd.place, &fsd.name, text));
        }
        fsd.openflags = rd.openflags.or(fsd.openflags);
    }
    for fwd in &mut selected {
        for (name, _, setting) in combination {
            match setting {
                Setting::Xfersize(size) => fwd.xfersize = size.clone(),
                Setting::Threads(threads) => fwd.threads = *threads,
                Setting::Rdpct(value) => fwd.rdpct = Some(*value),
                Setting::Operation(operation) => fwd.operations = vec![*operation],
                Setting::Rhpct(_) | Setting::Whpct(_) | Setting::Seekpct(_) | Setting::Hitarea(_) => {
                    return Err(foreign_loop(rd, name, "a file system workload"));
                }
                _ => {}
            }
        }
        if !rd.operations.is_empty() {
            fwd.operations = rd.operations.clone();
        }
        if fwd.rdpct.is_some() && matches!(fwd.fileio, FileIo::Sequential { .. }) {
            let text = "'fileio=sequential' and 'rdpct=' are mutually exclusive.".to_string();
            return Err(Error::new(ErrorKind::Conflict, &rd.place, &rd.name, text));
        }
        fwd.openflags = rd.openflags.or(fwd.openflags);
    }
    check_skew(rd, selected.iter().map(|fwd| fwd.skew))?;
    let mut names: Vec<&str> = selected.iter().flat_map(|fwd| fwd.fsds.iter().map(String::as_str)).collect();
    names.extend(selected.iter().filter_map(|fwd| fwd.target.as_deref()));
    let mut used: Vec<Fsd> = fsds.iter().filter(|fsd| names.contains(&fsd.name.as_str())).cloned().collect();
    hosts::deal(&mut used, &selected, &defs.hosts);
    if used.is_empty() || selected.is_empty() {
        let text = format!("rd={} has no file system to work on", rd.name);
        return Err(
            Error::new(ErrorKind::Missing, &rd.place, &rd.name, text).hint("name fwd= on the rd= line")
        );
    }
    for (at, fsd) in used.iter().enumerate() {
        if let Some(other) = used[..at].iter().find(|other| other.anchor == fsd.anchor) {
            let text = format!(
                "fsd={} and fsd={} of rd={} have one anchor={}",
                other.name, fsd.name, rd.name, fsd.anchor
            );
            return Err(Error::new(ErrorKind::Conflict, &fsd.place, &fsd.anchor, text)
                .hint("give each an anchor of its own, or use one fsd= for both workloads"));
        }
    }
    let structural = combination.iter().any(|(name, _, _)| {
        matches!(*name, "depth" | "width" | "files" | "sizes" | "totalsize" | "compratio" | "compression")
    });
    if rd.format.wanted && (first || structural || !rd.format.once) {
        runs.push(Run {
            label: format!("format_for_{}", rd.name),
            rate: Rate::Max,
            elapsed: rd.format.limited.then_some(rd.elapsed),
            warmup: 0,
            pause: 0,
            maxdata: None,
            maxdataread: None,
            maxdatawritten: None,
            stopcurve: None,
            startcmd: Default::default(),
            endcmd: Default::default(),
            work: Work::Files(FileWork {
                fsds: used.clone(),
                fwds: Vec::new(),
                format: Some(rd.format),
                complete: false,
            }),
            ..run.clone()
        });
    }
    if rd.format.only || (rd.format.clean && !rd.format.restart) {
        return Ok(());
    }
    let complete = rd.format.complete;
    let mut work = FileWork { fsds: used, fwds: Vec::new(), format: None, complete };
    for fwd in selected {
        let at: Vec<usize> =
            (0..work.fsds.len()).filter(|i| fwd.fsds.contains(&work.fsds[*i].name)).collect();
        let groups = at.len().max(1) * fwd.operations.len().max(1);
        if !defs.general.thread_adjust && !(fwd.threads as usize).is_multiple_of(groups) {
            let text = format!(
                "fwd={}: threads={} cannot be dealt out evenly over {groups} file systems and operations",
                fwd.name, fwd.threads
            );
            return Err(Error::new(ErrorKind::Conflict, &fwd.place, "threads", text)
                .hint("use a multiple, or leave fwd_thread_adjust=no out"));
        }
        work.fwds.push((fwd, at));
    }
    runs.push(Run { work: Work::Files(work), ..run });
    Ok(())
}

fn select<T: Clone>(
    item: &Item,
    all: &[T],
    name: fn(&T) -> &String,
    what: &str,
    rd: &Rd,
) -> Result<Vec<T>, Error> {
    let known: Vec<&str> = all.iter().map(|t| name(t).as_str()).collect();
    let wanted = resolve(item, &known).map_err(|missing| {
        let error = unresolved(
            &item.place,
            &missing,
            format!("Could not find {what}={missing} for RD={}", rd.name),
            &known,
        );
        if item.place.line > rd.place.line {
            return error
                .hint(format!("{}= lines must come before the first rd=", what.to_ascii_lowercase()));
        }
        error
    })?;
    Ok(all.iter().filter(|t| wanted.contains(name(t))).cloned().collect())
}

/// `sd=single`, `sd=setsofN`, `sd=range` of a run: one run for each.
enum Sets {
    /// So many storages at a time.
    Of(usize),
    /// The first, the first two, and so on.
    Growing,
}

/// `concatenatesds=yes`: all storages of a workload become one, with threads of its own.
fn concatenate(work: &mut RawWork, combination: &Combination<'_>) {
    let parts = std::mem::take(&mut work.sds);
    let total = combination.iter().find_map(|(_, _, setting)| match setting {
        Setting::Threads(threads) => Some(*threads),
        _ => None,
    });
    for (at, (wd, used)) in work.wds.iter_mut().enumerate() {
        let own: Vec<Sd> = used.iter().map(|index| parts[*index].clone()).collect();
        let Some(first) = own.first().cloned() else { continue };
        let threads = wd.threads.or(total).unwrap_or(first.threads);
        work.sds.push(Sd { name: format!("concat_{}", wd.name), threads, range: None, parts: own, ..first });
        *used = vec![at];
    }
}

/// Where one workload has a priority or a rate of its own, all have priorities from 1 on, rates first.
fn check_priorities(rd: &Rd, wds: &[Wd]) -> Result<(), Error> {
    let Some(said) = wds.iter().find(|wd| wd.priority.is_some() || wd.iorate.is_some()) else {
        return Ok(());
    };
    let wrong = |wd: &Wd, text: &str| {
        Err(Error::new(ErrorKind::Conflict, &wd.place, &format!("rd={}", rd.name), text.to_string()))
    };
    let mut ranks: Vec<u32> = wds.iter().filter_map(|wd| wd.priority).collect();
    ranks.sort_unstable();
    if ranks.len() != wds.len() || ranks.iter().zip(1..).any(|(rank, wanted)| *rank != wanted) {
        return wrong(
            said,
            "When a workload priority= or iorate= parameter is used, ALL workloads must have a (different) priority defined, from 1 on without a gap.",
        );
    }
    if let Some(wd) = wds.iter().find(|wd| wd.iorate.is_some() && wd.skew.is_some()) {
        return wrong(wd, "'iorate=' and 'skew=' of a workload are mutually exclusive.");
    }
    let last_rate =
        wds.iter().filter(|wd| wd.iorate.is_some()).filter_map(|wd| wd.priority).max().unwrap_or(0);
    if let Some(wd) = wds.iter().find(|wd| wd.iorate.is_none() && wd.priority.unwrap_or(0) < last_rate) {
        return wrong(wd, "Workloads specifying iorate= must have a higher priority than the others.");
    }
    Ok(())
}

/// Streams are sequential, and one workload alone has them.
fn check_streams(rd: &Rd, wds: &[Wd]) -> Result<(), Error> {
    let Some(wd) = wds.iter().find(|wd| wd.streams > 1) else { return Ok(()) };
    let wrong = |text: String, hint: &str| {
        Err(Error::new(ErrorKind::Conflict, &wd.place, "streams", text).hint(hint))
    };
    if wds.len() > 1 {
        let text = format!("streams= of wd={} allows no other workload in rd={}", wd.name, rd.name);
        return wrong(text, "give it a run of its own");
    }
    if !matches!(wd.seek, Seek::Percent(0.0) | Seek::Eof | Seek::SequentialFromAnywhere) {
        return wrong(format!("streams= of wd={} needs a sequential workload", wd.name), "add seekpct=0");
    }
    Ok(())
}

fn foreign_loop(rd: &Rd, name: &str, what: &str) -> Error {
    let text = format!("{name}= on rd={} means nothing for {what}", rd.name);
    Error::new(ErrorKind::Conflict, &rd.place, name, text)
}

fn check_skew(rd: &Rd, skews: impl Iterator<Item = Option<f64>>) -> Result<(), Error> {
    let skews: Vec<Option<f64>> = skews.collect();
    let sum: f64 = skews.iter().flatten().sum();
    let open = skews.iter().filter(|s| s.is_none()).count();
    let fits = if open == 0 { sum == 0.0 || (sum - 100.0).abs() < 0.01 } else { sum <= 100.0 };
    if fits {
        return Ok(());
    }
    let text = format!("the skews of rd={} add up to {sum}, not to 100", rd.name);
    Err(Error::new(ErrorKind::Conflict, &rd.place, &format!("rd={}", rd.name), text))
}

/// Shares of the rate: what is not said shares what remains.
pub fn shares(skews: &[Option<f64>]) -> Vec<f64> {
    let said: f64 = skews.iter().flatten().sum();
    let open = skews.iter().filter(|s| s.is_none()).count().max(1) as f64;
    let rest = ((100.0 - said) / open).max(0.0);
    if said == 0.0 && skews.iter().all(Option::is_some) {
        return vec![1.0 / skews.len().max(1) as f64; skews.len()];
    }
    skews.iter().map(|s| s.unwrap_or(rest) / 100.0).collect()
}

impl Run {
    /// `Starting RD=rd1; I/O rate: Uncontrolled MAX; elapsed=4; For loops: None`, without the first word.
    pub fn banner(&self) -> String {
        let warmup = if self.warmup > 0 { format!(" warmup={}", self.warmup) } else { String::new() };
        let elapsed = self.elapsed.map_or("(none)".to_string(), |seconds| seconds.to_string());
        match &self.work {
            Work::Files(work) if work.format.is_some() => format!("RD={}", self.label),
            Work::Files(_) => {
                let rate = match &self.rate {
                    Rate::Max => "fwdrate=max.".to_string(),
                    Rate::Fixed(rate) => format!("fwdrate={rate};"),
                    Rate::Variable(_) => "fwdrate=variable;".to_string(),
                    Rate::Curve(_) => "fwdrate=curve;".to_string(),
                    Rate::AsTraced => "fwdrate=traced;".to_string(),
                };
                format!("RD={}; elapsed={elapsed}{warmup}; {rate} For loops: {}", self.label, self.loops)
            }
            Work::Raw(work) => {
                let controlled = work.wds.iter().any(|(wd, _)| wd.skew.is_some());
                let rate = match &self.rate {
                    Rate::Max if controlled => "Controlled MAX".to_string(),
                    Rate::Max => "Uncontrolled MAX".to_string(),
                    Rate::Fixed(rate) => format!("{rate}"),
                    Rate::Variable(_) => "Variable".to_string(),
                    Rate::Curve(_) => "Uncontrolled curve".to_string(),
                    Rate::AsTraced => "as traced".to_string(),
                };
                let rate = match &self.replay {
                    Some(replay) => format!("{rate} (replay of {})", replay.file),
                    None => rate,
                };
                format!(
                    "RD={}; I/O rate: {rate}; elapsed={elapsed}{warmup}; For loops: {}",
                    self.label, self.loops
                )
            }
        }
    }
}

impl Plan {
    /// What `-s` prints: each run, and the sum of their seconds.
    pub fn simulation(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let (mut seconds, mut count) = (0u64, 0usize);
        for run in &self.runs {
            lines.push(format!("Simulating {}", run.banner()));
            let points = if let Rate::Curve(points) = &run.rate { points.as_slice() } else { &[] };
            for percent in points {
                let rate = curve_rate(10_000.0, *percent);
                let at = Run {
                    label: format!("{}_({percent}%)", run.label),
                    rate: Rate::Fixed(rate),
                    ..run.clone()
                };
                lines.push(format!("Simulating {}", at.banner()));
            }
            count += 1 + points.len();
            seconds += (run.elapsed.unwrap_or(0) + run.warmup + run.pause) * (1 + points.len() as u64);
        }
        lines.push(format!(
            "Total amount of Run Definitions: {count}; total elapsed time {seconds} seconds, or {:.4} hours, plus a format if requested.",
            seconds as f64 / 3600.0
        ));
        lines
    }

    /// `Anchor size:` of each file system that is used.
    pub fn anchor_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let (mut directories, mut files, mut bytes) = (0u64, 0u64, 0u64);
        let mut seen: Vec<&str> = Vec::new();
        for run in &self.runs {
            let Work::Files(work) = &run.work else { continue };
            for fsd in work.fsds.iter() {
                if seen.contains(&fsd.anchor.as_str()) {
                    continue;
                }
                seen.push(&fsd.anchor);
                let size = fsd.total_bytes();
                lines.push(format!(
                    "Anchor size: anchor={}: dirs: {:>12}; files: {:>12}; bytes: {:>10} ({})",
                    fsd.anchor,
                    thousands(fsd.directories()),
                    thousands(fsd.file_count()),
                    short_bytes(size),
                    thousands(size)
                ));
                directories += fsd.directories();
                files = files.saturating_add(fsd.file_count());
                bytes = bytes.saturating_add(size);
            }
        }
        if lines.len() > 1 {
            lines.push(format!(
                "Estimated totals for all {} anchors: dirs: {}; files: {}; bytes: {} ",
                lines.len(),
                thousands(directories),
                thousands(files),
                short_bytes(bytes)
            ));
        }
        lines
    }
}

impl Fsd {
    /// Bytes of all files, from the mean of `sizes=`, limited by `totalsize=`.
    pub fn total_bytes(&self) -> u64 {
        let mean: f64 = match self.sizes.as_slice() {
            [(average, 0.0)] => *average as f64,
            sizes => sizes.iter().map(|(size, percent)| *size as f64 * percent / 100.0).sum(),
        };
        let bytes = (mean * self.file_count() as f64) as u64;
        self.totalsize.map_or(bytes, |limit| bytes.min(limit))
    }
}

/// The rate of a point of a curve: rounded up to 10, above 1000 to 100.
pub fn curve_rate(max: f64, percent: f64) -> f64 {
    let rate = max * percent / 100.0;
    let step = if rate > 1000.0 { 100.0 } else { 10.0 };
    ((rate / step).ceil() * step).max(step)
}

/// `64.000m`; small sizes as they are.
pub fn short_bytes(bytes: u64) -> String {
    let value = bytes as f64;
    for (letter, factor) in [("t", 1u64 << 40), ("g", 1 << 30), ("m", 1 << 20)] {
        if bytes >= factor {
            return format!("{:.3}{letter}", value / factor as f64);
        }
    }
    if bytes >= 100 << 10 { format!("{:.3}k", value / 1024.0) } else { bytes.to_string() }
}

/// `67,108,864`.
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// How a size is written in parameter files: `64k`.
pub fn size_text(bytes: u64) -> String {
    show_size(bytes as f64)
}
