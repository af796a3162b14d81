//! Bytes of the protocol: numbers, and what clients send. Everything is big-endian.

/// Greeting of a server.
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Greeting of a newstyle server, and of each option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// A request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// A simple answer.
pub const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// A piece of a structured answer.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag of both sides: every option is answered.
pub const FIXED_NEWSTYLE: u16 = 1;
/// Handshake flag of both sides: nothing fills up the answer to EXPORT_NAME.
pub const NO_ZEROES: u16 = 2;

/// Options.
pub mod option {
    /// Choose an export, with nothing to be said against it.
    pub const EXPORT_NAME: u32 = 1;
    /// Leave.
    pub const ABORT: u32 = 2;
    /// Names of exports.
    pub const LIST: u32 = 3;
    /// Speak TLS.
    pub const STARTTLS: u32 = 5;
    /// Tell of an export.
    pub const INFO: u32 = 6;
    /// Choose an export.
    pub const GO: u32 = 7;
    /// Answers in pieces.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Lists the contexts of BLOCK_STATUS.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Chooses the contexts of BLOCK_STATUS.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Answers to options.
pub mod answer {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export.
    pub const SERVER: u32 = 2;
    /// Of an export.
    pub const INFO: u32 = 3;
    /// A context of BLOCK_STATUS.
    pub const META_CONTEXT: u32 = 4;
    /// Not offered.
    pub const UNSUPPORTED: u32 = 0x8000_0001;
    /// Not allowed.
    pub const POLICY: u32 = 0x8000_0002;
    /// Makes no sense.
    pub const INVALID: u32 = 0x8000_0003;
    /// No such export.
    pub const UNKNOWN: u32 = 0x8000_0006;
    /// Too long.
    pub const TOO_BIG: u32 = 0x8000_0009;
}

/// Kinds of what is told of an export.
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// Its name.
    pub const NAME: u16 = 1;
    /// Sizes of transfers.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export.
pub mod export {
    /// There are flags.
    pub const HAS_FLAGS: u16 = 1;
    /// Nothing can be changed.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is there.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// FUA is there.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM is there.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is there.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// DF is there.
    pub const SEND_DF: u16 = 1 << 7;
    /// Connections see each other's writes.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is there.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// FAST_ZERO is there.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of a request.
pub mod flag {
    /// Durable when answered.
    pub const FUA: u16 = 1;
    /// Zeros that occupy room.
    pub const NO_HOLE: u16 = 1 << 1;
    /// In one piece.
    pub const DF: u16 = 1 << 2;
    /// One extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fast or not at all.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Kinds of pieces of an answer.
pub mod chunk {
    /// The last piece.
    pub const DONE: u16 = 1;
    /// Nothing in it.
    pub const NONE: u16 = 0;
    /// Content.
    pub const DATA: u16 = 1;
    /// A hole.
    pub const HOLE: u16 = 2;
    /// Extents.
    pub const BLOCK_STATUS: u16 = 5;
    /// A fault.
    pub const ERROR: u16 = 0x8001;
}

/// Command of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u16)]
pub enum Command {
    /// Content.
    Read = 0,
    /// Content follows.
    Write = 1,
    /// The client leaves.
    Disconnect = 2,
    /// Makes answered writes durable.
    Flush = 3,
    /// A range is of no interest any more.
    Trim = 4,
    /// A range will be read.
    Cache = 5,
    /// A range is to read as zeros.
    WriteZeroes = 6,
    /// Lists holes and data.
    BlockStatus = 7,
}

impl Command {
    fn of(number: u16) -> Option<Command> {
        Some(match number {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            _ => return None,
        })
    }

    /// Flags that mean something with it.
    fn flags(self) -> u16 {
        match self {
            Command::Read => flag::DF | flag::FUA,
            Command::Write | Command::Trim | Command::Flush | Command::Disconnect | Command::Cache => {
                flag::FUA
            }
            Command::WriteZeroes => flag::FUA | flag::NO_HOLE | flag::FAST_ZERO,
            Command::BlockStatus => flag::FUA | flag::REQ_ONE,
        }
    }
}

/// A request's header. `NONE`: the command is none that is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request {
    /// Flags.
    pub flags: u16,
    /// The command; `None` if it is unknown.
    pub command: Option<Command>,
    /// Comes back with the answer.
    pub cookie: u64,
    /// Where.
    pub offset: u64,
    /// How much.
    pub length: u32,
}

impl Request {
    /// Bytes of a header.
    pub const SIZE: usize = 28;

    /// Reads a header; `None` if it is none.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Option<Request> {
        let mut from = Cut(bytes);
        if from.u32()? != REQUEST_MAGIC {
            return None;
        }
        let (flags, command) = (from.u16()?, Command::of(from.u16()?));
        Some(Request { flags, command, cookie: from.u64()?, offset: from.u64()?, length: from.u32()? })
    }

    /// Its bytes, as a client sends them.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        out[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        out[4..6].copy_from_slice(&self.flags.to_be_bytes());
        let command = self.command.map_or(u16::MAX, |command| command as u16);
        out[6..8].copy_from_slice(&command.to_be_bytes());
        out[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        out[16..24].copy_from_slice(&self.offset.to_be_bytes());
        out[24..].copy_from_slice(&self.length.to_be_bytes());
        out
    }

    /// True if the command takes these flags.
    #[must_use]
    pub fn has_fitting_flags(&self) -> bool {
        self.command.is_some_and(|command| self.flags & !command.flags() == 0)
    }
}

/// Bytes that are taken from the front.
pub struct Cut<'a>(pub &'a [u8]);

impl<'a> Cut<'a> {
    /// So many of them.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A length of four bytes, and so many bytes of text.
    pub fn text(&mut self) -> Option<&'a str> {
        let length = self.u32()? as usize;
        str::from_utf8(self.bytes(length)?).ok()
    }
}

/// Arguments of INFO and GO: an export and kinds of information.
#[must_use]
pub fn decode_go(data: &[u8]) -> Option<(&str, Vec<u16>)> {
    let mut from = Cut(data);
    let name = from.text()?;
    let count = from.u16()?;
    let mut kinds = Vec::new();
    for _ in 0..count {
        kinds.push(from.u16()?);
    }
    from.0.is_empty().then_some((name, kinds))
}

/// Arguments of the options about contexts: an export and queries.
#[must_use]
pub fn decode_contexts(data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let mut from = Cut(data);
    let name = from.text()?;
    let count = from.u32()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(from.text()?);
    }
    from.0.is_empty().then_some((name, queries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_back_and_others_are_none() {
        let request = Request {
            flags: flag::FUA,
            command: Some(Command::Write),
            cookie: 0x0102_0304_0506_0708,
            offset: 1 << 40,
            length: 4096,
        };
        let bytes = request.encode();
        assert_eq!(Request::decode(&bytes), Some(request));
        assert!(request.has_fitting_flags());
        assert!(!Request { flags: flag::DF, ..request }.has_fitting_flags());
        let mut other = bytes;
        other[0] ^= 1;
        assert_eq!(Request::decode(&other), None);
        other = bytes;
        other[6] = 0xff;
        assert_eq!(Request::decode(&other).and_then(|request| request.command), None);
    }

    #[test]
    fn options_are_read_to_their_end_and_not_beyond() {
        let go = [&[0, 0, 0, 2][..], b"ab", &[0, 2], &[0, 0, 0, 3]].concat();
        assert_eq!(decode_go(&go), Some(("ab", vec![0, 3])));
        let contexts = [&[0, 0, 0, 1][..], b"a", &[0, 0, 0, 1], &[0, 0, 0, 5], b"base:"].concat();
        assert_eq!(decode_contexts(&contexts), Some(("a", vec!["base:"])));
        for end in 0..go.len() {
            assert_eq!(decode_go(&go[..end]), None, "cut at {end}");
        }
        for end in 0..contexts.len() {
            assert_eq!(decode_contexts(&contexts[..end]), None, "cut at {end}");
        }
        assert_eq!(decode_go(&[&go[..], &[0]].concat()), None);
        // A count that promises more than there is reserves nothing.
        assert_eq!(decode_contexts(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
