//! Reading: an address to its place, through relocations, and the bytes there.

use std::sync::Arc;

use steadfast_device::{Buffer, Error as DeviceError, SegmentPlace};

use steadfast_format::{Address, Column, DeviceId, Placement, SegmentId};

use crate::accounting::Wrong;
use crate::chunks::{ChunkUse, Source, fly_together};
use crate::error::ReadError;
use crate::row::{Piece, Row, Unallocated};
use crate::space::Space;
use crate::stream::OpenSegment;

/// Reads below this are not worth the few bytes that alignment costs.
const ALIGNED_BYTES_MIN: usize = 64 << 10;

/// Places looked up for one read before it gives up: each time the cleaner must have moved the
/// block meanwhile.
const LOOKUPS_MAX: usize = 4;

/// Longest block of which a copy is kept when it may be wrong: nodes of trees are shorter, and
/// copies of content are useless.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Bytes between two blocks that are read with them: a device takes longer to begin another
/// transfer than to read these.
pub const READ_GAP_MAX: u32 = 16 << 10;

/// Segments among which the one is looked for that a stream filled next: as many as other streams
/// may have filled meanwhile.
const NEIGHBOURS_MAX: usize = 64;

/// A part of a block's bytes and where they are.
pub(crate) struct Located {
    pub segment: SegmentId,
    pub place: Placement,
    /// Bytes of a slot where it lies.
    pub column: u32,
    pub offset: u32,
    pub bytes: usize,
    pub open: Option<Arc<OpenSegment>>,
    /// Bytes of its segment, and whether these are metadata, if it may be read in chunks.
    pub chunked: Option<(u32, bool)>,
}

impl Located {
    /// The first device it lies on.
    pub(crate) fn device(&self) -> DeviceId {
        self.place.present().next().map_or(DeviceId(0), |(_, column)| column.device)
    }

    /// Where it lies, if that is one place.
    pub(crate) fn plain(&self) -> Option<(DeviceId, SegmentPlace)> {
        let Placement::Plain(Column { device, slot }) = self.place else { return None };
        Some((device, SegmentPlace { segment: self.segment, slot, slot_size: self.column }))
    }
}

impl Space {
    /// Reads `len` bytes and lets `verify` judge them. Bytes that are rejected are looked for once
    /// more where the table says they lie *now*: the cleaner may have moved them meanwhile.
    pub fn read<T, E>(
        &self,
        address: Address,
        len: usize,
        verify: impl FnMut(Buffer) -> Result<T, E>,
    ) -> Result<T, ReadError<E>> {
        self.read_keeping((0, false), address, len, verify)
    }

    /// The same for who looks for what is wrong: devices are asked, and no cache of them. Rejected
    /// bytes are kept, so that they are not read a second and a third time to be put together from
    /// the rest. Readers of bytes that are right as a rule do not copy for that.
    pub fn read_doubting<T, E>(
        &self,
        address: Address,
        len: usize,
        verify: impl FnMut(Buffer) -> Result<T, E>,
    ) -> Result<T, ReadError<E>> {
        self.read_keeping((KEPT_BYTES_MAX, true), address, len, verify)
    }

    pub(crate) fn read_keeping<T, E>(
        &self,
        (kept_max, mut is_fresh): (usize, bool),
        address: Address,
        len: usize,
        mut verify: impl FnMut(Buffer) -> Result<T, E>,
    ) -> Result<T, ReadError<E>> {
        let mut tried: Option<(Vec<Located>, ReadError<E>)> = None;
        let mut blank = false;
        let mut rejected: Option<(Buffer, usize)> = None;
        for _ in 0..LOOKUPS_MAX {
            // Whole units, as they lie on the device: a transfer of those can go straight into the
            // buffer.
            let padded = self.geometry.units(len) * self.geometry.unit as usize;
            let parts = match self.locate(address, padded) {
                Ok(parts) => parts,
                Err(Unallocated) => return Err(ReadError::Unallocated { address }),
            };
            if let Some((before, _)) = &tried
                && same_places(before, &parts)
            {
                // Perhaps the bytes are right on the device and wrong in the cache of its chunks.
                if is_fresh || !self.forget_chunks(&parts) {
                    break;
                }
                is_fresh = true;
            }
            let failure = match self.fetch(&parts, padded, is_fresh) {
                Err((device, source)) => {
                    rejected = None;
                    ReadError::Device { device, source }
                }
                Ok((mut bytes, copy)) => {
                    rejected = (padded <= kept_max).then(|| (Buffer::from(bytes[..].to_vec()), copy));
                    bytes.resize(len);
                    blank = steadfast_format::is_zero(&bytes[..]);
                    match verify(bytes) {
                        Ok(value) => return Ok(value),
                        Err(verdict) => ReadError::Rejected { device: parts[0].device(), verdict },
                    }
                }
            };
            tried = Some((parts, failure));
        }
        let (parts, failure) = tried.expect("at least one place was tried");
        if let Some(value) = self.reconstruct(address, &parts, len, rejected, &mut verify) {
            return Ok(value);
        }
        if let ReadError::Rejected { device, .. } = failure {
            let wrong = if blank { Wrong::Stale } else { Wrong::Hash };
            self.devices[&device].counters.rejected(address, wrong);
        }
        Err(failure)
    }

    /// Reads blocks that lie one behind the other, with gaps of [`READ_GAP_MAX`] at most, in one
    /// transfer, for a caller that verifies each by itself; `None` if they do not lie so now, or
    /// cannot be read so. A block that fails is read again by [`Space::read`], which tries copies
    /// and reconstruction.
    pub fn read_run(&self, blocks: &[(Address, usize)]) -> Option<Vec<Buffer>> {
        self.read_side_by_side(blocks, READ_GAP_MAX, false)
    }

    /// The same for who looks for what is wrong: devices are asked, and no cache of them. The
    /// caller says how many bytes between two blocks it puts up with.
    pub fn read_run_doubting(&self, blocks: &[(Address, usize)], gap_max: u32) -> Option<Vec<Buffer>> {
        self.read_side_by_side(blocks, gap_max, true)
    }

    fn read_side_by_side(
        &self,
        blocks: &[(Address, usize)],
        gap_max: u32,
        is_fresh: bool,
    ) -> Option<Vec<Buffer>> {
        let padded = |len: usize| self.geometry.units(len) * self.geometry.unit as usize;
        let mut run: Option<Located> = None;
        // Bytes before each block that are not needed.
        let mut gaps = Vec::with_capacity(blocks.len());
        for &(address, len) in blocks {
            let mut parts = self.locate(address, padded(len)).ok()?;
            let part = parts.pop().filter(|part| parts.is_empty() && part.open.is_none())?;
            match &mut run {
                None => {
                    gaps.push(Buffer::default());
                    run = Some(part);
                }
                Some(run) => {
                    let gap = (part.offset as usize).checked_sub(run.offset as usize + run.bytes)?;
                    let apart = run.segment != part.segment || run.place != part.place;
                    if apart || gap > gap_max as usize {
                        return None;
                    }
                    gaps.push(if gap > 0 { room_for(gap) } else { Buffer::default() });
                    run.bytes += gap + part.bytes;
                }
            }
        }
        let run = run?;
        let mut buffers: Vec<Buffer> = blocks.iter().map(|&(_, len)| room_for(padded(len))).collect();
        let mut outs: Vec<&mut [u8]> = Vec::with_capacity(2 * blocks.len());
        for (gap, buffer) in gaps.iter_mut().zip(&mut buffers) {
            outs.extend(Some(&mut gap[..]).filter(|gap| !gap.is_empty()));
            outs.push(&mut buffer[..]);
        }
        if is_fresh || !self.read_chunks(&run, &mut outs) {
            self.read_part(&run, &mut outs).ok()?;
        }
        for (buffer, (_, len)) in buffers.iter_mut().zip(blocks) {
            buffer.resize(*len);
        }
        Some(buffers)
    }

    pub(crate) fn locate(&self, address: Address, len: usize) -> Result<Vec<Located>, Unallocated> {
        let state = self.read_state();
        let (unit, units) = state.table.units_of(address, len)?;
        let pieces = match state.provisional.get(&address.segment) {
            Some(_) => vec![Piece { segment: address.segment, unit, units }],
            None => state.table.resolve(address.segment, unit, units)?,
        };
        let mut left = len;
        let located = pieces.into_iter().map(|piece| {
            let row = state.table.taken_row(piece.segment);
            let place = match state.provisional.get(&piece.segment) {
                Some((place, _)) => place,
                None => row.map(|row| &row.place).ok_or(Unallocated)?,
            };
            let bytes = left.min(piece.units as usize * self.geometry.unit as usize);
            left -= bytes;
            Ok(Located {
                segment: piece.segment,
                column: state.table.column_bytes(place),
                place: place.clone(),
                offset: piece.unit * self.geometry.unit,
                bytes,
                open: state.open.get(&piece.segment).cloned(),
                chunked: match state.provisional.get(&piece.segment) {
                    Some((place, end)) => {
                        self.is_chunked(place).then(|| (end.saturating_mul(self.geometry.unit), true))
                    }
                    None => row.and_then(|row| self.chunked(row)),
                },
            })
        });
        located.collect()
    }

    /// Bytes of a segment, and whether these are metadata, if it is closed and its device is one of
    /// whole objects.
    fn chunked(&self, row: &Row) -> Option<(u32, bool)> {
        let is_chunked = !row.open && self.is_chunked(&row.place);
        is_chunked.then(|| (row.filled * self.geometry.unit, row.class.copy_index().is_some()))
    }

    fn is_chunked(&self, place: &Placement) -> bool {
        matches!(place, Placement::Plain(Column { device, .. }) if !self.devices[device].appendable)
    }

    fn source_of(&self, part: &Located) -> Option<Source> {
        let ((end, is_metadata), (device, place)) = part.chunked.zip(part.plain())?;
        let handle = &self.devices[&device];
        let (device, counters) = (handle.in_use()?, Arc::clone(&handle.counters));
        Some(Source { device, counters, place, end, is_metadata })
    }

    /// The segment that a stream filled after this one, if it is on a device of whole objects.
    fn next_source(&self, segment: SegmentId) -> Option<Source> {
        let part = {
            let state = self.read_state();
            let row = state.table.rows.get(&segment)?;
            let mut behind = state.table.rows.range(SegmentId(segment.0 + 1)..).take(NEIGHBOURS_MAX);
            let (next, row) = behind.find(|(_, next)| (next.owner, next.class) == (row.owner, row.class))?;
            let (place, column) = (row.place.clone(), state.table.column_bytes(&row.place));
            let chunked = self.chunked(row);
            Located { segment: *next, place, column, offset: 0, bytes: 0, open: None, chunked }
        };
        self.source_of(&part)
    }

    /// Reads a part through the cache of chunks. False if its device is to be asked.
    fn read_chunks(&self, part: &Located, outs: &mut [&mut [u8]]) -> bool {
        let Some(source) = self.source_of(part) else { return false };
        let next = |segment| self.next_source(segment);
        self.chunks.read(&self.env, &source, part.offset, outs, &next)
    }

    /// Drops the chunks of bytes that were not right. False if none of them can have come from the
    /// cache.
    fn forget_chunks(&self, parts: &[Located]) -> bool {
        let chunked = parts.iter().filter(|part| part.chunked.is_some());
        chunked.map(|part| self.chunks.forget(part.segment, part.offset, part.bytes)).count() > 0
    }

    /// Brings blocks that will be read next: all chunks that they lack are asked for side by side.
    /// True if each of them can now be read without waiting, as far as is known.
    pub fn bring(&self, blocks: &[(Address, usize)]) -> bool {
        self.bring_around(blocks, 0)
    }

    /// The same with what lies around each of them: the whole object, if it has at most so many
    /// bytes, and else half of these before the block and half behind it.
    pub fn bring_around(&self, blocks: &[(Address, usize)], around: usize) -> bool {
        if !self.has_objects() {
            return false;
        }
        let next = |segment| self.next_source(segment);
        let (mut plans, mut is_all) = (Vec::with_capacity(blocks.len()), true);
        for &(address, len) in blocks {
            let padded = self.geometry.units(len) * self.geometry.unit as usize;
            let parts = self.locate(address, padded).unwrap_or_default();
            is_all &= !parts.is_empty();
            for part in parts.iter().filter(|part| part.open.is_none()) {
                let plan = self.source_of(part).and_then(|source| {
                    let (range, wide) =
                        ((part.offset, part.bytes), source.around(part.offset, part.bytes, around));
                    let plan = |range| self.chunks.plan(&self.env, &source, range, &next);
                    plan(wide).or_else(|| (wide != range).then(|| plan(range))?)
                });
                is_all &= plan.is_some();
                plans.extend(plan);
            }
        }
        fly_together(plans);
        is_all
    }

    /// Brings chunks in which many of these blocks lie, in the background.
    pub fn bring_later(&self, blocks: &[(Address, usize)]) {
        let mut pieces = Vec::with_capacity(blocks.len());
        for &(address, len) in blocks {
            let padded = self.geometry.units(len) * self.geometry.unit as usize;
            for part in self.locate(address, padded).unwrap_or_default() {
                pieces.extend(self.source_of(&part).map(|source| (source, part.offset, part.bytes)));
            }
        }
        self.chunks.bring(&self.env, &pieces);
    }

    /// How many bytes the cache of chunks may hold.
    pub fn set_chunk_bytes(&self, bytes: usize) {
        self.chunks.set_bytes_max(bytes);
    }

    /// Use of the cache of chunks.
    #[must_use]
    pub fn chunk_use(&self) -> ChunkUse {
        self.chunks.used()
    }

    /// Says whether devices of whole objects are asked only for what a reader waits for.
    pub fn hold_read_ahead(&self, is_held: bool) {
        self.chunks.hold_ahead(is_held);
    }

    /// Ends reading ahead for good; when this returns nothing is read in the background any more.
    pub fn stop_read_ahead(&self) {
        self.chunks.stop();
    }

    /// The bytes of parts as they lie, and from which copy the last of them is.
    pub(crate) fn fetch(
        &self,
        parts: &[Located],
        len: usize,
        is_fresh: bool,
    ) -> Result<(Buffer, usize), (DeviceId, DeviceError)> {
        let mut bytes = room_for(len);
        let (mut rest, mut copy) = (&mut bytes[..], 0);
        for part in parts {
            let (out, after) = rest.split_at_mut(part.bytes);
            rest = after;
            match &part.open {
                Some(open) => open.read(part.offset as usize, out),
                None if !is_fresh && self.read_chunks(part, &mut [&mut *out]) => {}
                None => copy = self.read_part(part, &mut [out])?,
            }
        }
        Ok((bytes, copy))
    }

    /// Reads a part that is not in memory as it lies, into buffers that follow each other. Gives
    /// which copy of a mirror it is.
    pub(crate) fn read_part(
        &self,
        part: &Located,
        outs: &mut [&mut [u8]],
    ) -> Result<usize, (DeviceId, DeviceError)> {
        let bytes = outs.iter().map(|out| out.len()).sum();
        if let Some((device, place)) = part.plain() {
            let handle = &self.devices[&device];
            let result = handle.device(device).and_then(|device| match outs {
                [out] => device.read_segment(place, part.offset, out),
                outs => device.read_segment_parts(place, part.offset, outs),
            });
            handle.counters.read(bytes, result.is_ok());
            return result.map(|()| 0).map_err(|source| (device, source));
        }
        let result = self.columns_of(part).read_straight(part.offset as usize, outs);
        self.note_read(part, bytes, result.as_ref().err().map(|(column, _)| *column));
        result.map_err(|(index, source)| {
            let device =
                part.place.columns().nth(index).flatten().map_or(DeviceId(0), |column| column.device);
            let missing =
                || DeviceError::NotInUse { device: format!("column {index} of segment {}", part.segment) };
            (device, source.unwrap_or_else(missing))
        })
    }

    pub(crate) fn read_place(
        &self,
        device: DeviceId,
        place: SegmentPlace,
        offset: u32,
        out: &mut [u8],
    ) -> Result<(), DeviceError> {
        let handle = &self.devices[&device];
        let result = handle.device(device).and_then(|device| device.read_segment(place, offset, out));
        handle.counters.read(out.len(), result.is_ok());
        result
    }
}

/// Bytes to be filled. Small ones go through the page cache, where alignment is useless.
fn room_for(len: usize) -> Buffer {
    if len < ALIGNED_BYTES_MIN { Buffer::from(vec![0; len]) } else { Buffer::to_fill(len) }
}

pub(crate) fn same_places(left: &[Located], right: &[Located]) -> bool {
    let same = |left: &Located, right: &Located| {
        (left.segment, left.offset, left.bytes) == (right.segment, right.offset, right.bytes)
            && left.place == right.place
    };
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
}
