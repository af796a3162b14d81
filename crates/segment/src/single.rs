//! Blocks on single devices, and blocks of which another copy is right. Only the pointer to a block
//! on a single device knows its hash, so a scrub reads these devices block by block.

use steadfast_device::SegmentPlace;
use steadfast_format::{Address, Column, Placement};

use crate::Class;
use crate::read::Located;
use crate::space::Space;

impl Space {
    /// Whether anything lies on a single device, the intent log aside.
    #[must_use]
    pub fn has_single(&self) -> bool {
        let state = self.read_state();
        let mut rows = state.table.rows.values();
        rows.any(|row| matches!(row.place, Placement::Plain(_)) && row.class != Class::Log)
    }

    /// Whether a part of a block lies on a single device, outside of memory.
    #[must_use]
    pub fn is_on_single_device(&self, address: Address, len: usize) -> bool {
        let parts = self.locate(address, len).unwrap_or_default();
        parts.iter().any(|part| part.open.is_none() && matches!(part.place, Placement::Plain(_)))
    }

    /// Writes a block's bytes once more where they lie, because something else lies there. The
    /// caller knows that they are right: from another copy of the block. False if a part of it is
    /// in memory or has moved, or a device refuses.
    pub fn rewrite(&self, address: Address, bytes: &[u8]) -> bool {
        let padded = self.geometry.units(bytes.len()) * self.geometry.unit as usize;
        let Ok(parts) = self.locate(address, padded) else { return false };
        if !self.is_healing() || parts.iter().any(|part| part.open.is_some()) {
            return false;
        }
        let mut whole = bytes.to_vec();
        whole.resize(padded, 0);
        let mut rest = &whole[..];
        parts.iter().all(|part| {
            let (piece, after) = rest.split_at(part.bytes);
            rest = after;
            match part.place {
                Placement::Plain(column) => self.rewrite_plain(part, column, piece),
                // Of raidz, the data columns: their parity is that of the right bytes.
                _ => self.rewrite_columns(address, part, piece) > 0,
            }
        })
    }

    fn rewrite_plain(&self, part: &Located, Column { device, slot }: Column, piece: &[u8]) -> bool {
        let handle = &self.devices[&device];
        if !handle.appendable {
            return false;
        }
        let place = SegmentPlace { segment: part.segment, slot, slot_size: part.column };
        // As long as this is held no slot is given to another segment.
        let state = self.read_state();
        if state.table.place_of(part.segment).is_none_or(|place| *place != part.place) {
            return false;
        }
        let written =
            handle.device(device).and_then(|device| device.append_segment(place, part.offset, piece));
        drop(state);
        handle.counters.wrote(piece.len(), written.is_ok());
        if written.is_ok() {
            handle.counters.repaired(piece.len());
        }
        written.is_ok()
    }
}
