//! Receiving: the frames of a snapshot become what a hidden dataset holds (`receive.rs`). Each frame is looked at as a whole before anything of
//! it is done.

use steadfast_dataset::{Dataset, Doomed};
use steadfast_format::dirent::{Dirent, NamesHead};
use steadfast_format::file_keys::NamesKey;
use steadfast_format::inode::InodeRecord;
use steadfast_format::stream::{FrameKind, StreamBegin, StreamEnd, StreamSpan};
use steadfast_format::xattr::{self, XattrStart};
use steadfast_format::{DatasetId, InodeId, LogRecord, Txg};

use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::raw_receive::{RawReceiver, Wrong};
use crate::receive::ReceiveWatch;
use crate::stream_io::StreamReader;

/// Type bits of a mode, and those of a directory.
const TYPE_BITS: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
/// Items that a span takes away at once.
const DOOMED_AT_ONCE: usize = 4_096;

impl Inner {
    /// Takes frames into a hidden dataset up to the end of its snapshot.
    pub(crate) fn fill(
        &self,
        hidden: DatasetId,
        begin: &StreamBegin,
        reader: &mut StreamReader<'_>,
        watch: &mut dyn ReceiveWatch,
    ) -> Result<()> {
        let dataset = self.open_head(hidden)?;
        if self.is_volume(hidden) != begin.volume || begin.volume && begin.raw {
            return Err(reader.misplaced("it is of a volume where a file system is, or the reverse".into()));
        }
        let first = reader.frames;
        let mut told = 0;
        let mut begun = begin.position.0.0 != 0;
        let mut raw = begin.raw.then(|| RawReceiver::new(&dataset, begin));
        loop {
            if reader.bytes - told >= 1 << 20 {
                told = reader.bytes;
                watch.progress(&begin.name, told);
            }
            let (kind, payload) = reader.next()?;
            if let Some(raw) = raw.as_mut().filter(|_| kind != FrameKind::End) {
                let taken = match kind {
                    FrameKind::RawRoots => raw.roots(&payload),
                    FrameKind::RawGone => raw.gone(&payload),
                    FrameKind::RawBlocks => {
                        raw.blocks(&payload).map(|position| self.reached(hidden, position))
                    }
                    _ => Err(Wrong::Frame("it is of a kind that has no place here".into())),
                };
                taken.map_err(|wrong| match wrong {
                    Wrong::Frame(reason) => reader.misplaced(reason),
                    Wrong::Here(Error::Dataset(error)) => self.receive_error(reader, error),
                    Wrong::Here(error) => error,
                })?;
                reader.reuse(payload);
                continue;
            }
            match kind {
                FrameKind::Names if !begun => {
                    let records = decode(&payload).map_err(|reason| reader.misplaced(reason))?;
                    for record in &records {
                        self.check_name(record, begin.volume).map_err(|reason| reader.misplaced(reason))?;
                    }
                    dataset.receive(&records).map_err(|error| self.receive_error(reader, error))?;
                    drop(records);
                    reader.reuse(payload);
                }
                FrameKind::Span => {
                    let span =
                        StreamSpan::decode(&payload).map_err(|error| reader.misplaced(error.to_string()))?;
                    if begin.base == 0 || begun && !span.extents {
                        return Err(reader.misplaced("it is of a kind that has no place here".into()));
                    }
                    let doomed = dataset.not_in(span.extents, &span.from, &span.to, &span.keys)?;
                    let records: Vec<LogRecord<'_>> = doomed.iter().map(Doomed::record).collect();
                    if records.iter().any(|record| matches!(record, LogRecord::Gone { inode: InodeId(1) })) {
                        return Err(reader.misplaced("it takes the root away".into()));
                    }
                    for records in records.chunks(DOOMED_AT_ONCE) {
                        dataset.receive(records).map_err(|error| self.receive_error(reader, error))?;
                    }
                    reader.reuse(payload);
                }
                FrameKind::Content => {
                    begun = true;
                    let records = decode(&payload).map_err(|reason| reader.misplaced(reason))?;
                    let mut position = (InodeId(0), 0);
                    for record in &records {
                        position =
                            check_content(&dataset, record).map_err(|reason| reader.misplaced(reason))?;
                    }
                    dataset.receive(&records).map_err(|error| self.receive_error(reader, error))?;
                    self.reached(hidden, position);
                    drop(records);
                    reader.reuse(payload);
                }
                FrameKind::End => {
                    let end =
                        StreamEnd::decode(&payload).map_err(|error| reader.misplaced(error.to_string()))?;
                    if (end.guid, end.frames) != (begin.guid, reader.frames - first + 1) {
                        return Err(reader.misplaced("it ends another snapshot".into()));
                    }
                    if raw.is_some_and(|raw| !raw.has_roots) {
                        return Err(reader.misplaced("it ends a snapshot that has no roots".into()));
                    }
                    return Ok(());
                }
                _ => return Err(reader.misplaced("it is of a kind that has no place here".into())),
            }
        }
    }

    pub(crate) fn reached(&self, hidden: DatasetId, position: (InodeId, u64)) {
        let open = self.txgs.gate.open_txg();
        let mut table = self.table.write();
        if let Some(receiving) = table.get_mut(hidden).and_then(|entry| entry.receiving.as_mut()) {
            receiving.reached(open, position);
        }
    }

    pub(crate) fn receive_error(&self, reader: &StreamReader<'_>, error: steadfast_dataset::Error) -> Error {
        use steadfast_txg::Refusal;
        match error {
            steadfast_dataset::Error::NoInode(inode) => {
                reader.misplaced(format!("it speaks of inode {inode}, which is not there"))
            }
            steadfast_dataset::Error::Refused(Refusal::NoSpace | Refusal::OverQuota) => {
                Error::NoSpace { pool: self.name() }
            }
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
                _ => Err("an item has a value that it cannot have".into()),
            },
            LogRecord::Removed { key } => match NamesKey::decode(key).map_err(text)? {
                NamesKey::Inode(_) => Err("an inode is removed like an item".into()),
                _ => Ok(()),
            },
            LogRecord::Inode { inode, record } => {
                let largest = self.block_bytes_max.ilog2();
                if u32::from(record.record_shift) > largest {
                    let (has, most) = (1_u64 << record.record_shift, 1_u64 << largest);
                    return Err(format!(
                        "inode {inode} has records of {has} bytes, and this pool stores {most} at most"
                    ));
                }
                let is_final = record.flags & InodeRecord::FLAG_RECORD_FINAL != 0;
                if is_final && record.record_shift == 0 || record.nlink == 0 && inode.0 == 1 {
                    return Err(format!("inode {inode} contradicts itself"));
                }
                let (root, kind) = (inode.0 == 1, record.mode & TYPE_BITS);
                match volume {
                    false if root && kind != DIRECTORY => Err("its root is no directory".into()),
                    true if !root || kind != FILE || !is_final || record.nlink != 1 => {
                        Err("it is of a volume, which is one file".into())
                    }
                    _ => Ok(()),
                }
            }
            LogRecord::Gone { inode } if inode.0 > 1 => Ok(()),
            LogRecord::Cut { until: Txg(0), .. } | LogRecord::Counters { .. } => Ok(()),
            _ => Err("it holds a record that has no place in it".into()),
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

/// Refuses content that does not fit its file. Gives the position behind it.
fn check_content(dataset: &Dataset, record: &LogRecord<'_>) -> std::result::Result<(InodeId, u64), String> {
    let (inode, end, is_data) = match record {
        LogRecord::Data { inode, offset, bytes } => (*inode, offset + bytes.len() as u64, true),
        LogRecord::Cut { inode, end, until: Txg(0), .. } => (*inode, *end, false),
        _ => return Err("it holds a record that has no place in it".into()),
    };
    let file = dataset.inode(inode).map_err(|error| error.to_string())?.record();
    let is_file = file.flags & InodeRecord::FLAG_RECORD_FINAL != 0;
    if is_data && (!is_file || end > file.size) {
        return Err(format!("content lies outside of inode {inode}"));
    }
    Ok((inode, end))
}
