//! Counts of what passed, as a whole and over time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Length of one slice of time.
pub const SLICE: Duration = Duration::from_millis(100);

/// Kind of a request to a store, as providers sell them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Objects or parts of them written.
    Put,
    /// Objects or parts of them read.
    Get,
    /// Questions about an object.
    Head,
    /// Lists.
    List,
    /// Objects deleted, one or many.
    Delete,
    /// Everything else.
    Other,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 6] = [Kind::Put, Kind::Get, Kind::Head, Kind::List, Kind::Delete, Kind::Other];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Put => "PUT",
            Kind::Get => "GET",
            Kind::Head => "HEAD",
            Kind::List => "LIST",
            Kind::Delete => "DELETE",
            Kind::Other => "other",
        }
    }

    /// Kind of a request with this method and target, as S3 reads it: `/BUCKET/OBJECT?QUESTION`.
    #[must_use]
    pub fn of(method: &str, target: &str) -> Kind {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let asks = |word: &str| query.split('&').any(|part| part.split('=').next() == Some(word));
        let is_of_object = path.trim_matches('/').contains('/');
        match method {
            "PUT" => Kind::Put,
            "HEAD" => Kind::Head,
            "DELETE" => Kind::Delete,
            "POST" if asks("delete") => Kind::Delete,
            "GET" if is_of_object => Kind::Get,
            "GET" if asks("list-type") || asks("prefix") || asks("delimiter") || query.is_empty() => {
                Kind::List
            }
            _ => Kind::Other,
        }
    }
}

/// Requests and bytes that have passed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Requests, in the order of [`Kind::ALL`].
    pub requests: [u64; 6],
    /// Bytes from clients to the store.
    pub up: u64,
    /// Bytes from the store to clients.
    pub down: u64,
    /// Round trips: the longest row of requests that each came after the one before was answered.
    /// Those that are made side by side are one.
    pub round_trips: u64,
    /// Connections that were opened.
    pub connections: u64,
    /// Packets from clients to the store that were lost, each time that they were.
    pub lost_up: u64,
    /// The same from the store to clients.
    pub lost_down: u64,
}

impl Counts {
    /// Requests of one kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> u64 {
        self.requests[kind as usize]
    }

    /// All requests.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// Those since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            requests: std::array::from_fn(|at| self.requests[at] - earlier.requests[at]),
            up: self.up - earlier.up,
            down: self.down - earlier.down,
            round_trips: self.round_trips - earlier.round_trips,
            connections: self.connections - earlier.connections,
            lost_up: self.lost_up - earlier.lost_up,
            lost_down: self.lost_down - earlier.lost_down,
        }
    }
}

/// Counts of one slice of time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Slice {
    /// Requests and bytes that began in it.
    pub counts: Counts,
    /// Most requests that were in flight at once in it.
    pub in_flight: u32,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    in_flight: u32,
    slices: Vec<Slice>,
    /// Answers under way to their client: when they will be there, and the round trip of each.
    answers: Vec<(Instant, u64)>,
}

impl State {
    /// Notes the answers that have arrived by now.
    fn settle(&mut self, now: Instant) {
        let trips = &mut self.counts.round_trips;
        self.answers.retain(|(due, trip)| {
            let is_here = *due <= now;
            if is_here {
                *trips = (*trips).max(*trip);
            }
            !is_here
        });
    }
}

/// Counts while they are counted.
#[derive(Debug)]
pub(crate) struct Tally {
    began: Instant,
    state: Mutex<State>,
}

impl Tally {
    pub fn new() -> Tally {
        Tally { began: Instant::now(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, change: impl FnOnce(&mut Counts), flight: impl FnOnce(u32) -> u32) {
        let at = (self.began.elapsed().as_nanos() / SLICE.as_nanos()) as usize;
        let state = &mut *self.state();
        let before = state.counts;
        change(&mut state.counts);
        let more = state.counts.since(&before);
        let held = state.in_flight;
        state.in_flight = flight(held);
        if state.slices.len() <= at {
            // Requests that are under way in a slice without news are in flight there too.
            state.slices.resize(at + 1, Slice { in_flight: held, ..Slice::default() });
        }
        let slice = &mut state.slices[at];
        for (sum, one) in slice.counts.requests.iter_mut().zip(more.requests) {
            *sum += one;
        }
        slice.counts.up += more.up;
        slice.counts.down += more.down;
        slice.counts.connections += more.connections;
        slice.counts.lost_up += more.lost_up;
        slice.counts.lost_down += more.lost_down;
        slice.in_flight = slice.in_flight.max(state.in_flight);
    }

    /// A request came. Gives the round trip that it belongs to.
    pub fn request(&self, kind: Kind) -> u64 {
        self.request_at(kind, Instant::now())
    }

    fn request_at(&self, kind: Kind, now: Instant) -> u64 {
        self.note(|counts| counts.requests[kind as usize] += 1, |held| held + 1);
        let mut state = self.state();
        state.settle(now);
        state.counts.round_trips + 1
    }

    /// The answer to a request of that round trip ends, and arrives at `due`.
    pub fn answered(&self, round_trip: u64, due: Instant) {
        self.ended(1);
        self.state().answers.push((due, round_trip));
    }

    /// A connection was opened. Gives its number, from 1 on.
    pub fn connected(&self) -> u64 {
        let mut number = 0;
        let count = |counts: &mut Counts| {
            counts.connections += 1;
            number = counts.connections;
        };
        self.note(count, |held| held);
        number
    }

    /// Requests were answered, or their connection is gone.
    pub fn ended(&self, requests: usize) {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        self.note(|_| (), |held| held.saturating_sub(requests));
    }

    pub fn up(&self, bytes: usize, lost: u64) {
        let count = |counts: &mut Counts| {
            counts.up += bytes as u64;
            counts.lost_up += lost;
        };
        self.note(count, |held| held);
    }

    pub fn down(&self, bytes: usize, lost: u64) {
        let count = |counts: &mut Counts| {
            counts.down += bytes as u64;
            counts.lost_down += lost;
        };
        self.note(count, |held| held);
    }

    pub fn counts(&self) -> Counts {
        self.counts_at(Instant::now())
    }

    fn counts_at(&self, now: Instant) -> Counts {
        let mut state = self.state();
        state.settle(now);
        state.counts
    }

    /// Slices from the link's start until now.
    pub fn slices(&self) -> Vec<Slice> {
        self.state().slices.clone()
    }

    pub fn began(&self) -> Instant {
        self.began
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_side_by_side_are_one_round_trip_and_a_row_of_them_several() {
        let tally = Tally::new();
        let at = |ms: u64| tally.began() + Duration::from_millis(ms);
        let before = tally.counts_at(at(0));
        let first = [0, 10].map(|ms| tally.request_at(Kind::Get, at(ms)));
        tally.answered(first[0], at(50));
        tally.answered(first[1], at(60));
        // It was sent before the other answers had arrived.
        let beside = tally.request_at(Kind::Get, at(49));
        assert_eq!((first, beside), ([1, 1], 1));
        let second = tally.request_at(Kind::Put, at(51));
        tally.answered(second, at(101));
        tally.answered(beside, at(99));
        assert_eq!(tally.counts_at(at(100)).since(&before).round_trips, 1, "the second is under way");
        assert_eq!(tally.counts_at(at(101)).since(&before).round_trips, 2);
    }

    #[test]
    fn requests_are_of_the_kinds_that_are_sold() {
        for (method, target, kind) in [
            ("PUT", "/bucket/a/b", Kind::Put),
            ("PUT", "/bucket/a?partNumber=1&uploadId=x", Kind::Put),
            ("GET", "/bucket/a", Kind::Get),
            ("GET", "/bucket?list-type=2&prefix=a", Kind::List),
            ("GET", "/bucket/?prefix=a&delimiter=/", Kind::List),
            ("GET", "/bucket?versioning", Kind::Other),
            ("HEAD", "/bucket/a", Kind::Head),
            ("DELETE", "/bucket/a", Kind::Delete),
            ("POST", "/bucket?delete", Kind::Delete),
            ("POST", "/bucket/a?uploads", Kind::Other),
        ] {
            assert_eq!(Kind::of(method, target), kind, "{method} {target}");
        }
        assert!(Kind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
    }
}
