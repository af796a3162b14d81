//! `sync(2)`. The kernel asks plain FUSE mounts nothing when a program calls it. It asks mounts of
//! the type `fuseblk` (Linux 6.18), which lie on a block device and need root.
//!
//! So there is one such mount that nobody sees: on a loop device over a page of memory, and at no
//! path. `sync(2)` asks each file system of the host, this one too, and waits for the answer.
//! `syncfs(2)` asks the one file system that it is called on, so it does not come here.
//!
//! A process that is stopped (SIGSTOP, a debugger) answers nothing. So the kernel is told in the
//! handshake to cut the connection when an answer is late; every `sync(2)` then goes on.

use crate::device::{self, Received, RequestBuffer, send};
use crate::error::Error;
use crate::handshake::handshake;
use crate::options::MountOptions;
use crate::types::Errno;
use crate::wire::OUT_HEADER_SIZE;
use crate::wire::reply::{encode_error, encode_out_header};
use crate::wire::request::{Dialect, Operation, decode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno as OsErrno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};

/// Bytes of the loop device: one block.
const BLOCK: usize = 4096;
/// Free loop devices are tried so many times: another process may take one first.
const TRIES: usize = 16;

/// A mount that nobody sees, to which calls of `sync(2)` come.
pub struct SyncCalls {
    connection: OwnedFd,
    /// Keeps the mount. It is closed behind the connection: the kernel sends the end of the mount
    /// there, and waits for the answer unless nobody is left who could give it.
    _mount: OwnedFd,
}

impl std::fmt::Debug for SyncCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SyncCalls").finish_non_exhaustive()
    }
}

impl SyncCalls {
    /// Makes the mount. As root, and with a free loop device. The kernel cuts the connection if a
    /// call waits for `patience` seconds; it looks every 15 seconds.
    ///
    /// # Errors
    /// No device, no loop device, no right, or a kernel that is too old.
    pub fn new(patience: u16) -> Result<SyncCalls, Error> {
        let connection = device::open()?;
        let (disk, number) = loop_device().map_err(refused)?;
        let context = fsopen("fuseblk", FsOpenFlags::FSOPEN_CLOEXEC).map_err(refused)?;
        for (key, value) in [
            ("source", format!("/dev/loop{number}")),
            ("fd", connection.as_raw_fd().to_string()),
            ("rootmode", format!("{:o}", libc::S_IFDIR)),
            ("user_id", "0".to_owned()),
            ("group_id", "0".to_owned()),
            ("blksize", BLOCK.to_string()),
        ] {
            fsconfig_set_string(&context, key, value.as_str()).map_err(refused)?;
        }
        fsconfig_create(&context).map_err(refused)?;
        // The mount holds the loop device from here on; with the mount it goes.
        drop(disk);
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
        let mount = mount.map_err(refused)?;
        let mut options = MountOptions::new("sync");
        options.max_write = BLOCK;
        handshake(&connection, &options, patience)?;
        Ok(SyncCalls { connection, _mount: mount })
    }

    /// Calls `sync` at each call of `sync(2)` on this host, which goes on when it returns. Calls
    /// that come meanwhile share the next one. Ends when the connection is cut: by somebody, or by
    /// the kernel because an answer was late.
    ///
    /// # Errors
    /// The connection failed in another way.
    pub fn serve(&self, sync: impl Fn()) -> Result<(), Error> {
        // The kernel refuses to write a request into less than its longest WRITE would take.
        let mut buffer = RequestBuffer::new(BLOCK);
        let mut waiting: Vec<u64> = Vec::new();
        loop {
            if !waiting.is_empty() && !self.has_request() {
                sync();
                for unique in waiting.drain(..) {
                    self.answer(&encode_out_header(OUT_HEADER_SIZE, 0, unique))?;
                }
            }
            let length = match device::receive(&self.connection, &mut buffer) {
                Received::Message(length) => length,
                Received::Again | Received::Rest => continue,
                Received::Unmounted | Received::Aborted => return Ok(()),
                Received::Failed(errno) => return Err(refused(errno)),
            };
            let incoming = decode(buffer.message(length), Dialect::default());
            let incoming = incoming.map_err(|error| Error::Handshake { message: error.to_string() })?;
            let unique = incoming.header.unique;
            match incoming.operation {
                Operation::Syncfs => waiting.push(unique),
                Operation::Destroy => self.answer(&encode_out_header(OUT_HEADER_SIZE, 0, unique))?,
                // These have no answer. A `sync(2)` that is interrupted waits all the same.
                Operation::Forget { .. } | Operation::BatchForget { .. } | Operation::Interrupt { .. } => {}
                _ => self.answer(&encode_error(Errno::ENOSYS, unique))?,
            }
        }
    }

    fn answer(&self, message: &[u8]) -> Result<(), Error> {
        match send(&self.connection, message) {
            // NOENT: nobody waits for it any more. NODEV: the connection was cut, which the next
            // read tells.
            Ok(()) | Err(OsErrno::NOENT | OsErrno::NODEV) => Ok(()),
            Err(errno) => Err(refused(errno)),
        }
    }

    /// True if the next read does not wait.
    fn has_request(&self) -> bool {
        let mut polled = [PollFd::new(&self.connection, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }
}

fn refused(errno: OsErrno) -> Error {
    Error::MountRefused { path: "sync".into(), source: errno.into() }
}

/// A loop device over a page of memory, and its number. It goes with its last user.
fn loop_device() -> rustix::io::Result<(OwnedFd, i32)> {
    /// From linux/loop.h.
    const GET_FREE: libc::Ioctl = 0x4C82;
    const CONFIGURE: libc::Ioctl = 0x4C0A;
    const AUTOCLEAR: u32 = 4;
    let open = |path: &str| rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let memory = rustix::fs::memfd_create("steadfast-sync", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&memory, BLOCK as u64)?;
    let control = open("/dev/loop-control")?;
    let mut errno = OsErrno::BUSY;
    for _ in 0..TRIES {
        // SAFETY: LOOP_CTL_GET_FREE takes no argument and touches no memory of ours.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
        if number < 0 {
            return Err(last_errno());
        }
        let disk = open(&format!("/dev/loop{number}"))?;
        // struct loop_config: descriptor, size of a block, struct loop_info64 with its flags at
        // byte 52, reserved.
        let mut config = [0u8; 304];
        config[..4].copy_from_slice(&memory.as_raw_fd().to_ne_bytes());
        config[8 + 52..8 + 56].copy_from_slice(&AUTOCLEAR.to_ne_bytes());
        // SAFETY: LOOP_CONFIGURE reads a struct loop_config, which has 304 bytes on every
        // architecture, from the array, which lives during the call; the descriptor in it is open.
        if unsafe { libc::ioctl(disk.as_raw_fd(), CONFIGURE, config.as_ptr()) } == 0 {
            return Ok((disk, number));
        }
        errno = last_errno();
        if errno != OsErrno::BUSY {
            break;
        }
    }
    Err(errno)
}

fn last_errno() -> OsErrno {
    OsErrno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(OsErrno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn asks_at_sync() -> bool {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(['.', '-']).map_while(|number| number.trim().parse::<u32>().ok());
        (numbers.next(), numbers.next()) >= (Some(6), Some(18))
    }

    /// A descriptor of the mount, for `syncfs(2)`. The server must answer meanwhile.
    fn top(calls: &SyncCalls) -> OwnedFd {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&calls._mount, ".", flags, Mode::empty()).unwrap()
    }

    #[test]
    fn the_kernel_lets_a_sync_go_on_that_a_stopped_server_does_not_answer() {
        if !asks_at_sync() {
            return eprintln!("SKIPPED: it takes Linux 6.18");
        }
        let calls = match SyncCalls::new(1) {
            Ok(calls) => calls,
            Err(error) => return eprintln!("SKIPPED: {error}"),
        };
        let (called, calling) = mpsc::channel();
        let (go_on, stopped) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                calls.serve(move || {
                    called.send(()).unwrap();
                    // As if stopped.
                    stopped.recv().unwrap();
                })
            });
            let top = top(&calls);
            // It returns, with or without an error, though nobody answers.
            let _ = rustix::fs::syncfs(&top);
            calling.recv().unwrap();
            go_on.send(()).unwrap();
            server.join().unwrap().unwrap();
        });
    }
}
