//! The keys a tree still has between two keys: all others of the base are deleted (ZFS:
//! `DRR_FREEOBJECTS`, `DRR_FREE`).

use crate::DecodeError;
use crate::layout::{Decoder, Encoder, Layout};

/// All keys that a tree has from one key up to another: what else the base has there is gone.
///
/// | off | len | field    | meaning                                                            |
/// |-----|-----|----------|--------------------------------------------------------------------|
/// |   0 |   1 | tree     | 1 names, 2 extents                                                 |
/// |   1 |   1 | reserved | zero                                                               |
/// |   2 |   2 | from_len | length of the first key                                            |
/// |   4 |   2 | to_len   | length of the key before which it ends; 0: at the end of the tree  |
/// |   6 |   2 | reserved | zero                                                               |
/// |   8 |   4 | keys     | how many keys follow                                               |
/// |  12 |   4 | reserved | zero                                                               |
/// |  16 |     | from     | the first key                                                      |
/// |     |     | to       | the key before which it ends                                       |
/// |     |     | key ...  | two bytes of length, then a key; ascending                         |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamSpan {
    /// Of the extents tree; else of the names tree.
    pub extents: bool,
    /// First key.
    pub from: Vec<u8>,
    /// Key before which it ends; empty: at the end of the tree.
    pub to: Vec<u8>,
    /// All there are.
    pub keys: Vec<Vec<u8>>,
}

impl StreamSpan {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "stream_span",
        &[
            ("tree", 0, 1),
            ("reserved", 1, 1),
            ("from_len", 2, 2),
            ("to_len", 4, 2),
            ("reserved", 6, 2),
            ("keys", 8, 4),
            ("reserved", 12, 4),
        ],
        &["from", "to", "key"],
    );

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let short = |key: &[u8]| u16::try_from(key.len()).expect("keys are short");
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u8("tree", if self.extents { 2 } else { 1 }).reserved();
        out.u16("from_len", short(&self.from)).u16("to_len", short(&self.to)).reserved();
        out.u32("keys", u32::try_from(self.keys.len()).expect("a leaf has few")).reserved();
        let mut keys = Vec::new();
        for key in &self.keys {
            keys.extend_from_slice(&short(key).to_le_bytes());
            keys.extend_from_slice(key);
        }
        out.tail("from", &self.from).tail("to", &self.to).tail("key", &keys).finish()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<StreamSpan, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let extents = match from.u8("tree") {
            1 => false,
            2 => true,
            other => return Err(from.refuse("tree", other)),
        };
        from.reserved()?;
        let (from_len, to_len) = (from.u16("from_len"), from.u16("to_len"));
        from.reserved()?;
        let count = from.u32("keys");
        from.reserved()?;
        let first = from.tail("from", from_len.into())?.to_vec();
        let to = from.tail("to", to_len.into())?.to_vec();
        if !to.is_empty() && to <= first {
            return Err(from.refuse("to_len", to_len));
        }
        let mut rest = from.tail("key", from.rest().len())?;
        let bad = |from: &Decoder<'_>| from.refuse("keys", count);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while !rest.is_empty() {
            let Some((length, tail)) = rest.split_first_chunk::<2>() else { return Err(bad(&from)) };
            let length = usize::from(u16::from_le_bytes(*length));
            let Some((key, tail)) = tail.split_at_checked(length) else { return Err(bad(&from)) };
            let inside = key >= &first[..] && (to.is_empty() || key < &to[..]);
            if !inside || keys.last().is_some_and(|last| &last[..] >= key) {
                return Err(bad(&from));
            }
            keys.push(key.to_vec());
            rest = tail;
        }
        if keys.len() != count as usize {
            return Err(bad(&from));
        }
        from.finish()?;
        Ok(StreamSpan { extents, from: first, to, keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_cut_it_is_not() {
        let span = StreamSpan { extents: true, from: vec![1], to: vec![9], keys: vec![vec![1, 2], vec![3]] };
        let bytes = span.encode();
        assert_eq!(StreamSpan::decode(&bytes), Ok(span.clone()));
        for end in 0..bytes.len() {
            assert!(StreamSpan::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        let outside = StreamSpan { keys: vec![vec![9]], ..span.clone() };
        assert!(StreamSpan::decode(&outside.encode()).is_err());
        let disorder = StreamSpan { keys: vec![vec![3], vec![2]], ..span };
        assert!(StreamSpan::decode(&disorder.encode()).is_err());
    }
}
