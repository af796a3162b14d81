//! Snapshots on one file system: a pool of ours by its commands, btrfs by its own.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::file_systems::Arm;
use crate::host::commands::quoted;
use crate::host::shell::{PATIENCE, Shell};

/// Snapshots that one line of shell takes at most, and in the beginning.
const AT_ONCE: u32 = 1_000;
const AT_FIRST: u32 = 16;
/// Seconds that one line of shell shall take about: between two of them it is seen how late it is.
const LINE_SECONDS: f64 = 0.5;

/// How long something may go on.
pub(super) struct Step<'a> {
    stop: &'a AtomicBool,
    begun: Instant,
    limit: Option<Duration>,
}

impl<'a> Step<'a> {
    /// One that begins now; without a limit it ends when it is done.
    pub fn new(stop: &'a AtomicBool, limit: Option<Duration>) -> Step<'a> {
        Step { stop, begun: Instant::now(), limit }
    }

    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// False when its time is over, or somebody wants all to end.
    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && self.left() > Duration::ZERO
    }

    /// The same, with an error if all is to end.
    pub fn may(&self) -> Result<bool, Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(self.goes_on()) }
    }

    fn left(&self) -> Duration {
        self.limit.map_or(PATIENCE, |limit| limit.saturating_sub(self.begun.elapsed()))
    }
}

/// One of the file systems that take part.
pub(super) struct Host<'a> {
    arm: &'a Arm,
    steadfast: &'a Path,
}

impl<'a> Host<'a> {
    pub fn new(arm: &'a Arm, steadfast: &'a Path) -> Host<'a> {
        Host { arm, steadfast }
    }

    /// Folder of which snapshots are taken; made at the first call.
    pub fn folder(&self, shell: &mut Shell) -> Result<PathBuf, Error> {
        if self.arm.is_ours() {
            return Ok(self.arm.place());
        }
        let folder = self.arm.place().join("vol");
        if !folder.exists() {
            shell.run(&format!("cd {} && btrfs -q subvolume create vol && mkdir snaps", self.place()))?;
        }
        Ok(folder)
    }

    fn place(&self) -> String {
        quoted(&self.arm.place().display().to_string())
    }

    /// The line that takes the snapshot of this number, or of what `$i` stands for.
    fn line(&self, number: &str) -> String {
        match self.arm.is_ours() {
            true => self.arm.ours(&format!("fs snapshot {}@s{number}", self.arm.pool())),
            false => format!(
                "btrfs -q subvolume snapshot -r {place}/vol {place}/snaps/s{number}",
                place = self.place()
            ),
        }
    }

    /// Takes one, by its command alone, without a shell. Milliseconds.
    pub fn take(&self, number: u32) -> Result<f64, Error> {
        let mut command = match self.arm.is_ours() {
            true => {
                let mut command = Command::new(self.steadfast);
                command.env("STEADFAST_RUNTIME_DIR", self.arm.runtime());
                command.args(["fs", "snapshot"]).arg(format!("{}@s{number}", self.arm.pool()));
                command
            }
            false => {
                let mut command = Command::new("btrfs");
                command.args(["-q", "subvolume", "snapshot", "-r"]).arg(self.arm.place().join("vol"));
                command.arg(self.arm.place().join(format!("snaps/s{number}")));
                command
            }
        };
        timed(&mut command, &self.line(&number.to_string()))
    }

    /// Takes those from `from` up to below `to`, as far as it gets. How many there were.
    pub fn take_many(&self, from: u32, to: u32, shell: &mut Shell, step: &Step<'_>) -> Result<u32, Error> {
        let (mut at, mut at_once) = (from, AT_FIRST);
        while at < to && step.may()? {
            let (end, begun) = (to.min(at + at_once), Instant::now());
            let line = self.line("$i");
            shell.ask(&format!("for i in $(seq {at} {}); do {line}; done", end - 1))?;
            at_once = next_line(end - at, begun.elapsed().as_secs_f64());
            at = end;
        }
        Ok(at - from)
    }

    /// Lists all of them with what each takes up, where that can be told. Milliseconds, and how
    /// many there were.
    pub fn list(&self) -> Result<(f64, usize), Error> {
        let begun = Instant::now();
        let ended = match self.arm.is_ours() {
            true => Command::new(self.steadfast)
                .env("STEADFAST_RUNTIME_DIR", self.arm.runtime())
                .args(["fs", "list", "-H", "-t", "snapshot", "-o", "name,used,creation", "-r"])
                .arg(self.arm.pool())
                .process_group(0)
                .output(),
            false => Command::new("btrfs")
                .args(["subvolume", "list", "-s"])
                .arg(self.arm.place())
                .process_group(0)
                .output(),
        };
        let ended = ended.map_err(Error::io("run", self.steadfast))?;
        let took = begun.elapsed().as_secs_f64() * 1e3;
        Ok((took, String::from_utf8_lossy(&ended.stdout).lines().count()))
    }

    /// Destroys all and waits until their room is free again. Seconds until the command returned,
    /// and until all was done; none for what took longer than it may.
    pub fn destroy<'s>(
        &self,
        shell: &mut Shell,
        step: &dyn Fn() -> Step<'s>,
    ) -> Result<(Option<f64>, Option<f64>), Error> {
        let (destroy, wait) = match self.arm.is_ours() {
            true => (
                self.arm.ours(&format!("fs destroy {}@%", self.arm.pool())),
                self.arm.ours(&format!("pool wait -t free {}", self.arm.pool())),
            ),
            false => (
                format!(
                    "cd {} && ls -U snaps | sed 's,^,snaps/,' | xargs -r btrfs -q subvolume delete",
                    self.place()
                ),
                format!("btrfs subvolume sync {}", self.place()),
            ),
        };
        let destroying = step();
        if shell.run_within(&destroy, destroying.left())?.is_none() {
            return Ok((None, None));
        }
        let returned = destroying.seconds();
        let waited = shell.run_within(&wait, step().left())?;
        Ok((Some(returned), waited.map(|_| destroying.seconds())))
    }

    /// Bytes that everything takes up, snapshots too.
    pub fn used(&self, shell: &mut Shell) -> Result<f64, Error> {
        self.arm.used(shell)
    }
}

/// How many the next line takes, after one that took so many in so long.
fn next_line(taken: u32, seconds: f64) -> u32 {
    let fit = f64::from(taken) * LINE_SECONDS / seconds.max(1e-6);
    (fit as u32).clamp(1, AT_ONCE)
}

/// Runs a command to its end, which Ctrl-C does not reach: a signal takes effect between two.
/// Milliseconds.
fn timed(command: &mut Command, line: &str) -> Result<f64, Error> {
    let begun = Instant::now();
    let ended = command.process_group(0).output().map_err(Error::io("run", Path::new(line)))?;
    let took = begun.elapsed().as_secs_f64() * 1e3;
    if !ended.status.success() {
        return Err(Error::Command {
            line: line.to_owned(),
            status: ended.status.code().map_or_else(|| ended.status.to_string(), |code| code.to_string()),
            stderr: String::from_utf8_lossy(&ended.stderr).into_owned(),
        });
    }
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_long_as_fits_and_steps_end() {
        assert_eq!(next_line(16, 0.0625), 128);
        assert_eq!(next_line(125, 125.0), 1);
        assert_eq!(next_line(16, 0.0), AT_ONCE);
        let stop = AtomicBool::new(false);
        let (endless, over) = (Step::new(&stop, None), Step::new(&stop, Some(Duration::ZERO)));
        assert!(endless.may().unwrap() && !over.may().unwrap());
        stop.store(true, Ordering::Relaxed);
        assert!(!endless.goes_on() && matches!(endless.may(), Err(Error::Stopped)));
    }
}
