//! Golden bytes of parity devices.

use std::collections::BTreeSet;

use steadfast_format::parity::{
    NextParity, ParityHeader, ParityManifest, ParityPlaces, ParityRecord, ParityRepairMark, ParitySegment,
    ParityTile, ParityTileStore, RecordKind,
};
use steadfast_format::{ParityStanding, PoolGuid, SegmentId};

use super::golden;

#[test]
fn parity_devices() {
    let check = |_: &[u8]| [0x55; 32];
    let segment =
        ParitySegment { segment: SegmentId(0x0102), store: 3, opening: 0x0405, length: 0x0010_0001 };
    let header = ParityHeader {
        pool: PoolGuid(0x0102),
        sequence: 3,
        cells: 1 << 28,
        loss_ppm: 20_000,
        tiles: 3390,
        map: 1,
        root_key: Some([0x33; 32]),
        journal_size: 1 << 34,
        journal_tail: 0x0102_0000,
        manifest_len: 88,
        manifest_check: [0x44; 32],
        manifest_area: 2,
        journal_prev: [0x77; 32],
        next_map: None,
        slot_area: 0,
        places: None,
        is_away: false,
        recoveries: 0,
    };
    let derived = ParityHeader { root_key: None, ..header.clone() };
    let rekeyed = ParityHeader { next_map: Some(0x0708), slot_area: 1, ..header.clone() };
    let next = NextParity { loss_ppm: 40_000, tiles: 6780, slots_at: 0x0708_9000 };
    let places = ParityPlaces { first_tiles: 1695, slots_at: 0x0102_3000, next: Some(next) };
    let placed = ParityHeader { next_map: Some(0x0708), places: Some(places), ..header.clone() };
    let away = ParityHeader { is_away: true, ..header.clone() };
    let counted = ParityHeader { recoveries: 0x0304, ..header.clone() };
    for (name, header) in [
        ("parity_header", header),
        ("parity_header_derived", derived),
        ("parity_header_rekeyed", rekeyed),
        ("parity_header_placed", placed),
        ("parity_header_away", away),
        ("parity_header_counted", counted),
    ] {
        let bytes = header.encode(check);
        golden(name, "Parity header", &bytes, |page| {
            page.fixed(&ParityHeader::LAYOUT, &bytes, "");
        });
        assert_eq!(ParityHeader::decode(&bytes, check), Ok(header));
    }
    let store = ParityTileStore {
        pool: PoolGuid(0x0102),
        folder: 0x0a0b,
        inner_size: 0x0102_3000,
        address: "s3://bucket/tiles".to_owned(),
    };
    let bytes = store.encode(check);
    golden("parity_tile_store", "Parity tile store", &bytes, |page| {
        page.fixed(&ParityTileStore::LAYOUT, &bytes, "");
    });
    assert_eq!(ParityTileStore::decode(&bytes, check), Ok(store));
    let mark = ParityRepairMark { pool: PoolGuid(0x0102), sequence: 0x0304 };
    let bytes = mark.encode(check);
    golden("parity_repair_mark", "Parity repair mark", &bytes, |page| {
        page.fixed(&ParityRepairMark::LAYOUT, &bytes, "");
    });
    assert_eq!(ParityRepairMark::decode(&bytes, check), Ok(mark));
    let tile =
        ParityTile { tile: 7, pool: PoolGuid(0x0102), map: 1, generation: 9, cut: 4096, hash: [0x66; 32] };
    let bytes = tile.encode(check);
    golden("parity_tile", "Parity tile", &bytes, |page| {
        page.fixed(&ParityTile::LAYOUT, &bytes, "");
    });
    assert_eq!(ParityTile::decode(&bytes, check), Ok(tile));
    let record = ParityRecord {
        kind: RecordKind::Remove,
        pool: PoolGuid(0x0102),
        position: 8192,
        segment,
        prev: [0x77; 32],
    };
    let bytes = record.encode(check);
    golden("parity_record", "Parity record", &bytes, |page| {
        page.fixed(&ParityRecord::LAYOUT, &bytes, "");
    });
    assert_eq!(ParityRecord::decode(&bytes, check), Ok(record));
    let manifest = ParityManifest {
        pool: PoolGuid(0x0102),
        cut: 8192,
        segments: vec![segment],
        units: vec![7, 5],
        left_out: BTreeSet::new(),
    };
    let rekeyed = ParityManifest { left_out: BTreeSet::from([segment]), ..manifest.clone() };
    for (name, manifest) in [("parity_manifest", manifest), ("parity_manifest_rekeyed", rekeyed)] {
        let bytes = manifest.encode(check);
        golden(name, "Parity manifest", &bytes, |page| {
            page.fixed(&ParityManifest::LAYOUT, &bytes, "");
            page.line(&bytes[64..88], "row").line(&bytes[88..], "unit");
        });
        assert_eq!(ParityManifest::decode(&bytes, check), Ok(manifest));
    }
    let standing = ParityStanding {
        generation: 9,
        root: [0x88; 32],
        position: 0x0102_0000,
        audited_ns: 0x0102_0304,
        samples: 2759,
        failed: 2,
        cells: 1 << 28,
        device: 0x0a0b,
    };
    let bytes = standing.encode();
    golden("parity_standing", "Parity standing", &bytes, |page| {
        page.fixed(&ParityStanding::LAYOUT, &bytes, "");
    });
    assert_eq!(ParityStanding::decode(&bytes), Ok(standing));
}
