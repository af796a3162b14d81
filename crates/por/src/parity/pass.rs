//! A pass: brings all tiles to the end of the journal, a few at a time, and then moves the tail.
//!
//! Between two steps records may come: they lie behind the pass's end and belong to the next one.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_crypto::hash;
use steadfast_format::parity::{
    ParityHeader, ParityManifest, ParitySegment, ParityTile, RecordKind, check_of,
};

use super::contents::{Code, Next, Stored, WindowCell};
use super::device::{ParityDevice, UNIT, flush, padded, write};
use super::error::{Error, Result};
use super::geometry::{BLOCK, Geometry};
use super::rekey::Wish;

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

/// Change of the code at the end of a pass.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Nothing,
    /// The header names another map from then on.
    Begin(Wish),
    /// The next code takes the place of the present one, whose tiles stay behind.
    Switch,
}

/// One of the codes of a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Which {
    Present,
    Next,
}

/// State of a pass that is under way.
#[derive(Debug)]
pub(crate) struct Passing {
    /// End of the journal when it began, and the check of the record before it.
    end: u64,
    check: [u8; 32],
    /// Segments at that end.
    segments: BTreeSet<ParitySegment>,
    pub change: Change,
    present: Work,
    next: Work,
}

/// Work of a pass on a code.
#[derive(Debug, Default)]
struct Work {
    /// Cells of the window up to the pass's end, by tile.
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
            for which in [Which::Present, Which::Next] {
                if !passing.work(which).behind.is_empty() {
                    return device.pass_tiles(which, &mut passing).map(|()| None);
                }
            }
            device.end_pass(&passing).map(Some)
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
        let (end, now) = (self.end, &self.now);
        let change = match (&self.wish, &now.next) {
            (Some(wish), _) => Change::Begin(wish.clone()),
            (None, Some(next)) if next.code.unmade().next().is_none() => Change::Switch,
            (None, _) => Change::Nothing,
        };
        let work = |code: &Code, without: &BTreeSet<ParitySegment>, is_made: fn(&Stored) -> bool| {
            let is_behind =
                |tile: &u32| Some(code.tile(*tile)).is_some_and(|tile| is_made(tile) && tile.cut < end);
            let behind = (0..code.slots.tiles).rev().filter(is_behind).collect();
            Work { cells: now.window_cells(code, without), behind }
        };
        // A code that goes, or is about to be begun anew, stays as it is.
        let present = match change {
            Change::Switch => Work::default(),
            _ => work(&now.code, &BTreeSet::new(), |_| true),
        };
        let next = match (&now.next, &change) {
            (Some(next), Change::Nothing | Change::Switch) => {
                work(&next.code, &next.left_out, |tile| tile.slot.is_some())
            }
            _ => Work::default(),
        };
        let (check, segments) = (self.last_check, now.segments.clone());
        Passing { end, check, segments, change, present, next }
    }

    fn pass_tiles(&mut self, which: Which, passing: &mut Passing) -> Result<()> {
        let is_switch = matches!(passing.change, Change::Switch);
        let Some(code) = self.code(which) else { return Ok(()) };
        let (cut, spare) = (passing.end, code.slots.spare().max(1) as usize);
        let Work { cells, behind } = passing.work(which);
        let group = behind.split_off(behind.len().saturating_sub(spare));
        let mut tiles = Vec::with_capacity(group.len());
        for tile in group.into_iter().rev() {
            let cells = cells.get(&tile).map_or(&[][..], Vec::as_slice);
            let Some(code) = self.code(which) else { return Ok(()) };
            match self.now.tile_with(code, tile, cells) {
                Ok(sum) => tiles.push((tile, sum.to_bytes())),
                // It is made again; a code that lacks it does not take the place of the other.
                Err(error @ Error::TileDamaged(_)) if which == Which::Next => {
                    let next = self.now.next.as_mut().expect("looked for above");
                    next.code.replace(tile, Stored::default());
                    if is_switch {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.write_tiles(which, tiles, cut)
    }

    fn code(&self, which: Which) -> Option<&Code> {
        match which {
            Which::Present => Some(&self.now.code),
            Which::Next => self.now.next.as_ref().map(|next| &next.code),
        }
    }

    /// Stores tiles as new generations, no more than there are spare slots. If the room of the next
    /// code fails, that is given up.
    pub(super) fn write_tiles(&mut self, which: Which, tiles: Vec<(u32, Vec<u8>)>, cut: u64) -> Result<()> {
        // Records must be durable before a tile that includes them is, or a crash would leave a
        // tile with cells that no record names.
        flush(&*self.now.medium)?;
        let medium = self.now.medium.clone();
        let (pool, mut written) = (self.header.pool, Vec::with_capacity(tiles.len()));
        let write = |at: u64, bytes: &[u8]| match write(&*medium, at, bytes) {
            Err(Error::Io { offset, source, .. }) if which == Which::Next => {
                Err(Error::NoRoom { offset, source })
            }
            outcome => outcome,
        };
        let code = match which {
            Which::Present => &mut self.now.code,
            Which::Next => &mut self.now.next.as_mut().expect("looked for by the caller").code,
        };
        let outcome = (|| {
            for (tile, bytes) in tiles {
                let slot = code.free.pop().expect("as many spare slots as tiles of a group");
                write(code.slots.slot(slot) + BLOCK, &bytes)?;
                written.push((tile, slot, hash(&bytes)));
            }
            flush(&*medium)?;
            for &(tile, slot, of_tile) in &written {
                let generation = code.tile(tile).generation + 1;
                let head = ParityTile { tile, pool, map: code.number, generation, cut, hash: of_tile };
                write(code.slots.slot(slot), &padded(head.encode(hash)))?;
            }
            flush(&*medium)
        })();
        if let Err(error) = outcome {
            if matches!(error, Error::NoRoom { .. }) {
                self.now.next = None;
            }
            return Err(error);
        }
        for (tile, slot, of_tile) in written {
            let generation = code.tile(tile).generation + 1;
            code.replace(tile, Stored { slot: Some(slot), generation, cut, hash: of_tile });
        }
        Ok(())
    }

    fn end_pass(&mut self, passing: &Passing) -> Result<Pass> {
        let root = &self.root_key;
        let (mut segments, mut next) = (passing.segments.clone(), self.now.next.clone());
        match (&passing.change, &mut next) {
            (Change::Begin(wish), _) => {
                let code = Code::new(root, wish.number, wish.loss_ppm, wish.slots);
                let left_out = wish.left_out.intersection(&segments).copied().collect();
                next = Some(Next { code, left_out });
            }
            (Change::Switch, Some(next)) => segments.retain(|segment| !next.left_out.contains(segment)),
            // One that left the code is on no list any more.
            (_, Some(next)) => next.left_out.retain(|segment| segments.contains(segment)),
            (_, None) => {}
        }
        let (is_switch, segments) = (matches!(passing.change, Change::Switch), &segments);
        let before = |position: u64| position < passing.end;
        for entry in self.now.window.clone() {
            let is_new = entry.kind == RecordKind::Add && segments.contains(&entry.segment);
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
        let code = next.as_ref().filter(|_| is_switch).map_or(&self.now.code, |next| &next.code);
        let mut header = self.header.clone();
        let other = next.as_ref().filter(|_| !is_switch);
        self.now.geometry.note(&mut header, code, other.map(|next| &next.code));
        self.write_manifest_and_header(passing, segments, header, other)?;
        self.now.tags.keep(segments);
        if let Some(next) = next.take_if(|_| is_switch) {
            for segment in next.left_out.iter().filter(|segment| self.now.segments.contains(segment)) {
                self.cells -= u64::from(segment.cells());
            }
            self.now.segments.retain(|segment| !next.left_out.contains(segment));
            self.now.code = next.code;
            self.owes_rekey = false;
        }
        self.now.next = next;
        if matches!(passing.change, Change::Begin(_)) {
            self.wish = None;
        }
        let generation = self.header.sequence;
        let removed = self.now.window.iter().filter(|entry| entry.kind == RecordKind::Remove);
        let removed = removed.filter(|entry| before(entry.position));
        let released: Vec<ParitySegment> = removed.map(|entry| entry.segment).collect();
        self.released.extend(released.iter().map(|segment| (*segment, generation)));
        self.shorten_window(passing.end);
        self.root = self.stored_root();
        Ok(Pass { generation, root: self.root, released })
    }

    fn write_manifest_and_header(
        &mut self,
        passing: &Passing,
        segments: &BTreeSet<ParitySegment>,
        mut header: ParityHeader,
        next: Option<&Next>,
    ) -> Result<()> {
        let manifest = ParityManifest {
            pool: self.header.pool,
            cut: passing.end,
            segments: segments.iter().copied().collect(),
            units: self.now.tags.units_of(segments),
            left_out: next.map(|next| next.left_out.clone()).unwrap_or_default(),
        };
        let manifest = manifest.encode(hash);
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

impl Passing {
    fn work(&mut self, which: Which) -> &mut Work {
        match which {
            Which::Present => &mut self.present,
            Which::Next => &mut self.next,
        }
    }
}
