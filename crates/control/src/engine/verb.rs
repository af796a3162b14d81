//! The shape of a verb.
//!
//! A verb is a request of the API, how it is checked, and how it is carried out. Each verb has a
//! file of its own, under the name that ZFS gives it: `zpool/scrub.rs`, `zfs/hold.rs`.

use crate::api::Call;
use crate::caller::Caller;
use crate::engine::state::Engine;
use crate::refusal::Refusal;
use crate::steps::Steps;
use parking_lot::{Mutex, MutexGuard};
use std::time::Duration;

/// A request, how it is checked, and how it is carried out.
pub trait Verb: Call {
    /// It takes its turn with other verbs ([engine.1]).
    const IN_TURN: bool = true;

    /// Checks names, values and paths, and brings values into exact form, before a pool is asked.
    ///
    /// # Errors
    /// The first problem of the request.
    fn check(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    /// Carries it out. The request has passed [`Verb::check`].
    ///
    /// # Errors
    /// A refusal that leaves everything as it was ([engine.4]), unless it says otherwise.
    fn run(self, engine: &Engine, caller: &Caller) -> Result<Self::Answer, Refusal>;
}

/// The verbs of an engine take turns.
#[derive(Default)]
pub struct Verbs {
    /// Held by the verb whose turn it is ([engine.1]).
    turn: Mutex<()>,
    /// The way to the command that shows the steps of this verb, if one does.
    steps: Mutex<Option<Steps>>,
}

impl Verbs {
    /// Waits for the turn.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// The same, for a limited time.
    pub(super) fn try_lock_for(&self, patience: Duration) -> Option<MutexGuard<'_, ()>> {
        self.turn.try_lock_for(patience)
    }

    /// True if a command shows the steps of the verb whose turn it is.
    pub(super) fn are_watched(&self) -> bool {
        self.steps.lock().is_some()
    }
}

impl Engine {
    /// Carries out a verb, in turn with others if it changes something. The request has passed
    /// [`Verb::check`].
    ///
    /// # Errors
    /// Those of the verb.
    pub fn call<V: Verb>(&self, caller: &Caller, verb: V) -> Result<V::Answer, Refusal> {
        let turn = V::IN_TURN.then(|| self.verbs.lock());
        if turn.is_none() {
            return verb.run(self, caller);
        }
        // After a panic the next verb puts its own there.
        self.verbs.steps.lock().clone_from(&caller.steps);
        let answer = verb.run(self, caller);
        *self.verbs.steps.lock() = None;
        answer
    }

    /// Tells the command whose turn it is how many steps of a part of its verb are done.
    pub(super) fn step(&self, part: &str, done: usize, of: usize) {
        if let Some(steps) = &*self.verbs.steps.lock() {
            steps.tell(self.env.clock.monotonic_ns(), part, done, of);
        }
    }
}
