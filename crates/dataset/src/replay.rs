//! Replay (ZFS: `zil_replay`): groups of the intent log bring an opened dataset to the state in
//! which they were drafted. Streams consist of the same records. A stream comes from anybody, so
//! each record of a frame is checked against the dataset before any of them is applied.
//!
//! A record is a state. So by [journal.3] replaying a group twice, or over a newer root, changes
//! nothing. All changes of a replay belong to an open txg, so a crash inside it leaves the root and
//! the log as they were.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::inode::InodeRecord;
use steadfast_format::{Compression, DecodeError, InodeId, LogRecord, Txg};
use steadfast_tree::Change;
use steadfast_txg::{AdmitKind, Cost, Operation};

use crate::dataset::Dataset;
use crate::inode::Inode;
use crate::owners::owned_by;
use crate::record::{Packed, len, record_space};
use crate::{Error, Result};

/// Whether the room that records need was promised before, or is asked for like anybody's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Room {
    Promised,
    Asked,
}

/// Space that items of one group may take, beyond content: for each record.
const RECORD_SPACE: u64 = 4 << 10;
/// Type bits of a mode, and those of a regular file.
const TYPE_BITS: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

/// A deletion by a span of a stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Removal {
    /// An item of the names tree.
    Item(Vec<u8>),
    /// An inode.
    Inode(InodeId),
    /// Content.
    Content(InodeId, u64, u64),
}

impl Removal {
    /// As a record.
    #[must_use]
    pub fn record(&self) -> LogRecord<'_> {
        match self {
            Removal::Item(key) => LogRecord::Removed { key },
            Removal::Inode(inode) => LogRecord::Gone { inode: *inode },
            Removal::Content(inode, start, end) => {
                LogRecord::Cut { inode: *inode, start: *start, end: *end, until: Txg(0) }
            }
        }
    }
}

/// Content that came compressed, or with what did.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedContent<'b> {
    /// File.
    pub inode: InodeId,
    /// Where it begins.
    pub offset: u64,
    /// It itself.
    pub bytes: &'b [u8],
    /// The same as it came compressed, which becomes these bytes: where it is a record, it is
    /// stored so.
    pub packed: Option<(Compression, &'b [u8])>,
}

impl Dataset {
    /// Keys of the names tree, or of the stored extents, from one key up to another (empty: to the
    /// end) that are not among `keys`, which ascend. Items of inodes that are gone are left out.
    pub fn not_in(&self, extents: bool, from: &[u8], to: &[u8], keys: &[Vec<u8>]) -> Result<Vec<Removal>> {
        let tree = if extents { &self.extents } else { &self.names };
        let end = if to.is_empty() { Bound::Unbounded } else { Bound::Excluded(to) };
        let mut doomed = Vec::new();
        let mut keys = keys.iter().peekable();
        for item in tree.range::<&[u8]>((Bound::Included(from), end)) {
            let (key, value) = item?;
            while keys.next_if(|known| **known < key).is_some() {}
            if keys.peek().is_some_and(|known| **known == key) {
                continue;
            }
            if !extents {
                doomed.push(match NamesKey::decode(&key) {
                    Ok(NamesKey::Inode(inode)) => Removal::Inode(inode),
                    _ => Removal::Item(key),
                });
            } else if let Ok(ExtentsKey::Extent { inode, offset }) = ExtentsKey::decode(&key) {
                let length = self.decode_extent(&value)?.length();
                match self.inode(inode) {
                    Ok(_) => {
                        doomed.push(Removal::Content(inode, offset, offset.saturating_add(length.into())))
                    }
                    Err(Error::NoInode(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(doomed)
    }

    /// Makes the changes of one group, over a root of txg `base`. All its records were decoded
    /// before, so that a group is replayed whole or not at all.
    pub fn replay(&self, records: &[LogRecord<'_>], base: Txg) -> Result<()> {
        self.make(records, base, Room::Promised)
    }

    /// Makes the changes of one frame of a stream, waiting for room like any writer. Nobody else
    /// uses the dataset.
    pub fn receive(&self, records: &[LogRecord<'_>]) -> Result<()> {
        self.make(records, Txg(0), Room::Asked)
    }

    /// The same of content that came compressed.
    pub fn receive_packed(&self, content: &[ReceivedContent<'_>]) -> Result<()> {
        for arrived in content {
            let inode = self.inode(arrived.inode)?;
            self.replay_data(&inode, *arrived, Room::Asked)?;
        }
        Ok(())
    }

    fn enter(&self, room: Room, cost: Cost) -> Result<Operation<'_>> {
        Ok(match room {
            Room::Promised => self.txgs.begin_promised(self.account(), cost)?,
            Room::Asked => self.txgs.begin_for(self.account(), AdmitKind::Write, cost)?,
        })
    }

    fn make(&self, records: &[LogRecord<'_>], base: Txg, room: Room) -> Result<()> {
        let applies = |until: Txg| until.0 == 0 || base < until;
        let count = records.len() as u64;
        let cost = Cost { memory: 4096 * count, space: RECORD_SPACE * count, blocks: count };
        self.operate(
            || self.enter(room, cost),
            |op| {
                let items = items_of(records);
                let _held = self.look(records, &items)?;
                for record in records {
                    match record {
                        LogRecord::Gone { inode } => self.replay_gone(op.txg(), *inode)?,
                        LogRecord::Inode { inode, record } => {
                            self.replay_inode(op.txg(), *inode, record)?;
                            // Numbers that are in use are not given again, whatever the record
                            // says.
                            self.next_inode.fetch_max(inode.0.saturating_add(1), Ordering::Relaxed);
                        }
                        LogRecord::Counters { files, next_inode } => {
                            self.files.store(*files, Ordering::Relaxed);
                            self.next_inode.fetch_max(*next_inode, Ordering::Relaxed);
                        }
                        _ => {}
                    }
                }
                self.batch(items)
            },
        )?;
        for record in records {
            match record {
                LogRecord::Cut { inode, start, end, until } if applies(*until) => {
                    let inode = self.inode(*inode)?;
                    self.check_is_file(&inode)?;
                    let cost = Cost { memory: 4096, space: RECORD_SPACE, blocks: 2 };
                    let op = self.enter(room, cost)?;
                    self.cut(&op, &inode, *start..*end);
                }
                &LogRecord::Data { inode, offset, bytes } => {
                    let arrived = ReceivedContent { inode, offset, bytes, packed: None };
                    self.replay_data(&self.inode(inode)?, arrived, room)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Looks at all that the records change, so that nothing is missing once something is changed.
    /// Gives the inodes, which stay in memory as long as they are held.
    fn look(&self, records: &[LogRecord<'_>], items: &Items) -> Result<Vec<Arc<Inode>>> {
        let mut held = Vec::new();
        let mut unread = Ok(());
        for record in records {
            let (LogRecord::Gone { inode } | LogRecord::Inode { inode, .. }) = record else { continue };
            match self.inode(*inode) {
                Ok(inode) => held.push(inode),
                Err(Error::NoInode(_)) => {}
                // The nodes that all of them miss are read side by side.
                Err(error @ Error::Tree(steadfast_tree::Error::Unread)) => unread = Err(error),
                Err(error) => return Err(error),
            }
        }
        let mut keys: Vec<Vec<u8>> = items.iter().map(|(key, _)| key.clone()).collect();
        keys.extend(records.iter().filter_map(|record| match record {
            LogRecord::Inode { inode, .. } => Some(NamesKey::Inode(*inode).encode()),
            _ => None,
        }));
        keys.sort_unstable();
        keys.dedup();
        let changes: Vec<Change<'_>> = keys.iter().map(|key| Change::Remove(key)).collect();
        self.names.look(&changes)?;
        unread?;
        Ok(held)
    }

    fn replay_gone(&self, txg: Txg, id: InodeId) -> Result<()> {
        let inode = match self.inode(id) {
            Ok(inode) => inode,
            Err(Error::NoInode(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut state = inode.state.lock();
        state.gone = true;
        state.record.size = 0;
        let record_size = state.record_size();
        if state.record.record_shift != 0 {
            state.open.cut(record_size, 0..u64::MAX);
        }
        self.mark(txg, &inode, &mut state);
        self.note_gone(txg, &mut state);
        Ok(())
    }

    fn replay_inode(&self, txg: Txg, id: InodeId, record: &InodeRecord) -> Result<()> {
        let inode = match self.inode(id) {
            Ok(inode) => inode,
            Err(Error::NoInode(_)) => {
                let new = InodeRecord { allocated: 0, ..*record };
                self.batch(vec![(NamesKey::Inode(id).encode(), Some(new.encode().to_vec()))])?;
                let inode = self.inode(id)?;
                self.owners.add_object(owned_by(record), 1);
                inode
            }
            Err(error) => return Err(error),
        };
        let mut state = inode.state.lock();
        // The space it occupies is known by this root.
        state.record = InodeRecord { allocated: state.record.allocated, ..*record };
        self.mark(txg, &inode, &mut state);
        Ok(())
    }

    /// Refuses content of what has none.
    fn check_is_file(&self, inode: &Inode) -> Result<()> {
        let mode = inode.record().mode;
        if mode & TYPE_BITS == REGULAR {
            return Ok(());
        }
        let source = DecodeError::Field { structure: "inode", field: "mode", value: mode.into() };
        Err(Error::Item { dataset: self.id, source })
    }

    fn replay_data(&self, inode: &Arc<Inode>, arrived: ReceivedContent<'_>, room: Room) -> Result<()> {
        let ReceivedContent { offset, bytes, packed, .. } = arrived;
        self.check_is_file(inode)?;
        let record_size = {
            let mut state = inode.state.lock();
            self.choose_record_size(&mut state);
            state.record_size()
        };
        let count = len(bytes);
        let records = (offset + count).div_ceil(record_size) - offset / record_size;
        let space = records * record_space(self.grain(), record_size) + (16 << 10);
        let memory = count + packed.map_or(0, |(_, bytes)| len(bytes)) + 4096;
        let cost = Cost { memory, space, blocks: records + 1 };
        self.operate(
            || self.enter(room, cost),
            |op| {
                let packed = packed.map(|(compression, packed)| Packed {
                    compression,
                    bytes: packed.to_vec(),
                    length: bytes.len(),
                });
                self.write_as(op, inode, (offset, bytes), false, packed, |_| {})?;
                Ok(())
            },
        )
    }
}

/// Changes of the names tree.
type Items = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Items that records set or remove.
fn items_of(records: &[LogRecord<'_>]) -> Items {
    let items = records.iter().filter_map(|record| match record {
        LogRecord::Set { key, value } => Some((key.to_vec(), Some(value.to_vec()))),
        LogRecord::Removed { key } => Some((key.to_vec(), None)),
        _ => None,
    });
    let mut items: Items = items.collect();
    // Of an inode that goes the log has the key as well; a span of a stream has not.
    let told: BTreeSet<Vec<u8>> = items.iter().map(|(key, _)| key.clone()).collect();
    let gone = records.iter().filter_map(|record| match record {
        LogRecord::Gone { inode } => Some(NamesKey::Inode(*inode).encode()),
        _ => None,
    });
    items.extend(gone.filter(|key| !told.contains(key)).map(|key| (key, None)));
    items
}
