//! The tag area: tags of the segments that the tiles include, 256 to a unit.
//!
//! Tags of newer segments are in their records of the journal. A pass writes them here, into units
//! that the last durable manifest does not name, before a manifest names those [por.14].

use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::parity::{ParityManifest, ParitySegment};

use super::error::{Error, Result};

/// Units of the tag area, and who has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TagArea {
    total: u32,
    /// Units of the segments of the last durable manifest, and of those that a pass has placed
    /// since.
    placed: BTreeMap<ParitySegment, Box<[u32]>>,
    free: Vec<u32>,
    /// Units that segments of the journal will take.
    promised: u32,
}

impl TagArea {
    /// The area as a manifest left it.
    ///
    /// # Errors
    /// The manifest names a unit beyond the area.
    pub fn new(total: u32, manifest: &ParityManifest) -> Result<TagArea> {
        let mut placed = BTreeMap::new();
        let mut rest = &manifest.units[..];
        for segment in &manifest.segments {
            let (units, later) = rest.split_at(segment.units().into());
            placed.insert(*segment, units.into());
            rest = later;
        }
        let used: BTreeSet<u32> = manifest.units.iter().copied().collect();
        if used.last().is_some_and(|&last| last >= total) {
            return Err(Error::ManifestDamaged);
        }
        let free = (0..total).rev().filter(|unit| !used.contains(unit)).collect();
        Ok(TagArea { total, placed, free, promised: 0 })
    }

    /// Refuses a segment for whose tags there is no room.
    pub fn check(&self, segment: &ParitySegment) -> Result<()> {
        let promised = self.promised.saturating_add(segment.units().into()) as usize;
        if promised > self.free.len() {
            return Err(Error::TagsFull { units: self.total });
        }
        Ok(())
    }

    /// Promises units to a segment of the journal.
    pub fn promise(&mut self, segment: &ParitySegment) {
        self.promised += u32::from(segment.units());
    }

    /// Promises units to these segments of the journal and to no other.
    pub fn promise_only<'s>(&mut self, segments: impl Iterator<Item = &'s ParitySegment>) {
        self.promised = segments.map(|segment| u32::from(segment.units())).sum();
    }

    /// Units of a segment, if it has some.
    pub fn units(&self, segment: &ParitySegment) -> Option<&[u32]> {
        self.placed.get(segment).map(|units| &units[..])
    }

    /// Gives a segment the units that it was promised.
    pub fn place(&mut self, segment: ParitySegment) -> &[u32] {
        let rest = self.free.len() - usize::from(segment.units());
        let units = self.free.split_off(rest).into_boxed_slice();
        self.promised = self.promised.saturating_sub(segment.units().into());
        self.placed.entry(segment).or_insert(units)
    }

    /// Units of these segments, in their order.
    pub fn units_of(&self, segments: &BTreeSet<ParitySegment>) -> Vec<u32> {
        segments.iter().flat_map(|segment| self.placed[segment].iter().copied()).collect()
    }

    /// A durable manifest names these segments only: units of others are free.
    pub fn keep(&mut self, segments: &BTreeSet<ParitySegment>) {
        let free = &mut self.free;
        self.placed.retain(|segment, units| {
            let stays = segments.contains(segment);
            if !stays {
                free.extend_from_slice(units);
            }
            stays
        });
    }
}
