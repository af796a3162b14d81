//! Calls that use a mount of this process, on a thread without descriptors.
//!
//! ## The problem
//! A process whose mount is asked for something by one of its own threads can be killed only if the
//! answer comes: the kernel waits for it without listening to `SIGKILL`
//! (`request_wait_answer`). Once all threads that could answer are dead, the connection ends with
//! the last descriptor of `/dev/fuse`; but the thread that waits shares the table of descriptors,
//! and keeps it. Then the process never ends, every program on its mounts hangs, and no successor
//! gets the lock of the runtime folder or of a device.
//!
//! ## The idea
//! The thread that asks has a table of its own, and it is empty. The others take theirs along when
//! they die, the kernel ends the connection, and the wait is over.

use std::thread;

/// Descriptors above the three standard ones.
const FIRST: libc::c_uint = 3;

/// Runs `call`, which may use a mount of this process, on a thread of its own, and waits for it.
///
/// `call` must use no descriptor that it did not open, and leave none open: it sees none of this
/// process but the standard ones. A sandbox that forbids `unshare(2)`, and a kernel without
/// `close_range(2)` (before Linux 5.9), leave it those of the process: then all is as without this.
/// So it is too if no thread can be started.
///
/// # Panics
/// With `call`.
pub fn aside<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    let mut call = Some(call);
    let mut run = || call.take().expect("it runs once")();
    let outcome = thread::scope(|scope| {
        let body = || {
            leave_descriptors();
            run()
        };
        let thread = thread::Builder::new().name("aside".into()).spawn_scoped(scope, body).ok()?;
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    outcome.unwrap_or_else(run)
}

/// Gives this thread an empty table of descriptors, if the kernel lets it.
fn leave_descriptors() {
    // SAFETY: both calls touch no memory. The thread was started for `aside` and owns no
    // descriptor; what the rest of the process has open stays open in its own table.
    unsafe {
        if libc::unshare(libc::CLONE_FILES) == 0 {
            libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    fn is_open(number: i32) -> bool {
        // SAFETY: asks about a number, and touches no memory.
        unsafe { libc::fcntl(number, libc::F_GETFD) != -1 }
    }

    #[test]
    fn a_call_aside_sees_no_descriptor_of_ours_and_closes_none() {
        let file = File::open("/dev/null").unwrap();
        let number = file.as_raw_fd();
        let (sees, reads) = aside(|| (is_open(number), std::fs::read("/proc/self/stat").is_ok()));
        assert!(!sees && reads);
        assert!(is_open(number), "it is open here");
    }

    #[test]
    fn a_panic_aside_is_one_of_the_caller() {
        let ended = std::panic::catch_unwind(|| aside(|| panic!("inside")));
        assert_eq!(ended.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
    }
}
