//! Receiving raw: sealed blocks become the content of a raw dataset's files.
//! `docs/decisions/0097-raw-datasets.md`.
//!
//! A frame is checked as a whole before anything of it is stored: each block has the hash that its
//! header says, and comes behind those before it. Whether a block opens and belongs to the trees
//! cannot be checked without the key. This is checked when the key is loaded.

use steadfast_dataset::{Dataset, Removal};
use steadfast_format::dirent::{Dirent, PROBES, first_cookie};
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::inode::{InodeRecord, Time};
use steadfast_format::raw::{RawBlock, RawGone, RawKept, RawRoots, STRIDE};
use steadfast_format::stream::StreamBegin;
use steadfast_format::{InodeId, LogRecord, Txg};

use crate::core::error::Error;
use crate::datasets::raw::ROOTS_NAME;
use crate::datasets::raw::roots_of;
use steadfast_refs::raw_source::ROOTS;
use steadfast_refs::raw_source::file_of;
use steadfast_refs::raw_source::name_of;
use steadfast_refs::raw_source::offset_of;

/// Records of a raw dataset's files are 256 KiB: most blocks are one, and small pools store them.
const RECORD_SHIFT: u8 = 18;
/// Size of each file of blocks: the place of any counter lies inside.
const FILE_BYTES: u64 = 1 << 62;
/// A regular file that its owner may read.
const MODE: u32 = 0o100_400;
/// Numbers of files are hashes below this.
const NEXT_INODE: u64 = 1 << 62;
const ROOT: InodeId = InodeId(1);
/// Blocks that are dropped by one operation.
const DROPPED_AT_ONCE: usize = 4096;

/// A raw snapshot on its way into a hidden dataset.
pub(crate) struct RawReceiver<'d> {
    dataset: &'d Dataset,
    /// The snapshot, as it is called where it was.
    name: &'d str,
    now: Time,
    is_increment: bool,
    /// The roots have come.
    pub has_roots: bool,
    /// Blocks have come: up to here.
    position: Option<(InodeId, u64)>,
    /// Kept blocks of the base have been listed up to here.
    kept: Option<(InodeId, u64)>,
}

/// Why a frame is none that a sender would write, or an error of this pool.
pub(crate) enum Wrong {
    Frame(String),
    Here(Error),
}

impl From<steadfast_dataset::Error> for Wrong {
    fn from(error: steadfast_dataset::Error) -> Wrong {
        Wrong::Here(error.into())
    }
}

fn frame(reason: impl ToString) -> Wrong {
    Wrong::Frame(reason.to_string())
}

impl<'d> RawReceiver<'d> {
    pub fn new(dataset: &'d Dataset, begin: &'d StreamBegin) -> RawReceiver<'d> {
        RawReceiver {
            dataset,
            name: &begin.name,
            now: Time::from_ns(begin.created_ns.into()),
            is_increment: begin.base != 0,
            has_roots: false,
            position: (begin.position.0.0 != 0).then_some(begin.position),
            kept: None,
        }
    }

    /// A frame of roots.
    pub fn roots(&mut self, payload: &[u8]) -> Result<(), Wrong> {
        if self.has_roots {
            return Err(frame("the roots come twice"));
        }
        let roots = RawRoots::decode(payload).map_err(frame)?;
        if self.is_increment {
            // [raw.5] The base's, or those that came before it broke off.
            let base = roots_of(self.dataset).map_err(Wrong::Here)?;
            if (base.pool, base.family) != (roots.pool, roots.family) {
                return Err(Wrong::Here(Error::RawOther { name: self.name.to_owned() }));
            }
        }
        self.make_file(ROOTS, ROOTS_NAME, payload.len() as u64)?;
        self.dataset.receive(&[LogRecord::Data { inode: ROOTS, offset: 0, bytes: payload }])?;
        self.has_roots = true;
        Ok(())
    }

    /// A frame of stamps of blocks that are gone.
    pub fn gone(&mut self, payload: &[u8]) -> Result<(), Wrong> {
        if !self.has_roots || !self.is_increment || self.position.is_some() || self.kept.is_some() {
            return Err(frame("it takes blocks away where there are none to be taken"));
        }
        if !payload.len().is_multiple_of(RawGone::SIZE) {
            return Err(frame("its end is cut"));
        }
        let mut records = Vec::new();
        for bytes in payload.chunks(RawGone::SIZE) {
            let RawGone(stamp) = RawGone::decode(bytes).map_err(frame)?;
            let (inode, start) = (file_of(&stamp.salt), offset_of(&stamp));
            match self.dataset.inode(inode) {
                Ok(_) => {}
                Err(steadfast_dataset::Error::NoInode(_)) => {
                    return Err(frame("it takes a block away that is not there"));
                }
                Err(error) => return Err(error.into()),
            }
            records.push(LogRecord::Cut { inode, start, end: start + STRIDE, until: Txg(0) });
        }
        Ok(self.dataset.receive(&records)?)
    }

    /// A frame of blocks that are kept of the base: what lies before, between them is gone.
    pub fn kept(&mut self, payload: &[u8]) -> Result<(), Wrong> {
        if !self.has_roots || !self.is_increment || self.position.is_some() {
            return Err(frame("it keeps blocks where there are none to be kept"));
        }
        if !payload.len().is_multiple_of(RawKept::SIZE) {
            return Err(frame("its end is cut"));
        }
        let mut kept = Vec::new();
        let mut end = self.kept.unwrap_or((InodeId(0), 0));
        for bytes in payload.chunks(RawKept::SIZE) {
            let RawKept { first, count } = RawKept::decode(bytes).map_err(frame)?;
            let (inode, start) = (file_of(&first.salt), offset_of(&first));
            if (inode, start) < end {
                return Err(frame("what it keeps is not in its order"));
            }
            end = (inode, start + count * STRIDE);
            kept.push(((inode, start), end));
        }
        for (start, end) in kept {
            self.drop_until(start)?;
            self.kept = Some(end);
        }
        self.kept = Some(end);
        Ok(())
    }

    /// Nothing more is kept.
    pub fn end_kept(&mut self) -> Result<(), Wrong> {
        match self.kept {
            Some(_) => {
                self.drop_until((InodeId(u64::MAX), 0))?;
                self.kept = None;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Drops what the base has behind what is kept, and before a place.
    fn drop_until(&self, place: (InodeId, u64)) -> Result<(), Wrong> {
        let from = self.kept.unwrap_or((InodeId(0), 0));
        // The roots are no block.
        let from = from.max((InodeId(ROOTS.0 + 1), 0));
        let key = |(inode, offset)| ExtentsKey::Extent { inode, offset }.encode();
        let doomed = self.dataset.not_in(true, &key(from), &key(place), &[])?;
        let records: Vec<LogRecord<'_>> = doomed.iter().map(Removal::record).collect();
        for some in records.chunks(DROPPED_AT_ONCE) {
            self.dataset.receive(some)?;
        }
        Ok(())
    }

    /// A frame of blocks. Gives the position behind them.
    pub fn blocks(&mut self, payload: &[u8]) -> Result<(InodeId, u64), Wrong> {
        if !self.has_roots {
            return Err(frame("its blocks come before their roots"));
        }
        self.end_kept()?;
        let mut blocks = Vec::new();
        let (mut rest, mut position) = (payload, self.position);
        while !rest.is_empty() {
            let header = RawBlock::decode(rest).map_err(frame)?;
            let length = RawBlock::SIZE + header.psize as usize;
            let Some((whole, tail)) = rest.split_at_checked(length) else {
                return Err(frame("its last block is cut"));
            };
            if steadfast_crypto::hash(&whole[RawBlock::SIZE..]) != header.hash {
                return Err(frame("a block has not the hash that is said of it"));
            }
            let place = (file_of(&header.stamp.salt), offset_of(&header.stamp));
            if position.is_some_and(|position| place < position) {
                return Err(frame("its blocks are not in their order"));
            }
            position = Some((place.0, place.1 + length as u64));
            blocks.push((place, header.stamp.salt, whole));
            rest = tail;
        }
        for ((inode, _), salt, _) in &blocks {
            self.make_file(*inode, &name_of(salt), FILE_BYTES)?;
        }
        let records: Vec<LogRecord<'_>> = blocks
            .into_iter()
            .map(|((inode, offset), _, bytes)| LogRecord::Data { inode, offset, bytes })
            .collect();
        self.dataset.receive(&records)?;
        self.position = position;
        position.ok_or_else(|| frame("it is empty"))
    }

    /// Makes a file of the raw dataset, unless it is there.
    fn make_file(&self, inode: InodeId, name: &[u8], size: u64) -> Result<(), Wrong> {
        match self.dataset.inode(inode) {
            Ok(_) => return Ok(()),
            Err(steadfast_dataset::Error::NoInode(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let first = first_cookie(self.dataset.hash_seed(), name);
        let mut key = None;
        for probe in 0..PROBES {
            let entry = NamesKey::Entry { directory: ROOT, cookie: first + probe }.encode();
            if !self.dataset.names().contains(&entry).map_err(steadfast_dataset::Error::from)? {
                key = Some(entry);
                break;
            }
        }
        let key = key.ok_or_else(|| frame("it has more salts than a dataset has"))?;
        let root = self.dataset.inode(ROOT)?.record();
        let root = InodeRecord { size: root.size + 1, mtime: self.now, ctime: self.now, ..root };
        let file = InodeRecord {
            generation: 1,
            parent: ROOT,
            size,
            allocated: 0,
            mode: MODE,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            record_shift: RECORD_SHIFT,
            flags: InodeRecord::FLAG_RECORD_FINAL,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            btime: self.now,
        };
        let value = Dirent { inode, kind: 8, name: name.to_vec() }.encode();
        self.dataset.receive(&[
            LogRecord::Inode { inode, record: file },
            LogRecord::Set { key: &key, value: &value },
            LogRecord::Inode { inode: ROOT, record: root },
            LogRecord::Counters { files: root.size + 1, next_inode: NEXT_INODE },
        ])?;
        Ok(())
    }
}
