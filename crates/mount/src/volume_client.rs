//! The client of a volume for whom a thread works: whether it still listens.
//!
//! A read of a store that is away waits as long as its client listens, where `failmode` says so,
//! and so does a write that waits for room. The rooms below know a client by a number, since they
//! know none of its connection; here is the connection of each number.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use steadfast_env::insist::{Client, serving};
use steadfast_posix::Patience;

/// Connections of all clients of this process, and the number that the last one got.
static CONNECTIONS: Mutex<(BTreeMap<u32, Arc<UnixStream>>, u32)> = Mutex::new((BTreeMap::new(), 0));

/// A connected client, until this is dropped.
#[derive(Debug)]
pub struct VolumeClient {
    number: u32,
}

impl VolumeClient {
    /// The client at the other end of a connection.
    #[must_use]
    pub fn new(connection: Arc<UnixStream>) -> VolumeClient {
        let mut connections = CONNECTIONS.lock();
        let (by_number, last) = &mut *connections;
        loop {
            *last = last.wrapping_add(1);
            if let std::collections::btree_map::Entry::Vacant(place) = by_number.entry(*last) {
                place.insert(connection);
                return VolumeClient { number: *last };
            }
        }
    }

    /// Works for it: what waits does so as long as it listens.
    pub(crate) fn attend<T>(&self, work: impl FnOnce() -> T) -> T {
        let client = Client { is_dying: has_left, thread: self.number };
        serving(client, || Patience::WhileAlive { is_dying: has_left, caller: self.number }.during(work))
    }
}

impl Drop for VolumeClient {
    fn drop(&mut self) {
        CONNECTIONS.lock().0.remove(&self.number);
    }
}

/// True if the client hung up, or was cut off. It may have sent more requests before that: they do
/// not count.
fn has_left(number: u32) -> bool {
    let Some(connection) = CONNECTIONS.lock().0.get(&number).cloned() else { return true };
    // These are told of without being asked for.
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    let mut polled = [PollFd::new(&*connection, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(gone)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::Shutdown;

    use super::*;

    #[test]
    fn a_client_has_left_once_it_hung_up_or_was_cut_off() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let client = VolumeClient::new(Arc::new(ours));
        theirs.write_all(b"a request").unwrap();
        assert!(!has_left(client.number));
        drop(theirs);
        assert!(has_left(client.number));

        let (ours, _theirs) = UnixStream::pair().unwrap();
        let ours = Arc::new(ours);
        let other = VolumeClient::new(Arc::clone(&ours));
        assert_ne!(other.number, client.number);
        assert!(!has_left(other.number));
        ours.shutdown(Shutdown::Both).unwrap();
        assert!(has_left(other.number));

        let number = client.number;
        drop(client);
        assert!(has_left(number), "nobody has this number");
    }
}
