//! # Reports
//!
//! Runs written down in the shapes people and their scripts know from vdbench 5.04.07, and in JSON
//! and CSV with what vdbench does not say: percentiles, and the processor time of the measured
//! system and of the tool.
//!
//! ```text
//! args ─[command]→ Plan ─[workload::execute]→ Event ─┬─[output]→ console, *.html, report.json,
//!                                                    │           latency.csv
//!                                                    ├─[run_page, html]→ report.html
//!                                                    └─[live, metrics]→ terminal, Prometheus
//! ```
//!
//! ## Invariants
//! [lab_report.1] Columns of the tables, of flatfile.html and of status.html are vdbench's:
//!      position, width, order. Our additions are in separate files.
//!      test: `shapes.rs`, against output of the original
//! [lab_report.2] A table whose run measured nothing says NaN or 0.0 as vdbench does; report.json
//!      then has the figures of the whole run, by the clock.
//! [lab_report.3] A run in which nothing was done is a failure, unless the caller says otherwise.
#![forbid(unsafe_code)]

mod clock;
mod command;
pub mod figures;
mod flatfile;
mod histogram_page;
mod hosts;
pub mod html;
pub mod json;
mod live;
pub mod machine;
mod metrics;
pub mod number;
mod output;
mod page;
pub mod phase;
mod profiles;
pub mod prometheus;
pub mod report;
mod run_page;
mod session;
mod table;
mod utility;

pub use clock::Moment;
pub use command::vdbench_main;
pub use output::Output;
pub use session::{Reported, RunRequest, run_reported};

/// vdbench's exit status for any failure (-99).
pub const FAILURE: i32 = 157;
/// The program that writes.
const PRODUCT: &str = "Steadfast lab: the workload language of vdbench, carried out by another engine.";
/// Which shapes.
const DISTRIBUTION: &str =
    concat!("Vdbench distribution: steadfast ", env!("CARGO_PKG_VERSION"), " (shapes of vdbench50407)");
