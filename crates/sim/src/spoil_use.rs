//! Uses a pool that somebody may have spoiled, as programs and operators do: a bounded part of
//! everything. Errors are answers, and are left.

use std::collections::BTreeMap;
use std::io::{self, Write};

use steadfast_env::Env;
use steadfast_pool::{Error, Pool, ReceiveSpec, ReceiveWatch, ScrubCommand, SendSpec, VolumeSpec};
use steadfast_posix::{Caller, FileSystem, SetAttr};

use crate::draw::Draw;
use crate::world;

const ROOT: u64 = 1;
const ME: Caller = Caller::ROOT;
/// Entries that are looked at in one file system.
const ENTRIES_MAX: usize = 120;
/// Answers of a listing that are asked for.
const LISTINGS_MAX: usize = 40;
/// Bytes of a stream that are taken.
const STREAM_MAX: usize = 8 << 20;
/// Steps of background work that are waited for.
const STEPS_MAX: usize = 60;

struct Quiet;

impl ReceiveWatch for Quiet {
    fn before(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn after(&mut self, _: &str) {}
    fn progress(&mut self, _: &str, _: u64) {}
}

/// Receives a stream.
///
/// # Errors
/// The pool's error.
pub fn receive(pool: &Pool, target: &str, mut stream: &[u8]) -> Result<(), Error> {
    let spec = ReceiveSpec { target: target.into(), ..ReceiveSpec::default() };
    pool.streams().receive(&spec, &mut stream, &mut Quiet).map(|_| ())
}

/// A stream that ends where somebody hangs up.
struct Short(Vec<u8>);

impl Write for Short {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > STREAM_MAX {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn snapshot(pool: &Pool, name: &str) -> Result<(), Error> {
    pool.datasets().take_snapshots(&[name.to_owned()], &BTreeMap::new())
}

/// Puts one of each structure into a pool.
///
/// # Errors
/// The pool's error.
pub fn furnish(pool: &Pool, env: &Env) -> Result<(), Error> {
    let datasets = pool.datasets();
    datasets.create_dataset("tank/vault", BTreeMap::new(), Some(world::new_key(env)?))?;
    {
        let (fs, _handle) = world::files(pool, "tank/vault")?;
        put(&fs, ROOT, b"secret", &Draw(3).bytes(30_000)).expect("nobody spoiled it");
        fs.forget_all();
    }
    snapshot(pool, "tank/vault@a")?;
    let spec = SendSpec { snapshot: "tank/vault@a".into(), raw: true, ..SendSpec::default() };
    let mut stream = Short(Vec::new());
    pool.streams().send(&[spec], &mut stream, &mut |_, _| ())?;
    receive(pool, "tank/raw", &stream.0)?;
    datasets.create_dataset("tank/fs", BTreeMap::new(), None)?;
    let mut draw = Draw(5);
    {
        let (fs, _handle) = world::files(pool, "tank/fs")?;
        fill(&fs, &mut draw).expect("nobody spoiled it");
        fs.forget_all();
    }
    pool.sync()?;
    snapshot(pool, "tank/fs@a")?;
    {
        let (fs, _handle) = world::files(pool, "tank/fs")?;
        alter(&fs, &mut draw).expect("nobody spoiled it");
        fs.forget_all();
    }
    pool.sync()?;
    snapshot(pool, "tank/fs@b")?;
    datasets.add_bookmark("tank/fs@a", "mark")?;
    for (name, value) in [
        ("quota", "1073741824"),
        ("refquota", "1073741824"),
        ("userquota@7", "1073741824"),
        ("refreservation", "1048576"),
    ] {
        datasets.set_property("tank/fs", name, Some(value))?;
    }
    datasets.set_property("tank", "quota", Some("1073741824"))?;
    datasets.hold(&["tank/fs@b".to_owned()], "kept")?;
    datasets.clone_snapshot("tank/fs@a", "tank/clone", BTreeMap::new())?;
    {
        let (fs, _handle) = world::files(pool, "tank/clone")?;
        let file = fs.lookup(ROOT, b"sparse").expect("found").ino;
        fs.write(file, 0, &draw.bytes(9_000), false).expect("written");
        fs.forget_all();
    }
    datasets.create_volume(
        "tank/vol",
        BTreeMap::new(),
        None,
        VolumeSpec { bytes: 1 << 20, block_bytes: 4096 },
    )?;
    {
        let (fs, _handle) = world::files(pool, "tank/fs")?;
        let file = fs.lookup(ROOT, b"large").expect("found").ino;
        fs.write(file, 5_000, &draw.bytes(2_000), false).expect("written");
        fs.forget_all();
    }
    pool.sync()
}

/// Has changes of all kinds promised by the intent log, if the pool has one.
///
/// # Errors
/// The pool's error.
pub fn promise(pool: &Pool) -> Result<(), Error> {
    let (fs, _handle) = world::files(pool, "tank/fs")?;
    let mut draw = Draw(6);
    let mut change = || {
        let file = put(&fs, ROOT, b"promised", &draw.bytes(7_000))?;
        fs.setxattr(file, b"user.promised", b"value", 0)?;
        let sparse = fs.lookup(ROOT, b"sparse")?.ino;
        fs.setattr(sparse, &SetAttr { size: Some(3_000), ..SetAttr::default() })?;
        fs.write(sparse, 1_000, &draw.bytes(500), false)?;
        fs.unlink(ROOT, b"copy")?;
        fs.rename(ROOT, b"moved", ROOT, b"moved again", 0)?;
        fs.mkdir(ME, ROOT, b"promised folder", 0o755)?;
        fs.symlink(ME, ROOT, b"promised link", b"large")?;
        fs.fsync(file)
    };
    change().expect("nobody spoiled it");
    fs.forget_all();
    Ok(())
}

type Answer = Result<(), steadfast_posix::Errno>;

fn put(fs: &FileSystem, parent: u64, name: &[u8], data: &[u8]) -> Result<u64, steadfast_posix::Errno> {
    let made = fs.mknod(ME, parent, name, 0o100_644, 0)?;
    fs.write(made.ino, 0, data, false)?;
    Ok(made.ino)
}

fn fill(fs: &FileSystem, draw: &mut Draw) -> Answer {
    let folder = fs.mkdir(ME, ROOT, b"folder", 0o755)?.ino;
    for at in 0..8_usize {
        put(fs, folder, format!("file {at}").as_bytes(), &draw.bytes(at * at * 400 + 1))?;
    }
    let large = put(fs, ROOT, b"large", &draw.bytes(150_000))?;
    let copy = fs.mknod(ME, ROOT, b"copy", 0o100_644, 0)?.ino;
    fs.copy_file_range(large, 0, copy, 0, 150_000)?;
    let sparse = put(fs, ROOT, b"sparse", b"begin")?;
    fs.write(sparse, 700_017, &draw.bytes(20_000), false)?;
    fs.setxattr(sparse, b"user.short", b"value", 0)?;
    fs.setxattr(sparse, b"user.long", &draw.bytes(5_000), 0)?;
    fs.symlink(ME, ROOT, b"link", b"folder/file 7")?;
    fs.link(sparse, folder, b"second name")?;
    Ok(())
}

fn alter(fs: &FileSystem, draw: &mut Draw) -> Answer {
    let folder = fs.lookup(ROOT, b"folder")?.ino;
    fs.unlink(folder, b"file 3")?;
    fs.rename(folder, b"file 5", ROOT, b"moved", 0)?;
    let file = fs.lookup(folder, b"file 7")?.ino;
    fs.write(file, 1_000, &draw.bytes(3_000), false)?;
    fs.setattr(file, &SetAttr { size: Some(9_000), uid: Some(7), ..SetAttr::default() })?;
    let large = fs.lookup(ROOT, b"large")?.ino;
    fs.write(large, 20_000, &draw.bytes(40_000), false)?;
    put(fs, folder, b"new", &draw.bytes(50_000))?;
    // Open, without a name, when the power goes.
    fs.tmpfile(ME, ROOT, 0o600)?;
    Ok(())
}

/// How much of a pool is used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// All of it.
    Whole,
    /// File systems that were changed and one more, and a drawn part of the verbs: most of the time
    /// of a whole use goes into commits that have nothing to do with the change.
    Part,
}

impl Way {
    /// True if a part is used now.
    pub fn wants(self, draw: &mut Draw, percent: usize) -> bool {
        self == Way::Whole || draw.percent(percent)
    }
}

/// Uses a pool; of its file systems those that were changed at least.
pub fn use_pool(pool: &Pool, way: Way, changed: &[String], draw: &mut Draw) {
    let datasets = pool.datasets();
    let _ = pool.history();
    let _ = pool.state();
    for name in ["tank/vault", "tank/raw"] {
        let _ = datasets.load_key(name, &world::SECRET, false);
    }
    let mut names = datasets.names();
    if way == Way::Part {
        let one_more = (!names.is_empty()).then(|| draw.pick(&names).clone());
        names.retain(|name| changed.contains(name) || one_more.as_ref() == Some(name));
    }
    let writes = way.wants(draw, 50);
    for name in names.iter().take(12) {
        let _ = datasets.dataset_info(name);
        let _ = datasets.snapshot_infos(name, None);
        let _ = datasets.owner_uses(name);
        let Ok((fs, handle)) = world::files(pool, name) else { continue };
        look(&fs);
        if writes {
            let _ = change_some(&fs, draw);
        }
        let snapshots = handle.snapshots();
        for (name, _) in snapshots.list().into_iter().take(4) {
            let Some(opened) = snapshots.open(&name) else { continue };
            if let Some(dataset) = opened.with(std::sync::Arc::clone) {
                look(&world::snapshot(&dataset));
            }
        }
        fs.forget_all();
    }
    if writes {
        let _ = pool.sync();
    }
    if way.wants(draw, 25) {
        send_and_receive(pool);
    }
    if way.wants(draw, 50) {
        for (base, target) in [("tank/fs@a", "tank/fs@b"), ("tank/fs@a", "tank/clone")] {
            let _ = datasets.diff(base, target);
        }
        let _ = datasets.reclaimable(&["tank/fs@a".to_owned()]);
    }
    if way.wants(draw, 25) {
        let _ = pool.devices().scrub(ScrubCommand::Start);
        steps(pool);
    }
    if way.wants(draw, 20) {
        let _ = pool.prune_known(None, Some(50));
    }
    if way.wants(draw, 25) {
        if draw.percent(50) {
            let _ = datasets.promote("tank/clone");
        }
        let _ = datasets.rename_dataset("tank/raw", "tank/clone/raw");
        let _ = datasets.set_property("tank/fs", "quota", Some("2147483648"));
        let _ = datasets.destroy_snapshots(&["tank/fs@a".to_owned()], false);
        let _ = datasets.rollback("tank/fs@z");
    }
    if way.wants(draw, 25) {
        destroy_all(pool);
    }
}

fn send_and_receive(pool: &Pool) {
    let _ = snapshot(pool, "tank/fs@z");
    for base in [None, Some("tank/fs@b".to_owned())] {
        let spec = SendSpec { snapshot: "tank/fs@z".into(), base, ..SendSpec::default() };
        let mut stream = Short(Vec::new());
        if pool.streams().send(&[spec], &mut stream, &mut |_, _| ()).is_ok() {
            let _ = receive(pool, "tank/copy", &stream.0);
        }
    }
}

fn destroy_all(pool: &Pool) {
    let datasets = pool.datasets();
    for name in [
        "tank/clone/raw",
        "tank/raw",
        "tank/clone",
        "tank/vol",
        "tank/copy",
        "tank/new",
        "tank/fs",
        "tank/clone",
    ] {
        let _ = datasets.release(&["tank/fs@b".to_owned()], "kept");
        let _ = datasets.destroy_with_snapshots(name);
    }
    let _ = pool.sync();
    steps(pool);
}

fn steps(pool: &Pool) {
    for _ in 0..STEPS_MAX {
        if pool.suspended().is_some() || pool.scan_remaining() == [0, 0] {
            return;
        }
        pool.step();
    }
}

/// Lists and reads, from the root on.
fn look(fs: &FileSystem) {
    let mut folders = vec![ROOT];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        let mut at = 0;
        for _ in 0..LISTINGS_MAX {
            let mut found = Vec::new();
            let listed = fs.readdir(folder, at, |entry| {
                at = entry.cookie;
                found.push((entry.name, entry.kind));
                found.len() < 8
            });
            for (name, kind) in &found {
                seen += 1;
                if seen > ENTRIES_MAX {
                    return;
                }
                if name == b"." || name == b".." {
                    continue;
                }
                let Ok(entry) = fs.lookup(folder, name) else { continue };
                if *kind == 4 {
                    folders.push(entry.ino);
                }
                look_at(fs, entry.ino, entry.attr.size);
                fs.forget(entry.ino, 1);
            }
            if listed.is_err() || found.is_empty() {
                break;
            }
        }
    }
    let _ = fs.statfs();
}

fn look_at(fs: &FileSystem, ino: u64, size: u64) {
    let mut bytes = vec![0; 64 << 10];
    for offset in [0, size / 2, size.saturating_sub(1)] {
        let _ = fs.read(ino, offset, &mut bytes);
    }
    let _ = fs.seek(ino, 0, true);
    let _ = fs.seek(ino, 0, false);
    let _ = fs.readlink(ino);
    for name in fs.listxattr(ME, ino).unwrap_or_default() {
        let _ = fs.getxattr(ino, &name);
    }
}

/// Changes some of what is there. Each error ends one of the changes.
fn change_some(fs: &FileSystem, draw: &mut Draw) -> Answer {
    let mut names = Vec::new();
    let listed = fs.readdir(ROOT, 0, |entry| {
        names.push((entry.name, entry.kind, entry.ino));
        names.len() < 20
    });
    let _ = listed;
    if let Ok(file) = put(fs, ROOT, b"made", &draw.bytes(9_000)) {
        let _ = fs.fsync(file);
        let _ = fs.rename(ROOT, b"made", ROOT, b"made again", 0);
        let _ = fs.setxattr(file, b"user.new", b"value", 0);
        let _ = fs.link(file, ROOT, b"made twice");
    }
    for (name, kind, ino) in &names {
        if name == b"." || name == b".." {
            continue;
        }
        let _ = fs.lookup(ROOT, name);
        match draw.below(5) {
            0 => {
                let _ = fs.write(*ino, 3_000, &draw.bytes(9_000), false);
                let _ = fs.fsync(*ino);
            }
            1 => _ = fs.setattr(*ino, &SetAttr { size: Some(1_000), gid: Some(9), ..SetAttr::default() }),
            2 => {
                let _ = if *kind == 4 { fs.rmdir(ROOT, name) } else { fs.unlink(ROOT, name) };
            }
            3 => _ = fs.rename(ROOT, name, ROOT, b"made again", 0),
            _ => _ = fs.link(*ino, ROOT, &[name, &b"+"[..]].concat()),
        }
    }
    let _ = fs.tmpfile(ME, ROOT, 0o600);
    Ok(())
}
