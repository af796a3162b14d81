//! Steps of a request that takes long, told to a command that shows a bar.
//!
//! A command that does not read must not hold up the verb: what does not fit into the socket at
//! once is left out.

use crate::api::API_VERSION;
use crate::wire::{Answer, Progress};
use parking_lot::Mutex;
use rustix::net::{SendFlags, send};
use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Least time between two lines.
const TELL_NS: u64 = 200_000_000;

/// The way to the command.
#[derive(Clone)]
pub struct Steps(Arc<Told>);

struct Told {
    peer: UnixStream,
    id: u64,
    /// Time of the latest line, on the monotonic clock.
    at_ns: Mutex<Option<u64>>,
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steps")
    }
}

impl PartialEq for Steps {
    fn eq(&self, other: &Steps) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Steps {}

impl Steps {
    /// The steps of the request with a number, told over its connection.
    ///
    /// # Errors
    /// The connection cannot be duplicated.
    pub fn over(peer: &UnixStream, id: u64) -> io::Result<Steps> {
        Ok(Steps(Arc::new(Told { peer: peer.try_clone()?, id, at_ns: Mutex::new(None) })))
    }

    /// Tells how many steps of a part are done, unless it was told a moment ago.
    pub fn tell(&self, now_ns: u64, part: &str, done: usize, of: usize) {
        let mut at_ns = self.0.at_ns.lock();
        if at_ns.is_some_and(|at| now_ns.saturating_sub(at) < TELL_NS) {
            return;
        }
        *at_ns = Some(now_ns);
        let progress = Some(Progress {
            what: part.to_owned(),
            bytes: done as u64,
            of: of as u64,
            ..Progress::default()
        });
        let answer = Answer { version: API_VERSION, id: self.0.id, progress, ok: None, refused: None };
        let mut line = serde_json::to_vec(&answer).expect("it is plain data");
        line.push(b'\n');
        // Short enough to go as a whole or not at all. `wait` of the answer notices a lost command.
        let _ = send(&self.0.peer, &line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ANSWER_BYTES_MAX, parse_answer, read_line};
    use std::io::BufReader;

    #[test]
    fn steps_are_told_now_and_then_and_wait_for_nobody() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let steps = Steps::over(&near, 7).expect("duplicated");
        steps.tell(1, "unmounting", 0, 9);
        steps.tell(2, "unmounting", 1, 9);
        steps.tell(1 + TELL_NS, "mounting", 2, 9);
        // Nobody reads: the socket is full in the end, and this returns all the same.
        for at in 2..20_000 {
            steps.tell(1 + at * TELL_NS, &"x".repeat(200), 3, 9);
        }
        let mut reader = BufReader::new(far);
        let mut line = || {
            let line = read_line(&mut reader, ANSWER_BYTES_MAX).expect("readable").expect("a line");
            let answer = parse_answer(&line).expect("an answer");
            (answer.id, answer.progress.expect("progress"))
        };
        let step = |what: &str, bytes| Progress { what: what.into(), bytes, of: 9, ..Progress::default() };
        assert_eq!(line(), (7, step("unmounting", 0)));
        assert_eq!(line(), (7, step("mounting", 2)));
        assert_eq!(line(), (7, step(&"x".repeat(200), 3)));
    }
}
