//! # An agent beside a store, and the way to it
//!
//! `steadfast audit agent STORE` answers questions of owners: it reads cells near the store and
//! sends their sum ([`steadfast_pool::agent`] has the bytes). It has no keys of a pool, writes
//! nothing, and is believed in nothing.
//!
//! ## Invariants
//! [agent.1] Nobody waits for the other for ever: an exchange has a limit.
//!     test: `an_agent_that_is_slow_or_talks_nonsense_gives_no_proof`
//! [agent.2] A bad question ends its own connection and nothing else.
//!     test: the same

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use steadfast_device::Device;
use steadfast_pool::NoSum;
use steadfast_pool::agent::{CELLS_MAX, Question, encode_answer, read_answer};

/// Bytes of a sum.
type Sum = Box<[u8; 4096]>;

/// Limits of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until a connection is made, and each piece of a message has left.
    pub piece: Duration,
    /// Until a whole message is there.
    pub message: Duration,
}

/// An owner waits for 2,759 reads of 50 ms, one after the other, and some.
const OWNER: Limits = Limits { piece: Duration::from_secs(10), message: Duration::from_secs(180) };
/// An agent waits for a question that is under way.
pub const AGENT: Limits = Limits { piece: Duration::from_secs(10), message: Duration::from_secs(30) };

/// A stream of which all reads together have a limit.
struct Limited<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Read for Limited<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(out)
    }
}

fn limited(stream: &TcpStream, limits: Limits) -> BufReader<Limited<'_>> {
    BufReader::new(Limited { stream, until: Instant::now() + limits.message })
}

/// Asks the agent at an address, `HOST:PORT`.
///
/// # Errors
/// Why there is no sum, for the report of the audit.
pub fn ask(address: &str, question: &Question) -> Result<Sum, NoSum> {
    ask_within(address, question, OWNER)
}

/// The same with limits of the caller's choice.
///
/// # Errors
/// Those of [`ask`].
pub fn ask_within(address: &str, question: &Question, limits: Limits) -> Result<Sum, NoSum> {
    if question.cells.len() > CELLS_MAX as usize {
        return Err(NoSum::Refused(format!("an agent is asked for {CELLS_MAX} cells at most")));
    }
    let exchange = || -> io::Result<Result<Sum, String>> {
        let mut found = address.to_socket_addrs()?;
        let socket = found.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut stream = TcpStream::connect_timeout(&socket, limits.piece)?;
        stream.set_write_timeout(Some(limits.piece))?;
        stream.write_all(&question.encode())?;
        read_answer(&mut limited(&stream, limits))
    };
    match exchange() {
        Ok(Ok(sum)) => Ok(sum),
        Ok(Err(reason)) => Err(NoSum::Refused(format!("the agent has no sum: {reason}"))),
        Err(error) => Err(NoSum::Silent(format!("no answer of the agent at {address}: {error}"))),
    }
}

/// Answers one question after the other, until the listener fails. `told` hears of each.
///
/// # Errors
/// Of the listener.
pub fn serve(
    listener: &TcpListener,
    device: &dyn Device,
    limits: Limits,
    told: &mut dyn FnMut(SocketAddr, &str),
) -> io::Result<()> {
    loop {
        let (stream, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            // The other end has left already.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(error),
        };
        match answer(&stream, device, limits) {
            Ok(cells) => told(peer, &format!("{cells} cells")),
            Err(error) => told(peer, &error.to_string()),
        }
    }
}

/// Answers one question. The number of its cells.
fn answer(mut stream: &TcpStream, device: &dyn Device, limits: Limits) -> io::Result<usize> {
    stream.set_write_timeout(Some(limits.piece))?;
    let question = Question::read(&mut limited(stream, limits))?;
    let sum = question.sum(device);
    let sum =
        sum.map_err(|(cell, error)| format!("segment {:x}, cell {}: {error}", cell.segment.0, cell.index));
    stream.write_all(&encode_answer(&sum))?;
    Ok(question.cells.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_device::SegmentPlace;
    use steadfast_device::objects::ObjectDevice;
    use steadfast_format::SegmentId;
    use steadfast_pool::agent::AskedCell;

    const SOON: Limits = Limits { piece: Duration::from_millis(300), message: Duration::from_millis(300) };

    fn question(index: u16) -> Question {
        Question { seed: [1; 32], cells: vec![AskedCell { segment: SegmentId(7), index, bytes: 4096 }] }
    }

    /// An agent that lives as long as the test's process. Its address.
    fn start() -> String {
        let device = ObjectDevice::in_memory("memory", 64 << 20);
        let place = SegmentPlace { segment: SegmentId(7), slot: 0, slot_size: 1 << 20 };
        device.put_segment(place, &[3; 8192]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || serve(&listener, &device, SOON, &mut |_, _| ()));
        address
    }

    #[test]
    fn an_agent_sums_what_the_store_has() {
        let address = start();
        let sum = ask(&address, &question(1)).unwrap();
        assert!(sum.iter().any(|byte| *byte != 0), "a cell times its coefficient");
        assert_eq!(ask(&address, &question(0)).unwrap(), sum, "equal cells have equal sums");
        let NoSum::Refused(refused) = ask(&address, &question(2)).unwrap_err() else { panic!("it answered") };
        assert!(refused.contains("segment 7, cell 2"), "{refused}");
    }

    #[test]
    fn an_agent_that_is_slow_or_talks_nonsense_gives_no_proof() {
        // It accepts and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let began = Instant::now();
        assert!(ask_within(&address, &question(0), SOON).is_err());
        assert!(began.elapsed() < Duration::from_secs(5));
        drop(silent);
        let is_silent =
            |address: &str| matches!(ask_within(address, &question(0), SOON), Err(NoSum::Silent(_)));
        assert!(is_silent(&address), "nobody is there");
        assert!(is_silent("no address"));
        // It answers something else.
        let liar = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = liar.local_addr().unwrap().to_string();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = liar.accept().unwrap();
            let _ = stream.write_all(&[b'z'; 70_000]);
        });
        assert!(is_silent(&address));
        thread.join().unwrap();
        // An owner who is slow, or talks nonsense, keeps the agent from nobody else [agent.2].
        let address = start();
        let slow = TcpStream::connect(&address).unwrap();
        let mut bad = TcpStream::connect(&address).unwrap();
        bad.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(ask(&address, &question(1)).is_ok());
        drop(slow);
    }
}
