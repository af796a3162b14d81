//! Keys of a dataset's two trees. FORMAT.md, "Keys of files".
//!
//! All numbers in keys are big-endian, so byte order is key order: everything of one inode is
//! together, its entries in cookie order, its extents in file order. Inode 0 does not exist; its
//! place holds what belongs to the whole dataset.

use crate::dirent::COOKIES;
use crate::owner::Owner;
use crate::{DecodeError, InodeId};

/// Key in a names tree.
///
/// | key                                              | value                             |
/// |--------------------------------------------------|-----------------------------------|
/// | 0 (8), 1                                         | [`crate::dirent::NamesHead`]      |
/// | 0 (8), 2, inode (8)                              | empty: an orphan                  |
/// | inode (8), 1                                     | [`crate::inode::InodeRecord`]     |
/// | directory (8), 2, cookie (8)                     | [`crate::dirent::Dirent`]         |
/// | inode (8), 3, name (1-255), 0, chunk (2)         | extended attribute, see `xattr`   |
/// | inode (8), 4, chunk (2)                          | part of a symbolic link's target  |
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum NamesKey {
    /// Head of the names tree.
    Head,
    /// An inode without links that is, or was at the last crash, still in use.
    Orphan(InodeId),
    /// Attributes of an inode.
    Inode(InodeId),
    /// Directory entry.
    Entry {
        /// Directory.
        directory: InodeId,
        /// Position in it.
        cookie: u64,
    },
    /// Chunk of an extended attribute.
    Xattr {
        /// Inode that has it.
        inode: InodeId,
        /// Full name, with its `user.` or the like.
        name: Vec<u8>,
        /// Number of the chunk, from 0.
        chunk: u16,
    },
    /// Chunk of a symbolic link's target.
    Target {
        /// The link.
        inode: InodeId,
        /// Number of the chunk, from 0.
        chunk: u16,
    },
}

const HEAD: u8 = 1;
const ORPHAN: u8 = 2;
const INODE: u8 = 1;
const ENTRY: u8 = 2;
const XATTR: u8 = 3;
const TARGET: u8 = 4;

fn prefix(inode: InodeId, kind: u8) -> Vec<u8> {
    let mut key = Vec::with_capacity(24);
    key.extend_from_slice(&inode.0.to_be_bytes());
    key.push(kind);
    key
}

impl NamesKey {
    /// Longest name of an extended attribute.
    pub const XATTR_NAME_MAX: usize = 255;

    /// The key's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            NamesKey::Head => prefix(InodeId(0), HEAD),
            NamesKey::Orphan(inode) => {
                let mut key = prefix(InodeId(0), ORPHAN);
                key.extend_from_slice(&inode.0.to_be_bytes());
                key
            }
            NamesKey::Inode(inode) => prefix(*inode, INODE),
            NamesKey::Entry { directory, cookie } => {
                let mut key = prefix(*directory, ENTRY);
                key.extend_from_slice(&cookie.to_be_bytes());
                key
            }
            NamesKey::Xattr { inode, name, chunk } => {
                assert!(!name.is_empty() && name.len() <= Self::XATTR_NAME_MAX && !name.contains(&0));
                let mut key = prefix(*inode, XATTR);
                key.extend_from_slice(name);
                key.push(0);
                key.extend_from_slice(&chunk.to_be_bytes());
                key
            }
            NamesKey::Target { inode, chunk } => {
                let mut key = prefix(*inode, TARGET);
                key.extend_from_slice(&chunk.to_be_bytes());
                key
            }
        }
    }

    /// Reads a key.
    pub fn decode(bytes: &[u8]) -> Result<NamesKey, DecodeError> {
        let (inode, kind, rest) = split(bytes)?;
        let refuse = || DecodeError::Field { structure: "names_key", field: "kind", value: kind.into() };
        let length = || DecodeError::Field {
            structure: "names_key",
            field: "length",
            value: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        };
        let number = |rest: &[u8]| rest.try_into().map(u64::from_be_bytes).map_err(|_| length());
        let small = |rest: &[u8]| rest.try_into().map(u16::from_be_bytes).map_err(|_| length());
        match (inode, kind) {
            (InodeId(0), HEAD) if rest.is_empty() => Ok(NamesKey::Head),
            (InodeId(0), ORPHAN) => match number(rest)? {
                orphan if InodeId(orphan).is_valid() => Ok(NamesKey::Orphan(InodeId(orphan))),
                orphan => Err(DecodeError::Field { structure: "names_key", field: "inode", value: orphan }),
            },
            (InodeId(0), _) => Err(refuse()),
            (InodeId(number), _) if !inode.is_valid() => {
                Err(DecodeError::Field { structure: "names_key", field: "inode", value: number })
            }
            (_, INODE) if rest.is_empty() => Ok(NamesKey::Inode(inode)),
            (_, INODE) => Err(length()),
            (_, ENTRY) => match number(rest)? {
                cookie if COOKIES.contains(&cookie) => Ok(NamesKey::Entry { directory: inode, cookie }),
                value => Err(DecodeError::Field { structure: "names_key", field: "cookie", value }),
            },
            (_, XATTR) => {
                let Some(end) = rest.len().checked_sub(3) else { return Err(length()) };
                let name = &rest[..end];
                if name.is_empty() || name.len() > Self::XATTR_NAME_MAX {
                    return Err(length());
                }
                if name.contains(&0) || rest[end] != 0 {
                    return Err(DecodeError::Field { structure: "names_key", field: "name", value: 0 });
                }
                Ok(NamesKey::Xattr { inode, name: name.to_vec(), chunk: small(&rest[end + 1..])? })
            }
            (_, TARGET) => Ok(NamesKey::Target { inode, chunk: small(rest)? }),
            _ => Err(refuse()),
        }
    }

    /// Where the entries of `directory` begin.
    #[must_use]
    pub fn entries(directory: InodeId) -> Vec<u8> {
        prefix(directory, ENTRY)
    }

    /// Where the extended attributes of `inode` begin; they end where [`NamesKey::targets`] begin.
    #[must_use]
    pub fn xattrs(inode: InodeId) -> Vec<u8> {
        prefix(inode, XATTR)
    }

    /// Where the chunks of one extended attribute begin and end.
    #[must_use]
    pub fn xattr_range(inode: InodeId, name: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut start = prefix(inode, XATTR);
        start.extend_from_slice(name);
        let mut end = start.clone();
        start.push(0);
        end.push(1);
        (start, end)
    }

    /// Where the chunks of a symbolic link's target begin.
    #[must_use]
    pub fn targets(inode: InodeId) -> Vec<u8> {
        prefix(inode, TARGET)
    }

    /// Where all that belongs to `inode` begins; it ends where the next inode's begins.
    #[must_use]
    pub fn all_of(inode: InodeId) -> Vec<u8> {
        inode.0.to_be_bytes().to_vec()
    }

    /// Where the orphans begin.
    #[must_use]
    pub fn orphans() -> Vec<u8> {
        prefix(InodeId(0), ORPHAN)
    }
}

fn split(bytes: &[u8]) -> Result<(InodeId, u8, &[u8]), DecodeError> {
    match bytes.split_first_chunk::<8>() {
        Some((inode, [kind, rest @ ..])) => Ok((InodeId(u64::from_be_bytes(*inode)), *kind, rest)),
        _ => Err(DecodeError::Short { structure: "names_key", need: 9, have: bytes.len() }),
    }
}

/// Key in an extents tree.
///
/// | key                                  | value                                                |
/// |--------------------------------------|------------------------------------------------------|
/// | inode (8), offset (8)                | [`crate::extent::Extent`]                            |
/// | 0 (8), inode (8), start (8)          | end (8, little-endian): a cut that is not yet freed  |
/// | 0 (8), 3                             | empty: all owners are there                          |
/// | 0 (8), 1 or 2, id (4)                | [`crate::OwnerRow`] of a user (1) or group (2)       |
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ExtentsKey {
    /// Content of a file from `offset` on.
    Extent {
        /// File.
        inode: InodeId,
        /// Byte offset in it; a multiple of its record size.
        offset: u64,
    },
    /// Bytes from `start` on read as zeros (or the whole file is gone), whatever extents still lie
    /// there.
    Cut {
        /// File.
        inode: InodeId,
        /// First byte cut.
        start: u64,
    },
    /// The dataset knows what each owner takes up.
    Owners,
    /// Usage of an owner.
    Owner(Owner),
}

const OWNERS: u8 = 3;

impl ExtentsKey {
    /// The key's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(24);
        match self {
            ExtentsKey::Extent { inode, offset } => {
                key.extend_from_slice(&inode.0.to_be_bytes());
                key.extend_from_slice(&offset.to_be_bytes());
            }
            ExtentsKey::Cut { inode, start } => {
                key.extend_from_slice(&0_u64.to_be_bytes());
                key.extend_from_slice(&inode.0.to_be_bytes());
                key.extend_from_slice(&start.to_be_bytes());
            }
            ExtentsKey::Owners => {
                key.extend_from_slice(&0_u64.to_be_bytes());
                key.push(OWNERS);
            }
            ExtentsKey::Owner(owner) => key.extend_from_slice(&owner.key()),
        }
        key
    }

    /// Reads a key.
    pub fn decode(bytes: &[u8]) -> Result<ExtentsKey, DecodeError> {
        let field = |field, value| DecodeError::Field { structure: "extents_key", field, value };
        let mut numbers = [0_u64; 3];
        if let Some((&[0, 0, 0, 0, 0, 0, 0, 0], rest)) = bytes.split_first_chunk::<8>()
            && bytes.len() < 16
        {
            let kind = || field("kind", rest.first().copied().unwrap_or(0).into());
            return match rest {
                [OWNERS] => Ok(ExtentsKey::Owners),
                rest => {
                    let rest = rest.try_into().map_err(|_| kind())?;
                    Owner::from_key(rest).map(ExtentsKey::Owner).ok_or_else(kind)
                }
            };
        }
        if bytes.len() != 16 && bytes.len() != 24 {
            return Err(field("length", u64::try_from(bytes.len()).unwrap_or(u64::MAX)));
        }
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
        }
        match (bytes.len(), numbers) {
            (16, [inode, ..]) | (24, [0, inode, _]) if !InodeId(inode).is_valid() => {
                Err(field("inode", inode))
            }
            // No file reaches beyond, so an extent's end is a number as well.
            (16, [_, offset, _]) | (24, [0, _, offset]) if i64::try_from(offset).is_err() => {
                Err(field("offset", offset))
            }
            (16, [inode, offset, _]) => Ok(ExtentsKey::Extent { inode: InodeId(inode), offset }),
            (_, [0, inode, start]) => Ok(ExtentsKey::Cut { inode: InodeId(inode), start }),
            (_, [first, ..]) => Err(field("zero", first)),
        }
    }

    /// Where the cuts begin; they end where the extents of inode 1 begin.
    #[must_use]
    pub fn cuts() -> Vec<u8> {
        vec![0; 8]
    }
}

/// Any bytes: what is accepted encodes to what it came from.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(key) = NamesKey::decode(bytes) {
        assert_eq!(key.encode(), bytes);
    }
    if let Ok(key) = ExtentsKey::decode(bytes) {
        assert_eq!(key.encode(), bytes);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Bytes of an annotated golden file.
    pub(crate) fn from_hex(text: &str) -> Vec<u8> {
        let digits = text.lines().flat_map(|line| line.split('#').next().unwrap_or("").split_whitespace());
        digits.map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal")).collect()
    }

    #[test]
    fn keys_decode_to_what_was_encoded_and_sort_as_they_should() {
        let inode = InodeId(7);
        let xattr = |name: &[u8], chunk| NamesKey::Xattr { inode, name: name.to_vec(), chunk };
        let keys = [
            NamesKey::Head,
            NamesKey::Orphan(InodeId(9)),
            NamesKey::Inode(inode),
            NamesKey::Entry { directory: inode, cookie: 256 },
            NamesKey::Entry { directory: inode, cookie: 300 },
            xattr(b"user.a", 0),
            xattr(b"user.a", 1),
            xattr(b"user.ab", 0),
            NamesKey::Target { inode, chunk: 1 },
            NamesKey::Inode(InodeId(8)),
        ];
        for pair in keys.windows(2) {
            assert!(pair[0].encode() < pair[1].encode(), "{pair:?}");
        }
        for key in keys {
            assert_eq!(NamesKey::decode(&key.encode()), Ok(key));
        }
        let (start, end) = NamesKey::xattr_range(inode, b"user.a");
        assert!(start <= xattr(b"user.a", 0).encode() && xattr(b"user.a", u16::MAX).encode() < end);
        assert!(end <= xattr(b"user.ab", 0).encode());
        for key in [
            ExtentsKey::Extent { inode, offset: 1 << 40 },
            ExtentsKey::Cut { inode, start: 3 },
            ExtentsKey::Owners,
            ExtentsKey::Owner(Owner::user(0)),
            ExtentsKey::Owner(Owner::group(u32::MAX)),
        ] {
            assert_eq!(ExtentsKey::decode(&key.encode()), Ok(key));
        }
    }

    #[test]
    fn no_bytes_make_the_decoders_panic() {
        let mut bytes = Vec::new();
        for round in 0..4000_u32 {
            bytes.push(round.wrapping_mul(2_654_435_761).to_le_bytes()[3] % 5);
            if round % 37 == 0 {
                bytes.clear();
            }
            fuzz(&bytes);
        }
    }
}
