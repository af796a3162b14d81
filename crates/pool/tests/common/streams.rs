//! Two pools beside each other, and file systems that go from one to the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_device::memory::{Effect, Fate, Fault, Image};
use steadfast_device::{Device, MemoryDevice, Operation};
use steadfast_env::Env;
use steadfast_format::stream::{FrameHeader, FrameKind, StreamHeader};
use steadfast_inspect::{Finding, Leaf, Request};
use steadfast_pool::{CreateSpec, Error, Pool, ReceiveSpec, ReceiveWatch, Received, SendSpec};
use steadfast_posix::{FileSystem, S_IFDIR, S_IFMT, S_IFREG, SetAttr};

use crate::common::{self, Dice, MIB, ROOT, handles, import, mount, noise, spec, write_file};

pub struct Quiet;

impl ReceiveWatch for Quiet {
    fn before(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn after(&mut self, _: &str) {}
    fn progress(&mut self, _: &str, _: u64) {}
}

pub struct Host {
    pub env: Env,
    pub devices: Vec<Arc<MemoryDevice>>,
    pub pool: Pool,
}

impl Host {
    pub fn new(name: &str, mib: u64) -> Host {
        let env = Env::seeded(name.len() as u64);
        let devices = vec![Arc::new(MemoryDevice::new(name, mib << 20))];
        let spec = CreateSpec { name: name.into(), ..spec(handles(&devices), None) };
        let pool = Pool::create(&env, spec).expect("a pool");
        Host { env, devices, pool }
    }

    /// As after a crash: nothing is committed any more.
    pub fn crash(self) -> Host {
        let Host { env, devices, pool } = self;
        drop(pool);
        let pool = import(&env, handles(&devices), None).expect("imported");
        Host { env, devices, pool }
    }

    pub fn snapshot(&self, name: &str) {
        self.pool.datasets().take_snapshots(&[name.to_owned()], &BTreeMap::new()).expect("taken");
    }

    pub fn send(&self, snapshot: &str, base: Option<&str>) -> Vec<u8> {
        self.send_from(snapshot, base, None)
    }

    pub fn send_from(&self, snapshot: &str, base: Option<&str>, resume: Option<(u64, u64)>) -> Vec<u8> {
        let base = base.map(str::to_owned);
        self.send_as(SendSpec { snapshot: snapshot.into(), base, resume, ..SendSpec::default() })
    }

    /// With records as they are compressed.
    pub fn send_packed(&self, snapshot: &str, base: Option<&str>) -> Vec<u8> {
        let base = base.map(str::to_owned);
        self.send_as(SendSpec { snapshot: snapshot.into(), base, packed: true, ..SendSpec::default() })
    }

    pub fn send_as(&self, spec: SendSpec) -> Vec<u8> {
        let mut out = Vec::new();
        let bytes = self.pool.streams().send(&[spec], &mut out, &mut |_, _| ()).expect("sent");
        assert_eq!(bytes, out.len() as u64);
        out
    }

    pub fn receive(&self, target: &str, stream: &[u8]) -> Result<Vec<Received>, Error> {
        self.receive_as(&ReceiveSpec { target: target.into(), ..ReceiveSpec::default() }, stream)
    }

    pub fn receive_as(&self, spec: &ReceiveSpec, mut stream: &[u8]) -> Result<Vec<Received>, Error> {
        self.pool.streams().receive(spec, &mut stream, &mut Quiet)
    }

    /// Everything that a pool frees in the background is freed, and the pool as a whole is
    /// consistent.
    pub fn check(&self) {
        self.check_with(None);
    }

    /// The same, of what a key opens too.
    pub fn check_with(&self, secret: Option<&[u8]>) {
        for _ in 0..1_000 {
            if self.pool.datasets().freeing() == 0 {
                break;
            }
            self.pool.sync().expect("committed");
        }
        assert_eq!(self.pool.datasets().freeing(), 0);
        self.pool.sync().expect("committed");
        self.inspect_with(secret);
    }

    /// The pool's own check finds nothing that is wrong, lost or left over.
    pub fn inspect(&self) {
        self.inspect_with(None);
    }

    fn inspect_with(&self, secret: Option<&[u8]>) {
        inspect_devices(&self.env, &self.devices, secret);
    }

    pub fn live(&self) -> u64 {
        self.pool.state().accounting.live_bytes
    }
}

/// The check of a pool finds nothing that is wrong, lost or left over.
pub fn inspect_devices(env: &Env, devices: &[Arc<MemoryDevice>], secret: Option<&[u8]>) {
    let copy = |device: &Arc<MemoryDevice>| Leaf {
        path: "device".into(),
        device: Arc::new(MemoryDevice::from_image("device", device.image())) as Arc<dyn Device>,
    };
    let leaves: Vec<Leaf> = devices.iter().map(copy).collect();
    let request = Request { leaves: &leaves, secret: secret.map(<[u8]>::to_vec), anchor: None, env };
    let mut told = Vec::new();
    // An uberblock that a crash tore stays so until its slot of the ring is used again.
    let summary = steadfast_inspect::check(&request, &mut |finding| {
        if !matches!(finding, Finding::UberblockTorn { .. }) {
            told.push(finding.record().to_string());
        }
    });
    assert_eq!(told, Vec::<String>::new());
    assert_eq!(summary.leaked_units, 0);
}

pub type Tree = BTreeMap<String, (u32, u64, u64)>;

/// Paths with modes, sizes and sums of content.
pub fn tree(pool: &Pool, name: &str) -> Tree {
    let (fs, _handle) = mount(pool, name);
    tree_of(&fs)
}

/// The same of a snapshot.
pub fn snapshot_tree(pool: &Pool, name: &str) -> Tree {
    let (fs, snapshot) = name.split_once('@').expect("a snapshot");
    let opened = pool.datasets().open_dataset(fs).expect("the dataset opens");
    let opened = opened.snapshots().open(snapshot).expect("it is there");
    opened
        .with(|dataset| tree_of(&FileSystem::of_snapshot(Arc::clone(dataset), common::options())))
        .expect("it is there")
}

fn tree_of(fs: &FileSystem) -> Tree {
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
                S_IFREG => common::read_file(fs, ino, &entry.name),
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
pub fn same(one: (&Pool, &str), two: (&Pool, &str), when: impl std::fmt::Display) {
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

pub fn truncate(fs: &FileSystem, ino: u64, size: u64) {
    let _ = fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).expect("set");
}

/// Bytes of which compression makes about a third.
pub fn soft(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = noise(seed, bytes);
    data.chunks_mut(48).for_each(|chunk| {
        let from = chunk.len() / 3;
        chunk[from..].fill(b'.');
    });
    data
}

/// A volume's only file.
pub const VOLUME: u64 = 1;

/// All of a volume.
pub fn content(host: &Host, name: &str) -> Vec<u8> {
    let (fs, _handle) = mount(&host.pool, name);
    assert!(fs.is_volume());
    let mut data = vec![0; usize::try_from(fs.getattr(VOLUME).expect("the file").size).expect("small")];
    let mut at = 0;
    while at < data.len() {
        let end = data.len().min(at + (1 << 20));
        at += fs.read(VOLUME, at as u64, &mut data[at..end]).expect("read");
    }
    data
}

/// A file system with files of all kinds.
pub fn furnish(pool: &Pool, name: &str) {
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
pub fn disturb(pool: &Pool, name: &str, dice: &mut Dice) {
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

pub const WRITES: &[Operation] = &[Operation::Write];
pub const WRITES_AND_FLUSHES: &[Operation] = &[Operation::Write, Operation::Flush];

/// A receive whose power is cut at one operation after the other.
pub struct Cuts<'a> {
    /// The pool that it begins with.
    pub image: &'a Image,
    pub stream: &'a [u8],
    pub spec: ReceiveSpec,
    /// At which kinds of operations.
    pub operations: &'a [Operation],
    /// At one of so many.
    pub step: usize,
    /// Opens what is sealed in it.
    pub secret: Option<&'a [u8]>,
}

impl<'a> Cuts<'a> {
    /// At every operation of these kinds.
    pub fn new(image: &'a Image, stream: &'a [u8], target: &str, operations: &'a [Operation]) -> Cuts<'a> {
        let spec = ReceiveSpec { target: target.into(), ..ReceiveSpec::default() };
        Cuts { image, stream, spec, operations, step: 1, secret: None }
    }

    /// Cuts until the stream comes through. `is_all` looks at each pool that is found afterwards:
    /// true if all of the stream is there; else it sees to it itself that nothing is. Every pool is
    /// whole, and both ends were met.
    pub fn each(&self, dice: &mut Dice, mut is_all: impl FnMut(&Host, &str) -> bool) {
        for &operation in self.operations {
            let mut ends = [0, 0];
            for skip in (0..).step_by(self.step) {
                let fault = Fault { operation, skip, effect: Effect::PowerOff };
                let (done, host) = cut_with(self.image, self.stream, &self.spec, fault, dice);
                let when = format!("{operation:?} {skip}");
                let all = is_all(&host, &when);
                assert!(all || !done, "{when}: it was said to be received");
                host.check_with(self.secret);
                ends[usize::from(all)] += 1;
                if done {
                    break;
                }
            }
            assert!(ends[0] > 2 && ends[1] > 0, "{operation:?}: {ends:?}");
        }
    }
}

/// Devices after a receive that was cut at one of its writes or flushes, and whether it had
/// returned.
pub fn cut_with(
    image: &Image,
    stream: &[u8],
    spec: &ReceiveSpec,
    fault: Fault,
    dice: &mut Dice,
) -> (bool, Host) {
    let env = Env::seeded(9);
    let devices = vec![Arc::new(MemoryDevice::from_image("second", image.clone()))];
    let pool = import(&env, handles(&devices), None).expect("imported");
    let host = Host { env, devices, pool };
    host.devices[0].arm(fault);
    let done = host.receive_as(spec, stream).is_ok();
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

/// The frames of a stream.
pub fn frames(stream: &[u8]) -> Vec<(FrameKind, Vec<u8>)> {
    let mut rest = &stream[StreamHeader::SIZE..];
    let mut frames = Vec::new();
    while let Some((header, tail)) = rest.split_first_chunk::<{ FrameHeader::SIZE }>() {
        let header = FrameHeader::decode(header).expect("a frame");
        let (payload, tail) = tail.split_at(header.length as usize);
        frames.push((header.kind, payload.to_vec()));
        rest = tail;
    }
    frames
}

/// A stream of frames, with the chain that they need: what somebody who can write a whole stream
/// may write.
pub fn joined(frames: &[(FrameKind, Vec<u8>)]) -> Vec<u8> {
    joined_behind(StreamHeader::default(), frames)
}

/// The same behind another header.
pub fn joined_behind(header: StreamHeader, frames: &[(FrameKind, Vec<u8>)]) -> Vec<u8> {
    let mut out = header.encode().to_vec();
    let mut chain = steadfast_crypto::hash(&out);
    for (kind, payload) in frames {
        let mut header = FrameHeader { kind: *kind, length: payload.len() as u32, hash: [0; 32] };
        let bound = header.encode();
        header.hash = steadfast_crypto::hash_parts(&[&chain, &bound[..FrameHeader::BOUND_SIZE], payload]);
        chain = header.hash;
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(payload);
    }
    out
}
