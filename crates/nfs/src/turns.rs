//! Requests that wait for a thread: each client's in their order, one of each client after the
//! other. A client is an address, however many connections it has.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// A queue in which clients take turns. It has entries for those alone who wait.
pub(crate) struct Turns<T> {
    waiting: HashMap<IpAddr, VecDeque<T>>,
    /// Each client that waits, once.
    order: VecDeque<IpAddr>,
}

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns { waiting: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T> Turns<T> {
    /// Adds a request of a client.
    pub(crate) fn push(&mut self, client: IpAddr, request: T) {
        let queue = self.waiting.entry(client).or_default();
        if queue.is_empty() {
            self.order.push_back(client);
        }
        queue.push_back(request);
    }

    /// The next one.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let client = self.order.pop_front()?;
        let queue = self.waiting.get_mut(&client)?;
        let request = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&client);
        } else {
            self.order.push_back(client);
        }
        request
    }

    /// True if nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_floods_is_behind_each_other_one_once() {
        let (mut turns, flood, modest) = (Turns::default(), [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        (0..1_000).for_each(|number| turns.push(flood, number));
        turns.push(modest, 5_000);
        turns.push(modest, 5_001);
        let next: Vec<u32> = std::iter::from_fn(|| turns.pop()).take(6).collect();
        assert_eq!(next, [0, 5_000, 1, 5_001, 2, 3]);
        assert_eq!(
            std::iter::from_fn(|| turns.pop()).collect::<Vec<u32>>(),
            (4..1_000).collect::<Vec<u32>>()
        );
        assert!(turns.is_empty() && turns.waiting.is_empty());
    }
}
