//! Directory entries, the order they are listed in, and the head of the names tree. FORMAT.md,
//! "Directory entry".
//!
//! An entry's *cookie* is its key within its directory and its position in listings: the upper bits
//! of a keyed hash of the name, and 8 bits of probe number for names whose upper bits collide. It
//! never changes while the entry lives, so a listing that is continued after other entries came and
//! went neither repeats nor skips what stayed. The hash is keyed with a random seed of the dataset,
//! so nobody can prepare names that collide.

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, InodeId};

/// Longest name in a directory.
pub const NAME_MAX: usize = 255;
/// Cookies up to this one are never given to entries ("." and ".." use some).
pub const COOKIE_RESERVED: u64 = 255;
/// Cookies that an entry may have: 256 up to below 2^63.
pub const COOKIES: std::ops::Range<u64> = COOKIE_RESERVED + 1..1 << 63;
/// Number of probes of one hash value.
pub const PROBES: u64 = 256;

/// First cookie of a name: probe 0 of its hash. At least 256, below 2^63.
#[must_use]
pub fn first_cookie(seed: &[u8; 16], name: &[u8]) -> u64 {
    ((sip_hash(seed, name) >> 1) & !(PROBES - 1)).max(PROBES)
}

/// SipHash-2-4 (Aumasson, Bernstein 2012).
#[must_use]
pub fn sip_hash(seed: &[u8; 16], bytes: &[u8]) -> u64 {
    fn round(v: &mut [u64; 4]) {
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[1]);
        v[0] = v[0].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
    }
    let half = |at: usize| u64::from_le_bytes(seed[at..at + 8].try_into().expect("eight bytes"));
    let (k0, k1) = (half(0), half(8));
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut absorb = |word: u64| {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    };
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        absorb(u64::from_le_bytes(word.try_into().expect("eight bytes")));
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    last[7] = bytes.len().to_le_bytes()[0];
    absorb(u64::from_le_bytes(last));
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

/// Entry of a directory.
///
/// | off | len | field    | meaning                                                  |
/// |-----|-----|----------|----------------------------------------------------------|
/// |   0 |   8 | inode    | what it leads to                                         |
/// |   8 |   1 | kind     | its type as in `readdir`: the type bits of mode, over 4096 |
/// |   9 |   1 | length   | bytes of the name, 1 to 255                              |
/// |  10 |   n | name     | any bytes but `/` and zero                               |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Dirent {
    /// The inode it leads to.
    pub inode: InodeId,
    /// Type bits of its mode, shifted right by 12.
    pub kind: u8,
    /// Name.
    pub name: Vec<u8>,
}

/// Layout of [`Dirent`].
pub static LAYOUT: Layout =
    Layout::new("dirent", &[("inode", 0, 8), ("kind", 8, 1), ("length", 9, 1)], &["name"]);

/// True if `name` may be the name of an entry.
#[must_use]
pub fn name_is_valid(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX
        && name != b"."
        && name != b".."
        && !name.contains(&0)
        && !name.contains(&b'/')
}

/// Types: fifo, character device, directory, block device, regular file, symbolic link, socket.
pub(crate) const KINDS: [u8; 7] = [1, 2, 4, 6, 8, 10, 12];

impl Dirent {
    /// The entry's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(name_is_valid(&self.name) && self.inode.0 != 0 && KINDS.contains(&self.kind));
        let length = u8::try_from(self.name.len()).expect("at most 255");
        let mut out = Encoder::new(&LAYOUT);
        out.u64("inode", self.inode.0).u8("kind", self.kind).u8("length", length);
        out.tail("name", &self.name).finish()
    }

    /// Reads an entry.
    pub fn decode(bytes: &[u8]) -> Result<Dirent, DecodeError> {
        DirentView::decode(bytes).map(|DirentView { inode, kind, name }| Dirent {
            inode,
            kind,
            name: name.to_vec(),
        })
    }
}

/// An entry whose name stays where it is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DirentView<'b> {
    /// The inode it leads to.
    pub inode: InodeId,
    /// Type bits of its mode, shifted right by 12.
    pub kind: u8,
    /// Name.
    pub name: &'b [u8],
}

impl<'b> DirentView<'b> {
    /// Reads an entry.
    pub fn decode(bytes: &'b [u8]) -> Result<DirentView<'b>, DecodeError> {
        // Past the decoder where nothing is wrong: a listing reads thousands.
        if let Some(([number @ .., kind, length], name)) = bytes.split_first_chunk::<10>() {
            let inode = InodeId(u64::from_le_bytes(*number));
            let is_right = inode.is_valid() && KINDS.contains(kind) && name.len() == usize::from(*length);
            if is_right && name_is_valid(name) {
                return Ok(DirentView { inode, kind: *kind, name });
            }
        }
        DirentView::decode_by_layout(bytes)
    }

    /// The same by the table, which tells what is wrong.
    fn decode_by_layout(bytes: &'b [u8]) -> Result<DirentView<'b>, DecodeError> {
        let mut from = Decoder::new(&LAYOUT, bytes)?;
        let (inode, kind, length) = (from.u64("inode"), from.u8("kind"), from.u8("length"));
        if !InodeId(inode).is_valid() {
            return Err(from.refuse("inode", inode));
        }
        if !KINDS.contains(&kind) {
            return Err(from.refuse("kind", kind));
        }
        let name = from.tail("name", length.into())?;
        if !name_is_valid(name) {
            return Err(from.refuse("length", length));
        }
        from.finish()?;
        Ok(DirentView { inode: InodeId(inode), kind, name })
    }
}

/// Head of a names tree.
///
/// | off | len | field      | meaning                                                |
/// |-----|-----|------------|--------------------------------------------------------|
/// |   0 |  16 | seed       | random; keys the hash of names                         |
/// |  16 |   8 | next_inode | number the next inode gets                             |
/// |  24 |   8 | inodes     | inodes in the tree                                     |
/// |  32 |  32 | reserved   | zero                                                   |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NamesHead {
    /// Keys the hash of names.
    pub seed: [u8; 16],
    /// Number the next inode gets.
    pub next_inode: InodeId,
    /// Inodes in the tree, orphans included.
    pub inodes: u64,
}

/// Layout of [`NamesHead`].
pub static HEAD_LAYOUT: Layout = Layout::new(
    "names_head",
    &[("seed", 0, 16), ("next_inode", 16, 8), ("inodes", 24, 8), ("reserved", 32, 32)],
    &[],
);

impl NamesHead {
    /// The head's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new(&HEAD_LAYOUT);
        out.bytes("seed", &self.seed).u64("next_inode", self.next_inode.0).u64("inodes", self.inodes);
        out.reserved().finish()
    }

    /// Reads a head.
    pub fn decode(bytes: &[u8]) -> Result<NamesHead, DecodeError> {
        let mut from = Decoder::new(&HEAD_LAYOUT, bytes)?;
        let seed = from.array("seed");
        let (next_inode, inodes) = (InodeId(from.u64("next_inode")), from.u64("inodes"));
        from.reserved()?;
        if !(2..=InodeId::FILES_END).contains(&next_inode.0) {
            return Err(from.refuse("next_inode", next_inode.0));
        }
        from.finish()?;
        Ok(NamesHead { seed, next_inode, inodes })
    }
}

/// Any bytes: what is accepted encodes to what it came from.
pub fn fuzz(bytes: &[u8]) {
    assert_eq!(DirentView::decode(bytes), DirentView::decode_by_layout(bytes));
    if let Ok(entry) = Dirent::decode(bytes) {
        assert_eq!(entry.encode(), bytes);
    }
    if let Ok(head) = NamesHead::decode(bytes) {
        assert_eq!(head.encode(), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_keys::tests::from_hex;

    #[test]
    fn the_hash_is_siphash_2_4_of_its_paper() {
        let seed = std::array::from_fn(|at| u8::try_from(at).expect("small"));
        let input: Vec<u8> = (0..15).collect();
        assert_eq!(sip_hash(&seed, &input), 0xa129_ca61_49be_45e5);
        let cookie = first_cookie(&seed, &input);
        assert!(cookie > COOKIE_RESERVED && cookie < 1 << 63 && cookie.is_multiple_of(PROBES));
    }

    #[test]
    fn golden_entry_and_head_decode_and_encode_to_the_same_bytes() {
        let golden = from_hex(include_str!("../golden/dirent.v1.hex"));
        let entry = Dirent { inode: InodeId(258), kind: 8, name: b"hello".to_vec() };
        assert_eq!(Dirent::decode(&golden), Ok(entry.clone()));
        assert_eq!(entry.encode(), golden);
        let golden = from_hex(include_str!("../golden/names_head.v1.hex"));
        let head = NamesHead { seed: [0xab; 16], next_inode: InodeId(300), inodes: 12 };
        assert_eq!(NamesHead::decode(&golden), Ok(head));
        assert_eq!(head.encode(), golden);
    }

    #[test]
    fn names_that_would_mislead_are_refused() {
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert!(!name_is_valid(name));
            let mut bytes = vec![1, 0, 0, 0, 0, 0, 0, 0, 8, u8::try_from(name.len()).expect("short")];
            bytes.extend_from_slice(name);
            assert!(Dirent::decode(&bytes).is_err(), "{name:?}");
        }
    }
}
