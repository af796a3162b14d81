//! Images that somebody else wrote: looking for a pool and importing it end with a pool or an
//! error, never with a panic.

use std::sync::Arc;

use crate::common::{Dice, MIB, handles, import_spec, noise};
use crate::forge::{Forger, attempt, devices_of, images};
use steadfast_device::{Device, MemoryDevice};
use steadfast_env::Env;
use steadfast_format::{LabelConfig, Uberblock, medium};
use steadfast_pool::{Error, Pool, scan};

/// Writes `bytes` over a device at once, by its bits.
fn overwrite(device: &MemoryDevice, at: u64, mask: u8) {
    (0..8).filter(|bit| mask & (1 << bit) != 0).for_each(|bit| device.flip_bit(at, bit));
}

/// Where bytes of the image are: labels, rings, slots in use.
fn somewhere(dice: &mut Dice) -> u64 {
    match dice.below(4) {
        0 => medium::CONFIG_OFFSET + dice.below(700),
        1 => medium::RING_OFFSET + dice.below(8) * 4096 + dice.below(400),
        _ => medium::SLOTS_OFFSET + dice.below(12) * MIB + dice.below(200 << 10),
    }
}

#[test]
fn an_image_with_changed_bytes_is_imported_or_refused() {
    let images = images();
    assert_eq!(attempt(&devices_of(&images)), 1, "unchanged it is imported");
    let mut dice = Dice(0x51f3);
    for _ in 0..150 {
        let devices = devices_of(&images);
        for _ in 0..=dice.below(60) {
            overwrite(&devices[dice.below(2) as usize], somewhere(&mut dice), dice.below(256) as u8);
        }
        attempt(&devices);
    }
}

#[test]
fn labels_that_a_stranger_made_right_are_imported_or_refused() {
    let images = images();
    let mut dice = Dice(0xbad);
    for round in 0..96 {
        let devices = devices_of(&images);
        for device in &devices {
            let area = device.read_label(0).expect("a label");
            let mut label = LabelConfig::decode(&area, steadfast_crypto::hash).expect("ours");
            match round % 8 {
                0 => label.leaves.iter_mut().for_each(|leaf| leaf.slots = u32::MAX - dice.below(3) as u32),
                1 => label.leaves.iter_mut().for_each(|leaf| leaf.slots = dice.below(10) as u32),
                2 => label.slot_size = 1 << (16 + dice.below(11)),
                3 => label.ashift = 9 + dice.below(5) as u8,
                4 => {
                    // Two leaves with one guid.
                    let guid = label.device_guid;
                    label.leaves.iter_mut().for_each(|leaf| leaf.guid = guid);
                }
                5 => label.leaves.retain(|leaf| leaf.guid == label.device_guid),
                6 => label.name = ["", "a/b", "\0", "tank/vault"][dice.below(4) as usize].into(),
                _ => {
                    label.slot_size = 1 << (16 + dice.below(11));
                    let small = medium::slot_count(64 * MIB, label.slot_size);
                    label.leaves.iter_mut().for_each(|leaf| leaf.slots = small);
                }
            }
            let bytes = label.encode(steadfast_crypto::hash).expect("it fits");
            (0..4).for_each(|copy| device.write_label(copy, &bytes).expect("written"));
            device.flush().expect("flushed");
        }
        attempt(&devices);
    }
}

#[test]
fn uberblocks_that_a_stranger_made_right_are_imported_or_refused() {
    let images = images();
    let mut dice = Dice(0xfeed);
    for _ in 0..150 {
        let devices = devices_of(&images);
        let rings = devices[0].read_uberblocks(0).expect("a ring");
        let newest = rings.iter().filter_map(|bytes| Uberblock::decode(bytes).ok()).max_by_key(|u| u.txg);
        let newest = newest.expect("an uberblock");
        let mut bytes = newest.encode(steadfast_crypto::hash);
        if dice.below(8) == 0 {
            // The last txg of all.
            bytes[24..32].fill(0xff);
        }
        for _ in 0..=dice.below(2) {
            // Pointers, places of the tail, parent.
            let at = 24 + dice.below(312) as usize;
            bytes[at] ^= 1 << dice.below(8);
        }
        let tag = steadfast_crypto::hash(&bytes[..Uberblock::BOUND_SIZE]);
        bytes[Uberblock::BOUND_SIZE..].copy_from_slice(&tag);
        for device in &devices {
            (0..4).for_each(|copy| device.write_uberblock(copy, newest.txg, &bytes).expect("written"));
            device.flush().expect("flushed");
        }
        attempt(&devices);
    }
}

#[test]
fn half_a_label_is_enough_and_noise_is_no_pool() {
    let images = images();
    let devices = devices_of(&images);
    for copy in [1, 3] {
        devices[0].write_label(copy, &noise(9, 4096)).expect("written");
    }
    devices[0].flush().expect("flushed");
    assert_eq!(attempt(&devices), 1);

    let blank = [Arc::new(MemoryDevice::new("blank", 64 * MIB))];
    assert_eq!(attempt(&blank), 0);
    for copy in 0..4 {
        blank[0].write_label(copy, &noise(copy as u64, 56 << 10)).expect("written");
    }
    assert_eq!(attempt(&blank), 0);
}

#[test]
fn a_device_of_another_pool_is_not_taken_for_the_missing_one() {
    let (ours, others) = (images(), images());
    let devices = devices_of(&[ours[0].clone(), others[1].clone()]);
    let (pools, _) = scan(handles(&devices));
    assert_eq!(pools.len(), 2);
    for found in pools {
        let result = Pool::import(&Env::real(), found, &import_spec(None));
        assert!(matches!(result, Err(Error::MissingDevices { .. })));
    }
}

/// The fuzz target `pool_import`, bounded: changes drawn instead of searched for.
#[test]
fn changes_of_all_kinds_together_are_imported_or_refused() {
    let forger = Forger::new();
    assert_eq!(forger.attempt(&[]), 1, "unchanged it is imported");
    let mut dice = Dice(0x00f0_26e5);
    let mut stood = 0;
    for _ in 0..200 {
        let changes = noise(dice.below(u64::MAX), 8 * (1 + dice.below(5) as usize));
        stood += forger.attempt(&changes);
    }
    assert!((20..180).contains(&stood), "{stood} of 200: some changes are refused, some do not matter");
}
