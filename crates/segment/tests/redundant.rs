//! Groups of devices that fail: whatever up to their redundancy of them do, what was committed is
//! read, and what was found wrong is right again.

use std::collections::BTreeMap;

use crate::common::{MiniPool, read};
use steadfast_crypto::hash;
use steadfast_device::memory::{Effect, Fault};
use steadfast_device::{Buffer, Device, Operation, SegmentPlace};
use steadfast_format::{Checksums, Column, DatasetId, DeviceId, Placement, SegmentId};
use steadfast_segment::{Class, Depth, DrawnChunk, Error, Geometry, Proof, Provable, Redundancy};

const GEOMETRY: Geometry = Geometry { slot_size: 64 << 10, unit: 512 };
const OWNER: DatasetId = DatasetId(0);

/// Redundancy, columns, devices.
const GROUPS: [(Redundancy, u32, usize); 6] = [
    (Redundancy::Mirror, 2, 2),
    (Redundancy::Mirror, 3, 3),
    (Redundancy::Raidz(1), 3, 4),
    (Redundancy::Raidz(1), 2, 2),
    (Redundancy::Raidz(2), 5, 5),
    (Redundancy::Raidz(3), 6, 6),
];

fn filled((redundancy, width, devices): (Redundancy, u32, usize)) -> MiniPool {
    let mut pool = MiniPool::with_group(GEOMETRY, 40, redundancy, width, devices);
    for name in 0..120 {
        let class = if name % 5 == 4 { Class::Meta0 } else { Class::Data };
        pool.write_class(name, OWNER, class, 1 + (name as usize * 977) % 9000).expect("there is room");
        if name % 30 == 29 {
            pool.commit();
        }
    }
    for name in (0..120).filter(|name| name % 3 == 0) {
        pool.free(name);
    }
    pool.clean(1 << 20);
    pool.commit();
    pool
}

/// All sets of so many of the devices.
fn sets(devices: usize, count: u32) -> impl Iterator<Item = Vec<usize>> {
    let all = (0..1_u32 << devices).filter(move |set| set.count_ones() == count);
    all.map(move |set| (0..devices).filter(|at| set >> at & 1 == 1).collect())
}

/// Spoils every column of a device, at every sector.
fn spoil(pool: &MiniPool, device: usize) {
    for (segment, place) in places(pool, device) {
        for at in (0..place.slot_size).step_by(512) {
            pool.devices[device].flip_bit_in(SegmentPlace { segment, ..place }, at + 3, 1);
        }
    }
}

/// The slots of a device that the durable table names.
fn places(pool: &MiniPool, device: usize) -> Vec<(SegmentId, SegmentPlace)> {
    let (redundancy, width) = pool.group.expect("a pool of one group");
    let slot_size = redundancy.column_bytes(width, GEOMETRY);
    let id = DeviceId(device as u64 + 1);
    let tail = steadfast_format::CommitTail::decode(&pool.durable.tail_bytes).expect("a tail");
    let rows = pool.durable.rows.iter().map(|(id, row)| (*id, Some(row.clone()))).chain(tail.rows);
    let mut all: Vec<(SegmentId, SegmentPlace)> = rows
        .filter_map(|(segment, row)| Some((segment, row?)))
        .flat_map(|(segment, row)| {
            row.place.present().map(|(_, column)| (segment, column)).collect::<Vec<_>>()
        })
        .filter(|(_, Column { device, .. })| *device == id)
        .map(|(segment, Column { slot, .. })| (segment, SegmentPlace { segment, slot, slot_size }))
        .collect();
    all.sort_unstable_by_key(|(segment, _)| *segment);
    all.dedup();
    all
}

fn spared((redundancy, width, _): (Redundancy, u32, usize)) -> u32 {
    redundancy.spared(width)
}

#[test]
fn any_devices_that_can_be_spared_may_be_away_at_import() {
    for group in GROUPS {
        let mut pool = filled(group);
        for gone in sets(group.2, spared(group)) {
            pool.gone = gone.into_iter().collect();
            pool.import().unwrap();
            pool.verify();
            // And the pool goes on without them.
            for name in 200..220 {
                pool.write(name, OWNER, 5000).expect("there is room");
            }
            pool.commit();
            pool.verify();
            // Columns written meanwhile are missing, or lie elsewhere.
            for row in pool.durable.rows.values() {
                let on_gone = |column: Column| pool.gone.contains(&(column.device.0 as usize - 1));
                let fresh = row.place.columns().any(|column| column.is_none());
                assert!(!fresh || !row.place.present().any(|(_, column)| on_gone(column)));
            }
            pool.gone.clear();
            pool.import().unwrap();
            pool.verify();
            for name in 200..220 {
                pool.free(name);
            }
            pool.clean(4 << 20);
            pool.commit();
        }
    }
}

/// Transfers of a scan over a device whose blocks are all wrong: each is a turn of a disk.
#[test]
fn who_expects_blocks_to_be_wrong_reads_less_to_put_them_together() {
    for group in GROUPS {
        let reads = |pool: &MiniPool| pool.devices.iter().map(|device| device.counts().reads).sum::<u64>();
        let [usual, doubting] = [false, true].map(|doubts| {
            let mut pool = filled(group);
            spoil(&pool, 0);
            pool.import().unwrap();
            let before = reads(&pool);
            for block in pool.blocks.values() {
                let expected = block.bytes();
                let judge = |bytes: Buffer| if bytes == expected { Ok(()) } else { Err("other bytes") };
                let read = match doubts {
                    false => pool.space.read(block.address, block.len, judge),
                    true => pool.space.read_doubting(block.address, block.len, judge),
                };
                read.unwrap_or_else(|error| panic!("{group:?} {block:?}: {error}"));
            }
            reads(&pool) - before
        });
        assert!(doubting < usual, "{group:?}: {doubting} transfers of {usual}");
    }
}

#[test]
fn columns_that_are_wrong_are_read_around_and_healed() {
    for group in GROUPS {
        for wrong in sets(group.2, spared(group)) {
            let mut pool = filled(group);
            wrong.iter().for_each(|&device| spoil(&pool, device));
            pool.import().unwrap();
            pool.verify();
            let counts = pool.space.device_counts();
            let healed: u64 = counts.values().map(|counts| counts.repaired_bytes).sum();
            assert!(healed > 0, "{group:?} {wrong:?}");
            for (id, counts) in &counts {
                let is_wrong = wrong.contains(&(id.0 as usize - 1));
                assert_eq!(
                    counts.checksum_errors > 0,
                    is_wrong,
                    "{group:?} {wrong:?}: device {id} {counts:?}"
                );
            }
            // Blocks that live were written back: read again, nothing is found.
            let before: Vec<u64> = pool.space.device_counts().values().map(|c| c.repaired_bytes).collect();
            pool.verify();
            let after: Vec<u64> = pool.space.device_counts().values().map(|c| c.repaired_bytes).collect();
            assert_eq!(before, after, "{group:?} {wrong:?}");
        }
    }
}

#[test]
fn nothing_is_written_back_by_a_pool_that_may_not() {
    let group = GROUPS[2];
    let mut pool = filled(group);
    spoil(&pool, 1);
    pool.import().unwrap();
    pool.space.set_healing(false);
    let before = pool.devices[1].image();
    pool.verify();
    assert!(pool.devices[1].image().to_vec() == before.to_vec());
}

#[test]
fn one_more_than_can_be_spared_is_an_error_and_not_other_bytes() {
    for group in GROUPS {
        for wrong in sets(group.2, spared(group) + 1).take(3) {
            let mut pool = filled(group);
            let blocks = pool.blocks.clone();
            wrong.iter().for_each(|&device| {
                for (segment, place) in places(&pool, device) {
                    let row = pool.durable.rows.get(&segment);
                    if row
                        .is_some_and(|row| row.class != Class::Pool0 as u8 && row.class != Class::Pool1 as u8)
                    {
                        for at in (0..place.slot_size).step_by(512) {
                            pool.devices[device].flip_bit_in(place, at + device as u32, 1);
                        }
                    }
                }
            });
            pool.import().unwrap();
            let lost = blocks.values().filter(|block| read(&pool.space, block).is_err()).count();
            assert!(lost > 0, "{group:?} {wrong:?}");
        }
    }
}

#[test]
fn a_device_that_fails_while_it_is_written_is_given_up() {
    for group in GROUPS {
        for operation in [Operation::Write, Operation::Flush] {
            for skip in [0, 1, 5] {
                let mut pool = filled(group);
                let device = &pool.devices[0];
                device.arm(Fault { operation, skip, effect: Effect::FailAlways });
                for name in 300..340 {
                    pool.write(name, OWNER, 7000).expect("the others take it");
                    if name % 8 == 0 {
                        pool.commit();
                    }
                }
                pool.commit();
                pool.verify();
                let given_up = pool.space.take_given_up();
                assert_eq!(
                    given_up.iter().map(|g| g.device.0).collect::<Vec<_>>(),
                    [1],
                    "{group:?} {operation:?}"
                );
                // Blocks written since are whole without it, whatever it holds.
                pool.devices[0].disarm();
                spoil(&pool, 0);
                pool.gone = [0].into();
                pool.import().unwrap();
                pool.verify();
            }
        }
    }
}

#[test]
fn too_many_failing_devices_are_an_error() {
    for group in GROUPS {
        let mut pool = filled(group);
        let spared = spared(group) as usize;
        for device in &pool.devices[..=spared] {
            device.arm(Fault { operation: Operation::Write, skip: 0, effect: Effect::FailAlways });
        }
        let mut failed = false;
        for name in 300..340 {
            failed |= matches!(pool.write(name, OWNER, 7000), Err(Error::Device { .. } | Error::NoSpace));
        }
        failed |= pool.space.flush_open().is_err();
        assert!(failed, "{group:?}");
    }
}

/// The checksums are those of the bytes on the devices, for every chunk of every segment; there are
/// as many as rows.
#[test]
fn checksums_are_those_of_the_chunks_as_they_lie() {
    for group in GROUPS {
        let pool = filled(group);
        let slot_size = group.0.column_bytes(group.1, GEOMETRY);
        let mut compared = 0;
        for (&segment, row) in &pool.durable.rows {
            if row.class == Class::Pool0 as u8 || row.class == Class::Pool1 as u8 {
                assert!(!pool.durable.sums.contains_key(&(segment, 0)));
                continue;
            }
            let parts: Vec<&Checksums> =
                pool.durable.sums.range((segment, 0)..=(segment, u32::MAX)).map(|(_, part)| part).collect();
            let all: Vec<[u8; 16]> = parts.iter().flat_map(|part| part.sums.iter().copied()).collect();
            for part in &parts[..parts.len() - 1] {
                assert_eq!(
                    part.sums.len(),
                    Checksums::rows_per_part(&row.place) * Checksums::per_row(&row.place)
                );
            }
            let chunk = match &row.place {
                Placement::Raidz { chunk_shift, .. } => 1 << chunk_shift,
                _ if row.class == Class::Data as u8 || row.class == Class::Clean as u8 => 1024,
                _ => 512,
            };
            let per_row = Checksums::per_row(&row.place);
            let data = match &row.place {
                Placement::Raidz { parity, columns, .. } => columns.len() - usize::from(*parity),
                _ => 1,
            };
            assert_eq!(
                all.len(),
                (row.filled as usize).div_ceil(data * chunk) * per_row,
                "{group:?} {segment}"
            );
            for (index, Column { device, slot }) in row.place.present() {
                for (at, sums) in all.chunks(per_row).enumerate() {
                    let mut bytes = vec![0; chunk];
                    let place = SegmentPlace { segment, slot, slot_size };
                    let device = &pool.devices[device.0 as usize - 1];
                    device.read_segment(place, u32::try_from(at * chunk).unwrap(), &mut bytes).unwrap();
                    let sum = sums[if per_row == 1 { 0 } else { index }];
                    assert_eq!(hash(&bytes)[..16], sum, "{group:?} {segment} column {index} row {at}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 100, "{group:?}: {compared}");
        // Nothing is kept of segments that are gone.
        let known = |id: &SegmentId| pool.durable.rows.contains_key(id);
        assert!(pool.durable.sums.keys().all(|(id, _)| known(id)));
    }
}

/// All segments with checksums, as a scrub takes them.
fn with_sums(pool: &MiniPool) -> Vec<(SegmentId, Vec<[u8; Checksums::SIZE]>)> {
    let all = pool.space.mendable(false).into_iter().map(|segment| {
        let parts = pool.durable.sums.range((segment, 0)..=(segment, u32::MAX));
        (segment, parts.flat_map(|(_, part)| part.sums.iter().copied()).collect::<Vec<_>>())
    });
    all.filter(|(_, sums)| !sums.is_empty()).collect()
}

fn nobody() -> Vec<Vec<[u8; Checksums::SIZE]>> {
    Vec::new()
}

/// Two chunks of a device in each other's place, as writes leave them that went astray: of one
/// segment, and of two that follow each other.
#[test]
fn chunks_that_were_swapped_are_misplaced_and_put_right() {
    const CHUNK: usize = 1024;
    for group in GROUPS {
        for apart in [false, true] {
            for alone in [false, true] {
                let pool = filled(group);
                let all = with_sums(&pool);
                let content = [Class::Data as u8, Class::Clean as u8];
                let fit = |id: &SegmentId| {
                    let known = all.iter().find(|(known, _)| known == id);
                    let row = &pool.durable.rows[id];
                    let rows = known.map_or(0, |(_, sums)| sums.len() / Checksums::per_row(&row.place));
                    content.contains(&row.class) && rows > 1
                };
                let on_first = places(&pool, 0).into_iter().filter(|(id, _)| fit(id));
                let on_first: Vec<SegmentPlace> = on_first.map(|(_, place)| place).take(2).collect();
                let [one, next] = on_first[..] else { panic!("{group:?}: two segments") };
                let (from, to) = if apart { ((one, 0), (next, 0)) } else { ((one, 0), (one, CHUNK)) };
                let device = &pool.devices[0];
                let chunk = |(place, at): (SegmentPlace, usize)| {
                    let mut bytes = vec![0; CHUNK];
                    device.read_segment(place, at as u32, &mut bytes).expect("readable");
                    bytes
                };
                let (first, second) = (chunk(from), chunk(to));
                assert!(first != second && first.iter().chain(&second).any(|byte| *byte != 0));
                device.append_segment(from.0, from.1 as u32, &second).expect("written");
                device.append_segment(to.0, to.1 as u32, &first).expect("written");
                device.flush().expect("flushed");

                let sums = |id: SegmentId| -> Vec<[u8; Checksums::SIZE]> {
                    all.iter()
                        .find(|(known, _)| *known == id)
                        .map(|(_, sums)| sums.clone())
                        .unwrap_or_default()
                };
                let mend = || match alone {
                    false => pool.space.mend_all(&all, Depth::All, &nobody).expect("mended").repaired_bytes,
                    true => {
                        let each = all.iter().map(|one| {
                            let others = || pool.space.beside(one.0, one.0).into_iter().map(sums).collect();
                            let mended = pool.space.mend_all(std::slice::from_ref(one), Depth::All, &others);
                            mended.expect("mended").repaired_bytes
                        });
                        each.sum()
                    }
                };
                let when = format!("{group:?}, apart {apart}, alone {alone}");
                assert_eq!(mend(), 2 * CHUNK as u64, "{when}");
                for (id, counts) in pool.space.device_counts() {
                    let wanted = if id == DeviceId(1) { 2 } else { 0 };
                    assert_eq!((counts.misplaced_errors, counts.checksum_errors), (wanted, wanted), "{when}");
                }
                assert!(chunk(from) == first && chunk(to) == second, "{when}");
                assert_eq!(mend(), 0, "{when}");
                pool.verify();
            }
        }
    }
}

/// Rot that the cleaner meets is not sealed with parity of its own: what it moves can be read, or
/// was left where it was.
#[test]
fn the_cleaner_moves_no_rot() {
    for group in GROUPS {
        let mut pool = filled(group);
        for name in (0..120).filter(|name| name % 3 == 1) {
            pool.free(name);
        }
        pool.commit();
        spoil(&pool, 0);
        pool.import().unwrap();
        pool.clean(16 << 20);
        pool.commit();
        pool.verify();
    }
}

#[test]
fn segments_spread_evenly_over_more_devices_than_they_have_columns() {
    let mut pool = MiniPool::with_group(GEOMETRY, 12, Redundancy::Raidz(1), 3, 5);
    let all = pool.space.accounting().slots;
    assert_eq!(all, 20, "5 devices of 12 slots hold 20 segments of 3 columns");
    let mut name = 0;
    while pool.write(name, OWNER, 30_000).is_ok() {
        name += 1;
    }
    pool.commit();
    pool.verify();
    let free: Vec<u64> = pool.space.accounting().devices.iter().map(|device| device.free_slots).collect();
    let spread = free.iter().max().unwrap() - free.iter().min().unwrap();
    assert!(spread <= 1, "{free:?}");
}

/// The stored checksum of a chunk that was drawn.
fn sum_of(pool: &MiniPool, chunk: &DrawnChunk) -> Option<[u8; Checksums::SIZE]> {
    pool.durable.sums.get(&(chunk.segment, chunk.part()))?.sums.get(chunk.index()).copied()
}

/// Every chunk that can be drawn, each once for each sector of it.
fn drawn(pool: &MiniPool) -> Vec<DrawnChunk> {
    let choose = &mut |provable: &Provable| {
        let all = |(id, bytes): (&DeviceId, &u64)| (*id, (0..*bytes).step_by(512).collect());
        provable.chunks.iter().map(all).collect()
    };
    pool.space.draw_chunks(choose).1
}

/// [prove.1], [prove.2]
#[test]
fn each_chunk_is_drawn_as_often_as_its_bytes() {
    for group in GROUPS {
        let mut pool = filled(group);
        let mut times: BTreeMap<DrawnChunk, u32> = BTreeMap::new();
        drawn(&pool).into_iter().for_each(|chunk| *times.entry(chunk).or_default() += 512);
        let mut stored = 0;
        for (segment, row) in &pool.durable.rows {
            let sums = pool.durable.sums.range((*segment, 0)..=(*segment, u32::MAX));
            let count: usize = sums.map(|(_, part)| part.sums.len()).sum();
            let copies = if matches!(row.place, Placement::Mirror(_)) { group.2 } else { 1 };
            let found = times.keys().filter(|chunk| chunk.segment == *segment).count();
            // One that a stream appends to has checksums of what was written of it.
            if found > 0 {
                assert_eq!(found, count * copies, "{group:?} {segment}");
            }
            stored += found;
        }
        assert_eq!(stored, times.len(), "{group:?}: of segments that are there");
        assert!(stored > 300, "{group:?}: {stored} chunks");
        for (chunk, bytes) in &times {
            assert_eq!(*bytes, chunk.bytes(), "{group:?}: {chunk:?}");
            assert_eq!(pool.space.prove_chunk(chunk, &mut || sum_of(&pool, chunk)), Proof::Held, "{chunk:?}");
        }

        // One bit of one column is wrong: that chunk is, and no other one.
        let spoilt = *times.keys().nth(stored / 2).expect("there are some");
        let device = spoilt.device.0 as usize - 1;
        let (_, place) =
            *places(&pool, device).iter().find(|(id, _)| *id == spoilt.segment).expect("it lies there");
        pool.devices[device].flip_bit_in(place, spoilt.offset() + 77, 3);
        for chunk in times.keys() {
            let expected = if *chunk == spoilt { Proof::Wrong } else { Proof::Held };
            assert_eq!(pool.space.prove_chunk(chunk, &mut || sum_of(&pool, chunk)), expected, "{chunk:?}");
        }
        let errors: Vec<u64> =
            pool.space.device_counts().values().map(|counts| counts.checksum_errors).collect();
        assert_eq!(errors.iter().sum::<u64>(), 1, "{group:?}: {errors:?}");
        assert_eq!(errors[device], 1);

        // Segments that are gone say nothing, whatever lies in their slots by now.
        for name in (0..120).filter(|name| name % 3 != 0) {
            pool.free(name);
        }
        for name in 300..380 {
            pool.write(name, OWNER, 7000).expect("there is room");
            if name % 20 == 19 {
                pool.clean(1 << 20);
                pool.commit();
            }
        }
        let (mut gone, mut held) = (0, 0);
        for chunk in times.keys().filter(|chunk| **chunk != spoilt) {
            match pool.space.prove_chunk(chunk, &mut || sum_of(&pool, chunk)) {
                Proof::Gone => gone += 1,
                Proof::Held => held += 1,
                proof => panic!("{group:?} {chunk:?}: {proof:?}"),
            }
        }
        assert!(gone > 0, "{group:?}: {gone} gone, {held} held");
    }
}
