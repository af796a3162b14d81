//! Each planted fault is found, by its own name, and a good pool has none.

use crate::common::{Fixture, check, codes, leaves};
use steadfast_device::{Device, SegmentPlace};
use steadfast_format::extent::{Base, Extent, Overlaid};
use steadfast_format::overlay::Overlay;
use steadfast_format::{Address, Checksums, DatasetId, MetaKey, SegmentId, SnapshotRow, Txg, Uberblock};
use steadfast_inspect::{Finding, Severity};

const PLAIN: usize = 0;
const VAULT: usize = 1;

/// A txg beyond those the fixture has committed.
const NEXT: u64 = 4;

fn place(fixture: &Fixture, address: Address) -> (usize, SegmentPlace) {
    let place = fixture.space.place_of(address.segment).unwrap();
    let (_, column) = place.present().next().unwrap();
    let place = SegmentPlace { segment: address.segment, slot: column.slot, slot_size: 1 << 20 };
    (column.device.0 as usize - 1, place)
}

/// Spoils the first copies of a block.
fn spoil(fixture: &Fixture, copies: &[Address]) {
    for &address in copies {
        let (device, place) = place(fixture, address);
        fixture.devices[device].flip_bit_in(place, address.offset + 7, 3);
    }
}

#[test]
fn a_good_pool_has_no_findings() {
    for sealed in [false, true] {
        let (findings, summary) = Fixture::new(sealed).check(true);
        assert_eq!(findings, Vec::new(), "sealed: {sealed}");
        assert_eq!((summary.worst(), summary.txg, summary.datasets), (None, Some(Txg(3)), 2));
        assert!(summary.blocks > 120 && summary.dead_units > 0, "{summary:?}");
        assert_eq!((summary.leaked_units, summary.unknown_units), (0, 0));
        let unit_bytes = summary.live_units * 4096;
        assert_eq!(unit_bytes, summary.bytes, "what lives is what was reached");
    }
}

#[test]
fn without_a_key_what_is_sealed_is_said_to_be_unchecked() {
    let (findings, summary) = Fixture::new(false).check(false);
    assert_eq!(codes(&findings), ["dataset-locked"]);
    assert!(summary.unknown_units > 0 && summary.leaked_units == 0);
    let (findings, summary) = Fixture::new(true).check(false);
    assert_eq!(codes(&findings), ["pool-locked"]);
    assert_eq!(summary.worst(), Some(Severity::Unchecked));
}

#[test]
fn a_wrong_key_is_told_of() {
    let fixture = Fixture::new(true);
    let leaves = fixture.leaves();
    let request = steadfast_inspect::Request {
        leaves: &leaves,
        secret: Some(vec![1; 32]),
        anchor: None,
        env: &fixture.env,
    };
    let mut findings = Vec::new();
    steadfast_inspect::check(&request, &mut |finding| findings.push(finding));
    assert_eq!(codes(&findings), ["key-wrong", "pool-locked"]);
}

#[test]
fn leaked_units_are_counted() {
    let mut fixture = Fixture::new(false);
    fixture.begin(NEXT);
    let lost = fixture.leak();
    fixture.commit_with(|fixture| {
        // The count of the dataset knows of it; the finding to expect is the leak, and the count it
        // spoils.
        fixture.datasets[PLAIN].row.used -= 8192;
        fixture.datasets[PLAIN].row.data -= 8192;
    });
    let (findings, summary) = fixture.check(true);
    assert_eq!(findings, [Finding::Leaked { segment: lost.copies[0].segment, units: 2 }]);
    assert_eq!((summary.leaked_units, summary.worst()), (2, Some(Severity::Leak)));
}

#[test]
fn what_overlays_lead_to_is_reached_and_checked() {
    for freed in [false, true] {
        let mut fixture = Fixture::new(false);
        fixture.begin(NEXT);
        let (base, over) = (fixture.pointer_of(PLAIN, 30), fixture.leak());
        let overlay =
            |range: std::ops::Range<u32>, block| Overlay { ranges: std::iter::once(range).collect(), block };
        let extent = Extent::Overlaid(Overlaid {
            length: 6000,
            base: Some(Base { length: 1000, pointer: base }),
            overlays: vec![overlay(1000..6000, Some(over)), overlay(200..500, None)],
        });
        fixture.put_extent(PLAIN, 30, 0, &extent);
        if freed {
            fixture.blockio.free(&over);
        }
        fixture.commit();
        let (findings, summary) = fixture.check(true);
        if freed {
            assert!(
                matches!(&findings[..], [Finding::PointerDead { address, units: 2, .. }]
                    if *address == over.copies[0]),
                "{findings:?}"
            );
        } else {
            assert_eq!((&findings[..], summary.leaked_units), (&[][..], 0));
        }
    }
}

#[test]
fn a_pointer_to_dead_units_is_found() {
    let mut fixture = Fixture::new(false);
    fixture.begin(NEXT);
    let pointer = fixture.pointer_of(PLAIN, 30);
    fixture.blockio.free(&pointer);
    fixture.commit();
    let (findings, summary) = fixture.check(true);
    let units = pointer.asize(4096) / 4096;
    assert!(
        matches!(&findings[..], [Finding::PointerDead { address, units: dead, .. }]
            if *address == pointer.copies[0] && *dead == units),
        "{findings:?}"
    );
    assert_eq!(summary.worst(), Some(Severity::Damage));
}

#[test]
fn two_pointers_to_one_block_are_found() {
    let mut fixture = Fixture::new(false);
    fixture.begin(NEXT);
    let pointer = fixture.pointer_of(VAULT, 30);
    fixture.put_extent(VAULT, 70, 0, &Extent::Block { length: 1, pointer });
    fixture.commit();
    assert_eq!(codes(&fixture.check(true).0), ["count", "overlap"]);
}

#[test]
fn a_block_among_those_of_another_owner_is_found() {
    let mut fixture = Fixture::new(false);
    fixture.begin(NEXT);
    let foreign = fixture.leak();
    fixture.put_extent(VAULT, 70, 0, &Extent::Block { length: 1, pointer: foreign });
    fixture.commit();
    let found = codes(&fixture.check(true).0);
    // Not sealed, so not authentic either.
    assert_eq!(found, ["block-lost", "count", "pointer-odd", "segment-wrong"]);
}

#[test]
fn a_wrong_count_is_found() {
    let mut fixture = Fixture::new(false);
    fixture.begin(NEXT);
    fixture.commit_with(|fixture| fixture.datasets[VAULT].row.used += 4096);
    let (findings, _) = fixture.check(true);
    assert!(
        matches!(&findings[..], [Finding::Count { dataset: DatasetId(2), field: "used", stored, found }]
            if *stored == found + 4096),
        "{findings:?}"
    );
}

#[test]
fn an_origin_that_is_none_and_relatives_that_are_none_are_found() {
    let snapshot = SnapshotRow {
        number: DatasetId(12),
        guid: 7,
        created_ns: 1,
        names: None,
        extents: None,
        used: 0,
        data: 0,
        logical: 0,
        files: 0,
        next_inode: 2,
        deferred: false,
        name: "monday".into(),
    };
    let told = |origin: u64, family: u64| {
        let mut fixture = Fixture::new(false);
        fixture.begin(NEXT);
        fixture.commit_with(|fixture| {
            let key = MetaKey::Snapshot(DatasetId(1), Txg(2)).encode();
            fixture.meta.insert(&key, &snapshot.encode()).unwrap();
            let lineage = &mut fixture.datasets[VAULT].row.lineage;
            (lineage.origin, lineage.family) = (DatasetId(origin), DatasetId(family));
        });
        let (findings, _) = fixture.check(true);
        let of_vault = findings.into_iter().find_map(|finding| match finding {
            Finding::Dataset { dataset: DatasetId(2), reason } => Some(reason),
            _ => None,
        });
        of_vault.unwrap_or("nothing")
    };
    assert_eq!(told(13, 1), "its origin does not exist");
    assert_eq!(told(12, 0), "its blocks are sealed under another number than its origin's");
    assert_eq!(told(12, 1), "its blocks lie in segments of another owner than its origin's");
}

#[test]
fn one_bad_copy_of_metadata_degrades_and_two_lose_it() {
    for (bad, expected) in [(1, vec!["copy-bad"]), (2, vec!["block-lost"])] {
        let fixture = Fixture::new(false);
        let root = fixture.datasets[VAULT].row.names.unwrap();
        spoil(&fixture, &root.copies[..bad]);
        let (findings, summary) = fixture.check(true);
        assert_eq!(codes(&findings), expected);
        // Blocks below a lost root are unknown, not leaked.
        assert_eq!(summary.unknown_units > 0, bad == 2);
    }
}

#[test]
fn bad_content_is_found_with_its_file() {
    for vault in [PLAIN, VAULT] {
        let fixture = Fixture::new(false);
        spoil(&fixture, &fixture.pointer_of(vault, 30).copies[..1]);
        let (findings, summary) = fixture.check(true);
        assert_eq!(codes(&findings), ["block-lost"]);
        assert!(findings[0].to_string().contains("inode 30, offset 0"), "{}", findings[0]);
        assert_eq!(summary.worst(), Some(Severity::Damage));
    }
}

#[test]
fn a_missing_device_is_fatal_and_the_rest_is_still_looked_at() {
    let fixture = Fixture::new(false);
    let (findings, summary) = check(&fixture.leaves()[..1], true, &fixture.env);
    assert!(codes(&findings).contains(&"device-missing"), "{findings:?}");
    assert_eq!(summary.worst(), Some(Severity::Fatal));
}

#[test]
fn a_device_of_another_pool_or_given_twice_is_set_aside() {
    let fixture = Fixture::new(false);
    let mut given = fixture.leaves();
    given.push(given[0].clone());
    assert_eq!(codes(&check(&given, true, &fixture.env).0), ["device-twice"]);
}

#[test]
fn spoiled_labels_are_told_by_copy() {
    let fixture = Fixture::new(false);
    fixture.devices[1].flip_bit(8 << 10, 0);
    let (findings, _) = fixture.check(true);
    assert!(matches!(&findings[..], [Finding::LabelCopy { copy: 0, path, .. }] if path == "right"));
    for copy in 0..4 {
        fixture.devices[1].write_label(copy, &[1; 600]).unwrap();
    }
    fixture.devices[1].flush().unwrap();
    let (findings, summary) = fixture.check(true);
    assert!(codes(&findings).contains(&"label-none"));
    assert_eq!(summary.worst(), Some(Severity::Fatal));
}

#[test]
fn rings_are_checked_for_torn_slots_forks_and_the_chain() {
    let newest = |fixture: &Fixture| {
        let slots = fixture.devices[0].read_uberblocks(0).unwrap();
        Uberblock::decode(&slots[3]).unwrap()
    };
    let put = |fixture: &Fixture, copy, uberblock: &Uberblock| {
        let bytes = fixture.encode_uberblock(uberblock);
        fixture.devices[0].write_uberblock(copy, uberblock.txg, &bytes).unwrap();
        fixture.devices[0].flush().unwrap();
    };
    let fixture = Fixture::new(true);
    fixture.devices[0].flip_bit(64 * 1024 + 3 * 4096 + 2000, 1);
    assert_eq!(codes(&fixture.check(true).0), ["uberblock-few", "uberblock-torn"]);

    let fixture = Fixture::new(true);
    let other = Uberblock { time_ns: 99, ..newest(&fixture) };
    put(&fixture, 1, &other);
    assert_eq!(codes(&fixture.check(true).0), ["uberblock-fork"]);

    let fixture = Fixture::new(false);
    let orphan = Uberblock { parent: [3; 32], ..newest(&fixture) };
    for copy in 0..4 {
        put(&fixture, copy, &orphan);
    }
    let devices = &fixture.devices[..];
    let bytes = fixture.encode_uberblock(&orphan);
    for copy in 0..4 {
        devices[1].write_uberblock(copy, orphan.txg, &bytes).unwrap();
    }
    devices[1].flush().unwrap();
    assert_eq!(codes(&check(&leaves(devices), true, &fixture.env).0), ["uberblock-parent"]);
}

#[test]
fn checksums_of_nothing_and_checksums_that_are_missing_are_told() {
    let mut fixture = Fixture::new(false);
    fixture.begin(NEXT);
    fixture.commit_with(|fixture| {
        let stray = Checksums { sums: vec![[1; Checksums::SIZE]; 4] };
        fixture.meta.insert(&MetaKey::Checksums(SegmentId(1 << 40), 0).encode(), &stray.encode()).unwrap();
    });
    let (findings, summary) = fixture.check(true);
    assert_eq!(codes(&findings), ["checksums-stray"]);
    assert_eq!(summary.worst(), Some(Severity::Leak));

    let mut fixture = Fixture::new(false);
    fixture.mirror_first();
    fixture.begin(NEXT);
    for file in 100..120 {
        fixture.put(
            PLAIN,
            file,
            0,
            (0..200_000_u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect(),
        );
    }
    fixture.commit();
    let (findings, summary) = fixture.check(true);
    assert!(codes(&findings).contains(&"checksums-few"), "{findings:?}");
    let few = |finding: &&Finding| matches!(finding, Finding::ChecksumsFew { stored: 0, wanted, .. } if *wanted > 0);
    assert_eq!(findings.iter().filter(few).count(), findings.len(), "{findings:?}");
    assert_eq!(summary.worst(), Some(Severity::Degraded));
}
