//! Golden bytes of streams, and of a receive that has begun.

use steadfast_format::raw::{RawBlock, RawGone, RawKept, RawRoots};
use steadfast_format::stream::{
    FrameHeader, FrameKind, PackedRecord, Repeat, StreamBegin, StreamEnd, StreamHeader, StreamMember,
    StreamNotes, StreamSpan,
};
use steadfast_format::{
    Address, BlockKind, BlockPointer, Compression, DatasetId, InodeId, KeyFormat, PoolGuid, ReceiveRow,
    ReceivedProperty, SegmentId, Stamp, Txg, WrappedKey,
};

use super::golden;

#[test]
fn streams_and_what_is_received() {
    let row = ReceiveRow {
        target: DatasetId(7),
        base: Some((Txg(77), 0x1122_3344_5566_7788)),
        guid: 0x99aa_bbcc_ddee_ff00,
        position: (InodeId(12), 1 << 20),
        kept: true,
        clone: false,
        packed: false,
        name: "tuesday".into(),
    };
    let bytes = row.encode();
    golden("receive_row", "Receive row", &bytes, |page| {
        page.fixed(&ReceiveRow::LAYOUT, &bytes, "").line(&bytes[ReceiveRow::LAYOUT.size()..], "name");
    });
    assert_eq!(ReceiveRow::decode(&bytes), Ok(row.clone()));
    let row = ReceiveRow { clone: true, name: "desk@tuesday".into(), ..row };
    let bytes = row.encode();
    golden("receive_row_clone", "Receive row", &bytes, |page| {
        page.fixed(&ReceiveRow::LAYOUT, &bytes, "").line(&bytes[ReceiveRow::LAYOUT.size()..], "name");
    });
    assert_eq!(ReceiveRow::decode(&bytes), Ok(row.clone()));
    let row = ReceiveRow { packed: true, ..row };
    let bytes = row.encode();
    golden("receive_row_packed", "Receive row", &bytes, |page| {
        page.fixed(&ReceiveRow::LAYOUT, &bytes, "").line(&bytes[ReceiveRow::LAYOUT.size()..], "name");
    });
    assert_eq!(ReceiveRow::decode(&bytes), Ok(row));

    let received = ReceivedProperty { value: Some("zstd".into()), inherited: true };
    let bytes = received.encode();
    golden("received_property", "Received property", &bytes, |page| {
        page.fixed(&ReceivedProperty::LAYOUT, &bytes, "")
            .line(&bytes[ReceivedProperty::LAYOUT.size()..], "value");
    });
    assert_eq!(ReceivedProperty::decode(&bytes), Ok(received));

    let plain = StreamHeader::default();
    for (name, header) in [
        ("stream_header", plain),
        ("stream_header_packed", StreamHeader { packed: true, ..plain }),
        ("stream_header_notes", StreamHeader { notes: true, ..plain }),
        ("stream_header_repeats", StreamHeader { repeats: true, ..plain }),
        ("stream_header_members", StreamHeader { members: true, ..plain }),
    ] {
        let bytes = header.encode();
        golden(name, "Stream header", &bytes, |page| {
            page.fixed(&StreamHeader::LAYOUT, &bytes, "");
        });
        assert_eq!(StreamHeader::decode(&bytes), Ok(header));
    }

    let frame = FrameHeader { kind: FrameKind::Content, length: 70_000, hash: [0x5e; 32] };
    let bytes = frame.encode();
    golden("stream_frame", "Frame", &bytes, |page| {
        page.fixed(&FrameHeader::LAYOUT, &bytes, "");
    });
    assert_eq!(FrameHeader::decode(&bytes), Ok(frame));

    let begin = StreamBegin {
        guid: 0x99aa_bbcc_ddee_ff00,
        base: 0x1122_3344_5566_7788,
        created_ns: 1_767_225_600_000_000_000,
        bytes: 3 << 29,
        hash_seed: [7; 16],
        position: (InodeId(12), 1 << 20),
        resumed: true,
        raw: false,
        with_properties: true,
        volume: false,
        clone: false,
        packed: false,
        name: "tank/home@tuesday".into(),
        properties: vec![("compression".into(), "zstd-3".into()), ("org:note".into(), "a=b".into())],
    };
    let bytes = begin.encode();
    golden("stream_begin", "Begin", &bytes, |page| {
        page.fixed(&StreamBegin::LAYOUT, &bytes, "")
            .line(&bytes[StreamBegin::LAYOUT.size()..], "name, props");
    });
    assert_eq!(StreamBegin::decode(&bytes), Ok(begin.clone()));
    let begin = StreamBegin { clone: true, ..begin };
    let bytes = begin.encode();
    golden("stream_begin_clone", "Begin", &bytes, |page| {
        page.fixed(&StreamBegin::LAYOUT, &bytes, "")
            .line(&bytes[StreamBegin::LAYOUT.size()..], "name, props");
    });
    assert_eq!(StreamBegin::decode(&bytes), Ok(begin.clone()));
    let begin = StreamBegin { packed: true, ..begin };
    let bytes = begin.encode();
    golden("stream_begin_packed", "Begin", &bytes, |page| {
        page.fixed(&StreamBegin::LAYOUT, &bytes, "")
            .line(&bytes[StreamBegin::LAYOUT.size()..], "name, props");
    });
    assert_eq!(StreamBegin::decode(&bytes), Ok(begin));

    let member = StreamMember {
        left_out: true,
        name: "tank/home".into(),
        snapshots: vec![(0x99aa_bbcc_ddee_ff00, "monday".into()), (7, "tuesday".into())],
    };
    let bytes = member.encode();
    golden("stream_member", "Member", &bytes, |page| {
        page.fixed(&StreamMember::LAYOUT, &bytes, "")
            .line(&bytes[StreamMember::LAYOUT.size()..], "name, snapshots");
    });
    assert_eq!(StreamMember::decode(&bytes), Ok(member));

    let notes = StreamNotes {
        properties: [("org:note".to_owned(), "a=b".to_owned())].into(),
        tags: ["keep".to_owned(), "year".to_owned()].into(),
    };
    let bytes = notes.encode();
    golden("stream_notes", "Notes", &bytes, |page| {
        page.fixed(&StreamNotes::LAYOUT, &bytes, "")
            .line(&bytes[StreamNotes::LAYOUT.size()..], "props, tags");
    });
    assert_eq!(StreamNotes::decode(&bytes), Ok(notes));

    let record = PackedRecord {
        inode: InodeId(12),
        offset: 1 << 20,
        lsize: 128 << 10,
        psize: 5000,
        compression: Compression::Lz4,
    };
    let bytes = record.encode();
    golden("packed_record", "Packed record", &bytes, |page| {
        page.fixed(&PackedRecord::LAYOUT, &bytes, "");
    });
    assert_eq!(PackedRecord::decode(&bytes), Ok(record));

    let repeat = Repeat {
        inode: InodeId(12),
        offset: 1 << 20,
        length: 256 << 10,
        snapshot: 3,
        source: InodeId(9),
        from: 3 << 20,
    };
    let bytes = repeat.encode();
    golden("repeat", "Repeat", &bytes, |page| {
        page.fixed(&Repeat::LAYOUT, &bytes, "");
    });
    assert_eq!(Repeat::decode(&bytes), Ok(repeat));

    let end = StreamEnd { guid: 0x99aa_bbcc_ddee_ff00, frames: 9000 };
    let bytes = end.encode();
    golden("stream_end", "End", &bytes, |page| {
        page.fixed(&StreamEnd::LAYOUT, &bytes, "");
    });
    assert_eq!(StreamEnd::decode(&bytes), Ok(end));

    let span =
        StreamSpan { extents: true, from: vec![0, 1], to: vec![9], keys: vec![vec![0, 1, 2], vec![3]] };
    let bytes = span.encode();
    golden("stream_span", "Span", &bytes, |page| {
        page.fixed(&StreamSpan::LAYOUT, &bytes, "")
            .line(&bytes[StreamSpan::LAYOUT.size()..], "from, to, keys");
    });
    assert_eq!(StreamSpan::decode(&bytes), Ok(span));
}

#[test]
fn raw_snapshots() {
    let stamp = Stamp { salt: [0x5a; 16], counter: 300 };
    let pointer = BlockPointer {
        hash: [7; 32],
        copies: [Address { segment: SegmentId(9), offset: 4096 }, Address::NONE, Address::NONE],
        psize: 5000,
        lsize: 16_384,
        birth: Txg(3),
        written: Txg(0),
        stamp,
        compression: Compression::Lz4,
        kind: BlockKind::Names,
        level: 1,
    };
    let roots = RawRoots {
        pool: PoolGuid(0x1122_3344_5566_7788),
        dataset: DatasetId(12),
        family: DatasetId(7),
        txg: Txg(4711),
        names: Some(pointer),
        extents: None,
        used: 1 << 20,
        data: 1 << 19,
        logical: 3 << 18,
        files: 33,
        next_inode: 44,
        hash_seed: [8; 16],
        wrapped: WrappedKey {
            key_format: KeyFormat::Raw,
            kdf: None,
            guid: 1,
            nonce: [2; 12],
            sealed: [3; 48],
        },
    };
    let bytes = roots.encode();
    golden("raw_roots", "Raw roots", &bytes, |page| {
        page.fixed(&RawRoots::LAYOUT, &bytes, "").line(&bytes[RawRoots::LAYOUT.size()..], "wrapped");
    });
    assert_eq!(RawRoots::decode(&bytes), Ok(roots));

    let block = RawBlock { hash: [9; 32], stamp, psize: 5000 };
    let bytes = block.encode();
    golden("raw_block", "Raw block", &bytes, |page| {
        page.fixed(&RawBlock::LAYOUT, &bytes, "");
    });
    assert_eq!(RawBlock::decode(&bytes), Ok(block));

    let bytes = RawGone(stamp).encode();
    golden("raw_gone", "Raw gone", &bytes, |page| {
        page.fixed(&RawGone::LAYOUT, &bytes, "");
    });
    assert_eq!(RawGone::decode(&bytes), Ok(RawGone(stamp)));

    let kept = RawKept { first: stamp, count: 77 };
    let bytes = kept.encode();
    golden("raw_kept", "Raw kept", &bytes, |page| {
        page.fixed(&RawKept::LAYOUT, &bytes, "");
    });
    assert_eq!(RawKept::decode(&bytes), Ok(kept));
}
