//! Blocks over devices of both characters: what is written comes back, and nothing else ever does.

use std::sync::{Arc, Mutex};

use steadfast_blockio::{
    Badness, BlockFault, BlockIo, BlockWrite, CompressionSetting, Error, ErrorLog, L2Arc, ReadAhead,
    ReadContext, WriteContext,
};
use steadfast_crypto::{BlockKeys, Key};
use steadfast_device::objects::ObjectDevice;
use steadfast_device::{MemoryDevice, SharedDevice};
use steadfast_env::Env;
use steadfast_format::medium::slot_offset;
use steadfast_format::{BlockKind, BlockPointer, Compression, DatasetId, DeviceId, PoolGuid, Txg};
use steadfast_segment::{Class, Geometry, Space};

const GEOMETRY: Geometry = Geometry { slot_size: 1 << 20, unit: 4096 };
const SLOTS: u32 = 60;
const POOL: PoolGuid = PoolGuid(0x1122_3344_5566_7788);

/// Where a segment of one column lies.
fn only_column(space: &Space, segment: steadfast_format::SegmentId) -> steadfast_format::Column {
    let place = space.place_of(segment).expect("it has a row");
    place.present().next().expect("it has a column").1
}

struct Fixture {
    devices: Vec<Arc<MemoryDevice>>,
    space: Arc<Space>,
    io: BlockIo,
}

fn over(devices: Vec<SharedDevice>, env: Env) -> (Arc<Space>, BlockIo) {
    let devices = devices.into_iter().zip(1..).map(|(device, id)| (DeviceId(id), SLOTS, device));
    let space = Arc::new(Space::new(GEOMETRY, devices.collect(), env.clone()));
    (Arc::clone(&space), BlockIo::new(space, env, POOL, 8 << 20))
}

/// One device that can be appended to, or one that takes whole segments.
fn fixture(appendable: bool) -> Fixture {
    let device = match appendable {
        true => MemoryDevice::new("memory", 64 << 20),
        false => MemoryDevice::whole_segments("objects", 64 << 20),
    };
    let devices = vec![Arc::new(device)];
    let shared = devices.iter().map(|device| Arc::clone(device) as SharedDevice).collect();
    let (space, io) = over(shared, Env::real());
    Fixture { devices, space, io }
}

fn keys(seed: u8) -> BlockKeys {
    BlockKeys::new(Key::from_bytes([seed; 32]), &|out| out.fill(seed))
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Env::seeded(seed).random.fill(&mut bytes);
    bytes
}

/// Bytes of which compression makes something like half.
fn mixed(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = noise(seed, len);
    for chunk in bytes.chunks_mut(64) {
        let half = chunk.len() / 2;
        chunk[half..].fill(0);
    }
    bytes
}

fn block(kind: BlockKind, data: Vec<u8>) -> BlockWrite<'static> {
    BlockWrite::new(kind, 0, data)
}

fn writer(keys: Option<&BlockKeys>) -> WriteContext<'_> {
    WriteContext {
        small_bytes_max: 0,
        copies_on_stores: true,
        family: DatasetId(3),
        owner: DatasetId(0),
        txg: Txg(9),
        compression: CompressionSetting::Lz4,
        keys,
        copies: 1,
    }
}

fn reader(keys: Option<&BlockKeys>) -> ReadContext<'_> {
    ReadContext { dataset: DatasetId(3), family: DatasetId(3), keys, cache: true }
}

fn badness(result: Result<steadfast_blockio::Block, Error>) -> Badness {
    match result {
        Err(Error::Bad(fault)) => fault.badness(),
        other => panic!("{other:?}"),
    }
}

impl Fixture {
    /// Byte of the device at which a copy lies.
    fn place(&self, pointer: &BlockPointer, copy: usize) -> u64 {
        let address = pointer.copies[copy];
        let column = only_column(&self.space, address.segment);
        assert_eq!(column.device, DeviceId(1));
        slot_offset(column.slot, GEOMETRY.slot_size) + u64::from(address.offset)
    }

    fn flush(&self) {
        self.space.flush_open().unwrap();
        self.space.flush_devices().unwrap();
    }

    fn commit(&self) {
        self.space.table_changes();
        self.space.tail().unwrap();
        self.flush();
        self.space.committed();
    }
}

fn everything_comes_back(space: &Space, io: &BlockIo) {
    let secret = keys(1);
    let settings = [
        CompressionSetting::Off,
        CompressionSetting::Lz4,
        CompressionSetting::Zstd(3),
        CompressionSetting::Zstd(19),
        CompressionSetting::Zle,
    ];
    let kinds = [BlockKind::Data, BlockKind::Names, BlockKind::Extents, BlockKind::Meta, BlockKind::Tail];
    let mut written = Vec::new();
    for (seed, setting) in (1..).zip(settings) {
        for kind in kinds {
            for len in [1, 511, 4096, 4097, 40_000, 131_072] {
                for key in [None, Some(&secret)] {
                    for data in [mixed(seed, len), noise(seed, len), vec![0; len]] {
                        let context = WriteContext { compression: setting, ..writer(key) };
                        let pointer = io.write(&context, block(kind, data.clone())).unwrap();
                        assert_eq!(pointer.copy_count(), if kind == BlockKind::Data { 1 } else { 2 });
                        assert!(pointer.asize(4096) as usize <= (len + 16).next_multiple_of(4096));
                        written.push((pointer, key, data));
                        if written.len() > 300 {
                            let (pointer, ..) = written.remove(0);
                            io.free(&pointer);
                        }
                    }
                }
            }
        }
        space.table_changes();
        space.tail().unwrap();
        space.flush_open().unwrap();
        space.flush_devices().unwrap();
        space.committed();
        for (pointer, key, data) in &written {
            let block = io.read(pointer, &reader(*key)).unwrap();
            assert_eq!(&*block, data);
            // A second time from the cache, or again from the device.
            assert_eq!(&*io.read(pointer, &reader(*key)).unwrap(), data);
        }
        space.check().unwrap();
    }
    let statistics = io.statistics();
    assert!(statistics.cache_hits > 0 && statistics.blocks_compressed > 0);
    assert_eq!((statistics.blocks_bad, statistics.frees_refused), (0, 0));
}

#[test]
fn everything_comes_back_from_an_appendable_device() {
    let Fixture { space, io, .. } = fixture(true);
    everything_comes_back(&space, &io);
}

#[test]
fn everything_comes_back_from_whole_objects() {
    let Fixture { space, io, .. } = fixture(false);
    everything_comes_back(&space, &io);
}

#[test]
fn everything_comes_back_from_a_store_of_objects() {
    let device = ObjectDevice::in_memory("objects", 64 << 20);
    let (space, io) = over(vec![Arc::new(device)], Env::real());
    everything_comes_back(&space, &io);
}

#[test]
fn compression_is_kept_only_where_it_saves_a_unit() {
    let Fixture { io, .. } = fixture(true);
    let written = |len, key| io.write(&writer(key), block(BlockKind::Data, mixed(1, len))).unwrap();
    assert_eq!(written(4096, None).compression, Compression::Off, "one unit cannot become less");
    assert_eq!(written(8192, None).compression, Compression::Off, "half of two units and a bit is two units");
    assert_eq!(written(16_384, None).compression, Compression::Lz4);
    // With its seal a block of 4,096 bytes takes two units: anything smaller than 4,081 saves one.
    let secret = keys(1);
    assert_eq!(written(4096, Some(&secret)).compression, Compression::Lz4);
    assert_eq!(written(4096, Some(&secret)).asize(4096), 4096);
}

#[test]
fn many_blocks_come_back_in_their_order() {
    let Fixture { io, space, .. } = fixture(true);
    let secret = keys(1);
    // More than two windows, of blocks of very different sizes.
    let data: Vec<Vec<u8>> = (0..260_u64).map(|at| mixed(at, 1 + (at * 7919 % 200_000) as usize)).collect();
    let blocks = data.iter().map(|data| block(BlockKind::Data, data.clone()));
    let pointers = io.write_many(&writer(Some(&secret)), blocks.collect()).unwrap();
    assert_eq!(pointers.len(), data.len());
    for (pointer, data) in pointers.iter().zip(&data) {
        assert_eq!(&*io.read(pointer, &reader(Some(&secret))).unwrap(), data);
    }
    let counters: std::collections::BTreeSet<u64> =
        pointers.iter().map(|pointer| pointer.stamp.counter).collect();
    assert_eq!(counters.len(), data.len(), "no nonce is used twice");
    let places: Vec<_> = pointers.iter().map(|pointer| pointer.copies[0]).collect();
    assert!(places.is_sorted(), "blocks lie in the order they were asked for");
    space.check().unwrap();
    assert!(io.write_many(&writer(None), Vec::new()).unwrap().is_empty());
}

#[test]
fn a_write_that_finds_no_room_leaves_nothing_allocated() {
    let Fixture { io, space, .. } = fixture(true);
    let before = space.accounting().live_bytes;
    let blocks = (0..500).map(|at| block(BlockKind::Names, noise(at, 128 << 10)));
    let result = io.write_many(&writer(None), blocks.collect());
    assert!(matches!(result, Err(Error::Space(steadfast_segment::Error::NoSpace))));
    assert_eq!(space.accounting().live_bytes, before);
    space.check().unwrap();
}

#[test]
fn every_flipped_byte_is_noticed() {
    for key in [None, Some(&keys(1))] {
        // Whole objects are closed by a flush, so that reads come from the device.
        let fixture = fixture(false);
        let data = noise(5, 700);
        let pointer = fixture.io.write(&writer(key), block(BlockKind::Data, data.clone())).unwrap();
        fixture.flush();
        let at = fixture.place(&pointer, 0);
        let context = ReadContext { cache: false, ..reader(key) };
        for byte in 0..u64::from(pointer.psize) {
            fixture.devices[0].flip_bit(at + byte, (byte % 8) as u8);
            assert_eq!(badness(fixture.io.read(&pointer, &context)), Badness::Checksum, "byte {byte}");
            fixture.devices[0].flip_bit(at + byte, (byte % 8) as u8);
        }
        assert_eq!(&*fixture.io.read(&pointer, &context).unwrap(), &data);
        let counts = fixture.space.device_counts()[&DeviceId(1)];
        assert_eq!(counts.checksum_errors, 1, "one block is bad, however often it is read");
        assert_eq!(fixture.io.statistics().blocks_bad, u64::from(pointer.psize));
    }
}

#[test]
fn a_bad_copy_is_healed_by_the_other_and_told_of() {
    #[derive(Default)]
    struct Log(Mutex<Vec<BlockFault>>);
    impl ErrorLog for Log {
        fn block_failed(&self, fault: &BlockFault) {
            self.0.lock().unwrap().push(fault.clone());
        }
    }
    let fixture = fixture(false);
    let log = Arc::new(Log::default());
    assert!(fixture.io.set_error_log(Arc::clone(&log) as Arc<dyn ErrorLog>));
    let data = mixed(5, 9000);
    let pointer = fixture.io.write(&writer(None), block(BlockKind::Names, data.clone())).unwrap();
    fixture.flush();
    fixture.devices[0].flip_bit(fixture.place(&pointer, 0) + 17, 3);
    assert_eq!(&*fixture.io.read(&pointer, &reader(None)).unwrap(), &data);
    let told = log.0.lock().unwrap().clone();
    assert_eq!(told, fixture.io.faults());
    assert!(told.len() == 1 && told[0].healed && told[0].badness() == Badness::Checksum);
    assert_eq!((told[0].dataset, told[0].attempts[0].device), (DatasetId(3), Some(DeviceId(1))));
    assert_eq!(fixture.io.statistics().blocks_healed, 1);

    fixture.devices[0].flip_bit(fixture.place(&pointer, 1) + 17, 3);
    // Its chunk was read before.
    fixture.space.set_chunk_bytes(0);
    assert_eq!(badness(fixture.io.read(&pointer, &reader(None))), Badness::Checksum);
    let last = fixture.io.faults().pop().unwrap();
    assert!(!last.healed && last.attempts.len() == 2);
    fixture.io.clear_faults();
    assert!(fixture.io.faults().is_empty());
}

/// A scrub is to learn that a node is lost, also if a cache device still has it.
#[test]
fn what_a_cache_device_has_can_be_asked_of_the_devices() {
    let fixture = fixture(false);
    let env = Env::simulated(1);
    let device = Arc::new(MemoryDevice::new("cache", 64 << 20)) as SharedDevice;
    let cache = L2Arc::start(&env, device, (POOL, 7), 64 << 10, 16, GEOMETRY.unit);
    fixture.io.set_l2arc(vec![Arc::clone(&cache)]);
    let pointers: Vec<BlockPointer> = (0..20)
        .map(|seed| fixture.io.write(&writer(None), block(BlockKind::Names, noise(seed, 9000))).unwrap())
        .collect();
    fixture.flush();
    for pointer in &pointers {
        fixture.io.read(pointer, &reader(None)).unwrap();
    }
    for copy in 0..2 {
        fixture.devices[0].flip_bit(fixture.place(&pointers[0], copy) + 17, 3);
    }
    fixture.space.set_chunk_bytes(0);
    assert_eq!(&*fixture.io.read(&pointers[0], &reader(None)).unwrap(), &noise(0, 9000));
    assert!(fixture.io.faults().is_empty());
    assert_eq!(badness(fixture.io.read_from_devices(&pointers[0], &reader(None))), Badness::Checksum);
    assert!(!fixture.io.faults()[0].healed);
    cache.stop();
}

#[test]
fn a_block_opens_only_as_what_it_was_written_as() {
    let Fixture { io, space, .. } = fixture(true);
    let secret = keys(1);
    let pointer = io.write(&writer(Some(&secret)), block(BlockKind::Names, mixed(5, 9000))).unwrap();
    let context = reader(Some(&secret));
    assert!(io.read(&pointer, &context).is_ok());
    assert_eq!(space.device_counts()[&DeviceId(1)].checksum_errors, 0);
    let lies = [
        BlockPointer { kind: BlockKind::Extents, ..pointer },
        BlockPointer { level: 1, ..pointer },
        BlockPointer { birth: Txg(8), ..pointer },
        BlockPointer { lsize: pointer.lsize + 1, ..pointer },
        BlockPointer { compression: Compression::Zle, ..pointer },
        BlockPointer { stamp: steadfast_format::Stamp { counter: 77, ..pointer.stamp }, ..pointer },
        BlockPointer { stamp: steadfast_format::Stamp { salt: [9; 16], ..pointer.stamp }, ..pointer },
    ];
    for lie in lies {
        assert_eq!(badness(io.read(&lie, &context)), Badness::Authentication, "{lie:?}");
    }
    // Each of its two copies once, however often it is read.
    let counts = space.device_counts()[&DeviceId(1)];
    assert_eq!((counts.checksum_errors, counts.authentication_errors), (2, 2), "{counts:?}");
    let foreign = ReadContext { family: DatasetId(4), ..context };
    assert_eq!(badness(io.read(&pointer, &foreign)), Badness::Authentication);
    assert_eq!(badness(io.read(&pointer, &reader(Some(&keys(2))))), Badness::Authentication);
    assert!(matches!(io.read(&pointer, &reader(None)), Err(Error::KeyNotLoaded { .. })));
    let open = io.write(&writer(None), block(BlockKind::Names, mixed(5, 9000))).unwrap();
    assert_eq!(badness(io.read(&open, &context)), Badness::Authentication, "unsealed where all is sealed");
}

#[test]
fn swapped_blocks_are_noticed() {
    let Fixture { io, .. } = fixture(true);
    let [first, second] =
        [1, 2].map(|seed| io.write(&writer(None), block(BlockKind::Data, noise(seed, 5000))).unwrap());
    let swapped = BlockPointer { copies: second.copies, ..first };
    assert_eq!(badness(io.read(&swapped, &reader(None))), Badness::Checksum);
}

#[test]
fn right_bytes_that_do_not_decompress_are_malformed() {
    let Fixture { io, .. } = fixture(true);
    let off = WriteContext { compression: CompressionSetting::Off, ..writer(None) };
    let pointer = io.write(&off, block(BlockKind::Data, noise(1, 5000))).unwrap();
    for compression in [Compression::Lz4, Compression::Zstd, Compression::Zle] {
        let lie = BlockPointer { compression, ..pointer };
        assert_eq!(badness(io.read(&lie, &reader(None))), Badness::Malformed, "{compression:?}");
    }
    let lie = BlockPointer { lsize: BlockPointer::LSIZE_MAX, ..pointer };
    assert_eq!(badness(io.read(&lie, &reader(None))), Badness::Malformed);
}

#[test]
fn what_was_compressed_before_is_stored_and_read_so() {
    let Fixture { io, .. } = fixture(true);
    let secret = keys(1);
    let plain: Vec<Vec<u8>> = (0..40).map(|at| mixed(at, 3_000 + at as usize * 3_333)).collect();
    for key in [None, Some(&secret)] {
        for setting in [CompressionSetting::Lz4, CompressionSetting::Zstd(3), CompressionSetting::Zle] {
            let blocks = plain.iter().map(|data| block(BlockKind::Data, data.clone()));
            let context = WriteContext { compression: setting, ..writer(key) };
            let first = io.write_many(&context, blocks.collect()).unwrap();
            let stored = io.read_packed(&first, &reader(key));
            let stored: Vec<_> = stored.into_iter().map(Result::unwrap).collect();
            let parts: Vec<(Compression, &[u8], u32)> = first
                .iter()
                .zip(&stored)
                .map(|(pointer, bytes)| (pointer.compression, &bytes[..], pointer.lsize))
                .collect();
            let unpacked = io.unpack(&parts);
            assert!(unpacked.iter().zip(&plain).all(|(made, plain)| made.as_deref() == Some(&plain[..])));
            // Nobody compresses here, and it is as it was.
            let blocks = plain.iter().zip(&parts).map(|(data, &(how, bytes, _))| BlockWrite {
                packed: (how != Compression::Off).then_some((how, bytes)),
                ..block(BlockKind::Data, data.clone())
            });
            let context = WriteContext { compression: CompressionSetting::Off, ..writer(key) };
            let again = io.write_many(&context, blocks.collect()).unwrap();
            for ((first, again), plain) in first.iter().zip(&again).zip(&plain) {
                assert_eq!((first.compression, first.psize), (again.compression, again.psize));
                assert_eq!(*io.read(again, &reader(key)).unwrap(), plain[..]);
            }
            assert!(first.iter().any(|pointer| pointer.compression != Compression::Off), "{setting:?}");
        }
    }
    // A compression that saves nothing is not kept.
    let data = noise(5, 8_000);
    let off = WriteContext { compression: CompressionSetting::Off, ..writer(None) };
    let useless = BlockWrite {
        packed: Some((Compression::Zle, &data[..5_000])),
        ..block(BlockKind::Data, data.clone())
    };
    assert_eq!(io.write(&off, useless).unwrap().compression, Compression::Off);
    // Blocks that decompress to more, to less, or not at all are told from the rest.
    let packed = io.write(&writer(None), block(BlockKind::Data, mixed(7, 50_000))).unwrap();
    let bytes = io.read_packed(&[packed], &reader(None)).remove(0).unwrap();
    let (how, right) = (packed.compression, packed.lsize);
    let parts = [(how, &bytes[..], right - 1), (how, &bytes[..], right), (how, &bytes[..], right + 1)];
    let made: Vec<bool> = io.unpack(&parts).iter().map(Option::is_some).collect();
    assert_eq!(made, [false, true, false]);
    // Without the key, and of another block's place, it is what reading gives.
    let sealed = io.write(&writer(Some(&secret)), block(BlockKind::Data, mixed(8, 50_000))).unwrap();
    assert!(matches!(io.read_packed(&[sealed], &reader(None))[0], Err(Error::KeyNotLoaded { .. })));
    let misplaced = BlockPointer { copies: packed.copies, ..sealed };
    let read = io.read_packed(&[misplaced, sealed, misplaced], &reader(Some(&secret)));
    assert_eq!(read.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn the_cache_asks_for_the_key() {
    let Fixture { io, .. } = fixture(true);
    let secret = keys(1);
    let pointer = io.write(&writer(Some(&secret)), block(BlockKind::Data, mixed(5, 9000))).unwrap();
    assert!(io.read(&pointer, &reader(Some(&secret))).is_ok());
    assert!(io.read(&pointer, &reader(Some(&secret))).is_ok());
    assert_eq!(io.statistics().cache_hits, 1);
    assert!(matches!(io.read(&pointer, &reader(None)), Err(Error::KeyNotLoaded { .. })));
    let foreign = ReadContext { family: DatasetId(4), ..reader(Some(&secret)) };
    assert_eq!(badness(io.read(&pointer, &foreign)), Badness::Authentication);
    io.forget(DatasetId(3), DatasetId(3));
    assert_eq!(io.statistics().cache_bytes, 0);
    assert!(io.read(&pointer, &ReadContext { cache: false, ..reader(Some(&secret)) }).is_ok());
    assert_eq!(io.statistics().cache_bytes, 0, "asked not to keep it");
    let node = io.write(&writer(None), block(BlockKind::Names, mixed(5, 9000))).unwrap();
    assert!(io.read(&node, &reader(None)).is_ok());
    assert_eq!(io.statistics().cache_bytes, 0, "nodes are the trees' to keep");
}

#[test]
fn a_freed_block_is_gone_for_good() {
    for appendable in [true, false] {
        let fixture = fixture(appendable);
        let pointer = fixture.io.write(&writer(None), block(BlockKind::Data, noise(1, 900 << 10))).unwrap();
        let keep = fixture.io.write(&writer(None), block(BlockKind::Data, noise(2, 900 << 10))).unwrap();
        fixture.commit();
        assert!(fixture.io.read(&pointer, &reader(None)).is_ok());
        fixture.io.free(&pointer);
        fixture.io.free(&pointer);
        assert_eq!(fixture.io.statistics().frees_refused, 1, "a block is freed once");
        fixture.commit();
        assert!(matches!(fixture.io.read(&pointer, &reader(None)), Err(Error::Unallocated { .. })));
        assert!(fixture.io.read(&keep, &reader(None)).is_ok());
        fixture.space.check().unwrap();
    }
}

#[test]
fn copies_of_metadata_lie_on_different_devices() {
    let devices = [1, 2].map(|_| Arc::new(MemoryDevice::new("memory", 64 << 20)) as SharedDevice);
    let (space, io) = over(devices.to_vec(), Env::real());
    for at in 0..100 {
        let pointer = io.write(&writer(None), block(BlockKind::Extents, noise(at, 100_000))).unwrap();
        let on = |copy: usize| only_column(&space, pointer.copies[copy].segment).device;
        let (first, second) = (on(0), on(1));
        assert_ne!(first, second);
    }
}

#[test]
fn sizes_that_no_block_has_are_refused() {
    let Fixture { io, .. } = fixture(true);
    for len in [0, BlockPointer::LSIZE_MAX as usize + 1] {
        let result = io.write(&writer(None), block(BlockKind::Data, vec![0; len]));
        assert!(matches!(result, Err(Error::Size { bytes }) if bytes == len));
    }
    let result = io.write(&writer(None), block(BlockKind::Data, noise(1, 2 << 20)));
    assert!(matches!(result, Err(Error::Space(steadfast_segment::Error::TooLarge { .. }))));
    let largest = io.block_bytes_max() as usize;
    assert!(io.write(&writer(Some(&keys(1))), block(BlockKind::Data, noise(1, largest))).is_ok());
}

/// The stored bytes of a fixed block, key and salt. It must never change: old pools are made of it.
#[test]
fn a_sealed_block_has_the_golden_bytes() {
    let fixture = fixture(false);
    let secret = keys(7);
    let data: Vec<u8> = (0..32).collect();
    let pointer = fixture.io.write(&writer(Some(&secret)), block(BlockKind::Data, data.clone())).unwrap();
    let stored = fixture.space.read(pointer.copies[0], pointer.psize as usize, Ok::<_, ()>).unwrap();
    let hex: String = stored.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, GOLDEN);
    // And the other way: these bytes, wherever they come from, open under a new epoch of the same
    // master key.
    let bytes: Vec<u8> = (0..GOLDEN.len() / 2)
        .map(|at| u8::from_str_radix(&GOLDEN[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let address = fixture.space.append(DatasetId(0), Class::Data, &bytes).unwrap();
    let again = BlockPointer { copies: [address, pointer.copies[1], pointer.copies[2]], ..pointer };
    let later = BlockKeys::new(Key::from_bytes([7; 32]), &|out| out.fill(8));
    assert_eq!(&*fixture.io.read(&again, &reader(Some(&later))).unwrap(), &data);
}

/// Made by another implementation (HMAC and AES-GCM of Python's libraries) from
/// docs/format/seal.md.
const GOLDEN: &str =
    "b68a10689f21202d292169ca227cdfc1a1c9d6b30630c9d58eb9e65b59c52858e80c811ec104e94cbafaa4edd1948b71";

#[test]
fn neighbours_are_read_in_one_transfer_and_each_is_judged() {
    let env = Env::real();
    if env.tasks.parallelism() < 2 {
        // Nothing is read ahead there.
        return;
    }
    let keys = Arc::new(keys(3));
    for sealed in [None, Some(Arc::clone(&keys))] {
        let device = Arc::new(MemoryDevice::new("memory", 64 << 20));
        let (space, io) = over(vec![Arc::clone(&device) as SharedDevice], env.clone());
        let io = Arc::new(io);
        // Ten blocks to a segment; the third segment stays open and is not of interest.
        let content: Vec<Vec<u8>> = (0..21).map(|seed| noise(seed, 100_000)).collect();
        let blocks = content.iter().map(|data| block(BlockKind::Data, data.clone()));
        let mut pointers = io.write_many(&writer(sealed.as_deref()), blocks.collect()).expect("written");
        space.flush_open().expect("on the device");
        pointers.truncate(20);
        let bad = 13;
        let place = only_column(&space, pointers[bad].copies[0].segment);
        let at = slot_offset(place.slot, GEOMETRY.slot_size) + u64::from(pointers[bad].copies[0].offset);
        device.flip_bit(at + 70_000, 2);
        let reads = || space.device_counts()[&DeviceId(1)].reads;
        let before = reads();
        io.read_ahead(ReadAhead {
            dataset: DatasetId(3),
            family: DatasetId(3),
            keys: sealed.clone(),
            stream: 1,
            pointers: &pointers,
            urgent: false,
        });
        while io.statistics().blocks_read_ahead < 19 {
            std::thread::yield_now();
        }
        for (number, pointer) in pointers.iter().enumerate() {
            let found = io.read(pointer, &reader(sealed.as_deref()));
            if number == bad {
                assert_eq!(badness(found), Badness::Checksum);
            } else {
                assert!(*found.expect("good") == content[number][..], "block {number}");
            }
        }
        // Two blocks to a transfer at least, but for the last of a segment; and the bad one by
        // itself, once ahead, once when asked for.
        let transfers = reads() - before;
        assert!(transfers <= 12 + 2, "{transfers} transfers for 20 blocks");
        io.stop_read_ahead();
    }
}

/// A record of content.
fn record(data: Vec<u8>) -> BlockWrite<'static> {
    BlockWrite { record: true, ..block(BlockKind::Data, data) }
}

#[test]
fn copies_of_content_lie_apart() {
    let devices: Vec<SharedDevice> =
        (0..3).map(|_| Arc::new(MemoryDevice::new("memory", 64 << 20)) as SharedDevice).collect();
    let (space, io) = over(devices, Env::real());
    for copies in [2, 3] {
        let context = WriteContext { copies, ..writer(None) };
        // Several segments of each stream.
        for seed in 0..60 {
            let pointer = io.write(&context, record(noise(seed, 100_000))).unwrap();
            assert_eq!(pointer.copy_count(), copies);
            let on: Vec<DeviceId> = pointer.copies[..copies]
                .iter()
                .map(|copy| only_column(&space, copy.segment).device)
                .collect();
            assert!((1..copies).all(|at| !on[..at].contains(&on[at])), "block {seed} lies on {on:?}");
            assert_eq!(&*io.read(&pointer, &reader(None)).unwrap(), &noise(seed, 100_000));
            if seed % 2 == 0 {
                let live = space.accounting().live_bytes;
                io.free(&pointer);
                let freed = live - space.accounting().live_bytes;
                assert_eq!(freed, u64::from(pointer.asize(GEOMETRY.unit)) * copies as u64);
            }
        }
    }
    space.check().unwrap();
}

#[test]
fn copies_of_content_lie_far_apart_on_one_device() {
    let Fixture { io, space, .. } = fixture(true);
    let context = WriteContext { copies: 3, ..writer(None) };
    let pointer = io.write(&context, record(noise(1, 9000))).unwrap();
    let slots: Vec<u32> = pointer.copies.iter().map(|copy| only_column(&space, copy.segment).slot).collect();
    assert!(slots.windows(2).all(|pair| pair[1] - pair[0] >= SLOTS / 4), "{slots:?} of {SLOTS}");
    assert_eq!(space.drop_owner(DatasetId(0)), 3 * u64::from(pointer.asize(GEOMETRY.unit)));
    assert_eq!(space.accounting().live_bytes, 0);
}

#[test]
fn a_bad_copy_of_content_is_healed_by_reading() {
    let fixture = fixture(true);
    let Fixture { io, devices, .. } = &fixture;
    let context = WriteContext { copies: 2, ..writer(None) };
    let pointers: Vec<BlockPointer> =
        (0..20).map(|seed| io.write(&context, record(noise(seed, 9000))).unwrap()).collect();
    fixture.commit();
    fixture.space.close_open().unwrap();
    let uncached = ReadContext { cache: false, ..reader(None) };
    for copy in 0..2 {
        for pointer in &pointers {
            devices[0].flip_bit(fixture.place(pointer, copy) + 17, 3);
        }
        for (seed, pointer) in (0..).zip(&pointers) {
            assert_eq!(&*io.read(pointer, &uncached).unwrap(), &noise(seed, 9000), "copy {copy}");
        }
    }
    // The first copies were healed, or nothing could have been read without the second ones; those
    // nobody has read.
    let counts = fixture.space.device_counts()[&DeviceId(1)];
    assert_eq!((io.statistics().blocks_healed, counts.checksum_errors), (20, 20));
    devices[0].flip_bit(fixture.place(&pointers[3], 0) + 17, 3);
    match io.read(&pointers[3], &uncached) {
        Err(Error::Bad(fault)) => assert_eq!((fault.attempts.len(), fault.healed), (2, false)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sealed_content_has_two_copies_and_parts_of_records_one() {
    let Fixture { io, .. } = fixture(true);
    let secret = keys(1);
    let sealed = WriteContext { copies: 3, ..writer(Some(&secret)) };
    let pointer = io.write(&sealed, record(noise(1, 9000))).unwrap();
    assert_eq!(pointer.copy_count(), 2);
    assert_eq!(BlockPointer::decode(&pointer.to_bytes()), Ok(pointer));
    let open = WriteContext { copies: 3, ..writer(None) };
    assert_eq!(io.write(&open, block(BlockKind::Data, noise(1, 9000))).unwrap().copy_count(), 1);
    assert_eq!(io.write(&open, block(BlockKind::Names, noise(1, 9000))).unwrap().copy_count(), 2);
}
