//! Receiving: the frames of a snapshot become what a hidden dataset holds (`receive.rs`). Each
//! frame is looked at as a whole before anything of it is done.

use crate::streams::state::Streams;
use std::ops::Bound;
use std::sync::Arc;

use steadfast_dataset::{Dataset, ReceivedContent, Removal};
use steadfast_format::dirent::{Dirent, NamesHead};
use steadfast_format::file_keys::NamesKey;
use steadfast_format::inode::InodeRecord;
use steadfast_format::stream::{FrameKind, PackedRecord, StreamBegin, StreamEnd, StreamNotes, StreamSpan};
use steadfast_format::xattr::{self, XattrStart};
use steadfast_format::{Compression, DatasetId, InodeId, LogRecord, Txg};

use crate::core::error::{Error, Result};
use crate::datasets::dataset::fault_of_next_inode;
use crate::streams::notes::foreign_tag;
use crate::streams::raw_receive::{RawReceiver, Wrong};
use crate::streams::receive::ReceiveWatch;
use crate::streams::receive_repeats::{Came, Repeats};
use crate::streams::stream_io::StreamReader;

/// Type bits of a mode, and those of a directory.
const TYPE_BITS: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
/// Records that are taken at once. Each is promised a node, so that much of a quota has to be left
/// for a frame of small files.
const RECORDS_AT_ONCE: usize = 256;

impl Streams {
    /// Removes all that a future clone begins with, if a full stream is to replace it: the clone
    /// lets its origin's blocks go one by one, as if its files were removed.
    pub(crate) fn empty_clone(&self, hidden: DatasetId, begin: &StreamBegin) -> Result<()> {
        let is_clone = {
            let table = self.datasets.table.read();
            let receiving = table.get(hidden).and_then(|entry| entry.receiving.as_ref());
            receiving.is_some_and(|receiving| receiving.row.clone)
        };
        if begin.base != 0 || !is_clone {
            return Ok(());
        }
        let dataset = self.datasets.open_head(hidden)?;
        let mut last = Vec::new();
        loop {
            let behind = (Bound::Excluded(&last[..]), Bound::Unbounded);
            let some = dataset.names().range::<&[u8]>(behind).take(RECORDS_AT_ONCE);
            let keys = some.map(|item| Ok(item?.0)).collect::<Result<Vec<Vec<u8>>>>()?;
            let Some(newest) = keys.last() else { break };
            let removals = keys.iter().map(|key| match NamesKey::decode(key) {
                // The root stays, and is what the stream makes of it.
                Ok(NamesKey::Inode(InodeId(1))) => {
                    LogRecord::Cut { inode: InodeId(1), start: 0, end: u64::MAX, until: Txg(0) }
                }
                Ok(NamesKey::Inode(inode)) => LogRecord::Gone { inode },
                _ => LogRecord::Removed { key },
            });
            // A directory has no content to be cut.
            let is_due = |record: &LogRecord<'_>| begin.volume || !matches!(record, LogRecord::Cut { .. });
            let removals: Vec<LogRecord<'_>> = removals.filter(is_due).collect();
            dataset.receive(&removals)?;
            last.clone_from(newest);
        }
        // Numbers of inodes come again: their content is freed before, and they are forgotten.
        loop {
            self.core.commit_changes()?;
            let _turn = self.core.sync_turn.lock();
            let mut table = self.datasets.table.write();
            let missing = || Error::NoSuchDataset { name: format!("<{hidden}>") };
            let entry = table.get_mut(hidden).ok_or_else(missing)?;
            if !dataset.owes_frees() && !entry.has_unstored() {
                entry.open = None;
                break;
            }
        }
        self.datasets.open_to_receive(hidden)
    }

    /// Takes frames into a hidden dataset up to the end of its snapshot. Gives what is noted on
    /// that.
    pub(crate) fn fill(
        &self,
        hidden: DatasetId,
        (begin, came): (&StreamBegin, &Came),
        reader: &mut StreamReader<'_>,
        watch: &mut dyn ReceiveWatch,
    ) -> Result<StreamNotes> {
        let dataset = self.datasets.open_head(hidden)?;
        let mut repeats = Repeats::new(hidden, Arc::clone(&dataset), came);
        dataset.set_streamed(true);
        let filled = self.fill_from(&dataset, begin, &mut repeats, reader, watch);
        dataset.set_streamed(false);
        // Also after a receive that failed. [repeats.3]
        let counted = repeats.count(self);
        let notes = filled?;
        counted.map(|()| notes)
    }

    fn fill_from(
        &self,
        dataset: &Dataset,
        begin: &StreamBegin,
        repeats: &mut Repeats<'_>,
        reader: &mut StreamReader<'_>,
        watch: &mut dyn ReceiveWatch,
    ) -> Result<StreamNotes> {
        let hidden = dataset.id();
        if self.datasets.is_volume(hidden) != begin.volume {
            return Err(reader.misplaced(
                "the snapshot is of a volume and its base of a file system, or the reverse".into(),
            ));
        }
        let first = reader.frames;
        let (mut told, mut notes) = (0, StreamNotes::default());
        let mut begun = begin.position.0.0 != 0;
        let mut raw = begin.raw.then(|| RawReceiver::new(dataset, begin));
        loop {
            if reader.bytes - told >= 1 << 20 {
                told = reader.bytes;
                watch.progress(&begin.name, told);
            }
            let (kind, payload) = reader.next()?;
            if kind == FrameKind::Notes {
                // Right behind the begin.
                if !reader.header.notes || reader.frames != first + 1 {
                    return Err(reader.misplaced("a frame of this kind is not allowed here".into()));
                }
                notes = StreamNotes::decode(&payload).map_err(|error| reader.misplaced(error.to_string()))?;
                if let Some(tag) = foreign_tag(&notes) {
                    return Err(reader.misplaced(format!("{tag:?} is not a valid hold tag")));
                }
                reader.reuse(payload);
                continue;
            }
            if let Some(raw) = raw.as_mut().filter(|_| kind != FrameKind::End) {
                let taken = match kind {
                    FrameKind::RawRoots => raw.roots(&payload),
                    FrameKind::RawGone => raw.gone(&payload),
                    FrameKind::RawKept if reader.header.kept => raw.kept(&payload),
                    FrameKind::RawBlocks => {
                        raw.blocks(&payload).map(|position| self.reached(hidden, position))
                    }
                    _ => Err(Wrong::Frame("a frame of this kind is not allowed here".into())),
                };
                taken.map_err(|wrong| self.refused(reader, wrong))?;
                reader.reuse(payload);
                continue;
            }
            match kind {
                FrameKind::Names if !begun => {
                    let records = decode(&payload).map_err(|reason| reader.misplaced(reason))?;
                    for record in &records {
                        self.check_name(record, begin.volume).map_err(|reason| reader.misplaced(reason))?;
                    }
                    self.take_records(dataset, &records, reader)?;
                    drop(records);
                    reader.reuse(payload);
                }
                FrameKind::Span => {
                    repeats.settle(self, reader)?;
                    let span =
                        StreamSpan::decode(&payload).map_err(|error| reader.misplaced(error.to_string()))?;
                    if begin.base == 0 || begun && !span.extents {
                        return Err(reader.misplaced("a frame of this kind is not allowed here".into()));
                    }
                    let doomed = dataset.not_in(span.extents, &span.from, &span.to, &span.keys)?;
                    let records: Vec<LogRecord<'_>> = doomed.iter().map(Removal::record).collect();
                    if records.iter().any(|record| matches!(record, LogRecord::Gone { inode: InodeId(1) })) {
                        return Err(reader.misplaced("the frame removes the root".into()));
                    }
                    self.take_records(dataset, &records, reader)?;
                    reader.reuse(payload);
                }
                FrameKind::Content => {
                    begun = true;
                    let records = decode(&payload).map_err(|reason| reader.misplaced(reason))?;
                    let mut position = (InodeId(0), 0);
                    for record in &records {
                        position =
                            check_content(dataset, record).map_err(|reason| reader.misplaced(reason))?;
                    }
                    self.take_records(dataset, &records, reader)?;
                    repeats.came_to(self, position);
                    drop(records);
                    reader.reuse(payload);
                }
                FrameKind::Packed if begin.packed => {
                    begun = true;
                    let records =
                        decode_packed(dataset, &payload).map_err(|reason| reader.misplaced(reason))?;
                    let position = self.take_packed(dataset, &records, reader)?;
                    repeats.came_to(self, position);
                    drop(records);
                    reader.reuse(payload);
                }
                FrameKind::Repeats if reader.header.repeats => {
                    begun = true;
                    repeats.add(self, &payload, reader)?;
                    reader.reuse(payload);
                }
                FrameKind::End => {
                    let end =
                        StreamEnd::decode(&payload).map_err(|error| reader.misplaced(error.to_string()))?;
                    if (end.guid, end.frames) != (begin.guid, reader.frames - first + 1) {
                        return Err(reader.misplaced("the end frame is of another snapshot".into()));
                    }
                    if raw.as_ref().is_some_and(|raw| !raw.has_roots) {
                        return Err(reader.misplaced("the end frame has no roots".into()));
                    }
                    if let Some(raw) = &mut raw {
                        raw.end_kept().map_err(|wrong| self.refused(reader, wrong))?;
                    }
                    // Items may be of inodes that no record of the stream speaks of.
                    if let Some(reason) = fault_of_next_inode(dataset, begin.raw) {
                        return Err(reader.misplaced(reason));
                    }
                    repeats.settle(self, reader)?;
                    return Ok(notes);
                }
                _ => return Err(reader.misplaced("a frame of this kind is not allowed here".into())),
            }
        }
    }

    /// Why a frame of a raw snapshot is not taken.
    fn refused(&self, reader: &StreamReader<'_>, wrong: Wrong) -> Error {
        match wrong {
            Wrong::Frame(reason) => reader.misplaced(reason),
            Wrong::Here(Error::Dataset(error)) => self.receive_error(reader, error),
            Wrong::Here(error) => error,
        }
    }

    /// Takes the records of a frame.
    fn take_records(
        &self,
        dataset: &Dataset,
        records: &[LogRecord<'_>],
        reader: &StreamReader<'_>,
    ) -> Result<()> {
        records
            .chunks(RECORDS_AT_ONCE)
            .try_for_each(|records| dataset.receive(records))
            .map_err(|error| self.receive_error(reader, error))
    }

    /// Takes the records of a frame, if all that are compressed become what they are said to
    /// become. Gives the position behind them.
    fn take_packed(
        &self,
        dataset: &Dataset,
        records: &[(PackedRecord, &[u8])],
        reader: &StreamReader<'_>,
    ) -> Result<(InodeId, u64)> {
        let compressed = || records.iter().filter(|(record, _)| record.compression != Compression::Off);
        let parts: Vec<_> =
            compressed().map(|(record, bytes)| (record.compression, *bytes, record.lsize)).collect();
        let mut plain = Vec::with_capacity(parts.len());
        for ((record, _), bytes) in compressed().zip(self.core.blockio.unpack(&parts)) {
            let bad = || {
                let PackedRecord { inode, offset, lsize, .. } = record;
                let place = format!("inode {inode}, byte {offset}");
                reader.misplaced(format!("a record does not decompress to {lsize} bytes: {place}"))
            };
            plain.push(bytes.ok_or_else(bad)?);
        }
        // A pool may do without Zstandard.
        let stays = |how: Compression| {
            how != Compression::Zstd || self.core.has_feature(crate::datasets::dataset::ZSTD)
        };
        let mut plain = plain.iter();
        let mut arrived = Vec::with_capacity(records.len());
        for (PackedRecord { inode, offset, compression, .. }, bytes) in records {
            let (inode, offset, packed) = (*inode, *offset, Some((*compression, *bytes)));
            arrived.push(match *compression {
                Compression::Off => ReceivedContent { inode, offset, bytes, packed: None },
                how => {
                    let bytes = plain.next().expect("one for each");
                    ReceivedContent { inode, offset, bytes, packed: packed.filter(|_| stays(how)) }
                }
            });
        }
        dataset.receive_packed(&arrived).map_err(|error| self.receive_error(reader, error))?;
        let last = records.last().map(|(last, _)| (last.inode, last.offset + u64::from(last.lsize)));
        Ok(last.expect("a frame that is empty is refused"))
    }

    pub(crate) fn reached(&self, hidden: DatasetId, position: (InodeId, u64)) {
        let open = self.core.txgs.gate.open_txg();
        let mut table = self.datasets.table.write();
        if let Some(receiving) = table.get_mut(hidden).and_then(|entry| entry.receiving.as_mut()) {
            receiving.reached(open, position);
        }
    }

    pub(crate) fn receive_error(&self, reader: &StreamReader<'_>, error: steadfast_dataset::Error) -> Error {
        use steadfast_txg::Refusal;
        match error {
            steadfast_dataset::Error::NoInode(inode) => {
                reader.misplaced(format!("the frame changes inode {inode}, which does not exist"))
            }
            steadfast_dataset::Error::Refused(Refusal::NoSpace) => Error::NoSpace { pool: self.core.name() },
            steadfast_dataset::Error::Refused(Refusal::OverQuota) => Error::ReceiveOverQuota,
            error => error.into(),
        }
    }

    /// Refuses what cannot be an item of a names tree, or an inode of this pool.
    pub(crate) fn check_name(&self, record: &LogRecord<'_>, volume: bool) -> std::result::Result<(), String> {
        let text = |error: steadfast_format::DecodeError| error.to_string();
        match record {
            LogRecord::Set { key, value } => match NamesKey::decode(key).map_err(text)? {
                NamesKey::Head => NamesHead::decode(value).map(|_| ()).map_err(text),
                NamesKey::Orphan(_) if value.is_empty() => Ok(()),
                NamesKey::Entry { .. } if volume => Err("a volume has no names".into()),
                NamesKey::Entry { .. } => Dirent::decode(value).map(|_| ()).map_err(text),
                NamesKey::Xattr { chunk: 0, .. } => XattrStart::decode(value).map(|_| ()).map_err(text),
                NamesKey::Xattr { .. } | NamesKey::Target { .. } if value.len() <= xattr::CHUNK => Ok(()),
                _ => Err("the value of an item is not valid".into()),
            },
            LogRecord::Removed { key } => match NamesKey::decode(key).map_err(text)? {
                NamesKey::Inode(_) => Err("the frame removes an inode as if it were a name".into()),
                _ => Ok(()),
            },
            LogRecord::Inode { inode: InodeId(number), .. } if *number >= InodeId::FILES_END => {
                Err(format!("inode number {number} is not valid"))
            }
            LogRecord::Counters { next_inode, .. } if *next_inode > InodeId::FILES_END => {
                Err(format!("the next inode number, {next_inode}, is not valid"))
            }
            LogRecord::Inode { inode, record } => {
                let largest = self.core.throttle.block_bytes_max.ilog2();
                if u32::from(record.record_shift) > largest {
                    let (has, most) = (1_u64 << record.record_shift, 1_u64 << largest);
                    return Err(format!(
                        "inode {inode} has records of {has} bytes, and this pool stores {most} at most"
                    ));
                }
                let is_final = record.flags & InodeRecord::FLAG_RECORD_FINAL != 0;
                if is_final && record.record_shift == 0 || record.nlink == 0 && inode.0 == 1 {
                    return Err(format!("the fields of inode {inode} contradict each other"));
                }
                let (root, kind) = (inode.0 == 1, record.mode & TYPE_BITS);
                match volume {
                    false if root && kind != DIRECTORY => Err("the root inode is not a directory".into()),
                    true if !root || kind != FILE || !is_final || record.nlink != 1 => {
                        Err("the snapshot is of a volume, which has one inode only".into())
                    }
                    _ => Ok(()),
                }
            }
            LogRecord::Gone { inode } if inode.0 > 1 => Ok(()),
            LogRecord::Cut { until: Txg(0), .. } | LogRecord::Counters { .. } => Ok(()),
            _ => Err("a record of this kind is not allowed in the frame".into()),
        }
    }
}

/// All records of a frame, or why they are none.
fn decode(payload: &[u8]) -> std::result::Result<Vec<LogRecord<'_>>, String> {
    let mut records = Vec::new();
    let mut at = 0;
    while at < payload.len() {
        let (record, taken) = LogRecord::decode(&payload[at..]).map_err(|error| error.to_string())?;
        records.push(record);
        at += taken;
    }
    Ok(records)
}

/// All packed records of a frame, each of which fits its file, or why they are none.
fn decode_packed<'p>(
    dataset: &Dataset,
    payload: &'p [u8],
) -> std::result::Result<Vec<(PackedRecord, &'p [u8])>, String> {
    let mut records = Vec::new();
    let (mut rest, mut plain) = (payload, 0);
    while !rest.is_empty() {
        let record = PackedRecord::decode(rest).map_err(|error| error.to_string())?;
        let (inode, lsize) = (record.inode, u64::from(record.lsize));
        let split = rest[PackedRecord::SIZE..].split_at_checked(record.psize as usize);
        let Some((bytes, tail)) = split else { return Err("the last record of the frame is cut off".into()) };
        plain += lsize;
        if plain > PackedRecord::PLAIN_MAX {
            return Err(format!(
                "the records of the frame are longer than {} bytes",
                PackedRecord::PLAIN_MAX
            ));
        }
        let file = dataset.inode(inode).map_err(|error| error.to_string())?.record();
        check_inside(inode, &file, record.offset + lsize)?;
        let record_size = 1_u64 << file.record_shift;
        let is_record = record.offset.is_multiple_of(record_size) && lsize <= record_size;
        if record.compression != Compression::Off && !is_record {
            return Err(format!("the compressed data of inode {inode} is not one of its records"));
        }
        records.push((record, bytes));
        rest = tail;
    }
    match records.is_empty() {
        true => Err("the frame is empty".into()),
        false => Ok(records),
    }
}

/// Refuses content that does not fit its file. Gives the position behind it.
fn check_content(dataset: &Dataset, record: &LogRecord<'_>) -> std::result::Result<(InodeId, u64), String> {
    let (inode, end, is_data) = match record {
        LogRecord::Data { inode, offset, bytes } => (*inode, offset + bytes.len() as u64, true),
        LogRecord::Cut { inode, end, until: Txg(0), .. } => (*inode, *end, false),
        _ => return Err("a record of this kind is not allowed in the frame".into()),
    };
    let file = dataset.inode(inode).map_err(|error| error.to_string())?.record();
    if is_data {
        check_inside(inode, &file, end)?;
    }
    Ok((inode, end))
}

/// Refuses content that ends there if its file has none, or ends before.
pub(crate) fn check_inside(inode: InodeId, file: &InodeRecord, end: u64) -> std::result::Result<(), String> {
    let is_file = file.flags & InodeRecord::FLAG_RECORD_FINAL != 0;
    match is_file && end <= file.size {
        true => Ok(()),
        false => Err(format!("data lies beyond the end of inode {inode}")),
    }
}
