//! Master and agents on this machine.

use crate::link;
use crate::message::{Order, Word};
use crate::*;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use steadfast_lab_params::parse_text;
use steadfast_lab_workload::{Event, Options, Outcome, execute_by};

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

/// An agent of this process that ends with it, and what it says.
struct Running {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    said: Arc<Mutex<Vec<String>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn new(secret: &[u8]) -> Running {
        let agent = Agent::listen("127.0.0.1:0", Secret::new(secret).unwrap()).unwrap();
        let (address, stop, said) = (agent.address().unwrap(), Arc::<AtomicBool>::default(), Arc::default());
        let (own_stop, own_said): (_, Arc<Mutex<Vec<String>>>) = (stop.clone(), Arc::clone(&said));
        let thread = std::thread::spawn(move || {
            serve(&agent, &own_stop, &|line| own_said.lock().unwrap().push(line.to_string()));
        });
        Running { address, stop, said, thread: Some(thread) }
    }

    fn end(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Waits until it has said something.
    fn hears(&self, text: &str) {
        let begun = Instant::now();
        while !self.said.lock().unwrap().iter().any(|line| line.contains(text)) {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "'{text}' was not said: {:?}",
                self.said.lock().unwrap()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// Carries out a text; each line of notices and messages, each started run, and the outcome.
fn master(text: &str, secret: &[u8]) -> (Outcome, Vec<String>) {
    let plan = parse_text("test.parm", text).unwrap();
    let (options, stop) = (Options::default(), AtomicBool::new(false));
    let mut hosts = Hosts::connect(&plan, &options, &stop, || Secret::new(secret)).unwrap();
    let mut said = Vec::new();
    let outcome = execute_by(&plan, &options, &stop, &mut hosts, &mut |event| match event {
        Event::Started { run, .. } => said.push(format!("run {}", run.label)),
        Event::Notice(text) | Event::Message(text) => said.push(text.to_string()),
        Event::Error(error) => said.push(format!("{}: {error}", error.host.as_deref().unwrap_or("-"))),
        _ => {}
    });
    (outcome, said)
}

fn files_below(dir: &Path) -> Vec<(String, u64)> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            out.extend(files_below(&entry.path()));
        } else {
            out.push((entry.path().display().to_string(), meta.len()));
        }
    }
    out.sort();
    out
}

#[test]
fn two_agents_and_a_thread_of_the_master_share_a_tree_and_its_figures_add_up() {
    let (one, two) = (Running::new(SECRET), Running::new(SECRET));
    let dir = tempfile::tempdir().unwrap();
    let anchor = dir.path().join("tree");
    let text = |count: usize| {
        format!(
            "hd=one,system={}\nhd=two,system={}\nhd=here,system=localhost\n\
             fsd=f,anchor={},depth=2,width=3,files=7,size=8k,shared=yes\n\
             fwd=w,fsd=f,operation=read,xfersize=4k,fileselect=once,threads=6\n\
             rd=r,fwd=w,fwdrate=max,format=yes,elapsed=20,interval=1\n{}",
            one.address,
            two.address,
            anchor.display(),
            "rd=again,fwd=w,fwdrate=max,elapsed=20,interval=1,format=restart\n".repeat(count)
        )
    };
    fs::create_dir_all(anchor.join("vdb.1_1.dir")).unwrap();
    fs::write(anchor.join("vdb.1_1.dir/vdb_f9999.file"), "of an earlier format").unwrap();
    let (outcome, said) = master(&text(1), SECRET);
    assert_eq!(outcome.failure(), None, "{said:?}");
    let labels: Vec<&str> = outcome.runs.iter().map(|run| run.run.label.as_str()).collect();
    assert_eq!(labels, ["format_for_r", "r", "format_for_again", "again"]);
    // Every file is there once, whole; what was there before is gone.
    let files = files_below(&anchor);
    assert_eq!(files.len(), 9 * 7);
    assert!(files.iter().all(|(name, bytes)| *bytes == 8192 && !name.contains("9999")), "{files:?}");
    let written = outcome.runs[0].whole.operation(steadfast_lab_params::Operation::Write);
    assert_eq!(written.bytes, 9 * 7 * 8192, "each file is written by one host");
    let read = outcome.runs[1].whole.operation(steadfast_lab_params::Operation::Read);
    assert_eq!((read.count, read.bytes), (2 * 9 * 7, 9 * 7 * 8192), "and read by one");
    let filled: u64 = read.filled().iter().map(|(_, count)| count).sum();
    assert_eq!(filled, read.count, "histograms are laid together");
    let counter = |at: usize, name: &str| {
        outcome.runs[at].counters.iter().find(|c| c.name == name).map_or(0, |counter| counter.count)
    };
    assert_eq!(counter(0, "DIRECTORY_CREATES"), 3 + 9);
    assert_eq!(counter(0, "FILE_DELETES"), 1);
    assert_eq!(counter(2, "FILE_CREATES"), 0, "a restart finds all files");
    for name in ["one", "two", "here"] {
        assert!(said.iter().any(|line| line.starts_with(&format!("{name}-0: anchor="))), "{name}: {said:?}");
    }
    one.hears("A master at");
    two.hears("ended: ");
}

#[test]
fn storages_are_filled_where_they_are_missing_and_a_rate_is_divided() {
    let (one, two) = (Running::new(SECRET), Running::new(SECRET));
    let dir = tempfile::tempdir().unwrap();
    let lun = |name: &str| dir.path().join(name).display().to_string();
    fs::write(lun("b"), vec![7u8; 2 << 20]).unwrap();
    let (outcome, said) = master(
        &format!(
            "hd=one,system={}\nhd=two,system={}\n\
             sd=s,host=one,lun={},host=two,lun={},size=2m,threads=4\n\
             wd=w,sd=s,rdpct=50,xfersize=4k\nrd=r,wd=w,iorate=200,elapsed=600,interval=1,maxdata=1600k\n",
            one.address,
            two.address,
            lun("a"),
            lun("b")
        ),
        SECRET,
    );
    assert_eq!(outcome.failure(), None, "{said:?}");
    let filled: Vec<&String> =
        said.iter().filter(|line| line.contains("does not exist or is too small")).collect();
    assert_eq!(filled.len(), 1, "{said:?}");
    assert!(filled[0].ends_with("host=one"), "{filled:?}");
    assert_eq!(fs::metadata(lun("a")).unwrap().len(), 2 << 20);
    assert_eq!(fs::read(lun("b")).unwrap().len(), 2 << 20);
    let run = &outcome.runs[1];
    let bytes = run.whole.requested().bytes;
    assert!(bytes >= 1600 << 10, "the master ends the run when both together have moved so much: {bytes}");
    // Each host did its half: the notes have a line for each.
    assert_eq!(
        run.notes.iter().filter(|note| note.contains("operations a second")).count(),
        2,
        "{:?}",
        run.notes
    );
}

#[test]
fn validated_data_and_errors_come_with_the_name_of_their_host() {
    let one = Running::new(SECRET);
    let dir = tempfile::tempdir().unwrap();
    let lun = dir.path().join("file");
    let text = |rest: &str| {
        format!(
            "validate=read_after_write\ndata_errors=1\nhd=one,system={}\nsd=s,lun={},size=1m,threads=2\n\
             wd=w,sd=s,rdpct=0,xfersize=4k\nrd=r,wd=w,iorate=max,elapsed=600,interval=1,maxdata=1m{rest}\n",
            one.address,
            lun.display()
        )
    };
    let (outcome, said) = master(&text(""), SECRET);
    assert_eq!(outcome.failure(), None, "{said:?}");
    assert!(outcome.compared.unwrap() > 0);
    let (outcome, _) =
        master(&text("").replace("size=1m", "size=3m").replace("lun=", "lun=/no/such/place"), SECRET);
    let failure = outcome.failure().unwrap();
    assert!(failure.starts_with("host=one (") && failure.contains("ENOENT"), "{failure}");
    one.hears("ended: ");
}

#[test]
fn a_wrong_secret_is_refused_by_both_and_so_is_a_second_master() {
    let one = Running::new(b"another secret, long enough");
    let refused = |secret: &[u8]| {
        let text = format!("hd=one,system={}\nsd=s,lun=/tmp/x,size=1m\nrd=r,sd=s,iorate=max\n", one.address);
        let plan = parse_text("t", &text).unwrap();
        let (options, stop) = (Options::default(), AtomicBool::new(false));
        Hosts::connect(&plan, &options, &stop, || Secret::new(secret)).err().map(|error| error.to_string())
    };
    let why = refused(SECRET).unwrap();
    assert!(why.starts_with("host=one (127.0.0.1:") && why.contains("the secrets differ"), "{why}");
    assert!(!why.contains("0123456789"), "a secret is in no sentence");
    one.hears("was refused: the secrets differ");
    assert!(one.said.lock().unwrap().iter().all(|line| !line.contains("long enough")));
    // A master that knows the secret is served; the next one waits.
    let socket = TcpStream::connect(one.address).unwrap();
    let secret = Secret::new(b"another secret, long enough").unwrap();
    let first = link::connect(socket, link::client().unwrap(), &secret, &[7; 16]).unwrap();
    let why = refused(b"another secret, long enough").unwrap();
    assert!(why.contains("the agent works for another master"), "{why}");
    first.link.close();
    one.hears("ended: ");
    assert_eq!(refused(b"another secret, long enough"), None, "and then it is free again");
}

#[test]
fn clients_of_one_agent_and_of_the_master_are_hosts_of_their_own() {
    let one = Running::new(SECRET);
    let dir = tempfile::tempdir().unwrap();
    let anchor = dir.path().join("tree");
    let text = format!(
        "hd=default,clients=2\nhd=one,system={}\nhd=here,system=localhost\n\
         fsd=f,anchor={},width=2,files=6,size=8k,shared=yes\n\
         fwd=w,fsd=f,operation=read,xfersize=4k,fileselect=once,threads=4\n\
         rd=r,fwd=w,fwdrate=max,format=yes,elapsed=20,interval=1\n",
        one.address,
        anchor.display()
    );
    let (outcome, said) = master(&text, SECRET);
    assert_eq!(outcome.failure(), None, "{said:?}");
    assert_eq!(outcome.runs[1].whole.operation(steadfast_lab_params::Operation::Read).count, 2 * 12);
    for client in ["one_cl0", "one_cl1", "here_cl0", "here_cl1"] {
        let line = format!("{client}-0: anchor={} create complete.", anchor.display());
        assert!(said.contains(&line), "{client}: {said:?}");
    }
    let served = |line: &&String| line.starts_with("A master at");
    assert_eq!(one.said.lock().unwrap().iter().filter(served).count(), 2);
}

/// Takes what comes on one side and sends it on the other, as somebody in the middle with TLS of
/// his own would.
#[test]
fn a_proof_is_bound_to_its_connection() {
    let real = Running::new(SECRET);
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = middle.local_addr().unwrap();
    let target = real.address;
    let thread = std::thread::spawn(move || {
        let (victim, _) = middle.accept().unwrap();
        // It answers the victim's TLS itself, and opens TLS of its own to the agent.
        let mut victim = link::stranger_server(victim);
        let proof = victim.raw_frame();
        let mut agent = link::stranger_client(TcpStream::connect(target).unwrap());
        agent.send_raw(&proof);
        let answer = agent.raw_frame();
        victim.send_raw(&answer);
        answer
    });
    let secret = Secret::new(SECRET).unwrap();
    let refused =
        link::connect(TcpStream::connect(address).unwrap(), link::client().unwrap(), &secret, &[7; 16]);
    assert!(matches!(refused, Err(Error::Refused(_))));
    let answer = thread.join().unwrap();
    assert_eq!(answer[0], 1, "the agent does not take a proof from another connection");
    real.hears("the secrets differ");
}

#[test]
fn hostile_bytes_change_nothing() {
    let mut one = Running::new(SECRET);
    let mut random = steadfast_lab_workload::random::Random::new(&[7]);
    // Bytes that are no TLS at all.
    for round in 0..40 {
        let mut socket = TcpStream::connect(one.address).unwrap();
        let bytes: Vec<u8> = (0..random.below(4_000)).map(|_| random.below(256) as u8).collect();
        let head: &[u8] = if round % 2 == 0 { &[0x16, 3, 1, 0x0f, 0xff] } else { &[] };
        // It may have hung up on us already.
        let _ = socket.write_all(head).and_then(|()| socket.write_all(&bytes));
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = socket.take(1 << 20).read_to_end(&mut rest);
    }
    // TLS, and then frames that claim to be long, or are not what comes first.
    for frame in
        [vec![0xff, 0xff, 0xff, 0xff], vec![0, 0, 0, 53], [vec![0, 0, 0, 52], vec![b'x'; 52]].concat()]
    {
        let mut stranger = link::stranger_client(TcpStream::connect(one.address).unwrap());
        stranger.send_plain(&frame);
        assert!(stranger.ended(), "a stranger's frame of {} bytes is no reason to wait", frame.len());
    }
    // A peer that knows the secret and then says nonsense, or something too long.
    let secret = Secret::new(SECRET).unwrap();
    for frame in [b"\0\0\0\x05{\"x\":".to_vec(), vec![0x7f, 0xff, 0xff, 0xff], b"\0\0\0\x05\"Nix\"".to_vec()]
    {
        let begun = Instant::now();
        // The one before may be on its way out.
        let known = loop {
            let socket = TcpStream::connect(one.address).unwrap();
            match link::connect(socket, link::client().unwrap(), &secret, &[7; 16]) {
                Ok(known) => break known,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut known = link::Stranger(known);
        known.send_plain(&frame);
        assert!(known.ended());
    }
    // And an order that makes no sense is answered.
    let begun = Instant::now();
    let mut known = loop {
        let socket = TcpStream::connect(one.address).unwrap();
        match link::connect(socket, link::client().unwrap(), &secret, &[7; 16]) {
            Ok(known) => break known,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    known.link.send(&Order::Go(3)).unwrap();
    known.link.send(&Order::Short(Vec::new())).unwrap();
    let answer: Word = known.next(&Order::Alive).unwrap();
    assert!(matches!(answer, Word::Refused(_)), "{answer:?}");
    drop(known);
    one.end();
    assert!(one.said.lock().unwrap().iter().any(|line| line.contains("was refused")));
}

#[test]
fn an_agent_that_is_gone_ends_the_run_and_what_was_measured_is_kept() {
    let (one, mut two) = (Running::new(SECRET), Running::new(SECRET));
    let dir = tempfile::tempdir().unwrap();
    let lun = |name: &str| dir.path().join(name).display().to_string();
    ["a", "b"].iter().for_each(|name| fs::write(lun(name), vec![7u8; 1 << 20]).unwrap());
    let text = format!(
        "hd=one,system={}\nhd=two,system={}\nsd=a,lun={},host=one\nsd=b,lun={},host=two\n\
         wd=w,sd=(a,b),xfersize=4k\nrd=r,wd=w,iorate=100,elapsed=600,interval=1\nrd=next,wd=w,iorate=100\n",
        one.address,
        two.address,
        lun("a"),
        lun("b")
    );
    let plan = parse_text("t", &text).unwrap();
    let (options, stop) = (Options::default(), AtomicBool::new(false));
    let mut hosts = Hosts::connect(&plan, &options, &stop, || Secret::new(SECRET)).unwrap();
    let mut intervals = 0;
    let outcome = execute_by(&plan, &options, &stop, &mut hosts, &mut |event| {
        if let Event::Interval { .. } = event {
            intervals += 1;
            if intervals == 2 {
                two.end();
            }
        }
    });
    let failure = outcome.failure().unwrap();
    assert!(failure.starts_with("Slave two-0 prematurely terminated.\nhost=two (127.0.0.1:"), "{failure}");
    assert_eq!(outcome.runs.len(), 1, "no other run begins");
    let run = &outcome.runs[0];
    assert!(run.lines.len() >= 2 && run.lines.len() < 60, "{}", run.lines.len());
    let both = |name: &str| run.whole.merged(|group| group.storage == name).count;
    assert!(both("a") > 0 && both("b") > 0, "what both did until then is kept");
    drop(hosts);
    one.hears("ended: ");
}

#[test]
fn a_stopped_master_ends_all_hosts_and_nobody_there_is_said_with_the_command_to_type() {
    let one = Running::new(SECRET);
    let dir = tempfile::tempdir().unwrap();
    let lun = dir.path().join("a");
    fs::write(&lun, vec![7u8; 1 << 20]).unwrap();
    let text = format!(
        "hd=one,system={}\nhd=here,system=localhost\nsd=a,lun={}\nrd=r,sd=a,iorate=100,elapsed=600,interval=1\n",
        one.address,
        lun.display()
    );
    let plan = parse_text("t", &text).unwrap();
    let (options, stop) = (Options::default(), AtomicBool::new(false));
    let mut hosts = Hosts::connect(&plan, &options, &stop, || Secret::new(SECRET)).unwrap();
    let outcome = execute_by(&plan, &options, &stop, &mut hosts, &mut |event| {
        if let Event::Interval { .. } = event {
            stop.store(true, Relaxed);
        }
    });
    assert!(outcome.stopped && outcome.failure().is_none());
    assert!(outcome.runs[0].whole.requested().count > 0);
    drop(hosts);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let plan = parse_text("t", &text.replace(&one.address.to_string(), &free.to_string())).unwrap();
    let Err(error) = Hosts::connect(&plan, &options, &stop, || Secret::new(SECRET)) else {
        panic!("who answers?")
    };
    let text = error.to_string();
    assert!(text.starts_with("t:1: host=one: no agent answers at 127.0.0.1:"), "{text}");
    assert!(text.contains("steadfast bench agent --listen"), "{text}");
}
