//! Runs an experiment, and draws the report of one again.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use steadfast_lab_report::{html, report};

use crate::command_line::{Experiment, ShowRequest};
use crate::context::Context;
use crate::document::{self, Figures};
use crate::error::Error;
use crate::results::Done;
use crate::{bench, beside, bucket, compare, comparison, dedup, engine, feature, iris, recovery, snapshots};

/// Runs an experiment; `None` for `all`, which runs each of them.
pub(crate) fn perform(
    experiment: &Experiment,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Done>, Error> {
    Ok(Some(match experiment {
        Experiment::Compression(request) | Experiment::Encryption(request) => {
            feature::run(request, context, stop)?.into()
        }
        Experiment::Engine(request) => engine::run(request, context, stop)?.into(),
        Experiment::Cow(request) | Experiment::Journal(request) => {
            beside::run(request, context, stop)?.into()
        }
        Experiment::Recovery(request) => recovery::run(request, context, stop)?.into(),
        Experiment::Snapshots(request) => snapshots::run(request, context, stop)?.into(),
        Experiment::Dedup(request) => dedup::run(request, context, stop)?.into(),
        Experiment::Bench(request) => bench::run(request, context, stop)?.into(),
        Experiment::Bucket(request) => bucket::run(request, context, stop)?.into(),
        Experiment::IrisCache(request) => iris::cache::run(request, context, stop)?.into(),
        Experiment::IrisScale(request) => iris::scale::run(request, context, stop)?.into(),
        Experiment::IrisLatency(request) => iris::latency::run(request, context, stop)?.into(),
        Experiment::IrisFronts(request) => iris::fronts::run(request, context, stop)?.into(),
        Experiment::IrisEncode(request) => iris::retrievability::encode::run(request, context, stop)?.into(),
        Experiment::IrisAudit(request) => iris::retrievability::audit::run(request, context, stop)?.into(),
        Experiment::IrisRecover(request) => {
            iris::retrievability::recover::run(request, context, stop)?.into()
        }
        Experiment::File(request) => compare::run(request, context, stop)?.into(),
        Experiment::All(_) => return Ok(None),
    }))
}

/// Draws the page of a report again, and writes its table into a document.
pub(crate) fn show(request: &ShowRequest) -> Result<(), Error> {
    let path = &request.report;
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    let wrong = |error: String| Error::Usage(format!("{}: {error}", path.display()));
    let insert = |figures: Figures<'_>| {
        let Some(document) = request.markdown.as_deref() else { return Ok(()) };
        let name = request.marks.as_deref().unwrap_or(figures.name);
        document::insert(&Figures { name, ..figures }, document)
    };
    let page = if let Some(parsed) = comparison::parse(&text) {
        let parsed = parsed.map_err(wrong)?;
        insert(comparison::figures(&parsed, &parsed.heading()))?;
        comparison::render(&parsed)
    } else if let Some(parsed) = beside::report::parse(&text) {
        let parsed = parsed.map_err(wrong)?;
        insert(beside::figures(&parsed))?;
        beside::render(&parsed)
    } else if let Some(parsed) = recovery::report::parse(&text) {
        let parsed = parsed.map_err(wrong)?;
        insert(recovery::figures(&parsed))?;
        recovery::render(&parsed)
    } else if request.markdown.is_some() {
        return Err(wrong("a report of this kind has no table for a document".to_owned()));
    } else {
        html::render(&report::parse(&text).map_err(|error| wrong(error.to_string()))?)
    };
    let html = request.page();
    fs::write(&html, page).map_err(Error::io("write", &html))
}
