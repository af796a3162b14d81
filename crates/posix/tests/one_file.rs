//! One file beside an array of bytes, for a very long time: what `fsx` does through a mount, here
//! without a kernel and its round trips. Commits, crashes and reopening happen at every point
//! between freeze and sync.
//!
//! `STEADFAST_OPS=10000000` runs so many operations instead of a few (over all shapes),
//! `STEADFAST_SEED=n` begins elsewhere.

use crate::support::{Draw, World};
use steadfast_dataset::Settings;
use steadfast_env::Env;
use steadfast_format::Txg;
use steadfast_posix::{Errno, Fallocate, SetAttr};

/// Greatest size of the file.
const SIZE_MAX: usize = 400_000;
/// Longest read or write.
const LENGTH_MAX: usize = 50_000;

struct Run {
    world: World,
    ino: u64,
    /// Content of the file now.
    now: Vec<u8>,
    /// As of the txg that is closed and not yet written.
    frozen: Option<(Txg, Vec<u8>)>,
    /// As of the last commit.
    durable: Vec<u8>,
    draw: Draw,
    crashes: u32,
}

impl Run {
    fn new(seed: u64, recordsize: u32) -> Run {
        let settings = Settings { recordsize, zeros_are_holes: seed.is_multiple_of(2) };
        let mut world = World::new(Env::seeded(seed), settings);
        let ino = world.file("f");
        world.commit();
        Run { world, ino, now: vec![], frozen: None, durable: vec![], draw: Draw(seed), crashes: 0 }
    }

    /// Offset and length inside the greatest size; often at a record's or a page's edge, often near
    /// the end of the file.
    fn range(&mut self) -> (usize, usize) {
        let mut offset = match self.draw.below(4) {
            0 => self.now.len().saturating_sub(self.draw.below(9_000)),
            _ => self.draw.below(SIZE_MAX - LENGTH_MAX),
        };
        let mut length = 1 + self.draw.below([200, 9_000, LENGTH_MAX][self.draw.0 as usize % 3]);
        if self.draw.below(3) == 0 {
            (offset, length) = (offset / 4096 * 4096, length.next_multiple_of(4096));
        }
        (offset, length.min(SIZE_MAX - offset))
    }

    /// Makes the array as long as it must be for a change up to `end`.
    fn reach(&mut self, end: usize) {
        let size = self.now.len().max(end);
        self.now.resize(size, 0);
    }

    fn read(&mut self) {
        let (offset, length) = self.range();
        let mut out = vec![0xee; length];
        let count = self.world.fs.read(self.ino, offset as u64, &mut out).expect("reads");
        let from = offset.min(self.now.len());
        let to = (offset + length).min(self.now.len());
        let differs =
            out[..count].iter().zip(&self.now[from..to]).position(|(found, expected)| found != expected);
        assert_eq!((count, differs), (to - from, None), "read of {length} at {offset}");
    }

    fn seek(&mut self) {
        let at = self.draw.below(SIZE_MAX);
        let data = self.world.fs.seek(self.ino, at as u64, true);
        let next = self.now.iter().skip(at).position(|byte| *byte != 0).map(|next| at + next);
        match (data, next) {
            (Ok(data), Some(next)) => assert!(data <= next as u64, "data at {next} is skipped"),
            (Err(Errno::ENXIO), Some(next)) => panic!("no data from {at}, but at {next}"),
            (Ok(data), None) => assert!(data < self.now.len() as u64),
            (Err(error), _) => assert_eq!(error, Errno::ENXIO),
        }
        match self.world.fs.seek(self.ino, at as u64, false) {
            Ok(hole) if (hole as usize) < self.now.len() => assert_eq!(self.now[hole as usize], 0, "a hole"),
            Ok(hole) => assert_eq!(hole, self.now.len() as u64),
            Err(error) => assert_eq!((error, at >= self.now.len()), (Errno::ENXIO, true)),
        }
    }

    fn step(&mut self) {
        let (ino, (offset, length)) = (self.ino, self.range());
        let (at, bytes) = (offset as u64, length as u64);
        match self.draw.below(40) {
            0..=13 => {
                let data = self.draw.bytes(length);
                self.world.fs.write(ino, at, &data, false).expect("writes");
                self.reach(offset + length);
                self.now[offset..offset + length].copy_from_slice(&data);
            }
            14..=23 => self.read(),
            24..=26 => {
                let set = SetAttr { size: Some(at), ..SetAttr::default() };
                assert_eq!(self.world.fs.setattr(ino, &set).expect("cuts or grows").size, at);
                self.now.resize(offset, 0);
            }
            27..=30 => {
                self.world.fs.fallocate(ino, Fallocate::PunchHole, at, bytes, false).expect("punches");
                let size = self.now.len();
                self.now[offset.min(size)..(offset + length).min(size)].fill(0);
            }
            31 | 32 => {
                let keep_size = self.draw.below(2) == 0;
                let zero = Fallocate::ZeroRange { keep_size };
                self.world.fs.fallocate(ino, zero, at, bytes, false).expect("zeroes");
                if !keep_size {
                    self.reach(offset + length);
                }
                let size = self.now.len();
                self.now[offset.min(size)..(offset + length).min(size)].fill(0);
            }
            33 => {
                let allocate = Fallocate::Allocate { keep_size: false };
                self.world.fs.fallocate(ino, allocate, at, bytes, false).expect("allocates");
                self.reach(offset + length);
            }
            34 | 35 => {
                let target = self.draw.below(SIZE_MAX - LENGTH_MAX);
                let length = length.min(self.now.len().saturating_sub(offset)).min(LENGTH_MAX);
                let copied = self.world.fs.copy_file_range(ino, at, ino, target as u64, length as u64);
                if length > 0 && offset < target + length && target < offset + length {
                    assert_eq!(copied, Err(Errno::EINVAL));
                } else {
                    assert_eq!(copied, Ok(length as u64));
                    let data = self.now[offset.min(self.now.len())..][..length].to_vec();
                    if length > 0 {
                        self.reach(target + length);
                        self.now[target..target + length].copy_from_slice(&data);
                    }
                }
            }
            36 => self.seek(),
            37 if self.frozen.is_none() => _ = self.world.write_early(),
            37 => self.read(),
            38 => self.pass(),
            _ if self.draw.below(20) == 0 => self.crash(),
            _ => self.read(),
        }
    }

    /// One half of a commit.
    fn pass(&mut self) {
        match self.frozen.take() {
            Some((txg, content)) => {
                self.world.sync(txg);
                self.durable = content;
            }
            None => self.frozen = Some((self.world.freeze(), self.now.clone())),
        }
    }

    /// Everything since the last commit is lost.
    fn crash(&mut self) {
        self.frozen = None;
        self.world.reopen();
        self.now = self.durable.clone();
        self.compare();
        self.crashes += 1;
    }

    fn compare(&self) {
        let found = self.world.content(self.ino);
        let differs = found.iter().zip(&self.now).position(|(found, expected)| found != expected);
        assert_eq!((found.len(), differs), (self.now.len(), None));
    }

    fn finish(mut self) -> u32 {
        if self.frozen.is_some() {
            self.pass();
        }
        self.compare();
        self.world.check();
        self.compare();
        self.crashes
    }
}

#[test]
fn a_file_is_the_array_it_should_be() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (ops, first) = (number("STEADFAST_OPS").unwrap_or(60_000), number("STEADFAST_SEED").unwrap_or(1));
    // Every run begins with a new pool, so that none grows old and all shapes are met.
    let each = (ops / 12).clamp(1_000, 50_000);
    let mut crashes = 0;
    for seed in 0..ops.div_ceil(each) {
        let recordsize = [4_096, 16_384, 131_072, 512][usize::try_from(seed % 4).expect("small")];
        let mut run = Run::new(first + seed, recordsize);
        for step in 0..each {
            run.step();
            if step % 5_000 == 0 {
                run.compare();
            }
        }
        crashes += run.finish();
    }
    assert!(crashes > 0, "no crash was met");
}
