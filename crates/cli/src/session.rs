//! One run of one command: its connection to the daemon, its output, its failures.

use crate::message::{Words, refused};
use crate::world::World;
use std::os::fd::BorrowedFd;
use steadfast_control::Refusal;
use steadfast_control::client::Client;

/// Reason why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong. The usage is printed behind this sentence.
    Usage(String),
    /// The operation in the text ("cannot create 'tank'") was refused.
    Refused(String, Box<Refusal>),
    /// Everything is printed already; this is the exit status.
    Status(u8),
}

/// Adds the attempted operation to a refusal.
pub trait Doing<T> {
    /// `doing` reads like "cannot create 'tank'".
    ///
    /// # Errors
    /// The refusal with `doing`.
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T> Doing<T> for Result<T, Refusal> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|refusal| Failure::Refused(doing(), Box::new(refusal)))
    }
}

/// One run of one command.
pub struct Session<'a, 'w> {
    /// Streams, environment, way to the daemon.
    pub world: &'a mut World<'w>,
    /// Text for standard output that is not printed yet.
    pub out: String,
    /// The command as typed.
    pub typed: String,
    /// Vocabulary in which messages name commands.
    pub words: Words,
    /// True if refusals are explained: meaning and action follow the problem.
    pub explains: bool,
    client: Option<Client>,
    failed: bool,
}

impl<'a, 'w> Session<'a, 'w> {
    /// A run that has done nothing yet.
    pub fn new(world: &'a mut World<'w>, typed: String, words: Words) -> Session<'a, 'w> {
        let explains = world.explains;
        Session { explains, world, out: String::new(), typed, words, client: None, failed: false }
    }

    /// True if [`Session::complain`] was called: the exit status is 1.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The connection to the daemon; connects at the first call.
    ///
    /// # Errors
    /// There is no daemon and none can be started.
    pub fn daemon(&mut self) -> Result<&mut Client, Refusal> {
        if self.client.is_none() {
            let runtime = self.world.runtime();
            self.client = Some((self.world.connect)(&runtime, &self.typed)?);
        }
        Ok(self.client.as_mut().expect("it was connected just now"))
    }

    /// Calls the daemon.
    ///
    /// # Errors
    /// The daemon's refusal.
    pub fn ask<C: steadfast_control::api::Call>(&mut self, request: C) -> Result<C::Answer, Refusal> {
        self.daemon()?.call(request)
    }

    /// Calls the daemon with a descriptor that it reads or writes. The text that `say` makes of its
    /// progress goes to standard error.
    ///
    /// # Errors
    /// The daemon's refusal.
    pub fn stream<C: steadfast_control::api::Call>(
        &mut self,
        request: C,
        data: BorrowedFd<'_>,
        say: &dyn Fn(&str, u64) -> String,
    ) -> Result<C::Answer, Refusal> {
        self.daemon()?;
        let err = &mut *self.world.err;
        let client = self.client.as_mut().expect("it was connected just now");
        client.call_with(request, Some(data), &mut |snapshot, bytes| {
            let _ = err.write_all(say(snapshot, bytes).as_bytes());
        })
    }

    /// Adds a line to standard output.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.out.push_str(text.as_ref());
        self.out.push('\n');
    }

    /// Prints the gathered text on standard output. False if the reader is gone.
    pub fn flush(&mut self) -> bool {
        let text = std::mem::take(&mut self.out);
        self.world.out.write_all(text.as_bytes()).and_then(|()| self.world.out.flush()).is_ok()
    }

    /// Closes the connection; the next call connects anew.
    pub fn disconnect(&mut self) {
        self.client = None;
    }

    /// Prints a refusal and goes on; the exit status will be 1.
    pub fn complain(&mut self, doing: &str, refusal: &Refusal) {
        self.failed = true;
        let text = refused(doing, refusal, self.words, self.explains);
        self.tell(&text);
    }

    /// Prints the warnings of a call that succeeded in part.
    pub fn warn(&mut self, doing: &str, warnings: &[Refusal]) {
        for warning in warnings {
            self.complain(doing, warning);
        }
    }

    /// Writes to standard error.
    pub fn tell(&mut self, text: &str) {
        let _ = self.world.err.write_all(text.as_bytes());
    }
}
