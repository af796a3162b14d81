//! `/dev/fuse`: opening, cloning, reading requests, writing replies, and the memory for both.

use crate::error::Error;
use crate::wire::{IN_HEADER_SIZE, OUT_HEADER_SIZE, WRITE_IN_SIZE};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as OsErrno;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

const DEVICE: &str = "/dev/fuse";

/// Opens a fresh, unconnected device.
pub(crate) fn open() -> Result<OwnedFd, Error> {
    match rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => Ok(fd),
        Err(OsErrno::NOENT | OsErrno::NODEV | OsErrno::NXIO) => Err(Error::DeviceMissing),
        Err(source) => Err(Error::DeviceRefused { source: source.into() }),
    }
}

/// Writes one message: a reply or a notification.
pub(crate) fn send(fd: &OwnedFd, message: &[u8]) -> rustix::io::Result<()> {
    loop {
        match rustix::io::write(fd, message) {
            Err(OsErrno::INTR | OsErrno::AGAIN) => {}
            Err(errno) => return Err(errno),
            Ok(_) => return Ok(()),
        }
    }
}

/// A further descriptor of the connection that `of` belongs to. Requests come to whichever
/// descriptor is read first; a reply must be written to the one that the request was read from.
pub(crate) fn clone(of: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);
    let fd = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let number = u32::try_from(of.as_raw_fd()).map_err(|_| OsErrno::BADF)?;
    // SAFETY: FUSE_DEV_IOC_CLONE takes a pointer to a u32 that holds a descriptor number and only
    // reads it; `of` is borrowed, so the number stays valid during the call.
    unsafe { rustix::ioctl::ioctl(&fd, rustix::ioctl::Setter::<CLONE, u32>::new(number))? };
    Ok(fd)
}

/// Result of reading a request.
pub(crate) enum Received {
    /// A request of so many bytes.
    Message(usize),
    /// Nothing this time: try again.
    Again,
    /// Nothing for some time, and others listen.
    Rest,
    /// The mount is gone.
    Unmounted,
    /// The connection was cut from outside.
    Aborted,
    /// Something we do not know how to go on from.
    Failed(OsErrno),
}

/// Waits for the next request.
pub(crate) fn receive(fd: impl AsFd, buffer: &mut RequestBuffer) -> Received {
    match rustix::io::read(fd, buffer.space()) {
        // The device never reads an end of file.
        Ok(0) => Received::Again,
        Ok(len) => Received::Message(len),
        // NOENT: the request was taken back while it was being copied. NOMEM: passing.
        Err(OsErrno::INTR | OsErrno::AGAIN | OsErrno::NOENT | OsErrno::NOMEM) => Received::Again,
        Err(OsErrno::NODEV) => Received::Unmounted,
        Err(OsErrno::CONNABORTED) => Received::Aborted,
        Err(errno) => Received::Failed(errno),
    }
}

/// Fruitless looks after which a thread rests, if another one listens.
const COLD_MAX: u32 = 8;
/// Fruitless looks in sequence after which a thread does not look again for [`VAIN_PAUSE`]: the
/// program takes longer, or needs this processor. So looking in vain costs a hundredth of a
/// processor.
const VAIN_MAX: u32 = 3;
const VAIN_PAUSE: Duration = Duration::from_millis(10);
/// How long it does not look about after it found the processors busy with other things, which take
/// them for some milliseconds.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// One thread's way of waiting for requests: awake for a moment as long as they come fast, then
/// asleep.
///
/// To wake a thread takes its waker 5 µs of processor time and the request up to 20 µs, where the
/// processor of the sleeper had nothing to do and is a virtual one; a request that the kernel
/// answers from memory takes less. A polling thread gives way to others each time (`sched_yield`),
/// and stops for a while if they took long.
pub(crate) struct RequestPoller {
    poll: Duration,
    /// The last request came soon.
    is_awake: bool,
    is_blocking: bool,
    /// Requests in sequence that lay there when this thread came for them.
    pub backlog: u32,
    /// Looks in sequence that found nothing.
    cold: u32,
    /// Times in sequence that it was awake and nothing came.
    vain: u32,
    sleeps_until: Instant,
}

impl RequestPoller {
    /// Of a thread that looks about for `poll`; not at all if that is zero. Then its descriptor may
    /// be shared.
    pub fn new(poll: Duration) -> RequestPoller {
        RequestPoller {
            poll,
            is_awake: false,
            is_blocking: true,
            backlog: 0,
            cold: 0,
            vain: 0,
            sleeps_until: Instant::now(),
        }
    }

    /// Waits for the next request. `may_rest` says whether somebody else listens.
    pub fn receive(
        &mut self,
        fd: &OwnedFd,
        buffer: &mut RequestBuffer,
        may_rest: impl FnOnce() -> bool,
    ) -> Received {
        if self.poll.is_zero() {
            return receive(fd, buffer);
        }
        self.set_blocking(fd, false);
        match receive(fd, buffer) {
            Received::Again => {}
            received => {
                self.backlog += 1;
                return received;
            }
        }
        self.backlog = 0;
        let begin = Instant::now();
        if self.is_awake && begin >= self.sleeps_until {
            let mut looked = begin;
            while looked - begin <= self.poll {
                std::thread::yield_now();
                match receive(fd, buffer) {
                    Received::Again => {}
                    received => {
                        (self.cold, self.vain) = (0, 0);
                        return received;
                    }
                }
                let now = Instant::now();
                if now - looked > self.poll {
                    self.sleeps_until = now + BUSY_PAUSE;
                }
                looked = now;
            }
            self.vain += 1;
            if self.vain >= VAIN_MAX {
                self.vain = 0;
                self.sleeps_until = self.sleeps_until.max(looked + VAIN_PAUSE);
            }
        }
        self.cold = self.cold.saturating_add(1);
        if self.cold >= COLD_MAX && may_rest() {
            self.cold = 0;
            return Received::Rest;
        }
        self.set_blocking(fd, true);
        let received = receive(fd, buffer);
        self.is_awake = begin.elapsed() < 2 * self.poll;
        received
    }

    /// True if it does more than sleep.
    pub fn looks_about(&self) -> bool {
        !self.poll.is_zero()
    }

    /// A request that waits already.
    pub fn glance(&mut self, fd: &OwnedFd, buffer: &mut RequestBuffer) -> Received {
        self.set_blocking(fd, false);
        receive(fd, buffer)
    }

    fn set_blocking(&mut self, fd: &OwnedFd, blocking: bool) {
        if self.is_blocking != blocking {
            let flags = if blocking { OFlags::RDWR } else { OFlags::RDWR | OFlags::NONBLOCK };
            // If this fails, the thread polls more or less often than it should, and no more.
            let _ = rustix::fs::fcntl_setfl(fd, flags);
            self.is_blocking = blocking;
        }
    }
}

/// The smallest payload capacity: extended attributes of 64 KiB must fit whatever `max_write` is.
const PAYLOAD_MIN: usize = 128 << 10;

/// Memory for one request, laid out so that the data of a WRITE begin on a page boundary: the
/// header and the WRITE structure lie just below it. With a handler that does nothing, 1 MiB writes
/// of one client ran at 5.9-6.9 GB/s so, and at 4.2-5.5 GB/s with the whole message on a boundary
/// and the data 80 bytes after it (three runs each on a loaded machine, `benches/round_trip.rs`).
pub(crate) struct RequestBuffer {
    pages: Pages,
    start: usize,
}

impl RequestBuffer {
    const PREFIX: usize = IN_HEADER_SIZE + WRITE_IN_SIZE;

    pub fn new(max_write: usize) -> Self {
        let page = rustix::param::page_size();
        // One page before the boundary and one after the data, for names behind odd structures.
        let pages = Pages::new(page + max_write.max(PAYLOAD_MIN).next_multiple_of(page) + page, page);
        Self { start: page - Self::PREFIX, pages }
    }

    /// Where a request is read to.
    pub fn space(&mut self) -> &mut [u8] {
        let start = self.start;
        &mut self.pages.as_mut()[start..]
    }

    /// The request that was read.
    pub fn message(&self, len: usize) -> &[u8] {
        &self.pages.as_ref()[self.start..self.start + len]
    }
}

/// Memory for one reply: the payload begins on a page boundary, the header just below it.
pub(crate) struct ReplyBuffer {
    pages: Pages,
    payload: usize,
}

impl ReplyBuffer {
    pub fn new(max_read: usize) -> Self {
        let page = rustix::param::page_size();
        let pages = Pages::new(page + max_read.max(PAYLOAD_MIN).next_multiple_of(page), page);
        Self { payload: page, pages }
    }

    /// The part of the buffer that a handler fills.
    pub fn payload(&mut self) -> &mut [u8] {
        let payload = self.payload;
        &mut self.pages.as_mut()[payload..]
    }

    /// The whole reply: header and `len` bytes of payload.
    pub fn message(&mut self, header: &[u8; OUT_HEADER_SIZE], len: usize) -> &[u8] {
        let start = self.payload - OUT_HEADER_SIZE;
        let message = &mut self.pages.as_mut()[start..self.payload + len];
        message[..OUT_HEADER_SIZE].copy_from_slice(header);
        message
    }
}

/// Zeroed memory on a page boundary; pages that are never touched cost nothing.
pub(crate) struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    pub fn new(size: usize, page: usize) -> Self {
        let layout = Layout::from_size_align(size, page).expect("a page size is a power of two");
        assert!(size > 0, "buffers have at least one page");
        // SAFETY: the layout's size is not zero, asserted above.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Self { start, layout },
            None => handle_alloc_error(layout),
        }
    }

    pub fn as_ref(&self) -> &[u8] {
        // SAFETY: `start` points to `layout.size()` bytes, zeroed at birth, owned by self until
        // drop.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }

    pub fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_ref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

// SAFETY: the memory is owned by the value alone, like a Box<[u8]>.
unsafe impl Send for Pages {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_data_and_read_payload_lie_on_page_boundaries() {
        let page = rustix::param::page_size();
        let mut request = RequestBuffer::new(1 << 20);
        assert!(request.space().len() >= 80 + (1 << 20));
        assert_eq!(request.space()[80..].as_ptr() as usize % page, 0);
        let mut reply = ReplyBuffer::new(1 << 20);
        assert_eq!(reply.payload().as_ptr() as usize % page, 0);
        assert!(reply.payload().len() >= 1 << 20);
        assert_eq!(reply.message(&[7; 16], 3).len(), 19);
    }

    #[test]
    fn small_writes_still_leave_room_for_large_attributes() {
        assert!(RequestBuffer::new(4096).space().len() > 65536 + 512);
        assert!(ReplyBuffer::new(4096).payload().len() >= 65536);
    }
}
