//! Receive row: a snapshot that is being received into a hidden dataset. FORMAT.md, "Receive row".

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DatasetId, DecodeError, InodeId, Txg};

/// Value of a receive row; its key in the meta tree is the hidden dataset's.
///
/// | off | len | field      | meaning |
/// |-----|-----|------------|---|
/// |   0 |   8 | target     | dataset that has the base, and gets the snapshot; 0: none |
/// |   8 |   8 | base_txg   | txg of the target's snapshot that it builds upon; 0 if none |
/// |  16 |   8 | base       | guid of that snapshot; 0 if none |
/// |  24 |   8 | guid       | of the snapshot that is received, not 0 |
/// |  32 |   8 | inode      | content before (inode, offset) is here; 0: none is |
/// |  40 |   8 | offset     | see above |
/// |  48 |   4 | flags      | bit 0: kept when the stream breaks off; bit 1: becomes a clone; bit 2: came packed |
/// |  52 |   2 | name_len   | length of the name, 2 to 511 |
/// |  54 |  42 | reserved   | zero |
/// |  96 |     | name       | last component of a new dataset, `@`, the snapshot's name, UTF-8 |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReceiveRow {
    /// Dataset that has the base, and gets the snapshot, unless the hidden one becomes a clone; 0:
    /// the hidden one becomes a dataset.
    pub target: DatasetId,
    /// Txg and guid of the target's snapshot that it builds upon.
    pub base: Option<(Txg, u64)>,
    /// Of the snapshot that is received.
    pub guid: u64,
    /// Content before this inode and offset is here.
    pub position: (InodeId, u64),
    /// It is kept when the stream breaks off.
    pub kept: bool,
    /// The hidden dataset becomes a clone of its base.
    pub clone: bool,
    /// Its content began to come in packed records.
    pub packed: bool,
    /// Last component of a dataset that is new, then `@` and the snapshot's name.
    pub name: String,
}

impl ReceiveRow {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "receive_row",
        &[
            ("target", 0, 8),
            ("base_txg", 8, 8),
            ("base", 16, 8),
            ("guid", 24, 8),
            ("inode", 32, 8),
            ("offset", 40, 8),
            ("flags", 48, 4),
            ("name_len", 52, 2),
            ("reserved", 54, 42),
        ],
        &["name"],
    );

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(!self.clone || self.base.is_some());
        assert!(self.guid != 0 && (self.target.0 != 0) == self.base.is_some());
        let (txg, base) = self.base.unwrap_or((Txg(0), 0));
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("target", self.target.0).u64("base_txg", txg.0).u64("base", base);
        out.u64("guid", self.guid).u64("inode", self.position.0.0).u64("offset", self.position.1);
        let flags = u32::from(self.kept) | u32::from(self.clone) << 1 | u32::from(self.packed) << 2;
        out.u32("flags", flags);
        out.u16("name_len", u16::try_from(self.name.len()).expect("bounded")).reserved();
        out.tail("name", self.name.as_bytes()).finish()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<ReceiveRow, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let target = DatasetId(from.u64("target"));
        let (txg, base) = (Txg(from.u64("base_txg")), from.u64("base"));
        if (txg.0 != 0) != (target.0 != 0) {
            return Err(from.refuse("base_txg", txg.0));
        }
        if (base != 0) != (target.0 != 0) {
            return Err(from.refuse("base", base));
        }
        let guid = from.u64("guid");
        if guid == 0 || guid == base {
            return Err(from.refuse("guid", guid));
        }
        let position = (InodeId(from.u64("inode")), from.u64("offset"));
        if position.0.0 >= InodeId::END {
            return Err(from.refuse("inode", position.0.0));
        }
        if position.0.0 == 0 && position.1 != 0 {
            return Err(from.refuse("offset", position.1));
        }
        let flags = from.u32("flags");
        if flags > 7 || flags & 2 != 0 && target.0 == 0 {
            return Err(from.refuse("flags", flags));
        }
        let name_len = from.u16("name_len");
        if !(2..=511).contains(&name_len) {
            return Err(from.refuse("name_len", name_len));
        }
        from.reserved()?;
        let name = from.tail_text("name", name_len.into())?;
        from.finish()?;
        let base = (base != 0).then_some((txg, base));
        let (kept, clone, packed) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        Ok(ReceiveRow { target, base, guid, position, kept, clone, packed, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_back_and_half_a_base_is_refused() {
        let row = ReceiveRow {
            target: DatasetId(3),
            base: Some((Txg(4), 5)),
            guid: 6,
            position: (InodeId(7), 8),
            kept: true,
            clone: true,
            packed: true,
            name: "home@monday".into(),
        };
        let bytes = row.encode();
        assert_eq!(ReceiveRow::decode(&bytes), Ok(row.clone()));
        for end in 0..bytes.len() {
            assert!(ReceiveRow::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in [0, 8, 16, 24, 32, 52] {
            let mut bad = bytes.clone();
            bad[at] = 0;
            assert!(ReceiveRow::decode(&bad).is_err(), "byte {at}");
        }
        let stray = ReceiveRow { target: DatasetId(0), base: None, clone: false, ..row.clone() };
        let mut bytes = stray.encode();
        bytes[48] |= 2;
        assert!(ReceiveRow::decode(&bytes).is_err(), "a clone of nothing");
        let new = ReceiveRow { target: DatasetId(0), base: None, clone: false, ..row };
        assert_eq!(ReceiveRow::decode(&new.encode()), Ok(new));
    }
}
