use std::collections::BTreeSet;

use steadfast_format::{DatasetId, GroupClass, SegmentRow};

use super::*;
use crate::error::TableError;

const GEOMETRY: Geometry = Geometry { slot_size: 64 << 10, unit: 512 };
const OWNER: DatasetId = DatasetId(0);

/// Parity and sizes in slots: all with as many devices as columns.
const GROUPS: [(u8, &[u32]); 5] = [
    (1, &[40, 40, 12]),
    (1, &[40, 30, 20, 10]),
    (2, &[40, 40, 40, 12, 12]),
    (1, &[40, 40, 40, 12, 12]),
    (3, &[20, 20, 20, 20, 8, 8]),
];

fn table(parity: u8, width: u32, sizes: &[u32]) -> Table {
    let mut table = Table::new(GEOMETRY);
    let redundancy = Redundancy::Raidz(parity);
    let column = redundancy.column_bytes(width, GEOMETRY);
    let group = table.add_group(redundancy, GroupClass::Normal, width, column);
    table.set_uneven(true);
    for (id, &slots) in (1..).zip(sizes) {
        table.add_device(DeviceId(id), slots, group, true);
    }
    table
}

fn of((parity, sizes): (u8, &[u32])) -> Table {
    table(parity, u32::try_from(sizes.len()).unwrap(), sizes)
}

fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// Columns of data that can be taken.
fn free(table: &Table) -> u64 {
    table.groups[0].counts.free_columns
}

fn data_of(table: &Table, id: SegmentId) -> u64 {
    table.groups[0].data_of(&table.rows[&id].place).into()
}

fn reachable(table: &Table) -> u64 {
    table.reachable_of(Side::Normal)
}

/// A full segment, if there is room for one.
fn fill(table: &mut Table) -> Option<SegmentId> {
    let id = table.allocate(OWNER, Class::Data, 0, 1)?;
    let units = table.capacity_units(&table.rows[&id]);
    table.extend(id, units);
    table.close(id);
    Some(id)
}

fn fill_all(table: &mut Table) -> Vec<SegmentId> {
    std::iter::from_fn(|| fill(table)).collect()
}

fn empty(table: &mut Table, id: SegmentId) {
    let units = table.rows[&id].filled;
    table.kill(id, 0, units).expect("it lives");
}

fn commit(table: &mut Table) {
    table.seal_emptied();
    table.release_committed();
}

fn columns(table: &Table, id: SegmentId) -> usize {
    table.rows[&id].place.columns().count()
}

/// Builds missing columns, and those on a device that leaves, as a resilver does.
fn mend(table: &mut Table) {
    let wrong = |table: &Table, column: Option<Column>| {
        column.is_none_or(|column| !table.devices[&column.device].usable())
    };
    let ids: Vec<SegmentId> = table.rows.keys().copied().collect();
    for id in ids {
        let found: Vec<usize> = table.rows[&id]
            .place
            .columns()
            .enumerate()
            .filter(|(_, column)| wrong(table, *column))
            .map(|(index, _)| index)
            .collect();
        for index in found {
            let column = table.take_spare_column(id).expect("what was kept free for it");
            table.set_column(id, index, column);
        }
    }
}

#[test]
fn placing_and_freeing_keep_what_was_told() {
    for group in GROUPS {
        let mut table = of(group);
        assert!(table.groups[0].counts.narrow, "{group:?}");
        let (mut seed, mut ids) = (9, Vec::new());
        for _ in 0..600 {
            let (told, most) = (free(&table), reachable(&table));
            match random(&mut seed, 4) {
                0 if !ids.is_empty() => {
                    let at = random(&mut seed, ids.len() as u64) as usize;
                    empty(&mut table, ids.swap_remove(at));
                    assert_eq!(free(&table), told, "not before a commit");
                }
                1 => {
                    let (units, owed) =
                        (table.free_units_of(Side::Normal), table.emptied_units_of(Side::Normal));
                    commit(&mut table);
                    // [uneven.3]
                    assert!(table.free_units_of(Side::Normal) >= units + owed, "{group:?}");
                }
                _ => match fill(&mut table) {
                    Some(id) => {
                        // [uneven.2]
                        assert_eq!(free(&table) + data_of(&table, id), told, "{group:?}");
                        ids.push(id);
                    }
                    None => assert_eq!(told, 0, "{group:?}"),
                },
            }
            assert!(reachable(&table) >= most, "{group:?}");
            table.check().unwrap();
        }
        let narrow = ids.iter().filter(|id| columns(&table, **id) < group.1.len()).count();
        assert!(narrow > 0, "{group:?}");
    }
}

#[test]
fn devices_are_filled_as_far_as_the_parity_allows() {
    for (parity, sizes) in GROUPS {
        let mut table = of((parity, sizes));
        let (all, total) = (free(&table), table.groups[0].counts.total_units);
        let ids = fill_all(&mut table);
        let columns_held: u64 = ids.iter().map(|id| data_of(&table, *id)).sum();
        assert_eq!((columns_held, free(&table)), (all, 0), "{sizes:?}");
        let held: u64 = ids.iter().map(|id| u64::from(table.capacity_units(&table.rows[id]))).sum();
        let width = sizes.len();
        let slots = u64::from(groups::formable(sizes, u32::try_from(width).unwrap()));
        assert!(held >= total && held > slots * u64::from(GEOMETRY.slot_units()), "{sizes:?}");
        // Wide ones come first, and the last are no narrower than they have to be.
        assert_eq!(columns(&table, ids[0]), width, "{sizes:?}");
        let least = ids.iter().map(|id| columns(&table, *id)).min().unwrap();
        let data = width - usize::from(parity);
        assert!(least >= usize::from(parity) + data.div_ceil(3), "{sizes:?}");
        table.check().unwrap();
    }
}

#[test]
fn groups_of_devices_that_are_alike_have_whole_segments_only() {
    for width in 2..=9_u32 {
        for parity in 1..width.min(4) {
            for (more, slots) in [(0, 7), (0, 300), (1, 7), (1, 300), (2, 20), (3, 100)] {
                let sizes = vec![slots; (width + more) as usize];
                let uneven = table(parity as u8, width, &sizes);
                let counts = uneven.groups[0].counts;
                let whole = groups::formable(&sizes, width);
                assert!(!counts.narrow, "{width} {parity} {more}");
                assert_eq!((counts.free, counts.total), (whole, whole));
                let units = u64::from(whole) * u64::from(GEOMETRY.slot_units());
                assert_eq!((counts.free_units, counts.total_units), (units, units));
            }
        }
    }
    // And without the feature so do all others.
    let mut table = of(GROUPS[0]);
    table.set_uneven(false);
    assert_eq!(fill_all(&mut table).len(), 12);
    assert!(table.rows.values().all(|row| row.place.columns().count() == 3));
    table.check().unwrap();
}

/// [uneven.5]
#[test]
fn what_one_device_has_to_itself_beside_full_ones_is_not_counted_as_room() {
    for (uneven, more) in [(true, 12), (true, 60), (false, 60)] {
        let mut table = table(1, 3, &[40, 40, 40]);
        table.set_uneven(uneven);
        let ids = fill_all(&mut table);
        let full = reachable(&table);
        assert_eq!(full, 40 * u64::from(GEOMETRY.slot_units()));
        table.add_device(DeviceId(4), more, 0, true);
        // Four devices, three columns: nothing can be placed on one alone.
        assert!(fill(&mut table).is_none());
        assert_eq!(reachable(&table), full, "{more}");
        assert!(table.groups[0].counts.total > 40);
        // Freed columns come back, and with them those of the newest device.
        ids.iter().step_by(3).for_each(|id| empty(&mut table, *id));
        commit(&mut table);
        assert!(reachable(&table) > full, "{more}");
        let before = reachable(&table);
        fill_all(&mut table);
        let held: u64 = table.rows.values().map(|row| u64::from(table.capacity_units(row))).sum();
        assert_eq!((held, reachable(&table)), (before, before), "{more}");
        table.check().unwrap();
    }
}

/// [uneven.7]
#[test]
fn devices_that_fail_change_no_figure_and_find_room_when_they_are_back() {
    for group in GROUPS {
        for gone in spared(group) {
            for filled in [0, 5, 17] {
                let mut table = of(group);
                (0..filled).for_each(|_| _ = fill(&mut table));
                commit(&mut table);
                let before = (free(&table), reachable(&table));
                gone.iter().for_each(|gone| table.set_in_use(*gone, false));
                assert_eq!((free(&table), reachable(&table)), before, "{group:?} {gone:?}");
                let mut told = before.0;
                while let Some(id) = fill(&mut table) {
                    told -= data_of(&table, id);
                    assert_eq!(free(&table), told, "{group:?} {gone:?}");
                    table.check().unwrap();
                    if told < before.0 / 3 {
                        break;
                    }
                }
                for back in &gone {
                    table.set_in_use(*back, true);
                    assert_eq!(free(&table), told, "{group:?} {gone:?}");
                }
                // Segments written without them find room on them, whoever writes first.
                fill_all(&mut table);
                mend(&mut table);
                assert_eq!(table.groups[0].missing, 0, "{group:?} {gone:?}");
                commit(&mut table);
                table.check().unwrap();
            }
        }
    }
}

/// Sets of devices that a group can do without.
fn spared((parity, sizes): (u8, &[u32])) -> Vec<Vec<DeviceId>> {
    let sets = (1_u32..1 << sizes.len()).filter(|set| set.count_ones() <= u32::from(parity));
    let ids =
        |set: u32| (0..sizes.len() as u64).filter(move |at| set >> at & 1 == 1).map(|at| DeviceId(at + 1));
    sets.map(|set| ids(set).collect()).collect()
}

/// [uneven.7] Several devices are mended side by side: what is kept free on each is what is to come
///      there still.
#[test]
fn what_was_built_is_not_kept_free_again_while_others_wait() {
    let mut table = of(GROUPS[2]);
    let gone = [DeviceId(1), DeviceId(4)];
    gone.iter().for_each(|gone| table.set_in_use(*gone, false));
    while free(&table) > 20 {
        fill(&mut table).expect("there is room");
    }
    gone.iter().for_each(|gone| table.set_in_use(*gone, true));
    let told = free(&table);
    let ids: Vec<SegmentId> = table.meant.keys().copied().collect();
    assert!(ids.len() > 10);
    for id in ids {
        while table.rows[&id].missing() > 0 {
            let index = table.rows[&id].place.columns().position(|column| column.is_none());
            let column = table.take_spare_column(id).expect("what was kept free for it");
            table.set_column(id, index.expect("one is missing"), column);
            assert_eq!(free(&table), told);
            table.check().unwrap();
        }
    }
    assert!(table.meant.is_empty() && gone.iter().all(|gone| table.devices[gone].owed == 0));
}

/// [uneven.7] A device that was away for a moment: its slots of what was written since the last
///      commit come back with the next one, and are what is owed to it.
#[test]
fn a_device_that_is_back_before_the_commit_changes_no_figure() {
    for group in GROUPS {
        for gone in (1..).take(group.1.len()).map(DeviceId) {
            let mut table = of(group);
            (0..9).for_each(|_| _ = fill(&mut table));
            let before = (free(&table), reachable(&table));
            table.set_in_use(gone, false);
            table.lose_fresh(gone);
            table.set_in_use(gone, true);
            assert_eq!((free(&table), reachable(&table)), before, "{group:?} {gone}");
            table.check().unwrap();
            commit(&mut table);
            assert_eq!((free(&table), reachable(&table)), before, "{group:?} {gone}, committed");
            fill_all(&mut table);
            mend(&mut table);
            assert_eq!(table.groups[0].missing, 0, "{group:?} {gone}");
            table.check().unwrap();
        }
    }
}

/// [uneven.7] After an import nobody knows for which device a row lacks a column: those with least
///      choice are given one first.
#[test]
fn what_rows_lack_finds_room_after_an_import() {
    for group in GROUPS {
        for gone in spared(group) {
            let mut table = of(group);
            gone.iter().for_each(|gone| table.set_in_use(*gone, false));
            while free(&table) > 8 {
                fill(&mut table).expect("there is room");
            }
            commit(&mut table);
            for here in [false, true] {
                let mut again = of(group);
                gone.iter().for_each(|gone| again.set_in_use(*gone, here));
                again.loading = true;
                again.next_id = table.next_id;
                for (id, row) in &table.rows {
                    again.load_row(*id, &table.store_row(row)).unwrap();
                }
                again.finish_load(&BTreeSet::new(), &BTreeSet::new(), true).unwrap();
                again.check().unwrap();
                gone.iter().for_each(|gone| again.set_in_use(*gone, true));
                fill_all(&mut again);
                mend(&mut again);
                assert_eq!(again.groups[0].missing, 0, "{group:?} {gone:?}");
                again.check().unwrap();
            }
        }
    }
}

/// [uneven.7] Segments written since the last commit lose their columns on it, whose slots are free
///      with the next one.
#[test]
fn a_device_that_fails_amid_a_commit_changes_no_figure() {
    for group in GROUPS {
        for gone in (1..).take(group.1.len()).map(DeviceId) {
            let mut table = of(group);
            (0..9).for_each(|_| _ = fill(&mut table));
            let before = (free(&table), reachable(&table));
            table.set_in_use(gone, false);
            table.lose_fresh(gone);
            assert_eq!((free(&table), reachable(&table)), before, "{group:?} {gone}");
            assert!(table.groups[0].missing > 0, "{group:?} {gone}");
            table.check().unwrap();
            commit(&mut table);
            assert_eq!((free(&table), reachable(&table)), before, "{group:?} {gone}, committed");
            table.check().unwrap();
        }
    }
}

#[test]
fn what_lies_on_a_device_that_is_replaced_finds_room_on_the_new_one() {
    for group in GROUPS {
        for old in (1..).take(group.1.len()).map(DeviceId) {
            let mut table = of(group);
            (0..20).for_each(|_| _ = fill(&mut table));
            commit(&mut table);
            let slots = &table.devices[&old].slots;
            let taken = slots.total() - slots.free();
            table.add_device(DeviceId(100), taken + 3, 0, true);
            table.set_leaving(old, true);
            fill_all(&mut table);
            table.check().unwrap();
            mend(&mut table);
            commit(&mut table);
            assert_eq!(table.devices[&old].slots.free(), table.devices[&old].slots.total(), "{group:?}");
            table.remove_device(old);
            table.check().unwrap();
        }
    }
}

/// Slots that were left for others are free with the next commit only. Until then they are not kept
/// free twice.
#[test]
fn what_was_built_on_the_new_device_is_not_kept_free_again() {
    let mut table = of(GROUPS[0]);
    (0..20).for_each(|_| _ = fill(&mut table));
    commit(&mut table);
    table.add_device(DeviceId(100), 23, 0, true);
    table.set_leaving(DeviceId(1), true);
    let told = free(&table);
    assert_eq!(told, 3, "on the new device, beside what comes from the old one");
    mend(&mut table);
    assert_eq!(free(&table), told, "before the commit");
    table.check().unwrap();
    commit(&mut table);
    assert_eq!(free(&table), told);
    table.check().unwrap();
}

/// In a group of more devices than columns nobody need build elsewhere what lies on one that is
/// away.
#[test]
fn a_group_of_more_devices_than_columns_is_written_without_one() {
    let mut table = table(1, 4, &[60, 60, 60, 12, 12]);
    (0..40).for_each(|_| _ = fill(&mut table));
    commit(&mut table);
    assert!(table.groups[0].counts.narrow);
    assert_eq!(free(&table), 40, "20 segments of two columns of data");
    table.set_in_use(DeviceId(1), false);
    assert_eq!(free(&table), 20, "20 of one");
    assert_eq!(fill_all(&mut table).len(), 20);
    table.check().unwrap();
}

#[test]
fn a_narrow_segment_is_worth_what_its_slots_complete() {
    let mut table = of((1, &[40, 40, 10]));
    let ids = fill_all(&mut table);
    let narrow: Vec<SegmentId> = ids.iter().copied().filter(|id| columns(&table, *id) == 2).collect();
    let half = GEOMETRY.slot_units() / 2;
    assert_eq!((ids.len(), narrow.len()), (40, 30), "10 whole ones, and 30 on the two larger devices");
    let worth = |table: &Table| table.worth_units(&table.rows[&narrow[0]], &mut SlotUnits::new());
    assert_eq!(worth(&table), half);
    table.grow_device(DeviceId(3), 12);
    assert_eq!((free(&table), worth(&table)), (0, 2 * half), "slots that nothing else can take");
    let before = reachable(&table);
    for id in &narrow[1..3] {
        empty(&mut table, *id);
        commit(&mut table);
    }
    assert_eq!(reachable(&table), before + u64::from(2 * half));
    assert_eq!(worth(&table), half, "each of the new slots is completed once");
    table.check().unwrap();
}

/// Emptied one by one, narrow segments that are worth more than they hold gain with each, and at
/// the end all is used that can be.
#[test]
fn widening_gains_with_every_segment_and_comes_to_an_end() {
    let mut emptied = 0;
    for group in GROUPS {
        for (grown, slots) in (1..).map(DeviceId).zip(group.1) {
            let mut table = of(group);
            // Some room to copy into.
            while free(&table) > 2 * u64::from(table.groups[0].data()) {
                fill(&mut table).expect("there is room");
            }
            table.grow_device(grown, slots + 9);
            let reached = |table: &Table| table.groups[0].held_columns + free(table);
            let (mut before, mut copy, mut left) = (reached(&table), None, 0);
            loop {
                let mut known = SlotUnits::new();
                let found = table
                    .rows
                    .iter()
                    .find(|(_, row)| table.worth_units(row, &mut known) > table.capacity_units(row));
                let Some(id) = found.map(|(id, _)| *id) else { break };
                if copy == Some(id) {
                    left = 0;
                }
                let mut columns = data_of(&table, id);
                while columns > 0 {
                    if left == 0 {
                        let next = fill(&mut table).expect("room to copy into");
                        (copy, left) = (Some(next), data_of(&table, next));
                    }
                    let copied = columns.min(left);
                    (columns, left) = (columns - copied, left - copied);
                }
                empty(&mut table, id);
                commit(&mut table);
                assert!(reached(&table) > before, "{group:?} {grown}");
                (before, emptied) = (reached(&table), emptied + 1);
                table.check().unwrap();
            }
            let all: Vec<u32> = table.devices.values().map(|space| space.slots.total()).collect();
            let best = table.widths(&table.groups[0]).expect("it has the feature").best(&all);
            assert_eq!(before, best.columns, "{group:?} {grown}");
        }
    }
    assert!(emptied > 10, "{emptied}");
}

#[test]
fn narrow_segments_take_any_tail() {
    let mut table = of((1, &[40, 30, 20, 10]));
    let (narrow, all) = (table.groups[0].counts.narrow, free(&table));
    table.note_tail(40);
    assert!(narrow && !table.groups[0].counts.narrow, "not even two columns of data hold 128 units");
    table.note_tail(10);
    assert_eq!((table.groups[0].counts.narrow, free(&table)), (true, all));
    table.check().unwrap();
}

/// A long tail took narrow segments from a group that had some: it counted as full, as more lives
/// there than whole ones hold.
#[test]
fn a_long_tail_takes_nothing_from_a_group_that_has_narrow_rows() {
    for group in GROUPS {
        let mut table = of(group);
        while table.groups[0].narrow_rows == 0 || free(&table) > 10 {
            fill(&mut table).expect("there is room");
        }
        let before = table.groups[0].counts;
        for units in [17, 33, 65, 128, 3] {
            table.note_tail(units);
            assert_eq!(table.groups[0].counts, before, "{group:?}");
            table.check().unwrap();
        }
    }
    // Where there were none it is the first that changes what the next may be.
    let mut table = table(1, 6, &[20, 20, 20, 20, 8, 8]);
    table.note_tail(30);
    while table.groups[0].narrow_rows == 0 {
        fill(&mut table).expect("there is room");
        table.check().unwrap();
    }
    assert!(fill_all(&mut table).len() > 5);
}

/// [uneven.2], [uneven.3] whatever devices grow to: once they are alike, or nearly, narrow rows
/// give back what they hold all the same.
#[test]
fn narrow_rows_give_back_what_they_hold_however_devices_grow() {
    let (mut narrowed, mut widened) = (0, 0);
    for (at, (parity, sizes)) in GROUPS.into_iter().chain([(1, &[24, 18, 18][..])]).enumerate() {
        let largest = *sizes.iter().max().unwrap();
        for (first, others) in [
            (largest, largest),
            (largest + 8, largest),
            (largest + 1, largest),
            (largest, largest - 1),
            (largest, largest - 2),
            (largest, 30),
        ] {
            let mut table = of((parity, sizes));
            let mut ids = fill_all(&mut table);
            commit(&mut table);
            for (id, slots) in (1..).map(DeviceId).zip(sizes) {
                let slots = if id == DeviceId(1) { first } else { others.max(*slots) };
                table.grow_device(id, slots);
            }
            let mut seed = at as u64;
            for _ in 0..300 {
                let (told, most) = (free(&table), reachable(&table));
                match random(&mut seed, 5) {
                    0 | 1 if !ids.is_empty() => {
                        let at = random(&mut seed, ids.len() as u64) as usize;
                        empty(&mut table, ids.swap_remove(at));
                    }
                    2 => {
                        let (units, owed) =
                            (table.free_units_of(Side::Normal), table.emptied_units_of(Side::Normal));
                        commit(&mut table);
                        let now = table.free_units_of(Side::Normal);
                        assert!(now >= units + owed, "{sizes:?} {first} {others}: {units} + {owed}, {now}");
                    }
                    _ => {
                        if let Some(id) = fill(&mut table) {
                            assert_eq!(free(&table) + data_of(&table, id), told, "{sizes:?} {first}");
                            narrowed += u32::from(columns(&table, id) < sizes.len());
                            ids.push(id);
                        }
                    }
                }
                assert!(reachable(&table) >= most, "{sizes:?} {first} {others}");
                table.check().unwrap();
            }
            // Written anew all is in whole segments again, if devices are alike.
            let give_back = |table: &mut Table, id: SegmentId| {
                empty(table, id);
                let (units, owed) = (table.free_units_of(Side::Normal), table.emptied_units_of(Side::Normal));
                commit(table);
                let now = table.free_units_of(Side::Normal);
                assert!(now >= units + owed, "{sizes:?} {first} {others}: {units} + {owed}, {now}");
            };
            let mut left = 1000;
            while let Some(at) =
                ids.iter().position(|id| columns(&table, *id) < sizes.len()).filter(|_| left > 0)
            {
                ids.append(&mut fill_all(&mut table));
                give_back(&mut table, ids.swap_remove(at));
                left -= 1;
            }
            ids.into_iter().for_each(|id| give_back(&mut table, id));
            let all_alike = table.devices.values().all(|space| space.slots.total() == largest);
            if all_alike {
                widened += 1;
                assert!(!table.groups[0].counts.narrow, "{sizes:?}");
            }
        }
    }
    assert!(narrowed > 0 && widened > 3, "{narrowed}, {widened}");
}

/// The room told before a device is replaced is the room there is afterwards: narrow segments do
/// not gain less than a 64th more.
#[test]
fn what_another_device_would_bring_is_counted_as_it_will_be() {
    for (sizes, slots) in
        [(&[640, 640, 320][..], 650), (&[640, 640, 320], 640), (&[640, 640, 320], 600), (&[64, 64, 20], 62)]
    {
        let mut table = of((1, sizes));
        let old = DeviceId(3);
        let told = table.reachable_with(old, slots).expect("a raidz group");
        table.add_device(DeviceId(9), slots, 0, true);
        table.set_leaving(old, true);
        table.remove_device(old);
        assert_eq!(reachable(&table), told, "{sizes:?} {slots}");
    }
    // With narrow rows the group stays what it is.
    let mut table = of((1, &[640, 640, 320]));
    fill_all(&mut table);
    let told = table.reachable_with(DeviceId(3), 636).expect("a raidz group");
    table.grow_device(DeviceId(3), 636);
    let counts = table.groups[0].counts;
    assert_eq!((counts.narrow, counts.total_units), (true, told));
}

#[test]
fn what_is_too_long_for_narrow_segments_goes_to_another_group() {
    let mut table = of((1, &[40, 40, 10]));
    while table.devices[&DeviceId(3)].slots.free() > 0 {
        fill(&mut table).expect("there is room");
    }
    let other = table.add_group(Redundancy::None, GroupClass::Normal, 1, GEOMETRY.slot_size);
    table.add_device(DeviceId(50), 10, other, true);
    (1..10).for_each(|slot| assert!(table.claim_slot(Column { device: DeviceId(50), slot })));
    assert_eq!(table.choose_group(OWNER, Class::Data), Some(0), "more of it is free");
    let id = table.allocate(OWNER, Class::Data, 0, GEOMETRY.slot_units()).expect("a whole slot");
    assert_eq!(table.rows[&id].group, other);
}

#[test]
fn rows_that_hold_too_much_for_their_columns_are_refused() {
    let mut full = of((1, &[40, 40, 10]));
    let ids = fill_all(&mut full);
    let id = *ids.iter().find(|id| columns(&full, **id) == 2).expect("a narrow one");
    let row = |filled: u32, place: &Placement| SegmentRow {
        class: Class::Data as u8,
        owner: OWNER,
        filled,
        place: place.clone(),
        dead: None,
    };
    let place = full.rows[&id].place.clone();
    let half = GEOMETRY.slot_size / 2;
    let fresh = |uneven: bool| {
        let mut table = of((1, &[40, 40, 10]));
        table.set_uneven(uneven);
        table.next_id = full.next_id;
        table
    };
    assert_eq!(fresh(true).load_row(id, &row(half, &place)), Ok(()));
    let over = fresh(true).load_row(id, &row(half + GEOMETRY.unit, &place));
    assert!(matches!(over, Err(TableError::Filled { .. })), "{over:?}");
    // A program that does not know the feature would count it for a whole slot.
    let unknown = fresh(false).load_row(id, &row(half, &place));
    assert!(matches!(unknown, Err(TableError::Columns { .. })), "{unknown:?}");
    // Nor may parity be another than its group's.
    let mut other = of((2, &[40, 40, 40, 12, 12]));
    let ids = fill_all(&mut other);
    let id = *ids.iter().find(|id| columns(&other, **id) == 3).expect("a narrow one");
    let Placement::Raidz { chunk_shift, columns, .. } = other.rows[&id].place.clone() else {
        panic!("{:?}", other.rows[&id].place)
    };
    let mut table = of((2, &[40, 40, 40, 12, 12]));
    table.next_id = other.next_id;
    let place = Placement::Raidz { parity: 1, chunk_shift, columns };
    let found = table.load_row(id, &row(0, &place));
    assert!(matches!(found, Err(TableError::Columns { .. })), "{found:?}");
}
