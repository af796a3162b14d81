//! The command's end of the socket, and the start of a daemon where none runs.

use crate::api::{API_VERSION, Call, DaemonPing, DaemonStop, Request};
use crate::descriptor;
use crate::refusal::{Code, Refusal};
use crate::runtime::Runtime;
use crate::wire::{ANSWER_BYTES_MAX, Progress, Question, parse_answer, read_line, write_line};
use rustix::net::sockopt::socket_peercred;
use rustix::process::getuid;
use std::io::{self, BufRead, BufReader};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// How long a new daemon may take until its socket listens, and an old one from its last answer to
/// its end. Each is a matter of milliseconds, and of minutes on a machine that is starved.
const START_MAX: Duration = Duration::from_secs(300);
/// How long an answer is waited for before the operator is told if the daemon cannot give one.
const SILENCE: Duration = Duration::from_secs(5);
/// Exit status of a daemon that found another one running ([`Code::DaemonRunning`]).
pub const EXIT_RUNNING: i32 = 3;
/// How often to look.
const START_POLL: Duration = Duration::from_millis(10);

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
    runtime: Runtime,
    command: String,
    next_id: u64,
}

impl Client {
    /// Connects to a running daemon. `command` is what history will record.
    ///
    /// # Errors
    /// [`Code::DaemonAbsent`], [`Code::PeerDenied`], [`Code::RuntimeDir`].
    pub fn connect(runtime: &Runtime, command: &str) -> Result<Client, Refusal> {
        match Client::greet(runtime, command)? {
            Some(client) => Ok(client),
            None => Err(Refusal::new(Code::DaemonAbsent, "no daemon is running")),
        }
    }

    /// Connects to the daemon, and starts one first where none runs. `start` must start a process
    /// that calls [`crate::daemon::run`]; of two started at once the lock lets one live, and both
    /// commands use that one.
    ///
    /// # Errors
    /// As [`Client::connect`], and [`Code::DaemonStart`].
    pub fn connect_or_start(
        runtime: &Runtime,
        command: &str,
        mut start: impl FnMut() -> io::Result<Child>,
    ) -> Result<Client, Refusal> {
        runtime.prepare()?;
        if let Some(client) = Client::greet(runtime, command)? {
            return Ok(client);
        }
        let refuse =
            |what: String| Refusal::new(Code::DaemonStart, what).with("log", runtime.log().display());
        let mut child =
            start().map_err(|error| refuse(format!("the daemon could not be started: {error}")))?;
        let begin = Instant::now();
        let mut ended = None;
        loop {
            if let Some(client) = Client::greet(runtime, command)? {
                return Ok(client);
            }
            if ended.is_none() {
                // It ends at once if another command's daemon was faster: then that one's socket
                // appears soon.
                ended = child.try_wait().ok().flatten().map(|status| (status, Instant::now()));
            }
            match ended {
                Some((status, at))
                    if status.code() == Some(EXIT_RUNNING) && at.elapsed() > Duration::from_millis(300) =>
                {
                    // It met another daemon, and that one does not answer: it was on its way out.
                    // Once more, then.
                    child = start()
                        .map_err(|error| refuse(format!("the daemon could not be started: {error}")))?;
                    ended = None;
                }
                Some((status, at)) if !status.success() && at.elapsed() > Duration::from_secs(2) => {
                    return Err(refuse(format!(
                        "the daemon ended at once ({status}){}",
                        last_words(runtime)
                    )));
                }
                _ if begin.elapsed() > START_MAX => {
                    return Err(refuse(format!(
                        "the daemon did not answer within {} s",
                        START_MAX.as_secs()
                    )));
                }
                _ => std::thread::sleep(START_POLL),
            }
        }
    }

    /// Connects to root's daemon as a user who looks. `None` if it does not run, or lets nobody
    /// look.
    ///
    /// # Errors
    /// [`Code::PeerDenied`] if another user listens there.
    pub fn connect_as_guest(runtime: &Runtime, command: &str) -> Result<Option<Client>, Refusal> {
        let Ok(stream) = runtime.connect_public() else { return Ok(None) };
        check_peer(&stream, &runtime.public_socket())?;
        let mut client = Client::over(stream, runtime, command);
        match client.call(DaemonPing {}) {
            Ok(_) => Ok(Some(client)),
            Err(Refusal { code: Code::DaemonLost, .. }) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Asks the daemon to export everything and end, and waits until it has ended.
    ///
    /// # Errors
    /// The daemon's refusal; [`Code::DaemonLost`] if it does not end.
    pub fn stop(mut self, force: bool) -> Result<(), Refusal> {
        self.call(DaemonStop { force })?;
        let trouble =
            |why: String| Refusal::new(Code::DaemonLost, why).with("log", self.runtime.log().display());
        // The kernel closes our connection when the process is gone, and with it its lock.
        self.reader
            .get_ref()
            .set_read_timeout(Some(START_MAX))
            .map_err(|error| trouble(error.to_string()))?;
        match read_line(&mut self.reader, ANSWER_BYTES_MAX) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Err(trouble("the daemon exported its pools, but its process still runs".into()))
            }
            _ => Ok(()),
        }
    }

    /// A client of a daemon that answers; `None` if none does. The socket of a process that is
    /// being killed still accepts connections, so this asks for an answer before any request that
    /// must not be sent twice.
    fn greet(runtime: &Runtime, command: &str) -> Result<Option<Client>, Refusal> {
        let Some(stream) = try_connect(runtime)? else { return Ok(None) };
        let mut client = Client::over(stream, runtime, command);
        match client.call(DaemonPing {}) {
            // A daemon that does not know this request lives as well.
            Ok(_) | Err(Refusal { code: Code::ApiRequest, .. }) => Ok(Some(client)),
            Err(Refusal { code: Code::DaemonLost, .. }) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// A client over a connection that exists.
    #[must_use]
    pub fn over(stream: UnixStream, runtime: &Runtime, command: &str) -> Client {
        Client {
            reader: BufReader::new(stream),
            runtime: runtime.clone(),
            command: command.to_owned(),
            next_id: 1,
        }
    }

    /// Asks, and waits for the answer as long as it takes.
    ///
    /// # Errors
    /// The daemon's refusal; [`Code::DaemonLost`] if the connection breaks.
    pub fn call<C: Call>(&mut self, request: C) -> Result<C::Answer, Refusal> {
        self.call_with(request, None, &mut |_| ())
    }

    /// As [`Client::call`], and hands over a descriptor that the daemon writes to or reads from.
    /// `progress` hears how far it is.
    ///
    /// # Errors
    /// As there.
    pub fn call_with<C: Call>(
        &mut self,
        request: C,
        data: Option<BorrowedFd<'_>>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<C::Answer, Refusal> {
        self.request::<C>(request.into_request(), data, progress)
    }

    /// As [`Client::call_with`], for a request that was made before, of the verb `C`.
    ///
    /// # Errors
    /// As there.
    pub fn request<C: Call>(
        &mut self,
        call: Request,
        data: Option<BorrowedFd<'_>>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<C::Answer, Refusal> {
        self.converse::<C>(call, data, false, progress)
    }

    /// As [`Client::call`], for a request of the verb `C` without a descriptor. `progress` hears
    /// its steps.
    ///
    /// # Errors
    /// As there.
    pub fn request_in_steps<C: Call>(
        &mut self,
        call: Request,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<C::Answer, Refusal> {
        self.converse::<C>(call, None, true, progress)
    }

    fn converse<C: Call>(
        &mut self,
        call: Request,
        data: Option<BorrowedFd<'_>>,
        steps: bool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<C::Answer, Refusal> {
        let id = self.next_id;
        self.next_id += 1;
        let question = Question { version: API_VERSION, id, command: self.command.clone(), steps, call };
        let lost = |why: &str| {
            let what = format!("the daemon did not answer: {why}");
            Refusal::new(Code::DaemonLost, what).with("log", self.runtime.log().display())
        };
        // A daemon that refuses the connection answers without reading: look at the answer before
        // the error.
        let written = write_line(self.reader.get_mut(), &question);
        let mut asked = false;
        let answer = loop {
            let line =
                match wait(&mut self.reader).and_then(|()| read_line(&mut self.reader, ANSWER_BYTES_MAX)) {
                    Ok(Some(line)) => line,
                    Ok(None) => {
                        return Err(lost(
                            &written.err().map_or("it closed the connection".to_owned(), |e| e.to_string()),
                        ));
                    }
                    Err(error) => return Err(lost(&error.to_string())),
                };
            let answer = parse_answer(&line)?;
            match &answer.progress {
                None => break answer,
                Some(step) if steps => progress(step),
                Some(_) if !std::mem::replace(&mut asked, true) => {
                    let Some(data) = data else {
                        return Err(lost("it asked for a file descriptor that this command does not have"));
                    };
                    descriptor::give(self.reader.get_ref(), data)
                        .map_err(|error| lost(&error.to_string()))?;
                }
                Some(step) => progress(step),
            }
        };
        match (answer.ok, answer.refused) {
            (_, Some(refusal)) => Err(refusal),
            (Some(ok), None) if answer.id == id => serde_json::from_value(ok).map_err(|error| {
                Refusal::new(Code::ApiRequest, format!("the answer cannot be decoded: {error}"))
            }),
            _ => Err(lost("it answered a different request")),
        }
    }
}

/// Waits until an answer begins, as long as it takes. Says on stderr if the daemon is stopped: the
/// command then looks as if it hung, and does the right thing as soon as the daemon goes on.
fn wait(reader: &mut BufReader<UnixStream>) -> io::Result<()> {
    reader.get_ref().set_read_timeout(Some(SILENCE))?;
    let mut told = false;
    loop {
        match reader.fill_buf() {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if let Some(pid) = stopped_peer(reader.get_ref())
                    && !std::mem::replace(&mut told, true)
                {
                    eprintln!(
                        "steadfast: the daemon (process {pid}) is stopped and cannot answer; `kill -CONT {pid}` continues it"
                    );
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => {
                other?;
                return reader.get_ref().set_read_timeout(None);
            }
        }
    }
}

/// The process at the other end, if it is stopped by a signal (or by a debugger).
fn stopped_peer(stream: &UnixStream) -> Option<i32> {
    let pid = socket_peercred(stream).ok()?.pid.as_raw_nonzero().get();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // "812 (name, perhaps with blanks) T ..."
    let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
    matches!(state, 'T' | 't').then_some(pid)
}

/// `None` where nobody listens.
fn try_connect(runtime: &Runtime) -> Result<Option<UnixStream>, Refusal> {
    let socket = runtime.socket();
    let stream = match runtime.connect() {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => {
            let what = format!("the socket {} cannot be used: {error}", socket.display());
            let code = if error.kind() == io::ErrorKind::PermissionDenied {
                Code::PeerDenied
            } else {
                Code::RuntimeDir
            };
            return Err(Refusal::new(code, what));
        }
    };
    check_peer(&stream, &socket)?;
    Ok(Some(stream))
}

/// A passphrase may follow: the listener must be ourselves, or root.
fn check_peer(stream: &UnixStream, socket: &Path) -> Result<(), Refusal> {
    let peer = socket_peercred(stream).map_err(|error| {
        Refusal::new(Code::RuntimeDir, format!("the owner of the daemon's socket is unknown: {error}"))
    })?;
    let (uid, own) = (peer.uid.as_raw(), getuid().as_raw());
    if uid != own && uid != 0 && own != 0 {
        return Err(Refusal::new(
            Code::PeerDenied,
            format!("the socket {} belongs to user {uid}", socket.display()),
        ));
    }
    Ok(())
}

/// The last line of the log, as a clause.
fn last_words(runtime: &Runtime) -> String {
    let log = std::fs::read(runtime.log()).unwrap_or_default();
    let tail = String::from_utf8_lossy(&log[log.len().saturating_sub(4096)..]).into_owned();
    tail.lines().rev().find(|line| !line.trim().is_empty()).map_or(String::new(), |line| format!(": {line}"))
}
