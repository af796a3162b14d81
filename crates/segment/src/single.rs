//! Blocks on single devices. Only the pointer to a block knows its hash, so a scrub reads these
//! devices block by block, and repairs a block only from another copy of it.

use steadfast_device::SegmentPlace;
use steadfast_format::{Address, Column, Placement};

use crate::space::Space;

impl Space {
    /// Whether a part of a block lies on a single device, outside of memory.
    #[must_use]
    pub fn is_on_single_device(&self, address: Address, len: usize) -> bool {
        let parts = self.locate(address, len).unwrap_or_default();
        parts.iter().any(|part| part.open.is_none() && matches!(part.place, Placement::Plain(_)))
    }

    /// Writes a block's bytes once more where they lie, on single devices. The caller knows that
    /// they are right, and that nothing is committed meanwhile: sync context only. False if it does
    /// not lie so, or a device refuses.
    pub fn rewrite(&self, address: Address, bytes: &[u8]) -> bool {
        let padded = self.geometry.units(bytes.len()) * self.geometry.unit as usize;
        let Ok(parts) = self.locate(address, padded) else { return false };
        if !self.is_healing() || parts.iter().any(|part| part.open.is_some()) {
            return false;
        }
        let mut whole = bytes.to_vec();
        whole.resize(padded, 0);
        let mut rest = &whole[..];
        for part in &parts {
            let Placement::Plain(Column { device, slot }) = part.place else { return false };
            let (piece, after) = rest.split_at(part.bytes);
            rest = after;
            let handle = &self.devices[&device];
            if !handle.appendable {
                return false;
            }
            let place = SegmentPlace { segment: part.segment, slot, slot_size: part.column };
            let written =
                handle.device(device).and_then(|device| device.append_segment(place, part.offset, piece));
            handle.counters.wrote(piece.len(), written.is_ok());
            if written.is_err() {
                return false;
            }
            handle.counters.repaired(piece.len());
        }
        true
    }
}
