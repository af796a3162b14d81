//! Blocks in bytes of devices that are known to be lost.

use std::ops::Range;

use steadfast_format::{Address, DeviceId, Placement, SegmentId};

use crate::space::Space;

/// Asks whether bytes of a segment's column on a device are lost.
pub type IsLost<'a> = &'a mut dyn FnMut(DeviceId, SegmentId, Range<u32>) -> bool;

impl Space {
    /// True if some part of a copy of a block cannot be had, because each place that could give it
    /// is lost. `is_lost` is asked of every place that the copy has on devices, so a caller can
    /// note which bytes are in use. False if nothing is allocated there.
    pub fn is_copy_lost(&self, address: Address, len: usize, is_lost: IsLost<'_>) -> bool {
        let padded = self.geometry().units(len) * self.geometry().unit as usize;
        let mut is_copy_lost = false;
        for part in self.locate(address, padded).unwrap_or_default() {
            // An open segment is in memory, whole.
            if part.open.is_some() {
                continue;
            }
            let bytes = u32::try_from(part.bytes).expect("bytes of a segment");
            let range = part.offset..part.offset + bytes;
            is_copy_lost |= is_part_lost(&part.place, part.segment, &range, is_lost);
        }
        is_copy_lost
    }
}

fn is_part_lost(place: &Placement, segment: SegmentId, range: &Range<u32>, is_lost: IsLost<'_>) -> bool {
    match place {
        Placement::Plain(column) => is_lost(column.device, segment, range.clone()),
        Placement::Mirror(_) => {
            let lost = place.present().filter(|(_, column)| is_lost(column.device, segment, range.clone()));
            lost.count() == place.present().count()
        }
        Placement::Raidz { parity, chunk_shift, columns } => {
            let (parity, chunk) = (usize::from(*parity), 1_u32 << chunk_shift);
            let data = u32::try_from(columns.len() - parity).expect("few columns");
            let row_bytes = data << chunk_shift;
            let mut is_part_lost = false;
            for row in range.start / row_bytes..range.end.div_ceil(row_bytes) {
                let of_column = row * chunk..(row + 1) * chunk;
                let is_gone = |at: &u32| match columns[*at as usize] {
                    Some(column) => is_lost(column.device, segment, of_column.clone()),
                    None => true,
                };
                let all = data + u32::try_from(parity).expect("few columns");
                let gone: Vec<u32> = (0..all).filter(is_gone).collect();
                // A row gives all of its chunks, or those that are there.
                let is_asked = |at: &u32| {
                    let start = row * row_bytes + at * chunk;
                    *at < data && start < range.end && start + chunk > range.start
                };
                is_part_lost |= gone.len() > parity && gone.iter().any(is_asked);
            }
            is_part_lost
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use steadfast_format::Column;

    use super::*;

    fn column(device: u64) -> Column {
        Column { device: DeviceId(device), slot: 0 }
    }

    /// Which bytes of which devices are lost decides, and every place is asked of.
    #[test]
    fn a_part_is_lost_if_no_place_can_give_it() {
        let lost = |place: &Placement, range: Range<u32>, gone: &[(u64, Range<u32>)]| {
            let mut asked = Vec::new();
            let is_lost = is_part_lost(place, SegmentId(7), &range, &mut |device, segment, part| {
                assert_eq!(segment, SegmentId(7));
                asked.push(device.0);
                gone.iter()
                    .any(|(of, bytes)| *of == device.0 && bytes.start < part.end && bytes.end > part.start)
            });
            (is_lost, asked)
        };
        let plain = Placement::Plain(column(1));
        assert_eq!(lost(&plain, 4096..8192, &[(1, 8192..12288), (2, 0..8192)]), (false, vec![1]));
        assert_eq!(lost(&plain, 4096..8193, &[(1, 8192..12288)]), (true, vec![1]));
        let mirror = Placement::Mirror(Arc::from([Some(column(1)), None, Some(column(2))]));
        assert_eq!(lost(&mirror, 0..4096, &[(1, 0..4096)]), (false, vec![1, 2]));
        assert_eq!(lost(&mirror, 0..4096, &[(1, 0..4096), (2, 0..1)]), (true, vec![1, 2]));
        // Two columns of data and one of parity, chunks of 4,096: the second row lies at 4,096 of
        // each column, and holds 8,192 to 16,384.
        let columns = Arc::from([Some(column(1)), Some(column(2)), Some(column(3))]);
        let raidz = Placement::Raidz { parity: 1, chunk_shift: 12, columns };
        let second = [(1, 4096..8192), (3, 4096..8192)];
        assert!(lost(&raidz, 8192..12288, &second).0);
        assert!(!lost(&raidz, 12288..16384, &second).0);
        assert!(!lost(&raidz, 0..8192, &second).0);
        assert!(!lost(&raidz, 8192..12288, &second[..1]).0);
    }
}
