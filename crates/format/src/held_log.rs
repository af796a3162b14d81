//! Held log: what the intent log promised to a dataset whose key was not there at import.
//! FORMAT.md, "Held log".

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, Txg};

/// Value of a held log; its key in the meta tree is the dataset.
///
/// | off | len | field    | meaning                                                              |
/// |-----|-----|----------|----------------------------------------------------------------------|
/// |   0 |  16 | epoch    | epoch of the groups, that of the uberblock                           |
/// |  16 |   8 | base     | txg of the root behind which they were found                         |
/// |  24 |   8 | end      | number of the group after the last one that was found                |
/// |  32 |  32 | hash     | hash of the last one                                                 |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeldLog {
    /// Epoch of the groups.
    pub epoch: [u8; 16],
    /// Txg of the root behind which they were found: what they are replayed over.
    pub base: Txg,
    /// Number after the last one's.
    pub end: u64,
    /// Hash of the last one, which vouches for all before it.
    pub hash: [u8; 32],
}

impl HeldLog {
    /// Offsets and lengths.
    pub const LAYOUT: Layout =
        Layout::new("held_log", &[("epoch", 0, 16), ("base", 16, 8), ("end", 24, 8), ("hash", 32, 32)], &[]);
    /// Bytes of an encoded value.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::ENCODED_SIZE] {
        assert!(self.epoch != [0; 16] && self.base.0 != 0 && self.end > 1);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("epoch", &self.epoch).u64("base", self.base.0).u64("end", self.end);
        out.bytes("hash", &self.hash).finish_array()
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<HeldLog, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let held = HeldLog {
            epoch: from.array("epoch"),
            base: Txg(from.u64("base")),
            end: from.u64("end"),
            hash: from.array("hash"),
        };
        if held.epoch == [0; 16] {
            return Err(from.refuse("epoch", 0u64));
        }
        if held.base.0 == 0 {
            return Err(from.refuse("base", 0u64));
        }
        if held.end <= 1 {
            return Err(from.refuse("end", held.end));
        }
        from.finish()?;
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_back_and_one_of_no_groups_is_refused() {
        let held = HeldLog { epoch: [1; 16], base: Txg(2), end: 3, hash: [4; 32] };
        let bytes = held.encode();
        assert_eq!(HeldLog::decode(&bytes), Ok(held));
        assert!(HeldLog::decode(&bytes[..63]).is_err());
        for (at, field) in [(0..16, "epoch"), (16..24, "base"), (24..32, "end")] {
            let mut bad = bytes;
            bad[at].fill(0);
            let refused = DecodeError::Field { structure: "held_log", field, value: 0u64 };
            assert_eq!(HeldLog::decode(&bad).unwrap_err().to_string(), refused.to_string());
        }
    }
}
