//! Inodes at rest: a file system that has room for none does what one does that has room for all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::support::{Draw, ROOT, World};
use steadfast_dataset::Settings;
use steadfast_env::{Clock, Env};
use steadfast_format::InodeId;
use steadfast_format::file_keys::NamesKey;
use steadfast_format::inode::InodeRecord;
use steadfast_posix::{Errno, SetAttr};

/// Time that passes when somebody looks, for stamps and for what is measured each by itself: an
/// inode that is written so that it can rest is a change, whose time is noted.
struct TwoClocks([Arc<dyn Clock>; 2]);

impl Clock for TwoClocks {
    fn wall_ns(&self) -> i128 {
        self.0[0].wall_ns()
    }

    fn monotonic_ns(&self) -> u64 {
        self.0[1].monotonic_ns()
    }

    fn sleep(&self, duration: Duration) {
        self.0.iter().for_each(|clock| clock.sleep(duration));
    }
}

fn world(seed: u64, inode_bytes: usize) -> World {
    let clock = Arc::new(TwoClocks([(); 2].map(|()| Env::seeded(seed).clock)));
    let world = World::new(Env { clock, ..Env::seeded(seed) }, Settings::default());
    world.inodes.set_bytes_max(inode_bytes);
    world
}

impl World {
    fn lookups(&self, ino: u64) -> u64 {
        self.fs.dataset().lookups(InodeId(ino))
    }

    fn resting(&self) -> u64 {
        self.inodes.used().resting
    }

    /// Commits until what can rest does: what was written is committed, noted, and the hand came by
    /// twice.
    fn settle(&mut self) {
        (0..4).for_each(|_| self.commit());
    }

    fn stored(&self, ino: u64) -> InodeRecord {
        let record = self.fs.dataset().names().get(&NamesKey::Inode(InodeId(ino)).encode());
        InodeRecord::decode(&record.expect("readable").expect("there")).expect("a record")
    }
}

/// One step on one of two worlds: what it answered, in words. `held` are the kernel's lookups.
fn step(world: &mut World, held: &mut BTreeMap<u64, u64>, mut draw: Draw) -> String {
    let fs = std::sync::Arc::clone(&world.fs);
    let fs = &*fs;
    let name = format!("n{}", draw.below(60)).into_bytes();
    let other = format!("n{}", draw.below(60)).into_bytes();
    let numbers: Vec<u64> = held.keys().copied().collect();
    let one = if numbers.is_empty() { 1 } else { numbers[draw.below(numbers.len())] };
    let mut entry = |entry: Result<steadfast_posix::Entry, Errno>| {
        if let Ok(entry) = &entry {
            *held.entry(entry.ino).or_default() += 1;
        }
        format!("{entry:?}")
    };
    match draw.below(22) {
        0..=4 => entry(fs.lookup(1, &name)),
        5 | 6 => entry(fs.mknod(ROOT, 1, &name, 0o100_644, 0)),
        7 => entry(fs.link(one, 1, &name)),
        8 => entry(fs.entry_by_ino(one)),
        9 | 10 => format!("{:?}", fs.unlink(1, &name)),
        11 => format!("{:?}", fs.rename(1, &name, 1, &other, 0)),
        12 => {
            let (length, offset) = (1 + draw.below(20_000), draw.below(300_000) as u64);
            let data = draw.bytes(length);
            format!("{:?}", fs.write(one, offset, &data, false))
        }
        13 => {
            let set = SetAttr { size: Some(draw.below(100_000) as u64), ..SetAttr::default() };
            format!("{:?}", fs.setattr(one, &set))
        }
        14 => {
            let mut content = vec![0; draw.below(50_000)];
            format!("{:?} {content:?}", fs.read(one, draw.below(50_000) as u64, &mut content))
        }
        15 => {
            let mut listed = Vec::new();
            let ended = fs.readdir(1, 0, |entry| {
                listed.push((entry.ino, entry.name));
                true
            });
            format!("{ended:?} {listed:?}")
        }
        20 => {
            // Up to an entry for which there is no room.
            let (mut room, mut listed) = (draw.below(80), Vec::new());
            let ended = fs.readdir_plus(1, 0, |found, known| {
                listed.push(format!("{found:?} {known:?}"));
                let is_taken = room > 0;
                if let Some(known) = known.filter(|_| is_taken) {
                    entry(known.copied());
                }
                room = room.saturating_sub(1);
                is_taken
            });
            format!("{ended:?} {listed:?}")
        }
        21 => {
            let mut listed = Vec::new();
            let ended = fs.readdir_looking(1, 0, |found, known| {
                listed.push(format!("{found:?} {known:?}"));
                true
            });
            format!("{ended:?} {listed:?}")
        }
        16 | 17 => {
            let count = held.get(&one).map_or(0, |&count| 1 + draw.below(count as usize) as u64);
            fs.forget(one, count);
            if let Some(left) = held.get_mut(&one) {
                *left -= count;
            }
            held.retain(|_, left| *left > 0);
            String::new()
        }
        18 => {
            world.commit();
            String::new()
        }
        _ => format!("{:?}", fs.getattr(one)),
    }
}

#[test]
fn with_room_for_none_all_is_as_with_room_for_all() {
    let mut rested = 0;
    for seed in 0..12 {
        let mut worlds = [world(seed, 1 << 30), world(seed, 0)];
        let mut held = [BTreeMap::new(), BTreeMap::new()];
        let mut draw = Draw(seed);
        for at in 0..1_500 {
            let dice = draw.below(1 << 30) as u64;
            let [all, none] = [0, 1].map(|which| step(&mut worlds[which], &mut held[which], Draw(dice)));
            assert_eq!(all, none, "seed {seed}, step {at}");
            assert_eq!(held[0], held[1]);
            if at % 50 == 0 {
                for (&ino, &count) in &held[0] {
                    assert_eq!([worlds[0].lookups(ino), worlds[1].lookups(ino)], [count; 2], "inode {ino}");
                }
            }
            rested += worlds[1].resting();
        }
        assert_eq!(worlds[0].resting(), 0);
        for (world, held) in worlds.iter_mut().zip(held) {
            held.into_iter().for_each(|(ino, count)| world.fs.forget(ino, count));
            world.check();
            assert_eq!(world.resting(), 0);
        }
        let files = worlds.each_ref().map(|world| world.fs.dataset().counters());
        assert_eq!(files[0], files[1]);
    }
    assert!(rested > 12 * 1_500, "some inode or other rests all the time, not {rested} times");
}

#[test]
fn what_is_unlinked_while_it_rests_stays_until_it_is_forgotten() {
    let mut world = world(3, 0);
    let kept: Vec<u64> = (0..100)
        .map(|n| world.fs.mknod(ROOT, 1, format!("f{n}").as_bytes(), 0o100_644, 0).expect("new").ino)
        .collect();
    kept.iter().for_each(|&ino| _ = world.fs.write(ino, 0, &[7; 5_000], false).expect("writes"));
    world.settle();
    assert!(world.resting() >= 80, "{}", world.resting());
    for n in 0..100 {
        world.fs.unlink(1, format!("f{n}").as_bytes()).expect("there");
    }
    world.settle();
    for &ino in &kept {
        assert_eq!(world.lookups(ino), 1);
        assert_eq!(world.fs.getattr(ino).expect("an orphan").nlink, 0);
        assert_eq!(world.content(ino), [7; 5_000]);
    }
    assert_eq!(world.fs.dataset().counters().files, 101);
    world.settle();
    assert_eq!(world.resting(), 0, "[inode_cache.3] no orphan rests");
    kept.iter().for_each(|&ino| world.fs.forget(ino, 1));
    assert_eq!(world.fs.dataset().counters().files, 1);
    world.check();
    assert!(kept.iter().all(|&ino| world.fs.getattr(ino) == Err(Errno::ESTALE)));
}

#[test]
fn to_forget_what_rests_reads_nothing() {
    let mut world = world(4, 0);
    let made: Vec<u64> = (0..2_000)
        .map(|n| world.fs.mknod(ROOT, 1, format!("f{n}").as_bytes(), 0o100_644, 0).expect("new").ino)
        .collect();
    made.iter().step_by(3).for_each(|&ino| _ = world.fs.entry_by_ino(ino).expect("there"));
    world.settle();
    let used = world.inodes.used();
    assert!(used.resting >= 1_900 && used.live <= 100, "{used:?}");
    assert!(used.resting_bytes < 200_000 && used.live_bytes < 100 * 600, "{used:?}");
    world.nodes.clear();
    let reads = world.blocks.reads();
    made.iter().for_each(|&ino| world.fs.forget(ino, 1));
    let once_more = made.iter().step_by(3).filter(|&&ino| world.lookups(ino) == 1).count();
    assert_eq!(once_more, made.len().div_ceil(3));
    made.iter().step_by(3).for_each(|&ino| world.fs.forget(ino, 1));
    assert_eq!(world.blocks.reads(), reads);
    assert_eq!(made.iter().map(|&ino| world.lookups(ino)).sum::<u64>(), 0);
    assert!(world.inodes.used().resting_bytes < 10_000, "{:?}", world.inodes.used());
}

#[test]
fn a_revival_that_fails_keeps_the_lookups() {
    let mut world = world(5, 0);
    let made: Vec<u64> = (0..300)
        .map(|n| world.fs.mknod(ROOT, 1, format!("f{n}").as_bytes(), 0o100_644, 0).expect("new").ino)
        .collect();
    world.settle();
    world.nodes.clear();
    world.blocks.fail_reads_after(Some(0));
    let refused = made.iter().filter(|&&ino| world.fs.getattr(ino) == Err(Errno::EIO)).count();
    assert!(refused > 200, "{refused}");
    world.blocks.fail_reads_after(None);
    for &ino in &made {
        assert_eq!(world.lookups(ino), 1);
        assert_eq!(world.fs.getattr(ino).expect("readable").nlink, 1);
    }
}

#[test]
fn what_a_file_occupies_is_noted_before_it_rests() {
    let mut world = world(6, 0);
    let made: Vec<u64> = (0..60)
        .map(|n| world.fs.mknod(ROOT, 1, format!("f{n}").as_bytes(), 0o100_644, 0).expect("new").ino)
        .collect();
    for byte in [1, 2] {
        made.iter().for_each(|&ino| _ = world.fs.write(ino, 0, &[byte; 200_000], false).expect("writes"));
        world.commit();
        let unknown =
            made.iter().filter(|&&ino| world.stored(ino).allocated == InodeRecord::ALLOCATED_UNKNOWN);
        assert_eq!(unknown.count(), 60);
        let before: Vec<u64> = made.iter().map(|&ino| world.fs.getattr(ino).expect("there").blocks).collect();
        world.settle();
        world.settle();
        assert!(world.resting() >= 40, "{}", world.resting());
        let known = made.iter().filter(|&&ino| world.stored(ino).allocated != InodeRecord::ALLOCATED_UNKNOWN);
        assert!(known.count() as u64 >= world.resting());
        let after: Vec<u64> = made.iter().map(|&ino| world.fs.getattr(ino).expect("there").blocks).collect();
        assert_eq!(before, after);
    }
}

#[test]
fn an_unmount_forgets_what_rests() {
    let mut world = world(7, 0);
    for n in 0..500 {
        world.fs.mknod(ROOT, 1, format!("f{n}").as_bytes(), 0o100_644, 0).expect("new");
    }
    world.settle();
    assert!(world.resting() > 400);
    world.fs.forget_all();
    assert_eq!((world.resting(), world.inodes.used().resting_bytes), (0, 0));
    world.check();
    world.reopen();
    assert!(world.inodes.used().live < 20, "what was opened before gave its room back");
}

#[test]
fn very_many_times_of_reading_are_a_reason_to_commit() {
    let mut world = world(9, 0);
    let made: Vec<u64> = (0..33_000).map(|n| world.file(&format!("f{n}"))).collect();
    made.iter().for_each(|&ino| _ = world.fs.write(ino, 0, &[1], false).expect("writes"));
    world.check();
    world.settle();
    let read = |inos: &[u64]| {
        inos.iter().for_each(|&ino| assert_eq!(world.fs.read(ino, 0, &mut [0; 2]), Ok(1)));
        world.fs.dataset().has_changes()
    };
    assert!(!read(&made[..1_000]), "a few times of reading wait for another reason");
    assert!(read(&made[1_000..]));
    assert!(world.inodes.used().live > 32_000, "{:?}", world.inodes.used());
    world.settle();
    assert!(world.inodes.used().live < 500, "{:?}", world.inodes.used());
}

/// [inode_cache.4] A reader is held where it has an inode's record from the tree and not yet the
///      shard. Meanwhile somebody else changes the inode, that is committed, and the object is
///      dropped: what the reader has is not what there is any more.
#[test]
fn a_record_that_was_read_before_a_change_becomes_no_object() {
    let mut world = world(11, 0);
    let made: Vec<u64> = (0..320).map(|n| world.file(&format!("f{n}"))).collect();
    world.settle();
    let fs = std::sync::Arc::clone(&world.fs);
    let mode = |ino| fs.getattr(ino).expect("there").mode & 0o777;
    let mut held = 0;
    for &ino in &made[..64] {
        let (tell, heard) = mpsc::channel();
        let (release, go) = mpsc::channel();
        let gate = Mutex::new(Some((tell.clone(), go)));
        world.nodes.clear();
        world.blocks.watch_reads(move |pointer| {
            // The first leaf that is read.
            let gate = if pointer.level == 0 { gate.lock().expect("whole").take() } else { None };
            if let Some((tell, go)) = gate {
                tell.send(true).expect("the test listens");
                go.recv().expect("the test lets go");
            }
        });
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let found = mode(ino);
                tell.send(false).expect("the test listens");
                found
            });
            // One that is live is not read.
            let is_held = heard.recv().expect("one of the two");
            if is_held {
                held += 1;
                // Or all who want the leaf would wait for the reader that is held.
                world.nodes.clear();
                fs.setattr(ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).expect("changed");
                world.settle();
                // Others of its shard come, so that it goes.
                let others = made.iter().filter(|other| **other != ino && **other % 16 == ino % 16);
                others.take(8).for_each(|&other| assert!(mode(other) > 0));
                release.send(()).expect("the reader waits");
            }
            let expected = if is_held { 0o600 } else { 0o644 };
            assert_eq!(reader.join().expect("no panic"), expected, "inode {ino}");
            assert_eq!(mode(ino), expected, "inode {ino}");
        });
    }
    world.blocks.watch_reads(|_| ());
    assert!(held > 32, "{held} of 64 were not live");
    world.check();
}

/// Lookups, changes and forgets of the same names by several threads, while txgs are written and
/// nothing has room: no change is lost, and what was looked up is given back to the last.
#[test]
fn revivals_beside_forgets_and_commits_lose_nothing() {
    const FILES: usize = 48;
    const THREADS: usize = 3;
    let mut world = world(8, 0);
    let made: Vec<u64> = (0..FILES).map(|n| world.file(&format!("f{n}"))).collect();
    let done = AtomicBool::new(false);
    let fs = std::sync::Arc::clone(&world.fs);
    let written: Vec<Vec<u64>> = thread::scope(|scope| {
        let work = |seed: usize| {
            let (fs, made) = (&fs, &made);
            move || {
                let mut draw = Draw(seed as u64);
                let mut written = vec![0_u64; FILES];
                for _ in 0..3_000 {
                    let at = draw.below(FILES);
                    let entry = fs.lookup(1, format!("f{at}").as_bytes()).expect("there");
                    assert_eq!(entry.ino, made[at]);
                    // Each thread has eight bytes of each file.
                    let mine = seed as u64 * 8;
                    if draw.below(4) == 0 {
                        written[at] += 1;
                        fs.write(entry.ino, mine, &written[at].to_le_bytes(), false).expect("writes");
                    } else if written[at] > 0 {
                        let mut found = [0; 8];
                        assert_eq!(fs.read(entry.ino, mine, &mut found), Ok(8), "its size is lost");
                        assert_eq!(u64::from_le_bytes(found), written[at], "a change is lost");
                    }
                    fs.forget(entry.ino, 1);
                }
                written
            }
        };
        let workers: Vec<_> = (0..THREADS).map(|seed| scope.spawn(work(seed))).collect();
        let (done, world) = (&done, &mut world);
        let committer = scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                world.commit();
            }
        });
        let written: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Release);
        committer.join().expect("ends");
        written.into_iter().map(|written| written.expect("ends")).collect()
    });
    for (at, &ino) in made.iter().enumerate() {
        assert_eq!(world.lookups(ino), 0);
        let mut content = world.content(ino);
        content.resize(8 * THREADS, 0);
        let expected: Vec<u8> = written.iter().flat_map(|written| written[at].to_le_bytes()).collect();
        assert_eq!(content, expected);
    }
    world.check();
}

#[test]
fn what_nobody_holds_stays_while_there_is_room_and_is_noted_before_it_goes() {
    for bytes in [1 << 20, 0] {
        let mut world = world(5, bytes);
        let ino = world.fs.mknod(ROOT, 1, b"file", 0o100_644, 0).expect("new").ino;
        world.fs.write(ino, 0, &[7; 300_000], false).expect("writes");
        // A shard keeps one, whatever the room.
        (0..64).for_each(|n| {
            _ = world.fs.mknod(ROOT, 1, format!("f{n}").as_bytes(), 0o100_644, 0).expect("new");
        });
        world.commit();
        assert_eq!(world.stored(ino).allocated, InodeRecord::ALLOCATED_UNKNOWN);
        world.settle();
        world.fs.forget(ino, 1);
        world.settle();
        // Others of its shard come.
        (1..4).for_each(|n| _ = world.fs.getattr(ino + 16 * n).expect("there"));
        assert_eq!(world.lookups(ino), 0);
        assert_eq!(world.fs.dataset().is_live(InodeId(ino)), bytes > 0);
        world.nodes.clear();
        let reads = world.blocks.reads();
        // As for each request of a network client.
        let found = world.fs.lookup(ino, b".").expect("there");
        world.fs.forget(ino, 1);
        if bytes > 0 {
            assert_eq!(world.blocks.reads(), reads, "it was in memory");
        } else {
            assert_eq!(world.stored(ino).allocated, 512 * found.attr.blocks, "nobody counts it again");
        }
    }
}
