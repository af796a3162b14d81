//! The loads: the same calls on the same bytes for every file system. Each returns what was done
//! and how long it took.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// Different mebibytes that are written in turn.
const BLOCKS: usize = 32;
/// Bytes of a small operation.
pub const SMALL: usize = 4096;

/// Pseudo-random numbers (xorshift64*).
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// A sequence that the seed repeats.
    pub fn new(seed: u64) -> Noise {
        Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.number() >> 8) % end
    }

    /// Bytes that do not compress.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.number().to_le_bytes());
        }
    }
}

/// Data for writes, made before any clock runs.
pub struct Blocks(Vec<Vec<u8>>);

impl Blocks {
    /// Of `ratio` 1 nothing compresses; of 2.5, two fifths of every 4 KiB are noise and the rest
    /// zeros.
    pub fn new(seed: u64, ratio: f64) -> Blocks {
        let mut noise = Noise::new(seed);
        let mut blocks = vec![vec![0u8; MIB]; BLOCKS];
        let noisy = (SMALL as f64 / ratio) as usize / 8 * 8;
        for page in blocks.iter_mut().flat_map(|block| block.chunks_exact_mut(SMALL)) {
            noise.fill(&mut page[..noisy]);
        }
        Blocks(blocks)
    }

    /// A block that differs from every other by its number.
    fn at(&mut self, index: u64) -> &[u8] {
        let block = &mut self.0[index as usize % BLOCKS];
        block[..8].copy_from_slice(&index.to_le_bytes());
        block
    }
}

/// Writes a file of `bytes` in mebibytes and fsyncs it. MB/s.
pub fn write(path: &Path, bytes: u64, blocks: &mut Blocks) -> std::io::Result<f64> {
    let began = Instant::now();
    let mut file = File::create(path)?;
    for index in 0..bytes / MIB as u64 {
        file.write_all(blocks.at(index))?;
    }
    file.sync_all()?;
    Ok(bytes as f64 / 1e6 / began.elapsed().as_secs_f64())
}

/// Reads a whole file in mebibytes. MB/s.
pub fn read(path: &Path) -> std::io::Result<f64> {
    let mut block = vec![0u8; MIB];
    let began = Instant::now();
    let mut file = File::open(path)?;
    let mut total = 0;
    loop {
        match file.read(&mut block)? {
            0 => break,
            count => total += count,
        }
    }
    Ok(total as f64 / 1e6 / began.elapsed().as_secs_f64())
}

/// Reads 4 KiB at `count` random places. Reads a second.
pub fn random_reads(path: &Path, count: u64, noise: &mut Noise) -> std::io::Result<f64> {
    let file = File::open(path)?;
    let places = file.metadata()?.len() / SMALL as u64;
    let mut page = [0u8; SMALL];
    let began = Instant::now();
    for _ in 0..count {
        file.read_exact_at(&mut page, noise.below(places) * SMALL as u64)?;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Writes 4 KiB at `count` random places, fsync at the end (`each`: after every one). Writes a
/// second.
pub fn random_writes(path: &Path, count: u64, each: bool, noise: &mut Noise) -> std::io::Result<f64> {
    random_writes_while(path, count, each, noise, &|| true).map(|(rate, _)| rate)
}

/// The same as long as it is told to go on: with what was written until then, which the rate is of.
pub fn random_writes_while(
    path: &Path,
    count: u64,
    each: bool,
    noise: &mut Noise,
    goes_on: &dyn Fn() -> bool,
) -> std::io::Result<(f64, u64)> {
    let file = OpenOptions::new().write(true).open(path)?;
    let places = file.metadata()?.len() / SMALL as u64;
    let mut page = [0u8; SMALL];
    let began = Instant::now();
    let mut done = 0;
    while done < count && goes_on() {
        noise.fill(&mut page);
        file.write_all_at(&page, noise.below(places) * SMALL as u64)?;
        if each {
            file.sync_all()?;
        }
        done += 1;
    }
    file.sync_all()?;
    Ok((done as f64 / began.elapsed().as_secs_f64(), done))
}

/// Appends 4 KiB to a file of its own in each of `threads` threads, `count` times, an fsync behind
/// each. Appends a second.
pub fn synced_appends(folder: &Path, threads: u64, count: u64) -> std::io::Result<f64> {
    by_threads(threads, count, |thread| {
        let mut page = [0u8; SMALL];
        Noise::new(thread + 1).fill(&mut page);
        let mut file = File::create(folder.join(format!("appended-{thread}")))?;
        Ok(move |_| {
            file.write_all(&page)?;
            file.sync_all()
        })
    })
}

/// Writes 4 KiB at places of a file that is there in full, in each of `threads` threads `count`
/// times, an fdatasync behind each. Writes a second.
pub fn synced_writes(path: &Path, threads: u64, count: u64) -> std::io::Result<f64> {
    let places = fs::metadata(path)?.len() / SMALL as u64;
    by_threads(threads, count, |thread| {
        let mut page = [0u8; SMALL];
        let mut noise = Noise::new(thread + 1);
        noise.fill(&mut page);
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(move |_| {
            file.write_all_at(&page, noise.below(places) * SMALL as u64)?;
            file.sync_data()
        })
    })
}

/// Does what `make` gives for a thread `count` times in each of `threads` threads, which begin
/// together. Times a second, of all of them.
fn by_threads<Step>(
    threads: u64,
    count: u64,
    make: impl Fn(u64) -> std::io::Result<Step>,
) -> std::io::Result<f64>
where
    Step: FnMut(u64) -> std::io::Result<()> + Send,
{
    let steps = (0..threads).map(make).collect::<std::io::Result<Vec<Step>>>()?;
    let began = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            steps.into_iter().map(|step| scope.spawn(move || (0..count).try_for_each(step))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a load does not panic"))
    })?;
    Ok((threads * count) as f64 / began.elapsed().as_secs_f64())
}

/// Half reads, half writes of 4 KiB at random until `writes` are written; fsync at the end.
/// Operations a second.
pub fn mixed(path: &Path, writes: u64, noise: &mut Noise) -> std::io::Result<f64> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let places = file.metadata()?.len() / SMALL as u64;
    let mut page = [0u8; SMALL];
    let began = Instant::now();
    for _ in 0..writes {
        file.read_exact_at(&mut page, noise.below(places) * SMALL as u64)?;
        noise.fill(&mut page);
        file.write_all_at(&page, noise.below(places) * SMALL as u64)?;
    }
    file.sync_all()?;
    Ok(2.0 * writes as f64 / began.elapsed().as_secs_f64())
}

/// Creates empty files `from..to` in a directory. Files a second.
pub fn create(folder: &Path, from: u64, to: u64) -> std::io::Result<f64> {
    let began = Instant::now();
    for index in from..to {
        OpenOptions::new().write(true).create_new(true).open(folder.join(format!("file-{index}")))?;
    }
    Ok((to - from) as f64 / began.elapsed().as_secs_f64())
}

/// Asks for the attributes of files `0..count`, as `ls -l` and git do. Files a second.
/// (`fs::symlink_metadata` asks for the birth time as well, which a FUSE file system that has one
/// is asked for on its own.)
pub fn stat(folder: &Path, count: u64) -> std::io::Result<f64> {
    let began = Instant::now();
    for index in 0..count {
        rustix::fs::lstat(folder.join(format!("file-{index}")))?;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Removes files `0..count`. Files a second.
pub fn unlink(folder: &Path, count: u64) -> std::io::Result<f64> {
    let began = Instant::now();
    for index in 0..count {
        fs::remove_file(folder.join(format!("file-{index}")))?;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Cost of overwriting for a while.
#[derive(Clone, Debug, Default)]
pub struct Overwritten {
    /// Bytes accepted.
    pub bytes: u64,
    /// Seconds, the fsync at the end included.
    pub seconds: f64,
    /// Milliseconds of each write(2), sorted.
    pub waits_ms: Vec<f64>,
}

impl Overwritten {
    /// The wait below which `share` (0 to 1) of all lie.
    pub fn percentile(&self, share: f64) -> f64 {
        let last = self.waits_ms.len().saturating_sub(1);
        self.waits_ms.get((last as f64 * share).round() as usize).copied().unwrap_or(0.0)
    }
}

/// Overwrites whole aligned records of a file at random for a while, at most `most` bytes; fsync at
/// the end.
pub fn overwrite(
    path: &Path,
    record: usize,
    lasting: Duration,
    most: u64,
    noise: &mut Noise,
) -> std::io::Result<Overwritten> {
    let file = OpenOptions::new().write(true).open(path)?;
    let records = file.metadata()?.len() / record as u64;
    let mut data = vec![0u8; record];
    noise.fill(&mut data);
    let mut done = Overwritten::default();
    let began = Instant::now();
    while began.elapsed() < lasting && done.bytes < most {
        // Another eight bytes make another block.
        data[..8].copy_from_slice(&noise.number().to_le_bytes());
        let place = noise.below(records) * record as u64;
        let one = Instant::now();
        file.write_all_at(&data, place)?;
        done.waits_ms.push(one.elapsed().as_secs_f64() * 1e3);
        done.bytes += record as u64;
    }
    file.sync_all()?;
    done.seconds = began.elapsed().as_secs_f64();
    done.waits_ms.sort_by(f64::total_cmp);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_ratio_2_5_holds_two_fifths_of_noise_and_every_block_differs() {
        let mut blocks = Blocks::new(1, 2.5);
        let zeros = blocks.at(3).iter().filter(|byte| **byte == 0).count() as f64 / MIB as f64;
        assert!((0.59..0.62).contains(&zeros), "{zeros}");
        let first = blocks.at(3).to_vec();
        assert_ne!(first, blocks.at(3 + BLOCKS as u64));
        let mut plain = Blocks::new(1, 1.0);
        assert!(plain.at(0).iter().filter(|byte| **byte == 0).count() < MIB / 100);
    }

    #[test]
    fn the_loads_do_what_they_say() {
        let dir = crate::host::workdir::Workdir::create(&std::env::temp_dir()).unwrap();
        let path = dir.path().join("f");
        let mut noise = Noise::new(9);
        assert!(write(&path, 2 << 20, &mut Blocks::new(1, 1.0)).unwrap() > 0.0);
        assert_eq!(fs::metadata(&path).unwrap().len(), 2 << 20);
        let before = fs::read(&path).unwrap();
        assert!(read(&path).unwrap() > 0.0 && random_reads(&path, 10, &mut noise).unwrap() > 0.0);
        assert_eq!(fs::read(&path).unwrap(), before);
        assert!(random_writes(&path, 10, true, &mut noise).unwrap() > 0.0);
        assert!(mixed(&path, 10, &mut noise).unwrap() > 0.0);
        assert_ne!(fs::read(&path).unwrap(), before);
        let done = overwrite(&path, 65_536, Duration::from_secs(9), 1 << 20, &mut noise).unwrap();
        assert_eq!((done.bytes, done.waits_ms.len()), (1 << 20, 16));
        assert!(done.percentile(0.5) <= done.percentile(1.0));
        assert!(create(dir.path(), 0, 30).unwrap() > 0.0 && stat(dir.path(), 30).unwrap() > 0.0);
        assert!(unlink(dir.path(), 30).unwrap() > 0.0);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
