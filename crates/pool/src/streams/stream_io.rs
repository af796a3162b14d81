//! Streams as they are written and read: frames, and the chain of their hashes. FORMAT.md, part
//! "Streams".

use std::io::{self, Read, Write};

use steadfast_format::stream::{FrameHeader, FrameKind, StreamHeader};

use crate::core::error::{Error, Result};
use crate::streams::send::Written;

/// Payloads up to this many bytes are copied, and written with the header of their frame.
const SMALL: usize = 4096;

/// Writes frames.
pub(crate) struct StreamWriter<'a> {
    out: &'a mut dyn Write,
    /// Headers that go with what follows them: a reader gets more than them at once.
    held: Vec<u8>,
    chain: [u8; 32],
    /// Bytes written.
    pub bytes: u64,
    /// Frames written.
    pub frames: u64,
    /// Blocks of content in them, and in the one under way.
    pub blocks: u64,
}

impl<'a> StreamWriter<'a> {
    /// Begins a stream.
    pub fn new(out: &'a mut dyn Write, header: StreamHeader) -> Result<StreamWriter<'a>> {
        let header = header.encode();
        let chain = steadfast_crypto::hash(&header);
        Ok(StreamWriter {
            out,
            held: header.to_vec(),
            chain,
            bytes: header.len() as u64,
            frames: 0,
            blocks: 0,
        })
    }

    /// How far it is.
    pub fn written(&self) -> Written {
        Written { bytes: self.bytes, blocks: self.blocks }
    }

    /// Writes a frame.
    pub fn frame(&mut self, kind: FrameKind, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len()).expect("frames are bounded");
        let mut header = FrameHeader { kind, length, hash: [0; 32] };
        header.hash = link(&self.chain, &header, payload);
        self.chain = header.hash;
        let header = header.encode();
        self.bytes += (header.len() + payload.len()) as u64;
        self.held.extend_from_slice(&header);
        let small = if payload.len() <= SMALL { payload } else { &[] };
        self.held.extend_from_slice(small);
        let written =
            self.out.write_all(&self.held).and_then(|()| self.out.write_all(&payload[small.len()..]));
        self.held.clear();
        written.map_err(|source| Error::StreamWrite { source })?;
        self.frames += 1;
        Ok(())
    }

    /// Ends the stream.
    pub fn close(mut self) -> Result<u64> {
        self.frame(FrameKind::Close, &[])?;
        self.out.flush().map_err(|source| Error::StreamWrite { source })?;
        Ok(self.bytes)
    }
}

/// Reads frames, and gives none whose hash is wrong.
pub(crate) struct StreamReader<'a> {
    input: &'a mut dyn Read,
    chain: [u8; 32],
    /// Bytes read.
    pub bytes: u64,
    /// Frames read.
    pub frames: u64,
    /// Header: features that the stream may use.
    pub header: StreamHeader,
    /// Where the last frame began.
    began: u64,
    payload: Vec<u8>,
}

impl<'a> StreamReader<'a> {
    /// Begins to read a stream.
    pub fn new(input: &'a mut dyn Read) -> Result<StreamReader<'a>> {
        // Other input may be shorter than a stream's header.
        let mut header = Vec::with_capacity(StreamHeader::SIZE);
        let read = input.take(StreamHeader::SIZE as u64).read_to_end(&mut header);
        read.map_err(|source| Error::StreamRead { source })?;
        if !StreamHeader::may_begin(&header) {
            return Err(Error::NoStream { reason: "it does not begin as one".into() });
        }
        let Ok(header) = <[u8; StreamHeader::SIZE]>::try_from(header) else {
            return Err(Error::StreamEnds { frame: 1, at: 0 });
        };
        let mut reader = StreamReader {
            input,
            chain: [0; 32],
            bytes: 0,
            frames: 0,
            header: StreamHeader::default(),
            began: 0,
            payload: Vec::new(),
        };
        let decoded = StreamHeader::decode(&header);
        reader.header = decoded.map_err(|source| Error::NoStream { reason: source.to_string() })?;
        reader.chain = steadfast_crypto::hash(&header);
        reader.bytes = header.len() as u64;
        Ok(reader)
    }

    /// The next frame. Its payload may be given back with [`StreamReader::reuse`].
    pub fn next(&mut self) -> Result<(FrameKind, Vec<u8>)> {
        let mut bytes = [0; FrameHeader::SIZE];
        self.fill(&mut bytes)?;
        let header = FrameHeader::decode(&bytes).map_err(|error| self.damaged(error.to_string()))?;
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(header.length as usize, 0);
        self.fill(&mut payload)?;
        if link(&self.chain, &header, &payload) != header.hash {
            return Err(self.damaged("its checksum is wrong".into()));
        }
        self.chain = header.hash;
        self.began = self.bytes;
        self.bytes += (FrameHeader::SIZE + payload.len()) as u64;
        self.frames += 1;
        Ok((header.kind, payload))
    }

    /// Room for the next frame.
    pub fn reuse(&mut self, payload: Vec<u8>) {
        self.payload = payload;
    }

    /// The frame that is being read is not what was written.
    fn damaged(&self, reason: String) -> Error {
        Error::StreamDamaged { frame: self.frames + 1, at: self.bytes, reason }
    }

    /// The frame that was read last is whole, and cannot be what a sender would write.
    pub fn misplaced(&self, reason: String) -> Error {
        Error::StreamDamaged { frame: self.frames, at: self.began, reason }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        match self.input.read_exact(bytes) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(Error::StreamEnds { frame: self.frames + 1, at: self.bytes })
            }
            Err(source) => Err(Error::StreamRead { source }),
        }
    }
}

fn link(chain: &[u8; 32], header: &FrameHeader, payload: &[u8]) -> [u8; 32] {
    let bound = header.encode();
    steadfast_crypto::hash_parts(&[chain, &bound[..FrameHeader::BOUND_SIZE], payload])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = StreamWriter::new(&mut out, StreamHeader::default()).unwrap();
        writer.frame(FrameKind::Names, b"some names").unwrap();
        writer.frame(FrameKind::Content, &[7; 300]).unwrap();
        writer.close().unwrap();
        out
    }

    fn read(bytes: &[u8]) -> Result<u64> {
        let mut input = bytes;
        let mut reader = StreamReader::new(&mut input)?;
        loop {
            if reader.next()?.0 == FrameKind::Close {
                return Ok(reader.frames);
            }
        }
    }

    #[test]
    fn no_byte_of_a_stream_can_be_changed_or_left_out() {
        let good = stream();
        assert_eq!(read(&good).unwrap(), 3);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(read(&bad).is_err(), "byte {at} changed");
            assert!(read(&good[..at]).is_err(), "cut at {at}");
            let mut short = good.clone();
            short.remove(at);
            assert!(read(&short).is_err(), "byte {at} left out");
        }
        // Frames in another order.
        let (first, second) = (64 + 40 + 10, 40 + 300);
        let mut swapped = good[..64].to_vec();
        swapped.extend_from_slice(&good[first..first + second]);
        swapped.extend_from_slice(&good[64..first]);
        swapped.extend_from_slice(&good[first + second..]);
        let error = read(&swapped).unwrap_err();
        assert!(matches!(error, Error::StreamDamaged { frame: 1, at: 64, .. }), "{error}");
    }
}
