//! # Connections and threads
//!
//! ## The problem
//! A portal has many clients of which few do something. A thread for each costs memory and
//! switches; an async runtime brings another scheduler, and the calls below block anyway.
//!
//! ## The rule
//! Worker threads wait for one epoll set together. A socket is armed for one event at a time
//! (`EPOLLONESHOT`), so one thread reads it. That thread puts records together and carries the
//! first out itself; others it hands over. A request that waits for durability holds no thread.
//!
//! A connection that waits is some hundred bytes here: buffers exist while a record comes or a
//! reply goes.
//!
//! ## Bounds
//! | what | bound |
//! |---|---|
//! | connections | [`crate::CONNECTIONS_MAX`], and less of one address; one more is closed at once |
//! | no descriptors | nothing is accepted until the next sweep; a line in the log, once a minute |
//! | requests of one connection that run | [`RUNNING_MAX`]; further ones are not read |
//! | replies that one connection does not take | [`REPLIES_MAX`] bytes; then no more of it runs |
//! | incomplete records of all connections | [`KEPT_MAX`] bytes; then a connection with a long one is closed |
//! | a record that does not come, a reply that is not taken | [`STALL`]; then the connection is closed |
//! | threads | [`THREADS_MAX`]; one is added when none is idle and none finished anything for a [`TICK`] |
//!
//! Clients take turns, one request each; a client is an address, however many connections it has
//! (`turns`). Between requests a thread looks at the sockets, lest a queue that is never empty
//! hides the others.
//!
//! ## Invariants
//! [nfs.1] A connection's requests that run are `running`; each ends in [`Connection::send`] or
//!      [`Connection::close`] exactly once. guard: `Running`
//! [nfs.2] Under a connection's lock nothing blocks: its socket does not.
//! [nfs.3] One thread at a time writes to a connection's socket: under the lock, or while
//!      `is_sending`. The thread that ends that sends what waits, and arms the socket again.

use crate::crowd::Crowd;
use crate::finder::Ports;
use crate::reply::Reply;
use crate::rpc::{Assembler, Record};
use crate::service::{Peer, Service};
use crate::spare;
use crate::tags;
use crate::turns::Turns;
use parking_lot::{Condvar, Mutex};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Most requests of one connection that run at once.
const RUNNING_MAX: usize = 16;
/// Bytes of replies that wait for one connection, beyond which nothing more of it runs.
const REPLIES_MAX: usize = 2 << 20;
/// Bytes of incomplete records.
const KEPT_MAX: usize = 128 << 20;
/// Bytes that each connection may keep of an incomplete record even then.
const KEPT_ALWAYS: usize = 16 << 10;
/// How long a connection may make no progress in the middle of something.
const STALL: Duration = Duration::from_secs(60);
/// How often stalled connections are looked for.
const SWEEP: Duration = Duration::from_secs(5);
/// Most threads.
const THREADS_MAX: usize = 64;
/// How long nothing must have ended, with no thread idle, before one is added.
const TICK: Duration = Duration::from_millis(10);
/// How often the supervisor looks after it saw all threads busy, before it waits to be woken: a
/// crowd keeps them busy for a moment many times a second, and each wake-up is a switch.
const TICKS: u32 = 16;
/// How long a thread more than needed stays.
const LINGER: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// Bytes of its stack that a thread has from the start: a create was seen to use 24 KiB.
const STACK: usize = 32 << 10;
/// Requests between two looks at the sockets.
const LOOK_AFTER: usize = 4;
/// Sockets that are served in one look.
const LOOKS: usize = 64;
/// Bytes read at once: a write of 64 KiB, and its head.
const PIECE: usize = 68 << 10;
/// Pieces read at once: the longest record, and a bit.
const PIECES_MAX: usize = 20;
/// Connections accepted at once.
const ACCEPT_MAX: usize = 64;
/// Connections that the system keeps until they are accepted: after a restart all clients come at
/// once, and one that finds no place tries again a second later.
const BACKLOG: i32 = 4_096;
/// Seconds between two lines about connections that the system does not give.
const TELL_AFTER: u64 = 60;

/// Datagrams read at once from one socket.
const DATAGRAMS_MAX: usize = 64;
/// Longest datagram that is read; calls of the programs that take some are shorter.
const DATAGRAM_MAX: usize = 2_048;

const BELL: u64 = 0;
/// The first door's; connections have those behind [`DOORS_MAX`].
const DOORS: u64 = 1;
/// Most doors.
const DOORS_MAX: u64 = 16;

/// Takes a line about a client that misbehaves.
pub type Log = Arc<dyn Fn(String) + Send + Sync>;

/// Is told of each request that was carried out. It must not wait.
pub type Served = Arc<dyn Fn() + Send + Sync>;

/// A socket at which calls come in.
#[derive(Debug)]
pub enum Door {
    /// Connections.
    Stream(TcpListener),
    /// Datagrams, for the programs that stock clients call without a connection.
    Datagrams(UdpSocket),
}

impl Door {
    fn arm(&self, epoll: &OwnedFd, number: usize, is_new: bool) -> rustix::io::Result<()> {
        let (flags, data) = (EventFlags::IN | EventFlags::ONESHOT, EventData::new_u64(DOORS + number as u64));
        match (self, is_new) {
            (Door::Stream(listener), true) => epoll::add(epoll, listener, data, flags),
            (Door::Stream(listener), false) => epoll::modify(epoll, listener, data, flags),
            (Door::Datagrams(socket), true) => epoll::add(epoll, socket, data, flags),
            (Door::Datagrams(socket), false) => epoll::modify(epoll, socket, data, flags),
        }
    }
}

/// Figures of a server.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Connections.
    pub connections: usize,
    /// Threads.
    pub threads: usize,
    /// Requests that were answered.
    pub answered: u64,
    /// Bytes of incomplete records.
    pub kept: usize,
}

/// A server of a [`Service`]. Dropping it ends all connections.
pub struct Server(Arc<Shared>);

struct Shared {
    service: Arc<Service>,
    /// The first one is for all programs, and the others for the small ones.
    doors: Vec<Door>,
    address: SocketAddr,
    epoll: OwnedFd,
    bell: OwnedFd,
    log: Log,
    served: Served,
    since: Instant,
    connections: Mutex<Crowd<Arc<Connection>>>,
    next: AtomicU64,
    jobs: Mutex<Turns<Job>>,
    live: AtomicUsize,
    idle: AtomicUsize,
    answered: AtomicU64,
    kept: AtomicUsize,
    /// Second at which it was last told that the system gives no connection; 0 for never.
    refused: AtomicU64,
    stopping: AtomicBool,
    supervisor: OnceLock<Thread>,
    /// The supervisor looks each [`TICK`], so nobody need wake it.
    is_watched: AtomicBool,
    left: Mutex<()>,
    gone: Condvar,
}

/// A request that is to run.
struct Job {
    running: Running,
    record: Record,
    /// When it could have run.
    came: Instant,
}

struct Connection {
    token: u64,
    peer: Peer,
    stream: TcpStream,
    shared: Weak<Shared>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    assembler: Assembler,
    /// Complete records that do not run yet.
    pending: VecDeque<Record>,
    running: usize,
    /// Replies that were not taken yet, and how much of the first one was.
    replies: VecDeque<Reply>,
    sent: usize,
    /// A thread sends a reply without the lock; those that wait are behind it. [nfs.3]
    is_sending: bool,
    /// The socket was armed meanwhile for less than it might have been.
    arms_again: bool,
    reply_bytes: usize,
    is_closed: bool,
    /// Bytes counted in `Shared::kept`.
    kept: usize,
    /// Seconds, at the last byte that came or went.
    progress: u64,
}

/// One running request of a connection [nfs.1]. If it is dropped without an answer, the request
/// met a bug: the connection ends, and the client asks again on another one.
struct Running(Option<Arc<Connection>>);

impl Running {
    fn answer(mut self, reply: Reply) {
        if let Some(connection) = self.0.take() {
            connection.send(reply);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            connection.close();
        }
    }
}

impl Server {
    /// Serves all programs on a listening socket, and at `others` those that help clients to find
    /// them. `served` is told of each request that came over a connection.
    ///
    /// # Errors
    /// The system gives no epoll set or no thread.
    pub fn start(
        service: Arc<Service>,
        listener: TcpListener,
        others: Vec<Door>,
        log: Log,
        served: Served,
    ) -> io::Result<Server> {
        let address = listener.local_addr()?;
        let mut doors = vec![Door::Stream(listener)];
        doors.extend(others);
        doors.truncate(DOORS_MAX as usize);
        let mut udp = 0;
        for door in &doors {
            match door {
                Door::Stream(listener) => {
                    listener.set_nonblocking(true)?;
                    rustix::net::listen(listener, BACKLOG)?;
                }
                Door::Datagrams(socket) => {
                    socket.set_nonblocking(true)?;
                    // Notices of restarts go to the first one.
                    udp = if udp == 0 { socket.local_addr()?.port() } else { udp };
                }
            }
        }
        service.listens_at(Ports { tcp: address.port(), udp });
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        for (number, door) in doors.iter().enumerate() {
            door.arm(&epoll, number, true)?;
        }
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
        let shared = Arc::new(Shared {
            service,
            doors,
            address,
            epoll,
            bell,
            log,
            served,
            since: Instant::now(),
            connections: Mutex::default(),
            next: AtomicU64::new(DOORS + DOORS_MAX),
            jobs: Mutex::default(),
            live: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            kept: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            supervisor: OnceLock::new(),
            is_watched: AtomicBool::new(false),
            left: Mutex::new(()),
            gone: Condvar::new(),
        });
        tags::prepare();
        let server = Server(Arc::clone(&shared));
        for _ in 0..shared.base() {
            shared.add_thread()?;
        }
        let supervise = move || shared.supervise();
        std::thread::Builder::new().name("nfs supervisor".into()).spawn(supervise)?;
        Ok(server)
    }

    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Its figures.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            connections: self.0.connections.lock().len(),
            threads: self.0.live.load(SeqCst),
            answered: self.0.answered.load(SeqCst),
            kept: self.0.kept.load(SeqCst),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.stopping.store(true, SeqCst);
        let connections = self.0.connections.lock().all();
        connections.iter().for_each(|connection| connection.close());
        self.0.ring();
        if let Some(supervisor) = self.0.supervisor.get() {
            supervisor.unpark();
        }
        let mut left = self.0.left.lock();
        while self.0.live.load(SeqCst) > 0 {
            // A thread in a request that waits for a device ends when that does.
            if self.0.gone.wait_for(&mut left, Duration::from_secs(10)).timed_out() {
                break;
            }
        }
    }
}

impl Shared {
    /// Threads that stay.
    fn base(&self) -> usize {
        std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 16)
    }

    fn now(&self) -> u64 {
        self.since.elapsed().as_secs()
    }

    /// Wakes a thread that waits.
    fn ring(&self) {
        // Full after 2^64 rings: the event is pending then.
        _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        self.live.fetch_add(1, SeqCst);
        let shared = Arc::clone(self);
        let work = move || {
            shared.work();
            shared.live.fetch_sub(1, SeqCst);
            let _left = shared.left.lock();
            shared.gone.notify_all();
        };
        let spawned = std::thread::Builder::new().name("nfs worker".into()).spawn(work);
        if spawned.is_err() {
            self.live.fetch_sub(1, SeqCst);
        }
        spawned.map(drop)
    }

    /// Adds threads while all are blocked, and ends connections that are stuck.
    fn supervise(self: Arc<Self>) {
        _ = self.supervisor.set(std::thread::current());
        let (mut swept, mut before) = (Instant::now(), u64::MAX);
        let mut ticks = 0_u32;
        while !self.stopping.load(SeqCst) {
            ticks = ticks.saturating_sub(1);
            self.is_watched.store(ticks > 0, SeqCst);
            // Behind that: the last idle thread that finds work wakes this one, or is seen here.
            let is_busy = self.idle.load(SeqCst) == 0;
            if is_busy {
                ticks = TICKS;
                self.is_watched.store(true, SeqCst);
            }
            std::thread::park_timeout(if ticks > 0 { TICK } else { SWEEP });
            // Connections that come are work, too.
            let done = self.answered.load(SeqCst) + self.next.load(SeqCst);
            let is_stuck = is_busy && self.idle.load(SeqCst) == 0 && done == before;
            before = done;
            if is_stuck && self.live.load(SeqCst) < THREADS_MAX {
                // Where the system gives no thread, those that there are go on.
                _ = self.add_thread();
            }
            if swept.elapsed() >= SWEEP {
                swept = Instant::now();
                self.sweep();
            }
        }
    }

    fn sweep(&self) {
        spare::trim();
        let now = self.now();
        let connections = self.connections.lock().all();
        for connection in connections {
            if connection.is_stalled(now) {
                connection.close();
            }
        }
        // One is not armed after an error of accept.
        for (number, door) in self.doors.iter().enumerate() {
            _ = door.arm(&self.epoll, number, false);
        }
    }

    fn work(self: &Arc<Self>) {
        prepare_stack();
        let (mut events, mut piece) = (Vec::with_capacity(1), Vec::with_capacity(PIECE));
        let mut ran = 0;
        loop {
            if self.stopping.load(SeqCst) {
                // The next one wakes.
                return self.ring();
            }
            if let Some(job) = self.next_job() {
                self.run(job);
                ran += 1;
                if ran == LOOK_AFTER {
                    ran = 0;
                    self.look(&mut events, &mut piece);
                }
                continue;
            }
            events.clear();
            self.idle.fetch_add(1, SeqCst);
            let waited = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&LINGER));
            if self.idle.fetch_sub(1, SeqCst) == 1
                && !self.is_watched.load(SeqCst)
                && let Some(supervisor) = self.supervisor.get()
            {
                supervisor.unpark();
            }
            match (waited, events.first().map(|event| event.data.u64())) {
                (Err(Errno::INTR), _) => {}
                (Err(error), _) => {
                    (self.log)(format!("the network front lost a thread: {error}"));
                    return;
                }
                (Ok(_), None) if self.live.load(SeqCst) > self.base() => return,
                (Ok(_), None) => {}
                (Ok(_), Some(token)) => {
                    if let Some(job) = self.attend(token, &mut piece) {
                        self.run(job);
                    }
                }
            }
        }
    }

    /// Serves sockets that have something, without waiting for any.
    fn look(self: &Arc<Self>, events: &mut Vec<epoll::Event>, piece: &mut Vec<u8>) {
        const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        for _ in 0..LOOKS {
            events.clear();
            let looked = epoll::wait(&self.epoll, spare_capacity(events), Some(&NO_WAIT));
            let (Ok(_), Some(event)) = (looked, events.first()) else { return };
            if let Some(job) = self.attend(event.data.u64(), piece) {
                self.hand_over(std::iter::once(job));
            }
        }
    }

    /// An event of a socket. Gives a request to run.
    fn attend(self: &Arc<Self>, token: u64, piece: &mut Vec<u8>) -> Option<Job> {
        match token {
            BELL => None,
            token if token < DOORS + DOORS_MAX => {
                self.enter((token - DOORS) as usize);
                None
            }
            token => {
                let connection = self.connections.lock().get(token);
                connection.and_then(|connection| connection.ready(piece))
            }
        }
    }

    /// The next request that waits for a thread. If more wait, another thread is woken.
    fn next_job(&self) -> Option<Job> {
        let mut jobs = self.jobs.lock();
        let job = jobs.pop();
        if !jobs.is_empty() {
            drop(jobs);
            self.ring();
        }
        job
    }

    fn run(&self, job: Job) {
        let Job { running, record, came } = job;
        let Some(connection) = running.0.clone() else { return };
        let answer = Box::new(move |reply| running.answer(reply));
        let call = || self.service.call_since(came, connection.peer, &record, answer);
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)) {
            Ok(true) => {}
            Ok(false) => {
                (self.log)(format!(
                    "{} sends what is no call; its connection is closed",
                    connection.peer.client
                ));
                connection.close();
            }
            // Its `Running` closed the connection.
            Err(_) => (self.log)(format!("internal error in a call of {}", connection.peer.client)),
        }
        spare::keep(record.into_memory());
        self.answered.fetch_add(1, SeqCst);
        (self.served)();
    }

    /// Something is at a door.
    fn enter(self: &Arc<Self>, number: usize) {
        let Some(door) = self.doors.get(number) else { return };
        match door {
            Door::Stream(listener) if !self.accept(listener) => return,
            Door::Stream(_) => {}
            Door::Datagrams(socket) => self.take(socket),
        }
        _ = door.arm(&self.epoll, number, false);
    }

    /// Answers datagrams.
    fn take(&self, socket: &UdpSocket) {
        let (Ok(server), mut piece) = (socket.local_addr(), [0; DATAGRAM_MAX]) else { return };
        for _ in 0..DATAGRAMS_MAX {
            let Ok((count, client)) = socket.recv_from(&mut piece) else { return };
            let answer = || self.service.datagram(Peer { client, server }, &piece[..count]);
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(answer)) {
                // A client that does not get it asks again.
                Ok(Some(reply)) => _ = socket.send_to(&reply, client),
                Ok(None) => {}
                Err(_) => (self.log)(format!("internal error in a call of {client}")),
            }
        }
    }

    /// Says that the system gives no connection, once in a while: each sweep tries again.
    fn tell_refused(&self, error: &io::Error) {
        let now = self.now();
        let is_due = |told: u64| (told == 0 || now >= told + TELL_AFTER).then_some(now.max(1));
        if self.refused.try_update(SeqCst, SeqCst, is_due).is_ok() {
            (self.log)(format!(
                "no connection can be accepted: {error}; those that there are go on, and it is tried again every {} s",
                SWEEP.as_secs()
            ));
        }
    }

    /// Accepts connections. False if the system gives none.
    fn accept(self: &Arc<Self>, listener: &TcpListener) -> bool {
        for _ in 0..ACCEPT_MAX {
            match listener.accept() {
                Ok((stream, client)) => self.add(stream, client),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // No descriptors, most likely. The next sweep tries again.
                Err(error) => {
                    self.tell_refused(&error);
                    return false;
                }
            }
        }
        true
    }

    fn add(self: &Arc<Self>, stream: TcpStream, client: SocketAddr) {
        // A socket that failed already is found so when it is read.
        _ = stream.set_nodelay(true);
        _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        let (Ok(server), Ok(())) = (stream.local_addr(), stream.set_nonblocking(true)) else { return };
        let peer = Peer { client, server };
        let token = self.next.fetch_add(1, SeqCst);
        let state = Mutex::new(State { progress: self.now(), ..State::default() });
        let connection = Arc::new(Connection { token, peer, stream, shared: Arc::downgrade(self), state });
        {
            let mut connections = self.connections.lock();
            let is_let_in = !self.stopping.load(SeqCst)
                && connections.enter(token, peer.address(), Arc::clone(&connection));
            if !is_let_in {
                return;
            }
        }
        let flags = EventFlags::IN | EventFlags::ONESHOT;
        if epoll::add(&self.epoll, &connection.stream, EventData::new_u64(token), flags).is_err() {
            connection.close();
        }
    }
}

impl Connection {
    /// Its socket has something, or takes something. Gives a request to run.
    fn ready(self: &Arc<Self>, piece: &mut Vec<u8>) -> Option<Job> {
        let shared = self.shared.upgrade()?;
        let mut jobs = Vec::new();
        {
            let mut state = self.state.lock();
            if !self.flush(&mut state) || !self.read(&shared, &mut state, piece) {
                drop(state);
                self.close();
                return None;
            }
            self.pump(&mut state, &mut jobs);
            self.arm(&shared, &mut state);
        }
        let mut jobs = jobs.into_iter();
        // Where others wait, it takes its turn among them.
        let first = if shared.jobs.lock().is_empty() { jobs.next() } else { None };
        shared.hand_over(jobs);
        first
    }

    /// Reads what is there, up to the end of a record. False if the connection is to end.
    fn read(&self, shared: &Shared, state: &mut State, piece: &mut Vec<u8>) -> bool {
        for _ in 0..PIECES_MAX {
            if !wants_input(state) {
                break;
            }
            piece.clear();
            if piece.capacity() < PIECE {
                // It went with a record.
                *piece = spare::room(PIECE);
            }
            match recv(&self.stream, spare_capacity(piece), RecvFlags::empty()) {
                Ok((0, _)) => return false,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(_) => return false,
            }
            state.progress = shared.now();
            let is_all = piece.len() < piece.capacity();
            let mut input = if state.assembler.take_over(piece) { &[] } else { &piece[..] };
            loop {
                match state.assembler.feed(&mut input) {
                    Ok(Some(record)) => state.pending.push_back(record),
                    Ok(None) => {}
                    Err(error) => {
                        (shared.log)(format!("{} sends {error}; its connection is closed", self.peer.client));
                        return false;
                    }
                }
                if input.is_empty() {
                    break;
                }
            }
            // The rest of a record is most often there when its beginning was taken.
            if is_all && state.assembler.is_between() {
                break;
            }
        }
        self.may_keep(shared, state)
    }

    /// Counts what is kept of an incomplete record. False if it is too much.
    fn may_keep(&self, shared: &Shared, state: &mut State) -> bool {
        let kept = state.assembler.kept();
        let more = kept.wrapping_sub(std::mem::replace(&mut state.kept, kept));
        let all = shared.kept.fetch_add(more, SeqCst).wrapping_add(more);
        kept <= KEPT_ALWAYS || all <= KEPT_MAX
    }

    /// Starts requests, as many as may run.
    fn pump(self: &Arc<Self>, state: &mut State, jobs: &mut Vec<Job>) {
        while state.running < RUNNING_MAX
            && state.reply_bytes < REPLIES_MAX
            && let Some(record) = state.pending.pop_front()
        {
            state.running += 1;
            let came = Instant::now();
            jobs.push(Job { running: Running(Some(Arc::clone(self))), record, came });
        }
    }

    /// Arms the socket for its next event.
    fn arm(&self, shared: &Shared, state: &mut State) {
        if state.is_closed {
            return;
        }
        let (reads, waits) = (wants_input(state), !state.replies.is_empty());
        state.arms_again |= state.is_sending && (!reads || waits);
        let mut flags = EventFlags::ONESHOT;
        flags.set(EventFlags::IN, reads);
        flags.set(EventFlags::OUT, waits && !state.is_sending);
        _ = epoll::modify(&shared.epoll, &self.stream, EventData::new_u64(self.token), flags);
    }

    /// Sends the reply of a request that ran.
    fn send(self: &Arc<Self>, reply: Reply) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut jobs = Vec::new();
        {
            let mut state = self.state.lock();
            state.running -= 1;
            if state.is_closed {
                return;
            }
            let was_closed_to_input = !wants_input_but(&state, 1);
            state.reply_bytes += reply.len();
            if state.is_sending || !state.replies.is_empty() {
                state.replies.push_back(reply);
            } else {
                // The client may ask again before the system returns from this. The thread that
                // reads that does not wait for the lock then.
                (state.is_sending, state.progress) = (true, shared.now());
                drop(state);
                let written = (&self.stream).write_vectored(&reply.rest(0));
                state = self.state.lock();
                state.is_sending = false;
                if state.is_closed {
                    return;
                }
                if !self.sent_first(&mut state, reply, written) || !self.flush(&mut state) {
                    drop(state);
                    return self.close();
                }
            }
            self.pump(&mut state, &mut jobs);
            // Armed already for input, unless it had enough of that.
            let arms_again = !state.is_sending && std::mem::take(&mut state.arms_again);
            if was_closed_to_input || arms_again || !state.replies.is_empty() {
                self.arm(&shared, &mut state);
            }
        }
        shared.hand_over(jobs.into_iter());
    }

    /// A reply was written as far as the socket took it; the rest is the first that waits. False if
    /// the connection is to end.
    fn sent_first(&self, state: &mut State, reply: Reply, written: io::Result<usize>) -> bool {
        let count = match written {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(_) => return false,
        };
        state.reply_bytes -= count;
        if count == reply.len() {
            reply.done();
        } else {
            state.sent = count;
            state.replies.push_front(reply);
        }
        true
    }

    /// Writes what the socket takes. False if the connection is to end.
    fn flush(&self, state: &mut State) -> bool {
        if state.is_sending {
            return true;
        }
        while let Some(first) = state.replies.front() {
            match (&self.stream).write_vectored(&first.rest(state.sent)) {
                Ok(count) => {
                    state.sent += count;
                    state.reply_bytes -= count;
                    if let Some(shared) = self.shared.upgrade() {
                        state.progress = shared.now();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if state.sent == first.len() {
                state.sent = 0;
                state.replies.pop_front().into_iter().for_each(Reply::done);
            }
        }
        true
    }

    fn is_stalled(&self, now: u64) -> bool {
        let state = self.state.lock();
        let in_the_middle = !state.assembler.is_between() && wants_input(&state) || !state.replies.is_empty();
        in_the_middle && now.saturating_sub(state.progress) > STALL.as_secs()
    }

    /// Ends the connection; running requests end as they began, and nobody hears of it.
    fn close(&self) {
        let pending = {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.is_closed, true) {
                return;
            }
            state.replies.clear();
            if let Some(shared) = self.shared.upgrade() {
                shared.kept.fetch_sub(std::mem::take(&mut state.kept), SeqCst);
            }
            state.assembler = Assembler::default();
            std::mem::take(&mut state.pending)
        };
        drop(pending);
        _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Some(shared) = self.shared.upgrade() {
            shared.connections.lock().leave(self.token);
        }
    }
}

impl Shared {
    fn hand_over(&self, jobs: impl ExactSizeIterator<Item = Job>) {
        if jobs.len() > 0 {
            let mut waiting = self.jobs.lock();
            for job in jobs {
                let client = job.running.0.as_ref().map(|connection| connection.peer.address());
                waiting.push(client.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), job);
            }
            drop(waiting);
            self.ring();
        }
    }
}

/// Has the kernel give a thread the stack that a create and its group of the intent log need, page
/// by page. Else the first of them waits for that.
#[inline(never)]
fn prepare_stack() {
    std::hint::black_box(&mut [0_u8; STACK]);
}

fn wants_input(state: &State) -> bool {
    wants_input_but(state, 0)
}

/// The same as if `more` requests ran beside those that do.
fn wants_input_but(state: &State, more: usize) -> bool {
    state.pending.is_empty() && state.running + more < RUNNING_MAX && state.reply_bytes < REPLIES_MAX
}
