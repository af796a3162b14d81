//! The daemon's end of the socket: one thread per connection; checks peers and requests, writes
//! answers.

use crate::api::{self, API_VERSION, Call, DaemonReport, Outcome, PoolInfo, Request};
use crate::caller::Caller;
use crate::descriptor::Descriptor;
use crate::engine::check;
use crate::refusal::{Code, Refusal};
use crate::rights;
use crate::runtime::Runtime;
use crate::service::Service;
use crate::steps::Steps;
use crate::wire::{Answer, Forgetful, Question, REQUEST_BYTES_MAX, parse_question, read_line, write_line};
use parking_lot::Mutex;
use rustix::net::sockopt::socket_peercred;
use rustix::process::getuid;
use std::collections::HashMap;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, mpsc};
use std::time::Duration;

/// Most connections at a time; a command uses one for moments.
const CONNECTIONS_MAX: usize = 128;
/// How long a connection may be silent between two requests.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Most connections of one guest, so that none keeps the others out.
const OF_A_GUEST_MAX: usize = 16;

/// The socket that a connection came through.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Door {
    /// For the user who owns the daemon, and root.
    Own,
    /// For everybody.
    Public,
}

/// Event for the daemon's main thread.
#[derive(Debug)]
pub(crate) enum Event {
    /// A client asked it to stop, and everything is exported.
    Stopped,
    /// A signal asks it to stop.
    Signal(i32),
}

/// State shared by all connections.
pub struct Server {
    service: Arc<dyn Service>,
    runtime: Runtime,
    version: String,
    stopping: AtomicBool,
    /// Running streams must stop.
    breaking: Arc<AtomicBool>,
    /// Requests hold it shared; stopping holds it alone, so that no pool vanishes while a request
    /// uses it.
    gate: RwLock<()>,
    connections: AtomicUsize,
    /// Connections of guests, by user.
    guests: Mutex<HashMap<u32, usize>>,
    events: mpsc::Sender<Event>,
}

impl Server {
    pub(crate) fn new(
        service: Arc<dyn Service>,
        runtime: Runtime,
        version: String,
        events: mpsc::Sender<Event>,
    ) -> Arc<Server> {
        let (stopping, connections) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (breaking, gate) = (Arc::default(), RwLock::new(()));
        let guests = Mutex::default();
        Arc::new(Server { service, runtime, version, stopping, breaking, gate, connections, guests, events })
    }

    /// Answers one connection that the caller made, without lock, signals or process: for tests of
    /// clients.
    ///
    /// # Errors
    /// Of the stream.
    pub fn converse_with(
        service: Arc<dyn Service>,
        runtime: &Runtime,
        stream: &UnixStream,
    ) -> io::Result<()> {
        let (events, _inbox) = mpsc::channel();
        Server::new(service, runtime.clone(), "test".into(), events).converse(stream, Door::Own)
    }

    /// Takes connections until the process ends or the listener breaks.
    pub(crate) fn listen(self: &Arc<Server>, listener: &UnixListener, door: Door) -> io::Error {
        loop {
            match listener.accept() {
                Ok((stream, _)) => self.connect(stream, door),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Out of descriptors, most likely: others close theirs soon.
                Err(error) if error.raw_os_error().is_some_and(|code| code == 24 || code == 23) => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(error) => return error,
            }
        }
    }

    fn connect(self: &Arc<Server>, stream: UnixStream, door: Door) {
        let Some(guest) = self.enter(&stream, door) else { return };
        let server = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("control".into()).spawn(move || {
            // A broken connection is reported by the client.
            let _ = server.converse(&stream, door);
            server.leave(guest);
        });
        if spawned.is_err() {
            self.leave(guest);
        }
    }

    /// Counts a connection, for a guest under the user's number. `None` if there are too many.
    fn enter(&self, stream: &UnixStream, door: Door) -> Option<Option<u32>> {
        if door == Door::Own {
            if self.connections.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
                self.connections.fetch_sub(1, Ordering::SeqCst);
                return None;
            }
            return Some(None);
        }
        let uid = socket_peercred(stream).ok()?.uid.as_raw();
        let mut guests = self.guests.lock();
        if guests.values().sum::<usize>() >= CONNECTIONS_MAX {
            return None;
        }
        let count = guests.entry(uid).or_default();
        (*count < OF_A_GUEST_MAX).then(|| {
            *count += 1;
            Some(uid)
        })
    }

    fn leave(&self, guest: Option<u32>) {
        let Some(uid) = guest else {
            self.connections.fetch_sub(1, Ordering::SeqCst);
            return;
        };
        let mut guests = self.guests.lock();
        if let Some(count) = guests.get_mut(&uid) {
            *count -= 1;
            if *count == 0 {
                guests.remove(&uid);
            }
        }
    }

    fn converse(&self, stream: &UnixStream, door: Door) -> io::Result<()> {
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        let peer = socket_peercred(stream)?;
        let (uid, own) = (peer.uid.as_raw(), getuid().as_raw());
        let guest = uid != own && uid != 0;
        if guest && door == Door::Public {
            stream.set_write_timeout(Some(SILENCE_MAX))?;
        } else if guest {
            let refusal = Refusal::new(
                Code::PeerDenied,
                format!("this daemon belongs to user {own}; you are user {uid}"),
            );
            return write_line(&mut &*stream, &refused(0, refusal));
        }
        let mut reader = Forgetful::new(stream);
        while let Some(line) = read_line(&mut reader, REQUEST_BYTES_MAX)? {
            let mut ends = false;
            let answer = match parse_question(line) {
                Ok(Question { id, command, call, steps, .. }) => {
                    ends = matches!(call, Request::DaemonStop(_));
                    let (gid, pid) = (peer.gid.as_raw(), peer.pid.as_raw_nonzero().get().unsigned_abs());
                    // Without a way to tell them the request is carried out all the same.
                    let steps = steps.then(|| Steps::over(stream, id).ok()).flatten();
                    let mut caller = Caller { uid, gid, guest, pid, command, descriptor: None, steps };
                    let permitted = if guest { self.permit(&caller, &call) } else { Ok(()) };
                    if permitted.is_ok() && call.wants_descriptor() {
                        caller.descriptor = Some(Descriptor::ask(stream, id, &self.breaking)?);
                    }
                    match permitted.and_then(|()| self.answer(&caller, call)) {
                        Ok(ok) => {
                            Answer { version: API_VERSION, id, progress: None, ok: Some(ok), refused: None }
                        }
                        Err(refusal) => refused(id, refusal),
                    }
                }
                Err(refusal) => refused(0, refusal),
            };
            let told = write_line(&mut &*stream, &answer);
            if ends && answer.ok.is_some() {
                // The answer is sent, or its client is gone: now the main thread may end the
                // process. Answers to other clients do not end it: the client that asked would not
                // get its answer.
                let _ = self.events.send(Event::Stopped);
            }
            told?;
        }
        Ok(())
    }

    /// Refuses a guest. A bug there is no permission.
    fn permit(&self, caller: &Caller, call: &Request) -> Result<(), Refusal> {
        catch_unwind(AssertUnwindSafe(|| self.service.permit(caller, call)))
            .unwrap_or_else(|_| Err(rights::denied(caller)))
    }

    fn answer(&self, caller: &Caller, call: Request) -> Result<serde_json::Value, Refusal> {
        match &call {
            Request::DaemonStop(stop) => {
                self.stop(stop.force)?;
                return Ok(api::to_json(&Outcome::default()));
            }
            Request::DaemonPing(_) => return Ok(api::to_json(&Outcome::default())),
            Request::DaemonInfo(_) => return self.info(caller),
            _ => {}
        }
        let _pass = self.gate.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        if self.stopping.load(Ordering::SeqCst) {
            return Err(Refusal::new(Code::DaemonStopping, "the daemon is stopping"));
        }
        let call = check(call)?;
        // A panic in one request must not leave its client without an answer; the pool's own state
        // is guarded by the pool (it suspends), not by us.
        catch_unwind(AssertUnwindSafe(|| self.service.answer(caller, call))).unwrap_or_else(|_| {
            Err(Refusal::new(Code::Internal, "internal error in this request; see the daemon's log"))
        })
    }

    fn info(&self, caller: &Caller) -> Result<serde_json::Value, Refusal> {
        let pools = self.service.answer(caller, api::PoolList::default().into_request())?;
        let pools: Vec<PoolInfo> = serde_json::from_value(pools).expect("it is the answer of this request");
        Ok(api::to_json(&DaemonReport {
            pid: std::process::id(),
            version: self.version.clone(),
            api_version: API_VERSION,
            runtime_dir: self.runtime.dir().to_owned(),
            log: self.runtime.log(),
            pools: pools.into_iter().map(|pool| pool.name).collect(),
        }))
    }

    /// Waits for running requests, refuses new ones, exports everything.
    pub(crate) fn stop(&self, force: bool) -> Result<(), Refusal> {
        self.breaking.store(true, Ordering::SeqCst);
        let _alone = self.gate.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.breaking.store(false, Ordering::SeqCst);
        if self.stopping.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.service.shutdown(force)?;
        self.stopping.store(true, Ordering::SeqCst);
        Ok(())
    }
}

fn refused(id: u64, refusal: Refusal) -> Answer {
    Answer { version: API_VERSION, id, progress: None, ok: None, refused: Some(refusal) }
}
