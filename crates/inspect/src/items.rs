//! Items of the three kinds of trees, as records.

use steadfast_format::dirent::{Dirent, NamesHead};
use steadfast_format::extent::{Extent, decode_cut};
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::inode::InodeRecord;
use steadfast_format::xattr::XattrStart;
use steadfast_format::{
    BlockKind, BlockPointer, Bookmark, Cell, CellPlace, Checkpoint, Checksums, Column, DatasetRow, DeadRange,
    DecodeError, HeldLog, HistoryEntry, ManifestRun, ManifestWriter, MetaKey, OwnerKind, OwnerRow,
    ParityStanding, Placement, ReceiveRow, ReceivedProperty, ReferenceRow, RelocationRow, ScanRow,
    SegmentRow, SharingRow, SnapshotRow,
};

use crate::Record;
use crate::record::{hex, text};

/// An item of a tree of that kind.
pub(crate) fn record(kind: BlockKind, key: &[u8], value: &[u8]) -> Record {
    let decoded = match kind {
        BlockKind::Names => NamesKey::decode(key).and_then(|key| names_value(&key, value)),
        BlockKind::Extents => ExtentsKey::decode(key).and_then(|key| extents_value(&key, value)),
        _ => meta_value(key, value),
    };
    decoded.unwrap_or_else(|error| {
        let record = Record::new("malformed").with("key", hex(key)).with("value", hex(value));
        record.with("reason", error.to_string())
    })
}

/// A pointer as one word: places, sizes, birth, how it is stored, and the beginning of its hash.
pub(crate) fn pointer(pointer: &BlockPointer) -> String {
    let copies = pointer.copies[..pointer.copy_count()].iter();
    let copies: Vec<String> = copies.map(|a| format!("{}:{}", a.segment, a.offset)).collect();
    let (psize, lsize, birth, level) = (pointer.psize, pointer.lsize, pointer.birth, pointer.level);
    let sealed = if pointer.is_sealed() { "sealed" } else { "open" };
    let (kind, compression) = (format!("{:?}", pointer.kind), format!("{:?}", pointer.compression));
    let words = format!("{kind}/{compression}/{sealed}").to_lowercase();
    let hash = hex(&pointer.hash[..8]);
    let written = match pointer.written.0 {
        0 => String::new(),
        written => format!(" written:{written}"),
    };
    format!(
        "{} psize:{psize} lsize:{lsize} birth:{birth}{written} level:{level} {words} {hash}",
        copies.join("+")
    )
}

/// Where a segment lies: device and slot of each column, `-` for one that is missing; of redundant
/// segments what they are before.
pub(crate) fn place(place: &Placement) -> String {
    let column = |column: Option<Column>| match column {
        Some(Column { device, slot }) => format!("{device}:{slot}"),
        None => "-".to_owned(),
    };
    let columns: Vec<String> = place.columns().map(column).collect();
    let columns = columns.join(",");
    match place {
        Placement::Plain(_) => columns,
        Placement::Mirror(_) => format!("mirror {columns}"),
        Placement::Raidz { parity, .. } => format!("raidz{parity} {columns}"),
    }
}

/// A segment row.
pub(crate) fn segment_row(record: Record, row: &SegmentRow) -> Record {
    let places = place(&row.place);
    let dead: u32 = row.dead.iter().flatten().map(|byte| byte.count_ones()).sum();
    let record = record.with("class", row.class).with("owner", row.owner.0).with("place", places);
    record.with("filled", row.filled).with("dead_units", dead)
}

/// A relocation row.
pub(crate) fn relocation_row(record: Record, row: &RelocationRow) -> Record {
    record.with("to_segment", row.segment.0).with("to_unit", row.unit).with("units", row.units)
}

fn meta_value(key: &[u8], value: &[u8]) -> Result<Record, DecodeError> {
    let kind = key.first().copied().unwrap_or(0);
    let refused = DecodeError::Field { structure: "meta_key", field: "kind", value: kind.into() };
    Ok(match MetaKey::decode(key).ok_or(refused)? {
        MetaKey::PoolProperty(name) => Record::new("property").with("name", name).with("value", text(value)),
        MetaKey::DatasetProperty(id, name) => {
            Record::new("property").with("dataset", id.0).with("name", name).with("value", text(value))
        }
        MetaKey::Segment(id) => {
            segment_row(Record::new("segment").with("id", id.0), &SegmentRow::decode(value)?)
        }
        MetaKey::Relocation(id, unit) => {
            let record = Record::new("relocation").with("segment", id.0).with("unit", unit);
            relocation_row(record, &RelocationRow::decode(value)?)
        }
        MetaKey::History(number) => {
            let entry = HistoryEntry::decode(value)?;
            let record = Record::new("history").with("number", number).with("time_ns", entry.time_ns);
            let record =
                record.with("txg", entry.txg.0).with("uid", entry.uid).with("internal", entry.internal);
            record.with("host", entry.host).with("text", entry.text)
        }
        key @ (MetaKey::Scan | MetaKey::Move) => {
            let scan = ScanRow::decode(value)?;
            let record = Record::new(if key == MetaKey::Scan { "scan" } else { "move" })
                .with("kind", format!("{:?}", scan.kind).to_lowercase());
            let record = record.with("state", format!("{:?}", scan.state).to_lowercase());
            record.with("next", scan.next.0).with("until", scan.until.0).with("repaired", scan.repaired)
        }
        MetaKey::Checksums(id, part) => {
            let sums = Checksums::decode(value)?.sums;
            Record::new("checksums").with("segment", id.0).with("part", part).with("count", sums.len())
        }
        MetaKey::Snapshot(id, txg) => {
            let row = SnapshotRow::decode(value)?;
            Record::new("snapshot")
                .with("dataset", id.0)
                .with("txg", txg.0)
                .with("number", row.number.0)
                .with("name", row.name)
                .with("guid", row.guid)
                .with("used", row.used)
                .with("logical", row.logical)
                .with("deferred", row.deferred)
                .with_some("names", row.names.as_ref().map(pointer))
                .with_some("extents", row.extents.as_ref().map(pointer))
        }
        MetaKey::Cell(id, cell) => {
            let sum = Cell::decode(value)?;
            let record = Record::new("cell").with("dataset", id.0).with("left", cell.left.0);
            record.with("born", cell.born.0).with("places", sum.places).with("bytes", sum.bytes)
        }
        MetaKey::CellRun(id, cell, number) => {
            let run = CellPlace::decode_run(value)?;
            let record = Record::new("cell_run").with("dataset", id.0).with("left", cell.left.0);
            let record = record.with("born", cell.born.0).with("number", number).with("places", run.len());
            let places = run.iter().map(|p| format!("{}:{}", p.address.segment, p.address.offset));
            record.with("addresses", places.collect::<Vec<_>>().join("+"))
        }
        MetaKey::DeadRange(id, after) => {
            let range = DeadRange::decode(value)?;
            let record = Record::new("dead_range").with("dataset", id.0).with("after", after.0);
            record.with("before", range.before.0)
        }
        MetaKey::Hold(number, tag) => {
            let refused = DecodeError::Field { structure: "hold", field: "time", value: value.len() as u64 };
            let time = u64::from_le_bytes(value.try_into().map_err(|_| refused)?);
            Record::new("hold").with("snapshot", number.0).with("tag", tag).with("time_ns", time)
        }
        MetaKey::Manifest(at) => {
            let run = ManifestRun::decode(value)?;
            let record = Record::new("manifest").with("segment", at.segment.0).with("offset", at.offset);
            let record = record.with("dataset", run.dataset.0).with("birth", run.birth.0);
            let blocks = run.entries.iter().map(|entry| format!("{}+{}", entry.offset, entry.psize));
            record.with("blocks", run.entries.len()).with("places", blocks.collect::<Vec<_>>().join(" "))
        }
        MetaKey::ManifestBirth(id, txg, segment) => {
            empty("manifest_birth", value)?;
            let record = Record::new("manifest_birth").with("dataset", id.0).with("txg", txg.0);
            record.with("segment", segment.0)
        }
        MetaKey::ManifestWriters(id) => {
            let writers = ManifestWriter::decode_all(value)?;
            let writers = writers.iter().map(|writer| format!("{} from {}", writer.dataset, writer.after));
            let record = Record::new("manifest_writers").with("dataset", id.0);
            record.with("writers", writers.collect::<Vec<_>>().join(", "))
        }
        MetaKey::ManifestReference(at, txg, id) => {
            empty("manifest_reference", value)?;
            let record = Record::new("manifest_reference").with("segment", at.segment.0);
            record.with("offset", at.offset).with("txg", txg.0).with("dataset", id.0)
        }
        MetaKey::Bookmark(id, name) => {
            let mark = Bookmark::decode(value)?;
            let record = Record::new("bookmark").with("dataset", id.0).with("name", name);
            record.with("guid", mark.guid).with("txg", mark.txg.0)
        }
        MetaKey::Receive(id) => {
            let row = ReceiveRow::decode(value)?;
            let record = Record::new("receive").with("dataset", id.0).with("target", row.target.0);
            let record = record.with("name", row.name).with("guid", row.guid).with("kept", row.kept);
            let record = record.with_some("base_txg", row.base.map(|(txg, _)| txg.0));
            record.with("inode", row.position.0.0).with("offset", row.position.1)
        }
        MetaKey::ReceivedProperty(id, name) => {
            let row = ReceivedProperty::decode(value)?;
            let record = Record::new("received_property").with("dataset", id.0).with("name", name);
            record.with_some("value", row.value).with("inherited", row.inherited)
        }
        MetaKey::Reference(at) => {
            let row = ReferenceRow::decode(value)?;
            let record = Record::new("reference").with("segment", at.segment.0).with("offset", at.offset);
            let record = record.with("more", row.more).with("owner", row.owner.0);
            let record = record.with("psize", row.psize).with("lsize", row.lsize);
            let content = row.content.as_ref();
            record
                .with_some("digest", content.map(|content| hex(&content.digest[..8])))
                .with_some("written", content.map(|content| content.written.0))
                .with_some("domain", content.map(|content| content.domain.0))
        }
        MetaKey::Sharing => {
            let sums = SharingRow::decode(value)?;
            let record = Record::new("sharing").with("shared", sums.shared);
            let record = record.with("shared_bytes", sums.shared_bytes).with("saved_bytes", sums.saved_bytes);
            let (mut known, mut references) = (0u64, 0u64);
            for class in &sums.classes {
                known = known.saturating_add(class.blocks);
                references = references.saturating_add(class.ref_blocks);
            }
            record.with("known", known).with("references", references)
        }
        MetaKey::Checkpoint => {
            let root = Checkpoint::decode(value)?.root;
            Record::new("checkpoint").with("txg", root.txg.0).with("time_ns", root.time_ns)
        }
        MetaKey::Parity => {
            let standing = ParityStanding::decode(value)?;
            Record::new("parity")
                .with("generation", standing.generation)
                .with("position", standing.position)
                .with("audited_ns", standing.audited_ns)
                .with("samples", standing.samples)
                .with("failed", standing.failed)
        }
        MetaKey::HeldLog(id) => {
            let held = HeldLog::decode(value)?;
            Record::new("held_log").with("dataset", id.0).with("base", held.base.0).with("end", held.end)
        }
        MetaKey::Dataset(_) => {
            let row = DatasetRow::decode(value)?;
            let encryption = row.encryption.as_ref();
            Record::new("dataset")
                .with("id", row.id.0)
                .with("parent", row.parent.0)
                .with("name", row.name)
                .with("created_txg", row.created_txg.0)
                .with("used", row.used)
                .with("data", row.data)
                .with("logical", row.logical)
                .with("files", row.files)
                .with("next_inode", row.next_inode)
                .with("destroying", row.destroying)
                .with("volume", row.volume)
                .with("kept", row.lineage.kept)
                .with_some("family", Some(row.lineage.family.0).filter(|family| *family != 0))
                .with("shared", row.lineage.shared)
                .with_some("origin", Some(row.lineage.origin.0).filter(|origin| *origin != 0))
                .with_some("encryption_root", encryption.map(|e| e.root.0))
                .with_some("keyformat", encryption.map(|e| e.wrapped.key_format.name()))
                .with_some("names", row.names.as_ref().map(pointer))
                .with_some("extents", row.extents.as_ref().map(pointer))
        }
    })
}

/// The value of an item of a names tree.
pub(crate) fn names_value(key: &NamesKey, value: &[u8]) -> Result<Record, DecodeError> {
    Ok(match key {
        NamesKey::Head => {
            let head = NamesHead::decode(value)?;
            Record::new("head").with("next_inode", head.next_inode.0).with("inodes", head.inodes)
        }
        NamesKey::Orphan(inode) => {
            if !value.is_empty() {
                return Err(DecodeError::Trailing { structure: "orphan", extra: value.len() });
            }
            Record::new("orphan").with("inode", inode.0)
        }
        NamesKey::Inode(inode) => {
            let record = InodeRecord::decode(value)?;
            Record::new("inode")
                .with("inode", inode.0)
                .with("mode", format!("{:o}", record.mode))
                .with("nlink", record.nlink)
                .with("uid", record.uid)
                .with("gid", record.gid)
                .with("size", record.size)
                .with("parent", record.parent.0)
                .with("generation", record.generation)
                .with("record_shift", record.record_shift)
                .with("flags", record.flags)
                .with("mtime", format!("{}.{:09}", record.mtime.seconds, record.mtime.nanos))
                .with("ctime", format!("{}.{:09}", record.ctime.seconds, record.ctime.nanos))
        }
        NamesKey::Entry { directory, cookie } => {
            let entry = Dirent::decode(value)?;
            let record = Record::new("entry").with("directory", directory.0).with("cookie", *cookie);
            record.with("inode", entry.inode.0).with("kind", entry.kind).with("name", text(&entry.name))
        }
        NamesKey::Xattr { inode, name, chunk } => {
            let record =
                Record::new("xattr").with("inode", inode.0).with("name", text(name)).with("chunk", *chunk);
            let (total, bytes) = match chunk {
                0 => {
                    let start = XattrStart::decode(value)?;
                    (Some(start.total), start.bytes)
                }
                _ => (None, value.to_vec()),
            };
            record.with_some("total", total).with("value", hex(&bytes))
        }
        NamesKey::Target { inode, chunk } => {
            let record = Record::new("target").with("inode", inode.0).with("chunk", *chunk);
            record.with("target", text(value))
        }
    })
}

fn extents_value(key: &ExtentsKey, value: &[u8]) -> Result<Record, DecodeError> {
    Ok(match key {
        ExtentsKey::Owners => Record::new("owners"),
        ExtentsKey::Owner(owner) => {
            let kind = match owner.kind {
                OwnerKind::User => "user",
                OwnerKind::Group => "group",
            };
            let row = OwnerRow::decode(value)?;
            Record::new(kind).with("id", owner.id).with("bytes", row.bytes).with("objects", row.objects)
        }
        ExtentsKey::Cut { inode, start } => {
            let record = Record::new("cut").with("inode", inode.0).with("start", *start);
            record.with("end", decode_cut(*start, value)?)
        }
        ExtentsKey::Extent { inode, offset } => {
            let extent = Extent::decode(value)?;
            let record = Record::new("extent").with("inode", inode.0).with("offset", *offset);
            let record = record.with("length", extent.length());
            match extent {
                Extent::Block { pointer: block, .. } => record.with("block", pointer(&block)),
                Extent::Inline(bytes) => record.with("inline", hex(&bytes)),
                Extent::Overlaid(overlaid) => {
                    let base = overlaid.base.as_ref();
                    let record = record.with_some("base_length", base.map(|base| base.length));
                    let record = record.with_some("base", base.map(|base| pointer(&base.pointer)));
                    overlaid.overlays.iter().fold(record, |record, overlay| {
                        let ranges: Vec<String> = overlay
                            .ranges
                            .iter()
                            .map(|range| format!("{}-{}", range.start, range.end))
                            .collect();
                        let block = overlay.block.as_ref().map_or_else(|| "zeros".to_owned(), pointer);
                        record.with("overlay", format!("{} {block}", ranges.join(",")))
                    })
                }
            }
        }
    })
}

/// Refuses a value where the key says all.
fn empty(structure: &'static str, value: &[u8]) -> Result<(), DecodeError> {
    match value.len() {
        0 => Ok(()),
        extra => Err(DecodeError::Trailing { structure, extra }),
    }
}
