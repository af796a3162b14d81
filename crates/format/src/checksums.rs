//! Checksums of a redundant segment's chunks: they tell without a key which column is wrong.
//! FORMAT.md, "Checksums".

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, Placement};

/// Value of a part of a segment's checksums; its key in the meta tree is the segment's id and the
/// number of the part.
///
/// A part covers [`Checksums::rows_per_part`] rows. The checksums of one row follow each other by
/// column, parity included; a mirror has one for all its columns. Each is the front of the BLAKE3
/// of the chunk as it lies on the device. Rows that were not written yet have none, and segments of
/// the pool's own metadata and of the intent log have no parts at all.
///
/// | off | len | field        | meaning                          |
/// |-----|-----|--------------|----------------------------------|
/// |   0 |   1 | kind         | 1: 16 bytes of BLAKE3            |
/// |   1 |   7 | reserved     | zero                             |
/// |   8 |     | checksum ... | a checksum (16 bytes), any times |
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Checksums {
    /// Checksums, row by row.
    pub sums: Vec<[u8; Checksums::SIZE]>,
}

impl Checksums {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new("checksums", &[("kind", 0, 1), ("reserved", 1, 7)], &["checksum"]);
    /// Bytes of one.
    pub const SIZE: usize = 16;
    /// Most checksums of a part.
    pub const PER_PART_MAX: usize = 128;

    /// Checksums of a row.
    #[must_use]
    pub fn per_row(place: &Placement) -> usize {
        match place {
            Placement::Plain(_) | Placement::Mirror(_) => 1,
            Placement::Raidz { columns, .. } => columns.len(),
        }
    }

    /// Rows that a part covers.
    #[must_use]
    pub fn rows_per_part(place: &Placement) -> usize {
        Self::PER_PART_MAX / Self::per_row(place)
    }

    /// The bytes of a part.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.sums.len() <= Self::PER_PART_MAX);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u8("kind", 1).reserved().tail("checksum", self.sums.as_flattened()).finish()
    }

    /// Reads a part.
    pub fn decode(bytes: &[u8]) -> Result<Checksums, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let kind = from.u8("kind");
        if kind != 1 {
            return Err(from.refuse("kind", kind));
        }
        from.reserved()?;
        let length = from.rest().len();
        if !length.is_multiple_of(Self::SIZE) || length > Self::PER_PART_MAX * Self::SIZE {
            return Err(from.refuse("checksum", length as u64));
        }
        let bytes = from.tail("checksum", length)?;
        from.finish()?;
        let sums = bytes.chunks_exact(Self::SIZE).map(|sum| sum.try_into().expect("of that size"));
        Ok(Checksums { sums: sums.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_back_and_cut_ones_refused() {
        let part = Checksums { sums: (0..Checksums::PER_PART_MAX as u8).map(|n| [n; 16]).collect() };
        let bytes = part.encode();
        assert_eq!(Checksums::decode(&bytes), Ok(part));
        assert_eq!(Checksums::decode(&Checksums::default().encode()), Ok(Checksums::default()));
        for end in [0, 7, 9, bytes.len() - 1] {
            assert!(Checksums::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in [0, 1] {
            let mut bad = bytes.clone();
            bad[at] = 2;
            assert!(Checksums::decode(&bad).is_err(), "byte {at}");
        }
        let long = [bytes, vec![0; 16]].concat();
        assert!(Checksums::decode(&long).is_err());
    }

    #[test]
    fn the_widest_row_fits_a_part() {
        let columns = vec![None; crate::SegmentRow::COLUMNS_MAX];
        let place = Placement::Raidz { parity: 3, chunk_shift: 12, columns: columns.into() };
        assert_eq!(Checksums::rows_per_part(&place), 4);
        assert_eq!(Checksums::rows_per_part(&Placement::Mirror(vec![None; 3].into())), 128);
    }
}
