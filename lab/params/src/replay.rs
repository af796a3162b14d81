//! `replay=`: a run that repeats a trace instead of drawing operations.
//!
//! A device of the trace belongs to the sd that names it with `replay=`, itself or by its group
//! (`rg=`). Several sds of one group are one storage, several devices of one lie one behind the
//! other. One sd alone may name none: it has what no other names.

use crate::error::{Error, ErrorKind, Place};
use crate::lexer::Item;
use crate::model::{Rate, RawWork, Sd, Seek, XferSize};
use crate::number::{Number, Unit, number};
use crate::read::{bad, single};
use crate::section::Rd;
use serde::{Deserialize, Serialize};

/// `rg=name,devices=(...)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub name: String,
    pub devices: Vec<String>,
    pub place: Place,
}

/// `replay=(file,repeat=n,fold=size)` of an rd, with the devices of its storages.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Replay {
    /// The trace.
    pub file: String,
    /// How often.
    pub repeat: u64,
    /// Addresses of each device are taken modulo so many bytes.
    pub fold: Option<u64>,
    /// Which devices go where.
    pub shares: Vec<ReplayShare>,
}

/// Devices that share storages.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct ReplayShare {
    /// Their names in the trace; none: all that no other share has.
    pub devices: Vec<String>,
    /// Storages, as places in the run's.
    pub sds: Vec<usize>,
}

/// `replay=` of an rd.
pub(crate) fn replay(item: &Item) -> Result<Replay, Error> {
    let mut values = item.values.iter();
    let file = values.next().map(|value| value.text.clone()).unwrap_or_default();
    let mut out = Replay { file, repeat: 1, fold: None, shares: Vec::new() };
    for value in values {
        let (word, text) = value.text.split_once('=').unwrap_or((value.text.as_str(), ""));
        let plain = |low: f64| match number(text, Unit::Size) {
            Some(Number::Plain(value)) if (low..=4e18).contains(&value) => Ok(value as u64),
            _ => Err(bad(item, format!("replay=: {word}=: '{text}' is not a number"))),
        };
        let refuse = |why: &str| {
            let text = format!("replay=: {word}= is not carried out: {why}");
            Err(Error::new(ErrorKind::NotYet, &item.place, word, text))
        };
        match word.to_ascii_lowercase().as_str() {
            "repeat" => out.repeat = plain(1.0)?.min(1_000_000),
            "fold" => out.fold = Some(plain(512.0)? / 512 * 512),
            // Nothing is written: the trace is kept in memory.
            "split" | "compress" => {}
            "duplication" | "stagger" => return refuse("give each copy of a device an rd= of its own"),
            _ => {
                let text = format!("Unknown Replay parameter: {}", value.text);
                return Err(bad(item, text).hint("known: repeat=n, fold=size"));
            }
        }
    }
    Ok(out)
}

/// `devices=` of an rg, `replay=` of an sd.
pub(crate) fn devices(item: &Item) -> Vec<String> {
    item.values.iter().map(|value| value.text.clone()).collect()
}

/// The name behind `rg=`.
pub(crate) fn group(item: &Item, known: &[Group]) -> Result<Group, Error> {
    let name = single(item)?.to_string();
    if known.iter().any(|group| group.name == name) {
        let text = format!("Adding duplicate ReplayGroup: {name}");
        return Err(Error::new(ErrorKind::Duplicate, &item.place, &name, text));
    }
    Ok(Group { name, devices: Vec::new(), place: item.place.clone() })
}

/// The trace's devices for each storage of a run. Choices of other runs have no effect here.
pub(crate) fn share(
    replay: &Replay,
    work: &mut RawWork,
    groups: &[Group],
    rate: &Rate,
    rd: &Rd,
) -> Result<Replay, Error> {
    let refuse = |word: &str, text: String, hint: &str| {
        Err(Error::new(ErrorKind::Conflict, &rd.place, word, text).hint(hint))
    };
    if !matches!(rate, Rate::Max | Rate::Fixed(_) | Rate::AsTraced) {
        let text = format!("rd={}: a replay has a single rate", rd.name);
        return refuse("iorate", text, "write a number or max, or leave it out for the trace's own rate");
    }
    for (at, sd) in work.sds.iter().enumerate() {
        let mut users = work.wds.iter().filter(|(_, sds)| sds.contains(&at));
        if let (Some((first, _)), Some((second, _))) = (users.next(), users.next()) {
            let text =
                format!("rd={}: wd={} and wd={} replay on sd={}", rd.name, first.name, second.name, sd.name);
            return refuse("wd", text, "one wd= for each sd= is enough: the operations are in the trace");
        }
    }
    let mut out = Replay { shares: Vec::new(), ..replay.clone() };
    let mut rest: Option<&Sd> = None;
    for (at, sd) in work.sds.iter().enumerate() {
        if sd.replay.is_empty() {
            if let Some(other) = rest.replace(sd) {
                let text =
                    format!("rd={}: neither sd={} nor sd={} has replay=", rd.name, other.name, sd.name);
                return refuse(
                    "replay",
                    text,
                    "write the devices of the trace for each of them: replay=(device,...)",
                );
            }
            out.shares.push(ReplayShare { devices: Vec::new(), sds: vec![at] });
            continue;
        }
        let mut own = Vec::new();
        for name in &sd.replay {
            let Some(group) = groups.iter().find(|group| group.name == *name) else {
                own.push(name.clone());
                continue;
            };
            match out.shares.iter_mut().find(|share| share.devices == group.devices) {
                Some(share) => share.sds.push(at),
                None => out.shares.push(ReplayShare { devices: group.devices.clone(), sds: vec![at] }),
            }
        }
        if !own.is_empty() {
            out.shares.push(ReplayShare { devices: own, sds: vec![at] });
        }
    }
    let all: Vec<&String> = out.shares.iter().flat_map(|share| &share.devices).collect();
    if let Some((_, name)) = all.iter().enumerate().find(|(at, name)| all[..*at].contains(name)) {
        let text = format!("rd={}: device {name} of the trace is listed twice", rd.name);
        return refuse("replay", text, "put it into one rg= and name that with replay= of each sd=");
    }
    let sizes = |sd: &Sd| sd.range.is_some() || sd.offset > 0;
    if let Some(sd) = work.sds.iter().find(|sd| sizes(sd)) {
        let text = format!("sd={}: range= and offset= mean nothing for a replay", sd.name);
        return refuse("range", text, "leave them out");
    }
    // The reports say what is known of all operations: nothing.
    for (wd, _) in &mut work.wds {
        wd.xfersize = XferSize::Weighted(Vec::new());
        wd.seek = Seek::Eof;
    }
    Ok(out)
}
