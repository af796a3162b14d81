//! Frames: the head before each payload of a stream.

use crate::DecodeError;
use crate::layout::{Decoder, Encoder, Layout};

/// Kind of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum FrameKind {
    /// [`StreamBegin`](super::StreamBegin): a snapshot begins.
    Begin = 1,
    /// Log records of the names tree and of inodes.
    Names = 2,
    /// Log records of content, by inode and offset.
    Content = 3,
    /// [`StreamEnd`](super::StreamEnd): the snapshot is complete.
    End = 5,
    /// Nothing follows.
    Close = 6,
    /// [`StreamSpan`](super::StreamSpan): all keys there are between two keys.
    Span = 7,
    /// [`RawRoots`](crate::raw::RawRoots) of a raw snapshot.
    RawRoots = 8,
    /// Stamps of blocks that a raw snapshot has no more ([`RawGone`](crate::raw::RawGone)).
    RawGone = 9,
    /// Sealed blocks, each behind a [`RawBlock`](crate::raw::RawBlock).
    RawBlocks = 10,
    /// Content by inode and offset, as [`PackedRecord`](super::PackedRecord)s.
    Packed = 11,
    /// [`StreamNotes`](super::StreamNotes): what is noted on the snapshot that began.
    Notes = 12,
    /// Content by inode and offset, as [`Repeat`](super::Repeat)s of what came before.
    Repeats = 13,
    /// [`StreamMember`](super::StreamMember): a file system of the tree that the stream is of.
    Member = 14,
    /// Blocks that a raw snapshot still has of what its base had
    /// ([`RawKept`](crate::raw::RawKept)).
    RawKept = 15,
}

/// Header of each frame.
///
/// | off | len | field    | meaning |
/// |-----|-----|----------|---|
/// |   0 |   1 | kind     | 1 begin, 2 names, 3 content, 5 end, 6 close, 7 span, 8 raw roots, 9 raw gone, 10 raw blocks, 11 packed, 12 notes, 13 repeats, 14 member, 15 raw kept |
/// |   1 |   3 | reserved | zero |
/// |   4 |   4 | length   | bytes of the payload |
/// |   8 |  32 | hash     | BLAKE3 of the hash before, bytes 0 to 7, and the payload |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameHeader {
    /// Its kind.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_back_and_of_a_known_kind() {
        let frame = FrameHeader { kind: FrameKind::Content, length: 9, hash: [8; 32] };
        assert_eq!(FrameHeader::decode(&frame.encode()), Ok(frame));
        let frame = FrameHeader { kind: FrameKind::Close, length: 0, hash: [0; 32] };
        for (at, byte) in [(0, 0), (0, 4), (0, 16), (1, 1), (7, 2)] {
            let mut bad = frame.encode();
            bad[at] = byte;
            assert!(FrameHeader::decode(&bad).is_err(), "byte {at}");
        }
    }
}
