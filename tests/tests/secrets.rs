//! The memory of a daemon holds no secret longer than it needs it. Root searches it here.

use std::fs;

use steadfast_tests::{Host, is_root, skip};

/// Reads the writable memory of the process of its first argument, and tells how often the words of
/// the others are there, and on its stderr where.
const COUNT: &str = r#"
import re, sys
process, words = sys.argv[1], [word.encode() for word in sys.argv[2:]]
found = [0] * len(words)
with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", 0) as memory:
    for line in maps:
        start, end, mode = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
        if not mode.startswith("rw"):
            continue
        start, end = int(start, 16), int(end, 16)
        try:
            memory.seek(start)
            held = memory.read(end - start)
        except (OSError, OverflowError, ValueError):
            continue  # memory of the kernel's
        found = [count + held.count(word) for count, word in zip(found, words)]
        for at, word in enumerate(words):
            place = held.find(word)
            if place >= 0:
                around = held[max(0, place - 64):place + len(word) + 64]
                print(f"word {at} in {line.strip()}, at {start + place:x}: {around}", file=sys.stderr)
print(*found)
"#;

/// How often the daemon's memory holds each of these words, and where.
fn counts(host: &Host, words: &[&str]) -> (Vec<u64>, String) {
    let pid = fs::read_to_string(host.at("run/daemon.lock")).expect("a daemon runs");
    let args = [&["-c", COUNT, pid.trim()], words].concat();
    let told = host.exec("python3", &args, b"").ok();
    (told.out.split_whitespace().map(|count| count.parse().expect("a number")).collect(), told.err)
}

/// The middle of a secret: a freed piece of memory loses its first bytes.
fn middle(secret: &str) -> &str {
    &secret[6..secret.len() - 4]
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_daemon_forgets_each_passphrase_and_what_it_read_with_it() {
    if !is_root() {
        return skip("secrets", "reading the memory of a process needs root");
    }
    let Some(host) = Host::with_tank("secrets") else { return };
    let (one, two) = ("Quarzuhr-7319-Kastanie", "Bleistift-5082-Nebelhorn");
    host.image("sealed.img", 128 << 20);
    let typed = |secret: &str, line: &str| {
        host.shell(&format!("printf '%s\\n%s\\n' {secret} {secret} | {line}")).ok()
    };
    let encrypted = "-o encryption=on -o keyformat=passphrase";
    typed(one, &format!("zfs create {encrypted} tank/vault"));
    fs::write(host.at("t/vault/letter"), "Siebenschlaefer-im-Dachstuhl ".repeat(4000)).expect("written");
    host.shell("zpool sync tank && cat t/vault/letter > /dev/null").ok();
    // The search finds what is there.
    let content = "im-Dachstuhl Sieben";
    assert_ne!(counts(&host, &[content]).0, [0], "content that is cached");
    host.shell("zfs unmount tank/vault && zfs unload-key tank/vault").ok();
    host.shell(&format!("printf '%s\\n' {one} | zfs load-key tank/vault")).ok();
    typed(two, "zfs change-key tank/vault");
    host.shell("zfs unload-key tank/vault").ok();
    typed(
        two,
        "zpool create -O encryption=on -O keyformat=passphrase -O mountpoint=none safe $PWD/sealed.img",
    );
    host.shell("zpool export safe").ok();
    host.shell(&format!("printf '%s\\n' {two} | zpool import -l -d $PWD safe && zpool export safe")).ok();
    let (clear, sent) = ([middle(one), middle(two)], [hex(middle(one)), hex(middle(two))]);
    let (found, places) = counts(&host, &[clear[0], clear[1], &sent[0], &sent[1], content]);
    assert_eq!(found, [0; 5], "{one}, {two}, as typed; as sent; content of a locked file system\n{places}");
}
