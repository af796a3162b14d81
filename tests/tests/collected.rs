//! Writes that the kernel collects (`writeback_cache=on`) on real mounts: a killed daemon loses a
//! few seconds, a full pool or quota is told by the `write` that does not fit, and looks for holes
//! and rollbacks see the newest content.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use steadfast_nfs::client::{Attributes, Client, plain_attributes};
use steadfast_nfs::xdr::Reader;
use steadfast_tests::{Host, is_root, no_fuse, noise, skip, spawn};

use crate::nfs::{call, mount, read};

/// Writes noise to files in turn, through descriptors that stay open, until each was refused; then
/// every byte that was accepted has to be there.
///
/// Arguments: access, errno, bytes of a write, file...
const FILL: &str = r#"
import errno, hashlib, os, sys
access, expected, size, names = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
flags = {'w': os.O_WRONLY, 'rw': os.O_RDWR, 'a': os.O_WRONLY | os.O_APPEND}[access]
class File:
    def __init__(self, name):
        self.name, self.length, self.sum = name, 0, hashlib.sha256()
        self.fd = os.open(name, flags | os.O_CREAT | os.O_TRUNC, 0o644)
files, open_ones, total = [File(name) for name in names], set(range(len(names))), 0
while open_ones:
    for number in list(open_ones):
        file, data = files[number], os.urandom(size)
        try:
            written = os.write(file.fd, data)
        except OSError as error:
            assert errno.errorcode[error.errno] == expected, error
            open_ones.discard(number)
            continue
        file.sum.update(data[:written])
        file.length += written
        total += written
        assert total < 2 << 30, 'nobody was refused'
for file in files:
    if access == 'rw':
        # Neither a read at the end nor a seek there is a write.
        assert os.pread(file.fd, 100, file.length) == b''
        assert os.lseek(file.fd, 0, os.SEEK_END) == file.length
    os.fsync(file.fd)
    os.close(file.fd)
    with open(f'{os.path.basename(file.name)}.sum', 'w') as out:
        out.write(f'{file.sum.hexdigest()}  {file.name}\n')
print(total)
"#;

fn new_host(test: &str, image_bytes: u64, create: &str) -> Option<Host> {
    if let Some(why) = no_fuse().or_else(|| (!is_root()).then(|| "files are opened by handle by root".into()))
    {
        skip(test, &why);
        return None;
    }
    let host = Host::new();
    host.image("tank.img", image_bytes);
    fs::write(host.at("fill.py"), FILL).expect("a file");
    host.shell(&format!(
        "zpool create -O writeback_cache=on -O compression=off {create} -m $PWD/t tank $PWD/tank.img"
    ))
    .ok();
    Some(host)
}

/// Fills, and compares what was accepted with what an import finds. Gives the bytes accepted.
fn fill(host: &Host, words: &str) -> u64 {
    let told = host.shell(&format!("rm -f *.sum; python3 fill.py {words}; zpool sync")).ok().out;
    host.shell("zpool export tank && zpool import -d $PWD tank && sha256sum -c *.sum").ok();
    told.trim().parse().expect("a number")
}

#[test]
fn a_write_that_does_not_fit_is_refused_and_one_that_was_accepted_is_there() {
    let Some(host) = new_host("collected-full", 700 << 20, "") else { return };
    let room = host.shell("df --output=avail -B1 t | tail -1").ok().out.trim().parse::<u64>().expect("bytes");
    let filled = |words: &str| {
        let bytes = fill(&host, words);
        assert!(bytes > room * 9 / 10, "{words}: {bytes} of {room} bytes were accepted");
        host.shell("rm t/f*; zpool sync; zpool wait -t free tank; zpool sync").ok();
    };
    filled("w ENOSPC 65536 t/f1");
    filled("rw ENOSPC 10000 t/f1 t/f2 t/f3");
    host.run("pool export tank").ok();
    host.run("inspect check {}/tank.img").ok().says("worst=none");
}

/// A program may write as much in one call as there is room for: it comes over several commits. And
/// it asks again when its former call is over, so what that was promised counts no more.
#[test]
fn a_write_that_fits_ends_however_long_it_is() {
    let Some(host) = new_host("collected-long", 128 << 20, "") else { return };
    const WRITE: &str = r"
import os, sys
for megabytes in map(int, sys.argv[1:]):
    content = os.urandom(megabytes << 20)
    f = os.open(f't/{megabytes}', os.O_RDWR | os.O_CREAT)
    try:
        assert os.write(f, content) == len(content)
        os.fsync(f)
        assert os.pread(f, len(content), 0) == content
        print(megabytes, end=' ')
    except OSError as error:
        print(os.strerror(error.errno), end=' ')
";
    fs::write(host.at("write.py"), WRITE).expect("a file");
    let written = |megabytes: &str| {
        let told = host.shell(&format!("timeout -s KILL 120 python3 write.py {megabytes}")).ok().out;
        host.shell("rm t/*; zpool sync; zpool wait -t free tank; zpool sync").ok();
        told
    };
    assert_eq!(written("48 8"), "48 8 ");
    assert_eq!(written("90"), "90 ");
    assert_eq!(written("60 70 8"), "60 No space left on device 8 ");
}

/// Several threads make files until each was refused, and write each file in pieces. Then the
/// kernel has to get rid of every page that it accepted.
const MAKE_FILES: &str = r"
import errno, os, sys, threading
folder, threads, failed = sys.argv[1], int(sys.argv[2]), []
def make(number, made):
    for at in range(100_000):
        try:
            f = os.open(f'{folder}/{number}.{at}', os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            made.append(f)
            for _ in range(4): os.write(f, os.urandom(20_000))
        except OSError as error:
            if error.errno != errno.ENOSPC: failed.append(f'{number}.{at}: {error}')
            return
def part(made):
    for f in made:
        try: os.fsync(f)
        except OSError as error: failed.append(f'fsync: {error}')
        os.close(f)
lists = [[] for _ in range(threads)]
for act in lambda n: make(n, lists[n]), lambda n: part(lists[n]):
    run = [threading.Thread(target=act, args=(n,)) for n in range(threads)]
    for thread in run: thread.start()
    for thread in run: thread.join()
assert not failed, (len(failed), failed[:3])
print(sum(map(len, lists)))
";

/// A file that is opened while pages are handed over keeps what its writer is promised meanwhile.
#[test]
fn a_pool_filled_with_new_files_refuses_no_page_that_was_accepted() {
    let Some(host) = new_host("collected-files", 128 << 20, "") else { return };
    fs::write(host.at("make.py"), MAKE_FILES).expect("a file");
    for _ in 0..2 {
        let made = host.shell("mkdir t/d; ulimit -n 9000; python3 make.py t/d 8").ok().out;
        assert!(made.trim().parse::<u32>().expect("a number") > 500, "{made}");
        host.shell("rm -r t/d; zpool sync; zpool wait -t free tank; zpool sync").ok();
    }
    host.run("pool export tank").ok();
    host.run("inspect check {}/tank.img").ok().says("worst=none");
}

#[test]
fn a_quota_is_kept_to_the_write() {
    let Some(host) = new_host("collected-quota", 700 << 20, "") else { return };
    const MIB: u64 = 1 << 20;
    for (quota, errno) in [(40 * MIB, "EDQUOT"), (300 * MIB, "EDQUOT")] {
        host.shell(&format!("zfs create -o refquota={quota} tank/q")).ok();
        let bytes = fill(&host, &format!("a {errno} 100000 t/q/f1 t/q/f2"));
        assert!(bytes <= quota && bytes > quota - 2 * MIB, "{bytes} of {quota}");
        host.shell("zfs destroy tank/q; zpool sync; zpool wait -t free tank; zpool sync").ok();
    }
    // A user's. Others are not held up by it.
    host.shell("zfs create -o userquota@4711=200M tank/u; chmod 777 t/u; head -c 300M /dev/urandom > noise")
        .ok();
    host.shell("setpriv --reuid 4711 --clear-groups dd bs=64k of=t/u/f < noise")
        .fails(1)
        .says("Disk quota exceeded");
    host.shell("zpool export tank && zpool import -d $PWD tank; cmp -n $(stat -c %s t/u/f) t/u/f noise").ok();
    let bytes = fs::metadata(host.at("t/u/f")).expect("it is there").len();
    assert!(bytes <= 201 * MIB && bytes > 198 * MIB, "{bytes} of 200 MiB");
    host.shell("head -c 20M /dev/urandom > t/u/others; zpool export tank").ok();
    host.run("inspect check {}/tank.img").ok().says("worst=none");
}

#[test]
fn dd_into_a_full_pool_ends_with_its_error() {
    let Some(host) = new_host("collected-dd", 256 << 20, "") else { return };
    host.shell(
        "for n in 1 2 3; do dd if=/dev/urandom of=t/f$n bs=1M 2>$n.told & done; wait; cat *.told >&2; exit 1",
    )
    .fails(1)
    .says("error writing 't/f1': No space left on device")
    .says("error writing 't/f2': No space left on device")
    .says("error writing 't/f3': No space left on device");
    host.shell("rm t/f*; zpool export tank").ok();
    host.run("inspect check {}/tank.img").ok().says("worst=none");
}

/// A process that writes its standard input to a file and keeps the file open.
fn keep_open(host: &Host, name: &str, content: &[u8]) -> (std::process::Child, std::process::ChildStdin) {
    let mut command = Command::new("dd");
    command.args(["bs=4096", "iflag=fullblock", "conv=notrunc", "status=none"]);
    command.arg(format!("of={}", host.at(name).display())).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut writer = spawn(&mut command).expect("dd runs");
    let mut pipe = writer.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut pipe, content).expect("written");
    steadfast_tests::until(|| {
        let length = fs::metadata(host.at(name)).map_or(0, |about| about.len());
        if length >= content.len() as u64 { Ok(()) } else { Err(format!("{length} bytes")) }
    });
    (writer, pipe)
}

#[test]
fn a_killed_daemon_loses_two_intervals_at_most() {
    let Some(host) = new_host("collected-kill", 256 << 20, "") else { return };
    host.shell("zpool sync").ok();
    let content = noise(7, 3000 * 4096);
    let (mut writer, pipe) = keep_open(&host, "t/file", &content);
    // Pages are handed over every 5 seconds, and a commit comes 5 seconds later at most.
    std::thread::sleep(Duration::from_secs(12));
    host.kill_daemon();
    drop(pipe);
    writer.wait().expect("it ends");
    // The next daemon imports the pool.
    host.shell("zpool list tank").ok();
    assert!(fs::read(host.at("t/file")).expect("read") == content);
}

#[test]
fn a_pool_sync_makes_durable_what_was_written_before() {
    let Some(host) = new_host("collected-sync", 256 << 20, "") else { return };
    host.shell("zpool sync").ok();
    let content = noise(11, 3000 * 4096);
    let (mut writer, pipe) = keep_open(&host, "t/file", &content);
    host.shell("zpool sync").ok();
    host.kill_daemon();
    drop(pipe);
    writer.wait().expect("it ends");
    host.shell("zpool list tank").ok();
    assert!(fs::read(host.at("t/file")).expect("read") == content);
}

#[test]
fn holes_are_found_in_a_file_that_is_being_written() {
    let Some(host) = new_host("collected-holes", 128 << 20, "") else { return };
    const SEEK: &str = r"
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
block = 1 << 20
os.pwrite(fd, b'a' * block, 0)
os.pwrite(fd, b'b' * block, 10 * block)
assert os.lseek(fd, 0, os.SEEK_HOLE) == block
assert os.lseek(fd, block, os.SEEK_DATA) == 10 * block
assert os.lseek(fd, 10 * block, os.SEEK_HOLE) == 11 * block
os.pwrite(fd, b'c' * block, 5 * block)
assert os.lseek(fd, block, os.SEEK_DATA) == 5 * block
assert os.lseek(fd, 0, os.SEEK_END) == 11 * block
";
    fs::write(host.at("seek.py"), SEEK).expect("a file");
    host.shell("python3 seek.py t/file").ok();
    // Nor was the question given up for the life of the mount.
    host.shell("cp --sparse=always t/file t/copy; python3 -c 'import os; assert os.lseek(os.open(\"t/copy\", 0), 0, os.SEEK_HOLE) == 1 << 20'").ok();
}

#[test]
fn a_rollback_shows_sizes_and_times_of_the_snapshot() {
    let Some(host) = new_host("collected-rollback", 128 << 20, "") else { return };
    host.shell("echo hello > t/closed; echo hello > t/open; touch -d 2001-02-03 t/closed t/open; zpool sync")
        .ok();
    host.shell("zfs snapshot tank@one; echo and more >> t/closed; echo and more >> t/open").ok();
    host.shell(
        "exec 7<t/open; zfs rollback tank@one; cat <&7 > seen; cat t/closed >> seen; stat -c '%s %y' t/closed t/open; cat seen",
    )
    .ok()
    .says("6 2001-02-03 00:00:00.000000000 +0000\n6 2001-02-03 00:00:00.000000000 +0000\nhello\nhello\n");
    // It goes on from there.
    host.shell(
        "echo again >> t/closed; cat t/closed; zpool export tank; zpool import -d $PWD tank; cat t/closed",
    )
    .ok()
    .says("hello\nagain\nhello\nagain\n");
}

/// A file that is written in the clock tick in which it was made has no time that the kernel would
/// have to tell when it is closed.
#[test]
fn new_files_with_content_cost_few_requests_for_their_times() {
    let Some(host) = new_host("collected-times", 128 << 20, "") else { return };
    const MAKE: &str = r"
import os, sys
for number in range(40):
    fd = os.open(f't/{sys.argv[1]}.{number}', os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(fd, b'x' * 1000)
    os.close(fd)
";
    fs::write(host.at("make.py"), MAKE).expect("a file");
    let count = |operation: &str| -> u64 {
        let told = host.shell("zpool iostat --requests -Hp tank").ok().out;
        let rows = told.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        let of = rows.filter(|row| row.starts_with(&["tank", "local", operation]));
        of.map(|row| row[4].parse::<u64>().expect("a count")).sum()
    };
    // On a busy machine a tick may pass within any of them.
    let few = (0..30).any(|round| {
        let before = [count("create"), count("setattr")];
        host.shell(&format!("python3 make.py {round}")).ok();
        assert_eq!(count("create") - before[0], 40);
        count("setattr") - before[1] < 20
    });
    assert!(few, "each file has a request for its time");
    // The times are those of the files, also after the kernel forgot them.
    let told = host.shell("stat -c '%n %y %z' t/*").ok().out;
    host.shell("zpool export tank; zpool import -d $PWD tank; stat -c '%n %y %z' t/*").ok().says(&told);
    host.run("pool export tank").ok();
}

/// Requests that want one node at once read it once, and each surface tells the same of it.
#[test]
fn nodes_that_several_requests_want_are_read_once_and_counted() {
    let Some(host) = new_host("collected-nodes", 128 << 20, "") else { return };
    host.shell("mkdir t/d; for n in {1..2000}; do : > t/d/$n; done; zpool sync tank").ok();
    let counts = || -> Vec<u64> {
        let told = host.shell("zpool iostat --caches -Hp tank").ok().out;
        let row = told.lines().find(|line| line.starts_with("tank\tnodes\t")).expect("a line for nodes");
        row.split('\t').skip(2).map(|cell| cell.parse().expect("a number")).collect()
    };
    // The kernel knows no name, and the pool no node. A busy machine may send one after the other.
    steadfast_tests::until(|| {
        host.shell("zpool export tank; zpool import -d $PWD tank; zpool inject tank $PWD/tank.img slow latency=200ms")
            .ok();
        let [_, limit, _, misses, shared, ..] = counts()[..] else { panic!("seven numbers") };
        assert!(limit > 0);
        let look =
            "for n in {1..1999..90}; do stat t/d/$n > one.$n & done; wait; cat one.* | grep -c 'File:'";
        host.shell(look).ok().says("23");
        host.shell("zpool inject -c tank $PWD/tank.img").ok();
        let seen = counts();
        let (read, taken) = (seen[3] - misses, seen[4] - shared);
        // The path to a leaf, and the leaves that there are.
        assert!((1..100).contains(&read), "{read} nodes were read");
        if taken == 0 { Err(format!("none was shared, {read} were read")) } else { Ok(()) }
    });
    // At rest nothing is shared any more, so that all tell the same.
    let shared = counts()[4];
    let json = host.shell("zpool iostat --caches -j --json-int tank").ok().out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let nodes = &json["pools"]["tank"]["caches"]["nodes"];
    assert_eq!(nodes["shared"], shared);
    for name in ["bytes", "bytes_max", "hits", "misses", "evictions", "pinned"] {
        assert!(nodes[name].is_u64(), "{name} in {nodes}");
    }
    let metrics = host.run("daemon metrics").ok().out;
    let metric = |name: &str| {
        let begin = format!("steadfast_cache_{name}{{pool=\"tank\",cache=\"nodes\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(begin.as_str()));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse::<u64>().expect("a whole number")
    };
    assert_eq!(metric("shared_total"), shared);
    assert_eq!(metric("pinned"), nodes["pinned"]);
    host.shell("zpool iostat --caches -v tank").fails(2).says("--caches cannot be combined");
    host.run("pool export tank").ok();
}

/// Writes through a descriptor that a child process inherits, and waits until the pool is
/// suspended. Nobody whose bytes were accepted waits for room, except in `fsync`, which can be
/// killed, as a new write can. All that was accepted is there in the end.
const SUSPENDED: &str = r#"
import errno, os, signal, subprocess, sys, time
def is_suspended():
    return 'SUSPENDED' in subprocess.check_output(['zpool', 'status', 'tank'], text=True)
def child(act):
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    return pid
def write_on():
    while True:
        os.pwrite(fd, b'x', len(data))
        time.sleep(0.01)
name, data = sys.argv[1], os.urandom(40 << 20)
fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
os.set_inheritable(fd, True)
assert os.write(fd, data) == len(data)
children = [child(lambda: os.fsync(fd))]
while not is_suspended():
    time.sleep(0.1)
# Another program has the descriptor, and a file is closed.
subprocess.check_call(['true'], close_fds=False)
os.close(os.open('t/other', os.O_WRONLY))
children.append(child(write_on))
waits = subprocess.check_output(['zpool', 'get', '-Ho', 'value', 'failmode', 'tank'], text=True) == 'wait\n'
for pid in children:
    if waits:
        time.sleep(2)
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    assert status == signal.SIGKILL if waits else os.waitstatus_to_exitcode(status) == errno.EIO, status
subprocess.check_call(['mount', '-o', f'remount,size={sys.argv[2]}', 'small'])
subprocess.check_call(['zpool', 'clear', 'tank'])
while is_suspended():
    time.sleep(0.1)
os.fsync(fd)
os.close(fd)
assert open(name, 'rb').read()[:len(data)] == data
"#;

#[test]
fn nobody_whose_writes_were_accepted_waits_for_a_suspended_pool() {
    let Some(host) = new_host("collected-suspended", 64 << 20, "") else { return };
    host.shell("zpool destroy tank; mkdir small; mount -t tmpfs -o size=24M small small").ok();
    fs::write(host.at("suspended.py"), SUSPENDED).expect("a file");
    host.shell("truncate -s 256M small/i.img").ok();
    let create = "zpool create -O writeback_cache=on -O compression=off -m $PWD/t tank $PWD/small/i.img";
    host.shell(&format!("{create}; echo kept > t/other; zpool sync")).ok();
    host.shell("zpool set failmode=wait tank; timeout -s KILL 500 python3 suspended.py t/first 70M").ok();
    host.shell("zpool set failmode=continue tank; timeout -s KILL 500 python3 suspended.py t/second 200M")
        .ok();
    host.shell("zpool export tank; umount small").ok();
}

/// A mount in use follows the property, and lets go of it.
#[test]
fn sync_always_makes_a_mount_synchronous() {
    let Some(host) = new_host("collected-sync", 128 << 20, "-O sync=always") else { return };
    let set = |value: &str| {
        host.shell(&format!("exec 7<t; zfs set sync={value} tank; findmnt -no OPTIONS t")).ok().out
    };
    let is_synchronous = |told: &str| told.trim().split(',').any(|option| option == "sync");
    assert!(is_synchronous(&host.shell("findmnt -no OPTIONS t").ok().out));
    assert!(!is_synchronous(&set("standard")));
    assert!(is_synchronous(&set("always")));
    // The variable counts where the property says nothing.
    if std::env::var_os("STEADFAST_FUSE").is_none() {
        host.shell("zfs set writeback_cache=off tank").ok();
        assert!(
            !is_synchronous(&host.shell("findmnt -no OPTIONS t").ok().out),
            "each write waits without it"
        );
    }
}

/// Attributes of a file at a network client.
fn seen(client: &mut Client, file: &[u8]) -> Attributes {
    let (status, results) = call(client, 1, |out| _ = out.opaque(file));
    assert_eq!(status, 0);
    plain_attributes(&mut Reader::new(&results)).expect("attributes")
}

fn write_at(client: &mut Client, file: &[u8], offset: u64, data: &[u8]) {
    let count = data.len() as u32;
    let (status, _) = call(client, 7, |out| _ = out.opaque(file).u64(offset).u32(count).u32(0).opaque(data));
    assert_eq!(status, 0);
}

/// Size and time of modification, where they are given.
fn set(client: &mut Client, file: &[u8], size: Option<u64>, mtime: Option<u32>) {
    let (status, _) = call(client, 2, |out| {
        out.opaque(file).bool(false).bool(false).bool(false).bool(size.is_some());
        size.iter().for_each(|size| _ = out.u64(*size));
        out.u32(0).u32(if mtime.is_some() { 2 } else { 0 });
        mtime.iter().for_each(|mtime| _ = out.u32(*mtime).u32(7));
        out.bool(false);
    });
    assert_eq!(status, 0);
}

/// Shares a mounted file system of which the kernel collects writes, and gives what is told.
fn share_later(host: &Host) -> String {
    host.shell("zfs set sharenfs=insecure,no_root_squash tank").ok().err
}

/// The kernel collects writes where nobody else changes files. That is decided at each mount.
#[test]
fn a_file_system_that_is_shared_or_read_only_at_its_mount_does_not_collect() {
    let Some(host) = new_host("collected-shared", 128 << 20, "-O sharenfs=insecure,no_root_squash") else {
        return;
    };
    let is = |expected: &str, why: &str| {
        let told = host.shell("zfs get -Ho value,source writeback_cache tank").ok().out;
        assert_eq!(told.trim(), expected, "{why}");
        // Each write is a request of its own, or all of them are one.
        let writes = || -> u64 {
            let told = host.shell("zpool iostat --requests -Hp tank").ok().out;
            let row = told.lines().find(|line| line.starts_with("tank\tlocal\twrite\t")).map(str::to_owned);
            row.and_then(|row| row.split('\t').nth(4)?.parse().ok()).unwrap_or_default()
        };
        let before = writes();
        host.shell(
            "zfs get -Ho value readonly tank | grep -q on || yes 123456789 | dd bs=10 count=40 of=t/f",
        )
        .ok();
        let came = writes() - before;
        assert!(came == 0 || (came < 20) == expected.starts_with("on"), "{why}: {came} writes came");
    };
    let anew = || host.shell("zfs unmount tank && zfs mount tank").ok();
    is("off\ttemporary", "shared");
    assert_eq!(host.shell("zfs set sharenfs=off tank").ok().err, "");
    is("off\ttemporary", "not mounted anew");
    anew();
    is("on\tlocal", "neither shared nor read-only");
    let told = share_later(&host);
    assert!(told.starts_with("note: 'tank' was mounted before it was shared"), "{told}");
    assert_eq!(host.shell("zfs share tank 2>&1").ok().out, told);
    is("on\tlocal", "it goes on");
    let typed = told.split('`').nth(1).expect("a command");
    host.shell(typed).ok();
    is("off\ttemporary", "mounted anew");
    assert_eq!(host.shell("zfs share tank 2>&1").ok().out, "");
    host.shell("zfs set sharenfs=off tank; zfs set readonly=on tank").ok();
    anew();
    is("off\ttemporary", "read-only");
    host.shell("zfs set readonly=off tank").ok();
    is("off\ttemporary", "it was read-only");
    anew();
    is("on\tlocal", "in the end");
}

/// A read that the kernel answers from its pages would move no access time.
#[test]
fn a_file_system_whose_every_read_counts_does_not_collect() {
    let Some(host) = new_host("collected-atime", 128 << 20, "") else { return };
    host.shell("zfs create tank/mail; zfs create -o relatime=off tank/exact; zfs create tank/mail/below")
        .ok();
    let is = |name: &str, expected: &str| {
        let told = host.shell(&format!("zfs get -Ho value,source writeback_cache {name}")).ok().out;
        assert_eq!(told.trim(), expected, "{name}");
    };
    let reads = r#"
import os, sys, time
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(f, b'content')
for turn in range(3):
    before = os.fstat(f).st_atime_ns
    time.sleep(0.02)
    assert os.pread(f, 7, 0) == b'content'
    assert os.fstat(f).st_atime_ns > before, turn
"#;
    fs::write(host.at("reads.py"), reads).expect("a file");
    is("tank/exact", "off\ttemporary");
    host.shell("python3 reads.py t/exact/f").ok();
    is("tank/mail", "on\tinherited from tank");
    assert_eq!(host.shell("zfs set relatime=off tank/mail").ok().err, "", "it is not in use");
    is("tank/mail", "off\ttemporary");
    is("tank/mail/below", "off\ttemporary");
    is("tank", "on\tlocal");
    host.shell("python3 reads.py t/mail/f; python3 reads.py t/mail/below/f").ok();
    // Of those below one that is in use the others are mounted anew.
    host.shell("zfs inherit relatime tank/mail; zfs unmount tank/mail; zfs mount -R tank/mail").ok();
    is("tank/mail/below", "on\tinherited from tank");
    let told = host.shell("cd t/mail; zfs set relatime=off tank/mail").ok().err;
    assert!(told.starts_with("note: 'tank/mail' is in use") && told.contains("ATIME-COLLECTED"), "{told}");
    is("tank/mail", "on\tinherited from tank");
    is("tank/mail/below", "off\ttemporary");
    host.shell(told.split('`').nth(1).expect("a command")).ok();
    is("tank/mail", "off\ttemporary");
    host.shell("python3 reads.py t/mail/f").ok();
    // No access times at all are no reason.
    host.shell("zfs set atime=off tank/mail; zfs unmount tank/mail; zfs mount -R tank/mail").ok();
    is("tank/mail", "on\tinherited from tank");
}

/// A file system that became read-only while the kernel collected its writes shows the sizes that
/// a stream brings, and those of a snapshot.
#[test]
fn a_replica_shows_the_sizes_of_each_stream() {
    let Some(host) = new_host("collected-replica", 256 << 20, "") else { return };
    let shown = |expected: &str| {
        let told = host.shell("zfs get -Ho value,source writeback_cache tank/to").ok().out;
        assert_eq!(told.trim(), expected);
    };
    let look = "stat -c %s t/to/file; cat t/to/file";
    host.shell(
        "zfs create tank/from; echo one > t/from/file; zfs snapshot tank/from@1
         zfs send tank/from@1 | zfs receive tank/to; zfs set readonly=on tank/to",
    )
    .ok();
    host.shell(look).ok().says("4\none\n");
    shown("on\tinherited from tank");
    host.shell(
        "echo and more >> t/from/file; zfs snapshot tank/from@2
         zfs send -i @1 tank/from@2 | zfs receive tank/to",
    )
    .ok();
    host.shell(look).ok().says("13\none\nand more\n");
    shown("off\ttemporary");
    host.shell(
        "zfs set readonly=off tank/to; zfs unmount tank/to; zfs mount tank/to; zfs set readonly=on tank/to",
    )
    .ok();
    shown("on\tinherited from tank");
    host.shell(look).ok();
    host.shell("zfs rollback -r tank/to@1").ok();
    host.shell(look).ok().says("4\none\n");
    shown("off\ttemporary");
}

/// A kernel that collects writes takes sizes and times of a file that it knows from nobody but
/// itself.
#[test]
fn sizes_and_times_that_a_network_client_changes_are_seen() {
    let Some(host) = new_host("collected-nfs", 128 << 20, "") else { return };
    share_later(&host);
    let path = host.at("t").display().to_string();
    let (mut client, top) = mount(&host, &path);
    host.shell("printf 0123456789 > t/file; stat t/file").ok();
    let file = client.lookup(&top, "file").expect("answered").expect("there").handle;
    let look = || {
        let told = host.shell("stat -c '%s %.9Y' t/file; cat t/file").ok().out;
        let (line, content) = told.split_once('\n').expect("two lines");
        let (size, time) = line.split_once(' ').expect("two words");
        (size.parse::<u64>().expect("a size"), time.to_owned(), content.to_owned())
    };
    let agrees = |client: &mut Client, content: &str| {
        let attributes = seen(client, &file);
        let (size, mtime, local) = look();
        assert_eq!((size, local.as_str()), (attributes.size, content));
        assert_eq!(mtime, format!("{}.{:09}", attributes.mtime.0, attributes.mtime.1));
    };
    agrees(&mut client, "0123456789");
    write_at(&mut client, &file, 10, b"abcdef");
    agrees(&mut client, "0123456789abcdef");
    set(&mut client, &file, Some(4), None);
    agrees(&mut client, "0123");
    set(&mut client, &file, None, Some(981_173_106));
    agrees(&mut client, "0123");
    // While a local program has it open, and its own bytes are in the kernel's pages.
    let (mut writer, mut pipe) = keep_open(&host, "t/file", &noise(3, 4096));
    write_at(&mut client, &file, 4096 * 3, b"behind");
    let attributes = seen(&mut client, &file);
    assert_eq!((attributes.size, look().0), (4096 * 3 + 6, 4096 * 3 + 6));
    std::io::Write::write_all(&mut pipe, &noise(4, 4096)).expect("written");
    drop(pipe);
    writer.wait().expect("it ends");
    let whole = [noise(3, 4096), noise(4, 4096), vec![0; 4096], b"behind".to_vec()].concat();
    assert!(fs::read(host.at("t/file")).expect("read") == whole);
    assert_eq!(read(&mut client, &file).as_ref(), Ok(&whole));
    host.shell("zpool export tank; zpool import -d $PWD tank").ok();
    assert!(fs::read(host.at("t/file")).expect("read") == whole);
}

/// A local program makes a file longer, and a client changes its first page: nothing that either
/// wrote in its own part is lost.
#[test]
fn a_file_that_a_client_and_a_local_program_write_keeps_what_both_wrote() {
    let Some(host) = new_host("collected-both", 128 << 20, "") else { return };
    share_later(&host);
    let path = host.at("t").display().to_string();
    let (mut client, top) = mount(&host, &path);
    const APPEND: &str = r"
import os
fd = os.open('t/file', os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(fd, b'0' * 4096, 0)
print(flush=True)
for n in range(1, 3001):
    os.pwrite(fd, b'%04d' % n * 1024, n * 4096)
    assert os.fstat(fd).st_size == (n + 1) * 4096
";
    fs::write(host.at("append.py"), APPEND).expect("a file");
    let mut append = Command::new("python3");
    append.arg("append.py").current_dir(host.at("")).stdout(Stdio::piped());
    let mut append = spawn(&mut append).expect("it runs");
    std::io::Read::read_exact(&mut append.stdout.take().expect("a pipe"), &mut [0]).expect("it began");
    let file = client.lookup(&top, "file").expect("answered").expect("there").handle;
    let mut last = 0_u64;
    while append.try_wait().expect("a child").is_none() {
        last += 1;
        write_at(&mut client, &file, 0, &last.to_be_bytes());
    }
    assert!(append.wait().expect("it ends").success(), "a program saw another size than its own");
    let expected: Vec<u8> = (1..=3000).flat_map(|n| format!("{n:04}").repeat(1024).into_bytes()).collect();
    let found = fs::read(host.at("t/file")).expect("read");
    assert_eq!(found[..8], last.to_be_bytes());
    assert!(found[4096..] == expected, "{} bytes", found.len());
    assert_eq!(seen(&mut client, &file).size, 3001 * 4096);
}

/// The time of a local program's write, told late by the kernel, does not undo one that a client
/// set behind it (`cp -p`, `rsync -t`), and a later write counts.
#[test]
fn a_time_that_a_client_sets_stays_until_a_program_writes_again() {
    let Some(host) = new_host("collected-utimes", 128 << 20, "") else { return };
    share_later(&host);
    let path = host.at("t").display().to_string();
    let (mut client, top) = mount(&host, &path);
    const SET: u32 = 981_173_106;
    for round in 0..5 {
        let name = format!("t/file{round}");
        let (mut writer, mut pipe) = keep_open(&host, &name, &noise(3, 4096));
        let file = client.lookup(&top, &name[2..]).expect("answered").expect("there").handle;
        // Another tick of the clock than that in which it was made, and another one.
        std::thread::sleep(Duration::from_millis(20));
        std::io::Write::write_all(&mut pipe, &noise(5, 4096)).expect("written");
        steadfast_tests::until(|| match fs::metadata(host.at(&name)).map(|about| about.len()) {
            Ok(8192) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        std::thread::sleep(Duration::from_millis(20));
        let time = || host.shell(&format!("stat -c %.9Y {name}")).ok().out.trim().to_owned();
        let (seconds, nanos) = seen(&mut client, &file).mtime;
        assert_eq!(time(), format!("{seconds}.{nanos:09}"), "it comes with the pages");
        set(&mut client, &file, None, Some(SET));
        let local = format!("stat -c %Y {name}");
        assert_eq!(host.shell(&local).ok().out.trim(), SET.to_string());
        // The kernel hands over what it has.
        host.shell("sync -f t").ok();
        assert_eq!((seen(&mut client, &file).mtime, round), ((SET, 7), round));
        std::thread::sleep(Duration::from_millis(20));
        std::io::Write::write_all(&mut pipe, &noise(4, 4096)).expect("written");
        drop(pipe);
        writer.wait().expect("it ends");
        let after = seen(&mut client, &file).mtime;
        assert!(after.0 > SET, "{after:?}");
        assert_eq!(host.shell(&local).ok().out.trim(), after.0.to_string());
    }
    // A new name: the kernel hands over the time of this change late, and the other one with it.
    host.shell("echo content > t/old; sleep 0.02; mv t/old t/new; sleep 0.02").ok();
    let file = client.lookup(&top, "new").expect("answered").expect("there").handle;
    set(&mut client, &file, None, Some(SET));
    host.shell("sync -f t; stat -c %Y t/new").ok().says(&SET.to_string());
    assert_eq!(seen(&mut client, &file).mtime, (SET, 7));
}

/// While the kernel cannot hand over a local program's pages, because the way to its mount is
/// covered, a client is told to ask again, and does not get old content.
#[test]
fn a_client_asks_again_while_pages_cannot_be_handed_over() {
    const JUKEBOX: u32 = 10_008;
    let Some(host) = new_host("collected-jukebox", 128 << 20, "") else { return };
    share_later(&host);
    let path = host.at("t").display().to_string();
    let (mut client, top) = mount(&host, &path);
    let (mut writer, pipe) = keep_open(&host, "t/file", &noise(3, 4096));
    let file = client.lookup(&top, "file").expect("answered").expect("there").handle;
    host.shell("mount -t tmpfs none t").ok();
    let (answered, (changed, _)) = (
        read(&mut client, &file),
        call(&mut client, 2, |out| {
            out.opaque(&file).bool(false).bool(false).bool(false).bool(true).u64(0).u32(0).u32(0).bool(false);
        }),
    );
    host.shell("umount t").ok();
    assert_eq!((answered, changed), (Err(JUKEBOX), JUKEBOX));
    assert_eq!(read(&mut client, &file), Ok(noise(3, 4096)));
    drop(pipe);
    writer.wait().expect("it ends");
}

/// A client cuts a file whose pages a local program writes one after the other: those before the
/// cut are gone, those behind it are there, and both sides see that.
#[test]
fn each_write_of_a_program_is_before_a_clients_cut_or_behind_it() {
    const PAGES: usize = 1_000;
    let Some(host) = new_host("collected-cut", 512 << 20, "") else { return };
    share_later(&host);
    let path = host.at("t").display().to_string();
    let (mut client, top) = mount(&host, &path);
    const WRITE: &str = r"
import os, sys, time
fd = os.open('t/file', os.O_RDWR | os.O_CREAT, 0o644)
for line in sys.stdin:
    os.pwrite(fd, b'old!' * (1024 * 1001), 0)
    os.fsync(fd)
    print('begins', flush=True)
    for n in range(1, 1001):
        os.pwrite(fd, b'%04d' % n * 1024, n * 4096)
        time.sleep(0.00005)
    print('ends', flush=True)
";
    fs::write(host.at("write.py"), WRITE).expect("a file");
    let mut write = Command::new("python3");
    write.arg("write.py").current_dir(host.at("")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut write = spawn(&mut write).expect("it runs");
    let mut told = std::io::BufRead::lines(std::io::BufReader::new(write.stdout.take().expect("a pipe")));
    let mut go = write.stdin.take().expect("a pipe");
    let page = |n: usize| format!("{n:04}").repeat(1024).into_bytes();
    let mut within = 0;
    for round in 0..15 {
        std::io::Write::write_all(&mut go, b"go\n").expect("it reads");
        assert_eq!(told.next().expect("a line").expect("text"), "begins");
        let file = client.lookup(&top, "file").expect("answered").expect("there").handle;
        std::thread::sleep(Duration::from_millis(7 * round % 50));
        set(&mut client, &file, Some(4096), None);
        assert_eq!(told.next().expect("a line").expect("text"), "ends");
        let found = fs::read(host.at("t/file")).expect("read");
        let pages: Vec<&[u8]> = found.chunks(4096).collect();
        let there = |n: usize| pages.get(n).is_some_and(|found| **found == page(n));
        let is_gone = |n: usize| pages.get(n).is_none_or(|found| found.iter().all(|byte| *byte == 0));
        let first = (1..=PAGES).find(|n| there(*n)).unwrap_or(PAGES + 1);
        let wrong = (1..=PAGES).find(|n| if *n < first { !is_gone(*n) } else { !there(*n) });
        assert_eq!(wrong, None, "round {round}: page {first} is the first one of {}", pages.len());
        assert_eq!(seen(&mut client, &file).size, found.len() as u64);
        within += u32::from((2..=PAGES).contains(&first));
    }
    drop(go);
    assert!(write.wait().expect("it ends").success());
    assert!(within > 0, "no cut came between two writes");
}
