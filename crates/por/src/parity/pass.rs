//! A pass: brings all tiles to the end of the journal, a few at a time, and then moves the tail.
//!
//! Between two steps records may come: they lie behind the pass's end and belong to the next one.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_crypto::hash;
use steadfast_format::parity::{ParityManifest, ParitySegment, ParityTile, RecordKind, check_of};

use super::contents::{Stored, WindowCell};
use super::device::{ParityDevice, UNIT, flush, padded, write};
use super::error::{Error, Result};
use super::geometry::{BLOCK, Geometry};

/// Outcome of a pass.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pass {
    /// Number for the anchor's record.
    pub generation: u64,
    /// Root of tiles and manifest, for the anchor's record.
    pub root: [u8; 32],
    /// Segments that left the code: once generation and root are anchored, they may be deleted.
    pub released: Vec<ParitySegment>,
}

/// State of a pass that is under way.
#[derive(Debug)]
pub(crate) struct Passing {
    /// End of the journal when it began, and the check of the record before it.
    end: u64,
    check: [u8; 32],
    /// Segments at that end.
    segments: BTreeSet<ParitySegment>,
    /// Cells of the window up to that end, by tile.
    cells: BTreeMap<u32, Vec<WindowCell>>,
    /// Tiles that are behind; the next one is the last of the list.
    behind: Vec<u32>,
}

impl ParityDevice {
    /// Brings all tiles to the end of the journal and frees it.
    ///
    /// # Errors
    /// A tile or the journal is damaged, or the medium fails.
    pub fn pass(&mut self) -> Result<Pass> {
        loop {
            if let Some(pass) = self.pass_step()? {
                return Ok(pass);
            }
        }
    }

    /// A step of a pass, which begins one if none is under way: some tiles, or its end.
    ///
    /// # Errors
    /// A tile or the journal is damaged, or the medium fails: the pass begins anew then. A recovery
    /// reads: it goes on later.
    pub fn pass_step(&mut self) -> Result<Option<Pass>> {
        if self.is_pinned() {
            return Err(Error::Recovering);
        }
        let mut passing = self.passing.take().unwrap_or_else(|| self.begin_pass());
        let outcome = self.guarded(|device| {
            if passing.behind.is_empty() {
                return device.end_pass(&passing).map(Some);
            }
            device.pass_tiles(&mut passing).map(|()| None)
        });
        if matches!(outcome, Ok(None)) {
            self.passing = Some(passing);
        }
        outcome
    }

    /// True if a pass has begun and is not over.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        self.passing.is_some()
    }

    fn begin_pass(&self) -> Passing {
        let end = self.end;
        let is_behind = |tile: &u32| self.now.tiles[*tile as usize].cut < end;
        Passing {
            end,
            check: self.last_check,
            segments: self.now.segments.clone(),
            cells: self.now.window_cells(),
            behind: (0..self.now.geometry.tiles).rev().filter(is_behind).collect(),
        }
    }

    fn pass_tiles(&mut self, passing: &mut Passing) -> Result<()> {
        // Records must be durable before a tile that includes them is, or a crash would leave a
        // tile with cells that no record names.
        flush(&*self.now.medium)?;
        let rest = passing.behind.len().saturating_sub(self.now.geometry.spare().max(1) as usize);
        let group = passing.behind.split_off(rest);
        let cut = passing.end;
        let mut written = Vec::with_capacity(group.len());
        for tile in group.into_iter().rev() {
            let cells = passing.cells.get(&tile).map_or(&[][..], Vec::as_slice);
            let bytes = self.now.tile_with(tile, cells)?.to_bytes();
            let slot = self.free.pop().expect("as many spare slots as tiles of a group");
            write(&*self.now.medium, self.now.geometry.slot(slot) + BLOCK, &bytes)?;
            written.push((tile, slot, hash(&bytes)));
        }
        flush(&*self.now.medium)?;
        for &(tile, slot, of_tile) in &written {
            let generation = self.now.tiles[tile as usize].generation + 1;
            let (pool, map) = (self.header.pool, self.header.map);
            let head = ParityTile { tile, pool, map, generation, cut, hash: of_tile }.encode(hash);
            write(&*self.now.medium, self.now.geometry.slot(slot), &padded(head))?;
        }
        flush(&*self.now.medium)?;
        for (tile, slot, of_tile) in written {
            let stored = &mut self.now.tiles[tile as usize];
            self.free.extend(stored.slot);
            *stored = Stored { slot: Some(slot), generation: stored.generation + 1, cut, hash: of_tile };
        }
        Ok(())
    }

    fn end_pass(&mut self, passing: &Passing) -> Result<Pass> {
        let before = |position: u64| position < passing.end;
        for entry in self.now.window.clone() {
            let is_new = entry.kind == RecordKind::Add && passing.segments.contains(&entry.segment);
            if before(entry.position) && is_new && self.now.tags.units(&entry.segment).is_none() {
                let tags = self.now.stored_tags(entry.segment)?;
                let mut bytes: Vec<u8> = tags.iter().flat_map(|tag| tag.0).collect();
                bytes.resize(usize::from(entry.segment.units()) * UNIT, 0);
                for (unit, bytes) in
                    self.now.tags.place(entry.segment).to_vec().iter().zip(bytes.chunks(UNIT))
                {
                    write(&*self.now.medium, self.now.geometry.tags(*unit), bytes)?;
                }
            }
        }
        self.write_manifest_and_header(passing)?;
        self.now.tags.keep(&passing.segments);
        let generation = self.header.sequence;
        let removed = self.now.window.iter().filter(|entry| entry.kind == RecordKind::Remove);
        let removed = removed.filter(|entry| before(entry.position));
        let released: Vec<ParitySegment> = removed.map(|entry| entry.segment).collect();
        self.released.extend(released.iter().map(|segment| (*segment, generation)));
        self.shorten_window(passing.end);
        self.root = self.stored_root();
        Ok(Pass { generation, root: self.root, released })
    }

    fn write_manifest_and_header(&mut self, passing: &Passing) -> Result<()> {
        let segments = passing.segments.iter().copied().collect();
        let units = self.now.tags.units_of(&passing.segments);
        let manifest = ParityManifest { pool: self.header.pool, cut: passing.end, segments, units };
        let manifest = manifest.encode(hash);
        let mut header = self.header.clone();
        header.sequence += 1;
        header.manifest_area = 3 - header.manifest_area;
        (header.manifest_len, header.manifest_check) = (manifest.len() as u64, check_of(&manifest));
        (header.journal_tail, header.journal_prev) = (passing.end, passing.check);
        write(&*self.now.medium, self.now.geometry.manifest(header.manifest_area), &manifest)?;
        flush(&*self.now.medium)?;
        write(&*self.now.medium, Geometry::header(header.sequence), &padded(header.encode(hash)))?;
        flush(&*self.now.medium)?;
        self.header = header;
        Ok(())
    }
}
