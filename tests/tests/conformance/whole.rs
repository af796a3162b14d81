//! Promises that need more than one directory: several users, a full pool, a daemon that starts
//! again.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use steadfast_tests::{Host, output, skip, spawn};

use super::{Ask::Python, ask, long, missing, tank, whole};

/// Requests of two users at once are never mixed up.
#[test]
fn two_users_at_once_are_never_taken_for_each_other() {
    let Some(host) = tank("two users at once", 1024) else { return };
    std::fs::create_dir(host.at("t/w")).expect("a directory");
    let seconds = if long() { "15" } else { "3" };
    std::fs::write(host.at("seconds"), seconds).expect("a file");
    let text = Python(
        r#"
seconds = float(get('../../seconds'))
os.chmod('.', 0o777)
def busy(uid):
    def work():
        made, stop = 0, time.time() + seconds
        while time.time() < stop:
            name = f'{uid}.{made}'
            f = os.open(name, CREATE | os.O_EXCL, 0o600); os.write(f, b'x')
            for seen in (os.fstat(f), os.stat(name)):
                assert (seen.st_uid, seen.st_gid) == (uid, uid), f'{name} belongs to {seen.st_uid}:{seen.st_gid}'
            os.close(f); os.mkdir(name + 'd', 0o700)
            assert os.stat(name + 'd').st_uid == uid
            if made % 2: os.unlink(name)
            os.rmdir(name + 'd'); made += 1
        assert made > 10, made
    return work
children = []
for uid in (0, 1, 0, 1):
    os.mkdir(f'{len(children)}'); os.chmod(f'{len(children)}', 0o777)
    child = os.fork()
    if child == 0:
        os.chdir(f'{len(children)}')
        as_user(uid, busy(uid)); os._exit(0)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
"#,
    );
    ask(&host, &host.at("t/w"), &text).ok();
    whole(&host);
}

/// A call that creates something tells the kernel the same attributes as a later getattr.
#[test]
fn what_is_made_shows_what_it_is_asked_for_later() {
    let Some(host) = tank("replies equal attributes", 256) else { return };
    let text = Python(
        r#"
def attributes(name, flags):
    out = ctypes.create_string_buffer(256)
    checked(libc.statx(-100, os.fsencode(name), 0x100 | flags, 0x7ff, out))
    return out.raw
os.mkdir('g'); os.chown('g', 7, 4242); os.chmod('g', 0o2755)
for at in ('.', 'g'):
    made = []
    def make(name, call):
        call(f'{at}/{name}'); made.append(f'{at}/{name}')
    make('create', lambda n: os.close(os.open(n, CREATE, 0o641)))
    make('node', lambda n: os.mknod(n, stat.S_IFIFO | 0o620))
    make('dir', lambda n: os.mkdir(n, 0o751))
    make('symlink', lambda n: os.symlink('some/where', n))
    put(f'{at}/source', 'eleven chars' * 100)
    make('link', lambda n: os.link(f'{at}/source', n))
    made.append(f'{at}/source')
    for name in made:
        cached, asked = attributes(name, 0x4000), attributes(name, 0x2000)
        assert cached == asked, (name, cached, asked)
"#,
    );
    ask(&host, &host.at("t"), &text).ok();
}

/// Handles (NFS, `open_by_handle_at`) name their file for ever: through dropped caches, another
/// daemon, another import.
#[test]
fn handles_outlive_caches_and_daemons() {
    let Some(host) = tank("handles", 256) else { return };
    let prelude = r#"
def handle(name):
    out = ctypes.create_string_buffer(136); ctypes.c_uint.from_buffer(out).value = 128
    checked(libc.name_to_handle_at(-100, os.fsencode(name), out, ctypes.byref(ctypes.c_int()), 0))
    return out.raw[:8 + ctypes.c_uint.from_buffer(out).value]
def by_handle(raw, flags=os.O_RDONLY):
    top = os.open('.', os.O_RDONLY)
    try: return checked(libc.open_by_handle_at(top, ctypes.create_string_buffer(raw, 136), flags))
    finally: os.close(top)
paths = ['file', 'deep/er/file', 'deep/er', '.']
"#;
    let run = |text: &str| {
        let text = format!("{}{prelude}{text}", super::PYTHON);
        host.exec("env", &["-C", &host.at("t").display().to_string(), "python3", "-c", &text], b"").ok()
    };
    run(r#"
os.makedirs('deep/er'); put('file', 'one'); put('deep/er/file', 'two'); put('gone', 'x')
put('../gone.handle', handle('gone'))
for number, path in enumerate(paths): put(f'../{number}.handle', handle(path))
put('../numbers', repr([os.stat(path).st_ino for path in paths]))
put('/proc/sys/vm/drop_caches', '2')
assert os.read(by_handle(get('../1.handle')), 9) == b'two'
os.unlink('gone'); os.close(os.open('gone', CREATE))
refuses(errno.ESTALE, by_handle, get('../gone.handle'))
"#);
    let known = r#"
assert repr([os.stat(path).st_ino for path in paths]).encode() == get('../numbers')
for number, path in enumerate(paths): assert handle(path) == get(f'../{number}.handle'), path
"#;
    let by = r#"
f = by_handle(get('../1.handle'))
assert os.read(f, 9) == b'two' and os.fstat(f).st_nlink == 1
assert os.listdir(by_handle(get('../2.handle'))) == ['file']
assert os.read(by_handle(get('../0.handle')), 9) == b'one'
refuses(errno.ESTALE, by_handle, get('../gone.handle'))
"#;
    host.run("daemon stop").ok();
    host.run("pool list").ok().says("tank");
    run(by);
    run(known);
    host.shell("zpool export tank; zpool import -d $PWD/tank.img tank").ok();
    run(by);
    run(known);
}

/// A place in a listing that a client keeps (as NFS clients do) is found again after the daemon,
/// and after an import, while names before and behind it went.
#[test]
fn places_in_a_listing_outlive_daemons() {
    let Some(host) = tank("places in a listing", 256) else { return };
    host.shell(
        r#"mkdir t/d; (cd t/d; seq 3000 | xargs touch)
        perl -e 'opendir my $d, "t/d" or die; my @all;
            while (1) { my $t = telldir $d; my $n = readdir $d; last unless defined $n; push @all, "$t $n" }
            print "$_\n" for @all' > places
        test $(wc -l < places) = 3002"#,
    )
    .ok();
    let look = || {
        host.shell(
            r#"perl -e 'open my $f, "<", "places"; my @all = <$f>; opendir my $d, "t/d" or die;
            for my $i (2900, 3, 1400, 777, 2, 0) {
                my ($at, $name) = split " ", $all[$i]; next unless -e "t/d/$name";
                seekdir $d, $at; my $n = readdir $d; $n eq $name or die "$i: $n is not $name" }
            # From a place on, everything behind it comes, once.
            my ($at) = split " ", $all[1000]; seekdir $d, $at; my %seen; while (my $n = readdir $d) { die "$n again" if $seen{$n}++ }
            for my $i (1000 .. $#all) { my (undef, $name) = split " ", $all[$i]; die "$name is missing" if -e "t/d/$name" && !$seen{$name} }'"#,
        )
        .ok();
    };
    host.run("daemon stop").ok();
    host.run("pool list").ok().says("tank");
    look();
    host.shell("cd t/d; awk 'NR % 7 == 5 && $2 !~ /^\\./ { print $2 }' ../../places | xargs rm").ok();
    whole(&host);
    look();
}

/// A pool that is full to the last byte takes deletes, and then new files.
#[test]
fn what_is_full_can_be_emptied() {
    let Some(host) = tank("full, then emptied", 160) else { return };
    host.shell(
        "cd t; dd if=/dev/urandom of=f bs=1M 2>/dev/null && exit 1; sync f || true
         if dd if=/dev/urandom of=g bs=1M count=4 conv=fsync status=none 2>/dev/null; then exit 2; fi
         rm f; sync .; dd if=/dev/urandom of=h bs=1M count=64 conv=fsync status=none; rm -f g; sync .",
    )
    .ok();
    whole(&host);
}

/// With the kernel's write-back cache the kernel keeps the times of written files: what it showed
/// is what is stored.
#[test]
fn times_of_collected_writes_are_those_that_were_shown() {
    let Some(host) = tank("times of collected writes", 128) else { return };
    host.shell(
        "zfs unmount tank; zfs mount -o writeback_cache=on tank
         for n in $(seq 300); do echo $n >> t/$((n % 7)); done
         stat -c '%n %.9Y %.9Z' t/? > before; zpool export tank; zpool import -d $PWD/tank.img tank
         stat -c '%n %.9Y %.9Z' t/? | diff before -",
    )
    .ok();
    whole(&host);
}

/// A file that was read is folded behind everybody's back, and occupies less then: `stat` says so
/// though the kernel knew a number that it may keep for an hour. It learns that number before
/// anything is read.
#[test]
fn blocks_of_a_folded_file_are_told_anew() {
    let Some(host) = tank("blocks of a folded file", 512) else { return };
    host.shell(
        "zfs set compression=off tank; head -c 4M /dev/urandom | tee t/f > f; zpool sync
         for page in 1 9 17 25 29; do
             for record in $(seq 0 31); do
                 head -c 4k /dev/urandom > page
                 for file in f t/f; do
                     dd if=page of=$file bs=4k count=1 seek=$((record * 32 + page)) conv=notrunc status=none
                 done
             done
             zpool sync
         done
         sleep 2
         was=$(stat -c %b t/f); test $was -gt $((4 * 2048 + 400))
         dd if=t/f of=/dev/null bs=1M iflag=direct status=none
         for try in $(seq 240); do
             zpool sync; now=$(stat -c %b t/f)
             if test $now -lt $was; then cmp f t/f; exit; fi
             sleep 0.25
         done
         echo $was blocks before, $now now; exit 3",
    )
    .ok();
    whole(&host);
}

/// Everything that a name, an attribute or a list says is there after the next import.
#[test]
fn an_import_brings_everything_back() {
    let Some(host) = tank("an import brings everything back", 256) else { return };
    let make = Python(
        r#"
import random
os.mkdir('d'); put('d/file', os.urandom(300_000)); os.symlink('t' * 4000, 'd/link'); os.mkfifo('d/pipe')
os.mknod('d/dev', stat.S_IFCHR | 0o604, os.makedev(300, 70_000)); os.link('d/file', 'd/second')
os.setxattr('d/file', 'user.big', bytes(range(256)) * 256); os.setxattr('d/link', 'trusted.x', b'', follow_symlinks=False)
subprocess.check_call(['setfacl', '-m', 'u:1:rx,g:7:w,d:u:3:rw', 'd'])
put(b'd/\xff\n', 'odd'); os.truncate('d/second', 1 << 40)
os.utime('d/file', ns=(-5, 2**33 * 10**9 + 3)); os.chown('d/file', 2**32 - 10, 2**31); os.chmod('d/file', 0o7421)
"#,
    );
    ask(&host, &host.at("t"), &make).ok();
    // Looking is reading, which moves access times.
    host.shell("zfs set atime=off tank").ok();
    let look = || {
        host.shell(
            "cd t; find . -exec stat -c '%n %F %a %u %g %s %h %t:%T %i %.9X %.9Y %.9Z %.9W' {} + | sort
             find . -print0 | sort -z | xargs -0 getfattr -hd -m- -e hex -- | sha256sum; getfacl -Rn .
             head -c 400000 d/file | sha256sum; readlink d/link",
        )
        .ok()
        .out
    };
    let before = look();
    whole(&host);
    assert_eq!(look(), before);
}

/// `acltype=off`: lists are neither shown nor taken, modes alone count, and what was stored is not
/// lost.
#[test]
fn lists_can_be_switched_off() {
    let Some(host) = tank("acltype", 128) else { return };
    host.shell(
        "zfs get -Ho value acltype tank | grep -qx posix
         user() { setpriv --reuid 1 --regid 1 --clear-groups \"$@\"; }
         cd t; echo x > a; chmod 600 a; setfacl -m u:1:r a; user cat a; cd ..
         zfs set acltype=off tank; cd t
         if user cat a 2>/dev/null; then exit 2; fi
         test -z \"$(getfattr -m- a)\"; if setfacl -m u:1:r a 2>/dev/null; then exit 3; fi
         umask 077; touch b; test $(stat -c %a b) = 600; chmod g= a; cd ..
         zfs set acltype=posixacl tank; zfs get -Ho value acltype tank | grep -qx posix
         getfacl -cEn t/a | grep -qx user:1:r--; getfacl -cEn t/a | grep -qx mask::---",
    )
    .ok();
    host.shell("zfs create -o casesensitivity=sensitive -o normalization=none -o utf8only=off tank/c").ok();
    host.shell("zfs create -o casesensitivity=insensitive tank/d")
        .fails(1)
        .says("'casesensitivity=insensitive' is not offered")
        .says("Samba");
    host.shell("zfs create -o normalization=formD tank/d")
        .fails(1)
        .says("'normalization=formD' is not offered")
        .says("convmv");
}

/// Reading from a pool that may not be changed changes nothing, not even in memory, and writing is
/// refused.
#[test]
fn a_read_only_pool_keeps_its_access_times() {
    let Some(host) = tank("read-only", 128) else { return };
    host.shell(
        "mkdir t/d; echo text > t/d/a; ln -s a t/d/link; touch -a -d @1000 t/d/a t/d; touch -h -a -d @1000 t/d/link
         zpool export tank; zpool import -o readonly=on -d $PWD/tank.img tank
         cat t/d/a t/d/link; ls t/d; readlink t/d/link
         test $(stat -c %X t/d/a t/d t/d/link | sort -u) = 1000
         for try in 'touch t/d/a' 'rm t/d/a' 'mkdir t/x' 'chmod 600 t/d/a' 'setfattr -n user.x t/d/a' 'setfacl -m u:1:r t/d/a'; do
             if said=$($try 2>&1); then echo \"$try went well\"; exit 3; fi
             case $said in *Read-only*) ;; *) echo \"$try: $said\"; exit 4 ;; esac
         done
         zpool export tank; zpool import -d $PWD/tank.img tank; test $(stat -c %X t/d/a) = 1000",
    )
    .ok();
    whole(&host);
}

/// `atime` and `relatime` say when reading moves an access time. Each read is made with an empty
/// page cache (a new mount), because what the kernel answers from it is not told to any FUSE
/// server.
#[test]
fn access_times_follow_the_properties() {
    let Some(host) = tank("atime", 128) else { return };
    host.shell(
        "read_again() {
             old=$(stat -c %.9X t/a); zfs unmount tank; zfs mount tank; sleep 0.02; cat t/a >/dev/null
             test $(stat -c %.9X t/a) != $old
         }
         never() { if read_again; then echo \"moved: $*\"; exit 3; fi; }
         echo text > t/a; touch -d '3 hours ago' t/a
         read_again                                              # older than the last change of its attributes
         never 'read after the last change, less than a day ago'
         zfs set relatime=off tank; read_again; read_again
         zfs set atime=off tank; never 'atime is off'; touch -a -d '2 days ago' t/a; never 'atime is still off'
         zfs set atime=on relatime=on tank; read_again; never 'once is enough'",
    )
    .ok();
    whole(&host);
}

/// Pages that the kernel keeps answer reads without asking, and it moves no access time itself.
#[test]
fn reads_that_the_kernel_answers_move_access_times() {
    let Some(host) = tank("cached-atime", 128) else { return };
    let python = r#"
import mmap, os, subprocess, sys, time
def at(name): return os.stat(name, follow_symlinks=False).st_atime_ns
def moved(name, read):
    old = at(name); time.sleep(0.02); read()
    return at(name) != old
def cat(name, flags=os.O_RDONLY, same=True):
    f = os.open(name, flags); data = os.read(f, 1 << 20); os.close(f)
    assert data == BYTES or not same, len(data)
os.chdir('t'); BYTES = os.urandom(64 << 10)
for name in ('a', 'b'):
    open(name, 'wb').write(BYTES)
os.mkdir('d'); open('d/f', 'w').close(); os.symlink('a', 'l')

# Whole pages that were written are in the kernel. The first read behind a change counts.
assert not moved('a', lambda: cat('a', os.O_NOATIME)), 'O_NOATIME'
assert moved('a', lambda: cat('a')), 'first read'
assert not moved('a', lambda: cat('a')), 'once is enough'
assert not moved('b', lambda: os.close(os.open('b', os.O_WRONLY))), 'nothing can be read'
open('a', 'r+b').write(BYTES)
assert moved('a', lambda: cat('a', os.O_RDWR)), 'changed again'

def zfs(words): assert os.system('zfs ' + words) == 0, words
# Although the mount is in use. Where the kernel collects writes it goes on, and a note tells of that.
said = subprocess.run(['zfs', 'set', 'relatime=off', 'tank'], capture_output=True, text=True, check=True)
collects = sys.argv[1] == 'on'
assert said.stdout == '' and ('ATIME-COLLECTED' in said.stderr) == collects and bool(said.stderr) == collects, said
for turn in range(3):
    assert moved('a', lambda: cat('a')), turn
    assert moved('d', lambda: os.listdir('d')), turn
    assert moved('l', lambda: os.readlink('l')), turn
    assert not moved('a', lambda: cat('a', os.O_NOATIME)), turn
if collects:
    os.chdir('..'); os.system(said.stderr.split('`')[1]); os.chdir('t')
with open('a', 'r+b', buffering=0) as f:
    for turn in range(3):
        assert moved('a', lambda: os.pread(f.fileno(), 10, 5)), turn
    os.pwrite(f.fileno(), b'direct', 0)
    with mmap.mmap(f.fileno(), 0) as pages:
        assert pages[:6] == b'direct'
        pages[:6] = b'mapped'; pages.flush()
        assert os.pread(f.fileno(), 6, 0) == b'mapped'
zfs('set atime=off tank')
assert not moved('a', lambda: cat('a', os.O_RDONLY, False))
zfs('inherit -r relatime tank'); zfs('inherit atime tank')
"#;
    std::fs::write(host.at("reads.py"), python).expect("written");
    for collects in ["off", "on"] {
        host.shell(&format!(
            "rm -rf t/*; zfs set writeback_cache={collects} tank; python3 reads.py {collects}"
        ))
        .ok();
    }
    whole(&host);
}

/// A folder whose files stop answering when its server is stopped: what a hanging disk is to a
/// daemon.
struct Hanging {
    server: Child,
    at: std::path::PathBuf,
}

impl Hanging {
    fn new(host: &Host) -> Hanging {
        host.shell("mkdir sealed plain; gocryptfs -q -init -scryptn 10 -extpass 'echo word' sealed").ok();
        let mut command = Command::new("gocryptfs");
        command.args(["-q", "-fg", "-extpass", "echo word"]).args([host.at("sealed"), host.at("plain")]);
        let server = spawn(command.stdout(Stdio::null())).expect("gocryptfs starts");
        let hanging = Hanging { server, at: host.at("plain") };
        host.shell("until mountpoint -q plain; do sleep 0.1; done").ok();
        hanging
    }

    fn signal(&self, name: &str) {
        let sent = output(Command::new("kill").args([name, &self.server.id().to_string()]));
        assert!(sent.is_ok_and(|sent| sent.status.success()), "kill {name}");
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // A test that failed leaves it stopped, and then nothing could be unmounted.
        let _ = output(Command::new("kill").args(["-CONT", &self.server.id().to_string()]));
        let _ = output(Command::new("umount").arg("-l").arg(&self.at));
        let _ = self.server.wait();
    }
}

/// A program that waits for a hanging disk can be killed: a request is never kept longer than its
/// caller lives.
#[test]
fn who_waits_for_a_hanging_disk_can_be_killed() {
    let test = "killed while a disk hangs";
    let gocryptfs = output(Command::new("gocryptfs").arg("--version"));
    let why = missing().or_else(|| gocryptfs.is_err().then(|| "gocryptfs is not installed".to_owned()));
    if let Some(why) = why {
        return skip(test, &why);
    }
    let host = Host::new();
    let disk = Hanging::new(&host);
    host.shell("truncate -s 128M plain/img; zpool create -m $PWD/t tank $PWD/plain/img; zpool sync").ok();
    disk.signal("-STOP");
    let text = "import os; f = os.open('file', 66); os.write(f, b'x' * 9000); print('waits', flush=True); os.fsync(f)";
    let mut command = Command::new("python3");
    command.args(["-c", text]).current_dir(host.at("t")).stdout(Stdio::piped());
    let mut waiter = spawn(&mut command).expect("python starts");
    let mut said = [0; 6];
    let out = waiter.stdout.as_mut().expect("a pipe");
    std::io::Read::read_exact(out, &mut said).expect("it says that it waits");
    // Long enough that it waits in our hands; if not, the test is easier to pass, never harder.
    std::thread::sleep(Duration::from_secs(1));
    assert!(waiter.try_wait().expect("asked").is_none(), "fsync returned though the disk hangs");
    waiter.kill().expect("killed");
    let started = Instant::now();
    let ended = loop {
        match waiter.try_wait().expect("asked") {
            None if started.elapsed() < Duration::from_secs(600) => {
                std::thread::sleep(Duration::from_millis(50))
            }
            ended => break ended,
        }
    };
    disk.signal("-CONT");
    assert!(ended.is_some(), "it was killed and could not die");
    host.shell("zpool sync; test $(stat -c %s t/file) = 9000; zpool export tank").ok();
}
