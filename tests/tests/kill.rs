//! The daemon is killed again and again while programs write to a real mount. What an `fsync` promised is there each time,
//! whole, and nothing else is.
//!
//! Moments and contents follow from a seed; what the kernel and the daemon do between does not, so a failure is told with
//! what was promised and what was found. `STEADFAST_KILLS=300` kills more often than the ten times of every test run,
//! `STEADFAST_SEED` at other moments. The page cache of the host survives: what is tried here is that nothing is promised
//! too early and that every interrupted commit can be taken up; what a lost power does, `crates/sim` tries.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steadfast_tests::{Host, no_fuse, skip};

const WRITERS: u64 = 3;
const NAMES: u64 = 5;
const BLOCKS: u64 = 32;
const BLOCK: usize = 4096;

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }
}

/// The only bytes that a write of this serial makes; the serial stands in front.
fn content(serial: u64, length: usize) -> Vec<u8> {
    let mut draw = Draw(serial);
    let mut bytes = serial.to_le_bytes().to_vec();
    while bytes.len() < length {
        bytes.extend(draw.word().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn length_of(serial: u64) -> usize {
    8 + usize::try_from(Draw(!serial).below(150_000)).expect("small")
}

/// Serials of one place: the last that was promised, and the last that was tried.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    promised: u64,
    tried: u64,
}

/// What is known of files (by writer and name) and of blocks (by writer and number).
#[derive(Default)]
struct Book {
    files: BTreeMap<(u64, u64), Known>,
    blocks: BTreeMap<(u64, u64), Known>,
}

/// One thing after another until the mount is dead. Serials are unique and grow.
fn write_until_dead(
    top: &Path,
    writer: u64,
    seed: u64,
    book: &Mutex<Book>,
    serial: &AtomicU64,
    done: &AtomicU64,
) {
    let mut draw = Draw(seed ^ writer.rotate_left(40));
    let directory = top.join(format!("w{writer}"));
    let mut step = || -> std::io::Result<()> {
        let serial = serial.fetch_add(1, Ordering::SeqCst);
        if draw.below(2) == 0 {
            let name = draw.below(NAMES);
            book.lock().expect("whole").files.entry((writer, name)).or_default().tried = serial;
            let (fresh, kept) = (directory.join("fresh"), directory.join(format!("f{name}")));
            let mut file = std::fs::File::create(&fresh)?;
            file.write_all(&content(serial, length_of(serial)))?;
            file.sync_all()?;
            std::fs::rename(&fresh, &kept)?;
            std::fs::File::open(&directory)?.sync_all()?;
            book.lock().expect("whole").files.entry((writer, name)).or_default().promised = serial;
        } else {
            let block = draw.below(BLOCKS);
            book.lock().expect("whole").blocks.entry((writer, block)).or_default().tried = serial;
            let file = std::fs::OpenOptions::new().write(true).open(directory.join("blocks"))?;
            file.write_all_at(&content(serial, BLOCK), block * BLOCK as u64)?;
            if draw.below(2) == 0 {
                file.sync_data()?
            } else {
                file.sync_all()?
            }
            book.lock().expect("whole").blocks.entry((writer, block)).or_default().promised = serial;
        }
        Ok(())
    };
    while step().is_ok() {
        done.fetch_add(1, Ordering::SeqCst);
    }
}

/// The serial of what a place holds, if it is whole.
fn serial_in(bytes: &[u8], length: impl Fn(u64) -> usize) -> Option<u64> {
    let serial = u64::from_le_bytes(bytes.get(..8)?.try_into().expect("eight bytes"));
    (bytes == content(serial, length(serial))).then_some(serial)
}

fn verify(top: &Path, book: &mut Book, round: u64) {
    for ((writer, name), known) in &mut book.files {
        let found = std::fs::read(top.join(format!("w{writer}/f{name}")));
        let serial = match &found {
            Ok(bytes) => serial_in(bytes, length_of),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(0),
            Err(error) => panic!("round {round}: w{writer}/f{name}: {error}"),
        };
        let good = serial.is_some_and(|serial| serial == known.promised || serial == known.tried);
        assert!(good, "round {round}: w{writer}/f{name} holds {serial:?}, known is {known:?}");
        *known = Known { promised: serial.unwrap_or(0), tried: serial.unwrap_or(0) };
    }
    for ((writer, block), known) in &mut book.blocks {
        let file = std::fs::File::open(top.join(format!("w{writer}/blocks"))).expect("it was committed");
        let mut bytes = [0; BLOCK];
        file.read_exact_at(&mut bytes, *block * BLOCK as u64).expect("reads");
        let serial = if bytes == [0; BLOCK] { Some(0) } else { serial_in(&bytes, |_| BLOCK) };
        let good = serial.is_some_and(|serial| serial == known.promised || serial == known.tried);
        assert!(good, "round {round}: block {block} of w{writer} holds {serial:?}, known is {known:?}");
        *known = Known { promised: serial.unwrap_or(0), tried: serial.unwrap_or(0) };
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn a_daemon_killed_at_any_moment_keeps_what_it_promised() {
    if let Some(why) = no_fuse() {
        return skip("kill", &why);
    }
    let (kills, seed) = (number("STEADFAST_KILLS", 10), number("STEADFAST_SEED", 0x51f3));
    let host = Host::new();
    host.image("tank.img", 256 << 20);
    host.shell("zpool create -m $PWD/t tank $PWD/tank.img").ok();
    let top = host.at("t");
    for writer in 0..WRITERS {
        let directory = top.join(format!("w{writer}"));
        std::fs::create_dir(&directory).expect("made");
        let file = std::fs::File::create(directory.join("blocks")).expect("made");
        file.set_len(BLOCKS * BLOCK as u64).expect("sized");
    }
    host.shell("zpool sync").ok();
    let (mut book, serial) = (Mutex::new(Book::default()), AtomicU64::new(1));
    let mut draw = Draw(seed);
    let mut promises = 0;
    for round in 0..kills {
        let pid = host.run("daemon pid").ok().out.trim().to_owned();
        let done = AtomicU64::new(0);
        // So many things done, and then a moment within one: the seed says which.
        let (goal, pause) = (draw.below(40), Duration::from_micros(draw.below(20_000)));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (top, book, serial, done) = (&top, &book, &serial, &done);
                    let seed = seed ^ round.rotate_left(20);
                    scope.spawn(move || write_until_dead(top, writer, seed, book, serial, done))
                })
                .collect();
            while done.load(Ordering::SeqCst) < goal && !writers.iter().all(|writer| writer.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(pause);
            host.exec("kill", &["-9", &pid], b"").ok();
        });
        promises += done.load(Ordering::SeqCst);
        // The next command starts a daemon, which imports and mounts what was in use.
        host.shell("zpool status -x").ok().says("healthy");
        assert_ne!(host.run("daemon pid").ok().out.trim(), pid, "round {round}");
        verify(&top, book.get_mut().expect("whole"), round);
    }
    assert!(promises > kills, "{promises} promises in {kills} rounds");
    host.shell("zpool export tank").ok();
    host.run("inspect check {}/tank.img").ok();
    println!("{kills} kills, {promises} promises kept");
}
