//! Blocks of two snapshots that are put in order together, for raw streams.

use std::collections::BTreeMap;
use steadfast_format::BlockPointer;
use steadfast_format::InodeId;
use steadfast_format::Stamp;
use steadfast_refs::raw_source::file_of;
use steadfast_refs::raw_source::offset_of;

/// Where a block lies in a raw dataset: what they are ordered by.
pub(crate) type Place = (InodeId, u64);

pub(crate) fn place_of(stamp: &Stamp) -> Place {
    (file_of(&stamp.salt), offset_of(stamp))
}

/// Which of two trees names a block.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Named {
    pub target: bool,
    pub base: bool,
}

/// Blocks of two snapshots, of one range of places.
#[derive(Default)]
pub(crate) struct Batch {
    pub blocks: BTreeMap<Place, (BlockPointer, Named)>,
    /// From this place on blocks were left out.
    pub end: Option<Place>,
}

impl Batch {
    pub fn add(&mut self, after: Option<Place>, pointer: &BlockPointer, is_target: bool) {
        let place = place_of(&pointer.stamp);
        if after.is_some_and(|after| place <= after) || self.end.is_some_and(|end| place >= end) {
            return;
        }
        let (_, named) = self.blocks.entry(place).or_insert((*pointer, Named::default()));
        if is_target {
            named.target = true
        } else {
            named.base = true
        }
        self.bound();
    }

    /// A block of the target, of which it is known whether it is as old as the base. It is younger
    /// if any reference to it is.
    pub fn add_told(&mut self, after: Option<Place>, pointer: &BlockPointer, is_old: bool) {
        let place = place_of(&pointer.stamp);
        if after.is_some_and(|after| place <= after) || self.end.is_some_and(|end| place >= end) {
            return;
        }
        let (_, named) = self.blocks.entry(place).or_insert((*pointer, Named { target: true, base: true }));
        named.base &= is_old;
        self.bound();
    }

    fn bound(&mut self) {
        if self.blocks.len() > AT_ONCE {
            self.end = self.blocks.pop_last().map(|(place, _)| place);
        }
    }
}

/// Blocks that are put in order at once: some 100 MiB.
pub(crate) const AT_ONCE: usize = 1 << 19;
