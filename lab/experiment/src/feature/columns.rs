//! The columns of the source reports, for experiments that switch one feature on and off.

use std::collections::BTreeMap;

use super::experiment::StageFacts;
use crate::sources;
use steadfast_lab_report::number::{self, MIB};
use steadfast_lab_report::report::{Measure, Phase, Report, Unit};

/// One value an arm and round, from the phases that `reading` finds something in.
fn values(phases: &[Phase], reading: impl Fn(&Phase) -> Option<f64>) -> BTreeMap<String, Vec<f64>> {
    let mut values: BTreeMap<String, BTreeMap<u32, f64>> = BTreeMap::new();
    for phase in phases {
        if let Some(value) = reading(phase) {
            // The last phase of a round counts.
            values.entry(phase.arm.clone()).or_default().insert(phase.round, value);
        }
    }
    values.into_iter().map(|(arm, rounds)| (arm, rounds.into_values().collect())).collect()
}

/// The columns of the source reports, in their order, and our daemon's processor time behind them.
pub fn measures(phases: &[Phase], facts: &StageFacts, workload: &str) -> Vec<Measure> {
    let of = |operation: &'static str, reading: fn(&Phase) -> Option<f64>| {
        values(phases, move |phase| (phase.operation == operation).then(|| reading(phase)).flatten())
    };
    let measure = |key: &str, label: &str, how: &str, unit: Unit, values| Measure {
        key: key.to_owned(),
        label: label.to_owned(),
        how: how.to_owned(),
        unit,
        panel: None,
        values,
        published: sources::published(workload, key),
    };
    let mut measures = vec![
        measure(
            "used",
            "Disk usage",
            facts.used_how,
            Unit::Mebibytes,
            values(phases, |phase| {
                let space = phase.space.as_ref()?;
                Some(if facts.daemon { space.df_used } else { space.used.unwrap_or(space.du) } as f64 / MIB)
            }),
        ),
        measure(
            "read_response",
            "Read response time",
            "Mean of all reads, first interval not counted",
            Unit::Milliseconds,
            of("read", |phase| Some(phase.response.mean)),
        ),
        measure(
            "read_cpu",
            "Read CPU usage",
            "Whole machine while reading, user and system",
            Unit::PercentOfMachine,
            of("read", |phase| Some(phase.cpu.total)),
        ),
        measure(
            "write_response",
            "Write response time",
            "Mean of all writes, first interval not counted",
            Unit::Milliseconds,
            of("write", |phase| Some(phase.response.mean)),
        ),
        measure(
            "write_cpu",
            "Write CPU usage",
            "Whole machine while writing, user and system",
            Unit::PercentOfMachine,
            of("write", |phase| Some(phase.cpu.total)),
        ),
    ];
    if facts.daemon {
        for (key, label, operation) in [
            ("read_daemon", "Read CPU, our daemon", "read"),
            ("write_daemon", "Write CPU, our daemon", "write"),
        ] {
            let how = "Our daemon alone, in percent of the whole machine";
            let mut ours =
                measure(key, label, how, Unit::PercentOfMachine, of(operation, |phase| phase.daemon_percent));
            ours.panel = Some("CPU of our daemon".to_owned());
            measures.push(ours);
        }
    }
    measures
}

/// "Reads took 0.120 ms instead of 0.110 ms (1.1×; reports: 2.2×, 3.7×)." for a measure with both
/// arms.
pub fn sentence(report: &Report, key: &str, subject: &str) -> Option<String> {
    let measure = report.measure(key)?;
    let (on, off) = (measure.median("on")?, measure.median("off")?);
    let factors = factors(report, measure);
    let factors = if factors.is_empty() { String::new() } else { format!("; in the reports {factors}") };
    let (with, without) = (number::with_unit(on, measure.unit), number::with_unit(off, measure.unit));
    // A ratio of times that include other work of the machine is no result.
    if measure.unit != Unit::Mebibytes && report.warning().is_some() {
        return Some(format!("{subject} {with} with it on and {without} with it off, other work included."));
    }
    Some(format!(
        "{subject} {with} with it on and {without} with it off ({}{factors}).",
        number::times(on / off),
    ))
}

/// Every measure of every arm, without a claim on what makes the difference.
pub fn plain_summary(report: &Report) -> String {
    let sentences: Vec<String> = report
        .measures
        .iter()
        .map(|measure| {
            let values: Vec<String> = report
                .arms
                .iter()
                .filter_map(|arm| {
                    let value = measure.median(&arm.key)?;
                    Some(format!("{} on {}", number::with_unit(value, measure.unit), arm.short))
                })
                .collect();
            format!("{}: {}.", measure.label, values.join(", "))
        })
        .collect();
    sentences.join(" ")
}

/// Factors of the sources: "2.2× and 3.7×".
pub fn factors(report: &Report, measure: &Measure) -> String {
    let found: Vec<String> = report
        .sources
        .iter()
        .filter_map(|source| {
            let on = measure.published(&source.key, "on")?.value;
            let off = measure.published(&source.key, "off")?.value;
            Some(number::times(on / off))
        })
        .collect();
    found.join(" and ")
}

/// Notes for every run.
pub fn plain_notes(report: &Report) -> Vec<String> {
    let conditions = &report.conditions;
    let mut notes = vec![
        "The load asks for 100 operations a second, 25 MiB/s. Processor use is therefore what that rate needs, not what \
         the machine can give; it includes the load itself and whatever else ran on the machine."
            .to_owned(),
        "The sides run one after the other, as the file says, not at once. Disk usage is asked after everything written \
         was made durable."
            .to_owned(),
    ];
    if let Some(seconds) = conditions.elapsed_override_s {
        notes.push(format!("Each run was shortened to {seconds} s; the file says 10 s."));
    }
    if conditions.rounds == 1 {
        notes.push("One round: no spread is known. `--rounds 3` shows it.".to_owned());
    }
    notes.extend(report.warning());
    notes
}

/// Notes for every comparison with the source reports.
pub fn notes(report: &Report) -> Vec<String> {
    let mut notes = vec![
        "Other machine, other file system, other engine: the source reports ran OpenZFS inside the kernel and the \
         original vdbench, on machines of their own. Milliseconds and percentages of different machines do not \
         compare; factors of on against off do."
            .to_owned(),
        "The load is vdbench's language carried out by our own engine. A response time spans the system call alone; \
         vdbench's spans making the data of a write too, in Java."
            .to_owned(),
        "Reads follow writes of the same files, so much of what is read is still in memory: in the kernel's page cache \
         above a FUSE file system, in the ARC above OpenZFS. What is in the page cache is plain and whole, what is in \
         the ARC still has to be decompressed; so reads of ours that hit it cost the same on and off."
            .to_owned(),
        "The reports' MB of disk usage are df's: 2^20 bytes, rounded up.".to_owned(),
    ];
    notes.extend(plain_notes(report));
    notes
}
