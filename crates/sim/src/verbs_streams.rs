//! Verbs of streams and volumes, with the power gone at any write of them ([`crate::verbs`]). A
//! stream goes from a pool into itself: it begins and ends where it is received, and what it was
//! made of is part of what must stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_format::KeyFormat;
use steadfast_model::Model;
use steadfast_pool::{
    NewKey, Pool, ReceiveSpec, ReceiveWatch, Redundancy, SendSpec, VolumeSpec, new_user_key,
};
use steadfast_posix::Caller;

use crate::base::Failure;
use crate::draw::Draw;
use crate::verbs::{KEY, Machine, Verb, nothing, said, take};
use crate::verbs_snapshots::with_clone;
use crate::world;

/// Inode of a volume's only file.
const VOLUME: u64 = 1;
/// Bytes of a file that compresses.
const SOFT: usize = 150_000;
/// A volume's block.
const BLOCK: u32 = 16 << 10;

/// Nobody uses what is received into.
struct Quiet;

impl ReceiveWatch for Quiet {
    fn before(&mut self, _: &str) -> Result<(), steadfast_pool::Error> {
        Ok(())
    }
    fn after(&mut self, _: &str) {}
    fn progress(&mut self, _: &str, _: u64) {}
}

/// A snapshot as a stream.
///
/// # Errors
/// The pool's error.
pub fn send(pool: &Pool, spec: SendSpec) -> Result<Vec<u8>, steadfast_pool::Error> {
    let mut out = Vec::new();
    pool.streams().send(&[spec], &mut out, &mut |_, _| ())?;
    Ok(out)
}

/// Receives a stream.
///
/// # Errors
/// The pool's error.
pub fn receive(pool: &Pool, spec: &ReceiveSpec, mut stream: &[u8]) -> Result<(), steadfast_pool::Error> {
    pool.streams().receive(spec, &mut stream, &mut Quiet).map(drop)
}

/// Increment of a snapshot over another one.
pub(crate) fn of(snapshot: &str, base: Option<&str>) -> SendSpec {
    SendSpec { snapshot: snapshot.into(), base: base.map(str::to_owned), ..SendSpec::default() }
}

pub(crate) fn into(target: &str, force: bool) -> ReceiveSpec {
    ReceiveSpec { target: target.into(), force, ..ReceiveSpec::default() }
}

/// Sends a snapshot, or what it has beyond another one, into a dataset of the same pool.
fn copy(pool: &Pool, snapshot: &str, base: Option<&str>, target: &str, force: bool) -> Result<(), Failure> {
    let stream = send(pool, of(snapshot, base)).map_err(said)?;
    receive(pool, &into(target, force), &stream).map_err(said)
}

/// The same with records as they are compressed.
fn copy_packed(pool: &Pool, snapshot: &str, base: Option<&str>) -> Result<(), Failure> {
    receive(pool, &into("tank/r", false), &packed(pool, of(snapshot, base))?).map_err(said)
}

/// A stream with records as they are compressed, and it shows.
fn packed(pool: &Pool, spec: SendSpec) -> Result<Vec<u8>, Failure> {
    let plain = send(pool, spec.clone()).map_err(said)?;
    let stream = send(pool, SendSpec { packed: true, ..spec }).map_err(said)?;
    match stream.len() + SOFT / 3 < plain.len() {
        true => Ok(stream),
        false => Err(format!("of {} bytes {} are left", plain.len(), stream.len())),
    }
}

/// A file of records that become less than half, and of one that is not whole; committed.
fn soften(pool: &Pool, seed: u64) -> Result<(), Failure> {
    let mut bytes = Draw(seed).bytes(SOFT);
    bytes.chunks_mut(64).for_each(|chunk| {
        let from = chunk.len() / 4;
        chunk[from..].fill(b'.');
    });
    let (fs, handle) = world::files(pool, "tank").map_err(said)?;
    let _ = fs.unlink(Model::ROOT, b"soft");
    let made = fs.mknod(Caller::ROOT, Model::ROOT, b"soft", 0o100_644, 0);
    let made = made.map_err(|errno| format!("mknod gives {errno:?}"))?;
    fs.write(made.ino, 0, &bytes, false).map_err(|errno| format!("write gives {errno:?}"))?;
    fs.forget_all();
    drop((fs, handle));
    pool.sync().map_err(said)
}

/// Snapshots `a` and `b` of what compresses, and a copy of `a` that came compressed.
fn with_packed(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    soften(pool, 0x10)?;
    take(pool, "a")?;
    machine.change(pool)?;
    soften(pool, 0x11)?;
    take(pool, "b")?;
    copy_packed(pool, "tank@a", None)
}

/// Snapshots `a` and `b`, and a copy of `a`.
fn with_copy(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    take(pool, "a")?;
    machine.change(pool)?;
    take(pool, "b")?;
    copy(pool, "tank@a", None, "tank/r", false)
}

/// The copy of a clone: a snapshot of the clone upon its origin.
fn copy_clone(pool: &Pool) -> Result<(), Failure> {
    let stream = send(pool, of("tank/c@x", Some("tank@b"))).map_err(said)?;
    receive(pool, &into("tank/r", false), &stream).map_err(said)
}

/// A file system with a key of its own, and its snapshot.
fn with_sealed(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    let (props, key) = sealed(machine)?;
    pool.datasets().create_dataset("tank/s", props, Some(key)).map_err(said)?;
    machine.change_of(pool, "tank/s", 0x6)?;
    take_of(pool, "tank/s@a")
}

/// A sealed file system, one below it and a clone, with snapshots that hold what they have not any
/// more; and their key is gone.
pub(crate) fn with_lost_tree(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    with_sealed(machine, pool)?;
    pool.datasets().create_dataset("tank/s/in", Default::default(), None).map_err(said)?;
    machine.change_of(pool, "tank/s/in", 0x15)?;
    take_of(pool, "tank/s/in@a")?;
    machine.change_of(pool, "tank/s", 0x16)?;
    pool.datasets().clone_snapshot("tank/s@a", "tank/t", Default::default()).map_err(said)?;
    machine.change_of(pool, "tank/t", 0x17)?;
    take_of(pool, "tank/t@x")?;
    machine.change_of(pool, "tank/t", 0x18)?;
    pool.datasets().unload_key("tank/s").map_err(said)
}

/// Properties and key of what is sealed.
fn sealed(machine: &Machine) -> Result<(BTreeMap<String, String>, NewKey), Failure> {
    let random = |out: &mut [u8]| machine.env.random.fill(out);
    let user = new_user_key(KeyFormat::Raw, &KEY, &random, None).map_err(said)?;
    let props = BTreeMap::from([("keylocation".to_owned(), "prompt".to_owned())]);
    Ok((props, NewKey { user: Arc::new(user) }))
}

/// A volume with a key of its own, a raw copy of its snapshot, and another one of what it became
/// since: longer.
fn with_sealed_volume(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    let (props, key) = sealed(machine)?;
    let spec = VolumeSpec { bytes: 40 * u64::from(BLOCK), block_bytes: BLOCK };
    pool.datasets().create_volume("tank/s", props, Some(key), spec).map_err(said)?;
    write(pool, "tank/s", &[(0, 100_000), (300_000, 50_000)], 0x12)?;
    take_of(pool, "tank/s@a")?;
    copy_raw(pool, "tank/s@a", None)?;
    pool.datasets().grow_volume("tank/s", 60 * u64::from(BLOCK)).map_err(said)?;
    write(pool, "tank/s", &[(10_000, 30_000), (700_000, 90_000)], 0x13)?;
    take_of(pool, "tank/s@b")
}

fn take_of(pool: &Pool, snapshot: &str) -> Result<(), Failure> {
    pool.datasets().take_snapshots(&[snapshot.to_owned()], &Default::default()).map_err(said)
}

/// Sends a sealed snapshot as it is sealed. The snapshot is read, but its nodes are opened only
/// with the key.
fn copy_raw(pool: &Pool, snapshot: &str, base: Option<&str>) -> Result<(), Failure> {
    copy_raw_to(pool, snapshot, base, "tank/r")
}

fn copy_raw_to(pool: &Pool, snapshot: &str, base: Option<&str>, target: &str) -> Result<(), Failure> {
    let stream = send(pool, SendSpec { raw: true, ..of(snapshot, base) }).map_err(said)?;
    receive(pool, &into(target, false), &stream).map_err(said)
}

/// A file system with a key of its own and a raw copy of its snapshot; and a clone of that with a
/// snapshot. Its name comes behind the one of what it takes its key from.
fn with_sealed_clone(machine: &Machine, pool: &Pool) -> Result<(), Failure> {
    with_sealed(machine, pool)?;
    copy_raw(pool, "tank/s@a", None)?;
    pool.datasets().clone_snapshot("tank/s@a", "tank/t", Default::default()).map_err(said)?;
    machine.change_of(pool, "tank/t", 0x14)?;
    take_of(pool, "tank/t@x")
}

/// The raw copy of that clone.
fn copy_clone_raw(pool: &Pool) -> Result<(), Failure> {
    copy_raw_to(pool, "tank/t@x", Some("tank/s@a"), "tank/u")
}

/// A volume with something in it.
fn with_volume(_: &Machine, pool: &Pool) -> Result<(), Failure> {
    make_volume(pool)?;
    write(pool, "tank/v", &[(0, 100_000), (300_000, 50_000)], 0x7)
}

fn make_volume(pool: &Pool) -> Result<(), Failure> {
    let spec = VolumeSpec { bytes: 40 * u64::from(BLOCK), block_bytes: BLOCK };
    pool.datasets().create_volume("tank/v", Default::default(), None, spec).map(drop).map_err(said)
}

/// Other content, committed.
fn write(pool: &Pool, name: &str, ranges: &[(u64, usize)], seed: u64) -> Result<(), Failure> {
    let mut draw = Draw(seed);
    let (fs, handle) = world::files(pool, name).map_err(said)?;
    for &(at, bytes) in ranges {
        let written = fs.write(VOLUME, at, &draw.bytes(bytes), false);
        written.map_err(|errno| format!("write gives {errno:?}"))?;
    }
    drop((fs, handle));
    pool.sync().map_err(said)
}

const ONE: &[(Redundancy, usize)] = &[(Redundancy::None, 1)];

const fn verb(
    name: &'static str,
    before: fn(&Machine, &Pool) -> Result<(), Failure>,
    act: fn(&Machine, &Pool) -> Result<(), Failure>,
) -> Verb {
    Verb { name, groups: ONE, spare: 0, short: None, spoilt: &[], before, act }
}

/// Verbs of streams: a receive is some commits, of which the last one shows all of it.
pub const STREAM_VERBS: &[Verb] = &[
    verb(
        "receive a whole snapshot",
        |_, pool| take(pool, "a"),
        |_, pool| copy(pool, "tank@a", None, "tank/r", false),
    ),
    verb("receive an increment", with_copy, |_, pool| copy(pool, "tank@b", Some("tank@a"), "tank/r", false)),
    verb(
        "receive a whole snapshot compressed",
        |_, pool| {
            soften(pool, 0x10)?;
            take(pool, "a")
        },
        |_, pool| copy_packed(pool, "tank@a", None),
    ),
    verb("receive an increment compressed", with_packed, |_, pool| {
        copy_packed(pool, "tank@b", Some("tank@a"))
    }),
    verb(
        "go on with half of a compressed increment",
        |machine, pool| {
            with_packed(machine, pool)?;
            let stream = packed(pool, of("tank@b", Some("tank@a")))?;
            receive_half(pool, &stream)
        },
        |_, pool| {
            let partial = pool.datasets().partial("tank/r").ok_or("half of it was kept")?;
            if !partial.packed {
                return Err("what is left of it would not go compressed".into());
            }
            let spec = SendSpec { resume: Some(partial.position), ..of("tank@b", Some("tank@a")) };
            let stream = send(pool, SendSpec { packed: true, ..spec }).map_err(said)?;
            receive(pool, &into("tank/r", false), &stream).map_err(said)
        },
    ),
    verb(
        "receive an increment upon what was changed",
        |machine, pool| {
            with_copy(machine, pool)?;
            machine.change_of(pool, "tank/r", 0x8)?;
            take_of(pool, "tank/r@own")?;
            machine.change_of(pool, "tank/r", 0x9)
        },
        |_, pool| copy(pool, "tank@b", Some("tank@a"), "tank/r", true),
    ),
    verb(
        "receive a whole snapshot into the place of what is there",
        |machine, pool| {
            take(pool, "a")?;
            pool.datasets().create_dataset("tank/r", Default::default(), None).map_err(said)?;
            machine.change_of(pool, "tank/r", 0x8)
        },
        |_, pool| copy(pool, "tank@a", None, "tank/r", true),
    ),
    verb("receive half of an increment, and give it up", with_copy, |_, pool| {
        receive_half(pool, &increment(pool)?)?;
        pool.datasets().abort_receive("tank/r").map_err(said)
    }),
    verb(
        "go on with half of an increment",
        |machine, pool| {
            with_copy(machine, pool)?;
            receive_half(pool, &increment(pool)?)
        },
        |_, pool| {
            let partial = pool.datasets().partial("tank/r").ok_or("half of it was kept")?;
            let spec = SendSpec { resume: Some(partial.position), ..of("tank@b", Some("tank@a")) };
            let stream = send(pool, spec).map_err(said)?;
            receive(pool, &into("tank/r", false), &stream).map_err(said)
        },
    ),
    verb("receive a clone", with_clone, |_, pool| copy_clone(pool)),
    verb(
        "receive an increment into a clone",
        |machine, pool| {
            with_clone(machine, pool)?;
            copy_clone(pool)?;
            take_of(pool, "tank/c@y")
        },
        |_, pool| copy(pool, "tank/c@y", Some("tank/c@x"), "tank/r", false),
    ),
    verb(
        "receive an increment into a clone that was changed",
        |machine, pool| {
            with_clone(machine, pool)?;
            copy_clone(pool)?;
            machine.change_of(pool, "tank/r", 0x8)?;
            take_of(pool, "tank/r@own")?;
            machine.change_of(pool, "tank/r", 0x9)?;
            take_of(pool, "tank/c@y")
        },
        |_, pool| copy(pool, "tank/c@y", Some("tank/c@x"), "tank/r", true),
    ),
    verb("receive a whole snapshot raw", with_sealed, |_, pool| copy_raw(pool, "tank/s@a", None)),
    verb(
        "receive an increment raw",
        |machine, pool| {
            with_sealed(machine, pool)?;
            copy_raw(pool, "tank/s@a", None)?;
            machine.change_of(pool, "tank/s", 0xa)?;
            take_of(pool, "tank/s@b")
        },
        |_, pool| copy_raw(pool, "tank/s@b", Some("tank/s@a")),
    ),
    verb("receive a clone raw", with_sealed_clone, |_, pool| copy_clone_raw(pool)),
    verb(
        "receive an increment into a clone raw",
        |machine, pool| {
            with_sealed_clone(machine, pool)?;
            copy_clone_raw(pool)?;
            machine.change_of(pool, "tank/t", 0x15)?;
            take_of(pool, "tank/t@y")
        },
        |_, pool| copy_raw_to(pool, "tank/t@y", Some("tank/t@x"), "tank/u"),
    ),
    verb(
        "go on with half of a raw clone",
        |machine, pool| {
            with_sealed_clone(machine, pool)?;
            let spec = SendSpec { raw: true, ..of("tank/t@x", Some("tank/s@a")) };
            let stream = send(pool, spec).map_err(said)?;
            receive_half_to(pool, &stream, "tank/u")
        },
        |_, pool| {
            let partial = pool.datasets().partial("tank/u").ok_or("half of it was kept")?;
            let resume = Some(partial.position);
            let spec = SendSpec { raw: true, resume, ..of("tank/t@x", Some("tank/s@a")) };
            let stream = send(pool, spec).map_err(said)?;
            receive(pool, &into("tank/u", false), &stream).map_err(said)
        },
    ),
    verb("receive an increment of a volume raw", with_sealed_volume, |_, pool| {
        copy_raw(pool, "tank/s@b", Some("tank/s@a"))
    }),
    verb(
        "receive a volume's snapshot",
        |machine, pool| {
            with_volume(machine, pool)?;
            take_of(pool, "tank/v@a")
        },
        |_, pool| copy(pool, "tank/v@a", None, "tank/r", false),
    ),
    verb(
        "receive an increment of a volume that became longer",
        |machine, pool| {
            with_volume(machine, pool)?;
            take_of(pool, "tank/v@a")?;
            copy(pool, "tank/v@a", None, "tank/r", false)?;
            pool.datasets().grow_volume("tank/v", 60 * u64::from(BLOCK)).map_err(said)?;
            write(pool, "tank/v", &[(10_000, 30_000), (700_000, 90_000)], 0xb)?;
            take_of(pool, "tank/v@b")
        },
        |_, pool| copy(pool, "tank/v@b", Some("tank/v@a"), "tank/r", false),
    ),
];

/// Increment of `b` over `a`.
fn increment(pool: &Pool) -> Result<Vec<u8>, Failure> {
    send(pool, of("tank@b", Some("tank@a"))).map_err(said)
}

/// Receives half of an increment, and keeps it.
fn receive_half(pool: &Pool, stream: &[u8]) -> Result<(), Failure> {
    receive_half_to(pool, stream, "tank/r")
}

fn receive_half_to(pool: &Pool, stream: &[u8], target: &str) -> Result<(), Failure> {
    let spec = ReceiveSpec { keep: true, ..into(target, false) };
    match receive(pool, &spec, &stream[..stream.len() / 2]) {
        Ok(()) => Err("half a stream is received as if it were one".into()),
        Err(_) => Ok(()),
    }
}

/// Verbs of volumes.
pub const VOLUME_VERBS: &[Verb] = &[
    verb("create a volume", nothing, |_, pool| make_volume(pool)),
    verb("write to a volume", with_volume, |_, pool| {
        write(pool, "tank/v", &[(5, 4_000), (90_000, 40_000), (600_000, 20_000)], 0xc)
    }),
    verb("make a volume longer", with_volume, |_, pool| {
        pool.datasets().grow_volume("tank/v", 50 * u64::from(BLOCK)).map_err(said)
    }),
    verb("take a snapshot of a volume", with_volume, |_, pool| take_of(pool, "tank/v@a")),
    verb(
        "roll a volume back to what it was, and how long",
        |machine, pool| {
            with_volume(machine, pool)?;
            take_of(pool, "tank/v@a")?;
            pool.datasets().grow_volume("tank/v", 50 * u64::from(BLOCK)).map_err(said)?;
            write(pool, "tank/v", &[(20_000, 60_000), (700_000, 60_000)], 0xd)
        },
        |machine, pool| {
            pool.datasets().rollback("tank/v@a").map_err(said)?;
            machine.finish(pool)
        },
    ),
    verb(
        "clone a volume",
        |machine, pool| {
            with_volume(machine, pool)?;
            take_of(pool, "tank/v@a")
        },
        |_, pool| {
            pool.datasets().clone_snapshot("tank/v@a", "tank/c", Default::default()).map(drop).map_err(said)
        },
    ),
    verb(
        "destroy a snapshot of a volume",
        |machine, pool| {
            with_volume(machine, pool)?;
            take_of(pool, "tank/v@a")?;
            write(pool, "tank/v", &[(20_000, 60_000)], 0xe)
        },
        |machine, pool| {
            pool.datasets().destroy_snapshots(&["tank/v@a".into()], false).map_err(said)?;
            machine.finish(pool)
        },
    ),
    verb(
        "destroy a volume and its snapshots",
        |machine, pool| {
            with_volume(machine, pool)?;
            take_of(pool, "tank/v@a")?;
            write(pool, "tank/v", &[(20_000, 60_000)], 0xf)
        },
        |machine, pool| {
            pool.datasets().destroy_with_snapshots("tank/v").map_err(said)?;
            machine.finish(pool)
        },
    ),
];
