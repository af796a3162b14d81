//! Sending raw: blocks as they are sealed, with what names them everywhere. `docs/decisions/0097-raw-datasets.md`.
//!
//! Of a dataset of this pool the blocks are found by a walk of its trees, which its key opens; of a raw one by what its files hold,
//! which wants no key. Either way blocks come in the order of their places in a raw dataset, so that a position says what came before.
//!
//! ## Which blocks
//! A node is never older than what it leads to, so what hangs below an older node is in the base too, and neither tree is walked there.
//! Of what the entered nodes of both trees name, the target's alone is sent, and the base's alone is gone. What two leaves name is taken
//! once, and a block that an entered leaf of the target names is never gone. Where leaves may share blocks, one that an entered leaf lost may
//! be named by one that was not entered: there the whole of the target is looked at before anything is said to be gone.
//!
//! ## Cost
//! Nodes that differ are read. Memory is for [`AT_ONCE`] blocks: where more differ, the walk is done again for the next ones.

use std::collections::BTreeMap;

use steadfast_blockio::ReadContext;
use steadfast_dataset::{Blocks, Dataset};
use steadfast_format::extent::Extent;
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::node::Node;
use steadfast_format::raw::{RawBlock, RawGone, RawRoots, STRIDE, is_stamp};
use steadfast_format::stream::FrameKind;
use steadfast_format::{BlockKind, BlockPointer, InodeId, SnapshotRow, Stamp, Txg};

use crate::blocks::DatasetBlocks;
use crate::differ::{Base, Shared, differences, shared};
use crate::error::{Error, Result};
use crate::raw::{file_of, name_of, offset_of, stored};
use crate::stream_io::StreamWriter;

/// Blocks that are put in order at once: some 100 MiB.
const AT_ONCE: usize = 1 << 19;
/// Bytes of a frame, but for one that holds a single block.
const FRAME_BYTES: usize = 1 << 20;

/// Where a block lies in a raw dataset: what they are ordered by.
type Place = (InodeId, u64);

fn place_of(stamp: &Stamp) -> Place {
    (file_of(&stamp.salt), offset_of(stamp))
}

/// Which of two trees names a block.
#[derive(Clone, Copy, Default)]
struct Named {
    target: bool,
    base: bool,
}

/// Blocks of two snapshots, of one range of places.
#[derive(Default)]
struct Batch {
    blocks: BTreeMap<Place, (BlockPointer, Named)>,
    /// From this place on blocks were left out.
    end: Option<Place>,
}

impl Batch {
    fn add(&mut self, after: Option<Place>, pointer: &BlockPointer, is_target: bool) {
        let place = place_of(&pointer.stamp);
        if after.is_some_and(|after| place <= after) || self.end.is_some_and(|end| place >= end) {
            return;
        }
        let (_, named) = self.blocks.entry(place).or_insert((*pointer, Named::default()));
        if is_target {
            named.target = true
        } else {
            named.base = true
        }
        if self.blocks.len() > AT_ONCE {
            self.end = self.blocks.pop_last().map(|(place, _)| place);
        }
    }
}

/// Both trees of a snapshot, and of its base.
pub(crate) struct RawTrees<'a> {
    pub blocks: &'a DatasetBlocks,
    pub target: &'a SnapshotRow,
    pub base: Option<(&'a SnapshotRow, Txg)>,
    /// Several leaves may name one block.
    pub shares: bool,
}

impl RawTrees<'_> {
    /// The blocks behind a place, as many as are taken at once.
    fn batch(&self, after: Option<Place>) -> Result<Batch> {
        let mut batch = Batch::default();
        let since = self.base.map_or(Txg(0), |(_, txg)| txg);
        for (target, base) in [
            (self.target.names, self.base.and_then(|(row, _)| row.names)),
            (self.target.extents, self.base.and_then(|(row, _)| row.extents)),
        ] {
            walk(self.blocks, target, |node| node.birth > since, &mut |pointer| {
                batch.add(after, pointer, true)
            })?;
            if self.base.is_some() {
                let shared: Shared = shared(self.blocks, target, since)?;
                let differs = |node: &BlockPointer| !shared.contains(&node.copies[0]);
                walk(self.blocks, base, differs, &mut |pointer| batch.add(after, pointer, false))?;
                if self.shares {
                    walk(self.blocks, target, |_| true, &mut |pointer| {
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
    pub progress: &'s mut dyn FnMut(&str, u64),
    pub name: &'s str,
    /// What lies before it has arrived already.
    pub position: Place,
    /// Bytes of blocks that were left out; `None`: they go.
    pub weighed: Option<u64>,
    body: Vec<u8>,
}

impl<'s, 'w> RawSender<'s, 'w> {
    pub fn new(
        writer: &'s mut StreamWriter<'w>,
        progress: &'s mut dyn FnMut(&str, u64),
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
            (self.progress)(self.name, self.writer.bytes);
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
        Ok(())
    }

    /// A snapshot of a dataset that was written here.
    pub fn send_sealed(&mut self, roots: &RawRoots, trees: &RawTrees<'_>) -> Result<()> {
        self.roots(roots)?;
        let first = trees.batch(None)?;
        let whole = first.end.is_none();
        let mut batch = Some(first);
        if trees.base.is_some() && self.position.0.0 == 0 {
            // All that is gone comes first; where that is not known from one walk, blocks are looked for once more.
            let mut some = batch.take();
            while let Some(now) = some.take() {
                for (pointer, named) in now.blocks.values() {
                    if named.base && !named.target {
                        self.gone(pointer.stamp)?;
                    }
                }
                match now.end {
                    Some(_) => some = Some(trees.batch(now.blocks.keys().next_back().copied())?),
                    None if whole => batch = Some(now),
                    None => {}
                }
            }
            self.flush(FrameKind::RawGone)?;
        }
        let mut next = match batch {
            Some(batch) => batch,
            None => trees.batch(None)?,
        };
        loop {
            for (place, (pointer, named)) in &next.blocks {
                if named.target && !named.base && *place >= self.position {
                    self.sealed(trees.blocks, pointer)?;
                }
            }
            match next.end {
                Some(_) => next = trees.batch(next.blocks.keys().next_back().copied())?,
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

    /// A snapshot of a raw dataset: what its files hold, and a base's do not.
    pub fn send_stored(
        &mut self,
        roots: &RawRoots,
        carrier: &Dataset,
        blocks: &DatasetBlocks,
        extents: (Option<Base>, Option<BlockPointer>),
        salts: &BTreeMap<InodeId, [u8; 16]>,
    ) -> Result<()> {
        self.roots(roots)?;
        let (base, root) = extents;
        let mut last: Option<Place> = None;
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
