//! Lines for the journal, with their priority.
//!
//! The standard error of a unit leads to the journal, which reads a priority from `<3>` at the
//! start of a line (sd-daemon(3)). Where it leads elsewhere, an urgent line goes to `/dev/log` too,
//! so that syslog or the journal has it in either case.

use rustix::process::getpid;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

/// Number of the facility `daemon`.
const DAEMON: u8 = 3;

/// Where urgent lines go.
#[derive(Clone, Debug)]
pub(crate) struct Syslog {
    /// Standard error leads to the journal.
    is_journal: bool,
    /// Socket of the system's log, unless standard error leads there.
    socket: Option<PathBuf>,
}

impl Syslog {
    /// Finds out where standard error leads. An isolated daemon tells the system's log nothing.
    pub fn detect(isolated: bool) -> Syslog {
        let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let stderr = std::fs::metadata("/proc/self/fd/2");
        let is_journal = stderr.is_ok_and(|found| named == format!("{}:{}", found.dev(), found.ino()));
        Syslog { is_journal, socket: (!is_journal && !isolated).then(|| "/dev/log".into()) }
    }

    /// Prints a line on standard error, and hands it to the system's log.
    pub fn say(&self, priority: u8, line: &str) {
        if self.is_journal {
            eprintln!("<{priority}>steadfast: {line}");
            return;
        }
        eprintln!("steadfast: {line}");
        if let Some(socket) = &self.socket {
            let message =
                format!("<{}>steadfast[{}]: {line}", DAEMON * 8 + priority, getpid().as_raw_nonzero());
            // Without such a socket the line is in the daemon's own log.
            let _ = UnixDatagram::unbound().and_then(|from| {
                from.set_nonblocking(true)?;
                from.send_to(message.as_bytes(), socket)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_log_gets_facility_and_priority() {
        let path = std::env::temp_dir().join(format!("steadfast-syslog-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let log = UnixDatagram::bind(&path).unwrap();
        let syslog = Syslog { is_journal: false, socket: Some(path.clone()) };
        syslog.say(3, "pool 'tank': device /dev/sdb is FAULTED");
        let mut bytes = [0; 200];
        let length = log.recv(&mut bytes).unwrap();
        let line = str::from_utf8(&bytes[..length]).unwrap();
        assert_eq!(
            line,
            format!("<27>steadfast[{}]: pool 'tank': device /dev/sdb is FAULTED", std::process::id())
        );
        std::fs::remove_file(&path).unwrap();
        syslog.say(3, "nobody listens, and nothing fails");
        assert!(Syslog::detect(true).socket.is_none());
    }
}
