//! # An agent beside the store
//!
//! It reads the cells that it is asked for, near the store, and answers with their sum: 4,096 bytes
//! for any number of cells. It has no keys and no list of segments, and is believed in nothing: the
//! owner adds the tags, which never leave him, and checks the sum by them.
//!
//! ```text
//! question   "steadfast-agent 1" SEED COUNT newline, then COUNT times
//!            segment (8 bytes), index of the cell (2), its bytes (2), little-endian
//! answer     "held" newline and 4,096 bytes, or "no" and a reason, newline
//! ```
//!
//! The seed is 64 hexadecimal digits. Coefficients follow from it as in [`crate::audit`].
//!
//! [por.15] A reply is right only if every cell was there, but for 257 / 2^128: a reply of before,
//!     of another seed, of fewer cells or of other contents fails.
//!     test: `agents_that_lie_are_found_out`

use std::io::{self, BufRead, Read};

use steadfast_crypto::Key;
use steadfast_crypto::prf::Prf;
use steadfast_device::{Device, Error as DeviceError, PartRead, SegmentPlace};
use steadfast_format::SegmentId;
use steadfast_format::parity::ParitySegment;

use crate::cell::{PAYLOAD, Payload};
use crate::field::WideSums;
use crate::kernel::Kernel;
use crate::tag::WORDS;

/// First words of a question.
const HEAD: &str = "steadfast-agent 1 ";
/// Longest first line of a question or an answer.
const LINE_MAX: u64 = 512;
/// Bytes of a cell in a question.
const ASKED: usize = 12;
/// Most cells of a question: 400 MB to be read.
pub const CELLS_MAX: u32 = 100_000;
/// Cells that are read side by side.
const AT_ONCE: usize = 256;
/// Slot that objects are read with: stores of objects use the id alone.
const NO_SLOT: u32 = 0;

/// A cell that an agent is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AskedCell {
    /// Segment.
    pub segment: SegmentId,
    /// Number of the cell in it.
    pub index: u16,
    /// Bytes that the store has of it, 1 to 4,096: the last cell of a segment may be short.
    pub bytes: u16,
}

/// A question to an agent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Question {
    /// Chooses the coefficients.
    pub seed: [u8; 32],
    /// Cells, in the order of the samples.
    pub cells: Vec<AskedCell>,
}

/// Coefficients of so many samples.
pub(crate) fn coefficients(seed: &[u8; 32], count: usize) -> Vec<u128> {
    let prf = Prf::new(&Key::from_bytes(*seed));
    let mut blocks: Vec<[u8; 16]> = (0..count as u128).map(|at| (2 * at + 1).to_le_bytes()).collect();
    prf.fill(&mut blocks);
    blocks.into_iter().map(u128::from_le_bytes).collect()
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A line without its newline; an error if it is longer than it may be.
fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.by_ref().take(LINE_MAX).read_line(&mut line)?;
    line.strip_suffix('\n').map(str::to_owned).ok_or_else(|| wrong("a line that does not end"))
}

impl Question {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let seed: String = self.seed.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut bytes = format!("{HEAD}{seed} {}\n", self.cells.len()).into_bytes();
        for AskedCell { segment, index, bytes: length } in &self.cells {
            bytes.extend_from_slice(&segment.0.to_le_bytes());
            bytes.extend_from_slice(&index.to_le_bytes());
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        bytes
    }

    /// Reads a question.
    ///
    /// # Errors
    /// The stream ends or fails, or these are no bytes of a question.
    pub fn read(stream: &mut impl BufRead) -> io::Result<Question> {
        let line = line(stream)?;
        let words = line.strip_prefix(HEAD).and_then(|rest| rest.split_once(' '));
        let (digits, count) = words.ok_or_else(|| wrong("no question to an agent"))?;
        let mut seed = [0; 32];
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong("no seed"));
        }
        for (byte, pair) in seed.iter_mut().zip(digits.as_bytes().as_chunks::<2>().0) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong("no seed"))?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong("no seed"))?;
        }
        let count: u32 = count.parse().map_err(|_| wrong("no number of cells"))?;
        if count > CELLS_MAX {
            return Err(wrong("more cells than an agent is asked for"));
        }
        let mut cells = Vec::new();
        for _ in 0..count {
            let mut asked = [0; ASKED];
            stream.read_exact(&mut asked)?;
            let [a, b, c, d, e, f, g, h, index @ .., _, _] = asked;
            let segment = SegmentId(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
            let bytes = u16::from_le_bytes([asked[10], asked[11]]);
            if bytes == 0 || usize::from(bytes) > PAYLOAD {
                return Err(wrong("a cell of no or too many bytes"));
            }
            let index = u16::from_le_bytes(index);
            if u64::from(index) * PAYLOAD as u64 + u64::from(bytes) > u64::from(ParitySegment::LENGTH_MAX) {
                return Err(wrong("a cell behind the end of all segments"));
            }
            cells.push(AskedCell { segment, index, bytes });
        }
        Ok(Question { seed, cells })
    }

    /// The sum of the cells' contents, each times its coefficient, read from a device of whole
    /// objects.
    ///
    /// # Errors
    /// The first cell that cannot be read.
    pub fn sum(&self, device: &dyn Device) -> Result<Box<Payload>, (AskedCell, DeviceError)> {
        let (kernel, coefficients) = (Kernel::best(), coefficients(&self.seed, self.cells.len()));
        let mut sums = WideSums::new(WORDS);
        for (asked, coefficients) in self.cells.chunks(AT_ONCE).zip(coefficients.chunks(AT_ONCE)) {
            let mut cells = vec![[0; PAYLOAD]; asked.len()];
            let reads = asked.iter().zip(&mut cells).map(|(cell, out)| {
                let place = SegmentPlace {
                    segment: cell.segment,
                    slot: NO_SLOT,
                    slot_size: ParitySegment::LENGTH_MAX,
                };
                let offset = u32::from(cell.index) * PAYLOAD as u32;
                PartRead::new(place, offset, vec![&mut out[..usize::from(cell.bytes)]])
            });
            let mut reads: Vec<PartRead<'_>> = reads.collect();
            device.read_many(&mut reads);
            for (read, cell) in reads.into_iter().zip(asked) {
                read.outcome.map_err(|error| (*cell, error))?;
            }
            for (cell, coefficient) in cells.iter().zip(coefficients) {
                sums.add_products(kernel, *coefficient, cell.as_chunks().0);
            }
        }
        let mut sum: Box<Payload> = Box::new([0; PAYLOAD]);
        for (out, word) in sum.as_chunks_mut::<16>().0.iter_mut().zip(sums.reduce()) {
            *out = word.to_le_bytes();
        }
        Ok(sum)
    }
}

/// Bytes of an answer.
#[must_use]
pub fn encode_answer(answer: &Result<Box<Payload>, String>) -> Vec<u8> {
    match answer {
        Ok(sum) => [b"held\n", sum.as_slice()].concat(),
        Err(reason) => {
            let plain: String = reason.chars().filter(|letter| !letter.is_control()).take(200).collect();
            format!("no {plain}\n").into_bytes()
        }
    }
}

/// Reads an answer: the sum, or the reason why there is none.
///
/// # Errors
/// The stream ends or fails, or these are no bytes of an answer.
pub fn read_answer(stream: &mut impl BufRead) -> io::Result<Result<Box<Payload>, String>> {
    let line = line(stream)?;
    if let Some(reason) = line.strip_prefix("no ") {
        return Ok(Err(reason.to_owned()));
    }
    if line != "held" {
        return Err(wrong("no answer of an agent"));
    }
    let mut sum: Box<Payload> = Box::new([0; PAYLOAD]);
    stream.read_exact(&mut *sum)?;
    Ok(Ok(sum))
}

/// Entry for fuzzers: any bytes are a question or none, and a question survives being written
/// again.
pub fn fuzz_question(bytes: &[u8]) {
    if let Ok(question) = Question::read(&mut &*bytes) {
        let again = Question::read(&mut &*question.encode());
        assert!(again.is_ok_and(|again| again == question), "what was read once is read again");
    }
}

/// Entry for fuzzers: any bytes are an answer or none, and an answer survives being written again.
pub fn fuzz_answer(bytes: &[u8]) {
    let Ok(answer) = read_answer(&mut &*bytes) else { return };
    let again = read_answer(&mut &*encode_answer(&answer)).expect("what was read once is read again");
    match answer {
        Ok(sum) => assert_eq!(again, Ok(sum)),
        // Letters that a terminal would obey are left out, and long reasons are cut.
        Err(reason) => assert!(again.is_err_and(|again| again.len() <= reason.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn question() -> Question {
        let cell = |segment, index, bytes| AskedCell { segment: SegmentId(segment), index, bytes };
        Question { seed: [0xa5; 32], cells: vec![cell(1, 0, 4096), cell(u64::MAX, 7, 1)] }
    }

    #[test]
    fn questions_and_answers_are_read_as_they_were_written() {
        let bytes = question().encode();
        assert_eq!(Question::read(&mut &*bytes).unwrap(), question());
        for end in 0..bytes.len() {
            assert!(Question::read(&mut &bytes[..end]).is_err(), "cut at {end}");
        }
        let held = Ok(Box::new([9; PAYLOAD]));
        let bytes = encode_answer(&held);
        assert!(bytes.len() <= 5_000, "a reply of {} bytes", bytes.len());
        assert_eq!(read_answer(&mut &*bytes).unwrap(), held);
        assert!(read_answer(&mut &bytes[..4000]).is_err());
        let no = encode_answer(&Err("gone\nwith\u{7}letters".to_owned()));
        assert_eq!(read_answer(&mut &*no).unwrap(), Err("gonewithletters".to_owned()));
        assert!(read_answer(&mut &[b'x'; 9000][..]).is_err());
    }

    /// Agents of other versions read the same bytes.
    #[test]
    fn a_question_and_answers_have_the_bytes_that_they_had() {
        let head = format!("steadfast-agent 1 {} 2\n", "a5".repeat(32));
        let cells: [[u8; ASKED]; 2] = [
            [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10],
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 7, 0, 1, 0],
        ];
        let bytes = [head.as_bytes(), cells.as_flattened()].concat();
        assert_eq!(question().encode(), bytes);
        fuzz_question(&bytes);
        let held = [&b"held\n"[..], &[3; PAYLOAD]].concat();
        assert_eq!(encode_answer(&Ok(Box::new([3; PAYLOAD]))), held);
        assert_eq!(encode_answer(&Err("no such object".to_owned())), b"no no such object\n");
        fuzz_answer(&held);
        fuzz_answer(b"no a\x1b[31m reason\n");
    }

    #[test]
    fn coefficients_are_those_of_a_challenge() {
        use crate::audit::{Challenge, SegmentCells, Stratum};
        let cells = SegmentCells { segment: SegmentId(3), opening: 1, store: 1, cells: 9 };
        let stratum = Stratum::new(1, vec![cells]);
        let samples = Challenge { seed: [3; 32], generation: 1, samples: 20 }.expand(&stratum);
        let expected: Vec<u128> = samples.iter().map(|sample| sample.coefficient).collect();
        assert_eq!(coefficients(&[3; 32], 20), expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn no_bytes_make_a_reader_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            count: u32,
            has_head: bool,
        ) {
            let seed = "0".repeat(64);
            let head = if has_head { format!("{HEAD}{seed} {count}\n") } else { String::new() };
            let bytes = [head.as_bytes(), &bytes].concat();
            fuzz_question(&bytes);
            fuzz_answer(&bytes);
            fuzz_answer(&[b"no ", &*bytes, b"\n"].concat());
        }
    }
}
