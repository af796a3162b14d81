//! Entry for fuzzers, and what it needs: a client that says what it is told to, and an export in
//! memory.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Error, Export, Exports, Fault, PIECE, serve};

/// A client that sends these bytes and then hangs up.
#[derive(Debug, Default)]
pub struct Script<'a> {
    /// Bytes yet to be sent.
    pub sends: &'a [u8],
    /// Bytes received, as far as they were to be kept.
    pub got: Vec<u8>,
    /// How much of it is kept.
    pub keeps: usize,
    /// Longest piece that came at once.
    pub longest: usize,
}

impl Read for Script<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.sends.read(out)
    }
}

impl Write for Script<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.longest = self.longest.max(data.len());
        let room = self.keeps.saturating_sub(self.got.len());
        self.got.extend_from_slice(&data[..room.min(data.len())]);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Calls of a [`Memory`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Done {
    /// Content.
    pub content: Vec<u8>,
    /// How often it was made durable.
    pub flushes: u64,
    /// How much of it was durable by then.
    pub durable: Vec<u8>,
}

/// An export in memory, `disk`, and the same for reading only, `disk@old`.
#[derive(Clone, Debug)]
pub struct Memory {
    done: Arc<Mutex<Done>>,
    read_only: bool,
}

impl Memory {
    /// So many zeros.
    #[must_use]
    pub fn new(bytes: usize) -> Memory {
        let done = Done { content: vec![0; bytes], ..Done::default() };
        Memory { done: Arc::new(Mutex::new(done)), read_only: false }
    }

    /// Its calls.
    #[must_use]
    pub fn done(&self) -> Done {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exports for Memory {
    fn list(&self) -> Vec<String> {
        vec!["disk".into(), "disk@old".into()]
    }

    fn open(&self, name: &str) -> Result<Box<dyn Export>, String> {
        match name {
            "disk" => Ok(Box::new(self.clone())),
            "disk@old" => Ok(Box::new(Memory { read_only: true, ..self.clone() })),
            _ => Err(format!("there is no '{name}'")),
        }
    }
}

/// Where a range lies; panics if a request got through that is outside.
fn range(offset: u64, length: u64) -> std::ops::Range<usize> {
    let at = |offset| usize::try_from(offset).expect("within memory");
    at(offset)..at(offset + length)
}

impl Export for Memory {
    fn size(&self) -> u64 {
        self.lock().content.len() as u64
    }

    fn block_bytes(&self) -> u32 {
        4096
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        assert!(!out.is_empty() && out.len() <= PIECE);
        out.copy_from_slice(&self.lock().content[range(offset, out.len() as u64)]);
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        assert!(!self.read_only && data.len() <= PIECE);
        self.lock().content[range(offset, data.len() as u64)].copy_from_slice(data);
        Ok(())
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Fault> {
        assert!(!self.read_only);
        self.lock().content[range(offset, length)].fill(0);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Fault> {
        let mut done = self.lock();
        done.flushes += 1;
        done.durable = done.content.clone();
        Ok(())
    }

    fn extent(&mut self, offset: u64, length: u64) -> Result<(u64, bool), Fault> {
        let content = &self.lock().content[range(offset, length)];
        let data = content[0] != 0;
        let same = content.iter().take_while(|byte| (**byte != 0) == data).count();
        Ok((same as u64, data))
    }
}

/// Any bytes, as a client sends them: nothing panics, nothing outside of the export is touched, and
/// the conversation ends.
pub fn conversation(bytes: &[u8]) {
    let memory = Memory::new(3 * PIECE / 2);
    let mut client = Script { sends: bytes, ..Script::default() };
    let ended = serve(&mut client, &memory);
    assert!(client.longest <= PIECE + 64);
    if ended.is_ok() || matches!(ended, Err(Error::Protocol(_))) {
        return;
    }
    assert!(client.sends.is_empty(), "a client that says more is answered");
}

/// Any bytes behind a handshake that chose `disk` with structured replies and contexts: the same.
pub fn requests(bytes: &[u8]) {
    conversation(&[&opening(true), bytes].concat());
}

/// The bytes that a client sends to get `disk`.
#[must_use]
pub fn opening(structured: bool) -> Vec<u8> {
    use crate::wire::{OPTION_MAGIC, option};
    let mut out = 3_u32.to_be_bytes().to_vec();
    let mut say = |number: u32, data: &[u8]| {
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(data);
    };
    let name = [&4_u32.to_be_bytes()[..], b"disk"].concat();
    if structured {
        say(option::STRUCTURED_REPLY, b"");
        let query = [&15_u32.to_be_bytes()[..], b"base:allocation"].concat();
        say(option::SET_META_CONTEXT, &[&name[..], &1_u32.to_be_bytes(), &query].concat());
    }
    say(option::GO, &[&name[..], &[0, 0]].concat());
    out
}
