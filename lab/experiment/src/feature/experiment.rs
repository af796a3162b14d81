//! An experiment that switches one feature on and off: what it compares, under which load, and what
//! it reads off the results.

use steadfast_lab_report::report::{Measure, Phase, Report, Source};

use super::target::Volume;
use crate::load::Parameters;

/// One of the things compared, before it is set up.
#[derive(Clone, Debug)]
pub struct ArmSpec {
    /// Long name.
    pub label: &'static str,
    /// Short name.
    pub short: &'static str,
    /// Anchor in the parameter file.
    pub anchor: &'static str,
    /// Its volume.
    pub volume: Volume,
}

/// An experiment.
pub trait Experiment {
    /// Name on the command line.
    fn name(&self) -> &'static str;
    /// Heading of the report.
    fn title(&self) -> &'static str;
    /// Question, in one sentence.
    fn question(&self) -> &'static str;
    /// Arms, the feature first.
    fn arms(&self) -> Vec<ArmSpec>;
    /// The load.
    fn parameters(&self) -> Parameters;
    /// Reports whose figures stand beside ours.
    fn sources(&self) -> Vec<Source>;
    /// The figures, in the order of the table.
    fn measures(&self, phases: &[Phase], stage: &StageFacts) -> Vec<Measure>;
    /// Summary, in words.
    fn summary(&self, report: &Report) -> String;
    /// Notes that a reader needs to compare fairly.
    fn notes(&self, report: &Report) -> Vec<String>;

    /// Free bytes needed where the image files lie.
    fn bytes_needed(&self, image_bytes: u64) -> u64 {
        image_bytes * self.arms().len() as u64 + (64 << 20)
    }
}

/// Facts that measures need besides the phases.
#[derive(Clone, Debug)]
pub struct StageFacts {
    /// How the used space was measured.
    pub used_how: &'static str,
    /// A daemon's processor time was measured.
    pub daemon: bool,
}
