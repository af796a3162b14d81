//! Several threads doing everything, and one that freezes and syncs all the time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::{Draw, ROOT, World};
use steadfast_dataset::Settings;
use steadfast_env::Env;
use steadfast_posix::{Errno, Fallocate, FileSystem, SetAttr};

const THREADS: u64 = 4;
const STEPS: usize = 4_000;

/// One thread: files of its own whose bytes it knows, and names that all threads fight for.
fn work(fs: &FileSystem, thread: u64) -> Vec<(u64, Vec<u8>)> {
    let mut draw = Draw(thread + 1);
    let own = fs.mkdir(ROOT, 1, format!("own-{thread}").as_bytes(), 0o755).expect("makes").ino;
    let mut files: Vec<(u64, Vec<u8>)> = Vec::new();
    for step in 0..STEPS {
        let shared = format!("shared-{}", draw.below(6)).into_bytes();
        let other = format!("shared-{}", draw.below(6)).into_bytes();
        match draw.below(12) {
            0 if files.len() < 8 => {
                let name = format!("f{step}").into_bytes();
                files.push((fs.mknod(ROOT, own, &name, 0o644, 0).expect("makes").ino, Vec::new()));
            }
            1 => drop(fs.mknod(ROOT, 1, &shared, 0o644, 0).map(|entry| fs.forget(entry.ino, 1))),
            2 => drop(fs.unlink(1, &shared)),
            3 => drop(fs.rename(1, &shared, 1, &other, 0)),
            4 => {
                if let Ok(entry) = fs.lookup(1, &shared) {
                    // Somebody may have removed it: it lives while we hold it.
                    fs.write(entry.ino, 0, &[9; 3_000], false).expect("we hold it");
                    let linked = fs.link(entry.ino, 1, &other).map(|entry| fs.forget(entry.ino, 1));
                    assert!(matches!(linked, Ok(()) | Err(Errno::EEXIST)), "{linked:?}");
                    fs.forget(entry.ino, 1);
                }
            }
            5 => fs.readdir(1, 0, |_| true).expect("lists"),
            kind if !files.is_empty() => {
                let at = draw.below(files.len());
                let (ino, content) = &mut files[at];
                let (offset, length) = (draw.below(20_000), 1 + draw.below(9_000));
                match kind {
                    6 | 7 => {
                        let data = draw.bytes(length);
                        fs.write(*ino, offset as u64, &data, false).expect("writes");
                        content.resize(content.len().max(offset + length), 0);
                        content[offset..offset + length].copy_from_slice(&data);
                    }
                    8 => {
                        let set = SetAttr { size: Some(offset as u64), ..SetAttr::default() };
                        fs.setattr(*ino, &set).expect("cuts");
                        content.resize(offset, 0);
                    }
                    9 => {
                        let (from, bytes) = (offset as u64, length as u64);
                        fs.fallocate(*ino, Fallocate::PunchHole, from, bytes, false).expect("punches");
                        let to = content.len().min(offset + length);
                        content[offset.min(to)..to].fill(0);
                    }
                    _ => {
                        let mut out = vec![0xcc; content.len() + 1];
                        let count = fs.read(*ino, 0, &mut out).expect("reads");
                        assert!(out[..count] == content[..], "own bytes of {ino}, step {step}");
                    }
                }
            }
            _ => {}
        }
    }
    for (ino, _) in &files {
        fs.forget(*ino, 1);
    }
    fs.forget(own, 1);
    files
}

fn all_at_once(recordsize: u32, inode_bytes: usize) {
    let mut world = World::new(Env::seeded(1), Settings { recordsize, ..Settings::default() });
    world.inodes.set_bytes_max(inode_bytes);
    let stop = AtomicBool::new(false);
    let files = thread::scope(|scope| {
        let fs = &world.fs;
        let workers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(fs, thread))).collect();
        let (txgs, blocks, stop) = (&world.txgs, &world.blocks, &stop);
        let syncer = scope.spawn(move || {
            let mut last = None;
            while !stop.load(Ordering::Relaxed) {
                let txg = txgs.gate.advance(|txg| {
                    fs.dataset().freeze(txg).expect("freezes");
                    txg
                });
                last = Some((txg, fs.dataset().sync(txg).expect("syncs")));
                txgs.budget.release(txg);
                txgs.commits.note_committed(txg);
                blocks.drop_freed();
            }
            last.expect("synced once")
        });
        let files: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect();
        stop.store(true, Ordering::Relaxed);
        syncer.join().expect("no panic");
        files
    });
    world.check();
    for (ino, content) in &files {
        assert!(world.content(*ino) == *content, "inode {ino}");
    }
    world.reopen();
    for (ino, content) in &files {
        assert!(world.content(*ino) == *content, "inode {ino}, opened again");
    }
    world.fs.forget_all();
    world.check();
}

#[test]
fn threads_and_commits_do_not_disturb_each_other_small_records() {
    all_at_once(512, 1 << 20);
}

#[test]
fn threads_and_commits_do_not_disturb_each_other_large_records() {
    all_at_once(65_536, 1 << 20);
}

#[test]
fn threads_and_commits_do_not_disturb_each_other_with_room_for_no_inode() {
    all_at_once(4_096, 0);
}
