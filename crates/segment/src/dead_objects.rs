//! Objects that nobody needs, and when they are deleted (what TRIM is to slots).
//!
//! The object of a segment that a commit freed is *dead* from that commit on. An
//! object beyond the table is *left over*: a host that crashed, or was fenced, created it, and did
//! not commit it.
//!
//! [dead_objects.1] An object is deleted only when no root from the last committed one on names it,
//!      nor the root before that. So a host that slept since it looked deletes nothing that another
//!      one needs: whoever took over did so from that root, or from a later one. Of a closed pool
//!      with an anchor only the anchored root is opened.
//!      `DeadObjects::due`
//! [dead_objects.2] Leftovers are of an epoch below ours. Segments of a later epoch belong to the
//!      host that has taken over from us, whatever our table says.
//!      `Space::find_leftovers`, test: `attack_24_*`

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

use steadfast_device::{Error as DeviceError, PartRead, SegmentPlace};
use steadfast_format::{Column, DeviceId, Placement, SegmentId};

use crate::error::Error;
use crate::space::{Space, lock};

/// Objects deleted at once: what one request of the common stores takes.
pub const DELETES_MAX: usize = 1000;

/// Objects looked for at once: the store's room asks for them side by side.
const LOOKS_MAX: usize = 1024;

/// Objects that wait to be deleted.
#[derive(Default)]
pub(crate) struct DeadObjects {
    /// Oldest commit first.
    dead: VecDeque<Dead>,
    left_over: Vec<(DeviceId, SegmentId)>,
}

struct Dead {
    device: DeviceId,
    segment: SegmentId,
    /// Commit that freed it.
    commit: u64,
}

impl DeadObjects {
    pub fn push(&mut self, device: DeviceId, segment: SegmentId, commit: u64) {
        self.dead.push_back(Dead { device, segment, commit });
    }

    /// Takes those of commits before `last`, then leftovers, no more than one request's.
    fn due(&mut self, last: u64) -> Vec<(DeviceId, SegmentId)> {
        let count = self.dead.iter().take(DELETES_MAX).take_while(|dead| dead.commit < last).count();
        let mut due: Vec<_> = self.dead.drain(..count).map(|dead| (dead.device, dead.segment)).collect();
        let left_over = self.left_over.len().min(DELETES_MAX - count);
        due.extend(self.left_over.drain(..left_over));
        due
    }
}

impl Space {
    /// Lists what the stores have beyond the table, to be deleted by [`Space::delete_objects`].
    /// Gives how many there are. After [`Space::claim_epoch`].
    pub fn find_leftovers(&self) -> Result<usize, Error> {
        let own = self.epoch();
        let mut found = Vec::new();
        for (device, handle) in self.stores() {
            let Some(objects) = handle.objects() else { continue };
            let stored = objects.stored_segments().map_err(|source| Error::Device { device, source })?;
            let state = self.read_state();
            let table = &state.table;
            let unknown = stored.into_iter().filter(|id| {
                // [dead_objects.2]
                id.epoch() < own && !table.rows.contains_key(id) && !table.emptied.contains_key(id)
            });
            found.extend(unknown.map(|id| (device, id)));
        }
        let mut dead = lock(&self.dead_objects);
        let waiting: Vec<_> = dead.dead.iter().map(|dead| (dead.device, dead.segment)).collect();
        found.retain(|object| !waiting.contains(object));
        let count = found.len();
        dead.left_over = found;
        Ok(count)
    }

    /// Segments of the table whose objects are gone or too short: the last byte of each is read.
    ///
    /// # Errors
    /// A store does not answer, or refuses.
    pub fn lost_objects(&self) -> Result<Vec<SegmentId>, Error> {
        let mut asked: BTreeMap<DeviceId, Vec<(SegmentPlace, u32)>> = BTreeMap::new();
        for (id, row) in self.rows() {
            let Placement::Plain(Column { device, slot }) = row.place else { continue };
            let Some(last) = row.filled.checked_sub(1) else { continue };
            let slot_size = self.geometry.slot_size;
            asked.entry(device).or_default().push((SegmentPlace { segment: id, slot, slot_size }, last));
        }
        let mut lost = Vec::new();
        for (device, handle) in self.stores() {
            let failed = |source| Error::Device { device, source };
            for places in asked.remove(&device).unwrap_or_default().chunks(LOOKS_MAX) {
                let mut bytes = vec![[0_u8; 1]; places.len()];
                let outs = bytes.iter_mut().map(|byte| vec![&mut byte[..]]);
                let mut reads: Vec<_> = places
                    .iter()
                    .zip(outs)
                    .map(|((place, last), outs)| PartRead::new(*place, *last, outs))
                    .collect();
                handle.read_many(&mut reads);
                for read in reads {
                    match read.outcome {
                        Ok(()) => {}
                        Err(DeviceError::Missing { .. } | DeviceError::CutShort { .. }) => {
                            lost.push(read.place.segment);
                        }
                        Err(source) => return Err(failed(source)),
                    }
                }
            }
        }
        Ok(lost)
    }

    /// Objects that wait to be deleted, now or after the next commit.
    #[must_use]
    pub fn dead_objects(&self) -> usize {
        let dead = lock(&self.dead_objects);
        dead.dead.len() + dead.left_over.len()
    }

    /// Objects that the last commit freed.
    #[must_use]
    pub fn dead_of_last(&self) -> usize {
        let last = self.commits();
        lock(&self.dead_objects).dead.iter().rev().take_while(|dead| dead.commit >= last).count()
    }

    /// How many commits are over, for a later call of [`Space::delete_objects`].
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Deletes objects, at most one request's on each device [dead_objects.1], as if `last` were
    /// the last commit: others may go on beside the caller. The caller has seen that the pool is
    /// still ours. An object that could not be deleted is forgotten: a later import finds it left
    /// over. Gives how many were taken.
    pub fn delete_objects(&self, last: u64) -> usize {
        let due = lock(&self.dead_objects).due(last);
        let count = due.len();
        let mut by_device: BTreeMap<DeviceId, Vec<SegmentId>> = BTreeMap::new();
        due.into_iter().for_each(|(device, id)| by_device.entry(device).or_default().push(id));
        for (device, ids) in by_device {
            let handle = &self.devices[&device];
            let Some(in_use) = handle.in_use() else { continue };
            let Some(objects) = in_use.objects() else { continue };
            if objects.delete_segments(&ids).is_err() {
                // The bytes stay, which nobody minds; that the device failed is worth counting.
                handle.counters.write_failed();
            }
        }
        count
    }

    /// Deletes all that wait, those of the last commit too: for a pool that is being closed, of
    /// which nobody will open an older root.
    pub fn delete_all_objects(&self) {
        while self.delete_objects(u64::MAX) > 0 {}
    }
}
