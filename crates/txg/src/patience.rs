//! How long the caller on whose behalf a thread works is ready to wait.
//!
//! A write that is slowed, or waits for a commit, waits in the kernel too: whoever called
//! `write(2)` cannot even be killed before it is answered. So the thread that serves a call knows
//! whose call it is, as the kernel itself does ("current"), and the places that wait look at that
//! instead of getting it handed down through every room.

use crate::Refusal;
use std::cell::Cell;

/// How long an operation may wait before it is let in. A refused operation has changed nothing.
#[derive(Clone, Copy, Debug, Default)]
pub enum Patience {
    /// As long as it takes.
    #[default]
    Endless,
    /// As long as the caller lives.
    WhileAlive {
        /// Will this caller die as soon as it is answered? Asked some times a second while waiting.
        is_dying: fn(u32) -> bool,
        /// The caller: a thread id.
        caller: u32,
    },
    /// As long as the pool commits. While it cannot, memory takes the operation beyond its limit,
    /// as its content was accepted before and a waiter for it cannot be killed. Beyond `most` bytes
    /// it waits all the same.
    Accepted {
        /// Bytes above the limit of memory.
        most: u64,
    },
    /// Not at all: [`Refusal::WouldWait`] instead.
    None,
}

thread_local! {
    static PATIENCE: Cell<Patience> = const { Cell::new(Patience::Endless) };
}

/// Puts back what was, even if the work panics.
struct Before(Patience);

impl Drop for Before {
    fn drop(&mut self) {
        PATIENCE.set(self.0);
    }
}

impl Patience {
    /// Runs `work` with this patience: it holds for the operations that this thread begins until
    /// `work` returns.
    pub fn during<T>(self, work: impl FnOnce() -> T) -> T {
        let _before = Before(PATIENCE.replace(self));
        work()
    }

    /// True if the current thread works for a caller that is about to die, and hears no answer.
    #[must_use]
    pub fn is_in_vain() -> bool {
        matches!(PATIENCE.get(), Patience::WhileAlive { is_dying, caller } if is_dying(caller))
    }

    /// That of the current thread.
    pub(crate) fn current() -> Patience {
        PATIENCE.get()
    }

    /// Fails if waiting on makes no sense: called once before the first wait, where only a caller
    /// without any patience fails, and again after each.
    pub(crate) fn check(self, has_waited: bool) -> Result<(), Refusal> {
        match self {
            Patience::None => Err(Refusal::WouldWait),
            Patience::WhileAlive { is_dying, caller } if has_waited && is_dying(caller) => {
                Err(Refusal::CallerDying)
            }
            Patience::Endless | Patience::WhileAlive { .. } | Patience::Accepted { .. } => Ok(()),
        }
    }

    /// True if it waits for a pool that cannot commit, where `failmode` holds operations.
    pub(crate) fn waits_for_halted(self) -> bool {
        !matches!(self, Patience::Accepted { .. })
    }
}
