//! The estimate of a stream is near its real size, for increments of all shapes.

use std::collections::BTreeMap;

use crate::common::{self, Dice, ME, MIB, ROOT, mount, noise, write_file};
use crate::hosts::{Host, disturb, furnish, soft, truncate};
use steadfast_pool::SendSpec;

/// Error allowed for frames and records around content, however little that is.
const CONSTANT: u64 = 4 << 10;

fn spec(snapshot: &str, base: &str) -> SendSpec {
    SendSpec { snapshot: snapshot.into(), base: Some(base.into()), ..SendSpec::default() }
}

/// Told and sent.
fn both(host: &Host, spec: SendSpec) -> (u64, u64) {
    let told = host.pool.streams().send_estimate(&spec).expect("told");
    (told, host.send_as(spec).len() as u64)
}

fn is_close(what: &str, (told, sent): (u64, u64)) {
    println!("{what}: {told} told, {sent} sent");
    assert!(told.abs_diff(sent) <= sent / 10 + CONSTANT, "{what}: {told} told, {sent} sent");
}

/// A change of a file system.
type Change = fn(&Host, &str);

fn text(host: &Host, name: &str) {
    let (fs, _open) = mount(&host.pool, name);
    let ino = fs.lookup(ROOT, b"text").expect("found").ino;
    fs.write(ino, 600_000, "more and more ".repeat(7_000).as_bytes(), false).expect("written");
}

fn small_files(host: &Host, name: &str) {
    let (fs, _open) = mount(&host.pool, name);
    let folder = fs.mkdir(ME, ROOT, b"small", 0o755).expect("made").ino;
    for at in 0..2_000_u64 {
        write_file(&fs, folder, format!("a file of few bytes {at}").as_bytes(), &noise(at, at as usize % 90));
    }
}

fn in_the_middle(host: &Host, name: &str) {
    let (fs, _open) = mount(&host.pool, name);
    let ino = fs.lookup(ROOT, b"large").expect("found").ino;
    for at in 0..40 {
        fs.write(ino, at * 211_000, &noise(at, 700), false).expect("written");
    }
}

fn gone(host: &Host, name: &str) {
    let (fs, _open) = mount(&host.pool, name);
    let folder = fs.lookup(ROOT, b"folder").expect("found").ino;
    for at in 0..30 {
        fs.unlink(folder, format!("file {at}").as_bytes()).expect("removed");
    }
    truncate(&fs, fs.lookup(ROOT, b"large").expect("found").ino, 3 * MIB + 5);
}

fn much(host: &Host, name: &str) {
    let (fs, _open) = mount(&host.pool, name);
    write_file(&fs, ROOT, b"soft", &soft(3, 4 << 20));
    write_file(&fs, ROOT, b"hard", &noise(4, 3 << 20));
}

fn nothing(_: &Host, _: &str) {}

const CHANGES: [(&str, Change); 7] = [
    ("text", text),
    ("small files", small_files),
    ("in the middle", in_the_middle),
    ("gone", gone),
    ("much", much),
    ("all kinds", |host, name| disturb(&host.pool, name, &mut Dice(7))),
    ("nothing", nothing),
];

/// A file system that is changed in one way after the other, with a snapshot after each.
fn changed(host: &Host, name: &str, key: Option<[u8; 32]>) {
    let key = key.map(|secret| common::key(&host.env, &secret));
    host.pool.datasets().create_dataset(name, BTreeMap::new(), key).expect("made");
    furnish(&host.pool, name);
    {
        let (fs, _open) = mount(&host.pool, name);
        write_file(&fs, ROOT, b"large", &noise(77, 9 << 20));
    }
    host.snapshot(&format!("{name}@0"));
    for (number, (_, change)) in (1..).zip(CHANGES) {
        change(host, name);
        host.snapshot(&format!("{name}@{number}"));
    }
}

#[test]
fn increments_are_told_as_they_are_sent() {
    let host = Host::new("one", 256);
    changed(&host, "one/fs", None);
    let mut guesses = 0;
    for (number, (what, _)) in (1..).zip(CHANGES) {
        let one = spec(&format!("one/fs@{number}"), &format!("one/fs@{}", number - 1));
        is_close(what, both(&host, one.clone()));
        is_close(&format!("{what}, compressed"), both(&host, SendSpec { packed: true, ..one.clone() }));
        let (guess, sent) =
            (host.pool.streams().check_send(&one).expect("guessed"), host.send_as(one).len() as u64);
        guesses += u32::from(guess.abs_diff(sent) > sent / 10 + CONSTANT);
    }
    assert!(guesses > 0, "what is guessed without a look would do");
    // Over several, and where nothing of the base is there any more.
    is_close("all of them", both(&host, spec("one/fs@7", "one/fs@0")));
    host.pool.datasets().add_bookmark("one/fs@1", "mark").expect("marked");
    for packed in [false, true] {
        is_close("a bookmark", both(&host, SendSpec { packed, ..spec("one/fs@6", "one/fs#mark") }));
    }
}

#[test]
fn what_goes_sealed_is_told_as_it_is_sent() {
    let (host, store) = (Host::new("one", 256), Host::new("store", 256));
    changed(&host, "one/fs", Some([4; 32]));
    let full = SendSpec { snapshot: "one/fs@0".into(), raw: true, ..SendSpec::default() };
    store.receive("store/fs", &host.send_as(full)).expect("received");
    for (number, (what, _)) in (1..).zip(CHANGES) {
        let of = |pool: &str| SendSpec {
            raw: true,
            ..spec(&format!("{pool}/fs@{number}"), &format!("{pool}/fs@{}", number - 1))
        };
        is_close(&format!("{what}, sealed"), both(&host, of("one")));
        store.receive("store/fs", &host.send_as(of("one"))).expect("received");
        // By who has no key.
        is_close(&format!("{what}, sealed elsewhere"), both(&store, of("store")));
    }
}

#[test]
fn clones_and_what_goes_on_are_told_as_they_are_sent() {
    let host = Host::new("one", 256);
    changed(&host, "one/fs", None);
    host.pool.datasets().clone_snapshot("one/fs@3", "one/clone", BTreeMap::new()).expect("cloned");
    much_of_another(&host, "one/clone");
    host.snapshot("one/clone@x");
    is_close("a clone", both(&host, spec("one/clone@x", "one/fs@3")));
    let whole = host.send("one/clone@x", Some("one/fs@3")).len() as u64;
    let (fs, _open) = mount(&host.pool, "one/clone");
    let ino = fs.lookup(ROOT, b"other").expect("found").ino;
    let rest = SendSpec { resume: Some((ino, 2 << 20)), ..spec("one/clone@x", "one/fs@3") };
    let (told, sent) = both(&host, rest);
    is_close("what goes on", (told, sent));
    assert!(told < whole / 2, "{told} of {whole}");
}

fn much_of_another(host: &Host, name: &str) {
    let (fs, _open) = mount(&host.pool, name);
    write_file(&fs, ROOT, b"other", &noise(9, 3 << 20));
}
