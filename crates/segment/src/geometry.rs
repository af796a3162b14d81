//! Sizes that the whole pool shares.

/// Sizes that the whole pool shares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// Bytes of a slot; a power of two.
    pub slot_size: u32,
    /// Bytes of an allocation unit; a power of two, at most `slot_size`.
    pub unit: u32,
}

impl Geometry {
    /// Units of a slot.
    #[must_use]
    pub fn slot_units(self) -> u32 {
        self.slot_size / self.unit
    }

    /// Units that `bytes` bytes take.
    #[must_use]
    pub fn units(self, bytes: usize) -> usize {
        bytes.div_ceil(self.unit as usize)
    }
}

/// A count as what may be negative.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX / 8).min(i64::MAX / 8)
}
