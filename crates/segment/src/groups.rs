//! Groups: devices that keep segments together. How many segments a group can take, and what a
//! segment of it looks like.
//!
//! A segment takes a slot on each of `width` devices of its group, those with the most free slots.
//! Devices may differ in size, so what a group can still take is the greatest m with
//!
//! ```text
//! sum over its devices of min(free slots, m)  >=  m * width
//! ```
//!
//! because no device takes part in a segment twice; taking from the fullest never reaches less.
//! That number is what everybody else in this room calls free slots. While devices are away a
//! segment has as many columns as devices are there, but never fewer than are needed to read it:
//! what is missing is made up for by a resilver.
//!
//! A group with parity whose devices differ so much that some would stay partly empty has *narrow*
//! segments as well, of fewer columns, and counts what they come to: `uneven.rs`.

use steadfast_format::{DeviceId, GroupClass, Placement};
use steadfast_vdev::{Layout, Stripe};

use crate::Class;
use crate::geometry::Geometry;

/// Bytes of a chunk of file content at most: large enough that a record is few transfers, small
/// enough that it spreads over devices.
const CHUNK_BYTES_MAX: u32 = 16 << 10;
/// Chunks that a segment has at least: less would be lost when rows are filled up.
const CHUNKS_MIN: u32 = 64;

/// How a group keeps the segments that lie on it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Redundancy {
    /// One device, every byte once.
    None,
    /// Every column holds all bytes.
    Mirror,
    /// Rows with so many columns of parity.
    Raidz(u8),
}

impl Redundancy {
    /// Columns that a segment of `width` can do without.
    #[must_use]
    pub fn spared(self, width: u32) -> u32 {
        match self {
            Redundancy::None => 0,
            Redundancy::Mirror => width.saturating_sub(1),
            Redundancy::Raidz(parity) => u32::from(parity).min(width.saturating_sub(1)),
        }
    }

    /// Bytes of a slot on the devices of a group, for segments in `width` columns: whole chunks.
    #[must_use]
    pub fn column_bytes(self, width: u32, geometry: Geometry) -> u32 {
        match self {
            Redundancy::None | Redundancy::Mirror => geometry.slot_size,
            Redundancy::Raidz(parity) => {
                let data = width - u32::from(parity);
                let chunk = chunk_bytes(Class::Data, geometry);
                geometry.slot_size.div_ceil(data * chunk) * chunk
            }
        }
    }
}

/// A group, and what is free on it.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub redundancy: Redundancy,
    /// Class of its content.
    pub class: GroupClass,
    /// Columns of a new segment, if all devices are there.
    pub width: u32,
    /// Bytes of a slot on its devices.
    pub column: u32,
    pub devices: Vec<DeviceId>,
    pub counts: Counts,
    /// Columns of data of its segments, emptied ones among them.
    pub held_columns: u64,
    /// Units that the emptied ones give back.
    pub emptied_units: u64,
    /// Units that only the checkpoint needs [kept.3].
    pub kept_units: u64,
    /// Segments, emptied ones among them, that hold less than a slot for want of columns.
    pub narrow_rows: u32,
    /// Columns that rows lack.
    pub missing: u32,
    /// Units that live in its segments.
    pub live_units: u64,
}

/// Segments and units that a group can take.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    /// Segments that can be taken now, and that there could be; of a narrow group what its units
    /// come to in whole ones.
    pub free: u32,
    pub total: u32,
    /// The same in units.
    pub free_units: u64,
    pub total_units: u64,
    /// Columns of data that can be taken now.
    pub free_columns: u64,
    /// New segments may have fewer columns than `width`, because the group holds more so.
    pub narrow: bool,
    /// It has parity, and more devices than columns: what one of them has free is of use only
    /// beside what others have.
    pub surplus: bool,
}

impl Group {
    /// Columns that a new segment has while so many devices are in use; `None` if it could not be
    /// read back.
    pub fn width_of(&self, usable: usize) -> Option<u32> {
        let width = u32::try_from(usable).unwrap_or(u32::MAX).min(self.width);
        (width > 0 && width + self.redundancy.spared(self.width) >= self.width).then_some(width)
    }

    /// Where a new segment of a class lies, in the columns it was given.
    pub fn placement(
        &self,
        class: Class,
        geometry: Geometry,
        columns: Vec<Option<steadfast_format::Column>>,
    ) -> Placement {
        match self.redundancy {
            Redundancy::None => Placement::Plain(columns[0].expect("the only device is there")),
            Redundancy::Mirror => Placement::Mirror(columns.into()),
            // The log is written over in pieces of its own, so it cannot have rows.
            Redundancy::Raidz(_) if class == Class::Log => Placement::Mirror(columns.into()),
            Redundancy::Raidz(parity) => Placement::Raidz {
                parity,
                chunk_shift: u8::try_from(chunk_bytes(class, geometry).ilog2()).expect("below 32"),
                columns: columns.into(),
            },
        }
    }

    /// Columns of a new segment of a class, if all devices are there.
    pub fn columns_of(&self, class: Class) -> u32 {
        match self.redundancy {
            Redundancy::Raidz(parity) if class == Class::Log => u32::from(parity) + 1,
            _ => self.width,
        }
    }

    /// Columns of data of a whole segment; what is not spread over any has one.
    pub fn data(&self) -> u32 {
        match self.redundancy {
            Redundancy::None | Redundancy::Mirror => 1,
            Redundancy::Raidz(parity) => self.width.saturating_sub(parity.into()).max(1),
        }
    }

    /// Columns of data of a segment.
    pub fn data_of(&self, place: &Placement) -> u32 {
        match (place, self.redundancy) {
            (Placement::Raidz { parity, columns, .. }, Redundancy::Raidz(_)) => {
                let data = columns.len().saturating_sub(usize::from(*parity)).max(1);
                u32::try_from(data).unwrap_or(u32::MAX).min(self.data())
            }
            // The log in a group with parity: one column, in copies.
            (_, Redundancy::Raidz(_)) => 1,
            _ => self.data(),
        }
    }

    /// Units that so many columns of data hold between them, in segments of whatever width.
    pub fn units_in(&self, columns: u64, geometry: Geometry) -> u64 {
        columns * u64::from(geometry.slot_units()) / u64::from(self.data())
    }

    /// Units that a segment of a class takes where it lies: its part of a slot if it has fewer
    /// columns than its group [uneven.1]. That is rounded up, and fits its columns nevertheless, as
    /// these are whole chunks.
    pub fn capacity_of(&self, place: &Placement, class: Class, geometry: Geometry) -> u32 {
        if class == Class::Log {
            return self.column.min(geometry.slot_size) / geometry.unit;
        }
        let units = u64::from(self.data_of(place)) * u64::from(geometry.slot_units());
        u32::try_from(units.div_ceil(self.data().into())).expect("a slot at most")
    }
}

/// Bytes of a chunk of a segment.
pub(crate) fn chunk_bytes(class: Class, geometry: Geometry) -> u32 {
    match class {
        Class::Data | Class::Clean | Class::Small => {
            (geometry.slot_size / CHUNKS_MIN).min(CHUNK_BYTES_MAX).max(geometry.unit)
        }
        _ => geometry.unit,
    }
}

/// Units of a row: a redundant segment is written in whole ones.
pub(crate) fn row_units(place: &Placement, class: Class, geometry: Geometry) -> u32 {
    match place {
        Placement::Plain(_) => 1,
        Placement::Mirror(_) if class == Class::Log => 1,
        Placement::Mirror(_) => chunk_bytes(class, geometry) / geometry.unit,
        Placement::Raidz { parity, chunk_shift, columns } => {
            let data = u32::try_from(columns.len()).expect("at most 32") - u32::from(*parity);
            ((data << chunk_shift) / geometry.unit).max(1)
        }
    }
}

/// The same as the room `vdev` sees it.
pub(crate) fn layout(place: &Placement) -> Layout {
    match place {
        Placement::Plain(_) | Placement::Mirror(_) => Layout::Mirror,
        Placement::Raidz { parity, chunk_shift, columns } => {
            let parity = usize::from(*parity);
            Layout::Raidz(Stripe::new(columns.len() - parity, parity, 1 << chunk_shift))
        }
    }
}

/// Segments of `width` columns that devices with so many free slots take.
pub(crate) fn formable(free: &[u32], width: u32) -> u32 {
    let takes = |count: u64| {
        free.iter().map(|&free| u64::from(free).min(count)).sum::<u64>() >= count * u64::from(width)
    };
    let all: u64 = free.iter().map(|&free| u64::from(free)).sum();
    let (mut least, mut most) = (0, all / u64::from(width.max(1)));
    while least < most {
        let middle = (least + most).div_ceil(2);
        if takes(middle) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    u32::try_from(least).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes segments one by one from the devices with the most free slots.
    fn taken_greedily(free: &[u32], width: usize) -> u32 {
        let (mut free, mut count) = (free.to_vec(), 0);
        loop {
            free.sort_unstable_by(|a, b| b.cmp(a));
            if free.len() < width || free[width - 1] == 0 {
                return count;
            }
            free[..width].iter_mut().for_each(|slots| *slots -= 1);
            count += 1;
        }
    }

    #[test]
    fn what_a_group_can_take_is_what_taking_from_the_fullest_reaches() {
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..2000 {
            let devices = 1 + random(8) as usize;
            let free: Vec<u32> = (0..devices).map(|_| random(20) as u32).collect();
            for width in 1..=devices {
                assert_eq!(
                    formable(&free, width as u32),
                    taken_greedily(&free, width),
                    "{free:?} by {width}"
                );
            }
        }
        assert_eq!(formable(&[], 1), 0);
        assert_eq!(formable(&[5], 2), 0);
        assert_eq!(formable(&[u32::MAX; 32], 4), u32::MAX, "as many as can be counted");
    }

    #[test]
    fn columns_hold_segments_of_both_chunk_sizes() {
        let geometry = Geometry { slot_size: 1 << 20, unit: 4096 };
        for width in 2..=32_u32 {
            for parity in 1..=3_u8 {
                if u32::from(parity) >= width {
                    continue;
                }
                let column = Redundancy::Raidz(parity).column_bytes(width, geometry) as usize;
                for class in [Class::Data, Class::Meta0] {
                    let data = (width - u32::from(parity)) as usize;
                    let stripe = Stripe::new(data, parity.into(), chunk_bytes(class, geometry) as usize);
                    assert!(stripe.column_bytes(geometry.slot_size as usize) <= column, "{width} {parity}");
                }
            }
        }
        assert_eq!(Redundancy::Mirror.column_bytes(3, geometry), 1 << 20);
    }
}
