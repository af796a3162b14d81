//! # Data validation: what comes back is what was written last
//!
//! One byte for each *key block* (the smallest transfer of all runs): 0 unknown, 1 to 126 how often
//! it was written, going round, 127 known to be bad. A block that was never written by this
//! execution is never judged. Each 512-byte sector says where it belongs, when and for which key it
//! was written, and by whom; the rest is data that place and key give again:
//!
//! | off | len | field |
//! |---|---|---|
//! | 0 | 8 | byte address in the lun or file, big endian |
//! | 8 | 8 | milliseconds since 1970, taken before the write, big endian |
//! | 16 | 1 | key |
//! | 17 | 1 | sum of the eight bytes of the time |
//! | 18 | 2 | zero |
//! | 20 | 8 | name of the sd or fsd, cut to eight letters or filled with blanks |
//! | 28 | 4 | process id of the writer, big endian |
//! | 32 | 480 | data as `compratio=` asks for |
//!
//! Fields and order are those of vdbench. The key of a block's first write is drawn, so that what
//! an earlier execution left there does not pass for a write that was lost (one chance in 126).
//!
//! ## Invariants
//! [validate.1] A block is used by one thread at a time: the top bit of its byte is a lock, taken
//!      in rising order and given up whole, so that no two threads wait for each other.
//!      test: `a_claim_excludes_others_and_is_given_back`
//! [validate.2] A block whose write did not return whole is unknown until the next.
//!      test: `a_failed_write_leaves_unknown...`
//! [validate.3] A bad block is told once, and not written again: the evidence stays on the disk.

use crate::evidence::{self, number};
use crate::file_calls;
use crate::journal::{self, About, Journal, Recovered};
use crate::pattern::Pattern;
use crate::shared::{INCORRECT_SIZE, IoError, Shared, errno_text};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use steadfast_lab_params::{JournalRules, Operation, Validate};

const SECTOR: usize = 512;
const HEADER: usize = 32;
/// Highest key; then 1 again.
const KEY_MAX: u8 = 126;
const BAD: u8 = 127;
const BUSY: u8 = 0x80;
/// One byte each: a quarter of what a small machine has.
const BLOCKS_MAX: u64 = 4 << 30;
/// Text of vdbench's errno 60003.
pub(crate) const CORRUPT: &str = "60003: 'A Data Validation error was discovered'";

/// Keys of one sd, or of all files of one fsd.
#[derive(Debug)]
pub(crate) struct Map {
    rules: Validate,
    keys: Vec<AtomicU8>,
    /// Time of the last write of each block, with `validate=time`.
    times: Vec<AtomicU64>,
    name: String,
    /// Of the files of a tree.
    tree: bool,
    owner: u32,
    /// Blocks that were read and compared.
    pub compared: AtomicU64,
    /// Bits of the ratio that the data has; other data is not comparable.
    ratio: AtomicU64,
    /// Journal that makes the keys known to the next execution.
    journal: Option<Journal>,
    /// Of the data; the journal has it too.
    seed: u64,
}

impl Map {
    /// All blocks unknown. `None` if there are more than this machine should remember.
    pub(crate) fn new(rules: Validate, blocks: u64, name: &str) -> Option<Map> {
        let made = |_| AtomicU8::new(0);
        (blocks <= BLOCKS_MAX).then(|| Map {
            rules,
            keys: (0..blocks).map(made).collect(),
            times: (0..if rules.time { blocks } else { 0 }).map(|_| AtomicU64::new(0)).collect(),
            name: name.to_string(),
            tree: false,
            owner: std::process::id(),
            compared: AtomicU64::new(0),
            ratio: AtomicU64::new(0),
            journal: None,
            seed: 0,
        })
    }

    fn about(&self) -> About {
        About {
            block: self.rules.block,
            blocks: self.blocks(),
            ratio: self.ratio.load(Relaxed),
            seed: self.seed,
            owner: self.owner,
        }
    }

    /// All keys as they are now. A block that is being written is unknown.
    fn keys(&self) -> Vec<u8> {
        self.keys.iter().map(|key| key.load(Acquire) & !BUSY).collect()
    }

    /// Begins a journal in `directory`, or goes on with the one that is there if it is to be
    /// recovered; what was found is returned. The sentence says why it cannot be.
    pub(crate) fn open_journal(
        &mut self,
        directory: &Path,
        rules: JournalRules,
        ratio: f64,
        seed: u64,
    ) -> Result<Option<Recovered>, String> {
        self.ratio.store(ratio.to_bits(), Relaxed);
        self.seed = seed;
        let name = self.name.clone();
        let mut found = None;
        if rules.recover {
            let recovered = journal::recover(directory, &name)?;
            self.owner = recovered.about.owner;
            let wanted = self.about();
            if recovered.about != wanted {
                return Err(format!(
                    "it is about {} blocks of {} bytes and other data than the parameter file describes ({} blocks of {}); use the \
                     same sizes, ratio and seed",
                    recovered.about.blocks, recovered.about.block, wanted.blocks, wanted.block
                ));
            }
            self.keys.iter().zip(&recovered.keys).for_each(|(to, from)| to.store(*from, Relaxed));
            found = Some(recovered);
        }
        let begun = Journal::begin(directory, &name, rules, &self.about(), || self.keys());
        self.journal =
            Some(begun.map_err(|error| format!("'{}' cannot be written: {error}", directory.display()))?);
        Ok(found)
    }

    /// Finds out what the writes left that were under way: old data or new, either is right. `read`
    /// fills the buffer with what a block holds and says where that is, or `None` where there is
    /// nothing any more. Those that are neither are errors, and bad from then on.
    pub(crate) fn settle(
        &self,
        pending: &journal::Pending,
        ignore: bool,
        pattern: &Pattern,
        read: &mut Reader<'_>,
    ) -> Result<Vec<IoError>, String> {
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        let mut wrong = Vec::new();
        for (block, new) in pending {
            let cell = &self.keys[*block as usize];
            let old = cell.load(Relaxed);
            if ignore {
                cell.store(0, Relaxed);
                continue;
            }
            let Some(place) = read(*block, &mut found)? else { continue };
            expected.resize(found.len(), 0);
            let mut is = |key: u8| {
                contents(self, pattern, place.file_key, &mut expected, place.lba, key, |sector| {
                    number(&found[sector * SECTOR..], 8, 8)
                });
                expected == found
            };
            if is(*new) {
                cell.store(*new, Relaxed);
            } else if old == 0 || old == BAD {
                // Nobody knows what was there before.
                cell.store(old, Relaxed);
            } else if !is(old) {
                cell.store(BAD, Relaxed);
                let path = place.path.display().to_string();
                let evidence = format!(
                    "The block at {} of '{path}' holds neither what was written last (key {old:#x}) nor what was being written (key {new:#x}).",
                    place.lba
                );
                wrong.push(IoError {
                    at: SystemTime::now(),
                    host: None,
                    operation: Operation::Read,
                    path,
                    offset: place.lba,
                    bytes: found.len() as u64,
                    errno: CORRUPT.into(),
                    evidence: vec![evidence],
                });
            }
        }
        Ok(wrong)
    }

    /// The last block of these that is known, or known to be bad.
    pub(crate) fn last_known(&self, first: u64, count: u64) -> Option<u64> {
        (first..first + count).rev().find(|block| self.keys[*block as usize].load(Relaxed) & !BUSY != 0)
    }

    /// Whether its keys are known to the next execution.
    pub(crate) fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// The keys are written down, and the journal begins again.
    pub(crate) fn checkpoint(&self) -> std::io::Result<()> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.checkpoint(&self.about(), || self.keys()))
    }

    /// Notes a write before or after it; false if that failed, which ends the run.
    fn noted(&self, after: bool, first: u64, keys: &[u8], shared: &Shared<'_>) -> bool {
        self.journalled(shared, |journal| {
            journal.note(after, first, keys)?;
            if after && journal.full() { self.checkpoint() } else { Ok(()) }
        })
    }

    /// Makes blocks unknown before what they held is destroyed [lab_journal.5]; false if the
    /// journal failed, which ends the run.
    pub(crate) fn gone(&self, first: u64, count: u64, shared: &Shared<'_>) -> bool {
        let known = self.has_journal() && self.last_known(first, count).is_some();
        self.forget(first, count);
        if !known {
            return true;
        }
        self.journalled(
            shared,
            |journal| {
                if journal.full() { self.checkpoint() } else { journal.forget(first, count) }
            },
        )
    }

    fn journalled(&self, shared: &Shared<'_>, write: impl FnOnce(&Journal) -> std::io::Result<()>) -> bool {
        let Some(journal) = &self.journal else { return true };
        let Err(error) = write(journal) else { return true };
        let path = journal.path().display().to_string();
        shared.fail(format!("the journal '{path}' cannot be written: {}.", errno_text(&error)));
        false
    }

    /// Before a run: data of another ratio is forgotten.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub(crate) fn begin(&self, ratio: f64) -> std::io::Result<()> {
        if self.ratio.swap(ratio.to_bits(), Relaxed) == ratio.to_bits() {
            return Ok(());
        }
        self.forget(0, self.keys.len() as u64);
        self.checkpoint()
    }

    /// Makes blocks unknown.
    pub(crate) fn forget(&self, first: u64, count: u64) {
        let range = first as usize..(first + count) as usize;
        for key in &self.keys[range] {
            key.fetch_and(BUSY, Relaxed);
        }
    }

    /// The same, of the files of a tree.
    pub(crate) fn of_tree(self) -> Map {
        Map { tree: true, ..self }
    }

    /// Bytes of a block.
    pub(crate) fn block(&self) -> u64 {
        self.rules.block
    }

    /// How many blocks it knows.
    pub(crate) fn blocks(&self) -> u64 {
        self.keys.len() as u64
    }

    fn claim(&self, first: u64, count: u64, ended: impl Fn() -> bool) -> Option<Claim<'_>> {
        loop {
            let mut claim = Claim { map: self, first, count: 0 };
            while claim.count < count {
                let cell = &self.keys[(first + claim.count) as usize];
                if cell.fetch_or(BUSY, AcqRel) & BUSY != 0 {
                    break;
                }
                claim.count += 1;
            }
            if claim.count == count {
                return Some(claim);
            }
            drop(claim);
            if ended() {
                return None;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

/// Where a block lies that a journal speaks of.
pub(crate) struct Place {
    pub lba: u64,
    pub file_key: u64,
    pub path: PathBuf,
}

/// Reads a block; the sentence says why it cannot.
pub(crate) type Reader<'a> = dyn FnMut(u64, &mut Vec<u8>) -> Result<Option<Place>, String> + 'a;

/// Blocks that this thread alone uses.
struct Claim<'a> {
    map: &'a Map,
    first: u64,
    count: u64,
}

impl Claim<'_> {
    fn key(&self, at: u64) -> u8 {
        self.map.keys[(self.first + at) as usize].load(Acquire) & !BUSY
    }

    fn set(&self, at: u64, key: u8) {
        self.map.keys[(self.first + at) as usize].store(key | BUSY, Release);
    }

    fn any(&self, which: impl Fn(u8) -> bool) -> bool {
        (0..self.count).any(|at| which(self.key(at)))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        for at in 0..self.count {
            self.map.keys[(self.first + at) as usize].fetch_and(!BUSY, Release);
        }
    }
}

/// One transfer under validation.
pub(crate) struct Transfer<'a, 'b> {
    pub map: &'a Map,
    /// Index of its first block in the map.
    pub first: u64,
    /// Byte address in the lun or file.
    pub lba: u64,
    /// Seed of the data, besides place and key.
    pub file_key: u64,
    pub file: &'a File,
    pub path: &'a Path,
    pub fsync_each: bool,
    pub pattern: &'a Pattern,
    pub shared: &'a Shared<'b>,
}

/// Told of each call that was whole: operation and nanoseconds.
type Record<'a> = dyn FnMut(Operation, u64) + 'a;

impl Transfer<'_, '_> {
    /// Reads and compares, or reads, compares and writes. False if a call failed.
    pub(crate) fn run(&self, write: bool, bytes: &mut [u8], record: &mut Record<'_>) -> bool {
        let rules = self.map.rules;
        let count = (bytes.len() as u64).div_ceil(rules.block);
        let Some(claim) = self.map.claim(self.first, count, || self.shared.ended()) else { return false };
        if !write {
            return self.read(&claim, bytes, "a workload requested read", record);
        }
        let known = |key| key != 0 && key != BAD;
        if rules.preread && claim.any(known) && !self.preread(&claim, bytes, record) {
            return false;
        }
        if claim.any(|key| key == BAD) {
            return true;
        }
        let (keys, now) = self.fill(&claim, bytes);
        // First unknown, then noted [lab_journal.4].
        (0..count).for_each(|at| claim.set(at, 0));
        if !self.map.noted(false, self.first, &keys, self.shared) {
            return false;
        }
        let begun = Instant::now();
        let done = file_calls::write(self.file, bytes, self.lba, self.fsync_each);
        let ns = begun.elapsed().as_nanos() as u64;
        if !self.whole(Operation::Write, done, bytes.len()) {
            return false;
        }
        record(Operation::Write, ns);
        (0..).zip(&keys).for_each(|(at, key)| claim.set(at, *key));
        if !self.map.noted(true, self.first, &keys, self.shared) {
            return false;
        }
        if rules.time {
            let range = self.first as usize..(self.first + count) as usize;
            self.map.times[range].iter().for_each(|time| time.store(now, Relaxed));
        }
        !rules.reread || self.read(&claim, bytes, "the read after a write", record)
    }

    /// Reads what is about to be written over. The file may end within it: behind the last known
    /// block nothing is missing.
    fn preread(&self, claim: &Claim<'_>, bytes: &mut [u8], record: &mut Record<'_>) -> bool {
        let known = (0..claim.count).rfind(|at| claim.key(*at) != 0).map_or(0, |at| at + 1);
        let length = (known * self.map.rules.block).min(bytes.len() as u64) as usize;
        self.read(claim, &mut bytes[..length], "the read before a write", record)
    }

    fn read(&self, claim: &Claim<'_>, bytes: &mut [u8], during: &str, record: &mut Record<'_>) -> bool {
        let begun = Instant::now();
        let done = self.file.read_at(bytes, self.lba);
        let ns = begun.elapsed().as_nanos() as u64;
        if !self.whole(Operation::Read, done, bytes.len()) {
            return false;
        }
        record(Operation::Read, ns);
        self.compare(claim, bytes, during);
        true
    }

    fn whole(&self, operation: Operation, done: std::io::Result<usize>, wanted: usize) -> bool {
        let errno = match done {
            Ok(count) if count == wanted => return true,
            Ok(_) => INCORRECT_SIZE.to_string(),
            Err(error) => errno_text(&error),
        };
        self.shared.io_error(operation, self.path, self.lba, wanted as u64, errno);
        false
    }

    /// New contents; the keys they have and the time that is in them.
    fn fill(&self, claim: &Claim<'_>, bytes: &mut [u8]) -> (Vec<u8>, u64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
        let block = self.map.rules.block;
        let keys: Vec<u8> = (0..claim.count)
            .map(|at| match claim.key(at) {
                0 => {
                    let draw = crate::random::mix(now ^ u64::from(self.map.owner), self.first + at);
                    (draw % u64::from(KEY_MAX)) as u8 + 1
                }
                KEY_MAX => 1,
                key => key + 1,
            })
            .collect();
        for (at, (chunk, key)) in (0..).zip(bytes.chunks_mut(block as usize).zip(&keys)) {
            self.contents(chunk, self.lba + at * block, *key, |_| now);
        }
        (keys, now)
    }

    /// Contents of a block at `lba` after the write of `key`. `time` of each sector.
    fn contents(&self, block: &mut [u8], lba: u64, key: u8, time: impl Fn(usize) -> u64) {
        contents(self.map, self.pattern, self.file_key, block, lba, key, time);
    }

    fn compare(&self, claim: &Claim<'_>, bytes: &[u8], during: &str) {
        let block = self.map.rules.block as usize;
        let owner = evidence::Owner { name: &self.map.name, tree: self.map.tree, path: self.path };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
        let mut expected = vec![0; block];
        let mut lines = Vec::new();
        let mut bad = 0;
        for (at, found) in (0..).zip(bytes.chunks(block)) {
            let key = claim.key(at);
            if key == 0 || key == BAD {
                continue;
            }
            self.map.compared.fetch_add(1, Relaxed);
            let expected = &mut expected[..found.len()];
            let lba = self.lba + at * block as u64;
            let written = self.map.times.get((self.first + at) as usize).map(|time| time.load(Relaxed));
            // A time that is not remembered is taken from the sector; its sum is checked.
            self.contents(expected, lba, key, |sector| {
                written.unwrap_or_else(|| number(&found[sector * SECTOR..], 8, 8))
            });
            if expected == found || (self.map.rules.ignore_zeros && found.iter().all(|byte| *byte == 0)) {
                continue;
            }
            bad += 1;
            claim.set(at, BAD);
            let bad = evidence::Bad { lba, expected, found, written, now, during };
            lines.extend(evidence::block(owner, &bad));
        }
        if bad > 0 {
            let blocks = bytes.len().div_ceil(block);
            let title = evidence::title(owner, self.lba, bytes.len());
            let mut evidence = vec![title];
            evidence.push(format!("Data block has {blocks} key block(s) of {block} bytes each."));
            evidence.push(format!("{bad} of {blocks} key blocks are corrupted."));
            evidence.append(&mut lines);
            let length = bytes.len() as u64;
            self.shared.data_error(Operation::Read, self.path, self.lba, length, CORRUPT.into(), evidence);
        }
    }
}

/// Contents of a block at `lba` of a file after the write of `key`.
fn contents(
    map: &Map,
    pattern: &Pattern,
    file_key: u64,
    block: &mut [u8],
    lba: u64,
    key: u8,
    time: impl Fn(usize) -> u64,
) {
    pattern.fill(block, file_key, lba, u64::from(key));
    for (at, sector) in block.chunks_mut(SECTOR).enumerate() {
        let header = header(map, lba + (at * SECTOR) as u64, time(at), key);
        let length = sector.len().min(HEADER);
        sector[..length].copy_from_slice(&header[..length]);
    }
}

fn header(map: &Map, lba: u64, time: u64, key: u8) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    out[..8].copy_from_slice(&lba.to_be_bytes());
    out[8..16].copy_from_slice(&time.to_be_bytes());
    out[16] = key;
    out[17] = time.to_be_bytes().iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    let name = map.name.bytes().chain(std::iter::repeat(b' '));
    out[20..28].iter_mut().zip(name).for_each(|(to, from)| *to = from);
    out[28..].copy_from_slice(&map.owner.to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn map() -> Map {
        Map::new(Validate { block: 512, ..Validate::default() }, 8, "sd1").unwrap()
    }

    #[test]
    fn a_claim_excludes_others_and_is_given_back() {
        let map = map();
        let claim = map.claim(2, 3, || false).unwrap();
        claim.set(1, 77);
        assert!(map.claim(0, 3, || true).is_none(), "block 2 is in use");
        assert!(map.claim(5, 3, || true).is_some() && map.claim(0, 2, || true).is_some());
        drop(claim);
        let again = map.claim(0, 8, || true).unwrap();
        assert_eq!((0..8).map(|at| again.key(at)).collect::<Vec<_>>(), [0, 0, 0, 77, 0, 0, 0, 0]);
    }

    #[test]
    fn a_failed_write_leaves_unknown_blocks_and_keys_go_round() {
        let stop = AtomicBool::new(false);
        let (sender, notes) = std::sync::mpsc::channel();
        let (shared, pattern, map) = (Shared::new(&stop, "t", 50, sender), Pattern::new(1.0, 1), map());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let full = std::fs::OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        let write = |file: &File, bytes: &mut [u8]| {
            let (map, shared, pattern) = (&map, &shared, &pattern);
            let transfer = Transfer {
                map,
                first: 0,
                lba: 0,
                file_key: 1,
                file,
                path: &path,
                fsync_each: false,
                pattern,
                shared,
            };
            transfer.run(true, bytes, &mut |_, _| {})
        };
        let mut bytes = [0; 1024];
        assert!(write(&file, &mut bytes));
        let first = map.keys[0].load(Relaxed);
        assert!((1..=KEY_MAX).contains(&first));
        assert!((0..200).all(|_| write(&file, &mut bytes)));
        assert_eq!(u32::from(map.keys[0].load(Relaxed)), (u32::from(first) + 199) % 126 + 1);
        assert_eq!(map.compared.load(Relaxed), 2 * 200);
        map.forget(0, 1);
        map.keys[1].store(0, Relaxed);
        assert!(!write(&full, &mut bytes));
        assert_eq!((map.keys[0].load(Relaxed), map.keys[1].load(Relaxed)), (0, 0));
        assert!(notes.try_recv().is_ok());
    }
}
