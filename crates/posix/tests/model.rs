//! The file system beside the simplest one: seeded operations, with freezes, syncs, crashes and
//! reopening in between.

use std::collections::BTreeMap;

use crate::support::{Draw, ROOT, World};
use steadfast_dataset::{OverlayCounts, Settings};
use steadfast_env::Env;
use steadfast_format::Txg;
use steadfast_model::{Id, Kind, Model, Rename};
use steadfast_posix::{Errno, Fallocate, RENAME_EXCHANGE, RENAME_NOREPLACE, SetAttr};

const NAMES: [&[u8]; 9] = [b"a", b"b", b"c", b"dd", b"long-name-of-a-file", b"\xff\xfe", b"x y", b"Z", b"7"];

struct Run {
    world: World,
    model: Model,
    /// Inode number of each node of the model.
    inos: BTreeMap<Id, u64>,
    /// Closed and not yet written: the txg, and the model as of then.
    frozen: Option<(Txg, Model)>,
    /// The model as of the last commit.
    durable: Model,
    draw: Draw,
    /// Counts of overwrites before the file system was opened again.
    counts: OverlayCounts,
}

fn errno<T>(result: Result<T, Errno>) -> Result<T, i32> {
    result.map_err(|errno| errno.0)
}

impl Run {
    fn new(seed: u64, recordsize: u32) -> Run {
        let mut world =
            World::new(Env::seeded(seed), Settings { recordsize, zeros_are_holes: seed.is_multiple_of(2) });
        // Few enough that cuts outlive their txg, and meet new content, crashes and each other.
        world.set_frees_per_sync([3, 10, 100_000][usize::try_from(seed % 3).expect("small")]);
        if seed % 4 < 2 {
            // Inodes that are not in use leave the cache.
            world.inodes.set_bytes_max(0);
        }
        let model = Model::default();
        let inos = BTreeMap::from([(Model::ROOT, 1)]);
        Run {
            world,
            durable: model.clone(),
            model,
            inos,
            frozen: None,
            draw: Draw(seed),
            counts: OverlayCounts::default(),
        }
    }

    fn pick(&mut self, wanted: impl Fn(&Kind) -> bool) -> Option<Id> {
        let ids: Vec<Id> =
            self.model.ids().filter(|&id| wanted(&self.model.node(id).expect("listed").kind)).collect();
        if ids.is_empty() { None } else { Some(ids[self.draw.below(ids.len())]) }
    }

    fn directory(&mut self) -> Id {
        self.pick(|kind| matches!(kind, Kind::Directory { .. })).expect("the root")
    }

    fn file(&mut self) -> Option<Id> {
        self.pick(|kind| matches!(kind, Kind::File(_)))
    }

    fn name(&mut self) -> &'static [u8] {
        NAMES[self.draw.below(NAMES.len())]
    }

    /// A node made on both sides, or refused on both.
    fn made(&mut self, expected: Result<Id, i32>, found: Result<steadfast_posix::Entry, Errno>) {
        match (expected, found) {
            (Ok(id), Ok(entry)) => {
                self.world.fs.forget(entry.ino, 1);
                self.inos.insert(id, entry.ino);
            }
            (expected, found) => assert_eq!(expected.err(), errno(found).err()),
        }
    }

    fn step(&mut self) {
        let name = self.name();
        let directory = self.directory();
        let parent = self.inos[&directory];
        match self.draw.below(30) {
            0..=2 => {
                let expected = self.model.create_file(directory, name, 0o644);
                let found = self.world.fs.mknod(ROOT, parent, name, 0o100_644, 0);
                self.made(expected, found);
            }
            3 | 4 => {
                let expected = self.model.mkdir(directory, name, 0o755);
                let found = self.world.fs.mkdir(ROOT, parent, name, 0o755);
                self.made(expected, found);
            }
            5 => {
                let length = self.draw.below(4200);
                let target = self.draw.bytes(length);
                let target: Vec<u8> = target.iter().map(|byte| byte | 1).collect();
                let expected = self.model.symlink(directory, name, &target);
                let found = self.world.fs.symlink(ROOT, parent, name, &target);
                self.made(expected, found);
            }
            6 | 7 => {
                let Some(id) = self.pick(|_| true) else { return };
                let expected = self.model.link(id, directory, name);
                let found = self.world.fs.link(self.inos[&id], parent, name);
                let found = found.map(|entry| self.world.fs.forget(entry.ino, 1));
                assert_eq!(expected, errno(found));
            }
            8 | 9 => {
                let expected = self.model.unlink(directory, name);
                assert_eq!(expected, errno(self.world.fs.unlink(parent, name)));
            }
            10 => {
                let expected = self.model.rmdir(directory, name);
                assert_eq!(expected, errno(self.world.fs.rmdir(parent, name)));
            }
            11..=13 => self.rename(directory, name),
            14..=17 => {
                let Some(id) = self.file() else { return };
                let (offset, length) = (self.draw.below(60_000), 1 + self.draw.below(30_000));
                let offset = if self.draw.below(3) == 0 { offset / 4096 * 4096 } else { offset };
                let length = if self.draw.below(3) == 0 { length.min(100) } else { length };
                let data = self.draw.bytes(length);
                self.model.write(id, offset, &data).expect("a file");
                self.world.fs.write(self.inos[&id], offset as u64, &data, false).expect("writes");
            }
            18 | 19 => {
                let Some(id) = self.file() else { return };
                let size = self.draw.below(90_000);
                let size = if self.draw.below(4) == 0 { 0 } else { size };
                self.model.set_size(id, size).expect("a file");
                let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                self.world.fs.setattr(self.inos[&id], &set).expect("sets");
            }
            20 => {
                let Some(id) = self.file() else { return };
                let (offset, length) = (self.draw.below(90_000), 1 + self.draw.below(60_000));
                self.model.zero(id, offset, length).expect("a file");
                let (offset, length) = (offset as u64, length as u64);
                let found =
                    self.world.fs.fallocate(self.inos[&id], Fallocate::PunchHole, offset, length, false);
                found.expect("punches");
            }
            21 => {
                let Some(id) = self.pick(|_| true) else { return };
                let name = [b"user.a".as_slice(), b"trusted.bb", b"user.a.b"][self.draw.below(3)];
                if self.draw.below(3) == 0 {
                    let expected = self.model.remove_xattr(id, name);
                    assert_eq!(expected, errno(self.world.fs.removexattr(self.inos[&id], name)));
                } else {
                    let length = [0, 1, 2047, 2048, 2049, 9000, 65_536][self.draw.below(7)];
                    let value = self.draw.bytes(length);
                    self.model.set_xattr(id, name, &value).expect("there");
                    self.world.fs.setxattr(self.inos[&id], name, &value, 0).expect("sets");
                }
            }
            22 => {
                let Some(id) = self.pick(|kind| !matches!(kind, Kind::Symlink(_))) else { return };
                let mode = u32::try_from(self.draw.below(0o7777)).expect("small");
                self.model.chmod(id, mode).expect("there");
                let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
                self.world.fs.setattr(self.inos[&id], &set).expect("sets");
            }
            23 => {
                let Some(id) = self.pick(|_| true) else { return };
                self.model.open(id).expect("there");
                self.world.fs.open(self.inos[&id]).expect("there");
            }
            24 => {
                let open: Vec<Id> = self
                    .model
                    .ids()
                    .filter(|&id| self.model.node(id).is_some_and(|node| node.opens > 0))
                    .collect();
                if open.is_empty() {
                    return;
                }
                let id = open[self.draw.below(open.len())];
                self.model.close(id);
                self.world.fs.release(self.inos[&id]);
            }
            25 => self.unnamed(directory, name),
            26 | 27 => self.allocate(),
            28 => {
                // A directory that is gone, or none at all: refused for the same reason.
                let Some(id) = self.pick(|_| true) else { return };
                let expected = self.model.create_file(id, name, 0o600);
                let found = self.world.fs.mknod(ROOT, self.inos[&id], name, 0o100_600, 0);
                self.made(expected, found);
            }
            _ => self.copy(),
        }
    }

    /// A file without a name, which may get one before it is closed.
    fn unnamed(&mut self, directory: Id, name: &[u8]) {
        let parent = self.inos[&directory];
        let id = self.model.create_unnamed(directory, 0o640).expect("a directory");
        let ino = self.world.fs.tmpfile(ROOT, parent, 0o640).expect("a directory").ino;
        self.inos.insert(id, ino);
        let length = self.draw.below(20_000);
        let data = self.draw.bytes(length);
        self.model.write(id, 0, &data).expect("a file");
        self.world.fs.write(ino, 0, &data, false).expect("writes");
        match self.draw.below(3) {
            0 => return, // it stays open
            1 => {
                let expected = self.model.link(id, directory, name);
                let found = self.world.fs.link(ino, parent, name);
                let found = found.map(|entry| self.world.fs.forget(entry.ino, 1));
                assert_eq!(expected, errno(found));
            }
            _ => {}
        }
        self.model.close(id);
        self.world.fs.release(ino);
    }

    /// Zeroed and allocated ranges, which may let the file grow.
    fn allocate(&mut self) {
        let Some(id) = self.file() else { return };
        let (offset, length) = (self.draw.below(80_000), 1 + self.draw.below(30_000));
        let (keep_size, zero) = (self.draw.below(2) == 0, self.draw.below(3) > 0);
        let mode = if zero { Fallocate::ZeroRange { keep_size } } else { Fallocate::Allocate { keep_size } };
        if zero {
            self.model.zero(id, offset, length).expect("a file");
        }
        if !keep_size {
            self.model.grow(id, offset + length).expect("a file");
        }
        let found = self.world.fs.fallocate(self.inos[&id], mode, offset as u64, length as u64, false);
        found.expect("a file");
    }

    fn rename(&mut self, directory: Id, name: &[u8]) {
        let (to, new_name) = (self.directory(), self.name());
        let (how, flags) = [
            (Rename::Replace, 0),
            (Rename::Replace, 0),
            (Rename::NoReplace, RENAME_NOREPLACE),
            (Rename::Exchange, RENAME_EXCHANGE),
        ][self.draw.below(4)];
        let expected = self.model.rename(directory, name, to, new_name, how);
        let (from, to) = (self.inos[&directory], self.inos[&to]);
        let found = errno(self.world.fs.rename(from, name, to, new_name, flags));
        assert_eq!(expected, found, "{name:?} of {from} to {new_name:?} of {to}, {how:?}");
    }

    fn copy(&mut self) {
        let (Some(from), Some(to)) = (self.file(), self.file()) else { return };
        let (source, target, length) =
            (self.draw.below(50_000), self.draw.below(50_000), self.draw.below(40_000));
        let content = self.model.content(from).expect("a file");
        let part = content.get(source..).map_or(&[][..], |rest| &rest[..length.min(rest.len())]).to_vec();
        let overlaps = from == to && source < target + part.len() && target < source + part.len();
        if overlaps {
            let ino = self.inos[&from];
            let copied = self.world.fs.copy_file_range(ino, source as u64, ino, target as u64, length as u64);
            assert_eq!(copied, Err(Errno::EINVAL));
            return;
        }
        if !part.is_empty() {
            self.model.write(to, target, &part).expect("a file");
            self.model.drop_set_ids(to);
        }
        let (from, to) = (self.inos[&from], self.inos[&to]);
        let copied = self.world.fs.copy_file_range(from, source as u64, to, target as u64, length as u64);
        assert_eq!(copied, Ok(part.len() as u64));
    }

    /// Time passes: a txg is closed, or the closed one is written, or all is lost since the last
    /// commit.
    fn pass(&mut self) {
        match (self.draw.below(8), self.frozen.take()) {
            (0, _) => {
                self.count();
                self.world.reopen();
                self.model = self.durable.clone();
                self.model.close_all();
                self.compare();
            }
            (_, Some((txg, model))) => {
                self.world.sync(txg);
                self.durable = model;
            }
            (1, None) => {
                self.world.fs.forget_all();
                self.model.close_all();
                self.world.check();
                self.durable = self.model.clone();
                self.compare();
            }
            (2 | 3, None) => _ = self.world.write_early(),
            (_, None) => self.frozen = Some((self.world.freeze(), self.model.clone())),
        }
    }

    fn compare(&self) {
        let fs = &self.world.fs;
        for id in self.model.ids() {
            let node = self.model.node(id).expect("listed");
            let ino = self.inos[&id];
            let attr = fs.getattr(ino).unwrap_or_else(|errno| panic!("inode {ino}: {errno:?}"));
            assert_eq!((attr.mode & 0o7777, attr.nlink), (node.mode, self.model.nlink(id)), "inode {ino}");
            match &node.kind {
                Kind::File(content) => {
                    let found = self.world.content(ino);
                    let differs = found.iter().zip(content).position(|(found, expected)| found != expected);
                    assert_eq!((differs, found.len()), (None, content.len()), "content of inode {ino}");
                    self.compare_holes(ino, content);
                }
                Kind::Symlink(target) => assert_eq!(&fs.readlink(ino).expect("a link"), target),
                Kind::Directory { entries, .. } => {
                    let names: Vec<Vec<u8>> = entries.keys().cloned().collect();
                    assert_eq!(self.world.list(ino), names, "names in {ino}");
                    for (name, to) in entries {
                        let entry = fs.lookup(ino, name).expect("listed");
                        fs.forget(entry.ino, 1);
                        assert_eq!(entry.ino, self.inos[to], "{name:?} in {ino}");
                    }
                }
            }
            let mut names = fs.listxattr(ROOT, ino).expect("there");
            names.sort();
            assert_eq!(names, node.xattrs.keys().cloned().collect::<Vec<_>>(), "attributes of {ino}");
            for (name, value) in &node.xattrs {
                assert!(fs.getxattr(ino, name).expect("listed") == *value, "{name:?} of {ino}");
            }
        }
    }

    /// A file with content over several records.
    fn step_file(&mut self, name: &[u8]) {
        let expected = self.model.create_file(Model::ROOT, name, 0o644);
        let found = self.world.fs.mknod(ROOT, 1, name, 0o100_644, 0);
        self.made(expected, found);
        let id = expected.expect("a new name");
        let length = self.draw.below(200_000);
        let data = self.draw.bytes(length);
        self.model.write(id, 0, &data).expect("a file");
        self.world.fs.write(self.inos[&id], 0, &data, false).expect("writes");
    }

    /// A few bytes, or zeros, or a hole, somewhere in a file.
    fn overwrite(&mut self) {
        let Some(id) = self.file() else { return };
        let ino = self.inos[&id];
        let size = self.model.content(id).expect("a file").len().max(1);
        let (mut offset, mut length) = (self.draw.below(size), 1 + self.draw.below(9_000));
        if self.draw.below(2) == 0 {
            (offset, length) = (offset / 4096 * 4096, length.next_multiple_of(4096));
        }
        if self.draw.below(5) == 0 {
            self.model.zero(id, offset, length).expect("a file");
            let (offset, length) = (offset as u64, length as u64);
            self.world.fs.fallocate(ino, Fallocate::PunchHole, offset, length, false).expect("punches");
        } else {
            let data = self.draw.bytes(length);
            self.model.write(id, offset, &data).expect("a file");
            self.world.fs.write(ino, offset as u64, &data, false).expect("writes");
        }
    }

    /// Writes all, walks the trees, and compares once more with nothing in memory.
    fn finish(mut self) -> OverlayCounts {
        if let Some((txg, _)) = self.frozen.take() {
            self.world.sync(txg);
        }
        self.world.check();
        self.compare();
        self.world.fs.forget_all();
        self.world.check();
        self.count();
        self.world.reopen();
        self.model.close_all();
        self.compare();
        self.counts
    }

    fn count(&mut self) {
        let counts = self.world.fs.dataset().overlay_counts();
        self.counts.written += counts.written;
        self.counts.folded += counts.folded;
    }

    /// A hole reads as zeros, and data and holes alternate up to the end.
    fn compare_holes(&self, ino: u64, content: &[u8]) {
        let mut at = 0;
        while at < content.len() {
            let data = match self.world.fs.seek(ino, at as u64, true) {
                Ok(data) => usize::try_from(data).expect("small"),
                Err(errno) => {
                    assert_eq!(errno, Errno::ENXIO);
                    content.len()
                }
            };
            assert!(content[at..data].iter().all(|&byte| byte == 0), "a hole of {ino} at {at} holds data");
            if data == content.len() {
                break;
            }
            let hole =
                usize::try_from(self.world.fs.seek(ino, data as u64, false).expect("within")).expect("small");
            assert!(hole > data && hole <= content.len());
            at = hole;
        }
    }
}

fn run(seed: u64, recordsize: u32, steps: usize) {
    println!("seed {seed}, records of {recordsize}");
    let mut run = Run::new(seed, recordsize);
    for step in 0..steps {
        run.step();
        if run.draw.below(12) == 0 {
            run.pass();
        }
        if step % 50 == 0 {
            run.compare();
        }
    }
    run.finish();
}

/// `STEADFAST_SEED=n` replays one seed, `STEADFAST_SEEDS=n` runs so many instead of a few.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match (number("STEADFAST_SEED"), number("STEADFAST_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(count)) => 0..count,
        (None, None) => 0..count,
    }
}

#[test]
fn what_is_seen_is_what_the_model_says_small_records() {
    seeds(25).for_each(|seed| run(seed, 4096, 600));
}

#[test]
fn what_is_seen_is_what_the_model_says_large_records() {
    seeds(15).for_each(|seed| run(1000 + seed, 131_072, 600));
}

#[test]
fn what_is_seen_is_what_the_model_says_with_many_overlays() {
    let (mut written, mut folded) = (0, 0);
    for seed in seeds(15) {
        let mut run =
            Run::new(2000 + seed, [16_384, 32_768, 65_536][usize::try_from(seed % 3).expect("small")]);
        for number in 0..3_u8 {
            run.step_file(&[b'a' + number]);
        }
        for step in 0..500 {
            if step % 4 == 0 {
                run.step()
            } else {
                run.overwrite()
            }
            if run.draw.below(4) == 0 {
                run.pass();
            }
            if step % 50 == 0 {
                run.compare();
            }
        }
        let counts = run.finish();
        (written, folded) = (written + counts.written, folded + counts.folded);
    }
    assert!(written > 200 && folded > 20, "{written} overlays, {folded} folds");
}
