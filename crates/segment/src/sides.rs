//! Two sides of a pool: its normal groups, and its special ones, if it has any (ZFS: allocation
//! classes, `vdev_alloc_bias`).
//!
//! | class                             | where a new segment goes |
//! |-----------------------------------|---|
//! | metadata of datasets, of the pool | a special group with a free slot, else a normal one |
//! | content in small blocks           | a special group, as long as a quarter of that side is free and metadata has what it may need; else it is stored as content |
//! | content, what was cleaned, the log | a normal group |
//!
//! Content that does not fit on the normal side is refused, however much is free on the other: on
//! the special side slots would be used up by what is written once and read in order, as everything
//! that is free is written before anything is cleaned.
//!
//! ## Invariants
//! [sides.1] A segment of content or of the log never lies on a special group.
//!      assert: `Table::check`
//! [sides.2] Admission counts the normal side alone, less what metadata needs beyond what the
//!      special side has free: so what is let in finds room whatever becomes of the special side,
//!      and a special side that is full, or too small, is slower and nothing else.
//! [sides.3] Content in small blocks leaves to metadata what [sides.2] counts on.
//!      `Table::small_floor`
//!
//! Each side is cleaned by its own need: a special side whose slots all hold something dead would
//! send metadata to the other one. It is cleaned in commits that are made anyway, and only of
//! victims of which an eighth is dead: where nearly all of it lives, the other side takes what is
//! too much, and cleaning would gain nothing.

use crate::Class;
use crate::geometry::signed;
use crate::groups::Group;
use crate::row::Row;
use crate::side::{Headroom, Side};
use crate::table::Table;

/// Part of the special side that content in small blocks leaves to metadata. OpenZFS:
/// `special_class_metadata_reserve_pct`, 25.
const METADATA_SHARE: u32 = 4;

impl Table {
    pub fn of_side(&self, side: Side) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(move |group| group.side() == side)
    }

    /// Whether the pool has special groups.
    pub fn has_special(&self) -> bool {
        self.of_side(Side::Special).any(|group| !group.devices.is_empty())
    }

    pub fn free_of(&self, side: Side) -> u32 {
        self.of_side(side).fold(0, |sum, group| group.counts.free.saturating_add(sum))
    }

    pub fn total_of(&self, side: Side) -> u32 {
        self.of_side(side).fold(0, |sum, group| group.counts.total.saturating_add(sum))
    }

    pub fn live_units_of_side(&self, side: Side) -> u64 {
        self.of_side(side).map(|group| group.live_units).sum()
    }

    pub fn side_of(&self, row: &Row) -> Side {
        self.groups[row.group].side()
    }

    /// How many groups of its side come before a group.
    pub fn rank_on_side(&self, index: usize) -> usize {
        let side = self.groups[index].side();
        self.groups[..index].iter().filter(|group| group.side() == side).count()
    }

    /// Units that segments of a class can take.
    pub fn free_units_for(&self, class: Class) -> u64 {
        let [normal, special] = [Side::Normal, Side::Special].map(|side| self.free_units_of(side));
        match class {
            Class::Small => special,
            _ if class.may_be_special() => normal + special,
            _ => normal,
        }
    }

    /// Free slots of the special side that content in small blocks leaves alone [sides.3].
    pub fn small_floor(&self) -> u32 {
        let slot_units = i64::from(self.geometry.slot_units());
        let needed = u32::try_from(self.metadata_units() / slot_units + 2).unwrap_or(u32::MAX);
        needed.max(self.total_of(Side::Special) / METADATA_SHARE)
    }

    /// Free units on each side after a commit that gives back emptied segments, and one segment of
    /// one side with so many units that is being emptied.
    pub fn after_commit(&self, headroom: Headroom, emptying: Option<(Side, u32)>) -> Headroom {
        let back = |side: Side| {
            let emptying = emptying.filter(|(of, _)| *of == side).map_or(0, |(_, units)| i64::from(units));
            signed(self.emptied_units_of(side)) + emptying
        };
        Headroom {
            normal: headroom.normal + back(Side::Normal),
            special: headroom.special + back(Side::Special),
        }
    }

    /// Where a new segment of a class goes by preference, and where else.
    pub fn sides_for(&self, class: Class) -> &'static [Side] {
        match class {
            Class::Small => &[Side::Special],
            _ if class.may_be_special() => &[Side::Special, Side::Normal],
            _ => &[Side::Normal],
        }
    }
}
