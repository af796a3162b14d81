//! Words that steer an execution: commands before and after, repetition, a monitor file, histogram
//! edges.

use crate::error::{Error, ErrorKind};
use crate::lexer::Item;
use crate::model::{ErrorLimit, Removal, Timeout, TimeoutThen};
use crate::number::{Number, Unit, number};
use crate::read::{bad, single};
use serde::{Deserialize, Serialize};

/// Buckets that `histogram=` may have, as in vdbench.
const BUCKETS_MAX: usize = 64;
/// Longest repetition, in rounds or seconds.
const LOOP_MAX: f64 = 1e9;

/// Where the output of a command goes.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CommandOutput {
    /// `cons`: console and logfile.html.
    Console,
    /// `sum`: summary.html, and so console and logfile.html too.
    Summary,
    /// `log`: logfile.html only.
    #[default]
    Log,
}

/// `startcmd=`, `endcmd=`: commands for the shell, in order.
#[derive(Serialize, Deserialize, Clone, Debug, Default, Eq, PartialEq)]
pub struct Commands {
    /// Lines for `sh -c`; `$output` stands for the output directory.
    pub lines: Vec<String>,
    /// Where their output goes.
    pub to: CommandOutput,
}

/// `validate=`, `-v`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Eq, PartialEq)]
pub struct Validate {
    /// Bytes of a key block: the smallest transfer of all runs. Set when all runs are known.
    pub block: u64,
    /// `read_after_write`, `-vr`.
    pub reread: bool,
    /// Known blocks are read before they are written; not with `no_preread`, `-vw`.
    pub preread: bool,
    /// `time`, `-vt`: the time of each write is remembered and compared.
    pub time: bool,
    /// `ignore_zero_reads`: a block of zeros is not called corrupted.
    pub ignore_zeros: bool,
}

impl Default for Validate {
    fn default() -> Validate {
        Validate { block: 512, reread: false, preread: true, time: false, ignore_zeros: false }
    }
}

impl Validate {
    /// Follows one word of `validate=`; false if it is none.
    pub fn follow(&mut self, word: &str) -> bool {
        match word {
            "yes" => {}
            "read_after_write" => self.reread = true,
            "no_preread" => self.preread = false,
            "time" => self.time = true,
            "ignore_zero_reads" => self.ignore_zeros = true,
            _ => return false,
        }
        true
    }
}

/// `None` for `validate=no`.
pub(crate) fn validate(item: &Item) -> Result<Option<Validate>, Error> {
    let mut rules = Validate::default();
    for value in &item.values {
        let word = value.text.to_ascii_lowercase();
        if word == "no" && item.values.len() == 1 {
            return Ok(None);
        }
        if word == "reportdedupsets" {
            let text = "validate=reportdedupsets is not carried out yet".to_string();
            return Err(Error::new(ErrorKind::NotYet, &item.place, &word, text));
        }
        if !rules.follow(&word) {
            let known = "known: yes, no, read_after_write, no_preread, time, ignore_zero_reads";
            return Err(bad(item, format!("validate={word} is not known")).hint(known));
        }
    }
    Ok(Some(rules))
}

/// `journal=`, `-j`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct JournalRules {
    /// `recover`, `-jr`: what an earlier execution left is read and compared first.
    pub recover: bool,
    /// `only`, `-jro`: and nothing else is done.
    pub only: bool,
    /// `noflush`, `-jn`: entries need not be durable.
    pub noflush: bool,
    /// `maponly`, `-jm`: no entries; only the map at the end of each run.
    pub maponly: bool,
    /// `skip_read_all`, `-js`: a recovery reads only what was under way.
    pub skip_read_all: bool,
    /// `ignore_pending`, `-ji`: what was under way is not judged.
    pub ignore_pending: bool,
    /// `(max,n)`: bytes at which the journal begins again.
    pub max: Option<u64>,
}

impl JournalRules {
    /// Follows one word of `journal=`; false if it is none.
    pub fn follow(&mut self, word: &str) -> bool {
        match word {
            "yes" => {}
            "recover" => self.recover = true,
            "only" => (self.recover, self.only) = (true, true),
            "noflush" => self.noflush = true,
            "maponly" => self.maponly = true,
            "skip_read_all" => self.skip_read_all = true,
            "ignore_pending" => self.ignore_pending = true,
            _ => return false,
        }
        true
    }
}

/// `None` for `journal=no`.
pub(crate) fn journal(item: &Item) -> Result<Option<JournalRules>, Error> {
    let mut rules = JournalRules::default();
    let mut values = item.values.iter();
    while let Some(value) = values.next() {
        let word = value.text.to_ascii_lowercase();
        // `(max,n)`, or `max=n`.
        let limit = match word.strip_prefix("max") {
            Some("") => values.next().map(|value| value.text.as_str()),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        if word.starts_with("max") {
            rules.max = match limit.and_then(|text| number(text, Unit::Size)) {
                Some(Number::Plain(value)) if (4096.0..=1e15).contains(&value) => Some(value as u64),
                _ => return Err(bad(item, "journal=(max,n) takes bytes, 4k or more")),
            };
        } else if word == "no" && item.values.len() == 1 {
            return Ok(None);
        } else if !rules.follow(&word) {
            let known = "known: yes, no, recover, only, noflush, maponly, skip_read_all, ignore_pending, max";
            return Err(bad(item, format!("journal={word} is not known")).hint(known));
        }
    }
    Ok(Some(rules))
}

/// `loop=`, `-l`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Eq, PartialEq)]
pub enum Repeat {
    /// All runs so many times.
    Times(u64),
    /// No new round begins after so many seconds.
    Seconds(u64),
    /// Until stopped.
    Forever,
}

pub(crate) fn commands(item: &Item) -> Result<Commands, Error> {
    let mut out = Commands::default();
    for value in &item.values {
        match value.text.as_str() {
            "cons" => out.to = CommandOutput::Console,
            "sum" => out.to = CommandOutput::Summary,
            "log" => out.to = CommandOutput::Log,
            // There is one process: it is master and slave.
            "master" | "slave" => {}
            line => out.lines.push(line.to_string()),
        }
    }
    if out.lines.is_empty() {
        return Err(bad(item, format!("{}= names no command", item.keyword)));
    }
    Ok(out)
}

/// `data_errors=`: a number, a number and seconds, `remove`, `(remove,seconds)`, or a command.
pub(crate) fn errors(item: &Item) -> Result<ErrorLimit, Error> {
    let words: Vec<&str> = item.values.iter().map(|value| value.text.as_str()).collect();
    let plain = |text: &str| match number(text, Unit::Size) {
        Some(Number::Plain(value)) if (0.0..=1e15).contains(&value) => Some(value as u64),
        _ => None,
    };
    let default = ErrorLimit { count: 50, ..ErrorLimit::default() };
    match words.as_slice() {
        [word] if word.eq_ignore_ascii_case("remove") => {
            Ok(ErrorLimit { count: u64::MAX, remove: Some(Removal::ForGood), ..default })
        }
        [word, seconds] if word.eq_ignore_ascii_case("remove") => match plain(seconds) {
            Some(seconds) => {
                Ok(ErrorLimit { count: u64::MAX, remove: Some(Removal::Seconds(seconds)), ..default })
            }
            None => Err(bad(
                item,
                format!("data_errors=(remove,{seconds}): '{seconds}' is not a number of seconds"),
            )),
        },
        [one] => match plain(one) {
            Some(count) => Ok(ErrorLimit { count, ..default }),
            None => Ok(ErrorLimit { count: 1, command: Some((*one).to_string()), ..default }),
        },
        [count, seconds] => match (plain(count), plain(seconds)) {
            (Some(count), Some(seconds)) => Ok(ErrorLimit { count, seconds: Some(seconds), ..default }),
            _ => Err(bad(item, "data_errors=(n,seconds) takes two numbers")),
        },
        _ => Err(bad(item, "data_errors= takes n, (n,seconds), remove, (remove,seconds) or a command")),
    }
}

/// `timeout=`.
pub(crate) fn timeout(item: &Item) -> Result<Timeout, Error> {
    let words: Vec<&str> = item.values.iter().map(|value| value.text.as_str()).collect();
    let seconds = |text: &str| match number(text, Unit::Time) {
        Some(Number::Plain(value)) if (1.0..=1e9).contains(&value) => Ok(value as u64),
        _ => Err(bad(item, format!("timeout=: '{text}' is not a number of seconds"))),
    };
    let made = |seconds, then| Ok(Timeout { seconds, then });
    match words.as_slice() {
        [word] if word.eq_ignore_ascii_case("report") => made(1, TimeoutThen::Report),
        [word, after] if word.eq_ignore_ascii_case("report") => made(seconds(after)?, TimeoutThen::Report),
        [after] => made(seconds(after)?, TimeoutThen::Say),
        [after, word] if word.eq_ignore_ascii_case("abort") => made(seconds(after)?, TimeoutThen::Abort),
        [after, then] => match number(then, Unit::Time) {
            Some(_) => made(seconds(after)?, TimeoutThen::AbortAfter(seconds(then)?)),
            None => made(seconds(after)?, TimeoutThen::Script((*then).to_string())),
        },
        _ => Err(bad(
            item,
            "timeout= takes seconds, (seconds,abort), (seconds,seconds), (seconds,script) or report",
        )),
    }
}

pub(crate) fn repeat(item: &Item) -> Result<Repeat, Error> {
    let text = single(item)?;
    repeat_text(text).ok_or_else(|| {
        bad(item, format!("loop={text}: '{text}' is not a number of rounds"))
            .hint("use loop=3, loop=90s, loop=5m or loop=24h")
    })
}

/// `3`, `90s`, `5m`, `24h`; `None` if it is none of these.
pub fn repeat_text(text: &str) -> Option<Repeat> {
    let lower = text.to_ascii_lowercase();
    let letter = lower.chars().last()?;
    let factor = match letter {
        's' => 1.0,
        'm' => 60.0,
        'h' => 3600.0,
        _ => 0.0,
    };
    let digits = if factor > 0.0 { &lower[..lower.len() - 1] } else { lower.as_str() };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count = digits.parse::<f64>().ok().filter(|n| (1.0..=LOOP_MAX).contains(n))?;
    Some(if factor > 0.0 { Repeat::Seconds((count * factor) as u64) } else { Repeat::Times(count as u64) })
}

/// Upper edges in nanoseconds, rising. Empty: histograms are suppressed.
pub(crate) fn histogram(item: &Item) -> Result<Vec<u64>, Error> {
    let words: Vec<&str> = item.values.iter().map(|v| v.text.as_str()).collect();
    if words.iter().any(|w| w.eq_ignore_ascii_case("suppress")) {
        return Ok(Vec::new());
    }
    let [first, edges @ ..] = words.as_slice() else { return Err(bad(item, "histogram= needs values")) };
    if !first.eq_ignore_ascii_case("default") || edges.is_empty() {
        return Err(bad(item, "histogram= takes (default,20,40,...,1m,2s)"));
    }
    // The last bucket has no upper edge.
    if edges.len() >= BUCKETS_MAX {
        let text = format!("histogram= may have {BUCKETS_MAX} buckets, not {}", edges.len() + 1);
        return Err(Error::new(ErrorKind::TooLarge, &item.place, "histogram", text));
    }
    let mut out: Vec<u64> = Vec::new();
    for edge in edges {
        let ns = edge_ns(edge).ok_or_else(|| {
            bad(item, format!("histogram=: '{edge}' is not a response time"))
                .hint("units are u, m, s; none is u")
        })?;
        if out.last().is_some_and(|last| *last >= ns) {
            return Err(bad(item, format!("histogram=: {edge} is not above the value before it")));
        }
        out.push(ns);
    }
    Ok(out)
}

fn edge_ns(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, factor) = match lower.chars().last()? {
        'u' => (&lower[..lower.len() - 1], 1e3),
        'm' => (&lower[..lower.len() - 1], 1e6),
        's' => (&lower[..lower.len() - 1], 1e9),
        _ => (lower.as_str(), 1e3),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let ns = digits.parse::<f64>().ok()? * factor;
    (1.0..=3.6e12).contains(&ns).then_some(ns as u64)
}
