//! Content that several pointers lead to goes once in a stream, and is shared where it arrives, or
//! copied where it cannot be.

use crate::hosts;
use std::collections::BTreeMap;

use crate::common::{self, Dice, ME, ROOT, mount, noise, write_file};
use crate::hosts::{Cuts, Host, WRITES, frames, joined_behind, same, snapshot_tree, truncate};
use steadfast_format::InodeId;
use steadfast_format::stream::{FrameKind, Repeat, StreamHeader};
use steadfast_pool::{Error, ReceiveSpec, SendSpec};

const KEY: [u8; 32] = [1; 32];
const RECORD: u64 = 128 << 10;
/// Of most files here: records, and a part of one.
const BYTES: usize = (3 << 20) + 1_000;

fn spec(snapshot: &str, base: Option<&str>) -> SendSpec {
    let base = base.map(str::to_owned);
    SendSpec { snapshot: snapshot.into(), base, ..SendSpec::default() }
}

fn into(target: &str) -> ReceiveSpec {
    ReceiveSpec { target: target.into(), ..ReceiveSpec::default() }
}

fn send(host: &Host, plan: &[SendSpec]) -> Vec<u8> {
    let mut stream = Vec::new();
    host.pool.streams().send(plan, &mut stream, &mut |_, _| ()).expect("sent");
    stream
}

/// A pool with a file system, and a file `a` in it that is stored.
fn one() -> Host {
    let one = Host::new("one", 128);
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    write_file(&mount(&one.pool, "one/fs").0, ROOT, b"a", &noise(1, BYTES));
    one
}

/// Makes a file of what another one is, by reference.
fn copy(host: &Host, name: &str, from: &[u8], to: &[u8]) {
    // Stored content is shared.
    host.pool.sync().expect("committed");
    let (fs, _handle) = mount(&host.pool, name);
    let source = fs.lookup(ROOT, from).expect("found");
    let target = fs.mknod(ME, ROOT, to, 0o100_644, 0).expect("made");
    let copied = fs.copy_file_range(source.ino, 0, target.ino, 0, source.attr.size).expect("copied");
    assert_eq!(copied, source.attr.size);
    fs.forget(source.ino, 1);
    fs.forget(target.ino, 1);
}

/// Bytes that the repeats of a stream stand for.
fn repeated(stream: &[u8]) -> u64 {
    let mut bytes = 0;
    for (_, payload) in frames(stream).iter().filter(|(kind, _)| *kind == FrameKind::Repeats) {
        let repeats = payload.chunks(Repeat::SIZE).map(|bytes| Repeat::decode(bytes).expect("a repeat"));
        bytes += repeats.map(|repeat| repeat.length).sum::<u64>();
    }
    bytes
}

#[test]
fn copies_within_a_file_system_go_once_and_are_shared() {
    let one = one();
    for name in [b"b", b"c"] {
        copy(&one, "one/fs", b"a", name);
    }
    {
        // A record of one's own in the middle of what is shared.
        let (fs, _handle) = mount(&one.pool, "one/fs");
        let file = fs.lookup(ROOT, b"c").expect("found").ino;
        fs.write(file, 5 * RECORD + 7, b"own", false).expect("written");
    }
    one.snapshot("one/fs@1");
    for packed in [false, true] {
        let two = Host::new("second", 128);
        let live = two.live();
        let stream = send(&one, &[SendSpec { packed, ..spec("one/fs@1", None) }]);
        assert_eq!(stream[12] & 4, 4);
        assert_eq!(repeated(&stream), 2 * BYTES as u64 - RECORD, "packed: {packed}");
        assert!(stream.len() < BYTES + 400_000, "{} bytes", stream.len());
        two.receive("second/copy", &stream).expect("received");
        let two = two.crash();
        two.check();
        same((&one.pool, "one/fs"), (&two.pool, "second/copy"), packed);
        assert!(two.live() - live < BYTES as u64 + 600_000, "{} bytes", two.live() - live);
        assert_eq!(two.pool.sharing().sums.shared, one.pool.sharing().sums.shared);
        // Each reference is let go by itself.
        let (fs, handle) = mount(&two.pool, "second/copy");
        for name in [b"a", b"c"] {
            fs.unlink(ROOT, name).expect("removed");
        }
        drop((fs, handle));
        two.pool.datasets().destroy_snapshots(&["second/copy@1".into()], false).expect("destroyed");
        two.check();
        assert_eq!(common::read_file(&mount(&two.pool, "second/copy").0, ROOT, b"b"), noise(1, BYTES));
    }
}

#[test]
fn what_file_systems_share_is_shared_where_no_key_parts_them() {
    let one = Host::new("one", 128);
    let dedup = BTreeMap::from([("dedup".to_owned(), "on".to_owned())]);
    one.pool.datasets().create_dataset("one/t", dedup, None).expect("made");
    for (seed, fs) in [(2, "one/t/a"), (3, "one/t/b")] {
        one.pool.datasets().create_dataset(fs, BTreeMap::new(), None).expect("made");
        write_file(&mount(&one.pool, fs).0, ROOT, b"file", &noise(1, BYTES));
        write_file(&mount(&one.pool, fs).0, ROOT, b"own", &noise(seed, 100_000));
        one.pool.sync().expect("committed");
    }
    let names = ["one/t@1", "one/t/a@1", "one/t/b@1"];
    one.pool.datasets().take_snapshots(&names.map(String::from), &BTreeMap::new()).expect("taken");
    let plan = names.map(|name| spec(name, None));
    let stream = send(&one, &plan);
    assert!(repeated(&stream) >= BYTES as u64 - 1_000 && stream.len() < BYTES + 800_000);

    let two = Host::new("second", 128);
    let live = two.live();
    two.receive("second/open", &stream).expect("received");
    two.check();
    assert!(two.live() - live < BYTES as u64 + 800_000, "{} bytes", two.live() - live);
    assert!(two.pool.sharing().saved_bytes() >= BYTES as u64 - 1_000);
    // Below a key each has a key of its own: what is named is copied.
    let key = common::key(&two.env, &KEY);
    two.pool.datasets().create_dataset("second/safe", BTreeMap::new(), Some(key)).expect("made");
    let saved = two.pool.sharing().saved_bytes();
    two.receive("second/safe/sealed", &stream).expect("received");
    assert_eq!(two.pool.sharing().saved_bytes(), saved);
    for below in ["a", "b"] {
        for target in ["second/open", "second/safe/sealed"] {
            let (from, to) = (format!("one/t/{below}"), format!("{target}/{below}"));
            same((&one.pool, from.as_str()), (&two.pool, to.as_str()), &to);
        }
    }
    two.pool.datasets().destroy_with_snapshots("second/open/a").expect("destroyed");
    same((&one.pool, "one/t/b"), (&two.pool, "second/open/b"), "what shared with it is gone");
    two.check_with(Some(&KEY));
}

/// A replica has the snapshot's own guid, and where `dedup` found its content, its blocks too.
#[test]
fn a_file_system_and_its_replica_go_in_one_stream() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    let dedup = BTreeMap::from([("dedup".to_owned(), "on".to_owned())]);
    one.pool.datasets().create_dataset("one/t", dedup, None).expect("made");
    one.pool.datasets().create_dataset("one/t/a", BTreeMap::new(), None).expect("made");
    write_file(&mount(&one.pool, "one/t/a").0, ROOT, b"file", &noise(1, BYTES));
    let names = ["one/t@1", "one/t/a@1"].map(String::from);
    one.pool.datasets().take_snapshots(&names, &BTreeMap::new()).expect("taken");
    one.receive("one/t/b", &send(&one, &[spec("one/t/a@1", None)])).expect("received");
    let plan = ["one/t@1", "one/t/a@1", "one/t/b@1"].map(|name| spec(name, None));
    let stream = send(&one, &plan);
    assert!(repeated(&stream) >= BYTES as u64 - 1_000, "{}", repeated(&stream));
    two.receive("second/t", &stream).expect("received");
    for name in ["a", "b"] {
        let (from, to) = (format!("one/t/{name}"), format!("second/t/{name}"));
        same((&one.pool, from.as_str()), (&two.pool, to.as_str()), name);
    }
    two.check();
}

#[test]
fn a_snapshot_repeats_what_one_before_it_in_the_stream_brought_and_no_other() {
    let (one, two) = (one(), Host::new("second", 128));
    one.snapshot("one/fs@1");
    copy(&one, "one/fs", b"a", b"b");
    one.snapshot("one/fs@2");
    mount(&one.pool, "one/fs").0.unlink(ROOT, b"a").expect("removed");
    copy(&one, "one/fs", b"b", b"c");
    one.snapshot("one/fs@3");
    let plan = [("1", None), ("2", Some("one/fs@1")), ("3", Some("one/fs@2"))];
    let plan = plan.map(|(name, base)| spec(&format!("one/fs@{name}"), base));
    let stream = send(&one, &plan);
    assert_eq!(repeated(&stream), 2 * BYTES as u64);
    assert!(stream.len() < BYTES + 400_000);
    let key = common::key(&two.env, &KEY);
    two.pool.datasets().create_dataset("second/safe", BTreeMap::new(), Some(key)).expect("made");
    for target in ["second/copy", "second/safe/copy"] {
        let live = two.live();
        two.receive(target, &stream).expect("received");
        two.check_with(Some(&KEY));
        // Of one file system, so with one key.
        assert!(two.live() - live < BYTES as u64 + 800_000, "{target}: {} bytes", two.live() - live);
        for name in ["1", "2", "3"] {
            let (from, to) = (format!("one/fs@{name}"), format!("{target}@{name}"));
            assert!(snapshot_tree(&one.pool, &from) == snapshot_tree(&two.pool, &to), "{to}");
        }
        // The named snapshot may go, and its references stay.
        two.pool
            .datasets()
            .destroy_snapshots(&[format!("{target}@1"), format!("{target}@2")], false)
            .expect("gone");
        two.check_with(Some(&KEY));
        same((&one.pool, "one/fs"), (&two.pool, target), target);
    }
    // By itself an increment has nothing to name: what it shares with its base comes again.
    let alone = send(&one, &[spec("one/fs@2", Some("one/fs@1"))]);
    assert!(repeated(&alone) == 0 && alone.len() > BYTES);
    two.receive("second/again", &send(&one, &plan[..1])).expect("received");
    two.receive("second/again", &alone).expect("received");
    assert!(snapshot_tree(&one.pool, "one/fs@2") == snapshot_tree(&two.pool, "second/again@2"));
}

#[test]
fn what_breaks_off_among_repeats_goes_on() {
    let one = one();
    let names: Vec<Vec<u8>> = (0..12).map(|at| format!("b{at:02}").into_bytes()).collect();
    for name in &names {
        copy(&one, "one/fs", b"a", name);
    }
    one.snapshot("one/fs@1");
    let whole = send(&one, &[spec("one/fs@1", None)]);
    let keep = ReceiveSpec { keep: true, ..into("second/copy") };
    let mut dice = Dice(5);
    for round in 0..6_usize {
        let mut two = Host::new("second", 128);
        let (mut stream, mut parts) = (whole.clone(), 0);
        while parts < 4 {
            // The end of the stream is where repeats are.
            let from = if round % 2 == 0 { stream.len().saturating_sub(1_500) } else { stream.len() / 3 };
            let at = from + dice.below((stream.len() - from) as u64) as usize;
            two.receive_as(&keep, &stream[..at]).expect_err("cut");
            if parts % 2 == 0 {
                two = two.crash();
            }
            two.check();
            let position = two.pool.datasets().partial("second/copy").expect("kept").position;
            stream = send(&one, &[SendSpec { resume: Some(position), ..spec("one/fs@1", None) }]);
            parts += 1;
        }
        two.receive_as(&keep, &stream).expect("received");
        same((&one.pool, "one/fs"), (&two.pool, "second/copy"), round);
        two.check();
    }
}

#[test]
fn what_did_not_come_with_the_stream_cannot_be_named() {
    let (one, two) = (one(), Host::new("second", 128));
    copy(&one, "one/fs", b"a", b"b");
    one.snapshot("one/fs@1");
    let good = frames(&send(&one, &[spec("one/fs@1", None)]));
    let header = StreamHeader { repeats: true, ..StreamHeader::default() };
    let at = good.iter().position(|(kind, _)| *kind == FrameKind::Repeats).expect("a frame");
    let first = Repeat::decode(&good[at].1).expect("a repeat");
    assert_eq!(first.snapshot, 1);
    let refused = |header: StreamHeader, payload: Vec<u8>, what: &str| {
        let mut frames = good.clone();
        frames[at].1 = payload;
        let error = two.receive("second/copy", &joined_behind(header, &frames)).expect_err(what);
        assert!(matches!(error, Error::StreamDamaged { .. }), "{what}: {error}");
        assert_eq!(two.pool.datasets().names(), ["second"], "{what}");
    };
    let one_of = |repeat: Repeat| repeat.encode().to_vec();
    refused(StreamHeader::default(), good[at].1.clone(), "a header that does not say so");
    refused(header, one_of(Repeat { snapshot: 2, ..first }), "of what comes later");
    refused(header, one_of(Repeat { snapshot: u64::MAX, ..first }), "of nothing");
    refused(header, one_of(Repeat { source: InodeId(999), ..first }), "of no file");
    refused(header, one_of(Repeat { inode: InodeId(999), ..first }), "into no file");
    refused(header, one_of(Repeat { source: InodeId(1), ..first }), "of a folder");
    refused(header, one_of(Repeat { from: BYTES as u64, ..first }), "of what lies behind its end");
    refused(header, one_of(Repeat { offset: BYTES as u64 - 1, ..first }), "to behind its end");
    let itself = Repeat { source: first.inode, from: 0, offset: 1, length: 9, ..first };
    refused(header, one_of(itself), "of itself");
    refused(header, good[at].1[..Repeat::SIZE - 1].to_vec(), "cut");
    refused(header, Vec::new(), "empty");
    two.check();
    // A repeat that is not of whole records is copied.
    let odd = Repeat { offset: 77, from: 1_234_567, length: 700_001, ..first };
    let mut changed = good.clone();
    changed[at].1 = one_of(odd);
    two.receive("second/copy", &joined_behind(header, &changed)).expect("received");
    let file = common::read_file(&mount(&two.pool, "second/copy").0, ROOT, b"b");
    assert!(file[77..700_078] == noise(1, BYTES)[1_234_567..1_934_568]);
    two.check();
}

#[test]
fn a_crash_at_any_write_leaves_all_of_what_repeats_or_nothing() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    write_file(&mount(&one.pool, "one/fs").0, ROOT, b"a", &noise(1, 400_000));
    copy(&one, "one/fs", b"a", b"b");
    one.snapshot("one/fs@1");
    let before = snapshot_tree(&one.pool, "one/fs@1");
    copy(&one, "one/fs", b"b", b"c");
    write_file(&mount(&one.pool, "one/fs").0, ROOT, b"d", &noise(2, 300_000));
    copy(&one, "one/fs", b"d", b"e");
    one.snapshot("one/fs@2");
    let after = snapshot_tree(&one.pool, "one/fs@2");
    let first = send(&one, &[spec("one/fs@1", None)]);
    let second = send(&one, &[spec("one/fs@2", Some("one/fs@1"))]);
    assert!(repeated(&first) == 400_000 && repeated(&second) == 300_000);
    two.pool.sync().expect("committed");
    let empty = two.devices[0].image();
    two.receive("second/copy", &first).expect("received");
    two.check();
    let based = two.devices[0].image();
    let mut dice = Dice(17);
    for (image, stream, old, new) in
        [(&empty, &first, None, &before), (&based, &second, Some(&before), &after)]
    {
        Cuts::new(image, stream, "second/copy", WRITES).each(&mut dice, |host, when| {
            let there = host.pool.datasets().names().contains(&"second/copy".to_owned());
            let found = there.then(|| hosts::tree(&host.pool, "second/copy"));
            let is_new = found.as_ref() == Some(new);
            assert!(is_new || found.as_ref() == old, "{when}: {found:?}");
            is_new
        });
    }
}

/// Random writes, copies, cuts and removals; every third snapshot what is new goes as one stream.
#[test]
fn random_histories_of_copies_arrive_as_they_are() {
    for seed in 0..4_u64 {
        let (one, two) = (Host::new("one", 128), Host::new("second", 128));
        let props = [("recordsize", "16384"), ("dedup", ["off", "on"][seed as usize % 2])];
        let props = props.map(|(name, value)| (name.to_owned(), value.to_owned()));
        one.pool.datasets().create_dataset("one/fs", props.into(), None).expect("made");
        let mut dice = Dice(seed + 40);
        let mut base: Option<String> = None;
        let mut plan = Vec::new();
        for round in 1..10_u64 {
            for _ in 0..12 {
                change(&one, &mut dice);
            }
            let name = format!("one/fs@{round}");
            one.snapshot(&name);
            let packed = seed % 2 == 1;
            plan.push(SendSpec { packed, ..spec(&name, base.as_deref()) });
            base = Some(name.clone());
            if round % 3 == 0 {
                two.receive("second/copy", &send(&one, &plan)).expect("received");
                plan.clear();
                let copy = format!("second/copy@{round}");
                assert!(snapshot_tree(&one.pool, &name) == snapshot_tree(&two.pool, &copy), "{seed} {round}");
                two.check();
            }
        }
        let all: Vec<String> = (1..9).map(|round| format!("second/copy@{round}")).collect();
        two.pool.datasets().destroy_snapshots(&all, false).expect("destroyed");
        two.check();
        assert!(snapshot_tree(&one.pool, "one/fs@9") == snapshot_tree(&two.pool, "second/copy@9"), "{seed}");
    }
}

/// One change of one of eight files.
fn change(host: &Host, dice: &mut Dice) {
    let mut file = || format!("file {}", dice.below(8)).into_bytes();
    let (name, other) = (file(), file());
    if dice.below(3) == 0 {
        host.pool.sync().expect("committed");
    }
    let (fs, _handle) = mount(&host.pool, "one/fs");
    let Ok(found) = fs.lookup(ROOT, &name) else {
        write_file(&fs, ROOT, &name, &noise(dice.below(20), 1 + dice.below(200_000) as usize));
        return;
    };
    let (ino, size) = (found.ino, found.attr.size);
    match dice.below(6) {
        0 => fs.unlink(ROOT, &name).expect("removed"),
        1 => truncate(&fs, ino, dice.below(size + 20_000)),
        2 => {
            let bytes = noise(dice.below(20), 1 + dice.below(30_000) as usize);
            fs.write(ino, dice.below(size + 1), &bytes, false).expect("written");
        }
        _ if size > 0 && name != other => {
            let target = match fs.lookup(ROOT, &other) {
                Ok(entry) => entry,
                Err(_) => fs.mknod(ME, ROOT, &other, 0o100_644, 0).expect("made"),
            };
            let record = 16_384;
            let (from, to) = (dice.below(size) / record * record, dice.below(5) * record);
            let length = if dice.below(2) == 0 { size } else { 1 + dice.below(size) };
            fs.copy_file_range(ino, from, target.ino, to, length).expect("copied");
            fs.forget(target.ino, 1);
        }
        _ => {}
    }
    fs.forget(ino, 1);
}

#[test]
fn what_was_there_before_is_passed_over_and_not_named() {
    let (one, two) = (one(), Host::new("second", 128));
    one.snapshot("one/fs@1");
    two.receive("second/copy", &send(&one, &[spec("one/fs@1", None)])).expect("received");
    copy(&one, "one/fs", b"a", b"x");
    write_file(&mount(&one.pool, "one/fs").0, ROOT, b"new", &noise(2, BYTES));
    one.snapshot("one/fs@2");
    copy(&one, "one/fs", b"new", b"again");
    one.snapshot("one/fs@3");
    let plan = [spec("one/fs@2", Some("one/fs@1")), spec("one/fs@3", Some("one/fs@2"))];
    let both = send(&one, &plan);
    assert!(repeated(&both) >= BYTES as u64);
    two.receive("second/copy", &send(&one, &plan[..1])).expect("received");
    let error = two.receive("second/copy", &both).expect_err("it names what did not come with it");
    assert!(matches!(error, Error::StreamDamaged { .. }), "{error}");
    assert!(error.to_string().contains("which was here before"), "{error}");
    assert_eq!(two.pool.datasets().snapshot_names("second/copy").unwrap(), ["1", "2"]);
    two.receive("second/copy", &send(&one, &plan[1..])).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "caught up");
    let all = two.receive("second/copy", &both).expect("all of it is there");
    assert!(all.iter().all(|part| part.there));
    two.check();
}
