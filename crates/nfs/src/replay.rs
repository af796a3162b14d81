//! Replies to calls that must not be carried out twice (a cache of duplicate requests, as knfsd
//! has). A client that lost its connection sends a call again; a REMOVE that was done the first
//! time would fail the second.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// Replies that are kept, the youngest ones.
const KEPT_MAX: usize = 2_048;
/// Longest reply that is kept: replies to changes of names are shorter.
const REPLY_MAX: usize = 1_024;

/// A call: who made it, its number, and a hash of its bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Repeat {
    client: IpAddr,
    xid: u32,
    hash: u64,
}

/// State of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Known {
    /// Nothing: it is to be carried out.
    New,
    /// It is being carried out. A reply comes, or came on a connection that is gone.
    UnderWay,
    /// It was answered like this.
    Answered(Vec<u8>),
}

#[derive(Default)]
struct Table {
    by_call: HashMap<Repeat, Option<Vec<u8>>>,
    /// Answered calls, the oldest first.
    order: VecDeque<Repeat>,
}

/// Calls of late, and their replies.
#[derive(Default)]
pub struct Replays {
    hasher: RandomState,
    table: Mutex<Table>,
}

impl Replays {
    /// A call has come.
    pub fn begin(&self, client: IpAddr, xid: u32, record: &[u8]) -> (Repeat, Known) {
        let repeat = Repeat { client, xid, hash: self.hasher.hash_one(record) };
        let mut table = self.table.lock();
        let known = match table.by_call.get(&repeat) {
            Some(Some(reply)) => Known::Answered(reply.clone()),
            Some(None) => Known::UnderWay,
            None => Known::New,
        };
        if known == Known::New {
            table.by_call.insert(repeat, None);
        }
        (repeat, known)
    }

    /// A call is answered; `None` if it was not carried out, so that it may be tried again.
    pub fn end(&self, repeat: Repeat, reply: Option<&[u8]>) {
        let mut table = self.table.lock();
        let Some(reply) = reply.filter(|reply| reply.len() <= REPLY_MAX) else {
            table.by_call.remove(&repeat);
            return;
        };
        table.by_call.insert(repeat, Some(reply.to_vec()));
        table.order.push_back(repeat);
        if table.order.len() > KEPT_MAX
            && let Some(oldest) = table.order.pop_front()
        {
            table.by_call.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_comes_again_gets_the_reply_it_had() {
        let (replays, client) = (Replays::default(), IpAddr::from([10, 0, 0, 1]));
        let (first, known) = replays.begin(client, 7, b"remove a");
        assert_eq!(known, Known::New);
        assert_eq!(replays.begin(client, 7, b"remove a").1, Known::UnderWay);
        replays.end(first, Some(b"done"));
        assert_eq!(replays.begin(client, 7, b"remove a").1, Known::Answered(b"done".to_vec()));
        assert_eq!(replays.begin(client, 7, b"remove b").1, Known::New, "a number that is used again");
        assert_eq!(replays.begin(IpAddr::from([10, 0, 0, 2]), 7, b"remove a").1, Known::New);
    }

    #[test]
    fn the_oldest_replies_go() {
        let (replays, client) = (Replays::default(), IpAddr::from([10, 0, 0, 1]));
        for xid in 0..KEPT_MAX as u32 + 1 {
            let (repeat, _) = replays.begin(client, xid, b"x");
            replays.end(repeat, Some(b"done"));
        }
        assert_eq!(replays.begin(client, 0, b"x").1, Known::New);
        assert!(matches!(replays.begin(client, 1, b"x").1, Known::Answered(_)));
        let (again, _) = replays.begin(client, 9_999, b"x");
        replays.end(again, None);
        assert_eq!(replays.begin(client, 9_999, b"x").1, Known::New, "it was not carried out");
    }
}
