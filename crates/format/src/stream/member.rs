//! The list of file systems at the head of a stream of a tree (`send -R`).

use crate::DecodeError;
use crate::layout::{Decoder, Encoder, Layout};

/// A file system of the tree that a stream is of, and the snapshots that it has where the stream
/// comes from.
///
/// | off | len | field     | meaning |
/// |-----|-----|-----------|---|
/// |   0 |   1 | flags     | bit 0: it is left out of the stream, with all below it |
/// |   1 |   1 | reserved  | zero |
/// |   2 |   2 | name_len  | length of its name, not 0 |
/// |   4 |   4 | snapshots | how many follow |
/// |   8 |   8 | reserved  | zero |
/// |  16 |     | name      | its full name, UTF-8 |
/// |     |     | snapshot ... | eight bytes of guid, not 0; two bytes of length, not 0; then the name behind the `@`, UTF-8; oldest first |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamMember {
    /// It is left out, with all below it.
    pub left_out: bool,
    /// Full name.
    pub name: String,
    /// Guids and names of its snapshots, oldest first.
    pub snapshots: Vec<(u64, String)>,
}

impl StreamMember {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "stream_member",
        &[("flags", 0, 1), ("reserved", 1, 1), ("name_len", 2, 2), ("snapshots", 4, 4), ("reserved", 8, 8)],
        &["name", "snapshot"],
    );
    /// Bytes that all members of a stream have at most.
    pub const ALL_MAX: usize = 64 << 20;

    /// Bytes that it is encoded in.
    #[must_use]
    pub fn size(&self) -> usize {
        let snapshots = self.snapshots.iter().map(|(_, name)| name.len() + 10).sum::<usize>();
        Self::LAYOUT.size() + self.name.len() + snapshots
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let length = |text: &str| u16::try_from(text.len()).expect("names are short");
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u8("flags", u8::from(self.left_out)).reserved().u16("name_len", length(&self.name));
        out.u32("snapshots", u32::try_from(self.snapshots.len()).expect("a frame holds them")).reserved();
        let mut snapshots = Vec::new();
        for (guid, name) in &self.snapshots {
            assert!(*guid != 0 && !name.is_empty());
            snapshots.extend_from_slice(&guid.to_le_bytes());
            snapshots.extend_from_slice(&length(name).to_le_bytes());
            snapshots.extend_from_slice(name.as_bytes());
        }
        out.tail("name", self.name.as_bytes()).tail("snapshot", &snapshots).finish()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<StreamMember, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let flags = from.u8("flags");
        if flags > 1 {
            return Err(from.refuse("flags", flags));
        }
        from.reserved()?;
        let name_len = from.u16("name_len");
        if name_len == 0 {
            return Err(from.refuse("name_len", name_len));
        }
        let count = from.u32("snapshots");
        from.reserved()?;
        let name = from.tail_text("name", name_len.into())?;
        let mut rest = from.tail("snapshot", from.rest().len())?;
        let bad = |from: &Decoder<'_>| from.refuse("snapshots", count);
        let mut snapshots: Vec<(u64, String)> = Vec::new();
        while !rest.is_empty() {
            let Some((guid, tail)) = rest.split_first_chunk::<8>() else { return Err(bad(&from)) };
            let Some((length, tail)) = tail.split_first_chunk::<2>() else { return Err(bad(&from)) };
            let (guid, length) = (u64::from_le_bytes(*guid), usize::from(u16::from_le_bytes(*length)));
            let Some((name, tail)) = tail.split_at_checked(length) else { return Err(bad(&from)) };
            let Ok(name) = std::str::from_utf8(name) else { return Err(bad(&from)) };
            if guid == 0 || name.is_empty() {
                return Err(bad(&from));
            }
            snapshots.push((guid, name.to_owned()));
            rest = tail;
        }
        if snapshots.len() != count as usize {
            return Err(bad(&from));
        }
        from.finish()?;
        Ok(StreamMember { left_out: flags == 1, name, snapshots })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_back_and_have_one_form() {
        let member = StreamMember {
            left_out: false,
            name: "tank/home".into(),
            snapshots: vec![(3, "b".into()), (1, "a".into()), (7, "c".repeat(250))],
        };
        let bytes = member.encode();
        assert_eq!((bytes.len(), StreamMember::decode(&bytes)), (member.size(), Ok(member.clone())));
        for end in 0..bytes.len() {
            assert!(StreamMember::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        for other in [
            StreamMember { left_out: true, ..member.clone() },
            StreamMember { snapshots: Vec::new(), ..member.clone() },
        ] {
            assert_eq!(StreamMember::decode(&other.encode()), Ok(other));
        }
        // Another flag, no name, another count, a guid of 0, a name of a snapshot that is none or
        // no text; and something behind it.
        let first = StreamMember::LAYOUT.size() + "tank/home".len();
        for (at, byte) in
            [(0, 2), (1, 1), (2, 0), (4, 2), (8, 1), (first, 0), (first + 8, 0), (first + 10, 0xff)]
        {
            let mut bad = bytes.clone();
            bad[at] = byte;
            assert!(StreamMember::decode(&bad).is_err(), "byte {at}");
        }
        assert!(StreamMember::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}
