//! Promises of overlays: small overwrites read nothing, and records are folded again.

use crate::support::{Draw, World};
use steadfast_dataset::Settings;
use steadfast_env::Env;
use steadfast_posix::Fallocate;

const RECORD: usize = 128 << 10;
const PAGE: usize = 4096;

/// A committed file of four records that nothing compresses or takes for a hole, and its content.
fn prepared() -> (World, u64, Vec<u8>) {
    let settings = Settings { recordsize: u32::try_from(RECORD).expect("small"), zeros_are_holes: true };
    let mut world = World::new(Env::seeded(8), settings);
    let file = world.file("f");
    let content: Vec<u8> = (0..4 * RECORD).map(|at| u8::try_from(1 + at % 250).expect("small")).collect();
    world.fs.write(file, 0, &content, false).expect("writes");
    world.commit();
    (world, file, content)
}

/// Overwrites one page.
fn overwrite(world: &World, file: u64, content: &mut [u8], page: usize, byte: u8) {
    let at = page * PAGE;
    content[at..at + PAGE].fill(byte);
    world.fs.write(file, at as u64, &[byte; PAGE], false).expect("writes");
}

#[test]
fn small_writes_and_holes_read_no_content_and_write_no_record() {
    let (mut world, file, mut content) = prepared();
    let before = world.blocks.live_bytes();
    world.blocks.fail_reads_after(Some(0));
    for page in [0, 1, 40, 70] {
        overwrite(&world, file, &mut content, page, 9);
    }
    // Not aligned to anything.
    content[200_000..200_100].fill(7);
    world.fs.write(file, 200_000, &[7; 100], false).expect("writes");
    content[300_000..310_000].fill(0);
    world.fs.fallocate(file, Fallocate::PunchHole, 300_000, 10_000, false).expect("punches");
    world.commit();
    world.blocks.fail_reads_after(None);
    let counts = world.fs.dataset().overlay_counts();
    assert_eq!((counts.written, counts.folded), (3, 0));
    let written = world.blocks.live_bytes() - before;
    assert!(written <= 8 * PAGE as u64, "{written} bytes for four pages, a piece and a hole");
    world.reopen();
    assert!(world.content(file) == content);
    // The hole, as far as it can be told.
    assert_eq!(world.fs.seek(file, 300_000, true), Ok(310_000));
    assert_eq!(world.fs.seek(file, 0, false), Ok(300_000));
    world.check();
}

#[test]
fn records_are_folded_when_they_waste_what_they_hold() {
    let (mut world, file, mut content) = prepared();
    let mut draw = Draw(3);
    for _ in 0..200 {
        for _ in 0..8 {
            let (page, byte) = (draw.below(4 * RECORD / PAGE), draw.below(256));
            overwrite(&world, file, &mut content, page, u8::try_from(byte).expect("small"));
        }
        world.commit();
        let used = world.blocks.live_bytes();
        assert!(used < 5 * content.len() as u64 / 2, "{used} bytes for {}", content.len());
    }
    let counts = world.fs.dataset().overlay_counts();
    assert!(counts.folded > 30, "{counts:?}");
    world.reopen();
    assert!(world.content(file) == content);
    world.check();
}

#[test]
fn what_readers_find_in_many_pieces_is_folded_in_the_background() {
    let (mut world, file, mut content) = prepared();
    let blocks = world.blocks.live();
    for page in [3, 9, 20, 27, 31] {
        overwrite(&world, file, &mut content, page, 9);
        world.commit();
    }
    assert_eq!(world.blocks.live(), blocks + 5);
    // A page of it is nobody's reason.
    world.fs.read(file, 9 * PAGE as u64, &mut [0; PAGE]).expect("reads");
    assert!(!world.fs.dataset().has_changes());
    assert!(world.content(file) == content);
    assert!(world.fs.dataset().has_changes());
    world.check();
    assert_eq!((world.blocks.live(), world.fs.dataset().overlay_counts().folded), (blocks, 1));
    world.reopen();
    assert!(world.content(file) == content);
    world.check();
}

#[test]
fn reading_a_sparse_file_makes_it_no_larger() {
    let settings = Settings { recordsize: u32::try_from(RECORD).expect("small"), zeros_are_holes: true };
    let mut world = World::new(Env::seeded(8), settings);
    let file = world.file("f");
    let mut content = vec![0; RECORD];
    for page in [31, 3, 9, 20, 27] {
        overwrite(&world, file, &mut content, page, 9);
        world.commit();
    }
    let used = world.blocks.live_bytes();
    assert!(world.content(file) == content, "read in many pieces");
    assert!(!world.fs.dataset().has_changes(), "and left in them");
    world.commit();
    assert_eq!((world.blocks.live_bytes(), world.fs.dataset().overlay_counts().folded), (used, 0));
    // Once it is full of pieces it is folded.
    for page in 0..32 {
        overwrite(&world, file, &mut content, page, 7);
        if page % 4 == 3 {
            world.commit();
        }
    }
    assert!(world.content(file) == content && world.fs.dataset().has_changes());
    world.check();
    assert_eq!(world.fs.dataset().overlay_counts().folded, 1);
}

#[test]
fn a_sparse_record_is_not_folded_where_its_pieces_take_less() {
    let settings = Settings { recordsize: u32::try_from(RECORD).expect("small"), zeros_are_holes: true };
    let mut world = World::new(Env::seeded(8), settings);
    let file = world.file("f");
    let mut content = vec![0; 8 * RECORD - PAGE];
    // Every second page, and these again without one of each record.
    for (byte, left_out) in [(9, None), (7, Some(0))] {
        for page in (0..content.len() / PAGE).step_by(2).filter(|page| Some(page % 32) != left_out) {
            overwrite(&world, file, &mut content, page, byte);
        }
        world.commit();
    }
    assert_eq!(world.fs.dataset().overlay_counts().folded, 0);
    let used = world.blocks.live_bytes();
    assert!(used < content.len() as u64, "{used} bytes");
    world.reopen();
    assert!(world.content(file) == content);
    world.check();
}

#[test]
fn what_cannot_be_read_is_not_folded_and_nothing_else_suffers() {
    let (mut world, file, mut content) = prepared();
    world.blocks.fail_reads_after(Some(0));
    for page in 0..32 {
        overwrite(&world, file, &mut content, page, 9);
        if page % 4 == 3 {
            world.commit();
        }
    }
    for page in 0..30 {
        overwrite(&world, file, &mut content, 32 + page % 31, 8);
        overwrite(&world, file, &mut content, 64 + page % 31, 8);
        world.commit();
    }
    assert_eq!(world.fs.dataset().overlay_counts().folded, 0);
    world.blocks.fail_reads_after(None);
    let damage = world.fs.dataset().damage();
    assert!(!damage.is_empty(), "it was to be folded");
    assert!(world.content(file) == content);
    world.check();
}

/// Makes the block below a record's overlays unreadable, for good.
fn spoil_base(world: &World, file: u64, record: u64) {
    use steadfast_format::extent::Extent;
    let extent = world
        .fs
        .dataset()
        .extent_at(steadfast_format::InodeId(file), record)
        .expect("looked up")
        .expect("there");
    match extent {
        Extent::Block { pointer, .. } => world.blocks.spoil(&pointer),
        Extent::Overlaid(overlaid) => world.blocks.spoil(&overlaid.base.expect("a base").pointer),
        Extent::Inline(_) => unreachable!("the record is large"),
    }
}

#[test]
fn whatever_is_written_over_what_cannot_be_read_is_kept() {
    for recordsize in [PAGE, RECORD] {
        let size = u32::try_from(recordsize).expect("small");
        let settings = Settings { recordsize: size, zeros_are_holes: true };
        let mut world = World::new(Env::seeded(8), settings);
        let file = world.file("f");
        let mut content: Vec<u8> = (0..2 * recordsize).map(|at| (1 + at % 250) as u8).collect();
        world.fs.write(file, 0, &content, false).expect("writes");
        world.commit();
        spoil_base(&world, file, 0);
        let mut fresh = vec![false; content.len()];
        let mut draw = Draw(5);
        // More pieces than an extent has room for: they have to be put together, though the record
        // cannot.
        let step = recordsize / 16;
        for round in 0..120 {
            let at = draw.below(16) * step + draw.below(step / 2);
            let count = 1 + draw.below(step / 2);
            let byte = 1 + u8::try_from(round).expect("small");
            content[at..at + count].fill(byte);
            fresh[at..at + count].fill(true);
            world.fs.write(file, at as u64, &vec![byte; count], false).expect("writes");
            if round == 60 {
                let (at, count) = (3 * step, 2 * step);
                content[at..at + count].fill(0);
                fresh[at..at + count].fill(true);
                let (at, count) = (at as u64, count as u64);
                world.fs.fallocate(file, Fallocate::PunchHole, at, count, false).expect("punches");
            }
            world.commit();
        }
        let damage = world.fs.dataset().damage();
        assert!(damage.iter().all(|damage| damage.range.end <= recordsize as u64), "{damage:?}");
        assert!(!damage.is_empty() && world.fs.dataset().overlay_counts().folded == 0);
        world.reopen();
        let mut out = [0];
        for (at, fresh) in fresh.iter().enumerate() {
            let read = world.fs.read(file, at as u64, &mut out);
            if *fresh || at >= recordsize {
                assert_eq!((read, out[0]), (Ok(1), content[at]), "byte {at} of records of {recordsize}");
            } else {
                assert_eq!(read, Err(steadfast_posix::Errno::EIO), "byte {at} of records of {recordsize}");
            }
        }
        // Cut to what fits into the tree, and longer again: what was cut off is zeros, not what it
        // was.
        let set = |size| steadfast_posix::SetAttr { size: Some(size), ..Default::default() };
        world.fs.setattr(file, &set(100)).expect("cut");
        world.commit();
        world.fs.setattr(file, &set(8192)).expect("grown");
        world.commit();
        let mut rest = vec![9; 8092];
        assert_eq!(world.fs.read(file, 100, &mut rest), Ok(8092));
        assert!(rest.iter().all(|&byte| byte == 0));
        // Written whole, it is as good as new.
        let whole = vec![7; recordsize.max(8192)];
        world.fs.write(file, 0, &whole, false).expect("writes");
        world.check();
        assert!(world.content(file) == whole);
    }
}

#[test]
fn what_cannot_be_folded_is_tried_once() {
    let (mut world, file, mut content) = prepared();
    for page in [3, 9, 20, 27, 31] {
        overwrite(&world, file, &mut content, page, 9);
        world.commit();
    }
    assert!(world.content(file) == content, "read in many pieces");
    spoil_base(&world, file, 0);
    assert!(world.fs.dataset().has_changes(), "it is to be folded");
    world.commit();
    assert_eq!(world.fs.dataset().damage().len(), 1);
    // Nobody reads a record that cannot be read; a reader that fails half way is no reason to try
    // again.
    let mut out = vec![0; RECORD];
    assert!(world.fs.read(file, 0, &mut out).is_err());
    assert!(!world.fs.dataset().has_changes(), "or it would be committed for ever");
    assert_eq!(world.fs.read(file, (20 * PAGE) as u64, &mut out[..PAGE]), Ok(PAGE));
    assert!(out[..PAGE].iter().all(|&byte| byte == 9), "the overlay is kept");
    world.fs.dataset().clear_damage();
    assert!(world.fs.dataset().damage().is_empty());
    world.check();
}
