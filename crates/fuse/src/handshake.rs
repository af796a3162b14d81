//! The handshake: the kernel's offer, and our answer, before anything else is read.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno as OsErrno;

use crate::device::{self, Received, RequestBuffer, send};
use crate::error::Error;
use crate::options::MountOptions;
use crate::types::Errno;
use crate::wire::init::{InitIn, InitOut, Mismatch, negotiate};
use crate::wire::reply::{encode_error, encode_out_header};
use crate::wire::request::{Dialect, Operation, decode};
use crate::wire::{MAJOR, MINOR, OUT_HEADER_SIZE};

/// How long the kernel may take for its part of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the kernel's offer and answers it. The kernel cuts the connection if a later request has
/// no answer within `patience` seconds; 0: never.
pub(crate) fn handshake(fd: &OwnedFd, options: &MountOptions, patience: u16) -> Result<InitOut, Error> {
    let failed = |message: String| Error::Handshake { message };
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    let mut buffer = RequestBuffer::new(0);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(failed("the kernel did not begin it".into())),
            Ok(_) | Err(OsErrno::INTR) => {}
            Err(errno) => return Err(failed(errno.to_string())),
        }
        let len = match device::receive(fd, &mut buffer) {
            Received::Message(len) => len,
            Received::Again | Received::Rest => continue,
            Received::Unmounted | Received::Aborted => return Err(failed("the mount was taken away".into())),
            Received::Failed(errno) => return Err(failed(errno.to_string())),
        };
        let incoming = decode(buffer.message(len), Dialect::default()).map_err(|e| failed(e.to_string()))?;
        let unique = incoming.header.unique;
        let Operation::Init(offer) = incoming.operation else {
            return Err(failed(format!("it began with opcode {}", incoming.header.opcode)));
        };
        match negotiate(&offer, options) {
            Ok(out) => {
                let out = out.with_timeout(&offer, patience);
                reply(fd, unique, &out.encode()).map_err(|e| failed(e.to_string()))?;
                return Ok(out);
            }
            Err(Mismatch::MajorNewer) => {
                let mut out = [0; InitOut::ENCODED_SIZE];
                out[..4].copy_from_slice(&MAJOR.to_ne_bytes());
                out[4..8].copy_from_slice(&MINOR.to_ne_bytes());
                reply(fd, unique, &out).map_err(|e| failed(e.to_string()))?;
            }
            Err(Mismatch::TooOld) => {
                let InitIn { major, minor, .. } = offer;
                let _ = send(fd, &encode_error(Errno(libc::EPROTO), unique));
                return Err(Error::ProtocolTooOld { major, minor });
            }
        }
    }
}

fn reply(fd: &OwnedFd, unique: u64, payload: &[u8]) -> rustix::io::Result<()> {
    let header = encode_out_header(OUT_HEADER_SIZE + payload.len(), 0, unique);
    send(fd, &[&header[..], payload].concat())
}
