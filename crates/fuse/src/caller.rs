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
    /// It will write.
    Write {
        /// Where; `None` if that is not known, as at the end of a file.
        offset: Option<u64>,
        /// How much; `None` if that is not known.
        bytes: Option<u64>,
    },
    /// It writes nothing: a read, a seek.
    Read,
    /// Nobody tells: a caller that cannot be seen from here.
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
            Ok(line) => {
                let vectors = |at, count| vector_bytes(thread, at, count);
                return match intent_in(&line, vectors, |file| position(thread, file)) {
                    // Several requests at once (io_uring, AIO), or a thread of the kernel for them.
                    Intent::Unknown => {
                        let stack = std::fs::read_to_string(format!("/proc/{thread}/stack"));
                        stack.map_or(Intent::Unknown, |stack| intent_on(&stack))
                    }
                    intent => intent,
                };
            }
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
            || matches!(intent_in(&line, |_, _| None, |_| None), Intent::Write { .. })
    })
}

/// The purpose by the kernel's functions that wait, as root sees them: size and place are not among
/// them.
fn intent_on(stack: &str) -> Intent {
    let is_in = |function: &str| stack.contains(function);
    if is_in("write_iter") {
        Intent::Write { offset: None, bytes: None }
    } else if is_in("read_iter") || is_in("llseek") {
        Intent::Read
    } else {
        Intent::Unknown
    }
}

/// Where a descriptor of a thread writes next. `None` at the end of the file, wherever that is.
fn position(thread: u32, file: u64) -> Option<u64> {
    let about = std::fs::read_to_string(format!("/proc/{thread}/fdinfo/{file}")).ok()?;
    let of = |name: &str| about.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = i32::from_str_radix(of("flags:")?, 8).ok()?;
    (flags & libc::O_APPEND == 0).then(|| of("pos:")?.parse().ok())?
}

/// The purpose of a call in the form of `/proc/PID/syscall`: its number and six arguments in
/// hexadecimal digits. `vectors` adds up a list of vectors at an address, `position` tells where a
/// descriptor is.
fn intent_in(
    line: &str,
    vectors: impl Fn(u64, u64) -> Option<u64>,
    position: impl Fn(u64) -> Option<u64>,
) -> Intent {
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
    let write = |offset, bytes| Intent::Write { offset, bytes };
    // A file that is opened for appending takes no offset.
    let at = |offset: u64| position(arguments[0]).map(|_| offset);
    match number {
        libc::SYS_write => write(position(arguments[0]), Some(arguments[2])),
        libc::SYS_pwrite64 => write(at(arguments[3]), Some(arguments[2])),
        libc::SYS_writev => write(position(arguments[0]), vectors(arguments[1], arguments[2])),
        libc::SYS_pwritev => write(at(arguments[3]), vectors(arguments[1], arguments[2])),
        // It may append, or go on where the descriptor is.
        libc::SYS_pwritev2 => write(None, vectors(arguments[1], arguments[2])),
        libc::SYS_sendfile => write(position(arguments[0]), Some(arguments[3])),
        libc::SYS_splice => write(None, Some(arguments[4])),
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
            intent_in(&line, |at, count| Some(at + count), |file| Some(file * 100))
        };
        let write = |offset: Option<u64>, bytes: u64| Intent::Write { offset, bytes: Some(bytes) };
        assert_eq!(of(libc::SYS_write), write(Some(300), 0x1000));
        assert_eq!(of(libc::SYS_pwrite64), write(Some(5), 0x1000));
        assert_eq!(of(libc::SYS_writev), write(Some(300), 0x7f00 + 0x1000));
        assert_eq!(of(libc::SYS_pwritev), write(Some(5), 0x7f00 + 0x1000));
        assert_eq!(of(libc::SYS_pwritev2), write(None, 0x7f00 + 0x1000));
        assert_eq!(of(libc::SYS_sendfile), write(Some(300), 5));
        assert_eq!(of(libc::SYS_splice), write(None, 6));
        assert_eq!(of(libc::SYS_read), Intent::Read);
        assert_eq!(of(libc::SYS_lseek), Intent::Read);
        assert_eq!(of(libc::SYS_io_submit), Intent::Unknown);
        for line in ["", "running", "-1 0x7ffe 0x7f45", "1 0x3", "1 3 4 5 6 7 8"] {
            assert_eq!(intent_in(line, |_, _| None, |_| None), Intent::Unknown, "{line}");
        }
        let appends = intent_in("1 0x3 0x0 0x9 0x0 0x0 0x0 0x1 0x2", |_, _| None, |_| None);
        assert_eq!(appends, Intent::Write { offset: None, bytes: Some(9) });
        assert_eq!(intent_of(0), Intent::Unknown, "a caller of another pid namespace");
    }

    #[test]
    fn the_kernels_functions_tell_what_a_ring_is_asked_for() {
        let stack = |last: &str| {
            let names = ["request_wait_answer", "fuse_do_getattr", last, "io_issue_sqe", "io_wq_worker"];
            intent_on(&names.map(|name| format!("[<0>] {name}+0x1/0x2\n")).concat())
        };
        assert_eq!(stack("fuse_file_write_iter"), Intent::Write { offset: None, bytes: None });
        assert_eq!(stack("fuse_file_read_iter"), Intent::Read);
        assert_eq!(stack("fuse_file_llseek"), Intent::Read);
        assert_eq!(stack("fuse_statx"), Intent::Unknown);
    }

    #[test]
    fn a_descriptor_tells_where_it_is() {
        use rustix::fd::AsRawFd;
        use std::io::{Seek, SeekFrom};
        let at = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let path = std::env::temp_dir().join(format!("steadfast-position-{at}"));
        let mut file = std::fs::File::create(&path).unwrap();
        file.seek(SeekFrom::Start(4711)).unwrap();
        let told = |file: &std::fs::File| position(at, file.as_raw_fd().cast_unsigned().into());
        assert_eq!(told(&file), Some(4711));
        let appends = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(told(&appends), None);
        std::fs::remove_file(path).unwrap();
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
