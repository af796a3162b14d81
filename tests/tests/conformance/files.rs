//! Content: reading, writing, mapping, allocating, copying.

use super::{Ask::Python, Ask::Shell, Row, promised};

const ROWS: &[Row] = &[
    Row {
        name: "an open file lives on without its name",
        ask: Python(
            r#"
f = os.open('gone', CREATE); os.write(f, b'one')
os.unlink('gone')
os.pwrite(f, b'two', 3)
assert os.pread(f, 9, 0) == b'onetwo' and os.fstat(f).st_nlink == 0 and os.listdir('.') == []
"#,
        ),
    },
    Row {
        name: "writers that append never overwrite each other",
        ask: Shell(
            r#"
for writer in 1 2 3 4 5 6; do
    (for line in $(seq 80); do printf '%s %063d\n' $writer $line; done >>log) &
done
wait
test $(wc -l <log) = 480 && test $(grep -cE '^[1-6] [0-9]{63}$' log) = 480
test $(sort log | uniq | wc -l) = 480
"#,
        ),
    },
    Row {
        name: "what a mapping writes behind the end is zeros when the file grows again",
        ask: Python(
            r#"
f = os.open('map', CREATE); os.ftruncate(f, 4096)
m = mmap.mmap(f, 4096)
os.ftruncate(f, 50); m[60] = 7; m.flush()
os.ftruncate(f, 4096)
assert os.pread(f, 4096, 0) == bytes(4096)
"#,
        ),
    },
    Row {
        name: "a shared mapping and read and write see one content, and msync keeps it",
        ask: Python(
            r#"
f = os.open('map', CREATE); os.ftruncate(f, 3 << 20)
m = mmap.mmap(f, 3 << 20)
m[1 << 20:(1 << 20) + 5] = b'hello'
assert os.pread(f, 5, 1 << 20) == b'hello'
os.pwrite(f, b'world', 2 << 20)
assert m[2 << 20:(2 << 20) + 5] == b'world'
m.flush(); os.fsync(f); m.close(); os.close(f)
put('/proc/sys/vm/drop_caches', '1')
assert get('map')[1 << 20:(1 << 20) + 5] == b'hello'
"#,
        ),
    },
    Row {
        name: "writing through a mapping moves the modification time",
        ask: Python(
            r#"
f = os.open('map', CREATE); os.ftruncate(f, 4096)
os.utime('map', (5, 5))
m = mmap.mmap(f, 4096); m[9] = 1; m.flush(); m.close(); os.close(f)
assert os.stat('map').st_mtime > 5
"#,
        ),
    },
    Row {
        name: "seeking finds what a mapping has just stored",
        ask: Python(
            r#"
f = os.open('mapped', CREATE); os.ftruncate(f, 4 << 20); r = os.open('mapped', os.O_RDONLY)
m = mmap.mmap(f, 4 << 20)
for at in (1 << 20, 3 << 20):
    m[at] = 1
    for seeker in (f, r):
        data = os.lseek(seeker, at - 9, os.SEEK_DATA)
        assert data <= at < os.lseek(seeker, data, os.SEEK_HOLE)
    refuses(errno.ENXIO, os.lseek, f, 4 << 20, os.SEEK_DATA)
m.close(); os.close(f)
waits(lambda: 0 < os.lseek(r, 0, os.SEEK_DATA) <= 1 << 20)
"#,
        ),
    },
    Row {
        name: "seeking finds data and holes, and the end is a hole",
        ask: Python(
            r#"
f = os.open('sparse', CREATE)
os.pwrite(f, b'data', 3 << 20); os.ftruncate(f, 8 << 20); os.close(f)
f = os.open('sparse', os.O_RDONLY)
waits(lambda: os.lseek(f, 0, os.SEEK_DATA) > 0)
for kept in (False, True):
    at = os.lseek(f, 0, os.SEEK_DATA)
    assert 0 < at <= 3 << 20, at
    assert os.lseek(f, 0, os.SEEK_HOLE) == 0
    hole = os.lseek(f, 3 << 20, os.SEEK_HOLE)
    assert 3 << 20 < hole < 8 << 20, hole
    refuses(errno.ENXIO, os.lseek, f, hole, os.SEEK_DATA)
    refuses(errno.ENXIO, os.lseek, f, 8 << 20, os.SEEK_HOLE)
    os.fsync(f)
put('full', 'x')
f = os.open('full', os.O_RDONLY)
assert os.lseek(f, 0, os.SEEK_HOLE) == 1
"#,
        ),
    },
    Row {
        name: "seeking over a hole of exbibytes finds what is behind it, and its end",
        ask: Python(
            r#"
far = 1 << 60
f = os.open('huge', CREATE); os.pwrite(f, b'first', 0); os.pwrite(f, b'last', far); os.close(f)
f = os.open('huge', os.O_RDONLY)
waits(lambda: os.lseek(f, 1 << 30, os.SEEK_DATA) > 1 << 30)
for kept in (False, True):
    data = os.lseek(f, 1 << 30, os.SEEK_DATA)
    assert far - (16 << 20) < data <= far < os.lseek(f, data, os.SEEK_HOLE) <= far + 4, data
    assert os.lseek(f, 1 << 30, os.SEEK_HOLE) == 1 << 30
    os.fsync(f)
os.close(f); os.unlink('huge')
"#,
        ),
    },
    Row {
        name: "a punched hole reads as zeros, gives its blocks back and leaves the size",
        ask: Python(
            r#"
text = os.urandom(1 << 20); put('a', text)
f = os.open('a', os.O_RDWR); os.fsync(f)
before = os.fstat(f).st_blocks
fallocate(f, 3, 100_000, 600_000); os.fsync(f)
assert get('a') == text[:100_000] + bytes(600_000) + text[700_000:]
# What is freed is known once the commit that frees it is made.
deadline = time.time() + 300
while os.stat('a').st_blocks >= before and time.time() < deadline:
    time.sleep(0.2)
assert os.stat('a').st_blocks < before and os.stat('a').st_size == 1 << 20
refuses(errno.EOPNOTSUPP, fallocate, f, 2, 0, 4096)
"#,
        ),
    },
    Row {
        name: "a zeroed range reads as zeros, with or without growth",
        ask: Python(
            r#"
text = os.urandom(300_000); put('a', text)
f = os.open('a', os.O_RDWR)
fallocate(f, 0x10, 17, 250_000)
assert get('a') == text[:17] + bytes(250_000) + text[250_017:]
fallocate(f, 0x11, 299_990, 100_000)
assert os.fstat(f).st_size == 300_000
fallocate(f, 0x10, 299_990, 100_000)
assert os.fstat(f).st_size == 399_990 and get('a')[299_990:] == bytes(100_000)
"#,
        ),
    },
    Row {
        name: "space is asked for ahead: the file grows unless its size is to be kept, and too much is refused",
        ask: Python(
            r#"
f = os.open('a', CREATE)
fallocate(f, 1, 0, 1 << 20); assert os.fstat(f).st_size == 0
fallocate(f, 0, 0, 1 << 20); assert os.fstat(f).st_size == 1 << 20 and get('a') == bytes(1 << 20)
refuses(errno.ENOSPC, fallocate, f, 0, 0, 1 << 40)
refuses(errno.EINVAL, fallocate, f, 0, 0, 0)
assert os.fstat(f).st_size == 1 << 20
os.posix_fallocate(f, 1 << 20, 4096); assert os.fstat(f).st_size == (1 << 20) + 4096
"#,
        ),
    },
    Row {
        name: "collapsing and inserting ranges are refused and change nothing",
        ask: Python(
            r#"
text = os.urandom(65536); put('a', text)
f = os.open('a', os.O_RDWR)
for mode in (0x08, 0x20, 0x40):
    refuses(errno.EOPNOTSUPP, fallocate, f, mode, 4096, 4096)
assert get('a') == text
"#,
        ),
    },
    Row {
        name: "a file without a name can be given one, unless it was opened not to",
        ask: Python(
            r#"
def link(fd, name):
    os.link(f'/proc/self/fd/{fd}', name, src_dir_fd=fd)
f = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640)
os.write(f, b'text')
assert os.listdir('.') == [] and os.fstat(f).st_nlink == 0
link(f, 'named')
assert get('named') == b'text' and os.fstat(f).st_nlink == 1
assert stat.S_IMODE(os.stat('named').st_mode) == 0o640
refuses(errno.EEXIST, link, f, 'named')
f = os.open('.', os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
refuses(errno.ENOENT, link, f, 'never')
"#,
        ),
    },
    Row {
        name: "direct reads and writes agree with cached ones",
        ask: Shell(
            r#"
dd if=/dev/urandom of=a bs=128k count=9 oflag=direct status=none
dd if=a of=b bs=32k iflag=direct status=none
cmp a b
printf end >>a
test "$(tail -c 3 a)" = end
dd if=/dev/zero of=a bs=4k count=1 seek=2 oflag=direct conv=notrunc status=none
cmp -n 4096 -i 8192:0 a /dev/zero
cmp -n 8192 a b
"#,
        ),
    },
    Row {
        name: "a range is copied inside the pool, and behind the end there is nothing to copy",
        ask: Python(
            r#"
text = os.urandom(3_000_000); put('a', text)
a, b = os.open('a', os.O_RDONLY), os.open('b', CREATE)
done = 0
while done < 2_000_000:
    done += os.copy_file_range(a, b, 2_000_000 - done, 777_777 + done, 5 + done)
assert get('b') == bytes(5) + text[777_777:2_777_777]
assert os.copy_file_range(a, b, 100, 3_000_000, 0) == 0
f = os.open('a', os.O_RDWR)
refuses(errno.EINVAL, os.copy_file_range, f, f, 1000, 0, 500)
"#,
        ),
    },
    Row {
        name: "a clone by reference is refused in words that cp understands",
        ask: Shell(
            r#"
head -c 300000 /dev/urandom >a
fails cp --reflink=always a b
cp --reflink=auto a c
cmp a c
"#,
        ),
    },
    Row {
        name: "the greatest offset is 2^63-1",
        ask: Python(
            r#"
f = os.open('a', CREATE)
os.ftruncate(f, 2**63 - 1)
assert os.fstat(f).st_size == 2**63 - 1
assert os.pread(f, 4, 2**63 - 5) == bytes(4)
assert os.pwrite(f, b'end', 2**63 - 4) == 3 and os.pread(f, 3, 2**63 - 4) == b'end'
for call, args in ((os.pwrite, (f, b'xy', 2**63 - 1)), (os.ftruncate, (f, -1))):
    try:
        call(*args)
        raise SystemExit('too far and yet well')
    except OSError as error:
        assert error.errno in (errno.EINVAL, errno.EFBIG), error
os.ftruncate(f, 0)
"#,
        ),
    },
    Row {
        name: "a write that the resource limit cuts is refused with EFBIG",
        ask: Shell(
            r#"
(trap '' XFSZ; ulimit -f 100; fails dd if=/dev/zero of=a bs=1k count=200 status=none)
test $(stat -c %s a) = 102400
"#,
        ),
    },
    Row {
        name: "directories and files opened for reading can be synced",
        ask: Python(
            r#"
put('a', 'x')
for name in ('.', 'a'):
    f = os.open(name, os.O_RDONLY); os.fsync(f); os.fdatasync(f); os.close(f)
"#,
        ),
    },
    Row {
        name: "a file made without any permission can be used by who made it",
        ask: Python(
            r#"
os.chmod('.', 0o777)
def work():
    f = os.open('a', CREATE | os.O_EXCL, 0)
    os.write(f, b'x'); os.ftruncate(f, 3)
    assert os.pread(f, 9, 0) == b'x\0\0'
    refuses(errno.EACCES, os.open, 'a', os.O_RDONLY)
as_user(1, work)
"#,
        ),
    },
    Row {
        name: "a descriptor keeps its rights when the file loses them, and its name",
        ask: Python(
            r#"
os.chmod('.', 0o777)
def work():
    f = os.open('a', CREATE, 0o644)
    os.chmod('a', 0); os.write(f, b'x')
    os.fchmod(f, 0o400); os.ftruncate(f, 7)
    os.unlink('a'); os.fchmod(f, 0o600); os.pwrite(f, b'y', 6)
    assert os.fstat(f).st_size == 7 and os.pread(f, 1, 6) == b'y'
as_user(1, work)
"#,
        ),
    },
    Row {
        name: "one of many who create a file exclusively wins",
        ask: Python(
            r#"
def race():
    try:
        os.open('one', CREATE | os.O_EXCL)
        return 0
    except FileExistsError:
        return 9
children = []
for _ in range(12):
    child = os.fork()
    if child == 0:
        os._exit(race())
    children.append(child)
ends = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
assert ends == [0] + [9] * 11, ends
"#,
        ),
    },
    Row {
        name: "a running program cannot be written to",
        ask: Shell(
            r#"
cp /bin/sleep nap; ./nap 1000 & pid=$!
until readlink /proc/$pid/exe | grep -q '/nap$'; do sleep 0.05; done
fails sh -c 'echo more >>nap'
fails truncate -s 0 nap
kill $pid; wait $pid || true
cmp nap /bin/sleep
"#,
        ),
    },
];

#[test]
fn content_is_what_was_written() {
    promised("content", ROWS);
}
