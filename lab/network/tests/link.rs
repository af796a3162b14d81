//! Bytes and counts through a link.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use steadfast_lab_network::{Conditions, Counts, Kind, Link, Loss};

/// A server of one connection.
fn serve(work: impl FnOnce(TcpStream) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (address, std::thread::spawn(move || work(listener.accept().expect("a connection").0)))
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 7u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn bytes_arrive_unchanged() {
    let (upstream, server) = serve(|mut connection| {
        let mut bytes = Vec::new();
        connection.read_to_end(&mut bytes).expect("everything");
        connection.write_all(&bytes).expect("back");
    });
    let conditions = Conditions { round_trip: Duration::from_millis(4), rate: Some(200 << 20), loss: None };
    let link = Link::start(upstream, conditions).expect("a link");
    let mut client = TcpStream::connect(link.address()).expect("a connection");
    let sent = noise(1_000_003);
    client.write_all(&sent).expect("sent");
    client.shutdown(Shutdown::Write).expect("that is all");
    let mut got = Vec::new();
    client.read_to_end(&mut got).expect("an answer");
    assert!(got == sent, "{} bytes came back", got.len());
    server.join().expect("the server ends");
    let counts = link.counts();
    assert_eq!((counts.up, counts.down, counts.total()), (1_000_003, 1_000_003, 0), "noise is no HTTP");
}

#[test]
fn requests_are_counted_and_wait_for_their_way() {
    let (upstream, server) = serve(|mut connection| {
        let answers: [&[u8]; 3] = [
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            b"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\nabc",
        ];
        let mut byte = [0];
        for answer in answers {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && connection.read(&mut byte).expect("a request") == 1 {
                head.push(byte[0]);
            }
            if head.starts_with(b"PUT") {
                connection.read_exact(&mut [0; 4]).expect("its body");
            }
            connection.write_all(answer).expect("an answer");
        }
    });
    let round_trip = Duration::from_millis(20);
    let link = Link::start(upstream, Conditions { round_trip, rate: None, loss: None }).expect("a link");
    let mut client = TcpStream::connect(link.address()).expect("a connection");
    let began = Instant::now();
    let mut ask = |request: &[u8], answer_ends: &[u8]| {
        client.write_all(request).expect("asked");
        let (mut got, mut byte) = (Vec::new(), [0]);
        while !got.ends_with(answer_ends) && client.read(&mut byte).expect("an answer") == 1 {
            got.push(byte[0]);
        }
    };
    ask(
        b"PUT /bucket/a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody",
        b"Length: 0\r\n\r\n",
    );
    ask(b"HEAD /bucket/a HTTP/1.1\r\n\r\n", b"Length: 5\r\n\r\n");
    ask(b"GET /bucket/a HTTP/1.1\r\nRange: bytes=0-2\r\n\r\n", b"abc");
    // One for the handshake, one for each request: no way is shorter, however idle the machine.
    assert!(began.elapsed() >= 4 * round_trip, "{:?}", began.elapsed());
    server.join().expect("the server ends");
    let counts = link.counts();
    for (kind, wanted) in [(Kind::Put, 1), (Kind::Head, 1), (Kind::Get, 1), (Kind::List, 0)] {
        assert_eq!(counts.of(kind), wanted, "{}", kind.name());
    }
    let slices = link.slices();
    assert_eq!(slices.iter().map(|slice| slice.counts.total()).sum::<u64>(), 3);
    assert_eq!(slices.iter().map(|slice| slice.in_flight).max(), Some(1), "one after the other");
}

/// Counts of a link on which some packets are lost, after one connection brought some bytes there
/// and back.
fn counts_with(loss: Option<Loss>, sent: &[u8]) -> Counts {
    let (upstream, server) = serve(|mut connection| {
        let mut bytes = Vec::new();
        connection.read_to_end(&mut bytes).expect("everything");
        connection.write_all(&bytes).expect("back");
    });
    let conditions = Conditions { round_trip: Duration::from_millis(2), rate: None, loss };
    let link = Link::start(upstream, conditions).expect("a link");
    let mut client = TcpStream::connect(link.address()).expect("a connection");
    client.write_all(sent).expect("sent");
    client.shutdown(Shutdown::Write).expect("that is all");
    let mut got = Vec::new();
    client.read_to_end(&mut got).expect("an answer");
    assert!(got == sent, "{} bytes came back", got.len());
    server.join().expect("the server ends");
    link.counts()
}

#[test]
fn the_same_seed_loses_the_same_packets_and_nothing_is_changed() {
    let sent = noise(1_000_003);
    let with = |seed| counts_with(Some(Loss { per_million: 20_000, seed }), &sent);
    let (once, again, other) = (with(1), with(1), with(2));
    // Of 691 packets in each direction.
    assert!((1..60).contains(&once.lost_up) && (1..60).contains(&once.lost_down), "{once:?}");
    assert_eq!((once.lost_up, once.lost_down), (again.lost_up, again.lost_down));
    assert_ne!((once.lost_up, once.lost_down), (other.lost_up, other.lost_down));
    let none = counts_with(None, &sent);
    assert_eq!((none.lost_up, none.lost_down), (0, 0));
}

#[test]
fn a_lost_packet_comes_a_round_trip_later() {
    let (upstream, server) = serve(|mut connection| {
        connection.read_exact(&mut [0; 1]).expect("a byte");
        connection.write_all(b"b").expect("back");
    });
    let round_trip = Duration::from_millis(20);
    // Each packet is lost as often as can be.
    let loss = Some(Loss { per_million: 1_000_000, seed: 3 });
    let link = Link::start(upstream, Conditions { round_trip, rate: None, loss }).expect("a link");
    let mut client = TcpStream::connect(link.address()).expect("a connection");
    let began = Instant::now();
    client.write_all(b"a").expect("sent");
    client.read_exact(&mut [0; 1]).expect("an answer");
    // Eight times there and eight times back, one for the bytes and one for the handshake.
    assert!(began.elapsed() >= 18 * round_trip, "{:?}", began.elapsed());
    server.join().expect("the server ends");
    assert_eq!((link.counts().lost_up, link.counts().lost_down), (8, 8));
}
