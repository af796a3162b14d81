//! Any bytes are a request, or an error: never a panic. Seeded, so that a failure repeats.

use std::collections::BTreeMap;
use std::time::Duration;
use steadfast_fuse::dispatch::{Outcome, serve};
use steadfast_fuse::wire::request::{Dialect, decode};
use steadfast_fuse::*;

/// A handler that answers everything, as lavishly as it is allowed to.
struct Lavish;

fn entry() -> Entry {
    let attr = Attr { mode: 0o100644, rdev: u32::MAX, ..Attr::default() };
    Entry { ino: 2, generation: 0, attr, entry_ttl: Duration::MAX, attr_ttl: TTL_LONG }
}

fn attr() -> AttrReply {
    AttrReply { attr: entry().attr, ttl: Duration::MAX }
}

impl Handler for Lavish {
    fn lookup(&self, _: &Request, _: u64, name: &[u8]) -> Reply<Entry> {
        assert!(!name.is_empty() && !name.contains(&0) && !name.contains(&b'/'));
        Ok(entry())
    }
    fn forget(&self, forgets: &[Forget]) {
        assert!(!forgets.is_empty());
    }
    fn getattr(&self, _: &Request, _: u64, _: Option<u64>) -> Reply<AttrReply> {
        Ok(attr())
    }
    fn setattr(&self, _: &Request, _: u64, _: &SetAttr) -> Reply<AttrReply> {
        Ok(attr())
    }
    fn readlink(&self, _: &Request, _: u64) -> Reply<Vec<u8>> {
        Ok(vec![b'x'; 4095])
    }
    fn read(&self, _: &Request, args: &ReadArgs, out: &mut [u8]) -> Reply<usize> {
        let _ = args.offset as i64 + out.len() as i64;
        out.fill(1);
        Ok(out.len())
    }
    fn write(&self, _: &Request, args: &WriteArgs, data: &[u8]) -> Reply<usize> {
        assert!(args.offset <= i64::MAX as u64);
        Ok(data.len())
    }
    fn rename(&self, _: &Request, args: &RenameArgs<'_>) -> Reply<()> {
        assert!(!args.name.is_empty() && !args.new_name.is_empty());
        Ok(())
    }
    fn getxattr(&self, _: &Request, _: u64, _: &[u8], out: &mut ValueSink<'_>) -> Reply<()> {
        out.put(&[7; 300])
    }
    fn readdir(&self, _: &Request, _: u64, _: u64, offset: u64, out: &mut DirSink<'_>) -> Reply<()> {
        let mut cookie = offset;
        while out.add(1, cookie, FileKind::Directory, b"name of some length") {
            cookie = cookie.wrapping_add(1);
        }
        Ok(())
    }
    fn readdirplus(&self, _: &Request, _: u64, _: u64, _: u64, out: &mut DirPlusSink<'_>) -> Reply<()> {
        while out.add(1, b"n", &entry()) {}
        Ok(())
    }
    fn create(&self, _: &Request, _: u64, _: &[u8], _: u32, _: &OpenArgs) -> Reply<(Entry, Opened)> {
        Ok((entry(), Opened::default()))
    }
    fn ioctl(&self, _: &Request, _: &IoctlArgs<'_>, out: &mut [u8]) -> Reply<(i32, usize)> {
        Ok((-1, out.len()))
    }
    fn fallocate(&self, _: &Request, args: &FallocateArgs) -> Reply<()> {
        assert!(args.offset + args.length <= i64::MAX as u64);
        Ok(())
    }
    fn copy_file_range(&self, _: &Request, args: &CopyArgs) -> Reply<u64> {
        Ok(args.length)
    }
    fn lseek(&self, _: &Request, _: u64, _: u64, offset: u64, _: Whence) -> Reply<u64> {
        Ok(offset)
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let lines = include_str!("../golden/wire.hex").lines().filter(|l| !l.starts_with('#'));
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    };
    lines.map(|line| bytes(line.split_once(' ').unwrap().1)).collect()
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, good enough to choose bytes.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % sides as u64) as usize
    }
}

fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len().max(1));
        match dice.roll(7) {
            0 => bytes.truncate(at),
            1 => bytes.extend((0..dice.roll(64)).map(|i| i as u8)),
            2 if at + 4 <= bytes.len() => bytes[at..at + 4].fill(0xff),
            3 if bytes.len() > 37 => bytes[36] = dice.roll(256) as u8, // the extensions' length
            4 if bytes.len() > 5 => bytes[4] = dice.roll(60) as u8,    // the opcode
            5 if at < bytes.len() => bytes[at] = 0,
            _ if at < bytes.len() => bytes[at] ^= 1 << dice.roll(8),
            _ => {}
        }
    }
    // Mostly with a true length, or nothing behind the first check would ever be reached.
    if dice.roll(16) != 0
        && let len = bytes.len() as u32
        && let Some(said) = bytes.first_chunk_mut::<4>()
    {
        *said = len.to_ne_bytes();
    }
}

#[test]
fn mutated_requests_never_panic_and_are_served_within_bounds() {
    let (seeds, mut dice) = (seeds(), Dice(0x51f3));
    let mut out = vec![0; 128 << 10];
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    for round in 0..200_000 {
        let mut bytes = seeds[dice.roll(seeds.len())].clone();
        mutate(&mut dice, &mut bytes);
        let dialect = Dialect { setxattr_ext: dice.roll(2) == 0 };
        let kind = match decode(&bytes, dialect) {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                "undecodable"
            }
            Ok(incoming) => {
                let served = serve(&Lavish, &incoming, &mut out);
                assert_eq!(served.panicked, None, "round {round}: {incoming:?}");
                match served.outcome {
                    Outcome::Silent => "silent",
                    Outcome::Failed(_) => "failed",
                    Outcome::Filled(len) => {
                        assert!(len <= out.len());
                        "filled"
                    }
                }
            }
        };
        *outcomes.entry(kind).or_default() += 1;
    }
    // The mutator reaches every kind of end; if not, it tests nothing.
    for kind in ["undecodable", "silent", "failed", "filled"] {
        assert!(outcomes.get(kind).is_some_and(|&n| n > 1000), "{outcomes:?}");
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut dice = Dice(7);
    for _ in 0..100_000 {
        let mut bytes: Vec<u8> = (0..dice.roll(200)).map(|_| dice.roll(256) as u8).collect();
        let len = bytes.len() as u32;
        if let Some(said) = bytes.first_chunk_mut::<8>() {
            said[..4].copy_from_slice(&len.to_ne_bytes());
            said[4..].copy_from_slice(&(dice.roll(56) as u32).to_ne_bytes());
        }
        let _ = decode(&bytes, Dialect::default());
    }
}
