//! Images somebody else wrote: nothing panics, everything ends.

use std::sync::Arc;

use crate::common::{Fixture, SECRET, leaves};
use steadfast_device::{Device, MemoryDevice};
use steadfast_env::Env;
use steadfast_format::{LabelConfig, Uberblock};
use steadfast_inspect::{Record, Request, Selector};

/// Runs every command on the devices; returns how many records they gave.
fn everything(devices: &[Arc<MemoryDevice>], secret: Option<&[u8]>, env: &Env) -> usize {
    let leaves = leaves(devices);
    let request = Request { leaves: &leaves, secret: secret.map(<[u8]>::to_vec), anchor: None, env };
    let mut records = 0;
    let sink = &mut |record: Record| records += record.to_string().len() + record.to_json().len();
    leaves.iter().for_each(|leaf| steadfast_inspect::label(leaf, sink));
    // Refusals are answers too; only a panic or a hang is wrong here.
    let _ = steadfast_inspect::uberblock(&request, sink);
    let _ = steadfast_inspect::tail(&request, sink);
    let _ = steadfast_inspect::segments(&request, sink);
    for selector in [Selector::Meta, Selector::Names("tank".into()), Selector::Extents("tank/vault".into())] {
        let _ = steadfast_inspect::tree(&request, &selector, sink);
    }
    for span in ["1:0:64", "2:4095:5000", "3:0:4294967295", "0:4294967295:1"] {
        let _ = steadfast_inspect::block(&request, span.parse().unwrap(), sink);
    }
    let summary = steadfast_inspect::check(&request, &mut |finding| sink(finding.record()));
    sink(summary.record());
    records
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Where bytes of the image are: labels, rings, and the first megabytes of slots.
fn somewhere(dice: &mut Dice) -> u64 {
    match dice.below(4) {
        0 => (8 << 10) + dice.below(700),
        1 => (64 << 10) + dice.below(4 * 4096),
        _ => (512 << 10) + dice.below(10 << 20),
    }
}

#[test]
fn a_mutated_image_neither_panics_nor_hangs() {
    let fixture = Fixture::new(false);
    let images: Vec<_> = fixture.devices.iter().map(|device| device.image()).collect();
    let mut dice = Dice(0x51f3);
    for _ in 0..60 {
        let devices: Vec<_> =
            images.iter().map(|image| Arc::new(MemoryDevice::from_image("x", image.clone()))).collect();
        for _ in 0..=dice.below(12) {
            let device = &devices[dice.below(2) as usize];
            device.flip_bit(somewhere(&mut dice), dice.below(8) as u8);
        }
        assert!(everything(&devices, Some(&SECRET), &fixture.env) > 0);
    }
}

#[test]
fn labels_and_uberblocks_made_right_by_a_stranger_are_not_believed_beyond_the_device() {
    let fixture = Fixture::new(false);
    let area = fixture.devices[0].read_label(0).unwrap();
    let label = LabelConfig::decode(&area, steadfast_crypto::hash).unwrap();
    let slot = fixture.devices[0].read_uberblocks(0).unwrap()[3].clone();
    let uberblock = Uberblock::decode(&slot).unwrap();
    let images: Vec<_> = fixture.devices.iter().map(|device| device.image()).collect();
    let mut dice = Dice(0xbad);
    for round in 0..60 {
        let devices: Vec<_> =
            images.iter().map(|image| Arc::new(MemoryDevice::from_image("x", image.clone()))).collect();
        let mut label = label.clone();
        match round % 4 {
            0 => label.leaves.iter_mut().for_each(|leaf| leaf.slots = u32::MAX - dice.below(3) as u32),
            1 => label.slot_size = 1 << (16 + dice.below(11)),
            2 => label.ashift = 9 + dice.below(5) as u8,
            _ => {}
        }
        let mut uberblock = uberblock.clone();
        if round % 3 == 0 {
            // Bytes of the pointers, with the tag made right again: what only a writer of the pool
            // could do.
            let mut bytes = fixture.encode_uberblock(&uberblock);
            let at = 48 + dice.below(256) as usize;
            bytes[at] = dice.below(256) as u8;
            if let Ok(changed) = Uberblock::decode(&bytes) {
                uberblock = changed;
            }
        }
        let bytes = fixture.encode_uberblock(&uberblock);
        let label = label.encode(steadfast_crypto::hash).unwrap();
        for copy in 0..4 {
            devices[0].write_label(copy, &label).unwrap();
            devices[0].write_uberblock(copy, uberblock.txg, &bytes).unwrap();
        }
        devices[0].flush().unwrap();
        assert!(everything(&devices, None, &fixture.env) > 0, "round {round}");
    }
}

#[test]
fn a_mutated_image_with_right_hashes_neither_panics_nor_hangs() {
    for seed in 0..40 {
        let mut fixture = Fixture::new(seed % 2 == 1);
        let mut dice = Dice(seed);
        // Everything in a row or a tail that is forged was sealed and hashed by its writer.
        fixture.forge = Some(Box::new(move |bytes| {
            if dice.below(3) == 0 {
                for _ in 0..=dice.below(3) {
                    let at = dice.below(bytes.len() as u64) as usize;
                    bytes[at] = [0, 1, 0x7f, 0xff][dice.below(4) as usize] ^ dice.below(2) as u8;
                }
            }
        }));
        fixture.begin(4);
        for inode in 30..60 {
            fixture.put(0, inode, 0, vec![1; 3000]);
        }
        fixture.commit();
        assert!(everything(&fixture.devices, Some(&SECRET), &fixture.env) > 0, "seed {seed}");
    }
}

#[test]
fn blank_devices_are_told_of() {
    let devices = [Arc::new(MemoryDevice::new("blank", 64 << 20))];
    assert!(everything(&devices, None, &Env::seeded(1)) > 0);
}
