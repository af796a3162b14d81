//! The encoding of the streams that `send` writes and `receive` reads. FORMAT.md, part "Streams".
//!
//! A frame is like ZFS's `dmu_replay_record`, but the bytes are our own: ZFS does not read them.
//!
//! This room lays bytes out; whoever reads or writes a stream makes the hashes.

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::{Decoder, Encoder, Layout};
use crate::{BlockPointer, Compression, DecodeError, InodeId};

const MAGIC: &[u8; 8] = b"SFstream";

/// What a stream begins with.
///
/// | off | len | field    | meaning                                                            |
/// |-----|-----|----------|--------------------------------------------------------------------|
/// |   0 |   8 | magic    | "SFstream"                                                         |
/// |   8 |   4 | version  | 1                                                                  |
/// |  12 |   4 | flags    | bit 0: with packed records; bit 1: with notes; bit 2: with repeated content; bit 3: with members; bit 4: with what raw snapshots keep; a reader that does not know a bit refuses the stream |
/// |  16 |  48 | reserved | zero                                                               |
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StreamHeader {
    /// Content of some of its snapshots comes in packed records.
    pub packed: bool,
    /// Some of its snapshots come with notes.
    pub notes: bool,
    /// Content that came before may be named instead of sent again.
    pub repeats: bool,
    /// It begins with the file systems of the tree that it is of.
    pub members: bool,
    /// Some of its raw snapshots say what they keep, and not what is gone.
    pub kept: bool,
}

impl StreamHeader {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "stream_header",
        &[("magic", 0, 8), ("version", 8, 4), ("flags", 12, 4), ("reserved", 16, 48)],
        &[],
    );
    /// Its length.
    pub const SIZE: usize = 64;
    /// Version written here.
    pub const VERSION: u32 = 1;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", MAGIC).u32("version", Self::VERSION);
        let flags = u32::from(self.packed) | u32::from(self.notes) << 1 | u32::from(self.repeats) << 2;
        let flags = flags | u32::from(self.members) << 3 | u32::from(self.kept) << 4;
        out.u32("flags", flags).reserved().finish_array()
    }

    /// True if these bytes, or what follows them, may be one.
    #[must_use]
    pub fn may_begin(bytes: &[u8]) -> bool {
        MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())])
    }

    /// Reads it.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<StreamHeader, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        if from.bytes("magic", 8) != MAGIC {
            return Err(DecodeError::Magic { structure: "stream_header" });
        }
        let found = from.u32("version");
        if found == 0 || found > Self::VERSION {
            return Err(DecodeError::Version { structure: "stream_header", found, known: Self::VERSION });
        }
        let flags = from.u32("flags");
        if flags > 31 {
            return Err(from.refuse("flags", flags));
        }
        from.reserved()?;
        from.finish()?;
        Ok(StreamHeader {
            packed: flags & 1 != 0,
            notes: flags & 2 != 0,
            repeats: flags & 4 != 0,
            members: flags & 8 != 0,
            kept: flags & 16 != 0,
        })
    }
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum FrameKind {
    /// [`StreamBegin`]: a snapshot begins.
    Begin = 1,
    /// Log records of the names tree and of inodes.
    Names = 2,
    /// Log records of content, by inode and offset.
    Content = 3,
    /// [`StreamEnd`]: the snapshot is complete.
    End = 5,
    /// Nothing follows.
    Close = 6,
    /// [`StreamSpan`]: all keys there are between two keys.
    Span = 7,
    /// [`RawRoots`](crate::raw::RawRoots) of a raw snapshot.
    RawRoots = 8,
    /// Stamps of blocks that a raw snapshot has no more ([`RawGone`](crate::raw::RawGone)).
    RawGone = 9,
    /// Sealed blocks, each behind a [`RawBlock`](crate::raw::RawBlock).
    RawBlocks = 10,
    /// Content by inode and offset, as [`PackedRecord`]s.
    Packed = 11,
    /// [`StreamNotes`]: what is noted on the snapshot that began.
    Notes = 12,
    /// Content by inode and offset, as [`Repeat`]s of what came before.
    Repeats = 13,
    /// [`StreamMember`]: a file system of the tree that the stream is of.
    Member = 14,
    /// Blocks that a raw snapshot still has of what its base had ([`RawKept`](crate::raw::RawKept)).
    RawKept = 15,
}

/// What stands before each frame's payload.
///
/// | off | len | field    | meaning                                                            |
/// |-----|-----|----------|--------------------------------------------------------------------|
/// |   0 |   1 | kind     | 1 begin, 2 names, 3 content, 5 end, 6 close, 7 span, 8 raw roots, 9 raw gone, 10 raw blocks, 11 packed, 12 notes, 13 repeats, 14 member, 15 raw kept |
/// |   1 |   3 | reserved | zero                                                               |
/// |   4 |   4 | length   | bytes of the payload                                               |
/// |   8 |  32 | hash     | BLAKE3 of the hash before, bytes 0 to 7, and the payload           |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameHeader {
    /// What it holds.
    pub kind: FrameKind,
    /// Bytes of its payload.
    pub length: u32,
    /// Link of the chain.
    pub hash: [u8; 32],
}

impl FrameHeader {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "stream_frame",
        &[("kind", 0, 1), ("reserved", 1, 3), ("length", 4, 4), ("hash", 8, 32)],
        &[],
    );
    /// Its length.
    pub const SIZE: usize = 40;
    /// Bytes that the hash covers besides the payload and the hash before.
    pub const BOUND_SIZE: usize = 8;
    /// Longest payload.
    pub const PAYLOAD_MAX: u32 = 17 << 20;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        assert!(self.length <= Self::PAYLOAD_MAX);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u8("kind", self.kind as u8).reserved().u32("length", self.length);
        out.bytes("hash", &self.hash).finish_array()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<FrameHeader, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let kind = match from.u8("kind") {
            1 => FrameKind::Begin,
            2 => FrameKind::Names,
            3 => FrameKind::Content,
            5 => FrameKind::End,
            6 => FrameKind::Close,
            7 => FrameKind::Span,
            8 => FrameKind::RawRoots,
            9 => FrameKind::RawGone,
            10 => FrameKind::RawBlocks,
            11 => FrameKind::Packed,
            12 => FrameKind::Notes,
            13 => FrameKind::Repeats,
            14 => FrameKind::Member,
            15 => FrameKind::RawKept,
            other => return Err(from.refuse("kind", other)),
        };
        from.reserved()?;
        let length = from.u32("length");
        if length > Self::PAYLOAD_MAX {
            return Err(from.refuse("length", length));
        }
        let hash = from.array("hash");
        from.finish()?;
        Ok(FrameHeader { kind, length, hash })
    }
}

/// The snapshot that follows.
///
/// | off | len | field        | meaning                                                        |
/// |-----|-----|--------------|----------------------------------------------------------------|
/// |   0 |   8 | guid         | of the snapshot, not 0                                         |
/// |   8 |   8 | base         | guid of the snapshot that it builds upon; 0: it is complete    |
/// |  16 |   8 | created_ns   | wall time of its creation                                      |
/// |  24 |   8 | bytes        | about what its content comes to in the stream                  |
/// |  32 |  16 | hash_seed    | key of the hash that orders its directories                    |
/// |  48 |   8 | inode        | resumed: content before (inode, offset) is left out, and names; 0: nothing is |
/// |  56 |   8 | offset       | resumed: see above                                             |
/// |  64 |   1 | flags        | bit 0: with properties; bit 1: resumed; bit 2: raw; bit 3: of a volume; bit 4: of a clone; bit 5: packed |
/// |  65 |   1 | reserved     | zero                                                           |
/// |  66 |   2 | name_len     | length of the name                                             |
/// |  68 |   4 | props_len    | length of the properties                                       |
/// |  72 |  24 | reserved     | zero                                                           |
/// |  96 |     | name         | full name of the snapshot where it was, UTF-8                  |
/// |     |     | props        | properties: `name=value`, each followed by a zero byte, UTF-8  |
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
    /// What was received before is gone on with.
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

/// Properties as text: `name=value`, each followed by a zero byte.
fn assignments<'p>(properties: impl Iterator<Item = (&'p String, &'p String)>) -> Vec<u8> {
    let mut text = Vec::new();
    for (name, value) in properties {
        assert!(!name.contains(['=', '\0']) && !value.contains('\0'));
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        text.push(0);
    }
    text
}

/// Reads such a text; `None` if it is none.
fn assigned(text: &str) -> Option<Vec<(String, String)>> {
    let mut properties = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (one, tail) = rest.split_once('\0')?;
        let (name, value) = one.split_once('=').filter(|(name, _)| !name.is_empty())?;
        properties.push((name.to_owned(), value.to_owned()));
        rest = tail;
    }
    Some(properties)
}

/// A file system of the tree that a stream is of, and the snapshots that it has where the stream comes from.
///
/// | off | len | field     | meaning                                                           |
/// |-----|-----|-----------|-------------------------------------------------------------------|
/// |   0 |   1 | flags     | bit 0: it is left out of the stream, with all below it            |
/// |   1 |   1 | reserved  | zero                                                              |
/// |   2 |   2 | name_len  | length of its name, not 0                                         |
/// |   4 |   4 | snapshots | how many follow                                                   |
/// |   8 |   8 | reserved  | zero                                                              |
/// |  16 |     | name      | its full name, UTF-8                                              |
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

/// What is noted on the snapshot that began: properties of users, and tags that hold it, 1,024 of each at most. One that notes nothing is not sent.
///
/// | off | len | field     | meaning                                                           |
/// |-----|-----|-----------|-------------------------------------------------------------------|
/// |   0 |   4 | props_len | length of the properties, at most 2^16                            |
/// |   4 |   4 | tags_len  | length of the tags, at most 2^16; not 0 if there are no properties |
/// |   8 |   8 | reserved  | zero                                                              |
/// |  16 |     | props     | `name=value`, each followed by a zero byte, UTF-8; names ascending |
/// |     |     | tags      | each followed by a zero byte, UTF-8; ascending                    |
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StreamNotes {
    /// Properties of users.
    pub properties: BTreeMap<String, String>,
    /// Tags that hold it.
    pub tags: BTreeSet<String>,
}

impl StreamNotes {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "stream_notes",
        &[("props_len", 0, 4), ("tags_len", 4, 4), ("reserved", 8, 8)],
        &["props", "tags"],
    );
    /// Longest text of properties, and of tags.
    pub const TEXT_MAX: u32 = 1 << 16;
    /// Most properties, and tags: each is an item where it is stored, however short it is.
    pub const COUNT_MAX: usize = 1 << 10;

    /// True if nothing is noted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.properties.is_empty() && self.tags.is_empty()
    }

    /// True if it is no more than a frame of notes may hold.
    #[must_use]
    pub fn fits(&self) -> bool {
        let props = self.properties.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
        let tags = self.tags.iter().map(|tag| tag.len() + 1).sum::<usize>();
        let count = self.properties.len().max(self.tags.len());
        props.max(tags) <= Self::TEXT_MAX as usize && count <= Self::COUNT_MAX
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(!self.is_empty() && self.fits());
        let props = assignments(self.properties.iter());
        let mut tags = Vec::new();
        for tag in &self.tags {
            assert!(!tag.is_empty() && !tag.contains('\0'));
            tags.extend_from_slice(tag.as_bytes());
            tags.push(0);
        }
        let length = |text: &[u8]| u32::try_from(text.len()).expect("it fits");
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u32("props_len", length(&props)).u32("tags_len", length(&tags)).reserved();
        out.tail("props", &props).tail("tags", &tags).finish()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<StreamNotes, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let (props_len, tags_len) = (from.u32("props_len"), from.u32("tags_len"));
        if props_len > Self::TEXT_MAX {
            return Err(from.refuse("props_len", props_len));
        }
        if tags_len > Self::TEXT_MAX || props_len == 0 && tags_len == 0 {
            return Err(from.refuse("tags_len", tags_len));
        }
        from.reserved()?;
        let bad = |field| DecodeError::Text { structure: "stream_notes", field };
        let properties = assigned(&from.tail_text("props", props_len as usize)?);
        let properties = properties.ok_or_else(|| bad("props"))?;
        let is_sorted = properties.is_sorted_by(|(one, _), (next, _)| one < next);
        if !is_sorted || properties.len() > Self::COUNT_MAX {
            return Err(bad("props"));
        }
        let text = from.tail_text("tags", tags_len as usize)?;
        from.finish()?;
        let mut tags: BTreeSet<String> = BTreeSet::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (tag, tail) = rest.split_once('\0').ok_or_else(|| bad("tags"))?;
            let is_behind = tags.last().is_none_or(|last| last.as_str() < tag);
            if tag.is_empty() || !is_behind || tags.len() == Self::COUNT_MAX {
                return Err(bad("tags"));
            }
            tags.insert(tag.to_owned());
            rest = tail;
        }
        Ok(StreamNotes { properties: properties.into_iter().collect(), tags })
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

/// All keys that a tree has from one key up to another: what else the base has there is gone.
///
/// | off | len | field    | meaning                                                            |
/// |-----|-----|----------|--------------------------------------------------------------------|
/// |   0 |   1 | tree     | 1 names, 2 extents                                                 |
/// |   1 |   1 | reserved | zero                                                               |
/// |   2 |   2 | from_len | length of the first key                                            |
/// |   4 |   2 | to_len   | length of the key before which it ends; 0: at the end of the tree  |
/// |   6 |   2 | reserved | zero                                                               |
/// |   8 |   4 | keys     | how many keys follow                                               |
/// |  12 |   4 | reserved | zero                                                               |
/// |  16 |     | from     | the first key                                                      |
/// |     |     | to       | the key before which it ends                                       |
/// |     |     | key ...  | two bytes of length, then a key; ascending                         |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamSpan {
    /// Of the extents tree; else of the names tree.
    pub extents: bool,
    /// First key.
    pub from: Vec<u8>,
    /// Key before which it ends; empty: at the end of the tree.
    pub to: Vec<u8>,
    /// All there are.
    pub keys: Vec<Vec<u8>>,
}

impl StreamSpan {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "stream_span",
        &[
            ("tree", 0, 1),
            ("reserved", 1, 1),
            ("from_len", 2, 2),
            ("to_len", 4, 2),
            ("reserved", 6, 2),
            ("keys", 8, 4),
            ("reserved", 12, 4),
        ],
        &["from", "to", "key"],
    );

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let short = |key: &[u8]| u16::try_from(key.len()).expect("keys are short");
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u8("tree", if self.extents { 2 } else { 1 }).reserved();
        out.u16("from_len", short(&self.from)).u16("to_len", short(&self.to)).reserved();
        out.u32("keys", u32::try_from(self.keys.len()).expect("a leaf has few")).reserved();
        let mut keys = Vec::new();
        for key in &self.keys {
            keys.extend_from_slice(&short(key).to_le_bytes());
            keys.extend_from_slice(key);
        }
        out.tail("from", &self.from).tail("to", &self.to).tail("key", &keys).finish()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<StreamSpan, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let extents = match from.u8("tree") {
            1 => false,
            2 => true,
            other => return Err(from.refuse("tree", other)),
        };
        from.reserved()?;
        let (from_len, to_len) = (from.u16("from_len"), from.u16("to_len"));
        from.reserved()?;
        let count = from.u32("keys");
        from.reserved()?;
        let first = from.tail("from", from_len.into())?.to_vec();
        let to = from.tail("to", to_len.into())?.to_vec();
        if !to.is_empty() && to <= first {
            return Err(from.refuse("to_len", to_len));
        }
        let mut rest = from.tail("key", from.rest().len())?;
        let bad = |from: &Decoder<'_>| from.refuse("keys", count);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while !rest.is_empty() {
            let Some((length, tail)) = rest.split_first_chunk::<2>() else { return Err(bad(&from)) };
            let length = usize::from(u16::from_le_bytes(*length));
            let Some((key, tail)) = tail.split_at_checked(length) else { return Err(bad(&from)) };
            let inside = key >= &first[..] && (to.is_empty() || key < &to[..]);
            if !inside || keys.last().is_some_and(|last| &last[..] >= key) {
                return Err(bad(&from));
            }
            keys.push(key.to_vec());
            rest = tail;
        }
        if keys.len() != count as usize {
            return Err(bad(&from));
        }
        from.finish()?;
        Ok(StreamSpan { extents, from: first, to, keys })
    }
}

/// Stands before the bytes of each record in a frame *packed*.
///
/// | off | len | field       | meaning                                                           |
/// |-----|-----|-------------|-------------------------------------------------------------------|
/// |   0 |   8 | inode       | file, not 0                                                       |
/// |   8 |   8 | offset      | where the record's bytes begin in it                              |
/// |  16 |   4 | lsize       | bytes after decompression: 1 to 2^24                              |
/// |  20 |   4 | psize       | how many bytes follow: below lsize, or lsize if not compressed    |
/// |  24 |   1 | compression | as in the block pointer                                           |
/// |  25 |   7 | reserved    | zero                                                              |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PackedRecord {
    /// File.
    pub inode: InodeId,
    /// Where its bytes begin.
    pub offset: u64,
    /// Bytes after decompression.
    pub lsize: u32,
    /// Bytes that follow.
    pub psize: u32,
    /// How they are compressed.
    pub compression: Compression,
}

impl PackedRecord {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "packed_record",
        &[
            ("inode", 0, 8),
            ("offset", 8, 8),
            ("lsize", 16, 4),
            ("psize", 20, 4),
            ("compression", 24, 1),
            ("reserved", 25, 7),
        ],
        &[],
    );
    /// Its length.
    pub const SIZE: usize = 32;
    /// Most bytes that the records of one frame come to after decompression.
    pub const PLAIN_MAX: u64 = FrameHeader::PAYLOAD_MAX as u64;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        assert!(self.inode.0 != 0 && (1..=BlockPointer::LSIZE_MAX).contains(&self.lsize));
        assert!(self.is_sized() && self.end().is_some());
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("inode", self.inode.0).u64("offset", self.offset).u32("lsize", self.lsize);
        out.u32("psize", self.psize).u8("compression", self.compression as u8).reserved().finish_array()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<PackedRecord, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let inode = InodeId(from.u64("inode"));
        if inode.0 == 0 {
            return Err(from.refuse("inode", 0u64));
        }
        let (offset, lsize, psize) = (from.u64("offset"), from.u32("lsize"), from.u32("psize"));
        if !(1..=BlockPointer::LSIZE_MAX).contains(&lsize) {
            return Err(from.refuse("lsize", lsize));
        }
        let compression = Compression::from_u8(from.u8("compression"))?;
        let record = PackedRecord { inode, offset, lsize, psize, compression };
        if !record.is_sized() {
            return Err(from.refuse("psize", psize));
        }
        if record.end().is_none() {
            return Err(from.refuse("offset", offset));
        }
        from.reserved()?;
        Ok(record)
    }

    /// Where its bytes end in the file, if there is such a place.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.lsize.into()).filter(|end| *end <= i64::MAX as u64)
    }

    /// True if there are as many bytes as there may be with its compression.
    #[must_use]
    pub fn is_sized(&self) -> bool {
        match self.compression {
            Compression::Off => self.psize == self.lsize,
            _ => (1..self.lsize).contains(&self.psize),
        }
    }
}

/// Content that the stream brought before: a frame *repeats* is some of these.
///
/// | off | len | field  | meaning                                                              |
/// |-----|-----|--------|----------------------------------------------------------------------|
/// |   0 |   8 | inode  | file, not 0                                                          |
/// |   8 |   8 | offset | where the bytes begin in it                                          |
/// |  16 |   8 | length | how many: 1 to 2^26                                                  |
/// |  24 |   8 | snapshot | that has them, by its place in the stream, from 1: this one, or one before |
/// |  32 |   8 | source | file that has them in that, not 0                                    |
/// |  40 |   8 | from   | where they begin in it                                               |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Repeat {
    /// File.
    pub inode: InodeId,
    /// Where the bytes begin in it.
    pub offset: u64,
    /// How many.
    pub length: u64,
    /// Snapshot that has them: the first of the stream is 1.
    pub snapshot: u64,
    /// File that has them.
    pub source: InodeId,
    /// Where they begin in that.
    pub from: u64,
}

impl Repeat {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "repeat",
        &[
            ("inode", 0, 8),
            ("offset", 8, 8),
            ("length", 16, 8),
            ("snapshot", 24, 8),
            ("source", 32, 8),
            ("from", 40, 8),
        ],
        &[],
    );
    /// Its length.
    pub const SIZE: usize = 48;
    /// Most bytes that one stands for.
    pub const LENGTH_MAX: u64 = 1 << 26;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        assert!(self.inode.0 != 0 && self.source.0 != 0 && self.snapshot != 0);
        assert!((1..=Self::LENGTH_MAX).contains(&self.length) && self.is_placed());
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("inode", self.inode.0).u64("offset", self.offset).u64("length", self.length);
        out.u64("snapshot", self.snapshot).u64("source", self.source.0).u64("from", self.from);
        out.finish_array()
    }

    /// Reads it off the front.
    pub fn decode(bytes: &[u8]) -> Result<Repeat, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let inode = InodeId(from.u64("inode"));
        if inode.0 == 0 {
            return Err(from.refuse("inode", 0u64));
        }
        let (offset, length) = (from.u64("offset"), from.u64("length"));
        if !(1..=Self::LENGTH_MAX).contains(&length) {
            return Err(from.refuse("length", length));
        }
        let snapshot = from.u64("snapshot");
        if snapshot == 0 {
            return Err(from.refuse("snapshot", 0u64));
        }
        let source = InodeId(from.u64("source"));
        if source.0 == 0 {
            return Err(from.refuse("source", 0u64));
        }
        let repeat = Repeat { inode, offset, length, snapshot, source, from: from.u64("from") };
        match repeat.is_placed() {
            true => Ok(repeat),
            false => Err(from.refuse("offset", offset)),
        }
    }

    /// True if another one says of the bytes behind its own that they are what lies behind its source.
    #[must_use]
    pub fn is_followed_by(&self, next: &Repeat) -> bool {
        let of = |repeat: &Repeat| (repeat.inode, repeat.snapshot, repeat.source);
        of(self) == of(next)
            && self.length + next.length <= Self::LENGTH_MAX
            && (self.offset + self.length, self.from + self.length) == (next.offset, next.from)
    }

    /// True if there are such places in files.
    fn is_placed(&self) -> bool {
        let is_place = |at: u64| at.checked_add(self.length).is_some_and(|end| end <= i64::MAX as u64);
        is_place(self.offset) && is_place(self.from)
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
        let span = StreamSpan { extents: true, from: vec![1], to: vec![9], keys: vec![vec![1, 2], vec![3]] };
        let bytes = span.encode();
        assert_eq!(StreamSpan::decode(&bytes), Ok(span.clone()));
        for end in 0..bytes.len() {
            assert!(StreamSpan::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        let outside = StreamSpan { keys: vec![vec![9]], ..span.clone() };
        assert!(StreamSpan::decode(&outside.encode()).is_err());
        let disorder = StreamSpan { keys: vec![vec![3], vec![2]], ..span };
        assert!(StreamSpan::decode(&disorder.encode()).is_err());
        let end = StreamEnd { guid: 3, frames: 4 };
        assert_eq!(StreamEnd::decode(&end.encode()), Ok(end));
        let frame = FrameHeader { kind: FrameKind::Content, length: 9, hash: [8; 32] };
        assert_eq!(FrameHeader::decode(&frame.encode()), Ok(frame));
    }

    #[test]
    fn another_version_and_unknown_flags_are_refused() {
        for flags in 0..32_u8 {
            let [packed, notes, repeats, members, kept] = [1, 2, 4, 8, 16].map(|bit| flags & bit != 0);
            let header = StreamHeader { packed, notes, repeats, members, kept };
            assert_eq!((header.encode()[12], StreamHeader::decode(&header.encode())), (flags, Ok(header)));
        }
        let bytes = StreamHeader::default().encode();
        assert_eq!(StreamHeader::decode(&bytes), Ok(StreamHeader::default()));
        let mut newer = bytes;
        newer[8] = 2;
        let error = StreamHeader::decode(&newer).unwrap_err();
        assert_eq!(error, DecodeError::Version { structure: "stream_header", found: 2, known: 1 });
        for at in [0, 12, 16, 63] {
            let mut bad = bytes;
            bad[at] ^= 32;
            assert!(StreamHeader::decode(&bad).is_err(), "byte {at}");
        }
        let frame = FrameHeader { kind: FrameKind::Close, length: 0, hash: [0; 32] };
        for (at, byte) in [(0, 0), (0, 4), (0, 16), (1, 1), (7, 2)] {
            let mut bad = frame.encode();
            bad[at] = byte;
            assert!(FrameHeader::decode(&bad).is_err(), "byte {at}");
        }
    }

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
        // Another flag, no name, another count, a guid of 0, a name of a snapshot that is none or no text; and something behind it.
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

    #[test]
    fn notes_are_read_back_and_have_one_form() {
        let notes = StreamNotes {
            properties: [("org:a", "1=2"), ("org:b", "")].map(|(n, v)| (n.to_owned(), v.to_owned())).into(),
            tags: ["keep", "other"].map(String::from).into(),
        };
        let bytes = notes.encode();
        assert_eq!(StreamNotes::decode(&bytes), Ok(notes.clone()));
        for end in 0..bytes.len() {
            assert!(StreamNotes::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        for half in [
            StreamNotes { tags: BTreeSet::new(), ..notes.clone() },
            StreamNotes { properties: BTreeMap::new(), ..notes.clone() },
        ] {
            assert_eq!(StreamNotes::decode(&half.encode()), Ok(half));
        }
        assert!(StreamNotes::decode(&[0; 16]).is_err(), "nothing is noted");
        // In another order, or twice; a name that is none, a tag that is none, and what is neither.
        let text = |props: &str, tags: &str| {
            let length = |text: &str| u32::try_from(text.len()).unwrap().to_le_bytes();
            let head = [&length(props)[..], &length(tags)[..], &[0; 8]].concat();
            [&head[..], props.as_bytes(), tags.as_bytes()].concat()
        };
        assert_eq!(text("org:a=1=2\0org:b=\0", "keep\0other\0"), bytes);
        for (props, tags) in [
            ("org:b=\0org:a=1\0", ""),
            ("org:a=1\0org:a=2\0", ""),
            ("=1\0", ""),
            ("org:a\0", ""),
            ("org:a=1", ""),
            ("", "other\0keep\0"),
            ("", "keep\0keep\0"),
            ("", "\0"),
            ("", "keep"),
        ] {
            assert!(StreamNotes::decode(&text(props, tags)).is_err(), "{props:?} {tags:?}");
        }
        let many = (0..9_000).map(|at| format!("tag{at:05}")).collect::<BTreeSet<_>>();
        assert!(!StreamNotes { tags: many, ..notes.clone() }.fits() && notes.fits());
        let numbers: Vec<String> = (0..=StreamNotes::COUNT_MAX).map(|at| format!("{at:04}")).collect();
        let ended = |texts: &[String], end: &str| texts.join(end) + end;
        for (props, tags) in [(ended(&numbers, "=\0"), String::new()), (String::new(), ended(&numbers, "\0"))]
        {
            assert!(StreamNotes::decode(&text(&props, &tags)).is_err(), "one too many");
        }
        let most = text(&ended(&numbers[1..], "=\0"), &ended(&numbers[1..], "\0"));
        assert!(StreamNotes::decode(&most).is_ok_and(|most| most.fits()));
        assert!(!StreamNotes { tags: numbers.into_iter().collect(), ..notes }.fits());
    }

    #[test]
    fn a_repeat_lies_inside_of_files() {
        let repeat = Repeat {
            inode: InodeId(9),
            offset: 1 << 20,
            length: 1 << 17,
            snapshot: 7,
            source: InodeId(8),
            from: 1 << 30,
        };
        let bytes = repeat.encode();
        assert_eq!(Repeat::decode(&bytes), Ok(repeat));
        for end in 0..bytes.len() {
            assert!(Repeat::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        // No file, outside of any, nothing, too much, of nothing, in no file, outside of any.
        for (at, byte) in [(0, 0), (15, 0x80), (18, 0), (19, 5), (24, 0), (32, 0), (47, 0x80)] {
            let mut bad = bytes;
            bad[at] = byte;
            assert!(Repeat::decode(&bad).is_err(), "byte {at}: {byte}");
        }
        let mut bad = bytes;
        bad[40..].copy_from_slice(&(i64::MAX as u64 - 100).to_le_bytes());
        assert!(Repeat::decode(&bad).is_err(), "its source ends outside of any file");
        let (offset, from) = (repeat.offset + repeat.length, repeat.from + repeat.length);
        let next = Repeat { offset, from, ..repeat };
        assert!(repeat.is_followed_by(&next) && !next.is_followed_by(&repeat));
        assert!(!repeat.is_followed_by(&Repeat { snapshot: 6, ..next }));
        assert!(!repeat.is_followed_by(&Repeat { from: 0, ..next }));
        assert!(!repeat.is_followed_by(&Repeat { length: Repeat::LENGTH_MAX, ..next }));
    }

    #[test]
    fn a_packed_record_is_sized_as_its_compression_says() {
        let record = PackedRecord {
            inode: InodeId(9),
            offset: 1 << 20,
            lsize: 4096,
            psize: 70,
            compression: Compression::Zstd,
        };
        let bytes = record.encode();
        assert_eq!(PackedRecord::decode(&bytes), Ok(record));
        let off = PackedRecord { psize: 4096, compression: Compression::Off, ..record };
        assert_eq!(PackedRecord::decode(&off.encode()), Ok(off));
        for end in 0..bytes.len() {
            assert!(PackedRecord::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        // No file, far outside of any, nothing to make, too much, nothing to make it of, as much as it makes, another method.
        let wrong: [(usize, &[u8]); 9] = [
            (0, &[0]),
            (15, &[0x80]),
            (16, &[0; 4]),
            (16, &[1, 0, 0, 1]),
            (20, &[0; 4]),
            (20, &[0, 16, 0, 0]),
            (24, &[1]),
            (24, &[5]),
            (31, &[1]),
        ];
        for (at, patch) in wrong {
            let mut bad = bytes;
            bad[at..at + patch.len()].copy_from_slice(patch);
            assert!(PackedRecord::decode(&bad).is_err(), "byte {at}: {patch:?}");
        }
        let both = StreamBegin { raw: true, packed: false, ..begin() };
        let mut bytes = both.encode();
        assert_eq!(StreamBegin::decode(&bytes), Ok(both));
        bytes[64] |= 32;
        assert!(StreamBegin::decode(&bytes).is_err(), "a snapshot is raw or packed");
    }
}
