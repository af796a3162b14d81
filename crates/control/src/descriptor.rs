//! Descriptors that a command hands to the daemon: the pipe or file that a stream goes to or comes
//! from.
//!
//! The daemon says that it is ready, and the command sends one byte with the descriptor
//! (`SCM_RIGHTS`). From then on the daemon reads or writes the descriptor itself; only progress
//! goes through the socket. If the command ends, or the daemon stops, the stream ends within `LOOK`
//! (200 ms), unless a write is stuck in a pipe that nobody reads.

use crate::api::API_VERSION;
use crate::wire::{Answer, Arrival, Progress, write_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between two checks whether the command still exists.
const LOOK: Duration = Duration::from_millis(200);

/// Bytes that a pipe of a stream holds, if it may. One side sleeps each time it is full or empty.
const PIPE_BYTES: usize = 1 << 20;

/// A descriptor of the command that asks.
#[derive(Clone)]
pub struct Descriptor(Arc<Ends>);

struct Ends {
    data: OwnedFd,
    /// The command's connection.
    peer: UnixStream,
    id: u64,
    stopping: Arc<AtomicBool>,
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Descriptor")
    }
}

impl PartialEq for Descriptor {
    fn eq(&self, other: &Descriptor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Descriptor {}

impl Descriptor {
    /// Asks the command for its descriptor.
    pub(crate) fn ask(peer: &UnixStream, id: u64, stopping: &Arc<AtomicBool>) -> io::Result<Descriptor> {
        let ready = Progress::default();
        let answer = Answer { version: API_VERSION, id, progress: Some(ready), ok: None, refused: None };
        write_line(&mut &*peer, &answer)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(peer, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut rights = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        let data = rights.next().ok_or_else(|| io::Error::other("the command sent no descriptor"))?;
        widen(&data);
        let (peer, stopping) = (peer.try_clone()?, Arc::clone(stopping));
        Ok(Descriptor(Arc::new(Ends { data, peer, id, stopping })))
    }

    /// A descriptor without a command at the other end of the socket: for tests.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn own(data: OwnedFd) -> io::Result<(Descriptor, UnixStream)> {
        let (near, far) = UnixStream::pair()?;
        let stopping = Arc::new(AtomicBool::new(false));
        Ok((Descriptor(Arc::new(Ends { data, peer: near, id: 0, stopping })), far))
    }

    /// Tells the command how far it is.
    pub fn progress(&self, what: &str, bytes: u64, blocks: u64) {
        self.tell(Progress { what: what.to_owned(), bytes, blocks, ..Progress::default() });
    }

    /// Tells the command of a snapshot that begins to arrive, or has.
    pub fn arrival(&self, arrival: Arrival) {
        let (what, bytes) = (arrival.part.snapshot.clone(), arrival.part.bytes);
        self.tell(Progress { what, bytes, arrival: Some(arrival), ..Progress::default() });
    }

    fn tell(&self, progress: Progress) {
        let (id, progress) = (self.0.id, Some(progress));
        let answer = Answer { version: API_VERSION, id, progress, ok: None, refused: None };
        // `wait` notices if the command is gone.
        let _ = write_line(&mut &self.0.peer, &answer);
    }

    /// Waits until the descriptor can be read or written. An error if the command or the daemon
    /// ends.
    fn wait(&self, wanted: PollFlags) -> io::Result<()> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        loop {
            if self.0.stopping.load(Ordering::Relaxed) {
                return Err(io::Error::other("the daemon is stopping"));
            }
            let mut fds = [PollFd::new(&self.0.data, wanted), PollFd::new(&self.0.peer, PollFlags::RDHUP)];
            match poll(&mut fds, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => continue,
                other => _ = other?,
            }
            if fds[1].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR) {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the command ended"));
            }
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
        }
    }
}

impl Read for Descriptor {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.wait(PollFlags::IN)?;
        Ok(rustix::io::read(&self.0.data, out)?)
    }
}

impl Write for Descriptor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(PollFlags::OUT)?;
        Ok(rustix::io::write(&self.0.data, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Has a pipe hold more. Other descriptors stay as they are, and so does a pipe that may not grow.
fn widen(data: &OwnedFd) {
    if rustix::pipe::fcntl_getpipe_size(data).is_ok_and(|bytes| bytes < PIPE_BYTES) {
        let _ = rustix::pipe::fcntl_setpipe_size(data, PIPE_BYTES);
    }
}

/// Hands a descriptor to the daemon.
pub(crate) fn give(stream: &UnixStream, data: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights = [data];
    if !control.push(SendAncillaryMessage::ScmRights(&rights)) {
        return Err(io::Error::other("the message has no room for a descriptor"));
    }
    sendmsg(stream.as_fd(), &[IoSlice::new(b"d")], &mut control, SendFlags::empty())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_breaks_off_when_the_command_ends() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (mut descriptor, far) = Descriptor::own(reader.into()).unwrap();
        (&writer).write_all(b"abc").unwrap();
        let mut bytes = [0; 3];
        descriptor.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"abc");
        drop(far);
        let error = descriptor.read(&mut bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }

    #[test]
    fn a_descriptor_comes_through_the_socket() {
        let (near, far) = UnixStream::pair().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let giver = std::thread::spawn(move || {
            let mut lines = std::io::BufReader::new(&far);
            let line = crate::wire::read_line(&mut lines, 1000).unwrap().unwrap();
            assert!(crate::wire::parse_answer(&line).unwrap().progress.is_some());
            give(&far, writer.as_fd()).unwrap();
            far
        });
        let mut taken = Descriptor::ask(&near, 7, &Arc::default()).unwrap();
        let widened = rustix::pipe::fcntl_getpipe_size(&reader).unwrap();
        // A user has room for few pipes of that size, or for none.
        let (other, _end) = std::io::pipe().unwrap();
        let may = rustix::pipe::fcntl_setpipe_size(&other, PIPE_BYTES).is_ok();
        assert!(widened == PIPE_BYTES || !may, "a stream's pipe is as large as it may be: {widened}");
        let _far = giver.join().unwrap();
        taken.write_all(b"through").unwrap();
        drop(taken);
        assert_eq!(io::read_to_string(reader).unwrap(), "through");
    }
}
