//! Yesterday's bytes mean today what they meant: every golden file is what a known value encodes
//! to, and decodes to it.
//!
//! A file that is missing is written by `STEADFAST_GOLDEN=write cargo test -p steadfast-format
//! --test main golden`. A file that is there is never written: if a test here fails after a change,
//! the format has changed, and FORMAT.md, "Changes of the format", says what that takes.

#[allow(dead_code, reason = "each test uses its part")]
use crate::support;
use std::fmt::Write as _;

use steadfast_format::anchor;
use steadfast_format::inode::{InodeRecord, Time};
use steadfast_format::label::{
    AuxClass, AuxConfig, GroupClass, GroupConfig, GroupKind, LabelConfig, LeafConfig, LeafState, LogOut,
    LogPart, PoolState,
};
use steadfast_format::layout::Layout;
use steadfast_format::{
    Address, AnchorRecord, BlockKind, BlockPointer, Bookmark, CacheChunk, CacheEntry, Cell, CellId,
    CellPlace, Checkpoint, Checksums, Column, CommitTail, Compression, ContentRow, DatasetEncryption,
    DatasetId, DatasetRow, DeadRange, DeviceId, Feature, HeldLog, HistoryEntry, InodeId, KdfParams,
    KeyFormat, Lineage, LogHead, LogHeader, LogRecord, LogStart, ManifestEntry, ManifestRun, ManifestWriter,
    MetaKey, OwnerRow, Placement, PoolGuid, ReferenceRow, RelocationRow, ScanKind, ScanRow, ScanState,
    SegmentId, SegmentRow, SharingClass, SharingRow, SnapshotRow, Stamp, Txg, Uberblock, WrappedKey,
};

#[path = "golden/parity.rs"]
mod parity;
#[path = "golden/streams.rs"]
mod streams;

/// Writes annotated lines.
#[derive(Default)]
struct Page {
    text: String,
    bytes: usize,
}

impl Page {
    fn line(&mut self, bytes: &[u8], remark: &str) -> &mut Self {
        let same = bytes.len() > 16 && bytes.iter().all(|byte| *byte == bytes[0]);
        let hex: Vec<String> = if same {
            vec![format!("{:02x}*{}", bytes[0], bytes.len())]
        } else {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        writeln!(self.text, "{}  # {:04} {remark}", hex.join(" "), self.bytes).unwrap();
        self.bytes += bytes.len();
        self
    }

    /// The fixed part of a structure, line by line; pointers within it field by field.
    fn fixed(&mut self, layout: &Layout, bytes: &[u8], path: &str) -> &mut Self {
        for &(name, off, len) in layout.fields {
            let field = &bytes[off..off + len];
            let path = format!("{path}{name}");
            if len == BlockPointer::ENCODED_SIZE && field.iter().any(|byte| *byte != 0) {
                self.fixed(&BlockPointer::LAYOUT, field, &format!("{path}."));
            } else {
                self.line(field, &path);
            }
        }
        self
    }
}

/// Compares one golden file with what `bytes` are today; writes it where it is missing and that was
/// asked for.
fn golden(name: &str, title: &str, bytes: &[u8], annotate: impl FnOnce(&mut Page)) {
    let path = support::folder().join(format!("{name}.v1.hex"));
    if !path.exists() && std::env::var_os("STEADFAST_GOLDEN").is_some_and(|value| value == "write") {
        let mut page = Page::default();
        annotate(&mut page);
        assert_eq!(support::parse(&page.text), bytes, "the remarks cover all bytes");
        let text = format!("# {title}, version 1. FORMAT.md. Each remark: offset, field.\n{}", page.text);
        std::fs::write(&path, text).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| {
        panic!("golden/{name}.v1.hex is missing: STEADFAST_GOLDEN=write cargo test -p steadfast-format --test main golden")
    });
    assert!(
        support::parse(&text) == bytes,
        "{name}: the bytes are not what they were; the format has changed"
    );
}

fn pointer(kind: BlockKind) -> BlockPointer {
    BlockPointer {
        hash: std::array::from_fn(|at| u8::try_from(at).unwrap()),
        copies: [
            Address { segment: SegmentId(0x0102), offset: 0x2000 },
            Address { segment: SegmentId(0x0103), offset: 0x5000 },
            Address::NONE,
        ],
        psize: 5016,
        lsize: 16_384,
        birth: Txg(77),
        written: Txg(0),
        stamp: Stamp { salt: *b"0123456789abcdef", counter: 4_000_000_001 },
        compression: Compression::Zstd,
        kind,
        level: 1,
    }
}

fn open_pointer() -> BlockPointer {
    BlockPointer {
        hash: [0xab; 32],
        copies: [Address { segment: SegmentId(9), offset: 0 }, Address::NONE, Address::NONE],
        psize: 131_072,
        lsize: 131_072,
        birth: Txg(1),
        written: Txg(0),
        stamp: Stamp::default(),
        compression: Compression::Off,
        kind: BlockKind::Data,
        level: 0,
    }
}

fn passphrase_key() -> WrappedKey {
    WrappedKey {
        key_format: KeyFormat::Passphrase,
        kdf: Some(KdfParams { memory_kib: 65_536, passes: 3, lanes: 1, salt: [0x5a; 32] }),
        guid: 0x1122_3344_5566_7788,
        nonce: *b"twelve bytes",
        sealed: std::array::from_fn(|at| 0x80 + u8::try_from(at).unwrap()),
    }
}

fn plain(device: u64, slot: u32) -> Placement {
    Placement::Plain(Column { device: DeviceId(device), slot })
}

fn leaf(id: u64, path: &str) -> LeafConfig {
    let (slots, group, state) = ([255, 511][usize::try_from(id).unwrap() - 1], 0, LeafState::Online);
    LeafConfig { id: DeviceId(id), guid: 11 * id, slots, group, state, path: path.into() }
}

/// Raidz1 of two data columns, of which the first is missing.
fn raidz() -> Placement {
    let columns =
        [None, Some(Column { device: DeviceId(3), slot: 6 }), Some(Column { device: DeviceId(1), slot: 7 })];
    Placement::Raidz { parity: 1, chunk_shift: 14, columns: columns.into() }
}

fn segment_row() -> SegmentRow {
    SegmentRow {
        class: 1,
        owner: DatasetId(3),
        filled: 10 * 4096,
        place: Placement::Plain(Column { device: DeviceId(1), slot: 200 }),
        dead: Some(vec![0b0000_0101, 0b10]),
    }
}

fn annotate_segment_row(page: &mut Page, bytes: &[u8], path: &str) {
    page.fixed(&SegmentRow::LAYOUT, bytes, path);
    let (columns, dead) = bytes[64..].split_at(16 * usize::from(bytes[2]));
    for column in columns.chunks(16) {
        page.fixed(&Column::LAYOUT, column, &format!("{path}column."));
    }
    if !dead.is_empty() {
        page.line(dead, &format!("{path}dead: units 0, 2 and 9"));
    }
}

#[test]
fn block_pointers() {
    let at = |segment, offset| Address { segment: SegmentId(segment), offset };
    let copies = [at(9, 0), at(0x0a0b, 0x2000), at(0x0c0d, 0x3000)];
    for (name, value) in [
        ("block_pointer_open", open_pointer()),
        ("block_pointer_sealed", pointer(BlockKind::Names)),
        ("block_pointer_copies", BlockPointer { copies, ..open_pointer() }),
    ] {
        let bytes = value.to_bytes();
        golden(name, "Block pointer", &bytes, |page| {
            page.fixed(&BlockPointer::LAYOUT, &bytes, "");
        });
        assert_eq!(BlockPointer::decode(&bytes), Ok(value));
    }
}

#[test]
fn wrapped_keys() {
    let raw = WrappedKey { key_format: KeyFormat::Raw, kdf: None, ..passphrase_key() };
    for (name, value) in [("wrapped_key_passphrase", passphrase_key()), ("wrapped_key_raw", raw)] {
        let bytes = value.encode();
        golden(name, "Wrapped key", &bytes, |page| {
            page.fixed(&WrappedKey::LAYOUT, &bytes, "");
        });
        assert_eq!(WrappedKey::decode(&bytes), Ok(value));
    }
}

#[test]
fn labels() {
    let checksum = |_: &[u8]| [0xcc; 32];
    let plain = LabelConfig {
        pool: PoolGuid(0x0123_4567_89ab_cdef),
        known_as: None,
        becoming: None,
        name: "tank".into(),
        device: DeviceId(2),
        device_guid: 22,
        txg: Txg(1000),
        created_ns: 1_767_225_600_000_000_000,
        state: PoolState::Exported,
        host: "host".into(),
        ashift: 12,
        slot_size: 1 << 20,
        leaves: vec![leaf(1, "/a.img"), leaf(2, "/b.img")],
        features: vec![Feature::known("zstd").unwrap()],
        aux: Vec::new(),
        groups: Vec::new(),
        key: None,
    };
    let mirrored = LabelConfig {
        features: vec![Feature::known("redundancy").unwrap()],
        leaves: plain.leaves.iter().map(|leaf| LeafConfig { group: 1, ..leaf.clone() }).collect(),
        groups: vec![GroupConfig {
            id: 1,
            kind: GroupKind::Mirror,
            width: 2,
            column: 1 << 20,
            class: GroupClass::Normal,
        }],
        ..plain.clone()
    };
    let mirror = |id, class| GroupConfig { id, kind: GroupKind::Mirror, width: 1, column: 1 << 20, class };
    let special = LabelConfig {
        features: ["redundancy", "special_devices"].map(|name| Feature::known(name).unwrap()).to_vec(),
        leaves: [1, 2]
            .map(|id| LeafConfig { group: u8::try_from(id).unwrap(), ..plain.leaves[id - 1].clone() })
            .to_vec(),
        groups: vec![mirror(1, GroupClass::Normal), mirror(2, GroupClass::Special)],
        ..plain.clone()
    };
    let anchored = LabelConfig {
        features: vec![Feature::known("anchor").unwrap()],
        aux: vec![AuxConfig {
            class: AuxClass::Anchor,
            given_up: false,
            guid: 33,
            path: "/c.reg".into(),
            standing: None,
            log: LogPart::default(),
        }],
        ..plain.clone()
    };
    let logged = LabelConfig {
        device: DeviceId(0),
        device_guid: 44,
        features: vec![Feature::known("log_device").unwrap()],
        aux: vec![
            AuxConfig {
                class: AuxClass::Log,
                given_up: false,
                guid: 44,
                path: "/d.log".into(),
                standing: None,
                log: LogPart::default(),
            },
            AuxConfig {
                class: AuxClass::Log,
                given_up: true,
                guid: 55,
                path: "/e.log".into(),
                standing: None,
                log: LogPart::default(),
            },
        ],
        ..plain.clone()
    };
    let side = |guid, path: &str, out| AuxConfig {
        class: AuxClass::Log,
        given_up: false,
        guid,
        path: path.into(),
        standing: None,
        log: LogPart { mirror: 2, out },
    };
    let log_mirrored = LabelConfig {
        features: ["log_device", "log_mirrors"].map(|name| Feature::known(name).unwrap()).to_vec(),
        aux: vec![
            side(44, "/d.log", None),
            side(55, "/e.log", Some(LogOut::Offline)),
            side(77, "/g.log", Some(LogOut::Gone)),
        ],
        ..logged.clone()
    };
    let renumbered = LabelConfig {
        known_as: Some(PoolGuid(0x1122_3344)),
        becoming: Some(PoolGuid(0x5566_7788)),
        features: vec![Feature::known("renumbered").unwrap()],
        ..plain.clone()
    };
    let cached = LabelConfig {
        device: DeviceId(0),
        device_guid: 66,
        features: vec![Feature::known("cache_devices").unwrap()],
        aux: vec![AuxConfig {
            class: AuxClass::Cache,
            given_up: false,
            guid: 66,
            path: "/f.img".into(),
            standing: None,
            log: LogPart::default(),
        }],
        ..plain.clone()
    };
    let sealed = LabelConfig {
        state: PoolState::Active,
        key: Some((passphrase_key(), "prompt".into())),
        features: Vec::new(),
        ..plain.clone()
    };
    let all = [
        ("label_plain", plain),
        ("label_sealed", sealed),
        ("label_anchored", anchored),
        ("label_logged", logged),
        ("label_log_mirrored", log_mirrored),
        ("label_cached", cached),
        ("label_renumbered", renumbered),
        ("label_mirrored", mirrored),
        ("label_special", special),
    ];
    for (name, value) in all {
        let bytes = value.encode(checksum).unwrap();
        golden(name, "Label", &bytes, |page| {
            page.fixed(&LabelConfig::LAYOUT, &bytes, "");
            let mut rest = &bytes[LabelConfig::LAYOUT.size()..];
            let mut take = |count: usize| {
                let (part, after) = rest.split_at(count);
                rest = after;
                part
            };
            page.line(take(4), "name").line(take(4), "host");
            if value.key.is_some() {
                page.line(take(6), "location").fixed(&WrappedKey::LAYOUT, take(120), "wrapped.");
            }
            for _ in 0..2 {
                page.fixed(&LeafConfig::LAYOUT, take(24), "leaf.").line(take(6), "leaf.path");
            }
            for feature in &value.features {
                page.fixed(&Feature::LAYOUT, take(2), "feature.")
                    .line(take(feature.name.len()), "feature.name");
            }
            for _ in &value.aux {
                page.fixed(&AuxConfig::LAYOUT, take(16), "aux.").line(take(6), "aux.path");
            }
            for _ in &value.groups {
                page.fixed(&GroupConfig::LAYOUT, take(16), "group.");
            }
        });
        assert_eq!(LabelConfig::decode(&bytes, checksum), Ok(value));
    }
}

#[test]
fn uberblocks() {
    let sealed = Uberblock {
        keyed: true,
        pool: PoolGuid(0x0123_4567_89ab_cdef),
        txg: Txg(77),
        time_ns: 1_767_225_600_000_000_000,
        devices: 2,
        meta: pointer(BlockKind::Meta),
        tail: BlockPointer { level: 0, ..pointer(BlockKind::Tail) },
        tail_places: [Some(plain(1, 5)), Some(plain(2, 0))],
        parent: [0xfa; 32],
        anchor: 9,
        log: None,
    };
    let logged = Uberblock { log: Some(LogStart { epoch: [0xe0; 16], next: 1_234 }), ..sealed.clone() };
    let open = Uberblock {
        keyed: false,
        devices: 1,
        tail: BlockPointer { kind: BlockKind::Tail, ..open_pointer() },
        meta: BlockPointer { kind: BlockKind::Meta, ..open_pointer() },
        tail_places: [Some(plain(1, 5)), None],
        ..sealed.clone()
    };
    let redundant = Uberblock { tail_places: [Some(raidz()), Some(plain(4, 8))], ..open.clone() };
    for (name, value) in [
        ("uberblock_sealed", sealed),
        ("uberblock_open", open),
        ("uberblock_logged", logged),
        ("uberblock_redundant", redundant),
    ] {
        let bytes = value.encode(|_| [0xee; 32]);
        golden(name, "Uberblock", &bytes, |page| {
            page.fixed(&Uberblock::LAYOUT, &bytes, "");
        });
        assert_eq!(Uberblock::decode(&bytes), Ok(value));
    }
}

#[test]
fn checkpoints() {
    let root = Uberblock {
        keyed: false,
        pool: PoolGuid(0x0123_4567_89ab_cdef),
        txg: Txg(70),
        time_ns: 1_767_225_600_000_000_000,
        devices: 1,
        meta: BlockPointer { kind: BlockKind::Meta, ..open_pointer() },
        tail: BlockPointer { kind: BlockKind::Tail, ..open_pointer() },
        tail_places: [Some(raidz()), None],
        parent: [0xfa; 32],
        anchor: 0,
        log: None,
    };
    let checkpoint = Checkpoint { root };
    let bytes = checkpoint.encode();
    golden("checkpoint", "Checkpoint", &bytes, |page| {
        page.fixed(&Checkpoint::LAYOUT, &bytes, "");
    });
    assert_eq!(Checkpoint::decode(&bytes), Ok(checkpoint));
}

#[test]
fn anchor_records() {
    let root = Uberblock {
        keyed: true,
        pool: PoolGuid(0x0123_4567_89ab_cdef),
        txg: Txg(77),
        time_ns: 1_767_225_600_000_000_000,
        devices: 1,
        meta: pointer(BlockKind::Meta),
        tail: BlockPointer { level: 0, ..pointer(BlockKind::Tail) },
        tail_places: [Some(plain(1, 5)), None],
        parent: [0xfa; 32],
        anchor: 9,
        log: None,
    };
    let record = AnchorRecord {
        keyed: true,
        retired: false,
        pool: root.pool,
        seq: 10,
        epoch: 3,
        writer: 0x1122_3344_5566_7788,
        time_ns: root.time_ns,
        log: LogHead { seq: 6, head: [0xab; 32] },
        por_gen: 0,
        por_root: [0; 32],
        prev: [0xcd; 32],
        root_tag: [0xef; 32],
        root,
    };
    let bytes = record.encode(|_| [0xee; 32]);
    golden("anchor_record", "Anchor record", &bytes, |page| {
        page.fixed(&AnchorRecord::LAYOUT, &bytes, "");
    });
    assert_eq!(AnchorRecord::decode(&bytes), Ok(record));
    let slot = anchor::encode_slot(&bytes, |_| [0xcc; 32]);
    golden("anchor_record_slot", "Register slot", &slot, |page| {
        page.fixed(&AnchorRecord::LAYOUT, &bytes, "record.");
        page.line(&slot[1024..1056], "checksum").line(&slot[1056..], "reserved");
    });
    assert_eq!(anchor::decode_slot(&slot, |_| [0xcc; 32]), Ok(Some(&bytes)));
}

#[test]
fn commit_tails() {
    let tail = CommitTail {
        txg: Txg(77),
        next_segment: SegmentId(500),
        next_dataset: DatasetId(4),
        next_history: 12,
        rows: vec![(SegmentId(400), Some(segment_row())), (SegmentId(17), None)],
        runs: vec![
            ((SegmentId(3), 8), Some(RelocationRow { segment: SegmentId(400), unit: 2, units: 6 })),
            ((SegmentId(2), 0), None),
        ],
    };
    let bytes = tail.encode();
    golden("commit_tail", "Commit tail", &bytes, |page| {
        page.fixed(&CommitTail::LAYOUT, &bytes, "");
        let row = segment_row().encode().len();
        let at = CommitTail::LAYOUT.size();
        page.fixed(&CommitTail::ROW_LAYOUT, &bytes[at..], "row.");
        annotate_segment_row(page, &bytes[at + 12..at + 12 + row], "row.row.");
        let at = at + 12 + row;
        page.fixed(&CommitTail::ROW_LAYOUT, &bytes[at..], "row.");
        let at = at + 12;
        page.fixed(&CommitTail::RUN_LAYOUT, &bytes[at..], "run.");
        page.fixed(&RelocationRow::LAYOUT, &bytes[at + 16..], "run.run.");
        page.fixed(&CommitTail::RUN_LAYOUT, &bytes[at + 32..], "run.");
    });
    assert_eq!(CommitTail::decode(&bytes), Ok(tail));
}

#[test]
fn rows() {
    let live = SegmentRow { dead: None, class: 5, owner: DatasetId(0), ..segment_row() };
    let redundant = SegmentRow { place: raidz(), ..live.clone() };
    for (name, value) in
        [("segment_row_dead", segment_row()), ("segment_row_live", live), ("segment_row_raidz", redundant)]
    {
        let bytes = value.encode();
        golden(name, "Segment row", &bytes, |page| annotate_segment_row(page, &bytes, ""));
        assert_eq!(SegmentRow::decode(&bytes), Ok(value));
    }
    let run = RelocationRow { segment: SegmentId(400), unit: 2, units: 6 };
    let bytes = run.encode();
    golden("relocation_row", "Relocation row", &bytes, |page| {
        page.fixed(&RelocationRow::LAYOUT, &bytes, "");
    });
    assert_eq!(RelocationRow::decode(&bytes), Ok(run));
    let scan = ScanRow {
        kind: ScanKind::Resilver,
        state: ScanState::Paused,
        device: 0,
        next: SegmentId(40),
        until: SegmentId(400),
        begun_ns: 1_767_225_600_000_000_000,
        ended_ns: 0,
        total: 7 << 20,
        read: 6 << 20,
        repaired: 5 << 12,
        rebuilt: 4 << 20,
        lost: 3 << 12,
        missing: 2,
    };
    let bytes = scan.encode();
    golden("scan", "Scan", &bytes, |page| {
        page.fixed(&ScanRow::LAYOUT, &bytes, "");
    });
    assert_eq!(ScanRow::decode(&bytes), Ok(scan));
    let sums = Checksums { sums: vec![[0xaa; 16], [0xbb; 16], [0xcc; 16]] };
    let bytes = sums.encode();
    golden("checksums", "Checksums", &bytes, |page| {
        page.fixed(&Checksums::LAYOUT, &bytes, "");
        for sum in bytes[8..].chunks(16) {
            page.line(sum, "checksum");
        }
    });
    assert_eq!(Checksums::decode(&bytes), Ok(sums));
}

#[test]
fn dataset_rows() {
    let plain = DatasetRow {
        id: DatasetId(3),
        parent: DatasetId(1),
        name: "home".into(),
        created_txg: Txg(10),
        created_ns: 1_767_225_600_000_000_000,
        names: Some(pointer(BlockKind::Names)),
        extents: None,
        used: 1 << 30,
        data: 1 << 29,
        logical: 3 << 29,
        files: 1000,
        next_inode: 1200,
        hash_seed: *b"seed of 16 bytes",
        destroying: false,
        raw: false,
        volume: false,
        encryption: None,
        lineage: Lineage::default(),
    };
    let sealed = DatasetRow {
        encryption: Some(DatasetEncryption {
            root: DatasetId(2),
            owner: DatasetId(2),
            wrapped: passphrase_key(),
        }),
        destroying: true,
        raw: false,
        ..plain.clone()
    };
    let cloned = DatasetRow {
        lineage: Lineage {
            family: DatasetId(2),
            origin: DatasetId(9),
            shared: 1 << 20,
            kept: 2 << 20,
            kept_logical: 3 << 20,
            shared_logical: 4 << 20,
        },
        ..plain.clone()
    };
    let volume = DatasetRow { volume: true, ..plain.clone() };
    let all = [
        ("dataset_row_plain", plain),
        ("dataset_row_sealed", sealed),
        ("dataset_row_cloned", cloned),
        ("dataset_row_volume", volume),
    ];
    for (name, value) in all {
        let bytes = value.encode();
        golden(name, "Dataset row", &bytes, |page| {
            let at = DatasetRow::LAYOUT.size();
            page.fixed(&DatasetRow::LAYOUT, &bytes, "").line(&bytes[at..at + 4], "name");
            if value.encryption.is_some() {
                page.fixed(&WrappedKey::LAYOUT, &bytes[at + 4..], "wrapped.");
            }
        });
        assert_eq!(DatasetRow::decode(&bytes), Ok(value));
    }
}

#[test]
fn snapshots_and_what_they_hold() {
    let row = SnapshotRow {
        number: DatasetId(12),
        guid: 0x1122_3344_5566_7788,
        created_ns: 1_767_225_600_000_000_000,
        names: Some(pointer(BlockKind::Names)),
        extents: None,
        used: 1 << 30,
        data: 1 << 29,
        logical: 3 << 29,
        files: 1000,
        next_inode: 1200,
        deferred: true,
        name: "monday".into(),
    };
    let bytes = row.encode();
    golden("snapshot_row", "Snapshot row", &bytes, |page| {
        page.fixed(&SnapshotRow::LAYOUT, &bytes, "").line(&bytes[SnapshotRow::LAYOUT.size()..], "name");
    });
    assert_eq!(SnapshotRow::decode(&bytes), Ok(row));
    let mark = Bookmark { guid: 0x1122_3344_5566_7788, txg: Txg(77), created_ns: 1_767_225_600_000_000_000 };
    let bytes = mark.encode();
    golden("bookmark", "Bookmark", &bytes, |page| {
        page.fixed(&Bookmark::LAYOUT, &bytes, "");
    });
    assert_eq!(Bookmark::decode(&bytes), Ok(mark));
    let cell = Cell { places: 61, bytes: 61 << 12, logical: 200_000, next: 2 };
    let bytes = cell.encode();
    golden("cell", "Cell", &bytes, |page| {
        page.fixed(&Cell::LAYOUT, &bytes, "");
    });
    assert_eq!(Cell::decode(&bytes), Ok(cell));
    let place = |segment, logical| CellPlace {
        address: Address { segment: SegmentId(segment), offset: 0x2000 },
        psize: 700,
        logical,
    };
    let run = [place(0x0102, 9_000), place(0x0103, 0)];
    let bytes = CellPlace::encode_run(&run);
    golden("cell_run", "Places of a cell", &bytes, |page| {
        for place in bytes.chunks(CellPlace::ENCODED_SIZE) {
            page.fixed(&CellPlace::LAYOUT, place, "place.");
        }
    });
    assert_eq!(CellPlace::decode_run(&bytes), Ok(run.to_vec()));
    let dead = DeadRange { before: Txg(99) };
    let bytes = dead.encode();
    golden("cell_dead_range", "Dead range", &bytes, |page| {
        page.fixed(&DeadRange::LAYOUT, &bytes, "");
    });
    assert_eq!(DeadRange::decode(&bytes), Ok(dead));
}

#[test]
fn shared_blocks() {
    let shared = pointer(BlockKind::Data).referred_in(Txg(99));
    let shared =
        BlockPointer { level: 0, copies: [shared.copies[0], Address::NONE, Address::NONE], ..shared };
    let bytes = shared.to_bytes();
    golden("block_pointer_shared", "Block pointer", &bytes, |page| {
        page.fixed(&BlockPointer::LAYOUT, &bytes, "");
    });
    assert_eq!(BlockPointer::decode(&bytes), Ok(shared));
    let content = ContentRow {
        digest: [0xd1; 32],
        hash: [0xa5; 32],
        domain: DatasetId(7),
        written: Txg(77),
        stamp: Stamp { salt: *b"0123456789abcdef", counter: 4_000_000_001 },
        noted: 29_446_560,
        compression: Compression::Lz4,
    };
    for (name, content) in [("reference_row_shared", None), ("reference_row_content", Some(content))] {
        let row = ReferenceRow { more: 3, owner: DatasetId(7), psize: 5016, lsize: 131_072, content };
        let bytes = row.encode();
        golden(name, "Reference row", &bytes, |page| {
            page.fixed(&ReferenceRow::LAYOUT, &bytes, "");
            let rest = &bytes[ReferenceRow::LAYOUT.size()..];
            if !rest.is_empty() {
                page.fixed(&ContentRow::LAYOUT, rest, "content.");
            }
        });
        assert_eq!(ReferenceRow::decode(&bytes), Ok(row));
    }
    let class = SharingClass {
        log2: 1,
        blocks: 2,
        lsize: 262_144,
        psize: 10_032,
        dsize: 16_384,
        ref_blocks: 5,
        ref_lsize: 655_360,
        ref_psize: 25_080,
        ref_dsize: 40_960,
    };
    let row = SharingRow { shared: 4, shared_bytes: 32_768, saved_bytes: 65_536, classes: vec![class] };
    let bytes = row.encode();
    golden("sharing_row", "Sharing", &bytes, |page| {
        page.fixed(&SharingRow::LAYOUT, &bytes, "");
        page.fixed(&SharingClass::LAYOUT, &bytes[SharingRow::LAYOUT.size()..], "class.");
    });
    assert_eq!(SharingRow::decode(&bytes), Ok(row));
}

#[test]
fn log_groups() {
    let header = LogHeader {
        pool: PoolGuid(0x0123_4567_89ab_cdef),
        epoch: [0xe0; 16],
        behind: 0,
        sequence: 1_234,
        txg: Txg(78),
        dataset: DatasetId(3),
        length: 500,
        records: 7,
        stamp: Stamp { salt: [0xaa; 16], counter: 99 },
        parent: [0xfa; 32],
    };
    let bytes = header.encode(|_| [0xee; 32]);
    golden("log_group", "Log group", &bytes, |page| {
        page.fixed(&LogHeader::LAYOUT, &bytes, "");
    });
    assert_eq!(LogHeader::decode(&bytes), Ok((header, [0xee; 32])));
}

#[test]
fn log_records() {
    let now = Time { seconds: 1_767_225_600, nanos: 5 };
    let attributes = InodeRecord {
        generation: 78,
        parent: InodeId(1),
        size: 4_096,
        allocated: 0,
        mode: 0o100_644,
        nlink: 1,
        uid: 1000,
        gid: 1000,
        rdev: 0,
        record_shift: 17,
        flags: InodeRecord::FLAG_RECORD_FINAL,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
    };
    let (inode, until) = (InodeId(9), Txg(78));
    let records = [
        LogRecord::Set { key: b"key", value: b"value" },
        LogRecord::Removed { key: b"key" },
        LogRecord::Inode { inode, record: attributes },
        LogRecord::Gone { inode },
        LogRecord::Data { inode, offset: 8_192, bytes: b"content" },
        LogRecord::Cut { inode, start: 4_096, end: u64::MAX, until },
        LogRecord::Counters { files: 8, next_inode: 10 },
    ];
    let mut bytes = Vec::new();
    records.iter().for_each(|record| record.encode(&mut bytes));
    golden("log_record", "Log records", &bytes, |page| {
        let mut at = 0;
        while at < bytes.len() {
            let (_, taken) = LogRecord::decode(&bytes[at..]).expect("encoded just now");
            let layout = &steadfast_format::log_group::RECORD_LAYOUT;
            page.fixed(layout, &bytes[at..], "record.");
            page.line(&bytes[at + LogRecord::HEADER_SIZE..at + taken], "key and value");
            at += taken;
        }
    });
    assert_eq!(LogRecord::decode_all(&bytes, 7).unwrap(), records);
}

#[test]
fn history_entries() {
    let entry = HistoryEntry {
        time_ns: 1_767_225_600_000_000_000,
        txg: Txg(77),
        uid: 1000,
        internal: false,
        host: "host".into(),
        text: "zfs create tank/home".into(),
    };
    let bytes = entry.encode();
    golden("history_entry", "History entry", &bytes, |page| {
        page.fixed(&HistoryEntry::LAYOUT, &bytes, "").line(&bytes[32..36], "host").line(&bytes[36..], "text");
    });
    assert_eq!(HistoryEntry::decode(&bytes), Ok(entry));
}

#[test]
fn owner_rows() {
    let row = OwnerRow { bytes: 0x0102_0304_0506, objects: 42 };
    let bytes = row.encode();
    golden("owner_row", "Owner row", &bytes, |page| {
        page.fixed(&OwnerRow::LAYOUT, &bytes, "");
    });
    assert_eq!(OwnerRow::decode(&bytes), Ok(row));
}

#[test]
fn cache_chunks() {
    let entry = |byte, offset, len| CacheEntry { hash: [byte; 32], offset, len };
    let entries = vec![entry(0x33, 4096, 1500), entry(0x44, 8192, 4096)];
    let head = CacheChunk { pool: PoolGuid(0x0102), device: 0x0304, sequence: 5, entries };
    let check = |_: &[u8]| [0x55; 32];
    let bytes = head.encode(check);
    golden("cache_chunk", "Cache chunk", &bytes, |page| {
        page.fixed(&CacheChunk::LAYOUT, &bytes, "");
        page.line(&bytes[72..112], "entry").line(&bytes[112..], "entry");
    });
    assert_eq!(CacheChunk::decode(&bytes, check), Ok(head));
}

#[test]
fn held_logs() {
    let held = HeldLog { epoch: [0x11; 16], base: Txg(400), end: 23, hash: [0x22; 32] };
    let bytes = held.encode();
    golden("held_log", "Held log", &bytes, |page| {
        page.fixed(&HeldLog::LAYOUT, &bytes, "");
    });
    assert_eq!(HeldLog::decode(&bytes), Ok(held));
}

#[test]
fn manifests() {
    let entry = |offset, second| ManifestEntry {
        hash: [9; 32],
        counter: 4711,
        offset,
        psize: 5000,
        second,
        kind: if second == Address::NONE { BlockKind::Data } else { BlockKind::Extents },
    };
    let second = Address { segment: SegmentId(6), offset: 0x3000 };
    let run = ManifestRun {
        dataset: DatasetId(7),
        birth: Txg(77),
        salt: [8; 16],
        entries: vec![entry(0x1000, Address::NONE), entry(0x3000, second)],
    };
    let bytes = run.encode();
    golden("manifest_run", "Manifest run", &bytes, |page| {
        page.fixed(&ManifestRun::LAYOUT, &bytes[..ManifestRun::LAYOUT.size()], "");
        for entry in bytes[ManifestRun::LAYOUT.size()..].chunks(ManifestEntry::SIZE) {
            page.fixed(&ManifestEntry::LAYOUT, entry, "entry.");
        }
    });
    assert_eq!(ManifestRun::decode(&bytes), Ok(run));

    let writers = [(0, 7), (70, 9)];
    let writers = writers.map(|(after, id)| ManifestWriter { after: Txg(after), dataset: DatasetId(id) });
    let bytes = ManifestWriter::encode_all(&writers);
    golden("manifest_writer", "Manifest writers", &bytes, |page| {
        for writer in bytes.chunks(ManifestWriter::SIZE) {
            page.fixed(&ManifestWriter::LAYOUT, writer, "writer.");
        }
    });
    assert_eq!(ManifestWriter::decode_all(&bytes), Ok(writers.to_vec()));
}

#[test]
fn keys_of_the_meta_tree() {
    let keys = [
        ("meta_key_pool_property", MetaKey::PoolProperty("comment".into())),
        ("meta_key_dataset", MetaKey::Dataset(DatasetId(7))),
        ("meta_key_dataset_property", MetaKey::DatasetProperty(DatasetId(7), "compression".into())),
        ("meta_key_segment", MetaKey::Segment(SegmentId(0x0102_0304_0506))),
        ("meta_key_relocation", MetaKey::Relocation(SegmentId(3), 9)),
        ("meta_key_history", MetaKey::History(1)),
        ("meta_key_held_log", MetaKey::HeldLog(DatasetId(7))),
        ("meta_key_checkpoint", MetaKey::Checkpoint),
        ("meta_key_parity", MetaKey::Parity),
        ("meta_key_snapshot", MetaKey::Snapshot(DatasetId(7), Txg(77))),
        ("meta_key_cell", MetaKey::Cell(DatasetId(7), CellId { left: Txg(77), born: Txg(70) })),
        ("meta_key_cell_run", MetaKey::CellRun(DatasetId(7), CellId { left: Txg(77), born: Txg(70) }, 3)),
        ("meta_key_dead_range", MetaKey::DeadRange(DatasetId(7), Txg(70))),
        ("meta_key_hold", MetaKey::Hold(DatasetId(12), "keep".into())),
        ("meta_key_reference", MetaKey::Reference(Address { segment: SegmentId(3), offset: 0x2000 })),
        ("meta_key_bookmark", MetaKey::Bookmark(DatasetId(7), "monday".into())),
        ("meta_key_receive", MetaKey::Receive(DatasetId(9))),
        ("meta_key_manifest", MetaKey::Manifest(Address { segment: SegmentId(3), offset: 0x2000 })),
        ("meta_key_manifest_birth", MetaKey::ManifestBirth(DatasetId(7), Txg(77), SegmentId(3))),
        ("meta_key_manifest_writers", MetaKey::ManifestWriters(DatasetId(7))),
        (
            "meta_key_manifest_reference",
            MetaKey::ManifestReference(
                Address { segment: SegmentId(3), offset: 0x2000 },
                Txg(78),
                DatasetId(9),
            ),
        ),
        ("meta_key_received_property", MetaKey::ReceivedProperty(DatasetId(7), "compression".into())),
    ];
    for (name, value) in keys {
        let bytes = value.encode();
        golden(name, "Key of the meta tree", &bytes, |page| {
            page.line(&bytes[..1], "kind").line(&bytes[1..], "numbers (big-endian), text");
        });
        assert_eq!(MetaKey::decode(&bytes), Some(value));
    }
}
