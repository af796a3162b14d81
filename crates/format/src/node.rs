//! Node of a tree: a page of sorted entries. FORMAT.md, "Tree node" (text in
//! `docs/format/node.md`).
//!
//! A node has one encoding only: entries lie one after the other in key order, so offsets follow
//! from lengths and cannot be wrong, overlap or leave gaps. A decoder therefore checks lengths,
//! order and the rules of the level, and what it accepts encodes to the same bytes again.

use crate::layout::Layout;
use crate::{BlockKind, BlockPointer, DecodeError};

/// Magic number at the start of every node: "SFN1".
pub const MAGIC: [u8; 4] = *b"SFN1";
/// Bytes before the first slot.
pub const HEADER_SIZE: usize = 16;
/// Bytes of one slot.
pub const SLOT_SIZE: usize = 4;
/// Greatest key, in bytes. A name of 255 bytes with its prefix fits, and so does a property's.
pub const KEY_BYTES_MAX: usize = 512;
/// Greatest value of a leaf, in bytes. Two entries of the greatest size fit in a node of 8 KiB, so
/// that an overfull node can always be split in two.
pub const VALUE_BYTES_MAX: usize = 3_072;
/// Greatest node, in bytes.
pub const NODE_BYTES_MAX: usize = 65_536;
/// Greatest level. With a fan-out of two, the least there is, that is four thousand million leaves.
pub const LEVEL_MAX: u8 = 31;

const _: () = assert!(HEADER_SIZE + 2 * (SLOT_SIZE + KEY_BYTES_MAX + VALUE_BYTES_MAX) <= 8_192);
const _: () = assert!(KEY_BYTES_MAX < VALUE_BYTES_MAX && VALUE_BYTES_MAX < u16::MAX as usize);
const _: () = assert!(NODE_BYTES_MAX / SLOT_SIZE <= u16::MAX as usize);

const STRUCTURE: &str = "node";

/// Offsets and lengths. Nodes are read often, so their code has the offsets in line; a test
/// compares.
pub const LAYOUT: Layout = Layout::new(
    "node",
    &[
        ("magic", 0, 4),
        ("level", 4, 1),
        ("reserved", 5, 1),
        ("count", 6, 2),
        ("length", 8, 4),
        ("reserved", 12, 4),
    ],
    &["slots", "entries"],
);
const _: () = assert!(LAYOUT.size() == HEADER_SIZE);

fn field(field: &'static str, value: u64) -> DecodeError {
    DecodeError::Field { structure: STRUCTURE, field, value }
}

/// Bytes of a node whose `count` entries have `entry_bytes` bytes of keys and values.
#[must_use]
pub fn encoded_size(count: usize, entry_bytes: usize) -> usize {
    HEADER_SIZE + count * SLOT_SIZE + entry_bytes
}

/// A decoded node, borrowed from its bytes. Only [`Node::decode`] makes one, so all that FORMAT.md
/// says of a node holds for it.
///
/// | off | len | field     | meaning                                                          |
/// |-----|-----|-----------|------------------------------------------------------------------|
/// |   0 |   4 | magic     | "SFN1"                                                           |
/// |   4 |   1 | level     | 0 for a leaf, else height above the leaves, at most 31           |
/// |   5 |   1 | reserved  | zero                                                             |
/// |   6 |   2 | count     | entries, at least 1                                              |
/// |   8 |   4 | length    | bytes of the whole node, at most 65,536                          |
/// |  12 |   4 | reserved  | zero                                                             |
/// |  16 | 4·n | slots     | per entry: key length (2), value length (2)                      |
/// |  .. |  .. | entries   | per entry in slot order: key bytes, value bytes                  |
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    bytes: &'a [u8],
    level: u8,
    count: usize,
}

/// One entry of a node: where its key and value are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry<'a> {
    /// Offset of the key from the start of the node; the value follows the key.
    pub offset: usize,
    /// Key; empty in the first entry of an inner node, where it stands for "from the node's lower
    /// bound on".
    pub key: &'a [u8],
    /// Value; in an inner node the child's encoded pointer.
    pub value: &'a [u8],
}

impl<'a> Node<'a> {
    /// Reads and checks a node: magic, reserved bytes, lengths that add up exactly, strictly
    /// ascending keys, and in an inner node valid pointers to metadata one level below.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let have = bytes.len();
        if have < HEADER_SIZE {
            return Err(DecodeError::Short { structure: STRUCTURE, need: HEADER_SIZE, have });
        }
        if bytes[0..4] != MAGIC {
            return Err(DecodeError::Magic { structure: STRUCTURE });
        }
        if bytes[5] != 0 || bytes[12..16] != [0; 4] {
            return Err(DecodeError::Reserved { structure: STRUCTURE });
        }
        let level = bytes[4];
        if level > LEVEL_MAX {
            return Err(field("level", level.into()));
        }
        let length = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
        if length as usize != have || have > NODE_BYTES_MAX {
            return Err(field("length", length.into()));
        }
        let count = usize::from(u16::from_le_bytes(bytes[6..8].try_into().expect("two bytes")));
        if count == 0 || encoded_size(count, 0) > have {
            return Err(field("count", count as u64));
        }
        let node = Node { bytes, level, count };
        node.check_entries()?;
        Ok(node)
    }

    fn check_entries(&self) -> Result<(), DecodeError> {
        let mut offset = encoded_size(self.count, 0);
        let mut last: Option<&[u8]> = None;
        for index in 0..self.count {
            let (key_len, value_len) = self.slot(index);
            let key_len_valid = match (self.level, index) {
                (1.., 0) => key_len == 0,
                _ => (1..=KEY_BYTES_MAX).contains(&key_len),
            };
            if !key_len_valid {
                return Err(field("key length", key_len as u64));
            }
            let value_len_valid = match self.level {
                0 => value_len <= VALUE_BYTES_MAX,
                _ => value_len == BlockPointer::ENCODED_SIZE,
            };
            if !value_len_valid {
                return Err(field("value length", value_len as u64));
            }
            let end = offset + key_len + value_len;
            if end > self.bytes.len() {
                return Err(DecodeError::Short { structure: STRUCTURE, need: end, have: self.bytes.len() });
            }
            let key = &self.bytes[offset..offset + key_len];
            if last.is_some_and(|last| last >= key) {
                return Err(field("key order", index as u64));
            }
            if self.level > 0 {
                let pointer = BlockPointer::decode(&self.bytes[offset + key_len..end])?;
                if pointer.level != self.level - 1 {
                    return Err(field("child level", pointer.level.into()));
                }
                if !is_node_kind(pointer.kind) {
                    return Err(field("child kind", pointer.kind as u64));
                }
            }
            last = Some(key);
            offset = end;
        }
        if offset != self.bytes.len() {
            return Err(field("length", self.bytes.len() as u64));
        }
        Ok(())
    }

    fn slot(&self, index: usize) -> (usize, usize) {
        let at = HEADER_SIZE + index * SLOT_SIZE;
        let u16_at = |at: usize| u16::from_le_bytes(self.bytes[at..at + 2].try_into().expect("two bytes"));
        (u16_at(at).into(), u16_at(at + 2).into())
    }

    /// Height above the leaves.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Number of entries, at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Entries in key order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<'a>> + use<'a> {
        let node = *self;
        let mut offset = encoded_size(self.count, 0);
        (0..self.count).map(move |index| {
            let (key_len, value_len) = node.slot(index);
            let (start, middle, end) = (offset, offset + key_len, offset + key_len + value_len);
            offset = end;
            Entry { offset: start, key: &node.bytes[start..middle], value: &node.bytes[middle..end] }
        })
    }
}

/// True for the kinds of block that hold tree nodes.
#[must_use]
pub fn is_node_kind(kind: BlockKind) -> bool {
    matches!(kind, BlockKind::Names | BlockKind::Extents | BlockKind::Meta)
}

/// Writes a node entry by entry, in key order.
#[derive(Debug)]
pub struct NodeEncoder {
    bytes: Vec<u8>,
    level: u8,
    count: usize,
    added: usize,
}

impl NodeEncoder {
    /// Starts a node of `count` entries whose keys and values have `entry_bytes` bytes together.
    #[must_use]
    pub fn new(level: u8, count: usize, entry_bytes: usize) -> Self {
        let length = encoded_size(count, entry_bytes);
        assert!(count > 0 && level <= LEVEL_MAX && length <= NODE_BYTES_MAX, "a node within its limits");
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[level, 0]);
        bytes.extend_from_slice(&u16::try_from(count).expect("limit above").to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(length).expect("limit above").to_le_bytes());
        bytes.resize(encoded_size(count, 0), 0);
        NodeEncoder { bytes, level, count, added: 0 }
    }

    /// Adds the next entry.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        assert!(self.added < self.count, "as many entries as announced");
        let inner_first = self.level > 0 && self.added == 0;
        assert!(key.len() <= KEY_BYTES_MAX && key.is_empty() == inner_first, "key length");
        assert!(value.len() <= VALUE_BYTES_MAX, "value length");
        let slot = HEADER_SIZE + self.added * SLOT_SIZE;
        self.bytes[slot..slot + 2].copy_from_slice(&(key.len() as u16).to_le_bytes());
        self.bytes[slot + 2..slot + 4].copy_from_slice(&(value.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.added += 1;
    }

    /// The node's bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let announced = u32::from_le_bytes(self.bytes[8..12].try_into().expect("four bytes"));
        assert!(self.added == self.count && self.bytes.len() == announced as usize, "lengths as announced");
        debug_assert!(Node::decode(&self.bytes).is_ok(), "what is written can be read");
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Compression, SegmentId, Stamp, Txg};

    const GOLDEN_LEAF: &str = include_str!("../golden/node_leaf.v1.hex");
    const GOLDEN_INNER: &str = include_str!("../golden/node_inner.v1.hex");

    fn leaf(entries: &[(&[u8], &[u8])]) -> Vec<u8> {
        let bytes = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        let mut encoder = NodeEncoder::new(0, entries.len(), bytes);
        for (key, value) in entries {
            encoder.push(key, value);
        }
        encoder.finish()
    }

    fn sample_leaf() -> Vec<u8> {
        leaf(&[(b"apple", b"red"), (b"banana", b""), (b"cherry", b"dark")])
    }

    fn pointer(segment: u64) -> BlockPointer {
        BlockPointer {
            hash: [segment as u8; 32],
            copies: [
                Address { segment: SegmentId(segment), offset: 4096 },
                Address { segment: SegmentId(segment + 1), offset: 8192 },
                Address::NONE,
            ],
            psize: 700,
            lsize: 1000,
            birth: Txg(5),
            written: Txg(0),
            stamp: Stamp { salt: [3; 16], counter: segment },
            compression: Compression::Lz4,
            kind: BlockKind::Names,
            level: 0,
        }
    }

    fn inner(children: &[(&[u8], BlockPointer)]) -> Vec<u8> {
        let bytes = children.iter().map(|(key, _)| key.len() + BlockPointer::ENCODED_SIZE).sum();
        let mut encoder = NodeEncoder::new(1, children.len(), bytes);
        for (key, pointer) in children {
            encoder.push(key, &pointer.to_bytes());
        }
        encoder.bytes
    }

    fn sample_inner() -> Vec<u8> {
        inner(&[(b"", pointer(0x10)), (b"m", pointer(0x20))])
    }

    fn encode_again(node: &Node<'_>) -> Vec<u8> {
        let bytes = node.entries().map(|entry| entry.key.len() + entry.value.len()).sum();
        let mut encoder = NodeEncoder::new(node.level(), node.count(), bytes);
        node.entries().for_each(|entry| encoder.push(entry.key, entry.value));
        encoder.finish()
    }

    /// Bytes of an annotated hex file: everything after `#` is a comment.
    fn from_hex(text: &str) -> Vec<u8> {
        let digits: String = text.lines().flat_map(|line| line.split('#').next()).collect();
        let digits: Vec<u8> = digits.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex"))
            .collect()
    }

    #[test]
    fn golden_nodes_decode_and_encode_to_the_same_bytes() {
        for (golden, sample) in [(GOLDEN_LEAF, sample_leaf()), (GOLDEN_INNER, sample_inner())] {
            let bytes = from_hex(golden);
            assert_eq!(bytes, sample);
            let node = Node::decode(&bytes).expect("golden bytes are valid");
            assert_eq!(encode_again(&node), bytes);
        }
    }

    #[test]
    fn entries_come_back_in_order_with_their_offsets() {
        let bytes = sample_leaf();
        let node = Node::decode(&bytes).expect("valid");
        assert_eq!((node.level(), node.count()), (0, 3));
        let entries: Vec<_> = node.entries().map(|entry| (entry.key, entry.value)).collect();
        assert_eq!(
            entries,
            [(&b"apple"[..], &b"red"[..]), (&b"banana"[..], &b""[..]), (&b"cherry"[..], &b"dark"[..])]
        );
        for entry in node.entries() {
            assert_eq!(&bytes[entry.offset..entry.offset + entry.key.len()], entry.key);
        }
    }

    #[test]
    fn keys_out_of_order_or_twice_are_refused() {
        for keys in [[b"b", b"a"], [b"a", b"a"]] {
            let mut encoder = NodeEncoder::new(0, 2, 2);
            keys.iter().for_each(|key| encoder.push(*key, b""));
            assert_eq!(Node::decode(&encoder.bytes).err(), Some(field("key order", 1)));
        }
    }

    #[test]
    fn a_child_of_the_wrong_level_or_kind_is_refused() {
        let wrong_level = BlockPointer { level: 1, ..pointer(1) };
        let bytes = inner(&[(b"", wrong_level)]);
        assert_eq!(Node::decode(&bytes).err(), Some(field("child level", 1)));
        let wrong_kind = BlockPointer { kind: BlockKind::Data, ..pointer(1) };
        let bytes = inner(&[(b"", wrong_kind)]);
        assert_eq!(Node::decode(&bytes).err(), Some(field("child kind", 1)));
    }

    #[test]
    fn every_cut_and_every_longer_copy_is_refused() {
        for bytes in [sample_leaf(), sample_inner()] {
            for cut in 0..bytes.len() {
                assert!(Node::decode(&bytes[..cut]).is_err(), "cut at {cut}");
            }
            let mut longer = bytes.clone();
            longer.push(0);
            assert!(Node::decode(&longer).is_err());
        }
    }

    #[test]
    fn every_flip_in_header_and_slots_is_refused() {
        // The level of a leaf and the lengths of a slot may not be changed either: the rest would
        // not add up.
        for bytes in [sample_leaf(), sample_inner()] {
            let slots_end = encoded_size(Node::decode(&bytes).expect("valid").count(), 0);
            for bit in 0..slots_end * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(Node::decode(&flipped).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn an_empty_node_is_refused() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Node::decode(&bytes).err(), Some(field("count", 0)));
    }

    #[test]
    fn an_inner_node_may_not_name_its_first_key() {
        let mut bytes = inner(&[(b"", pointer(1))]);
        // One byte of key in front of the pointer, lengths adjusted to match.
        bytes.insert(encoded_size(1, 0), b'a');
        bytes[16] = 1;
        let length = bytes.len() as u32;
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        assert_eq!(Node::decode(&bytes).err(), Some(field("key length", 1)));
    }

    #[test]
    fn random_damage_never_panics_and_what_is_accepted_is_canonical() {
        let mut state = 0x5eed_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let mut accepted = 0;
        for round in 0..20_000 {
            let mut bytes = if round % 2 == 0 { sample_leaf() } else { sample_inner() };
            for _ in 0..1 + random() % 4 {
                let at = random() % bytes.len();
                bytes[at] = random() as u8;
            }
            if random() % 8 == 0 {
                bytes.truncate(random() % (bytes.len() + 1));
            }
            accepted += usize::from(Node::decode(&bytes).is_ok());
            crate::fuzz::node(&bytes);
        }
        assert!(accepted > 0, "damage to values alone is not the decoder's to find");
    }
}
