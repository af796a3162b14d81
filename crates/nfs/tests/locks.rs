//! Locks of clients, over the wire.

use crate::support::{Calls, Portal};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use steadfast_nfs::client::Client;
use steadfast_nfs::rpc::{self, Assembler};
use steadfast_nfs::xdr::{Reader, Writer};
use steadfast_nfs::{Door, LockSettings, finder, nlm4, nsm};

const OPTIONS: &str = "async,insecure,no_root_squash";
const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const BLOCKED: u32 = 3;
const GRACE: u32 = 4;
const STALE: u32 = 7;
const FAILED: u32 = 9;
const HOUR: Duration = Duration::from_secs(3_600);

/// An owner's wish.
#[derive(Clone, Copy)]
struct Wish<'a> {
    file: &'a [u8],
    svid: u32,
    offset: u64,
    length: u64,
}

/// Puts it as a process of the machine `desk`, or of the machine that is asked for.
fn put(out: &mut Writer, machine: &str, wish: Wish<'_>) {
    out.opaque(machine.as_bytes()).opaque(wish.file).opaque(b"own").u32(wish.svid);
    out.u64(wish.offset).u64(wish.length);
}

fn nlm(client: &mut Client, procedure: u32, write: impl FnOnce(&mut Writer)) -> (u32, Vec<u8>) {
    let mut out = Writer::default();
    out.opaque(b"cookie");
    write(&mut out);
    let results = client.call_version(nlm4::PROGRAM, nlm4::VERSION, procedure, &out.out).expect("answered");
    let mut reader = Reader::new(&results);
    assert_eq!(reader.opaque(100), Ok(&b"cookie"[..]));
    (reader.u32().expect("a status"), reader.rest().to_vec())
}

fn ask(client: &mut Client, machine: &str, wish: Wish<'_>, block: bool, reclaim: bool) -> u32 {
    nlm(client, 2, |out| {
        out.bool(block).bool(true);
        put(out, machine, wish);
        out.bool(reclaim).u32(1);
    })
    .0
}

fn lock(client: &mut Client, wish: Wish<'_>) -> u32 {
    ask(client, "desk", wish, false, false)
}

fn unlock(client: &mut Client, wish: Wish<'_>) -> u32 {
    nlm(client, 4, |out| put(out, "desk", wish)).0
}

/// A portal with a file that all may read and write.
fn portal(settings: LockSettings, doors: Vec<Door>) -> (Portal, Client, Vec<u8>) {
    let portal = Portal::with(OPTIONS, settings, doors);
    let (mut client, top) = portal.root();
    let file = client.create(&top, "file", 0o666).expect("new").handle;
    (portal, client, file)
}

#[test]
fn a_range_is_one_owners_until_he_gives_it_back() {
    let (portal, mut client, file) = portal(LockSettings::default(), Vec::new());
    let one = Wish { file: &file, svid: 1, offset: 10, length: 10 };
    let two = Wish { svid: 2, offset: 15, length: 0, ..one };
    assert_eq!((lock(&mut client, one), lock(&mut client, one)), (GRANTED, GRANTED));
    assert_eq!(lock(&mut client, two), DENIED);
    let (status, holder) = nlm(&mut client, 1, |out| put(out.bool(false), "desk", two));
    let mut expected = Writer::default();
    expected.bool(true).u32(1).opaque(b"own").u64(10).u64(10);
    assert_eq!((status, holder), (DENIED, expected.out));
    assert_eq!(ask(&mut client, "laptop", one, false, false), DENIED, "the same process of another machine");
    assert_eq!(unlock(&mut client, Wish { offset: 15, ..one }), GRANTED);
    assert_eq!((lock(&mut client, two), portal.service.locks()), (GRANTED, 2));
    assert_eq!(nlm(&mut client, 1, |out| put(out.bool(true), "desk", two)).0, GRANTED, "its own");
    // A file that is gone, and one whose share ended, leave no locks behind.
    let (_, top) = portal.root();
    assert_eq!(client.remove(&top, "file"), 0);
    assert_eq!((lock(&mut client, one), unlock(&mut client, one)), (STALE, GRANTED));
    portal.exports.unshare(crate::support::ID);
    assert_eq!((unlock(&mut client, two), portal.service.locks()), (GRANTED, 0));
    // Procedures whose results are calls of their own are not served.
    assert!(client.call_version(nlm4::PROGRAM, nlm4::VERSION, 7, b"").is_err());
    assert!(client.call_version(nlm4::PROGRAM, 1, 0, b"").is_err(), "version 1");
}

#[test]
fn a_lock_takes_the_right_to_the_file() {
    let (portal, mut root, file) = portal(LockSettings::default(), Vec::new());
    let (_, top) = portal.root();
    let secret = root.create(&top, "secret", 0o600).expect("new").handle;
    let mut guest = portal.client(1_000, 1_000, &[]);
    let wish = |file| Wish { file, svid: 1, offset: 0, length: 0 };
    assert_eq!(lock(&mut guest, wish(&secret)), FAILED);
    assert_eq!(lock(&mut guest, wish(&top)), FAILED, "a directory");
    assert_eq!(lock(&mut guest, wish(&file)), GRANTED);
    let mut made_up = secret.clone();
    made_up[51] ^= 1;
    assert_eq!((lock(&mut root, wish(&made_up)), lock(&mut root, wish(b"abc"))), (STALE, STALE));
    portal.share("insecure,rw=192.0.2.1");
    assert_eq!(lock(&mut root, wish(&secret)), FAILED, "its address is in no list");
    portal.share("insecure,ro");
    assert_eq!(lock(&mut root, wish(&secret)), FAILED, "nobody now");
    assert_eq!(portal.service.locks(), 1);
}

#[test]
fn a_file_opened_as_dos_does_keeps_others_out() {
    let (portal, mut client, file) = portal(LockSettings::default(), Vec::new());
    let mut open = |procedure, machine: &str, denied, access| {
        let (status, rest) = nlm(&mut client, procedure, |out| {
            out.opaque(machine.as_bytes()).opaque(&file).opaque(b"own").u32(denied).u32(access).bool(false);
        });
        assert_eq!(rest, [0; 4]);
        status
    };
    assert_eq!(open(20, "desk", 2, 1), GRANTED);
    assert_eq!((open(20, "laptop", 0, 2), open(20, "laptop", 1, 0)), (DENIED, DENIED));
    assert_eq!((open(20, "laptop", 0, 1), open(21, "desk", 2, 1)), (GRANTED, GRANTED));
    assert_eq!((open(20, "laptop", 0, 2), open(21, "laptop", 0, 2)), (GRANTED, GRANTED));
    assert_eq!(portal.service.locks(), 0);
}

/// A client's machine: it answers the port mapper's question with its own port, hands on other
/// calls, and answers them with what it is given.
fn machine(answer: &'static [u8]) -> (u16, Receiver<(u32, Vec<u8>, SocketAddr)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut assembler, mut piece) =
                (stream.expect("accepted"), Assembler::default(), [0; 4_096]);
            let record = loop {
                let count = std::io::Read::read(&mut stream, &mut piece).expect("read");
                if let Some(record) = assembler.feed(&mut &piece[..count]).expect("short") {
                    break record;
                }
                assert!(count > 0, "a whole record");
            };
            let mut reader = Reader::new(&record);
            let call = rpc::Call::decode(&mut reader).expect("a call");
            let mut out = rpc::reply(call.xid);
            if call.program == finder::PROGRAM {
                out.u32(u32::from(port));
            } else {
                out.out.extend_from_slice(answer);
                let from = stream.peer_addr().expect("connected");
                if send.send((call.program, reader.rest().to_vec(), from)).is_err() {
                    return;
                }
            }
            std::io::Write::write_all(&mut stream, &rpc::record(out)).expect("answered");
        }
    });
    (port, receive)
}

#[test]
fn who_waits_is_told_when_the_range_is_free() {
    let (port, calls) = machine(b"\0\0\0\x06cookie\0\0\0\0\0\0");
    let settings = LockSettings { finder_port: port, ..LockSettings::default() };
    let (portal, mut client, file) = portal(settings, Vec::new());
    let one = Wish { file: &file, svid: 1, offset: 10, length: 10 };
    let two = Wish { svid: 2, ..one };
    assert_eq!((lock(&mut client, one), ask(&mut client, "laptop", two, true, false)), (GRANTED, BLOCKED));
    // Waiting can be given up.
    let cancel = |client: &mut Client| nlm(client, 3, |out| put(out.bool(true).bool(true), "laptop", two)).0;
    assert_eq!((cancel(&mut client), cancel(&mut client)), (GRANTED, DENIED));
    assert_eq!(ask(&mut client, "laptop", two, true, false), BLOCKED);
    assert_eq!(unlock(&mut client, one), GRANTED);
    let (program, arguments, from) = calls.recv().expect("it is told");
    let mut expected = Writer::default();
    expected.opaque(b"cookie").bool(true);
    put(&mut expected, "laptop", two);
    assert_eq!((program, arguments), (nlm4::PROGRAM, expected.out));
    assert_eq!(from.ip(), portal.address().ip(), "clients take such calls from their server alone");
    assert_eq!(lock(&mut client, one), DENIED);
    assert_eq!(ask(&mut client, "laptop", two, true, false), GRANTED, "it asks again all the same");
}

/// Nobody listens at the client: it asks again, as Linux does every 30 seconds, and has the range.
#[test]
fn who_cannot_be_told_has_the_range_when_he_asks_again() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    let settings = LockSettings { finder_port: closed, ..LockSettings::default() };
    let (_portal, mut client, file) = portal(settings, Vec::new());
    let one = Wish { file: &file, svid: 1, offset: 0, length: 0 };
    let two = Wish { svid: 2, ..one };
    assert_eq!((lock(&mut client, one), ask(&mut client, "laptop", two, true, false)), (GRANTED, BLOCKED));
    assert_eq!((unlock(&mut client, one), lock(&mut client, one)), (GRANTED, DENIED));
    assert_eq!(ask(&mut client, "laptop", two, true, false), GRANTED);
}

#[test]
fn a_restart_is_told_and_nobody_else_gets_a_lock_before_the_old_ones_are_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let clients = Some(folder.path().join("clients"));
    let settings = LockSettings { clients, grace: HOUR, ..LockSettings::default() };
    let first = Wish { file: b"", svid: 1, offset: 10, length: 10 };
    {
        let (_portal, mut client, file) = portal(settings.clone(), Vec::new());
        assert_eq!(ask(&mut client, "desk", Wish { file: &file, ..first }, false, true), GRACE, "too late");
        assert_eq!(lock(&mut client, Wish { file: &file, ..first }), GRANTED, "no grace without need");
    }
    let (port, calls) = machine(b"");
    let settings = LockSettings { finder_port: port, name: "server".into(), ..settings };
    let (_portal, mut client, file) = portal(settings.clone(), Vec::new());
    let (program, arguments, _) = calls.recv().expect("it is told");
    let mut reader = Reader::new(&arguments);
    assert_eq!((program, reader.opaque(100)), (nsm::PROGRAM, Ok(&b"server"[..])));
    assert_eq!(reader.u32().expect("a number") % 2, 1);
    let mine = Wish { file: &file, ..first };
    let other = Wish { svid: 2, offset: 50, ..mine };
    assert_eq!(lock(&mut client, other), GRACE);
    assert_eq!(nlm(&mut client, 1, |out| put(out.bool(true), "desk", other)).0, GRACE);
    assert_eq!(ask(&mut client, "desk", mine, false, true), GRANTED);
    assert_eq!(unlock(&mut client, mine), GRANTED);
    // Without one that had locks there is nothing to wait for.
    std::fs::remove_file(settings.clients.as_ref().expect("set")).expect("there");
    let (_portal, mut client, file) = portal(settings, Vec::new());
    assert_eq!(lock(&mut client, Wish { file: &file, ..mine }), GRANTED);
}

#[test]
fn a_client_that_restarts_loses_its_locks_and_no_other_does() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let statd = udp.local_addr().expect("bound");
    let (portal, mut client, file) = portal(LockSettings::default(), vec![Door::Datagrams(udp)]);
    let wish = |svid, offset| Wish { file: &file, svid, offset, length: 1 };
    let all = |client: &mut Client| {
        let desk = ask(client, "desk", wish(1, 0), false, false);
        (desk, ask(client, "laptop", wish(2, 1), false, false), portal.service.locks())
    };
    assert_eq!(all(&mut client), (GRANTED, GRANTED, 2));
    let mut notice = Writer::default();
    notice.opaque(b"desk.example.com").u32(3).fixed(&[0; 16]);
    // As `sm-notify` of a client sends it: a datagram, behind a question for the port.
    let record = rpc::call(9, nsm::PROGRAM, nsm::VERSION, nsm::NOTIFY, &notice.out);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.send_to(&record[4..], statd).expect("sent");
    let mut reply = [0; 100];
    let count = socket.recv(&mut reply).expect("answered");
    assert_eq!((rpc::results(&reply[..count]), portal.service.locks()), (Some(&b""[..]), 1));
    assert_eq!(all(&mut client), (GRANTED, GRANTED, 2));
    client.call_version(nsm::PROGRAM, nsm::VERSION, nsm::NOTIFY, &notice.out).expect("answered");
    assert_eq!(portal.service.locks(), 1);
    let mut other = Writer::default();
    other.opaque(b"somebody").u32(3).fixed(&[0; 16]);
    client.call_version(nsm::PROGRAM, nsm::VERSION, nsm::NOTIFY, &other.out).expect("answered");
    assert_eq!(portal.service.locks(), 1, "two machines are behind this address");
    let mut caller = Writer::default();
    caller.opaque(b"laptop").u32(0);
    client.call_version(nlm4::PROGRAM, nlm4::VERSION, 23, &caller.out).expect("answered");
    assert_eq!(portal.service.locks(), 0);
    // Calls that no client sends as a datagram have no answer there; the next one has.
    for record in [rpc::call(9, 100_003, 3, 0, b""), vec![0; 3], rpc::call(8, nsm::PROGRAM, 1, 0, b"")] {
        socket.send_to(record.get(4..).unwrap_or_default(), statd).expect("sent");
    }
    let failed = socket.recv(&mut reply).expect("answered");
    assert_eq!((&reply[..4], rpc::results(&reply[..failed])), (&b"\0\0\0\x09"[..], None));
    let count = socket.recv(&mut reply).expect("answered");
    assert_eq!((&reply[..4], rpc::results(&reply[..count])), (&b"\0\0\0\x08"[..], Some(&b""[..])));
}

#[test]
fn programs_are_found_at_a_second_port_which_serves_no_files() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let (second, statd) = (listener.local_addr().expect("bound"), udp.local_addr().expect("bound"));
    let doors = vec![Door::Stream(listener), Door::Datagrams(udp)];
    let (portal, mut client, _) = portal(LockSettings::default(), doors);
    let mut finding = Client::connect(second, client.claim.clone()).expect("connects");
    let mut question = Writer::default();
    question.u32(nlm4::PROGRAM).u32(nlm4::VERSION).u32(finder::TCP).u32(0);
    for client in [&mut client, &mut finding] {
        let port = client.call_version(finder::PROGRAM, 2, finder::GET, &question.out).expect("answered");
        assert_eq!(port, u32::from(portal.address().port()).to_be_bytes());
    }
    let mut question = Writer::default();
    question.u32(nsm::PROGRAM).u32(nsm::VERSION).u32(17).u32(0);
    let port = finding.call_version(finder::PROGRAM, 2, finder::GET, &question.out).expect("answered");
    assert_eq!(port, u32::from(statd.port()).to_be_bytes());
    let list = finding.call_version(finder::PROGRAM, 4, 4, b"").expect("answered");
    assert!(String::from_utf8_lossy(&list).contains("127.0.0.1."), "{list:?}");
    assert!(finding.call(100_003, 0, b"").is_err(), "NFS");
    assert!(finding.call_version(nlm4::PROGRAM, nlm4::VERSION, 0, b"").is_err());
    assert!(client.call(100_003, 0, b"").is_ok());
}
