//! Names: directories, links, renames, listings, special files.

use super::{Ask::Python, Ask::Shell, Row, long, promised, tank, whole};
use steadfast_tests::Host;

const ROWS: &[Row] = &[
    Row {
        name: "renaming over an open file leaves the old content to who has it open",
        ask: Python(
            r#"
put('old', 'before'); put('new', 'after')
f = open('old'); os.rename('new', 'old')
assert f.read() == 'before' and get('old') == b'after' and os.listdir('.') == ['old']
"#,
        ),
    },
    Row {
        name: "a directory that was replaced takes no more names",
        ask: Python(
            r#"
os.mkdir('a'); os.mkdir('b')
held = os.open('b', os.O_RDONLY)
os.rename('a', 'b')
assert os.listdir(held) == []
refuses(errno.ENOENT, os.open, 'x', CREATE, dir_fd=held)
refuses(errno.ENOENT, os.mkdir, 'x', dir_fd=held)
"#,
        ),
    },
    Row {
        name: "a rename can refuse to replace, can exchange, and can leave a whiteout",
        ask: Python(
            r#"
put('a', 'A'); put('b', 'B'); os.mkdir('d'); put('d/in', 'I')
refuses(errno.EEXIST, rename, 'a', 'b', 1)
rename('a', 'c', 1); assert get('c') == b'A'
rename('c', 'b', 2); assert get('c') == b'B' and get('b') == b'A'
rename('d', 'b', 2); assert get('d') == b'A' and get('b/in') == b'I'
refuses(errno.ENOENT, rename, 'b', 'none', 2)
refuses(errno.EINVAL, rename, 'b', 'b/in', 2)
for flags in (3, 6, 8):
    refuses(errno.EINVAL, rename, 'c', 'd', flags)
assert sorted(os.listdir('.')) == ['b', 'c', 'd']
if os.geteuid() == 0:
    rename('c', 'd', 4); white = os.lstat('c')
    assert stat.S_ISCHR(white.st_mode) and white.st_rdev == 0 and get('d') == b'B'
"#,
        ),
    },
    Row {
        name: "directories that change places keep their parents and link counts",
        ask: Python(
            r#"
os.makedirs('one/deep/er'); os.makedirs('two/other')
rename('one/deep', 'two/other', 2)
assert os.path.isdir('two/other/er') and os.listdir('one/deep') == []
assert os.stat('two/other/..').st_ino == os.stat('two').st_ino
assert (os.stat('one').st_nlink, os.stat('two/other').st_nlink, os.stat('one/deep').st_nlink) == (3, 3, 2)
"#,
        ),
    },
    Row {
        name: "a listing tells what stays in it once, whatever comes and goes meanwhile",
        ask: Python(
            r#"
os.mkdir('d')
for n in range(2500): put(f'd/stay{n}', '')
for n in range(2500): put(f'd/go{n}', '')
seen = []
with os.scandir('d') as listing:
    for count, entry in enumerate(listing):
        seen.append(entry.name)
        if count < 1200:
            try: os.unlink(f'd/go{count * 2}')
            except FileNotFoundError: pass
            put(f'd/new{count}', '')
stay = [name for name in seen if name.startswith('stay')]
assert len(stay) == len(set(stay)) == 2500, len(stay)
assert len(seen) == len(set(seen))
"#,
        ),
    },
    Row {
        name: "a place in a listing can be gone back to, also when its neighbours are deleted",
        ask: Shell(
            r#"
mkdir d; (cd d; seq -f n%g 1500 | xargs touch)
perl -e '
    opendir(my $d, "d") or die; my (@at, @name);
    while (1) { my $t = telldir $d; my $n = readdir $d; last unless defined $n; push @at, $t; push @name, $n }
    @name == 1502 or die "listed " . @name;
    for my $i (3, 1400, 777, 0) { seekdir $d, $at[$i]; my $n = readdir $d; $n eq $name[$i] or die "$i: $n" }
    for my $i (400 .. 599) { unlink "d/$name[$i]" if $name[$i] =~ /^n/ }
    for my $i (399, 600, 1200) { seekdir $d, $at[$i]; my $n = readdir $d; $n eq $name[$i] or die "later $i: $n" }
    rewinddir $d; my $left = grep { /^n/ } readdir $d; $left >= 1299 or die "left $left";
'
"#,
        ),
    },
    Row {
        name: "names have 255 bytes of any kind but slash and NUL",
        ask: Python(
            r#"
os.chdir(b'.')
names = [b'n' * 255, b'new\nline', b'\xff\xfe\x80', 'ä'.encode(), 'a\u0308'.encode(), b' ', b'-rf', b'A', b'a']
for name in names: os.close(os.open(name, CREATE))
assert sorted(os.listdir(b'.')) == sorted(names)
refuses(errno.ENAMETOOLONG, os.open, b'n' * 256, CREATE)
refuses(errno.ENAMETOOLONG, os.mkdir, b'n' * 256)
refuses(errno.ENAMETOOLONG, os.rename, b'a', b'n' * 256)
"#,
        ),
    },
    Row {
        name: "a symbolic link holds 4095 bytes, and a loop of links is told",
        ask: Python(
            r#"
target = 'x/' * 2047 + 'y'
os.symlink(target, 's')
assert os.readlink('s') == target and os.lstat('s').st_size == 4095
refuses(errno.ENAMETOOLONG, os.symlink, 'z' * 4096, 't')
os.symlink('b', 'a'); os.symlink('a', 'b')
refuses(errno.ELOOP, os.stat, 'a')
"#,
        ),
    },
    Row {
        name: "a listing tells the same numbers and types as stat",
        ask: Python(
            r#"
os.mkdir('dir'); put('file', ''); os.mkfifo('pipe'); os.symlink('x', 'link'); os.mknod('sock', stat.S_IFSOCK | 0o600)
os.mknod('char', stat.S_IFCHR | 0o600, os.makedev(1, 3)); os.mknod('block', stat.S_IFBLK | 0o600, os.makedev(7, 200))
for entry in os.scandir('.'):
    seen = os.lstat(entry.name)
    assert entry.inode() == seen.st_ino
    assert entry.is_symlink() == stat.S_ISLNK(seen.st_mode) and entry.is_dir(follow_symlinks=False) == stat.S_ISDIR(seen.st_mode)
"#,
        ),
    },
    Row {
        name: "special files keep their numbers and work",
        ask: Python(
            r#"
major, minor = 0xfff, 0xfffff
os.mknod('null', stat.S_IFCHR | 0o666, os.makedev(1, 3)); put('null', 'nothing'); assert get('null') == b''
os.mknod('big', stat.S_IFBLK | 0o600, os.makedev(major, minor))
rdev = os.stat('big').st_rdev
assert (os.major(rdev), os.minor(rdev)) == (major, minor), (os.major(rdev), os.minor(rdev))
os.mkfifo('pipe')
if os.fork() == 0:
    put('pipe', 'through'); os._exit(0)
assert get('pipe') == b'through'
import socket
s = socket.socket(socket.AF_UNIX); s.bind('sock'); s.listen(1)
c = socket.socket(socket.AF_UNIX); c.connect('sock')
"#,
        ),
    },
    Row {
        name: "a second name shows the same file at once",
        ask: Python(
            r#"
put('a', 'text')
first = os.stat('a'); os.link('a', 'b'); second = os.stat('b')
same = lambda s: (s.st_ino, s.st_dev, s.st_mode, s.st_size, s.st_blocks, s.st_uid, s.st_gid, s.st_mtime_ns)
assert same(first) == same(second)
assert second.st_nlink == os.stat('a').st_nlink == 2
assert second.st_ctime_ns >= first.st_ctime_ns
"#,
        ),
    },
    Row {
        name: "a file can have thousands of names",
        ask: Python(
            r#"
put('a', '')
for n in range(3000): os.link('a', f'l{n}')
assert os.stat('a').st_nlink == 3001
for n in range(3000): os.unlink(f'l{n}')
assert os.stat('a').st_nlink == 1
"#,
        ),
    },
    Row {
        name: "twenty thousand names in a directory are listed, found and removed",
        ask: Python(
            r#"
os.mkdir('d')
for n in range(20_000): os.mknod(f'd/{n}')
assert len(os.listdir('d')) == 20_000 and os.path.exists('d/19999') and not os.path.exists('d/20000')
import shutil; shutil.rmtree('d')
"#,
        ),
    },
    Row {
        name: "who watches a directory hears of its changes",
        ask: Python(
            r#"
watch = checked(libc.inotify_init())
checked(libc.inotify_add_watch(watch, b'.', 0xfff))
put('one', 'x'); os.rename('one', 'two'); os.chmod('two', 0o600); os.unlink('two')
heard, masks = os.read(watch, 8192), 0
while heard:
    _, mask, _, size = struct.unpack('iIII', heard[:16]); masks |= mask; heard = heard[16 + size:]
# Create, modify, both halves of a move, attributes, delete.
assert masks & (0x100 | 0x2 | 0x40 | 0x80 | 0x4 | 0x200) == 0x3c6, hex(masks)
"#,
        ),
    },
    Row {
        name: "what is not empty is not removed, and what is used as something else is refused",
        ask: Python(
            r#"
os.makedirs('d/e'); put('f', '')
refuses(errno.ENOTEMPTY, os.rmdir, 'd')
refuses(errno.ENOTDIR, os.rmdir, 'f')
refuses(errno.EISDIR, os.unlink, 'd')
refuses(errno.ENOTDIR, os.stat, 'f/x')
refuses(errno.EINVAL, os.rename, 'd', 'd/e/x')
refuses(errno.EISDIR, os.rename, 'f', 'd/e')
refuses(errno.ENOTDIR, os.rename, 'd', 'f')
os.mkdir('full'); put('full/x', '')
refuses(errno.ENOTEMPTY, os.rename, 'd/e', 'full')
refuses(errno.EPERM, os.link, 'd', 'hard')
"#,
        ),
    },
];

#[test]
fn names_behave() {
    promised("names", ROWS);
}

/// Runs a program of Python at the top of the mount, for as long as the harness has patience.
fn step(host: &Host, text: &str) {
    let text = format!("{}\n{text}", super::PYTHON);
    host.exec("env", &["-C", &host.at("t").display().to_string(), "python3", "-c", &text], b"").ok();
}

/// Does something for each `n` below `count * each`, in so many parts, because no command may take
/// longer than the harness has patience.
fn parts(host: &Host, count: u32, each: u32, text: &str) {
    for part in 0..count {
        step(host, &format!("for n in range({part} * {each}, ({part} + 1) * {each}): {text}"));
    }
}

/// A million names in one directory: made, found, listed while others delete, removed. Some
/// minutes.
#[test]
fn a_million_names() {
    if !long() {
        return steadfast_tests::skip("a million names", "long: set STEADFAST_LONG=1");
    }
    let Some(host) = tank("a million names", 4096) else { return };
    step(&host, "os.mkdir('d')");
    parts(&host, 20, 50_000, "os.mknod(f'd/{n:07}')");
    step(&host, "assert all(os.path.exists(f'd/{n:07}') for n in range(0, 1_000_000, 997))");
    step(
        &host,
        r#"
seen = set()
child = os.fork()
if child == 0:
    for n in range(1, 40_000, 2): os.unlink(f'd/{n:07}')
    os._exit(0)
for entry in os.scandir('d'):
    assert entry.name not in seen; seen.add(entry.name)
assert os.waitpid(child, 0)[1] == 0
assert all(f'{n:07}' in seen for n in range(0, 1_000_000, 2)) and len(seen) >= 980_000
assert len(os.listdir('d')) == 980_000
"#,
    );
    whole(&host);
    parts(&host, 20, 50_000, "n % 2 == 1 and n < 40_000 or os.unlink(f'd/{n:07}')");
    step(&host, "os.rmdir('d')");
    whole(&host);
}

/// More names of one file than 16 bits count.
#[test]
fn seventy_thousand_names_of_one_file() {
    if !long() {
        return steadfast_tests::skip("seventy thousand links", "long: set STEADFAST_LONG=1");
    }
    let Some(host) = tank("seventy thousand links", 1024) else { return };
    step(&host, "put('a', 'text'); os.mkdir('d')");
    parts(&host, 7, 10_000, "os.link('a', f'd/{n}')");
    step(&host, "assert os.stat('a').st_nlink == 70_001");
    whole(&host);
    host.shell("test $(stat -c %h t/a) = 70001; test $(ls -f t/d | wc -l) = 70002; cat t/d/69999")
        .ok()
        .says("text");
}
