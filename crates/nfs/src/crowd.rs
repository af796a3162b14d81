//! Connections by their numbers. One address cannot have all of them, so that others find room.

use std::collections::HashMap;
use std::net::IpAddr;

/// Most connections.
pub const CONNECTIONS_MAX: usize = 12_000;
/// Most of one address.
const EACH_MAX: usize = 10_000;

/// Connections, and how many each address has.
pub(crate) struct Crowd<T> {
    all: HashMap<u64, (IpAddr, T)>,
    counts: HashMap<IpAddr, usize>,
}

impl<T> Default for Crowd<T> {
    fn default() -> Crowd<T> {
        Crowd { all: HashMap::new(), counts: HashMap::new() }
    }
}

impl<T: Clone> Crowd<T> {
    /// Lets one in. False if there is no room.
    pub(crate) fn enter(&mut self, number: u64, address: IpAddr, connection: T) -> bool {
        let each = self.counts.get(&address).copied().unwrap_or(0);
        if self.all.len() >= CONNECTIONS_MAX || each >= EACH_MAX {
            return false;
        }
        self.counts.insert(address, each + 1);
        self.all.insert(number, (address, connection));
        true
    }

    /// One is gone.
    pub(crate) fn leave(&mut self, number: u64) {
        let Some((address, _)) = self.all.remove(&number) else { return };
        match self.counts.get_mut(&address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = self.counts.remove(&address),
        }
    }

    /// The one with a number.
    pub(crate) fn get(&self, number: u64) -> Option<T> {
        self.all.get(&number).map(|(_, connection)| connection.clone())
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<T> {
        self.all.values().map(|(_, connection)| connection.clone()).collect()
    }

    /// Their number.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_connects_without_end_leaves_room_for_others() {
        let (mut crowd, greedy, modest) = (Crowd::default(), [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let entered = (0..20_000).filter(|number| crowd.enter(*number, greedy, ())).count();
        assert_eq!((entered, crowd.enter(30_000, modest, ())), (EACH_MAX, true));
        crowd.leave(7);
        crowd.leave(7);
        assert_eq!((crowd.len(), crowd.get(7), crowd.get(30_000)), (EACH_MAX, None, Some(())));
        assert!(crowd.enter(30_001, greedy, ()) && !crowd.enter(30_002, greedy, ()));
        (0..40_000).for_each(|number| crowd.leave(number));
        assert!(crowd.all().is_empty() && crowd.counts.is_empty());
    }
}
