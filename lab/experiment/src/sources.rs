//! Figures of the source reports, read from the file beside the parameter files.
//!
//! Both ran OpenZFS in the kernel on 256 MiB image files, loaded by vdbench with the parameter
//! files that this lab carries. Disk usage is the `Used` column of `df -h`, so their "MB" is 2^20
//! bytes, rounded up.

use serde_json::Value;

use steadfast_lab_report::report::{Published, Source};

const REPORTED: &str = include_str!("../../workloads/reported.json");

/// Measure, its key in the file, decimals as printed, unit as printed.
const COLUMNS: [(&str, &str, usize, &str); 5] = [
    ("used", "used_mb", 0, "MB"),
    ("read_response", "read_ms", 3, "ms"),
    ("read_cpu", "read_cpu_pct", 1, "%"),
    ("write_response", "write_ms", 3, "ms"),
    ("write_cpu", "write_cpu_pct", 1, "%"),
];

/// Number of the source, our name for it, and what is known of it.
const SOURCES: [(&str, &str, &str); 2] = [
    ("000", "OpenZFS, report 000", "OpenZFS in the kernel, vdbench; the machine is not stated."),
    (
        "002",
        "OpenZFS, report 002",
        "OpenZFS in the kernel, vdbench; a PC with 16 GB of memory and an NVMe drive.",
    ),
];

/// The carried file of figures.
pub(crate) fn reported() -> Value {
    serde_json::from_str(REPORTED).expect("the carried file is JSON: a test reads it")
}

/// The two reports that switch a feature on and off.
pub fn on_off() -> Vec<Source> {
    SOURCES
        .iter()
        .map(|(key, label, about)| Source {
            key: (*key).to_owned(),
            label: (*label).to_owned(),
            about: (*about).to_owned(),
        })
        .collect()
}

/// Published figures for a measure of a workload; none if none were published.
pub fn published(workload: &str, measure: &str) -> Vec<Published> {
    let Some((_, key, decimals, unit)) = COLUMNS.iter().find(|column| column.0 == measure) else {
        return Vec::new();
    };
    let file = reported();
    let mut found = Vec::new();
    for report in file["workloads"][workload]["reports"].as_array().into_iter().flatten() {
        for arm in ["on", "off"] {
            if let (Some(source), Some(value)) = (report["source"].as_str(), report[arm][*key].as_f64()) {
                found.push(Published {
                    source: source.to_owned(),
                    arm: arm.to_owned(),
                    value,
                    printed: format!("{value:.decimals$} {unit}"),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_of_the_reports() {
        let printed = |workload, measure| {
            published(workload, measure).iter().map(|f| f.printed.clone()).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(printed("compression", "used"), "26 MB, 65 MB, 26 MB, 65 MB");
        assert_eq!(printed("compression", "read_response"), "0.576 ms, 0.261 ms, 1.197 ms, 0.327 ms");
        assert_eq!(printed("compression", "write_cpu"), "75.8 %, 32.6 %, 14.9 %, 7.7 %");
        assert_eq!(printed("encryption", "used"), "65 MB, 65 MB");
        assert_eq!(printed("encryption", "write_response"), "17.522 ms, 8.958 ms, 2.802 ms, 2.168 ms");
        assert_eq!(printed("encryption", "read_daemon"), "");
        for figure in published("encryption", "used") {
            assert_eq!(figure.source, "002");
        }
    }

    #[test]
    fn every_published_figure_belongs_to_a_named_source() {
        let known: Vec<_> = on_off().into_iter().map(|source| source.key).collect();
        for (measure, ..) in COLUMNS {
            for workload in ["compression", "encryption"] {
                assert!(published(workload, measure).iter().all(|figure| known.contains(&figure.source)));
            }
        }
    }
}
