//! Options of `steadfast lab run compression` and `encryption`.

use std::path::PathBuf;

use crate::options::{RepeatLine, size};

/// Smallest image.
const IMAGE_LEAST: u64 = 128 << 20;
/// Size of an image.
const IMAGE_BYTES: u64 = 256 << 20;

/// The file systems that are compared.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Compared {
    /// Pools of our own.
    #[default]
    Pools,
    /// Directories that somebody has mounted, one a side.
    Directories(Vec<PathBuf>),
}

/// Options of an experiment that switches one feature on and off.
#[derive(clap::Args, Clone, Debug, Eq, PartialEq)]
pub struct RunRequest {
    /// Name of the experiment.
    #[arg(skip)]
    pub experiment: String,
    /// Directory for the results [default: lab-EXPERIMENT-DATE in this directory]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Size of each image file
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size(IMAGE_LEAST, "give 128M or more, such as 256M or 1G"))]
    pub size: u64,
    /// Seconds of each run of the load [default: 10, as the parameter file says]
    #[arg(long = "elapsed", value_name = "N", value_parser = clap::value_parser!(u32).range(2..=86_400))]
    pub elapsed_s: Option<u32>,
    /// The short form: 4 seconds of each run, unless --elapsed says more
    #[arg(long)]
    pub quick: bool,
    /// Rounds of the whole parameter file; the median is reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Pools of our own (steadfast), or dir:FIRST,SECOND: two empty directories of any file systems
    #[arg(long, value_name = "TARGET", default_value = "steadfast", value_parser = compared)]
    pub target: Compared,
    /// Directory of the image files while it runs [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// Leave pools and image files behind, and say how to remove them
    #[arg(long)]
    pub keep: bool,
    /// Print report.json instead of the table
    #[arg(long)]
    pub json: bool,
}

fn compared(text: &str) -> Result<Compared, String> {
    match text.strip_prefix("dir:") {
        Some(list) => Ok(Compared::Directories(list.split(',').map(PathBuf::from).collect())),
        None if text == "steadfast" => Ok(Compared::Pools),
        None => Err("write `steadfast` or `dir:FIRST,SECOND`".to_owned()),
    }
}

impl RunRequest {
    /// An experiment with nothing but defaults.
    pub fn new(experiment: &str) -> Self {
        Self {
            experiment: experiment.to_owned(),
            out: None,
            size: IMAGE_BYTES,
            elapsed_s: None,
            quick: false,
            rounds: 1,
            target: Compared::Pools,
            work: None,
            keep: false,
            json: false,
        }
    }

    /// With the seconds that `--quick` means.
    pub(crate) fn resolved(self) -> Self {
        let seconds = self.elapsed_s.or(self.quick.then_some(4));
        Self { elapsed_s: seconds, ..self }
    }

    /// The command that repeats a run.
    pub(super) fn repeat(&self) -> String {
        let line = RepeatLine::new(&self.experiment);
        match &self.target {
            Compared::Pools => line.size("--size", Some(self.size).filter(|size| *size != IMAGE_BYTES)),
            Compared::Directories(directories) => {
                let names: Vec<String> = directories.iter().map(|path| path.display().to_string()).collect();
                line.value("--target", Some(format!("dir:{}", names.join(","))))
            }
        }
        .value("--elapsed", self.elapsed_s)
        .value("--rounds", Some(self.rounds).filter(|rounds| *rounds != 1))
        .finish()
    }
}
