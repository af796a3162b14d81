//! Does bypassing the page cache pay? Writes and reads segments of a file both ways and prints
//! MB/s.
//!
//!     cargo bench -p steadfast-device --bench direct -- DIRECTORY [MIB]

use std::path::PathBuf;
use std::time::Instant;

use steadfast_device::{Access, Device, FileDevice, OpenOptions, SegmentPlace};
use steadfast_format::SegmentId;

const SLOT: u32 = 8 << 20;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let mib: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(256).max(64);
    let path = directory.join(format!("steadfast-direct-{}", std::process::id()));
    for round in 0..3 {
        for direct in [false, true] {
            let file = std::fs::File::create(&path).expect("a scratch file");
            file.set_len((mib + 16) << 20).expect("a scratch file");
            drop(file);
            let options = OpenOptions { access: Access::Write, direct };
            let device = FileDevice::open(&path, &options).expect("the scratch file opens");
            let slots = u32::try_from(mib / 8).expect("few slots");
            let place =
                |slot| SegmentPlace { segment: SegmentId(u64::from(slot) + 1), slot, slot_size: SLOT };
            let mut piece = vec![0x5a; 1 << 20];

            let start = Instant::now();
            for slot in 0..slots {
                for at in (0..SLOT).step_by(1 << 20) {
                    device.append_segment(place(slot), at, &piece).expect("written");
                }
            }
            let accepted = start.elapsed();
            device.flush().expect("flushed");
            let durable = start.elapsed();

            let start = Instant::now();
            for slot in 0..slots {
                for at in (0..SLOT).step_by(1 << 20) {
                    device.read_segment(place(slot), at, &mut piece).expect("read");
                }
            }
            let read = start.elapsed();
            let rate = |elapsed: std::time::Duration| (f64::from(slots) * 8.389) / elapsed.as_secs_f64();
            println!(
                "round {round} {}: accepted {:.0} MB/s, durable {:.0} MB/s, read again {:.0} MB/s",
                if device.is_direct() { "direct  " } else { "buffered" },
                rate(accepted),
                rate(durable),
                rate(read),
            );
        }
    }
    std::fs::remove_file(&path).expect("removed");
}
