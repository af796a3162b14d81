//! The bytes of a parity device, read and written without its lock: a part of its contents, of a
//! snapshot, and of a step.

use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use steadfast_device::Buffer;
use steadfast_format::parity::ParitySegment;

use super::bodies::Bodies;
use super::contents::{Entry, Stored, WindowCell};
use super::device::{cell_id, read, tags_at, write};
use super::error::{Error, Result};
use super::geometry::{BLOCK, Geometry, Slots};
use super::medium::Medium;
use crate::cell::{PAYLOAD, Payload, TAG, Tag};
use crate::tag::TagKeys;
use crate::tile::{Batch, Tile};

/// Cells that are added to a tile at once.
const BATCH: usize = 2048;
/// Bytes that may wait for a flush while writers go on: a commit finds no more of them.
pub(super) const UNFLUSHED: u64 = 16 << 20;

/// Where bytes are, and how they are read and written.
#[derive(Clone)]
pub(super) struct Source {
    pub medium: Arc<dyn Medium>,
    pub geometry: Geometry,
    pub keys: Arc<TagKeys>,
    pub flushes: Arc<Flushes>,
    /// Where the tiles are, if not in their slots.
    pub bodies: Option<Arc<dyn Bodies>>,
}

/// Flushes of a medium, one at a time. A system tells one caller of a flush that failed, and no
/// other: so after one that failed none succeeds.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    turn: Mutex<()>,
    has_failed: AtomicBool,
    /// Position behind the last record that is durable for certain.
    durable: AtomicU64,
}

impl Flushes {
    fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flushes the medium for the device that has a part of it.
    pub fn flush_medium(&self, medium: &dyn Medium) -> io::Result<()> {
        let _turn = self.take_turn();
        if self.has_failed.load(Ordering::Acquire) {
            return Err(io::Error::other("an earlier flush failed"));
        }
        self.flush_in_turn(medium)
    }

    fn flush_in_turn(&self, medium: &dyn Medium) -> io::Result<()> {
        let flushed = medium.flush();
        if flushed.is_err() {
            self.has_failed.store(true, Ordering::Release);
        }
        flushed
    }
}

impl Source {
    pub fn new(medium: Arc<dyn Medium>, geometry: Geometry, keys: Arc<TagKeys>) -> Source {
        Source { medium, geometry, keys, flushes: Arc::default(), bodies: None }
    }

    /// Makes durable all that was written before, records up to `end` among it.
    pub fn flush(&self, end: u64) -> Result<()> {
        let _turn = self.flushes.take_turn();
        self.flush_now(end)
    }

    /// The same, unless another flush has made records durable up to `end` meanwhile.
    pub fn flush_records(&self, end: u64) -> Result<()> {
        let _turn = self.flushes.take_turn();
        if self.is_durable_to(end) && !self.has_failed() { Ok(()) } else { self.flush_now(end) }
    }

    /// The same once [`UNFLUSHED`] bytes of records wait. A flush that runs holds up nobody: it
    /// leaves fewer.
    pub fn flush_ahead(&self, end: u64) -> Result<()> {
        let durable = self.flushes.durable.load(Ordering::Acquire);
        if end.saturating_sub(durable) < UNFLUSHED {
            return Ok(());
        }
        match self.flushes.turn.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(()),
            Ok(_turn) => self.flush_now(end),
            Err(TryLockError::Poisoned(_turn)) => self.flush_now(end),
        }
    }

    fn flush_now(&self, end: u64) -> Result<()> {
        if self.has_failed() {
            return Err(Error::Failed);
        }
        let flushed = self.flushes.flush_in_turn(&*self.medium);
        flushed.map_err(|source| Error::Io { operation: "flushing", offset: 0, source })?;
        self.flushes.durable.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    pub fn is_durable_to(&self, position: u64) -> bool {
        position <= self.flushes.durable.load(Ordering::Acquire)
    }

    /// True if a flush failed: nothing more is written then.
    pub fn has_failed(&self) -> bool {
        self.flushes.has_failed.load(Ordering::Acquire)
    }

    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        write(&*self.medium, at, bytes)
    }

    /// Writes from a position of the journal on, round the ring.
    pub fn write_ring(&self, position: u64, bytes: &[u8]) -> Result<()> {
        let (at, before_end) = self.ring_place(position, bytes.len());
        let (first, second) = bytes.split_at(before_end);
        if !first.is_empty() {
            self.write(at, first)?;
        }
        if second.is_empty() { Ok(()) } else { self.write(self.geometry.journal(), second) }
    }

    pub fn read_into(&self, at: u64, out: &mut [u8]) -> Result<()> {
        read(&*self.medium, at, out)
    }

    pub fn read(&self, at: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read_into(at, &mut bytes)?;
        Ok(bytes)
    }

    /// Bytes of a stored tile, not checked yet; `None` if it was never stored.
    pub fn read_tile(&self, slots: Slots, stored: &Stored) -> Result<Option<Buffer>> {
        let Some(slot) = stored.slot else { return Ok(None) };
        if let Some(bodies) = &self.bodies {
            return Ok(bodies.read_each(&[stored.hash])?.pop().map(Buffer::from));
        }
        let mut bytes = Buffer::to_fill(Tile::SIZE);
        self.read_into(slots.slot(slot) + BLOCK, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// A tile's own bytes, of checked ones.
    pub fn opened(&self, map: u64, tile: u32, stored: Buffer) -> Result<Buffer> {
        match &self.bodies {
            None => Ok(stored),
            Some(bodies) => {
                let opened = bodies.opened(map, tile, &stored).ok_or(Error::TileDamaged(tile));
                opened.map(Buffer::from)
            }
        }
    }

    /// Adds these cells of records of a window to a sum, or takes them out.
    pub fn apply_window(&self, window: &[Entry], sum: &mut Tile, cells: &[WindowCell]) -> Result<()> {
        let mut batch = Batch::new(cells.len().clamp(1, BATCH));
        let mut buffer = vec![0; PAYLOAD];
        let buffer: &mut Payload = buffer.as_mut_slice().try_into().expect("bytes of a cell");
        for cells in cells.chunks(BATCH) {
            batch.clear();
            for cell in cells {
                let Entry { position, segment, .. } = window[cell.entry];
                let tag = self.record_cell(position, segment, cell.index, buffer)?;
                let proven = self.keys.prove(cell_id(segment, cell.index), buffer, tag);
                batch.add(proven.ok_or(Error::JournalDamaged(position))?, cell.rows);
            }
            sum.apply(&batch);
        }
        Ok(())
    }

    /// A cell of a record.
    pub fn record_cell(
        &self,
        position: u64,
        segment: ParitySegment,
        index: u16,
        out: &mut Payload,
    ) -> Result<Tag> {
        self.read_ring(position + BLOCK + u64::from(index) * PAYLOAD as u64, out)?;
        let mut tag = [0; TAG];
        self.read_ring(tags_at(position, &segment) + u64::from(index) * TAG as u64, &mut tag)?;
        Ok(Tag(tag))
    }

    /// Tags of cells of a record that lie side by side.
    pub fn record_tags(
        &self,
        position: u64,
        segment: ParitySegment,
        cells: RangeInclusive<u16>,
    ) -> Result<Vec<Tag>> {
        let mut tags = vec![0; cells.len() * TAG];
        let first = u64::from(*cells.start()) * TAG as u64;
        self.read_ring(tags_at(position, &segment) + first, &mut tags)?;
        Ok(tags.as_chunks().0.iter().map(|tag| Tag(*tag)).collect())
    }

    /// Contents of cells of a record that lie side by side, from one on.
    pub fn record_payloads(&self, position: u64, first: u16, out: &mut [Payload]) -> Result<()> {
        let at = position + BLOCK + u64::from(first) * PAYLOAD as u64;
        self.read_ring(at, out.as_flattened_mut())
    }

    /// Content of a segment from the beginning, as its record has it.
    pub fn read_mirrored(&self, position: u64, out: &mut [u8]) -> Result<()> {
        self.read_ring(position + BLOCK, out)
    }

    /// Reads from a position of the journal on, round the ring.
    pub fn read_ring(&self, position: u64, out: &mut [u8]) -> Result<()> {
        let (at, before_end) = self.ring_place(position, out.len());
        let (first, second) = out.split_at_mut(before_end);
        self.read_into(at, first)?;
        if second.is_empty() { Ok(()) } else { self.read_into(self.geometry.journal(), second) }
    }

    /// Where a position lies, and how many of the bytes lie before the ring's end.
    pub fn ring_place(&self, position: u64, length: usize) -> (u64, usize) {
        let offset = position % self.geometry.journal_size;
        let room = usize::try_from(self.geometry.journal_size - offset).unwrap_or(usize::MAX);
        (self.geometry.journal() + offset, room.min(length))
    }
}

/// A part of a medium, which is a medium itself. Flushes take turns with those of the whole: behind
/// one that failed none succeeds.
pub(super) struct Window {
    pub medium: Arc<dyn Medium>,
    pub flushes: Arc<Flushes>,
    pub at: u64,
    pub size: u64,
}

impl Window {
    fn place(&self, at: u64, length: usize) -> io::Result<u64> {
        let end = at.checked_add(length as u64).filter(|end| *end <= self.size);
        end.map(|_| self.at + at).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Medium for Window {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.medium.read(self.place(at, out.len())?, out)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.medium.write(self.place(at, bytes.len())?, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.flush_medium(&*self.medium)
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        if bytes <= self.size { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }
}
