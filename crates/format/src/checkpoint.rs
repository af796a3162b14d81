//! Checkpoint: the root to which a pool can be taken back as a whole. FORMAT.md, "Checkpoint".

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, Uberblock};

/// The pool's checkpoint (ZFS: `zpool checkpoint`): an uberblock of an earlier txg. All that it
/// leads to is kept as long as the row is there. The uberblock needs no tag of its own, because the
/// row is proved by the meta tree that it stands in.
///
/// | off | len | field | meaning                                                               |
/// |-----|-----|-------|-----------------------------------------------------------------------|
/// |   0 | 752 | root  | the first bytes of that uberblock; all behind them are zero, but the tag |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Checkpoint {
    /// The root, as it was committed.
    pub root: Uberblock,
}

impl Checkpoint {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new("checkpoint", &[("root", 0, 752)], &[]);
    /// Bytes of an encoded value.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::ENCODED_SIZE] {
        let whole = self.root.encode(|_| [0; 32]);
        assert!(whole[Self::ENCODED_SIZE..].iter().all(|byte| *byte == 0), "what is cut off is zero");
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("root", &whole[..Self::ENCODED_SIZE]).finish_array()
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<Checkpoint, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let mut whole = [0; Uberblock::ENCODED_SIZE];
        whole[..Self::ENCODED_SIZE].copy_from_slice(from.bytes("root", Self::ENCODED_SIZE));
        from.finish()?;
        Ok(Checkpoint { root: Uberblock::decode(&whole)? })
    }
}
