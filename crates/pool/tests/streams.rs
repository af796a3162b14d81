//! Streams between two pools: what is received is what was sent, whole or in increments; what is damaged changes nothing; what
//! breaks off goes on.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{Dice, MIB, ROOT, handles, import, mount, noise, spec, write_file};
use steadfast_device::memory::{Effect, Fate, Fault, Image};
use steadfast_device::{Device, MemoryDevice, Operation};
use steadfast_env::Env;
use steadfast_format::KeyFormat;
use steadfast_inspect::{Finding, Leaf, Request};
use steadfast_pool::{CreateSpec, Error, Pool, ReceiveSpec, ReceiveWatch, Received, SendSpec};
use steadfast_posix::{FileSystem, S_IFDIR, S_IFMT, S_IFREG, SetAttr};

struct Quiet;

impl ReceiveWatch for Quiet {
    fn before(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn after(&mut self, _: &str) {}
    fn progress(&mut self, _: &str, _: u64) {}
}

struct Host {
    env: Env,
    devices: Vec<Arc<MemoryDevice>>,
    pool: Pool,
}

impl Host {
    fn new(name: &str, mib: u64) -> Host {
        let env = Env::seeded(name.len() as u64);
        let devices = vec![Arc::new(MemoryDevice::new(name, mib << 20))];
        let spec = CreateSpec { name: name.into(), ..spec(handles(&devices), None) };
        let pool = Pool::create(&env, spec).expect("a pool");
        Host { env, devices, pool }
    }

    /// As after a crash: nothing is committed any more.
    fn crash(self) -> Host {
        let Host { env, devices, pool } = self;
        drop(pool);
        let pool = import(&env, handles(&devices), None).expect("imported");
        Host { env, devices, pool }
    }

    fn snapshot(&self, name: &str) {
        self.pool.take_snapshots(&[name.to_owned()], &BTreeMap::new()).expect("taken");
    }

    fn send(&self, snapshot: &str, base: Option<&str>) -> Vec<u8> {
        self.send_from(snapshot, base, None)
    }

    fn send_from(&self, snapshot: &str, base: Option<&str>, resume: Option<(u64, u64)>) -> Vec<u8> {
        let spec = SendSpec {
            snapshot: snapshot.into(),
            base: base.map(str::to_owned),
            resume,
            ..SendSpec::default()
        };
        let mut out = Vec::new();
        let bytes = self.pool.send(&[spec], &mut out, &mut |_, _| ()).expect("sent");
        assert_eq!(bytes, out.len() as u64);
        out
    }

    fn receive(&self, target: &str, stream: &[u8]) -> Result<Vec<Received>, Error> {
        self.receive_as(&ReceiveSpec { target: target.into(), ..ReceiveSpec::default() }, stream)
    }

    fn receive_as(&self, spec: &ReceiveSpec, mut stream: &[u8]) -> Result<Vec<Received>, Error> {
        self.pool.receive(spec, &mut stream, &mut Quiet)
    }

    /// Everything that a pool frees in the background is freed, and the pool as a whole is consistent.
    fn check(&self) {
        for _ in 0..1_000 {
            if self.pool.freeing() == 0 {
                break;
            }
            self.pool.sync().expect("committed");
        }
        assert_eq!(self.pool.freeing(), 0);
        self.pool.sync().expect("committed");
        self.inspect();
    }

    /// The pool's own check finds nothing that is wrong, lost or left over.
    fn inspect(&self) {
        let copy = |device: &Arc<MemoryDevice>| Leaf {
            path: "device".into(),
            device: Arc::new(MemoryDevice::from_image("device", device.image())) as Arc<dyn Device>,
        };
        let leaves: Vec<Leaf> = self.devices.iter().map(copy).collect();
        let request = Request { leaves: &leaves, secret: None, anchor: None, env: &self.env };
        let mut told = Vec::new();
        // What a crash tore stays so until its slot of the ring is used again.
        let summary = steadfast_inspect::check(&request, &mut |finding| {
            if !matches!(finding, Finding::UberblockTorn { .. }) {
                told.push(finding.record().to_string());
            }
        });
        assert_eq!(told, Vec::<String>::new());
        assert_eq!(summary.leaked_units, 0);
    }

    fn live(&self) -> u64 {
        self.pool.state().accounting.live_bytes
    }
}

type Tree = BTreeMap<String, (u32, u64, u64)>;

/// Paths with modes, sizes and sums of content.
fn tree(pool: &Pool, name: &str) -> Tree {
    let (fs, _handle) = mount(pool, name);
    let mut found = Tree::new();
    let mut open = vec![(Vec::new(), ROOT)];
    while let Some((path, ino)) = open.pop() {
        let mut entries = Vec::new();
        fs.readdir(ino, 0, |entry| {
            entries.push(entry);
            true
        })
        .expect("listed");
        for entry in entries.into_iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
            let path = [&path[..], b"/", &entry.name].concat();
            let found_entry = fs.lookup(ino, &entry.name).expect("found");
            let attr = found_entry.attr;
            let content = match attr.mode & S_IFMT {
                S_IFREG => common::read_file(&fs, ino, &entry.name),
                S_IFDIR => {
                    open.push((path.clone(), entry.ino));
                    Vec::new()
                }
                _ => fs.readlink(entry.ino).expect("a link"),
            };
            fs.forget(entry.ino, 1);
            let sum = content
                .iter()
                .fold(7_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
            found.insert(String::from_utf8_lossy(&path).into_owned(), (attr.mode, attr.size, sum));
        }
    }
    found
}

/// Two datasets hold the same.
fn same(one: (&Pool, &str), two: (&Pool, &str), when: impl std::fmt::Display) {
    let (one, two) = (tree(one.0, one.1), tree(two.0, two.1));
    let differs = |(path, found): (&String, &(u32, u64, u64))| {
        let other = two.get(path);
        (other != Some(found)).then(|| format!("{path}: {found:?}, and there {other:?}"))
    };
    let mut differences: Vec<String> = one.iter().filter_map(differs).collect();
    differences
        .extend(two.keys().filter(|path| !one.contains_key(*path)).map(|path| format!("{path}: only there")));
    assert!(differences.is_empty(), "{when}: {differences:#?}");
}

fn truncate(fs: &FileSystem, ino: u64, size: u64) {
    let _ = fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).expect("set");
}

/// A file system with files of all kinds.
fn furnish(pool: &Pool, name: &str) {
    let (fs, _handle) = mount(pool, name);
    let folder = fs.mkdir(common::ME, ROOT, b"folder", 0o755).expect("made").ino;
    for at in 0..40_u64 {
        let size = usize::try_from(at * at * 300).unwrap();
        write_file(&fs, folder, format!("file {at}").as_bytes(), &noise(at + 1, size));
    }
    write_file(&fs, ROOT, b"zeros", &vec![0; 3 * MIB as usize]);
    write_file(&fs, ROOT, b"text", "compressible ".repeat(50_000).as_bytes());
    let sparse = write_file(&fs, ROOT, b"sparse", b"begin");
    fs.write(sparse, 5 * MIB + 17, &noise(99, 200_000), false).expect("written");
    fs.setxattr(sparse, b"user.short", b"value", 0).expect("set");
    fs.setxattr(sparse, b"user.long", &noise(5, 9_000), 0).expect("set");
    fs.symlink(common::ME, ROOT, b"link", b"folder/file 7").expect("made");
    fs.link(sparse, folder, b"second name").expect("linked");
}

/// Changes of all kinds, drawn.
fn disturb(pool: &Pool, name: &str, dice: &mut Dice) {
    let (fs, _handle) = mount(pool, name);
    let folder = fs.lookup(ROOT, b"folder").expect("found").ino;
    for _ in 0..30 {
        let file = format!("file {}", dice.below(60));
        let found = fs.lookup(folder, file.as_bytes()).ok();
        match (dice.below(6), found) {
            (_, None) => {
                write_file(
                    &fs,
                    folder,
                    file.as_bytes(),
                    &noise(dice.below(1000), 1 + dice.below(400_000) as usize),
                );
            }
            (0, Some(_)) => fs.unlink(folder, file.as_bytes()).expect("removed"),
            (1, Some(found)) => truncate(&fs, found.ino, dice.below(found.attr.size + 1)),
            (2, Some(found)) => truncate(&fs, found.ino, found.attr.size + dice.below(300_000)),
            (3, Some(_)) => {
                let to = format!("file {}", dice.below(60));
                fs.rename(folder, file.as_bytes(), folder, to.as_bytes(), 0).expect("renamed");
            }
            (_, Some(found)) => {
                let at = dice.below(found.attr.size + 100_000);
                let bytes = noise(dice.below(1000), 1 + dice.below(50_000) as usize);
                fs.write(found.ino, at, &bytes, false).expect("written");
            }
        }
    }
}

#[test]
fn a_snapshot_and_its_increments_arrive_as_they_were() {
    let (one, two) = (Host::new("one", 256), Host::new("second", 256));
    one.pool.create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    one.snapshot("one/fs@0");
    let full = one.send("one/fs@0", None);
    let received = two.receive("second/copy", &full).expect("received");
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].snapshot.as_str(), received[0].increment), ("second/copy@0", false));
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");

    let mut dice = Dice(7);
    for round in 1..12_u64 {
        disturb(&one.pool, "one/fs", &mut dice);
        let (name, before) = (format!("one/fs@{round}"), format!("one/fs@{}", round - 1));
        one.snapshot(&name);
        let increment = one.send(&name, Some(&before));
        two.receive("second/copy", &increment).expect("received");
        same((&one.pool, "one/fs"), (&two.pool, "second/copy"), format!("round {round}"));
        let infos = |host: &Host, fs| host.pool.snapshot_infos(fs, None).unwrap();
        let (sent, got) = (infos(&one, "one/fs"), infos(&two, "second/copy"));
        for (sent, got) in sent.iter().zip(&got) {
            assert_eq!(
                (sent.guid, sent.created_seconds, sent.files),
                (got.guid, got.created_seconds, got.files)
            );
        }
        two.check();
    }
    // What was received can be sent on, over several rounds at once.
    let three = Host::new("third", 256);
    three.receive("third/copy", &two.send("second/copy@3", None)).expect("received");
    three.receive("third/copy", &two.send("second/copy@11", Some("second/copy@3"))).expect("received");
    same((&one.pool, "one/fs"), (&three.pool, "third/copy"), "at the end");

    // Nothing is left behind when all is gone.
    let two = two.crash();
    two.pool.destroy_with_snapshots("second/copy").expect("destroyed");
    two.check();
    let empty = Host::new("second", 256);
    empty.check();
    assert!(two.live() <= empty.live() + (1 << 20), "{} and {}", two.live(), empty.live());
}

#[test]
fn a_stream_that_is_damaged_anywhere_changes_nothing_and_says_where() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        write_file(&fs, ROOT, b"first", &noise(1, 30_000));
    }
    one.snapshot("one/fs@a");
    let full = one.send("one/fs@a", None);
    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        write_file(&fs, ROOT, b"second", &noise(2, 20_000));
    }
    one.snapshot("one/fs@b");
    let increment = one.send("one/fs@b", Some("one/fs@a"));
    let mut dice = Dice(3);
    let refused = |stream: &[u8], why: &str| {
        let error = two.receive("second/copy", stream).expect_err(why);
        let told = error.to_string();
        let places = ["byte", "no stream"];
        assert!(places.iter().any(|place| told.contains(place)), "{why}: {told}");
    };
    for round in 0..60 {
        let at = if round < 30 { round * 8 } else { dice.below(full.len() as u64) as usize };
        let mut bad = full.clone();
        bad[at] ^= 1 << dice.below(8);
        refused(&bad, &format!("byte {at}"));
        refused(&full[..at], &format!("cut at {at}"));
        assert_eq!(two.pool.datasets(), ["second"]);
    }
    two.check();
    two.receive("second/copy", &full).expect("received");
    let before = tree(&two.pool, "second/copy");
    let live = two.live();
    for _ in 0..40 {
        let at = dice.below(increment.len() as u64) as usize;
        let mut bad = increment.clone();
        bad[at] ^= 1 << dice.below(8);
        refused(&bad, &format!("byte {at} of the increment"));
        refused(&increment[..at], &format!("increment cut at {at}"));
    }
    two.check();
    assert_eq!(tree(&two.pool, "second/copy"), before);
    assert_eq!(two.pool.snapshot_names("second/copy").unwrap(), ["a"]);
    assert!(two.live() <= live + (1 << 20), "{} and {live}: all was freed", two.live());
    two.receive("second/copy", &increment).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");
}

#[test]
fn what_does_not_fit_is_refused_with_the_reason() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 64));
    for name in ["one/fs", "one/other"] {
        one.pool.create_dataset(name, BTreeMap::new(), None).expect("made");
    }
    furnish(&one.pool, "one/fs");
    for name in ["one/fs@a", "one/fs@b", "one/fs@c", "one/other@a"] {
        one.snapshot(name);
        let (fs, _handle) = mount(&one.pool, "one/fs");
        write_file(&fs, ROOT, format!("after {name}").replace('/', " ").as_bytes(), b"x");
    }
    let (full, ab, bc) = (
        one.send("one/fs@a", None),
        one.send("one/fs@b", Some("one/fs@a")),
        one.send("one/fs@c", Some("one/fs@b")),
    );
    let wrong =
        SendSpec { snapshot: "one/fs@a".into(), base: Some("one/fs@b".into()), ..SendSpec::default() };
    let refused = one.pool.send(&[wrong], &mut Vec::new(), &mut |_, _| ());
    assert!(matches!(refused, Err(Error::NotEarlier { .. })), "{refused:?}");

    let error = two.receive("second/none", &ab).unwrap_err();
    assert!(matches!(error, Error::NoSuchDataset { .. }), "{error}");
    two.receive("second/copy", &full).expect("received");
    let error = two.receive("second/copy", &full).unwrap_err();
    assert!(matches!(error, Error::DestinationExists { .. }), "{error}");
    let error = two.receive("second/copy", &bc).unwrap_err();
    assert!(matches!(error, Error::NoBase { .. }), "{error}");
    let error = two.receive("second/copy/a/b", &full).unwrap_err();
    assert!(matches!(error, Error::NoParent { .. }), "{error}");
    let error = two
        .receive(
            "second/copy",
            b"no stream at all, but long enough to be one, if it were one, which it is not",
        )
        .unwrap_err();
    assert!(matches!(error, Error::NoStream { .. }), "{error}");

    // What was changed since stays, unless it is given up.
    {
        let (fs, _handle) = mount(&two.pool, "second/copy");
        write_file(&fs, ROOT, b"own", b"changed here");
    }
    let error = two.receive("second/copy", &ab).unwrap_err();
    assert!(matches!(error, Error::Modified { .. }), "{error}");
    two.snapshot("second/copy@own");
    let error = two.receive("second/copy", &ab).unwrap_err();
    assert!(matches!(error, Error::BaseNotYoungest { .. }), "{error}");
    let force = ReceiveSpec { target: "second/copy".into(), force: true, ..ReceiveSpec::default() };
    two.receive_as(&force, &ab).expect("received");
    two.receive("second/copy", &bc).expect("received");
    assert_eq!(two.pool.snapshot_names("second/copy").unwrap(), ["a", "b", "c"]);
    two.check();

    // A pool that is full.
    let (fs, handle) = mount(&one.pool, "one/other");
    write_file(&fs, ROOT, b"large", &noise(1, 60 * MIB as usize));
    drop((fs, handle));
    one.snapshot("one/other@large");
    let large = one.send("one/other@large", None);
    let live = two.live();
    let error = two.receive("second/large", &large).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    two.check();
    assert!(two.live() <= live + (1 << 20));
}

#[test]
fn what_broke_off_goes_on_where_it_was() {
    let (one, mut two) = (Host::new("one", 256), Host::new("second", 256));
    one.pool.create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    one.snapshot("one/fs@a");
    let full = one.send("one/fs@a", None);
    let keep = ReceiveSpec { target: "second/copy".into(), keep: true, ..ReceiveSpec::default() };
    let mut dice = Dice(11);
    let mut stream = full.clone();
    let mut parts = 0;
    // Cut again and again, with crashes between.
    let mut sent = Vec::new();
    while parts < 8 {
        let at = stream.len() / 4 + dice.below(stream.len() as u64 / 4) as usize;
        two.receive_as(&keep, &stream[..at]).expect_err("cut");
        assert_eq!(two.pool.datasets(), ["second"]);
        if parts % 2 == 0 {
            two = two.crash();
        }
        two.check();
        let (guid, base, position) = two.pool.partial_receive("second/copy").expect("kept");
        assert_eq!((guid, base), (one.pool.snapshot_infos("one/fs", None).unwrap()[0].guid, 0));
        let error = two.receive_as(&keep, &full).expect_err("a part is there");
        assert!(matches!(error, Error::PartialExists { .. }), "{error}");
        stream = one.send_from("one/fs@a", None, Some(position));
        sent.push(stream.len());
        parts += 1;
    }
    assert!(sent.last() < sent.first(), "what is left becomes less: {sent:?}");
    two.receive_as(&keep, &stream).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");
    assert!(two.pool.partial_receive("second/copy").is_none());

    // The same of an increment; then it is given up.
    disturb(&one.pool, "one/fs", &mut dice);
    one.snapshot("one/fs@b");
    let increment = one.send("one/fs@b", Some("one/fs@a"));
    let before = tree(&two.pool, "second/copy");
    two.receive_as(&keep, &increment[..increment.len() * 3 / 4]).expect_err("cut");
    assert_eq!(tree(&two.pool, "second/copy"), before);
    two.check();
    let mut two = two.crash();
    assert_eq!(tree(&two.pool, "second/copy"), before);
    let error = two.pool.destroy_snapshots(&["second/copy@a".into()], false).unwrap_err();
    assert!(matches!(error, Error::PartialExists { .. }), "{error}");
    two.pool.abort_receive("second/copy").expect("given up");
    two.check();
    two.receive_as(&keep, &increment[..increment.len() * 3 / 4]).expect_err("cut");
    two = two.crash();
    let (_, _, position) = two.pool.partial_receive("second/copy").expect("kept");
    let rest = one.send_from("one/fs@b", Some("one/fs@a"), Some(position));
    two.receive_as(&keep, &rest).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");
    two.check();
}

#[test]
fn a_bookmark_is_enough_to_go_on_from() {
    let (one, two) = (Host::new("one", 256), Host::new("second", 256));
    one.pool.create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    {
        // Many names, so that whole leaves go.
        let (fs, _handle) = mount(&one.pool, "one/fs");
        let folder = fs.mkdir(common::ME, ROOT, b"many", 0o755).expect("made").ino;
        (0..3_000).for_each(|at| _ = write_file(&fs, folder, format!("name {at}").as_bytes(), &[7; 3_000]));
    }
    one.snapshot("one/fs@0");
    two.receive("second/copy", &one.send("one/fs@0", None)).expect("received");
    let mut dice = Dice(23);
    for round in 1..8_u64 {
        let (name, mark) = (format!("one/fs@{round}"), format!("one/fs#{}", round - 1));
        one.pool.add_bookmark(&format!("one/fs@{}", round - 1), &(round - 1).to_string()).expect("marked");
        one.pool.destroy_snapshots(&[format!("one/fs@{}", round - 1)], false).expect("destroyed");
        disturb(&one.pool, "one/fs", &mut dice);
        let (fs, handle) = mount(&one.pool, "one/fs");
        let folder = fs.lookup(ROOT, b"many").expect("found").ino;
        for at in dice.below(2_000)..2_500 {
            let _ = fs.unlink(folder, format!("name {at}").as_bytes());
        }
        drop((fs, handle));
        one.snapshot(&name);
        let increment = one.send(&name, Some(&mark));
        two.receive("second/copy", &increment).expect("received");
        same((&one.pool, "one/fs"), (&two.pool, "second/copy"), format!("round {round}"));
        two.check();
    }
    let two = two.crash();
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");
    let one = one.crash();
    assert_eq!(one.pool.bookmark_infos("one/fs").unwrap().len(), 7);
    one.pool.remove_bookmark("one/fs#3").expect("removed");
    assert!(matches!(one.pool.remove_bookmark("one/fs#3"), Err(Error::NoSuchBookmark { .. })));
    one.pool.destroy_with_snapshots("one/fs").expect("destroyed");
    one.check();
}

#[test]
fn encrypted_datasets_are_sent_open_and_received_under_their_own_keys() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    let key = |host: &Host, byte| common::key(&host.env, &[byte; 32]);
    one.pool.create_dataset("one/vault", BTreeMap::new(), Some(key(&one, 1))).expect("made");
    two.pool.create_dataset("second/safe", BTreeMap::new(), Some(key(&two, 2))).expect("made");
    furnish(&one.pool, "one/vault");
    one.snapshot("one/vault@a");
    let full = one.send("one/vault@a", None);
    two.receive("second/safe/copy", &full).expect("received");
    disturb(&one.pool, "one/vault", &mut Dice(5));
    one.snapshot("one/vault@b");
    let increment = one.send("one/vault@b", Some("one/vault@a"));
    two.receive_as(&ReceiveSpec { target: "second/safe/copy".into(), ..ReceiveSpec::default() }, &increment)
        .expect("received");
    same((&one.pool, "one/vault"), (&two.pool, "second/safe/copy"), "at the end");
    one.pool.unload_key("one/vault").expect("unloaded");
    let spec = SendSpec { snapshot: "one/vault@b".into(), ..SendSpec::default() };
    let error = one.pool.send(&[spec], &mut Vec::new(), &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, Error::KeyNotLoaded { .. }), "{error}");
    // After a crash the hidden dataset's key is loaded with the others.
    let two = two.crash();
    assert_eq!(two.pool.key_format("second/safe").unwrap(), KeyFormat::Raw);
    two.pool.load_key("second/safe", &[2; 32], false).expect("loaded");
    one.pool.load_key("one/vault", &[1; 32], false).expect("loaded");
    same((&one.pool, "one/vault"), (&two.pool, "second/safe/copy"), "at the end");
}

/// What a receive that was cut at one of its writes or flushes left behind: all of it or nothing, and a pool that is whole.
fn cut_at(image: &Image, stream: &[u8], target: &str, fault: Fault, dice: &mut Dice) -> (bool, Host) {
    let env = Env::seeded(9);
    let devices = vec![Arc::new(MemoryDevice::from_image("second", image.clone()))];
    let pool = import(&env, handles(&devices), None).expect("imported");
    let host = Host { env, devices, pool };
    host.devices[0].arm(fault);
    let done = host.receive(target, stream).is_ok();
    host.devices[0].power_off();
    let Host { env, devices, pool } = host;
    drop(pool);
    devices[0].power_on(|_| match dice.below(3) {
        0 => Fate::Dropped,
        1 => Fate::Applied,
        _ => Fate::Torn { sectors: dice.below(9) as usize },
    });
    let pool = import(&env, handles(&devices), None).expect("what was committed is found");
    (done, Host { env, devices, pool })
}

#[test]
fn a_crash_at_any_write_leaves_all_of_a_snapshot_or_nothing() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    one.pool.create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        (1..30).for_each(|at| {
            _ = write_file(&fs, ROOT, format!("file {at}").as_bytes(), &noise(at, at as usize * 4_000))
        });
    }
    one.snapshot("one/fs@a");
    let full = one.send("one/fs@a", None);
    let before = tree(&one.pool, "one/fs");
    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        (1..10).for_each(|at| fs.unlink(ROOT, format!("file {at}").as_bytes()).expect("removed"));
        (40..50)
            .for_each(|at| _ = write_file(&fs, ROOT, format!("file {at}").as_bytes(), &noise(at, 60_000)));
    }
    one.snapshot("one/fs@b");
    let increment = one.send("one/fs@b", Some("one/fs@a"));
    let after = tree(&one.pool, "one/fs");
    two.pool.sync().expect("committed");
    let empty = two.devices[0].image();
    two.receive("second/copy", &full).expect("received");
    two.check();
    let based = two.devices[0].image();
    let mut dice = Dice(77);
    for (image, stream, old, new) in
        [(&empty, &full, None, &before), (&based, &increment, Some(&before), &after)]
    {
        for operation in [Operation::Write, Operation::Flush] {
            let mut ends = [0, 0];
            for skip in 0.. {
                let fault = Fault { operation, skip, effect: Effect::PowerOff };
                let (done, host) = cut_at(image, stream, "second/copy", fault, &mut dice);
                let there = host.pool.datasets().contains(&"second/copy".to_owned());
                let found = there.then(|| tree(&host.pool, "second/copy"));
                let is_new = found.as_ref() == Some(new);
                assert!(is_new || found.as_ref() == old && !done, "{operation:?} {skip}: {found:?}");
                let snapshots =
                    if there { host.pool.snapshot_names("second/copy").unwrap().len() } else { 0 };
                assert_eq!(
                    snapshots,
                    usize::from(old.is_some()) + usize::from(is_new),
                    "{operation:?} {skip}"
                );
                host.check();
                ends[usize::from(is_new)] += 1;
                if done {
                    break;
                }
            }
            assert!(ends[0] > 2 && ends[1] > 0, "{operation:?}: {ends:?}");
        }
    }
}
