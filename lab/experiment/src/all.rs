//! `steadfast lab run all`: every experiment, one after the other, and a page with links to all
//! reports.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use steadfast_lab_report::html::{escape, parts};
use steadfast_lab_report::{machine, number};

use crate::catalogue::{AllRequest, Entry};
use crate::command_line::{self, Request};
use crate::context::Context;
use crate::error::Error;
use crate::perform::perform;
use crate::results;

/// A machine that has less to do than that is idle.
const BUSY_PERCENT: f64 = 5.0;

/// Result of one experiment.
struct Part {
    entry: &'static Entry,
    seconds: f64,
    /// How busy the machine was with other things when it began, percent.
    busy: f64,
    /// Summary, or the reason of the failure.
    told: Result<String, String>,
}

/// Runs all of them, one after the other, each into a directory of its own, and writes
/// `index.html`. One that fails does not keep the others from running.
///
/// # Errors
/// When the directory or the page cannot be written, when stopped, or when every one of them
/// failed.
pub(crate) fn run(request: &AllRequest, context: &Context, stop: &Arc<AtomicBool>) -> Result<String, Error> {
    let out = results::directory("all", request.out.as_deref())?;
    let started = SystemTime::now();
    let mut parts: Vec<Part> = Vec::new();
    for entry in request.entries() {
        let busy = machine::busy();
        let clock = Instant::now();
        eprintln!("{}: {}", entry.name, entry.question);
        let told = one(entry, request.quick, &out, context, stop);
        let told = told.map_err(|error| error.to_string());
        if let Err(reason) = &told {
            eprintln!("{} failed: {reason}", entry.name);
        }
        parts.push(Part { entry, seconds: clock.elapsed().as_secs_f64(), busy, told });
        // After each: a run that is stopped half-way has a page of the finished ones.
        let index = out.join("index.html");
        fs::write(&index, page(&parts, context, started)).map_err(Error::io("write", &index))?;
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
    }
    if let Some(Part { told: Err(reason), .. }) =
        parts.iter().find(|_| parts.iter().all(|part| part.told.is_err()))
    {
        return Err(Error::Run {
            reason: format!("not one of them came to its end; the first: {reason}"),
            out,
        });
    }
    let mut text = String::new();
    for part in &parts {
        let (state, words) = match &part.told {
            Ok(summary) => ("done", summary),
            Err(reason) => ("failed", reason),
        };
        text += &format!(
            "{:<12} {state} in {:.0} s: {}\n",
            part.entry.name,
            part.seconds,
            words.replace('\n', " ")
        );
    }
    Ok(format!("{text}\nsite: {}\n", out.join("index.html").display()))
}

fn one(
    entry: &Entry,
    quick: bool,
    out: &Path,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<String, Error> {
    let place = out.join(entry.name).display().to_string();
    let mut words: Vec<String> = ["run", entry.name, "--out", &place].map(str::to_owned).to_vec();
    if quick {
        words.extend(entry.quick.iter().map(|word| (*word).to_owned()));
    }
    let Request::Run(experiment) = command_line::parse(&words)? else { return Ok(String::new()) };
    Ok(perform(&experiment, context, stop)?.map_or_else(String::new, |done| done.summary))
}

fn page(done: &[Part], context: &Context, started: SystemTime) -> String {
    let machine = machine::describe(Path::new("."));
    let failed = done.iter().filter(|part| part.told.is_err()).count();
    let summary = match failed {
        0 => format!("{} experiments came to their end.", done.len()),
        failed => format!(
            "{} experiments came to their end, {failed} did not: their lines say why.",
            done.len() - failed
        ),
    };
    let mut page = parts::opening(
        "The lab's experiments",
        "Each repeats something that others published, or asks what it costs to measure.",
        &summary,
        warning(done).as_deref(),
        &[
            &format!("Steadfast {}", context.version),
            &format!("{} cores, {} memory", machine.cores, number::bytes(machine.memory_bytes)),
            &machine.kernel,
            &machine::stamp(started),
        ],
    );
    for part in done {
        let name = part.entry.name;
        let body = match &part.told {
            Ok(summary) => format!(
                "<p>{}</p>\n<p><a href=\"{name}/report.html\">The report</a>, <a href=\"{name}/report.json\">its numbers</a>; repeats {}; took {:.0}&nbsp;s.</p>\n",
                escape(summary),
                escape(part.entry.source),
                part.seconds
            ),
            Err(reason) => format!("<p class=\"warning\">Not done: {}</p>\n", escape(reason)),
        };
        page += &parts::section(name, part.entry.question, &body);
    }
    page + "</main>\n</body>\n</html>\n"
}

/// Whose figures have others' work in them.
fn warning(done: &[Part]) -> Option<String> {
    let busy: Vec<String> = done
        .iter()
        .filter(|part| part.busy > BUSY_PERCENT)
        .map(|part| format!("{} ({:.0} %)", part.entry.name, part.busy))
        .collect();
    (!busy.is_empty()).then(|| {
        format!(
            "The machine was busy with other things when these began: {}. Their rates and times include them; repeat them on an idle machine.",
            busy.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_failure_stands_on_the_page_and_keeps_nobody_from_running() {
        let context = Context { steadfast: PathBuf::from("/no/such/program"), version: "1".to_owned() };
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("site");
        let request = AllRequest {
            quick: true,
            only: Some(vec!["compression".into(), "encryption".into()]),
            out: Some(out.clone()),
        };
        let error = run(&request, &context, &Arc::default()).unwrap_err();
        assert!(error.to_string().contains("not one of them"), "{error}");
        let page = fs::read_to_string(out.join("index.html")).unwrap();
        assert_eq!(page.matches("Not done: ").count(), 2);
    }

    #[test]
    fn a_busy_machine_is_said_of_the_experiments_that_it_troubled() {
        let part = |at: usize, busy| Part {
            entry: &crate::catalogue::ENTRIES[at],
            seconds: 1.0,
            busy,
            told: Ok("it went well".to_owned()),
        };
        let context = Context { steadfast: PathBuf::from("/no/such/program"), version: "1".to_owned() };
        let shown = page(&[part(0, 1.0), part(1, 88.4)], &context, SystemTime::now());
        assert!(shown.contains("when these began: compression (88 %)."), "{shown}");
        assert!(!page(&[part(0, 1.0)], &context, SystemTime::now()).contains("class=\"warning\""));
    }
}
