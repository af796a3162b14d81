//! `steadfast lab list` and `steadfast lab run all`: every experiment, what it answers, and one page that leads to all.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use crate::args::{self, Request};
use crate::error::Error;
use crate::html::{escape, parts};
use crate::{Context, machine, number, results};

/// An experiment, as the list has it.
pub(crate) struct Entry {
    pub name: &'static str,
    /// What it answers.
    pub question: &'static str,
    /// Which source it repeats.
    pub source: &'static str,
    /// How long it takes, and its short form.
    pub time: &'static str,
    /// Options of its short form.
    quick: &'static [&'static str],
}

/// All of them, the quickest first.
pub(crate) const ENTRIES: [Entry; 9] = [
    Entry {
        name: "bench",
        question: "What does the lab's own engine cost, beside a bare loop of pread and fio?",
        source: "section 5 of vdbench's reference measurements",
        time: "4 minutes; --quick 1",
        quick: &["--quick"],
    },
    Entry {
        name: "compression",
        question: "What does lz4 save in space, and what does it cost in time and processors?",
        source: "source reports 000 and 002",
        time: "2 minutes",
        quick: &["--elapsed", "4"],
    },
    Entry {
        name: "encryption",
        question: "What does AES-256-GCM cost in time and processors?",
        source: "source reports 000 and 002",
        time: "2 minutes",
        quick: &["--elapsed", "4"],
    },
    Entry {
        name: "engine",
        question: "How fast is the file system beside others, and how does an operation's cost grow?",
        source: "Iris, sections 7 and 8 (tar, untar, large files)",
        time: "15 minutes; --quick 4",
        quick: &["--quick"],
    },
    Entry {
        name: "cow",
        question: "What does copying on write cost in rate, evenness and bytes written?",
        source: "source report 001",
        time: "80 minutes; --quick 20",
        quick: &["--quick"],
    },
    Entry {
        name: "journal",
        question: "What does each mode of a journal cost?",
        source: "source report 001",
        time: "80 minutes; --quick 30",
        quick: &["--quick"],
    },
    Entry {
        name: "recovery",
        question: "How long do scrub, healing and resilvering take, beside a plain clone?",
        source: "source report 003",
        time: "30 minutes; --quick 5",
        quick: &["--quick"],
    },
    Entry {
        name: "snapshots",
        question: "What do many snapshots cost, and do unique blocks add up?",
        source: "source report 001",
        time: "20 minutes; --quick 2",
        quick: &["--quick"],
    },
    Entry {
        name: "dedup",
        question: "What does storing equal content once cost and save, and what do copies that share blocks?",
        source: "source report 001",
        time: "15 minutes; --quick 2",
        quick: &["--quick"],
    },
];

/// A machine that has less to do than that is idle.
const BUSY_PERCENT: f64 = 5.0;

/// What `lab list` prints.
pub(crate) fn list() -> String {
    let mut text = String::new();
    for entry in &ENTRIES {
        text += &format!(
            "{:<12} {}\n{:<12} repeats {}; takes {}\n",
            entry.name, entry.question, "", entry.source, entry.time
        );
    }
    text + &format!("{:<12} {}\n", "all", "Each of them, and one page that leads to all reports.")
}

/// What `run all` was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AllRequest {
    /// `--quick`: the short form of each.
    pub quick: bool,
    /// `--only`: some of them.
    pub only: Option<Vec<String>>,
    /// `--out`.
    pub out: Option<PathBuf>,
}

/// Reads the words after `steadfast lab run`, one of which is `all`. `None` if help is asked for.
pub(crate) fn parse(words: &[String]) -> Result<Option<AllRequest>, Error> {
    let mut words = args::Words::new(words);
    let mut request = AllRequest { quick: false, only: None, out: None };
    while let Some(word) = words.next() {
        match word {
            "all" => {}
            "-h" | "--help" => return Ok(None),
            "--quick" => request.quick = true,
            "--out" => request.out = Some(PathBuf::from(words.value(word)?)),
            "--only" => {
                let names: Vec<String> = words.value(word)?.split(',').map(str::to_owned).collect();
                if let Some(unknown) =
                    names.iter().find(|name| !ENTRIES.iter().any(|entry| entry.name == **name))
                {
                    return Err(args::usage(format!("--only {unknown}: there is no such experiment")));
                }
                request.only = Some(names);
            }
            _ => return Err(args::usage(format!("lab run all knows no option {word}"))),
        }
    }
    Ok(Some(request))
}

/// What became of one.
struct Part {
    entry: &'static Entry,
    seconds: f64,
    /// How busy the machine was with other things when it began, percent.
    busy: f64,
    /// What came out, or why nothing did.
    told: Result<String, String>,
}

/// Runs all of them, one after the other, each into a directory of its own, and writes `index.html`. One that fails does not
/// keep the others from running.
///
/// # Errors
/// When the directory or the page cannot be written, when stopped, or when every one of them failed.
pub(crate) fn run(request: &AllRequest, context: &Context, stop: &Arc<AtomicBool>) -> Result<String, Error> {
    let out = results::directory("all", request.out.as_deref())?;
    let started = SystemTime::now();
    let wanted =
        |entry: &&Entry| request.only.as_ref().is_none_or(|only| only.iter().any(|name| name == entry.name));
    let mut parts: Vec<Part> = Vec::new();
    for entry in ENTRIES.iter().filter(wanted) {
        let busy = machine::busy();
        let clock = Instant::now();
        eprintln!("{}: {}", entry.name, entry.question);
        let told = one(entry, request.quick, &out, context, stop);
        let told = told.map_err(|error| error.to_string());
        if let Err(reason) = &told {
            eprintln!("{} failed: {reason}", entry.name);
        }
        parts.push(Part { entry, seconds: clock.elapsed().as_secs_f64(), busy, told });
        // After each: who stops it half-way has a page of what was done.
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
    let request: Request = args::parse(&words)?;
    Ok(crate::perform(&request, context, stop)?.map_or_else(String::new, |done| done.summary))
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
    use super::*;

    #[test]
    fn the_list_has_every_experiment_with_its_source_and_its_time() {
        let text = list();
        let named = crate::experiment::all()
            .into_iter()
            .map(|e| e.name())
            .chain(crate::beside::loads::LOADS.iter().map(|l| l.name));
        for name in named.chain(["engine", "recovery", "snapshots", "dedup", "bench"]) {
            assert!(ENTRIES.iter().any(|entry| entry.name == name), "{name}");
            assert!(text.contains(name), "{name}");
        }
        // The short form of each is one that its own options know.
        for entry in &ENTRIES {
            let words = ["run", entry.name]
                .iter()
                .chain(entry.quick)
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>();
            assert!(args::parse(&words).is_ok(), "{words:?}");
        }
    }

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
            entry: &ENTRIES[at],
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
