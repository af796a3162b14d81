//! Entries for fuzzing: each takes any bytes, must not panic, and checks what its decoder accepted:
//! that it encodes to the very bytes it came from. So no structure has two encodings, and nothing
//! is accepted that could not be written.
//!
//! `fuzz/` has a target for each entry of [`ALL`]; the test `fuzz_smoke` runs a bounded number of
//! damaged golden bytes.

use crate::node::{Node, NodeEncoder};
use crate::parity::{
    ParityHeader, ParityManifest, ParityRecord, ParityRepairMark, ParityTile, ParityTileStore,
};
use crate::raw::{RawBlock, RawGone, RawKept, RawRoots};
use crate::stream::{
    FrameHeader, PackedRecord, Repeat, StreamBegin, StreamEnd, StreamHeader, StreamMember, StreamNotes,
    StreamSpan,
};
use crate::{
    AnchorRecord, BlockPointer, Bookmark, CacheChunk, Cell, CellPlace, Checkpoint, Checksums, CommitTail,
    DatasetRow, DeadRange, HeldLog, HistoryEntry, LabelConfig, LogHeader, LogRecord, ManifestRun,
    ManifestWriter, MetaKey, OwnerRow, ParityStanding, ReceiveRow, ReceivedProperty, ReferenceRow,
    RelocationRow, ScanRow, SegmentRow, SharingRow, SnapshotRow, Uberblock, WrappedKey,
};

/// Name of a structure (as its golden files and its target begin) and the entry that takes any
/// bytes for it.
pub type Entry = (&'static str, fn(&[u8]));

/// Every entry.
pub const ALL: &[Entry] = &[
    ("anchor_record", anchor_record),
    ("block_pointer", block_pointer),
    ("bookmark", bookmark),
    ("cache_chunk", cache_chunk),
    ("cell", cell),
    ("checkpoint", checkpoint),
    ("checksums", checksums),
    ("commit_tail", commit_tail),
    ("dataset_row", dataset_row),
    ("dirent", dirent),
    ("extent", extent),
    ("file_keys", file_keys),
    ("held_log", held_log),
    ("history_entry", history_entry),
    ("inode", inode),
    ("label", label),
    ("log_group", log_group),
    ("log_record", log_record),
    ("manifest_run", manifest_run),
    ("manifest_writer", manifest_writer),
    ("meta_key", meta_key),
    ("names_head", names_head),
    ("node", node),
    ("owner_row", owner_row),
    ("packed_record", packed_record),
    ("parity_header", parity_header),
    ("parity_manifest", parity_manifest),
    ("parity_record", parity_record),
    ("parity_standing", parity_standing),
    ("parity_tile", parity_tile),
    ("parity_repair_mark", parity_repair_mark),
    ("parity_tile_store", parity_tile_store),
    ("raw_block", raw_block),
    ("raw_gone", raw_gone),
    ("raw_kept", raw_kept),
    ("raw_roots", raw_roots),
    ("receive_row", receive_row),
    ("received_property", received_property),
    ("reference_row", reference_row),
    ("relocation_row", relocation_row),
    ("repeat", repeat),
    ("scan", scan),
    ("segment_row", segment_row),
    ("sharing_row", sharing_row),
    ("snapshot_row", snapshot_row),
    ("stream_begin", stream_begin),
    ("stream_end", stream_end),
    ("stream_frame", stream_frame),
    ("stream_header", stream_header),
    ("stream_member", stream_member),
    ("stream_notes", stream_notes),
    ("stream_span", stream_span),
    ("uberblock", uberblock),
    ("wrapped_key", wrapped_key),
    ("xattr", xattr),
];

const CANONICAL: &str = "what is accepted encodes to the bytes it came from";

/// A tree node.
pub fn node(bytes: &[u8]) {
    let Ok(node) = Node::decode(bytes) else { return };
    let entry_bytes = node.entries().map(|entry| entry.key.len() + entry.value.len()).sum();
    let mut encoder = NodeEncoder::new(node.level(), node.count(), entry_bytes);
    node.entries().for_each(|entry| encoder.push(entry.key, entry.value));
    assert_eq!(encoder.finish(), bytes, "{CANONICAL}");
}

/// A block pointer, and the zeros of an absent one.
pub fn block_pointer(bytes: &[u8]) {
    let Ok(pointer) = BlockPointer::decode_option(bytes) else { return };
    let mut again = [0; BlockPointer::ENCODED_SIZE];
    BlockPointer::encode_option(pointer.as_ref(), &mut again);
    assert_eq!(again, bytes[..BlockPointer::ENCODED_SIZE], "{CANONICAL}");
}

/// An anchor record; its mac is its caller's to judge. And the slot of a register that holds one:
/// whatever checksum it carries counts as right.
pub fn anchor_record(bytes: &[u8]) {
    if let Ok(record) = AnchorRecord::decode(bytes) {
        let (_, mac) = AnchorRecord::bound_and_mac(bytes).expect("it was long enough to be read");
        assert_eq!(record.encode(|_| mac), bytes, "{CANONICAL}");
    }
    let Some(checksum) = bytes.get(1024..1056) else { return };
    let checksum: [u8; 32] = checksum.try_into().expect("32 bytes");
    if let Ok(Some(record)) = crate::anchor::decode_slot(bytes, |_| checksum) {
        assert_eq!(crate::anchor::encode_slot(record, |_| checksum), bytes, "{CANONICAL}");
    }
}

/// A scan.
pub fn scan(bytes: &[u8]) {
    let Ok(row) = ScanRow::decode(bytes) else { return };
    assert_eq!(row.encode()[..], *bytes, "{CANONICAL}");
}

/// A reference row.
pub fn reference_row(bytes: &[u8]) {
    let Ok(row) = ReferenceRow::decode(bytes) else { return };
    assert_eq!(row.encode(), bytes, "{CANONICAL}");
}

/// Sums of the reference table.
pub fn sharing_row(bytes: &[u8]) {
    let Ok(row) = SharingRow::decode(bytes) else { return };
    assert_eq!(row.encode(), bytes, "{CANONICAL}");
}

/// A snapshot row.
pub fn snapshot_row(bytes: &[u8]) {
    let Ok(row) = SnapshotRow::decode(bytes) else { return };
    assert_eq!(row.encode(), bytes, "{CANONICAL}");
}

/// A bookmark.
pub fn bookmark(bytes: &[u8]) {
    let Ok(mark) = Bookmark::decode(bytes) else { return };
    assert_eq!(mark.encode(), bytes, "{CANONICAL}");
}

/// A cell, a run of its places, and a dead range: what may stand under keys of cells.
pub fn cell(bytes: &[u8]) {
    if let Ok(cell) = Cell::decode(bytes) {
        assert_eq!(cell.encode(), bytes, "{CANONICAL}");
    }
    if let Ok(run) = CellPlace::decode_run(bytes) {
        assert_eq!(CellPlace::encode_run(&run), bytes, "{CANONICAL}");
    }
    if let Ok(dead) = DeadRange::decode(bytes) {
        assert_eq!(dead.encode(), bytes, "{CANONICAL}");
    }
}

/// Head of a chunk of a cache device.
pub fn cache_chunk(bytes: &[u8]) {
    // A check that any bytes have.
    let hash = |_: &[u8]| bytes.get(8..40).and_then(|check| check.try_into().ok()).unwrap_or([0; 32]);
    let Ok(head) = CacheChunk::decode(bytes, hash) else { return };
    assert_eq!(head.encode(hash)[..], bytes[..CacheChunk::size(head.entries.len())], "{CANONICAL}");
}

/// A check that any bytes have, in structures that carry it from byte 8 on.
fn any_check(bytes: &[u8]) -> impl Fn(&[u8]) -> [u8; 32] + Copy {
    let check = bytes.get(8..40).and_then(|check| check.try_into().ok()).unwrap_or([0; 32]);
    move |_| check
}

/// Header of a parity device.
pub fn parity_header(bytes: &[u8]) {
    let Ok(header) = ParityHeader::decode(bytes, any_check(bytes)) else { return };
    assert_eq!(header.encode(any_check(bytes))[..], bytes[..ParityHeader::ENCODED_SIZE], "{CANONICAL}");
}

/// Head of a tile's slot.
pub fn parity_tile(bytes: &[u8]) {
    let Ok(tile) = ParityTile::decode(bytes, any_check(bytes)) else { return };
    assert_eq!(tile.encode(any_check(bytes))[..], bytes[..ParityTile::ENCODED_SIZE], "{CANONICAL}");
}

/// The store that holds the tiles of a parity device.
pub fn parity_tile_store(bytes: &[u8]) {
    let Ok(store) = ParityTileStore::decode(bytes, any_check(bytes)) else { return };
    assert_eq!(store.encode(any_check(bytes))[..], bytes[..ParityTileStore::ENCODED_SIZE], "{CANONICAL}");
}

/// A recovery of a parity device that is owed.
pub fn parity_repair_mark(bytes: &[u8]) {
    let Ok(mark) = ParityRepairMark::decode(bytes, any_check(bytes)) else { return };
    assert_eq!(mark.encode(any_check(bytes))[..], bytes[..ParityRepairMark::ENCODED_SIZE], "{CANONICAL}");
}

/// Head of a record of a parity device's journal.
pub fn parity_record(bytes: &[u8]) {
    let Ok(record) = ParityRecord::decode(bytes, any_check(bytes)) else { return };
    assert_eq!(record.encode(any_check(bytes))[..], bytes[..ParityRecord::ENCODED_SIZE], "{CANONICAL}");
}

/// Manifest of a parity device.
pub fn parity_manifest(bytes: &[u8]) {
    let Ok(manifest) = ParityManifest::decode(bytes, any_check(bytes)) else { return };
    assert_eq!(manifest.encode(any_check(bytes)), bytes, "{CANONICAL}");
}

/// Standing of a parity.
pub fn parity_standing(bytes: &[u8]) {
    let Ok(standing) = ParityStanding::decode(bytes) else { return };
    assert_eq!(standing.encode()[..], *bytes, "{CANONICAL}");
}

/// A part of a segment's checksums.
pub fn checksums(bytes: &[u8]) {
    let Ok(sums) = Checksums::decode(bytes) else { return };
    assert_eq!(sums.encode()[..], *bytes, "{CANONICAL}");
}

/// A checkpoint.
pub fn checkpoint(bytes: &[u8]) {
    let Ok(checkpoint) = Checkpoint::decode(bytes) else { return };
    assert_eq!(checkpoint.encode()[..], *bytes, "{CANONICAL}");
}

/// A held log.
pub fn held_log(bytes: &[u8]) {
    let Ok(held) = HeldLog::decode(bytes) else { return };
    assert_eq!(held.encode()[..], *bytes, "{CANONICAL}");
}

/// The header of a log group.
pub fn log_group(bytes: &[u8]) {
    let Ok((header, hash)) = LogHeader::decode(bytes) else { return };
    assert_eq!(header.encode(|_| hash), bytes[..LogHeader::SIZE], "{CANONICAL}");
}

/// Records of a log group.
pub fn log_record(bytes: &[u8]) {
    let (mut at, mut again) = (0, Vec::new());
    while let Ok((record, taken)) = LogRecord::decode(&bytes[at..]) {
        record.encode(&mut again);
        at += taken;
    }
    assert_eq!(again, bytes[..at], "{CANONICAL}");
}

/// A commit tail.
pub fn commit_tail(bytes: &[u8]) {
    let Ok(tail) = CommitTail::decode(bytes) else { return };
    assert_eq!(tail.encode(), bytes, "{CANONICAL}");
    assert!(bytes.len() <= CommitTail::encoded_size_max(tail.rows.len(), tail.runs.len()));
}

/// A dataset row.
pub fn dataset_row(bytes: &[u8]) {
    let Ok(row) = DatasetRow::decode(bytes) else { return };
    assert_eq!(row.encode(), bytes, "{CANONICAL}");
}

/// A history entry.
pub fn history_entry(bytes: &[u8]) {
    let Ok(entry) = HistoryEntry::decode(bytes) else { return };
    assert_eq!(entry.encode(), bytes, "{CANONICAL}");
}

/// A label's configuration. Any checksum counts as right, or no code behind the check would be
/// reached.
pub fn label(bytes: &[u8]) {
    let Some(checksum) = bytes.get(16..48) else {
        return assert!(LabelConfig::decode(bytes, |_| [0; 32]).is_err());
    };
    let checksum: [u8; 32] = checksum.try_into().expect("32 bytes");
    let Ok(config) = LabelConfig::decode(bytes, |_| checksum) else { return };
    let again = config.encode(|_| checksum).expect("what was in a label fits in one");
    assert_eq!(again, bytes[..again.len()], "{CANONICAL}");
    assert!(LabelConfig::decode(bytes, |_| checksum.map(|byte| !byte)).is_err(), "the checksum is looked at");
}

/// A key of the meta tree.
pub fn meta_key(bytes: &[u8]) {
    let Some(key) = MetaKey::decode(bytes) else { return };
    assert_eq!(key.encode(), bytes, "{CANONICAL}");
}

/// Usage of a user or group.
pub fn owner_row(bytes: &[u8]) {
    let Ok(row) = OwnerRow::decode(bytes) else { return };
    assert_eq!(row.encode()[..], *bytes, "{CANONICAL}");
}

/// A receive row.
pub fn receive_row(bytes: &[u8]) {
    let Ok(row) = ReceiveRow::decode(bytes) else { return };
    assert_eq!(row.encode(), bytes, "{CANONICAL}");
}

/// A received property.
pub fn received_property(bytes: &[u8]) {
    let Ok(row) = ReceivedProperty::decode(bytes) else { return };
    assert_eq!(row.encode(), bytes, "{CANONICAL}");
}

/// The header of a stream.
pub fn stream_header(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk() else { return };
    let Ok(header) = StreamHeader::decode(bytes) else { return };
    assert_eq!(header.encode(), *bytes, "{CANONICAL}");
}

/// The header of a frame of a stream.
pub fn stream_frame(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk() else { return };
    let Ok(frame) = FrameHeader::decode(bytes) else { return };
    assert_eq!(frame.encode(), *bytes, "{CANONICAL}");
}

/// The begin of a snapshot in a stream.
pub fn stream_begin(bytes: &[u8]) {
    let Ok(begin) = StreamBegin::decode(bytes) else { return };
    assert_eq!(begin.encode(), bytes, "{CANONICAL}");
}

/// The end of a snapshot in a stream.
pub fn stream_end(bytes: &[u8]) {
    let Ok(end) = StreamEnd::decode(bytes) else { return };
    assert_eq!(end.encode(), bytes, "{CANONICAL}");
}

/// A file system of the tree that a stream is of.
pub fn stream_member(bytes: &[u8]) {
    let Ok(member) = StreamMember::decode(bytes) else { return };
    assert_eq!(member.encode(), bytes, "{CANONICAL}");
    assert_eq!(member.size(), bytes.len());
}

/// The notes on a snapshot in a stream.
pub fn stream_notes(bytes: &[u8]) {
    let Ok(notes) = StreamNotes::decode(bytes) else { return };
    assert_eq!(notes.encode(), bytes, "{CANONICAL}");
}

/// A span of a stream.
pub fn stream_span(bytes: &[u8]) {
    let Ok(span) = StreamSpan::decode(bytes) else { return };
    assert_eq!(span.encode(), bytes, "{CANONICAL}");
}

/// The header of a packed record.
pub fn packed_record(bytes: &[u8]) {
    let Ok(record) = PackedRecord::decode(bytes) else { return };
    assert_eq!(record.encode(), bytes[..PackedRecord::SIZE], "{CANONICAL}");
}

/// Content that a stream brought before.
pub fn repeat(bytes: &[u8]) {
    let Ok(repeat) = Repeat::decode(bytes) else { return };
    assert_eq!(repeat.encode(), bytes[..Repeat::SIZE], "{CANONICAL}");
}

/// The roots of a raw snapshot.
pub fn raw_roots(bytes: &[u8]) {
    let Ok(roots) = RawRoots::decode(bytes) else { return };
    assert_eq!(roots.encode(), bytes, "{CANONICAL}");
}

/// The header of a sealed block.
pub fn raw_block(bytes: &[u8]) {
    let Ok(block) = RawBlock::decode(bytes) else { return };
    assert_eq!(block.encode(), bytes[..RawBlock::SIZE], "{CANONICAL}");
}

/// A block that a raw snapshot has no more.
pub fn raw_gone(bytes: &[u8]) {
    let Ok(gone) = RawGone::decode(bytes) else { return };
    assert_eq!(gone.encode(), bytes[..RawGone::SIZE], "{CANONICAL}");
}

/// Blocks that a raw snapshot keeps of its base.
pub fn raw_kept(bytes: &[u8]) {
    let Ok(kept) = RawKept::decode(bytes) else { return };
    assert_eq!(kept.encode(), bytes[..RawKept::SIZE], "{CANONICAL}");
}

/// Sealed blocks that are listed.
pub fn manifest_run(bytes: &[u8]) {
    let Ok(run) = ManifestRun::decode(bytes) else { return };
    assert_eq!(run.encode(), bytes, "{CANONICAL}");
}

/// The writers of a dataset's blocks.
pub fn manifest_writer(bytes: &[u8]) {
    let Ok(writers) = ManifestWriter::decode_all(bytes) else { return };
    assert_eq!(ManifestWriter::encode_all(&writers), bytes, "{CANONICAL}");
}

/// A relocation row.
pub fn relocation_row(bytes: &[u8]) {
    let Ok(row) = RelocationRow::decode(bytes) else { return };
    assert_eq!(row.encode(), bytes, "{CANONICAL}");
}

/// A segment row.
pub fn segment_row(bytes: &[u8]) {
    let Ok(row) = SegmentRow::decode(bytes) else { return };
    assert_eq!(row.encode(), bytes, "{CANONICAL}");
}

/// An uberblock; its tag is its caller's to judge.
pub fn uberblock(bytes: &[u8]) {
    let Ok(uberblock) = Uberblock::decode(bytes) else { return };
    let (_, tag) = Uberblock::bound_and_tag(bytes).expect("it was long enough to be read");
    assert_eq!(uberblock.encode(|_| tag), bytes, "{CANONICAL}");
}

/// A wrapped key.
pub fn wrapped_key(bytes: &[u8]) {
    let Ok(key) = WrappedKey::decode(bytes) else { return };
    assert_eq!(key.encode(), bytes, "{CANONICAL}");
}

/// A directory entry.
pub fn dirent(bytes: &[u8]) {
    crate::dirent::fuzz(bytes);
}

/// An extent, or the end of a cut.
pub fn extent(bytes: &[u8]) {
    crate::extent::fuzz(bytes);
}

/// A key of a names or extents tree.
pub fn file_keys(bytes: &[u8]) {
    crate::file_keys::fuzz(bytes);
}

/// An inode.
pub fn inode(bytes: &[u8]) {
    crate::inode::fuzz(bytes);
}

/// The head of a names tree.
pub fn names_head(bytes: &[u8]) {
    crate::dirent::fuzz(bytes);
}

/// The first chunk of an extended attribute.
pub fn xattr(bytes: &[u8]) {
    crate::xattr::fuzz(bytes);
}
