//! Snapshot row: the roots a dataset had at a commit. FORMAT.md, "Snapshot row".

use crate::layout::{Decoder, Encoder, Layout};
use crate::{BlockPointer, DatasetId, DatasetRow, DecodeError};

/// Value of a snapshot row; its key in the meta tree is the dataset and the txg whose roots it
/// keeps.
///
/// | off | len | field      | meaning                                                  |
/// |-----|-----|------------|----------------------------------------------------------|
/// |   0 |   8 | number     | the snapshot's own, from the numbers of datasets         |
/// |   8 |   8 | guid       | random, not 0: names it wherever it goes                 |
/// |  16 |   8 | created_ns | wall time of its creation                                |
/// |  24 | 112 | names      | root of the names tree; zero if empty                    |
/// | 136 | 112 | extents    | root of the extents tree; zero if empty                  |
/// | 248 |   8 | used       | bytes that its trees and content occupy on devices       |
/// | 256 |   8 | data       | of these, bytes of file content                          |
/// | 264 |   8 | logical    | bytes of its data before compression                     |
/// | 272 |   8 | files      | inodes                                                   |
/// | 280 |   8 | next_inode | number of the inode that would have been next            |
/// | 288 |   4 | flags      | bit 0: goes when nothing keeps it any more               |
/// | 292 |   2 | name_len   | length of the name, at least 1                           |
/// | 294 |  26 | reserved   | zero                                                     |
/// | 320 |     | name       | what follows the `@`, UTF-8                              |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SnapshotRow {
    /// Its own number: properties are kept under it.
    pub number: DatasetId,
    /// Names it wherever it goes.
    pub guid: u64,
    /// Wall time of its creation.
    pub created_ns: u64,
    /// Root of the names tree.
    pub names: Option<BlockPointer>,
    /// Root of the extents tree.
    pub extents: Option<BlockPointer>,
    /// Bytes that it refers to, all copies.
    pub used: u64,
    /// Of these, bytes of file content.
    pub data: u64,
    /// Bytes of its data before compression.
    pub logical: u64,
    /// Inodes.
    pub files: u64,
    /// Number of the inode that would have been next.
    pub next_inode: u64,
    /// It goes when nothing keeps it any more.
    pub deferred: bool,
    /// Name behind the `@`.
    pub name: String,
}

impl SnapshotRow {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "snapshot_row",
        &[
            ("number", 0, 8),
            ("guid", 8, 8),
            ("created_ns", 16, 8),
            ("names", 24, 112),
            ("extents", 136, 112),
            ("used", 248, 8),
            ("data", 256, 8),
            ("logical", 264, 8),
            ("files", 272, 8),
            ("next_inode", 280, 8),
            ("flags", 288, 4),
            ("name_len", 292, 2),
            ("reserved", 294, 26),
        ],
        &["name"],
    );
    /// Longest name.
    pub const NAME_MAX: usize = 255;

    /// The row with figures that can be added up, whatever it said.
    #[must_use]
    pub fn bounded(mut self) -> SnapshotRow {
        let figures = [&mut self.used, &mut self.data, &mut self.logical, &mut self.files];
        figures.into_iter().for_each(|figure| *figure = (*figure).min(DatasetRow::FIGURE_MAX));
        self
    }

    /// The row's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.number.0 != 0 && self.guid != 0);
        assert!((1..=Self::NAME_MAX).contains(&self.name.len()));
        let mut pointer = [0; BlockPointer::ENCODED_SIZE];
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("number", self.number.0).u64("guid", self.guid).u64("created_ns", self.created_ns);
        BlockPointer::encode_option(self.names.as_ref(), &mut pointer);
        out.bytes("names", &pointer);
        BlockPointer::encode_option(self.extents.as_ref(), &mut pointer);
        out.bytes("extents", &pointer);
        out.u64("used", self.used).u64("data", self.data).u64("logical", self.logical);
        out.u64("files", self.files).u64("next_inode", self.next_inode);
        out.u32("flags", u32::from(self.deferred));
        out.u16("name_len", u16::try_from(self.name.len()).expect("bounded")).reserved();
        out.tail("name", self.name.as_bytes()).finish()
    }

    /// Reads a row.
    pub fn decode(bytes: &[u8]) -> Result<SnapshotRow, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let (number, guid) = (DatasetId(from.u64("number")), from.u64("guid"));
        if number.0 == 0 {
            return Err(from.refuse("number", 0u64));
        }
        if guid == 0 {
            return Err(from.refuse("guid", 0u64));
        }
        let created_ns = from.u64("created_ns");
        let names = BlockPointer::decode_option(from.bytes("names", 112))?;
        let extents = BlockPointer::decode_option(from.bytes("extents", 112))?;
        let (used, data, logical) = (from.u64("used"), from.u64("data"), from.u64("logical"));
        let (files, next_inode) = (from.u64("files"), from.u64("next_inode"));
        let flags = from.u32("flags");
        if flags > 1 {
            return Err(from.refuse("flags", flags));
        }
        let name_len = usize::from(from.u16("name_len"));
        if !(1..=Self::NAME_MAX).contains(&name_len) {
            return Err(from.refuse("name_len", name_len as u64));
        }
        from.reserved()?;
        let name = from.tail_text("name", name_len)?;
        from.finish()?;
        let deferred = flags == 1;
        Ok(SnapshotRow {
            number,
            guid,
            created_ns,
            names,
            extents,
            used,
            data,
            logical,
            files,
            next_inode,
            deferred,
            name,
        })
    }
}

/// Value of a bookmark; its key in the meta tree is the dataset and the bookmark's name. It keeps
/// no block: it says from where on a stream could go on.
///
/// | off | len | field      | meaning                                            |
/// |-----|-----|------------|----------------------------------------------------|
/// |   0 |   8 | guid       | that of the snapshot it was made of                |
/// |   8 |   8 | txg        | txg of that snapshot                               |
/// |  16 |   8 | created_ns | wall time of that snapshot's creation              |
/// |  24 |   8 | reserved   | zero                                               |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bookmark {
    /// Of the snapshot.
    pub guid: u64,
    /// Of the snapshot.
    pub txg: crate::Txg,
    /// Of the snapshot.
    pub created_ns: u64,
}

impl Bookmark {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "bookmark",
        &[("guid", 0, 8), ("txg", 8, 8), ("created_ns", 16, 8), ("reserved", 24, 8)],
        &[],
    );

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.guid != 0 && self.txg.0 != 0);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("guid", self.guid).u64("txg", self.txg.0).u64("created_ns", self.created_ns);
        out.reserved().finish()
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<Bookmark, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let (guid, txg) = (from.u64("guid"), crate::Txg(from.u64("txg")));
        let created_ns = from.u64("created_ns");
        if guid == 0 {
            return Err(from.refuse("guid", 0u64));
        }
        if txg.0 == 0 {
            return Err(from.refuse("txg", 0u64));
        }
        from.reserved()?;
        from.finish()?;
        Ok(Bookmark { guid, txg, created_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Txg;

    fn row() -> SnapshotRow {
        SnapshotRow {
            number: DatasetId(9),
            guid: 77,
            created_ns: 1,
            names: None,
            extents: None,
            used: 2,
            data: 3,
            logical: 4,
            files: 5,
            next_inode: 6,
            deferred: true,
            name: "monday".into(),
        }
    }

    #[test]
    fn rows_and_bookmarks_are_read_back_and_cut_ones_are_not() {
        let bytes = row().encode();
        assert_eq!(SnapshotRow::decode(&bytes), Ok(row()));
        for end in 0..bytes.len() {
            assert!(SnapshotRow::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        let mark = Bookmark { guid: 7, txg: Txg(8), created_ns: 9 };
        let bytes = mark.encode();
        assert_eq!(Bookmark::decode(&bytes), Ok(mark));
        assert!(Bookmark::decode(&bytes[1..]).is_err());
    }

    #[test]
    fn a_snapshot_without_name_number_or_guid_is_refused() {
        for (at, length) in [(0, 8), (8, 8), (292, 2)] {
            let mut bytes = row().encode();
            bytes[at..at + length].fill(0);
            assert!(SnapshotRow::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
