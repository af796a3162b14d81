//! Images of pools as a stranger who knows the format could make them: bytes changed at random, and
//! labels, uberblocks, commit tails and roots of the meta tree changed *and* hashed again, so that
//! what reads them gets past the hashes.

use std::sync::Arc;

use crate::common::{MIB, ROOT, handles, import_spec, key, mount, noise, spec, write_file};
use steadfast_device::memory::Image;
use steadfast_device::{Device, MemoryDevice, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::{BlockPointer, LabelConfig, Uberblock, medium};
use steadfast_pool::{ImportSpec, Memory, Pool, scan};

/// Images of an exported pool on two devices: a plain root dataset and an encrypted one.
pub fn images() -> Vec<Image> {
    let env = Env::real();
    let devices = [MemoryDevice::new("a", 64 * MIB), MemoryDevice::new("b", 64 * MIB)].map(Arc::new);
    let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
    pool.datasets()
        .create_dataset("tank/vault", Default::default(), Some(key(&env, &[7; 32])))
        .expect("a dataset");
    for name in ["tank", "tank/vault"] {
        let (fs, _handle) = mount(&pool, name);
        for file in 0..40u64 {
            write_file(&fs, ROOT, format!("file {file}").as_bytes(), &noise(file, 3_000));
        }
    }
    pool.export().expect("exported");
    drop(pool);
    devices.iter().map(|device| device.image()).collect()
}

pub fn devices_of(images: &[Image]) -> Vec<Arc<MemoryDevice>> {
    let device = |(at, image): (usize, &Image)| MemoryDevice::from_image(&format!("d{at}"), image.clone());
    images.iter().enumerate().map(device).map(Arc::new).collect()
}

/// Looks and imports as an operator would who wants all there is; says how many pools stood.
pub fn attempt(devices: &[Arc<MemoryDevice>]) -> usize {
    let env = Env::real();
    let (pools, _) = scan(handles(devices));
    let mut stood = 0;
    for found in pools {
        let memory = Memory { node_cache_bytes: 1 << 20, block_cache_bytes: 1 << 20, ..Memory::default() };
        let spec = ImportSpec { force: true, destroyed: true, memory, ..import_spec(Some(&[7; 32])) };
        // A refusal is an answer too.
        let Ok(pool) = Pool::import(&env, found, &spec) else { continue };
        stood += 1;
        let _ = pool.history();
        for name in pool.datasets().names() {
            let _ = pool.datasets().dataset_info(&name);
        }
        let _ = pool.close();
    }
    stood
}

/// A pool's images, and what can be done to copies of them.
pub struct Forger {
    images: Vec<Image>,
}

/// A change, of eight bytes: kind, device, where (four bytes), what, and how.
type Change = [u8; 8];

impl Forger {
    /// With images of a pool of its own.
    pub fn new() -> Forger {
        Forger { images: images() }
    }

    /// Makes the changes that `bytes` stand for, looks for pools and imports them. Says how many
    /// stood.
    pub fn attempt(&self, bytes: &[u8]) -> usize {
        let devices = devices_of(&self.images);
        let (changes, _) = bytes.as_chunks::<8>();
        for change in changes.iter().take(64) {
            // An earlier change may have left nothing to change in this way.
            let _ = apply(&devices, *change);
        }
        attempt(&devices)
    }
}

fn apply(devices: &[Arc<MemoryDevice>], [kind, device, a, b, c, d, what, how]: Change) -> Option<()> {
    let at = u64::from(u32::from_le_bytes([a, b, c, d]));
    let device = &devices[usize::from(device) % devices.len()];
    let flip = |at: u64| (0..8).filter(|bit| what >> bit & 1 != 0).for_each(|bit| device.flip_bit(at, bit));
    match kind % 7 {
        0 => flip(medium::CONFIG_OFFSET + at % 800),
        1 => flip(medium::RING_OFFSET + at % (8 * 4096)),
        2 => flip(medium::SLOTS_OFFSET + at % (16 * MIB)),
        3 => label(devices, at, what, how)?,
        4 => {
            let mut bytes = newest(devices)?.encode(steadfast_crypto::hash);
            // Not the magic, which would make it no uberblock at all.
            bytes[8 + at as usize % (Uberblock::BOUND_SIZE - 8)] ^= what;
            put(devices, &mut bytes);
        }
        5 => {
            let mut uberblock = newest(devices)?;
            uberblock.tail = block(devices, &uberblock.tail, at, what)?;
            put(devices, &mut uberblock.encode(steadfast_crypto::hash));
        }
        _ => {
            let mut uberblock = newest(devices)?;
            uberblock.meta = block(devices, &uberblock.meta, at, what)?;
            put(devices, &mut uberblock.encode(steadfast_crypto::hash));
        }
    }
    Some(())
}

/// Changes one thing in all labels, which stay valid.
fn label(devices: &[Arc<MemoryDevice>], at: u64, what: u8, how: u8) -> Option<()> {
    for device in devices {
        let mut label = LabelConfig::decode(&device.read_label(0).ok()?, steadfast_crypto::hash).ok()?;
        let count = label.leaves.len().max(1);
        match how % 8 {
            0 => label.leaves.get_mut(usize::from(what) % count)?.slots = at as u32,
            1 => label.leaves.get_mut(usize::from(what) % count)?.guid = label.device_guid,
            2 => label.slot_size = 1 << (16 + at % 11),
            3 => label.ashift = 9 + what % 5,
            4 => label.name = String::from_utf8_lossy(&[what, how, what]).into_owned(),
            5 => label.leaves.truncate(usize::from(what) % count + 1),
            6 => label.leaves.reverse(),
            _ => label.leaves.iter_mut().for_each(|leaf| leaf.slots = (at % 200) as u32),
        }
        let bytes = label.encode(steadfast_crypto::hash)?;
        (0..4).for_each(|copy| device.write_label(copy, &bytes).expect("written"));
        device.flush().expect("flushed");
    }
    Some(())
}

fn newest(devices: &[Arc<MemoryDevice>]) -> Option<Uberblock> {
    let rings = devices[0].read_uberblocks(0).expect("a ring");
    rings.iter().filter_map(|bytes| Uberblock::decode(bytes).ok()).max_by_key(|uberblock| uberblock.txg)
}

/// Tags an uberblock and puts it in the place of its txg everywhere.
fn put(devices: &[Arc<MemoryDevice>], bytes: &mut [u8; medium::UBERBLOCK_SIZE]) {
    let tag = steadfast_crypto::hash(&bytes[..Uberblock::BOUND_SIZE]);
    bytes[Uberblock::BOUND_SIZE..].copy_from_slice(&tag);
    let Some(txg) = newest(devices).map(|uberblock| uberblock.txg) else { return };
    for device in devices {
        (0..4).for_each(|copy| device.write_uberblock(copy, txg, bytes).expect("written"));
        device.flush().expect("flushed");
    }
}

/// Changes a byte of the first copy of a block that has no key, and gives the pointer that names
/// it, with that copy for both.
fn block(devices: &[Arc<MemoryDevice>], pointer: &BlockPointer, at: u64, what: u8) -> Option<BlockPointer> {
    let copy = pointer.copies[0];
    let mut bytes = vec![0; pointer.psize.min(1 << 20) as usize];
    for device in devices {
        let slot_size =
            LabelConfig::decode(&device.read_label(0).ok()?, steadfast_crypto::hash).ok()?.slot_size;
        for slot in 0..medium::slot_count(64 * MIB, slot_size) {
            let place = SegmentPlace { segment: copy.segment, slot, slot_size };
            // A forger has no table of segments, but knows the hash.
            let read = device.read_segment(place, copy.offset, &mut bytes);
            if read.is_err() || steadfast_crypto::hash(&bytes) != pointer.hash {
                continue;
            }
            let at = at as usize % bytes.len().max(1);
            *bytes.get_mut(at)? ^= what;
            device.append_segment(place, copy.offset, &bytes).ok()?;
            device.flush().ok()?;
            return Some(BlockPointer {
                hash: steadfast_crypto::hash(&bytes),
                copies: [copy, copy, steadfast_format::Address::NONE],
                ..*pointer
            });
        }
    }
    None
}
