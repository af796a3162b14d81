use std::sync::Arc;

use steadfast_device::memory::{Effect, Fault as Armed};
use steadfast_device::{Device as _, MemoryDevice, Operation};
use steadfast_env::Env;
use steadfast_format::SegmentId;

use super::*;

const CHUNK: usize = 16 << 10;
const COLUMN: u32 = 1 << 20;

struct Group {
    devices: Vec<Arc<MemoryDevice>>,
    layout: Layout,
}

impl Group {
    fn new(layout: Layout, columns: usize) -> Group {
        let devices =
            (0..columns).map(|at| Arc::new(MemoryDevice::new(&format!("device {at}"), 64 << 20))).collect();
        Group { devices, layout }
    }

    fn raidz(data: usize, parity: usize) -> Group {
        Group::new(Layout::Raidz(Stripe::new(data, parity, CHUNK)), data + parity)
    }

    fn columns_without(&self, missing: &[usize]) -> Columns {
        let column =
            |at: usize| Column { device: Arc::clone(&self.devices[at]) as SharedDevice, place: place(at) };
        let columns = (0..self.devices.len()).map(|at| (!missing.contains(&at)).then(|| column(at)));
        Columns::new(self.layout, columns.collect())
    }

    fn columns(&self) -> Columns {
        self.columns_without(&[])
    }
}

impl Group {
    /// Writes from the beginning on, durably: what is spoilt is what lies on the medium.
    fn fill(&self, all: &[u8]) {
        assert!(write(&self.columns(), 0, all).is_empty());
        self.flush();
    }

    fn flush(&self) {
        self.devices.iter().for_each(|device| device.flush().unwrap());
    }
}

/// Writes without sums; columns that failed.
fn write(columns: &Columns, offset: usize, bytes: &[u8]) -> Vec<(usize, DeviceError)> {
    columns.write::<()>(offset, &part(bytes), None, &*Env::real().tasks).failed
}

fn part(bytes: &[u8]) -> Part {
    Part::new(Arc::new(bytes.to_vec()), 0..bytes.len())
}

/// Each column in a slot of its own number, as a declustered segment's are.
fn place(column: usize) -> SegmentPlace {
    SegmentPlace { segment: SegmentId(7), slot: u32::try_from(column).unwrap(), slot_size: COLUMN }
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31) ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// Accepts what `expected` is, as a hash would.
fn judge(expected: &[u8]) -> impl FnMut(Buffer) -> Result<Vec<u8>, &'static str> + '_ {
    move |bytes| if bytes[..] == *expected { Ok(bytes.to_vec()) } else { Err("hash differs") }
}

/// Reads a range and expects the right bytes, whatever the columns are like; gives what was found
/// on the way.
fn read(columns: &Columns, all: &[u8], range: Range<usize>) -> Vec<Finding> {
    let expected = &all[range.clone()];
    let found = columns.read(range.start, range.len(), &mut judge(expected));
    let found = found.unwrap_or_else(|lost| panic!("{range:?}: {lost:?}"));
    assert!(found.value == expected);
    found.findings
}

fn spoil(group: &Group, column: usize) {
    for at in (0..COLUMN).step_by(1024) {
        group.devices[column].flip_bit_in(place(column), at, 3);
    }
}

/// Ranges of many shapes: within a chunk, over chunks, over rows.
const RANGES: [Range<usize>; 6] = [
    0..4096,
    20_000..24_096,
    12_288..12_288 + (128 << 10),
    (128 << 10)..(256 << 10),
    300_000..300_001,
    0..400_000,
];

fn shapes() -> Vec<Group> {
    let raidz = [(1, 1), (2, 1), (4, 1), (3, 2), (4, 2), (5, 3), (7, 1)];
    let mut shapes: Vec<Group> = raidz.iter().map(|&(data, parity)| Group::raidz(data, parity)).collect();
    shapes.extend((2..=4).map(|copies| Group::new(Layout::Mirror, copies)));
    shapes
}

/// Bytes that fill whole rows of any of the shapes.
fn filled(group: &Group) -> Vec<u8> {
    let row = match group.layout {
        Layout::Mirror => 4096,
        Layout::Raidz(stripe) => stripe.row(),
    };
    content(420_000_usize.next_multiple_of(row))
}

/// Sets of columns as large as the redundancy.
fn worst_sets(group: &Group) -> Vec<Vec<usize>> {
    let redundancy = group.columns().redundancy();
    let all: Vec<usize> = (0..group.devices.len()).collect();
    subsets(&all, redundancy).into_iter().filter(|set| set.len() == redundancy).collect()
}

#[test]
fn what_was_written_is_read_in_any_range() {
    for group in shapes() {
        let (columns, all) = (group.columns(), filled(&group));
        group.fill(&all);
        for range in RANGES {
            assert!(read(&columns, &all, range).is_empty());
        }
    }
}

#[test]
fn a_small_read_touches_one_device() {
    let group = Group::raidz(4, 2);
    let (columns, all) = (group.columns(), filled(&group));
    group.fill(&all);
    let before: Vec<u64> = group.devices.iter().map(|device| device.counts().reads).collect();
    read(&columns, &all, 20_480..24_576);
    let reads: u64 = group.devices.iter().zip(before).map(|(device, old)| device.counts().reads - old).sum();
    assert_eq!(reads, 1);
}

#[test]
fn rows_written_one_after_the_other_are_what_rows_written_at_once_are() {
    let (at_once, by_row) = (Group::raidz(4, 2), Group::raidz(4, 2));
    let all = filled(&at_once);
    assert!(write(&at_once.columns(), 0, &all).is_empty());
    for (row, bytes) in all.chunks(4 * CHUNK).enumerate() {
        assert!(write(&by_row.columns(), row * 4 * CHUNK, bytes).is_empty());
    }
    for (left, right) in at_once.devices.iter().zip(&by_row.devices) {
        assert!(left.image().to_vec() == right.image().to_vec());
    }
}

#[test]
fn as_many_devices_as_the_redundancy_may_be_missing() {
    for group in shapes() {
        let all = filled(&group);
        group.fill(&all);
        for missing in worst_sets(&group) {
            let columns = group.columns_without(&missing);
            for range in RANGES {
                assert!(read(&columns, &all, range).is_empty(), "missing is not a finding");
            }
        }
    }
}

/// [columns.2], [columns.3]: wrong bytes, anywhere, in as many columns as the redundancy; the
/// second read finds nothing wrong any more.
#[test]
fn wrong_columns_are_found_out_and_repaired() {
    for group in shapes() {
        let all = filled(&group);
        group.fill(&all);
        let images: Vec<_> = group.devices.iter().map(|device| device.image()).collect();
        for wrong in worst_sets(&group) {
            group.devices.iter().zip(&images).for_each(|(device, image)| device.restore(image));
            wrong.iter().for_each(|&column| spoil(&group, column));
            let columns = group.columns();
            let findings = read(&columns, &all, 0..all.len());
            let told: Vec<usize> = findings.iter().map(|finding| finding.column).collect();
            assert!(told.iter().all(|column| wrong.contains(column)), "{told:?} of {wrong:?}");
            assert!(findings.iter().all(|finding| matches!(finding.fault, Fault::Wrong) && finding.repaired));
            if let Layout::Raidz(stripe) = group.layout {
                let data: Vec<usize> =
                    wrong.iter().copied().filter(|&column| column < stripe.data()).collect();
                assert_eq!(told, data, "each data column that is wrong is told");
            }
            group.flush();
            assert!(read(&columns, &all, 0..all.len()).is_empty(), "{wrong:?} of {:?}", group.layout);
        }
    }
}

#[test]
fn a_device_that_cannot_be_read_is_told_with_its_error() {
    for group in shapes() {
        let all = filled(&group);
        group.fill(&all);
        group.devices[0].arm(Armed { operation: Operation::Read, skip: 0, effect: Effect::FailAlways });
        let findings = read(&group.columns(), &all, 0..4096);
        assert!(
            matches!(
                &findings[..],
                [Finding { column: 0, fault: Fault::Device(DeviceError::Io { .. }), .. }]
            ),
            "{findings:?}"
        );
    }
}

#[test]
fn a_missing_and_a_wrong_column_together_are_survived_by_two_parities() {
    let group = Group::raidz(4, 2);
    let all = filled(&group);
    group.fill(&all);
    for missing in 0..6 {
        for wrong in (0..6).filter(|&wrong| wrong != missing) {
            let image = group.devices[wrong].image();
            spoil(&group, wrong);
            let findings = read(&group.columns_without(&[missing]), &all, 0..all.len());
            group.flush();
            assert!(findings.iter().all(|finding| finding.column == wrong), "{findings:?}");
            group.devices[wrong].restore(&image);
        }
    }
}

#[test]
fn one_more_than_the_redundancy_is_lost_and_says_what_failed() {
    for group in shapes() {
        let all = filled(&group);
        group.fill(&all);
        let images: Vec<_> = group.devices.iter().map(|device| device.image()).collect();
        (0..=group.columns().redundancy()).for_each(|column| spoil(&group, column));
        let spoilt: Vec<_> = group.devices.iter().map(|device| device.image().to_vec()).collect();
        let lost = group.columns().read(0, all.len(), &mut judge(&all)).expect_err("nothing fits");
        assert_eq!((lost.rejected, lost.failed.len()), (Some("hash differs"), 0));
        // Nothing was written that nobody accepted.
        for (device, before) in group.devices.iter().zip(spoilt) {
            assert!(device.image().to_vec() == before, "a column was changed");
        }
        drop(images);
        let missing: Vec<usize> = (0..=group.columns().redundancy()).collect();
        let columns = group.columns_without(&missing);
        let lost = columns.read(0, all.len(), &mut judge(&all)).expect_err("too few columns");
        assert!(lost.failed.is_empty());
    }
}

/// [columns.3]: nothing is written beside the accepted bytes, even in a chunk that is wrong
/// elsewhere too.
#[test]
fn only_accepted_bytes_are_written_back() {
    let group = Group::raidz(3, 1);
    let all = filled(&group);
    group.fill(&all);
    spoil(&group, 0);
    let before = group.devices[0].image().to_vec();
    let findings = read(&group.columns(), &all, 4096..8192);
    assert_eq!(findings.len(), 1);
    group.flush();
    let after = group.devices[0].image().to_vec();
    let changed: Vec<usize> = (0..before.len()).filter(|&at| before[at] != after[at]).collect();
    let begin = usize::try_from(steadfast_format::medium::slot_offset(0, COLUMN)).unwrap();
    assert!(!changed.is_empty() && changed.iter().all(|at| (begin + 4096..begin + 8192).contains(at)));
}

#[test]
fn a_write_that_some_columns_did_not_take_says_which_and_can_be_read() {
    let group = Group::raidz(4, 2);
    let all = filled(&group);
    for column in [1, 5] {
        group.devices[column].arm(Armed { operation: Operation::Write, skip: 0, effect: Effect::FailAlways });
    }
    let failed = write(&group.columns(), 0, &all);
    assert_eq!(failed.iter().map(|(column, _)| *column).collect::<Vec<_>>(), [1, 5]);
    read(&group.columns_without(&[1, 5]), &all, 0..all.len());
}

/// Sums are of what lies on the devices, row by row, in one thread or in many.
#[test]
fn every_chunk_has_a_sum_in_its_place() {
    let chunk_of = |group: &Group| match group.layout {
        Layout::Mirror => 4096,
        Layout::Raidz(stripe) => stripe.chunk(),
    };
    for group in shapes() {
        let (all, chunk) = (filled(&group), chunk_of(&group));
        for (env, missing) in [(Env::real(), vec![]), (Env::seeded(1), vec![0])] {
            let summing = Some(Summing { chunk, sum: <[u8]>::to_vec });
            let columns = group.columns_without(&missing);
            let written = columns.write(0, &part(&all), summing, &*env.tasks);
            assert!(written.failed.is_empty());
            group.flush();
            let width = if group.layout == Layout::Mirror { 1 } else { group.devices.len() };
            assert_eq!(written.sums.len() % width, 0);
            for (at, sum) in written.sums.iter().enumerate() {
                let (row, column) = (at / width, at % width);
                let mut stored = vec![0; sum.len()];
                let offset = u32::try_from(row * chunk).unwrap();
                group.devices[column].read_segment(place(column), offset, &mut stored).unwrap();
                assert!(stored == *sum, "row {row}, column {column} of {:?}", group.layout);
            }
            let summed: usize = written.sums.iter().map(Vec::len).sum();
            let parity = match group.layout {
                Layout::Mirror => 0,
                Layout::Raidz(stripe) => all.len() / stripe.data() * stripe.parity(),
            };
            assert_eq!(summed, all.len() + parity);
        }
    }
}

#[test]
#[should_panic(expected = "[columns.1]")]
fn half_a_row_is_a_bug() {
    let group = Group::raidz(4, 1);
    let _ = write(&group.columns(), 0, &content(CHUNK));
}

/// A row that was read and found wrong: the rest of it is read once, and the repair is one
/// transfer.
#[test]
fn what_was_read_and_rejected_is_not_read_again() {
    for (group, wanted) in
        [(Group::raidz(3, 1), 4), (Group::raidz(4, 2), 6), (Group::new(Layout::Mirror, 2), 2)]
    {
        let (columns, all) = (group.columns(), filled(&group));
        group.fill(&all);
        spoil(&group, 0);
        let transfers = || {
            let counts = group.devices.iter().map(|device| device.counts());
            counts.fold((0, 0), |(reads, writes), more| (reads + more.reads, writes + more.writes))
        };
        let row = match group.layout {
            Layout::Mirror => 4096,
            Layout::Raidz(stripe) => stripe.row(),
        };
        let before = transfers();
        let mut bytes = Buffer::to_fill(row);
        let copy = columns.read_straight(0, &mut [&mut bytes]).expect("nothing fails");
        assert!(bytes[..] != all[..row]);
        let mut attempts = columns.attempts_behind(0, copy, bytes);
        let right = attempts.next().expect("the others tell");
        assert!(right[..] == all[..row]);
        assert_eq!(attempts.accept(&right, true).len(), 1);
        let (reads, writes) = transfers();
        assert_eq!((reads - before.0, writes - before.1), (wanted, 1), "{:?}", group.layout);
        group.flush();
        assert!(read(&columns, &all, 0..row).is_empty(), "it is right again");
    }
}

#[test]
fn what_was_read_wrong_once_is_read_again_when_nothing_else_is_left() {
    let group = Group::raidz(3, 1);
    let all = filled(&group);
    group.fill(&all);
    // Without its parity a row cannot be computed from anything else.
    let columns = group.columns_without(&[3]);
    let row = 3 * CHUNK;
    let mut attempts = columns.attempts_behind(0, 0, Buffer::from(vec![9; row]));
    let right = attempts.next().expect("the devices have it");
    assert!(right[..] == all[..row]);
    assert!(attempts.next().is_none());
}

#[test]
fn subsets_come_smallest_first_and_once() {
    assert_eq!(subsets(&[0, 2, 5], 0), [Vec::<usize>::new()]);
    let all = subsets(&[0, 2, 5], 2);
    assert_eq!(all, [vec![], vec![0], vec![2], vec![5], vec![0, 2], vec![0, 5], vec![2, 5]]);
    assert_eq!(subsets(&(0..34).collect::<Vec<_>>(), 3).len(), 1 + 34 + 561 + 5984);
}

#[test]
fn what_does_not_fit_together_is_not_taken_for_right() {
    for group in shapes() {
        let (columns, all) = (group.columns(), filled(&group));
        group.fill(&all);
        for range in RANGES {
            let bytes = columns.read_consistent(range.start, range.len()).expect("nothing is wrong");
            assert!(bytes[..] == all[range]);
        }
        for column in 0..group.devices.len() {
            assert!(group.columns_without(&[column]).read_consistent(0, 4096).is_none(), "one is missing");
            group.devices[column].flip_bit_in(place(column), 77, 1);
            assert!(columns.read_consistent(0, 4096).is_none(), "column {column} is wrong");
            group.devices[column].flip_bit_in(place(column), 77, 1);
        }
    }
}

#[test]
fn copies_are_read_in_turn() {
    let group = Group::new(Layout::Mirror, 3);
    group.fill(&content(4096));
    for first in 0..6 {
        let before: Vec<u64> = group.devices.iter().map(|device| device.counts().reads).collect();
        assert!(read(&group.columns().starting_at(first), &content(4096), 0..4096).is_empty());
        for (at, device) in group.devices.iter().enumerate() {
            assert_eq!(device.counts().reads - before[at], u64::from(at == first % 3), "copy {at}");
        }
    }
}
