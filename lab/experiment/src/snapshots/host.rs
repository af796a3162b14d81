//! Who takes snapshots: a pool of ours by its commands, btrfs by its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::arms::Arm;
use crate::command::quoted;
use crate::error::Error;
use crate::shell::Shell;

/// Snapshots that one line of shell takes at most.
const AT_ONCE: u32 = 1_000;

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

    /// Takes those from `from` up to below `to`. Milliseconds of each.
    pub fn take_many(&self, from: u32, to: u32, shell: &mut Shell) -> Result<f64, Error> {
        let begun = Instant::now();
        let mut at = from;
        while at < to {
            let end = to.min(at + AT_ONCE);
            let line = self.line("$i");
            shell.ask(&format!("for i in $(seq {at} {}); do {line}; done", end - 1))?;
            at = end;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e3 / f64::from((to - from).max(1)))
    }

    /// Lists all of them with what each takes up, where that can be told. Milliseconds, and how many there were.
    pub fn list(&self) -> Result<(f64, usize), Error> {
        let begun = Instant::now();
        let ended = match self.arm.is_ours() {
            true => Command::new(self.steadfast)
                .env("STEADFAST_RUNTIME_DIR", self.arm.runtime())
                .args(["fs", "list", "-H", "-t", "snapshot", "-o", "name,used,creation", "-r"])
                .arg(self.arm.pool())
                .output(),
            false => Command::new("btrfs").args(["subvolume", "list", "-s"]).arg(self.arm.place()).output(),
        };
        let ended = ended.map_err(Error::io("run", self.steadfast))?;
        let took = begun.elapsed().as_secs_f64() * 1e3;
        Ok((took, String::from_utf8_lossy(&ended.stdout).lines().count()))
    }

    /// Destroys all and waits until their room is free again. Seconds until the command returned, and until all was done.
    pub fn destroy(&self, shell: &mut Shell) -> Result<(f64, f64), Error> {
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
        let begun = Instant::now();
        shell.run(&destroy)?;
        let returned = begun.elapsed().as_secs_f64();
        shell.run(&wait)?;
        Ok((returned, begun.elapsed().as_secs_f64()))
    }

    /// Bytes that everything takes up, snapshots too.
    pub fn used(&self, shell: &mut Shell) -> Result<f64, Error> {
        self.arm.used(shell)
    }
}

/// Runs a command to its end. Milliseconds.
fn timed(command: &mut Command, line: &str) -> Result<f64, Error> {
    let begun = Instant::now();
    let ended = command.output().map_err(Error::io("run", Path::new(line)))?;
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
