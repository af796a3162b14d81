//! A queue of threads: the one that came first goes first.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Threads that wait for their turn.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of the next one that comes, and of the one whose turn it is.
    next: u64,
    served: u64,
}

/// A turn, until it is dropped.
pub(crate) struct QueueTurn<'q>(&'q Queue);

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if it is nobody's turn.
    pub fn is_empty(&self) -> bool {
        let state = self.state();
        state.next == state.served
    }

    /// Waits behind those who came before.
    pub fn take(&self) -> QueueTurn<'_> {
        let mut state = self.state();
        let own = state.next;
        state.next += 1;
        while state.served != own {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        QueueTurn(self)
    }
}

impl Drop for QueueTurn<'_> {
    fn drop(&mut self) {
        self.0.state().served += 1;
        self.0.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn turns_come_in_the_order_of_coming() {
        let queue = Queue::default();
        let (sender, served) = mpsc::channel();
        std::thread::scope(|scope| {
            let first = queue.take();
            for number in 0..4_u64 {
                let (queue, sender) = (&queue, sender.clone());
                scope.spawn(move || {
                    let _turn = queue.take();
                    sender.send(number).unwrap();
                });
                while queue.state().next < number + 2 {
                    std::thread::yield_now();
                }
            }
            assert!(!queue.is_empty());
            drop(first);
        });
        assert_eq!(served.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(queue.is_empty());
    }
}
