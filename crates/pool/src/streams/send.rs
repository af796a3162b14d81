//! Sends a snapshot, or its difference from another one, as a stream.
//!
//! Snapshots are pinned while they are sent, and a pinned one is not destroyed.

use crate::datasets::snapshots::Pin;
use crate::streams::state::Streams;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use steadfast_dataset::{Dataset, Inode};
use steadfast_format::extent::Extent;
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::inode::InodeRecord;
use steadfast_format::raw::RawRoots;
use steadfast_format::stream::{
    FrameKind, PackedRecord, Repeat, StreamBegin, StreamEnd, StreamHeader, StreamMember, StreamNotes,
    StreamSpan,
};
use steadfast_format::{
    Address, BlockKind, BlockPointer, Bookmark, Compression, DatasetId, InodeId, LogRecord, SnapshotRow, Txg,
};

use crate::core::error::{Error, Result};
use crate::datasets::batch::Batch;
use crate::datasets::batch::Named;
use crate::datasets::manifests::Listed;
use crate::datasets::raw::roots_of;
use crate::datasets::traverse::{Base, Found, differences, differences_before, spans};
use crate::streams::raw_send::Known;
use crate::streams::raw_send::RawSender;
use crate::streams::raw_send::RawTrees;
use crate::streams::raw_send::salts_of;
use crate::streams::send_ahead::SendAhead;
use crate::streams::stream_io::StreamWriter;
use steadfast_refs::blocks::DatasetBlocks;
use steadfast_refs::ddt::References;

/// Bytes of records in a frame, at least, but for the last one of its kind.
const FRAME_BYTES: usize = 512 << 10;
/// Longest piece of content in one record.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a frame's packed records when decompressed; a single longer record may exceed them.
const FRAME_PLAIN_BYTES: u64 = 4 << 20;
/// Blocks that are read as they are compressed at once: in bytes, and in number.
const READ_BYTES: u64 = 4 << 20;
const READ_BLOCKS: usize = 256;
/// Places of shared records that are remembered while a stream is written: some 60 MiB.
const PLACES_MAX: usize = 1 << 19;

/// Specification of a stream: a snapshot, its base and its form.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SendSpec {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Full name of the snapshot or bookmark that it is an increment upon; `None`: all of it.
    pub base: Option<String>,
    /// With the properties that are set on its file system and on itself, or that these received.
    pub properties: bool,
    /// With `properties`: only received ones, if there are any (`-b`).
    pub backup: bool,
    /// With the tags that hold it (`-h`).
    pub holds: bool,
    /// Blocks go as they are sealed, if they are; else as with `packed`. A raw dataset needs no key
    /// for that.
    pub raw: bool,
    /// Records that are compressed go so.
    pub packed: bool,
    /// Full name under which it goes, if that is not its own.
    pub called: Option<String>,
    /// Where a receive broke off: content before this inode and offset is there.
    pub resume: Option<(u64, u64)>,
}

/// Base of an increment.
#[derive(Clone)]
enum Upon {
    /// A snapshot of this dataset: the same one, or its origin's.
    Snapshot(DatasetId, Box<Pin>),
    /// Nothing of it is there any more.
    Mark(Bookmark),
}

impl Upon {
    fn guid(&self) -> u64 {
        match self {
            Upon::Snapshot(_, pin) => pin.row.guid,
            Upon::Mark(mark) => mark.guid,
        }
    }

    fn txg(&self) -> Txg {
        match self {
            Upon::Snapshot(_, pin) => pin.txg,
            Upon::Mark(mark) => mark.txg,
        }
    }
}

/// How much of a stream was written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Written {
    /// Bytes of it.
    pub bytes: u64,
    /// Blocks of content that it has: records of files, or sealed blocks.
    pub blocks: u64,
}

/// Hears of the snapshot under way, and how far the stream is.
pub type Progress<'a> = &'a mut dyn FnMut(&str, Written);

impl Streams {
    /// About how many bytes a stream would have. Fails like [`Streams::send`].
    pub fn send_estimate(&self, spec: &SendSpec) -> Result<u64> {
        let guess = self.check_send(spec)?;
        if spec.base.is_none() {
            return Ok(guess);
        }
        let (id, pin) = self.datasets.pin(&spec.snapshot)?;
        if !self.is_listed(spec, id, self.upon(spec, id, &pin)?.as_ref()) {
            self.datasets.open_head(id)?;
        }
        let notes = self.notes_to_send(spec, id, pin.txg)?;
        let mut places = Places::new();
        let is_sharing = self.repeats(spec, id) && self.core.references.any_shared();
        let repeats = is_sharing.then_some((1, &mut places));
        let mut nowhere = std::io::sink();
        let mut writer = StreamWriter::new(&mut nowhere, StreamHeader::default())?;
        let content = self.send_one(spec, (&notes, repeats), &mut writer, &mut |_, _| (), true)?;
        Ok(writer.bytes + content)
    }

    /// Refuses what [`Streams::send`] refuses. Gives a guess of how many bytes it would be, which
    /// costs nothing and may be wrong by far for increments.
    pub fn check_send(&self, spec: &SendSpec) -> Result<u64> {
        let (id, pin) = self.datasets.pin(&spec.snapshot)?;
        match self.upon(spec, id, &pin)? {
            None if self.datasets.is_raw(id) && !spec.raw => {
                Ok(roots_of(self.datasets.open_stored(id, &pin.row.name)?.dataset())?.logical)
            }
            // As on devices, where an end is padded.
            None if self.goes_packed(spec, id) => Ok(pin.row.data.min(pin.row.logical)),
            None => Ok(pin.row.logical),
            Some(Upon::Snapshot(_, base)) => {
                let _figures = self.datasets.figures.read();
                let table = self.datasets.table.read();
                let missing = || Error::NoSuchSnapshot { name: spec.snapshot.clone() };
                table.get(id).ok_or_else(missing)?;
                self.datasets.written_since(&table, id, base.txg, Some(pin.txg))
            }
            Some(Upon::Mark(_)) if self.datasets.is_raw(id) && !spec.raw => {
                Err(Error::RawBookmark { name: spec.snapshot.clone() })
            }
            // A better estimate would need a look at all blocks listed.
            Some(Upon::Mark(_)) if self.datasets.is_raw(id) => Ok(pin.row.data),
            Some(upon @ Upon::Mark(_)) if spec.raw && self.is_sealed(id) => {
                match self.is_listed(spec, id, Some(&upon)) {
                    true => Ok(pin.row.data),
                    false => Err(Error::RawBookmark { name: spec.snapshot.clone() }),
                }
            }
            Some(Upon::Mark(mark)) => {
                self.datasets.open_head(id)?;
                let blocks = self.blocks_for(id, spec)?;
                let (mut bytes, packed) = (0, self.goes_packed(spec, id));
                crate::datasets::newer::visit(&blocks, pin.row.extents, mark.txg, |pointer| {
                    let size = if packed { pointer.psize } else { pointer.lsize };
                    bytes += if pointer.kind == BlockKind::Data { u64::from(size) } else { 0 };
                })?;
                Ok(bytes)
            }
        }
    }

    /// Base of a snapshot's increment.
    fn upon(&self, spec: &SendSpec, id: DatasetId, pin: &Pin) -> Result<Option<Upon>> {
        let Some(base) = &spec.base else { return Ok(None) };
        let (other, upon) = match base.contains('#') {
            true => {
                let (other, mark) = self.datasets.table.read().find_bookmark(base)?;
                (other, Upon::Mark(mark))
            }
            false => {
                let (other, pin) = self.datasets.pin(base)?;
                (other, Upon::Snapshot(other, Box::new(pin)))
            }
        };
        let table = self.datasets.table.read();
        let elsewhere = id != other;
        if elsewhere && !table.begins_after(id, other, upon.txg()) || upon.txg() >= pin.txg {
            return Err(Error::NotEarlier { name: spec.snapshot.clone(), base: base.clone() });
        }
        Ok(Some(upon))
    }

    /// Content goes as packed records. Blocks that go sealed keep the compression that they have;
    /// raw datasets that go opened are opened as a whole.
    fn goes_packed(&self, spec: &SendSpec, id: DatasetId) -> bool {
        (spec.packed || spec.raw) && !(self.datasets.is_raw(id) || spec.raw && self.is_sealed(id))
    }

    /// Blocks go as they are sealed.
    fn goes_sealed(&self, spec: &SendSpec, id: DatasetId) -> bool {
        spec.raw && (self.datasets.is_raw(id) || self.is_sealed(id))
    }

    /// The blocks are found in the manifest: the key is not loaded, or nothing is left of the base
    /// that could be walked.
    fn is_listed(&self, spec: &SendSpec, id: DatasetId, upon: Option<&Upon>) -> bool {
        let table = self.datasets.table.read();
        let Some(entry) = table.get(id).filter(|entry| !entry.row.raw && !entry.writers.is_empty()) else {
            return false;
        };
        spec.raw && (entry.keys.is_none() || matches!(upon, Some(Upon::Mark(_))))
    }

    /// Content that goes twice is named the second time. Received sealed blocks are of another
    /// pool, and blocks that go sealed go once: neither is named.
    fn repeats(&self, spec: &SendSpec, id: DatasetId) -> bool {
        !(self.datasets.is_raw(id) || spec.raw && self.is_sealed(id))
    }

    /// The base is a snapshot of what it is a clone of.
    fn is_elsewhere(&self, spec: &SendSpec, id: DatasetId) -> bool {
        let of = spec.base.as_deref().and_then(|base| base.split(['@', '#']).next());
        of.is_some_and(|of| self.datasets.table.read().find(of).ok() != Some(id))
    }

    fn blocks_for(&self, id: DatasetId, spec: &SendSpec) -> Result<Arc<DatasetBlocks>> {
        let table = self.datasets.table.read();
        let open = table.get(id).and_then(|entry| entry.open.as_ref());
        let missing = || Error::NoSuchSnapshot { name: spec.snapshot.clone() };
        Ok(Arc::clone(&open.ok_or_else(missing)?.blocks))
    }

    /// Writes snapshots as one stream, each with what it has beyond its base. Gives the bytes of
    /// the stream.
    pub fn send(&self, specs: &[SendSpec], out: &mut dyn Write, progress: Progress<'_>) -> Result<u64> {
        self.send_members(specs, &[], out, progress)
    }

    /// Sends a tree upon its earlier snapshots. The stream lists the file systems and snapshots at
    /// and below `top`, so that the receiver can follow renames and destructions. Datasets at or
    /// below the names `left_out` are listed and not sent.
    pub fn send_tree(
        &self,
        (top, left_out): (&str, &[String]),
        specs: &[SendSpec],
        out: &mut dyn Write,
        progress: Progress<'_>,
    ) -> Result<u64> {
        let members = self.members_of(top, left_out)?;
        self.send_members(specs, &members, out, progress)
    }

    /// Writes snapshots one after the other as one stream. Gives its bytes.
    fn send_members(
        &self,
        specs: &[SendSpec],
        members: &[StreamMember],
        out: &mut dyn Write,
        progress: Progress<'_>,
    ) -> Result<u64> {
        // A snapshot that cannot be sent fails here, before the first byte.
        let (mut header, mut noted) = (StreamHeader::default(), Vec::with_capacity(specs.len()));
        header.members = !members.is_empty();
        for spec in specs {
            self.check_send(spec)?;
            let (id, pin) = self.datasets.pin(&spec.snapshot)?;
            let upon = self.upon(spec, id, &pin)?;
            if !self.is_listed(spec, id, upon.as_ref()) {
                self.datasets.open_head(id)?;
            }
            header.kept |= self.goes_sealed(spec, id) && matches!(upon, Some(Upon::Mark(_)));
            if !spec.raw {
                self.datasets.open_snapshot(id, &pin.row.name)?;
            }
            header.packed |= self.goes_packed(spec, id);
            header.repeats |= self.repeats(spec, id) && self.core.references.any_shared();
            let notes = self.notes_to_send(spec, id, pin.txg)?;
            header.notes |= !notes.is_empty();
            noted.push(notes);
        }
        let mut places = Places::new();
        let mut writer = StreamWriter::new(out, header)?;
        for member in members {
            writer.frame(FrameKind::Member, &member.encode())?;
        }
        for (number, (spec, notes)) in (1..).zip(specs.iter().zip(&noted)) {
            let repeats = header.repeats.then_some((number, &mut places));
            self.send_one(spec, (notes, repeats), &mut writer, progress, false)?;
        }
        writer.close()
    }

    /// Sends a snapshot; or weighs what would be sent, and leaves content out. Gives the bytes that
    /// were left out.
    fn send_one(
        &self,
        spec: &SendSpec,
        (notes, repeats): (&StreamNotes, Option<(u64, &mut Places)>),
        writer: &mut StreamWriter<'_>,
        progress: Progress<'_>,
        weighs: bool,
    ) -> Result<u64> {
        let (id, pin) = self.datasets.pin(&spec.snapshot)?;
        let base = self.upon(spec, id, &pin)?;
        let bytes = if weighs { 0 } else { self.check_send(spec)? };
        let raw = self.goes_sealed(spec, id);
        let packed = self.goes_packed(spec, id);
        let listed = self.is_listed(spec, id, base.as_ref());
        // In use: its key stays loaded.
        let wants_key = !(raw && self.datasets.is_raw(id) || listed);
        let handle = if wants_key { Some(self.datasets.use_dataset(id)?) } else { None };
        let opened = match listed {
            true => None,
            false => {
                let stored = self.datasets.open_stored(id, &pin.row.name)?;
                Some((Arc::clone(stored.dataset()), self.blocks_for(id, spec)?))
            }
        };
        let (opened, pin, base) = match self.datasets.is_raw(id) && !raw {
            true => {
                let (target, blocks, pin, base) = self.shown(id, pin, base)?;
                (Some((target, blocks)), pin, base)
            }
            false => (opened, pin, base),
        };
        let properties = match spec.properties {
            true => self.datasets.props_to_send(id, spec.backup),
            false => Default::default(),
        };
        let first = writer.frames;
        let position = spec.resume.map_or((InodeId(0), 0), |(inode, offset)| (InodeId(inode), offset));
        let begin = StreamBegin {
            guid: pin.row.guid,
            base: base.as_ref().map_or(0, Upon::guid),
            created_ns: pin.row.created_ns,
            bytes,
            hash_seed: match &opened {
                Some((target, _)) => *target.hash_seed(),
                None => self.hash_seed_of(id),
            },
            position,
            resumed: spec.resume.is_some(),
            raw,
            with_properties: spec.properties,
            volume: self.datasets.is_volume(id),
            clone: self.is_elsewhere(spec, id),
            packed,
            name: spec.called.as_ref().unwrap_or(&spec.snapshot).clone(),
            properties: properties.into_iter().collect(),
        };
        writer.frame(FrameKind::Begin, &begin.encode())?;
        if !notes.is_empty() {
            writer.frame(FrameKind::Notes, &notes.encode())?;
        }
        if raw {
            let mut sender = RawSender::new(writer, progress, &spec.snapshot, position);
            sender.weighed = weighs.then_some(0);
            self.send_raw(id, &mut sender, opened.as_ref().map(|opened| &*opened.0), &pin, base.as_ref())?;
            let weighed = sender.weighed.unwrap_or_default();
            let frames = writer.frames - first + 1;
            writer.frame(FrameKind::End, &StreamEnd { guid: pin.row.guid, frames }.encode())?;
            return Ok(weighed);
        }
        let (target, blocks) = opened.expect("only what is raw goes unopened");
        let mut sender = Sender {
            writer,
            progress,
            name: &spec.snapshot,
            body: Vec::new(),
            kind: FrameKind::Names,
            plain: 0,
            packed,
            waiting: Vec::new(),
            waiting_bytes: 0,
            buffer: Vec::new(),
            ahead: SendAhead::new(&blocks, !weighs),
            file: None,
            target: &target,
            blocks: &blocks,
            is_increment: base.is_some(),
            is_marked: matches!(base, Some(Upon::Mark(_))),
            position,
            number: repeats.as_ref().map_or(0, |(number, _)| *number),
            places: match repeats {
                Some((_, places)) if self.repeats(spec, id) => Some((&*self.core.references, places)),
                _ => None,
            },
            repeat: None,
            weighed: weighs.then_some(0),
        };
        let trees = |root: fn(&SnapshotRow) -> Option<BlockPointer>| {
            let base = match &base {
                Some(Upon::Snapshot(_, base)) => Some(Base { root: root(&base.row), txg: base.txg }),
                _ => None,
            };
            (base, root(&pin.row))
        };
        match &base {
            Some(Upon::Mark(mark)) => sender.send_since(mark.txg, &pin.row)?,
            _ => sender.send(trees(|row| row.names), trees(|row| row.extents), &pin.row)?,
        }
        let weighed = sender.weighed.unwrap_or_default();
        drop(sender);
        let frames = writer.frames - first + 1;
        writer.frame(FrameKind::End, &StreamEnd { guid: pin.row.guid, frames }.encode())?;
        drop(handle);
        Ok(weighed)
    }
}

/// An opened raw snapshot: its content, its blocks, and itself and its base as they are in the
/// source.
type Shown = (Arc<Dataset>, Arc<DatasetBlocks>, Pin, Option<Upon>);

impl Streams {
    fn is_sealed(&self, id: DatasetId) -> bool {
        self.datasets.table.read().get(id).is_some_and(crate::datasets::table::Entry::is_encrypted)
    }

    /// A raw snapshot as its files are, with the roots that these have, and what it is an increment
    /// upon.
    fn shown(&self, id: DatasetId, mut pin: Pin, base: Option<Upon>) -> Result<Shown> {
        let mut carriers = vec![Arc::clone(self.datasets.open_stored(id, &pin.row.name)?.dataset())];
        let show = |pin: &mut Pin, roots: &RawRoots| {
            (pin.row.names, pin.row.extents, pin.txg) = (roots.names, roots.extents, roots.txg);
            (pin.row.files, pin.row.next_inode) = (roots.files, roots.next_inode);
        };
        let base = match base {
            Some(Upon::Snapshot(of, mut base)) => {
                let carrier = Arc::clone(self.datasets.open_stored(of, &base.row.name)?.dataset());
                show(&mut base, &roots_of(&carrier)?);
                carriers.push(carrier);
                Some(Upon::Snapshot(of, base))
            }
            Some(Upon::Mark(_)) => return Err(Error::RawBookmark { name: self.core.dataset_name(id) }),
            None => None,
        };
        let view = self.datasets.raw_view(id, carriers)?;
        show(&mut pin, &view.roots);
        Ok((view.dataset, view.blocks, pin, base))
    }

    fn hash_seed_of(&self, id: DatasetId) -> [u8; 16] {
        self.datasets.table.read().get(id).map(|entry| entry.row.hash_seed).unwrap_or_default()
    }

    fn send_raw(
        &self,
        id: DatasetId,
        sender: &mut RawSender<'_, '_>,
        target: Option<&Dataset>,
        pin: &Pin,
        upon: Option<&Upon>,
    ) -> Result<()> {
        let missing = || Error::NoSuchSnapshot { name: sender.name.to_owned() };
        let base = match upon {
            Some(Upon::Snapshot(_, base)) => Some((&base.row, base.txg)),
            _ => None,
        };
        let mark = match upon {
            Some(Upon::Mark(mark)) => Some(mark.txg),
            _ => None,
        };
        if self.datasets.is_raw(id) {
            let target = target.ok_or_else(missing)?;
            let roots = roots_of(target)?;
            let blocks = {
                let table = self.datasets.table.read();
                let open = table.get(id).and_then(|entry| entry.open.as_ref());
                Arc::clone(&open.ok_or_else(missing)?.blocks)
            };
            let upon = base.map(|(row, txg)| Base { root: row.extents, txg });
            let salts = salts_of(target)?;
            return sender.send_stored(&roots, target, &blocks, (upon, mark, pin.row.extents), &salts);
        }
        let (roots, locked) = {
            let table = self.datasets.table.read();
            let entry = table.get(id).ok_or_else(missing)?;
            let row = &entry.row;
            let roots = RawRoots {
                pool: self.core.identity.guid,
                dataset: id,
                family: row.family(),
                txg: pin.txg,
                names: pin.row.names,
                extents: pin.row.extents,
                used: pin.row.used,
                data: pin.row.data,
                logical: pin.row.logical,
                files: pin.row.files,
                next_inode: pin.row.next_inode,
                hash_seed: row.hash_seed,
                wrapped: row.encryption.as_ref().ok_or_else(missing)?.wrapped.clone(),
            };
            let open = entry.open.as_ref().map(|open| Arc::clone(&open.blocks));
            (roots, open)
        };
        let shares = self.core.has_feature("block_sharing");
        let listed = self.datasets.manifest_of(id, pin.txg, (base.map(|(_, txg)| txg), mark));
        let (known, blocks) = match (target.and(locked), listed) {
            (Some(blocks), listed) if mark.is_none() => {
                let trees = RawTrees { blocks: Arc::clone(&blocks), target: &pin.row, base, shares };
                if let Some(listed) = listed.filter(|_| cfg!(debug_assertions)) {
                    self.check_listed(&trees, &listed)?;
                }
                (Known::Trees(trees), blocks)
            }
            (_, Some(listed)) => {
                // None of it is opened.
                let table = self.datasets.table.read();
                let row = table.get(id).ok_or_else(missing)?.row.clone();
                drop(table);
                (Known::Listed(&self.datasets, listed), self.datasets.sealed_blocks_of(&row))
            }
            (_, None) => return Err(Error::RawBookmark { name: sender.name.to_owned() }),
        };
        sender.send_sealed(&roots, &known, &blocks)
    }

    /// [manifest.4] In a debug build what the manifest says is held against the trees.
    fn check_listed(&self, trees: &RawTrees<'_>, listed: &Listed) -> Result<()> {
        let shared = self.core.references.any_shared();
        let (walked, told) = (trees.batch(None)?, self.datasets.listed_batch(listed, None)?);
        let only = |batch: &Batch, of: fn(&Named) -> bool| -> BTreeMap<_, _> {
            let blocks = batch.blocks.iter().filter(|(_, (_, named))| of(named));
            blocks.map(|(place, (pointer, _))| (*place, pointer.copies[0])).collect()
        };
        let new: fn(&Named) -> bool = |named| named.target && !named.base;
        let gone: fn(&Named) -> bool = |named| named.base && !named.target;
        let (sent, listed_sent) = (only(&walked, new), only(&told, new));
        let (lost, listed_lost) = (only(&walked, gone), only(&told, gone));
        // A running receive upon it lists its blocks as the target's own.
        let is_target = |entry: &crate::datasets::table::Entry| {
            entry.receiving.as_ref().is_some_and(|receiving| receiving.row.target == listed.id())
        };
        let receives = self.datasets.table.read().iter_all().any(|(_, entry)| is_target(entry));
        if receives || shared || self.core.references.any_shared() {
            let both = |named: &Named| named.target;
            assert!(
                sent.keys().all(|place| listed_sent.contains_key(place) || told.blocks.contains_key(place))
            );
            assert!(!listed_lost.keys().any(|place| walked.blocks.get(place).is_some_and(|(_, n)| both(n))));
        } else {
            assert_eq!(sent, listed_sent, "[manifest.4] what is sent of {}", listed);
            assert_eq!(lost, listed_lost, "[manifest.4] what is gone of {}", listed);
        }
        Ok(())
    }
}

type Trees = (Option<Base>, Option<BlockPointer>);

/// Where the stream has what shared blocks hold.
type Places = BTreeMap<Address, Place>;

/// A record that was sent whole.
struct Place {
    /// Snapshot of the stream that it is of, from 1.
    snapshot: u64,
    inode: InodeId,
    offset: u64,
    /// Bytes that were sent of it.
    length: u64,
    /// Hash of its block: an address may be used again while a stream is written.
    hash: [u8; 32],
}

/// A record that goes as its block holds it.
struct Waiting {
    inode: InodeId,
    offset: u64,
    pointer: BlockPointer,
}

/// One snapshot on its way.
struct Sender<'s, 'w> {
    writer: &'s mut StreamWriter<'w>,
    progress: Progress<'s>,
    name: &'s str,
    /// Records of the frame under way.
    body: Vec<u8>,
    kind: FrameKind,
    /// Bytes of its packed records when decompressed.
    plain: u64,
    /// Content goes as packed records.
    packed: bool,
    /// Records that go as their blocks hold them, in order, and what these hold.
    waiting: Vec<Waiting>,
    waiting_bytes: u64,
    buffer: Vec<u8>,
    /// Records that go as files have them, in order, while they are read.
    ahead: SendAhead<'s>,
    /// File that was last asked for.
    file: Option<Arc<Inode>>,
    target: &'s Dataset,
    blocks: &'s DatasetBlocks,
    is_increment: bool,
    /// Nothing of the base is there any more.
    is_marked: bool,
    position: (InodeId, u64),
    /// Which snapshot of the stream it is, from 1.
    number: u64,
    /// Where shared blocks were sent before; `None`: nothing is shared.
    places: Option<(&'s References, &'s mut Places)>,
    /// The last repeat, to which the next one may belong.
    repeat: Option<Repeat>,
    /// Bytes of content that were left out; `None`: it goes.
    weighed: Option<u64>,
}

impl<'s> Sender<'s, '_> {
    fn send(&mut self, names: Trees, extents: Trees, row: &SnapshotRow) -> Result<()> {
        let blocks = self.blocks;
        if self.position.0.0 == 0 {
            differences(blocks, names.0, names.1, &mut |key, old, new| self.name_item(key, old, new))?;
            if self.is_increment {
                // Cut ranges whose extents are still there have items in front of the extents.
                let first = ExtentsKey::Extent { inode: InodeId(1), offset: 0 }.encode();
                differences_before(Some(&first), blocks, extents, &mut |key, _, new| {
                    self.cut_item(key, new)
                })?;
            }
            self.push(&LogRecord::Counters { files: row.files, next_inode: row.next_inode })?;
            self.flush()?;
        }
        differences(blocks, extents.0, extents.1, &mut |key, old, new| self.extent_item(key, old, new))?;
        self.flush()
    }

    /// The same where nothing of the base is there any more.
    fn send_since(&mut self, since: Txg, row: &SnapshotRow) -> Result<()> {
        let blocks = self.blocks;
        if self.position.0.0 == 0 {
            spans(blocks, row.names, since, &mut |found| match found {
                Found::Span { from, to, keys } => self.span(false, from, to, keys),
                Found::Item { key, value } => self.name_item(key, None, Some(value)),
            })?;
            let first = ExtentsKey::Extent { inode: InodeId(1), offset: 0 }.encode();
            let all = (None, row.extents);
            differences_before(Some(&first), blocks, all, &mut |key, _, new| self.cut_item(key, new))?;
            self.push(&LogRecord::Counters { files: row.files, next_inode: row.next_inode })?;
            self.flush()?;
        }
        let first = ExtentsKey::Extent { inode: InodeId(1), offset: 0 }.encode();
        spans(blocks, row.extents, since, &mut |found| match found {
            Found::Span { from, to, keys } => {
                let keys: Vec<Vec<u8>> = keys.iter().filter(|key| **key >= first).cloned().collect();
                match to.is_empty() || to > &first[..] {
                    true => self.span(true, from.max(&first[..]), to, &keys),
                    false => Ok(()),
                }
            }
            Found::Item { key, value } => {
                let extent = match ExtentsKey::decode(key) {
                    Ok(ExtentsKey::Extent { .. }) => {
                        Extent::decode(value).map_err(|error| self.bad(error))?
                    }
                    _ => return Ok(()),
                };
                // A block that was cut short may have been cut later.
                let is_old =
                    |length: u32, pointer: &BlockPointer| pointer.birth <= since && pointer.lsize == length;
                match extent {
                    Extent::Block { length, pointer } if is_old(length, &pointer) => Ok(()),
                    _ => self.extent_item(key, None, Some(value)),
                }
            }
        })?;
        self.flush()
    }

    fn span(&mut self, extents: bool, from: &[u8], to: &[u8], keys: &[Vec<u8>]) -> Result<()> {
        // In their order: what a span says is gone may come again.
        self.flush()?;
        let span = StreamSpan { extents, from: from.to_vec(), to: to.to_vec(), keys: keys.to_vec() };
        self.writer.frame(FrameKind::Span, &span.encode())
    }

    /// A record of names.
    fn push(&mut self, record: &LogRecord<'_>) -> Result<()> {
        self.push_to(FrameKind::Names, record)
    }

    fn push_to(&mut self, kind: FrameKind, record: &LogRecord<'_>) -> Result<()> {
        self.send_waiting()?;
        self.begin(kind)?;
        record.encode(&mut self.body);
        if self.body.len() >= FRAME_BYTES { self.write_frame() } else { Ok(()) }
    }

    /// Begins a frame of this kind for the records that follow, unless it is open.
    fn begin(&mut self, kind: FrameKind) -> Result<()> {
        if kind != FrameKind::Repeats {
            self.send_repeat()?;
        }
        if self.kind != kind {
            self.write_frame()?;
            self.kind = kind;
        }
        Ok(())
    }

    /// Content in this form.
    fn push_packed(&mut self, record: PackedRecord, bytes: &[u8]) -> Result<()> {
        self.begin(FrameKind::Packed)?;
        let plain = u64::from(record.lsize);
        if self.plain + plain > FRAME_PLAIN_BYTES {
            self.write_frame()?;
        }
        self.plain += plain;
        self.body.extend_from_slice(&record.encode());
        self.body.extend_from_slice(bytes);
        if self.body.len() >= FRAME_BYTES { self.write_frame() } else { Ok(()) }
    }

    /// Records that wait go: those that are being read, or those that are read as their blocks hold
    /// them. Of one kind there are none.
    fn send_waiting(&mut self) -> Result<()> {
        self.send_ahead(true)?;
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        if let Some(weighed) = &mut self.weighed {
            *weighed += waiting.iter().map(|record| u64::from(record.pointer.psize)).sum::<u64>();
            for _ in &waiting {
                self.begin(FrameKind::Packed)?;
                self.body.extend_from_slice(&[0; PackedRecord::SIZE]);
            }
            return Ok(());
        }
        let pointers: Vec<BlockPointer> = waiting.iter().map(|record| record.pointer).collect();
        for (Waiting { inode, offset, pointer }, bytes) in
            waiting.into_iter().zip(self.target.read_packed(&pointers))
        {
            let psize = bytes.as_ref().and_then(|bytes| u32::try_from(bytes.len()).ok());
            let lsize = pointer.lsize;
            let record = PackedRecord {
                inode,
                offset,
                lsize,
                psize: psize.unwrap_or(0),
                compression: pointer.compression,
            };
            match bytes {
                Some(bytes) if record.is_sized() => self.push_packed(record, &bytes)?,
                // A read as a file reports the error.
                _ => {
                    if let Some(file) = self.file(inode)? {
                        self.plain(&file, offset..offset + u64::from(lsize), None)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Content goes as it is, behind all that waits, once its blocks were read.
    fn plain_later(&mut self, file: Arc<Inode>, range: Range<u64>, extent: (u64, Extent)) -> Result<()> {
        if self.ahead.is_off() {
            self.send_waiting()?;
            return self.plain(&file, range, Some((extent.0, &extent.1)));
        }
        if !self.waiting.is_empty() {
            self.send_waiting()?;
        }
        if self.ahead.push((file, range, extent)) { self.send_ahead(false) } else { Ok(()) }
    }

    /// Records that are being read go: all, or the first ones.
    fn send_ahead(&mut self, all: bool) -> Result<()> {
        while let Some((file, range, (at, extent))) = self.ahead.next(all) {
            self.plain(&file, range, Some((at, &extent)))?;
        }
        Ok(())
    }

    /// Content as it is: from an extent, with the place where it begins, if it is known.
    fn plain(&mut self, file: &Inode, range: Range<u64>, extent: Option<(u64, &Extent)>) -> Result<()> {
        let (inode, extent) = (file.id, extent.filter(|_| self.target.is_as_stored(file, range.clone())));
        let mut at = range.start;
        while at < range.end {
            let count = usize::try_from(range.end - at).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            if let Some(weighed) = &mut self.weighed {
                *weighed += count as u64;
                self.head(inode, at)?;
                at += count as u64;
                continue;
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(count, 0);
            let piece = at..at + count as u64;
            let from_extent = |buffer: &mut [u8]| {
                self.target.read_extent(file, extent?, piece, buffer).ok().map(|()| count)
            };
            // A read as a file reports the error.
            let read = match from_extent(&mut buffer) {
                Some(read) => read,
                None => self.target.read(file, at, &mut buffer)?,
            };
            let bytes = &buffer[..read.max(1)];
            if self.packed {
                let size = u32::try_from(bytes.len()).expect("pieces are small");
                let compression = Compression::Off;
                let record = PackedRecord { inode, offset: at, lsize: size, psize: size, compression };
                self.push_packed(record, bytes)?;
            } else {
                self.begin(FrameKind::Content)?;
                LogRecord::Data { inode, offset: at, bytes }.encode(&mut self.body);
                if self.body.len() >= FRAME_BYTES {
                    self.write_frame()?;
                }
            }
            self.buffer = buffer;
            at += count as u64;
        }
        Ok(())
    }

    /// Writes the header for a piece of content that is left out.
    fn head(&mut self, inode: InodeId, offset: u64) -> Result<()> {
        if self.packed {
            self.begin(FrameKind::Packed)?;
            self.body.extend_from_slice(&[0; PackedRecord::SIZE]);
        } else {
            self.begin(FrameKind::Content)?;
            LogRecord::Data { inode, offset, bytes: &[] }.encode(&mut self.body);
        }
        if self.body.len() >= FRAME_BYTES { self.write_frame() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.send_waiting()?;
        self.send_repeat()?;
        self.write_frame()
    }

    /// Content that was sent before.
    fn push_repeat(&mut self, repeat: Repeat) -> Result<()> {
        if let Some(last) = self.repeat.as_mut().filter(|last| last.is_followed_by(&repeat)) {
            last.length += repeat.length;
            return Ok(());
        }
        self.send_waiting()?;
        self.send_repeat()?;
        self.repeat = Some(repeat);
        Ok(())
    }

    fn send_repeat(&mut self) -> Result<()> {
        let Some(repeat) = self.repeat.take() else { return Ok(()) };
        self.begin(FrameKind::Repeats)?;
        self.body.extend_from_slice(&repeat.encode());
        if self.body.len() >= FRAME_BYTES { self.write_frame() } else { Ok(()) }
    }

    /// The place in the stream that has a whole record already, if its block is shared; what is not
    /// there yet is noted as being here.
    fn place_of(&mut self, pointer: &BlockPointer, here: Place) -> Option<Repeat> {
        let (references, places) = self.places.as_mut()?;
        let address = pointer.copies[0];
        let known = places.get(&address);
        if let Some(place) = known.filter(|place| place.hash == here.hash) {
            let (inode, offset, length) = (here.inode, here.offset, here.length);
            let (snapshot, source, from) = (place.snapshot, place.inode, place.offset);
            let repeat = Repeat { inode, offset, length, snapshot, source, from };
            return (place.length >= length && length <= Repeat::LENGTH_MAX).then_some(repeat);
        }
        let has_room = known.is_some() || places.len() < PLACES_MAX;
        if has_room && references.is_shared(address) {
            places.insert(address, here);
        }
        None
    }

    fn write_frame(&mut self) -> Result<()> {
        if !self.body.is_empty() {
            self.writer.frame(self.kind, &self.body)?;
            self.body.clear();
            self.plain = 0;
            (self.progress)(self.name, self.writer.written());
        }
        Ok(())
    }

    fn bad(&self, reason: impl ToString) -> Error {
        Error::BadDataset { dataset: self.target.id(), reason: reason.to_string() }
    }

    fn name_item(&mut self, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) -> Result<()> {
        let NamesKey::Inode(inode) = NamesKey::decode(key).map_err(|error| self.bad(error))? else {
            return match new {
                Some(value) => self.push(&LogRecord::Set { key, value }),
                None => self.push(&LogRecord::Removed { key }),
            };
        };
        let Some(new) = new else { return self.push(&LogRecord::Gone { inode }) };
        let decode = |bytes: &[u8]| InodeRecord::decode(bytes).map_err(|error| self.bad(error));
        let record = decode(new)?;
        let before = old.map(decode).transpose()?;
        self.push(&LogRecord::Inode { inode, record })?;
        let is_shorter = self.is_marked || before.is_some_and(|before| before.size > record.size);
        if is_shorter && record.record_shift != 0 {
            self.push(&LogRecord::Cut { inode, start: record.size, end: u64::MAX, until: Txg(0) })?;
        }
        Ok(())
    }

    fn cut_item(&mut self, key: &[u8], new: Option<&[u8]>) -> Result<()> {
        let Ok(ExtentsKey::Cut { inode, start }) = ExtentsKey::decode(key) else { return Ok(()) };
        let end = new.and_then(|end| end.try_into().ok()).map(u64::from_le_bytes);
        let Some(end) = end.filter(|end| *end > start) else { return Ok(()) };
        if self.file(inode)?.is_none() {
            return Ok(());
        }
        self.push(&LogRecord::Cut { inode, start, end, until: Txg(0) })
    }

    /// The file, if it is one of the snapshot.
    fn file(&mut self, id: InodeId) -> Result<Option<Arc<Inode>>> {
        if let Some(file) = self.file.as_ref().filter(|file| file.id == id) {
            return Ok(Some(Arc::clone(file)));
        }
        self.file = None;
        match self.target.inode_to_read(id) {
            Ok(file) => {
                self.file = Some(Arc::clone(&file));
                Ok(Some(file))
            }
            Err(steadfast_dataset::Error::NoInode(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn extent_item(&mut self, key: &[u8], _: Option<&[u8]>, new: Option<&[u8]>) -> Result<()> {
        let Ok(ExtentsKey::Extent { inode, offset }) = ExtentsKey::decode(key) else { return Ok(()) };
        if inode < self.position.0 {
            return Ok(());
        }
        let Some(file) = self.file(inode)? else { return Ok(()) };
        let record = file.record();
        if offset >= record.size {
            // Content behind the end was cut with the inode.
            return Ok(());
        }
        let end = offset.saturating_add(1 << record.record_shift).min(record.size);
        // A record may have arrived in part, and what is cut of it goes by itself.
        let from = if inode == self.position.0 { offset.max(self.position.1) } else { offset };
        if from >= end {
            return Ok(());
        }
        let extent = new.map(Extent::decode).transpose().map_err(|error| self.bad(error))?;
        self.writer.blocks += u64::from(extent.is_some());
        let length = extent.as_ref().map_or(0, Extent::length);
        let data_end = offset.saturating_add(length.into()).min(end);
        let repeat = match &extent {
            Some(Extent::Block { pointer, .. })
                if self.places.is_some()
                    && from == offset
                    && from < data_end
                    && self.target.is_as_stored(&file, offset..data_end) =>
            {
                let (snapshot, length, hash) = (self.number, data_end - offset, pointer.hash);
                self.place_of(pointer, Place { snapshot, inode, offset, length, hash })
            }
            _ => None,
        };
        match (repeat, extent) {
            (Some(repeat), _) => self.push_repeat(repeat)?,
            (None, Some(Extent::Block { length, pointer }))
                if self.packed
                    && from == offset
                    && length == pointer.lsize
                    && data_end == offset + u64::from(length)
                    && self.target.is_as_stored(&file, offset..data_end) =>
            {
                self.send_ahead(true)?;
                self.waiting_bytes += u64::from(pointer.psize);
                self.waiting.push(Waiting { inode, offset, pointer });
                if self.waiting_bytes >= READ_BYTES || self.waiting.len() >= READ_BLOCKS {
                    self.send_waiting()?;
                }
            }
            (None, Some(of)) if from < data_end => self.plain_later(file, from..data_end, (offset, of))?,
            _ => {}
        }
        let cut = data_end.max(from);
        if self.is_increment && cut < end {
            let record = LogRecord::Cut { inode, start: cut, end, until: Txg(0) };
            self.push_to(FrameKind::Content, &record)?;
        }
        Ok(())
    }
}
