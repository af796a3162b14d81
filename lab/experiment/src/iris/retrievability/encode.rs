//! `steadfast lab run iris-encode`: how fast cells are tagged and encoded, by each kernel.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use steadfast_lab_report::figures::goals::{Bound, bound, summary};
use steadfast_lab_report::figures::{ArmInfo, Axis, Chart, Goal, Row, Series};
use steadfast_lab_report::number;
use steadfast_lab_report::report::median;

use super::EncodeRequest;
use super::program::{self, Rates};
use crate::comparison::{self, ComparisonReport, Heading};
use crate::context::Context;
use crate::error::Error;
use crate::host::progress::Progress;
use crate::results::Results;
use crate::setup::Setup;

/// Key and heading of the columns; the first are kernels.
const ARMS: [(&str, &str); 6] = [
    ("avx512", "AVX-512"),
    ("avx2", "AVX2"),
    ("neon", "NEON"),
    ("scalar", "scalar"),
    ("copy", "copy of 4 KiB"),
    ("hash", "BLAKE3 of 4 KiB"),
];
/// Work of a kernel: key and label.
const WORKS: [(&str, &str); 3] = [("tag", "tag"), ("encode", "encode"), ("tag_encode", "tag and encode")];
/// Rate that the paper states for blocks of 4 KB.
const PAPER: f64 = 500.0;

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early.
pub fn run(
    request: &EncodeRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<ComparisonReport>, Error> {
    let program = program::find(request.program.as_deref(), context)?;
    let setup = Setup::new("iris-encode", request.places.out.as_deref(), request.places.parent())?;
    let mut shell = setup.shell(context, stop)?;
    let mut progress = Progress::new(1.0);
    progress.begin("measuring the kernels");
    let words = format!("encode --rounds {} --cells {}", request.rounds(), request.cells());
    let rates: Rates = program::run(&program, &words, &mut shell)?;
    progress.end();
    let measured = |key: &str| rates.rates.iter().any(|rate| rate.arm == key);
    // NEON is a column on ARM alone: nobody misses it elsewhere.
    let arms = ARMS.iter().filter(|(key, _)| *key != "neon" || measured(key)).map(|(key, label)| ArmInfo {
        key: (*key).to_owned(),
        label: (*label).to_owned(),
        missing: (!measured(key)).then(|| "this processor does not have it".to_owned()),
    });
    let mut report = ComparisonReport::new(
        Some(heading()),
        setup.conditions(format!("Steadfast {}", context.version), request.repeat(), request.rounds()),
        format!("{} of cells, one thread", number::bytes(u64::from(request.cells()) * 4096)),
        arms.collect(),
    );
    fill(&mut report, &rates);
    report.conditions.seconds = setup.seconds();
    report.goals = judge(&report.rows);
    report.summary = summary(&report.goals);
    report.notes = notes();
    report.commands = shell.history();
    comparison::write(report, &setup.out, None, request.document.markdown.as_deref())
}

fn fill(report: &mut ComparisonReport, rates: &Rates) {
    for (key, label) in WORKS {
        let how = "Content of the cells over the processor time of one thread.";
        let row = Row::new(key, label, "MB/s", true, how);
        // The bounds are the same figures in each row.
        let of_row = rates.rates.iter().filter(|rate| rate.work == key || rate.work == "bound");
        for rate in of_row {
            rate.mb_s.iter().for_each(|value| report.add(&row, &rate.arm, *value));
        }
    }
    let kernels = ARMS.iter().filter(|(key, _)| rates.blocks.iter().any(|block| block.arm == *key));
    let series = kernels.map(|(key, label)| {
        let of_kernel = rates.blocks.iter().filter(|block| block.arm == *key);
        let point = |block: &super::program::Block| Some((block.bytes as f64 / 1024.0, median(&block.mb_s)?));
        Series {
            label: (*label).to_owned(),
            calculated: false,
            points: of_kernel.filter_map(point).collect(),
        }
    });
    let mut series: Vec<Series> = series.collect();
    let (least, most) = (1.0, 64.0);
    series.push(Series {
        label: "Iris at 4 KB: 500 MB/s (stated)".to_owned(),
        calculated: true,
        points: vec![(least, PAPER), (most, PAPER)],
    });
    report.charts.push(Chart {
        key: "blocks".to_owned(),
        title: "Tag and encode, blocks of each size coded by themselves".to_owned(),
        how: "Content of the blocks over the processor time of one thread; a block of less than 4 KiB is filled up to a \
              cell. A pool packs blocks into segments first, so it has the rate at 4 KiB for all of them."
            .to_owned(),
        x: Axis::log("KiB of a block"),
        y: Axis::linear("MB/s of one core"),
        limit: None,
        series,
    });
}

fn judge(rows: &[Row]) -> Vec<Goal> {
    let goals = [
        ("encode", "avx512", 2_000.0, "encode, one core: at least 2,000 MB/s (paper: 500)"),
        ("tag_encode", "avx512", 1_800.0, "tag and encode, one core: at least 1,800 MB/s"),
        ("encode", "avx2", 1_000.0, "encode with AVX2 alone: at least 1,000 MB/s"),
    ];
    goals
        .into_iter()
        .filter_map(|(row, arm, limit, text)| bound(rows, row, arm, Bound::AtLeast(limit), text))
        .collect()
}

fn heading() -> Heading {
    Heading {
        name: "iris-encode".to_owned(),
        title: "How fast cells are tagged and encoded".to_owned(),
        question: "Does the code of a pool keep up with what is written, on one core?".to_owned(),
        base: ("copy".to_owned(), "a copy of the same cells".to_owned()),
    }
}

fn notes() -> Vec<String> {
    vec![
        "It repeats figure 6 of the Iris paper, which states 500 MB/s a core for blocks of 4 KB; its other points are not \
         known to us, so its line is level."
            .to_owned(),
        "Encode goes from a cell in memory, whose tag is known, to the nine rows of its tile: place, copy into a batch of \
         4,096 cells, sums. To take a cell out of the code is the same work."
            .to_owned(),
        "All arms are measured in each round, one after the other. Processor time, so other work of the machine disturbs it \
         by what it takes of the caches and of the memory."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::report;
    use steadfast_lab_report::figures::Verdict;

    #[test]
    fn kernels_are_judged_and_drawn_beside_the_paper() {
        let said = r#"{"format":"steadfast-retrievability","version":1,"cells":4096,"rates":[
            {"work":"bound","arm":"copy","mb_s":[9000.0]},{"work":"encode","arm":"avx512","mb_s":[2400.0]},
            {"work":"tag_encode","arm":"avx512","mb_s":[1700.0]},{"work":"encode","arm":"avx2","mb_s":[1900.0]}],
            "blocks":[{"bytes":1024,"arm":"avx512","mb_s":[500.0]},{"bytes":4096,"arm":"avx512","mb_s":[1900.0]}]}"#;
        let rates: Rates = serde_json::from_str(said).unwrap();
        let mut report = report("x", true, &[]);
        report.rows.clear();
        fill(&mut report, &rates);
        let verdicts: Vec<Verdict> = judge(&report.rows).iter().map(|goal| goal.verdict).collect();
        assert_eq!(verdicts, [Verdict::Met, Verdict::NotMet, Verdict::Met]);
        let encode = report.row("encode").unwrap();
        assert_eq!(encode.ratio("avx512", "copy"), Some(2400.0 / 9000.0));
        assert_eq!(report.charts[0].series[0].points, [(1.0, 500.0), (4.0, 1900.0)]);
        assert!(report.charts[0].series[1].label.contains("Iris"));
    }
}
