//! From a decoded request to the handler's method, and from its answer to the bytes of the reply.
//!
//! Knows no transport: the reply's payload is filled into memory that the caller lends.

use crate::handler::Handler;
use crate::sink::{DirPlusSink, DirSink, ValueSink};
use crate::types::*;
use crate::wire::reply::*;
use crate::wire::request::{Incoming, Operation};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A transport's action on a request that was served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// Nothing is sent: the request wants no answer.
    Silent,
    /// The request failed.
    Failed(Errno),
    /// The request succeeded; so many bytes of the lent memory are its answer.
    Filled(usize),
}

impl From<Reply<usize>> for Outcome {
    fn from(reply: Reply<usize>) -> Self {
        reply.map_or_else(Outcome::Failed, Outcome::Filled)
    }
}

type Reply<T> = Result<T, Errno>;

/// A request that was served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Served {
    /// Action of the transport.
    pub outcome: Outcome,
    /// Inode whose attributes the kernel must forget *before* it gets the answer: see
    /// [`Request::forget_attr`].
    pub stale: Option<u64>,
    /// The message of the handler's panic, if it panicked.
    pub panicked: Option<String>,
}

/// The least memory to lend to [`serve`]: every fixed structure fits.
pub const OUT_MIN: usize = FIXED_OUT_MAX;

const _: () = assert!(ENTRY_OUT_SIZE + OPEN_OUT_SIZE <= OUT_MIN && STATFS_OUT_SIZE <= OUT_MIN);

/// How many forgotten inodes are handed over at a time: 4 KiB of stack.
const FORGET_BATCH: usize = 256;

/// Serves one request. A panic of the handler becomes `EIO`, and its message is kept beside the
/// outcome.
///
/// # Panics
/// If `out` is shorter than [`OUT_MIN`].
pub fn serve(handler: &dyn Handler, incoming: &Incoming<'_>, out: &mut [u8]) -> Served {
    serve_waiting(handler, incoming, out, true)
}

/// As [`serve`]; `may_wait` becomes [`Request::may_wait`].
///
/// # Panics
/// If `out` is shorter than [`OUT_MIN`].
pub fn serve_waiting(
    handler: &dyn Handler,
    incoming: &Incoming<'_>,
    out: &mut [u8],
    may_wait: bool,
) -> Served {
    assert!(out.len() >= OUT_MIN, "a transport lends at least {OUT_MIN} bytes");
    // Unwind safety: `out` is overwritten by the next request, and the handler's own state is its
    // own care.
    let header = &incoming.header;
    let mut request = Request {
        unique: header.unique,
        pid: header.pid,
        group: incoming.group,
        may_wait,
        ..Request::by(header.uid, header.gid)
    };
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut outcome = Outcome::Silent;
        handler.measure(&incoming.operation, &mut || {
            let mut answer = || outcome = dispatch(handler, incoming, &mut request, out);
            match may_wait {
                true => handler.attend(header.pid, &mut answer),
                false => answer(),
            }
            may_wait || outcome != Outcome::Failed(Errno::EAGAIN)
        });
        outcome
    }));
    let stale = request.stale.get();
    match result {
        Ok(outcome) => Served { outcome, stale, panicked: None },
        Err(panic) => {
            let silent =
                matches!(incoming.operation, Operation::Forget { .. } | Operation::BatchForget { .. });
            let outcome = if silent { Outcome::Silent } else { Outcome::Failed(Errno::EIO) };
            Served { outcome, stale, panicked: Some(panic_message(panic.as_ref())) }
        }
    }
}

/// The message of a panic, if it is a text.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "(no message)".to_owned())
}

fn dispatch(
    handler: &dyn Handler,
    incoming: &Incoming<'_>,
    request: &mut Request,
    out: &mut [u8],
) -> Outcome {
    let ino = incoming.header.nodeid;
    if let Operation::Mknod { umask, .. }
    | Operation::Mkdir { umask, .. }
    | Operation::Create { umask, .. }
    | Operation::Tmpfile { umask, .. } = &incoming.operation
    {
        request.umask = Some(*umask);
    }
    let request = &*request;
    let result = match &incoming.operation {
        Operation::Forget { nlookup } => {
            handler.forget(&[Forget { ino, nlookup: *nlookup }]);
            return Outcome::Silent;
        }
        Operation::BatchForget { forgets } => {
            forget_batch(handler, forgets.clone());
            return Outcome::Silent;
        }
        Operation::Interrupt { .. } | Operation::NotifyReply => return Outcome::Silent,
        Operation::Unsupported => Err(Errno::ENOSYS),
        Operation::Init(_) => Err(Errno::EIO), // a second handshake: the session has made the only one
        Operation::Destroy => Ok(0),           // the session tells the handler when the last thread is done

        Operation::Lookup { name } => entry(out, handler.lookup(request, ino, name)),
        Operation::Getattr { fh } => handler.getattr(request, ino, *fh).map(|reply| {
            encode_attr(&mut out[..ATTR_OUT_SIZE], &reply);
            ATTR_OUT_SIZE
        }),
        Operation::Statx { fh } => handler.getattr(request, ino, *fh).map(|reply| {
            encode_statx(&mut out[..STATX_OUT_SIZE], &reply);
            STATX_OUT_SIZE
        }),
        Operation::Setattr(set) => handler.setattr(request, ino, set).map(|reply| {
            encode_attr(&mut out[..ATTR_OUT_SIZE], &reply);
            ATTR_OUT_SIZE
        }),
        Operation::Readlink => handler.readlink(request, ino).and_then(|target| {
            out.get_mut(..target.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(&target);
            Ok(target.len())
        }),
        Operation::Symlink { name, target } => entry(out, handler.symlink(request, ino, name, target)),
        Operation::Mknod { name, mode, rdev, .. } => {
            entry(out, handler.mknod(request, ino, name, *mode, *rdev))
        }
        Operation::Mkdir { name, mode, .. } => entry(out, handler.mkdir(request, ino, name, *mode)),
        Operation::Unlink { name } => empty(handler.unlink(request, ino, name)),
        Operation::Rmdir { name } => empty(handler.rmdir(request, ino, name)),
        Operation::Rename(args) => empty(handler.rename(request, args)),
        Operation::Link { ino: old, new_name } => entry(out, handler.link(request, *old, ino, new_name)),
        Operation::Open(args) => opened(out, handler.open(request, ino, args)),
        Operation::Opendir(args) => opened(out, handler.opendir(request, ino, args)),
        Operation::Read { args, size } => {
            let out = lend(out, *size);
            let room = out.len();
            handler.read(request, args, out).inspect(|&count| {
                assert!(count <= room, "a handler filled {count} of {room} bytes");
            })
        }
        Operation::Write { args, data } => handler.write(request, args, data).map(|count| {
            assert!(count <= data.len(), "a handler stored {count} of {} bytes", data.len());
            fixed(out, &encode_count(count as u32)) // a message has a 32-bit length
        }),
        Operation::Statfs => handler.statfs(request, ino).map(|statfs| {
            encode_statfs(&mut out[..STATFS_OUT_SIZE], &statfs);
            STATFS_OUT_SIZE
        }),
        Operation::Release(args) => empty(handler.release(request, args)),
        Operation::Releasedir(args) => empty(handler.releasedir(request, args)),
        Operation::Fsync { fh, datasync } => empty(handler.fsync(request, ino, *fh, *datasync)),
        Operation::Fsyncdir { fh, datasync } => empty(handler.fsyncdir(request, ino, *fh, *datasync)),
        Operation::Setxattr(args) => empty(handler.setxattr(request, args)),
        Operation::Getxattr { name, size } => {
            value(out, *size, |sink| handler.getxattr(request, ino, name, sink))
        }
        Operation::Listxattr { size } => value(out, *size, |sink| handler.listxattr(request, ino, sink)),
        Operation::Removexattr { name } => empty(handler.removexattr(request, ino, name)),
        Operation::Flush { fh, lock_owner } => empty(handler.flush(request, ino, *fh, *lock_owner)),
        Operation::Readdir { fh, offset, size } => {
            let mut sink = DirSink::new(lend(out, *size));
            handler.readdir(request, ino, *fh, *offset, &mut sink).map(|()| sink.len())
        }
        Operation::Readdirplus { fh, offset, size } => {
            let mut sink = DirPlusSink::new(lend(out, *size));
            handler.readdirplus(request, ino, *fh, *offset, &mut sink).map(|()| sink.len())
        }
        Operation::Access { mask } => empty(handler.access(request, ino, *mask)),
        Operation::Create { name, mode, args, .. } => {
            created(out, handler.create(request, ino, name, *mode, args))
        }
        Operation::Tmpfile { mode, args, .. } => created(out, handler.tmpfile(request, ino, *mode, args)),
        Operation::Ioctl { args, out_size } => {
            let (head, tail) = out.split_at_mut(IOCTL_OUT_SIZE);
            let tail = lend(tail, *out_size);
            let room = tail.len();
            handler.ioctl(request, args, tail).map(|(result, count)| {
                assert!(count <= room, "a handler filled {count} of {room} bytes");
                encode_ioctl(head, result);
                IOCTL_OUT_SIZE + count
            })
        }
        Operation::Fallocate(args) => empty(handler.fallocate(request, args)),
        Operation::Lseek { fh, offset, whence } => {
            let whence = match *whence as i32 {
                libc::SEEK_DATA => Ok(Whence::Data),
                libc::SEEK_HOLE => Ok(Whence::Hole),
                _ => Err(Errno::EINVAL),
            };
            whence.and_then(|whence| {
                let found = handler.lseek(request, ino, *fh, *offset, whence)?;
                Ok(fixed(out, &found.to_ne_bytes()))
            })
        }
        Operation::CopyFileRange { args, wide } => handler.copy_file_range(request, args).map(|count| {
            assert!(count <= args.length, "a handler copied {count} of {} bytes", args.length);
            // The narrow request was capped to 32 bits by the decoder.
            if *wide { fixed(out, &count.to_ne_bytes()) } else { fixed(out, &encode_count(count as u32)) }
        }),
        Operation::Syncfs => empty(handler.syncfs(request, ino)),
    };
    result.into()
}

/// The first `size` bytes of the reply's memory, or all of it if the caller wants more than there
/// is.
fn lend(out: &mut [u8], size: usize) -> &mut [u8] {
    let size = size.min(out.len());
    &mut out[..size]
}

fn empty(reply: Reply<()>) -> Reply<usize> {
    reply.map(|()| 0)
}

fn fixed(out: &mut [u8], bytes: &[u8]) -> usize {
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

fn entry(out: &mut [u8], reply: Reply<Entry>) -> Reply<usize> {
    encode_entry(&mut out[..ENTRY_OUT_SIZE], &reply?);
    Ok(ENTRY_OUT_SIZE)
}

fn opened(out: &mut [u8], reply: Reply<Opened>) -> Reply<usize> {
    encode_open(&mut out[..OPEN_OUT_SIZE], &reply?);
    Ok(OPEN_OUT_SIZE)
}

fn created(out: &mut [u8], reply: Reply<(Entry, Opened)>) -> Reply<usize> {
    let (made, handle) = reply?;
    encode_entry(&mut out[..ENTRY_OUT_SIZE], &made);
    encode_open(&mut out[ENTRY_OUT_SIZE..ENTRY_OUT_SIZE + OPEN_OUT_SIZE], &handle);
    Ok(ENTRY_OUT_SIZE + OPEN_OUT_SIZE)
}

fn value(out: &mut [u8], size: usize, put: impl FnOnce(&mut ValueSink<'_>) -> Reply<()>) -> Reply<usize> {
    if size == 0 {
        let mut sink = ValueSink::new(None);
        put(&mut sink)?;
        let len = u32::try_from(sink.len()).map_err(|_| Errno::E2BIG)?;
        Ok(fixed(out, &encode_length(len)))
    } else {
        let mut sink = ValueSink::new(Some(lend(out, size)));
        put(&mut sink)?;
        Ok(sink.len())
    }
}

fn forget_batch(handler: &dyn Handler, forgets: impl Iterator<Item = Forget>) {
    let mut batch = [Forget::default(); FORGET_BATCH];
    let mut len = 0;
    for forget in forgets {
        batch[len] = forget;
        len += 1;
        if len == FORGET_BATCH {
            handler.forget(&batch);
            len = 0;
        }
    }
    if len > 0 {
        handler.forget(&batch[..len]);
    }
}
