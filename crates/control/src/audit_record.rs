//! # Records of audits, for an auditor
//!
//! Each audit leaves a record: what was asked of which cells, when, what was answered, and what was
//! held. Records are signed and name the one before, so that none can be changed, added or left
//! out in between without the key of the pool.
//!
//! A record is a line: `steadfast-audit 1 KEY SIGNATURE BODY`. Key (32 bytes) and signature (64
//! bytes, Ed25519) are hexadecimal. The signed message is `steadfast audit record v1`, a newline,
//! and the body: a JSON document, whose bytes count as they are.
//!
//! A record proves what the owner of the key says of an audit. Seeds and hashes let him show
//! afterwards which cells were asked for: they follow from the seed, the list of cells, and nothing
//! else.
//!
//! ## Invariants
//! [audit_record.1] Numbers of one key grow by one, and each record has the hash of the body
//!     before.
//!     test: `a_record_that_was_changed_added_or_left_out_is_found`
//! [audit_record.2] The last records are kept: two files of 1 MiB at most. An auditor who takes
//!     them in time has all.
//!     test: `records_are_kept_and_the_oldest_go`

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use steadfast_crypto::{Signer, hash, is_signed, sign};

/// First words of a line.
const HEAD: &str = "steadfast-audit 1 ";
/// Begins every signed message.
const DOMAIN: &[u8] = b"steadfast audit record v1\n";
/// Bytes of one file.
const FILE_MAX: u64 = 1 << 20;
/// Longest line that is read.
const LINE_MAX: usize = 1 << 20;

/// One record at a time is numbered and written.
static TURN: Mutex<()> = Mutex::new(());

/// Body of a record.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Name of the pool then.
    pub pool: String,
    /// Its number.
    pub guid: u64,
    /// Number of the record, from 1.
    pub number: u64,
    /// BLAKE3 of the body before, hexadecimal; of the first record none.
    pub previous: Option<String>,
    /// When it began, nanoseconds since 1970.
    pub begun_ns: u64,
    /// When all was answered and judged.
    pub ended_ns: u64,
    /// Cells in a million that may be lost and still come back.
    pub loss_ppm: u32,
    /// Files and disks were asked, and no stores.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_device: bool,
    /// Requests to the stores.
    pub requests: u64,
    /// Bytes that were read from them.
    pub bytes_in: u64,
    /// Bytes that the pool stored. Records of former versions do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
    /// Those of them that the code covered: the record tells of these alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered_bytes: Option<u64>,
    /// Part by part.
    pub strata: Vec<RecordedStratum>,
}

/// A part of an audit.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct RecordedStratum {
    /// Store, parity device, file or disk.
    pub device: String,
    /// Part of it: `all`, `newest` or `tiles`.
    pub part: String,
    /// Seed of the challenge, hexadecimal, as all hashes here.
    pub seed: Option<String>,
    /// Number of the list of cells.
    pub generation: Option<u64>,
    /// Hash of that list.
    pub list: Option<String>,
    /// Cells of the list.
    pub cells: u64,
    /// Cells that were asked for.
    pub samples: u32,
    /// Hash of the answers.
    pub answers: Option<String>,
    /// Cells that were there.
    pub held: u32,
    /// Some of the others: segment, cell (of a file or disk the offset in the segment's column),
    /// reason.
    pub failed: Vec<(u64, u32, String)>,
}

impl AuditRecord {
    /// True if every sample was held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.strata.iter().all(|stratum| stratum.held == stratum.samples)
    }

    /// Fraction of what the pool stored of which the record tells, if it says.
    #[must_use]
    pub fn covered(&self) -> Option<f64> {
        let (stored, covered) = (self.stored_bytes?, self.covered_bytes?);
        (stored > 0).then_some(covered as f64 / stored as f64)
    }

    fn body(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts")
    }
}

/// A record whose signature was checked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SignedRecord {
    /// Key of the signature, hexadecimal.
    pub key: String,
    /// Body.
    pub record: AuditRecord,
    /// Hash of the body, which the next record has.
    pub hash: String,
}

/// Why a file of records cannot be believed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Disbelief {
    /// A line is no record.
    #[error("line {line} is no record of an audit")]
    Form {
        /// Its number, from 1.
        line: usize,
    },
    /// A signature is not that of the key.
    #[error("line {line}: its signature is not that of its key")]
    Signature {
        /// Its number, from 1.
        line: usize,
    },
    /// A line has another key, or another pool.
    #[error("line {line} is of another {what}")]
    Other {
        /// Its number, from 1.
        line: usize,
        /// `key` or `pool`.
        what: &'static str,
    },
    /// A record does not follow the one before.
    #[error("line {line}: record {found} does not follow the one before")]
    Chain {
        /// Its number, from 1.
        line: usize,
        /// Number of the record.
        found: u64,
    },
    /// There are none.
    #[error("there is no record")]
    Empty,
}

/// Reads a line and checks its signature. `line` is its number in the file.
///
/// # Errors
/// It is no record, or not signed by its key.
pub fn read(text: &str, line: usize) -> Result<SignedRecord, Disbelief> {
    let form = || Disbelief::Form { line };
    let rest = text.strip_prefix(HEAD).filter(|rest| rest.len() <= LINE_MAX).ok_or_else(form)?;
    let (key, rest) = rest.split_once(' ').ok_or_else(form)?;
    let (signature, body) = rest.split_once(' ').ok_or_else(form)?;
    let public: [u8; sign::PUBLIC] = unhex(key).ok_or_else(form)?;
    let signature: [u8; sign::SIGNATURE] = unhex(signature).ok_or_else(form)?;
    if !is_signed(&public, &message(body), &signature) {
        return Err(Disbelief::Signature { line });
    }
    let record = serde_json::from_str(body).map_err(|_| form())?;
    Ok(SignedRecord { key: key.to_owned(), record, hash: hex(&hash(body.as_bytes())) })
}

/// Checks a file of records: each signature, and that each follows the one before [audit_record.1].
/// It may begin with any record: older ones may not be kept any more. `key` is the one that they
/// must have, if it is known.
///
/// # Errors
/// The first line that cannot be believed.
pub fn read_all(text: &str, key: Option<&str>) -> Result<Vec<SignedRecord>, Disbelief> {
    let mut records: Vec<SignedRecord> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let found = read(text, line)?;
        let expected = key.or_else(|| records.first().map(|first| first.key.as_str()));
        if expected.is_some_and(|key| !key.eq_ignore_ascii_case(&found.key)) {
            return Err(Disbelief::Other { line, what: "key" });
        }
        if let Some(before) = records.last() {
            if before.record.guid != found.record.guid {
                return Err(Disbelief::Other { line, what: "pool" });
            }
            let follows = found.record.number == before.record.number.wrapping_add(1)
                && found.record.previous.as_deref() == Some(before.hash.as_str());
            if !follows {
                return Err(Disbelief::Chain { line, found: found.record.number });
            }
        }
        records.push(found);
    }
    if records.is_empty() { Err(Disbelief::Empty) } else { Ok(records) }
}

fn message(body: &str) -> Vec<u8> {
    [DOMAIN, body.as_bytes()].concat()
}

/// A line with its newline.
fn line(record: &AuditRecord, signer: &Signer) -> String {
    let body = record.body();
    let signature = signer.sign(&message(&body));
    format!("{HEAD}{} {} {body}\n", hex(&signer.public()), hex(&signature))
}

/// Hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

/// The records of one key that are kept.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    file_max: u64,
}

impl AuditLog {
    /// The records of a pool and a key; the file is made with the first of them.
    #[must_use]
    pub fn new(folder: &Path, guid: u64, key: &[u8; sign::PUBLIC]) -> AuditLog {
        let name = format!("{guid:016x}-{}.record", hex(&key[..8]));
        AuditLog { path: folder.join(name), file_max: FILE_MAX }
    }

    fn former(&self) -> PathBuf {
        self.path.with_extension("record.1")
    }

    /// Lines that are kept, oldest first, without those that a power cut tore.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for path in [self.former(), self.path.clone()] {
            let text = self.text(&path).unwrap_or_default();
            lines.extend(text.lines().filter(|line| read(line, 1).is_ok()).map(str::to_owned));
        }
        lines
    }

    fn text(&self, path: &Path) -> io::Result<String> {
        let mut bytes = Vec::new();
        // Nobody else writes it; one that is longer all the same is not read to its end.
        File::open(path)?.take(2 * self.file_max).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Numbers a record, signs it and keeps it. Durable when it returns. Its number.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn append(&self, record: AuditRecord, signer: &Signer) -> io::Result<u64> {
        let _turn = TURN.lock();
        let last = self.lines().last().and_then(|line| read(line, 1).ok());
        let (number, previous) = match last {
            Some(last) => (last.record.number + 1, Some(last.hash)),
            None => (1, None),
        };
        let line = line(&AuditRecord { number, previous, ..record }, signer);
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let length = fs::metadata(&self.path).map_or(0, |found| found.len());
        if length > 0 && length + line.len() as u64 > self.file_max {
            fs::rename(&self.path, self.former())?;
        }
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&self.path)?;
        // A torn line: the next one begins on its own.
        let is_torn = !self.text(&self.path)?.is_empty() && !self.text(&self.path)?.ends_with('\n');
        let start = if is_torn { "\n" } else { "" };
        file.write_all(format!("{start}{line}").as_bytes())?;
        file.sync_all()?;
        File::open(folder)?.sync_all()?;
        Ok(number)
    }
}

/// Entry for fuzzers: any bytes are a file of records or none, and a body that is signed is read as
/// it was written, or is none.
pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(records) = read_all(&text, None) {
        assert!(!records.is_empty());
    }
    let signer = Signer::new(&steadfast_crypto::Key::from_bytes([1; 32]));
    let signed = |body: &str| {
        let (key, signature) = (hex(&signer.public()), hex(&signer.sign(&message(body))));
        read(&format!("{HEAD}{key} {signature} {body}"), 1)
    };
    match signed(&text) {
        Ok(found) => {
            let again = signed(&found.record.body()).expect("what was read once is read again");
            assert_eq!(again.record, found.record);
        }
        Err(error) => assert_eq!(error, Disbelief::Form { line: 1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_crypto::Key;

    fn signer(seed: u8) -> Signer {
        Signer::new(&Key::from_bytes([seed; 32]))
    }

    fn audit(held: u32) -> AuditRecord {
        let stratum = RecordedStratum {
            device: "file:///a b".to_owned(),
            part: "all".to_owned(),
            seed: Some(hex(&[7; 32])),
            samples: 10,
            held,
            failed: (held..10).map(|at| (5, at, "gone\nsegment".to_owned())).collect(),
            ..RecordedStratum::default()
        };
        AuditRecord {
            pool: "tank".to_owned(),
            guid: 77,
            begun_ns: 1_000,
            ended_ns: 2_000,
            strata: vec![stratum],
            ..AuditRecord::default()
        }
    }

    fn log(name: &str, file_max: u64) -> AuditLog {
        let folder =
            std::env::temp_dir().join(format!("steadfast-audit-record-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        AuditLog { file_max, ..AuditLog::new(&folder, 77, &signer(1).public()) }
    }

    fn three(name: &str) -> String {
        let log = log(name, FILE_MAX);
        for (number, held) in [(1, 10), (2, 8), (3, 10)] {
            assert_eq!(log.append(audit(held), &signer(1)).unwrap(), number);
        }
        let lines = log.lines();
        let _ = fs::remove_dir_all(log.path.parent().unwrap());
        lines.join("\n") + "\n"
    }

    #[test]
    fn records_say_what_was_asked_and_answered() {
        let text = three("say");
        let records = read_all(&text, Some(&hex(&signer(1).public()))).unwrap();
        let held: Vec<bool> = records.iter().map(|found| found.record.is_held()).collect();
        assert_eq!(held, [true, false, true]);
        assert_eq!(records[1].record.strata[0].failed.len(), 2);
        assert_eq!(text.lines().count(), 3, "a reason with a newline stays in its line");
        assert_eq!(
            read_all(&text, Some(&hex(&signer(2).public()))),
            Err(Disbelief::Other { line: 1, what: "key" })
        );
        assert_eq!(read_all("", None), Err(Disbelief::Empty));
    }

    /// [audit_record.1]
    #[test]
    fn a_record_that_was_changed_added_or_left_out_is_found() {
        let text = three("changed");
        let lines: Vec<&str> = text.lines().collect();
        let verdict = |lines: &[&str]| read_all(&lines.join("\n"), None).map(|records| records.len());
        assert_eq!(verdict(&lines), Ok(3));
        // Older ones may not be kept any more, and later ones may come.
        assert_eq!((verdict(&lines[1..]), verdict(&lines[..2])), (Ok(2), Ok(2)));
        assert_eq!(verdict(&[lines[0], lines[2]]), Err(Disbelief::Chain { line: 2, found: 3 }));
        assert_eq!(verdict(&[lines[1], lines[0]]), Err(Disbelief::Chain { line: 2, found: 1 }));
        assert_eq!(verdict(&[lines[0], lines[0]]), Err(Disbelief::Chain { line: 2, found: 1 }));
        let better = lines[1].replace("\"held\":8", "\"held\":10");
        assert_eq!(verdict(&[lines[0], &better]), Err(Disbelief::Signature { line: 2 }));
        assert_eq!(verdict(&[lines[0], "steadfast-audit 1 x y {}"]), Err(Disbelief::Form { line: 2 }));
        // Another key, in a line that is right by itself.
        let other = line(&AuditRecord { number: 2, ..audit(10) }, &signer(2));
        assert_eq!(verdict(&[lines[0], other.trim_end()]), Err(Disbelief::Other { line: 2, what: "key" }));
        // Each bit of a line counts; no line makes the reader panic.
        let bytes = lines[1].as_bytes();
        for at in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[at] ^= 1;
            let changed = String::from_utf8_lossy(&changed).into_owned();
            assert!(read(&changed, 1).is_err(), "byte {at}");
        }
        for end in 0..lines[1].len() {
            assert!(read(&lines[1][..end], 1).is_err(), "cut at {end}");
        }
    }

    /// [audit_record.2]
    #[test]
    fn records_are_kept_and_the_oldest_go() {
        let log = log("kept", 4_000);
        let signer = signer(1);
        for _ in 0..20 {
            log.append(audit(10), &signer).unwrap();
        }
        let records = read_all(&log.lines().join("\n"), None).unwrap();
        assert_eq!(records.last().unwrap().record.number, 20);
        assert!((5..20).contains(&records.len()), "{} of 20", records.len());
        // A power cut tore the last line: it is left out, and the next one has its number.
        let text = fs::read(&log.path).unwrap();
        fs::write(&log.path, &text[..text.len() - 9]).unwrap();
        assert_eq!(log.append(audit(10), &signer).unwrap(), 20);
        read_all(&log.lines().join("\n"), None).unwrap();
        fs::remove_dir_all(log.path.parent().unwrap()).unwrap();
    }

    /// The form of a line is a promise to whoever keeps one. Key and signature by another program,
    /// after RFC 8032.
    #[test]
    fn a_line_of_version_1_stays_as_it_is() {
        const KEY: &str = "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c";
        const SIGNATURE: &str = "2e756352d9d142c2e3794b934f8def387b71dfb6879720131152fcac79f214b7\
                                 06706c7c6a9d194af37dadb9c7e31803fbb90b300c927c97298dcab705fc5a07";
        let (nines, sevens) = ("09".repeat(32), "07".repeat(32));
        let body = format!(
            "{{\"pool\":\"tank\",\"guid\":77,\"number\":3,\"previous\":\"{nines}\",\"begun_ns\":1000,\"ended_ns\":2000,\
             \"loss_ppm\":0,\"requests\":0,\"bytes_in\":0,\"strata\":[{{\"device\":\"file:///a b\",\"part\":\"all\",\
             \"seed\":\"{sevens}\",\"generation\":null,\"list\":null,\"cells\":0,\"samples\":10,\"answers\":null,\
             \"held\":9,\"failed\":[[5,9,\"gone\\nsegment\"]]}}]}}"
        );
        let record = AuditRecord { number: 3, previous: Some(nines.clone()), ..audit(9) };
        assert_eq!(line(&record, &signer(1)), format!("steadfast-audit 1 {KEY} {SIGNATURE} {body}\n"));
    }

    #[test]
    fn no_bytes_make_a_reader_panic() {
        let random = steadfast_env::Env::seeded(7).random;
        for length in 0..200 {
            let mut bytes = vec![0; length];
            random.fill(&mut bytes);
            fuzz(&bytes);
            fuzz(&[HEAD.as_bytes(), &bytes].concat());
        }
    }

    /// How much of the pool a record tells of is signed, too. Older records do not say.
    #[test]
    fn a_record_says_how_much_of_the_pool_it_tells_of() {
        let part = AuditRecord { stored_bytes: Some(800), covered_bytes: Some(200), ..audit(10) };
        let found = read(line(&part, &signer(1)).trim_end(), 1).unwrap();
        assert_eq!(found.record.covered(), Some(0.25));
        let old = read(line(&audit(10), &signer(1)).trim_end(), 1).unwrap();
        assert_eq!((old.record.stored_bytes, old.record.covered()), (None, None));
        let empty = AuditRecord { stored_bytes: Some(0), covered_bytes: Some(0), ..audit(10) };
        assert_eq!(empty.covered(), None);
    }

    /// Files of other versions are read: the bytes of a record, its signature with them.
    #[test]
    fn a_record_has_the_bytes_that_it_had() {
        let written = line(&AuditRecord { number: 1, ..audit(9) }, &signer(3));
        assert_eq!(written, include_str!("../golden/audit.record"));
        let records = read_all(&written, None).unwrap();
        assert_eq!((records.len(), records[0].record.is_held()), (1, false));
        fuzz(written.as_bytes());
        fuzz(records[0].record.body().as_bytes());
    }
}
