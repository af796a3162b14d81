//! Options of `steadfast lab run snapshots`, and how large everything is.

use crate::options::{Document, Form, ImageLoad, Places, RepeatLine};

/// Seconds of each step of others.
const PEER_SECONDS: u32 = 120;

/// Options of `run snapshots`.
#[derive(clap::Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct SnapshotsRequest {
    /// Rounds; the median is reported [default: 2, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Snapshots at the end [default: 10000, with --quick 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(20..=100_000))]
    most: Option<u32>,
    /// Longest time for each step of btrfs; the report has the snapshots made until then [default:
    /// 120]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    peer_seconds: Option<u32>,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(flatten)]
    pub(crate) document: Document,
}

impl SnapshotsRequest {
    /// Rounds.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(self.form.sized(1, 1, 2))
    }

    /// Snapshots at the end.
    pub(super) fn most(&self) -> u32 {
        self.most.unwrap_or(self.form.sized(20, 1_000, 10_000))
    }

    /// Seconds of each step of others.
    pub(super) fn peer_seconds(&self) -> u32 {
        self.peer_seconds.unwrap_or(PEER_SECONDS)
    }

    /// Sizes of the load.
    pub(super) fn load(&self) -> ImageLoad {
        self.form.sized(
            ImageLoad { image: 320 << 20, file: 8 << 20, writes: 128, steps: 2 },
            ImageLoad { image: 3 << 30, file: 64 << 20, writes: 8_192, steps: 8 },
            ImageLoad { image: 8 << 30, file: 256 << 20, writes: 32_768, steps: 16 },
        )
    }

    /// Bytes of the file that is sent.
    pub(super) fn stream_file(&self) -> u64 {
        self.form.sized(16 << 20, 256 << 20, 1 << 30)
    }

    /// How often it is sent in a round, and how many increments follow.
    pub(super) fn passes(&self) -> u32 {
        self.form.sized(1, 3, 3)
    }

    /// Bytes of each of the images it is sent from and to: what arrives stays there, and a copy
    /// comes and goes.
    pub(super) fn stream_image(&self) -> u64 {
        (u64::from(self.passes()) + 3) * self.stream_file() + (512 << 20)
    }

    /// Options of the mount of btrfs. Its cleaner wakes with a commit, every 30 s unless something
    /// else is said: tests do not wait so long.
    pub(super) fn mount_options(&self) -> &'static str {
        if self.form.tiny { "commit=1" } else { "" }
    }

    /// How many snapshots there are where something is measured, rising.
    pub(super) fn counts(&self) -> Vec<u32> {
        let mut counts: Vec<u32> =
            [0, 10, 100, 1_000].into_iter().filter(|count| *count < self.most()).collect();
        counts.push(self.most());
        counts
    }

    /// The command that repeats a run.
    pub(super) fn repeat(&self) -> String {
        RepeatLine::new("snapshots")
            .form(self.form)
            .value("--rounds", self.rounds)
            .value("--most", self.most)
            .value("--peer-seconds", self.peer_seconds)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::{read, refused, repeats};

    #[test]
    fn options_are_read_and_repeated() {
        let lines = [
            "",
            "--quick",
            "--quick --rounds 3 --most 50",
            "--rounds 1",
            "--tiny --rounds 3",
            "--rounds 1 --peer-seconds 5",
        ];
        repeats("snapshots", &lines, SnapshotsRequest::repeat);
        let of = |line: &str| read::<SnapshotsRequest>(line);
        assert_eq!(of("--most 50").counts(), [0, 10, 50]);
        assert_eq!(of("").counts(), [0, 10, 100, 1_000, 10_000]);
        assert_eq!((of("--tiny").most(), of("--quick").most(), of("").rounds()), (20, 1_000, 2));
        for (line, word) in
            [("--fast", "--fast"), ("--most 1", "'1' for '--most"), ("--out", "value is required")]
        {
            refused::<SnapshotsRequest>(line, word);
        }
    }
}
