//! Remote procedure calls (RFC 5531): records on a stream, the head of a call, the head of a reply.

use crate::spare;
use crate::xdr::{Garbage, Reader, Result, Writer};

/// Longest record that is taken: the longest write, and its head.
pub const RECORD_MAX: usize = (1 << 20) + (4 << 10);
/// Bit of a fragment's head: it is the last of its record.
const LAST: u32 = 1 << 31;
/// Longest body of a credential or verifier (RFC 5531, 8.2).
const AUTH_MAX: usize = 400;
/// Longest name of a client's machine.
const MACHINE_MAX: usize = 255;
/// Most groups of a credential.
pub const GROUPS_MAX: usize = 16;
const CALL: u32 = 0;
const REPLY: u32 = 1;
const VERSION: u32 = 2;

/// A record longer than [`RECORD_MAX`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a record of more than {RECORD_MAX} bytes")]
pub struct TooLong;

/// A record.
#[derive(Clone, Debug, Default)]
pub struct Record {
    bytes: Vec<u8>,
    /// Bytes before it: the mark of its fragment, where it lies in the memory in which it came.
    before: usize,
}

impl Record {
    /// Its memory, for another use.
    pub(crate) fn into_memory(self) -> Vec<u8> {
        self.bytes
    }
}

impl std::ops::Deref for Record {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.before..]
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Record) -> bool {
        **self == **other
    }
}

/// Puts the records of a stream together from its fragments (RFC 5531, 11). It keeps what came,
/// not what was announced.
#[derive(Debug, Default)]
pub struct Assembler {
    head: [u8; 4],
    head_bytes: usize,
    /// Bytes of the fragment that are yet to come.
    left: usize,
    last: bool,
    record: Record,
}

impl Assembler {
    /// Keeps the memory of a piece that came, in place of a copy of it: if a record begins with it,
    /// nothing follows that record, and the piece fills half of its memory. The piece is without
    /// memory then; [`Assembler::feed`] gives the record, if it is whole.
    pub(crate) fn take_over(&mut self, piece: &mut Vec<u8>) -> bool {
        let Some((head, rest)) = piece.split_first_chunk() else { return false };
        let mark = u32::from_be_bytes(*head);
        let length = (mark & !LAST) as usize;
        let is_alone = self.is_between() && (rest.len()..=RECORD_MAX).contains(&length);
        if !is_alone || piece.len() < piece.capacity() / 2 {
            return false;
        }
        (self.head, self.head_bytes, self.last) = (*head, head.len(), mark & LAST != 0);
        self.left = length - rest.len();
        self.record = Record { before: head.len(), bytes: std::mem::take(piece) };
        true
    }

    /// Takes bytes from the front of `input`, up to the end of a record, which it gives.
    ///
    /// # Errors
    /// The record would be too long. Nothing that follows makes sense.
    pub fn feed(&mut self, input: &mut &[u8]) -> std::result::Result<Option<Record>, TooLong> {
        loop {
            if self.head_bytes < 4 {
                let Some((first, rest)) = input.split_first() else { return Ok(None) };
                *input = rest;
                self.head[self.head_bytes] = *first;
                self.head_bytes += 1;
                if self.head_bytes < 4 {
                    continue;
                }
                let head = u32::from_be_bytes(self.head);
                self.last = head & LAST != 0;
                self.left = usize::try_from(head & !LAST).map_err(|_| TooLong)?;
                if self.left > RECORD_MAX - self.record.len() {
                    return Err(TooLong);
                }
            }
            let (taken, rest) = input.split_at(self.left.min(input.len()));
            *input = rest;
            self.keep(taken);
            self.left -= taken.len();
            if self.left > 0 {
                return Ok(None);
            }
            self.head_bytes = 0;
            if self.last {
                return Ok(Some(std::mem::take(&mut self.record)));
            }
        }
    }

    /// Adds bytes of the fragment to the record.
    fn keep(&mut self, taken: &[u8]) {
        let bytes = &mut self.record.bytes;
        if bytes.capacity() - bytes.len() < taken.len() {
            // It grows with what comes, not with what is announced, whether memory waits or not.
            let came = bytes.len() + taken.len();
            spare::move_to(bytes, came.max(2 * bytes.capacity()).min(bytes.len() + self.left));
        }
        bytes.extend_from_slice(taken);
    }

    /// Bytes of an incomplete record that are kept.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.record.len()
    }

    /// True between two records.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.head_bytes == 0 && self.record.is_empty()
    }
}

/// The caller, as a call says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Credential {
    /// `AUTH_NONE`.
    None,
    /// `AUTH_SYS`: the client's word, and nothing else.
    Sys {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
        /// More groups.
        groups: Vec<u32>,
    },
    /// Another kind, which is not served.
    Other(u32),
}

/// Head of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Call {
    /// Number that the reply repeats.
    pub xid: u32,
    /// Version of RPC.
    pub rpc_version: u32,
    /// Program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Its procedure.
    pub procedure: u32,
    /// The caller; garbage if it cannot be read.
    pub credential: Result<Credential>,
}

impl Call {
    /// Reads a record up to the arguments, for which `reader` stands then. Of another version of
    /// RPC it reads no more than the version.
    ///
    /// # Errors
    /// It is no call. There is nothing that it could be answered with.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Call> {
        let xid = reader.u32()?;
        if reader.u32()? != CALL {
            return Err(Garbage);
        }
        let rpc_version = reader.u32()?;
        let (mut call, none) = (
            Call { xid, rpc_version, program: 0, version: 0, procedure: 0, credential: Err(Garbage) },
            Credential::None,
        );
        if rpc_version != VERSION {
            return Ok(call);
        }
        call.program = reader.u32()?;
        call.version = reader.u32()?;
        call.procedure = reader.u32()?;
        let flavor = reader.u32()?;
        let body = reader.opaque(AUTH_MAX)?;
        call.credential = match flavor {
            0 => Ok(none),
            1 => sys(&mut Reader::new(body)),
            other => Ok(Credential::Other(other)),
        };
        // The verifier of AUTH_SYS says nothing.
        reader.u32()?;
        reader.opaque(AUTH_MAX)?;
        Ok(call)
    }

    /// True if the version of RPC is ours.
    #[must_use]
    pub fn is_understood(&self) -> bool {
        self.rpc_version == VERSION
    }
}

fn sys(reader: &mut Reader<'_>) -> Result<Credential> {
    reader.u32()?;
    reader.opaque(MACHINE_MAX)?;
    let (uid, gid) = (reader.u32()?, reader.u32()?);
    let count = reader.u32()? as usize;
    if count > GROUPS_MAX {
        return Err(Garbage);
    }
    let groups = (0..count).map(|_| reader.u32()).collect::<Result<_>>()?;
    Ok(Credential::Sys { uid, gid, groups })
}

/// Fate of a call that reached its program (RFC 5531, `accept_stat`), other than success.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// No such program here.
    Program,
    /// Not this version of it: the lowest and the highest that there is.
    Version(u32, u32),
    /// No such procedure.
    Procedure,
    /// Arguments that cannot be read.
    Arguments,
    /// A fault of the server.
    System,
}

/// Reason why a call was denied (RFC 5531, `rejected_reply`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Denial {
    /// Another version of RPC.
    RpcVersion,
    /// The credential cannot be read (`AUTH_BADCRED`).
    BadCredential,
    /// The credential is of a kind that is not served here (`AUTH_TOOWEAK`).
    TooWeak,
}

/// Begins a reply: room for the record's mark, and the head of a success. Results follow.
#[must_use]
pub fn reply(xid: u32) -> Writer {
    let mut out = Writer { out: Vec::with_capacity(256) };
    out.u32(0).u32(xid).u32(REPLY).u32(0).u32(0).u32(0).u32(0);
    out
}

/// Ends a reply: sets the record's mark.
#[must_use]
pub fn record(reply: Writer) -> Vec<u8> {
    record_before(reply, 0)
}

/// The same for a reply behind which `more` bytes follow.
pub(crate) fn record_before(mut reply: Writer, more: usize) -> Vec<u8> {
    let length = u32::try_from(reply.out.len() - 4 + more).expect("a reply is shorter than 2 GiB");
    reply.set_u32(0, length | LAST);
    reply.out
}

/// The whole reply to a call that failed.
#[must_use]
pub fn failure(xid: u32, failure: Failure) -> Vec<u8> {
    let mut out = Writer::default();
    out.u32(0).u32(xid).u32(REPLY).u32(0).u32(0).u32(0);
    match failure {
        Failure::Program => out.u32(1),
        Failure::Version(low, high) => out.u32(2).u32(low).u32(high),
        Failure::Procedure => out.u32(3),
        Failure::Arguments => out.u32(4),
        Failure::System => out.u32(5),
    };
    record(out)
}

/// The whole reply to a call that was denied.
#[must_use]
pub fn denial(xid: u32, denial: Denial) -> Vec<u8> {
    let mut out = Writer::default();
    out.u32(0).u32(xid).u32(REPLY).u32(1);
    match denial {
        Denial::RpcVersion => out.u32(0).u32(VERSION).u32(VERSION),
        Denial::BadCredential => out.u32(1).u32(1),
        Denial::TooWeak => out.u32(1).u32(5),
    };
    record(out)
}

/// A call of ours, as a record with its mark, in the name of root.
#[must_use]
pub fn call(xid: u32, program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let mut out = Writer::default();
    out.u32(0).u32(xid).u32(CALL).u32(VERSION).u32(program).u32(version).u32(procedure);
    let mut body = Writer::default();
    body.u32(0).opaque(b"steadfast").u32(0).u32(0).u32(0);
    out.u32(1).opaque(&body.out).u32(0).u32(0);
    out.out.extend_from_slice(arguments);
    record(out)
}

/// The results in a reply; `None` if the call was not carried out.
#[must_use]
pub fn results(reply: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(reply);
    reader.u32().ok()?;
    let (kind, denied, _flavor) = (reader.u32().ok()?, reader.u32().ok()?, reader.u32().ok()?);
    reader.opaque(AUTH_MAX).ok()?;
    (kind == REPLY && denied == 0 && reader.u32().ok()? == 0).then(|| reader.rest())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, TooLong> {
        let (mut assembler, mut records) = (Assembler::default(), Vec::new());
        // Byte by byte, as the worst network brings them.
        for byte in bytes.chunks(1) {
            let mut input = byte;
            while !input.is_empty() {
                records.extend(assembler.feed(&mut input)?.map(|record| record.to_vec()));
            }
        }
        Ok(records)
    }

    #[test]
    fn fragments_become_records() {
        let stream = b"\x80\0\0\x02ab\0\0\0\x01c\0\0\0\0\x80\0\0\x03def\x80\0\0\0";
        assert_eq!(feed(stream), Ok(vec![b"ab".to_vec(), b"cdef".to_vec(), Vec::new()]));
        let (mut assembler, mut input) = (Assembler::default(), &stream[..]);
        assert_eq!(assembler.feed(&mut input).unwrap().as_deref(), Some(&b"ab"[..]));
        assert!(assembler.is_between() && input.len() == 20);
    }

    /// A piece as it comes from a socket, with memory for some bytes more.
    fn piece(bytes: &[u8], more: usize) -> Vec<u8> {
        let mut piece = Vec::with_capacity(bytes.len() + more);
        piece.extend_from_slice(bytes);
        piece
    }

    #[test]
    fn a_piece_that_a_record_begins_with_is_kept_where_it_is() {
        let mut assembler = Assembler::default();
        let mut whole = piece(b"\x80\0\0\x03abc", 2);
        let place = whole[4..].as_ptr();
        assert!(assembler.take_over(&mut whole) && whole.capacity() == 0);
        let record = assembler.feed(&mut &[][..]).unwrap().expect("it is whole");
        assert_eq!((&record[..], record.as_ptr()), (&b"abc"[..], place));
        // The rest comes later, in a fragment of its own, and another record behind it.
        assert!(assembler.is_between() && assembler.take_over(&mut piece(b"\0\0\0\x04ab", 0)));
        assert_eq!((assembler.kept(), assembler.is_between()), (2, false));
        assert!(!assembler.take_over(&mut piece(b"\x80\0\0\x01z", 0)), "it is in the middle of one");
        let mut rest = &b"cd\x80\0\0\x01e\x80\0\0\x01f"[..];
        assert_eq!(assembler.feed(&mut rest).unwrap().as_deref(), Some(&b"abcde"[..]));
        assert_eq!(assembler.feed(&mut rest).unwrap().as_deref(), Some(&b"f"[..]));
    }

    #[test]
    fn a_piece_is_left_where_its_memory_is_not_the_records_alone() {
        let mut assembler = Assembler::default();
        for (bytes, more) in [
            (&b""[..], 0),
            (b"\x80\0\0", 0),
            (b"\x80\0\0\x01ab", 0),
            (b"\x80\0\0\x03abc", 16),
            (b"\x80\x20\0\0abc", 0),
        ] {
            let mut piece = piece(bytes, more);
            assert!(!assembler.take_over(&mut piece) && assembler.is_between(), "{bytes:?}");
            assert_eq!(piece, bytes);
        }
    }

    #[test]
    fn a_fragment_of_two_gigabytes_is_refused_at_its_head() {
        assert_eq!(feed(b"\xff\xff\xff\xff"), Err(TooLong));
        assert_eq!(feed(b"\x7f\xff\xff\xff"), Err(TooLong));
        let mut pieces = Vec::new();
        for _ in 0..RECORD_MAX / 4096 + 1 {
            pieces.extend_from_slice(&[0, 0, 0x10, 0]);
            pieces.extend_from_slice(&[0; 4096]);
        }
        assert_eq!(feed(&pieces), Err(TooLong), "many fragments are no way around it");
    }

    #[test]
    fn little_is_kept_of_a_long_record_that_does_not_come() {
        // Memory that waits is no reason to keep more.
        spare::keep(Vec::with_capacity(RECORD_MAX));
        let mut assembler = Assembler::default();
        assert_eq!(assembler.feed(&mut &b"\x80\x10\0\0abc"[..]), Ok(None));
        assert_eq!(assembler.kept(), 3);
        let capacity = assembler.record.bytes.capacity();
        assert!(capacity < 64, "{capacity}");
    }

    /// The bytes of a call of NFS 3 NULL, written by hand after RFC 5531, section 9.
    fn head(credential: &[u8]) -> Vec<u8> {
        let numbers = b"\0\0\0\x07\0\0\0\0\0\0\0\x02\0\x01\x86\xa3\0\0\0\x03\0\0\0\x01";
        [&numbers[..], credential, &[0; 8]].concat()
    }

    #[test]
    fn a_call_has_the_bytes_of_rfc_5531() {
        let sys = b"\0\0\0\x01\0\0\0\x20\0\0\0\x63\0\0\0\x03abc\0\0\0\x03\xe8\0\0\0\x32\0\0\0\x02\0\0\0\x04\0\0\0\x05";
        let bytes = [&head(sys)[..], b"args"].concat();
        let mut reader = Reader::new(&bytes);
        let call = Call::decode(&mut reader).expect("a call");
        let credential = Credential::Sys { uid: 1000, gid: 50, groups: vec![4, 5] };
        let expected = Call {
            xid: 7,
            rpc_version: 2,
            program: 100_003,
            version: 3,
            procedure: 1,
            credential: Ok(credential),
        };
        assert_eq!((call, reader.rest()), (expected, &b"args"[..]));
        let credential = |bytes: &[u8]| {
            let bytes = head(bytes);
            Call::decode(&mut Reader::new(&bytes)).expect("a call").credential
        };
        assert_eq!(credential(&[0; 8]), Ok(Credential::None));
        assert_eq!(credential(b"\0\0\0\x06\0\0\0\x04gssx"), Ok(Credential::Other(6)));
        assert_eq!(credential(b"\0\0\0\x01\0\0\0\x04abcd"), Err(Garbage));
        let crowd =
            [&b"\0\0\0\x01\0\0\0\x58\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x11"[..], &[0; 68]].concat();
        assert_eq!(credential(&crowd), Err(Garbage), "17 groups");
    }

    #[test]
    fn no_call_is_no_call() {
        assert_eq!(Call::decode(&mut Reader::new(b"\0\0\0\x07\0\0\0\x01\0\0\0\0")), Err(Garbage));
        let whole = head(&[0; 8]);
        for length in 0..whole.len() {
            assert_eq!(Call::decode(&mut Reader::new(&whole[..length])), Err(Garbage), "cut to {length}");
        }
        let mut other = whole;
        other[11] = 3;
        assert!(!Call::decode(&mut Reader::new(&other[..12])).expect("a call").is_understood());
    }

    #[test]
    fn replies_have_the_bytes_of_rfc_5531() {
        let mut done = reply(9);
        done.u32(0xabcd);
        let expected = b"\x80\0\0\x1c\0\0\0\x09\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xab\xcd";
        assert_eq!(record(done), expected);
        assert_eq!(
            failure(9, Failure::Version(3, 3)),
            b"\x80\0\0\x20\0\0\0\x09\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0\x03"
        );
        assert_eq!(
            denial(9, Denial::RpcVersion),
            b"\x80\0\0\x18\0\0\0\x09\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x02"
        );
        assert_eq!(
            denial(9, Denial::BadCredential),
            b"\x80\0\0\x14\0\0\0\x09\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01"
        );
    }
}
