//! The daemon is killed again and again while programs write to a real mount. Each time everything
//! that an `fsync` promised is there, whole, and nothing else.
//!
//! Moments and contents follow from a seed; what the kernel and the daemon do between does not, so
//! a failure is told with what was promised and what was found. `STEADFAST_KILLS=300` kills more
//! often than the ten times of every test run, `STEADFAST_SEED` at other moments. The page cache of
//! the host survives: what is tried here is that nothing is promised too early and that every
//! interrupted commit can be taken up; what a lost power does, `crates/sim` tries.
//!
//! So it is in each journal mode, with `sync=always`, with files that are opened for synchronous
//! writing, encrypted, with a log device and with an anchor; five times each (`STEADFAST_KILLS`
//! says otherwise).

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steadfast_tests::{Host, no_fuse, skip};

const WRITERS: u64 = 3;
const NAMES: u64 = 5;
const BLOCKS: u64 = 32;
const BLOCK: usize = 4096;
const O_DSYNC: i32 = 0o10_000;
const O_SYNC: i32 = 0o4_010_000;

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

/// Known state of files (by writer and name) and of blocks (by writer and number).
#[derive(Default)]
struct Book {
    files: BTreeMap<(u64, u64), Known>,
    blocks: BTreeMap<(u64, u64), Known>,
}

/// When what was written counts as promised.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Promise {
    /// When `fsync` returned.
    Fsync,
    /// When `fsync` returned, names and sizes only.
    Names,
    /// When the call returned: the file system has `sync=always`.
    Call,
    /// When `write` returned: files are opened with `O_SYNC` or `O_DSYNC`. Names are made durable
    /// by `fsync` of the directory.
    Open,
}

/// One thing after another until the mount is dead. Serials are unique and grow.
fn write_until_dead(
    top: &Path,
    writer: u64,
    seed: u64,
    promise: Promise,
    book: &Mutex<Book>,
    serial: &AtomicU64,
    done: &AtomicU64,
) {
    let mut draw = Draw(seed ^ writer.rotate_left(40));
    let directory = top.join(format!("w{writer}"));
    let fsync = matches!(promise, Promise::Fsync | Promise::Names);
    let mut step = || -> std::io::Result<()> {
        let serial = serial.fetch_add(1, Ordering::SeqCst);
        let mut open = std::fs::OpenOptions::new();
        open.write(true);
        if promise == Promise::Open {
            open.custom_flags(if draw.below(2) == 0 { O_SYNC } else { O_DSYNC });
        }
        if draw.below(2) == 0 {
            let name = draw.below(NAMES);
            book.lock().expect("whole").files.entry((writer, name)).or_default().tried = serial;
            let (fresh, kept) = (directory.join("fresh"), directory.join(format!("f{name}")));
            let mut file = open.create(true).truncate(true).open(&fresh)?;
            file.write_all(&content(serial, length_of(serial)))?;
            if fsync {
                file.sync_all()?;
            }
            std::fs::rename(&fresh, &kept)?;
            if promise != Promise::Call {
                std::fs::File::open(&directory)?.sync_all()?;
            }
            book.lock().expect("whole").files.entry((writer, name)).or_default().promised = serial;
        } else {
            let block = draw.below(BLOCKS);
            book.lock().expect("whole").blocks.entry((writer, block)).or_default().tried = serial;
            let file = open.open(directory.join("blocks"))?;
            file.write_all_at(&content(serial, BLOCK), block * BLOCK as u64)?;
            match draw.below(2) {
                0 if fsync => file.sync_data()?,
                _ if fsync => file.sync_all()?,
                _ => {}
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

/// `journal=writeback`: what was promised of content is that it is nobody else's; it may be zeros,
/// or, in a block, older.
fn verify_names(top: &Path, book: &mut Book, round: u64) {
    for ((writer, name), known) in &mut book.files {
        let found = std::fs::read(top.join(format!("w{writer}/f{name}")));
        let is_of = |serial: &u64, bytes: &[u8]| {
            let wanted = content(*serial, length_of(*serial));
            wanted.len() == bytes.len()
                && bytes.iter().zip(&wanted).all(|(byte, own)| *byte == 0 || byte == own)
        };
        let both = [known.promised, known.tried];
        let good = match &found {
            Ok(bytes) => both.iter().any(|serial| *serial > 0 && is_of(serial, bytes)),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound && known.promised == 0,
        };
        let length = found.map(|bytes| bytes.len());
        assert!(good, "round {round}: w{writer}/f{name} has {length:?} bytes, known is {known:?}");
        let last = std::fs::read(top.join(format!("w{writer}/f{name}"))).ok();
        let serial = both.into_iter().find(|s| last.as_ref().is_some_and(|bytes| is_of(s, bytes)));
        *known = Known { promised: serial.unwrap_or(0), tried: serial.unwrap_or(0) };
    }
    for ((writer, block), known) in &mut book.blocks {
        let file = std::fs::File::open(top.join(format!("w{writer}/blocks"))).expect("it was committed");
        let mut bytes = [0; BLOCK];
        file.read_exact_at(&mut bytes, *block * BLOCK as u64).expect("reads");
        let serial = if bytes == [0; BLOCK] { Some(0) } else { serial_in(&bytes, |_| BLOCK) };
        let good = serial.is_some_and(|serial| serial <= known.tried);
        assert!(good, "round {round}: block {block} of w{writer} holds {serial:?}, known is {known:?}");
    }
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

/// Kills the daemon of a pool that `create` makes, again and again, while writers write.
fn kill_again_and_again(test: &str, kills: u64, create: &str, promise: Promise) {
    if let Some(why) = no_fuse() {
        return skip(test, &why);
    }
    let (kills, seed) = (number("STEADFAST_KILLS", kills), number("STEADFAST_SEED", 0x51f3));
    let host = Host::new();
    host.image("tank.img", 256 << 20);
    host.image("log.img", 64 << 20);
    host.image("log2.img", 64 << 20);
    std::fs::write(host.at("key"), [7; 32]).expect("a key");
    host.shell(create).ok();
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
                    scope.spawn(move || write_until_dead(top, writer, seed, promise, book, serial, done))
                })
                .collect();
            while done.load(Ordering::SeqCst) < goal && !writers.iter().all(|writer| writer.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(pause);
            host.kill_daemon();
        });
        promises += done.load(Ordering::SeqCst);
        // The next command starts a daemon, which imports and mounts what was in use, and reads the
        // key from its file.
        host.shell("zpool status -x").ok().says("healthy");
        assert_ne!(host.run("daemon pid").ok().out.trim(), pid, "round {round}");
        let book = book.get_mut().expect("whole");
        match promise {
            Promise::Names => verify_names(&top, book, round),
            _ => verify(&top, book, round),
        }
    }
    assert!(promises > kills, "{promises} promises in {kills} rounds");
    host.shell("zpool export tank").ok();
    let logs = ["log.img", "log2.img"].into_iter().filter(|name| create.contains(name));
    let log: String = logs.map(|name| format!(" {{}}/{name}")).collect();
    let key = if create.contains("keyformat") { "-k {}/key " } else { "" };
    host.run(&format!("inspect check {key}{{}}/tank.img{log}")).ok();
    println!("{test}: {kills} kills, {promises} promises kept");
}

#[test]
fn a_daemon_killed_at_any_moment_keeps_what_it_promised() {
    kill_again_and_again("kill", 10, "zpool create -m $PWD/t tank $PWD/tank.img", Promise::Fsync);
}

macro_rules! killed {
    ($($name:ident: $promise:ident, $options:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let create = concat!("zpool create -m $PWD/t ", $options);
                kill_again_and_again(stringify!($name), 5, create, Promise::$promise);
            }
        )*
    };
}

killed! {
    journal_off_keeps_it_too: Fsync, "-O journal=off tank $PWD/tank.img";
    journal_data_keeps_it_too: Fsync, "-O journal=data tank $PWD/tank.img";
    journal_writeback_keeps_names_and_sizes_and_shows_nothing_foreign: Names, "-O journal=writeback tank $PWD/tank.img";
    sync_always_keeps_every_call: Call, "-O sync=always tank $PWD/tank.img";
    sync_always_keeps_calls_that_the_kernel_collects:
        Call, "-O sync=always -O writeback_cache=on tank $PWD/tank.img";
    files_opened_for_synchronous_writing_keep_every_write: Open, "tank $PWD/tank.img";
    an_encrypted_pool_keeps_it_too:
        Fsync, "-O encryption=on -O keyformat=raw -O keylocation=file://$PWD/key tank $PWD/tank.img";
    a_log_device_keeps_it_too: Fsync, "tank $PWD/tank.img log $PWD/log.img";
    a_log_mirror_keeps_it_too: Fsync, "tank $PWD/tank.img log mirror $PWD/log.img $PWD/log2.img";
    an_anchor_keeps_it_too: Fsync, "tank $PWD/tank.img anchor $PWD/tank.anchor";
    all_of_these_keep_it_together:
        Call, "-O sync=always -O journal=data -O encryption=on -O keyformat=raw -O keylocation=file://$PWD/key tank \
               $PWD/tank.img log $PWD/log.img anchor $PWD/tank.anchor";
}
