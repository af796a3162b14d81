//! Machines that have locks, remembered beyond the end of the daemon: they are told of its restart,
//! and take their locks again then.
//!
//! The file is text, one machine a line: its address, ours as it knows it, its name in hexadecimal
//! digits, and whether it used a port below 1024. It is replaced as a whole, and durable before the
//! first lock of a machine is granted.

use crate::locks::Host;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const HEAD: &str = "steadfast nfs clients 1";
/// Most machines that are remembered.
const HOSTS_MAX: usize = 12_000;
/// Most of one address, by name.
const EACH_MAX: usize = 64;

/// Machines, and under which address of ours they know us.
pub(crate) struct Hosts {
    path: Option<PathBuf>,
    known: BTreeMap<Host, IpAddr>,
    /// Number of this start; the status protocol wants it odd.
    state: u32,
}

impl Hosts {
    /// Reads the file. A file that cannot be read is nothing, and told as an error.
    pub(crate) fn open(path: Option<PathBuf>) -> (Hosts, io::Result<()>) {
        let (mut known, mut before, mut read) = (BTreeMap::new(), 0, Ok(()));
        match path.as_deref().map(fs::read_to_string) {
            None => {}
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Some(Err(error)) => read = Err(error),
            Some(Ok(text)) => match parse(&text) {
                Some(found) => (before, known) = found,
                None => read = Err(io::Error::other("it is no list of clients")),
            },
        }
        // Seconds, so that it grows even where the file is lost.
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let state = ((seconds as u32) & (u32::MAX >> 1)).max(before.saturating_add(1)) | 1;
        (Hosts { path, known, state }, read)
    }

    pub(crate) fn state(&self) -> u32 {
        self.state
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<(Host, IpAddr)> {
        self.known.iter().map(|(host, server)| (host.clone(), *server)).collect()
    }

    /// Remembers a machine. False if there is no room; those that have nothing any more go first.
    pub(crate) fn remember(
        &mut self,
        host: &Host,
        server: IpAddr,
        has_locks: impl Fn(&Host) -> bool,
    ) -> io::Result<bool> {
        if self.known.get(host) == Some(&server) {
            return Ok(true);
        }
        let is_full = |known: &BTreeMap<Host, IpAddr>| {
            let each = known.keys().filter(|other| other.address == host.address).count();
            known.len() >= HOSTS_MAX || each >= EACH_MAX
        };
        if is_full(&self.known) {
            self.known.retain(|other, _| has_locks(other));
            if is_full(&self.known) {
                return Ok(false);
            }
        }
        let before = self.known.insert(host.clone(), server);
        let stored = self.store();
        if stored.is_err() {
            match before {
                Some(before) => _ = self.known.insert(host.clone(), before),
                None => _ = self.known.remove(host),
            }
        }
        stored.map(|()| true)
    }

    /// Forgets those that have nothing.
    pub(crate) fn tidy(&mut self, has_locks: impl Fn(&Host) -> bool) -> io::Result<()> {
        let before = self.known.len();
        self.known.retain(|host, _| has_locks(host));
        if self.known.len() == before { Ok(()) } else { self.store() }
    }

    fn store(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut text = format!("{HEAD}\n{}\n", self.state);
        for (host, server) in &self.known {
            let port = if host.low_port { "low" } else { "any" };
            _ = write!(text, "{} {server} {port} ", host.address);
            host.name.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
            text.push('\n');
        }
        replace(path, text.as_bytes())
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

fn parse(text: &str) -> Option<(u32, BTreeMap<Host, IpAddr>)> {
    let mut lines = text.lines();
    if lines.next()? != HEAD {
        return None;
    }
    let state = lines.next()?.parse().ok()?;
    let host = |line: &str| {
        let mut words = line.split(' ');
        let (address, server) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let low_port = words.next()? == "low";
        let name = words.next()?.as_bytes().chunks(2).map(|digits| {
            let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 2)?;
            u8::from_str_radix(digits, 16).ok()
        });
        Some((Host { address, name: name.collect::<Option<Vec<u8>>>()?, low_port }, server))
    };
    Some((state, lines.map(host).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8, name: &[u8]) -> Host {
        Host { address: [10, 0, 0, last].into(), name: name.to_vec(), low_port: last != 2 }
    }

    #[test]
    fn machines_are_remembered_beyond_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("clients");
        let server: IpAddr = [10, 0, 0, 9].into();
        let (mut hosts, read) = Hosts::open(Some(path.clone()));
        assert!(read.is_ok() && hosts.all().is_empty() && hosts.state() % 2 == 1);
        for host in [host(1, b"one"), host(2, b"\xff two\n"), host(1, b"")] {
            assert!(hosts.remember(&host, server, |_| true).expect("stored"));
        }
        let (mut again, read) = Hosts::open(Some(path.clone()));
        assert!(read.is_ok() && again.all() == hosts.all() && again.all().len() == 3);
        assert!(again.state() > hosts.state(), "clients take an old number for an old message");
        again.tidy(|has| *has == host(1, b"one")).expect("stored");
        assert_eq!(Hosts::open(Some(path.clone())).0.all(), [(host(1, b"one"), server)]);
        fs::write(&path, "something else").expect("written");
        let (hosts, read) = Hosts::open(Some(path));
        assert!(read.is_err() && hosts.all().is_empty());
    }

    #[test]
    fn one_address_has_not_the_room_of_all() {
        let (mut hosts, _) = Hosts::open(None);
        let server: IpAddr = [10, 0, 0, 9].into();
        let mut remember = |name: u32, has: bool| {
            hosts.remember(&host(1, &name.to_be_bytes()), server, |_| has).expect("no file")
        };
        assert!((0..EACH_MAX as u32).all(|name| remember(name, true)));
        assert!(!remember(1_000, true) && remember(3, true));
        assert!(remember(1_000, false), "the others have nothing any more");
    }
}
