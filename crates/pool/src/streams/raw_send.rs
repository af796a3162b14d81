//! Sends raw: blocks as they are sealed, with the stamps that identify them everywhere.
//!
//! Blocks of a dataset of this pool are found by a walk of its trees while its key is loaded, and
//! by its manifest without it (`manifest.rs`). Blocks of a raw dataset are found in its files,
//! without a key. Either way blocks come in the order of their places in a raw dataset, so that a
//! position says what came before.
//!
//! ## Which blocks
//! A node is never older than its children, so the children of an older node are in the base too,
//! and neither tree is walked there. Of the blocks that the entered nodes of both trees name, the
//! target's alone is sent, and the base's alone is gone. A block that two leaves name is taken
//! once, and a block that an entered leaf of the target names is never gone. Where leaves may share
//! blocks, one that an entered leaf lost may be named by one that was not entered: there the whole
//! of the target is looked at before anything is said to be gone.
//!
//! ## Cost
//! Nodes that differ are read. Memory holds [`AT_ONCE`] blocks: if more differ, the walk is
//! repeated for the next ones.

use crate::datasets::batch::Batch;
use crate::datasets::batch::Place;
use crate::datasets::batch::place_of;
use crate::datasets::state::Datasets;
use crate::streams::send::Progress;
use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_blockio::ReadContext;
use steadfast_dataset::{Blocks, Dataset};
use steadfast_format::extent::Extent;
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::node::Node;
use steadfast_format::raw::{RawBlock, RawGone, RawKept, RawRoots, STRIDE, is_stamp};
use steadfast_format::stream::FrameKind;
use steadfast_format::{BlockKind, BlockPointer, InodeId, SnapshotRow, Stamp, Txg};

use crate::core::error::{Error, Result};
use crate::datasets::manifests::Listed;
use crate::datasets::traverse::{Base, Shared, differences, shared};
use crate::streams::stream_io::StreamWriter;
use steadfast_refs::blocks::DatasetBlocks;
use steadfast_refs::raw_source::file_of;
use steadfast_refs::raw_source::name_of;
use steadfast_refs::raw_source::stored;

/// Bytes of a frame, but for one that holds a single block.
const FRAME_BYTES: usize = 1 << 20;

/// Where it is known from which blocks a snapshot has.
pub(crate) enum Known<'a> {
    /// From its trees, with the key.
    Trees(RawTrees<'a>),
    /// From the manifest of its dataset.
    Listed(&'a Datasets, Listed),
}

impl Known<'_> {
    /// The blocks behind a place, as many as are taken at once.
    fn batch(&self, after: Option<Place>) -> Result<Batch> {
        match self {
            Known::Trees(trees) => trees.batch(after),
            Known::Listed(datasets, listed) => datasets.listed_batch(listed, after),
        }
    }

    /// How the stream describes the base: by its kept blocks, by its gone blocks, or there is none.
    fn upon(&self) -> Upon {
        let (is_marked, has_base) = match self {
            Known::Trees(trees) => (false, trees.base.is_some()),
            Known::Listed(_, listed) => (listed.mark().is_some(), listed.base().is_some()),
        };
        match (is_marked, has_base) {
            (true, _) => Upon::Kept,
            (_, true) => Upon::Gone,
            _ => Upon::Nothing,
        }
    }
}

/// How a raw increment describes its base.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Upon {
    Nothing,
    Gone,
    Kept,
}

/// Both trees of a snapshot, and of its base.
pub(crate) struct RawTrees<'a> {
    pub blocks: Arc<DatasetBlocks>,
    pub target: &'a SnapshotRow,
    pub base: Option<(&'a SnapshotRow, Txg)>,
    /// Several leaves may name one block.
    pub shares: bool,
}

impl RawTrees<'_> {
    /// The blocks behind a place, as many as are taken at once.
    pub fn batch(&self, after: Option<Place>) -> Result<Batch> {
        let mut batch = Batch::default();
        let since = self.base.map_or(Txg(0), |(_, txg)| txg);
        for (target, base) in [
            (self.target.names, self.base.and_then(|(row, _)| row.names)),
            (self.target.extents, self.base.and_then(|(row, _)| row.extents)),
        ] {
            walk(&self.blocks, target, |node| node.birth > since, &mut |pointer| {
                batch.add(after, pointer, true)
            })?;
            if self.base.is_some() {
                let shared: Shared = shared(&self.blocks, target, since)?;
                let differs = |node: &BlockPointer| !shared.contains(&node.copies[0]);
                walk(&self.blocks, base, differs, &mut |pointer| batch.add(after, pointer, false))?;
                if self.shares {
                    walk(&self.blocks, target, |_| true, &mut |pointer| {
                        if let Some((_, named)) = batch.blocks.get_mut(&place_of(&pointer.stamp)) {
                            named.target = true;
                        }
                    })?;
                }
            }
        }
        Ok(batch)
    }
}

/// Visits the blocks that a tree names in the nodes that are entered, and these nodes.
fn walk(
    blocks: &DatasetBlocks,
    root: Option<BlockPointer>,
    enters: impl Fn(&BlockPointer) -> bool,
    visit: &mut dyn FnMut(&BlockPointer),
) -> Result<()> {
    let bad = |reason: String| Error::BadDataset { dataset: blocks.dataset, reason };
    let mut open: Vec<BlockPointer> = root.into_iter().collect();
    while let Some(pointer) = open.pop() {
        if !enters(&pointer) {
            continue;
        }
        visit(&pointer);
        let bytes = blocks.read(&pointer).map_err(|error| bad(error.to_string()))?;
        let node = Node::decode(&bytes).map_err(|error| bad(error.to_string()))?;
        if node.level() != pointer.level {
            return Err(bad(format!("level {} where {} is expected", node.level(), pointer.level)));
        }
        for entry in node.entries() {
            if node.level() > 0 {
                open.push(BlockPointer::decode(entry.value).map_err(|error| bad(error.to_string()))?);
            } else if pointer.kind == BlockKind::Extents
                && let Ok(ExtentsKey::Extent { .. }) = ExtentsKey::decode(entry.key)
            {
                let extent = Extent::decode(entry.value).map_err(|error| bad(error.to_string()))?;
                extent.pointers().into_iter().for_each(&mut *visit);
            }
        }
    }
    Ok(())
}

/// Frames of one raw snapshot.
pub(crate) struct RawSender<'s, 'w> {
    pub writer: &'s mut StreamWriter<'w>,
    pub progress: Progress<'s>,
    pub name: &'s str,
    /// Blocks before this place have arrived already.
    pub position: Place,
    /// Bytes of blocks that were left out; `None`: they go.
    pub weighed: Option<u64>,
    body: Vec<u8>,
}

impl<'s, 'w> RawSender<'s, 'w> {
    pub fn new(
        writer: &'s mut StreamWriter<'w>,
        progress: Progress<'s>,
        name: &'s str,
        position: Place,
    ) -> RawSender<'s, 'w> {
        RawSender { writer, progress, name, position, weighed: None, body: Vec::new() }
    }

    fn roots(&mut self, roots: &RawRoots) -> Result<()> {
        self.writer.frame(FrameKind::RawRoots, &roots.encode())
    }

    fn flush(&mut self, kind: FrameKind) -> Result<()> {
        if !self.body.is_empty() {
            self.writer.frame(kind, &self.body)?;
            self.body.clear();
            (self.progress)(self.name, self.writer.written());
        }
        Ok(())
    }

    fn gone(&mut self, stamp: Stamp) -> Result<()> {
        self.body.extend_from_slice(&RawGone(stamp).encode());
        if self.body.len() >= FRAME_BYTES { self.flush(FrameKind::RawGone) } else { Ok(()) }
    }

    fn block(&mut self, header: &RawBlock, bytes: &[u8]) -> Result<()> {
        if self.body.len() + bytes.len() > FRAME_BYTES {
            self.flush(FrameKind::RawBlocks)?;
        }
        self.body.extend_from_slice(&header.encode());
        self.body.extend_from_slice(bytes);
        self.writer.blocks += 1;
        Ok(())
    }

    /// A block that a snapshot still has of what its base had. `range`: those before it.
    fn kept(&mut self, range: &mut Option<RawKept>, stamp: &Stamp) -> Result<()> {
        match range {
            Some(range)
                if range.first.salt == stamp.salt && range.first.counter + range.count == stamp.counter =>
            {
                range.count += 1;
                Ok(())
            }
            _ => self.end_kept(range.replace(RawKept { first: *stamp, count: 1 })),
        }
    }

    fn end_kept(&mut self, range: Option<RawKept>) -> Result<()> {
        if let Some(range) = range {
            self.body.extend_from_slice(&range.encode());
        }
        if self.body.len() >= FRAME_BYTES { self.flush(FrameKind::RawKept) } else { Ok(()) }
    }

    /// The last frame of what is kept, which may be the only one, and empty.
    fn close_kept(&mut self, range: Option<RawKept>) -> Result<()> {
        self.end_kept(range)?;
        self.writer.frame(FrameKind::RawKept, &self.body)?;
        self.body.clear();
        Ok(())
    }

    /// A snapshot of a dataset that was written here.
    pub fn send_sealed(&mut self, roots: &RawRoots, known: &Known<'_>, blocks: &DatasetBlocks) -> Result<()> {
        self.roots(roots)?;
        let first = known.batch(None)?;
        let whole = first.end.is_none();
        let mut batch = Some(first);
        let upon = known.upon();
        if upon != Upon::Nothing && self.position.0.0 == 0 {
            // All gone blocks come first. If they are not known from one look, blocks are looked
            // for once more.
            let mut some = batch.take();
            let mut range = None;
            while let Some(now) = some.take() {
                for (pointer, named) in now.blocks.values() {
                    match upon {
                        Upon::Gone if named.base && !named.target => self.gone(pointer.stamp)?,
                        Upon::Kept => self.kept(&mut range, &pointer.stamp)?,
                        _ => {}
                    }
                }
                match now.end {
                    Some(end) => some = Some(known.batch(before(end))?),
                    None if whole => batch = Some(now),
                    None => {}
                }
            }
            match upon {
                Upon::Kept => self.close_kept(range)?,
                _ => self.flush(FrameKind::RawGone)?,
            }
        }
        let mut next = match batch {
            Some(batch) => batch,
            None => known.batch(None)?,
        };
        loop {
            for (place, (pointer, named)) in &next.blocks {
                if named.target && !named.base && *place >= self.position {
                    self.sealed(blocks, pointer)?;
                }
            }
            match next.end {
                Some(end) => next = known.batch(before(end))?,
                None => return self.flush(FrameKind::RawBlocks),
            }
        }
    }

    fn sealed(&mut self, blocks: &DatasetBlocks, pointer: &BlockPointer) -> Result<()> {
        let bad = |reason: &str| Error::BadDataset { dataset: blocks.dataset, reason: reason.to_owned() };
        if !is_stamp(&pointer.stamp) {
            return Err(bad("a block of it is not sealed, or its counter is too great to be sent raw"));
        }
        if let Some(weighed) = &mut self.weighed {
            *weighed += RawBlock::SIZE as u64 + u64::from(pointer.psize);
            return Ok(());
        }
        let (dataset, family) = (blocks.dataset, blocks.family);
        let context = ReadContext { dataset, family, keys: blocks.keys.as_deref(), cache: false };
        let bytes = blocks.blockio.read_sealed(pointer, &context)?;
        self.block(&RawBlock { hash: pointer.hash, stamp: pointer.stamp, psize: pointer.psize }, &bytes)
    }

    /// A snapshot of a raw dataset: what its files hold, and a base's do not; or, of a base of
    /// which only the txg is known, what they hold that was not stored by then.
    pub fn send_stored(
        &mut self,
        roots: &RawRoots,
        carrier: &Dataset,
        blocks: &DatasetBlocks,
        (base, mark, root): (Option<Base>, Option<Txg>, Option<BlockPointer>),
        salts: &BTreeMap<InodeId, [u8; 16]>,
    ) -> Result<()> {
        self.roots(roots)?;
        let mut last: Option<Place> = None;
        if mark.is_some() && self.position.0.0 == 0 {
            let mut range = None;
            differences(blocks, None, root, &mut |key, _, _| {
                let Some((place, stamp)) = stamp_at(key, salts) else { return Ok(()) };
                if last.replace(place) == Some(place) { Ok(()) } else { self.kept(&mut range, &stamp) }
            })?;
            self.close_kept(range)?;
        }
        last = None;
        if base.is_some() && self.position.0.0 == 0 {
            differences(blocks, base, root, &mut |key, old, new| {
                let Some((place, stamp)) = stamp_at(key, salts) else { return Ok(()) };
                if old.is_some() && new.is_none() && last != Some(place) {
                    last = Some(place);
                    // A block of several records is gone with all of them, or is another's by now.
                    if self.weighed.is_some() || stored(carrier, &stamp)?.is_none() {
                        self.gone(stamp)?;
                    }
                }
                Ok(())
            })?;
            self.flush(FrameKind::RawGone)?;
        }
        last = None;
        let from = self.position;
        differences(blocks, base, root, &mut |key, _, new| {
            let Some((place, stamp)) = stamp_at(key, salts) else { return Ok(()) };
            let Some(new) = new.filter(|_| place >= from) else { return Ok(()) };
            if mark.is_some_and(|mark| is_stored_by(new, mark)) {
                return Ok(());
            }
            if let Some(weighed) = &mut self.weighed {
                // Its records are the block and what stands before it.
                *weighed += Extent::decode(new).map_or(0, |extent| u64::from(extent.length()));
                return Ok(());
            }
            if last == Some(place) {
                return Ok(());
            }
            last = Some(place);
            let absent = || Error::BadDataset {
                dataset: blocks.dataset,
                reason: format!("what lies at {} of its file {} is no sealed block", place.1, place.0),
            };
            let (header, bytes) = stored(carrier, &stamp)?.ok_or_else(absent)?;
            if steadfast_crypto::hash(&bytes) != header.hash {
                return Err(absent());
            }
            self.block(&header, &bytes)
        })?;
        self.flush(FrameKind::RawBlocks)
    }
}

/// True if all of an extent was stored by a txg. Content that lies in the tree itself has no known
/// birth.
fn is_stored_by(extent: &[u8], txg: Txg) -> bool {
    let Ok(extent) = Extent::decode(extent) else { return false };
    let pointers = extent.pointers();
    !pointers.is_empty() && pointers.iter().all(|pointer| pointer.birth <= txg)
}

/// The place before one, behind which a look goes on that left out what lies there and later.
fn before(place: Place) -> Option<Place> {
    Some((place.0, place.1 - 1))
}

/// The block whose record an item of a raw dataset's extents tree is.
fn stamp_at(key: &[u8], salts: &BTreeMap<InodeId, [u8; 16]>) -> Option<(Place, Stamp)> {
    let Ok(ExtentsKey::Extent { inode, offset }) = ExtentsKey::decode(key) else { return None };
    let stamp = Stamp { salt: *salts.get(&inode)?, counter: offset / STRIDE };
    is_stamp(&stamp).then(|| (place_of(&stamp), stamp))
}

/// The salts of a raw dataset, by the files of their blocks.
pub(crate) fn salts_of(carrier: &Dataset) -> Result<BTreeMap<InodeId, [u8; 16]>> {
    let mut salts = BTreeMap::new();
    for item in carrier.names().range::<&[u8]>(..) {
        let (key, value) = item?;
        let Ok(NamesKey::Entry { .. }) = NamesKey::decode(&key) else { continue };
        let Ok(entry) = steadfast_format::dirent::Dirent::decode(&value) else { continue };
        let salt: Option<Vec<u8>> = entry
            .name
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let Some(salt) = salt.and_then(|salt| <[u8; 16]>::try_from(salt).ok()) else { continue };
        if name_of(&salt) == entry.name && file_of(&salt) == entry.inode {
            salts.insert(entry.inode, salt);
        }
    }
    Ok(salts)
}
