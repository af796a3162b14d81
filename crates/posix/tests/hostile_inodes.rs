//! Inodes that no file system of ours leaves behind, but a stream of anybody's may bring: they harm
//! nobody but themselves.

use crate::support::{ROOT, World};
use steadfast_dataset::{InodeRecord, Settings};
use steadfast_env::Env;
use steadfast_format::{InodeId, LogRecord};
use steadfast_posix::{Errno, RENAME_EXCHANGE};
use steadfast_txg::AdmitKind;

/// Changes what an inode says of itself.
fn forge(world: &World, ino: u64, change: impl FnOnce(&mut InodeRecord)) {
    let dataset = world.fs.dataset();
    let inode = dataset.inode(InodeId(ino)).expect("there");
    let op = dataset.begin(AdmitKind::Write).expect("admitted");
    dataset.change(&op, &inode, change);
}

#[test]
fn a_circle_of_folders_has_an_end() {
    for length in 2..7 {
        let world = World::new(Env::seeded(1), Settings::default());
        let made =
            |above: u64, name: &str| world.fs.mkdir(ROOT, above, name.as_bytes(), 0o755).expect("made").ino;
        let mut folders = vec![made(1, "first")];
        (1..length).for_each(|_| folders.push(made(*folders.last().expect("some"), "next")));
        let (first, last) = (folders[0], folders[length - 1]);
        let other = made(1, "other");
        // From outside into the circle: two steps before it, so that the walk begins on no part of
        // it.
        let way = made(made(last, "way"), "in");
        made(way, "there");
        forge(&world, first, |record| record.parent = InodeId(last));
        for to in [last, way] {
            assert_eq!(world.fs.rename(1, b"other", to, b"moved", 0), Err(Errno::EIO), "{length}");
        }
        assert_eq!(world.fs.rename(1, b"other", way, b"there", RENAME_EXCHANGE), Err(Errno::EIO), "{length}");
        assert_eq!(world.fs.rename(1, b"first", last, b"below", 0), Err(Errno::EINVAL), "within itself");
        // Others go on.
        world.fs.rename(1, b"other", 1, b"another", 0).expect("renamed");
        assert_eq!(world.fs.lookup(1, b"another").expect("there").ino, other);
    }
}

#[test]
fn a_name_of_what_says_it_has_none_can_be_removed() {
    let mut world = World::new(Env::seeded(1), Settings::default());
    let empty = world.blocks.live();
    for step in 0..2 {
        let file = world.file("f");
        world.fs.write(file, 0, &[7; 50_000], false).expect("written");
        world.commit();
        forge(&world, file, |record| record.nlink = 0);
        if step == 0 {
            world.fs.unlink(1, b"f").expect("removed");
        } else {
            world.file("g");
            world.fs.rename(1, b"g", 1, b"f", 0).expect("replaced");
            world.fs.unlink(1, b"f").expect("removed");
        }
        assert_eq!(world.fs.getattr(file), Err(Errno::ESTALE), "it is gone");
        world.check();
        assert_eq!(world.blocks.live(), empty, "with all it had");
    }
}

#[test]
fn a_number_that_was_brought_is_not_given_again() {
    let world = World::new(Env::seeded(1), Settings::default());
    let file = world.file("f");
    let dataset = world.fs.dataset();
    let record = dataset.inode(InodeId(file)).expect("there").record();
    let brought = file + 3;
    let records = [
        LogRecord::Inode { inode: InodeId(brought), record },
        LogRecord::Counters { files: 3, next_inode: 2 },
    ];
    dataset.receive(&records).expect("received");
    let made: Vec<u64> = (0..5).map(|n| world.file(&format!("new {n}"))).collect();
    assert!(made.iter().all(|ino| *ino > brought), "{made:?} beside {brought}");
}
