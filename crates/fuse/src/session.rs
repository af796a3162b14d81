//! # A mount and the threads that serve it
//!
//! ## Life
//! ```text
//!   mount(2) ─► handshake (calling thread) ─► Handler::init ─► threads serve
//!            ─► umount, or the connection is cut ─► the last thread leaves
//!            ─► Handler::destroy ─► wait() returns
//! ```
//!
//! ## Why nothing hangs
//! - The handshake is read by the thread that mounts, before any other program can get an answer
//!   from the mount.
//! - Each thread reads requests from its own cloned descriptor (unless told otherwise) and answers
//!   on it.
//! - As long as requests come fast, a thread looks for the next one for a moment before it sleeps,
//!   and those it does not need rest: see [`threads`](crate::threads).
//! - When all threads are blocked in handlers, more are started: see [`threads`](crate::threads).
//! - Notifications are delivered by a thread that serves nothing: see [`notify`](crate::notify).
//! - Forgets, which the kernel sends by the ten thousand, have another such thread: see
//!   [`forgets`](crate::forgets).
//! - No handler's panic ends a thread.
//! - The session notices an unmount from outside: the kernel ends every read of the device.
//!
//! ## Invariants
//! [session.1] `Handler::init` runs before, and `Handler::destroy` after, all other methods, each
//!      once.
//! [session.2] A descriptor of the connection exists as long as a thread serves; when the last is
//!      closed, the kernel cuts the connection. So a process that dies in any way leaves a mount
//!      that answers `ENOTCONN`, never one that hangs.
//! [session.3] Copies of the mount do not keep it. A mount namespace (of a container, a service, a
//!      sandbox) has a copy of every mount, used or not, and the kernel ends a connection only with
//!      the last copy. So `unmount` cuts the connection once the mount is gone here and no file of
//!      it is open anywhere (`open_handles`): nothing is lost, since the kernel has handed over
//!      what was written to a file before it lets go of the last handle.

use crate::device::{self, Received, ReplyBuffer, RequestBuffer, send};
use crate::dispatch::{self, Outcome, Served, panic_message};
use crate::error::Error;
use crate::forgets::{Forgets, LARGE_BYTES};
use crate::handler::Handler;
use crate::handshake::handshake;
use crate::idle_poll::IdlePolling;
use crate::later::Later;
use crate::mount::{self, Mounted, UnmountMode};
use crate::notify::Notifier;
use crate::options::{LogEvent, LogSink, MountOptions};
use crate::threads::{SessionThreads, ThreadSeat};
use crate::types::{Errno, Negotiated, Request};
use crate::uring::{self, Pool, Server};
use crate::wire::init::{InitOut, flag};
use crate::wire::reply::{Notification, encode_error, encode_out_header};
use crate::wire::request::{Dialect, Incoming, Operation, decode, decode_parts};
use crate::wire::{InHeader, OUT_HEADER_SIZE, Parts, opcode};
use crate::write_out::{self, HeldPages, OwnSyncs};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno as OsErrno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The least payload of an entry: extended attributes of 64 KiB fit whatever `max_write` is.
const PAYLOAD_MIN: usize = 128 << 10;
/// How long `unmount` waits for files that are open in other mount namespaces.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it waits for threads to leave a connection that has ended.
const ENDING_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it waits for a connection that lives on. Without a copy of the mount it has ended
/// before `umount2` returns, and a clean `umount2` succeeds only while nobody uses the mount. So
/// this is for a caller elsewhere that is about to leave a copy.
const COPIES_TIMEOUT: Duration = Duration::from_millis(5);
/// How often it looks whether files that were open elsewhere are closed.
const ELSEWHERE_POLL: Duration = Duration::from_millis(50);
/// How long dropping a session waits.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);
/// A thread that finds so many requests waiting, one after the other, calls another one.
const BACKLOG_MAX: u32 = 16;
/// So many requests pass one that asks to be durable, at most: it is to share its flush, not to
/// starve.
const PASSED_MAX: u32 = 32;
/// Threads only read, serve and write, but a file system's call chain may be deep. Untouched stack
/// costs nothing.
const STACK_SIZE: usize = 4 << 20;

/// Why a session ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EndReason {
    /// Unmounted, by [`Session::unmount`] or from outside.
    Unmounted,
    /// The connection was cut: a forced unmount, or `/sys/fs/fuse/connections/*/abort`.
    Aborted,
    /// The device failed.
    Failed(String),
}

/// A mounted file system. Dropping it unmounts lazily.
pub struct Session {
    shared: Arc<Shared>,
    mounted: Mounted,
}

struct Shared {
    handler: Arc<dyn Handler>,
    /// From which further descriptors are cloned; closed with the session, see [session.2].
    fd: Mutex<Option<Arc<OwnedFd>>>,
    dialect: Dialect,
    negotiated: Negotiated,
    /// See [`MountOptions::clone_device`].
    clone_device: bool,
    /// See [`MountOptions::poll_us`].
    poll: Duration,
    /// See [`MountOptions::idle_poll`].
    idle_poll: Option<Arc<IdlePolling>>,
    threads: SessionThreads,
    /// Runs what the queues' threads must not.
    pool: Arc<Pool>,
    /// The session's threads, as one, and the queues' threads that have not left.
    serving: AtomicUsize,
    notifier: Notifier,
    /// Forgets of the kernel, by the ten thousand.
    forgets: Forgets,
    log: Option<LogSink>,
    own_syncs: OwnSyncs,
    /// Files the kernel has open, wherever [session.3].
    open_handles: AtomicI64,
    end: Mutex<End>,
    ended: Condvar,
}

/// Change of the number of open files by a request and its answer. Directories do not count: no
/// written data is lost with one.
fn handles_gained(operation: &Operation<'_>, outcome: Outcome) -> i64 {
    match (operation, outcome) {
        // From now on the kernel opens without asking, so nobody knows any more what is open.
        (Operation::Open(_), Outcome::Failed(Errno::ENOSYS)) => i64::from(i32::MAX),
        (Operation::Open(_) | Operation::Create { .. } | Operation::Tmpfile { .. }, Outcome::Filled(_)) => 1,
        (Operation::Release(_), _) => -1,
        _ => 0,
    }
}

/// Requests of one thread that are served when no others wait.
#[derive(Default)]
struct PutOff {
    syncs: Vec<Vec<u8>>,
    /// Requests that were served since the first of them came.
    passed: u32,
}

impl PutOff {
    /// Must they be served now? `None` if there are none.
    fn is_due(&self) -> Option<bool> {
        (!self.syncs.is_empty()).then_some(self.passed >= PASSED_MAX)
    }
}

#[derive(Default)]
struct End {
    /// Reason of the first thread that left.
    reason: Option<EndReason>,
    /// `Shared::finish` has begun.
    begun: bool,
    /// `Handler::destroy` has returned.
    done: bool,
}

impl Session {
    /// Mounts `handler` at the directory `mountpoint` and starts serving. When this returns, the
    /// mount works.
    pub fn mount(
        mountpoint: &Path,
        options: &MountOptions,
        handler: Arc<dyn Handler>,
    ) -> Result<Self, Error> {
        let (fd, mounted) = mount::mount(mountpoint, options)?;
        match Self::start(fd, &mounted, options, handler) {
            Ok(shared) => Ok(Self { shared, mounted }),
            Err(error) => {
                // The descriptors are closed, so nothing waits for us; the name must go, too.
                let _ = mount::unmount(&mounted, UnmountMode::Lazy);
                Err(error)
            }
        }
    }

    fn start(
        fd: OwnedFd,
        mounted: &Mounted,
        options: &MountOptions,
        handler: Arc<dyn Handler>,
    ) -> Result<Arc<Shared>, Error> {
        let log = options.log.clone();
        let (fd, told) = (Arc::new(fd), |event: LogEvent| {
            if let Some(log) = &log {
                log(&event);
            }
        });
        let not_used = |message: String| told(LogEvent::QueuesNotUsed { message });
        let queues = options.io_uring.then(uring::prepare).and_then(|prepared| {
            prepared.inspect_err(|error| not_used(format!("no ring could be made: {error}"))).ok()
        });
        let out = handshake(&fd, &MountOptions { io_uring: queues.is_some(), ..options.clone() }, 0)?;
        let queues = queues.filter(|_| {
            let agreed = out.flags & flag::OVER_IO_URING != 0;
            if !agreed {
                not_used("the kernel does not offer it (/sys/module/fuse/parameters/enable_uring)".into());
            }
            agreed
        });
        let negotiated = Negotiated {
            minor: out.minor,
            max_write: out.max_write as usize,
            max_read: out.max_write as usize,
            flags: out.flags,
            direct_writes: options.direct_writes && direct_writes_are_coherent(&out),
        };
        let init = catch_unwind(AssertUnwindSafe(|| handler.init(&negotiated)));
        if let Err(panic) = init {
            let message = format!("the handler's init panicked: {}", panic_message(panic.as_ref()));
            return Err(Error::Handshake { message });
        }
        let idle_poll = IdlePolling::begin(options.idle_poll).unwrap_or_else(|message| {
            told(LogEvent::IdleNotPolled { message });
            None
        });
        let shared = Arc::new(Shared {
            handler,
            fd: Mutex::new(Some(fd.clone())),
            dialect: Dialect { setxattr_ext: out.flags & flag::SETXATTR_EXT != 0 },
            negotiated,
            clone_device: options.clone_device,
            // With one processor only, the caller sleeps while a thread polls.
            poll: match std::thread::available_parallelism() {
                Ok(processors) if processors.get() > 1 => Duration::from_micros(options.poll_us.into()),
                _ => Duration::ZERO,
            },
            idle_poll,
            threads: SessionThreads::new(
                SessionThreads::base_for(options.threads),
                options.threads_max.clamp(1, 4096),
            ),
            pool: Pool::new(options.threads_max),
            serving: AtomicUsize::new(1 + queues.as_ref().map_or(0, uring::Prepared::len)),
            notifier: Notifier::new(),
            forgets: Forgets::default(),
            log: log.clone(),
            own_syncs: OwnSyncs::default(),
            open_handles: AtomicI64::new(0),
            end: Mutex::default(),
            ended: Condvar::new(),
        });
        if let Some(queues) = queues {
            let server: Arc<dyn Server> = shared.clone();
            shared.pool.serve_with(server.clone());
            queues.start(&server, &fd, &shared.pool, negotiated.max_write.max(PAYLOAD_MIN));
        }
        drop(fd);
        for _ in 0..shared.threads.base() {
            if let Err(source) = Shared::add_thread(&shared) {
                if shared.threads.live() == 0 {
                    // No thread was there to run `destroy`.
                    shared.left();
                    return Err(Error::ThreadNotStarted { source });
                }
                shared.log(LogEvent::ThreadFailed { message: source.to_string() });
                break;
            }
        }
        shared.start_helpers()?;
        if let Some(kb) = options.read_ahead_kb.filter(|&kb| kb.saturating_mul(1024) > out.max_readahead)
            && let Err(error) = mount::set_read_ahead(mounted.device, kb)
        {
            shared.log(LogEvent::ReadAheadNotSet { message: error.to_string() });
        }
        if shared.negotiated.collects_writes()
            && let Err(error) = mount::set_dirty_percent(mounted.device, options.dirty_percent)
        {
            shared.log(LogEvent::DirtyLimitNotSet { message: error.to_string() });
        }
        Ok(shared)
    }

    /// Where the file system is mounted: absolute, without symbolic links.
    pub fn mountpoint(&self) -> &Path {
        &self.mounted.mountpoint
    }

    /// Protocol that kernel and session agreed on.
    pub fn negotiated(&self) -> &Negotiated {
        &self.shared.negotiated
    }

    /// Sends notifications for this mount.
    pub fn notifier(&self) -> Notifier {
        self.shared.notifier.clone()
    }

    /// Threads that serve now.
    pub fn threads(&self) -> usize {
        self.shared.threads.live()
    }

    /// Detaches the mount. With [`UnmountMode::Clean`] and [`UnmountMode::Force`] it returns when
    /// the handler's `destroy` has returned; with [`UnmountMode::Lazy`] at once, and the session
    /// goes on for files that are open. Copies of the mount in other mount namespaces answer
    /// `ENOTCONN` from then on [session.3]; files that are open there are waited for some seconds,
    /// and with [`UnmountMode::Force`] not at all. A mount that is gone already is no error. Never
    /// call it from a handler.
    pub fn unmount(&self, mode: UnmountMode) -> Result<(), Error> {
        mount::unmount(&self.mounted, mode)?;
        let patience = if self.is_connected() { COPIES_TIMEOUT } else { ENDING_TIMEOUT };
        if mode == UnmountMode::Lazy || self.wait_timeout(patience).is_some() {
            return Ok(());
        }
        let deadline = Instant::now() + UNMOUNT_TIMEOUT;
        let mut may_cut = true;
        loop {
            let unused = mode == UnmountMode::Force || self.shared.open_handles.load(Ordering::SeqCst) <= 0;
            if !self.is_connected() {
                // Only handlers that are at work are waited for.
                self.wait();
                return Ok(());
            }
            if may_cut && unused {
                let event = match self.cut() {
                    Ok(()) => LogEvent::CutElsewhere,
                    Err(error) => LogEvent::NotCut { message: error.to_string() },
                };
                may_cut = matches!(event, LogEvent::CutElsewhere);
                self.shared.log(event);
            } else if self.wait_timeout(ELSEWHERE_POLL).is_some() {
                return Ok(());
            } else if Instant::now() > deadline {
                return Err(Error::HeldElsewhere { path: self.mounted.mountpoint.clone() });
            }
        }
    }

    /// False once the kernel has ended the connection, though threads may still be at work.
    fn is_connected(&self) -> bool {
        let Some(fd) = self.shared.first_fd() else { return false };
        let mut poll_fd = [PollFd::new(&*fd, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut poll_fd, Some(&at_once)).is_err() || !poll_fd[0].revents().contains(PollFlags::ERR)
    }

    /// Ends the connection under all copies of the mount. One that has ended by itself is left
    /// alone.
    fn cut(&self) -> std::io::Result<()> {
        let abort = mount::open_abort(&self.mounted)?;
        // The number in the file's name is free for another mount as soon as this one ends. If this
        // one has not ended now, it had not when the file was opened, so the file is ours; and
        // should it end before the write, the kernel has taken the file's meaning away.
        if self.is_connected() {
            rustix::io::write(&abort, b"1")?;
        }
        Ok(())
    }

    /// Makes the kernel write out the changed pages of the mount, those of mapped files included,
    /// and waits until they are answered. The handler is asked to make nothing durable. `files`:
    /// number and generation of each file with a descriptor that may change its pages; of others
    /// the kernel holds none back.
    /// Without the right to open files by handle (root has it) the last writes may come after this.
    ///
    /// The caller must hold no lock that a request of the mount may need.
    ///
    /// # Errors
    /// The mount cannot be reached, or a page could not be written.
    pub fn write_out(&self, files: &[(u64, u64)]) -> std::io::Result<()> {
        write_out::write_out(self.mountpoint(), files, &self.shared.own_syncs)
    }

    /// The pages that the kernel holds back of this mount.
    pub fn held_pages(&self) -> HeldPages {
        HeldPages::of(&self.mounted)
    }

    /// Waits until the file system is unmounted, by any process.
    pub fn wait(&self) -> EndReason {
        let mut end = self.shared.lock_end();
        while !end.done {
            end = self.shared.ended.wait(end).unwrap_or_else(|e| e.into_inner());
        }
        end.reason.clone().unwrap_or(EndReason::Unmounted)
    }

    /// As [`Session::wait`], but gives up after `timeout`.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<EndReason> {
        let deadline = Instant::now() + timeout;
        let mut end = self.shared.lock_end();
        while !end.done {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            end = self.shared.ended.wait_timeout(end, left).unwrap_or_else(|e| e.into_inner()).0;
        }
        Some(end.reason.clone().unwrap_or(EndReason::Unmounted))
    }

    /// Is it in this process's mount namespace? True if that cannot be found out.
    pub fn is_attached(&self) -> bool {
        mount::is_mounted(&self.mounted).unwrap_or(true)
    }

    /// Has the session ended? What the kernel has ended, as umount(8) does, counts as soon as it
    /// has: threads need a moment to leave, and are waited for. Only if handlers are at work for
    /// longer than a second it has not.
    pub fn has_ended(&self) -> bool {
        self.shared.lock_end().done || !self.is_connected() && self.wait_timeout(ENDING_TIMEOUT).is_some()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = mount::unmount(&self.mounted, UnmountMode::Lazy);
            // Files that are still open elsewhere keep the threads; they end by themselves.
            let _ = self.wait_timeout(DROP_TIMEOUT);
        }
    }
}

/// Does the kernel drop what others have of a file in the page cache before *and after* a direct
/// write? Before protocol 7.45 it only did so before, and a page that was read meanwhile stayed as
/// it was for ever. The write-back cache wants its pages.
fn direct_writes_are_coherent(out: &InitOut) -> bool {
    out.minor >= 45 && out.flags & flag::DIRECT_IO_ALLOW_MMAP != 0 && out.flags & flag::WRITEBACK_CACHE == 0
}

impl Shared {
    fn log(&self, event: LogEvent) {
        if let Some(log) = &self.log {
            // A log sink that panics must not take a thread with it.
            let _ = catch_unwind(AssertUnwindSafe(|| log(&event)));
        }
    }

    fn lock_end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn first_fd(&self) -> Option<Arc<OwnedFd>> {
        self.fd.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Starts one thread with its own descriptor and buffers.
    fn add_thread(shared: &Arc<Self>) -> std::io::Result<()> {
        let Some(first) = shared.first_fd() else {
            return Err(std::io::Error::other("the session has ended"));
        };
        let fd = if shared.clone_device { Arc::new(device::clone(&first)?) } else { first };
        let Some(seat) = shared.threads.join() else {
            return Err(std::io::Error::other("there are as many threads as allowed"));
        };
        let thread = shared.clone();
        // The seat is given to the thread in a place from which it can be taken back if there is no
        // thread.
        let place = Arc::new(Mutex::new(Some(seat)));
        let taken = place.clone();
        let spawned =
            std::thread::Builder::new().name("fuse".into()).stack_size(STACK_SIZE).spawn(move || {
                let seat = taken.lock().unwrap_or_else(|e| e.into_inner()).take();
                thread.serve(&fd, seat.expect("the seat is put in before the thread starts"));
            });
        if let Err(error) = spawned {
            if let Some(seat) = place.lock().unwrap_or_else(|e| e.into_inner()).take() {
                shared.threads.leave(seat);
            }
            return Err(error);
        }
        Ok(())
    }

    /// Starts the supervisor, and the threads that notify and forget.
    fn start_helpers(self: &Arc<Self>) -> Result<(), Error> {
        let failed = |source| Error::ThreadNotStarted { source };
        let shared = self.clone();
        std::thread::Builder::new()
            .name("fuse-crew".into())
            .spawn(move || {
                let mut peak = shared.threads.base();
                let add = || match Self::add_thread(&shared) {
                    Ok(()) => {
                        // Growing and shrinking is daily business; a new maximum is news.
                        let threads = shared.threads.live();
                        if threads > peak {
                            peak = threads;
                            shared.log(LogEvent::ThreadsGrown { threads });
                        }
                        true
                    }
                    Err(error) => {
                        shared.log(LogEvent::ThreadFailed { message: error.to_string() });
                        false
                    }
                };
                shared.threads.supervise(add, |threads| shared.log(LogEvent::ThreadsExhausted { threads }));
            })
            .map_err(failed)?;
        let shared = self.clone();
        std::thread::Builder::new()
            .name("fuse-forget".into())
            .spawn(move || shared.forgets.run(|message| shared.forget(message)))
            .map_err(failed)?;
        if let Some(fd) = self.first_fd() {
            let shared = self.clone();
            std::thread::Builder::new()
                .name("fuse-notify".into())
                .spawn(move || shared.notifier.run(&fd, |event| shared.log(event)))
                .map_err(failed)?;
        }
        Ok(())
    }

    /// The life of one thread.
    fn serve(&self, fd: &Arc<OwnedFd>, mut seat: ThreadSeat) {
        let mut request = RequestBuffer::new(self.negotiated.max_write);
        let mut out = ReplyBuffer::new(self.negotiated.max_read);
        let mut cut = false;
        // A polling thread changes the descriptor's flags, so it needs one of its own.
        let mut poller =
            device::RequestPoller::new(if self.clone_device { self.poll } else { Duration::ZERO });
        let mut put_off = PutOff::default();
        let reason = loop {
            // Requests that wait by now are served before those for durability, and share their
            // flush.
            let received = match put_off.is_due() {
                Some(false) => match poller.glance(fd, &mut request) {
                    Received::Message(len) => Received::Message(len),
                    _ => Received::Again,
                },
                Some(true) => Received::Again,
                None => self.threads.idle(|| poller.receive(fd, &mut request, || self.threads.may_rest())),
            };
            match received {
                Received::Message(len) => {
                    if poller.backlog >= BACKLOG_MAX {
                        poller.backlog = 0;
                        self.threads.call();
                    }
                    let message = request.message(len);
                    let mut serve = |put_off: &mut PutOff| {
                        self.threads.busy(&mut seat, || self.answer(fd, message, &mut out, Some(put_off)))
                    };
                    if !serve(&mut put_off) {
                        self.sync(fd, &mut seat, &mut out, &mut put_off);
                        self.threads.busy(&mut seat, || self.answer(fd, message, &mut out, None));
                    }
                    if !poller.looks_about() || self.threads.may_rest() {
                        // Others serve meanwhile, and what they are asked shares the flush all the
                        // same.
                        self.sync(fd, &mut seat, &mut out, &mut put_off);
                    }
                    if put_off.syncs.is_empty() {
                        seat = match self.threads.leave_if_surplus(seat) {
                            Ok(()) => return,
                            Err(seat) => seat,
                        };
                    }
                }
                Received::Again if put_off.is_due().is_some() => {
                    self.sync(fd, &mut seat, &mut out, &mut put_off);
                }
                Received::Again => {}
                Received::Rest => self.threads.rest(),
                Received::Unmounted => break EndReason::Unmounted,
                // The kernel also says this when an unmount meets a request half read. Only the
                // second answer counts.
                Received::Aborted if !cut => cut = true,
                Received::Aborted => break EndReason::Aborted,
                Received::Failed(errno) => break EndReason::Failed(errno.to_string()),
            }
        };
        self.lock_end().reason.get_or_insert(reason);
        self.threads.dismiss();
        if self.threads.leave(seat) {
            self.left();
        }
    }

    /// Serves what was put off.
    fn sync(&self, fd: &Arc<OwnedFd>, seat: &mut ThreadSeat, out: &mut ReplyBuffer, put_off: &mut PutOff) {
        for message in std::mem::take(put_off).syncs {
            self.threads.busy(seat, || self.answer(fd, &message, out, None));
        }
    }

    /// Runs once, when no thread serves any more. (The supervisor may add a thread just as the last
    /// one leaves; it finds the connection dead, leaves at once, and is not the last a second
    /// time.)
    fn finish(&self) {
        if std::mem::replace(&mut self.lock_end().begun, true) {
            return;
        }
        self.fd.lock().unwrap_or_else(|e| e.into_inner()).take();
        self.threads.end();
        self.pool.end();
        self.notifier.end();
        self.forgets.end();
        if let Some(idle_poll) = &self.idle_poll {
            idle_poll.end();
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.handler.destroy())) {
            let message = panic_message(panic.as_ref());
            self.log(LogEvent::HandlerPanicked { opcode: 0, unique: 0, message });
        }
        self.lock_end().done = true;
        self.ended.notify_all();
    }

    /// Works off a message that was well-formed when it came.
    fn forget(&self, message: &[u8]) {
        let Ok(incoming) = decode(message, self.dialect) else { return };
        let served = dispatch::serve(self.handler.as_ref(), &incoming, &mut [0; dispatch::OUT_MIN]);
        if let Some(message) = served.panicked {
            let (opcode, unique) = (incoming.header.opcode, incoming.header.unique);
            self.log(LogEvent::HandlerPanicked { opcode, unique, message });
        }
    }

    /// An FSYNC of [`Session::write_out`], see [`write_out`].
    fn is_own_sync(&self, incoming: &Incoming<'_>) -> bool {
        matches!(incoming.operation, Operation::Fsync { .. }) && self.own_syncs.has(incoming.header.pid)
    }

    /// Serves one message. With a place to put things off, what asks to be durable goes there; and
    /// while something is there, what would have to wait is not served: false.
    fn answer(
        &self,
        fd: &Arc<OwnedFd>,
        message: &[u8],
        out: &mut ReplyBuffer,
        put_off: Option<&mut PutOff>,
    ) -> bool {
        if let Some(idle_poll) = &self.idle_poll {
            idle_poll.count();
        }
        let incoming = match decode(message, self.dialect) {
            Ok(incoming) => incoming,
            Err(error) => {
                let header = InHeader::decode(message).ok();
                self.log(LogEvent::MalformedRequest { error, unique: header.map(|h| h.unique) });
                if let Some(header) = header {
                    let _ = send(fd, &encode_error(Errno::EIO, header.unique));
                }
                return true;
            }
        };
        let is_large =
            matches!(incoming.operation, Operation::BatchForget { .. }) && message.len() >= LARGE_BYTES;
        if is_large && self.forgets.push(message) {
            return true;
        }
        let may_wait = put_off.as_ref().is_none_or(|put_off| put_off.syncs.is_empty());
        let (opcode, unique) = (incoming.header.opcode, incoming.header.unique);
        if self.is_own_sync(&incoming) {
            Later::new(fd, unique).answer(Ok(()));
            return true;
        }
        if matches!(incoming.operation, Operation::Fsync { .. } | Operation::Fsyncdir { .. }) {
            if let Some(put_off) = put_off {
                put_off.syncs.push(message.to_vec());
                return true;
            }
            let (header, later) = (&incoming.header, Later::new(fd, unique));
            let request = Request { unique, pid: header.pid, ..Request::by(header.uid, header.gid) };
            match catch_unwind(AssertUnwindSafe(|| self.handler.fsync_later(&request, header.nodeid, later)))
            {
                Ok(None) => return true,
                Ok(Some(later)) => {
                    later.give_up();
                    // This will take a commit: others shall not wait for the supervisor to notice.
                    self.threads.call();
                }
                Err(panic) => {
                    let message = panic_message(panic.as_ref());
                    self.log(LogEvent::HandlerPanicked { opcode, unique, message });
                    return true;
                }
            }
        }
        if !may_wait {
            put_off.expect("something is there").passed += 1;
            if !self.handler.is_quick(&incoming.operation) {
                return false;
            }
        }
        let Served { outcome, stale, panicked } =
            dispatch::serve_waiting(self.handler.as_ref(), &incoming, out.payload(), may_wait);
        if !may_wait && outcome == Outcome::Failed(Errno::EAGAIN) {
            return false;
        }
        if let Some(ino) = stale {
            // Attributes alone are forgotten without any lock, and the inode is open: this cannot
            // wait for anyone.
            let _ = send(fd, &Notification::InvalInode { ino, offset: -1, length: 0 }.encode());
        }
        if let Some(message) = panicked {
            self.log(LogEvent::HandlerPanicked { opcode, unique, message });
        }
        // Counted before the kernel knows, so that a release never comes first.
        self.open_handles.fetch_add(handles_gained(&incoming.operation, outcome), Ordering::SeqCst);
        let sent = match outcome {
            Outcome::Silent => return true,
            Outcome::Failed(errno) => send(fd, &encode_error(errno, unique)),
            Outcome::Filled(len) => {
                let header = encode_out_header(OUT_HEADER_SIZE + len, 0, unique);
                send(fd, out.message(&header, len))
            }
        };
        match sent {
            // NOENT: the connection was cut while we worked (a request in a server's hands is never
            // withdrawn).
            Ok(()) | Err(OsErrno::NOENT | OsErrno::NODEV | OsErrno::CONNABORTED) => {}
            Err(errno) => {
                self.log(LogEvent::ReplyRefused { opcode, unique, error: errno.to_string() });
                // If the kernel has not failed the request itself by now, this does.
                let _ = send(fd, &encode_error(Errno::EIO, unique));
            }
        }
        true
    }
}

/// Serves the requests of the queues' threads and their workers.
impl Server for Shared {
    fn serve(&self, entry: &mut uring::Entry, may_wait: bool, scratch: &mut Vec<u8>) -> bool {
        if let Some(idle_poll) = &self.idle_poll {
            idle_poll.count();
        }
        let (header, fixed) = (entry.header(), entry.fixed());
        let (payload, size) = entry.payload();
        // Names are copied out, so that the answer can be filled in where they lie. The data of a
        // WRITE are not, and its answer is short.
        let mut short = [0; dispatch::OUT_MIN];
        let is_write = header.opcode == opcode::WRITE;
        let (rest, out) = if is_write {
            (&payload[..size], &mut short[..])
        } else {
            scratch.clear();
            scratch.extend_from_slice(&payload[..size]);
            (&scratch[..], &mut payload[..])
        };
        let incoming = match decode_parts(header, Parts::Split { fixed: &fixed, payload: rest }, self.dialect)
        {
            Ok(incoming) => incoming,
            Err(error) => {
                self.log(LogEvent::MalformedRequest { error, unique: Some(header.unique) });
                entry.answer(&encode_error(Errno::EIO, header.unique), 0);
                return true;
            }
        };
        if self.is_own_sync(&incoming) {
            entry.answer(&encode_out_header(OUT_HEADER_SIZE, 0, header.unique), 0);
            return true;
        }
        if !may_wait && !self.handler.is_quick(&incoming.operation) {
            return false;
        }
        let Served { outcome, stale, panicked } =
            dispatch::serve_waiting(self.handler.as_ref(), &incoming, out, may_wait);
        if !may_wait && outcome == Outcome::Failed(Errno::EAGAIN) {
            if !is_write {
                payload[..size].copy_from_slice(scratch);
            }
            return false;
        }
        if let (Some(ino), Some(fd)) = (stale, self.first_fd()) {
            // As in `answer`.
            let _ = send(&fd, &Notification::InvalInode { ino, offset: -1, length: 0 }.encode());
        }
        if let Some(message) = panicked {
            self.log(LogEvent::HandlerPanicked { opcode: header.opcode, unique: header.unique, message });
        }
        self.open_handles.fetch_add(handles_gained(&incoming.operation, outcome), Ordering::SeqCst);
        match outcome {
            Outcome::Filled(len) => {
                if is_write {
                    payload[..len].copy_from_slice(&short[..len]);
                }
                entry.answer(&encode_out_header(OUT_HEADER_SIZE + len, 0, header.unique), len);
            }
            Outcome::Failed(errno) => entry.answer(&encode_error(errno, header.unique), 0),
            // Those that want no answer come over /dev/fuse.
            Outcome::Silent => entry.answer(&encode_error(Errno::EIO, header.unique), 0),
        }
        true
    }

    fn failed(&self, message: String) {
        self.log(LogEvent::QueueFailed { message });
    }

    /// The session's threads have left, or a queue's thread. The last one ends the session.
    fn left(&self) {
        if self.serving.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.finish();
        }
    }
}
