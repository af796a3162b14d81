//! Finds the messages of HTTP/1.1 in a stream of bytes (RFC 9112).

/// Headers that a head may have.
const HEADERS_MAX: usize = 64;
/// Bytes that a head may have; behind that, the stream is no HTTP.
const HEAD_MAX: usize = 64 << 10;

/// Head of a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Head {
    /// A request: its method, and its target as it was sent.
    Request(String, String),
    /// An answer: its status.
    Answer(u16),
}

/// One thing that passed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// A head ended.
    Head(Head),
    /// The body of the message ended.
    End,
}

#[derive(Debug)]
enum State {
    /// Bytes of a head that has not ended.
    Head(Vec<u8>),
    /// Bytes of a body that are to come.
    Body(u64),
    /// In a body of chunks.
    Chunks(Chunk),
    /// A body that ends with the connection.
    UntilClose,
    /// No HTTP: nothing more is read.
    Opaque,
}

/// Place in a body of chunks.
#[derive(Debug)]
enum Chunk {
    /// In the line with the size.
    Size(Vec<u8>),
    /// Bytes of the chunk that are to come, with the end of line behind it.
    Data(u64),
    /// In the lines behind the last chunk; true while the line is empty.
    Trailer(bool),
}

/// Reads one direction of one connection.
#[derive(Debug)]
pub struct Scanner {
    state: State,
    is_of_requests: bool,
}

impl Scanner {
    /// Reads what a client sends.
    pub fn of_requests() -> Scanner {
        Scanner { state: State::Head(Vec::new()), is_of_requests: true }
    }

    /// Reads what a server sends.
    pub fn of_answers() -> Scanner {
        Scanner { state: State::Head(Vec::new()), is_of_requests: false }
    }

    /// Reads the next bytes. `has_body` tells whether an answer with this status has a body at all:
    /// that depends on the method of its request, which passed in the other direction.
    pub fn read(
        &mut self,
        mut bytes: &[u8],
        has_body: &mut dyn FnMut(u16) -> bool,
        tell: &mut dyn FnMut(Event),
    ) {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Opaque | State::UntilClose => return,
                State::Body(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= taken as u64;
                    bytes = &bytes[taken..];
                    if *left == 0 {
                        self.state = State::Head(Vec::new());
                        tell(Event::End);
                    }
                }
                State::Chunks(chunk) => {
                    let (byte, rest) = (bytes[0], &bytes[1..]);
                    match chunk {
                        Chunk::Data(left) => {
                            let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                            *left -= taken as u64;
                            bytes = &bytes[taken..];
                            if *left == 0 {
                                *chunk = Chunk::Size(Vec::new());
                            }
                        }
                        Chunk::Size(line) if byte == b'\n' => {
                            bytes = rest;
                            match size_of_chunk(line) {
                                None => self.state = State::Opaque,
                                Some(0) => *chunk = Chunk::Trailer(true),
                                // The chunk's own end of line belongs to it.
                                Some(size) => *chunk = Chunk::Data(size + 2),
                            }
                        }
                        Chunk::Size(line) => {
                            bytes = rest;
                            line.push(byte);
                            if line.len() > HEAD_MAX {
                                self.state = State::Opaque;
                            }
                        }
                        Chunk::Trailer(is_empty) => {
                            bytes = rest;
                            match byte {
                                b'\n' if *is_empty => {
                                    self.state = State::Head(Vec::new());
                                    tell(Event::End);
                                }
                                b'\n' => *is_empty = true,
                                b'\r' => {}
                                _ => *is_empty = false,
                            }
                        }
                    }
                }
                State::Head(kept) => {
                    let before = kept.len();
                    kept.extend_from_slice(bytes);
                    match parse(kept, self.is_of_requests) {
                        Parsed::Not => self.state = State::Opaque,
                        Parsed::More if kept.len() > HEAD_MAX => self.state = State::Opaque,
                        Parsed::More => return,
                        Parsed::Whole { length, head, body } => {
                            bytes = &bytes[length - before..];
                            let body = match &head {
                                Head::Answer(status) if !has_body(*status) => Body::Sized(0),
                                _ => body,
                            };
                            tell(Event::Head(head));
                            self.state = match body {
                                Body::Sized(0) => {
                                    tell(Event::End);
                                    State::Head(Vec::new())
                                }
                                Body::Sized(left) => State::Body(left),
                                Body::Chunks => State::Chunks(Chunk::Size(Vec::new())),
                                Body::UntilClose => State::UntilClose,
                            };
                        }
                    }
                }
            }
        }
    }
}

fn size_of_chunk(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    u64::from_str_radix(text.split(';').next()?.trim(), 16).ok().filter(|size| *size < 1 << 40)
}

/// How a body ends.
enum Body {
    Sized(u64),
    Chunks,
    UntilClose,
}

enum Parsed {
    /// It is no HTTP.
    Not,
    /// The head has not ended.
    More,
    Whole {
        length: usize,
        head: Head,
        body: Body,
    },
}

fn parse(bytes: &[u8], is_of_requests: bool) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let (status, head) = if is_of_requests {
        let mut request = httparse::Request::new(&mut headers);
        let status = request.parse(bytes);
        let (method, path) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
        (status, Head::Request(method.to_owned(), path.to_owned()))
    } else {
        let mut answer = httparse::Response::new(&mut headers);
        let status = answer.parse(bytes);
        (status, Head::Answer(answer.code.unwrap_or_default()))
    };
    let length = match status {
        Err(_) => return Parsed::Not,
        Ok(httparse::Status::Partial) => return Parsed::More,
        Ok(httparse::Status::Complete(length)) => length,
    };
    let value = |name: &str| {
        let found = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok()
    };
    let is_chunked =
        value("transfer-encoding").is_some_and(|coding| coding.to_ascii_lowercase().contains("chunked"));
    let body = match value("content-length").and_then(|length| length.trim().parse().ok()) {
        _ if is_chunked => Body::Chunks,
        Some(length) => Body::Sized(length),
        None if is_of_requests => Body::Sized(0),
        None => Body::UntilClose,
    };
    Parsed::Whole { length, head, body }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(scanner: &mut Scanner, bytes: &[u8], step: usize) -> Vec<Event> {
        let mut told = Vec::new();
        for part in bytes.chunks(step) {
            scanner.read(part, &mut |status| status != 304, &mut |event| told.push(event));
        }
        told
    }

    #[test]
    fn messages_are_found_however_the_bytes_are_cut() {
        let requests = b"PUT /bucket/a HTTP/1.1\r\nHost: x\r\ncontent-length: 5\r\n\r\nhelloGET /bucket/b?x=1 HTTP/1.1\r\n\r\n\
            POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4;ext=1\r\nwiki\r\n0\r\nExpires: 1\r\n\r\nHEAD /d HTTP/1.1\r\n\r\n";
        let request = |method: &str, path: &str| {
            [Event::Head(Head::Request(method.to_owned(), path.to_owned())), Event::End]
        };
        let wanted = [
            request("PUT", "/bucket/a"),
            request("GET", "/bucket/b?x=1"),
            request("POST", "/c"),
            request("HEAD", "/d"),
        ]
        .concat();
        for step in 1..requests.len() {
            assert_eq!(events(&mut Scanner::of_requests(), requests, step), wanted, "cut every {step} bytes");
        }
    }

    #[test]
    fn answers_end_where_their_bodies_do() {
        let answers = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n\
            HTTP/1.1 206 Partial Content\r\ntransfer-encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\nrest";
        let answer = |status| Event::Head(Head::Answer(status));
        for step in 1..answers.len() {
            let told = events(&mut Scanner::of_answers(), answers, step);
            let wanted =
                [answer(200), Event::End, answer(304), Event::End, answer(206), Event::End, answer(200)];
            assert_eq!(told, wanted, "cut every {step} bytes");
        }
    }

    #[test]
    fn other_protocols_pass_unread() {
        let mut scanner = Scanner::of_requests();
        assert_eq!(events(&mut scanner, b"\x16\x03\x01\x02\x00\x01\x00", 3), []);
        assert_eq!(events(&mut scanner, b"GET / HTTP/1.1\r\n\r\n", 3), []);
        let mut endless = Scanner::of_requests();
        assert_eq!(events(&mut endless, &[b'G'; HEAD_MAX + 9], 1 << 10), []);
        assert!(matches!(endless.state, State::Opaque));
    }
}
