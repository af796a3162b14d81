//! Streams as a stranger could make them who knows the format: frames of real ones changed, left
//! out, doubled and exchanged, and the chain of hashes made anew, so that what reads them gets past
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{self, ME, ROOT, handles, import, mount, noise, write_file};
use crate::hosts::{Host, Tree, frames, joined_behind, soft, tree, truncate};
use steadfast_device::MemoryDevice;
use steadfast_device::memory::Image;
use steadfast_env::Env;
use steadfast_format::stream::{FrameKind, StreamHeader};
use steadfast_pool::{Pool, SendSpec};
use steadfast_posix::{FileSystem, S_IFDIR, S_IFMT};

const KEY: [u8; 32] = [1; 32];
/// Changes of one stream, entries of a received file system that are looked at, and of one folder.
const CHANGES_MAX: usize = 64;
const ENTRIES_MAX: usize = 300;
const FOLDER_MAX: usize = 100;
const KINDS: [FrameKind; 12] = [
    FrameKind::Begin,
    FrameKind::Names,
    FrameKind::Content,
    FrameKind::End,
    FrameKind::Close,
    FrameKind::Span,
    FrameKind::RawRoots,
    FrameKind::RawGone,
    FrameKind::RawBlocks,
    FrameKind::Packed,
    FrameKind::Notes,
    FrameKind::Repeats,
];

type Frames = Vec<(FrameKind, Vec<u8>)>;

/// A stream that is right, and where it goes.
struct Whole {
    target: &'static str,
    header: StreamHeader,
    frames: Frames,
}

/// Result of receiving a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// Nothing: it is what it was.
    Refused,
    /// A snapshot came whole, and what followed it was refused.
    Part,
    /// All of it.
    Taken,
}

/// Streams, and the pool that takes them.
pub struct Forger {
    image: Image,
    streams: Vec<Whole>,
    /// State before: file systems, snapshots, and the content of those in the clear.
    before: (Vec<String>, Vec<String>, Tree),
}

/// A file system with a few things of each kind.
fn fill(host: &Host, name: &str) {
    {
        let (fs, _handle) = mount(&host.pool, name);
        let folder = fs.mkdir(ME, ROOT, b"folder", 0o755).expect("made").ino;
        for at in 0..10_u64 {
            let size = usize::try_from(at * at * 900).expect("small");
            write_file(&fs, folder, format!("file {at}").as_bytes(), &noise(at + 1, size));
        }
        write_file(&fs, ROOT, b"soft", &soft(3, 300_000));
        let sparse = write_file(&fs, ROOT, b"sparse", b"begin");
        fs.write(sparse, 700_017, &noise(99, 20_000), false).expect("written");
        fs.setxattr(sparse, b"user.short", b"value", 0).expect("set");
        fs.setxattr(sparse, b"user.long", &noise(5, 9_000), 0).expect("set");
        fs.symlink(ME, ROOT, b"link", b"folder/file 7").expect("made");
        fs.link(sparse, folder, b"second name").expect("linked");
    }
    // Stored content is copied by reference, and named again in a stream.
    host.pool.sync().expect("committed");
    let (fs, _handle) = mount(&host.pool, name);
    let source = fs.lookup(ROOT, b"soft").expect("found");
    let target = fs.mknod(ME, ROOT, b"copy", 0o100_644, 0).expect("made");
    fs.copy_file_range(source.ino, 0, target.ino, 0, source.attr.size).expect("copied");
    fs.forget(source.ino, 1);
    fs.forget(target.ino, 1);
}

fn change(host: &Host, name: &str) {
    let (fs, _handle) = mount(&host.pool, name);
    let folder = fs.lookup(ROOT, b"folder").expect("found").ino;
    fs.unlink(folder, b"file 3").expect("removed");
    fs.rename(folder, b"file 5", ROOT, b"moved", 0).expect("renamed");
    let file = fs.lookup(folder, b"file 8").expect("found").ino;
    fs.write(file, 1_000, &noise(44, 3_000), false).expect("written");
    truncate(&fs, file, 40_000);
    write_file(&fs, folder, b"new", &noise(45, 50_000));
    fs.mkdir(ME, folder, b"below", 0o700).expect("made");
    fs.forget_all();
}

impl Forger {
    /// With pools of its own.
    pub fn new() -> Forger {
        let (one, two) = (Host::new("one", 64), Host::new("second", 64));
        let key = common::key(&one.env, &KEY);
        one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
        one.pool.datasets().create_dataset("one/vault", BTreeMap::new(), Some(key)).expect("made");
        for name in ["one/fs", "one/vault"] {
            fill(&one, name);
            one.snapshot(&format!("{name}@a"));
            one.pool.datasets().add_bookmark(&format!("{name}@a"), "a").expect("marked");
            change(&one, name);
            one.snapshot(&format!("{name}@b"));
        }
        let noted = ["one/fs@a".to_owned()];
        one.pool.datasets().set_snapshot_properties(&noted, &[("org:note", Some("first"))]).expect("set");
        one.pool.datasets().hold(&noted, "kept").expect("held");
        let spec = |snapshot: &str, base: Option<&str>| SendSpec {
            snapshot: snapshot.into(),
            base: base.map(str::to_owned),
            ..SendSpec::default()
        };
        let raw = |snapshot: &str, base: Option<&str>| SendSpec { raw: true, ..spec(snapshot, base) };
        let plans: [(&'static str, Vec<SendSpec>); 8] = [
            ("second/new", vec![spec("one/fs@a", None)]),
            ("second/base", vec![spec("one/fs@b", Some("one/fs@a"))]),
            ("second/base", vec![spec("one/fs@b", Some("one/fs#a"))]),
            ("second/new", vec![SendSpec { packed: true, ..spec("one/fs@b", None) }]),
            ("second/new", vec![SendSpec { properties: true, holds: true, ..spec("one/fs@a", None) }]),
            ("second/new", vec![spec("one/fs@a", None), spec("one/fs@b", Some("one/fs@a"))]),
            ("second/new", vec![raw("one/vault@a", None)]),
            ("second/sealed", vec![raw("one/vault@b", Some("one/vault@a"))]),
        ];
        let streams: Vec<Whole> = plans
            .into_iter()
            .map(|(target, plan)| {
                let mut stream = Vec::new();
                one.pool.streams().send(&plan, &mut stream, &mut |_, _| ()).expect("sent");
                let header = StreamHeader::decode(stream.first_chunk().expect("a header")).expect("a header");
                Whole { target, header, frames: frames(&stream) }
            })
            .collect();
        two.receive("second/base", &joined_behind(streams[0].header, &streams[0].frames)).expect("received");
        two.receive("second/sealed", &joined_behind(streams[6].header, &streams[6].frames))
            .expect("received");
        two.pool.sync().expect("committed");
        let before = (two.pool.datasets().names(), snapshots(&two), tree(&two.pool, "second/base"));
        Forger { image: two.devices[0].image(), streams, before }
    }

    /// How many streams there are.
    pub fn count(&self) -> usize {
        self.streams.len()
    }

    /// Kinds of the frames of a stream, and how long each is.
    pub fn frames(&self, stream: usize) -> Vec<(FrameKind, usize)> {
        self.streams[stream].frames.iter().map(|(kind, payload)| (*kind, payload.len())).collect()
    }

    /// Makes the changes that `bytes` stand for (which stream, whether its ends count the frames
    /// there are, and eight bytes each), and has a pool receive what came of it. The received file
    /// system is read, changed and destroyed. In any case the pool is whole afterwards.
    pub fn attempt(&self, bytes: &[u8]) -> Answer {
        let [stream, counts, changes @ ..] = bytes else { return Answer::Refused };
        let whole = &self.streams[usize::from(*stream) % self.streams.len()];
        let mut frames = whole.frames.clone();
        let (changes, _) = changes.as_chunks::<8>();
        changes.iter().take(CHANGES_MAX).for_each(|change| apply(&mut frames, *change));
        if counts % 2 == 0 {
            count(&mut frames);
        }
        let stream = joined_behind(whole.header, &frames);
        let env = Env::simulated(9);
        let devices = vec![Arc::new(MemoryDevice::from_image("second", self.image.clone()))];
        let pool = import(&env, handles(&devices), None).expect("imported");
        let host = Host { env, devices, pool };
        let answer = match host.receive(whole.target, &stream) {
            Ok(_) => Answer::Taken,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                let is_there = |snapshot: &String| self.before.1.contains(snapshot);
                let now = snapshots(&host);
                match now.iter().all(is_there) {
                    true => {
                        let now = (host.pool.datasets().names(), now, tree(&host.pool, "second/base"));
                        assert_eq!(now, self.before, "refused, and something is another: {error}");
                        Answer::Refused
                    }
                    false => {
                        let left = self.before.1.iter().all(|snapshot| now.contains(snapshot));
                        assert!(left, "{now:?} of {:?}: {error}", self.before.1);
                        Answer::Part
                    }
                }
            }
        };
        if answer != Answer::Refused {
            // It may be none of ours to open.
            let _ = host.pool.datasets().load_key(whole.target, &KEY, false);
            look(&host.pool, whole.target);
        }
        host.pool.sync().expect("the pool goes on");
        for name in snapshots(&host) {
            for (tag, _) in host.pool.datasets().holds(&name).expect("it is there") {
                host.pool.datasets().release(std::slice::from_ref(&name), &tag).expect("let go");
            }
        }
        for name in host.pool.datasets().names().into_iter().skip(1).rev() {
            host.pool
                .datasets()
                .destroy_with_snapshots(&name)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        host.check();
        answer
    }
}

/// Full names of all snapshots.
fn snapshots(host: &Host) -> Vec<String> {
    let names = host.pool.datasets().names().into_iter();
    let each = names.flat_map(|name| {
        let of = host.pool.datasets().snapshot_names(&name).expect("it is there").into_iter();
        of.map(|snapshot| format!("{name}@{snapshot}")).collect::<Vec<_>>()
    });
    each.collect()
}

fn apply(frames: &mut Frames, [kind, frame, a, b, c, what, how, _]: [u8; 8]) {
    if frames.is_empty() {
        return;
    }
    let index = usize::from(frame) % frames.len();
    let at = u32::from_le_bytes([a, b, c, 0]) as usize;
    let length = frames[index].1.len();
    let payload = &mut frames[index].1;
    match kind % 9 {
        0..3 if length > 0 => payload[at % length] ^= what.max(1),
        3 if length >= 8 => {
            let at = at % (length - 7);
            let number = [0, 1, u64::MAX, 1 << 48, length as u64, u64::from(what)][usize::from(how) % 6];
            payload[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        4 => payload.truncate(at % (length + 1)),
        5 => _ = frames.remove(index),
        6 => {
            let again = frames[index].clone();
            frames.insert(at % (frames.len() + 1), again);
        }
        7 => {
            let other = at % frames.len();
            frames.swap(index, other);
        }
        8 => frames[index].0 = KINDS[usize::from(what) % KINDS.len()],
        _ => {}
    }
}

/// Has every end say how many frames there are since its begin.
fn count(frames: &mut Frames) {
    let mut begun = 0;
    for (at, (kind, payload)) in frames.iter_mut().enumerate() {
        match kind {
            FrameKind::Begin => begun = at,
            FrameKind::End if payload.len() >= 16 => {
                payload[8..16].copy_from_slice(&((at - begun + 1) as u64).to_le_bytes());
            }
            _ => {}
        }
    }
}

/// Looks at what a file system shows, and changes some of it. A forged one may answer with errors,
/// but must answer.
fn look(pool: &Pool, name: &str) {
    let Ok(opened) = pool.datasets().open_dataset(name) else { return };
    let Ok(fs) = FileSystem::new(Arc::clone(opened.dataset()), common::options()) else { return };
    let (mut open, mut seen) = (vec![ROOT], 0);
    while let Some(folder) = open.pop() {
        let mut entries = Vec::new();
        // A folder may lie in itself, and say that it has more entries than there are.
        let _ = fs.readdir(folder, 0, |entry| {
            entries.push(entry);
            entries.len() < FOLDER_MAX
        });
        for entry in entries.into_iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
            seen += 1;
            if seen > ENTRIES_MAX {
                break;
            }
            let Ok(found) = fs.lookup(folder, &entry.name) else { continue };
            if found.attr.mode & S_IFMT == S_IFDIR {
                open.push(found.ino);
            }
            let mut bytes = vec![0; 64 << 10];
            for offset in [0, found.attr.size / 2, found.attr.size.saturating_sub(1)] {
                let _ = fs.read(found.ino, offset, &mut bytes);
            }
            let _ = fs.readlink(found.ino);
            for name in fs.listxattr(ME, found.ino).unwrap_or_default() {
                let _ = fs.getxattr(found.ino, &name);
            }
            let _ = fs.write(found.ino, found.attr.size / 2, b"changed", false);
            if seen % 3 == 0 {
                let _ = fs.unlink(folder, &entry.name);
                let _ = fs.rmdir(folder, &entry.name);
            }
        }
    }
    let _ = fs.mknod(ME, ROOT, b"made here", 0o100_644, 0);
    fs.forget_all();
}
