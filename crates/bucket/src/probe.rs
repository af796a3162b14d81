//! `steadfast store probe`: asks a store for its promises, and says what it may be used for.
//!
//! Stores that call themselves compatible differ most where a pool needs them most. Of eight
//! servers that were raced with 32 writers, two ignored conditions, one let up to 32 writers win
//! although it was right when asked alone, and one wanted tags without quotes. So the probe races,
//! and believes nothing that it has not seen. It leaves nothing behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use http::Method;
use steadfast_env::Job;

use crate::{Class, Client, Error, Fetch, Result, Store, Tag, lifecycle};

/// Writers of a race.
const RACERS: usize = 32;
/// The same in the short form: enough for a store that looks before it writes without a lock.
const RACERS_SHORT: usize = 8;
/// A clock that differs by more makes a provider refuse requests soon: Amazon does at 15 minutes.
const CLOCK_MAX_S: i64 = 300;

/// Outcome of one check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// As a pool needs it.
    Good,
    /// Otherwise: the verdict says what follows.
    Bad,
    /// The store does not say.
    Unknown,
    /// A figure, not a judgement.
    Figure,
}

impl Outcome {
    /// One word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Good => "ok",
            Outcome::Bad => "BAD",
            Outcome::Unknown => "unknown",
            Outcome::Figure => "-",
        }
    }
}

/// One check.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Check {
    /// Name, the same for every store.
    pub name: &'static str,
    /// Outcome.
    pub outcome: Outcome,
    /// Observation, in half a sentence.
    pub found: String,
}

/// All checks of one store, and what it may be used for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// Address of the store.
    pub address: String,
    /// Checks in the order in which they were made.
    pub checks: Vec<Check>,
    /// Good for segments: objects with names of their own, read by ranges.
    pub data: bool,
    /// Good for roots without an anchor: of two writers of one name, one wins.
    pub roots: bool,
    /// Good for a register: of two writers of one version, one wins.
    pub register: bool,
    /// Reasons for each no, as sentences.
    pub reasons: Vec<String>,
}

impl Report {
    /// The check of a name.
    #[must_use]
    pub fn check(&self, name: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.name == name)
    }
}

struct Probe<'a> {
    client: &'a Client,
    folder: String,
    racers: usize,
    checks: Vec<Check>,
    /// Objects that were made.
    made: Vec<String>,
}

/// Probes a store. `quick` leaves out parts, rates and all but two rounds of the races.
///
/// # Errors
/// A store that cannot be reached, refuses the key, or is none.
pub fn run(client: &Client, quick: bool) -> Result<Report> {
    client.check()?;
    asked(client, RACERS, |probe| probe.ask(quick))
}

/// The short form, before a store becomes a device of a pool: whether data would be lost there, and
/// whether of two hosts one wins. Some thirty requests.
///
/// # Errors
/// A store that fails.
pub fn short(client: &Client) -> Result<Report> {
    asked(client, RACERS_SHORT, |probe| {
        probe.read_after_write(2)?;
        probe.ranges()?;
        probe.race_of_creates(1, true)?;
        probe.bucket("lifecycle");
        Ok(())
    })
}

/// Makes checks, and judges them.
fn asked(
    client: &Client,
    racers: usize,
    checks: impl FnOnce(&mut Probe<'_>) -> Result<()>,
) -> Result<Report> {
    let folder = format!("probe/{:016x}", client.env().random.nonzero_u64());
    let mut probe = Probe { client, folder, racers, checks: Vec::new(), made: Vec::new() };
    let outcome = checks(&mut probe);
    // Clean up whatever happened; a probe that failed says why it failed.
    let cleaned = client.delete(&probe.made);
    outcome?;
    cleaned?;
    Ok(probe.judge())
}

impl Probe<'_> {
    fn name(&mut self, name: &str) -> String {
        let object = format!("{}/{name}", self.folder);
        self.made.push(object.clone());
        object
    }

    fn say(&mut self, name: &'static str, outcome: Outcome, found: impl Into<String>) {
        self.checks.push(Check { name, outcome, found: found.into() });
    }

    fn judged(&mut self, name: &'static str, good: bool, yes: &str, no: impl Into<String>) {
        let (outcome, found) = if good { (Outcome::Good, yes.to_owned()) } else { (Outcome::Bad, no.into()) };
        self.say(name, outcome, found);
    }

    fn ask(&mut self, quick: bool) -> Result<()> {
        self.read_after_write(4)?;
        self.list_after_write()?;
        self.ranges()?;
        self.delete_after_write()?;
        self.race_of_creates(if quick { 2 } else { 8 }, quick)?;
        self.race_of_updates(if quick { 2 } else { 8 })?;
        self.wrong_checksum()?;
        if !quick {
            self.parts()?;
        }
        self.clock()?;
        self.bucket("versioning");
        self.bucket("lifecycle");
        self.latency()?;
        if !quick {
            self.rate()?;
        }
        Ok(())
    }

    fn read_after_write(&mut self, rounds: u8) -> Result<()> {
        let object = self.name("read");
        let mut stale = None;
        for round in 0..rounds {
            let bytes = [round; 64];
            self.client.put(&object, &bytes)?;
            if self.client.get(&object)?.0 != bytes {
                stale = stale.or(Some(round));
            }
        }
        let no =
            format!("version {} was not what a read after the write returned", stale.unwrap_or_default());
        self.judged("read after write", stale.is_none(), &format!("{rounds} of {rounds} versions"), no);
        Ok(())
    }

    fn list_after_write(&mut self) -> Result<()> {
        let folder = format!("{}/list", self.folder);
        let mut objects: Vec<String> = Vec::new();
        for number in 0..5 {
            let object = self.name(&format!("list/{number}"));
            self.client.create(&object, &[number])?;
            objects.push(object);
        }
        let mut listed: Vec<String> =
            self.client.list(&folder)?.into_iter().map(|head| head.object).collect();
        listed.sort();
        let no = format!("{} names listed after 5 were created", listed.len());
        self.judged("list after write", listed == objects, "5 of 5 names", no);
        Ok(())
    }

    fn delete_after_write(&mut self) -> Result<()> {
        let folder = format!("{}/list", self.folder);
        let objects: Vec<String> = (0..5).map(|number| format!("{folder}/{number}")).collect();
        self.client.delete(&objects)?;
        let left = self.client.list(&folder)?.len();
        let is_read = self.client.head(&objects[0])?.is_some();
        let no = format!("{left} of 5 names are still listed, and the first is still read: {is_read}");
        self.judged("delete", left == 0 && !is_read, "5 of 5 in one request", no);
        Ok(())
    }

    fn ranges(&mut self) -> Result<()> {
        let object = self.name("ranges");
        let content: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        self.client.put(&object, &content)?;
        let places: [(usize, usize); 4] = [(0, 1), (1, 4_095), (65_000, 10_000), (99_999, 1)];
        let mut outs: Vec<Vec<u8>> = places.iter().map(|(_, length)| vec![0; *length]).collect();
        let mut fetches: Vec<Fetch<'_>> = outs
            .iter_mut()
            .zip(places)
            .map(|(out, (at, _))| Fetch {
                object: &object,
                offset: at as u64,
                outs: vec![out],
                outcome: Ok(()),
            })
            .collect();
        self.client.get_ranges(&mut fetches);
        let failed: Option<Box<Error>> = fetches.into_iter().find_map(|fetch| fetch.outcome.err());
        let right = places.iter().zip(&outs).all(|((at, length), out)| *out == content[*at..at + length]);
        let mut beyond = [0; 2];
        let mut outside =
            [Fetch { object: &object, offset: 99_999, outs: vec![&mut beyond], outcome: Ok(()) }];
        self.client.get_ranges(&mut outside);
        let is_told = matches!(&outside[0].outcome, Err(error) if error.class == Class::Short);
        let no = match failed {
            Some(error) => error.class.problem().to_owned(),
            None if right => "a range beyond the end is not refused".to_owned(),
            None => "other bytes came than were asked for".to_owned(),
        };
        self.judged("ranges", right && is_told, "exact, and refused beyond the end", no);
        Ok(())
    }

    /// Runs one writer in each of many threads, and counts those that say they won.
    fn race(&self, write: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<Vec<usize>> {
        let (winners, first) = (Mutex::new(Vec::new()), Mutex::new(None));
        // All wait for the last before they begin.
        let ready = AtomicUsize::new(0);
        let racers = self.racers;
        let jobs = (0..racers)
            .map(|racer| -> Job<'_> {
                let (winners, first, ready) = (&winners, &first, &ready);
                Box::new(move || {
                    ready.fetch_add(1, Ordering::AcqRel);
                    for _ in 0..100_000 {
                        if ready.load(Ordering::Acquire) == racers {
                            break;
                        }
                        std::thread::yield_now();
                    }
                    match write(racer) {
                        Ok(()) => winners.lock().unwrap_or_else(PoisonError::into_inner).push(racer),
                        Err(error) if matches!(error.class, Class::Exists | Class::Changed) => {}
                        Err(error) => {
                            first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        }
                    }
                })
            })
            .collect();
        self.client.env().tasks.run_waiting(jobs);
        match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(winners.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn race_of_creates(&mut self, rounds: usize, quick: bool) -> Result<()> {
        let racers = self.racers;
        let (mut least, mut most, mut is_kept) = (racers, 0, true);
        for round in 0..rounds {
            let object = self.name(&format!("create-{round}"));
            // The last two of a whole probe are large: the time between looking and writing is too.
            let length = if !quick && round + 2 >= rounds { 1 << 20 } else { 64 };
            let bytes = |racer: usize| vec![u8::try_from(racer).unwrap_or(u8::MAX); length];
            let winners = self.race(&|racer| self.client.create(&object, &bytes(racer)))?;
            (least, most) = (least.min(winners.len()), most.max(winners.len()));
            let stored = self.client.get(&object)?.0;
            is_kept &= winners.iter().any(|&winner| stored == bytes(winner));
        }
        let good = (least, most, is_kept) == (1, 1, true);
        let no = match most {
            0 | 1 => "the object does not hold what its one winner wrote".to_owned(),
            _ => format!("up to {most} of {racers} writers were told that they had created one object"),
        };
        self.judged("race of creates", good, &format!("1 of {racers} won, {rounds} times"), no);
        Ok(())
    }

    fn race_of_updates(&mut self, rounds: usize) -> Result<()> {
        let object = self.name("update");
        let racers = self.racers;
        let (mut least, mut most) = (racers, 0);
        let mut tag = self.client.put(&object, b"0")?;
        for round in 0..rounds {
            let write = |racer: usize| {
                let bytes = format!("{round} {racer}");
                self.client.replace(&object, bytes.as_bytes(), &tag).map(drop)
            };
            let winners = match self.race(&write) {
                Ok(winners) => winners,
                Err(error) if matches!(error.class, Class::Unsupported | Class::Refused) => {
                    self.say("race of updates", Outcome::Bad, error.class.problem());
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            (least, most) = (least.min(winners.len()), most.max(winners.len()));
            tag = self.client.head(&object)?.map_or_else(Tag::default, |head| head.tag);
        }
        let no = match (least, most) {
            (_, 2..) => {
                format!("up to {most} of {racers} writers were told that they had replaced one version")
            }
            _ => "no writer could replace the version that was read".to_owned(),
        };
        self.judged(
            "race of updates",
            (least, most) == (1, 1),
            &format!("1 of {racers} won, {rounds} times"),
            no,
        );
        Ok(())
    }

    fn wrong_checksum(&mut self) -> Result<()> {
        let object = self.name("checksum");
        // The MD5 of nothing, in base64, for a body that is something.
        let wrong = [("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==".to_owned())];
        let Some(answer) = self.client.ask(Method::PUT, &object, &[], &wrong, b"something") else {
            self.say("wrong checksum", Outcome::Unknown, "this kind of store is not asked");
            return Ok(());
        };
        let (status, ..) = answer?;
        let name = "wrong checksum";
        if status == 400 {
            self.say(name, Outcome::Good, "refused");
        } else if (200..300).contains(&status) {
            self.say(
                name,
                Outcome::Unknown,
                "stored: a body that breaks on its way is found when it is read",
            );
        } else {
            self.say(name, Outcome::Unknown, format!("status {status}"));
        }
        Ok(())
    }

    fn parts(&mut self) -> Result<()> {
        let object = self.name("parts");
        let parts = [vec![1; 5 << 20], vec![2; 1_000]];
        let outcome = self.client.put_in_parts(&object, &parts).and_then(|()| self.client.get(&object));
        match outcome {
            Ok((bytes, _)) => {
                let good = bytes == parts.concat();
                self.judged("upload in parts", good, "2 parts", "the object is not its parts");
            }
            // Nothing here needs it.
            Err(error) => self.say("upload in parts", Outcome::Unknown, error.class.problem()),
        }
        Ok(())
    }

    fn clock(&mut self) -> Result<()> {
        let object = format!("{}/read", self.folder);
        let answer = self.client.ask(Method::HEAD, &object, &[], &[], &[]).transpose()?;
        let date = answer.and_then(|(_, _, date)| date);
        let stored = date.and_then(|date| jiff::fmt::rfc2822::parse(&date).ok());
        let Some(stored) = stored else {
            self.say("clock", Outcome::Unknown, "the store tells no time");
            return Ok(());
        };
        let ours = i64::try_from(self.client.env().clock.wall_ns() / 1_000_000_000).unwrap_or(i64::MAX);
        let ahead = stored.timestamp().as_second().saturating_sub(ours);
        let found = format!("the store's is {ahead:+} s from ours");
        let good = ahead.abs() <= CLOCK_MAX_S;
        self.say("clock", if good { Outcome::Good } else { Outcome::Bad }, found);
        Ok(())
    }

    /// Asks for a setting of the whole bucket. Many keys may not ask: that is no failure.
    fn bucket(&mut self, setting: &'static str) {
        let unknown = "the store does not tell: look at the provider's own page";
        let answer = match self.client.ask_bucket(setting) {
            Some(Ok(answer)) => answer,
            Some(Err(_)) | None => {
                let found = if self.client.location().is_remote() { unknown } else { "a folder has none" };
                let outcome =
                    if self.client.location().is_remote() { Outcome::Unknown } else { Outcome::Good };
                self.say(setting, outcome, found);
                return;
            }
        };
        let (status, text) = answer;
        let has = |word: &str| text.contains(word);
        match (setting, status) {
            ("versioning", 200) if has("<Status>Enabled</Status>") => {
                let found = "on: deleted objects stay and are paid for until a rule removes them";
                self.say(setting, Outcome::Unknown, found);
            }
            ("versioning", 200) => self.say(setting, Outcome::Good, "off"),
            ("lifecycle", 404) if has("NoSuchLifecycleConfiguration") => {
                self.say(setting, Outcome::Good, "no rules");
            }
            ("lifecycle", 200) => match lifecycle::expires(&text, self.client.location().prefix()) {
                true => self.say(setting, Outcome::Bad, "a rule of the bucket deletes objects by their age"),
                false if has("<Expiration>") => {
                    self.say(setting, Outcome::Good, "rules delete objects, none of them here");
                }
                false => self.say(setting, Outcome::Good, "no rule deletes objects"),
            },
            _ => self.say(setting, Outcome::Unknown, unknown),
        }
    }

    fn latency(&mut self) -> Result<()> {
        let object = self.name("latency");
        let clock = &self.client.env().clock;
        let (mut puts, mut gets) = (Vec::new(), Vec::new());
        for round in 0..15_u8 {
            let began = clock.monotonic_ns();
            self.client.put(&object, &[round; 4_096])?;
            let stored = clock.monotonic_ns();
            self.client.get(&object)?;
            puts.push(stored.saturating_sub(began));
            gets.push(clock.monotonic_ns().saturating_sub(stored));
        }
        let ms = |times: &mut Vec<u64>| {
            times.sort_unstable();
            #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
            (times[times.len() / 2] as f64 / 1e6, times[times.len() - 1] as f64 / 1e6)
        };
        let ((put, put_most), (get, get_most)) = (ms(&mut puts), ms(&mut gets));
        let found =
            format!("write {put:.1} ms (most {put_most:.1}), read {get:.1} ms (most {get_most:.1}), 4 KiB");
        self.say("latency", Outcome::Figure, found);
        Ok(())
    }

    fn rate(&mut self) -> Result<()> {
        const OBJECTS: usize = 16;
        let objects: Vec<String> = (0..OBJECTS).map(|number| self.name(&format!("rate-{number}"))).collect();
        let bytes = vec![0x5a; 1 << 20];
        let clock = &self.client.env().clock;
        let run = |work: &(dyn Fn(&str) -> Result<()> + Sync)| -> Result<f64> {
            let first = Mutex::new(None);
            let began = clock.monotonic_ns();
            let jobs = objects
                .iter()
                .map(|object| -> Job<'_> {
                    let first = &first;
                    Box::new(move || {
                        if let Err(error) = work(object) {
                            first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        }
                    })
                })
                .collect();
            self.client.env().tasks.run_waiting(jobs);
            #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
            let seconds = clock.monotonic_ns().saturating_sub(began).max(1) as f64 / 1e9;
            match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(error) => Err(error),
                None => Ok(16.0 / seconds),
            }
        };
        let write = run(&|object| self.client.put(object, &bytes).map(drop))?;
        let read = run(&|object| self.client.get(object).map(drop))?;
        let found = format!("write {write:.0} MiB/s, read {read:.0} MiB/s, 16 objects of 1 MiB side by side");
        self.say("rate", Outcome::Figure, found);
        Ok(())
    }

    fn judge(self) -> Report {
        let is_bad =
            |name: &str| self.checks.iter().any(|check| check.name == name && check.outcome == Outcome::Bad);
        let mut reasons = Vec::new();
        let mut none_of = |use_: &str, names: &[&str]| {
            let bad: Vec<&str> = names.iter().copied().filter(|name| is_bad(name)).collect();
            if !bad.is_empty() {
                reasons.push(format!("Not for {use_}: {}.", bad.join(", ")));
            }
            bad.is_empty()
        };
        let data = none_of("data", &["read after write", "ranges", "delete", "clock", "lifecycle"]);
        let roots = none_of("roots without an anchor", &["race of creates", "list after write"]) && data;
        let register = none_of("a register", &["race of updates"]) && data;
        let address = self.client.address();
        Report { address, checks: self.checks, data, roots, register, reasons }
    }
}
