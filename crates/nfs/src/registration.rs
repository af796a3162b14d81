//! Entries of the front at the port mapper of the machine, where that is another program
//! (`rpcbind`). It takes entries from processes of the machine through a socket of its own, and
//! knows from the socket whose they are.
//!
//! ## Invariants
//! [registration.1] An entry of a program that runs is left alone: only what nobody listens at any
//!      more is replaced. `Registration::enter`

use crate::callback::answer;
use crate::finder::{self, Ports, SERVED, universal};
use crate::rpc;
use crate::xdr::{Reader, Writer};
use crate::{nlm4, nsm};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Socket of `rpcbind` on Linux.
pub const RPCBIND: &str = "/run/rpcbind.sock";
/// Version of the protocol: names of networks, and addresses.
const VERSION: u32 = 4;
const SET: u32 = 1;
const UNSET: u32 = 2;
/// Longest wait for an answer, and for a program that may have an entry.
const WAIT: Duration = Duration::from_secs(2);
const ADDRESS_MAX: usize = 256;

/// A program at an address of a network.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Entry {
    program: u32,
    version: u32,
    network: &'static str,
    address: SocketAddr,
}

/// Entries, until this is dropped.
pub struct Registration {
    socket: PathBuf,
    entries: Vec<Entry>,
    /// Entries that other programs have.
    taken: Vec<Entry>,
}

impl Registration {
    /// Enters all programs that are served at these ports of `at`'s address.
    ///
    /// # Errors
    /// There is no port mapper, or it takes no entry of this process. Nothing is entered then.
    pub fn make(socket: &Path, at: SocketAddr, ports: Ports) -> io::Result<Registration> {
        let (tcp, udp) = if at.is_ipv4() { ("tcp", "udp") } else { ("tcp6", "udp6") };
        let place = |port| SocketAddr::new(at.ip(), port);
        let mut wanted: Vec<Entry> = SERVED
            .into_iter()
            .map(|(program, version)| Entry { program, version, network: tcp, address: place(ports.tcp) })
            .collect();
        if ports.udp > 0 {
            let (program, version) = (nsm::PROGRAM, nsm::VERSION);
            wanted.push(Entry { program, version, network: udp, address: place(ports.udp) });
        }
        let mut made = Registration { socket: socket.to_owned(), entries: Vec::new(), taken: Vec::new() };
        for entry in wanted {
            // If a later one fails, `made` takes the earlier ones away.
            if made.enter(&entry)? { &mut made.entries } else { &mut made.taken }.push(entry);
        }
        if made.entries.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it takes no entry, or other programs have all",
            ));
        }
        Ok(made)
    }

    /// Services that clients lack because other programs have entries, as sentences.
    #[must_use]
    pub fn shortfalls(&self) -> Vec<&'static str> {
        let lacks = |program| self.taken.iter().any(|entry| entry.program == program);
        let mut lines = Vec::new();
        if lacks(nlm4::PROGRAM) {
            lines.push("another lock manager is registered: mount with nolock");
        }
        if lacks(nsm::PROGRAM) {
            lines.push("another rpc.statd is registered: locks of a client that restarted stay until it asks for them again");
        }
        let is_main = |entry: &&Entry| ![nlm4::PROGRAM, nsm::PROGRAM].contains(&entry.program);
        if self.taken.iter().any(|entry| is_main(&entry)) {
            lines.push("another NFS server is registered: mount with port= and mountport=");
        }
        lines
    }

    /// True if the entry is there then; false if another program has it.
    fn enter(&self, entry: &Entry) -> io::Result<bool> {
        if self.change(SET, entry)? {
            return Ok(true);
        }
        let Some(port) = self.port_of(entry)? else { return Ok(false) };
        if port == entry.address.port() {
            // Ours, of a process that was killed.
            return Ok(true);
        }
        let other = SocketAddr::new(entry.address.ip(), port);
        let is_alive = entry.network.starts_with("udp") || TcpStream::connect_timeout(&other, WAIT).is_ok();
        // [registration.1]
        Ok(!is_alive && self.change(UNSET, entry)? && self.change(SET, entry)?)
    }

    fn change(&self, procedure: u32, entry: &Entry) -> io::Result<bool> {
        let mut out = Writer::default();
        out.u32(entry.program).u32(entry.version).opaque(entry.network.as_bytes());
        out.opaque(universal(entry.address).as_bytes()).opaque(b"");
        let results = self.call(procedure, &out.out)?;
        Reader::new(&results).bool().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    fn port_of(&self, entry: &Entry) -> io::Result<Option<u16>> {
        let mut out = Writer::default();
        out.u32(entry.program).u32(entry.version).opaque(entry.network.as_bytes()).opaque(b"").opaque(b"");
        let results = self.call(finder::GET, &out.out)?;
        Ok(Reader::new(&results).opaque(ADDRESS_MAX).ok().and_then(finder::port_of_universal))
    }

    fn call(&self, procedure: u32, arguments: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(WAIT))?;
        stream.set_write_timeout(Some(WAIT))?;
        stream.write_all(&rpc::call(1, finder::PROGRAM, VERSION, procedure, arguments))?;
        answer(&mut stream)?.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        for entry in &self.entries {
            // An entry that stays leads to nobody, and is replaced by the next one.
            self.change(UNSET, entry).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs3;
    use crate::rpc::{Assembler, Call};
    use parking_lot::Mutex;
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;

    type Table = Arc<Mutex<BTreeMap<(u32, u32, String), String>>>;

    /// A port mapper that knows the three procedures.
    fn mapper(name: &str) -> (PathBuf, Table) {
        let socket = std::env::temp_dir().join(format!("steadfast-nfs-{name}-{}", std::process::id()));
        _ = std::fs::remove_file(&socket);
        let (listener, table) = (UnixListener::bind(&socket).expect("a socket"), Table::default());
        let entries = Arc::clone(&table);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &entries);
            }
        });
        (socket, table)
    }

    fn serve(mut stream: UnixStream, entries: &Table) {
        let (mut assembler, mut piece) = (Assembler::default(), [0; 512]);
        let record = loop {
            let count = stream.read(&mut piece).expect("a call");
            if let Some(record) = assembler.feed(&mut &piece[..count]).expect("short") {
                break record;
            }
        };
        let mut reader = Reader::new(&record);
        let call = Call::decode(&mut reader).expect("a call");
        assert_eq!((call.program, call.version), (finder::PROGRAM, VERSION));
        let text = |reader: &mut Reader<'_>| {
            String::from_utf8(reader.opaque(256).expect("text").to_vec()).expect("text")
        };
        let (program, version) = (reader.u32().expect("one"), reader.u32().expect("one"));
        let (network, address) = (text(&mut reader), text(&mut reader));
        let (mut out, mut entries, key) = (rpc::reply(call.xid), entries.lock(), (program, version, network));
        match call.procedure {
            SET if entries.contains_key(&key) => _ = out.bool(false),
            SET => _ = out.bool(entries.insert(key, address).is_none()),
            UNSET => _ = out.bool(entries.remove(&key).is_some()),
            _ => _ = out.opaque(entries.get(&key).map_or(b"", |address| address.as_bytes())),
        }
        stream.write_all(&rpc::record(out)).expect("answered");
    }

    fn ports(at: &TcpListener) -> (SocketAddr, Ports) {
        let at = at.local_addr().expect("bound");
        (at, Ports { tcp: at.port(), udp: at.port() })
    }

    #[test]
    fn programs_are_entered_and_taken_away() {
        let (socket, table) = mapper("entered");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (at, ports) = ports(&listener);
        let made = Registration::make(&socket, at, ports).expect("taken");
        assert_eq!((table.lock().len(), made.shortfalls()), (SERVED.len() + 1, Vec::new()));
        let key = |network: &str| (nsm::PROGRAM, nsm::VERSION, network.to_owned());
        assert_eq!(table.lock()[&key("udp")], universal(at));
        // A process that was killed left its entries: they are ours.
        std::mem::forget(made);
        let made = Registration::make(&socket, at, ports).expect("taken");
        drop(made);
        assert!(table.lock().is_empty());
        std::fs::remove_file(&socket).expect("there");
        assert!(Registration::make(&socket, at, ports).is_err(), "no port mapper");
    }

    #[test]
    fn an_entry_of_a_program_that_runs_stays_and_a_stale_one_goes() {
        let (socket, table) = mapper("stale");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (at, ports) = ports(&listener);
        let other = TcpListener::bind("127.0.0.1:0").expect("a port");
        let gone = TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).expect("a port");
        let enter = |program, version, address| {
            table.lock().insert((program, version, "tcp".into()), universal(address));
        };
        enter(nlm4::PROGRAM, nlm4::VERSION, other.local_addr().expect("bound"));
        enter(nfs3::PROGRAM, nfs3::VERSION, gone);
        let made = Registration::make(&socket, at, ports).expect("taken");
        assert_eq!(made.shortfalls(), ["another lock manager is registered: mount with nolock"]);
        assert_eq!(table.lock()[&(nfs3::PROGRAM, nfs3::VERSION, "tcp".into())], universal(at));
        drop(made);
        let left: Vec<u32> = table.lock().keys().map(|(program, ..)| *program).collect();
        assert_eq!(left, [nlm4::PROGRAM], "the other one's");
        std::fs::remove_file(&socket).expect("there");
    }
}
