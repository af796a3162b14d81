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
        slice.in_flight = slice.in_flight.max(state.in_flight);
    }

    pub fn request(&self, kind: Kind) {
        self.note(|counts| counts.requests[kind as usize] += 1, |held| held + 1);
    }

    /// Requests were answered, or their connection is gone.
    pub fn ended(&self, requests: usize) {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        self.note(|_| (), |held| held.saturating_sub(requests));
    }

    pub fn up(&self, bytes: usize) {
        self.note(|counts| counts.up += bytes as u64, |held| held);
    }

    pub fn down(&self, bytes: usize) {
        self.note(|counts| counts.down += bytes as u64, |held| held);
    }

    pub fn counts(&self) -> Counts {
        self.state().counts
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
