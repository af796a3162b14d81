//! Gain and cost of compression: the first experiment of the source reports.

use super::columns;
use super::experiment::{ArmSpec, Experiment, StageFacts};
use super::target::Volume;
use crate::load::Parameters;
use crate::sources;
use steadfast_lab_report::number;
use steadfast_lab_report::report::{Measure, Phase, Report, Source};

/// Two pools, `compression=lz4` on one and `off` on the other, loaded with data that compresses 2.5
/// to 1.
pub struct Compression;

impl Experiment for Compression {
    fn name(&self) -> &'static str {
        "compression"
    }

    fn title(&self) -> &'static str {
        "What compression saves, and what it costs"
    }

    fn question(&self) -> &'static str {
        "The same 64 MiB of files, whose data compresses 2.5 to 1, on a pool with lz4 and on one without."
    }

    fn arms(&self) -> Vec<ArmSpec> {
        vec![
            ArmSpec {
                label: "Compression on (lz4)",
                short: "on",
                anchor: "/zfs_compress",
                volume: Volume { arm: "on", pool: "zfs_compress", set: &["compression=lz4"], dataset: None },
            },
            ArmSpec {
                label: "Compression off",
                short: "off",
                anchor: "/zfs_nocompress",
                volume: Volume {
                    arm: "off",
                    pool: "zfs_nocompress",
                    set: &["compression=off"],
                    dataset: None,
                },
            },
        ]
    }

    fn parameters(&self) -> Parameters {
        Parameters { file: "compression.parm", text: include_str!("../../../workloads/compression.parm") }
    }

    fn sources(&self) -> Vec<Source> {
        sources::on_off()
    }

    fn measures(&self, phases: &[Phase], facts: &StageFacts) -> Vec<Measure> {
        columns::measures(phases, facts, self.name())
    }

    fn summary(&self, report: &Report) -> String {
        let mut sentences = Vec::new();
        if let Some(used) = report.measure("used")
            && let (Some(on), Some(off)) = (used.median("on"), used.median("off"))
        {
            let factors = columns::factors(report, used);
            let beside =
                if factors.is_empty() { String::new() } else { format!(" (in the reports {factors})") };
            sentences.push(format!(
                "With compression on, the files take {} instead of {}: {} of the space{beside}.",
                number::with_unit(on, used.unit),
                number::with_unit(off, used.unit),
                number::times(on / off),
            ));
        }
        sentences.extend(columns::sentence(report, "read_response", "A read takes"));
        sentences.extend(columns::sentence(report, "write_response", "A write takes"));
        sentences.extend(columns::sentence(report, "write_cpu", "While writing, the whole machine is busy"));
        sentences.join(" ")
    }

    fn notes(&self, report: &Report) -> Vec<String> {
        columns::notes(report)
    }
}
