//! Cost of encryption: the second experiment of the source reports.

use super::columns;
use super::experiment::{ArmSpec, Experiment, StageFacts};
use super::target::{Dataset, Volume};
use crate::load::Parameters;
use crate::sources;
use steadfast_lab_report::report::{Measure, Phase, Report, Source};

/// An encrypted dataset and a plain pool, loaded alike.
pub struct Encryption;

impl Experiment for Encryption {
    fn name(&self) -> &'static str {
        "encryption"
    }

    fn title(&self) -> &'static str {
        "Cost of encryption"
    }

    fn question(&self) -> &'static str {
        "The same eight files of 8 MiB in a dataset sealed with AES-256-GCM and in a pool without encryption."
    }

    fn arms(&self) -> Vec<ArmSpec> {
        vec![
            ArmSpec {
                label: "Encryption on",
                short: "on",
                anchor: "/zfs_encrypt/encrypted",
                volume: Volume {
                    arm: "on",
                    pool: "zfs_encrypt",
                    set: &[],
                    dataset: Some(Dataset {
                        name: "encrypted",
                        properties: &["encryption=on", "keyformat=passphrase"],
                        passphrase: Some("12345678"),
                    }),
                },
            },
            ArmSpec {
                label: "Encryption off",
                short: "off",
                anchor: "/zfs_noencrypt",
                volume: Volume { arm: "off", pool: "zfs_noencrypt", set: &[], dataset: None },
            },
        ]
    }

    fn parameters(&self) -> Parameters {
        Parameters { file: "encryption.parm", text: include_str!("../../../workloads/encryption.parm") }
    }

    fn sources(&self) -> Vec<Source> {
        sources::on_off()
    }

    fn measures(&self, phases: &[Phase], facts: &StageFacts) -> Vec<Measure> {
        columns::measures(phases, facts, self.name())
    }

    fn summary(&self, report: &Report) -> String {
        let sentences = [
            columns::sentence(report, "read_response", "A read takes"),
            columns::sentence(report, "write_response", "A write takes"),
            columns::sentence(report, "write_cpu", "While writing, the whole machine is busy"),
            columns::sentence(report, "used", "The files take"),
        ];
        sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    fn notes(&self, report: &Report) -> Vec<String> {
        let mut notes = columns::notes(report);
        notes.push(
            "Source report 000 prints no disk usage for this experiment; report 002 shows the same 65 MB with and without \
             encryption."
                .to_owned(),
        );
        notes
    }
}
