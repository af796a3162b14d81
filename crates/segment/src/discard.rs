//! Discarding freed slots (ZFS: TRIM, `autotrim`).

use std::sync::atomic::Ordering;

use steadfast_device::{Error as DeviceError, SegmentPlace};

use steadfast_format::{Column, DeviceId, SegmentId};

use crate::space::{Discard, Space, lock};

/// Pattern of an initialized slot, as in OpenZFS, and the bytes of it written at once.
const FILL: u64 = 0xdead_beef_dead_beee;

const FILL_BYTES: usize = 1 << 20;

impl Space {
    /// Whether devices of slots are told which of them are free again (`autotrim`); they are if
    /// nobody says otherwise.
    pub fn set_discarding(&self, on: bool) {
        self.discarding.store(on, Ordering::Relaxed);
        if !on {
            lock(&self.discards).clear();
        }
    }

    /// True if they are told.
    #[must_use]
    pub fn is_discarding(&self) -> bool {
        self.discarding.load(Ordering::Relaxed)
    }

    /// Discards what slots still hold that have stayed free since an earlier commit than the last,
    /// at most `slots_max` of them, oldest first; `keep` of the newest are left, because a busy
    /// pool uses them again at once, and a host that has to find room anew is slower than one that
    /// overwrites. Gives how many slots wait to be discarded, now or later.
    pub fn discard(&self, slots_max: usize, keep: usize) -> usize {
        self.discard_before(self.commits.load(Ordering::Relaxed), slots_max, keep)
    }

    /// Discards all free slots that still hold something, those of the last commit too: for a pool
    /// that is being closed.
    pub fn discard_all(&self) {
        self.discard_before(u64::MAX, usize::MAX, 0);
    }

    pub(crate) fn discard_before(&self, last: u64, slots_max: usize, keep: usize) -> usize {
        for _ in 0..slots_max {
            let next = {
                let mut discards = lock(&self.discards);
                let due = discards.len() > keep && discards.front().is_some_and(|slot| slot.commit < last);
                if due { discards.pop_front() } else { None }
            };
            let Some(Discard { device, place, .. }) = next else { break };
            // The slot is taken while it is discarded, lest an append get there first and lose its
            // bytes.
            let column = Column { device, slot: place.slot };
            let claimed = self.write_state().table.claim_slot(column);
            if claimed {
                self.discard_place(device, place);
                self.write_state().table.unclaim_slot(column);
            }
        }
        lock(&self.discards).len()
    }

    /// Discards the first free slot of a device from slot `from` on, whatever it holds, and gives
    /// its number; `None` if there is none. The slot is taken meanwhile, so nobody may be
    /// appending: sync context only.
    pub fn discard_free_slot(&self, device: DeviceId, from: u32) -> Option<(u32, Result<(), DeviceError>)> {
        self.with_free_slot(device, from, |device, place| device.discard_segment(place))
    }

    /// Fills the first free slot of a device from slot `from` on with a pattern; else like
    /// [`Space::discard_free_slot`].
    pub fn fill_free_slot(&self, device: DeviceId, from: u32) -> Option<(u32, Result<(), DeviceError>)> {
        self.with_free_slot(device, from, |device, place| {
            let piece = FILL.to_le_bytes().repeat(FILL_BYTES / size_of_val(&FILL));
            let offsets = (0..place.slot_size).step_by(FILL_BYTES);
            offsets.into_iter().try_for_each(|offset| {
                let left = (place.slot_size - offset) as usize;
                device.append_segment(place, offset, &piece[..left.min(FILL_BYTES)])
            })
        })
    }

    pub(crate) fn with_free_slot(
        &self,
        device: DeviceId,
        from: u32,
        act: impl FnOnce(&dyn steadfast_device::Device, SegmentPlace) -> Result<(), DeviceError>,
    ) -> Option<(u32, Result<(), DeviceError>)> {
        let handle = self.devices.get(device)?;
        let (column, slot_size) = {
            let mut state = self.write_state();
            let space = state.table.devices.get(&device)?;
            let column = Column { device, slot: space.slots.next_free(from)? };
            let slot_size = state.table.groups[space.group].column;
            assert!(state.table.claim_slot(column), "a free slot can be claimed");
            (column, slot_size)
        };
        // The name is of no meaning where slots are discarded; no segment has this one.
        let place = SegmentPlace { segment: SegmentId(0), slot: column.slot, slot_size };
        let result = handle.device(device).and_then(|device| act(&*device, place));
        if result.is_err() {
            handle.counters.write_failed();
        }
        self.write_state().table.unclaim_slot(column);
        Some((column.slot, result))
    }

    pub(crate) fn discard_place(&self, device: DeviceId, place: SegmentPlace) {
        let handle = &self.devices[&device];
        let Some(in_use) = handle.in_use() else { return };
        if in_use.discard_segment(place).is_err() {
            // The bytes stay, which nobody minds; that the device failed is worth counting.
            handle.counters.write_failed();
        }
    }
}
