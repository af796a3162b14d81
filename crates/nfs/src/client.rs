//! A small client for tests: it says exactly what it is told to, and waits for each answer.

use crate::rpc::Assembler;
use crate::xdr::{Reader, Writer};
use crate::{mount3, nfs3};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Identity that the client claims.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// More groups.
    pub groups: Vec<u32>,
}

/// A connection to a server.
pub struct Client {
    stream: TcpStream,
    assembler: Assembler,
    /// Bytes that came behind the last reply.
    ahead: Vec<u8>,
    /// Number of the next call.
    pub xid: u32,
    /// The identity that it claims.
    pub claim: Claim,
}

/// An answer: its status, and the bytes behind it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answered {
    /// Status of the procedure.
    pub status: u32,
    /// Its results.
    pub results: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// Of the system.
    pub fn connect(server: SocketAddr, claim: Claim) -> io::Result<Client> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, assembler: Assembler::default(), ahead: Vec::new(), xid: 1, claim })
    }

    /// A call as a record with its mark.
    #[must_use]
    pub fn record(&mut self, program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(0).u32(self.xid).u32(0).u32(2).u32(program).u32(version).u32(procedure);
        self.xid += 1;
        let mut body = Writer::default();
        body.u32(0).opaque(b"test").u32(self.claim.uid).u32(self.claim.gid);
        body.u32(self.claim.groups.len() as u32);
        self.claim.groups.iter().for_each(|gid| _ = body.u32(*gid));
        out.u32(1).opaque(&body.out).u32(0).u32(0);
        out.out.extend_from_slice(arguments);
        let length = out.out.len() as u32 - 4;
        out.set_u32(0, length | 1 << 31);
        out.out
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The connection ended.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// The connection ended.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; 64 << 10];
        loop {
            let mut input = &self.ahead[..];
            let whole = self.assembler.feed(&mut input).map_err(io::Error::other)?;
            self.ahead = input.to_vec();
            if let Some(reply) = whole {
                return Ok(reply.to_vec());
            }
            let count = self.stream.read(&mut piece)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.ahead.extend_from_slice(&piece[..count]);
        }
    }

    /// Calls a procedure and waits for its results.
    ///
    /// # Errors
    /// The connection ended, or the call was not carried out: the error has the bytes of the reply.
    pub fn call(&mut self, program: u32, procedure: u32, arguments: &[u8]) -> io::Result<Vec<u8>> {
        self.call_version(program, 3, procedure, arguments)
    }

    /// The same for another version than 3.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_version(
        &mut self,
        program: u32,
        version: u32,
        procedure: u32,
        arguments: &[u8],
    ) -> io::Result<Vec<u8>> {
        let record = self.record(program, version, procedure, arguments);
        self.send(&record)?;
        let reply = self.receive()?;
        match reply.get(4..24) {
            Some(b"\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0") => Ok(reply[24..].to_vec()),
            _ => Err(io::Error::other(format!("the call failed: {:?}", &reply[4.min(reply.len())..]))),
        }
    }

    /// Calls a procedure of NFS; `write` puts its arguments.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn nfs(&mut self, procedure: u32, write: impl FnOnce(&mut Writer)) -> io::Result<Answered> {
        let mut arguments = Writer::default();
        write(&mut arguments);
        let results = self.call(nfs3::PROGRAM, procedure, &arguments.out)?;
        let status = Reader::new(&results).u32().map_err(io::Error::other)?;
        Ok(Answered { status, results: results[4..].to_vec() })
    }

    /// The handle of a path; the number of a refusal as an error.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn mount(&mut self, path: &str) -> io::Result<Result<Vec<u8>, u32>> {
        let mut arguments = Writer::default();
        arguments.opaque(path.as_bytes());
        let results = self.call(mount3::PROGRAM, 1, &arguments.out)?;
        let mut reader = Reader::new(&results);
        match reader.u32().map_err(io::Error::other)? {
            0 => Ok(Ok(reader.opaque(nfs3::HANDLE_MAX).map_err(io::Error::other)?.to_vec())),
            refusal => Ok(Err(refusal)),
        }
    }

    /// The handle and the attributes of a name.
    ///
    /// # Errors
    /// As [`Client::call`], or the status of LOOKUP in words.
    pub fn lookup(&mut self, dir: &[u8], name: &str) -> io::Result<Result<Found, u32>> {
        let answer = self.nfs(3, |out| _ = out.opaque(dir).opaque(name.as_bytes()))?;
        if answer.status != 0 {
            return Ok(Err(answer.status));
        }
        let mut reader = Reader::new(&answer.results);
        let handle = reader.opaque(nfs3::HANDLE_MAX).map_err(io::Error::other)?.to_vec();
        let attributes = attributes(&mut reader).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Ok(Found { handle, attributes }))
    }
}

/// A file that was found or made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Found {
    /// Its handle.
    pub handle: Vec<u8>,
    /// Its attributes.
    pub attributes: Attributes,
}

/// Attributes (`fattr3`), some of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attributes {
    /// Kind of file.
    pub kind: u32,
    /// Permissions.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Major and minor device number.
    pub device: (u32, u32),
    /// Number of its file system.
    pub fsid: u64,
    /// Number of the inode.
    pub ino: u64,
    /// Last change of content: seconds, nanoseconds.
    pub mtime: (u32, u32),
    /// Last change of anything.
    pub ctime: (u32, u32),
}

/// Reads attributes that may be missing.
#[must_use]
pub fn attributes(reader: &mut Reader<'_>) -> Option<Attributes> {
    if reader.bool().ok()? { plain_attributes(reader) } else { None }
}

/// Reads attributes that are there.
#[must_use]
pub fn plain_attributes(reader: &mut Reader<'_>) -> Option<Attributes> {
    let mut next = || reader.u32().ok();
    let (kind, mode, nlink, uid, gid) = (next()?, next()?, next()?, next()?, next()?);
    let mut next = || reader.u64().ok();
    let (size, _used, device, fsid, ino) = (next()?, next()?, next()?, next()?, next()?);
    let mut time = || Some((reader.u32().ok()?, reader.u32().ok()?));
    let (_atime, mtime, ctime) = (time()?, time()?, time()?);
    let device = ((device >> 32) as u32, device as u32);
    Some(Attributes { kind, mode, nlink, uid, gid, size, device, fsid, ino, mtime, ctime })
}
