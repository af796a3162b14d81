//! Appending blocks to open segments, and writing these to their devices.

use std::sync::{Arc, RwLock};

use steadfast_env::brief;
use steadfast_format::{Address, DatasetId};

use crate::Class;
use crate::error::Error;
use crate::redundant::piece_bytes;
use crate::space::{Space, lock};
use crate::stream::{Filling, OpenSegment, Stream, WRITE_BYTES};

impl Space {
    /// Appends a block to the open segment of its stream. Its bytes are in memory when this returns
    /// and on the device after [`Space::flush_open`] and [`Space::flush_devices`].
    ///
    /// Content in small blocks for which special groups have no room is stored as content.
    pub fn append(&self, owner: DatasetId, class: Class, bytes: &[u8]) -> Result<Address, Error> {
        match self.append_as(owner, class, bytes) {
            Err(Error::NoSpace) if class == Class::Small => self.append_as(owner, Class::Data, bytes),
            result => result,
        }
    }

    pub(crate) fn append_as(&self, owner: DatasetId, class: Class, bytes: &[u8]) -> Result<Address, Error> {
        assert!(!bytes.is_empty(), "a block has bytes");
        if bytes.len() > self.geometry.slot_size as usize {
            return Err(Error::TooLarge { bytes: bytes.len(), slot_size: self.geometry.slot_size });
        }
        self.make_way()?;
        let stream = self.stream(owner, class);
        let mut stream = stream.lock();
        let units = u32::try_from(self.geometry.units(bytes.len())).expect("checked against the slot size");
        self.make_room(&mut stream, owner, class, units, false)?;
        let filling = stream.open.as_mut().expect("room was made");
        let segment = filling.segment.id;
        let offset = filling.segment.push(bytes, self.geometry.unit);
        self.appended(&mut stream, units)?;
        drop(stream);
        self.start_uploads();
        Ok(Address { segment, offset })
    }

    /// Appends as many whole units of `bytes` as the open segment takes, opening one if there is
    /// none: the cleaner's way to pack. `bytes` is a multiple of the unit. Gives the address and
    /// the units taken.
    pub(crate) fn append_part(
        &self,
        owner: DatasetId,
        class: Class,
        bytes: &[u8],
    ) -> Result<(Address, u32), Error> {
        self.make_way()?;
        let stream = self.stream(owner, class);
        let mut stream = stream.lock();
        self.make_room(&mut stream, owner, class, 1, true)?;
        let filling = stream.open.as_mut().expect("room was made");
        let room = self.cleaner_units(&self.read_state(), filling.segment.id);
        let wanted = u32::try_from(bytes.len() / self.geometry.unit as usize).unwrap_or(u32::MAX);
        let units = room.min(wanted);
        if units == 0 {
            return Err(Error::NoSpace);
        }
        let segment = filling.segment.id;
        let part = &bytes[..units as usize * self.geometry.unit as usize];
        let offset = filling.segment.push(part, self.geometry.unit);
        self.appended(&mut stream, units)?;
        drop(stream);
        self.start_uploads();
        Ok((Address { segment, offset }, units))
    }

    /// Bytes were pushed: the table learns of it, and the device gets whole pieces.
    pub(crate) fn appended(&self, stream: &mut Stream, units: u32) -> Result<(), Error> {
        let filling = stream.open.as_mut().expect("something was pushed");
        filling.filled_units += units;
        self.write_state().table.extend(filling.segment.id, units);
        if filling.filled_units == filling.segment.capacity_units {
            return self.close(stream);
        }
        let least = piece_bytes(&filling.segment);
        self.write_out(filling, least)
    }

    /// Sees to it that the stream has an open segment with room for `units`.
    pub(crate) fn make_room(
        &self,
        stream: &mut Stream,
        owner: DatasetId,
        class: Class,
        units: u32,
        for_cleaner: bool,
    ) -> Result<(), Error> {
        if let Some(filling) = &stream.open {
            if filling.segment.capacity_units - filling.filled_units >= units {
                return Ok(());
            }
            self.close(stream)?;
        }
        let mut state = self.write_state();
        let floor = self.floor(&state, class, for_cleaner).ok_or(Error::NoSpace)?;
        let id = state.table.allocate(owner, class, floor, units).ok_or(Error::NoSpace)?;
        let row = &state.table.rows[&id];
        let (place, column) = (row.place.clone(), state.table.groups[row.group].column);
        let capacity_units = state.table.capacity_units(row);
        let row = (state.table.row_units(row) * self.geometry.unit) as usize;
        let bytes = RwLock::new(Arc::new(self.spare.take(self.geometry.slot_size)));
        let segment = Arc::new(OpenSegment { id, place, column, row, capacity_units, bytes });
        state.open.insert(id, Arc::clone(&segment));
        stream.open = Some(Filling { segment, filled_units: 0, written: 0 });
        Ok(())
    }

    /// Writes what the device does not have, if it is at least `least` bytes, to a device that can
    /// be appended to. Under the lock of the stream, as that is the order of its writes.
    pub(crate) fn write_out(&self, filling: &mut Filling, least: usize) -> Result<(), Error> {
        brief::excused(|| self.write_pieces(filling, least))
    }

    fn write_pieces(&self, filling: &mut Filling, least: usize) -> Result<(), Error> {
        let Some((device, place)) = filling.segment.plain() else { return self.write_rows(filling, least) };
        let handle = &self.devices[&device];
        let bytes = filling.segment.bytes.read().expect("no append panics");
        while handle.appendable && bytes.len() - filling.written >= least.max(1) {
            let end = bytes.len().min(filling.written + WRITE_BYTES);
            let piece = &bytes[filling.written..end];
            let offset = u32::try_from(filling.written).expect("segments are far below 4 GiB");
            let result = handle.device(device).and_then(|device| device.append_segment(place, offset, piece));
            handle.counters.wrote(piece.len(), result.is_ok());
            // `written` stays where it was on failure: a flush may be tried again.
            result.map_err(|source| Error::Device { device, source })?;
            filling.written = end;
        }
        Ok(())
    }

    /// Fills up the last row, so that it can be written [redundant.1].
    pub(crate) fn pad_stream(&self, filling: &mut Filling) {
        if filling.segment.plain().is_some() {
            return;
        }
        let units = self.write_state().table.pad(filling.segment.id);
        filling.segment.pad((units * self.geometry.unit) as usize);
        filling.filled_units += units;
    }

    /// Writes all rows of file content and of metadata of datasets that are begun, so that the
    /// table knows them whole: before the changes of a commit are taken the last time. Does nothing
    /// to segments of one column.
    pub fn seal_rows(&self) -> Result<(), Error> {
        let streams: Vec<_> = lock(&self.streams)
            .iter()
            .filter(|((_, class), _)| !class.is_pool())
            .map(|(_, stream)| Arc::clone(stream))
            .collect();
        for stream in streams {
            let mut stream = stream.lock();
            if let Some(filling) = &mut stream.open
                && filling.segment.plain().is_none()
            {
                self.pad_stream(filling);
                self.write_out(filling, 1)?;
            }
        }
        Ok(())
    }

    /// Ends the stream's open segment: a device that can be appended to gets all of it, then memory
    /// forgets it; to others it is on its way. On failure it stays open.
    pub(crate) fn close(&self, stream: &mut Stream) -> Result<(), Error> {
        let Some(filling) = stream.open.as_mut() else { return Ok(()) };
        let segment = Arc::clone(&filling.segment);
        if !self.is_appendable(&segment) {
            stream.open = None;
            self.leave(segment);
            return Ok(());
        }
        self.pad_stream(filling);
        self.write_out(filling, 1)?;
        stream.open = None;
        self.end(segment);
        Ok(())
    }

    pub(crate) fn flush_stream(&self, stream: &mut Stream) -> Result<(), Error> {
        match &mut stream.open {
            None => Ok(()),
            Some(filling) if self.is_appendable(&filling.segment) => {
                self.pad_stream(filling);
                self.write_out(filling, 1)
            }
            Some(_) => self.close(stream),
        }
    }

    /// Memory that open segments, segments on their way and spare buffers hold, in bytes.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        let open: Vec<Arc<OpenSegment>> = self.read_state().open.values().cloned().collect();
        let held =
            |segment: &Arc<OpenSegment>| segment.bytes.read().expect("no append panics").memory_bytes();
        open.iter().map(held).sum::<usize>() + self.spare.memory_bytes()
    }
}
