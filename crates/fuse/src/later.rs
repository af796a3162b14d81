//! [`Later`]: an answer that comes when the thread that read the request has gone on to others.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::device::send;
use crate::types::Errno;
use crate::wire::OUT_HEADER_SIZE;
use crate::wire::reply::{encode_error, encode_out_header};

/// The right to answer one request. Dropped without an answer, it answers `EIO`.
pub struct Later {
    /// Where the request was read, for only there it can be answered, and its number.
    to: Option<(Arc<OwnedFd>, u64)>,
}

impl Later {
    pub(crate) fn new(fd: &Arc<OwnedFd>, unique: u64) -> Later {
        Later { to: Some((Arc::clone(fd), unique)) }
    }

    /// Answers without a payload.
    pub fn answer(mut self, reply: Result<(), Errno>) {
        self.send(reply);
    }

    /// Somebody else answers.
    pub(crate) fn give_up(mut self) {
        self.to = None;
    }

    fn send(&mut self, reply: Result<(), Errno>) {
        let Some((fd, unique)) = self.to.take() else { return };
        // This fails if the connection was cut meanwhile: then nobody waits for the answer.
        let _ = match reply {
            Ok(()) => send(&fd, &encode_out_header(OUT_HEADER_SIZE, 0, unique)),
            Err(errno) => send(&fd, &encode_error(errno, unique)),
        };
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        self.send(Err(Errno::EIO));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_once_and_never_forgotten() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let write = Arc::new(write);
        Later::new(&write, 7).answer(Ok(()));
        Later::new(&write, 8).answer(Err(Errno::EIO));
        Later::new(&write, 9).give_up();
        drop(Later::new(&write, 10));
        drop(write);
        let mut told = Vec::new();
        std::io::Read::read_to_end(&mut std::fs::File::from(read), &mut told).unwrap();
        let expected: Vec<u8> = [
            encode_out_header(OUT_HEADER_SIZE, 0, 7).to_vec(),
            encode_error(Errno::EIO, 8).to_vec(),
            encode_error(Errno::EIO, 10).to_vec(),
        ]
        .concat();
        assert_eq!(told, expected);
    }
}
