//! The log of events on disk: one JSON document a line. `zpool events` shows it after a restart.
//!
//! Two files of 1 MiB at most: a full one becomes `events.log.1`, in place of the one before.
//! A power cut may tear the last line; a line that cannot be read is left out.

use crate::api::PoolEvent;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of one file.
const FILE_MAX: u64 = 1 << 20;

/// A line of the log.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    /// `zpool events -c`: those up to this number are shown no more.
    Cleared {
        cleared: u64,
    },
    Event(PoolEvent),
}

/// The log of one daemon.
pub(super) struct EventLog {
    path: PathBuf,
    file_max: u64,
}

impl EventLog {
    /// The log in a file; it is made with the first event.
    pub fn new(path: &Path) -> EventLog {
        EventLog { path: path.to_owned(), file_max: FILE_MAX }
    }

    fn former(&self) -> PathBuf {
        self.path.with_extension("log.1")
    }

    /// All events that were not cleared, oldest first, and the number of the last event ever.
    pub fn load(&self) -> (u64, Vec<PoolEvent>) {
        let (mut last, mut events) = (0, Vec::new());
        for path in [self.former(), self.path.clone()] {
            let Ok(bytes) = self.read_end(&path) else { continue };
            for line in bytes.split(|byte| *byte == b'\n') {
                match serde_json::from_slice(line) {
                    Ok(Line::Event(event)) if event.eid > last => {
                        last = event.eid;
                        events.push(event);
                    }
                    Ok(Line::Cleared { cleared }) => {
                        last = last.max(cleared);
                        events.retain(|event| event.eid > cleared);
                    }
                    _ => {}
                }
            }
        }
        (last, events)
    }

    /// The last bytes of a file that somebody may have made larger.
    fn read_end(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let limit = self.file_max * 2;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Appends events; `durable`: they survive a power cut once this returns.
    pub fn append(&self, events: &[PoolEvent], durable: bool) -> io::Result<()> {
        let mut lines = Vec::new();
        for event in events {
            serde_json::to_writer(&mut lines, event)?;
            lines.push(b'\n');
        }
        self.write(&lines, durable)
    }

    /// Notes that the events up to a number are shown no more.
    pub fn clear(&self, last: u64) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Line::Cleared { cleared: last })?;
        line.push(b'\n');
        self.write(&line, false)
    }

    fn write(&self, lines: &[u8], durable: bool) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut file = self.open()?;
        let length = file.metadata()?.len();
        if length > 0 && length + lines.len() as u64 > self.file_max {
            fs::rename(&self.path, self.former())?;
            file = self.open()?;
        } else if length > 0 && !ends_with_newline(&mut file)? {
            // A torn line: the next one begins on its own.
            file.write_all(b"\n")?;
        }
        file.write_all(lines)?;
        if durable {
            file.sync_data()?;
        }
        Ok(())
    }

    fn open(&self) -> io::Result<File> {
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&self.path)
    }
}

fn ends_with_newline(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn log(name: &str) -> EventLog {
        let folder = std::env::temp_dir().join(format!("steadfast-event-log-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        EventLog { path: folder.join("events.log"), file_max: 4096 }
    }

    fn event(eid: u64) -> PoolEvent {
        let fields = BTreeMap::from([("detail".to_owned(), "one\ntwo".to_owned())]);
        let class = "ereport.fs.steadfast.io".to_owned();
        PoolEvent { eid, time_ns: eid, class, pool: Some("tank".to_owned()), fields }
    }

    fn eids(log: &EventLog) -> Vec<u64> {
        log.load().1.iter().map(|event| event.eid).collect()
    }

    #[test]
    fn events_survive_and_a_torn_line_costs_one() {
        let log = log("torn");
        assert_eq!(log.load().0, 0, "there is no log yet");
        log.append(&[event(1), event(2)], true).unwrap();
        assert_eq!(log.load(), (2, vec![event(1), event(2)]));
        let whole = fs::read(&log.path).unwrap();
        fs::write(&log.path, &whole[..whole.len() - 9]).unwrap();
        log.append(&[event(3)], false).unwrap();
        assert_eq!(eids(&log), [1, 3]);
        log.clear(3).unwrap();
        assert_eq!(log.load(), (3, Vec::new()), "numbers go on");
        log.append(&[event(4)], false).unwrap();
        assert_eq!(eids(&log), [4]);
        fs::write(&log.path, b"\xff\xfe{}\n[1]\nnull\n{\"eid\":\"x\"}\n").unwrap();
        assert_eq!(log.load(), (0, Vec::new()), "no bytes make it fail");
        fs::remove_dir_all(log.path.parent().unwrap()).unwrap();
    }

    #[test]
    fn the_log_takes_no_more_than_two_files() {
        let log = log("bound");
        for eid in 1..=500 {
            log.append(&[event(eid)], false).unwrap();
        }
        let length = |path: &Path| fs::metadata(path).unwrap().len();
        assert!(length(&log.path) <= 4096 && length(&log.former()) <= 4096);
        let eids = eids(&log);
        assert_eq!(eids.last(), Some(&500));
        assert!(eids.len() > 20 && eids.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{eids:?}");
        assert_eq!(fs::read_dir(log.path.parent().unwrap()).unwrap().count(), 2);
        fs::remove_dir_all(log.path.parent().unwrap()).unwrap();
    }
}
