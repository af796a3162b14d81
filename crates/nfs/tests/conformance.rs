//! The file system as clients see it beside the simplest one: seeded operations of two clients and
//! of local programs on the same files, commits, and ends of power behind which clients go on with
//! the handles they have.

use crate::support::{Calls, Draw, Portal, made, mode};
use std::collections::BTreeMap;
use std::sync::Arc;
use steadfast_model::{Id, Kind, Model, Rename};
use steadfast_nfs::client::{Client, attributes};
use steadfast_nfs::xdr::Reader;
use steadfast_posix::{Caller, Errno, SetAttr};

const NAMES: [&str; 7] = ["a", "b", "c", "dd", "long name of a file", "\u{fc}", "7"];

struct Run {
    portal: Portal,
    clients: [Client; 2],
    model: Model,
    /// The model as of the last commit.
    durable: Model,
    /// Handle and inode number of each node of the model.
    known: BTreeMap<Id, (Vec<u8>, u64)>,
    draw: Draw,
}

/// The number of an error as `errno`.
fn errno(status: u32) -> Result<(), i32> {
    match status {
        0 => Ok(()),
        63 => Err(steadfast_model::ENAMETOOLONG),
        66 => Err(steadfast_model::ENOTEMPTY),
        status => Err(status as i32),
    }
}

fn local<T>(result: Result<T, Errno>) -> Result<T, i32> {
    result.map_err(|errno| errno.0)
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut portal = Portal::new("async,insecure,no_root_squash");
        let (first, top) = portal.root();
        let (mut second, _) = portal.root();
        // Calls of one address with the same number and the same bytes are one call.
        second.xid = 1 << 31;
        portal.world.commit();
        let (model, known) = (Model::default(), BTreeMap::from([(Model::ROOT, (top, 1))]));
        Run { portal, clients: [first, second], durable: model.clone(), model, known, draw: Draw(seed) }
    }

    fn pick(&mut self, wanted: impl Fn(&Kind) -> bool) -> Option<Id> {
        let ids = self.model.ids().filter(|id| wanted(&self.model.node(*id).expect("listed").kind));
        let ids: Vec<Id> = ids.collect();
        (!ids.is_empty()).then(|| ids[self.draw.below(ids.len())])
    }

    fn directory(&mut self) -> Id {
        self.pick(|kind| matches!(kind, Kind::Directory { .. })).expect("the top")
    }

    fn file(&mut self) -> Option<Id> {
        self.pick(|kind| matches!(kind, Kind::File(_)))
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.draw.below(NAMES.len())]
    }

    /// A call of one of the clients.
    fn call(
        &mut self,
        procedure: u32,
        write: impl FnOnce(&mut steadfast_nfs::xdr::Writer),
    ) -> (u32, Vec<u8>) {
        let client = &mut self.clients[self.draw.below(2)];
        let answer = client.nfs(procedure, write).expect("answered");
        (answer.status, answer.results)
    }

    /// Something made on both sides, or refused on both.
    fn make(&mut self, procedure: u32, directory: Id, name: &str) {
        let (dir, ino) = self.known[&directory].clone();
        let expected = match procedure {
            8 => self.model.create_file(directory, name.as_bytes(), 0o640),
            9 => self.model.mkdir(directory, name.as_bytes(), 0o750),
            _ => self.model.symlink(directory, name.as_bytes(), b"to/nowhere"),
        };
        if self.draw.below(4) == 0 {
            let (fs, name) = (Arc::clone(&self.portal.world.fs), name.as_bytes());
            let found = match procedure {
                8 => fs.mknod(Caller::ROOT, ino, name, 0o100_640, 0),
                9 => fs.mkdir(Caller::ROOT, ino, name, 0o750),
                _ => fs.symlink(Caller::ROOT, ino, name, b"to/nowhere"),
            };
            match (expected, found) {
                (Ok(id), Ok(entry)) => {
                    fs.forget(entry.ino, 1);
                    let name = std::str::from_utf8(name).expect("ours");
                    let found = self.clients[0].find(&dir, name).expect("just made");
                    assert_eq!(found.attributes.ino, entry.ino);
                    self.known.insert(id, (found.handle, entry.ino));
                }
                (expected, found) => assert_eq!(expected.err(), local(found).err()),
            }
            return;
        }
        let client = &mut self.clients[self.draw.below(2)];
        let answer = client.nfs(procedure, |out| {
            out.opaque(&dir).opaque(name.as_bytes());
            match procedure {
                8 => mode(out.u32(1), 0o640),
                9 => mode(out, 0o750),
                _ => {
                    mode(out, 0o777);
                    out.opaque(b"to/nowhere");
                }
            }
        });
        match (expected, made(&answer.expect("answered"))) {
            (Ok(id), Ok(found)) => _ = self.known.insert(id, (found.handle, found.attributes.ino)),
            (expected, found) => {
                assert_eq!(expected.err(), found.map_or_else(|status| errno(status).err(), |_| None));
            }
        }
    }

    fn step(&mut self) {
        let (name, directory) = (self.name(), self.directory());
        let (dir, dir_ino) = self.known[&directory].clone();
        let is_local = self.draw.below(4) == 0;
        let fs = Arc::clone(&self.portal.world.fs);
        let bytes = name.as_bytes();
        match self.draw.below(20) {
            0..=2 => self.make(8, directory, name),
            3 | 4 => self.make(9, directory, name),
            5 => self.make(10, directory, name),
            6 => {
                // In what may be no directory, or one that was removed.
                let Some(id) = self.pick(|_| true) else { return };
                self.make(8, id, name);
            }
            7 => {
                let Some(id) = self.pick(|_| true) else { return };
                let expected = self.model.link(id, directory, bytes);
                let (file, ino) = self.known[&id].clone();
                let found = if is_local {
                    local(fs.link(ino, dir_ino, bytes).map(|entry| fs.forget(entry.ino, 1)))
                } else {
                    errno(self.call(15, |out| _ = out.opaque(&file).opaque(&dir).opaque(bytes)).0)
                };
                assert_eq!(expected, found);
            }
            8 | 9 => {
                let expected = self.model.unlink(directory, bytes);
                let found = if is_local {
                    local(fs.unlink(dir_ino, bytes))
                } else {
                    errno(self.call(12, |out| _ = out.opaque(&dir).opaque(bytes)).0)
                };
                assert_eq!(expected, found);
            }
            10 => {
                let expected = self.model.rmdir(directory, bytes);
                let found = if is_local {
                    local(fs.rmdir(dir_ino, bytes))
                } else {
                    errno(self.call(13, |out| _ = out.opaque(&dir).opaque(bytes)).0)
                };
                assert_eq!(expected, found);
            }
            11..=13 => {
                let (to, new_name) = (self.directory(), self.name());
                let (to_dir, to_ino) = self.known[&to].clone();
                let expected = self.model.rename(directory, bytes, to, new_name.as_bytes(), Rename::Replace);
                let found = if is_local {
                    local(fs.rename(dir_ino, bytes, to_ino, new_name.as_bytes(), 0))
                } else {
                    let new_name = new_name.as_bytes();
                    errno(
                        self.call(14, |out| {
                            _ = out.opaque(&dir).opaque(bytes).opaque(&to_dir).opaque(new_name)
                        })
                        .0,
                    )
                };
                assert_eq!(expected, found, "{name:?} of {dir_ino} to {new_name:?} of {to_ino}");
            }
            14..=16 => {
                let Some(id) = self.file() else { return };
                let (offset, length) = (self.draw.below(60_000), 1 + self.draw.below(30_000));
                let data = self.draw.bytes(length);
                self.model.write(id, offset, &data).expect("a file");
                let (file, ino) = self.known[&id].clone();
                if is_local {
                    fs.write(ino, offset as u64, &data, false).expect("writes");
                } else {
                    let client = &mut self.clients[self.draw.below(2)];
                    assert_eq!(client.write(&file, offset as u64, 0, &data).status, 0);
                }
            }
            17 => {
                let Some(id) = self.file() else { return };
                let size = [0, 1, 4_096, 70_000][self.draw.below(4)];
                self.model.set_size(id, size).expect("a file");
                self.set(id, is_local, None, Some(size as u64));
            }
            18 => {
                let Some(id) = self.pick(|kind| !matches!(kind, Kind::Symlink(_))) else { return };
                let bits = self.draw.below(0o1000) as u32;
                self.model.chmod(id, bits).expect("there");
                self.set(id, is_local, Some(bits), None);
            }
            // A read of another client, as soon as the change was answered.
            _ => {
                let Some(id) = self.file() else { return };
                self.read(id);
            }
        }
    }

    fn set(&mut self, id: Id, is_local: bool, bits: Option<u32>, size: Option<u64>) {
        let (file, ino) = self.known[&id].clone();
        if is_local {
            let set = SetAttr { mode: bits, size, ..SetAttr::default() };
            self.portal.world.fs.setattr(ino, &set).expect("sets");
            return;
        }
        let (status, _) = self.call(2, |out| {
            out.opaque(&file).bool(bits.is_some());
            bits.into_iter().for_each(|bits| _ = out.u32(bits));
            out.bool(false).bool(false).bool(size.is_some());
            size.into_iter().for_each(|size| _ = out.u64(size));
            out.u32(0).u32(0).bool(false);
        });
        assert_eq!(status, 0);
    }

    fn read(&mut self, id: Id) {
        let (file, ino) = self.known[&id].clone();
        let expected = self.model.content(id).expect("a file");
        let (mut found, client) = (Vec::new(), &mut self.clients[self.draw.below(2)]);
        loop {
            let (piece, is_end) = client.read(&file, found.len() as u64, 50_000).expect("read");
            found.extend_from_slice(&piece);
            if is_end {
                break;
            }
        }
        let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
        assert_eq!((differs, found.len()), (None, expected.len()), "content of inode {ino}");
    }

    /// Power ends behind the last commit; clients go on with what they have.
    fn reopen(&mut self) {
        self.portal.world.reopen();
        *self.portal.mounted.fs.lock() = Some(Arc::clone(&self.portal.world.fs));
        self.model = self.durable.clone();
        self.compare();
    }

    fn commit(&mut self) {
        self.portal.world.commit();
        self.durable = self.model.clone();
    }

    fn compare(&mut self) {
        let ids: Vec<Id> = self.model.ids().collect();
        for id in ids {
            let (handle, ino) = self.known[&id].clone();
            let node = self.model.node(id).expect("listed").clone();
            let attributes = self.clients[0].getattr(&handle).expect("there");
            assert_eq!((attributes.mode, attributes.nlink), (node.mode, self.model.nlink(id)), "inode {ino}");
            match &node.kind {
                Kind::File(content) => {
                    assert_eq!(attributes.size, content.len() as u64);
                    self.read(id);
                }
                Kind::Symlink(target) => {
                    let (status, results) = self.call(5, |out| _ = out.opaque(&handle));
                    let mut reader = Reader::new(&results);
                    skip_attributes(&mut reader);
                    assert_eq!((status, reader.opaque(4_096)), (0, Ok(&target[..])));
                }
                Kind::Directory { entries, .. } => {
                    let found = self.list(&handle);
                    let expected = entries.iter().map(|(name, to)| (name.clone(), self.known[to].clone()));
                    assert_eq!(found, expected.collect(), "names in {ino}");
                }
            }
        }
    }

    /// Names of a directory, and where they lead.
    fn list(&mut self, dir: &[u8]) -> BTreeMap<Vec<u8>, (Vec<u8>, u64)> {
        let (mut names, mut cookie) = (BTreeMap::new(), 0);
        loop {
            let (status, results) =
                self.call(17, |out| _ = out.opaque(dir).u64(cookie).u64(0).u32(2_000).u32(2_000));
            assert_eq!(status, 0);
            let mut reader = Reader::new(&results);
            skip_attributes(&mut reader);
            reader.u64().expect("the verifier");
            while reader.bool().expect("another one or not") {
                let ino = reader.u64().expect("a number");
                let name = reader.opaque(255).expect("a name").to_vec();
                cookie = reader.u64().expect("a cookie");
                if name == b"." || name == b".." {
                    assert_eq!((reader.bool(), reader.bool()), (Ok(false), Ok(false)), "only the number");
                    continue;
                }
                skip_attributes(&mut reader);
                assert_eq!(reader.bool(), Ok(true), "the handle is there");
                let handle = reader.opaque(64).expect("a handle").to_vec();
                assert_eq!(names.insert(name, (handle, ino)), None, "listed once");
            }
            if reader.bool().expect("the end or not") {
                return names;
            }
        }
    }
}

fn skip_attributes(reader: &mut Reader<'_>) {
    attributes(reader).expect("attributes");
}

fn run(seed: u64, steps: usize) {
    println!("seed {seed}");
    let mut run = Run::new(seed);
    for step in 1..=steps {
        run.step();
        match run.draw.below(120) {
            0 => run.reopen(),
            1..=3 => run.commit(),
            _ if step % 100 == 0 => run.compare(),
            _ => {}
        }
    }
    run.compare();
}

/// `STEADFAST_SEED=n` replays one seed; `STEADFAST_LONG=1` runs many, and longer.
#[test]
fn what_clients_and_local_programs_see_is_what_the_model_says() {
    let is_long = std::env::var_os("STEADFAST_LONG").is_some_and(|value| value == "1");
    match std::env::var("STEADFAST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => run(seed, 2_000),
        None if is_long => (0..200).for_each(|seed| run(seed, 2_000)),
        None => (0..4).for_each(|seed| run(seed, 600)),
    }
}
