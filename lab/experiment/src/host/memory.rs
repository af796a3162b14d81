//! Memory of this machine, which may be a virtual one.
//!
//! The host of a virtual machine gives memory when it is touched, and takes back what lies free
//! (free page reporting of the balloon). Touching it again then takes many times as long, in
//! processor time of whoever happens to do it: a writer, a daemon, a store in memory.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

/// Bytes that are asked for at once.
const PIECE: usize = 16 << 20;

/// Writes to so many bytes of free memory and gives them back, so that whoever takes them within
/// the next second or so need not wait for the host. At most half of what is free. MB/s.
pub(crate) fn touch(bytes: u64) -> f64 {
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let bytes = available(&told).map_or(bytes, |available| bytes.min(available / 2));
    let began = Instant::now();
    let pieces: Vec<Vec<u8>> = (0..bytes.div_ceil(PIECE as u64)).map(|_| black_box(vec![1; PIECE])).collect();
    let seconds = began.elapsed().as_secs_f64();
    (pieces.len() * PIECE) as f64 / 1e6 / seconds
}

/// Bytes that can be had without writing anything back, by `/proc/meminfo`.
fn available(told: &str) -> Option<u64> {
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_and_memory_is_touched() {
        assert_eq!(available("MemFree: 7 kB\nMemAvailable:   12 kB\nDirty: 1 kB\n"), Some(12 << 10));
        assert_eq!(available("MemFree: 7 kB\n"), None);
        assert!(touch(1).is_normal());
    }
}
