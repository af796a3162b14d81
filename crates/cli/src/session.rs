//! One run of one command: its connection to the daemon, its output, its failures.

use crate::message::{Words, refused};
use crate::progress::StepBar;
use crate::table::tame;
use crate::world::World;
use std::os::fd::BorrowedFd;
use steadfast_control::api::{Call, Request};
use steadfast_control::client::Client;
use steadfast_control::wire::Progress;
use steadfast_control::{Code, Refusal, rights};

/// Text of a call's progress, and the output that it is for.
#[derive(Debug)]
pub enum Said {
    /// Standard output.
    Out(String),
    /// Standard error.
    Err(String),
}

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
    /// The connection to root's daemon of a user who looks there, once it was tried.
    guest: Option<Option<Client>>,
    failed: bool,
}

impl<'a, 'w> Session<'a, 'w> {
    /// A run that has done nothing yet.
    pub fn new(world: &'a mut World<'w>, typed: String, words: Words) -> Session<'a, 'w> {
        let explains = world.explains;
        Session {
            explains,
            world,
            out: String::new(),
            typed,
            words,
            client: None,
            guest: None,
            failed: false,
        }
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
    pub fn ask<C: Call>(&mut self, request: C) -> Result<C::Answer, Refusal> {
        self.request::<C>(request.into_request(), None, &mut |_| ())
    }

    /// As [`Session::ask`], with a bar on a terminal if it takes long. `doing` reads like
    /// "destroy tank".
    ///
    /// # Errors
    /// The daemon's refusal.
    pub fn ask_in_steps<C: Call>(&mut self, request: C, doing: &str) -> Result<C::Answer, Refusal> {
        // A guest's request may go to two daemons.
        if !(self.world.out_is_terminal && self.world.explains && self.world.uid == 0) {
            return self.ask(request);
        }
        let mut bar = StepBar::new(doing);
        let err = std::mem::replace(&mut self.world.err, Box::leak(Box::new(std::io::sink())));
        let mut show = |step: &Progress| {
            let _ = err.write_all(bar.draw(step).as_bytes());
        };
        let call = request.into_request();
        let answer = self.daemon().and_then(|client| client.request_in_steps::<C>(call, &mut show));
        self.world.err = err;
        self.tell(bar.end());
        answer
    }

    /// Calls the daemon that has what the request names.
    ///
    /// A user may have pools, and may look at those of root's daemon. The daemon of the user's own
    /// pools is asked first, if there are any; the other one if the first has no such pool.
    fn request<C: Call>(
        &mut self,
        call: Request,
        data: Option<BorrowedFd<'_>>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<C::Answer, Refusal> {
        if self.world.uid == 0 || !rights::is_for_guests(&call) {
            return self.daemon()?.request::<C>(call, data, progress);
        }
        let is_elsewhere =
            |refusal: &Refusal| matches!(refusal.code, Code::PoolAbsent | Code::FsAbsent | Code::PeerRights);
        let owns = self.world.runtime().has_pools();
        if !owns && self.guest()?.is_none() {
            return self.daemon()?.request::<C>(call, data, progress);
        }
        let first = match owns {
            true => self.daemon()?.request::<C>(call.clone(), data, progress),
            false => self.guest.as_mut().and_then(Option::as_mut).expect("it is there").request::<C>(
                call.clone(),
                data,
                progress,
            ),
        };
        let Err(refusal) = first else { return first };
        let other = match is_elsewhere(&refusal) {
            false => None,
            true if owns => self.guest()?,
            // Perhaps a pool that is not to be imported at the next start.
            true if self.world.runtime().socket().exists() => Some(self.daemon()?),
            true => None,
        };
        let Some(other) = other else { return Err(refusal) };
        other.request::<C>(call, data, progress).map_err(|other| match is_elsewhere(&other) {
            true => refusal,
            false => other,
        })
    }

    fn guest(&mut self) -> Result<Option<&mut Client>, Refusal> {
        if self.guest.is_none() {
            let runtime = self.world.runtime();
            self.guest = Some((self.world.guest)(&runtime, &self.typed)?);
        }
        Ok(self.guest.as_mut().and_then(Option::as_mut))
    }

    /// Calls the daemon with a descriptor that it reads or writes. The text that `say` makes of its
    /// progress is written at once.
    ///
    /// # Errors
    /// The daemon's refusal.
    pub fn stream<C: Call>(
        &mut self,
        request: C,
        data: BorrowedFd<'_>,
        say: &dyn Fn(&Progress) -> Said,
    ) -> Result<C::Answer, Refusal> {
        // Progress is written while the session waits for the answer.
        let err = std::mem::replace(&mut self.world.err, Box::leak(Box::new(std::io::sink())));
        let out = std::mem::replace(&mut self.world.out, Box::leak(Box::new(std::io::sink())));
        let answer = self.request::<C>(request.into_request(), Some(data), &mut |progress| {
            let _ = match say(progress) {
                Said::Out(text) => out.write_all(text.as_bytes()).and_then(|()| out.flush()),
                Said::Err(text) => err.write_all(text.as_bytes()),
            };
        });
        (self.world.err, self.world.out) = (err, out);
        answer
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
        (self.client, self.guest) = (None, None);
    }

    /// Prints a refusal and goes on; the exit status will be 1.
    pub fn complain(&mut self, doing: &str, refusal: &Refusal) {
        self.failed = true;
        let text = refused(doing, refusal, self.words, self.explains, &self.typed);
        self.tell(&text);
    }

    /// Prints the warnings of a call that succeeded in part.
    pub fn warn(&mut self, doing: &str, warnings: &[Refusal]) {
        for warning in warnings {
            self.complain(doing, warning);
        }
    }

    /// The same for a change of a property. As in ZFS, a place that is taken does not make it a
    /// failure; nor does a note about a mount that is in use.
    pub fn remark(&mut self, doing: &str, warnings: Vec<Refusal>) {
        use Code::{AtimeCollected, FsMountpoint, ShareCollected, ShareOpen};
        let is_note = |warning: &Refusal| {
            matches!(warning.code, AtimeCollected | FsMountpoint | ShareCollected | ShareOpen)
        };
        let (notes, others): (Vec<Refusal>, Vec<Refusal>) = warnings.into_iter().partition(is_note);
        for warning in notes {
            self.tell(&format!("note: {}\n", tame(&warning.what)));
        }
        self.warn(doing, &others);
    }

    /// Writes to standard error.
    pub fn tell(&mut self, text: &str) {
        let _ = self.world.err.write_all(text.as_bytes());
    }
}
