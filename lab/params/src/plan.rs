//! From definitions to runs: names resolved, checks across definitions, loops unrolled, formats
//! inserted.

use crate::checks::{
    check_dedup, check_journal, check_replay, check_times, check_validate, clean_first, dedups,
};
use crate::error::{Error, ErrorKind, Place, nearest};
use crate::hosts;
use crate::lexer::Item;
use crate::model::*;
use crate::number::{Number, Unit, numbers};
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

/// Settings of the command line that override the file.
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
    if let (Some(sd), Some(fsd)) = (definitions.sds.first(), definitions.fsds.first()) {
        let text = "'fsd' and 'sd' parameters are mutually exclusive.".to_string();
        let (raw, tree) = ((&sd.place, format!("sd={}", sd.name)), (&fsd.place, format!("fsd={}", fsd.name)));
        let (place, word) = if raw.0.line > tree.0.line { raw } else { tree };
        return Err(
            Error::new(ErrorKind::Conflict, place, &word, text).hint("put them into two parameter files")
        );
    }
    let (wds, fwds) = resolve_workloads(&mut definitions)?;
    let mut runs = Vec::new();
    let mut rds = std::mem::take(&mut definitions.rds);
    if rds.is_empty() {
        let text = "No RD parameters specified".to_string();
        let mut error = Error::new(ErrorKind::Missing, &Place::default(), "rd", text)
            .hint("say what shall be run: rd=rd1,... with wd= or fwd=, a rate and elapsed=");
        error.place = None;
        return Err(error);
    }
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

/// Each storage has a journal of its own. Names of storages in workloads. Where vdbench waits until
/// a run needs them, a mistake is found here already.
fn resolve_workloads(definitions: &mut Definitions) -> Result<(Vec<Wd>, Vec<Fwd>), Error> {
    let sds: Vec<&str> = definitions.sds.iter().map(|sd| sd.name.as_str()).collect();
    let fsds: Vec<&str> = definitions.fsds.iter().map(|fsd| fsd.name.as_str()).collect();
    let mut wds = Vec::new();
    for Named { definition: wd, names, seek_said, .. } in &definitions.wds {
        let mut wd = wd.clone();
        if wd.streams > 1 && !seek_said {
            wd.seek = Seek::Percent(0.0);
        }
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
    for Named { definition: fwd, names, rdpct_said, .. } in &definitions.fwds {
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
        return wrong("replay= is for storages (SD): a trace has no file names.");
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
                    "these loops give too many runs".into(),
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

/// Where one workload has a priority or a rate of its own, all have priorities from 1 on, rates
/// first.
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
    let fits = if open == 0 { sum == 0.0 || crate::read::whole(sum) } else { sum <= 100.0 };
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

/// The rate of a point of a curve: rounded up to 10, above 1000 to 100.
pub fn curve_rate(max: f64, percent: f64) -> f64 {
    let rate = max * percent / 100.0;
    let step = if rate > 1000.0 { 100.0 } else { 10.0 };
    ((rate / step).ceil() * step).max(step)
}
