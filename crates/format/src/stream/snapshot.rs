//! The two frames around each snapshot of a stream: its begin and its end.

use super::assignments::{assigned, assignments};
use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, InodeId};

/// The snapshot that follows.
///
/// | off | len | field        | meaning |
/// |-----|-----|--------------|---|
/// |   0 |   8 | guid         | of the snapshot, not 0 |
/// |   8 |   8 | base         | guid of the snapshot that it builds upon; 0: it is complete |
/// |  16 |   8 | created_ns   | wall time of its creation |
/// |  24 |   8 | bytes        | about what its content comes to in the stream |
/// |  32 |  16 | hash_seed    | key of the hash that orders its directories |
/// |  48 |   8 | inode        | resumed: content before (inode, offset) is left out, and names; 0: nothing is |
/// |  56 |   8 | offset       | resumed: see above |
/// |  64 |   1 | flags        | bit 0: with properties; bit 1: resumed; bit 2: raw; bit 3: of a volume; bit 4: of a clone; bit 5: packed |
/// |  65 |   1 | reserved     | zero |
/// |  66 |   2 | name_len     | length of the name |
/// |  68 |   4 | props_len    | length of the properties |
/// |  72 |  24 | reserved     | zero |
/// |  96 |     | name         | full name of the snapshot where it was, UTF-8 |
/// |     |     | props        | properties: `name=value`, each followed by a zero byte, UTF-8 |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamBegin {
    /// Names the snapshot wherever it goes.
    pub guid: u64,
    /// Guid of the base; 0 is none.
    pub base: u64,
    /// Wall time of its creation.
    pub created_ns: u64,
    /// Content in the stream, about.
    pub bytes: u64,
    /// Key of the hash that orders directories.
    pub hash_seed: [u8; 16],
    /// Where content begins, if not at its beginning: inode (0: at its beginning) and offset.
    pub position: (InodeId, u64),
    /// It continues a receive that was interrupted.
    pub resumed: bool,
    /// Its blocks come as they are sealed.
    pub raw: bool,
    /// It comes with the properties of its file system.
    pub with_properties: bool,
    /// It is of a volume.
    pub volume: bool,
    /// Its base is a snapshot of another dataset, of which it is a clone.
    pub clone: bool,
    /// Its content comes in packed records.
    pub packed: bool,
    /// Full name where it was.
    pub name: String,
    /// Names and values of properties.
    pub properties: Vec<(String, String)>,
}

impl StreamBegin {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "stream_begin",
        &[
            ("guid", 0, 8),
            ("base", 8, 8),
            ("created_ns", 16, 8),
            ("bytes", 24, 8),
            ("hash_seed", 32, 16),
            ("inode", 48, 8),
            ("offset", 56, 8),
            ("flags", 64, 1),
            ("reserved", 65, 1),
            ("name_len", 66, 2),
            ("props_len", 68, 4),
            ("reserved", 72, 24),
        ],
        &["name", "props"],
    );
    /// Longest text of properties.
    pub const PROPS_MAX: u32 = 1 << 20;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.guid != 0 && !(self.raw && self.packed));
        let props = assignments(self.properties.iter().map(|(name, value)| (name, value)));
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("guid", self.guid).u64("base", self.base).u64("created_ns", self.created_ns);
        out.u64("bytes", self.bytes).bytes("hash_seed", &self.hash_seed);
        out.u64("inode", self.position.0.0).u64("offset", self.position.1);
        let flags = u8::from(self.with_properties) | u8::from(self.resumed) << 1;
        let flags = flags | u8::from(self.raw) << 2 | u8::from(self.volume) << 3;
        out.u8("flags", flags | u8::from(self.clone) << 4 | u8::from(self.packed) << 5).reserved();
        out.u16("name_len", u16::try_from(self.name.len()).expect("names are short"));
        out.u32("props_len", u32::try_from(props.len()).expect("properties are short")).reserved();
        out.tail("name", self.name.as_bytes()).tail("props", &props).finish()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<StreamBegin, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let guid = from.u64("guid");
        if guid == 0 {
            return Err(from.refuse("guid", 0u64));
        }
        let base = from.u64("base");
        if base == guid {
            return Err(from.refuse("base", base));
        }
        let (created_ns, bytes) = (from.u64("created_ns"), from.u64("bytes"));
        let hash_seed = from.array("hash_seed");
        let position = (InodeId(from.u64("inode")), from.u64("offset"));
        if position.0.0 >= InodeId::END {
            return Err(from.refuse("inode", position.0.0));
        }
        if position.0.0 == 0 && position.1 != 0 {
            return Err(from.refuse("offset", position.1));
        }
        let flags = from.u8("flags");
        let resumed = flags & 2 != 0;
        let contradicts = (flags & 16 != 0 && base == 0) || flags & 36 == 36;
        if flags > 63 || contradicts || (position.0.0 != 0 && !resumed) {
            return Err(from.refuse("flags", flags));
        }
        from.reserved()?;
        let name_len = from.u16("name_len");
        let props_len = from.u32("props_len");
        if props_len > Self::PROPS_MAX || (flags & 1 == 0 && props_len != 0) {
            return Err(from.refuse("props_len", props_len));
        }
        from.reserved()?;
        let name = from.tail_text("name", name_len.into())?;
        let text = from.tail_text("props", props_len as usize)?;
        let bad = || DecodeError::Text { structure: "stream_begin", field: "props" };
        let properties = assigned(&text).ok_or_else(bad)?;
        from.finish()?;
        let (with_properties, raw) = (flags & 1 != 0, flags & 4 != 0);
        Ok(StreamBegin {
            guid,
            base,
            created_ns,
            bytes,
            hash_seed,
            position,
            resumed,
            raw,
            with_properties,
            volume: flags & 8 != 0,
            clone: flags & 16 != 0,
            packed: flags & 32 != 0,
            name,
            properties,
        })
    }
}

/// A snapshot is complete.
///
/// | off | len | field    | meaning                                                            |
/// |-----|-----|----------|--------------------------------------------------------------------|
/// |   0 |   8 | guid     | of the snapshot that ends                                          |
/// |   8 |   8 | frames   | frames since its begin, this one and that one included             |
/// |  16 |  16 | reserved | zero                                                               |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StreamEnd {
    /// Of the snapshot.
    pub guid: u64,
    /// Frames that it took.
    pub frames: u64,
}

impl StreamEnd {
    /// Offsets and lengths.
    pub const LAYOUT: Layout =
        Layout::new("stream_end", &[("guid", 0, 8), ("frames", 8, 8), ("reserved", 16, 16)], &[]);

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("guid", self.guid).u64("frames", self.frames).reserved().finish()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<StreamEnd, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let end = StreamEnd { guid: from.u64("guid"), frames: from.u64("frames") };
        if end.guid == 0 {
            return Err(from.refuse("guid", 0u64));
        }
        from.reserved()?;
        from.finish()?;
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin() -> StreamBegin {
        StreamBegin {
            guid: 7,
            base: 6,
            created_ns: 5,
            bytes: 4,
            hash_seed: [3; 16],
            position: (InodeId(2), 1),
            resumed: true,
            raw: false,
            with_properties: true,
            volume: true,
            clone: true,
            packed: true,
            name: "tank/home@monday".into(),
            properties: vec![("compression".into(), "zstd".into()), ("org:note".into(), "a=b".into())],
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_cut_it_is_not() {
        let bytes = begin().encode();
        assert_eq!(StreamBegin::decode(&bytes), Ok(begin()));
        for end in 0..bytes.len() {
            assert!(StreamBegin::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        let end = StreamEnd { guid: 3, frames: 4 };
        assert_eq!(StreamEnd::decode(&end.encode()), Ok(end));
    }

    #[test]
    fn a_snapshot_is_raw_or_packed() {
        let both = StreamBegin { raw: true, packed: false, ..begin() };
        let mut bytes = both.encode();
        assert_eq!(StreamBegin::decode(&bytes), Ok(both));
        bytes[64] |= 32;
        assert!(StreamBegin::decode(&bytes).is_err());
    }
}
