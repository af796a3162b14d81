use super::*;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use steadfast_format::SegmentId;

const SIZE: u64 = 64 << 20;
const SLOT: u32 = 1 << 20;

/// A file that is removed again.
struct Scratch(PathBuf);

impl Scratch {
    fn new(bytes: u64) -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("steadfast-device-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        Scratch(path)
    }

    fn open(&self) -> FileDevice {
        FileDevice::open(&self.0, &OpenOptions::WRITE).unwrap()
    }

    fn file(&self) -> File {
        std::fs::OpenOptions::new().write(true).open(&self.0).unwrap()
    }

    /// Descriptors of this process that are open on it.
    fn descriptors(&self) -> usize {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| path == self.0)).count()
    }

    fn allocated(&self) -> u64 {
        self.0.metadata().unwrap().blocks() * 512
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn place(slot: u32) -> SegmentPlace {
    SegmentPlace { segment: SegmentId(u64::from(slot) + 100), slot, slot_size: SLOT }
}

#[test]
fn what_is_written_is_read_buffered_and_direct() {
    let scratch = Scratch::new(SIZE);
    let expected: Vec<u8> = (0..SLOT).map(|n| (n / 7) as u8).collect();
    for direct in [false, true] {
        let device = FileDevice::open(&scratch.0, &OpenOptions { direct, ..OpenOptions::WRITE }).unwrap();
        device.put_segment(place(0), &expected).unwrap();
        device.append_segment(place(1), 0, &expected[..8192]).unwrap();
        device.append_segment(place(1), 8192, &expected[8192..8192 + 513]).unwrap();
        device.flush().unwrap();
        let mut out = vec![0; 1000];
        device.read_segment(place(0), 4000, &mut out).unwrap();
        assert_eq!(out, expected[4000..5000]);
        let mut out = vec![0; 8192 + 513];
        device.read_segment(place(1), 0, &mut out).unwrap();
        assert_eq!(out, expected[..8192 + 513]);
    }
}

/// Large transfers may bypass the page cache, small ones do not: each finds what the other wrote,
/// whatever their order.
#[test]
fn large_and_small_transfers_see_each_other() {
    const LARGE: u32 = 8 << 20;
    let scratch = Scratch::new(64 << 20);
    let device = FileDevice::open(&scratch.0, &OpenOptions::WRITE).unwrap();
    let place = SegmentPlace { segment: SegmentId(7), slot: 2, slot_size: LARGE };
    let mut expected = vec![0; LARGE as usize];
    let mut state = 5_u64;
    let mut draw = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    device.put_segment(place, &Buffer::zeroed(LARGE as usize)).unwrap();
    for step in 0..200_u32 {
        // Aligned or not, in memory and on the device.
        let unit = [1, 512, 4096][draw(3)];
        let length = (1 + draw(300 << 10)).next_multiple_of(unit);
        let at = draw(LARGE as usize - length) / unit * unit;
        let bytes: Vec<u8> = (0..length).map(|n| (n as u32 * 7 + step) as u8).collect();
        let mut aligned = Buffer::with_capacity(length);
        aligned.extend(&bytes);
        let source = if draw(2) == 0 { &bytes[..] } else { &aligned[..] };
        device.append_segment(place, u32::try_from(at).unwrap(), source).unwrap();
        expected[at..at + length].copy_from_slice(&bytes);
        let length = (1 + draw(300 << 10)).next_multiple_of(unit);
        let at = draw(LARGE as usize - length) / unit * unit;
        let mut aligned = Buffer::zeroed(length);
        let mut plain = vec![0; length];
        let out = if draw(2) == 0 { &mut plain[..] } else { &mut aligned[..] };
        device.read_segment(place, u32::try_from(at).unwrap(), out).unwrap();
        assert!(*out == expected[at..at + length], "step {step}");
    }
    device.flush().unwrap();
    drop(device);
    let image = std::fs::read(&scratch.0).unwrap();
    let start = usize::try_from(slot_offset(2, LARGE)).unwrap();
    assert!(image[start..start + LARGE as usize] == expected);
}

#[test]
fn labels_and_rings_lie_where_the_format_says() {
    let scratch = Scratch::new(SIZE + 5000);
    let device = scratch.open();
    for copy in 0..LABELS {
        device.write_label(copy, &[copy as u8 + 1; 100]).unwrap();
        device.write_uberblock(copy, Txg(49), &[copy as u8 + 11; UBERBLOCK_SIZE]).unwrap();
    }
    let image = std::fs::read(&scratch.0).unwrap();
    let ends = [0, 256 << 10, SIZE as usize - (512 << 10), SIZE as usize - (256 << 10)];
    for (copy, start) in ends.into_iter().enumerate() {
        assert!(image[start..start + 8192].iter().all(|&byte| byte == 0), "8 KiB stay blank");
        assert_eq!(image[start + 8192..start + 8292], [copy as u8 + 1; 100]);
        let second = start + (64 << 10) + 4096;
        assert_eq!(image[second..second + 4096], [copy as u8 + 11; 4096], "txg 49 is in ring slot 1");
        assert_eq!(device.read_label(copy).unwrap()[..100], [copy as u8 + 1; 100]);
        let ring = device.read_uberblocks(copy).unwrap();
        assert_eq!((ring.len(), ring[1][0], ring[0][0]), (48, copy as u8 + 11, 0));
    }
    // Slots start behind the front labels and end before the back ones.
    device.put_segment(place(0), &[0xee; 4096]).unwrap();
    let image = std::fs::read(&scratch.0).unwrap();
    assert_eq!(image[512 << 10], 0xee);
    assert_eq!(image[(512 << 10) - 1], 0);
}

#[test]
fn opening_changes_nothing() {
    let scratch = Scratch::new(SIZE);
    let file = File::options().write(true).open(&scratch.0).unwrap();
    file.write_all_at(b"someone's bytes", 12_345).unwrap();
    drop(file);
    let before = (std::fs::read(&scratch.0).unwrap(), scratch.allocated());
    drop(scratch.open());
    assert!(before == (std::fs::read(&scratch.0).unwrap(), scratch.allocated()));
}

#[test]
fn a_second_opener_is_refused_and_told_who_is_first() {
    let scratch = Scratch::new(SIZE);
    let first = scratch.open();
    let error = FileDevice::open(&scratch.0, &OpenOptions::WRITE).unwrap_err();
    let Error::Busy { device, holder } = &error else { panic!("{error}") };
    assert_eq!(device, &scratch.0.display().to_string());
    // Some file systems number their devices otherwise in the lock table; then nobody is named,
    // never a stranger.
    assert!(holder.is_none_or(|id| id == std::process::id()), "{error}");
    assert!(matches!(FileDevice::open(&scratch.0, &OpenOptions::READ), Err(Error::Busy { .. })));
    let peek = FileDevice::open(&scratch.0, &OpenOptions::PEEK).unwrap();
    assert!(matches!(peek.write_label(0, b"x"), Err(Error::ReadOnly { .. })));
    drop(first);
    scratch.open();
}

#[test]
fn a_released_device_is_free_for_others_and_takes_no_writes_though_someone_holds_it() {
    let scratch = Scratch::new(SIZE);
    let held = scratch.open();
    held.write_label(0, b"ours").unwrap();
    held.release();
    assert_eq!(scratch.descriptors(), 0, "the file system of the image can be unmounted");
    assert!(matches!(held.read_label(0), Err(Error::Released { .. })));
    assert!(matches!(held.flush(), Err(Error::Released { .. })));
    let next = scratch.open();
    assert!(scratch.descriptors() > 0, "they would be seen");
    next.write_label(0, b"theirs").unwrap();
    assert!(matches!(held.write_label(0, b"late"), Err(Error::Released { .. })));
    assert!(matches!(
        held.discard_segment(SegmentPlace { segment: SegmentId(1), slot: 0, slot_size: 1 << 20 }),
        Err(Error::Released { .. })
    ));
    assert_eq!(&next.read_label(0).unwrap()[..6], b"theirs");
    drop(held);
    assert!(
        matches!(FileDevice::open(&scratch.0, &OpenOptions::WRITE), Err(Error::Busy { .. })),
        "still next's"
    );
}

/// A loop device that shows a file; it goes with its test.
struct Loop(PathBuf);

impl Loop {
    /// `None` where the system gives none: that takes root.
    fn over(file: &Path, options: &[&str]) -> Option<Loop> {
        let made =
            std::process::Command::new("losetup").args(["-f", "--show"]).args(options).arg(file).output();
        let made = made.ok().filter(|made| made.status.success())?;
        Some(Loop(String::from_utf8(made.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[test]
fn a_file_and_a_loop_device_over_it_are_one_device() {
    let scratch = Scratch::new(2 * SIZE);
    let (first, last) = (SIZE.to_string(), ["-o", "67108864"]);
    let made = (
        Loop::over(&scratch.0, &[]),
        Loop::over(&scratch.0, &["--sizelimit", &first]),
        Loop::over(&scratch.0, &last),
    );
    let (Some(whole), Some(front), Some(back)) = made else {
        return eprintln!("SKIPPED a loop device: it takes root and losetup");
    };
    assert_eq!(Medium::of(&whole.0), Medium::of(&scratch.0));
    assert_ne!(Medium::of(&back.0), Medium::of(&front.0));
    let open = |path: &Path, options| FileDevice::open(path, options);
    let busy = |path: &Path, options| matches!(open(path, options), Err(Error::Busy { .. }));
    for (one, others) in [
        (&scratch.0, [&whole.0, &back.0]),
        (&whole.0, [&scratch.0, &back.0]),
        (&back.0, [&scratch.0, &whole.0]),
    ] {
        let device = open(one, &OpenOptions::WRITE).unwrap();
        assert_eq!(device.character().medium, Medium::of(one));
        for other in others {
            assert!(busy(other, &OpenOptions::WRITE), "{} beside {}", other.display(), one.display());
        }
        device.release();
        assert!(!busy(others[0], &OpenOptions::WRITE));
    }
    // Readers stand beside each other, and keep writers away.
    let reader = open(&whole.0, &OpenOptions::READ).unwrap();
    assert!(!busy(&scratch.0, &OpenOptions::READ) && busy(&scratch.0, &OpenOptions::WRITE));
    drop(reader);
    // Parts of one file are devices of their own.
    let _front = open(&front.0, &OpenOptions::WRITE).unwrap();
    assert!(!busy(&back.0, &OpenOptions::WRITE));
    // A file that was deleted has no other user.
    std::fs::remove_file(&scratch.0).unwrap();
    assert!(!busy(&whole.0, &OpenOptions::WRITE));
}

#[test]
fn what_is_no_device_is_refused() {
    let small = Scratch::new(SIZE - 1);
    let error = FileDevice::open(&small.0, &OpenOptions::WRITE).unwrap_err();
    assert!(matches!(error, Error::TooSmall { size_bytes, .. } if size_bytes == SIZE - 1), "{error}");
    let error = FileDevice::open(&std::env::temp_dir(), &OpenOptions::WRITE).unwrap_err();
    assert!(matches!(error, Error::WrongType { found: "a directory", .. }), "{error}");
    let error = FileDevice::open(Path::new("/dev/null"), &OpenOptions::WRITE).unwrap_err();
    assert!(matches!(error, Error::WrongType { .. }), "{error}");
    let error = FileDevice::open(Path::new("/nonexistent/steadfast"), &OpenOptions::WRITE).unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

#[test]
fn places_outside_are_refused_also_after_shrinking() {
    let scratch = Scratch::new(SIZE);
    let device = scratch.open();
    let slots = slot_count(SIZE, SLOT);
    device.put_segment(place(slots - 1), &[1; 4096]).unwrap();
    assert!(matches!(device.put_segment(place(slots), &[1; 4096]), Err(Error::Outside { .. })));
    assert!(matches!(device.append_segment(place(0), SLOT - 4095, &[1; 4096]), Err(Error::Outside { .. })));
    scratch.file().set_len(1000).unwrap();
    let error = device.read_segment(place(0), 0, &mut [0; 10]).unwrap_err();
    assert!(matches!(error, Error::Io { operation: Operation::Read, .. }), "{error}");
    assert_eq!(device.refresh_size().unwrap(), 1000);
    assert!(matches!(device.read_segment(place(0), 0, &mut [0; 10]), Err(Error::Outside { .. })));
    assert!(matches!(device.read_label(0), Err(Error::Outside { .. })));
}

#[test]
fn a_grown_file_has_its_back_labels_at_the_new_end() {
    let scratch = Scratch::new(SIZE);
    let device = scratch.open();
    scratch.file().set_len(SIZE * 2).unwrap();
    assert_eq!(device.character().size_bytes, SIZE);
    assert_eq!(device.refresh_size().unwrap(), SIZE * 2);
    device.write_label(3, &[9; 10]).unwrap();
    let at = usize::try_from(SIZE * 2 - (256 << 10) + 8192).unwrap();
    assert_eq!(std::fs::read(&scratch.0).unwrap()[at], 9);
}

#[test]
fn a_discarded_slot_gives_its_space_back_in_a_sparse_file_only() {
    let sparse = Scratch::new(SIZE);
    let device = sparse.open();
    device.put_segment(place(3), &vec![7; SLOT as usize]).unwrap();
    device.flush().unwrap();
    let full = sparse.allocated();
    assert!(full >= u64::from(SLOT));
    device.discard_segment(place(3)).unwrap();
    device.flush().unwrap();
    assert_eq!(sparse.0.metadata().unwrap().len(), SIZE);
    // Where the file system punches no holes, the call was still accepted.
    if device.punches.load(Ordering::Relaxed) {
        assert!(sparse.allocated() < full);
    }

    let solid = Scratch::new(SIZE);
    let file = File::options().write(true).open(&solid.0).unwrap();
    for at in 0..SIZE >> 20 {
        file.write_all_at(&vec![1; 1 << 20], at << 20).unwrap();
    }
    file.sync_all().unwrap();
    let full = solid.allocated();
    solid.open().discard_segment(place(3)).unwrap();
    assert_eq!(solid.allocated(), full);
}

#[test]
fn after_a_failed_flush_nothing_is_accepted() {
    let scratch = Scratch::new(SIZE);
    let device = scratch.open();
    device.flush_failed.store(true, Ordering::Release);
    assert!(matches!(device.put_segment(place(0), &[1]), Err(Error::Poisoned { .. })));
    let parts: [&[u8]; 2] = [&[1], &[2]];
    assert!(matches!(device.append_segment_parts(place(0), 0, &parts), Err(Error::Poisoned { .. })));
    assert!(matches!(device.flush(), Err(Error::Poisoned { .. })));
}

#[test]
fn several_buffers_are_written_by_one_transfer() {
    let scratch = Scratch::new(SIZE);
    for direct in [true, false] {
        let device = FileDevice::open(&scratch.0, &OpenOptions { direct, ..OpenOptions::WRITE }).unwrap();
        // Aligned, not aligned, small, empty; more buffers than one call takes.
        let lengths: [&[usize]; 5] =
            [&[131_072, 65_536], &[5, 4096, 0, 70_001], &[4096, 8192], &[], &[32; 3_000]];
        for (number, lengths) in lengths.into_iter().enumerate() {
            device.put_segment(place(2), &vec![0xff; SLOT as usize]).unwrap();
            let buffers: Vec<Buffer> = lengths
                .iter()
                .enumerate()
                .map(|(part, &length)| {
                    let mut buffer = Buffer::zeroed(length);
                    buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at + part + number) as u8);
                    buffer
                })
                .collect();
            let parts: Vec<&[u8]> = buffers.iter().map(|buffer| &buffer[..]).collect();
            device.append_segment_parts(place(2), 8192, &parts).unwrap();
            let mut found = vec![0; SLOT as usize];
            device.read_segment(place(2), 0, &mut found).unwrap();
            let written = parts.concat();
            let end = 8192 + written.len();
            assert!(found[8192..end] == written[..], "{direct}, {lengths:?}");
            assert!(
                found[..8192].iter().chain(&found[end..]).all(|&byte| byte == 0xff),
                "{direct}, {lengths:?}"
            );
        }
        let beyond = vec![0; SLOT as usize];
        let refused = device.append_segment_parts(place(2), 0, &[&beyond[..], &beyond[..4096]]);
        assert!(matches!(refused, Err(Error::Outside { .. })), "{refused:?}");
    }
}

#[test]
fn several_buffers_are_filled_by_one_transfer() {
    let scratch = Scratch::new(SIZE);
    for direct in [true, false] {
        let device = FileDevice::open(&scratch.0, &OpenOptions { direct, ..OpenOptions::WRITE }).unwrap();
        let written: Vec<u8> = (0..SLOT as usize).map(|at| (at * 7 % 251) as u8).collect();
        device.put_segment(place(2), &written).unwrap();
        // Aligned, not aligned, empty; more buffers than one call takes.
        let lengths: [&[usize]; 4] = [&[131_072, 65_536], &[5, 4096, 0, 70_001], &[], &[3; 3_000]];
        for lengths in lengths {
            let mut buffers: Vec<Buffer> = lengths.iter().map(|&length| Buffer::zeroed(length)).collect();
            let mut parts: Vec<&mut [u8]> = buffers.iter_mut().map(|buffer| &mut buffer[..]).collect();
            device.read_segment_parts(place(2), 8192, &mut parts).unwrap();
            let mut at = 8192;
            for buffer in &buffers {
                assert!(buffer[..] == written[at..at + buffer.len()], "{direct}, at {at}");
                at += buffer.len();
            }
        }
        let mut beyond = [vec![0; 4096], vec![0; SLOT as usize]];
        let mut parts: Vec<&mut [u8]> = beyond.iter_mut().map(|part| &mut part[..]).collect();
        let refused = device.read_segment_parts(place(2), 0, &mut parts);
        assert!(matches!(refused, Err(Error::Outside { .. })), "{refused:?}");
    }
}
