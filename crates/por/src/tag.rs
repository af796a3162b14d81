//! # Tags
//!
//! `tag(c) = POLYVAL(point, payload of c) + AES(mask key, identity of c)`, a private tag of Shacham
//! and Waters (2008). It is linear in the payload apart from the mask: a sum of cells, each times a
//! coefficient, has the sum of their tags, and whoever knows point and mask can check that sum
//! alone.
//!
//! A store that holds a cell and its tag and changes the cell passes with 256 / 2^128 a try: the
//! difference would have to be a polynomial with a root at the secret point. The mask hides the
//! point. It does so only if no identity ever has two contents [por.1]: two tags under one mask
//! would show the point to anyone who solves a polynomial.

use steadfast_crypto::prf::Prf;
use steadfast_crypto::{Key, derive};
use zeroize::Zeroizing;

use crate::cell::{CellId, PAYLOAD, Payload, TAG, Tag};
use crate::field;
use crate::kernel::Kernel;

/// Words of a payload.
pub(crate) const WORDS: usize = PAYLOAD / TAG;

/// Secrets that make and check tags.
pub struct TagKeys {
    /// Powers of the point from the 256th down to the first: factors of the words of a payload.
    powers: Zeroizing<Vec<u128>>,
    mask: Prf,
}

/// A cell whose tag was made or checked here: the only kind that enters or leaves the code [por.3].
#[derive(Clone, Copy, Debug)]
pub struct Proven<'c> {
    id: CellId,
    payload: &'c Payload,
    tag: Tag,
}

impl<'c> Proven<'c> {
    /// Identity.
    #[must_use]
    pub fn id(&self) -> CellId {
        self.id
    }

    /// Content.
    #[must_use]
    pub fn payload(&self) -> &'c Payload {
        self.payload
    }

    /// Tag.
    #[must_use]
    pub fn tag(&self) -> Tag {
        self.tag
    }
}

impl TagKeys {
    /// The keys of a pool, from the root key of its parity.
    #[must_use]
    pub fn new(root: &Key) -> TagKeys {
        let point = Prf::new(&derive(root, b"", "steadfast tag point v1")).block([0; 16]);
        let point = u128::from_le_bytes(point);
        let mut powers = Zeroizing::new(vec![point; WORDS]);
        for at in (0..WORDS - 1).rev() {
            powers[at] = field::dot(powers[at + 1], point);
        }
        TagKeys { powers, mask: Prf::new(&derive(root, b"", "steadfast tag mask v1")) }
    }

    /// Tags the content of a cell.
    #[must_use]
    pub fn tag<'c>(&self, id: CellId, payload: &'c Payload) -> Proven<'c> {
        self.tag_by(Kernel::best(), id, payload)
    }

    /// Like [`TagKeys::tag`], by a kernel of the caller's choice.
    ///
    /// # Panics
    /// If the processor has no such kernel.
    #[must_use]
    pub fn tag_by<'c>(&self, kernel: Kernel, id: CellId, payload: &'c Payload) -> Proven<'c> {
        let mask = u128::from_le_bytes(self.mask.block(id.block(0)));
        let tag = self.polyval(kernel, payload) ^ mask;
        Proven { id, payload, tag: Tag(tag.to_le_bytes()) }
    }

    /// The cell, if the tag is its tag.
    #[must_use]
    pub fn prove<'c>(&self, id: CellId, payload: &'c Payload, tag: Tag) -> Option<Proven<'c>> {
        let made = self.tag(id, payload);
        // The difference is zero or not, in time that does not depend on where it is not.
        let difference = u128::from_le_bytes(made.tag.0) ^ u128::from_le_bytes(tag.0);
        (difference == 0).then_some(made)
    }

    /// The part of a tag that is linear in the payload.
    pub(crate) fn polyval(&self, kernel: Kernel, payload: &Payload) -> u128 {
        field::inner_by(kernel, &self.powers, payload.as_chunks().0)
    }

    /// Masks of cells.
    pub(crate) fn masks(&self, ids: impl Iterator<Item = CellId>) -> Vec<[u8; 16]> {
        let mut blocks: Vec<[u8; 16]> = ids.map(|id| id.block(0)).collect();
        self.mask.fill(&mut blocks);
        blocks
    }
}

impl std::fmt::Debug for TagKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TagKeys(<redacted>)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_format::SegmentId;

    fn id(index: u16) -> CellId {
        CellId { segment: SegmentId(1), opening: 2, store: 3, index }
    }

    #[test]
    fn a_tag_belongs_to_one_content_of_one_cell_of_one_key() {
        let keys = TagKeys::new(&Key::from_bytes([1; 32]));
        let payload: Payload = std::array::from_fn(|at| u8::try_from(at * 31 % 251).unwrap());
        let tag = keys.tag(id(4), &payload).tag();
        assert!(keys.prove(id(4), &payload, tag).is_some());
        for byte in [0, 15, 16, 2047, PAYLOAD - 1] {
            for bit in 0..8 {
                let mut changed = payload;
                changed[byte] ^= 1 << bit;
                assert!(keys.prove(id(4), &changed, tag).is_none(), "byte {byte}, bit {bit}");
            }
        }
        for bit in 0..128 {
            let other = Tag((u128::from_le_bytes(tag.0) ^ 1 << bit).to_le_bytes());
            assert!(keys.prove(id(4), &payload, other).is_none());
        }
        assert!(keys.prove(id(5), &payload, tag).is_none());
        assert!(TagKeys::new(&Key::from_bytes([2; 32])).prove(id(4), &payload, tag).is_none());
        assert_eq!(format!("{keys:?}"), "TagKeys(<redacted>)");
    }

    #[test]
    fn words_that_change_places_change_the_tag() {
        let keys = TagKeys::new(&Key::from_bytes([1; 32]));
        let mut payload = [0; PAYLOAD];
        payload[0] = 1;
        let first = keys.tag(id(0), &payload).tag();
        payload.rotate_right(TAG);
        assert_ne!(first, keys.tag(id(0), &payload).tag());
    }

    #[test]
    fn all_kernels_make_the_same_tag() {
        let keys = TagKeys::new(&Key::from_bytes([7; 32]));
        let payload: Payload = std::array::from_fn(|at| u8::try_from(at * at % 253).unwrap());
        let expected = keys.tag_by(Kernel::Scalar, id(0), &payload).tag();
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
            assert_eq!(keys.tag_by(kernel, id(0), &payload).tag(), expected, "{}", kernel.name());
        }
    }

    /// Two contents under one identity give the point away: the reason for [por.1]. With contents
    /// that differ in the last word only, the sum of the tags is that difference times the point.
    #[test]
    fn one_mask_used_twice_shows_the_point() {
        let keys = TagKeys::new(&Key::from_bytes([1; 32]));
        let (zeros, mut other) = ([0; PAYLOAD], [0; PAYLOAD]);
        // The field's one, so that the product is the point itself.
        let one = u128::from_le_bytes([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xc2]);
        other[PAYLOAD - 16..].copy_from_slice(&one.to_le_bytes());
        let tags = [&zeros, &other].map(|payload| u128::from_le_bytes(keys.tag(id(0), payload).tag().0));
        let point = tags[0] ^ tags[1];
        assert_eq!(point, keys.powers[WORDS - 1]);
        // With it, a forged cell passes.
        let forged_tag = Tag((tags[0] ^ field::dot(0x1234, point)).to_le_bytes());
        let mut forged = zeros;
        forged[PAYLOAD - 16..].copy_from_slice(&0x1234_u128.to_le_bytes());
        assert!(keys.prove(id(0), &forged, forged_tag).is_some());
    }
}
