//! Parent of a daemon in the background: starts it again after it was killed or crashed.
//!
//! The mounts of a dead daemon answer "Transport endpoint is not connected" until its successor
//! takes them over. The service manager restarts the daemon of a unit; this process does the same
//! for a daemon that a command started. It holds no pool and no lock, and ends with a daemon that
//! ended by itself.

use crate::session::Failure;
use std::collections::VecDeque;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Restarts within [`WINDOW`] after which the parent gives up: the daemon crashes at its start.
const RESTARTS_MAX: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);
/// Pause before a restart: the kernel closes the files of the dead daemon meanwhile.
const PAUSE: Duration = Duration::from_millis(100);
/// Exit status of a program whose main thread panicked.
const PANICKED: i32 = 101;

/// Runs this program again with `arguments`, and once more whenever it was killed or crashed.
///
/// # Errors
/// The exit status of a daemon that ended by itself, or 1.
pub(super) fn supervise(arguments: &[String]) -> Result<(), Failure> {
    // A session of its own keeps the terminal's signals away. The call fails only for the leader of
    // a process group, which needs none.
    let _ = rustix::process::setsid();
    // The folder that it was started in may be unmounted.
    let _ = std::env::set_current_dir("/");
    let mut restarts = Restarts::default();
    loop {
        // The same program, even if its file was replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("steadfast").args(arguments).stdin(Stdio::null());
        let started = command.spawn().and_then(|mut child| Ok((child.id(), child.wait()?)));
        let (pid, status) = started.map_err(|error| {
            eprintln!("steadfast: the daemon cannot be started: {error}");
            Failure::Status(1)
        })?;
        if !has_crashed(status) {
            return match status.code() {
                Some(0) => Ok(()),
                code => Err(Failure::Status(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))),
            };
        }
        if !restarts.allow(Instant::now()) {
            let seconds = WINDOW.as_secs();
            eprintln!(
                "steadfast: the daemon (process {pid}) ended: {status}; it was restarted {RESTARTS_MAX} times \
                 within {seconds} s and is not restarted again. The next command starts it"
            );
            return Err(Failure::Status(1));
        }
        eprintln!("steadfast: the daemon (process {pid}) ended: {status}; restarting it");
        std::thread::sleep(PAUSE);
    }
}

fn has_crashed(status: ExitStatus) -> bool {
    status.signal().is_some() || status.code() == Some(PANICKED)
}

/// Times of the last restarts.
#[derive(Default)]
struct Restarts(VecDeque<Instant>);

impl Restarts {
    /// True if another restart is allowed now; it counts from then on.
    fn allow(&mut self, now: Instant) -> bool {
        self.0.retain(|at| now.duration_since(*at) < WINDOW);
        let is_allowed = self.0.len() < RESTARTS_MAX;
        if is_allowed {
            self.0.push_back(now);
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_crashes_at_its_start_is_not_restarted_for_ever() {
        let (mut restarts, begin) = (Restarts::default(), Instant::now());
        for second in 0..5 {
            assert!(restarts.allow(begin + Duration::from_secs(second)));
        }
        assert!(!restarts.allow(begin + Duration::from_secs(59)));
        assert!(restarts.allow(begin + WINDOW), "the first is forgotten");
        assert!(!restarts.allow(begin + WINDOW));
        assert!(restarts.allow(begin + WINDOW * 10), "once an hour is no crash at the start");
    }

    #[test]
    fn signals_and_panics_are_crashes_and_an_exit_status_is_not() {
        let ends = |raw| has_crashed(ExitStatus::from_raw(raw));
        assert!(ends(9) && ends(11) && ends(101 << 8));
        assert!(!ends(0) && !ends(1 << 8) && !ends(3 << 8));
    }
}
