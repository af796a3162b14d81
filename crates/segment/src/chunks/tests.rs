//! The cache of chunks over a device that counts, holds back and lies.

use std::ops::Range;
use std::sync::Condvar;
use std::sync::atomic::AtomicBool;

use steadfast_device::{Character, Device, Error, Kind, Objects, Operation, Result};
use steadfast_format::Txg;
use steadfast_format::medium::UBERBLOCK_SIZE;

use super::*;

const SEGMENT: u32 = 4 << 20;

/// Gives each byte of a segment from its number and place.
#[derive(Default)]
struct Told {
    reads: AtomicU64,
    bytes: AtomicU64,
    fails: AtomicBool,
    lies: AtomicBool,
    /// Reads wait while this is set.
    held: Mutex<bool>,
    freed: Condvar,
}

fn byte(segment: SegmentId, at: usize) -> u8 {
    (at / 1000 + at + usize::try_from(segment.0).expect("small") * 7) as u8
}

impl Device for Told {
    fn character(&self) -> Character {
        let identity = "told".to_owned();
        Character {
            kind: Kind::Objects,
            size_bytes: 1 << 30,
            appendable: false,
            writable: false,
            identity,
            medium: None,
        }
    }
    fn put_segment(&self, _: SegmentPlace, _: &[u8]) -> Result<()> {
        unreachable!()
    }
    fn append_segment(&self, _: SegmentPlace, _: u32, _: &[u8]) -> Result<()> {
        unreachable!()
    }
    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(out.len() as u64, Ordering::Relaxed);
        let held = self.held.lock().expect("no panic");
        drop(self.freed.wait_while(held, |held| *held).expect("no panic"));
        if self.fails.load(Ordering::Relaxed) {
            let source = std::io::Error::from_raw_os_error(5);
            let (device, operation, offset) = ("told".to_owned(), Operation::Read, u64::from(offset));
            return Err(Error::Io { device, operation, offset, source });
        }
        let wrong = u8::from(self.lies.load(Ordering::Relaxed));
        out.iter_mut()
            .enumerate()
            .for_each(|(at, out)| *out = byte(place.segment, offset as usize + at) ^ wrong);
        Ok(())
    }
    fn read_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &mut [&mut [u8]]) -> Result<()> {
        let mut whole = vec![0; parts.iter().map(|part| part.len()).sum()];
        self.read_segment(place, offset, &mut whole)?;
        let mut rest = &whole[..];
        for part in parts {
            let (now, later) = rest.split_at(part.len());
            part.copy_from_slice(now);
            rest = later;
        }
        Ok(())
    }
    fn discard_segment(&self, _: SegmentPlace) -> Result<()> {
        unreachable!()
    }
    fn objects(&self) -> Option<&dyn Objects> {
        None
    }
    fn write_label(&self, _: usize, _: &[u8]) -> Result<()> {
        unreachable!()
    }
    fn read_label(&self, _: usize) -> Result<Vec<u8>> {
        unreachable!()
    }
    fn write_uberblock(&self, _: usize, _: Txg, _: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        unreachable!()
    }
    fn read_uberblocks(&self, _: usize) -> Result<Vec<Vec<u8>>> {
        unreachable!()
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

struct World {
    told: Arc<Told>,
    chunks: Chunks,
    env: Env,
}

impl World {
    fn new(env: Env, bytes_max: usize) -> World {
        let (told, chunks) = (Arc::<Told>::default(), Chunks::new());
        chunks.set_bytes_max(bytes_max);
        World { told, chunks, env }
    }

    fn source(&self, segment: u64, is_metadata: bool) -> Source {
        let place = SegmentPlace { segment: SegmentId(segment), slot: 0, slot_size: SEGMENT };
        let device = Arc::clone(&self.told) as SharedDevice;
        Source { device, counters: Arc::default(), place, end: SEGMENT - 4096, is_metadata }
    }

    /// True if the read went through the cache; its bytes are compared.
    fn read(&self, source: &Source, offset: u32, len: usize) -> bool {
        let (mut out, mut behind) = (vec![0; len / 3], vec![0; len - len / 3]);
        // Segments 1 to 9 were filled by one stream.
        let next =
            |segment: SegmentId| (segment.0 < 9).then(|| self.source(segment.0 + 1, source.is_metadata));
        let through =
            self.chunks.read(&self.env, source, offset, &mut [&mut out[..], &mut behind[..]], &next);
        if through && !self.told.lies.load(Ordering::Relaxed) {
            out.extend(behind);
            let expected = (0..len).map(|at| byte(source.place.segment, offset as usize + at));
            assert!(out.into_iter().eq(expected), "{offset} {len}");
        }
        through
    }

    fn reads(&self) -> u64 {
        self.told.reads.load(Ordering::Relaxed)
    }

    /// [chunks.1]
    fn check(&self) {
        let state = self.chunks.shared.lock();
        let kept = state.slots.values().map(|slot| match slot {
            Slot::Kept(kept) => kept.bytes.len(),
            Slot::Flight(_) => 0,
        });
        let kept: usize = kept.sum();
        assert!(kept <= state.bytes && state.bytes <= state.bytes_max, "{kept} {}", state.bytes);
        assert_eq!(
            state.order.len(),
            state.slots.values().filter(|slot| matches!(slot, Slot::Kept(_))).count()
        );
    }
}

#[test]
fn a_node_brings_its_neighbours_and_content_that_is_read_here_and_there_brings_none() {
    let world = World::new(Env::simulated(1), 16 << 20);
    let nodes = world.source(1, true);
    assert!((0..60).all(|node| world.read(&nodes, node * 4096, 4096)));
    assert_eq!(world.reads(), 1);
    assert!(world.read(&nodes, CHUNK - 4096, 8192), "over the border of two chunks");
    assert_eq!(world.reads(), 2);
    assert!(world.read(&nodes, SEGMENT - 8192, 4096), "the last chunk is shorter");
    assert!(!world.read(&nodes, SEGMENT - 8192, 8192), "behind the end the device answers");
    let before = world.reads();
    for segment in [1, 5, 3, 8] {
        assert!(!world.read(&world.source(segment, false), 1 << 20, 4096));
    }
    assert_eq!(world.reads(), before, "whoever asked reads it from the device");
    world.check();
}

#[test]
fn bytes_that_are_not_right_do_not_stay() {
    let world = World::new(Env::simulated(1), 16 << 20);
    let nodes = world.source(1, true);
    world.told.lies.store(true, Ordering::Relaxed);
    assert!(world.read(&nodes, 8192, 4096));
    world.told.lies.store(false, Ordering::Relaxed);
    world.chunks.forget(SegmentId(1), 8192, 4096);
    assert!(world.read(&nodes, 8192, 4096));
    assert_eq!(world.reads(), 2);
    world.check();
}

#[test]
fn a_transfer_that_fails_leaves_nothing_behind() {
    let world = World::new(Env::simulated(1), 16 << 20);
    let nodes = world.source(1, true);
    world.told.fails.store(true, Ordering::Relaxed);
    assert!(!world.read(&nodes, 8192, 4096));
    assert_eq!(world.chunks.used().bytes, 0);
    world.told.fails.store(false, Ordering::Relaxed);
    assert!(world.read(&nodes, 8192, 4096));
    world.check();
}

#[test]
fn it_holds_no_more_than_it_may() {
    let world = World::new(Env::simulated(1), 4 * CHUNK as usize);
    for round in 0..3 {
        for segment in 1..9 {
            for chunk in 0..15 {
                assert!(world.read(&world.source(segment, true), chunk * CHUNK + round * 4096, 9000));
                world.check();
            }
        }
    }
    // Metadata that is read again and again stays while others pass.
    let known = world.source(1, true);
    assert!(world.read(&known, 0, 4096));
    let before = world.reads();
    for chunk in 0..15 {
        assert!(world.read(&known, 0, 4096) && world.read(&world.source(2, true), chunk * CHUNK, 64));
    }
    assert!(world.reads() - before <= 17, "{} reads", world.reads() - before);
    world.chunks.set_bytes_max(0);
    assert_eq!(world.chunks.used().bytes, 0);
    assert!(!world.read(&known, 0, 4096));
}

#[test]
fn a_chunk_that_many_want_is_read_once() {
    let world = World::new(Env::real(), 16 << 20);
    let nodes = world.source(1, true);
    *world.told.held.lock().expect("no panic") = true;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..16)
            .map(|reader| {
                let (world, nodes) = (&world, &nodes);
                scope.spawn(move || assert!(world.read(nodes, reader * 4096, 4096)))
            })
            .collect();
        while world.chunks.used().hits < 15 {
            std::thread::yield_now();
        }
        *world.told.held.lock().expect("no panic") = false;
        world.told.freed.notify_all();
        readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    });
    assert_eq!(world.reads(), 1);
    world.chunks.stop();
    world.check();
}

#[test]
fn a_stream_is_read_ahead_over_the_ends_of_its_segments_and_goes_when_it_was_read() {
    let world = World::new(Env::real(), 16 << 20);
    let total = 9 * u64::from(SEGMENT - 4096);
    for segment in 1..10 {
        let source = world.source(segment, false);
        for at in (0..source.end).step_by(60 << 10) {
            let len = (source.end - at).min(60 << 10) as usize;
            let through = world.read(&source, at, len);
            assert!(through || (segment, at) == (1, 0), "{segment} {at}");
            world.check();
        }
    }
    world.chunks.stop();
    let bytes = world.told.bytes.load(Ordering::Relaxed);
    // The first read is its reader's own; its chunk is read whole by the next.
    assert!(bytes <= total, "nothing is read twice: {bytes} of {total}");
    assert!(world.reads() < 120, "{} reads: of a mebibyte, most of them", world.reads());
    assert!(world.chunks.used().bytes <= u64::from(CHUNK), "{:?}", world.chunks.used());
    world.check();
}

/// Files of several writers lie in one stream: what one reader has read is not asked for again
/// ahead of another one, but it is ahead of whoever reads it again.
#[test]
fn what_was_read_is_not_read_ahead_of_others() {
    let world = World::new(Env::real(), 64 << 20);
    let whole = |segments: Range<u64>| {
        for segment in segments {
            let source = world.source(segment, false);
            for at in (0..source.end).step_by(64 << 10) {
                let len = (source.end - at).min(64 << 10) as usize;
                world.read(&source, at, len);
            }
        }
        // Transfers ahead end.
        while world.chunks.shared.lock().ahead_bytes > 0 {
            std::thread::yield_now();
        }
    };
    let bytes = || world.told.bytes.load(Ordering::Relaxed);
    // The end of the stream first; ahead of what is before it lies all of that.
    whole(5..10);
    let before = bytes();
    whole(1..5);
    let (read, all) = (bytes() - before, 4 * u64::from(SEGMENT - 4096));
    // The first read is its reader's own; its chunk is read whole by the next.
    assert!(read <= all + 2 * u64::from(CHUNK), "{read} of {all}");
    let (before, reads) = (bytes(), world.reads());
    whole(1..5);
    assert!(bytes() - before >= all, "{}", bytes() - before);
    assert!(world.reads() - reads < 40, "{} reads", world.reads() - reads);
    world.chunks.stop();
    world.check();
}

/// Bytes under way ahead of one reader, and ahead of all of them together, have a bound each.
#[test]
fn what_is_under_way_ahead_is_bounded_for_one_and_for_all() {
    const MIB: usize = 1 << 20;
    let world = World::new(Env::simulated(1), 128 * MIB);
    // Each reader has segments of 128 MiB, and has waited until its window is as long as it gets.
    let next = |segment: SegmentId| (segment.0 % 32 < 31).then(|| world.source(segment.0 + 1, false));
    for reader in 1..5 {
        let mut state = world.chunks.shared.lock();
        let (source, mut walk) = (world.source(reader * 32, false), 0);
        for at in 0..6 {
            (walk, _) = state.walks.note(&source, at * CHUNK..(at + 1) * CHUNK, true, WINDOW_MAX);
        }
        let before = state.ahead_bytes;
        state.look_ahead(&world.chunks.shared, walk, &next);
        let (all, own) = (state.ahead_bytes, state.ahead_bytes - before);
        assert!(own <= 32 * MIB && all <= 64 * MIB, "{reader}: {own} of {all}");
        // A second one has as much as the first, and all that come then have what is left.
        assert!(all >= [28, 56][usize::from(reader > 1)] * MIB, "{reader}: {all}");
    }
    let queue = std::mem::take(&mut world.chunks.shared.lock().queue);
    drop(queue);
    assert_eq!(world.chunks.shared.lock().ahead_bytes, 0);
    world.check();
}

/// A thousand readers are told apart, wherever they are and whatever they asked for; one more takes
/// the place of the one that was seen the longest time ago.
#[test]
fn many_readers_keep_their_walks() {
    let world = World::new(Env::simulated(1), 16 << 20);
    let mut walks = Walks::default();
    let range = |at: u32| at * CHUNK..(at + 1) * CHUNK;
    let far = 1 << 24;
    let next = |segment: SegmentId| (segment.0 % 8 < 7).then(|| world.source(segment.0 + 1, false));
    // Each has eight segments, of which it asks for some.
    for at in 0..4 {
        for reader in 1..1025 {
            let source = world.source(reader * 8, false);
            let (walk, is_known) = walks.note(&source, range(at), true, far);
            assert_eq!(is_known, at > 0, "{reader}");
            while walks.advance(walk, (4, 16), false, &next).is_some() {}
        }
        walks.check();
    }
    // They go on in the next segments, or in the ones behind these.
    for reader in 1..1025 {
        let (walk, is_known) =
            walks.note(&world.source(reader * 8 + 1 + reader % 2, false), range(0), false, far);
        assert!(is_known, "{reader}");
        while walks.advance(walk, (4, 16), false, &next).is_some() {}
    }
    walks.check();
    assert!(!walks.note(&world.source(1, false), range(0), true, far).1);
    walks.check();
    assert!(walks.note(&world.source(2 * 8 + 1, false), range(1), true, far).1, "seen after the first");
    assert!(!walks.note(&world.source(8 + 2, false), range(1), true, far).1, "its place was taken");
    walks.check();
}

#[test]
fn when_it_has_stopped_readers_read_by_themselves() {
    let world = World::new(Env::real(), 16 << 20);
    let source = world.source(1, false);
    for at in 0..8 {
        world.read(&source, at * CHUNK, CHUNK as usize);
    }
    world.chunks.stop();
    let before = world.reads();
    std::thread::yield_now();
    assert_eq!(world.reads(), before);
    assert!(world.read(&source, 9 * CHUNK, CHUNK as usize), "in a walk, by the caller's thread");
    world.check();
}

/// Bytes that are brought around a block are of its segment, and have the block in them.
#[test]
fn what_lies_around_a_block_is_of_its_segment() {
    let world = World::new(Env::real(), 64 << 20);
    let source = world.source(1, true);
    let end = source.end as usize;
    assert_eq!(source.around(8192, 4096, 0), (8192, 4096));
    assert_eq!(source.around(8192, 4096, end), (0, end), "a small segment comes whole");
    assert_eq!(source.around(8192, 4096, 1 << 20), (0, 8192 + 4096 + (512 << 10)));
    assert_eq!(source.around(2 << 20, 4096, 1 << 20), (3 << 19, (1 << 20) + 4096));
    assert_eq!(
        source.around(source.end - 4096, 4096, 1 << 20),
        (source.end - 4096 - (512 << 10), 4096 + (512 << 10))
    );
    // Beyond the end it stays what the cache refuses.
    assert_eq!(source.around(source.end, 4096, 0), (source.end, 4096));
}
