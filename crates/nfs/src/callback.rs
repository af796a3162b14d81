//! Calls of ours to clients: a lock for which one waited is granted, or the daemon has restarted.
//!
//! They are made one after the other, each with a short time limit, by one thread. A machine that
//! cannot be reached is left alone for a while: it asks again by itself.

use crate::finder;
use crate::rpc::{self, Assembler};
use crate::xdr::{Reader, Writer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for a connection, and for each piece of an answer.
const WAIT: Duration = Duration::from_secs(2);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The call did not leave.
    Unsent,
    /// Nobody knows whether it arrived.
    Unanswered,
}

/// A procedure of a program at a client.
pub(crate) struct Errand<'a> {
    /// The client.
    pub client: IpAddr,
    /// Our address, as it knows it: it takes calls from nowhere else.
    pub server: IpAddr,
    /// Port of its port mapper.
    pub finder_port: u16,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    pub arguments: &'a [u8],
}

impl Errand<'_> {
    /// Finds the program, and calls it.
    pub(crate) fn run(&self) -> Result<Vec<u8>, Fault> {
        let port = self.find().ok().flatten().ok_or(Fault::Unsent)?;
        self.call(port, self.program, self.version, self.procedure, self.arguments)
    }

    fn find(&self) -> Result<Option<u16>, Fault> {
        let mut out = Writer::default();
        out.u32(self.program).u32(self.version);
        if self.client.is_ipv4() {
            out.u32(finder::TCP).u32(0);
            let port = self.call(self.finder_port, finder::PROGRAM, 2, finder::GET, &out.out)?;
            let port = Reader::new(&port).u32().ok().and_then(|port| u16::try_from(port).ok());
            return Ok(port.filter(|port| *port > 0));
        }
        out.opaque(b"tcp6").opaque(b"").opaque(b"");
        let address = self.call(self.finder_port, finder::PROGRAM, 4, finder::GET, &out.out)?;
        Ok(Reader::new(&address).opaque(256).ok().and_then(finder::port_of_universal))
    }

    fn call(
        &self,
        port: u16,
        program: u32,
        version: u32,
        procedure: u32,
        arguments: &[u8],
    ) -> Result<Vec<u8>, Fault> {
        let address = SocketAddr::new(self.client, port);
        let mut stream = connect(self.server, address).map_err(|_| Fault::Unsent)?;
        let record = rpc::call(1, program, version, procedure, arguments);
        // A record of which a part is missing is none.
        stream.write_all(&record).map_err(|_| Fault::Unsent)?;
        answer(&mut stream).ok().flatten().ok_or(Fault::Unanswered)
    }
}

/// A connection from an address of ours.
fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let wait = Timespec { tv_sec: WAIT.as_secs() as i64, tv_nsec: 0 };
    if poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&wait))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    rustix::net::sockopt::socket_error(&socket)??;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(WAIT))?;
    Ok(stream)
}

/// Results of the call that was carried out; `None` if it was not.
pub(crate) fn answer(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let (mut assembler, mut piece) = (Assembler::default(), [0; 1_024]);
    // An answer of any client is short. One that drips it ends as late as it has pieces.
    for _ in 0..16 {
        let count = stream.read(&mut piece)?;
        if count == 0 {
            break;
        }
        if let Some(record) = assembler.feed(&mut &piece[..count]).map_err(io::Error::other)? {
            return Ok(rpc::results(&record).map(<[u8]>::to_vec));
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
