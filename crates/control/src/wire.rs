//! One message a line. Every message carries the version of the API, which is read first: two ends
//! of different versions can still report that.

use crate::api::{API_VERSION, ReceivedPart, Request};
use crate::refusal::{Code, Refusal};
use crate::secret::wipe;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::ops::Range;
use zeroize::{Zeroize, Zeroizing};

/// Longest request. Device and property lists are small; the limit bounds the memory that a stray
/// client can use.
pub const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// Longest answer: some hundred thousand file systems.
pub const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// A request with its envelope.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// Version the client speaks.
    pub version: u32,
    /// Repeated in the answer.
    pub id: u64,
    /// The command as typed, for history.
    pub command: String,
    /// The command shows the steps of the request.
    #[serde(default)]
    pub steps: bool,
    /// The request.
    pub call: Request,
}

/// Progress of a request. Of a request with a stream the first one asks for the descriptor.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Current part; empty: none yet.
    pub what: String,
    /// Bytes of it, or steps that are done.
    pub bytes: u64,
    /// Steps of the part in all; 0: unknown.
    #[serde(default)]
    pub of: u64,
    /// Blocks of content in the bytes of a stream.
    #[serde(default)]
    pub blocks: u64,
    /// A snapshot of a stream that begins to arrive, or has arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival: Option<Arrival>,
}

/// A snapshot on its way into a pool.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Arrival {
    /// The snapshot. Its bytes and its time are 0 until it has arrived.
    pub part: ReceivedPart,
    /// It has arrived.
    pub done: bool,
}

/// An answer with its envelope: exactly one of `progress`, `ok` and `refused`. Every line other
/// than progress is the last.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Version the daemon speaks.
    pub version: u32,
    /// Of the question; 0 if that could not be read.
    pub id: u64,
    /// Progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<serde_json::Value>,
    /// The refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

/// Bytes read from a stream at once.
const BUFFER_BYTES: usize = 16 << 10;

/// A buffered stream that keeps nothing of what was taken out of it: a request may hold a secret.
pub(crate) struct Forgetful<R> {
    stream: R,
    buffer: Zeroizing<Vec<u8>>,
    /// Bytes of the buffer that were read and not taken.
    held: Range<usize>,
}

impl<R: Read> Forgetful<R> {
    pub(crate) fn new(stream: R) -> Forgetful<R> {
        Forgetful { stream, buffer: Zeroizing::new(vec![0; BUFFER_BYTES]), held: 0..0 }
    }

    /// The part of the buffer that was read out of it.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> &[u8] {
        &self.buffer[..self.held.start]
    }
}

impl<R: Read> Read for Forgetful<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let taken = self.fill_buf()?.read(out)?;
        self.consume(taken);
        Ok(taken)
    }
}

impl<R: Read> BufRead for Forgetful<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.held.is_empty() {
            self.held = 0..self.stream.read(&mut self.buffer)?;
        }
        Ok(&self.buffer[self.held.clone()])
    }

    fn consume(&mut self, bytes: usize) {
        let end = (self.held.start + bytes).min(self.held.end);
        self.buffer[self.held.start..end].zeroize();
        self.held.start = end;
    }
}

/// Reads one line of at most `bytes_max` bytes. `None` at the end of the stream. Memory that the
/// line needed while it grew is wiped.
///
/// # Errors
/// Of the stream; `InvalidData` for a line that is too long or is no text.
pub fn read_line(stream: &mut impl BufRead, bytes_max: u64) -> io::Result<Option<String>> {
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut line = Zeroizing::new(Vec::new());
    loop {
        let held = match stream.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            held => held?,
        };
        if held.is_empty() {
            return match line.is_empty() {
                true => Ok(None),
                false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the line is incomplete")),
            };
        }
        let end = held.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(held.len());
        if (line.len() + taken) as u64 >= bytes_max {
            return Err(invalid("the line is too long"));
        }
        if line.capacity() - line.len() < taken {
            let mut larger = Zeroizing::new(Vec::with_capacity((line.len() + taken).next_power_of_two()));
            larger.extend_from_slice(&line);
            line = larger;
        }
        line.extend_from_slice(&held[..taken]);
        stream.consume(end.map_or(taken, |end| end + 1));
        if end.is_some() {
            break;
        }
    }
    match std::str::from_utf8(&line) {
        Ok(_) => Ok(String::from_utf8(std::mem::take(&mut *line)).ok()),
        Err(_) => Err(invalid("the line is not UTF-8")),
    }
}

/// Writes one message as one line, and wipes it from memory, since it may hold a secret.
///
/// # Errors
/// Of the stream.
pub fn write_line<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_string(message).map_err(io::Error::other)?;
    line.push('\n');
    let written = stream.write_all(line.as_bytes()).and_then(|()| stream.flush());
    wipe(line);
    written
}

/// Reads a question out of a line, and wipes the line.
///
/// # Errors
/// [`Code::ApiVersion`], [`Code::ApiRequest`]. The line itself is never quoted: it may hold a
/// secret.
pub fn parse_question(line: String) -> Result<Question, Refusal> {
    let parsed = match version_of(&line) {
        Some(API_VERSION) => serde_json::from_str(&line).map_err(|error| {
            Refusal::new(
                Code::ApiRequest,
                format!("the request is incomplete or invalid at byte {}", error.column()),
            )
        }),
        Some(version) => Err(mismatch("command", version, "daemon", API_VERSION)),
        None => Err(Refusal::new(Code::ApiRequest, "the request has no API version")),
    };
    wipe(line);
    parsed
}

/// Reads an answer out of a line.
///
/// # Errors
/// [`Code::ApiVersion`], [`Code::ApiRequest`].
pub fn parse_answer(line: &str) -> Result<Answer, Refusal> {
    match version_of(line) {
        Some(API_VERSION) => serde_json::from_str(line).map_err(|error| {
            Refusal::new(Code::ApiRequest, format!("the answer cannot be decoded: {error}"))
        }),
        // The refusal of a daemon of another version says better what to do.
        Some(version) => Err(mismatch("daemon", version, "command", API_VERSION)),
        None => Err(Refusal::new(Code::ApiRequest, "the answer has no API version")),
    }
}

fn version_of(line: &str) -> Option<u32> {
    serde_json::from_str::<VersionOnly>(line).ok().map(|v| v.version)
}

fn mismatch(other: &str, theirs: u32, own: &str, ours: u32) -> Refusal {
    let what = format!("the {other} uses API version {theirs}, this {own} version {ours}");
    Refusal::new(Code::ApiVersion, what).with(other, theirs).with(own, ours)
}

/// Entry for fuzzers: any line is a question, an answer or a refusal, and a question survives being
/// written again.
pub fn fuzz(bytes: &[u8]) {
    let Ok(Some(line)) = read_line(&mut &*bytes, REQUEST_BYTES_MAX) else { return };
    let _ = parse_answer(&line);
    if let Ok(question) = parse_question(line) {
        let mut again = Vec::new();
        write_line(&mut again, &question).expect("memory takes all");
        let line = read_line(&mut &*again, ANSWER_BYTES_MAX).expect("it is text").expect("it is a line");
        parse_question(line).expect("what was understood once is understood again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Call, PoolList};

    #[test]
    fn a_question_survives_the_wire() {
        let call = PoolList { names: vec!["tank".into()] }.into_request();
        let question =
            Question { version: API_VERSION, id: 7, command: "zpool list tank".into(), steps: false, call };
        let mut bytes = Vec::new();
        write_line(&mut bytes, &question).unwrap();
        let mut stream = bytes.as_slice();
        let line = read_line(&mut stream, REQUEST_BYTES_MAX).unwrap().unwrap();
        let back = parse_question(line).unwrap();
        assert_eq!((back.id, back.command.as_str()), (7, "zpool list tank"));
        assert!(matches!(back.call, Request::PoolList(list) if list.names == ["tank"]));
        assert!(read_line(&mut stream, REQUEST_BYTES_MAX).unwrap().is_none());
    }

    #[test]
    fn another_version_is_named_whatever_else_the_line_holds() {
        let refusal = parse_question(r#"{"version":9,"call":{"verb":"warp"}}"#.into()).unwrap_err();
        assert_eq!(refusal.code, Code::ApiVersion);
        assert!(
            refusal.what.contains('9') && refusal.what.contains(&API_VERSION.to_string()),
            "{}",
            refusal.what
        );
        assert_eq!(parse_answer(r#"{"version":9,"warp":1}"#).unwrap_err().code, Code::ApiVersion);
    }

    #[test]
    fn a_refused_line_is_not_quoted() {
        let rest = r#""id":1,"command":"x","call":{"verb":"fs_load_key","args":{"name":"t","key":{"format":"passphrase","secret":"hunter2hunter2"},"dry_run":false}}}"#;
        let line = format!(r#"{{"version":{API_VERSION},{rest}"#);
        let refusal = parse_question(line).unwrap_err();
        assert!(!format!("{refusal:?}").contains("hunter"), "{refusal:?}");
    }

    #[test]
    fn mutated_questions_never_panic() {
        let calls = [
            PoolList { names: vec!["tank".into()] }.into_request(),
            crate::api::FsLoadKey {
                name: "t".into(),
                key: crate::Key { format: crate::KeyFormat::Hex, secret: crate::Secret::new(vec![7; 32]) },
                dry_run: true,
            }
            .into_request(),
        ];
        let random = steadfast_env::Env::seeded(5).random;
        let mut understood = 0;
        for round in 0..20_000 {
            let call = calls[round % calls.len()].clone();
            let mut line = Vec::new();
            let question = Question { version: API_VERSION, id: 7, command: "x".into(), steps: false, call };
            write_line(&mut line, &question).unwrap();
            for _ in 0..random.nonzero_u64() % 3 {
                let at = usize::try_from(random.nonzero_u64() % line.len() as u64).unwrap();
                let byte = random.nonzero_u64().to_le_bytes()[0];
                match byte % 4 {
                    0 => line[at] ^= 1 << (byte >> 5),
                    1 => drop(line.remove(at)),
                    2 => line.insert(at, b"{}[]\",:0\\"[usize::from(byte >> 2) % 9]),
                    _ => line.extend_from_slice(b"}\n"),
                }
            }
            fuzz(&line);
            let whole = read_line(&mut &*line, REQUEST_BYTES_MAX).ok().flatten();
            understood += u32::from(whole.is_some_and(|line| parse_question(line).is_ok()));
        }
        assert!((2_000..18_000).contains(&understood), "{understood}: some are, some are not");
    }

    #[test]
    fn long_and_broken_lines_end() {
        let endless = vec![b'x'; 100];
        assert_eq!(read_line(&mut endless.as_slice(), 50).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read_line(&mut endless.as_slice(), 500).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(read_line(&mut [0xff, b'\n'].as_slice(), 50).is_err());
    }
}
