//! `zpool inject`: injects faults, to test how a pool heals.

use super::operands::device_path;
use crate::command::Command;
use crate::options::{Flag, MANY, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::{Column, render, tame};

use steadfast_control::inject::{Calls, Extent, Fault, InForce, InjectCommand, PoolInject, STERN_FLAG, When};
use steadfast_property::{nice_bytes, nice_nanos, parse_size};

pub(super) const COMMAND: Command = Command {
    names: &["inject"],
    syntax: Syntax {
        flags: &[
            flag('c', "remove the faults of the device, or all faults; damaged bytes stay damaged"),
            Flag {
                letter: '\0',
                long: STERN_FLAG,
                value: "",
                doc: "required for every fault, except in test builds: faults damage the pool",
            },
        ],
        operands: "pool [device [fault [name=value]...]]",
        least: 1,
        most: MANY,
    },
    doc: "Injects a fault into a device. Without a fault, lists the faults in force. \
          Faults: zero and flip [offset= length=] (flip: bits= seed=), eio [on=read|write|flush|any], misdirect \
          [nth=|every=], gone, slow [latency= rate=], disk [seek= rate=].",
    run: inject,
};

/// Settings of a fault: words of the form `name=value`.
struct Settings<'a> {
    fault: &'a str,
    left: Vec<(&'a str, &'a str)>,
}

impl<'a> Settings<'a> {
    fn new(fault: &'a str, words: &'a [String]) -> Result<Settings<'a>, Failure> {
        let mut left: Vec<(&str, &str)> = Vec::new();
        for word in words {
            match word.split_once('=') {
                Some((name, _)) if left.iter().any(|(known, _)| *known == name) => {
                    return Err(Failure::Usage(format!("'{name}' is specified twice")));
                }
                Some(setting) => left.push(setting),
                None => return Err(Failure::Usage(format!("missing '=' in '{word}': expected name=value"))),
            }
        }
        Ok(Settings { fault, left })
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.left.iter().position(|(known, _)| *known == name)?;
        Some(self.left.remove(at).1)
    }

    fn wrong(name: &str, value: &str, form: &str) -> Failure {
        Failure::Usage(format!("invalid value for {name}: '{value}' is not {form}"))
    }

    fn size(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        parse_size(value).map(Some).ok_or_else(|| Settings::wrong(name, value, "a size, as in 64M"))
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| Settings::wrong(name, value, "a number"))
    }

    fn nanos(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        nanos(value).map(Some).ok_or_else(|| Settings::wrong(name, value, "a time, as in 8ms or 500us"))
    }

    fn extent(&mut self) -> Result<Extent, Failure> {
        Ok(Extent { offset: self.size("offset")?, length: self.size("length")? })
    }

    fn when(&mut self) -> Result<When, Failure> {
        match (self.number("nth")?, self.number("every")?) {
            (Some(_), Some(_)) => Err(Failure::Usage("nth cannot be combined with every".into())),
            (Some(at), None) => Ok(When::Once(at)),
            (None, Some(at)) => Ok(When::Every(at)),
            (None, None) => Ok(When::Once(1)),
        }
    }

    fn calls(&mut self) -> Result<Calls, Failure> {
        match self.take("on") {
            None | Some("any") => Ok(Calls::Any),
            Some("read") => Ok(Calls::Read),
            Some("write") => Ok(Calls::Write),
            Some("flush") => Ok(Calls::Flush),
            Some(other) => Err(Settings::wrong("on", other, "one of read, write, flush, any")),
        }
    }

    fn finish(self, command: InjectCommand) -> Result<InjectCommand, Failure> {
        match self.left.first() {
            None => Ok(command),
            Some((name, _)) => {
                Err(Failure::Usage(format!("the fault '{}' has no setting '{name}'", self.fault)))
            }
        }
    }
}

/// A time with its unit: `8ms`, `500us`, `2s`, `100ns`.
fn nanos(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Reads a fault and its settings.
fn command(words: &[String]) -> Result<InjectCommand, Failure> {
    let Some((fault, settings)) = words.split_first() else { return Ok(InjectCommand::List) };
    let mut settings = Settings::new(fault, settings)?;
    let command = match fault.as_str() {
        "zero" => InjectCommand::Zero(settings.extent()?),
        "flip" => InjectCommand::Flip {
            extent: settings.extent()?,
            bits: settings.number("bits")?.unwrap_or(8),
            seed: settings.number("seed")?.unwrap_or(1),
        },
        "eio" => InjectCommand::Arm(Fault::Eio { on: settings.calls()?, when: settings.when()? }),
        "misdirect" => InjectCommand::Arm(Fault::Misdirect { when: settings.when()? }),
        "gone" => InjectCommand::Arm(Fault::Gone),
        "slow" => InjectCommand::Arm(Fault::Slow {
            latency_ns: settings.nanos("latency")?.unwrap_or(0),
            rate: settings.size("rate")?.unwrap_or(0),
        }),
        "disk" => InjectCommand::Arm(Fault::Disk {
            seek_ns: settings.nanos("seek")?.unwrap_or(8_000_000),
            rate: settings.size("rate")?.unwrap_or(150_000_000),
        }),
        other => {
            return Err(Failure::Usage(format!(
                "unknown fault '{}': must be zero, flip, eio, misdirect, gone, slow or disk",
                tame(other)
            )));
        }
    };
    settings.finish(command)
}

fn inject(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let device = parsed.operands.get(1).map(|word| device_path(session, word));
    let mut wish = command(parsed.operands.get(2..).unwrap_or_default())?;
    if parsed.has('c') {
        if wish != InjectCommand::List {
            return Err(Failure::Usage("-c cannot be combined with a fault".into()));
        }
        wish = InjectCommand::Clear;
    }
    let lists = wish == InjectCommand::List;
    let told = match &wish {
        InjectCommand::Zero(_) => "bytes zeroed",
        InjectCommand::Flip { .. } => "bits flipped",
        InjectCommand::Clear => "faults removed",
        _ => "",
    };
    let only = device.as_ref().filter(|_| lists).map(|device| device.display().to_string());
    let damage_wanted = parsed.has_long(STERN_FLAG);
    let request = PoolInject { name: name.clone(), device, command: wish, damage_wanted };
    let answer = session.ask(request).doing(|| format!("cannot inject into '{}'", tame(&name)))?;
    if !told.is_empty() {
        session.line(format!("{} {told}", answer.done));
    }
    if lists {
        let shown: Vec<&InForce> = answer
            .in_force
            .iter()
            .filter(|one| only.as_ref().is_none_or(|only| one.device == *only))
            .collect();
        list(session, &shown);
    }
    Ok(())
}

fn list(session: &mut Session<'_, '_>, in_force: &[&InForce]) {
    if in_force.is_empty() {
        session.line("no faults injected");
        return;
    }
    let columns = [("DEVICE", false), ("FAULT", false), ("CALLS", true), ("STRUCK", true)]
        .map(|(heading, right)| Column { heading: heading.to_owned(), right });
    let row = |one: &&InForce| {
        vec![tame(&one.device), describe(one.fault), one.seen.to_string(), one.struck.to_string()]
    };
    let rows: Vec<Vec<String>> = in_force.iter().map(row).collect();
    session.out.push_str(&render(&columns, &rows, false));
}

/// A fault as the operands that inject it.
fn describe(fault: Fault) -> String {
    let when = |when| match when {
        When::Once(at) => format!("nth={at}"),
        When::Every(at) => format!("every={at}"),
    };
    let rate = |rate| if rate == 0 { String::new() } else { format!(" rate={}", nice_bytes(rate)) };
    match fault {
        Fault::Eio { on, when: at } => {
            let on = match on {
                Calls::Read => "read",
                Calls::Write => "write",
                Calls::Flush => "flush",
                Calls::Any => "any",
            };
            format!("eio on={on} {}", when(at))
        }
        Fault::Misdirect { when: at } => format!("misdirect {}", when(at)),
        Fault::Gone => "gone".to_owned(),
        Fault::Slow { latency_ns, rate: of } => {
            format!("slow latency={}{}", nice_nanos(latency_ns), rate(of))
        }
        Fault::Disk { seek_ns, rate: of } => format!("disk seek={}{}", nice_nanos(seek_ns), rate(of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<InjectCommand, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        command(&words).map_err(|failure| match failure {
            Failure::Usage(sentence) => sentence,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn faults_are_read_with_their_settings() {
        assert_eq!(read(""), Ok(InjectCommand::List));
        let extent = Extent { offset: Some(1 << 20), length: Some(64 << 20) };
        assert_eq!(read("zero offset=1M length=64M"), Ok(InjectCommand::Zero(extent)));
        let eio = Fault::Eio { on: Calls::Read, when: When::Every(7) };
        assert_eq!(read("eio on=read every=7"), Ok(InjectCommand::Arm(eio)));
        assert_eq!(describe(eio), "eio on=read every=7");
        let disk = Fault::Disk { seek_ns: 8_000_000, rate: 100 << 20 };
        assert_eq!(read("disk seek=8ms rate=100M"), Ok(InjectCommand::Arm(disk)));
        let slow = Fault::Slow { latency_ns: 500_000, rate: 0 };
        assert_eq!(read("slow latency=500us"), Ok(InjectCommand::Arm(slow)));
        let once = Fault::Misdirect { when: When::Once(1) };
        assert_eq!(read("misdirect"), Ok(InjectCommand::Arm(once)));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let says = |line: &str, part: &str| {
            let sentence = read(line).expect_err(line);
            assert!(sentence.contains(part), "{line}: {sentence}");
        };
        says("melt", "unknown fault 'melt'");
        says("gone nth=1", "'gone' has no setting 'nth'");
        says("eio nth=1 every=2", "cannot be combined");
        says("eio nth=x", "not a number");
        says("eio on=seek", "one of read");
        says("slow latency=5", "not a time");
        says("slow latency=99999999999999999999s", "not a time");
        says("zero offset=lots", "not a size");
        says("zero length", "name=value");
        says("flip bits=1 bits=2", "twice");
    }
}
