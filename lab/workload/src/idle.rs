//! `timeout=`: storages that answer nothing for a while.
//!
//! Looked at when an interval ends. Runs that may end early (a format, `seekpct=eof`,
//! `fileselect=once`) are not looked at, as in vdbench.

use crate::command;
use crate::event::{Event, Observer};
use std::sync::atomic::AtomicBool;
use steadfast_lab_params::{FileSelect, Run, Seek, Timeout, TimeoutThen, Work};

/// How long each storage has been silent.
#[derive(Debug)]
pub(crate) struct Idle {
    rule: Timeout,
    storages: Vec<Silence>,
}

#[derive(Debug)]
struct Silence {
    name: String,
    count: u64,
    /// Seconds of silence until now, and the longest.
    now: u64,
    longest: u64,
}

impl Idle {
    /// `None` if nobody wants to know, or the work of the run may be over at any time.
    pub(crate) fn new(rule: Option<&Timeout>, run: &Run, storages: &[String]) -> Option<Idle> {
        let ends = match &run.work {
            Work::Raw(work) => work.wds.iter().any(|(wd, _)| wd.seek == Seek::Eof),
            Work::Files(work) => {
                work.format.is_some() || work.fwds.iter().any(|(fwd, _)| fwd.select == FileSelect::Once)
            }
        };
        let silent = |name: &String| Silence { name: name.clone(), count: 0, now: 0, longest: 0 };
        let rule = rule.filter(|_| !ends && run.elapsed.is_some())?.clone();
        Some(Idle { rule, storages: storages.iter().map(silent).collect() })
    }

    /// An interval is over: `counts` of all that was done so far. The sentence that ends the run,
    /// if it ends.
    pub(crate) fn look<'a>(
        &mut self,
        counts: impl Iterator<Item = (&'a str, u64)> + Clone,
        interval: u64,
        label: &str,
        observer: &mut Observer<'_>,
    ) -> Option<String> {
        for storage in &mut self.storages {
            let count =
                counts.clone().filter(|(name, _)| *name == storage.name).map(|(_, count)| count).sum();
            storage.now = if count == storage.count { storage.now + interval } else { 0 };
            storage.count = count;
            storage.longest = storage.longest.max(storage.now);
            let Silence { name, now, .. } = &*storage;
            if *now == 0 || now / self.rule.seconds == (now - interval) / self.rule.seconds {
                continue;
            }
            let text = format!("timeout: no operation on {name} was completed for {now} seconds");
            let ended = Some(format!("{text}; timeout= ends rd={label}."));
            match &self.rule.then {
                TimeoutThen::Report => {}
                TimeoutThen::Say => observer(&Event::Notice(&format!("{text}."))),
                TimeoutThen::Abort => return ended,
                TimeoutThen::AbortAfter(seconds) if now >= seconds => return ended,
                TimeoutThen::AbortAfter(_) => observer(&Event::Notice(&format!("{text}."))),
                TimeoutThen::Script(script) => {
                    observer(&Event::Notice(&format!("{text}; calling '{script}'.")));
                    if command::output(script, &AtomicBool::new(false)).trim() == "abort" {
                        return ended;
                    }
                }
            }
        }
        None
    }

    /// Lines for the end of the run.
    pub(crate) fn report(&self) -> Vec<String> {
        let long = self.storages.iter().filter(|storage| storage.longest >= self.rule.seconds);
        long.map(|s| format!("Longest idle period for {}: {} seconds", s.name, s.longest)).collect()
    }
}
