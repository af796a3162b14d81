//! Commands: run, written down, bounded in time.
//!
//! The lab drives file systems only by commands that a person could type, and the report shows
//! every one of them.
//!
//! Output goes to files, not pipes: a command may leave a daemon behind that inherits them, and
//! reading a pipe to its end would then wait for the daemon. Each command is the leader of its own
//! process group, so that Ctrl-C on the terminal reaches the lab alone and the lab ends what it
//! began in its own order.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;
use steadfast_lab_report::report;

/// A command that has not ended by then never will.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often we look whether it has ended.
const POLL: Duration = Duration::from_millis(4);

/// Runs one program under an environment of its own and remembers what it ran.
#[derive(Debug)]
pub struct Commands {
    program: PathBuf,
    /// How the program is called in what people read.
    shown: String,
    environment: Vec<(String, PathBuf)>,
    scratch: PathBuf,
    history: Vec<report::Command>,
    patience: Duration,
    /// Flag that ends a command that still runs.
    stop: Option<Arc<AtomicBool>>,
}

/// Result of a command.
#[derive(Debug)]
pub struct Ended {
    /// Exit status; none when ended by a signal.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Commands {
    /// Commands of `program`, whose output is kept in `scratch` while it runs.
    pub fn new(program: &Path, shown: &str, environment: Vec<(String, PathBuf)>, scratch: &Path) -> Self {
        Self {
            program: program.to_owned(),
            shown: shown.to_owned(),
            environment,
            scratch: scratch.to_owned(),
            history: Vec::new(),
            patience: PATIENCE,
            stop: None,
        }
    }

    /// Gives each command so long before it is stopped.
    pub fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Ends a command that still runs when this is set: [`Error::Stopped`].
    pub fn heeding(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = Some(stop);
        self
    }

    /// The same from now on; with nothing, commands come to their end whatever is set: for what
    /// takes everything away.
    pub fn heed(&mut self, stop: Option<Arc<AtomicBool>>) {
        self.stop = stop;
    }

    /// Everything that was run, in order.
    pub fn history(&self) -> &[report::Command] {
        &self.history
    }

    /// Notes a step that is no command of the program (`truncate`).
    pub fn note(&mut self, line: String) {
        self.history.push(report::Command { line, status: Some(0) });
    }

    /// Runs, and wants exit status 0. Returns standard output.
    pub fn run(&mut self, args: &[&str], input: Option<&str>) -> Result<String, Error> {
        let ended = self.attempt(args, input, true)?;
        match ended.status {
            Some(0) => Ok(ended.stdout),
            status => Err(Error::Command {
                line: self.line(args, input),
                status: status
                    .map_or_else(|| "none: ended by a signal".to_owned(), |status| status.to_string()),
                stderr: ended.stderr,
            }),
        }
    }

    /// As [`Commands::run`], but for questions that are no step of the experiment: not written
    /// down.
    pub fn ask(&mut self, args: &[&str]) -> Result<String, Error> {
        let ended = self.attempt(args, None, false)?;
        match ended.status {
            Some(0) => Ok(ended.stdout),
            status => Err(Error::Command {
                line: self.line(args, None),
                status: format!("{status:?}"),
                stderr: ended.stderr,
            }),
        }
    }

    /// Runs and returns however it ends.
    pub fn attempt(&mut self, args: &[&str], input: Option<&str>, noted: bool) -> Result<Ended, Error> {
        let patience = self.patience;
        self.attempt_within(args, input, noted, patience)?.ok_or_else(|| Error::Timeout {
            line: self.line(args, input),
            seconds: patience.as_secs(),
            log: self.environment.first().map_or_else(PathBuf::new, |(_, dir)| dir.clone()),
        })
    }

    /// The same; `None` for one that has not ended after so long, and was ended with all that it
    /// began.
    pub fn attempt_within(
        &mut self,
        args: &[&str],
        input: Option<&str>,
        noted: bool,
        limit: Duration,
    ) -> Result<Option<Ended>, Error> {
        let (out_path, err_path) = (self.scratch.join("stdout"), self.scratch.join("stderr"));
        let out = File::create(&out_path).map_err(Error::io("create", &out_path))?;
        let err = File::create(&err_path).map_err(Error::io("create", &err_path))?;
        let mut child = process::Command::new(&self.program)
            .args(args)
            .envs(
                self.environment
                    .iter()
                    .map(|(name, value)| (name, value as &dyn AsRef<OsStr>))
                    .map(|(name, value)| (name, value.as_ref().to_owned())),
            )
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .map_err(Error::io("run", &self.program))?;
        if let (Some(text), Some(mut pipe)) = (input, child.stdin.take()) {
            // A program that does not read its input is no error: it will say itself what it lacks.
            let _ = pipe.write_all(text.as_bytes());
        }
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(Error::io("wait for", &self.program))? {
                break status;
            }
            let is_stopped = self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
            if is_stopped || started.elapsed() > limit {
                end_group(&mut child);
                return if is_stopped { Err(Error::Stopped) } else { Ok(None) };
            }
            std::thread::sleep(POLL);
        };
        if noted {
            self.history.push(report::Command { line: self.line(args, input), status: status.code() });
        }
        let stderr = match status.signal() {
            Some(signal) => format!("{}ended by signal {signal}", read(&err_path)),
            None => read(&err_path),
        };
        Ok(Some(Ended { status: status.code(), stdout: read(&out_path), stderr }))
    }

    /// As one would type it.
    fn line(&self, args: &[&str], input: Option<&str>) -> String {
        let mut line = String::new();
        if let Some(text) = input {
            line.push_str(&format!("echo {} | ", quoted(text.trim_end())));
        }
        line.push_str(&self.shown);
        for arg in args {
            line.push(' ');
            line.push_str(&quoted(arg));
        }
        line
    }
}

/// Ends a command and what it began, but for what has made itself a daemon.
fn end_group(child: &mut process::Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// An argument as a shell would have to read it.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(dir: &Path) -> Commands {
        Commands::new(Path::new("/bin/sh"), "sh", Vec::new(), dir)
    }

    #[test]
    fn a_failing_command_is_an_error_that_says_what_it_said() {
        let dir = crate::host::workdir::Workdir::create(&std::env::temp_dir()).unwrap();
        let mut commands = shell(dir.path());
        assert_eq!(commands.run(&["-c", "echo yes; read x; echo $x"], Some("12\n")).unwrap(), "yes\n12\n");
        let error = commands.run(&["-c", "echo no room >&2; exit 3"], None).unwrap_err().to_string();
        assert!(error.contains("exit status 3") && error.contains("no room"), "{error}");
        let lines: Vec<_> = commands.history().iter().map(|c| (c.line.as_str(), c.status)).collect();
        assert_eq!(lines[0], ("echo 12 | sh -c 'echo yes; read x; echo $x'", Some(0)));
        assert_eq!(lines[1].1, Some(3));
    }

    #[test]
    fn a_command_that_takes_too_long_or_is_not_wanted_any_more_ends_with_what_it_began() {
        let dir = crate::host::workdir::Workdir::create(&std::env::temp_dir()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let mut commands = shell(dir.path()).heeding(Arc::clone(&stop));
        let file = dir.path().join("pid");
        let line = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let mut limit = Duration::from_millis(100);
        // Where the processor is taken, the shell may be ended before it has said what it began.
        let pid = loop {
            let ended = commands.attempt_within(&["-c", &line], None, true, limit).unwrap();
            assert!(ended.is_none() && commands.history().is_empty());
            match fs::read_to_string(&file) {
                Ok(pid) if pid.ends_with('\n') => break pid,
                _ => limit *= 2,
            }
        };
        // Its child is gone, or is a zombie that nobody has waited for yet.
        let stat = format!("/proc/{}/stat", pid.trim());
        while fs::read_to_string(&stat).is_ok_and(|state| !state.contains(") Z")) {
            std::thread::sleep(POLL);
        }
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(commands.run(&["-c", "sleep 1000"], None), Err(Error::Stopped)));
    }

    #[test]
    fn a_daemon_left_behind_does_not_hold_us_up() {
        let dir = crate::host::workdir::Workdir::create(&std::env::temp_dir()).unwrap();
        let said = shell(dir.path()).run(&["-c", "sleep 1000 & echo $!"], None).unwrap();
        let pid = rustix::process::Pid::from_raw(said.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it still sleeps");
    }
}
