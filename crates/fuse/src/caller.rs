//! The system call in which the caller of a request waits.
//!
//! Where it collects writes, the kernel asks for attributes before each `write(2)`, and hands an
//! error of the answer to the program (`fuse_cache_write_iter`). It asks in the same words before a
//! read beyond the end and before `lseek(SEEK_END)`. The caller's system call tells these apart,
//! and how many bytes are to be written.

use std::time::Duration;

/// Purpose of a request that asks for the attributes of an open file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Intent {
    /// It will write so many bytes; `None` if that is not known.
    Write(Option<u64>),
    /// It writes nothing: a read, a seek.
    Read,
    /// The call does not tell: several requests at once (io_uring, AIO), or a caller that cannot be
    /// seen from here.
    Unknown,
}

/// A caller may not have fallen asleep yet when its request is served: on a busy machine it may
/// wait for a processor first.
const LOOKS: u32 = 5_000;
const PAUSE: Duration = Duration::from_micros(20);
/// As many vectors as the kernel takes.
const VECTORS_MAX: u64 = 1024;

/// The purpose of a thread that waits for an answer. Without the right to look, `Unknown`.
#[must_use]
pub fn intent_of(thread: u32) -> Intent {
    if thread == 0 {
        return Intent::Unknown;
    }
    for _ in 0..LOOKS {
        match std::fs::read_to_string(format!("/proc/{thread}/syscall")) {
            Ok(line) if line.starts_with("running") => std::thread::sleep(PAUSE),
            Ok(line) => return intent_in(&line, |at, count| vector_bytes(thread, at, count)),
            Err(_) => break,
        }
    }
    Intent::Unknown
}

/// A thread is in a call that writes, or runs, so that nobody knows. False for one that has ended
/// or cannot be seen.
#[must_use]
pub fn may_be_writing(thread: u32) -> bool {
    let several = |line: &str| {
        let number = line.split_ascii_whitespace().next().and_then(|word| word.parse::<libc::c_long>().ok());
        matches!(number, Some(libc::SYS_io_uring_enter | libc::SYS_io_submit))
    };
    std::fs::read_to_string(format!("/proc/{thread}/syscall")).is_ok_and(|line| {
        line.starts_with("running")
            || several(&line)
            || matches!(intent_in(&line, |_, _| None), Intent::Write(_))
    })
}

/// The purpose of a call in the form of `/proc/PID/syscall`: its number and six arguments in
/// hexadecimal digits. `vectors` adds up a list of vectors at an address.
fn intent_in(line: &str, vectors: impl Fn(u64, u64) -> Option<u64>) -> Intent {
    let mut words = line.split_ascii_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<libc::c_long>().ok()) else {
        return Intent::Unknown;
    };
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        let word = words.next().and_then(|word| word.strip_prefix("0x"));
        let Some(value) = word.and_then(|digits| u64::from_str_radix(digits, 16).ok()) else {
            return Intent::Unknown;
        };
        *argument = value;
    }
    match number {
        libc::SYS_write | libc::SYS_pwrite64 => Intent::Write(Some(arguments[2])),
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => {
            Intent::Write(vectors(arguments[1], arguments[2]))
        }
        libc::SYS_sendfile => Intent::Write(Some(arguments[3])),
        libc::SYS_splice => Intent::Write(Some(arguments[4])),
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_readv
        | libc::SYS_preadv
        | libc::SYS_preadv2
        | libc::SYS_lseek
        | libc::SYS_copy_file_range => Intent::Read,
        _ => Intent::Unknown,
    }
}

/// Bytes of a list of vectors in the memory of a thread.
fn vector_bytes(thread: u32, at: u64, count: u64) -> Option<u64> {
    let count = usize::try_from(count.min(VECTORS_MAX)).ok()?;
    let mut vectors = vec![[0_u64; 2]; count];
    let bytes = size_of_val(vectors.as_slice());
    let ours = libc::iovec { iov_base: vectors.as_mut_ptr().cast(), iov_len: bytes };
    let theirs = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: bytes };
    // SAFETY: the kernel writes at most `bytes` bytes to `vectors`, which has as many and holds
    // numbers only; the other address is another process's, and the kernel checks it.
    let read = unsafe { libc::process_vm_readv(thread.cast_signed(), &ours, 1, &theirs, 1, 0) };
    if usize::try_from(read).ok()? != bytes {
        return None;
    }
    Some(vectors.iter().fold(0_u64, |sum, [_, length]| sum.saturating_add(*length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_tells_whether_it_writes_and_how_much() {
        let of = |number: libc::c_long| {
            let line = format!("{number} 0x3 0x7f00 0x1000 0x5 0x6 0x7 0x7ffe 0x7f45");
            intent_in(&line, |at, count| Some(at + count))
        };
        assert_eq!(of(libc::SYS_write), Intent::Write(Some(0x1000)));
        assert_eq!(of(libc::SYS_pwrite64), Intent::Write(Some(0x1000)));
        assert_eq!(of(libc::SYS_writev), Intent::Write(Some(0x7f00 + 0x1000)));
        assert_eq!(of(libc::SYS_sendfile), Intent::Write(Some(5)));
        assert_eq!(of(libc::SYS_splice), Intent::Write(Some(6)));
        assert_eq!(of(libc::SYS_read), Intent::Read);
        assert_eq!(of(libc::SYS_lseek), Intent::Read);
        assert_eq!(of(libc::SYS_io_submit), Intent::Unknown);
        for line in ["", "running", "-1 0x7ffe 0x7f45", "1 0x3", "1 3 4 5 6 7 8"] {
            assert_eq!(intent_in(line, |_, _| None), Intent::Unknown, "{line}");
        }
        assert_eq!(intent_of(0), Intent::Unknown, "a caller of another pid namespace");
    }

    #[test]
    fn a_waiting_thread_is_seen() {
        use std::io::Read;
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let (told, tells) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            told.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            (&reader).read_exact(&mut [0]).unwrap();
        });
        let number = tells.recv().unwrap().cast_unsigned();
        std::thread::sleep(Duration::from_millis(100));
        // The standard library receives from a socket, which is neither.
        assert_eq!(intent_of(number), Intent::Unknown);
        drop(std::io::Write::write_all(&mut &writer, b"x"));
        thread.join().unwrap();
        let own = [[1_u64, 100], [2, 23]];
        let us = std::process::id();
        assert_eq!(vector_bytes(us, own.as_ptr() as u64, 2), Some(123));
        assert_eq!(vector_bytes(us, 8, 2), None, "no memory is there");
    }
}
