//! Keys of the items of the pool's meta tree. FORMAT.md, "Meta tree".
//!
//! A key is one byte that says what the item is, then big-endian numbers, so that byte order is the
//! order of numbers.
//!
//! | first byte | rest of the key                    | value                    |
//! |------------|------------------------------------|--------------------------|
//! | 0x01       | name                               | pool property, UTF-8     |
//! | 0x02       | dataset u64                        | dataset row              |
//! | 0x03       | dataset u64, name                  | dataset property, UTF-8  |
//! | 0x04       | segment u64                        | segment row              |
//! | 0x05       | segment u64, unit u32              | relocation row           |
//! | 0x06       | sequence number u64                | history entry            |
//! | 0x07       | dataset u64                        | held log                 |
//! | 0x08       | segment u64, part u32              | checksums of a part      |
//! | 0x09       |                                    | the pool's last scan     |
//! | 0x0A       |                                    | the pool's last move     |
//! | 0x0B       | dataset u64, txg u64               | snapshot row             |
//! | 0x0C       | dataset u64, txg u64, txg u64      | cell                     |
//! | 0x0D       | as a cell, number u64              | places of a cell         |
//! | 0x0E       | dataset u64, txg u64               | dead range of cells      |
//! | 0x0F       | snapshot u64, tag                  | hold: wall time u64      |
//! | 0x10       | dataset u64, name                  | bookmark                 |
//! | 0x14       | dataset u64                        | receive row              |
//! | 0x15       | dataset u64, name                  | received property        |
//! | 0x18       | segment u64, offset u32            | reference row            |
//! | 0x19       |                                    | sharing: sums of these   |
//! | 0x1A       | segment u64, offset u32            | manifest run             |
//! | 0x1B       | dataset u64, txg u64, segment u64  | nothing                  |
//! | 0x1C       | dataset u64                        | writers of a dataset     |
//! | 0x1D       | segment, offset, txg u64, dataset  | nothing                  |
//! | 0x1E       |                                    | the pool's checkpoint    |
//! | 0x1F       |                                    | standing of the parity   |

use crate::{Address, DatasetId, SegmentId, Txg};

/// First byte of pool properties.
pub const POOL_PROPERTY: u8 = 0x01;
/// First byte of dataset rows.
pub const DATASET: u8 = 0x02;
/// First byte of dataset properties.
pub const DATASET_PROPERTY: u8 = 0x03;
/// First byte of segment rows.
pub const SEGMENT: u8 = 0x04;
/// First byte of relocation rows.
pub const RELOCATION: u8 = 0x05;
/// First byte of history entries.
pub const HISTORY: u8 = 0x06;
/// First byte of held logs.
pub const HELD_LOG: u8 = 0x07;

/// First byte of the checksums of segments.
pub const CHECKSUMS: u8 = 0x08;

/// First and only byte of the key of the pool's last scan.
pub const SCAN: u8 = 0x09;

/// First and only byte of the key of the pool's last move.
pub const MOVE: u8 = 0x0A;
/// First byte of snapshot rows.
pub const SNAPSHOT: u8 = 0x0B;
/// First byte of cells.
pub const CELL: u8 = 0x0C;
/// First byte of places of cells.
pub const CELL_RUN: u8 = 0x0D;
/// First byte of dead ranges.
pub const DEAD_RANGE: u8 = 0x0E;
/// First byte of holds.
pub const HOLD: u8 = 0x0F;
/// First byte of bookmarks.
pub const BOOKMARK: u8 = 0x10;
/// First byte of receive rows.
pub const RECEIVE: u8 = 0x14;
/// First byte of received properties.
pub const RECEIVED_PROPERTY: u8 = 0x15;
/// First byte of reference rows.
pub const REFERENCE: u8 = 0x18;
/// First and only byte of the key of their sums.
pub const SHARING: u8 = 0x19;
/// First byte of manifest runs.
pub const MANIFEST: u8 = 0x1A;
/// First byte of where what was born in a txg is listed.
pub const MANIFEST_BIRTH: u8 = 0x1B;
/// First byte of keys of the writers of a dataset's blocks.
pub const MANIFEST_WRITERS: u8 = 0x1C;
/// First byte of later references to blocks that a manifest lists.
pub const MANIFEST_REFERENCE: u8 = 0x1D;
/// First and only byte of the key of the pool's checkpoint.
pub const CHECKPOINT: u8 = 0x1E;
/// First and only byte of the key of the standing of the pool's parity.
pub const PARITY: u8 = 0x1F;

/// Names a cell of a dataset.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct CellId {
    /// Txg of the youngest snapshot when its blocks were let go.
    pub left: Txg,
    /// Txg of the youngest snapshot older than their birth, or 0.
    pub born: Txg,
}

/// A decoded key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MetaKey {
    /// Property of the pool.
    PoolProperty(String),
    /// Row of a dataset.
    Dataset(DatasetId),
    /// Property set on a dataset.
    DatasetProperty(DatasetId, String),
    /// Row of a segment.
    Segment(SegmentId),
    /// Where units that are known by (segment, unit) lie now.
    Relocation(SegmentId, u32),
    /// An entry of the pool's history.
    History(u64),
    /// Groups of the intent log promised to a dataset whose key was not loaded at import.
    HeldLog(DatasetId),
    /// Checksums of the chunks of a redundant segment, part by part.
    Checksums(SegmentId, u32),
    /// The pool's last scrub or resilver.
    Scan,
    /// The last move from devices to others.
    Move,
    /// Row of a snapshot of a dataset, by the txg whose roots it keeps.
    Snapshot(DatasetId, Txg),
    /// A cell of a dataset's deadlist: its sums.
    Cell(DatasetId, CellId),
    /// Places of a cell, run by run.
    CellRun(DatasetId, CellId, u64),
    /// Cells that are being freed.
    DeadRange(DatasetId, Txg),
    /// A tag that keeps a snapshot, which is named by its number.
    Hold(DatasetId, String),
    /// Bookmark of a dataset.
    Bookmark(DatasetId, String),
    /// The receive into a hidden dataset.
    Receive(DatasetId),
    /// A property of a dataset, as a stream set it.
    ReceivedProperty(DatasetId, String),
    /// References to the block at an address, and its content.
    Reference(Address),
    /// Sums of the reference table (DDT).
    Sharing,
    /// Sealed blocks of a segment, from this address on.
    Manifest(Address),
    /// A dataset has blocks born in a txg, or references made in it, that lie in a segment.
    ManifestBirth(DatasetId, Txg, SegmentId),
    /// The writers of a dataset's blocks.
    ManifestWriters(DatasetId),
    /// A dataset referred once more, in a txg, to the block at an address.
    ManifestReference(Address, Txg, DatasetId),
    /// The pool's checkpoint.
    Checkpoint,
    /// Standing of the pool's parity.
    Parity,
}

impl MetaKey {
    /// The key's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        match self {
            MetaKey::PoolProperty(name) => {
                out.push(POOL_PROPERTY);
                out.extend_from_slice(name.as_bytes());
            }
            MetaKey::Dataset(id) => {
                out.push(DATASET);
                out.extend_from_slice(&id.0.to_be_bytes());
            }
            MetaKey::DatasetProperty(id, name) => {
                out.push(DATASET_PROPERTY);
                out.extend_from_slice(&id.0.to_be_bytes());
                out.extend_from_slice(name.as_bytes());
            }
            MetaKey::Segment(id) => {
                out.push(SEGMENT);
                out.extend_from_slice(&id.0.to_be_bytes());
            }
            MetaKey::Relocation(id, unit) => {
                out.push(RELOCATION);
                out.extend_from_slice(&id.0.to_be_bytes());
                out.extend_from_slice(&unit.to_be_bytes());
            }
            MetaKey::History(sequence) => {
                out.push(HISTORY);
                out.extend_from_slice(&sequence.to_be_bytes());
            }
            MetaKey::HeldLog(id) => {
                out.push(HELD_LOG);
                out.extend_from_slice(&id.0.to_be_bytes());
            }
            MetaKey::Receive(id) => numbers(&mut out, RECEIVE, &[id.0]),
            MetaKey::Scan => out.push(SCAN),
            MetaKey::Move => out.push(MOVE),
            MetaKey::Checkpoint => out.push(CHECKPOINT),
            MetaKey::Parity => out.push(PARITY),
            MetaKey::Reference(at) => {
                numbers(&mut out, REFERENCE, &[at.segment.0]);
                out.extend_from_slice(&at.offset.to_be_bytes());
            }
            MetaKey::Sharing => out.push(SHARING),
            MetaKey::Manifest(at) => {
                numbers(&mut out, MANIFEST, &[at.segment.0]);
                out.extend_from_slice(&at.offset.to_be_bytes());
            }
            MetaKey::ManifestBirth(id, txg, segment) => {
                numbers(&mut out, MANIFEST_BIRTH, &[id.0, txg.0, segment.0]);
            }
            MetaKey::ManifestWriters(id) => numbers(&mut out, MANIFEST_WRITERS, &[id.0]),
            MetaKey::ManifestReference(at, txg, id) => {
                numbers(&mut out, MANIFEST_REFERENCE, &[at.segment.0]);
                out.extend_from_slice(&at.offset.to_be_bytes());
                out.extend_from_slice(&txg.0.to_be_bytes());
                out.extend_from_slice(&id.0.to_be_bytes());
            }
            MetaKey::Snapshot(id, txg) => numbers(&mut out, SNAPSHOT, &[id.0, txg.0]),
            MetaKey::Cell(id, cell) => numbers(&mut out, CELL, &[id.0, cell.left.0, cell.born.0]),
            MetaKey::CellRun(id, cell, number) => {
                numbers(&mut out, CELL_RUN, &[id.0, cell.left.0, cell.born.0, *number]);
            }
            MetaKey::DeadRange(id, after) => numbers(&mut out, DEAD_RANGE, &[id.0, after.0]),
            MetaKey::Hold(id, text) | MetaKey::Bookmark(id, text) | MetaKey::ReceivedProperty(id, text) => {
                let kind = match self {
                    MetaKey::Hold(..) => HOLD,
                    MetaKey::Bookmark(..) => BOOKMARK,
                    _ => RECEIVED_PROPERTY,
                };
                numbers(&mut out, kind, &[id.0]);
                out.extend_from_slice(text.as_bytes());
            }
            MetaKey::Checksums(id, part) => {
                out.push(CHECKSUMS);
                out.extend_from_slice(&id.0.to_be_bytes());
                out.extend_from_slice(&part.to_be_bytes());
            }
        }
        out
    }

    /// Reads a key; `None` if it is not one.
    #[must_use]
    pub fn decode(key: &[u8]) -> Option<MetaKey> {
        let (&kind, rest) = key.split_first()?;
        let number = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
        let segment =
            |bytes: &[u8]| number(bytes).filter(|id| (1..SegmentId::END).contains(id)).map(SegmentId);
        let txg = |bytes: &[u8]| number(bytes).filter(|txg| *txg < Txg::END).map(Txg);
        let cell = |bytes: &[u8]| {
            let (left, born) = (txg(bytes.get(..8)?)?, txg(bytes.get(8..)?)?);
            (born < left).then_some(CellId { left, born })
        };
        let text = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).ok()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        Some(match kind {
            POOL_PROPERTY => MetaKey::PoolProperty(text(rest)?),
            DATASET => MetaKey::Dataset(DatasetId(number(rest)?)),
            DATASET_PROPERTY => {
                MetaKey::DatasetProperty(DatasetId(number(rest.get(..8)?)?), text(rest.get(8..)?)?)
            }
            SEGMENT => MetaKey::Segment(segment(rest)?),
            RELOCATION => {
                let unit = u32::from_be_bytes(rest.get(8..)?.try_into().ok()?);
                MetaKey::Relocation(segment(rest.get(..8)?)?, unit)
            }
            HISTORY => MetaKey::History(number(rest)?),
            HELD_LOG => MetaKey::HeldLog(DatasetId(number(rest)?)),
            RECEIVE => MetaKey::Receive(DatasetId(number(rest)?)),
            SCAN => rest.is_empty().then_some(MetaKey::Scan)?,
            MOVE => rest.is_empty().then_some(MetaKey::Move)?,
            CHECKPOINT => rest.is_empty().then_some(MetaKey::Checkpoint)?,
            PARITY => rest.is_empty().then_some(MetaKey::Parity)?,
            SHARING => rest.is_empty().then_some(MetaKey::Sharing)?,
            REFERENCE | MANIFEST => {
                let offset = u32::from_be_bytes(rest.get(8..)?.try_into().ok()?);
                let at = Address { segment: segment(rest.get(..8)?)?, offset };
                if kind == REFERENCE { MetaKey::Reference(at) } else { MetaKey::Manifest(at) }
            }
            MANIFEST_BIRTH => {
                let (id, txg) = (DatasetId(number(rest.get(..8)?)?), txg(rest.get(8..16)?)?);
                MetaKey::ManifestBirth(id, txg, segment(rest.get(16..)?)?)
            }
            MANIFEST_WRITERS => MetaKey::ManifestWriters(DatasetId(number(rest)?)),
            MANIFEST_REFERENCE => {
                let offset = u32::from_be_bytes(rest.get(8..12)?.try_into().ok()?);
                let at = Address { segment: segment(rest.get(..8)?)?, offset };
                let (txg, id) = (txg(rest.get(12..20)?)?, DatasetId(number(rest.get(20..)?)?));
                MetaKey::ManifestReference(at, txg, id)
            }
            CHECKSUMS => {
                let part = u32::from_be_bytes(rest.get(8..)?.try_into().ok()?);
                MetaKey::Checksums(segment(rest.get(..8)?)?, part)
            }
            SNAPSHOT | DEAD_RANGE => {
                let (id, txg) = (DatasetId(number(rest.get(..8)?)?), txg(rest.get(8..)?)?);
                if kind == SNAPSHOT { MetaKey::Snapshot(id, txg) } else { MetaKey::DeadRange(id, txg) }
            }
            CELL => MetaKey::Cell(DatasetId(number(rest.get(..8)?)?), cell(rest.get(8..)?)?),
            CELL_RUN => {
                let (id, at) = (DatasetId(number(rest.get(..8)?)?), cell(rest.get(8..24)?)?);
                MetaKey::CellRun(id, at, number(rest.get(24..)?)?)
            }
            HOLD | BOOKMARK | RECEIVED_PROPERTY => {
                let (id, name) = (DatasetId(number(rest.get(..8)?)?), text(rest.get(8..)?)?);
                match kind {
                    HOLD => MetaKey::Hold(id, name),
                    BOOKMARK => MetaKey::Bookmark(id, name),
                    _ => MetaKey::ReceivedProperty(id, name),
                }
            }
            _ => return None,
        })
    }
}

fn numbers(out: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    out.push(kind);
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read_back_and_cut_keys_are_not() {
        let keys = [
            MetaKey::PoolProperty("comment".into()),
            MetaKey::Dataset(DatasetId(7)),
            MetaKey::DatasetProperty(DatasetId(7), "compression".into()),
            MetaKey::Segment(SegmentId(1 << 40)),
            MetaKey::Relocation(SegmentId(3), 9),
            MetaKey::History(1),
            MetaKey::HeldLog(DatasetId(7)),
            MetaKey::Checksums(SegmentId(3), 9),
            MetaKey::Snapshot(DatasetId(3), Txg(9)),
            MetaKey::Cell(DatasetId(3), CellId { left: Txg(9), born: Txg(0) }),
            MetaKey::CellRun(DatasetId(3), CellId { left: Txg(9), born: Txg(8) }, 7),
            MetaKey::DeadRange(DatasetId(3), Txg(0)),
            MetaKey::Hold(DatasetId(3), "keep".into()),
            MetaKey::Bookmark(DatasetId(3), "monday".into()),
            MetaKey::Receive(DatasetId(3)),
            MetaKey::ReceivedProperty(DatasetId(3), "compression".into()),
            MetaKey::Reference(Address { segment: SegmentId(3), offset: 8192 }),
        ];
        for key in keys {
            let bytes = key.encode();
            assert_eq!(MetaKey::decode(&bytes), Some(key));
            assert_eq!(MetaKey::decode(&bytes[..1]), None);
        }
        let inverted = MetaKey::Cell(DatasetId(3), CellId { left: Txg(9), born: Txg(9) }).encode();
        assert_eq!(MetaKey::decode(&inverted), None, "a cell holds what was born before it was let go");
        for key in [
            MetaKey::Snapshot(DatasetId(3), Txg(Txg::END)),
            MetaKey::Cell(DatasetId(3), CellId { left: Txg(u64::MAX), born: Txg(0) }),
            MetaKey::Segment(SegmentId(u64::MAX)),
            MetaKey::Reference(Address { segment: SegmentId(0), offset: 8192 }),
        ] {
            assert_eq!(MetaKey::decode(&key.encode()), None, "what counts on from it would overflow");
        }
        assert_eq!(MetaKey::decode(&[]), None);
        assert_eq!(MetaKey::decode(&[0x77, 1]), None);
    }
}
