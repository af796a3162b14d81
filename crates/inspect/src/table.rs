//! The segment table as inspection sees it: rows that the segment room accepted, kept apart from
//! it, with a mark for every unit that a pointer leads to.

use std::collections::{BTreeMap, HashMap};

use steadfast_format::{Address, DatasetId, Placement, RelocationRow, SegmentId, SegmentRow};
use steadfast_segment::Geometry;

/// One segment.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub class: u8,
    pub owner: DatasetId,
    pub place: Placement,
    /// Units written.
    pub filled: u32,
    dead: Option<Vec<u8>>,
}

impl Row {
    pub fn is_dead(&self, unit: u32) -> bool {
        let byte = self.dead.as_ref().and_then(|dead| dead.get((unit / 8) as usize));
        byte.is_some_and(|byte| byte >> (unit % 8) & 1 == 1)
    }

    /// Units that live.
    pub fn live(&self) -> u32 {
        (0..self.filled).map(|unit| u32::from(!self.is_dead(unit))).sum()
    }
}

/// Units of one segment in one place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Piece {
    pub segment: SegmentId,
    pub unit: u32,
    pub units: u32,
}

/// Block found at an address.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Marked {
    /// Units that the table calls dead.
    pub dead: u32,
    /// Units that another pointer leads to as well.
    pub twice: u32,
}

/// Result of a look at a place.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Coverage {
    /// Units that nobody had looked at before.
    pub fresh: u32,
    /// Units that nobody has marked.
    pub unmarked: u32,
}

pub(crate) struct Table {
    pub geometry: Geometry,
    pub rows: BTreeMap<SegmentId, Row>,
    /// By the segment and unit they are known by: where they lie, and how many.
    pub runs: BTreeMap<(SegmentId, u32), RelocationRow>,
    marks: HashMap<SegmentId, Vec<u64>>,
    /// Blocks that more than one pointer may lead to.
    pub references: crate::references::References,
    /// Sealed blocks, as manifests list them.
    pub manifests: crate::manifests::Manifests,
    /// Places that a head or a snapshot was seen to lead to.
    seen: HashMap<SegmentId, Vec<u64>>,
}

impl Table {
    pub fn new(geometry: Geometry) -> Table {
        Table {
            geometry,
            rows: BTreeMap::new(),
            runs: BTreeMap::new(),
            marks: HashMap::new(),
            references: crate::references::References::default(),
            manifests: crate::manifests::Manifests::default(),
            seen: HashMap::new(),
        }
    }

    /// Notes a row that the segment room accepted: one column, filled within its slot.
    pub fn add_row(&mut self, id: SegmentId, row: &SegmentRow) {
        let filled = row.filled / self.geometry.unit;
        let (place, dead) = (row.place.clone(), row.dead.clone());
        self.rows.insert(id, Row { class: row.class, owner: row.owner, place, filled, dead });
    }

    /// Extends a segment by the tail's own block, which its row does not count.
    pub fn add_tail_block(&mut self, address: Address, bytes: u32) {
        let end = address.offset / self.geometry.unit + bytes.div_ceil(self.geometry.unit);
        if let Some(row) = self.rows.get_mut(&address.segment) {
            row.filled = row.filled.max(end).min(self.geometry.slot_units());
        }
    }

    /// Where the `bytes` at `address` lie; `None` if some of them lie nowhere.
    pub fn resolve(&self, address: Address, bytes: u32) -> Option<Vec<Piece>> {
        let unit = self.geometry.unit;
        if !address.offset.is_multiple_of(unit) {
            return None;
        }
        let (start, units) = (address.offset / unit, bytes.div_ceil(unit));
        let end = start.checked_add(units).filter(|&end| end <= self.geometry.slot_units())?;
        let segment = address.segment;
        let mut pieces = Vec::new();
        let mut at = start;
        let native = |from: u32, to: u32, pieces: &mut Vec<Piece>| {
            if from < to {
                self.rows.get(&segment).filter(|row| to <= row.filled)?;
                pieces.push(Piece { segment, unit: from, units: to - from });
            }
            Some(())
        };
        let before = self.runs.range(..(segment, start)).next_back();
        let before = before.filter(|((known, first), run)| *known == segment && first + run.units > start);
        for ((_, first), run) in before.into_iter().chain(self.runs.range((segment, start)..(segment, end))) {
            let from = (*first).max(start);
            let to = (first + run.units).min(end);
            native(at, from, &mut pieces)?;
            pieces.push(Piece { segment: run.segment, unit: run.unit + (from - first), units: to - from });
            at = to;
        }
        native(at, end, &mut pieces)?;
        Some(pieces)
    }

    /// Notes that a pointer leads to `piece`.
    pub fn mark(&mut self, piece: Piece) -> Marked {
        let mut marked = Marked::default();
        let Some(row) = self.rows.get(&piece.segment) else { return marked };
        let words = (self.geometry.slot_units() as usize).div_ceil(64);
        let marks = self.marks.entry(piece.segment).or_insert_with(|| vec![0; words]);
        for unit in piece.unit..piece.unit + piece.units {
            let Some(word) = marks.get_mut((unit / 64) as usize) else { break };
            let bit = 1 << (unit % 64);
            marked.dead += u32::from(row.is_dead(unit));
            marked.twice += u32::from(*word & bit != 0);
            *word |= bit;
        }
        marked
    }

    /// Notes that a head or a snapshot leads to `piece`.
    pub fn see(&mut self, piece: Piece) -> Coverage {
        let mut sight = Coverage::default();
        let words = (self.geometry.slot_units() as usize).div_ceil(64);
        let marks = self.marks.get(&piece.segment);
        let seen = self.seen.entry(piece.segment).or_insert_with(|| vec![0; words]);
        for unit in piece.unit..piece.unit + piece.units {
            let (index, bit) = ((unit / 64) as usize, 1_u64 << (unit % 64));
            let Some(word) = seen.get_mut(index) else { break };
            sight.fresh += u32::from(*word & bit == 0);
            *word |= bit;
            sight.unmarked += u32::from(marks.is_none_or(|marks| marks[index] & bit == 0));
        }
        sight
    }

    /// Units of `piece` that have no mark.
    pub fn unkept(&self, piece: Piece) -> u32 {
        let marks = self.marks.get(&piece.segment);
        let is_marked = |unit: u32| {
            let word = marks.and_then(|marks| marks.get((unit / 64) as usize));
            word.is_some_and(|word| word >> (unit % 64) & 1 == 1)
        };
        (piece.unit..piece.unit + piece.units).map(|unit| u32::from(!is_marked(unit))).sum()
    }

    /// Units of a segment that live and have no mark.
    pub fn unmarked(&self, id: SegmentId) -> u32 {
        let Some(row) = self.rows.get(&id) else { return 0 };
        let marks = self.marks.get(&id);
        let is_marked = |unit: u32| marks.is_some_and(|m| m[(unit / 64) as usize] >> (unit % 64) & 1 == 1);
        (0..row.filled).map(|unit| u32::from(!row.is_dead(unit) && !is_marked(unit))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_format::Column;

    fn table() -> Table {
        let mut table = Table::new(Geometry { slot_size: 1 << 16, unit: 1 << 12 });
        for id in [1, 2] {
            let column = Column { device: steadfast_format::DeviceId(1), slot: id };
            let dead = Some(vec![0b10, 0]);
            let row = SegmentRow {
                class: 1,
                owner: DatasetId(0),
                filled: 10 << 12,
                place: steadfast_format::Placement::Plain(column),
                dead,
            };
            table.add_row(SegmentId(id.into()), &row);
        }
        table
    }

    fn piece(segment: u64, unit: u32, units: u32) -> Piece {
        Piece { segment: SegmentId(segment), unit, units }
    }

    #[test]
    fn addresses_are_followed_through_relocations() {
        let mut table = table();
        table.runs.insert((SegmentId(1), 2), RelocationRow { segment: SegmentId(2), unit: 5, units: 3 });
        let at = |offset: u32| Address { segment: SegmentId(1), offset: offset << 12 };
        let all = table.resolve(at(0), 7 << 12);
        assert_eq!(all, Some(vec![piece(1, 0, 2), piece(2, 5, 3), piece(1, 5, 2)]));
        assert_eq!(table.resolve(at(3), 4096), Some(vec![piece(2, 6, 1)]));
        assert_eq!(table.resolve(at(9), 4097), None, "beyond the fill mark");
        assert_eq!(table.resolve(at(15), 8192), None, "beyond the slot");
        assert_eq!(table.resolve(Address { segment: SegmentId(1), offset: 100 }, 10), None);
        assert_eq!(table.resolve(Address { segment: SegmentId(3), offset: 0 }, 10), None);
    }

    #[test]
    fn units_are_counted_dead_twice_and_unmarked() {
        let mut table = table();
        assert_eq!(table.mark(piece(1, 0, 3)), Marked { dead: 1, twice: 0 });
        assert_eq!(table.mark(piece(1, 2, 3)), Marked { dead: 0, twice: 1 });
        assert_eq!(table.unmarked(SegmentId(1)), 5);
        assert_eq!(table.rows[&SegmentId(1)].live(), 9);
    }
}
