//! Where things lie on a leaf device. FORMAT.md, "Medium".
//!
//! ```text
//! | label 0 | label 1 | slot 0 | slot 1 | ... | slot n-1 | (rest) | label 2 | label 3 |
//! 0         256 Ki    512 Ki                                  end - 512 Ki        end
//!
//! label: | 8 KiB blank | 56 KiB configuration | 48 uberblocks of 4 KiB |
//! ```
//!
//! `end` is the device's size rounded down to a multiple of [`LABEL_SIZE`].

/// Bytes of one label.
pub const LABEL_SIZE: u64 = 256 << 10;
/// Labels of a device: two in front, two at the back.
pub const LABELS: usize = 4;
/// Where the configuration begins in a label. The bytes before it are never written: boot blocks
/// live there.
pub const CONFIG_OFFSET: u64 = 8 << 10;
/// Bytes of the configuration area.
pub const CONFIG_SIZE: usize = 56 << 10;
/// Where the ring of uberblocks begins in a label.
pub const RING_OFFSET: u64 = CONFIG_OFFSET + CONFIG_SIZE as u64;
/// Uberblocks in a ring; the one of txg T is number T modulo this.
pub const RING_SLOTS: u64 = 48;
/// Bytes of an uberblock. Written at once: a sector of today's disks, a page.
pub const UBERBLOCK_SIZE: usize = 4096;
/// Where the slots begin.
pub const SLOTS_OFFSET: u64 = 2 * LABEL_SIZE;
/// Smallest device.
pub const DEVICE_SIZE_MIN: u64 = 64 << 20;
/// Smallest slot.
pub const SLOT_SIZE_MIN: u32 = 1 << 20;
/// Greatest slot.
pub const SLOT_SIZE_MAX: u32 = 8 << 20;

const _: () = assert!(RING_OFFSET + RING_SLOTS * UBERBLOCK_SIZE as u64 == LABEL_SIZE);

/// Size without what does not fill a label: where the last label ends.
#[must_use]
pub const fn usable_end(device_bytes: u64) -> u64 {
    device_bytes - device_bytes % LABEL_SIZE
}

/// Where label `copy` (0 to 3) begins on a device of at least [`DEVICE_SIZE_MIN`].
#[must_use]
pub const fn label_offset(copy: usize, device_bytes: u64) -> u64 {
    assert!(copy < LABELS && device_bytes >= DEVICE_SIZE_MIN);
    if copy < 2 {
        copy as u64 * LABEL_SIZE
    } else {
        usable_end(device_bytes) - (LABELS - copy) as u64 * LABEL_SIZE
    }
}

/// Where slot `slot` begins.
#[must_use]
pub const fn slot_offset(slot: u32, slot_size: u32) -> u64 {
    SLOTS_OFFSET + slot as u64 * slot_size as u64
}

/// How many slots fit between the labels; 0 on a device that is too small.
#[must_use]
pub const fn slot_count(device_bytes: u64, slot_size: u32) -> u32 {
    assert!(slot_size > 0);
    if device_bytes < DEVICE_SIZE_MIN {
        return 0;
    }
    let room = (usable_end(device_bytes) - LABELS as u64 * LABEL_SIZE) / slot_size as u64;
    if room > u32::MAX as u64 { u32::MAX } else { room as u32 }
}

/// Bytes that a device has at least on which so many slots fit.
#[must_use]
pub const fn device_bytes(slots: u32, slot_size: u32) -> u64 {
    let bytes = LABELS as u64 * LABEL_SIZE + slots as u64 * slot_size as u64;
    let bytes = bytes.next_multiple_of(LABEL_SIZE);
    if bytes < DEVICE_SIZE_MIN { DEVICE_SIZE_MIN } else { bytes }
}

/// The slot size for a pool whose smallest device has `device_bytes`: a 256th of it as a power of
/// two, in bounds. So a small pool has slots enough for its streams and its cleaner, and a large
/// one a short table.
#[must_use]
pub const fn slot_size_for(device_bytes: u64) -> u32 {
    let share = device_bytes / 256;
    if share <= SLOT_SIZE_MIN as u64 {
        SLOT_SIZE_MIN
    } else if share >= SLOT_SIZE_MAX as u64 {
        SLOT_SIZE_MAX
    } else {
        1 << share.ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_slots_do_not_overlap() {
        for bytes in [DEVICE_SIZE_MIN, (256 << 20) + 12_345, (4 << 40) - 1] {
            let size = slot_size_for(bytes);
            let slots = slot_count(bytes, size);
            assert!(slots > 0);
            assert!(label_offset(1, bytes) + LABEL_SIZE <= slot_offset(0, size));
            assert!(slot_offset(slots, size) <= label_offset(2, bytes));
            assert!(slot_offset(slots + 1, size) > label_offset(2, bytes), "no slot is wasted");
            assert_eq!(label_offset(3, bytes) + LABEL_SIZE, usable_end(bytes));
        }
        assert_eq!(slot_count(DEVICE_SIZE_MIN - 1, SLOT_SIZE_MIN), 0);
    }

    #[test]
    fn so_many_bytes_are_needed_for_slots() {
        for size in [SLOT_SIZE_MIN, 176 << 10, 5 << 20, SLOT_SIZE_MAX] {
            for slots in [70, 400, 401, 100_000] {
                let bytes = device_bytes(slots, size);
                assert_eq!(bytes % LABEL_SIZE, 0);
                assert!(slot_count(bytes, size) >= slots);
                assert!(bytes == DEVICE_SIZE_MIN || slot_count(bytes - 1, size) < slots);
            }
        }
        assert_eq!(device_bytes(0, SLOT_SIZE_MIN), DEVICE_SIZE_MIN);
    }

    #[test]
    fn slots_grow_with_the_device() {
        assert_eq!(slot_size_for(64 << 20), 1 << 20);
        assert_eq!(slot_size_for(256 << 20), 1 << 20);
        assert_eq!(slot_size_for(1000 << 20), 2 << 20);
        assert_eq!(slot_size_for(4 << 40), 8 << 20);
    }
}
