//! The check of every invariant of the table.

use std::collections::BTreeMap;

use steadfast_format::{Column, DeviceId, SegmentId};

use crate::side::Side;
use crate::table::Table;

impl Table {
    /// Verifies every invariant of the table. Costs a pass over everything; for tests and for
    /// `inspect`.
    pub fn check(&self) -> Result<(), String> {
        let mut taken: BTreeMap<(DeviceId, u32), SegmentId> = BTreeMap::new();
        let mut live_by_group = vec![0; self.groups.len()];
        let mut live_by_class = self.class_live;
        live_by_class.fill(0);
        let emptied = self.emptied.iter().map(|(id, emptied)| (id, &emptied.row));
        for (&id, row) in self.rows.iter().chain(emptied).chain(&self.kept.rows) {
            for (_, Column { device, slot }) in row.place.present() {
                if let Some(other) = taken.insert((device, slot), id) {
                    return Err(format!("[segment.1] segments {id} and {other} share slot {slot}"));
                }
                let space = &self.devices[&device];
                let is_taken = match &space.store {
                    None => space.slots.is_taken(slot),
                    Some(room) => room.is_taken(slot),
                };
                if !is_taken {
                    return Err(format!("[segment.1] the slot of segment {id} is not taken"));
                }
            }
            if id >= self.next_id {
                return Err(format!("[segment.2] segment {id} has a future id"));
            }
            if row.filled > self.capacity_units(row) {
                return Err(format!("[segment.3] [uneven.1] segment {id} is overfull"));
            }
            if self.side_of(row) == Side::Special && !row.class.may_be_special() {
                return Err(format!(
                    "[sides.1] segment {id} of class {:?} lies on a special group",
                    row.class
                ));
            }
            if row.filled - row.dead.count(0, row.filled) != row.live {
                return Err(format!("[segment.3] segment {id} counts {} live units", row.live));
            }
            live_by_group[row.group] += u64::from(row.live);
            live_by_class[row.class as usize] += u64::from(row.live);
        }
        if live_by_class != self.class_live {
            return Err(format!("[segment.3] the classes count {:?} live units", self.class_live));
        }
        for (&id, space) in &self.devices {
            let lost = self.kept.lost.iter().filter(|lost| lost.column.device == id).count();
            if lost != space.lost as usize {
                return Err(format!(
                    "[segment.1] device {id} counts {} slots that rows have left",
                    space.lost
                ));
            }
            let kept = self.kept.columns.keys().filter(|column| column.device == id).count();
            let taken_here = taken.keys().filter(|(device, _)| *device == id).count() + lost + kept;
            let taken_there = match &space.store {
                None => u64::from(space.slots.total() - space.slots.free()),
                Some(room) => room.objects(),
            };
            if taken_here as u64 != taken_there {
                return Err(format!("[segment.1] device {id} has taken slots without a segment"));
            }
        }
        for (index, group) in self.groups.iter().enumerate() {
            if live_by_group[index] != group.live_units {
                return Err(format!("[segment.3] group {index} counts {} live units", group.live_units));
            }
            self.check_store(index)?;
            if self.count(index) != group.counts {
                return Err(format!("[segment.1] group {index} counts {:?}", group.counts));
            }
        }
        if live_by_group.iter().sum::<u64>() != self.live_units {
            return Err(format!("[segment.3] the pool counts {} live units", self.live_units));
        }
        self.check_uneven()?;
        self.check_kept()?;
        for (id, row) in &self.rows {
            if row.class.is_pool() != self.pool_rows.contains(id) {
                return Err(format!("[segment.4] the tail would not know segment {id}"));
            }
            if row.live == 0 && !row.open {
                return Err(format!("[segment.4] segment {id} is empty and closed but has a row"));
            }
            let is_of_stream = self.open.get(&(row.owner, row.class)) == Some(id);
            if row.open != (is_of_stream || self.full.contains(id)) {
                return Err(format!("[segment.4] [uploads.1] segment {id} is not its stream's"));
            }
        }
        let mut virtual_end: Option<(SegmentId, u32)> = None;
        for run in self.relocations.iter() {
            let target = self.rows.get(&run.to.0);
            if target.is_none_or(|row| run.to.1 + run.units > row.filled) {
                return Err(format!("[segment.5] {run:?} leads nowhere"));
            }
            if target.is_some_and(|row| row.dead.count(run.to.1, run.units) == run.units) {
                return Err(format!("[segment.5] {run:?} is all dead"));
            }
            if let Some((segment, end)) = virtual_end
                && segment == run.from.0
                && end > run.from.1
            {
                return Err(format!("[segment.6] {run:?} overlaps its predecessor"));
            }
            virtual_end = Some((run.from.0, run.from.1 + run.units));
            if self.lives_natively(run) {
                return Err(format!("[segment.6] {run:?} still lives where it was"));
            }
            let here = self.relocations.lying_on(run.to.0, run.to.1, run.units);
            if here.len() != 1 || here[0] != run {
                return Err(format!("[segment.6] {run:?} shares its place"));
            }
        }
        Ok(())
    }
}
