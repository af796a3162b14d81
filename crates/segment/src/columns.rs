//! Columns of segments: devices that a group can spare, columns that are lost, and new places for
//! them.

use steadfast_format::{Column, DeviceId, Placement, SegmentId};

use crate::row::Row;
use crate::table::Table;

impl Table {
    /// Whether everything on the group of a device can be read without it, as things are: no more
    /// devices are out of use than a segment may lack columns, and no segment lacks so many that it
    /// needs this one.
    pub fn can_spare(&self, id: DeviceId) -> bool {
        let Some(space) = self.devices.get(&id) else { return true };
        let group = &self.groups[space.group];
        let out = group.devices.iter().filter(|other| **other == id || !self.devices[other].in_use).count();
        out <= group.redundancy.spared(group.width) as usize && !self.is_needed(id)
    }

    /// Whether a segment has a column on a device that it cannot be read without.
    pub fn is_needed(&self, id: DeviceId) -> bool {
        let needs = |row: &Row| {
            let place = &row.place;
            let others = place
                .present()
                .filter(|(_, column)| column.device != id && self.devices[&column.device].in_use)
                .count();
            place.present().any(|(_, column)| column.device == id)
                && others + place.redundancy() < place.columns().count()
        };
        self.rows.values().any(needs)
    }

    /// Takes a slot for a column of a segment, on a device of its group that is in use and holds no
    /// other column of it: one that was meant for it, or that with the most free slots which are
    /// not kept for others.
    pub fn take_spare_column(&mut self, id: SegmentId) -> Option<Column> {
        let row = self.rows.get(&id)?;
        let taken: Vec<DeviceId> = row.place.present().map(|(_, column)| column.device).collect();
        let fits = |id: &&DeviceId| {
            let space = &self.devices[id];
            space.usable() && space.slots.free() > 0 && !taken.contains(id)
        };
        let meant = self.meant.get(&id);
        let most = |id: &&DeviceId| {
            let (space, is_meant) = (&self.devices[id], meant.is_some_and(|meant| meant.contains(id)));
            let free = space.slots.free();
            (is_meant, free.saturating_sub(space.owed), free, std::cmp::Reverse(**id))
        };
        let device = *self.groups[row.group].devices.iter().filter(fits).max_by_key(most)?;
        let slot = self.devices.get_mut(&device)?.slots.take()?;
        let group = self.devices[&device].group;
        self.recount(group);
        Some(Column { device, slot })
    }

    /// A column of a segment lies elsewhere from now on; the slot where it was is free after the
    /// next commit.
    pub fn set_column(&mut self, id: SegmentId, index: usize, column: Column) {
        let left = self.take_column(id, index);
        if left.is_none() {
            self.forget_meant(id, column.device);
        }
        let row = self.rows.get_mut(&id).expect("nothing left the table meanwhile");
        let group = row.group;
        let lacked = row.missing();
        if let Placement::Mirror(columns) | Placement::Raidz { columns, .. } = &mut row.place {
            let mut all = columns.to_vec();
            all[index] = Some(column);
            *columns = all.into();
        }
        let lacks = row.missing();
        self.lack(group, lacks, lacked);
        if left.is_some() && self.meant.get(&id).is_some_and(|meant| meant.contains(&column.device)) {
            // It took the place of another that was to be built there.
            self.forget_meant(id, column.device);
            self.assign_missing(id);
            self.recount(group);
        }
        self.changed.insert(id);
        // Those bytes are not durable yet [redundant.3].
        self.fresh.insert(id);
    }

    /// Rows written since the last commit do without a device.
    pub fn lose_fresh(&mut self, device: DeviceId) {
        let ids: Vec<SegmentId> = self.fresh.iter().chain(self.open.values()).copied().collect();
        for id in ids {
            let place = self.rows.get(&id).map(|row| row.place.clone());
            let index = place.and_then(|place| place.present().find(|(_, column)| column.device == device));
            if let Some((index, _)) = index {
                self.lose_column(id, index);
            }
        }
    }

    /// A column of a segment is not what it should be: its row does without it from now on.
    pub fn lose_column(&mut self, id: SegmentId, index: usize) {
        if let Some(column) = self.take_column(id, index) {
            match self.is_awaited(column.device) {
                true => self.mean(id, column.device),
                false => self.assign_missing(id),
            }
            if self.meant.contains_key(&id) {
                self.recount(self.rows[&id].group);
            }
        }
    }
}
