//! Checks across definitions, once all runs are known.

use crate::error::{Error, ErrorKind, Place, Warning};
use crate::model::*;
use crate::section::{Definitions, Rd};

pub(crate) fn check_journal(definitions: &Definitions, rds: &[Rd]) -> Result<(), Error> {
    let place = rds.first().map_or(Place { file: "".into(), line: 0 }, |rd| rd.place.clone());
    if definitions.general.concatenate {
        let text = "journal= and concatenatesds= cannot be combined here.".to_string();
        return Err(Error::new(ErrorKind::Conflict, &place, "journal", text));
    }
    Ok(())
}

/// Refuses words that do not go together with a replay.
pub(crate) fn check_replay(definitions: &Definitions, runs: &[Run], rds: &[Rd]) -> Result<(), Error> {
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
                "replay= and {word} cannot be combined here: the trace says which operations are done, and where."
            );
            return Err(Error::new(ErrorKind::Conflict, &place, word, text));
        }
    }
    Ok(())
}

/// Finds the size of key blocks: the smallest transfer, of which all others must be multiples.
pub(crate) fn check_validate(definitions: &mut Definitions, runs: &[Run], rds: &[Rd]) -> Result<(), Error> {
    let Some(mut rules) = definitions.general.validate else { return Ok(()) };
    let place = rds.first().map_or(Place { file: "".into(), line: 0 }, |rd| rd.place.clone());
    let refuse = |word: &str, text: String| Err(Error::new(ErrorKind::Conflict, &place, word, text));
    for (word, said) in [
        ("dedupratio", !dedups(definitions.general.dedup, &definitions.sds, &definitions.fsds).is_empty()),
        ("pattern", definitions.general.pattern.is_some()),
    ] {
        if said {
            return refuse(word, format!("data validation and {word}= cannot be combined here."));
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
pub(crate) fn clean_first(runs: &mut Vec<Run>) {
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

/// Repeating content: everywhere, and on storages with words of their own.
pub(crate) fn dedups<'a>(
    general: Option<Dedup>,
    sds: &'a [Sd],
    fsds: &'a [Fsd],
) -> Vec<(Dedup, Option<&'a str>)> {
    let own_sds = sds.iter().filter_map(|sd| Some((sd.dedup?, Some(sd.name.as_str()))));
    let own_fsds = fsds.iter().filter_map(|fsd| Some((fsd.dedup?, Some(fsd.name.as_str()))));
    general.map(|dedup| (dedup, None)).into_iter().chain(own_sds).chain(own_fsds).collect()
}

/// Every write must be whole blocks, or blocks would not be what the ratio counts. `storage`: of
/// this one alone.
pub(crate) fn check_dedup(
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
        let text = format!(
            "dedupsets={percent}% asks for more different contents than dedupratio={} allows",
            dedup.ratio
        );
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

pub(crate) fn check_times(rd: &Rd, warnings: &mut Vec<Warning>) -> Result<(), Error> {
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
