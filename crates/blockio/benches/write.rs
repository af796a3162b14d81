//! What does a block cost on its way down, by compression, sealing and kind of data? And what does
//! the probe save?
//!
//! `cargo bench -p steadfast-blockio`. Prints MB/s of logical bytes on all cores (memory device,
//! 128 KiB blocks).

use std::sync::Arc;
use std::time::Instant;

use steadfast_blockio::{BlockIo, BlockWrite, CompressionSetting, ReadContext, WriteContext};
use steadfast_crypto::{BlockKeys, Key};
use steadfast_device::{MemoryDevice, SharedDevice};
use steadfast_env::Env;
use steadfast_format::{BlockKind, DatasetId, DeviceId, PoolGuid, Txg};
use steadfast_segment::{Geometry, Space};

const BLOCK: usize = 128 << 10;
const BLOCKS: usize = 256;

fn main() {
    let mut noise = vec![0; BLOCK * BLOCKS];
    Env::seeded(1).random.fill(&mut noise);
    let mut half = noise.clone();
    half.chunks_mut(256).for_each(|chunk| chunk[100..].fill(b'x'));
    let secret = BlockKeys::new(Key::from_bytes([1; 32]), &|out| out.fill(1));
    for (name, data) in [("noise", &noise), ("2.5:1", &half)] {
        for setting in [
            CompressionSetting::Off,
            CompressionSetting::Lz4,
            CompressionSetting::Zstd(3),
            CompressionSetting::Zstd(9),
            CompressionSetting::Zstd(19),
            CompressionSetting::Zle,
        ] {
            for keys in [None, Some(&secret)] {
                // The highest level takes seconds for what the others do in milliseconds.
                let blocks = if setting == CompressionSetting::Zstd(19) { 16 } else { BLOCKS };
                run(name, &data[..blocks * BLOCK], setting, keys);
            }
        }
    }
}

fn run(name: &str, data: &[u8], setting: CompressionSetting, keys: Option<&BlockKeys>) {
    let env = Env::real();
    let device: SharedDevice = Arc::new(MemoryDevice::new("memory", 512 << 20));
    let geometry = Geometry { slot_size: 2 << 20, unit: 4096 };
    let space = Arc::new(Space::new(geometry, vec![(DeviceId(1), 255, device)], env.clone()));
    let io = BlockIo::new(Arc::clone(&space), env, PoolGuid(1), 0);
    let context = WriteContext {
        small_bytes_max: 0,
        copies: 1,
        copies_on_stores: true,
        family: DatasetId(1),
        owner: DatasetId(0),
        txg: Txg(1),
        compression: setting,
        keys,
    };
    let block = |block: &[u8]| BlockWrite::new(BlockKind::Data, 0, block.to_vec());
    let blocks = data.chunks(BLOCK).map(block).collect();
    let start = Instant::now();
    let pointers = io.write_many(&context, blocks).expect("there is room");
    let write = start.elapsed();
    space.flush_open().expect("memory takes bytes");
    let context = ReadContext { dataset: DatasetId(1), family: DatasetId(1), keys, cache: false };
    let start = Instant::now();
    for pointer in &pointers {
        io.read(pointer, &context).expect("what was written is read");
    }
    let read = start.elapsed();
    let rate = |time: std::time::Duration| data.len() as f64 / 1e6 / time.as_secs_f64();
    let stored = io.statistics().stored_bytes_written as f64 / data.len() as f64;
    println!(
        "{name:6} {setting:?}{} write {:6.0} MB/s, read (one core) {:6.0} MB/s, stored {:5.1} %",
        if keys.is_some() { " sealed" } else { "" },
        rate(write),
        rate(read),
        stored * 100.0
    );
}
