//! # Requests over the kernel's io_uring queues
//!
//! ## Why
//! Over `/dev/fuse` a request costs two system calls (read it, answer it) and wakes whichever
//! thread has slept longest, often on another processor. Over a queue one system call answers a
//! request and waits for the next, and a program is served on the processor it runs on: the kernel
//! has a queue for each.
//!
//! ## The way of a request
//! ```text
//!   program on CPU k ─► entry of queue k ─► copied in the context of the thread that submitted it
//!                                                                             ─► completion
//!     ─ quick ─────────────────► served by that thread ─► answer and next request: one system call
//!     ─ not quick, or it waits ─► worker ─► list of answered entries, bell
//!                                                       ─► the queue's thread sends the answer
//! ```
//! An *entry* is memory for one request and its answer, registered with a queue. FORGET and
//! INTERRUPT still come over `/dev/fuse`, so the session's threads go on reading that.
//!
//! ## Why nothing hangs
//! The kernel copies a request in the context of the thread that submitted the entry: if that
//! thread sleeps where no signal reaches it, its entries are out of reach, whoever else waits for
//! completions. So a queue's thread runs quick handlers only
//! ([`Handler::is_quick`](crate::Handler::is_quick)) and tells them not to wait.
//!
//! A request that finds no entry free waits in the kernel until one comes back *with an answer*: an
//! entry that is registered later serves only requests that come later still. So a queue cannot
//! grow when its handlers block, and has as many entries from the start as `/dev/fuse` may have
//! threads. Those never used cost no memory: the kernel takes the one used last.
//!
//! ## Invariants
//! [uring.1] Only a queue's own thread submits to its ring, and it runs no handler that may wait
//!      for a commit, for another request, or for the mount itself.
//!      test: `blocked_handlers_do_not_use_up_a_queue`
//! [uring.2] An entry's memory is the kernel's from submission to completion, and one thread's
//!      otherwise: it is a value that moves (`Entry`), and while the kernel has it nobody holds it
//!      but `Slot::Kernel`, which is not looked into.
//! [uring.3] A queue has [`ENTRIES`] entries: as long as fewer handlers of one queue block, it
//!      serves others.
//! [uring.4] A queue's thread leaves only when the kernel has given every entry back for good.
//!
//! The protocol's constants and layouts are those of the kernel's `linux/fuse.h`, 7.42 and later.

use crate::device::Pages;
use crate::wire::{IN_HEADER_SIZE, InHeader, OUT_HEADER_SIZE};
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::event::EventfdFlags;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno as OsErrno;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Entries of a queue [uring.3].
const ENTRIES: usize = 64;
/// How long a worker waits for work before it leaves.
const WORKER_PATIENCE: Duration = Duration::from_secs(5);

/// Commands.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// | off | len | field                                             |
/// |-----|-----|---------------------------------------------------|
/// |   0 | 128 | header of the request, later that of the answer   |
/// | 128 | 128 | fixed structure of the request                    |
/// | 256 |   8 | flags                                             |
/// | 264 |   8 | commit id                                         |
/// | 272 |   4 | bytes of payload, of the request or of the answer |
/// | 276 |  12 | padding, reserved                                 |
const HEADERS_SIZE: usize = 288;
const FIXED_AT: usize = 128;
pub(crate) const FIXED_SIZE: usize = 128;
const COMMIT_ID_AT: usize = 264;
const PAYLOAD_SIZE_AT: usize = 272;

/// A submission's `len`: where the kernel's structure has it.
const SQE_LEN_AT: usize = 24;
/// Segments that an entry's memory has: headers and payload.
const SEGMENTS: u32 = 2;

/// Marks the completion of a read of the bell.
const BELL: u64 = u64::MAX;

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// Memory of one entry [uring.2].
pub(crate) struct Entry {
    headers: Pages,
    payload: Pages,
    /// Buffers that the kernel reads when the entry is registered.
    segments: [libc::iovec; 2],
}

// SAFETY: `segments` point into the two blocks that the value owns, and nothing but the kernel
// follows them.
unsafe impl Send for Entry {}

impl Entry {
    fn new(payload_size: usize) -> Box<Entry> {
        let page = rustix::param::page_size();
        let mut entry = Box::new(Entry {
            headers: Pages::new(HEADERS_SIZE, page),
            payload: Pages::new(payload_size.next_multiple_of(page), page),
            segments: [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2],
        });
        let segment =
            |bytes: &mut [u8]| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        entry.segments = [segment(entry.headers.as_mut()), segment(entry.payload.as_mut())];
        entry
    }

    /// Header of the request.
    pub fn header(&self) -> InHeader {
        InHeader::decode(&self.headers.as_ref()[..IN_HEADER_SIZE]).expect("there are enough bytes")
    }

    /// Field that begins with the fixed structure of the request.
    pub fn fixed(&self) -> [u8; FIXED_SIZE] {
        *self.headers.as_ref()[FIXED_AT..].first_chunk().expect("there are enough bytes")
    }

    /// The memory for payload, and how many bytes of it the request has.
    pub fn payload(&mut self) -> (&mut [u8], usize) {
        let size =
            u32::from_ne_bytes(*self.headers.as_ref()[PAYLOAD_SIZE_AT..].first_chunk().expect("enough"));
        let payload = self.payload.as_mut();
        let size = payload.len().min(size as usize);
        (payload, size)
    }

    /// Puts the answer's header in place; its payload is there already.
    pub fn answer(&mut self, header: &[u8; OUT_HEADER_SIZE], payload_size: usize) {
        let headers = self.headers.as_mut();
        headers[..OUT_HEADER_SIZE].copy_from_slice(header);
        let size = u32::try_from(payload_size).expect("a payload is at most 128 MiB");
        headers[PAYLOAD_SIZE_AT..PAYLOAD_SIZE_AT + 4].copy_from_slice(&size.to_ne_bytes());
    }

    fn commit_id(&self) -> u64 {
        u64::from_ne_bytes(*self.headers.as_ref()[COMMIT_ID_AT..].first_chunk().expect("enough"))
    }
}

/// The session as the queues need it.
pub(crate) trait Server: Send + Sync + 'static {
    /// Serves the request in `entry` and puts the answer there. False, with the request as it was,
    /// if it cannot be served without waiting and `may_wait` does not allow that. `scratch` is
    /// memory to be used again.
    fn serve(&self, entry: &mut Entry, may_wait: bool, scratch: &mut Vec<u8>) -> bool;
    /// Something went wrong that an operator may want to know.
    fn failed(&self, message: String);
    /// A queue's thread leaves.
    fn left(&self);
}

/// Queues whose rings are made and whose threads wait. Dropping it ends them.
pub(crate) struct Prepared(Vec<Sender<Start>>);

struct Start {
    server: Arc<dyn Server>,
    fd: Arc<OwnedFd>,
    pool: Arc<Pool>,
    payload_size: usize,
}

/// Makes a ring for each queue that the kernel will have. Done before the handshake: after it,
/// every request waits until each queue has an entry.
pub(crate) fn prepare() -> io::Result<Prepared> {
    let mut starts = Vec::new();
    let (ready, outcome) = channel();
    for queue in 0..queue_count()? {
        let (start, wait) = channel();
        let ready = ready.clone();
        let body = move || {
            let made = Queue::new(queue);
            let queue = match made {
                Ok(queue) => queue,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let _ = ready.send(Ok(()));
            drop(ready);
            queue.live(&wait);
        };
        std::thread::Builder::new().name(format!("fuse-queue{queue}")).stack_size(4 << 20).spawn(body)?;
        starts.push(start);
    }
    drop(ready);
    outcome.iter().collect::<io::Result<Vec<()>>>()?;
    Ok(Prepared(starts))
}

/// The kernel makes a queue for each processor that may ever be there.
fn queue_count() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count_list(text.trim())
        .ok_or_else(|| io::Error::other(format!("'{}' is no list of processors", text.trim())))
}

/// Members of a list like `0-3,8`.
fn count_list(list: &str) -> Option<usize> {
    list.split(',').try_fold(0, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(sum + last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    })
}

impl Prepared {
    /// Queues, each with a thread.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The handshake is done: each thread registers entries and serves.
    pub fn start(self, server: &Arc<dyn Server>, fd: &Arc<OwnedFd>, pool: &Arc<Pool>, payload_size: usize) {
        for start in self.0 {
            let (server, fd, pool) = (server.clone(), fd.clone(), pool.clone());
            start.send(Start { server, fd, pool, payload_size }).expect("the thread waits for this");
        }
    }
}

/// Where workers leave answered entries.
struct Home {
    answered: Mutex<Vec<(usize, Box<Entry>)>>,
    bell: OwnedFd,
}

impl Home {
    fn lock(&self) -> MutexGuard<'_, Vec<(usize, Box<Entry>)>> {
        self.answered.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn give_back(&self, slot: usize, entry: Box<Entry>) {
        let mut answered = self.lock();
        answered.push((slot, entry));
        // The first one rings; the queue's thread takes all.
        if answered.len() == 1 {
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }
}

/// Holder of an entry.
enum Slot {
    /// The kernel: the memory must stay where it is and not be looked at.
    Kernel(#[allow(dead_code, reason = "kept alive, not looked at [uring.2]")] Box<Entry>),
    /// A worker.
    Worker,
    /// Nobody: the kernel gave it back for good.
    Gone,
}

/// One queue, owned by its thread.
struct Queue {
    number: usize,
    ring: Ring,
    home: Arc<Home>,
    /// The bell is read to here.
    rung: Box<[u8; 8]>,
    is_bell_armed: bool,
    slots: Vec<Slot>,
    gone: usize,
}

impl Queue {
    fn new(number: usize) -> io::Result<Queue> {
        let mut cpus = CpuSet::new();
        cpus.set(number);
        // A processor that is not there now has no programs to serve either.
        let _ = sched_setaffinity(None, &cpus);
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(u32::try_from(2 * ENTRIES).expect("small"))?;
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Queue {
            number,
            ring,
            home: Arc::new(Home { answered: Mutex::default(), bell }),
            rung: Box::new([0; 8]),
            is_bell_armed: false,
            slots: Vec::new(),
            gone: 0,
        })
    }

    /// The life of a queue's thread.
    fn live(mut self, start: &Receiver<Start>) {
        let Ok(Start { server, fd, pool, payload_size }) = start.recv() else { return };
        let mut scratch = Vec::new();
        let mut completed: Vec<(u64, i32)> = Vec::new();
        for slot in 0..ENTRIES {
            self.slots.push(Slot::Gone);
            self.submit(slot, Entry::new(payload_size), REGISTER, 0, &fd);
        }
        loop {
            if self.gone == self.slots.len() {
                break;
            }
            if !self.is_bell_armed {
                self.arm_bell();
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(error) => {
                    // No answer can be sent any more. The entries stay the kernel's, so their
                    // memory stays, too.
                    server.failed(format!("queue {} failed: {error}", self.number));
                    std::mem::forget(self);
                    return server.left();
                }
            }
            completed.extend(self.ring.completion().map(|c| (c.user_data(), c.result())));
            for (user_data, result) in completed.drain(..) {
                if user_data == BELL {
                    self.is_bell_armed = false;
                    continue;
                }
                let slot = usize::try_from(user_data).expect("a slot's number");
                let Slot::Kernel(entry) = std::mem::replace(&mut self.slots[slot], Slot::Gone) else {
                    unreachable!("[uring.2] the kernel completes what it has");
                };
                if result == 0 {
                    self.serve(slot, entry, &*server, &fd, &pool, &mut scratch);
                    continue;
                }
                self.gone += 1;
                let ended = [OsErrno::NOTCONN, OsErrno::CONNABORTED, OsErrno::CANCELED, OsErrno::NODEV];
                let errno = OsErrno::from_raw_os_error(-result);
                if !ended.contains(&errno) {
                    server.failed(format!("the kernel refused an entry of queue {}: {errno}", self.number));
                }
            }
            for (slot, entry) in std::mem::take(&mut *self.home.clone().lock()) {
                self.commit(slot, entry, &fd);
            }
        }
        // The ring's last read of the bell may end after this: its eight bytes stay.
        std::mem::forget(std::mem::take(&mut self.rung));
        drop((self, fd));
        server.left();
    }

    fn serve(
        &mut self,
        slot: usize,
        mut entry: Box<Entry>,
        server: &dyn Server,
        fd: &OwnedFd,
        pool: &Arc<Pool>,
        scratch: &mut Vec<u8>,
    ) {
        if server.serve(&mut entry, false, scratch) {
            return self.commit(slot, entry, fd);
        }
        self.slots[slot] = Slot::Worker;
        let job = Job { home: self.home.clone(), slot, entry };
        if let Err((mut job, error)) = pool.push(job) {
            // Better a queue that waits than a request that nobody serves.
            server.failed(format!("no worker could be started: {error}"));
            server.serve(&mut job.entry, true, scratch);
            self.commit(slot, job.entry, fd);
        }
    }

    /// Sends an answer and makes the entry free for the next request.
    fn commit(&mut self, slot: usize, entry: Box<Entry>, fd: &OwnedFd) {
        let commit_id = entry.commit_id();
        self.submit(slot, entry, COMMIT_AND_FETCH, commit_id, fd);
    }

    fn submit(&mut self, slot: usize, entry: Box<Entry>, command: u32, commit_id: u64, fd: &OwnedFd) {
        // u64 flags, u64 commit id, u16 queue, padding.
        let mut words = [0; 80];
        words[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        let number = u16::try_from(self.number).expect("fewer processors than that");
        words[16..18].copy_from_slice(&number.to_ne_bytes());
        let mut submission = opcode::UringCmd80::new(Fd(fd.as_raw_fd()), command)
            .cmd(words)
            .addr(Some(entry.segments.as_ptr() as u64))
            .build()
            .user_data(slot as u64);
        const _: () = assert!(size_of::<squeue::Entry128>() == 128);
        // SAFETY: a submission is `repr(C)` and 128 bytes long, asserted above, and begins with the
        // kernel's structure, in which these four bytes are a number. The builder leaves no other
        // way to it.
        unsafe {
            let bytes = std::ptr::from_mut(&mut submission).cast::<u8>();
            bytes.add(SQE_LEN_AT).cast::<u32>().write(SEGMENTS);
        }
        self.slots[slot] = Slot::Kernel(entry);
        // SAFETY: `fd` lives as long as this thread serves. The entry's memory is in `slots` until
        // its completion has been seen [uring.2]; if the thread cannot go on, it is leaked.
        unsafe { self.push(&submission) }
    }

    fn arm_bell(&mut self) {
        let read = opcode::Read::new(Fd(self.home.bell.as_raw_fd()), self.rung.as_mut_ptr(), 8);
        let submission: squeue::Entry128 = read.build().user_data(BELL).into();
        self.is_bell_armed = true;
        // SAFETY: the eight bytes live as long as the ring, which is dropped with them, and nobody
        // looks at them.
        unsafe { self.push(&submission) }
    }

    /// # Safety
    /// Memory that the submission points to must live until its completion.
    unsafe fn push(&mut self, submission: &squeue::Entry128) {
        // SAFETY: the caller's promise.
        let pushed = unsafe { self.ring.submission().push(submission) };
        pushed.expect("the ring has room for all entries and the bell");
    }
}

/// Runs handlers that may block, each on a thread of its own.
pub(crate) struct Pool {
    server: Mutex<Option<Arc<dyn Server>>>,
    state: Mutex<Jobs>,
    more: Condvar,
    max: usize,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    idle: usize,
    live: usize,
    ended: bool,
}

struct Job {
    home: Arc<Home>,
    slot: usize,
    entry: Box<Entry>,
}

impl Pool {
    pub fn new(max: usize) -> Arc<Pool> {
        Arc::new(Pool {
            server: Mutex::new(None),
            state: Mutex::default(),
            more: Condvar::new(),
            max: max.max(1),
        })
    }

    /// Sets the server; to be called before the first job.
    pub fn serve_with(&self, server: Arc<dyn Server>) {
        *self.server.lock().unwrap_or_else(|e| e.into_inner()) = Some(server);
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Hands a job to a worker; to a new one if none is free and there may be more. Gives it back
    /// if nobody would ever take it.
    fn push(self: &Arc<Self>, job: Job) -> Result<(), (Job, io::Error)> {
        let mut jobs = self.lock();
        jobs.waiting.push_back(job);
        if jobs.idle >= jobs.waiting.len() || jobs.live >= self.max {
            drop(jobs);
            self.more.notify_one();
            return Ok(());
        }
        jobs.live += 1;
        drop(jobs);
        let pool = self.clone();
        let spawned = std::thread::Builder::new()
            .name("fuse-work".into())
            .stack_size(4 << 20)
            .spawn(move || pool.work());
        let Err(error) = spawned else { return Ok(()) };
        let mut jobs = self.lock();
        jobs.live -= 1;
        if jobs.live > 0 {
            return Ok(()); // somebody will come to it
        }
        Err((jobs.waiting.pop_back().expect("nobody took it"), error))
    }

    /// The life of a worker.
    fn work(&self) {
        let Some(server) = self.server.lock().unwrap_or_else(|e| e.into_inner()).clone() else { return };
        let mut scratch = Vec::new();
        let mut jobs = self.lock();
        loop {
            if let Some(Job { home, slot, mut entry }) = jobs.waiting.pop_front() {
                drop(jobs);
                server.serve(&mut entry, true, &mut scratch);
                home.give_back(slot, entry);
                jobs = self.lock();
                continue;
            }
            if jobs.ended {
                break;
            }
            jobs.idle += 1;
            let (after, waited) =
                self.more.wait_timeout(jobs, WORKER_PATIENCE).unwrap_or_else(|e| e.into_inner());
            jobs = after;
            jobs.idle -= 1;
            if waited.timed_out() && jobs.waiting.is_empty() {
                break;
            }
        }
        jobs.live -= 1;
    }

    /// No more jobs will come: workers leave.
    pub fn end(&self) {
        self.lock().ended = true;
        self.server.lock().unwrap_or_else(|e| e.into_inner()).take();
        self.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!(count_list("0"), Some(1));
        assert_eq!(count_list("0-1"), Some(2));
        assert_eq!(count_list("0-3,8-11,15"), Some(9));
        for wrong in ["", "a", "3-1", "0-"] {
            assert_eq!(count_list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_entry_reads_and_answers_where_the_kernel_looks() {
        let mut entry = Entry::new(1 << 20);
        assert_eq!(entry.segments[0].iov_len, HEADERS_SIZE);
        assert_eq!(entry.segments[1].iov_len, 1 << 20);
        entry.headers.as_mut()[4..8].copy_from_slice(&7u32.to_ne_bytes());
        entry.headers.as_mut()[128] = 9;
        entry.headers.as_mut()[264..272].copy_from_slice(&5u64.to_ne_bytes());
        entry.headers.as_mut()[272..276].copy_from_slice(&3u32.to_ne_bytes());
        assert_eq!((entry.header().opcode, entry.fixed()[0], entry.commit_id()), (7, 9, 5));
        assert_eq!(entry.payload().1, 3);
        entry.answer(&[1; OUT_HEADER_SIZE], 77);
        assert_eq!(entry.headers.as_ref()[..17], [[1; 16].as_slice(), &[0]].concat());
        assert_eq!(entry.payload().1, 77);
        // A size that cannot be is no way out of the memory.
        entry.headers.as_mut()[272..276].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(entry.payload().1, 1 << 20);
    }
}
