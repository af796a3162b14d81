//! Requests and their answers.

use std::io::{Read, Write};

use crate::handshake::{ALLOCATION_ID, take};
use crate::wire::{self, Command, Request, chunk, flag};
use crate::{Agreed, Error, Export, Fault, PIECE, REQUEST_BYTES_MAX};

/// Most extents in one answer to BLOCK_STATUS.
const EXTENTS_MAX: usize = 1024;
/// A read of so many bytes is not worth the question where its holes are.
const SHORT: usize = 64 << 10;
/// Flags of an extent that is a hole and reads as zeros.
const HOLE: u32 = 3;

impl Request {
    /// The fault of a request, before it reaches the export. [nbd.2]
    fn check(&self, export: &dyn Export) -> Result<Command, Fault> {
        let command = self.command.ok_or(Fault::Invalid)?;
        if !self.has_fitting_flags() {
            return Err(Fault::Invalid);
        }
        let changes = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes);
        if changes && export.is_read_only() {
            return Err(Fault::Perm);
        }
        if matches!(command, Command::Flush | Command::Disconnect) {
            return Ok(command);
        }
        let end = self.offset.checked_add(self.length.into());
        if end.is_none_or(|end| end > export.size()) {
            return Err(if changes && command != Command::Trim { Fault::NoSpace } else { Fault::Invalid });
        }
        if command == Command::Read && self.length > REQUEST_BYTES_MAX {
            return Err(Fault::Invalid);
        }
        Ok(command)
    }
}

/// Answers requests until the client leaves.
pub(crate) fn transmit(stream: &mut (impl Read + Write), agreed: Agreed) -> Result<(), Error> {
    let Agreed { mut export, structured, allocation } = agreed;
    let mut buffer = Vec::new();
    loop {
        let header = take::<{ Request::SIZE }>(stream)?;
        let request =
            Request::decode(&header).ok_or(Error::Protocol("a request does not begin as requests do"))?;
        let checked = request.check(&*export);
        let mut to = Answer { stream, cookie: request.cookie, structured };
        match checked {
            Ok(Command::Disconnect) => return Ok(()),
            Ok(Command::Write) => {
                let outcome = write(to.stream, &mut *export, &request, None, &mut buffer)?;
                to.outcome(outcome)?;
            }
            Err(fault) => {
                let fault = match request.command {
                    // Its data is taken off the stream all the same.
                    Some(Command::Write) => {
                        let passed_over = write(to.stream, &mut *export, &request, Some(fault), &mut buffer)?;
                        passed_over.err().unwrap_or(fault)
                    }
                    _ => fault,
                };
                to.fault(request.command, fault)?;
            }
            Ok(Command::Read) => to.read(&mut *export, &request, &mut buffer)?,
            Ok(Command::Flush) => to.outcome(export.flush())?,
            // Content comes into the cache by being read, and that it will be is no reason to read
            // it twice.
            Ok(Command::Cache) => to.outcome(Ok(()))?,
            Ok(Command::Trim | Command::WriteZeroes) => {
                let zeroed = match request.length {
                    0 => Ok(()),
                    length => export.zero(request.offset, length.into()),
                };
                to.outcome(zeroed.and_then(|()| settle(&mut *export, &request)))?;
            }
            Ok(Command::BlockStatus) if allocation && request.length > 0 => {
                match extents(&mut *export, &request) {
                    Ok(extents) => to.chunk(chunk::DONE, chunk::BLOCK_STATUS, &[], &extents)?,
                    Err(fault) => to.fault(request.command, fault)?,
                }
            }
            Ok(Command::BlockStatus) => to.fault(request.command, Fault::Invalid)?,
        }
    }
}

/// With FUA a request is answered when it is durable. [nbd.3]
fn settle(export: &mut dyn Export, request: &Request) -> Result<(), Fault> {
    if request.flags & flag::FUA != 0 { export.flush() } else { Ok(()) }
}

/// Takes the content of a WRITE off the stream, piece by piece, and writes it unless something is
/// wrong already.
fn write(
    stream: &mut impl Read,
    export: &mut dyn Export,
    request: &Request,
    wrong: Option<Fault>,
    buffer: &mut Vec<u8>,
) -> Result<Result<(), Fault>, Error> {
    if request.length > REQUEST_BYTES_MAX {
        // Its data cannot be told from requests, and is too long to be skipped.
        return Err(Error::Protocol("it writes more at once than was offered"));
    }
    let mut outcome = wrong.map_or(Ok(()), Err);
    let mut done: u32 = 0;
    while done < request.length {
        let count = (request.length - done).min(PIECE as u32);
        let piece = room(buffer, count as usize);
        stream.read_exact(piece)?;
        if outcome.is_ok() {
            outcome = export.write(request.offset + u64::from(done), piece);
        }
        done += count;
    }
    Ok(outcome.and_then(|()| settle(export, request)))
}

/// The beginning of a buffer, which grows to what is needed.
fn room(buffer: &mut Vec<u8>, count: usize) -> &mut [u8] {
    if buffer.len() < count {
        buffer.resize(count, 0);
    }
    &mut buffer[..count]
}

/// Answer to BLOCK_STATUS: pairs of length and flags.
fn extents(export: &mut dyn Export, request: &Request) -> Result<Vec<u8>, Fault> {
    let most = if request.flags & flag::REQ_ONE != 0 { 1 } else { EXTENTS_MAX };
    let mut out = ALLOCATION_ID.to_be_bytes().to_vec();
    let mut at = request.offset;
    let end = request.offset + u64::from(request.length);
    for _ in 0..most {
        if at >= end {
            break;
        }
        let (length, data) = export.extent(at, end - at)?;
        let length = length.clamp(1, end - at);
        // No more than the request's length, which has as many bits.
        out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(&if data { 0 } else { HOLE }.to_be_bytes());
        at += length;
    }
    Ok(out)
}

/// Where the answer to a request goes.
struct Answer<'s, S> {
    stream: &'s mut S,
    cookie: u64,
    structured: bool,
}

impl<S: Write> Answer<'_, S> {
    fn outcome(&mut self, outcome: Result<(), Fault>) -> Result<(), Error> {
        self.simple(outcome.err().map_or(0, |fault| fault as u32), &[])
    }

    /// A fault: in the form that the command's answer has.
    fn fault(&mut self, command: Option<Command>, fault: Fault) -> Result<(), Error> {
        let in_pieces = matches!(command, Some(Command::Read | Command::BlockStatus));
        if !(self.structured && in_pieces) {
            return self.simple(fault as u32, &[]);
        }
        let mut body = (fault as u32).to_be_bytes().to_vec();
        body.extend_from_slice(&[0, 0]);
        self.chunk(chunk::DONE, chunk::ERROR, &[], &body)
    }

    fn simple(&mut self, error: u32, data: &[u8]) -> Result<(), Error> {
        let mut head = [0; 16];
        head[..4].copy_from_slice(&wire::SIMPLE_MAGIC.to_be_bytes());
        head[4..8].copy_from_slice(&error.to_be_bytes());
        head[8..].copy_from_slice(&self.cookie.to_be_bytes());
        self.send(head.to_vec(), data)
    }

    /// Short data goes out in one piece: a copy costs less than a call.
    fn send(&mut self, mut head: Vec<u8>, data: &[u8]) -> Result<(), Error> {
        if data.len() <= SHORT {
            head.extend_from_slice(data);
            return Ok(self.stream.write_all(&head)?);
        }
        self.stream.write_all(&head)?;
        Ok(self.stream.write_all(data)?)
    }

    /// A piece of a structured answer.
    fn chunk(&mut self, flags: u16, kind: u16, first: &[u8], then: &[u8]) -> Result<(), Error> {
        let mut head = wire::CHUNK_MAGIC.to_be_bytes().to_vec();
        head.extend_from_slice(&flags.to_be_bytes());
        head.extend_from_slice(&kind.to_be_bytes());
        head.extend_from_slice(&self.cookie.to_be_bytes());
        let length = u32::try_from(first.len() + then.len()).expect("pieces are short");
        head.extend_from_slice(&length.to_be_bytes());
        head.extend_from_slice(first);
        self.send(head, then)
    }

    fn read(
        &mut self,
        export: &mut dyn Export,
        request: &Request,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Error> {
        if self.structured {
            self.read_pieces(export, request, buffer)
        } else {
            self.read_plain(export, request, buffer)
        }
    }

    /// One header and all content. An error behind the first piece cannot be reported any more.
    fn read_plain(
        &mut self,
        export: &mut dyn Export,
        request: &Request,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut done: u32 = 0;
        while done < request.length {
            let count = (request.length - done).min(PIECE as u32);
            let piece = room(buffer, count as usize);
            match (export.read(request.offset + u64::from(done), piece), done) {
                (Ok(()), 0) => self.simple(0, piece)?,
                (Ok(()), _) => self.stream.write_all(piece)?,
                (Err(fault), 0) => return self.simple(fault as u32, &[]),
                (Err(_), _) => return Err(Error::HalfRead),
            }
            done += count;
        }
        if request.length == 0 { self.simple(0, &[]) } else { Ok(()) }
    }

    /// Pieces of content, and holes that are not sent.
    fn read_pieces(
        &mut self,
        export: &mut dyn Export,
        request: &Request,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let whole = request.flags & flag::DF != 0;
        if whole && request.length as usize > PIECE {
            return self.fault(request.command, Fault::Overflow);
        }
        let whole = whole || request.length as usize <= SHORT;
        let end = request.offset + u64::from(request.length);
        let mut at = request.offset;
        if at == end {
            return self.chunk(chunk::DONE, chunk::NONE, &[], &[]);
        }
        while at < end {
            let (length, data) = match whole {
                true => (end - at, true),
                false => match export.extent(at, end - at) {
                    Ok((length, data)) => (length.clamp(1, end - at), data),
                    Err(fault) => return self.fault(request.command, fault),
                },
            };
            if data {
                let count = length.min(PIECE as u64) as usize;
                let piece = room(buffer, count);
                if let Err(fault) = export.read(at, piece) {
                    return self.fault(request.command, fault);
                }
                let done = if at + count as u64 == end { chunk::DONE } else { 0 };
                self.chunk(done, chunk::DATA, &at.to_be_bytes(), piece)?;
                at += count as u64;
            } else {
                let done = if at + length == end { chunk::DONE } else { 0 };
                let hole = u32::try_from(length).expect("no longer than the request");
                self.chunk(done, chunk::HOLE, &at.to_be_bytes(), &hole.to_be_bytes())?;
                at += length;
            }
        }
        Ok(())
    }
}
