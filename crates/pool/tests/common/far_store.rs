//! A store of objects that is far away: its round trips are counted, with everything that a host
//! asks of it.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_device::objects::{MemoryStore, ObjectRange, Store};
use steadfast_device::{Operation, Result};

#[derive(Default)]
struct Trips {
    /// Requests under way.
    in_flight: usize,
    /// Trips of the longest row of requests that each began after the one before had ended.
    rounds: u64,
    /// Requests, each with the trip that it belongs to.
    requests: Vec<(u64, Operation, String)>,
}

/// Requests that are made together are one round trip, those that follow each other are several.
pub struct FarStore {
    store: MemoryStore,
    pause: Duration,
    trips: Mutex<Trips>,
    changed: Condvar,
}

impl FarStore {
    /// A handle of a store, of which each request takes so long.
    pub fn new(store: &MemoryStore, pause: Duration) -> Arc<FarStore> {
        Arc::new(FarStore {
            store: store.handle(|_| None),
            pause,
            trips: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn trips(&self) -> MutexGuard<'_, Trips> {
        self.trips.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Round trips and requests since the last call.
    pub fn take(&self) -> (u64, Vec<(u64, Operation, String)>) {
        let mut trips = self.trips();
        (std::mem::take(&mut trips.rounds), std::mem::take(&mut trips.requests))
    }

    /// Waits until no request is under way, and none was made for so long as one takes.
    pub fn quiet(&self) {
        let mut trips = self.trips();
        loop {
            let busy = self.changed.wait_while(trips, |trips| trips.in_flight > 0);
            let idle = busy.unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(idle, self.pause, |trips| trips.in_flight == 0);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return;
            }
            trips = guard;
        }
    }

    fn trip<T>(&self, operation: Operation, names: &[&str], act: impl FnOnce() -> T) -> T {
        let round = {
            let mut trips = self.trips();
            let round = trips.rounds + 1;
            trips.in_flight += 1;
            trips.requests.extend(names.iter().map(|name| (round, operation, (*name).to_owned())));
            drop(trips);
            self.changed.notify_all();
            round
        };
        std::thread::sleep(self.pause);
        let done = act();
        let mut trips = self.trips();
        trips.in_flight -= 1;
        trips.rounds = trips.rounds.max(round);
        drop(trips);
        self.changed.notify_all();
        done
    }
}

impl Store for FarStore {
    fn identity(&self) -> String {
        self.store.identity()
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.trip(Operation::Write, &[name], || self.store.create(name, bytes))
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>> {
        self.trip(Operation::Read, &[name], || self.store.read(name, range))
    }

    fn read_each(&self, names: &[String]) -> Vec<Result<Vec<u8>>> {
        let asked: Vec<&str> = names.iter().map(String::as_str).collect();
        self.trip(Operation::Read, &asked, || self.store.read_each(names))
    }

    fn read_ranges(&self, ranges: &mut [ObjectRange<'_>]) {
        let names: Vec<&str> = ranges.iter().map(|range| range.object).collect();
        self.trip(Operation::Read, &names, || self.store.read_ranges(ranges));
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.trip(Operation::List, &[folder], || self.store.list(folder))
    }

    fn delete(&self, names: &[String]) -> Result<()> {
        let first: Vec<&str> = names.iter().map(String::as_str).take(1).collect();
        self.trip(Operation::Discard, &first, || self.store.delete(names))
    }
}
