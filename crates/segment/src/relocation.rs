//! Where blocks lie that the cleaner has moved: runs of units, found by virtual and by physical
//! address.
//!
//! One run says that `units` units, known for ever as (`from_segment`, `from_unit`), lie at
//! (`to_segment`, `to_unit`). Moving a moved run changes its target, so no lookup ever takes two
//! steps. Units within a run may be dead (their bits in the target's row tell); a run disappears
//! when all of them are.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::SegmentId;

/// A unit of a segment.
pub type Unit = (SegmentId, u32);

/// Units that were moved together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Run {
    /// The address they are known by.
    pub from: Unit,
    /// Where they lie.
    pub to: Unit,
    /// How many.
    pub units: u32,
}

impl Run {
    /// The part of this run whose virtual units lie in `count` units from `start`.
    fn clip_from(self, start: u32, count: u32) -> Option<Run> {
        let first = self.from.1.max(start);
        let end = (self.from.1 + self.units).min(start + count);
        (first < end).then(|| self.part(first - self.from.1, end - first))
    }

    /// The part of this run whose physical units lie in `count` units from `start`.
    fn clip_to(self, start: u32, count: u32) -> Option<Run> {
        let first = self.to.1.max(start);
        let end = (self.to.1 + self.units).min(start + count);
        (first < end).then(|| self.part(first - self.to.1, end - first))
    }

    /// True if `next` goes on where this run ends, by both addresses.
    fn continues_in(self, next: Run) -> bool {
        (self.from.0, self.from.1 + self.units) == next.from && (self.to.0, self.to.1 + self.units) == next.to
    }

    /// `units` units of this run, leaving out the first `skip`.
    fn part(self, skip: u32, units: u32) -> Run {
        Run { from: (self.from.0, self.from.1 + skip), to: (self.to.0, self.to.1 + skip), units }
    }
}

/// All runs, and which of them changed since they were last asked for.
#[derive(Clone, Debug, Default)]
pub struct Relocations {
    by_from: BTreeMap<Unit, (Unit, u32)>,
    by_to: BTreeMap<Unit, Unit>,
    changed: BTreeSet<Unit>,
}

impl Relocations {
    /// Number of runs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_from.len()
    }

    /// True if nothing was ever moved, or all of it has died.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_from.is_empty()
    }

    /// The run that begins at virtual unit `from`.
    #[must_use]
    pub fn get(&self, from: Unit) -> Option<Run> {
        self.by_from.get(&from).map(|&(to, units)| Run { from, to, units })
    }

    /// All runs, by virtual address.
    pub fn iter(&self) -> impl Iterator<Item = Run> + '_ {
        self.by_from.iter().map(|(&from, &(to, units))| Run { from, to, units })
    }

    /// Runs that moved `count` units known as `start` of `segment` and on, clipped to them, in
    /// order.
    pub fn moved_from(&self, segment: SegmentId, start: u32, count: u32) -> Vec<Run> {
        let before = self.by_from.range(..(segment, start)).next_back();
        let within = self.by_from.range((segment, start)..(segment, start + count));
        before
            .into_iter()
            .filter(|(from, _)| from.0 == segment)
            .chain(within)
            .filter_map(|(&from, &(to, units))| Run { from, to, units }.clip_from(start, count))
            .collect()
    }

    /// Runs that lie on `count` units of `segment` from `start`, clipped to them, in order of
    /// place.
    pub fn lying_on(&self, segment: SegmentId, start: u32, count: u32) -> Vec<Run> {
        let before = self.by_to.range(..(segment, start)).next_back();
        let within = self.by_to.range((segment, start)..(segment, start + count));
        before
            .into_iter()
            .filter(|(to, _)| to.0 == segment)
            .chain(within)
            .filter_map(|(_, &from)| self.get(from).and_then(|run| run.clip_to(start, count)))
            .collect()
    }

    /// The whole run of which the virtual unit `unit` is part.
    #[must_use]
    pub fn run_of(&self, unit: Unit) -> Option<Run> {
        let (&from, &(to, units)) = self.by_from.range(..=unit).next_back()?;
        (from.0 == unit.0 && unit.1 < from.1 + units).then_some(Run { from, to, units })
    }

    /// Notes a run; false, and nothing is noted, if it overlaps another by either address.
    pub fn insert(&mut self, run: Run) -> bool {
        if run.units == 0
            || run.from.1.checked_add(run.units).is_none()
            || run.to.1.checked_add(run.units).is_none()
            || !self.moved_from(run.from.0, run.from.1, run.units).is_empty()
            || !self.lying_on(run.to.0, run.to.1, run.units).is_empty()
        {
            return false;
        }
        self.by_from.insert(run.from, (run.to, run.units));
        self.by_to.insert(run.to, run.from);
        self.changed.insert(run.from);
        true
    }

    /// Notes a run that does not overlap any, joined with the runs before and after it if both
    /// addresses continue.
    pub fn insert_joined(&mut self, mut run: Run) {
        let before =
            self.by_from.range(..run.from).next_back().map(|(&from, &(to, units))| Run { from, to, units });
        if let Some(before) = before.filter(|before| before.continues_in(run)) {
            self.remove(before.from);
            run = Run { units: before.units + run.units, ..before };
        }
        let after = self.get((run.from.0, run.from.1 + run.units));
        if let Some(after) = after.filter(|after| run.continues_in(*after)) {
            self.remove(after.from);
            run.units += after.units;
        }
        assert!(self.insert(run), "runs do not overlap");
    }

    /// Forgets the run that begins at virtual unit `from`.
    pub fn remove(&mut self, from: Unit) -> Option<Run> {
        let (to, units) = self.by_from.remove(&from)?;
        let found = self.by_to.remove(&to);
        assert_eq!(found, Some(from), "both indexes know a run");
        self.changed.insert(from);
        Some(Run { from, to, units })
    }

    /// Virtual addresses whose run was set or removed, and forgets that they were.
    pub fn take_changed(&mut self) -> BTreeSet<Unit> {
        std::mem::take(&mut self.changed)
    }

    /// Says which virtual addresses count as changed: after loading, those that only the tail
    /// knows.
    pub fn set_changed(&mut self, changed: BTreeSet<Unit>) {
        self.changed = changed;
    }

    /// Virtual addresses whose run was set or removed since [`Relocations::take_changed`].
    #[must_use]
    pub fn changed(&self) -> &BTreeSet<Unit> {
        &self.changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(segment: u64, unit: u32) -> Unit {
        (SegmentId(segment), unit)
    }

    fn run(from: (u64, u32), to: (u64, u32), units: u32) -> Run {
        Run { from: unit(from.0, from.1), to: unit(to.0, to.1), units }
    }

    #[test]
    fn both_addresses_find_the_clipped_parts() {
        let mut runs = Relocations::default();
        assert!(runs.insert(run((1, 10), (9, 0), 10)));
        assert!(runs.insert(run((1, 30), (9, 10), 5)));
        assert_eq!(
            runs.moved_from(SegmentId(1), 15, 20),
            vec![run((1, 15), (9, 5), 5), run((1, 30), (9, 10), 5)]
        );
        assert_eq!(
            runs.lying_on(SegmentId(9), 8, 3),
            vec![run((1, 18), (9, 8), 2), run((1, 30), (9, 10), 1)]
        );
        assert_eq!(runs.moved_from(SegmentId(1), 20, 10), vec![]);
        assert_eq!(runs.moved_from(SegmentId(2), 0, 100), vec![]);
        assert_eq!(runs.run_of(unit(1, 19)), Some(run((1, 10), (9, 0), 10)));
        assert_eq!(runs.run_of(unit(1, 20)), None);
    }

    #[test]
    fn overlap_by_either_address_is_refused() {
        let mut runs = Relocations::default();
        assert!(runs.insert(run((1, 10), (9, 0), 10)));
        assert!(!runs.insert(run((1, 19), (9, 50), 1)));
        assert!(!runs.insert(run((1, 5), (9, 50), 6)));
        assert!(!runs.insert(run((2, 0), (9, 9), 1)));
        assert!(!runs.insert(run((2, 0), (9, u32::MAX), 2)));
        assert_eq!(runs.len(), 1);
    }

    #[test]
    fn a_run_that_fills_the_gap_between_two_joins_them() {
        let mut runs = Relocations::default();
        runs.insert_joined(run((1, 10), (9, 0), 2));
        runs.insert_joined(run((1, 15), (9, 5), 2));
        runs.insert_joined(run((1, 12), (9, 2), 3));
        assert_eq!(runs.iter().collect::<Vec<_>>(), vec![run((1, 10), (9, 0), 7)]);
        assert_eq!(runs.lying_on(SegmentId(9), 6, 1), vec![run((1, 16), (9, 6), 1)]);
    }

    #[test]
    fn runs_that_continue_each_other_become_one() {
        let mut runs = Relocations::default();
        runs.insert_joined(run((1, 10), (9, 0), 10));
        runs.insert_joined(run((1, 20), (9, 10), 4));
        runs.insert_joined(run((1, 24), (9, 20), 4));
        assert_eq!(runs.iter().collect::<Vec<_>>(), vec![run((1, 10), (9, 0), 14), run((1, 24), (9, 20), 4)]);
        assert_eq!(runs.take_changed().len(), 2, "a start that was never a run of its own is no change");
    }
}
