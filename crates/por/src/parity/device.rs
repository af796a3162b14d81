//! The parity device itself: create, open, add, remove, pass, recover.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_crypto::{Key, Signer, derive, hash, hash_parts};
use steadfast_env::{Random, Tasks};
use steadfast_format::parity::{
    ParityHeader, ParityManifest, ParityRecord, ParitySegment, ParityTile, ParityTileStore, RecordKind,
    check_of,
};
use steadfast_format::{PoolGuid, SegmentId};
use zeroize::Zeroize;

use super::bodies::Bodies;
use super::contents::{Code, Contents, Entry, Next, Stored};
use super::creation::{Creation, inner_creation};
use super::error::{Error, Result};
use super::figures::{Figures, NextFigures};
use super::flusher::Flusher;
use super::geometry::{BLOCK, Geometry, record_size};
use super::medium::Medium;
use super::pass::Passing;
use super::recovery::Snapshot;
use super::rekey::Wish;
use super::source::{Flushes, Source, Window};
use super::step::Running;
use super::tags::TagArea;
use crate::audit::{SegmentCells, Stratum};
use crate::cell::{CellId, PAYLOAD, Payload, TAG, Tag};
use crate::tag::TagKeys;

/// How far the code stands, for the root of the pool and for its anchor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Standing {
    /// Number of the last pass.
    pub generation: u64,
    /// Root of tiles and manifest after it.
    pub root: [u8; 32],
    /// End of the journal.
    pub position: u64,
}

/// An opened parity device.
pub struct ParityDevice {
    /// Contents at the end of the journal.
    pub(super) now: Contents,
    pub(super) header: ParityHeader,
    /// Key of map, tags and masks.
    pub(super) root_key: Key,
    signer: Arc<Signer>,
    /// Random number of this opening.
    pub(super) opening: u32,
    /// Number of the last pass when it was opened.
    pub(super) opened_at: u64,
    /// The pass under way.
    pub(super) passing: Option<Passing>,
    /// Where the pass ends that a former opening began, and the check of the record before.
    pub(super) begun: Option<(u64, [u8; 32])>,
    /// A code that the next pass is to begin.
    pub(super) wish: Option<Wish>,
    /// A repair named lost cells, and the code was not made anew since.
    pub(super) owes_rekey: bool,
    /// A recovery was cut off, and has not put back all that the journal has: passes wait.
    pub(super) owes_repair: bool,
    /// The inner device of one whose tiles lie at a store.
    pub(super) is_inner: bool,
    /// Recoveries that stores saw, and that the header does not count yet.
    pub(super) recoveries: u32,
    /// Segments that left the code, each with the pass that took it out.
    pub(super) released: Vec<(ParitySegment, u64)>,
    /// Segments that a re-key left out, each with the pass that ended it.
    pub(super) left_out: BTreeMap<ParitySegment, u64>,
    /// Root after the last pass.
    pub(super) root: [u8; 32],
    /// Position behind the last record, and its check.
    pub(super) end: u64,
    pub(super) last_check: [u8; 32],
    pub(super) cells: u64,
    pub(super) has_failed: bool,
    /// Bytes that came into the journal while the last pass ran; half of those of a former one, if
    /// that is more.
    pub(super) came_in: u64,
    /// Each recovery that reads has a copy: then no pass runs.
    pub(super) pin: Arc<()>,
    /// Tells whether a step is running.
    pub(super) running: Arc<Running>,
    /// Those that run parts of a step beside each other; without them it does one after the other.
    pub(super) tasks: Option<Arc<dyn Tasks>>,
}

impl ParityDevice {
    /// Makes a parity device of a medium. Its former bytes are lost.
    ///
    /// # Errors
    /// The medium is too small, or fails.
    ///
    /// # Panics
    /// If the tiles are to lie at a store.
    pub fn create(
        medium: Box<dyn Medium>,
        creation: &Creation<'_>,
        random: &dyn Random,
    ) -> Result<ParityDevice> {
        assert!(!creation.is_away, "tiles at a store need its address");
        Self::create_by(medium, creation, None, random)
    }

    /// Makes a parity device whose tiles lie at the store of an address. Former bytes of the medium
    /// are lost; nothing is asked of the store.
    ///
    /// # Errors
    /// The medium is too small, or fails; the store cannot be opened.
    ///
    /// # Panics
    /// If the address is empty, or has more than 2,048 bytes.
    pub(crate) fn create_away(
        medium: Box<dyn Medium>,
        creation: &Creation<'_>,
        address: &str,
        attach: Attach<'_>,
        random: &dyn Random,
    ) -> Result<ParityDevice> {
        let creation = Creation { is_away: true, ..*creation };
        Self::create_by(medium, &creation, Some((address, attach)), random)
    }

    fn create_by(
        medium: Box<dyn Medium>,
        creation: &Creation<'_>,
        store: Option<(&str, Attach<'_>)>,
        random: &dyn Random,
    ) -> Result<ParityDevice> {
        let geometry = creation.geometry();
        let (have, need) = (size(&*medium)?, geometry.size());
        if have < need {
            return Err(Error::TooSmall { have, need });
        }
        let mut root_key = [0; 32];
        while creation.key.is_none() && root_key == [0; 32] {
            random.fill(&mut root_key);
        }
        let mut journal_prev = [0; 32];
        random.fill(&mut journal_prev);
        let manifest = ParityManifest {
            pool: creation.pool,
            cut: 0,
            segments: Vec::new(),
            units: Vec::new(),
            left_out: BTreeSet::new(),
        };
        let manifest = manifest.encode(hash);
        let header = ParityHeader {
            pool: creation.pool,
            sequence: 1,
            cells: creation.cells,
            loss_ppm: creation.loss_ppm,
            tiles: creation.tiles(),
            // Random, so that tiles of a former parity are of another map.
            map: random.nonzero_u64(),
            root_key: creation.key.is_none().then_some(root_key),
            journal_size: geometry.journal_size,
            journal_tail: 0,
            manifest_len: manifest.len() as u64,
            manifest_check: check_of(&manifest),
            manifest_area: 1,
            journal_prev,
            next_map: None,
            slot_area: 0,
            places: None,
            is_away: store.is_some(),
            recoveries: 0,
        };
        root_key.zeroize();
        // No copy of a former header may be newer than the new one.
        let blank = vec![0; 2 * BLOCK as usize];
        write(&*medium, 0, &blank)?;
        let medium: Arc<dyn Medium> = medium.into();
        if let (Some((address, _)), Some(inner_size)) = (store, creation.inner_size()) {
            let place = ParityTileStore {
                pool: creation.pool,
                folder: random.nonzero_u64(),
                inner_size,
                address: address.to_owned(),
            };
            write(&*medium, Geometry::TILE_STORE, &padded(place.encode(hash)))?;
            let root = root_of(&header, creation.key)?;
            let window = window(&medium, &Arc::default(), &geometry, inner_size);
            let key = inner_key(&root);
            let inner = inner_creation(creation.pool, header.tiles, Some(&key));
            ParityDevice::create(Box::new(window), &inner, random)?;
        }
        write(&*medium, geometry.manifest(1), &manifest)?;
        flush(&*medium)?;
        write(&*medium, Geometry::header(1), &padded(header.encode(hash)))?;
        flush(&*medium)?;
        let attach = store.map_or(&no_store as Attach<'_>, |(_, attach)| attach);
        ParityDevice::open_shared(medium, creation.pool, creation.key, attach, random)
    }

    /// True if the medium holds a parity device, of whatever pool.
    #[must_use]
    pub fn is_one(medium: &dyn Medium) -> bool {
        read_header(medium).is_ok()
    }

    /// The place of the tiles of a pool's parity device, if they lie at a store. Needs no key.
    pub(crate) fn place_of_tiles(medium: &dyn Medium, pool: PoolGuid) -> Result<Option<ParityTileStore>> {
        let header = read_header(medium)?;
        if header.pool != pool {
            return Err(Error::Foreign { found: header.pool, wanted: pool });
        }
        header.is_away.then(|| read_tile_store(medium, pool)).transpose()
    }

    /// Opens the parity device of a pool.
    ///
    /// # Errors
    /// It is none, another pool's, damaged, or its key is missing; its tiles lie at a store.
    pub fn open(
        medium: Box<dyn Medium>,
        pool: PoolGuid,
        key: Option<&Key>,
        random: &dyn Random,
    ) -> Result<ParityDevice> {
        Self::open_away(medium, pool, key, &no_store, random)
    }

    /// Opens the parity device of a pool, and the store of its tiles if they lie at one. Nothing is
    /// asked of that.
    ///
    /// # Errors
    /// It is none, another pool's, damaged, or its key is missing; the store cannot be opened.
    pub(crate) fn open_away(
        medium: Box<dyn Medium>,
        pool: PoolGuid,
        key: Option<&Key>,
        attach: Attach<'_>,
        random: &dyn Random,
    ) -> Result<ParityDevice> {
        Self::open_shared(medium.into(), pool, key, attach, random)
    }

    fn open_shared(
        medium: Arc<dyn Medium>,
        pool: PoolGuid,
        key: Option<&Key>,
        attach: Attach<'_>,
        random: &dyn Random,
    ) -> Result<ParityDevice> {
        let header = read_header(&*medium)?;
        if header.pool != pool {
            return Err(Error::Foreign { found: header.pool, wanted: pool });
        }
        let root = root_of(&header, key)?;
        let place = header.is_away.then(|| read_tile_store(&*medium, pool)).transpose()?;
        let geometry = Geometry::of(&header, place.as_ref().map(|place| place.inner_size));
        let (have, need) = (size(&*medium)?, geometry.size_for(&header));
        if have < need {
            return Err(Error::TooSmall { have, need });
        }
        let (slots, next_slots) = geometry.slots_of(&header);
        let next_loss = header.places.and_then(|places| places.next).map(|next| next.loss_ppm);
        let next_loss = next_loss.unwrap_or(header.loss_ppm);
        let next = header.next_map.zip(next_slots).map(|(number, slots)| Next {
            code: Code::new(&root, number, next_loss, slots),
            left_out: BTreeSet::new(),
        });
        let mut source = Source::new(medium, geometry, Arc::new(TagKeys::new(&root)));
        if let Some(place) = place {
            let window = window(&source.medium, &source.flushes, &geometry, place.inner_size);
            let mut inner = ParityDevice::open(Box::new(window), pool, Some(&inner_key(&root)), random)?;
            inner.is_inner = true;
            let key = derive(&root, b"", "steadfast parity bodies v1");
            source.bodies = Some(attach(&place, inner, key)?);
        }
        let mut device = ParityDevice {
            now: Contents {
                source,
                code: Code::new(&root, header.map, header.loss_ppm, slots),
                next,
                window: Vec::new(),
                mirror: BTreeMap::new(),
                tags: TagArea::default(),
                segments: BTreeSet::new(),
            },
            signer: Arc::new(Signer::new(&derive(&root, b"", "steadfast audit record v1"))),
            root_key: root,
            opening: 0,
            opened_at: header.sequence,
            passing: None,
            begun: None,
            wish: None,
            owes_rekey: false,
            owes_repair: false,
            is_inner: false,
            recoveries: 0,
            released: Vec::new(),
            left_out: BTreeMap::new(),
            root: [0; 32],
            end: header.journal_tail,
            last_check: header.journal_prev,
            cells: 0,
            has_failed: false,
            came_in: 0,
            pin: Arc::new(()),
            running: Arc::default(),
            tasks: None,
            header,
        };
        device.read_manifest()?;
        device.read_tiles()?;
        device.read_journal()?;
        device.read_mark()?;
        // Records of a daemon that was killed may not be durable yet.
        device.now.source.flush(device.end)?;
        device.root = device.stored_root();
        device.opening = device.fresh_opening(random);
        Ok(device)
    }

    /// The tiles at a store, if they lie at one.
    #[must_use]
    pub fn bodies(&self) -> Option<&Arc<dyn Bodies>> {
        self.now.source.bodies.as_ref()
    }

    /// Accepts nothing more, and lets go of the medium: the pool has given the device up.
    pub fn close(&mut self) {
        self.has_failed = true;
        self.now.source.medium.release();
    }

    /// Keys of the tags.
    #[must_use]
    pub fn keys(&self) -> &Arc<TagKeys> {
        &self.now.source.keys
    }

    /// Signs records of audits. Of a sealed pool the key follows from the pool's.
    #[must_use]
    pub fn signer(&self) -> &Arc<Signer> {
        &self.signer
    }

    /// Segments that the code covers.
    pub fn segments(&self) -> impl Iterator<Item = ParitySegment> {
        self.now.segments.iter().copied()
    }

    /// The cells that a store must hold.
    #[must_use]
    pub fn stratum(&self, store: u16) -> Stratum {
        let of_store = self.now.segments.iter().filter(|segment| segment.store == store);
        let cells = of_store.map(|segment| SegmentCells {
            segment: segment.segment,
            opening: segment.opening,
            store,
            cells: segment.cells(),
        });
        Stratum::new(self.end, cells.collect())
    }

    /// Those of them that the journal still mirrors: the newest ones.
    #[must_use]
    pub fn newest(&self, store: u16) -> Stratum {
        let newest = self
            .now
            .mirror
            .keys()
            .filter(|segment| segment.store == store && self.now.segments.contains(segment));
        let cells = newest.map(|segment| SegmentCells {
            segment: segment.segment,
            opening: segment.opening,
            store,
            cells: segment.cells(),
        });
        Stratum::new(self.end, cells.collect())
    }

    /// Reads some tiles, drawn at random, and names those that are not what their heads say.
    ///
    /// # Errors
    /// The medium fails.
    pub fn audit_tiles(&self, samples: u32, random: &dyn Random) -> Result<Vec<u32>> {
        let draw = |_| {
            let number = (u128::from(random.nonzero_u64()) * u128::from(self.now.code.slots.tiles)) >> 64;
            u32::try_from(number).expect("below the number of tiles")
        };
        // One that is drawn twice is read once.
        let drawn: BTreeSet<u32> = (0..samples).map(draw).collect();
        let mut damaged = Vec::new();
        for tile in drawn {
            match self.now.read_tile(&self.now.code, tile)? {
                Some(bytes) if Contents::check_tile(&self.now.code, tile, &bytes).is_err() => {
                    damaged.push(tile);
                }
                _ => {}
            }
        }
        Ok(damaged)
    }

    /// How far the code stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        Standing { generation: self.header.sequence, root: self.root, position: self.end }
    }

    /// Its figures now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            cells: self.cells,
            planned: self.header.cells,
            loss_ppm: self.header.loss_ppm,
            tiles: self.header.tiles,
            journal_size: self.now.source.geometry.journal_size,
            journal_used: self.journal_bytes(),
            generation: self.header.sequence,
            is_step_running: self.is_step_running(),
            segments: self.now.segments.len() as u64,
            bytes: self.now.source.geometry.size_for(&self.header),
            recoveries: self.header.recoveries.saturating_add(self.recoveries),
            next: self.now.next.as_ref().map(|next| {
                let tiles = next.code.slots.tiles;
                let unmade = u32::try_from(next.code.unmade().count()).expect("tiles have four bytes");
                NextFigures { made: tiles - unmade, tiles, loss_ppm: next.code.loss_ppm }
            }),
        }
    }

    /// True if nothing more is accepted, because the medium failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed || self.now.source.has_failed()
    }

    /// True if the segment is leaving the code, or has left it and is not taken off the list yet.
    #[must_use]
    pub fn is_leaving(&self, segment: SegmentId, store: u16) -> bool {
        let is_it = |known: &ParitySegment| (known.segment, known.store) == (segment, store);
        self.owes_delete(segment, store) || self.released.iter().any(|(known, _)| is_it(known))
    }

    /// True if the segment is leaving the code, and waits for the end of a pass.
    pub(crate) fn owes_delete(&self, segment: SegmentId, store: u16) -> bool {
        let mut removed = self.now.window.iter().filter(|entry| entry.kind == RecordKind::Remove);
        removed.any(|entry| (entry.segment.segment, entry.segment.store) == (segment, store))
    }

    /// The segments of a store that are leaving the code, and wait for the end of a pass.
    pub(crate) fn owed_deletes(&self, store: u16) -> BTreeSet<SegmentId> {
        let removed = self.now.window.iter().filter(|entry| entry.kind == RecordKind::Remove);
        removed.map(|entry| entry.segment).filter(|known| known.store == store).map(|s| s.segment).collect()
    }

    /// Segments of a store that left the code with this pass or one before it: they may be deleted
    /// if the pass is anchored [por.13].
    #[must_use]
    pub fn released(&self, store: u16, generation: u64) -> Vec<ParitySegment> {
        let is_free = |(segment, of): &&(ParitySegment, u64)| segment.store == store && *of <= generation;
        self.released.iter().filter(is_free).map(|(segment, _)| *segment).collect()
    }

    /// True if segments wait for the anchor of the pass that took them out, or left them out.
    #[must_use]
    pub fn has_released(&self) -> bool {
        !self.released.is_empty() || !self.left_out.is_empty()
    }

    /// Bytes of segments that wait for the end of a pass.
    #[must_use]
    pub fn owed_bytes(&self) -> u64 {
        let removed = self.now.window.iter().filter(|entry| entry.kind == RecordKind::Remove);
        removed.map(|entry| u64::from(entry.segment.length)).sum()
    }

    /// These segments were deleted at their store.
    pub fn forget_released(&mut self, segments: &[ParitySegment]) {
        self.released.retain(|(segment, _)| !segments.contains(segment));
    }

    /// The names here of a store's segment: one, or one for each opening that used its id.
    pub fn named(&self, segment: SegmentId, store: u16) -> impl Iterator<Item = ParitySegment> {
        self.now.named(segment, store)
    }

    /// Tags of a segment's content.
    #[must_use]
    pub fn tags(&self, segment: ParitySegment, content: &[u8]) -> Vec<Tag> {
        tags_of(&self.now.source.keys, segment, content)
    }

    /// The name that a segment gets if it is added now, unless its length is not possible.
    #[must_use]
    pub fn name_for(&self, segment: SegmentId, store: u16, length: usize) -> Option<ParitySegment> {
        let length = u32::try_from(length).ok();
        let length = length.filter(|length| (1..=ParitySegment::LENGTH_MAX).contains(length));
        let length = length.filter(|_| segment.0 != 0)?;
        Some(ParitySegment { segment, store, opening: self.opening, length })
    }

    /// Tag of one cell, as it was made when it entered.
    ///
    /// # Errors
    /// The segment is not known, or the medium fails.
    pub fn stored_tag(&self, segment: ParitySegment, index: u16) -> Result<Tag> {
        self.now.stored_tag(segment, index)
    }

    /// The code as it is now, for a recovery that reads beside writers. No pass runs while it is
    /// there.
    ///
    /// # Panics
    /// If a step is running: its end would free what the snapshot names [por.18].
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        assert!(!self.is_step_running(), "[por.18]: a snapshot is taken between steps");
        Snapshot { now: self.now.clone(), cells: self.cells, end: self.end, _pin: Arc::clone(&self.pin) }
    }

    /// While it is there, no pass runs [por.16].
    pub(crate) fn pin(&self) -> Arc<()> {
        Arc::clone(&self.pin)
    }

    /// True if a recovery reads, and no pass can run.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        Arc::strong_count(&self.pin) > 1
    }

    /// True if the journal has the segment, whole.
    #[must_use]
    pub fn is_mirrored(&self, segment: ParitySegment) -> bool {
        self.now.mirror.contains_key(&segment)
    }

    /// Reads a range of a segment from the journal. False if the journal does not have it.
    ///
    /// # Errors
    /// The medium fails.
    pub fn read_mirror(&self, segment: ParitySegment, offset: u32, out: &mut [u8]) -> Result<bool> {
        let Some(&position) = self.now.mirror.get(&segment) else { return Ok(false) };
        if u64::from(offset) + out.len() as u64 > u64::from(segment.length) {
            return Ok(false);
        }
        self.now.source.read_ring(position + BLOCK + u64::from(offset), out)?;
        Ok(true)
    }

    /// Bytes of the journal that a pass would free.
    #[must_use]
    pub fn journal_bytes(&self) -> u64 {
        self.end - self.header.journal_tail
    }

    /// True if the journal has room for a record of this segment now, or never has.
    pub(crate) fn has_room_for(&self, segment: &ParitySegment) -> bool {
        let (need, size) = (record_size(segment), self.now.source.geometry.journal_size);
        need <= size - self.journal_bytes() || need > size
    }

    /// Covers a segment that is about to be written. Durable with the next [`ParityDevice::flush`].
    /// Gives its name here.
    ///
    /// # Errors
    /// No room, the segment is known, or the medium fails.
    pub fn add(&mut self, segment: SegmentId, store: u16, content: &[u8]) -> Result<ParitySegment> {
        let name = self.name_for(segment, store, content.len()).ok_or(Error::Length(content.len()))?;
        let tags = self.tags(name, content);
        self.add_tagged(name, content, &tags)
    }

    /// Like [`ParityDevice::add`], by the name that [`ParityDevice::name_for`] gave, with its tags.
    /// Other names are made since the code was begun anew: then the segment gets another one.
    ///
    /// # Errors
    /// As of [`ParityDevice::add`].
    pub fn add_tagged(
        &mut self,
        segment: ParitySegment,
        content: &[u8],
        tags: &[Tag],
    ) -> Result<ParitySegment> {
        if segment.opening != self.opening {
            return self.add(segment.segment, segment.store, content);
        }
        if self.now.segments.contains(&segment) || self.was_here(&segment) {
            return Err(Error::Exists(segment));
        }
        self.check_plan(&segment, 1)?;
        self.append(RecordKind::Add, segment, content, tags)?;
        self.now.tags.promise(&segment);
        Ok(segment)
    }

    /// Refuses if the code is not made for so many more segments of this length.
    fn check_plan(&self, segment: &ParitySegment, count: u64) -> Result<()> {
        let cells = self.cells + u64::from(segment.cells()) * count;
        if cells > self.header.cells {
            return Err(Error::Outgrown { cells, planned: self.header.cells });
        }
        let rows = self.now.source.geometry.rows();
        if self.now.segments.len() as u64 + count > rows {
            return Err(Error::ManifestFull { rows });
        }
        self.now.tags.check(segment)
    }

    /// Refuses if the code has no room for so many more segments of this length, or its journal
    /// for one of them.
    pub(crate) fn check_room(&self, segment: &ParitySegment, count: u64) -> Result<()> {
        if self.has_failed() {
            return Err(Error::Failed);
        }
        self.check_plan(segment, count)?;
        self.room_of(segment).map(drop)
    }

    /// Bytes of a segment's record, for which the journal has room.
    pub(crate) fn room_of(&self, segment: &ParitySegment) -> Result<u64> {
        let need = record_size(segment);
        let free = self.now.source.geometry.journal_size - self.journal_bytes();
        if need > free { Err(Error::JournalFull { need, free }) } else { Ok(need) }
    }

    /// Takes a segment out of the code, before it is deleted at the store. `content` is as the
    /// store has it; without it the journal must still have the segment.
    ///
    /// # Errors
    /// The segment is not known, a cell is not the one that entered, no room, or the medium fails.
    pub fn remove(&mut self, segment: ParitySegment, content: Option<&[u8]>) -> Result<()> {
        if !self.now.segments.contains(&segment) {
            return Err(Error::Unknown(segment));
        }
        // It is about to leave the list with the old code.
        if self.is_dropping(&segment) {
            return Err(Error::WrongCells(ids(segment).collect()));
        }
        let tags = self.now.stored_tags(segment)?;
        let mut payload = vec![0; usize::from(segment.cells()) * PAYLOAD];
        match (content, self.now.mirror.get(&segment)) {
            (Some(content), _) => {
                let length = content.len().min(payload.len());
                payload[..length].copy_from_slice(&content[..length]);
            }
            (None, Some(&position)) => self.now.source.read_ring(position + BLOCK, &mut payload)?,
            (None, None) => return Err(Error::WrongCells(ids(segment).collect())),
        }
        let is_wrong = |(at, id): &(usize, CellId)| {
            self.now.source.keys.prove(*id, &payload.as_chunks::<PAYLOAD>().0[*at], tags[*at]).is_none()
        };
        let wrong: Vec<CellId> = ids(segment).enumerate().filter(is_wrong).map(|(_, id)| id).collect();
        if !wrong.is_empty() {
            return Err(Error::WrongCells(wrong));
        }
        self.append(RecordKind::Remove, segment, &payload, &tags)
    }

    /// Makes durable what was added and removed.
    ///
    /// # Errors
    /// The medium fails; then nothing more is accepted.
    pub fn flush(&mut self) -> Result<()> {
        self.guarded(|device| device.now.source.flush_records(device.end))
    }

    /// Makes durable what was added and removed, beside others who use the device.
    #[must_use]
    pub fn flusher(&self) -> Flusher {
        Flusher { source: self.now.source.clone(), end: self.end, has_failed: self.has_failed }
    }

    /// True if the journal is durable up to this position, as [`Standing::position`] told it.
    #[must_use]
    pub fn is_durable_to(&self, position: u64) -> bool {
        self.now.source.is_durable_to(position)
    }

    /// Runs what changes the medium; if it fails, nothing more is accepted.
    pub(super) fn guarded<T>(&mut self, work: impl FnOnce(&mut ParityDevice) -> Result<T>) -> Result<T> {
        if self.has_failed() {
            return Err(Error::Failed);
        }
        let outcome = work(self);
        self.has_failed = matches!(outcome, Err(Error::Io { .. }));
        outcome
    }

    /// True if the segment left the code within the window: its cells may not enter again, since
    /// its name stands for a content that has been.
    fn was_here(&self, segment: &ParitySegment) -> bool {
        let of = |length| ParitySegment { length, ..*segment };
        self.now.mirror.range(of(0)..=of(u32::MAX)).next().is_some()
    }

    fn append(
        &mut self,
        kind: RecordKind,
        segment: ParitySegment,
        content: &[u8],
        tags: &[Tag],
    ) -> Result<()> {
        let need = self.room_of(&segment)?;
        let (position, prev) = (self.end, self.last_check);
        let head = ParityRecord { kind, pool: self.header.pool, position, segment, prev }.encode(hash);
        let check = check_of(&head);
        // The last cell is filled up; whole ones are written from where they are.
        let (cells, rest) = content.as_chunks::<PAYLOAD>();
        let whole = cells.as_flattened();
        let mut last = rest.to_vec();
        last.resize(rest.len().next_multiple_of(PAYLOAD), 0);
        tags.iter().for_each(|tag| last.extend_from_slice(&tag.0));
        let last = padded(last);
        self.guarded(|device| {
            let source = &device.now.source;
            source.write_ring(position, &padded(head))?;
            source.write_ring(position + BLOCK, whole)?;
            source.write_ring(position + need - last.len() as u64, &last)
        })?;
        (self.end, self.last_check) = (position + need, check);
        self.now.window.push(Entry { position, kind, segment });
        self.now.mirror.entry(segment).or_insert(position);
        self.count(kind, segment);
        Ok(())
    }

    /// Follows a record in the list of segments.
    fn count(&mut self, kind: RecordKind, segment: ParitySegment) -> bool {
        let cells = u64::from(segment.cells());
        match kind {
            RecordKind::Add => {
                self.cells += cells;
                self.now.segments.insert(segment)
            }
            RecordKind::Remove => {
                self.cells -= cells;
                self.now.segments.remove(&segment)
            }
        }
    }

    /// Root of what a pass stored: of the header, which names the manifest, the tail that all tiles
    /// have reached, and the record before it.
    pub(super) fn stored_root(&self) -> [u8; 32] {
        hash_parts(&[b"steadfast parity root", &self.header.encode(hash)])
    }

    /// The window begins at `tail` from now on.
    pub(super) fn shorten_window(&mut self, tail: u64) {
        self.now.window.retain(|entry| entry.position >= tail);
        self.now.mirror.clear();
        for entry in &self.now.window {
            self.now.mirror.entry(entry.segment).or_insert(entry.position);
        }
        let added = self.now.window.iter().filter(|entry| entry.kind == RecordKind::Add);
        let added: Vec<ParitySegment> = added.map(|entry| entry.segment).collect();
        self.now.tags.promise_only(added.iter());
    }

    fn read_manifest(&mut self) -> Result<()> {
        let header = &self.header;
        if header.manifest_len > self.now.source.geometry.manifest_size {
            return Err(Error::ManifestDamaged);
        }
        let length = usize::try_from(header.manifest_len).map_err(|_| Error::ManifestDamaged)?;
        let bytes = self.now.source.read(self.now.source.geometry.manifest(header.manifest_area), length)?;
        let manifest = ParityManifest::decode(&bytes, hash).map_err(|_| Error::ManifestDamaged)?;
        let is_named = check_of(&bytes) == header.manifest_check
            && (manifest.pool, manifest.cut) == (header.pool, header.journal_tail);
        if !is_named {
            return Err(Error::ManifestDamaged);
        }
        self.now.tags = TagArea::new(self.now.source.geometry.tag_units(), &manifest)?;
        match &mut self.now.next {
            Some(next) => next.left_out = manifest.left_out,
            None if manifest.left_out.is_empty() => {}
            None => return Err(Error::ManifestDamaged),
        }
        self.cells = manifest.segments.iter().map(|segment| u64::from(segment.cells())).sum();
        self.now.segments = manifest.segments.into_iter().collect();
        Ok(())
    }

    /// Finds the newest slot of each tile, of both codes.
    fn read_tiles(&mut self) -> Result<()> {
        let (pool, tail) = (self.header.pool, self.header.journal_tail);
        let mut codes: Vec<&mut Code> = vec![&mut self.now.code];
        codes.extend(self.now.next.as_mut().map(|next| &mut next.code));
        for code in codes {
            for slot in 0..code.slots.count() {
                let mut bytes = vec![0; ParityTile::ENCODED_SIZE];
                read(&*self.now.source.medium, code.slots.slot(slot), &mut bytes)?;
                let Ok(head) = ParityTile::decode(&bytes, hash) else { continue };
                let is_ours = (head.pool, head.map) == (pool, code.number);
                let Some(stored) = code.tiles.get_mut(head.tile as usize).filter(|_| is_ours) else {
                    continue;
                };
                if stored.generation < head.generation {
                    let (generation, cut) = (head.generation, head.cut);
                    *stored = Stored { slot: Some(slot), generation, cut, hash: head.hash };
                }
            }
        }
        // All tiles have reached the tail: one that has not is an older generation, put back.
        if let Some(old) = self.now.code.tiles.iter().position(|tile| tile.cut < tail) {
            return Err(Error::TileDamaged(u32::try_from(old).expect("tiles have four bytes")));
        }
        // One of the next code is made again: nothing depends on it yet.
        if let Some(next) = &mut self.now.next {
            let old = next.code.tiles.iter_mut().filter(|tile| tile.cut < tail);
            old.for_each(|tile| *tile = Stored::default());
        }
        self.now.code.find_free();
        self.now.next.iter_mut().for_each(|next| next.code.find_free());
        Ok(())
    }

    fn read_journal(&mut self) -> Result<()> {
        let mut buffer = vec![0; PAYLOAD];
        let buffer: &mut Payload = buffer.as_mut_slice().try_into().expect("bytes of a cell");
        let begun = self.now.code.tiles.iter().map(|tile| tile.cut).max();
        let begun = begun.filter(|cut| *cut > self.header.journal_tail);
        loop {
            let mut head = [0; ParityRecord::ENCODED_SIZE];
            self.now.source.read_ring(self.end, &mut head)?;
            let Ok(record) = ParityRecord::decode(&head, hash) else { break };
            let ParityRecord { kind, pool, position, segment, prev } = record;
            let need = record_size(&segment);
            let fits = need <= self.now.source.geometry.journal_size - self.journal_bytes();
            if (pool, position, prev) != (self.header.pool, self.end, self.last_check) || !fits {
                break;
            }
            let mut is_whole = true;
            for id in ids(segment) {
                let tag = self.now.source.record_cell(position, segment, id.index, buffer)?;
                is_whole &= self.now.source.keys.prove(id, buffer, tag).is_some();
            }
            if !is_whole {
                break;
            }
            if !self.count_is_possible(kind, &segment) {
                return Err(Error::JournalDamaged(position));
            }
            if begun == Some(position) {
                self.begun = Some((position, prev));
            }
            self.count(kind, segment);
            self.now.window.push(Entry { position, kind, segment });
            self.now.mirror.entry(segment).or_insert(position);
            if kind == RecordKind::Add {
                self.now.tags.promise(&segment);
            }
            (self.end, self.last_check) = (position + need, check_of(&head));
        }
        // Records are durable before a tile that includes them is.
        let next = self.now.next.iter().flat_map(|next| &next.code.tiles);
        match self.now.code.tiles.iter().chain(next).find(|tile| tile.cut > self.end) {
            Some(_) => Err(Error::JournalDamaged(self.end)),
            None => Ok(()),
        }
    }

    fn count_is_possible(&self, kind: RecordKind, segment: &ParitySegment) -> bool {
        self.now.segments.contains(segment) == (kind == RecordKind::Remove)
    }

    /// A number that no segment here has.
    pub(super) fn fresh_opening(&self, random: &dyn Random) -> u32 {
        let mut used: BTreeSet<u32> = self.now.segments.iter().map(|segment| segment.opening).collect();
        used.extend(self.now.window.iter().map(|entry| entry.segment.opening));
        loop {
            let mut bytes = [0; 4];
            random.fill(&mut bytes);
            let opening = u32::from_le_bytes(bytes);
            if opening != 0 && !used.contains(&opening) {
                return opening;
            }
        }
    }
}

/// Tags of a segment's content.
#[must_use]
pub fn tags_of(keys: &TagKeys, segment: ParitySegment, content: &[u8]) -> Vec<Tag> {
    let (whole, rest) = content.as_chunks::<PAYLOAD>();
    let mut last = [0; PAYLOAD];
    last[..rest.len()].copy_from_slice(rest);
    let last = (!rest.is_empty()).then_some(&last);
    let cells = (0..).zip(whole.iter().chain(last));
    cells.map(|(index, payload)| keys.tag(cell_id(segment, index), payload).tag()).collect()
}

/// Bytes of a unit of the tag area.
pub(super) const UNIT: usize = ParitySegment::UNIT_TAGS as usize * TAG;

/// Where the tags of a record at this position begin.
pub(super) fn tags_at(position: u64, segment: &ParitySegment) -> u64 {
    position + BLOCK + u64::from(segment.cells()) * PAYLOAD as u64
}

/// Identity of a cell.
pub(super) fn cell_id(segment: ParitySegment, index: u16) -> CellId {
    CellId { segment: segment.segment, opening: segment.opening, store: segment.store, index }
}

/// Identities of a segment's cells.
pub(super) fn ids(segment: ParitySegment) -> impl Iterator<Item = CellId> {
    (0..segment.cells()).map(move |index| cell_id(segment, index))
}

/// Opens the store that a parity device names for its tiles, with the inner device and the key of
/// bodies.
pub(crate) type Attach<'a> = &'a dyn Fn(&ParityTileStore, ParityDevice, Key) -> Result<Arc<dyn Bodies>>;

fn no_store(place: &ParityTileStore, _: ParityDevice, _: Key) -> Result<Arc<dyn Bodies>> {
    let reason = "no stores are at hand".to_owned();
    Err(Error::NoTileStore { address: place.address.clone(), reason })
}

/// Key of the inner device.
fn inner_key(root: &Key) -> Key {
    derive(root, b"", "steadfast parity inner v1")
}

/// Root of the code's keys.
fn root_of(header: &ParityHeader, key: Option<&Key>) -> Result<Key> {
    match (header.root_key, key) {
        (Some(root), _) => Ok(Key::from_bytes(root)),
        (None, Some(key)) => Ok(derive(key, &header.pool.0.to_le_bytes(), "steadfast parity root v1")),
        (None, None) => Err(Error::KeyNeeded),
    }
}

/// The part of a medium that the inner device has.
fn window(medium: &Arc<dyn Medium>, flushes: &Arc<Flushes>, geometry: &Geometry, size: u64) -> Window {
    let (medium, flushes) = (Arc::clone(medium), Arc::clone(flushes));
    Window { medium, flushes, at: geometry.inner(), size }
}

/// The store of the tiles.
fn read_tile_store(medium: &dyn Medium, pool: PoolGuid) -> Result<ParityTileStore> {
    let mut bytes = vec![0; ParityTileStore::ENCODED_SIZE];
    read(medium, Geometry::TILE_STORE, &mut bytes)?;
    let place = ParityTileStore::decode(&bytes, hash).map_err(Error::NotParity)?;
    match place.pool == pool {
        true => Ok(place),
        false => Err(Error::Foreign { found: place.pool, wanted: pool }),
    }
}

/// The valid header with the greater sequence.
pub(super) fn read_header(medium: &dyn Medium) -> Result<ParityHeader> {
    let mut bytes = vec![0; ParityHeader::ENCODED_SIZE];
    let mut found: std::result::Result<ParityHeader, Error> = Err(Error::Failed);
    for copy in 0..2 {
        read(medium, copy * BLOCK, &mut bytes)?;
        match (ParityHeader::decode(&bytes, hash), &found) {
            (Ok(header), Ok(best)) if header.sequence < best.sequence => {}
            (Ok(header), _) => found = Ok(header),
            (Err(error), Err(Error::Failed)) => found = Err(Error::NotParity(error)),
            (Err(_), _) => {}
        }
    }
    bytes.zeroize();
    found
}

pub(super) fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(BLOCK as usize), 0);
    bytes
}

pub(super) fn size(medium: &dyn Medium) -> Result<u64> {
    medium.size().map_err(|source| Error::Io { operation: "looking for the end", offset: 0, source })
}

pub(super) fn read(medium: &dyn Medium, offset: u64, out: &mut [u8]) -> Result<()> {
    medium.read(offset, out).map_err(|source| Error::Io { operation: "reading", offset, source })
}

pub(super) fn write(medium: &dyn Medium, offset: u64, bytes: &[u8]) -> Result<()> {
    medium.write(offset, bytes).map_err(|source| Error::Io { operation: "writing", offset, source })
}

pub(super) fn flush(medium: &dyn Medium) -> Result<()> {
    medium.flush().map_err(|source| Error::Io { operation: "flushing", offset: 0, source })
}
