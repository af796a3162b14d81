//! # The table of locks
//!
//! Byte ranges that owners at clients hold, and those who wait for them. It knows files by their
//! numbers and asks no file system: locks outlive an unmount, as handles do, and a file that is
//! gone.
//!
//! Someone who waits gets the range in the moment in which it becomes free, before he hears of it:
//! a client takes GRANTED for the lock itself. Until the client has confirmed that, or asked
//! again, the range is `promised`. A promise that certainly did not arrive is taken back after a
//! while, when the client should have asked again.
//!
//! ## Bounds
//! [`EACH_MAX`] entries for each address and [`ALL_MAX`] for all, with names of at most
//! [`NAME_MAX`] bytes. Ranges of one owner that touch are one entry.
//!
//! ## Invariants
//! [locks.1] Two ranges of one file that overlap are of one owner, or both are shared.
//!      test: `random_locks_are_those_of_a_simpler_table`
//! [locks.2] `counts` has the entries of each address, and nothing for one without. tests: the same
//! [locks.3] After each call nobody waits whom nothing blocks. tests: the same

use crate::handle::{ExportId, FileId};
use crate::nlm4::Holder;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most entries of one address.
pub(crate) const EACH_MAX: usize = 4_096;
/// Most entries of all.
const ALL_MAX: usize = 100_000;
/// Longest name of an owner or a machine.
pub(crate) const NAME_MAX: usize = 255;
/// How long somebody who waits may be silent: Linux asks again every 30 seconds.
const SILENCE: Duration = Duration::from_secs(100);

/// A file, whether it is mounted or not.
pub(crate) type File = (ExportId, FileId);

/// A client's machine.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Host {
    /// Its address.
    pub address: IpAddr,
    /// Its own name for itself.
    pub name: Vec<u8>,
    /// It used a port that only root has there.
    pub low_port: bool,
}

/// Somebody at a client who has locks.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Owner {
    pub host: Host,
    pub svid: u32,
    pub opaque: Vec<u8>,
}

/// A range and how it is wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Range {
    pub start: u64,
    pub last: u64,
    pub exclusive: bool,
}

impl Range {
    fn overlaps(&self, other: &Range) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    fn conflicts(&self, other: &Range) -> bool {
        self.overlaps(other) && (self.exclusive || other.exclusive)
    }
}

/// All that is needed to tell a client of a lock for which it waited.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Way {
    /// Our address, as the client knows it.
    pub server: IpAddr,
    pub cookie: Vec<u8>,
    /// Handle, offset and length as the client gave them.
    pub handle: Vec<u8>,
    pub offset: u64,
    pub length: u64,
}

/// A lock that somebody got who had waited for it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Grant {
    pub number: u64,
    pub file: File,
    pub owner: Arc<Owner>,
    pub exclusive: bool,
    pub way: Way,
}

/// Answer to a wish for a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wish {
    Granted,
    Denied,
    Blocked,
    NoRoom,
}

/// The client's word about a promise.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Word {
    /// It has it.
    Taken,
    /// It does not want it.
    Refused,
    /// It never heard of it, certainly.
    Unheard,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Held {
    owner: Arc<Owner>,
    range: Range,
    promise: Option<Promise>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Promise {
    number: u64,
    /// The time at which it is taken back, if it did not arrive.
    until: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Waiting {
    owner: Arc<Owner>,
    range: Range,
    way: Way,
    heard: Instant,
}

/// A file opened as DOS does.
#[derive(Clone, Debug)]
struct Opened {
    owner: Arc<Owner>,
    denied: u32,
    access: u32,
}

#[derive(Default)]
struct Locked {
    held: Vec<Held>,
    /// The first one waits longest.
    waiting: Vec<Waiting>,
    opened: Vec<Opened>,
}

impl Locked {
    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty() && self.opened.is_empty()
    }

    fn in_the_way(&self, owner: &Owner, range: &Range) -> Option<&Held> {
        self.held.iter().find(|held| held.range.conflicts(range) && *held.owner != *owner)
    }

    /// Takes a range from its owner; what lies beside it stays.
    fn carve(&mut self, owner: &Owner, range: &Range) {
        let is_his = |held: &Held| held.range.overlaps(range) && *held.owner == *owner;
        if !self.held.iter().any(is_his) {
            return;
        }
        let mut left = Vec::with_capacity(self.held.len() + 1);
        for held in self.held.drain(..) {
            if !is_his(&held) {
                left.push(held);
                continue;
            }
            let part = |start, last| Held { range: Range { start, last, ..held.range }, ..held.clone() };
            if held.range.start < range.start {
                left.push(part(held.range.start, range.start - 1));
            }
            if held.range.last > range.last {
                left.push(part(range.last + 1, held.range.last));
            }
        }
        self.held = left;
    }

    /// Gives a range to an owner, instead of what he had there.
    fn give(&mut self, owner: &Arc<Owner>, mut range: Range, promise: Option<Promise>) {
        self.carve(owner, &range);
        if promise.is_none() {
            self.held.retain(|held| {
                let touches = held.range.last.checked_add(1) == Some(range.start)
                    || range.last.checked_add(1) == Some(held.range.start);
                let joins = touches
                    && held.owner == *owner
                    && held.range.exclusive == range.exclusive
                    && held.promise.is_none();
                if joins {
                    range.start = range.start.min(held.range.start);
                    range.last = range.last.max(held.range.last);
                }
                !joins
            });
        }
        self.held.push(Held { owner: Arc::clone(owner), range, promise });
    }

    /// Addresses and how many entries they have here. One may come several times.
    fn entries(&self) -> Vec<(IpAddr, usize)> {
        let held = self.held.iter().map(|held| &held.owner);
        let waiting = self.waiting.iter().map(|waiting| &waiting.owner);
        let opened = self.opened.iter().map(|opened| &opened.owner);
        let mut entries: Vec<(IpAddr, usize)> = Vec::new();
        for address in held.chain(waiting).chain(opened).map(|owner| owner.host.address) {
            match entries.last_mut() {
                Some((last, count)) if *last == address => *count += 1,
                _ => entries.push((address, 1)),
            }
        }
        entries
    }
}

/// All locks.
#[derive(Default)]
pub(crate) struct Locks {
    files: HashMap<File, Locked>,
    counts: HashMap<IpAddr, usize>,
    all: usize,
    promises: u64,
}

impl Locks {
    /// A lock of somebody else that is in the way.
    pub(crate) fn test(&self, file: File, owner: &Owner, range: &Range) -> Option<Holder> {
        let held = self.files.get(&file)?.in_the_way(owner, range)?;
        let Range { start, last, exclusive } = held.range;
        Some(Holder { exclusive, svid: held.owner.svid, owner: held.owner.opaque.clone(), start, last })
    }

    /// Takes a lock, or remembers who waits for it.
    pub(crate) fn lock(
        &mut self,
        file: File,
        owner: &Arc<Owner>,
        range: Range,
        way: Option<Way>,
        now: Instant,
        grants: &mut Vec<Grant>,
    ) -> Wish {
        // At most a new one, and one that is cut in two.
        let has_room = self.has_room(owner.host.address, 2);
        self.change(file, grants, |locked| {
            let is_mine = |waiting: &Waiting| waiting.owner == *owner && waiting.range == range;
            let known = locked.waiting.iter().position(is_mine);
            if locked.in_the_way(owner, &range).is_none() {
                if let Some(at) = known {
                    locked.waiting.remove(at);
                } else if !has_room {
                    return Wish::NoRoom;
                }
                locked.give(owner, range, None);
                return Wish::Granted;
            }
            match (way, known) {
                (None, _) => Wish::Denied,
                (Some(way), Some(at)) => {
                    (locked.waiting[at].way, locked.waiting[at].heard) = (way, now);
                    Wish::Blocked
                }
                (Some(_), None) if !has_room => Wish::NoRoom,
                (Some(way), None) => {
                    locked.waiting.push(Waiting { owner: Arc::clone(owner), range, way, heard: now });
                    Wish::Blocked
                }
            }
        })
    }

    /// Gives a range back. False if there is no room for the two ends of what is left.
    pub(crate) fn unlock(
        &mut self,
        file: File,
        owner: &Owner,
        range: Range,
        grants: &mut Vec<Grant>,
    ) -> bool {
        let has_room = self.has_room(owner.host.address, 1);
        self.change(file, grants, |locked| {
            let splits = locked.held.iter().any(|held| {
                *held.owner == *owner && held.range.start < range.start && held.range.last > range.last
            });
            if splits && !has_room {
                return false;
            }
            locked.carve(owner, &range);
            true
        })
    }

    /// Somebody waits no longer. A promise that he did not confirm is taken back. False if he
    /// neither waited nor had a promise.
    pub(crate) fn cancel(
        &mut self,
        file: File,
        owner: &Owner,
        range: Range,
        grants: &mut Vec<Grant>,
    ) -> bool {
        self.change(file, grants, |locked| {
            let (waiting, held) = (locked.waiting.len(), locked.held.len());
            locked.waiting.retain(|waiting| *waiting.owner != *owner || waiting.range != range);
            locked.held.retain(|held| {
                held.promise.is_none() || *held.owner != *owner || !held.range.overlaps(&range)
            });
            (waiting, held) != (locked.waiting.len(), locked.held.len())
        })
    }

    /// Opens a file as DOS does: what the others deny and do, and what this one denies and does,
    /// must not meet.
    pub(crate) fn open(&mut self, file: File, owner: &Arc<Owner>, denied: u32, access: u32) -> Wish {
        let has_room = self.has_room(owner.host.address, 1);
        self.change(file, &mut Vec::new(), |locked| {
            let meets = |other: &&Opened| {
                other.owner != *owner && (access & other.denied | denied & other.access) != 0
            };
            if locked.opened.iter().any(|other| meets(&other)) {
                return Wish::Denied;
            }
            match locked.opened.iter_mut().find(|other| other.owner == *owner) {
                Some(mine) => (mine.denied, mine.access) = (denied, access),
                None if !has_room => return Wish::NoRoom,
                None => locked.opened.push(Opened { owner: Arc::clone(owner), denied, access }),
            }
            Wish::Granted
        })
    }

    /// Closes it.
    pub(crate) fn close(&mut self, file: File, owner: &Owner) {
        self.change(file, &mut Vec::new(), |locked| locked.opened.retain(|mine| *mine.owner != *owner));
    }

    /// Gives everything back that some machines have.
    pub(crate) fn free(&mut self, is_gone: impl Fn(&Host) -> bool, grants: &mut Vec<Grant>) {
        let touched: Vec<File> = self.files.keys().copied().collect();
        for file in touched {
            self.change(file, grants, |locked| {
                locked.held.retain(|held| !is_gone(&held.owner.host));
                locked.waiting.retain(|waiting| !is_gone(&waiting.owner.host));
                locked.opened.retain(|opened| !is_gone(&opened.owner.host));
            });
        }
    }

    /// The client's word about a promise, or that it did not hear of it.
    pub(crate) fn confirm(
        &mut self,
        file: File,
        number: u64,
        word: Word,
        now: Instant,
        grants: &mut Vec<Grant>,
    ) {
        self.change(file, grants, |locked| {
            let is_it = |held: &Held| held.promise.is_some_and(|promise| promise.number == number);
            if word == Word::Refused {
                return locked.held.retain(|held| !is_it(held));
            }
            for held in locked.held.iter_mut().filter(|held| is_it(held)) {
                let until = Some(now + SILENCE);
                held.promise = (word == Word::Unheard).then_some(Promise { number, until });
            }
        });
    }

    /// Takes back what was promised and not heard of, and forgets who waits and is silent.
    pub(crate) fn expire(&mut self, now: Instant, grants: &mut Vec<Grant>) {
        let is_old =
            |held: &Held| held.promise.and_then(|promise| promise.until).is_some_and(|until| until <= now);
        let is_silent = |waiting: &Waiting| now.saturating_duration_since(waiting.heard) > SILENCE;
        let old = |(file, locked): (&File, &Locked)| {
            let is_due = locked.held.iter().any(is_old) || locked.waiting.iter().any(is_silent);
            is_due.then_some(*file)
        };
        let due: Vec<File> = self.files.iter().filter_map(old).collect();
        for file in due {
            self.change(file, grants, |locked| {
                locked.held.retain(|held| !is_old(held));
                locked.waiting.retain(|waiting| !is_silent(waiting));
            });
        }
    }

    /// True if a machine has something here.
    pub(crate) fn has(&self, host: &Host) -> bool {
        self.counts.contains_key(&host.address)
            && self.files.values().any(|locked| {
                locked.held.iter().any(|held| held.owner.host == *host)
                    || locked.waiting.iter().any(|waiting| waiting.owner.host == *host)
                    || locked.opened.iter().any(|opened| opened.owner.host == *host)
            })
    }

    /// Entries of all.
    pub(crate) fn len(&self) -> usize {
        self.all
    }

    fn has_room(&self, address: IpAddr, more: usize) -> bool {
        self.counts.get(&address).copied().unwrap_or(0) + more <= EACH_MAX && self.all + more <= ALL_MAX
    }

    /// Changes what is known of a file, gives what became free to those who wait, and counts.
    fn change<R>(&mut self, file: File, grants: &mut Vec<Grant>, act: impl FnOnce(&mut Locked) -> R) -> R {
        let locked = self.files.entry(file).or_default();
        for (address, entries) in locked.entries() {
            match self.counts.get_mut(&address) {
                Some(count) if *count > entries => *count -= entries,
                _ => _ = self.counts.remove(&address),
            }
            self.all -= entries;
        }
        let result = act(locked);
        let mut at = 0;
        while let Some(first) = locked.waiting.get(at) {
            if locked.in_the_way(&first.owner, &first.range).is_some() {
                at += 1;
                continue;
            }
            let Waiting { owner, range, way, .. } = locked.waiting.remove(at);
            self.promises += 1;
            let promise = Promise { number: self.promises, until: None };
            locked.give(&owner, range, Some(promise));
            grants.push(Grant { number: promise.number, file, owner, exclusive: range.exclusive, way });
        }
        for (address, entries) in locked.entries() {
            *self.counts.entry(address).or_default() += entries;
            self.all += entries;
        }
        if locked.is_empty() {
            self.files.remove(&file);
        }
        result
    }
}

#[cfg(test)]
mod tests;
