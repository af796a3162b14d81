//! Extended attributes and link targets, in chunks. FORMAT.md, "Extended attribute".
//!
//! A value may be 64 KiB and a leaf value of the tree 3 KiB, so values are cut in chunks. The first
//! chunk of an attribute says how long the whole is; chunks of a link's target are bare bytes (the
//! inode knows the size).

use crate::DecodeError;
use crate::layout::{Decoder, Encoder, Layout};

/// Bytes of value in one chunk.
pub const CHUNK: usize = 2048;
/// Longest value of an attribute.
pub const VALUE_MAX: usize = 65_536;

/// First chunk of an extended attribute; the others are bare bytes.
///
/// | off | len | field    | meaning                              |
/// |-----|-----|----------|--------------------------------------|
/// |   0 |   4 | total    | bytes of the whole value             |
/// |   4 |   4 | reserved | zero                                 |
/// |   8 |   n | bytes    | the first 2,048 of them, or all      |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct XattrStart {
    /// Bytes of the whole value.
    pub total: u32,
    /// The first bytes.
    pub bytes: Vec<u8>,
}

/// Layout of [`XattrStart`].
pub static LAYOUT: Layout = Layout::new("xattr", &[("total", 0, 4), ("reserved", 4, 4)], &["bytes"]);

impl XattrStart {
    /// The chunk's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let total = usize::try_from(self.total).expect("fits");
        assert!(total <= VALUE_MAX && self.bytes.len() == total.min(CHUNK));
        Encoder::new(&LAYOUT).u32("total", self.total).reserved().tail("bytes", &self.bytes).finish()
    }

    /// Reads a first chunk.
    pub fn decode(bytes: &[u8]) -> Result<XattrStart, DecodeError> {
        let mut from = Decoder::new(&LAYOUT, bytes)?;
        let total = from.u32("total");
        from.reserved()?;
        let size = usize::try_from(total).unwrap_or(usize::MAX);
        if size > VALUE_MAX {
            return Err(from.refuse("total", total));
        }
        let bytes = from.tail("bytes", size.min(CHUNK))?.to_vec();
        from.finish()?;
        Ok(XattrStart { total, bytes })
    }
}

/// The chunks of a value as stored: the first one with its head.
#[must_use]
pub fn split(value: &[u8]) -> Vec<Vec<u8>> {
    let total = u32::try_from(value.len()).expect("at most VALUE_MAX");
    let (first, rest) = value.split_at(value.len().min(CHUNK));
    let mut chunks = vec![XattrStart { total, bytes: first.to_vec() }.encode()];
    chunks.extend(rest.chunks(CHUNK).map(<[u8]>::to_vec));
    chunks
}

/// Any bytes: what is accepted encodes to what it came from.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(start) = XattrStart::decode(bytes) {
        assert_eq!(start.encode(), bytes);
    }
}

const _: () = assert!(CHUNK + 8 <= 3072, "a chunk is a leaf value");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_keys::tests::from_hex;

    #[test]
    fn golden_xattr_decodes_and_encodes_to_the_same_bytes() {
        let golden = from_hex(include_str!("../golden/xattr.v1.hex"));
        let start = XattrStart { total: 5, bytes: b"value".to_vec() };
        assert_eq!(XattrStart::decode(&golden), Ok(start.clone()));
        assert_eq!(start.encode(), golden);
    }

    #[test]
    fn chunks_hold_the_whole_value() {
        for size in [0, 1, CHUNK, CHUNK + 1, VALUE_MAX] {
            let value = vec![9; size];
            let chunks = split(&value);
            let start = XattrStart::decode(&chunks[0]).expect("valid");
            assert_eq!(usize::try_from(start.total), Ok(size));
            let all: usize = start.bytes.len() + chunks[1..].iter().map(Vec::len).sum::<usize>();
            assert_eq!(all, size);
        }
        assert!(XattrStart::decode(&[1, 0, 1, 0, 0, 0, 0, 0]).is_err(), "longer than allowed");
    }
}
