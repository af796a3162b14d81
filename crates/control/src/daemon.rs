//! Life of a daemon: lock, listen, import what was imported, serve, and at a signal export
//! everything and leave.

use crate::refusal::{Code, Refusal};
use crate::runtime::Runtime;
use crate::server::{Door, Event, Server};
use crate::service::Service;
use rustix::fs::{FlockOperation, flock};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use steadfast_fuse::SyncCalls;

/// Descriptors that must be left when the socket for everybody is open: a connection takes two, and
/// a pool with a mount some ten.
const SPARE_DESCRIPTORS: usize = 32;

/// Seconds for which the kernel waits for the answer to a call of `sync(2)`, before it goes on
/// without us. A call waits for the one before it and for its own, a minute each at most.
const SYNC_PATIENCE: u16 = 135;
/// Pause before the kernel is asked for calls of `sync(2)` again.
const SYNC_PAUSE: Duration = Duration::from_secs(1);

/// Serves until a signal or a client ends it. With `host_sync` each `sync(2)` of the host waits for
/// all pools, if that can be. `start` is called once the lock is held and the
/// socket listens; commands that come meanwhile wait. Says on stderr what it does.
///
/// # Errors
/// [`Code::DaemonRunning`] if another holds the lock, [`Code::RuntimeDir`], the refusal of `start`,
/// and that of the shutdown.
pub fn run(
    runtime: &Runtime,
    version: &str,
    host_sync: bool,
    start: impl FnOnce() -> Result<Arc<dyn Service>, Refusal>,
) -> Result<(), Refusal> {
    raise_descriptor_limit();
    keep_memory_private();
    // Before any thread is started. An ordinary user may not, and has the kernel's limit for
    // collected writes instead.
    steadfast_fuse::become_io_flusher().ok();
    runtime.prepare()?;
    let _lock = take_lock(runtime)?;
    let trouble = |error: io::Error| {
        Refusal::new(
            Code::RuntimeDir,
            format!("the socket {} cannot be used: {error}", runtime.socket().display()),
        )
    };
    // Before anything is opened: a signal from here on is answered in order.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(trouble)?;
    // The lock is ours, so a socket that lies about belongs to a daemon that has died.
    match fs::remove_file(runtime.socket()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(trouble(error)),
        _ => {}
    }
    let listener = runtime.bind().map_err(trouble)?;
    fs::set_permissions(runtime.socket(), Permissions::from_mode(0o600)).map_err(trouble)?;
    let gone = Gone { runtime };
    // Nothing of ours may keep the folder busy that we happened to be started in.
    std::env::set_current_dir("/").map_err(trouble)?;

    let service = start()?;
    let (events, inbox) = mpsc::channel();
    let syncing = Arc::clone(&service);
    let server = Server::new(service, runtime.clone(), version.to_owned(), events.clone());
    let accepting = Arc::clone(&server);
    let spawn = |name: &str, job: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name.to_owned()).spawn(job).map_err(trouble)
    };
    if host_sync && rustix::process::getuid().is_root() && has_spare_descriptors() {
        // Before a command is answered: its pool is one that `sync(2)` waits for. Without it
        // `sync(2)` promises nothing for file systems, as for users' daemons.
        match SyncCalls::new(SYNC_PATIENCE) {
            Ok(calls) => drop(spawn("host sync", Box::new(move || serve_syncs(calls, &*syncing)))?),
            Err(error) => tell_no_syncs(&error),
        }
    }
    spawn(
        "accept",
        Box::new(move || {
            eprintln!("steadfast: the socket failed: {}", accepting.listen(&listener, Door::Own))
        }),
    )?;
    if rustix::process::getuid().is_root() {
        // Other users go without, if that cannot be.
        match runtime.bind_public() {
            Ok(_) if !has_spare_descriptors() => {
                eprintln!("steadfast: other users cannot look: the limit of open files is too low");
            }
            Ok(listener) => {
                let accepting = Arc::clone(&server);
                let listen = move || {
                    let error = accepting.listen(&listener, Door::Public);
                    eprintln!("steadfast: the socket for everybody failed: {error}");
                };
                spawn("accept guests", Box::new(listen))?;
            }
            Err(refusal) => eprintln!("steadfast: other users cannot look: {}", refusal.what),
        }
    }
    let handle = signals.handle();
    spawn(
        "signals",
        Box::new(move || {
            for signal in signals.forever() {
                let _ = events.send(Event::Signal(signal));
            }
        }),
    )?;
    eprintln!("steadfast: daemon (process {}) listens at {}", std::process::id(), runtime.socket().display());
    notify("READY=1");
    let result = loop {
        match inbox.recv() {
            Ok(Event::Signal(SIGHUP)) => {}
            Ok(Event::Signal(signal)) => {
                eprintln!("steadfast: received signal {signal}: exporting all pools");
                notify("STOPPING=1");
                break server.stop(true);
            }
            Ok(Event::Stopped) | Err(_) => break Ok(()),
        }
    };
    handle.close();
    drop(gone);
    eprintln!("steadfast: daemon (process {}) is ending", std::process::id());
    result
}

/// Answers each `sync(2)` of the host, for good.
fn serve_syncs(mut calls: SyncCalls, service: &dyn Service) {
    let error = loop {
        if let Err(error) = calls.serve(|| service.sync()) {
            break error;
        }
        eprintln!(
            "steadfast: a sync(2) did not wait for pools: it had no answer within {SYNC_PATIENCE} seconds, \
             or somebody cut the connection"
        );
        std::thread::sleep(SYNC_PAUSE);
        match SyncCalls::new(SYNC_PATIENCE) {
            Ok(next) => calls = next,
            Err(error) => break error,
        }
    };
    tell_no_syncs(&error);
}

fn tell_no_syncs(error: &steadfast_fuse::Error) {
    eprintln!("steadfast: sync(2) does not wait for pools: {error}");
}

/// True if some descriptors are left for the commands of the daemon's own user.
fn has_spare_descriptors() -> bool {
    (0..SPARE_DESCRIPTORS).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<_>>>().is_ok()
}

/// Allows as many descriptors as the administrator does. Each thread of each mount has one, and the
/// usual soft limit of 1,024 is meant for programs that use `select`.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // It fails only if the limit was lowered meanwhile; then the lower one applies.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Keeps keys and content that are in memory from other processes of the user, and out of core
/// dumps: neither may read the memory of a process that is not dumpable (prctl(2)). Root may.
fn keep_memory_private() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        eprintln!("steadfast: the daemon's memory cannot be kept from debuggers and core dumps: {error}");
    }
}

/// Tells the service manager the daemon's state: a datagram to the socket that `NOTIFY_SOCKET`
/// names, see sd_notify(3). Without that variable nothing happens.
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let told = address.and_then(|to| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &to));
    if let Err(error) = told {
        eprintln!("steadfast: cannot report {state} to the service manager: {error}");
    }
}

/// Removes the sockets at the end, whichever way that comes.
struct Gone<'a> {
    runtime: &'a Runtime,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.runtime.socket());
        let _ = fs::remove_file(self.runtime.nbd_socket());
        if rustix::process::getuid().is_root() {
            let _ = fs::remove_file(self.runtime.public_socket());
            let _ = fs::remove_dir(self.runtime.public_dir());
        }
    }
}

/// Takes the lock that only one daemon holds, and writes the process id into it. The lock goes when
/// the file is closed, so a daemon that was killed leaves none behind.
fn take_lock(runtime: &Runtime) -> Result<File, Refusal> {
    let path = runtime.lock();
    let trouble = |error: io::Error| {
        Refusal::new(Code::RuntimeDir, format!("the lock {} cannot be used: {error}", path.display()))
    };
    let opened =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = opened.map_err(trouble)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let pid = fs::read_to_string(&path).unwrap_or_default();
            let what = format!("a daemon is already running (process {})", pid.trim());
            return Err(Refusal::new(Code::DaemonRunning, what).with("pid", pid.trim()));
        }
        Err(error) => return Err(trouble(error.into())),
    }
    file.set_len(0).map_err(trouble)?;
    writeln!(file, "{}", std::process::id()).map_err(trouble)?;
    Ok(file)
}
