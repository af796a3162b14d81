//! # The reference table
//!
//! Like ZFS's DDT and its block reference table in one: deduplication and reflinks share the rows.
//!
//! Most blocks have one pointer and nothing here. A block that more than one pointer leads to (a
//! reflink), or that may come to have more because its content is known (deduplication), has a row
//! in the reference table: items of the meta tree, keyed by address.
//! `docs/decisions/0092-one-reference-table.md`.
//!
//! ## Definitions
//! *Reference*: a pointer in an extent of a dataset, for as long as the dataset or a snapshot of it
//! has it; after that, while snapshots hold it, a place in a cell. By [deadlist.1] each is let
//! go once.
//! *Domain*: the dataset under whose key content is digested and sealed; 0 for all that is not
//! sealed.
//! *Index*: in memory, of blocks known by content: 8 bytes of their digest, and their address.
//!
//! ## Invariants
//! [ddt.1] A block has `more` + 1 references, or one if it has no row.
//!      `inspect check`
//! [ddt.2] What a commit adds is counted before what it lets go (`count_shares`, and `write_many`
//!      before the extents that it replaces are dropped), so a block that gains and loses a
//!      reference in one txg is not freed between.
//! [ddt.3] A row goes when its block is freed, or when nothing but one reference is left of a block
//!      that is not known by content. So an address that is given out anew has no row.
//!      `inspect check`
//! [ddt.4] Sums are those of the rows as of the same commit.
//!      `inspect check`
//! [ddt.5] The index may lack rows (it is bounded, and filled in the background after an import)
//!      and is never believed: the row of an entry is looked up and compared with the whole digest.
//!      Content that it lacks is stored again; a gap in it costs room and nothing else.
//!
//! ## Why by address
//! A table keyed by digest is touched in a place of its own by each block that is written or freed,
//! and whoever frees a block must know what it held. By address, what is written together stands
//! together: a leaf takes some hundred rows of one stream. The index is what finds a digest; it
//! takes up to [`ENTRY_BYTES`] a block.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use steadfast_format::{
    Address, BlockKind, BlockPointer, ContentRow, DatasetId, DecodeError, MetaKey, ReferenceRow, SegmentId,
    SharingClass, SharingRow, Txg, meta_keys,
};
use steadfast_tree::{Change, Tree};

use crate::{Error, Result};

/// Feature of pools with the table.
pub const FEATURE: &str = "block_sharing";
/// Bytes of memory that the index takes for a block, at most: a map of two numbers, 17 bytes a
/// bucket, that has just doubled and is filled to seven sixteenths. While it doubles, for a moment,
/// half as much again.
pub const ENTRY_BYTES: u64 = 40;
/// Rows read at once, into the index for example.
pub const LOAD_STEP: usize = 16_384;
/// Map keyed by bytes of digests, which are random already, of places.
type Index = HashMap<u64, Place, BuildHasherDefault<DigestHasher>>;

/// An address in eight bytes: the segment, and the unit in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Place(u64);

impl Place {
    const UNIT_BITS: u32 = 24;

    /// `None` for what a pool of these units has after writing 2^40 segments.
    fn of(address: Address, unit: u64) -> Option<Place> {
        let (segment, at) = (address.segment.0, u64::from(address.offset) / unit);
        let fits = segment < 1 << (64 - Self::UNIT_BITS) && at < 1 << Self::UNIT_BITS;
        let is_exact = u64::from(address.offset).is_multiple_of(unit);
        (fits && is_exact).then_some(Place(segment << Self::UNIT_BITS | at))
    }

    fn address(self, unit: u64) -> Address {
        let at = (self.0 & ((1 << Self::UNIT_BITS) - 1)) * unit;
        let offset = u32::try_from(at).expect("it was an offset");
        Address { segment: SegmentId(self.0 >> Self::UNIT_BITS), offset }
    }
}

#[derive(Default)]
struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// The reference table of a pool.
pub struct References {
    pool: String,
    meta: Arc<Tree>,
    unit: u64,
    enabled: AtomicBool,
    /// A dataset looks for content, so rows are to come.
    expected: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Rows that differ from the meta tree's; `None`: gone.
    pending: BTreeMap<Address, Option<ReferenceRow>>,
    sums: Sums,
    sums_dirty: bool,
    /// A row could not be read where it was needed: the commit under way fails.
    failed: Option<Failed>,
    index: Index,
    index_max: usize,
    /// Where filling the index goes on; `None` once it is filled.
    cursor: Option<Vec<u8>>,
    /// Writes that found their content, and bytes before compression that were not stored for it.
    hits: u64,
}

/// Why a row could not be read.
enum Failed {
    Tree(steadfast_tree::Error),
    Row(DecodeError),
}

#[derive(Default)]
struct Sums {
    shared: u64,
    shared_bytes: u64,
    saved_bytes: u64,
    classes: BTreeMap<u8, SharingClass>,
}

impl Sums {
    fn of(row: &SharingRow) -> Sums {
        Sums {
            shared: row.shared,
            shared_bytes: row.shared_bytes,
            saved_bytes: row.saved_bytes,
            classes: row.classes.iter().map(|class| (class.log2, *class)).collect(),
        }
    }

    fn row(&self) -> SharingRow {
        SharingRow {
            shared: self.shared,
            shared_bytes: self.shared_bytes,
            saved_bytes: self.saved_bytes,
            classes: self.classes.values().copied().collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.shared == 0 && self.classes.is_empty()
    }

    /// Counts a row that came, or (with `goes`) one that went.
    fn count(&mut self, row: &ReferenceRow, unit: u64, goes: bool) {
        let change = |sum: &mut u64, by: u64| {
            *sum = if goes { sum.saturating_sub(by) } else { sum.saturating_add(by) };
        };
        let dsize = u64::from(row.psize).next_multiple_of(unit);
        if row.content.is_none() {
            change(&mut self.shared, 1);
            change(&mut self.shared_bytes, dsize);
            change(&mut self.saved_bytes, dsize.saturating_mul(row.more));
            return;
        }
        let references = row.more.saturating_add(1);
        let log2 = u8::try_from(references.ilog2()).expect("below 64");
        let class = self.classes.entry(log2).or_insert(SharingClass { log2, ..SharingClass::default() });
        let (lsize, psize) = (u64::from(row.lsize), u64::from(row.psize));
        change(&mut class.blocks, 1);
        change(&mut class.lsize, lsize);
        change(&mut class.psize, psize);
        change(&mut class.dsize, dsize);
        change(&mut class.ref_blocks, references);
        change(&mut class.ref_lsize, lsize.saturating_mul(references));
        change(&mut class.ref_psize, psize.saturating_mul(references));
        change(&mut class.ref_dsize, dsize.saturating_mul(references));
        if class.blocks == 0 {
            self.classes.remove(&log2);
        }
    }
}

/// The sums of sharing, for reports.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SharingInfo {
    /// Sums of the table.
    pub sums: SharingRow,
    /// Blocks that are known by content and in the index.
    pub indexed: u64,
    /// Blocks that the index takes at most.
    pub index_max: u64,
    /// The index holds all rows that it has room for.
    pub index_filled: bool,
    /// Writes since the import that became references.
    pub hits: u64,
}

impl SharingInfo {
    /// Blocks known by content.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.sums.classes.iter().map(|class| class.blocks).sum()
    }

    /// Bytes that would be needed more if nothing were shared.
    #[must_use]
    pub fn saved_bytes(&self) -> u64 {
        let dedup = self.sums.classes.iter().map(|class| class.ref_dsize.saturating_sub(class.dsize));
        self.sums.saved_bytes + dedup.sum::<u64>()
    }

    /// Bytes that the table's rows take in the meta tree, both copies, before compression.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        let (key, row) = (13, ReferenceRow::LAYOUT.size() as u64);
        2 * (self.entries() * (key + row + ContentRow::LAYOUT.size() as u64) + self.sums.shared * (key + row))
    }

    /// Bytes of memory that the index takes at most for what is in it.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.indexed * ENTRY_BYTES
    }
}

/// Some rows, and the key to go on from.
type Rows = (Vec<(Address, ReferenceRow)>, Option<Vec<u8>>);

/// The key by which the content of a block is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Known {
    /// Digest of its content.
    pub digest: [u8; 32],
    /// The dataset under whose key it is digested; 0 if it is not sealed.
    pub domain: DatasetId,
    /// The owner of its segment.
    pub owner: DatasetId,
    /// Bytes before compression.
    pub lsize: u32,
}

/// Blocks that an index of so many bytes takes.
fn entries_of(bytes: u64) -> usize {
    usize::try_from(bytes / ENTRY_BYTES).unwrap_or(usize::MAX)
}

fn short(digest: &[u8; 32]) -> u64 {
    u64::from_le_bytes(digest[..8].try_into().expect("eight bytes"))
}

fn key(address: Address) -> Vec<u8> {
    MetaKey::Reference(address).encode()
}

impl State {
    /// The row of an address.
    fn get(&mut self, meta: &Tree, address: Address) -> Option<ReferenceRow> {
        if let Some(row) = self.pending.get(&address) {
            return row.clone();
        }
        match meta.get(&key(address)) {
            Ok(None) => None,
            Ok(Some(value)) => match ReferenceRow::decode(&value) {
                Ok(row) => Some(row),
                Err(error) => {
                    self.failed.get_or_insert(Failed::Row(error));
                    None
                }
            },
            Err(error) => {
                self.failed.get_or_insert(Failed::Tree(error));
                None
            }
        }
    }

    /// Sets or removes a row.
    fn set(&mut self, unit: u64, address: Address, old: Option<&ReferenceRow>, new: Option<ReferenceRow>) {
        old.into_iter().for_each(|row| self.sums.count(row, unit, true));
        new.iter().for_each(|row| self.sums.count(row, unit, false));
        self.sums_dirty = true;
        self.pending.insert(address, new);
    }

    fn enter(&mut self, unit: u64, digest: &[u8; 32], address: Address) {
        if self.index.len() < self.index_max
            && let Some(place) = Place::of(address, unit)
        {
            self.index.insert(short(digest), place);
        }
    }

    fn forget(&mut self, unit: u64, row: &ReferenceRow, address: Address) {
        if let Some(content) = &row.content
            && let Some(place) = self.index.get(&short(&content.digest))
            && place.address(unit) == address
        {
            self.index.remove(&short(&content.digest));
        }
    }
}

impl References {
    /// The table of a pool, as its meta tree has it. The index takes so many bytes of memory at
    /// most.
    pub fn new(pool: String, meta: Arc<Tree>, unit: u64, index_bytes: u64) -> References {
        let state = State { index_max: entries_of(index_bytes), ..State::default() };
        let (enabled, expected) = (AtomicBool::new(false), AtomicBool::new(false));
        References { pool, meta, unit, enabled, expected, state: Mutex::new(state) }
    }

    /// Says whether the pool lists the feature.
    pub fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Release);
    }

    /// True if blocks may be shared.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    /// Changes what the index may take of memory. One that is too large is dropped, and filled anew
    /// as far as there is room.
    pub fn set_index_bytes(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.index_max = entries_of(bytes);
        if state.index.len() > state.index_max {
            state.index = Index::default();
        }
        let blocks = state.sums.classes.values().map(|class| class.blocks);
        let known = blocks.fold(0, u64::saturating_add);
        if known > state.index.len() as u64 {
            state.cursor = Some(vec![meta_keys::REFERENCE]);
        }
    }

    /// Says that a dataset looks for content.
    pub fn expect_rows(&self) {
        self.expected.store(true, Ordering::Release);
    }

    /// True if there are rows, or soon may be: what is written and freed changes more of the meta
    /// tree.
    pub fn may_have_rows(&self) -> bool {
        self.expected.load(Ordering::Acquire) || !self.state.lock().sums.is_empty()
    }

    /// Sums as stored, at import.
    pub fn load(&self, row: &SharingRow) {
        let mut state = self.state.lock();
        state.sums = Sums::of(row);
        let known = !state.sums.classes.is_empty();
        state.cursor = known.then(|| vec![meta_keys::REFERENCE]);
    }

    /// The sums of sharing.
    pub fn info(&self) -> SharingInfo {
        let state = self.state.lock();
        SharingInfo {
            sums: state.sums.row(),
            indexed: state.index.len() as u64,
            index_max: state.index_max as u64,
            index_filled: state.cursor.is_none(),
            hits: state.hits,
        }
    }

    /// True if some block has more than one reference.
    pub fn any_shared(&self) -> bool {
        let state = self.state.lock();
        state.sums.shared > 0 || state.sums.classes.keys().any(|log2| *log2 > 0)
    }

    /// True if a block is known to have more than one reference. A row that cannot be read is
    /// nobody's trouble here.
    pub fn is_shared(&self, address: Address) -> bool {
        self.count(address) > 1
    }

    /// How many pointers lead to a block.
    pub fn count(&self, address: Address) -> u64 {
        let pending = self.state.lock().pending.get(&address).cloned();
        let row = pending.unwrap_or_else(|| {
            let value = self.meta.get(&key(address)).ok()??;
            ReferenceRow::decode(&value).ok()
        });
        row.map_or(1, |row| row.more.saturating_add(1))
    }

    /// One more pointer leads to a block. Sync context.
    pub fn share(&self, pointer: &BlockPointer, owner: DatasetId) {
        let mut state = self.state.lock();
        let address = pointer.copies[0];
        let old = state.get(&self.meta, address);
        let new = match &old {
            Some(row) => ReferenceRow { more: row.more.saturating_add(1), ..row.clone() },
            None => {
                ReferenceRow { more: 1, owner, psize: pointer.psize, lsize: pointer.lsize, content: None }
            }
        };
        state.set(self.unit, address, old.as_ref(), Some(new));
    }

    /// A reference is let go. True if it was the last: the block is the caller's to free. Sync
    /// context.
    pub fn release(&self, address: Address) -> bool {
        let mut state = self.state.lock();
        if state.sums.is_empty() {
            return true;
        }
        let old = state.get(&self.meta, address);
        if state.failed.is_some() {
            // The commit will not be; nothing is freed of which it is not known who else refers to
            // it.
            return false;
        }
        let Some(row) = old else { return true };
        let is_last = row.more == 0;
        let left = match row.more {
            0 => None,
            1 if row.content.is_none() => None,
            more => Some(ReferenceRow { more: more - 1, ..row.clone() }),
        };
        if is_last {
            state.forget(self.unit, &row, address);
        }
        state.set(self.unit, address, Some(&row), left);
        is_last
    }

    /// A block that holds what is known so, as a pointer that is born in `txg`. Not a reference
    /// yet.
    pub fn find(&self, known: &Known, txg: Txg) -> Option<BlockPointer> {
        let mut state = self.state.lock();
        let address = state.index.get(&short(&known.digest))?.address(self.unit);
        let row = state.get(&self.meta, address)?;
        let content = row.content?;
        let is_it = content.digest == known.digest
            && content.domain == known.domain
            && (row.owner, row.lsize) == (known.owner, known.lsize);
        let written = BlockPointer {
            hash: content.hash,
            copies: [address, Address::NONE, Address::NONE],
            psize: row.psize,
            lsize: row.lsize,
            birth: content.written,
            written: Txg(0),
            stamp: content.stamp,
            compression: content.compression,
            kind: BlockKind::Data,
            level: 0,
        };
        is_it.then(|| written.referred_in(txg))
    }

    /// A write became a reference.
    pub fn note_hit(&self) {
        self.state.lock().hits += 1;
    }

    /// A block that was just written is known by its content from now on, if there is room in the
    /// index. Sync context.
    pub fn enter(&self, pointer: &BlockPointer, known: &Known, minutes: u32) {
        let mut state = self.state.lock();
        if state.index.len() >= state.index_max {
            return;
        }
        let content = ContentRow {
            digest: known.digest,
            hash: pointer.hash,
            domain: known.domain,
            written: pointer.birth,
            stamp: pointer.stamp,
            noted: minutes,
            compression: pointer.compression,
        };
        let (psize, lsize) = (pointer.psize, pointer.lsize);
        let row = ReferenceRow { more: 0, owner: known.owner, psize, lsize, content: Some(content) };
        state.enter(self.unit, &known.digest, pointer.copies[0]);
        state.set(self.unit, pointer.copies[0], None, Some(row));
    }

    /// Puts what changed into the meta tree. Sync context.
    pub fn write(&self) -> Result<()> {
        let mut state = self.state.lock();
        match state.failed.take() {
            None => {}
            Some(Failed::Tree(error)) => return Err(error.into()),
            Some(Failed::Row(source)) => {
                return Err(Error::Corrupt { pool: self.pool.clone(), what: "a reference row", source });
            }
        }
        if std::mem::take(&mut state.sums_dirty) {
            let key = MetaKey::Sharing.encode();
            if state.sums.is_empty() {
                self.meta.remove(&key)?;
            } else {
                self.meta.insert(&key, &state.sums.row().encode())?;
            }
        }
        let pending = std::mem::take(&mut state.pending);
        let items: Vec<(Vec<u8>, Option<Vec<u8>>)> =
            pending.iter().map(|(at, row)| (key(*at), row.as_ref().map(ReferenceRow::encode))).collect();
        let changes: Vec<Change<'_>> = items
            .iter()
            .map(|(key, row)| match row {
                Some(row) => Change::Insert(key, row),
                None => Change::Remove(key),
            })
            .collect();
        self.meta.batch(&changes)?;
        Ok(())
    }

    /// All blocks of an owner go without being looked at: their rows go with them. Sync context.
    pub fn drop_owner(&self, owner: DatasetId) -> Result<()> {
        self.write()?;
        let mut from = vec![meta_keys::REFERENCE];
        loop {
            let mut state = self.state.lock();
            if state.sums.is_empty() {
                return Ok(());
            }
            let (rows, next) = self.rows_from(&from, LOAD_STEP)?;
            for (address, row) in rows.iter().filter(|(_, row)| row.owner == owner) {
                state.forget(self.unit, row, *address);
                state.set(self.unit, *address, Some(row), None);
            }
            drop(state);
            self.write()?;
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    /// Some rows from a key on, and the key to go on from.
    fn rows_from(&self, from: &[u8], most: usize) -> Result<Rows> {
        let mut rows = Vec::new();
        let (mut last, mut seen) = (None, 0);
        for item in self.meta.range(from.to_vec()..vec![meta_keys::REFERENCE + 1]).take(most) {
            let (key, value) = item?;
            if let (Some(MetaKey::Reference(at)), Ok(row)) =
                (MetaKey::decode(&key), ReferenceRow::decode(&value))
            {
                rows.push((at, row));
            }
            (last, seen) = (Some(key), seen + 1);
        }
        let full = seen == most;
        let next = last.filter(|_| full).map(|mut key| {
            key.push(0);
            key
        });
        Ok((rows, next))
    }

    /// Fills a part of the index. True if there is more to do; after an error there is not [ddt.5].
    /// Not while a commit is under way.
    pub fn fill_step(&self) -> Result<bool> {
        let Some(from) = self.state.lock().cursor.clone() else { return Ok(false) };
        let read = self.rows_from(&from, LOAD_STEP);
        let mut state = self.state.lock();
        if state.cursor.as_ref() != Some(&from) {
            // It begins anew.
            return Ok(true);
        }
        state.cursor = None;
        let (rows, next) = read?;
        for (address, row) in &rows {
            // A row that was let go meanwhile is not there any more.
            if let Some(content) = &row.content
                && state.pending.get(address).is_none_or(Option::is_some)
            {
                state.enter(self.unit, &content.digest, *address);
            }
        }
        state.cursor = next.filter(|_| state.index.len() < state.index_max);
        Ok(state.cursor.is_some())
    }

    /// When blocks with one reference that are known by content were written, in minutes, and how
    /// many, added to `ages`; the key to go on from. Not while a commit is under way.
    pub fn ages(&self, from: &[u8], ages: &mut BTreeMap<u32, u64>) -> Result<Option<Vec<u8>>> {
        let (rows, next) = self.rows_from(from, LOAD_STEP)?;
        let alone = rows.iter().filter(|(_, row)| row.more == 0).filter_map(|(_, row)| row.content.as_ref());
        alone.for_each(|content| *ages.entry(content.noted).or_default() += 1);
        Ok(next)
    }

    /// Forgets the content of blocks with one reference that are as old as `wanted` says, of so
    /// many rows from a key on. How many, and the key to go on from. Not while a commit is under
    /// way; the next one stores it.
    pub fn forget_old(
        &self,
        from: &[u8],
        most: usize,
        wanted: &mut Wanted,
    ) -> Result<(u64, Option<Vec<u8>>)> {
        let (rows, next) = self.rows_from(from, most)?;
        let mut state = self.state.lock();
        let mut forgotten = 0;
        for (address, stored) in rows {
            let Some(row) = state.pending.get(&address).cloned().unwrap_or(Some(stored)) else { continue };
            let Some(content) = row.content.as_ref().filter(|_| row.more == 0) else { continue };
            if wanted.takes(content.noted) {
                state.forget(self.unit, &row, address);
                state.set(self.unit, address, Some(&row), None);
                forgotten += 1;
            }
        }
        Ok((forgotten, next))
    }
}

/// How old content is that is forgotten.
pub struct Wanted {
    /// Of an earlier minute: all.
    pub before: u32,
    /// Of this minute: so many.
    pub ties: u64,
}

impl Wanted {
    /// The oldest `percent` of a hundred.
    pub fn oldest(ages: &BTreeMap<u32, u64>, percent: u8) -> Wanted {
        let all: u64 = ages.values().sum();
        let mut left = (u128::from(all) * u128::from(percent) / 100) as u64;
        for (&minute, &blocks) in ages {
            if blocks > left {
                return Wanted { before: minute, ties: left };
            }
            left -= blocks;
        }
        Wanted { before: u32::MAX, ties: u64::MAX }
    }

    fn takes(&mut self, minute: u32) -> bool {
        let is_tie = minute == self.before && self.ties > 0;
        self.ties -= u64::from(is_tie);
        is_tie || minute < self.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_take_eight_bytes_and_lead_back() {
        assert_eq!(std::mem::size_of::<(u64, Place)>(), 16, "17 bytes a bucket");
        assert!((17 * 16_u64).div_ceil(7) <= ENTRY_BYTES);
        for (segment, offset) in [(1, 0), (77, 4096), ((1 << 40) - 1, 4096 * ((1 << 20) - 1))] {
            let address = Address { segment: SegmentId(segment), offset };
            assert_eq!(Place::of(address, 4096).expect("it fits").address(4096), address);
        }
        let far = Address { segment: SegmentId(1 << 40), offset: 0 };
        assert_eq!(Place::of(far, 4096), None);
        assert_eq!(Place::of(Address { segment: SegmentId(1), offset: 100 }, 4096), None);
    }

    #[test]
    fn the_oldest_go_first_and_of_one_minute_as_many_as_are_wanted() {
        let ages = BTreeMap::from([(10, 4), (20, 4), (30, 2)]);
        let taken = |percent| {
            let mut wanted = Wanted::oldest(&ages, percent);
            let of = |(&minute, &blocks): (&u32, &u64)| (0..blocks).filter(|_| wanted.takes(minute)).count();
            // By address, not by age.
            ages.iter().rev().map(of).collect::<Vec<_>>()
        };
        assert_eq!(taken(1), [0, 0, 0]);
        assert_eq!(taken(40), [0, 0, 4]);
        assert_eq!(taken(50), [0, 1, 4]);
        assert_eq!(taken(100), [2, 4, 4]);
    }

    #[test]
    fn sums_follow_rows_from_class_to_class_and_end_at_nothing() {
        let mut sums = Sums::default();
        let row =
            |more, content| ReferenceRow { more, owner: DatasetId(0), psize: 700, lsize: 1000, content };
        let content = ContentRow {
            digest: [1; 32],
            hash: [2; 32],
            domain: DatasetId(0),
            written: Txg(7),
            stamp: steadfast_format::Stamp::default(),
            noted: 0,
            compression: steadfast_format::Compression::Off,
        };
        sums.count(&row(2, None), 4096, false);
        assert_eq!((sums.shared, sums.shared_bytes, sums.saved_bytes), (1, 4096, 8192));
        for more in [0, 1, 2, 3] {
            sums.count(&row(more, Some(content.clone())), 4096, false);
        }
        let blocks: Vec<(u8, u64, u64)> =
            sums.classes.values().map(|class| (class.log2, class.blocks, class.ref_blocks)).collect();
        assert_eq!(blocks, [(0, 1, 1), (1, 2, 5), (2, 1, 4)]);
        for more in [0, 1, 2, 3] {
            sums.count(&row(more, Some(content.clone())), 4096, true);
        }
        sums.count(&row(2, None), 4096, true);
        assert!(sums.is_empty());
        assert_eq!(sums.row(), SharingRow::default());
    }
}
