//! # Journals: what was written is known after a crash too
//!
//! `NAME.map` has the keys of all blocks of a storage as of a moment, `NAME.jnl` what was written
//! since: an entry before each write and one behind it. A run that ends, or a journal that has
//! grown to its limit, writes a new map and begins the journal again.
//!
//! | file | off | len | field |
//! |---|---|---|---|
//! | map | 0 | 8 | `SFLABMAP` |
//! | | 8 | 8 | generation: the journal with the same number belongs to it |
//! | | 16 | 8 | bytes of a block |
//! | | 24 | 8 | number of blocks |
//! | | 32 | 8 | bits of the ratio that the data has |
//! | | 40 | 8 | seed of the data |
//! | | 48 | 8 | process id of the first writer |
//! | | 56 | n | one key for each block |
//! | | | 8 | sum of all before |
//! | journal | 0 | 512 | `SFLABJNL`, generation, zeros |
//! | | 512 k | 8 | `JR02`, number of entries in this record |
//! | | | 8 | entry: bit 63 set behind a write, bits 48 to 54 the key, bits 0 to 47 the block |
//! | | | 16 | or, with bit 62 set: the first of blocks that nobody knows any more, and how many (in the same record) |
//!
//! The storage of an fsd is all blocks of its files, one file after the other. `JR01` was before
//! there were journals of trees and never has bit 62.
//!
//! All numbers are little endian. A record is written whole (512 bytes, as one sector) and
//! synchronously unless `journal=noflush`; a sector is written or not, as vdbench assumes too.
//!
//! ## Invariants
//! [lab_journal.1] The entry before a write is durable before the write begins; the entry behind it
//!      after the write returned.
//! [lab_journal.2] A map takes its place whole: written beside, made durable, renamed; a journal of
//!      another generation is none.
//! [lab_journal.3] A block with an entry before and none behind holds the old or the new data, and
//!      either is right.
//! [lab_journal.4] A map has no key of a block whose write has its entry in the journal before it
//!      and has not returned: keys are taken away before that entry, and gathered while no entry
//!      can come. Else the new map would call the old data right, and the entry that says otherwise
//!      is gone.
//! [lab_journal.5] What a file held is not known any more, durably, before the file is deleted, cut
//!      or replaced.

use crate::random::mix;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};
use steadfast_lab_params::JournalRules;

const MAP_MAGIC: &[u8; 8] = b"SFLABMAP";
const JOURNAL_MAGIC: &[u8; 8] = b"SFLABJNL";
const RECORD_MAGIC: &[u8; 4] = b"JR02";
const RECORD_MAGIC_1: &[u8; 4] = b"JR01";
const MAP_HEADER: usize = 56;
const RECORD: usize = 512;
/// Entries of a record.
const ENTRIES: usize = RECORD / 8 - 1;
const AFTER: u64 = 1 << 63;
const FORGOTTEN: u64 = 1 << 62;
const BLOCK_BITS: u32 = 48;
/// Where a journal begins again if `journal=(max,n)` does not say.
const JOURNAL_MAX: u64 = 1 << 30;

/// Subject of a map. Two that differ in anything but the owner are about different data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct About {
    pub block: u64,
    pub blocks: u64,
    pub ratio: u64,
    pub seed: u64,
    pub owner: u32,
}

/// The two files of a storage.
#[derive(Debug)]
pub(crate) struct Journal {
    map: PathBuf,
    journal: PathBuf,
    rules: JournalRules,
    writer: Mutex<Writer>,
}

#[derive(Debug)]
struct Writer {
    file: File,
    /// Where the record that is being filled lies.
    at: u64,
    record: [u8; RECORD],
    count: usize,
}

/// State after a crash.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub about: About,
    pub keys: Vec<u8>,
    /// Blocks whose last write may or may not have been done, and the key it would have left.
    pub pending: Pending,
}

/// Blocks with the keys that writes under way would have left.
pub(crate) type Pending = BTreeMap<u64, u8>;

impl Recovered {
    fn forget(&mut self, first: u64, count: u64) {
        let all = self.keys.len();
        let from = (first as usize).min(all);
        let end = (first.saturating_add(count) as usize).clamp(from, all);
        self.keys[from..end].fill(0);
        self.pending.retain(|block, _| !(from..end).contains(&(*block as usize)));
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let field = bytes.get(at..at + 8).and_then(|field| field.try_into().ok()).unwrap_or([0; 8]);
    u64::from_le_bytes(field)
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0x5f1e, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(sum, u64::from_le_bytes(word))
    })
}

impl Journal {
    /// Begins both files: everything is as `keys` says now.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn begin(
        directory: &Path,
        name: &str,
        rules: JournalRules,
        about: &About,
        keys: impl FnOnce() -> Vec<u8>,
    ) -> io::Result<Journal> {
        let (map, journal) = paths(directory, name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        if !rules.noflush {
            std::os::unix::fs::OpenOptionsExt::custom_flags(
                &mut options,
                rustix::fs::OFlags::DSYNC.bits() as i32,
            );
        }
        let file = options.open(&journal)?;
        let writer = Writer { file, at: RECORD as u64, record: [0; RECORD], count: 0 };
        let journal = Journal { map, journal, rules, writer: Mutex::new(writer) };
        journal.checkpoint(about, keys)?;
        Ok(journal)
    }

    /// A new map, and a journal with nothing in it. `keys` is asked while no entry can come
    /// [lab_journal.4].
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn checkpoint(&self, about: &About, keys: impl FnOnce() -> Vec<u8>) -> io::Result<()> {
        let mut writer = self.lock();
        let keys = keys();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let generation = mix(now.as_nanos() as u64, u64::from(std::process::id()));
        let mut bytes = Vec::with_capacity(MAP_HEADER + keys.len() + 8);
        bytes.extend_from_slice(MAP_MAGIC);
        for field in [generation, about.block, about.blocks, about.ratio, about.seed, u64::from(about.owner)]
        {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&keys);
        bytes.extend_from_slice(&sum(&bytes).to_le_bytes());
        let beside = self.map.with_extension("map.new");
        let mut file = File::create(&beside)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&beside, &self.map)?;
        if let Some(parent) = self.map.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            File::open(parent)?.sync_all()?;
        }
        // Between here and the next line the journal is of the older generation, and so none: the
        // map has it all [lab_journal.2].
        let mut head = [0; RECORD];
        head[..8].copy_from_slice(JOURNAL_MAGIC);
        head[8..16].copy_from_slice(&generation.to_le_bytes());
        writer.file.set_len(0)?;
        writer.file.write_all_at(&head, 0)?;
        (writer.at, writer.count, writer.record) = (RECORD as u64, 0, [0; RECORD]);
        Ok(())
    }

    /// Whether the journal has grown to its limit.
    pub(crate) fn full(&self) -> bool {
        self.lock().at >= self.rules.max.unwrap_or(JOURNAL_MAX)
    }

    /// Entries of one transfer: blocks from `first` on get `keys`.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn note(&self, after: bool, first: u64, keys: &[u8]) -> io::Result<()> {
        if self.rules.maponly {
            return Ok(());
        }
        let mut writer = self.lock();
        for (block, key) in (first..).zip(keys) {
            let kind = if after { AFTER } else { 0 };
            writer.push(&[kind | u64::from(key & 127) << BLOCK_BITS | block])?;
        }
        writer.write()
    }

    /// So many blocks from `first` on are not known any more.
    ///
    /// # Errors
    /// When that cannot be written.
    pub(crate) fn forget(&self, first: u64, count: u64) -> io::Result<()> {
        if self.rules.maponly || count == 0 {
            return Ok(());
        }
        let mut writer = self.lock();
        writer.push(&[FORGOTTEN | first, count])?;
        writer.write()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Writer> {
        // A thread that panicked wrote whole records or none.
        self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.journal
    }
}

impl Writer {
    /// Adds words that belong together, and begins a new record where this one has no room for
    /// them.
    fn push(&mut self, words: &[u64]) -> io::Result<()> {
        if self.count + words.len() > ENTRIES {
            self.write()?;
            (self.at, self.count, self.record) = (self.at + RECORD as u64, 0, [0; RECORD]);
        }
        for word in words {
            let at = 8 + self.count * 8;
            self.record[at..at + 8].copy_from_slice(&word.to_le_bytes());
            self.count += 1;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        self.record[..4].copy_from_slice(RECORD_MAGIC);
        self.record[4..8].copy_from_slice(&(self.count as u32).to_le_bytes());
        self.file.write_all_at(&self.record, self.at)
    }
}

fn paths(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    let safe: String = name.chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }).collect();
    (directory.join(format!("{safe}.map")), directory.join(format!("{safe}.jnl")))
}

/// Reads what an earlier execution left. The sentence says why it cannot be used.
pub(crate) fn recover(directory: &Path, name: &str) -> Result<Recovered, String> {
    let (map, journal) = paths(directory, name);
    let bytes = fs::read(&map).map_err(|error| format!("'{}' cannot be read: {error}", map.display()))?;
    let (generation, mut recovered) = parse_map(&bytes)
        .ok_or_else(|| format!("'{}' is not a journal's map, or is incomplete", map.display()))?;
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(&journal) {
        file.take(u64::MAX)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("'{}' cannot be read: {error}", journal.display()))?;
    }
    apply(&bytes, generation, &mut recovered);
    Ok(recovered)
}

fn parse_map(bytes: &[u8]) -> Option<(u64, Recovered)> {
    let body = bytes.len().checked_sub(8).filter(|length| *length >= MAP_HEADER)?;
    if &bytes[..8] != MAP_MAGIC || sum(&bytes[..body]) != number(bytes, body) {
        return None;
    }
    let about = About {
        block: number(bytes, 16),
        blocks: number(bytes, 24),
        ratio: number(bytes, 32),
        seed: number(bytes, 40),
        owner: u32::try_from(number(bytes, 48)).ok()?,
    };
    let keys = bytes[MAP_HEADER..body].to_vec();
    let whole = keys.len() as u64 == about.blocks && keys.iter().all(|key| *key < 128);
    whole.then(|| (number(bytes, 8), Recovered { about, keys, pending: BTreeMap::new() }))
}

/// Follows the entries of a journal; one of another generation has nothing to say.
fn apply(bytes: &[u8], generation: u64, recovered: &mut Recovered) {
    if bytes.len() < RECORD || &bytes[..8] != JOURNAL_MAGIC || number(bytes, 8) != generation {
        return;
    }
    for record in bytes[RECORD..].chunks_exact(RECORD) {
        if ![RECORD_MAGIC, RECORD_MAGIC_1].contains(&&[record[0], record[1], record[2], record[3]]) {
            break;
        }
        let count = (number(record, 0) >> 32) as usize;
        let mut entries = (1..=count.min(ENTRIES)).map(|at| number(record, at * 8));
        while let Some(entry) = entries.next() {
            if entry & FORGOTTEN != 0 {
                recovered.forget(entry & ((1 << BLOCK_BITS) - 1), entries.next().unwrap_or(0));
                continue;
            }
            let (block, key) = (entry & ((1 << BLOCK_BITS) - 1), (entry >> BLOCK_BITS & 127) as u8);
            let Some(known) = recovered.keys.get_mut(block as usize) else { continue };
            if entry & AFTER != 0 {
                *known = key;
                recovered.pending.remove(&block);
            } else {
                recovered.pending.insert(block, key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About = About { block: 4096, blocks: 200, ratio: 7, seed: 1, owner: 42 };

    fn journal(dir: &Path, rules: JournalRules) -> Journal {
        Journal::begin(dir, "sd1", rules, &ABOUT, || vec![0; 200]).unwrap()
    }

    #[test]
    fn what_was_noted_is_found_again_and_what_was_begun_is_pending() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path(), JournalRules::default());
        for block in 0..150 {
            journal.note(false, block, &[5]).unwrap();
            journal.note(true, block, &[5]).unwrap();
        }
        journal.note(false, 10, &[6, 6]).unwrap();
        let found = recover(dir.path(), "sd1").unwrap();
        assert_eq!(found.about, ABOUT);
        assert!(
            found.keys[..150].iter().all(|key| *key == 5) && found.keys[150..].iter().all(|key| *key == 0)
        );
        assert_eq!(found.pending.into_iter().collect::<Vec<_>>(), [(10, 6), (11, 6)]);
    }

    #[test]
    fn a_checkpoint_begins_the_journal_again_and_an_old_journal_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path(), JournalRules { max: Some(1024), ..JournalRules::default() });
        journal.note(false, 0, &[9; 64]).unwrap();
        assert!(journal.full());
        let old = fs::read(journal.path()).unwrap();
        journal.checkpoint(&ABOUT, || vec![3; 200]).unwrap();
        assert!(!journal.full());
        let found = recover(dir.path(), "sd1").unwrap();
        assert!(found.pending.is_empty() && found.keys == vec![3; 200]);
        fs::write(journal.path(), old).unwrap();
        assert!(recover(dir.path(), "sd1").unwrap().pending.is_empty(), "its generation is over");
    }

    #[test]
    fn what_is_forgotten_is_unknown_and_not_pending_and_its_words_stay_together() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path(), JournalRules::default());
        // 62 entries leave room for one word more in the record: both go into the next.
        (0..62).for_each(|block| journal.note(true, block, &[5]).unwrap());
        journal.note(false, 70, &[6]).unwrap();
        journal.forget(10, 80).unwrap();
        journal.note(true, 20, &[9]).unwrap();
        journal.note(false, 30, &[7]).unwrap();
        journal.forget(190, u64::MAX).unwrap();
        let found = recover(dir.path(), "sd1").unwrap();
        assert!(found.keys[..10].iter().all(|key| *key == 5));
        let known: Vec<usize> = (10..200).filter(|at| found.keys[*at] != 0).collect();
        assert_eq!((known, found.keys[20]), (vec![20], 9));
        assert_eq!(found.pending.into_iter().collect::<Vec<_>>(), [(30, 7)]);
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let made = journal(dir.path(), JournalRules::default());
        made.note(true, 0, &[1; 100]).unwrap();
        made.forget(50, 7).unwrap();
        let (map, journal) = paths(dir.path(), "sd1");
        let (whole_map, whole_journal) = (fs::read(&map).unwrap(), fs::read(&journal).unwrap());
        let mut random = crate::random::Random::new(&[4]);
        for _ in 0..500 {
            let mut bytes = whole_map.clone();
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 + random.below(255) as u8;
            assert!(parse_map(&bytes).is_none(), "a flipped byte at {at}");
            assert!(parse_map(&bytes[..at]).is_none());
            let mut bytes = whole_journal.clone();
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 + random.below(255) as u8;
            bytes.truncate(bytes.len() - random.below(600) as usize);
            let (generation, mut recovered) = parse_map(&whole_map).unwrap();
            apply(&bytes, generation, &mut recovered);
            assert_eq!(recovered.keys.len(), 200);
        }
    }
}
