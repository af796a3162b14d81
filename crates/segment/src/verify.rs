//! Faults in the columns of a segment, reported and not mended: for a pool that is open for
//! reading only.

use steadfast_format::{Checksums, Column, DeviceId, SegmentId};
use steadfast_vdev::Layout;
use steadfast_vdev::parity::generate;

use crate::accounting::Wrong;
use crate::groups;
use crate::mend::{Mended, SegmentRepair};
use crate::space::Space;

/// Something wrong with the columns of one segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ColumnFault {
    /// Its row in the table names no device for a column. (The caller knows the devices that the
    /// pool does without.)
    Missing {
        /// Which column.
        column: usize,
    },
    /// A column cannot be read.
    Unreadable {
        /// Which column.
        column: usize,
        /// Where it lies.
        device: DeviceId,
    },
    /// A chunk of a column has another checksum than is stored.
    Chunk {
        /// Which column.
        column: usize,
        /// Where it lies.
        device: DeviceId,
        /// Which row.
        row: usize,
        /// The fault.
        wrong: Wrong,
    },
    /// All chunks of a row are there, and parity or copies do not fit the rest.
    Parity {
        /// Which row.
        row: usize,
    },
    /// More columns of a row are wrong or missing than redundancy makes up for.
    Lost {
        /// Which row.
        row: usize,
        /// How many.
        wrong: usize,
        /// How many there may be.
        spared: usize,
    },
    /// Fewer checksums are stored than the segment has chunks.
    Sums {
        /// Checksums stored.
        stored: usize,
        /// Chunks.
        wanted: usize,
    },
}

impl Space {
    /// Reads all columns of a closed segment and compares them: with the checksums `sums` where the
    /// segment has some, and parity and copies with each other. Tells what is wrong and changes
    /// nothing. Segments of one column have nothing to compare.
    pub fn verify_columns(
        &self,
        id: SegmentId,
        sums: &[[u8; Checksums::SIZE]],
        found: &mut dyn FnMut(ColumnFault),
    ) {
        let wanted = self.checksums_wanted(id);
        if sums.len() < wanted {
            found(ColumnFault::Sums { stored: sums.len(), wanted });
            return;
        }
        let mut report = Mended::default();
        let Some(repair) = self.examine(id, sums, &mut report) else { return };
        for (column, place) in repair.row.place.columns().enumerate() {
            let read = repair.columns[column].is_some();
            match place {
                Some(Column { device, .. }) if !read && self.is_in_use(device) => {
                    found(ColumnFault::Unreadable { column, device });
                }
                None => found(ColumnFault::Missing { column }),
                _ => {}
            }
        }
        for (column, row, wrong) in &repair.wrong {
            let place = repair.row.place.columns().nth(*column).flatten();
            let device = place.map_or(DeviceId(0), |place| place.device);
            found(ColumnFault::Chunk { column: *column, device, row: *row, wrong: *wrong });
        }
        let spared = repair.row.place.redundancy();
        for (row, bad) in repair.bad.iter().enumerate() {
            if bad.len() > spared {
                found(ColumnFault::Lost { row, wrong: bad.len(), spared });
            } else if bad.is_empty() && !repair.fits_together(row) {
                found(ColumnFault::Parity { row });
            }
        }
    }
}

impl SegmentRepair {
    /// True if the parity of a row, of which every column was read, is that of its data; or if its
    /// copies are alike.
    fn fits_together(&self, row: usize) -> bool {
        let at = row * self.chunk..(row + 1) * self.chunk;
        let chunks: Option<Vec<&[u8]>> =
            self.columns.iter().map(|column| column.as_ref().map(|bytes| &bytes[at.clone()])).collect();
        let Some(chunks) = chunks else { return true };
        match groups::layout(&self.row.place) {
            Layout::Mirror => chunks.iter().all(|copy| *copy == chunks[0]),
            Layout::Raidz(stripe) => {
                let (data, stored) = chunks.split_at(stripe.data());
                let mut parity = vec![vec![0; self.chunk]; stripe.parity()];
                generate(data, &mut parity.iter_mut().map(|column| &mut column[..]).collect::<Vec<_>>());
                parity.iter().zip(stored).all(|(computed, stored)| computed[..] == **stored)
            }
        }
    }
}
