//! Single claims about space: reuse, refusal of contradictory tables, readers that race the
//! cleaner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{self, MiniPool, content, read};
use steadfast_device::memory::{Effect, Fate, Fault};
use steadfast_device::objects::{MemoryStore, ObjectDevice};
use steadfast_device::{Operation, SharedDevice};
use steadfast_env::Env;
use steadfast_format::{
    Address, Column, CommitTail, DatasetId, DeviceId, Placement, SegmentId, SegmentRow, object_names,
};
use steadfast_segment::{Class, Error, Geometry, ReadError, Space, TableError};

const SMALL: Geometry = Geometry { slot_size: 16 << 10, unit: 512 };
const OWNER: DatasetId = DatasetId(0);

#[test]
fn t2_a_slot_is_not_used_again_before_the_commit_that_emptied_it() {
    let mut pool = MiniPool::new(SMALL, 40, &[true]);
    for name in 0..30 {
        pool.write(name, OWNER, 8 << 10).unwrap();
    }
    pool.commit();
    let before = pool.durable.clone();
    let free = pool.space.free_slots();
    for name in 0..28 {
        pool.free(name);
    }
    assert_eq!(pool.space.free_slots(), free, "emptied, but not committed");
    assert_eq!(pool.space.accounting().emptied_slots, 14);
    // Blocks written now go elsewhere: a crash finds all that was committed.
    for name in 100..110 {
        pool.write(name, OWNER, 8 << 10).unwrap();
    }
    pool.space.flush_open().unwrap();
    pool.space.flush_devices().unwrap();
    pool.crash();
    pool.verify();
    assert_eq!(pool.blocks, before.blocks);
    // Freed again and committed, the slots come back.
    for name in 0..28 {
        pool.free(name);
    }
    pool.commit();
    assert!(pool.space.free_slots() >= free + 10);
    pool.verify();
}

#[test]
fn a_freed_block_stays_readable_until_its_slot_is_free_and_then_is_unallocated() {
    let mut pool = MiniPool::new(SMALL, 40, &[true]);
    pool.write(1, OWNER, 16 << 10).unwrap();
    let block = pool.blocks[&1];
    pool.free(1);
    read(&pool.space, &block).expect("its segment is emptied, not gone");
    assert!(matches!(pool.space.free(block.address, block.len), Err(Error::Unallocated { .. })));
    pool.commit();
    assert!(matches!(read(&pool.space, &block), Err(ReadError::Unallocated { .. })));
    for address in [
        Address { segment: SegmentId(999), offset: 0 },
        Address { segment: block.address.segment, offset: 100 },
        Address { segment: block.address.segment, offset: u32::MAX - 511 },
        Address::NONE,
    ] {
        assert!(matches!(pool.space.free(address, 512), Err(Error::Unallocated { .. })), "{address:?}");
        let result = pool.space.read(address, 1 << 30, Ok::<_, ()>);
        assert!(matches!(result, Err(ReadError::Unallocated { .. })), "{address:?}");
    }
    pool.verify();
}

#[test]
fn a_moved_block_is_found_freed_and_found_again_after_a_second_move() {
    // So few slots that the cleaner always has a reason.
    let mut pool = MiniPool::new(SMALL, 18, &[true]);
    // One small survivor among blocks that die, over and over: the cleaner moves it again and
    // again.
    pool.write(0, OWNER, 700).unwrap();
    let survivor = pool.blocks[&0];
    for turn in 0..600_u64 {
        for name in 1..8 {
            pool.write(name, OWNER, 2000 + (turn as usize * 37) % 2000).unwrap();
        }
        pool.clean(1 << 20);
        pool.commit();
        pool.verify();
    }
    assert!(pool.moved > 100 * 700);
    read(&pool.space, &survivor).unwrap();
    pool.free(0);
    assert!(matches!(pool.space.free(survivor.address, survivor.len), Err(Error::Unallocated { .. })));
    pool.verify();
}

#[test]
fn readers_never_see_wrong_bytes_while_blocks_are_moved() {
    let mut pool = MiniPool::new(SMALL, 60, &[true]);
    for name in 0..60 {
        pool.write(name, OWNER, 3000).unwrap();
    }
    pool.commit();
    let stop = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    // Names below 30 stay; the others are overwritten, which fills segments with holes for the
    // cleaner.
    let stay: Vec<_> = (0..30).map(|name| pool.blocks[&name]).collect();
    for _ in 0..40 {
        for name in 30..60 {
            pool.write(name, OWNER, 3000).unwrap();
        }
        std::thread::scope(|scope| {
            stop.store(false, Ordering::Relaxed);
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        for block in &stay {
                            read(&pool.space, block).unwrap();
                            reads.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            for _ in 0..4 {
                pool.space.clean(20_000, 0, &mut || Some(0)).unwrap();
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
        pool.commit();
        pool.space.check().unwrap();
    }
    assert!(reads.load(Ordering::Relaxed) > 1000);
    pool.verify();
}

#[test]
fn blocks_that_lie_close_together_are_read_in_one_transfer() {
    const SLOT: u32 = 64 << 10;
    let mut pool = MiniPool::new(Geometry { slot_size: SLOT, unit: 512 }, 40, &[true]);
    // One after the other: what is wanted, and what lies between.
    for (name, len) in [(0, 2000), (1, 8 << 10), (2, 512), (3, 700), (4, 17 << 10), (5, 4096)] {
        pool.write(name, OWNER, len).unwrap();
    }
    let run = |pool: &MiniPool, names: &[u64]| {
        let blocks: Vec<_> = names.iter().map(|name| pool.blocks[name]).collect();
        let places: Vec<_> = blocks.iter().map(|block| (block.address, block.len)).collect();
        let segments: Vec<_> = places.iter().map(|(address, _)| address.segment).collect();
        assert!(segments.iter().all(|segment| *segment == segments[0]), "they share a segment");
        let found = pool.space.read_run(&places)?;
        for (block, bytes) in blocks.iter().zip(&found) {
            assert_eq!(bytes[..], content(block.seed, block.len));
        }
        Some(found.len())
    };
    assert_eq!(run(&pool, &[0, 2]), None, "the segment is open: its bytes are in memory");
    // Fills the segment.
    pool.write(6, OWNER, 60 << 10).unwrap();
    pool.commit();
    let reads = |pool: &MiniPool| pool.space.device_counts().values().map(|counts| counts.reads).sum::<u64>();
    let before = reads(&pool);
    assert_eq!(run(&pool, &[0, 2, 3]), Some(3), "8 KiB lie between the first two");
    assert_eq!(reads(&pool), before + 1);
    pool.free(2);
    assert_eq!(run(&pool, &[0, 1, 3]), Some(3), "what was freed lies between the last two");
    assert_eq!(run(&pool, &[3, 5]), None, "17 KiB lie between them");
    assert_eq!(run(&pool, &[3, 0]), None, "they do not follow each other");
}

#[test]
fn appends_from_many_threads_do_not_overlap() {
    let mut pool = MiniPool::new(SMALL, 60, &[true, true]);
    let blocks = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (space, blocks) = (&pool.space, &blocks);
            scope.spawn(move || {
                for at in 0..50 {
                    let seed = thread * 1000 + at + 1_000_000;
                    let len = 300 + (seed as usize * 7919) % 5000;
                    let address = space.append(OWNER, Class::Data, &content(seed, len)).unwrap();
                    blocks.lock().unwrap().push(common::Block { owner: OWNER, address, len, seed });
                }
            });
        }
    });
    for (name, block) in (0..).zip(blocks.into_inner().unwrap()) {
        pool.blocks.insert(name, block);
    }
    pool.verify();
    pool.commit();
    pool.crash();
    pool.verify();
}

#[test]
fn a_write_that_fails_is_told_and_can_be_tried_again() {
    let mut pool = MiniPool::new(SMALL, 40, &[true]);
    pool.write(1, OWNER, 5000).unwrap();
    pool.devices[0].arm(Fault { operation: Operation::Write, skip: 0, effect: Effect::FailOnce });
    assert!(matches!(pool.space.flush_open(), Err(Error::Device { device: DeviceId(1), .. })));
    assert_eq!(pool.space.device_counts()[&DeviceId(1)].write_errors, 1);
    pool.verify();
    pool.commit();
    pool.crash();
    pool.verify();
}

#[test]
fn ids_that_a_crash_burned_do_not_come_again() {
    let mut pool = MiniPool::new(SMALL, 40, &[false]);
    pool.write(1, OWNER, 5000).unwrap();
    let burned = pool.blocks[&1].address.segment;
    pool.space.flush_open().unwrap();
    pool.devices[0].power_on(|_| Fate::Applied);
    pool.crash();
    pool.write(2, OWNER, 5000).unwrap();
    assert!(pool.blocks[&2].address.segment > burned);
}

/// Spaces of two hosts on one store.
fn on_store(store: &MemoryStore, writer: u8) -> Space {
    let device = ObjectDevice::open(Arc::new(store.handle(|_| None)), Some(64 << 20), [writer; 16]);
    Space::new(SMALL, vec![(DeviceId(1), 40, Arc::new(device.unwrap()) as SharedDevice)], Env::seeded(1))
}

fn segments(store: &MemoryStore) -> Vec<String> {
    store.names().into_iter().filter(|name| name.starts_with("seg/")).collect()
}

fn put_one(space: &Space, byte: u8) {
    space.append(OWNER, Class::Data, &[byte; 5000]).unwrap();
    space.flush_open().unwrap();
}

#[test]
fn two_imports_of_one_root_share_no_names() {
    let store = MemoryStore::new("objects");
    let (first, second) = (on_store(&store, 1), on_store(&store, 2));
    assert_eq!(first.claim_epoch(0).unwrap(), Some(1));
    assert!(!first.is_overtaken().unwrap());
    // A list that is late misleads nobody.
    store.settle();
    assert_eq!(second.claim_epoch(0).unwrap(), Some(2), "1 is claimed");
    assert!(first.is_overtaken().unwrap() && !second.is_overtaken().unwrap());
    put_one(&first, 1);
    put_one(&second, 2);
    put_one(&first, 3);
    assert_eq!(segments(&store).len(), 3, "each has names of its own: {:?}", store.names());
    // A new pool in the same place shares none with the former ones either.
    store.list_at_once();
    assert_eq!(on_store(&store, 3).claim_epoch_anew(&[]).unwrap(), Some(3));
}

#[test]
fn what_a_crash_left_on_a_store_of_objects_is_removed_and_nothing_of_a_later_host() {
    let store = MemoryStore::new("objects");
    let crashed = on_store(&store, 1);
    crashed.claim_epoch(0).unwrap();
    put_one(&crashed, 1);
    // Nothing was committed, so the tables of the next ones are empty too.
    let (slow, next) = (on_store(&store, 2), on_store(&store, 3));
    assert_eq!(slow.claim_epoch(0).unwrap(), Some(2));
    assert_eq!(next.claim_epoch(0).unwrap(), Some(3));
    put_one(&next, 2);
    assert_eq!(segments(&store).len(), 2);
    assert_eq!(slow.find_leftovers().unwrap(), 1, "what the next host wrote is not ours to judge");
    assert_eq!(slow.delete_objects(slow.commits()), 1);
    assert_eq!(segments(&store), [object_names::segment(SegmentId::new(3, 1))]);
    assert_eq!(next.find_leftovers().unwrap(), 0, "its own epoch is no leftover");
}

/// A committed pool with some relocations, and a change to what is stored of it.
fn tampered(change: impl FnOnce(&mut MiniPool, &mut CommitTail)) -> Result<(), TableError> {
    let mut pool = MiniPool::new(SMALL, 24, &[true]);
    for turn in 0..6 {
        for name in 0..20 {
            if (name + turn) % 3 != 0 {
                pool.write(name, OWNER, 5000).unwrap();
            }
        }
        pool.clean(1 << 20);
        pool.commit();
    }
    // Two more commits, so that the meta tree knows what the tails said.
    pool.commit();
    pool.commit();
    assert!(pool.durable.runs.len() > 1, "something was moved");
    pool.import().expect("untouched, it can be imported");
    let mut tail = CommitTail::decode(&pool.durable.tail_bytes).unwrap();
    change(&mut pool, &mut tail);
    pool.import_with(&tail)
}

fn plain(device: u64, slot: u32) -> Placement {
    Placement::Plain(Column { device: DeviceId(device), slot })
}

fn first_data_row(pool: &mut MiniPool) -> (SegmentId, &mut SegmentRow) {
    let row = pool.durable.rows.iter_mut().find(|(_, row)| row.class == Class::Clean as u8);
    let (id, row) = row.expect("there is a row");
    (*id, row)
}

/// The key of a relocation that the tail does not speak of: the tail would win.
fn any_run(pool: &MiniPool, tail: &CommitTail) -> (SegmentId, u32) {
    let in_tail = |from: &(SegmentId, u32)| tail.runs.iter().any(|(known, _)| known == from);
    *pool.durable.runs.keys().find(|from| !in_tail(from)).expect("something was moved")
}

#[test]
fn tables_that_contradict_themselves_are_refused() {
    let refused = |change: fn(&mut MiniPool, &mut CommitTail), name: &str| -> TableError {
        match tampered(change) {
            Err(error) => error,
            Ok(()) => panic!("{name} was accepted"),
        }
    };
    assert_eq!(tampered(|_, _| ()), Ok(()));
    let error = refused(
        |pool, _| {
            let other =
                pool.durable.rows.values().find(|row| row.class == Class::Data as u8).unwrap().place.clone();
            first_data_row(pool).1.place = other;
        },
        "a slot with two segments",
    );
    assert!(matches!(error, TableError::SlotTwice { .. }), "{error}");
    let error = refused(|pool, _| first_data_row(pool).1.filled = 32 << 10, "an overfull segment");
    assert!(matches!(error, TableError::Filled { .. }), "{error}");
    let error = refused(|pool, _| first_data_row(pool).1.filled = 700, "half a unit");
    assert!(matches!(error, TableError::Filled { .. }), "{error}");
    let error = refused(|pool, _| first_data_row(pool).1.place = plain(7, 0), "a missing device");
    assert!(matches!(error, TableError::NoDevice { .. }), "{error}");
    let error = refused(|pool, _| first_data_row(pool).1.place = plain(1, 24), "a slot beyond the end");
    assert!(matches!(error, TableError::NoSlot { .. }), "{error}");
    let error = refused(
        |pool, _| {
            let row = first_data_row(pool).1;
            row.place = Placement::Mirror(row.place.columns().collect());
        },
        "a mirror on a device that stands alone",
    );
    assert!(matches!(error, TableError::Columns { .. }), "{error}");
    let error = refused(|pool, _| first_data_row(pool).1.dead = Some(vec![]), "a bitmap too short");
    assert!(matches!(error, TableError::DeadUnits { .. }), "{error}");
    let error =
        refused(|pool, _| first_data_row(pool).1.class = Class::Pool0 as u8, "a pool row not in the tail");
    assert!(matches!(error, TableError::NotInTail { .. }), "{error}");
    let error = refused(
        |pool, tail| {
            let from = any_run(pool, tail);
            pool.durable.runs.get_mut(&from).unwrap().segment = SegmentId(9999);
        },
        "a relocation into nothing",
    );
    assert!(matches!(error, TableError::RelocationTarget { .. }), "{error}");
    let error = refused(
        |pool, tail| {
            let from = any_run(pool, tail);
            let run = pool.durable.runs[&from];
            pool.durable.runs.insert((from.0, from.1 + 1), run);
        },
        "relocations that overlap",
    );
    assert!(matches!(error, TableError::RelocationOverlap { .. }), "{error}");
    let error = refused(
        |pool, tail| {
            let run = pool.durable.runs[&any_run(pool, tail)];
            pool.durable.runs.insert((SegmentId(1), u32::MAX - 1), run);
        },
        "a relocation of a unit that no segment has",
    );
    assert!(matches!(error, TableError::RelocationOverlap { .. }), "{error}");
    let error = refused(|_, tail| tail.next_segment = SegmentId(2), "an id of the future");
    assert!(matches!(error, TableError::FutureId { .. }), "{error}");
    let error = refused(|_, tail| tail.rows.push(tail.rows[0].clone()), "two changes of one row");
    assert!(matches!(error, TableError::RowTwice { .. }), "{error}");
    let error = refused(
        |pool, tail| {
            let at = pool.durable.tail_blocks[0].address.segment;
            for (id, row) in &mut tail.rows {
                if *id == at {
                    row.as_mut().unwrap().filled += 512;
                }
            }
        },
        "a tail that does not end its segment",
    );
    assert!(matches!(error, TableError::TailPlace { .. }), "{error}");
}

#[test]
fn accounting_adds_up() {
    let mut pool = MiniPool::new(SMALL, 40, &[true, true]);
    for name in 0..40 {
        pool.write(name, OWNER, 3000).unwrap();
    }
    for name in (0..40).step_by(2) {
        pool.free(name);
    }
    let accounting = pool.space.accounting();
    let taken = accounting.slots - accounting.free_slots - accounting.emptied_slots;
    assert_eq!(accounting.slots, 80);
    assert_eq!(accounting.capacity_bytes, (80 - 12) * (16 << 10));
    assert_eq!(accounting.devices.iter().map(|device| device.live_bytes).sum::<u64>(), accounting.live_bytes);
    assert!(accounting.dead_bytes + accounting.live_bytes + accounting.open_room_bytes <= taken * (16 << 10));
    // Of the free space, 20 blocks' worth lies between living blocks.
    let whole = (accounting.free_slots + accounting.emptied_slots) * (16 << 10);
    let expected = accounting.dead_bytes * 100 / (accounting.dead_bytes + whole);
    assert!((1..100).contains(&expected));
    assert_eq!(u64::from(accounting.fragmentation_percent()), expected);
}
