//! Receiving: a stream becomes a snapshot, in one commit at its end. `docs/decisions/0093-streams.md`.
//!
//! ## Definitions
//! A snapshot is received into a *hidden* dataset, which has a receive row. Without a target it becomes the dataset itself; else it
//! begins as the *base*, the target's youngest snapshot, whose blocks it shares, and the target takes its roots over at the end.
//!
//! ## Invariants
//! (R1) Nothing of a target changes before the commit that takes its snapshot.             `finish`; test: `tests/streams.rs`
//! (R2) What a hidden dataset lets go of its base goes into cells under its own number: they are the target's with that
//!      commit, or forgotten with the hidden dataset, whose blocks live on in the base.       `take_over`, `discard`
//! (R3) A base is not destroyed while something is received upon it.                                `check_receives`
//! (R4) A position is stored with the txg that holds the content before it, or with a later one.      `Receiving::settle`
//!
//! ## What a crash does
//! Before the last commit: a hidden dataset is found at import, and is freed unless it is kept (`-s`). After it: the snapshot.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;

use steadfast_dataset::{Dataset, Doomed};
use steadfast_format::dirent::{Dirent, NamesHead};
use steadfast_format::file_keys::NamesKey;
use steadfast_format::inode::InodeRecord;
use steadfast_format::stream::{FrameKind, StreamBegin, StreamEnd, StreamSpan};
use steadfast_format::xattr::{self, XattrStart};
use steadfast_format::{DatasetId, InodeId, LogRecord, MetaKey, ReceiveRow, Txg, meta_keys};
use steadfast_property::Local;

use crate::differ::{Base, differences};
use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::stream_io::StreamReader;
use crate::table::{Entry, ROOT, Table};

/// Feature of pools that receive.
pub(crate) const FEATURE: &str = "receives";
/// Type bits of a mode, and those of a directory.
const TYPE_BITS: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;

/// Items that a span takes away at once.
const DOOMED_AT_ONCE: usize = 4_096;

/// How the name of a dataset is made of the name it had where it was sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Naming {
    /// As given; file systems below the first one of the stream go below it.
    #[default]
    AsGiven,
    /// Below what is given, without the name of the sender's pool (`-d`).
    WithoutPool,
    /// Below what is given, the last component alone (`-e`).
    LastOnly,
}

/// How a stream is to be received.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReceiveSpec {
    /// Full name of a dataset, perhaps with `@` and the name of the snapshot.
    pub target: String,
    /// How names are made of it.
    pub naming: Naming,
    /// What was changed since the base goes, younger snapshots too (`-F`).
    pub force: bool,
    /// What was received stays if the stream breaks off (`-s`).
    pub keep: bool,
    /// Only say what would be received (`-n`).
    pub dry_run: bool,
    /// Properties to set (`-o`).
    pub props: Local,
    /// Properties of the stream that are left out (`-x`).
    pub exclude: Vec<String>,
}

/// A snapshot that was received.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Received {
    /// Full name.
    pub snapshot: String,
    /// Full name where it came from.
    pub from: String,
    /// It was an increment.
    pub increment: bool,
    /// Bytes of the stream that it took.
    pub bytes: u64,
}

/// Accompanies a receive.
pub trait ReceiveWatch {
    /// A dataset is about to become what was received: nobody may use it. Runs before the moment, once for each snapshot.
    fn before(&mut self, dataset: &str) -> Result<()>;
    /// It is, or it is not and stays what it was.
    fn after(&mut self, dataset: &str);
    /// So many bytes of the stream are read.
    fn progress(&mut self, snapshot: &str, bytes: u64);
}

/// What is received into a hidden dataset.
pub(crate) struct Receiving {
    pub row: ReceiveRow,
    /// Somebody receives into it now.
    pub active: bool,
    /// Positions, each with the txg that was open when it was reached.
    steps: VecDeque<(Txg, (InodeId, u64))>,
}

impl Receiving {
    fn new(row: ReceiveRow, active: bool) -> Receiving {
        Receiving { row, active, steps: VecDeque::new() }
    }

    fn reached(&mut self, open: Txg, position: (InodeId, u64)) {
        match self.steps.back_mut().filter(|(txg, _)| *txg == open) {
            Some(step) => step.1 = position,
            None => self.steps.push_back((open, position)),
        }
    }

    /// `txg` is being committed. True if the row changed. (R4)
    fn settle(&mut self, txg: Txg) -> bool {
        let mut settled = false;
        while let Some((_, position)) = self.steps.front().filter(|(step, _)| *step <= txg) {
            (self.row.position, settled) = (*position, true);
            self.steps.pop_front();
        }
        settled
    }
}

impl Entry {
    /// True if it is a dataset that nobody sees.
    pub fn is_hidden(&self) -> bool {
        self.receiving.is_some()
    }

    /// The item of the meta tree that a commit of `txg` writes or removes for it.
    pub fn receive_item(&mut self, txg: Txg) -> Option<Option<Vec<u8>>> {
        let settled = self.receiving.as_mut().is_some_and(|receiving| receiving.settle(txg));
        let dirty = std::mem::take(&mut self.receive_dirty) || settled;
        dirty.then(|| self.receiving.as_ref().map(|receiving| receiving.row.encode()))
    }
}

impl Table {
    /// Hidden datasets whose snapshots are for `id`, or that lie below it.
    fn hidden_of(&self, id: DatasetId) -> Vec<DatasetId> {
        let is_of = |entry: &Entry| {
            let row = entry.receiving.as_ref().map(|receiving| &receiving.row);
            row.is_some_and(|row| row.target == id || entry.row.parent == id)
        };
        self.iter_all().filter(|(_, entry)| is_of(entry)).map(|(id, _)| id).collect()
    }

    /// The hidden dataset that a dataset of this name is received into.
    fn hidden_for(&self, name: &str) -> Option<DatasetId> {
        let target = self.find(name).ok();
        let (parent, last) = name.rsplit_once('/').unwrap_or(("", name));
        let parent = self.find(parent).ok();
        let is_for = |entry: &Entry| {
            let Some(receiving) = &entry.receiving else { return false };
            match receiving.row.target {
                DatasetId(0) => {
                    Some(entry.row.parent) == parent && receiving.row.name.split('@').next() == Some(last)
                }
                id => Some(id) == target,
            }
        };
        self.iter_all().find(|(_, entry)| is_for(entry)).map(|(id, _)| id)
    }
}

impl Inner {
    /// Receives all snapshots of a stream.
    pub(crate) fn receive(
        &self,
        spec: &ReceiveSpec,
        input: &mut dyn Read,
        watch: &mut dyn ReceiveWatch,
    ) -> Result<Vec<Received>> {
        if !spec.dry_run {
            self.check_writable()?;
            self.need_feature(FEATURE)?;
            self.need_feature(crate::snapshots::FEATURE)?;
        }
        let mut reader = StreamReader::new(input)?;
        let mut received = Vec::new();
        let mut first: Option<String> = None;
        let mut frame = reader.next()?;
        loop {
            let (kind, payload) = frame;
            match kind {
                FrameKind::Close => return Ok(received),
                FrameKind::Begin => {}
                _ => return Err(reader.misplaced("no snapshot has begun".into())),
            }
            let begin = StreamBegin::decode(&payload).map_err(|error| reader.misplaced(error.to_string()))?;
            let from = begin.name.split('@').next().unwrap_or_default().to_owned();
            let top = first.get_or_insert(from).clone();
            let (name, snapshot) = names(spec, &top, &begin).map_err(|reason| reader.misplaced(reason))?;
            let before = reader.bytes;
            frame = match spec.dry_run {
                true => skip(&mut reader, &begin)?,
                false => self.receive_one(spec, (&name, &snapshot), &begin, &mut reader, watch)?,
            };
            received.push(Received {
                snapshot: format!("{name}@{snapshot}"),
                from: begin.name.clone(),
                increment: begin.base != 0,
                bytes: reader.bytes - before,
            });
        }
    }

    fn receive_one(
        &self,
        spec: &ReceiveSpec,
        (name, snapshot): (&str, &str),
        begin: &StreamBegin,
        reader: &mut StreamReader<'_>,
        watch: &mut dyn ReceiveWatch,
    ) -> Result<(FrameKind, Vec<u8>)> {
        let (hidden, pin) = match begin.resumed {
            true => self.go_on(name, begin)?,
            false => self.begin(spec, (name, snapshot), begin)?,
        };
        // What follows is read first: a stream that is damaged anywhere up to there changes nothing.
        let filled = self.fill(hidden, begin, reader, watch).and_then(|()| reader.next());
        let outcome = filled.and_then(|next| {
            drop(pin);
            let target =
                self.table.read().get(hidden).and_then(|entry| Some(entry.receiving.as_ref()?.row.target));
            match target {
                Some(target) if target.0 != 0 => {
                    watch.before(name)?;
                    let taken = self.take_over(hidden, target, spec.force, begin);
                    watch.after(name);
                    taken?;
                }
                _ => self.become_visible(hidden, name, begin)?,
            }
            Ok(next)
        });
        if outcome.is_err() && !self.is_suspended() {
            self.broke_off(hidden)?;
        }
        outcome
    }

    /// A stream broke off: what is to be kept is made durable, the rest is freed.
    fn broke_off(&self, hidden: DatasetId) -> Result<()> {
        let kept = {
            let mut table = self.table.write();
            let Some(entry) = table.get_mut(hidden) else { return Ok(()) };
            let Some(receiving) = &mut entry.receiving else { return Ok(()) };
            receiving.active = false;
            receiving.row.kept
        };
        if kept { self.commit_changes() } else { self.discard(hidden) }
    }

    /// Takes what somebody began to receive, to go on with it.
    fn go_on(&self, name: &str, begin: &StreamBegin) -> Result<(DatasetId, Option<Arc<()>>)> {
        let mut table = self.table.write();
        let nothing = || Error::NoPartial { name: name.to_owned() };
        let hidden = table.hidden_for(name).ok_or_else(nothing)?;
        let entry = table.get(hidden).ok_or_else(nothing)?;
        let receiving = entry.receiving.as_ref().ok_or_else(nothing)?;
        if receiving.active {
            return Err(Error::Busy { name: name.to_owned() });
        }
        let row = &receiving.row;
        if (row.guid, row.base.map_or(0, |base| base.1), row.position)
            != (begin.guid, begin.base, begin.position)
        {
            return Err(Error::OtherPartial { name: name.to_owned() });
        }
        let pin = row.base.and_then(|(txg, _)| table.get(row.target)?.snapshots.get(&txg));
        let pin = pin.map(|snapshot| Arc::clone(&snapshot.pins));
        if let Some(receiving) = table.get_mut(hidden).and_then(|entry| entry.receiving.as_mut()) {
            receiving.active = true;
        }
        drop(table);
        self.open_head(hidden)?;
        Ok((hidden, pin))
    }

    /// Makes a hidden dataset for what is to be received.
    fn begin(
        &self,
        spec: &ReceiveSpec,
        (name, snapshot): (&str, &str),
        begin: &StreamBegin,
    ) -> Result<(DatasetId, Option<Arc<()>>)> {
        let left_over = {
            let table = self.table.read();
            table.hidden_for(name).map(|id| {
                let receiving = table.get(id).and_then(|entry| entry.receiving.as_ref());
                (id, receiving.is_some_and(|r| r.active), receiving.is_some_and(|r| r.row.kept))
            })
        };
        match left_over {
            Some((_, true, _)) => return Err(Error::Busy { name: name.to_owned() }),
            Some((_, false, true)) => return Err(Error::PartialExists { name: name.to_owned() }),
            Some((id, false, false)) => self.discard(id)?,
            None => {}
        }
        let target = self.table.read().find(name).ok();
        match (begin.base, target) {
            (0, Some(_)) => Err(Error::DestinationExists { name: name.to_owned() }),
            (0, None) => Ok((self.begin_new(spec, name, snapshot, begin)?, None)),
            (_, None) => Err(Error::NoSuchDataset { name: name.to_owned() }),
            (_, Some(target)) => self.begin_upon(spec, target, (name, snapshot), begin),
        }
    }

    fn begin_new(
        &self,
        spec: &ReceiveSpec,
        name: &str,
        snapshot: &str,
        begin: &StreamBegin,
    ) -> Result<DatasetId> {
        let Some((parent_name, last)) = name.rsplit_once('/') else {
            return Err(Error::DestinationExists { name: name.to_owned() });
        };
        let parent = self.table.read().find(parent_name);
        let parent = parent.map_err(|_| Error::NoParent { parent: parent_name.to_owned() })?;
        let props = props_of(spec, begin);
        self.check_filesystem_limits(parent, None)?;
        self.check_new_limits(parent, name, &props)?;
        self.check_owner_quotas(props.keys().map(String::as_str))?;
        let row = ReceiveRow {
            target: DatasetId(0),
            base: None,
            guid: begin.guid,
            position: (InodeId(0), 0),
            kept: spec.keep,
            name: format!("{last}@{snapshot}"),
        };
        let receiving = Receiving::new(row, true);
        let id = self.add_hidden(parent, props, begin.hash_seed, receiving)?;
        self.commit_changes()?;
        Ok(id)
    }

    fn begin_upon(
        &self,
        spec: &ReceiveSpec,
        target: DatasetId,
        (name, snapshot): (&str, &str),
        begin: &StreamBegin,
    ) -> Result<(DatasetId, Option<Arc<()>>)> {
        self.open_head(target)?;
        // Whether it was changed since is told by its roots.
        self.commit_changes()?;
        let mut table = self.table.write();
        let entry = table.get(target).ok_or_else(|| Error::NoSuchDataset { name: name.to_owned() })?;
        let txg = self.check_target(entry, name, snapshot, spec.force, begin)?;
        if entry.row.lineage.origin.0 != 0 {
            return Err(Error::TargetIsClone { name: name.to_owned() });
        }
        let base = &entry.snapshots[&txg];
        let pin = Arc::clone(&base.pins);
        let mut row = entry.row.clone();
        row.id = DatasetId(0);
        let older: Vec<Txg> = entry.snapshots.range(..=txg).map(|(txg, _)| *txg).collect();
        row.parent = target;
        row.names = base.row.names;
        row.extents = base.row.extents;
        (row.used, row.data, row.logical) = (base.row.used, base.row.data, base.row.logical);
        (row.files, row.next_inode) = (base.row.files, base.row.next_inode);
        row.lineage.family = entry.row.family();
        (row.lineage.kept, row.lineage.kept_logical) = (0, 0);
        let keys = entry.keys.clone();
        let guid = base.row.guid;
        if let (Some(encryption), Some(keys)) = (&mut row.encryption, &keys) {
            let root = encryption.root;
            let loaded = table.get(root).and_then(|entry| entry.keys.as_ref()?.user.clone());
            let user = loaded.ok_or_else(|| Error::KeyNotLoaded { name: name.to_owned() })?;
            row.id = table.next_id();
            let random = |out: &mut [u8]| self.env.random.fill(out);
            let aad = crate::keys::wrap_aad(self.guid, row.id);
            encryption.wrapped = steadfast_crypto::wrap(&user, keys.blocks.master(), &aad, &random);
        }
        let id = table.take_id();
        (row.id, row.name) = (id, hidden_name(id));
        let mut hidden = Entry::new(row, Local::new());
        hidden.keys = keys;
        hidden.row_dirty = true;
        hidden.receive_dirty = true;
        hidden.deaths.set_chain(older, Txg(0));
        let row = ReceiveRow {
            target,
            base: Some((txg, guid)),
            guid: begin.guid,
            position: (InodeId(0), 0),
            kept: spec.keep,
            name: format!("@{snapshot}"),
        };
        hidden.receiving = Some(Receiving::new(row, true));
        table.insert(hidden);
        drop(table);
        self.open_head(id)?;
        self.commit_changes()?;
        Ok((id, Some(pin)))
    }

    /// The txg of the base, if an increment upon it can be received.
    fn check_target(
        &self,
        entry: &Entry,
        name: &str,
        snapshot: &str,
        force: bool,
        begin: &StreamBegin,
    ) -> Result<Txg> {
        let by_guid =
            |guid| entry.snapshots.iter().find(move |(_, s)| s.row.guid == guid).map(|(txg, _)| *txg);
        if by_guid(begin.guid).is_some() {
            return Err(Error::SnapshotExists { name: format!("{name}@{snapshot}") });
        }
        let txg = by_guid(begin.base).ok_or_else(|| Error::NoBase { name: name.to_owned() })?;
        let younger: Vec<&crate::snapshots::Snapshot> =
            entry.snapshots.range(txg.next()..).map(|(_, s)| s).collect();
        if !younger.is_empty() && !force {
            let snapshots = younger.iter().map(|s| format!("{name}@{}", s.row.name)).collect();
            return Err(Error::BaseNotYoungest { name: name.to_owned(), snapshots });
        }
        for held in younger {
            let full = format!("{name}@{}", held.row.name);
            if !held.holds.is_empty() {
                return Err(Error::SnapshotHeld { name: full, tags: held.holds.keys().cloned().collect() });
            }
            if held.is_pinned() {
                return Err(Error::SnapshotPinned { name: full });
            }
        }
        let older = entry.snapshots.range(..=txg);
        if older.into_iter().any(|(_, s)| s.row.name == snapshot) {
            return Err(Error::SnapshotExists { name: format!("{name}@{snapshot}") });
        }
        if !force && is_modified(entry, txg)? {
            return Err(Error::Modified { name: name.to_owned() });
        }
        Ok(txg)
    }

    /// Takes frames into a hidden dataset up to the end of its snapshot.
    fn fill(
        &self,
        hidden: DatasetId,
        begin: &StreamBegin,
        reader: &mut StreamReader<'_>,
        watch: &mut dyn ReceiveWatch,
    ) -> Result<()> {
        let dataset = self.open_head(hidden)?;
        let first = reader.frames;
        let mut told = 0;
        let mut begun = begin.position.0.0 != 0;
        loop {
            if reader.bytes - told >= 1 << 20 {
                told = reader.bytes;
                watch.progress(&begin.name, told);
            }
            let (kind, payload) = reader.next()?;
            match kind {
                FrameKind::Names if !begun => {
                    let records = decode(&payload).map_err(|reason| reader.misplaced(reason))?;
                    for record in &records {
                        self.check_name(record).map_err(|reason| reader.misplaced(reason))?;
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
                    return Ok(());
                }
                _ => return Err(reader.misplaced("it is of a kind that has no place here".into())),
            }
        }
    }

    fn reached(&self, hidden: DatasetId, position: (InodeId, u64)) {
        let open = self.txgs.gate.open_txg();
        let mut table = self.table.write();
        if let Some(receiving) = table.get_mut(hidden).and_then(|entry| entry.receiving.as_mut()) {
            receiving.reached(open, position);
        }
    }

    fn receive_error(&self, reader: &StreamReader<'_>, error: steadfast_dataset::Error) -> Error {
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
    fn check_name(&self, record: &LogRecord<'_>) -> std::result::Result<(), String> {
        let text = |error: steadfast_format::DecodeError| error.to_string();
        match record {
            LogRecord::Set { key, value } => match NamesKey::decode(key).map_err(text)? {
                NamesKey::Head => NamesHead::decode(value).map(|_| ()).map_err(text),
                NamesKey::Orphan(_) if value.is_empty() => Ok(()),
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
                if inode.0 == 1 && record.mode & TYPE_BITS != DIRECTORY {
                    return Err("its root is no directory".into());
                }
                Ok(())
            }
            LogRecord::Gone { inode } if inode.0 > 1 => Ok(()),
            LogRecord::Cut { until: Txg(0), .. } | LogRecord::Counters { .. } => Ok(()),
            _ => Err("it holds a record that has no place in it".into()),
        }
    }

    /// The last commit of an increment: the target takes over what the hidden dataset became, and its snapshot is taken.
    fn take_over(
        &self,
        hidden: DatasetId,
        target: DatasetId,
        force: bool,
        begin: &StreamBegin,
    ) -> Result<()> {
        self.open_head(target)?;
        // All that was received is in the hidden row's trees from here on, and what the target changed in its own.
        self.commit_changes()?;
        let answer = {
            let _turn = self.sync_turn.lock();
            let _figures = self.figures.write();
            let mut table = self.table.write();
            let name = table.full_name(target);
            let missing = || Error::NoSuchDataset { name: name.clone() };
            let entry = table.get(target).filter(|entry| !entry.row.destroying).ok_or_else(missing)?;
            let receiving =
                table.get(hidden).and_then(|entry| entry.receiving.as_ref()).ok_or_else(missing)?;
            let snapshot = receiving.row.name.trim_start_matches('@').to_owned();
            if entry.is_in_use() {
                return Err(Error::Busy { name });
            }
            let txg = self.check_target(entry, &name, &snapshot, force, begin)?;
            let younger: Vec<Txg> = entry.snapshots.range(txg.next()..).map(|(txg, _)| *txg).collect();
            if !younger.is_empty() {
                self.remove_snapshots(&mut table, target, &younger)?;
            }
            self.roll_within(&mut table, &format!("{name}@"), target, txg)?;
            let taken = self.take_cells(&mut table, hidden, target);
            if let Err(error) = &taken {
                // A part of it is in the tree that the next commit would store.
                self.suspend(error);
            }
            taken?;
            let became = table.remove(hidden).expect("looked at just now").row;
            let entry = table.get_mut(target).expect("looked at just now");
            entry.open = None;
            let row = &mut entry.row;
            (row.names, row.extents) = (became.names, became.extents);
            (row.used, row.data, row.logical) = (became.used, became.data, became.logical);
            (row.files, row.next_inode) = (became.files, became.next_inode.max(row.next_inode));
            entry.row_dirty = true;
            self.ask_for(target, snapshot, (begin.guid, begin.created_ns))
        };
        self.blockio.forget(hidden, hidden);
        self.open_head(target)?;
        self.await_answer(&answer)
    }

    /// What the hidden dataset let go of the base is let go by the target. (R2)
    fn take_cells(&self, table: &mut Table, hidden: DatasetId, target: DatasetId) -> Result<()> {
        for (cell, sum) in self.cells_of(hidden)? {
            for number in 0..sum.next {
                let key = MetaKey::CellRun(hidden, cell, number).encode();
                let Some(value) = self.meta.get(&key)? else { continue };
                let places = steadfast_format::CellPlace::decode_run(&value)
                    .map_err(|source| self.corrupt(&self.name(), "places of a cell", source))?;
                self.put(target, cell, &places, self.sum_of(&places))?;
                self.meta.remove(&key)?;
            }
            self.meta.remove(&MetaKey::Cell(hidden, cell).encode())?;
            let entry = table.get_mut(target).expect("looked at before");
            if entry.deaths.holds(cell) {
                entry.row.lineage.kept += sum.bytes;
                entry.row.lineage.kept_logical += sum.logical;
            }
        }
        Ok(())
    }

    fn cells_of(&self, id: DatasetId) -> Result<Vec<(steadfast_format::CellId, steadfast_format::Cell)>> {
        let mut cells = Vec::new();
        let all = Txg(0)..Txg(u64::MAX);
        self.visit_cells(id, all.clone(), all, |cell, sum| {
            cells.push((cell, sum));
            true
        })?;
        Ok(cells)
    }

    /// The last commit of a whole snapshot: the hidden dataset is seen, and its snapshot is taken.
    fn become_visible(&self, hidden: DatasetId, name: &str, begin: &StreamBegin) -> Result<()> {
        self.commit_changes()?;
        let answer = {
            let _turn = self.sync_turn.lock();
            let mut table = self.table.write();
            if table.find(name).is_ok() {
                return Err(Error::DestinationExists { name: name.to_owned() });
            }
            let missing = || Error::NoSuchDataset { name: name.to_owned() };
            let entry = table.get_mut(hidden).ok_or_else(missing)?;
            let receiving = entry.receiving.take().ok_or_else(missing)?;
            let Some((last, snapshot)) = receiving.row.name.split_once('@') else { return Err(missing()) };
            last.clone_into(&mut entry.row.name);
            entry.row_dirty = true;
            entry.receive_dirty = true;
            self.ask_for(hidden, snapshot.to_owned(), (begin.guid, begin.created_ns))
        };
        self.update_quotas(None);
        self.await_answer(&answer)
    }

    /// Frees what was received into a hidden dataset. Durable when it returns; its space comes back in the background.
    fn discard(&self, hidden: DatasetId) -> Result<()> {
        let base = {
            let table = self.table.read();
            let Some(receiving) = table.get(hidden).and_then(|entry| entry.receiving.as_ref()) else {
                return Ok(());
            };
            receiving.row.base
        };
        self.open_head(hidden)?;
        // What was written ahead of its commit is in trees from here on.
        self.commit_changes()?;
        {
            let _turn = self.sync_turn.lock();
            let _figures = self.figures.write();
            let mut table = self.table.write();
            let Some(entry) = table.get_mut(hidden) else { return Ok(()) };
            if let Some((txg, _)) = base {
                let forgotten = self.forget_shared(entry, txg);
                if let Err(error) = &forgotten {
                    self.suspend(error);
                }
                forgotten?;
            } else if let Some(open) = &entry.open {
                open.head.begin_destroy();
            }
            entry.receiving = None;
            entry.receive_dirty = true;
            entry.row.destroying = true;
            entry.row_dirty = true;
        }
        self.open_head(hidden)?;
        self.commit_changes()
    }

    /// A hidden dataset that began as a snapshot is empty: what it wrote is dead, and what it let go lives on in the snapshot.
    fn forget_shared(&self, entry: &mut Entry, base: Txg) -> Result<()> {
        let id = entry.row.id;
        let open = entry.open.take().ok_or_else(|| Error::BadDataset {
            dataset: id,
            reason: "a snapshot that was being received is not open".into(),
        })?;
        let snapped = Txg(self.snapped.load(std::sync::atomic::Ordering::Acquire));
        let mut places = Vec::new();
        for root in [entry.row.names, entry.row.extents] {
            crate::newer::visit(&open.blocks, root, base, |pointer| {
                places.extend(crate::deaths::places_of(pointer));
            })?;
        }
        for (cell, sum) in self.cells_of(id)? {
            for number in 0..sum.next {
                self.meta.remove(&MetaKey::CellRun(id, cell, number).encode())?;
            }
            self.meta.remove(&MetaKey::Cell(id, cell).encode())?;
        }
        let row = &mut entry.row;
        (row.names, row.extents) = (None, None);
        (row.used, row.data, row.logical) = (0, 0, 0);
        (row.lineage.kept, row.lineage.kept_logical) = (0, 0);
        entry.deaths.set_chain(Vec::new(), Txg(0));
        if !places.is_empty() {
            let cell = steadfast_format::CellId { left: snapped, born: base };
            self.put(id, cell, &places, self.sum_of(&places))?;
            entry.add_dead(base, snapped.next());
        }
        Ok(())
    }

    /// `zfs receive -A`: what was kept of a receive that broke off is freed.
    pub(crate) fn abort_receive(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let (hidden, active) = {
            let table = self.table.read();
            let hidden = table.hidden_for(name).ok_or_else(|| Error::NoPartial { name: name.to_owned() })?;
            let receiving = table.get(hidden).and_then(|entry| entry.receiving.as_ref());
            (hidden, receiving.is_some_and(|receiving| receiving.active))
        };
        if active {
            return Err(Error::Busy { name: name.to_owned() });
        }
        self.discard(hidden)
    }

    /// What is there of a snapshot for a dataset of this name that broke off: guid, guid of its base, and position.
    pub(crate) fn partial(&self, name: &str) -> Option<(u64, u64, (u64, u64))> {
        let table = self.table.read();
        let entry = table.get(table.hidden_for(name)?)?;
        let row = &entry.receiving.as_ref().filter(|receiving| receiving.row.kept)?.row;
        Some((row.guid, row.base.map_or(0, |base| base.1), (row.position.0.0, row.position.1)))
    }

    /// Refuses to destroy what something is received upon. (R3)
    pub(crate) fn check_receives(
        &self,
        table: &Table,
        id: DatasetId,
        is_needed: impl Fn(Txg) -> bool,
    ) -> Result<()> {
        for hidden in table.hidden_of(id) {
            let receiving = table.get(hidden).and_then(|entry| entry.receiving.as_ref());
            let base = receiving.filter(|r| r.row.target == id).and_then(|r| r.row.base);
            if base.is_some_and(|(txg, _)| is_needed(txg)) {
                return Err(Error::PartialExists { name: table.full_name(id) });
            }
        }
        Ok(())
    }

    /// Frees what was kept for a dataset, or below it, that is about to be destroyed.
    pub(crate) fn discard_partials(&self, name: &str) -> Result<()> {
        let hidden = {
            let table = self.table.read();
            let id = table.find(name)?;
            let hidden = table.hidden_of(id);
            let active = |id: &DatasetId| {
                table.get(*id).and_then(|entry| entry.receiving.as_ref()).is_some_and(|r| r.active)
            };
            if hidden.iter().any(active) {
                return Err(Error::Busy { name: name.to_owned() });
            }
            hidden
        };
        hidden.into_iter().try_for_each(|id| self.discard(id))
    }

    /// Hidden datasets, as stored.
    pub(crate) fn load_receives(&self, pool: &str) -> Result<()> {
        for item in self.items_of(meta_keys::RECEIVE) {
            let (MetaKey::Receive(id), value) = item? else { continue };
            let row = ReceiveRow::decode(&value);
            let row = row.map_err(|source| self.corrupt(pool, "a receive row", source))?;
            let mut table = self.table.write();
            let bad = |reason: &str| Error::BadDataset { dataset: id, reason: reason.to_owned() };
            let older: Vec<Txg> = match row.base {
                None => Vec::new(),
                Some((txg, guid)) => {
                    let target = table.get(row.target).filter(|_| row.target != id);
                    let target = target.ok_or_else(|| bad("what it is received for is not there"))?;
                    if target.snapshots.get(&txg).is_none_or(|base| base.row.guid != guid) {
                        return Err(bad("what it is received upon is not there"));
                    }
                    target.snapshots.range(..=txg).map(|(txg, _)| *txg).collect()
                }
            };
            let entry = table.get_mut(id).ok_or_else(|| bad("something is received into it"))?;
            if id == ROOT || !entry.snapshots.is_empty() {
                return Err(bad("something is received into it, and it is in use"));
            }
            entry.deaths.set_chain(older, Txg(0));
            entry.receiving = Some(Receiving::new(row, false));
        }
        Ok(())
    }

    /// Frees what was being received when the pool was last in use, but for what is kept.
    pub(crate) fn discard_broken_off(&self) -> Result<()> {
        let broken: Vec<DatasetId> = {
            let table = self.table.read();
            let is_broken = |entry: &Entry| {
                entry.receiving.as_ref().is_some_and(|r| !r.row.kept && !r.active) && entry.open.is_some()
            };
            table.iter_all().filter(|(_, entry)| is_broken(entry)).map(|(id, _)| id).collect()
        };
        broken.into_iter().try_for_each(|id| self.discard(id))
    }
}

/// True if a dataset is not what it was at a snapshot. That files were read, or are stored in another way, is no change; nor that
/// files went that nobody can name any more.
fn is_modified(entry: &Entry, txg: Txg) -> Result<bool> {
    let base = &entry.snapshots[&txg].row;
    if entry.row.names == base.names {
        return Ok(false);
    }
    let Some(open) = &entry.open else { return Ok(true) };
    let same = |old: &[u8], new: &[u8]| match (InodeRecord::decode(old), InodeRecord::decode(new)) {
        (Ok(old), Ok(new)) => InodeRecord { allocated: new.allocated, atime: new.atime, ..old } == new,
        _ => false,
    };
    let (mut modified, mut orphan) = (false, None);
    let upon = Base { root: base.names, txg };
    differences(&open.blocks, Some(upon), entry.row.names, &mut |key, old, new| {
        let gone = new.is_none();
        modified |= match NamesKey::decode(key) {
            Ok(NamesKey::Orphan(_)) => !gone,
            Ok(NamesKey::Inode(inode)) => {
                let record = old.and_then(|old| InodeRecord::decode(old).ok());
                if gone && record.is_some_and(|record| record.nlink == 0) {
                    orphan = Some(inode);
                    return Ok(());
                }
                !old.zip(new).is_some_and(|(old, new)| same(old, new))
            }
            Ok(NamesKey::Xattr { inode, .. } | NamesKey::Target { inode, .. }) => {
                !gone || orphan != Some(inode)
            }
            _ => true,
        };
        Ok(())
    })?;
    Ok(modified)
}

/// Name of a row that has none yet.
pub(crate) fn hidden_name(id: DatasetId) -> String {
    format!("receive:{id}")
}

/// Names of dataset and snapshot that a snapshot of a stream gets.
fn names(
    spec: &ReceiveSpec,
    top: &str,
    begin: &StreamBegin,
) -> std::result::Result<(String, String), String> {
    let bad = || format!("it names a snapshot {:?}, which is no name", begin.name);
    steadfast_property::check_snapshot_name(&begin.name).map_err(|_| bad())?;
    let (from, sent) = begin.name.split_once('@').ok_or_else(bad)?;
    let (target, given) = spec.target.split_once('@').unwrap_or((&spec.target, ""));
    let tail = match spec.naming {
        Naming::WithoutPool => from.split_once('/').map_or("", |(_, tail)| tail),
        Naming::LastOnly => match from.strip_prefix(top) {
            Some(below) => &from[top.rfind('/').map_or(0, |at| at + 1)..top.len() + below.len()],
            None => from.rsplit('/').next().unwrap_or(from),
        },
        Naming::AsGiven => from.strip_prefix(top).unwrap_or_default().trim_start_matches('/'),
    };
    let name = if tail.is_empty() { target.to_owned() } else { format!("{target}/{tail}") };
    let snapshot = if given.is_empty() { sent } else { given };
    let full = format!("{name}@{snapshot}");
    steadfast_property::check_snapshot_name(&full).map_err(|error| error.to_string())?;
    Ok((name, snapshot.to_owned()))
}

/// Properties that a dataset gets with what it receives.
fn props_of(spec: &ReceiveSpec, begin: &StreamBegin) -> Local {
    let mut props = Local::new();
    for (name, value) in &begin.properties {
        if !spec.exclude.contains(name) {
            props.insert(name.clone(), value.clone());
        }
    }
    props.extend(spec.props.clone());
    props
}

/// Reads a snapshot's frames without making anything of them.
fn skip(reader: &mut StreamReader<'_>, begin: &StreamBegin) -> Result<(FrameKind, Vec<u8>)> {
    loop {
        let (kind, payload) = reader.next()?;
        if kind == FrameKind::End {
            let end = StreamEnd::decode(&payload).map_err(|error| reader.misplaced(error.to_string()))?;
            return match end.guid == begin.guid {
                true => reader.next(),
                false => Err(reader.misplaced("it ends another snapshot".into())),
            };
        }
        if matches!(kind, FrameKind::Begin | FrameKind::Close) {
            return Err(reader.misplaced("the snapshot before has not ended".into()));
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
