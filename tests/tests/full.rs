//! A pool filled to its last byte through a mount: by several writers at once, each in its own way,
//! and what is then asked of it.

use steadfast_tests::{Host, is_root, no_fuse, skip};

/// Four writers fill `t` until each was told that there is no room, and count what they were
/// promised. None is told of no room by `fsync`.
const FILL: &str = r#"
import errno, hashlib, os, sys
at = sys.argv[1]
def until_full(work):
    "Calls until there is no room, and says how often it went well."
    done = 0
    while True:
        try:
            work(done)
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            return done
        done += 1
        assert done < 1_000_000
def stream(name, size, sync):
    f = os.open(f'{at}/{name}', os.O_RDWR | os.O_CREAT, 0o644)
    def write(n):
        block = os.urandom(size)
        done = 0
        while done < size:
            done += os.pwrite(f, block[done:], n * size + done)
        if sync and n % 16 == 0: os.fsync(f)
    until_full(write)
    os.fsync(f)
def small(name):
    os.makedirs(f'{at}/{name}', exist_ok=True)
    def make(n):
        with open(f'{at}/{name}/{n}', 'wb', buffering=0) as f:
            f.write(os.urandom(1000 + n * 37 % 9000))
    until_full(make)
def pages(name):
    f = os.open(f'{at}/{name}', os.O_RDWR | os.O_CREAT, 0o644)
    until_full(lambda n: os.pwrite(f, os.urandom(4096), (n * 2654435761 % (1 << 18)) << 12))
    os.fsync(f)
jobs = [lambda: stream('large', 1 << 20, False), lambda: stream('synced', 12_345, True), lambda: small('files'), lambda: pages('sparse')]
children = []
for job in jobs:
    child = os.fork()
    if child == 0:
        try:
            job(); os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True); os._exit(1)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
"#;

/// Calls that may fail at full fail with "no space" and change nothing; calls that give room back
/// succeed.
const AT_FULL: &str = r#"
import errno, os, sys
at = sys.argv[1]
def allowed(call, *args):
    try:
        call(*args); return True
    except OSError as error:
        assert error.errno == errno.ENOSPC, (call.__name__, args, error)
        return False
f = os.open(f'{at}/large', os.O_RDWR)
old, new = os.pread(f, 300_000, 1 << 20), os.urandom(300_000)
allowed(os.pwrite, f, new, 1 << 20)
seen = os.pread(f, 300_000, 1 << 20)
changed = next((i for i in range(300_000) if seen[i] != new[i]), 300_000)
assert seen[changed:] == old[changed:], 'an overwrite that was refused in part left something else'
if allowed(os.mkdir, f'{at}/directory'): os.rmdir(f'{at}/directory')
if allowed(os.symlink, 'x' * 3000, f'{at}/symlink'): os.unlink(f'{at}/symlink')
if allowed(os.link, f'{at}/large', f'{at}/second'): os.unlink(f'{at}/second')
if allowed(os.rename, f'{at}/sparse', f'{at}/renamed'): os.rename(f'{at}/renamed', f'{at}/sparse')
allowed(os.setxattr, f'{at}/large', 'user.x', b'y' * 60_000)
allowed(os.posix_fallocate, f, 0, 1 << 40)
# What frees.
os.ftruncate(f, os.fstat(f).st_size // 2)
for name in os.listdir(f'{at}/files')[::2]: os.unlink(f'{at}/files/{name}')
os.unlink(f'{at}/synced')
os.close(f)
"#;

/// Nothing is stuck at full, `df` tells what is so, and whatever was promised is there after the
/// next import.
fn filled_by_many_writers(test: &str, create: &str) {
    if let Some(why) = no_fuse().or_else(|| (!is_root()).then(|| "mounting takes root".into())) {
        return skip(test, &why);
    }
    let host = Host::new();
    host.image("tank.img", 192 << 20);
    std::fs::write(host.at("fill.py"), FILL).expect("a file");
    std::fs::write(host.at("at_full.py"), AT_FULL).expect("a file");
    host.shell(&format!("zpool create {create} -O compression=off -m $PWD/t tank $PWD/tank.img; zpool sync"))
        .ok();
    let df = || -> (i64, i64, i64) {
        let said = host.shell("df --output=size,used,avail -B1 t | tail -1").ok().out;
        let mut numbers = said.split_whitespace().map(|word| word.parse().expect("a number"));
        let mut next = || numbers.next().expect("three numbers");
        (next(), next(), next())
    };
    let sums = || host.shell("cd t; find . -type f -print0 | sort -z | xargs -0 sha256sum").ok().out;
    let (size, ..) = df();
    for turn in 1..=2 {
        host.shell("python3 fill.py t; zpool sync").ok();
        let (_, used, available) = df();
        assert!(
            available < size / 20,
            "turn {turn}: {available} of {size} bytes are offered after all were refused"
        );
        assert!(used > size * 3 / 4, "turn {turn}: only {used} of {size} bytes are used");
        host.shell("python3 at_full.py t; zpool sync").ok();
        let (_, emptier, more) = df();
        assert!(emptier < used && more > available, "turn {turn}: deleting gave nothing back");
        let before = sums();
        host.run("pool export tank").ok();
        host.run("inspect check {}/tank.img").ok();
        host.run("pool import -d {}/tank.img tank").ok();
        assert!(sums() == before, "turn {turn}: content changed over the import");
        let (_, again, _) = df();
        assert!(
            (again - emptier).abs() < size / 100,
            "turn {turn}: {emptier} bytes used, {again} after an import"
        );
    }
    host.shell("rm -r t/*; zpool sync").ok();
    // Cut ranges are freed commit by commit.
    host.shell("for try in $(seq 100); do zpool sync; test $(df --output=used -B1M t | tail -1) -lt 4 && exit 0; sleep 0.1; done; df t; exit 1").ok();
    // The intent log has got its segments meanwhile.
    let (size_at_end, _, available) = df();
    assert!((size_at_end - size).abs() < size / 20, "{size} bytes at first, {size_at_end} at the end");
    assert!(available > size * 9 / 10, "{available} of {size} bytes are free");
    host.shell("dd if=/dev/urandom of=t/last bs=1M count=64 conv=fsync status=none; zpool export tank").ok();
    host.run("inspect check {}/tank.img").ok();
}

#[test]
fn a_pool_filled_by_many_writers_goes_on() {
    filled_by_many_writers("filled by many writers", "-O writeback_cache=off");
}

#[test]
fn a_pool_filled_by_many_writers_whose_writes_are_collected_goes_on() {
    filled_by_many_writers("filled by many writers, collected", "-O writeback_cache=on");
}

/// A dataset that could not be mounted for want of room is refused as in ZFS, and not made.
#[test]
fn create_and_clone_on_a_full_pool_make_nothing() {
    let Some(host) = Host::with_images("datasets at full", 1, 64 << 20) else { return };
    host.shell("zpool create -O compression=off -m $PWD/t tank $PWD/d1.img; zfs create tank/a").ok();
    host.shell("zfs snapshot tank/a@s; zfs send tank/a@s > stream").ok();
    // Until not even an empty file can be made. A commit gives back what writers had reserved, so
    // each try begins behind one.
    let file = "zpool sync; dd if=/dev/urandom of=t/a/$n bs=4k status=none || true";
    host.shell(&format!("for n in {{1..300}}; do {file}; test -e t/a/$n || exit 0; done; exit 1")).ok();
    for line in ["zfs create tank/a/b", "zfs clone tank/a@s tank/c", "zfs create -p tank/d/e/f"] {
        host.shell(line).fails(1).says("out of space");
    }
    host.shell("zfs receive tank/r < stream").fails(1).says("out of space");
    assert_eq!(host.shell("zfs list -Ho name").ok().out, "tank\ntank/a\n");
    // The room of a file is free some commits later.
    host.shell("rm t/a/1; for try in {1..50}; do zpool sync; zfs clone tank/a@s tank/c && break; sleep 0.1; done; ls -d t/c")
        .ok();
}
