//! The result as data: what `report.json` holds and what everything is drawn from.

use serde::{Deserialize, Serialize};
use steadfast_lab_report::figures::{self, ArmInfo, Chart, Goal, Row};
use steadfast_lab_report::number;
use steadfast_lab_report::report::{Command, Conditions};

use super::request::{ARMS, MODEL, RecoveryRequest};
use crate::sources;

/// Name of the schema.
pub const SCHEMA: &str = "steadfast-lab-recovery";
/// Version of the schema. It grows when a field changes its meaning or goes; new fields alone do
/// not change it.
pub const VERSION: u32 = 1;

/// Percent of the pool that is filled, as in the source report.
pub(crate) const FILLS: [u32; 3] = [25, 50, 75];

/// The experiment, run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecoveryReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Always [`VERSION`] when written.
    pub version: u32,
    /// Heading.
    pub title: String,
    /// Question, in one sentence.
    pub question: String,
    /// Summary, in words.
    pub summary: String,
    /// Where, when and how.
    pub conditions: Conditions,
    /// How large everything was, in words.
    pub sizes: String,
    /// Model of a hard disk, as `zpool inject` takes it.
    #[serde(default = "usual_model")]
    pub model: String,
    /// Columns, in their order.
    pub arms: Vec<ArmInfo>,
    /// The figures.
    pub rows: Vec<Row>,
    /// Goals.
    pub goals: Vec<Goal>,
    /// Pictures.
    pub charts: Vec<Chart>,
    /// Every recovery, over time.
    pub courses: Vec<Course>,
    /// Figures of the source report.
    pub reported: Vec<Reported>,
    /// Setting of the source report.
    pub source: String,
    /// Notes that a reader needs to compare fairly.
    pub notes: Vec<String>,
    /// Every line typed, repetitions left out.
    pub commands: Vec<Command>,
}

/// Of reports that do not say it.
fn usual_model() -> String {
    MODEL.to_owned()
}

/// One scrub or resilver over time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Course {
    /// Arm.
    pub arm: String,
    /// `scrub`, `heal`, `resilver` and the like.
    pub what: String,
    /// Percent of the pool that was filled.
    pub fill: u32,
    /// Round, from 1.
    pub round: u32,
    /// Seconds it took.
    pub seconds: f64,
    /// Bytes read from the devices.
    pub read: u64,
    /// Bytes written to the devices.
    pub written: u64,
    /// Seconds since it began, bytes read and bytes written by then.
    pub points: Vec<(f64, u64, u64)>,
}

/// A figure of the source report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reported {
    /// Description.
    pub what: String,
    /// As printed.
    pub printed: String,
    /// MB/s.
    pub rate: f64,
}

impl RecoveryReport {
    /// The report before anything was measured.
    pub(super) fn new(request: &RecoveryRequest, conditions: Conditions, device_bytes: u64) -> Self {
        let label = |key: &str| match key {
            "raidz1" => "raidz1 of 4",
            "raidz2" => "raidz2 of 6",
            "btrfs" => "btrfs raid1 of 2",
            _ => "zfs-fuse raidz1 of 4",
        };
        let arm =
            |key: &&str| ArmInfo { key: (*key).to_owned(), label: label(key).to_owned(), missing: None };
        let on = if request.devices.is_empty() { "image files" } else { "the devices named" };
        let figures = sources::reported();
        let reports = figures["workloads"]["recovery"]["reports"][0]["rates"].as_array().cloned();
        let reported = reports.unwrap_or_default().into_iter().filter_map(|rate| {
            Some(Reported {
                what: rate["what"].as_str()?.to_owned(),
                printed: rate["printed"].as_str()?.to_owned(),
                rate: rate["mb_per_s"].as_f64()?,
            })
        });
        Self {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            title: "Recovery".to_owned(),
            question: "A device of a redundant pool is flooded with zeros while it is mounted: how fast does it heal, and how fast \
                       is the device replaced?"
                .to_owned(),
            summary: String::new(),
            conditions,
            sizes: format!("devices of {} on {on}, filled to 25, 50 and 75 %", number::bytes(device_bytes)),
            model: request.model().to_owned(),
            arms: ARMS.iter().filter(|arm| request.wants(arm)).map(arm).collect(),
            rows: Vec::new(),
            goals: Vec::new(),
            charts: Vec::new(),
            courses: Vec::new(),
            reported: reported.collect(),
            source: figures["workloads"]["recovery"]["setup"].as_str().unwrap_or_default().to_owned(),
            notes: vec![
                "Healed and rebuilt are bytes that were written to the devices while it went on, read are those read from them; the \
                 metadata of the pool itself is in both. zfs-fuse reads its images through the page cache, where nobody counts: its \
                 reads have no figure, and what it has in memory it need not read."
                    .to_owned(),
                format!(
                    "A hard disk is a model that the daemon is told to keep to (`zpool inject ... {}`): one head, a seek where a \
                     transfer does not begin where the last one ended, bytes at that rate, no cache. The pools of \
                     small files are on such disks; cache and special devices beside them answer as fast as the machine's own disk. Of \
                     small files there are {}, 11 KB on the average.",
                    request.model(),
                    request.files()
                ),
            ],
            commands: Vec::new(),
        }
    }

    /// Warning for the reader if the machine had other work.
    pub fn warning(&self) -> Option<String> {
        figures::warning(&self.conditions)
    }
}

/// Reads `report.json` of this experiment; `None` if it is another's.
pub fn parse(text: &str) -> Option<Result<RecoveryReport, String>> {
    figures::parse(text, SCHEMA, VERSION)
}
