//! Tests of the table of locks.

use super::*;

const FILE: File = (ExportId { pool: 1, dataset: 2 }, FileId { snapshot: 0, ino: 3, generation: 4 });

fn owner(machine: u8, svid: u32) -> Arc<Owner> {
    let host = Host { address: [10, 0, 0, machine].into(), name: vec![b'a' + machine], low_port: true };
    Arc::new(Owner { host, svid, opaque: Vec::new() })
}

fn range(start: u64, last: u64, exclusive: bool) -> Range {
    Range { start, last, exclusive }
}

fn way() -> Way {
    let (server, offset, length) = ([10, 0, 0, 99].into(), 0, 0);
    Way { server, cookie: b"c".to_vec(), handle: b"h".to_vec(), offset, length }
}

/// A table with a clock that stands.
struct Table {
    locks: Locks,
    now: Instant,
    grants: Vec<Grant>,
}

impl Table {
    fn new() -> Table {
        Table { locks: Locks::default(), now: Instant::now(), grants: Vec::new() }
    }

    fn lock(&mut self, owner: &Arc<Owner>, range: Range, waits: bool) -> Wish {
        self.locks.lock(FILE, owner, range, waits.then(way), self.now, &mut self.grants)
    }

    fn unlock(&mut self, owner: &Owner, start: u64, last: u64) -> bool {
        self.locks.unlock(FILE, owner, range(start, last, false), &mut self.grants)
    }

    fn granted(&mut self) -> Vec<(u64, u32)> {
        self.grants.drain(..).map(|grant| (grant.number, grant.owner.svid)).collect()
    }
}

#[test]
fn who_waits_gets_the_range_in_the_order_of_asking() {
    let mut table = Table::new();
    let (one, two, three) = (owner(1, 1), owner(2, 2), owner(3, 3));
    let all = range(0, u64::MAX, true);
    assert_eq!(table.lock(&one, all, true), Wish::Granted);
    assert_eq!(table.lock(&two, all, false), Wish::Denied);
    assert_eq!((table.lock(&two, all, true), table.lock(&two, all, true)), (Wish::Blocked, Wish::Blocked));
    assert_eq!(table.lock(&three, range(5, 5, false), true), Wish::Blocked);
    assert!(table.unlock(&one, 0, u64::MAX));
    assert_eq!(table.granted(), [(1, 2)], "once, though it asked twice");
    assert_eq!(table.locks.test(FILE, &one, &range(7, 7, false)).expect("held").svid, 2);
    // The client heard it, and gives it back.
    table.locks.confirm(FILE, 1, Word::Taken, table.now, &mut table.grants);
    assert!(table.unlock(&two, 0, u64::MAX));
    assert_eq!(table.granted(), [(2, 3)]);
    // It does not want it any more.
    table.locks.confirm(FILE, 2, Word::Refused, table.now, &mut table.grants);
    assert_eq!((table.locks.len(), table.locks.counts.len(), table.locks.files.len()), (0, 0, 0));
}

#[test]
fn a_promise_that_nobody_heard_is_taken_back_and_one_of_unknown_fate_is_not() {
    let mut table = Table::new();
    let (one, two) = (owner(1, 1), owner(2, 2));
    let byte = range(3, 3, true);
    table.lock(&one, byte, false);
    table.lock(&two, byte, true);
    table.unlock(&one, 3, 3);
    assert_eq!(table.granted(), [(1, 2)]);
    let later = table.now + 2 * SILENCE;
    table.locks.expire(later, &mut table.grants);
    assert_eq!(table.lock(&one, byte, false), Wish::Denied, "the client may have it");
    table.locks.confirm(FILE, 1, Word::Unheard, table.now, &mut table.grants);
    table.locks.expire(table.now + SILENCE / 2, &mut table.grants);
    // It asks again, as clients do, and has it for good.
    assert_eq!(table.lock(&two, byte, true), Wish::Granted);
    table.locks.expire(later, &mut table.grants);
    assert_eq!(table.lock(&one, byte, true), Wish::Blocked);
    table.unlock(&two, 0, 9);
    assert_eq!(table.granted(), [(2, 1)]);
    table.locks.confirm(FILE, 2, Word::Unheard, table.now, &mut table.grants);
    table.locks.expire(later, &mut table.grants);
    assert_eq!(table.lock(&two, byte, true), Wish::Granted);
    // Somebody who waits and is silent for long is forgotten.
    assert_eq!(table.lock(&one, byte, true), Wish::Blocked);
    table.locks.expire(later, &mut table.grants);
    table.unlock(&two, 0, 9);
    assert_eq!((table.granted(), table.locks.len()), (Vec::new(), 0));
}

#[test]
fn a_wait_that_is_cancelled_and_a_machine_that_restarts_leave_nothing() {
    let mut table = Table::new();
    let (one, two, three) = (owner(1, 1), owner(2, 2), owner(3, 3));
    let byte = range(3, 3, true);
    table.lock(&one, byte, false);
    table.lock(&two, byte, true);
    let cancel = |table: &mut Table, owner: &Owner| table.locks.cancel(FILE, owner, byte, &mut table.grants);
    assert_eq!((cancel(&mut table, &two), cancel(&mut table, &two)), (true, false));
    table.lock(&two, byte, true);
    table.unlock(&one, 3, 3);
    // The promise and the end of the wait met on the way.
    assert!(cancel(&mut table, &two));
    table.granted();
    assert_eq!(table.lock(&one, byte, true), Wish::Granted);
    assert_eq!(table.locks.open(FILE, &one, 2, 1), Wish::Granted);
    assert_eq!(table.locks.open(FILE, &two, 0, 2), Wish::Denied, "writing is denied");
    assert_eq!(table.locks.open(FILE, &two, 0, 1), Wish::Granted);
    assert_eq!(table.lock(&three, byte, true), Wish::Blocked);
    assert!(table.locks.has(&one.host));
    table.locks.free(|host| *host == one.host, &mut table.grants);
    assert_eq!(table.granted(), [(2, 3)]);
    assert!(!table.locks.has(&one.host));
    assert_eq!(table.locks.open(FILE, &two, 0, 2), Wish::Granted);
    table.locks.close(FILE, &two);
    table.locks.free(|host| *host == three.host, &mut table.grants);
    assert_eq!((table.locks.len(), table.locks.counts.len()), (0, 0));
}

#[test]
fn a_machine_that_takes_all_it_can_leaves_room_for_others() {
    let mut table = Table::new();
    let (greedy, modest) = (owner(1, 1), owner(2, 2));
    let mut at = 0;
    while table.lock(&greedy, range(at, at, true), false) == Wish::Granted {
        at += 2;
    }
    assert_eq!(table.locks.len(), EACH_MAX - 1);
    assert_eq!(table.lock(&greedy, range(1, 1, true), true), Wish::NoRoom, "even where it would join two");
    assert_eq!(table.lock(&modest, range(1, 1, true), false), Wish::Granted);
    assert!(table.unlock(&greedy, 0, 100));
    // Nor by cutting one range into many.
    assert_eq!(table.lock(&greedy, range(1 << 40, 1 << 50, true), false), Wish::Granted);
    let mut at = 1 << 41;
    while table.unlock(&greedy, at, at) {
        at += 2;
    }
    assert!(table.locks.counts[&greedy.host.address] <= EACH_MAX);
    assert!(table.unlock(&greedy, 0, u64::MAX));
    assert_eq!(table.locks.len(), 1);
}

/// The simplest table: each of 24 bytes has for each owner nothing, a shared or an exclusive lock.
#[test]
fn random_locks_are_those_of_a_simpler_table() {
    const BYTES: usize = 24;
    let owners: Vec<_> = (0..4).map(|number| owner(number as u8 / 2, number)).collect();
    let (mut table, mut simple) = (Table::new(), [[0_u8; BYTES]; 4]);
    let mut waits: Vec<(usize, Range)> = Vec::new();
    let mut seed = 5_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for _ in 0..20_000 {
        let who = draw(4) as usize;
        let start = draw(BYTES as u64);
        let wanted = range(start, (start + draw(6)).min(BYTES as u64 - 1), draw(2) == 0);
        let span = wanted.start as usize..=wanted.last as usize;
        let is_free = |simple: &[[u8; BYTES]; 4], who: usize, wanted: &Range| {
            let in_the_way = |other: &[u8; BYTES]| {
                other[wanted.start as usize..=wanted.last as usize]
                    .iter()
                    .any(|has| *has == 2 || *has == 1 && wanted.exclusive)
            };
            !simple.iter().enumerate().any(|(number, other)| number != who && in_the_way(other))
        };
        match draw(4) {
            0 | 1 => {
                let waiting = draw(2) == 0;
                let wish = table.lock(&owners[who], wanted, waiting);
                let expected = match (is_free(&simple, who, &wanted), waiting) {
                    (true, _) => Wish::Granted,
                    (false, true) => Wish::Blocked,
                    (false, false) => Wish::Denied,
                };
                assert_eq!(wish, expected);
                if wish == Wish::Granted {
                    waits.retain(|wait| *wait != (who, wanted));
                    simple[who][span].fill(1 + u8::from(wanted.exclusive));
                } else if wish == Wish::Blocked && !waits.contains(&(who, wanted)) {
                    waits.push((who, wanted));
                }
            }
            2 => {
                assert!(table.unlock(&owners[who], wanted.start, wanted.last));
                simple[who][span].fill(0);
            }
            _ => {
                table.locks.free(|host| *host == owners[who].host, &mut table.grants);
                waits.retain(|(waiting, _)| waiting / 2 != who / 2);
                simple[who & !1].fill(0);
                simple[who | 1].fill(0);
            }
        }
        // The ranges that became free go to those who wait, the first one first.
        let mut at = 0;
        while let Some((waiting, wanted)) = waits.get(at).copied() {
            if is_free(&simple, waiting, &wanted) {
                waits.remove(at);
                simple[waiting][wanted.start as usize..=wanted.last as usize]
                    .fill(1 + u8::from(wanted.exclusive));
            } else {
                at += 1;
            }
        }
        for grant in std::mem::take(&mut table.grants) {
            table.locks.confirm(FILE, grant.number, Word::Taken, table.now, &mut table.grants);
        }
        assert!(table.grants.is_empty());
        let mut entries = 0;
        if let Some(locked) = table.locks.files.get(&FILE) {
            entries = locked.entries().iter().map(|(_, count)| count).sum();
            assert_eq!(locked.waiting.len(), waits.len());
            let mut found = [[0_u8; BYTES]; 4];
            for held in &locked.held {
                let cells = &mut found[held.owner.svid as usize];
                let span = held.range.start as usize..=held.range.last as usize;
                assert!(cells[span.clone()].iter().all(|has| *has == 0), "an owner's ranges do not overlap");
                cells[span].fill(1 + u8::from(held.range.exclusive));
            }
            assert_eq!(found, simple);
        } else {
            assert_eq!(simple, [[0; BYTES]; 4]);
        }
        assert_eq!((table.locks.len(), table.locks.counts.values().sum::<usize>()), (entries, entries));
    }
}
