//! Usage of a dataset by one user or group. FORMAT.md, "Owner row".

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, InodeId};

/// Whose number it is.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum OwnerKind {
    /// A user's.
    User = 1,
    /// A group's.
    Group = 2,
}

/// A user or a group.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Owner {
    /// Which of the two.
    pub kind: OwnerKind,
    /// Number, as in `stat`.
    pub id: u32,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            OwnerKind::User => "user",
            OwnerKind::Group => "group",
        };
        write!(f, "{kind} {}", self.id)
    }
}

impl Owner {
    /// A user.
    #[must_use]
    pub fn user(id: u32) -> Owner {
        Owner { kind: OwnerKind::User, id }
    }

    /// A group.
    #[must_use]
    pub fn group(id: u32) -> Owner {
        Owner { kind: OwnerKind::Group, id }
    }

    /// Key in the extents tree.
    #[must_use]
    pub fn key(self) -> Vec<u8> {
        let mut key = InodeId(0).0.to_be_bytes().to_vec();
        key.push(self.kind as u8);
        key.extend_from_slice(&self.id.to_be_bytes());
        key
    }

    /// From what follows the inode in a key.
    pub(crate) fn from_key(rest: [u8; 5]) -> Option<Owner> {
        let kind = match rest[0] {
            1 => OwnerKind::User,
            2 => OwnerKind::Group,
            _ => return None,
        };
        let [_, id @ ..] = rest;
        Some(Owner { kind, id: u32::from_be_bytes(id) })
    }
}

/// Value of an owner.
///
/// | off | len | field    | meaning                                                  |
/// |-----|-----|----------|----------------------------------------------------------|
/// |   0 |   8 | bytes    | bytes that the content of its files occupies             |
/// |   8 |   8 | objects  | inodes it has                                            |
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OwnerRow {
    /// Bytes that the content of its files occupies, as `stat` tells it.
    pub bytes: u64,
    /// Inodes it has.
    pub objects: u64,
}

impl OwnerRow {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new("owner_row", &[("bytes", 0, 8), ("objects", 8, 8)], &[]);
    /// Bytes of an encoded value.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();

    /// Its bytes. An owner without bytes and objects has no row.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::ENCODED_SIZE] {
        assert!(*self != OwnerRow::default());
        Encoder::new(&Self::LAYOUT).u64("bytes", self.bytes).u64("objects", self.objects).finish_array()
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<OwnerRow, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let row = OwnerRow { bytes: from.u64("bytes"), objects: from.u64("objects") };
        if row == OwnerRow::default() {
            return Err(from.refuse("objects", 0u64));
        }
        from.finish()?;
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_decode_to_what_was_encoded() {
        let row = OwnerRow { bytes: 1 << 40, objects: 3 };
        assert_eq!(OwnerRow::decode(&row.encode()), Ok(row));
        assert!(OwnerRow::decode(&[0; 16]).is_err(), "who has nothing has no row");
        assert!(OwnerRow::decode(&row.encode()[..15]).is_err());
        assert!(OwnerRow::decode(&[1; 17]).is_err());
    }
}
