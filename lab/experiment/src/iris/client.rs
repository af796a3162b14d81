//! The lab's own client of NFS version 3: one connection, one call at a time. It caches nothing, so
//! each call is a request of the portal.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Longest transfer of one call.
pub(crate) const TRANSFER: usize = 1 << 20;
/// Longest reply that is taken: a transfer and its head.
const REPLY_MAX: usize = TRANSFER + (64 << 10);
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const VERSION: u32 = 3;

const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const REMOVE: u32 = 12;
const RMDIR: u32 = 13;
const READDIRPLUS: u32 = 17;
const COMMIT: u32 = 21;

/// A file handle.
pub(crate) type Handle = Vec<u8>;

/// An export of a server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Export {
    /// Address of NFS.
    pub nfs: SocketAddr,
    /// Address of MOUNT.
    pub mount: SocketAddr,
    /// Path that is exported.
    pub path: PathBuf,
}

impl Export {
    /// A client with a connection of its own, and the handle of the top.
    ///
    /// # Errors
    /// Nothing listens there, or the export is refused.
    pub fn client(&self) -> io::Result<(Client, Handle)> {
        let path = self.path.display().to_string();
        let mut client = Client::connect(self.nfs)?;
        let top = match self.nfs == self.mount {
            true => client.mount(&path)?,
            false => Client::connect(self.mount)?.mount(&path)?,
        };
        Ok((client, top))
    }
}

/// When a write is durable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stable {
    /// With the COMMIT.
    Unstable = 0,
    /// When it is answered.
    FileSync = 2,
}

/// A connection to a portal, as root of a machine that it trusts.
pub(crate) struct Client {
    stream: TcpStream,
    xid: u32,
    waited: Duration,
}

/// Arguments of a call.
#[derive(Default)]
struct Arguments(Vec<u8>);

impl Arguments {
    fn word(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn long(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.word(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// `sattr3` that sets a mode.
    fn mode(&mut self, mode: u32) -> &mut Self {
        self.word(1).word(mode).word(0).word(0).word(0).word(0).word(0)
    }
}

/// Results of a call, as they are read.
struct Results {
    bytes: Vec<u8>,
    at: usize,
}

impl Results {
    fn take(&mut self, count: usize) -> io::Result<&[u8]> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the reply is too short"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn word(&mut self) -> io::Result<u32> {
        self.take(4).map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")))
    }

    fn long(&mut self) -> io::Result<u64> {
        self.take(8).map(|bytes| u64::from_be_bytes(bytes.try_into().expect("eight bytes")))
    }

    fn opaque(&mut self) -> io::Result<Vec<u8>> {
        let length = self.word()? as usize;
        let bytes = self.take(length)?.to_vec();
        self.take(length.next_multiple_of(4) - length)?;
        Ok(bytes)
    }

    /// Attributes that may be missing.
    fn skip_attributes(&mut self) -> io::Result<()> {
        if self.word()? != 0 {
            self.take(84)?;
        }
        Ok(())
    }

    /// A handle that may be missing.
    fn handle(&mut self) -> io::Result<Handle> {
        match self.word()? {
            0 => Err(io::Error::other("the portal gave no handle")),
            _ => self.opaque(),
        }
    }
}

impl Client {
    /// Connects.
    pub fn connect(server: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        // Another number for each connection: the portal answers a call that it had before again.
        let xid = u32::from(stream.local_addr()?.port()) << 16;
        Ok(Client { stream, xid, waited: Duration::ZERO })
    }

    /// Time so far from the first byte of each call to the last one of its reply.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    fn call(&mut self, program: u32, procedure: u32, arguments: &Arguments) -> io::Result<Results> {
        self.xid = self.xid.wrapping_add(1);
        let mut credential = Arguments::default();
        credential.word(0).opaque(b"lab").word(0).word(0).word(0);
        let mut head = Arguments::default();
        head.word(0).word(self.xid).word(0).word(2).word(program).word(VERSION).word(procedure);
        head.word(1).opaque(&credential.0).word(0).word(0);
        let length = (head.0.len() - 4 + arguments.0.len()) as u32;
        head.0[..4].copy_from_slice(&(length | 1 << 31).to_be_bytes());
        let record = [&head.0[..], &arguments.0[..]].concat();
        let began = Instant::now();
        self.stream.write_all(&record)?;
        let mut bytes = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let (length, from) = ((mark & !(1 << 31)) as usize, bytes.len());
            if from + length > REPLY_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the reply is too long"));
            }
            bytes.resize(from + length, 0);
            self.stream.read_exact(&mut bytes[from..])?;
            if mark >> 31 == 1 {
                break;
            }
        }
        self.waited += began.elapsed();
        let mut results = Results { bytes, at: 0 };
        let (xid, kind, denied) = (results.word()?, results.word()?, results.word()?);
        if (xid, kind, denied) != (self.xid, 1, 0) {
            return Err(io::Error::other(format!("the portal denied call {procedure}")));
        }
        results.word()?;
        results.opaque()?;
        match results.word()? {
            0 => Ok(results),
            state => Err(io::Error::other(format!("call {procedure} was not accepted: {state}"))),
        }
    }

    /// A call of NFS that has to succeed.
    fn nfs(&mut self, procedure: u32, write: impl FnOnce(&mut Arguments)) -> io::Result<Results> {
        let mut arguments = Arguments::default();
        write(&mut arguments);
        let mut results = self.call(NFS, procedure, &arguments)?;
        match results.word()? {
            0 => Ok(results),
            status => Err(io::Error::other(format!("NFS procedure {procedure} failed with status {status}"))),
        }
    }

    /// The top of an export.
    pub fn mount(&mut self, path: &str) -> io::Result<Handle> {
        let mut arguments = Arguments::default();
        arguments.opaque(path.as_bytes());
        let mut results = self.call(MOUNT, 1, &arguments)?;
        match results.word()? {
            0 => results.opaque(),
            status => Err(io::Error::other(format!("{path} is not to be mounted: status {status}"))),
        }
    }

    /// Asks for the attributes of a file.
    pub fn getattr(&mut self, file: &[u8]) -> io::Result<()> {
        self.nfs(GETATTR, |out| _ = out.opaque(file)).map(drop)
    }

    /// A name in a directory.
    pub fn lookup(&mut self, directory: &[u8], name: &str) -> io::Result<Handle> {
        self.nfs(LOOKUP, |out| _ = out.opaque(directory).opaque(name.as_bytes()))?.opaque()
    }

    /// A new file, or the one of that name.
    pub fn create(&mut self, directory: &[u8], name: &str) -> io::Result<Handle> {
        self.nfs(CREATE, |out| _ = out.opaque(directory).opaque(name.as_bytes()).word(0).mode(0o644))?
            .handle()
    }

    /// A new directory.
    pub fn mkdir(&mut self, directory: &[u8], name: &str) -> io::Result<Handle> {
        self.nfs(MKDIR, |out| _ = out.opaque(directory).opaque(name.as_bytes()).mode(0o755))?.handle()
    }

    /// Removes a file's name.
    pub fn remove(&mut self, directory: &[u8], name: &str) -> io::Result<()> {
        self.nfs(REMOVE, |out| _ = out.opaque(directory).opaque(name.as_bytes())).map(drop)
    }

    /// Removes an empty directory.
    pub fn remove_folder(&mut self, directory: &[u8], name: &str) -> io::Result<()> {
        self.nfs(RMDIR, |out| _ = out.opaque(directory).opaque(name.as_bytes())).map(drop)
    }

    /// Writes at most [`TRANSFER`] bytes.
    pub fn write(&mut self, file: &[u8], offset: u64, data: &[u8], stable: Stable) -> io::Result<()> {
        let count = data.len() as u32;
        let mut results = self.nfs(WRITE, |out| {
            out.opaque(file).long(offset).word(count).word(stable as u32).opaque(data);
        })?;
        // Attributes before and after.
        if results.word()? != 0 {
            results.take(24)?;
        }
        results.skip_attributes()?;
        match results.word()? {
            written if written == count => Ok(()),
            written => Err(io::Error::other(format!("{written} of {count} bytes were written"))),
        }
    }

    /// Makes writes of a file durable.
    pub fn commit(&mut self, file: &[u8]) -> io::Result<()> {
        self.nfs(COMMIT, |out| _ = out.opaque(file).long(0).word(0)).map(drop)
    }

    /// Reads at most [`TRANSFER`] bytes. Returns how many there were.
    pub fn read(&mut self, file: &[u8], offset: u64, count: usize) -> io::Result<usize> {
        let mut results = self.nfs(READ, |out| _ = out.opaque(file).long(offset).word(count as u32))?;
        results.skip_attributes()?;
        results.word().map(|count| count as usize)
    }

    /// Lists a directory with attributes and handles, `.` and `..` left out.
    pub fn list(&mut self, directory: &[u8]) -> io::Result<Vec<Handle>> {
        let (mut cookie, mut verifier, mut found) = (0, [0; 8], Vec::new());
        loop {
            let mut results = self.nfs(READDIRPLUS, |out| {
                out.opaque(directory).long(cookie);
                out.0.extend_from_slice(&verifier);
                out.word(64 << 10).word(256 << 10);
            })?;
            results.skip_attributes()?;
            verifier = results.take(8)?.try_into().expect("eight bytes");
            while results.word()? != 0 {
                results.long()?;
                let name = results.opaque()?;
                cookie = results.long()?;
                results.skip_attributes()?;
                let handle = if results.word()? != 0 { results.opaque()? } else { Handle::new() };
                if name != b"." && name != b".." {
                    found.push(handle);
                }
            }
            if results.word()? != 0 {
                return Ok(found);
            }
        }
    }
}

/// An error of a call, as the experiment tells it.
pub(super) fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::io(doing, Path::new("the portal"))(error)
}
